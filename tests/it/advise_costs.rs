//! The further costs that `advise-threshold` predicts for reads and writes, against what the server does; and its
//! calibration.

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::measured::{buffers, wal};
use crate::support::reports::Printed;
use crate::support::reports::advise::{Calibration, Candidate, Report};
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::advised;

/// What tables are filled from: words that compress, and bytes that do not.
const FUNCTIONS: &str = "CREATE FUNCTION words(seed int, count int) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT string_agg(md5((seed * 7 + i % 40)::text), ' ') FROM generate_series(1, count) AS i $$;
    CREATE FUNCTION lines(seed int, count int) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT string_agg('name ' || (i * 31 + seed) % 997 || ' of a row ' || md5((seed + i % 7)::text), ' ')
       FROM generate_series(1, count) AS i $$";

/// Settings, and the values of a table that has them.
const TABLES: [(&str, &str, &str); 6] = [
    ("short", "SET STORAGE extended", "left(words(i, 20), 20 + i % 100)"),
    ("pglz", "SET COMPRESSION pglz", "words(i, 40 + i % 200)"),
    ("lz4", "SET COMPRESSION lz4", "words(i, 40 + i % 200)"),
    ("external", "SET STORAGE external", "words(i, 40 + i % 200)"),
    ("main", "SET STORAGE main", "words(i, 40 + i % 100)"),
    ("wide", "SET STORAGE external, SET (toast_tuple_target = 4080)", "words(i, 70 + i % 20)"),
];

fn make(database: &Database<'_>, (table, settings, value): (&str, &str, &str), fillfactor: u8) {
    database.psql(&format!(
        "DROP TABLE IF EXISTS {table};
         CREATE TABLE {table} (id int, n int, v text) WITH (fillfactor = {fillfactor}, autovacuum_enabled = off);
         ALTER TABLE {table} ALTER v {settings};
         INSERT INTO {table} SELECT i, i, {value} FROM generate_series(1, 1200) AS i;
         VACUUM FULL {table}"
    ));
}

/// Today's figures of the table, all of it read.
fn today(database: &Database<'_>, table: &str) -> Printed<Candidate> {
    let report = advised(database, &[table, "-c", "v", "--sample", "100%"]);
    report.today().clone()
}

fn near(what: &str, predicted: f64, measured: f64, by: f64) {
    println!("{what}: {predicted:.1}, measured {measured:.1}");
    assert!((predicted / measured - 1.0).abs() <= by, "{what}: {predicted}, measured {measured}");
}

#[test]
fn updates_of_another_column_write_what_is_foretold() {
    let settings = [(15, "replica"), (15, "logical"), (18, "replica")];
    for (major, level) in settings.into_iter().filter(|&(major, _)| server::has_major(major)) {
        // full-page images depend on checkpoints
        let options = Options::major(major).set("full_page_writes", "off");
        let server = Server::start(&options.set("wal_level", level));
        let database = server.with_pageinspect("other");
        database.psql(FUNCTIONS);
        let lz4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'";
        let lz4 = database.psql(lz4) == "t";
        for table in TABLES.into_iter().filter(|(name, ..)| lz4 || *name != "lz4") {
            let name = table.0;
            make(&database, table, 100);
            let costs = &today(&database, name).costs;
            let foretold = costs.other_update_wal_bytes_per_row.estimate;
            let written = wal(&database, &format!("UPDATE {name} SET n = n + 1")) / 1200.0;
            near(&format!("{major}, {level}, {name}"), foretold, written, 0.1);
            // HOT: each page has room for all its rows once more
            make(&database, table, 45);
            let foretold = today(&database, name).costs.hot_update_wal_bytes_per_row.estimate;
            let written = wal(&database, &format!("UPDATE {name} SET n = n + 1")) / 1200.0;
            near(&format!("{major}, {level}, {name}, HOT"), foretold, written, 0.1);
        }
    }
}

#[test]
fn full_page_images_are_those_of_old_rows_and_chunks() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("images");
    database.psql(FUNCTIONS);
    for table in [TABLES[1], TABLES[3]] {
        let name = table.0;
        make(&database, table, 100);
        // few rows on a page, so that those that are updated are alone on theirs
        database.psql(&format!(
            "ALTER TABLE {name} ADD filler text; ALTER TABLE {name} ALTER filler SET STORAGE plain;
             UPDATE {name} SET filler = repeat('x', 1000); VACUUM FULL {name}"
        ));
        let foretold = today(&database, name).costs.full_page_bytes_per_value.estimate;
        database.psql("CHECKPOINT");
        let plan = database.psql(&format!(
            "EXPLAIN (ANALYZE, WAL, FORMAT JSON) UPDATE {name} SET v = (ARRAY[v])[1] WHERE id % 60 = 0"
        ));
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let images = plan[0]["Plan"]["WAL FPI"].as_f64().unwrap();
        near(name, foretold, images * 8192.0 / 20.0, 0.2);
    }
}

