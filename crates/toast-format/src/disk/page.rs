//! Pages and line pointers (`bufpage.h`, `itemid.h`).
//!
//! ```text
//!  0 pd_lsn       8   two u32, high half first
//!  8 pd_checksum  2
//! 10 pd_flags     2   valid bits 0x0007
//! 12 pd_lower     2   end of the line pointers
//! 14 pd_upper     2   start of the tuples
//! 16 pd_special   2   start of the special space
//! 18 size and layout version 2
//! 20 pd_prune_xid 4
//! 24 line pointers, 4 bytes each
//! ```

use super::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize};
use super::{BlockNumber, ByteOrder, TransactionId, checksum, max_align};

const PD_ALL_VISIBLE: u16 = 0x0004;
const PD_FLAGS_VALID: u16 = 0x0007;

/// A page header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    /// `pd_lsn`: end of the last WAL record that changed the page.
    pub lsn: u64,
    /// `pd_checksum`, 0 where checksums are off.
    pub checksum: u16,
    /// `pd_flags`: whether all tuples are visible, and the like.
    pub flags: u16,
    /// `pd_lower`: offset of the end of the line pointers.
    pub lower: u16,
    /// `pd_upper`: offset of the first tuple.
    pub upper: u16,
    /// `pd_special`: offset of an index's special space, the page size in a heap.
    pub special: u16,
    /// `pd_prune_xid`: the oldest transaction whose tuple could be pruned.
    pub prune_xid: TransactionId,
}

/// A page whose header was checked.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    header: PageHeader,
}

/// The contents of a block of a relation.
#[derive(Debug, Clone, Copy)]
pub enum PageState<'a> {
    /// All zeros: allocated and never written (`PageIsNew`).
    New,
    /// A page with a sane header.
    Used(Page<'a>),
}

/// Why bytes are not a page. `byte` is an offset from the page's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Length is not one of 1, 2, 4, 8, 16, 32 kB.
    #[error("{0} bytes are not a page: a page has 1, 2, 4, 8, 16 or 32 kB")]
    Size(usize),
    /// The header names another page size or an unknown layout version.
    #[error(
        "invalid page header at byte 18: size and version word is 0x{got:04x}, \
         expected 0x{expected:04x} in either byte order"
    )]
    SizeWord {
        /// The word as read on a little-endian machine.
        got: u16,
        /// The word a page of this length has.
        expected: u16,
    },
    /// `pd_lower`, `pd_upper` and `pd_special` do not fit together.
    #[error(
        "invalid page header at byte 12: lower {lower}, upper {upper}, special {special}, \
         page size {size}"
    )]
    Bounds {
        /// `pd_lower` as read.
        lower: u16,
        /// `pd_upper` as read.
        upper: u16,
        /// `pd_special` as read.
        special: u16,
        /// The page size in bytes.
        size: usize,
    },
    /// `pd_flags` has bits that no version sets.
    #[error("invalid page header at byte 10: flags 0x{0:04x}")]
    Flags(u16),
    /// A new page (`pd_upper` 0) that is not all zeros.
    #[error("invalid page: upper is 0, as in a new page, but byte {0} is not zero")]
    DirtyNew(usize),
}

/// What is wrong with the checksum of a page in use, if its header can be read.
pub fn wrong_checksum(block: BlockNumber, bytes: &[u8]) -> Option<WrongChecksum> {
    match Page::parse(bytes) {
        Ok(PageState::Used(page)) => page.wrong_checksum(block),
        Ok(PageState::New) | Err(_) => None,
    }
}

/// A page's checksum that does not fit its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("checksum 0x{right:04x} expected, 0x{got:04x} found")]
pub struct WrongChecksum {
    /// The checksum that follows from content and block number.
    pub right: u16,
    /// `pd_checksum` as read.
    pub got: u16,
}

