//! The checkpoint of a run over several databases: which of them are done. Each of the others has a checkpoint of its
//! own, in a file next to this one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::retoast::memory::{self, SavedState};

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    /// What is done to the databases, so that another command does not skip them.
    work: String,
    finished: BTreeSet<String>,
}

impl SavedState for Saved {
    const SCHEMA: &'static str = "toastctl.fleet-checkpoint/1";
}

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct Finished {
    path: PathBuf,
    saved: Saved,
}

impl Finished {
    /// Reads the file, if it exists.
    ///
    /// # Errors
    /// It cannot be read, is of another kind, or belongs to other work.
    pub(crate) fn open(path: &Path, work: &str) -> Result<Finished, String> {
        let new = Saved { work: work.to_owned(), finished: BTreeSet::new() };
        let saved = memory::load_checkpoint(path, "several databases", new)?;
        if saved.work != work {
            return Err(memory::of_another_run(path, &saved.work));
        }
        Ok(Finished { path: path.to_owned(), saved })
    }

    pub(crate) fn has(&self, database: &str) -> bool {
        self.saved.finished.contains(database)
    }

    /// Records that a database is done. The file is on disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, database: &str) -> io::Result<()> {
        self.saved.finished.insert(database.to_owned());
        memory::save(&self.path, &self.saved)
    }

    /// Removes the file: everything is done.
    ///
    /// # Errors
    /// Any error of the operating system, except that there is no file.
    pub(crate) fn end(&self) -> io::Result<()> {
        memory::remove(&self.path)
    }

    /// The checkpoint of one database: no two of them have the same.
    pub(crate) fn of_database(path: &Path, database: &str) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        let mut encoded = String::from(".");
        for byte in database.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    encoded.push(char::from(byte));
                }
                other => {
                    // a String takes all that is written
                    let _ = write!(encoded, "%{other:02x}");
                }
            }
        }
        name.push(encoded);
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_finished_is_kept_for_the_same_work_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet");
        let mut finished = Finished::open(&path, "doc to lz4").unwrap();
        finished.add("db1:5432/shop").unwrap();
        let again = Finished::open(&path, "doc to lz4").unwrap();
        assert!(again.has("db1:5432/shop") && !again.has("db1:5432/sho"));
        let error = Finished::open(&path, "doc to pglz").unwrap_err();
        assert!(error.contains("belongs to another run: doc to lz4"), "{error}");
        again.end().unwrap();
        again.end().unwrap();
        fs::write(&path, "{\"schema\":\"toastctl.retoast-checkpoint/1\"}").unwrap();
        let error = Finished::open(&path, "doc to lz4").unwrap_err();
        assert!(error.contains("is not a checkpoint of several databases"), "{error}");
    }

    #[test]
    fn every_database_has_a_file_of_its_own() {
        let of = |name| Finished::of_database(Path::new("/var/run/f"), name);
        assert_eq!(of("db1:5432/shop"), Path::new("/var/run/f.db1%3a5432%2fshop"));
        assert_ne!(of("a%2fb"), of("a/b"));
    }
}
