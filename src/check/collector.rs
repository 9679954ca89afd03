//! Collects what a check finds on the pages of a table, and checks values once they are reassembled.

use std::borrow::Cow;

use parking_lot::Mutex;

use super::code::Code;
use super::finding::{CheckedAmounts, Finding, MAX_KNOWN, Remarks};
use super::formats::check_content;
use super::subject::{External, PageFindings, Subject};
use super::tuple::at_value;
use super::value::{ChunkSeen, Damage, external_content};
use crate::value::reading::CustomDatum;
use toast_format::disk::jsonb_text::TextSink;
use toast_format::disk::{
    Attribute, BlockNumber, ByteOrder, CustomPointer, ItemPointer, Oid, PageSize, TransactionId,
    ValueId, Varlena,
};
use toast_format::heap::problem::Place;
use toast_format::model::Toasters;
use toast_format::model::toaster::catalog::Handler;
use toast_format::model::toaster::chunks::{ChunkStore, CountedChunks};
use toast_format::model::toaster::describe::{Description, KnownFailure, describe};
use toast_format::model::toaster::error::ToastError;
use toast_format::model::toaster::reassemble::{Logical, Reassembler};

const JSONB: Oid = Oid(3802);

/// Puts values of pluggable toasters together.
pub(super) trait Customs: Sync {
    /// Whether the value can be read, with its text if `with_text`, and from how many chunks; `None` if chunks are out of
    /// reach.
    fn reassemble(
        &self,
        value: &Varlena<'_>,
        order: ByteOrder,
        with_text: bool,
    ) -> Option<Result<u64, ToastError>>;
}

/// Puts them together from the chunks of `store`, if there is one.
pub(super) struct StoredCustoms<'a, S> {
    pub(super) store: &'a Mutex<S>,
    pub(super) toasters: &'a Toasters,
    pub(super) page: PageSize,
}

impl<S: ChunkStore + Send> Customs for Option<StoredCustoms<'_, S>> {
    fn reassemble(
        &self,
        value: &Varlena<'_>,
        order: ByteOrder,
        with_text: bool,
    ) -> Option<Result<u64, ToastError>> {
        let StoredCustoms { store, toasters, page } = *self.as_ref()?;
        let store = &mut *store.lock();
        let mut store = CountedChunks::new(store);
        let mut reassembler = Reassembler { store: &mut store, toasters, page, order };
        let read = reassembler.value(value).and_then(|logical| {
            // only the text reads the containers that were moved out
            if with_text || matches!(logical, Logical::Jsonb(_)) {
                reassembler.jsonb_text(&logical, &mut Nowhere)?;
            }
            Ok(())
        });
        Some(read.map(|()| store.chunks))
    }
}

/// A text that nobody reads.
struct Nowhere;

impl TextSink for Nowhere {
    fn put(&mut self, _piece: &[u8]) {}
}

/// New blocks, and the last one in use.
#[derive(Debug, Clone, Default)]
pub struct Zeros {
    blocks: Vec<BlockNumber>,
    last_used: Option<BlockNumber>,
}

impl Zeros {
    /// Blocks that are kept.
    const MOST: usize = 100_000;

    pub(super) fn note(&mut self, block: BlockNumber, is_used: bool) {
        if is_used {
            self.last_used = self.last_used.max(Some(block));
        } else if self.blocks.len() < Zeros::MOST {
            self.blocks.push(block);
        }
    }

    pub(super) fn add(&mut self, other: Zeros) {
        self.last_used = self.last_used.max(other.last_used);
        let room = Zeros::MOST.saturating_sub(self.blocks.len());
        self.blocks.extend(other.blocks.into_iter().take(room));
    }

    /// All of them that are kept, in order.
    pub(super) fn blocks(&self) -> Vec<BlockNumber> {
        let mut blocks = self.blocks.clone();
        blocks.sort_unstable();
        blocks
    }

    /// The note about blocks beyond those that are kept.
    pub(super) fn left_out(&self) -> Option<String> {
        let is_full = self.blocks.len() >= Zeros::MOST;
        is_full.then(|| format!("only {} of the blocks of zeros were examined", Zeros::MOST))
    }