impl<'a> Page<'a> {
    /// Checks and reads the header. The byte order is taken from the size word.
    pub fn parse(bytes: &'a [u8]) -> Result<PageState<'a>, PageError> {
        let size = PageSize::new(bytes.len()).ok_or(PageError::Size(bytes.len()))?;
        let at = |order: ByteOrder, offset| order.u16(bytes, offset).unwrap_or(0);
        if at(ByteOrder::Little, 14) == 0 {
            return match bytes.iter().position(|&b| b != 0) {
                None => Ok(PageState::New),
                Some(byte) => Err(PageError::DirtyNew(byte)),
            };
        }
        let expected = size.version_word();
        let order = [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find(|&order| at(order, 18) == expected)
            .ok_or(PageError::SizeWord { got: at(ByteOrder::Little, 18), expected })?;
        let lsn_high = u64::from(order.u32(bytes, 0).unwrap_or(0));
        let lsn_low = u64::from(order.u32(bytes, 4).unwrap_or(0));
        let header = PageHeader {
            lsn: lsn_high << 32 | lsn_low,
            checksum: at(order, 8),
            flags: at(order, 10),
            lower: at(order, 12),
            upper: at(order, 14),
            special: at(order, 16),
            prune_xid: TransactionId(order.u32(bytes, 20).unwrap_or(0)),
        };
        let PageHeader { flags, lower, upper, special, .. } = header;
        if flags & !PD_FLAGS_VALID != 0 {
            return Err(PageError::Flags(flags));
        }
        let sane = usize::from(lower) >= PAGE_HEADER_SIZE
            && lower <= upper
            && upper <= special
            && usize::from(special) <= bytes.len()
            && special % 8 == 0;
        if !sane {
            return Err(PageError::Bounds { lower, upper, special, size: bytes.len() });
        }
        Ok(PageState::Used(Page { bytes, order, header }))
    }

    /// The header's fields as read.
    pub fn header(&self) -> PageHeader {
        self.header
    }

    /// The byte order of the machine that wrote the page.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes between line pointers and tuples (`PageGetExactFreeSpace`).
    pub fn free_space(&self) -> usize {
        usize::from(self.header.upper - self.header.lower)
    }

    /// Bytes from `pd_upper` to `pd_special` to which no line pointer leads. Servers leave none, except where pg_surgery
    /// has killed a tuple, until the page is pruned.
    pub fn lost_bytes(&self) -> usize {
        let PageHeader { upper, special, .. } = self.header;
        let led_to = self.line_pointers().filter(|(_, item)| self.tuple_bytes(*item).is_ok());
        let used: usize = led_to.map(|(_, item)| max_align(usize::from(item.length))).sum();
        usize::from(special - upper).saturating_sub(used)
    }

    /// Whether every tuple of the page is visible to everyone (`PageIsAllVisible`).
    pub fn all_visible(&self) -> bool {
        self.header.flags & PD_ALL_VISIBLE != 0
    }

    /// The `pd_checksum` that a page with this content has at `block`, if checksums are on.
    fn checksum(&self, block: BlockNumber) -> u16 {
        checksum::page_checksum(self.bytes, block, self.order)
    }

    /// The wrong checksum, if checksums are on and `pd_checksum` does not fit the content.
    pub fn wrong_checksum(&self, block: BlockNumber) -> Option<WrongChecksum> {
        let right = self.checksum(block);
        let got = self.header.checksum;
        (right != got).then_some(WrongChecksum { right, got })
    }

    /// How many line pointers the page has (`PageGetMaxOffsetNumber`).
    pub fn line_pointer_count(&self) -> u16 {
        ((usize::from(self.header.lower) - PAGE_HEADER_SIZE) / LINE_POINTER_SIZE) as u16
    }

    /// Line pointers with their numbers from 1, in order.
    pub fn line_pointers(&self) -> impl Iterator<Item = (u16, LinePointer)> + use<'a> {
        let bytes = self.bytes;
        let order = self.order;
        (1..=self.line_pointer_count()).map(move |number| {
            let at = line_pointer_offset(number);
            (number, LinePointer::from_word(order.u32(bytes, at).unwrap_or(0)))
        })
    }

    /// The line pointer with this number, from 1; `None` if the page has fewer.
    pub fn line_pointer(&self, number: u16) -> Option<LinePointer> {
        Some(self.line_pointers().nth(usize::from(number).checked_sub(1)?)?.1)
    }

    /// The bytes of the line pointer with this number, at [`line_pointer_offset`].
    pub fn line_pointer_bytes(&self, number: u16) -> Option<[u8; LINE_POINTER_SIZE]> {
        self.bytes.get(line_pointer_offset(number)..)?.first_chunk().copied()
    }

    /// The bytes after the header (`PageGetContents`).
    pub(crate) fn contents(&self) -> &'a [u8] {
        self.bytes.get(PAGE_HEADER_SIZE..).unwrap_or_default()
    }

