//! The directory of `--salvage`: files for what is left of values, a manifest of them, SQL that loads the rows that they
//! stand in, and SQL that makes these readable again. None of it is ever run.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::code::Code;
use super::finding::{Checked, Finding};
use super::formats::check_content;
use super::repair::is_of_content;
use super::repair_script::RepairScript;
use super::salvage::{
    ByteRuns, Cell, RowFindings, SalvagedRow, SalvagedValue, StoredShape, damaged_row_of,
};
use crate::value::contents::named;
use toast_format::disk::type_kind::Types;
use toast_format::disk::types::is_text_like;
use toast_format::disk::{Attribute, ByteOrder, ItemPointer, TupleDesc};
use toast_format::model::sql::{LONGEST_NAME, quote_identifier, quote_qualified, truncated};

/// Name and version of the manifest's lines.
const SCHEMA: &str = "toastctl.salvage/1";
/// Findings of values of one relation that are saved at the most.
const MAX_WANTED: usize = 100_000;
/// Statements that are shown; all are in the file.
const MAX_SHOWN: usize = 20;

/// A line of the manifest. Sizes and offsets are bytes.
#[derive(Debug, Serialize)]
struct ManifestLine<'a> {
    schema: &'static str,
    relation: &'a str,
    block: u32,
    item: u16,
    column: &'a str,
    code: &'static str,
    #[serde(flatten)]
    shape: &'a StoredShape,
    /// Whether the file of the content has all of it, as it was: no byte is missing, damaged, or in a place that damaged
    /// numbers gave it.
    whole: bool,
    files: Vec<ValueFile>,
    guesses: &'a [String],
    note: Option<&'static str>,
}

/// What a file has of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FileKind {
    Content,
    /// Its text, as COPY reads it.
    Text,
    /// The stored bytes, where they are compressed.
    Stored,
    /// Chunks that have no place in the value, one behind the other.
    Stray,
    /// Bytes of the tuple from the value on.
    Rest,
}

/// A file. What lies between its ranges is zeros.
#[derive(Debug, Serialize)]
struct ValueFile {
    kind: FileKind,
    file: String,
    /// Offset and length of each, in bytes.
    ranges: Vec<[u64; 2]>,
}

/// Where a value stands.
#[derive(Debug, Clone, Copy)]
struct ValuePlace<'a> {
    relation: &'a str,
    ctid: ItemPointer,
    column: &'a str,
}

/// A relation whose rows are saved.
#[derive(Debug)]
pub(super) struct SavedRelation<'a> {
    /// Its name in findings.
    pub(super) name: String,
    /// The same quoted, as SQL.
    pub(super) quoted: String,
    /// The table that takes its saved rows, quoted too.
    pub(super) copy: String,
    pub(super) desc: &'a TupleDesc,
    /// What its columns' types are made of.
    pub(super) types: Types,
    pub(super) encoding: Option<&'a str>,
}

impl SavedRelation<'_> {
    pub(super) fn is_utf8(&self) -> bool {
        self.encoding == Some("UTF8")
    }

    /// Whether a value is whole, and one of its column's type.
    pub(super) fn is_sound(
        &self,
        column: &Attribute,
        saved: &SalvagedValue,
        order: ByteOrder,
    ) -> bool {
        saved.content().is_some_and(|content| {
            check_content(column, content, order, self.is_utf8(), &self.types).is_none()
        })
    }
}

/// What is to be saved of one table. A check that ends early takes its values with it: the next table has others at their
/// places.
pub(super) struct TableSalvage<'d> {
    /// `None` where nothing is saved.
    pub(super) dir: Option<&'d mut SalvageDir>,
    damaged: BTreeMap<ItemPointer, Vec<(String, Code)>>,
    /// How many findings they have.
    findings: usize,
    /// Findings beyond those that are saved.
    more: u64,
}

