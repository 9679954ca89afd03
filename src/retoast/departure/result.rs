//! What is reported of a toaster that everything was to be taken from.

use serde::Serialize;

use crate::disk::Oid;
use crate::disk::custom::DEFAULT_TOASTER;
use crate::server::sql::{quote_identifier, quote_literal};
use crate::server::toasters::Referent;

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
    /// Whether a scan of all tables and of the catalog has shown that nothing refers to it any more.
    pub gone: bool,
    /// Once no value and no column is left to it in the whole database: what a superuser runs, in this
    /// order, to remove it. That is left to the user.
    pub steps: Vec<String>,
}

/// A table that could not be dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnfitTable {
    /// `schema.name`.
    pub relation: String,
    /// Why.
    pub reason: String,
}

/// The statements that remove a toaster to which nothing but `dropped` columns is set. No published
/// server has `DROP TOASTER`, and `DROP EXTENSION` fails while the toaster is there (`doDeletion` in
/// `dependency.c`): its row and those that depend on it go first.
pub(crate) fn steps(toaster: Oid, dropped: &[Referent], extension: Option<&str>) -> Vec<String> {
    let mut steps = Vec::new();
    for column in dropped {
        steps.push(format!(
            "UPDATE pg_catalog.pg_attribute SET atttoaster = {DEFAULT_TOASTER} WHERE attrelid = \
             {}::pg_catalog.regclass AND attnum = {} AND attisdropped;",
            quote_literal(&column.quoted()),
            column.number
        ));
    }
    let class = "'pg_catalog.pg_toaster'::pg_catalog.regclass";
    steps.push("BEGIN;".to_owned());
    steps.push(format!(
        "DELETE FROM pg_catalog.pg_depend WHERE classid = {class} AND objid = {toaster};"
    ));
    steps.push(format!(
        "DELETE FROM pg_catalog.pg_description WHERE classoid = {class} AND objoid = {toaster};"
    ));
    steps.push(format!("DELETE FROM pg_catalog.pg_toaster WHERE oid = {toaster};"));
    if let Some(extension) = extension {
        steps.push(format!("DROP EXTENSION {};", quote_identifier(extension)));
    }
    steps.push("COMMIT;".to_owned());
    steps
}
