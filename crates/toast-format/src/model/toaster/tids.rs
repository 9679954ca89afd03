//! Lists of chunk addresses in pointers of `jsonb_toaster`: plain, or as differences encoded like GIN posting lists
//! (`ginpostinglist.c`).
//!
//! A segment of the compressed form:
//!
//! ```text
//!  0 number of TIDs in the segment 2
//!  2 first TID 6: block high u16, block low u16, line pointer u16
//!  8 number of code bytes b 2
//! 10 differences of (block << 11 | line pointer), 7 bits a byte, low group first, bit 7: more
//!    zero byte if b is odd
//! ```

use crate::disk::{BlockNumber, ByteOrder, ItemPointer};

/// The size of a plain TID.
pub(crate) const TID_SIZE: usize = 6;
/// The number of bits for the line pointer in a TID's number (`MaxHeapTuplesPerPageBits`).
const ITEM_BITS: u32 = 11;
/// The size of the longest difference: 64 bits in groups of 7.
const MAX_CODE_BYTES: u32 = 10;

/// The TID at offset `at`; `None` beyond the end.
pub(crate) fn tid_at(bytes: &[u8], at: usize, order: ByteOrder) -> Option<ItemPointer> {
    let block = u32::from(order.u16(bytes, at)?) << 16 | u32::from(order.u16(bytes, at + 2)?);
    Some(ItemPointer { block: BlockNumber(block), item: order.u16(bytes, at + 4)? })
}

/// The message if the list ends too early.
fn cut(expected: u32, got: usize) -> String {
    format!("list of {expected} TIDs ends after {got}")
}

/// The message if bytes follow the list.
fn left_over(bytes: usize) -> String {
    format!("{bytes} bytes are left over after the list of TIDs")
}

/// Reads `count` plain TIDs, which must fill `bytes`.
///
/// # Errors
/// Why the list cannot be read; positions are relative to its start.
pub fn plain(bytes: &[u8], count: u32, order: ByteOrder) -> Result<Vec<ItemPointer>, String> {
    let tids: Vec<ItemPointer> = bytes
        .chunks_exact(TID_SIZE)
        .take(count as usize)
        .filter_map(|tid| tid_at(tid, 0, order))
        .collect();
    if tids.len() != count as usize {
        return Err(cut(count, tids.len()));
    }
    match bytes.len() - tids.len() * TID_SIZE {
        0 => Ok(tids),
        left => Err(left_over(left)),
    }
}

/// Reads `count` TIDs in segments, which must fill `bytes`.
pub fn compressed(bytes: &[u8], count: u32, order: ByteOrder) -> Result<Vec<ItemPointer>, String> {
    let mut tids = Vec::new();
    let mut at = 0;
    while (tids.len() as u32) < count {
        let done = tids.len();
        let cut = || cut(count, done);
        let left = count - tids.len() as u32;
        let segment = order.u16(bytes, at).ok_or_else(cut)?;
        if segment == 0 || u32::from(segment) > left {
            return Err(format!(
                "segment of {segment} TIDs at byte {at} of the list, where {left} are left"
            ));
        }
        let first = tid_at(bytes, at + 2, order).ok_or_else(cut)?;
        let length = usize::from(order.u16(bytes, at + 8).ok_or_else(cut)?);
        let code = bytes.get(at + 10..at + 10 + length).ok_or_else(cut)?;
        let bad = || {
            format!("code of the segment at byte {at} of the list does not give its {segment} TIDs")
        };
        tids.push(first);
        let mut number = u64::from(first.block.0) << ITEM_BITS | u64::from(first.item);
        let mut code = code.iter();
        for _ in 1..segment {
            number = number.wrapping_add(difference(&mut code).ok_or_else(bad)?);
            tids.push(ItemPointer {
                // A step back is a difference modulo 2^64.
                block: BlockNumber((number >> ITEM_BITS) as u32),
                item: (number & ((1 << ITEM_BITS) - 1)) as u16,
            });
        }
        if code.next().is_some() {
            return Err(bad());
        }
        at += 10 + length.next_multiple_of(2);
    }
    match bytes.len().saturating_sub(at) {
        0 => Ok(tids),
        left => Err(left_over(left)),
    }
}

