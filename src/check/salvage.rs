//! What is left of damaged values (pure), and where `--salvage` puts it: a file for each, a manifest, and the SQL that makes
//! their rows readable again, which is never run.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::code::Code;
use super::finding::Finding;
use crate::codec::{Method, datum};
use crate::disk::layout::PageSize;
use crate::disk::pointer::ToastPointer;
use crate::disk::varlena::{Varlena, tc_method, tc_raw_size};
use crate::disk::{ByteOrder, ItemPointer};
use crate::value::contents::create_dir;

/// A chunk that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// `chunk_seq`.
    pub seq: i32,
    /// `chunk_data`.
    pub data: Vec<u8>,
}

/// What is left of a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// `chunk_id`, of a value out of line.
    pub value_id: Option<u32>,
    /// Bytes of the content, as its header or pointer says.
    pub raw_size: Option<u64>,
    /// Bytes stored, likewise.
    pub stored_size: Option<u64>,
    /// How they are compressed.
    pub method: Option<&'static str>,
    /// Chunks that the pointer asks for.
    pub chunks_expected: Option<u32>,
    /// The numbers of those that could be read.
    pub chunks_found: Vec<i32>,
    /// Stored bytes that could be read, by their offsets among those of the value.
    pub stored: Vec<(u64, Vec<u8>)>,
    /// The content's bytes, by their offsets in it.
    pub content: Vec<(u64, Vec<u8>)>,
    /// Why nothing was saved, where it is not that nothing was left.
    pub note: Option<&'static str>,
}

impl Saved {
    /// Bytes of the content that could be read.
    pub fn content_bytes(&self) -> u64 {
        self.content.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// Whether a value with such a finding may have something left, and can be set to NULL.
pub fn can_be_saved(code: Code) -> bool {
    !matches!(code, Code::PastEnd | Code::Varlena | Code::LeftOver | Code::Tag | Code::HasExternal)
}

/// What is left of a value in the row.
pub fn inline(value: &Varlena<'_>) -> Saved {
    match value {
        Varlena::Compressed { tc_info, stream } => Saved {
            raw_size: Some(u64::from(tc_raw_size(*tc_info))),
            stored_size: Some(stream.len() as u64),
            method: tc_method(*tc_info).map(Method::name),
            content: vec![(0, up_to_damage(tc_method(*tc_info), tc_raw_size(*tc_info), stream))],
            stored: vec![(0, stream.to_vec())],
            ..Saved::default()
        },
        Varlena::Custom(_) => {
            Saved { note: Some("values of pluggable toasters are not saved"), ..Saved::default() }
        }
        _ => {
            let content = value.inline_content().unwrap_or(&[]);
            Saved {
                raw_size: Some(content.len() as u64),
                content: vec![(0, content.to_vec())],
                ..Saved::default()
            }
        }
    }
}

/// What is left of a value out of line, by the chunks that could be read.
pub fn external(
    pointer: &ToastPointer,
    mut pieces: Vec<Piece>,
    page: PageSize,
    order: ByteOrder,
) -> Saved {
    let limit = u64::from(page.toast_max_chunk_size());
    pieces.sort_by_key(|piece| piece.seq);
    pieces.dedup_by_key(|piece| piece.seq);
    let mut saved = Saved {
        value_id: Some(pointer.value_id.0),
        raw_size: Some(u64::from(pointer.raw_size())),
        stored_size: Some(u64::from(pointer.stored_size())),
        method: pointer.method().map(Method::name),
        chunks_expected: Some(page.chunks(pointer.stored_size())),
        chunks_found: pieces.iter().map(|piece| piece.seq).collect(),
        ..Saved::default()
    };
    let placed = pieces.into_iter().filter_map(|piece| {
        let seq = u64::try_from(piece.seq).ok()?;
        Some((seq * limit, piece.data))
    });
    saved.stored = placed.collect();
    if pointer.is_compressed() {
        // what stands behind the first gap cannot be told
        let mut joined = Vec::new();
        for (offset, bytes) in &saved.stored {
            if *offset != joined.len() as u64 {
                break;
            }
            joined.extend_from_slice(bytes);
        }
        let method = pointer.method().or_else(|| order.u32(&joined, 0).and_then(tc_method));
        let stream = joined.get(4..).unwrap_or(&[]);
        saved.content = vec![(0, up_to_damage(method, pointer.raw_size(), stream))];
    } else {
        saved.content.clone_from(&saved.stored);
    }
    saved
}

/// The bytes that a stream gives before it is damaged or ends.
fn up_to_damage(method: Option<Method>, raw_size: u32, stream: &[u8]) -> Vec<u8> {
    let Some(method) = method else { return Vec::new() };
    let most = (raw_size as usize).min(datum::largest_raw_size(method, stream.len()));
    let prefix = |length| datum::decompress_prefix(method, length, stream).ok();
    if let Some(whole) = prefix(most) {
        return whole;
    }
    // the first length at which the damage is met
    let (mut good, mut bad) = (0, most);
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if prefix(middle).is_some() { good = middle } else { bad = middle }
    }
    prefix(good).unwrap_or_default()
}

/// Name and version of the manifest's lines.
const SCHEMA: &str = "toastctl.salvage/1";
/// Values of one relation that are saved at the most.
const MAX_WANTED: usize = 100_000;
/// Statements that are shown; all are in the file.
const MAX_SHOWN: usize = 20;

/// A damaged value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its row.
    pub ctid: ItemPointer,
    /// Its column.
    pub column: String,
    /// What was found.
    pub code: Code,
}

