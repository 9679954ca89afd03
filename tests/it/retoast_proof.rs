//! What `retoast` calls complete is complete, and what it has done it leaves alone.

use std::process::Stdio;
use std::time::Duration;

use toast_format::codec::Method;
use toast_format::disk::Oid;
use toast_format::judge::goal::Goal;
use toast_format::model::sql::Shape;
use toastctl::retoast::preflight::Preflight;
use toastctl::retoast::preflight::owner::Approval;
use toastctl::retoast::preflight::ready::{ConvertRequest, PreparedTable, Task};
use toastctl::retoast::sql::{self, BatchSettings, Target};
use toastctl::retoast::sweep::scanner::Scanner;
use toastctl::retoast::sweep::scanner::{RuleScan, SeenRows};
use toastctl::server::about::Server;
use toastctl::server::connect::Client;

use crate::support::command::run;
use crate::support::library::connect;
use crate::support::retoast::{command, contents, done, forms, refused, retoast};
use crate::support::server::{self, Database, with_pageinspect};
use crate::support::tables::{COLUMNS, TYPES};

/// Looks at table `t`, whose column `v` is to be stored by lz4.
async fn ready(client: &Client, server: &Server, oid: u32) -> PreparedTable {
    let request = ConvertRequest {
        columns: vec!["v".into()],
        goal: Goal::Stock("lz4".parse().unwrap()),
        target: None,
        no_alter: false,
        sets_citus_table: false,
    };
    let approval =
        Approval { allow_triggers: false, trust_owner_code: false, allow_lost_updates: false };
    let task = Task::Convert(&request);
    let preflight = Preflight { client, server, task, approval };
    preflight.table(Oid(oid)).await.unwrap().unwrap()
}

/// How many rows a scan of two halves finds while the only one to do moves from the second to the
/// first.
async fn found_while_it_moves(database: &Database<'_>, with_pages: bool, hold: bool) -> usize {
    database.psql(
        "DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION lz4);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 300) i;
         ALTER TABLE t ALTER v SET COMPRESSION pglz;
         INSERT INTO t VALUES (301, repeat('moves', 2000));
         ALTER TABLE t ALTER v SET COMPRESSION lz4;
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(302, 600) i;
         DELETE FROM t WHERE id < 40; VACUUM t",
    );
    let block = "SELECT (ctid::text::point)[0]::int FROM t WHERE v = repeat('moves', 2000)";
    let split: u32 = database.psql(block).parse().unwrap();
    let (writer, reader) = (connect(database).await, connect(database).await);
    let server = Server::ask(writer.client()).await.unwrap();
    let oid = database.psql("SELECT 't'::regclass::oid").parse().unwrap();
    let ready = ready(writer.client(), &server, oid).await;
    let pages = server.pageinspect.as_ref().filter(|_| with_pages);
    let seen_rows = SeenRows::default();
    let by_rule = RuleScan::new(&seen_rows, None, false);
    let choice = ready.choice.as_ref().unwrap();
    let mut scanner = Scanner::new(&reader, &writer, &server, &ready, choice, pages, by_rule);
    if hold {
        scanner.hold().await.unwrap();
    }
    let mut found = scanner.chunk(0..split).await.unwrap().len();
    database.psql("UPDATE t SET id = 1 WHERE id = 301");
    let now: u32 = database.psql(block).parse().unwrap();
    assert!(now < split, "the row has not moved: {now} and {split}");
    found += scanner.chunk(split..split + 100).await.unwrap().len();
    scanner.release().await.unwrap();
    assert_eq!(scanner.seen.problems, []);
    found
}

#[test]
fn a_row_that_moves_while_it_is_scanned_is_found_in_one_snapshot_only() {
    let database = with_pageinspect("moving");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for with_pages in [true, false] {
        let found = |hold| runtime.block_on(found_while_it_moves(&database, with_pages, hold));
        assert_eq!((found(false), found(true)), (0, 1), "with pages: {with_pages}");
    }
}

