//! What our statements read: what they ask for, whatever plans the server would choose.

use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::{Printed, Source, advise, retoast};
use crate::support::server::{self, Database, Options, Server};
use crate::support::table_files::seem_large;

/// 3000 values out of line in 3 chunks each.
const TABLE: &str = "
    CREATE EXTENSION pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text);
    ALTER TABLE t ALTER v SET STORAGE external;
    INSERT INTO t SELECT i, repeat(md5(i::text), 125) FROM generate_series(1, 3000) AS i;";

/// Settings with which the planner prefers whole relations, read by several processes.
const SETTINGS: [&str; 8] = [
    "enable_tidscan = off",
    "enable_indexscan = off",
    "enable_bitmapscan = off",
    "random_page_cost = 1000",
    "seq_page_cost = 0",
    "min_parallel_table_scan_size = 0",
    "parallel_setup_cost = 0",
    "parallel_tuple_cost = 0",
];

/// Advice from one block.
const ONE_BLOCK: [&str; 8] =
    ["advise-threshold", "t", "-c", "v", "--sample", "1 block,seed=2", "--format", "json"];

fn make(prefix: &str) -> Database<'static> {
    made(server::shared().create_database(prefix))
}

/// The report that was printed on one column.
fn advised(stdout: String) -> Printed<advise::Report> {
    Run { code: Some(0), stdout, stderr: String::new() }.report()
}

fn made(database: Database<'_>) -> Database<'_> {
    database.psql(TABLE);
    database.psql("VACUUM ANALYZE t");
    for setting in SETTINGS {
        database.psql(&format!("ALTER DATABASE {} SET {setting}", database.name()));
    }
    database
}

/// What has been read of the table and its TOAST relation, once the sessions that read have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    heap_scans: u64,
    toast_scans: u64,
    /// Buffers of the TOAST relation, in memory or not.
    toast_blocks: u64,
}

fn read(database: &Database<'_>) -> Read {
    database.rests();
    let figures = || {
        database.psql(
            "SELECT pg_stat_get_numscans(c.oid), pg_stat_get_numscans(reltoastrelid),
                    toast_blks_read + toast_blks_hit
             FROM pg_class AS c JOIN pg_statio_all_tables AS s ON s.relid = c.oid WHERE c.relname = 't'
             AND c.relnamespace = 'public'::regnamespace",
        )
    };
    // some may come late; PostgreSQL 14 looks at its collector's file every half a second
    let pause = if database.server().major() < 15 { 1200 } else { 200 };
    let (mut last, mut now) = (String::new(), figures());
    while last != now {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        last = std::mem::replace(&mut now, figures());
    }
    let figures: Vec<u64> = now.split('|').map(|figure| figure.parse().unwrap()).collect();
    Read { heap_scans: figures[0], toast_scans: figures[1], toast_blocks: figures[2] }
}

/// Runs toastctl; says what that has read.
fn reads(database: &Database<'_>, arguments: &[&str]) -> (String, Read) {
    let before = read(database);
    let mut command = toastctl();
    let (verb, rest) = arguments.split_first().unwrap();
    let output = run(command.args([verb, "-d", &database.conninfo()]).args(rest));
    // a policy by functions may leave open where values are
    let is_done = output.code == Some(0) || output.stdout.contains("\"unverified\"");
    assert!(is_done, "{arguments:?}: {}", output.stderr);
    let output = output.stdout;
    let after = read(database);
    let read = Read {
        heap_scans: after.heap_scans - before.heap_scans,
        toast_scans: after.toast_scans - before.toast_scans,
        toast_blocks: after.toast_blocks - before.toast_blocks,
    };
    (output, read)
}

