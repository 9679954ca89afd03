//! A table of many partitions: the number of statements grows with the partitions and no faster, and the catalog is read
//! for many of them at a time.

use crate::support::command::{run, toastctl};
use crate::support::holder::Holder;
use crate::support::server::{Options, Server};

/// A server that logs every statement with the program that sends it.
fn server() -> Server {
    let options = Options::default();
    Server::start(&options.set("log_statement", "all").set("log_line_prefix", "%a|"))
}

/// The statements of a run on a table with this number of partitions, each with a value out of line.
fn statements(server: &Server, parts: usize, arguments: &[&str]) -> Vec<String> {
    let database = server.create_database("parts");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
         ALTER TABLE t ALTER v SET STORAGE external;
         DO $$ BEGIN FOR i IN 1..{parts} LOOP
           EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);
         END LOOP; END $$;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, {parts}) i"
    ));
    let logged = || server.logged(|line| line.starts_with("toastctl") && line.contains("LOG:  "));
    let before = logged().len();
    let run = run(toastctl().args(arguments).args(["-d", &database.url()]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    logged().split_off(before)
}

/// Statements for each of 200 partitions more, and all statements for the larger table.
fn per_partition(server: &Server, arguments: &[&str]) -> (f64, Vec<String>) {
    let few = statements(server, 40, arguments);
    let many = statements(server, 240, arguments);
    ((many.len() as f64 - few.len() as f64) / 200.0, many)
}

#[test]
fn an_overview_describes_many_partitions_at_a_time() {
    let server = server();
    let (each, all) = per_partition(&server, &["inspect", "--max-time", "5min"]);
    assert!(each < 12.0, "{each}: {:#?}", &all[all.len() - 40..]);
    let catalog = all.iter().filter(|line| line.contains("pg_catalog.pg_attribute")).count();
    assert!(catalog <= 2 * 25, "{catalog} queries of the catalog for 240 partitions");
}

#[test]
fn a_plan_reads_the_catalog_for_many_partitions_at_a_time() {
    let server = server();
    let retoast = ["retoast", "t", "-c", "v", "--toaster", "lz4", "--dry-run"];
    let (each, all) = per_partition(&server, &retoast);
    // a slow machine measures the server a few times more
    assert!(each < 30.0, "{each}: {:#?}", &all[all.len() - 60..]);
    let of_tables = |line: &&String| line.contains("pg_catalog.pg_class");
    let catalog = all.iter().filter(of_tables).count();
    assert!(catalog < 120, "{catalog} queries of pg_class for 240 partitions");
}

/// A partition that another session has locked is refused, and the others are planned.
#[test]
fn a_locked_partition_is_refused_and_the_others_are_planned() {
    let server = server();
    let database = server.create_database("locked");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE a PARTITION OF t FOR VALUES FROM (0) TO (1);
         CREATE TABLE b PARTITION OF t FOR VALUES FROM (1) TO (2);
         CREATE TABLE c PARTITION OF t FOR VALUES FROM (2) TO (3);
         CREATE INDEX b_id ON b (id);
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(0, 2) i",
    );
    let holder = Holder::of(&database, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE");
    let run = run(toastctl()
        .args(["retoast", "t", "-c", "v", "--toaster", "lz4", "--dry-run"])
        .env("PGOPTIONS", "-c lock_timeout=300ms")
        .args(["-d", &database.url()]));
    drop(holder);
    assert!(run.stderr.contains("public.b: locked by another session (PID"), "{}", run.stderr);
    assert!(!run.stderr.contains("public.a: locked"), "{}", run.stderr);
    for planned in ["public.a", "public.c"] {
        assert!(run.stdout.contains(planned), "{}", run.stdout);
    }
    assert_ne!(run.code, Some(0));
}
