//! What a run has finished is printed, whatever becomes of the rest: a table that is locked or has nothing to
//! advise on, a Ctrl-C, a connection that is lost.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::command::{Run, Signal, run, signal_process, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::overview::{LastLine, Overview};
use crate::support::reports::{Printed, advise, overview};
use crate::support::server::{self, Database};

/// Three tables: `a`, bigger than `b`, and `c`.
fn tables(name: &str) -> Database<'static> {
    let database = server::shared().create_database(name);
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE a AS SELECT i, repeat(md5(i::text), 20) AS v FROM generate_series(1, 400) AS i;
         CREATE TABLE b AS SELECT i, md5(i::text) AS v FROM generate_series(1, 300) AS i;
         CREATE TABLE c AS SELECT * FROM b; CREATE TABLE narrow (id int)",
    );
    database
}

fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn waits_for_a_lock(database: &Database<'_>) -> bool {
    let sql = "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
               WHERE NOT l.granted AND d.datname = current_database()";
    database.psql(sql) != "0"
}

/// Starts a verb whose last table is locked; when it waits for that lock, `then` is done with its process ID.
fn in_the_middle(database: &Database<'_>, arguments: &[&str], then: impl FnOnce(u32)) -> Run {
    let mut command: Command = toastctl();
    let [verb, rest @ ..] = arguments else { panic!("no verb") };
    command.args([*verb, "-d", &database.url()]).args(rest).env("PGOPTIONS", "-c lock_timeout=0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // a report is longer than a pipe has room for
    let mut stdout = child.stdout.take().unwrap();
    let printed = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    wait_until("it never waited for the lock", || waits_for_a_lock(database));
    then(child.id());
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        stdout: printed.join().unwrap().unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn interrupt(pid: u32) {
    signal_process(pid, Signal::INT);
}

fn terminate(database: &Database<'_>) {
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name LIKE 'toastctl%' AND datname = current_database()",
    );
}

/// The relations of a JSON document of `inspect`.
fn relations(run: &Run) -> Vec<String> {
    let report = run.report::<Overview>();
    assert_eq!(report.schema, "toastctl.inspect/2");
    assert!(report.server.as_ref().unwrap().version_num >= 140_000);
    // as they are done
    let relations = report.relations.iter();
    let mut names: Vec<String> =
        relations.map(|relation| relation.read.name.relation.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_locked_table_is_named_with_who_holds_it_and_the_others_are_reported() {
    let database = tables("kept_locked");
    let locker = Holder::of(&database, "LOCK TABLE b");
    for format in ["json", "table", "csv"] {
        let found = run(toastctl()
            .args(["inspect", "-d", &database.url(), "--format", format, "a", "b", "c"])
            .env("PGOPTIONS", "-c lock_timeout=200ms"));
        assert_eq!(found.code, Some(1), "{}", found.stderr);
        match format {
            "json" => assert_eq!(relations(&found), ["public.a", "public.c"]),
            "table" => assert!(
                found.stdout.contains("\n a ") && found.stdout.contains("\n c "),
                "{}",
                found.stdout
            ),
            _ => assert!(
                found.stdout.contains("public.a") && found.stdout.contains("public.c"),
                "{}",
                found.stdout
            ),
        }
        let expected = format!(
            "toastctl: error: public.b: canceling statement due to lock timeout\n\
             DETAIL:  Blocked: session {} (user postgres, psql, in a transaction for ",
            locker.pid
        );
        assert!(found.stderr.starts_with(&expected), "{}", found.stderr);
        let rest = "s) holds an ACCESS EXCLUSIVE lock on it.\n\
             HINT:  Try again once it has ended, or wait longer: PGOPTIONS='-c lock_timeout=10min'.\n";
        assert!(found.stderr.ends_with(rest), "{}", found.stderr);
    }
    // the hint helps
    let found =
        in_the_middle(&database, &["inspect", "--format", "json", "a", "b"], |_| drop(locker));
    assert_eq!(relations(&found.exits(0)), ["public.a", "public.b"]);
}

#[test]
fn a_locked_table_that_is_advised_on_is_named_and_the_others_are_reported() {
    let database = tables("kept_advise_locked");
    let locker = Holder::of(&database, "LOCK TABLE b");
    let found = run(toastctl()
        .args(["advise-threshold", "-d", &database.url(), "--format", "jsonl", "b", "a"])
        .env("PGOPTIONS", "-c lock_timeout=200ms"));
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    assert!(found.stdout.contains("\"relation\":\"public.a\""), "{}", found.stdout);
    let named = format!(
        "toastctl: error: public.b: canceling statement due to lock timeout\nDETAIL:  Blocked: session {} ",
        locker.pid
    );
    assert!(found.stderr.starts_with(&named), "{}", found.stderr);
}

#[test]
fn a_table_without_toastable_columns_costs_the_others_nothing() {
    let database = tables("kept_narrow");
    let found = run(toastctl().args([
        "advise-threshold",
        "-d",
        &database.url(),
        "--format",
        "json",
        "a",
        "narrow",
    ]));
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    let report = found.report::<advise::Report>();
    assert_eq!(report.relation, "public.a");
    assert_eq!(
        found.stderr,
        "toastctl: error: relation \"public.narrow\" has no column that can be toasted\n"
    );
}

#[test]
fn only_tables_with_the_column_are_advised_on() {
    let database = tables("kept_columns");
    database.psql(
        "CREATE TABLE other AS SELECT i, md5(i::text) AS w FROM generate_series(1, 300) AS i;
         CREATE TABLE parted (v text, n int) PARTITION BY RANGE (n);
         CREATE TABLE part_1 PARTITION OF parted FOR VALUES FROM (1) TO (9);
         INSERT INTO part_1 VALUES ('x', 1)",
    );
    let advise = |arguments: &[&str]| {
        let mut command = toastctl();
        command.args(["advise-threshold", "-d", &database.url(), "--format", "jsonl"]);
        let found = run(command.args(arguments));
        let lines = found.lines::<advise::Report>();
        let advised: Vec<String> =
            lines.iter().map(|line| format!("{}.{}", line.name, line.column)).collect();
        (found.code, advised.join(" "), found.stderr)
    };
    // a pattern means those tables that have the column
    let (code, advised, told) = advise(&["-c", "v", "public.*"]);
    assert_eq!((code, advised.as_str()), (Some(0), "a.v b.v c.v part_1.v"), "{told}");
    assert_eq!(
        told,
        "toastctl: notice: left out: column \"v\" of relation \"public.narrow\" does not exist\n\
         toastctl: notice: left out: column \"v\" of relation \"public.other\" does not exist\n"
    );
    let (code, advised, told) = advise(&["-c", "v", "-c", "w", "public.[c-o]*"]);
    assert_eq!((code, advised.as_str()), (Some(0), "c.v other.w"), "{told}");
    assert_eq!(advise(&["public.n*"]).0, Some(1));
    let (code, advised, told) = advise(&["-c", "none", "public.*"]);
    assert_eq!((code, advised.as_str()), (Some(1), ""));
    assert!(told.ends_with("error: no table that is named has one of these columns\n"), "{told}");
    // whoever names a table means it, and all its partitions
    let (code, advised, told) = advise(&["-c", "v", "a", "other", "b", "parted"]);
    assert_eq!((code, advised.as_str()), (Some(1), "a.v b.v parted.v"));
    assert_eq!(
        told,
        "toastctl: error: column \"v\" of relation \"public.other\" does not exist\n\
         HINT:  Columns that can be toasted are \"w\".\n"
    );
}

#[test]
fn a_table_that_is_dropped_meanwhile_is_told_and_the_others_are_advised_on() {
    let database = tables("kept_dropped");
    let locker = Holder::of(&database, "LOCK TABLE a");
    let arguments = ["advise-threshold", "--format", "jsonl", "a", "b", "c"];
    let found = in_the_middle(&database, &arguments, |_| {
        database.psql("DROP TABLE b");
        drop(locker);
    });
    let lines = found.lines::<advise::Report>();
    let names: Vec<&str> = lines.iter().map(|line| line.relation.as_str()).collect();
    assert_eq!((found.code, names), (Some(1), vec!["public.a", "public.c"]));
    assert_eq!(found.stderr, "toastctl: error: public.b was dropped during the run\n");
}

#[test]
fn a_table_that_is_dropped_during_a_check_is_told() {
    let database = tables("kept_checked");
    for (names, code, word) in [(&["a", "c"][..], 1, "error"), (&["public.?"], 0, "notice")] {
        database.psql("CREATE TABLE IF NOT EXISTS a (v text)");
        let dropper = Holder::of(&database, "DROP TABLE a");
        let found = in_the_middle(&database, &[&["check"], names].concat(), |_| dropper.commit());
        assert_eq!(found.code, Some(code), "{}{}", found.stdout, found.stderr);
        let told = format!("toastctl: {word}: public.a was dropped during the run\n");
        assert_eq!(found.stderr, told);
        assert!(found.stdout.contains("sound"), "{}", found.stdout);
    }
}

#[test]
fn an_advised_table_is_printed_as_soon_as_it_is_done() {
    let database = tables("kept_advised");
    let locker = Holder::of(&database, "LOCK TABLE b");
    let mut child = toastctl()
        .args(["advise-threshold", "-d", &database.url(), "--format", "jsonl", "a", "b"])
        .env("PGOPTIONS", "-c lock_timeout=0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // while `b` is locked
    let first = Printed::<advise::Report>::read(&lines.next().unwrap().unwrap());
    assert_eq!(first.relation, "public.a");
    drop(locker);
    let second = Printed::<advise::Report>::read(&lines.next().unwrap().unwrap());
    assert_eq!(second.relation, "public.b");
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interrupt_keeps_what_is_finished() {
    let database = tables("kept_interrupt");
    let locker = Holder::of(&database, "LOCK TABLE b");
    for format in ["json", "jsonl"] {
        // one connection, so that `a` is done before `b` is waited for
        let arguments = ["inspect", "--format", format, "--jobs", "1", "a", "b"];
        let found = in_the_middle(&database, &arguments, interrupt);
        assert_eq!((found.code, found.stderr.as_str()), (Some(4), "toastctl: error: stopped\n"));
        match format {
            "json" => assert_eq!(relations(&found), ["public.a"]),
            _ => {
                let [first, last] = &found.lines::<Value>()[..] else { panic!("{found:?}") };
                let first = Printed::<overview::RelationLine>::read(&first.to_string());
                assert_eq!(first.read.name.relation, "public.a");
                // what is known in the end is ranked
                let last = Printed::<LastLine>::read(&last.to_string());
                assert_eq!(last.totals.read, 1);
            }
        }
        // the server does not go on waiting for nobody
        wait_until("the statement goes on", || !waits_for_a_lock(&database));
    }
    let found = in_the_middle(&database, &["inspect", "--jobs", "1", "a", "b"], interrupt);
    let verdict = "Findings: not known in 1 table that could not be read, or only in part.";
    assert!(found.stdout.contains(verdict), "{found:?}");
    assert!(found.stdout.contains("\n b (not read)"), "{}", found.stdout);
    let found = in_the_middle(&database, &["check", "--jobs", "1", "a", "b"], interrupt);
    assert_eq!(found.code, Some(4));
    let first = found.stdout.lines().next().unwrap().trim();
    assert_eq!(first, "not checked: 1 of 2 tables", "{found:?}");
    let arguments = ["advise-threshold", "--format", "json", "a", "b"];
    let found = in_the_middle(&database, &arguments, interrupt);
    assert_eq!((found.code, found.stderr.as_str()), (Some(4), "toastctl: error: stopped\n"));
    let report = found.report::<advise::Report>();
    assert_eq!(report.relation, "public.a");
    drop(locker);
}

#[test]
fn a_lost_connection_keeps_what_is_finished() {
    let database = tables("kept_lost");
    let locker = Holder::of(&database, "LOCK TABLE b");
    for arguments in [
        &["inspect", "--format", "json", "--jobs", "1", "a", "b"][..],
        &["advise-threshold", "--format", "json", "a", "b"],
    ] {
        let found = in_the_middle(&database, arguments, |_| terminate(&database));
        assert_eq!(found.code, Some(3), "{}", found.stderr);
        assert!(
            found.stderr.starts_with("toastctl: error: public.b: FATAL:  terminating connection"),
            "{}",
            found.stderr
        );
        if arguments[0] == "inspect" {
            assert_eq!(relations(&found), ["public.a"]);
        } else {
            let report = found.report::<advise::Report>();
            assert_eq!(report.relation, "public.a");
        }
    }
    drop(locker);
}

#[test]
fn a_relation_is_printed_as_soon_as_it_is_read() {
    let database = tables("kept_streamed");
    let locker = Holder::of(&database, "LOCK TABLE b");
    let mut child = toastctl()
        .args(["inspect", "-d", &database.url(), "--format", "jsonl", "b", "a"])
        .env("PGOPTIONS", "-c lock_timeout=0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let relation =
        |line: String| Printed::<overview::RelationLine>::read(&line).read.name.relation.clone();
    // while `b` is locked
    assert_eq!(relation(lines.next().unwrap().unwrap()), "public.a");
    drop(locker);
    assert_eq!(relation(lines.next().unwrap().unwrap()), "public.b");
    assert!(child.wait().unwrap().success());
}
