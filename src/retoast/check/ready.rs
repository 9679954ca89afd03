//! What is to be done to a table, and a table that is ready to be swept.

use crate::model::toast::Table as Model;
use crate::retoast::goal::Goal;
use crate::retoast::goal::toaster::{Changes, Toaster};
use crate::retoast::judge::Judge;
use crate::retoast::sql::Target;
use crate::server::catalog::Relation;
use crate::server::sql::quote_identifier;

/// What is to be done to each table.
#[derive(Debug, Clone)]
pub struct TableRequest {
    /// The columns; none where only dropped ones are to be cleared ([`Pluggable::Leaves`]).
    ///
    /// [`Pluggable::Leaves`]: crate::retoast::goal::Pluggable::Leaves
    pub columns: Vec<String>,
    /// What is wanted of them.
    pub goal: Goal,
    /// `toast_tuple_target`, if it is to be set.
    pub target: Option<u32>,
    /// Whether rows are to be updated; else indexes alone are rebuilt.
    pub updates: bool,
    /// Leave the settings as they are.
    pub no_alter: bool,
    /// Go on although triggers will fire.
    pub allow_triggers: bool,
    /// Go on although row security hides rows.
    pub allow_row_security: bool,
    /// Run code of the table's owner with the user's rights.
    pub trust_owner_code: bool,
}

impl TableRequest {
    /// The same with all values kept as they are by then.
    pub(crate) fn keeping(&self) -> TableRequest {
        TableRequest { columns: Vec::new(), goal: Goal::Keep, target: None, ..self.clone() }
    }

    /// The same with rows as they are too.
    pub(crate) fn leaving_rows(&self) -> TableRequest {
        TableRequest { updates: false, ..self.keeping() }
    }
}

/// What the columns are set to when all is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalSettings {
    /// The statement.
    pub sql: String,
    /// Whether they are set so now.
    pub are_set: bool,
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
    /// What the columns are set to while the sweep runs.
    pub toaster: Toaster,
    /// What judges the rows.
    pub judge: Judge,
    /// Whether the server has toasters besides the stock ones.
    pub pluggable: bool,
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
    /// What the user should know of pluggable toasters.
    pub toaster_notes: Vec<String>,
    /// What the columns are set to in the end, if it is not what the sweep needs.
    pub final_settings: Option<FinalSettings>,
}

impl Ready {
    /// With a policy, all that decides what becomes of values, in a line.
    pub fn choice(&self) -> Option<String> {
        let Judge::Policy(rule) = &self.judge else { return None };
        let columns: Vec<String> = self
            .targets
            .iter()
            .zip(&rule.methods)
            .map(|(target, method)| format!("{} {method}", quote_identifier(&target.name)))
            .collect();
        Some(format!("{} of {}, target {}", rule.policy, columns.join(", "), self.model.target))
    }
}
