//! How `compact` ends: what is not known is not called done, and who is in the way is told.

use std::process::Command;

use crate::support::command::{Run, run, toastctl, verb_of};
use crate::support::holder::Holder;
use crate::support::reports::retoast::{CompactedFile, FileEnd, Outcome, Report};
use crate::support::retoast::{contents, done, refused, retoast};
use crate::support::server::{self, Database, Options, Server};
use crate::support::tables::{NOISE, table};

/// The exit code that says that all is done, and others still hold space.
const HELD: i32 = 6;

fn as_owner(database: &Database<'_>, arguments: &[&str]) -> Command {
    let mut command = toastctl();
    let (verb, arguments) = verb_of("retoast", arguments);
    command.args([verb, "-d", &database.url_of("owner")]);
    command.args(arguments);
    command
}

/// A run without pages.
fn by_owner(database: &Database<'_>, arguments: &[&str]) -> Run {
    let mut command = as_owner(database, arguments);
    run(command.args(["--allow", "triggers", "--format", "json"]))
}

fn pages(database: &Database<'_>) -> u64 {
    database.psql("SELECT pg_relation_size('t') / 8192").parse().unwrap()
}

/// What `advise-threshold` says that compaction would give back of the table's file, without pages.
fn said_to_owner(database: &Database<'_>) -> Option<String> {
    let advice = run(&mut as_owner(database, &["advise-threshold", "t", "--details"])).ok();
    let said = advice.replace('\n', " ");
    said.contains("of the heap").then_some(said)
}

fn with_owner<'s>(server: &'s Server, name: &str) -> Database<'s> {
    let database = server.with_pageinspect(name);
    database.psql(NOISE);
    database.psql(
        "DO $$ BEGIN CREATE ROLE owner LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
         GRANT ALL ON SCHEMA public TO owner",
    );
    database
}

/// Compacts as the owner and then as a superuser: the owner gets about as far, and says so truly.
#[track_caller]
fn owner_gets_as_far(server: &Server, name: &str, make: &str) {
    let database = with_owner(server, name);
    database.psql(&format!("SET ROLE owner; {make}"));
    database.psql("VACUUM t");
    let (before, was) = (contents(&database, "t"), pages(&database));
    let owners = by_owner(&database, &["compact", "t", "--files", "heap"]);
    let of_owner = pages(&database);
    let table = owners.table();
    assert_eq!((owners.code, table.outcome), (Some(0), Outcome::Complete), "{name}: {table}");
    assert_eq!(said_to_owner(&database), None, "{name}");
    let again = by_owner(&database, &["compact", "t", "--files", "heap"]);
    let rows: u64 = database.psql("SELECT count(*) FROM t").parse().unwrap();
    let again = (again.code, again.table());
    // what is not known is found out by as few rows as that takes
    let moved = again.1.rows_stored;
    assert!(again.0 == Some(0) && moved * 10 < rows, "{name}: {again:?}");
    assert!(pages(&database) <= of_owner, "{name}: {of_owner}: {again:?}");
    let superusers =
        retoast(&database, &["compact", "t", "--files", "heap", "--allow", "owner-code"]);
    assert_eq!(superusers.code, Some(0), "{name}: {}", superusers.stdout);
    let most = pages(&database);
    eprintln!("{name}: {was} pages became {of_owner}, for a superuser {most}");
    // 2 % or 8 pages are not worth a round
    assert!(of_owner <= most + (most / 50).max(8), "{name}: {was}, {of_owner}, {most}: {table}");
    assert!(most * 4 < was * 3, "{name}: {was}, {most}");
    assert_eq!(contents(&database, "t"), before, "{name}");
}

#[test]
fn without_pages_null_columns_and_the_tables_target_count_as_they_do_on_pages() {
    let server = Server::start(&Options::default());
    let columns: Vec<String> = (1..=400).map(|n| format!("c{n} text")).collect();
    let nulls = format!(
        "CREATE TABLE t (id int PRIMARY KEY, {}); INSERT INTO t (id, c1, c400)
         SELECT i, noise(i, 1), 'x' FROM generate_series(1, 12000) i; DELETE FROM t WHERE id % 4 <> 0",
        columns.join(", ")
    );
    owner_gets_as_far(&server, "nulls", &nulls);
    let target = "CREATE TABLE t (id int PRIMARY KEY, a jsonb) WITH (toast_tuple_target = 4096);
         INSERT INTO t SELECT i, jsonb_build_object('k', noise(i, 78 + i % 40)) FROM generate_series(1, 1500) i;";
    owner_gets_as_far(&server, "target", &format!("{target} DELETE FROM t WHERE id % 2 = 0"));
    // with values in the TOAST relation nothing tells which these are
    let some = "INSERT INTO t SELECT -i, jsonb_build_object('k', noise(i, 200)) FROM generate_series(1, 40) i;";
    owner_gets_as_far(
        &server,
        "unknown",
        &format!("{target}{some} DELETE FROM t WHERE id % 2 = 0"),
    );
    // set since: rows are shorter than it lets them be
    let since = "CREATE TABLE t (id int PRIMARY KEY, a jsonb, b text, c text);
         INSERT INTO t SELECT i, jsonb_build_object('k', noise(i, 78 + i % 40)), noise(i, 30) FROM generate_series(1, 6000) i;
         ALTER TABLE t SET (toast_tuple_target = 8000), DROP COLUMN c;
         DELETE FROM t WHERE id % 2 = 0";
    owner_gets_as_far(&server, "since", since);
}