impl<'d> TableSalvage<'d> {
    /// Nothing yet, and where it is to go.
    pub(super) fn new(dir: Option<&'d mut SalvageDir>) -> TableSalvage<'d> {
        TableSalvage { dir, damaged: BTreeMap::new(), findings: 0, more: 0 }
    }

    /// Notes a finding in `relation`, if it is of a value.
    pub(super) fn note(&mut self, relation: &str, finding: &Finding) {
        let Some(ctid) = damaged_row_of(relation, finding) else { return };
        if self.findings >= MAX_WANTED {
            self.more += 1;
            return;
        }
        self.findings += 1;
        let columns = self.damaged.entry(ctid).or_default();
        if let Some(column) = &finding.place.column
            && columns.iter().all(|(known, _)| known != column)
        {
            columns.push((column.clone(), finding.code));
        }
    }

    /// The rows noted, in order; that there are more is noted in `checked`.
    pub(super) fn take_damaged(&mut self, checked: &mut Checked) -> Vec<RowFindings> {
        if self.more > 0 && self.dir.is_some() {
            checked.leave_out(format!(
                "damaged values of {} beyond the first {MAX_WANTED} were neither saved nor repaired ({} more findings): \
                 repair those, then check again",
                checked.relation, self.more
            ));
        }
        let damaged = std::mem::take(&mut self.damaged).into_iter();
        damaged.map(|(ctid, columns)| RowFindings { ctid, columns }).collect()
    }
}

/// What a directory has been given.
#[derive(Debug, Default)]
struct Written {
    /// Values that something is left of, and all.
    saved: u64,
    all: u64,
    /// Values to which no row that could be read refers.
    without_row: u64,
    /// How much there is of the first values.
    parts: Vec<String>,
    shown: Vec<String>,
    /// Values that they set to NULL.
    nulls: usize,
    /// Whether there are statements, and not only comments.
    has_sql: bool,
    /// Whether there is either.
    has_script: bool,
}

/// A directory that takes what is left of values.
#[derive(Debug)]
pub struct SalvageDir {
    dir: PathBuf,
    manifest: Appended,
    rows: Appended,
    sql: Appended,
    written: Written,
}

const REPAIR: &str = "-- Written by toastctl check --salvage, and never run by it.\n\
     -- Copy the table's files before you run anything, and read each statement: what could be read of the\n\
     -- damaged values is in the files of this directory. Run the statements in order with psql, each in a\n\
     -- transaction of its own (psql -v ON_ERROR_STOP=1 -f repair.sql).\n\
     -- One that names a row finds it only as it was found. Then check the table again.\n\
     -- \"tuple concurrently deleted\" (or updated) says that chunks of the value were deleted and are still\n\
     -- to be vacuumed: VACUUM the table once older transactions have ended, then run it again.\n\n";
const ROWS: &str = "-- Written by toastctl check --salvage, and never run by it: psql -f rows.sql loads the damaged\n\
     -- rows into new tables. A value that could not be read whole is NULL in them. Values\n\
     -- that the manifest marks as guesses may be wrong.\n";

impl SalvageDir {
    /// Makes the directory, with its manifest and the files for SQL. One that has files already is refused, for they
    /// may be what an earlier run has saved.
    pub fn create(dir: &Path) -> io::Result<SalvageDir> {
        if dir.is_file() {
            let error = format!("\"{}\" is a file: a directory is expected", dir.display());
            return Err(io::Error::other(error));
        }
        let is_empty = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| Ok(std::fs::read_dir(dir)?.next().is_none()))
            .map_err(|error| named("directory", dir, &error))?;
        if !is_empty {
            let error =
                "it is not empty, and may have what an earlier run has saved; name a new directory";
            return Err(named("directory", dir, &io::Error::other(error)));
        }
        let manifest = Appended::create(dir.join("manifest.jsonl"))?;
        let mut rows = Appended::create(dir.join("rows.sql"))?;
        let mut sql = Appended::create(dir.join("repair.sql"))?;
        sql.append(REPAIR.as_bytes())?;
        rows.append(ROWS.as_bytes())?;
        Ok(SalvageDir { dir: dir.to_owned(), manifest, rows, sql, written: Written::default() })
    }

    /// Writes a value of the TOAST relation to which no row that could be read refers; its first chunk is at `first`.
    pub(super) fn without_row(
        &mut self,
        toast: &str,
        first: ItemPointer,
        saved: &SalvagedValue,
    ) -> io::Result<()> {
        let place = ValuePlace { relation: toast, ctid: first, column: "chunk_data" };
        self.value(place, Code::Orphan, saved, None)?;
        self.written.without_row += 1;
        Ok(())
    }

