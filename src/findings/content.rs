//! The contents of values (pure): whether they are in a compressed format, whether the column's method would compress
//! them, what the other method would do to them, and last chunks that are nearly empty.

use toast_format::codec::Method;
use toast_format::codec::datum::{self, Compressor};
use toast_format::disk::PageSize;
use toast_format::disk::varlena::TCINFO_SIZE;
use toast_format::model::Interval;

/// Longer values are not compressed to find out.
pub(crate) const LONGEST: u64 = 256 << 10;
/// Compression that leaves more than this part changes too little to tell what the column was set to.
const SAVES: f64 = 0.95;

/// The first bytes of compressed formats, each with its offset.
const FORMATS: [(usize, &[u8]); 15] = [
    (0, b"\xff\xd8\xff"),       // JPEG
    (0, b"\x89PNG\r\n\x1a\n"),  // PNG
    (0, b"GIF8"),               // GIF
    (8, b"WEBP"),               // WebP, in RIFF
    (4, b"ftyp"),               // MP4, HEIC, AVIF
    (0, b"OggS"),               // Ogg
    (0, b"ID3"),                // MP3
    (0, b"\x1f\x8b\x08"),       // gzip (RFC 1952)
    (0, b"PK\x03\x04"),         // zip, and so Office documents
    (0, b"\x28\xb5\x2f\xfd"),   // zstd (RFC 8878)
    (0, b"\xfd7zXZ\x00"),       // xz
    (4, b"1AY&SY"),             // bzip2, behind BZh and a digit
    (0, b"7z\xbc\xaf\x27\x1c"), // 7-Zip
    (0, b"\x04\x22\x4d\x18"),   // lz4 frame
    (0, b"\x78\x9c"),           // zlib (RFC 1950), as most write it
];

/// Whether a value that begins like this is in a compressed format.
pub(crate) fn is_compressed(first: &[u8]) -> bool {
    FORMATS.iter().any(|&(at, magic)| first.get(at..).is_some_and(|rest| rest.starts_with(magic)))
}

/// The bytes that the server would save if it stored the value compressed; 0 unless it is clearly shorter then, also in
/// chunks.
pub(crate) fn savings(
    compressor: &mut Compressor,
    method: Method,
    raw: &[u8],
    page: PageSize,
) -> usize {
    let Some(stream) = compressor.compress(method, raw) else { return 0 };
    let stored = stream.len() + datum::COMPRESSED_HEADER;
    let takes_fewer_chunks = chunks(page, stored) < chunks(page, raw.len());
    if takes_fewer_chunks && stored as f64 <= raw.len() as f64 * SAVES {
        raw.len() - stored
    } else {
        0
    }
}

