//! Findings of `inspect`, and what their commands do.

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::server::{Database, with_pageinspect};

pub(crate) const NOISE: &str = "
    CREATE FUNCTION noise(seed int, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
        $$SELECT left(string_agg(md5(seed || '/' || i), ''), length) FROM generate_series(0, length / 32) AS i$$;";

pub(crate) fn prepared(prefix: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    database.psql(NOISE);
    database
}

pub(crate) fn inspect(database: &Database<'_>, more: &[&str]) -> Run {
    let run = run(toastctl().args(["inspect", "-d", &database.url()]).args(more));
    database.rests();
    run
}

pub(crate) fn relation(database: &Database<'_>, more: &[&str]) -> Value {
    let run = inspect(database, &[&["--format", "json"], more].concat());
    // advice does not change the exit code
    let report: Value = serde_json::from_str(&run.ok()).unwrap();
    report["relations"][0].clone()
}

pub(crate) fn findings(database: &Database<'_>, table: &str) -> Vec<Value> {
    relation(database, &[table])["findings"].as_array().unwrap().clone()
}

pub(crate) fn codes(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// Runs what was printed: SQL, or a command of a shell.
#[track_caller]
pub(crate) fn act(database: &Database<'_>, command: &str) {
    if command.ends_with(';') {
        database.psql(command);
        return;
    }
    let script = format!("set -- {command}; shift; printf '%s\\0' \"$@\"");
    let words = run(std::process::Command::new("sh").args(["-c", &script])).ok();
    let words: Vec<&str> = words.split_terminator('\0').collect();
    run(toastctl().args(&words).args(["-d", &database.url()])).ok();
    database.rests();
}

/// The table has this finding alone, and none after the command was run. Gives the finding.
#[track_caller]
pub(crate) fn mended(database: &Database<'_>, table: &str, code: &str) -> Value {
    let found = findings(database, table);
    assert_eq!(codes(&found), [code], "{found:#?}");
    let finding = found[0].clone();
    assert!(finding["low"].as_u64() <= finding["value"].as_u64(), "{finding}");
    assert!(finding["value"].as_u64() <= finding["high"].as_u64(), "{finding}");
    act(database, finding["command"].as_str().unwrap());
    let left = findings(database, table);
    assert!(!codes(&left).contains(&code), "{left:#?}");
    finding
}

#[track_caller]
pub(crate) fn clean(database: &Database<'_>, table: &str) {
    let found = findings(database, table);
    assert!(found.is_empty(), "{found:#?}");
}
