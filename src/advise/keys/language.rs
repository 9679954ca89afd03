//! The types whose documents have keys, and their parts (pure).

use std::borrow::Cow;

use crate::disk::desc::Attribute;
use crate::disk::hstore_parts::{self, hstore};
use crate::disk::jsonb_of_text::jsonb;
use crate::disk::jsonb_parts::Visit;
use crate::disk::{ByteOrder, json_parts, jsonb_parts};

/// A type of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Jsonb,
    /// Its text.
    Json,
    /// Of the extension `hstore`, whose OID differs from database to database.
    Hstore,
}

/// The types, as messages name them.
pub(in crate::advise) const TYPES: &str = "jsonb, json or hstore";

impl Language {
    /// That of a column, if its documents have keys that are known here.
    pub(super) fn of(column: &Attribute) -> Option<Language> {
        match column.type_oid.0 {
            3802 => Some(Language::Jsonb),
            114 => Some(Language::Json),
            _ if column.type_name == "hstore" || column.type_name.ends_with(".hstore") => {
                Some(Language::Hstore)
            }
            _ => None,
        }
    }

    /// Gives the parts of a document down to `depth` levels; the bytes that are none's.
    ///
    /// # Errors
    /// Where and how the document is damaged.
    pub(super) fn walk<V: Visit>(
        self,
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
        }
    }

    /// What is stored, little-endian, of the document that the server prints so.
    ///
    /// # Errors
    /// Where no server prints that.
    pub(super) fn stored(self, text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Language::Jsonb => jsonb(text).map(Cow::Owned).map_err(|error| error.to_string()),
            Language::Json => Ok(Cow::Borrowed(text)),
            Language::Hstore => hstore(text).map(Cow::Owned).map_err(|error| error.to_string()),
        }
    }
}
