//! `inspect` on saved output of pageinspect.

use std::io::{self, Read};
use std::sync::Arc;

use super::file_findings::{self, HeapPages};
use super::result::{RelationRead, RelationReport, Source};
use crate::findings::code::WORTH;
use crate::offline::saved::{self, RowKind, SavedError, SavedRow, SavedSink};
use crate::offline::toastfile::ToastFile;
use crate::server::catalog::RelationName;
use crate::value::contents::RowSink;
use crate::value::rows::RowWriter;
use toast_format::disk::page::LinePointerState;
use toast_format::disk::tuple::{infomask, infomask2};
use toast_format::disk::{
    BlockNumber, ByteOrder, CustomFlavor, HeapTuple, ItemPointer, PageSize, TupleDesc, max_align,
};
use toast_format::heap::problem::{Place, Problem};
use toast_format::heap::scan::{Scan, ScannedRelation, SplitTuple, Visitor};
use toast_format::model::visibility::visibility;
use toast_format::model::{HintBits, Visibility};

/// Reads saved text and reports on it like on a relation. `name` is used for it in places and rows. The error is the
/// writer's; nothing more is written then.
///
/// Results of several functions over the same page are counted once for each.
///
/// # Errors
/// Where the text cannot be read at all.
pub fn saved_text(
    name: &str,
    text: impl Read,
    desc: &TupleDesc,
    order: ByteOrder,
    rows: Option<&mut (dyn RowWriter + Send)>,
) -> io::Result<(RelationReport, Option<io::Error>)> {
    match rows {
        None => Ok((read_saved(name, text, desc, order, ())?.0, None)),
        Some(writer) => {
            let sink: RowSink<'_, Option<ToastFile<HintBits>>> = RowSink::new(name, writer, None);
            let (report, sink) = read_saved(name, text, desc, order, sink)?;
            Ok((report, sink.error))
        }
    }
}

fn read_saved<V: Visitor>(
    name: &str,
    text: impl Read,
    desc: &TupleDesc,
    order: ByteOrder,
    visitor: V,
) -> io::Result<(RelationReport, V)> {
    let model = file_findings::model(desc, PageSize::DEFAULT);
    let relation = ScannedRelation {
        source: name.into(),
        desc: Arc::new(desc.clone()),
        page_size: PageSize::DEFAULT,
        flavor: CustomFlavor::Auto,
    };
    let mut reader = SavedReader {
        pages: HeapPages::new(desc, CustomFlavor::Auto, &model),
        scan: Scan::new(relation, visitor),
        order,
        first_page_size: None,
        blocks: Blocks::default(),
    };
    saved::read(text, &mut reader)?;
    let SavedReader { scan, first_page_size, mut pages, blocks, .. } = reader;
    let report = RelationReport {
        read: RelationRead {
            name: RelationName::file(name),
            source: Source::PageinspectOutput,
            ..RelationRead::default()
        },
        ..RelationReport::default()
    };
    let mut report = report.with_figures(&scan);
    report.page_size = first_page_size.unwrap_or(PageSize::DEFAULT.bytes() as u64);
    if first_page_size.is_none() {
        // Only whole pages show how full they are.
        report.heap.new_blocks = None;
        report.heap.free_bytes = None;
    }
    if blocks.have_begun() {
        pages.end_page();
    }
    if !blocks.have_begun() || blocks.are_whole(PageSize::DEFAULT) {
        let read = pages.read();
        report.findings = pages.findings(read, None, &report);
    }
    Ok((report, scan.visitor))
}

struct SavedReader<'a, V> {
    scan: Scan<V>,
    order: ByteOrder,
    first_page_size: Option<u64>,
    /// The first pages, as findings need them.
    pages: HeapPages<'a>,
    /// The pages whose line pointers arrive one by one.
    blocks: Blocks,
}

impl<V: Visitor> SavedSink for SavedReader<'_, V> {
    fn row(&mut self, kind: RowKind, row: SavedRow) {
        self.scan.block_known = row.block.is_some();
        let block = row.block.unwrap_or_default();
        match kind {
            RowKind::Pages => self.page(block, &row.page.unwrap_or_default()),
            RowKind::Attributes => {
                let ctid = ItemPointer { block, item: 0 };
                self.attributes(&row, ctid, None, Visibility::Unknown { xid: None });
            }
            RowKind::Items => {
                if self.blocks.take(&row) {
                    self.pages.end_page();
                }
                self.tuple(&row, ItemPointer { block, item: row.lp.unwrap_or(0) });
            }
        }
    }

    fn error(&mut self, error: SavedError) {
        let hint = error.problem.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let message = format!("{}{hint}", error.problem);
        let line = Some(error.line);
        let place = Place { line, column: error.column, ..Place::new(&*self.scan.relation.source) };
        self.scan.problem(Problem { place, message });
    }

    fn has_enough(&self) -> bool {
        self.scan.has_failed()
    }
}

