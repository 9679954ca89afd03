//! What a dry run says a run will write and by how much files will grow, compared with what the run then does.

use serde_json::Value;
use toast_format::model::wal::vacuum_wal;

use crate::support::command::Run;
use crate::support::reports::retoast::Foreseen;
use crate::support::retoast::{done, retoast};
use crate::support::server::{Database, Options, Server, available_majors};

/// Text of hexadecimal digits and words, of which compression leaves about half, and documents.
const CONTENT: &str = "CREATE EXTENSION pageinspect;
    CREATE FUNCTION words(seed int, bytes int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT left(string_agg(md5((seed * 7919 + k)::text) || ' and what other rows have', ''), bytes)
        FROM generate_series(1, bytes / 57 + 1) AS k $$;
    CREATE FUNCTION document(seed int, bytes int) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
        SELECT jsonb_object_agg('attribute_' || k, CASE k % 3
            WHEN 0 THEN to_jsonb(md5((seed * 7919 + k)::text)) WHEN 1 THEN to_jsonb(seed * k % 1000)
            ELSE to_jsonb('value ' || (seed + k) % 50) END)
        FROM generate_series(1, bytes / 37 + 1) AS k $$;";

/// A server on which no other session writes, and no checkpoint comes by itself.
fn quiet_server() -> Server {
    quiet(Options::default())
}

fn quiet(options: Options) -> Server {
    let quiet = [("autovacuum", "off"), ("checkpoint_timeout", "1h"), ("max_wal_size", "8GB")];
    Server::start(&quiet.iter().fold(options, |all, (name, value)| all.set(name, value)))
}

fn wal(database: &Database<'_>) -> u64 {
    let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";
    database.psql(sql).trim().parse().unwrap()
}

/// Whether WAL is within 25 % of what was predicted, or within half a megabyte.
fn is_near(predicted: u64, actual: u64) -> bool {
    predicted.abs_diff(actual) <= (actual / 4).max(512 << 10)
}

/// Whether growth is between the least and the most that are printed, or short of the least by little: batches leave up to
/// a megabyte of old values before anything is vacuumed. On a busy machine vacuums come late, so that the estimate is for
/// an idle one.
fn grows_near(predicted: Foreseen, actual: u64) -> bool {
    let Foreseen { low, estimate, high, .. } = predicted;
    actual <= high && actual >= low.min(estimate.saturating_sub(3 << 19))
}

/// Makes table t, plans, runs, and compares. Returns the forecast of WAL.
#[track_caller]
fn comes_true(database: &Database<'_>, make: &str, arguments: &[&str]) -> Foreseen {
    database.psql(&format!("DROP TABLE IF EXISTS t; {make}; VACUUM (ANALYZE) t"));
    let arguments = [&["t", "-c", "v"], arguments].concat();
    let planned = retoast(database, &[&arguments[..], &["--dry-run"]].concat()).exits(0).table();
    let plan = planned.plan();
    let before = wal(database);
    let run = retoast(database, &[&arguments[..], &["--set", "progress=json"]].concat());
    let written = wal(database) - before;
    let table = done(&run);
    is_done_at_its_end(&run);
    let grown = table.peak.sum() - table.before.sum();
    assert!(is_near(plan.wal_bytes.estimate, written), "WAL: {written} written: {plan} {table}");
    assert!(grows_near(plan.growth_bytes, grown), "growth: {grown} actual: {plan} {table}");
    // before a run, only a sample of pages is read
    let predicted = table.predicted.unwrap();
    assert!(is_near(predicted.wal_bytes.estimate, written), "WAL: {written} written: {table}");
    assert!(grows_near(predicted.growth_bytes, grown), "growth: {grown} actual: {table}");
    assert_eq!(predicted.wal_bytes_actual, table.wal_bytes);
    assert_eq!(predicted.growth_bytes_actual, grown);
    let Foreseen { low, estimate, high, .. } = plan.wal_bytes;
    assert!(low <= estimate && estimate <= high, "{plan}");
    plan.wal_bytes
}

/// Progress is not at its end before the scan that proves that nothing is left.
#[track_caller]
fn is_done_at_its_end(run: &Run) {
    let lines = run.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for line in lines.filter(|line| line["event"] == "progress" && !line["done"].is_null()) {
        let done = line["done"].as_f64().unwrap();
        assert!(done < 1.0 || line["scan"].as_u64() > Some(1), "{line}");
    }
}

#[test]
fn indexes_of_documents_are_foreseen() {
    let server = quiet_server();
    let database = server.create_database("forecast_gin");
    database.psql(CONTENT);
    for option in ["on", "off"] {
        let wal = comes_true(
            &database,
            &format!(
                "CREATE TABLE t (k int PRIMARY KEY, v jsonb COMPRESSION pglz);
                 INSERT INTO t SELECT i, document(i, 3500) FROM generate_series(1, 2000) AS i;
                 CREATE INDEX gin ON t USING gin (v) WITH (fastupdate = {option})"
            ),
            &["--toaster", "lz4"],
        );
        assert!(wal.indexes > wal.estimate / 2, "{wal:?}");
    }
}

#[test]
fn several_indexes_are_foreseen() {
    let server = quiet_server();
    let database = server.create_database("forecast_btree");
    database.psql(CONTENT);
    comes_true(
        &database,
        "CREATE TABLE t (id int PRIMARY KEY, k int, n int, name text, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, i * 7919 % 1000003, i % 1000, 'Name ' || md5(i::text), words(i, 3000)
            FROM generate_series(1, 8000) AS i;
         CREATE INDEX ON t (k); CREATE INDEX ON t (n, id); CREATE INDEX ON t (name); CREATE INDEX ON t (left(v, 8))",
        &["--toaster", "lz4"],
    );
}

#[test]
fn compaction_and_rebuilding_are_foreseen() {
    let server = quiet_server();
    let database = server.create_database("forecast_compact");
    database.psql(CONTENT);
    let wal = comes_true(
        &database,
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, words(i, 12000) FROM generate_series(1, 3000) AS i",
        &["--toaster", "lz4", "--compact", "--reindex"],
    );
    assert!(wal.compaction > 0 && wal.rebuild > 0, "{wal:?}");
}

/// What deleted rows have left of the TOAST relation is filled before it grows; rows that leave full pages go where
/// others have left pages.
#[test]
fn free_space_is_foreseen() {
    let server = quiet_server();
    let database = server.create_database("forecast_free");
    database.psql(CONTENT);
    comes_true(
        &database,
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, words(i, 12000) FROM generate_series(1, 6000) AS i;
         DELETE FROM t WHERE id % 3 > 0;
         -- or the statistics would have these rows as dead after the VACUUM
         SELECT pg_stat_force_next_flush()",
        &["--toaster", "lz4"],
    );
    comes_true(
        &database,
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE t ALTER v SET STORAGE main;
         INSERT INTO t SELECT i, words(i, 2000 + i * 7919 % 3000) FROM generate_series(1, 8000) AS i",
        &["--toaster", "main=lz4"],
    );
}

/// Windows are larger than eight pages here. The TOAST relation is so large that it is vacuumed early.
#[test]
fn values_of_which_half_stay_in_the_row_are_foreseen() {
    let server = quiet_server();
    let database = server.create_database("forecast_in_row");
    database.psql(CONTENT);
    comes_true(
        &database,
        "CREATE TABLE t (id int PRIMARY KEY, n int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, i % 100, words(i, 200 + (8800 * power(i * 7919 % 1000 / 1000.0, 1.7))::int)
            FROM generate_series(1, 44000) AS i;
         CREATE INDEX ON t (n)",
        &["--toaster", "lz4"],
    );
}

/// Versions fill pages before rows leave them: of short rows many, of long ones few, and not all rows are re-toasted.
#[test]
fn compaction_of_rows_of_different_sizes_is_foreseen() {
    for major in available_majors() {
        let server = quiet(Options::major(major));
        let database = server.create_database("forecast_mixed");
        database.psql(CONTENT);
        let wal = comes_true(
            &database,
            "CREATE TABLE t (id int, v jsonb);
             INSERT INTO t SELECT i, document(i, 500 + i * 7919 % 6000) FROM generate_series(1, 5700) AS i",
            &["--toaster", "pglz", "--target", "256", "--compact"],
        );
        assert!(wal.compaction > 1_000_000, "PostgreSQL {major}: {wal:?}");
    }
}

/// What VACUUM writes of a page, on each major version: with and without indexes, of deleted rows and of updated ones.
#[test]
fn records_of_a_vacuum_are_those_of_the_major_version() {
    for major in available_majors() {
        let server = quiet(Options::major(major));
        let database = server.create_database("forecast_records");
        database.psql(
            "CREATE TABLE plain (id int, p text); CREATE TABLE indexed (id int PRIMARY KEY, p text);
             INSERT INTO plain SELECT i, repeat('x', 400) FROM generate_series(1, 54000) AS i;
             INSERT INTO indexed SELECT * FROM plain; VACUUM plain, indexed;
             DELETE FROM plain WHERE id % 18 = 5; VACUUM (INDEX_CLEANUP on) plain;
             DELETE FROM indexed WHERE id % 18 = 5; VACUUM (INDEX_CLEANUP on) indexed",
        );
        let version: i32 = database.psql("SHOW server_version_num").trim().parse().unwrap();
        for (table, change, pointers) in [
            ("plain", "DELETE FROM plain WHERE id % 18 = 3", true),
            ("indexed", "DELETE FROM indexed WHERE id % 18 = 3", true),
            ("plain", "UPDATE plain SET p = 'z' WHERE id % 18 = 7", false),
            ("indexed", "UPDATE indexed SET p = 'z' WHERE id % 18 = 7", false),
        ] {
            database.psql(change);
            let before = wal(&database);
            database.psql(&format!("VACUUM (INDEX_CLEANUP on) {table}"));
            let written = (wal(&database) - before) as f64 / 3000.0;
            let foreseen = vacuum_wal(version, pointers, table == "indexed");
            // entries of the index are removed too
            let more = if pointers && table == "indexed" { 20.0 } else { 0.0 };
            assert!(
                (foreseen * 0.85..foreseen * 1.15 + more).contains(&written),
                "PostgreSQL {major}, {change}: {written} bytes per page, foreseen {foreseen}"
            );
        }
    }
}

/// A checkpoint that is in progress has begun after the last change: every page is written to the WAL as a whole.
#[test]
fn page_images_during_a_checkpoint_are_foreseen() {
    let often = [("checkpoint_timeout", "30s"), ("checkpoint_completion_target", "0.9")];
    let options = often.iter().fold(Options::default(), |all, (name, value)| all.set(name, value));
    let server = Server::start(&options.set("autovacuum", "off").set("max_wal_size", "8GB"));
    let database = server.create_database("forecast_checkpoint");
    database.psql(CONTENT);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, words(i, 3000) FROM generate_series(1, 5000) AS i; VACUUM (ANALYZE) t",
    );
    let in_progress =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'CheckpointWriteDelay')";
    // the beginning of one, not the end of an earlier one
    for is_expected in ["f", "t"] {
        let mut left = 600;
        while database.psql(in_progress).trim() != is_expected {
            left -= 1;
            assert!(left > 0, "no checkpoint began or ended");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    let arguments = ["t", "-c", "v", "--toaster", "lz4"];
    let planned = retoast(&database, &[&arguments[..], &["--dry-run"]].concat()).exits(0).table();
    let before = wal(&database);
    done(&retoast(&database, &arguments));
    let written = wal(&database) - before;
    let foreseen = planned.plan().wal_bytes;
    assert!(is_near(foreseen.estimate, written), "{foreseen:?}, {written} written");
}
