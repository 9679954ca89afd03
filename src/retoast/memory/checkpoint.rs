//! A file with the position of each scan, from which a sweep that was stopped continues. The last scan always covers
//! the whole table, including the part that was skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::retoast::error::{Result, RetoastError};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFile {
    pub oid: u32,
    pub filenode: u32,
}

/// What the file says of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct SavedTable {
    oid: u32,
    /// All blocks of this file before `block` are done.
    filenode: u32,
    block: u32,
    /// Indexes whose rebuild was begun and is not known to have ended, quoted with their schemas.
    rebuilding: BTreeSet<String>,
    /// The statements that restore settings that were changed by runs that have not completed.
    former: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedSweep {
    #[serde(flatten)]
    sweep: RunKey,
    tables: Vec<SavedTable>,
}

impl SavedState for SavedSweep {
    const SCHEMA: &'static str = "toastctl.retoast-checkpoint/2";
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
    pub fn open(path: &Path, sweep: &RunKey) -> Result<Checkpoint> {
        let new = SavedSweep { sweep: sweep.clone(), tables: Vec::new() };
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
        let TableFile { oid, filenode } = place;
        self.of_table(oid, |table| if table.filenode == filenode { table.block } else { 0 })
    }

    /// Records that all blocks before this one are done. The file is written about once a second.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn at(&self, place: TableFile, block: u32) -> Result<()> {
        let is_due = self.state.lock().1.is_none_or(|last| last.elapsed() >= SAVE_EVERY);
        if is_due {
            self.state.lock().1 = Some(Instant::now());
        }
        self.change(place.oid, is_due, |table| {
            table.filenode = place.filenode;
            table.block = block;
        })
    }

    /// Updates the file at the end of a table's sweep: removes its position if it is complete.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn end(&self, place: TableFile, complete: bool) -> Result<()> {
        self.change(place.oid, true, |table| {
            if complete {
                (table.filenode, table.block) = (0, 0);
            }
        })
    }

    /// Records that a rebuild of this index begins, so that an index it leaves behind is known to be this program's.
    /// The file is on disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn rebuild_begins(&self, oid: u32, index: &str) -> Result<()> {
        self.change(oid, true, |table| {
            table.rebuilding.insert(index.to_owned());
        })
    }

    /// Records that the rebuild of an index has left nothing behind.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn rebuild_ended(&self, oid: u32, index: &str) -> Result<()> {
        self.change(oid, true, |table| {
            table.rebuilding.remove(index);
        })
    }

    /// Whether this run or an earlier one began a rebuild of this index that may have left something behind.
    pub fn was_rebuilding(&self, oid: u32, index: &str) -> bool {
        self.of_table(oid, |table| table.rebuilding.contains(index))
    }

    /// Records that settings of a table will be changed, and how to restore them. The file is on disk when this
    /// returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn settings_change(&self, oid: u32, undo: &str) -> Result<()> {
        self.change(oid, true, |table| {
            if !table.former.iter().any(|former| former == undo) {
                table.former.push(undo.to_owned());
            }
        })
    }

    /// The statements that restore a table's settings before the changes that were recorded, the last change first.
    pub fn former_settings(&self, oid: u32) -> Vec<String> {
        self.of_table(oid, |table| table.former.iter().rev().cloned().collect())
    }

    /// Records that the work on a table has ended, or its settings were restored.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn settings_ended(&self, oid: u32) -> Result<()> {
        self.change(oid, true, |table| table.former.clear())
    }

    /// What `read` finds in the record of a table, if there is one.
    fn of_table<T: Default>(&self, oid: u32, read: impl FnOnce(&SavedTable) -> T) -> T {
        let tables = &self.state.lock().0.tables;
        tables.iter().find(|table| table.oid == oid).map(read).unwrap_or_default()
    }

    /// Changes the record of a table, and writes the file, or removes it once nothing is recorded, if that `is_due`.
    fn change(&self, oid: u32, is_due: bool, change: impl FnOnce(&mut SavedTable)) -> Result<()> {
        let saved = &mut self.state.lock().0;
        let nothing = SavedTable { oid, ..SavedTable::default() };
        let at = saved.tables.iter().position(|table| table.oid == oid);
        let mut table = at.map_or_else(|| nothing.clone(), |at| saved.tables.remove(at));
        change(&mut table);
        if table != nothing {
            saved.tables.push(table);
        }
        if !is_due {
            return Ok(());
        }
        let (action, done) = if saved.tables.is_empty() {
            ("remove", memory::remove(&self.path))
        } else {
            ("write", memory::save(&self.path, saved))
        };
        done.map_err(|error| {
            let path = self.path.display();
            RetoastError::end_run(format!("could not {action} checkpoint file \"{path}\": {error}"))
        })
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