    /// Writes what is left of a value, and whether that is anything; `text` is that of its content.
    fn value(
        &mut self,
        place: ValuePlace<'_>,
        code: Code,
        saved: &SalvagedValue,
        text: Option<&[u8]>,
    ) -> io::Result<bool> {
        let dir = &self.dir;
        let ValuePlace { relation, ctid, column } = place;
        let name = file_name(place);
        let mut files = Vec::new();
        let mut write = |kind, extension: &str, parts: &[(u64, &[u8])]| {
            let parts: Vec<_> = parts.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
            if parts.is_empty() {
                return Ok(());
            }
            let file = format!("{name}.{extension}");
            write_new(&dir.join(&file), &parts)?;
            let mut ranges: Vec<[u64; 2]> = Vec::new();
            for (at, bytes) in &parts {
                match ranges.last_mut().filter(|[start, length]| start + length == *at) {
                    Some([_, length]) => *length += bytes.len() as u64,
                    None => ranges.push([*at, bytes.len() as u64]),
                }
            }
            files.push(ValueFile { kind, file, ranges });
            Ok::<_, io::Error>(())
        };
        write(FileKind::Content, "content", &borrowed(&saved.content))?;
        if let Some(text) = text {
            write(FileKind::Text, "text", &[(0, text)])?;
        }
        if saved.shape.method.is_some() {
            write(FileKind::Stored, "stored", &borrowed(&saved.stored))?;
        }
        let mut at = 0;
        let stray = saved.stray.iter().map(|piece| {
            let own = (at, piece.data.as_slice());
            at += piece.data.len() as u64;
            own
        });
        write(FileKind::Stray, "stray", &stray.collect::<Vec<_>>())?;
        write(FileKind::Rest, "rest", &[(0, saved.rest.as_slice())])?;
        let line = ManifestLine {
            schema: SCHEMA,
            relation,
            block: ctid.block.0,
            item: ctid.item,
            column,
            code: code.name(),
            shape: &saved.shape,
            whole: saved.is_whole,
            files,
            guesses: &saved.guesses,
            note: saved.note,
        };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        self.manifest.append(&line)?;
        if self.written.parts.len() < MAX_SHOWN {
            self.written.parts.push(format!("{relation} {ctid} {column}: {}", how_much(saved)));
        }
        Ok(saved.content_bytes() > 0 || !saved.rest.is_empty())
    }

    /// Takes the damaged rows of a relation.
    pub(super) fn rows_of<'s>(&'s mut self, relation: Arc<SavedRelation<'s>>) -> Saving<'s> {
        Saving { dir: self, relation, has_begun: false }
    }

    /// Whether there is anything of values or rows.
    pub(super) fn has_values(&self) -> bool {
        self.written.all > 0 || self.written.without_row > 0
    }

    /// Writes the SQL that repairs a relation.
    pub(super) fn repair(&mut self, script: RepairScript) -> io::Result<()> {
        self.written.nulls += script.nulls;
        for statement in script.statements {
            self.written.has_script = true;
            self.written.has_sql |=
                statement.lines().any(|line| !line.is_empty() && !line.starts_with("--"));
            self.sql.append(format!("{statement}\n").as_bytes())?;
            if self.written.shown.len() < MAX_SHOWN {
                self.written.shown.push(statement);
            }
        }
        Ok(())
    }

    /// Says what is in the files, and the first statements.
    pub fn finish(self) -> (String, Vec<String>) {
        let has_values = self.has_values();
        let SalvageDir { dir, written, .. } = self;
        let Written { saved, all, without_row, parts, mut shown, nulls, has_sql, has_script } =
            written;
        let sql = dir.join("repair.sql");
        if has_sql {
            let values = if nulls == 1 { "value" } else { "values" };
            let cost =
                if nulls > 0 { format!("sets {nulls} {values} to NULL; ") } else { String::new() };
            // what follows can be pasted with it
            shown.insert(0, format!("-- To repair ({cost}read {} first):", sql.display()));
        }
        let s = if all == 1 { "" } else { "s" };
        let more = match without_row {
            0 => String::new(),
            1 => ", and 1 value without a row".to_owned(),
            more => format!(", and {more} values without a row"),
        };
        if !has_values {
            // what has nothing in it would be read in vain; a file that stays does no harm
            let kept = usize::from(has_script);
            for name in ["repair.sql", "rows.sql", "manifest.jsonl"].iter().skip(kept) {
                let _ = std::fs::remove_file(dir.join(name));
            }
            return ("no damaged values: nothing to save".to_owned(), shown);
        }
        let what = if has_sql { "for the SQL" } else { "for why there is no SQL" };
        let mut text = format!(
            "saved parts of {saved} of {all} damaged value{s}{more}: see {}, and {} {what}",
            dir.join("manifest.jsonl").display(),
            sql.display()
        );
        for part in parts {
            text.push_str(&format!("\n  {part}"));
        }
        (text, shown)
    }
}