/// A line of the manifest. Sizes and offsets are bytes.
#[derive(Debug, Serialize)]
struct Line<'a> {
    schema: &'static str,
    relation: &'a str,
    block: u32,
    item: u16,
    column: &'a str,
    code: &'static str,
    value_id: Option<u32>,
    raw_size: Option<u64>,
    stored_size: Option<u64>,
    method: Option<&'static str>,
    chunks_expected: Option<u32>,
    chunks_found: &'a [i32],
    /// Bytes of the content that are in its file; what lies between `content_ranges` is zeros.
    content_bytes: u64,
    content_ranges: Vec<[u64; 2]>,
    content_file: Option<String>,
    /// Bytes as stored, where they are compressed.
    stored_ranges: Vec<[u64; 2]>,
    stored_file: Option<String>,
    /// Why nothing was saved, where it is not that nothing was left.
    note: Option<&'static str>,
}

/// A directory that takes what is left of values.
#[derive(Debug)]
pub struct SalvageDir {
    dir: PathBuf,
    manifest: BufWriter<File>,
    sql: BufWriter<File>,
    wanted: Vec<Wanted>,
    /// Values that something is left of, and all.
    saved: u64,
    all: u64,
    shown: Vec<String>,
}

const HEAD: &str = "-- Written by toastctl check --salvage, and never run by it.\n\
     -- Copy the table's files before you run anything, and read each statement: what could be read of the\n\
     -- damaged values is in the files beside this one. Run the statements in order with psql, each in a\n\
     -- transaction of its own (psql -v ON_ERROR_STOP=1 -f repair.sql); UPDATE fires the table's triggers.\n\
     -- One that names a row finds it only as it was found. Then check the table again.\n\
     -- \"tuple concurrently deleted\" (or updated) says that chunks of the value were deleted and are still\n\
     -- to be vacuumed: VACUUM the table once older transactions have ended, then run it again.\n\n";

/// The rows of damaged values, in order, each with its columns and what was found there first.
pub(super) fn by_row(wanted: &[Wanted]) -> Vec<(ItemPointer, Vec<(String, Code)>)> {
    let mut rows: Vec<(ItemPointer, Vec<(String, Code)>)> = Vec::new();
    for Wanted { ctid, column, code } in wanted {
        if rows.last().is_none_or(|(last, _)| last != ctid) {
            rows.push((*ctid, Vec::new()));
        }
        if let Some((_, columns)) = rows.last_mut()
            && columns.iter().all(|(known, _)| known != column)
        {
            columns.push((column.clone(), *code));
        }
    }
    rows
}

