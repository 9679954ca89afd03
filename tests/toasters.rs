//! Every value of every capture put together and compared with what the server answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use md5::{Digest, Md5};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use toast_format::disk::columns::parse_json;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::layout::PageSize;
use toast_format::disk::numeric::Numeric;
use toast_format::disk::page::{LinePointerState, Page, PageState};
use toast_format::disk::tuple::HeapTuple;
use toast_format::disk::varlena::Varlena;
use toast_format::disk::walk::{Datum, Walk};
use toast_format::disk::{BlockNumber, ByteOrder, ItemPointer, Oid};
use toast_format::model::toaster::catalog::{Handler, PluggableToaster, Toasters};
use toast_format::model::toaster::chunks::ChunkStore;
use toast_format::model::toaster::describe::{PointerKind, describe};
use toast_format::model::toaster::error::ToastError;
use toast_format::model::toaster::reassemble::{Logical, Reassembler};
use toast_format::model::visibility::{HintBits, Transactions, Visibility, visibility};
use toastctl::offline::file::RelationFile;
use toastctl::offline::toastfile::{ToastFile, id_type};
use toastctl::offline::xact::PgXact;

const ORDER: ByteOrder = ByteOrder::Little;
const PAGE: PageSize = PageSize::DEFAULT;

struct Capture {
    name: String,
    dir: PathBuf,
    meta: Value,
    desc: TupleDesc,
    heap: Vec<u8>,
    /// By `ctid`.
    truth: BTreeMap<String, Value>,
}

fn captures() -> Vec<Capture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures");
    let mut dirs = Vec::new();
    for server in std::fs::read_dir(root).unwrap() {
        let server = server.unwrap().path();
        if server.is_dir() {
            dirs.extend(std::fs::read_dir(server).unwrap().map(|table| table.unwrap().path()));
        }
    }
    dirs.sort();
    assert!(dirs.len() >= 60, "{} captures", dirs.len());
    dirs.into_iter().map(|dir| Capture::read(&dir)).collect()
}

impl Capture {
    fn read(dir: &Path) -> Capture {
        let text = |name| std::fs::read_to_string(dir.join(name)).unwrap();
        let meta: Value = serde_json::from_str(&text("meta.json")).unwrap();
        let truth = text("truth.jsonl")
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|row| (row["ctid"].as_str().unwrap().to_owned(), row))
            .collect();
        let mut name = dir.components().rev().take(2).map(|c| c.as_os_str().to_str().unwrap());
        let (table, server) = (name.next().unwrap(), name.next().unwrap());
        Capture {
            name: format!("{server}/{table}"),
            desc: parse_json(&meta["columns"].to_string()).unwrap(),
            heap: std::fs::read(dir.join("heap.bin")).unwrap(),
            dir: dir.to_owned(),
            meta,
            truth,
        }
    }

    fn toasters(&self) -> Toasters {
        let Some(rows) = self.meta["pg_toaster"].as_array() else { return Toasters::by_bytes() };
        let row = |row: &Value| PluggableToaster {
            oid: Oid(row["oid"].as_u64().unwrap() as u32),
            name: row["tsrname"].as_str().unwrap().to_owned(),
            handler: Handler::from_function(row["tsrhandler"].as_str().unwrap()),
        };
        Toasters::new(rows.iter().map(row).collect())
    }

    /// `pg_xact` where the capture has it.
    fn fates(&self) -> Option<PgXact> {
        let xact = self.dir.join("pg_xact_0000.bin");
        xact.exists().then(|| PgXact::open(&xact).unwrap())
    }

    fn toast(&self) -> Option<ToastFile<Option<PgXact>>> {
        self.toast_with(self.fates())
    }

    fn toast_with<T: Transactions>(&self, fates: T) -> Option<ToastFile<T>> {
        let path = self.dir.join("toast.bin");
        if !path.exists() {
            return None;
        }
        let file = RelationFile::open(&path, PAGE).unwrap();
        let store = ToastFile::open(file, id_type(&path, PAGE), fates).unwrap();
        assert_eq!(store.problems().kept(), &[], "{}", self.name);
        Some(store)
    }

    /// All tuples with their addresses.
    fn tuples(&self) -> Vec<(ItemPointer, HeapTuple<'_>)> {
        let mut tuples = Vec::new();
        for (block, bytes) in (0..).zip(self.heap.chunks_exact(PAGE.bytes())) {
            let PageState::Used(page) = Page::parse(bytes).unwrap() else { continue };
            for (number, item) in page.line_pointers() {
                if item.state == LinePointerState::Normal {
                    let tuple = HeapTuple::parse(page.tuple_bytes(item).unwrap(), ORDER).unwrap();
                    tuples.push((ItemPointer { block: BlockNumber(block), item: number }, tuple));
                }
            }
        }
        tuples
    }

    /// The live tuples with their truth.
    fn rows(&self) -> Vec<(HeapTuple<'_>, &Value)> {
        let fates = self.fates();
        let live: Vec<_> = self
            .tuples()
            .into_iter()
            .filter(|(_, tuple)| visibility(tuple, &fates) == Visibility::Live)
            .map(|(tid, tuple)| (tuple, &self.truth[&tid.to_string()]))
            .collect();
        assert_eq!(live.len(), self.truth.len(), "{}", self.name);
        live
    }
}

fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// The text of an `int8[]` of one dimension.
fn int8_array_text(content: &[u8]) -> String {
    let word = |at| ORDER.u32(content, at).unwrap();
    assert_eq!((word(0), word(4), word(8)), (1, 0, 20), "one dimension, no nulls, int8");
    let elements = content[20..].chunks_exact(8);
    assert_eq!(elements.len(), word(12) as usize);
    let elements: Vec<String> =
        elements.map(|e| i64::from_le_bytes(e.try_into().unwrap()).to_string()).collect();
    format!("{{{}}}", elements.join(","))
}

/// The md5 of the value's text as the truth has it; `None` for types whose text is not made here.
fn text_md5<S: ChunkStore>(
    type_name: &str,
    value: &Logical<'_>,
    reassembler: &mut Reassembler<'_, S>,
) -> Result<Option<String>, ToastError> {
    Ok(Some(match type_name {
        "text" | "varchar" | "bpchar" | "json" | "bytea" => md5(value.content()?),
        "jsonb" => {
            let mut text = Vec::new();
            reassembler.jsonb_text(value, &mut text)?;
            md5(&text)
        }
        "numeric" => {
            let mut text = Vec::new();
            Numeric::parse(value.content()?, ORDER).unwrap().write_text(&mut text);
            md5(&text)
        }
        "_int8" if value.content()?.starts_with(&[1, 0, 0, 0]) => {
            md5(int8_array_text(value.content()?).as_bytes())
        }
        _ => return Ok(None),
    }))
}

/// What was compared.
#[derive(Debug, Default)]
struct Tally {
    equal: u64,
    intended: u64,
    not_compared: u64,
    errors: Vec<String>,
    /// Values by form.
    kinds: BTreeMap<String, u64>,
    /// Values that have such a part.
    parts: BTreeMap<&'static str, u64>,
}

