//! A tuple: its header and its attributes, one after the other (pure; `check_tuple_header` and
//! `check_tuple_attribute` of `verify_heapam.c`).

use super::code::Code;
use super::content::{check_content, check_fixed};
use super::finding::Finding;
use super::subject::{External, PageFindings, Subject};
use super::value::{Damage, check_pointer, inline_content};
use toast_format::disk::desc::Attribute;
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::tuple::{HOFF_AT, HeapTuple, TupleError, infomask};
use toast_format::disk::varlena::{COMPRESSED_HEADER_SIZE, Varlena, VarlenaError};
use toast_format::disk::walk::{Datum, Walk, WalkError, WalkErrorKind};
use toast_format::disk::{ByteOrder, ItemPointer, TransactionId, max_align};
use toast_format::heap::problem::Place;
use toast_format::model::visibility::Visibility;

/// Offset of `t_infomask` in a tuple.
pub(super) const INFOMASK_AT: usize = 20;
/// Offset of `t_infomask2` in a tuple.
pub(super) const INFOMASK2_AT: usize = 18;
/// Offset of `t_xmax` in a tuple.
const XMAX_AT: usize = 4;
/// Offset of `t_xvac` in a tuple.
const XVAC_AT: usize = 8;
/// An object ID's bytes, in tuples older than PostgreSQL 12.
const OLD_OID: usize = 4;

