//! A file with the position of each scan, from which a sweep that was stopped continues. The last scan always covers
//! the whole table, including the part that was skipped.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::retoast::error::RetoastError;
use crate::retoast::memory::{self, SavedState};

/// The minimum time between two writes of the file.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The sweep to which a checkpoint belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKey {
    pub database: String,
    pub choice: String,
}

/// The file of a table, which changes if the table is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFile {
    pub oid: u32,
    pub filenode: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedPosition {
    #[serde(flatten)]
    place: TableFile,
    block: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedSweep {
    #[serde(flatten)]
    sweep: RunKey,
    tables: Vec<SavedPosition>,
    /// Indexes whose rebuild was begun and is not known to have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rebuilding: Vec<Rebuilding>,
    /// Settings that were changed by runs that have not completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<FormerSettings>,
}

impl SavedState for SavedSweep {
    const SCHEMA: &'static str = "toastctl.retoast-checkpoint/1";
}

/// An index that is being rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Rebuilding {
    oid: u32,
    /// The index's name with its schema, quoted.
    index: String,
}

/// The settings of a table before a run changed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FormerSettings {
    oid: u32,
    /// The statement that restores them.
    undo: String,
}

/// The error for a failed operation on the file.
fn failed(action: &str, path: &Path, error: &io::Error) -> RetoastError {
    let path = path.display();
    RetoastError::end_run(format!("could not {action} checkpoint file \"{path}\": {error}"))
}

#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    state: Mutex<(SavedSweep, Option<Instant>)>,
}

impl Checkpoint {
    /// Opens a checkpoint, and reads the file if it exists.
    ///
    /// # Errors
    /// The file cannot be read, is not a checkpoint, or belongs to another sweep.
    pub fn open(path: &Path, sweep: &RunKey) -> Result<Checkpoint, RetoastError> {
        let new = SavedSweep {
            sweep: sweep.clone(),
            tables: Vec::new(),
            rebuilding: Vec::new(),
            former: Vec::new(),
        };
        let saved = memory::load_checkpoint(path, "toastctl retoast", new);
        let saved = saved.map_err(RetoastError::usage)?;
        if saved.sweep != *sweep {
            let RunKey { database, choice } = &saved.sweep;
            let other = format!("{choice} in database \"{database}\"");
            return Err(RetoastError::usage(memory::of_another_run(path, &other)));
        }
        Ok(Checkpoint { path: path.to_owned(), state: Mutex::new((saved, None)) })
    }

    /// The block from which a table's scan continues; 0 if the table is not in the file, or was rewritten since.
    pub fn start(&self, place: TableFile) -> u32 {
        let state = self.state.lock();
        state.0.tables.iter().find(|table| table.place == place).map_or(0, |table| table.block)
    }

