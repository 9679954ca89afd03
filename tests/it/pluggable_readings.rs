//! Values of pluggable toasters that the server misreads, or on which it crashes, on a stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use serde::Deserialize;
use toast_format::disk::value_text::hex;

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::check;
use crate::support::reports::retoast::{Report, SkippedRow};
use crate::support::server::Database;
use crate::support::standin;

/// Captures of documents whose values have chunks of each kind.
const DOCUMENTS: [&str; 4] =
    ["json_cchunks", "json_array_small", "json_tids_comp", "json_cchunks_diff"];

fn retoast(database: &Database<'_>, arguments: &[&str]) -> Run {
    let mut command = toastctl();
    command.args(["retoast", "-d", &database.conninfo(), "--format", "json"]);
    run(command.args(arguments))
}

#[derive(Deserialize)]
struct TrueRow {
    ctid: String,
    cols: BTreeMap<String, Option<TrueValue>>,
}

#[derive(Deserialize)]
struct TrueValue {
    md5: String,
    intended_md5: Option<String>,
}

/// The md5 of the documents of a capture, by the addresses of their rows.
fn truth(dir: &Path) -> BTreeMap<String, String> {
    let lines = std::fs::read_to_string(dir.join("truth.jsonl")).unwrap();
    let rows = lines.lines().map(|line| serde_json::from_str::<TrueRow>(line).unwrap());
    let document = |mut row: TrueRow| {
        let value = row.cols.remove("js")??;
        Some((row.ctid, value.intended_md5.unwrap_or(value.md5)))
    };
    rows.filter_map(document).collect()
}

/// Every document reads as an empty text from now on: nothing reads its chunks.
fn misread_documents(database: &Database<'_>) {
    database.psql(
        "CREATE FUNCTION misread(jsonb) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'void_out';
         UPDATE pg_catalog.pg_type SET typoutput = 'misread' WHERE oid = 'jsonb'::regtype",
    );
}

/// The rows of a table, as the tuples that were not updated stand on the pages.
fn tuples(database: &Database<'_>, table: &str) -> String {
    database.psql(&format!(
        "SELECT string_agg(b || ' ' || lp || ' ' || md5(t_data), ',' ORDER BY b, lp)
         FROM generate_series(0, pg_relation_size('{table}') / 8192 - 1) AS b,
             LATERAL heap_page_items(get_raw_page('{table}', b::int))
         WHERE lp_flags = 1 AND t_ctid::text = format('(%s,%s)', b, lp)"
    ))
}

/// What `check --salvage` saves of misread values: the rows as COPY reads them.
#[test]
fn what_the_server_misreads_is_saved_as_its_chunks_hold_it() {
    let server = standin::start();
    let database = server.create_database("misread_saved");
    let table = "json_array_small";
    let capture = standin::capture("jsonb_toaster", table);
    standin::make_toasters(&database, &standin::meta(&capture).pg_toaster);
    standin::transplant(&database, std::slice::from_ref(&capture));
    misread_documents(&database);
    let dir = tempfile::tempdir().unwrap();
    let checked = run(toastctl()
        .args(["check", "-d", &database.conninfo(), table, "--format", "json"])
        .arg(format!("--salvage={}", dir.path().display())));
    let report = checked.exits(5).report::<check::Report>();
    let truth = truth(&capture);
    let rows = std::fs::read_to_string(dir.path().join("rows.sql")).unwrap();
    let hashes: BTreeSet<String> = rows
        .lines()
        .flat_map(|line| line.split('\t'))
        .map(|field| field.replace("\\\\", "\\"))
        .map(|text| hex(&Md5::digest(text)))
        .collect();
    assert!(report.findings.iter().all(|finding| finding.code == "TC095"), "{report}");
    for finding in &report.findings {
        let ctid = format!("({},{})", finding.block.unwrap(), finding.item.unwrap());
        assert!(hashes.contains(&truth[&ctid]), "{ctid}: {report}");
    }
    let repair = std::fs::read_to_string(dir.path().join("repair.sql")).unwrap();
    assert!(!repair.lines().any(|line| line.starts_with("UPDATE")), "{repair}");
}

#[test]
fn values_are_not_given_to_jsonb_toaster_while_it_compresses_chunks() {
    let server = standin::start();
    let database = server.create_database("compress_chunks");
    let capture = standin::capture("jsonb_toaster", "json_foreign");
    standin::make_toasters(&database, &standin::meta(&capture).pg_toaster);
    standin::transplant(&database, &[capture]);
    for more in [&[][..], &["--dry-run"], &["--allow", "lost-updates"]] {
        let mut command = toastctl();
        command.env("PGOPTIONS", "-c jsonb_toaster.compress_chunks=on");
        command.args(["retoast", "-d", &database.conninfo(), "json_foreign", "-c", "js"]);
        let done = run(command.args(["--toaster", "jsonb_toaster"]).args(more));
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        let text =
            "with jsonb_toaster.compress_chunks this server stores values that it cannot read";
        assert!(done.stderr.contains(text), "{}", done.stderr);
    }
}

