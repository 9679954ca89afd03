//! How far rows are from the threshold: their widths before anything of them is toasted (pure).

use crate::disk::layout::PageSize;

/// Ends of the ranges below and above the threshold, in parts of it; the last range has none.
const ENDS: [f64; 7] = [0.5, 0.9, 1.0, 1.1, 2.0, 4.0, 16.0];

/// How many ranges there are.
pub(super) const RANGES: usize = ENDS.len() + 1;

/// The ranges that rows are counted in, for one page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranges {
    /// The greatest width of each range but the last, in bytes.
    ends: [u32; ENDS.len()],
}

/// A row's length above which the toaster is called (`TOAST_TUPLE_THRESHOLD`).
pub(super) fn threshold(page: PageSize) -> u32 {
    u32::try_from(page.toast_tuple_threshold()).unwrap_or(u32::MAX)
}

impl Ranges {
    pub(super) fn of(page: PageSize) -> Ranges {
        let threshold = f64::from(threshold(page));
        Ranges { ends: ENDS.map(|part| (threshold * part) as u32) }
    }

    /// The range of a row of this width.
    pub(super) fn at(&self, width: u32) -> usize {
        self.ends.iter().take_while(|&&end| width > end).count()
    }

    /// First and last width of a range; the last range has no last.
    pub(super) fn bounds(&self, range: usize) -> (u32, Option<u32>) {
        let end = |at: usize| self.ends.get(at).copied();
        let from = range.checked_sub(1).and_then(end).map_or(0, |end| end + 1);
        (from, end(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_threshold_is_the_last_that_is_not_toasted() {
        let ranges = Ranges::of(PageSize::DEFAULT);
        assert_eq!(threshold(PageSize::DEFAULT), 2032);
        let at = |width| ranges.at(width);
        assert_eq!(
            [at(0), at(1016), at(1017), at(2032), at(2033), at(u32::MAX)],
            [0, 0, 1, 2, 3, 7]
        );
        for range in 0..RANGES {
            let (from, to) = ranges.bounds(range);
            assert_eq!((at(from), at(to.unwrap_or(u32::MAX))), (range, range));
        }
        assert_eq!(ranges.bounds(2), (1829, Some(2032)));
    }
}
