//! The attributes of a tuple, one after the other (`heap_deform_tuple`, `tupmacs.h`).

use super::custom::CustomFlavor;
use super::desc::{Attribute, Length, TupleDesc};
use super::tuple::HeapTuple;
use super::varlena::{Varlena, VarlenaError};
use super::{ByteOrder, ValueIdType};

/// The value of one attribute of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datum<'a> {
    /// NULL, by the null bitmap, or behind the tuple's last attribute.
    Null,
    /// Not in the tuple, which is older than the column: the column's missing value holds.
    Missing,
    /// A value of fixed length.
    Fixed(&'a [u8]),
    /// A C string without its NUL.
    CString(&'a [u8]),
    /// A variable-length value, in any of its forms.
    Varlena(Varlena<'a>),
}

/// An attribute that [`Walk::step_simple`] steps over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Simple {
    /// NULL, by the null bitmap.
    Null,
    /// A value of this fixed length.
    Fixed(u16),
    /// A varlena with a 1-byte header, and this many bytes of content.
    Short(u8),
}

/// Why an attribute could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WalkErrorKind {
    /// The value is no varlena.
    #[error(transparent)]
    Varlena(VarlenaError),
    /// A value of fixed length reaches past the tuple's end.
    #[error("value of {need} bytes reaches past the end: {got} bytes are left")]
    PastEnd {
        /// Bytes of the type.
        need: usize,
        /// The number of bytes left.
        got: usize,
    },
    /// A C string without NUL.
    #[error("c string without end")]
    Unterminated,
    /// The value before has a length that is not known.
    #[error("after a value of unknown length, cannot be read")]
    Unreachable,
    /// The tuple has more attributes than the columns given.
    #[error("tuple has {got} attributes, but only {columns} columns are known")]
    TooManyAttributes {
        /// Attributes of the tuple.
        got: usize,
        /// The number of columns given.
        columns: usize,
    },
    /// Bytes are left over behind the last attribute: the columns given are not the tuple's.
    #[error("{0} bytes are left over after the last attribute")]
    LeftOver(usize),
}

/// An attribute that could not be read. The attributes before it are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct WalkError {
    /// The attribute's index from 0.
    pub index: usize,
    /// Offset from the tuple's start (from the data's start where only data was given).
    pub byte: usize,
    /// What is wrong there.
    pub kind: WalkErrorKind,
}

/// The server that does not align custom pointers makes room for their alignment all the same, and
/// for that of the value behind: up to 7 bytes each, left over as zeros at the tuple's end.
const CUSTOM_SLACK: usize = 14;

/// Iterates over the columns of a [`TupleDesc`], dropped ones included.
///
/// Yields one item for each column, and after them at most one more error where the tuple holds
/// more than the columns account for. After an error the rest of the columns is not yielded.
#[derive(Debug, Clone)]
pub struct Walk<'a, 'd> {
    tuple: HeapTuple<'a>,
    columns: &'d [Attribute],
    index: usize,
    offset: usize,
    state: WalkState,
    flavor: CustomFlavor,
    /// Zeros that may follow the last attribute.
    slack: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkState {
    Reading,
    /// A datum of unknown length took the rest of the tuple.
    Lost,
    Done,
}

impl<'a, 'd> Walk<'a, 'd> {
    /// Starts at the tuple's first attribute.
    pub fn new(tuple: &HeapTuple<'a>, desc: &'d TupleDesc) -> Walk<'a, 'd> {
        Walk::with_flavor(tuple, desc, CustomFlavor::Auto)
    }

    /// Starts at the tuple's first attribute; custom pointers are read in the layout that `flavor`
    /// says.
    pub fn with_flavor(
        tuple: &HeapTuple<'a>,
        desc: &'d TupleDesc,
        flavor: CustomFlavor,
    ) -> Walk<'a, 'd> {
        Walk {
            tuple: *tuple,
            columns: &desc.attributes,
            index: 0,
            offset: 0,
            state: WalkState::Reading,
            flavor: match (flavor, desc.id_type) {
                (CustomFlavor::Auto, ValueIdType::Oid8) => CustomFlavor::Oid8,
                _ => flavor,
            },
            slack: 0,
        }
    }

