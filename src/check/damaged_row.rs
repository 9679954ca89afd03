//! A row with damaged values: how it is found again, and who else refers to its values (pure).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::code::Code;
use super::finding::{Finding, place_at};
use super::formats::check_content;
use super::reading::ValueReading;
use super::subject::{Depth, PageFindings, SeenPage, Subject};
use super::value::{check_pointer, inline_content};
use toast_format::disk::layout::LINE_POINTER_SIZE;
use toast_format::disk::page::{LinePointer, LinePointerState};
use toast_format::disk::tuple::{HOFF_AT, infomask2};
use toast_format::disk::types::is_text_like;
use toast_format::disk::walk::WalkErrorKind;
use toast_format::disk::{
    Attribute, ByteOrder, Datum, HeapTuple, ItemPointer, Length, Oid, Page, PageState,
    ToastPointer, TupleDesc, Varlena, Walk, max_align, value_text,
};
use toast_format::heap::problem::Place;
use toast_format::heap::scan::{self, Item, Visible};
use toast_format::model::sql::{fresh, fresh_array, quote_identifier, quote_literal};
use toast_format::model::toaster::catalog::Handler;
use toast_format::model::toaster::describe::describe;
use toast_format::model::{Toasters, Visibility};

/// Text longer than this is no guard: the statement is for people.
const LONGEST_GUARD: usize = 60;

/// The tuple at `ctid`, whose page is `bytes`.
pub(super) fn tuple_at(bytes: &[u8], ctid: ItemPointer) -> Option<HeapTuple<'_>> {
    let (own, order) = tuple_bytes_at(bytes, ctid)?;
    HeapTuple::parse(own, order).ok()
}

/// The bytes of the tuple at `ctid`, whose page is `bytes`, and their order.
pub(super) fn tuple_bytes_at(bytes: &[u8], ctid: ItemPointer) -> Option<(&[u8], ByteOrder)> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    let pointer = page.line_pointer(ctid.item)?;
    Some((page.tuple_bytes(pointer).ok()?, page.byte_order()))
}

/// The tuple at `ctid` with all bytes up to the next tuple, and their number, if that is more than its line pointer says.
pub(super) fn longer_tuple_at(bytes: &[u8], ctid: ItemPointer) -> Option<(HeapTuple<'_>, usize)> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    let pointer = page.line_pointer(ctid.item)?;
    let behind = page.line_pointers().filter(|(_, other)| {
        other.state == LinePointerState::Normal && other.offset > pointer.offset
    });
    let page_end = u16::try_from(bytes.len()).ok()?;
    let end = behind.map(|(_, other)| other.offset).min().unwrap_or(page_end);
    let length = end.checked_sub(pointer.offset).filter(|length| *length > pointer.length)?;
    let longer = page.tuple_bytes(LinePointer { length, ..pointer }).ok()?;
    let tuple = HeapTuple::parse(longer, page.byte_order()).ok()?;
    Some((tuple, usize::from(length)))
}

/// Where the columns of a tuple end, if all can be read; padding may follow.
pub(super) fn end_of(tuple: &HeapTuple<'_>, subject: &Subject<'_>) -> Option<usize> {
    let mut walk = Walk::with_flavor(tuple, subject.desc, subject.flavor);
    let mut end = None;
    while let Some(walked) = walk.next() {
        match walked {
            Ok(_) => end = Some(walk.end()),
            Err(error) if matches!(error.kind, WalkErrorKind::LeftOver(_)) => break,
            Err(_) => return None,
        }
    }
    end
}

/// The tuple at `ctid`, if its `t_hoff` is wrong, with one that fits its null bitmap, if its columns then end where it does.
pub(super) fn fitting_tuple_at<'b>(
    bytes: &'b [u8],
    subject: &Subject<'_>,
    ctid: ItemPointer,
) -> Option<HeapTuple<'b>> {
    let Ok(PageState::Used(page)) = Page::parse(bytes) else { return None };
    let own = page.tuple_bytes(page.line_pointer(ctid.item)?).ok()?;
    let header = HeapTuple::parse_header(own, page.byte_order()).ok()?;
    let fitting = header.fitting_offset();
    if own.get(HOFF_AT).is_some_and(|&hoff| usize::from(hoff) == fitting) {
        return None;
    }
    let tuple = header.with_data(own, fitting)?;
    let is_whole = Walk::with_flavor(&tuple, subject.desc, subject.flavor).all(|one| one.is_ok());
    (tuple.attribute_count() > 0 && is_whole).then_some(tuple)
}

