//! How much one transaction moves (pure): as much as takes the time that it may take.

use std::time::Duration;

use crate::retoast::pace::speed::{BESIDE_OTHERS, smoothed};

/// What moving a row costs besides its bytes, in bytes.
const ROW: u64 = 400;
/// What the first transaction moves, in the same.
const FIRST: f64 = 200_000.0;

/// Something that is moved whole.
pub(crate) trait Piece {
    /// Its address, by which it is known again.
    fn key(&self) -> (u32, u16);
    /// Rows in it.
    fn rows(&self) -> u64;
    /// Bytes that are written to move it.
    fn bytes(&self) -> u64;
    /// Bytes of what is moved, as they are stored.
    fn stored(&self) -> u64 {
        self.bytes()
    }
    /// Tuples of the file that it has.
    fn tuples(&self) -> u64 {
        self.rows()
    }
    /// Bytes of old row versions that it leaves in the table.
    fn versions(&self) -> u64;
    /// Whether one transaction may move it after this one.
    fn follows(&self, _before: &Self) -> bool {
        true
    }
    /// How many of so many that are left one transaction may move.
    fn most_of(left: usize) -> usize {
        left
    }
}

/// How fast it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How long a transaction is to take.
    batch: Duration,
    /// Bytes that one writes at the most, unless one piece has more.
    most_bytes: u64,
    /// Bytes and rows a millisecond, smoothed.
    speed: Option<f64>,
    others: bool,
}

fn cost(piece: &impl Piece) -> u64 {
    piece.bytes().saturating_add(piece.rows().saturating_mul(ROW))
}

impl Pace {
    pub(crate) fn new(batch: Duration, most_bytes: u64) -> Pace {
        Pace { batch, most_bytes, speed: None, others: false }
    }

    /// Whether other sessions are active.
    pub(crate) fn beside_others(&mut self, others: bool) {
        self.others = others;
    }

    /// How many of the pieces one transaction takes; at least one, if there is one.
    pub(crate) fn share<P: Piece>(&self, pieces: &[P]) -> usize {
        let ms = self.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST, |speed| speed * ms);
        if self.others {
            most *= BESIDE_OTHERS;
        }
        let (mut costs, mut bytes) = (0u64, 0u64);
        let before = std::iter::once(None).chain(pieces.iter().map(Some));
        let fits = |(piece, before): &(&P, Option<&P>)| {
            let follows = before.is_none_or(|before| piece.follows(before));
            costs = costs.saturating_add(cost(*piece));
            bytes = bytes.saturating_add(piece.bytes());
            follows && costs as f64 <= most && bytes <= self.most_bytes
        };
        let most = P::most_of(pieces.len()).min(10_000);
        pieces.iter().zip(before).take(most).take_while(fits).count().max(1).min(pieces.len())
    }

    /// These took so long.
    pub(crate) fn took<P: Piece>(&mut self, pieces: &[P], time: Duration) {
        let ms = (time.as_secs_f64() * 1000.0).max(0.05);
        let now = pieces.iter().map(cost).sum::<u64>() as f64 / ms;
        self.speed = Some(smoothed(self.speed, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(u64);

    impl Piece for Row {
        fn key(&self) -> (u32, u16) {
            (0, 1)
        }
        fn rows(&self) -> u64 {
            1
        }
        fn bytes(&self) -> u64 {
            self.0
        }
        fn versions(&self) -> u64 {
            40
        }
    }

    fn rows(count: usize, bytes: u64) -> Vec<Row> {
        (0..count).map(|_| Row(bytes)).collect()
    }

    #[test]
    fn a_transaction_takes_its_time_and_a_tenth_of_it_beside_others() {
        let mut pace = Pace::new(Duration::from_millis(100), 16 << 20);
        assert_eq!(pace.share(&rows(1_000, 1_600)), 100);
        pace.took(&rows(100, 1_600), Duration::from_millis(10));
        assert_eq!(pace.share(&rows(5_000, 1_600)), 1_000);
        pace.beside_others(true);
        assert_eq!(pace.share(&rows(5_000, 1_600)), 100);
    }

    #[test]
    fn at_least_one_is_taken_and_no_more_bytes_than_allowed() {
        let mut pace = Pace::new(Duration::from_millis(100), 1 << 20);
        assert_eq!(pace.share(&rows(3, 50 << 20)), 1);
        assert_eq!(pace.share(&rows(0, 1)), 0);
        pace.took(&rows(100, 1 << 20), Duration::from_millis(1));
        assert_eq!(pace.share(&rows(100, 1 << 18)), 4);
    }
}
