//! What SQL functions show about stored values, where pages cannot be read (pure): the queries, and the meaning of
//! their results. All verbs use this interpretation.
//!
//! A form is reported only if it is the only one possible. The following remains unknown:
//!
//! * before PostgreSQL 17, whether a compressed value is out of line; also whether an uncompressed one is, for types
//!   that `octet_length` does not accept, unless its size shows it;
//! * for these types, whether a value of at most 127 bytes has a header of 1 or 4 bytes;
//! * whether a row is older than a column that has a default, so that the value is not in the row;
//! * everything but the raw size, if the table's access method is not heap: the functions then see values as the access
//!   method returns them, which may have stored them in another way (Citus's columnar compresses them in groups).
//!
//! For chosen rows, `exact` uses queries that leave only the last of these unknown; they read values.

mod exact;

pub(crate) use exact::RowQuestion;

use std::ops::Range;

use super::about::Server;
use super::catalog::Relation;
use toast_format::codec::Method;
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::{Attribute, Length, Oid, PageSize, Storage, ValueId, max_align, types};
use toast_format::model::sql::{in_blocks, quote_identifier};
use toast_format::model::stored::{
    FunctionAnswer, LONGEST_SHORT, Location, Placement, pointer_size,
};
use toast_format::model::{Form, StoredValue};

/// A datum of this size is smaller than its pointer would be and stays in the row
/// (`toast_tuple_find_biggest_attribute`), even where pointers are aligned to 4 bytes. The size of an out-of-line value
/// does not include the 4 bytes of its header.
const NEVER_MOVED: u64 = 20 - 4;

/// The results of the functions for one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `pg_column_size`; `None` for NULL.
    pub stored: Option<u64>,
    /// The result of `pg_column_compression`.
    pub method: Option<Method>,
    /// `octet_length`, if the type has it.
    pub raw: Option<u64>,
    /// `pg_column_toast_chunk_id IS NOT NULL`, from PostgreSQL 17.
    pub external: Option<bool>,
}

/// A column, as the functions see it.
#[derive(Debug, Clone, Copy)]
struct AskedColumn<'a> {
    attribute: &'a Attribute,
    /// Whether `octet_length` accepts its values.
    bytes_like: bool,
}

/// How to query a table, and how to interpret the results.
#[derive(Debug, Clone)]
pub(crate) struct Probe<'a> {
    /// The name as SQL needs it, with its schema.
    table: String,
    /// By index from 0; `None` for dropped columns.
    columns: Vec<Option<AskedColumn<'a>>>,
    page: PageSize,
    toast_relation: Option<Oid>,
    has_chunk_id: bool,
    /// Whether the table's access method is heap.
    is_heap: bool,
}

/// The four expressions that are queried for a value.
struct Questions {
    size: String,
    method: String,
    raw: String,
    external: String,
}

fn null(type_name: &str) -> String {
    format!("NULL::pg_catalog.{type_name}")
}

/// NULL where the server cannot answer the question.
fn if_known(is_known: bool, question: String, type_name: &str) -> String {
    if is_known { question } else { null(type_name) }
}

/// One of the questions about each column, separated by commas.
fn listed(asked: &[Questions], question: fn(&Questions) -> &str) -> String {
    let list: Vec<&str> = asked.iter().map(question).collect();
    list.join(", ")
}

impl<'a> Probe<'a> {
    /// For this table on this server.
    pub(crate) fn new(server: &Server, relation: &'a Relation) -> Probe<'a> {
        let columns = relation.desc.attributes.iter().enumerate();
        let columns = columns.map(|(index, attribute)| {
            attribute.is_stored().then(|| AskedColumn {
                attribute,
                bytes_like: relation.bytes_like.get(index) == Some(&true),
            })
        });
        Probe {
            table: relation.quoted(),
            columns: columns.collect(),
            page: server.page_size,
            toast_relation: relation.toast.as_ref().map(|toast| toast.oid),
            has_chunk_id: server.has_toast_chunk_id(),
            is_heap: relation.is_heap,
        }
    }

    /// For a table in which no value is out of line.
    pub(crate) fn in_rows(self) -> Probe<'a> {
        Probe { toast_relation: None, ..self }
    }

