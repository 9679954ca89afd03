//! What is said about PostgreSQL, measured; what is said in JSON, held against its schema.

use serde_json::Value;

use crate::support::server::Database;

/// Buffers that EXPLAIN counts for a query, once the session knows the relations.
pub(crate) fn buffers(database: &Database<'_>, query: &str) -> f64 {
    let plan = database.psql(&format!(
        "SET max_parallel_workers_per_gather = 0; SET jit = off;
         {query} \\g /dev/null
         EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
    ));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let number = |name: &str| plan[0]["Plan"][name].as_f64().unwrap();
    number("Shared Hit Blocks") + number("Shared Read Blocks")
}

/// A document that has the shape of its schema.
#[track_caller]
pub(crate) fn valid(text: &str, schema: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    let schema: Value = serde_json::from_str(schema).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:?}: {text}");
    document
}
