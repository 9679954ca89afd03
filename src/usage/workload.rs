//! How a table and its large values are used, as far as a server's counters tell, and what advice assumes where
//! nothing is known.
//!
//! Rows read do not tell whether their large values were: those that are out of line are counted where their chunks
//! are fetched and inserted, in the statistics of the TOAST relation. (Its buffers, `pg_statio_all_tables`, are those
//! of scans and of pageinspect too, and tell less.) Counters do not tell whose reads and writes they have counted:
//! toastctl never reads a table through its indexes, so others have read no fewer rows than these; and what it has
//! itself read and written of the TOAST relation is bounded by [`OWN`].
//! Counters that began after the table was filled are not judged.

use std::fmt;

use tokio_postgres::types::Type;

use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use toast_format::model::interval::Interval;

/// Minimum of reads per write for values that are mostly read: ten times what `advise-threshold` assumes where nothing
/// is known.
const READS: f64 = 100.0;
/// Minimum of writes per read for values that are mostly written.
const WRITES: f64 = 10.0;
/// Below this many reads or writes, or less than one per value, the counters are ignored.
const LEAST: f64 = 5000.0;
/// How often toastctl may have read or written each value of the table: a `retoast` writes it once, and reads it for
/// that and to prove that it is the same before and after.
const OWN: f64 = 4.0;
/// Statistics that were reset fewer seconds ago are too young: an hour.
const YOUNG: f64 = 3600.0;

/// Reads for each write, if nothing is known of them.
const ASSUMED_RATIO: f64 = 10.0;
/// The part of the rows read that sequential scans read, if nothing is known of them.
const ASSUMED_SCANNED: f64 = 0.5;
/// Minimum of rows read and written for the statistics to count.
const LEAST_ACTIVITY: f64 = 1000.0;

/// Minimum of buffers for the statistics to count.
const LEAST_BUFFERS: f64 = 1000.0;

/// How scans that do not need the column weigh, if nothing is known of them: a tenfold heap by a quarter.
pub(crate) const SCAN_WEIGHT: f64 = 0.1;

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
    pub(crate) chunks: Option<ChunkCounters>,
    /// Seconds since the database's statistics were reset, if they ever were.
    pub(crate) age: Option<f64>,
    /// Part of the TOAST relation's buffers that were found in shared buffers, if many were needed: by anybody, for
    /// the server does not tell toastctl's own reads from others.
    pub(crate) toast_hit_part: Option<f64>,
}

/// The counters of a TOAST relation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ChunkCounters {
    /// Read, those too that were read to be deleted.
    pub(crate) fetched: f64,
    pub(crate) inserted: f64,
    pub(crate) deleted: f64,
    pub(crate) live: f64,
}

/// Seconds since the cluster was created: its system identifier begins with that time (`BootStrapXLOG`, xlog.c).
///
/// # Errors
/// The server's.
pub(crate) async fn cluster_age(client: &Client) -> Result<f64, LiveError> {
    let sql = "SELECT extract(epoch FROM pg_catalog.now())::pg_catalog.float8 \
                      - (system_identifier >> 32)::pg_catalog.float8 FROM pg_catalog.pg_control_system()";
    let row = client.query_typed(sql, &[]).await?.pop();
    let row = row.ok_or_else(|| LiveError::Unexpected("no row about the cluster".into()))?;
    Ok(row.try_get(0)?)
}

/// Values of one column that statements of `pg_stat_statements` have read and written, without toastctl's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StatementCounts {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
}

/// How values are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mostly {
    /// Mostly read, with the number of reads per write.
    Read(Interval),
    /// Mostly written, with the number of writes per read.
    Written(Interval),
}