#[test]
fn with_every_target_the_second_run_touches_nothing() {
    let database = with_pageinspect("targets");
    database.psql(TYPES);
    let before = contents(&database, "t");
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["--column", column]).collect();
    let walk = [
        ("lz4", "8160"),
        ("lz4", "128"),
        ("pglz", "2032"),
        ("pglz", "300"),
        ("external", "128"),
        ("main", "1000"),
        ("lz4", "4080"),
        ("external", "8160"),
        ("extended", "128"),
    ];
    for (toaster, target) in walk {
        let choice = ["t", "--toaster", toaster, "--target", target];
        for source in ["source=auto", "source=functions"] {
            let arguments = [&choice[..], &["--set", source], &columns].concat();
            done(&retoast(&database, &arguments));
            assert_eq!(contents(&database, "t"), before, "{toaster} {target}");
            let again = done(&retoast(&database, &arguments));
            assert_eq!(again.rows_found, 0, "{toaster} {target} {source}: {again}");
        }
    }
}

#[test]
fn generated_columns_follow_and_can_be_chosen_through_what_they_are_made_of() {
    let database = with_pageinspect("generated");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz, k text,
             n int GENERATED ALWAYS AS (length(v)) STORED,
             w text COMPRESSION pglz GENERATED ALWAYS AS (v || '.' || v) STORED,
             x text COMPRESSION pglz GENERATED ALWAYS AS (k || 'x') STORED);
         INSERT INTO t SELECT i, CASE WHEN i % 5 > 0 THEN repeat(md5(i::text), i * 3) END, repeat('k' || i, i * 40)
         FROM generate_series(1, 200) i",
    );
    let before = contents(&database, "t");
    let left = |column: &str, method: &str| {
        let sql =
            format!("SELECT count(*) FROM t WHERE pg_column_compression({column}) = '{method}'");
        database.psql(&sql)
    };
    for source in ["source=pageinspect", "source=functions"] {
        for (toaster, columns) in [
            ("lz4", &["-c", "v"][..]),
            ("external", &["-c", "w"]),
            ("lz4", &["-c", "w", "-c", "v"]),
        ] {
            let arguments = [&["t", "--toaster", toaster, "--set", source], columns].concat();
            let table = done(&retoast(&database, &arguments));
            assert_eq!(table.rows_stored, table.rows_verified, "{table}");
            assert_ne!(table.rows_stored, 0, "{arguments:?}");
            assert_eq!(contents(&database, "t"), before);
            let again = done(&retoast(&database, &arguments));
            assert_eq!(again.rows_found, 0, "{arguments:?}: {again}");
            if columns == ["-c", "v"] {
                let notes = &table.notes;
                // x is made of another column; functions tell the stock choice nothing of places
                assert_eq!(
                    notes.len(),
                    if source == "source=functions" { 2 } else { 1 },
                    "{table}"
                );
                assert!(notes.iter().any(|note| note.contains("\"w\" is recomputed")));
            }
        }
        assert_eq!(left("w", "pglz"), "0");
        done(&retoast(&database, &["t", "--toaster", "pglz", "-c", "w", "-c", "v"]));
    }
    assert!(forms(&database, "t", "w").iter().any(|form| form.starts_with("compressed pglz")));
    database
        .psql("CREATE TABLE alone (id int, v text GENERATED ALWAYS AS (repeat('x', 9000)) STORED)");
    let alone = retoast(&database, &["alone", "-c", "v", "--toaster", "lz4"]);
    refused(&alone, 1, "does not depend on another column");
}

