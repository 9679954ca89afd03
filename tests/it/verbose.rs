//! `-v` and `-vv`: what is decided and which statements are sent is told on standard error, and nothing else.

use std::process::Command;

use crate::support::command::{Run, run, toastctl};
use crate::support::server::{self, Database};

const PASSWORD: &str = "open-sesame";
/// What the rows hold.
const CONTENT: &str = "c0ntent";

fn table(name: &str) -> Database<'static> {
    let database = server::shared().create_database(name);
    database.psql(&format!(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat('{CONTENT}' || i, 1000) FROM generate_series(1, 50) AS i"
    ));
    database
}

fn told(database: &Database<'_>, arguments: &[&str]) -> Run {
    let mut command: Command = toastctl();
    let conninfo = format!("{} password={PASSWORD}", database.conninfo());
    command.args(arguments).args(["-d", &conninfo]).env("PGPASSWORD", PASSWORD);
    let told = run(&mut command);
    for secret in [PASSWORD, CONTENT] {
        assert!(!told.stderr.contains(secret), "{secret}: {}", told.stderr);
    }
    told
}

/// Decisions are told in words, not as values of Rust.
#[track_caller]
fn no_rust(told: &str) {
    for line in told.lines().filter(|line| line.contains(" s: ") && !line.contains(" ms")) {
        for sign in ["Some(", "None", " { ", "[\"", "Oid(", "::", "Interval"] {
            assert!(!line.contains(sign), "{line}");
        }
    }
}

#[test]
fn each_statement_is_told_with_its_time_and_the_output_is_the_same() {
    let database = table("verbose");
    for verb in [
        &["inspect", "t", "--format", "json"][..],
        &["advise-threshold", "t", "--format", "json"],
        &["retoast", "t", "-c", "v", "--toaster", "lz4", "--dry-run", "--format", "csv"],
    ] {
        let [quiet, decisions, all] = ["", "-v", "-vv"].map(|level| {
            let more: Vec<&str> = [level].into_iter().filter(|level| !level.is_empty()).collect();
            told(&database, &[verb, &more].concat())
        });
        assert_eq!((quiet.code, decisions.code, all.code), (Some(0), Some(0), Some(0)), "{all:?}");
        // times differ from run to run
        if verb[0] != "retoast" {
            let [quiet, decisions, all] = [&quiet, &decisions, &all].map(|run| {
                let lines = run.stdout.lines();
                lines.filter(|line| !line.starts_with("  \"time\":")).collect::<Vec<_>>()
            });
            assert_eq!(quiet, decisions, "{verb:?}");
            assert_eq!(quiet, all, "{verb:?}");
        }
        assert_eq!(quiet.stdout.lines().count(), all.stdout.lines().count(), "{verb:?}");
        assert!(!quiet.stderr.contains(" s: ") && !quiet.stderr.contains(" ms: "), "{quiet:?}");
        assert!(decisions.stderr.contains(" s: connected to PostgreSQL "), "{}", decisions.stderr);
        assert!(decisions.stderr.contains(" s: t: 1 relation, OID "), "{}", decisions.stderr);
        no_rust(&decisions.stderr);
        let decided = match verb[0] {
            "inspect" => "blocks are read, on ",
            "advise-threshold" => " is recommended, ",
            _ => "a scan begins",
        };
        assert!(decisions.stderr.contains(decided), "{}", decisions.stderr);
        assert!(!decisions.stderr.contains("SELECT"), "{}", decisions.stderr);
        assert!(all.stderr.contains(" s: connected to PostgreSQL "), "{}", all.stderr);
        let statement = |line: &str| {
            let (before, sql) = line.split_once(" ms: ")?;
            let ms: f64 = before.rsplit_once(' ')?.1.parse().ok()?;
            (before.contains(" s: ") && ms >= 0.0).then(|| sql.to_owned())
        };
        let statements: Vec<String> = all.stderr.lines().filter_map(statement).collect();
        assert!(statements.len() > 10, "{}", all.stderr);
        let begins = |with: &str| statements.iter().any(|sql| sql.starts_with(with));
        assert!(begins("SELECT pg_catalog.current_schemas(true)"), "{}", all.stderr);
        assert!(begins("BEGIN"), "{}", all.stderr);
    }
}

#[test]
fn a_sweep_tells_its_batches_and_errors_by_their_codes() {
    let database = table("verbosesweep");
    database.psql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF new.id = 7 THEN RAISE 'row %', new.v; END IF; RETURN new; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse();
         ALTER TABLE t ENABLE ALWAYS TRIGGER refuse",
    );
    let query = format!("SELECT '{CONTENT}' = 'x'");
    let arguments = [
        "retoast",
        "t",
        "-c",
        "v",
        "--toaster",
        "lz4",
        "--allow",
        "triggers",
        "-vv",
        "--throttle-query",
        &query,
    ];
    let swept = told(&database, &arguments);
    assert_eq!(swept.code, Some(1), "{}", swept.stderr);
    for expected in [
        " s: public.t: lz4 of v; settings are changed; ",
        " s: public.t: job 0: a batch of ",
        " ms: prepare WITH done AS (UPDATE ONLY",
        " ms: WITH done AS (UPDATE ONLY",
        ", error P0001: WITH done AS (UPDATE ONLY",
        " ms: (the user's own query)",
        " s: public.t: the end: ",
    ] {
        assert!(swept.stderr.contains(expected), "{expected}: {}", swept.stderr);
    }
    no_rust(&swept.stderr);
}
