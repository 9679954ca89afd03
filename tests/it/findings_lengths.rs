//! Findings about lengths: rows near the threshold and last chunks that are nearly empty, with what the printed
//! commands do to the buffers that are read.

use crate::support::findings::{act, advised, clean, codes, findings, prepared};
use crate::support::measured;
use crate::support::server::Database;

#[test]
fn rows_near_the_threshold() {
    let database = prepared("near");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         CREATE TABLE far (LIKE t INCLUDING STORAGE);
         INSERT INTO t SELECT i, noise(i, 1980) FROM generate_series(1, 2000) i;
         INSERT INTO far SELECT i, noise(i, 1000) FROM generate_series(1, 2000) i
             UNION ALL SELECT i, noise(i, 5000) FROM generate_series(1, 2000) i",
    );
    clean(&database, "far");
    let found = findings(&database, "t");
    assert_eq!(codes(&found), ["near-threshold"], "{found:#?}");
    assert_eq!(found[0].value, 2000);
    assert_eq!(
        found[0].what,
        "a few bytes more move the value out of the row, and each read then visits 3 more buffers; there is no better setting"
    );
    // a few bytes more, and they are out of line
    let longer =
        "TRUNCATE t; INSERT INTO t SELECT i, noise(i, 2040) FROM generate_series(1, 2000) i";
    let in_row = buffers(&database, "t");
    database.psql(longer);
    assert_eq!(database.psql("SELECT pg_relation_size('t') < 200000"), "t");
    // what was foretold, but for the heap that is shorter now
    let more = buffers(&database, "t") - in_row;
    assert!((2.5 * 2000.0..=3.1 * 2000.0).contains(&more), "{more}");
    let found = findings(&database, "t");
    assert_eq!(codes(&found), ["near-threshold"], "{found:#?}");
    assert_eq!(
        found[0].what,
        "if the row were a few bytes shorter, the value would stay in it, and each read would visit 3 fewer buffers; a \
         target of 4080 makes scans of the table read these values too; there is no better setting"
    );
    advised(&database, "t", "near-threshold");
}

/// A shorter target would move all of them out, which is no help.
#[test]
fn rows_near_a_target_that_somebody_has_set() {
    let database = prepared("near_set");
    database.psql(
        "CREATE TABLE t (id int, v text) WITH (toast_tuple_target = 4080); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 4010) FROM generate_series(1, 1500) i;
         CREATE TABLE longest (id int, v text) WITH (toast_tuple_target = 8160);
         ALTER TABLE longest ALTER v SET STORAGE external;
         INSERT INTO longest SELECT i, noise(i, 8100) FROM generate_series(1, 1500) i",
    );
    advised(&database, "t", "near-threshold");
    // there is none that is longer
    clean(&database, "longest");
}

/// Rows that are compressed are kept whole by a target that is no longer than they were before compression.
#[test]
fn compressed_rows_near_the_threshold() {
    let database = prepared("near_compressed");
    database.psql(
        "CREATE TABLE c (id int, v text COMPRESSION lz4);
         INSERT INTO c SELECT i, noise(i, 1930) || repeat('a', 2000) FROM generate_series(1, 2000) i;
         CREATE TABLE as_it_was (LIKE c INCLUDING ALL); INSERT INTO as_it_was TABLE c",
    );
    let whole = |table: &str| database.psql(&format!("SELECT pg_relation_size('{table}') / 8192"));
    let finding = advised(&database, "c", "near-threshold");
    assert!(finding.what.contains("each read then visits 3 more buffers"), "{finding}");
    // what was foretold comes of a longer value
    database.psql("UPDATE as_it_was SET v = noise(id, 2080) || repeat('a', 2000)");
    database.psql("VACUUM FULL as_it_was");
    let more = buffers(&database, "as_it_was") - whole("as_it_was").parse::<f64>().unwrap();
    assert!((2.9 * 2000.0..=3.1 * 2000.0).contains(&more), "{more}");
}

/// What a target costs is told, and comes true.
#[test]
fn a_target_that_leaves_values_uncompressed_has_its_price() {
    let database = prepared("near_price");
    database.psql(
        "CREATE TABLE p (id int, v text COMPRESSION lz4);
         INSERT INTO p SELECT i, noise(i, 1930) || repeat('a', 700) FROM generate_series(1, 2000) i",
    );
    let bytes = || database.psql("SELECT sum(pg_column_size(v)) FROM p").parse::<f64>().unwrap();
    let before = bytes();
    let finding = findings(&database, "p").remove(0);
    let (_, price) = finding.what.split_once("; ").unwrap();
    act(&database, "toastctl retoast p --column v --toaster extended --target 4080 --compact");
    let expected = ((bytes() / before - 1.0) * 100.0).ceil();
    let price_said = format!(
        "a target of 4080 takes {expected} % more space, since fewer values are compressed"
    );
    // which the advice does not take
    assert_eq!(price, format!("{price_said}; there is no better setting"));
    assert!((33.0..38.0).contains(&expected), "{expected}");
}

