//! Which tables a name or pattern reaches, in `retoast`, `inspect` and `advise-threshold`: inheritance
//! children like partitions, and what stores nothing here is said or refused before anything is set.

use crate::support::command::{Run, run, toastctl};
use crate::support::retoast::{refused, retoast, spawn};
use crate::support::server::{Database, number, with_pageinspect};
use serde_json::Value;
use toast_format::model::interval::Interval;
use toast_format::model::stored::Form;

const LZ4: [&str; 4] = ["-c", "v", "--toaster", "lz4"];

/// A row of these is 3 kB, compressed by pglz.
const ROWS: &str = "SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 40) i";

fn sweep(database: &Database<'_>, table: &str) -> Run {
    retoast(database, &[&[table][..], &LZ4[..]].concat())
}

fn verb(database: &Database<'_>, verb: &str, table: &str) -> Run {
    run(toastctl().args([verb, "-d", &database.url(), "--format", "json", table]))
}

/// The tables that a report is about.
#[track_caller]
fn tables(run: &Run) -> Vec<String> {
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let list = ["tables", "relations", "reports"].iter().find_map(|key| report[*key].as_array());
    let list = list.unwrap_or_else(|| panic!("{report}"));
    list.iter().map(|table| table["relation"].as_str().unwrap().to_owned()).collect()
}

/// Columns `v` of which storage or compression was ever set.
fn altered(database: &Database<'_>) -> String {
    database.psql(
        "SELECT coalesce(string_agg(attrelid::regclass::text, ',' ORDER BY attrelid::regclass::text), '')
         FROM pg_attribute WHERE attname = 'v' AND attcompression = 'l' AND attrelid > 16384",
    )
}

#[test]
fn inheritance_children_are_reached_through_their_parent() {
    let database = with_pageinspect("inherit");
    database.psql(&format!(
        "CREATE TABLE parent (id int, v text COMPRESSION pglz);
         CREATE SCHEMA other; CREATE TABLE other.child (extra text) INHERITS (parent);
         CREATE TABLE grandchild () INHERITS (other.child);
         INSERT INTO parent {ROWS}; INSERT INTO other.child {ROWS}; INSERT INTO grandchild {ROWS};"
    ));
    let all = ["public.parent", "other.child", "public.grandchild"];
    assert_eq!(tables(&verb(&database, "inspect", "parent")).len(), 3);
    let advised = verb(&database, "advise-threshold", "parent");
    for name in all {
        assert!(advised.stdout.contains(name), "{}", advised.stdout);
    }
    assert_eq!(tables(&sweep(&database, "parent")), all);
    let count =
        "SELECT count(*), count(*) FILTER (WHERE pg_column_compression(v) = 'lz4') FROM parent";
    assert_eq!(database.psql(count), "120|120");
    // one value of a table with children is the table's own
    let shown = run(toastctl().args(["value", "parent.v@(0,1)", "-d", &database.url()]));
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
}

#[test]
fn published_tables_without_replica_identity_are_refused_before_anything_is_set() {
    let database = with_pageinspect("published");
    database.psql(&format!(
        "CREATE TABLE bare (id int, v text COMPRESSION pglz);
         CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, v text COMPRESSION pglz);
         CREATE TABLE keyed (id int PRIMARY KEY, v text COMPRESSION pglz);
         CREATE TABLE inserts (id int, v text COMPRESSION pglz);
         CREATE TABLE whole (id int, v text COMPRESSION pglz) PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000);
         INSERT INTO bare {ROWS}; INSERT INTO late {ROWS}; INSERT INTO keyed {ROWS};
         INSERT INTO inserts {ROWS}; INSERT INTO whole {ROWS};
         CREATE PUBLICATION \"The P\" FOR TABLE bare, late, keyed;
         CREATE PUBLICATION q FOR TABLE inserts WITH (publish = 'insert');
         CREATE PUBLICATION r FOR TABLE whole WITH (publish_via_partition_root);"
    ));
    for (table, by) in [("bare", "\"The P\""), ("late", "\"The P\""), ("whole", "r")] {
        let run = sweep(&database, table);
        let name = if table == "whole" { "part" } else { table };
        refused(&run, 1, &format!("public.{name}: its updates are published ({by})"));
    }
    assert_eq!(altered(&database), "");
    // as the hint says
    if database.server().major() < 15 {
        return;
    }
    database.psql("ALTER TABLE ONLY bare REPLICA IDENTITY FULL");
    for table in ["bare", "keyed", "inserts"] {
        tables(&sweep(&database, table));
    }
    assert_eq!(altered(&database), "bare,inserts,keyed");
}

