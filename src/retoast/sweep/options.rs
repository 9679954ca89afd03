//! How a table is swept.

use std::time::Duration;

use super::machine::Tuning;

/// Which rows are compared before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// None.
    Off,
    /// Those of one batch in 32, the first among them.
    Sample,
    /// All.
    Full,
}

/// How to go about it.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the sweep goes.
    pub tuning: Tuning,
    /// Which rows are compared.
    pub verify: Verify,
    /// The longest wait for a lock.
    pub lock_timeout: Duration,
    /// Whether row security is to be an error where it would hide rows.
    pub row_security_off: bool,
    /// Only look.
    pub dry_run: bool,
    /// The replication origin of what is written.
    pub origin: Option<String>,
    /// Set right what somebody else changes of the settings meanwhile.
    pub enforce: bool,
    /// Put the settings back as they were unless all gets done.
    pub undo: bool,
}