/// The column at which the server fails when it reads the tuple at `ctid`. It does not ask where the tuple ends: a
/// line pointer that is too short keeps it from nothing, so that a column is broken only where another tuple begins
/// behind what the line pointer says, with the padding, and before where the column ends.
fn broken_at(
    page: &Page<'_>,
    bytes: &[u8],
    subject: &Subject<'_>,
    pointer: LinePointer,
    tuple: &HeapTuple<'_>,
) -> Option<usize> {
    let start = usize::from(pointer.offset);
    let end = max_align(start + usize::from(pointer.length));
    let padded = tuple.with_data(bytes.get(start..end)?, tuple.data_offset)?;
    let mut walk = Walk::with_flavor(&padded, subject.desc, subject.flavor);
    let mut number = 0;
    let broken = loop {
        match walk.next()? {
            Ok((_, Datum::Varlena(Varlena::Unknown { .. }))) => break number,
            Ok(_) => number += 1,
            Err(error) if matches!(error.kind, WalkErrorKind::LeftOver(_)) => return None,
            Err(error) => break error.index,
        }
    };
    tuple_begins_at(page, bytes, subject, end).then_some(broken)
}

/// Whether a tuple begins there: one of the page's line pointers says so, or its header. At the end of the page, what
/// comes before ends.
fn tuple_begins_at(page: &Page<'_>, bytes: &[u8], subject: &Subject<'_>, offset: usize) -> bool {
    let behind = bytes.get(offset..).unwrap_or_default();
    offset == usize::from(page.header().special)
        || page.line_pointers().any(|(_, other)| {
            other.state == LinePointerState::Normal && usize::from(other.offset) == offset
        })
        || HeapTuple::parse(behind, page.byte_order()).is_ok_and(|next| {
            next.data_offset == next.fitting_offset()
                && (1..=subject.desc.attributes.len()).contains(&next.attribute_count())
        })
}

/// A damaged value of a row.
#[derive(Debug, Clone)]
pub(super) struct DamagedValue {
    pub(super) column: String,
    /// What was found first.
    pub(super) code: Code,
    /// Its pointer, where it is out of line.
    pub(super) pointer: Option<ToastPointer>,
    /// Whether it is compressed in the row.
    pub(super) is_compressed: bool,
    /// Whether it is a pluggable toaster's.
    pub(super) is_custom: bool,
    /// An SQL expression for a fresh datum of it.
    pub(super) fresh: String,
    /// How it can be read; `None` where that was not examined.
    pub(super) reading: Option<ValueReading>,
}

/// A row with damaged values.
#[derive(Debug, Clone)]
pub(super) struct DamagedRow {
    pub(super) ctid: ItemPointer,
    /// As they stand in the tuple.
    pub(super) xmin: u32,
    pub(super) xmax: u32,
    /// The byte order of its page.
    pub(super) order: ByteOrder,
    /// Whether SQL sees it.
    pub(super) is_live: bool,
    /// Whether the server refuses its transaction IDs.
    pub(super) is_refused: bool,
    /// Whether all of its columns can be told apart.
    pub(super) is_readable: bool,
    /// Conditions that its sound columns meet, as SQL.
    pub(super) guard: Vec<String>,
    pub(super) values: Vec<DamagedValue>,
    /// Its sound columns, as far as SQL can read them.
    pub(super) others: Vec<String>,
    /// Where the server fails, or crashes, at one of its columns: this one and those behind it. Where `t_hoff` is wrong
    /// and SQL reads the row all the same: no column.
    pub(super) broken: Option<Broken>,
    /// The bytes of its line pointer.
    pub(super) pointer: [u8; LINE_POINTER_SIZE],
    /// Line pointers of its page.
    pub(super) page_items: u16,
    /// Whether another line pointer of the page leads to it.
    pub(super) is_heap_only: bool,
}

