//! What each part of a `jsonb` document takes: every byte belongs to a key or an element, or to a container that
//! holds them (`jsonb.h`).

use strum::VariantArray;

use super::ByteOrder;
use super::jsonb::{Container, ContainerItems, ContainerKind, Item, JsonbError, PlacedItem};

/// Bytes of an entry (`JEntry`).
const ENTRY: u64 = 4;
/// Bytes of a container's header.
const HEADER: u64 = 4;

/// How a part is reached from its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartStep<'a> {
    /// As the value of this key of an object.
    Key(&'a [u8]),
    /// As an element of an array, by its position.
    Element,
    /// As the only value of a document that is not a container.
    Scalar,
}

/// The type of a part, as `jsonb_typeof` names it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum JsonKind {
    /// `null` of JSON, not of SQL.
    Null,
    /// `true` or `false`, in its entry alone.
    Boolean,
    /// A number, stored as a `numeric`.
    Number,
    /// A string, without quotes and escapes.
    String,
    /// An array, with what it contains.
    Array,
    /// An object, with what it contains.
    Object,
    /// A value of a type that JSON does not know.
    Other,
}

impl JsonKind {
    /// All types, in the order of reports.
    pub const ALL: &[JsonKind] = JsonKind::VARIANTS;

    /// The name, as `jsonb_typeof` returns it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<&Item<'_>> for JsonKind {
    fn from(item: &Item<'_>) -> JsonKind {
        match item {
            Item::Null => JsonKind::Null,
            Item::Bool(_) => JsonKind::Boolean,
            Item::Numeric(_) => JsonKind::Number,
            Item::String(_) => JsonKind::String,
            Item::Container(container) if container.kind().is_object() => JsonKind::Object,
            Item::Container(_) => JsonKind::Array,
            Item::Pointer(pointer) if pointer.class.object => JsonKind::Object,
            Item::Pointer(_) => JsonKind::Array,
        }
    }
}

/// The datum that a part becomes if it is extracted from its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtractedDatum {
    /// NULL of SQL, without a document.
    Null,
    /// A varlena with a header of 4 bytes, and this many bytes of content.
    Varlena(u64),
    /// A varlena with a header of 1 byte, and this many bytes of content.
    Short(u64),
    /// A value of fixed length, in bytes.
    Fixed(u64),
}

impl ExtractedDatum {
    /// The size in bytes, as `pg_column_size` returns it.
    pub fn size(self) -> u64 {
        match self {
            ExtractedDatum::Null => 0,
            ExtractedDatum::Varlena(content) => content + 4,
            ExtractedDatum::Short(content) => content + 1,
            ExtractedDatum::Fixed(bytes) => bytes,
        }
    }
}

/// A part of a document.
#[derive(Debug, Clone, Copy)]
pub struct VisitedPart<'a> {
    /// How the part is reached from its container.
    pub step: PartStep<'a>,
    /// The type of its value.
    pub kind: JsonKind,
    /// Bytes that it takes in its container: entries, text of the key, padding, value.
    pub bytes: u64,
    /// The value alone, without entry and padding.
    pub value: &'a [u8],
    /// Offset of the value in the document.
    pub byte: usize,
    /// The datum that it becomes by itself.
    pub extracted: ExtractedDatum,
}

impl<'a> VisitedPart<'a> {
    fn new(placed: &PlacedItem<'a>, scalar: bool) -> VisitedPart<'a> {
        let PlacedItem { key, item, bytes, byte, padding } = *placed;
        let (step, own) = match key {
            Some(key) => (PartStep::Key(key), 2 * ENTRY + key.len() as u64),
            None if scalar => (PartStep::Scalar, ENTRY),
            None => (PartStep::Element, ENTRY),
        };
        let kind = JsonKind::from(&item);
        // a scalar is put into an array
        let around = match kind {
            JsonKind::Array | JsonKind::Object => 0,
            _ => HEADER + ENTRY,
        };
        let bytes_all = own + (padding + bytes.len()) as u64;
        let extracted = ExtractedDatum::Varlena(around + bytes.len() as u64);
        VisitedPart { step, kind, bytes: bytes_all, value: bytes, byte, extracted }
    }
}

/// Receives the parts of a document.
pub trait Visit {
    /// How the visitor identifies a part.
    type At: Copy;

    /// Takes a part of the container that `inside` stands for. The parts of this part follow if the result says
    /// what it is known by.
    fn part(&mut self, inside: Self::At, part: &VisitedPart<'_>) -> Option<Self::At>;
}

/// Ignores the parts: the result of the walk shows whether they can be read.
#[derive(Debug, Clone, Copy)]
pub struct Validate;

impl Visit for Validate {
    type At = ();

