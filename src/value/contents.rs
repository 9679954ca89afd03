//! The contents of values: each value is reassembled from its chunks, its md5 is computed, and it is written to a
//! file if requested.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use super::rows::{RowWriter, ValueRow};
use toast_format::disk::jsonb_text::TextSink;
use toast_format::disk::missing::content;
use toast_format::disk::numeric::Numeric;
use toast_format::disk::types::is_text_like;
use toast_format::disk::value_text::hex;
use toast_format::disk::{Attribute, Datum, Oid, PageSize, Varlena};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::{TupleValue, Visitor};
use toast_format::model::Toasters;
use toast_format::model::toaster::chunks::ChunkStore;
use toast_format::model::toaster::error::ToastError;
use toast_format::model::toaster::reassemble::{Logical, Reassembler};
use toast_format::model::toaster::stock;

const JSON: u32 = 114;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

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
    pub fn of_type(type_oid: Oid) -> Option<TextForm> {
        match type_oid.0 {
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
    match TextForm::of_type(type_oid) {
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

/// Values from this size on are read piece by piece where that is possible.
const LONG: u32 = 1 << 20;

/// Passes the content of a long value out of line to the sink, piece by piece, if its text is its content or not known.
/// `false` if the value is to be reassembled; what the sink has then is part of no value.
fn put_pieces<S: ChunkStore>(
    value: &Varlena<'_>,
    form: Option<TextForm>,
    reassembler: &mut Reassembler<'_, S>,
    sink: &mut Md5Sink,
) -> Result<bool, ToastError> {
    let Varlena::External(pointer) = value else { return Ok(false) };
    if pointer.raw_size() < LONG || !matches!(form, None | Some(TextForm::Content)) {
        return Ok(false);
    }
    let Reassembler { store, page, order, .. } = reassembler;
    stock::pieces(pointer, *store, *page, *order, &mut |piece| sink.put(piece))
}

/// First bytes that [`Md5Sink`] keeps.
const KEPT: usize = 4096;

/// Computes the md5 of a text, and writes the text to a file if there is one.
#[derive(Default)]
pub(super) struct Md5Sink {
    pub(super) md5: Md5,
    pub(super) first: Vec<u8>,
    file: Option<BufWriter<File>>,
    error: Option<io::Error>,
}

impl Md5Sink {
    /// Forgets what was put.
    pub(super) fn restart(&mut self) {
        self.md5.reset();
        self.first.clear();
        if let (Some(file), None) = (&mut self.file, &self.error) {
            self.error = file.rewind().and_then(|()| file.get_ref().set_len(0)).err();
        }
    }

    /// The md5 of what was put, and whether the file has it.
    pub(super) fn end(self) -> (String, io::Result<()>) {
        let flushed = self.file.map_or(Ok(()), |mut file| file.flush());
        (hex(&self.md5.finalize()), self.error.map_or(flushed, Err))
    }
}

impl TextSink for Md5Sink {
    fn put(&mut self, piece: &[u8]) {
        self.md5.update(piece);
        let room = KEPT - self.first.len();
        self.first.extend_from_slice(piece.get(..room).unwrap_or(piece));
        if let (Some(file), None) = (&mut self.file, &self.error) {
            self.error = file.write_all(piece).err();
        }
    }
}

/// An md5 in hexadecimal.
pub fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

/// Prints a row for each value; with `contents`, values are reassembled. An error ends the printing, not the scan.
pub struct RowSink<'w, S> {
    /// The relation's name in the rows.
    relation: String,
    writer: &'w mut (dyn RowWriter + Send),
    pub contents: Option<Contents<S>>,
    /// The first error of the writer, or of a file.
    pub error: Option<io::Error>,
}

impl<'w, S> RowSink<'w, S> {
    pub fn new(
        relation: &str,
        writer: &'w mut (dyn RowWriter + Send),
        contents: Option<Contents<S>>,
    ) -> RowSink<'w, S> {
        RowSink { relation: relation.to_owned(), writer, contents, error: None }
    }
}

impl<S: ChunkStore> Visitor for RowSink<'_, S> {
    const WANTS_VALUES: bool = true;

    fn value(&mut self, value: &TupleValue<'_>) {
        if self.error.is_some() || !self.writer.takes(&value.column.name) {
            return;
        }
        let mut row = ValueRow::in_place(&self.relation, value);
        let filled = match &mut self.contents {
            Some(contents) => contents.fill(&self.relation, &mut row, value),
            None => Ok(()),
        };
        self.error = filled.and_then(|()| self.writer.write(&row)).err();
    }

    fn has_failed(&self) -> bool {
        self.error.is_some()
    }
}

