//! `retoast` on live tables: contents stay, forms change, and the work ends.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{Run, Signal, run, signal, toastctl};
use crate::server::{self, Database};

/// `toastctl retoast` on `database` as its superuser.
pub(crate) fn command(database: &Database<'_>, arguments: &[&str]) -> Command {
    let mut command = toastctl();
    command.args(["retoast", "-d", &database.url(), "--format", "json"]).args(arguments);
    command
}

pub(crate) fn retoast(database: &Database<'_>, arguments: &[&str]) -> Run {
    run(&mut command(database, arguments))
}

/// The report of a run that must succeed, for one table. Without pages it may have left open whether values are
/// where the choice wants them.
#[track_caller]
pub(crate) fn done(run: &Run) -> Value {
    let code = run.code;
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {}{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["schema"], "toastctl.retoast/1");
    assert_eq!(report["tables"].as_array().unwrap().len(), 1, "{report}");
    let table = report["tables"][0].clone();
    let outcome =
        if table["source"] == "functions" && code == Some(1) { "unverified" } else { "complete" };
    assert_eq!(table["outcome"], outcome, "{table}");
    assert_eq!(code, Some(i32::from(outcome == "unverified")), "{}", run.stderr);
    table
}

/// The run fails with this code and says so.
#[track_caller]
pub(crate) fn refused(run: &Run, code: i32, message: &str) {
    assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(message), "{}", run.stderr);
}

pub(crate) fn with_pageinspect(prefix: &str) -> Database<'static> {
    server::shared().with_pageinspect(prefix)
}

/// Contents of a table row by row, keyed by `id`, as one hash.
pub(crate) fn contents(database: &Database<'_>, table: &str) -> String {
    database.psql(&format!(
        "SELECT count(*), md5(string_agg(md5(t::text), ',' ORDER BY id)) FROM {table} AS t"
    ))
}

/// Form and method of the values of `column` with how many there are, as `inspect` sees them.
pub(crate) fn forms(database: &Database<'_>, table: &str, column: &str) -> Vec<String> {
    let json =
        run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json"]).arg(table))
            .ok();
    let report: Value = serde_json::from_str(&json).unwrap();
    let columns = report["relations"][0]["columns"].as_array().unwrap();
    let column = columns.iter().find(|c| c["column"] == column).unwrap();
    let mut forms: Vec<String> = column["forms"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|form| form["values"] != 0)
        .map(|form| {
            format!(
                "{} {} {}",
                form["form"].as_str().unwrap(),
                form["method"].as_str().unwrap_or("-"),
                form["values"]
            )
        })
        .collect();
    forms.sort();
    forms
}

/// Values of many types, in rows short and long, compressible and not.
pub(crate) const TYPES: &str = "
    CREATE TYPE pair AS (n int, body text, tags text[]);
    CREATE TYPE nest AS (p pair, b bytea);
    CREATE DOMAIN note AS text CHECK (VALUE <> 'never');
    CREATE DOMAIN notes AS text[];
    CREATE DOMAIN pairs AS pair;
    CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT string_agg(md5(seed || '/' || i), '') FROM generate_series(1, n) AS i$$;
    CREATE FUNCTION body(i int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 = 0 THEN 'short ' || i
                      WHEN i % 3 = 0 THEN noise(i, 20 + i * 3) ELSE repeat(md5(i::text), 90 + i * 4) END$$;
    CREATE TABLE t (id int PRIMARY KEY, v text, vc varchar, ch char(12000), b bytea, j jsonb, js json,
        a text[], d note, da notes, c pair, n nest, dp pairs, ts tsvector, x xml, nu numeric, r numrange);
    INSERT INTO t SELECT i, body(i), body(i + 1), body(i), decode(md5(i::text), 'hex') || convert_to(body(i), 'UTF8'),
        jsonb_build_object('k', body(i), 'n', i), json_build_object('k', body(i)),
        ARRAY[body(i), NULL, 'x'], body(i), ARRAY[body(i), 'y'],
        CASE WHEN i % 11 <> 0 THEN ROW(i, body(i), ARRAY[body(i)])::pair END,
        ROW(CASE WHEN i % 4 <> 0 THEN ROW(NULL, body(i), NULL)::pair END, convert_to(body(i + 2), 'UTF8'))::nest,
        CASE WHEN i % 13 = 0 THEN ROW(NULL, NULL, NULL)::pair ELSE ROW(i, body(i), NULL)::pair END,
        to_tsvector('simple', array_to_string(ARRAY(SELECT md5(i || '.' || k) FROM generate_series(1, i) k), ' ')),
        ('<a>' || coalesce(body(i), '') || '</a>')::xml, (repeat('7', 1 + i * 50))::numeric,
        numrange(0, repeat('8', 1 + i * 40)::numeric)
    FROM generate_series(1, 60) AS i;
    -- rows of a table as composite values keep its compressed fields
    CREATE TABLE whole (n int, body text COMPRESSION pglz, tags text[]);
    INSERT INTO whole SELECT i, repeat('in ' || i, 300), NULL FROM generate_series(1, 60) i;
    UPDATE t SET c = (SELECT w::whole::text::pair FROM whole w WHERE w.n = t.id) WHERE id % 6 = 1;";

pub(crate) const COLUMNS: [&str; 16] =
    ["v", "vc", "ch", "b", "j", "js", "a", "d", "da", "c", "n", "dp", "ts", "x", "nu", "r"];

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
        assert_eq!(table["rows_verified"], table["rows_stored"]);
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
        assert_eq!(again["rows_found"], 0, "{toaster}: {again}");
        assert_eq!(again["scans"], 1);
        assert_eq!(again["alter"], Value::Null);
    }
}