    fn part(&mut self, (): (), _: &VisitedPart<'_>) -> Option<()> {
        Some(())
    }
}

/// Gives all parts of the document down to `depth` levels, keys of the document itself being the first. Returns the
/// bytes that belong to none of the first level's: `content` has as many as these and those.
///
/// # Errors
/// If the document is damaged. Parts that were passed to `visit` before are valid.
pub fn walk<V: Visit>(
    content: &[u8],
    order: ByteOrder,
    depth: u8,
    document: V::At,
    visit: &mut V,
) -> Result<u64, JsonbError> {
    container(&Container::parse(content, order)?, depth, document, visit)
}

/// As [`walk`]. Recursion ends with `depth`.
fn container<V: Visit>(
    container_: &Container<'_>,
    depth: u8,
    inside: V::At,
    visit: &mut V,
) -> Result<u64, JsonbError> {
    let scalar = container_.kind() == ContainerKind::Scalar;
    let mut items: ContainerItems<'_> = container_.items()?;
    while let Some(placed) = items.next_placed() {
        let placed = placed?;
        let known = visit.part(inside, &VisitedPart::new(&placed, scalar));
        if let (Some(known), Item::Container(inner), 2..) = (known, &placed.item, depth) {
            container(inner, depth - 1, known, visit)?;
        }
    }
    Ok((container_.overhead() + items.left_over()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::jsonb_of_text::jsonb;
    use proptest::prelude::*;

    /// Adds up what each level takes.
    #[derive(Default)]
    struct Sums {
        by_level: Vec<u64>,
        paths: Vec<String>,
    }

    impl Visit for Sums {
        type At = usize;

        fn part(&mut self, level: usize, part: &VisitedPart<'_>) -> Option<usize> {
            self.by_level.resize(self.by_level.len().max(level + 1), 0);
            self.by_level[level] += part.bytes;
            let name = match part.step {
                PartStep::Key(key) => String::from_utf8_lossy(key).into_owned(),
                PartStep::Element => "[]".into(),
                PartStep::Scalar => "$".into(),
            };
            self.paths.push(format!(
                "{}{name}:{}:{}",
                " ".repeat(level),
                part.kind.name(),
                part.bytes
            ));
            Some(level + 1)
        }
    }

    fn sums(text: &str, depth: u8) -> (usize, u64, Sums) {
        let content = jsonb(text.as_bytes()).unwrap();
        let mut sums = Sums::default();
        let own = walk(&content, ByteOrder::Little, depth, 0, &mut sums).unwrap();
        (content.len(), own, sums)
    }

    #[test]
    fn every_byte_belongs_to_a_key_or_to_the_container() {
        let (length, own, sums) =
            sums(r#"{"a": 1, "bb": "xyz", "ccc": [true, null, {"d": 1.5}]}"#, 3);
        // 4 of the header; key text 6, 6 entries; 2 bytes to align, numeric 8; string 3; 1 to align, array
        assert_eq!(own, 4);
        assert_eq!(sums.by_level[0] + own, length as u64);
        insta::assert_snapshot!(sums.paths.join("\n"), @r"
        a:number:19
        bb:string:13
        ccc:array:54
         []:boolean:4
         []:null:4
         []:object:30
          d:number:22
        ");
    }

    #[test]
    fn a_document_that_is_a_scalar_is_one_part() {
        for text in ["null", "true", "\"text\"", "12.50"] {
            let (length, own, sums) = sums(text, 1);
            assert_eq!(own + sums.by_level[0], length as u64);
            assert!(sums.paths[0].starts_with("$:"));
        }
        let (length, own, sums) = sums("{}", 1);
        assert_eq!((length, own, sums.by_level.len()), (4, 4, 0));
    }

    /// Any document as its text.
    fn any_text() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            (any::<i32>(), 0u32..1_000_000).prop_map(|(a, b)| format!("{a}.{b:06}")),
            ".{0,40}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        ];
        leaf.prop_recursive(6, 200, 40, |inner| {
            let pair = (".{0,9}", inner.clone()).prop_map(|(key, value)| {
                format!("{}: {value}", serde_json::to_string(&key).unwrap())
            });
            prop_oneof![
                proptest::collection::vec(inner, 0..40).prop_map(|v| format!("[{}]", v.join(", "))),
                proptest::collection::vec(pair, 0..40)
                    .prop_map(|v| format!("{{{}}}", v.join(", "))),
            ]
        })
    }

    proptest! {
        #[test]
        fn parts_of_any_document_sum_to_its_size(text in any_text(), depth in 1u8..8) {
            let (length, own, sums) = sums(&text, depth);
            let first = sums.by_level.first().copied().unwrap_or(0);
            prop_assert_eq!(own + first, length as u64);
        }

        #[test]
        fn any_bytes_are_parts_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0u8..8,
            count in 0u8..9,
        ) {
            let mut bytes = bytes;
            if let Some(header) = bytes.first_chunk_mut::<4>() {
                *header = [count, 0, 0, kind << 4];
            }
            let _ = walk(&bytes, ByteOrder::Little, 64, (), &mut Validate);
        }
    }
}
