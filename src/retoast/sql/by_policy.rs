//! The statements of a policy's temporary table (pure).
//!
//! Both connections have such a table: that of the scan finds out to what size the server compresses values; that of
//! the batch holds compressed values until they are stored. It is created once for each table. A transaction reads only
//! the rows that it has inserted, by their transaction ID, and truncates the table only once it has reached the size
//! [`FULL`]. `ON COMMIT DELETE ROWS` would truncate three files for every batch, which takes as long as the batch
//! itself, and `DELETE` would require vacuuming.

use std::fmt::Write;

use super::{GIVES, Target, at_addresses};
use crate::server::trial::{Copied, CopyTable, compressed_size, padding_text};
use toast_format::disk::PageSize;
use toast_format::model::MethodChoice;
use toast_format::model::sql::quote_identifier;

/// The temporary table's name.
const NAME: &str = "toastctl_policy";

/// The size, in bytes, at which the temporary table (with its TOAST relation and that relation's index) is emptied: the
/// default of `temp_buffers`.
pub const FULL: i64 = 8 << 20;

/// Empties the temporary table.
pub const EMPTY: &str = "TRUNCATE pg_temp.toastctl_policy";

/// Allows only plans that find rows by their addresses, regardless of the planner's estimates for a temporary table
/// that was never analyzed.
pub const PLAN_BY_ADDRESS: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; \
     SET LOCAL enable_mergejoin = off; SET LOCAL jit = off";

/// Begins the transaction in which a scan finds out how values compress. It writes only to a temporary table, so its
/// commit need not wait for the disk.
pub const BEGIN_ASKING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_tidscan = on; SET LOCAL jit = off; \
     SET LOCAL synchronous_commit = off";

/// Creates the temporary table. Its columns are the transaction that wrote the copy; a row's address, inserting
/// transaction and number; and for each chosen column the raw size, and the value once for each method.
pub fn make(table: &str, targets: &[Target], methods: &[MethodChoice]) -> String {
    let mut keys = vec![
        ("b".to_owned(), "'0'::pg_catalog.xid8"),
        ("k".to_owned(), "t.ctid"),
        ("x".to_owned(), "''::pg_catalog.text"),
        ("n".to_owned(), "0::pg_catalog.int4"),
    ];
    let mut copies = Vec::new();
    for (at, (target, choice)) in targets.iter().zip(methods).enumerate() {
        keys.push((format!("r{at}"), "0::pg_catalog.int4"));
        for (of, &method) in choice.methods().iter().enumerate() {
            copies.push(Copied { name: format!("v{at}_{of}"), of: copied(target), method });
        }
    }
    CopyTable { name: NAME.into(), keys, copies }.make(table)
}

/// The expression whose values are copied. Copies have exactly its type, including the type modifier, because
/// converting a value to another type would decompress it. Rows without a copy have NULL, which a domain may not allow.
fn copied(target: &Target) -> String {
    match &target.domain {
        Some(domain) => format!("CAST({} AS {})", target.column(), domain.of),
        None => target.column(),
    }
}

/// A copy, as a value of the column's type.
fn copy(target: &Target, name: &str) -> String {
    match &target.domain {
        Some(domain) => format!("CAST(p.{name} AS {})", domain.name),
        None => format!("p.{name}"),
    }
}

/// Allows the role that batches are run as to use the temporary table.
pub fn grant(role: &str) -> String {
    format!("GRANT ALL ON pg_temp.{NAME} TO {}", quote_identifier(role))
}

/// Locks the rows at addresses `$1` that no other session has locked; returns the address and inserting transaction of
/// each row version that it has locked.
pub fn lock(table: &str) -> String {
    format!(
        "SELECT t.ctid::pg_catalog.text, t.xmin::pg_catalog.text {} \
         FOR NO KEY UPDATE SKIP LOCKED",
        at_addresses(table)
    )
}

