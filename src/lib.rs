//! toastctl: show, predict and change how PostgreSQL stores large values.
//!
//! The layers, from the bottom up; a module uses only those above it in this list:
//!
//! * [`codec`]: pglz and lz4, exactly as in the server.
//! * [`disk`]: pages, tuples, varlenas and TOAST pointers, borrowed from their bytes.
//! * [`model`]: what a column stores, and what another setting would store.
//! * [`heap`]: the walk from pages to tuples and values; samples of blocks.
//! * [`fill`]: how full files and indexes are, and what compaction would move.
//! * [`judge`]: whether a row is stored as a choice would store it.
//! * [`offline`]: relation files and saved text as sources of pages and values.
//! * [`server`]: a live server: connections, catalogs, snapshots, pages.
//! * [`value`]: one value: a summary line, its content, every detail.
//! * `drive`: a run over relations of a server, or over databases; a failure of one does not affect the others.
//! * [`usage`]: how tables, columns and keys are used, from a server's statistics and catalog.
//! * [`advise`]: what other settings would store and cost.
//! * [`keys`]: what the keys of documents cost.
//! * [`findings`]: avoidable costs, with the commands that remove them.
//! * [`inspect`]: the read-only report on what is stored.
//! * [`check`]: whether every value can be read as it was written.
//! * [`retoast`]: rewrites stored values with the chosen settings, online.
//! * [`report`]: results as tables, JSON, CSV and Markdown.
//! * [`cli`]: arguments, connection, exit codes, terminal.
//!
//! `codec`, `disk` and `model` are pure: no clock, file, socket or terminal.
//!
//! Only `codec`, `disk` and `model` are public. The feature `internals`, which only tests enable, makes the other
//! modules public too; without it, the compiler reports unused code.

pub mod codec;
pub mod disk;
mod drive;
pub mod model;

#[cfg(feature = "internals")]
pub mod advise;
#[cfg(feature = "internals")]
pub mod check;
#[cfg(feature = "internals")]
pub mod cli;
#[cfg(feature = "internals")]
pub mod fill;
#[cfg(feature = "internals")]
pub mod findings;
#[cfg(feature = "internals")]
pub mod heap;
#[cfg(feature = "internals")]
pub mod inspect;
#[cfg(feature = "internals")]
pub mod judge;
#[cfg(feature = "internals")]
pub mod keys;
#[cfg(feature = "internals")]
pub mod offline;
#[cfg(feature = "internals")]
pub mod report;
#[cfg(feature = "internals")]
pub mod retoast;
#[cfg(feature = "internals")]
pub mod server;
#[cfg(feature = "internals")]
pub mod usage;
#[cfg(feature = "internals")]
pub mod value;

#[cfg(not(feature = "internals"))]
mod advise;
#[cfg(not(feature = "internals"))]
mod check;
#[cfg(not(feature = "internals"))]
mod cli;
#[cfg(not(feature = "internals"))]
mod fill;
#[cfg(not(feature = "internals"))]
mod findings;
#[cfg(not(feature = "internals"))]
mod heap;
#[cfg(not(feature = "internals"))]
mod inspect;
#[cfg(not(feature = "internals"))]
mod judge;
#[cfg(not(feature = "internals"))]
mod keys;
#[cfg(not(feature = "internals"))]
mod offline;
#[cfg(not(feature = "internals"))]
mod report;
#[cfg(not(feature = "internals"))]
mod retoast;
#[cfg(not(feature = "internals"))]
mod server;
#[cfg(not(feature = "internals"))]
mod usage;
#[cfg(not(feature = "internals"))]
mod value;

/// Runs the program with the arguments of the process; results go to standard output.
pub fn main() -> std::process::ExitCode {
    cli::main()
}
