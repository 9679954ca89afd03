//! What `advise-threshold` says of extracted keys, and the migrations that it emits.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use toastctl::report::schema::schema;

use crate::support::command::{Run, run, toastctl};
use crate::support::measured::valid;
use crate::support::server::Database;

pub(crate) fn advise(database: &Database<'_>, arguments: &[&str]) -> Run {
    let mut command = toastctl();
    command.arg("advise-threshold").args(["-d", &database.conninfo()]).args(arguments);
    run(&mut command)
}

/// The extraction in the report, which has its documented shape.
pub(crate) fn extraction(database: &Database<'_>, arguments: &[&str]) -> Value {
    let all = [arguments, &["--sample", "100%", "--format", "json"]].concat();
    let report = valid(&advise(database, &all).ok(), schema("advise-threshold").unwrap());
    report["extraction"].clone()
}

pub(crate) fn estimate(figure: &Value) -> f64 {
    figure["estimate"].as_f64().unwrap()
}

/// A migration as it is emitted.
pub(crate) struct Script {
    pub(crate) text: String,
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Script {
    pub(crate) fn emitted(database: &Database<'_>, arguments: &[&str]) -> Script {
        Script::of(advise(database, &[arguments, &["--emit", "sql"]].concat()).ok())
    }

    /// That of an extraction in a report.
    pub(crate) fn told(extraction: &Value) -> Script {
        Script::of(extraction["script"].as_str().unwrap().to_owned())
    }

    fn of(text: String) -> Script {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("migration.sql");
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Script { text, _dir: dir, path }
    }

    pub(crate) fn try_run(&self, database: &Database<'_>, part: Option<&str>) -> Run {
        let mut psql = database.psql_command();
        psql.arg("-q");
        if let Some(part) = part {
            psql.args(["-v", &format!("{part}=1")]);
        }
        run(psql.arg("-f").arg(&self.path))
    }

    #[track_caller]
    pub(crate) fn run(&self, database: &Database<'_>, part: Option<&str>) {
        self.try_run(database, part).ok();
    }

    /// The expression that puts a document together again, as a comment has it.
    pub(crate) fn together(&self) -> String {
        let (_, behind) = self.text.split_once("put together again").unwrap();
        let lines = behind.lines().skip(1).map_while(|line| line.strip_prefix("--   "));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Bytes of a table's heap and TOAST relation.
pub(crate) fn sizes(database: &Database<'_>, table: &str) -> [f64; 2] {
    let text = database.psql(&format!(
        "SELECT pg_relation_size(oid), pg_relation_size(reltoastrelid)
         FROM pg_class WHERE oid = '{table}'::regclass"
    ));
    let (heap, toast) = text.split_once('|').unwrap();
    [heap.parse().unwrap(), toast.parse().unwrap()]
}

#[track_caller]
pub(crate) fn near(what: &str, predicted: f64, measured: f64, part: f64) {
    let off = (predicted - measured).abs();
    assert!(off <= part * measured + 1.0, "{what}: {predicted} predicted, {measured} measured");
}
