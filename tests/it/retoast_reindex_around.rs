//! `retoast --reindex` beside others: locks, transactions, rebuilds of theirs, and its own that are interrupted.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::command::{Run, Signal, signal};
use crate::support::reports::Printed;
use crate::support::reports::retoast::{IndexEnd, Outcome, Report};
use crate::support::retoast::{contents, done, kills, retoast, spawn};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::tables::{BLOATED, INVALID};

/// A small table with an index that takes some seconds to build.
const SLOW: &str = "
    CREATE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
    CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL);
    INSERT INTO t SELECT i, i FROM generate_series(1, 1500) i;
    CREATE INDEX slowly ON t (slow(n));
    CREATE OR REPLACE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM pg_catalog.pg_sleep(0.001); RETURN i; END';";

const WAITING: &str = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND datname = current_database()";
const BUILDING: &str = "SELECT count(*) FROM pg_stat_progress_create_index
    WHERE datname = current_database() AND phase LIKE 'building%' AND index_relid::regclass::text LIKE 'slowly%'";

fn session(database: &Database<'_>, sql: &str) -> std::process::Child {
    let mut psql = database.psql_command();
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_lock_of_others_is_told_and_nothing_stays_in_the_queue() {
    let database = with_pageinspect("locked");
    database.psql(BLOATED);
    for lock in ["SHARE UPDATE EXCLUSIVE", "ROW EXCLUSIVE"] {
        let mut holder = session(
            &database,
            &format!("BEGIN; LOCK TABLE t IN {lock} MODE; SELECT pg_sleep(600)"),
        );
        let asleep = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'
            AND wait_event = 'PgSleep' AND datname = current_database()";
        database.until(&format!("SELECT count(*) {asleep}"), |n| n == "1");
        let report = retoast(&database, &["reindex", "t", "--set", "max-wait=1s"]).exits(1).table();
        assert_eq!(report.outcome, Outcome::Incomplete, "{report}");
        let pkey = report.index("t_pkey");
        assert_eq!(pkey.ended, IndexEnd::Left, "{pkey}");
        assert!(
            pkey.reason().contains("session ") && pkey.reason().contains("(user postgres, "),
            "{pkey}"
        );
        assert_eq!(pkey.command(), "REINDEX INDEX CONCURRENTLY public.t_pkey");
        assert_eq!(database.psql(WAITING), "0");
        assert_eq!(database.psql(INVALID), "0");
        database.psql(&format!("SELECT pg_terminate_backend(pid) {asleep}"));
        holder.wait().unwrap();
    }
    done(&retoast(&database, &["reindex", "t", "--set", "max-wait=1s"]));
}

#[test]
fn beside_a_writer_nothing_is_lost() {
    let database = with_pageinspect("beside");
    database.psql(BLOATED);
    let writer = session(
        &database,
        "DO $$DECLARE until timestamptz := clock_timestamp() + '4s'; BEGIN
            FOR i IN 1..1000000 LOOP
                INSERT INTO t VALUES (100000 + i, -i, 'w' || i, 'x', -i);
                UPDATE t SET n = n - 1 WHERE id = 100000 + i / 2; COMMIT;
                EXIT WHEN clock_timestamp() > until;
            END LOOP; END$$",
    );
    done(&retoast(&database, &["reindex", "t"]));
    let output = writer.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(database.psql(INVALID), "0");
    let by = |on: &str, off: &str| {
        database.psql(&format!(
            "SET enable_{off} = off; SET enable_bitmapscan = off; SET enable_{on} = on;
            SELECT count(*) FROM t WHERE k > -100000000 AND k = k"
        ))
    };
    assert_eq!(by("seqscan", "indexscan"), by("indexscan", "seqscan"));
    database.psql("CREATE EXTENSION amcheck");
    database.psql("SELECT bt_index_check(indexrelid, true) FROM pg_index AS i JOIN pg_class AS c ON c.oid = indexrelid
        WHERE indrelid = 't'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree')");
}

#[test]
fn a_rebuild_that_keeps_others_waiting_lets_them_pass() {
    let database = with_pageinspect("passes");
    database.psql(SLOW);
    let child = spawn(&database, &["reindex", "t", "--indexes=all"]);
    database.until(BUILDING, |n| n == "1");
    let began = Instant::now();
    database.psql("ALTER TABLE t SET (autovacuum_enabled = off)");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let output = child.wait_with_output().unwrap();
    // the second try goes through
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("had to wait for it"), "{told}");
    assert_eq!(database.psql(INVALID), "0");
}

#[test]
fn a_transaction_that_begins_meanwhile_is_waited_for_so_long_and_what_is_left_goes_with_the_checkpoint()
 {
    // an open transaction is in the way of vacuums in other databases too
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("meanwhile");
    database.psql(SLOW);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoint");
    let arguments = [
        "reindex",
        "t",
        "--indexes=all",
        "--set",
        "max-wait=1s",
        "--checkpoint",
        file.to_str().unwrap(),
    ];
    let child = spawn(&database, &arguments);
    database.until(BUILDING, |n| n == "1");
    let mut writer =
        session(&database, "BEGIN; UPDATE t SET n = n WHERE id = 1; SELECT pg_sleep(601)");
    let output = child.wait_with_output().unwrap();
    let run = Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    let report = run.exits(1).table();
    let slowly = report.index("slowly");
    assert_eq!(slowly.ended, IndexEnd::Left, "{slowly}");
    assert_eq!(slowly.command(), "DROP INDEX CONCURRENTLY public.slowly_ccnew", "{slowly}");
    assert_eq!(database.psql(INVALID), "1");
    assert_eq!(database.psql(WAITING), "0");
    assert!(file.exists());
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(601)%'
        AND pid <> pg_backend_pid() AND datname = current_database()",
    );
    writer.wait().unwrap();
    // without the file nobody knows whose it is
    let report = retoast(&database, &["reindex", "t"]).exits(1).table();
    assert_eq!(report.index("slowly_ccnew").ended, IndexEnd::Invalid, "{report}");
    let report = retoast(&database, &arguments).exits(0).table();
    assert_eq!(report.index("slowly_ccnew").ended, IndexEnd::Dropped, "{report}");
    assert_eq!(database.psql(INVALID), "0");
    assert!(!file.exists());
}

