//! What one bad file, table, row or page costs `retoast`: itself, and it is named for what it is.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::{Run, run, scrub, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::retoast::{Outcome, Table};
use crate::support::retoast::{contents, refused, retoast};
use crate::support::server::{Database, Options, Server, with_pageinspect};

const LZ4: [&str; 4] = ["-c", "v", "--toaster", "lz4"];

/// Runs `toastctl`, for so long at the most: what is never read to its end gives exit code 124.
fn in_time(arguments: &[&str]) -> Run {
    let mut command = Command::new("timeout");
    command.args(["30", env!("CARGO_BIN_EXE_toastctl")]).args(arguments);
    scrub(&mut command);
    run(&mut command)
}

/// Relation and outcome of each table.
fn outcomes(run: &Run) -> Vec<(String, Outcome)> {
    run.tables().iter().map(|table| (table.relation.clone(), table.outcome)).collect()
}

#[test]
fn files_that_are_none_are_not_read() {
    let database = with_pageinspect("nofile");
    database.psql("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x')");
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let paths = [Path::new("/dev/full"), Path::new("/dev/zero"), &fifo, dir.path()];
    for path in paths.map(|path| path.to_str().unwrap()) {
        let with = |more: &[&str]| {
            in_time(&[&["retoast", "-d", &database.url(), "t", "-c", "v"], more].concat())
        };
        let checkpoint = with(&["--toaster", "lz4", "--checkpoint", path]);
        let why = "it is not a regular file";
        refused(&checkpoint, 2, &format!("could not use checkpoint file \"{path}\": {why}"));
        let since = with(&["--policy", "best", "--since", path]);
        refused(&since, 2, &format!("--since: \"{path}\": {why}"));
    }
    let file = dir.path().join("relation");
    std::fs::write(&file, [0; 8192]).unwrap();
    let offline = |more: &[&str]| {
        let file = ["inspect", "--relation-file", file.to_str().unwrap()];
        in_time(&[&file[..], more].concat())
    };
    refused(&offline(&["--columns", "@/dev/zero"]), 2, "\"/dev/zero\" is longer than 16 MB");
    let xact = dir.path().join("0000");
    std::os::unix::fs::symlink("/dev/zero", &xact).unwrap();
    let with = offline(&["--columns", "v text", "--xact", xact.to_str().unwrap()]);
    refused(&with, 2, "/0000\" is not a regular file");
    let rows = "SELECT true FROM pg_catalog.generate_series(1, 3000000)";
    let query = ["retoast", "-d", &database.url(), "t", "-c", "v", "--toaster", "lz4"];
    let throttled = in_time(&[&query[..], &["--throttle-query", rows]].concat());
    refused(&throttled, 1, "more than 1000 rows, where one is enough");
}

/// 1,000 rows of 2 kB, of which the last tenth is left behind much free space.
const WITH_ROOM: &str =
    "INSERT INTO %t (v) SELECT repeat('x', 1000) || i FROM generate_series(1, 1000) i;
    DELETE FROM %t WHERE ctid < '(120,0)'; VACUUM (TRUNCATE false) %t;";

