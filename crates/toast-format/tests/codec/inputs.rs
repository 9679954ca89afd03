//! Inputs of all kinds, each made from its number alone.

use crate::corpora::{self, Seeded};

/// Sizes where something changes: the smallest input, the number of history lists, the window, the
/// bytes that a refusal waits for.
const EDGES: [usize; 16] = [0, 1, 2, 3, 4, 31, 32, 33, 127, 128, 256, 512, 1024, 4095, 4096, 8192];

/// Most inputs are short, as most steps of the codecs show in short ones.
fn size(rng: &mut Seeded) -> usize {
    match rng.below(16) {
        0..3 => EDGES[rng.below(EDGES.len())] + rng.below(3),
        3..12 => rng.below(700),
        12..15 => rng.below(3000),
        _ => rng.below(12_000),
    }
}

/// The input of this number.
pub(crate) fn input(number: u64) -> Vec<u8> {
    let mut rng = Seeded::new(number);
    let len = size(&mut rng);
    of_kind(number % 16, &mut rng, len)
}

/// A large input, up to 1 MB.
pub(crate) fn large_input(number: u64) -> Vec<u8> {
    let mut rng = Seeded::new(!number);
    let len = 20_000 + rng.below(1_028_577);
    of_kind(number % 16, &mut rng, len)
}

fn of_kind(kind: u64, rng: &mut Seeded, len: usize) -> Vec<u8> {
    let seed = rng.next();
    match kind {
        0 => corpora::english(seed, len),
        1 => corpora::json(seed, len),
        2 => rng.bytes(len),
        3 => vec![rng.below(3) as u8 * 127; len],
        4 | 5 => {
            let period = 1 + rng.skewed(5000);
            rng.bytes(period).into_iter().cycle().take(len).collect()
        }
        6 => at_window_edge(rng, len),
        7 => {
            let first = rng.below(1400).min(len);
            let mut bytes = rng.bytes(first);
            bytes.extend(corpora::english(seed, len - first));
            bytes
        }
        8 => small_alphabet(rng, len, 2),
        9 => {
            let count = 3 + rng.below(6);
            small_alphabet(rng, len, count)
        }
        10 => copied(rng, len, 300),
        11 => copied(rng, len, 20),
        12 => corpora::hex_and_words(seed, len),
        13 => corpora::small_arrays(seed, len),
        14 => corpora::jsonb(seed, len),
        _ => {
            // Zeros, now and then something else.
            let mut bytes = vec![0; len];
            for _ in 0..len / 50 {
                let at = rng.below(len);
                bytes[at] = rng.next() as u8;
            }
            bytes
        }
    }
}

/// The same bytes again at just the distance where a match can no longer be coded.
fn at_window_edge(rng: &mut Seeded, len: usize) -> Vec<u8> {
    let distance = 4090 + rng.below(10);
    let mut bytes = rng.bytes(len.max(distance + 300));
    while bytes.len() < distance + 2 * len {
        bytes.extend_from_within(bytes.len() - distance..bytes.len() - distance + 280);
        let between = rng.below(12);
        bytes.extend(rng.bytes(between));
    }
    bytes.truncate(len.max(distance + 300));
    bytes
}

fn small_alphabet(rng: &mut Seeded, len: usize, count: usize) -> Vec<u8> {
    // From the upper half too, where C's char is negative.
    let alphabet = rng.bytes(count);
    (0..len).map(|_| alphabet[rng.below(count)]).collect()
}

/// Pieces of what came before, at any distance, with some new bytes between them.
fn copied(rng: &mut Seeded, len: usize, longest: usize) -> Vec<u8> {
    let mut bytes = rng.bytes(8);
    while bytes.len() < len {
        let new = rng.below(6);
        bytes.extend(rng.bytes(new));
        let distance = 1 + rng.skewed(bytes.len().min(5000));
        for _ in 0..3 + rng.skewed(longest) {
            bytes.push(bytes[bytes.len() - distance.min(bytes.len())]);
        }
    }
    bytes.truncate(len);
    bytes
}

/// `stream` with one to three bytes changed, inserted or left out.
pub(crate) fn damaged(stream: &[u8], number: u64) -> Vec<u8> {
    let mut rng = Seeded::new(number ^ 0xda3a);
    let mut bytes = stream.to_vec();
    for _ in 0..1 + rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next() as u8),
            2 => bytes[at] ^= 1 << rng.below(8),
            _ => bytes[at] = rng.next() as u8,
        }
    }
    bytes
}
