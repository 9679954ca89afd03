//! Variable-length values (`varatt.h`): the header's forms and what stands behind them.

use super::custom::{CustomFlavor, CustomPointer, VARTAG_CUSTOM};
pub use super::error::VarlenaError;
use super::pointer::{ToastPointer, pointer_size};
use super::{ByteOrder, ValueIdType};
use crate::codec::Method;

/// Bytes of a compressed datum's header, length word and `va_tcinfo` (`VARHDRSZ_COMPRESSED`).
pub const COMPRESSED_HEADER_SIZE: u32 = 8;
/// Bytes that a compressed value in the TOAST relation has before its stream: `va_tcinfo`.
pub const TCINFO_SIZE: u32 = COMPRESSED_HEADER_SIZE - VARLENA_HEADER_SIZE;
/// Of these the bytes that do not move to the TOAST relation: the length word (`VARHDRSZ`).
pub const VARLENA_HEADER_SIZE: u32 = 4;
/// Tag of an ordinary on-disk TOAST pointer (`VARTAG_ONDISK`).
pub const VARTAG_ONDISK: u8 = 18;
/// Tags that exist in memory only (`VARTAG_INDIRECT`, `VARTAG_EXPANDED_RO`, `VARTAG_EXPANDED_RW`);
/// on disk they are corruption, yet of known length.
const MEMORY_TAGS: std::ops::RangeInclusive<u8> = 1..=3;
/// Header, tag and pointer of a datum with one of the [`MEMORY_TAGS`].
const MEMORY_POINTER_SIZE: usize = 10;

/// A variable-length value in a tuple (`varatt.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Varlena<'a> {
    /// 1-byte header, up to 126 bytes of content.
    Short {
        /// The content, without header.
        content: &'a [u8],
    },
    /// Uncompressed, with a header of 4 bytes.
    Plain {
        /// The content, without header.
        content: &'a [u8],
    },
    /// 4-byte header, compressed in line.
    Compressed {
        /// `va_tcinfo`: raw size without header in the low 30 bits, method in the high 2.
        tc_info: u32,
        /// The compressed stream, without the 8 bytes of headers.
        stream: &'a [u8],
    },
    /// Out of line: a TOAST pointer.
    External(ToastPointer),
    /// Stored by a pluggable toaster.
    Custom(CustomPointer<'a>),
    /// A pointer whose tag no released version writes.
    Unknown {
        /// The tag, the datum's second byte.
        tag: u8,
        /// All bytes from the header on: to the datum's end if the tag's length is known, else to
        /// the end of what was given.
        bytes: &'a [u8],
        /// Whether the datum's length is known, so that what follows it can be read.
        sized: bool,
    },
}