#[test]
fn an_owner_without_pages_does_the_same() {
    let database = server::shared().create_database("owner");
    let role = format!("owner_of_{}", database.name());
    database.psql(&format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}"));
    database.psql(&format!("SET ROLE {role}; {TYPES}"));
    let before = contents(&database, "t");
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["--column", column]).collect();
    for toaster in ["lz4", "external", "pglz", "main", "lz4"] {
        let more = [&["t", "-U", &role, "--toaster", toaster], &columns[..]].concat();
        let mut first = toastctl();
        let url = database.url().replace("&user=postgres", "");
        first.args(["retoast", "-d", &url, "--format", "json"]).args(&more);
        let table = done(&run(&mut first));
        assert_eq!(table["source"], "functions");
        assert_eq!(contents(&database, "t"), before, "{toaster}");
        if toaster == "lz4" || toaster == "pglz" {
            let left = database.psql(&format!(
                "SELECT count(*) FROM t WHERE pg_column_compression(v) <> '{toaster}'
                 OR pg_column_compression(j) <> '{toaster}' OR pg_column_compression((c).body) <> '{toaster}'"
            ));
            assert_eq!(left, "0");
        }
        let again = done(&run(&mut first));
        assert_eq!(again["rows_found"], 0, "{toaster}: {again}");
    }
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

/// 60,000 rows, 40,000 of them with a value out of line.
pub(crate) const LARGE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, n int, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, i % 100, CASE WHEN i % 3 > 0 THEN
        (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '') FROM generate_series(1, 90) k) ELSE 's' || i END
    FROM generate_series(1, 60000) i;
    CREATE INDEX ON t (n); VACUUM ANALYZE t;";

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
            (table["before"][part].as_f64().unwrap(), table["peak"][part].as_f64().unwrap());
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
            (table["before"][part].as_f64().unwrap(), table["peak"][part].as_f64().unwrap());
        assert!(peak <= was * 1.10, "two jobs: {part}: from {was} to {peak}: {table}");
    }
    let (updated, hot) = (counts().0 - updated, counts().1 - hot);
    assert!(updated >= 40_000.0 && hot / updated >= 0.7, "two jobs: {hot} of {updated}: {table}");
}

