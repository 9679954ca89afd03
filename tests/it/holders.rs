//! Who holds back a verb is named: a session, a prepared transaction, a slot.

use crate::support::command::{run, toastctl};
use crate::support::holder::Holder;
use crate::support::retoast::{LZ4, Session, done, refused, retoast};
use crate::support::server::{Database, Options, Server, with_pageinspect};
use crate::support::verbs::{inspect, relation};

/// A table of which four fifths died after a transaction was prepared.
fn with_forgotten(database: &Database<'_>) {
    database.psql(
        "CREATE EXTENSION IF NOT EXISTS pageinspect;
         CREATE TABLE jobs (id int PRIMARY KEY, payload text, st text)
            WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
         ALTER TABLE jobs ALTER payload SET STORAGE external;
         INSERT INTO jobs SELECT i, (SELECT string_agg(md5((i * 200 + k)::text), '') FROM generate_series(1, 180) k),
            'new' FROM generate_series(1, 1000) i; VACUUM jobs",
    );
    database
        .psql("BEGIN; INSERT INTO jobs VALUES (100000, 'p', 'x'); PREPARE TRANSACTION 'forgotten'");
    database.psql("DELETE FROM jobs WHERE id <= 800; VACUUM jobs");
}

#[test]
fn what_vacuum_cannot_remove_yet_is_said_with_who_keeps_it() {
    let server = Server::start(&Options::default());
    let database = server.create_database("forgotten");
    with_forgotten(&database);
    const NAMED: &str = "prepared transaction 'forgotten' (user postgres, prepared ";
    // a snapshot that was taken meanwhile holds back no more
    let younger = Holder::of(
        &database,
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; DO 'BEGIN PERFORM 1; END'",
    );
    let report = relation(&database, &["jobs"]);
    let dead = report.findings().iter().find(|finding| finding.code.name() == "dead-rows").unwrap();
    assert!(dead.what.contains(&format!("VACUUM cannot remove them before {NAMED}")), "{dead:#?}");
    assert_eq!(dead.command, "", "{dead:#?}");
    database.psql(
        "CREATE TABLE notes (id int PRIMARY KEY, v text); ALTER TABLE notes ALTER v SET STORAGE external;
         INSERT INTO notes SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 100) i",
    );
    for dry_run in [
        &["compact", "jobs", "--dry-run"][..],
        &["notes", "-c", "v", "--toaster", "pglz", "--dry-run"],
    ] {
        let plan = retoast(&database, dry_run).exits(0).table();
        assert!(plan.notes().contains(&format!("would wait for {NAMED}")), "{plan}");
    }
    let waited = retoast(&database, &["compact", "jobs", "--set", "max-wait=700ms"]);
    refused(&waited, 4, &format!("still see old row versions: {NAMED}"));
    drop(younger);
    database.psql("ROLLBACK PREPARED 'forgotten'");
    let report = relation(&database, &["jobs"]);
    assert!(report.findings().iter().all(|finding| !finding.what.contains("before")), "{report:#}");
    // a snapshot that is older than only some of the deletions
    let holder = Holder::of(
        &database,
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; DO 'BEGIN PERFORM 1; END'",
    );
    database.psql("DELETE FROM jobs WHERE id <= 950");
    let report = relation(&database, &["jobs"]);
    let said = format!(
        "VACUUM cannot remove some of them before session {} (user postgres, psql, ",
        holder.pid
    );
    assert!(report.findings().iter().any(|finding| finding.what.contains(&said)), "{report:#}");
    // one that holds all of them for a moment does not make VACUUM useless
    drop(holder);
    database.psql("VACUUM FULL jobs");
    database.psql("INSERT INTO jobs SELECT i, repeat(md5(i::text), 180), 'new' FROM generate_series(1, 900) i");
    let _holder = Holder::of(
        &database,
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; DO 'BEGIN PERFORM 1; END'",
    );
    database.psql("DELETE FROM jobs WHERE id <= 900");
    let report = relation(&database, &["jobs"]);
    let dead = report.findings().iter().find(|finding| finding.code.name() == "dead-rows").unwrap();
    assert!(dead.what.contains("VACUUM cannot remove them before session "), "{dead:#?}");
    assert_eq!(dead.command, "VACUUM \"public\".\"jobs\";", "{dead:#?}");
}