    /// Whether a block is in use.
    pub(super) fn has_used(&self) -> bool {
        self.last_used.is_some()
    }

    /// The blocks in front of the last used one, in order.
    pub(super) fn in_front(&self) -> Vec<BlockNumber> {
        let mut blocks = self.blocks();
        blocks.retain(|block| Some(*block) < self.last_used);
        blocks
    }
}

/// What was found in some blocks of a table or of its TOAST relation, or in all.
#[derive(Debug, Default)]
pub(super) struct CheckedBlocks {
    pub(super) findings: Vec<Finding>,
    pub(super) looked: CheckedAmounts,
    /// Values of the TOAST relation that rows refer to, and those that live rows do.
    pub(super) known: Vec<u64>,
    pub(super) live: Vec<u64>,
    /// Whether rows refer to more than `known`, apart from chunks that are known by their addresses.
    pub(super) is_incomplete: bool,
    pub(super) zeros: Zeros,
    /// Blocks with bytes to which no line pointer leads.
    pub(super) without_pointers: Vec<BlockNumber>,
    /// Notes about values that are not damaged.
    pub(super) remarks: Remarks,
    /// Values whose chunks are missing or cannot be read, with their findings: whether the index alone is damaged is still
    /// to be seen.
    pub(super) missing: Vec<(Finding, External)>,
    /// Values in another TOAST relation than the table's, which were not looked at.
    pub(super) elsewhere: u64,
    /// The end of the write-ahead log when the blocks were read, if the table's changes are in it.
    pub(super) lsn: Option<u64>,
    /// Live chunks in blocks of the TOAST relation, each with its value ID and the transaction that inserted it.
    pub(super) chunks: Vec<(u64, TransactionId)>,
    /// Sound values of pluggable toasters, which the server may misread.
    pub(super) customs: Vec<(Place, CustomDatum)>,
}

impl CheckedBlocks {
    /// Adds what is known of the rows of other blocks.
    pub(super) fn add_rows(&mut self, other: CheckedBlocks) {
        self.zeros.add(other.zeros);
        self.without_pointers.extend(other.without_pointers);
        self.is_incomplete |= other.is_incomplete || other.elsewhere > 0;
        if self.known.len() < MAX_KNOWN {
            self.known.extend(other.known);
            self.live.extend(other.live);
        } else {
            self.is_incomplete = true;
        }
    }

    /// Whether the IDs of all values that rows refer to are known.
    pub(super) fn tells_all(&self) -> bool {
        let Remarks { unknown, by_address, .. } = &self.remarks;
        unknown.count + by_address.count == 0 && self.known.len() < MAX_KNOWN
    }
}

