//! A value as the server reads it, and as it is reassembled here: both as an md5, so that they can be compared.
//!
//! Servers with pluggable TOAST misread some values of their own toasters.

use md5::Digest;

use super::contents::{Md5Sink, TextForm, md5_hex, write_text};
use crate::server::chunks::LiveChunks;
use toast_format::disk::value_text::{self, hex};
use toast_format::disk::{ByteOrder, Oid, PageSize, Varlena};
use toast_format::model::Toasters;
use toast_format::model::toaster::chunks::{ChunkStore, FetchedChunks, StoreError, WantedChunks};
use toast_format::model::toaster::describe::describe;
use toast_format::model::toaster::error::ToastError;
use toast_format::model::toaster::reassemble::Reassembler;

const BYTEA: Oid = Oid(17);
/// Arrays of int2, int4, text, varchar, int8, oid, numeric and uuid, whose text is known to the byte.
const ARRAYS: [u32; 8] = [1005, 1007, 1009, 1015, 1016, 1028, 1231, 2951];

/// A type whose values are compared. For a domain, the base type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComparedType(Oid);

impl ComparedType {
    /// `None` if the text of the type's values is not known here.
    pub(crate) fn new(base_type: Oid) -> Option<ComparedType> {
        let is_array = ARRAYS.contains(&base_type.0);
        let is_known = base_type == BYTEA || is_array || TextForm::of_type(base_type).is_some();
        is_known.then_some(ComparedType(base_type))
    }

    /// The md5 of what the server reads, as an SQL expression.
    pub(crate) fn sql(self, value: &str) -> String {
        if self.0 == BYTEA {
            format!("pg_catalog.md5(({value})::pg_catalog.bytea)")
        } else {
            // A cast of character(n) to text would remove blanks.
            format!("pg_catalog.md5(pg_catalog.concat({value}))")
        }
    }

    /// The md5 of what is reassembled here.
    fn reassembled<S: ChunkStore>(
        self,
        value: &Varlena<'_>,
        reassembler: &mut Reassembler<'_, S>,
    ) -> Result<String, ToastError> {
        let logical = reassembler.value(value)?;
        if self.0 == BYTEA {
            return Ok(md5_hex(logical.content()?));
        }
        if ARRAYS.contains(&self.0.0) {
            let text = value_text::array(logical.content()?, reassembler.order);
            let text =
                text.ok_or_else(|| ToastError::Content("the array is damaged".to_owned()))?;
            return Ok(md5_hex(&text));
        }
        let mut text = Md5Sink::default();
        write_text(&logical, self.0, reassembler, &mut text)?;
        Ok(hex(&text.md5.finalize()))
    }
}

/// A custom pointer of a row, copied from its page.
#[derive(Debug, Clone)]
pub(crate) struct CustomDatum {
    /// The index of its column.
    pub(crate) index: usize,
    pub(crate) order: ByteOrder,
    pub(crate) bytes: Vec<u8>,
}

impl CustomDatum {
    /// The md5 of the value as it is reassembled from the chunks that `chunks` reads.
    pub(crate) async fn reassembled(
        &self,
        compared: ComparedType,
        toasters: &Toasters,
        page: PageSize,
        chunks: &mut LiveChunks,
    ) -> Result<String, ToastError> {
        let (value, _) = Varlena::parse(&self.bytes, self.order)
            .map_err(|error| ToastError::Store(StoreError(error.to_string())))?;
        let mut wanted = chunks_of(&value, toasters, page);
        let mut store = FetchedChunks::default();
        loop {
            for wanted in wanted {
                chunks.fetch(wanted, &mut store).await?;
            }
            let order = self.order;
            let mut reassembler = Reassembler { store: &mut store, toasters, page, order };
            let read = compared.reassembled(&value, &mut reassembler);
            wanted = store.take_wanted();
            if wanted.is_empty() {
                return read;
            }
        }
    }
}

/// The chunks that a pointer itself names. Those of containers inside others are known once these are read.
fn chunks_of(value: &Varlena<'_>, toasters: &Toasters, page: PageSize) -> Vec<WantedChunks> {
    let mut wanted = Vec::new();
    let Varlena::Custom(pointer) = value else { return wanted };
    let Ok(description) = describe(pointer, toasters, page) else { return wanted };
    for part in &description.parts {
        match (part.relation, part.value) {
            (Some(relation), None) => {
                wanted.extend(part.tids.iter().map(|&tid| WantedChunks::At(relation, tid)));
            }
            (_, Some(value)) if part.tids.is_empty() => {
                wanted.push(WantedChunks::Value(value.relation, value.value_id));
            }
            (_, Some(value)) => {
                wanted.extend(part.tids.iter().map(|&tid| WantedChunks::At(value.relation, tid)));
            }
            (None, None) => {}
        }
    }
    wanted
}
