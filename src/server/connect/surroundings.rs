//! What a resolution starts from: the command line's options, the environment, and files.

use super::Secret;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Larger service and password files are not read.
const LARGEST_FILE: u64 = 16 << 20;

/// What the command line gives.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `--host`.
    pub host: Option<String>,
    /// `--port`.
    pub port: Option<String>,
    /// `--username`.
    pub user: Option<String>,
    /// `--dbname`: a name, a URI or a key=value string.
    pub dbname: Option<Secret>,
}

/// A file as it was found.
#[derive(Debug, Clone)]
pub struct FileSeen {
    /// Its contents.
    pub text: String,
    /// Its permission bits.
    pub mode: u32,
    /// Whether it is a plain file.
    pub is_file: bool,
}

/// What is around the process.
pub trait Surroundings {
    /// The environment variables.
    fn environment(&self) -> &BTreeMap<String, String>;
    /// The operating system's name of the user, where it is known.
    fn os_user(&self) -> Option<String>;
    /// Reads a file.
    ///
    /// # Errors
    /// Those of the operating system.
    fn read(&self, path: &Path) -> io::Result<FileSeen>;
}

/// The surroundings of this process.
#[derive(Debug)]
pub struct ThisProcess(BTreeMap<String, String>);

impl ThisProcess {
    /// Takes the environment as it is now.
    pub fn new() -> ThisProcess {
        let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
        ThisProcess(std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect())
    }
}

impl Default for ThisProcess {
    fn default() -> ThisProcess {
        ThisProcess::new()
    }
}

impl Surroundings for ThisProcess {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    fn os_user(&self) -> Option<String> {
        whoami::username().ok()
    }

    fn read(&self, path: &Path) -> io::Result<FileSeen> {
        use std::io::Read;
        use std::os::unix::fs::PermissionsExt;
        // asked before it is opened: opening a pipe would wait
        let metadata = std::fs::metadata(path)?;
        let mut bytes = Vec::new();
        if metadata.is_file() {
            std::fs::File::open(path)?.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        }
        Ok(FileSeen {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            mode: metadata.permissions().mode() & 0o7777,
            is_file: metadata.is_file(),
        })
    }
}