#[test]
fn prefixes_and_cold_reads_visit_the_pages_that_are_foretold() {
    let database = server::shared().with_pageinspect("prefix");
    database.psql(FUNCTIONS);
    let value = "lines(i, 600 + i % 200)";
    let mut visited = Vec::new();
    for (name, settings) in [
        ("external", "SET STORAGE external"),
        ("pglz", "SET COMPRESSION pglz, SET (toast_tuple_target = 128)"),
        ("lz4", "SET COMPRESSION lz4, SET (toast_tuple_target = 128)"),
    ] {
        make(&database, (name, settings, value), 100);
        let today = today(&database, name);
        let costs = &today.costs;
        let prefix = costs.prefix_read.as_ref().unwrap();
        let (part, whole) =
            (prefix.cpu_ns_per_value.estimate, today.read_cpu_ns_per_value.estimate);
        assert!(0.0 < part && part < whole, "{name}: {part} of {whole}");
        let query = format!("SELECT count(substr(v, 1, 100)) FROM {name}");
        let measured = buffers(&database, &query) / 1200.0;
        near(name, prefix.buffers_per_value.estimate, measured, 0.1);
        visited.push(measured);
        // a row's page, a leaf of the index, and the pages with chunks, of which a scan visits all but the first
        let cold = costs.cold_read_pages_per_value.estimate;
        let query = format!("SELECT count(v) FILTER (WHERE text_pattern_lt(v, '')) FROM {name}");
        let heap = buffers(&database, &format!("SELECT count(*) FROM {name}")) / 1200.0;
        let levels = 2.0;
        let chunks = buffers(&database, &query) / 1200.0 - heap - levels;
        near(&format!("{name}, cold"), cold, 2.0 + chunks, 0.1);
    }
    assert!(visited[2] > visited[1], "{visited:?}");
    // whole documents are read of jsonb
    database.psql("CREATE TABLE j AS SELECT to_jsonb(v) AS v FROM external");
    assert!(today(&database, "j").costs.prefix_read.is_none());
}

/// `advise-threshold` as users run it, calibrating where it can.
fn calibrating(database: &Database<'_>, url: &str, arguments: &[&str]) -> Run {
    let mut command = toastctl();
    command.env_remove("TOASTCTL_TEST_UNCALIBRATED");
    command.args(["advise-threshold", "-d", url, "t", "-c", "v", "--format", "json"]);
    let run = run(command.args(arguments));
    // neither tables nor settings stay
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'";
    assert_eq!(database.psql(left), "0");
    run
}

/// The same where it can; a busy machine may need several attempts.
fn measured(database: &Database<'_>, url: &str, arguments: &[&str]) -> Printed<Report> {
    for _ in 0..20 {
        let report: Printed<Report> = calibrating(database, url, arguments).exits(0).report();
        match report.calibration.why.as_deref() {
            None => return report,
            Some(why) => {
                let is_busy = ["not done within", "timeout", "the timings vary too much"]
                    .iter()
                    .any(|busy| why.contains(busy));
                assert!(is_busy, "{why}");
            }
        }
    }
    panic!("nothing was calibrated");
}

fn calibration(run: &Run) -> Calibration {
    let report: Printed<Report> = run.report();
    (*report.calibration).clone()
}

/// All numbers of a document.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => vec![number.as_f64().unwrap()],
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

const CALIBRATED: &str = "CREATE TABLE t (id int, v text);
    INSERT INTO t SELECT i, words(i, 20 + i % 400) FROM generate_series(1, 1500) AS i";

#[test]
fn prices_are_measured_in_temporary_tables_that_do_not_stay() {
    let database = server::shared().with_pageinspect("calibrate");
    database.psql(&format!("{FUNCTIONS}; {CALIBRATED}"));
    let owner = database.create_owner("owner_of");
    database.psql(&format!("ALTER TABLE t OWNER TO {owner}"));
    // with pages, and as an ordinary role
    for url in [database.url(), database.url_of(&owner.to_string())] {
        let report = measured(&database, &url, &[]);
        let calibration = &report.calibration;
        assert_eq!(calibration.source, "measured", "{calibration}");
        assert!(calibration.values > 50, "{calibration}");
        let prices = numbers(&calibration.prices);
        assert!(prices.len() > 25, "{calibration}");
        assert!(prices.iter().all(|&ns| ns > 0.0 && ns.is_finite()), "{calibration}");
        let cpu = report.today().read_cpu_ns_per_value;
        assert!(cpu.low.unwrap() <= cpu.estimate && cpu.estimate <= cpu.high.unwrap(), "{cpu:?}");
        // a read of 10 kB takes microseconds, even on a machine that is busy
        assert!((100.0..1e7).contains(&cpu.estimate), "{cpu:?}");
        // storing chunks is not timed
        let today = report.today();
        assert!(today.chunks.estimate > 0.0 && today.costs.write_cpu_ns_per_value.low.is_none());
    }
    let never = calibrating(&database, &database.url(), &["--calibrate", "never"]).exits(0);
    let report: Printed<Report> = never.report();
    assert_eq!(report.calibration.source, "none");
    let cpu = report.today().read_cpu_ns_per_value;
    assert_eq!((cpu.low, cpu.high), (None, None));
}

