//! A page: its header, checksum and line pointers, and the tuples that these lead to (pure;
//! `PageIsVerifiedExtended`, `verify_heapam`).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::code::Code;
use super::finding::Finding;
use super::subject::{PageFindings, PageOwner, Subject};
use super::tuple::{INFOMASK_AT, INFOMASK2_AT, TupleCheck};
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::page::{
    ItemError, LinePointer, LinePointerState, PageError, PageHeader, WrongChecksum,
};
use toast_format::disk::tuple::{HOFF_AT, infomask};
use toast_format::disk::{
    BlockNumber, ByteOrder, HeapTuple, ItemPointer, Page, PageSize, PageState, max_align,
};
use toast_format::heap::problem::Place;
use toast_format::heap::scan::Visible;
use toast_format::model::Visibility;

/// Where the fields of a page's header stand.
const CHECKSUM_AT: usize = 8;
const FLAGS_AT: usize = 10;
const LOWER_AT: usize = 12;
const SIZE_AT: usize = 18;
/// Where line pointers begin, and how long one is.
const LINE_POINTERS_AT: usize = toast_format::disk::layout::PAGE_HEADER_SIZE;
const LINE_POINTER: usize = toast_format::disk::layout::LINE_POINTER_SIZE;

impl Subject<'_> {
    /// Looks at everything on a page.
    pub fn check_page(
        &self,
        block: BlockNumber,
        bytes: &[u8],
        visible: &impl Visible,
        found: &mut impl PageFindings,
    ) {
        let Some(page) = self.check_page_header(block, bytes, found) else { return };
        PageCheck { subject: self, block, page, found }.check(visible);
    }

    fn check_page_header<'p>(
        &self,
        block: BlockNumber,
        bytes: &'p [u8],
        found: &mut impl PageFindings,
    ) -> Option<Page<'p>> {
        match Page::parse(bytes) {
            Ok(PageState::New) => {
                found.page(block, false);
                None
            }
            Ok(PageState::Used(page)) => {
                found.page(block, true);
                let wrong = if self.checksums { page.wrong_checksum(block) } else { None };
                if let Some(WrongChecksum { right, got }) = wrong {
                    // what the bytes say is not to be believed
                    found.finding(checksum_finding(self.source, block, right, got));
                    found.is_incomplete();
                    return None;
                }
                Some(page)
            }
            Err(error) => {
                found.is_incomplete();
                found.finding(self.wrong_header(block, &error));
                None
            }
        }
    }

    /// The finding for a page whose header is invalid.
    fn wrong_header(&self, block: BlockNumber, error: &PageError) -> Finding {
        let (code, byte, expected, got) = match error {
            PageError::DirtyNew(byte) => {
                (Code::NewPage, *byte, "a page of zeros".to_owned(), "another byte".to_owned())
            }
            PageError::Flags(got) => {
                let expected = "pd_flags up to 0x0007".to_owned();
                (Code::PageHeader, FLAGS_AT, expected, format!("0x{got:04x}"))
            }
            PageError::SizeWord { got, expected } => {
                let expected = format!("size and version 0x{expected:04x}");
                (Code::PageHeader, SIZE_AT, expected, format!("0x{got:04x}"))
            }
            PageError::Bounds { lower, upper, special, size } => {
                let expected = format!("24 <= pd_lower <= pd_upper <= pd_special <= {size}");
                (Code::PageHeader, LOWER_AT, expected, format!("{lower}, {upper}, {special}"))
            }
            PageError::Size(got) => {
                let expected = format!("{} bytes", self.page_size.bytes());
                (Code::Unreadable, 0, expected, got.to_string())
            }
        };
        Finding::new(code, Place { byte: Some(byte), ..self.page_place(block) }, expected, got)
    }
}

/// The finding for a page of `source` with this checksum in place of the `right` one.
pub(super) fn checksum_finding(source: &str, block: BlockNumber, right: u16, got: u16) -> Finding {
    let place = Place { block: Some(block), byte: Some(CHECKSUM_AT), ..Place::new(source) };
    let expected = format!("checksum 0x{right:04x}");
    Finding::new(Code::Checksum, place, expected, format!("0x{got:04x}"))
}

