//! pglz against C's: every input gives the same bytes or the same refusal, every stream, sound or
//! damaged, the same value or an error in both.
//!
//! Where PostgreSQL's library is not installed, `fixtures/pglz/vectors.tsv` stands for it: length and
//! MD5 of what it made of the first inputs. `TOASTCTL_RECORD_VECTORS=1` writes that file anew.

use crate::corpora::Seeded;
use crate::inputs;
use crate::oracle::Pglz;
use crate::reference;
use md5::{Digest, Md5};
use std::fmt::Write;
use toast_format::codec::pglz::{self, Compressor, Strategy, plain};

const INPUTS: u64 = 110_000;
const LARGE_INPUTS: u64 = 96;
const RECORDED: u64 = 4096;
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pglz/vectors.tsv");

/// Both implementations, and buffers for them.
struct Both {
    c: Pglz,
    c_out: Vec<u8>,
    ours: Compressor,
}

impl Both {
    fn new() -> Option<Both> {
        Some(Both { c: Pglz::load()?, c_out: Vec::new(), ours: Compressor::new() })
    }

    /// Compresses with both and returns what came of it.
    fn compress(&mut self, raw: &[u8], strategy: &Strategy, number: u64) -> Option<Vec<u8>> {
        let size = self.c.compress(raw, &mut self.c_out, strategy);
        let expected = size.map(|size| &self.c_out[..size]);
        let got = self.ours.compress(raw, strategy);
        assert!(got == expected, "input {number}, {} bytes, {strategy:?}", raw.len());
        got.map(<[u8]>::to_vec)
    }

    /// Decompresses `stream` to `len` bytes with both, and says whether that succeeded.
    fn decompress(&self, stream: &[u8], len: usize, complete: bool, number: u64) -> Option<usize> {
        let mut expected = vec![1; len];
        let mut got = vec![2; len];
        let mut safe = vec![3; len];
        let size = self.c.decompress(stream, &mut expected, complete);
        let (got_size, safe_size) = if complete {
            let whole = |()| len;
            (
                pglz::decompress(stream, &mut got).map(whole),
                plain::decompress(stream, &mut safe).map(whole),
            )
        } else {
            (pglz::decompress_prefix(stream, &mut got), plain::decompress_prefix(stream, &mut safe))
        };
        assert_eq!(got_size, safe_size, "input {number} to {len} bytes, complete {complete}");
        assert_eq!(got_size.ok(), size, "input {number} to {len} bytes, complete {complete}");
        if let Some(size) = size {
            assert!(got[..size] == expected[..size], "input {number} to {len} bytes");
            assert!(safe[..size] == expected[..size], "input {number} to {len} bytes");
        }
        size
    }

    /// Everything that is asked of one input.
    fn compare(&mut self, raw: &[u8], number: u64) -> Seen {
        let mut seen = Seen::default();
        for strategy in &[Strategy::DEFAULT, Strategy::ALWAYS] {
            let Some(stream) = self.compress(raw, strategy, number) else {
                seen.refused += 1;
                continue;
            };
            seen.compressed += 1;
            assert_eq!(self.decompress(&stream, raw.len(), true, number), Some(raw.len()));
            let mut rng = Seeded::new(number ^ 0x11ce);
            let prefix = rng.below(raw.len() + 20);
            let cut = pglz::maximum_compressed_size(prefix, stream.len());
            assert_eq!(cut, self.c.maximum_compressed_size(prefix, stream.len()));
            let got = self.decompress(&stream[..cut], prefix, false, number);
            assert_eq!(got, Some(prefix.min(raw.len())), "input {number}, prefix {prefix}");
            for round in 0..2 {
                let damaged = inputs::damaged(&stream, number ^ round << 40);
                for complete in [true, false] {
                    match self.decompress(&damaged, raw.len(), complete, number) {
                        Some(_) => seen.damaged_taken += 1,
                        None => seen.damaged_refused += 1,
                    }
                }
            }
            if number.is_multiple_of(16) {
                let safe = reference::compress(raw, strategy);
                assert!(safe.as_deref() == Some(&stream), "input {number}, {strategy:?}");
            }
        }
        seen
    }
}

