//! pglz in safe code, step by step as `common/pg_lzcompress.c` does it.

use super::{HISTORY_SIZE, Limits, MAX_MATCH, MAX_OFFSET, Strategy, list_of};
use crate::codec::DecompressError;
use crate::codec::items::Items;

/// Decompresses from the start of a stream until it or `dst` is at its end; see
/// [`decompress_prefix`](super::decompress_prefix).
pub fn decompress_prefix(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    resume(src, dst, Position::default(), copy_match).map(|end| end.raw)
}

/// Decompresses a whole value; see [`decompress`](super::decompress).
pub fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let end = resume(src, dst, Position::default(), copy_match)?;
    check_complete(src, dst, end)
}

/// How far a decompression has come: always between a group of eight items and the next.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Position {
    /// Bytes of the stream read.
    pub(super) stream: usize,
    /// Bytes of the value written.
    pub(super) raw: usize,
}

/// That the stream and the value ended together (`check_complete`).
pub(super) fn check_complete(src: &[u8], dst: &[u8], end: Position) -> Result<(), DecompressError> {
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
    position: Position,
    copy: impl Fn(&mut [u8], usize, usize, usize),
) -> Result<Position, DecompressError> {
    let Position { stream: mut at, raw: mut out } = position;
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
                let item = Match::read(&src[at..]).ok_or(DecompressError::Truncated { at })?;
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
    Ok(Position { stream: at, raw: out })
}

/// What a stream consists of, up to an incomplete match.
pub(in crate::codec) fn items(src: &[u8]) -> Items {
    let mut items = Items::default();
    let mut at = 0;
    while let Some(&control) = src.get(at) {
        at += 1;
        for bit in 0..8 {
            let Some(rest) = src.get(at..).filter(|rest| !rest.is_empty()) else { break };
            if control >> bit & 1 == 0 {
                items.literals += 1.0;
                at += 1;
                continue;
            }
            let Some(item) = Match::read(rest) else { return items };
            items.add_match(item.offset, item.len);
            at += item.size;
        }
    }
    items
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

/// Compresses `src`, or refuses as the strategy demands: then `None`.
pub fn compress(src: &[u8], strategy: &Strategy) -> Option<Vec<u8>> {
    compress_within(src, &strategy.limits(src.len())?)
}

/// [`compress`] with the limits worked out.
pub(super) fn compress_within(src: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let mut history = History::new(limits.lists);
    let mut out = Vec::new();
    let mut control_at = 0;
    let mut item = 0;
    let mut matched = false;
    let mut at = 0;
    while at < src.len() {
        if out.len() >= limits.result_max || !matched && out.len() >= limits.first_success_by {
            return None;
        }
        if item == 0 {
            control_at = out.len();
            out.push(0);
        }
        let mut len = 1;
        if let Some((found, offset)) = history.find(src, at, limits) {
            matched = true;
            len = found;
            out[control_at] |= 1 << item;
            let high = ((offset >> 4) & 0xf0) as u8;
            let low = (offset & 0xff) as u8;
            match len {
                ..18 => out.extend([high | (len - 3) as u8, low]),
                _ => out.extend([high | 0x0f, low, (len - 18) as u8]),
            }
        } else {
            out.push(src[at]);
        }
        for position in at..at + len {
            history.add(src, position);
        }
        at += len;
        item = (item + 1) % 8;
    }
    (out.len() < limits.result_max).then_some(out)
}

/// The positions seen, in one chain for each list, the latest first.
struct History {
    /// The latest position of each list, plus one; 0 for none.
    heads: Vec<usize>,
    /// For each of the last [`HISTORY_SIZE`] positions the one before it in its list, plus one.
    next: Vec<usize>,
}

impl History {
    fn new(lists: u16) -> History {
        History { heads: vec![0; usize::from(lists)], next: vec![0; HISTORY_SIZE] }
    }

    fn list(&self, src: &[u8], at: usize) -> usize {
        let list = match src[at..].first_chunk::<4>() {
            Some(&[a, b, c, d]) => list_of(a, b, c, d),
            None => i16::from(src[at].cast_signed()).cast_unsigned(),
        };
        usize::from(list) & (self.heads.len() - 1)
    }

    fn add(&mut self, src: &[u8], at: usize) {
        let list = self.list(src, at);
        self.next[at % HISTORY_SIZE] = self.heads[list];
        self.heads[list] = at + 1;
    }

    /// The length and offset of the match for `at` (`pglz_find_match`).
    fn find(&self, src: &[u8], at: usize, limits: &Limits) -> Option<(usize, usize)> {
        let mut good_match = limits.search.good_match;
        let (mut best, mut offset) = (0, 0);
        let max = MAX_MATCH.min(src.len() - at);
        let mut entry = self.heads[self.list(src, at)];
        while entry > 0 && at - (entry - 1) < MAX_OFFSET {
            let from = entry - 1;
            let equal = src[from..].iter().zip(&src[at..at + max]).take_while(|(a, b)| a == b);
            let len = equal.count();
            if len > best {
                (best, offset) = (len, at - from);
            }
            if i32::try_from(best).is_ok_and(|best| best >= good_match) {
                break;
            }
            good_match = limits.search.lowered(good_match);
            entry = self.next[from % HISTORY_SIZE];
        }
        (best > 2).then_some((best, offset))
    }
}
