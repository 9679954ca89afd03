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

use derive_more::Add;
use tokio_postgres::types::Type;

use crate::server::{Client, LiveError, Relation, single_row};
use toast_format::model::Interval;

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

/// Reads of each value a day, if nothing is known of them: so few that size decides, and reads where they differ much.
const ASSUMED_READS: f64 = 10.0;
/// Scans of the table a day, if nothing is known of them.
const ASSUMED_SCANS: f64 = 1.0;
/// Minimum of rows read and written for the statistics to count.
const LEAST_ACTIVITY: f64 = 1000.0;
/// Days of a month.
pub(crate) const MONTH_DAYS: f64 = 30.0;
/// Seconds of a day. Counters of a shorter time are taken for those of a day, since an hour tells little of it.
const DAY: f64 = 86_400.0;

/// Minimum of buffers for the statistics to count.
const LEAST_BUFFERS: f64 = 1000.0;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Add)]
pub(crate) struct ChunkCounters {
    /// Read, those too that were read to be deleted.
    pub(crate) fetched: f64,
    pub(crate) inserted: f64,
    pub(crate) deleted: f64,
    pub(crate) live: f64,
}

impl ChunkCounters {
    /// Of so many values: those read, without what was read to be deleted, and those written beyond the load, by anybody.
    fn of_values(&self, values: f64) -> UseCounts {
        let chunks_per_value = (self.live / values.max(1.0)).max(1.0);
        UseCounts {
            reads: (self.fetched - self.deleted).max(0.0) / chunks_per_value,
            writes: (self.inserted - self.live).max(0.0) / chunks_per_value,
        }
    }
}

/// Seconds since the cluster was created: its system identifier begins with that time (`BootStrapXLOG`, xlog.c).
///
/// # Errors
/// The server's.
pub(crate) async fn cluster_age(client: &Client) -> Result<f64, LiveError> {
    let sql = "SELECT extract(epoch FROM pg_catalog.now())::pg_catalog.float8 \
                      - (system_identifier >> 32)::pg_catalog.float8 FROM pg_catalog.pg_control_system()";
    Ok(single_row(client, sql, &[]).await?.try_get(0)?)
}

/// Values that were read and written: of one column by statements of `pg_stat_statements`, without toastctl's own, or as
/// counters have it.
#[derive(Debug, Clone, Copy, PartialEq, Add)]
pub(crate) struct UseCounts {
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
        let sql = "SELECT (coalesce(t.idx_tup_fetch, 0))::pg_catalog.float8, \
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
                   LEFT JOIN pg_catalog.pg_stat_all_tables AS c ON c.relid = $2";
        let toast = relation.toast.as_ref().map(|toast| toast.oid.0);
        let about = [(&relation.oid.0 as _, Type::OID), (&toast as _, Type::OID)];
        let row = single_row(client, sql, &about).await?;
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

    /// The same with the chunks of both, for parts of one table.
    pub(crate) fn plus_with_chunks(&self, more: &Counters) -> Counters {
        let chunks = match (self.chunks, more.chunks) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
        let age = self.age.or(more.age);
        Counters { chunks, age, ..self.plus(more) }
    }

    /// Seconds in which they were counted: since they were reset, or since the cluster was created.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn period(&self, client: &Client) -> Result<f64, LiveError> {
        match self.age {
            Some(age) => Ok(age),
            None => cluster_age(client).await,
        }
    }

    /// Whether so much was read or written that it is worth a look.
    pub(crate) fn is_busy(&self) -> bool {
        self.by_index + self.scanned + self.updated + self.inserted - self.live >= LEAST
    }

    /// Whether they have counted too little of the life of a table of so many rows and values out of line.
    fn is_young(&self, rows: Interval, values: Interval) -> bool {
        self.age.is_some_and(|age| age < YOUNG) || self.misses_load(rows.low, values.low)
    }

    /// Whether they know of less than half of so many rows and values out of line: they began after the load, or `VACUUM`
    /// has not told them what is left.
    fn misses_load(&self, rows: f64, values: f64) -> bool {
        let chunks = self.chunks.map_or(0.0, |chunks| chunks.live);
        self.live < rows / 2.0 || chunks < values / 2.0
    }

    /// Rows read through indexes. Who updates or deletes a row has read it for that.
    fn rows_read(&self) -> f64 {
        (self.by_index - self.updated - self.deleted).max(0.0)
    }

    /// How the values out of line of a table with `rows` rows are used, if that is known.
    pub(crate) fn usage(&self, rows: Interval, values: Interval) -> Option<Mostly> {
        if values.low < 1.0 || self.is_young(rows, values) {
            return None;
        }
        let UseCounts { reads: fetched, writes: written } = self.chunks?.of_values(values.estimate);
        let own = OWN * values.high;
        let read_by_others = self.rows_read().min((fetched - own).max(0.0));
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

impl UseCounts {
    /// How the column's values are used, in a table with `rows` rows.
    pub(crate) fn usage(self, rows: Interval) -> Option<Mostly> {
        let UseCounts { reads, writes } = self;
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
    /// Values that others have read and written, of `rows` values of which so many are out of line; `None` where too little
    /// was counted. Values out of line are written when their chunks are, others with their rows.
    fn activity(&self, rows: f64, out_of_line: f64) -> Option<UseCounts> {
        let updated = (self.updated - OWN * rows).max(0.0);
        let is_in_rows = out_of_line * 2.0 < rows || out_of_line < 1.0;
        let chunks = if is_in_rows { None } else { self.chunks };
        if self.misses_load(rows, if is_in_rows { 0.0 } else { out_of_line }) {
            return None;
        }
        let counts = match chunks {
            None => UseCounts { reads: self.rows_read(), writes: updated },
            Some(chunks) => {
                let UseCounts { reads, writes } = chunks.of_values(out_of_line);
                let own = OWN * out_of_line;
                UseCounts {
                    reads: self.rows_read().min((reads - own).max(0.0)),
                    writes: (writes - own).max(0.0),
                }
            }
        };
        (counts.reads + counts.writes >= LEAST_ACTIVITY).then_some(counts)
    }
}

/// How often values of a column are read and written a day, and the table is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Workload {
    pub reads: f64,
    pub writes: f64,
    /// Scans that do not need the column.
    pub scans: f64,
    /// Where that comes from.
    pub source: WorkloadSource,
}

/// Where the workload is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkloadSource {
    /// Nothing is known of it.
    #[default]
    Assumed,
    /// The reads per write were given.
    Given,
    /// The table's counters, and those of its TOAST relation.
    Statistics,
    /// The texts of so many statements in `pg_stat_statements`.
    Statements(usize),
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadSource::Assumed => "assumed",
            WorkloadSource::Given => "given",
            WorkloadSource::Statistics => "pg_stat_user_tables",
            WorkloadSource::Statements(_) => "pg_stat_statements",
        })
    }
}

