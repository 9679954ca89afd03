//! `retoast` waits for others: each reason is provoked on a real server, said, and ends.

use std::time::{Duration, Instant};

use serde_json::Value;
use toastctl::retoast::pace::metrics::THROTTLE_QUERIES;
use toastctl::retoast::pace::rules::Cause;

use crate::support::command::{Run, Signal, run, toastctl};
use crate::support::retoast::{
    LZ4, PATIENCE, Running, Session, brake, command, contents, done, refused, release, retoast,
    retoast_as,
};
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::inspect;

/// 3,000 rows, each with 3 kB out of line, compressed by pglz.
const TABLE: &str = "
    CREATE EXTENSION IF NOT EXISTS pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 90) k) FROM generate_series(1, 3000) i;
    VACUUM ANALYZE t;";

/// Makes the table anew.
fn fresh(database: &Database<'_>) {
    database.psql(&format!("DROP TABLE IF EXISTS t; {TABLE}"));
}

#[test]
fn nice_sleeps_in_proportion() {
    let server = Server::start(&Options::default());
    let database = server.create_database("nice");
    fresh(&database);
    let before = contents(&database, "t");
    let table = done(&retoast(&database, &[&LZ4[..], &["--set", "nice=3"]].concat()));
    assert_eq!(contents(&database, "t"), before);
    let nice = &table.pauses[0];
    assert_eq!(nice.reason, Cause::Nice);
    let (slept, all) = (nice.ms as f64, table.elapsed_ms as f64);
    // what is not slept is batches, a third of the sleep, and the scans
    assert!(slept <= all && slept > 0.3 * all, "{table}");
}

#[test]
fn wal_that_others_write_while_a_run_waits_is_not_counted() {
    let server = Server::start(&Options::default());
    let database = server.create_database("wal");
    fresh(&database);
    let pulled = brake(&database);
    let running = Running::sweep(&database, &pulled);
    running.says("(--throttle-query)");
    let noise = "CREATE TABLE others AS SELECT i, repeat(md5(i::text), 40) AS v FROM generate_series(1, 60000) AS i";
    let before = database.psql("SELECT pg_current_wal_insert_lsn()");
    database.psql(noise);
    let of_others = format!("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}')");
    let of_others: u64 = database.psql(&of_others).parse().unwrap();
    release(&database);
    let table = running.ends_after("throttle_query");
    let size: u64 = database.psql("SELECT pg_total_relation_size('t')").parse().unwrap();
    assert!(of_others > 70 << 20, "{of_others}");
    assert!(
        (size / 2..of_others / 2).contains(&table.wal_bytes.unwrap()),
        "{size}, {of_others}: {table}"
    );
}

/// The query of the manual for this.
fn manuals(what: &str) -> String {
    let items = THROTTLE_QUERIES;
    (*items.iter().find(|(name, _)| *name == what).unwrap().1).to_owned()
}

