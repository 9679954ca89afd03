//! `hstore` of contrib: what each key takes (`hstore.h`), and the stored form of what the server prints.
//!
//! The content behind the varlena header:
//!
//! | bytes | |
//! |---|---|
//! | 4 | number of pairs, in the low 28 bits; the highest bit is set (`HS_FLAG_NEWVERSION`) |
//! | 8 for each pair | an entry (`HEntry`) for the key, one for the value: where it ends among the strings, and flags |
//! | the rest | keys and values by turns, without terminators or padding |

use super::ByteOrder;
use super::error::ContentError;
use super::jsonb_parts::{ExtractedDatum, JsonKind, PartStep, Visit, VisitedPart};

/// `HS_FLAG_NEWVERSION` of `hstore.h`.
const NEW_VERSION: u32 = 0x8000_0000;
/// The bits that `HS_COUNT` reads (`hstore.h`).
const COUNT: u32 = 0x0FFF_FFFF;
/// `HENTRY_ISFIRST` of `hstore.h`.
const IS_FIRST: u32 = 0x8000_0000;
/// `HENTRY_ISNULL` of `hstore.h`.
const IS_NULL: u32 = 0x4000_0000;
/// `HENTRY_POSMASK` of `hstore.h`.
const POSITION: u32 = 0x3FFF_FFFF;
/// Bytes of the number of pairs.
const HEADER: usize = 4;
/// Bytes of an entry.
const ENTRY: usize = 4;

/// Gives all pairs, one after the other. Returns the bytes that belong to none: `content` has as many as these and
/// those.
///
/// # Errors
/// If it is damaged. Pairs that were passed to `visit` before are valid.
pub fn walk<V: Visit>(
    content: &[u8],
    order: ByteOrder,
    document: V::At,
    visit: &mut V,
) -> Result<u64, ContentError> {
    let got = content.len();
    let cut = |need| ContentError::HstoreCut { need, got };
    let word = order.u32(content, 0).ok_or(cut(HEADER as u64))?;
    if word & NEW_VERSION == 0 {
        return Err(ContentError::HstoreVersion(word));
    }
    let pairs = word & COUNT;
    let first_string = HEADER as u64 + u64::from(pairs) * 2 * ENTRY as u64;
    let start = usize::try_from(first_string).map_err(|_| cut(first_string))?;
    let strings = content.get(start..).ok_or(cut(first_string))?;
    let mut before = 0;
    let mut string = |byte: usize| -> Result<(&[u8], usize, bool), ContentError> {
        let entry = order.u32(content, byte).ok_or(cut(first_string))?;
        let end = entry & POSITION;
        let from = if entry & IS_FIRST == 0 { before } else { 0 };
        let damaged =
            ContentError::HstoreEntry { entry, end, strings: strings.len(), before: from, byte };
        if from != before {
            return Err(damaged);
        }
        let bytes = strings.get(from..end as usize).ok_or(damaged)?;
        before = end as usize;
        Ok((bytes, start + from, entry & IS_NULL != 0))
    };
    for pair in 0..pairs as usize {
        let byte = HEADER + pair * 2 * ENTRY;
        let (key, ..) = string(byte)?;
        let (value, at, null) = string(byte + ENTRY)?;
        let (kind, extracted) = if null {
            (JsonKind::Null, ExtractedDatum::Null)
        } else {
            (JsonKind::String, ExtractedDatum::Varlena(value.len() as u64))
        };
        let bytes = (2 * ENTRY + key.len() + value.len()) as u64;
        let step = PartStep::Key(key);
        visit.part(document, &VisitedPart { step, kind, bytes, value, byte: at, extracted });
    }
    Ok((HEADER + strings.len() - before) as u64)
}

/// What is stored, little-endian, of the `hstore` that the server prints so: `"key"=>"value", "other"=>NULL`, in the
/// order in which pairs are stored.
///
/// # Errors
/// Where no server prints that.
pub fn hstore(text: &[u8]) -> Result<Vec<u8>, ContentError> {
    let mut reader = HstoreTextReader { text, at: 0 };
    let mut entries = Vec::new();
    let mut strings = Vec::new();
    while reader.at < text.len() {
        if !entries.is_empty() {
            reader.takes(b", ")?;
        }
        reader.string(&mut strings)?;
        let flag = if entries.is_empty() { IS_FIRST } else { 0 };
        entries.push(ended(&strings) | flag);
        reader.takes(b"=>")?;
        let null = reader.takes(b"NULL").is_ok();
        if !null {
            reader.string(&mut strings)?;
        }
        entries.push(ended(&strings) | if null { IS_NULL } else { 0 });
    }
    let pairs = u32::try_from(entries.len() / 2).unwrap_or(COUNT) & COUNT;
    let mut content = Vec::with_capacity(HEADER + entries.len() * ENTRY + strings.len());
    content.extend((pairs | NEW_VERSION).to_le_bytes());
    content.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
    content.append(&mut strings);
    Ok(content)
}

