//! `check` on update chains that are broken: heap-only tuples, redirects, new versions.

use std::path::Path;

use crate::support::check_cases::{item, set_word, word};
use crate::support::checked::told;
use crate::support::command::{run, toastctl};
use crate::support::server::{self, Database, Options, Server};
use crate::support::table_files::PAGE;
use toast_format::disk::columns::parse_list;
use toast_format::disk::custom::CustomFlavor;
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::check::subject::Depth;
use toastctl::offline::target::FileTarget;

/// The rows 1 and 2 are updated: their new versions are the items 5 and 6. In `pruned` the line
/// pointers 1 and 2 lead there.
pub(crate) fn create(table: &str, is_pruned: bool) -> String {
    format!(
        "CREATE TABLE {table} (id int, k int) WITH (autovacuum_enabled = off);
         INSERT INTO {table} SELECT g, 0 FROM generate_series(1, 4) AS g;
         UPDATE {table} SET k = 1 WHERE id < 3; SELECT count(*) FROM {table};
         {}",
        if is_pruned { format!("VACUUM {table};") } else { String::new() }
    )
}

/// Where a tuple's field stands.
fn field(page: &[u8], number: u16, at: usize) -> usize {
    (word(page, 24 + 4 * (usize::from(number) - 1)) & 0x7FFF) as usize + at
}

/// Makes the tuple `number` lead to `next`.
fn lead(page: &mut [u8], number: u16, next: u8) {
    let at = field(page, number, 12);
    page[at..at + 6].copy_from_slice(&[0, 0, 0, 0, next, 0]);
}

pub(crate) type Case = (&'static str, fn(&mut [u8]), &'static [&'static str]);

pub(crate) const CASES: [Case; 8] = [
    ("sound", |_| (), &[]),
    ("pruned_sound", |_| (), &[]),
    (
        "not_hot_updated",
        |page| {
            let at = field(page, 1, 19);
            page[at] &= !0x40;
        },
        &["TC013 heap 0/1 - 18"],
    ),
    (
        "not_heap_only",
        |page| {
            let at = field(page, 5, 19);
            page[at] &= !0x80;
        },
        &["TC013 heap 0/1 - 18"],
    ),
    ("two_lead_there", |page| lead(page, 2, 5), &["TC013 heap 0/2 - 12", "TC013 heap 0/6 - 18"]),
    ("no_root", |page| lead(page, 1, 1), &["TC013 heap 0/5 - 18"]),
    (
        "aborted_and_updated",
        |page| {
            let at = field(page, 1, 21);
            page[at] = page[at] & !0x01 | 0x02;
        },
        &["TC013 heap 0/1 - 0"],
    ),
    (
        "pruned_twice",
        |page| set_word(page, 28, item(5, 2, 0)),
        &["TC013 heap 0/2 - 28", "TC013 heap 0/6 - 18"],
    ),
];

fn in_file(path: &Path) -> Vec<String> {
    let desc = parse_list("id int4, k int4").unwrap();
    let target = FileTarget {
        heap: path,
        toast: None,
        desc: &desc,
        page_size: PAGE,
        flavor: CustomFlavor::Auto,
        xact: None,
        checksums: Some(false),
        sampling: None,
    };
    let depth = Depth { decompress: true, content: true, utf8: true };
    let options = FileOptions { depth, threads: 1 };
    let mut findings = Vec::new();
    let tell = &mut |finding| {
        findings.push(told(&finding, false));
        Ok(())
    };
    relation_file(&target, &options, &(), None, tell).unwrap();
    findings
}

fn live(database: &Database<'_>, table: &str) -> Vec<String> {
    let url = database.url();
    let found = run(toastctl().args(["check", "--format", "jsonl", "-d", &url, table]));
    found.lines().iter().map(crate::support::checked::told_live).collect()
}

fn broken_chains(options: &Options) {
    let server = Server::start(options);
    let database = server.create_database("check_chains");
    let mut sql = "CREATE EXTENSION pageinspect; CREATE EXTENSION amcheck;".to_owned();
    CASES.iter().for_each(|(table, ..)| sql += &create(table, table.starts_with("pruned")));
    database.psql(&(sql + "CHECKPOINT;"));
    let path = |table: &str| {
        let path = database.psql(&format!("SELECT pg_relation_filepath('{table}')"));
        server.data_dir().join(path)
    };
    let paths = CASES.map(|(table, ..)| path(table));
    let name = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    for ((table, change, expected), path) in CASES.iter().zip(&paths) {
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        // checksums, where the cluster has them
        crate::support::checked::with_checksums(&mut bytes);
        std::fs::write(path, bytes).unwrap();
        assert_eq!(in_file(path), *expected, "file of {table}");
    }
    server.start_again();
    let database = server.database(&name);
    for (table, _, expected) in CASES {
        let theirs = database.psql(&format!("SELECT count(*) FROM verify_heapam('{table}')"));
        let mut expected = expected.to_vec();
        // the server knows that the transaction has committed
        if table == "aborted_and_updated" {
            expected.push("TC026 heap 0/1 - 20");
        }
        let mut found = live(&database, table);
        found.sort();
        assert_eq!(found, expected, "{table}");
        let count: usize = theirs.parse().unwrap();
        assert!(count <= expected.len(), "{table}: {count} of verify_heapam");
    }
}

#[test]
fn broken_update_chains_have_their_findings() {
    broken_chains(&Options::default());
}

#[test]
fn broken_update_chains_beside_the_amcheck_that_looks_for_them() {
    if server::has_major(18) {
        broken_chains(&Options::major(18));
    }
}