#[test]
fn a_lock_in_the_way_is_named_with_its_session_and_its_mode() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("modes");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) AS i",
    );
    let patient = [&LZ4[..], &["--set", "max-wait=1500ms"]].concat();
    for (lock, mode) in [("SHARE", "a SHARE"), ("ACCESS SHARE", "an ACCESS SHARE")] {
        let holder = Holder::of(&database, &format!("LOCK TABLE t IN {lock} MODE"));
        let stopped = retoast(&database, &patient);
        let named = format!("session {} (user postgres, psql, in a transaction for ", holder.pid);
        if stopped.code == Some(4) {
            assert!(stopped.stderr.contains(&named), "{lock}: {}", stopped.stderr);
            assert!(
                stopped.stderr.contains(&format!("holds {mode} lock on it")),
                "{}",
                stopped.stderr
            );
        } else {
            // SET COMPRESSION does not wait for readers
            assert_eq!((lock, stopped.code), ("ACCESS SHARE", Some(0)), "{}", stopped.stderr);
        }
    }
    // not even what is known of it can be read
    let holder = Holder::of(&database, "LOCK TABLE t");
    for verb in [&LZ4[..], &["compact", "t"], &["reindex", "t"]] {
        let stopped = retoast(&database, &[verb, &["--set", "max-wait=300ms"]].concat());
        refused(&stopped, 4, &format!("(max-wait): session {} (user postgres, psql, ", holder.pid));
    }
    drop(holder);
    database.psql("BEGIN; LOCK TABLE t IN SHARE MODE; PREPARE TRANSACTION 'it''s'");
    let stopped =
        retoast(&database, &["t", "-c", "v", "--toaster", "external", "--set", "max-wait=700ms"]);
    refused(&stopped, 4, "prepared transaction 'it''s' (user postgres, prepared ");
    let rebuilt = retoast(&database, &["reindex", "t", "--indexes=all", "--set", "max-wait=700ms"]);
    assert!(rebuilt.stdout.contains("prepared transaction 'it''s' ("), "{rebuilt:?}");
    database.psql("ROLLBACK PREPARED 'it''s'");
    // rows that another session has locked
    let holder = Holder::of(&database, "UPDATE t SET id = id WHERE id = 100");
    let stopped = retoast(&database, &patient);
    refused(&stopped, 4, &format!("session {} (user postgres, psql, ", holder.pid));
    assert!(stopped.stderr.contains("holds a ROW EXCLUSIVE lock on it"), "{}", stopped.stderr);
    drop(holder);
    done(&retoast(&database, &LZ4));
}

#[test]
fn whoever_has_the_advisory_lock_is_named_and_not_called_a_toastctl() {
    let database = with_pageinspect("advisory");
    let role = database.create_role("LOGIN");
    database.psql("CREATE TABLE t AS SELECT 1 AS id, 'x'::text AS v");
    let lock = "SELECT pg_advisory_lock(1953456499, 't'::regclass::oid::int); SELECT pg_sleep(100)";
    let holder = Session::start(
        &database,
        "night job",
        &format!("SET SESSION AUTHORIZATION {role}; {lock}"),
    );
    let run = retoast(&database, &[&LZ4[..], &["--set", "max-wait=300ms"]].concat());
    refused(&run, 1, ", night job, in a transaction for ");
    assert!(run.stderr.contains(" holds the advisory lock of this table"), "{}", run.stderr);
    assert!(!run.stderr.contains("another retoast"), "{}", run.stderr);
    drop(holder);
}

#[test]
fn errors_that_are_expected_end_no_session() {
    let database = with_pageinspect("exiting");
    database.psql(
        "CREATE TABLE a AS SELECT md5(i::text) AS v FROM generate_series(1, 400) AS i;
         CREATE TABLE b AS SELECT * FROM a",
    );
    database.psql(&format!("ALTER DATABASE {} SET exit_on_error = on", database.name()));
    let holder = Holder::of(&database, "LOCK TABLE b");
    for verb in ["inspect", "check"] {
        let found = run(toastctl()
            .args([verb, "-d", &database.url(), "a", "b", "--format", "json"])
            .env("PGOPTIONS", "-c lock_timeout=200ms"));
        assert_eq!(found.code, Some(1), "{verb}: {}", found.stderr);
        assert!(found.stdout.contains("public.a"), "{verb}: {}", found.stdout);
        assert!(found.stderr.contains(&format!("session {} (", holder.pid)), "{}", found.stderr);
    }
    drop(holder);
    for verb in ["inspect", "check", "value"] {
        let table: &[&str] = if verb == "value" { &["a"] } else { &[] };
        run(toastctl().args([verb, "-d", &database.url()]).args(table)).exits(0);
    }
}

#[test]
fn commands_for_odd_names_can_be_pasted() {
    let database = with_pageinspect("pasted");
    database.psql(
        "CREATE TABLE \"tab\there\" (id int, \"new\nline\" text);
         ALTER TABLE \"tab\there\" ALTER \"new\nline\" SET STORAGE external;
         INSERT INTO \"tab\there\" SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 400) i;
         CREATE TABLE \"dead\nrows\" AS SELECT i AS id, md5(i::text) AS v FROM generate_series(1, 50000) i;
         DELETE FROM \"dead\nrows\" WHERE id % 2 = 0",
    );
    let text = inspect(&database, &[]).exits(0).stdout;
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let vacuum =
        commands.iter().find(|line| line.starts_with("VACUUM")).unwrap_or_else(|| panic!("{text}"));
    database.psql(vacuum);
    let retoast = commands
        .iter()
        .find(|line| line.starts_with("toastctl retoast"))
        .unwrap_or_else(|| panic!("{text}"));
    let program = env!("CARGO_BIN_EXE_toastctl");
    let paste = |line: &str, option: &str| {
        let line = line.replace("toastctl ", &format!("{program} "));
        let pasted = std::process::Command::new("bash")
            .args(["-c", &format!("{line} -d '{}' {option}", database.url())])
            .output()
            .unwrap();
        assert!(pasted.status.success(), "{line}: {}", String::from_utf8_lossy(&pasted.stderr));
        String::from_utf8(pasted.stdout).unwrap()
    };
    paste(retoast, "--dry-run");
}