/// What is known of the use of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownUse<'a> {
    /// Reads for each write, as given.
    pub(crate) reads_per_write: Option<f64>,
    /// By statements, and by how many.
    pub(crate) statements: Option<(UseCounts, usize)>,
    pub(crate) counters: &'a Counters,
    /// Seconds in which both were counted.
    pub(crate) period: f64,
    /// Values of the column, and those of them that are out of line.
    pub(crate) values: f64,
    pub(crate) out_of_line: f64,
}

impl Workload {
    pub(crate) fn new(known: &KnownUse<'_>) -> Workload {
        let counters = known.counters;
        let days = (known.period / DAY).max(1.0);
        let counted = known
            .statements
            .map(|(counts, number)| (counts, WorkloadSource::Statements(number)))
            .or_else(|| {
                let counts = counters.activity(known.values, known.out_of_line)?;
                Some((counts, WorkloadSource::Statistics))
            });
        let (mut reads, mut writes, mut source) = match counted {
            Some((UseCounts { reads, writes }, source)) => (reads / days, writes / days, source),
            None => (known.values * ASSUMED_READS, 0.0, WorkloadSource::Assumed),
        };
        if let Some(ratio) = known.reads_per_write {
            // what is known of how often, with the ratio that was given
            let all = reads + writes;
            writes = all / (1.0 + ratio.max(0.0));
            reads = all - writes;
            source = WorkloadSource::Given;
        }
        // no more is known of scans than that somebody made them, toastctl perhaps
        let scans = if counters.live >= 1.0 && source != WorkloadSource::Assumed {
            counters.scanned / counters.live / days
        } else {
            ASSUMED_SCANS
        };
        Workload { reads, writes, scans, source }
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
        let usage = |reads, writes| UseCounts { reads, writes }.usage(ROWS);
        assert_eq!(usage(50_000.0, 10.0), Some(Mostly::Read(Interval::exact(5000.0))));
        assert_eq!(usage(50_000.0, 1000.0), None);
        assert_eq!(usage(100.0, 50_000.0), Some(Mostly::Written(Interval::exact(500.0))));
        assert_eq!(usage(900.0, 0.0), None);
    }

    #[test]
    fn a_workload_is_what_others_have_done_in_a_day() {
        let counted = counters(60_000.0, 120_000.0, 20_000.0);
        let known = KnownUse {
            reads_per_write: None,
            statements: None,
            counters: &counted,
            period: 10.0 * DAY,
            values: 1000.0,
            out_of_line: 1000.0,
        };
        let workload = Workload::new(&known);
        // 50,000 reads of values, without those for deletes and 4,000 that may be toastctl's; 10,000 writes
        assert_eq!((workload.reads, workload.writes), (4600.0, 600.0));
        assert_eq!(workload.source, WorkloadSource::Statistics);
        // an hour is no less than a day, so that the same call gives the same answer a minute later
        let young = Workload::new(&KnownUse { period: 60.0, ..known });
        assert_eq!((young.reads, young.writes), (46_000.0, 6000.0));
        // one conversion by toastctl is no workload
        let swept = counters(500.0, 4000.0, 2000.0);
        let own = Workload::new(&KnownUse { counters: &swept, ..known });
        assert_eq!(own.source, WorkloadSource::Assumed);
        assert_eq!((own.reads, own.writes), (10_000.0, 0.0));
        // nor are the chunks of a load of which no more is known than that it was
        let lost = counted.chunks.map(|chunks| ChunkCounters { live: 0.0, ..chunks });
        let lost = Counters { chunks: lost, ..counted };
        let unknown = Workload::new(&KnownUse { counters: &lost, ..known });
        assert_eq!(unknown.source, WorkloadSource::Assumed);
        let given = Workload::new(&KnownUse { reads_per_write: Some(3.0), ..known });
        assert_eq!((given.reads, given.writes), (3900.0, 1300.0));
    }
}