    /// The index of the attribute that comes next.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where the attribute read last ends: an offset from the tuple's start (from the data's start
    /// where only data was given).
    pub fn end(&self) -> usize {
        self.tuple.data_offset + self.offset
    }

    /// Steps over the next attribute if it is one of the simple ones, which are most of any table,
    /// and returns which; otherwise it stays there, and [`Iterator::next`] returns the attribute.
    #[inline]
    pub(crate) fn step_simple(&mut self) -> Option<Simple> {
        let column = self.columns.get(self.index)?;
        if self.state != WalkState::Reading || self.index >= self.tuple.attribute_count() {
            return None;
        }
        let data = self.tuple.data;
        let simple = if self.tuple.is_null(self.index) {
            Simple::Null
        } else {
            match column.length {
                Length::Fixed(length) => {
                    let end = column.align.align(self.offset) + usize::from(length);
                    if end > data.len() {
                        return None;
                    }
                    self.offset = end;
                    Simple::Fixed(length)
                }
                Length::Varlena if self.tuple.order == ByteOrder::Little => {
                    let &first = data.get(self.offset)?;
                    let end = self.offset + usize::from(first >> 1);
                    // 0x01 is the header of a pointer
                    if first & 1 == 0 || first == 1 || end > data.len() {
                        return None;
                    }
                    self.offset = end;
                    Simple::Short((first >> 1) - 1)
                }
                _ => return None,
            }
        };
        self.index += 1;
        Some(simple)
    }

    fn error(&self, kind: WalkErrorKind) -> WalkError {
        WalkError { index: self.index, byte: self.tuple.data_offset + self.offset, kind }
    }

    fn read(&mut self, column: &Attribute) -> Result<Datum<'a>, WalkErrorKind> {
        if self.index >= self.tuple.attribute_count() {
            return Ok(if column.missing.is_some() { Datum::Missing } else { Datum::Null });
        }
        if self.tuple.is_null(self.index) {
            return Ok(Datum::Null);
        }
        if self.state == WalkState::Lost {
            return Err(WalkErrorKind::Unreachable);
        }
        let data = self.tuple.data;
        // Anything but zero starts a datum that is not aligned: padding is always zeros.
        let unaligned = column.length == Length::Varlena
            && data.get(self.offset).is_some_and(|&byte| byte != 0);
        if !unaligned {
            self.offset = column.align.align(self.offset);
        }
        let rest = data.get(self.offset..).unwrap_or(&[]);
        match column.length {
            Length::Fixed(length) => {
                let need = usize::from(length);
                let bytes =
                    rest.get(..need).ok_or(WalkErrorKind::PastEnd { need, got: rest.len() })?;
                self.offset += need;
                Ok(Datum::Fixed(bytes))
            }
            Length::CString => {
                let end = rest.iter().position(|&b| b == 0).ok_or(WalkErrorKind::Unterminated)?;
                self.offset += end + 1;
                Ok(Datum::CString(rest.get(..end).unwrap_or(&[])))
            }
            Length::Varlena => {
                let (value, used) = Varlena::parse_as(rest, self.tuple.order, self.flavor)
                    .map_err(WalkErrorKind::Varlena)?;
                self.offset += used;
                match value {
                    Varlena::Unknown { sized: false, .. } => self.state = WalkState::Lost,
                    Varlena::Custom(_) => self.slack += CUSTOM_SLACK,
                    _ => {}
                }
                Ok(Datum::Varlena(value))
            }
        }
    }

