//! Decompression of what a `va_tcinfo` word describes.

use crate::codec::datum;
use crate::disk::varlena::{tc_method, tc_raw_size};

/// Decompresses `stream` as `tc_info` says: to exactly that size, by that method. Allocates nothing
/// if the stream cannot hold so much.
///
/// The error says what is wrong with the data.
pub fn inflate(tc_info: u32, stream: &[u8]) -> Result<Vec<u8>, String> {
    let method = tc_method(tc_info)
        .ok_or_else(|| format!("unknown compression method {}", tc_info >> 30))?;
    datum::decompress(method, tc_raw_size(tc_info) as usize, stream)
        .map_err(|error| error.to_string())
}