/// The check of a page whose header is sound.
struct PageCheck<'c, 'p, F> {
    subject: &'c Subject<'c>,
    block: BlockNumber,
    page: Page<'p>,
    found: &'c mut F,
}

impl<F: PageFindings> PageCheck<'_, '_, F> {
    fn damage(
        &mut self,
        code: Code,
        place: Place,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) {
        self.found.finding(Finding::new(code, place, expected, got));
    }

    /// The place of a byte of the page.
    fn place(&self, byte: usize) -> Place {
        Place { byte: Some(byte), ..self.subject.page_place(self.block) }
    }

    /// The place of a byte of a tuple.
    fn tuple_place(&self, item: u16, byte: usize) -> Place {
        Place { item: Some(item), ..self.place(byte) }
    }

    fn check(&mut self, visible: &impl Visible) {
        self.check_changes();
        let mut tuples: Vec<(u16, LinePointer)> = Vec::new();
        let mut chains = Chains::default();
        for (item, pointer) in self.page.line_pointers() {
            match pointer.state {
                LinePointerState::Unused | LinePointerState::Dead => {}
                LinePointerState::Redirect => {
                    chains.redirects.push((item, pointer.offset));
                    self.check_redirect(item);
                }
                LinePointerState::Normal => {
                    if self.check_line_pointer(item, pointer) {
                        tuples.push((item, pointer));
                    } else {
                        chains.is_cut = true;
                    }
                }
            }
        }
        if self.subject.pages == PageOwner::Table && self.page.lost_bytes() > 0 {
            self.found.lost_bytes(self.block);
        }
        self.check_address(&tuples);
        let overlapping = self.check_overlaps(&tuples);
        let all_visible = visible.sees_all_of(&self.page);
        for (item, pointer) in tuples {
            let ctid = ItemPointer { block: self.block, item };
            let Ok(bytes) = self.page.tuple_bytes(pointer) else { continue };
            if overlapping.contains(&item) {
                self.found.is_incomplete();
                chains.is_cut = true;
                continue;
            }
            let order = self.page.byte_order();
            let Some(tuple) = self.tuple_check(ctid).header(bytes, order) else {
                self.found.is_incomplete();
                chains.is_cut = true;
                continue;
            };
            let seen =
                if all_visible { Visibility::Live } else { visible.visibility(ctid, &tuple) };
            chains.tuple(ctid, &tuple, seen);
            self.check_all_visible(item, &tuple);
            if seen == Visibility::Dead {
                self.tuple_check(ctid).note_references(&tuple);
            } else {
                self.found.row(seen == Visibility::Live);
                self.tuple_check(ctid).attributes(&tuple, seen);
            }
        }
        self.check_chains(&chains, visible);
    }

