//! `retoast` where transactions are read-only by default: by somebody's wish, or since the disk is nearly full.

use std::time::Duration;

use crate::support::retoast::{LZ4, command, done, refused, retoast, spawn};
use crate::support::server::{Options, Server};

const STORED: &str = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";

#[test]
fn what_is_to_be_read_only_is_not_written_to() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("readonly");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 6000) AS i",
    );
    let name = database.name();
    server
        .database("postgres")
        .psql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    for more in [&LZ4[..], &["compact", "t"], &["reindex", "t", "--indexes=all"]] {
        let run = retoast(&database, more);
        refused(&run, 1, "transactions are read-only by default here");
        assert!(run.stderr.contains("PGOPTIONS='-c default_transaction_read_only=off'"));
    }
    assert_eq!(database.psql(STORED), "0");
    server.database("postgres").psql(&format!("ALTER DATABASE {name} RESET ALL"));

    // set while it runs it ends it
    let mut child =
        spawn(&database, &[&LZ4[..], &["--set", "batch-ms=1", "--set", "nice=2"]].concat());
    while database.psql(STORED) == "0" {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(Duration::from_millis(10));
    }
    let admin = server.database("postgres");
    admin.psql("ALTER SYSTEM SET default_transaction_read_only = on");
    admin.psql("SELECT pg_reload_conf()");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let stored: u64 = database.psql(STORED).parse().unwrap();
    assert!(stored < 6000, "{stored}");
    let mut again = command(&database, &LZ4);
    let run = crate::support::command::run(
        again.env("PGOPTIONS", "-c default_transaction_read_only=off"),
    );
    assert_eq!(done(&run).rows_found, 6000 - stored);
}
