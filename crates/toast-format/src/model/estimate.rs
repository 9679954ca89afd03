//! Estimates from a sample of blocks, with 95 % confidence intervals.
//!
//! Blocks are chosen without repetition, one from each of equal parts of the relation. Similarity within a part only
//! reduces what is left to chance, and is not used. A total is estimated as the sum over the sample, divided by the
//! number of blocks read and multiplied by the number of blocks of the relation. The variance of a ratio is that of its
//! residuals between blocks (or clusters of them), with the correction for finite populations. The quantile is
//! Student's, shifted by the skewness of the residuals (Johnson).

use std::ops::AddAssign;

use super::interval::Interval;

/// Student's 97.5 % quantile.
fn quantile(degrees: usize) -> f64 {
    match degrees {
        0 | 1 => 12.706,
        2 => 4.303,
        3 => 3.182,
        _ => {
            const Z: f64 = 1.959_964;
            let n = degrees as f64;
            let z3 = Z.powi(3);
            let z5 = Z.powi(5);
            let z7 = Z.powi(7);
            // This is the Cornish-Fisher expansion.
            Z + (z3 + Z) / (4.0 * n)
                + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n.powi(2))
                + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * n.powi(3))
        }
    }
}

/// The dispersion of a ratio's residuals over clusters.
#[derive(Debug, Clone, Copy)]
struct Residuals {
    clusters: usize,
    squares: f64,
    cubes: f64,
}

/// The ratio `estimate` of two sums, of which the denominator is `below`, with its interval. `part` is the fraction of
/// the population that was sampled.
///
/// With a single cluster there is no variance, and the interval extends from zero to twice the estimate.
fn interval(estimate: f64, residuals: Residuals, below: f64, part: f64) -> Interval {
    let Residuals { clusters, squares, cubes } = residuals;
    if clusters < 2 {
        return Interval { estimate, low: 0.0, high: 2.0 * estimate };
    }
    if squares <= 0.0 {
        return Interval::exact(estimate);
    }
    let n = clusters as f64;
    let variance = (1.0 - part).max(0.0) * n / (n - 1.0) * squares;
    let half = quantile(clusters - 1) * variance.sqrt() / below;
    // The term m3 / (6 s^2 n) of the residuals' mean, times n / below for the ratio.
    let shift = cubes / squares * (n - 1.0) / n / 6.0 / below;
    let shift = shift.clamp(-half / 2.0, half / 2.0);
    Interval { estimate, low: estimate + shift - half, high: estimate + shift + half }
}

/// The ratio of two sums over clusters, with its interval; `None` if the denominator is zero.
///
/// `part` is the fraction of the population that was sampled; `complete` means that it is all of it.
pub fn ratio(above: &[f64], below: &[f64], part: f64, complete: bool) -> Option<Interval> {
    let total_below: f64 = below.iter().sum();
    if total_below <= 0.0 {
        return None;
    }
    let estimate = above.iter().sum::<f64>() / total_below;
    if complete {
        return Some(Interval::exact(estimate));
    }
    let mut residuals = Residuals { clusters: above.len(), squares: 0.0, cubes: 0.0 };
    for (above, below) in above.iter().zip(below) {
        let residual = above - estimate * below;
        residuals.squares += residual * residual;
        residuals.cubes += residual.powi(3);
    }
    Some(interval(estimate, residuals, total_below, part))
}

/// The number of blocks read, and of all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlocksRead {
    /// The number of blocks that were read.
    pub read: u64,
    /// Blocks of the relation.
    pub total: u64,
}

impl BlocksRead {
    fn part(self) -> f64 {
        if self.total > 0 { self.read as f64 / self.total as f64 } else { 1.0 }
    }

    /// Whether all blocks were read.
    pub fn is_all(self) -> bool {
        self.read >= self.total
    }

    /// An estimate for something that occurs in none of the blocks read, where a block may contain `per_block` of it:
    /// with 95 % confidence, fewer than 3 in as many blocks as were read contain it ("rule of three").
    pub fn unseen(self, per_block: f64) -> Interval {
        let left = self.total.saturating_sub(self.read) as f64;
        let blocks = (left * (3.0 / self.read.max(1) as f64).min(1.0)).ceil();
        Interval { high: blocks * per_block, ..Interval::default() }
    }
}

/// Sums of the first three powers of an amount per block of a sample. They are integers, so that the result does not
/// depend on the order of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PowerSums {
    sum: u128,
    squares: u128,
    cubes: u128,
}

impl PowerSums {
    /// Adds a block that contains `amount`; blocks that contain nothing need not be added.
    pub fn add(&mut self, amount: u64) {
        let amount = u128::from(amount);
        let square = amount.saturating_mul(amount);
        self.sum = self.sum.saturating_add(amount);
        self.squares = self.squares.saturating_add(square);
        self.cubes = self.cubes.saturating_add(square.saturating_mul(amount));
    }

