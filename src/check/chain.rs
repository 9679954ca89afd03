//! Update chains on a page: redirects and versions that lead to the next one (pure; the successors and
//! predecessors of `verify_heapam` since PostgreSQL 16).

use std::collections::HashMap;

use super::code::Code;
use super::finding::Finding;
use super::subject::{Found, Subject};
use crate::disk::page::{LinePointerState, Page};
use crate::disk::tuple::{HeapTuple, infomask};
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::problem::Place;
use crate::heap::scan::Judge;
use crate::model::visibility::Visibility;

/// Where `t_ctid` stands, and `t_infomask2`.
const CTID_AT: usize = 12;
const INFOMASK2_AT: usize = 18;

/// What may be part of a chain on a page.
#[derive(Default)]
pub(super) struct Chains<'p> {
    /// Redirected line pointers and where they lead.
    redirects: Vec<(u16, u16)>,
    /// Heap-only tuples, and those that lead to another on the page.
    versions: Vec<(u16, HeapTuple<'p>, Visibility)>,
    /// Whether a tuple could not be read, so that it is not known where it leads.
    pub(super) is_cut: bool,
}

impl<'p> Chains<'p> {
    pub(super) fn redirect(&mut self, item: u16, target: u16) {
        self.redirects.push((item, target));
    }

    pub(super) fn tuple(&mut self, ctid: ItemPointer, tuple: &HeapTuple<'p>, seen: Visibility) {
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

impl Subject<'_> {
    /// Holds the members of chains against each other.
    pub(super) fn check_chains(
        &self,
        block: BlockNumber,
        page: &Page<'_>,
        chains: &Chains<'_>,
        judge: &impl Judge,
        found: &mut impl Found,
    ) {
        if chains.versions.is_empty() && chains.redirects.len() < 2 {
            return;
        }
        let at = |item, byte| Place {
            byte: Some(byte),
            ..self.tuple_place(ItemPointer { block, item })
        };
        let mut told = |place, expected: String, got: String| {
            found.finding(Finding::new(Code::Chain, place, expected, got));
        };
        let alone = |next: u16, first: u16| {
            let expected = format!("a version that nothing else leads to, not {next}");
            (expected, format!("item {first} leads there too"))
        };
        // which item leads to another
        let mut before: HashMap<u16, u16> = HashMap::new();
        for &(item, target) in &chains.redirects {
            if let Some(&first) = before.get(&target) {
                let (expected, got) = alone(target, first);
                told(self.line_pointer_place(block, item), expected, got);
            }
            before.entry(target).or_insert(item);
        }
        let mut pointed: Vec<u16> = chains.redirects.iter().map(|(_, target)| *target).collect();
        for (item, tuple, _) in &chains.versions {
            let own = ItemPointer { block, item: *item };
            let Some(next) = leads_to(own, tuple) else { continue };
            pointed.push(next);
            let is_multi = tuple.infomask & infomask::XMAX_IS_MULTI != 0;
            let Some(new) = tuple_at(page, next) else { continue };
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
                told(at(*item, CTID_AT), expected, got);
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
                told(at(*item, INFOMASK2_AT), expected, is.to_owned());
            }
            let aborted = tuple.infomask & infomask::XMIN_INVALID != 0 && !tuple.xmin_frozen();
            let next_ctid = ItemPointer { block, item: next };
            if aborted && judge.judge(next_ctid, &new) == Visibility::Live {
                let expected = format!("no aborted xmin, for item {next} is its new version");
                told(at(*item, 0), expected, format!("{}, HEAP_XMIN_INVALID", tuple.xmin.0));
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
                told(at(*item, INFOMASK2_AT), expected.to_owned(), "none".to_owned());
            }
        }
    }
}
