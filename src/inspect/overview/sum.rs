//! Estimates added up (pure).

use crate::model::interval::{RatioEstimate, WholeEstimate};

/// A figure that was counted.
pub(super) fn exact(figure: u64) -> WholeEstimate {
    WholeEstimate { estimate: figure, low: figure, high: figure }
}

/// The sum of two figures of the same sample, which may be wrong together.
pub(super) fn plus(a: &WholeEstimate, b: &WholeEstimate) -> WholeEstimate {
    WholeEstimate {
        estimate: a.estimate.saturating_add(b.estimate),
        low: a.low.saturating_add(b.low),
        high: a.high.saturating_add(b.high),
    }
}

/// One figure by another; `None` if that is nothing.
pub(super) fn ratio_of(above: &WholeEstimate, below: &WholeEstimate) -> Option<RatioEstimate> {
    const UNIT: f64 = 10_000.0;
    let by = |above: u64, below: u64| above as f64 / below.max(1) as f64;
    let round = |ratio: f64| (ratio * UNIT).round() / UNIT;
    (below.estimate > 0).then(|| RatioEstimate {
        estimate: round(by(above.estimate, below.estimate)),
        low: round(by(above.low, below.high)),
        high: round(by(above.high, below.low)),
    })
}

/// A sum of figures of several samples, drawn independently: how far off they are adds up by squares.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    estimate: u64,
    below: f64,
    above: f64,
}

impl Sum {
    /// Adds a figure of a sample of its own.
    pub(super) fn add(&mut self, figure: &WholeEstimate) {
        let WholeEstimate { estimate, low, high } = *figure;
        self.estimate = self.estimate.saturating_add(estimate);
        self.below += (estimate.saturating_sub(low) as f64).powi(2);
        self.above += (high.saturating_sub(estimate) as f64).powi(2);
    }

    /// The sum.
    pub(super) fn total(&self) -> WholeEstimate {
        WholeEstimate {
            estimate: self.estimate,
            low: self.estimate.saturating_sub(self.below.sqrt().ceil() as u64),
            high: self.estimate.saturating_add(self.above.sqrt().ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_errors_add_up_by_squares_and_counted_figures_have_none() {
        let mut sum = Sum::default();
        sum.add(&exact(100));
        assert_eq!(sum.total(), exact(100));
        sum.add(&WholeEstimate { estimate: 50, low: 47, high: 54 });
        sum.add(&WholeEstimate { estimate: 50, low: 46, high: 53 });
        assert_eq!(sum.total(), WholeEstimate { estimate: 200, low: 195, high: 205 });
        assert_eq!(ratio_of(&exact(1), &exact(3)).unwrap().estimate, 0.3333);
        assert!(ratio_of(&exact(1), &exact(0)).is_none());
    }
}