/// Copies the rows at addresses `$1`. For each chosen column, only the values of the rows listed in its own parameter
/// (`$2`, `$3`, …) are copied.
pub fn fill(table: &str, targets: &[Target], methods: &[MethodChoice], page: PageSize) -> String {
    let mut inner = String::new();
    let mut measured = String::new();
    let mut sizes = String::new();
    let mut values = String::new();
    let mut wanted = Vec::new();
    for (at, (target, choice)) in targets.iter().zip(methods).enumerate() {
        let value = format!("t.{}", quote_identifier(&target.name));
        // Writing to a string cannot fail.
        let _ = write!(
            inner,
            ", CASE WHEN t.ctid = ANY (${}::pg_catalog.text[]::pg_catalog.tid[]) THEN {} END AS f{at}",
            at + 2,
            target.shape.force(&value)
        );
        // The size is measured before the window function's tuplestore gives short values 1-byte headers.
        let _ = write!(measured, ", pg_catalog.pg_column_size(m.f{at}) - 4 AS s{at}");
        let _ = write!(sizes, ", l.s{at}");
        for _ in choice.methods() {
            let _ = write!(values, ", l.f{at}");
        }
        wanted.push(format!("l.s{at} IS NOT NULL"));
    }
    format!(
        "INSERT INTO pg_temp.{NAME} SELECT pg_catalog.pg_current_xact_id(), l.k, l.x, \
         (pg_catalog.row_number() OVER ())::pg_catalog.int4{sizes}{values}, \
         CASE WHEN {} THEN {} ELSE '' END \
         FROM (SELECT m.*{measured} FROM (SELECT t.ctid AS k, t.xmin::pg_catalog.text AS x{inner} {} \
         OFFSET 0) AS m OFFSET 0) AS l",
        wanted.join(" OR "),
        padding_text(page),
        at_addresses(table)
    )
}

/// The sizes of the transaction's copies: the size of the temporary table, then each row's number, address and
/// inserting transaction, and for each chosen column its raw size and, for each method, the size of the compressed
/// datum including headers.
pub fn sizes(methods: &[MethodChoice]) -> String {
    let mut list = String::new();
    for (at, choice) in methods.iter().enumerate() {
        let _ = write!(list, ", r{at}");
        for of in 0..choice.methods().len() {
            let _ = write!(list, ", {}", compressed_size(&format!("v{at}_{of}")));
        }
    }
    format!(
        "SELECT (SELECT pg_catalog.pg_total_relation_size('pg_temp.{NAME}')), n, \
         k::pg_catalog.text, x{list} FROM pg_temp.{NAME} WHERE b = pg_catalog.pg_current_xact_id()"
    )
}

/// Keep the value as stored.
pub const KEEP: i16 = -1;
pub const PLAIN: i16 = 0;

/// Stores the rows that the transaction has copied to the temporary table. `$1`, `$2`, … have the decision for each
/// chosen column, by row number: [`KEEP`], [`PLAIN`], or, from 1, the number of the method whose copy to store. Returns
/// the same as the ordinary UPDATE of a sweep.
pub fn update(table: &str, targets: &[Target], methods: &[MethodChoice]) -> String {
    let set: Vec<String> = targets
        .iter()
        .zip(methods)
        .enumerate()
        .map(|(at, (target, choice))| {
            let name = quote_identifier(&target.name);
            let value = format!("t.{name}");
            let copies: String = (0..choice.methods().len())
                .map(|of| format!(" WHEN {} THEN {}", of + 1, copy(target, &format!("v{at}_{of}"))))
                .collect();
            format!(
                "{name} = CASE (${}::pg_catalog.int2[])[p.n]{copies} WHEN {KEEP} THEN {value} \
                 ELSE {} END",
                at + 1,
                target.shape.force(&value)
            )
        })
        .collect();
    format!(
        "WITH done AS (UPDATE ONLY {table} AS t SET {} FROM pg_temp.{NAME} AS p WHERE t.ctid = p.k \
         AND p.b = pg_catalog.pg_current_xact_id() RETURNING t.ctid) {GIVES}",
        set.join(", ")
    )
}
