//! `retoast` killed at random moments, and beside sessions that read and change its table.

use std::process::{Child, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::command::{Run, Signal, signal_process};
use crate::support::holder::Holder;
use crate::support::retoast::{PATIENCE, Running, command, done, refused, retoast, spawn};
use crate::support::server::{Database, Options, Server, with_pageinspect};

/// Set for the long versions.
fn long() -> bool {
    std::env::var_os("TOASTCTL_TEST_LONG").is_some()
}

/// The value that a row has in its `n`-th version; `changes` counts updates that leave it alone.
const MODEL: &str = "
    CREATE EXTENSION pageinspect;
    CREATE FUNCTION make(id int, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT string_agg(repeat(md5(id || '/' || n || '/' || k), 3), '') FROM generate_series(1, 10 + id % 90) k$$;
    CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, changes int NOT NULL DEFAULT 0,
        v text COMPRESSION pglz);
    CREATE INDEX ON t (n);
    INSERT INTO t (id, v) SELECT i, make(i, 0) FROM generate_series(1, 6000) i;
    CREATE TABLE done (of_value bigint, of_others bigint);";

/// Rows, distinct keys, updates of both kinds, and rows that differ from the model.
const STATE: &str = "SELECT count(*), count(DISTINCT id), sum(n), sum(changes),
    count(*) FILTER (WHERE v IS DISTINCT FROM make(id, n)) FROM t";

fn wait(mut child: Child, within: Duration) -> Option<i32> {
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(started.elapsed() < within, "a killed command does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_in_every_way_at_random_moments_it_loses_nothing_and_ends() {
    let server = Server::start(&Options::default());
    let database = server.create_database("kills");
    database.psql(MODEL);
    let before = database.psql(STATE);
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut toasters, mut kills, mut ends) = (["lz4", "pglz"].into_iter().cycle(), [0; 3], 0);
    let mut toaster = toasters.next().unwrap();
    let wanted = if long() { 100 } else { 10 };
    while kills.iter().sum::<u32>() < wanted {
        let jobs = ["1", "2"][random.random_range(0..2)];
        let arguments =
            ["t", "-c", "v", "--toaster", toaster, "--jobs", jobs, "--set", "batch-ms=20"];
        let mut child = spawn(&database, &arguments);
        std::thread::sleep(Duration::from_millis(random.random_range(20..700)));
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            (toaster, ends) = (toasters.next().unwrap(), ends + 1);
            continue;
        }
        let way = random.random_range(0..3);
        kills[way] += 1;
        match way {
            0 => child.kill().unwrap(),
            1 => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name LIKE 'toastctl%'";
                database.psql(sql);
            }
            _ => server.restart_immediate(),
        }
        wait(child, Duration::from_secs(30));
        assert_eq!(database.psql(STATE), before, "seed {seed}");
    }
    eprintln!("{kills:?} kills of client, backends, server; {ends} ends between");
    done(&retoast(&database, &["t", "-c", "v", "--toaster", "external"]));
    let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", toaster]));
    assert_eq!(table.skipped.len(), 0);
    assert_eq!(database.psql(STATE), before);
    let left = format!("SELECT count(*) FROM t WHERE pg_column_compression(v) <> '{toaster}'");
    assert_eq!(database.psql(&left), "0");
    assert_eq!(database.psql("SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'"), "0");
}

/// Whoever sees a commit that a crash undoes may have marked index entries of row versions and chunks as dead that
/// are alive afterwards ("missing chunk number 0 for toast value ...").
#[test]
fn what_others_see_of_a_batch_is_on_disk_already() {
    const WAL_WRITER: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let unwritten = [("wal_buffers", "64MB"), ("bgwriter_lru_maxpages", "0")];
    let options =
        unwritten.iter().fold(Options::default(), |all, (name, value)| all.set(name, value));
    let server = Server::start(&options.set("checkpoint_timeout", "1h"));
    let database = server.create_database("unwritten");
    database.psql(MODEL);
    // so that no ALTER TABLE waits for the rows' lock below
    database.psql("ALTER TABLE t ALTER v SET COMPRESSION lz4; CHECKPOINT");
    // without these rows it does not end
    let _holder = Holder::of(&database, "UPDATE t SET changes = changes WHERE id > 5990");
    let wal_writer = database.psql(WAL_WRITER);
    let signal = |signal| signal_process(wal_writer.parse().unwrap(), signal);
    signal(Signal::STOP);
    let mut child = spawn(&database, &["t", "-c", "v", "--toaster", "lz4", "--set", "batch-ms=20"]);
    let stored = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
    let started = std::time::Instant::now();
    while database.psql(stored).parse::<u32>().unwrap() < 200 {
        assert_eq!(child.try_wait().unwrap(), None);
        assert!(started.elapsed() < PATIENCE, "nothing is stored");
    }
    child.kill().unwrap();
    wait(child, PATIENCE);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'";
    while database.psql(sessions) != "0" {
        assert!(started.elapsed() < PATIENCE, "its sessions stay");
    }
    let seen = database.psql(stored);
    // a crash of the server, which starts again by itself
    signal(Signal::KILL);
    let is_back = |run: Run| run.code == Some(0) && run.stdout.trim() != wal_writer;
    while !is_back(database.try_psql(WAL_WRITER)) {
        assert!(started.elapsed() < PATIENCE, "the server does not come back");
    }
    assert_eq!(database.psql(stored), seen);
}

