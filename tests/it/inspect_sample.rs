//! `inspect --sample` against `inspect` of the same table.

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::inspect::Report;
use crate::support::server::{self, Database};
use crate::support::verbs::{inspect, relation};

/// Values in every form; sizes grow through the table, NULLs come in runs, dead rows are where they
/// were deleted, and one column is rarely set. What a scan would prune depends on what other sessions of the
/// server do: VACUUM looks.
const TABLE: &str = "
    CREATE EXTENSION pageinspect;
    CREATE TABLE t (id int, js jsonb, p text COMPRESSION pglz, l text COMPRESSION lz4, e text,
                    rare text, n numeric) WITH (autovacuum_enabled = off);
    ALTER TABLE t ALTER e SET STORAGE external;
    INSERT INTO t SELECT i, jsonb_build_object('k', repeat(md5(i::text), i * 7 % 40)),
        repeat(md5(i::text), i % 30), repeat('lz4 ', i * 7 % 900),
        CASE WHEN i * 31 % 7 = 0 THEN repeat('ex', i % 4000) END,
        CASE WHEN i % 97 = 0 THEN 'seldom' END,
        CASE WHEN i / 100 % 5 > 0 THEN i * 1000003.5 END
    FROM generate_series(1, 9000) i;
    DELETE FROM t WHERE i_am_deleted(id);
    ALTER TABLE t ADD added text DEFAULT 'later';
    INSERT INTO t SELECT i, '1', 'p', 'l', NULL, NULL, 1, 'now' FROM generate_series(1, 2000) i;
    VACUUM t; DELETE FROM t WHERE id % 13 = 0";

fn table(prefix: &str) -> Database<'static> {
    let database = server::shared().create_database(prefix);
    database.psql(
        "CREATE FUNCTION i_am_deleted(id int) RETURNS boolean LANGUAGE sql IMMUTABLE AS
         $$ SELECT id % 11 = 0 OR id BETWEEN 3000 AND 3200 $$",
    );
    database.psql(TABLE);
    database
}

/// Every interval of a report on a sample beside the figure of the whole table.
fn intervals(sample: &Value, whole: &Value) -> Vec<(String, Value, f64)> {
    let mut out = Vec::new();
    let mut add = |name: &str, sample: &Value, whole: &Value| {
        for (figure, estimate) in sample.as_object().unwrap() {
            // what is not an object was counted in the blocks read
            if let Some(truth) = whole[figure]["estimate"].as_f64()
                && !estimate.is_null()
            {
                out.push((format!("{name}{figure}"), estimate.clone(), truth));
            }
        }
    };
    add("", &sample["heap"], &whole["heap"]);
    add("", &sample["tuples"], &whole["tuples"]);
    add("toast ", &sample["toast"], &whole["toast"]);
    let columns = |report: &Value| report["columns"].as_array().unwrap().clone();
    for (sampled, whole) in columns(sample).iter().zip(&columns(whole)) {
        let name = sampled["column"].as_str().unwrap();
        add(&format!("{name} "), sampled, whole);
        for sizes in ["raw_size", "stored_size"] {
            add(&format!("{name} {sizes} "), &sampled[sizes], &whole[sizes]);
        }
        for form in sampled["forms"].as_array().unwrap() {
            let same = |other: &&Value| {
                (&other["form"], &other["method"]) == (&form["form"], &form["method"])
            };
            let of_whole = whole["forms"].as_array().unwrap().iter().find(same).unwrap();
            add(&format!("{name} {} {} ", form["form"], form["method"]), form, of_whole);
        }
    }
    out
}

#[test]
fn intervals_hold_what_the_whole_table_has() {
    let database = table("sample");
    let whole = relation(&database, &["t"]);
    let blocks = whole.heap.blocks.unwrap();
    assert!(blocks > 400, "{blocks}");
    let (mut inside, mut all) = (0, 0);
    let mut misses = std::collections::BTreeMap::<String, u32>::new();
    let mut wide = 0;
    for seed in 1..=60 {
        let sampled = relation(&database, &["t", "--sample", &format!("10%,seed={seed}")]);
        for (name, estimate, truth) in
            intervals(&sampled.json()["details"], &whole.json()["details"])
        {
            let low = estimate["low"].as_f64().unwrap_or(0.0);
            let high = estimate["high"].as_f64().unwrap_or(f64::INFINITY);
            let guess = estimate["estimate"].as_f64().unwrap();
            assert!(low <= guess && guess <= high, "seed {seed}, {name}: {estimate}");
            all += 1;
            if low <= truth && truth <= high {
                inside += 1;
            } else {
                *misses.entry(name.clone()).or_default() += 1;
            }
            if ["live", "js raw_bytes", "l stored_bytes"].contains(&name.as_str()) {
                wide += u32::from(high - low > truth * 0.6);
            }
        }
    }
    println!("{inside} of {all} intervals hold");
    assert!(all > 60 * 100, "{all}");
    assert!(inside * 100 >= all * 93, "{inside} of {all}: {misses:#?}");
    // no single figure is often wrong, and intervals say something
    assert!(misses.values().all(|&n| n <= 12), "{misses:#?}");
    assert!(wide <= 9, "{wide}");
}

