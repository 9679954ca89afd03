//! The types whose values are taken apart (pure): documents by key, arrays by element, composite values by
//! attribute.

use std::borrow::Cow;
use std::sync::Arc;

use crate::disk::desc::Attribute;
use crate::disk::element_parts::{Field, Shape, walk_array, walk_row};
use crate::disk::element_text;
use crate::disk::hstore_parts::{self, hstore};
use crate::disk::jsonb_of_text::jsonb;
use crate::disk::jsonb_parts::Visit;
use crate::disk::{ByteOrder, Oid, json_parts, jsonb_parts, types};

/// A type whose values have parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Language {
    Jsonb,
    /// Its text.
    Json,
    /// Of the extension `hstore`, whose OID differs from database to database.
    Hstore,
    /// An array, by the type of its elements.
    Array(Shape),
    /// A composite type.
    Row(Arc<[Field]>),
}

/// The types whose columns are taken apart unless others are named.
pub(super) const TYPES: &str = "jsonb, json or hstore";

impl Language {
    /// That of a column, if its documents have keys that are known here.
    pub(super) fn of(column: &Attribute) -> Option<Language> {
        let name = column.type_name.as_str();
        let is_hstore = name == "hstore" || name.ends_with(".hstore");
        Language::built_in(column.type_oid)
            .or(is_hstore.then_some(Language::Hstore))
            .or_else(|| array(name))
    }

    /// That of a type of documents that comes with the server.
    pub(super) fn built_in(type_oid: Oid) -> Option<Language> {
        match type_oid {
            types::JSONB => Some(Language::Jsonb),
            Oid(114) => Some(Language::Json),
            _ => None,
        }
    }

    /// Whether its values are documents, whose keys are not fixed by the type.
    pub(super) fn is_document(&self) -> bool {
        matches!(self, Language::Jsonb | Language::Json | Language::Hstore)
    }

    /// Gives the parts of a document down to `depth` levels; the bytes that are none's.
    ///
    /// # Errors
    /// Where and how the document is damaged.
    pub(super) fn walk<V: Visit>(
        &self,
        (content, order): (&[u8], ByteOrder),
        depth: u8,
        document: V::At,
        visit: &mut V,
    ) -> Result<u64, String> {
        match self {
            Language::Jsonb => jsonb_parts::walk(content, order, depth, document, visit)
                .map_err(|error| error.to_string()),
            Language::Json => {
                json_parts::walk(content, depth, document, visit).map_err(|error| error.to_string())
            }
            Language::Hstore => hstore_parts::walk(content, order, document, visit)
                .map_err(|error| error.to_string()),
            Language::Array(shape) => walk_array(content, order, *shape, document, visit)
                .map_err(|error| error.to_string()),
            Language::Row(fields) => {
                walk_row(content, order, fields, document, visit).map_err(|error| error.to_string())
            }
        }
    }

    /// What is stored, little-endian, of the document that the server prints so.
    ///
    /// # Errors
    /// Where no server prints that.
    pub(super) fn stored<'t>(&self, text: &'t [u8]) -> Result<Cow<'t, [u8]>, String> {
        match self {
            Language::Jsonb => jsonb(text).map(Cow::Owned).map_err(|error| error.to_string()),
            Language::Json => Ok(Cow::Borrowed(text)),
            Language::Hstore => hstore(text).map(Cow::Owned).map_err(|error| error.to_string()),
            Language::Array(shape) => {
                element_text::array(text, *shape).map(Cow::Owned).map_err(|error| error.to_string())
            }
            Language::Row(fields) => {
                element_text::row(text, fields).map(Cow::Owned).map_err(|error| error.to_string())
            }
        }
    }
}

/// Arrays of built-in types, as SQL or `pg_type` names them.
fn array(type_name: &str) -> Option<Language> {
    let name = type_name.strip_prefix("pg_catalog.").unwrap_or(type_name);
    let element = match name.strip_suffix(']') {
        Some(rest) => rest.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('[')?,
        None => name.strip_prefix('_')?,
    };
    let types::TypeLayout { oid, length, align, .. } = types::by_name(element)?;
    // of an array of arrays no more is said
    (element.find('[').is_none()).then_some(Language::Array(Shape { type_oid: oid, length, align }))
}
