//! Toasters of a server with pluggable TOAST as a choice (pure).
//!
//! [`plan`] determines from catalog rows which settings must be changed and by which [`ToasterRule`] each column's values are
//! judged. The servers do not check the conditions that a toaster's authors state, so they are enforced here.

use strsim::levenshtein;

use super::stock::{Compliance, CompressedSize, by_model};
use crate::disk::custom::DEFAULT_TOASTER;
use crate::disk::{Datum, Oid, Storage, Varlena};
use crate::judge::goal::{Goal, Pluggable};
use crate::judge::toaster::{Changes, Toaster, ToasterChange};
use crate::model::sql::Shape;
use crate::model::toast::Table as Model;
use crate::model::toaster::catalog::ToasterColumn;
use crate::model::toaster::catalog::{Handler, PluggableToaster};
use crate::model::{Form, StoredValue, Toasters};

/// OID of `bytea` in `pg_type`.
const BYTEA: Oid = Oid(17);
/// OID of `jsonb` in `pg_type`.
const JSONB: Oid = Oid(3802);
/// The names that `--toaster` accepts on every server.
const STOCK_NAMES: &str = "pglz, lz4, external, main, extended or plain";

/// The note shown if chunks are not deleted with their values, and what must not be done about it (each was tried).
const LEFT_BEHIND: &str = "servers with pluggable TOAST leave the chunks of replaced values in the TOAST relation: \
                           inspect counts them as values that no row refers to. Only a dump and restore removes them, \
                           which is safe once toastctl check TABLE ends with exit code 0: a dump holds what the \
                           server reads, and it misreads some values. Do not run VACUUM FULL or CLUSTER: such a server \
                           damages nested values of jsonb_toaster when it copies them, and has crashed on reading them";

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The server is a stock server.
    #[error("there is no toaster \"{0}\" on this server\nHINT:  {hint}", hint = stock_hint(.0))]
    NotPluggable(String),
    /// `pg_toaster` has no such row.
    #[error(
        "toaster \"{name}\" does not exist\n\
         HINT:  This database has {known}; every server accepts {STOCK_NAMES}."
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The toasters of the database, as a list for people.
        known: String,
    },
    /// The toaster does not store values of the column's type.
    #[error(
        "{table}: toaster \"{toaster}\" stores values of type {wanted}, and column \"{column}\" is of type \
         {type_name}\n\
         HINT:  The server would accept this setting, but the toaster would misread the values."
    )]
    WrongType {
        /// The table's name, as in reports.
        table: String,
        /// The name of the toaster.
        toaster: String,
        /// The type that the toaster supports.
        wanted: &'static str,
        /// The name of the column.
        column: String,
        /// The name of the column's type.
        type_name: String,
    },
    /// The goal is to leave the default toaster, but values could only go back to the default.
    #[error(
        "toaster \"{0}\" is the default one\n\
         HINT:  Name the toaster whose values should go back to the default."
    )]
    IsDefault(String),
}

/// What may have been meant on a stock server, or what it has.
fn stock_hint(given: &str) -> String {
    let word = given.to_lowercase();
    let names = Toaster::ALL.map(Toaster::name);
    let near = names.into_iter().find(|name| levenshtein(&word, name) <= 1);
    match near {
        Some(near) => format!("Perhaps you meant {near}."),
        None if given.ends_with("toaster") => {
            format!("It does not have pluggable TOAST: --toaster accepts {STOCK_NAMES} here.")
        }
        None => format!("--toaster accepts {STOCK_NAMES} here."),
    }
}

/// The rule by which a column's values are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToasterRule {
    /// They must be stored as by a stock server.
    Stock,
    /// Values with custom pointers must be stored by this toaster.
    Becomes(Oid),
    /// They must not be stored by this toaster; all other values are left.
    Leaves(Oid),
}

/// A chosen column and what its toaster does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnPlan {
    /// Its index from 0, including dropped columns.
    pub index: usize,
    /// How its values are judged.
    pub rule: ToasterRule,
    /// Whether its toaster stores some values with ordinary pointers.
    pub may_keep_pointers: bool,
    /// Its storage once all settings are changed.
    pub storage: Storage,
    /// The expression that makes fresh values, if it was determined for the type.
    pub forcing: Option<Shape>,
}

/// What must be done with a table's columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToasterPlan {
    /// The toaster's name, as in reports.
    pub toaster: String,
    /// The chosen columns, in the order of the table.
    pub columns: Vec<ColumnPlan>,
    /// The settings to change.
    pub changes: Changes,
    /// Whether it is a toaster of stock servers.
    pub stock: bool,
    /// The toaster whose values in dropped columns must be removed, which any update of their row does.
    pub clears: Option<Oid>,
    /// The maximum size of a value, in bytes, that the toaster accepts if it does not fit in its row.
    pub longest: Option<u32>,
    /// Remarks for the user, as sentences.
    pub notes: Vec<String>,
}

