//! The text of `jsonb`, byte for byte as the server's `jsonb_out` gives it (`jsonb.c`).

use super::ByteOrder;
use super::jsonb::{
    Container, ContainerItems, ContainerKind, Item, JsonbError, JsonbErrorKind, MAX_DEPTH,
    MAX_TEXT, PointerEntry,
};

/// Receives text piece by piece.
pub trait TextSink {
    /// Receives the next piece of the text.
    fn put(&mut self, piece: &[u8]);
}

impl TextSink for Vec<u8> {
    fn put(&mut self, piece: &[u8]) {
        self.extend_from_slice(piece);
    }
}

/// Fetches containers that were moved out of their object.
pub trait FetchContainer {
    /// The error type, which includes damaged containers.
    type Error: From<JsonbError>;

    /// The container that `entry` leads to, without varlena header.
    fn fetch(&mut self, entry: &PointerEntry<'_>) -> Result<Vec<u8>, Self::Error>;

    /// Adds to `error` that it happened inside the container that `entry` leads to.
    fn inside(&self, entry: &PointerEntry<'_>, error: Self::Error) -> Self::Error;
}

/// For `jsonb` of stock servers, where no container is moved out.
#[derive(Debug, Clone, Copy, Default)]
pub struct InPlace;

impl FetchContainer for InPlace {
    type Error = JsonbError;

    fn fetch(&mut self, entry: &PointerEntry<'_>) -> Result<Vec<u8>, JsonbError> {
        Err(JsonbError { byte: entry.byte, kind: JsonbErrorKind::Pointer })
    }

    fn inside(&self, _: &PointerEntry<'_>, error: JsonbError) -> JsonbError {
        error
    }
}

/// Fetched containers inside fetched containers: servers write at most a few.
const MAX_FETCHES_DEEP: usize = 32;

/// The text of the `jsonb` value with this content.
///
/// Memory is needed for the text and for each level of nesting.
pub(crate) fn to_text(content: &[u8], order: ByteOrder) -> Result<Vec<u8>, JsonbError> {
    let mut text = Vec::new();
    JsonbText::new(&mut text, &mut InPlace, order).value(content)?;
    Ok(text)
}

/// Writes `jsonb` as text.
#[derive(Debug)]
pub struct JsonbText<'s, S, F> {
    sink: &'s mut S,
    fetch: &'s mut F,
    order: ByteOrder,
    written: usize,
    scratch: Vec<u8>,
}

impl<'s, S: TextSink, F: FetchContainer> JsonbText<'s, S, F> {
    /// Writes to `sink`; `fetch` returns containers that were moved out.
    pub fn new(sink: &'s mut S, fetch: &'s mut F, order: ByteOrder) -> Self {
        JsonbText { sink, fetch, order, written: 0, scratch: Vec::new() }
    }

    /// Writes the value with this content.
    pub fn value(&mut self, content: &[u8]) -> Result<(), F::Error> {
        self.container(content, 0)
    }

    /// Writes an array whose elements are those of `chunks` arrays, one after the other, which
    /// `get` gives by their index.
    pub(crate) fn chunked_array(
        &mut self,
        chunks: usize,
        mut get: impl FnMut(&mut F, usize) -> Result<Vec<u8>, F::Error>,
    ) -> Result<(), F::Error> {
        self.put(b"[")?;
        let mut first = true;
        for index in 0..chunks {
            let chunk = get(self.fetch, index)?;
            self.elements(&chunk, &mut first)?;
        }
        self.put(b"]")
    }

    fn elements(&mut self, content: &[u8], first: &mut bool) -> Result<(), F::Error> {
        let container = Container::parse(content, self.order)?;
        if container.kind() != ContainerKind::Array {
            return Err(JsonbError { byte: 0, kind: JsonbErrorKind::NoArray }.into());
        }
        let items = container.items()?;
        let frame = Frame { items, first: *first, close: b"" };
        *first &= container.count() == 0;
        self.items(frame, 0)
    }

    fn container(&mut self, content: &[u8], fetches: usize) -> Result<(), F::Error> {
        let frame = self.open(Container::parse(content, self.order)?, 0)?;
        self.items(frame, fetches)
    }

    /// Writes all that `outermost` holds; no recursion but into fetched containers.
    fn items(&mut self, outermost: Frame<'_>, fetches: usize) -> Result<(), F::Error> {
        let mut outer: Vec<Frame<'_>> = Vec::new();
        let mut frame = outermost;
        loop {
            let Some(next) = frame.items.next() else {
                self.put(frame.close)?;
                match outer.pop() {
                    Some(parent) => frame = parent,
                    None => return Ok(()),
                }
                continue;
            };
            let (key, item) = next?;
            if !std::mem::take(&mut frame.first) {
                self.put(b", ")?;
            }
            if let Some(key) = key {
                self.string(key)?;
                self.put(b": ")?;
            }
            match item {
                Item::String(string) => self.string(string)?,
                Item::Numeric(number) => {
                    let mut text = std::mem::take(&mut self.scratch);
                    text.clear();
                    number.write_text(&mut text);
                    self.put(&text)?;
                    self.scratch = text;
                }
                Item::Bool(true) => self.put(b"true")?,
                Item::Bool(false) => self.put(b"false")?,
                Item::Null => self.put(b"null")?,
                Item::Container(container) => {
                    let inner = self.open(container, outer.len())?;
                    outer.push(std::mem::replace(&mut frame, inner));
                }
                Item::Pointer(entry) => self.fetched(&entry, fetches)?,
            }
        }
    }

