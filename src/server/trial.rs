//! The trial: a temporary table in which the server compresses copies of values. It is used wherever the program needs
//! to know how a server would store a value.
//!
//! [`CopyTable`] is the table as text (pure); [`Trial`] compresses the values of one column.
//!
//! The rows of that table have a certain length (`heaptoast.h`, `heaptoast.c`, `toast_helper.c`): each copy is in an
//! EXTENDED column, next to padding in a PLAIN column. The padding alone makes the row longer than
//! `TOAST_TUPLE_THRESHOLD`, which depends on the page size, so that the toaster is called even if the copy is short. It
//! also makes the row longer than `toast_tuple_target`, so that the toaster compresses and moves out everything it can.

use std::collections::HashMap;
use std::fmt::Write;

use tokio_postgres::types::Type;

use super::LiveResult;
use super::connect::Client;
use toast_format::codec::Method;
use toast_format::disk::pointer::TOAST_POINTER_SIZE;
use toast_format::disk::{ItemPointer, PageSize, max_align};
use toast_format::model::TupleTarget;
use toast_format::model::policy::CompressedSizes;
use toast_format::model::sql::quote_identifier;
use toast_format::model::sql::{fresh, fresh_array};

/// The `toast_tuple_target` of these rows, in bytes: the minimum.
const TARGET: u16 = TupleTarget::MIN;

/// The size of the padding, without its header.
fn padding(page: PageSize) -> usize {
    page.toast_tuple_threshold()
}

/// A datum of at most this size is neither compressed nor moved out (`toast_tuple_find_biggest_attribute`).
const NEVER_MOVED: u32 = max_align(TOAST_POINTER_SIZE) as u32;

/// By how many bytes `pg_column_size` of an out-of-line datum is less than the datum's size: the length word.
const NOT_COUNTED: u32 = 4;

/// The name of the padding's column.
const PADDING: &str = "p";

/// Converts a value to the innermost base type of its domain, because a row without a copy has NULL, which a domain may
/// not allow. CASE with an arm of unknown type has this effect for a domain, and removes its type modifier. For a type
/// that is not a domain, it keeps the type modifier only before PostgreSQL 19.
pub(crate) fn base_of(value: &str) -> String {
    format!("CASE WHEN true THEN {value} ELSE NULL END")
}

/// Copies of a column's values.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    /// The column's name, a simple identifier.
    pub name: String,
    /// An expression of the copies' type over the original column, for a table with the alias `t`.
    pub of: String,
    /// The method with which they are compressed.
    pub method: Method,
}