/// How much of a value was saved: `7878 of 18810 bytes`.
fn how_much(saved: &SalvagedValue) -> String {
    let bytes = saved.content_bytes();
    match saved.shape.raw_size {
        Some(raw) if bytes == 0 && raw > 0 => format!("nothing of its {raw} bytes"),
        _ if bytes == 0 => "nothing".to_owned(),
        _ if saved.is_whole => format!("all of its {bytes} bytes"),
        Some(raw) if raw == bytes => format!("{bytes} bytes, some of which may be wrong"),
        Some(raw) => format!("{bytes} of {raw} bytes"),
        None => format!("{bytes} bytes"),
    }
}

/// Takes the damaged rows of a relation: what is left of their damaged values goes to files, and the text of all to a
/// COPY.
pub(super) struct Saving<'s> {
    dir: &'s mut SalvageDir,
    relation: Arc<SavedRelation<'s>>,
    has_begun: bool,
}

impl Saving<'_> {
    /// Writes a row, in which these columns are damaged.
    pub(super) fn row(&mut self, found: &RowFindings, row: &SalvagedRow) -> io::Result<()> {
        let relation = &*self.relation;
        let utf8 = relation.is_utf8();
        // COPY refuses others, and all rows with them
        let is_loaded = |column: &Attribute, cell: &Cell| match cell {
            Cell::Inline(saved) => relation.is_sound(column, saved, row.order),
            _ => true,
        };
        let mut line = Vec::new();
        let columns = relation.desc.attributes.iter().enumerate().filter(|(_, c)| !c.dropped);
        for (number, (index, column)) in columns.enumerate() {
            let cell = row.cells.iter().find(|(own, _)| *own == index).map(|(_, cell)| cell);
            let loaded = cell.filter(|cell| is_loaded(column, cell));
            let text = loaded.and_then(|cell| cell.text(column, row.order, utf8));
            let code = found.columns.iter().find(|(name, _)| *name == column.name);
            let code = code.map(|(_, code)| *code);
            // an assumption about a row is reported with each of its values
            let code = code.or(row.guess.map(|(code, _)| code));
            let misread = match (code, cell) {
                (Some(Code::CustomMisread), Some(Cell::Text(text))) => Some(whole_text(text)),
                _ => None,
            };
            if let (Some(code), Some(Cell::Inline(saved))) = (code, misread.as_ref().or(cell)) {
                let ctid = found.ctid;
                let place = ValuePlace { relation: &relation.name, ctid, column: &column.name };
                let is_text = is_text_like(column.type_oid) || misread.is_some();
                let own = if is_text { None } else { text.as_deref() };
                let mut saved = saved.clone();
                saved.is_whole &= !is_of_content(code);
                saved.guesses.extend(row.guess.map(|(_, guess)| guess.to_owned()));
                let written = self.dir.value(place, code, &saved, own)?;
                self.dir.written.all += 1;
                self.dir.written.saved += u64::from(written);
            }
            if number > 0 {
                line.push(b'\t');
            }
            match text {
                Some(text) => copied(&text, &mut line),
                None => line.extend_from_slice(b"\\N"),
            }
        }
        line.push(b'\n');
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin()?;
        }
        self.dir.rows.append(&line)
    }

    fn begin(&mut self) -> io::Result<()> {
        let SavedRelation { quoted, copy, desc, encoding, .. } = &*self.relation;
        let columns = desc.attributes.iter().filter(|column| !column.dropped);
        let columns: Vec<String> = columns.map(|column| quote_identifier(&column.name)).collect();
        let columns = columns.join(", ");
        let encoding = encoding
            .map_or(String::new(), |encoding| format!("SET client_encoding = '{encoding}';\n"));
        let text = format!(
            "\n{encoding}CREATE TABLE {copy} AS SELECT {columns} FROM ONLY {quoted} WITH NO DATA;\n\
             COPY {copy} ({columns}) FROM stdin;\n"
        );
        self.dir.rows.append(text.as_bytes())
    }

    /// Ends the relation's rows.
    pub(super) fn end(self) -> io::Result<()> {
        if self.has_begun { self.dir.rows.append(b"\\.\n") } else { Ok(()) }
    }
}

