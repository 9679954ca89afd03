//! `check` on live servers: damage that is there, and no alarm where there is none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::check_cases::{
    Case, Files, On, apply, cases, change_half, create, paths, set_word, word,
};
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
    let (found, lines) = check(&database, &["--deep", "-q", "case_*", "sound"]);
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

/// Removes the first chunk of a value that satisfies a condition.
fn kill_first_chunk(database: &Database<'_>, toast: &str, condition: &str) {
    let tid = database.psql(&format!(
        "CREATE EXTENSION IF NOT EXISTS pg_surgery;
         SELECT ctid FROM {toast} WHERE chunk_seq = 0 AND {condition} ORDER BY chunk_id LIMIT 1"
    ));
    database.psql(&format!("SELECT heap_force_kill('{toast}', ARRAY['{tid}']::tid[])"));
}

#[test]
fn a_toast_relation_that_is_named_is_checked_with_its_table() {
    let database = server::shared().with_pageinspect("check_named");
    database.psql(&(create("t") + &create("other")));
    let toast = database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 't'");
    let bare = toast.strip_prefix("pg_toast.").unwrap().to_owned();
    kill_first_chunk(&database, &toast, "true");
    let shown = run(toastctl().args(["inspect", "-d", &database.url(), "t"])).ok();
    let finding = "    damage: chunks are missing (at least 1)\n      toastctl check public.t";
    assert!(shown.contains(finding), "{shown}");
    for named in [vec![&*toast], vec![&*bare], vec!["t", &*bare, &*toast]] {
        let (found, lines) = check(&database, &named);
        let codes: Vec<&str> = lines.iter().map(|line| line.code.as_str()).collect();
        assert_eq!((found.code, codes), (Some(5), vec!["TC051"]), "{named:?}: {}", found.stderr);
        assert_eq!(lines[0].relation, "public.t");
        let said = format!("{toast} is the TOAST relation of public.t, which is checked with it");
        assert!(found.stderr.contains(&said), "{}", found.stderr);
    }
    // every verb finds it, as far as it can work on one
    for (verb, code, said) in [
        ("inspect", 0, ""),
        ("keys", 2, "Name the table"),
        ("advise-threshold", 2, "Name the table"),
        ("compact", 1, "Name the table"),
        ("reindex", 1, "Name the table"),
    ] {
        let columns: &[&str] = if verb == "keys" { &["-c", "chunk_data"] } else { &[] };
        let found = run(toastctl().args([verb, "-d", &database.url(), &bare]).args(columns));
        assert!(!found.stderr.contains("does not exist"), "{verb}: {}", found.stderr);
        assert!(found.stderr.contains(said), "{verb}: {}", found.stderr);
        assert_eq!(found.code, Some(code), "{verb}: {}", found.stderr);
    }
    // the table is known although pg_class does not name its TOAST relation
    database.psql(
        "SET allow_system_table_mods = on;
         UPDATE pg_class SET reltoastrelid = 0 WHERE relname = 't';",
    );
    let (found, lines) = check(&database, &[&bare]);
    let catalog = lines.iter().find(|line| line.code == "TC009");
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert_eq!(catalog.map(|line| line.relation.as_str()), Some("public.t"));
    // a table of that name in the search path comes first
    database.psql(&format!("CREATE TABLE {bare} (v text)"));
    assert_eq!(check(&database, &[&bare]).0.code, Some(0));
}

