//! `retoast` next to commands that rewrite the table: VACUUM FULL, CLUSTER, TRUNCATE, ALTER TABLE, REPACK.

use std::process::{Child, Stdio};

use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::retoast::Table;
use crate::support::retoast::{Running, command, contents, done, retoast};
use crate::support::server::{self, Database, Options, Server};
use crate::support::tables::{NOISE, table};

/// Slow enough that others can do something meanwhile.
const SLOWLY: [&str; 6] = ["compact", "t", "--set", "batch-ms=1", "--set", "nice=10"];

/// Bytes of the table's TOAST relation now.
fn toast_bytes(database: &Database<'_>) -> u64 {
    let sql = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass";
    database.psql(sql).parse().unwrap()
}

/// A table of which half is deleted.
fn half_empty(database: &Database<'_>, rows: u32) {
    database.psql(&format!("DROP TABLE IF EXISTS t; {}", table(rows, "noise(i, 200)")));
    database.psql("DELETE FROM t WHERE hashint4(id) % 2 = 0; VACUUM t");
}

/// A compaction that has moved its first rows.
fn under_way(database: &Database<'_>) -> Running {
    let running = Running::start(&mut command(database, &SLOWLY));
    database.until_true("SELECT count(DISTINCT xmin::text) > 3 FROM t");
    running
}

/// What the report says of the files is what they are, and they are compact.
#[track_caller]
fn is_true(database: &Database<'_>, table: &Printed<Table>) {
    let files = &table.compaction;
    assert_eq!(files.len(), 2, "{table}");
    let now = toast_bytes(database);
    assert!(now > 0);
    assert_eq!(files[0].after, now, "{table}");
    assert_eq!(table.after.toast, now, "{table}");
    assert!(files[0].before >= now, "{table}");
    database.rests();
    database.psql("VACUUM FULL t");
    let fresh = toast_bytes(database);
    assert!(now as f64 <= fresh as f64 * 1.05 + 65536.0, "{now}, {fresh} afresh: {table}");
}

#[test]
fn a_rewrite_during_compaction_is_taken_up_and_nothing_is_said_of_old_files() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("rewritten");
    database.psql(NOISE);
    let delete = "DELETE FROM t WHERE hashint4(id * 7) % 3 = 0";
    let anew = "CREATE TEMP TABLE kept AS SELECT * FROM t ORDER BY id; TRUNCATE t; INSERT INTO t SELECT * FROM kept";
    let of_toast = "DO $$BEGIN EXECUTE format('CLUSTER %s USING pg_toast_%s_index', reltoastrelid::regclass, oid)
        FROM pg_class WHERE oid = 't'::regclass; END$$";
    for rewrite in ["ALTER TABLE t SET UNLOGGED", "CLUSTER t USING t_pkey", anew, of_toast] {
        half_empty(&database, 400);
        let running = under_way(&database);
        database.psql(&format!("BEGIN; {rewrite}; {delete}; COMMIT"));
        let before = contents(&database, "t");
        let run = running.end();
        let table = run.table();
        let file = &table.compaction[0];
        let orphans = file.values_without_row;
        if rewrite.contains("CLUSTER") && orphans > 0 {
            // of a row version that somebody still saw CLUSTER copies the values too, which no row leads to then
            assert_eq!((run.code, file.after), (Some(1), toast_bytes(&database)), "{table}");
        } else {
            done(&run);
            is_true(&database, &table);
        }
        assert!(table.notes().contains("was rewritten by another session"), "{rewrite}: {table}");
        assert_eq!(contents(&database, "t"), before, "{rewrite}");
    }
}

#[test]
fn a_table_that_is_rewritten_with_other_columns_ends_compaction() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("other_columns");
    database.psql(NOISE);
    half_empty(&database, 400);
    let running = under_way(&database);
    database.psql("ALTER TABLE t ALTER n TYPE bigint");
    let run = running.end();
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("the type of column \"n\" was changed"), "{}", run.stderr);
    assert!(!run.stdout.contains("\"outcome\":\"complete\""), "{}", run.stdout);
}

