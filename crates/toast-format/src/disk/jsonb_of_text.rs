//! `jsonb` as the server stores it, made of the text that the server prints (`jsonb_out`): for documents of which
//! nothing but the text is to be had. Keys come in their stored order, each once (`convertToJsonb`, jsonb_util.c).

use super::ByteOrder;
use super::error::{ContentError, MOST_DATA};
use super::jsonb::{COUNT_MASK, HAS_OFFSET, MAX_DEPTH};
use super::varlena::VARLENA_HEADER_SIZE;

/// One entry in this many contains an offset instead of a length (`JB_OFFSET_STRIDE`).
const OFFSET_STRIDE: usize = 32;
pub(super) const OBJECT: u32 = 0x2000_0000;
const ARRAY: u32 = 0x4000_0000;
const SCALAR: u32 = 0x5000_0000;
/// Types of entries (`JENTRY_TYPEMASK`, `jsonb.h`).
const STRING: u32 = 0;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;

/// The content of the `jsonb` with this text, little-endian, without varlena header. The text is in the encoding
/// of the database, in which strings are stored.
///
/// Memory is needed for the content, and for the contents of each level of nesting.
pub fn jsonb(text: &[u8]) -> Result<Vec<u8>, ContentError> {
    let mut reader = JsonbTextReader { text, at: 0 };
    let mut open: Vec<OpenContainer> = Vec::new();
    // the array around a scalar takes the outermost value
    let mut frame = OpenContainer { kind: SCALAR, ..OpenContainer::default() };
    loop {
        reader.skip_blanks();
        match reader.next()? {
            b'{' | b'[' if open.len() >= MAX_DEPTH => return Err(ContentError::TooDeep),
            begin @ (b'{' | b'[') => {
                let kind = if begin == b'{' { OBJECT } else { ARRAY };
                open.push(std::mem::replace(
                    &mut frame,
                    OpenContainer { kind, ..OpenContainer::default() },
                ));
                if reader.closes(kind) {
                    reader.close(&mut frame, &mut open)?;
                } else {
                    reader.key(&mut frame)?;
                    continue;
                }
            }
            first => reader.scalar(first, &mut frame)?,
        }
        // what follows a value
        loop {
            reader.skip_blanks();
            if open.is_empty() {
                let left = reader.at < text.len();
                return if left { Err(reader.unexpected()) } else { frame.outermost() };
            }
            if reader.closes(frame.kind) {
                reader.close(&mut frame, &mut open)?;
                continue;
            }
            reader.expect(b',')?;
            reader.key(&mut frame)?;
            break;
        }
    }
}

/// A container to which values are still added.
#[derive(Debug, Default)]
pub(super) struct OpenContainer {
    pub(super) kind: u32,
    pub(super) keys: Vec<u8>,
    /// Where each key ends.
    pub(super) key_ends: Vec<usize>,
    /// The values so far, without padding.
    pub(super) data: Vec<u8>,
    /// Type, and where it ends, of each.
    pub(super) values: Vec<(u32, usize)>,
}

impl OpenContainer {
    /// Enters the value whose bytes were appended to the data.
    pub(super) fn value(&mut self, entry: u32) {
        self.values.push((entry, self.data.len()));
    }

