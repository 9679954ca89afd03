//! `advise-threshold` against tables that were really rewritten.

use std::process::Command;

use crate::support::command::{run, toastctl};
use crate::support::reports::advise::{Candidate, Report};
use crate::support::reports::keys::Keys;
use crate::support::reports::{Interval, Printed};
use crate::support::server::{self, Database, Options, Server};
use crate::support::table_files::seem_large;
use crate::support::verbs::{advise, advised};

const TABLES: [&str; 12] = [
    "talk", "thousand", "films", "logs", "images", "html", "geo", "search", "random", "mixed",
    "digests", "small",
];

/// Settings to rewrite with: name of a candidate, and SQL that makes a table so.
const REWRITES: [(&str, &str); 5] = [
    ("extended pglz (as set)", ""),
    ("extended lz4", "ALTER v SET COMPRESSION lz4"),
    ("external", "ALTER v SET STORAGE EXTERNAL"),
    ("main lz4", "ALTER v SET STORAGE MAIN, ALTER v SET COMPRESSION lz4"),
    ("extended lz4 target 4080", "ALTER v SET COMPRESSION lz4, SET (toast_tuple_target = 4080)"),
];

/// Bytes of a table's files: heap, TOAST relation, its index.
fn sizes(database: &Database<'_>, table: &str) -> [f64; 3] {
    let text = database.psql(&format!(
        "SELECT pg_relation_size(oid), pg_relation_size(reltoastrelid), \
         pg_indexes_size(reltoastrelid) FROM pg_class WHERE relname = '{table}'"
    ));
    let numbers: Vec<f64> = text.split('|').map(|n| n.parse().unwrap()).collect();
    [numbers[0], numbers[1], numbers[2]]
}

/// Samples of each table. Intervals of one sample miss together: few samples tell little.
const SEEDS: u32 = 4;

#[test]
fn predicted_sizes_are_those_of_rewritten_tables() {
    let database = server::shared().create_database("advise");
    database.psql(&format!("CREATE EXTENSION pageinspect; {}", include_str!("advise.sql")));
    let (mut inside, mut intervals) = (0, 0);
    let mut misses = Vec::new();
    for table in TABLES {
        let measured: Vec<[f64; 3]> = REWRITES
            .iter()
            .map(|(_, settings)| {
                let alter = if settings.is_empty() {
                    String::new()
                } else {
                    format!("ALTER TABLE rewritten {settings};")
                };
                database.psql(&format!(
                    "CREATE TABLE rewritten (LIKE {table}); {alter}
                     DO $$ BEGIN
                       EXECUTE (SELECT 'INSERT INTO rewritten SELECT ' || string_agg(
                         CASE attname WHEN 'v' THEN '(ARRAY[v])[1]' ELSE quote_ident(attname) END,
                         ', ' ORDER BY attnum) || ' FROM {table}'
                       FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0);
                     END $$"
                ));
                let sizes = sizes(&database, "rewritten");
                database.psql("DROP TABLE rewritten");
                sizes
            })
            .collect();
        let whole = advised(&database, &[table, "-c", "v", "--sample", "100%"]);
        check_whole(table, &whole, &measured);
        for seed in 1..=SEEDS {
            let arguments = [table, "-c", "v", "--sample", &format!("2%,seed={seed}")];
            let sampled = advised(&database, &arguments);
            for (figure, missed) in intervals_of(&sampled, &measured) {
                intervals += 1;
                inside += usize::from(!missed);
                if missed {
                    misses.push(format!("{table} {figure} seed {seed}"));
                }
            }
        }
    }

    assert!(inside * 100 >= intervals * 93, "{inside} of {intervals}: {misses:#?}");
}

/// The candidate of this name; the present settings are today's where they change nothing. Higher targets are not compared
/// where they would concern other columns.
fn candidate<'a>(report: &'a Report, name: &str) -> Option<&'a Candidate> {
    let named = report.candidates.iter().map(|c| &**c).find(|c| c.name == name);
    if name.contains("target") { named } else { named.or(Some(report.today())) }
}

