//! Arrays as the server stores them (`array.h`), made of what it sends of them (`array_send`, arrayfuncs.c), or of
//! their elements.

use super::desc::{Align, Length};
use super::element_parts::MOST_DIMENSIONS;
use super::types;
use super::varlena::VARLENA_HEADER_SIZE;
use super::{ByteOrder, Oid, max_align};

/// Bytes of the varlena header, which contents do not have.
const HEADER: usize = VARLENA_HEADER_SIZE as usize;

/// An array, apart from its elements (`ArrayType`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayType {
    /// The type of the elements.
    pub(crate) element: Oid,
    /// The length and the lower bound of each dimension.
    pub(crate) dimensions: Vec<(i32, i32)>,
}

/// Reads what `array_send` gives: the shape, and each element as its type's function sends it. `None` if it is not
/// so.
pub fn sent(bytes: &[u8]) -> Option<(ArrayType, Vec<Option<&[u8]>>)> {
    let mut rest = bytes;
    let mut next = || {
        let (first, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        Some(i32::from_be_bytes(*first))
    };
    let count = usize::try_from(next()?).ok().filter(|&count| count <= MOST_DIMENSIONS)?;
    let _has_nulls = next()?;
    let element = Oid(next()? as u32);
    let mut dimensions = Vec::new();
    for _ in 0..count {
        dimensions.push((next()?, next()?));
    }
    let mut elements = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        rest = behind;
        elements.push(match i32::from_be_bytes(*length) {
            -1 => None,
            length => {
                let (element, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = behind;
                Some(element)
            }
        });
    }
    let shape = ArrayType { element, dimensions };
    (rest.is_empty() && shape.holds(elements.len())).then_some((shape, elements))
}

impl ArrayType {
    /// Whether an array of this shape has this number of elements.
    fn holds(&self, elements: usize) -> bool {
        let product = self
            .dimensions
            .iter()
            .try_fold(1usize, |all, &(length, _)| all.checked_mul(usize::try_from(length).ok()?));
        product.is_some_and(|product| {
            if self.dimensions.is_empty() { elements == 0 } else { product == elements }
        })
    }

    /// The content, without varlena header, of the array with these elements, each as it stands in a row without
    /// header. `None` if the elements' type is not known.
    pub(crate) fn content(
        &self,
        elements: &[Option<Vec<u8>>],
        order: ByteOrder,
    ) -> Option<Vec<u8>> {
        let layout = types::by_oid(self.element)?;
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            values.push(match element {
                Some(element) => Some(with_header(element, layout.length, order)?),
                None => None,
            });
        }
        Some(self.of_values(layout.align, &values, order))
    }

    /// Like [`ArrayType::content`], for values that have their headers; NULL is `None`.
    pub(super) fn of_values(
        &self,
        align: Align,
        values: &[Option<Vec<u8>>],
        order: ByteOrder,
    ) -> Vec<u8> {
        let nulls = values.iter().any(Option::is_none);
        // as if the varlena header were there
        let mut bytes = vec![0; HEADER];
        bytes.extend(order.bytes(length(self.dimensions.len())));
        let offset_at = bytes.len();
        bytes.extend(order.bytes(0));
        bytes.extend(order.bytes(self.element.0));
        for &(length, _) in &self.dimensions {
            bytes.extend(order.bytes(length as u32));
        }
        for &(_, bound) in &self.dimensions {
            bytes.extend(order.bytes(bound as u32));
        }
        if nulls {
            bytes.extend(null_bitmap(values.iter().map(Option::is_some)));
        }
        if !self.dimensions.is_empty() {
            bytes.resize(max_align(bytes.len()), 0);
        }
        let offset = order.bytes(length(bytes.len()));
        if let (true, Some(place)) = (nulls, bytes.get_mut(offset_at..offset_at + 4)) {
            place.copy_from_slice(&offset);
        }
        for value in values.iter().flatten() {
            bytes.extend_from_slice(value);
            bytes.resize(align.align(bytes.len()), 0);
        }
        bytes.drain(..HEADER);
        bytes
    }
}

fn length(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A null bitmap: one bit for each value in order, set unless it is NULL.
pub(super) fn null_bitmap(there: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bits = Vec::new();
    for (number, there) in there.enumerate() {
        if number % 8 == 0 {
            bits.push(0);
        }
        if let Some(last) = bits.last_mut() {
            *last |= u8::from(there) << (number % 8);
        }
    }
    bits
}

/// An element with its header, as an array stores it.
fn with_header(element: &[u8], of_type: Length, order: ByteOrder) -> Option<Vec<u8>> {
    match of_type {
        Length::Fixed(size) => (element.len() == usize::from(size)).then(|| element.to_vec()),
        Length::Varlena => {
            let size = u32::try_from(element.len()).ok()?.checked_add(VARLENA_HEADER_SIZE)?;
            // the length word, as it stands on such machines (varatt.h)
            let header = match order {
                ByteOrder::Little => size << 2,
                ByteOrder::Big => size,
            };
            let mut value = order.bytes(header).to_vec();
            value.extend_from_slice(element);
            Some(value)
        }
        Length::CString => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `array_send('{1,NULL,3}'::int4[])`
    fn example() -> Vec<u8> {
        let words = [1, 1, 23, 3, 1, 4, 1, -1, 4, 3i32];
        words.into_iter().flat_map(i32::to_be_bytes).collect()
    }

    #[test]
    fn arrays_with_nulls_come_as_they_are_stored() {
        let bytes = example();
        let (shape, elements) = sent(&bytes).unwrap();
        assert_eq!(shape, ArrayType { element: Oid(23), dimensions: vec![(3, 1)] });
        let elements: Vec<Option<Vec<u8>>> = elements
            .into_iter()
            .map(|element| element.map(|sent| sent.iter().rev().copied().collect()))
            .collect();
        assert_eq!(elements, [Some(vec![1, 0, 0, 0]), None, Some(vec![3, 0, 0, 0])]);
        let content = shape.content(&elements, ByteOrder::Little).unwrap();
        // pg_column_size says 40
        assert_eq!(content.len(), 36);
        assert_eq!(content[..8], [1, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(content[28..], [1, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        let whole = example();
        for end in 0..whole.len() {
            assert_eq!(sent(&whole[..end]), None, "{end}");
        }
        // dimensions, length of the first element
        for at in [0, 12, 20] {
            let mut other = whole.clone();
            other[at] ^= 0x7f;
            assert_eq!(sent(&other), None, "{at}");
        }
        let empty = [0; 12];
        assert_eq!(sent(&empty).unwrap().1, [None; 0]);
        let shape = sent(&empty).unwrap().0;
        assert_eq!(
            ArrayType { element: Oid(25), ..shape }.content(&[], ByteOrder::Little),
            Some(vec![0, 0, 0, 0, 0, 0, 0, 0, 25, 0, 0, 0])
        );
    }
}