#[test]
fn beside_short_builds_of_others_no_invalid_index_stays() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("short_builds");
    database.psql(SLOW);
    database.psql(
        "CREATE FUNCTION brief(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN IF i % 10 = 0 THEN PERFORM pg_catalog.pg_sleep(0.001); END IF; RETURN i; END'",
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let builds =
        "CREATE INDEX CONCURRENTLY other ON t (brief(n));\nDROP INDEX CONCURRENTLY other;\n";
    std::fs::write(file.path(), builds.repeat(2000)).unwrap();
    let child = spawn(&database, &["reindex", "t", "--indexes=all"]);
    database.until(BUILDING, |n| n == "1");
    let mut psql = database.psql_command();
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file.path());
    let mut other = psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(other.try_wait().unwrap(), None, "{told}");
    let left = "SELECT count(*) FROM pg_class WHERE relname ~ '_cc(new|old)'";
    assert_eq!(database.psql(left), "0", "{told}");
    signal(&other, Signal::INT);
    let other = other.wait_with_output().unwrap();
    let other = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.contains("deadlock"), "{other}");
    // it was rebuilt in the end, or that is said
    assert!(matches!(output.status.code(), Some(0 | 1)), "{told}");
    assert!(told.contains("had to wait for it"), "{told}");
}

#[test]
fn what_others_rebuild_or_have_left_behind_is_told_and_stays() {
    let database = with_pageinspect("others");
    database.psql(SLOW);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoint");
    let arguments =
        ["reindex", "t", "--set", "max-wait=1s", "--checkpoint", file.to_str().unwrap()];
    let other = session(&database, "REINDEX INDEX CONCURRENTLY slowly");
    database.until(BUILDING, |n| n == "1");
    let report = retoast(&database, &arguments).exits(1).table();
    let told = report.index("slowly_ccnew");
    assert!(told.reason().contains("may be building it"), "{told}");
    assert_eq!((told.ended, &told.command), (IndexEnd::Invalid, &None));
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(database.psql(INVALID), "0");
    let mut interrupted = database.psql_command();
    interrupted.args([
        "-c",
        "SET statement_timeout = '500ms'",
        "-c",
        "REINDEX INDEX CONCURRENTLY slowly",
    ]);
    interrupted.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert_eq!(database.psql(INVALID), "1");
    for arguments in [&arguments[..], &["reindex", "t"]] {
        let report = retoast(&database, arguments).exits(1).table();
        let told = report.index("slowly_ccnew");
        assert_eq!(told.ended, IndexEnd::Invalid, "{told}");
        assert_eq!(told.command(), "DROP INDEX CONCURRENTLY public.slowly_ccnew");
        assert_eq!(database.psql(INVALID), "1");
    }
    database.psql("DROP INDEX CONCURRENTLY public.slowly_ccnew");
    done(&retoast(&database, &["reindex", "t"]));
}

