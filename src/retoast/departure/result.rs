//! What is reported of a toaster that everything was to be taken from.

use serde::Serialize;

/// What is left of a toaster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct DepartureReport {
    /// Its name.
    pub toaster: String,
    /// Its OID, as pointers have it.
    pub toaster_oid: u32,
    /// Whether all tables of the database were looked at, not only some.
    pub whole_database: bool,
    /// Tables whose pages were all read, each time.
    pub tables_read: u64,
    /// Values that it stored, before anything was done; those of dropped columns too.
    pub values_before: u64,
    /// Values that it stores now; those before if nothing was to be done.
    pub values_left: u64,
    /// Columns that are still set to it.
    pub columns_left: Vec<String>,
    /// Dropped columns that are still set to it: without the toaster no long value could be written to
    /// their tables any more.
    pub dropped_columns_left: Vec<String>,
    /// Statements besides those of the tables below.
    pub alter: Vec<String>,
    /// Tables of which something is left, or not known, and why.
    pub unfit: Vec<UnfitTable>,
    /// Transactions that were older than the proof and had not ended: tables that they have created were not seen.
    pub older_transactions: Vec<String>,
    /// Whether a scan of all tables and of the catalog has shown that nothing refers to it any more.
    pub gone: bool,
    /// Once no value and no column is left to it in the whole database: what a superuser runs, in this
    /// order and in one transaction, to remove it. That is left to the user. They look once more, and fail if a table
    /// was created, altered or dropped since.
    pub steps: Vec<String>,
}

/// A table that could not be dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct UnfitTable {
    /// `schema.name`.
    pub relation: String,
    /// Why.
    pub reason: String,
}
