//! The file of `--since`: read before the first table, written as each one is complete.

use std::io;
use std::path::{Path, PathBuf};

use super::file;
use super::since::{Doubt, Memory, Since};
use super::standing;
use crate::retoast::check::ready::Ready;
use crate::retoast::result::{Outcome, TableReport};
use crate::server::LiveError;
use crate::server::connect::Client;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SinceError {
    /// Something else stands in it.
    #[error(
        "--since: \"{}\" was not written by retoast\nHINT:  Name a file that is not there yet.",
        .0.display()
    )]
    NotOurs(PathBuf),
    /// It cannot be read.
    #[error("--since: \"{}\": {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        error: io::Error,
    },
    /// It cannot be written.
    #[error("--since: could not write \"{}\": {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        error: io::Error,
    },
}

/// The file.
#[derive(Debug)]
pub struct Remembered(PathBuf);

impl Remembered {
    /// Reads the file and, where anything will be remembered, tries to write it before hours of work are
    /// done.
    pub fn open(path: &Path, dry_run: bool) -> Result<Remembered, SinceError> {
        let remembered = Remembered(path.to_owned());
        let (text, memory) = remembered.read()?;
        if !dry_run {
            remembered.write(text.as_ref().unwrap_or(&memory.print()))?;
        }
        Ok(remembered)
    }

    /// The file's text, if it is there, and what it remembers.
    fn read(&self) -> Result<(Option<String>, Memory), SinceError> {
        match file::read(&self.0) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).ok();
                let memory = text.as_deref().and_then(Memory::parse);
                let memory = memory.ok_or_else(|| SinceError::NotOurs(self.0.clone()))?;
                Ok((text, memory))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, Memory::default())),
            Err(error) => Err(SinceError::Read { path: self.0.clone(), error }),
        }
    }

    fn write(&self, text: &str) -> Result<(), SinceError> {
        file::replace(&self.0, text.as_bytes())
            .map_err(|error| SinceError::Write { path: self.0.clone(), error })
    }

    /// The rows of a table that an earlier run has proven to comply, or why what the file says of it is
    /// not believed.
    pub async fn since(
        &self,
        client: &Client,
        ready: &Ready,
    ) -> Result<Result<Option<Since>, Doubt>, LiveError> {
        let Some(choice) = ready.choice() else { return Ok(Ok(None)) };
        // it was read before: what it has become since is not worth ending the run for
        let Ok((_, memory)) = self.read() else { return Ok(Ok(None)) };
        Ok(memory.since(&standing::ask(client, ready).await?, &choice))
    }

    /// Remembers what a run has proven. Other runs may have written to the file meanwhile, of other
    /// tables.
    pub fn remember(&self, ready: &Ready, report: &TableReport) -> Result<(), SinceError> {
        match (report.outcome, &report.converted.proof, ready.choice()) {
            (Outcome::Complete, Some(proof), Some(choice)) => {
                let (_, mut memory) = self.read()?;
                memory.remember(proof, choice);
                self.write(&memory.print())
            }
            _ => Ok(()),
        }
    }
}
