//! Which tuple versions are visible (`HeapTupleSatisfiesMVCC`, `heapam_visibility.c`).

use std::collections::{HashMap, HashSet};

use crate::disk::tuple::infomask;
use crate::disk::{ByteOrder, HeapTuple, TransactionId};

/// Whether a tuple version is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// A `SELECT` would return it.
    Live,
    /// Deleted, updated, aborted, or inserted by a transaction that the snapshot does not see.
    Dead,
    /// It depends on the status of this transaction (or of this MultiXact, if `xid` is `None`), which is not known.
    Unknown {
        /// The transaction; `None` for a MultiXact.
        xid: Option<TransactionId>,
    },
}

/// What is known about transactions.
pub trait Transactions {
    /// Whether the changes of `xid` are visible; `None` if that is not known.
    ///
    /// `hinted`: the tuple's hint bit shows that it committed (at any time up to now).
    fn sees_changes_of(&self, xid: TransactionId, hinted: bool) -> Option<bool>;

    /// Whether `pg_xact` says that `xid` was aborted.
    fn was_aborted(&self, xid: TransactionId) -> bool;
}

/// Only hint bits are known: the changes of a committed transaction are visible.
#[derive(Debug, Clone, Copy, Default)]
pub struct HintBits;

impl Transactions for HintBits {
    fn sees_changes_of(&self, _xid: TransactionId, hinted: bool) -> Option<bool> {
        hinted.then_some(true)
    }

    fn was_aborted(&self, _xid: TransactionId) -> bool {
        false
    }
}

/// `None` means that only hint bits are known.
impl<T: Transactions> Transactions for Option<T> {
    fn sees_changes_of(&self, xid: TransactionId, hinted: bool) -> Option<bool> {
        match self {
            Some(transactions) => transactions.sees_changes_of(xid, hinted),
            None => HintBits.sees_changes_of(xid, hinted),
        }
    }

    fn was_aborted(&self, xid: TransactionId) -> bool {
        self.as_ref().is_some_and(|transactions| transactions.was_aborted(xid))
    }
}

impl<T: Transactions> Transactions for &T {
    fn sees_changes_of(&self, xid: TransactionId, hinted: bool) -> Option<bool> {
        (**self).sees_changes_of(xid, hinted)
    }

    fn was_aborted(&self, xid: TransactionId) -> bool {
        (**self).was_aborted(xid)
    }
}

/// A snapshot of a live server, with the status of transactions learned so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    xmin: u64,
    xmax: u64,
    in_progress: HashSet<u64>,
    /// Whether the server was a standby, on which an all-visible page is not necessarily so for this snapshot
    /// (`takenDuringRecovery`).
    pub taken_during_recovery: bool,
    /// The final status of transactions before `xmin`: whether they committed.
    finished: HashMap<TransactionId, bool>,
}

impl Snapshot {
    /// Parses the text form of `pg_snapshot`, `xmin:xmax:xip,...`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Snapshot> {
        let mut parts = text.split(':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let list = parts.next()?;
        if parts.next().is_some() || xmin > xmax {
            return None;
        }
        let in_progress = list
            .split(',')
            .filter(|xid| !xid.is_empty())
            .map(|xid| xid.parse().ok())
            .collect::<Option<HashSet<u64>>>()?;
        Some(Snapshot { xmin, xmax, in_progress, ..Snapshot::default() })
    }

    /// The next transaction ID (`xmax`): all visible rows were inserted by earlier transactions.
    pub fn next_xid(&self) -> u64 {
        self.xmax
    }

    /// The oldest transaction in progress (`xmin`): all earlier ones had ended.
    pub fn oldest_xid(&self) -> u64 {
        self.xmin
    }

    /// The 64-bit transaction ID closest to the snapshot.
    pub fn full_xid(&self, xid: TransactionId) -> u64 {
        let distance = xid.0.wrapping_sub(self.xmax as u32) as i32;
        self.xmax.wrapping_add_signed(i64::from(distance))
    }

    /// Whether the transaction had ended before the oldest one of the snapshot began, so that its status is final and
    /// can be queried with `pg_xact_status`.
    pub fn is_finished(&self, xid: TransactionId) -> bool {
        self.full_xid(xid) < self.xmin
    }

    /// Whether the transaction had ended when the snapshot was taken, or is a subtransaction of one that had not. The
    /// text of the snapshot does not distinguish the two.
    pub fn was_over(&self, xid: TransactionId) -> bool {
        let xid = self.full_xid(xid);
        xid < self.xmax && !self.in_progress.contains(&xid)
    }

    /// Whether the tuple is certainly visible, as most tuples are: inserted long ago according to its hint bit, and
    /// never deleted. This is a quick check that does not parse the whole header.
    #[inline]
    pub fn settles(&self, tuple: &[u8], order: ByteOrder) -> bool {
        let (Some(mask), Some(xmin)) = (order.u16(tuple, 20), order.u32(tuple, 0)) else {
            return false;
        };
        mask & (infomask::XMIN_COMMITTED | infomask::XMAX_INVALID)
            == infomask::XMIN_COMMITTED | infomask::XMAX_INVALID
            && self.is_finished(TransactionId(xmin))
    }

    /// Records the status of a transaction for which [`Snapshot::is_finished`] holds, or that has ended by now.
    pub fn learn(&mut self, xid: TransactionId, committed: bool) {
        self.finished.insert(xid, committed);
    }
}

/// `BootstrapTransactionId` and `FrozenTransactionId`, which are visible to all snapshots.
const SPECIAL_XIDS: std::ops::RangeInclusive<u32> = 1..=2;

