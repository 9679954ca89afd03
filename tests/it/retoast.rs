//! `retoast` on live tables: contents stay, forms change, and the work ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::command::{Signal, run, signal, toastctl};
use crate::support::reports::retoast::{Outcome, Report, part_size};
use crate::support::reports::{Printed, Source};
use crate::support::retoast::{
    contents, done, forms, refused, retoast, retoast_as, spawn, survives_kills,
};
use crate::support::server::{self, with_pageinspect};
use crate::support::tables::{COLUMNS, LARGE, TYPES};

#[test]
fn every_toaster_after_every_other_keeps_contents_and_then_touches_nothing() {
    let database = with_pageinspect("toasters");
    database.psql(TYPES);
    let before = contents(&database, "t");
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["--column", column]).collect();
    // each ordered pair of two toasters occurs in this walk
    let walk = [
        "lz4", "pglz", "lz4", "external", "lz4", "main", "lz4", "extended", "pglz", "external",
        "pglz", "main", "pglz", "extended", "external", "main", "external", "extended", "main",
        "extended", "lz4",
    ];
    for toaster in walk {
        let arguments = [&["t", "--verify", "full", "--toaster", toaster], &columns[..]].concat();
        let table = done(&retoast(&database, &arguments));
        assert_eq!(table.rows_verified, table.rows_stored);
        assert_eq!(contents(&database, "t"), before, "{toaster}");
        let others = match toaster {
            "lz4" | "main" | "extended" => "pg_column_compression(V) <> M",
            "pglz" => "pg_column_compression(V) <> 'pglz'",
            _ => "pg_column_compression(V) IS NOT NULL",
        };
        if toaster != "main" && toaster != "extended" {
            for column in COLUMNS {
                let condition = others.replace('V', column).replace('M', "'lz4'");
                let left = database.psql(&format!("SELECT count(*) FROM t WHERE {condition}"));
                assert_eq!(left, "0", "{column} after {toaster}");
            }
        }
        let again = done(&retoast(&database, &arguments));
        assert_eq!(again.rows_found, 0, "{toaster}: {again}");
        assert_eq!(again.scans, 1);
        assert_eq!(again.alter, None);
    }
}

#[test]
fn an_owner_without_pages_does_the_same() {
    let database = server::shared().create_database("owner");
    let role = database.create_owner("owner_of");
    database.psql(&format!("SET ROLE {role}; {TYPES}"));
    let before = contents(&database, "t");
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["--column", column]).collect();
    for toaster in ["lz4", "external", "pglz", "main", "lz4"] {
        let arguments = [&["t", "--toaster", toaster], &columns[..]].concat();
        let table = done(&retoast_as(&database, &role, &arguments));
        assert_eq!(table.source, Source::Functions);
        assert_eq!(contents(&database, "t"), before, "{toaster}");
        if toaster == "lz4" || toaster == "pglz" {
            let left = database.psql(&format!(
                "SELECT count(*) FROM t WHERE pg_column_compression(v) <> '{toaster}'
                 OR pg_column_compression(j) <> '{toaster}' OR pg_column_compression((c).body) <> '{toaster}'"
            ));
            assert_eq!(left, "0");
        }
        let again = done(&retoast_as(&database, &role, &arguments));
        assert_eq!(again.rows_found, 0, "{toaster}: {again}");
    }
}

#[test]
fn a_large_table_hardly_grows_and_its_rows_stay_on_their_pages() {
    // pages of an index are used again only once no transaction of the whole cluster may see them
    let server = server::Server::start(&server::Options::default());
    let database = server.with_pageinspect("growth");
    database.psql(LARGE);
    let before = contents(&database, "t");
    assert!(forms(&database, "t", "v").iter().any(|f| f.starts_with("external_compressed pglz")));
    let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", "lz4"]));
    assert_eq!(contents(&database, "t"), before);
    for part in ["heap", "toast", "indexes"] {
        let (was, peak) =
            (part_size(table.before, part) as f64, part_size(table.peak, part) as f64);
        assert!(peak <= was * 1.10, "{part}: from {was} to {peak}: {table}");
    }
    let counts = || -> (f64, f64) {
        database.psql("SELECT pg_sleep(1), pg_stat_force_next_flush()");
        let hot = database
            .psql("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 't'");
        let (updated, hot) = hot.split_once('|').unwrap();
        (updated.parse().unwrap(), hot.parse().unwrap())
    };
    let (updated, hot) = counts();
    assert!(updated >= 40_000.0 && hot / updated >= 0.7, "{hot} of {updated} HOT: {table}");

    let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", "pglz", "--jobs", "2"]));
    assert_eq!(contents(&database, "t"), before);
    // the first sweep has filled the indexes' pages: now they split
    for part in ["heap", "toast"] {
        let (was, peak) =
            (part_size(table.before, part) as f64, part_size(table.peak, part) as f64);
        assert!(peak <= was * 1.10, "two jobs: {part}: from {was} to {peak}: {table}");
    }
    let (updated, hot) = (counts().0 - updated, counts().1 - hot);
    assert!(updated >= 40_000.0 && hot / updated >= 0.7, "two jobs: {hot} of {updated}: {table}");
}

