//! Which columns are taken apart (pure).

use super::language::{Language, TYPES};
use crate::advise::variant::ColumnError;
use crate::disk::desc::TupleDesc;
use crate::server::catalog::Relation;

/// OIDs of types that come with the server are below (`FirstNormalObjectId`).
const FIRST_OF_USERS: u32 = 16_384;

/// That of each column, as far as its own type says it.
pub(super) fn languages(desc: &TupleDesc) -> Vec<Option<Language>> {
    let of = |column| Language::of(column).filter(|_| !column.dropped);
    desc.attributes.iter().map(of).collect()
}

/// The named columns, or all with documents.
///
/// # Errors
/// Where a named one is of another type, or there is none.
pub(super) fn chosen(
    relation: &str,
    desc: &TupleDesc,
    languages: &[Option<Language>],
    names: &[String],
) -> Result<Vec<(usize, Language)>, ColumnError> {
    let columns = || desc.attributes.iter().enumerate().filter(|(_, column)| !column.dropped);
    let language = |index: usize| languages.get(index).cloned().flatten();
    let with = |(index, _)| Some((index, language(index)?));
    if names.is_empty() {
        let all: Vec<_> =
            columns().filter_map(with).filter(|(_, language)| language.is_document()).collect();
        return match all[..] {
            [] => Err(ColumnError::NoDocuments { relation: relation.to_owned() }),
            _ => Ok(all),
        };
    }
    let allowed = || {
        let known = columns().filter(|&(index, _)| language(index).is_some());
        let names: Vec<&str> = known.map(|(_, column)| column.name.as_str()).collect();
        match names[..] {
            [] => format!("It has no column of type {TYPES}, of an array or composite type."),
            _ => format!("Columns that can be taken apart: {}.", names.join(", ")),
        }
    };
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let (relation, column) = (relation.to_owned(), name.clone());
        let Some((index, attribute)) = columns().find(|(_, column)| column.name == *name) else {
            return Err(ColumnError::Unknown { column, relation, allowed: allowed() });
        };
        let Some(language) = language(index) else {
            let type_name = attribute.type_name.clone();
            return Err(ColumnError::NotDocuments {
                column,
                relation,
                type_name,
                allowed: allowed(),
            });
        };
        found.push((index, language));
    }
    Ok(found)
}

/// The named columns of a relation that only a pattern means, if they fit, as far as that can be said before the
/// catalog is asked for composite types and domains; why they do not.
pub(super) fn fitting_columns(
    relation: &Relation,
    names: &[String],
) -> Result<Vec<String>, String> {
    let desc = &relation.desc;
    let mut languages = languages(desc);
    for (column, language) in desc.attributes.iter().zip(&mut languages) {
        if names.contains(&column.name) && column.type_oid.0 >= FIRST_OF_USERS {
            language.get_or_insert(Language::Json);
        }
    }
    chosen(&relation.display_name(), desc, &languages, names)
        .map(|_| names.to_vec())
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}
