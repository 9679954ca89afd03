//! The dry run warns of clients whose updates a sweep makes fail: those of other isolation levels than read
//! committed.

use std::io::Write;
use std::process::Stdio;

use crate::support::retoast::{Session, retoast};
use crate::support::server::{Database, Options, Server};

const PLAN: [&str; 6] = ["t", "-c", "v", "--toaster", "lz4", "--dry-run"];

fn warning(database: &Database<'_>) -> String {
    serde_json::to_string(&retoast(database, &PLAN).exits(0).table().plan().serialization).unwrap()
}

#[test]
fn clients_of_other_isolation_levels_are_seen() {
    let server = Server::start(&Options::default());
    let database = server.create_database("isolation");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE ROLE careful;
         CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) AS i",
    );
    assert_eq!(warning(&database), "[]");
    let serializable = Session::start(
        &database,
        "serial",
        "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t; SELECT pg_sleep(600)",
    );
    let said = warning(&database);
    assert!(said.contains("1 in a serializable transaction now"), "{said}");
    drop(serializable);
    let mut psql = database.psql_command();
    psql.args(["-q", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut keeps = psql.spawn().expect("psql");
    let mut input = keeps.stdin.take().expect("its input");
    input.write_all(b"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n").expect("psql reads");
    input.flush().expect("psql reads");
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    database.until(idle, |answer| answer != "0");
    let said = warning(&database);
    assert!(said.contains("1 that keep a snapshot between statements"), "{said}");
    drop(input);
    keeps.wait().expect("psql ends");
    let name = database.name();
    database.psql(&format!(
        "ALTER ROLE careful SET default_transaction_isolation = 'serializable';
         ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
    ));
    let said = warning(&database);
    let defaults =
        ["default of role careful: serializable", "default of this database: repeatable read"];
    for default in defaults {
        assert!(said.contains(default), "{said}");
    }
}
