//! What each part of a `json` document takes: its text is what is stored, so that every byte of it belongs to a key
//! or an element, or to a container that holds them.

use std::borrow::Cow;
use std::ops::Range;

use super::error::ContentError;
use super::jsonb_parts::{ExtractedDatum, JsonKind, PartStep, Visit, VisitedPart};

/// Gives all parts of the document down to `depth` levels, keys of the document itself being the first. Returns the
/// bytes that belong to none of the first level's: `text` has as many as these and those. What is deeper is not
/// looked at but for its end.
///
/// # Errors
/// If the document is damaged. Parts that were passed to `visit` before are valid.
pub fn walk<V: Visit>(
    text: &[u8],
    depth: u8,
    document: V::At,
    visit: &mut V,
) -> Result<u64, ContentError> {
    let mut reader = JsonReader { text, at: 0 };
    reader.blanks();
    let from = reader.at;
    let kind = reader.kind()?;
    if matches!(kind, JsonKind::Array | JsonKind::Object) {
        let parts = reader.container(depth, document, visit)?;
        reader.blanks();
        reader.ended()?;
        return Ok((text.len() as u64).saturating_sub(parts));
    }
    reader.value()?;
    let end = reader.at;
    reader.blanks();
    reader.ended()?;
    let part = reader.part(PartStep::Scalar, kind, from..end, from..end);
    visit.part(document, &part);
    Ok((text.len() as u64).saturating_sub(part.bytes))
}

