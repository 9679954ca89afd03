//! `check` on values of pluggable toasters, by relation files of servers that have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::checked::told;
use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::check::{Report, Salvaged};
use crate::support::standin;
use toast_format::disk::ByteOrder;
use toast_format::disk::columns::parse_json;
use toast_format::disk::custom::{CustomFlavor, CustomPointer};
use toast_format::disk::layout::PageSize;
use toast_format::disk::page::{LinePointerState, Page, PageState};
use toast_format::disk::tuple::HeapTuple;
use toast_format::disk::varlena::Varlena;
use toast_format::disk::walk::{Datum, Walk};
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::check::subject::Depth;
use toastctl::offline::target::FileTarget;
use toastctl::offline::xact::PgXact;

struct Capture {
    dir: PathBuf,
    desc: toast_format::disk::desc::TupleDesc,
    heap: Vec<u8>,
}

/// Where a custom pointer stands in the file, and its bytes.
struct Found {
    at: usize,
    place: String,
    datum: Vec<u8>,
}

impl Capture {
    fn read(name: &str) -> Capture {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures").join(name);
        let columns = serde_json::to_string(&standin::meta(&dir).columns()).unwrap();
        Capture {
            desc: parse_json(&columns).unwrap(),
            heap: std::fs::read(dir.join("heap.bin")).unwrap(),
            dir,
        }
    }

    /// The first custom pointer of a live row that `wanted` takes.
    fn pointer(&self, wanted: impl Fn(&CustomPointer<'_>) -> bool) -> Found {
        for (block, bytes) in self.heap.chunks_exact(8192).enumerate() {
            let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
            for (item, pointer) in page.line_pointers() {
                if pointer.state != LinePointerState::Normal {
                    continue;
                }
                let tuple = page.tuple_bytes(pointer).unwrap();
                let tuple = HeapTuple::parse(tuple, ByteOrder::Little).unwrap();
                if tuple.infomask & 0x0900 != 0x0900 {
                    continue;
                }
                let mut walk = Walk::new(&tuple, &self.desc);
                while let Some(Ok((column, datum))) = walk.next() {
                    let Datum::Varlena(Varlena::Custom(custom)) = datum else { continue };
                    if !wanted(&custom) {
                        continue;
                    }
                    let byte = walk.end() - custom.datum.len();
                    return Found {
                        at: block * 8192 + usize::from(pointer.offset) + byte,
                        place: format!("heap {block}/{item} {} {byte}", column.name),
                        datum: custom.datum.to_vec(),
                    };
                }
            }
        }
        panic!("no such pointer in {}", self.dir.display())
    }

    /// What is found once `change` has changed the pointer's bytes.
    fn check(&self, found: &Found, change: impl FnOnce(&mut [u8])) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let mut heap = self.heap.clone();
        change(&mut heap[found.at..found.at + found.datum.len()]);
        let path = dir.path().join("heap");
        std::fs::write(&path, heap).unwrap();
        let xact = self.dir.join("pg_xact_0000.bin");
        let xact = xact.exists().then(|| PgXact::open(&xact).unwrap());
        let toast = self.dir.join("toast.bin");
        let target = FileTarget {
            heap: &path,
            toast: Some(&toast),
            desc: &self.desc,
            page_size: PageSize::DEFAULT,
            flavor: CustomFlavor::Auto,
            xact: xact.as_ref(),
            checksums: None,
            sampling: None,
        };
        let depth = Depth { decompress: true, content: true, utf8: true };
        let options = FileOptions { depth, threads: 1 };
        let mut findings = Vec::new();
        let tell = &mut |finding| {
            findings.push(finding);
            Ok(())
        };
        relation_file(&target, &options, &(), None, tell).unwrap();
        let is_toast = |source: &str| source.ends_with("toast.bin");
        findings.iter().map(|f| told(f, is_toast(&f.place.source))).collect()
    }
}

/// Where in `datum` a pointer of this kind to a value that was moved out begins, its count with it.
fn nested(datum: &[u8], kind: u32) -> Option<usize> {
    let order = ByteOrder::Little;
    // tag 4, then at 16 the kind's word and at 20 an ordinary pointer
    (0..datum.len().saturating_sub(42)).find(|&at| {
        datum[at..].starts_with(&[1, 4])
            && order.u32(datum, at + 16).is_some_and(|word| word >> 28 == kind)
            && datum[at + 20..].starts_with(&[1, 18])
    })
}

impl Capture {
    /// The code of what is found at the first pointer of `kind`, once `change` has changed it.
    fn code(&self, kind: u32, change: impl Fn(&mut [u8])) -> Vec<String> {
        let found = self.pointer(|pointer| nested(pointer.datum, kind).is_some());
        let at = nested(&found.datum, kind).unwrap();
        let all = self.check(&found, |datum| change(&mut datum[at..]));
        let own = all.iter().filter_map(|one| one.strip_suffix(&format!(" {}", found.place)));
        own.map(str::to_owned).collect()
    }
}

