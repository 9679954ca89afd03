//! What is reported of a toaster that everything was to be taken from.

use serde::Serialize;

/// What is left of a toaster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DepartureReport {
    /// Its name.
    pub toaster: String,
    /// Its OID, as pointers have it.
    pub toaster_oid: u32,
    /// Whether all tables of the database were looked at, not only some.
    pub whole_database: bool,
    /// Tables whose pages were all read, each time.
    pub tables_read: u64,
    /// Values that it stored, before anything was done.
    pub values_before: u64,
    /// Values that it stores now; those before if nothing was to be done.
    pub values_left: u64,
    /// Columns that are still set to it.
    pub columns_left: Vec<String>,
    /// Statements besides those of the tables below.
    pub alter: Vec<String>,
    /// Tables of which something is left, or not known, and why.
    pub unfit: Vec<UnfitTable>,
    /// Whether a scan of all tables has shown that nothing refers to it any more.
    pub gone: bool,
}

/// A table that could not be dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnfitTable {
    /// `schema.name`.
    pub relation: String,
    /// Why.
    pub reason: String,
}

impl DepartureReport {
    /// How to get rid of the toaster itself. That is left to the user.
    pub fn hint(&self) -> Option<String> {
        self.gone.then(|| {
            format!(
                "DROP TOASTER {}; a server without that statement lets a superuser with \
                 allow_system_table_mods delete the row: DELETE FROM pg_catalog.pg_toaster \
                 WHERE oid = {};",
                crate::source::sql::quote_identifier(&self.toaster),
                self.toaster_oid
            )
        })
    }
}
