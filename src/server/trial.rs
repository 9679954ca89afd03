//! The trial: a temporary table in which the server itself compresses copies of values. Whoever asks what a
//! server makes of a value asks here.
//!
//! [`Copies`] is the table as text (pure); [`Trial`] asks about one column's values.
//!
//! How long rows must be for the toaster to be called, and what the size of a copy in such a row means (`heaptoast.h`,
//! `heaptoast.c`, `toast_helper.c`): a copy stands in an EXTENDED column beside padding in a PLAIN one. The padding alone makes
//! the row longer than `TOAST_TUPLE_THRESHOLD`, which grows with the page, so that the toaster is called however short the
//! copy is; and longer than `toast_tuple_target`, so that it compresses and moves out all that it may.

use std::collections::HashMap;
use std::fmt::Write;

use tokio_postgres::types::Type;

use super::LiveError;
use super::connect::Client;
use crate::codec::Method;
use crate::disk::layout::PageSize;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::{ItemPointer, max_align};
use crate::model::policy::CompressedSizes;
use crate::model::settings::TupleTarget;
use crate::model::sql::quote_identifier;
use crate::model::sql::{fresh, fresh_array};

/// `toast_tuple_target` of such rows, in bytes: the least.
const TARGET: u16 = TupleTarget::MIN;

/// Bytes of the padding, without its header.
fn padding(page: PageSize) -> usize {
    page.toast_tuple_threshold()
}

/// A datum of up to this many bytes is neither compressed nor moved out
/// (`toast_tuple_find_biggest_attribute`).
const NEVER_MOVED: u32 = max_align(TOAST_POINTER_SIZE) as u32;

/// Bytes by which `pg_column_size` is less than the datum once that is out of line: its length word.
const NOT_COUNTED: u32 = 4;

/// The column of the padding.
const PADDING: &str = "p";

/// A value of the type that a domain, or domains over domains, are made of: where a row has no copy NULL
/// stands, which a domain may refuse. CASE with an arm whose type is not known makes that of a domain, without a
/// length or the like, or, of what is no domain, with it only before PostgreSQL 19.
fn base_of(value: &str) -> String {
    format!("CASE WHEN true THEN {value} ELSE NULL END")
}

/// Copies of a column's values.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    /// Their column's name, a plain word.
    pub name: String,
    /// An expression of their type over the column that they are copies of, of a table named `t`.
    pub of: String,
    /// The method that compresses them.
    pub method: Method,
}

/// The temporary table's text.
#[derive(Debug, Clone)]
pub(crate) struct Copies {
    /// Its name, a plain word.
    pub name: String,
    /// Columns that tell its rows apart: names, plain words, and expressions of their types.
    pub keys: Vec<(String, &'static str)>,
    /// Its columns of copies.
    pub copies: Vec<Copied>,
}

impl Copies {
    /// Makes the table, in the order of keys, copies, padding. One made before in the same session is dropped.
    pub(crate) fn make(&self, table: &str) -> String {
        let (mut columns, mut settings) = (String::new(), String::new());
        // writing to a string cannot fail
        for (key, of) in &self.keys {
            let _ = write!(columns, "{of} AS {key}, ");
        }
        for Copied { name, of, method } in &self.copies {
            let _ = write!(columns, "{of} AS {name}, ");
            let method = method.name();
            let _ = write!(
                settings,
                "ALTER {name} SET STORAGE extended, ALTER {name} SET COMPRESSION {method}, "
            );
        }
        let name = &self.name;
        format!(
            "DROP TABLE IF EXISTS pg_temp.{name}; \
             CREATE TEMPORARY TABLE {name} AS SELECT {columns}''::pg_catalog.text AS {PADDING} \
             FROM ONLY {table} AS t WITH NO DATA; \
             ALTER TABLE pg_temp.{name} {settings}ALTER {PADDING} SET STORAGE plain, \
             SET (toast_tuple_target = {TARGET}, autovacuum_enabled = off)"
        )
    }
}

/// What stands in the padding's column.
pub(crate) fn padding_text(page: PageSize) -> String {
    format!("pg_catalog.repeat('x', {})", padding(page))
}

/// An expression for the size of the compressed datum in a column of copies, its 8 bytes of headers
/// included; NULL where the server keeps the value as it is.
///
/// Of a datum out of line `pg_column_size` does not count the length word. Sizes that may be those of one
/// in the row are told apart by a row constructor, which keeps a compressed datum of its row, but
/// decompresses what it must fetch.
pub(crate) fn compressed_size(copy: &str) -> String {
    let size = format!("pg_catalog.pg_column_size({copy})");
    let header = crate::disk::max_align(crate::disk::layout::TUPLE_HEADER_SIZE);
    format!(
        "CASE WHEN pg_catalog.pg_column_compression({copy}) IS NULL THEN NULL \
         WHEN {size} <= {NEVER_MOVED} AND pg_catalog.pg_column_size(ROW({copy})) = {size} + {header} \
         THEN {size}::pg_catalog.int8 ELSE {size}::pg_catalog.int8 + {NOT_COUNTED} END"
    )
}

/// What the server compresses the values of one column to.
#[derive(Debug, Clone)]
pub struct Trial {
    copies: Copies,
    table: String,
    /// The expression of a value's fresh datum.
    fresh: String,
    page: PageSize,
}

impl Trial {
    /// For a column of the relation with this quoted name, by its index from 0.
    pub fn new(
        table: String,
        (index, name): (usize, &str),
        is_array: bool,
        methods: &[Method],
        page: PageSize,
    ) -> Trial {
        let value = format!("t.{}", quote_identifier(name));
        let fresh = if is_array { fresh_array(&value) } else { fresh(&value) };
        Trial::of(table, (index, name), fresh, methods, page)
    }