    /// Records that all blocks before this one are done. The file is written about once a second.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn at(&self, place: TableFile, block: u32) -> Result<(), RetoastError> {
        let mut state = self.state.lock();
        let (saved, last) = &mut *state;
        saved.tables.retain(|table| table.place.oid != place.oid);
        saved.tables.push(SavedPosition { place, block });
        if last.is_some_and(|last| last.elapsed() < SAVE_EVERY) {
            return Ok(());
        }
        *last = Some(Instant::now());
        self.write(saved)
    }

    /// Updates the file at the end of a table's sweep: removes the table if it is complete, and the file if it is
    /// empty.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn end(&self, place: TableFile, complete: bool) -> Result<(), RetoastError> {
        let saved = &mut self.state.lock().0;
        if complete {
            saved.tables.retain(|table| table.place.oid != place.oid);
        }
        self.write_or_remove(saved)
    }

    /// Records that a rebuild of this index begins, so that an index it leaves behind is known to be this program's.
    /// The file is on disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn rebuild_begins(&self, oid: u32, index: &str) -> Result<(), RetoastError> {
        let saved = &mut self.state.lock().0;
        let rebuilding = Rebuilding { oid, index: index.to_owned() };
        if !saved.rebuilding.contains(&rebuilding) {
            saved.rebuilding.push(rebuilding);
        }
        self.write(saved)
    }

    /// Records that the rebuild of an index has left nothing behind.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn rebuild_ended(&self, oid: u32, index: &str) -> Result<(), RetoastError> {
        let saved = &mut self.state.lock().0;
        saved.rebuilding.retain(|one| (one.oid, one.index.as_str()) != (oid, index));
        self.write_or_remove(saved)
    }

    /// Whether this run or an earlier one began a rebuild of this index that may have left something behind.
    pub fn was_rebuilding(&self, oid: u32, index: &str) -> bool {
        let state = self.state.lock();
        state.0.rebuilding.iter().any(|one| (one.oid, one.index.as_str()) == (oid, index))
    }

    /// Records that settings of a table will be changed, and how to restore them. The file is on disk when this
    /// returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn settings_change(&self, oid: u32, undo: &str) -> Result<(), RetoastError> {
        let saved = &mut self.state.lock().0;
        let former = FormerSettings { oid, undo: undo.to_owned() };
        if !saved.former.contains(&former) {
            saved.former.push(former);
        }
        self.write(saved)
    }

    /// The statements that restore a table's settings before the changes that were recorded, the last change first.
    pub fn former_settings(&self, oid: u32) -> Vec<String> {
        let former = &self.state.lock().0.former;
        let found = former.iter().rev().filter(|former| former.oid == oid);
        found.map(|former| former.undo.clone()).collect()
    }

    /// Records that the work on a table has ended, or its settings were restored.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn settings_ended(&self, oid: u32) -> Result<(), RetoastError> {
        let saved = &mut self.state.lock().0;
        saved.former.retain(|former| former.oid != oid);
        self.write_or_remove(saved)
    }

    fn write_or_remove(&self, saved: &SavedSweep) -> Result<(), RetoastError> {
        if !(saved.tables.is_empty() && saved.rebuilding.is_empty() && saved.former.is_empty()) {
            return self.write(saved);
        }
        memory::remove(&self.path).map_err(|error| failed("remove", &self.path, &error))
    }

    fn write(&self, saved: &SavedSweep) -> Result<(), RetoastError> {
        memory::save(&self.path, saved).map_err(|error| failed("write", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> RunKey {
        RunKey { database: "d".into(), choice: "v to lz4".into() }
    }

    const PLACE: TableFile = TableFile { oid: 7, filenode: 8 };

    #[test]
    fn a_position_is_found_again_until_its_table_is_done_or_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let open = || Checkpoint::open(&path, &sweep()).unwrap();
        let checkpoint = open();
        assert_eq!(checkpoint.start(PLACE), 0);
        checkpoint.at(PLACE, 256).unwrap();
        assert_eq!(open().start(PLACE), 256);
        // Within the same second, only the end of a sweep writes the file.
        checkpoint.at(PLACE, 512).unwrap();
        assert_eq!(open().start(PLACE), 256);
        checkpoint.end(PLACE, false).unwrap();
        assert_eq!(open().start(PLACE), 512);
        assert_eq!(open().start(TableFile { filenode: 9, ..PLACE }), 0);
        open().end(PLACE, true).unwrap();
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_rebuild_is_remembered_until_nothing_is_left_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let open = || Checkpoint::open(&path, &sweep()).unwrap();
        open().rebuild_begins(7, "s.i").unwrap();
        assert!(open().was_rebuilding(7, "s.i"));
        assert!(!open().was_rebuilding(8, "s.i") && !open().was_rebuilding(7, "s.j"));
        // The records of sweeps and of rebuilds do not remove each other.
        open().at(PLACE, 5).unwrap();
        open().end(PLACE, true).unwrap();
        assert!(open().was_rebuilding(7, "s.i"));
        open().at(PLACE, 5).unwrap();
        open().rebuild_ended(7, "s.i").unwrap();
        assert_eq!((open().start(PLACE), open().was_rebuilding(7, "s.i")), (5, false));
        open().end(PLACE, true).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_none_or_anothers_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Checkpoint::open(&path, &sweep()).unwrap_err().to_string()
        };
        let named = format!("\"{}\"", path.display());
        for bad in ["", "[]", "{}", r#"{"schema":"x","database":"d","choice":"c","tables":[]}"#] {
            assert_eq!(error(bad), format!("file {named} is not a checkpoint of toastctl retoast"));
        }
        let other = format!(
            r#"{{"schema":"{}","database":"e","choice":"w","tables":[]}}"#,
            SavedSweep::SCHEMA
        );
        let foreign = error(&other);
        assert!(foreign.contains(&named) && foreign.contains("w in database \"e\""), "{foreign}");
        let directory = Checkpoint::open(dir.path(), &sweep()).unwrap_err().to_string();
        assert!(directory.starts_with("could not use checkpoint file"), "{directory}");
    }
}
