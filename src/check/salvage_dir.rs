//! Where `--salvage` puts what is left of damaged values: a file for each, a manifest, and the SQL
//! that makes their rows readable again, which is never run.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::code::Code;
use super::finding::Finding;
use super::salvage::{Saved, can_be_saved};
use crate::disk::ItemPointer;
use crate::value::contents::create_dir;

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

const HEAD: &str = "-- Written by toastctl inspect --check --salvage, and never run by it.\n\
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
    use crate::disk::BlockNumber;

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
