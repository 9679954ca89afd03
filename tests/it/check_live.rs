//! `check` on live servers: damage that is there, and no alarm where there is none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::check_cases::{Case, Files, On, apply, cases, create, paths, word};
use crate::support::checked::told_live as told;
use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::check::Finding;
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::inspect;

/// Checks tables with more arguments; the lines of findings, by table.
fn check(database: &Database<'_>, args: &[&str]) -> (Run, Vec<Printed<Finding>>) {
    let found = inspect(database, &[&["check", "--format", "jsonl"], args].concat());
    let lines = found.lines();
    (found, lines)
}

/// Of each table what is found, by its name.
fn by_table(database: &Database<'_>, lines: &[Printed<Finding>]) -> BTreeMap<String, Vec<String>> {
    let names = database.psql(
        "SELECT 'public.' || relname, 'pg_toast.pg_toast_' || oid FROM pg_class
         WHERE relkind = 'r' AND reltoastrelid <> 0 AND relnamespace = 'public'::regnamespace",
    );
    let tables: BTreeMap<&str, &str> = names
        .lines()
        .filter_map(|line| line.split_once('|'))
        .flat_map(|(table, toast)| [(table, table), (toast, table)])
        .collect();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let table = tables[line.relation.as_str()];
        found.entry(table.replace("public.", "")).or_default().push(told(line));
    }
    found
}

fn name(case: &Case) -> String {
    format!("case_{}", case.name)
}

/// A server with a table for each case, damaged while it was stopped, and what must be found.
fn damaged(options: &Options) -> (Server, String, BTreeMap<String, Vec<String>>) {
    let server = Server::start(options);
    let database = server.create_database("check_live");
    let all: Vec<Case> = cases().into_iter().filter(|case| case.on != On::Files).collect();
    let mut sql = "CREATE EXTENSION pageinspect; CREATE EXTENSION amcheck;".to_owned();
    all.iter().for_each(|case| sql += &create(&name(case)));
    sql += &create("sound");
    database.psql(&(sql + "CHECKPOINT;"));
    let places: Vec<_> = all.iter().map(|case| paths(&database, &name(case))).collect();
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    let mut expected = BTreeMap::new();
    for (case, [heap, toast]) in all.iter().zip(&places) {
        let files =
            Files { heap: std::fs::read(heap).unwrap(), toast: std::fs::read(toast).unwrap() };
        let (changed, findings) = apply(case, &files);
        std::fs::write(heap, changed.heap).unwrap();
        std::fs::write(toast, changed.toast).unwrap();
        expected.insert(name(case), findings);
    }
    server.start_again();
    (server, base, expected)
}

#[test]
fn every_damage_of_a_server_has_its_finding_and_no_other() {
    let (server, base, expected) = damaged(&Options::default());
    let database = server.database(&base);
    let (found, lines) = check(&database, &["--deep", "case_*", "sound"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(5), ""));
    let seen = by_table(&database, &lines);
    let wrong: Vec<String> = expected
        .iter()
        .filter(|(table, findings)| seen.get(*table) != Some(findings))
        .map(|(table, findings)| format!("{table}: {:?}, expected {findings:?}", seen.get(table)))
        .collect();
    assert_eq!(wrong, [""; 0]);
    assert_eq!(seen.len(), expected.len());
    assert!(expected.len() >= 40, "{}", expected.len());
    beside_amcheck(&database, &expected, &seen);
    let (found, _) = check(&database, &["sound"]);
    assert_eq!(found.code, Some(0));
}

/// Everything that `verify_heapam` finds is found.
fn beside_amcheck(
    database: &Database<'_>,
    expected: &BTreeMap<String, Vec<String>>,
    seen: &BTreeMap<String, Vec<String>>,
) {
    let mut only_ours: Vec<&str> = Vec::new();
    for table in expected.keys() {
        let sql = format!(
            "SELECT msg FROM verify_heapam('{table}', check_toast => true) UNION ALL
             SELECT (verify_heapam(reltoastrelid)).msg FROM pg_class
             WHERE oid = '{table}'::regclass"
        );
        let found = database.try_psql(&sql);
        let theirs = found.code != Some(0) || !found.stdout.is_empty();
        let ours = seen.contains_key(table);
        assert!(ours || !theirs, "{table}: {}{}", found.stdout, found.stderr);
        if ours && !theirs {
            only_ours.extend(table.strip_prefix("case_"));
        }
    }
    // what README says that amcheck does not find
    let major = database.server().major();
    let mut missed: Vec<&str> = ONLY_OURS.to_vec();
    missed.retain(|case| major < 16 || !FOUND_SINCE_16.contains(case));
    missed.extend(FOUND_SINCE_15.iter().filter(|_| major < 15));
    missed.sort_unstable();
    assert_eq!(only_ours, missed);
}