fn check_value<S: ChunkStore>(
    tally: &mut Tally,
    place: &str,
    type_name: &str,
    value: &Varlena<'_>,
    truth: &Value,
    reassembler: &mut Reassembler<'_, S>,
) {
    assert_eq!(truth["null"], false, "{place}");
    let kind = match value {
        Varlena::Short { .. } => "short".to_owned(),
        Varlena::Plain { .. } => "plain".to_owned(),
        Varlena::Compressed { .. } => "compressed".to_owned(),
        Varlena::External(_) => "external".to_owned(),
        Varlena::Custom(pointer) => match describe(pointer, reassembler.toasters, PAGE) {
            Ok(description) => {
                let name = |kind: PointerKind| kind.name();
                let mut parts: Vec<_> =
                    description.parts.iter().map(|part| name(part.kind)).collect();
                parts.sort_unstable();
                parts.dedup();
                for part in parts {
                    *tally.parts.entry(part).or_default() += 1;
                }
                format!("{} {}", description.toaster.name, name(description.kind))
            }
            Err(_) => "custom damaged".to_owned(),
        },
        Varlena::Unknown { .. } => "unknown".to_owned(),
    };
    *tally.kinds.entry(kind).or_default() += 1;
    let text = |key: &str| truth[key].as_str().map(str::to_owned);
    let result = reassembler.value(value).and_then(|value| {
        let md5 = text_md5(type_name, &value, reassembler)?;
        if let (Logical::Content(content), Some(raw)) = (&value, truth["raw_size"].as_u64()) {
            assert_eq!(content.len() as u64 + 4, raw, "{place}");
        }
        Ok(md5)
    });
    match result {
        Err(error) => {
            assert!(text("server_error").is_some(), "{place}: {error}");
            tally.errors.push(error.to_string());
        }
        Ok(None) => tally.not_compared += 1,
        Ok(md5) if text("server_error").is_some() => {
            assert_eq!(md5, text("intended_md5"), "{place}");
            tally.intended += 1;
        }
        Ok(md5) if md5 == text("md5") => tally.equal += 1,
        Ok(md5) => {
            assert_eq!(md5, text("intended_md5"), "{place}");
            tally.intended += 1;
        }
    }
}

#[test]
fn every_value_is_what_the_server_answers_or_was_meant_to() {
    let mut report = String::new();
    for capture in captures() {
        let toasters = capture.toasters();
        let mut store = capture.toast();
        let mut tally = Tally::default();
        for (tuple, truth) in capture.rows() {
            for item in Walk::new(&tuple, &capture.desc) {
                let (column, datum) =
                    item.unwrap_or_else(|e| panic!("{} id {}: {e:?}", capture.name, truth["id"]));
                let Datum::Varlena(value) = datum else { continue };
                if column.dropped {
                    continue;
                }
                let place = format!("{} id {} {}", capture.name, truth["id"], column.name);
                let truth = &truth["cols"][&column.name];
                let order = ORDER;
                let (page, toasters) = (PAGE, &toasters);
                let mut r = Reassembler { store: &mut store, toasters, page, order };
                check_value(&mut tally, &place, &column.type_name, &value, truth, &mut r);
            }
        }
        let Tally { equal, intended, not_compared, errors, kinds, parts } = tally;
        let kinds: Vec<String> =
            kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let parts: Vec<String> =
            parts.iter().map(|(kind, count)| format!("; with {kind}: {count}")).collect();
        writeln!(
            report,
            "{}: {equal} equal, {intended} as intended, {not_compared} without text\n  {}{}",
            capture.name,
            kinds.join(", "),
            parts.concat()
        )
        .unwrap();
        for error in errors {
            writeln!(report, "  error: {error}").unwrap();
        }
    }
    insta::assert_snapshot!(report);
}

/// The custom pointers of the live rows, as they stand.
fn custom_pointers(capture: &Capture) -> Vec<Vec<u8>> {
    let mut pointers = Vec::new();
    for (tuple, _) in capture.rows() {
        for item in Walk::new(&tuple, &capture.desc) {
            if let Datum::Varlena(Varlena::Custom(pointer)) = item.unwrap().1 {
                pointers.push(pointer.datum.to_vec());
            }
        }
    }
    pointers
}

fn parse(datum: &[u8]) -> Varlena<'_> {
    Varlena::parse(datum, ORDER).unwrap().0
}