    /// The special space of the access method, at the page's end (`PageGetSpecialPointer`).
    pub(crate) fn special_space(&self) -> &'a [u8] {
        self.bytes.get(usize::from(self.header.special)..).unwrap_or_default()
    }

    /// The bytes of the tuple that a normal line pointer addresses.
    pub fn tuple_bytes(&self, item: LinePointer) -> Result<&'a [u8], ItemError> {
        let LinePointer { offset, length, .. } = item;
        let start = usize::from(offset);
        let end = usize::from(offset) + usize::from(length);
        let PageHeader { upper, special, .. } = self.header;
        if offset < upper || end > usize::from(special) {
            return Err(ItemError::OutOfBounds { offset, length, upper, special });
        }
        if offset % 8 != 0 {
            return Err(ItemError::Unaligned(offset));
        }
        self.bytes.get(start..end).ok_or(ItemError::OutOfBounds { offset, length, upper, special })
    }
}

/// Offset in its page of the line pointer with this number, from 1.
pub fn line_pointer_offset(number: u16) -> usize {
    PAGE_HEADER_SIZE + usize::from(number.saturating_sub(1)) * LINE_POINTER_SIZE
}

/// The state of a line pointer (`LP_*`, `itemid.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinePointerState {
    /// `LP_UNUSED`: free for a new tuple.
    Unused,
    /// `LP_NORMAL`: addresses a tuple.
    Normal,
    /// Forwards to another line pointer of the page, whose number is in `offset`.
    Redirect,
    /// Dead, its tuple gone or about to go.
    Dead,
}

impl LinePointerState {
    /// From the two flag bits, as `heap_page_items` prints in `lp_flags`.
    pub fn from_flags(flags: u8) -> Option<LinePointerState> {
        match flags {
            0 => Some(LinePointerState::Unused),
            1 => Some(LinePointerState::Normal),
            2 => Some(LinePointerState::Redirect),
            3 => Some(LinePointerState::Dead),
            _ => None,
        }
    }
}

/// A line pointer (`ItemIdData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePointer {
    /// `lp_off`: byte offset of the tuple; of a redirect the line pointer number it leads to.
    pub offset: u16,
    /// `lp_flags`: what the line pointer is used for.
    pub state: LinePointerState,
    /// `lp_len`: bytes of the tuple, header included.
    pub length: u16,
}

impl LinePointer {
    /// Decodes `ItemIdData`, a word in the byte order of the machine (`itemid.h`).
    pub fn from_word(word: u32) -> LinePointer {
        let state = LinePointerState::from_flags((word >> 15 & 3) as u8);
        let state = state.unwrap_or(LinePointerState::Dead);
        LinePointer { offset: (word & 0x7FFF) as u16, state, length: (word >> 17) as u16 }
    }
}

