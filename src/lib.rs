//! toastctl: show, predict and change how PostgreSQL stores large values.
//!
//! Formats, codecs, the TOAST model and its judges are the crate `toast_format`. The layers above it, from the bottom up; a
//! module uses only those above it in this list:
//!
//! * [`command`]: the commands and statements that carry out a choice, as text.
//! * [`offline`]: relation files and saved text as sources of pages and values.
//! * [`server`]: a live server: connections, catalogs, snapshots, pages.
//! * [`value`]: one value: a summary line, its content, every detail.
//! * [`drive`]: a run over relations of a server, or over databases; a failure of one does not affect the others.
//! * [`usage`]: how tables, columns and keys are used, from a server's statistics and catalog.
//! * [`advise`]: what other settings would store and cost.
//! * [`keys`]: what the keys of documents cost.
//! * [`findings`]: avoidable costs, with the commands that remove them.
//! * [`inspect`]: the read-only report on what is stored.
//! * [`check`]: whether every value can be read as it was written.
//! * [`retoast`]: rewrites stored values with the chosen settings, online.
//! * [`report`]: results as tables, JSON, CSV and Markdown.
//! * [`cli`]: arguments, connection, exit codes, terminal.

pub mod advise;
pub mod check;
pub mod cli;
pub mod command;
pub mod drive;
pub mod findings;
pub mod inspect;
pub mod keys;
mod message;
pub mod offline;
pub mod report;
pub mod retoast;
pub mod server;
mod testing;
pub mod usage;
pub mod value;

/// Runs the program with the arguments of the process; results go to standard output.
pub fn main() -> std::process::ExitCode {
    cli::main()
}
