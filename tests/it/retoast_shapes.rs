//! `retoast` on other major versions, and on tables and types out of the ordinary.

use crate::support::reports::Printed;
use crate::support::reports::retoast::{Report, Table};
use crate::support::retoast::{contents, done, forms, retoast};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};

/// Types that take a way of their own through the toaster, among them those of extensions.
const SHAPES: &str = "
    CREATE EXTENSION pageinspect; CREATE EXTENSION hstore; CREATE EXTENSION citext;
    CREATE TYPE pair AS (n int, body text, tags text[]);
    CREATE DOMAIN note AS text CHECK (VALUE <> 'never');
    CREATE DOMAIN notes AS note[];
    CREATE DOMAIN pairs AS pair;
    CREATE TYPE span AS RANGE (subtype = text);
    CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT string_agg(md5(seed || '/' || i), '') FROM generate_series(1, n) AS i$$;
    CREATE FUNCTION body(i int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 = 0 THEN 'short ' || i
                      WHEN i % 3 = 0 THEN noise(i, 20 + i * 3) ELSE repeat(md5(i::text), 90 + i * 4) END$$;
    CREATE TABLE t (id int PRIMARY KEY, v text, ci citext, h hstore, r numrange, mr nummultirange, sp span,
        ts tsvector, j jsonb, c pair, dc pairs, d note, dn notes, a text[], cs citext[], cp pair[], pa path,
        bits varbit, g text GENERATED ALWAYS AS (v || '.g') STORED);
    INSERT INTO t SELECT i, body(i), body(i + 1), hstore(ARRAY['k', 'n'], ARRAY[i::text, body(i)]),
        numrange(0, repeat('8', 1 + i * 90)::numeric),
        nummultirange(numrange(0, 5), numrange(10, repeat('7', 2 + i * 90)::numeric)),
        span('a', 'b' || body(i)), to_tsvector('simple', left(body(i), 9000)), jsonb_build_object('k', body(i)),
        ROW(i, body(i), ARRAY[body(i)])::pair, ROW(i, body(i + 2), NULL)::pair, body(i), ARRAY[body(i), NULL],
        ARRAY[body(i), 'x'], ARRAY[body(i), 'Y'], ARRAY[ROW(i, body(i), NULL)::pair],
        (SELECT ('(' || string_agg('(' || k || ',' || i || ')', ',') || ')')::path FROM generate_series(1, i * 8) k),
        repeat('10', i * 400)::varbit
    FROM generate_series(1, 40) AS i;
    -- rows of a table as composite values keep its compressed fields
    CREATE TABLE whole (n int, body text COMPRESSION pglz, tags text[]);
    INSERT INTO whole SELECT i, repeat('in ' || i, 300), NULL FROM generate_series(1, 40) i;
    UPDATE t SET c = (SELECT w::whole::text::pair FROM whole w WHERE w.n = t.id) WHERE id % 6 = 1;";

const COLUMNS: [&str; 18] = [
    "v", "ci", "h", "r", "mr", "sp", "ts", "j", "c", "dc", "d", "dn", "a", "cs", "cp", "pa",
    "bits", "g",
];

/// One run, its checks, and a second run, which must touch nothing.
#[track_caller]
fn run_twice(database: &Database<'_>, table: &str, arguments: &[&str]) -> Printed<Table> {
    let before = contents(database, table);
    let arguments = [&[table], arguments].concat();
    let first = done(&retoast(database, &arguments));
    assert_eq!(contents(database, table), before, "{arguments:?}");
    let again = done(&retoast(database, &arguments));
    assert_eq!((again.rows_found, again.scans), (0, 1), "{again}");
    first
}

fn types(database: &Database<'_>) {
    database.psql(SHAPES);
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["-c", column]).collect();
    let walk = [
        ("external", "auto"),
        ("main", "auto"),
        ("pglz", "auto"),
        ("external", "functions"),
        ("pglz", "functions"),
        ("extended", "auto"),
    ];
    for (toaster, source) in walk {
        let choice =
            ["--verify", "full", "--toaster", toaster, "--set", &format!("source={source}")];
        let table = run_twice(database, "t", &[&choice[..], &columns].concat());
        if toaster == "external" || toaster == "pglz" && source == "functions" {
            assert_ne!(table.rows_stored, 0, "{toaster}: {table}");
        }
        for column in COLUMNS.iter().filter(|_| toaster == "external") {
            let compressed = forms(database, "t", column);
            let compressed = compressed.iter().filter(|form| form.contains("compressed"));
            assert_eq!(compressed.count(), 0, "{column}");
        }
    }
    let left = "SELECT count(*) FROM t WHERE pg_column_compression((c).body) <> 'pglz'";
    assert_eq!(database.psql(left), "0");
}

