//! Sums over the blocks of a sample (pure).

use crate::model::estimate::{Drawn, Estimate, PowerSums};

/// A sum over blocks, of which one is being read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    now: u64,
    sums: PowerSums,
}

impl Tally {
    pub(crate) fn add(&mut self, amount: u64) {
        self.now = self.now.saturating_add(amount);
    }

    /// The block is read.
    pub(crate) fn end_block(&mut self) {
        if self.now > 0 {
            self.sums.add(std::mem::take(&mut self.now));
        }
    }

    /// Of all blocks of the relation.
    pub(crate) fn total(&self, drawn: Drawn) -> Estimate {
        self.sums.total(drawn).unwrap_or_default().at_least_zero()
    }
}