    /// The container as it is stored (`convertJsonbObject`, `convertJsonbArray`).
    pub(super) fn stored(&self, order: ByteOrder) -> Vec<u8> {
        let words = 1 + self.key_ends.len() + self.values.len();
        let mut entries = Vec::with_capacity(words);
        entries.push(self.kind | (self.values.len() as u32 & COUNT_MASK));
        let mut data = Vec::with_capacity(self.keys.len() + self.data.len());
        data.extend_from_slice(&self.keys);
        let mut before = 0;
        for &end in &self.key_ends {
            entries.push(entry(entries.len() - 1, STRING, before, end));
            before = end;
        }
        let mut from = 0;
        for &(kind, end) in &self.values {
            if matches!(kind, NUMERIC | CONTAINER) {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            data.extend_from_slice(self.data.get(from..end).unwrap_or(&[]));
            entries.push(entry(entries.len() - 1, kind, before, data.len()));
            before = data.len();
            from = end;
        }
        let mut out = Vec::with_capacity(4 * words + data.len());
        out.extend(entries.into_iter().flat_map(|word| order.bytes(word)));
        out.append(&mut data);
        out
    }

    /// The container as it is stored, if a server can store as much.
    fn checked(&self) -> Result<Vec<u8>, ContentError> {
        let stored = self.stored(ByteOrder::Little);
        let entries = self.key_ends.len() + self.values.len();
        if stored.len() > MOST_DATA + 4 * entries { Err(ContentError::TooLong) } else { Ok(stored) }
    }

    /// The document in the array around a scalar.
    fn outermost(self) -> Result<Vec<u8>, ContentError> {
        match self.values.first() {
            Some((CONTAINER, _)) => Ok(self.data),
            _ => self.checked(),
        }
    }
}

struct JsonbTextReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl JsonbTextReader<'_> {
    fn unexpected(&self) -> ContentError {
        ContentError::JsonbText(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, ContentError> {
        let byte = self.peek().ok_or(self.unexpected())?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ContentError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected())
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Whether the container of this kind ends here; the bracket is read.
    fn closes(&mut self, kind: u32) -> bool {
        self.skip_blanks();
        let bracket = if kind == OBJECT { b'}' } else { b']' };
        self.expect(bracket).is_ok()
    }

    /// Ends a container, which becomes a value of the one around it.
    fn close(
        &self,
        frame: &mut OpenContainer,
        open: &mut Vec<OpenContainer>,
    ) -> Result<(), ContentError> {
        let outer = open.pop().ok_or(self.unexpected())?;
        let inner = std::mem::replace(frame, outer);
        let stored = inner.checked()?;
        if frame.data.is_empty() {
            frame.data = stored;
        } else {
            frame.data.extend_from_slice(&stored);
        }
        frame.value(CONTAINER);
        Ok(())
    }

    /// Reads a key and its colon, if the container has keys.
    fn key(&mut self, frame: &mut OpenContainer) -> Result<(), ContentError> {
        if frame.kind == OBJECT {
            self.skip_blanks();
            self.expect(b'"')?;
            self.string(&mut frame.keys)?;
            frame.key_ends.push(frame.keys.len());
            self.skip_blanks();
            self.expect(b':')?;
        }
        Ok(())
    }

    fn scalar(&mut self, first: u8, frame: &mut OpenContainer) -> Result<(), ContentError> {
        let start = self.at - 1;
        let entry = match first {
            b'"' => {
                self.string(&mut frame.data)?;
                STRING
            }
            b'n' | b't' | b'f' => {
                let rest = self.text.get(start..).unwrap_or(&[]);
                let words = [(&b"null"[..], NULL), (b"true", TRUE), (b"false", FALSE)];
                let found = words.iter().find(|(word, _)| rest.starts_with(word));
                let &(word, entry) = found.ok_or(ContentError::JsonbText(start))?;
                self.at = start + word.len();
                entry
            }
            _ => {
                while matches!(self.peek(), Some(b'0'..=b'9' | b'.')) {
                    self.at += 1;
                }
                let number = self.text.get(start..self.at).unwrap_or(&[]);
                numeric(number, &mut frame.data).ok_or(ContentError::JsonbText(start))?;
                NUMERIC
            }
        };
        frame.value(entry);
        Ok(())
    }

    /// Reads a string to its closing quote.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), ContentError> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or(&[]);
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let plain = plain.ok_or(self.unexpected())?;
            out.extend_from_slice(rest.get(..plain).unwrap_or(&[]));
            self.at += plain;
            if self.next()? == b'"' {
                return Ok(());
            }
            match self.next()? {
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'u' => self.escaped(out)?,
                byte => out.push(byte),
            }
        }
    }