    /// Checks that nothing is left once every column was read.
    fn finish(&mut self) -> Option<WalkError> {
        let got = self.tuple.attribute_count();
        let columns = self.columns.len();
        let rest = self.tuple.data.get(self.offset..).unwrap_or(&[]);
        let is_slack = rest.len() <= self.slack && rest.iter().all(|&byte| byte == 0);
        let left = if is_slack { 0 } else { rest.len() };
        if got > columns {
            Some(self.error(WalkErrorKind::TooManyAttributes { got, columns }))
        } else if self.state == WalkState::Reading && left > 0 {
            Some(self.error(WalkErrorKind::LeftOver(left)))
        } else {
            None
        }
    }
}

impl<'a, 'd> Iterator for Walk<'a, 'd> {
    type Item = Result<(&'d Attribute, Datum<'a>), WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == WalkState::Done {
            return None;
        }
        let Some(column) = self.columns.get(self.index) else {
            let last = self.finish();
            self.state = WalkState::Done;
            return last.map(Err);
        };
        let result = self.read(column).map_err(|kind| self.error(kind));
        if result.is_err() {
            self.state = WalkState::Done;
        }
        self.index += 1;
        Some(result.map(|datum| (column, datum)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::desc::{Align, Storage};
    use crate::disk::tuple::infomask;
    use crate::disk::{ItemPointer, TransactionId};
    use proptest::prelude::*;

    fn desc() -> TupleDesc {
        let column = |length, align| Attribute {
            name: String::new(),
            type_name: String::new(),
            type_oid: super::super::Oid(0),
            length,
            align,
            storage: Storage::Extended,
            compression: None,
            dropped: false,
            is_virtual: false,
            only_plain: false,
            missing: None,
        };
        TupleDesc {
            attributes: vec![
                column(Length::Fixed(2), Align::Short),
                column(Length::Varlena, Align::Int),
                column(Length::Fixed(8), Align::Double),
                column(Length::Varlena, Align::Double),
                column(Length::CString, Align::Char),
                column(Length::Varlena, Align::Int),
            ],
            ..TupleDesc::default()
        }
    }

    proptest! {
        #[test]
        fn simple_steps_see_what_the_walk_sees(
            data in proptest::collection::vec(prop_oneof![3 => 0u8..12, 1 => any::<u8>()], 0..120),
            bits in any::<u8>(),
            natts in 0u16..9,
            big in any::<bool>(),
        ) {
            let bitmap = [bits];
            let tuple = HeapTuple {
                xmin: TransactionId(3),
                xmax: TransactionId(0),
                ctid: ItemPointer::default(),
                infomask: infomask::HASNULL,
                infomask2: natts,
                null_bitmap: Some(&bitmap),
                data: &data,
                data_offset: 24,
                order: if big { ByteOrder::Big } else { ByteOrder::Little },
            };
            let desc = desc();
            let plain: Vec<_> = Walk::new(&tuple, &desc).collect();
            let mut walk = Walk::new(&tuple, &desc);
            let mut seen = 0;
            loop {
                let Some(expected) = plain.get(seen) else {
                    prop_assert_eq!(walk.step_simple(), None);
                    prop_assert_eq!(walk.next(), None);
                    break;
                };
                match (walk.step_simple(), expected) {
                    (Some(Simple::Null), Ok((_, Datum::Null))) => {}
                    (Some(Simple::Fixed(n)), Ok((_, Datum::Fixed(bytes)))) => {
                        prop_assert_eq!(usize::from(n), bytes.len());
                    }
                    (Some(Simple::Short(n)), Ok((_, Datum::Varlena(Varlena::Short { content })))) => {
                        prop_assert_eq!(usize::from(n), content.len());
                    }
                    (Some(simple), other) => prop_assert!(false, "{:?} for {:?}", simple, other),
                    (None, expected) => {
                        let next = walk.next();
                        prop_assert_eq!(next.as_ref(), Some(expected));
                    }
                }
                seen += 1;
            }
        }
    }
}
