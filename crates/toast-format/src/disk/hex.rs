//! One value in hexadecimal, as printed by the server or pasted by a user.

use thiserror::Error;

/// Why a text is not one value in hexadecimal.
///
/// Positions are counted in characters of the given text, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HexError {
    /// The text contains neither digits nor `\x`.
    #[error("no hexadecimal digits")]
    Empty,
    /// The number of digits is odd.
    #[error("odd number of hexadecimal digits: {0}")]
    OddDigits(usize),
    /// A character is not a hexadecimal digit.
    #[error("invalid hexadecimal digit {found:?} at character {position}")]
    BadDigit {
        /// The character's position, from 1.
        position: usize,
        /// The character at that position.
        found: char,
    },
    /// A quote is not closed.
    #[error("the quote at character {0} is not closed")]
    OpenQuote(usize),
    /// There is text after the value.
    #[error("unexpected text at character {0}, after the value")]
    Trailing(usize),
}

impl HexError {
    /// A hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            HexError::Empty => Some(r"write an empty value as \x"),
            HexError::OddDigits(_) => Some("the value may have been cut when it was copied"),
            _ => None,
        }
    }
}

/// Parses one value: `\x0112`, `0x0112`, `0112`, `'\x0112'`, `E'\\x0112'`, `X'0112'`, each optionally followed by
/// `::bytea` and `;`, and with white space between the digits.
pub fn parse_datum(text: &str) -> Result<Vec<u8>, HexError> {
    let position = |rest: &str| text[..text.len() - rest.len()].chars().count() + 1;
    let bad_digit = |rest: &str| {
        let found = rest.chars().next();
        found.map(|found| HexError::BadDigit { position: position(rest), found })
    };
    let begin = text.trim_start();
    let letter = begin.find('\'').map_or("", |quote| &begin[..quote]);
    let is_escaped = letter.eq_ignore_ascii_case("e");
    let is_bits = letter.eq_ignore_ascii_case("x");
    let quote = if is_escaped || is_bits { &begin[1..] } else { begin };
    let is_quoted = quote.starts_with('\'');
    let inside = quote.strip_prefix('\'').unwrap_or(quote).trim_start();
    // A double backslash is accepted outside E'…' too, because shells, JSON and array literals turn a single one into
    // it.
    let markers: &[&str] = match (is_escaped, is_bits) {
        (true, _) => &[r"\\x"],
        (_, true) => &[],
        _ => &[r"\\x", r"\x", "0x"],
    };
    let behind_marker = markers.iter().find_map(|marker| without_prefix(inside, marker));
    let digits = behind_marker.unwrap_or(inside);
    let end = digits.find(|c: char| !c.is_whitespace() && !c.is_ascii_hexdigit());
    let (digits, mut rest) = digits.split_at(end.unwrap_or(digits.len()));
    let digits: String = digits.split_whitespace().collect();
    if is_quoted {
        let Some(behind) = rest.strip_prefix('\'') else {
            return Err(bad_digit(rest).unwrap_or(HexError::OpenQuote(position(quote))));
        };
        rest = behind.trim_start();
    }
    rest = without_prefix(rest, "::bytea").unwrap_or(rest).trim_start();
    rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
    if let Some(bad) = bad_digit(rest) {
        return Err(if is_quoted { HexError::Trailing(position(rest)) } else { bad });
    }
    if digits.is_empty() && behind_marker.is_none() && !is_quoted {
        return Err(HexError::Empty);
    }
    decode_digits(&digits)
}

/// The text behind a prefix in ASCII, in capitals or not.
fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes digits without anything between them.
pub fn decode_digits(digits: &str) -> Result<Vec<u8>, HexError> {
    let pairs = digits.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(first_bad_digit(digits));
    }
    let mut seen = 0;
    let bytes = pairs
        .map(|pair| {
            let high = NIBBLES[usize::from(pair[0])];
            let low = NIBBLES[usize::from(pair[1])];
            seen |= high | low;
            high << 4 | low
        })
        .collect();
    if seen & NO_DIGIT != 0 { Err(first_bad_digit(digits)) } else { Ok(bytes) }
}

/// The value in [`NIBBLES`] of characters that are not hexadecimal digits.
const NO_DIGIT: u8 = 0x80;

/// The value of each hexadecimal digit, by character.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        nibbles[digit as usize] = value as u8;
        nibbles[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    nibbles
};

fn first_bad_digit(digits: &str) -> HexError {
    for (i, c) in digits.chars().enumerate() {
        if !c.is_ascii_hexdigit() {
            return HexError::BadDigit { position: i + 1, found: c };
        }
    }
    HexError::OddDigits(digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_way_to_write_a_value() {
        for text in [
            r"\x0112ff",
            r"\X0112FF",
            "0x0112ff",
            "0112ff",
            "01 12\n ff\t",
            r"'\x0112ff'",
            r"'\x0112ff'::bytea",
            r"'\x0112ff'::BYTEA;",
            r"E'\\x0112ff'",
            r"e'\\x01 12 ff' ::bytea ;",
            r"\x0112ff::bytea",
            r"\\x0112ff",
            "X'0112ff'",
            "  '0112ff'  ",
        ] {
            assert_eq!(parse_datum(text), Ok(vec![0x01, 0x12, 0xff]), "{text}");
        }
        for empty in [r"\x", "''", r"'\x'::bytea", "0x"] {
            assert_eq!(parse_datum(empty), Ok(vec![]), "{empty}");
        }
    }

    #[test]
    fn errors_name_the_position() {
        let error = |text| parse_datum(text).map_err(|e| e.to_string());
        let bad = |message: &str| Err(message.to_owned());
        assert_eq!(error(""), bad("no hexadecimal digits"));
        assert_eq!(error(" \n"), bad("no hexadecimal digits"));
        assert_eq!(error(r"\x012"), bad("odd number of hexadecimal digits: 3"));
        assert_eq!(error(r"\x01g2"), bad("invalid hexadecimal digit 'g' at character 5"));
        assert_eq!(error("é01"), bad("invalid hexadecimal digit 'é' at character 1"));
        assert_eq!(error(r"'\x01"), bad("the quote at character 1 is not closed"));
        assert_eq!(error(r"E'\x01'"), bad("invalid hexadecimal digit '\\\\' at character 3"));
        assert_eq!(error(r"'\x01' foo"), bad("unexpected text at character 8, after the value"));
        assert_eq!(error(r"\x01…"), bad("invalid hexadecimal digit '…' at character 5"));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            prop_assert_eq!(decode_digits(&digits), Ok(bytes.clone()));
            prop_assert_eq!(parse_datum(&format!("E'\\\\x{digits}'::bytea")), Ok(bytes));
        }

        #[test]
        fn any_text_gives_bytes_or_an_error(text in any::<String>()) {
            if let Ok(bytes) = parse_datum(&text) {
                prop_assert!(bytes.len() <= text.len() / 2);
            }
            let _ = decode_digits(&text);
        }

        #[test]
        fn near_values_give_bytes_or_an_error(text in r"[eEx'\\0-9a-fg: ;é]{0,12}") {
            if let Ok(bytes) = parse_datum(&text) {
                prop_assert!(bytes.len() <= text.len() / 2);
            }
        }
    }
}