    /// As [`Trial::new`], where `fresh` is the expression that makes a new datum of the value.
    pub(crate) fn of(
        table: String,
        (index, name): (usize, &str),
        fresh: String,
        methods: &[Method],
        page: PageSize,
    ) -> Trial {
        let of = base_of(&format!("t.{}", quote_identifier(name)));
        let copied =
            |&method: &Method| Copied { name: method.name().into(), of: of.clone(), method };
        let copies = Copies {
            name: format!("toastctl_trial_{index}"),
            keys: vec![("a".to_owned(), "''::pg_catalog.text")],
            copies: methods.iter().map(copied).collect(),
        };
        Trial { copies, table, fresh, page }
    }

    /// Makes the temporary table. Not in a read-only transaction.
    pub async fn make(&self, client: &Client) -> Result<(), LiveError> {
        Ok(client.batch_execute(&self.copies.make(&self.table)).await?)
    }

    /// Copies the values at the addresses `$1`.
    fn fill(&self) -> String {
        let values = vec![self.fresh.as_str(); self.copies.copies.len()].join(", ");
        format!(
            "INSERT INTO pg_temp.{} SELECT t.ctid::pg_catalog.text, {values}, {} FROM ONLY {} AS t \
             WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            self.copies.name,
            padding_text(self.page),
            self.table
        )
    }

    /// Address, and for each method the datum's size.
    fn sizes(&self) -> String {
        let sizes: Vec<String> =
            self.copies.copies.iter().map(|copy| compressed_size(&copy.name)).collect();
        format!("SELECT a, {} FROM pg_temp.{}", sizes.join(", "), self.copies.name)
    }