    fn tuple_check(&mut self, ctid: ItemPointer) -> TupleCheck<'_, F> {
        TupleCheck { subject: self.subject, ctid, found: self.found }
    }

    /// The WAL has every change of a page, and a change clears the page's bits in the visibility map.
    fn check_changes(&mut self) {
        let lsn = self.page.header().lsn;
        if let Some(end) = self.subject.wal_end.filter(|end| lsn > *end) {
            let expected =
                format!("an LSN up to the end of the WAL, {:X}/{:X}", end >> 32, end as u32);
            let got = format!("{:X}/{:X}", lsn >> 32, lsn as u32);
            self.damage(Code::PageLsn, self.place(0), expected, got);
        }
        let map = self.subject.map;
        if !self.page.all_visible() && map.is_some_and(|map| map.has(self.block.0)) {
            let place = self.place(FLAGS_AT);
            let expected = "PD_ALL_VISIBLE, as the visibility map says";
            self.damage(Code::MapBit, place, expected, "a page that was changed");
        }
    }

    /// No tuple of an all-visible page is deleted, or of an aborted transaction, as hint bits or pg_xact have it.
    fn check_all_visible(&mut self, item: u16, tuple: &HeapTuple<'_>) {
        let subject = self.subject;
        let has = |bit| tuple.infomask & bit != 0;
        // hint bits that contradict it have findings of their own
        let is_aborted = has(infomask::XMIN_INVALID)
            && !tuple.xmin_frozen()
            && subject.committed(tuple.xmin) != Some(true);
        let is_over = has(infomask::XMAX_COMMITTED)
            || tuple.xmax.0 > 2
                && !has(infomask::XMAX_INVALID)
                && subject.committed(tuple.xmax) == Some(true);
        let is_deleted = is_over && !has(infomask::XMAX_IS_MULTI) && !tuple.xmax_locked_only();
        let all_visible = self.page.all_visible();
        if all_visible && (is_aborted || is_deleted) && !subject.has_refused_xid(tuple) {
            let place = self.tuple_place(item, INFOMASK_AT);
            let got = if !is_deleted {
                "HEAP_XMIN_INVALID"
            } else if has(infomask::XMAX_COMMITTED) {
                "HEAP_XMAX_COMMITTED"
            } else {
                "an xmax that committed"
            };
            self.damage(Code::AllVisible, place, "a tuple that all see", got);
        }
    }

    fn check_line_pointer(&mut self, item: u16, pointer: LinePointer) -> bool {
        let least = max_align(TUPLE_HEADER_SIZE);
        let (expected, got) = match self.page.tuple_bytes(pointer) {
            Ok(bytes) if bytes.len() >= least => return true,
            Ok(bytes) => (format!("a tuple of at least {least} bytes"), bytes.len().to_string()),
            Err(error @ ItemError::OutOfBounds { .. }) => {
                ("a tuple between pd_upper and pd_special".to_owned(), error.to_string())
            }
            Err(error @ ItemError::Unaligned(_)) => {
                ("a tuple at a multiple of 8".to_owned(), error.to_string())
            }
        };
        self.found.is_incomplete();
        self.damage(Code::LinePointer, self.line_pointer_place(item), expected, got);
        false
    }

    /// Line pointers have their place on the page, where no tuple is known.
    fn line_pointer_place(&self, item: u16) -> Place {
        let byte = LINE_POINTERS_AT + (usize::from(item).saturating_sub(1)) * LINE_POINTER;
        self.tuple_place(item, byte)
    }

    fn check_redirect(&mut self, item: u16) {
        let page = self.page;
        let Some(pointer) = page.line_pointer(item) else { return };
        let target = pointer.offset;
        let got = match page.line_pointer(target) {
            None => format!("line pointer {target} of {}", page.line_pointer_count()),
            Some(leads) => match leads.state {
                LinePointerState::Unused => format!("the unused line pointer {target}"),
                LinePointerState::Dead => format!("the dead line pointer {target}"),
                LinePointerState::Redirect => format!("the redirected line pointer {target}"),
                LinePointerState::Normal => {
                    if tuple_at(&page, target).is_none_or(|tuple| tuple.heap_only()) {
                        return;
                    }
                    format!("tuple {target}, which is not heap-only")
                }
            },
        };
        let place = self.line_pointer_place(item);
        self.found.is_incomplete();
        self.damage(Code::Redirect, place, "a heap-only tuple of the page", got);
    }

    /// Holds `t_ctid` against the tuples' own addresses, where it must be that: of chunks that are not deleted, and of
    /// rows that nobody has updated since. A frozen row may have been updated in vain, and VACUUM then removes its
    /// `xmax` alone.
    fn check_address(&mut self, tuples: &[(u16, LinePointer)]) {
        let PageCheck { page, block, .. } = *self;
        let is_toast = match self.subject.pages {
            PageOwner::Toast => true,
            PageOwner::Table => false,
            PageOwner::Unplaced => return,
        };
        // own addresses, and those that t_ctid gives
        let mut elsewhere: Vec<(ItemPointer, ItemPointer)> = Vec::new();
        let mut is_own = false;
        for (item, pointer) in tuples {
            let Ok(bytes) = page.tuple_bytes(*pointer) else { continue };
            let Ok(tuple) = HeapTuple::parse(bytes, page.byte_order()) else { continue };
            let is_moved = tuple.infomask & infomask::MOVED != 0;
            let is_settled = is_toast || !tuple.xmin_frozen() && tuple.xmin.0 > 2;
            if tuple.xmax.0 != 0 || is_moved || !is_settled {
                continue;
            }
            let own = ItemPointer { block, item: *item };
            match tuple.ctid {
                ctid if ctid == own => is_own = true,
                ctid if ctid.item == own.item => elsewhere.push((own, ctid)),
                ctid if is_toast => {
                    is_own = true;
                    elsewhere.push((own, ctid));
                }
                _ => {}
            }
        }
        let Some(&(_, first)) = elsewhere.first() else { return };
        let least = if is_toast { 1 } else { 2 };
        if !is_own
            && elsewhere.len() >= least
            && elsewhere.iter().all(|(_, ctid)| ctid.block == first.block)
        {
            let place = self.subject.page_place(block);
            let expected = format!("tuples of block {block}, as t_ctid says");
            self.damage(Code::Misplaced, place, expected, first.block.to_string());
            self.found.is_incomplete();
        } else if is_toast {
            for (own, ctid) in elsewhere {
                let place = self.tuple_place(own.item, CTID_AT);
                self.damage(Code::Ctid, place, own.to_string(), ctid.to_string());
            }
        }
    }

    /// The items that share bytes with one before them on the page.
    fn check_overlaps(&mut self, tuples: &[(u16, LinePointer)]) -> Vec<u16> {
        let mut order: Vec<(u16, u16, u16)> =
            tuples.iter().map(|(item, p)| (p.offset, *item, p.length)).collect();
        order.sort_unstable();
        let mut overlapping = Vec::new();
        let mut end = 0;
        let mut before = 0;
        for (offset, item, length) in order {
            if usize::from(offset) < end {
                let expected = format!("bytes of its own, from {end} on");
                let got = format!("byte {offset}, in the tuple of item {before}");
                self.damage(Code::Overlap, self.line_pointer_place(item), expected, got);
                overlapping.extend([before, item]);
            }
            let own = usize::from(offset) + max_align(usize::from(length));
            if own > end {
                (end, before) = (own, item);
            }
        }
        overlapping
    }

    /// Holds the members of chains against each other.
    fn check_chains(&mut self, chains: &Chains<'_>, visible: &impl Visible) {
        if chains.versions.is_empty() && chains.redirects.len() < 2 {
            return;
        }
        let PageCheck { page, block, .. } = *self;
        let alone = |next: u16, first: u16| {
            let expected = format!("a version that nothing else leads to, not {next}");
            (expected, format!("item {first} leads there too"))
        };
        // which item leads to another
        let mut before: HashMap<u16, u16> = HashMap::new();
        for &(item, target) in &chains.redirects {
            if let Some(&first) = before.get(&target) {
                let (expected, got) = alone(target, first);
                self.damage(Code::Chain, self.line_pointer_place(item), expected, got);
            }
            before.entry(target).or_insert(item);
        }
        let mut pointed: Vec<u16> = chains.redirects.iter().map(|(_, target)| *target).collect();
        for (item, tuple, _) in &chains.versions {
            let own = ItemPointer { block, item: *item };
            let Some(next) = leads_to(own, tuple) else { continue };
            pointed.push(next);
            let is_multi = tuple.infomask & infomask::XMAX_IS_MULTI != 0;
            let Some(new) = tuple_at(&page, next) else { continue };
            let is_next = !is_multi
                && tuple.xmax.0 != 0
                && tuple.xmax == new.xmin
                && !tuple.xmax_locked_only()
                && !new.xmin_frozen();
            if !is_next {
                continue;
            }
            if let Some(&first) = before.get(&next) {
                let (expected, got) = alone(next, first);
                self.damage(Code::Chain, self.tuple_place(*item, CTID_AT), expected, got);
                continue;
            }
            before.insert(next, *item);
            if tuple.hot_updated() != new.heap_only() {
                let (is, is_not) = if tuple.hot_updated() {
                    ("HEAP_HOT_UPDATED", "not heap-only")
                } else {
                    ("no HEAP_HOT_UPDATED", "heap-only")
                };
                let expected = format!("what fits item {next}, which is {is_not}");
                self.damage(Code::Chain, self.tuple_place(*item, INFOMASK2_AT), expected, is);
            }
            let aborted = tuple.infomask & infomask::XMIN_INVALID != 0 && !tuple.xmin_frozen();
            let next_ctid = ItemPointer { block, item: next };
            if aborted && visible.visibility(next_ctid, &new) == Visibility::Live {
                let expected = format!("no aborted xmin, for item {next} is its new version");
                let got = format!("{}, HEAP_XMIN_INVALID", tuple.xmin.0);
                self.damage(Code::Chain, self.tuple_place(*item, 0), expected, got);
            }
        }
        if chains.is_cut {
            return;
        }
        pointed.sort_unstable();
        for (item, tuple, seen) in &chains.versions {
            let is_root = tuple.heap_only() && pointed.binary_search(item).is_err();
            let is_updated = tuple.infomask & infomask::UPDATED != 0;
            if is_root && is_updated && *seen == Visibility::Live {
                let expected = "an item of the page that leads here, for the tuple is heap-only";
                self.damage(Code::Chain, self.tuple_place(*item, INFOMASK2_AT), expected, "none");
            }
        }
    }
}

