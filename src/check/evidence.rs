//! What a source has of damaged values: a table of a server, or files.

use std::collections::HashMap;

use super::chunk_index::ChunkTuple;
use super::finding::CheckError;
use super::salvage::SavedChunk;
use super::subject::{SeenPage, Which};
use toast_format::disk::{BlockNumber, ItemPointer, ToastPointer};
use toast_format::heap::scan::Visible;
use toast_format::model::HintBits;

/// Chunks of values, deleted ones too, by the values' IDs.
pub(super) type ChunksByValue = HashMap<u64, Vec<ChunkTuple>>;

/// The chunks to which the index leads for a value, where it does so in another way than their IDs and numbers say.
pub(super) struct IndexedChunks {
    /// `None` if the order of their numbers is as good.
    pub(super) chunks: Option<Vec<SavedChunk>>,
    /// Whether that order hangs on no damaged number.
    pub(super) is_proven: bool,
}

/// A source of damaged values.
pub(super) trait Evidence {
    /// Tells which tuples are visible.
    type Visible: Visible;

    /// Calls `take` with the pages of these blocks, or of all, in order. Returns the blocks that are refused.
    async fn each_page(
        &mut self,
        which: Which,
        blocks: Option<Vec<BlockNumber>>,
        take: impl FnMut(&SeenPage<'_, Self::Visible>),
    ) -> Result<Vec<BlockNumber>, CheckError>;

    /// Calls `take` with refused pages as their file has them, as far as it can be read.
    async fn each_refused(
        &mut self,
        which: Which,
        blocks: Vec<BlockNumber>,
        take: impl FnMut(&SeenPage<'_, HintBits>),
    ) -> Result<(), CheckError>;

    /// The text of a value, by SQL if there is a server that may be asked.
    async fn text_of(
        &mut self,
        _column: &str,
        _ctid: ItemPointer,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        Ok(None)
    }

    /// The chunks of a value as the index leads to them, if that differs from what `chunks` say.
    async fn by_index(
        &mut self,
        _pointer: &ToastPointer,
        _chunks: &ChunksByValue,
    ) -> Result<Option<IndexedChunks>, CheckError> {
        Ok(None)
    }

    /// Calls `each` with every chunk whose value `is_asked` for, deleted ones too. Returns the blocks that are refused.
    async fn each_chunk(
        &mut self,
        is_asked: impl Fn(u64) -> bool,
        mut each: impl FnMut(u64, ChunkTuple),
    ) -> Result<Vec<BlockNumber>, CheckError> {
        self.each_page(Which::Toast, None, |page| page.each_chunk(&is_asked, &mut each)).await
    }
}
