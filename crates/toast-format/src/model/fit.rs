//! Prices fitted to measurements (pure). Each measurement is the sum of what its parts would take at the default prices,
//! each times the factor by which this server differs; the factors are found by least squares of the relative errors.
//!
//! If few measurements separate two parts, their factors would be arbitrary. So each factor is drawn towards the one by
//! which the server is faster or slower as a whole (ridge regression), and stays within limits.

/// A measurement: nanoseconds of each part at the default prices, and those that were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement<const N: usize> {
    /// The parts at the default prices.
    pub parts: [f64; N],
    /// The measured time in nanoseconds.
    pub ns: f64,
}

impl<const N: usize> Measurement<N> {
    /// The time at the default prices, in nanoseconds.
    fn priced(&self) -> f64 {
        self.parts.iter().sum()
    }

    fn is_usable(&self) -> bool {
        self.ns.is_finite()
            && self.ns > 0.0
            && self.parts.iter().all(|&ns| ns.is_finite() && ns >= 0.0)
            && self.priced() > 0.0
    }
}

/// The relative time that `factors` predict for the parts of a measurement.
fn predicted<const N: usize>(parts: &[f64; N], factors: &[f64; N]) -> f64 {
    parts.iter().zip(factors).map(|(part, factor)| part * factor).sum()
}

/// Factors for the default prices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedPrices<const N: usize> {
    /// One for each part.
    pub factors: [f64; N],
    /// The fraction by which a time that follows from them may be wrong, with 95 % confidence; at least 0.02.
    pub error: f64,
}

/// How much the overall factor counts, in measurements.
const PRIOR: f64 = 0.02;
/// The largest factor by which a part may be cheaper or dearer than the server as a whole.
const LIMIT: f64 = 20.0;
/// Measurements differ from each other by this fraction, whatever the prices.
const LEAST_ERROR: f64 = 0.02;
/// Enough to converge: each round halves the distance at least, for such few parts.
const ROUNDS: usize = 500;

/// Fits factors; `None` unless there are at least 3 measurements, all of them positive and finite.
pub fn fit<const N: usize>(measured: &[Measurement<N>]) -> Option<FittedPrices<N>> {
    if measured.len() < 3 || !measured.iter().all(Measurement::is_usable) {
        return None;
    }
    let mut ratios: Vec<f64> = measured.iter().map(|one| one.ns / one.priced()).collect();
    ratios.sort_by(f64::total_cmp);
    let overall = *ratios.get(ratios.len() / 2)?;
    // parts of the measured time, for the server as a whole
    let rows: Vec<[f64; N]> =
        measured.iter().map(|one| one.parts.map(|part| part * overall / one.ns)).collect();
    let mut factors = [1.0; N];
    for _ in 0..ROUNDS {
        for at in 0..N {
            let mut above = PRIOR;
            let mut below = PRIOR;
            for row in &rows {
                let part = row.get(at).copied().unwrap_or(0.0);
                let own = part * factors.get(at).copied().unwrap_or(0.0);
                above += part * (1.0 - (predicted(row, &factors) - own));
                below += part * part;
            }
            if let Some(factor) = factors.get_mut(at) {
                *factor = (above / below).clamp(1.0 / LIMIT, LIMIT);
            }
        }
    }
    let squares: f64 = rows.iter().map(|row| (predicted(row, &factors) - 1.0).powi(2)).sum();
    // a part counts as fitted as far as the measurements outweigh the prior
    let fitted: f64 = (0..N)
        .map(|at| {
            let weight: f64 =
                rows.iter().filter_map(|row| row.get(at)).map(|part| part * part).sum();
            weight / (weight + PRIOR)
        })
        .sum();
    let count = measured.len() as f64;
    let free = (count - fitted).max(count / 3.0);
    let error = (2.0 * (squares / free).sqrt()).max(LEAST_ERROR);
    Some(FittedPrices { factors: factors.map(|factor| factor * overall), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What parts take on a server with these factors.
    fn measured(parts: [f64; 3], factors: [f64; 3], noise: f64) -> Measurement<3> {
        let ns = parts.iter().zip(factors).map(|(part, factor)| part * factor).sum::<f64>();
        Measurement { parts, ns: ns * (1.0 + noise) }
    }

    const PARTS: [[f64; 3]; 6] = [
        [100.0, 10.0, 500.0],
        [100.0, 400.0, 100.0],
        [50.0, 800.0, 900.0],
        [100.0, 20.0, 50.0],
        [300.0, 30.0, 2000.0],
        [20.0, 1000.0, 10.0],
    ];

    #[test]
    fn factors_that_made_the_measurements_are_found() {
        let factors = [2.0, 0.5, 1.5];
        let fit = fit(&PARTS.map(|parts| measured(parts, factors, 0.0))).unwrap();
        for (found, made) in fit.factors.iter().zip(factors) {
            assert!((found / made - 1.0).abs() < 0.1, "{fit:?}");
        }
        assert!(fit.error < 0.03, "{fit:?}");
    }

    #[test]
    fn the_error_is_that_of_the_measurements() {
        let noise = |number: usize| if number.is_multiple_of(2) { 0.2 } else { -0.2 };
        // each of them three times, with noise of either sign
        let noisy: Vec<_> = (0..3)
            .flat_map(|run| PARTS.iter().enumerate().map(move |(at, &parts)| (run * 7 + at, parts)))
            .map(|(number, parts)| measured(parts, [1.0; 3], noise(number)))
            .collect();
        let error = fit(&noisy).unwrap().error;
        assert!((0.25..0.6).contains(&error), "{error}");
    }

    #[test]
    fn a_part_that_is_not_measured_is_as_fast_as_the_others() {
        let parts = PARTS.map(|[a, b, _]| [a, b, 0.0]);
        let fit = fit(&parts.map(|parts| measured(parts, [3.0; 3], 0.0))).unwrap();
        assert!((fit.factors[2] - 3.0).abs() < 1e-6, "{fit:?}");
    }

    #[test]
    fn nothing_is_fitted_to_too_little_or_to_nonsense() {
        let one = measured([1.0; 3], [1.0; 3], 0.0);
        assert_eq!(fit(&[one, one]), None);
        for ns in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fit(&[one, one, one, Measurement { ns, ..one }]), None);
        }
        assert_eq!(fit(&[Measurement { parts: [0.0; 3], ns: 1.0 }; 4]), None);
        assert!(fit(&[one; 3]).is_some());
    }
}