/// The conditions stated by a toaster's authors.
#[derive(Default)]
struct Conditions {
    only_type: Option<(Oid, &'static str)>,
    storage: Option<Storage>,
    no_compression: bool,
    longest: Option<u32>,
    note: Option<&'static str>,
}

fn conditions(handler: Handler) -> Conditions {
    let none = Conditions::default();
    match handler {
        Handler::Default => none,
        Handler::Bytea => Conditions {
            only_type: Some((BYTEA, "bytea")),
            storage: Some(Storage::External),
            no_compression: true,
            ..none
        },
        Handler::Jsonb => Conditions {
            only_type: Some((JSONB, "jsonb")),
            note: Some(
                "this toaster itself stores some values with ordinary pointers; each run re-toasts each of them once \
                 to find out",
            ),
            ..none
        },
        Handler::Dummy => Conditions {
            longest: Some(1024),
            note: Some(
                "this toaster rejects values of more than 1024 bytes that do not fit in the row",
            ),
            ..none
        },
        Handler::Unknown => Conditions {
            note: Some("the conditions of this toaster are not known, and were not checked"),
            ..none
        },
    }
}

/// The toaster with this name.
pub fn named<'a>(
    toasters: Option<&'a Toasters>,
    name: &str,
) -> Result<&'a PluggableToaster, PlanError> {
    let Some(toasters) = toasters else { return Err(PlanError::NotPluggable(name.to_owned())) };
    toasters.by_name(name).ok_or_else(|| {
        let known: Vec<&str> = toasters.rows().iter().map(|row| row.name.as_str()).collect();
        PlanError::Unknown { name: name.to_owned(), known: known.join(", ") }
    })
}

/// The toaster with this name, which must not be the default one.
pub fn foreign<'a>(
    toasters: Option<&'a Toasters>,
    name: &str,
) -> Result<&'a PluggableToaster, PlanError> {
    let toaster = named(toasters, name)?;
    if toaster.oid == DEFAULT_TOASTER {
        return Err(PlanError::IsDefault(name.to_owned()));
    }
    Ok(toaster)
}

/// The name of the default toaster.
pub fn default_name(toasters: &Toasters) -> String {
    let row = toasters.rows().iter().find(|row| row.oid == DEFAULT_TOASTER);
    row.map_or(Handler::Default.usual_name(), |row| &row.name).to_owned()
}

/// The plan for `goal`; `columns` are only the chosen columns. `None` if stock rules are sufficient: on a stock server,
/// or on one that has only the default toaster.
pub fn plan(
    toasters: Option<&Toasters>,
    columns: &[&ToasterColumn],
    goal: &Goal,
) -> Result<Option<ToasterPlan>, PlanError> {
    match goal {
        Goal::Stock(_) | Goal::Policy(_) => {
            let Some(toasters) = toasters else { return Ok(None) };
            if toasters.rows().iter().all(|row| row.oid == DEFAULT_TOASTER) {
                return Ok(None);
            }
            Ok(Some(stock(goal.toaster().name(), toasters, columns)))
        }
        Goal::Pluggable(Pluggable::Becomes(name)) => {
            let toaster = named(toasters, name)?;
            becomes(toaster, columns).map(Some)
        }
        Goal::Pluggable(Pluggable::Leaves(name)) => {
            let toaster = foreign(toasters, name)?;
            let default = toasters.map_or_else(String::new, default_name);
            Ok(Some(leaves(toaster.oid, &default, columns)))
        }
    }
}

fn stock(name: &str, toasters: &Toasters, columns: &[&ToasterColumn]) -> ToasterPlan {
    let mut plan = ToasterPlan { stock: true, ..ToasterPlan::new(name) };
    plan.notes.push(LEFT_BEHIND.to_owned());
    let default = default_name(toasters);
    for column in columns {
        plan.set_toaster(column, DEFAULT_TOASTER, &default);
        plan.add(column, ToasterRule::Stock, column.storage);
    }
    plan
}

fn becomes(
    toaster: &PluggableToaster,
    columns: &[&ToasterColumn],
) -> Result<ToasterPlan, PlanError> {
    let mut plan = ToasterPlan::new(&toaster.name);
    plan.notes.push(LEFT_BEHIND.to_owned());
    let needs = conditions(toaster.handler);
    plan.longest = needs.longest;
    let is_default = toaster.oid == DEFAULT_TOASTER;
    for column in columns {
        if let Some((wanted, type_name)) = needs.only_type
            && wanted != column.base_type
        {
            return Err(PlanError::WrongType {
                table: column.table_name(),
                toaster: toaster.name.clone(),
                wanted: type_name,
                column: column.name.clone(),
                type_name: column.type_name.clone(),
            });
        }
        // With storage plain, no toaster is ever called.
        let least = match column.storage {
            Storage::Plain if !is_default => Storage::Extended,
            other => other,
        };
        let storage = needs.storage.unwrap_or(least);
        if storage != column.storage {
            plan.changes.storage.push((column.name.clone(), storage));
        }
        if needs.no_compression && column.compression.is_some() {
            plan.changes.toasters.push(ToasterChange::NoMethod(column.name.clone()));
        }
        plan.set_toaster(column, toaster.oid, &toaster.name);
        let rule = if is_default { ToasterRule::Stock } else { ToasterRule::Becomes(toaster.oid) };
        plan.add(column, rule, storage);
        if let (Some(planned), Handler::Jsonb) = (plan.columns.last_mut(), toaster.handler) {
            planned.may_keep_pointers = true;
        }
    }
    plan.notes.extend(needs.note.map(|note| format!("{}: {note}", toaster.name)));
    Ok(plan)
}

