//! How tuples fit into free space when they are moved (pure).

use crate::disk::PageSize;
use crate::disk::layout::LINE_POINTER_SIZE;
use crate::model::pages::{Filler, chunk_tuple_bytes};

/// The maximum number of tuples in a sample.
const MOST: usize = 20_000;

/// A sample of a relation's tuples, in groups that are stored together: the chunks of a value in a TOAST relation, or
/// single rows of a table.
#[derive(Debug, Clone)]
pub struct Sample {
    tuples: Vec<PlacedTuple>,
    /// The number of groups seen, and one in how many of them is kept.
    groups: u64,
    every: u64,
}

#[derive(Debug, Clone, Copy)]
struct PlacedTuple {
    group: u64,
    /// The block that contains it.
    block: u32,
    /// Bytes that it occupies on a page.
    taken: u32,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { tuples: Vec::new(), groups: 0, every: 1 }
    }
}

impl Sample {
    /// Adds a group of tuples stored one after another, the last of them in this block, as the numbers of bytes that
    /// they occupy on pages. If there are many groups, a regular subset of them is kept.
    pub fn add(&mut self, block: u32, taken: impl IntoIterator<Item = u32>) {
        let group = self.groups;
        self.groups += 1;
        if !group.is_multiple_of(self.every) {
            return;
        }
        self.tuples.extend(taken.into_iter().map(|taken| PlacedTuple { group, block, taken }));
        while self.tuples.len() > MOST && self.groups > self.every {
            self.every *= 2;
            let every = self.every;
            self.tuples.retain(|tuple| tuple.group.is_multiple_of(every));
        }
    }

    /// The bytes that tuples at or behind a block occupy, the last tuples first; if these are few, includes all
    /// tuples.
    fn behind(&self, block: u32) -> Vec<u32> {
        const FEW: usize = 100;
        let behind = self.blocks_since(block);
        if behind.len() < FEW { self.blocks_since(0) } else { behind }
    }

    /// The space that each tuple from `block` on takes, the last block first.
    fn blocks_since(&self, block: u32) -> Vec<u32> {
        let mut tuples: Vec<PlacedTuple> =
            self.tuples.iter().filter(|tuple| tuple.block >= block).copied().collect();
        // the tuples of a group remain in their order
        tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.block));
        tuples.iter().map(|tuple| tuple.taken).collect()
    }

    /// Whether this many bytes of tuples like those behind a block fit on pages with these numbers of free bytes.
    pub(crate) fn fits(
        &self,
        page: PageSize,
        fillfactor: u8,
        free: Vec<u16>,
        block: u32,
        bytes: f64,
    ) -> bool {
        let all = free.iter().map(|&free| f64::from(free)).sum::<f64>();
        if bytes <= 0.0 || all < bytes {
            return bytes <= 0.0;
        }
        let mut filler = Filler::with_free_space(page, fillfactor, free);
        let mut placed = 0.0;
        for taken in self.behind(block).into_iter().filter(|&taken| taken > 0).cycle() {
            if placed >= bytes {
                break;
            }
            if !filler.put_in_hole((taken as usize).saturating_sub(LINE_POINTER_SIZE)) {
                return false;
            }
            placed += f64::from(taken);
        }
        true
    }
}

/// The bytes that each chunk of a value of this size occupies on a page.
pub fn chunks_of(page: PageSize, bytes: u64) -> impl Iterator<Item = u32> {
    let whole = u64::from(page.toast_max_chunk_size());
    let rest = Some(bytes % whole).filter(|&rest| rest > 0);
    // a limited number is enough to determine how they fill pages
    let full = (bytes / whole).min(64);
    (0..full).map(move |_| whole).chain(rest).map(|data| chunk_tuple_bytes(data as u32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(tuples: &[u32], free: Vec<u16>, bytes: f64) -> bool {
        let mut sample = Sample::default();
        sample.add(0, tuples.iter().copied());
        sample.fits(PageSize::DEFAULT, 100, free, 0, bytes)
    }

    #[test]
    fn tuples_go_where_there_is_room_for_whole_ones() {
        assert!(fits(&[2036], vec![8168; 100], 400.0 * 2036.0));
        assert!(!fits(&[2036], vec![8168; 100], 401.0 * 2036.0));
        assert!(fits(&[4200], vec![8168; 100], 100.0 * 4200.0));
        assert!(!fits(&[4200], vec![8168; 100], 101.0 * 4200.0));
        assert!(!fits(&[2036], vec![2000; 100], 2036.0));
        assert!(fits(&[2036], vec![0], 0.0));
    }

    #[test]
    fn the_rests_of_values_take_the_room_of_whole_chunks() {
        let value = [2036, 2036, 2036, 2036, 60];
        assert!(fits(&value, vec![8168; 100], 60.0 * 8204.0));
        assert!(!fits(&value, vec![8168; 100], 90.0 * 8204.0));
    }

    #[test]
    fn what_stands_behind_counts_and_a_sample_has_an_end() {
        let mut sample = Sample::default();
        for number in 0..100_000 {
            sample.add(number, [if number < 50_000 { 100 } else { 2036 }]);
        }
        assert!((MOST / 2..=MOST).contains(&sample.tuples.len()));
        assert!(sample.behind(50_000).iter().all(|&taken| taken == 2036));
        assert_eq!(sample.behind(99_999).len(), sample.tuples.len());
        let first = sample.behind(0);
        assert_eq!((first[0], first[first.len() - 1]), (2036, 100));
        sample.add(0, (0..1_000_000).map(|_| 50));
        assert!(sample.tuples.len() <= 1_000_000);
    }

    #[test]
    fn a_value_has_full_chunks_and_a_rest() {
        let of = |bytes| chunks_of(PageSize::DEFAULT, bytes).collect::<Vec<u32>>();
        assert!(of(0).is_empty());
        assert_eq!(of(1_996), [2036]);
        assert_eq!(of(2 * 1_996 + 1), [2036, 2036, 44]);
        assert_eq!(of(50 << 20).len(), 65);
    }
}
