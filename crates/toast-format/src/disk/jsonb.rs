//! `jsonb` containers (`jsonb.h`, `jsonb_util.c`), with what servers with pluggable TOAST add.
//!
//! ```text
//! 0 header 4    bits 0..27 count n, bits 28..30 type: 2 object, 4 array, 5 scalar;
//!               pluggable: 3 object with value map, 1 and 6 object with values moved out below it
//! 4 entries     4 bytes each, n in an array, 2n in an object (keys, then values):
//!               bits 0..27 length, or end offset if bit 31 is set; bits 28..30 the value's type
//!   value map   type 3 only: for each key the position of its value; 1, 2 or 4 bytes each by n,
//!               padded to 4
//!   data        numerics and containers aligned to 4, the padding counted in their entry
//! ```

use super::ByteOrder;
pub use super::error::{ContainerClass, JsonbError, JsonbErrorKind, MAX_DEPTH, MAX_TEXT};
use super::numeric::Numeric;
use super::varlena::Varlena;

pub mod split;

/// The kind of a container (`JsonbContainer`, `jsonb.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// An array of elements (`JB_FARRAY`).
    Array,
    /// An array around a scalar that is the whole document.
    Scalar,
    /// An object of pairs (`JB_FOBJECT`).
    Object,
    /// An object whose values are not in the order of its keys; pluggable TOAST only.
    MappedObject,
    /// An object with toasted values somewhere below it; pluggable TOAST only.
    ToastedObject,
    /// An object with compressed values somewhere below it; pluggable TOAST only.
    CompressedObject,
}

impl ContainerKind {
    /// The kind for the type bits of a container's header.
    fn from_bits(bits: u32) -> Option<ContainerKind> {
        match bits {
            1 => Some(ContainerKind::ToastedObject),
            2 => Some(ContainerKind::Object),
            3 => Some(ContainerKind::MappedObject),
            4 => Some(ContainerKind::Array),
            5 => Some(ContainerKind::Scalar),
            6 => Some(ContainerKind::CompressedObject),
            _ => None,
        }
    }

    /// Whether it has keys.
    pub fn is_object(self) -> bool {
        !matches!(self, ContainerKind::Array | ContainerKind::Scalar)
    }
}

pub(super) const COUNT_MASK: u32 = 0x0FFF_FFFF;
pub(super) const HAS_OFFSET: u32 = 0x8000_0000;

/// A container whose header and counts were checked.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    kind: ContainerKind,
    count: u32,
    entries: &'a [u8],
    map: &'a [u8],
    data: &'a [u8],
    /// Offset of the header in the outermost container.
    base: usize,
    order: ByteOrder,
}