#[test]
fn foreign_and_distributed_tables_are_never_a_silent_zero() {
    let database = with_pageinspect("elsewhere");
    database.psql(&format!(
        "CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER away FOREIGN DATA WRAPPER nowhere;
         CREATE FOREIGN TABLE far (id int, v text) SERVER away; CREATE VIEW a_view AS SELECT * FROM far;
         CREATE TABLE near (id int, v text COMPRESSION pglz); INSERT INTO near {ROWS};
         CREATE TABLE whole (id int, v text COMPRESSION pglz) PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000);
         CREATE FOREIGN TABLE cold PARTITION OF whole FOR VALUES FROM (1000) TO (2000) SERVER away;
         INSERT INTO whole {ROWS};"
    ));
    let far = "\"public.far\" is a foreign table; its rows are stored outside of this database, \
               on the foreign server away (nowhere)\nHINT:  ";
    for name in ["inspect", "advise-threshold", "check"] {
        refused(&verb(&database, name, "far"), 1, far);
        let view = verb(&database, name, "a_view");
        refused(&view, 1, "\"public.a_view\" is a view; it reads no table that is stored here");
    }
    refused(&sweep(&database, "far"), 1, far);
    refused(&sweep(&database, "fa*"), 1, "no table remains: public.far is a foreign table");
    assert_eq!(altered(&database), "");
    let both = retoast(&database, &[&["near", "fa*"][..], &LZ4[..]].concat());
    assert_eq!(tables(&both), ["public.near"]);
    // a partition elsewhere is said, the others are done
    let whole = sweep(&database, "whole");
    assert_eq!(tables(&whole), ["public.part"]);
    assert!(whole.stderr.contains("left out: public.cold is a foreign table"), "{}", whole.stderr);
    let seen = verb(&database, "inspect", "whole");
    assert_eq!(tables(&seen), ["public.part"]);
    assert!(seen.stderr.contains("left out: public.cold"), "{}", seen.stderr);
    let all = run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json"]));
    assert_eq!(tables(&all).len(), 2, "{}", all.stdout);
    assert!(all.stderr.contains("public.cold, public.far are foreign tables"), "{}", all.stderr);
    // where there is nothing else, nothing is reported as done
    database.psql("DROP TABLE near; DROP TABLE part");
    for name in ["inspect", "check"] {
        let all = run(toastctl().args([name, "-d", &database.url()]));
        refused(&all, 1, "no table remains: public.cold, public.far are foreign tables");
        assert_eq!(all.stdout, "");
    }
}

#[test]
fn a_materialized_view_is_read_like_a_table_and_an_empty_parent_says_that_it_is_empty() {
    let database = with_pageinspect("matview");
    database.psql(&format!(
        "CREATE TABLE parent (id int, v text) PARTITION BY RANGE (id);
         CREATE MATERIALIZED VIEW seen AS {ROWS}"
    ));
    assert_eq!(verb(&database, "inspect", "seen").relation().tuples.live, Interval::exact(40));
    let checked = run(toastctl().args(["check", "-d", &database.url(), "seen"]));
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("public.seen: sound"), "{}", checked.stdout);
    refused(&sweep(&database, "seen"), 1, "is a materialized view");
    for name in ["inspect", "check", "advise-threshold"] {
        let parent = verb(&database, name, "parent");
        let text = "notice: public.parent has no partitions";
        assert!(parent.stderr.contains(text), "{name}: {}{}", parent.stdout, parent.stderr);
    }
}