#[test]
fn a_sample_reads_the_chunks_of_its_values_alone() {
    let database = make("plans");
    // the settings do what they are for
    let explained = database.psql(
        "SELECT format('EXPLAIN SELECT * FROM %s WHERE chunk_id = 1', reltoastrelid::regclass)
         FROM pg_class WHERE relname = 't' \\gexec",
    );
    assert!(explained.contains("Seq Scan"), "{explained}");
    let (output, read) = reads(&database, &ONE_BLOCK);
    let report = advised(output);
    let rows = report.sample.rows;
    assert!((100..200).contains(&rows), "{rows}");
    // three chunks each, four of them on a page that is mostly still at hand
    assert!((rows / 2..rows * 3).contains(&read.toast_blocks), "{rows} rows: {read:?}");
    assert_eq!((read.heap_scans, read.toast_scans), (0, 0));
    let exact = [&ONE_BLOCK[..], &["--exact"]].concat();
    let (_, read) = reads(&database, &exact);
    assert_eq!((read.heap_scans, read.toast_scans), (0, 0));
    let (_, read) = reads(&database, &["value", "t.v@(0,1)"]);
    assert!(read.toast_blocks <= 8, "{read:?}");
    assert_eq!((read.heap_scans, read.toast_scans), (0, 0));
}

/// Nothing that was written since its beginning is old enough for a snapshot to tell by its transaction alone.
#[test]
fn a_value_is_found_by_its_key_while_a_transaction_is_open_in_another_database() {
    let server = Server::start(&Options::default());
    let other = server.create_database("other");
    let _holder = Holder::of(&other, "CREATE TABLE written ()");
    let database = made(server.create_database("plans"));
    let (_, read) = reads(&database, &["value", "t.v@(0,1)"]);
    assert!(read.toast_blocks <= 8, "{read:?}");
}

#[test]
fn a_toast_relation_of_over_1_gb_costs_a_sample_no_more() {
    let database = make("plans");
    let (_, small) = reads(&database, &["advise-threshold", "t", "-c", "v", "--format", "json"]);
    seem_large(&database, "(SELECT reltoastrelid FROM pg_class WHERE oid = 't'::regclass)", 2);
    let size = "SELECT pg_relation_size(reltoastrelid) >> 30 FROM pg_class WHERE relname = 't'
                AND relnamespace = 'public'::regnamespace";
    assert_eq!(database.psql(size), "2");
    for verb in [&["advise-threshold", "t", "-c", "v"][..], &["inspect", "t", "--explain"]] {
        let (_, large) = reads(&database, &[verb, &["--format", "json"][..]].concat());
        assert_eq!((large.heap_scans, large.toast_scans), (0, 0), "{verb:?}");
        // 9000 chunks on 2250 pages, and the index's
        assert!(large.toast_blocks <= 9000, "{verb:?}: {large:?}");
        // a few of the index's more or less
        assert!(large.toast_blocks <= small.toast_blocks + 100, "{verb:?}: {large:?} {small:?}");
    }
}

#[test]
fn a_sample_without_pages_reads_no_more() {
    let database = make("plans");
    database.psql("DROP EXTENSION pageinspect");
    let (output, read) = reads(&database, &ONE_BLOCK);
    let report = advised(output);
    assert_eq!(report.sample.source, Source::Functions);
    let rows = report.sample.rows;
    assert!((100..200).contains(&rows), "{rows}");
    // each value is compressed by two methods
    assert!((rows / 2..rows * 6).contains(&read.toast_blocks), "{rows} rows: {read:?}");
    assert_eq!((read.heap_scans, read.toast_scans), (0, 0));
}

#[test]
fn retoast_finds_rows_by_their_addresses() {
    let database = make("plans");
    for choice in [
        &["--toaster", "lz4", "--set", "source=functions"][..],
        &["--toaster", "external", "--set", "source=pageinspect", "--verify", "full"],
        &["--policy", "always", "--method", "pglz", "--set", "source=functions"],
        &["--policy", "ratio=0.5", "--method", "either", "--set", "source=pageinspect"],
    ] {
        let arguments = [&["retoast", "t", "-c", "v", "--format", "json"], choice].concat();
        let (output, read) = reads(&database, &arguments);
        let report = Printed::<retoast::Report>::read(&output);
        assert!(report.tables[0].rows_stored > 0, "{choice:?}: {report}");
        assert_eq!((read.heap_scans, read.toast_scans), (0, 0), "{choice:?}");
    }
}
