//! `inspect` of many tables: the overview, compared with what SQL and full reports say of the same tables.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use toast_format::disk::BlockNumber;
use toast_format::model::interval::{Amount, Interval};
use toastctl::server::about::Server as AboutServer;
use toastctl::server::pages::PageReader;
use toastctl::server::snapshot;

use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::library::connect;
use crate::support::reports::overview::{ColumnLine, LastLine, Overview, RelationLine};
use crate::support::reports::{About, Printed, Source, inspect as inspect_report};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::verbs::{inspect, overview, relation as relation_of};

/// `relation.column` of the ranking, without the schema `public`.
fn columns(report: &Overview) -> Vec<String> {
    ranked(&report.columns)
}

fn ranked(columns: &[Printed<ColumnLine>]) -> Vec<String> {
    let name = |column: &Printed<ColumnLine>| format!("{}.{}", column.relation, column.column);
    columns.iter().map(|column| name(column).trim_start_matches("public.").to_owned()).collect()
}

/// One column of the ranking.
#[track_caller]
fn column<'a>(
    report: &'a Printed<Overview>,
    relation: &str,
    column: &str,
) -> &'a Printed<ColumnLine> {
    let named = |line: &&Printed<ColumnLine>| line.relation == relation && line.column == column;
    let mut found = report.columns.iter().filter(named);
    let line = found.next().unwrap_or_else(|| panic!("no {relation}.{column}: {report}"));
    assert!(found.next().is_none());
    line
}

/// The truth is no farther away than twice the interval. What is drawn depends on OIDs, which differ from run to
/// run, and one in twenty intervals need not hold.
#[track_caller]
fn holds(what: &str, figure: impl Into<Option<Amount>>, truth: f64) {
    let estimate = figure.into().unwrap_or_else(|| panic!("no {what}")).real();
    let Interval { low, estimate: guess, high } = estimate;
    let inside = guess - 2.0 * (guess - low) <= truth && truth <= guess + 2.0 * (high - guess);
    assert!(low <= guess && guess <= high && inside, "{what}: {truth} is not in {estimate:?}");
}

#[track_caller]
fn is_exactly(figure: impl Into<Option<Amount>>, truth: u64) {
    assert_eq!(figure.into(), Some(Interval::exact(truth)));
}

fn number(database: &Database<'_>, sql: &str) -> f64 {
    database.psql(sql).parse().unwrap()
}

/// What the pages say of values in a column: stored, pointers, out of line.
fn stored(database: &Database<'_>, table: &str, column: &str) -> f64 {
    number(database, &format!("SELECT sum(pg_column_size({column})) FROM {table}"))
}

