//! A table of many partitions: the number of statements grows with the partitions and no faster, and the catalog is read
//! for many of them at a time.

use crate::support::command::{run, toastctl};
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
fn a_plan_takes_no_longer_for_a_partition_because_there_are_more() {
    let server = server();
    let retoast = ["retoast", "t", "-c", "v", "--toaster", "extended", "--dry-run"];
    let few = statements(&server, 10, &retoast).len() as f64;
    let (some, many) = (
        statements(&server, 20, &retoast).len() as f64,
        statements(&server, 40, &retoast).len() as f64,
    );
    let (first, second) = ((some - few) / 10.0, (many - some) / 20.0);
    // a slow machine measures the server a few times more
    assert!(second < 150.0 && second <= first * 1.2, "{first} and then {second} for each");
}
