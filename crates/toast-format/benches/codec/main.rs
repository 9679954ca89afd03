//! How fast the codecs are next to C's, on the same values in the same run.
//!
//! `scripts/bench codec` runs this and keeps what it prints in `benches/RESULTS.md`. Each value is
//! compressed and decompressed by both sides in turn, so that what else the machine does strikes
//! both; of all rounds the best of each side counts, and only ratios are printed.

#[allow(dead_code, reason = "the tests ask for more")]
mod corpora;
#[allow(dead_code, reason = "the tests ask for more")]
mod oracle;

use oracle::{Lz4, Pglz};
use std::hint::black_box;
use std::time::{Duration, Instant};
use toast_format::codec::lz4;
use toast_format::codec::pglz::{self, Strategy};

/// How much of each corpus is used, in bytes; "whole" is one value of this size.
const WHOLE: usize = 1 << 20;
const SIZES: [usize; 4] = [2048, 8192, 65_536, WHOLE];
/// The best of this many rounds counts.
const ROUNDS: usize = 25;

/// The figures of one corpus at one size: times of C divided by ours.
struct Row {
    corpus: &'static str,
    size: usize,
    /// Raw bytes by compressed bytes, pglz.
    compression: f64,
    decompress: f64,
    compress: f64,
    /// Time of liblz4 divided by ours for lz4, then for pglz.
    lz4_decompress: f64,
    lz4_compress: f64,
    pglz_by_lz4_decompress: f64,
}

fn main() {
    // Cargo passes --bench; any other argument would be a test filter, and is ignored.
    let (Some(mut c), Some(c_lz4)) = (Pglz::load(), Lz4::load()) else {
        eprintln!(
            "the benchmark needs libpgcommon_shlib.a (package postgresql-server-dev), cc and \
             liblz4.so.1"
        );
        std::process::exit(1);
    };
    let rows: Vec<Row> = corpora()
        .iter()
        .flat_map(|(name, data)| SIZES.map(|size| (*name, &data[..], size)))
        .map(|(name, data, size)| measure(&mut c, &c_lz4, name, data, size))
        .collect();
    print_heading(&c, &c_lz4);
    print_rows(&rows);
    print_means(&rows);
}

/// Six corpora, and zeros, on which C is at its best.
fn corpora() -> Vec<(&'static str, Vec<u8>)> {
    let mut executable = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    executable.truncate(WHOLE);
    vec![
        ("JSON documents", corpora::json(1, WHOLE)),
        ("English text", corpora::english(2, WHOLE)),
        ("hex digests and words", corpora::hex_and_words(3, WHOLE)),
        ("executable", executable),
        ("repeated small arrays", corpora::small_arrays(4, WHOLE)),
        ("jsonb binary", corpora::jsonb(5, WHOLE)),
        ("zeros", vec![0; WHOLE]),
    ]
}

/// The best time of each of several things, done in turn.
fn best<const N: usize>(mut things: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (thing, best) in things.iter_mut().zip(&mut best) {
            let start = Instant::now();
            thing();
            *best = start.elapsed().min(*best);
        }
    }
    best.map(|time| time.as_secs_f64())
}

/// A value's raw size and its compressed form.
type Packed = Vec<(usize, Vec<u8>)>;

