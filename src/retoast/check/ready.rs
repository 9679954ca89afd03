//! What is wanted of a table, and a table that is ready to be swept.

use crate::model::policy::{MethodChoice, Policy};
use crate::model::toast::Table as Model;
use crate::retoast::goal::toaster::{Changes, Toaster};
use crate::retoast::judge::pluggable::{Asked, Plan};
use crate::retoast::judge::policy::Rule;
use crate::retoast::sql::Target;
use crate::server::catalog::Relation;
use crate::server::sql::quote_identifier;

/// What the user wants done to each table.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The columns; none where only dropped ones are to be cleared ([`Asked::Leaves`]).
    pub columns: Vec<String>,
    /// What is to store them on a stock server; with a toaster of `pg_toaster`,
    /// [`Toaster::Extended`], which leaves the compression method as it is.
    pub toaster: Toaster,
    /// What is asked in the terms of a server with pluggable TOAST.
    pub asked: Asked,
    /// `toast_tuple_target`, if it is to be set.
    pub target: Option<u32>,
    /// Leave the settings as they are.
    pub no_alter: bool,
    /// Which values are to be compressed, if that is decided value by value; the toaster is then
    /// `external`.
    pub rule: Option<RuleWish>,
    /// Go on although triggers will fire.
    pub allow_triggers: bool,
    /// Go on although row security hides rows.
    pub allow_row_security: bool,
    /// Run code of the table's owner with the user's rights.
    pub trust_owner_code: bool,
}

impl Wish {
    /// What the columns are brought to, in a word.
    pub(crate) fn choice(&self) -> String {
        match (&self.rule, &self.asked) {
            (Some(RuleWish { policy, method: Some(method), .. }), _) => {
                format!("{policy} {method}")
            }
            (Some(RuleWish { policy, method: None, .. }), _) => policy.to_string(),
            (None, Asked::Stock(name)) => (*name).to_owned(),
            (None, Asked::Becomes(name) | Asked::Leaves(name)) => name.clone(),
        }
    }
}

/// What the user wants decided value by value.
#[derive(Debug, Clone, Copy)]
pub struct RuleWish {
    /// By what.
    pub policy: Policy,
    /// With which method; `None` for each column's own.
    pub method: Option<MethodChoice>,
    /// Whether new values are to be compressed whenever they can be: the columns are left at storage
    /// `extended`, not `external`.
    pub new_extended: bool,
}

/// What the columns are set to when all is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// The statement.
    pub sql: String,
    /// Whether they are set so now.
    pub is_set: bool,
}

/// A table ready to be swept.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The table.
    pub relation: Relation,
    /// The chosen columns.
    pub targets: Vec<Target>,
    /// Stored generated columns that are computed anew with them.
    pub follow: Vec<Target>,
    /// The names of the columns whose values are stored.
    pub stored_columns: Vec<String>,
    /// What must be set first.
    pub changes: Changes,
    /// By what values are judged where there are toasters besides the stock ones.
    pub plan: Option<Plan>,
    /// The table as the toaster will see it once that is set.
    pub model: Model,
    /// Whether ordinary triggers can be silenced.
    pub replica_role: bool,
    /// The role that batches are run as, if it is not the user.
    pub role: Option<String>,
    /// Whether triggers will fire.
    pub triggers_fire: bool,
    /// What the user should know.
    pub notes: Vec<String>,
    /// What decides value by value.
    pub rule: Option<Rule>,
    /// What the columns are set to in the end, if it is not what the sweep needs.
    pub leave: Option<Leave>,
}

impl Ready {
    /// The name of the toaster that was chosen; `stock` is the choice where there are stock ones only.
    pub fn toaster_name(&self, stock: Toaster) -> String {
        self.plan.as_ref().map_or(stock.name(), |plan| &plan.toaster).to_owned()
    }

    /// With a policy, all that decides what becomes of values, in a line.
    pub fn choice(&self) -> Option<String> {
        let rule = self.rule.as_ref()?;
        let columns: Vec<String> = self
            .targets
            .iter()
            .zip(&rule.methods)
            .map(|(target, method)| format!("{} {method}", quote_identifier(&target.name)))
            .collect();
        Some(format!("{} of {}, target {}", rule.policy, columns.join(", "), self.model.target))
    }
}