impl DamagedRow {
    /// What the page and the tuple, if it can be read, say of a row by themselves.
    fn new(page: &Page<'_>, ctid: ItemPointer, tuple: Option<HeapTuple<'_>>) -> Option<DamagedRow> {
        Some(DamagedRow {
            ctid,
            xmin: tuple.map_or(0, |tuple| tuple.xmin.0),
            xmax: tuple.map_or(0, |tuple| tuple.xmax.0),
            order: page.byte_order(),
            is_live: false,
            is_refused: false,
            is_readable: false,
            guard: Vec::new(),
            values: Vec::new(),
            others: Vec::new(),
            broken: None,
            pointer: page.line_pointer_bytes(ctid.item)?,
            page_items: page.line_pointer_count(),
            is_heap_only: tuple.is_some_and(|tuple| tuple.heap_only()),
        })
    }
}

/// A row that SQL cannot read to its end, or that it reads, while UPDATE and DELETE read it wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// Columns that SQL does not reach.
    pub(super) columns: Vec<String>,
    /// Whether nothing is left that could be stored again.
    pub(super) is_lost: bool,
    /// Whether all rows of its page, of which there are several, are broken, and none has the table's columns.
    pub(super) is_page: bool,
}

fn fresh_of(column: &Attribute) -> String {
    let name = quote_identifier(&column.name);
    if column.type_name.ends_with("[]") { fresh_array(&name) } else { fresh(&name) }
}

/// The IDs of the values out of line that rows have lost.
pub(super) fn value_ids(rows: &[DamagedRow]) -> BTreeSet<u64> {
    let values = rows.iter().flat_map(|row| &row.values);
    values.filter_map(|value| Some(value.pointer?.value_id.0)).collect()
}

/// The tuples of a page whose columns cannot be told apart.
#[derive(Default)]
struct Unreadable {
    /// Whether that is so of all.
    page: bool,
    items: HashSet<u16>,
    /// Those of them that do not begin where they should, or their columns.
    misaligned: HashSet<u16>,
}

impl Unreadable {
    fn new(seen: &SeenPage<'_, impl Visible>) -> Unreadable {
        let SeenPage { subject, block, bytes, visible } = *seen;
        let mut unreadable = Unreadable::default();
        // what a wrong checksum says is known, and the bytes are looked at all the same
        let subject = Subject { depth: Depth::default(), checksums: false, ..*subject };
        subject.check_page(block, bytes, visible, &mut unreadable);
        unreadable
    }

    fn has(&self, ctid: ItemPointer) -> bool {
        self.page || self.items.contains(&ctid.item)
    }

    /// Whether these are all tuples of a page that has several, and none has as many attributes as there are `columns`.
    fn is_all_of(&self, page: &Page<'_>, columns: usize) -> bool {
        let mut normal =
            page.line_pointers().filter(|(_, pointer)| pointer.state == LinePointerState::Normal);
        let is_foreign = |pointer| {
            let own = page.tuple_bytes(pointer).ok();
            let header = own.and_then(|own| HeapTuple::parse_header(own, page.byte_order()).ok());
            header.is_none_or(|header| header.attribute_count() != columns)
        };
        self.items.len() > 1
            && normal.all(|(item, pointer)| self.items.contains(&item) && is_foreign(pointer))
    }
}

impl PageFindings for Unreadable {
    fn finding(&mut self, finding: Finding) {
        let Some(item) = finding.place.item else {
            self.page = true;
            return;
        };
        let is_lost = matches!(
            finding.code,
            Code::LinePointer
                | Code::Overlap
                | Code::HeaderLength
                | Code::AttributeCount
                | Code::PastEnd
                | Code::Varlena
                | Code::LeftOver
                | Code::Tag
        );
        if is_lost {
            self.items.insert(item);
        }
        if matches!(finding.code, Code::LinePointer | Code::HeaderLength) {
            self.misaligned.insert(item);
        }
    }
}

