//! Beside a connection pooler: one that lends sessions is refused, and what it lends stays as it was.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::pgbouncer::Pooler;
use crate::support::proxy::Proxy;
use crate::support::retoast::{done, refused};
use crate::support::server::{Database, Options, Server};

const TABLE: &str = "CREATE EXTENSION IF NOT EXISTS pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 200) i;";

/// What the next client of each of the pooler's sessions finds set in it.
const STATE: &str = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
    WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')";

const SESSIONS: usize = 3;

/// The settings of all sessions of the pool, met by holding as many at once.
fn states(pooler: &Pooler<'_>, database: &Database<'_>, in_transactions: bool) -> Vec<String> {
    let waits = if in_transactions { "BEGIN; SELECT pg_sleep(0.3);" } else { "" };
    let held: Vec<Child> = (0..SESSIONS)
        .map(|_| {
            let mut psql = pooler.psql_command(database);
            for sql in ["SELECT pg_backend_pid()", STATE] {
                // in one message each, so that one session answers both
                psql.args(["-c", &format!("{waits} {sql}")]);
            }
            psql.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs = held.into_iter().map(|child| child.wait_with_output().unwrap());
    outputs
        .map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().last().unwrap_or_default().to_owned()
        })
        .collect()
}

fn by(conninfo: &str, verb: &str, arguments: &[&str]) -> Run {
    run(toastctl().args([verb, "-d", conninfo]).args(arguments))
}

fn sweep(conninfo: &str, more: &[&str]) -> Run {
    let arguments = ["t", "-c", "v", "--toaster", "lz4", "--format", "json"];
    by(conninfo, "retoast", &[&arguments[..], more].concat())
}

/// Clients that ask for something short again and again, until they are killed.
struct Busy(Vec<Child>);

impl Busy {
    fn start(pooler: &Pooler<'_>, database: &Database<'_>) -> Busy {
        let mut ask = vec!["SELECT pg_sleep(0.002)"; 5000].join(";\n");
        ask.push_str(";\n");
        let file = database.server().socket_dir().join("busy.sql");
        std::fs::write(&file, ask).unwrap();
        let client = || {
            let mut psql = pooler.psql_command(database);
            psql.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
            psql.spawn().unwrap()
        };
        Busy((0..4).map(|_| client()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const UNTOUCHED: &str = "SELECT attcompression, (SELECT count(*) FROM t WHERE
    pg_column_compression(v) = 'pglz') FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";

#[test]
fn a_pooler_that_lends_sessions_is_refused_and_its_sessions_stay_as_they_were() {
    let server = Server::start(&Options::default());
    for mode in ["transaction", "statement"] {
        for round_robin in [0, 1] {
            let more = format!("default_pool_size = 8\nserver_round_robin = {round_robin}");
            let pooler = Pooler::start(&server, mode, &more);
            let database = server.create_database("pooled");
            database.psql(TABLE);
            let conninfo = pooler.conninfo(&database);
            let before = states(&pooler, &database, mode == "transaction");
            for is_busy in [false, true] {
                let busy = is_busy.then(|| Busy::start(&pooler, &database));
                for more in [&["--dry-run"][..], &[], &["--jobs", "2"]] {
                    let run = sweep(&conninfo, more);
                    refused(&run, 1, "a connection pooler assigns sessions per transaction");
                }
                let policy = ["t", "--policy", "best"];
                let run = by(&conninfo, "inspect", &policy);
                if mode == "transaction" {
                    assert_eq!(run.code, Some(1), "{}", run.stderr);
                    assert!(run.stderr.contains("connection pooler"), "{}", run.stderr);
                }
                drop(busy);
            }
            assert_eq!(states(&pooler, &database, mode == "transaction"), before);
            assert_eq!(database.psql(UNTOUCHED), "p|200");
            for _ in 0..SESSIONS {
                let written = pooler.psql(&database, "UPDATE t SET id = id WHERE id = 1");
                assert_eq!(written.code, Some(0), "{}", written.stderr);
            }
        }
    }
}

#[test]
fn what_only_reads_works_with_lent_sessions_and_leaves_nothing_there() {
    let server = Server::start(&Options::default());
    let pooler = Pooler::start(&server, "transaction", "default_pool_size = 8");
    let database = server.create_database("read");
    database.psql(TABLE);
    let conninfo = pooler.conninfo(&database);
    let before = states(&pooler, &database, true);
    let busy = Busy::start(&pooler, &database);
    for (verb, arguments) in [
        ("inspect", &["t"][..]),
        ("inspect", &["--source", "functions"]),
        ("inspect", &["t", "--jobs", "3"]),
        ("value", &["t.v@(0,1)"]),
        ("advise-threshold", &["t"]),
        ("advise-threshold", &["t", "--exact"]),
    ] {
        let run = by(&conninfo, verb, arguments);
        assert_eq!(run.code, Some(0), "{verb} {arguments:?}: {}", run.stderr);
    }
    drop(busy);
    assert_eq!(states(&pooler, &database, true), before);
    let left = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'";
    assert_eq!(database.psql(left), "0");
}

#[test]
fn a_pool_of_one_session_is_enough_to_read() {
    let server = Server::start(&Options::default());
    let pooler = Pooler::start(&server, "transaction", "default_pool_size = 1");
    let database = server.create_database("one");
    database.psql(TABLE);
    let conninfo = pooler.conninfo(&database);
    let began = Instant::now();
    for arguments in [&["t"][..], &["t", "t", "--details"], &["t", "--sample", "20 blocks"], &[]] {
        let run = by(&conninfo, "inspect", &[arguments, &["--jobs", "3"]].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let pooler = Pooler::start(&server, "session", "default_pool_size = 1");
    for verb in ["inspect", "check"] {
        let run = by(&pooler.conninfo(&database), verb, &["t"]);
        assert_eq!(run.code, Some(0), "{verb}: {}", run.stderr);
    }
    let limited = format!("{} user=limited", database.conninfo());
    database.psql("CREATE ROLE limited LOGIN CONNECTION LIMIT 1; GRANT SELECT ON t TO limited");
    let run = by(&limited, "inspect", &["t"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

/// PgBouncer 1.18 ends by a client that closes before its cancel request was passed on.
#[test]
fn a_pooler_outlives_a_statement_that_is_stopped() {
    let server = Server::start(&Options::default());
    let pooler = Pooler::start(&server, "transaction", "default_pool_size = 2");
    let database = server.create_database("stopped");
    database.psql(TABLE);
    let lock = Holder::of(&database, "LOCK TABLE t");
    let run = by(&pooler.conninfo(&database), "inspect", &["--max-time", "1s"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    drop(lock);
    let alive = pooler.psql(&database, "SELECT 1");
    assert_eq!(alive.code, Some(0), "{}", alive.stderr);
}

#[test]
fn a_pool_in_session_mode_and_a_plain_proxy_are_as_good_as_the_server() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let pooler = Pooler::start(&server, "session", "");
    let proxy = Proxy::start(server.port());
    let database = server.create_database("session");
    database.psql(TABLE);
    let before = states(&pooler, &database, true);
    let through = format!(
        "host=127.0.0.1 port={} user=postgres dbname={} sslmode=disable",
        proxy.port,
        database.name()
    );
    for (conninfo, toaster) in [(pooler.conninfo(&database), "lz4"), (through, "pglz")] {
        let arguments = ["t", "-c", "v", "--toaster", toaster, "--format", "json"];
        let table = done(&by(&conninfo, "retoast", &arguments));
        assert_eq!(table.rows_stored, 200);
    }
    assert_eq!(states(&pooler, &database, true), before);
}