fn figures(candidate: &Candidate) -> [(&'static str, Interval); 3] {
    [
        ("heap", candidate.heap_bytes.now),
        ("TOAST", candidate.toast_bytes.now),
        ("TOAST index", candidate.toast_index_bytes.now),
    ]
}

/// Within 1 %, or two pages.
#[track_caller]
fn check_whole(table: &str, report: &Report, measured: &[[f64; 3]]) {
    for ((name, _), measured) in REWRITES.iter().zip(measured) {
        let Some(c) = candidate(report, name) else { continue };
        for ((figure, said), measured) in figures(c).into_iter().zip(measured) {
            let estimate = said.estimate;
            assert!(
                (estimate - measured).abs() <= (measured * 0.01).max(2.0 * 8192.0),
                "{table}, {name}, {figure}: {estimate}, measured {measured}"
            );
        }
    }
}

fn intervals_of(report: &Report, measured: &[[f64; 3]]) -> Vec<(String, bool)> {
    let mut out = Vec::new();
    for ((name, _), measured) in REWRITES.iter().zip(measured) {
        let Some(c) = candidate(report, name) else { continue };
        for ((figure, said), measured) in figures(c).into_iter().zip(measured).take(2) {
            let (low, high) = (said.low, said.high);
            let missed = *measured < low || *measured > high;
            let text = format!("{name} {figure} {low} {measured} {high}");
            out.push((text, missed));
        }
    }
    out
}

/// The cases of the thread on external TOAST storage: raw bytes, and how many of them are noise, so
/// that lz4 gives 7,845, 16,050, 30,263, 3,645 and about 2,012 bytes.
const THREAD: [(u32, u32); 5] =
    [(7_925, 7_805), (16_505, 15_977), (31_685, 30_130), (3_885, 3_622), (3_966, 1_990)];

#[test]
fn the_cases_of_the_thread() {
    let database = server::shared().with_pageinspect("advise");
    for (number, (raw, noise)) in THREAD.into_iter().enumerate() {
        database.psql(&format!(
            "CREATE TABLE head (id integer, v bytea COMPRESSION lz4);
             INSERT INTO head SELECT i, (SELECT substr(string_agg(sha512((i * 1000 + k)::text::bytea),
               ''), 1, {noise}) FROM generate_series(0, {noise} / 64) AS k) ||
               decode(repeat('00', {raw} - {noise}), 'hex') FROM generate_series(1, 1500) AS i;
             CREATE TABLE by_hand (id integer, v bytea);
             ALTER TABLE by_hand ALTER v SET STORAGE EXTERNAL;
             INSERT INTO by_hand SELECT id, (ARRAY[v])[1] FROM head"
        ));
        let report = advised(
            &database,
            &["head", "--sample", "100%", "--policy", "chunk-saving", "--optimize", "read"],
        );
        let c = &report.candidates[1];
        assert_eq!(c.settings.policy, "chunk-saving");
        let measured: f64 = sizes(&database, "by_hand").iter().sum();
        let estimate = c.total_bytes.estimate;
        assert!((estimate / measured - 1.0).abs() < 0.02, "{raw}: {estimate}, {measured}");
        // it gains, and the table stays as it is; but the last would grow by half
        assert_eq!(c.recommended, number < 4, "{raw}: {}", report.recommendation);
        assert!(c.read_cpu_ns_per_value.change.unwrap().estimate < 0.0, "{raw}");
        database.psql("DROP TABLE head, by_hand");
    }
}

#[test]
fn a_table_of_100_gb_is_answered_from_its_sample() {
    let database = server::shared().create_database("advise");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE big AS SELECT i AS id, repeat(md5(i::text), 50) AS v
         FROM generate_series(1, 20000) AS i",
    );
    seem_large(&database, "'big'", 100);
    // bounded memory: the address space is limited
    let mut command = Command::new("sh");
    crate::support::command::scrub(&mut command);
    command.args(["-c", "ulimit -v 1000000; exec \"$@\"", "sh"]);
    command.arg(toastctl().get_program()).args(["advise-threshold", "-d", &database.conninfo()]);
    command.args(["big", "-c", "v", "--format", "json"]);
    let started = std::time::Instant::now();
    let report: Printed<Report> = run(&mut command).exits(0).report();
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    assert_eq!(report.sample.total_blocks, 100 * 131_072);
    let sample = &report.sample;
    let blocks = sample.blocks;
    assert!(blocks == 3000 || blocks >= 40 && sample.limit.as_deref() == Some("time"), "{sample}");
    assert_eq!(report.files.heap_bytes, 100u64 << 30);
}

