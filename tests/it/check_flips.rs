//! Random changes of single bytes in relation files: no panic, no hang, and nothing that the bytes
//! themselves can tell goes unnoticed.

use std::path::Path;

use crate::support::check_cases::{COLUMNS, Files};
use crate::support::checked::{check, target, with_checksums, write};
use crate::support::server::{Options, Server};
use rand::{RngExt, SeedableRng};
use toast_format::disk::columns::parse_list;
use toastctl::inspect::inspector::ContentOptions;
use toastctl::inspect::offline;
use toastctl::value::rows::{RowWriter, ValueRow};

/// How many bytes are changed, instead of 400.
const FLIPS: &str = "TOASTCTL_CHECK_FLIPS";

/// What every value is, as far as it can be read.
#[derive(Debug, Default, PartialEq)]
struct Rows(Vec<(Option<String>, Option<String>, Option<String>)>);

impl RowWriter for Rows {
    fn write(&mut self, row: &ValueRow) -> std::io::Result<()> {
        self.0.push((row.ctid.clone(), row.column.clone(), row.md5.clone()));
        Ok(())
    }
}

/// The values that can be read, and whether something could not be.
fn read(dir: &Path) -> (Rows, bool) {
    let (heap, toast) = (dir.join("heap"), dir.join("toast"));
    let desc = parse_list(COLUMNS).unwrap();
    let contents = ContentOptions::default();
    let target = target(&heap, &toast, &desc);
    let mut rows = Rows::default();
    match offline::relation_file(&target, Some(&contents), Some(&mut rows), &()) {
        Ok(report) => (rows, report.read.problem_count > 0),
        Err(_) => (rows, true),
    }
}

/// Whether each page has the checksum that stands in it.
fn checksums_hold(file: &[u8]) -> bool {
    let mut again = file.to_vec();
    with_checksums(&mut again);
    again == file
}

#[test]
fn a_changed_byte_is_found_or_can_be_told_by_the_checksum_alone() {
    let flips = std::env::var(FLIPS).ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    // nobody else's transaction keeps rows from being frozen: what is not frozen needs pg_xact
    let server = Server::start(&Options::default());
    let (_database, mut files) = Files::fresh_on(&server, "flips");
    with_checksums(&mut files.heap);
    with_checksums(&mut files.toast);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    let (whole, problems) = read(dir.path());
    assert!(!problems && check(dir.path(), Some(true)).0.is_empty());
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    let (mut told, mut by_checksum, mut harmless) = (0, 0, 0);
    for flip in 0..flips {
        let mut changed = files.clone();
        // the heap is small: half of the changes are there
        let file = if flip % 2 == 0 { &mut changed.heap } else { &mut changed.toast };
        let at = rng.random_range(0..file.len());
        let by = rng.random_range(1..=255u8);
        file[at] ^= by;
        let holds = checksums_hold(file);
        write(dir.path(), &changed);
        let place = format!("byte {at} ^ {by} of the {}", ["heap", "toast"][flip % 2]);
        let by_any = !check(dir.path(), Some(true)).0.is_empty();
        // a checksum has 16 bits: once in 65,535 times a change leaves it what it was
        assert!(by_any || holds, "{place}: not even by its checksum");
        let found = !check(dir.path(), Some(false)).0.is_empty();
        let (rows, problems) = read(dir.path());
        assert!(found || !problems, "{place}: reading fails");
        match (found, rows == whole) {
            (true, _) => told += 1,
            (false, true) => harmless += 1,
            // every value can be read, as something else: bytes of plain content, or of a compressed
            // stream that is one still; hint bits and line pointers that hide a row
            (false, false) => by_checksum += 1,
        }
    }
    println!("{told} found, {by_checksum} by the checksum alone, {harmless} change nothing");
    assert!(told > flips / 10, "{told}");
}