impl<V: Visible> SeenPage<'_, V> {
    /// Whether SQL can read the tuple at `ctid`: whether the beginning and end of each of its columns are known.
    pub(super) fn is_readable(&self, ctid: ItemPointer) -> bool {
        !Unreadable::new(self).has(ctid)
    }

    /// The row at `ctid` with its damaged columns; `None` if none of them is there and SQL can read
    /// the row.
    pub(super) fn damaged_row(
        &self,
        ctid: ItemPointer,
        damaged: &[(String, Code)],
        generated: &HashSet<String>,
    ) -> Option<DamagedRow> {
        let SeenPage { subject, bytes, visible, .. } = *self;
        let page = self.parsed()?;
        let pointer = page.line_pointer(ctid.item)?;
        let unreadable = Unreadable::new(self);
        let mut misread = None;
        if pointer.state == LinePointerState::Normal && unreadable.misaligned.contains(&ctid.item) {
            if is_misread(&page, bytes, subject, pointer) {
                return unreadable_row(&page, visible, ctid, pointer);
            }
            misread =
                if subject.ignores_hoff { fitting_tuple_at(bytes, subject, ctid) } else { None };
        }
        let tuple = misread.or_else(|| tuple_at(bytes, ctid))?;
        let mut row = DamagedRow {
            is_live: visible.visibility(ctid, &tuple) != Visibility::Dead,
            is_refused: subject.has_refused_xid(&tuple),
            is_readable: !unreadable.has(ctid),
            ..DamagedRow::new(&page, ctid, Some(tuple))?
        };
        let columns = &subject.desc.attributes;
        let has_finding =
            |at: &usize| columns.get(*at).is_some_and(|of| code_of(damaged, of).is_some());
        let broken = broken_at(&page, bytes, subject, pointer, &tuple).filter(has_finding);
        let mut left_out = Vec::new();
        let (end, has_content) =
            enter_columns(&mut row, subject, &tuple, broken, damaged, &mut left_out);
        let behind = columns.get(end..).unwrap_or_default();
        row.broken = (broken.is_some() || misread.is_some()).then(|| Broken {
            columns: behind.iter().filter(|of| !of.dropped).map(|of| of.name.clone()).collect(),
            is_lost: !has_content,
            is_page: unreadable.is_all_of(&page, columns.len()),
        });
        left_out.extend(end..columns.len());
        row.guard = guard(&tuple, subject.desc, &left_out, generated);
        (!row.values.is_empty() || row.broken.is_some()).then_some(row)
    }

    /// Adds the pointers on a page to these values, in rows that are not known to be dead;
    /// `false` if rows could not be read, or what they refer to.
    pub(super) fn references(
        &self,
        written: RewriteTarget<'_>,
        value_ids: &BTreeSet<u64>,
        all: &mut Vec<Reference>,
    ) -> bool {
        let RewriteTarget { table, generated } = written;
        let SeenPage { subject, block, bytes, visible } = *self;
        let page = match Page::parse(bytes) {
            Ok(PageState::Used(page)) => page,
            Ok(PageState::New) => return true,
            Err(_) => return false,
        };
        let all_visible = visible.sees_all_of(&page);
        let unreadable = Unreadable::new(self);
        let mut is_whole = !unreadable.page && unreadable.items.is_empty();
        for (ctid, item) in scan::items(block, &page) {
            let Item::Tuple(tuple, _) = item else { continue };
            let is_refused = subject.has_refused_xid(&tuple);
            let seen =
                if all_visible { Visibility::Live } else { visible.visibility(ctid, &tuple) };
            if seen == Visibility::Dead && !is_refused {
                continue;
            }
            let is_live = seen != Visibility::Dead && !is_refused;
            let version = Reference {
                ctid,
                xmin: tuple.xmin.0,
                xmax: tuple.xmax.0,
                newer: tuple.ctid,
                ..Reference::default()
            };
            let mut walk = Walk::with_flavor(&tuple, subject.desc, subject.flavor);
            while let Some(walked) = walk.next() {
                let Ok((attribute, datum)) = walked else {
                    is_whole = false;
                    break;
                };
                match datum {
                    Datum::Varlena(Varlena::External(pointer))
                        if value_ids.contains(&pointer.value_id.0) =>
                    {
                        let rewrite = (is_live && !attribute.dropped).then(|| {
                            let name = quote_identifier(&attribute.name);
                            let value = fresh_of(attribute);
                            let own = [walk.index() - 1];
                            let guard = guard(&tuple, subject.desc, &own, generated);
                            let row = where_row(ctid, tuple.xmin.0, &guard);
                            format!("UPDATE ONLY {table} SET {name} = {value}\n{row};\n")
                        });
                        all.push(Reference {
                            column: attribute.name.clone(),
                            value_id: pointer.value_id.0,
                            pointer: Some(pointer),
                            rewrite,
                            ..version.clone()
                        });
                    }
                    Datum::Varlena(Varlena::Custom(pointer)) => {
                        match describe(&pointer, &Toasters::by_bytes(), subject.page_size) {
                            Ok(description) if description.toaster.handler != Handler::Unknown => {
                                let values = description.parts.iter().filter_map(|part| part.value);
                                for value in
                                    values.filter(|value| value_ids.contains(&value.value_id.0))
                                {
                                    let column = attribute.name.clone();
                                    let value_id = value.value_id.0;
                                    all.push(Reference { column, value_id, ..version.clone() });
                                }
                            }
                            _ => is_whole = false,
                        }
                    }
                    _ => {}
                }
            }
        }
        is_whole
    }

    /// Calls `each` with every pointer to a value out of line of the live rows of a page.
    pub(super) fn live_pointers(&self, mut each: impl FnMut(&ToastPointer)) {
        let SeenPage { subject, block, visible, .. } = *self;
        let Some(page) = self.parsed() else { return };
        for (ctid, item) in scan::items(block, &page) {
            let Item::Tuple(tuple, _) = item else { continue };
            if !visible.sees_all_of(&page) && visible.visibility(ctid, &tuple) != Visibility::Live {
                continue;
            }
            for walked in Walk::with_flavor(&tuple, subject.desc, subject.flavor) {
                if let Ok((_, Datum::Varlena(Varlena::External(pointer)))) = walked {
                    each(&pointer);
                }
            }
        }
    }

    /// The condition that names the row at `ctid` by its primary key, as SQL. `key`: the indexes of
    /// its columns. `None` where one of them cannot be read.
    pub(super) fn by_key(&self, ctid: ItemPointer, key: &[usize]) -> Option<String> {
        let tuple = tuple_at(self.bytes, ctid)?;
        let mut conditions = Vec::with_capacity(key.len());
        for (column, content) in key_contents(&tuple, self.subject, key)? {
            let text = String::from_utf8(value_text::text(column.type_oid, content, tuple.order)?);
            let text = text.ok().filter(|text| !text.contains('\0'))?;
            conditions.push(format!(
                "{} = {}",
                quote_identifier(&column.name),
                quote_literal(&text)
            ));
        }
        let all = conditions.join(" AND ");
        (1..=LONGEST_KEY).contains(&all.len()).then_some(all)
    }
}

