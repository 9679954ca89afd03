//! What dead chunks of a TOAST relation hold (pure): enough to find out whether a value was stored anew without a
//! change.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::disk::{HeapTuple, PageSize, Varlena};

/// The most values that are remembered. Of more, a part that depends only on their IDs is.
const MOST: usize = 1 << 16;

/// What identifies the stored bytes of a value. Its chunks are added in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// The sum of the chunks' data, in bytes.
    pub bytes: u64,
    /// Of hashes of the chunks.
    sum: u64,
}

impl Fingerprint {
    /// That of a whole value as it is stored out of line.
    pub fn new(stored: &[u8], page: PageSize) -> Fingerprint {
        let mut whole = Fingerprint::default();
        let chunks = stored.chunks(page.toast_max_chunk_size() as usize);
        (0u32..).zip(chunks).for_each(|(seq, data)| whole.add(seq, data));
        whole
    }

    fn add(&mut self, seq: u32, data: &[u8]) {
        let mut hasher = DefaultHasher::new();
        (seq, data).hash(&mut hasher);
        self.bytes += data.len() as u64;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// The fingerprints of values with dead chunks, by value ID.
#[derive(Debug, Clone, Default)]
pub struct DeadValues {
    values: HashMap<u64, Fingerprint>,
    /// One in 2 to this power IDs is kept.
    halved: u32,
}

impl DeadValues {
    /// Adds a dead chunk; tuples that are not chunks are ignored.
    pub(crate) fn take(&mut self, tuple: &HeapTuple<'_>) {
        let (Some(id), Some(seq)) =
            (tuple.order.u32(tuple.data, 0), tuple.order.u32(tuple.data, 4))
        else {
            return;
        };
        let id = u64::from(id);
        if !self.wants(id) {
            return;
        }
        let data = Varlena::parse(tuple.data.get(8..).unwrap_or_default(), tuple.order).ok();
        let Some(data) = data.and_then(|(data, _)| data.inline_content()) else { return };
        self.values.entry(id).or_default().add(seq, data);
        self.thin();
    }

    /// What is known of a value, which may be a part of it.
    pub fn of(&self, id: u64) -> Option<Fingerprint> {
        self.values.get(&id).copied()
    }

    fn wants(&self, id: u64) -> bool {
        let mixed = id.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32 & ((1 << self.halved) - 1) == 0
    }

    fn thin(&mut self) {
        while self.values.len() > MOST && self.halved < 31 {
            self.halved += 1;
            let mut values = std::mem::take(&mut self.values);
            values.retain(|&id, _| self.wants(id));
            self.values = values;
        }
    }

    /// Adds chunks of other blocks.
    pub(crate) fn merge(&mut self, other: DeadValues) {
        self.halved = self.halved.max(other.halved);
        for (id, theirs) in other.values {
            let ours = self.values.entry(id).or_default();
            ours.bytes += theirs.bytes;
            ours.sum = ours.sum.wrapping_add(theirs.sum);
        }
        let halved = self.halved;
        self.values.retain(|&id, _| DeadValues { halved, ..DeadValues::default() }.wants(id));
        self.thin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(id: u32, seq: u32, data: &[u8]) -> Vec<u8> {
        let header = (data.len() as u32 + 4) << 2;
        [id.to_le_bytes(), seq.to_le_bytes(), header.to_le_bytes()]
            .concat()
            .into_iter()
            .chain(data.iter().copied())
            .collect()
    }

    #[test]
    fn chunks_in_any_order_and_of_any_worker_are_those_of_the_value() {
        let page = PageSize::DEFAULT;
        let most = page.toast_max_chunk_size() as usize;
        let value: Vec<u8> = (0..most * 2 + 500).map(|byte| (byte % 251) as u8).collect();
        let mut workers = [DeadValues::default(), DeadValues::default()];
        for (seq, data) in (0u32..).zip(value.chunks(most)).collect::<Vec<_>>().into_iter().rev() {
            workers[seq as usize % 2].take(&HeapTuple::of_data(&chunk(7, seq, data)));
        }
        let [mut first, second] = workers;
        assert_ne!(first.of(7), Some(Fingerprint::new(&value, page)));
        first.merge(second);
        assert_eq!(first.of(7), Some(Fingerprint::new(&value, page)));
        assert_eq!(first.of(7).map(|known| known.bytes), Some(value.len() as u64));
        // another order of the same bytes is another value
        let (one, two) = value.split_at(most);
        assert_ne!(Fingerprint::new(&[two, one].concat(), page), Fingerprint::new(&value, page));
        first.take(&HeapTuple::of_data(&[7, 0, 0]));
        assert_eq!(first.of(8), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut all = DeadValues::default();
        let mut other = DeadValues::default();
        for id in 0..300_000 {
            let to = if id % 2 == 0 { &mut all } else { &mut other };
            to.take(&HeapTuple::of_data(&chunk(id, 0, b"x")));
        }
        all.merge(other);
        assert!(all.values.len() <= MOST && all.values.len() > MOST / 4, "{}", all.values.len());
    }
}
