//! How a table's large values are used, as far as a server's statistics tell (pure).
//!
//! Rows read do not tell whether their large values were: those that are out of line are counted where their chunks
//! are fetched and inserted, in the statistics of the TOAST relation. (Its buffers, `pg_statio_all_tables`, are those
//! of scans and of pageinspect too, and tell less.) Counters do not tell whose reads and writes they have counted:
//! toastctl never reads a table through its indexes, so others have read no fewer rows than these; and what it has
//! itself read and written of the TOAST relation is bounded by [`OWN`].
//! Counters that began after the table was filled are not judged.

use crate::model::estimate::Estimate;

/// Reads for each write from which on values are read far more often than written: ten times what
/// `advise-threshold` assumes where nothing is known.
const READS: f64 = 100.0;
/// Writes for each read from which on it is the reverse.
const WRITES: f64 = 10.0;
/// Fewer values read, or written, tell nothing. Each has to be read or written once besides, on average.
const LEAST: f64 = 5000.0;
/// How often toastctl may have read or written each value of the table: a `retoast` writes it once, and reads it for
/// that and to prove that it is the same before and after.
const OWN: f64 = 4.0;
/// Statistics that were reset less than so many seconds ago are too young: an hour.
const YOUNG: f64 = 3600.0;

/// A table's counters (`pg_stat_all_tables`), each of them of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counters {
    /// Read through indexes.
    pub(crate) by_index: f64,
    /// Read by sequential scans, whosever they were.
    pub(crate) scanned: f64,
    pub(crate) inserted: f64,
    pub(crate) updated: f64,
    pub(crate) deleted: f64,
    /// Live ones, as the statistics have it.
    pub(crate) live: f64,
    /// Those of its TOAST relation.
    pub(crate) chunks: Option<Chunks>,
    /// Seconds since the database's statistics were reset, if they ever were.
    pub(crate) age: Option<f64>,
}

/// The counters of a TOAST relation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Chunks {
    /// Read, those too that were read to be deleted.
    pub(crate) fetched: f64,
    pub(crate) inserted: f64,
    pub(crate) deleted: f64,
    pub(crate) live: f64,
}

/// Values of one column that statements of `pg_stat_statements` have read and written, without toastctl's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Told {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
}

/// How values are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Usage {
    /// Mostly read: so many reads for each write.
    Read(Estimate),
    /// Mostly written: so many writes for each read.
    Written(Estimate),
}

impl Counters {
    /// Whether so much was read or written that it is worth a look.
    pub(crate) fn is_busy(&self) -> bool {
        self.by_index + self.scanned + self.updated + self.inserted - self.live >= LEAST
    }

    /// Whether they have counted too little of the life of a table of so many rows and values out of line.
    fn is_young(&self, rows: Estimate, values: Estimate) -> bool {
        let chunks = self.chunks.map_or(0.0, |chunks| chunks.live);
        self.age.is_some_and(|age| age < YOUNG)
            || self.live < rows.low / 2.0
            || chunks < values.low / 2.0
    }

    /// How the values out of line are used of a table of so many rows, if that is known.
    pub(crate) fn usage(&self, rows: Estimate, values: Estimate) -> Option<Usage> {
        let chunks = self.chunks.filter(|_| values.low >= 1.0 && !self.is_young(rows, values))?;
        let each = (chunks.live / values.estimate.max(1.0)).max(1.0);
        let positive = |number: f64| number.max(0.0);
        let own = OWN * values.high;
        let fetched = positive(chunks.fetched - chunks.deleted) / each;
        // beyond the load
        let written = positive(chunks.inserted - chunks.live) / each;
        // who updates or deletes a row has read it for that
        let rows_read = positive(self.by_index - self.updated - self.deleted);
        let read_by_others = rows_read.min(positive(fetched - own));
        let written_by_others = positive(written - own);
        let enough = LEAST.max(values.high);
        if read_by_others >= enough && read_by_others >= written * READS {
            let low = read_by_others / written.max(1.0);
            let high = fetched / written.max(1.0);
            return Some(Usage::Read(Estimate { estimate: low, low, high }));
        }
        if written_by_others >= enough && written_by_others >= fetched * WRITES {
            let low = written_by_others / fetched.max(1.0);
            let high = written / fetched.max(1.0);
            return Some(Usage::Written(Estimate { estimate: low, low, high }));
        }
        None
    }
}

