//! The intended storage of values.

use super::toaster::Toaster;
use crate::model::{MethodChoice, Policy};

/// The intended storage of the values of the chosen columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// As a stock server stores values with this toaster, on any server.
    Stock(Toaster),
    /// A goal that involves a toaster of `pg_toaster`.
    Pluggable(Pluggable),
    /// As a policy decides for each value.
    Policy(PolicyGoal),
}

/// A goal on a server with pluggable TOAST. It does not specify the columns' storage and compression method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pluggable {
    /// Values are stored by the toaster of this name.
    Becomes(String),
    /// Values are not stored by the toaster of this name.
    Leaves(String),
}

/// A policy for each value, and its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyGoal {
    /// Which compressed values are kept.
    pub policy: Policy,
    /// The compression method; `None` for each column's own.
    pub method: Option<MethodChoice>,
    /// Whether new values are compressed if possible: at the end the columns have storage `extended` instead of
    /// `external`.
    pub new_extended: bool,
}

impl Goal {
    /// The columns' settings during the sweep.
    pub fn toaster(&self) -> Toaster {
        match self {
            Goal::Stock(toaster) => *toaster,
            Goal::Pluggable(_) => Toaster::Extended,
            // Columns with this setting compress nothing.
            Goal::Policy(_) => Toaster::External,
        }
    }

    /// The choice, as on the command line.
    pub fn choice(&self) -> String {
        match self {
            Goal::Stock(toaster) => toaster.name().to_owned(),
            Goal::Pluggable(Pluggable::Becomes(name) | Pluggable::Leaves(name)) => name.clone(),
            Goal::Policy(PolicyGoal { policy, method: Some(method), .. }) => {
                format!("{policy} {method}")
            }
            Goal::Policy(PolicyGoal { policy, method: None, .. }) => policy.to_string(),
        }
    }
}