/// What was found first in a column.
fn code_of(damaged: &[(String, Code)], column: &Attribute) -> Option<Code> {
    damaged.iter().find(|(name, _)| *name == column.name).map(|(_, code)| *code)
}

/// Enters the columns of a tuple into its row, up to the one at which the server fails; into `left_out` the indexes of
/// damaged ones. Gives how many columns were read, and whether a sound one has a value.
fn enter_columns(
    row: &mut DamagedRow,
    subject: &Subject<'_>,
    tuple: &HeapTuple<'_>,
    broken: Option<usize>,
    damaged: &[(String, Code)],
    left_out: &mut Vec<usize>,
) -> (usize, bool) {
    let columns = &subject.desc.attributes;
    let mut has_content = false;
    let mut walk = Walk::with_flavor(tuple, subject.desc, subject.flavor);
    for (index, attribute) in columns.iter().enumerate() {
        let Some(Ok((_, datum))) = walk.next() else {
            row.is_readable = false;
            return (index, has_content);
        };
        let code = code_of(damaged, attribute);
        // a damaged value in a row that is broken behind it may have another length than it says
        let is_external = matches!(datum, Datum::Varlena(Varlena::External(_)));
        if broken.is_some() && (broken == Some(index) || code.is_some() && !is_external) {
            return (index, has_content);
        }
        if attribute.dropped {
            continue;
        }
        let is_null = matches!(datum, Datum::Null | Datum::Missing);
        let Some(code) = code else {
            has_content |= !is_null;
            row.others.push(attribute.name.clone());
            continue;
        };
        if is_null {
            continue;
        }
        left_out.push(index);
        row.values.push(DamagedValue {
            column: attribute.name.clone(),
            code,
            pointer: match datum {
                Datum::Varlena(Varlena::External(pointer)) => Some(pointer),
                _ => None,
            },
            is_compressed: matches!(datum, Datum::Varlena(Varlena::Compressed { .. })),
            is_custom: matches!(datum, Datum::Varlena(Varlena::Custom(_))),
            fresh: fresh_of(attribute),
            reading: None,
        });
    }
    (columns.len(), has_content)
}