#[test]
fn last_chunks_that_are_nearly_empty() {
    let database = prepared("chunks");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         CREATE TABLE full_ones (LIKE t INCLUDING STORAGE);
         INSERT INTO t SELECT i, noise(i, 3600) || repeat('x', 400) FROM generate_series(1, 1500) i;
         INSERT INTO full_ones SELECT id, left(v, 3990) FROM t;
         CREATE TABLE smaller (LIKE t INCLUDING STORAGE);
         INSERT INTO smaller SELECT i, repeat(noise(i, 1000), 4) FROM generate_series(1, 1500) i;
         CREATE TABLE k (id int, v text);
         INSERT INTO k SELECT i, noise(i, 2150) FROM generate_series(1, 1500) i;
         CREATE TABLE hopeless (id int, v text);
         INSERT INTO hopeless SELECT i, noise(i, 4100) FROM generate_series(1, 1500) i",
    );
    clean(&database, "full_ones");
    // neither compression nor a target would help
    clean(&database, "hopeless");
    // compression would, and would save much more than the last chunk
    advised(&database, "smaller", "no-compression");
    // compression would
    let finding = advised(&database, "t", "short-last-chunk");
    assert_eq!(finding.value, 1500);
    let what =
        "the last chunk is nearly empty; compressed with lz4 these values would take fewer chunks";
    assert!(finding.what.starts_with(what), "{finding}");
    // a target would
    let finding = advised(&database, "k", "short-last-chunk");
    let what = "the last chunk is nearly empty; with a target of 4080 these values would stay in their rows";
    assert!(finding.what.starts_with(what), "{finding}");
}

/// Buffers that a scan visits which reads all values.
fn buffers(database: &Database<'_>, table: &str) -> f64 {
    database.psql(&format!("VACUUM (FREEZE) {table}"));
    measured::buffers(database, &format!("SELECT sum(length(v)) FROM {table}"))
}

/// A type of the same name, storage and length stands in for pgvector's.
#[test]
fn vectors_that_the_planner_does_not_count() {
    let database = prepared("vectors");
    database.psql(
        "SET client_min_messages = error;
         CREATE TYPE vector;
         CREATE FUNCTION vector_in(cstring, oid, int) RETURNS vector LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
         CREATE FUNCTION vector_out(vector) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
         CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, STORAGE = external);
         CREATE FUNCTION compared(vector) RETURNS text LANGUAGE internal IMMUTABLE STRICT AS 'md5_bytea';
         CREATE TABLE t (id int, v vector);
         INSERT INTO t SELECT i, noise(i, 5600)::vector FROM generate_series(1, 1500) i;
         CREATE TABLE texts (id int, v text); ALTER TABLE texts ALTER v SET STORAGE external;
         INSERT INTO texts SELECT i, noise(i, 5600) FROM generate_series(1, 1500) i;
         CREATE TABLE short (id int, v vector);
         INSERT INTO short SELECT i, noise(i, 1500)::vector FROM generate_series(1, 1500) i;
         CREATE TABLE long (id int, v vector);
         INSERT INTO long SELECT i, noise(i, 9000)::vector FROM generate_series(1, 1500) i;
         VACUUM ANALYZE",
    );
    // other types, vectors in their rows, and vectors for which no row has room
    for table in ["texts", "short", "long"] {
        clean(&database, table);
    }
    let query = "SELECT count(compared(v)) FROM t";
    let planned = || {
        let plan = database.psql(&format!("EXPLAIN (FORMAT JSON) {query}"));
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        plan[0]["Plan"]["Total Cost"].as_f64().unwrap()
    };
    let (cost, read) = (planned(), measured::buffers(&database, query));
    assert!(read > 50.0 * cost, "{read} {cost}");
    let finding = advised(&database, "t", "uncounted-vectors");
    assert_eq!(finding.value, 1500 * 5600);
    // what the target does that is named
    act(&database, "toastctl retoast t --column v --toaster external --target 8160 --compact");
    assert!(finding.what.contains("a scan of the table to read 10 pages, but"), "{finding}");
    database.psql("VACUUM ANALYZE t");
    let (cost, read) = (planned(), measured::buffers(&database, query));
    assert!((1500.0..1600.0).contains(&read) && cost > read, "{read} {cost}");
}
