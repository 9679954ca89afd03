//! `retoast --since FILE`.

use std::fs;
use std::io;
use std::path::Path;

use super::exit::{Exit, Failure};
use crate::retoast::since::Memory;

/// What the file remembers; nothing if there is no file yet.
pub(super) fn read(path: &Path) -> Result<Memory, Failure> {
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
pub(super) fn write(path: &Path, memory: &Memory) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, memory.print()).and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        Failure::new(
            Exit::Incomplete,
            format!("--since: could not write \"{}\": {error}", path.display()),
        )
    })
}