impl Subject<'_> {
    /// The header of the tuple that `bytes` hold; `None` where its attributes cannot be found.
    pub(super) fn check_header<'t>(
        &self,
        ctid: ItemPointer,
        bytes: &'t [u8],
        order: ByteOrder,
        found: &mut impl PageFindings,
    ) -> Option<HeapTuple<'t>> {
        let tuple = match HeapTuple::parse(bytes, order) {
            Ok(tuple) => tuple,
            Err(TupleError::HeaderCut { got }) => {
                let expected = format!("{TUPLE_HEADER_SIZE} bytes of header");
                let place = self.byte_place(ctid, 0);
                let got = format!("{got}");
                found.finding(Finding::new(Code::LinePointer, place, expected, got));
                return None;
            }
            Err(TupleError::HeaderOffset { got, min, .. }) => {
                let code = Code::HeaderLength;
                let place = self.byte_place(ctid, HOFF_AT);
                let got = got.to_string();
                found.finding(Finding::new(code, place, min.to_string(), got));
                return None;
            }
        };
        self.check_infomask(ctid, &tuple, found);
        let xvac =
            if tuple.infomask & infomask::MOVED != 0 { order.u32(bytes, XVAC_AT) } else { None };
        let range = xvac.zip(self.xids).and_then(|(xvac, xids)| xids.refuses(TransactionId(xvac)));
        if let (Some(xvac), Some(range)) = (xvac, range) {
            let place = self.byte_place(ctid, XVAC_AT);
            let got = xvac.to_string();
            found.finding(Finding::new(Code::Xvac, place, range, got));
        }
        let bitmap = tuple.null_bitmap.map_or(0, <[u8]>::len);
        let expected = max_align(TUPLE_HEADER_SIZE + bitmap);
        let old_oid = tuple.infomask & infomask::HASOID_OLD != 0
            && tuple.data_offset == max_align(TUPLE_HEADER_SIZE + bitmap + OLD_OID);
        if tuple.data_offset != expected && !old_oid {
            let got = tuple.data_offset.to_string();
            let code = Code::HeaderLength;
            let place = self.byte_place(ctid, HOFF_AT);
            found.finding(Finding::new(code, place, expected.to_string(), got));
            return None;
        }
        let count = tuple.attribute_count();
        let bits = tuple.null_bitmap.unwrap_or(&[]);
        if let (Some(&last), true) = (bits.last(), count % 8 != 0)
            && last >> (count % 8) != 0
        {
            let expected = format!("zeros behind the bit of attribute {count}");
            let got = format!("0x{last:02x}");
            let byte = TUPLE_HEADER_SIZE + bits.len() - 1;
            let place = self.byte_place(ctid, byte);
            found.finding(Finding::new(Code::NullBitmap, place, expected, got));
        }
        Some(tuple)
    }

    fn check_infomask(
        &self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        found: &mut impl PageFindings,
    ) {
        let has = |bit| tuple.infomask & bit != 0;
        let is_multi = has(infomask::XMAX_IS_MULTI);
        let mut contradiction = |expected: &str, got: String| {
            let place = self.byte_place(ctid, INFOMASK_AT);
            found.finding(Finding::new(Code::Infomask, place, expected, got));
        };
        let is_no_multi = is_multi && has(infomask::XMAX_COMMITTED);
        if is_no_multi {
            let got = format!("0x{:04x}", tuple.infomask);
            contradiction("no committed MultiXact", got);
        }
        let aborted = has(infomask::XMIN_INVALID) && !tuple.xmin_frozen();
        if tuple.hot_updated() && !has(infomask::XMAX_INVALID) && !aborted && tuple.xmax.0 == 0 {
            contradiction("an xmax, for the tuple was updated", "0".to_owned());
        }
        if tuple.heap_only() && !has(infomask::UPDATED) {
            let got = format!("0x{:04x}", tuple.infomask);
            contradiction("HEAP_UPDATED, for the tuple is heap-only", got);
        }
        let (xmin, xmax) = self.refused_xids(tuple);
        if let Some(range) = xmin {
            let got = tuple.xmin.0.to_string();
            found.finding(Finding::new(Code::XminRange, self.byte_place(ctid, 0), range, got));
        }
        if let Some(range) = xmax {
            let code = if is_multi { Code::MultiRange } else { Code::XmaxRange };
            let got = tuple.xmax.0.to_string();
            found.finding(Finding::new(code, self.byte_place(ctid, XMAX_AT), range, got));
        }
        for (hint, expected) in self.wrong_hints(tuple) {
            let place = self.byte_place(ctid, INFOMASK_AT);
            found.finding(Finding::new(Code::CommitStatus, place, expected, hint));
        }
    }

    /// What `pg_xact` says of a transaction, if it was asked.
    pub(super) fn committed(&self, xid: TransactionId) -> Option<bool> {
        self.commit_status.and_then(|status| status.sees_changes_of(xid, false))
    }

    /// Hint bits of a tuple that contradict `pg_xact`, with what should be there.
    fn wrong_hints(&self, tuple: &HeapTuple<'_>) -> Vec<(&'static str, String)> {
        use infomask::{XMAX_COMMITTED, XMAX_INVALID, XMIN_COMMITTED, XMIN_INVALID};
        let is_deleter = !tuple.has(infomask::XMAX_IS_MULTI) && !tuple.xmax_locked_only();
        let hints = [
            (XMIN_INVALID, "HEAP_XMIN_INVALID", "xmin", tuple.xmin),
            (XMIN_COMMITTED, "HEAP_XMIN_COMMITTED", "xmin", tuple.xmin),
            (XMAX_INVALID, "HEAP_XMAX_INVALID", "xmax", tuple.xmax),
            (XMAX_COMMITTED, "HEAP_XMAX_COMMITTED", "xmax", tuple.xmax),
        ];
        let mut wrong = Vec::new();
        for (bit, hint, field, xid) in hints {
            let counts = if field == "xmin" { !tuple.xmin_frozen() } else { is_deleter };
            if !tuple.has(bit) || !counts || xid.0 <= 2 {
                continue;
            }
            let says_aborted = bit == XMIN_INVALID || bit == XMAX_INVALID;
            let was_aborted = self.commit_status.is_some_and(|status| status.was_aborted(xid));
            if says_aborted && self.committed(xid) == Some(true) {
                wrong.push((hint, format!("a committed {field}, as pg_xact says of {}", xid.0)));
            } else if !says_aborted && was_aborted {
                wrong.push((hint, format!("an aborted {field}, as pg_xact says of {}", xid.0)));
            }
        }
        wrong
    }

    /// What `xmin` and `xmax` should be, where the server refuses them.
    fn refused_xids(&self, tuple: &HeapTuple<'_>) -> (Option<String>, Option<String>) {
        let Some(limits) = &self.xids else { return (None, None) };
        let has = |bit| tuple.infomask & bit != 0;
        let xmin = (!tuple.xmin_frozen()).then(|| limits.refuses(tuple.xmin)).flatten();
        let xmax = if has(infomask::XMAX_IS_MULTI) {
            // what pg_upgrade brought from before 9.3 is of another kind (HEAP_LOCKED_UPGRADED)
            let is_upgraded = has(infomask::XMAX_LOCK_ONLY) && !has(infomask::LOCK_MASK);
            let is_no_multi = has(infomask::XMAX_COMMITTED);
            if !is_upgraded && !is_no_multi { limits.refuses_multi(tuple.xmax) } else { None }
        } else if has(infomask::XMAX_INVALID) || tuple.xmax_locked_only() {
            None
        } else {
            limits.refuses(tuple.xmax)
        };
        (xmin, xmax)
    }

    /// Whether the server refuses a transaction ID of the tuple, so that SQL cannot change it.
    pub(super) fn has_refused_xid(&self, tuple: &HeapTuple<'_>) -> bool {
        self.refused_xids(tuple) != (None, None)
    }

    /// The attributes of a tuple that is not known to be dead.
    pub(super) fn check_attributes(
        &self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        visibility: Visibility,
        found: &mut impl PageFindings,
    ) {
        let is_live = visibility == Visibility::Live;
        let count = tuple.attribute_count();
        let columns = self.desc.attributes.len();
        // a transaction that added a column may have been aborted
        if count > columns && is_live {
            let place = self.byte_place(ctid, INFOMASK2_AT);
            let expected = format!("at most {columns} attributes");
            let got = count.to_string();
            found.finding(Finding::new(Code::AttributeCount, place, expected, got));
        }
        if count > columns {
            found.is_incomplete();
            return;
        }
        let mut walk = Walk::with_flavor(tuple, self.desc, self.flavor);
        let mut flagged = tuple.infomask & infomask::HASEXTERNAL != 0;
        while let Some(walked) = walk.next() {
            let (column, datum) = match walked {
                Ok(walked) => walked,
                Err(error) => {
                    self.broken(ctid, &error, found);
                    return;
                }
            };
            let end = walk.end();
            let index = walk.index() - 1;
            let place = |byte| Place { byte: Some(byte), ..self.value_place(ctid, column) };
            let value = match datum {
                Datum::Varlena(value) => value,
                Datum::Fixed(bytes) => {
                    self.check_fixed_value(
                        place(end - bytes.len()),
                        column,
                        bytes,
                        tuple.order,
                        found,
                    );
                    continue;
                }
                _ => continue,
            };
            match value {
                Varlena::Short { content } | Varlena::Plain { content } => {
                    let byte = end - content.len();
                    self.check_inline(place(byte), column, content, tuple.order, found);
                }
                Varlena::Compressed { tc_info, stream } => {
                    let byte = end - stream.len() - COMPRESSED_HEADER_SIZE as usize;
                    match self.depth.decompress.then(|| inline_content(tc_info, stream)) {
                        Some(Ok(content)) => {
                            found.decompressed(content.len());
                            self.check_inline(place(byte), column, &content, tuple.order, found);
                        }
                        Some(Err(damage)) => found.finding(at_value(damage, place(byte))),
                        None => {}
                    }
                }
                Varlena::External(pointer) => {
                    let byte = end - pointer.size();
                    let order = tuple.order;
                    let value = External { ctid, index, byte, pointer, is_live, order };
                    if !flagged {
                        flagged = true;
                        let got = format!("0x{:04x}", tuple.infomask);
                        let expected = "HEAP_HASEXTERNAL, for there is a TOAST pointer";
                        let place = place(INFOMASK_AT);
                        found.finding(Finding::new(Code::HasExternal, place, expected, got));
                    }
                    self.check_external(value, place(byte), found);
                }
                Varlena::Custom(pointer) => {
                    let byte = end - pointer.datum.len();
                    found.custom(place(byte), column, &pointer, is_live);
                }
                Varlena::Unknown { tag, bytes, .. } => {
                    let byte = end - bytes.len();
                    let expected = "tag 18, an ordinary TOAST pointer";
                    let got = format!("tag {tag}");
                    found.finding(Finding::new(Code::Tag, place(byte + 1), expected, got));
                    found.is_incomplete();
                    // where the next attribute begins is not known
                    return;
                }
            }
        }
    }

    /// What the values of a dead tuple refer to; nothing is judged.
    pub(super) fn note_references(
        &self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        found: &mut impl PageFindings,
    ) {
        for walked in Walk::with_flavor(tuple, self.desc, self.flavor) {
            match walked {
                Ok((_, Datum::Varlena(Varlena::External(pointer)))) => {
                    found.refers_to(pointer.value_id);
                }
                Ok((_, Datum::Varlena(Varlena::Custom(pointer)))) => {
                    found.refers_by(&self.tuple_place(ctid), &pointer);
                }
                Ok((_, Datum::Varlena(Varlena::Unknown { .. }))) | Err(_) => found.is_incomplete(),
                Ok(_) => {}
            }
        }
    }

    fn check_fixed_value(
        &self,
        place: Place,
        column: &Attribute,
        bytes: &[u8],
        order: ByteOrder,
        found: &mut impl PageFindings,
    ) {
        if !self.depth.content || column.dropped {
            return;
        }
        if let Some(damage) = check_fixed(column, bytes, order, self.types) {
            found.finding(at_value(damage, place));
        }
    }

    /// A pointer to a value out of line, and the value if the pointer is sound.
    fn check_external(&self, value: External, place: Place, found: &mut impl PageFindings) {
        found.refers_to(value.pointer.value_id);
        match check_pointer(&value.pointer, self.toast) {
            Some(damage) => {
                found.finding(at_value(damage, place));
                found.is_incomplete();
            }
            None => found.external(value),
        }
    }

    fn check_inline(
        &self,
        place: Place,
        column: &Attribute,
        content: &[u8],
        order: ByteOrder,
        found: &mut impl PageFindings,
    ) {
        if !self.depth.content || column.dropped {
            return;
        }
        let damage = check_content(column, content, order, self.depth.utf8, self.types);
        if let Some(damage) = damage {
            found.finding(at_value(damage, place));
        }
    }

    fn broken(&self, ctid: ItemPointer, error: &WalkError, found: &mut impl PageFindings) {
        found.is_incomplete();
        let column = self.desc.attributes.get(error.index).map(|column| column.name.clone());
        let place = Place { column, byte: Some(error.byte), ..self.tuple_place(ctid) };
        let (code, expected) = match error.kind {
            // the value before, whose tag is not known, has its finding
            WalkErrorKind::Unreachable => return,
            WalkErrorKind::Varlena(
                VarlenaError::PastEnd { .. } | VarlenaError::HeaderCut { .. },
            )
            | WalkErrorKind::PastEnd { .. }
            | WalkErrorKind::Unterminated => (Code::PastEnd, "an attribute inside the tuple"),
            WalkErrorKind::Varlena(VarlenaError::TooShort { .. }) => {
                (Code::Varlena, "a length of at least the header")
            }
            WalkErrorKind::TooManyAttributes { .. } => (Code::AttributeCount, "fewer attributes"),
            WalkErrorKind::LeftOver { .. } => {
                (Code::LeftOver, "the tuple's end behind the last attribute")
            }
        };
        found.finding(Finding::new(code, place, expected, error.to_string()));
    }
}

/// A value's damage at the value's place.
pub fn at_value(damage: Damage, place: Place) -> Finding {
    let Damage { code, expected, found, chunk } = damage;
    Finding { chunk, ..Finding::new(code, place, expected, found) }
}
