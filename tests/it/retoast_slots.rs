//! Replication slots whose WAL the server keeps up to a limit: `retoast` waits for their consumers before they are lost.

use std::time::{Duration, Instant};

use crate::support::reports::retoast::{IndexEnd, Outcome, Report};
use crate::support::retoast::{
    LZ4, PATIENCE, Running, brake, command, done, refused, release, retoast, retoast_as,
};
use crate::support::server::{self, Database, Options, Server};
use crate::support::tables::{BLOATED, INVALID};

const MB: u64 = 1 << 20;

/// 3,000 rows, each with 3 kB out of line, compressed by pglz.
const TABLE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 90) k) FROM generate_series(1, 3000) i;
    VACUUM ANALYZE t;";
const SLOTS: &str = "SELECT pg_create_physical_replication_slot('idle', true);
    SELECT pg_create_logical_replication_slot('decoded', 'test_decoding')";
const SAFE: &str = "SELECT min(safe_wal_size) FROM pg_replication_slots";
const LOST: &str =
    "CHECKPOINT; SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'";

fn with_limit(options: Options) -> Server {
    Server::start(&options.set("max_slot_wal_keep_size", "128MB").set("min_wal_size", "256MB"))
}

/// Writes WAL until slots bear no more than so many bytes.
fn write_wal(database: &Database<'_>, left: u64) {
    let began = Instant::now();
    // a segment at a time first
    loop {
        let safe: i64 = database.psql(SAFE).parse().unwrap();
        if safe < i64::try_from(left + 40 * MB).unwrap() {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
        database.psql("SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()");
    }
    database.psql(&format!(
        "DO $$BEGIN WHILE ({SAFE}) > {left} LOOP
            PERFORM pg_logical_emit_message(false, 'x', repeat('x', 100000)); END LOOP; END$$"
    ));
}

/// The consumers catch up. A logical one needs WAL from a running server's snapshot on, which a checkpoint writes.
fn catch_up(database: &Database<'_>) {
    let began = Instant::now();
    loop {
        database.psql(
            "CHECKPOINT; SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn())
             FROM pg_replication_slots",
        );
        if database.psql(SAFE).parse::<u64>().unwrap() > 100 * MB {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn a_slot_that_bears_little_more_is_named_and_waited_for() {
    let server = with_limit(Options::default());
    let database = server.with_pageinspect("slots");
    database.psql(TABLE);
    database.psql(SLOTS);
    write_wal(&database, 22 * MB);

    let plan = retoast(&database, &[&LZ4[..], &["--dry-run"]].concat());
    let report = plan.report::<Report>();
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    let notes = report.tables[0].notes();
    let named = "replication slot \"idle\" (physical, inactive) can tolerate only ";
    assert!(notes.contains(named), "{notes}");
    assert!(notes.contains("more WAL (safe_wal_size)"), "{notes}");
    assert!(notes.contains("max_slot_wal_keep_size"), "{notes}");

    let running = Running::sweep(&database, &[]);
    running.says("toastctl: replication slot \"idle\" (physical, inactive) can tolerate only ");
    running.says(
        "public.t: waiting: replication slot \"idle\" (physical, inactive) can tolerate only ",
    );
    // it did something, and does wait: nothing more is stored
    let stored = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
    let before: u32 = database.psql(stored).parse().unwrap();
    assert!(before > 100 && before < 3000, "{before}");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(database.psql(stored), before.to_string());
    assert_eq!(database.psql(LOST), "0");
    // one consumer comes back, the other is given up
    database.psql("SELECT pg_drop_replication_slot('idle')");
    catch_up(&database);
    let table = running.ends_after("replication_slot");
    assert_eq!(table.slots_lost, [""; 0]);
    assert_eq!(database.psql(LOST), "0");
}

#[test]
fn compactions_rebuilds_and_policies_wait_for_slots_too() {
    let server = with_limit(Options::default());
    let database = server.with_pageinspect("waits");
    database.psql(&BLOATED.replace("noise(i, 66)", "repeat(noise(i, 22), 3)"));
    database.psql(SLOTS);
    let works: [&[&str]; 3] = [
        &["compact", "t"],
        &["t", "-c", "v", "--policy", "always"],
        &["reindex", "t", "--indexes=all"],
    ];
    for work in works {
        write_wal(&database, 8 * MB);
        let running = Running::start(&mut command(&database, work));
        running.says("public.t: waiting: replication slot \"");
        catch_up(&database);
        let run = running.end();
        let report = run.report::<Report>();
        let pause = report.tables[0].pause("replication_slot");
        assert!(pause.is_some(), "{work:?}: {report}");
        assert_eq!(run.code, Some(0), "{work:?}: {}{}", run.stdout, run.stderr);
        assert_eq!(database.psql(LOST), "0", "{work:?}");
    }
}

#[test]
fn a_wait_for_a_slot_that_takes_too_long_ends_with_code_4_for_ordinary_owners_too() {
    for major in server::available_majors() {
        let server = with_limit(Options::major(major));
        let database = server.create_database("owner");
        let role = database.create_owner("keeper");
        database.psql(&format!("SET ROLE {role}; {TABLE}"));
        database.psql(SLOTS);
        write_wal(&database, 8 * MB);
        let external = ["t", "-c", "v", "--toaster", "external", "--set", "max-wait=500ms"];
        let stopped = retoast_as(&database, &role, &external);
        refused(&stopped, 4, "s (max-wait): replication slot \"");
        let report = stopped.report::<Report>();
        let notes = report.tables[0].notes();
        assert!(notes.contains("(max-wait): replication slot"), "{major}: {report}");
        assert_eq!(database.psql(LOST), "0", "{major}");
    }
}

#[test]
fn a_slot_that_is_lost_meanwhile_is_told_and_not_code_0() {
    let server = with_limit(Options::default());
    let database = server.with_pageinspect("lost");
    database.psql(TABLE);
    // lost before: nobody's fault
    database.psql("SELECT pg_create_physical_replication_slot('before', true)");
    write_wal(&database, MB);
    database.psql("SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()");
    assert_eq!(database.psql(LOST), "1");
    let lost = |toaster: &'static str, meanwhile: &dyn Fn()| {
        let arguments = [&["t", "-c", "v", "--toaster", toaster][..], &brake(&database)].concat();
        let running = Running::start(&mut command(&database, &arguments));
        running.says("is true (--throttle-query)");
        meanwhile();
        release(&database);
        running.end()
    };
    let table = done(&lost("lz4", &|| {}));
    assert_eq!(table.slots_lost, [""; 0], "{table}");
    database.psql("SELECT pg_create_physical_replication_slot('meanwhile', true)");
    let run = lost("pglz", &|| {
        write_wal(&database, MB);
        database.psql("SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()");
        assert_eq!(database.psql(LOST), "2");
    });
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let table = run.table();
    assert_eq!(table.slots_lost, ["meanwhile"], "{table}");
    assert_eq!((table.outcome, table.rows_stored), (Outcome::Complete, 3000));
}

/// An index that takes some seconds to build.
const SLOW: &str = "
    CREATE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
    CREATE TABLE t (n int NOT NULL); INSERT INTO t SELECT i FROM generate_series(1, 1500) i;
    CREATE INDEX slowly ON t (slow(n));
    CREATE OR REPLACE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM pg_catalog.pg_sleep(0.001); RETURN i; END';";

#[test]
fn a_rebuild_under_way_is_cancelled_for_a_slot_and_begun_again() {
    let server = with_limit(Options::default());
    let database = server.with_pageinspect("rebuild");
    database.psql(SLOW);
    database.psql(SLOTS);
    let running = Running::start(&mut command(&database, &["reindex", "t", "--indexes=all"]));
    let building =
        "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'building%'";
    let began = Instant::now();
    while database.psql(building) == "0" {
        assert!(began.elapsed() < PATIENCE, "{}", running.said());
    }
    write_wal(&database, 8 * MB);
    running.says("index public.slowly was not rebuilt: replication slot \"");
    running.says("public.t: waiting: replication slot \"");
    assert_eq!(database.psql(INVALID), "0");
    catch_up(&database);
    let table = running.ends_after("replication_slot");
    assert_eq!(table.indexes[0].ended, IndexEnd::Rebuilt, "{table}");
    assert_eq!(database.psql(LOST), "0");
}
