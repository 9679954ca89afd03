//! What one document costs to read and to change, as it is stored now, and what one of its keys would cost in a
//! column of its own (pure), in the terms of [`toast_format::model::cost`].

use toast_format::codec::Method;
use toast_format::codec::items::Items;
use toast_format::disk::PageSize;
use toast_format::disk::jsonb_parts::{ExtractedDatum, VisitedPart};
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{Prices, ReadWork};
use toast_format::model::pages::{chunk_bytes, tuple_bytes};
use toast_format::model::policy::{COMPRESSED_HEADER_SIZE, VARLENA_HEADER_SIZE};
use toast_format::model::wal::UpdateWork;
use toast_format::model::{Form, StoredValue};

/// The longest content with a header of 1 byte.
const LONGEST_SHORT: u64 = 126;
/// Bytes of a TOAST pointer.
const POINTER: u64 = toast_format::disk::pointer::TOAST_POINTER_SIZE as u64;

/// What holds for all documents of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableTerms {
    pub(super) page: PageSize,
    /// Pages of the TOAST relation's index from the root to a leaf, both included.
    pub(super) levels: u32,
}

/// A document and its row as they are stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredDocument {
    pub(super) value: StoredValue,
    /// Bytes of the document's content.
    pub(super) raw: u64,
    /// Bytes of the row's tuple.
    pub(super) tuple: u32,
    /// How often the next of its chunks is on another page than the one before, if that was measured.
    pub(super) visits: Option<u32>,
}

/// What one read and one UPDATE take.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cost {
    /// Pages visited in addition to the row's own.
    pub(super) buffers: f64,
    /// CPU time that storage adds, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// Bytes of WAL of an UPDATE.
    pub(super) wal: f64,
}

impl StoredDocument {
    /// Bytes of the document wherever they are, without headers of chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.value.stored_size.unwrap_or(0)
    }

    fn is_compressed(&self) -> bool {
        matches!(self.value.form, Form::Compressed | Form::ExternalCompressed)
    }

    fn method(&self) -> Option<Method> {
        if self.is_compressed() { self.value.method } else { None }
    }

    /// The chunk that holds byte `byte` of the content; in proportion for a compressed document. `None` in the row.
    pub(super) fn chunk(&self, byte: u64, page: PageSize) -> Option<u32> {
        if !self.value.form.is_external() || self.raw == 0 {
            return None;
        }
        let stored = self.bytes();
        let at = if self.is_compressed() {
            (byte as f64 * stored as f64 / self.raw as f64) as u64
        } else {
            byte
        };
        let at = at.min(stored.saturating_sub(1));
        u32::try_from(at / u64::from(page.toast_max_chunk_size())).ok()
    }

    /// Reading any key of the document, and changing any.
    pub(super) fn now(&self, terms: &TableTerms) -> Cost {
        let stored = u32::try_from(self.bytes()).unwrap_or(u32::MAX);
        let out = self.value.form.is_external().then_some((stored, self.visits));
        let stream = self.bytes().saturating_sub(match self.value.form {
            Form::Compressed => u64::from(COMPRESSED_HEADER_SIZE),
            _ => u64::from(COMPRESSED_HEADER_SIZE - VARLENA_HEADER_SIZE),
        });
        let compressed = self.method().map(|method| (method, items(method, self.raw, stream)));
        cost(terms, u64::from(self.tuple), out, compressed)
    }

    /// The same for the value of a part in a column of its own, of the document's type, and for the document without
    /// it. The part is assumed to compress as the document does.
    pub(super) fn extracted(&self, part: &VisitedPart<'_>, terms: &TableTerms) -> Cost {
        let (content, datum) = match part.extracted {
            ExtractedDatum::Null => (0, 0),
            ExtractedDatum::Varlena(content) | ExtractedDatum::Short(content) => {
                let header =
                    if content <= LONGEST_SHORT { 1 } else { u64::from(VARLENA_HEADER_SIZE) };
                (content, content + header)
            }
            ExtractedDatum::Fixed(bytes) => (bytes, bytes),
        };
        let share = self.bytes() as f64 / self.raw.max(1) as f64;
        // a document in its row gets shorter
        let gone = if self.value.form.is_external() { 0.0 } else { part.bytes as f64 * share };
        let rest = u64::from(self.tuple).saturating_sub(gone as u64);
        let longest = terms.page.toast_tuple_threshold() as u64;
        if rest + datum <= longest {
            return cost(terms, rest + datum, None, None);
        }
        let method = if share < 1.0 { self.method() } else { None };
        let small = method.map_or(content, |_| (content as f64 * share).ceil() as u64);
        let compressed = method.map(|method| (method, items(method, content, small)));
        let squeezed = small + u64::from(COMPRESSED_HEADER_SIZE);
        if method.is_some() && rest + squeezed <= longest {
            return cost(terms, rest + squeezed, None, compressed);
        }
        let stored = u32::try_from(small).unwrap_or(u32::MAX);
        cost(terms, rest + POINTER, Some((stored, None)), compressed)
    }
}

