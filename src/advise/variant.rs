//! The column under advice, its present settings and the tables under each candidate.

use super::candidate::{self, Abilities, CandidateError, Narrowing};
use super::tally::Variant;
use crate::codec::Method;
use crate::disk::desc::{Length, Storage};
use crate::model::policy::{MethodChoice, Policy};
use crate::model::settings::Settings;
use crate::model::toast::Table;
use crate::server::about::Compression;
use crate::server::catalog::{Relation, is_toastable};

/// Why a column cannot be advised on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// No such column.
    #[error("column \"{column}\" of relation \"{relation}\" does not exist\nHINT:  {allowed}")]
    Unknown {
        /// What was given.
        column: String,
        relation: String,
        /// Which columns there are to choose from.
        allowed: String,
    },
    /// Values of fixed length.
    #[error(
        "column \"{column}\" of relation \"{relation}\" has type {type_name}, whose values have a \
         fixed length and are never toasted\nHINT:  {allowed}"
    )]
    FixedLength {
        column: String,
        relation: String,
        type_name: String,
        /// Which columns there are to choose from.
        allowed: String,
    },
    /// A type that cannot be toasted.
    #[error(
        "column \"{column}\" of relation \"{relation}\" has type {type_name}, which has no storage \
         but plain\nHINT:  {allowed}"
    )]
    PlainType {
        column: String,
        relation: String,
        type_name: String,
        /// Which columns there are to choose from.
        allowed: String,
    },
    /// Not of a type that has keys.
    #[error(
        "column \"{column}\" of relation \"{relation}\" has type {type_name}: it has no keys, elements or attributes that are known\n\
         HINT:  {allowed}"
    )]
    NotDocuments {
        column: String,
        relation: String,
        type_name: String,
        /// Which columns there are to choose from.
        allowed: String,
    },
    /// No column of such types.
    #[error("relation \"{relation}\" has no column of type jsonb, json or hstore")]
    NoDocuments { relation: String },
    /// No column at all.
    #[error("relation \"{relation}\" has no column that can be toasted")]
    NoColumns { relation: String },
}

/// All columns whose storage can be chosen; at least one.
pub fn toastable_columns(relation: &Relation) -> Result<Vec<usize>, ColumnError> {
    let found: Vec<usize> = relation.toastable().collect();
    if found.is_empty() {
        return Err(ColumnError::NoColumns { relation: relation.display_name() });
    }
    Ok(found)
}

/// The indexes of the named columns, each once.
pub fn named_columns(relation: &Relation, names: &[String]) -> Result<Vec<usize>, ColumnError> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let column = relation
            .desc
            .attributes
            .iter()
            .enumerate()
            .find(|(_, column)| !column.dropped && column.name == *name);
        let (column_name, relation_name) = (name.clone(), relation.display_name());
        let Some((index, column)) = column else {
            return Err(ColumnError::Unknown {
                column: column_name,
                relation: relation_name,
                allowed: relation.toastable_hint(),
            });
        };
        let type_name = column.type_name.clone();
        if column.length != Length::Varlena {
            return Err(ColumnError::FixedLength {
                column: column_name,
                relation: relation_name,
                type_name,
                allowed: relation.toastable_hint(),
            });
        }
        if !is_toastable(column) {
            return Err(ColumnError::PlainType {
                column: column_name,
                relation: relation_name,
                type_name,
                allowed: relation.toastable_hint(),
            });
        }
        if !found.contains(&index) {
            found.push(index);
        }
    }
    Ok(found)
}

/// Of these columns (none: of all) those of a relation that can be advised on; why there are none. For
/// relations that only a pattern or a parent means.
pub(super) fn fitting_columns(
    relation: &Relation,
    names: &[String],
) -> Result<Vec<String>, String> {
    if names.is_empty() {
        let found = toastable_columns(relation);
        return found.map(|_| Vec::new()).map_err(|error| error.to_string());
    }
    let mut why = None;
    let mut fitting = Vec::new();
    for name in names {
        match named_columns(relation, std::slice::from_ref(name)) {
            Ok(_) => fitting.push(name.clone()),
            Err(error) => why = why.or(Some(error)),
        }
    }
    match why {
        Some(error) if fitting.is_empty() => {
            Err(error.to_string().lines().next().unwrap_or_default().to_owned())
        }
        _ => Ok(fitting),
    }
}

/// A column and everything that is compared for it.
#[derive(Debug, Clone)]
pub struct Variants {
    /// Its index from 0.
    pub column: usize,
    pub name: String,
    /// Its type's name.
    pub type_name: String,
    /// Its settings now.
    pub present: Settings,
    /// As stored now, then what the present settings would store, then the candidates.
    pub all: Vec<Variant>,
    /// The methods with which the column's values must be compressed for that.
    pub methods: Vec<Method>,
}

/// Index in [`Variants::all`] of the values as stored now.
pub const TODAY: usize = 0;
/// Index in [`Variants::all`] of the present settings.
pub const PRESENT: usize = 1;

impl Variants {
    /// For one column of a relation.
    pub fn new(
        relation: &Relation,
        column: usize,
        narrowing: &Narrowing,
        abilities: Abilities,
    ) -> Result<Variants, CandidateError> {
        let Abilities { page, compression: Compression { default, .. } } = abilities;
        let stored = relation.table(default, page);
        let own = relation.desc.attributes.get(column);
        let storage = own.map_or(Storage::Extended, |a| a.storage);
        let method = own.and_then(|a| a.compression).unwrap_or(default);
        let present = Settings {
            storage,
            method: MethodChoice::One(method),
            target: stored.target,
            policy: Policy::Always,
        };
        let table = |settings: &Settings| {
            let mut table = Table { target: settings.target, ..stored.clone() };
            if let Some(own) = table.columns.get_mut(column) {
                *own = own.with(settings);
            }
            // ALTER TABLE makes one where a column may need it.
            table.has_toast_relation |= settings.storage != Storage::Plain;
            table
        };
        let mut all = vec![
            Variant { column, reads: vec![column], settings: None, table: table(&present) },
            Variant {
                column,
                reads: vec![column],
                settings: Some(present),
                table: table(&present),
            },
        ];
        let wanted = candidate::candidates(present, narrowing, abilities)?;
        all.extend(wanted.iter().map(|settings| Variant {
            column,
            reads: vec![column],
            settings: Some(*settings),
            table: table(settings),
        }));
        let methods = unique(
            all.iter()
                .filter_map(|v| v.settings)
                .filter(|s| matches!(s.storage, Storage::Extended | Storage::Main))
                .filter(|s| s.policy != Policy::Never)
                .flat_map(|s| s.method.methods())
                .copied(),
        );
        Ok(Variants {
            column,
            name: own.map(|a| a.name.clone()).unwrap_or_default(),
            type_name: own.map(|a| a.type_name.clone()).unwrap_or_default(),
            present,
            all,
            methods,
        })
    }
}

/// Every method of a list once.
fn unique(methods: impl IntoIterator<Item = Method>) -> Vec<Method> {
    let mut out = Vec::new();
    for method in methods {
        if !out.contains(&method) {
            out.push(method);
        }
    }
    out
}