#[test]
fn the_same_seed_gives_the_same_result_and_everything_is_no_estimate() {
    let database = table("sample");
    // but for the time of the run
    let report = |more: &[&str]| {
        let text = inspect(&database, &[&["t", "--format", "json"], more].concat()).ok();
        let (schema, rest) = text.split_once("\"time\":").unwrap();
        let (_, rest) = rest.split_once(',').unwrap();
        format!("{schema}{rest}")
    };
    let one = report(&["--sample", "40 blocks,seed=7", "--jobs", "1"]);
    assert_eq!(one, report(&["--sample", "40 blocks,seed=7", "--jobs", "5"]));
    assert_ne!(one, report(&["--sample", "40 blocks,seed=8"]));
    let one = Printed::<Report>::read(&one);
    assert_eq!(one.relations[0].sample.unwrap().blocks_read, 40);
    let whole = relation(&database, &["t"]);
    let sampled = relation(&database, &["t", "--sample", "100%"]);
    let intervals = intervals(&sampled.json()["details"], &whole.json()["details"]);
    assert!(intervals.len() > 100, "{}", intervals.len());
    for (name, estimate, truth) in intervals {
        assert_eq!(estimate["low"], estimate["high"], "{name}");
        assert_eq!(estimate["estimate"].as_f64(), Some(truth), "{name}");
    }
    assert_eq!(Some(sampled.sample.unwrap().blocks), whole.heap.blocks);
}

#[test]
fn only_the_sampled_blocks_and_a_few_values_are_read() {
    let database = table("sample");
    database.psql("VACUUM (FREEZE) t; SELECT pg_stat_force_next_flush()");
    database.psql("SELECT pg_stat_reset()");
    let report = relation(&database, &["t", "--sample", "37 blocks", "--jobs", "3"]);
    assert_eq!(report.sample.unwrap().blocks_read, 37);
    assert_eq!(report.heap.blocks_read, 37);
    assert!(!report.toast().rows_counted, "{report}");
    // what a session counted is told when it ends
    let started = std::time::Instant::now();
    loop {
        let counted = database.psql(
            "SELECT heap_blks_read + heap_blks_hit, toast_blks_read + toast_blks_hit
             FROM pg_statio_user_tables WHERE relname = 't'",
        );
        // for the figures, for findings, and where values may be large
        let blocks: Vec<u32> = counted.split('|').map(|number| number.parse().unwrap()).collect();
        if (37..=140).contains(&blocks[0]) && (1..=64).contains(&blocks[1]) {
            break;
        }
        // some of the sessions have ended
        assert!(blocks[0] <= 140 && blocks[1] <= 64, "{counted}");
        assert!(started.elapsed().as_secs() < 30, "{counted}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn the_report_on_a_sample_is_readable_and_has_its_documented_shape() {
    let database = table("sample");
    relation(&database, &["t", "--sample", "5%"]);
    let mut command = toastctl();
    command.args(["inspect", "-d", &database.conninfo(), "t", "--sample", "10%"]);
    let text = run(command.env("COLUMNS", "80")).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let mut settings = insta::Settings::clone_current();
    settings.add_filter("pg_toast_[0-9]+", "pg_toast_OID");
    // where the line is broken depends on the digits of the OID
    settings.add_filter(r"\) values\s+in\s+≈", ") values in ≈");
    settings.bind(|| insta::assert_snapshot!("inspect_sample_80", text));
}

#[test]
fn a_sample_needs_pages_and_a_place_for_intervals() {
    let database = server::shared().create_database("sample");
    let owner = database.create_role("owner_of");
    database.psql(&format!("CREATE TABLE t AS SELECT 1 AS id; ALTER TABLE t OWNER TO {owner}"));
    let as_user = |user: &str, more: &[&str]| {
        let url = database.url_of(user);
        run(toastctl().args(["inspect", "-d", &url, "t", "--sample", "50%"]).args(more))
    };
    let told = |run: &Run| {
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        let told = run.stderr.lines().take_while(|line| !line.is_empty());
        format!("{:?}: {}", run.code.unwrap(), told.collect::<Vec<_>>().join("\n"))
    };
    let refused = |more: &[&str]| told(&as_user("postgres", more));
    let without_extension = refused(&[]);
    database.psql("CREATE EXTENSION pageinspect");
    let refusals = [
        without_extension,
        told(&as_user(&owner, &[])),
        refused(&["--source", "functions"]),
        refused(&["--format", "csv"]),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r"
    1: toastctl: error: public.t: --sample needs pages: the extension pageinspect is not installed in this database
    HINT:  toastctl help permissions lists what each verb needs.
    1: toastctl: error: public.t: --sample needs pages: pageinspect needs a superuser
    HINT:  toastctl help permissions lists what each verb needs.
    2: toastctl: error: --sample needs pages: it cannot be used with --source functions
    2: toastctl: error: --sample cannot be printed as csv, which has no place for confidence intervals
    HINT:  Use --format json.
    ");
}
