//! What `advise-threshold` recommends: on the front that it draws, priced with what scans read, and with the
//! sizes that retoast and VACUUM FULL leave.

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::advise::{Candidate, Change, Report};
use crate::support::server::{self, Database};
use crate::support::verbs::advised;

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
                let report = advised(&database, &arguments);
                let chosen = report.chosen();
                assert!(chosen.recommended, "{arguments:?}: {chosen:#}");
                assert!(chosen.pareto, "{arguments:?}: {chosen:#}");
                // and so is none that another beats in everything
                let parts = |c: &Candidate| {
                    let part = |figure: Change| figure.change.map(|change| change.estimate);
                    [
                        part(c.total_bytes),
                        c.read_cpu_ns_per_value.change.map(|change| change.estimate),
                        part(c.update_wal_bytes_per_value),
                        part(c.scan_buffers),
                    ]
                    .map(|change| change.unwrap_or(0.0))
                };
                let beats = |c: &&Printed<Candidate>| {
                    parts(c).iter().zip(parts(chosen)).all(|(this, that)| *this < that - 0.01)
                };
                let better = report.candidates.iter().find(beats);
                assert!(better.is_none() || chosen.today, "{arguments:?}: {better:#?}");
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
    let report = advised(&database, &arguments);
    let wide = report
        .candidates
        .iter()
        .find(|c| c.settings.target == 8160 && c.settings.policy == "always")
        .unwrap();
    // not by half the table's size more right after, and ten times the buffers of a scan
    assert_eq!(report.recommendation.candidate, 0, "{}", report.recommendation);
    assert!(wide.total_bytes.change.unwrap().estimate < 0.1);
    assert!(wide.read_cpu_ns_per_value.change.unwrap().estimate < -0.5);
    assert!(wide.scan_buffers.change.unwrap().estimate > 9.0);
    let caveats = wide.caveats.join(
        "
",
    );
    assert!(caveats.contains("before compaction the files are larger"), "{caveats}");
    // for cheaper writes there is nothing to rewrite: settings that spare attempts at compression are for new values
    let write = advised(&database, &[&arguments[..], &["--optimize", "write"]].concat());
    let kept = &write.recommendation;
    assert_eq!(kept.command, [""; 0], "{kept}");
    let sql = r#"ALTER TABLE "public"."images" ALTER COLUMN "image" SET STORAGE EXTERNAL;"#;
    assert!(kept.reasons.ends_with(sql), "{kept}");
    for (emit, place) in [("sql", "\n"), ("command", "for new ones: ")] {
        let mut emitted = toastctl();
        emitted.arg("advise-threshold").args(arguments);
        emitted.args(["--optimize", "write", "--emit", emit]);
        let printed = run(emitted.args(["-d", &database.conninfo()])).ok();
        assert!(printed.ends_with(&format!("{place}{sql}\n")), "{printed}");
    }
    // who wants reads alone gets it, and the sizes are those foretold
    let read = advised(&database, &[&arguments[..], &["--optimize", "read"]].concat());
    let chosen = read.chosen();
    assert!(chosen.settings.target >= 4080, "{read:#}");
    let foretold = chosen.before_compaction_bytes as f64;
    assert!(foretold > before * 1.8, "{foretold}, {before}");
    let words = &read.recommendation.command[1..];
    let compacts = words.iter().position(|word| word.starts_with("--compact")).unwrap();
    let sweep = &words[..compacts];
    run(toastctl().args(sweep).args(["-d", &database.conninfo()])).ok();
    let retoasted = size(&database, "images");
    assert!((retoasted / foretold - 1.0).abs() < 0.08, "{retoasted}, foretold {foretold}");
    run(toastctl().args(words).args(["-d", &database.conninfo()])).ok();
    let compacted = size(&database, "images");
    database.psql("VACUUM FULL images");
    let compact = size(&database, "images");
    let total = chosen.total_bytes.estimate;
    assert!((compact / total - 1.0).abs() < 0.02, "{compact}, foretold {total}");
    assert!(compacted < compact * 1.1, "{compacted}, written anew {compact}");
    let after = chosen.after_command_bytes.estimate;
    assert!((compacted / after - 1.0).abs() < 0.1, "{compacted}, foretold {after}");
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
    let reports = done.entries::<Report>();
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, ["b", "d", "f", "g", "e"]);
    let notice = "notice: showing the 5 largest of 7 tables (";
    assert!(done.stderr.contains(notice), "{}", done.stderr);
    assert!(!done.stderr.contains("left out"), "{}", done.stderr);
}