/// Those that `verify_heapam` finds since PostgreSQL 15, which looks at the method and the raw size of TOAST pointers.
const FOUND_SINCE_15: [&str; 2] = ["method", "raw_size_over_the_limit"];

/// Those that `verify_heapam` finds since PostgreSQL 16, which follows update chains.
const FOUND_SINCE_16: [&str; 3] = ["heap_only", "redirect_to_a_root", "redirect_to_itself"];

/// Cases that `verify_heapam` finds nothing wrong with.
const ONLY_OURS: [&str; 29] = [
    "array",
    "bitmap",
    "heap_only",
    "inline_size",
    "inline_stream",
    "jsonb",
    "left_over",
    "lz4_stream",
    "method_in_the_row",
    "method_of_plain",
    "numeric",
    "orphan",
    "overlap",
    "page_size",
    "pglz_stream",
    "raw_size_less_than_stored",
    "raw_size_more_than_stored",
    "raw_size_negative",
    "raw_size_of_compressed",
    "redirect_to_a_root",
    "redirect_to_itself",
    "shared_value",
    "tcinfo_method",
    "tcinfo_size",
    "text_in_the_row",
    "text_out_of_line",
    "toast_relation",
    "toast_relation_0",
    "xvac",
];

#[test]
fn chunks_that_are_deleted_or_changed_behind_the_tables_back() {
    let database = server::shared().with_pageinspect("check_toast");
    let mut sql = "SET allow_system_table_mods = on;".to_owned();
    let change = |table: &str, what: &str| {
        format!(
            "DO $$DECLARE c regclass; v oid; BEGIN
                 SELECT reltoastrelid INTO c FROM pg_class WHERE oid = '{table}'::regclass;
                 EXECUTE format('SELECT min(chunk_id::int8)::oid FROM %s', c) INTO v;
                 UPDATE pg_class SET relkind = 'r' WHERE oid = c;
                 EXECUTE format('{what}', c, v);
                 UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$;"
        )
    };
    let all = [
        ("gone", "DELETE FROM %s WHERE chunk_id = %s", "TC050"),
        ("first", "DELETE FROM %s WHERE chunk_id = %s AND chunk_seq = 0", "TC051"),
        ("last", "DELETE FROM %s WHERE chunk_id = %s AND chunk_seq = 2", "TC052"),
        (
            "renumbered",
            "UPDATE %s SET chunk_seq = -7 WHERE chunk_id = %s AND chunk_seq = 1",
            "TC054",
        ),
        (
            "cut",
            "UPDATE %s SET chunk_data = ''abc'' WHERE chunk_id = %s AND chunk_seq = 1",
            "TC055",
        ),
        (
            "other",
            "UPDATE %s SET chunk_data = substr(chunk_data, 2) || ''x'' WHERE chunk_id = %s AND chunk_seq = 0",
            "TC062",
        ),
        ("nothing", "SELECT FROM %s WHERE chunk_id = %s", ""),
    ];
    for (table, what, _) in all {
        sql += &format!(
            "CREATE TABLE {table} (v text); INSERT INTO {table}
             SELECT string_agg(md5(g::text) || repeat('abcdefgh', 2), '') FROM generate_series(1, 140) AS g;"
        );
        sql += &change(table, what);
    }
    database.psql(&sql);
    let (_, lines) = check(&database, &[]);
    let found = by_table(&database, &lines);
    for (table, _, code) in all {
        let expected: Vec<String> = [code]
            .iter()
            .filter(|code| !code.is_empty())
            .map(|c| format!("{c} heap 0/1 v 24"))
            .collect();
        assert_eq!(found.get(table).cloned().unwrap_or_default(), expected, "{table}");
    }
}

#[test]
fn chunks_without_a_row_are_told_from_those_of_rows_that_move() {
    let database = server::shared().create_database("check_orphans");
    // rows move all the time, and each has its chunks
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, k int, pad text, v text) WITH (autovacuum_enabled = off);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT g, 0, repeat('p', 400), repeat(md5(g::text), 70) FROM generate_series(1, 2000) AS g;",
    );
    database.psql(WITHOUT_ROW);
    let stop = AtomicBool::new(false);
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for s in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                database.psql(&format!("UPDATE t SET k = k + 1 WHERE id % 29 = {s} % 29"));
                if s % 20 == 0 {
                    database.psql("VACUUM t");
                }
            }
        });
        seen.extend(
            ["1", "2", "1", "2", "1", "2"].map(|jobs| check(&database, &["t", "--jobs", jobs])),
        );
        stop.store(true, Ordering::Relaxed);
    });
    for (found, lines) in seen {
        let told: Vec<String> = lines.iter().map(told).collect();
        assert!(told.len() == 1 && told[0].starts_with("TC080 toast "), "{told:?}, {found:?}");
        assert_eq!(lines[0].found, "1 chunk of value 4000000000, 3 bytes");
        // nothing is damaged
        assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    }
}