#[test]
fn versions_that_do_not_exist() {
    let capture = Capture::read("jsonb_toaster/bytea_append_boundary");
    let found = capture.pointer(|pointer| pointer.datum.len() >= 46);
    assert_eq!(capture.check(&found, |_| {}), [""; 0]);
    // head 14, ordinary pointer 16: the version before the chunks'
    let before = capture.check(&found, |datum| datum[30] = 1);
    assert_eq!(before, [format!("TC091 {}", found.place)]);
}

#[test]
fn pointers_that_contradict_themselves() {
    let capture = Capture::read("jsonb_toaster/json_array_small");
    let found = capture.pointer(|_| true);
    assert_eq!(capture.check(&found, |_| {}), [""; 0]);
    // the count of an array's elements, and where a chunk of it begins
    for at in [20, 36] {
        let damaged = capture.check(&found, |datum| datum[at] += 1);
        assert_eq!(damaged, [format!("TC090 {}", found.place)], "{at}");
    }
}

/// Checks a capture's files, of which some may be changed, with `--salvage left` in a directory.
fn salvaged(
    capture: &Capture,
    heap: &[u8],
    toast: &[u8],
) -> (tempfile::TempDir, Vec<Printed<Salvaged>>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("heap"), heap).unwrap();
    std::fs::write(dir.path().join("toast"), toast).unwrap();
    let columns = format!("@{}", capture.dir.join("meta.json").display());
    let done = run(toastctl()
        .current_dir(dir.path())
        .args(["check", "--relation-file", "heap", "--columns", &columns])
        .args(["--salvage", "left", "--toast-file", "toast"]));
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    // there is none if nothing is left of any value
    let manifest =
        std::fs::read_to_string(dir.path().join("left/manifest.jsonl")).unwrap_or_default();
    let lines = manifest.lines().map(Printed::read).collect();
    (dir, lines)
}

#[test]
fn of_a_pointer_that_contradicts_itself_the_bytes_are_saved() {
    let capture = Capture::read("jsonb_toaster/json_array_small");
    let found = capture.pointer(|_| true);
    let mut heap = capture.heap.clone();
    heap[found.at + 20] += 1;
    let toast = std::fs::read(capture.dir.join("toast.bin")).unwrap();
    let (dir, lines) = salvaged(&capture, &heap, &toast);
    let line = lines.iter().find(|line| line.code == "TC090").unwrap();
    assert!(line.note.as_deref().is_some_and(|note| note.contains("of a pluggable toaster")));
    let rest = line.file("rest").unwrap();
    let saved = std::fs::read(dir.path().join("left").join(&rest.file)).unwrap();
    assert_eq!(saved, heap[found.at..found.at + found.datum.len()]);
}

/// Where the line pointers of chunks stand in a TOAST relation's file, by value and in the order of their numbers.
fn chunks_of(toast: &[u8]) -> BTreeMap<u32, Vec<(u32, usize)>> {
    let mut all: BTreeMap<u32, Vec<(u32, usize)>> = BTreeMap::new();
    for (block, bytes) in toast.chunks_exact(8192).enumerate() {
        let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
        for (item, pointer) in page.line_pointers() {
            let Ok(tuple) = page.tuple_bytes(pointer) else { continue };
            let tuple = HeapTuple::parse(tuple, ByteOrder::Little).unwrap();
            let word = |at| ByteOrder::Little.u32(tuple.data, at).unwrap();
            let at = block * 8192 + 24 + 4 * (usize::from(item) - 1);
            all.entry(word(0)).or_default().push((word(4), at));
        }
    }
    all.values_mut().for_each(|own| own.sort_unstable());
    all
}

#[test]
fn the_chunks_that_exist_of_a_toasters_value_are_saved() {
    for (name, has_content) in
        [("bytea_append_many", true), ("json_cchunks", false), ("json_tids", false)]
    {
        let capture = Capture::read(&format!("jsonb_toaster/{name}"));
        let toast = std::fs::read(capture.dir.join("toast.bin")).unwrap();
        let mut shown = 0;
        for (id, chunks) in chunks_of(&toast).into_iter().filter(|(_, own)| own.len() >= 4) {
            let mut changed = toast.clone();
            changed[chunks[1].1..chunks[1].1 + 4].fill(0);
            let (dir, lines) = salvaged(&capture, &capture.heap, &changed);
            let Some(line) = lines.iter().find(|line| line.value_id == Some(id)) else { continue };
            assert!(line.chunks_found.len() >= chunks.len() - 1, "{name}: {line}");
            let stray = line.file("stray").unwrap();
            let saved = std::fs::read(dir.path().join("left").join(&stray.file)).unwrap();
            assert!(saved.len() > 1000 * (chunks.len() - 2), "{name}: {}", saved.len());
            assert!(!line.whole);
            if has_content {
                let ranges = &line.file("content").unwrap().ranges;
                assert!(ranges.len() == 2 && ranges[0][0] == 0, "{line}");
            }
            shown += 1;
            break;
        }
        assert_eq!(shown, 1, "{name}");
    }
}