fn measure(c: &mut Pglz, c_lz4: &Lz4, corpus: &'static str, data: &[u8], size: usize) -> Row {
    let values: Vec<&[u8]> = data.chunks_exact(size.min(data.len())).collect();
    let mut ours = pglz::Compressor::new();
    let mut ours_lz4 = lz4::Compressor::new();
    let mut out = Vec::new();
    let mut lz4_out = Vec::new();
    // What the default strategy refuses is decompressed too, so that all corpora count.
    let packed: Packed = values
        .iter()
        .filter_map(|raw| Some((raw.len(), ours.compress(raw, &Strategy::ALWAYS)?.to_vec())))
        .collect();
    let packed_lz4: Packed =
        values.iter().map(|raw| (raw.len(), ours_lz4.compress(raw).to_vec())).collect();

    let [c_compress, compress, c_lz4_compress, lz4_compress] = best([
        &mut || {
            for raw in &values {
                black_box(c.compress(raw, &mut out, &Strategy::DEFAULT));
            }
        },
        &mut || {
            for raw in &values {
                black_box(ours.compress(raw, &Strategy::DEFAULT));
            }
        },
        &mut || {
            for raw in &values {
                black_box(c_lz4.compress(raw, &mut lz4_out));
            }
        },
        &mut || {
            for raw in &values {
                black_box(ours_lz4.compress(raw));
            }
        },
    ]);
    let mut back = vec![0; size];
    let mut c_back = vec![0; size];
    let mut lz4_back = vec![0; size];
    let mut c_lz4_back = vec![0; size];
    let [c_decompress, decompress, c_lz4_decompress, lz4_decompress] = best([
        &mut || {
            for (len, stream) in &packed {
                black_box(c.decompress(stream, &mut c_back[..*len], true));
            }
        },
        &mut || {
            for (len, stream) in &packed {
                black_box(pglz::decompress(stream, &mut back[..*len]).is_ok());
            }
        },
        &mut || {
            for (len, stream) in &packed_lz4 {
                black_box(c_lz4.decompress(stream, &mut c_lz4_back[..*len]));
            }
        },
        &mut || {
            for (len, stream) in &packed_lz4 {
                black_box(lz4::decompress(stream, &mut lz4_back[..*len]).is_ok());
            }
        },
    ]);
    let raw: usize = packed.iter().map(|(len, _)| len).sum();
    let compressed: usize = packed.iter().map(|(_, stream)| stream.len()).sum();
    Row {
        corpus,
        size,
        compression: raw as f64 / compressed as f64,
        decompress: c_decompress / decompress,
        compress: c_compress / compress,
        lz4_decompress: c_lz4_decompress / lz4_decompress,
        lz4_compress: c_lz4_compress / lz4_compress,
        pglz_by_lz4_decompress: c_lz4_decompress / decompress,
    }
}

fn print_heading(c: &Pglz, c_lz4: &Lz4) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{model}, {cores} cores; {}; liblz4 {}.", c.version, c_lz4.version);
    println!();
    println!(
        "How many times as fast as C the codecs are: above 1 they are faster. pglz stands against \
         PostgreSQL's own, lz4 (`lz4_flex`, safe) against liblz4; the last column is our pglz against \
         liblz4, each on its own stream. Best of {ROUNDS} rounds in turn; values of the size given, \
         {} kB of them in all.",
        WHOLE / 1024
    );
    println!();
}

fn print_rows(rows: &[Row]) {
    println!(
        "| corpus | size | pglz ratio | pglz decompress | pglz compress | lz4 decompress | \
         lz4 compress | pglz / liblz4 decompress |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for row in rows {
        let size = match row.size {
            WHOLE => "whole".to_owned(),
            size => format!("{} kB", size / 1024),
        };
        println!(
            "| {} | {size} | {:.2} | **{:.2}** | **{:.2}** | {:.2} | {:.2} | {:.2} |",
            row.corpus,
            row.compression,
            row.decompress,
            row.compress,
            row.lz4_decompress,
            row.lz4_compress,
            row.pglz_by_lz4_decompress,
        );
    }
    println!();
}

/// Geometric means over all corpora but zeros, and the worst of all.
fn print_means(rows: &[Row]) {
    let mean = |of: fn(&Row) -> f64, size: Option<usize>| {
        let chosen = rows
            .iter()
            .filter(|row| row.corpus != "zeros" && size.is_none_or(|size| size == row.size));
        let logarithms: Vec<f64> = chosen.map(|row| of(row).ln()).collect();
        (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
    };
    let worst = |of: fn(&Row) -> f64| rows.iter().map(of).fold(f64::INFINITY, f64::min);
    println!("| geometric mean, zeros left out | pglz decompress | pglz compress |");
    println!("|---|--:|--:|");
    for (name, size) in [
        ("2 kB", Some(2048)),
        ("8 kB", Some(8192)),
        ("64 kB", Some(65_536)),
        ("whole", Some(WHOLE)),
        ("all sizes", None),
    ] {
        let decompress = mean(|row| row.decompress, size);
        let compress = mean(|row| row.compress, size);
        println!("| {name} | {decompress:.2} | {compress:.2} |");
    }
    let decompress = worst(|row| row.decompress);
    let compress = worst(|row| row.compress);
    println!("| worst of all, zeros too | {decompress:.2} | {compress:.2} |");
}
