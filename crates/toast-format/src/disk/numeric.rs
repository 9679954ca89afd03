//! `numeric` values (`numeric.c`): the stored digits and their text.
//!
//! ```text
//! 0 header 2   11xx: special; 10: short (sign, dscale 6 bits, weight 7 bits); 00, 01: long, sign
//! 2 weight 2   long form only
//! then base-10000 digits, 2 bytes each
//! ```

use super::ByteOrder;
use super::error::ContentError;

/// The content of a `numeric`, with digits borrowed from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numeric<'a> {
    /// `NaN` (`NUMERIC_NAN`, `numeric.c`).
    NaN,
    /// `Infinity` (since PostgreSQL 14).
    Infinity,
    /// `-Infinity` (`NUMERIC_NINF`), since PostgreSQL 14.
    NegativeInfinity,
    /// A number, in the short or the long form.
    Number {
        /// Whether it is less than zero.
        negative: bool,
        /// Weight of the first digit, as a power of 10000.
        weight: i16,
        /// Decimal digits shown behind the point.
        display_scale: u16,
        /// Its digits to the base 10,000.
        digits: Digits<'a>,
    },
}

/// Base-10000 digits, each checked to be below 10000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl Digits<'_> {
    /// The digit at `index`; 0 outside, where a number has implied zeros.
    fn get(&self, index: i64) -> u16 {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.order.u16(self.bytes, index.checked_mul(2)?))
            .unwrap_or(0)
    }
}

impl<'a> Numeric<'a> {
    /// Reads the content of a numeric, without varlena header.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<Numeric<'a>, ContentError> {
        let cut = ContentError::NumericCut(bytes.len());
        let header = order.u16(bytes, 0).ok_or(cut)?;
        let (negative, display_scale, weight, digits_at) = match header >> 14 {
            3 => {
                return match header {
                    0xC000 if bytes.len() == 2 => Ok(Numeric::NaN),
                    0xD000 if bytes.len() == 2 => Ok(Numeric::Infinity),
                    0xF000 if bytes.len() == 2 => Ok(Numeric::NegativeInfinity),
                    _ => Err(ContentError::NumericHeader(header)),
                };
            }
            2 => {
                // seven bits, two's complement
                let weight = ((header & 0x7F) as i16) << 9 >> 9;
                (header & 0x2000 != 0, (header & 0x1F80) >> 7, weight, 2)
            }
            sign => {
                let weight = order.u16(bytes, 2).ok_or(cut)? as i16;
                (sign == 1, header & 0x3FFF, weight, 4)
            }
        };
        let bytes = bytes.get(digits_at..).unwrap_or(&[]);
        if bytes.len() % 2 != 0 {
            return Err(ContentError::NumericOddLength);
        }
        let digits = Digits { bytes, order };
        for index in 0..bytes.len() / 2 {
            let digit = digits.get(index as i64);
            if digit > 9999 {
                return Err(ContentError::NumericDigit { digit, index });
            }
        }
        Ok(Numeric::Number { negative, weight, display_scale, digits })
    }

    /// Appends the text that `numeric_out` gives, at most some 147,000 bytes.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        let (negative, weight, display_scale, digits) = match self {
            Numeric::NaN => return out.extend_from_slice(b"NaN"),
            Numeric::Infinity => return out.extend_from_slice(b"Infinity"),
            Numeric::NegativeInfinity => return out.extend_from_slice(b"-Infinity"),
            Numeric::Number { negative, weight, display_scale, digits } => {
                (*negative, i64::from(*weight), usize::from(*display_scale), digits)
            }
        };
        if negative {
            out.push(b'-');
        }
        if weight < 0 {
            out.push(b'0');
        } else {
            let first = four_digits(digits.get(0));
            let leading = first.iter().take(3).take_while(|&&digit| digit == b'0').count();
            out.extend(first.iter().skip(leading));
            for index in 1..=weight {
                out.extend_from_slice(&four_digits(digits.get(index)));
            }
        }
        if display_scale > 0 {
            out.push(b'.');
            let end = out.len() + display_scale;
            let mut index = weight + 1;
            while out.len() < end {
                out.extend_from_slice(&four_digits(digits.get(index)));
                index += 1;
            }
            out.truncate(end);
        }
    }
}

/// A digit below 10000 in decimal, with leading zeros.
fn four_digits(digit: u16) -> [u8; 4] {
    [1000, 100, 10, 1].map(|unit| b'0' + (digit / unit % 10) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: &[u8]) -> Result<String, ContentError> {
        let mut out = Vec::new();
        Numeric::parse(bytes, ByteOrder::Little)?.write_text(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    /// A numeric in the long form.
    fn long(negative: bool, scale: u16, weight: i16, digits: &[u16]) -> Vec<u8> {
        let header = if negative { 0x4000 } else { 0 } | scale;
        let mut bytes = header.to_le_bytes().to_vec();
        bytes.extend(weight.to_le_bytes());
        bytes.extend(digits.iter().flat_map(|d| d.to_le_bytes()));
        bytes
    }

    #[test]
    fn short_and_long_forms() {
        assert_eq!(text(b"\x00\x80").unwrap(), "0");
        assert_eq!(text(b"\x00\x80\x02\x00").unwrap(), "2");
        assert_eq!(text(b"\x01\x80\x41\x00\xe1\x10").unwrap(), "654321");
        // -0.05 with scale 2: weight -1
        assert_eq!(text(b"\x7f\xa1\xf4\x01").unwrap(), "-0.05");
        assert_eq!(text(&long(true, 0, 2, &[1])).unwrap(), "-100000000");
        assert_eq!(text(&long(false, 10, -3, &[12])).unwrap(), "0.0000000000");
        assert_eq!(text(&long(false, 13, -3, &[1200])).unwrap(), "0.0000000012000");
        assert_eq!(text(&long(false, 3, 0, &[12, 3450])).unwrap(), "12.345");
        assert_eq!(text(&long(false, 0, i16::MAX, &[1])).unwrap().len(), 131_069);
    }

    #[test]
    fn special_values() {
        assert_eq!(text(b"\x00\xc0").unwrap(), "NaN");
        assert_eq!(text(b"\x00\xd0").unwrap(), "Infinity");
        assert_eq!(text(b"\x00\xf0").unwrap(), "-Infinity");
        assert_eq!(text(b"\x00\xe0"), Err(ContentError::NumericHeader(0xE000)));
        assert_eq!(text(b"\x00\xc0\x01\x00"), Err(ContentError::NumericHeader(0xC000)));
    }

    #[test]
    fn each_damage_has_its_error() {
        assert_eq!(text(b"\x00"), Err(ContentError::NumericCut(1)));
        assert_eq!(text(b"\x00\x00\x01"), Err(ContentError::NumericCut(3)));
        assert_eq!(text(b"\x00\x80\x01"), Err(ContentError::NumericOddLength));
        assert_eq!(
            text(b"\x00\x80\x10\x27"),
            Err(ContentError::NumericDigit { digit: 10_000, index: 0 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_number_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = text(&bytes) {
                prop_assert!(text.len() <= 150_000);
            }
        }
    }
}