/// Tables whose shape could be in the way: most columns possible, every fill, no key, indexes on
/// expressions, whole rows as identity.
fn tables(database: &Database<'_>) {
    database.psql(
        "SELECT 'CREATE TABLE wide (id int, v text, ' || string_agg('c' || i || ' text', ', ') || ')'
         FROM generate_series(1, 1598) i \\gexec
         SELECT 'INSERT INTO wide SELECT i, repeat(md5(i::text), 200 + i), '
             || string_agg(CASE WHEN i % 3 = 0 THEN 'NULL' ELSE quote_literal(i % 10) END, ', ')
             || ' FROM generate_series(1, 30) i' FROM generate_series(1, 1598) i \\gexec
         CREATE FUNCTION fill(int) RETURNS text LANGUAGE sql IMMUTABLE AS
             $$SELECT string_agg(repeat(md5(($1 * 31 + k)::text), 3), '') FROM generate_series(1, 20 + $1 % 70) k$$;
         CREATE TABLE f50 (id int, v text) WITH (fillfactor = 50);
         CREATE TABLE f70 (id int, v text) WITH (fillfactor = 70);
         CREATE TABLE f90 (id int, v text) WITH (fillfactor = 90);
         CREATE TABLE keyless (id int, v text);
         CREATE TABLE indexed (id int PRIMARY KEY, v text);
         CREATE INDEX ON indexed (md5(v)); CREATE INDEX ON indexed (left(v, 9)) WHERE id % 2 = 0;
         CREATE TABLE whole_row (id int, v text); ALTER TABLE whole_row REPLICA IDENTITY FULL;
         CREATE PUBLICATION all_of_it FOR TABLE whole_row",
    );
    let others = ["f50", "f70", "f90", "keyless", "indexed", "whole_row"];
    for table in others {
        database
            .psql(&format!("INSERT INTO {table} SELECT i, fill(i) FROM generate_series(1, 300) i"));
    }
    for (toaster, source) in [("external", "auto"), ("pglz", "functions")] {
        for table in ["wide"].iter().chain(&others) {
            let report = run_twice(
                database,
                table,
                &["-c", "v", "--toaster", toaster, "--set", &format!("source={source}")],
            );
            assert_ne!(report.rows_stored, 0, "{table}: {report}");
            let compressed = database.psql(&format!(
                "SELECT count(*) FROM {table} WHERE pg_column_compression(v) IS NOT NULL"
            ));
            assert_eq!(compressed == "0", toaster == "external", "{table}: {compressed}");
        }
    }
    let by_index = database.psql(
        "SET enable_seqscan = off; SET enable_bitmapscan = off;
         SELECT count(*) FROM generate_series(1, 300) i JOIN indexed ON md5(v) = md5(fill(i)) AND id = i",
    );
    assert_eq!(by_index, "300");
}

