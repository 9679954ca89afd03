//! Distributions of sizes, in accumulators that merge.

use hdrhistogram::Histogram;

/// Sizes below this are counted one by one, those above in a histogram.
const EXACT: u64 = 2048;

/// Distribution of sizes in bytes: extremes exact, percentiles exact below 2048 bytes and to three
/// significant digits above.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    /// Made when a second size is seen: most columns of fixed length have but one.
    spread: Option<Box<Spread>>,
}

#[derive(Debug, Clone)]
struct Spread {
    /// How often each size below [`EXACT`] was seen.
    small: Vec<u64>,
    /// The others; made when the first is seen.
    large: Option<Histogram<u64>>,
}

impl Spread {
    fn new() -> Box<Spread> {
        Box::new(Spread { small: vec![0; EXACT as usize], large: None })
    }

    fn add(&mut self, size: u64, n: u64) {
        if let Some(count) = usize::try_from(size).ok().and_then(|size| self.small.get_mut(size)) {
            *count = count.saturating_add(n);
            return;
        }
        if self.large.is_none() {
            self.large = Histogram::new(3).ok();
        }
        if let Some(large) = &mut self.large {
            // An auto-resizing histogram refuses nothing below 2^63.
            let _ = large.record_n(size, n);
        }
    }

    fn merge(&mut self, other: &Spread) {
        for (ours, theirs) in self.small.iter_mut().zip(&other.small) {
            *ours = ours.saturating_add(*theirs);
        }
        match (&mut self.large, &other.large) {
            (_, None) => {}
            (Some(ours), Some(theirs)) => {
                let _ = ours.add(theirs);
            }
            (ours @ None, Some(theirs)) => *ours = Some(theirs.clone()),
        }
    }

    /// The size of the value with this rank, counted from 1 in growing order.
    fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut before = 0u64;
        for (size, &count) in self.small.iter().enumerate() {
            before = before.saturating_add(count);
            if count > 0 && before >= rank {
                return Some(size as u64);
            }
        }
        let large = self.large.as_ref()?;
        let rank = rank.saturating_sub(before);
        Some(large.value_at_quantile(rank as f64 / large.len().max(1) as f64))
    }
}

impl Sizes {
    /// Adds a size that was seen `n` times.
    #[inline]
    pub fn add(&mut self, size: u64, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (size, size);
        } else if self.spread.is_none() && size != self.min {
            self.spread = Some(self.of_one_size());
        }
        if let Some(spread) = &mut self.spread {
            spread.add(size, n);
        }
        self.min = self.min.min(size);
        self.max = self.max.max(size);
        self.count = self.count.saturating_add(n);
        add_times(&mut self.sum, size, n);
    }

    /// The spread of what was seen while all sizes were equal.
    fn of_one_size(&self) -> Box<Spread> {
        let mut spread = Spread::new();
        if self.count > 0 {
            spread.add(self.min, self.count);
        }
        spread
    }

    /// Adds everything that `other` has seen.
    pub fn merge(&mut self, other: &Sizes) {
        let Some(theirs) = &other.spread else { return self.add(other.min, other.count) };
        let mut ours = self.spread.take().unwrap_or_else(|| self.of_one_size());
        ours.merge(theirs);
        self.spread = Some(ours);
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    #[cfg(feature = "internals")]
    /// How many sizes were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    #[cfg(feature = "internals")]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest; `None` if there is none.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The biggest; `None` if there is none.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The smallest size that at least the part `quantile` of all sizes does not exceed
    /// (`percentile_disc`).
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count);
        let size = self.spread.as_ref().and_then(|spread| spread.at_rank(rank));
        Some(size.unwrap_or(self.min).clamp(self.min, self.max))
    }
}

/// Counts come from servers too, and a hostile one must not overflow them.
pub(super) fn add_times(sum: &mut u64, size: u64, n: u64) {
    *sum = sum.saturating_add(size.saturating_mul(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_below_2048_bytes() {
        let mut sizes = Sizes::default();
        for size in 1..=1000 {
            sizes.add(size, 1);
        }
        assert_eq!(sizes.quantile(0.5), Some(500));
        assert_eq!(sizes.quantile(0.95), Some(950));
        assert_eq!(sizes.quantile(0.99), Some(990));
        assert_eq!((sizes.min(), sizes.max(), sizes.sum()), (Some(1), Some(1000), 500_500));
        assert_eq!(Sizes::default().quantile(0.5), None);
    }

    #[test]
    fn quantiles_of_large_values_never_leave_the_range() {
        let mut sizes = Sizes::default();
        sizes.add(0, 1);
        sizes.add(104_857_601, 1);
        assert_eq!(sizes.quantile(0.5), Some(0));
        assert_eq!(sizes.quantile(0.99), Some(104_857_601));
    }
}
