//! Queries a few rows so that the form and raw size of each value are certain. Where only the content shows this,
//! values are read.

use super::{AskedColumn, LONGEST_SHORT, Probe, Questions, listed};
use crate::server::owner_facts::FIRST_NORMAL;
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::{Length, max_align};
use toast_format::model::sql::quote_identifier;
use toast_format::model::sql::{fresh, fresh_array};

/// The maximum stored size of a row whose values are fetched to find out the size of its dropped columns.
const MOST_WHOLE: u32 = 100_000;

/// How much is queried about chosen rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowQuestion<'a> {
    /// What can be determined without reading values.
    Sizes,
    /// Forms and raw sizes: raw sizes always for these columns, for others only if the form depends on them.
    Exactly {
        weighed: &'a [usize],
        /// Whether the size of whole rows is queried too.
        whole: bool,
    },
}

impl Probe<'_> {
    /// The rows at addresses `$1`: address; arrays over all columns ([`Probe::columns`]) with sizes, methods, lengths
    /// of the content, and whether values are out of line; and, if it was requested and the row is not too long, the
    /// size of the whole row with its values fetched.
    pub(crate) fn chosen_rows(&self, asked: RowQuestion<'_>) -> String {
        let whole = matches!(asked, RowQuestion::Exactly { whole: true, .. });
        let asked: Vec<Questions> = self
            .columns()
            .into_iter()
            .map(|index| match asked {
                RowQuestion::Sizes => self.questions(index),
                RowQuestion::Exactly { weighed, .. } => {
                    self.exact_questions(index, weighed.contains(&index))
                }
            })
            .collect();
        format!(
            "SELECT t.ctid::pg_catalog.text, ARRAY[{}]::pg_catalog.int4[], \
             ARRAY[{}]::pg_catalog.text[], ARRAY[{}]::pg_catalog.int4[], \
             ARRAY[{}]::pg_catalog.bool[], {} \
             FROM ONLY {} AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            listed(&asked, |q| &q.size),
            listed(&asked, |q| &q.method),
            listed(&asked, |q| &q.raw),
            listed(&asked, |q| &q.external),
            if whole { whole_size(&asked) } else { "NULL::pg_catalog.int4".to_owned() },
            self.table,
        )
    }

    /// The addresses of the visible rows in the blocks `$1`, each of which contains at most `$2`. The table's
    /// statistics do not count rows fetched by address, as they would count a scan.
    pub(crate) fn addresses(&self) -> String {
        format!(
            "SELECT t.ctid::pg_catalog.text FROM ONLY {} AS t WHERE t.ctid = ANY (ARRAY(\
             SELECT pg_catalog.format('(%s,%s)', b.n, i.n)::pg_catalog.tid \
             FROM pg_catalog.unnest($1) AS b (n) \
             CROSS JOIN pg_catalog.generate_series(1, $2) AS i (n)))",
            self.table
        )
    }

    /// The total size of one column's values at addresses `$1`, as stored and raw.
    pub(crate) fn weight(&self, index: usize) -> Option<String> {
        let column = self.column(index)?;
        let value = format!("t.{}", quote_identifier(&column.attribute.name));
        Some(format!(
            "SELECT coalesce(pg_catalog.sum(pg_catalog.pg_column_size({value})), 0)\
                 ::pg_catalog.float8, \
             coalesce(pg_catalog.sum({}), 0)::pg_catalog.float8 \
             FROM ONLY {} AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            raw_size(&column, &value),
            self.table
        ))
    }

    /// The address and text of one column's values at addresses `$1`, as bytes in the database's encoding.
    pub(crate) fn texts(&self, index: usize) -> Option<String> {
        let column = self.column(index)?;
        let value = format!("t.{}", quote_identifier(&column.attribute.name));
        // A cast of another type could be a function of the type's owner.
        let text = if column.attribute.type_oid.0 < FIRST_NORMAL {
            format!("{value}::pg_catalog.text")
        } else {
            format!("pg_catalog.format('%s', {value})")
        };
        // For a composite value, IS NOT NULL would mean that no attribute is NULL.
        Some(format!(
            "SELECT t.ctid::pg_catalog.text, pg_catalog.convert_to({text}, \
                 pg_catalog.getdatabaseencoding()) \
             FROM ONLY {} AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) \
             AND {value} IS DISTINCT FROM NULL",
            self.table
        ))
    }

    /// Whether the raw size of a column's values can be determined without reading them.
    pub(crate) fn tells_raw(&self, index: usize) -> bool {
        self.column(index)
            .is_none_or(|column| column.bytes_like || column.attribute.length != Length::Varlena)
    }

    fn exact_questions(&self, index: usize, weighed: bool) -> Questions {
        let mut asked = self.questions(index);
        let Some(column) = self.column(index) else { return asked };
        if column.attribute.length != Length::Varlena {
            return asked;
        }
        let value = format!("t.{}", quote_identifier(&column.attribute.name));
        let Questions { size, method, .. } = self.questions(index);
        let longest = self.longest_in_row();
        if !column.bytes_like {
            let raw = raw_size(&column, &value);
            // The size of an uncompressed value shows whether it has a header, and which one.
            let open = if self.has_chunk_id { LONGEST_SHORT } else { longest };
            asked.raw = if weighed {
                raw
            } else {
                format!("CASE WHEN {method} IS NULL AND {size} <= {open} THEN {raw} END")
            };
        }
        if !self.has_chunk_id {
            // A row constructor keeps a compressed datum that is in the row, but decompresses one that it must fetch.
            let header = max_align(TUPLE_HEADER_SIZE);
            asked.external = format!(
                "CASE WHEN {method} IS NOT NULL AND {size} <= {longest} \
                 THEN pg_catalog.pg_column_size(ROW({value})) <> {size} + {header} END"
            );
        }
        asked
    }
}

/// The size of a whole row, including dropped columns, if the total size of its values is at most [`MOST_WHOLE`].
fn whole_size(asked: &[Questions]) -> String {
    let sizes: Vec<String> = asked.iter().map(|q| format!("coalesce({}, 0)", q.size)).collect();
    let sum = if sizes.is_empty() { "0".to_owned() } else { sizes.join(" + ") };
    format!("CASE WHEN {sum} <= {MOST_WHOLE} THEN pg_catalog.pg_column_size(t.*) END")
}

/// The size of a value's content: that of a fresh datum without its header.
fn raw_size(column: &AskedColumn<'_>, value: &str) -> String {
    if column.bytes_like {
        return format!("pg_catalog.octet_length({value})");
    }
    let is_array = column.attribute.type_name.ends_with("[]");
    let datum = if is_array { fresh_array(value) } else { fresh(value) };
    format!("pg_catalog.pg_column_size({datum}) - 4")
}
