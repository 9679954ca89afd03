//! Bad input without a server: each mistake has its message, its place and its exit code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use toast_format::disk::checksum::page_checksum;
use toast_format::disk::{BlockNumber, ByteOrder};

struct Found {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs in `dir`, so that file names in messages are short.
fn toastctl(dir: &Path, args: &[&str]) -> Found {
    let output =
        Command::new(env!("CARGO_BIN_EXE_toastctl")).current_dir(dir).args(args).output().unwrap();
    Found {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn capture(table: &str, file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures/pg15").join(table).join(file)
}

/// A folder with the capture `states` as `heap` and `columns.json`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(capture("states", "heap.bin"), dir.path().join("heap")).unwrap();
    std::fs::copy(capture("states", "meta.json"), dir.path().join("columns.json")).unwrap();
    dir
}

fn change(dir: &Path, with: impl FnOnce(&mut Vec<u8>)) {
    let path = dir.join("heap");
    let mut bytes = std::fs::read(&path).unwrap();
    with(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

const FILE: [&str; 5] = ["inspect", "--relation-file", "heap", "--columns", "@columns.json"];

fn live_rows(dir: &Path) -> (Found, u64) {
    let found = toastctl(dir, &[&FILE[..], &["--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let live = report["tables"][0]["details"]["tuples"]["live"]["estimate"].as_u64().unwrap();
    (found, live)
}

#[test]
fn a_file_that_ends_inside_a_block() {
    let dir = folder();
    change(dir.path(), |bytes| bytes.truncate(4 * 8192 + 100));
    let (found, live) = live_rows(dir.path());
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr, @r#"toastctl: error: heap: file "heap" ends inside block 4: it has 100 of 8192 bytes"#);
    assert!(live > 10 && live < 23, "{live}");
}

#[test]
fn a_page_of_random_bytes_loses_nothing_else() {
    let dir = folder();
    let (_, whole) = live_rows(dir.path());
    change(dir.path(), |bytes| {
        let mut x = 1u32;
        for byte in &mut bytes[2 * 8192..3 * 8192] {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (x >> 24) as u8;
        }
    });
    let (found, live) = live_rows(dir.path());
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr);
    assert!(live >= whole - 8, "{live}");
}

#[test]
fn a_torn_page_has_problems_with_block_item_and_byte() {
    let dir = folder();
    // the second half was not written: what line pointers lead to is zeros
    change(dir.path(), |bytes| bytes[4096..8192].fill(0));
    let (found, live) = live_rows(dir.path());
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr);
    assert!(live > 15, "{live}");
}

/// In a TOAST relation's file: a page without its header, and two tuples that are no chunks, one of them
/// of a transaction that was rolled back.
#[test]
fn a_damaged_toast_file_is_reported_by_block_and_item() {
    let dir = folder();
    let mut toast = std::fs::read(capture("states", "toast.bin")).unwrap();
    toast[8192..8192 + 24].fill(0xEE);
    for (block, rolled_back) in [(0, false), (2, true)] {
        let page = &mut toast[block * 8192..(block + 1) * 8192];
        let pointer = u32::from_le_bytes(page[24..28].try_into().unwrap());
        let tuple = &mut page[(pointer & 0x7FFF) as usize..];
        // t_infomask2: the number of attributes; t_infomask: HEAP_XMIN_COMMITTED, HEAP_XMIN_INVALID
        tuple[18] = 2;
        tuple[21] = if rolled_back { tuple[21] & !1 | 2 } else { tuple[21] };
    }
    std::fs::write(dir.path().join("toast"), &toast).unwrap();
    let both = [&FILE[..], &["--toast-file", "toast"]].concat();
    let found = toastctl(dir.path(), &[&both[..], &["--format", "json"]].concat());
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr);
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let relation = &report["tables"][0];
    assert_eq!(relation["problem_count"], 3, "{relation:#}");
    assert_eq!(relation["problems"].as_array().unwrap().len(), 3);
    // values that lost a chunk say what is damaged, the others nothing
    let mut told_of = 0;
    for place in (0..5).flat_map(|block| (1..9).map(move |item| format!("({block},{item})"))) {
        let value = format!("px@{place}");
        let found = toastctl(dir.path(), &[&["value", &value], &both[1..]].concat());
        let told = found.stdout.contains("toast, block 1: ");
        assert_eq!(told, found.code == 1, "{value}: {} {}", found.stdout, found.stderr);
        told_of += u32::from(told);
    }
    assert!((1..30).contains(&told_of), "{told_of}");
}

#[test]
fn a_file_with_pages_of_another_size() {
    let dir = folder();
    let page = |size: u16| {
        let mut page = vec![0u8; usize::from(size)];
        page[12..14].copy_from_slice(&24u16.to_le_bytes());
        page[14..16].copy_from_slice(&size.to_le_bytes());
        page[16..18].copy_from_slice(&size.to_le_bytes());
        page[18..20].copy_from_slice(&(size | 4).to_le_bytes());
        page
    };
    change(dir.path(), |bytes| *bytes = page(16384));
    let found = toastctl(dir.path(), &FILE);
    assert_eq!((found.code, found.stderr.as_str()), (0, ""));
    change(dir.path(), |bytes| bytes.extend([0; 100]));
    let found = toastctl(dir.path(), &FILE);
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr, @r#"toastctl: error: heap: file "heap" ends inside block 1: it has 100 of 16384 bytes"#);
}

#[test]
fn wrong_columns_are_seen() {
    let dir = folder();
    for columns in [
        "id int4, pl text",
        "id int8, pl text, mn text, ex text, px text, lz text, bz bytea, bp bytea",
        "id int4, pl text, mn text, ex text, px text, lz text, bz bytea, bp bytea, more int4",
    ] {
        let found = toastctl(
            dir.path(),
            &["inspect", "--relation-file", "heap", "--columns", columns, "--format", "csv"],
        );
        let expected = match columns {
            _ if columns.ends_with("more int4") => 0,
            _ => 2,
        };
        assert_eq!(found.code, expected, "{columns}: {}", found.stderr);
        insta::assert_snapshot!(columns.len().to_string(), found.stderr);
    }
}

#[test]
fn mistakes_in_arguments() {
    let dir = folder();
    let mut all = String::new();
    for args in [
        &["inspect", "--relation-file", "heap"][..],
        &["inspect", "--relation-file", "none", "--columns", "id int4"],
        &["inspect", "--relation-file", "heap", "--columns", "@none"],
        &["inspect", "--relation-file", "heap", "--columns", "@heap"],
        &["inspect", "--relation-file", "heap", "--columns", "id integre"],
        &["inspect", "--relation-file", "heap", "--columns", "id int4", "mytable"],
        &["inspect", "--toast-file", "heap"],
        &["inspect", "--pageinspect", "none", "--columns", "id int4"],
        &["value", "--datum", r"\x012"],
        &["value", "--datum", r"\x01zz"],
        &["value", "--datum", r"\x0112aa"],
        &["value", "--datum", ""],
        &["inspect", "--jobs", "0"],
        &["value", "--jobs", "2"],
        &["inspect", "a.b.c.d"],
        &["inspekt"],
    ] {
        let found = toastctl(dir.path(), args);
        assert_ne!(found.code, 0, "{args:?}");
        assert_eq!(found.stdout, "");
        let first: Vec<&str> = found.stderr.lines().take(2).collect();
        all.push_str(&format!("$ {}\n{}\n[{}]\n", args.join(" "), first.join("\n"), found.code));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn saved_output_that_is_cut() {
    let dir = folder();
    let recorded = include_str!("../fixtures/pageinspect.txt");
    let (_, text) = recorded.split_once("==> items.aligned-1\n").unwrap();
    let (text, _) = text.split_once("==> ").unwrap();
    std::fs::write(dir.path().join("saved"), &text[..text.len() * 3 / 4]).unwrap();
    let columns = "id int, gone dropped(-1,i), short text, packed text, far text, n int8, late int";
    let found = toastctl(
        dir.path(),
        &["value", "--pageinspect", "saved", "--columns", columns, "--format", "csv"],
    );
    assert_eq!(found.code, 1);
    insta::assert_snapshot!(found.stderr);
    assert!(found.stdout.lines().count() > 3, "{}", found.stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = folder();
    for format in ["table", "json", "jsonl", "csv", "markdown"] {
        for verb in ["inspect", "value"] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_toastctl"))
                .current_dir(dir.path())
                .arg(verb)
                .args(&FILE[1..])
                .args(["--format", format])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{format}");
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Sets the checksums of all pages.
fn with_checksums(file: &mut [u8]) {
    for (block, page) in file.chunks_exact_mut(8192).enumerate() {
        let sum = page_checksum(page, BlockNumber(block as u32), ByteOrder::Little);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn checksums_are_verified_where_the_cluster_has_them() {
    let dir = folder();
    change(dir.path(), |bytes| with_checksums(bytes));
    let asked = |words: &[&str]| toastctl(dir.path(), &[words, &FILE[1..]].concat());
    let whole = asked(&["check", "--checksums"]);
    assert!(!whole.stdout.contains("checksum"), "{}{}", whole.stdout, whole.stderr);
    // one bit of a value in the last page, which nothing else can tell
    change(dir.path(), |bytes| {
        let at = bytes.len() - 100;
        bytes[at] ^= 1;
    });
    let (right, got) = {
        let bytes = std::fs::read(dir.path().join("heap")).unwrap();
        let page = &bytes[4 * 8192..5 * 8192];
        let right = page_checksum(page, BlockNumber(4), ByteOrder::Little);
        (right, u16::from_le_bytes([page[8], page[9]]))
    };
    let told = format!("checksum 0x{right:04x},0x{got:04x},,\n");
    let damaged = asked(&["check", "--checksums", "--format", "csv"]);
    assert_eq!(damaged.code, 5, "{}", damaged.stderr);
    assert!(damaged.stdout.contains(&told), "{}", damaged.stdout);
    assert!(!asked(&["check", "--format", "csv"]).stdout.contains(&told));
    let unverified = asked(&["inspect"]);
    assert_eq!(unverified.code, 0);

    // the control file of the cluster says that there are some
    let cluster = dir.path().join("global");
    std::fs::create_dir(&cluster).unwrap();
    let mut control = vec![0; 8192];
    control[8..12].copy_from_slice(&1300u32.to_le_bytes());
    control[208..216].copy_from_slice(&1_234_567f64.to_le_bytes());
    control[216..220].copy_from_slice(&8192u32.to_le_bytes());
    control[252..256].copy_from_slice(&1u32.to_le_bytes());
    std::fs::write(cluster.join("pg_control"), control).unwrap();
    let path = dir.path().join("heap");
    let found = toastctl(
        dir.path(),
        &["inspect", "--columns", "@columns.json", "--relation-file", path.to_str().unwrap()],
    );
    assert_eq!(found.code, 1, "{}", found.stderr);
    assert!(
        found
            .stderr
            .ends_with(&format!("block 4: checksum 0x{right:04x} expected, 0x{got:04x} found\n")),
        "{}",
        found.stderr
    );
    let value = ["value", "id@(4,1)", "--columns", "@columns.json", "--relation-file"];
    let value = toastctl(dir.path(), &[&value[..], &[path.to_str().unwrap()]].concat());
    assert_eq!(value.code, 1, "{}{}", value.stdout, value.stderr);
}

/// Feeds `piece` again and again to a verb with `--pageinspect -` and looks, before the end, at the most memory
/// that was in use at once.
#[cfg(target_os = "linux")]
fn peak_of_saved(head: &str, piece: &str, size: usize, verb: &str) -> (usize, i32) {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_toastctl"))
        .args([verb, "--pageinspect", "-", "--columns", "a int"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(head.as_bytes()).unwrap();
    for _ in 0..size / piece.len() {
        stdin.write_all(piece.as_bytes()).unwrap();
    }
    // all but what the pipe holds was read, and the process waits for more
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes = peak.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap();
    drop(stdin);
    (kilobytes, child.wait().unwrap().code().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn saved_output_of_any_length_takes_little_memory() {
    const SIZE: usize = 100 << 20;
    let mut page = [0; 8192];
    (page[12], page[13], page[14], page[15]) = (24, 0, 0, 32);
    (page[16], page[17], page[18], page[19]) = (0, 32, 4, 32);
    let digits: String = page.iter().map(|byte| format!("{byte:02x}")).collect();
    let pages = format!("\\x{digits}\n");
    let element = format!("{{\"blkno\":1,\"get_raw_page\":\"\\\\x{digits}\"}}, ");
    let cases = [
        ("pages", "get_raw_page\n", pages.as_str(), Some(0)),
        ("one line of JSON", "[", element.as_str(), Some(1)),
        ("a line without end", "get_raw_page\n", digits.as_str(), Some(2)),
        ("a row without end", "lp,t_data\n1,\"", "0123456789abcdef\n", None),
        ("brackets", "", "[", Some(2)),
        ("no output of pageinspect", "", &("nothing of interest ".repeat(500) + "\n"), Some(2)),
    ];
    for (what, head, piece, code) in cases {
        // the check reads in the same way
        let verbs: &[&str] = if what == "pages" { &["inspect", "check"] } else { &["inspect"] };
        for verb in verbs {
            // what is short and no row costs more time a byte than what is
            let size = if piece.len() < 100 { SIZE / 25 } else { SIZE };
            let block = piece.repeat(1 + (1 << 16) / piece.len());
            let (kilobytes, got) = peak_of_saved(head, &block, size, verb);
            assert!(kilobytes < 32 << 10, "{what} {verb}: {kilobytes} kB");
            assert!(code.is_none_or(|code| code == got), "{what} {verb}: exit code {got}");
        }
    }
}
