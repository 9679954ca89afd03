//! By how much files grow by re-toasting, all of them together.

use crate::retoast::{contents, done, retoast};
use crate::server::{Database, Options, Server};

/// Rows of about 800 bytes with three values of about 3.5 kB each out of line, and with indexes of many kinds.
const WIDE: &str = "CREATE TABLE t (id int PRIMARY KEY, k bigint, n int, name text, tags int[], pad text,
        a text COMPRESSION pglz, b text COMPRESSION pglz, c text COMPRESSION pglz);
    ALTER TABLE t ALTER pad SET STORAGE plain;
    INSERT INTO t SELECT i, i * 7919 % 1000003, i % 1000, 'Name ' || md5(i::text), ARRAY[i % 100, i % 77 + 100, i % 53 + 200],
        repeat('x', 560), v, v || 'b', v || 'c' FROM generate_series(1, 6000) AS i,
        LATERAL (SELECT string_agg(md5(i || '/' || k) || ' and what many rows have', '')
            FROM generate_series(1, 100) AS k) AS made (v);
    CREATE UNIQUE INDEX one ON t (k);
    CREATE INDEX two ON t (n, id);
    CREATE INDEX expression ON t (lower(name));
    CREATE INDEX partial ON t (id) WHERE n < 500;
    CREATE INDEX gin ON t USING gin (tags);
    VACUUM (ANALYZE, FREEZE) t";

fn size(database: &Database<'_>) -> f64 {
    let size =
        "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(oid)
        + pg_indexes_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass";
    database.psql(size).parse().unwrap()
}

#[test]
fn wide_rows_with_many_large_values_grow_by_as_little_as_asked() {
    // a server of its own: what vacuum may remove hangs on transactions of whatever database
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("growth");
    database.psql(WIDE);
    let (before, rows) = (size(&database), contents(&database, "t"));
    let choice = ["t", "-c", "a", "-c", "b", "-c", "c", "--toaster", "lz4", "--max-bloat", "1.5"];
    let table = done(&retoast(&database, &[&choice[..], &["--reindex=bloated"]].concat()));
    let grown = size(&database) / before;
    eprintln!("{grown:.4} times as large, {} vacuums", table["vacuums"]);
    assert!(grown <= 1.02, "{grown}: {table}");
    assert_eq!(contents(&database, "t"), rows);
}