#[test]
fn killed_again_and_again_and_under_updates_it_loses_nothing_and_ends() {
    survives_kills(
        "killed",
        &["t", "-c", "v", "--toaster", "lz4", "--set", "batch-ms=20"],
        "pg_column_compression(v) = 'pglz'",
    );
}

#[test]
fn an_interrupt_stops_cleanly_and_says_how_to_go_on() {
    let database = with_pageinspect("stopped");
    database.psql(LARGE);
    let child = spawn(&database, &["t", "-c", "v", "--toaster", "lz4", "--set", "batch-ms=5"]);
    database.until("SELECT count(*) > 0 FROM t WHERE pg_column_compression(v) = 'lz4'", |answer| {
        answer != "f"
    });
    signal(&child, Signal::INT);
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("to continue: ") && stderr.contains("retoast"), "{stderr}");
    let report = Printed::<Report>::read(&String::from_utf8(output.stdout).unwrap());
    let table = &report.tables[0];
    assert_eq!(table.outcome, Outcome::Stopped);
    // what the scan has read before rows were stored anew is not what is there now
    assert!(table.rows_stored > 0 && !table.forms_before.is_empty(), "{table}");
    assert!(table.forms_after.is_empty() && !table.gave_up, "{table}");
    assert_eq!(table.rows_left, None, "{table}");
}

/// A compaction that was stopped before it examined a file knows only how large that is.
#[test]
fn a_compaction_stopped_before_it_reads_says_nothing_of_the_files() {
    let database = with_pageinspect("unread");
    database.psql(LARGE);
    let bytes = database
        .psql("SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass");
    let mut people = toastctl();
    let arguments = ["compact", "t", "--throttle-query", "SELECT true", "--set", "max-wait=100ms"];
    people.args(["compact", "-d", &database.url()]).args(&arguments[1..]);
    let stopped = run(&mut people);
    assert_eq!(stopped.code, Some(4), "{}{}", stopped.stdout, stopped.stderr);
    assert!(!stopped.stdout.contains("became 0 bytes"), "{}", stopped.stdout);
    assert!(
        stopped.stdout.contains("compact: TOAST: ") && stopped.stdout.contains(", not examined")
    );
    for file in &retoast(&database, &arguments).table().compaction {
        assert_eq!(file.before.to_string(), bytes, "{file}");
        assert_eq!(file.before, file.after, "{file}");
    }
}

#[test]
fn a_time_limit_and_a_wait_too_long_stop_it_and_a_lock_is_waited_for_in_short_tries() {
    let database = with_pageinspect("limits");
    database.psql(LARGE);
    let stop =
        ["--throttle-query", "SELECT true", "--set", "max-wait=100ms", "--set", "batch-ms=1"];
    let stopped = retoast(&database, &[&["t", "-c", "v", "--toaster", "lz4"][..], &stop].concat());
    assert_eq!(stopped.code, Some(4), "{}", stopped.stderr);
    let mut holder = database
        .psql_command()
        .args(["-c", "BEGIN; LOCK TABLE t IN ACCESS SHARE MODE; SELECT pg_sleep(60)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessShareLock' AND granted
        AND relation = 't'::regclass";
    database.until(held, |answer| answer != "0");
    let asked = Instant::now();
    let limited =
        retoast(&database, &["t", "-c", "v", "--toaster", "external", "--max-runtime", "6"]);
    assert_eq!(limited.code, Some(4), "{}", limited.stderr);
    assert!(limited.stderr.contains("waiting: no lock"), "{}", limited.stderr);
    assert!(asked.elapsed() < Duration::from_secs(20));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_dry_run_changes_nothing() {
    let database = with_pageinspect("dry");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) i",
    );
    let state = "SELECT attcompression, attstorage FROM pg_attribute
        WHERE attrelid = 't'::regclass AND attname = 'v'; SELECT md5(string_agg(ctid::text, '' ORDER BY id)) FROM t";
    let before = database.psql(state);
    let run = retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--dry-run"]);
    let table = run.exits(0).table();
    assert_eq!((table.outcome, table.rows_found), (Outcome::Planned, 100));
    assert_eq!(table.rows_stored, 0);
    assert!(table.alter.as_deref().unwrap().contains("SET COMPRESSION lz4"));
    assert_eq!(database.psql(state), before);
}

#[test]
fn a_partitioned_table_stands_for_its_partitions_and_no_alter_alters_nothing() {
    let database = with_pageinspect("parts");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz) PARTITION BY RANGE (id);
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (50);
         CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (50) TO (200);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) i",
    );
    let before = contents(&database, "t");
    let unset = retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--set", "alter=off"]);
    refused(&unset, 2, "--set alter=off does not allow");
    database.psql(
        "ALTER TABLE t1 ALTER v SET COMPRESSION lz4; ALTER TABLE t2 ALTER v SET COMPRESSION lz4",
    );
    let run = retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--set", "alter=off"]);
    let report = run.exits(0).report::<Report>();
    let stored: Vec<_> = report.tables.iter().map(|t| t.rows_stored).collect();
    assert_eq!(stored, [49, 51]);
    assert_eq!(contents(&database, "t"), before);
    let left = database.psql("SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'");
    assert_eq!(left, "0");
}