fn ended(strings: &[u8]) -> u32 {
    u32::try_from(strings.len()).unwrap_or(POSITION) & POSITION
}

struct HstoreTextReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl HstoreTextReader<'_> {
    fn takes(&mut self, expected: &[u8]) -> Result<(), ContentError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(expected) {
            return Err(ContentError::HstoreText(self.at));
        }
        self.at += expected.len();
        Ok(())
    }

    /// A string in quotes, in which a backslash stands before a quote and before another backslash.
    fn string(&mut self, into: &mut Vec<u8>) -> Result<(), ContentError> {
        self.takes(b"\"")?;
        loop {
            let &byte = self.text.get(self.at).ok_or(ContentError::HstoreText(self.at))?;
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => {
                    let &escaped =
                        self.text.get(self.at).ok_or(ContentError::HstoreText(self.at))?;
                    into.push(escaped);
                    self.at += 1;
                }
                other => into.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Pairs {
        bytes: u64,
        shown: Vec<String>,
    }

    impl Visit for Pairs {
        type At = ();

        fn part(&mut self, (): (), part: &VisitedPart<'_>) -> Option<()> {
            self.bytes += part.bytes;
            let PartStep::Key(key) = part.step else { panic!("{part:?}") };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let size = part.extracted.size();
            self.shown.push(format!("{}={} at {}, {size}", text(key), text(part.value), part.byte));
            Some(())
        }
    }

    fn pairs(text: &str) -> (usize, u64, Pairs) {
        let content = hstore(text.as_bytes()).unwrap();
        let mut pairs = Pairs::default();
        let own = walk(&content, ByteOrder::Little, (), &mut pairs).unwrap();
        (content.len(), own, pairs)
    }

    #[test]
    fn every_byte_belongs_to_a_pair_or_to_the_header() {
        let (length, own, found) = pairs(r#""a"=>"1", "b\"\\"=>NULL, "key"=>"", "long"=>"x, y""#);
        assert_eq!((own, own + found.bytes), (4, length as u64));
        assert_eq!(
            found.shown,
            ["a=1 at 37, 5", "b\"\\= at 41, 0", "key= at 44, 4", "long=x, y at 48, 8"]
        );
        let (length, own, found) = pairs("");
        assert_eq!((length, own, found.shown.len()), (4, 4, 0));
    }

    #[test]
    fn what_is_no_hstore_is_told() {
        let message = |content: &[u8]| {
            walk(content, ByteOrder::Little, (), &mut Pairs::default()).unwrap_err().to_string()
        };
        assert_eq!(
            message(&[1, 0]),
            "hstore has 2 bytes, header and entries alone need 4 (hstore byte 0)"
        );
        assert_eq!(
            message(&[1, 0, 0, 0x80, 0, 0]),
            "hstore has 6 bytes, header and entries alone need 12 (hstore byte 0)"
        );
        let old = "hstore header 0x00000001 is none of PostgreSQL 9.0 or later (hstore byte 0)";
        assert_eq!(message(&[1, 0, 0, 0]), old);
        let mut content = hstore(b"\"ab\"=>\"cd\"").unwrap();
        content[8] = 1;
        assert!(
            message(&content).contains("hstore entry 0x00000001 ends at 1"),
            "{}",
            message(&content)
        );
        content[8] = 5;
        assert!(message(&content).contains("ends at 5 of 4 bytes"), "{}", message(&content));
        for text in ["a=>1", "\"a\"", "\"a\"=>", "\"a\"=>\"1\",", "\"a\"=>\"1\" ", "\"a", "\"a\\"] {
            assert!(hstore(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_pairs_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), pairs in 0u8..9) {
            let mut bytes = bytes;
            if let Some(header) = bytes.first_chunk_mut::<4>() {
                *header = [pairs, 0, 0, 0x80];
            }
            let mut found = Pairs::default();
            if let Ok(own) = walk(&bytes, ByteOrder::Little, (), &mut found) {
                prop_assert_eq!(own + found.bytes, bytes.len() as u64);
            }
            let _ = hstore(&bytes);
        }

        #[test]
        fn pairs_of_any_hstore_sum_to_its_size(
            texts in proptest::collection::vec(("[a-z\"\\\\,=> ]{0,9}", proptest::option::of(".{0,20}")), 0..20)
        ) {
            let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            let pair = |(key, value): &(String, Option<String>)| {
                format!("{}=>{}", quoted(key), value.as_deref().map_or("NULL".into(), quoted))
            };
            let all: Vec<String> = texts.iter().map(pair).collect();
            let (length, own, found) = pairs(&all.join(", "));
            prop_assert_eq!((own, own + found.bytes), (4, length as u64));
            prop_assert_eq!(found.shown.len(), texts.len());
        }
    }
}
