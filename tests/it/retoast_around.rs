//! `retoast` and what is around a table: its plan, subscribers, poolers, triggers, a checkpoint.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::command::{Signal, run, signal, toastctl};
use crate::support::reports::retoast::{Foreseen, Outcome, Report};
use crate::support::retoast::{
    LZ4, PATIENCE, command, contents, done, refused, retoast, retoast_as,
};
use crate::support::server::{self, Options, Server, with_pageinspect};

/// 2,000 rows on 500 pages, each with 3 kB out of line, compressed by pglz.
const TABLE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, pad text, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, repeat('p', 1700), (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 90) k) FROM generate_series(1, 2000) i;
    VACUUM ANALYZE t;";

#[test]
fn a_plan_changes_nothing_and_what_then_happens_lies_within_it() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("plan");
    database.psql(TABLE);
    database.psql(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER quiet BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();
         CREATE TRIGGER always BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();
         ALTER TABLE t ENABLE ALWAYS TRIGGER always;
         ALTER TABLE t REPLICA IDENTITY FULL;
         CREATE PUBLICATION news FOR TABLE t;
         SELECT pg_create_logical_replication_slot('reader', 'pgoutput');",
    );
    let state = "SELECT pg_relation_filenode('t'), attcompression, attstorage FROM pg_attribute
        WHERE attrelid = 't'::regclass AND attname = 'v';
        SELECT md5(string_agg(ctid::text || xmin || xmax, '' ORDER BY id)) FROM t;
        SELECT n_tup_upd, n_tup_ins, vacuum_count FROM pg_stat_user_tables WHERE relname = 't';
        SELECT count(*) FROM pg_class";
    let settled = || database.psql("SELECT pg_sleep(0.2), pg_stat_force_next_flush()");
    settled();
    let before = database.psql(state);
    let more = ["--allow", "triggers", "--dry-run"];
    let planned = retoast(&database, &[&LZ4[..], &more].concat());
    let report = planned.exits(0).report::<Report>();
    settled();
    assert_eq!(database.psql(state), before);
    let table = &report.tables[0];
    let plan = table.plan().clone();
    assert_eq!((table.rows_found, table.outcome), (2000, Outcome::Planned));
    assert_eq!(plan.triggers_fire, ["always"]);
    assert_eq!(plan.triggers_silent, ["quiet"]);
    let replication = plan.replication.join("\n");
    for told in ["reader", "published by news: subscribers receive every row", "identity is full"] {
        assert!(replication.contains(told), "{replication}");
    }
    let statements = plan.statements.join("\n");
    for statement in ["ALTER TABLE ONLY", "ROW EXCLUSIVE MODE", "UPDATE ONLY", "VACUUM (TRUNCATE"] {
        assert!(statements.contains(statement), "{statements}");
    }
    assert!(plan.locks.join("\n").contains("ACCESS EXCLUSIVE"));
    let mut people = toastctl();
    people.args(["retoast", "-d", &database.url()]).args(LZ4).args(more);
    let text = run(&mut people).ok();
    assert!(
        text.contains("\nexpected WAL: ") && text.contains("; files grow meanwhile by "),
        "{text}"
    );
    assert!(text.contains("\ntrigger that will fire: always\n"), "{text}");

    let run = retoast(&database, &[&LZ4[..], &["--allow", "triggers"]].concat());
    let table = done(&run);
    assert_eq!(table.plan, None);
    let within = |value: u64, range: Foreseen| {
        assert!((range.low..=range.high).contains(&value), "{value} is not in {range:?}: {table}");
    };
    within(table.wal_bytes.unwrap(), plan.wal_bytes);
    within(table.peak.sum() - table.before.sum(), plan.growth_bytes);
    // the same machine may be many times as busy by then
    assert!(plan.seconds.low <= table.elapsed_ms / 1000);
    assert!(plan.seconds.high > 0, "{plan}");
    let again = retoast(&database, &[&LZ4[..], &more].concat());
    let report = again.exits(0).report::<Report>();
    assert_eq!(report.tables[0].plan().wal_bytes.high, 0);
    database.psql("SELECT pg_drop_replication_slot('reader')");
}

