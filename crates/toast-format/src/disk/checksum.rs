//! The page checksum (`storage/checksum_impl.h`): FNV-1a in 32 parallel lanes.

use super::{BlockNumber, ByteOrder};

const LANES: usize = 32;
const FNV_PRIME: u32 = 16_777_619;
/// Offset of `pd_checksum` in the page header.
const PD_CHECKSUM: usize = 8;

const LANE_SEEDS: [u32; LANES] = [
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C,
    0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB,
    0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4,
    0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
];

fn mix(hash: u32, value: u32) -> u32 {
    let t = hash ^ value;
    t.wrapping_mul(FNV_PRIME) ^ (t >> 17)
}

/// The checksum that a page written to `block` carries in `pd_checksum`, never 0.
///
/// `page` is a whole page; the stored checksum itself counts as zero. A page read through the
/// server's buffer cache may legitimately differ: checksums are set when a page is written out.
pub fn page_checksum(page: &[u8], block: BlockNumber, order: ByteOrder) -> u16 {
    let mut lanes = LANE_SEEDS;
    for (row, words) in page.chunks_exact(4 * LANES).enumerate() {
        for (lane, word) in
            lanes.iter_mut().zip(words.chunks_exact(4)).enumerate().map(|(i, (l, w))| {
                let mut b = [0; 4];
                b.copy_from_slice(w);
                if row == 0 && i == PD_CHECKSUM / 4 {
                    b[0] = 0;
                    b[1] = 0;
                }
                (l, b)
            })
        {
            *lane = mix(*lane, order.u32(&word, 0).unwrap_or(0));
        }
    }
    for lane in &mut lanes {
        *lane = mix(mix(*lane, 0), 0);
    }
    let folded = lanes.iter().fold(0, |a, b| a ^ b) ^ block.0;
    (folded % 65535 + 1) as u16
}