#[test]
fn a_run_that_others_keep_from_truncating_is_done_and_says_who_holds_the_rest() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("held");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(noise(i, 50), 3) FROM generate_series(1, 1500) i;
         ALTER TABLE t ALTER v SET COMPRESSION lz4;
         DELETE FROM t WHERE id <= 700; VACUUM t; CREATE TABLE whole (id int, v text COMPRESSION lz4)",
    );
    let reader = Holder::of(&database, "LOCK TABLE t IN ACCESS SHARE MODE");
    let arguments = ["--column", "v", "--toaster", "lz4", "--compact=heap"];
    // the worst of two tables
    let held = retoast(&database, &[&["whole", "t"], &arguments[..]].concat());
    assert_eq!(held.table().outcome, Outcome::Complete, "{}", held.stdout);
    let both = held.report::<Report>();
    let told = &both.tables[1];
    assert_eq!((held.code, told.outcome), (Some(HELD), Outcome::Held), "{told}");
    let file = &told.compaction[0];
    assert_eq!((file.ended, told.rows_left), (FileEnd::Held, Some(0)), "{told}");
    assert!(file.untruncated > 0, "{file}");
    drop(reader);
    let table = done(&retoast(&database, &["compact", "t", "--files", "heap"]));
    assert!(table.after.heap * 3 < table.before.heap * 2, "{table}");
}

/// A snapshot keeps a few pages of a small heap, beside a large TOAST relation: less than 1 % of both.
#[test]
fn little_that_a_snapshot_keeps_is_said_and_is_no_failure() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("little");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 1800) i;
         INSERT INTO t SELECT -i, repeat(md5(i::text), 500) FROM generate_series(1, 4000) i;
         DELETE FROM t WHERE id % 2 = 0 AND id > 0; VACUUM (TRUNCATE false) t",
    );
    let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT 1";
    let reader = Holder::of(&database, snapshot);
    let run = retoast(&database, &["compact", "t"]);
    let table = run.table();
    assert_eq!((run.code, table.outcome), (Some(0), Outcome::Complete), "{table}");
    let heap = table.compaction.iter().find(|file| file.file == CompactedFile::Heap).unwrap();
    assert_eq!(heap.ended, FileEnd::Held, "{heap}");
    assert!(heap.spare > 200_000 && heap.untruncated > 0, "{heap}");
    // of the heap alone, it is more
    let heap = retoast(&database, &["compact", "t", "--files", "heap"]);
    assert_eq!((heap.code, heap.table().outcome), (Some(HELD), Outcome::Held), "{}", heap.stdout);
    let arguments = ["compact", "-d", &database.url(), "t"];
    let told = crate::support::command::run(toastctl().args(arguments)).ok();
    assert!(
        told.contains("(less than 1 %) that other sessions keep from being returned"),
        "{told}"
    );
    assert!(told.contains("left: heap: "), "{told}");
    drop(reader);
    let table = done(&retoast(&database, &["compact", "t"]));
    assert!(table.compaction.iter().all(|file| file.ended == FileEnd::Compact), "{table}");
    assert!(table.after.heap + 200_000 < table.before.heap, "{table}");
}

#[test]
fn rows_that_get_longer_when_they_are_moved_are_no_reason_to_move_them() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("longer");
    database.psql(NOISE);
    // the default stands in no row until that is updated
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, a text);
         INSERT INTO t SELECT i, noise(i, 2) FROM generate_series(1, 40000) i;
         ALTER TABLE t ADD b text DEFAULT repeat('x', 6000); ALTER TABLE t ALTER b SET STORAGE plain;
         DELETE FROM t WHERE id % 4 <> 0; VACUUM t",
    );
    let before = pages(&database);
    for _ in 0..2 {
        let table = done(&retoast(&database, &["compact", "t", "--files", "heap"]));
        assert_eq!((table.rows_stored, pages(&database)), (0, before), "{table}");
        let advice = ["advise-threshold", "-d", &database.url(), "t", "--details"];
        let advice = run(toastctl().args(advice)).ok();
        assert!(!advice.contains("toastctl compact public.t"), "{advice}");
        assert!(!advice.contains("--compact=heap"), "{advice}");
    }
}