#[test]
fn interrupted_it_drops_what_it_has_begun() {
    let database = with_pageinspect("interrupted");
    database.psql(SLOW);
    let child = spawn(&database, &["reindex", "t", "--indexes=all"]);
    database.until(BUILDING, |n| n == "1");
    signal(&child, Signal::INT);
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Printed::<Report>::read(&String::from_utf8(output.stdout).unwrap());
    let slowly = report.tables[0].index("slowly");
    assert_eq!((slowly.ended, slowly.reason()), (IndexEnd::Left, "the run was stopped"));
    assert_eq!(database.psql(INVALID), "0");
}

#[test]
fn killed_in_every_way_nothing_is_left_behind_after_the_next_run() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("killed");
    database.psql(SLOW);
    let before = contents(&database, "t");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoint");
    let arguments = ["reindex", "t", "--indexes=all", "--checkpoint", file.to_str().unwrap()];
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let backends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE 'toastctl%'";
    let mut left = Vec::new();
    for way in 0..kills() {
        let mut child = spawn(&database, &arguments);
        database.until(BUILDING, |n| n == "1");
        std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
        match way % 3 {
            0 => {
                child.kill().unwrap();
                database.psql(backends);
            }
            1 => drop(database.psql(backends)),
            _ => server.restart_immediate(),
        }
        child.wait().unwrap();
        left.push(database.psql(INVALID));
        assert_eq!(contents(&database, "t"), before, "seed {seed}");
    }
    eprintln!("invalid after each kill: {left:?}");
    let last = retoast(&database, &arguments);
    done(&last);
    assert_eq!(database.psql(INVALID), "0", "seed {seed}");
    assert_eq!(database.psql("SELECT count(*) FROM pg_class WHERE relname ~ '_cc(new|old)'"), "0");
    assert_eq!(contents(&database, "t"), before);
    assert!(!file.exists());
}

/// Leaves an invalid copy of the index of the TOAST relation behind, and a file that says that it is ours.
fn left_of_the_toast_index(server: &Server) {
    let database = server.create_database("of_toast");
    database.psql(BLOATED);
    let toast = database.psql(
        "SELECT c.oid || '|' || t.relname FROM pg_class AS c JOIN pg_class AS t ON t.oid = c.reltoastrelid
         WHERE c.relname = 't'",
    );
    let (oid, toast) = toast.split_once('|').unwrap();
    let mut writer = session(
        &database,
        "BEGIN; INSERT INTO t SELECT 100001, 1, 'x', noise(1, 100), 1; SELECT pg_sleep(602)",
    );
    let asleep = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(602)%'
        AND wait_event = 'PgSleep' AND datname = current_database()";
    database.until(&format!("SELECT count(*) {asleep}"), |n| n == "1");
    let mut interrupted = database.psql_command();
    let reindex = format!("REINDEX INDEX CONCURRENTLY pg_toast.{toast}_index");
    interrupted.args(["-c", "SET statement_timeout = '500ms'", "-c", &reindex]);
    interrupted.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    database.psql(&format!("SELECT pg_terminate_backend(pid) {asleep}"));
    writer.wait().unwrap();
    assert_eq!(database.psql(INVALID), "1");
    let left = format!("{toast}_index_ccnew");
    let report = retoast(&database, &["reindex", "t"]).exits(1).table();
    assert_eq!(report.index(&left).ended, IndexEnd::Invalid, "{report}");
    assert_eq!(report.index("t_pkey").ended, IndexEnd::Rebuilt, "{report}");
    let of_toast = report.indexes.iter();
    let base = format!("pg_toast.{toast}_index");
    let base = of_toast.filter(|one| one.index == base).collect::<Vec<_>>();
    assert_eq!(base[0].ended, IndexEnd::Left, "{report}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoint");
    let saved = serde_json::json!({
        "schema": "toastctl.retoast-checkpoint/2", "database": database.name(), "choice": "as stored",
        "tables": [{ "oid": oid.parse::<u32>().unwrap(), "rebuilding": [format!("pg_toast.{toast}_index")] }],
    });
    std::fs::write(&file, saved.to_string()).unwrap();
    let report =
        done(&retoast(&database, &["reindex", "t", "--checkpoint", file.to_str().unwrap()]));
    assert_eq!(report.index(&left).ended, IndexEnd::Dropped, "{report}");
    assert_eq!(database.psql(INVALID), "0");
    assert!(!file.exists());
}

#[test]
fn what_is_left_of_the_toast_relations_index_is_dropped_on_every_major() {
    for major in server::available_majors() {
        left_of_the_toast_index(&Server::start(&Options::major(major)));
    }
}