/// What the server has to be asked about, it is asked of each table anew.
#[test]
fn partitions_with_values_that_only_the_server_can_judge_are_all_done() {
    let database = with_pageinspect("judged");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION lz4) PARTITION BY RANGE (id);
         ALTER TABLE t ALTER v SET STORAGE external;
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (50);
         CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (50) TO (200);
         INSERT INTO t SELECT i, (SELECT string_agg(chr(33 + (random() * 90)::int), '')
            FROM generate_series(1, 6000 + i)) FROM generate_series(1, 100) i",
    );
    let before = contents(&database, "t");
    for source in ["pageinspect", "functions"] {
        let arguments = ["t", "-c", "v", "--toaster", "lz4", "--set", &format!("source={source}")];
        let run = retoast(&database, &arguments);
        for table in run.exits(0).tables() {
            assert_eq!(table.outcome, Outcome::Complete, "{source}: {table}");
        }
        assert_eq!(contents(&database, "t"), before);
    }
}

#[test]
fn what_stands_against_it_is_refused_with_the_way_out() {
    let database = with_pageinspect("refused");
    let role = database.create_role("plain");
    database.psql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w text GENERATED ALWAYS AS (v || 'w') STORED);
         INSERT INTO t SELECT i, repeat('x', 9000) FROM generate_series(1, 5) i;
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE MATERIALIZED VIEW m AS SELECT * FROM t; CREATE VIEW vw AS SELECT * FROM t;
         CREATE EXTENSION cube; CREATE TABLE plain_only (v tsquery, e cube);
         CREATE TABLE ruled (id int, v text);
         CREATE RULE r AS ON UPDATE TO ruled DO INSTEAD NOTHING;
         CREATE TABLE secured (id int, v text); ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
         GRANT ALL ON secured TO {role};"
    ));
    let to =
        |table: &str, column: &str| retoast(&database, &[table, "-c", column, "--toaster", "lz4"]);
    refused(&to("m", "v"), 1, "REFRESH");
    refused(&to("vw", "v"), 1, "name the tables that it reads");
    refused(&to("pg_catalog.pg_proc", "prosrc"), 1, "system catalog");
    refused(&to("ruled", "v"), 1, "rule \"r\"");
    refused(&to("t", "nothing"), 1, "column \"nothing\" of relation \"public.t\" does not exist");
    refused(&to("t", "id"), 2, "never toasted");
    refused(&to("plain_only", "v"), 2, "never toasted");
    refused(&to("plain_only", "e"), 2, "never toasted");
    let unknown = retoast(&database, &["t", "-c", "v", "--toaster", "zstd"]);
    refused(
        &unknown,
        2,
        "no toaster \"zstd\" on this server\nHINT:  --toaster accepts pglz, lz4, external",
    );

    database.psql("CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()");
    database.psql("ALTER TABLE t ENABLE ALWAYS TRIGGER g");
    refused(&to("t", "v"), 1, "--allow triggers");
    // the trigger makes every UPDATE void: that is no success
    let allowed = ["t", "-c", "v", "--toaster", "lz4", "--allow", "triggers"];
    let failed = retoast(&database, &allowed);
    refused(&failed, 1, "locked rows were updated: a trigger");
    let table = failed.table();
    assert_eq!((table.outcome, table.rows_found), (Outcome::Failed, 5));
    database.psql("ALTER TABLE t ENABLE REPLICA TRIGGER g");
    refused(&to("t", "v"), 1, "is enabled REPLICA");
    // an ordinary one is silent
    database.psql("ALTER TABLE t ENABLE TRIGGER g");
    done(&to("t", "v"));

    let lone = database.url_of(&role);
    let mut by_role = toastctl();
    by_role.args(["retoast", "-d", &lone, "secured", "-c", "v", "--toaster", "lz4"]);
    refused(&run(&mut by_role), 1, "row security hides rows from this user");

    let mut holder = database
        .psql_command()
        .args(["-c", "SELECT pg_advisory_lock(1953456499, 't'::regclass::oid::int)"])
        .args(["-c", "SELECT pg_sleep(60)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    const PID: &str =
        "SELECT max(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953456499
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953456499";
    database.until(held, |answer| answer != "0");
    let refusal = to("t", "v");
    refused(&refusal, 1, &format!("session {} (user ", database.psql(PID)));
    let told = &refusal.stderr;
    assert!(
        told.contains(", psql") && told.contains(" holds the advisory lock of this table"),
        "{told}"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
}
