//! `retoast --policy` beside writers, and `--since` after what makes its file untrue.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::retoast::{contents, done, retoast};
use crate::support::server::{Database, Options, Server, with_pageinspect};

/// 300 rows whose values take five chunks, and can be compressed.
const ROWS: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v text);
    INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 300) AS i";

/// Values that are compressed.
const COMPRESSED: &str = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NOT NULL";

/// Nothing is to be compressed, and the table's own settings compress: a rewrite undoes the sweep.
const NEVER: [&str; 7] = ["t", "-c", "v", "--policy", "never", "--set", "new-values=extended"];

fn since(database: &Database<'_>, choice: &[&str], file: &Path) -> Run {
    retoast(database, &[choice, &["--since", file.to_str().unwrap()]].concat())
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Changes the one entry of the file.
fn tamper(file: &Path, field: &str, value: &Value) {
    let mut memory = read(file);
    let tables = memory["tables"].as_object_mut().unwrap();
    assert_eq!(tables.len(), 1, "{tables:?}");
    for proven in tables.values_mut() {
        assert_ne!(proven[field], Value::Null, "{proven}");
        assert_ne!(proven[field], *value, "{proven}");
        proven[field] = value.clone();
    }
    std::fs::write(file, memory.to_string()).unwrap();
}

#[test]
fn after_a_rewrite_the_file_is_not_believed_and_says_so() {
    let database = with_pageinspect("sincerewritten");
    database.psql(ROWS);
    database.psql("ALTER TABLE t ALTER v SET COMPRESSION lz4");
    let before = contents(&database, "t");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    assert_eq!(done(&since(&database, &NEVER, &file)).rows_stored, 300);
    assert_eq!(database.psql(COMPRESSED), "0");
    for rewrite in ["VACUUM FULL t", "CLUSTER t USING t_pkey", "ALTER TABLE t SET UNLOGGED"] {
        database.psql(rewrite);
        let undone: u64 = database.psql(COMPRESSED).parse().unwrap();
        assert_eq!(undone, 300, "{rewrite}");
        let run = since(&database, &NEVER, &file);
        let table = done(&run);
        assert_eq!(table.rows_stored, undone, "{rewrite}: {table}");
        assert!(run.stderr.contains("the table has been rewritten"), "{rewrite}: {}", run.stderr);
        assert_eq!(database.psql(COMPRESSED), "0", "{rewrite}");
        assert_eq!(contents(&database, "t"), before, "{rewrite}");
        // written anew, the file is believed again
        let again = since(&database, &NEVER, &file);
        assert_eq!(done(&again).rows_found, 0);
        assert!(!again.stderr.contains("--since"), "{}", again.stderr);
    }
    for anew in [
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION lz4)",
        "TRUNCATE t",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v text COMPRESSION lz4",
    ] {
        database.psql(anew);
        let run = since(&database, &NEVER, &file);
        done(&run);
        assert!(run.stderr.contains("--since"), "{anew}: {}", run.stderr);
        done(&since(&database, &NEVER, &file));
    }
}

#[test]
fn rows_that_were_frozen_meanwhile_are_told_from_those_written_since() {
    let database = with_pageinspect("sincefrozen");
    database.psql(ROWS);
    database.psql("CREATE EXTENSION pg_surgery");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    let choice = ["t", "-c", "v", "--policy", "always", "--method", "lz4"];
    done(&since(&database, &choice, &file));
    for source in ["source=pageinspect", "source=functions"] {
        // frozen by force: what is left of the inserting transaction says nothing of when
        database.psql(
            "INSERT INTO t SELECT max(id) + 1, repeat('frozen', 3000) FROM t;
             SELECT heap_force_freeze('t', (SELECT array_agg(ctid) FROM t WHERE v LIKE 'frozen%'));
             INSERT INTO t SELECT max(id) + 1, repeat('vacuumed', 3000) FROM t; VACUUM FREEZE t",
        );
        let choice = [&choice[..], &["--set", source]].concat();
        let run = since(&database, &choice, &file);
        assert_eq!(done(&run).rows_stored, 2, "{source}");
        assert!(!run.stderr.contains("--since"), "{}", run.stderr);
        let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NULL";
        assert_eq!(database.psql(left), "0");
        let again = done(&since(&database, &choice, &file));
        assert_eq!(again.rows_found, 0, "{source}: {again}");
    }
}