/// The plan that removes a toaster: columns that have it get the default toaster, called `default`.
pub fn leaves(toaster: Oid, default: &str, columns: &[&ToasterColumn]) -> ToasterPlan {
    let mut plan = ToasterPlan { clears: Some(toaster), ..ToasterPlan::new(default) };
    plan.notes.push(LEFT_BEHIND.to_owned());
    for column in columns {
        // A column that now has another toaster keeps it.
        if column.toaster == toaster {
            plan.set_toaster(column, DEFAULT_TOASTER, default);
        }
        plan.add(column, ToasterRule::Leaves(toaster), column.storage);
    }
    plan
}

impl ToasterPlan {
    fn new(toaster: &str) -> ToasterPlan {
        ToasterPlan { toaster: toaster.to_owned(), ..ToasterPlan::default() }
    }

    fn set_toaster(&mut self, column: &ToasterColumn, oid: Oid, name: &str) {
        if column.toaster != oid {
            self.changes
                .toasters
                .push(ToasterChange::Toaster(column.name.clone(), name.to_owned()));
        }
    }

    /// The columns that get another toaster, with the one that they have.
    pub fn taken_from(
        &self,
        toasters: &Toasters,
        columns: &[&ToasterColumn],
    ) -> Vec<(String, PluggableToaster)> {
        let changed = self.changes.toasters.iter().filter_map(|change| {
            let ToasterChange::Toaster(name, _) = change else { return None };
            let column = columns.iter().find(|column| column.name == *name)?;
            let former = toasters.rows().iter().find(|row| row.oid == column.toaster)?;
            Some((name.clone(), former.clone()))
        });
        changed.collect()
    }

    fn add(&mut self, column: &ToasterColumn, rule: ToasterRule, storage: Storage) {
        let forcing = match column.base_type {
            BYTEA => Some(Shape::Bytea),
            JSONB => Some(Shape::Jsonb),
            _ => None,
        };
        self.columns.push(ColumnPlan {
            index: column.index,
            rule,
            may_keep_pointers: false,
            storage,
            forcing,
        });
    }

    /// The plan for the column with this index.
    pub fn column(&self, index: usize) -> Option<&ColumnPlan> {
        self.columns.iter().find(|column| column.index == index)
    }

    /// Whether a dropped column's value must be removed.
    pub fn clears(&self, datum: &Datum<'_>) -> bool {
        let Datum::Varlena(Varlena::Custom(pointer)) = datum else { return false };
        self.clears == Some(pointer.toaster)
    }

    /// Whether a row is stored as planned: like [`by_model`], but pointers of different toasters are distinguished.
    /// `table` has the plan's settings. For an out-of-line value, `known` shows only whether its toaster would leave
    /// the value unchanged (`None`).
    pub fn compliance(
        &self,
        table: &Model,
        follow: &[usize],
        values: &[StoredValue],
        known: &dyn Fn(usize) -> Option<CompressedSize>,
    ) -> Compliance {
        let mut ordinary = Vec::new();
        let mut open = Vec::new();
        for column in &self.columns {
            let Some(value) = values.get(column.index) else { continue };
            let toaster = value.custom.map(|custom| custom.toaster);
            match (column.rule, value.form, toaster) {
                (ToasterRule::Leaves(left), Form::Custom, Some(toaster)) if toaster == left => {
                    return Compliance::Differs;
                }
                (ToasterRule::Stock, Form::Custom, Some(toaster)) if toaster != DEFAULT_TOASTER => {
                    return Compliance::Differs;
                }
                (ToasterRule::Becomes(wanted), Form::Custom, Some(toaster))
                    if toaster != wanted =>
                {
                    return Compliance::Differs;
                }
                (ToasterRule::Becomes(_), Form::External | Form::ExternalCompressed, _) => {
                    match known(column.index) {
                        None if column.may_keep_pointers => open.push(column.index),
                        Some(None) => {}
                        _ => return Compliance::Differs,
                    }
                }
                (ToasterRule::Leaves(_), ..) | (_, Form::Custom | Form::Unknown, _) => {}
                _ => ordinary.push(column.index),
            }
        }
        let rest = if ordinary.is_empty() {
            Compliance::Complies
        } else {
            by_model(table, &ordinary, follow, values, known)
        };
        match rest {
            Compliance::Differs => Compliance::Differs,
            Compliance::Depends(more) => Compliance::Depends([open, more].concat()),
            Compliance::Complies if open.is_empty() => Compliance::Complies,
            Compliance::Complies => Compliance::Depends(open),
        }
    }
}

#[cfg(test)]
mod tests;