#[test]
fn a_toaster_is_recognized_by_the_bytes_of_its_pointers() {
    let mut pointers = 0;
    for capture in captures() {
        let toasters = capture.toasters();
        for datum in custom_pointers(&capture) {
            let Varlena::Custom(pointer) = parse(&datum) else { panic!("{}", capture.name) };
            let handler = toasters.writer(&pointer).handler;
            assert_eq!(Toasters::by_bytes().writer(&pointer).handler, handler, "{}", capture.name);
            pointers += 1;
        }
    }
    assert!(pointers > 400, "{pointers} pointers");
}

#[test]
fn the_chunks_a_pointer_names_are_those_in_the_file() {
    let (mut by_id, mut by_tid) = (0, 0);
    for capture in captures() {
        let (toasters, Some(mut store)) = (capture.toasters(), capture.toast()) else { continue };
        let held: BTreeMap<u64, (u64, u64)> = store
            .values()
            .map(|value| (value.value_id.0, (value.live, value.live_bytes)))
            .collect();
        if let Some(values) = capture.meta["toast_relations"][0]["values"].as_array() {
            for value in values {
                let number = |key: &str| value[key].as_u64().unwrap();
                let live = held[&number("id")];
                // the capture counts each chunk's varlena header too
                let bytes = number("stored_bytes") - 4 * number("chunks");
                assert_eq!(live, (number("chunks"), bytes), "{}", capture.name);
            }
            assert_eq!(held.values().filter(|(live, _)| *live > 0).count(), values.len());
        }
        for datum in custom_pointers(&capture) {
            let Varlena::Custom(pointer) = parse(&datum) else { panic!("{}", capture.name) };
            if capture.name.ends_with("json_copy_broken") {
                assert!(describe(&pointer, &toasters, PAGE).is_err());
                continue;
            }
            let description = describe(&pointer, &toasters, PAGE).unwrap();
            for part in &description.parts {
                if let Some(value) = part.value {
                    let (chunks, bytes) = held[&value.value_id.0];
                    if let Some(expected) = part.chunks {
                        assert_eq!(chunks, u64::from(expected), "{} {part:?}", capture.name);
                    }
                    let expected = match part.kind {
                        // the version in front of each
                        PointerKind::Appendable => part.chunk_bytes.unwrap() + 8 * chunks,
                        // compressed one by one: the pointer does not tell
                        PointerKind::Jsonx(4 | 6) => bytes,
                        _ => part.chunk_bytes.unwrap(),
                    };
                    assert_eq!(bytes, expected, "{} {part:?}", capture.name);
                    by_id += 1;
                }
                for (seq, &tid) in part.tids.iter().enumerate() {
                    let chunk = store.chunk_at(part.relation.unwrap(), tid).unwrap().unwrap();
                    match part.value {
                        Some(value) => assert_eq!(
                            (chunk.value_id, chunk.seq),
                            (value.value_id, i32::try_from(seq).unwrap())
                        ),
                        None => assert_eq!(chunk.seq, 0),
                    }
                    by_tid += 1;
                }
            }
        }
    }
    assert!(by_id > 300 && by_tid > 500, "{by_id} values, {by_tid} TIDs");
}

#[test]
fn without_commit_status_the_length_tells_a_void_chunk() {
    let mut values = 0;
    for capture in captures().into_iter().filter(|c| c.name.ends_with("bytea_aborted_nohint")) {
        let toasters = capture.toasters();
        let mut store = capture.toast_with(HintBits).unwrap();
        for (tuple, truth) in capture.rows() {
            for item in Walk::new(&tuple, &capture.desc) {
                let (column, datum) = item.unwrap();
                let Datum::Varlena(value) = datum else { continue };
                let (page, order) = (PAGE, ORDER);
                let mut reassembler =
                    Reassembler { store: &mut store, toasters: &toasters, page, order };
                let value = reassembler.value(&value).unwrap();
                let expected = truth["cols"][&column.name]["md5"].as_str().unwrap();
                assert_eq!(md5(value.content().unwrap()), expected);
                values += 1;
            }
        }
    }
    assert_eq!(values, 11);
}