/// A copy of a page with a header that fits its line pointers, where its own is damaged; `None` where it is not, or no
/// line pointer leads to a tuple.
pub(super) fn with_fitting_header(bytes: &[u8], block: BlockNumber) -> Option<Vec<u8>> {
    if Page::parse(bytes).is_ok() {
        return None;
    }
    let version = PageSize::new(bytes.len())?.version_word();
    let is_big = ByteOrder::Big.u16(bytes, SIZE_AT) == Some(version);
    let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
    let mut lower = 0;
    let mut upper = bytes.len();
    let mut at = LINE_POINTERS_AT;
    while at + LINE_POINTER <= upper
        && let Some(word) = order.u32(bytes, at)
    {
        at += LINE_POINTER;
        let LinePointer { offset, state, length } = LinePointer::from_word(word);
        let start = usize::from(offset);
        let end = usize::from(offset) + usize::from(length);
        let is_there = match state {
            LinePointerState::Normal => {
                let own = if start >= at && start % 8 == 0 { bytes.get(start..end) } else { None };
                own.is_some_and(|own| HeapTuple::parse(own, order).is_ok())
            }
            _ => length == 0,
        };
        if !is_there {
            break;
        }
        if state == LinePointerState::Normal {
            (lower, upper) = (at, upper.min(start));
        }
    }
    let mut page = bytes.to_vec();
    if lower == 0 && !is_big {
        let tuples = tuples_without_pointers(bytes, block, LINE_POINTERS_AT, &[]);
        lower = point_to_tuples(&mut page, LINE_POINTERS_AT, &tuples)?;
        upper = tuples.values().map(|(start, _)| *start).min()?;
    }
    // its header is that of a page whose end has no special space
    for (at, half) in [
        (FLAGS_AT, 0),
        (LOWER_AT, lower),
        (LOWER_AT + 2, upper),
        (LOWER_AT + 4, bytes.len()),
        (SIZE_AT, usize::from(version)),
    ] {
        let half = u16::try_from(half).ok()?;
        let half = if is_big { half.to_be_bytes() } else { half.to_le_bytes() };
        page.get_mut(at..at + 2)?.copy_from_slice(&half);
    }
    (lower > 0 && Page::parse(&page).is_ok()).then_some(page)
}

