//! Any bytes as a pglz stream: the fast decoder does what the safe one does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toast_format::codec::pglz::{self, plain};

fuzz_target!(|input: (u16, &[u8])| {
    let (len, stream) = (usize::from(input.0), input.1);
    let (mut fast, mut safe) = (vec![0; len], vec![0; len]);
    let expected = plain::decompress_prefix(stream, &mut safe);
    let got = pglz::decompress_prefix(stream, &mut fast);
    assert_eq!(got, expected);
    if let Ok(got) = got {
        assert!(fast[..got] == safe[..got]);
    }
    assert_eq!(pglz::decompress(stream, &mut fast), plain::decompress(stream, &mut safe));
});
