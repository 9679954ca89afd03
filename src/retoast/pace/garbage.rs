//! Old row versions that the sweep has left and that no vacuum has removed yet (pure).

use std::collections::VecDeque;

use toast_format::disk::TransactionId;

/// The maximum number of entries; when it is exceeded, the number of transactions per entry doubles.
const REMEMBERED: usize = 4096;

/// What consecutive transactions of the sweep have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeadVersions {
    /// The latest of the transactions: the entry counts as held until what this one has replaced may be removed.
    xid: u32,
    bytes: u64,
    /// The number of transactions.
    transactions: u32,
}

impl DeadVersions {
    fn with(self, other: DeadVersions) -> DeadVersions {
        DeadVersions {
            xid: if before(self.xid, other.xid) { other.xid } else { self.xid },
            bytes: self.bytes.saturating_add(other.bytes),
            transactions: self.transactions.saturating_add(other.transactions),
        }
    }
}

/// What the sweep's transactions have left, oldest first. Transaction IDs are the low 32 bits, which wrap around;
/// they are compared as `TransactionIdPrecedes` does (transam.c).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    left: VecDeque<DeadVersions>,
    /// How many times the number of transactions per entry was doubled.
    doublings: u32,
}

/// Whether transaction `a` precedes `b`.
fn before(a: u32, b: u32) -> bool {
    TransactionId(a).precedes(TransactionId(b))
}

impl Garbage {
    /// Adds a transaction that has replaced values of this size.
    pub fn add(&mut self, xid: u32, bytes: u64) {
        self.put(DeadVersions { xid, bytes, transactions: 1 });
        if self.left.len() > REMEMBERED {
            self.doublings += 1;
            for left in std::mem::take(&mut self.left) {
                self.put(left);
            }
        }
    }

    /// Adds to the last entry if that has room for these transactions, or appends an entry.
    fn put(&mut self, left: DeadVersions) {
        let most = 1u32.checked_shl(self.doublings).unwrap_or(u32::MAX);
        match self.left.back_mut() {
            Some(last) if last.transactions.saturating_add(left.transactions) <= most => {
                *last = last.with(left);
            }
            _ => self.left.push_back(left),
        }
    }

    /// The total, in bytes.
    pub fn total(&self) -> u64 {
        self.left.iter().map(|left| left.bytes).sum()
    }

    /// Bytes that no vacuum may remove while `horizon` is the oldest transaction whose effects some session does not
    /// see.
    pub fn held(&self, horizon: Option<u32>) -> u64 {
        let Some(horizon) = horizon else { return 0 };
        let held = self.left.iter().filter(|left| !before(left.xid, horizon));
        held.map(|left| left.bytes).sum()
    }

    /// Removes what a vacuum could remove that began while this was the horizon.
    pub fn vacuumed(&mut self, horizon: Option<u32>) {
        match horizon {
            None => *self = Garbage::default(),
            Some(horizon) => self.left.retain(|left| !before(left.xid, horizon)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_since_the_horizon_is_held() {
        let mut garbage = Garbage::default();
        for xid in 10..20 {
            garbage.add(xid, 100);
        }
        assert_eq!((garbage.total(), garbage.held(None)), (1000, 0));
        assert_eq!(garbage.held(Some(10)), 1000);
        assert_eq!(garbage.held(Some(15)), 500);
        assert_eq!(garbage.held(Some(20)), 0);
        garbage.vacuumed(Some(15));
        assert_eq!((garbage.total(), garbage.held(Some(10))), (500, 500));
        garbage.vacuumed(None);
        assert_eq!(garbage, Garbage::default());
    }

    #[test]
    fn numbers_wrap_around() {
        let mut garbage = Garbage::default();
        garbage.add(u32::MAX - 1, 1);
        garbage.add(5, 10);
        assert_eq!(garbage.held(Some(u32::MAX)), 10);
        assert_eq!(garbage.held(Some(u32::MAX - 1)), 11);
        assert_eq!(garbage.held(Some(6)), 0);
    }

    #[test]
    fn long_sweeps_are_remembered_in_less_and_never_as_less_than_is_held() {
        let mut garbage = Garbage::default();
        for xid in 0..100_000 {
            garbage.add(xid, 1);
        }
        assert!(garbage.left.len() <= REMEMBERED);
        assert_eq!(garbage.total(), 100_000);
        assert!((50_000..50_100).contains(&garbage.held(Some(50_000))));
    }
}
