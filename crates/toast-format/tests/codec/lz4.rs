//! lz4 against the system's liblz4, where it is installed.

use crate::corpora::Seeded;
use crate::inputs;
use crate::oracle::Lz4;
use toast_format::codec::lz4;

/// Blocks of one are read by the other, whole and in part, and damaged ones are taken by both or
/// by neither, but for a value cut short, which liblz4 returns.
#[test]
fn lz4_reads_what_liblz4_writes_and_the_other_way_round() {
    let Some(c) = Lz4::load() else {
        eprintln!("no liblz4.so.1: nothing to compare with");
        return;
    };
    let mut compressor = lz4::Compressor::new();
    let mut c_out = Vec::new();
    let mut taken = 0;
    let mut refused = 0;
    for number in 0..20_000 {
        let raw = inputs::input(number);
        let size = c.compress(&raw, &mut c_out);
        let theirs = &c_out[..size];
        let mut back = vec![0; raw.len()];
        lz4::decompress(theirs, &mut back).unwrap();
        assert!(back == raw, "input {number}");

        let prefix = Seeded::new(number).below(raw.len() + 10);
        let mut part = vec![0; prefix];
        let got = lz4::decompress_prefix(theirs, &mut part).unwrap();
        assert_eq!(got, prefix.min(raw.len()), "input {number}");
        assert!(part[..got] == raw[..got], "input {number}");
        let mut c_part = vec![0; prefix];
        let c_got = c.decompress_prefix(theirs, &mut c_part);
        assert_eq!(c_got, Some(got), "input {number}, prefix {prefix}");

        let ours = compressor.compress(&raw);
        back.fill(0);
        assert_eq!(c.decompress(ours, &mut back), Some(raw.len()), "input {number}");
        assert!(back == raw, "input {number}");

        let damaged = inputs::damaged(theirs, number);
        let mut c_back = vec![0; raw.len()];
        if lz4::decompress(&damaged, &mut back).is_ok() {
            taken += 1;
            if c.decompress(&damaged, &mut c_back) == Some(raw.len()) {
                assert!(back == c_back, "input {number}");
            }
        } else {
            refused += 1;
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}

/// What `advise-threshold` may say of lz4 sizes without asking a server.
#[test]
fn lz4_sizes_are_close_to_those_of_liblz4() {
    let Some(c) = Lz4::load() else {
        eprintln!("no liblz4.so.1: nothing to compare with");
        return;
    };
    let mut compressor = lz4::Compressor::new();
    let mut c_out = Vec::new();
    for kind in [0, 1, 12, 13, 14] {
        let mut ours = 0;
        let mut theirs = 0;
        for number in (0..4000).filter(|number| number % 16 == kind) {
            let raw = inputs::input(number);
            ours += compressor.compress(&raw).len();
            theirs += c.compress(&raw, &mut c_out);
        }
        let ratio = ours as f64 / theirs as f64;
        assert!((0.97..1.03).contains(&ratio), "inputs {kind}: {ours} against {theirs}");
    }
}