/// A command under way in a session of its own.
fn session(database: &Database<'_>, sql: &str) -> Child {
    let mut psql = database.psql_command();
    psql.args(["-q", "-c", sql]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn ends(session: Child) {
    let output = session.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An index whose build waits for whoever holds the advisory lock 7.
const GATED: &str =
    "CREATE OR REPLACE FUNCTION gated(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    $$BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN n; END$$;
    CREATE INDEX gated ON t (gated(n));";

#[test]
fn vacuum_full_and_cluster_under_way_are_named_and_waited_for() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("waits");
    database.psql(NOISE);
    for (rewrite, name) in [("VACUUM FULL t", "VACUUM FULL"), ("CLUSTER t USING t_pkey", "CLUSTER")]
    {
        half_empty(&database, 200);
        database.psql(GATED);
        let gate = Holder::of(&database, "DO $$BEGIN PERFORM pg_advisory_xact_lock(7); END$$");
        let rewriter = session(&database, rewrite);
        let works = "SELECT count(*) = 1 FROM pg_stat_progress_cluster WHERE relid = 't'::regclass
            AND phase = 'rebuilding index'";
        database.until_true(works);
        let said = format!("{name} of this table is under way (PID ");
        let stopped = retoast(&database, &["compact", "t", "--set", "max-wait=300ms"]);
        assert_eq!(stopped.code, Some(4), "{}{}", stopped.stdout, stopped.stderr);
        assert!(stopped.stderr.contains(&said), "{}", stopped.stderr);
        assert!(stopped.stderr.contains("(max-wait)"), "{}", stopped.stderr);
        let running = Running::start(&mut command(&database, &["compact", "t"]));
        running.says(&format!("waiting: {said}"));
        drop(gate);
        ends(rewriter);
        done(&running.end());
    }
}

/// A REPACK (CONCURRENTLY) that cannot begin to copy before the transaction ends that `holder` keeps open.
fn repack<'a>(database: &Database<'a>) -> (Child, Holder) {
    let holder = Holder::of(database, "CREATE TEMP TABLE xid ()");
    let repack = session(database, "REPACK (CONCURRENTLY) t");
    database
        .until_true("SELECT count(*) = 1 FROM pg_stat_progress_repack WHERE relid = 't'::regclass");
    (repack, holder)
}

#[test]
fn repack_concurrently_is_named_and_waited_for() {
    if !server::has_major(19) {
        return;
    }
    let server = Server::start(&Options::major(19));
    let database = server.with_pageinspect("repack");
    database.psql(NOISE);
    let said = "REPACK (CONCURRENTLY) of this table is under way (PID ";

    // before the start, of every kind of work
    for work in [
        &["compact", "t"][..],
        &["t", "-c", "v", "--toaster", "external", "--target", "1000"],
        &["t", "-c", "v", "--policy", "chunk-saving", "--method", "pglz"],
        &["reindex", "t", "--indexes=all"],
    ] {
        half_empty(&database, 300);
        let (repack, holder) = repack(&database);
        let planned = retoast(&database, &[work, &["--dry-run"]].concat());
        assert_eq!(planned.code, Some(0), "{}{}", planned.stdout, planned.stderr);
        assert!(planned.stdout.contains(said), "{work:?}: {}{}", planned.stdout, planned.stderr);
        let stopped = retoast(&database, &[work, &["--set", "max-wait=300ms"]].concat());
        assert_eq!(stopped.code, Some(4), "{work:?}: {}{}", stopped.stdout, stopped.stderr);
        assert!(stopped.stderr.contains(said), "{work:?}: {}", stopped.stderr);
        let running = Running::start(&mut command(&database, work));
        running.says(&format!("waiting: {said}"));
        drop(holder);
        ends(repack);
        let before = contents(&database, "t");
        done(&running.end());
        assert_eq!(contents(&database, "t"), before);
    }

    // on the way
    half_empty(&database, 400);
    let running = under_way(&database);
    let (repack, holder) = repack(&database);
    running.says(&format!("waiting: {said}"));
    let delete = "DELETE FROM t WHERE hashint4(id * 7) % 3 = 0";
    drop(holder);
    ends(repack);
    database.psql(delete);
    let before = contents(&database, "t");
    let table = done(&running.end());
    assert!(table.pause("rewrite").is_some(), "{table}");
    assert_eq!(contents(&database, "t"), before);
    is_true(&database, &table);
}
