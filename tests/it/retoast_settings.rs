//! What columns were set to before a sweep outlives a kill.

use std::time::Duration;

use crate::support::command::Signal;
use crate::support::retoast::{Running, brake, command, contents, done, retoast, spawn};
use crate::support::server::{Database, with_pageinspect};

/// Storage, compression and comment of the column.
const SETTINGS: &str = "SELECT attstorage::text || attcompression::text,
        col_description(attrelid, attnum)
    FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";

const CHOICE: [&str; 9] =
    ["t", "-c", "v", "--policy", "chunk-saving", "--method", "lz4", "--set", "new-values=extended"];

/// Kills a run as soon as it has set the column to what it needs for its work and has stored rows.
fn kill_at_work(database: &Database<'_>) {
    let stored = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
    let before = database.psql(stored);
    let mut child = spawn(database, &[&CHOICE[..], &["--set", "batch-ms=1"]].concat());
    while database.psql(stored) == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_run_after_a_kill_knows_what_the_columns_were_set_to() {
    let database = with_pageinspect("killedsettings");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE t ALTER v SET STORAGE MAIN; COMMENT ON COLUMN t.v IS 'the user''s';
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20000) AS i",
    );
    let before = contents(&database, "t");
    let tables = "SELECT count(*) FROM pg_class";
    let (settings, relations) = (database.psql(SETTINGS), database.psql(tables));
    assert_eq!(settings, "mp|the user's");
    for kill in 1..=2 {
        kill_at_work(&database);
        let left = database.psql(SETTINGS);
        assert!(left.starts_with("e"), "{kill}: {left}");
        assert!(left.contains("the user's\n[toastctl: "), "{kill}: {left}");
        assert!(left.contains("storage main, compression pglz"), "{kill}: {left}");
    }
    let dry = retoast(&database, &[&CHOICE[..], &["--dry-run"]].concat());
    assert!(
        dry.stdout.contains("before that run, it was set to storage main, compression pglz"),
        "{}",
        dry.stdout
    );
    let run = retoast(&database, &CHOICE);
    let table = done(&run);
    let told = "column \"v\" to storage external, compression pglz; before that run, it was set to storage main";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(table.notes().contains("it was set to storage main"), "{table}");
    assert_eq!(database.psql(SETTINGS), "xl|the user's");
    assert_eq!(contents(&database, "t"), before);
    // of another table or a temporary one nothing is left either
    assert_eq!(database.psql(tables), relations);
    let again = retoast(&database, &CHOICE);
    assert_eq!(done(&again).notes.len(), 0);
    assert!(!again.stderr.contains("killed"), "{}", again.stderr);
}

#[test]
fn undo_knows_what_a_killed_run_has_set() {
    let database = with_pageinspect("killedundo");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE t ALTER v SET STORAGE MAIN; COMMENT ON COLUMN t.v IS 'mine';
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20000) AS i",
    );
    let before = contents(&database, "t");
    kill_at_work(&database);
    assert!(database.psql(SETTINGS).starts_with("e"));
    let undo = "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET STORAGE main, \
                ALTER COLUMN \"v\" SET COMPRESSION pglz";
    // stopped before its first batch
    let stopped = |more: &[&str]| {
        let arguments = [&CHOICE[..], &brake(&database), more].concat();
        let running = Running::start(&mut command(&database, &arguments));
        running.says("is true (--throttle-query)");
        running.signal(Signal::INT);
        let run = running.end();
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        run.table()
    };
    let table = stopped(&["--undo"]);
    assert_eq!((table.undo(), table.undone), (undo, true), "{table}");
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    kill_at_work(&database);
    let table = stopped(&[]);
    assert_eq!((table.undo(), table.undone), (undo, false), "{table}");
    database.psql(table.undo());
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    assert_eq!(contents(&database, "t"), before);
    // and with work done meanwhile
    kill_at_work(&database);
    let stopped = retoast(
        &database,
        &[
            &CHOICE[..],
            &["--max-runtime", "1", "--set", "batch-ms=1", "--set", "nice=20", "--undo"],
        ]
        .concat(),
    );
    assert_eq!(stopped.code, Some(4), "{}", stopped.stderr);
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    assert_eq!(contents(&database, "t"), before);
}
