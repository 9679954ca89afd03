//! Findings of `inspect`, and what their commands do.

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::advise::Report;
use crate::support::reports::inspect::{Finding, Relation};
use crate::support::server::{Database, with_pageinspect};
use crate::support::verbs::{inspect, relation};

pub(crate) const NOISE: &str = "
    CREATE FUNCTION noise(seed int, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
        $$SELECT left(string_agg(md5(seed || '/' || i), ''), length) FROM generate_series(0, length / 32) AS i$$;";

pub(crate) fn prepared(prefix: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    database.psql(NOISE);
    database
}

pub(crate) fn findings(database: &Database<'_>, table: &str) -> Vec<Printed<Finding>> {
    relation_at_rest(database, &[table]).findings().to_vec()
}

/// `inspect`, until its sessions have ended.
pub(crate) fn inspect_at_rest(database: &Database<'_>, more: &[&str]) -> Run {
    let run = inspect(database, more);
    database.rests();
    run
}

/// The report, once its sessions have ended: what they have counted is seen. Advice does not change the exit code.
#[track_caller]
pub(crate) fn relation_at_rest(database: &Database<'_>, more: &[&str]) -> Printed<Relation> {
    let relation = relation(database, more);
    database.rests();
    relation
}

pub(crate) fn codes(findings: &[Printed<Finding>]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.name()).collect()
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

/// The table's finding, which is the only one and has this code.
#[track_caller]
fn only_finding(database: &Database<'_>, table: &str, code: &str) -> Printed<Finding> {
    let found = findings(database, table);
    assert_eq!(codes(&found), [code], "{found:#?}");
    let finding = found[0].clone();
    assert!(finding.low <= finding.value && finding.value <= finding.high, "{finding}");
    finding
}

/// The table has this finding alone, and none after the command was run. Gives the finding.
#[track_caller]
pub(crate) fn mended(database: &Database<'_>, table: &str, code: &str) -> Printed<Finding> {
    let finding = only_finding(database, table, code);
    act(database, &finding.command);
    // neither it nor one that its command has brought about
    clean(database, table);
    finding
}

/// The table has this symptom of its settings alone. After the command next to it was run, if there is one, no finding
/// has a command, so that nothing undoes it. Gives the finding.
#[track_caller]
pub(crate) fn advised(database: &Database<'_>, table: &str, code: &str) -> Printed<Finding> {
    let finding = only_finding(database, table, code);
    assert_eq!(
        finding.command.is_empty(),
        finding.what.ends_with("; there is no better setting"),
        "{finding}"
    );
    if !finding.command.is_empty() {
        assert!(finding.command.starts_with("toastctl retoast "), "{finding}");
        act(database, &finding.command);
        settled(database, table);
    }
    finding
}

/// Nothing is left to be done.
#[track_caller]
pub(crate) fn settled(database: &Database<'_>, table: &str) {
    let found = findings(database, table);
    assert!(found.iter().all(|finding| finding.command.is_empty()), "{found:#?}");
    let mut command = toastctl();
    command.args(["advise-threshold", table, "-d", &database.url(), "--format", "json"]);
    for advice in run(&mut command).entries::<Report>() {
        assert_eq!(advice.recommendation.command, [""; 0], "{advice}");
    }
}

#[track_caller]
pub(crate) fn clean(database: &Database<'_>, table: &str) {
    let found = findings(database, table);
    assert!(found.is_empty(), "{found:#?}");
}