    fn fetched(&mut self, entry: &PointerEntry<'_>, fetches: usize) -> Result<(), F::Error> {
        if fetches >= MAX_FETCHES_DEEP {
            return Err(JsonbError { byte: entry.byte, kind: JsonbErrorKind::TooDeep }.into());
        }
        let content = self.fetch.fetch(entry)?;
        let result = Container::parse(&content, self.order)
            .and_then(|container| {
                let expected = entry.class;
                let found = container.class();
                if expected == found {
                    Ok(())
                } else {
                    let kind = JsonbErrorKind::FetchedContainer { expected, found };
                    Err(JsonbError { byte: 0, kind })
                }
            })
            .map_err(F::Error::from)
            .and_then(|()| self.container(&content, fetches + 1));
        result.map_err(|error| self.fetch.inside(entry, error))
    }

    fn open<'a>(&mut self, container: Container<'a>, depth: usize) -> Result<Frame<'a>, F::Error> {
        let items = container.items()?;
        if depth >= MAX_DEPTH {
            return Err(JsonbError { byte: container.byte(), kind: JsonbErrorKind::TooDeep }.into());
        }
        let (open, close): (&[u8], &[u8]) = match container.kind() {
            ContainerKind::Scalar => (b"", b""),
            ContainerKind::Array => (b"[", b"]"),
            _ => (b"{", b"}"),
        };
        self.put(open)?;
        Ok(Frame { items, first: true, close })
    }

    fn put(&mut self, piece: &[u8]) -> Result<(), F::Error> {
        self.written += piece.len();
        if self.written > MAX_TEXT {
            return Err(JsonbError { byte: 0, kind: JsonbErrorKind::TextTooLong }.into());
        }
        self.sink.put(piece);
        Ok(())
    }

    /// A string in quotes (`escape_json`).
    fn string(&mut self, string: &[u8]) -> Result<(), F::Error> {
        self.put(b"\"")?;
        let mut rest = string;
        while let Some(at) = rest.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\') {
            let (plain, special) = rest.split_at(at);
            self.put(plain)?;
            let Some((&byte, behind)) = special.split_first() else { break };
            match byte {
                b'"' => self.put(b"\\\"")?,
                b'\\' => self.put(b"\\\\")?,
                0x08 => self.put(b"\\b")?,
                0x0C => self.put(b"\\f")?,
                b'\n' => self.put(b"\\n")?,
                b'\r' => self.put(b"\\r")?,
                b'\t' => self.put(b"\\t")?,
                _ => self.put(format!("\\u{byte:04x}").as_bytes())?,
            }
            rest = behind;
        }
        self.put(rest)?;
        self.put(b"\"")
    }
}

