//! The library's own connections.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use toastctl::cli::connect::{
    Connection, ConnectionArgs, FileSeen, SessionOptions, Surroundings, ThisProcess,
};

use crate::support::server::Database;

/// A connection of the library's own kind.
pub(crate) async fn connect(database: &Database<'_>) -> Arc<Connection> {
    let arguments = ConnectionArgs { dbname: Some(database.conninfo()), ..Default::default() };
    let session = SessionOptions::read_write("test");
    Arc::new(arguments.connect(&session, &mut |_: &str| {}).await.expect("the server is there"))
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

/// Surroundings with these variables alone, and the real files.
pub(crate) struct Around(BTreeMap<String, String>);

impl Around {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Around {
        Around(
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        )
    }
}

impl Surroundings for Around {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    fn os_user(&self) -> Option<String> {
        Some("postgres".into())
    }

    fn read(&self, path: &Path) -> io::Result<FileSeen> {
        ThisProcess::default().read(path)
    }
}

/// Writes a file with these permissions.
pub(crate) fn write(path: &Path, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
