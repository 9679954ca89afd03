//! pglz decompression in safe code, step by step as `common/pg_lzcompress.c` does it.

use crate::codec::DecompressError;
use crate::codec::items::Item;

/// Decompresses from the start of a stream until it or `dst` is at its end; see
/// [`decompress_prefix`](super::decompress_prefix).
pub fn decompress_prefix(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    resume(src, dst, StreamPosition::default(), copy_match).map(|end| end.raw)
}

/// Decompresses a whole value; see [`decompress`](super::decompress).
pub fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let end = resume(src, dst, StreamPosition::default(), copy_match)?;
    check_complete(src, dst, end)
}

/// How far a decompression has come: always between a group of eight items and the next.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StreamPosition {
    /// Bytes of the stream read.
    pub(super) stream: usize,
    /// Bytes of the value written.
    pub(super) raw: usize,
}

/// That the stream and the value ended together (`check_complete`).
pub(super) fn check_complete(
    src: &[u8],
    dst: &[u8],
    end: StreamPosition,
) -> Result<(), DecompressError> {
    if end.raw != dst.len() {
        return Err(DecompressError::Short { expected: dst.len(), got: end.raw });
    }
    if end.stream != src.len() {
        return Err(DecompressError::Trailing { at: end.stream, len: src.len() - end.stream });
    }
    Ok(())
}

/// Goes on from `position` until the stream or `dst` is at its end. `copy` is [`copy_match`] or
/// does the same; it is called only with an offset between 1 and `at`, and a length that fits.
pub(super) fn resume(
    src: &[u8],
    dst: &mut [u8],
    position: StreamPosition,
    copy: impl Fn(&mut [u8], usize, usize, usize),
) -> Result<StreamPosition, DecompressError> {
    let StreamPosition { stream: mut at, raw: mut out } = position;
    while at < src.len() && out < dst.len() {
        let mut control = src[at];
        at += 1;
        for _ in 0..8 {
            if at >= src.len() || out >= dst.len() {
                break;
            }
            if control & 1 == 0 {
                dst[out] = src[at];
                at += 1;
                out += 1;
            } else {
                let item = Match::read(&src[at..]).ok_or(DecompressError::Truncated(at))?;
                if item.offset == 0 || item.offset > out {
                    return Err(DecompressError::Offset { at, offset: item.offset, written: out });
                }
                at += item.size;
                let len = item.len.min(dst.len() - out);
                copy(dst, out, item.offset, len);
                out += len;
            }
            control >>= 1;
        }
    }
    Ok(StreamPosition { stream: at, raw: out })
}

/// Calls `each` with what a stream consists of, until it says no. Returns whether the stream ends with an item.
pub(in crate::codec) fn each_item<'s>(
    src: &'s [u8],
    mut each: impl FnMut(Item<'s>) -> bool,
) -> bool {
    let mut at = 0;
    while let Some(&control) = src.get(at) {
        at += 1;
        for bit in 0..8 {
            let Some(rest) = src.get(at..).filter(|rest| !rest.is_empty()) else { break };
            let item = if control >> bit & 1 == 0 {
                at += 1;
                Item::Literals(&rest[..1])
            } else {
                let Some(Match { offset, len, size }) = Match::read(rest) else { return false };
                at += size;
                Item::Match { offset, len }
            };
            if !each(item) {
                return false;
            }
        }
    }
    true
}

/// A match as coded.
struct Match {
    offset: usize,
    len: usize,
    /// Bytes that the code takes, 2 or 3.
    size: usize,
}

impl Match {
    /// The match at the start of `src`; `None` if `src` ends inside it.
    fn read(src: &[u8]) -> Option<Match> {
        let (&[first, second], rest) = src.split_first_chunk::<2>()?;
        let offset = usize::from(first & 0xf0) << 4 | usize::from(second);
        Some(match first & 0x0f {
            0x0f => Match { offset, len: 18 + usize::from(*rest.first()?), size: 3 },
            len => Match { offset, len: usize::from(len) + 3, size: 2 },
        })
    }
}

/// Copies `len` bytes to `at` from `offset` before it, over what it has itself written if `offset`
/// is less than `len`. What can be copied without overlap doubles each time.
pub(in crate::codec) fn copy_match(dst: &mut [u8], at: usize, offset: usize, len: usize) {
    let from = at - offset;
    let mut done = 0;
    while done < len {
        let step = (offset + done).min(len - done);
        dst.copy_within(from..from + step, at + done);
        done += step;
    }
}
