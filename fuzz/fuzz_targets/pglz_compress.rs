//! Any value: the fast compressor does what the safe one does, and the value comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toast_format::codec::pglz::{self, Compressor, Strategy, plain};

fuzz_target!(|raws: Vec<Vec<u8>>| {
    let mut compressor = Compressor::new();
    for raw in raws {
        for strategy in [Strategy::DEFAULT, Strategy::ALWAYS] {
            let expected = plain::compress(&raw, &strategy);
            let got = compressor.compress(&raw, &strategy);
            assert_eq!(got, expected.as_deref());
            if let Some(stream) = got {
                let mut back = vec![0; raw.len()];
                pglz::decompress(stream, &mut back).unwrap();
                assert!(back == raw);
            }
        }
    }
});