/// A copy of a page with line pointers to the tuples to which none leads; `None` where there are none, or the header is
/// damaged.
pub(super) fn with_lost_pointers(bytes: &[u8], block: BlockNumber) -> Option<Vec<u8>> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    if page.lost_bytes() == 0 || page.byte_order() == ByteOrder::Big {
        return None;
    }
    let PageHeader { lower, upper, .. } = page.header();
    let mut taken: Vec<Range<usize>> = Vec::new();
    for (_, pointer) in page.line_pointers() {
        if page.tuple_bytes(pointer).is_ok() {
            let start = usize::from(pointer.offset);
            taken.push(start..start + usize::from(pointer.length));
        }
    }
    let mut tuples = tuples_without_pointers(bytes, block, usize::from(upper), &taken);
    tuples.retain(|item, _| {
        page.line_pointer(*item).is_none_or(|own| own.state == LinePointerState::Unused)
    });
    let mut pointed = bytes.to_vec();
    let end = point_to_tuples(&mut pointed, usize::from(lower), &tuples)?;
    let end = u16::try_from(end).ok()?;
    pointed.get_mut(LOWER_AT..LOWER_AT + 2)?.copy_from_slice(&end.to_le_bytes());
    Page::parse(&pointed).is_ok().then_some(pointed)
}