pub(crate) fn spawn(database: &Database<'_>, arguments: &[&str]) -> Child {
    command(database, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills `retoast` with these arguments over a table under updates, again and again; in the end no
/// update is lost, no row is lost or doubled, and none is left to which the condition `left` applies.
pub(crate) fn survives_kills(prefix: &str, arguments: &[&str], left: &str) {
    let database = with_pageinspect(prefix);
    database.psql(LARGE);
    database.psql("ALTER TABLE t ADD COLUMN changes int NOT NULL DEFAULT 0");
    let content = "SELECT count(*), sum(changes), md5(string_agg(md5(id || coalesce(v, '')), '' ORDER BY id)) FROM t";
    let updates = |seed: u32| {
        let mut psql = database.psql_command();
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c"]).arg(format!(
            "DO $$BEGIN FOR i IN 1..1500 LOOP
                UPDATE t SET changes = changes + 1, v = CASE WHEN i % 2 = 0 THEN v || '' ELSE v END
                WHERE id = 1 + (i * {seed}::bigint) % 60000; COMMIT; END LOOP; END$$"
        ));
        psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let before = database.psql(content);
    let clients: Vec<Child> = [7919, 104_729, 15_485_863].map(updates).into_iter().collect();
    for kill in 1..=8 {
        let mut child = spawn(&database, arguments);
        std::thread::sleep(Duration::from_millis(150 + 37 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // the session of a killed client may live on for a moment, with the lock of the table
    done(&retoast(&database, arguments));
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let table = done(&retoast(&database, arguments));
    assert_eq!(table["skipped"].as_array().unwrap().len(), 0);
    let (count, rest) = before.split_once('|').unwrap();
    let expected = format!("{count}|4500|{}", rest.split_once('|').unwrap().1);
    assert_eq!(database.psql(content), expected);
    let left = database.psql(&format!("SELECT count(*) FROM t WHERE {left}"));
    assert_eq!(left, "0");
    let objects = "SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'";
    assert_eq!(database.psql(objects), "0");
}

#[test]
fn killed_again_and_again_and_under_updates_it_loses_nothing_and_ends() {
    survives_kills(
        "killed",
        &["t", "-c", "v", "--toaster", "lz4", "--batch-ms", "20"],
        "pg_column_compression(v) = 'pglz'",
    );
}

#[test]
fn an_interrupt_stops_cleanly_and_says_how_to_go_on() {
    let database = with_pageinspect("stopped");
    database.psql(LARGE);
    let child = spawn(&database, &["t", "-c", "v", "--toaster", "lz4", "--batch-ms", "5"]);
    while database.psql("SELECT count(*) > 0 FROM t WHERE pg_column_compression(v) = 'lz4'") == "f"
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::INT);
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("to go on: ") && stderr.contains("retoast"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["tables"][0]["outcome"], "stopped");
}

#[test]
fn a_time_limit_and_a_wait_too_long_stop_it_and_a_lock_is_waited_for_in_short_tries() {
    let database = with_pageinspect("limits");
    database.psql(LARGE);
    let stop = ["--throttle-query", "SELECT true", "--max-wait", "100ms", "--batch-ms", "1"];
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
    while database.psql(held) == "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = Instant::now();
    let limited =
        retoast(&database, &["t", "-c", "v", "--toaster", "external", "--max-runtime", "2"]);
    assert_eq!(limited.code, Some(4), "{}", limited.stderr);
    assert!(limited.stderr.contains("waiting: no lock"), "{}", limited.stderr);
    assert!(asked.elapsed() < Duration::from_secs(15));
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
    let report: Value = serde_json::from_str(&run.ok()).unwrap();
    let table = &report["tables"][0];
    assert_eq!((&table["outcome"], &table["rows_found"]), (&"planned".into(), &100.into()));
    assert_eq!(table["rows_stored"], 0);
    assert!(table["alter"].as_str().unwrap().contains("SET COMPRESSION lz4"));
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
    let unset = retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--no-alter"]);
    refused(&unset, 2, "--no-alter does not allow");
    database.psql(
        "ALTER TABLE t1 ALTER v SET COMPRESSION lz4; ALTER TABLE t2 ALTER v SET COMPRESSION lz4",
    );
    let run = retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--no-alter"]);
    let report: Value = serde_json::from_str(&run.ok()).unwrap();
    let stored: Vec<_> =
        report["tables"].as_array().unwrap().iter().map(|t| t["rows_stored"].clone()).collect();
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
        let arguments = ["t", "-c", "v", "--toaster", "lz4", "--source", source];
        let run = retoast(&database, &arguments);
        let report: Value = serde_json::from_str(&run.ok()).unwrap();
        for table in report["tables"].as_array().unwrap() {
            assert_eq!(table["outcome"], "complete", "{source}: {table}");
        }
        assert_eq!(contents(&database, "t"), before);
    }
}

#[test]
fn what_stands_against_it_is_refused_with_the_way_out() {
    let database = with_pageinspect("refused");
    let role = format!("plain_{}", database.name());
    database.psql(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE TABLE t (id int PRIMARY KEY, v text, w text GENERATED ALWAYS AS (v || 'w') STORED);
         INSERT INTO t SELECT i, repeat('x', 9000) FROM generate_series(1, 5) i;
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE MATERIALIZED VIEW m AS SELECT * FROM t; CREATE VIEW vw AS SELECT * FROM t;
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
    refused(&to("t", "nothing"), 2, "column \"nothing\" of relation \"public.t\" does not exist");
    refused(&to("t", "id"), 2, "never toasted");
    let unknown = retoast(&database, &["t", "-c", "v", "--toaster", "zstd"]);
    refused(
        &unknown,
        2,
        "no toaster \"zstd\"\nHINT:  A server without pluggable TOAST takes pglz, lz4",
    );

    database.psql("CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()");
    database.psql("ALTER TABLE t ENABLE ALWAYS TRIGGER g");
    refused(&to("t", "v"), 1, "--allow-triggers");
    // the trigger makes every UPDATE void: that is no success
    let allowed = ["t", "-c", "v", "--toaster", "lz4", "--allow-triggers"];
    let failed = retoast(&database, &allowed);
    refused(&failed, 1, "locked rows were updated: a trigger");
    let report: Value = serde_json::from_str(&failed.stdout).unwrap();
    let table = &report["tables"][0];
    assert_eq!((&table["outcome"], &table["rows_found"]), (&"failed".into(), &5.into()));
    database.psql("ALTER TABLE t ENABLE REPLICA TRIGGER g");
    refused(&to("t", "v"), 1, "is enabled REPLICA");
    // an ordinary one is silent
    database.psql("ALTER TABLE t ENABLE TRIGGER g");
    done(&to("t", "v"));

    let lone = database.url().replace("&user=postgres", &format!("&user={role}"));
    let mut by_role = toastctl();
    by_role.args(["retoast", "-d", &lone, "secured", "-c", "v", "--toaster", "lz4"]);
    refused(&run(&mut by_role), 1, "--allow-row-security");

    let mut holder = database
        .psql_command()
        .args(["-c", "SELECT pg_advisory_lock(1953456499, 't'::regclass::oid::int)"])
        .args(["-c", "SELECT pg_sleep(60)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953456499";
    while database.psql(held) == "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&to("t", "v"), 1, "another retoast");
    holder.kill().unwrap();
    holder.wait().unwrap();
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