#[test]
fn rows_that_the_server_refuses_to_move_are_the_reason_told() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("refuses");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, a text, n int);
         INSERT INTO t SELECT i, noise(i, 20), CASE WHEN i > 2990 THEN 0 ELSE 1 END FROM generate_series(1, 3000) i;
         ALTER TABLE t ADD CHECK (n > 0) NOT VALID; DELETE FROM t WHERE id % 2 = 0; VACUUM t",
    );
    let run = retoast(&database, &["compact", "t", "--files", "heap", "--allow", "owner-code"]);
    let table = run.table();
    assert_eq!((run.code, table.outcome), (Some(1), Outcome::Incomplete), "{table}");
    let file = &table.compaction[0];
    assert!(file.rows_refused > 0, "{file}");
    assert_eq!(file.rows_left, 0, "{file}");
}

#[test]
fn where_vacuum_never_truncates_nothing_is_moved() {
    // the setting was removed in 17, whose servers refuse to start with it
    let Some(major) = [15, 16, 14].into_iter().find(|major| server::has_major(*major)) else {
        return;
    };
    let server = Server::start(&Options::major(major).set("old_snapshot_threshold", "1h"));
    let database = server.with_pageinspect("never");
    database.psql(NOISE);
    database.psql(&table(4000, "noise(i, 100)"));
    database.psql("DELETE FROM t WHERE id % 2 = 0; VACUUM t");
    let sizes = "SELECT pg_relation_size('t'), pg_relation_size(reltoastrelid), age(relfrozenxid)
        FROM pg_class WHERE oid = 't'::regclass";
    let before = database.psql(sizes);
    for words in [
        &["compact", "t"][..],
        &["compact", "t", "--dry-run"],
        &["t", "--column", "v", "--toaster", "lz4", "--compact"],
    ] {
        let run = retoast(&database, words);
        refused(&run, 1, "old_snapshot_threshold");
        assert_eq!(database.psql(sizes), before);
    }
    let inspected = run(toastctl().args(["inspect", "-d", &database.url(), "t"])).ok();
    assert!(inspected.contains("free-space"), "{inspected}");
    assert!(!inspected.contains("public.t --compact"), "{inspected}");
    assert!(inspected.contains("old_snapshot_threshold"), "{inspected}");
    let advise = ["advise-threshold", "-d", &database.url(), "t", "--details"];
    let advice = run(toastctl().args(advise)).ok();
    assert!(!advice.contains("public.t --compact"), "{advice}");
    assert!(advice.contains("old_snapshot_threshold"), "{advice}");
}

#[test]
fn values_of_as_many_columns_as_a_table_can_have_keep_their_forms() {
    many_columns(&Server::start(&Options::default()));
    if server::has_major(18) {
        many_columns(&Server::start(&Options::major(18)));
    }
}

fn many_columns(server: &Server) {
    let database = server.with_pageinspect("columns");
    database.psql(NOISE);
    let columns: Vec<String> = (1..1600).map(|n| format!("c{n} text")).collect();
    database.psql(&format!(
        "CREATE TABLE t (id text, {}); INSERT INTO t (id, c1, c800, c1599)
         SELECT i, repeat(noise(i, 70), 3), noise(i, 90), repeat(noise(-i, 70), 3) FROM generate_series(1, 400) i;
         ALTER TABLE t ALTER c1 SET STORAGE external, ALTER c1599 SET STORAGE external;
         DELETE FROM t WHERE id::int % 2 = 0; VACUUM t",
        columns.join(", ")
    ));
    let stored =
        "SELECT count(*), md5(string_agg(concat(id, c1, c800, c1599, pg_column_compression(c1),
        pg_column_size(c1), pg_column_size(c1599)), ',' ORDER BY id::int)) FROM t";
    let before = database.psql(stored);
    let table = done(&retoast(&database, &["compact", "t", "--files", "toast", "--verify=off"]));
    assert_eq!(database.psql(stored), before);
    assert!(table.after.toast * 4 < table.before.toast * 3, "{table}");
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'";
    assert_eq!(database.psql(left), "0");
}