/// A value that is not damaged, as its text.
fn whole_text(text: &[u8]) -> Cell {
    Cell::inline(SalvagedValue {
        shape: StoredShape { raw_size: Some(text.len() as u64), ..StoredShape::default() },
        content: vec![(0, text.to_vec())],
        is_whole: true,
        note: Some("the value is not damaged, and the server misreads it: this is its text"),
        ..SalvagedValue::default()
    })
}

/// As COPY reads text.
fn copied(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        let escaped = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                line.push(byte);
                continue;
            }
        };
        line.extend([b'\\', escaped]);
    }
}

fn borrowed(parts: &ByteRuns) -> Vec<(u64, &[u8])> {
    parts.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect()
}

/// A file of this name, which must not exist, not even as a symbolic link.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes parts at their offsets. Where that fails, nothing stays.
fn write_new(path: &Path, parts: &[&(u64, &[u8])]) -> io::Result<()> {
    let mut file = BufWriter::new(create_new(path).map_err(|error| named("file", path, &error))?);
    write_at_offsets(&mut file, parts).map_err(|error| {
        // what stays of it is in no manifest, and the first error says more
        let _ = std::fs::remove_file(path);
        named("file", path, &error)
    })
}

fn write_at_offsets(file: &mut BufWriter<File>, parts: &[&(u64, &[u8])]) -> io::Result<()> {
    for (at, bytes) in parts {
        file.seek(SeekFrom::Start(*at))?;
        file.write_all(bytes)?;
    }
    file.flush()
}

/// A file that always ends with whole records, also on a full disk.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Appended {
    fn create(path: PathBuf) -> io::Result<Appended> {
        let file = create_new(&path).map_err(|error| named("file", &path, &error))?;
        Ok(Appended { path, file, length: 0 })
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        self.file.write_all(record).map_err(|error| {
            // as far as it can be
            let _ = self.file.set_len(self.length);
            named("file", &self.path, &error)
        })?;
        self.length += record.len() as u64;
        Ok(())
    }
}

/// `relation.block.item.column.hash`, without characters that a file system or a shell could take amiss. The hash
/// keeps names apart that differ in others, or behind what is shown of them.
fn file_name(place: ValuePlace<'_>) -> String {
    let ValuePlace { relation, ctid, column } = place;
    let shown =
        Path::new(relation).file_name().map(|name| without_special(&name.to_string_lossy()));
    let shown = shown.unwrap_or_default();
    let hash = fnv1a_hash(relation.bytes().chain([0]).chain(column.bytes()));
    format!(
        "{}.{}.{}.{}.{hash:016x}",
        shown.trim_start_matches('.'),
        ctid.block,
        ctid.item,
        without_special(column)
    )
}

/// The beginning of a name, without characters that are special to a file system or a shell.
fn without_special(name: &str) -> String {
    /// Characters of a name that are shown: all take less than the 255 bytes that a file's name has.
    const SHOWN: usize = 63;
    let characters = name.chars().take(SHOWN);
    characters
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .collect()
}

