//! The relation whose pages a check reads, and the receiver of what the check finds on them.

use super::finding::Finding;
use super::value::Toast;
use super::visibility_map::VisibilityMap;
use toast_format::disk::type_kind::Types;
use toast_format::disk::{
    Attribute, BlockNumber, ByteOrder, CustomFlavor, CustomPointer, ItemPointer, Page, PageSize,
    PageState, ToastPointer, TransactionId, TupleDesc, ValueId,
};
use toast_format::heap::problem::Place;
use toast_format::model::visibility::Transactions;

/// How far a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Whether compressed values are decompressed.
    pub decompress: bool,
    /// Whether contents are looked at by their types.
    pub content: bool,
    /// Whether the database's encoding is UTF8, so that text can be checked.
    pub utf8: bool,
}

/// Which transaction IDs a relation can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XidLimits {
    /// The oldest transaction ID that is not frozen, read before the page.
    pub frozen: TransactionId,
    /// The oldest MultiXact ID, likewise.
    pub multi: TransactionId,
    /// What the server calls the two: they are the relation's, or those of the cluster.
    pub oldest: [&'static str; 2],
    /// The next transaction ID.
    pub next: TransactionId,
    /// Whether that was read after the page; else transactions that follow may have written to it.
    pub is_exact: bool,
    /// The next MultiXact ID, read after the page was read, if it was.
    pub next_multi: Option<TransactionId>,
}

/// The first transaction ID that is no special one (`FirstNormalTransactionId`).
const FIRST_NORMAL: u32 = 3;
/// IDs so far ahead of one that was read before the page may have been given since.
const AHEAD: i32 = 1 << 24;

impl XidLimits {
    /// The range, where `xid` is not in it (`get_xid_status`).
    pub(super) fn refuses(&self, xid: TransactionId) -> Option<String> {
        let is_old = self.frozen.0 >= FIRST_NORMAL && self.frozen.distance_to(xid) < 0;
        let most = if self.is_exact { -1 } else { AHEAD };
        if xid.0 < FIRST_NORMAL || !(is_old || self.next.distance_to(xid) > most) {
            return None;
        }
        let [oldest, _] = self.oldest;
        Some(format!("an ID from {oldest} {} to the next, {}", self.frozen.0, self.next.0))
    }

    /// The range of MultiXact IDs, where `multi` is not in it (`check_mxid_in_range`).
    pub(super) fn refuses_multi(&self, multi: TransactionId) -> Option<String> {
        let is_old = self.multi.0 != 0 && self.multi.distance_to(multi) < 0;
        let is_ahead = self.next_multi.is_some_and(|next| next.distance_to(multi) >= 0);
        if multi.0 != 0 && !is_old && !is_ahead {
            return None;
        }
        if self.multi.0 == 0 {
            return Some("a MultiXact ID, which is never 0".to_owned());
        }
        let next = self.next_multi.map_or(String::new(), |next| format!(" to before {}", next.0));
        let [_, oldest] = self.oldest;
        Some(format!("an ID from {oldest} {} on{next}", self.multi.0))
    }
}

/// One of the two relations of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Heap,
    Toast,
}

/// What pages are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOwner {
    Table,
    /// A TOAST relation, whose tuples are never updated.
    Toast,
    /// Not known, or their block numbers are not.
    Unplaced,
}

/// A relation whose pages are looked at.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Its name in places.
    pub source: &'a str,
    pub pages: PageOwner,
    pub desc: &'a TupleDesc,
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Which TOAST relation its pointers may name.
    pub toast: Toast,
    /// Which transaction IDs it can hold, if that is known.
    pub xids: Option<XidLimits>,
    /// Commit status, if hint bits can be held against it.
    pub commit_status: Option<&'a (dyn Transactions + Sync)>,
    /// The end of the WAL when the pages were read, if all of their changes are in it.
    pub wal_end: Option<u64>,
    /// Its visibility map, as it was before the pages were read.
    pub(super) map: Option<&'a VisibilityMap>,
    /// Whether a server wrote it that is newer than those that are known: what is unknown in it may be no damage.
    pub is_newer: bool,
    /// Whether SQL finds a row's columns behind its null bitmap, whatever `t_hoff` says, as of PostgreSQL 19.
    pub ignores_hoff: bool,
    /// Whether pages carry checksums that hold for their bytes as given.
    pub checksums: bool,
    /// How far it goes.
    pub depth: Depth,
    /// What its columns' types are made of.
    pub types: &'a Types,
}

impl Subject<'_> {
    pub(super) fn page_place(&self, block: BlockNumber) -> Place {
        Place { block: Some(block), ..Place::new(self.source) }
    }

    pub(super) fn tuple_place(&self, ctid: ItemPointer) -> Place {
        Place { item: Some(ctid.item), ..self.page_place(ctid.block) }
    }
}

/// A page of a relation as it was read, and what tells which of its tuples are visible.
pub(super) struct SeenPage<'a, V> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) block: BlockNumber,
    pub(super) bytes: &'a [u8],
    pub(super) visible: &'a V,
}

impl<'a, V> SeenPage<'a, V> {
    /// The page, if it is in use and its header is sound.
    pub(super) fn parsed(&self) -> Option<Page<'a>> {
        match Page::parse(self.bytes) {
            Ok(PageState::Used(page)) => Some(page),
            _ => None,
        }
    }
}

/// A value out of line whose pointer is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct External {
    pub ctid: ItemPointer,
    /// The column's index from 0.
    pub index: usize,
    /// Where the pointer stands in the tuple.
    pub byte: usize,
    pub pointer: ToastPointer,
    /// Whether the row is surely live: else its chunks may be gone.
    pub is_live: bool,
    /// The byte order of its page.
    pub order: ByteOrder,
}

/// Receives what a check finds on pages. Methods that a check does not need do nothing.
pub trait PageFindings {
    fn finding(&mut self, finding: Finding);
    /// A row is live, or (`false`) nothing says whether it is.
    fn row(&mut self, _is_live: bool) {}
    /// A value out of line, of a row that is not known to be dead.
    fn external(&mut self, _value: External) {}
    /// A value of a pluggable toaster, likewise.
    fn custom(&mut self, _: Place, _: &Attribute, _: &CustomPointer<'_>, _is_live: bool) {}
    /// A row, dead ones included, refers to this value of the TOAST relation.
    fn refers_to(&mut self, _value_id: ValueId) {}
    /// A dead row at this place refers to values by a pluggable toaster's pointer.
    fn refers_by(&mut self, _: &Place, _: &CustomPointer<'_>) {}
    /// Not everything that rows refer to could be learned.
    fn is_incomplete(&mut self) {}
    /// A page is in use, or (`false`) new: zeros.
    fn page(&mut self, _block: BlockNumber, _is_used: bool) {}
    /// A page of a table has bytes to which no line pointer leads.
    fn lost_bytes(&mut self, _block: BlockNumber) {}
    /// A value in the row was decompressed to so many bytes.
    fn decompressed(&mut self, _bytes: usize) {}
}
