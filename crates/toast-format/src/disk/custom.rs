//! Custom pointers of servers with pluggable TOAST (`varatt_custom`, tag 4): what a toaster of
//! the server's or of an extension leaves in the row.
//!
//! Two layouts exist; a 32-bit number is stored as two `u16`, the high half first:
//!
//! ```text
//!                      32-bit layout      16-bit layout
//! 0x01, tag 4          0, 1               0, 1
//! payload length       2 (u32 as pair)    2 (u16)
//! raw size             6 (u32 as pair)    4 (u32 as pair)
//! toaster OID          10 (u32 as pair)   8 (u32 as pair)
//! payload              14                 12
//! ```
//!
//! One server writes the 16-bit layout without its payload, although the length field counts it.

use strum::VariantArray;

use super::error::VarlenaError;
use super::{ByteOrder, Oid};

/// Tag of a custom pointer (`VARTAG_CUSTOM`), and of another pointer in the patches for PostgreSQL 20
/// (`VARTAG_ONDISK_OID8`), which do not know this one.
pub(crate) const VARTAG_CUSTOM: u8 = 4;

/// OID of the row of `pg_toaster` for the default toaster (`DEFAULT_TOASTER_OID`), the same in
/// every database.
pub const DEFAULT_TOASTER: Oid = Oid(9864);

/// The payload length of the default toaster's pointer: size, `chunk_id` and TOAST relation.
const DEFAULT_TOASTER_PAYLOAD: usize = 12;

/// The layout in which custom pointers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, VariantArray)]
pub enum CustomFlavor {
    // The `u16` behind the tag is 0 in the 32-bit layout and never 0 in the 16-bit one, where the default
    // toaster's pointers are without payload.
    /// Detected for each pointer.
    #[default]
    Auto,
    /// A length field of 16 bits.
    Bits16,
    /// A length field of 32 bits.
    Bits32,
    /// 16-bit length, without the data that it counts.
    HeadOnly,
    // not of pluggable TOAST: the development branch for PostgreSQL 20 gives the tag to another pointer
    /// TOAST pointers with value IDs of 8 bytes (PostgreSQL 20).
    Oid8,
}

impl CustomFlavor {
    /// All flavors, as a user can name them.
    pub const ALL: &[CustomFlavor] = CustomFlavor::VARIANTS;

    /// The name, as a user gives it.
    pub fn name(self) -> &'static str {
        match self {
            CustomFlavor::Auto => "auto",
            CustomFlavor::Bits16 => "16-bit",
            CustomFlavor::Bits32 => "32-bit",
            CustomFlavor::HeadOnly => "head-only",
            CustomFlavor::Oid8 => "oid8",
        }
    }
}

/// The layout a custom pointer was read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CustomLayout {
    /// A length field of 16 bits.
    Bits16,
    /// A length field of 32 bits.
    Bits32,
    /// 16-bit length field, payload missing.
    HeadOnly,
}

impl CustomLayout {
    /// The number of bytes before the payload.
    pub fn head_size(self) -> usize {
        match self {
            CustomLayout::Bits32 => 14,
            CustomLayout::Bits16 | CustomLayout::HeadOnly => 12,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CustomLayout::Bits16 => "16-bit",
            CustomLayout::Bits32 => "32-bit",
            CustomLayout::HeadOnly => "head-only",
        }
    }
}

/// A custom pointer with its payload, which only its toaster understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CustomPointer<'a> {
    /// The layout it was read in.
    pub layout: CustomLayout,
    /// The payload length as the pointer states it; [`CustomPointer::payload`] has as many bytes,
    /// none in [`CustomLayout::HeadOnly`].
    pub payload_length: u32,
    /// The raw size as the pointer states it, meant to be the value's size with a 4-byte header;
    /// what it really is depends on the toaster.
    pub raw_size_with_header: u32,
    /// The toaster's row in `pg_toaster`.
    pub toaster: Oid,
    /// The bytes after the head.
    pub payload: &'a [u8],
    /// The whole datum, from its header on.
    pub datum: &'a [u8],
    /// The byte order of the page.
    pub order: ByteOrder,
}