/// The tuples of a page that say that they stand there, by their items, with start and length: those from `from` on that
/// are not in what is `taken`. Of the versions of a row it is the one that was not updated.
fn tuples_without_pointers(
    page: &[u8],
    block: BlockNumber,
    from: usize,
    taken: &[Range<usize>],
) -> BTreeMap<u16, (usize, usize)> {
    let most = PageSize::new(page.len()).map_or(0, PageSize::max_heap_tuples);
    let mut tuples: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
    let mut end = page.len();
    for start in (max_align(from)..page.len()).step_by(8).rev() {
        if let Some(own) = taken.iter().find(|own| own.contains(&start)) {
            end = own.start;
            continue;
        }
        let Some(own) = page.get(start..end) else { continue };
        let Ok(tuple) = HeapTuple::parse_header(own, ByteOrder::Little) else { continue };
        let ItemPointer { block: own_block, item } = tuple.ctid;
        let is_tuple = own_block == block
            && (1..=most).contains(&usize::from(item))
            && tuple.xmin.0 > 0
            && tuple.attribute_count() > 0
            && own.get(HOFF_AT).is_some_and(|hoff| usize::from(*hoff) == tuple.fitting_offset());
        if is_tuple {
            let is_newest = tuple.infomask & infomask::XMAX_INVALID != 0;
            if is_newest || !tuples.contains_key(&item) {
                tuples.insert(item, (start, end - start));
            }
            end = start;
        }
    }
    tuples
}

/// Makes line pointers to these tuples on a page whose line pointers end at `lower`. Gives where they end now.
fn point_to_tuples(
    page: &mut [u8],
    lower: usize,
    tuples: &BTreeMap<u16, (usize, usize)>,
) -> Option<usize> {
    let first = tuples.values().map(|(start, _)| *start).min()?;
    let last = *tuples.last_key_value()?.0;
    let end = lower.max(LINE_POINTERS_AT + LINE_POINTER * usize::from(last));
    if end > first {
        return None;
    }
    page.get_mut(lower..end)?.fill(0);
    for (item, (start, length)) in tuples {
        let at = LINE_POINTERS_AT + LINE_POINTER * (usize::from(*item) - 1);
        let word = u32::try_from(start | 1 << 15 | length << 17).ok()?;
        page.get_mut(at..at + LINE_POINTER)?.copy_from_slice(&word.to_le_bytes());
    }
    Some(end)
}

/// Offset of `t_ctid` in a tuple.
const CTID_AT: usize = 12;

/// What may be part of a chain on a page.
#[derive(Default)]
struct Chains<'p> {
    /// Redirected line pointers and where they lead.
    redirects: Vec<(u16, u16)>,
    /// Heap-only tuples, and those that lead to another on the page.
    versions: Vec<(u16, HeapTuple<'p>, Visibility)>,
    /// Whether a tuple could not be read, so that it is not known where it leads.
    is_cut: bool,
}

impl<'p> Chains<'p> {
    fn tuple(&mut self, ctid: ItemPointer, tuple: &HeapTuple<'p>, seen: Visibility) {
        if tuple.heap_only() || leads_to(ctid, tuple).is_some() {
            self.versions.push((ctid.item, *tuple, seen));
        }
    }
}