    /// Whether the amount is zero in all blocks.
    pub fn is_zero(&self) -> bool {
        self.sum == 0
    }

    /// The total over all blocks. The interval allows for one more or one less block, because the last block is rarely
    /// full and rarely chosen. `None` if no block was read.
    pub fn total(&self, drawn: BlocksRead) -> Option<Interval> {
        if drawn.read == 0 {
            return drawn.is_all().then(Interval::default);
        }
        let n = drawn.read as f64;
        let sum = self.sum as f64;
        let mean = sum / n;
        if drawn.is_all() {
            return Some(Interval::exact(sum));
        }
        let blocks = u128::from(drawn.read);
        // This is exact if it does not overflow: blocks that differ little must not appear equal, or more similar than
        // they are.
        let squares = match (blocks.checked_mul(self.squares), self.sum.checked_mul(self.sum)) {
            (Some(squares), Some(of_sum)) => squares.saturating_sub(of_sum) as f64 / n,
            _ => (self.squares as f64 - sum * mean).max(0.0),
        };
        let cubes = self.cubes as f64 - 3.0 * mean * self.squares as f64 + 2.0 * n * mean.powi(3);
        let clusters = usize::try_from(drawn.read).unwrap_or(usize::MAX);
        let per_block = interval(mean, Residuals { clusters, squares, cubes }, n, drawn.part());
        Some(per_block.scaled(drawn.total as f64).widened(0.0, mean).at_least(sum))
    }

    /// The ratio of these sums to those of `below`; `products` is the sum over blocks of the product of both amounts.
    /// `None` if `below` is zero.
    pub fn ratio(&self, below: &PowerSums, products: u128, drawn: BlocksRead) -> Option<Interval> {
        if below.is_zero() {
            return None;
        }
        let estimate = self.sum as f64 / below.sum as f64;
        if drawn.is_all() {
            return Some(Interval::exact(estimate));
        }
        let squares = self.squares as f64 - 2.0 * estimate * products as f64
            + estimate.powi(2) * below.squares as f64;
        let clusters = usize::try_from(drawn.read).unwrap_or(usize::MAX);
        let residuals = Residuals { clusters, squares, cubes: 0.0 };
        Some(interval(estimate, residuals, below.sum as f64, drawn.part()).at_least_zero())
    }

    /// The fractions between which the quantile `part` of single values lies in the relation, if these sums count
    /// values. All values of a block count as one, as if they were equal (Kish), so the interval is rather too wide. It
    /// extends to 0 or 1 if the sample is not sufficient.
    pub fn around_quantile(&self, part: f64, drawn: BlocksRead) -> (f64, f64) {
        if drawn.is_all() {
            return (part, part);
        }
        let blocks = (self.sum as f64).powi(2) / (self.squares as f64).max(1.0);
        let left = (1.0 - drawn.part()).max(0.0);
        let variance = part * (1.0 - part) * left / blocks.max(f64::MIN_POSITIVE);
        let half = quantile((blocks as usize).saturating_sub(1)) * variance.sqrt();
        ((part - half).max(0.0), (part + half).min(1.0))
    }
}

impl AddAssign for PowerSums {
    /// Adds the sums over other blocks.
    fn add_assign(&mut self, other: PowerSums) {
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.cubes = self.cubes.saturating_add(other.cubes);
    }
}

/// A sum over blocks, of which one is being read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    now: u64,
    sums: PowerSums,
}

impl Tally {
    /// Adds to the amount of the block that is being read.
    pub fn add(&mut self, amount: u64) {
        self.now = self.now.saturating_add(amount);
    }

    /// Called at the end of a block.
    pub fn end_block(&mut self) {
        let now = std::mem::take(&mut self.now);
        self.add_block(now);
    }

    /// Adds a complete block that contains this amount.
    pub(crate) fn add_block(&mut self, amount: u64) {
        if amount > 0 {
            self.sums.add(amount);
        }
    }

