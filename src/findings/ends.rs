//! Last chunks that are nearly empty (pure).

use crate::codec::Method;
use crate::codec::datum::Compressor;
use crate::disk::layout::PageSize;
use crate::disk::varlena::TCINFO_SIZE;

/// A last chunk filled to less than one part in so many is nearly empty.
const SHORT: u64 = 10;
/// The part of its length that a value compressed with lz4 may differ by between servers' libraries and ours:
/// one in so many.
const LZ4_DOUBT: u64 = 64;

/// Whether the last chunk of so many stored bytes is nearly empty, and not the only one.
pub(crate) fn is_short(page: PageSize, stored: u64) -> bool {
    let chunk = u64::from(page.toast_max_chunk_size());
    stored > chunk && (1..chunk / SHORT).contains(&(stored % chunk))
}

/// Whether a value that takes so many bytes now would surely take fewer chunks, the last of them not nearly empty,
/// if it were compressed so.
pub(crate) fn is_mended_by(
    compressor: &mut Compressor,
    method: Method,
    raw: &[u8],
    stored: u64,
    page: PageSize,
) -> bool {
    let Some(stream) = compressor.compress(method, raw) else { return false };
    let then = stream.len() as u64 + u64::from(TCINFO_SIZE);
    let doubt = match method {
        Method::Pglz => 0,
        Method::Lz4 => then / LZ4_DOUBT,
    };
    is_surely_better(page, stored, then, doubt)
}

/// Whether so many bytes, or a few more or less, take fewer chunks and fill the last.
fn is_surely_better(page: PageSize, now: u64, then: u64, doubt: u64) -> bool {
    let chunk = u64::from(page.toast_max_chunk_size());
    let fewer = (then + doubt).div_ceil(chunk) < now.div_ceil(chunk);
    let last = then % chunk;
    let fills = then + doubt <= chunk || (last >= chunk / SHORT + doubt && last + doubt <= chunk);
    fewer && fills
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSize = PageSize::DEFAULT;

    #[test]
    fn less_than_a_tenth_of_a_further_chunk_is_short() {
        let short = |stored| is_short(PAGE, stored);
        assert_eq!([1, 100, 1996].map(short), [false; 3]);
        assert_eq!([1997, 2194, 3993, 1996 * 9 + 1].map(short), [true; 4]);
        assert_eq!([2195, 2196, 3992, 5988].map(short), [false; 4]);
    }

    #[test]
    fn better_is_what_is_better_in_doubt_too() {
        let better = |then, doubt| is_surely_better(PAGE, 4000, then, doubt);
        // one chunk, or a place in the row
        assert!(better(300, 0) && better(1900, 30));
        assert!(!better(1990, 30), "may come to two, of which one is nearly empty");
        assert!(better(2300, 0) && better(3900, 60));
        assert!(!better(2100, 0) && !better(2210, 30), "nearly empty again");
        assert!(!better(3993, 0), "as many chunks");
    }

    #[test]
    fn what_does_not_compress_is_not_mended() {
        let mut compressor = Compressor::new();
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(4000)
        .collect();
        let text = b"to and fro, ".repeat(334);
        for method in [Method::Pglz, Method::Lz4] {
            assert!(!is_mended_by(&mut compressor, method, &noise, 4000, PAGE));
            assert!(is_mended_by(&mut compressor, method, &text, 4008, PAGE));
        }
    }
}
