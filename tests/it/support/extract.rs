//! What `advise-threshold` says of extracted keys, and the migrations that it emits.

use std::io::Write as _;
use std::path::PathBuf;

use crate::support::command::{Run, run};
use crate::support::reports::Printed;
use crate::support::reports::advise::Extraction;
use crate::support::reports::keys::Extracted;
use crate::support::server::Database;
use crate::support::verbs::advise;

/// The extraction in the report on all rows.
#[track_caller]
pub(crate) fn extraction(database: &Database<'_>, arguments: &[&str]) -> Printed<Extraction> {
    let all = [arguments, &["--sample", "100%", "--format", "json"]].concat();
    let report: Printed<Extracted> = advise(database, &all).exits(0).report();
    report.extraction.clone().unwrap_or_else(|| panic!("no extraction: {report}"))
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
    pub(crate) fn told(extraction: &Extraction) -> Script {
        Script::of(extraction.script.clone())
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

    /// Both parts: the columns, and then the documents.
    #[track_caller]
    pub(crate) fn migrate(&self, database: &Database<'_>) {
        self.run(database, None);
        self.run(database, Some("remove"));
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
