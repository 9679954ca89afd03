//! What `toastctl` prints as JSON, as somebody reads it who knows the documentation and not the code: the fields that
//! tests look at, each of them named once.

pub(crate) mod advise;
pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod overview;
pub(crate) mod retoast;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::Value;
pub(crate) use toast_format::model::interval::Range;
pub(crate) use toastctl::inspect::result::Source;
use toastctl::report::schema::schema;

use crate::support::command::Run;

/// A part of a report: read as `T`, and shown and compared as it was printed.
#[derive(Clone)]
pub(crate) struct Printed<T> {
    read: T,
    json: Value,
}

impl<T> Printed<T> {
    /// As it was printed.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }
}

impl<T: DeserializeOwned> Printed<T> {
    #[track_caller]
    pub(crate) fn read(text: &str) -> Printed<T> {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Printed<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let read = T::deserialize(&joined(&json))
            .map_err(|error| D::Error::custom(format!("{error}: {json}")))?;
        Ok(Printed { read, json })
    }
}

impl<T> Deref for Printed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.read
    }
}

impl<T> fmt::Display for Printed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

impl<T> fmt::Debug for Printed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> PartialEq for Printed<T> {
    fn eq(&self, other: &Printed<T>) -> bool {
        self.json == other.json
    }
}

/// An entry with the fields of its optional parts beside its own, as tests read them.
fn joined(entry: &Value) -> Value {
    let mut joined = entry.clone();
    for part in ["details", "explanation"] {
        if let (Some(Value::Object(part)), Some(whole)) = (entry.get(part), joined.as_object_mut())
        {
            whole.extend(part.clone());
        }
    }
    joined
}

/// What has a documented shape.
pub(crate) trait Document: DeserializeOwned {
    /// The name by which `toastctl help json` prints the schema.
    const SCHEMA: &'static str;
    /// The list of a document of which this is an entry; `None` for a document.
    const LIST: Option<&'static str> = None;
}

/// The schema of documents, or of the entries of a list of theirs.
fn shape(schema_name: &str, list: Option<&str>) -> Value {
    let mut schema: Value = serde_json::from_str(schema(schema_name).unwrap()).unwrap();
    if let Some(list) = list {
        let items = schema["properties"][list]["items"].take();
        let definitions = schema["$defs"].take();
        schema = serde_json::json!({ "$defs": definitions, "allOf": [items] });
    }
    schema
}

/// Whether a document, or an entry of one, has the shape of its schema; if not, what differs.
fn differences<T: Document>(document: &Value, list: Option<&'static str>) -> Vec<String> {
    type Shape = (&'static str, Option<&'static str>);
    static VALIDATORS: OnceLock<Mutex<HashMap<Shape, Arc<Validator>>>> = OnceLock::new();
    let validator = {
        let mut known = VALIDATORS.get_or_init(Mutex::default).lock().unwrap();
        let make = || Arc::new(jsonschema::validator_for(&shape(T::SCHEMA, list)).unwrap());
        Arc::clone(known.entry((T::SCHEMA, list)).or_insert_with(make))
    };
    let told =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(document).map(told).collect()
}

impl Run {
    /// A run that must have ended with this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        self
    }

    /// The report on the standard output, or its only entry, which has its documented shape, whatever the exit code.
    #[track_caller]
    pub(crate) fn report<T: Document>(&self) -> Printed<T> {
        let mut entries = self.entries::<T>();
        assert_eq!(entries.len(), 1, "not one entry: {self:?}");
        entries.remove(0)
    }

    /// The entries of the report on the standard output, which has its documented shape.
    #[track_caller]
    pub(crate) fn entries<T: Document>(&self) -> Vec<Printed<T>> {
        let document: Result<Value, _> = serde_json::from_str(&self.stdout);
        let document = document.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let differences = differences::<T>(&document, None);
        assert!(differences.is_empty(), "{differences:#?}: {self:?}");
        let entries = match T::LIST {
            Some(list) => document[list].as_array().unwrap().clone(),
            None => vec![document],
        };
        entries.into_iter().map(|entry| serde_json::from_value(entry).unwrap()).collect()
    }

    /// The entries on the standard output, one a line, which have their documented shape.
    #[track_caller]
    pub(crate) fn documents<T: Document>(&self) -> Vec<Printed<T>> {
        let documents = self.lines::<T>();
        for document in &documents {
            let mut entry = document.json.clone();
            entry.as_object_mut().unwrap().remove("schema").unwrap();
            let differences = differences::<T>(&entry, T::LIST);
            assert!(differences.is_empty(), "{differences:#?}: {document}");
        }
        documents
    }

    /// The lines on the standard output.
    #[track_caller]
    pub(crate) fn lines<T: DeserializeOwned>(&self) -> Vec<Printed<T>> {
        self.stdout.lines().map(Printed::read).collect()
    }
}

/// What stands in every report.
#[derive(Clone, Deserialize)]
pub(crate) struct About {
    pub(crate) schema: String,
}

/// A figure with its interval of confidence.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Interval {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    pub(crate) fn contains(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", self.estimate, self.low, self.high)
    }
}