#[test]
fn six_hundred_tables_and_a_large_one_are_told_in_seconds_and_little_memory() {
    let database = with_pageinspect("many");
    database.psql(
        "DO $$ BEGIN FOR i IN 1..600 LOOP
           EXECUTE format('CREATE TABLE t%s AS SELECT g AS id, repeat(md5(g::text), g %% 90) AS v
                           FROM generate_series(1, %s) AS g', i, i % 50 + 1);
         END LOOP; END $$;
         CREATE TABLE huge (id int, v text); ALTER TABLE huge ALTER v SET STORAGE external;
         INSERT INTO huge SELECT i, repeat('toast', 400 + i % 401) FROM generate_series(1, 100000) AS i;",
    );
    let began = Instant::now();
    let mut child = toastctl()
        .args(["inspect", "-d", &database.url(), "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        text
    });
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let now = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = now.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(now.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    println!("{took:?}, {peak} kB");
    assert!((1..150 * 1024).contains(&peak), "{peak} kB");
    // the last statement of each connection may end later than the time, and is then stopped
    assert!(took < Duration::from_secs(15), "{took:?}");
    let report =
        Run { code: output.status.code(), stdout: reader.join().unwrap(), stderr: stderr.clone() }
            .report::<Overview>();
    let read = report.totals.read;
    // a busy machine may not read every small table in the time, and then says so
    assert_eq!(output.status.code(), Some(i32::from(read < 601)), "{read}: {stderr}");
    let left_out = report.left_out.len() as u64;
    assert_eq!(read + left_out, 601);
    assert!(read > 100, "{read}: {stderr}");
    let huge = column(&report, "public.huge", "v");
    let pointers = 18.0 * 100_000.0;
    let truth = stored(&database, "huge", "v");
    holds("stored", huge.stored_bytes, truth + pointers);
    holds("out of line", huge.out_of_line_bytes, truth);
    holds("raw", huge.raw_bytes, number(&database, "SELECT sum(octet_length(v)) FROM huge"));
    holds("values", huge.values, 100_000.0);
    let Interval { low, high, .. } = huge.stored_bytes.real();
    assert!(high - low < truth * 0.11 && low < high, "{huge}");
    // the small ones are counted
    let t49 = column(&report, "public.t49", "v");
    is_exactly(t49.stored_bytes, stored(&database, "t49", "v") as u64);
    // most of a large table stays unread
    let first = &report.relations[0];
    if let ("huge", Some(sample)) = (first.read.name.name.as_deref().unwrap(), first.read.sample) {
        assert!(sample.blocks_read < sample.blocks / 2, "{first}");
    }
}

/// A partitioned table of three parts, inheritance, and a table beside them.
const PARTS: &str = "
    CREATE TABLE whole (id int, v text) PARTITION BY RANGE (id);
    CREATE TABLE part_1 PARTITION OF whole FOR VALUES FROM (0) TO (100);
    CREATE TABLE part_2 PARTITION OF whole FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (id);
    CREATE TABLE part_2a PARTITION OF part_2 FOR VALUES FROM (100) TO (500);
    CREATE TABLE part_2b PARTITION OF part_2 FOR VALUES FROM (500) TO (1000);
    CREATE TABLE parent (v text); CREATE TABLE child (extra text) INHERITS (parent);
    CREATE TABLE beside (v text);
    INSERT INTO whole SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 900) AS i;
    INSERT INTO parent SELECT md5(i::text) FROM generate_series(1, 50) AS i;
    INSERT INTO child SELECT md5(i::text), 'x' FROM generate_series(1, 70) AS i;
    INSERT INTO beside VALUES ('x'); ";

#[test]
fn partitions_and_children_are_one_line_unless_they_are_asked_for() {
    let database = with_pageinspect("parts");
    database.psql(PARTS);
    let all = overview(&database, &[]);
    let expected = ["whole.v", "parent.v", "whole.id", "parent.extra", "beside.v"];
    assert_eq!(columns(&all), expected);
    let whole = column(&all, "public.whole", "v");
    assert_eq!(whole.parts, 3);
    is_exactly(whole.values, 900);
    is_exactly(whole.stored_bytes, stored(&database, "whole", "v") as u64);
    assert_eq!(column(&all, "public.parent", "v").parts, 2);
    assert_eq!(all.totals.read, 6);
    let parts = all.relations.iter().filter(|r| r.part_of.as_deref() == Some("public.whole"));
    assert_eq!(parts.count(), 3);
    let text = inspect(&database, &[]).ok();
    assert!(text.contains(" whole (3 parts)  | v "), "{text}");
    // one by one
    let parts = columns(&overview(&database, &["--parts"]));
    for part in ["part_1.v", "part_2a.v", "part_2b.v", "child.extra", "parent.v", "child.v"] {
        assert!(parts.contains(&part.to_owned()), "{parts:?}");
    }
    // a parent that is named, a part of a part, and a pattern that means parts alone
    assert_eq!(columns(&overview(&database, &["whole"])), ["whole.v", "whole.id"]);
    assert_eq!(columns(&overview(&database, &["part_2"])), ["whole.v", "whole.id"]);
    let named = columns(&overview(&database, &["part_2a", "part_1", "--sort", "name"]));
    assert_eq!(named, ["part_1.id", "part_1.v", "part_2a.id", "part_2a.v"]);
    let matched = columns(&overview(&database, &["part_2?", "--sort", "name"]));
    assert_eq!(matched[0], "part_2a.id");
}

#[test]
fn every_order_and_the_limit_are_what_they_say() {
    let database = with_pageinspect("orders");
    database.psql(
        "CREATE TABLE b (squeezed text); INSERT INTO b SELECT repeat('b', 100000) FROM generate_series(1, 20);
         CREATE TABLE a (plain text); ALTER TABLE a ALTER plain SET STORAGE external;
         INSERT INTO a SELECT repeat(md5(i::text), 63) FROM generate_series(1, 200) AS i;
         CREATE TABLE c (holes text) WITH (autovacuum_enabled = off);
         INSERT INTO c SELECT md5(i::text) FROM generate_series(1, 4000) AS i;
         DELETE FROM c WHERE holes > '1'; VACUUM (TRUNCATE off) c",
    );
    let by = |order: &str| columns(&overview(&database, &["--sort", order]));
    assert_eq!(by("stored"), ["a.plain", "b.squeezed", "c.holes"]);
    assert_eq!(by("raw"), ["b.squeezed", "a.plain", "c.holes"]);
    assert_eq!(by("unused"), ["c.holes", "a.plain", "b.squeezed"]);
    assert_eq!(by("name"), ["a.plain", "b.squeezed", "c.holes"]);
    let first = overview(&database, &["--limit", "1"]);
    assert_eq!(columns(&first), ["a.plain"]);
    let text = inspect(&database, &["--limit", "1"]).ok();
    let more = stored(&database, "b", "squeezed") + stored(&database, "c", "holes");
    let more = database.psql(&format!("SELECT pg_size_pretty({more}::int8)"));
    let row = text.lines().rfind(|line| line.contains("(2 more)")).unwrap();
    assert!(row.contains(&more), "{more}: {text}");
    // what is unused, by the pages of heap and TOAST relation
    let seen = overview(&database, &[]);
    for relation in &seen.relations {
        let name = relation.read.name.name.as_deref().unwrap();
        let full = relation_of(&database, &[name]);
        let free =
            (full.heap.free_bytes.unwrap().estimate + full.toast().free_bytes.unwrap()) as f64;
        let unused = relation.figures.unused_bytes.unwrap().estimate as f64;
        // chunks are aligned, and their line pointers are rows' too
        assert!((unused - free).abs() < free * 0.05 + 4096.0, "{name}: {unused}, {free}");
    }
    // what others have read by index, what is dead in heap and TOAST relation
    database.psql(
        "CREATE UNIQUE INDEX ON c (holes); CREATE INDEX ON b (length(squeezed)); VACUUM a, b, c;
         SET enable_seqscan = off; SELECT count(*) FROM b WHERE length(squeezed) > 1;
         SELECT holes, ctid FROM c WHERE holes < '0c'; UPDATE a SET plain = plain || 'x';
         SELECT pg_stat_force_next_flush()",
    );
    let read = overview(&database, &["--sort", "read"]);
    assert_eq!(columns(&read)[0], "c.holes");
    let of = |report: &Overview, table: &str| {
        let is =
            |relation: &&Printed<RelationLine>| relation.read.name.name.as_deref() == Some(table);
        let found = report.relations.iter().find(is).unwrap();
        [found.figures.rows_read, found.figures.dead_rows].map(Option::unwrap)
    };
    let rows = number(&database, "SELECT count(*) FROM c WHERE holes < '0c'");
    assert_eq!(of(&read, "c")[0] as f64, rows);
    assert_eq!(of(&read, "a")[0], 0);
    assert_eq!(columns(&overview(&database, &["--sort", "dead"]))[0], "a.plain");
    // 200 rows and their chunks
    assert_eq!(of(&read, "a")[1], 200 + 400);
    let text = inspect(&database, &["--sort", "dead"]).ok();
    assert!(
        text.contains("dead rows of the table and its TOAST:") && text.contains("600"),
        "{text}"
    );
}

#[test]
fn everything_is_no_estimate_and_a_part_is_as_large_as_asked() {
    let database = with_pageinspect("part");
    database.psql(
        "CREATE TABLE t (v text); CREATE TABLE u (v text);
         INSERT INTO t SELECT repeat(md5(i::text), (i::int8 * 7919 % 50)::int) FROM generate_series(1, 90000) AS i;
         INSERT INTO u SELECT md5(i::text) FROM generate_series(1, 60000) AS i; VACUUM t, u",
    );
    let read = |report: &Overview| report.totals.sampled_blocks_read;
    let truth = stored(&database, "t", "v");
    // no time limit that a busy machine could meet
    let usual = overview(&database, &["--max-time", "10min"]);
    holds("stored", column(&usual, "public.t", "v").stored_bytes, truth);
    let all = overview(&database, &["--sample", "100%"]);
    is_exactly(column(&all, "public.t", "v").stored_bytes, truth as u64);
    assert_eq!(all.totals.sampled, 0);
    let part = overview(&database, &["--sample", "50 blocks,seed=7"]);
    assert_eq!(read(&part), 100);
    assert_eq!(part.relations[0].read.sample.unwrap().seed, 7);
}

#[test]
fn only_a_sample_is_read_and_little_of_toast_relations() {
    let database = with_pageinspect("read");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, (SELECT string_agg(md5((i * 80 + k)::text), '') FROM generate_series(1, 78) AS k)
             FROM generate_series(1, 60000) AS i;
         VACUUM (FREEZE) t; SELECT pg_stat_force_next_flush()",
    );
    database.psql("SELECT pg_stat_reset()");
    let report = overview(&database, &[]);
    assert_eq!(report.totals.looked_at, 1);
    let read = report.relations[0].read.sample.unwrap().blocks_read;
    assert!(read < 300, "{read}");
    let started = Instant::now();
    loop {
        let counted = database.psql(
            "SELECT heap_blks_read + heap_blks_hit, toast_blks_read + toast_blks_hit
             FROM pg_statio_user_tables WHERE relname = 't'",
        );
        let (heap, toast) = counted.split_once('|').unwrap();
        let (heap, toast): (u64, u64) = (heap.parse().unwrap(), toast.parse().unwrap());
        // for findings, a fixed number of blocks, and the chunks of up to 128 values, which are compressed on trial; only
        // where these show a symptom of settings, advice reads more
        if heap == read + 256 && (257..256 + 128 * 6).contains(&toast) {
            break;
        }
        assert!(counted == "0|0" && started.elapsed().as_secs() < 30, "{counted}, {read}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_locked_table_costs_its_own_line_when_time_is_up() {
    let database = with_pageinspect("held");
    database.psql(
        "CREATE TABLE a AS SELECT md5(i::text) AS v FROM generate_series(1, 400) AS i;
         CREATE TABLE b AS SELECT * FROM a; CREATE TABLE c AS SELECT * FROM a",
    );
    let locker = Holder::of(&database, "LOCK TABLE b");
    let began = Instant::now();
    for tables in [&["a", "b", "c"][..], &[]] {
        let found =
            inspect(&database, &[tables, &["--max-time", "1500ms", "--format", "json"]].concat());
        assert_eq!(found.code, Some(1), "{}", found.stderr);
        let expected = format!(
            "toastctl: error: public.b: time was up\n\
             DETAIL:  Blocked: session {} (user postgres, psql, in a transaction for ",
            locker.pid
        );
        assert!(found.stderr.starts_with(&expected), "{}", found.stderr);
        let said = "toastctl: error: public.b: not reached within --max-time 1.5s\n";
        assert!(found.stderr.contains(said), "{}", found.stderr);
        let report = found.report::<Overview>();
        assert_eq!(columns(&report), ["a.v", "c.v"]);
        assert_eq!(report.left_out[0].relation, "public.b");
        assert_eq!(report.totals.relations, 3);
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    // the lock timeout that the user has chosen comes first
    let found = run(toastctl()
        .args(["inspect", "-d", &database.url(), "--format", "jsonl"])
        .env("PGOPTIONS", "-c lock_timeout=200ms"));
    assert_eq!(found.code, Some(1));
    let lines = found.lines::<About>();
    assert_eq!(lines.len(), 3, "{}", found.stdout);
    assert!(lines.iter().all(|line| line.schema == "toastctl.inspect/2"));
    let last = Printed::<LastLine>::read(&lines[2].to_string());
    assert_eq!(ranked(&last.columns), ["a.v", "c.v"]);
    let reason = &last.left_out[0].reason;
    assert_eq!(reason, "canceling statement due to lock timeout");
    drop(locker);
}

/// Pages that take long to look at keep nobody from looking at the clock, whether they are taken as they come or, where
/// nothing on them says yet that their rows are live, in the end.
#[test]
fn time_is_up_between_pages() {
    const PAGE: Duration = Duration::from_millis(1);
    const TIME: Duration = Duration::from_millis(100);
    let database = with_pageinspect("clock");
    database.psql(
        "CREATE TABLE fresh AS SELECT repeat('x', 1500) AS v FROM generate_series(1, 2500);
         CREATE TABLE frozen AS TABLE fresh; VACUUM (FREEZE) frozen",
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for table in ["fresh", "frozen"] {
        let taken = runtime.block_on(async {
            let connection = connect(&database).await;
            let server = AboutServer::ask(connection.client()).await.unwrap();
            let moment = snapshot::begin(&connection).await.unwrap();
            let pageinspect = server.pageinspect.as_ref().unwrap();
            let (name, snapshot) = (format!("public.{table}"), moment.snapshot);
            let other = Arc::clone(&connection);
            let reader = PageReader::new(other, pageinspect, server.page_size, name, snapshot);
            let mut reader = reader.await.unwrap();
            let blocks: Vec<_> =
                (0..reader.block_count().await.unwrap()).map(BlockNumber).collect();
            assert!(blocks.len() >= 500, "{}", blocks.len());
            let (taken, began) = (AtomicU32::new(0), OnceLock::new());
            let read = reader.read_each(&blocks, |pages| {
                for _ in pages.iter() {
                    began.get_or_init(Instant::now);
                    let page = Instant::now();
                    while page.elapsed() < PAGE {}
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
            let time_is_up = async {
                while began.get().is_none_or(|began: &Instant| began.elapsed() < TIME) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                read = read => panic!("it was read: {read:?}"),
                () = time_is_up => taken.load(Ordering::Relaxed),
            }
        });
        // those of one row of the server's besides
        assert!(u128::from(taken) <= TIME.as_millis() + 32, "{table}: {taken}");
    }
}

#[test]
fn what_is_not_looked_at_in_time_is_counted_and_named() {
    let database = with_pageinspect("late");
    database.psql(
        "DO $$ BEGIN FOR i IN 1..300 LOOP
           EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS i', i); END LOOP; END $$",
    );
    let found = inspect(&database, &["--max-time", "20ms", "--format", "json"]);
    // nothing may have been read at all, and nothing is printed then
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    let said = " of 300 relations were not reached within --max-time 20ms; the largest is public.t";
    assert!(found.stderr.contains(said), "{}", found.stderr);
    if !found.stdout.is_empty() {
        let report = found.report::<Overview>();
        let read = report.totals.read;
        let left_out = &report.left_out;
        assert_eq!(left_out.len() as u64 + read, 300);
        assert!(left_out.iter().all(|one| one.reason == "time was up"), "{left_out:?}");
    }
    let text = inspect(&database, &["--max-time", "300ms"]);
    if text.code == Some(1) && !text.stdout.is_empty() {
        assert!(text.stdout.contains("\nNot read: "), "{}", text.stdout);
    }
}

#[test]
fn without_pages_the_overview_says_the_same_and_what_it_cannot_say() {
    server::each_server(|server, major| {
        let database = server.create_database("owner");
        let role = database.create_role("owner_of");
        database.psql(&format!(
            "CREATE EXTENSION pageinspect;
             CREATE TABLE small (id int, v text); CREATE TABLE large (id int, v text, j jsonb);
             ALTER TABLE large ALTER v SET STORAGE external;
             INSERT INTO small SELECT i, repeat(md5(i::text), i % 60) FROM generate_series(1, 700) AS i;
             INSERT INTO large SELECT i, repeat(md5(i::text), (i::int8 * 7919 % 90)::int), to_jsonb(i)
               FROM generate_series(1, 50000) AS i;
             ALTER TABLE small OWNER TO {role}; ALTER TABLE large OWNER TO {role};
             CREATE TABLE secret (v text); INSERT INTO secret VALUES ('x')"
        ));
        let url = database.url_of(&role);
        let found = run(toastctl().args(["inspect", "-d", &url, "--format", "json"]));
        assert_eq!(found.code, Some(1), "{}", found.stderr);
        let expected = "toastctl: notice: using SQL functions: pageinspect needs a superuser\n\
                        toastctl: error: public.secret: permission denied for table secret\n\
                        HINT:  Reading takes SELECT on the table and USAGE on its schema, which members of \
                        pg_read_all_data have: toastctl help permissions.\n";
        assert_eq!(found.stderr, expected);
        let report = found.report::<Overview>();
        assert_eq!(report.left_out[0].relation, "public.secret");
        assert_eq!(report.totals.unused_bytes, None);
        assert_eq!(report.totals.by_functions, 2);
        let small = column(&report, "public.small", "v");
        is_exactly(small.stored_bytes, stored(&database, "small", "v") as u64);
        is_exactly(
            small.raw_bytes,
            number(&database, "SELECT sum(octet_length(v)) FROM small") as u64,
        );
        let large = column(&report, "public.large", "v");
        // without a header in front of it
        let outside = "FROM large WHERE pg_column_size(v) = octet_length(v) AND v <> ''";
        let out_of_line = number(&database, &format!("SELECT sum(pg_column_size(v)) {outside}"));
        let pointers = 18.0 * number(&database, &format!("SELECT count(*) {outside}"));
        holds("stored", large.stored_bytes, stored(&database, "large", "v") + pointers);
        holds("raw", large.raw_bytes, number(&database, "SELECT sum(octet_length(v)) FROM large"));
        holds("out of line", large.out_of_line_bytes, out_of_line);
        // since 17 the server tells where each value is
        let jsonb = column(&report, "public.large", "j").out_of_line_bytes;
        assert_eq!(jsonb.is_none(), major < 17, "{major}: {jsonb:?}");
        // the same with pages
        let pages = overview(&database, &["small", "large"]);
        assert_eq!(pages.relations[0].read.source, Source::Pageinspect);
    });
}

#[test]
fn lines_are_those_of_the_document_and_the_last_is_the_ranking() {
    // what autovacuum does in its catalogs changes the shares of the database, and so does the visibility map, which a
    // SELECT makes from PostgreSQL 19 on
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.with_pageinspect("lines");
    database.psql(PARTS);
    database.psql("VACUUM");
    for more in [&[][..], &["--source", "functions"], &["--sample", "5 blocks"]] {
        let whole = overview(&database, &[more, &["--jobs", "1"]].concat());
        let lines =
            inspect(&database, &[more, &["--jobs", "1", "--format", "jsonl"]].concat()).ok();
        let mut lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut lines {
            let schema = line.as_object_mut().unwrap().remove("schema").unwrap();
            assert_eq!(schema, "toastctl.inspect/2");
        }
        let last = lines.pop().unwrap();
        let whole_json = whole.json();
        let mut tables = whole_json["tables"].as_array().unwrap().clone();
        // time goes on between two runs
        for table in lines.iter_mut().chain(&mut tables) {
            table.as_object_mut().unwrap().remove("vacuum_age_seconds").unwrap();
        }
        assert_eq!(lines, tables);
        for field in ["columns", "left_out", "totals"] {
            assert_eq!(last[field], whole_json[field]);
        }
        let csv = inspect(&database, &[more, &["--format", "csv"]].concat()).ok();
        let rows = columns(&whole).len() + whole.ranked_tables.len();
        assert_eq!(csv.lines().count(), rows + 1, "{csv}");
        assert!(csv.contains("\npublic.beside,v,text,extended,,1,1,1,1,2,2,2,1,"), "{csv}");
    }
    // one table, with --details several, are what they were
    for more in [&["beside"][..], &["--details"]] {
        let run = inspect(&database, &[&["--format", "json"], more].concat());
        let report: Printed<inspect_report::Report> = run.exits(0).report();
        assert_eq!(report.schema, "toastctl.inspect/2");
    }
    for wrong in [&["--details", "--sort", "raw"][..], &["--limit", "0"], &["--max-time", "0s"]] {
        assert_eq!(inspect(&database, wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn damage_costs_its_own_blocks_and_the_exit_code_says_so() {
    let server = Server::start(&Options::default());
    let database = server.create_database("damaged");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t AS SELECT i, md5(i::text) AS v FROM generate_series(1, 3000) AS i;
         CREATE TABLE u AS SELECT * FROM t; CHECKPOINT",
    );
    let path = database.psql("SELECT pg_relation_filepath('t')");
    server.damage(&path, [3]);
    let found = inspect(&database, &["--format", "json"]);
    assert_eq!(found.code, Some(1));
    assert!(
        found.stderr.starts_with("toastctl: error: public.t, block 3: invalid page in block 3"),
        "{}",
        found.stderr
    );
    let report = found.report::<Overview>();
    is_exactly(column(&report, "public.u", "v").values, 3000);
    let t = column(&report, "public.t", "v").values.estimate;
    assert!((2800..3000).contains(&t), "{t}");
}

/// What is asked for findings alone costs the line nothing when it fails.
#[test]
fn damage_that_findings_meet_costs_their_table_no_line() {
    let server = Server::start(&Options::default());
    let database = server.create_database("damaged");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t AS SELECT i, string_agg(md5(i || '/' || n), '') AS v
             FROM generate_series(1, 600) AS i, generate_series(1, 100) AS n GROUP BY i;
         CREATE TABLE u AS SELECT * FROM t; CHECKPOINT",
    );
    let of_toast = |what: &str| {
        database
            .psql(&format!("SELECT {what}(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass"))
    };
    let blocks = of_toast("pg_relation_size").parse::<usize>().unwrap() / 8192;
    server.damage(&of_toast("pg_relation_filepath"), (0..blocks).step_by(2));
    let found = inspect(&database, &["--format", "json"]);
    assert_eq!(found.code, Some(1));
    let told = "toastctl: error: public.t: findings: invalid page in block ";
    assert!(found.stderr.starts_with(told), "{}", found.stderr);
    let report = found.report::<Overview>();
    for table in ["public.t", "public.u"] {
        is_exactly(column(&report, table, "v").values, 600);
    }
    assert_eq!((report.totals.looked_at, report.totals.unsearched), (2, 1));
    let text = inspect(&database, &[]).stdout;
    assert!(!text.contains("of 1 MB or more; toastctl check"), "{text}");
    let whole = inspect(&database, &["t", "--format", "json"]);
    assert_eq!(whole.code, Some(1));
    let whole = whole.relation();
    assert_eq!(whole.columns[1].all.values, Interval::exact(600));
    let problems: Vec<&str> = whole.problems.iter().map(|one| one.text.as_str()).collect();
    assert!(problems[0].starts_with("pg_toast."), "{problems:?}");
}

/// Rows still refer to values of dropped columns: their chunks are neither free nor dead.
#[test]
fn values_of_dropped_columns_are_neither_free_space_nor_dead_rows() {
    let database = with_pageinspect("dropped");
    database.psql(
        "CREATE EXTENSION pgstattuple;
         CREATE TABLE pics (id int PRIMARY KEY, title text, img bytea);
         ALTER TABLE pics ALTER img SET STORAGE external;
         INSERT INTO pics SELECT i, 't' || i, decode(repeat(md5(i::text), 500), 'hex')
             FROM generate_series(1, 600) AS i;
         -- large enough for a sample, with values in the rows
         CREATE TABLE notes (id int, gone text, img text, kept text);
         ALTER TABLE notes ALTER gone SET STORAGE plain, ALTER img SET STORAGE external;
         INSERT INTO notes SELECT i, repeat('g', 1500), repeat('i', 3000), 'k'
             FROM generate_series(1, 2000) AS i;
         ALTER TABLE pics DROP COLUMN img;
         ALTER TABLE notes DROP COLUMN gone, DROP COLUMN img;
         VACUUM pics, notes",
    );
    let free = |table: &str| {
        number(
            &database,
            &format!(
                "SELECT sum((pgstattuple(oid)).free_space) FROM pg_class
                 WHERE oid IN ('{table}'::regclass,
                     (SELECT reltoastrelid FROM pg_class WHERE oid = '{table}'::regclass))"
            ),
        )
    };
    let report = overview(&database, &[]);
    for (table, dropped) in [("pics", 600.0 * 8000.0), ("notes", 2000.0 * 4500.0)] {
        let name = format!("public.{table}");
        let line = report.relations.iter().find(|line| line.read.name.relation == name).unwrap();
        let unused = line.figures.unused_bytes.unwrap().estimate as f64;
        let free = free(table);
        assert!((unused - free).abs() < free * 0.2 + 200_000.0, "{table}: {unused}, {free}");
        let json = &line.json()["dropped_bytes"]["estimate"];
        let found = json.as_f64().unwrap_or_default();
        assert!((found / dropped - 1.0).abs() < 0.05, "{table}: {found}, {dropped}");
    }
    let text = inspect(&database, &[]).ok();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("are values of dropped columns"), "{text}");
    let calm = ["--fail-on", "free_space>4MB"];
    assert_eq!(inspect(&database, &calm).code, Some(0));
    let one = inspect(&database, &["pics"]).ok();
    assert!(one.contains("; 600 values in "), "{one}");
    assert!(one.contains("dropped columns: 600 values, 4698 kB"), "{one}");
    // functions show no such values, and do not say that there are none
    let role = database.create_role("dropped_owner");
    database.psql(&format!("ALTER TABLE pics OWNER TO {role}"));
    let url = database.url_of(&role);
    let blind = run(toastctl().args(["inspect", "-d", &url, "pics"])).ok();
    assert!(!blind.contains("no values"), "{blind}");
    assert!(blind.contains("values of dropped columns"), "{blind}");
}

/// A reader under row security counts what the policies let it see: that is said beside the figures in every format.
#[test]
fn figures_of_a_reader_under_row_security_are_marked() {
    let database = with_pageinspect("policies");
    let role = database.create_role("policies_reader");
    database.psql(&format!(
        "GRANT pg_read_all_data TO {role};
         CREATE TABLE hidden (id int, who text, j jsonb);
         INSERT INTO hidden SELECT i, CASE WHEN i % 2 = 0 THEN '{role}' ELSE 'x' END,
             jsonb_build_object('k', repeat(md5(i::text), 90)) FROM generate_series(1, 500) AS i;
         ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON hidden USING (who = current_user);
         CREATE TABLE free AS SELECT id, j FROM hidden"
    ));
    let url = database.url_of(&role);
    let read = |arguments: &[&str]| {
        let (verb, arguments) = crate::support::command::verb_of("inspect", arguments);
        run(toastctl().args([verb, "-d", &url]).args(arguments)).ok()
    };
    let text = read(&[]);
    assert!(text.contains(" hidden (visible rows) "), "{text}");
    assert!(!text.contains("free (visible rows)"), "{text}");
    assert!(text.contains("Row security may hide rows of 1 table from this user"), "{text}");
    let csv = read(&["--format", "csv"]);
    let fields: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let mark = fields.iter().position(|field| *field == "visible_rows_only").unwrap();
    for line in csv.lines().skip(1) {
        let is_marked = line.split(',').nth(mark) == Some("true");
        assert_eq!(is_marked, line.starts_with("public.hidden,"), "{line}");
    }
    let report = run(toastctl().args(["inspect", "-d", &url, "--format", "json"]));
    let report = report.report::<Overview>();
    for column in &report.columns {
        let marked = column.json()["visible_rows_only"].as_bool();
        assert_eq!(marked, Some(column.relation == "public.hidden"), "{column}");
    }
    let metrics = read(&["--format", "openmetrics"]);
    assert!(!metrics.contains("table=\"hidden\",column="), "{metrics}");
    for markdown in [read(&["--format", "markdown"]), read(&["--format", "html"])] {
        assert!(markdown.contains("hidden (visible rows)"), "{markdown}");
    }
    let one = read(&["hidden"]);
    assert!(one.contains("rows: 250 visible"), "{one}");
    let csv = read(&["hidden", "--format", "csv"]);
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",true")), "{csv}");
    let keys = read(&["keys", "hidden"]);
    assert!(keys.contains("250 visible documents"), "{keys}");
    let keys: Value = serde_json::from_str(&read(&["keys", "hidden", "--format", "json"])).unwrap();
    assert_eq!(keys["columns"][0]["visible_rows_only"], true, "{keys}");
    // the policies do not apply to the superuser
    let all = inspect(&database, &["hidden"]).ok();
    assert!(all.contains("rows: 500 live"), "{all}");
}

/// What a superuser's overview leaves out of the database's size is named: large objects are no user's table.
#[test]
fn large_objects_and_catalogs_are_named() {
    let database = with_pageinspect("objects");
    database.psql(
        "CREATE TABLE files (id int, lo oid);
         INSERT INTO files SELECT i, lo_from_bytea(0, decode(repeat(md5(i::text), 2000), 'hex'))
             FROM generate_series(1, 200) AS i",
    );
    let objects: u64 = number(&database, "SELECT pg_relation_size('pg_largeobject')") as u64;
    let text = inspect(&database, &[]).ok();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("pg_largeobject takes"), "{text}");
    let report = overview(&database, &[]);
    assert_eq!(report.json()["totals"]["large_object_bytes"], objects);
    assert!(report.json()["totals"]["catalog_bytes"].as_u64().unwrap() > objects);
    // none in a database that has no large objects
    let empty = with_pageinspect("no_objects");
    empty.psql("CREATE TABLE t AS SELECT 1 AS id");
    let text = inspect(&empty, &[]).ok();
    assert!(!text.contains("pg_largeobject"), "{text}");
    for (verb, instead) in
        [("compact", "VACUUM FULL pg_largeobject"), ("reindex", "REINDEX TABLE pg_largeobject")]
    {
        let refused = inspect(&database, &[verb, "pg_largeobject"]);
        assert_ne!(refused.code, Some(0));
        let message = refused.stderr.replace("pg_catalog.", "");
        assert!(!message.contains("may change its settings"), "{message}");
        assert!(message.contains(instead), "{message}");
    }
}
