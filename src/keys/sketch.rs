//! What is kept about the values of a key, in little memory: how many different ones there are, and the distribution
//! of their sizes (pure).

/// The number of hashes that are kept: fewer different values are counted exactly, more to about 9 %.
const HASHES: usize = 128;
/// The number of sizes that are distinguished.
const SIZES: usize = 128;

/// How many different values there are: the smallest hashes of all that were seen (k minimum values).
#[derive(Debug, Clone, Default)]
pub(super) struct DifferentValues<const MOST: usize = HASHES> {
    /// The smallest hashes, in ascending order.
    hashes: Vec<u64>,
}

impl<const MOST: usize> DifferentValues<MOST> {
    pub(super) fn add(&mut self, hash: u64) {
        if self.hashes.len() >= MOST && self.hashes.last().is_some_and(|&last| hash >= last) {
            return;
        }
        if let Err(at) = self.hashes.binary_search(&hash) {
            self.hashes.insert(at, hash);
            self.hashes.truncate(MOST);
        }
    }

    /// Whether [`DifferentValues::estimate`] is the number itself.
    pub(super) fn is_exact(&self) -> bool {
        self.hashes.len() < MOST
    }

    /// The number of different values.
    pub(super) fn estimate(&self) -> u64 {
        let last = match self.hashes.last() {
            Some(&last) if !self.is_exact() => last,
            _ => return self.hashes.len() as u64,
        };
        // the part of all hashes up to the last one that is kept
        let part = (last as f64 / u64::MAX as f64).max(f64::MIN_POSITIVE);
        ((MOST - 1) as f64 / part).round() as u64
    }
}

/// Sizes and how often each was seen. Once there are many, near ones are taken together under the largest.
#[derive(Debug, Clone, Default)]
pub(super) struct SizeCounts {
    /// In ascending order of size.
    counts: Vec<(u32, u32)>,
    /// Significant bits that sizes lose.
    lost: u32,
}

impl SizeCounts {
    pub(super) fn add(&mut self, size: u64) {
        let size = self.rounded(u32::try_from(size).unwrap_or(u32::MAX));
        match self.counts.binary_search_by_key(&size, |&(size, _)| size) {
            Ok(at) => {
                if let Some((_, count)) = self.counts.get_mut(at) {
                    *count = count.saturating_add(1);
                }
            }
            Err(at) => self.counts.insert(at, (size, 1)),
        }
        while self.counts.len() > SIZES {
            self.coarsen();
        }
    }

    /// The size up to which it is taken together with others: with 8 significant bits at first.
    fn rounded(&self, size: u32) -> u32 {
        if self.lost == 0 {
            return size;
        }
        let kept = 9u32.saturating_sub(self.lost).max(1);
        let shift = (u32::BITS - size.leading_zeros()).saturating_sub(kept);
        size | ((1u32 << shift) - 1)
    }

    fn coarsen(&mut self) {
        self.lost += 1;
        let before = std::mem::take(&mut self.counts);
        for (size, count) in before {
            let size = self.rounded(size);
            match self.counts.last_mut() {
                Some((last, sum)) if *last == size => *sum = sum.saturating_add(count),
                _ => self.counts.push((size, count)),
            }
        }
    }

    /// The smallest size that at least this part of all does not exceed; `None` of nothing.
    pub(super) fn quantile(&self, part: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().map(|&(_, count)| u64::from(count)).sum();
        let rank = ((all as f64 * part).ceil() as u64).clamp(1, all.max(1));
        let mut before = 0;
        let found = self.counts.iter().find(|&&(_, count)| {
            before += u64::from(count);
            before >= rank
        });
        found.map(|&(size, _)| u64::from(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn different_values_are_counted_or_estimated() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut few = DifferentValues::<HASHES>::default();
        let hashes: Vec<u64> = (0..100).map(|_| rng.random()).collect();
        for _ in 0..3 {
            hashes.iter().for_each(|&hash| few.add(hash));
        }
        assert_eq!((few.is_exact(), few.estimate()), (true, 100));
        for number in [200, 5000, 300_000] {
            let mut many = DifferentValues::<HASHES>::default();
            (0..number).for_each(|_| many.add(rng.random()));
            let error = many.estimate() as f64 / f64::from(number) - 1.0;
            assert!(!many.is_exact() && error.abs() < 0.25, "{number}: {error}");
            assert_eq!(many.hashes.len(), HASHES);
        }
    }

    #[test]
    fn sizes_are_exact_while_there_are_few() {
        let mut spread = SizeCounts::default();
        assert_eq!(spread.quantile(0.95), None);
        (1..=100).for_each(|size| spread.add(size * 1000));
        assert_eq!((spread.quantile(0.95), spread.quantile(1.0)), (Some(95_000), Some(100_000)));
        let mut many = SizeCounts::default();
        (1..=100_000).for_each(|size| many.add(size));
        assert!(many.counts.len() <= SIZES);
        let p95 = many.quantile(0.95).unwrap() as f64;
        assert!((0.95..1.1).contains(&(p95 / 100_000.0)), "{p95}");
        many.add(u64::MAX);
        many.add(0);
        assert_eq!(many.quantile(1.0), Some(u64::from(u32::MAX)));
    }
}