    /// Lets the server compress the values of these rows: the sizes of the datums with their 8 bytes of
    /// headers, none where it refuses. A row that is gone has no answer.
    pub async fn compress(
        &self,
        client: &Client,
        rows: &[ItemPointer],
    ) -> Result<HashMap<ItemPointer, CompressedSizes>, LiveError> {
        let items: Vec<String> = rows.iter().map(ToString::to_string).collect();
        client.execute_typed(&self.fill(), &[(&items, Type::TEXT_ARRAY)]).await?;
        let mut by_text: HashMap<String, CompressedSizes> = HashMap::with_capacity(rows.len());
        for row in client.query_typed(&self.sizes(), &[]).await? {
            let mut sizes = CompressedSizes::default();
            for (at, copy) in self.copies.copies.iter().enumerate() {
                let size: Option<i64> = row.try_get(at + 1)?;
                sizes.set(copy.method, size.and_then(|size| u32::try_from(size).ok()));
            }
            by_text.insert(row.try_get(0)?, sizes);
        }
        client.batch_execute(&format!("TRUNCATE pg_temp.{}", self.copies.name)).await?;
        let answered = rows.iter().zip(&items);
        Ok(answered.filter_map(|(&row, text)| Some((row, *by_text.get(text)?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::desc::{Align, Length, Storage};
    use crate::model::cost::Prices;
    use crate::model::policy::{MethodChoice, Policy};
    use crate::model::stored::Form;
    use crate::model::toast::{Column, Incoming, Operation, Table};

    fn trial(page: PageSize) -> Trial {
        let methods = [Method::Pglz, Method::Lz4];
        Trial::new(r#""s"."T""#.into(), (2, "a\"b"), false, &methods, page)
    }

    #[test]
    fn the_server_compresses_in_a_temporary_table() {
        let trial = trial(PageSize::DEFAULT);
        insta::assert_snapshot!(trial.copies.make(&trial.table), @r#"DROP TABLE IF EXISTS pg_temp.toastctl_trial_2; CREATE TEMPORARY TABLE toastctl_trial_2 AS SELECT ''::pg_catalog.text AS a, CASE WHEN true THEN t."a""b" ELSE NULL END AS pglz, CASE WHEN true THEN t."a""b" ELSE NULL END AS lz4, ''::pg_catalog.text AS p FROM ONLY "s"."T" AS t WITH NO DATA; ALTER TABLE pg_temp.toastctl_trial_2 ALTER pglz SET STORAGE extended, ALTER pglz SET COMPRESSION pglz, ALTER lz4 SET STORAGE extended, ALTER lz4 SET COMPRESSION lz4, ALTER p SET STORAGE plain, SET (toast_tuple_target = 128, autovacuum_enabled = off)"#);
        insta::assert_snapshot!(trial.fill(), @r#"INSERT INTO pg_temp.toastctl_trial_2 SELECT t.ctid::pg_catalog.text, (ARRAY[t."a""b"])[1], (ARRAY[t."a""b"])[1], pg_catalog.repeat('x', 2032) FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])"#);
        insta::assert_snapshot!(trial.sizes(), @"SELECT a, CASE WHEN pg_catalog.pg_column_compression(pglz) IS NULL THEN NULL WHEN pg_catalog.pg_column_size(pglz) <= 24 AND pg_catalog.pg_column_size(ROW(pglz)) = pg_catalog.pg_column_size(pglz) + 24 THEN pg_catalog.pg_column_size(pglz)::pg_catalog.int8 ELSE pg_catalog.pg_column_size(pglz)::pg_catalog.int8 + 4 END, CASE WHEN pg_catalog.pg_column_compression(lz4) IS NULL THEN NULL WHEN pg_catalog.pg_column_size(lz4) <= 24 AND pg_catalog.pg_column_size(ROW(lz4)) = pg_catalog.pg_column_size(lz4) + 24 THEN pg_catalog.pg_column_size(lz4)::pg_catalog.int8 ELSE pg_catalog.pg_column_size(lz4)::pg_catalog.int8 + 4 END FROM pg_temp.toastctl_trial_2");
        insta::assert_snapshot!(fresh_array("c"), @"CASE WHEN c IS NOT NULL THEN pg_catalog.array_cat(c, '{}') END");
    }

    /// `TOAST_TUPLE_THRESHOLD` for pages of 4, 8, 16 and 32 kB; the padding's header and the row's come to it.
    #[test]
    fn the_padding_is_that_of_the_servers_pages() {
        for (kilobytes, bytes) in [(4, 1008), (8, 2032), (16, 4080), (32, 8176)] {
            let sql = trial(PageSize::new(kilobytes << 10).unwrap()).fill();
            assert!(sql.contains(&format!("repeat('x', {bytes})")), "{kilobytes}: {sql}");
        }
    }

    fn row_of(page: PageSize) -> Table {
        let column = |storage| Column {
            length: Length::Varlena,
            align: Align::Int,
            storage,
            type_storage: Storage::Extended,
            method: MethodChoice::One(Method::Lz4),
            policy: Policy::Always,
        };
        Table {
            columns: vec![column(Storage::Extended), column(Storage::Plain)],
            target: TupleTarget::new(u32::from(TARGET), page).unwrap(),
            has_toast_relation: true,
            page,
            prices: Prices::default(),
        }
    }

    /// Whether the server is asked to compress a value of `raw` bytes, and where a datum of `size` bytes goes.
    fn tried(page: PageSize, padding: usize, raw: u32, size: u32) -> (bool, Form) {
        let mut asked = false;
        let values = [Incoming::Plain { raw }, Incoming::Plain { raw: padding as u32 }];
        let row = row_of(page).toast(&values, Operation::Insert, &mut |_, _| {
            asked = true;
            Some(size)
        });
        (asked, row.unwrap().values[0].form)
    }

    /// `TOAST_TUPLE_THRESHOLD` as `heaptoast.h` has it:
    /// `MAXALIGN_DOWN((BLCKSZ - MAXALIGN(SizeOfPageHeaderData + 4 * sizeof(ItemIdData))) / 4)`.
    fn threshold(block_size: usize) -> usize {
        (block_size - (24 + 4 * 4usize).next_multiple_of(8)) / 4 / 8 * 8
    }

    #[test]
    fn padding_calls_the_toaster_on_pages_of_every_size() {
        for kilobytes in [4, 8, 16, 32] {
            let page = PageSize::new(kilobytes << 10).unwrap();
            assert_eq!(page.toast_tuple_threshold(), threshold(kilobytes << 10));
            // header and length word come to the padding, which alone is over the threshold, and fits
            let alone = 24 + 4 + padding(page);
            assert!(alone > threshold(kilobytes << 10), "{kilobytes}");
            assert!(alone + 1000 < page.toast_tuple_target_main(), "{kilobytes}");
            for raw in [127, 200, 1000, 1996, 2500, 4000, 8000, 100_000] {
                assert_eq!(tried(page, padding(page), raw, 100), (true, Form::ExternalCompressed));
            }
            // what the toaster finds too short
            assert!(!tried(page, padding(page), 23, 20).0);
            assert!(tried(page, padding(page), 24, 20).0);
        }
    }

    #[test]
    fn padding_for_one_page_size_does_not_do_for_larger_ones() {
        let page = PageSize::new(16 << 10).unwrap();
        assert!(!tried(page, padding(PageSize::DEFAULT), 1900, 100).0);
    }

    #[test]
    fn only_the_shortest_stay_in_the_row() {
        let page = PageSize::DEFAULT;
        let form = |size| tried(page, padding(page), 500, size).1;
        assert_eq!(form(NEVER_MOVED), Form::Compressed);
        assert_eq!(form(NEVER_MOVED + 1), Form::ExternalCompressed);
    }
}