impl Counters {
    /// Those of a table and of its TOAST relation.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn ask(client: &Client, relation: &Relation) -> Result<Counters, LiveError> {
        let row = client
            .query_typed(
                "SELECT (coalesce(t.idx_tup_fetch, 0))::pg_catalog.float8, \
                        (coalesce(t.seq_tup_read, 0))::pg_catalog.float8, \
                        (coalesce(t.n_tup_ins, 0))::pg_catalog.float8, \
                        (coalesce(t.n_tup_upd, 0))::pg_catalog.float8, \
                        (coalesce(t.n_tup_del, 0))::pg_catalog.float8, \
                        (coalesce(t.n_live_tup, 0))::pg_catalog.float8, \
                        c.relid IS NOT NULL, \
                        (coalesce(c.idx_tup_fetch, 0))::pg_catalog.float8, \
                        (coalesce(c.n_tup_ins, 0))::pg_catalog.float8, \
                        (coalesce(c.n_tup_del, 0))::pg_catalog.float8, \
                        (coalesce(c.n_live_tup, 0))::pg_catalog.float8, \
                        (SELECT extract(epoch FROM pg_catalog.now() - d.stats_reset) \
                                    ::pg_catalog.float8 \
                         FROM pg_catalog.pg_stat_database AS d \
                         WHERE d.datname = pg_catalog.current_database()), \
                        (coalesce(io.toast_blks_hit, 0))::pg_catalog.float8, \
                        (coalesce(io.toast_blks_read, 0))::pg_catalog.float8 \
                 FROM (SELECT 1) AS one \
                 LEFT JOIN pg_catalog.pg_statio_all_tables AS io ON io.relid = $1 \
                 LEFT JOIN pg_catalog.pg_stat_all_tables AS t ON t.relid = $1 \
                 LEFT JOIN pg_catalog.pg_stat_all_tables AS c ON c.relid = $2",
                &[
                    (&relation.oid.0, Type::OID),
                    (&relation.toast.as_ref().map(|toast| toast.oid.0), Type::OID),
                ],
            )
            .await?
            .pop()
            .ok_or_else(|| LiveError::Unexpected("no row about the table".into()))?;

        let chunks = if row.try_get(6)? {
            Some(ChunkCounters {
                fetched: row.try_get(7)?,
                inserted: row.try_get(8)?,
                deleted: row.try_get(9)?,
                live: row.try_get(10)?,
            })
        } else {
            None
        };
        let hit: f64 = row.try_get(12)?;
        let read: f64 = row.try_get(13)?;
        Ok(Counters {
            by_index: row.try_get(0)?,
            scanned: row.try_get(1)?,
            inserted: row.try_get(2)?,
            updated: row.try_get(3)?,
            deleted: row.try_get(4)?,
            live: row.try_get(5)?,
            chunks,
            age: row.try_get(11)?,
            toast_hit_part: (hit + read >= LEAST_BUFFERS).then(|| hit / (hit + read)),
        })
    }

    /// The rows of two relations together, without chunks and what is not a sum.
    pub(crate) fn plus(&self, more: &Counters) -> Counters {
        Counters {
            by_index: self.by_index + more.by_index,
            scanned: self.scanned + more.scanned,
            inserted: self.inserted + more.inserted,
            updated: self.updated + more.updated,
            deleted: self.deleted + more.deleted,
            live: self.live + more.live,
            ..Counters::default()
        }
    }

    /// Whether so much was read or written that it is worth a look.
    pub(crate) fn is_busy(&self) -> bool {
        self.by_index + self.scanned + self.updated + self.inserted - self.live >= LEAST
    }

    /// Whether they have counted too little of the life of a table of so many rows and values out of line.
    fn is_young(&self, rows: Interval, values: Interval) -> bool {
        let chunks = self.chunks.map_or(0.0, |chunks| chunks.live);
        self.age.is_some_and(|age| age < YOUNG)
            || self.live < rows.low / 2.0
            || chunks < values.low / 2.0
    }

    /// How the values out of line of a table with `rows` rows are used, if that is known.
    pub(crate) fn usage(&self, rows: Interval, values: Interval) -> Option<Mostly> {
        if values.low < 1.0 || self.is_young(rows, values) {
            return None;
        }
        let chunks = self.chunks?;
        let chunks_per_value = (chunks.live / values.estimate.max(1.0)).max(1.0);
        let own = OWN * values.high;
        let fetched = (chunks.fetched - chunks.deleted).max(0.0) / chunks_per_value;
        // beyond the load
        let written = (chunks.inserted - chunks.live).max(0.0) / chunks_per_value;
        // who updates or deletes a row has read it for that
        let rows_read = (self.by_index - self.updated - self.deleted).max(0.0);
        let read_by_others = rows_read.min((fetched - own).max(0.0));
        let written_by_others = (written - own).max(0.0);
        let enough = LEAST.max(values.high);
        if read_by_others >= enough && read_by_others >= written * READS {
            let low = read_by_others / written.max(1.0);
            let high = fetched / written.max(1.0);
            return Some(Mostly::Read(Interval { estimate: low, low, high }));
        }
        if written_by_others >= enough && written_by_others >= fetched * WRITES {
            let low = written_by_others / fetched.max(1.0);
            let high = written / fetched.max(1.0);
            return Some(Mostly::Written(Interval { estimate: low, low, high }));
        }
        None
    }
}

