//! While somebody's snapshot keeps vacuum from removing old row versions the table does not grow on and on:
//! the sweep waits, says for whom, and goes on, or stops when that takes too long.

use std::time::{Duration, Instant};

use crate::support::command::{run, toastctl};
use crate::support::reports::retoast::Outcome;
use crate::support::retoast::{LZ4, PATIENCE, Running, Session, contents, done, refused, retoast};
use crate::support::server::{Database, Options, Server};

const HELD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(100)";
/// What a small table may grow by, and a batch and its index entries beyond.
const MOST: u64 = (4 << 20) + (3 << 20);

/// Rows of 4 kB out of line, which pglz compresses to that from 5.
fn fresh(database: &Database<'_>, rows: u32) -> String {
    database.psql(&format!(
        "CREATE EXTENSION IF NOT EXISTS pageinspect;
         DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat('x', 1200) || (SELECT string_agg(md5((i * 31 + k)::text), '')
            FROM generate_series(1, 120) k) FROM generate_series(1, {rows}) i;
         VACUUM ANALYZE t"
    ));
    contents(database, "t")
}

fn size(database: &Database<'_>) -> u64 {
    database.psql("SELECT pg_total_relation_size('t')").parse().unwrap()
}

fn stored(database: &Database<'_>) -> String {
    database.psql("SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'")
}

#[test]
fn an_open_snapshot_stops_the_growth_and_is_named() {
    let server = Server::start(&Options::default());
    let database = server.create_database("snapshot");
    let content = fresh(&database, 4000);
    let before = size(&database);
    assert!(before > 2 * MOST, "too small to tell: {before}");
    let holder = Session::start(&database, "holder", HELD);
    let pid = database.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'holder'");
    let running = Running::sweep(&database, &[]);
    running.says(&format!("waiting: session {pid} (user postgres, holder, in a transaction for "));
    running.says(" keeps vacuum from removing ");
    running.says(" kB (setting max-bloat)");
    // it does wait: nothing more is stored, nothing grows
    let (was, grown) = (stored(&database), size(&database) - before);
    assert!(was != "0" && was != "4000", "{was}");
    assert!(grown < MOST, "grown by {grown}");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(stored(&database), was);
    drop(holder);
    let table = running.ends_after("xmin");
    assert_eq!(table.outcome, Outcome::Complete);
    assert!(size(&database) - before < MOST, "{before} to {}", size(&database));
    // a vacuum in vain is no vacuum
    assert!(table.vacuums < 40, "{table}");
    assert_eq!(contents(&database, "t"), content);

    // what a table of this size may grow by is not waited for, and said in the end
    let content = fresh(&database, 700);
    let holder = Session::start(&database, "holder", HELD);
    let table = done(&retoast(&database, &LZ4));
    drop(holder);
    assert_eq!(table.pauses, [], "{table}");
    assert_eq!(table.vacuums, 0, "{table}");
    let notes = table.notes();
    assert!(notes.contains("of old row versions are left for a later VACUUM: session "), "{notes}");
    assert_eq!(contents(&database, "t"), content);
}

/// Each start would add as many old row versions as the bound allows.
#[test]
fn the_bound_of_growth_holds_for_several_starts_together() {
    let server = Server::start(&Options::default());
    let database = server.create_database("starts");
    let content = fresh(&database, 4000);
    let before = size(&database);
    let holder = Session::start(&database, "holder", HELD);
    for start in 1..=4 {
        let stopped = retoast(&database, &[&LZ4[..], &["--set", "max-wait=700ms"]].concat());
        refused(&stopped, 4, "holder, in a transaction for ");
        let grown = size(&database) - before;
        assert!(grown < MOST, "start {start}: grown by {grown}\n{}", stopped.stderr);
    }
    drop(holder);
    done(&retoast(&database, &LZ4));
    assert_eq!((stored(&database).as_str(), contents(&database, "t")), ("4000", content));
    // dead rows that nobody keeps are removed, not waited for
    database.psql("UPDATE t SET v = v || '' WHERE id < 2000");
    let holder = Session::start(&database, "holder", HELD);
    let back = ["t", "-c", "v", "--toaster", "pglz", "--set", "max-wait=700ms"];
    let stopped = retoast(&database, &back);
    drop(holder);
    let began = stored(&database);
    assert!(began != "4000", "{began}: {}", stopped.stderr);
}