impl<'a> CustomPointer<'a> {
    /// Reads the custom pointer that `bytes` starts with. Bytes behind it are ignored.
    pub(super) fn parse(
        bytes: &'a [u8],
        order: ByteOrder,
        flavor: CustomFlavor,
    ) -> Result<CustomPointer<'a>, VarlenaError> {
        let cut = |need| VarlenaError::HeaderCut { need, got: bytes.len() };
        let half = |at, need| order.u16(bytes, at).map(u32::from).ok_or(cut(need));
        let pair = |at, need| Ok(half(at, need)? << 16 | half(at + 2, need)?);
        let first = half(2, 4)?;
        let wide = match flavor {
            CustomFlavor::Auto => first == 0,
            CustomFlavor::Bits32 => true,
            CustomFlavor::Bits16 | CustomFlavor::HeadOnly | CustomFlavor::Oid8 => false,
        };
        let (mut layout, payload_length, raw_size_with_header, toaster) = if wide {
            (CustomLayout::Bits32, pair(2, 14)?, pair(6, 14)?, Oid(pair(10, 14)?))
        } else {
            (CustomLayout::Bits16, first, pair(4, 12)?, Oid(pair(8, 12)?))
        };
        let head_only = match flavor {
            CustomFlavor::HeadOnly => true,
            CustomFlavor::Auto => {
                !wide
                    && toaster == DEFAULT_TOASTER
                    && payload_length as usize == DEFAULT_TOASTER_PAYLOAD
            }
            CustomFlavor::Bits16 | CustomFlavor::Bits32 | CustomFlavor::Oid8 => false,
        };
        let head = layout.head_size();
        let length = if head_only {
            layout = CustomLayout::HeadOnly;
            head
        } else {
            head.saturating_add(payload_length as usize)
        };
        let datum =
            bytes.get(..length).ok_or(VarlenaError::PastEnd { length, got: bytes.len() })?;
        Ok(CustomPointer {
            layout,
            payload_length,
            raw_size_with_header,
            toaster,
            payload: datum.get(head..).unwrap_or(&[]),
            datum,
            order,
        })
    }

    /// The raw size as stated, without header.
    pub(crate) fn stated_raw_size(&self) -> u32 {
        self.raw_size_with_header.saturating_sub(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::varlena::Varlena;
    use proptest::prelude::*;

    /// `bytea_toaster`, 46 bytes: length 32, raw size 0x0bf3, toaster 0x24163.
    const WIDE: &[u8] = b"\x01\x04\0\0\x20\0\0\0\xf3\x0b\x02\0\x63\x41\
        \xf3\x0b\0\0\x0c\x0d\0\0\x96\x41\x02\0\x93\x41\x02\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0next";
    /// The default toaster's pointer cut off behind the OID, then the next column.
    const HEAD: &[u8] = b"\x01\x04\x0c\0\0\0\x50\x04\0\0\x88\x26\x0fafter1";

    fn parse(bytes: &[u8], flavor: CustomFlavor) -> Result<CustomPointer<'_>, VarlenaError> {
        CustomPointer::parse(bytes, ByteOrder::Little, flavor)
    }

    #[test]
    fn both_layouts_are_told_apart() {
        let wide = parse(WIDE, CustomFlavor::Auto).unwrap();
        assert_eq!(wide.layout, CustomLayout::Bits32);
        assert_eq!((wide.datum.len(), wide.payload.len()), (46, 32));
        assert_eq!((wide.raw_size_with_header, wide.toaster.0), (0x0bf3, 0x0002_4163));
        let narrow = b"\x01\x04\x03\0\0\0\x07\0\x02\0\x63\x41abcnext";
        let narrow = parse(narrow, CustomFlavor::Auto).unwrap();
        assert_eq!((narrow.layout, narrow.payload), (CustomLayout::Bits16, &b"abc"[..]));
        assert_eq!((narrow.stated_raw_size(), narrow.toaster.0), (3, 0x0002_4163));
    }

    #[test]
    fn the_default_toasters_pointer_is_without_payload_unless_forced() {
        let head = parse(HEAD, CustomFlavor::Auto).unwrap();
        assert_eq!((head.layout, head.datum.len()), (CustomLayout::HeadOnly, 12));
        assert_eq!((head.stated_raw_size(), head.toaster), (1100, DEFAULT_TOASTER));
        assert_eq!(head.payload_length, 12);
        assert_eq!(
            parse(HEAD, CustomFlavor::Bits16),
            Err(VarlenaError::PastEnd { length: 24, got: HEAD.len() })
        );
    }

    #[test]
    fn halves_are_read_in_the_pages_byte_order() {
        let big = b"\x80\x04\0\x01\0\0\0\x07\0\x02\x41\x63z";
        let big = CustomPointer::parse(big, ByteOrder::Big, CustomFlavor::Auto).unwrap();
        assert_eq!((big.payload, big.toaster.0, big.stated_raw_size()), (&b"z"[..], 0x24163, 3));
    }

    #[test]
    fn each_damage_has_its_error() {
        assert_eq!(
            parse(&WIDE[..3], CustomFlavor::Auto),
            Err(VarlenaError::HeaderCut { need: 4, got: 3 })
        );
        assert_eq!(
            parse(&WIDE[..13], CustomFlavor::Auto),
            Err(VarlenaError::HeaderCut { need: 14, got: 13 })
        );
        assert_eq!(
            parse(&WIDE[..45], CustomFlavor::Auto),
            Err(VarlenaError::PastEnd { length: 46, got: 45 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_pointer_inside_them_or_an_error(
            rest in proptest::collection::vec(any::<u8>(), 0..80),
            flavor in prop::sample::select(CustomFlavor::ALL.to_vec()),
        ) {
            let bytes = [&[1, VARTAG_CUSTOM][..], &rest].concat();
            match Varlena::parse_as(&bytes, ByteOrder::Little, flavor) {
                Ok((Varlena::Custom(pointer), used)) => {
                    prop_assert_eq!(pointer.datum.len(), used);
                    prop_assert!(used <= bytes.len());
                }
                Ok((Varlena::External(pointer), used)) => {
                    prop_assert_eq!((pointer.size(), used), (22, 22));
                }
                _ => {}
            }
        }
    }
}
