//! `retoast --since FILE`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio_postgres::Client;

use super::exit::{Exit, Failure};
use crate::retoast::preflight::Ready;
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::since::{Memory, Since};
use crate::source::live::LiveError;

/// What the file remembers; nothing if there is no file yet.
fn read(path: &Path) -> Result<Memory, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Memory::parse(&text).ok_or_else(|| {
            Failure::usage(format!(
                "--since: \"{}\" was not written by retoast\nHINT:  Name a file that is not there yet.",
                path.display()
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Memory::default()),
        Err(error) => Err(Failure::usage(format!("--since: \"{}\": {error}", path.display()))),
    }
}

/// Writes the file anew, whole or not at all.
fn write(path: &Path, memory: &Memory) -> Result<(), String> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, memory.print())
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| format!("--since: could not write \"{}\": {error}", path.display()))
}

/// What `--since` remembers.
pub(super) struct Remembered {
    path: PathBuf,
    memory: Memory,
    /// `system_identifier` of the cluster, and the database.
    place: String,
    /// The next transaction.
    now: u64,
}

impl Remembered {
    /// Reads the file and, where anything will be remembered, tries to write it before hours of work are
    /// done.
    pub(super) async fn open(
        path: &Path,
        client: &Client,
        database: &str,
        dry_run: bool,
    ) -> Result<Remembered, Failure> {
        let memory = read(path)?;
        if !dry_run {
            write(path, &memory).map_err(Failure::usage)?;
        }
        let asked = client
            .query_typed(
                "SELECT s.system_identifier::pg_catalog.text, \
                 pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text \
                 FROM pg_catalog.pg_control_system() AS s",
                &[],
            )
            .await;
        let told = |error: tokio_postgres::Error| {
            Failure::new(Exit::Incomplete, format!("--since: {}", LiveError::from(error)))
        };
        let rows = asked.map_err(told)?;
        let (system, now): (String, String) = match rows.first() {
            Some(row) => (row.try_get(0).map_err(told)?, row.try_get(1).map_err(told)?),
            None => Default::default(),
        };
        Ok(Remembered {
            path: path.to_owned(),
            memory,
            place: format!("{system}/{database}"),
            now: now.parse().unwrap_or(0),
        })
    }

    fn table(&self, ready: &Ready) -> String {
        format!("{}/{}", self.place, ready.relation.oid.0)
    }

    /// The rows of a table that an earlier run has proven to comply.
    pub(super) fn since(&self, ready: &Ready) -> Option<Since> {
        self.memory.since(&self.table(ready), &ready.choice()?, self.now)
    }

    /// Remembers what a run has proven.
    pub(super) fn remember(&mut self, ready: &Ready, report: &TableReport) -> Result<(), Failure> {
        match (report.outcome, report.horizon, ready.choice()) {
            (Outcome::Complete, Some(horizon), Some(choice)) => {
                self.memory.remember(self.table(ready), choice, horizon);
                write(&self.path, &self.memory)
                    .map_err(|error| Failure::new(Exit::Incomplete, error))
            }
            _ => Ok(()),
        }
    }
}