/// Adds a chunk to the TOAST relation of `t` that no row refers to.
const WITHOUT_ROW: &str = "SET allow_system_table_mods = on;
    DO $$DECLARE c regclass; BEGIN
        SELECT reltoastrelid INTO c FROM pg_class WHERE oid = 't'::regclass;
        UPDATE pg_class SET relkind = 'r' WHERE oid = c;
        EXECUTE format('INSERT INTO %s VALUES (4000000000, 0, ''abc'')', c);
        UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$;";

#[test]
fn an_old_transaction_hides_no_chunk_without_a_row() {
    let server = server::shared();
    let (database, other) =
        (server.create_database("check_hidden"), server.create_database("check_hider"));
    database.psql(&("CREATE EXTENSION pageinspect;".to_owned() + &create("t")));
    // the chunk's transaction is younger than one that still runs
    let _old = Holder::of(&other, "CREATE TABLE own ()");
    database.psql(WITHOUT_ROW);
    let (found, lines) = check(&database, &["t"]);
    let told: Vec<String> = lines.iter().map(told).collect();
    assert!(told.len() == 1 && told[0].starts_with("TC080 toast "), "{told:?}, {found:?}");
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
}

#[test]
fn chunks_without_a_row_that_are_not_looked_for_are_said() {
    let server = Server::start(&Options::default());
    let database = server.create_database("check_unseen");
    database.psql(&("CREATE EXTENSION pageinspect;".to_owned() + &create("t") + "CHECKPOINT"));
    let [heap, _] = paths(&database, "t");
    let files = Files::read(&database, "t");
    database.psql(WITHOUT_ROW);
    server.stop();
    let mut bytes = files.heap.clone();
    // a header that is said to be shorter than it is hides what the row refers to
    bytes[files.row(2) + 22] = 8;
    std::fs::write(&heap, &bytes).unwrap();
    server.start_again();
    let text = run(toastctl().args(["check", "-d", &database.url(), "t"]));
    let said = format!(
        "whether rows refer to all values of pg_toast.{} is not known: damage hides what rows refer to",
        database.psql("SELECT c.relname FROM pg_class AS c JOIN pg_class AS t ON t.reltoastrelid = c.oid AND t.relname = 't'")
    );
    let line = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains(&said), "{}{}", text.stdout, text.stderr);
    assert_eq!(text.code, Some(5));
}

#[test]
fn an_index_that_leads_elsewhere_is_told_from_chunks_that_are_gone() {
    let server = Server::start(&Options::default());
    let database = server.create_database("check_index");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {}{}{} CHECKPOINT;",
        create("nowhere"),
        create("elsewhere"),
        create("nearby")
    ));
    let place = |table: &str| {
        let path = database.psql(&format!(
            "SELECT pg_relation_filepath(i.indexrelid) FROM pg_class AS c
             JOIN pg_index AS i ON i.indrelid = c.reltoastrelid WHERE c.oid = '{table}'::regclass"
        ));
        (server.data_dir().join(path), Files::read(&database, table))
    };
    let [nowhere, elsewhere, nearby] = ["nowhere", "elsewhere", "nearby"].map(place);
    server.stop();
    // the entry of chunk 1 of a value: its TID, 2 bytes, chunk_id, chunk_seq
    let change = |(path, files): &(std::path::PathBuf, Files), tid: [u8; 6]| {
        let mut index = std::fs::read(path).unwrap();
        let id = files.value_id(2, "ext");
        let at =
            (0..index.len() - 8).find(|&at| word(&index, at) == id && word(&index, at + 4) == 1);
        let at = at.unwrap() - 8;
        index[at..at + 6].copy_from_slice(&tid);
        std::fs::write(path, index).unwrap();
    };
    let chunk = elsewhere.1.chunk(3, "cmp", 0);
    let block = u8::try_from(chunk.block).unwrap();
    change(&nowhere, [0, 0, 0, 0, 200, 0]);
    change(&elsewhere, [0, 0, block, 0, chunk.item as u8, 0]);
    // a chunk that is asked for with the same statement
    let near = nearby.1.chunk(3, "ext", 0);
    let near_block = u8::try_from(near.block).unwrap();
    change(&nearby, [0, 0, near_block, 0, near.item as u8, 0]);
    server.start_again();
    let (found, lines) = check(&database, &["nowhere", "elsewhere", "nearby"]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let seen = by_table(&database, &lines);
    let byte = nowhere.1.value(2, "ext").tuple;
    assert_eq!(seen["nowhere"], [format!("TC081 heap 0/2 ext {byte}")]);
    let mut both = seen["elsewhere"].clone();
    both.sort();
    let wrong = format!("TC082 toast {}/{} - -", chunk.block, chunk.item);
    assert_eq!(both, [format!("TC081 heap 0/2 ext {byte}"), wrong]);
    let mut both = seen["nearby"].clone();
    both.sort();
    let wrong = format!("TC082 toast {}/{} - -", near.block, near.item);
    assert_eq!(both, [format!("TC081 heap 0/2 ext {byte}"), wrong]);
}