/// A value in a container.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A string's bytes in the database's encoding.
    String(&'a [u8]),
    /// A number (`JENTRY_ISNUMERIC`), as `numeric` stores it.
    Numeric(Numeric<'a>),
    /// `true` or `false` (`JENTRY_ISBOOL_TRUE`, `JENTRY_ISBOOL_FALSE`).
    Bool(bool),
    /// `null` of JSON (`JENTRY_ISNULL`).
    Null,
    /// A container in place.
    Container(Container<'a>),
    /// A pointer to a container that was moved out; pluggable TOAST only.
    Pointer(PointerEntry<'a>),
}

/// A container that was moved out of its object, as `jsonb_toaster` leaves it.
#[derive(Debug, Clone, Copy)]
pub struct PointerEntry<'a> {
    /// The kind and size of the container that was moved out.
    pub class: ContainerClass,
    /// The pointer to the container. The entry may be longer than the pointer.
    pub value: Varlena<'a>,
    /// Offset of the entry's header word in the outermost container.
    pub byte: usize,
    /// Bytes from that offset to the end of the entry.
    pub length: usize,
}

/// A value in a container with the bytes that it takes.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    /// Its key; `None` in an array.
    pub key: Option<&'a [u8]>,
    /// The decoded value.
    pub item: Item<'a>,
    /// The value's bytes, without entry and padding.
    pub bytes: &'a [u8],
    /// Offset of these bytes in the outermost container.
    pub byte: usize,
    /// The number of bytes of padding before them.
    pub padding: usize,
}

impl<'a> Container<'a> {
    /// Reads the header of the container that `bytes` hold, and checks that its entries fit.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<Container<'a>, JsonbError> {
        Container::parse_at(bytes, 0, order)
    }

    fn parse_at(
        bytes: &'a [u8],
        base: usize,
        order: ByteOrder,
    ) -> Result<Container<'a>, JsonbError> {
        let error = |kind| JsonbError { byte: base, kind };
        let header = order.u32(bytes, 0).ok_or(error(JsonbErrorKind::HeaderCut(bytes.len())))?;
        let kind = ContainerKind::from_bits(header >> 28)
            .ok_or(error(JsonbErrorKind::ContainerType(header)))?;
        let count = header & COUNT_MASK;
        if kind == ContainerKind::Scalar && count != 1 {
            return Err(error(JsonbErrorKind::ScalarCount(count)));
        }
        let entry_bytes = u64::from(count) * if kind.is_object() { 8 } else { 4 };
        let map_bytes = if kind == ContainerKind::MappedObject {
            (u64::from(count) * map_width(count) as u64).next_multiple_of(4)
        } else {
            0
        };
        let need = entry_bytes + map_bytes;
        let rest = bytes.get(4..).unwrap_or(&[]);
        let too_many = error(JsonbErrorKind::TooManyEntries { count, need, got: rest.len() });
        // both fit into usize: they are at most 3 GB
        let (entries, rest) = rest.split_at_checked(entry_bytes as usize).ok_or(too_many)?;
        let (map, data) = rest.split_at_checked(map_bytes as usize).ok_or(too_many)?;
        Ok(Container { kind, count, entries, map, data, base, order })
    }

    /// Array, scalar or object.
    pub fn kind(&self) -> ContainerKind {
        self.kind
    }

    /// Pairs of an object, elements of an array.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Offset of its header in the outermost container.
    pub fn byte(&self) -> usize {
        self.base
    }

    /// Bytes that belong to none of its values: header and value map.
    pub fn overhead(&self) -> usize {
        4 + self.map.len()
    }

    /// Whether it is an object or an array, and its number of pairs or elements.
    pub fn class(&self) -> ContainerClass {
        ContainerClass { object: self.kind.is_object(), count: self.count }
    }

    /// Its values in order; those of an object with their keys, in the order of the keys.
    pub fn items(&self) -> Result<ContainerItems<'a>, JsonbError> {
        ContainerItems::new(*self)
    }

    fn entry(&self, index: u32) -> u32 {
        self.order.u32(self.entries, index as usize * 4).unwrap_or(0)
    }

    /// Offset in the outermost container of byte `offset` of the data.
    fn position(&self, offset: usize) -> usize {
        self.base + 4 + self.entries.len() + self.map.len() + offset
    }

    fn entry_error(&self, index: u32, kind: JsonbErrorKind) -> JsonbError {
        JsonbError { byte: self.base + 4 + index as usize * 4, kind }
    }

    /// Where the data of entry `index` ends, if it starts at `start`.
    fn end(&self, index: u32, start: usize) -> Result<usize, JsonbError> {
        let word = self.entry(index);
        let length = (word & COUNT_MASK) as usize;
        let end = if word & HAS_OFFSET != 0 { length } else { start + length };
        if end < start || end > self.data.len() {
            let kind = JsonbErrorKind::EntryBounds {
                start: start as u64,
                end: end as u64,
                length: self.data.len(),
            };
            return Err(self.entry_error(index, kind));
        }
        Ok(end)
    }

    /// The value of entry `index`, whose data is `start..end`, with its bytes and padding.
    fn placed(
        &self,
        key: Option<&'a [u8]>,
        index: u32,
        start: usize,
        end: usize,
    ) -> Result<PlacedItem<'a>, JsonbError> {
        let item = self.item(index, start, end)?;
        let padding = match item {
            Item::Numeric(_) | Item::Container(_) | Item::Pointer(_) => {
                (start.next_multiple_of(4) - start).min(end - start)
            }
            Item::String(_) | Item::Bool(_) | Item::Null => 0,
        };
        let from = start + padding;
        let bytes = self.data.get(from..end).unwrap_or(&[]);
        Ok(PlacedItem { key, item, bytes, byte: self.position(from), padding })
    }

    /// The value of entry `index`, whose data is `start..end`.
    fn item(&self, index: u32, start: usize, end: usize) -> Result<Item<'a>, JsonbError> {
        let aligned = start.next_multiple_of(4);
        let at = |kind| JsonbError { byte: self.position(aligned), kind };
        let bytes = self.data.get(aligned..end).unwrap_or(&[]);
        let word = self.entry(index);
        match word >> 28 & 7 {
            0 => Ok(Item::String(self.data.get(start..end).unwrap_or(&[]))),
            1 => {
                let (value, used) = Varlena::parse(bytes, self.order)
                    .map_err(|error| at(JsonbErrorKind::Varlena(error)))?;
                let length = end.saturating_sub(start);
                let other = at(JsonbErrorKind::NumericVarlena(length));
                if used != bytes.len() {
                    return Err(other);
                }
                let content = value.inline_content().ok_or(other)?;
                Numeric::parse(content, self.order)
                    .map(Item::Numeric)
                    .map_err(|error| at(JsonbErrorKind::Numeric(error)))
            }
            2 => Ok(Item::Bool(false)),
            3 => Ok(Item::Bool(true)),
            4 => Ok(Item::Null),
            5 => {
                Container::parse_at(bytes, self.position(aligned), self.order).map(Item::Container)
            }
            6 => {
                let header =
                    self.order.u32(bytes, 0).ok_or(at(JsonbErrorKind::HeaderCut(bytes.len())))?;
                let kind = ContainerKind::from_bits(header >> 28)
                    .ok_or(at(JsonbErrorKind::ContainerType(header)))?;
                let (value, _) = Varlena::parse(bytes.get(4..).unwrap_or(&[]), self.order)
                    .map_err(|error| at(JsonbErrorKind::Varlena(error)))?;
                let class = ContainerClass { object: kind.is_object(), count: header & COUNT_MASK };
                let byte = self.position(aligned);
                let length = bytes.len();
                Ok(Item::Pointer(PointerEntry { class, value, byte, length }))
            }
            _ => Err(self.entry_error(index, JsonbErrorKind::EntryType(word))),
        }
    }
}

