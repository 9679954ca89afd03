//! A stalled `retoast`, or network, holds no row for long; afterwards the sweep goes on.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::proxy::Proxy;
use crate::support::reports::retoast::Outcome;
use crate::support::retoast::{Running, command, done};
use crate::support::server::{Database, Options, Server};

const TABLE: &str = "CREATE EXTENSION IF NOT EXISTS pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, 0, repeat(md5(i::text), 300) FROM generate_series(1, 3000) i;";

/// Sessions of ours that keep rows locked while the server waits for the client. Others have an xid for temporary tables.
const KEEPS_ROWS: &str = "SELECT count(*) FROM pg_stat_activity AS a WHERE state = 'idle in transaction'
    AND application_name LIKE 'toastctl%' AND backend_xid IS NOT NULL AND EXISTS (SELECT FROM pg_locks AS l
        WHERE l.pid = a.pid AND l.relation = 't'::regclass AND l.mode = 'RowExclusiveLock')";

/// Stalls something until that is in the middle of a batch.
fn stall_in_a_batch(database: &Database<'_>, stall: impl Fn(bool)) {
    let began = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(30));
        stall(true);
        // what was on its way has arrived
        std::thread::sleep(Duration::from_millis(100));
        if database.psql(KEEPS_ROWS) != "0" {
            return;
        }
        stall(false);
        assert!(began.elapsed() < Duration::from_secs(60), "never in the middle of a batch");
    }
}

/// What the application does meanwhile.
fn update_all(database: &Database<'_>) {
    let update = "SET statement_timeout = '10s'; UPDATE t SET n = n + 1";
    let updated = database.try_psql(update);
    assert_eq!(updated.code, Some(0), "{}", updated.stderr);
}

fn limited(server: &Server) -> Database<'_> {
    let database = server.create_database("stalled");
    let name = database.name();
    database.psql(TABLE);
    database.psql(&format!("ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '1s'"));
    database
}

const WHOLE: &str =
    "SELECT count(*) FILTER (WHERE n = 1), count(*) FILTER (WHERE v = repeat(md5(id::text), 300))
    FROM t";

#[test]
fn a_stopped_process_gives_its_rows_back_and_goes_on_when_it_is_continued() {
    let server = Server::start(&Options::default());
    let database = limited(&server);
    let arguments = [
        "t",
        "-c",
        "v",
        "--policy",
        "never",
        "--set",
        "batch-ms=2",
        "--set",
        "nice=1",
        "--verify",
        "full",
    ];
    let running = Running::start(&mut command(&database, &arguments));
    stall_in_a_batch(&database, |stall| {
        running.signal(if stall { Signal::STOP } else { Signal::CONT });
    });
    update_all(&database);
    running.signal(Signal::CONT);
    running.says(
        "a session has ended: FATAL:  terminating connection due to idle-in-transaction timeout",
    );
    running.says("continuing in a new session");
    let table = done(&running.end());
    assert_eq!(table.outcome, Outcome::Complete);
    assert_eq!(database.psql(WHOLE), "3000|3000");
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NOT NULL";
    assert_eq!(database.psql(left), "0");
}

#[test]
fn a_stalled_network_holds_no_row_for_long() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let database = limited(&server);
    let proxy = Proxy::start(server.port());
    let mut through = crate::support::command::toastctl();
    let port = proxy.port.to_string();
    through.args(["retoast", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
    through.args(["-d", &format!("dbname={} sslmode=disable", database.name())]);
    through.args(["t", "-c", "v", "--toaster", "lz4", "--verify", "full", "--set", "batch-ms=2"]);
    let running = Running::start(through.args(["--set", "nice=1", "--format", "json"]));
    stall_in_a_batch(&database, |stall| proxy.stall(stall));
    update_all(&database);
    proxy.stall(false);
    running.says("continuing in a new session");
    let table = done(&running.end());
    assert_eq!(table.outcome, Outcome::Complete);
    assert_eq!(database.psql(WHOLE), "3000|3000");
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'";
    assert_eq!(database.psql(left), "0");
}