/// Collects the results of checking some pages.
pub(super) struct Collector<'a> {
    pub(super) subject: &'a Subject<'a>,
    customs: Option<&'a dyn Customs>,
    pub(super) blocks: CheckedBlocks,
    /// Values out of line whose chunks are still to be looked at.
    pub(super) externals: Vec<External>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(subject: &'a Subject<'a>, customs: Option<&'a dyn Customs>) -> Collector<'a> {
        Collector { subject, customs, blocks: CheckedBlocks::default(), externals: Vec::new() }
    }

    fn column(&self, value: &External) -> Option<&'a Attribute> {
        self.subject.desc.attributes.get(value.index)
    }

    fn place(&self, value: &External) -> Place {
        Place {
            column: self.column(value).map(|column| column.name.clone()),
            byte: Some(value.byte),
            ..self.subject.tuple_place(value.ctid)
        }
    }

    /// The finding for a damaged value out of line; `None` for a row that may be dead, which can lack chunks without damage.
    pub(super) fn finding_of(&self, value: &External, damage: Damage) -> Option<Finding> {
        let is_damage = value.is_live || !damage.is_absence();
        is_damage.then(|| at_value(damage, self.place(value)))
    }

    pub(super) fn damaged(&mut self, value: &External, damage: Damage) {
        let finding = self.finding_of(value, damage);
        self.blocks.findings.extend(finding);
    }

    /// Whether the chunks' data are wanted, not only their sizes.
    pub(super) fn wants_content(&self, value: &External) -> bool {
        let depth = self.subject.depth;
        depth.content || depth.decompress && value.pointer.is_compressed()
    }

    /// Checks the content of a value out of line whose chunks are these, in order. `read` joins their data, or gives the
    /// address at which there are none.
    pub(super) fn content_of<'d>(
        &mut self,
        value: &External,
        chunks: &[ChunkSeen],
        read: impl FnOnce() -> Result<Cow<'d, [u8]>, ItemPointer>,
    ) {
        self.blocks.looked.values += 1;
        self.blocks.looked.chunks += chunks.len() as u64;
        if !self.wants_content(value) {
            return;
        }
        let stored = read().map_err(|tid| {
            Damage::new(Code::ChunkUnreadable, "the chunk's page", format!("none at {tid}"))
        });
        let content =
            stored.and_then(|stored| external_content(&value.pointer, stored, value.order));
        let content = match content {
            Ok(content) => content,
            Err(damage) => return self.damaged(value, damage),
        };
        if value.pointer.is_compressed() {
            self.decompressed(content.len());
        }
        let Some(column) = self.column(value) else { return };
        let Subject { depth, types, .. } = self.subject;
        if depth.content
            && !column.dropped
            && let Some(damage) = check_content(column, &content, value.order, depth.utf8, types)
        {
            self.damaged(value, damage);
        }
    }

    /// Keeps a live value of a pluggable toaster that could be reassembled.
    fn sound(
        &mut self,
        place: &Place,
        column: &Attribute,
        pointer: &CustomPointer<'_>,
        failure: Option<KnownFailure>,
    ) {
        if failure == Some(KnownFailure::CompressedTwice) {
            let expected = "a value that the server can read";
            let found = "one that is compressed as a whole and chunk by chunk, on which the server fails or crashes";
            self.blocks.findings.push(Finding::new(
                Code::CustomMisread,
                place.clone(),
                expected,
                found,
            ));
            return;
        }
        if failure == Some(KnownFailure::CompressedChunks) {
            self.blocks.remarks.crashing.note(place);
            return;
        }
        let index =
            self.subject.desc.attributes.iter().position(|other| std::ptr::eq(other, column));
        if let (Some(index), false) = (index, column.dropped) {
            let order = pointer.order;
            let bytes = pointer.datum.to_vec();
            let datum = CustomDatum { index, order, bytes };
            self.blocks.customs.push((place.clone(), datum));
        }
    }

    /// Notes what a custom pointer at `place` refers to.
    fn refer(&mut self, place: &Place, described: Result<&Description, &ToastError>) {
        let Ok(description) = described else {
            self.blocks.is_incomplete = true;
            return;
        };
        if description.toaster.handler == Handler::Unknown {
            self.blocks.is_incomplete = true;
        }
        for part in &description.parts {
            match part.value {
                Some(value) => self.blocks.known.push(value.value_id.0),
                None if part.relation.is_some() => self.blocks.remarks.by_address.note(place),
                None => {}
            }
        }
    }
}