/// Whether the server misreads a row whose line pointer or `t_hoff` is wrong. It reads it all the same
/// where only the length is wrong, or `pd_upper`, or the number of attributes.
fn is_misread(page: &Page<'_>, bytes: &[u8], subject: &Subject<'_>, pointer: LinePointer) -> bool {
    let start = usize::from(pointer.offset);
    let least = usize::from(page.header().lower);
    let from = bytes.get(start..).unwrap_or_default();
    if start % 8 != 0 || start < least {
        return true;
    }
    let Ok(header) = HeapTuple::parse_header(from, page.byte_order()) else { return true };
    let offset = if subject.ignores_hoff {
        header.fitting_offset()
    } else {
        usize::from(from.get(HOFF_AT).copied().unwrap_or_default())
    };
    // it asks for no more attributes than there are columns
    let asked = header.attribute_count().min(subject.desc.attributes.len()) as u16;
    let infomask2 = header.infomask2 & !infomask2::NATTS_MASK | asked;
    let header = HeapTuple { infomask2, ..header };
    let Some(tuple) = header.with_data(from, offset) else { return true };
    let utf8 = subject.depth.utf8;
    let is_wrong = |(column, datum): (&Attribute, Datum<'_>)| match datum {
        Datum::Varlena(Varlena::External(pointer)) => {
            check_pointer(&pointer, subject.toast).is_some()
        }
        Datum::Varlena(Varlena::Compressed { tc_info, stream }) => {
            inline_content(tc_info, stream).is_err()
        }
        Datum::Varlena(Varlena::Short { content } | Varlena::Plain { content }) => {
            check_content(column, content, tuple.order, utf8, subject.types).is_some()
        }
        Datum::Varlena(Varlena::Unknown { .. }) => true,
        _ => false,
    };
    Walk::with_flavor(&tuple, subject.desc, subject.flavor).any(|walked| match walked {
        Ok(walked) => is_wrong(walked),
        Err(error) => !matches!(error.kind, WalkErrorKind::LeftOver(_)),
    })
}

/// A row of which nothing is read right.
fn unreadable_row(
    page: &Page<'_>,
    visible: &impl Visible,
    ctid: ItemPointer,
    pointer: LinePointer,
) -> Option<DamagedRow> {
    let own = page.tuple_bytes(pointer).ok();
    let header = own.and_then(|own| HeapTuple::parse_header(own, page.byte_order()).ok());
    Some(DamagedRow {
        is_live: header.is_none_or(|tuple| {
            visible.sees_all_of(page) || visible.visibility(ctid, &tuple) != Visibility::Dead
        }),
        broken: Some(Broken { columns: Vec::new(), is_lost: true, is_page: false }),
        ..DamagedRow::new(page, ctid, header)?
    })
}

/// A table, quoted, and its generated columns.
#[derive(Clone, Copy)]
pub(super) struct RewriteTarget<'a> {
    pub(super) table: &'a str,
    pub(super) generated: &'a HashSet<String>,
}

/// Conditions that the other columns of a row meet, as SQL, as far as their values can be told. Generated columns
/// are none: a virtual one is NULL in the row, and not in SQL.
fn guard(
    tuple: &HeapTuple<'_>,
    desc: &TupleDesc,
    damaged: &[usize],
    generated: &HashSet<String>,
) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut walk = Walk::new(tuple, desc);
    while let Some(Ok((column, datum))) = walk.next() {
        let index = walk.index() - 1;
        if damaged.contains(&index) || column.dropped || generated.contains(&column.name) {
            continue;
        }
        let name = quote_identifier(&column.name);
        let text = match datum {
            Datum::Null => {
                conditions.push(format!("{name} IS NULL"));
                continue;
            }
            Datum::Fixed(bytes) => fixed(column, bytes, tuple.order),
            Datum::Varlena(value) => short_text(column, &value),
            Datum::Missing | Datum::CString(_) => None,
        };
        conditions.extend(text.map(|text| format!("{name}::text = {}", quote_literal(&text))));
    }
    conditions
}