#[test]
fn a_damaged_pointer_is_a_value_or_an_error() {
    let mut random = StdRng::seed_from_u64(7);
    let (mut values, mut errors) = (0u64, 0u64);
    for capture in captures() {
        let (toasters, Some(mut store)) = (capture.toasters(), capture.toast()) else { continue };
        let originals = custom_pointers(&capture);
        for original in &originals {
            for round in 0..200usize.div_ceil(originals.len()) * 8 {
                let mut datum = original.clone();
                match round % 4 {
                    0 => datum.truncate(random.random_range(0..datum.len())),
                    1 => {
                        let at = random.random_range(2..datum.len());
                        datum[at] = random.random();
                    }
                    2 => {
                        let at = random.random_range(2..datum.len().min(64));
                        datum[at] ^= 1 << random.random_range(0..8);
                    }
                    _ => {
                        for _ in 0..random.random_range(1..5) {
                            let at = random.random_range(2..datum.len());
                            datum[at] = [0, 1, 0x7F, 0x80, 0xFF, random.random()]
                                [random.random_range(0..6)];
                        }
                    }
                }
                let Ok((value, _)) = Varlena::parse(&datum, ORDER) else {
                    errors += 1;
                    continue;
                };
                for toasters in [&toasters, &Toasters::by_bytes()] {
                    if let Varlena::Custom(pointer) = &value {
                        let _ = describe(pointer, toasters, PAGE);
                    }
                    let mut reassembler =
                        Reassembler { store: &mut store, toasters, page: PAGE, order: ORDER };
                    let text = reassembler.value(&value).and_then(|value| {
                        let mut text = Vec::new();
                        reassembler.jsonb_text(&value, &mut text)
                    });
                    match text {
                        Ok(()) => values += 1,
                        Err(_) => errors += 1,
                    }
                }
            }
        }
    }
    assert!(values > 5_000 && errors > 50_000, "{values} values, {errors} errors");
}

/// `toastctl inspect` on a capture's files.
/// Runs a verb on a capture's files.
fn toastctl(capture: &Capture, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toastctl"));
    // as users would name them, so that reports do not hold the place of this directory
    command.current_dir(&capture.dir).env("COLUMNS", "120").env("LC_ALL", "C.UTF-8");
    command.args(arguments);
    command.args(["--relation-file", "heap.bin", "--columns", "@meta.json"]);
    for (option, file) in [("--toast-file", "toast.bin"), ("--xact", "pg_xact_0000.bin")] {
        if capture.dir.join(file).exists() {
            command.args([option, file]);
        }
    }
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_command_puts_every_value_together() {
    let mut compared = 0;
    for capture in captures() {
        let output = toastctl(&capture, &["value", "--reassemble", "--format", "jsonl"]);
        let (mut errors, mut failures) = (0, 0);
        for row in stdout(&output).lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            if row["form"] == "missing" {
                continue;
            }
            let column = row["column"].as_str().unwrap();
            let truth = &capture.truth[row["ctid"].as_str().unwrap()]["cols"][column];
            let (Some(column), Some(expected)) = (
                capture
                    .desc
                    .attributes
                    .iter()
                    .find(|a| a.name == column && a.length.attlen() == -1),
                truth["intended_md5"].as_str().or(truth["md5"].as_str()),
            ) else {
                continue;
            };
            let md5 = match column.type_name.as_str() {
                "bytea" => &row["md5"],
                _ => &row["text_md5"],
            };
            let place = format!("{} {row}", capture.name);
            match md5.as_str() {
                Some(_) if truth["md5"].as_str() == md5.as_str() => compared += 1,
                Some(md5) => {
                    assert_eq!(md5, expected, "{place}");
                    compared += 1;
                }
                None if truth["server_error"].is_string() => errors += 1,
                None if row["md5"].is_null() => failures += 1,
                // a type whose text is not made
                None => {}
            }
        }
        assert_eq!(failures, 0, "{}", capture.name);
        assert_eq!(output.status.code(), Some(i32::from(errors > 0)), "{}", capture.name);
    }
    assert!(compared > 1_100, "{compared}");
}