fn partitions(database: &Database<'_>) {
    database.psql(
        "CREATE TABLE p (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (50);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (50) TO (100) PARTITION BY RANGE (id);
         CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (50) TO (70);
         CREATE TABLE p22 PARTITION OF p2 FOR VALUES FROM (70) TO (100);
         INSERT INTO p SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 99) i",
    );
    let before = contents(database, "p");
    let set = "SELECT string_agg(relname || attstorage::text || attcompression::text, ' ' ORDER BY relname)
        FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE attname = 'v' AND relname LIKE 'p%'
        AND relnamespace = 'public'::regnamespace";
    let dry = retoast(database, &["p", "-c", "v", "--toaster", "external", "--dry-run"]);
    let told = dry.exits(0).report::<Report>().tables[0].notes();
    for table in ["p", "p2"] {
        let set = format!("would set for new partitions: ALTER TABLE ONLY \"public\".\"{table}\" ");
        assert!(told.contains(&set), "{told}");
    }
    assert_eq!(database.psql(set), "px p1x p2x p21x p22x");
    for parallel in ["2", "1"] {
        let more = [
            "--toaster",
            "external",
            "--set",
            &format!("parallel-tables={parallel}"),
            "--jobs",
            "2",
        ];
        let run = retoast(database, &[&["p", "-c", "v"], &more[..]].concat());
        let tables = run.exits(0).tables();
        let got = tables.iter().map(|table| (table.relation.as_str(), table.rows_stored));
        let rows = |n: u64| if parallel == "2" { n } else { 0 };
        let expected =
            [("public.p1", rows(49)), ("public.p21", rows(20)), ("public.p22", rows(30))];
        assert_eq!(got.collect::<Vec<_>>(), expected);
    }
    database.psql("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (100) TO (200)");
    assert_eq!(database.psql(set), "pe p1e p2e p21e p22e p3e");
    assert_eq!(contents(database, "p"), before);
}

fn on_major(major: u32) {
    if !server::has_major(major) {
        return;
    }
    let server = Server::start(&Options::major(major));
    let database = server.create_database("shapes");
    types(&database);
    tables(&database);
    partitions(&database);
}

#[test]
fn types_tables_and_partitions_on_14() {
    on_major(14);
}

#[test]
fn types_tables_and_partitions_on_15() {
    on_major(15);
}

#[test]
fn types_tables_and_partitions_on_17() {
    on_major(17);
}

#[test]
fn types_tables_partitions_and_virtual_columns_on_18() {
    if !server::has_major(18) {
        return;
    }
    let server = Server::start(&Options::major(18));
    let database = server.create_database("shapes");
    types(&database);
    tables(&database);
    partitions(&database);
    database.psql(
        "CREATE TABLE vg (id int PRIMARY KEY, v text, w text GENERATED ALWAYS AS (v || v) VIRTUAL);
         INSERT INTO vg SELECT i, repeat(md5(i::text), i * 4) FROM generate_series(1, 100) i",
    );
    for (toaster, source) in [("external", "auto"), ("pglz", "functions"), ("main", "functions")] {
        run_twice(
            &database,
            "vg",
            &["-c", "v", "--toaster", toaster, "--set", &format!("source={source}")],
        );
    }
    let chosen = retoast(&database, &["vg", "-c", "w", "--toaster", "external"]);
    crate::support::retoast::refused(&chosen, 1, "is virtual");
}

#[test]
fn a_value_of_100_megabytes_goes_from_form_to_form() {
    let database = with_pageinspect("huge");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t VALUES (1, repeat(md5('huge'), 3276800)), (2, 'small')",
    );
    let content = "SELECT string_agg(id || md5(v), ',' ORDER BY id) FROM t";
    let before = database.psql(content);
    for toaster in ["lz4", "external", "pglz"] {
        done(&retoast(&database, &["t", "-c", "v", "--toaster", toaster]));
        assert_eq!(database.psql(content), before, "{toaster}");
        let again = done(&retoast(&database, &["t", "-c", "v", "--toaster", toaster]));
        assert_eq!(again.rows_found, 0);
    }
    assert_eq!(forms(&database, "t", "v")[0], "external_compressed pglz 1");
}