/// How often each thing happened: a test in which one never does would show little.
#[derive(Debug, Default)]
struct Seen {
    compressed: u64,
    refused: u64,
    damaged_taken: u64,
    damaged_refused: u64,
}

impl Seen {
    fn add(&mut self, more: &Seen) {
        self.compressed += more.compressed;
        self.refused += more.refused;
        self.damaged_taken += more.damaged_taken;
        self.damaged_refused += more.damaged_refused;
    }
}

/// Compares one of so many inputs, from this one on.
fn compare_each(mut both: Both, first: usize, step: usize) -> Seen {
    let mut all = Seen::default();
    for number in (first as u64..INPUTS).step_by(step) {
        all.add(&both.compare(&inputs::input(number), number));
    }
    for number in (first as u64..LARGE_INPUTS).step_by(step) {
        all.add(&both.compare(&inputs::large_input(number), number));
    }
    all
}

#[test]
fn pglz_does_what_c_does() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // C's history is static: each thread has a library of its own
    let loaded: Option<Vec<Both>> = (0..threads).map(|_| Both::new()).collect();
    let Some(loaded) = loaded else {
        eprintln!("not run: no libpgcommon_shlib.a; compared with the recorded vectors only");
        let everything = std::env::var_os("TOASTCTL_TEST_EVERYTHING").is_some();
        assert!(!everything, "no libpgcommon_shlib.a, or it could not be linked");
        return;
    };
    let parts = std::thread::scope(|scope| {
        let parts: Vec<_> = loaded
            .into_iter()
            .enumerate()
            .map(|(first, both)| scope.spawn(move || compare_each(both, first, threads)))
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<Seen>>()
    });
    let mut all = Seen::default();
    for seen in &parts {
        all.add(seen);
    }
    assert!(all.compressed > INPUTS && all.refused > INPUTS / 2, "{all:?}");
    assert!(all.damaged_taken > INPUTS / 4 && all.damaged_refused > INPUTS, "{all:?}");
}

/// Length and MD5 of a result, or a dash for a refusal.
fn outcome(result: Option<&[u8]>) -> String {
    let Some(stream) = result else {
        return "-".to_owned();
    };
    let mut text = format!("{} ", stream.len());
    for byte in Md5::digest(stream) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn pglz_does_what_c_was_seen_to_do() {
    if std::env::var_os("TOASTCTL_RECORD_VECTORS").is_some() {
        record();
    }
    let vectors = std::fs::read_to_string(VECTORS).unwrap();
    let mut compressor = Compressor::new();
    let mut lines = 0;
    for line in vectors.lines().filter(|line| !line.starts_with('#')) {
        let [number, default, always]: [&str; 3] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let number: u64 = number.parse().unwrap();
        let raw = inputs::input(number);
        for (strategy, expected) in [(Strategy::DEFAULT, default), (Strategy::ALWAYS, always)] {
            let got = compressor.compress(&raw, &strategy);
            assert_eq!(outcome(got), expected, "input {number}, {strategy:?}");
            let Some(stream) = got else { continue };
            let mut back = vec![0; raw.len()];
            pglz::decompress(stream, &mut back).unwrap();
            assert!(back == raw, "input {number}, {strategy:?}");
        }
        lines += 1;
    }
    assert_eq!(lines, RECORDED);
}

/// Writes the vectors as C's pglz makes them.
fn record() {
    let mut c = Pglz::load().expect("libpgcommon_shlib.a, to record what it does");
    let mut text = format!(
        "# length and MD5 of what pglz_compress of {} makes of the inputs of tests/codec\n\
         # input, default strategy, strategy always\n",
        c.version
    );
    let mut out = Vec::new();
    for number in 0..RECORDED {
        let raw = inputs::input(number);
        let mut compress = |strategy| {
            let size = c.compress(&raw, &mut out, strategy);
            outcome(size.map(|size| &out[..size]))
        };
        let default = compress(&Strategy::DEFAULT);
        let always = compress(&Strategy::ALWAYS);
        writeln!(text, "{number}\t{default}\t{always}").unwrap();
    }
    std::fs::write(VECTORS, text).unwrap();
}