#[test]
fn a_wait_that_takes_too_long_ends_with_code_4_and_the_next_run_goes_on() {
    let server = Server::start(&Options::default());
    let database = server.create_database("wait");
    let content = fresh(&database, 4000);
    database.psql("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'forgotten'");
    let began = Instant::now();
    let stopped = retoast(&database, &[&LZ4[..], &["--set", "max-wait=700ms"]].concat());
    assert!(began.elapsed() < PATIENCE);
    refused(&stopped, 4, " s (max-wait): prepared transaction 'forgotten' (");
    let said = "stopped by max-wait; to continue, once what kept it waiting has ended: ";
    assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    let table = stopped.table();
    assert_eq!(table.outcome, Outcome::Stopped);
    assert!(table.notes().contains("(max-wait): prepared transaction"), "{table}");
    assert!(table.gave_up && table.forms_after.is_empty(), "{table}");
    let mut people = toastctl();
    people.args(["retoast", "-d", &database.url()]).args(LZ4);
    let text = run(people.args(["--set", "max-wait=700ms"])).stdout;
    assert!(!text.contains("on request"), "{text}");
    assert!(text.contains("stopped, because other sessions kept it waiting (max-wait)"), "{text}");
    assert!(stored(&database) != "4000");
    database.psql("ROLLBACK PREPARED 'forgotten'");
    done(&retoast(&database, &[&LZ4[..], &["--set", "max-wait=1h"]].concat()));
    assert_eq!((stored(&database).as_str(), contents(&database, "t")), ("4000", content));
    let nonsense = retoast(&database, &[&LZ4[..], &["--set", "max-wait=5"]].concat());
    refused(&nonsense, 2, "expected one number in ms, s, min or h");
}

#[test]
fn a_replica_with_feedback_is_named_too() {
    let server = Server::start(&Options::default());
    let database = server.create_database("feedback");
    fresh(&database, 4000);
    let standby = server.start_standby();
    let there = standby.database(database.name());
    for setting in ["hot_standby_feedback = on", "wal_receiver_status_interval = '1s'"] {
        there.psql(&format!("ALTER SYSTEM SET {setting}"));
    }
    there.psql("SELECT pg_reload_conf()");
    let query = Session::start(&there, "report", HELD);
    let began = Instant::now();
    let fed = "SELECT count(*) FROM pg_stat_activity
               WHERE backend_type = 'walsender' AND backend_xmin IS NOT NULL";
    while database.psql(fed) == "0" {
        assert!(began.elapsed() < PATIENCE, "no feedback");
        std::thread::sleep(Duration::from_millis(50));
    }
    let running = Running::sweep(&database, &["--set", "max-replica-lag=off"]);
    running.says("waiting: replica walreceiver (PID ");
    running.says(", by hot_standby_feedback) keeps vacuum from removing ");
    drop(query);
    running.ends_after("xmin");
}

/// Ends with code 4, soon, and says what it has waited for.
#[track_caller]
fn gives_up(database: &Database<'_>, arguments: &[&str], reason: &str) {
    let began = Instant::now();
    let stopped = retoast(database, &[arguments, &["--set", "max-wait=700ms"]].concat());
    refused(&stopped, 4, " s (max-wait): ");
    assert!(stopped.stderr.contains(reason), "{}", stopped.stderr);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}: {}", began.elapsed(), stopped.stderr);
    let table = stopped.table();
    assert_eq!(table.outcome, Outcome::Stopped, "{table}");
    assert!(table.notes().contains("(max-wait): "), "{table}");
}

#[test]
fn every_wait_for_others_ends_in_time() {
    let server = Server::start(&Options::default());
    let database = server.create_database("waits");
    let content = fresh(&database, 700);
    {
        let _holder = Session::start(&database, "holder", HELD);
        database.psql("DELETE FROM t WHERE id <= 300");
        gives_up(&database, &["compact", "t"], "old row versions");
    }
    database.psql("ALTER TABLE t ALTER v SET COMPRESSION lz4");
    let locked = "BEGIN; UPDATE t SET id = id WHERE id IN (699, 700); SELECT pg_sleep(100)";
    {
        let _holder = Session::start(&database, "locker", locked);
        gives_up(&database, &["compact", "t"], "waiting for");
        gives_up(&database, &LZ4, "lock");
    }
    {
        let reads = "BEGIN; SELECT count(*) FROM t; SELECT pg_sleep(100)";
        let _holder = Session::start(&database, "reader", reads);
        let back = ["t", "-c", "v", "--toaster", "pglz"];
        gives_up(&database, &back, "no lock for changing the settings");
    }
    done(&retoast(&database, &[&LZ4[..], &["--set", "max-wait=1h", "--compact"]].concat()));
    assert_eq!(stored(&database), "400");
    assert_ne!(contents(&database, "t"), content);
}