    /// The indexes of all columns that are not dropped.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns.filter_map(|(index, column)| column.map(|_| index)).collect()
    }

    fn column(&self, index: usize) -> Option<AskedColumn<'a>> {
        self.columns.get(index).copied().flatten()
    }

    fn questions(&self, index: usize) -> Questions {
        let Some(column) = self.column(index) else {
            return Questions {
                size: null("int4"),
                method: null("text"),
                raw: null("int4"),
                external: null("bool"),
            };
        };
        let value = format!("t.{}", quote_identifier(&column.attribute.name));
        let varlena = column.attribute.length == Length::Varlena;
        Questions {
            size: format!("pg_catalog.pg_column_size({value})"),
            method: if_known(varlena, format!("pg_catalog.pg_column_compression({value})"), "text"),
            raw: if_known(column.bytes_like, format!("pg_catalog.octet_length({value})"), "int4"),
            external: if_known(
                varlena && self.has_chunk_id,
                format!("pg_catalog.pg_column_toast_chunk_id({value}) IS NOT NULL"),
                "bool",
            ),
        }
    }

    /// Groups the values of all columns in one scan of the table: index, size, method, length of the content, whether
    /// they are out of line, and their number. `None` if there is no column.
    pub(crate) fn groups(&self) -> Option<String> {
        let rows: Vec<String> = self
            .columns()
            .into_iter()
            .map(|index| {
                let Questions { size, method, raw, external } = self.questions(index);
                format!("({index}, {size}, {method}, {raw}, {external})")
            })
            .collect();
        (!rows.is_empty()).then(|| {
            format!(
                "SELECT v.i, v.stored, v.method, v.raw, v.external, pg_catalog.count(*) \
                 FROM ONLY {} AS t \
                 CROSS JOIN LATERAL (VALUES {}) AS v (i, stored, method, raw, external) \
                 GROUP BY 1, 2, 3, 4, 5",
                self.table,
                rows.join(", ")
            )
        })
    }

    /// The rows in a range of blocks: address, inserting transaction, an array with the sizes of all columns, and
    /// arrays over the columns `asked` with their methods, the lengths of the content, and whether they are out of
    /// line.
    pub(crate) fn rows(&self, asked: &[usize], blocks: &Range<u32>) -> String {
        let sizes: Vec<String> =
            self.columns().into_iter().map(|index| self.questions(index).size).collect();
        let asked: Vec<Questions> = asked.iter().map(|&index| self.questions(index)).collect();
        format!(
            "SELECT t.ctid::pg_catalog.text, t.xmin::pg_catalog.text, \
             ARRAY[{}]::pg_catalog.int4[], ARRAY[{}]::pg_catalog.text[], \
             ARRAY[{}]::pg_catalog.int4[], ARRAY[{}]::pg_catalog.bool[] \
             FROM ONLY {} AS t WHERE {}",
            sizes.join(", "),
            listed(&asked, |q| &q.method),
            listed(&asked, |q| &q.raw),
            listed(&asked, |q| &q.external),
            self.table,
            in_blocks(blocks)
        )
    }

    /// Interprets the results for a value of a column.
    pub(crate) fn interpret(&self, index: usize, answer: Answer) -> FunctionAnswer {
        let (Some(stored), Some(column)) = (answer.stored, self.column(index)) else {
            return FunctionAnswer::NULL;
        };
        let attribute = column.attribute;
        if !self.is_heap {
            let (raw_size, placement) = match attribute.length {
                Length::Fixed(_) => (Some(stored), Placement::InRow),
                _ => (answer.raw, Placement::Unknown),
            };
            let value = StoredValue { form: Form::Unknown, raw_size, ..StoredValue::NULL };
            return FunctionAnswer { value, placement };
        }
        let placement = self.placement(&column, &answer, stored);
        let form = match (placement, answer.method) {
            (Placement::Unknown, _) => Form::Unknown,
            (Placement::OutOfLine, None) => Form::External,
            (Placement::OutOfLine, Some(_)) => Form::ExternalCompressed,
            (Placement::InRow, Some(_)) => Form::Compressed,
            (Placement::InRow, None) => in_row(&column, &answer, stored),
        };
        let raw_size = answer.raw.or(match (form, attribute.length) {
            (_, Length::Fixed(_)) => Some(stored),
            // The size includes the terminating NUL.
            (_, Length::CString) => Some(stored.saturating_sub(1)),
            (Form::External, _) => Some(stored),
            (Form::Plain, _) => Some(stored.saturating_sub(4)),
            _ => None,
        });
        let may_be_missing = form != Form::External
            && answer.method.is_none()
            && attribute.missing.as_ref().is_some_and(|missing| {
                missing.stored_size.is_none_or(|size| u64::from(size) == stored)
            });
        let form = if may_be_missing { Form::Unknown } else { form };
        let location = if form.is_external() {
            self.toast_relation.map(|toast_relation| Location {
                value_id: ValueId(0),
                toast_relation,
                chunks: self.page.chunks(u32::try_from(stored).unwrap_or(u32::MAX)),
            })
        } else {
            None
        };
        let value = StoredValue {
            form,
            method: answer.method,
            raw_size,
            stored_size: Some(stored),
            pointer_size: pointer_size(form),
            location,
            custom: None,
        };
        FunctionAnswer { value, placement }
    }

    /// The size of the longest value that fits in a row.
    fn longest_in_row(&self) -> u64 {
        (self.page.toast_tuple_target_main() - max_align(TUPLE_HEADER_SIZE)) as u64
    }

    fn placement(&self, column: &AskedColumn<'_>, answer: &Answer, stored: u64) -> Placement {
        let external = match (answer.external, answer.method, answer.raw) {
            _ if column.attribute.length != Length::Varlena => Some(false),
            (Some(external), ..) => Some(external),
            _ if self.toast_relation.is_none() => Some(false),
            // No row is longer than its page.
            _ if stored > self.longest_in_row() => Some(true),
            // The size of an uncompressed value shows whether it has a header, which only values in rows have.
            (None, None, Some(raw)) => Some(raw == stored),
            _ if stored <= NEVER_MOVED => Some(false),
            _ => None,
        };
        match external {
            Some(true) => Placement::OutOfLine,
            Some(false) => Placement::InRow,
            None => Placement::Unknown,
        }
    }
}

/// The form of an uncompressed value in the row.
fn in_row(column: &AskedColumn<'_>, answer: &Answer, stored: u64) -> Form {
    let attribute = column.attribute;
    if attribute.length != Length::Varlena {
        return Form::Plain;
    }
    match answer.raw {
        Some(raw) if stored == raw + 1 => Form::Short,
        Some(raw) if stored == raw + 4 => Form::Plain,
        Some(_) => Form::Unknown,
        None if stored > LONGEST_SHORT || is_always_plain(attribute) => Form::Plain,
        None => Form::Unknown,
    }
}

/// Whether the type supports no storage but `plain`. Other columns may have been set to `plain` later, and may contain
/// values with a 1-byte header.
fn is_always_plain(attribute: &Attribute) -> bool {
    attribute.storage == Storage::Plain
        && types::by_oid(attribute.type_oid).is_some_and(|known| known.storage == Storage::Plain)
}

#[cfg(test)]
mod tests;
