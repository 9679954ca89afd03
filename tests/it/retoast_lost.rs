//! `retoast` when a connection is lost under it.

use crate::retoast::{command, done, refused};
use crate::retoast_manners::Running;
use crate::server::{Database, Options, Server};

const TABLE: &str = "CREATE EXTENSION IF NOT EXISTS pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 1000) i;";

const LZ4: [&str; 5] = ["t", "-c", "v", "--toaster", "lz4"];

/// Ends the session that was made as the second one, which measures.
const END_MEASURING: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid
    FROM pg_stat_activity WHERE application_name LIKE 'toastctl retoast%'
    ORDER BY backend_start OFFSET 1 LIMIT 1) AS s";

const LEFT: &str = "SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'";

fn waiting<'a>(database: &Database<'a>, pause: &str) -> Running {
    let arguments = [&LZ4[..], &["--pause-file", pause]].concat();
    let running = Running::start(&mut command(database, &arguments));
    running.says("is there (--pause-file)");
    running
}

#[test]
fn a_lost_measuring_connection_is_made_again_and_costs_nothing() {
    let server = Server::start(&Options::default());
    let database = server.create_database("lost");
    database.psql(TABLE);
    let dir = tempfile::tempdir().unwrap();
    let pause = dir.path().join("pause");
    std::fs::write(&pause, "").unwrap();
    let running = waiting(&database, pause.to_str().unwrap());
    assert_eq!(database.psql(END_MEASURING), "1");
    std::fs::remove_file(&pause).unwrap();
    running.says("the measuring connection was lost, and is made again");
    let table = done(&running.end());
    assert_eq!(table["rows_stored"], 1000);
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
    database.psql("CREATE TABLE brake AS SELECT true AS pulled");
    let brake = ["--throttle-query", "SELECT pulled FROM brake"];
    let running = Running::start(&mut command(&database, &[&LZ4[..], &brake].concat()));
    running.says("waiting: 'SELECT pulled FROM brake' is true");
    // before any row is re-toasted
    let set = "SELECT attcompression FROM pg_attribute WHERE attname = 'v' AND attrelid = 't'::regclass";
    assert_eq!(database.psql(set), "l");
    let end_reading = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name LIKE 'toastctl retoast%' AND backend_xmin IS NOT NULL";
    assert_eq!(database.psql(end_reading), "1");
    database.psql("UPDATE brake SET pulled = false");
    running.says("going on in a new session");
    let table = done(&running.end());
    assert_eq!((&table["rows_stored"], &table["altered"]), (&1000.into(), &true.into()));
    assert_eq!(database.psql(LEFT), "0");
    assert_eq!(database.psql(set), "l");
}