impl<'a> Varlena<'a> {
    /// Reads the varlena that starts with the first byte, and returns it with its length in bytes.
    ///
    /// The first byte must be the header's (padding skipped). Bytes behind the value are ignored.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<(Varlena<'a>, usize), VarlenaError> {
        Self::parse_as(bytes, order, CustomFlavor::Auto)
    }

    /// As [`Varlena::parse`], with custom pointers in the layout that `flavor` says.
    pub(crate) fn parse_as(
        bytes: &'a [u8],
        order: ByteOrder,
        flavor: CustomFlavor,
    ) -> Result<(Varlena<'a>, usize), VarlenaError> {
        let &first = bytes.first().ok_or(VarlenaError::HeaderCut { need: 1, got: 0 })?;
        let (is_pointer, is_short) = match order {
            ByteOrder::Little => (first == 0x01, first & 0x01 != 0),
            ByteOrder::Big => (first == 0x80, first & 0x80 != 0),
        };
        if is_pointer {
            Self::parse_pointer(bytes, order, flavor)
        } else if is_short {
            let length = usize::from(match order {
                ByteOrder::Little => first >> 1,
                ByteOrder::Big => first & 0x7F,
            });
            let content = slice(bytes, 1, length)?;
            Ok((Varlena::Short { content }, length))
        } else {
            Self::parse_four_byte(bytes, first, order)
        }
    }

    fn parse_pointer(
        bytes: &'a [u8],
        order: ByteOrder,
        flavor: CustomFlavor,
    ) -> Result<(Varlena<'a>, usize), VarlenaError> {
        let &tag = bytes.get(1).ok_or(VarlenaError::HeaderCut { need: 2, got: bytes.len() })?;
        if tag == VARTAG_ONDISK {
            return Self::parse_stock(bytes, order, ValueIdType::Oid);
        }
        if tag == VARTAG_CUSTOM {
            if flavor == CustomFlavor::Oid8 {
                return Self::parse_stock(bytes, order, ValueIdType::Oid8);
            }
            let custom = CustomPointer::parse(bytes, order, flavor);
            if custom.is_err()
                && flavor == CustomFlavor::Auto
                && let Ok(wide) = Self::parse_stock(bytes, order, ValueIdType::Oid8)
                && let (Varlena::External(pointer), _) = wide
                && pointer.is_sane()
            {
                return Ok(wide);
            }
            let pointer = custom?;
            return Ok((Varlena::Custom(pointer), pointer.datum.len()));
        }
        match bytes.get(..MEMORY_POINTER_SIZE) {
            Some(own) if MEMORY_TAGS.contains(&tag) => {
                Ok((Varlena::Unknown { tag, bytes: own, sized: true }, own.len()))
            }
            _ => Ok((Varlena::Unknown { tag, bytes, sized: false }, bytes.len())),
        }
    }

    /// A TOAST pointer as stock servers write it, with value IDs of this type.
    fn parse_stock(
        bytes: &[u8],
        order: ByteOrder,
        id_type: ValueIdType,
    ) -> Result<(Varlena<'a>, usize), VarlenaError> {
        let length = pointer_size(id_type);
        let pointer = bytes
            .get(2..)
            .and_then(|b| ToastPointer::parse(b, order, id_type))
            .ok_or(VarlenaError::PastEnd { length, got: bytes.len() })?;
        Ok((Varlena::External(pointer), length))
    }

    fn parse_four_byte(
        bytes: &'a [u8],
        first: u8,
        order: ByteOrder,
    ) -> Result<(Varlena<'a>, usize), VarlenaError> {
        let got = bytes.len();
        let word = order.u32(bytes, 0).ok_or(VarlenaError::HeaderCut { need: 4, got })?;
        let (length, compressed) = match order {
            ByteOrder::Little => (word >> 2, first & 0x03 == 0x02),
            ByteOrder::Big => (word & 0x3FFF_FFFF, first & 0xC0 == 0x40),
        };
        let length = length as usize;
        if compressed {
            let stream = slice(bytes, 8, length)?;
            let tc_info = order.u32(bytes, 4).ok_or(VarlenaError::HeaderCut { need: 8, got })?;
            Ok((Varlena::Compressed { tc_info, stream }, length))
        } else {
            Ok((Varlena::Plain { content: slice(bytes, 4, length)? }, length))
        }
    }

    /// The content, if it is uncompressed in the row.
    pub fn inline_content(&self) -> Option<&'a [u8]> {
        match self {
            Varlena::Short { content } | Varlena::Plain { content } => Some(content),
            _ => None,
        }
    }
}

/// The content of a value of `length` bytes that begins with a header of `header` bytes.
fn slice(bytes: &[u8], header: usize, length: usize) -> Result<&[u8], VarlenaError> {
    if length < header {
        return Err(VarlenaError::TooShort { length, header });
    }
    bytes.get(header..length).ok_or(VarlenaError::PastEnd { length, got: bytes.len() })
}

/// Raw size without header in a `va_tcinfo` word (`VARDATA_COMPRESSED_GET_EXTSIZE`).
pub fn tc_raw_size(tc_info: u32) -> u32 {
    tc_info & 0x3FFF_FFFF
}