#[test]
fn system_catalogs_are_checked_with_all_tables() {
    let database = server::shared().with_pageinspect("check_catalogs");
    database.psql(
        "CREATE TABLE wide AS SELECT string_agg(md5(i::text || j), '') AS t
             FROM generate_series(1, 300) AS i, generate_series(1, 30) AS j GROUP BY i;
         ANALYZE wide;
         DO $$BEGIN EXECUTE format('CREATE FUNCTION large() RETURNS text LANGUAGE sql AS %L',
             'SELECT ' || quote_literal((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) AS i)));
         END$$;",
    );
    let all = run(toastctl().args(["check", "-q", "-d", &database.url()]));
    assert_eq!((all.code, all.stderr.as_str()), (Some(0), ""), "{}", all.stdout);
    assert!(all.stdout.contains(" all sound "), "{}", all.stdout);
    // patterns that begin like their names match them
    for excluded in [["--exclude", "pg_*"], ["-N", "pg_*"], ["-N", "pg_cat*"]] {
        let mut command = toastctl();
        let users = run(command.args(["check", "-d", &database.url()]).args(excluded)).ok();
        let tables = users.split(' ').next().and_then(|number| number.parse::<u32>().ok());
        assert!(tables.is_some_and(|tables| tables < 15), "{excluded:?}: {users}");
    }
    let of = "chunk_id >= 16384";
    kill_first_chunk(&database, "pg_toast.pg_toast_2619", of);
    kill_first_chunk(&database, "pg_toast.pg_toast_1255", of);
    let (found, lines) = check(&database, &[]);
    let found_in: Vec<&str> = lines.iter().map(|line| line.relation.as_str()).collect();
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert_eq!(found_in, ["pg_catalog.pg_proc", "pg_catalog.pg_statistic"]);
    assert!(lines[1].hint.contains("ANALYZE"), "{}", lines[1].hint);
    assert!(!lines[0].hint.contains("ANALYZE"), "{}", lines[0].hint);
    // statistics are computed anew; what the other catalog has lost is not replaced by a guess
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let (found, _) = check(&database, &["--salvage", dir.to_str().unwrap()]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
    assert!(!sql.contains("UPDATE ONLY") && sql.contains("ANALYZE public.wide;"), "{sql}");
    let why = sql.split_whitespace().filter(|word| *word != "--").collect::<Vec<_>>().join(" ");
    assert!(
        why.contains("of \"pg_catalog\".\"pg_proc\": it is a row of a system catalog"),
        "{sql}"
    );
    let plan = "EXPLAIN SELECT * FROM wide WHERE t > 'a'";
    assert!(database.try_psql(plan).stderr.contains("pg_toast_2619"));
    database.psql(&sql);
    database.psql(plan);
    let (_, lines) = check(&database, &[]);
    let found_in: Vec<&str> = lines.iter().map(|line| line.relation.as_str()).collect();
    assert_eq!(found_in, ["pg_catalog.pg_proc"]);
}

#[test]
fn a_temporary_table_of_another_session_is_refused_and_the_server_not_asked() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("check_temporary");
    let _other = Holder::of(
        &database,
        "CREATE TEMP TABLE temp AS SELECT repeat('x', 9000) AS v; COMMIT; BEGIN",
    );
    let schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg_temp_%'";
    let schema = database.psql(schemas);
    let table = format!("{schema}.temp");
    let before = server.log().len();
    for verb in ["check", "inspect", "advise-threshold", "compact", "reindex"] {
        let found = run(toastctl().args([verb, "-d", &database.url(), &table]));
        let said = format!("\"{table}\" is a temporary table of another session");
        assert!(found.stderr.contains(&said), "{verb}: {}", found.stderr);
        assert_eq!(found.code, Some(1), "{verb}: {}", found.stderr);
    }
    let (found, _) = check(&database, &[]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stderr.contains(&format!("left out: {table} is a temporary table")));
    assert!(!server.log()[before..].contains("ERROR"), "{}", &server.log()[before..]);
}

#[test]
fn damaged_chunks_do_not_hide_what_rows_refer_to() {
    let database = server::shared().with_pageinspect("check_known");
    database.psql(&(create("t") + WITHOUT_ROW));
    let toast = database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 't'");
    kill_first_chunk(&database, &toast, "chunk_id < 4000000000");
    let report = run(toastctl().args(["check", "-d", &database.url(), "t"]));
    let (found, lines) = check(&database, &["t"]);
    let codes: Vec<&str> = lines.iter().map(|line| line.code.as_str()).collect();
    assert_eq!((found.code, codes), (Some(5), vec!["TC051", "TC080"]), "{}", report.stdout);
    assert!(!report.stdout.contains("cannot tell whether"), "{}", report.stdout);
}