#[test]
fn reports_count_toasters_and_orphans() {
    let wanted = [
        "jsonb_toaster/bytea_rewritten",
        "jsonb_toaster/json_cchunks_root",
        "jsonb_toaster/json_copy_broken",
        "jsonb_toaster/json_multi",
        "jsonb_toaster/json_shortkeys",
        "pg15/states",
        "toasterapi_backup/dummy_basic",
        "toasterapi_clean/default_head_only",
    ];
    let mut report = String::new();
    for capture in captures().into_iter().filter(|c| wanted.contains(&c.name.as_str())) {
        let output = toastctl(&capture, &["inspect"]);
        let code = output.status.code().unwrap();
        writeln!(report, "## {} (exit {code})\n{}", capture.name, stdout(&output)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn orphans_are_what_no_pointer_names() {
    let mut orphans = BTreeMap::new();
    for capture in captures() {
        let output = toastctl(&capture, &["inspect", "--format", "json"]);
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let toast = &report["tables"][0]["details"]["toast"];
        if toast["orphans"].is_object() {
            let listed = capture.meta["toast_relations"][0]["values"].as_array();
            if let Some(values) = listed.filter(|_| !capture.name.starts_with("pg15")) {
                let described = toast["orphans"]["values"].as_u64().unwrap();
                assert!(described <= values.len() as u64, "{}", capture.name);
            }
            orphans.insert(capture.name, toast["orphans"]["values"].as_u64().unwrap());
        }
    }
    let some: Vec<_> = orphans.iter().filter(|(_, count)| **count > 0).collect();
    insta::assert_snapshot!(
        some.iter().map(|(name, count)| format!("{name}: {count}\n")).collect::<String>()
    );
    assert!(
        orphans.iter().filter(|(name, _)| name.starts_with("pg15")).all(|(_, count)| *count == 0)
    );
}

#[test]
fn one_value_is_taken_apart() {
    let wanted = [
        ("jsonb_toaster/bytea_append_once", "a@(0,11)"),
        ("jsonb_toaster/json_array_updates", "js@(1,1)"),
        ("jsonb_toaster/json_array_updates", "js@(0,4)"),
        ("jsonb_toaster/json_cchunks_root", "js@(0,3)"),
        ("jsonb_toaster/json_copy_broken", "js@(0,1)"),
        ("jsonb_toaster/json_nested", "js@(0,1)"),
        ("pg15/states", "lz@(1,5)"),
        ("pg15/states", "bz@(4,1)"),
        ("pg15/states", "nothing@(0,1)"),
        ("pg15/states", "lz@(0,900)"),
        ("pg15/states", "lz@(9,9)"),
        ("pg15/states", "lz"),
    ];
    let captures = captures();
    let mut report = String::new();
    for (name, spec) in wanted {
        let capture = captures.iter().find(|c| c.name == name).unwrap();
        let output = toastctl(capture, &["value", spec]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap();
        writeln!(report, "## {name} {spec} (exit {code})\n{}{stderr}", stdout(&output)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn values_are_written_to_files() {
    let captures = captures();
    let capture = captures.iter().find(|c| c.name == "jsonb_toaster/json_talk").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("a/b");
    let arguments = ["value", &format!("--reassemble={}", target.display())];
    assert!(toastctl(capture, &arguments).status.success());
    let mut written = 0;
    for (ctid, row) in &capture.truth {
        let (block, item) = ctid.trim_matches(['(', ')']).split_once(',').unwrap();
        let Some(expected) = row["cols"]["js"]["md5"].as_str() else { continue };
        let number = capture.desc.attributes.iter().position(|a| a.name == "js").unwrap() + 1;
        let text = std::fs::read(target.join(format!("heap.bin.{block}.{item}.{number}.js.json")));
        assert_eq!(md5(&text.unwrap()), expected);
        written += 1;
    }
    assert!(written > 20);
}
