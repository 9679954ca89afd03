//! `retoast --list-refused FILE`: rows that the server refused, as CSV.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use super::exit::Failure;
use crate::retoast::result::SkippedRow;

/// The file, open from the beginning: one that cannot be written is refused before the work.
pub(super) struct RefusedFile {
    writer: Mutex<csv::Writer<File>>,
}

impl RefusedFile {
    /// Makes it, with the line of names.
    pub(super) fn create(path: &Path) -> Result<RefusedFile, Failure> {
        let open = || -> csv::Result<csv::Writer<File>> {
            let mut writer = csv::Writer::from_writer(File::create(path)?);
            writer.write_record(["relation", "ctid", "sqlstate", "reason"])?;
            writer.flush()?;
            Ok(writer)
        };
        match open() {
            Ok(writer) => Ok(RefusedFile { writer: Mutex::new(writer) }),
            Err(error) => {
                Err(Failure::usage(format!("--list-refused: \"{}\": {error}", path.display())))
            }
        }
    }

    /// Adds a row. What cannot be written is in the report's count all the same.
    pub(super) fn add(&self, relation: &str, row: &SkippedRow) -> bool {
        let Ok(mut writer) = self.writer.lock() else { return false };
        let sqlstate = row.sqlstate.as_deref().unwrap_or_default();
        writer.write_record([relation, &row.ctid, sqlstate, &row.reason]).is_ok()
            && writer.flush().is_ok()
    }
}
