//! Whether VACUUM may remove the dead tuples of a file now.

use crate::disk::tuple::infomask;
use crate::disk::{HeapTuple, TransactionId};

/// The transactions that deleted the dead tuples of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deaths {
    /// The first and the last of them.
    span: Option<Span>,
    /// Whether there are dead tuples that no transaction deleted: the one that inserted them was aborted.
    has_aborted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: TransactionId,
    last: TransactionId,
}

/// How many of the dead tuples VACUUM may not remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldTuples {
    /// It may remove all of them.
    None,
    /// It may remove only the others.
    Some,
    /// It may remove none of them.
    All,
}

impl Deaths {
    /// Adds a dead tuple. Of a MultiXact it is not known which of its transactions deleted the tuple.
    pub fn add(&mut self, tuple: &HeapTuple<'_>) {
        if tuple.infomask & infomask::XMAX_INVALID != 0 || tuple.xmax.0 == 0 {
            self.has_aborted = true;
        } else if tuple.infomask & infomask::XMAX_IS_MULTI == 0 {
            self.add_span(Span { first: tuple.xmax, last: tuple.xmax });
        }
    }

    fn add_span(&mut self, other: Span) {
        let Span { first, last } = self.span.unwrap_or(other);
        self.span = Some(Span {
            first: if other.first.precedes(first) { other.first } else { first },
            last: if last.precedes(other.last) { other.last } else { last },
        });
    }

    /// Adds those of another part of the file.
    pub fn merge(&mut self, other: Deaths) {
        self.has_aborted |= other.has_aborted;
        if let Some(span) = other.span {
            self.add_span(span);
        }
    }

    /// How many of them VACUUM may not remove because this transaction, or a later one, may see them
    /// (`HeapTupleSatisfiesVacuum`).
    pub fn held_by(&self, horizon: TransactionId) -> HeldTuples {
        let Some(Span { first, last }) = self.span else { return HeldTuples::None };
        if last.precedes(horizon) {
            return HeldTuples::None;
        }
        let has_removable = first.precedes(horizon);
        if has_removable || self.has_aborted { HeldTuples::Some } else { HeldTuples::All }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deaths(xids: &[u32]) -> Deaths {
        let mut deaths = Deaths::default();
        for &xid in xids {
            let mut one = Deaths::default();
            let mut tuple = HeapTuple::of_data(&[]);
            tuple.xmax.0 = xid;
            one.add(&tuple);
            deaths.merge(one);
        }
        deaths
    }

    #[test]
    fn what_died_before_the_horizon_may_be_removed() {
        assert_eq!(deaths(&[]).held_by(TransactionId(5)), HeldTuples::None);
        assert_eq!(deaths(&[7, 9]).held_by(TransactionId(10)), HeldTuples::None);
        assert_eq!(deaths(&[7, 9]).held_by(TransactionId(9)), HeldTuples::Some);
        assert_eq!(deaths(&[7, 9]).held_by(TransactionId(7)), HeldTuples::All);
        assert_eq!(deaths(&[7, 0]).held_by(TransactionId(7)), HeldTuples::Some);
        // the counter has turned
        assert_eq!(deaths(&[u32::MAX, 5]).held_by(TransactionId(3)), HeldTuples::Some);
        assert_eq!(deaths(&[5, u32::MAX]).held_by(TransactionId(u32::MAX - 1)), HeldTuples::All);
    }
}