#[test]
fn without_sample_no_more_is_read_than_the_estimate_needs() {
    let database = server::shared().create_database("advise");
    // one row in a block, most of them with 600 kB out of line
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE large (id int, pad text, v text);
         ALTER TABLE large ALTER pad SET STORAGE plain, ALTER v SET STORAGE external;
         INSERT INTO large SELECT i, repeat('x', 5000), repeat(md5(i::text), 20000 - i % 10 * 500)
         FROM generate_series(1, 300) AS i",
    );
    let measured = sizes(&database, "large")[1];
    let arguments = ["large", "-c", "v", "--toaster", "lz4"];
    let report = advised(&database, &arguments);
    let sample = &report.sample;
    assert_eq!(sample.total_blocks, 300);
    // which comes first depends on the machine
    assert!(
        sample.limit.as_deref() == Some("bytes") || sample.limit.as_deref() == Some("time"),
        "{sample}"
    );
    assert!((20_000_000..110_000_000).contains(&sample.read_bytes), "{sample}");
    assert!((40..200).contains(&sample.blocks), "{sample}");
    assert_eq!((sample.rows, sample.complete), (sample.blocks, false));
    let today = &report.candidates[0].toast_bytes;
    let (low, high) = (today.low, today.high);
    assert!(low < measured && measured < high && high < low * 1.3, "{low} {measured} {high}");
    let text = advise(&database, &arguments).ok();
    assert!(text.contains(" MB read; --sample reads more\n"), "{text}");
    // whoever asks for all gets all
    let whole =
        advised(&database, &["large", "-c", "v", "--storage", "external", "--sample", "100%"]);
    assert_eq!((whole.sample.blocks, whole.sample.limit.as_deref()), (300, None));
}

/// With its default sample, of which only some rows of each block are looked at: its values are larger than what is
/// taken apart.
#[test]
fn a_default_sample_of_large_values_foretells_the_files() {
    let server = Server::start(&Options::default());
    let database = server.create_database("advisethin");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int PRIMARY KEY, v text);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 312) FROM generate_series(1, 16000) AS i",
    );
    database.psql("VACUUM ANALYZE t");
    let files: f64 = sizes(&database, "t").iter().sum();
    let report = advised(&database, &["t", "-c", "v"]);
    assert!(report.sample.rows_examined < 10_000, "{}", report.sample);
    let today = report.today().total_bytes;
    assert!((today.estimate / files - 1.0).abs() < 0.03, "{} of {files}", today.estimate);
    let text = advise(&database, &["t", "-c", "v", "--details"]).ok();
    assert!(!text.contains("more than the live rows need"), "{text}");
}

/// Three values hold nearly all bytes of 100,000 rows: whether the sample has them or not, no figure is called certain that
/// is not true.
#[test]
fn few_very_large_values_are_in_every_interval() {
    let server = Server::start(&Options::default());
    let database = server.create_database("adviserare");
    database.psql("CREATE EXTENSION pageinspect");
    for ids in ["500, 40000, 90000", "7, 30000, 60001"] {
        database.psql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, v jsonb); ALTER TABLE t ALTER v SET STORAGE external;
             INSERT INTO t SELECT i, jsonb_build_object('k', i) FROM generate_series(1, 100000) AS i;
             UPDATE t SET v = jsonb_build_object('k', id, 'big', repeat(md5(id::text), 1600000)) WHERE id IN ({ids})",
        ));
        database.psql("VACUUM (FULL, ANALYZE) t");
        let files: f64 = sizes(&database, "t").iter().sum();
        let stored = database.psql("SELECT sum(pg_column_size(v)) FROM t");
        let stored: f64 = stored.trim().parse().unwrap();
        let report = advised(&database, &["t", "-c", "v"]);
        let today = report.today().total_bytes;
        let estimate = today.estimate;
        assert!((0.5..1.02).contains(&(estimate / files)), "{ids}: {estimate} of {files}");
        assert!(today.low <= files && files <= today.high * 1.01, "{ids}: {report}");
        let conninfo = database.conninfo();
        let words = ["keys", "-d", &conninfo, "t", "--format", "json"];
        let keys: Printed<Keys> = run(toastctl().args(words)).exits(0).report();
        let told = &keys.stored_bytes;
        assert!(told.low <= stored && stored <= told.high, "{ids}: {keys} of {stored}");
        assert!(told.high < stored * 1.1, "{ids}: {keys} of {stored}");
        assert!(keys.key("k").share.low < 0.02, "{ids}: {keys}");
    }
}

