//! Advice that comes true: the recommended command is run as it is printed, and leaves what it promises. By default
//! options, on small versions of the tables of `scripts/bench advice`.

use crate::support::command::{run, toastctl};
use crate::support::measured::buffers;
use crate::support::reports::Printed;
use crate::support::reports::advise::Report;
use crate::support::server::{self, Database};
use crate::support::verbs::advised;

const TABLES: &str = include_str!("../../benches/advice.sql");
const KILOBYTES: u32 = 3000;

/// Bytes of heap, TOAST relation and its index.
fn bytes(database: &Database<'_>, table: &str) -> f64 {
    let sql = format!(
        "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(reltoastrelid)
         FROM pg_class WHERE relname = '{table}'"
    );
    database.psql(&sql).parse().unwrap()
}

/// Runs the command of a recommendation.
#[track_caller]
fn carry_out(database: &Database<'_>, report: &Printed<Report>) {
    let words = &report.recommendation.command;
    assert_eq!(words[0], "toastctl");
    run(toastctl().args(&words[1..]).args(["-d", &database.conninfo()])).ok();
}

#[test]
fn what_is_printed_leaves_what_is_promised_and_is_not_advised_again() {
    let database = server::with_pageinspect("advice");
    database.psql(&format!("\\set kb {KILOBYTES}\n{TABLES}\nVACUUM;"));
    let mut recommended = 0;
    for table in [
        "bimodal",
        "deleted",
        "documents_50k",
        "external",
        "low_target",
        "mostly_null",
        "random_4k",
        "several_large",
        "stored_main",
    ] {
        let report = advised(&database, &[table, "-c", "v"]);
        let after = report.recommendation.after_bytes;
        assert!(after.low <= after.estimate && after.estimate <= after.high, "{table}: {report}");
        let before = bytes(&database, table);
        if report.recommendation.command.is_empty() {
            assert_eq!((after.low, after.high), (before, before), "{table}");
            continue;
        }
        recommended += 1;
        carry_out(&database, &report);
        let now = bytes(&database, table);
        // a few pages count for much in so small tables
        let slack = now * 0.05 + 12.0 * 8192.0;
        assert!(
            (after.estimate - now).abs() < slack,
            "{table}: {now}, foretold {after:?}, before {before}: {}",
            report.recommendation
        );
        let again = advised(&database, &[table, "-c", "v"]);
        assert_ne!(again.recommendation.command, report.recommendation.command, "{table}");
    }
    assert!(recommended > 4, "{recommended}");
}

#[test]
fn a_target_that_other_columns_need_is_for_all_of_them_and_changes_rows() {
    let database = server::with_pageinspect("advice");
    // rows of three columns, of which none is wide: only all of them together are
    database.psql(
        "CREATE TABLE t (id int, a bytea, b bytea, c bytea);
         ALTER TABLE t ALTER a SET STORAGE external, ALTER b SET STORAGE external, ALTER c SET STORAGE external;
         INSERT INTO t SELECT i, b, b, b FROM (SELECT i, (SELECT substr(string_agg(sha512((i * 100 + k)::text::bytea),
             ''), 1, 600) FROM generate_series(1, 10) AS k) AS b FROM generate_series(1, 3000) AS i) AS s;
         VACUUM t",
    );
    let arguments =
        ["t", "-c", "a", "--storage", "external", "--target", "256", "--optimize", "read"];
    let report = advised(&database, &arguments);
    let wanted = &report.candidates[report.candidates.len() - 1];
    let heap = |database: &Database<'_>| -> f64 {
        database.psql("SELECT pg_relation_size('t')").parse().unwrap()
    };
    let before = heap(&database);
    // rows of 1.8 kB are not toasted, whatever the target
    assert!((wanted.heap_bytes.estimate / before - 1.0).abs() < 0.02, "{wanted}");
    database.psql("UPDATE t SET a = a || a; VACUUM FULL t");
    let before = heap(&database);
    let report = advised(&database, &arguments);
    let wanted = &report.candidates[report.candidates.len() - 1];
    run(toastctl()
        .args(["retoast", "t", "-c", "a", "-c", "b", "-c", "c", "--toaster", "external"])
        .args(["--target", "256", "--compact", "-d", &database.conninfo()]))
    .ok();
    let now = heap(&database);
    assert!(now < before * 0.7, "{now}, before {before}");
    assert!((wanted.heap_bytes.estimate / now - 1.0).abs() < 0.1, "{now}: {wanted}");
}

#[test]
fn a_read_visits_the_pages_of_the_files_as_they_are() {
    let database = server::with_pageinspect("advice");
    // two thirds of every page are free
    database.psql(
        "CREATE TABLE t AS SELECT i AS id, repeat(md5(i::text), 10) AS v FROM generate_series(1, 6000) AS i;
         DELETE FROM t WHERE id % 3 > 0; VACUUM t",
    );
    let report = advised(&database, &["t", "-c", "v"]);
    let pages: f64 = database.psql("SELECT pg_relation_size('t') / 8192").parse().unwrap();
    let told = report.candidates[0].read_buffers_per_value.estimate * 2000.0;
    assert!((told / pages - 1.0).abs() < 0.02, "{told}, {pages}");
}

#[test]
fn after_the_command_a_read_visits_as_many_pages_as_foretold() {
    let database = server::with_pageinspect("advice");
    // in a new file each value of four chunks fills a page; in the room that six chunks have left it is on two
    database.psql(&format!("\\set kb 10000\n{TABLES}\nVACUUM;"));
    for table in ["external", "documents_50k"] {
        let report = advised(&database, &[table, "-c", "v"]);
        let per_value = report.chosen().read_buffers_per_value.estimate;
        carry_out(&database, &report);
        let visited = buffers(&database, &format!("SELECT sum(length(v::text)) FROM {table}"));
        let values: f64 = database.psql(&format!("SELECT count(v) FROM {table}")).parse().unwrap();
        let told = per_value * values;
        assert!((told / visited - 1.0).abs() < 0.07, "{table}: {told}, {visited}: {report}");
    }
}