#[test]
fn sound_values_of_toasters_are_sound_and_notes_say_which_are_meant() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures/jsonb_toaster");
    let mut shown = 0;
    for entry in std::fs::read_dir(captures).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let mut command = toastctl();
        command.current_dir(&dir).args(["check", "--deep", "--format", "json", "--columns"]);
        command.args(["@meta.json", "--relation-file", "heap.bin"]);
        for (option, file) in [("--toast-file", "toast.bin"), ("--xact", "pg_xact_0000.bin")] {
            if dir.join(file).exists() {
                command.args([option, file]);
            }
        }
        let done = run(&mut command);
        // the server itself has damaged a copy; nothing says what became of transactions
        let unsound = ["json_copy_broken", "json_vacuum_full", "json_cchunks_packed"];
        let is_sound = !unsound.contains(&name.as_str());
        let report = done.report::<Report>();
        let checked = &report.relations[0];
        println!("{name}: {:?} {checked:?}", done.code);
        if is_sound {
            assert_eq!(done.code, Some(0), "{name}: {report}");
        }
        assert!(checked.values == 0 || checked.chunks > 0, "{name}: {report}");
        let stale: Vec<&String> =
            checked.notes.iter().filter(|note| note.contains("in two ways")).collect();
        if name.contains("diff_plain") {
            assert!(stale.len() == 1 && stale[0].contains("heap.bin, block 0, item "), "{stale:?}");
        }
        shown += 1;
    }
    assert!(shown > 30, "{shown}");
}

#[test]
fn tids_that_lead_elsewhere_and_lists_that_are_broken() {
    let plain = Capture::read("jsonb_toaster/json_tids");
    assert_eq!(plain.code(2, |_| {}), [""; 0]);
    // the first TID's item, the count, an item of 0
    assert_eq!(plain.code(2, |datum| datum[42] ^= 1), ["TC092"]);
    assert_eq!(plain.code(2, |datum| datum[16] += 1), ["TC094"]);
    assert_eq!(plain.code(2, |datum| datum[42] = 0), ["TC094"]);
    let compressed = Capture::read("jsonb_toaster/json_tids_comp");
    assert_eq!(compressed.code(3, |_| {}), [""; 0]);
    // the segment's count
    assert_eq!(compressed.code(3, |datum| datum[38] += 1), ["TC094"]);
}

#[test]
fn patches_beyond_the_value() {
    for (name, kind) in [("json_diff_plain", 5), ("json_cchunks_diff", 6)] {
        let capture = Capture::read(&format!("jsonb_toaster/{name}"));
        assert_eq!(capture.code(kind, |_| {}), [""; 0]);
        assert_eq!(capture.code(kind, |datum| datum[41] = 9), ["TC093"], "{name}");
    }
}

/// A value that was compressed as a whole and then chunk by chunk is there, and the server fails on it.
#[test]
fn values_on_which_the_server_is_known_to_fail_are_found() {
    let dir = standin::capture("jsonb_toaster", "json_cchunks_packed");
    let done = run(toastctl().current_dir(&dir).args(["check", "--format", "json"]).args([
        "--columns",
        "@meta.json",
        "--relation-file",
        "heap.bin",
        "--toast-file",
        "toast.bin",
    ]));
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    let report = done.report::<Report>();
    let found: Vec<(&str, Option<u64>)> =
        report.findings.iter().map(|finding| (&*finding.code, finding.item)).collect();
    assert_eq!(found, [("TC095", Some(4))], "{report}");
}

#[test]
fn a_flavor_that_does_not_fit_is_no_damage() {
    for (name, columns) in [
        ("jsonb_toaster/bytea_fresh", "id int4, b bytea"),
        ("jsonb_toaster/json_talk", "id int4, js jsonb"),
    ] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures").join(name);
        for flavor in ["16-bit", "head-only", "auto"] {
            let mut command = toastctl();
            command.current_dir(&dir).args(["check", "--relation-file", "heap.bin"]);
            command.args(["--toast-file", "toast.bin", "--columns", columns, "--flavor", flavor]);
            let found = run(&mut command);
            if flavor == "auto" {
                assert_eq!(found.code, Some(0), "{name}: {}{}", found.stdout, found.stderr);
                continue;
            }
            let said = format!("--flavor {flavor} does not fit: ");
            assert_eq!((found.code, found.stdout.as_str()), (Some(2), ""), "{name} {flavor}");
            assert!(found.stderr.contains(&said), "{name}: {}", found.stderr);
        }
    }
}