/// Reassembles values and computes their md5s.
pub struct Contents<S> {
    /// The source of chunks.
    pub store: S,
    /// The toasters of the database.
    pub(super) toasters: Toasters,
    /// The page size of the TOAST relation.
    pub(super) page: PageSize,
    /// The directory of the values, each in a file of its own.
    output_dir: Option<PathBuf>,
    /// Values that could not be reassembled.
    pub problems: Problems,
    /// Columns with values that are not stored in the rows, and whose content is not known.
    pub unknown: BTreeSet<String>,
}

impl<S: ChunkStore> Contents<S> {
    /// With the directory for values, which is created.
    pub fn new(
        store: S,
        toasters: Toasters,
        page: PageSize,
        output_dir: Option<&Path>,
    ) -> io::Result<Contents<S>> {
        if let Some(dir) = output_dir {
            create_dir(dir)?;
        }
        let output_dir = output_dir.map(Path::to_owned);
        let problems = Problems::default();
        Ok(Contents { store, toasters, page, output_dir, problems, unknown: BTreeSet::new() })
    }

    /// Adds the content of the value to the row of a list.
    ///
    /// # Errors
    /// Where a file cannot be written.
    fn fill(
        &mut self,
        relation: &str,
        row: &mut ValueRow,
        value: &TupleValue<'_>,
    ) -> io::Result<()> {
        let toaster = self.toasters.rows().iter().find(|t| Some(t.oid.0) == row.toaster_oid);
        if let Some(toaster) = toaster {
            row.toaster = Some(toaster.name.clone());
        }
        let mut first = FirstBytes::default();
        self.put_together(relation, row, value, &mut first).unwrap_or_else(|error| {
            let place = Place {
                block: Some(value.ctid.block),
                item: Some(value.ctid.item),
                column: Some(value.column.name.clone()),
                ..Place::new(relation)
            };
            self.problems.add(Problem { place, message: error.to_string() });
            Ok(())
        })
    }

