//! What `advise-threshold` recommends: on the front that it draws, priced with what scans read, and with the
//! sizes that retoast and VACUUM FULL leave.

use serde_json::Value;

use crate::support::command::{run, toastctl};
use crate::support::server::{self, Database};

fn advise(database: &Database<'_>, arguments: &[&str]) -> Value {
    let mut command = toastctl();
    command.args(["advise-threshold", "-d", &database.conninfo(), "--format", "json"]);
    serde_json::from_str(&run(command.args(arguments)).ok()).unwrap()
}

fn candidates(report: &Value) -> &Vec<Value> {
    report["candidates"].as_array().unwrap()
}

/// Bytes of heap, TOAST relation and its index.
fn size(database: &Database<'_>, table: &str) -> f64 {
    let sql = format!(
        "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(reltoastrelid)
         FROM pg_class WHERE relname = '{table}'"
    );
    database.psql(&sql).parse().unwrap()
}

#[test]
fn the_recommended_candidate_is_on_the_front() {
    let database = server::shared().create_database("front");
    // lines of a log that compression brings to a third, around the threshold
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE one (log text);
         INSERT INTO one SELECT string_agg('10.0.' || (i * k) % 250 || ' GET /' || md5((i % 97 + k)::text)
             || ' 200 ' || (i * k * 7) % 9000, E'\\n' ORDER BY k)
         FROM generate_series(1, 1500) AS i, generate_series(1, 60) AS k WHERE k <= 20 + i % 40 GROUP BY i;
         CREATE TABLE two AS SELECT i AS id, repeat(md5(i::text), 10 + i % 200) AS log
         FROM generate_series(1, 1500) AS i",
    );
    for table in ["one", "two"] {
        for optimize in ["balanced", "size", "read", "write"] {
            for ratio in ["0", "1000"] {
                let arguments =
                    [table, "-c", "log", "--optimize", optimize, "--reads-per-write", ratio];
                let report = advise(&database, &arguments);
                let chosen = report["recommendation"]["candidate"].as_u64().unwrap() as usize;
                let chosen = &candidates(&report)[chosen];
                assert_eq!(chosen["recommended"], true);
                assert_eq!(chosen["pareto"], true, "{arguments:?}: {chosen:#}");
                // and so is none that another beats in everything
                let part = |c: &Value, figure: &str| {
                    c[figure]["change"]["estimate"].as_f64().unwrap_or(0.0)
                };
                let beats = |c: &&Value| {
                    [
                        "total_bytes",
                        "read_cpu_ns_per_value",
                        "update_wal_bytes_per_value",
                        "scan_buffers",
                    ]
                    .iter()
                    .all(|figure| part(c, figure) < part(chosen, figure) - 0.01)
                };
                let better = candidates(&report).iter().find(beats);
                assert!(better.is_none() || chosen["today"] == true, "{arguments:?}: {better:#?}");
            }
        }
    }
}

#[test]
fn images_stay_out_of_a_heap_that_is_scanned_without_them() {
    let database = server::shared().create_database("images");
    // 2,000 images of 3.7 kB that no method makes shorter
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE images (id int, kind int, image bytea);
         INSERT INTO images SELECT i, i % 7, (SELECT substr(string_agg(sha512((i * 100 + k)::text::bytea),
             ''), 1, 3700) FROM generate_series(1, 60) AS k) FROM generate_series(1, 2000) AS i;
         VACUUM images",
    );
    let before = size(&database, "images");
    let arguments = ["images", "-c", "image", "--sample", "100%"];
    let report = advise(&database, &arguments);
    let wide = candidates(&report)
        .iter()
        .find(|c| c["settings"]["target"] == 8160 && c["settings"]["policy"] == "always")
        .unwrap();
    // not by half the table's size more right after, and ten times the buffers of a scan
    assert_eq!(report["recommendation"]["candidate"], 0, "{}", report["recommendation"]);
    assert!(wide["total_bytes"]["change"]["estimate"].as_f64().unwrap() < 0.1);
    assert!(wide["read_cpu_ns_per_value"]["change"]["estimate"].as_f64().unwrap() < -0.8);
    assert!(wide["scan_buffers"]["change"]["estimate"].as_f64().unwrap() > 9.0);
    let caveats = wide["caveats"].to_string();
    assert!(caveats.contains("every scan of the table reads it"), "{caveats}");
    assert!(caveats.contains("before compaction the files are larger"), "{caveats}");
    // who wants reads alone gets it, and the sizes are those foretold
    let read = advise(&database, &[&arguments[..], &["--optimize", "read"]].concat());
    let chosen = read["recommendation"]["candidate"].as_u64().unwrap() as usize;
    assert!(candidates(&read)[chosen]["settings"]["target"].as_u64() >= Some(4080), "{read:#}");
    let foretold = candidates(&read)[chosen]["retoasted_bytes"].as_f64().unwrap();
    assert!(foretold > before * 1.8, "{foretold}, {before}");
    let command = read["recommendation"]["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let (compact, sweep) = words.split_last().unwrap();
    assert_eq!(*compact, "--compact=toast");
    run(toastctl().args(sweep).args(["-d", &database.conninfo()])).ok();
    let retoasted = size(&database, "images");
    assert!((retoasted / foretold - 1.0).abs() < 0.08, "{retoasted}, foretold {foretold}");
    run(toastctl().args(&words).args(["-d", &database.conninfo()])).ok();
    let compacted = size(&database, "images");
    database.psql("VACUUM FULL images");
    let compact = size(&database, "images");
    let total = candidates(&read)[chosen]["total_bytes"]["estimate"].as_f64().unwrap();
    assert!((compact / total - 1.0).abs() < 0.02, "{compact}, foretold {total}");
    assert!(compacted < compact * 1.1, "{compacted}, written anew {compact}");
}

#[test]
fn without_a_table_the_largest_are_advised_on() {
    let database = server::shared().create_database("advise");
    database.psql("CREATE EXTENSION pageinspect; CREATE TABLE numbers AS SELECT generate_series(1, 100000) AS n");
    for (table, rows) in
        [("a", 1000), ("b", 7000), ("c", 2000), ("d", 6000), ("e", 3000), ("f", 5000), ("g", 4000)]
    {
        database.psql(&format!(
            "CREATE TABLE {table} AS SELECT i, repeat(md5(i::text), 20) AS v FROM generate_series(1, {rows}) AS i"
        ));
    }
    let mut command = toastctl();
    command.args(["advise-threshold", "-d", &database.conninfo(), "--format", "json"]);
    let done = run(&mut command);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let reports: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    let names: Vec<&str> = reports.iter().map(|report| report["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "d", "f", "g", "e"]);
    let notice = "notice: these are the 5 largest of 7 tables, with ";
    assert!(done.stderr.contains(notice), "{}", done.stderr);
    assert!(!done.stderr.contains("left out"), "{}", done.stderr);
}