    /// Four hexadecimal digits: `jsonb_out` escapes nothing but control characters so. Others are read as UTF-8.
    fn escaped(&mut self, out: &mut Vec<u8>) -> Result<(), ContentError> {
        let mut unit = self.four_digits()?;
        if (0xD800..0xDC00).contains(&unit) {
            self.expect(b'\\')?;
            self.expect(b'u')?;
            let low = self.four_digits()?;
            let low =
                low.checked_sub(0xDC00).filter(|low| *low < 0x400).ok_or(self.unexpected())?;
            unit = 0x1_0000 + ((unit - 0xD800) << 10) + low;
        }
        let character = char::from_u32(unit).ok_or(self.unexpected())?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn four_digits(&mut self) -> Result<u32, ContentError> {
        let digits =
            self.text.get(self.at..self.at + 4).and_then(|four| std::str::from_utf8(four).ok());
        let unit = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
        let unit = unit.ok_or(self.unexpected())?;
        self.at += 4;
        Ok(unit)
    }
}

/// The content of the `numeric` with this text, little-endian, without varlena header; `None` for a text that no
/// server prints.
pub(crate) fn numeric_content(text: &[u8]) -> Option<Vec<u8>> {
    let special: Option<u16> = match text {
        b"NaN" => Some(0xC000),
        b"Infinity" => Some(0xD000),
        b"-Infinity" => Some(0xF000),
        _ => None,
    };
    if let Some(header) = special {
        return Some(header.to_le_bytes().to_vec());
    }
    let mut stored = Vec::new();
    numeric(text, &mut stored)?;
    Some(stored.split_off(VARLENA_HEADER_SIZE as usize))
}

/// Appends the numeric with this text, with a varlena header of 4 bytes (`make_result`, numeric.c). `None` for a
/// text that is no plain decimal number.
fn numeric(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    const SHORT: u16 = 0x8000;
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = text.split_at_checked(point)?;
    let fraction = fraction.get(1..).unwrap_or(&[]);
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    // groups of four digits that meet at the decimal point
    let first = -(whole.len().div_ceil(4) as i64);
    let end = fraction.len().div_ceil(4) as i64;
    let mut groups: Vec<u16> = Vec::with_capacity((end - first) as usize);
    for group in first..end {
        let digits = group * 4..group * 4 + 4;
        groups.push(digits.fold(0, |sum, index| sum * 10 + digit(whole, fraction, index)));
    }
    let mut weight = -first - 1;
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    groups.drain(..leading);
    weight -= leading as i64;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let negative = negative && !groups.is_empty();
    if groups.is_empty() {
        weight = 0;
    }
    let scale = u16::try_from(fraction.len()).ok().filter(|scale| *scale < 0x4000)?;
    let weight = i16::try_from(weight).ok()?;
    let mut header = Vec::with_capacity(4);
    if scale <= 63 && (-64..=63).contains(&weight) {
        let sign = if negative { 0x2000 } else { 0 };
        header
            .extend_from_slice(&(SHORT | sign | scale << 7 | (weight as u16 & 0x7F)).to_le_bytes());
    } else {
        let sign = if negative { 0x4000 } else { 0 };
        header.extend_from_slice(&(sign | scale).to_le_bytes());
        header.extend_from_slice(&weight.to_le_bytes());
    }
    let length = u32::try_from(4 + header.len() + groups.len() * 2).ok()?;
    out.extend_from_slice(&(length << 2).to_le_bytes());
    out.extend_from_slice(&header);
    out.extend(groups.iter().flat_map(|group| group.to_le_bytes()));
    Some(())
}

/// A decimal digit: at `index` behind the decimal point, or that many before it if `index` is negative; 0 outside.
fn digit(whole: &[u8], fraction: &[u8], index: i64) -> u16 {
    let byte = match usize::try_from(index) {
        Ok(at) => fraction.get(at),
        Err(_) => {
            let at = whole.len().checked_sub(index.unsigned_abs() as usize);
            at.and_then(|at| whole.get(at))
        }
    };
    byte.map_or(0, |byte| u16::from(byte - b'0'))
}

/// The entry with this number (`JEntry`, `jsonb.h`), for a value that ends at `end` behind one that ends at `before`.
fn entry(number: usize, kind: u32, before: usize, end: usize) -> u32 {
    if number.is_multiple_of(OFFSET_STRIDE) {
        kind | HAS_OFFSET | end as u32
    } else {
        kind | (end - before) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ByteOrder;
    use crate::disk::jsonb_text::to_text;
    use proptest::prelude::*;

    fn there_and_back(text: &str) {
        let content = jsonb(text.as_bytes()).unwrap();
        let back = to_text(&content, ByteOrder::Little).unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), text);
    }

    #[test]
    fn what_is_made_has_the_text_it_is_made_of() {
        for text in [
            "null",
            "{}",
            "[]",
            "[[], {}, [[[]]]]",
            r#"{"a": 1, "bb": [true, false, null], "ccc": {"d": "x\ny\"\\\u0001é😀"}}"#,
            "[0, -1, 10000, 99999999, 0.05, -12.3450, 1.000, 0.00000000000000000001]",
        ] {
            there_and_back(text);
        }
        let many: Vec<String> = (0..100).map(|n| format!("\"k{n:03}\": {n}")).collect();
        there_and_back(&format!("{{{}}}", many.join(", ")));
        there_and_back(&format!("{}0{}", "[".repeat(5000), "]".repeat(5000)));
        there_and_back(&format!("1{}", "0".repeat(400)));
        there_and_back(&format!("0.{}1", "0".repeat(400)));
    }

    #[test]
    fn numbers_are_as_numeric_stores_them() {
        let made = |text: &str| {
            let mut out = Vec::new();
            numeric(text.as_bytes(), &mut out).map(|()| out.split_off(4))
        };
        assert_eq!(made("0").unwrap(), b"\x00\x80");
        assert_eq!(made("-0.0").unwrap(), b"\x80\x80");
        assert_eq!(made("654321").unwrap(), b"\x01\x80\x41\x00\xe1\x10");
        assert_eq!(made("-0.05").unwrap(), b"\x7f\xa1\xf4\x01");
        for text in ["", "-", ".5", "1e5", "0x1", "--1"] {
            assert_eq!(made(text), None, "{text}");
        }
    }

    #[test]
    fn what_no_server_prints_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\": }",
            "nul",
            "1 2",
            "[1 2]",
            "\"a",
            "{]",
            "\"\\uD800\"",
            "]",
        ] {
            assert!(jsonb(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}:,\"a0-9.\\\\u -]{0,60}") {
            let _ = jsonb(text.as_bytes());
        }

        #[test]
        fn any_number_comes_back(whole in "0|-?[1-9][0-9]{0,40}", fraction in "(\\.[0-9]{1,80})?") {
            let text = format!("{whole}{fraction}");
            let content = jsonb(text.as_bytes()).unwrap();
            prop_assert_eq!(to_text(&content, ByteOrder::Little).unwrap(), text.into_bytes());
        }
    }
}