#[test]
fn an_older_version_that_came_back_is_told_from_a_row_that_lost_its_value() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.with_pageinspect("check_versions");
    database.psql(
        &(create("t") + "UPDATE t SET id = 7 WHERE id = 2; SELECT count(*) FROM t; CHECKPOINT;"),
    );
    let [heap, _] = paths(&database, "t");
    let files = Files::read(&database, "t");
    server.stop();
    let mut bytes = files.heap.clone();
    // HEAP_XMAX_INVALID in place of HEAP_XMAX_COMMITTED
    change_half(&mut bytes, files.row(2) + 20, |mask| mask & !0x0400 | 0x0800);
    std::fs::write(&heap, &bytes).unwrap();
    server.start_again();
    assert_eq!(database.psql("SELECT count(*) FROM t"), "5");
    let (found, lines) = check(&database, &["t"]);
    let shared: Vec<&Printed<Finding>> = lines.iter().filter(|line| line.code == "TC047").collect();
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert!(shared[0].found.ends_with(" in the row at (0,5), a newer version of it"));
    let last = shared.last().unwrap();
    assert!(last.found.ends_with(" in the row at (0,2), an older version of it"), "{}", last.found);
    assert!(last.hint.contains("is an older version of the other"), "{}", last.hint);
}

#[test]
fn hint_bits_lsns_and_maps_are_held_against_what_the_server_logged() {
    held_against_what_was_logged(false);
}

/// Which transactions are over does not depend on the oldest one that is not.
#[test]
fn and_so_they_are_beside_an_older_transaction() {
    held_against_what_was_logged(true);
}