#[test]
fn another_access_method_is_read_by_functions_and_otherwise_refused_and_costs_only_itself() {
    let database = with_pageinspect("method");
    database.psql(&format!(
        "CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler;
         CREATE TABLE odd (id int, v text COMPRESSION pglz, j jsonb) USING other;
         INSERT INTO odd (id, v) {ROWS};
         CREATE TABLE t (id int, v text COMPRESSION pglz); INSERT INTO t {ROWS};"
    ));
    refused(&sweep(&database, "odd"), 1, "its access method is other, not heap");
    let both = retoast(&database, &["t", "odd", "-c", "v", "--toaster", "lz4"]);
    refused(&both, 1, "its access method is other, not heap");
    refused(&verb(&database, "advise-threshold", "odd"), 1, "access method is other");
    // the other one is done
    assert_eq!(altered(&database), "t");
    for name in ["check", "compact", "reindex", "keys"] {
        refused(&verb(&database, name, "odd"), 1, "access method is other, not heap");
    }
    let by_policy = ["inspect", "--policy", "ratio", "odd", "-d"];
    refused(
        &run(toastctl().args(by_policy).arg(database.url())),
        1,
        "access method is other, not heap",
    );
    // What the method returns need not be what it stores.
    let seen = verb(&database, "inspect", "odd");
    assert_eq!(seen.code, Some(0), "{}", seen.stderr);
    let relation = seen.relation();
    assert_eq!(relation.tuples.live, Interval::exact(40), "{}", seen.stdout);
    let column = relation.column("v");
    assert_eq!(
        (column.all.values.estimate, column.all.raw_bytes),
        (40, Some(Interval::exact(40 * 9600)))
    );
    assert_eq!((column.all.stored_bytes, column.forms.len()), (None, 1));
    assert_eq!(column.forms[0].form, Form::Unknown);
    assert!(column.json()["share"].is_null() && relation.findings.is_none(), "{}", seen.stdout);
    let document: Value = serde_json::from_str(&seen.stdout).unwrap();
    let table = &document["tables"][0];
    let bytes = number(&database.psql("SELECT pg_relation_size('odd')"));
    assert_eq!((&table["access_method"], &table["heap_bytes"]), (&"other".into(), &bytes.into()));
    assert_eq!(table["columns"], Value::Array(Vec::new()));
    let text = run(toastctl().args(["inspect", "-d", &database.url(), "odd"])).ok();
    assert!(text.contains("public.odd (table, access method other)\n"), "{text}");
    assert!(text.contains("file: 8192 bytes in 1 block"), "{text}");
    // In the overview, it counts with its files, no column of it is ranked, and it is named as not looked at.
    let all = run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json"]));
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    let document: Value = serde_json::from_str(&all.stdout).unwrap();
    let files = "SELECT pg_relation_size(c.oid) + pg_relation_size(indrelid) + pg_relation_size(indexrelid)
                 FROM pg_class AS c JOIN pg_index ON indrelid = reltoastrelid WHERE c.oid = 'odd'::regclass";
    let left_out = &document["left_out"][0];
    assert_eq!(left_out["relation"], "public.odd");
    assert_eq!(left_out["reason"], "the table's access method is other, not heap");
    assert_eq!(left_out["bytes"], number(&database.psql(files)));
    assert_eq!(document["columns"].as_array().unwrap().len(), 2, "{document}");
    let text = run(toastctl().args(["inspect", "-d", &database.url()])).ok();
    assert!(text.contains("not looked at"), "{text}");
    // as the hint says
    if database.server().major() >= 15 {
        database.psql("ALTER TABLE odd SET ACCESS METHOD heap");
        tables(&sweep(&database, "odd"));
    }
}

