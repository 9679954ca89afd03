//! Whether values are stored as the goal would store them (pure).
//!
//! * [`stock`]: by the TOAST algorithm of a stock server, or by the results of SQL functions.
//! * [`pluggable`]: on servers with pluggable TOAST.
//! * [`policy`]: for each value.
//!
//! A table has one [`Judge`]. [`goal`] is the intended storage, and [`toaster`] the settings for a toaster.

pub mod goal;
pub mod pluggable;
pub mod policy;
pub mod stock;
#[cfg(test)]
mod tests;
pub mod toaster;

use crate::disk::Datum;
use crate::model::StoredValue;
use crate::model::toast::Table;
use pluggable::ToasterPlan;
use policy::Rule;
use stock::{Compliance, CompressedSize, by_model};
use toaster::Toaster;

/// Judges the rows of a table.
#[derive(Debug, Clone)]
pub enum Judge {
    /// By the forms of values, which follow from the columns' settings.
    Forms(FormJudge),
    /// By a policy: by the contents of values, regardless of the columns' settings.
    Policy(Rule),
}

/// Judges by the forms of values.
#[derive(Debug, Clone)]
pub enum FormJudge {
    /// By the TOAST algorithm alone.
    Stock(Toaster),
    /// By pointers of pluggable toasters too, even if the goal is a stock toaster.
    Pluggable(ToasterPlan),
}

/// A row to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The table with the goal's settings.
    pub table: &'a Table,
    /// The indexes of the chosen columns.
    pub targets: &'a [usize],
    /// The indexes of generated columns that are recomputed with them.
    pub follow: &'a [usize],
    /// The row's values by column index.
    pub values: &'a [StoredValue],
}

impl Judge {
    /// The name of the choice.
    pub fn choice(&self) -> String {
        match self {
            Judge::Forms(FormJudge::Stock(toaster)) => toaster.name().to_owned(),
            Judge::Forms(FormJudge::Pluggable(plan)) => plan.toaster.clone(),
            Judge::Policy(rule) => {
                let mut methods: Vec<String> =
                    rule.methods.iter().map(ToString::to_string).collect();
                methods.dedup();
                format!("{} {}", rule.policy, methods.join(", "))
            }
        }
    }

    /// The policy's name, if there is a policy.
    pub fn policy(&self) -> Option<String> {
        match self {
            Judge::Forms(_) => None,
            Judge::Policy(rule) => Some(rule.policy.to_string()),
        }
    }

    /// Whether values that other sessions write in the meantime comply, because of the columns' settings. With a policy
    /// they do not, since no setting makes a server follow a policy.
    pub fn new_values_comply(&self) -> bool {
        !matches!(self, Judge::Policy(_))
    }

    /// Whether a batch uses what a scan has found about its rows, and takes values from the table in which the server
    /// compresses copies. Otherwise its UPDATE makes fresh values, and needs only the rows' addresses.
    pub fn needs_copies(&self) -> bool {
        matches!(self, Judge::Policy(_))
    }

    /// Whether a row must be updated because of this value of a dropped column, which the update removes.
    pub fn clears(&self, datum: &Datum<'_>) -> bool {
        match self {
            Judge::Forms(FormJudge::Pluggable(plan)) => plan.clears(datum),
            Judge::Forms(FormJudge::Stock(_)) | Judge::Policy(_) => false,
        }
    }
}

impl FormJudge {
    /// The verdict on a row; `known` returns to what size the server compresses a value, if that was determined.
    pub fn compliance(
        &self,
        row: &Row<'_>,
        known: &dyn Fn(usize) -> Option<CompressedSize>,
    ) -> Compliance {
        let Row { table, targets, follow, values } = *row;
        match self {
            FormJudge::Stock(_) => by_model(table, targets, follow, values, known),
            FormJudge::Pluggable(plan) => plan.compliance(table, follow, values, known),
        }
    }

    /// Whether this column's toaster may leave an out-of-line value unchanged.
    pub fn may_keep_pointers(&self, index: usize) -> bool {
        match self {
            FormJudge::Stock(_) => false,
            FormJudge::Pluggable(plan) => {
                plan.column(index).is_some_and(|column| column.may_keep_pointers)
            }
        }
    }

    /// Whether compression inside composite values is considered. It does not matter for a toaster of `pg_toaster`.
    pub fn counts_fields(&self) -> bool {
        match self {
            FormJudge::Stock(_) => true,
            FormJudge::Pluggable(plan) => plan.stock,
        }
    }
}
