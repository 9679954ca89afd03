//! What is in the values: each one put together from its chunks, its md5 taken, and if wanted
//! written to a file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use super::missing;
use super::values::{RowWriter, ValueRow};
use crate::disk::Oid;
use crate::disk::desc::Attribute;
use crate::disk::jsonb_text::TextSink;
use crate::disk::layout::PageSize;
use crate::disk::numeric::Numeric;
use crate::disk::types::is_text_like;
use crate::disk::varlena::Varlena;
use crate::disk::walk::Datum;
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::scan::{Seen, ValueSink};
use crate::model::toaster::catalog::Toasters;
use crate::model::toaster::chunks::ChunkStore;
use crate::model::toaster::error::ToastError;
use crate::model::toaster::reassemble::{Logical, Reassembler};

const JSON: Oid = Oid(114);
const NUMERIC: Oid = Oid(1700);
const JSONB: Oid = Oid(3802);

/// How a type's text form is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// The content is the text.
    Content,
    /// As `jsonb_out` prints it.
    Jsonb,
    /// As `numeric_out` prints it.
    Numeric,
}

impl TextForm {
    /// That of a type; `None` if it is not known here.
    pub fn of(type_oid: Oid) -> Option<TextForm> {
        match type_oid {
            JSONB => Some(TextForm::Jsonb),
            NUMERIC => Some(TextForm::Numeric),
            _ => is_text_like(type_oid).then_some(TextForm::Content),
        }
    }
}

/// Writes the text of a value.
///
/// `None` if the type's text form is not known here.
pub fn write_text<S: ChunkStore>(
    value: &Logical<'_>,
    type_oid: Oid,
    reassembler: &mut Reassembler<'_, S>,
    sink: &mut impl TextSink,
) -> Result<Option<()>, ToastError> {
    match TextForm::of(type_oid) {
        None => return Ok(None),
        Some(TextForm::Content) => sink.put(value.content()?),
        Some(TextForm::Jsonb) => reassembler.jsonb_text(value, sink)?,
        Some(TextForm::Numeric) => {
            let mut text = Vec::new();
            Numeric::parse(value.content()?, reassembler.order)
                .map_err(|error| ToastError::Content(error.to_string()))?
                .write_text(&mut text);
            sink.put(&text);
        }
    }
    Ok(Some(()))
}

/// Takes an md5 of a text, and writes it to a file if there is one.
#[derive(Default)]
struct Md5Sink {
    md5: Md5,
    file: Option<BufWriter<File>>,
    error: Option<io::Error>,
}

impl TextSink for Md5Sink {
    fn put(&mut self, piece: &[u8]) {
        self.md5.update(piece);
        if let (Some(file), None) = (&mut self.file, &self.error) {
            self.error = file.write_all(piece).err();
        }
    }
}

/// An md5 in hexadecimal.
pub fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS.get(usize::from(n & 15)).copied().map_or('?', char::from);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]).collect()
}

/// Puts every value together and passes its row on with the md5s.
pub struct ContentSink<'w, S> {
    /// The relation's name in the rows.
    pub relation: String,
    /// Where chunks come from.
    pub store: S,
    /// The toasters of the database.
    pub toasters: Toasters,
    /// The page size of the TOAST relation.
    pub page: PageSize,
    /// Where the rows go.
    pub writer: &'w mut (dyn RowWriter + Send),
    /// Where values are written, each to a file of its own.
    pub output_dir: Option<PathBuf>,
    /// Values that could not be put together.
    pub problems: Problems,
    /// Columns with values that stand in no row and whose content is not known.
    pub unknown: BTreeSet<String>,
    /// The first error of the writer, or of a file.
    pub error: Option<io::Error>,
}