fn fnv1a_hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The name of the table that takes the rows of this one. Where that would be too long, a hash keeps names apart that
/// begin alike.
pub(super) fn copy_of(schema: &str, name: &str) -> String {
    const SUFFIX: &str = "_salvaged";
    let mut copy = format!("{name}{SUFFIX}");
    if copy.len() > LONGEST_NAME {
        let end = format!("_{:08x}{SUFFIX}", fnv1a_hash(name.bytes()) as u32);
        copy = format!("{}{end}", truncated(name, LONGEST_NAME - end.len()));
    }
    quote_qualified(schema, &copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use toast_format::disk::columns::parse_list;
    use toast_format::disk::{BlockNumber, ByteOrder};
    use toast_format::heap::problem::Place;

    fn name(relation: &str, item: u16, column: &str) -> String {
        let ctid = ItemPointer { block: BlockNumber(3), item };
        file_name(ValuePlace { relation, ctid, column })
    }

    #[test]
    fn names_are_tame_and_differ() {
        let name_of = |column: &str| name("../public.t", 5, column);
        assert!(name_of("doc").starts_with("public.t.3.5.doc."));
        assert!(!name_of("../../a b").contains('/'));
        assert_ne!(name_of("a b"), name_of("a/b"));
        // a schema, a table and a column of 63 characters each
        let relation = format!("{}.{}", "s".repeat(63), "t".repeat(63));
        let long = |item| name(&relation, item, &"c".repeat(63));
        assert_ne!(long(1), long(2));
        assert!(long(1).len() < 200, "{}", long(1));
    }

    #[test]
    fn what_an_earlier_run_has_saved_stays() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("left");
        let mut salvage = SalvageDir::create(&dir).unwrap();
        let desc = parse_list("note text, doc text").unwrap();
        let relation = Arc::new(SavedRelation {
            name: "public.t".to_owned(),
            quoted: "\"public\".\"t\"".to_owned(),
            copy: "\"public\".\"t_salvaged\"".to_owned(),
            desc: &desc,
            types: Types::default(),
            encoding: Some("UTF8"),
        });
        let empty = SalvagedValue {
            content: vec![(0, Vec::new())],
            is_whole: true,
            ..SalvagedValue::default()
        };
        let content = vec![(0, b"a\\b\n".to_vec())];
        let saved = SalvagedValue { content, is_whole: true, ..SalvagedValue::default() };
        let row = SalvagedRow {
            order: ByteOrder::Little,
            cells: vec![(0, Cell::inline(empty)), (1, Cell::inline(saved))],
            guess: None,
        };
        let ctid = ItemPointer { block: BlockNumber(3), item: 1 };
        let found = RowFindings { ctid, columns: vec![("doc".to_owned(), Code::NoChunks)] };
        let mut save = || {
            let mut saving = salvage.rows_of(Arc::clone(&relation));
            let saved = saving.row(&found, &row);
            saving.end().unwrap();
            saved
        };
        save().unwrap();
        // each value's line is there before the next is looked at
        let read = || std::fs::read_to_string(dir.join("manifest.jsonl")).unwrap();
        let before = read();
        assert_eq!(before.lines().count(), 1);
        let refused = SalvageDir::create(&dir).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        // the file is there already: neither it nor what it leads to is touched
        assert_eq!(save().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read(), before);
        let rows = std::fs::read_to_string(dir.join("rows.sql")).unwrap();
        assert!(rows.ends_with("(\"note\", \"doc\") FROM stdin;\n\ta\\\\b\\n\n\\.\n"), "{rows}");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        for entry in std::fs::read_dir(&dir).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn what_is_too_much_to_be_saved_is_not_taken_for_sound() {
        let temp = tempfile::tempdir().unwrap();
        let mut dir = SalvageDir::create(&temp.path().join("left")).unwrap();
        let mut salvage = TableSalvage::new(Some(&mut dir));
        let place = Place { block: Some(BlockNumber(3)), item: Some(1), ..Place::new("t") };
        let finding = Finding::new(Code::HeaderLength, place, "24", "0");
        (0..MAX_WANTED).for_each(|_| salvage.note("t", &finding));
        let mut checked = Checked::new("t");
        assert_eq!(salvage.take_damaged(&mut checked).len(), 1);
        assert!(!checked.is_incomplete && checked.notes.is_empty());
        salvage.note("t", &finding);
        assert_eq!(salvage.take_damaged(&mut checked).len(), 0);
        assert!(checked.is_incomplete && checked.notes[0].contains("(1 more findings)"));
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_whole_ones() {
        let mut full = Appended {
            path: PathBuf::from("/dev/full"),
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            length: 0,
        };
        let error = full.append(b"{}\n").unwrap_err().to_string();
        assert!(error.starts_with("file \"/dev/full\": No space left"), "{error}");
        assert_eq!(full.length, 0);
    }

    #[test]
    fn the_copy_of_a_table_has_a_name_that_the_server_does_not_cut() {
        let long = "ü".repeat(31);
        for (schema, name, copy) in [
            ("s", "t", "t_salvaged".to_owned()),
            ("s", "a.\"b", "a.\"b_salvaged".to_owned()),
            ("x\".\"", "\"", "\"_salvaged".to_owned()),
            ("s", &"t".repeat(54), format!("{}_salvaged", "t".repeat(54))),
        ] {
            assert_eq!(copy_of(schema, name), quote_qualified(schema, &copy));
        }
        let [one, other] = ["ü", "a"].map(|end| copy_of("s", &format!("{long}{end}")));
        assert_ne!(one, other);
        for copy in [one, other] {
            let copy = copy.strip_prefix("\"s\".\"").unwrap();
            assert!(copy.starts_with(&"ü".repeat(22)) && copy.ends_with("_salvaged\""), "{copy}");
            assert!(copy.len() - 1 <= LONGEST_NAME, "{copy}");
        }
    }
}
