//! What is to become of an index, and how all of it ended (pure).

use super::result::{IndexEnd, IndexReport};
use super::wish::Reindex;
use crate::fill::btree::is_bloated;
use crate::retoast::result::Outcome;

/// What is to be done about an index of so many bytes, of which a fresh one takes so many.
pub(crate) fn verdict(wish: Reindex, bytes: u64, fresh: Option<u64>) -> IndexEnd {
    match (wish, fresh) {
        (Reindex::All, _) => IndexEnd::Planned,
        (_, None) => IndexEnd::NotKnown,
        (_, Some(fresh)) if !is_bloated(bytes, fresh) => IndexEnd::Kept,
        (Reindex::Never, _) => IndexEnd::Bloated,
        (Reindex::Bloated, _) => IndexEnd::Planned,
    }
}

/// Of all indexes together; what is refused cannot be had by trying again.
pub(crate) fn outcome(indexes: &[IndexReport], dry_run: bool, stopped: bool) -> Outcome {
    if dry_run {
        return Outcome::Planned;
    }
    let is_left = |index: &IndexReport| matches!(index.ended, IndexEnd::Left | IndexEnd::Invalid);
    match (stopped, indexes.iter().any(is_left)) {
        (true, _) => Outcome::Stopped,
        (false, true) => Outcome::Incomplete,
        (false, false) => Outcome::Complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_rebuilt_for_a_third_and_some_pages() {
        let mb = 1 << 20;
        assert!(is_bloated(14 * mb, 10 * mb) && !is_bloated(13 * mb, 10 * mb));
        assert!(!is_bloated(32 << 10, 16 << 10));
        assert_eq!(verdict(Reindex::Never, 3 * mb, Some(mb)), IndexEnd::Bloated);
        assert_eq!(verdict(Reindex::Bloated, 3 * mb, Some(mb)), IndexEnd::Planned);
        assert_eq!(verdict(Reindex::Bloated, mb, Some(mb)), IndexEnd::Kept);
        assert_eq!(verdict(Reindex::Bloated, mb, None), IndexEnd::NotKnown);
        assert_eq!(verdict(Reindex::All, mb, None), IndexEnd::Planned);
    }

    #[test]
    fn what_is_left_decides() {
        let of = |ended| IndexReport {
            index: "s.i".into(),
            ended,
            before: 1,
            expected: None,
            wal_expected: None,
            after: None,
            reason: None,
            command: None,
        };
        let ended = |ends: &[IndexEnd]| {
            outcome(&ends.iter().map(|&end| of(end)).collect::<Vec<_>>(), false, false)
        };
        use IndexEnd::{Dropped, Invalid, Kept, Left, NotKnown, Rebuilt, Refused};
        assert_eq!(ended(&[Kept, Rebuilt, NotKnown, Refused, Dropped]), Outcome::Complete);
        assert_eq!(ended(&[Rebuilt, Left]), Outcome::Incomplete);
        assert_eq!(ended(&[Invalid]), Outcome::Incomplete);
        assert_eq!(outcome(&[of(Rebuilt)], false, true), Outcome::Stopped);
        assert_eq!(outcome(&[], true, false), Outcome::Planned);
    }
}
