//! What is to be done to a table, and a table that is ready to be swept.

use super::owner::Code;
use super::shapes::Generated;
use crate::disk::desc::Storage;
use crate::judge::Judge;
use crate::judge::goal::Goal;
use crate::judge::toaster::{Changes, Toaster};
use crate::model::sql::quote_identifier;
use crate::model::toast::Table as Model;
use crate::retoast::sql::Target;
use crate::server::about::Server;
use crate::server::catalog::Relation;

/// What is to be done to each table.
#[derive(Debug, Clone)]
pub struct TableRequest {
    /// The columns; none where only dropped ones are to be cleared ([`Pluggable::Leaves`]).
    ///
    /// [`Pluggable::Leaves`]: crate::judge::goal::Pluggable::Leaves
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
pub struct PreparedTable {
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
    /// Whose code batches run, and as whom.
    pub code: Code,
    /// The generated columns.
    pub generated: Vec<Generated>,
    /// Whether the server computes all stored generated columns anew with each update.
    pub computes_all: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// What the user should know of pluggable toasters.
    pub toaster_notes: Vec<String>,
    /// What the columns are set to in the end, if it is not what the sweep needs.
    pub final_settings: Option<FinalSettings>,
}

impl PreparedTable {
    /// The stored generated columns that an UPDATE computes anew which sets these columns.
    pub(crate) fn computed_by(&self, set: &[&str]) -> Vec<String> {
        if self.computes_all { self.generated_from(None) } else { self.generated_from(Some(set)) }
    }

    /// Those that storing the chosen columns anew computes.
    pub(crate) fn computed(&self) -> Vec<String> {
        self.computed_by(&self.set_columns())
    }

    /// The columns that storing the chosen ones anew sets.
    pub(crate) fn set_columns(&self) -> Vec<&str> {
        self.targets.iter().map(Target::set_column).collect()
    }

    /// The stored generated columns that are made of one of these columns, or of whatever.
    pub(crate) fn generated_from(&self, bases: Option<&[&str]>) -> Vec<String> {
        let name = |index: usize| self.relation.desc.attributes.get(index).map(|a| a.name.as_str());
        let is_base = |base: &usize| match bases {
            Some(bases) => name(*base).is_some_and(|name| bases.contains(&name)),
            None => true,
        };
        let stored = self.generated.iter().filter(|column| column.stored);
        let computed = stored.filter(|column| bases.is_none() || column.bases.iter().any(is_base));
        computed.filter_map(|column| Some(name(column.index)?.to_owned())).collect()
    }

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

/// What is said where they do not.
pub(crate) const PLACES_NOT_SEEN: &str = "without pages the place of values, in the row or out of line, is not compared \
     with the choice, and nothing is moved for its place alone; a superuser with the extension \
     pageinspect sees it";

/// Whether scans see it: on pages always; `pg_column_toast_chunk_id`, from PostgreSQL 17 on, tells it to a policy
/// and to storage `plain`, whose verdicts need no more than that.
pub(crate) fn places_are_seen(ready: &PreparedTable, pages: bool, server: &Server) -> bool {
    pages || server.has_toast_chunk_id() && answers(ready)
}

fn answers(ready: &PreparedTable) -> bool {
    matches!(ready.judge, Judge::Policy(_)) || ready.toaster.storage() == Storage::Plain
}

/// Whether the place is part of the choice: with a `toast_tuple_target` of the table's own, a policy, or where a
/// column's storage is or was one that keeps values in the row. Else the server moves out of line what it always
/// has, and a choice is about compression alone.
pub(crate) fn places_are_chosen(ready: &PreparedTable, server: &Server) -> bool {
    let in_row = |storage| matches!(storage, Storage::Main | Storage::Plain);
    let was = |index: usize| ready.relation.desc.attributes.get(index).map(|column| column.storage);
    matches!(ready.judge, Judge::Policy(_))
        || ready.changes.target.is_some()
        || ready.relation.tuple_target(server.page_size).is_some()
        || in_row(ready.toaster.storage())
        || ready.targets.iter().any(|target| was(target.index).is_some_and(in_row))
}