/// Method in a `va_tcinfo` word, `None` for an unknown id.
pub fn tc_method(tc_info: u32) -> Option<Method> {
    Method::from_id((tc_info >> 30) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn le(bytes: &[u8]) -> Result<(Varlena<'_>, usize), VarlenaError> {
        Varlena::parse(bytes, ByteOrder::Little)
    }

    fn be(bytes: &[u8]) -> Result<(Varlena<'_>, usize), VarlenaError> {
        Varlena::parse(bytes, ByteOrder::Big)
    }

    #[test]
    fn every_form_is_read_in_both_byte_orders() {
        assert_eq!(le(b"\x07ab?"), Ok((Varlena::Short { content: b"ab" }, 3)));
        assert_eq!(be(b"\x83ab?"), Ok((Varlena::Short { content: b"ab" }, 3)));
        assert_eq!(le(b"\x18\0\0\0ab"), Ok((Varlena::Plain { content: b"ab" }, 6)));
        assert_eq!(be(b"\0\0\0\x06ab"), Ok((Varlena::Plain { content: b"ab" }, 6)));
        let stream: &[u8] = b"xy";
        let compressed = Varlena::Compressed { tc_info: 0x4000_0064, stream };
        assert_eq!(le(b"\x2a\0\0\0\x64\0\0\x40xy"), Ok((compressed, 10)));
        assert_eq!(be(b"\x40\0\0\x0a\x40\0\0\x64xy"), Ok((compressed, 10)));
        assert_eq!((tc_raw_size(0x4000_0064), tc_method(0x4000_0064)), (100, Some(Method::Lz4)));
        let (external, used) = le(b"\x01\x12\xec\x03\0\0\x10\x01\0\0\x05\0\0\0\x06\0\0\0").unwrap();
        assert_eq!(used, 18);
        let Varlena::External(p) = external else { panic!("{external:?}") };
        assert_eq!(
            (p.raw_size(), p.stored_size(), p.value_id.0, p.toast_relation.0),
            (1000, 272, 5, 6)
        );
        assert_eq!(be(b"\x80\x12\0\0\x03\xec\0\0\x01\x10\0\0\0\x05\0\0\0\x06"), Ok((external, 18)));
    }

    /// A pointer with an ID of 8 bytes: raw size 1000, stored 272, value 5 + 6 << 32 in relation 7.
    const WIDE: &[u8] = b"\x01\x04\xec\x03\0\0\x10\x01\0\0\x05\0\0\0\x06\0\0\0\x07\0\0\0";

    #[test]
    fn a_pointer_with_an_id_of_8_bytes_has_its_low_half_first_in_both_byte_orders() {
        let oid8 = |bytes, order| Varlena::parse_as(bytes, order, CustomFlavor::Oid8);
        let (external, used) = oid8(WIDE, ByteOrder::Little).unwrap();
        let Varlena::External(p) = external else { panic!("{external:?}") };
        assert_eq!((used, p.size(), p.id_type), (22, 22, ValueIdType::Oid8));
        assert_eq!((p.raw_size(), p.stored_size(), p.toast_relation.0), (1000, 272, 7));
        assert_eq!(p.value_id.0, 5 + (6 << 32));
        let big = b"\x80\x04\0\0\x03\xec\0\0\x01\x10\0\0\0\x05\0\0\0\x06\0\0\0\x07";
        assert_eq!(oid8(big, ByteOrder::Big), Ok((external, 22)));
        // recognized without the flavor, because no toaster can have written it
        assert_eq!(le(WIDE), Ok((external, 22)));
        assert_eq!(
            oid8(&WIDE[..21], ByteOrder::Little),
            Err(VarlenaError::PastEnd { length: 22, got: 21 })
        );
        let mut damaged = WIDE.to_vec();
        damaged[14..22].fill(0);
        damaged[10] = 0;
        assert!(le(&damaged).is_err(), "{:?}", le(&damaged));
    }

    #[test]
    fn unknown_tags_are_values() {
        let bytes = b"\x01\x63 and what follows";
        assert_eq!(
            le(bytes),
            Ok((Varlena::Unknown { tag: 0x63, bytes, sized: false }, bytes.len()))
        );
        let bytes = b"\x01\x02\0\0\0\0\0\0\0\0next";
        let own = &bytes[..10];
        assert_eq!(le(bytes), Ok((Varlena::Unknown { tag: 2, bytes: own, sized: true }, 10)));
    }

    #[test]
    fn each_damage_has_its_error() {
        assert_eq!(le(b""), Err(VarlenaError::HeaderCut { need: 1, got: 0 }));
        assert_eq!(le(b"\x01"), Err(VarlenaError::HeaderCut { need: 2, got: 1 }));
        assert_eq!(le(b"\x18\0\0"), Err(VarlenaError::HeaderCut { need: 4, got: 3 }));
        assert_eq!(le(b"\x0c\0\0\0"), Err(VarlenaError::TooShort { length: 3, header: 4 }));
        assert_eq!(le(b"\x1e\0\0\0abc"), Err(VarlenaError::TooShort { length: 7, header: 8 }));
        assert_eq!(le(b"\x09ab"), Err(VarlenaError::PastEnd { length: 4, got: 3 }));
        assert_eq!(le(b"\x01\x12short"), Err(VarlenaError::PastEnd { length: 18, got: 7 }));
        assert_eq!(
            le(b"\xfc\xff\xff\xff"),
            Err(VarlenaError::PastEnd { length: 0x3FFF_FFFF, got: 4 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_inside_them_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            big in any::<bool>(),
        ) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            if let Ok((_, used)) = Varlena::parse(&bytes, order) {
                prop_assert!(used >= 1 && used <= bytes.len());
            }
        }
    }
}