#[test]
fn the_queries_of_the_manual_are_true_when_they_should_be() {
    let server = Server::start(&Options::default());
    let database = server.create_database("queries");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pause");
    let with = |what: &str, from: &str, to: &str| {
        let query = manuals(what);
        assert!(query.contains(from), "{query}");
        query.replace(from, to)
    };
    let is = |query: &str| match database.psql(query).as_str() {
        "t" => true,
        "f" | "" => false,
        other => panic!("{query}: {other}"),
    };
    database.psql("CREATE TABLE pause (); CREATE TABLE t (v text)");
    let names = THROTTLE_QUERIES.iter().map(|(name, _)| *name);
    for query in names.filter(|name| *name != "5:00 to 22:00").map(manuals) {
        assert!(!is(&query), "{query}");
        let run =
            retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--throttle-query", &query]);
        assert_eq!(done(&run).pauses, [], "{query}");
    }
    let sessions = with("over 10 sessions", "> 10", "> 0");
    // the asking one itself is active
    let sessions = format!("SET application_name = 'toastctl'; {sessions}");
    assert!(!database.psql(&sessions).ends_with('t'));
    let snapshots = with("old snapshots", "> 1000000", "> 2");
    let held = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(100)";
    let holder = Session::start(&database, "holder", held);
    for _ in 0..4 {
        database.psql("SELECT pg_current_xact_id()");
    }
    assert!(is(&snapshots) && database.psql(&sessions).ends_with('t'));
    drop(holder);
    database.psql("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'held'");
    for _ in 0..4 {
        database.psql("SELECT pg_current_xact_id()");
    }
    assert!(is(&snapshots));
    database.psql("ROLLBACK PREPARED 'held'");
    assert!(!is(&snapshots));
    let wal = with("over 20 MB WAL/s", "20e6", "1e4");
    database.psql("CHECKPOINT");
    assert!(!is(&wal));
    database.psql("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 3000)");
    assert!(is(&wal));
    let hours = |from: i32, until: i32| {
        let at = |hours: i32| {
            database.psql(&format!("SELECT to_char(localtime + '{hours} hours', 'HH24:MI')"))
        };
        let query = with("5:00 to 22:00", "'05:00'", &format!("'{}'", at(from)));
        is(&query.replace("'22:00'", &format!("'{}'", at(until))))
    };
    // at noon, since what the manual's query names does not go over midnight
    database.psql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(),
             12 - extract(hour FROM now() AT TIME ZONE 'UTC')::int); END $$",
    );
    assert!(hours(-1, 1) && !hours(1, 2));
    let paused = with("a file exists", "/tmp/pause", file.to_str().unwrap());
    assert!(!is(&paused));
    std::fs::write(&file, "").unwrap();
    assert!(is(&paused));
    let rows = manuals("a table has rows");
    database.psql("INSERT INTO pause DEFAULT VALUES");
    assert!(is(&rows));
    database.psql("DELETE FROM pause");
    assert!(!is(&rows));
}

#[test]
fn others_at_work_old_snapshots_and_the_users_query_are_waited_for() {
    let server = Server::start(&Options::default());
    let database = server.create_database("others");
    fresh(&database);
    // its own sessions are no others, whatever they are called
    let others = |run: &Run| run.stderr.contains("other sessions active: ");
    let alone = [&LZ4[..], &["--jobs", "3", "-v"]].concat();
    let alone = run(command(&database, &alone).env("PGAPPNAME", "nightly"));
    assert_eq!(done(&alone).pauses, []);
    assert!(!others(&alone), "{}", alone.stderr);
    fresh(&database);
    let held = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(100)";
    let holder = Session::start(&database, "holder", held);
    let more = ["--set", "max-bloat=1%"];
    let running = Running::sweep(&database, &["--set", "max-bloat=1%", "-v"]);
    running.says("other sessions active: 1");
    running.says("waiting: session ");
    running.says("holder, in a transaction for");
    running.says(" keeps vacuum from removing ");
    drop(holder);
    assert!(running.done_after("xmin") >= 100);

    fresh(&database);
    database.psql("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'held ''it'");
    let running = Running::sweep(&database, &more);
    running.says("waiting: prepared transaction 'held ''it' (user postgres, prepared ");
    database.psql("ROLLBACK PREPARED 'held ''it'");
    running.done_after("xmin");

    fresh(&database);
    let query = brake(&database);
    let running = Running::sweep(&database, &query);
    running.says("waiting: 'SELECT pulled FROM brake' is true (--throttle-query)");
    let set =
        "SELECT attcompression FROM pg_attribute WHERE attname = 'v' AND attrelid = 't'::regclass";
    assert_eq!(database.psql(set), "l");
    database.psql("UPDATE brake SET pulled = NULL");
    running.done_after("throttle_query");
    database.psql("UPDATE brake SET pulled = true");
    let running = Running::sweep(&database, &query);
    running.says("is true");
    database.psql("DROP TABLE brake");
    refused(&running.end(), 1, "throttle query 'SELECT pulled FROM brake': ");
    let wrong =
        |query: &str| retoast(&database, &[&LZ4[..], &["--throttle-query", query]].concat());
    refused(&wrong("SELECT nothing"), 1, "column \"nothing\" does not exist");
    refused(&wrong("SELECT 'much'"), 1, "it returned \"much\" instead of true or false");
    refused(&wrong("CREATE TABLE trace ()"), 1, "read-only transaction");
}