#[test]
fn a_table_that_cannot_be_worked_on_costs_only_itself() {
    // what was deleted is to be removed, whoever else is at work
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("unsuitable");
    database.psql(&format!(
        "CREATE TABLE a (v text); ALTER TABLE a ALTER v SET STORAGE plain; {}
         CREATE TABLE b (); INSERT INTO b SELECT FROM generate_series(1, 1000);
         CREATE TABLE c (id int GENERATED ALWAYS AS IDENTITY); INSERT INTO c SELECT FROM generate_series(1, 1000);
         CREATE TABLE empty ();
         CREATE TABLE z (v text); ALTER TABLE z ALTER v SET STORAGE plain; {}",
        WITH_ROOM.replace("%t", "a"),
        WITH_ROOM.replace("%t", "z"),
    ));
    let compacted = retoast(&database, &["compact", "public.*", "--files", "heap"]);
    assert_eq!(compacted.code, Some(1), "{}", compacted.stderr);
    let complete = |name: &str| (format!("public.{name}"), Outcome::Complete);
    let done: Vec<_> =
        outcomes(&compacted).into_iter().filter(|one| one.1 == Outcome::Complete).collect();
    assert_eq!(done, ["a", "empty", "z"].map(complete), "{}", compacted.stderr);
    for name in ["public.b: ", "public.c: "] {
        let told = |line: &&str| {
            line.contains(name) && line.contains("an UPDATE cannot set any of its columns")
        };
        assert_eq!(compacted.stderr.lines().filter(told).count(), 1, "{}", compacted.stderr);
    }
    let size: u64 = database.psql("SELECT pg_relation_size('z')").parse().unwrap();
    assert!(size < 50 * 8192, "{size}");

    // before anything is touched too
    database.psql(
        "CREATE TABLE bare (v text COMPRESSION pglz); INSERT INTO bare SELECT repeat('x', 5000);
         CREATE TABLE last (v text COMPRESSION pglz); INSERT INTO last SELECT repeat('x', 5000);
         CREATE PUBLICATION p FOR TABLE bare",
    );
    let swept = retoast(&database, &[&["bare", "last"], &LZ4[..]].concat());
    assert_eq!(outcomes(&swept), [complete("last")]);
    refused(&swept, 1, "public.bare: its updates are published");

    let mut other = database
        .psql_command()
        .args([
            "-c",
            "CREATE TEMP TABLE tmp AS SELECT repeat('x', 5000) AS v",
            "-c",
            "SELECT pg_sleep(600)",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let schema = "SELECT nspname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE relname = 'tmp'";
    let began = Instant::now();
    let schema = loop {
        match database.psql(schema) {
            found if !found.is_empty() => break found,
            _ => assert!(began.elapsed() < Duration::from_secs(40)),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let named = format!("{schema}.tmp");
    let stopped = retoast(&database, &[&[&named, "last"], &LZ4[..]].concat());
    let matched = retoast(&database, &[&["*.tmp", "last"], &LZ4[..]].concat());
    other.kill().unwrap();
    other.wait().unwrap();
    // as with a view that is named, nothing is begun
    assert!(stopped.stdout.contains("\"tables\": []"), "{}", stopped.stdout);
    refused(&stopped, 1, &format!("\"{named}\" is a temporary table of another session"));
    assert_eq!(outcomes(&matched), [complete("last")]);
    refused(&matched, 0, &format!("left out: {named} is a temporary table"));
}

#[test]
fn a_compaction_says_why_rows_were_not_moved() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("reasons");
    database.psql(&format!(
        "CREATE TABLE t (v text, n int DEFAULT 1); ALTER TABLE t ALTER v SET STORAGE plain; {}
         ALTER TABLE t ADD CONSTRAINT never CHECK (n < 0) NOT VALID",
        WITH_ROOM.replace("%t", "t")
    ));
    let json = retoast(&database, &["compact", "t", "--files", "heap"]);
    assert_eq!(json.code, Some(1), "{}", json.stderr);
    let table = json.table();
    let file = &table.compaction[0];
    assert!(file.rows_refused > 0 && file.rows_left == 0, "{table}");
    assert_eq!(table.skipped[0].sqlstate.as_deref(), Some("23514"));
    let for_people =
        || run(toastctl().args(["compact", "-d", &database.url(), "t", "--files", "heap"]));
    let text = for_people();
    assert!(text.stdout.contains("that the server refuses to move"), "{}", text.stdout);
    assert!(text.stdout.contains("violates check constraint \"never\""), "{}", text.stdout);
    assert!(!text.stdout.contains("the last round returned"), "{}", text.stdout);

    // what a full disk gives
    database.psql(
        "ALTER TABLE t DROP CONSTRAINT never;
         CREATE FUNCTION full(t text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
            IF current_query() LIKE '%UPDATE%' THEN
                RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
            END IF; RETURN 1; END$$;
         CREATE INDEX ON t (full(v))",
    );
    let text = for_people();
    assert_eq!(text.code, Some(1), "{}", text.stderr);
    assert!(
        text.stderr.contains("could not extend file: No space left on device"),
        "{}",
        text.stderr
    );
    assert!(!text.stdout.contains("locked"), "{}", text.stdout);
    assert!(text.stdout.contains("at its end not moved"), "{}", text.stdout);
}

/// Compressed by pglz, 3 kB out of line each, and a half by lz4 before.
const VALUES: &str = "CREATE TABLE %t (id int PRIMARY KEY, v text COMPRESSION lz4);
    INSERT INTO %t SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 90) k) FROM generate_series(1, 500) i;
    ALTER TABLE %t ALTER v SET COMPRESSION pglz;
    INSERT INTO %t SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 90) k) FROM generate_series(501, 2500) i;
    VACUUM ANALYZE %t;";

