//! The formats of contents (pure): text, jsonb, numeric, and types that consist of parts, such as arrays, composite
//! types, ranges, `hstore` and `tsvector`. Contents that are refused here make the functions of the type fail, crash the
//! server or return wrong data.

use super::code::Code;
use super::value::{Damage, inline_content};
use toast_format::disk::jsonb_text::{InPlace, JsonbText, TextSink};
use toast_format::disk::numeric::Numeric;
use toast_format::disk::type_kind::{Made, Type, Types};
use toast_format::disk::types::is_text_like;
use toast_format::disk::varlena::VARLENA_HEADER_SIZE;
use toast_format::disk::{
    Align, Attribute, ByteOrder, Datum, HeapTuple, Length, Oid, TupleDesc, Varlena, Walk, max_align,
};

const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

/// The most dimensions of an array (`MAXDIM`).
const MAX_DIMENSIONS: u32 = 6;
/// `ArrayType` without its length word: `ndim`, `dataoffset`, `elemtype`.
const ARRAY_HEADER: usize = 12;
/// The length word: content begins after it, but offsets inside a value include it.
const LENGTH_WORD: usize = VARLENA_HEADER_SIZE as usize;
/// The maximum nesting of values that are checked.
const DEPTH: u32 = 32;

type Verdict = Result<(), Damage>;

fn wrong<T>(expected: impl Into<String>, found: impl Into<String>) -> Result<T, Damage> {
    Err(Damage::new(Code::Content, expected, found))
}

fn wrong_array<T>(expected: impl Into<String>, found: impl Into<String>) -> Result<T, Damage> {
    Err(Damage::new(Code::Array, expected, found))
}

/// Checks contents by the formats of their types.
#[derive(Clone, Copy)]
pub(super) struct Formats<'t> {
    pub(super) types: &'t Types,
    pub(super) order: ByteOrder,
    /// Whether the database's encoding is UTF8, the only one that is checked.
    pub(super) utf8: bool,
}

