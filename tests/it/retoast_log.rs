//! What a run of `retoast`, `compact` or `reindex` tells programs: lines of progress, the log, and the command that
//! receives the result.

use std::fs;
use std::path::Path;

use serde_json::Value;
use toastctl::report::schema::schema;

use crate::support::command::{Run, run, toastctl};
use crate::support::findings::NOISE;
use crate::support::retoast::{LZ4, command, done, refused, retoast};
use crate::support::server::{Database, with_pageinspect};

/// Values compressed by pglz, free space, and an index that is larger than it has to be.
fn prepared(prefix: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 3000) i;
         DELETE FROM t WHERE id % 2 = 0; VACUUM t",
    );
    database
}

/// The lines, each of them of the documented shape, by event.
#[track_caller]
fn events(text: &str) -> Vec<Value> {
    let schema: Value = serde_json::from_str(schema("retoast-progress").unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let wrong: Vec<String> = validator.iter_errors(&line).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}\n{line:#}");
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        line
    };
    text.lines().map(read).collect()
}

fn named<'a>(events: &'a [Value], event: &str) -> Vec<&'a Value> {
    events.iter().filter(|line| line["event"] == event).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_log_has_progress_and_the_end_of_each_verb() {
    let database = prepared("log");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let set = format!("log={}", log.display());
    let with = |arguments: &[&str]| retoast(&database, &[arguments, &["--set", &set]].concat());
    done(&with(&LZ4));
    with(&["compact", "t"]).exits(0);
    with(&["reindex", "t", "--indexes=all"]).exits(0);
    // each run adds to it
    let events = events(&read(&log));
    let ends = named(&events, "end");
    assert_eq!(ends.len(), 3, "{events:#?}");
    for end in ends {
        assert_eq!((&end["exit_code"], &end["errors"]), (&0.into(), &Value::Array(Vec::new())));
        let tables = serde_json::json!([{"relation": "public.t", "outcome": "complete"}]);
        assert_eq!(end["tables"], tables);
    }
    let progress = named(&events, "progress");
    assert!(progress.len() >= 2, "{events:#?}");
    assert!(progress.iter().all(|line| line["relation"] == "public.t"));
    let indexes: Vec<(&Value, &Value)> = named(&events, "index")
        .into_iter()
        .map(|line| (&line["number"], &line["indexes"]))
        .collect();
    assert_eq!(indexes, [(&1.into(), &2.into()), (&2.into(), &2.into())]);
    // what is printed is the same
    let printed = retoast(&database, &["reindex", "t", "--indexes=all", "--set", "progress=json"]);
    assert_eq!(named(&self::events(&printed.exits(0).stderr), "index").len(), 2);
    let nowhere = format!("log={}", folder.path().join("none/log").display());
    let before = database.psql("SELECT pg_relation_filenode('t_pkey')");
    let refusal = retoast(&database, &["reindex", "t", "--indexes=all", "--set", &nowhere]);
    refused(&refusal, 2, "--set log: \"");
    assert_eq!(database.psql("SELECT pg_relation_filenode('t_pkey')"), before);
}

#[test]
fn a_command_receives_the_result() {
    let database = prepared("on_end");
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let save = format!("on-end=cat > '{}'", result.display());
    let with = |more: &[&str]| retoast(&database, &[&LZ4[..], more].concat());
    // a plan is no end
    with(&["--dry-run", "--set", &save]).exits(0);
    assert!(!result.exists());
    let complete = with(&["--set", &save]);
    done(&complete);
    assert_eq!(json(&read(&result)), json(&complete.stdout));
    assert_eq!(json(&complete.stdout)["exit_code"], 0);
    // it is told of a failure too, although nothing is printed then
    let failed = retoast(&database, &["nowhere", "-c", "v", "--toaster", "lz4", "--set", &save]);
    let received = json(&read(&result));
    assert_eq!(received["exit_code"], failed.code.unwrap());
    let error = received["errors"][0].as_str().unwrap();
    assert!(failed.code != Some(0) && failed.stderr.contains(error), "{failed:?} {received:#}");
    // what cannot begin has no result
    fs::remove_file(&result).unwrap();
    let mut nobody = toastctl();
    nobody.args(["retoast", "-h", "127.0.0.1", "-p", "1", "-d", "x", "--set", &save]).args(LZ4);
    refused(&run(&mut nobody), 3, "error: ");
    assert!(!result.exists());
}

#[test]
fn a_command_that_fails_changes_nothing_but_the_exit_code() {
    let database = prepared("on_end_fails");
    let with = |command: &str| {
        let set = format!("on-end={command}");
        retoast(&database, &[&LZ4[..], &["--set", &set]].concat())
    };
    let failed = with("exit 9").exits(1);
    assert!(
        failed
            .stderr
            .contains("error: the command of --set on-end failed: it ended with exit code 9\n"),
        "{failed:?}"
    );
    assert_eq!(json(&failed.stdout)["tables"][0]["outcome"], "complete");
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) <> 'lz4'";
    assert_eq!(database.psql(left), "0");
    let unknown = with("/nonexistent/command").exits(1);
    assert!(
        unknown
            .stderr
            .contains("--set on-end failed: it ended with exit code 127 (command not found)"),
        "{unknown:?}"
    );
    // it need not read what it receives
    let unread: Run = with("true");
    assert_eq!(unread.code, Some(0), "{unread:?}");
    let mut dry = command(&database, &[&LZ4[..], &["--dry-run", "--set", "on-end=false"]].concat());
    assert_eq!(run(&mut dry).code, Some(0));
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