#[test]
fn bad_input_is_told_what_is_allowed() {
    let database = server::shared().create_database("advise");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id integer, v text, w tsquery); INSERT INTO t VALUES (1, 'x', 'y');
         CREATE TABLE narrow (id integer); CREATE VIEW seen AS SELECT * FROM t",
    );
    let refused = |arguments: &[&str]| {
        let run = advise(&database, arguments);
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        let first = run.stderr.lines().take_while(|line| !line.is_empty());
        format!("{:?}: {}", run.code.unwrap(), first.collect::<Vec<_>>().join("\n"))
    };
    insta::assert_snapshot!(
        [
            refused(&["t", "--policy", "sometimes"]),
            refused(&["t", "--policy", "ratio=1.5"]),
            refused(&["t", "--target", "100"]),
            refused(&["t", "--method", "zstd"]),
            refused(&["t", "--storage", "toast"]),
            refused(&["t", "--sample", "0%"]),
            refused(&["t", "--reads-per-write", "-1"]),
            refused(&["t", "--column", "id"]),
            refused(&["t", "--column", "w"]),
            refused(&["t", "--column", "nothing"]),
            refused(&["t", "--storage", "external", "--policy", "best"]),
            refused(&["narrow"]),
            refused(&["seen"]),
            refused(&["nothing"]),
        ]
        .join("\n"),
        @r#"
        2: toastctl: error: invalid value 'sometimes' for '--policy <POLICY>': unknown policy "sometimes": expected always, never, chunk-saving[=chunks], ratio[=part], chunk-floor[=chunks], hybrid[=part] or best
        2: toastctl: error: invalid value 'ratio=1.5' for '--policy <POLICY>': policy "ratio" takes a part of the raw size over 0 and at most 1, got "1.5" (as in ratio=0.95)
        2: toastctl: error: invalid value '100' for '--target <BYTES>': expected a whole number from 128 to 8160
        2: toastctl: error: invalid value 'zstd' for '--method <METHOD>': unknown compression method "zstd": expected pglz, lz4 or either
        2: toastctl: error: invalid value 'toast' for '--toaster <STORAGE>': unknown toaster "toast": expected pglz, lz4, external, main[=method], extended or plain
        2: toastctl: error: invalid value '0%' for '--sample <PART>': expected a part over 0 and up to 100 % (as in 1%), or a number of blocks from 1 (as in "5000 blocks"); a seed can follow (as in 1%,seed=7)
        2: toastctl: error: invalid value '-1' for '--reads-per-write <N>': expected a number of at least 0
        2: toastctl: error: column "id" of relation "public.t" has type integer, whose values have a fixed length and are never toasted
        HINT:  Columns that can be toasted are "v".
        2: toastctl: error: column "w" of relation "public.t" has type tsquery, which has no storage but plain
        HINT:  Columns that can be toasted are "v".
        1: toastctl: error: column "nothing" of relation "public.t" does not exist
        HINT:  Columns that can be toasted are "v".
        2: toastctl: error: policy "best" needs storage extended or main, not external
        2: toastctl: error: relation "public.narrow" has no column that can be toasted
        1: toastctl: error: "public.seen" is a view; name the tables that it reads: public.t
        1: toastctl: error: relation "nothing" does not exist
        HINT:  toastctl inspect shows the tables of this database; -d names another one.
        "#
    );
}

#[test]
fn prices_are_those_of_the_user() {
    let database = server::shared().create_database("advise");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE TABLE docs (id integer, body text);
         INSERT INTO docs SELECT i, repeat(md5(i::text), 20 + i % 200) FROM generate_series(1, 200) AS i",
    );
    let flat = |arguments: &[&str]| {
        let text = advise(&database, arguments).ok();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = flat(&["docs", "--prices", "disk=1.5,wal=0", "--details"]);
    let weighed = "$1.50 a month for a GB of files and as much for a copy, $0.05 for an hour of CPU time, $0.00 for a GB of \
                   WAL";
    assert!(text.contains(weighed), "{text}");
    for (arguments, why) in [
        (&["docs", "--prices", "ram=1"][..], "unknown price \"ram\": expected disk, cpu or wal"),
        (
            &["docs", "--prices", "disk"],
            "expected prices such as disk=0.10,cpu=0.05,wal=0.02, got \"disk\"",
        ),
        (
            &["docs", "--prices", "disk=-1"],
            "expected a price from 0 to 1000000 dollars, got \"-1\"",
        ),
        (
            &["docs", "--prices", "disk=1", "--optimize", "size"],
            "--prices applies only to --optimize balanced",
        ),
    ] {
        let refused = advise(&database, arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}");
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
fn the_report_is_readable_and_its_json_has_its_documented_shape() {
    let database = server::shared().create_database("advise");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE docs (id integer, body text, note text);
         INSERT INTO docs SELECT i, repeat(md5(i::text), 20 + i % 200), 'note ' || i
         FROM generate_series(1, 2000) AS i",
    );
    let arguments = ["docs", "--sample", "100%", "--exact", "--reads-per-write", "10"];
    advised(&database, &arguments);
    let text = |more: &[&str]| advise(&database, &[&arguments[..], more].concat()).ok();
    insta::assert_snapshot!("advise_table", text(&[]));
    insta::assert_snapshot!("advise_markdown", text(&["--format", "markdown"]));
    insta::assert_snapshot!("advise_csv", text(&["--format", "csv"]));
    insta::assert_snapshot!(
        text(&["--emit", "sql"]) + &text(&["--emit", "command"]),
        @r#"
        ALTER TABLE "public"."docs" ALTER COLUMN "body" SET COMPRESSION lz4;
        toastctl retoast public.docs --column body --toaster lz4 --compact=heap
        "#
    );
}