#[test]
fn what_the_server_misreads_is_left_and_named() {
    let server = standin::start();
    let database = server.create_database("misread");
    let captures: Vec<PathBuf> =
        DOCUMENTS.iter().map(|table| standin::capture("jsonb_toaster", table)).collect();
    standin::make_toasters(&database, &standin::meta(&captures[0]).pg_toaster);
    standin::transplant(&database, &captures);
    misread_documents(&database);
    let dir = tempfile::tempdir().unwrap();
    for (table, capture) in DOCUMENTS.iter().zip(&captures) {
        let truth = truth(capture);
        let before = tuples(&database, table);
        let checked = run(toastctl()
            .args(["check", "-d", &database.conninfo(), table])
            .args(["--format", "json"]));
        let report = checked.report::<check::Report>();
        // the server crashes at some values whose chunks are compressed: none of them is read by SQL
        let is_chunked = table.starts_with("json_cchunks");
        assert_eq!(checked.code, Some(if is_chunked { 1 } else { 5 }), "{table}: {report}");
        let mut misread = BTreeSet::new();
        if is_chunked {
            assert!(
                report.to_string().contains(" values of jsonb_toaster were not compared"),
                "{report}"
            );
            misread.extend(truth.keys().cloned());
        }
        for finding in report.findings.iter().filter(|finding| finding.code == "TC095") {
            let ctid = format!("({},{})", finding.block.unwrap(), finding.item.unwrap());
            let own = format!("md5 {}, as the chunks hold it", truth[&ctid]);
            assert_eq!(finding.expected, own, "{table} {ctid}");
            misread.insert(ctid);
        }
        assert!(misread.len() >= 3, "{table}: {report}");
        let saved = dir.path().join(table);
        let ctid = misread.first().unwrap();
        let one = run(toastctl()
            .args(["value", "-d", &database.conninfo(), &format!("{table}.js@{ctid}")])
            .arg(format!("--reassemble={}", saved.display())));
        assert_eq!((one.code, one.stderr.as_str()), (Some(0), ""), "{table} {ctid}");
        let file = std::fs::read_dir(&saved).unwrap().next().unwrap().unwrap().path();
        let content = std::fs::read(file).unwrap();
        assert_eq!(hex(&Md5::digest(&content)), truth[ctid], "{table} {ctid}");
        for goal in [
            &["-c", "js", "--toaster", "external", "--verify", "full"][..],
            &["-c", "js", "--toaster", "external", "--set", "alter=off", "--verify", "off"],
            &["-c", "js", "--policy", "never"],
            &["--from-toaster", "jsonb_toaster"],
        ] {
            let refused = dir.path().join("refused.csv");
            let set = format!("list-refused={}", refused.display());
            let done = retoast(&database, &[&[*table, "--set", &set], goal].concat());
            let list = std::fs::read_to_string(&refused).unwrap();
            let report = done.report::<Report>();
            assert_eq!(done.code, Some(1), "{table} {goal:?}: {report}");
            let skipped = &report.tables[0].skipped;
            for ctid in &misread {
                let is_named = |row: &&SkippedRow| {
                    row.ctid == *ctid && row.reason.starts_with("column \"js\"")
                };
                assert!(skipped.iter().any(|row| is_named(&row)), "{goal:?}: {report}");
                assert!(list.contains(&format!("public.{table},\"{ctid}\",,\"column ")), "{list}");
            }
            assert_eq!(report.tables[0].rows_stored, 0, "{table} {goal:?}: {report}");
            assert!(report.tables[0].rows_left >= Some(misread.len() as u64), "{goal:?}: {report}");
            let notes = report.tables[0].notes();
            assert!(
                notes.contains(&format!("toastctl value public.{table} --reassemble=DIR")),
                "{notes}"
            );
        }
        if is_chunked {
            let plan = retoast(&database, &[table, "-c", "js", "--policy", "never", "--dry-run"]);
            let plan = plan.exits(0).report::<Report>();
            let named = plan.tables[0].skipped.iter().map(|row| row.ctid.clone());
            assert_eq!(named.collect::<BTreeSet<_>>(), misread, "{table}: {plan}");
        }
        let kept: BTreeSet<&str> = before.split(',').collect();
        let now = tuples(&database, table);
        let custom = now.split(',').filter(|tuple| kept.contains(tuple)).count();
        assert!(custom >= misread.len(), "{table}: {now}");
    }
}

/// A value of this kind crashes the server, and with it every session; it is read once.
#[test]
fn a_value_on_which_the_server_crashes_is_read_once() {
    let server = standin::start();
    let database = server.create_database("crash");
    let capture = standin::capture("jsonb_toaster", "bytea_fresh");
    standin::make_toasters(&database, &standin::meta(&capture).pg_toaster);
    standin::transplant(&database, &[capture]);
    let log = || server.log();
    let crashes = || log().matches("was terminated by signal").count();
    assert_eq!(crashes(), 0);
    let done = retoast(&database, &["bytea_fresh", "-c", "a", "--toaster", "external"]);
    let report = done.report::<Report>();
    assert_eq!(crashes(), 1, "{}", done.stderr);
    // incomplete, or lost if the server has not recovered yet
    assert!(matches!(done.code, Some(1 | 3)), "{report}");
    let named = &report.tables[0].skipped;
    assert_eq!(named.len(), 1, "{report}");
    assert!(named[0].ctid.starts_with('('), "{report}");
    let message = format!("at row {} of public.bytea_fresh", named[0].ctid);
    assert!(done.stderr.contains(&message), "{}", done.stderr);
    assert!(done.stderr.contains("--reassemble=DIR"), "{}", done.stderr);
}