/// The text of a short value in the row.
fn short_text(column: &Attribute, value: &Varlena<'_>) -> Option<String> {
    let text = String::from_utf8(value.inline_content()?.to_vec()).ok()?;
    let is_text = is_text_like(column.type_oid) && column.type_oid != BPCHAR;
    (is_text && text.len() <= LONGEST_GUARD && !text.contains('\0')).then_some(text)
}

/// A key that is longer is not shown.
const LONGEST_KEY: usize = 500;

/// The columns of a row's key, whose indexes are `key`, and what is in them; `None` where one is NULL or cannot be read.
fn key_contents<'s, 't>(
    tuple: &'t HeapTuple<'_>,
    subject: &Subject<'s>,
    key: &[usize],
) -> Option<Vec<(&'s Attribute, &'t [u8])>> {
    let mut contents = vec![None; key.len()];
    let mut walk = Walk::with_flavor(tuple, subject.desc, subject.flavor);
    while let Some(Ok((column, datum))) = walk.next() {
        let index = walk.index() - 1;
        let Some(at) = key.iter().position(|own| *own == index) else { continue };
        let content = match datum {
            Datum::Fixed(content) | Datum::CString(content) => content,
            Datum::Varlena(value) => value.inline_content()?,
            Datum::Null | Datum::Missing => return None,
        };
        *contents.get_mut(at)? = Some((column, content));
    }
    contents.into_iter().collect()
}

/// Rows by the contents of a unique key, which is one of these.
#[derive(Debug)]
pub(super) struct RowsByKey {
    /// The columns of each key, by their indexes.
    keys: Vec<Vec<usize>>,
    rows: HashMap<(usize, Vec<Vec<u8>>), ItemPointer>,
}

