//! What the tests share: servers, runs of `toastctl`, tables, and the reports that it prints.

pub(crate) mod check_cases;
pub(crate) mod checked;
pub(crate) mod command;
pub(crate) mod documents;
pub(crate) mod extract;
pub(crate) mod findings;
mod harness;
pub(crate) mod holder;
pub(crate) mod install;
pub(crate) mod library;
pub(crate) mod measured;
pub(crate) mod pgbouncer;
pub(crate) mod proxy;
pub(crate) mod reports;
pub(crate) mod retoast;
pub(crate) mod server;
pub(crate) mod soak_application;
pub(crate) mod standin;
pub(crate) mod table_files;
pub(crate) mod tables;
pub(crate) mod verbs;
pub(crate) mod zoo;