    /// Adds the content of the value to its row, and what it begins with to `first`. Of a value that cannot be
    /// reassembled, no file is left, which could be taken for all of it.
    ///
    /// # Errors
    /// Why the value could not be reassembled; inside, why its file could not be written.
    pub(super) fn put_together(
        &mut self,
        relation: &str,
        row: &mut ValueRow,
        found: &TupleValue<'_>,
        first: &mut FirstBytes,
    ) -> Result<io::Result<()>, ToastError> {
        let path = output_path(self.output_dir.as_deref(), relation, found);
        let written = self.write(path.as_deref(), row, found, first);
        if let (Err(_), Some(path)) = (&written, &path) {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Ok(Err(named("file", path, &error)))
                }
                _ => written,
            };
        }
        written
    }

    fn write(
        &mut self,
        path: Option<&Path>,
        row: &mut ValueRow,
        found: &TupleValue<'_>,
        first: &mut FirstBytes,
    ) -> Result<io::Result<()>, ToastError> {
        let made;
        let value = match found.datum {
            Datum::Null => return Ok(Ok(())),
            Datum::Missing => match content(found.column, found.order) {
                Some(content) => {
                    made = content;
                    Varlena::Plain { content: &made }
                }
                None => return Ok(self.by_text(path, row, found, first)),
            },
            Datum::Fixed(bytes) | Datum::CString(bytes) => Varlena::Plain { content: bytes },
            Datum::Varlena(value) => value,
        };
        let toasters = &self.toasters;
        let page = self.page;
        let order = found.order;
        let mut reassembler = Reassembler { store: &mut self.store, toasters, page, order };
        let form = TextForm::of_type(found.column.type_oid);
        let mut sink = match create(path) {
            Ok(file) => Md5Sink { file, ..Md5Sink::default() },
            Err(error) => return Ok(Err(error)),
        };
        if let Varlena::External(pointer) = &value
            && put_pieces(&value, form, &mut reassembler, &mut sink)?
        {
            *first = FirstBytes {
                raw_size: Some(u64::from(pointer.raw_size())),
                content: Some(sink.first.clone()),
                text: form.map(|_| sink.first.clone()),
            };
            let (md5, ended) = sink.end();
            row.text_md5 = form.map(|_| md5.clone());
            row.md5 = Some(md5);
            return Ok(ended);
        }
        sink.restart();
        let logical = reassembler.value(&value)?;
        if let Ok(content) = logical.content() {
            row.md5 = Some(md5_hex(content));
            first.raw_size = Some(content.len() as u64);
            first.content = Some(content.get(..KEPT).unwrap_or(content).to_vec());
            if form.is_none() {
                sink.put(content);
            }
        }
        let text = write_text(&logical, found.column.type_oid, &mut reassembler, &mut sink)?;
        first.text = text.map(|()| sink.first.clone());
        let (md5, ended) = sink.end();
        row.text_md5 = text.map(|()| md5);
        Ok(ended)
    }

    /// A missing value, of which at most the text is known.
    fn by_text(
        &mut self,
        path: Option<&Path>,
        row: &mut ValueRow,
        value: &TupleValue<'_>,
        first: &mut FirstBytes,
    ) -> io::Result<()> {
        self.unknown.insert(value.column.name.clone());
        let text = value.column.missing.as_ref().and_then(|missing| missing.text.as_deref());
        let form = TextForm::of_type(value.column.type_oid);
        let (Some(text), Some(_)) = (text, form) else { return Ok(()) };
        row.text_md5 = Some(md5_hex(text));
        if let Some(mut file) = create(path)? {
            file.write_all(text).and_then(|()| file.flush())?;
        }
        first.text = Some(text.get(..KEPT).unwrap_or(text).to_vec());
        Ok(())
    }
}

/// The size of a value that was reassembled, and its first [`KEPT`] bytes.
#[derive(Default)]
pub(super) struct FirstBytes {
    /// Bytes of its content; `None` where it has none, but parts.
    pub(super) raw_size: Option<u64>,
    pub(super) content: Option<Vec<u8>>,
    /// `None` if the text form of its type is not known here.
    pub(super) text: Option<Vec<u8>>,
}

/// The path of the file for a value, if values are written to files.
fn output_path(dir: Option<&Path>, relation: &str, value: &TupleValue<'_>) -> Option<PathBuf> {
    let extension = match TextForm::of_type(value.column.type_oid) {
        Some(TextForm::Jsonb) => "json",
        Some(_) if value.column.type_oid.0 == JSON => "json",
        Some(_) => "txt",
        None => "bin",
    };
    Some(dir?.join(file_name(relation, value, extension)))
}

fn create(path: Option<&Path>) -> io::Result<Option<BufWriter<File>>> {
    let Some(path) = path else { return Ok(None) };
    let file = File::create(path).map_err(|error| named("file", path, &error))?;
    Ok(Some(BufWriter::new(file)))
}

/// `relation.block.item.number_of_column.column.extension`, without characters that are special to a file system or a
/// shell. The number of the column makes names unique.
fn file_name(relation: &str, value: &TupleValue<'_>, extension: &str) -> String {
    let TupleValue { ctid, index, column: Attribute { name, .. }, .. } = value;
    let relation = Path::new(relation).file_name().map(|name| name.to_string_lossy().into_owned());
    let relation = relation.unwrap_or_default();
    let name = format!("{relation}.{}.{}.{}.{name}", ctid.block, ctid.item, index + 1);
    // 255 bytes at the most; four of UTF-8 for a character
    let name: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(60)
        .collect();
    format!("{}.{extension}", name.trim_start_matches('.'))
}

/// Creates the directory for values, with its parents.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| named("directory", dir, &error))
}

/// A file system error, with what it is about.
pub(crate) fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} \"{}\": {error}", path.display()))
}
