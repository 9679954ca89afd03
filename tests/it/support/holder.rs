//! Sessions that keep a transaction open.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use crate::support::server::Database;

/// A session that keeps a transaction open until it is dropped.
pub(crate) struct Holder {
    psql: Child,
    input: ChildStdin,
    /// Of its backend.
    pub(crate) pid: String,
}

impl Holder {
    /// Begins a transaction and runs a statement in it that returns no rows.
    pub(crate) fn of(database: &Database<'_>, statement: &str) -> Holder {
        let mut psql = database
            .psql_command()
            .arg("-q")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; {statement}; SELECT pg_backend_pid();").unwrap();
        let mut pid = String::new();
        BufReader::new(psql.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        Holder { psql, input, pid: pid.trim().to_owned() }
    }
}

impl Holder {
    /// Commits the transaction, and ends the session.
    pub(crate) fn commit(mut self) {
        writeln!(self.input, "COMMIT;").unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // psql ends with its input, or has ended already
        let _ = writeln!(self.input, "\\q");
        let _ = self.psql.wait();
    }
}
