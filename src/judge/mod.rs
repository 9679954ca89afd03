//! Whether what is stored is what the goal would store (pure).
//!
//! * [`stock`]: by the TOAST algorithm of a stock server, or by what SQL functions tell.
//! * [`pluggable`]: on servers with pluggable TOAST.
//! * [`policy`]: value by value.
//!
//! [`Judge`] is the one of them that a table has. [`goal`] is what is wanted, [`toaster`] the settings that make a
//! toaster a column's choice, [`command`] what brings a column to it.

pub mod command;
pub mod goal;
pub mod pluggable;
pub mod policy;
pub mod stock;
#[cfg(test)]
mod tests;
pub mod toaster;

use crate::disk::walk::Datum;
use crate::model::stored::StoredValue;
use crate::model::toast::Table;
use pluggable::Plan;
use policy::Rule;
use stock::{Compliance, Compressed, by_model};
use toaster::Toaster;

/// What judges a table's rows.
#[derive(Debug, Clone)]
pub enum Judge {
    /// By the forms of their values, which a setting of the columns leads to.
    Forms(FormJudge),
    /// By a policy: by the contents of their values, whatever the columns are set to.
    Policy(Rule),
}

/// What judges by the forms of values.
#[derive(Debug, Clone)]
pub enum FormJudge {
    /// The TOAST algorithm alone.
    Stock(Toaster),
    /// Pointers of pluggable toasters too, for the goal of a stock toaster as well.
    Pluggable(Plan),
}

/// A row to be judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    /// The table as the goal sets it.
    pub(crate) table: &'a Table,
    /// The indexes of the chosen columns.
    pub(crate) targets: &'a [usize],
    /// Those of generated columns that are computed anew with them.
    pub(crate) follow: &'a [usize],
    /// By column index.
    pub(crate) values: &'a [StoredValue],
}

impl Judge {
    /// What the columns are brought to, in a word.
    pub(crate) fn choice(&self) -> String {
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

    /// The policy's name, if one decides.
    pub(crate) fn policy(&self) -> Option<String> {
        match self {
            Judge::Forms(_) => None,
            Judge::Policy(rule) => Some(rule.policy.to_string()),
        }
    }

    /// Whether values that others write meanwhile comply, since the columns are set so. No setting tells a server
    /// of a policy.
    pub(crate) fn new_values_comply(&self) -> bool {
        !matches!(self, Judge::Policy(_))
    }

    /// Whether a batch goes by what a scan has seen of its rows, and takes values from the table in which the
    /// server compresses copies. Else its UPDATE makes them anew, and needs to know nothing but addresses.
    pub(crate) fn needs_copies(&self) -> bool {
        matches!(self, Judge::Policy(_))
    }

    /// Whether a row is to be updated for this value of a dropped column, which clears it.
    pub(crate) fn clears(&self, datum: &Datum<'_>) -> bool {
        match self {
            Judge::Forms(FormJudge::Pluggable(plan)) => plan.clears(datum),
            Judge::Forms(FormJudge::Stock(_)) | Judge::Policy(_) => false,
        }
    }
}

impl FormJudge {
    /// The verdict on a row; `known` says what the server makes of a value where that was asked.
    pub(crate) fn compliance(
        &self,
        row: &Row<'_>,
        known: &dyn Fn(usize) -> Option<Compressed>,
    ) -> Compliance {
        let Row { table, targets, follow, values } = *row;
        match self {
            FormJudge::Stock(_) => by_model(table, targets, follow, values, known),
            FormJudge::Pluggable(plan) => plan.compliance(table, follow, values, known),
        }
    }

    /// The first column whose value cannot be re-toasted by SQL, because the server does not read it as it is.
    pub(crate) fn stale(&self, values: &[StoredValue]) -> Option<usize> {
        match self {
            FormJudge::Stock(_) => None,
            FormJudge::Pluggable(plan) => plan.stale(values),
        }
    }

    /// Whether this column's toaster may leave a value out of line as it is.
    pub(crate) fn may_keep_pointers(&self, index: usize) -> bool {
        match self {
            FormJudge::Stock(_) => false,
            FormJudge::Pluggable(plan) => {
                plan.column(index).is_some_and(|column| column.may_keep_pointers)
            }
        }
    }

    /// Whether compression inside composite values counts. Of that a toaster of `pg_toaster` says nothing.
    pub(crate) fn counts_fields(&self) -> bool {
        match self {
            FormJudge::Stock(_) => true,
            FormJudge::Pluggable(plan) => plan.stock,
        }
    }
}