    /// Adds blocks read by another worker.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.sums += other.sums;
    }

    /// The total over all blocks of the relation.
    pub fn total(&self, drawn: BlocksRead) -> Interval {
        self.sums.total(drawn).unwrap_or_default().at_least_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn quantiles_are_students() {
        for (degrees, value) in [(1, 12.706), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((quantile(degrees) - value).abs() < 0.02, "{degrees}: {}", quantile(degrees));
        }
    }

    #[test]
    fn no_variance_no_width_and_one_cluster_no_knowledge() {
        let e = ratio(&[2.0, 4.0], &[1.0, 2.0], 0.5, false).unwrap();
        assert_eq!((e.estimate, e.low, e.high), (2.0, 2.0, 2.0));
        let e = ratio(&[3.0], &[2.0], 0.1, false).unwrap();
        assert_eq!((e.estimate, e.low, e.high), (1.5, 0.0, 3.0));
        assert_eq!(ratio(&[0.0], &[0.0], 1.0, true), None);
    }

    /// With samples of skewed populations, the interval contains the true value about as often as it claims.
    #[test]
    fn intervals_cover_what_they_claim() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(4);
        let mut covered = 0;
        const RUNS: usize = 1000;
        for _ in 0..RUNS {
            // The population has 500 blocks of 20 rows of log-uniform size, and so a heavy tail.
            let population: Vec<f64> = (0..500)
                .map(|_| (0..20).map(|_| 100.0 * 1000f64.powf(rng.random::<f64>())).sum())
                .collect();
            let truth: f64 = population.iter().sum::<f64>() / 500.0;
            let chosen = rand::seq::index::sample(&mut rng, 500, 25);
            let sample: Vec<f64> = chosen.iter().map(|i| population[i]).collect();
            let e = ratio(&sample, &[1.0; 25], 0.05, false).unwrap();
            covered += usize::from(e.low <= truth && truth <= e.high);
        }
        assert!(covered >= RUNS * 93 / 100, "{covered}");
    }

    fn power_sums(amounts: &[u64]) -> PowerSums {
        let mut sums = PowerSums::default();
        for &amount in amounts {
            sums.add(amount);
        }
        sums
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    #[test]
    fn power_sums_give_what_the_blocks_one_by_one_give() {
        let amounts = [900_000_000_010, 900_000_000_000, 900_000_000_003, 900_000_000_007];
        let drawn = BlocksRead { read: 4, total: 100 };
        let got = power_sums(&amounts).total(drawn).unwrap();
        let by_block: Vec<f64> = amounts.iter().map(|&a| a as f64).collect();
        let mean = by_block.iter().sum::<f64>() / 4.0;
        let expected = ratio(&by_block, &[1.0; 4], 0.04, false).unwrap().scaled(100.0);
        assert!(close(got.estimate, expected.estimate));
        // The skewness of blocks that are this similar is lost in rounding, which moves the interval slightly.
        let width = |e: Interval| e.high - e.low;
        assert!((width(got) - width(expected) - 2.0 * mean).abs() < 1.0, "{got:?} {expected:?}");
        let amounts = [5, 0, 17, 3, 9, 250, 4];
        let below = [2, 1, 8, 3, 4, 90, 2];
        let drawn = BlocksRead { read: 7, total: 70 };
        let above = power_sums(&amounts);
        let under = power_sums(&below);
        let [by_block, under_by_block] =
            [amounts, below].map(|all| all.iter().map(|&a| a as f64).collect::<Vec<_>>());
        let expected = ratio(&by_block, &[1.0; 7], 0.1, false).unwrap().scaled(70.0);
        let mean = by_block.iter().sum::<f64>() / 7.0;
        let got = above.total(drawn).unwrap();
        assert!(close(got.high, expected.high + mean), "{got:?} {expected:?}");
        assert_eq!(got.low, (expected.low - mean).max(288.0));
        let products = amounts.iter().zip(below).map(|(&a, b)| u128::from(a * b)).sum();
        let got = above.ratio(&under, products, drawn).unwrap();
        let expected = ratio(&by_block, &under_by_block, 0.1, false).unwrap();
        assert!(close(got.estimate, expected.estimate));
        assert!(close(got.high - got.low, expected.high - expected.low), "{got:?} {expected:?}");
    }

    #[test]
    fn a_whole_relation_leaves_no_doubt_and_one_block_much() {
        let sums = power_sums(&[3, 4]);
        let all = BlocksRead { read: 2, total: 2 };
        assert_eq!(sums.total(all), Some(Interval::exact(7.0)));
        assert_eq!(all.unseen(8192.0), Interval::default());
        assert_eq!(sums.around_quantile(0.5, all), (0.5, 0.5));
        let one = BlocksRead { read: 1, total: 10 };
        assert_eq!(one.unseen(20.0).high, 180.0);
        let total = power_sums(&[5]).total(one).unwrap();
        assert_eq!((total.estimate, total.low, total.high), (50.0, 5.0, 105.0));
        assert_eq!(sums.total(BlocksRead { read: 0, total: 10 }), None);
        assert_eq!(
            PowerSums::default().total(BlocksRead { read: 0, total: 0 }),
            Some(Interval::default())
        );
        let (low, high) =
            power_sums(&[50; 100]).around_quantile(0.5, BlocksRead { read: 100, total: 10_000 });
        assert!((0.39..0.41).contains(&low) && (0.59..0.61).contains(&high), "{low} {high}");
    }
}
