//! Bytes to text, piece by piece: UTF-8, or as PowerShell redirects UTF-16 with a mark.

/// A decoder that takes bytes as they come.
///
/// Bytes that are no characters become U+FFFD, which no value contains.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Known once the first three bytes are.
    encoding: Option<Encoding>,
    /// Bytes whose character is not whole yet; never more than one character of them.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Utf8,
    Utf16(fn([u8; 2]) -> u16),
}

impl Decoder {
    /// Appends the characters that are whole by now; at the text's `end` what is left of bytes too.
    pub(crate) fn decode(&mut self, bytes: &[u8], end: bool, text: &mut String) {
        let joined;
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            joined = [self.held.as_slice(), bytes].concat();
            joined.as_slice()
        };
        if self.encoding.is_none() && bytes.len() < 3 && !end {
            self.held = bytes.to_vec();
            return;
        }
        let (encoding, bytes) = match (self.encoding, bytes) {
            (Some(encoding), _) => (encoding, bytes),
            (None, [0xff, 0xfe, rest @ ..]) => (Encoding::Utf16(u16::from_le_bytes), rest),
            (None, [0xfe, 0xff, rest @ ..]) => (Encoding::Utf16(u16::from_be_bytes), rest),
            (None, [0xef, 0xbb, 0xbf, rest @ ..]) => (Encoding::Utf8, rest),
            (None, _) => (Encoding::Utf8, bytes),
        };
        self.encoding = Some(encoding);
        let held = match encoding {
            Encoding::Utf8 => utf8(bytes, end, text),
            Encoding::Utf16(unit) => utf16(bytes, unit, end, text),
        };
        self.held = held.to_vec();
    }
}

/// Appends the characters and returns the bytes of one that is not whole yet.
fn utf8<'a>(mut bytes: &'a [u8], end: bool, text: &mut String) -> &'a [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(whole) => {
                text.push_str(whole);
                return &[];
            }
            Err(error) => error,
        };
        let (whole, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(whole).unwrap_or_default());
        match error.error_len() {
            None if !end => return rest,
            length => {
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = rest.get(length.unwrap_or(rest.len())..).unwrap_or_default();
            }
        }
    }
}

/// The same of UTF-16.
fn utf16<'a>(bytes: &'a [u8], unit: fn([u8; 2]) -> u16, end: bool, text: &mut String) -> &'a [u8] {
    const HIGH_SURROGATES: std::ops::Range<u16> = 0xd800..0xdc00;
    let at = |i: usize| unit([bytes[i], bytes[i + 1]]);
    let mut whole = bytes.len() / 2 * 2;
    if !end && whole >= 2 && HIGH_SURROGATES.contains(&at(whole - 2)) {
        whole -= 2;
    }
    let units = bytes[..whole].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    text.extend(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
    if !end {
        return &bytes[whole..];
    }
    if whole < bytes.len() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of bytes that come `step` at a time.
    fn decode(bytes: &[u8], step: usize) -> String {
        let mut text = String::new();
        let mut decoder = Decoder::default();
        for piece in bytes.chunks(step) {
            decoder.decode(piece, false, &mut text);
        }
        decoder.decode(&[], true, &mut text);
        text
    }

    #[test]
    fn encodings_in_pieces_of_any_length() {
        for step in 1..8 {
            assert_eq!(decode(b"\xef\xbb\xbfab", step), "ab");
            assert_eq!(decode(b"a", step), "a");
            assert_eq!(decode(b"\xff\xfea\0\x02\x25", step), "a│");
            assert_eq!(decode(b"\xff\xfe\x3d\xd8\x00\xde", step), "\u{1f600}");
            assert_eq!(decode(b"\xff\xfe\x3d\xd8a\0", step), "\u{fffd}a");
            assert_eq!(decode(b"\xfe\xff\0a\0", step), "a\u{fffd}");
            assert_eq!(decode(b"a\xe2\x94", step), "a\u{fffd}");
            assert_eq!(decode(b"\xff\xe2\x94\x82\xe2b", step), "\u{fffd}│\u{fffd}b");
        }
    }
}
