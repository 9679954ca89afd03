//! pglz compression step by step as `common/pg_lzcompress.c` does it: what the fast code is tested against.

use toast_format::codec::pglz::Strategy;

/// `PGLZ_HISTORY_SIZE`.
const HISTORY_SIZE: usize = 4096;
/// The compressor breaks off at offsets of this and more (`pglz_find_match`).
const MAX_OFFSET: usize = 0x0fff;
/// `PGLZ_MAX_MATCH`.
const MAX_MATCH: usize = 273;

/// Compresses `src`, or refuses as the strategy demands: then `None`.
pub(crate) fn compress(src: &[u8], strategy: &Strategy) -> Option<Vec<u8>> {
    let (min_input_size, keep, first_success_by, drop) = match *strategy {
        Strategy::ALWAYS => (0, 100, usize::MAX, 6),
        _ => (32, 75, 1024, 10),
    };
    if src.len() < min_input_size {
        return None;
    }
    let overflows = src.len() > i32::MAX as usize / 100;
    let result_max = if overflows { src.len() / 100 * keep } else { src.len() * keep / 100 };
    let lists = match src.len() {
        0..128 => 512,
        128..256 => 1024,
        256..512 => 2048,
        512..1024 => 4096,
        _ => 8192,
    };
    let mut history = History { heads: vec![0; lists], next: vec![0; HISTORY_SIZE], drop };
    let mut out = Vec::new();
    let mut control_at = 0;
    let mut item = 0;
    let mut matched = false;
    let mut at = 0;
    while at < src.len() {
        if out.len() >= result_max || !matched && out.len() >= first_success_by {
            return None;
        }
        if item == 0 {
            control_at = out.len();
            out.push(0);
        }
        let mut len = 1;
        if let Some((found, offset)) = history.find(src, at) {
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
    (out.len() < result_max).then_some(out)
}

/// The positions seen, in one chain for each list, the latest first.
struct History {
    /// The latest position of each list, plus one; 0 for none.
    heads: Vec<usize>,
    /// For each of the last [`HISTORY_SIZE`] positions the one before it in its list, plus one.
    next: Vec<usize>,
    /// By how many percent the length of a good match falls with each candidate.
    drop: usize,
}

impl History {
    fn list(&self, src: &[u8], at: usize) -> usize {
        let list = match src[at..].first_chunk::<4>() {
            Some(&[a, b, c, d]) => wide(a) << 6 ^ wide(b) << 4 ^ wide(c) << 2 ^ wide(d),
            None => wide(src[at]),
        };
        list as usize & (self.heads.len() - 1)
    }

    fn add(&mut self, src: &[u8], at: usize) {
        let list = self.list(src, at);
        self.next[at % HISTORY_SIZE] = self.heads[list];
        self.heads[list] = at + 1;
    }

    /// The length and offset of the match for `at` (`pglz_find_match`).
    fn find(&self, src: &[u8], at: usize) -> Option<(usize, usize)> {
        let mut good_match = 128;
        let mut best = 0;
        let mut offset = 0;
        let max = MAX_MATCH.min(src.len() - at);
        let mut entry = self.heads[self.list(src, at)];
        while entry > 0 && at - (entry - 1) < MAX_OFFSET {
            let from = entry - 1;
            let equal = src[from..].iter().zip(&src[at..at + max]).take_while(|(a, b)| a == b);
            let len = equal.count();
            if len > best {
                (best, offset) = (len, at - from);
            }
            if best >= good_match {
                break;
            }
            good_match -= good_match * self.drop / 100;
            entry = self.next[from % HISTORY_SIZE];
        }
        (best > 2).then_some((best, offset))
    }
}

/// A byte as C's plain `char`, which is signed on the platforms that decided what is on disk.
fn wide(byte: u8) -> i32 {
    i32::from(byte.cast_signed())
}