fn held_against_what_was_logged(is_older_open: bool) {
    let options = Options::default().set("autovacuum", "off").set("max_prepared_transactions", "1");
    let server = Server::start(&options);
    if is_older_open {
        let other = server.create_database("older");
        other.psql("BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'old'");
    }
    let database = server.with_pageinspect("check_logged");
    database.psql(
        "CREATE TABLE hints (id int); CREATE TABLE lsn (id int); CREATE TABLE map (id int PRIMARY KEY);
         CREATE TABLE deleted (id int);
         INSERT INTO hints VALUES (1), (2), (3); INSERT INTO lsn VALUES (1);
         INSERT INTO map SELECT generate_series(1, 10); INSERT INTO deleted VALUES (1), (2);
         BEGIN; INSERT INTO hints VALUES (4); ROLLBACK; DELETE FROM hints WHERE id = 2;
         BEGIN; DELETE FROM hints WHERE id = 3; ROLLBACK; SELECT FROM hints;
         DELETE FROM deleted WHERE id = 1;
         VACUUM map; CHECKPOINT;",
    );
    let sound = check(&database, &["public.*"]);
    assert_eq!(sound.0.code, Some(0), "{}", sound.0.stdout);
    let path = |table: &str| {
        let path = database.psql(&format!("SELECT pg_relation_filepath('{table}')"));
        server.data_dir().join(path)
    };
    let [hints, lsn, map, deleted] = ["hints", "lsn", "map", "deleted"].map(path);
    let fork = map.with_extension("").display().to_string() + "_vm";
    let bits = std::fs::read(&fork).unwrap();
    database.psql("DELETE FROM map WHERE id = 5; CHECKPOINT");
    server.stop();
    std::fs::write(&fork, bits).unwrap();
    let mut bytes = std::fs::read(&hints).unwrap();
    let mask = |item| word(&bytes, Files::pointer(0, item)) as usize % 0x8000 + 20;
    // committed for aborted, and the other way round
    let [deleted_row, kept_row, aborted_row] = [2, 3, 4].map(mask);
    change_half(&mut bytes, deleted_row, |mask| mask & !0x0400 | 0x0800);
    change_half(&mut bytes, kept_row, |mask| mask & !0x0800 | 0x0400);
    change_half(&mut bytes, aborted_row, |mask| mask & !0x0200 | 0x0100);
    std::fs::write(&hints, &bytes).unwrap();
    let mut bytes = std::fs::read(&lsn).unwrap();
    bytes[..4].copy_from_slice(&7_u32.to_le_bytes());
    std::fs::write(&lsn, &bytes).unwrap();
    // an all-visible page whose deleted row has no hint bit
    let mut bytes = std::fs::read(&deleted).unwrap();
    change_half(&mut bytes, 10, |flags| flags | 0x0004);
    std::fs::write(&deleted, &bytes).unwrap();
    server.start_again();
    let (found, lines) = check(&database, &["hints", "lsn", "map", "deleted"]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let seen: Vec<String> = lines
        .iter()
        .map(|line| format!("{} {} {}", line.relation, told(line), line.found))
        .collect();
    let mut expected = vec![
        "public.hints TC026 heap 0/2 - 20 HEAP_XMAX_INVALID",
        "public.hints TC026 heap 0/3 - 20 HEAP_XMAX_COMMITTED",
        "public.hints TC026 heap 0/4 - 20 HEAP_XMIN_COMMITTED",
        "public.map TC016 heap 0/- - 10 a page that was changed",
        // the server has set the hint bit when it was asked about the row
        if is_older_open {
            "public.deleted TC029 heap 0/1 - 20 HEAP_XMAX_COMMITTED"
        } else {
            "public.deleted TC029 heap 0/1 - 20 an xmax that committed"
        },
    ];
    let lsn = seen.iter().find(|line| line.starts_with("public.lsn TC015 heap 0/- - 0 7/"));
    expected.insert(3, lsn.unwrap());
    assert_eq!(seen, expected);
    // what the hint says helps
    assert_eq!(database.psql("SET enable_seqscan = off; SELECT count(id) FROM map"), "10");
    database.psql("VACUUM (DISABLE_PAGE_SKIPPING) map");
    assert_eq!(database.psql("SET enable_seqscan = off; SELECT count(id) FROM map"), "9");
    assert_eq!(check(&database, &["map"]).0.code, Some(0));
}

#[test]
fn a_bit_of_the_map_that_is_cleared_with_its_page_is_no_damage() {
    // no other transaction may keep VACUUM from setting the bit
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_map");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE EXTENSION dblink;
         CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b');
         CREATE TABLE log (at int); VACUUM t",
    );
    assert_eq!(check(&database, &["t"]).0.code, Some(0));
    // between the reads of the map and of the page, as a writer beside a vacuum does by chance
    let url = database.url();
    database.psql(&format!(
        "DO $do$ BEGIN
             EXECUTE replace(pg_get_functiondef('get_raw_page(text,text,bigint)'::regprocedure), '.get_raw_page(', '.raw_page(');
         END $do$;
         CREATE OR REPLACE FUNCTION get_raw_page(text, text, bigint) RETURNS bytea LANGUAGE plpgsql STRICT AS $$
         DECLARE page bytea;
         BEGIN
             IF $2 = 'vm' THEN
                 PERFORM public.dblink_exec('{url}', 'VACUUM public.t');
                 page := public.raw_page($1, $2, $3);
                 PERFORM public.dblink_exec('{url}', 'UPDATE public.t SET v = v || 1 WHERE id = 1');
                 PERFORM public.dblink_exec('{url}', format('INSERT INTO public.log VALUES (%s)', get_byte(page, 24)));
                 RETURN page;
             END IF;
             RETURN public.raw_page($1, $2, $3);
         END $$",
    ));
    let (found, lines) = check(&database, &["t"]);
    assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    let set = database.psql("SELECT count(*) > 0 FROM log WHERE at & 1 = 1");
    assert_eq!(set, "t", "the bit was set when it was read");
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

/// Chunks of rows that are not there for everybody, of dropped columns, and of rows and pointers that are lost.
#[test]
fn chunks_without_a_row_are_told_from_their_neighbours() {
    let options = Options::default().set("autovacuum", "off").set("max_prepared_transactions", "2");
    let server = Server::start(&options);
    let database = server.with_pageinspect("check_nearby");
    let not_lost = [
        ("aborted", "BEGIN; INSERT INTO aborted SELECT * FROM aborted; ROLLBACK"),
        ("deleted", "DELETE FROM deleted WHERE id < 3"),
        ("updated", "UPDATE updated SET ext = ext || 'x', cmp = NULL"),
        ("dropped", "ALTER TABLE dropped DROP COLUMN ext"),
        ("inserted", "BEGIN; INSERT INTO inserted SELECT * FROM inserted; PREPARE TRANSACTION 'i'"),
        ("removed", "BEGIN; DELETE FROM removed; PREPARE TRANSACTION 'r'"),
    ];
    let lost = ["killed", "in_part", "misled"];
    let tables = not_lost.iter().map(|(table, _)| *table).chain(lost);
    database.psql(&tables.map(create).collect::<String>());
    for (_, change) in not_lost {
        database.psql(change);
    }
    let named: Vec<&str> = not_lost.iter().map(|(table, _)| *table).collect();
    let nothing = |when: &str| {
        let (found, lines) = check(&database, &named);
        let lines = by_table(&database, &lines);
        assert_eq!((found.code, lines.len()), (Some(0), 0), "{when}: {lines:?}{}", found.stderr);
    };
    nothing("changed");
    database.psql("VACUUM");
    nothing("vacuumed");
    database.psql("COMMIT PREPARED 'i'");
    database.psql("COMMIT PREPARED 'r'");
    nothing("committed");
    database.psql("VACUUM");
    nothing("vacuumed again");

    // those of a lost row are told by value, however many of them there are, and so is the rest of a value
    database.psql("CREATE EXTENSION pg_surgery; CHECKPOINT");
    let id = Files::read(&database, "in_part").value_id(2, "ext");
    for table in ["killed", "in_part"] {
        database.psql(&format!("SELECT heap_force_kill('{table}', '{{\"(0,2)\"}}')"));
    }
    let toast =
        database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'in_part'");
    kill_first_chunk(&database, &toast, &format!("chunk_id = {id}"));
    database.psql("CHECKPOINT");
    let [heap, _] = paths(&database, "misled");
    let mut misled = Files::read(&database, "misled");
    server.stop();
    let at = misled.value(2, "ext").file;
    let was = misled.value_id(2, "ext");
    set_word(&mut misled.heap, at + 10, 4_000_000_001);
    std::fs::write(&heap, &misled.heap).unwrap();
    server.start_again();
    let told_of = |table: &str, code: i32| {
        let (found, lines) = check(&database, &[table]);
        assert_eq!(found.code, Some(code), "{table}: {}", found.stderr);
        lines.iter().map(|line| format!("{} {}", line.code, line.found)).collect::<Vec<_>>()
    };
    let killed = told_of("killed", 0);
    assert_eq!(killed.len(), 3, "{killed:?}");
    let in_part = told_of("in_part", 0);
    let values = |told: &[String]| told.iter().filter(|line| line.starts_with("TC080 ")).count();
    assert_eq!((values(&killed), values(&in_part)), (3, 3), "{killed:?} {in_part:?}");
    let left = database.psql(&format!("SELECT count(*) FROM {toast} WHERE chunk_id = {id}"));
    let rest = format!("TC080 {left} chunks of value {id}, ");
    assert!(in_part.iter().any(|line| line.starts_with(&rest)), "{rest}: {in_part:?}");
    // the pointer is damaged, and its chunks may be what is to be saved
    let told = told_of("misled", 5);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("TC050 "), "{told:?}");
    assert!(told[1].contains(&format!("of value {was}, ")), "{told:?}");
    assert_eq!(values(&told), 1, "{told:?}");
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
        "cannot tell whether rows refer to all values of pg_toast.{}: some references are damaged",
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
    let readers: [&[&str]; 6] = [
        &["inspect", "u"],
        &["inspect", "t", "u"],
        &["inspect", "u", "--explain"],
        &["value", "u.v@(0,1)"],
        &["keys", "u", "-c", "v"],
        &["advise-threshold", "u"],
    ];
    for arguments in readers {
        let (verb, rest) = arguments.split_first().unwrap();
        let found = run(toastctl().args([verb, "-d", &there.url()]).args(rest));
        let said = "public.u: the table is unlogged, and has no rows on a standby";
        assert!(found.stderr.contains(said), "{arguments:?}: {}", found.stderr);
        assert_eq!(found.code, Some(1), "{arguments:?}");
    }
    assert!(!standby.log().contains("ERROR:"), "{}", standby.log());
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

#[test]
fn a_relation_that_is_not_as_long_as_the_server_says_costs_only_its_table() {
    let database = server::with_pageinspect("check_sizes");
    let create: String = ["of_index", "of_heap", "sound"].map(create).concat();
    // what a server with a damaged answer says: 300 GB
    database.psql(&format!(
        "{create} CREATE OR REPLACE FUNCTION pg_catalog.pg_relation_size(regclass) RETURNS bigint
         LANGUAGE sql STRICT AS $$SELECT CASE
             WHEN $1 IN (SELECT indexrelid FROM pg_index JOIN pg_class AS c ON c.reltoastrelid = indrelid
                         WHERE c.relname = 'of_index') OR $1 = to_regclass('public.of_heap')
             THEN 8192::bigint * 40000000 ELSE pg_relation_size($1, 'main') END$$"
    ));
    let begun = Instant::now();
    let run =
        run(toastctl().args(["check", "-d", &database.url(), "of_index", "of_heap", "sound"]));
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert_eq!(
        run.stderr.matches("has 40000000 blocks, and no block").count(),
        2,
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains("public.sound: sound"), "{}", run.stdout);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_catalog_that_contradicts_itself_is_damage_and_no_verb_writes() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_contradiction");
    let kinds = [
        ("invalid_index", "UPDATE pg_index SET indisvalid = false WHERE indrelid = TOAST"),
        ("no_index", "DELETE FROM pg_index WHERE indrelid = TOAST"),
        ("exchanged_keys", "UPDATE pg_index SET indkey = '2 1' WHERE indrelid = TOAST"),
        ("fewer_columns", "UPDATE pg_class SET relnatts = relnatts - 1 WHERE oid = 'NAME'::regclass"),
        (
            "no_type",
            "UPDATE pg_attribute SET atttypid = 99999 WHERE attrelid = 'NAME'::regclass AND attname = 'n'",
        ),
        (
            "no_missing_value",
            "UPDATE pg_attribute SET attmissingval = NULL WHERE attrelid = 'NAME'::regclass AND attname = 'late'",
        ),
        (
            "others_toast",
            "UPDATE pg_class SET reltoastrelid = (SELECT reltoastrelid FROM pg_class WHERE relname = 'sound')
             WHERE oid = 'NAME'::regclass",
        ),
    ];
    let create = |name: &str| {
        database.psql(&format!(
            "CREATE TABLE {name} (id int, v text, n int); ALTER TABLE {name} ALTER v SET STORAGE external;
             INSERT INTO {name} SELECT i, repeat(md5(i::text), 300), i FROM generate_series(1, 20) AS i;
             ALTER TABLE {name} ADD late text DEFAULT 'late';"
        ));
    };
    database.psql("CREATE EXTENSION pageinspect");
    create("sound");
    for (name, change) in kinds {
        create(name);
        let toast = format!("(SELECT reltoastrelid FROM pg_class WHERE oid = '{name}'::regclass)");
        let change = change.replace("TOAST", &toast).replace("NAME", name);
        database.psql(&format!("SET allow_system_table_mods = on; {change}"));
        let url = database.url();
        let found = run(toastctl().args(["check", "-d", &url, name, "--format", "jsonl"]));
        assert_eq!(found.code, Some(5), "{name}: {}{}", found.stdout, found.stderr);
        let lines = found.lines::<Finding>();
        assert!(lines.iter().any(|line| line.code == "TC009"), "{name}: {}", found.stdout);
        assert!(lines.iter().all(|line| line.sql.is_none()), "{name}: {}", found.stdout);
        let convert: &[&str] = &["retoast", name, "-c", "v", "--toaster", "lz4"];
        for verb in [convert, &["compact", name]] {
            let refused = run(toastctl().args(verb).args(["-d", &url]));
            assert_eq!(refused.code, Some(1), "{verb:?}: {}{}", refused.stdout, refused.stderr);
            let why = "the catalog contradicts itself: expected ";
            assert!(refused.stderr.contains(why), "{verb:?}: {}", refused.stderr);
        }
    }
    assert_eq!(run(toastctl().args(["check", "-d", &database.url(), "sound"])).code, Some(0));
}