impl Transactions for Snapshot {
    fn sees_changes_of(&self, xid: TransactionId, hinted: bool) -> Option<bool> {
        if SPECIAL_XIDS.contains(&xid.0) {
            return Some(true);
        }
        let full = self.full_xid(xid);
        if full >= self.xmax || self.in_progress.contains(&full) {
            Some(false)
        } else if full < self.xmin {
            if hinted { Some(true) } else { self.finished.get(&xid).copied() }
        } else {
            // The snapshot lists only top-level transactions, so this may be a subtransaction of one that was still in
            // progress, unless its status was learnt.
            self.finished.get(&xid).copied()
        }
    }

    fn was_aborted(&self, xid: TransactionId) -> bool {
        self.finished.get(&xid) == Some(&false)
    }
}

/// Whether `tuple` is visible, as far as `transactions` shows.
pub fn visibility(tuple: &HeapTuple<'_>, transactions: &impl Transactions) -> Visibility {
    if !tuple.xmin_frozen() {
        if tuple.has(infomask::XMIN_INVALID) {
            return Visibility::Dead;
        }
        match transactions.sees_changes_of(tuple.xmin, tuple.has(infomask::XMIN_COMMITTED)) {
            Some(true) => {}
            Some(false) => return Visibility::Dead,
            None => return Visibility::Unknown { xid: Some(tuple.xmin) },
        }
    }
    if tuple.has(infomask::XMAX_INVALID) || tuple.xmax.0 == 0 || tuple.xmax_locked_only() {
        return Visibility::Live;
    }
    if tuple.has(infomask::XMAX_IS_MULTI) {
        return Visibility::Unknown { xid: None };
    }
    match transactions.sees_changes_of(tuple.xmax, tuple.has(infomask::XMAX_COMMITTED)) {
        Some(true) => Visibility::Dead,
        Some(false) => Visibility::Live,
        None => Visibility::Unknown { xid: Some(tuple.xmax) },
    }
}

#[cfg(test)]
mod tests {
    use super::infomask::*;
    use super::*;
    use crate::disk::{ByteOrder, ItemPointer};

    fn tuple(xmin: u32, xmax: u32, infomask: u16) -> HeapTuple<'static> {
        HeapTuple {
            xmin: TransactionId(xmin),
            xmax: TransactionId(xmax),
            ctid: ItemPointer::default(),
            infomask,
            infomask2: 0,
            null_bitmap: None,
            data: &[],
            data_offset: 24,
            order: ByteOrder::Little,
        }
    }

    fn unknown(xid: u32) -> Visibility {
        Visibility::Unknown { xid: Some(TransactionId(xid)) }
    }

    #[test]
    fn hint_bits_alone() {
        let see = |xmax, mask| visibility(&tuple(10, xmax, mask), &HintBits);
        assert_eq!(see(0, XMIN_COMMITTED | XMAX_INVALID), Visibility::Live);
        assert_eq!(see(0, XMIN_COMMITTED | XMIN_INVALID), Visibility::Live);
        assert_eq!(see(0, XMIN_INVALID), Visibility::Dead);
        assert_eq!(see(0, 0), unknown(10));
        assert_eq!(see(11, XMIN_COMMITTED | XMAX_COMMITTED), Visibility::Dead);
        assert_eq!(see(11, XMIN_COMMITTED), unknown(11));
        assert_eq!(see(11, XMIN_COMMITTED | XMAX_LOCK_ONLY), Visibility::Live);
        assert_eq!(see(11, XMIN_COMMITTED | XMAX_EXCL_LOCK), Visibility::Live);
        assert_eq!(see(11, XMIN_COMMITTED | XMAX_IS_MULTI), Visibility::Unknown { xid: None });
        assert_eq!(see(11, XMIN_COMMITTED | XMAX_IS_MULTI | XMAX_LOCK_ONLY), Visibility::Live);
    }

    #[test]
    fn a_snapshot_decides_by_what_was_over_when_it_was_taken() {
        let mut snapshot = Snapshot::parse("100:110:100,105").unwrap();
        let committed = XMIN_COMMITTED | XMAX_INVALID;
        let see = |s: &Snapshot, xmin, mask| visibility(&tuple(xmin, 0, mask), s);
        assert_eq!(see(&snapshot, 99, committed), Visibility::Live);
        assert_eq!(see(&snapshot, 100, 0), Visibility::Dead);
        assert_eq!(see(&snapshot, 105, committed), Visibility::Dead);
        assert_eq!(see(&snapshot, 110, committed), Visibility::Dead);
        assert_eq!(see(&snapshot, 103, committed), unknown(103));
        assert_eq!(see(&snapshot, 99, 0), unknown(99));
        snapshot.learn(TransactionId(99), false);
        assert_eq!(see(&snapshot, 99, 0), Visibility::Dead);
        snapshot.learn(TransactionId(98), true);
        assert_eq!(see(&snapshot, 98, 0), Visibility::Live);
    }

    #[test]
    fn transaction_ids_wrap_around() {
        let snapshot = Snapshot::parse("8589934600:8589934610:").unwrap();
        assert_eq!(snapshot.full_xid(TransactionId(7)), 8_589_934_599);
        assert_eq!(snapshot.full_xid(TransactionId(u32::MAX)), 8_589_934_591);
        assert_eq!(snapshot.full_xid(TransactionId(20)), 8_589_934_612);
        assert!(snapshot.is_finished(TransactionId(u32::MAX)));
    }

    #[test]
    fn only_snapshots_are_snapshots() {
        for text in ["", "1", "1:2", "2:1:", "1:2:3:4", "1:5:x", "a:b:c"] {
            assert_eq!(Snapshot::parse(text), None, "{text}");
        }
        assert!(Snapshot::parse("5:5:").is_some());
    }
}
