//! The workload that `advise-threshold` reads from `pg_stat_statements`.

use crate::support::reports::Printed;
use crate::support::reports::advise::Report;
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::{advised, relation};

const TABLE: &str = "
    CREATE EXTENSION pageinspect;
    CREATE EXTENSION pg_stat_statements;
    CREATE TABLE docs (id integer PRIMARY KEY, body text, note text);
    INSERT INTO docs SELECT i, repeat(md5(i::text), 20 + i % 200), 'note ' || i
    FROM generate_series(1, 1000) AS i;
    ANALYZE docs";

fn advise(database: &Database<'_>) -> Printed<Report> {
    advised(database, &["docs", "-c", "body"])
}

#[test]
fn statements_that_name_the_column_are_the_workload() {
    let server =
        Server::start(&Options::default().set("shared_preload_libraries", "pg_stat_statements"));
    let database = server.create_database("statements");
    database.psql(TABLE);
    database.psql(
        "SELECT pg_stat_statements_reset();
         SELECT body FROM docs;
         SELECT d.* FROM public.docs AS d WHERE id <= 500;
         SELECT id, note FROM docs; SELECT id, note FROM docs;
         SELECT count(*) FROM docs;
         UPDATE docs SET body = body || 'x' WHERE id <= 100;
         UPDATE docs SET note = 'changed'; UPDATE docs SET note = 'again'",
    );
    let report = advise(&database);
    let workload = &report.workload;
    assert_eq!(workload.source, "pg_stat_statements", "{workload}");
    // 1000 and 500 rows read, 100 written
    assert_eq!((workload.reads_per_day, workload.writes_per_day), (1500.0, 100.0));
    let weighting = &report.recommendation.weighting;
    assert!(weighting.contains("estimated from 3 statements in pg_stat_statements"), "{weighting}");
    // a second table of the name: it takes the schema to tell
    database.psql("CREATE SCHEMA other; CREATE TABLE other.docs (id integer)");
    let report = advise(&database);
    assert_eq!(report.workload.source, "assumed");
    let notes = report.notes();
    assert!(notes.contains("whose text does not say"), "{notes}");
    // inspect finds what they say, of the column that they name
    database.psql("SELECT pg_stat_statements_reset()");
    let found = || {
        let findings = relation(&database, &["docs"]).findings().to_vec();
        findings.into_iter().find(|finding| finding.code.name() == "read-mostly")
    };
    assert_eq!(found(), None);
    for _ in 0..6 {
        database.psql("SELECT body FROM public.docs");
    }
    let read = found().unwrap();
    assert_eq!((read.value, read.column.as_deref()), (6000, Some("body")), "{read}");
    database.psql("UPDATE public.docs SET body = body || 'y' WHERE id <= 200");
    assert_eq!(found(), None);
}

#[test]
fn a_view_that_cannot_be_read_is_told() {
    let database = server::shared().create_database("statements");
    database.psql(TABLE);
    let notes = advise(&database).notes();
    assert!(
        notes.contains(
            "pg_stat_statements was not used to estimate the workload: pg_stat_statements must be loaded"
        ),
        "{notes}"
    );
}