#[test]
fn where_nothing_may_be_written_nothing_is_calibrated() {
    let database = server::shared().with_pageinspect("uncalibrated");
    database.psql(&format!("{FUNCTIONS}; {CALIBRATED}"));
    let name = database.name();
    server::shared()
        .database("postgres")
        .psql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let found = calibration(&calibrating(&database, &database.url(), &[]).exits(0));
    let why = "transactions are read-only by default here (default_transaction_read_only)";
    assert_eq!((found.source.as_str(), found.why.as_deref()), ("none", Some(why)));
    let refused = calibrating(&database, &database.url(), &["--calibrate", "always"]).exits(1);
    assert!(
        refused.stderr.contains(&format!("CPU times cannot be calibrated: {why}")),
        "{refused:?}"
    );
    server::shared().database("postgres").psql(&format!("ALTER DATABASE {name} RESET ALL"));
    // values of a type that nothing reads and does little else
    database
        .psql("CREATE DOMAIN words AS text; ALTER TABLE t ALTER v TYPE words USING left(v, 1200)");
    let report = measured(&database, &database.url(), &[]);
    assert_eq!(report.calibration.source, "measured");
    assert!(report.today().costs.write_cpu_ns_per_value.low.is_some(), "{report}");
    database.psql("ALTER TABLE t ALTER v TYPE xml USING ('<a>' || v || '</a>')::xml");
    let xml = calibration(&calibrating(&database, &database.url(), &[]).exits(0));
    let why = "no function reads values of type xml and does nothing else";
    assert_eq!(xml.why.as_deref(), Some(why));
    // a type that is only called text, whose cast is another user's function
    database.psql(
        "CREATE SCHEMA evil; CREATE TYPE evil.text AS (x pg_catalog.text);
         CREATE FUNCTION evil.run(evil.text) RETURNS pg_catalog.text LANGUAGE sql VOLATILE AS
            $$ SELECT pg_catalog.pg_terminate_backend(pg_backend_pid())::pg_catalog.text $$;
         CREATE CAST (evil.text AS pg_catalog.text) WITH FUNCTION evil.run(evil.text);
         ALTER TABLE t ALTER v TYPE evil.text USING ROW(v::pg_catalog.text)::evil.text",
    );
    let evil = calibration(&calibrating(&database, &database.url(), &[]).exits(0));
    let why = "no function reads values of type text and does nothing else";
    assert_eq!(evil.why.as_deref(), Some(why));
}

#[test]
fn a_standby_goes_without() {
    let primary = Server::start(&Options::default());
    let database = primary.with_pageinspect("primary");
    database.psql(&format!("{FUNCTIONS}; {CALIBRATED}"));
    let standby = primary.start_standby();
    let there = standby.database(database.name());
    there.until("SELECT count(*) FROM t", |rows| rows == "1500");
    let found = calibration(&calibrating(&there, &there.url(), &[]).exits(0));
    assert_eq!(found.why.as_deref(), Some("a standby has no temporary tables"));
}

#[test]
fn a_file_keeps_the_prices_of_one_server() {
    let database = server::shared().with_pageinspect("kept");
    database.psql(&format!("{FUNCTIONS}; {CALIBRATED}"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.json");
    let file = path.to_str().unwrap();
    let advise =
        |code| calibrating(&database, &database.url(), &["--calibration", file]).exits(code);
    let first = measured(&database, &database.url(), &["--calibration", file]);
    let measured = &first.calibration;
    let kept = std::fs::read_to_string(&path).unwrap();
    let again = calibration(&advise(0));
    assert_eq!((again.source.as_str(), &again.prices), ("file", &measured.prices));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), kept);
    let document: Value = serde_json::from_str(&kept).unwrap();
    for (field, value, message) in [
        ("system", Value::from("1"), "it is of server 1, and this is"),
        ("major", Value::from(9), "it is of PostgreSQL 9, and this is"),
        ("schema", Value::from("other"), "not a calibration"),
    ] {
        let mut other = document.clone();
        other[field] = value;
        std::fs::write(&path, other.to_string()).unwrap();
        let refused = advise(2);
        assert!(refused.stderr.contains(message), "{field}: {refused:?}");
    }
}