impl PageFindings for Collector<'_> {
    fn finding(&mut self, finding: Finding) {
        if self.subject.is_newer && matches!(finding.code, Code::Tag | Code::Method) {
            self.blocks.remarks.unknown.note(&finding.place);
        } else {
            self.blocks.findings.push(finding);
        }
    }

    fn row(&mut self, is_live: bool) {
        if is_live {
            self.blocks.looked.rows += 1;
        } else {
            self.blocks.looked.undecided += 1;
        }
    }

    fn page(&mut self, block: BlockNumber, is_used: bool) {
        self.blocks.zeros.note(block, is_used);
    }

    fn external(&mut self, value: External) {
        if value.is_live {
            self.blocks.live.push(value.pointer.value_id.0);
        }
        self.externals.push(value);
    }

    fn custom(
        &mut self,
        place: Place,
        column: &Attribute,
        pointer: &CustomPointer<'_>,
        is_live: bool,
    ) {
        let described = describe(pointer, &Toasters::by_bytes(), self.subject.page_size);
        self.refer(&place, described.as_ref());
        let failure = described.as_ref().ok().and_then(Description::known_failure);
        if failure == Some(KnownFailure::ChangedInPlace) {
            self.blocks.remarks.stale.note(&place);
        }
        let in_row = described.as_ref().is_ok_and(|description| {
            description.parts.iter().all(|part| part.value.is_none() && part.relation.is_none())
        });
        let described = match described {
            Ok(description) if description.toaster.handler == Handler::Unknown => {
                Err(ToastError::UnknownToaster(pointer.toaster))
            }
            other => other.map(|_| 0),
        };
        let looked = match (described, self.customs) {
            (Ok(_) | Err(ToastError::UnknownToaster(_)), Some(customs)) if is_live => {
                let with_text = self.subject.depth.content && column.type_oid == JSONB;
                customs.reassemble(&Varlena::Custom(*pointer), pointer.order, with_text)
            }
            (described, _) => Some(described),
        };
        let Some(result) = looked else { return };
        match result {
            Ok(chunks) => {
                if is_live {
                    self.sound(&place, column, pointer, failure);
                }
                if !in_row {
                    self.blocks.looked.values += 1;
                    self.blocks.looked.chunks += chunks;
                }
            }
            Err(error) => match code(pointer, &error) {
                Some(code) => {
                    let expected = "a value that its toaster can read";
                    let damage = Damage::new(code, expected, error.to_string());
                    self.blocks.findings.push(at_value(damage, place));
                }
                None => self.blocks.remarks.unknown.note(&place),
            },
        }
    }

    fn refers_to(&mut self, value_id: ValueId) {
        self.blocks.known.push(value_id.0);
    }

    fn refers_by(&mut self, place: &Place, pointer: &CustomPointer<'_>) {
        let described = describe(pointer, &Toasters::by_bytes(), self.subject.page_size);
        self.refer(place, described.as_ref());
    }

    fn is_incomplete(&mut self) {
        self.blocks.is_incomplete = true;
    }

    fn lost_bytes(&mut self, block: BlockNumber) {
        self.blocks.without_pointers.push(block);
    }

    fn decompressed(&mut self, bytes: usize) {
        self.blocks.looked.decompressed += 1;
        self.blocks.looked.raw_bytes += bytes as u64;
    }
}

/// Where `bytea_toaster` has the version, from the payload's start.
const VERSION_AT: usize = 16;

/// What `error` means for the value of a pluggable toaster's `pointer`; `None` where it is no damage: a toaster that is
/// not known here.
fn code(pointer: &CustomPointer<'_>, error: &ToastError) -> Option<Code> {
    Some(match error {
        ToastError::Inside { error, .. } => code(pointer, error)?,
        ToastError::UnknownToaster(_) => return None,
        ToastError::Store(_) => Code::ChunkUnreadable,
        ToastError::NoChunks { .. } => Code::NoChunks,
        ToastError::MissingChunk { .. } => Code::ChunkMissing,
        ToastError::UnexpectedChunk { .. } => Code::ChunkNumber,
        ToastError::DuplicateChunk { .. } => Code::ChunkTwice,
        ToastError::ChunkSize { .. }
        | ToastError::ChunkStart { .. }
        | ToastError::StoredSize { .. } => Code::ChunkSize,
        ToastError::CompressedChunk { .. } => Code::ChunkForm,
        ToastError::NoChunkAt { .. } | ToastError::OtherChunkAt { .. } => Code::CustomTid,
        ToastError::ChunkVersion { .. } => Code::CustomVersion,
        ToastError::Decompress { .. } => Code::ExternalCompressed,
        ToastError::UnknownTag(_) => Code::Tag,
        ToastError::Jsonb(_) | ToastError::Content(_) => Code::Jsonb,
        ToastError::TidList { .. } => Code::CustomTidList,
        ToastError::Patch { .. } => Code::CustomPatch,
        ToastError::Custom { toaster: "bytea_toaster", byte, .. }
            if *byte == pointer.layout.head_size() + VERSION_AT =>
        {
            Code::CustomVersion
        }
        ToastError::Custom { .. }
        | ToastError::Pointer { .. }
        | ToastError::PayloadMissing(_)
        | ToastError::NoContent(_)
        | ToastError::TooLong => Code::CustomPointer,
    })
}