/// The other tuple on the page at `ctid` that this one leads to.
fn leads_to(ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Option<u16> {
    (tuple.ctid.block == ctid.block && tuple.ctid.item != ctid.item).then_some(tuple.ctid.item)
}

fn tuple_at<'p>(page: &Page<'p>, item: u16) -> Option<HeapTuple<'p>> {
    let pointer = page.line_pointer(item)?;
    if pointer.state != LinePointerState::Normal {
        return None;
    }
    HeapTuple::parse(page.tuple_bytes(pointer).ok()?, page.byte_order()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: BlockNumber = BlockNumber(0);

    /// A page with two tuples of 24 bytes behind a free line pointer.
    fn page() -> Vec<u8> {
        let mut page = vec![0; 8192];
        let mut put = |at: usize, half: u16| page[at..at + 2].copy_from_slice(&half.to_le_bytes());
        for (at, half) in [(LOWER_AT, 36), (14, 8144), (16, 8192), (SIZE_AT, 8192 | 4)] {
            put(at, half);
        }
        for (at, offset) in [(28, 8168_u16), (32, 8144)] {
            put(at, offset | 0x8000);
            put(at + 2, 24 << 1);
            put(usize::from(offset) + 22, 24);
        }
        page
    }

    #[test]
    fn a_damaged_header_is_made_to_fit_the_line_pointers() {
        let sound = page();
        assert_eq!(with_fitting_header(&sound, HERE), None);
        for (at, half) in
            [(FLAGS_AT, 0x80_u16), (LOWER_AT, 8190), (14, 0), (16, 4096), (SIZE_AT, 0x3004)]
        {
            let mut damaged = sound.clone();
            damaged[at..at + 2].copy_from_slice(&half.to_le_bytes());
            assert_eq!(with_fitting_header(&damaged, HERE).as_ref(), Some(&sound), "{at}");
        }
        // where no line pointer leads to a tuple there is none
        for bytes in [[0xFF; 8192], [b'x'; 8192]] {
            assert_eq!(with_fitting_header(&bytes, HERE), None);
        }
        let mut first = sound;
        first[..512].fill(0);
        assert_eq!(with_fitting_header(&first, HERE), None);
    }

    #[test]
    fn tuples_without_line_pointers_get_theirs_again() {
        let mut sound = page();
        for (at, item) in [(8168, 2), (8144, 3)] {
            // xmin, t_ctid, the number of attributes and HEAP_XMAX_INVALID
            for (byte, value) in [(0, 5), (16, item), (18, 1), (21, 8)] {
                sound[at + byte] = value;
            }
        }
        assert_eq!(with_lost_pointers(&sound, HERE), None);
        let mut zeros = sound.clone();
        zeros[28..32].fill(0);
        assert_eq!(with_lost_pointers(&zeros, HERE).as_ref(), Some(&sound));
        for lower in [24, 28, 32] {
            let mut cut = sound.clone();
            cut[LOWER_AT] = lower;
            assert_eq!(with_lost_pointers(&cut, HERE).as_ref(), Some(&sound), "{lower}");
        }
        // the place of one is taken
        let mut taken = sound;
        taken[28..32].copy_from_slice(&[0, 0x80, 0x30, 0]);
        taken[28..30].copy_from_slice(&(8144_u16 | 0x8000).to_le_bytes());
        assert_eq!(with_lost_pointers(&taken, HERE), None);
    }

    proptest! {
        #[test]
        fn what_is_made_to_fit_is_a_page(
            changes in prop::collection::vec((0usize..8192, any::<u8>()), 1..40),
            header in prop::collection::vec(any::<u8>(), 24..64),
        ) {
            let mut bytes = page();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes[..header.len()].copy_from_slice(&header);
            if let Some(page) = with_fitting_header(&bytes, HERE) {
                prop_assert!(matches!(Page::parse(&page), Ok(PageState::Used(_))));
            }
            with_lost_pointers(&bytes, HERE);
        }
    }
}
