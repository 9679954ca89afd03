//! `check` on values of pluggable toasters, by relation files of servers that have them.

use std::path::{Path, PathBuf};

use crate::support::checked::told;
use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::check::Salvaged;
use crate::support::standin;
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::check::subject::Depth;
use toastctl::disk::ByteOrder;
use toastctl::disk::custom::{CustomFlavor, CustomPointer};
use toastctl::disk::layout::PageSize;
use toastctl::disk::page::{LinePointerState, Page, PageState};
use toastctl::disk::tuple::HeapTuple;
use toastctl::disk::varlena::Varlena;
use toastctl::disk::walk::{Datum, Walk};
use toastctl::offline::columns::parse_json;
use toastctl::offline::target::FileTarget;
use toastctl::offline::xact::PgXact;

struct Capture {
    dir: PathBuf,
    desc: toastctl::disk::desc::TupleDesc,
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

#[test]
fn the_manifest_says_that_values_of_other_toasters_are_not_saved() {
    let capture = Capture::read("jsonb_toaster/json_array_small");
    let found = capture.pointer(|_| true);
    let dir = tempfile::tempdir().unwrap();
    let mut heap = capture.heap.clone();
    heap[found.at + 20] += 1;
    std::fs::write(dir.path().join("heap"), heap).unwrap();
    let columns = format!("@{}", capture.dir.join("meta.json").display());
    let done = run(toastctl()
        .current_dir(dir.path())
        .args(["check", "--relation-file", "heap", "--columns", &columns])
        .args(["--salvage", "left", "--toast-file"])
        .arg(capture.dir.join("toast.bin")));
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    let manifest = std::fs::read_to_string(dir.path().join("left/manifest.jsonl")).unwrap();
    let line = Printed::<Salvaged>::read(&manifest);
    assert_eq!(line.note.as_deref(), Some("values of pluggable toasters are not saved"));
    assert_eq!((line.files.len(), line.raw_size), (0, None), "{line}");
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
