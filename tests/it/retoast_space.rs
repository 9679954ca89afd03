//! What is said of space beforehand: where the WAL and the table's parts grow, and how much.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::command::{Run, run};
use crate::support::retoast::{done, refused, retoast};
use crate::support::server::{Database, Options, Server, with_pageinspect};

fn free(path: &Path) -> u64 {
    let told = run(std::process::Command::new("stat").args(["-f", "-c", "%a %S"]).arg(path)).ok();
    let mut numbers = told.split_whitespace().map(|number| number.parse::<u64>().unwrap());
    numbers.next().unwrap() * numbers.next().unwrap()
}

#[test]
fn wal_is_not_counted_against_another_file_system() {
    let shm = Path::new("/dev/shm");
    let server = Server::start(&Options::default());
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    if device(shm).is_none() || device(shm) == device(&server.data_dir()) {
        return;
    }
    // what is scarce there is plenty here
    if free(shm) + (1 << 30) > free(&server.data_dir()) {
        return;
    }
    let dir = server.make_tablespace_dir(shm);
    let database = server.create_database("tablespace");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; CREATE TABLESPACE fast LOCATION '{}';
         CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz) TABLESPACE fast;
         INSERT INTO t SELECT i, (SELECT string_agg(md5((i * 31 + k)::text), '')
            FROM generate_series(1, 200) k) FROM generate_series(1, 10000) i",
        dir.path().display()
    ));
    // 80 MB: a few MB of old row versions there, and far more WAL here
    let sweep = |left: u64, stop: &[&str]| -> Run {
        let left = format!("{}MB", left >> 20);
        let arguments =
            ["t", "-c", "v", "--toaster", "lz4", "--set", &format!("min-free-space={left}")];
        retoast(&database, &[&arguments[..], stop].concat())
    };
    let ok = sweep(free(shm) - (90 << 20), &["--max-runtime", "1"]);
    assert!(ok.code == Some(0) || ok.code == Some(4), "{}{}", ok.stdout, ok.stderr);
    let said = format!("free in \"{}\"; the table may grow by up to ", dir.path().display());
    assert!(ok.stderr.contains(&said), "{}", ok.stderr);
    assert!(ok.stderr.contains("WAL may grow by up to "), "{}", ok.stderr);
    let short = sweep(free(shm) - (1 << 20), &[]);
    refused(&short, 1, "public.t: not enough space: ");
    assert!(short.stderr.contains(&said), "{}", short.stderr);
    database.psql("DROP TABLE t; DROP TABLESPACE fast");
}

/// A dry run, then the sweep, which must not grow by more than was said.
#[track_caller]
fn grows_as_said(database: &Database<'_>, toaster: &str) -> (u64, u64) {
    let arguments = ["t", "-c", "v", "--toaster", toaster];
    let plan = retoast(database, &[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    let said = plan.table().plan().growth_bytes.high;
    let table = done(&retoast(database, &arguments));
    let grown = table.peak.sum().max(table.after.sum()) - table.before.sum();
    assert!(grown <= said, "{toaster}: {said} said, {grown} real: {table}");
    (said, grown)
}

#[test]
fn a_table_grows_by_no_more_than_the_dry_run_says() {
    let database = with_pageinspect("growth");
    // characters, rows, how often each piece is repeated
    let shapes = [(2200, 2500, 3), (2600, 2500, 1), (6100, 1000, 2), (40_000, 200, 4)];
    for (length, rows, repeated) in shapes {
        database.psql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, v text COMPRESSION pglz);
             INSERT INTO t SELECT i, left((SELECT string_agg(repeat(md5((i * 77 + k)::text), {repeated}), '')
                FROM generate_series(1, {length} / 32 / {repeated} + 1) k), {length})
                FROM generate_series(1, {rows}) i ORDER BY md5(i::text);
             VACUUM t"
        ));
        // without old chunks that make room it is not far less either
        let (said, grown) = grows_as_said(&database, "external");
        assert!(said < 2 * grown + (12 << 20), "{length}: {said} said, {grown} real");
        for toaster in ["lz4", "main", "external"] {
            grows_as_said(&database, toaster);
        }
    }
}

/// Old versions of rows count as dead with all that is in the row, not only the values that are stored anew.
#[test]
fn a_table_of_long_rows_with_short_values_grows_by_no_more_than_may_be_dead() {
    let database = with_pageinspect("long_rows");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, a text, v text COMPRESSION pglz);
         ALTER TABLE t ALTER a SET STORAGE plain;
         INSERT INTO t SELECT i, (SELECT string_agg(md5((i * 77 + k)::text), '') FROM generate_series(1, 44) AS k),
             repeat(md5(i::text), 30) FROM generate_series(1, 15000) AS i;
         VACUUM ANALYZE t",
    );
    let bytes: u64 = database.psql("SELECT pg_table_size('t')").parse().unwrap();
    for (toaster, prepare) in [
        ("lz4", ""),
        ("pglz", "VACUUM FULL t"),
        // the same without pages
        ("lz4", "VACUUM FULL t; DROP EXTENSION pageinspect"),
    ] {
        database.psql(prepare);
        let (_, grown) = grows_as_said(&database, toaster);
        // a twentieth may be dead, and vacuums leave gaps
        assert!(grown < bytes / 10, "{toaster}: {grown} of {bytes}");
    }
}

/// Without pages, only the server knows how long a compressed document is.
#[test]
fn documents_that_are_stored_uncompressed_take_what_a_run_without_pages_says() {
    let server = Server::start(&Options::default());
    let database = server.create_database("uncompressed");
    database.psql(
        "CREATE TABLE t (id int, v jsonb COMPRESSION pglz);
         INSERT INTO t SELECT i, jsonb_build_object('k', repeat(md5(i::text), 150)) FROM generate_series(1, 1500) AS i;
         VACUUM ANALYZE t",
    );
    let (said, grown) = grows_as_said(&database, "external");
    // 7 MB of chunks, of which 200 kB were known
    assert!(grown > 6 << 20 && said < 6 * grown, "{said} said, {grown} real");
}

/// pglz stores these words in the row, and lz4 out of line.
#[test]
fn values_that_leave_their_rows_take_no_more_than_a_run_without_pages_says() {
    let server = Server::start(&Options::default());
    let database = server.create_database("leave");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, (SELECT string_agg(substr(md5((hashint4(i * 977 + k) % 40)::text), 1, 4), ' ')
             FROM generate_series(1, 720) AS k) FROM generate_series(1, 4000) AS i;
         VACUUM ANALYZE t",
    );
    assert_eq!(database.psql("SELECT pg_relation_size('t') > 4000 * 1500"), "t");
    let (said, grown) = grows_as_said(&database, "lz4");
    assert!(grown > 5 << 20 && said < 4 * grown, "{said} said, {grown} real");
}
