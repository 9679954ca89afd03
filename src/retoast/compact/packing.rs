//! How full pages get where tuples are stored one after the other (pure).

/// Tuples of a sample at the most.
const MOST: usize = 20_000;

/// A sample of tuples in the order in which they are stored.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    lengths: Vec<u32>,
}

impl Sample {
    /// Adds a tuple that takes so many bytes of a page, unless there are enough.
    pub(super) fn add(&mut self, taken: u32) {
        if self.lengths.len() < MOST {
            self.lengths.push(taken);
        }
    }

    /// The part of a page that is filled, of which so many bytes can be.
    pub(super) fn filled(&self, usable: u32) -> f64 {
        filled(usable, &self.lengths)
    }
}

/// As `RelationGetBufferForTuple` (hio.c) fills empty pages: a tuple goes to the page that the one before went to, if
/// it fits there, else to the next. Room that is left behind is used only once there are no empty pages any more.
fn filled(usable: u32, tuples: &[u32]) -> f64 {
    let (mut pages, mut left, mut all) = (0u64, 0u32, 0u64);
    for &tuple in tuples {
        let tuple = tuple.min(usable);
        if tuple > left {
            pages += 1;
            left = usable;
        }
        left -= tuple;
        all += u64::from(tuple);
    }
    let bytes = (pages * u64::from(usable)).saturating_sub(u64::from(left));
    if pages < 2 { 1.0 } else { all as f64 / bytes.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USABLE: u32 = 8168;

    #[test]
    fn four_full_chunks_fill_a_page_and_rows_of_just_over_half_of_one_do_not() {
        assert!(filled(USABLE, &[2036; 400]) > 0.99);
        assert!((filled(USABLE, &[4200; 400]) - 0.515).abs() < 0.005);
        assert!(filled(USABLE, &[100; 400]) > 0.98);
        assert!((filled(USABLE, &[]) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn values_of_three_full_chunks_and_a_rest_have_a_page_each() {
        let value = [2036, 2036, 2036, 452];
        let tuples: Vec<u32> = value.into_iter().cycle().take(4_000).collect();
        assert!((filled(USABLE, &tuples) - 0.803).abs() < 0.002);
    }

    #[test]
    fn a_sample_has_an_end() {
        let mut sample = Sample::default();
        (0..20_000).for_each(|_| sample.add(2036));
        assert_eq!(sample.lengths.len(), MOST);
        assert!(sample.filled(USABLE) > 0.99);
    }
}
