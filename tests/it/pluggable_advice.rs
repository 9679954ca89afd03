//! What is said and printed on servers with pluggable TOAST, on a stand-in: nothing counts values of pluggable toasters
//! as nothing, and no command is printed that is refused there or damages values.

use std::path::Path;

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::retoast::valid;
use crate::support::server::Database;
use crate::support::standin;
use toastctl::report::schema::schema;

fn toastctl_on(database: &Database<'_>, arguments: &[&str]) -> Run {
    let (verb, rest) = arguments.split_first().unwrap();
    run(toastctl().args([verb, "-d", &database.conninfo()]).args(rest))
}

fn json(database: &Database<'_>, arguments: &[&str]) -> Value {
    let text = toastctl_on(database, &[arguments, &["--format", "json"]].concat()).ok();
    serde_json::from_str(&text).unwrap()
}

/// Bytes that the capture's server has stored in chunks for what rows refer to.
fn stored(dir: &Path, column: &str) -> f64 {
    let mut command = toastctl();
    command.current_dir(dir).args(["inspect", "--relation-file", "heap.bin", "--columns"]);
    command.args(["@meta.json", "--toast-file", "toast.bin", "--format", "json"]);
    let report: Value = serde_json::from_str(&run(&mut command).ok()).unwrap();
    let toast = &report["relations"][0]["toast"];
    let columns = report["relations"][0]["columns"].as_array().unwrap();
    assert!(columns.iter().any(|found| found["column"] == column), "{report}");
    let all: u64 = standin::meta(dir)["toast_relations"][0]["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value["stored_bytes"].as_u64().unwrap())
        .sum();
    all as f64 - toast["orphans"]["bytes"].as_f64().unwrap_or(0.0)
}

fn no_command_that_harms(text: &str) {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for never in
        ["--compact", "VACUUM FULL \"", "VACUUM FULL or pg_repack", "(VACUUM FULL, pg_repack)"]
    {
        assert!(!flat.contains(never), "{never}: {text}");
    }
}

#[test]
fn values_of_pluggable_toasters_are_counted_and_no_command_harms() {
    let server = standin::start();
    let database = server.create_database("advice");
    let captures = ["json_talk", "bytea_fresh", "json_array_small"]
        .map(|table| standin::capture("jsonb_toaster", table));
    standin::make_toasters(&database, &standin::meta(&captures[0])["pg_toaster"]);
    let tables = standin::transplant(&database, &captures);
    for (table, column) in tables.iter().zip(["js", "a", "js"]) {
        let advise = ["advise-threshold", &table.name, "-c", column, "--sample", "100%"];
        let report = json(&database, &advise);
        let schema: Value = serde_json::from_str(schema("advise-threshold").unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(&report).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let candidates = report["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 1, "{report}");
        assert_eq!(candidates[0]["recommended"], false, "{report}");
        assert!(candidates[0]["forms"]["custom"].as_u64().unwrap() > 5, "{report}");
        let today = candidates[0]["toast_bytes"]["estimate"].as_f64().unwrap();
        let chunks = stored(table.dir.path(), column);
        assert!((0.9..1.25).contains(&(today / chunks)), "{}: {today}, {chunks}", table.name);
        let recommendation = &report["recommendation"];
        assert_eq!(recommendation["command"], Value::Null);
        let reasons = recommendation["reasons"].as_str().unwrap();
        assert!(reasons.starts_with("No recommendation: pluggable toasters store "), "{reasons}");
        assert_eq!(report["compaction"], Value::Null, "{report}");
        let text = toastctl_on(&database, &[&advise[..], &["--details"]].concat()).ok();
        assert!(!text.contains("Leave it as it is"), "{text}");
        no_command_that_harms(&text);

        let explained = json(&database, &["inspect", &table.name, "--explain"]);
        let columns = explained["columns"].as_array().unwrap();
        let column = columns.iter().find(|found| found["column"] == column).unwrap();
        let estimate = |of: &str| column[of]["estimate"].as_f64().unwrap();
        assert!(estimate("external_values") >= estimate("custom_values"), "{column}");
        assert!(estimate("custom_values") > 5.0, "{column}");
        let written = column["update"]["toast_bytes"]["estimate"].as_f64().unwrap();
        assert!(written * estimate("values") > chunks * 0.9, "{column}, {chunks}");
        assert!(column["read"]["chunks"]["estimate"].as_f64().unwrap() > 1.0, "{column}");
        let text = toastctl_on(&database, &["inspect", &table.name, "--explain"]).ok();
        assert!(text.contains("Values of pluggable toasters are counted as if"), "{text}");
    }
    compaction_is_refused_before_anything_is_done(&database);
    a_sweep_ends_without_a_word_of_rewriting(&database);
}

/// Of a table that nothing pluggable has to do with, on such a server.
fn compaction_is_refused_before_anything_is_done(database: &Database<'_>) {
    database.psql(
        "CREATE TABLE plain (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO plain SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
             FROM generate_series(1, 90) k) FROM generate_series(1, 3000) i;
         DELETE FROM plain WHERE id % 3 <> 0;
         VACUUM plain",
    );
    let before = database.psql(
        "SELECT attstorage FROM pg_attribute WHERE attname = 'v' AND attrelid = 'plain'::regclass",
    );
    for arguments in [
        &["retoast", "plain", "-c", "v", "--toaster", "external", "--compact"][..],
        &["retoast", "plain", "-c", "v", "--toaster", "external", "--compact", "--dry-run"],
        &["retoast", "plain", "--compact"],
        &["retoast", "plain", "--compact", "--dry-run"],
    ] {
        let refused = toastctl_on(database, arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}: {}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.stdout, "");
        let why = "--compact does not know the pointers of pluggable toasters";
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    let after =
        "SELECT attstorage FROM pg_attribute WHERE attname = 'v' AND attrelid = 'plain'::regclass";
    assert_eq!(database.psql(after), before);
    // two thirds of the files are free, and neither findings nor advice name what would be refused
    no_command_that_harms(&toastctl_on(database, &["inspect", "plain"]).ok());
    let advise = ["advise-threshold", "plain", "--sample", "100%", "--details"];
    let text = toastctl_on(database, &advise).ok();
    assert!(text.contains("toastctl retoast public.plain"), "{text}");
    no_command_that_harms(&text);
}

fn a_sweep_ends_without_a_word_of_rewriting(database: &Database<'_>) {
    let sweep = ["retoast", "plain", "-c", "v", "--toaster", "external"];
    let text = toastctl_on(database, &sweep).ok();
    assert!(text.contains("what the files hold besides is not known"), "{text}");
    no_command_that_harms(&text);
    let report = json(database, &["retoast", "plain", "-c", "v", "--toaster", "pglz"]);
    valid(&report);
    assert_eq!(report["tables"][0]["rewrite_gives_bytes"], Value::Null, "{report}");
}
