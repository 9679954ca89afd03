//! What outlives a run, in files and in comments of columns.
//!
//! * [`checkpoint`]: the positions of scans; [`since`]: what earlier runs have proven, and how a table is identified;
//!   [`finished`]: which databases of several are done.
//! * [`settings`]: the original settings of columns.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::Access;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub mod checkpoint;
pub(crate) mod finished;
pub mod settings;
pub mod since;

/// The maximum size of a file that is read: a million tables take less.
const LARGEST: u64 = 256 << 20;

/// What a file keeps from one run to the next: JSON with the name and version of its shape.
pub(crate) trait SavedState: Serialize + DeserializeOwned {
    const SCHEMA: &'static str;
}

#[derive(Serialize, Deserialize)]
struct StateFile<S, T> {
    schema: S,
    #[serde(flatten)]
    state: T,
}

/// A file to which a state will be written.
enum Loaded<T> {
    State(T),
    /// The file does not exist, and can be created.
    Absent,
    /// The file is of another kind.
    Foreign,
}

/// Reads a state from the file, if it exists.
///
/// # Errors
/// The file cannot be read, or does not exist and cannot be created.
fn load<T: SavedState>(path: &Path) -> io::Result<Loaded<T>> {
    let bytes = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            rustix::fs::access(directory_of(path), Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|error| io::Error::other(format!("it cannot be created: {error}")))?;
            return Ok(Loaded::Absent);
        }
        read => read?,
    };
    let file: Option<StateFile<String, T>> = serde_json::from_slice(&bytes).ok();
    let state = file.filter(|file| file.schema == T::SCHEMA).map(|file| file.state);
    Ok(state.map_or(Loaded::Foreign, Loaded::State))
}

/// Reads a checkpoint of `kind`; if its file does not exist yet, it is `new`. The error says why the file cannot be used.
fn load_checkpoint<T: SavedState>(path: &Path, kind: &str, new: T) -> Result<T, String> {
    let name = path.display();
    match load(path) {
        Ok(Loaded::State(saved)) => Ok(saved),
        Ok(Loaded::Absent) => Ok(new),
        Ok(Loaded::Foreign) => Err(format!("file \"{name}\" is not a checkpoint of {kind}")),
        Err(error) => Err(format!("could not use checkpoint file \"{name}\": {error}")),
    }
}

/// The message if the checkpoint in a file is that of `other`.
fn of_another_run(path: &Path, other: &str) -> String {
    format!(
        "checkpoint file \"{}\" belongs to another run: {other}\n\
         HINT:  Name another file, or remove this one.",
        path.display()
    )
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes a state. It is on disk when this returns.
///
/// # Errors
/// Any error of the operating system; the file is then unchanged.
fn save<T: SavedState>(path: &Path, state: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(&StateFile { schema: T::SCHEMA, state })?;
    text.push(b'\n');
    replace(path, &text)
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads a whole file.
///
/// # Errors
/// Any error of the operating system, or the file is not a regular one, or is too large.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // This is checked before the file is opened, because opening a pipe would wait, and reading a device may never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it is longer than {} MB", LARGEST >> 20)));
    }
    Ok(bytes)
}

/// Replaces the contents of `path`, or creates the file. The contents are on disk when this returns.
///
/// # Errors
/// Any error of the operating system; the file is then unchanged.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    // A symbolic link is followed, so that the file it names is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = temporary(&path);
    let written = write(&temporary, &path, contents);
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // The new name is on disk only once the directory is.
    File::open(directory_of(&path))?.sync_all()
}

/// A name in the same directory to which no other process writes.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

fn write(temporary: &Path, path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = File::create(temporary)?;
    if let Ok(now) = fs::metadata(path) {
        file.set_permissions(now.permissions())?;
    }
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink("file", &link).unwrap();
        replace(&link, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_file_or_too_long_for_one_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| read(path).unwrap_err().to_string();
        for path in [Path::new("/dev/full"), Path::new("/dev/zero"), dir.path()] {
            assert_eq!(error(path), "it is not a regular file", "{}", path.display());
        }
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(error(&path), "it is longer than 256 MB");
        fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path).unwrap(), b"{}");
        assert_eq!(read(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("directory");
        fs::create_dir(&inside).unwrap();
        assert!(replace(&inside, b"x").is_err());
        assert!(replace(&dir.path().join("not there/file"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