impl SalvageDir {
    /// Makes the directory, with its manifest and the file for SQL.
    pub fn create(dir: &Path) -> io::Result<SalvageDir> {
        create_dir(dir)?;
        let open = |name: &str| {
            let path = dir.join(name);
            File::create(&path).map(BufWriter::new).map_err(|error| named(&path, &error))
        };
        let (manifest, mut sql) = (open("manifest.jsonl")?, open("repair.sql")?);
        sql.write_all(HEAD.as_bytes())?;
        Ok(SalvageDir {
            dir: dir.to_owned(),
            manifest,
            sql,
            wanted: Vec::new(),
            saved: 0,
            all: 0,
            shown: Vec::new(),
        })
    }

    /// Notes a finding in `relation`, if it is of a value.
    pub(super) fn note(&mut self, relation: &str, finding: &Finding) {
        let place = &finding.place;
        let (Some(block), Some(item), Some(column)) = (place.block, place.item, &place.column)
        else {
            return;
        };
        let wanted = Wanted {
            ctid: ItemPointer { block, item },
            column: column.clone(),
            code: finding.code,
        };
        let is_value = place.source == relation && can_be_saved(finding.code);
        if is_value && self.wanted.len() < MAX_WANTED {
            self.wanted.push(wanted);
        }
    }

    /// The values noted since it was asked last, in the order of their rows.
    pub(super) fn take_wanted(&mut self) -> Vec<Wanted> {
        self.wanted.sort_by_key(|wanted| wanted.ctid);
        std::mem::take(&mut self.wanted)
    }

    /// Writes what is left of a value.
    pub(super) fn save(
        &mut self,
        relation: &str,
        wanted: &Wanted,
        saved: &Saved,
    ) -> io::Result<()> {
        let name = file_name(relation, wanted);
        let content = self.write(&format!("{name}.content"), &saved.content)?;
        let is_compressed = saved.method.is_some();
        let stored = if is_compressed {
            self.write(&format!("{name}.stored"), &saved.stored)?
        } else {
            None
        };
        let ranges = |parts: &[(u64, Vec<u8>)]| {
            let parts = parts.iter().filter(|(_, bytes)| !bytes.is_empty());
            parts.map(|(at, bytes)| [*at, bytes.len() as u64]).collect::<Vec<_>>()
        };
        let line = Line {
            schema: SCHEMA,
            relation,
            block: wanted.ctid.block.0,
            item: wanted.ctid.item,
            column: &wanted.column,
            code: wanted.code.name(),
            value_id: saved.value_id,
            raw_size: saved.raw_size,
            stored_size: saved.stored_size,
            method: saved.method,
            chunks_expected: saved.chunks_expected,
            chunks_found: &saved.chunks_found,
            content_bytes: saved.content_bytes(),
            content_ranges: ranges(&saved.content),
            content_file: content,
            stored_ranges: if is_compressed { ranges(&saved.stored) } else { Vec::new() },
            stored_file: stored,
            note: saved.note,
        };
        serde_json::to_writer(&mut self.manifest, &line)?;
        writeln!(self.manifest)?;
        self.all += 1;
        self.saved += u64::from(saved.content_bytes() > 0);
        Ok(())
    }

    /// Writes the SQL that repairs a relation.
    pub(super) fn repair(&mut self, statements: Vec<String>) -> io::Result<()> {
        for statement in statements {
            writeln!(self.sql, "{statement}")?;
            if self.shown.len() < MAX_SHOWN {
                self.shown.push(statement);
            }
        }
        Ok(())
    }

