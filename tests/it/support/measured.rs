//! What is said about PostgreSQL, measured.

use serde_json::Value;

use crate::support::server::Database;

/// Buffers that EXPLAIN counts for a query, once the session knows the relations.
pub(crate) fn buffers(database: &Database<'_>, query: &str) -> f64 {
    let plan = database.psql(&format!(
        "SET max_parallel_workers_per_gather = 0; SET jit = off;
         {query} \\g /dev/null
         EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
    ));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let number = |name: &str| plan[0]["Plan"][name].as_f64().unwrap();
    number("Shared Hit Blocks") + number("Shared Read Blocks")
}

/// Bytes of WAL that a statement writes.
pub(crate) fn wal(database: &Database<'_>, statement: &str) -> f64 {
    let told = database.psql(&format!(
        "SELECT pg_current_wal_insert_lsn() AS before \\gset
         {statement};
         SELECT pg_current_wal_insert_lsn() - :'before'::pg_lsn"
    ));
    told.parse().unwrap()
}