#[test]
fn a_replica_that_lags_is_waited_for_and_a_standby_is_refused() {
    let server = Server::start(&Options::default());
    let database = server.create_database("lag");
    fresh(&database);
    let standby = server.start_standby();
    let there = standby.database(database.name());
    refused(&retoast(&there, &LZ4), 1, "the server is a standby");
    for limit in ["256kB", "1s"] {
        fresh(&database);
        let caught_up =
            "SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication";
        database.until(caught_up, |answer| answer == "t");
        there.psql("SELECT pg_wal_replay_pause()");
        let running = Running::sweep(
            &database,
            &["--set", &format!("max-replica-lag={limit}"), "--set", "nice=5"],
        );
        running.says("waiting: replica \"walreceiver\" (local socket) is ");
        running.says(" behind (setting max-replica-lag)");
        // it does wait: nothing more is written
        let stored = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
        let before = database.psql(stored);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(database.psql(stored), before);
        there.psql("SELECT pg_wal_replay_resume()");
        assert!(running.done_after("replica_lag") >= 300, "{limit}");
    }
    fresh(&database);
    there.psql("SELECT pg_wal_replay_pause()");
    let table = done(&retoast(&database, &[&LZ4[..], &["--set", "max-replica-lag=off"]].concat()));
    assert_eq!(table.pauses, []);
    there.psql("SELECT pg_wal_replay_resume()");
}

#[test]
fn a_query_and_a_signal_pause_it_and_a_stop_is_heard_meanwhile() {
    let server = Server::start(&Options::default());
    let database = server.create_database("pause");
    fresh(&database);
    let more = [&brake(&database)[..], &["--set", "progress=json"]].concat();
    let running = Running::sweep(&database, &more);
    running.says("is true (--throttle-query)");
    running.says("\"reason\":\"throttle_query\"");
    running.signal(Signal::USR1);
    running.says("paused by SIGUSR1");
    let shown = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'toastctl retoast public.t paused'";
    database.until(shown, |answer| answer == "1");
    release(&database);
    running.signal(Signal::USR2);
    let run = running.end();
    let table = done(&run);
    let reasons: Vec<Cause> = table.pauses.iter().map(|pause| pause.reason).collect();
    assert_eq!(reasons, [Cause::Signal, Cause::ThrottleQuery]);
    for line in run.stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(line["schema"], "toastctl.retoast-progress/1");
    }
    let silent = retoast(&database, &[&LZ4[..], &["--set", "progress=none"]].concat());
    assert_eq!(silent.stderr, "");

    fresh(&database);
    let began = Instant::now();
    let night = "SELECT localtime BETWEEN '00:00' AND '24:00'";
    let running = Running::sweep(&database, &["--throttle-query", night]);
    running.says("is true (--throttle-query)");
    running.signal(Signal::INT);
    let stopped = running.end();
    refused(&stopped, 4, "stopped by a signal; to continue: ");
    assert!(stopped.stderr.contains("retoast") && stopped.stderr.contains("--throttle-query"));
    assert!(began.elapsed() < PATIENCE);
    let mut timed = toastctl();
    timed.args(["retoast", "-d", &database.url()]).args(LZ4);
    let timed = crate::support::command::run(timed.args([
        "--throttle-query",
        night,
        "--max-time",
        "500ms",
    ]));
    refused(&timed, 4, "stopped by --max-time; to continue: ");
    assert!(
        timed.stdout.starts_with("public.t, v to lz4: stopped by --max-time"),
        "{}",
        timed.stdout
    );
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'";
    assert_eq!(database.psql(left), "3000");
    done(&retoast(&database, &LZ4));
    assert_eq!(database.psql(left), "0");
}

