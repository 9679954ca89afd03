//! The request for a table, and a table prepared for it.

use super::owner::Code;
use super::shapes::Generated;
use crate::retoast::compact::CompactRequest;
use crate::retoast::reindex::Reindex;
use crate::retoast::sql::Target;
use crate::server::{Relation, Server};
use toast_format::disk::Storage;
use toast_format::judge::Judge;
use toast_format::judge::goal::Goal;
use toast_format::judge::toaster::{Changes, Toaster};
use toast_format::model::sql::quote_identifier;
use toast_format::model::toast::Table as Model;

/// The request for columns.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertRequest {
    /// The columns; none for all that can be toasted, or if only dropped columns are to be cleared
    /// ([`Pluggable::Leaves`]).
    pub columns: Vec<String>,
    pub goal: Goal,
    /// `toast_tuple_target`, if it should be set.
    pub target: Option<u32>,
    /// Whether to leave the settings unchanged.
    pub no_alter: bool,
    /// Whether a shard's table of Citus gets the settings too, so that moved shards keep them.
    pub sets_citus_table: bool,
}

impl ConvertRequest {
    /// Whether all columns that can be toasted are converted.
    pub(crate) fn takes_all_columns(&self) -> bool {
        self.columns.is_empty() && !matches!(self.goal, Goal::Pluggable(_))
    }
}

/// A task on one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Task<'a> {
    /// Values of columns are converted.
    Convert(&'a ConvertRequest),
    /// Files are made smaller; values stay as stored.
    Compact(CompactRequest),
    /// Indexes are rebuilt; rows are not touched.
    Reindex(Reindex),
}

impl Task<'_> {
    /// Whether rows are updated.
    pub(crate) fn updates(self) -> bool {
        !matches!(self, Task::Reindex(_))
    }
}

/// The settings of the columns at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalSettings {
    pub changes: Changes,
    /// Whether they are already set.
    pub are_set: bool,
}

/// A table prepared for a task.
#[derive(Debug, Clone)]
pub struct PreparedTable {
    pub relation: Relation,
    /// The columns whose values are re-toasted: the chosen ones, or all that a compaction moves.
    pub targets: Vec<Target>,
    /// The choice for these columns; `None` if values stay as stored.
    pub choice: Option<Choice>,
    /// Whether the server has toasters other than the stock ones.
    pub pluggable: bool,
    /// Whether ordinary triggers can be disabled.
    pub replica_role: bool,
    /// Whose code batches run, and as which role.
    pub code: Code,
    pub generated: Vec<Generated>,
    /// Whether the server recomputes all stored generated columns with each update.
    pub computes_all: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The choice for columns, and what is needed to carry it out.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Stored generated columns that are recomputed with the chosen ones.
    pub follow: Vec<Target>,
    /// The settings to change first.
    pub changes: Changes,
    /// The columns' settings during the sweep.
    pub toaster: Toaster,
    /// What judges the rows.
    pub judge: Judge,
    /// The table as the toaster will see it once the settings are changed.
    pub model: Model,
    /// The columns' settings at the end, if they differ from what the sweep needs.
    pub final_settings: Option<FinalSettings>,
}

impl PreparedTable {
    /// Whether the columns already had the settings of the choice, and no policy says which values are stored otherwise.
    pub(crate) fn was_set_before(&self) -> bool {
        let Some(choice) = &self.choice else { return false };
        !choice.alters() && !choice.is_policy()
    }

    /// Whether an index has entries of values of the chosen columns, or may have: whether they fit depends on the choice.
    pub(crate) fn has_dependent_index(&self) -> bool {
        let Some(choice) = &self.choice else { return false };
        choice.model.indexes.iter().any(|shape| {
            let has_expression = shape.columns.iter().any(|column| column.attnum == 0);
            has_expression || self.targets.iter().any(|target| shape.depends_on(target.index))
        })
    }

    /// The stored generated columns that are recomputed by an UPDATE which sets these columns.
    pub(crate) fn computed_by(&self, set: &[&str]) -> Vec<String> {
        if self.computes_all { self.generated_from(None) } else { self.generated_from(Some(set)) }
    }

    /// The stored generated columns that re-toasting the chosen columns recomputes.
    pub(crate) fn computed(&self) -> Vec<String> {
        self.computed_by(&self.set_columns())
    }

    /// The columns that an UPDATE sets to re-toast the chosen ones.
    pub(crate) fn set_columns(&self) -> Vec<&str> {
        self.targets.iter().map(Target::set_column).collect()
    }

    /// The stored generated columns that depend on one of these columns, or on any column.
    pub(crate) fn generated_from(&self, bases: Option<&[&str]>) -> Vec<String> {
        let attributes = &self.relation.desc.attributes;
        let mut names = Vec::new();
        for column in self.generated.iter().filter(|column| column.stored) {
            let mut read = column.bases.iter().filter_map(|&base| attributes.get(base));
            let is_computed = match bases {
                Some(bases) => read.any(|base| bases.contains(&base.name.as_str())),
                None => true,
            };
            if is_computed && let Some(attribute) = attributes.get(column.index) {
                names.push(attribute.name.clone());
            }
        }
        names
    }

    /// The names of the columns whose values are stored.
    pub(crate) fn stored_columns(&self) -> Vec<String> {
        let mut names = Vec::new();
        for column in &self.relation.desc.attributes {
            if column.is_stored() {
                names.push(column.name.clone());
            }
        }
        names
    }

    /// With a policy, a line with everything that decides what becomes of values.
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

    /// Whether scans see which values are out of line. Pages always show it. From PostgreSQL 17,
    /// `pg_column_toast_chunk_id` shows it for a policy and for storage `plain`, whose verdicts need no more than that.
    pub(crate) fn places_are_seen(&self, pages: bool, server: &Server) -> bool {
        let answers =
            |choice: &Choice| choice.is_policy() || choice.toaster.storage() == Storage::Plain;
        pages || server.has_toast_chunk_id() && self.choice.as_ref().is_some_and(answers)
    }

    /// Whether the choice covers the place of values, in the row or out of line: if the table has a
    /// `toast_tuple_target`, with a policy, or if a column's storage is or was one that keeps values in the row.
    /// Otherwise the server moves the same values out of line as before, and the choice covers only compression.
    pub(crate) fn places_are_chosen(&self, server: &Server) -> bool {
        let Some(choice) = &self.choice else { return false };
        let attributes = &self.relation.desc.attributes;
        let mut columns = self.targets.iter().filter_map(|target| attributes.get(target.index));
        choice.is_policy()
            || choice.changes.target.is_some()
            || self.relation.tuple_target(server.page_size).is_some()
            || keeps_in_row(choice.toaster.storage())
            || columns.any(|column| keeps_in_row(column.storage))
    }
}

fn keeps_in_row(storage: Storage) -> bool {
    matches!(storage, Storage::Main | Storage::Plain)
}

impl Choice {
    /// Whether settings must be changed, now or at the end.
    pub(crate) fn alters(&self) -> bool {
        let last = self.final_settings.as_ref();
        !self.changes.is_empty() || last.is_some_and(|last| !last.are_set)
    }

    fn is_policy(&self) -> bool {
        matches!(self.judge, Judge::Policy(_))
    }
}

/// The note shown if scans do not see which values are out of line.
pub(crate) const PLACES_NOT_SEEN: &str = "without pages, no row is re-toasted only because a value should be in the row \
                                          or out of line (a superuser with pageinspect sees that)";
