//! What a migration moves.

use super::around::Around;
use super::kind::KeyType;
use super::parent::Migrated;

/// A key that moves.
#[derive(Debug, Clone)]
pub struct Moving<'a> {
    pub key: &'a str,
    /// Its column's name.
    pub name: &'a str,
    pub kind: KeyType,
}

/// A migration to columns for keys.
#[derive(Debug, Clone)]
pub struct Migration<'a> {
    pub table: &'a Migrated,
    /// The document's column.
    pub column: &'a str,
    pub keys: &'a [Moving<'a>],
    /// Live rows of a page.
    pub rows_per_page: f64,
    /// The command that re-toasts the column and gives back what is free.
    pub command: &'a str,
    /// Whether the server has pluggable TOAST, where nothing may be written anew.
    pub has_toasters: bool,
    pub around: &'a Around,
}
