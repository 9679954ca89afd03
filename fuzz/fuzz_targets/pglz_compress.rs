//! Any value: a compressor does what a new one does, and the value comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toast_format::codec::pglz::{self, Compressor, Strategy};

fuzz_target!(|raws: Vec<Vec<u8>>| {
    let mut compressor = Compressor::new();
    for raw in raws {
        for strategy in [Strategy::DEFAULT, Strategy::ALWAYS] {
            let mut new = Compressor::new();
            let got = compressor.compress(&raw, &strategy);
            assert_eq!(got, new.compress(&raw, &strategy));
            if let Some(stream) = got {
                let mut back = vec![0; raw.len()];
                pglz::decompress(stream, &mut back).unwrap();
                assert!(back == raw);
            }
        }
    }
});