#[test]
fn without_a_column_all_that_can_be_toasted_are_converted() {
    let database = with_pageinspect("columns");
    database.psql(&format!(
        "CREATE TABLE \"T\" (id int, \"A b\" text, gone text, n numeric, j jsonb);
         INSERT INTO \"T\" (id, \"A b\") {ROWS}; ALTER TABLE \"T\" DROP COLUMN gone;
         CREATE TABLE parent (id int, w text, g text GENERATED ALWAYS AS (w || 'x') STORED)
             PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF parent FOR VALUES FROM (0) TO (1000);
         INSERT INTO parent {ROWS}; CREATE TABLE number (v int)"
    ));
    let all = retoast(&database, &["*", "--toaster", "external"]);
    assert_eq!(tables(&all), ["public.T", "public.part_1"]);
    let none = "public.number: none of its columns holds values that can be toasted";
    assert!(all.stderr.contains(&format!("left out: {none}")), "{}", all.stderr);
    let others = "SELECT string_agg(format('%s.%s', attrelid::regclass, attname), ' ' ORDER BY 1)
                  FROM pg_attribute WHERE attrelid IN ('\"T\"'::regclass, 'parent'::regclass, 'part_1'::regclass)
                      AND attlen = -1 AND attnum > 0 AND NOT attisdropped AND attstorage <> 'e'";
    assert_eq!(database.psql(others), "");
    let again = retoast(&database, &["*", "--toaster", "external"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    for table in again["tables"].as_array().unwrap() {
        assert_eq!((&table["outcome"], &table["rows_stored"]), (&"complete".into(), &0.into()));
    }
    refused(&retoast(&database, &["number", "--toaster", "external"]), 1, none);
    // an identity column cannot be set, and a policy has no say in values that the server computes
    database.psql(&format!(
        "CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY, w text,
             g text GENERATED ALWAYS AS (id || w) STORED);
         INSERT INTO made (w) SELECT v FROM ({ROWS}) AS r (id, v)"
    ));
    let made = retoast(&database, &["made", "--toaster", "external"]).exits(0);
    assert!(made.stdout.contains("complete"), "{}", made.stdout);
    let by_policy = retoast(&database, &["public.*", "--policy", "best"]).exits(0);
    assert!(by_policy.stdout.contains("public.made"), "{}", by_policy.stdout);
    refused(&retoast(&database, &["*", "--toaster", "plain"]), 2, "requires --column");
}

#[test]
fn a_pattern_passes_over_what_has_nothing_to_rewrite() {
    let database = with_pageinspect("passes");
    database.psql(&format!(
        "CREATE TABLE t (id int, v text COMPRESSION pglz); INSERT INTO t {ROWS};
         CREATE TABLE without (id int, w text); CREATE TABLE number (v int);
         CREATE VIEW a_view AS SELECT * FROM t; CREATE SEQUENCE a_sequence;
         CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM t;
         CREATE INDEX an_index ON t (id); CREATE TYPE a_type AS (v text);
         CREATE TABLE parent (id int, w text) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF parent FOR VALUES FROM (0) TO (10)"
    ));
    let run = sweep(&database, "public.*");
    assert_eq!(tables(&run), ["public.t"]);
    // the catalogs are in the search path
    let all = sweep(&database, "*");
    assert_eq!(tables(&all), ["public.t"]);
    assert_eq!(
        all.stderr.lines().filter(|line| line.contains("left out")).count(),
        4,
        "{}",
        all.stderr
    );
    for said in [
        "left out: public.a_matview is a materialized view, whose rows cannot be updated",
        "left out: public.number: column \"v\" is of type integer",
        "left out: public.without has no column \"v\"",
        "left out: public.part_1 has no column \"v\"",
    ] {
        assert!(run.stderr.contains(said), "not said: {said}\n{}", run.stderr);
    }
    assert!(run.stderr.lines().filter(|line| line.contains("HINT")).count() == 0, "{}", run.stderr);
    assert_eq!(tables(&sweep(&database, "*.t")), ["public.t"]);
    let catalogs = sweep(&database, "pg_catalog.pg_rewrit*");
    refused(&catalogs, 1, "none of the named tables has these columns");
    assert!(catalogs.stderr.contains("pg_catalog.pg_rewrite is a system catalog"));
    // what is named is not passed over
    refused(&sweep(&database, "a_matview"), 1, "is a materialized view");
    refused(
        &sweep(&database, "without"),
        1,
        "column \"v\" of relation \"public.without\" does not exist",
    );
    refused(
        &sweep(&database, "parent"),
        1,
        "column \"v\" of relation \"public.part_1\" does not exist",
    );
}

/// The exit code says that all is done, so what was not looked at has to change it.
#[test]
fn partitions_that_come_meanwhile_are_told() {
    let database = with_pageinspect("meanwhile");
    database.psql(
        "CREATE TABLE a (v text COMPRESSION pglz); INSERT INTO a VALUES (repeat('a', 9000));
         CREATE TABLE p (id int, v text COMPRESSION pglz) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10000);
         INSERT INTO p SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 4000) i;
         CREATE TABLE p2 (id int, v text COMPRESSION pglz);
         INSERT INTO p2 SELECT i, repeat(md5(i::text), 300) FROM generate_series(10000, 10040) i",
    );
    let stored = "SELECT count(*) FROM p1 WHERE pg_column_compression(v) = 'lz4'";
    let slowly = ["a", "p", "--set", "batch-ms=1", "--set", "nice=2", "--set", "progress=none"];
    let mut child = spawn(&database, &[&slowly[..], &LZ4[..]].concat());
    while database.psql(stored) == "0" {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // one that is done and gone keeps nobody from looking again at the other
    database
        .psql("DROP TABLE a; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10000) TO (20000)");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let told = "public.p2 was created or attached during the run, and was not processed";
    assert!(stderr.contains(told), "{stderr}");
    assert_eq!(database.psql(stored), "4000");
    let again = sweep(&database, "p");
    assert_eq!(tables(&again), ["public.p1", "public.p2"]);
    assert!(!again.stderr.contains("during the run"), "{}", again.stderr);
}