impl<V: Visitor> SavedReader<'_, V> {
    fn page(&mut self, block: BlockNumber, page: &[u8]) {
        self.first_page_size = self.first_page_size.or(Some(page.len() as u64));
        self.pages.page(block, page, &HintBits);
        self.scan.relation.page_size = PageSize::new(page.len()).unwrap_or_default();
        self.scan.page(block, page, &HintBits);
        self.scan.relation.page_size = PageSize::DEFAULT;
    }

    fn attributes(
        &mut self,
        row: &SavedRow,
        ctid: ItemPointer,
        natts: Option<usize>,
        seen: Visibility,
    ) {
        let Some(attributes) = &row.t_attrs else { return };
        let split = SplitTuple { ctid, natts, attributes, order: self.order };
        self.with_line(row.line, |scan| scan.take_attributes(&split, seen));
    }

    fn problem(&mut self, row: &SavedRow, message: &str) {
        let source = &*self.scan.relation.source;
        let place = Place { line: Some(row.line), item: row.lp, ..Place::new(source) };
        self.scan.problem(Problem { place, message: message.to_owned() });
    }

    /// Problems found by `scan` get the line of the text.
    fn with_line(&mut self, line: usize, scan: impl FnOnce(&mut Scan<V>)) {
        let before = std::mem::take(&mut self.scan.problems);
        scan(&mut self.scan);
        let found = std::mem::replace(&mut self.scan.problems, before);
        for mut problem in found.kept().iter().cloned() {
            problem.place.line = Some(line);
            self.scan.problem(problem);
        }
    }

    fn tuple(&mut self, row: &SavedRow, ctid: ItemPointer) {
        let counts = &mut self.scan.stats.tuples;
        match row.lp_flags.and_then(LinePointerState::from_flags) {
            Some(LinePointerState::Unused) => return counts.line_pointers_unused += 1,
            Some(LinePointerState::Redirect) => return counts.line_pointers_redirect += 1,
            Some(LinePointerState::Dead) => return counts.line_pointers_dead += 1,
            Some(LinePointerState::Normal) | None => {}
        }
        let Some(mask2) = row.t_infomask2 else {
            let message = "t_infomask2 is missing: it holds the number of attributes";
            return self.problem(row, message);
        };
        let bits = row.t_bits.as_deref().map(null_bitmap);
        let nulls = if bits.is_some() { infomask::HASNULL } else { 0 };
        let mut tuple = HeapTuple {
            xmin: row.t_xmin.unwrap_or_default(),
            xmax: row.t_xmax.unwrap_or_default(),
            ctid: row.t_ctid.unwrap_or_default(),
            infomask: row.t_infomask.unwrap_or(nulls),
            infomask2: mask2,
            null_bitmap: bits.as_deref(),
            data: &[],
            data_offset: usize::from(row.t_hoff.unwrap_or(0)),
            order: self.order,
        };
        let mut seen = Visibility::Unknown { xid: None };
        if row.t_infomask.is_some() {
            seen = visibility(&tuple, &HintBits);
        }
        if let Some(data) = &row.t_data {
            if tuple.infomask & infomask::HASNULL != 0 && bits.is_none() {
                return self.problem(row, "t_bits is missing: the tuple has nulls");
            }
            tuple.data = data;
            self.pages.tuple(&tuple, row.lp_len.unwrap_or(0), seen);
            self.with_line(row.line, |scan| scan.take_tuple(ctid, &tuple, seen));
        } else if row.t_attrs.is_some() {
            self.scan.stats.tuples.hot_updated += u64::from(tuple.hot_updated());
            self.scan.stats.tuples.heap_only += u64::from(tuple.heap_only());
            let natts = usize::from(mask2 & infomask2::NATTS_MASK);
            self.attributes(row, ctid, Some(natts), seen);
        } else {
            self.problem(row, "neither t_data nor t_attrs is given");
        }
    }
}

