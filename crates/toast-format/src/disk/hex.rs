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
    let mut input = Input { text, at: 0 };
    input.skip_blanks();
    let escaped = input.eat_letter_before_quote('e');
    let bits = !escaped && input.eat_letter_before_quote('x');
    let quote = input.at;
    let quoted = input.eat("'");
    input.skip_blanks();
    let marked = !bits && input.eat_marker(escaped);

    let mut bytes = Vec::with_capacity((text.len() - input.at) / 2);
    let mut high = None;
    let mut digits = 0usize;
    while let Some(c) = input.peek() {
        if !c.is_whitespace() {
            let Some(digit) = c.to_digit(16) else { break };
            digits += 1;
            // A hexadecimal digit is less than 16.
            let digit = digit as u8;
            match high.take() {
                None => high = Some(digit),
                Some(first) => bytes.push(first << 4 | digit),
            }
        }
        input.at += c.len_utf8();
    }
    if quoted {
        if input.peek().is_none() {
            return Err(HexError::OpenQuote(input.position(quote)));
        }
        if !input.eat("'") {
            return Err(input.bad_digit());
        }
        input.skip_blanks();
    }
    if input.eat_ignoring_case("::bytea") {
        input.skip_blanks();
    }
    input.eat(";");
    input.skip_blanks();
    if input.peek().is_some() {
        return Err(if quoted {
            HexError::Trailing(input.position(input.at))
        } else {
            input.bad_digit()
        });
    }
    if high.is_some() {
        return Err(HexError::OddDigits(digits));
    }
    if digits == 0 && !marked && !quoted {
        return Err(HexError::Empty);
    }
    Ok(bytes)
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

/// A position in the text; `at` is always at the first byte of a character.
struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl Input<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek().filter(|c| c.is_whitespace()) {
            self.at += c.len_utf8();
        }
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.text[self.at..].starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn eat_ignoring_case(&mut self, wanted: &str) -> bool {
        let found = self.text[self.at..]
            .get(..wanted.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(wanted));
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn eat_letter_before_quote(&mut self, letter: char) -> bool {
        let mut chars = self.text[self.at..].chars();
        let found = chars.next().is_some_and(|c| c.eq_ignore_ascii_case(&letter))
            && chars.next() == Some('\'');
        if found {
            self.at += letter.len_utf8();
        }
        found
    }

    /// Skips the prefix before the digits. A double backslash is accepted outside `E'…'` too, because shells, JSON and
    /// array literals turn a single one into it.
    fn eat_marker(&mut self, escaped: bool) -> bool {
        self.eat_ignoring_case(r"\\x")
            || (!escaped && (self.eat_ignoring_case(r"\x") || self.eat_ignoring_case("0x")))
    }

    fn position(&self, byte: usize) -> usize {
        self.text[..byte].chars().count() + 1
    }

    fn bad_digit(&self) -> HexError {
        let position = self.position(self.at);
        match self.peek() {
            Some(found) => HexError::BadDigit { position, found },
            None => HexError::Trailing(position),
        }
    }
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