#[test]
fn the_lock_of_a_run_that_ends_soon_is_waited_for() {
    let database = with_pageinspect("patience");
    database.psql("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, repeat('x', 9000))");
    let mut holder = database
        .psql_command()
        .args(["-c", "SELECT pg_advisory_lock(1953456499, 't'::regclass::oid::int)"])
        .args(["-c", "SELECT pg_sleep(2)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953456499
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    database.until(held, |answer| answer != "0");
    let waited = retoast(&database, &["t", "-c", "v", "--toaster", "lz4"]);
    done(&waited);
    assert!(waited.stderr.contains(" holds the advisory lock of this table"), "{}", waited.stderr);
    holder.wait().unwrap();
}

#[test]
fn a_table_locked_by_somebody_is_said_to_be() {
    let database = server::shared().create_database("locked");
    database.psql("CREATE TABLE t (id int, v text)");
    let mut holder = database
        .psql_command()
        .args(["-c", "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held = "SELECT pid FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
        AND relation = 't'::regclass";
    let pid = loop {
        let pid = database.psql(held);
        if !pid.is_empty() {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut command = command(&database, &["t", "-c", "v", "--toaster", "lz4"]);
    let locked = run(command.env("PGOPTIONS", "-c lock_timeout=300"));
    refused(&locked, 1, &format!("public.t: session {pid} (user postgres, "));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// An update that was sent behind a BEGIN which failed would run by itself, without the batch's settings.
#[test]
fn an_update_whose_transaction_did_not_begin_as_a_batch_stores_nothing() {
    let database = with_pageinspect("unbegun");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat('v', 9000) FROM generate_series(1, 3) i",
    );
    let target = Target {
        name: "v".into(),
        index: 1,
        shape: Shape::Scalar,
        method: Method::Pglz,
        base: None,
        domain: None,
    };
    let all = r#"'{"(0,1)","(0,2)","(0,3)"}'"#;
    let update = sql::update("public.t", &[target]).replace("$1", all);
    let stored = |sql: &str| database.psql(sql).lines().last().unwrap().to_owned();
    assert!(stored(&update).starts_with("0|"));
    let settings = BatchSettings {
        lock_timeout_ms: 100,
        replica_role: true,
        idle_ms: 5000,
        schema: None,
        types: Vec::new(),
        role: None,
    };
    let batch = format!("{}; {update}", sql::begin(&settings));
    assert!(stored(&batch).starts_with("3|"));
    assert_eq!(stored("SELECT count(*) FROM t WHERE ctid <= '(0,3)'"), "3");
}

/// Rows of a table as values, or as elements of an array, keep its compressed fields.
#[test]
fn compressed_fields_inside_composite_values_and_arrays_are_found_and_stored_anew() {
    let database = with_pageinspect("arrays");
    database.psql(
        "CREATE TABLE pair (n int, body text COMPRESSION pglz); CREATE DOMAIN pairs AS pair[];
         CREATE DOMAIN one AS pair; CREATE TYPE outer_pair AS (k int, inside pair[]);
         INSERT INTO pair SELECT i, repeat('b' || i, 1500) FROM generate_series(1, 20) i;
         CREATE TABLE t (id int PRIMARY KEY, v pairs, w text[], x pair, y one[], z outer_pair[]);
         INSERT INTO t SELECT n, ARRAY[p, NULL, ROW(n, NULL)::pair], ARRAY[repeat('w', 9000)], p,
                ARRAY[p]::one[], ARRAY[ROW(n, ARRAY[p])::outer_pair] FROM pair AS p;
         UPDATE t SET v = '{}' WHERE id = 3;
         UPDATE t SET v = NULL, z = ARRAY[NULL::outer_pair] WHERE id = 4;
         UPDATE t SET v = ARRAY[[p], [p]] FROM pair AS p WHERE id = n AND id % 5 = 0;
         UPDATE t SET v[-1] = p FROM pair AS p WHERE id = n AND id % 7 = 0",
    );
    let compressed = "SELECT count(m) FILTER (WHERE c = 'v'), count(m) FILTER (WHERE c = 'y'),
               count(m) FILTER (WHERE c = 'z'), count(m) FILTER (WHERE c = 'x') FROM t, LATERAL (
            SELECT 'x' AS c, pg_column_compression((x).body) AS m UNION ALL
            SELECT 'v', pg_column_compression((e).body) FROM (SELECT unnest(v) AS e) AS r UNION ALL
            SELECT 'y', pg_column_compression(((e)::pair).body) FROM (SELECT unnest(y) AS e) AS r UNION ALL
            SELECT 'z', pg_column_compression(i.body)
            FROM (SELECT unnest(z) AS e) AS r, LATERAL unnest((r.e).inside) AS i) AS inside";
    assert_eq!(database.psql(compressed), "24|20|19|20");
    let before = contents(&database, "t");
    let columns = ["t", "-c", "v", "-c", "w", "-c", "x", "-c", "y", "-c", "z"];
    let arguments = [&columns[..], &["--verify", "full", "--toaster", "external"]].concat();
    let table = done(&retoast(&database, &arguments));
    assert_eq!(contents(&database, "t"), before);
    let left = "column \"y\": in arrays of several dimensions, or with subscripts that do not begin at 1, compressed \
                fields of elements stay as they are";
    assert_eq!((table.notes().as_str(), table.rows_verified), (left, 20), "{table}");
    assert_eq!(database.psql(compressed), "0|0|0|0");
    assert_eq!(done(&retoast(&database, &arguments)).rows_found, 0);
}

/// Generated columns of a function that was replaced since their values were stored.
const REPLACED: &str = "
    CREATE FUNCTION gf(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT length($1)';
    CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, a text, b text COMPRESSION pglz, n int, g int GENERATED ALWAYS AS (gf(a)) STORED,
        h int GENERATED ALWAYS AS (gf(b)) STORED);
    INSERT INTO t (a, b, n) SELECT md5(i::text), repeat(md5(i::text), 100), i FROM generate_series(1, 6000) i;
    DELETE FROM t WHERE n <= 4500; VACUUM t;
    CREATE OR REPLACE FUNCTION gf(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -1'";

#[test]
fn stored_generated_columns_keep_their_values_though_their_functions_were_replaced() {
    let blocks = "SELECT pg_relation_size('t') / 8192";
    for verify in ["sample", "off"] {
        let database = with_pageinspect("replaced");
        database.psql(REPLACED);
        let before = contents(&database, "t");
        let as_found: u64 = database.psql(blocks).parse().unwrap();
        // another column is there to be set
        done(&retoast(&database, &["compact", "t", "--files", "heap", "--verify", verify]));
        assert_eq!(contents(&database, "t"), before, "{verify}");
        assert!(database.psql(blocks).parse::<u64>().unwrap() < as_found / 2);
        let lz4 = ["t", "-c", "b", "--toaster", "lz4", "--verify", verify];
        let changed = "would have changed: the batch was rolled back, and the run ends
HINT:  The UPDATE recomputes generated columns (h). If a result differs from the stored value, a function was \
changed since: recompute these columns first.";
        refused(&retoast(&database, &lz4), 1, changed);
        assert_eq!(contents(&database, "t"), before, "{verify}");
        database.psql("UPDATE t SET b = b");
        done(&retoast(&database, &lz4));
        // the server computes all of them where it knows of such a trigger, though it is silent
        database.psql(&format!(
            "DROP TABLE t; DROP FUNCTION gf; {REPLACED};
             CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fires();
             ALTER TABLE t DISABLE TRIGGER g"
        ));
        refused(
            &retoast(&database, &["compact", "t", "--files", "heap", "--verify", verify]),
            1,
            "columns (g, h)",
        );
        assert_eq!(contents(&database, "t"), before, "{verify}");
        // nothing else can be set
        database.psql("DROP TRIGGER g ON t; ALTER TABLE t DROP n");
        let before = contents(&database, "t");
        refused(
            &retoast(&database, &["compact", "t", "--files", "heap", "--verify", verify]),
            1,
            "columns (g)",
        );
        assert_eq!(contents(&database, "t"), before, "{verify}");
    }
}