#[test]
fn a_wait_for_a_lock_is_measured() {
    let database = with_pageinspect("waits");
    database.psql("CREATE TABLE t (id int, v text COMPRESSION pglz)");
    database
        .psql("INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 50) i");
    let mut holder = database
        .psql_command()
        .args(["-c", "BEGIN; LOCK TABLE t IN SHARE MODE; SELECT pg_sleep(1.5)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held =
        "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND relation = 't'::regclass";
    database.until(held, |answer| answer != "0");
    let table = done(&retoast(&database, &[&LZ4[..], &["--set", "lock-timeout=150"]].concat()));
    holder.wait().unwrap();
    let wait = table.longest_lock_wait_ms;
    assert!((150..1500).contains(&wait), "{table}");
}

#[test]
fn subscribers_with_origin_none_get_nothing_of_a_sweep_with_an_origin() {
    // CREATE SUBSCRIPTION knows the parameter origin since 16
    let major = 16;
    if !server::has_major(major) {
        return;
    }
    let server = Server::start(&Options::major(major));
    let database = server.create_database("publisher");
    let there = server.create_database("subscriber");
    let table = "CREATE TABLE t (id int PRIMARY KEY, v text STORAGE extended)";
    database.psql(&format!(
        "{table}; INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 200) i;
         CREATE PUBLICATION p FOR TABLE t;
         SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
    ));
    there.psql(&format!(
        "{table}; CREATE TABLE got (id int);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO public.got VALUES (NEW.id); RETURN NEW; END';
         CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();
         ALTER TABLE t ENABLE ALWAYS TRIGGER g;
         CREATE SUBSCRIPTION s CONNECTION '{}' PUBLICATION p
            WITH (create_slot = false, slot_name = 's', origin = none)",
        database.conninfo()
    ));
    let wait = |query: &str, expected: &str| {
        let began = Instant::now();
        while there.psql(query) != expected {
            assert!(
                began.elapsed() < PATIENCE,
                "{query} gives {}: {}",
                there.psql(query),
                server.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait("SELECT count(*) FROM t", "200");
    wait("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", "0");
    let to = |toaster: &str, more: &[&str]| {
        let arguments = ["t", "-c", "v", "--toaster", toaster];
        retoast(&database, &[&arguments[..], more].concat())
    };
    let origin = ["--set", "replication-origin=quiet"];
    refused(&to("external", &origin), 1, "origin \"quiet\" does not exist\nHINT:  Create it with");
    assert_eq!(
        database.psql("SELECT count(*) FROM pg_replication_origin WHERE roname = 'quiet'"),
        "0"
    );
    database.psql("SELECT pg_replication_origin_create('quiet')");
    assert_eq!(done(&to("external", &origin)).rows_stored, 200);
    // whatever was written before has come when this has
    database.psql("UPDATE t SET id = -1 WHERE id = 1");
    wait("SELECT count(*) FROM t WHERE id = -1", "1");
    assert_eq!(there.psql("SELECT string_agg(id::text, ',') FROM got"), "-1");
    assert_eq!(done(&to("pglz", &[])).rows_stored, 200);
    wait("SELECT count(*) FROM got", "201");
    assert_eq!(contents(&there, "t"), contents(&database, "t"));
    // the session has given the origin back
    database.psql("SELECT pg_replication_origin_drop('quiet')");
    there.psql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = none); DROP SUBSCRIPTION s");
    let free = "SELECT count(*) FROM pg_replication_slots WHERE active";
    wait(free, "0");
    database.psql("SELECT pg_drop_replication_slot('s')");
}

/// A message of the protocol: its type and all its bytes.
fn message(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut all = vec![0; 5];
    stream.read_exact(&mut all).ok()?;
    let len = u32::from_be_bytes(all[1..5].try_into().unwrap()) as usize;
    all.resize(len + 1, 0);
    stream.read_exact(&mut all[5..]).ok()?;
    Some((all[0], all))
}

/// Serves one client as a pooler in transaction mode would: with two sessions in turn.
fn serve(mut client: TcpStream, socket: &Path) -> Option<()> {
    const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
    let startup = loop {
        let mut head = [0; 8];
        client.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
        if ENCRYPTION_REQUESTS.contains(&u32::from_be_bytes(head[4..].try_into().unwrap())) {
            client.write_all(b"N").ok()?;
            continue;
        }
        let mut all = head.to_vec();
        all.resize(len, 0);
        client.read_exact(&mut all[8..]).ok()?;
        break all;
    };
    let mut sessions = Vec::new();
    for first in [true, false] {
        let mut session = UnixStream::connect(socket).ok()?;
        session.write_all(&startup).ok()?;
        loop {
            let (kind, bytes) = message(&mut session)?;
            if first {
                client.write_all(&bytes).ok()?;
            }
            if kind == b'Z' {
                break;
            }
        }
        sessions.push(session);
    }
    let mut turn = 0;
    loop {
        let (kind, bytes) = message(&mut client)?;
        sessions[turn].write_all(&bytes).ok()?;
        if kind == b'X' {
            return None;
        }
        if !matches!(kind, b'Q' | b'S') {
            continue;
        }
        loop {
            let (kind, bytes) = message(&mut sessions[turn])?;
            client.write_all(&bytes).ok()?;
            if kind == b'Z' {
                if bytes[5] == b'I' {
                    turn = 1 - turn;
                }
                break;
            }
        }
    }
}

#[test]
fn a_pooler_in_transaction_mode_is_refused() {
    let database = with_pageinspect("pooled");
    database.psql("CREATE TABLE t (id int, v text)");
    let server = database.server();
    let socket = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let socket = socket.clone();
            std::thread::spawn(move || serve(client, &socket));
        }
    });
    let mut pooled = toastctl();
    pooled.args(["retoast", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
    pooled.args(["-d", database.name()]).args(LZ4);
    refused(&run(&mut pooled), 1, "a connection pooler assigns sessions per transaction\nHINT:");
}

#[test]
fn triggers_that_this_user_cannot_silence_are_refused_and_fire_where_allowed() {
    let database = server::shared().create_database("loud");
    let role = database.create_owner("loud");
    database.psql(&format!(
        "SET ROLE {role}; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz, n int DEFAULT 0);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20) i;
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := OLD.n + 1; RETURN NEW; END';
         CREATE TRIGGER loud BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()"
    ));
    let by_role = |more: &[&str]| retoast_as(&database, &role, &[&LZ4[..], more].concat());
    refused(
        &by_role(&[]),
        1,
        "trigger \"loud\" cannot be kept from firing, because this user may not set",
    );
    assert_eq!(database.psql("SELECT sum(n) FROM t"), "0");
    done(&by_role(&["--allow", "triggers"]));
    assert_eq!(database.psql("SELECT count(*), min(n) FROM t WHERE n > 0"), "20|1");
}

#[test]
fn a_checkpoint_is_gone_on_from_and_the_last_scan_is_whole_all_the_same() {
    let database = with_pageinspect("checkpoint");
    database.psql(TABLE);
    let before = contents(&database, "t");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at");
    let path = file.to_str().unwrap();
    let with = |more: &[&'static str]| -> Vec<String> {
        let words = [&LZ4[..], &["--checkpoint", path], more].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let words = |words: &[String]| -> Command {
        command(&database, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // the place is saved once a second: half of the table has to take longer
    let mut child = words(&with(&["--set", "nice=5", "--set", "batch-ms=10"]));
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let block = || -> Option<u64> {
        let saved: Value = serde_json::from_slice(&std::fs::read(&file).ok()?).unwrap();
        saved["tables"][0]["block"].as_u64()
    };
    let began = Instant::now();
    while block().is_none_or(|block| block < 256) {
        let is_late = began.elapsed() > PATIENCE || child.try_wait().unwrap().is_some();
        if is_late {
            signal(&child, Signal::INT);
            panic!("{:?}: {:?}", block(), child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::INT);
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(4), "{}", String::from_utf8_lossy(&stopped.stderr));
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("--checkpoint"));
    let (at, stored) =
        (block().unwrap(), "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'pglz'");
    assert!(at >= 256 && database.psql(stored) != "0");
    // what is undone behind the checkpoint is found by the scan that proves
    database
        .psql("ALTER TABLE t ALTER v SET COMPRESSION pglz; UPDATE t SET v = v || '' WHERE id <= 5");

    let foreign = ["t", "-c", "v", "--toaster", "external", "--checkpoint", path];
    refused(
        &retoast(&database, &foreign),
        2,
        &format!("\"{path}\" belongs to another run: v to lz4"),
    );
    let again = run(&mut words(&with(&["--set", "progress=json"])));
    let first: Value = again
        .stderr
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|line| line["event"] == "progress")
        .unwrap();
    assert_eq!((&first["scan"], &first["blocks_read"]), (&1.into(), &at.into()));
    let table = done(&again);
    assert!(table.scans >= 2, "{table}");
    assert_eq!(database.psql(stored), "0");
    assert_eq!(contents(&database, "t"), before);
    assert!(!file.exists());
    std::fs::write(&file, "nonsense").unwrap();
    let bad = run(&mut words(&with(&[])));
    refused(&bad, 2, &format!("file \"{path}\" is not a checkpoint of toastctl retoast"));
}