/// The rows that are still compressed by pglz, of those in these parts of the table.
fn left<const N: usize>(database: &Database<'_>, table: &str, except: [&str; N]) -> u64 {
    let counts = database.psql(&except.map(|part| {
        format!("SELECT count(*) FROM {table} WHERE {part} AND pg_column_compression(v) = 'pglz'")
    }).join(";"));
    counts.lines().map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_damaged_page_loses_nothing_but_itself() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("damaged");
    let tables = ["pages", "functions", "policy", "toast", "value"];
    for table in tables {
        database.psql(&VALUES.replace("%t", table));
    }
    // their pages are looked at by VACUUM
    database.psql("DELETE FROM toast WHERE id < 20; CHECKPOINT");
    let path = |of: &str| database.psql(&format!("SELECT pg_relation_filepath({of})"));
    let toast =
        |table: &str| format!("(SELECT reltoastrelid FROM pg_class WHERE relname = '{table}')");
    for table in &tables[..3] {
        server.damage(&path(&format!("'{table}'")), [7]);
    }
    // the first values are stored as requested, those in the middle are not
    server.damage(&path(&toast("toast")), [3]);
    server.damage(&path(&toast("value")), [600]);
    let sweep = |table: &str, more: &[&str]| {
        let goal = ["--set", "max-bloat=2%", "--verify", "off"];
        let run = retoast(&database, &[&["-c", "v"], &goal[..], &[table], more].concat());
        assert_eq!(run.code, Some(1), "{table}: {}", run.stderr);
        let table = run.table();
        assert_eq!(table.outcome, Outcome::Incomplete, "{table}");
        table
    };
    let says = |table: &Printed<Table>, what: &str| {
        let reasons = table.skipped.iter().map(|row| &row.reason);
        assert!(reasons.into_iter().any(|reason| reason.contains(what)), "{what}: {table}");
    };
    let in_reach = ["ctid < '(7,0)'", "ctid >= '(8,0)'"];
    for (table, more) in [
        ("pages", &["--toaster", "lz4"][..]),
        ("functions", &["--toaster", "lz4", "--set", "source=functions"]),
        ("policy", &["--policy", "best", "--method", "lz4"]),
    ] {
        let swept = sweep(table, more);
        assert_eq!(left(&database, table, in_reach), 0, "{swept}");
        assert_eq!(swept.rows_left, Some(0), "{swept}");
        assert!(swept.scans < 7, "{swept}");
        says(&swept, "block 7: invalid page in block 7 of relation");
        says(&swept, "VACUUM of the table is not possible: invalid page in block 7");
    }
    let swept = sweep("toast", &["--toaster", "lz4"]);
    assert_eq!((swept.rows_stored, swept.rows_refused), (2000, 0), "{swept}");
    assert_eq!(left(&database, "toast", ["true"]), 0);
    says(&swept, "VACUUM of its TOAST relation is not possible: invalid page in block 3");
    let swept = sweep("value", &["--toaster", "lz4"]);
    let refused = swept.rows_refused;
    assert!((1..=8).contains(&refused), "{swept}");
    assert_eq!(left(&database, "value", ["true"]), refused);
    says(&swept, "invalid page in block 600 of relation");
}

#[test]
fn what_sets_a_table_back_can_be_pasted_whatever_its_names_are() {
    let database = with_pageinspect("odd_names");
    let named = "U&\"o\\000A\\\\d\".U&\"T\\0009\"";
    database.psql(&format!(
        "CREATE SCHEMA U&\"o\\000A\\\\d\"; CREATE TABLE {named} (id int, U&\"v\\000A  v\" text);
         INSERT INTO {named} SELECT i, repeat('x', 5000) FROM generate_series(1, 50) i"
    ));
    let mut command = toastctl();
    command.args([
        "retoast",
        "-d",
        &database.url(),
        "*.\"T\t\"",
        "-c",
        "v\n  v",
        "--toaster",
        "external",
    ]);
    let swept = run(command.env("COLUMNS", "60")).ok();
    let set = "SELECT attstorage FROM pg_attribute WHERE attname LIKE 'v_  v'";
    assert_eq!(database.psql(set), "e");
    let from = swept.find("to restore: ").unwrap() + "to restore: ".len();
    let lines = swept[from..].find("\n  and the values: ").unwrap();
    let statement = &swept[from..from + lines];
    assert!(!statement.contains('\t') && statement.contains("U&\"v\\000A  v\""), "{statement}");
    database.psql(statement);
    assert_eq!(database.psql(set), "x");
    assert_eq!(contents(&database, named).split('|').next(), Some("50"));
}

#[test]
fn a_name_that_is_none_has_the_same_exit_code_everywhere() {
    let database = with_pageinspect("no_name");
    database.psql("CREATE TABLE t (id int, v text)");
    let verbs: [(&str, &[&str]); 3] =
        [("inspect", &[]), ("advise-threshold", &[]), ("retoast", &LZ4)];
    for (verb, more) in verbs {
        for (name, code, message) in [
            (".t", 1, "relation \".t\" does not exist"),
            ("t.", 1, "relation \"t.\" does not exist"),
            ("a.b.c.d", 2, "improper qualified name (too many dotted names): a.b.c.d"),
            ("\"t", 2, "unterminated quoted string: \"t"),
        ] {
            let run = run(toastctl().args([verb, "-d", &database.url(), name]).args(more));
            refused(&run, code, message);
        }
    }
}
