//! The WAL that `advise-threshold` predicts for an UPDATE against what the server wrote.

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::advise::Report;
use crate::support::server::{Options, Server};

/// Candidates, and SQL that makes a table so.
const SETTINGS: [(&str, &str); 6] = [
    ("extended pglz", "SET STORAGE EXTENDED"),
    ("extended lz4", "SET COMPRESSION lz4"),
    ("external", "SET STORAGE EXTERNAL"),
    ("main lz4", "SET STORAGE MAIN, ALTER v SET COMPRESSION lz4"),
    ("extended lz4 target 4080", "SET COMPRESSION lz4, SET (toast_tuple_target = 4080)"),
    ("extended pglz target 128", "SET STORAGE EXTENDED, SET (toast_tuple_target = 128)"),
];

/// Values in the row and out of it, that compress well, a little and not at all.
const TABLES: [(&str, &str); 5] = [
    (
        "short",
        "SELECT i AS id, left(md5(i::text), 5 + n(i, 27)) AS v FROM generate_series(1, 3000) AS i",
    ),
    (
        "lines",
        "SELECT i AS id, now() AS at, words(i, 15 + n(i, 100)) AS v FROM generate_series(1, 1500) AS i",
    ),
    (
        "documents",
        "SELECT i AS id, words(i, 100 + n(i, 1500)) AS v FROM generate_series(1, 600) AS i",
    ),
    ("noise", "SELECT i AS id, noise(i, 500 + n(i, 6000)) AS v FROM generate_series(1, 800) AS i"),
    (
        "long",
        "SELECT i AS id, noise(i, 20000 + n(i, 60000)) AS v, 'x' AS kind FROM generate_series(1, 60) AS i",
    ),
];

#[test]
fn the_wal_of_an_update_is_what_the_server_writes() {
    // Full-page images depend on checkpoints, not on settings.
    let server = Server::start(&Options::default().set("full_page_writes", "off"));
    let database = server.create_database("wal");
    let (functions, _) = include_str!("advise.sql").split_once("-- the talks'").unwrap();
    database.psql(&format!("CREATE EXTENSION pageinspect; {functions}"));
    let mut checked = 0;
    for (table, query) in TABLES {
        database.psql(&format!("CREATE TABLE {table} AS {query}"));
        let mut command = toastctl();
        command.args(["advise-threshold", "-d", &database.conninfo(), table, "-c", "v"]);
        for target in ["2032", "4080", "128"] {
            command.args(["--target", target]);
        }
        for method in ["pglz", "lz4"] {
            command.args(["--method", method]);
        }
        for storage in ["extended", "external", "main"] {
            command.args(["--storage", storage]);
        }
        let command = command.args(["--sample", "100%", "--format", "json"]);
        let report: Printed<Report> = run(command).exits(0).report();
        let candidates = &report.candidates;
        let rows: f64 = database.psql(&format!("SELECT count(*) FROM {table}")).parse().unwrap();
        for (name, settings) in SETTINGS {
            let candidate = candidates
                .iter()
                .find(|c| c.name == name)
                .or_else(|| candidates.first().filter(|_| name == "extended pglz"));
            let candidate = candidate.unwrap_or_else(|| panic!("{table}: {name}: {report}"));
            let predicted = candidate.update_wal_bytes_per_value.estimate;
            database.psql(&format!(
                "CREATE TABLE rewritten (LIKE {table}); ALTER TABLE rewritten ALTER v {settings};
                 INSERT INTO rewritten SELECT * FROM {table}; UPDATE rewritten SET v = (ARRAY[v])[1];
                 VACUUM FULL rewritten"
            ));
            let written = database.psql(
                "SELECT pg_current_wal_insert_lsn() AS before \\gset
                 UPDATE rewritten SET v = (ARRAY[v])[1];
                 SELECT pg_current_wal_insert_lsn() - :'before'::pg_lsn;
                 DROP TABLE rewritten",
            );
            let measured = written.parse::<f64>().unwrap() / rows;
            println!("{table}, {name}: {predicted}, measured {measured:.1}");
            assert!(
                (predicted / measured - 1.0).abs() <= 0.01,
                "{table}, {name}: {predicted}, measured {measured:.1}"
            );
            checked += 1;
        }
    }
    assert_eq!(checked, TABLES.len() * SETTINGS.len());
}
