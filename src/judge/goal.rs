//! What is wanted.

use super::toaster::Toaster;
use crate::model::policy::{MethodChoice, Policy};

/// The choice of values that stay as they are.
pub(crate) const AS_STORED: &str = "as stored";

/// What is wanted of the values of the chosen columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// To be stored as a stock server stores with this toaster, by whatever server.
    Stock(Toaster),
    /// Has to do with a toaster of `pg_toaster`.
    Pluggable(Pluggable),
    /// Value by value what a policy says.
    Policy(PolicyGoal),
    /// To stay as they are.
    Keep,
}

/// What is wanted in the terms of a server with pluggable TOAST. Storage and compression method are the
/// columns' own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pluggable {
    /// To be stored by the toaster of this name.
    Becomes(String),
    /// Not to be stored by the toaster of this name.
    Leaves(String),
}

/// What decides value by value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyGoal {
    /// By what.
    pub policy: Policy,
    /// With which method; `None` for each column's own.
    pub method: Option<MethodChoice>,
    /// Whether new values are to be compressed whenever they can be: the columns are left at storage
    /// `extended`, not `external`.
    pub new_extended: bool,
}

impl Goal {
    /// What the columns are set to while the sweep runs.
    pub fn toaster(&self) -> Toaster {
        match self {
            Goal::Stock(toaster) => *toaster,
            Goal::Pluggable(_) | Goal::Keep => Toaster::Extended,
            // its columns compress nothing by themselves
            Goal::Policy(_) => Toaster::External,
        }
    }

    /// As the command line has it.
    pub fn choice(&self) -> String {
        match self {
            Goal::Stock(toaster) => toaster.name().to_owned(),
            Goal::Pluggable(Pluggable::Becomes(name) | Pluggable::Leaves(name)) => name.clone(),
            Goal::Policy(PolicyGoal { policy, method: Some(method), .. }) => {
                format!("{policy} {method}")
            }
            Goal::Policy(PolicyGoal { policy, method: None, .. }) => policy.to_string(),
            Goal::Keep => AS_STORED.to_owned(),
        }
    }
}