/// What a document of `raw` bytes consists of, compressed to `stream` bytes.
fn items(method: Method, raw: u64, stream: u64) -> Items {
    let [raw, stream] = [raw, stream].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    Items::typical(method, raw, stream)
}

/// In a row of `tuple` bytes, `out` of which are bytes out of line and page changes between their chunks.
fn cost(
    terms: &TableTerms,
    tuple: u64,
    out: Option<(u32, Option<u32>)>,
    compressed: Option<(Method, Items)>,
) -> Cost {
    let mut read = ReadWork::default();
    let tuple = u32::try_from(tuple).unwrap_or(u32::MAX);
    let mut update =
        UpdateWork { rows: 1.0, heap_bytes: tuple_bytes(tuple) as f64, ..UpdateWork::default() };
    if let Some((stored, visits)) = out {
        read = ToastIndex::read(terms.page, terms.levels, stored, visits);
        update.toast_bytes = chunk_bytes(terms.page, stored) as f64;
        (update.chunks, update.deleted_chunks) = (read.chunks, read.chunks);
    }
    if let Some((method, items)) = compressed {
        read.decompressions = 1.0;
        match method {
            Method::Pglz => read.pglz = items,
            Method::Lz4 => read.lz4 = items,
        }
    }
    Cost {
        buffers: read.buffers(),
        cpu_ns: Prices::default().read_ns(&read),
        wal: update.wal_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::jsonb_parts::{JsonKind, PartStep};

    const TERMS: TableTerms = TableTerms { page: PageSize::DEFAULT, levels: 2 };

    fn document(form: Form, raw: u64, stored: u64, tuple: u32) -> StoredDocument {
        let method = matches!(form, Form::Compressed | Form::ExternalCompressed);
        let value = StoredValue {
            form,
            method: method.then_some(Method::Pglz),
            raw_size: Some(raw),
            stored_size: Some(stored),
            ..StoredValue::NULL
        };
        StoredDocument { value, raw, tuple, visits: None }
    }

    fn text(bytes: &[u8]) -> VisitedPart<'_> {
        let own = 8 + 3 + bytes.len() as u64;
        let extracted = ExtractedDatum::Varlena(8 + bytes.len() as u64);
        let step = PartStep::Key(b"key");
        let kind = JsonKind::String;
        VisitedPart { step, kind, bytes: own, value: bytes, byte: 0, extracted }
    }

    #[test]
    fn a_small_key_of_a_large_document_is_read_with_its_row_once_it_has_a_column() {
        let large = document(Form::External, 100_000, 100_000, 50);
        let now = large.now(&TERMS);
        // 51 chunks on 13 pages
        assert!(
            (now.buffers - (2.0 + 13.0 + 51.0 * ToastIndex::pages_per_chunk(TERMS.page))).abs()
                < 1e-9
        );
        let then = large.extracted(&text(b"small"), &TERMS);
        assert_eq!((then.buffers, then.cpu_ns), (0.0, 0.0));
        assert!(now.wal > 100_000.0 && then.wal < 250.0, "{now:?} {then:?}");
        let counted = StoredDocument { visits: Some(40), ..large };
        assert!((counted.now(&TERMS).buffers - now.buffers - 27.0).abs() < 1e-9);
    }

    #[test]
    fn a_large_key_goes_out_of_line_by_itself() {
        let bytes = vec![b'x'; 50_000];
        let then = document(Form::External, 100_000, 100_000, 50).extracted(&text(&bytes), &TERMS);
        // 26 chunks on 7 pages
        assert!(then.buffers > 9.0 && then.buffers < 9.5, "{then:?}");
        // compressed like the document it fits the row
        let small = document(Form::ExternalCompressed, 100_000, 2500, 50);
        let then = small.extracted(&text(&bytes), &TERMS);
        assert_eq!(then.buffers, 0.0);
        assert!(then.cpu_ns > 5000.0, "{then:?}");
    }

    #[test]
    fn documents_in_their_rows_gain_nothing() {
        let small = document(Form::Plain, 500, 504, 540);
        let now = small.now(&TERMS);
        let then = small.extracted(&text(b"abc"), &TERMS);
        assert_eq!((now.buffers, then.buffers), (0.0, 0.0));
        assert!((now.wal - then.wal).abs() < 20.0, "{now:?} {then:?}");
    }

    #[test]
    fn bytes_stand_in_chunks_as_they_are_stored() {
        let page = PageSize::DEFAULT;
        let plain = document(Form::External, 10_000, 10_000, 50);
        assert_eq!(
            [0, 1995, 1996, 9_999].map(|at| plain.chunk(at, page)),
            [Some(0), Some(0), Some(1), Some(5)]
        );
        let half = document(Form::ExternalCompressed, 10_000, 5_000, 50);
        assert_eq!(
            [0, 3991, 3993, 9_999, 10_000].map(|at| half.chunk(at, page)),
            [Some(0), Some(0), Some(1), Some(2), Some(2)]
        );
        assert_eq!(document(Form::Plain, 100, 104, 130).chunk(0, page), None);
    }
}