fn difference(code: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut value = 0u64;
    for group in 0..MAX_CODE_BYTES {
        let &byte = code.next()?;
        value |= u64::from(byte & 0x7F) << (7 * group);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tid(block: u32, item: u16) -> ItemPointer {
        ItemPointer { block: BlockNumber(block), item }
    }

    fn le(bytes: &[u8], count: u32) -> Result<Vec<ItemPointer>, String> {
        compressed(bytes, count, ByteOrder::Little)
    }

    /// Writes a segment like the server, including steps back.
    fn segment(tids: &[ItemPointer]) -> Vec<u8> {
        let number = |tid: &ItemPointer| u64::from(tid.block.0) << 11 | u64::from(tid.item);
        let mut code = Vec::new();
        for pair in tids.windows(2) {
            let mut step = number(&pair[1]).wrapping_sub(number(&pair[0]));
            while step >= 0x80 {
                code.push(step as u8 | 0x80);
                step >>= 7;
            }
            code.push(step as u8);
        }
        let mut bytes = (tids.len() as u16).to_le_bytes().to_vec();
        bytes.extend(((tids[0].block.0 >> 16) as u16).to_le_bytes());
        bytes.extend((tids[0].block.0 as u16).to_le_bytes());
        bytes.extend(tids[0].item.to_le_bytes());
        bytes.extend((code.len() as u16).to_le_bytes());
        bytes.extend(&code);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    }

    #[test]
    fn steps_forward_and_back() {
        let bytes = b"\x05\0\0\0\x42\0\x01\0\x05\0\x01\x01\x01\xfd\x0f\0";
        let expected = [tid(66, 1), tid(66, 2), tid(66, 3), tid(66, 4), tid(67, 1)];
        assert_eq!(le(bytes, 5).unwrap(), expected);
        let back = [tid(70, 3), tid(2, 9), tid(0x12_3456, 7)];
        assert_eq!(le(&[segment(&back), segment(&expected)].concat(), 8).unwrap()[..3], back);
    }

    #[test]
    fn each_damage_has_its_error() {
        let bytes = b"\x02\0\0\0\x42\0\x01\0\x01\0\x01\0";
        assert_eq!(le(bytes, 2).unwrap().len(), 2);
        assert_eq!(le(bytes, 3), Err(cut(3, 2)));
        assert_eq!(
            le(bytes, 1),
            Err("segment of 2 TIDs at byte 0 of the list, where 1 are left".to_owned())
        );
        assert_eq!(
            le(&[0; 12], 1),
            Err("segment of 0 TIDs at byte 0 of the list, where 1 are left".to_owned())
        );
        assert_eq!(le(&bytes[..10], 2), Err(cut(2, 0)));
        let code = "code of the segment at byte 0 of the list does not give its 2 TIDs".to_owned();
        let two = b"\x02\0\0\0\x42\0\x01\0\x02\0\x01\x01";
        assert_eq!(le(two, 2), Err(code.clone()));
        let open = b"\x02\0\0\0\x42\0\x01\0\x02\0\x81\x81";
        assert_eq!(le(open, 2), Err(code.clone()));
        assert_eq!(le(b"\x01\0\0\0\x42\0\x01\0\0\0zz", 1), Err(left_over(2)));
        assert_eq!(plain(&[0; 13], 2, ByteOrder::Little), Err(left_over(1)));
        assert_eq!(plain(&[0; 13], 3, ByteOrder::Little), Err(cut(3, 2)));
    }

    proptest! {
        #[test]
        fn any_list_comes_back(
            numbers in proptest::collection::vec((any::<u32>(), 1u16..2048), 1..60),
        ) {
            let tids: Vec<_> = numbers.into_iter().map(|(block, item)| tid(block, item)).collect();
            prop_assert_eq!(le(&segment(&tids), tids.len() as u32).unwrap(), tids);
        }
    }
}