fn chunks(page: PageSize, bytes: usize) -> u32 {
    page.chunks(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Values of a column, in rows and out of line each, that both compression methods are tried on.
const TRIED: usize = 8;

/// Some of these items, spread evenly over them: few enough to compress them.
pub(crate) fn few_to_try<T>(items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().step_by(items.len().div_ceil(TRIED).max(1))
}

/// What both compression methods make of some values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MethodTrial {
    pub(crate) values: u64,
    /// Bytes that the server would store with its default method, and with the other one.
    pub(crate) default_bytes: u64,
    pub(crate) other_bytes: u64,
}

impl MethodTrial {
    /// Tries both methods on a value.
    pub(crate) fn add(&mut self, compressor: &mut Compressor, default: Method, raw: &[u8]) {
        self.values += 1;
        self.default_bytes += stored_bytes(compressor, default, raw);
        self.other_bytes += stored_bytes(compressor, default.other(), raw);
    }
}

/// The bytes that the server stores of a value that it tries to compress.
fn stored_bytes(compressor: &mut Compressor, method: Method, raw: &[u8]) -> u64 {
    let stream = compressor.compress(method, raw);
    stream.map_or(raw.len(), |stream| stream.len() + datum::COMPRESSED_HEADER) as u64
}

/// A fraction of the bytes of some values, of which a sample was examined: each value with its bytes, and whether it
/// counts. The interval is Wilson's, with as many values as weigh alike (Kish).
pub(crate) fn part(sample: impl Iterator<Item = (u64, bool)>) -> Option<Interval> {
    const Z: f64 = 1.959_964;
    let mut sum = 0.0;
    let mut squares = 0.0;
    let mut counting = 0.0;
    for (bytes, counts) in sample {
        let bytes = bytes as f64;
        sum += bytes;
        squares += bytes * bytes;
        counting += if counts { bytes } else { 0.0 };
    }
    if sum <= 0.0 {
        return None;
    }
    let part = counting / sum;
    let n = sum * sum / squares;
    let middle = (part + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (part * (1.0 - part) / n + Z * Z / (4.0 * n * n)).sqrt();
    let low = (middle - half).max(0.0);
    let high = (middle + half).min(1.0);
    Some(Interval { estimate: part, low: low.min(part), high: high.max(part) })
}

/// A last chunk is nearly empty if less than one part in ten of it is filled.
const SHORT: u64 = 10;
/// A value compressed with lz4 may be longer or shorter than ours, because the server's library differs: by one part in
/// 64 of its length.
const LZ4_DOUBT: u64 = 64;

/// Whether the last chunk of a value of `stored` bytes is nearly empty, and is not the only one.
pub(crate) fn is_short(page: PageSize, stored: u64) -> bool {
    let chunk = u64::from(page.toast_max_chunk_size());
    stored > chunk && (1..chunk / SHORT).contains(&(stored % chunk))
}

/// Whether a value that takes `stored` bytes now would surely take fewer chunks if it were compressed with this method,
/// and would not leave the last one nearly empty.
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

/// Whether `then` bytes, give or take `doubt`, take fewer chunks than `now` bytes and fill the last one.
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

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        for first in [
            b"\xff\xd8\xff\xe0\x00\x10JFIF".as_slice(),
            b"\x89PNG\r\n\x1a\n\x00",
            b"RIFF\x10\x00\x00\x00WEBPVP8 ",
            b"\x00\x00\x00\x20ftypisom",
            b"\x1f\x8b\x08\x00",
            b"BZh91AY&SY",
        ] {
            assert!(is_compressed(first), "{first:?}");
        }
        for first in
            [b"".as_slice(), b"{\"a\": 1}", b"\x1f\x8b", b"%PDF-1.7", b"RIFF\x10\x00\x00\x00WAVE"]
        {
            assert!(!is_compressed(first), "{first:?}");
        }
    }

    #[test]
    fn only_what_gets_clearly_shorter_would_be_compressed() {
        let mut compressor = Compressor::new();
        let mut would = |raw: &[u8]| {
            [Method::Pglz, Method::Lz4]
                .map(|method| savings(&mut compressor, method, raw, PageSize::DEFAULT))
        };
        let saved = would(&b"to and fro, ".repeat(500));
        assert!(saved.iter().all(|saved| (5800..6000).contains(saved)), "{saved:?}");
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(6000)
        .collect();
        assert_eq!(would(&noise), [0; 2]);
        // shorter, but in as many chunks
        assert_eq!(would(&b"x".repeat(1900)), [0; 2]);
    }

    #[test]
    fn both_methods_are_tried_on_a_few_values_of_all() {
        let mut compressor = Compressor::new();
        let mut trial = MethodTrial::default();
        let text: Vec<u8> =
            (0..900u32).flat_map(|i| format!("{} ", i * i % 97).into_bytes()).collect();
        trial.add(&mut compressor, Method::Pglz, &text);
        let MethodTrial { values, default_bytes, other_bytes } = trial;
        assert!(values == 1 && default_bytes < text.len() as u64 && default_bytes != other_bytes);
        let mut reverse = MethodTrial::default();
        reverse.add(&mut compressor, Method::Lz4, &text);
        assert_eq!((reverse.default_bytes, reverse.other_bytes), (other_bytes, default_bytes));
        // a value that neither method compresses is stored uncompressed
        let before = trial;
        trial.add(&mut compressor, Method::Pglz, b"0123456789");
        assert_eq!(trial.default_bytes - before.default_bytes, 10);
        assert_eq!((trial.values, trial.other_bytes - before.other_bytes), (2, 10));
        for items in [0, 1, 7, 8, 9, 127usize] {
            let all: Vec<usize> = (0..items).collect();
            let some = few_to_try(&all).count();
            assert!(some <= TRIED && some >= items.min(TRIED / 2), "{some} of {items}");
        }
    }

    #[test]
    fn parts_of_few_values_are_uncertain() {
        assert_eq!(part(std::iter::empty()), None);
        let alike = |n: usize| part((0..n).map(|_| (3000, true))).unwrap();
        assert!(alike(64).low > 0.9 && alike(64).high > 0.999);
        assert!(alike(2).low < 0.4);
        // one that outweighs the others counts as one
        let uneven = part([(1_000_000, true), (10, true), (10, true)].into_iter()).unwrap();
        assert!(uneven.low < 0.25, "{uneven:?}");
        let none = part((0..64).map(|_| (3000, false))).unwrap();
        assert!(none.low == 0.0 && none.estimate == 0.0 && none.high < 0.07);
    }

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
