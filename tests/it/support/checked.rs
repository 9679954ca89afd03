//! Relation files checked, and findings in the form in which the cases have them.

use std::path::Path;

use toast_format::disk::checksum::page_checksum;
use toast_format::disk::columns::parse_list;
use toast_format::disk::custom::CustomFlavor;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::{BlockNumber, ByteOrder};
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::check::finding::{Checked, Finding};
use toastctl::check::subject::Depth;
use toastctl::offline::target::FileTarget;

use crate::support::check_cases::{COLUMNS, Files};
use crate::support::reports::{Printed, check as reports};
use crate::support::table_files::PAGE;

pub(crate) const DEEP: Depth = Depth { decompress: true, content: true, utf8: true };

pub(crate) fn write(dir: &Path, files: &Files) {
    std::fs::write(dir.join("heap"), &files.heap).unwrap();
    std::fs::write(dir.join("toast"), &files.toast).unwrap();
}

pub(crate) fn target<'t>(heap: &'t Path, toast: &'t Path, desc: &'t TupleDesc) -> FileTarget<'t> {
    FileTarget {
        heap,
        toast: Some(toast),
        desc,
        page_size: PAGE,
        flavor: CustomFlavor::Auto,
        xact: None,
        checksums: None,
        sampling: None,
    }
}

pub(crate) fn check(dir: &Path, checksums: Option<bool>) -> (Vec<Finding>, Checked) {
    let (heap, toast) = (dir.join("heap"), dir.join("toast"));
    let desc = parse_list(COLUMNS).unwrap();
    let options = FileOptions { depth: DEEP, threads: 2 };
    let target = FileTarget { checksums, ..target(&heap, &toast, &desc) };
    let mut findings = Vec::new();
    let tell = &mut |finding| {
        findings.push(finding);
        Ok(())
    };
    let checked = relation_file(&target, &options, &(), None, tell).unwrap();
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

/// Sets the checksums of all pages.
pub(crate) fn with_checksums(file: &mut [u8]) {
    for (block, page) in file.chunks_mut(8192).enumerate() {
        let sum = page_checksum(page, BlockNumber(block as u32), ByteOrder::Little);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
}

/// As [`told`], of a server.
pub(crate) fn told_live(finding: &Printed<reports::Finding>) -> String {
    let is_toast = finding.relation.starts_with("pg_toast.");
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
    format!(
        "{} {} {}/{} {} {}",
        finding.code,
        if is_toast { "toast" } else { "heap" },
        number(finding.block),
        number(finding.item),
        finding.column.as_deref().unwrap_or("-"),
        number(finding.byte),
    )
}