impl Formats<'_> {
    /// What is wrong with a value of this type. `oid` is 0 where only the name is known.
    pub(super) fn value(&self, of: &Type, oid: Oid, content: &[u8]) -> Verdict {
        self.inside(of, oid, content, 0)
    }

    /// A value of fixed length.
    pub(super) fn fixed(&self, of: &Type, bytes: &[u8]) -> Verdict {
        match &of.made {
            Made::Enum(labels) => {
                let label = self.order.u32(bytes, 0).unwrap_or(0);
                if labels.contains(&label) {
                    return Ok(());
                }
                wrong(format!("a label of the enum {}", of.name), format!("OID {label}"))
            }
            Made::Domain(base) => {
                self.types.get(*base).map_or(Ok(()), |base| self.fixed(&base, bytes))
            }
            _ => Ok(()),
        }
    }

    fn inside(&self, of: &Type, oid: Oid, content: &[u8], depth: u32) -> Verdict {
        if depth > DEPTH {
            return Ok(());
        }
        match &of.made {
            Made::Domain(base) => match self.types.get(*base) {
                Some(base_type) => self.inside(&base_type, *base, content, depth + 1),
                None => Ok(()),
            },
            Made::Array(element) => self.array(*element, content, depth),
            Made::Composite(desc) => self.composite(desc, oid, content, depth),
            Made::Range(subtype) => self.range(*subtype, oid, content, depth),
            Made::Multirange(range) => self.multirange(*range, oid, content, depth),
            Made::Enum(_) => Ok(()),
            Made::Base => self.base(&of.name, oid, content),
        }
    }

    fn base(&self, name: &str, oid: Oid, content: &[u8]) -> Verdict {
        match (oid.0, name) {
            (JSONB, _) => self.jsonb(content),
            (NUMERIC, _) => Numeric::parse(content, self.order)
                .map(drop)
                .map_err(|error| Damage::new(Code::Numeric, "a numeric", error.to_string())),
            (0 | 16_384.., "citext") => self.text(content),
            (0 | 16_384.., "hstore") => self.hstore(content),
            (0 | 16_384.., "ltree") => self.ltree(content),
            (650 | 869, _) => inet(content, oid.0 == 650),
            (1560 | 1562, _) => self.bits(content),
            (602, _) => self.points(content, 12),
            (604, _) => self.points(content, 36),
            (3614, _) => self.tsvector(content),
            (3615, _) => self.tsquery(content),
            _ if is_text_like(oid) => self.text(content),
            _ => Ok(()),
        }
    }

    fn text(&self, content: &[u8]) -> Verdict {
        let nul = content.iter().position(|&byte| byte == 0);
        let invalid = if self.utf8 { std::str::from_utf8(content).err() } else { None };
        let Some(at) = invalid.map(|error| error.valid_up_to()).into_iter().chain(nul).min() else {
            return Ok(());
        };
        let byte = content.get(at).copied().unwrap_or(0);
        let expected = if self.utf8 { "UTF-8 without NUL" } else { "text without NUL" };
        Err(Damage::new(Code::Encoding, expected, format!("byte 0x{byte:02x} at {at} of the text")))
    }

    fn jsonb(&self, content: &[u8]) -> Verdict {
        let mut pieces = Pieces { utf8: self.utf8, invalid: false };
        JsonbText::new(&mut pieces, &mut InPlace, self.order)
            .value(content)
            .map_err(|error| Damage::new(Code::Jsonb, "a jsonb document", error.to_string()))?;
        if pieces.invalid {
            return Err(Damage::new(Code::Encoding, "strings in UTF-8", "a string that is not"));
        }
        Ok(())
    }

    /// A value of this type inside another value.
    fn part(&self, of: &Type, oid: Oid, value: Varlena<'_>, depth: u32) -> Verdict {
        match value {
            Varlena::Short { content } | Varlena::Plain { content } => {
                self.inside(of, oid, content, depth + 1)
            }
            Varlena::Compressed { tc_info, stream } => {
                self.inside(of, oid, &inline_content(tc_info, stream)?, depth + 1)
            }
            Varlena::External(_) | Varlena::Custom(_) | Varlena::Unknown { .. } => {
                wrong(format!("a value of {}", of.name), "a TOAST pointer")
            }
        }
    }

    /// The datum of this type that `bytes` begin with; how many bytes it takes.
    fn datum(&self, of: &Type, oid: Oid, bytes: &[u8], depth: u32) -> Result<usize, Damage> {
        match of.length {
            Length::Fixed(length) => {
                let length = usize::from(length);
                match bytes.get(..length) {
                    Some(own) => self.fixed(of, own).map(|()| length),
                    None => {
                        wrong(format!("{length} bytes of {}", of.name), bytes.len().to_string())
                    }
                }
            }
            Length::CString => match bytes.iter().position(|&byte| byte == 0) {
                Some(at) => Ok(at + 1),
                None => wrong("a text that ends with NUL", "none"),
            },
            Length::Varlena => {
                let (value, length) = Varlena::parse(bytes, self.order).map_err(|error| {
                    Damage::new(Code::Content, format!("a value of {}", of.name), error.to_string())
                })?;
                self.part(of, oid, value, depth)?;
                Ok(length)
            }
        }
    }

    /// `ArrayType` (`utils/array.h`). `element` is 0 where it is not known.
    fn array(&self, element: Oid, content: &[u8], depth: u32) -> Verdict {
        let u32 = |at| self.order.u32(content, at);
        let (Some(dimensions), Some(data), Some(got)) = (u32(0), u32(4), u32(8)) else {
            let found = format!("{} bytes", content.len());
            return wrong_array(format!("an array header of {ARRAY_HEADER} bytes"), found);
        };
        if dimensions > MAX_DIMENSIONS {
            let found = dimensions.to_string();
            return wrong_array(format!("at most {MAX_DIMENSIONS} dimensions"), found);
        }
        if got == 0 {
            return wrong_array("an element type", "0");
        }
        if element.0 != 0 && got != element.0 {
            return wrong_array(format!("the element type {element}"), got.to_string());
        }
        let dimensions = dimensions as usize;
        let bounds = ARRAY_HEADER + dimensions * 8;
        let mut elements: u64 = 1;
        for dimension in 0..dimensions {
            let size = u32(ARRAY_HEADER + dimension * 4);
            let lower = u32(ARRAY_HEADER + (dimensions + dimension) * 4);
            let (Some(size), Some(lower)) = (size, lower) else {
                let found = content.len().to_string();
                return wrong_array(format!("{bounds} bytes of bounds"), found);
            };
            if size > i32::MAX as u32 || (lower as i32).checked_add(size as i32).is_none() {
                let found = format!("{} from {}", size as i32, lower as i32);
                return wrong_array("a dimension's size and lower bound", found);
            }
            elements = elements.saturating_mul(u64::from(size));
        }
        let elements = if dimensions == 0 { 0 } else { elements };
        // each element takes a bit of the null bitmap or a byte at least
        let room = content.len().saturating_sub(bounds) as u64;
        if elements > room.saturating_mul(8) {
            let found = elements.to_string();
            return wrong_array(format!("at most {} elements in {room} bytes", room * 8), found);
        }
        let end = LENGTH_WORD + content.len();
        let mut first = max_align(LENGTH_WORD + bounds);
        let mut nulls = None;
        if data != 0 {
            let bitmap = usize::try_from(elements.div_ceil(8)).unwrap_or(usize::MAX);
            let least = (LENGTH_WORD + bounds).saturating_add(bitmap);
            if (data as usize) < least || data as usize > end {
                let expected = format!("data from byte {least} to {end}");
                return wrong_array(expected, format!("byte {data}"));
            }
            nulls = content.get(bounds..bounds + bitmap);
            first = data as usize;
        }
        if dimensions == 0 {
            return Ok(());
        }
        self.elements(Oid(got), elements, nulls, content, first, depth)
    }

    /// The elements of an array, from byte `first` of the value on.
    fn elements(
        &self,
        element: Oid,
        elements: u64,
        nulls: Option<&[u8]>,
        content: &[u8],
        first: usize,
        depth: u32,
    ) -> Verdict {
        let Some(of) = self.types.get(element) else { return Ok(()) };
        let end = LENGTH_WORD + content.len();
        let mut at = first;
        for index in 0..elements as usize {
            let is_null = nulls
                .is_some_and(|bits| bits.get(index / 8).is_some_and(|b| b >> (index % 8) & 1 == 0));
            if is_null {
                continue;
            }
            let bytes = at.checked_sub(LENGTH_WORD).and_then(|at| content.get(at..)).unwrap_or(&[]);
            let length = self.datum(&of, element, bytes, depth).map_err(|mut damage| {
                if damage.code == Code::Content {
                    damage.code = Code::Array;
                }
                damage.found.push_str(&format!(", in element {}", index + 1));
                damage
            })?;
            at = of.align.align(at + length);
        }
        if at != end {
            let expected = format!("{elements} elements up to byte {end}");
            return wrong_array(expected, format!("up to byte {at}"));
        }
        Ok(())
    }

    /// A composite value: `HeapTupleHeaderData` with `DatumTupleFields`.
    fn composite(&self, desc: &TupleDesc, oid: Oid, content: &[u8], depth: u32) -> Verdict {
        let whole = [&[0; LENGTH_WORD], content].concat();
        let tuple = HeapTuple::parse(&whole, self.order)
            .map_err(|error| Damage::new(Code::Content, "a composite value", error.to_string()))?;
        let got = self.order.u32(&whole, 8).unwrap_or(0);
        if got != oid.0 {
            return wrong(format!("the composite type {oid}"), got.to_string());
        }
        for walked in Walk::new(&tuple, desc) {
            let (column, datum) = walked.map_err(|error| {
                Damage::new(Code::Content, "attributes of a composite value", error.to_string())
            })?;
            if column.dropped {
                continue;
            }
            let Some(of) = self.types.of_column(column) else { continue };
            match datum {
                Datum::Fixed(bytes) => self.fixed(&of, bytes)?,
                Datum::Varlena(
                    Varlena::External(_) | Varlena::Custom(_) | Varlena::Unknown { .. },
                ) => return wrong("a value", "a TOAST pointer in a composite value"),
                Datum::Varlena(value) => self.part(&of, column.type_oid, value, depth)?,
                Datum::Null | Datum::Missing | Datum::CString(_) => {}
            }
        }
        Ok(())
    }

    /// The bounds of a range from byte `at` of the value on; where they end (`range_deserialize`).
    fn bounds(
        &self,
        oid: Oid,
        of: &Type,
        content: &[u8],
        flags: u8,
        mut at: usize,
        depth: u32,
    ) -> Result<usize, Damage> {
        let is_sound = match flags {
            flags if flags & EMPTY != 0 => flags == EMPTY,
            flags => {
                flags & !(LOWER_INC | UPPER_INC | LOWER_INF | UPPER_INF) == 0
                    && flags & (LOWER_INC | LOWER_INF) != LOWER_INC | LOWER_INF
                    && flags & (UPPER_INC | UPPER_INF) != UPPER_INC | UPPER_INF
            }
        };
        if !is_sound {
            return wrong("flags of a range", format!("0x{flags:02x}"));
        }
        for (infinite, is_upper) in [(LOWER_INF, false), (UPPER_INF, true)] {
            if flags & (EMPTY | infinite) != 0 {
                continue;
            }
            let rest = |at: usize| content.get(at - LENGTH_WORD..).unwrap_or(&[]);
            let is_short = of.length == Length::Varlena && rest(at).first() != Some(&0);
            if is_upper && !is_short {
                at = of.align.align(at);
            }
            at += self.datum(of, oid, rest(at), depth)?;
        }
        Ok(at)
    }

    /// `RangeType`, with its flags in the last byte.
    fn range(&self, subtype: Oid, oid: Oid, content: &[u8], depth: u32) -> Verdict {
        self.own_type(oid, content)?;
        let (Some((&flags, before)), Some(of)) = (content.split_last(), self.types.get(subtype))
        else {
            return Ok(());
        };
        let end = LENGTH_WORD + before.len();
        match self.bounds(subtype, &of, before, flags, 2 * LENGTH_WORD, depth)? {
            at if at == end => Ok(()),
            at => wrong(format!("bounds up to byte {end}"), format!("up to byte {at}")),
        }
    }

    /// Ranges have their own type's OID in front.
    fn own_type(&self, oid: Oid, content: &[u8]) -> Verdict {
        match self.order.u32(content, 0) {
            None => wrong("the OID of the range's type", format!("{} bytes", content.len())),
            Some(got) if oid.0 != 0 && got != oid.0 => {
                wrong(format!("the range type {oid}"), got.to_string())
            }
            Some(_) => Ok(()),
        }
    }

    /// `MultirangeType`: how long each range but the first is away from the one before, the flags of each, bounds.
    fn multirange(&self, range: Oid, oid: Oid, content: &[u8], depth: u32) -> Verdict {
        self.own_type(oid, content)?;
        let Some(range) = self.types.get(range) else { return Ok(()) };
        let Made::Range(subtype) = range.made else { return Ok(()) };
        let Some(of) = self.types.get(subtype) else { return Ok(()) };
        let count = self.order.u32(content, 4).unwrap_or(0) as usize;
        let items = 2 * LENGTH_WORD;
        let flags_at = items.saturating_add(count.saturating_sub(1).saturating_mul(4));
        let Some(flags) = content.get(flags_at..).and_then(|rest| rest.get(..count)) else {
            return wrong(format!("{count} ranges"), format!("{} bytes", content.len()));
        };
        let first = of.align.align(LENGTH_WORD + flags_at + count);
        let mut at = first;
        for (index, &flags) in flags.iter().enumerate() {
            if let Some(before) = index.checked_sub(1) {
                let item = self.order.u32(content, items + before * 4).unwrap_or(0);
                if item & OFFSET != 0 && (item & !OFFSET) as usize != at - first {
                    let found = (item & !OFFSET).to_string();
                    return wrong(format!("range {} at byte {}", index + 1, at - first), found);
                }
            }
            at = of.align.align(self.bounds(subtype, &of, content, flags, at, depth)?);
        }
        match LENGTH_WORD + content.len() {
            end if count == 0 || at == end => Ok(()),
            end => wrong(format!("ranges up to byte {end}"), format!("up to byte {at}")),
        }
    }

    /// `VarBit`: how many bits, and the bits.
    fn bits(&self, content: &[u8]) -> Verdict {
        let Some((bits, bytes)) = self.order.u32(content, 0).zip(content.get(4..)) else {
            return wrong("the number of bits", format!("{} bytes", content.len()));
        };
        if u64::from(bits).div_ceil(8) != bytes.len() as u64 {
            return wrong(format!("{} bits", bytes.len() * 8), bits.to_string());
        }
        let rest = bits % 8;
        match bytes.last() {
            Some(&last) if rest != 0 && last << rest != 0 => {
                wrong("zeros behind the last bit", format!("0x{last:02x}"))
            }
            _ => Ok(()),
        }
    }

    /// `PATH` and `POLYGON`: the number of points, and the points, which begin at byte `before` of the content.
    fn points(&self, content: &[u8], before: usize) -> Verdict {
        let count = self.order.u32(content, 0).unwrap_or(0);
        if content.len() as u64 == before as u64 + 16 * u64::from(count) {
            return Ok(());
        }
        wrong(format!("points in {} bytes", content.len()), format!("{} points", count as i32))
    }

    /// `hstore.h`: entries in front of the strings. Other than its reader, keys must be in order.
    fn hstore(&self, content: &[u8]) -> Verdict {
        let Some(word) = self.order.u32(content, 0) else {
            return wrong("an hstore", format!("{} bytes", content.len()));
        };
        let pairs = (word & 0x0FFF_FFFF) as usize;
        if word & 0x8000_0000 == 0 {
            return self.old_hstore(pairs, content);
        }
        let strings = behind_entries(content, pairs, 8, "pairs")?;
        let mut from: usize = 0;
        let mut last_key: Option<&[u8]> = None;
        for index in 0..pairs * 2 {
            let entry = self.order.u32(content, 4 + index * 4).unwrap_or(0);
            let end = (entry & 0x3FFF_FFFF) as usize;
            let is_first = entry & 0x8000_0000 != 0;
            let is_null = entry & 0x4000_0000 != 0;
            let is_key = index % 2 == 0;
            let string = strings.get(from..end);
            let (Some(string), true) = (string, is_first == (index == 0) && !(is_key && is_null))
            else {
                return wrong(format!("an entry from byte {from} on"), format!("0x{entry:08x}"));
            };
            self.text(string)?;
            if is_key {
                let is_behind =
                    last_key.is_none_or(|last| (last.len(), last) < (string.len(), string));
                if !is_behind {
                    return wrong("keys in order", format!("a key at byte {from}"));
                }
                last_key = Some(string);
            }
            from = end;
        }
        if from == strings.len() {
            Ok(())
        } else {
            wrong(format!("strings of {from} bytes"), strings.len().to_string())
        }
    }

    /// Of PostgreSQL before 9.0, which the server still reads (`hstore_compat.c`).
    fn old_hstore(&self, pairs: usize, content: &[u8]) -> Verdict {
        let start = pairs.saturating_mul(8).saturating_add(4);
        let room = content.len().checked_sub(start);
        for index in 0..pairs {
            let at = 4 + index * 8;
            let u16 = |at| self.order.u16(content, at).map(usize::from);
            let position = self.order.u32(content, at + 4);
            let (Some(key), Some(value), Some(position)) = (u16(at), u16(at + 2), position) else {
                break;
            };
            let (position, is_null) = match self.order {
                ByteOrder::Little => (position >> 1, position & 1 != 0),
                ByteOrder::Big => (position & 0x7FFF_FFFF, position >> 31 != 0),
            };
            let end = position as usize + key + if is_null { 0 } else { value };
            if room.is_none_or(|room| end > room) {
                return wrong("an hstore", format!("a pair up to byte {end} of the strings"));
            }
        }
        match room {
            Some(_) => Ok(()),
            None => wrong(format!("{pairs} pairs"), format!("{} bytes", content.len())),
        }
    }

    /// `ts_type.h`: entries in order, in front of words and positions.
    fn tsvector(&self, content: &[u8]) -> Verdict {
        let count = self.order.u32(content, 0).unwrap_or(u32::MAX) as usize;
        let words = behind_entries(content, count, 4, "words")?;
        let mut before: Option<&[u8]> = None;
        for index in 0..count {
            let entry = self.order.u32(content, 4 + index * 4).unwrap_or(0);
            let (has_positions, length, at) = match self.order {
                ByteOrder::Little => (entry & 1 != 0, entry >> 1 & 0x7FF, entry >> 12),
                ByteOrder::Big => (entry >> 31 != 0, entry >> 20 & 0x7FF, entry & 0xF_FFFF),
            };
            let end = at as usize + length as usize;
            let at = at as usize;
            let Some(word) = words.get(at..end) else {
                return wrong(
                    format!("a word in {} bytes", words.len()),
                    format!("byte {at} to {end}"),
                );
            };
            self.text(word)?;
            if before.is_some_and(|before| before >= word) {
                return wrong("words in order", format!("the word at byte {at}"));
            }
            before = Some(word);
            if has_positions {
                self.positions(words, Align::Short.align(end))?;
            }
        }
        Ok(())
    }

    fn positions(&self, words: &[u8], at: usize) -> Verdict {
        let count = self.order.u16(words, at).unwrap_or(0);
        let mut last = 0;
        for index in 0..usize::from(count) {
            let position =
                self.order.u16(words, at + 2 + index * 2).map_or(0, |word| word & 0x3FFF);
            if position <= last {
                return wrong("positions in order", format!("{position} behind {last}"));
            }
            last = position;
        }
        if count == 0 { wrong("positions of a word", "none") } else { Ok(()) }
    }

    /// `TSQueryData`: operators and operands of 12 bytes, in prefix order; operands behind them.
    fn tsquery(&self, content: &[u8]) -> Verdict {
        const ITEM: usize = 12;
        let count = self.order.u32(content, 0).unwrap_or(u32::MAX) as usize;
        let words = behind_entries(content, count, ITEM, "items")?;
        for index in 0..count {
            let at = 4 + index * ITEM;
            let item = content.get(at..at + ITEM).unwrap_or(&[]);
            match item {
                // QI_VAL
                [1, ..] => {
                    let word = self.order.u32(item, 8).unwrap_or(0);
                    let (length, at) = match self.order {
                        ByteOrder::Little => (word & 0xFFF, word >> 12),
                        ByteOrder::Big => (word >> 20, word & 0xF_FFFF),
                    };
                    let end = at as usize + length as usize;
                    let at = at as usize;
                    match (words.get(at..end), words.get(end)) {
                        (Some(word), Some(0)) => self.text(word)?,
                        _ => {
                            return wrong(
                                "an operand that ends with NUL",
                                format!("byte {at} to {end}"),
                            );
                        }
                    }
                }
                // QI_OPR: NOT, AND, OR, PHRASE
                [2, operator @ 1..=4, ..] => {
                    let left = self.order.u32(item, 4).unwrap_or(0) as usize;
                    let has_left = *operator == 1 || left > 1;
                    if !has_left || index.saturating_add(left.max(1)) >= count {
                        return wrong(format!("operands of item {}", index + 1), left.to_string());
                    }
                }
                [kind, operator, ..] => {
                    return wrong("an operand or operator", format!("type {kind}, {operator}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `ltree.h`: how many labels, and each with its length, padded to 8 bytes.
    fn ltree(&self, content: &[u8]) -> Verdict {
        let levels = self.order.u16(content, 0).unwrap_or(0);
        let mut at = 4;
        for level in 1..=levels {
            let length = self.order.u16(content, at).map(usize::from);
            let Some(label) = length.and_then(|length| content.get(at + 2..at + 2 + length)) else {
                return wrong(
                    format!("{levels} labels"),
                    format!("label {level} ends behind the value"),
                );
            };
            self.text(label)?;
            at += max_align(2 + label.len());
        }
        match content.len() {
            end if end == at || levels == 0 => Ok(()),
            end => wrong(format!("labels up to byte {end}"), format!("up to byte {at}")),
        }
    }
}

/// `RANGE_EMPTY` and the other flags of `rangetypes.h`.
const EMPTY: u8 = 0x01;
const LOWER_INC: u8 = 0x02;
const UPPER_INC: u8 = 0x04;
const LOWER_INF: u8 = 0x08;
const UPPER_INF: u8 = 0x10;
/// The item holds an offset instead of a length (`MULTIRANGE_ITEM_OFF_BIT`).
const OFFSET: u32 = 0x8000_0000;

/// What follows a number of entries of this size and the count in front of them.
fn behind_entries<'c>(
    content: &'c [u8],
    count: usize,
    size: usize,
    what: &str,
) -> Result<&'c [u8], Damage> {
    let start = count.saturating_mul(size).saturating_add(4);
    match content.get(start..) {
        Some(rest) => Ok(rest),
        None => wrong(format!("{count} {what}"), format!("{} bytes", content.len())),
    }
}

/// `inet_struct`: family, bits, address.
fn inet(content: &[u8], is_cidr: bool) -> Verdict {
    let [family, bits, address @ ..] = content else {
        return wrong("a network address", format!("{} bytes", content.len()));
    };
    let length = match family {
        2 => 4,
        3 => 16,
        _ => return wrong("the address family 2 or 3", family.to_string()),
    };
    if address.len() != length || usize::from(*bits) > length * 8 {
        let found = format!("{} bytes, of which {bits} bits count", address.len());
        return wrong(format!("an address of {length} bytes"), found);
    }
    let is_set =
        |bit: usize| address.get(bit / 8).is_some_and(|byte| byte << (bit % 8) & 0x80 != 0);
    if is_cidr && (usize::from(*bits)..length * 8).any(is_set) {
        return wrong("zeros behind the mask", format!("other bits behind {bits}"));
    }
    Ok(())
}

/// Looks at the pieces of a text and keeps none.
struct Pieces {
    utf8: bool,
    invalid: bool,
}

impl TextSink for Pieces {
    fn put(&mut self, piece: &[u8]) {
        self.invalid |= self.utf8 && std::str::from_utf8(piece).is_err();
    }
}

/// What is wrong with the content of a value of `column`. `utf8`: whether the database's encoding
/// is UTF8, the only one that is checked.
pub fn check_content(
    column: &Attribute,
    content: &[u8],
    order: ByteOrder,
    utf8: bool,
    types: &Types,
) -> Option<Damage> {
    let of = types.of_column(column)?;
    Formats { types, order, utf8 }.value(&of, column.type_oid, content).err()
}

/// What is wrong with a value of fixed length. Only the types that a database adds can be wrong: enums, and domains over
/// them.
pub(super) fn check_fixed(
    column: &Attribute,
    bytes: &[u8],
    order: ByteOrder,
    types: &Types,
) -> Option<Damage> {
    let of = types.added(column.type_oid)?;
    Formats { types, order, utf8: false }.fixed(of, bytes).err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toast_format::disk::columns::parse_list;

    const KINDS: [&str; 12] = [
        "hstore",
        "tsvector",
        "tsquery",
        "ltree",
        "inet",
        "cidr",
        "varbit",
        "path",
        "polygon",
        "numrange",
        "int4multirange",
        "numeric[]",
    ];

    fn is_sound(type_name: &str, content: &[u8]) -> bool {
        let desc = parse_list(&format!("c {type_name}")).unwrap();
        let column = &desc.attributes[0];
        let types = Types::default();
        let formats = Formats { types: &types, order: ByteOrder::Little, utf8: true };
        let of = types.of_column(column).unwrap();
        formats.value(&of, column.type_oid, content).is_ok()
    }

    fn words(words: &[u32], rest: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).chain(rest.iter().copied()).collect()
    }

    #[test]
    fn contents_as_the_server_writes_them() {
        // '10.1.2.3/24', '10.1.2.3/24' as no network, B'1011001'
        assert!(is_sound("inet", &[2, 24, 10, 1, 2, 3]));
        assert!(is_sound("cidr", &[2, 24, 10, 1, 2, 0]));
        assert!(!is_sound("cidr", &[2, 24, 10, 1, 2, 3]));
        assert!(is_sound("varbit", &words(&[7], &[0b1011_0010])));
        assert!(!is_sound("varbit", &words(&[7], &[0b1011_0011])));
        // 'a=>1, bb=>NULL'
        let entries = [0x8000_0002, 0x8000_0001, 2, 4, 0x4000_0004];
        assert!(is_sound("hstore", &words(&entries, b"a1bb")));
        assert!(!is_sound("hstore", &words(&entries, b"a1bbc")));
        // 'a', and 'b' at position 3
        let two = [2, 1 << 1, 1 << 12 | 1 << 1 | 1];
        assert!(is_sound("tsvector", &words(&two, &[b'a', b'b', 1, 0, 3, 0])));
        assert!(!is_sound("tsvector", &words(&two, &[b'b', b'a', 1, 0, 3, 0])));
        // 'top.leaf', [1,5), {[1,2),[3,)}
        let labels =
            [2, 0, 0, 0, 3, 0, b't', b'o', b'p', 0, 0, 0, 4, 0, b'l', b'e', b'a', b'f', 0, 0];
        assert!(is_sound("ltree", &labels));
        assert!(!is_sound("ltree", &labels[..15]));
        assert!(is_sound("int4range", &words(&[3904, 1, 5], &[LOWER_INC])));
        assert!(!is_sound("int4range", &words(&[3904, 1], &[LOWER_INC])));
        assert!(is_sound(
            "int4multirange",
            &words(
                &[4451, 2, 0x8000_0008],
                &[LOWER_INC, LOWER_INC | UPPER_INF, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]
            )
        ));
        // '{1,NULL}'
        let nulls = [1, 32, 23, 2, 1];
        assert!(is_sound("int4[]", &words(&nulls, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])));
        assert!(!is_sound("int4[]", &words(&nulls, &[3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])));
    }

    fn code(type_name: &str, content: &[u8]) -> Option<Code> {
        let desc = parse_list(&format!("c {type_name}")).unwrap();
        let column = &desc.attributes[0];
        check_content(column, content, ByteOrder::Little, true, &Types::default())
            .map(|damage| damage.code)
    }

    #[test]
    fn contents_by_type() {
        assert_eq!(code("text", "größe".as_bytes()), None);
        assert_eq!(code("text", b"gr\xf6\xdfe"), Some(Code::Encoding));
        assert_eq!(code("text", b"a\0b"), Some(Code::Encoding));
        assert_eq!(code("bytea", b"gr\xf6\xdfe\0"), None);
        // 1.5, and with a digit over 9999
        assert_eq!(code("numeric", &[0x80, 0x80, 1, 0, 0x88, 0x13]), None);
        assert_eq!(code("numeric", &[0x80, 0x80, 1, 0, 0x88, 0x73]), Some(Code::Numeric));
        // {"a": true}
        let object = words(&[0x2000_0001, 1, 0x3000_0000], &[]);
        assert_eq!(code("jsonb", &[&object[..], b"a"].concat()), None);
        assert_eq!(code("jsonb", &[&object[..], b"\xff"].concat()), Some(Code::Encoding));
        assert_eq!(code("jsonb", &object), Some(Code::Jsonb));
    }

    #[test]
    fn array_headers() {
        // ndim, dataoffset, elemtype, dim, lbound, elements
        let whole = [1, 0, 23, 2, 1, 7, 8];
        assert_eq!(code("int4[]", &words(&whole, &[])), None);
        assert_eq!(code("int4[]", &words(&[0, 0, 23], &[])), None);
        for (at, with) in [(0, 7), (2, 0), (3, u32::MAX), (3, 1 << 20), (4, i32::MAX as u32)] {
            let mut damaged = whole;
            damaged[at] = with;
            assert_eq!(code("int4[]", &words(&damaged, &[])), Some(Code::Array), "{at}");
        }
        let mut nulls = whole;
        nulls[1] = 24;
        assert_eq!(code("int4[]", &words(&nulls, &[])), Some(Code::Array));
        assert_eq!(code("int4[]", &[0; 11]), Some(Code::Array));
    }

    proptest! {
        #[test]
        fn any_content_is_looked_at_to_its_end(
            content in proptest::collection::vec(any::<u8>(), 0..120),
            kind in 0..KINDS.len(),
        ) {
            is_sound(KINDS[kind], &content);
        }

        #[test]
        fn any_content_of_a_column_is_looked_at_to_its_end(
            content in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0usize..4,
        ) {
            code(["jsonb", "text", "numeric", "text[]"][kind], &content);
        }
    }
}