impl StatementCounts {
    /// How the column's values are used, in a table with `rows` rows.
    pub(crate) fn usage(self, rows: Interval) -> Option<Mostly> {
        let StatementCounts { reads, writes } = self;
        let enough = LEAST.max(rows.high);
        if reads >= enough && reads >= writes * READS {
            Some(Mostly::Read(Interval::exact(reads / writes.max(1.0))))
        } else if writes >= enough && writes >= reads * WRITES {
            Some(Mostly::Written(Interval::exact(writes / reads.max(1.0))))
        } else {
            None
        }
    }
}

impl Counters {
    /// Rows updated, or inserted beyond those that are there now (the load).
    fn written(&self) -> f64 {
        self.updated + (self.inserted - self.live).max(0.0)
    }

    /// Rows read for each row written, where that is surely not what is assumed.
    pub(crate) fn reads_per_write(&self) -> Option<(f64, Bound)> {
        let written = self.written();
        let writes = written.max(1.0);
        let least = self.by_index / writes;
        let most = (self.by_index + self.scanned) / writes;
        if least > ASSUMED_RATIO && self.by_index + written >= LEAST_ACTIVITY {
            Some((least, Bound::Least))
        } else if most < ASSUMED_RATIO && written >= LEAST_ACTIVITY {
            Some((most, Bound::Most))
        } else {
            None
        }
    }

    /// The part of the rows read that sequential scans read, where that is surely less than what is assumed.
    pub(crate) fn scanned_part(&self) -> Option<f64> {
        let reads = self.by_index + self.scanned;
        let part = self.scanned / reads.max(1.0);
        (reads >= LEAST_ACTIVITY && part < ASSUMED_SCANNED).then_some(part)
    }
}

/// What is known of how the table is used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Workload {
    /// Rows read for each row written.
    pub reads_per_write: Option<f64>,
    /// Where that comes from.
    pub source: WorkloadSource,
    /// The part of the rows read that sequential scans read, if the server's statistics tell.
    pub scanned: Option<f64>,
}

/// Where the workload is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkloadSource {
    /// Nothing is known: 10 reads per write are assumed.
    #[default]
    Assumed,
    Given,
    /// The table's counters, which bound it so.
    Statistics(Bound),
    /// The texts of so many statements in `pg_stat_statements`.
    Statements(usize),
}

/// How counters tell a figure. They do not tell whose sequential scans they counted: toastctl's own ones, and
/// those of dumps, are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// By what others read through indexes, which toastctl never does: it is at least that much.
    Least,
    /// By all that was read and written: it is at most that much, unless most of the writes are retoast's.
    Most,
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadSource::Assumed => "assumed",
            WorkloadSource::Given => "given",
            WorkloadSource::Statistics(_) => "pg_stat_user_tables",
            WorkloadSource::Statements(_) => "pg_stat_statements",
        })
    }
}

impl Workload {
    /// Reads for each write, assumed if not known.
    pub fn ratio(&self) -> f64 {
        self.reads_per_write.unwrap_or(ASSUMED_RATIO)
    }

