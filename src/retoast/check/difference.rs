//! How a table's definition differs from what it was, as a message says it.

use std::fmt;

use crate::codec::Method;
use crate::disk::desc::Storage;

/// One way in which a definition is no longer what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The column's storage.
    Storage(String, Storage),
    /// The column's compression method; `None`: it was unset.
    Method(String, Option<Method>),
    /// The server's default method, which the column takes.
    Default(Option<Method>),
    /// The column's toaster.
    Toaster(String),
    /// The table's `toast_tuple_target`; `None`: it was reset.
    Target(Option<String>),
    /// The column's type.
    Type(String),
    /// The column was dropped.
    Dropped(String),
    /// A column was added.
    Added(String),
    /// The column was renamed.
    Renamed(String, String),
    /// The table's owner.
    Owner,
    /// Whether row security is enabled or forced.
    RowSecurity,
    /// The table was dropped.
    Gone,
}

impl Difference {
    /// Whether a statement can set it right without reading the table.
    fn is_a_setting(&self) -> bool {
        matches!(self, Difference::Storage(..) | Difference::Method(..) | Difference::Target(_))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Storage(column, storage) => {
                write!(f, "column \"{column}\" was set to storage {}", storage.name())
            }
            Difference::Method(column, method) => {
                let method = method.map_or("default", Method::name);
                write!(f, "column \"{column}\" was set to compression {method}")
            }
            Difference::Default(method) => {
                let method = method.map_or("another method", Method::name);
                write!(f, "default_toast_compression was set to {method}")
            }
            Difference::Toaster(column) => {
                write!(f, "column \"{column}\" was set to another toaster")
            }
            Difference::Target(Some(target)) => {
                write!(f, "toast_tuple_target was set to {target}")
            }
            Difference::Target(None) => write!(f, "toast_tuple_target was reset"),
            Difference::Type(column) => write!(f, "the type of column \"{column}\" was changed"),
            Difference::Dropped(column) => write!(f, "column \"{column}\" was dropped"),
            Difference::Added(column) => write!(f, "column \"{column}\" was added"),
            Difference::Renamed(old, new) => {
                write!(f, "column \"{old}\" was renamed to \"{new}\"")
            }
            Difference::Owner => write!(f, "the owner of the table was changed"),
            Difference::RowSecurity => write!(f, "row security was enabled, disabled or forced"),
            Difference::Gone => write!(f, "the table was dropped"),
        }
    }
}

/// The differences as a message has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differences(pub(super) Vec<Difference>);

impl Differences {
    /// Whether all of them can be set right.
    pub(crate) fn are_settings(&self) -> bool {
        self.0.iter().all(Difference::is_a_setting)
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            write!(f, "{}{one}", if at > 0 { ", " } else { "" })?;
        }
        write!(f, " by somebody else")
    }
}