impl RowsByKey {
    pub(super) fn new(keys: Vec<Vec<usize>>) -> RowsByKey {
        RowsByKey { keys, rows: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Enters the row at `ctid` of a page.
    pub(super) fn enter<V>(&mut self, page: &SeenPage<'_, V>, ctid: ItemPointer) {
        let Some(tuple) = tuple_at(page.bytes, ctid) else { return };
        for (at, key) in self.keys.iter().enumerate() {
            if let Some(contents) = owned_key(&tuple, page.subject, key) {
                self.rows.insert((at, contents), ctid);
            }
        }
    }

    /// Calls `each` with every row that was entered and another live one, on this page, with the same key.
    pub(super) fn twins_on_page(
        &self,
        page: &SeenPage<'_, impl Visible>,
        mut each: impl FnMut(ItemPointer, ItemPointer),
    ) {
        let SeenPage { subject, block, bytes, visible } = *page;
        if self.is_empty() {
            return;
        }
        scan::each_tuple(block, bytes, visible, |ctid, tuple, _, seen| {
            if seen != Visibility::Live {
                return;
            }
            for (at, key) in self.keys.iter().enumerate() {
                let contents = owned_key(tuple, subject, key);
                let own = contents.and_then(|contents| self.rows.get(&(at, contents)));
                if let Some(own) = own.filter(|own| **own != ctid) {
                    each(*own, ctid);
                }
            }
        });
    }
}

fn owned_key(tuple: &HeapTuple<'_>, subject: &Subject<'_>, key: &[usize]) -> Option<Vec<Vec<u8>>> {
    let contents = key_contents(tuple, subject, key)?;
    Some(contents.into_iter().map(|(_, content)| content.to_vec()).collect())
}

/// `bpchar`, whose cast to text drops blanks.
const BPCHAR: Oid = Oid(1042);

/// The text of a value of fixed length, for the types that people know rows by and whose text hangs on no setting.
fn fixed(column: &Attribute, bytes: &[u8], order: ByteOrder) -> Option<String> {
    // bool, int8, int2, int4, oid, uuid
    let is_key = matches!(column.type_oid.0, 16 | 20 | 21 | 23 | 26 | 2950);
    if !is_key || column.length != Length::Fixed(u16::try_from(bytes.len()).ok()?) {
        return None;
    }
    String::from_utf8(value_text::text(column.type_oid, bytes, order)?).ok()
}

/// A pointer to a value, in a row that is not known to be dead.
#[derive(Debug, Clone, Default)]
pub(super) struct Reference {
    pub(super) ctid: ItemPointer,
    /// The row's transaction IDs, and where its newer version is (`t_ctid`), as they stand in the tuple.
    pub(super) xmin: u32,
    pub(super) xmax: u32,
    pub(super) newer: ItemPointer,
    pub(super) column: String,
    pub(super) value_id: u64,
    /// `None` of a pluggable toaster's.
    pub(super) pointer: Option<ToastPointer>,
    /// The statement that stores the value anew; `None` if none can: the row is not live, or the value a
    /// pluggable toaster's.
    pub(super) rewrite: Option<String>,
}

impl Reference {
    /// Whether the row of `other` is a newer version of this one.
    fn is_older_than(&self, other: &Reference) -> bool {
        self.ctid != other.ctid
            && (self.newer == other.ctid || self.xmax > 2 && self.xmax == other.xmin)
    }
}

/// A finding for each live row of `source` whose value another one has too.
pub(super) fn shared_values(source: &str, mut pointing: Vec<Reference>) -> Vec<Finding> {
    pointing.retain(|one| one.rewrite.is_some());
    pointing.sort_by_key(|one| (one.value_id, one.ctid));
    let mut findings = Vec::new();
    for same in pointing.chunk_by(|a, b| a.value_id == b.value_id) {
        for (at, one) in same.iter().enumerate() {
            let Some(other) = same.get(usize::from(at == 0)) else { continue };
            let version = if one.is_older_than(other) {
                ", a newer version of it"
            } else if other.is_older_than(one) {
                ", an older version of it"
            } else {
                ""
            };
            let Reference { value_id, column, ctid, .. } = other;
            let with = format!("value {value_id} of {column} in the row at {ctid}{version}");
            let place = Place { column: Some(one.column.clone()), ..place_at(source, one.ctid) };
            findings.push(Finding::new(Code::SharedValue, place, "a value of its own", with));
        }
    }
    findings
}

/// The condition that a row stands there as it was found.
pub(super) fn where_row(ctid: ItemPointer, xmin: u32, conditions: &[String]) -> String {
    let mut sql = format!(" WHERE ctid = '{ctid}' AND xmin = '{xmin}'");
    for condition in conditions {
        sql.push_str("\n   AND ");
        sql.push_str(condition);
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::columns::parse_list;
    use toast_format::disk::{BlockNumber, TransactionId};

    #[test]
    fn the_statement_names_the_row_by_its_other_columns() {
        let desc = parse_list("id int4, ok bool, \"na\"\"me\" text, doc text, gone text").unwrap();
        // -7, true, 'it''s', a pointer
        let mut data = vec![0xF9, 0xFF, 0xFF, 0xFF, 1, 0x0B];
        data.extend_from_slice(b"it's");
        data.extend_from_slice(&[1, 18]);
        data.extend_from_slice(&[0; 16]);
        let bits = [0b0_1111];
        let tuple = HeapTuple {
            xmin: TransactionId(742),
            xmax: TransactionId(0),
            ctid: ItemPointer::default(),
            infomask: 1,
            infomask2: 5,
            null_bitmap: Some(&bits),
            data: &data,
            data_offset: 24,
            order: ByteOrder::Little,
        };
        let virtual_one = HashSet::from(["gone".to_owned()]);
        assert!(!guard(&tuple, &desc, &[3], &virtual_one).concat().contains("gone"));
        let conditions = guard(&tuple, &desc, &[3], &HashSet::new());
        let ctid = ItemPointer { block: BlockNumber(3), item: 5 };
        let sql = format!("UPDATE t{}", where_row(ctid, tuple.xmin.0, &conditions));
        insta::assert_snapshot!(sql, @r#"
        UPDATE t WHERE ctid = '(3,5)' AND xmin = '742'
           AND "id"::text = '-7'
           AND "ok"::text = 'true'
           AND "na""me"::text = 'it''s'
           AND "gone" IS NULL
        "#);
    }
}
