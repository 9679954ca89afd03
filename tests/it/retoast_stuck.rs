//! A vacuum that waits for a page which somebody holds.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::command::toastctl;
use crate::support::proxy::Proxy;
use crate::support::server::{Database, Options, Server};

#[test]
fn a_vacuum_that_waits_for_a_pinned_page_is_said_and_given_up() {
    // with a transaction open anywhere, the cursor's snapshot keeps dead rows, and no vacuum is begun
    let server = Server::start(&Options::default());
    let database = server.create_database("pinned");
    pinned(&database, &database.conninfo());
}

/// The vacuum ends when it is to be stopped; what was to stop it comes late, and must not hit a batch.
#[test]
fn what_was_to_stop_a_vacuum_hits_nothing_else() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let proxy = Proxy::with_late_cancels(server.port(), Duration::from_millis(200));
    let database = server.create_database("pinned");
    let name = database.name();
    let through = format!("host=127.0.0.1 port={} user=postgres dbname={name}", proxy.port);
    pinned(&database, &through);
}

/// A sweep over this connection while somebody holds a page that its vacuum wants.
fn pinned(database: &Database<'_>, conninfo: &str) {
    // slow enough that the sweep is under way when the page is taken
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int PRIMARY KEY, a text COMPRESSION pglz) WITH (autovacuum_enabled = off);
         INSERT INTO t SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 800) i;
         DELETE FROM t WHERE id % 2 = 0; ALTER TABLE t ALTER a SET COMPRESSION lz4;
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION slow();
         ALTER TABLE t ENABLE ALWAYS TRIGGER slow",
    );
    let mut holder = database.psql_command();
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    let mut command = toastctl();
    command.args(["retoast", "-d", conninfo, "t", "-c", "a", "--toaster", "lz4"]);
    command.args(["--set", "max-bloat=1%", "--allow", "triggers"]).stdout(Stdio::null());
    let mut sweep = command.stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let done = "SELECT count(*) FROM t WHERE pg_column_compression(a) = 'lz4'";
    while database.psql(done).parse::<u32>().unwrap() < 100 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is re-toasted");
    }
    // an index-only scan keeps the leaf page that it is on; what is dead already may be removed
    input
        .write_all(
            b"SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; BEGIN;\n\
              DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id; FETCH 1 FROM c;\n",
        )
        .unwrap();
    let mut told = String::new();
    let mut holds = Some(input);
    for line in BufReader::new(sweep.stderr.take().unwrap()).lines() {
        told.push_str(&line.unwrap());
        told.push('\n');
        if told.contains("no VACUUM now") {
            holds = None;
        }
    }
    assert_eq!(sweep.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("public.t: waiting: vacuum: process "), "{told}");
    assert!(told.contains("public.t: no VACUUM now, dead rows remain: process "), "{told}");
    let waits =
        ["BufferPin BufferPin", "Buffer BufferCleanup"].map(|on| format!(" waits for {on}"));
    assert!(waits.iter().any(|on| told.contains(on)), "{told}");
    assert!(holds.is_none() && holder.wait().unwrap().success());
    assert_eq!(database.psql(done), "400");
}