struct JsonReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonReader<'a> {
    fn error(&self) -> ContentError {
        ContentError::Json(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn ended(&self) -> Result<(), ContentError> {
        if self.at < self.text.len() { Err(self.error()) } else { Ok(()) }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn slice(&self, from: usize, end: usize) -> &'a [u8] {
        self.text.get(from..end).unwrap_or(&[])
    }

    /// The type of the value that begins here.
    fn kind(&self) -> Result<JsonKind, ContentError> {
        match self.peek() {
            Some(b'{') => Ok(JsonKind::Object),
            Some(b'[') => Ok(JsonKind::Array),
            Some(b'"') => Ok(JsonKind::String),
            Some(b't' | b'f') => Ok(JsonKind::Boolean),
            Some(b'n') => Ok(JsonKind::Null),
            Some(b'-' | b'0'..=b'9') => Ok(JsonKind::Number),
            _ => Err(self.error()),
        }
    }

    fn part<'p>(
        &self,
        step: PartStep<'p>,
        kind: JsonKind,
        whole: Range<usize>,
        value: Range<usize>,
    ) -> VisitedPart<'p>
    where
        'a: 'p,
    {
        let bytes = self.slice(value.start, value.end);
        let extracted = ExtractedDatum::Varlena(bytes.len() as u64);
        VisitedPart {
            step,
            kind,
            bytes: whole.len() as u64,
            value: bytes,
            byte: value.start,
            extracted,
        }
    }

    /// Gives the parts of the container that begins here; the sum of their bytes. Recursion ends with `depth`.
    fn container<V: Visit>(
        &mut self,
        depth: u8,
        inside: V::At,
        visit: &mut V,
    ) -> Result<u64, ContentError> {
        let object = self.peek() == Some(b'{');
        let close = if object { b'}' } else { b']' };
        self.at += 1;
        self.blanks();
        let mut sum = 0;
        if self.takes(close) {
            return Ok(sum);
        }
        loop {
            let from = self.at;
            let key = if object { Some(self.key()?) } else { None };
            let value = self.at;
            let kind = self.kind()?;
            self.value()?;
            let value_end = self.at;
            self.blanks();
            let more = self.takes(b',');
            if more {
                self.blanks();
            }
            let step = key.as_ref().map_or(PartStep::Element, |key| PartStep::Key(key));
            let part = self.part(step, kind, from..self.at, value..value_end);
            sum += part.bytes;
            let known = visit.part(inside, &part);
            if let (Some(known), JsonKind::Array | JsonKind::Object, 2..) = (known, kind, depth) {
                let mut inner = JsonReader { text: self.slice(0, value_end), at: value };
                inner.container(depth - 1, known, visit)?;
            }
            if more {
                continue;
            }
            return if self.takes(close) { Ok(sum) } else { Err(self.error()) };
        }
    }

    /// Reads a key with its colon.
    fn key(&mut self) -> Result<Cow<'a, [u8]>, ContentError> {
        let from = self.at;
        self.string()?;
        let quoted = self.slice(from, self.at);
        self.blanks();
        if !self.takes(b':') {
            return Err(self.error());
        }
        self.blanks();
        if quoted.contains(&b'\\')
            && let Ok(decoded) = serde_json::from_slice::<String>(quoted)
        {
            return Ok(Cow::Owned(decoded.into_bytes()));
        }
        Ok(Cow::Borrowed(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or(&[])))
    }

    fn string(&mut self) -> Result<(), ContentError> {
        if !self.takes(b'"') {
            return Err(self.error());
        }
        loop {
            match self.peek() {
                None => return Err(self.error()),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over the value that begins here, whatever is in it.
    fn value(&mut self) -> Result<(), ContentError> {
        let mut open = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(bracket @ (b'{' | b'[')) => {
                    open.push(bracket);
                    self.at += 1;
                }
                Some(bracket @ (b'}' | b']')) => {
                    let expected = if bracket == b'}' { b'{' } else { b'[' };
                    if open.pop() != Some(expected) {
                        return Err(self.error());
                    }
                    self.at += 1;
                }
                Some(b',' | b':' | b' ' | b'\n' | b'\t' | b'\r') if !open.is_empty() => {
                    self.at += 1;
                }
                Some(byte) if is_word(byte) => {
                    while self.peek().is_some_and(is_word) {
                        self.at += 1;
                    }
                }
                _ => return Err(self.error()),
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Whether a byte can be of a number, or of `null`, `true` and `false`.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::jsonb_parts::Validate;
    use proptest::prelude::*;

    /// Paths with types and bytes, and the bytes of each level.
    #[derive(Default)]
    struct Seen {
        shown: Vec<String>,
        first: u64,
    }

    impl Visit for Seen {
        type At = usize;

        fn part(&mut self, level: usize, part: &VisitedPart<'_>) -> Option<usize> {
            let name = match part.step {
                PartStep::Key(key) => String::from_utf8_lossy(key).into_owned(),
                PartStep::Element => "[]".into(),
                PartStep::Scalar => "$".into(),
            };
            let value = String::from_utf8_lossy(part.value);
            let line =
                format!("{}{name} {} {} {value}", " ".repeat(level), part.kind.name(), part.bytes);
            self.shown.push(line);
            self.first += if level == 0 { part.bytes } else { 0 };
            Some(level + 1)
        }
    }

    fn seen(text: &str, depth: u8) -> Result<(u64, Seen), ContentError> {
        let mut seen = Seen::default();
        let own = walk(text.as_bytes(), depth, 0, &mut seen)?;
        Ok((own, seen))
    }

    #[test]
    fn every_byte_of_the_text_belongs_to_a_part() {
        let text = "{ \"a\" : 1.50 , \"b\\u0062\": [true, {\"c\": null}, \"x,]\\\"\"],\n\"a\": \"twice\"} ";
        let (own, found) = seen(text, 3).unwrap();
        assert_eq!(own + found.first, text.len() as u64);
        insta::assert_snapshot!(found.shown.join("\n"), @r#"
        a number 13 1.50
        bb array 41 [true, {"c": null}, "x,]\""]
         [] boolean 6 true
         [] object 13 {"c": null}
          c null 9 null
         [] string 7 "x,]\""
        a string 12 "twice"
        "#);
        for text in ["null", " 12e5 ", "\"x\"", "{}", "[ ]"] {
            let (own, found) = seen(text, 2).unwrap();
            assert_eq!(own + found.first, text.len() as u64, "{text}");
        }
    }

    #[test]
    fn damage_has_its_place() {
        for (text, byte) in [
            ("", 0),
            ("{", 1),
            ("{\"a\"}", 4),
            ("{\"a\": 1,}", 8),
            ("[1 2]", 3),
            ("[1}", 2),
            ("1 2", 2),
            ("\"a", 2),
        ] {
            assert_eq!(seen(text, 1).map(|_| ()), Err(ContentError::Json(byte)), "{text}");
        }
        assert!(seen(&"[".repeat(100_000), 64).is_err());
        let deep = format!("{}0{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(seen(&deep, 64).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_parts_or_an_error(text in "[\\[\\]{}:,\"a0\\\\ -]{0,60}", depth in 1u8..5) {
            if let Ok((own, found)) = seen(&text, depth) {
                prop_assert_eq!(own + found.first, text.len() as u64);
            }
            let _ = walk(text.as_bytes(), depth, (), &mut Validate);
        }
    }
}