/// A container being written.
struct Frame<'a> {
    items: ContainerItems<'a>,
    first: bool,
    close: &'static [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A container of these entries (type bits, bytes), each value aligned as its type asks.
    fn container(kind: u32, count: u32, map: &[u8], entries: &[(u32, &[u8])]) -> Vec<u8> {
        let mut words = (kind << 28 | count).to_le_bytes().to_vec();
        let mut data: Vec<u8> = Vec::new();
        for &(bits, bytes) in entries {
            let start = data.len();
            if matches!(bits, 1 | 5 | 6) {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            data.extend(bytes);
            words.extend((bits << 28 | (data.len() - start) as u32).to_le_bytes());
        }
        [words, map.to_vec(), data].concat()
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(to_text(bytes, ByteOrder::Little).unwrap()).unwrap()
    }

    fn error(bytes: &[u8]) -> JsonbError {
        to_text(bytes, ByteOrder::Little).unwrap_err()
    }

    /// numeric 2 as a varlena
    const TWO: &[u8] = b"\x20\0\0\0\0\x80\x02\0";

    #[test]
    fn scalars_arrays_and_objects() {
        assert_eq!(text(&container(5, 1, b"", &[(4, b"")])), "null");
        assert_eq!(text(&container(5, 1, b"", &[(0, b"a")])), "\"a\"");
        assert_eq!(text(&container(4, 0, b"", &[])), "[]");
        assert_eq!(text(&container(2, 0, b"", &[])), "{}");
        let inner = container(4, 3, b"", &[(2, b""), (3, b""), (1, TWO)]);
        assert_eq!(text(&inner), "[false, true, 2]");
        let object = container(
            2,
            3,
            b"",
            &[(0, b"a"), (0, b""), (0, b"bc"), (5, &inner), (4, b""), (1, TWO)],
        );
        assert_eq!(text(&object), r#"{"a": [false, true, 2], "": null, "bc": 2}"#);
    }

    #[test]
    fn strings_are_escaped_as_escape_json_does() {
        let all: Vec<u8> = (0..=0x22).chain(*b"/\\\x7f\xc3\xa4").collect();
        let escaped = text(&container(5, 1, b"", &[(0, &all)]));
        let control =
            r#""\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f"#;
        let rest = "\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001a\
                    \\u001b\\u001c\\u001d\\u001e\\u001f !\\\"/\\\\\u{7f}ä\"";
        assert_eq!(escaped, format!("{control}{rest}"));
    }

    #[test]
    fn a_value_map_gives_the_values_the_order_of_the_keys() {
        let entries: [(u32, &[u8]); 4] = [(0, b"a"), (0, b"b"), (4, b""), (0, b"long")];
        assert_eq!(text(&container(3, 2, b"\x01\0\0\0", &entries)), r#"{"a": "long", "b": null}"#);
        let kind = JsonbErrorKind::ValueMap { position: 1, count: 2 };
        assert_eq!(
            error(&container(3, 2, b"\x01\x01\0\0", &entries)),
            JsonbError { byte: 21, kind }
        );
        let kind = JsonbErrorKind::ValueMap { position: 2, count: 2 };
        assert_eq!(
            error(&container(3, 2, b"\x02\x01\0\0", &entries)),
            JsonbError { byte: 20, kind }
        );
    }

    #[test]
    fn deep_nesting_takes_no_stack() {
        let mut deep = container(4, 0, b"", &[]);
        for _ in 0..20_000 {
            let words =
                [0x4000_0001u32.to_le_bytes(), (0xD000_0000 | deep.len() as u32).to_le_bytes()];
            deep.splice(0..0, words.concat());
        }
        assert_eq!(text(&deep), format!("{}{}", "[".repeat(20_001), "]".repeat(20_001)));
    }

    #[test]
    fn each_damage_has_its_error_and_place() {
        use JsonbErrorKind as Kind;
        let at = |byte, kind| JsonbError { byte, kind };
        assert_eq!(error(b"\0\0"), at(0, Kind::HeaderCut(2)));
        assert_eq!(error(&container(7, 0, b"", &[])), at(0, Kind::ContainerType(0x7000_0000)));
        assert_eq!(error(&container(0, 0, b"", &[])), at(0, Kind::ContainerType(0)));
        assert_eq!(error(&container(5, 0, b"", &[])), at(0, Kind::ScalarCount(0)));
        let kind = Kind::TooManyEntries { count: 0x0FFF_FFFF, need: 0x3FFF_FFFC, got: 0 };
        assert_eq!(error(&container(4, 0x0FFF_FFFF, b"", &[])), at(0, kind));
        let mut long = container(4, 2, b"", &[(0, b"ab"), (0, b"cd")]);
        long[8] = 3;
        let kind = Kind::EntryBounds { start: 2, end: 5, length: 4 };
        assert_eq!(error(&long), at(8, kind));
        long[8..12].copy_from_slice(&0x8000_0001u32.to_le_bytes());
        let kind = Kind::EntryBounds { start: 2, end: 1, length: 4 };
        assert_eq!(error(&long), at(8, kind));
        let key = container(2, 1, b"", &[(4, b""), (4, b"")]);
        assert_eq!(error(&key), at(4, Kind::Key(0x4000_0000)));
        assert_eq!(error(&container(4, 1, b"", &[(7, b"")])), at(4, Kind::EntryType(0x7000_0000)));
        let short = container(4, 1, b"", &[(1, b"\x30\0\0\0\0\x80\x02\0")]);
        assert!(matches!(error(&short), JsonbError { byte: 8, kind: Kind::Varlena(_) }));
        let slack = container(4, 1, b"", &[(1, b"\x18\0\0\0\0\x80\x02\0")]);
        assert_eq!(error(&slack), at(8, Kind::NumericVarlena(8)));
        let digit = container(4, 1, b"", &[(1, b"\x20\0\0\0\0\x80\xff\xff")]);
        assert!(matches!(error(&digit), JsonbError { byte: 8, kind: Kind::Numeric(_) }));
        let nested = container(4, 2, b"", &[(0, b"xyz"), (5, &container(4, 0, b"", &[])[..3])]);
        assert_eq!(error(&nested), at(16, Kind::HeaderCut(3)));
        let pointer = container(1, 1, b"", &[(0, b"a"), (6, b"\x02\0\0\x40\x03")]);
        assert_eq!(error(&pointer), at(16, Kind::Pointer));
    }

    proptest! {
        #[test]
        fn any_bytes_are_text_or_an_error(
            kind in 1u32..7,
            count in 0u32..20,
            rest in proptest::collection::vec(prop_oneof![4 => Just(0u8), 4 => 0u8..8, 1 => any::<u8>()], 0..400),
        ) {
            let bytes = [&(kind << 28 | count).to_le_bytes()[..], &rest].concat();
            let _ = to_text(&bytes, ByteOrder::Little);
        }
    }
}
