//! The stock captures: every value as the server that wrote the files described it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures");
    let of = |server: &str| std::fs::read_dir(root.join(server)).unwrap();
    let mut tables: Vec<PathBuf> =
        of("pg15").chain(of("oid8")).map(|entry| entry.unwrap().path()).collect();
    tables.sort();
    assert_eq!(tables.len(), 10);
    tables
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a verb on a table's files.
fn run(table: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toastctl"))
        .args(arguments)
        .arg("--relation-file")
        .arg(table.join("heap.bin"))
        .arg("--columns")
        .arg(format!("@{}", table.join("meta.json").display()))
        .output()
        .unwrap()
}

/// What it prints, if it succeeds without a message.
fn toastctl(table: &Path, arguments: &[&str]) -> String {
    let output = run(table, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", table.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Form and method in the words of the extension that described the values.
fn state(row: &Value) -> String {
    let method = row["method"].as_str().map(|method| format!(" ({method})"));
    match (row["form"].as_str().unwrap(), method) {
        ("null", None) => "null".into(),
        ("short", None) => "short inline varlena".into(),
        ("plain" | "missing", None) => "long inline varlena, uncompressed".into(),
        ("compressed", Some(method)) => format!("long inline varlena, compressed{method}"),
        ("external", None) => "toasted varlena, uncompressed".into(),
        ("external_compressed", Some(method)) => format!("toasted varlena, compressed{method}"),
        (form, method) => panic!("{form} {method:?}"),
    }
}

#[test]
fn every_value_is_what_its_server_said() {
    let mut values = 0;
    for table in captures() {
        let rows = json_lines(&toastctl(&table, &["value", "--format", "jsonl"]));
        let found: HashMap<(String, String), &Value> = rows
            .iter()
            .map(|row| {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                ((text("ctid"), text("column")), row)
            })
            .collect();
        assert_eq!(found.len(), rows.len());
        let truth = json_lines(&std::fs::read_to_string(table.join("truth.jsonl")).unwrap());
        let mut live = 0;
        for row in &truth {
            live += 1;
            for (column, expected) in row["cols"].as_object().unwrap() {
                let ctid = row["ctid"].as_str().unwrap().to_owned();
                let value = found[&(ctid.clone(), column.clone())];
                let place = format!("{} {ctid} {column}", table.display());
                assert_eq!(state(value), expected["state"].as_str().unwrap(), "{place}");
                let get = |key: &str| expected.get(key).unwrap_or(&Value::Null);
                assert_eq!(&value["stored_size"], get("pg_column_size"), "{place}");
                assert_eq!(&value["method"], get("compression"), "{place}");
                assert_eq!(&value["value_id"], get("chunk_id"), "{place}");
                if let Some(octets) = expected.get("octet_length") {
                    assert_eq!(&value["raw_size"], octets, "{place}");
                }
                values += 1;
            }
        }
        let report: Value =
            serde_json::from_str(&toastctl(&table, &["inspect", "--format", "json"])).unwrap();
        assert_eq!(report["tables"][0]["details"]["tuples"]["live"]["estimate"], live);
        assert_eq!(report["tables"][0]["details"]["tuples"]["unknown"]["high"], 0);
    }
    assert!(values > 1000, "{values}");
}

#[test]
fn chunks_in_the_toast_file_are_those_that_the_pointers_ask_for() {
    for table in captures() {
        let toast = table.join("toast.bin");
        let json = toastctl(
            &table,
            &["inspect", "--toast-file", toast.to_str().unwrap(), "--format", "json"],
        );
        let report: Value = serde_json::from_str(&json).unwrap();
        let meta: Value =
            serde_json::from_str(&std::fs::read_to_string(table.join("meta.json")).unwrap())
                .unwrap();
        let visible: u64 = meta["toast_relations"][0]["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| value["chunks"].as_u64().unwrap())
            .sum();
        let toast = &report["tables"][0]["details"]["toast"];
        assert_eq!(toast["rows"].as_u64().unwrap(), visible, "{}", table.display());
        assert_eq!(toast["chunks"]["estimate"].as_u64().unwrap(), visible, "{}", table.display());
    }
}

#[test]
fn values_with_ids_of_8_bytes_are_reassembled_and_checked() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures/oid8/values");
    let toast = table.join("toast.bin");
    let reassemble =
        ["value", "--toast-file", toast.to_str().unwrap(), "--reassemble", "--format", "jsonl"];
    let rows = json_lines(&toastctl(&table, &reassemble));
    let truth = json_lines(&std::fs::read_to_string(table.join("truth.jsonl")).unwrap());
    let mut wide = 0;
    for row in &truth {
        for (column, expected) in row["cols"].as_object().unwrap() {
            let is_it =
                |found: &&Value| found["ctid"] == row["ctid"] && found["column"] == column.as_str();
            let found = rows.iter().find(is_it).unwrap();
            let get = |key: &str| expected.get(key).unwrap_or(&Value::Null);
            assert_eq!(&found["text_md5"], get("md5"), "{} {column}", row["ctid"]);
            wide += u32::from(get("chunk_id").as_u64().is_some_and(|id| id > u64::from(u32::MAX)));
        }
    }
    assert_eq!(wide, 11);
    // no command for a table that is only read
    let inspect = ["inspect", "--toast-file", toast.to_str().unwrap(), "--format", "json"];
    let report: Value = serde_json::from_str(&toastctl(&table, &inspect)).unwrap();
    let report = &report["tables"][0];
    assert!(report["details"].get("findings").is_none(), "{report}");
    assert_eq!(report["not_available"][0]["figure"], "findings", "{report}");
    let check = |toast: &Path| {
        let file = toast.to_str().unwrap();
        run(&table, &["check", "--toast-file", file, "--ignore-checksums"])
    };
    let sound = check(&toast);
    assert!(sound.status.success(), "{sound:?}");
    // the high half of a chunk's ID
    let mut bytes = std::fs::read(&toast).unwrap();
    let id = truth[0]["cols"]["ext"]["chunk_id"].as_u64().unwrap();
    let at = bytes.windows(8).position(|word| word == id.to_le_bytes()).unwrap();
    bytes[at + 4] += 1;
    let damaged = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(damaged.path(), bytes).unwrap();
    let found = check(damaged.path());
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(5), "{text}");
    assert!(text.contains(&format!("expected 1 chunk for value {id}; found none")), "{text}");
}
