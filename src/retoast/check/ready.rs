//! What is to be done to a table, and a table that is ready to be swept.

use super::owner::Code;
use super::shapes::Generated;
use crate::disk::desc::Storage;
use crate::judge::Judge;
use crate::judge::goal::Goal;
use crate::judge::toaster::{Changes, Toaster};
use crate::model::sql::quote_identifier;
use crate::model::toast::Table as Model;
use crate::retoast::compact::CompactRequest;
use crate::retoast::reindex::Reindex;
use crate::retoast::sql::Target;
use crate::server::about::Server;
use crate::server::catalog::Relation;

/// What is wanted of columns.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertRequest {
    /// The columns; none where only dropped ones are to be cleared ([`Pluggable::Leaves`]).
    ///
    /// [`Pluggable::Leaves`]: crate::judge::goal::Pluggable::Leaves
    pub columns: Vec<String>,
    pub goal: Goal,
    /// `toast_tuple_target`, if it is to be set.
    pub target: Option<u32>,
    /// Leave the settings as they are.
    pub no_alter: bool,
}

/// A task on one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Task<'a> {
    /// Columns are brought to what is wanted of them.
    Convert(&'a ConvertRequest),
    /// Files get shorter; values stay as they are.
    Compact(CompactRequest),
    /// Indexes are rebuilt; rows stay as they are.
    Reindex(Reindex),
}

impl Task<'_> {
    /// Whether rows are updated.
    pub(crate) fn updates(self) -> bool {
        !matches!(self, Task::Reindex(_))
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

/// A table ready to be worked on.
#[derive(Debug, Clone)]
pub struct PreparedTable {
    /// The table.
    pub relation: Relation,
    /// The columns whose values are stored anew: those chosen, or all that a compaction moves.
    pub targets: Vec<Target>,
    /// What was chosen for them, and what that takes; `None` where values stay as they are.
    pub choice: Option<Choice>,
    /// Whether the server has toasters besides the stock ones.
    pub pluggable: bool,
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
}

/// What was chosen for columns, and what that takes.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Stored generated columns that are computed anew with the chosen ones.
    pub follow: Vec<Target>,
    /// The names of the columns whose values are stored.
    pub stored_columns: Vec<String>,
    /// What must be set first.
    pub changes: Changes,
    /// What the columns are set to while the sweep runs.
    pub toaster: Toaster,
    /// What judges the rows.
    pub judge: Judge,
    /// The table as the toaster will see it once that is set.
    pub model: Model,
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
    pub fn policy_choice(&self) -> Option<String> {
        let Choice { judge: Judge::Policy(rule), model, .. } = self.choice.as_ref()? else {
            return None;
        };
        let columns: Vec<String> = self
            .targets
            .iter()
            .zip(&rule.methods)
            .map(|(target, method)| format!("{} {method}", quote_identifier(&target.name)))
            .collect();
        Some(format!("{} of {}, target {}", rule.policy, columns.join(", "), model.target))
    }

    /// Whether scans see which values are out of line: on pages always; `pg_column_toast_chunk_id`, from PostgreSQL 17 on,
    /// tells it to a policy and to storage `plain`, whose verdicts need no more than that.
    pub(crate) fn places_are_seen(&self, pages: bool, server: &Server) -> bool {
        let answers =
            |choice: &Choice| choice.is_policy() || choice.toaster.storage() == Storage::Plain;
        pages || server.has_toast_chunk_id() && self.choice.as_ref().is_some_and(answers)
    }

    /// Whether the place is part of the choice: with a `toast_tuple_target` of the table's own, a policy, or where a
    /// column's storage is or was one that keeps values in the row. Else the server moves out of line what it always
    /// has, and a choice is about compression alone.
    pub(crate) fn places_are_chosen(&self, server: &Server) -> bool {
        let Some(choice) = &self.choice else { return false };
        let in_row = |storage| matches!(storage, Storage::Main | Storage::Plain);
        let was =
            |index: usize| self.relation.desc.attributes.get(index).map(|column| column.storage);
        choice.is_policy()
            || choice.changes.target.is_some()
            || self.relation.tuple_target(server.page_size).is_some()
            || in_row(choice.toaster.storage())
            || self.targets.iter().any(|target| was(target.index).is_some_and(in_row))
    }
}

impl Choice {
    fn is_policy(&self) -> bool {
        matches!(self.judge, Judge::Policy(_))
    }
}

/// What is said where scans do not see which values are out of line.
pub(crate) const PLACES_NOT_SEEN: &str = "without pages, toastctl does not check whether values are in the row or out \
                                          of line as requested, and re-toasts no row only for that; a superuser with \
                                          the extension pageinspect can check it";
