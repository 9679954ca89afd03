//! `retoast` when a connection is lost under it.

use crate::support::reports::retoast::{IndexEnd, Outcome};
use crate::support::retoast::{LZ4, Running, brake, command, contents, done, refused, release};
use crate::support::server::{Database, Options, Server, number};
use crate::support::tables::INVALID;

/// Ends the session that was made as the second one, which measures.
const END_MEASURING: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid
    FROM pg_stat_activity WHERE application_name LIKE 'toastctl retoast%'
    ORDER BY backend_start OFFSET 1 LIMIT 1) AS s";

const LEFT: &str = "SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'";

fn waiting(database: &Database<'_>) -> Running {
    let arguments = [&LZ4[..], &brake(database)].concat();
    let running = Running::start(&mut command(database, &arguments));
    running.says("is true (--throttle-query)");
    running
}

#[test]
fn a_lost_measuring_connection_is_made_again_and_costs_nothing() {
    let server = Server::start(&Options::default());
    let database = server.create_database("lost");
    database.psql(TABLE);
    let running = waiting(&database);
    assert_eq!(database.psql(END_MEASURING), "1");
    release(&database);
    running.says("the monitoring connection was lost and re-established");
    let table = done(&running.end());
    assert_eq!(table.rows_stored, 1000);
    assert_eq!(database.psql(LEFT), "0");
}

#[test]
fn a_server_that_is_gone_is_exit_code_3_whichever_connection_tells() {
    let server = Server::start(&Options::default());
    let database = server.create_database("gone");
    database.psql(TABLE);
    // nobody but the measuring connection asks anything meanwhile
    let arguments = [&LZ4[..], &["--throttle-query", "SELECT true"]].concat();
    let running = Running::start(&mut command(&database, &arguments));
    running.says("'SELECT true' is true (--throttle-query)");
    server.stop();
    refused(&running.end(), 3, "public.t: ");
    server.start_again();
    assert_eq!(database.psql(LEFT), "1000");
}

#[test]
fn settings_that_were_put_back_since_a_session_ended_are_set_again_by_the_next() {
    let server = Server::start(&Options::default());
    let database = server.create_database("again");
    database.psql(TABLE);
    // the session that reads is ended while it waits with a snapshot
    let arguments = [&LZ4[..], &brake(&database)].concat();
    let timeout = "-c idle_in_transaction_session_timeout=1s";
    let running = Running::start(command(&database, &arguments).env("PGOPTIONS", timeout));
    running.says("is true (--throttle-query)");
    // before any row is re-toasted
    let set =
        "SELECT attcompression FROM pg_attribute WHERE attname = 'v' AND attrelid = 't'::regclass";
    assert_eq!(database.psql(set), "l");
    running.says("continuing in a new session");
    release(&database);
    let table = done(&running.end());
    assert_eq!((table.rows_stored, table.altered), (1000, true));
    assert_eq!(database.psql(LEFT), "0");
    assert_eq!(database.psql(set), "l");
}

const TABLE: &str = "CREATE EXTENSION IF NOT EXISTS pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 1000) i;";

/// Has each batch take some time.
const SLOWLY: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END';
    CREATE TRIGGER slow BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION slow();
    ALTER TABLE t ENABLE ALWAYS TRIGGER slow";

#[test]
fn after_a_fast_restart_of_the_server_a_sweep_and_a_compaction_go_on() {
    let server = Server::start(&Options::default());
    let database = server.create_database("fast");
    database.psql(TABLE);
    database.psql(SLOWLY);
    let before = contents(&database, "t");
    let arguments = [&LZ4[..], &["--allow", "triggers"]].concat();
    let running = Running::start(&mut command(&database, &arguments));
    database.until(LEFT, |left| number(left) < 900);
    server.restart_fast();
    let table = running.ends();
    assert_eq!((table.rows_stored, table.outcome), (1000, Outcome::Complete));
    assert_eq!((database.psql(LEFT).as_str(), contents(&database, "t")), ("0", before));

    database.psql("DELETE FROM t WHERE id <= 500; VACUUM t");
    let before = contents(&database, "t");
    let arguments =
        ["compact", "t", "--allow", "triggers", "--set", "batch-ms=2", "--set", "nice=1"];
    let running = Running::start(&mut command(&database, &arguments));
    let moved = "SELECT count(*) FROM t WHERE (ctid::text::point)[0] < 5 AND id > 500";
    let then: u64 = database.psql(moved).parse().unwrap();
    database.until(moved, |now| number(now) > then + 10);
    server.restart_fast();
    let run = running.end();
    assert!(run.stderr.contains("public.t: continuing in a new session"), "{}", run.stderr);
    // so small a file may be left a few pages longer
    assert!(matches!(run.code, Some(0 | 1)), "{}{}", run.stdout, run.stderr);
    assert!(!run.stderr.contains("error:"), "{}", run.stderr);
    assert_eq!(contents(&database, "t"), before);
}

#[test]
fn after_a_fast_restart_a_rebuild_goes_on_and_what_it_had_begun_is_dropped() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("fast_rebuild");
    database.psql(
        "CREATE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
         CREATE TABLE t (n int NOT NULL); INSERT INTO t SELECT i FROM generate_series(1, 1000) i;
         CREATE INDEX slowly ON t (slow(n));
         CREATE OR REPLACE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN PERFORM pg_catalog.pg_sleep(0.001); RETURN i; END'",
    );
    let running = Running::start(&mut command(&database, &["reindex", "t", "--indexes=all"]));
    database.until(INVALID, |invalid| number(invalid) == 1);
    server.restart_fast();
    let table = running.ends();
    let rebuilt = table.indexes.iter().filter(|index| index.ended == IndexEnd::Rebuilt).count();
    assert_eq!(rebuilt, 1, "{table}");
    assert_eq!(database.psql(INVALID), "0");
}

#[test]
fn who_terminates_its_session_ends_the_run_and_is_told_how_to_go_on() {
    let server = Server::start(&Options::default());
    let database = server.create_database("terminated");
    database.psql(TABLE);
    database.psql(SLOWLY);
    let arguments = [&LZ4[..], &["--allow", "triggers"]].concat();
    let running = Running::start(&mut command(&database, &arguments));
    database.until(LEFT, |left| number(left) < 900);
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'",
    );
    let ended = running.end();
    refused(&ended, 3, "terminating connection due to administrator command");
    assert!(ended.stdout.contains("\"wal_bytes\": null"), "{}", ended.stdout);
    let hint = "HINT:  What was committed stays; to continue: ";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);
    assert!(ended.stderr.contains("t -c v --toaster lz4 --allow triggers"), "{}", ended.stderr);
    assert_ne!(database.psql(LEFT), "0");
}