impl<S: ChunkStore> ContentSink<'_, S> {
    fn fill(&mut self, row: &mut ValueRow, seen: &Seen<'_>) -> Result<(), ToastError> {
        let made;
        let (value, order) = match seen.datum {
            Datum::Null => return Ok(()),
            Datum::Missing => match missing::content(seen.column, seen.order) {
                Some(content) => {
                    made = content;
                    (Varlena::Plain { content: &made }, seen.order)
                }
                None => {
                    self.fill_by_text(row, seen);
                    return Ok(());
                }
            },
            Datum::Fixed(bytes) | Datum::CString(bytes) => {
                (Varlena::Plain { content: bytes }, seen.order)
            }
            Datum::Varlena(value) => (value, seen.order),
        };
        let (toasters, page) = (&self.toasters, self.page);
        let mut reassembler = Reassembler { store: &mut self.store, toasters, page, order };
        let logical = reassembler.value(&value)?;
        let form = TextForm::of(seen.column.type_oid);
        let mut sink = match output(self.output_dir.as_deref(), &self.relation, seen, form) {
            Ok(file) => Md5Sink { file, ..Md5Sink::default() },
            Err(error) => {
                self.error.get_or_insert(error);
                return Ok(());
            }
        };
        if let Ok(content) = logical.content() {
            row.md5 = Some(md5_hex(content));
            if form.is_none() {
                sink.put(content);
            }
        }
        if write_text(&logical, seen.column.type_oid, &mut reassembler, &mut sink)?.is_some() {
            row.text_md5 = Some(hex(&sink.md5.finalize()));
        }
        let flushed = sink.file.map_or(Ok(()), |mut file| file.flush());
        if let Some(error) = sink.error.or(flushed.err()) {
            self.error.get_or_insert(error);
        }
        Ok(())
    }

    /// A missing value of which only the text is known, if that.
    fn fill_by_text(&mut self, row: &mut ValueRow, seen: &Seen<'_>) {
        self.unknown.insert(seen.column.name.clone());
        let text = seen.column.missing.as_ref().and_then(|missing| missing.text.as_deref());
        let form = TextForm::of(seen.column.type_oid);
        let (Some(text), Some(_)) = (text, form) else { return };
        row.text_md5 = Some(md5_hex(text));
        let written =
            output(self.output_dir.as_deref(), &self.relation, seen, form).and_then(|file| {
                file.map_or(Ok(()), |mut file| {
                    file.write_all(text)?;
                    file.flush()
                })
            });
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }
}

/// The file for a value, if files are wanted.
fn output(
    dir: Option<&Path>,
    relation: &str,
    seen: &Seen<'_>,
    form: Option<TextForm>,
) -> io::Result<Option<BufWriter<File>>> {
    let Some(dir) = dir else { return Ok(None) };
    let extension = match form {
        Some(TextForm::Jsonb) => "json",
        Some(_) if seen.column.type_oid == JSON => "json",
        Some(_) => "txt",
        None => "bin",
    };
    create(&dir.join(file_name(relation, seen, extension))).map(Some)
}

impl<S: ChunkStore> ValueSink for ContentSink<'_, S> {
    fn value(&mut self, seen: &Seen<'_>) {
        if self.error.is_some() {
            return;
        }
        let mut row = ValueRow::seen(&self.relation, seen, true);
        let named = self.toasters.rows().iter().find(|t| Some(t.oid.0) == row.toaster_oid);
        if let Some(named) = named {
            row.toaster = Some(named.name.clone());
        }
        if let Err(error) = self.fill(&mut row, seen) {
            self.problems.add(Problem {
                place: Place {
                    block: Some(seen.ctid.block),
                    item: Some(seen.ctid.item),
                    column: Some(seen.column.name.clone()),
                    ..Place::of(self.relation.as_str())
                },
                message: error.to_string(),
            });
        }
        if self.error.is_none() {
            self.error = self.writer.write(&row).err();
        }
    }
}

/// `relation.block.item.number_of_column.column.extension`, without characters that a file system
/// or a shell could take amiss. The column's number keeps names apart.
fn file_name(relation: &str, seen: &Seen<'_>, extension: &str) -> String {
    let Seen { ctid, index, column: Attribute { name, .. }, .. } = seen;
    let relation = Path::new(relation).file_name().map(|name| name.to_string_lossy().into_owned());
    let relation = relation.unwrap_or_default();
    let name = format!("{relation}.{}.{}.{}.{name}", ctid.block, ctid.item, index + 1);
    let tame = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    // 255 bytes at the most; four of UTF-8 for a character
    let name: String = name.chars().map(tame).take(60).collect();
    format!("{}.{extension}", name.trim_start_matches('.'))
}

/// Makes the directory for values, with its parents.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| {
        io::Error::new(error.kind(), format!("directory \"{}\": {error}", dir.display()))
    })
}

fn create(path: &Path) -> io::Result<BufWriter<File>> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("file \"{}\": {error}", path.display()))
    };
    File::create(path).map(BufWriter::new).map_err(named)
}