    /// Writes pieces at their offsets; nothing if there are none.
    fn write(&self, name: &str, parts: &[(u64, Vec<u8>)]) -> io::Result<Option<String>> {
        if parts.iter().all(|(_, bytes)| bytes.is_empty()) {
            return Ok(None);
        }
        let path = self.dir.join(name);
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            for (at, bytes) in parts {
                file.seek(SeekFrom::Start(*at))?;
                file.write_all(bytes)?;
            }
            file.flush()
        };
        write().map_err(|error| named(&path, &error))?;
        Ok(Some(name.to_owned()))
    }

    /// Ends the files; says what is in them, and the first statements.
    pub fn finish(mut self) -> io::Result<(String, Vec<String>)> {
        self.manifest.flush()?;
        self.sql.flush()?;
        let SalvageDir { dir, saved, all, shown, .. } = self;
        let s = if all == 1 { "" } else { "s" };
        let text = format!(
            "saved something of {saved} of {all} damaged value{s}: see {}, and {} for the SQL",
            dir.join("manifest.jsonl").display(),
            dir.join("repair.sql").display()
        );
        Ok((text, shown))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("file \"{}\": {error}", path.display()))
}

/// `relation.block.item.column`, without characters that a file system or a shell could take amiss.
fn file_name(relation: &str, wanted: &Wanted) -> String {
    let Wanted { ctid, column, .. } = wanted;
    let relation = Path::new(relation).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = format!("{}.{}.{}.{column}", relation.unwrap_or_default(), ctid.block, ctid.item);
    let tame = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(tame).take(100).collect();
    let name = name.trim_start_matches('.').to_owned();
    // names that differ in other characters only
    let mut hash: u32 = 0x811C_9DC5;
    for byte in column.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{name}.{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{BlockNumber, Oid};

    #[test]
    fn a_compressed_value_is_left_up_to_its_damage() {
        let raw: Vec<u8> =
            (0..400u32).flat_map(|n| format!("value {} ", n * 7).into_bytes()).collect();
        for method in [Method::Pglz, Method::Lz4] {
            let stream = datum::Compressor::new().compress(method, &raw).unwrap().to_vec();
            let whole = up_to_damage(Some(method), raw.len() as u32, &stream);
            assert_eq!(whole, raw);
            let half = &stream[..stream.len() / 2];
            let left = up_to_damage(Some(method), raw.len() as u32, half);
            assert!(left.len() > raw.len() / 8 && raw.starts_with(&left), "{}", left.len());
            let mut damaged = stream.clone();
            let at = damaged.len() / 2;
            damaged[at..].fill(0xFF);
            let left = up_to_damage(Some(method), raw.len() as u32, &damaged);
            assert!(raw.starts_with(&left[..left.len().min(raw.len() / 4)]), "{method:?}");
        }
        assert_eq!(up_to_damage(None, 100, b"xyz"), b"");
    }

    #[test]
    fn chunks_keep_their_places() {
        let pointer = ToastPointer {
            raw_size_with_header: 5004,
            ext_info: 5000,
            value_id: Oid(7),
            toast_relation: Oid(8),
        };
        let piece = |seq, byte, length| Piece { seq, data: vec![byte; length] };
        let pieces = vec![piece(2, b'c', 1008), piece(0, b'a', 1996)];
        let saved = external(&pointer, pieces, PageSize::DEFAULT, ByteOrder::Little);
        assert_eq!((saved.chunks_expected, saved.chunks_found.as_slice()), (Some(3), &[0, 2][..]));
        assert_eq!(saved.content_bytes(), 3004);
        assert_eq!(saved.content.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 3992]);
    }

    #[test]
    fn names_are_tame_and_differ() {
        let name = |column: &str| {
            let ctid = ItemPointer { block: BlockNumber(3), item: 5 };
            let wanted = Wanted { ctid, column: column.into(), code: Code::NoChunks };
            file_name("../public.t", &wanted)
        };
        assert!(name("doc").starts_with("public.t.3.5.doc."));
        assert!(!name("../../a b").contains('/'));
        assert_ne!(name("a b"), name("a/b"));
    }
}