#[test]
fn a_standby_and_an_unlogged_table_after_a_crash_give_no_alarm() {
    let server = Server::start(&Options::default());
    let database = server.create_database("check_standby");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {} CREATE UNLOGGED TABLE u (v text);
         ALTER TABLE u ALTER v SET STORAGE external;
         INSERT INTO u SELECT repeat('x', 9000) FROM generate_series(1, 20); CHECKPOINT;
         UPDATE t SET ext = ext || 'x' WHERE id < 3; DELETE FROM t WHERE id = 4;",
        create("t")
    ));
    let standby = server.start_standby();
    let there = standby.database(database.name());
    let (found, lines) = check(&there, &["--deep"]);
    assert_eq!((found.code, lines.len()), (Some(0), 0), "{}{}", found.stdout, found.stderr);
    drop(there);
    drop(standby);
    let (found, _) = check(&database, &["--deep"]);
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    server.restart_immediate();
    let (found, _) = check(&database, &["--deep"]);
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
}

#[test]
fn checksums_on_disk_are_verified_though_the_pages_are_in_memory() {
    // the first that has checksums unless told otherwise
    if !server::has_major(18) {
        return;
    }
    let server = Server::start(&Options::major(18));
    let database = server.create_database("check_sums");
    // this server may be built without lz4
    let create = create("t").replace("COMPRESSION lz4", "COMPRESSION pglz");
    database.psql(&format!("CREATE EXTENSION pageinspect; {create} CHECKPOINT;"));
    assert_eq!(database.psql("SHOW data_checksums"), "on");
    let (found, _) = check(&database, &["--deep"]);
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    let (files, [_, toast]) = (Files::read(&database, "t"), paths(&database, "t"));
    let chunk = files.chunk(2, "ext", 1);
    let mut bytes = files.toast.clone();
    bytes[chunk.tuple + 100] ^= 1;
    std::fs::write(toast, bytes).unwrap();
    // the server has the page in memory, and reads the value as it was
    let page = format!("TC002 toast {}/- - 8", chunk.block);
    let (found, lines) = check(&database, &["--deep"]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert_eq!(by_table(&database, &lines)["t"], std::slice::from_ref(&page));
    // now it has to read the page, and refuses
    server.restart_immediate();
    let (found, lines) = check(&database, &["--deep"]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let seen = &by_table(&database, &lines)["t"];
    let byte = files.value(2, "ext").tuple;
    assert!(
        seen.contains(&page) && seen.contains(&format!("TC058 heap 0/2 ext {byte}")),
        "{seen:?}"
    );
}

/// A table that cannot be locked costs only itself: its transaction is over before the next table is checked.
#[test]
fn tables_that_are_locked_do_not_affect_the_others() {
    let database = server::with_pageinspect("check_locked");
    for table in ["a", "b", "c", "d"] {
        database.psql(&format!("CREATE TABLE {table} AS SELECT repeat('x', 100) AS v"));
    }
    let _holder = Holder::of(&database, "LOCK TABLE a, b, c");
    let run = run(toastctl()
        .args(["check", "-d", &database.url(), "a", "b", "c", "d"])
        .env("PGOPTIONS", "-c lock_timeout=100ms"));
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert_eq!(
        run.stderr.matches("canceling statement due to lock timeout").count(),
        3,
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("current transaction is aborted"), "{}", run.stderr);
    assert!(run.stdout.contains("public.d: sound"), "{}", run.stdout);
}