/// A session that changes and reads rows for some seconds, half of the changes touching the value, and
/// then says what it has done. Any value that is not the model's ends it with an error.
fn session(database: &Database<'_>, seconds: u64) -> Child {
    let mut psql = database.psql_command();
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c"]).arg(format!(
        "DO $$DECLARE until timestamptz := clock_timestamp() + '{seconds}s'; which int; row t;
             values_set bigint := 0; others_set bigint := 0;
         BEGIN
             WHILE clock_timestamp() < until LOOP
                 which := 1 + floor(random() * 6000);
                 IF random() < 0.5 THEN
                     UPDATE t SET n = n + 1, v = make(id, n + 1) WHERE id = which;
                     values_set := values_set + 1;
                 ELSE
                     UPDATE t SET changes = changes + 1 WHERE id = which;
                     others_set := others_set + 1;
                 END IF;
                 COMMIT;
                 which := 1 + floor(random() * 6000);
                 SELECT * INTO STRICT row FROM t WHERE id = which;
                 IF row.v <> make(row.id, row.n) THEN RAISE 'row % is not as it should be', row.id; END IF;
                 COMMIT;
             END LOOP;
             INSERT INTO done VALUES (values_set, others_set);
         END$$"
    ));
    psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn beside_four_busy_sessions_no_update_is_lost_and_the_sweep_ends() {
    let server = Server::start(&Options::default());
    let database = server.create_database("load");
    database.psql(MODEL);
    let seconds = if long() { 120 } else { 8 };
    let mut sessions: Vec<Child> = (0..4).map(|_| session(&database, seconds)).collect();
    let mut sweeps = 0;
    let busy = |sessions: &mut Vec<Child>| {
        sessions.iter_mut().all(|session| session.try_wait().unwrap().is_none())
    };
    while busy(&mut sessions) {
        let toaster = ["lz4", "pglz"][sweeps % 2];
        let jobs = if sweeps % 4 < 2 { "1" } else { "2" };
        done(&retoast(&database, &["t", "-c", "v", "--toaster", toaster, "--jobs", jobs]));
        sweeps += 1;
    }
    for session in sessions {
        let output = session.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let said = database.psql("SELECT sum(of_value), sum(of_others) FROM done");
    eprintln!("{sweeps} sweeps beside {said} updates");
    assert_eq!(database.psql(STATE), format!("6000|6000|{said}|0"));
    done(&retoast(&database, &["t", "-c", "v", "--toaster", "lz4"]));
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'pglz'";
    assert_eq!(database.psql(left), "0");
}

#[test]
fn a_session_that_is_terminated_before_the_work_is_a_lost_connection() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("early");
    database.psql("CREATE TABLE t (id int, v text)");
    // what is asked first looks for pageinspect
    let holder = Holder::of(&database, "LOCK TABLE pg_extension IN ACCESS EXCLUSIVE MODE");
    let running = Running::start(&mut command(&database, &["t", "-c", "v", "--toaster", "pglz"]));
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE 'toastctl%' AND wait_event_type = 'Lock'";
    let began = std::time::Instant::now();
    while database.psql(terminate) != "t" {
        assert!(began.elapsed() < PATIENCE, "it does not wait");
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&running.end(), 3, "terminating connection due to administrator command");
    drop(holder);
}

#[test]
fn a_stop_does_not_wait_for_a_lock_of_another_session() {
    let database = with_pageinspect("locked");
    database.psql("CREATE TABLE t (id int, v text)");
    let holder = Holder::of(&database, "LOCK TABLE t");
    let mut command = command(&database, &["t", "-c", "v", "--toaster", "pglz"]);
    let running = Running::start(command.env("PGOPTIONS", "-c lock_timeout=1h"));
    let waits = "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name LIKE 'toastctl%' AND wait_event_type = 'Lock')";
    database.until_true(&format!("SELECT {waits}"));
    running.signal(Signal::INT);
    let run = running.end();
    refused(&run, 4, "stopped by a signal; to continue: ");
    assert!(!run.stderr.contains("error: "), "{}", run.stderr);
    database.until_true(&format!("SELECT NOT {waits}"));
    drop(holder);
}
