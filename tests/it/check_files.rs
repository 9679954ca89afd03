//! `inspect --check` on relation files of a real server.

use std::path::Path;

use crate::check_cases::{COLUMNS, Files, On, apply, cases, create, paths};
use crate::command::{run, toastctl};
use crate::server;
use crate::table_files::PAGE;
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::check::finding::Finding;
use toastctl::check::judged::Checked;
use toastctl::check::subject::Depth;
use toastctl::disk::BlockNumber;
use toastctl::disk::ByteOrder;
use toastctl::disk::checksum::page_checksum;
use toastctl::disk::custom::CustomFlavor;
use toastctl::disk::desc::TupleDesc;
use toastctl::inspect::offline::FileTarget;
use toastctl::offline::columns::parse_list;

const DEEP: Depth = Depth { decompress: true, content: true, utf8: true };

fn write(dir: &Path, files: &Files) {
    std::fs::write(dir.join("heap"), &files.heap).unwrap();
    std::fs::write(dir.join("toast"), &files.toast).unwrap();
}

fn target<'t>(heap: &'t Path, toast: &'t Path, desc: &'t TupleDesc) -> FileTarget<'t> {
    FileTarget {
        heap,
        toast: Some(toast),
        desc,
        page_size: PAGE,
        flavor: CustomFlavor::Auto,
        xact: None,
        contents: None,
        sampling: None,
    }
}

fn check(dir: &Path, checksums: Option<bool>) -> (Vec<Finding>, Checked) {
    let (heap, toast) = (dir.join("heap"), dir.join("toast"));
    let desc = parse_list(COLUMNS).unwrap();
    let options = FileOptions { depth: DEEP, checksums, threads: 2, fail_fast: false };
    let mut findings = Vec::new();
    let tell = &mut |finding| {
        findings.push(finding);
        Ok(())
    };
    let checked = relation_file(&target(&heap, &toast, &desc), &options, &(), tell).unwrap();
    (findings, checked)
}

/// As the cases say what must be found.
pub(crate) fn told(finding: &Finding, is_toast: bool) -> String {
    let place = &finding.place;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{} {} {}/{} {} {}",
        finding.code.name(),
        if is_toast { "toast" } else { "heap" },
        or_none(place.block.map(|block| block.to_string())),
        or_none(place.item.map(|item| item.to_string())),
        or_none(place.column.clone()),
        or_none(place.byte.map(|byte| byte.to_string())),
    )
}

#[test]
fn every_damage_of_a_file_has_its_finding_and_no_other() {
    let database = server::shared().create_database("check_files");
    database.psql(&(create("t") + "CHECKPOINT;"));
    let files = Files::read(&database, "t");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    let (findings, checked) = check(dir.path(), None);
    assert_eq!(findings, []);
    assert_eq!((checked.looked.rows, checked.looked.values), (4, 12));
    assert_eq!(checked.notes, [""; 0]);
    let mut shown = 0;
    let mut wrong = Vec::new();
    for case in cases().iter().filter(|case| case.on != On::Server) {
        let (changed, expected) = apply(case, &files);
        write(dir.path(), &changed);
        let (findings, _) = check(dir.path(), None);
        let is_toast = |finding: &Finding| finding.place.source.ends_with("toast");
        let found: Vec<String> = findings.iter().map(|f| told(f, is_toast(f))).collect();
        if found != expected {
            wrong.push(format!("{}: {found:?}, expected {expected:?}", case.name));
        }
        shown += 1;
    }
    assert_eq!(wrong, [""; 0]);
    assert!(shown >= 40, "{shown}");
}

/// Sets the checksums of all pages.
fn with_checksums(file: &mut [u8]) {
    for (block, page) in file.chunks_mut(8192).enumerate() {
        let sum = page_checksum(page, BlockNumber(block as u32), ByteOrder::Little);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn checksums_are_verified_where_the_cluster_has_them() {
    let database = server::shared().create_database("check_sums");
    database.psql(&(create("t") + "CHECKPOINT;"));
    let mut files = Files::read(&database, "t");
    with_checksums(&mut files.heap);
    with_checksums(&mut files.toast);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    assert_eq!(check(dir.path(), Some(true)).0, []);
    // one bit of a plain value, which nothing else can tell
    let chunk = files.chunk(2, "ext", 1);
    files.toast[chunk.tuple + 100] ^= 1;
    write(dir.path(), &files);
    assert_eq!(check(dir.path(), Some(false)).0, []);
    assert_eq!(check(dir.path(), None).0, []);
    let (findings, _) = check(dir.path(), Some(true));
    assert!(findings.iter().any(|f| f.code.name() == "TC002"), "{findings:?}");
    // the control file of the server says that it has none
    let [heap, toast] = paths(&database, "t");
    let found = run(toastctl().args(["inspect", "--check", "--columns", COLUMNS]).args([
        "--relation-file".as_ref(),
        heap.as_os_str(),
        "--toast-file".as_ref(),
        toast.as_os_str(),
    ]));
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
}
