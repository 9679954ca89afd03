//! `keys --format json`.

use serde::Deserialize;
use serde_json::Value;

use super::advise::Extraction;
use super::{Document, Interval, Printed, Source};

#[derive(Clone, Deserialize)]
pub(crate) struct Keys {
    pub(crate) column: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) source: Source,
    pub(crate) sample: Sample,
    pub(crate) documents: Interval,
    pub(crate) raw_bytes: Interval,
    pub(crate) stored_bytes: Interval,
    pub(crate) map: bool,
    pub(crate) different_paths: Value,
    pub(crate) keys: Vec<Printed<Key>>,
    pub(crate) others: Option<Others>,
    pub(crate) container: Container,
    pub(crate) problem_count: u64,
}

impl Document for Keys {
    const SCHEMA: &'static str = "keys";
    const LIST: Option<&'static str> = Some("columns");
}

/// A column with `--extract`.
#[derive(Clone, Deserialize)]
pub(crate) struct Extracted {
    pub(crate) relation: String,
    pub(crate) name: String,
    /// Absent where no keys pay.
    #[serde(default)]
    pub(crate) extraction: Option<Printed<Extraction>>,
}

impl Document for Extracted {
    const SCHEMA: &'static str = "keys";
    const LIST: Option<&'static str> = Some("columns");
}

impl Keys {
    #[track_caller]
    pub(crate) fn key(&self, path: &str) -> &Printed<Key> {
        let found = self.keys.iter().find(|key| key.path == path);
        found.unwrap_or_else(|| panic!("no {path}: {:#?}", self.keys))
    }
}

impl Keys {
    /// What is the same wherever the documents are read from.
    pub(crate) fn whatever_the_source(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let sizes = (self.documents, self.raw_bytes, self.stored_bytes, self.container.clone());
        (sizes, self.different_paths.clone(), self.map)
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Sample {
    pub(crate) complete: bool,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Key {
    pub(crate) path: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) types: Value,
    pub(crate) values: Interval,
    pub(crate) presence: Interval,
    pub(crate) bytes: Value,
    pub(crate) own_bytes: Interval,
    pub(crate) stored_bytes: Interval,
    pub(crate) share: Interval,
    pub(crate) offset: Placed,
    pub(crate) first_chunk: Option<Placed>,
    pub(crate) distinct: Value,
    pub(crate) extracted_bytes: Interval,
    pub(crate) buffers_now: Interval,
    pub(crate) buffers_extracted: Option<Interval>,
    pub(crate) wal_now: Interval,
    pub(crate) wal_extracted: Option<Interval>,
    pub(crate) named_in: Vec<Named>,
}

/// From where to where in its documents.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Placed {
    pub(crate) min: u64,
    pub(crate) mean: Interval,
    pub(crate) max: u64,
}

impl Key {
    /// What is the same wherever the documents are read from.
    pub(crate) fn whatever_the_source(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let documents = (self.path.clone(), self.types.clone(), self.values, self.presence);
        let bytes = (self.bytes.clone(), self.own_bytes, self.stored_bytes, self.share);
        let places = (self.offset.clone(), self.first_chunk.clone());
        (documents, bytes, places, self.distinct.clone(), self.extracted_bytes)
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Named {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Others {
    pub(crate) paths: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Container {
    pub(crate) bytes: Interval,
    pub(crate) stored_bytes: Interval,
    pub(crate) share: Interval,
}