/// Bytes of one number of a value map (`jsonb_toaster`).
pub(crate) fn map_width(count: u32) -> usize {
    match count {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    }
}

/// Iterates over a container's values with their keys (`JsonbIteratorNext` without descending).
/// Ends after an error.
#[derive(Debug, Clone)]
pub struct ContainerItems<'a> {
    container: Container<'a>,
    next: u32,
    /// Where the data of the next key starts.
    key_start: usize,
    /// Where the data of the next value starts.
    value_start: usize,
    /// Where each value stands, in stored order, if that is not the order of the keys; taken
    /// values are gone.
    mapped: Option<Vec<Option<(usize, usize)>>>,
    /// Where the last value ends, if they are mapped.
    mapped_end: usize,
}

impl<'a> ContainerItems<'a> {
    fn new(container: Container<'a>) -> Result<ContainerItems<'a>, JsonbError> {
        let mut value_start = 0;
        if container.kind.is_object() {
            for index in 0..container.count {
                value_start = container.end(index, value_start)?;
            }
        }
        let mut mapped = None;
        let mut mapped_end = 0;
        if container.kind == ContainerKind::MappedObject {
            let mut values = Vec::with_capacity(container.count as usize);
            let mut start = value_start;
            for index in container.count..2 * container.count {
                let end = container.end(index, start)?;
                values.push(Some((start, end)));
                start = end;
            }
            (mapped, mapped_end) = (Some(values), start);
        }
        Ok(ContainerItems { container, next: 0, key_start: 0, value_start, mapped, mapped_end })
    }

    /// Bytes of data behind the last value, once all values were taken. No server writes any.
    pub fn left_over(&self) -> usize {
        let end = if self.mapped.is_some() { self.mapped_end } else { self.value_start };
        self.container.data.len().saturating_sub(end)
    }

    /// Like [`Iterator::next`], with the bytes and padding of the value.
    pub(crate) fn next_placed(&mut self) -> Option<Result<PlacedItem<'a>, JsonbError>> {
        let index = self.next;
        if index >= self.container.count {
            return None;
        }
        self.next += 1;
        let key =
            if self.container.kind.is_object() { self.key(index).map(Some) } else { Ok(None) };
        let placed = key.and_then(|key| self.value(index, key));
        if placed.is_err() {
            self.next = self.container.count;
        }
        Some(placed)
    }

    fn key(&mut self, index: u32) -> Result<&'a [u8], JsonbError> {
        let container = &self.container;
        let word = container.entry(index);
        if word >> 28 & 7 != 0 {
            return Err(container.entry_error(index, JsonbErrorKind::Key(word)));
        }
        let end = container.end(index, self.key_start)?;
        let key = container.data.get(self.key_start..end).unwrap_or(&[]);
        self.key_start = end;
        Ok(key)
    }

    fn value(&mut self, index: u32, key: Option<&'a [u8]>) -> Result<PlacedItem<'a>, JsonbError> {
        let container = &self.container;
        let count = container.count;
        let Some(values) = &mut self.mapped else {
            let entry = if container.kind.is_object() { count + index } else { index };
            let start = self.value_start;
            let end = container.end(entry, self.value_start)?;
            self.value_start = end;
            return container.placed(key, entry, start, end);
        };
        let width = map_width(count);
        let at = index as usize * width;
        let position = match width {
            1 => container.map.get(at).copied().map(u32::from),
            2 => container.order.u16(container.map, at).map(u32::from),
            _ => container.order.u32(container.map, at),
        }
        .unwrap_or(u32::MAX);
        let (start, end) =
            values.get_mut(position as usize).and_then(Option::take).ok_or(JsonbError {
                byte: container.base + 4 + container.entries.len() + at,
                kind: JsonbErrorKind::ValueMap { position, count },
            })?;
        container.placed(key, count + position, start, end)
    }
}

impl<'a> Iterator for ContainerItems<'a> {
    type Item = Result<(Option<&'a [u8]>, Item<'a>), JsonbError>;

    fn next(&mut self) -> Option<Self::Item> {
        let placed = self.next_placed()?;
        Some(placed.map(|placed| (placed.key, placed.item)))
    }
}