    /// Weight of scans that do not need the column; size and time have one half each.
    pub fn scan_weight(&self) -> f64 {
        self.scanned.map_or(SCAN_WEIGHT, |part| 2.0 * SCAN_WEIGHT * part.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Interval = Interval { estimate: 1000.0, low: 1000.0, high: 1000.0 };

    /// A table of 1000 values of two chunks each.
    fn counters(by_index: f64, fetched: f64, inserted: f64) -> Counters {
        Counters {
            by_index,
            live: 1000.0,
            inserted: 1000.0,
            chunks: Some(ChunkCounters {
                fetched,
                inserted: 2000.0 + inserted,
                deleted: inserted,
                live: 2000.0,
            }),
            ..Counters::default()
        }
    }

    fn usage(by_index: f64, fetched: f64, inserted: f64) -> Option<Mostly> {
        counters(by_index, fetched, inserted).usage(ROWS, ROWS)
    }

    #[test]
    fn reads_of_others_are_those_that_both_have_counted() {
        let Some(Mostly::Read(ratio)) = usage(60_000.0, 120_000.0, 0.0) else { panic!() };
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
        let Some(Mostly::Written(ratio)) = usage(0.0, 20_100.0, 20_000.0) else { panic!() };
        assert_eq!((ratio.low, ratio.high), (120.0, 200.0));
        assert_eq!(usage(0.0, 25_000.0, 20_000.0), None);
        // a sweep or two
        assert_eq!(usage(0.0, 8_000.0, 8_000.0), None);
    }

    #[test]
    fn what_began_after_the_load_is_not_judged() {
        let whole = counters(60_000.0, 120_000.0, 0.0);
        let is_judged = |counters: Counters| counters.usage(ROWS, ROWS).is_some();
        assert!(is_judged(whole));
        assert!(is_judged(Counters { age: Some(1e6), ..whole }));
        assert!(!is_judged(Counters { age: Some(60.0), ..whole }));
        assert!(!is_judged(Counters { live: 400.0, ..whole }));
        let chunks = whole.chunks.map(|chunks| ChunkCounters { live: 0.0, ..chunks });
        assert!(!is_judged(Counters { chunks, ..whole }));
        assert!(!is_judged(Counters { chunks: None, ..whole }));
    }

    #[test]
    fn statements_tell_of_columns() {
        let usage = |reads, writes| StatementCounts { reads, writes }.usage(ROWS);
        assert_eq!(usage(50_000.0, 10.0), Some(Mostly::Read(Interval::exact(5000.0))));
        assert_eq!(usage(50_000.0, 1000.0), None);
        assert_eq!(usage(100.0, 50_000.0), Some(Mostly::Written(Interval::exact(500.0))));
        assert_eq!(usage(900.0, 0.0), None);
    }
    #[test]
    fn scans_that_may_be_our_own_make_no_ratio() {
        let counted = |by_index, scanned, updated| Counters {
            by_index,
            scanned,
            updated,
            ..Counters::default()
        };
        // inspect has read all rows twice
        assert_eq!(counted(0.0, 40_000.0, 1.0).reads_per_write(), None);
        assert_eq!(counted(0.0, 40_000.0, 1.0).scanned_part(), None);
        // others read by index
        let read = counted(40_000.0, 20_000.0, 100.0);
        assert_eq!(read.reads_per_write(), Some((400.0, Bound::Least)));
        assert!(read.scanned_part().is_some_and(|part| (part - 1.0 / 3.0).abs() < 1e-9));
        // there are so many writes that it does not matter whose the scans are
        let written = counted(0.0, 40_000.0, 40_000.0);
        assert_eq!(written.reads_per_write(), Some((1.0, Bound::Most)));
        assert_eq!(counted(5000.0, 40_000.0, 1000.0).reads_per_write(), None);
        // too few to tell
        assert_eq!(counted(400.0, 0.0, 10.0).reads_per_write(), None);
        assert_eq!(counted(10.0, 0.0, 400.0).reads_per_write(), None);
        assert_eq!(counted(400.0, 10.0, 0.0).scanned_part(), None);
    }
}
