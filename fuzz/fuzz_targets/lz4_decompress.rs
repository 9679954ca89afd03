//! Any bytes as an LZ4 block: an error or a value of the right length, and a prefix of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toast_format::codec::{Method, datum};

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (raw_size, prefix, stream) = (usize::from(input.0), usize::from(input.1), input.2);
    let whole = datum::decompress(Method::Lz4, raw_size, stream);
    let part = datum::decompress_prefix(Method::Lz4, prefix, stream);
    if let Ok(raw) = whole {
        assert_eq!(raw.len(), raw_size);
        let part = part.unwrap();
        assert!(part[..raw_size.min(prefix)] == raw[..raw_size.min(prefix)]);
    } else if let Ok(part) = part {
        assert!(part.len() <= prefix);
    }
});