#[test]
fn a_file_that_does_not_fit_the_cluster_is_ignored_with_the_reason() {
    let database = with_pageinspect("sincefile");
    database.psql(ROWS);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    let choice = ["t", "-c", "v", "--policy", "always", "--method", "lz4"];
    done(&since(&database, &choice, &file));
    let number = |sql: &str| -> u64 { database.psql(sql).lines().last().unwrap().parse().unwrap() };
    let unseen = "INSERT INTO t SELECT max(id) + 1, repeat('unseen', 3000) FROM t;
        SELECT pg_current_xact_id()";
    let wal = number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') + 1000000000");
    let cases = [
        ("filenode", 1.into(), "has been rewritten"),
        ("system", "1".into(), "another cluster"),
        ("database", 1.into(), "re-created"),
        ("timeline", 7.into(), "another timeline"),
        ("wal", wal.into(), "restored to an earlier time"),
        ("xid", (number(unseen) + 1_000_000).into(), "restored to an earlier time"),
        ("choice", "never".into(), "another choice"),
    ];
    done(&since(&database, &choice, &file));
    for (field, value, reason) in &cases {
        // a row that the file counts as seen is left alone as long as the file is believed
        tamper(&file, "xid", &number(unseen).into());
        assert_eq!(done(&since(&database, &choice, &file)).rows_found, 0, "{field}");
        tamper(&file, field, value);
        let run = since(&database, &choice, &file);
        let table = done(&run);
        assert_eq!(table.rows_stored, 1, "{field}: {}", run.stderr);
        assert!(run.stderr.contains(reason), "{field}: {}", run.stderr);
        assert!(table.notes().contains(reason), "{field}: {table}");
    }
}

#[test]
fn after_a_failover_the_file_is_not_believed() {
    let server = Server::start(&Options::default().set("max_wal_senders", "4"));
    let database = server.with_pageinspect("failover");
    database.psql(ROWS);
    let standby = server.start_standby();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    let choice = ["t", "-c", "v", "--policy", "always", "--method", "lz4"];
    done(&since(&database, &choice, &file));
    let there = standby.database(database.name());
    let end = database.psql("SELECT pg_current_wal_insert_lsn()");
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
    there.until(&caught_up, |answer| answer == "t");
    there.psql("SELECT pg_promote()");
    let run = since(&there, &choice, &file);
    assert_eq!(done(&run).rows_found, 0);
    assert!(run.stderr.contains("another timeline"), "{}", run.stderr);
    let again = since(&there, &choice, &file);
    done(&again);
    assert!(!again.stderr.contains("--since"), "{}", again.stderr);
}

/// A session that writes values that can be compressed until it is stopped, for a minute at the most.
fn writer(database: &Database<'_>) -> Child {
    let mut psql = database.psql_command();
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c"]).arg(
        "DO $$DECLARE until timestamptz := clock_timestamp() + '60s';
         BEGIN
             WHILE clock_timestamp() < until AND NOT EXISTS (SELECT FROM stop) LOOP
                 INSERT INTO t (v) VALUES (repeat(md5(clock_timestamp()::text), 300)); COMMIT;
                 UPDATE t SET v = repeat(md5(clock_timestamp()::text), 310)
                 WHERE id = 1 + floor(random() * 50); COMMIT;
                 PERFORM pg_sleep(0.005);
             END LOOP;
         END$$",
    );
    psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_policy_beside_a_writer_ends_and_leaves_to_the_next_run_what_came_meanwhile() {
    let database = with_pageinspect("policywriter");
    database.psql(
        "CREATE TABLE stop (); CREATE TABLE t (id serial PRIMARY KEY, v text);
         ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
         INSERT INTO t (v) SELECT repeat(md5(i::text), 300) FROM generate_series(1, 3000) AS i",
    );
    let first: u64 = database.psql("SELECT max(id) FROM t").parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    // no vacuum but one for each scan
    let choice =
        ["t", "-c", "v", "--policy", "always", "--method", "lz4", "--set", "max-bloat=1000%"];
    let mut writing = writer(&database);
    database.until("SELECT count(*) > 3010 FROM t", |answer| answer == "t");
    for source in ["source=pageinspect", "source=functions"] {
        let choice = [&choice[..], &["--set", source]].concat();
        let run = since(&database, &choice, &file);
        assert!(writing.try_wait().unwrap().is_none(), "{source}: it ended only with the writer");
        let table = done(&run);
        assert!(table.scans <= 4, "{source}: {table}");
        assert!(table.vacuums <= 4, "{source}: {table}");
        // what is left came from the writer, none of it from the run itself
        let uncompressed = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NULL";
        let most: u64 = database.psql(uncompressed).parse().unwrap();
        let newer = table.rows_written_since;
        assert!(newer > 0 && newer <= most, "{source}: {newer} of {most}: {table}");
    }
    let text = run(toastctl().args(["retoast", "-d", &database.url()]).args(choice)).ok();
    assert!(
        text.contains(" written during the run ") && text.contains(" left to the next run"),
        "{text}"
    );
    database.psql("INSERT INTO stop DEFAULT VALUES");
    assert!(writing.wait().unwrap().success());
    // what was there at first and was not written to is as the policy wants it
    let left = format!(
        "SELECT count(*) FROM t WHERE id BETWEEN 51 AND {first} AND pg_column_compression(v) IS NULL"
    );
    assert_eq!(database.psql(&left), "0");
    // the next run has the new rows alone
    let new: u64 = database
        .psql("SELECT count(*) FROM t WHERE pg_column_compression(v) IS NULL")
        .parse()
        .unwrap();
    assert!(new > 0);
    let table = done(&since(&database, &choice, &file));
    assert_eq!(table.rows_stored, new, "{table}");
    assert_eq!((table.rows_written_since, table.scans), (0, 2), "{table}");
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NULL";
    assert_eq!(database.psql(left), "0");
    let nothing = done(&since(&database, &choice, &file));
    assert_eq!((nothing.rows_found, nothing.scans), (0, 1));
}
