//! A tuple: its header and its attributes, one after the other (pure; `check_tuple_header` and
//! `check_tuple_attribute` of `verify_heapam.c`).

use super::code::Code;
use super::finding::Finding;
use super::formats::{check_content, check_fixed};
use super::subject::{External, PageFindings, Subject};
use super::value::{Damage, check_pointer, inline_content};
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::tuple::{HOFF_AT, TupleError, infomask};
use toast_format::disk::varlena::{COMPRESSED_HEADER_SIZE, VarlenaError};
use toast_format::disk::walk::{WalkError, WalkErrorKind};
use toast_format::disk::{
    ByteOrder, Datum, HeapTuple, ItemPointer, TransactionId, Varlena, Walk, max_align,
};
use toast_format::heap::problem::Place;
use toast_format::model::Visibility;

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

/// The check of the tuple at `ctid`.
pub(super) struct TupleCheck<'c, F> {
    pub(super) subject: &'c Subject<'c>,
    pub(super) ctid: ItemPointer,
    pub(super) found: &'c mut F,
}

impl<F: PageFindings> TupleCheck<'_, F> {
    /// Reports damage at a byte of the tuple.
    fn damage(
        &mut self,
        code: Code,
        byte: usize,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) {
        let place = Place { byte: Some(byte), ..self.subject.tuple_place(self.ctid) };
        self.found.finding(Finding::new(code, place, expected, got));
    }

    /// The header of the tuple that `bytes` hold; `None` where its attributes cannot be found.
    pub(super) fn header<'t>(
        &mut self,
        bytes: &'t [u8],
        order: ByteOrder,
    ) -> Option<HeapTuple<'t>> {
        let tuple = match HeapTuple::parse(bytes, order) {
            Ok(tuple) => tuple,
            Err(TupleError::HeaderCut(got)) => {
                let expected = format!("{TUPLE_HEADER_SIZE} bytes of header");
                self.damage(Code::LinePointer, 0, expected, got.to_string());
                return None;
            }
            Err(TupleError::HeaderOffset { got, min, .. }) => {
                self.damage(Code::HeaderLength, HOFF_AT, min.to_string(), got.to_string());
                return None;
            }
        };
        self.check_infomask(&tuple);
        let xvac =
            if tuple.infomask & infomask::MOVED != 0 { order.u32(bytes, XVAC_AT) } else { None };
        if let (Some(xvac), Some(limits)) = (xvac, self.subject.xids)
            && let Some(range) = limits.refuses(TransactionId(xvac))
        {
            self.damage(Code::Xvac, XVAC_AT, range, xvac.to_string());
        }
        let bitmap = tuple.null_bitmap.map_or(0, <[u8]>::len);
        let expected = max_align(TUPLE_HEADER_SIZE + bitmap);
        let old_oid = tuple.infomask & infomask::HASOID_OLD != 0
            && tuple.data_offset == max_align(TUPLE_HEADER_SIZE + bitmap + OLD_OID);
        if tuple.data_offset != expected && !old_oid {
            let got = tuple.data_offset.to_string();
            self.damage(Code::HeaderLength, HOFF_AT, expected.to_string(), got);
            return None;
        }
        let count = tuple.attribute_count();
        let bits = tuple.null_bitmap.unwrap_or(&[]);
        if let (Some(&last), true) = (bits.last(), count % 8 != 0)
            && last >> (count % 8) != 0
        {
            let byte = TUPLE_HEADER_SIZE + bits.len() - 1;
            let expected = format!("zeros behind the bit of attribute {count}");
            self.damage(Code::NullBitmap, byte, expected, format!("0x{last:02x}"));
        }
        Some(tuple)
    }

    fn check_infomask(&mut self, tuple: &HeapTuple<'_>) {
        let has = |bit| tuple.infomask & bit != 0;
        let infomask = || format!("0x{:04x}", tuple.infomask);
        let is_multi = has(infomask::XMAX_IS_MULTI);
        if is_multi && has(infomask::XMAX_COMMITTED) {
            self.damage(Code::Infomask, INFOMASK_AT, "no committed MultiXact", infomask());
        }
        let aborted = has(infomask::XMIN_INVALID) && !tuple.xmin_frozen();
        if tuple.hot_updated() && !has(infomask::XMAX_INVALID) && !aborted && tuple.xmax.0 == 0 {
            let expected = "an xmax, for the tuple was updated";
            self.damage(Code::Infomask, INFOMASK_AT, expected, "0");
        }
        if tuple.heap_only() && !has(infomask::UPDATED) {
            let expected = "HEAP_UPDATED, for the tuple is heap-only";
            self.damage(Code::Infomask, INFOMASK_AT, expected, infomask());
        }
        let (xmin, xmax) = self.subject.refused_xids(tuple);
        if let Some(range) = xmin {
            self.damage(Code::XminRange, 0, range, tuple.xmin.0.to_string());
        }
        if let Some(range) = xmax {
            let code = if is_multi { Code::MultiRange } else { Code::XmaxRange };
            self.damage(code, XMAX_AT, range, tuple.xmax.0.to_string());
        }
        for (hint, expected) in self.subject.wrong_hints(tuple) {
            self.damage(Code::CommitStatus, INFOMASK_AT, expected, hint);
        }
    }

    /// The attributes of a tuple that is not known to be dead.
    pub(super) fn attributes(&mut self, tuple: &HeapTuple<'_>, visibility: Visibility) {
        let TupleCheck { subject, ctid, .. } = *self;
        let Subject { desc, flavor, depth, types, .. } = *subject;
        let order = tuple.order;
        let is_live = visibility == Visibility::Live;
        let count = tuple.attribute_count();
        let columns = desc.attributes.len();
        // a transaction that added a column may have been aborted
        if count > columns && is_live {
            let expected = format!("at most {columns} attributes");
            self.damage(Code::AttributeCount, INFOMASK2_AT, expected, count.to_string());
        }
        if count > columns {
            self.found.is_incomplete();
            return;
        }
        let mut walk = Walk::with_flavor(tuple, desc, flavor);
        let mut flagged = tuple.infomask & infomask::HASEXTERNAL != 0;
        while let Some(walked) = walk.next() {
            let (column, datum) = match walked {
                Ok(walked) => walked,
                Err(error) => return self.broken(&error),
            };
            let end = walk.end();
            let index = walk.index() - 1;
            let place = |byte| Place {
                column: Some(column.name.clone()),
                byte: Some(byte),
                ..subject.tuple_place(ctid)
            };
            let has_contents = depth.content && !column.dropped;
            let (damage, byte) = match datum {
                Datum::Fixed(bytes) if has_contents => {
                    (check_fixed(column, bytes, order, types), end - bytes.len())
                }
                Datum::Varlena(Varlena::Short { content } | Varlena::Plain { content })
                    if has_contents =>
                {
                    let damage = check_content(column, content, order, depth.utf8, types);
                    (damage, end - content.len())
                }
                Datum::Varlena(Varlena::Compressed { tc_info, stream }) if depth.decompress => {
                    let damage = match inline_content(tc_info, stream) {
                        Ok(content) => {
                            self.found.decompressed(content.len());
                            if has_contents {
                                check_content(column, &content, order, depth.utf8, types)
                            } else {
                                None
                            }
                        }
                        Err(damage) => Some(damage),
                    };
                    (damage, end - stream.len() - COMPRESSED_HEADER_SIZE as usize)
                }
                Datum::Varlena(Varlena::External(pointer)) => {
                    let byte = end - pointer.size();
                    if !flagged {
                        flagged = true;
                        let got = format!("0x{:04x}", tuple.infomask);
                        let expected = "HEAP_HASEXTERNAL, for there is a TOAST pointer";
                        let place = place(INFOMASK_AT);
                        self.found.finding(Finding::new(Code::HasExternal, place, expected, got));
                    }
                    self.found.refers_to(pointer.value_id);
                    let damage = check_pointer(&pointer, subject.toast);
                    if damage.is_some() {
                        self.found.is_incomplete();
                    } else {
                        let value = External { ctid, index, byte, pointer, is_live, order };
                        self.found.external(value);
                    }
                    (damage, byte)
                }
                Datum::Varlena(Varlena::Custom(pointer)) => {
                    let byte = end - pointer.datum.len();
                    self.found.custom(place(byte), column, &pointer, is_live);
                    continue;
                }
                Datum::Varlena(Varlena::Unknown { tag, bytes, .. }) => {
                    let place = place(end - bytes.len() + 1);
                    let expected = "tag 18, an ordinary TOAST pointer";
                    let got = format!("tag {tag}");
                    self.found.finding(Finding::new(Code::Tag, place, expected, got));
                    self.found.is_incomplete();
                    // where the next attribute begins is not known
                    return;
                }
                // values in the row whose contents are not checked, and NULL
                _ => continue,
            };
            if let Some(damage) = damage {
                self.found.finding(at_value(damage, place(byte)));
            }
        }
    }

    /// What the values of a dead tuple refer to; nothing is judged.
    pub(super) fn note_references(&mut self, tuple: &HeapTuple<'_>) {
        for walked in Walk::with_flavor(tuple, self.subject.desc, self.subject.flavor) {
            match walked {
                Ok((_, Datum::Varlena(Varlena::External(pointer)))) => {
                    self.found.refers_to(pointer.value_id);
                }
                Ok((_, Datum::Varlena(Varlena::Custom(pointer)))) => {
                    self.found.refers_by(&self.subject.tuple_place(self.ctid), &pointer);
                }
                Ok((_, Datum::Varlena(Varlena::Unknown { .. }))) | Err(_) => {
                    self.found.is_incomplete();
                }
                Ok(_) => {}
            }
        }
    }

    fn broken(&mut self, error: &WalkError) {
        self.found.is_incomplete();
        let column = self.subject.desc.attributes.get(error.index);
        let place = Place {
            column: column.map(|column| column.name.clone()),
            byte: Some(error.byte),
            ..self.subject.tuple_place(self.ctid)
        };
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
            WalkErrorKind::LeftOver(_) => {
                (Code::LeftOver, "the tuple's end behind the last attribute")
            }
        };
        self.found.finding(Finding::new(code, place, expected, error.to_string()));
    }
}

impl Subject<'_> {
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
}

/// A value's damage at the value's place.
pub fn at_value(damage: Damage, place: Place) -> Finding {
    let Damage { code, expected, found, chunk } = damage;
    Finding { chunk, ..Finding::new(code, place, expected, found) }
}
