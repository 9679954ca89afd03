//! The commands that act on findings (pure).

use crate::advise::commands::{column_words, shell_quoted, table_words};
use crate::advise::extract::keys::key_word;
use crate::disk::desc::Storage;
use crate::model::sql::{quote_identifier, quote_qualified};

/// What stands in commands for a table of which only the file is known.
const UNKNOWN: &str = "TABLE";

/// A table as commands name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableName {
    Known {
        schema: String,
        name: String,
    },
    /// The file or text that its pages were read from.
    File(String),
}

impl TableName {
    /// `schema.name`, as reports show it.
    pub(crate) fn shown(&self) -> String {
        match self {
            TableName::Known { schema, name } => format!("{schema}.{name}"),
            TableName::File(file) => file.clone(),
        }
    }

    fn words(&self) -> String {
        match self {
            TableName::Known { schema, name } => table_words(schema, name),
            TableName::File(_) => UNKNOWN.to_owned(),
        }
    }

    fn sql(&self) -> String {
        match self {
            TableName::Known { schema, name } => quote_qualified(schema, name),
            TableName::File(_) => UNKNOWN.to_owned(),
        }
    }

    /// Re-toasts a column as it is set.
    pub(crate) fn retoast(&self, column: &str, storage: Storage) -> String {
        self.retoast_to(column, storage.name())
    }

    /// Re-toasts a column with another toaster, as the option names it.
    pub(crate) fn retoast_to(&self, column: &str, toaster: &str) -> String {
        let (table, column) = (self.words(), column_words(column));
        format!("toastctl retoast {table} {column} --toaster {toaster}")
    }

    /// Re-toasts a column as it is set, with another `toast_tuple_target`.
    pub(crate) fn retoast_with_target(
        &self,
        column: &str,
        storage: Storage,
        target: usize,
    ) -> String {
        format!("{} --target {target}", self.retoast(column, storage))
    }

    /// Moves values out of a file, `heap` or `toast`, and gives the space back.
    pub(crate) fn retoast_and_compact(&self, column: &str, storage: Storage, file: &str) -> String {
        format!("{} --compact={file}", self.retoast(column, storage))
    }

    /// Leaves what compression hardly makes smaller uncompressed.
    pub(crate) fn retoast_by_ratio(&self, column: &str, method: &str) -> String {
        let (table, column) = (self.words(), column_words(column));
        format!("toastctl retoast {table} {column} --policy ratio --method {method}")
    }

    /// Gives free space of a file back: `heap` or `toast`.
    pub(crate) fn compact(&self, file: &str) -> String {
        format!("toastctl retoast {} --compact={file}", self.words())
    }

    pub(crate) fn reindex(&self) -> String {
        format!("toastctl retoast {} --reindex", self.words())
    }

    pub(crate) fn advise(&self, column: Option<&str>) -> String {
        let column = column.map(|column| format!(" {}", column_words(column))).unwrap_or_default();
        format!("toastctl advise-threshold {}{column}", self.words())
    }

    /// Prints the migration that gives keys of a column's documents columns of their own.
    pub(crate) fn extract(&self, column: &str, keys: &[&str]) -> String {
        let keys: Vec<String> = keys.iter().map(|key| key_word(key)).collect();
        // what begins with a hyphen would be taken for an option
        format!(
            "{} --extract={} --emit sql",
            self.advise(Some(column)),
            shell_quoted(&keys.join(","))
        )
    }

    pub(crate) fn vacuum(&self) -> String {
        format!("VACUUM {};", self.sql())
    }

    pub(crate) fn vacuum_full(&self) -> String {
        format!("VACUUM FULL {};", self.sql())
    }

    pub(crate) fn alter(&self, action: &str) -> String {
        format!("ALTER TABLE {} {action};", self.sql())
    }

    pub(crate) fn alter_column(&self, column: &str, action: &str) -> String {
        self.alter(&format!("ALTER COLUMN {} {action}", quote_identifier(column)))
    }
}