/// The bytes of a bitmap printed as `0` and `1`, first attribute first.
fn null_bitmap(bits: &str) -> Vec<u8> {
    bits.as_bytes()
        .chunks(8)
        .map(|eight| eight.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit == b'1')))
        .collect()
}

/// The pages from which rows have come.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    block: Option<BlockNumber>,
    lp: Option<u16>,
    pages: u64,
    /// The end of the tuple that is the last on its page.
    end: usize,
    /// Whether a row was missing or incomplete.
    in_part: bool,
}

impl Blocks {
    /// Records a row. Returns whether a page ended before it.
    pub(super) fn take(&mut self, row: &SavedRow) -> bool {
        let other_block = row.block != self.block;
        let begins = self.lp.is_none_or(|last| other_block || row.lp.is_none_or(|lp| lp <= last));
        let expected = if begins { 1 } else { self.lp.map_or(1, |last| last.saturating_add(1)) };
        self.in_part |= row.lp != Some(expected);
        if row.lp_flags.and_then(LinePointerState::from_flags) == Some(LinePointerState::Normal) {
            match (row.lp_off, row.lp_len, &row.t_data) {
                (Some(offset), Some(length), Some(_)) => {
                    self.end = self.end.max(usize::from(offset) + max_align(usize::from(length)));
                }
                _ => self.in_part = true,
            }
        } else {
            self.in_part |= row.lp_flags.is_none();
        }
        let ends = begins && self.pages > 0;
        self.pages += u64::from(begins);
        self.block = row.block;
        self.lp = row.lp;
        ends
    }

    /// Whether a page has begun.
    pub(super) fn have_begun(&self) -> bool {
        self.pages > 0
    }

    /// Whether they show what takes space: all line pointers of pages of this size, and enough of them for a finding.
    pub(super) fn are_whole(&self, page: PageSize) -> bool {
        let enough = self.pages * page.bytes() as u64 >= WORTH;
        enough && !self.in_part && self.end == page.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_as_heap_page_items_prints_them() {
        assert_eq!(null_bitmap("1010000001000000"), [0b0000_0101, 0b0000_0010]);
        assert_eq!(null_bitmap(""), [0u8; 0]);
    }

    fn item(block: Option<u32>, lp: u16, lp_len: Option<u16>) -> SavedRow {
        SavedRow {
            block: block.map(BlockNumber),
            lp: Some(lp),
            lp_off: Some(8192 - lp * 128),
            lp_flags: Some(1),
            lp_len,
            t_data: Some(Vec::new()),
            line: 1,
            ..SavedRow::default()
        }
    }

    /// Pages of 60 rows of 128 bytes, without those that `skip` says.
    fn blocks(pages: u32, numbered: bool, skip: impl Fn(u32, u16) -> bool) -> (u32, bool) {
        let mut blocks = Blocks::default();
        let mut ended = 0;
        for page in 0..pages {
            for lp in (1..=60).filter(|&lp| !skip(page, lp)) {
                ended += u32::from(blocks.take(&item(numbered.then_some(page), lp, Some(128))));
            }
        }
        (ended, blocks.are_whole(PageSize::DEFAULT))
    }

    #[test]
    fn pages_begin_with_their_first_line_pointer() {
        for numbered in [false, true] {
            assert_eq!(blocks(130, numbered, |_, _| false), (129, true));
            // too few to tell
            assert_eq!(blocks(20, numbered, |_, _| false), (19, false));
            // the last one may be cut
            assert_eq!(blocks(130, numbered, |page, lp| page == 129 && lp > 7), (129, true));
        }
    }

    #[test]
    fn what_was_filtered_is_not_whole() {
        assert!(!blocks(130, true, |page, lp| page == 7 && lp == 30).1);
        assert!(!blocks(130, true, |_, lp| lp == 1).1);
        let mut without_length = Blocks::default();
        for page in 0..200 {
            without_length.take(&item(Some(page), 1, None));
        }
        assert!(!without_length.are_whole(PageSize::DEFAULT));
    }

    #[test]
    fn pages_of_another_size_are_known_by_where_tuples_end() {
        let mut small = Blocks::default();
        for page in 0..300 {
            small.take(&SavedRow { lp_off: Some(3968), ..item(Some(page), 1, Some(128)) });
        }
        assert!(!small.are_whole(PageSize::DEFAULT));
    }
}