/// The text of the temporary table.
#[derive(Debug, Clone)]
pub(crate) struct CopyTable {
    /// Its name, a simple identifier.
    pub name: String,
    /// Columns that identify its rows: names (simple identifiers), and expressions for their types.
    pub keys: Vec<(String, &'static str)>,
    /// The columns of copies.
    pub copies: Vec<Copied>,
}

impl CopyTable {
    /// Creates the table, with keys, copies and padding in this order. An existing one in the same session is dropped.
    pub(crate) fn make(&self, table: &str) -> String {
        let mut columns = String::new();
        let mut settings = String::new();
        // Writing to a string cannot fail.
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

/// An expression for the padding.
pub(crate) fn padding_text(page: PageSize) -> String {
    format!("pg_catalog.repeat('x', {})", padding(page))
}

/// An expression for the size of the compressed datum in a column of copies, including 8 bytes of headers; NULL if the
/// server did not compress the value.
///
/// For an out-of-line datum, `pg_column_size` does not include the length word. If the size could also be that of a
/// datum in the row, a row constructor distinguishes the two: it keeps a compressed datum that is in the row, but
/// decompresses one that it must fetch.
pub(crate) fn compressed_size(copy: &str) -> String {
    let size = format!("pg_catalog.pg_column_size({copy})");
    let header = toast_format::disk::max_align(toast_format::disk::layout::TUPLE_HEADER_SIZE);
    format!(
        "CASE WHEN pg_catalog.pg_column_compression({copy}) IS NULL THEN NULL \
         WHEN {size} <= {NEVER_MOVED} AND pg_catalog.pg_column_size(ROW({copy})) = {size} + {header} \
         THEN {size}::pg_catalog.int8 ELSE {size}::pg_catalog.int8 + {NOT_COUNTED} END"
    )
}

/// Finds out to what size the server compresses the values of one column.
#[derive(Debug, Clone)]
pub struct Trial {
    copies: CopyTable,
    table: String,
    /// The expression that makes a fresh datum of a value.
    fresh: String,
    page: PageSize,
}

impl Trial {
    /// For a column, given by its index from 0 and its name, of the relation with this quoted name.
    pub fn new(
        table: String,
        index: usize,
        name: &str,
        is_array: bool,
        methods: &[Method],
        page: PageSize,
    ) -> Trial {
        let value = format!("t.{}", quote_identifier(name));
        let fresh = if is_array { fresh_array(&value) } else { fresh(&value) };
        Trial::with_fresh(table, index, name, fresh, methods, page)
    }

    /// Like [`Trial::new`], where `fresh` is the expression that makes a fresh datum of the value.
    pub(crate) fn with_fresh(
        table: String,
        index: usize,
        name: &str,
        fresh: String,
        methods: &[Method],
        page: PageSize,
    ) -> Trial {
        let of = base_of(&format!("t.{}", quote_identifier(name)));
        let copies = CopyTable {
            name: format!("toastctl_trial_{index}"),
            keys: vec![("a".to_owned(), "''::pg_catalog.text")],
            copies: methods
                .iter()
                .map(|&method: &Method| Copied {
                    name: method.name().into(),
                    of: of.clone(),
                    method,
                })
                .collect(),
        };
        Trial { copies, table, fresh, page }
    }

    /// Creates the temporary table, which is not possible in a read-only transaction.
    pub async fn make(&self, client: &Client) -> LiveResult<()> {
        Ok(client.batch_execute(&self.copies.make(&self.table)).await?)
    }

    /// Copies the values at addresses `$1`.
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

    /// The address of each row and, for each method, the size of the datum.
    fn sizes(&self) -> String {
        let sizes: Vec<String> =
            self.copies.copies.iter().map(|copy| compressed_size(&copy.name)).collect();
        format!("SELECT a, {} FROM pg_temp.{}", sizes.join(", "), self.copies.name)
    }

    /// Has the server compress the values of these rows. Returns the sizes of the datums, including 8 bytes of headers,
    /// and no size if the server did not compress a value. Rows that no longer exist have no result.
    pub async fn compress(
        &self,
        client: &Client,
        rows: &[ItemPointer],
    ) -> LiveResult<HashMap<ItemPointer, CompressedSizes>> {
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
    use toast_format::disk::{Align, Length, Storage};
    use toast_format::model::cost::Prices;
    use toast_format::model::toast::{Column, Incoming, Operation, Table};
    use toast_format::model::{Form, MethodChoice, Policy};

    fn trial(page: PageSize) -> Trial {
        let methods = [Method::Pglz, Method::Lz4];
        Trial::new(r#""s"."T""#.into(), 2, "a\"b", false, &methods, page)
    }

    #[test]
    fn the_server_compresses_in_a_temporary_table() {
        let trial = trial(PageSize::DEFAULT);
        insta::assert_snapshot!(trial.copies.make(&trial.table), @r#"DROP TABLE IF EXISTS pg_temp.toastctl_trial_2; CREATE TEMPORARY TABLE toastctl_trial_2 AS SELECT ''::pg_catalog.text AS a, CASE WHEN true THEN t."a""b" ELSE NULL END AS pglz, CASE WHEN true THEN t."a""b" ELSE NULL END AS lz4, ''::pg_catalog.text AS p FROM ONLY "s"."T" AS t WITH NO DATA; ALTER TABLE pg_temp.toastctl_trial_2 ALTER pglz SET STORAGE extended, ALTER pglz SET COMPRESSION pglz, ALTER lz4 SET STORAGE extended, ALTER lz4 SET COMPRESSION lz4, ALTER p SET STORAGE plain, SET (toast_tuple_target = 128, autovacuum_enabled = off)"#);
        insta::assert_snapshot!(trial.fill(), @r#"INSERT INTO pg_temp.toastctl_trial_2 SELECT t.ctid::pg_catalog.text, (ARRAY[t."a""b"])[1], (ARRAY[t."a""b"])[1], pg_catalog.repeat('x', 2032) FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])"#);
        insta::assert_snapshot!(trial.sizes(), @"SELECT a, CASE WHEN pg_catalog.pg_column_compression(pglz) IS NULL THEN NULL WHEN pg_catalog.pg_column_size(pglz) <= 24 AND pg_catalog.pg_column_size(ROW(pglz)) = pg_catalog.pg_column_size(pglz) + 24 THEN pg_catalog.pg_column_size(pglz)::pg_catalog.int8 ELSE pg_catalog.pg_column_size(pglz)::pg_catalog.int8 + 4 END, CASE WHEN pg_catalog.pg_column_compression(lz4) IS NULL THEN NULL WHEN pg_catalog.pg_column_size(lz4) <= 24 AND pg_catalog.pg_column_size(ROW(lz4)) = pg_catalog.pg_column_size(lz4) + 24 THEN pg_catalog.pg_column_size(lz4)::pg_catalog.int8 ELSE pg_catalog.pg_column_size(lz4)::pg_catalog.int8 + 4 END FROM pg_temp.toastctl_trial_2");
        insta::assert_snapshot!(fresh_array("c"), @"CASE WHEN c IS NOT NULL THEN pg_catalog.array_cat(c, '{}') END");
    }

    /// `TOAST_TUPLE_THRESHOLD` for pages of 4, 8, 16 and 32 kB, to which the headers of the padding and the row are
    /// added.
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
            indexes: Vec::new(),
        }
    }

    /// Whether the server tries to compress a value of `raw` bytes, and where it puts a datum of `size` bytes.
    fn tried(page: PageSize, padding: usize, raw: u32, size: u32) -> (bool, Form) {
        let mut asked = false;
        let values = [Incoming::Plain { raw }, Incoming::Plain { raw: padding as u32 }];
        let row = row_of(page).toast(&values, Operation::Insert, &mut |_, _| {
            asked = true;
            Some(size)
        });
        (asked, row.unwrap().values[0].form)
    }

    /// `TOAST_TUPLE_THRESHOLD` as in `heaptoast.h`:
    /// `MAXALIGN_DOWN((BLCKSZ - MAXALIGN(SizeOfPageHeaderData + 4 * sizeof(ItemIdData))) / 4)`.
    fn threshold(block_size: usize) -> usize {
        (block_size - (24 + 4 * 4usize).next_multiple_of(8)) / 4 / 8 * 8
    }

    #[test]
    fn padding_calls_the_toaster_on_pages_of_every_size() {
        for kilobytes in [4, 8, 16, 32] {
            let page = PageSize::new(kilobytes << 10).unwrap();
            assert_eq!(page.toast_tuple_threshold(), threshold(kilobytes << 10));
            // The headers of the row and of the padding are added to the padding, which is longer than the threshold by
            // itself, and fits.
            let alone = 24 + 4 + padding(page);
            assert!(alone > threshold(kilobytes << 10), "{kilobytes}");
            assert!(alone + 1000 < page.toast_tuple_target_main(), "{kilobytes}");
            for raw in [127, 200, 1000, 1996, 2500, 4000, 8000, 100_000] {
                assert_eq!(tried(page, padding(page), raw, 100), (true, Form::ExternalCompressed));
            }
            // These values are too short for the toaster.
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
