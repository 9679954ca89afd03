//! Entries of old row versions in indexes are marked dead on the way, so that the indexes do not grow.

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::retoast::{Outcome, Table};
use crate::support::retoast::{contents, done, retoast};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};

/// Rows of about 600 bytes: of those that an update moves, an index in the rows' order gets new entries in leaves
/// that are full.
const WIDE: &str = r#"CREATE SCHEMA "o d";
    CREATE TABLE "o d"."T 1" (id int PRIMARY KEY, "n n" int, twice int, pad text, v text);
    ALTER TABLE "o d"."T 1" ALTER pad SET STORAGE plain, ALTER v SET STORAGE external;
    INSERT INTO "o d"."T 1" SELECT i, i % 100, i * 2, repeat('x', 560), repeat(md5(i::text), 66)
        FROM generate_series(1, 6000) i;
    CREATE INDEX expression ON "o d"."T 1" ((- id));
    CREATE UNIQUE INDEX two ON "o d"."T 1" (((id / 100)), "n n");
    CREATE INDEX partial ON "o d"."T 1" (twice) WHERE id > 300;
    CREATE INDEX few ON "o d"."T 1" ("n n");
    CREATE INDEX words ON "o d"."T 1" USING gin ((ARRAY["n n"]));
    VACUUM (ANALYZE, FREEZE) "o d"."T 1""#;

const TABLE: &str = r#""o d"."T 1""#;

/// Name and pages of each btree index.
fn pages(database: &Database<'_>) -> Vec<(String, u64)> {
    let all = database.psql(
        "SELECT c.relname || '=' || pg_relation_size(c.oid) / 8192 FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
         WHERE indrelid = '\"o d\".\"T 1\"'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree') ORDER BY 1",
    );
    let one = |line: &str| {
        let (name, pages) = line.split_once('=').unwrap();
        (name.to_owned(), pages.parse().unwrap())
    };
    all.lines().map(one).collect()
}

fn grows_little(database: &Database<'_>, what: &str) -> Printed<Table> {
    database.psql(WIDE);
    let (before, rows) = (pages(database), contents(database, TABLE));
    assert_eq!(before.len(), 5, "{before:?}");
    let table = done(&retoast(database, &[TABLE, "-c", "v", "--toaster", "pglz"]));
    for ((name, then), (_, now)) in before.iter().zip(pages(database)) {
        assert!(now <= then + 1 + then / 20, "{what}: {name}: {then} pages became {now}");
    }
    assert_eq!(contents(database, TABLE), rows);
    table
}

#[test]
fn btree_indexes_grow_by_little_where_rows_move() {
    // a server of its own: nothing is marked while anybody's transaction has written, in whatever database
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("old_entries");
    let table = grows_little(&database, "main");
    assert_eq!(table.outcome, Outcome::Complete);
}

#[test]
fn they_do_so_on_the_newest_major_too() {
    let Some(major) = server::other_majors().into_iter().max() else { return };
    let server = Server::start(&Options::major(major));
    let database = server.with_pageinspect("newest");
    grows_little(&database, &major.to_string());
}

#[test]
fn an_expression_that_cannot_be_looked_for_ends_the_marking_and_nothing_else() {
    let database = with_pageinspect("old_entries_error");
    database.psql(
        "CREATE FUNCTION odd(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
            IF current_query() LIKE '%toastctl_moved%' THEN RAISE 'not here'; END IF; RETURN i; END$$;
         CREATE TABLE t (id int, pad text, v text);
         ALTER TABLE t ALTER pad SET STORAGE plain, ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat('x', 560), repeat(md5(i::text), 66) FROM generate_series(1, 1000) i;
         CREATE INDEX odd ON t (odd(id)); VACUUM ANALYZE t",
    );
    let rows = contents(&database, "t");
    let mut command = toastctl();
    command.args(["-v", "retoast", "t", "-c", "v", "--toaster", "pglz", "--format", "json"]);
    let swept = run(command.args(["-d", &database.url()]));
    let said = "public.t: old index entries are no longer marked: not here";
    assert_eq!(swept.stderr.matches(said).count(), 1, "{}", swept.stderr);
    let table = done(&swept);
    assert_eq!((table.outcome, table.rows_refused), (Outcome::Complete, 0));
    assert_eq!(contents(&database, "t"), rows);
}

#[test]
fn indexes_of_the_same_columns_are_all_marked() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("same_column");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, m int, o text, pad text, v text);
         CREATE INDEX one ON t (n); CREATE INDEX two ON t (n, m); CREATE INDEX three ON t (n, m, o);
         CREATE INDEX partial ON t (n) WHERE n > 300; CREATE INDEX with_id ON t (id, n);
         CREATE TABLE pairs (id int, n int, pad text, v text, PRIMARY KEY (id, n));
         CREATE INDEX reversed ON pairs (n, id)",
    );
    for (table, columns) in [("t", "i, i, i * 2, 'o' || i"), ("pairs", "i, i * 2")] {
        database.psql(&format!(
            "ALTER TABLE {table} ALTER pad SET STORAGE plain, ALTER v SET STORAGE external;
             INSERT INTO {table} SELECT {columns}, repeat('x', 560), repeat(md5(i::text), 66)
                FROM generate_series(1, 5000) i;
             VACUUM (FREEZE) {table}; REINDEX TABLE {table}; ANALYZE {table}"
        ));
        let pages = || {
            let sizes = database.psql(&format!(
                "SELECT indexrelid::regclass || '=' || pg_relation_size(indexrelid) / 8192
                 FROM pg_index WHERE indrelid = '{table}'::regclass ORDER BY 1"
            ));
            let one = |line: &str| {
                let (name, pages) = line.split_once('=').unwrap();
                (name.to_owned(), pages.parse::<u64>().unwrap())
            };
            sizes.lines().map(one).collect::<Vec<_>>()
        };
        let (before, rows) = (pages(), contents(&database, table));
        let mut command = toastctl();
        command.args(["-v", "retoast", table, "-c", "v", "--toaster", "pglz", "--format", "json"]);
        let swept = run(command.args(["-d", &database.url()]));
        assert_eq!(done(&swept).outcome, Outcome::Complete);
        let marked = !swept.stderr.contains("are not marked");
        for ((name, then), (_, now)) in before.iter().zip(pages()) {
            assert!(now <= then + 1 + then / 20, "{name}: {then} pages became {now}, {marked}");
        }
        assert!(marked, "{}", swept.stderr);
        assert_eq!(contents(&database, table), rows);
    }
}
