//! The LZ4 block format, as `lz4_compress_datum` and its counterparts in
//! `access/common/toast_compression.c` use it: one raw block, no frame, no size in front.
//!
//! ```text
//! sequence   token (literals << 4 | match), [literal length bytes], literals,
//!            offset (2 bytes, little endian), [match length bytes]
//! length     15 in the token means: add the bytes that follow, up to and with the first under 255
//! match      length + 4 bytes, 1 to 65535 bytes back; the last sequence has literals only
//! ```
//!
//! Whole blocks are left to `lz4_flex`; its compressor finds other matches than liblz4's, so that
//! sizes differ by up to about one percent either way.

use super::items::Item;
use super::pglz::plain::copy_match;
use super::{DecompressError, KEEP};

/// No block gives more than this many bytes for each of its own.
pub(super) const MAX_EXPANSION: usize = 255;

/// Compresses values one after another with the same output buffer.
#[derive(Debug, Default)]
pub struct Compressor {
    out: Vec<u8>,
}

impl Compressor {
    /// A compressor with no buffer yet.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// Compresses `src`, at the default acceleration and whatever comes of it.
    pub fn compress(&mut self, src: &[u8]) -> &[u8] {
        let room = lz4_flex::block::get_maximum_output_size(src.len());
        if self.out.len() < room || self.out.len() > KEEP.max(8 * room) {
            self.out = vec![0; room];
        }
        match lz4_flex::block::compress_into(src, &mut self.out) {
            Ok(size) => self.out.get(..size).unwrap_or_default(),
            // Only where the output is too small, which it is not.
            Err(_) => {
                self.out = lz4_flex::block::compress(src);
                &self.out
            }
        }
    }
}

/// Decompresses a whole value into `dst`, which is as long as the value.
///
/// # Errors
/// Where the block is damaged, or gives less or more than `dst` holds. (The server takes less
/// without a word and returns a shorter value.)
pub fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    if lz4_flex::block::decompress_into(src, dst).is_ok_and(|size| size == dst.len()) {
        return Ok(());
    }
    // Once more, slowly, to say what is wrong and where.
    let end = walk(src, dst)?;
    if end.raw != dst.len() {
        return Err(DecompressError::Short { expected: dst.len(), got: end.raw });
    }
    if end.stream != src.len() {
        return Err(DecompressError::Trailing { at: end.stream, len: src.len() - end.stream });
    }
    // lz4_flex wants literals behind the last match. liblz4 does too.
    Err(DecompressError::Truncated(src.len()))
}

/// Decompresses until `dst` is full or the block ends, and says how many bytes that gave
/// (`LZ4_decompress_safe_partial`). The block may be cut anywhere behind what is needed.
///
/// # Errors
/// Where the block is damaged, or ends inside a sequence.
pub fn decompress_prefix(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    walk(src, dst).map(|end| end.raw)
}

/// Calls `each` with what a block consists of, until it says no. Returns whether the block ends behind literals, as the
/// last sequence does.
pub(super) fn each_item<'s>(src: &'s [u8], mut each: impl FnMut(Item<'s>) -> bool) -> bool {
    let mut at = 0;
    while let Some(&token) = src.get(at) {
        at += 1;
        let run = length(src, &mut at, token >> 4);
        let Some(literals) = run.and_then(|run| src.get(at..at.checked_add(run)?)) else {
            return false;
        };
        at += literals.len();
        if !each(Item::Literals(literals)) {
            return false;
        }
        if at == src.len() {
            return true;
        }
        let Some(&[low, high]) = src.get(at..).and_then(|rest| rest.first_chunk::<2>()) else {
            return false;
        };
        at += 2;
        let Some(len) = length(src, &mut at, token & 0x0f) else { return false };
        let offset = usize::from(u16::from_le_bytes([low, high]));
        if !each(Item::Match { offset, len: len.saturating_add(4) }) {
            return false;
        }
    }
    false
}

/// How far a decompression has come.
struct BlockEnd {
    stream: usize,
    raw: usize,
}

/// Decompresses until `dst` is full or the block ends.
fn walk(src: &[u8], dst: &mut [u8]) -> Result<BlockEnd, DecompressError> {
    let mut at = 0;
    let mut out = 0;
    while let (Some(&token), true) = (src.get(at), out < dst.len()) {
        let sequence = at;
        let truncated = DecompressError::Truncated(sequence);
        at += 1;
        let literals = length(src, &mut at, token >> 4).ok_or(truncated.clone())?;
        let take = literals.min(dst.len() - out);
        let from = src.get(at..at + take).ok_or(truncated.clone())?;
        dst[out..out + take].copy_from_slice(from);
        at += take;
        out += take;
        if take < literals || at >= src.len() || out >= dst.len() {
            break;
        }
        let &[low, high] = src[at..].first_chunk::<2>().ok_or(truncated.clone())?;
        at += 2;
        let offset = usize::from(u16::from_le_bytes([low, high]));
        let len = length(src, &mut at, token & 0x0f).ok_or(truncated)?.saturating_add(4);
        if offset == 0 || offset > out {
            return Err(DecompressError::Offset { at: sequence, offset, written: out });
        }
        let len = len.min(dst.len() - out);
        copy_match(dst, out, offset, len);
        out += len;
    }
    Ok(BlockEnd { stream: at, raw: out })
}

/// A length of which four bits are in the token; `None` if the block ends inside it.
fn length(src: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut len = usize::from(nibble);
    if nibble == 0x0f {
        loop {
            let byte = *src.get(*at)?;
            *at += 1;
            len = len.saturating_add(usize::from(byte));
            if byte < 255 {
                break;
            }
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "ab", then a match of 6 bytes 2 back, then the literals "xyz".
    const STREAM: [u8; 8] = [0x22, b'a', b'b', 2, 0, 0x30, b'x', b'y'];

    fn stream() -> Vec<u8> {
        [&STREAM[..], b"z"].concat()
    }

    #[test]
    fn a_block_made_by_hand_is_read() {
        let mut raw = [0; 11];
        assert_eq!(decompress(&stream(), &mut raw), Ok(()));
        assert_eq!(&raw, b"ababababxyz");
        for len in 0..11 {
            let mut prefix = vec![0; len];
            assert_eq!(decompress_prefix(&stream(), &mut prefix), Ok(len));
            assert_eq!(prefix, raw[..len]);
        }
    }

    #[test]
    fn each_damage_has_its_error() {
        let decompress = |stream: &[u8], len| decompress(stream, &mut vec![0; len]);
        let short = DecompressError::Short { expected: 12, got: 11 };
        assert_eq!(decompress(&stream(), 12), Err(short));
        let trailing = DecompressError::Trailing { at: 8, len: 1 };
        assert_eq!(decompress(&stream(), 10), Err(trailing));
        assert_eq!(decompress(&STREAM, 11), Err(DecompressError::Truncated(5)));
        assert_eq!(decompress(&stream()[..4], 11), Err(DecompressError::Truncated(0)));
        for offset in [0, 3] {
            let mut stream = stream();
            stream[3] = offset;
            let offset = usize::from(offset);
            let expected = DecompressError::Offset { at: 0, offset, written: 2 };
            assert_eq!(decompress(&stream, 11), Err(expected));
        }
        // A length that goes on and on.
        assert_eq!(decompress(&[0xff; 40], 11), Err(DecompressError::Truncated(0)));
    }
}