#[test]
fn space_is_looked_at_before_the_start_and_while_it_runs() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let database = server.create_database("space");
    fresh(&database);
    let with = |more: &[&str]| retoast(&database, &[&LZ4[..], more].concat());
    let set =
        "SELECT attcompression FROM pg_attribute WHERE attname = 'v' AND attrelid = 't'::regclass";
    let short = with(&["--set", "min-free-space=900000TB"]);
    refused(&short, 1, "public.t: not enough space: ");
    assert!(short.stderr.contains(&format!("free in \"{}", server.data_dir().display())));
    assert_eq!(database.psql(set), "p");
    // the file system of a server that is reached by TCP may be another machine's
    let mut remote = toastctl();
    let port = server.port().to_string();
    remote.args(["retoast", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
    remote.args(["-d", database.name()]).args(LZ4).args(["--set", "min-free-space=1MB"]);
    refused(&run(&mut remote), 1, "free space cannot be determined");

    let room = tempfile::NamedTempFile::new().unwrap();
    let free = |bytes: u64| std::fs::write(room.path(), bytes.to_string()).unwrap();
    free(1 << 40);
    let slowly = [&LZ4[..], &["--set", "batch-ms=2", "--set", "nice=5"]].concat();
    let mut command = command(&database, &slowly);
    let running = Running::start(command.env("TOASTCTL_TEST_FREE_SPACE", room.path()));
    // as long as there is plenty, nothing is said of it
    running.says("to restore: ");
    free(1023 << 20);
    running.says("\", less than 1024 MB (setting min-free-space)");
    free(1025 << 20);
    running.done_after("free_space");

    fresh(&database);
    let held = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(100)";
    let holder = Session::start(&database, "grown", held);
    let grown = with(&["--set", "disk-limit=64kB", "--set", "nice=3"]);
    refused(&grown, 1, "more than --set disk-limit=65536");
    drop(holder);
}

#[test]
fn a_user_who_may_not_see_others_is_told_so() {
    let database = server::shared().create_database("blind");
    let role = database.create_owner("blind");
    database.psql(&format!(
        "SET ROLE {role}; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20) i"
    ));
    let by_role = |more: &[&str]| retoast_as(&database, &role, &[&LZ4[..], more].concat());
    refused(&by_role(&["--set", "max-replica-lag=5s"]), 1, "HINT:  Grant pg_read_all_stats");
    let run = by_role(&[]);
    assert!(run.stderr.contains("not waiting for replicas"), "{}", run.stderr);
    assert!(run.stderr.contains("not watching free space"), "{}", run.stderr);
    done(&run);
}

#[test]
fn a_server_newer_than_the_tested_ones_is_read_with_a_notice_and_not_written() {
    let database = server::with_pageinspect("newer");
    database.psql("CREATE TABLE t AS SELECT 1 AS id, repeat('x', 500000) AS v");
    let newer = |verb: &str, more: &[&str]| {
        let mut command = toastctl();
        command.args([verb, "t", "-d", &database.url()]).args(more);
        run(command.env("TOASTCTL_TEST_NEWEST", "13"))
    };
    let said = " is newer than 13, the newest version that this toastctl is tested with";
    for verb in ["inspect", "check", "keys", "advise-threshold"] {
        let run = newer(verb, if verb == "keys" { &["-c", "v"] } else { &[] });
        assert!(
            run.stderr.contains(&format!("notice: PostgreSQL {}{said}", server::shared().major()))
        );
    }
    for (verb, arguments) in [
        ("retoast", &["-c", "v", "--toaster", "external"][..]),
        ("compact", &[]),
        ("reindex", &["--indexes=all"]),
    ] {
        let dry = newer(verb, &[arguments, &["--dry-run"]].concat());
        for run in [newer(verb, arguments), dry] {
            refused(&run, 1, said);
            assert!(run.stderr.contains("--untested-server"), "{}", run.stderr);
        }
        let permitted = newer(verb, &[arguments, &["--untested-server"]].concat());
        assert_eq!(permitted.code, Some(0), "{verb}: {}{}", permitted.stdout, permitted.stderr);
    }
}

#[test]
fn a_toast_relation_of_another_layout_is_not_touched() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("layout");
    database.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    database.psql("ALTER TABLE t ALTER v SET STORAGE external");
    database.psql("INSERT INTO t SELECT n, repeat('x', 5000) FROM generate_series(1, 50) AS n");
    database.psql(
        "SET allow_system_table_mods = on; \
         UPDATE pg_attribute SET atttypid = 'int8'::regtype WHERE attname = 'chunk_id' \
         AND attrelid = (SELECT reltoastrelid FROM pg_class WHERE oid = 't'::regclass)",
    );
    let said = "its columns are not those of the TOAST relations of PostgreSQL 14 to 19";
    for work in [
        &["compact", "t"][..],
        &["reindex", "t", "--indexes=all"],
        &["t", "-c", "v", "--toaster", "lz4"],
    ] {
        refused(&retoast(&database, work), 1, said);
    }
    for verb in [&["check", "t"][..], &["t"]] {
        let run = inspect(&database, verb);
        assert!(run.stdout.contains(said), "{}{}", run.stdout, run.stderr);
        assert!(!run.stdout.contains("TC0"), "{}", run.stdout);
    }
}
