//! How much of a conversion is done, how long the rest will take, and a record of its course (pure).
//!
//! After the scan that re-toasts rows, the table is vacuumed, and another scan proves that nothing is left. What these
//! will take is known from what reading and vacuuming have taken so far, so that a conversion is at 100 % only at its
//! end.

use std::time::Duration;

use crate::retoast::pace::rules::Cause;
use crate::retoast::result::CoursePoint;

/// Points that a record keeps; when there are more, every second one is discarded.
const RECORDED: usize = 240;

/// Below this part of a scan, nothing is said about the rest.
const TOO_EARLY: f64 = 0.01;
/// The last vacuum as a fraction of the scan that re-toasts rows, as long as the table has not been vacuumed.
const VACUUM: f64 = 0.1;

/// Where a conversion is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Position {
    /// The scan under way, from 1.
    pub(crate) scan: u32,
    /// The fraction of its blocks whose rows are done.
    pub(crate) part: f64,
    pub(crate) blocks: u32,
    /// Rows re-toasted so far.
    pub(crate) rows: u64,
    /// The time since the first scan began, and since this one.
    pub(crate) elapsed: Duration,
    pub(crate) scanning: Duration,
}

/// What has been measured of a conversion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Course {
    /// How long reading took, and the number of blocks read.
    reading: Duration,
    read: u64,
    /// The last vacuum of the whole table.
    vacuum: Option<Duration>,
    /// The largest fraction so far.
    most: f64,
}

impl Course {
    /// Records that reading so many blocks took so long.
    pub(crate) fn has_read(&mut self, blocks: u32, took: Duration) {
        self.reading += took;
        self.read += u64::from(blocks);
    }

    /// Records a vacuum of the whole table.
    pub(crate) fn has_vacuumed(&mut self, took: Duration) {
        self.vacuum = Some(took);
    }

    /// The fraction of the conversion that is done, and how long the rest will take; not known at the very start.
    pub(crate) fn at(&mut self, now: Position) -> (f64, Option<Duration>) {
        let left = self.left(now);
        if let Some(left) = left {
            let elapsed = now.elapsed.as_secs_f64();
            let part = elapsed / (elapsed + left.as_secs_f64()).max(f64::MIN_POSITIVE);
            self.most = self.most.max(part).min(1.0);
        }
        (self.most, left)
    }

    fn left(&self, now: Position) -> Option<Duration> {
        if now.part < TOO_EARLY {
            return None;
        }
        let rest = now.scanning.mul_f64((1.0 - now.part).max(0.0) / now.part);
        if now.scan > 1 || now.rows == 0 {
            return Some(rest);
        }
        let proof = self.reading.mul_f64(f64::from(now.blocks) / (self.read as f64).max(1.0));
        let vacuum = self.vacuum.unwrap_or_else(|| (now.scanning + rest).mul_f64(VACUUM));
        Some(rest + vacuum + proof)
    }
}

/// Points of the course, few enough for a report.
#[derive(Debug, Default)]
pub(crate) struct Record {
    points: Vec<CoursePoint>,
    /// The least time between two points, in milliseconds.
    every: u64,
    /// The reason of the last wait since the last point.
    waited_for: Option<&'static str>,
}

impl Record {
    /// Records a wait; a sleep after a batch only if there was no other.
    pub(crate) fn has_waited(&mut self, cause: Cause) {
        if cause != Cause::Nice || self.waited_for.is_none() {
            self.waited_for = Some(cause.name());
        }
    }

    /// Records a point, unless the last one is too near.
    pub(crate) fn add(&mut self, point: CoursePoint) {
        let last = self.points.last().map(|last| last.ms);
        if last.is_some_and(|last| point.ms < last.saturating_add(self.every)) {
            return;
        }
        self.points.push(CoursePoint { waited_for: self.waited_for.take(), ..point });
        if self.points.len() > RECORDED {
            self.thin_out();
        }
    }

    /// Discards every second point; what it waited for is kept.
    fn thin_out(&mut self) {
        let mut kept = Vec::with_capacity(RECORDED);
        let mut discarded = None;
        for (number, mut point) in self.points.drain(..).enumerate() {
            if number % 2 == 1 {
                discarded = point.waited_for;
                continue;
            }
            point.waited_for = point.waited_for.or(discarded.take());
            kept.push(point);
        }
        let length = kept.last().map_or(0, |point| point.ms);
        self.every = (length / RECORDED as u64).saturating_mul(2).max(1);
        self.points = kept;
    }

    /// All points, with a last one.
    pub(crate) fn take(&mut self, last: CoursePoint) -> Vec<CoursePoint> {
        let Record { mut points, waited_for, .. } = std::mem::take(self);
        points.push(CoursePoint { waited_for, ..last });
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scan: u32, part: f64, seconds: u64) -> Position {
        let elapsed = Duration::from_secs(seconds);
        Position { scan, part, blocks: 1000, rows: 10, elapsed, scanning: elapsed }
    }

    #[test]
    fn the_last_vacuum_and_the_proof_are_still_to_come() {
        let mut course = Course::default();
        course.has_read(500, Duration::from_secs(2));
        // half: 10 s more, a tenth of 20 s for the vacuum, 4 s for the proof
        assert_eq!(course.at(at(1, 0.5, 10)), (10.0 / 26.0, Some(Duration::from_secs(16))));
        course.has_vacuumed(Duration::from_secs(9));
        let (part, left) = course.at(at(1, 1.0, 20));
        assert_eq!((part, left), (20.0 / 33.0, Some(Duration::from_secs(13))));
        // the proof comes sooner than was expected
        let proof = Position { scanning: Duration::from_secs(1), ..at(2, 0.5, 25) };
        assert_eq!(course.at(proof), (25.0 / 26.0, Some(Duration::from_secs(1))));
    }

    #[test]
    fn nothing_is_said_at_the_very_start_and_done_is_never_less_than_before() {
        let mut course = Course::default();
        assert_eq!(course.at(at(1, 0.0, 3)), (0.0, None));
        let nothing_to_do = Position { rows: 0, ..at(1, 1.0, 3) };
        assert_eq!(course.at(nothing_to_do), (1.0, Some(Duration::ZERO)));
        assert_eq!(course.at(at(2, 0.0, 4)), (1.0, None));
    }

    #[test]
    fn a_long_course_has_few_points_from_beginning_to_end() {
        let mut record = Record::default();
        for second in 0..100_000u64 {
            if second == 5001 {
                record.has_waited(Cause::Xmin);
                record.has_waited(Cause::Nice);
            }
            record.add(CoursePoint { ms: second * 1000, bytes: second, ..CoursePoint::default() });
        }
        let last = CoursePoint { ms: 100_000_000, ..CoursePoint::default() };
        let points = record.take(last);
        assert_eq!(points.last(), Some(&last));
        assert!((RECORDED / 2..=RECORDED + 1).contains(&points.len()), "{}", points.len());
        assert_eq!(points[0], CoursePoint::default());
        assert!(points.is_sorted_by_key(|point| point.ms));
        let waits: Vec<&CoursePoint> =
            points.iter().filter(|point| point.waited_for.is_some()).collect();
        let is_at = |point: &CoursePoint| (5_001_000..7_000_000).contains(&point.ms);
        assert!(matches!(waits[..], [wait] if is_at(wait) && wait.waited_for == Some("xmin")));
    }
}
