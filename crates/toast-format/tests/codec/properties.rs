//! The fast code against its safe twin on whatever proptest comes up with.

use proptest::prelude::*;
use toast_format::codec::pglz::{self, Compressor, Strategy as Pglz, plain};
use toast_format::codec::{Method, datum};

use crate::reference;

/// Values with something to compress: pieces over and over, few different bytes.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..20),
        prop::collection::vec(prop::sample::select(vec![0, 1, 0x7f, 0x80, 0xff]), 1..40),
        "[a-e ]{1,30}".prop_map(String::into_bytes),
    ];
    let repeated = (piece, 1..60usize).prop_map(|(piece, count)| piece.repeat(count));
    prop::collection::vec(repeated, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn fast_compression_is_plain_compression(
        raws in prop::collection::vec(values(), 1..4),
        strategy in prop_oneof![Just(Pglz::DEFAULT), Just(Pglz::ALWAYS)],
    ) {
        let mut compressor = Compressor::new();
        for raw in raws {
            let expected = reference::compress(&raw, &strategy);
            prop_assert_eq!(compressor.compress(&raw, &strategy), expected.as_deref());
        }
    }

    #[test]
    fn fast_decompression_is_plain_decompression(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        len in 0..3000usize,
    ) {
        let mut fast = vec![0; len];
let mut safe = vec![0; len];
        let expected = plain::decompress_prefix(&stream, &mut safe);
        let got = pglz::decompress_prefix(&stream, &mut fast);
        prop_assert_eq!(&got, &expected);
        if let Ok(got) = got {
            prop_assert_eq!(&fast[..got], &safe[..got]);
        }
        let expected = plain::decompress(&stream, &mut safe);
        prop_assert_eq!(pglz::decompress(&stream, &mut fast), expected);
    }

    #[test]
    fn values_come_back(raw in values(), len in 0..2000usize) {
        let mut compressor = datum::Compressor::new();
        for method in [Method::Pglz, Method::Lz4] {
            let Some(stream) = compressor.compress(method, &raw) else { continue };
            prop_assert!(datum::is_worthwhile(raw.len(), stream.len()));
            let whole = datum::decompress(method, raw.len(), stream);
            prop_assert_eq!(whole.as_ref(), Ok(&raw));
            let prefix = datum::decompress_prefix(method, len, stream);
            prop_assert_eq!(prefix.as_deref(), Ok(&raw[..len.min(raw.len())]));
        }
    }

    #[test]
    fn random_bytes_never_panic(
        stream in prop::collection::vec(any::<u8>(), 0..200),
        raw_size in 0..20_000usize,
    ) {
        for method in [Method::Pglz, Method::Lz4] {
            if let Ok(raw) = datum::decompress(method, raw_size, &stream) {
                prop_assert_eq!(raw.len(), raw_size);
            }
            if let Ok(raw) = datum::decompress_prefix(method, raw_size, &stream) {
                prop_assert!(raw.len() <= raw_size);
            }
        }
    }
}
