//! How full pages get where tuples are stored one after the other (pure).

use crate::disk::layout::{LINE_POINTER_SIZE, PageSize};
use crate::model::pages::{Fill, Filler};

/// Tuples of a sample at the most.
const MOST: usize = 20_000;

/// A sample of tuples, stored one after the other into empty pages: room that is left behind is used only once
/// there are no empty pages any more.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    filler: Filler,
    tuples: usize,
    bytes: u64,
}

impl Sample {
    /// Of a relation with this fillfactor, in percent.
    pub(crate) fn new(page: PageSize, fillfactor: u32) -> Sample {
        let fillfactor = u8::try_from(fillfactor).unwrap_or(100);
        Sample { filler: Filler::new(page, fillfactor, Fill::Append), tuples: 0, bytes: 0 }
    }

    /// Adds a tuple that takes so many bytes of a page, unless there are enough.
    pub(crate) fn add(&mut self, taken: u32) {
        if self.tuples < MOST {
            self.filler.put((taken as usize).saturating_sub(LINE_POINTER_SIZE));
            self.tuples += 1;
            self.bytes += u64::from(taken);
        }
    }

    /// The part of a page that is filled, of which so many bytes can be.
    pub(super) fn filled(&self, usable: u32) -> f64 {
        if self.filler.pages() < 2 {
            return 1.0;
        }
        self.bytes as f64 / (self.filler.filled_pages() * f64::from(usable)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USABLE: u32 = 8168;

    fn filled(usable: u32, tuples: &[u32]) -> f64 {
        let mut sample = Sample::new(PageSize::DEFAULT, 100);
        tuples.iter().for_each(|&taken| sample.add(taken));
        sample.filled(usable)
    }

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
        let mut sample = Sample::new(PageSize::DEFAULT, 100);
        (0..30_000).for_each(|_| sample.add(2036));
        assert_eq!(sample.tuples, MOST);
        assert!(sample.filled(USABLE) > 0.99);
    }
}