/// Why a line pointer leads to no tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The tuple would lie outside the page's tuple space.
    #[error(
        "line pointer to bytes {offset} to {}, outside the tuple space {upper} to {special}",
        u32::from(*offset) + u32::from(*length)
    )]
    OutOfBounds {
        /// `lp_off` in bytes.
        offset: u16,
        /// `lp_len` in bytes.
        length: u16,
        /// `pd_upper` of the page.
        upper: u16,
        /// `pd_special` of the page.
        special: u16,
    },
    /// Tuples start at multiples of 8.
    #[error("line pointer to byte {0}, which is not a multiple of 8")]
    Unaligned(u16),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An empty 8 kB page of a little-endian machine.
    fn empty() -> Vec<u8> {
        let mut page = vec![0; 8192];
        page[12..20].copy_from_slice(&[24, 0, 0, 32, 0, 32, 4, 32]);
        page
    }

    fn used(bytes: &[u8]) -> Page<'_> {
        match Page::parse(bytes) {
            Ok(PageState::Used(page)) => page,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_empty_page_and_a_new_one() {
        assert_eq!(used(&empty()).free_space(), 8168);
        assert_eq!(used(&empty()).line_pointer_count(), 0);
        assert!(matches!(Page::parse(&[0; 8192]), Ok(PageState::New)));
    }

    #[test]
    fn the_byte_order_is_read_from_the_size_word() {
        let mut page = empty();
        page[12..20].copy_from_slice(&[0, 28, 32, 0, 32, 0, 32, 4]);
        page[24..28].copy_from_slice(&(8160u32 | 1 << 15 | 31 << 17).to_be_bytes());
        let page = used(&page);
        assert_eq!(page.byte_order(), ByteOrder::Big);
        let (_, item) = page.line_pointers().next().unwrap();
        assert_eq!((item.offset, item.length, item.state), (8160, 31, LinePointerState::Normal));
    }

    #[test]
    fn each_damage_of_a_header_has_its_error() {
        let damaged = |at: usize, with: &[u8]| {
            let mut page = empty();
            page[at..at + with.len()].copy_from_slice(with);
            Page::parse(&page).unwrap_err()
        };
        assert_eq!(damaged(18, &[4, 64]), PageError::SizeWord { got: 0x4004, expected: 0x2004 });
        assert_eq!(damaged(18, &[5, 32]), PageError::SizeWord { got: 0x2005, expected: 0x2004 });
        assert_eq!(damaged(10, &[8]), PageError::Flags(8));
        assert_eq!(damaged(14, &[0, 0]), PageError::DirtyNew(12));
        let bounds =
            |lower, upper, special| PageError::Bounds { lower, upper, special, size: 8192 };
        assert_eq!(damaged(12, &[23]), bounds(23, 8192, 8192));
        assert_eq!(damaged(12, &[1, 32]), bounds(8193, 8192, 8192));
        assert_eq!(damaged(14, &[1, 32]), bounds(24, 8193, 8192));
        assert_eq!(damaged(16, &[1, 32]), bounds(24, 8192, 8193));
        assert_eq!(Page::parse(&empty()[..8191]).unwrap_err(), PageError::Size(8191));
    }

    #[test]
    fn tuples_outside_the_tuple_space_are_refused() {
        let mut bytes = empty();
        bytes[14..16].copy_from_slice(&8000u16.to_le_bytes());
        let page = used(&bytes);
        let item = |offset, length| LinePointer { offset, length, state: LinePointerState::Normal };
        assert_eq!(page.tuple_bytes(item(8000, 192)).map(<[u8]>::len), Ok(192));
        assert_eq!(page.tuple_bytes(item(8001, 20)), Err(ItemError::Unaligned(8001)));
        for (offset, length) in [(8000, 193), (7992, 8), (32767, 32767)] {
            let error = ItemError::OutOfBounds { offset, length, upper: 8000, special: 8192 };
            assert_eq!(page.tuple_bytes(item(offset, length)), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_page_or_an_error(
            head in proptest::collection::vec(any::<u8>(), 24),
            size_word in prop_oneof![Just([4u8, 32]), Just([32, 4]), any::<[u8; 2]>()],
            tail in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut bytes = vec![0; 8192];
            bytes[..24].copy_from_slice(&head);
            bytes[18..20].copy_from_slice(&size_word);
            bytes[24..24 + tail.len()].copy_from_slice(&tail);
            if let Ok(PageState::Used(page)) = Page::parse(&bytes) {
                for (_, item) in page.line_pointers() {
                    let _ = page.tuple_bytes(item);
                }
            }
        }
    }
}