impl Told {
    /// How the column's values are used, in a table of so many rows.
    pub(crate) fn usage(self, rows: Estimate) -> Option<Usage> {
        let Told { reads, writes } = self;
        let enough = LEAST.max(rows.high);
        if reads >= enough && reads >= writes * READS {
            Some(Usage::Read(Estimate::exact(reads / writes.max(1.0))))
        } else if writes >= enough && writes >= reads * WRITES {
            Some(Usage::Written(Estimate::exact(writes / reads.max(1.0))))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Estimate = Estimate { estimate: 1000.0, low: 1000.0, high: 1000.0 };

    /// A table of 1000 values of two chunks each.
    fn counters(by_index: f64, fetched: f64, inserted: f64) -> Counters {
        Counters {
            by_index,
            live: 1000.0,
            inserted: 1000.0,
            chunks: Some(Chunks {
                fetched,
                inserted: 2000.0 + inserted,
                deleted: inserted,
                live: 2000.0,
            }),
            ..Counters::default()
        }
    }

    fn usage(by_index: f64, fetched: f64, inserted: f64) -> Option<Usage> {
        counters(by_index, fetched, inserted).usage(ROWS, ROWS)
    }

    #[test]
    fn reads_of_others_are_those_that_both_have_counted() {
        let Some(Usage::Read(ratio)) = usage(60_000.0, 120_000.0, 0.0) else { panic!() };
        assert_eq!((ratio.low, ratio.high), (56_000.0, 60_000.0));
        // the rows, and not their values
        assert_eq!(usage(60_000.0, 0.0, 0.0), None);
        // the values, by nobody but toastctl
        assert_eq!(usage(0.0, 120_000.0, 0.0), None);
        assert_eq!(usage(60_000.0, 8_000.0, 0.0), None);
        // written too
        assert_eq!(usage(60_000.0, 120_000.0, 2_000.0), None);
        // too few
        assert_eq!(usage(4_000.0, 60_000.0, 0.0), None);
    }

    #[test]
    fn writes_beyond_the_load_and_a_sweep_are_those_of_others() {
        // old chunks are read to be deleted
        let Some(Usage::Written(ratio)) = usage(0.0, 20_100.0, 20_000.0) else { panic!() };
        assert_eq!((ratio.low, ratio.high), (120.0, 200.0));
        assert_eq!(usage(0.0, 25_000.0, 20_000.0), None);
        // a sweep or two
        assert_eq!(usage(0.0, 8_000.0, 8_000.0), None);
    }

    #[test]
    fn what_began_after_the_load_is_not_judged() {
        let whole = counters(60_000.0, 120_000.0, 0.0);
        let judged = |counters: Counters| counters.usage(ROWS, ROWS).is_some();
        assert!(judged(whole));
        assert!(judged(Counters { age: Some(1e6), ..whole }));
        assert!(!judged(Counters { age: Some(60.0), ..whole }));
        assert!(!judged(Counters { live: 400.0, ..whole }));
        let chunks = whole.chunks.map(|chunks| Chunks { live: 0.0, ..chunks });
        assert!(!judged(Counters { chunks, ..whole }));
        assert!(!judged(Counters { chunks: None, ..whole }));
    }

    #[test]
    fn statements_tell_of_columns() {
        let usage = |reads, writes| Told { reads, writes }.usage(ROWS);
        assert_eq!(usage(50_000.0, 10.0), Some(Usage::Read(Estimate::exact(5000.0))));
        assert_eq!(usage(50_000.0, 1000.0), None);
        assert_eq!(usage(100.0, 50_000.0), Some(Usage::Written(Estimate::exact(500.0))));
        assert_eq!(usage(900.0, 0.0), None);
    }
}
