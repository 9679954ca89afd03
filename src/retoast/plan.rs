//! What a sweep will do, for `--dry-run` (pure). The range of its duration is wide on purpose: how fast the server
//! writes is known only once the sweep runs.

use std::ops::AddAssign;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toast_format::disk::PageSize;
use toast_format::model::{Interval, Range};

/// Bytes of WAL per second on a fast and on a slow server.
const WAL_SPEED: (f64, f64) = (200e6, 20e6);
/// Seconds per row, in addition to the time for its bytes.
const ROW_TIME: (f64, f64) = (10e-6, 200e-6);

/// Sizes of a table's parts in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sizes {
    /// The table's main fork.
    pub heap: u64,
    /// The TOAST relation's main fork.
    pub toast: u64,
    /// The table's indexes and the TOAST relation's.
    pub indexes: u64,
}

impl Sizes {
    /// The number of pages of the heap.
    pub(crate) fn heap_pages(self, page: PageSize) -> u32 {
        u32::try_from(self.heap / page.bytes() as u64).unwrap_or(u32::MAX)
    }

    /// This part of the heap and the TOAST relation.
    pub(crate) fn bytes_of(self, part: f64) -> u64 {
        (self.heap.saturating_add(self.toast) as f64 * part) as u64
    }

    /// The sum of all parts.
    pub fn sum(self) -> u64 {
        self.heap.saturating_add(self.toast).saturating_add(self.indexes)
    }

    /// The maximum of each part.
    pub fn max(self, other: Sizes) -> Sizes {
        Sizes {
            heap: self.heap.max(other.heap),
            toast: self.toast.max(other.toast),
            indexes: self.indexes.max(other.indexes),
        }
    }
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, other: Sizes) {
        self.heap = self.heap.saturating_add(other.heap);
        self.toast = self.toast.saturating_add(other.toast);
        self.indexes = self.indexes.saturating_add(other.indexes);
    }
}

/// A figure and its parts, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    #[serde(flatten)]
    pub all: Interval<u64>,
    /// Rows and values out of line, with the vacuums of their files.
    pub sweep: u64,
    /// The indexes of the table, with their vacuums.
    pub indexes: u64,
    /// Images of pages that have not been changed since the last checkpoint.
    pub full_page_images: u64,
    /// Compaction afterwards, if it was requested.
    pub compaction: u64,
    /// Rebuilt indexes, if that was requested. While an index is rebuilt, its old and new files exist together.
    pub rebuild: u64,
}

/// The locks of a compaction, and of indexes that are rebuilt.
pub(crate) const COMPACTION_LOCK: &str = "ROW EXCLUSIVE on the table while rows are moved, and SHARE UPDATE EXCLUSIVE during each VACUUM";
pub(crate) const TRUNCATION_LOCK: &str = "ACCESS EXCLUSIVE on the table, or on its TOAST relation, while VACUUM truncates the file; VACUUM gives up when \
     another session waits";
pub(crate) const REBUILD_LOCK: &str =
    "SHARE UPDATE EXCLUSIVE on the table while an index is rebuilt (REINDEX CONCURRENTLY)";
pub(crate) const TOAST_REBUILD_LOCK: &str = "ACCESS EXCLUSIVE on the index of the TOAST relation, and SHARE on that relation, while this index is rebuilt, \
     for at most 2 s";

/// What a dry run expects of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The statements, each batch's with `$1` for the addresses of its rows.
    pub statements: Vec<String>,
    /// How long it will take, in seconds, without waits for other sessions. The range is wide because a dry run does not
    /// try how fast the server writes.
    pub seconds: Range,
    /// WAL that the run will write, in bytes.
    pub wal_bytes: Forecast,
    /// Largest expected growth of table, TOAST relation and indexes, in bytes.
    pub growth_bytes: Forecast,
    /// What the rows to re-toast take in heap and TOAST, in bytes: now, and stored as requested. Null where the server
    /// does not tell how values are stored. Files keep their size unless they are compacted.
    pub rows_bytes: Option<u64>,
    pub rows_bytes_after: Option<u64>,
    /// Table and relation locks, described in sentences.
    pub locks: Vec<String>,
    /// Triggers that will fire.
    pub triggers_fire: Vec<String>,
    /// Triggers that will be kept from firing.
    pub triggers_silent: Vec<String>,
    /// What replicas and subscribers will see, for people.
    pub replication: Vec<String>,
    /// Clients whose transactions may fail to serialize because of the run, as far as known.
    pub serialization: Vec<String>,
}

/// What a plan depends on, from the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Triggers that an `UPDATE` calls, and whether they will fire.
    pub triggers: Vec<(String, bool)>,
    /// Whether the replica identity is full.
    pub identity_full: bool,
    /// Publications that publish updates of this table.
    pub publications: Vec<String>,
    /// Logical replication slots of this database.
    pub logical_slots: Vec<String>,
    /// Connected physical replicas; `None` if this user may not see them.
    pub replicas: Option<u64>,
    /// Visible sessions in a serializable transaction.
    pub serializable: u64,
    /// Visible sessions that keep a snapshot between statements.
    pub holding_snapshots: u64,
    /// Where the default isolation level is not read committed, as `role "x": serializable`.
    pub isolation_defaults: Vec<String>,
}

/// What a run is expected to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunForecast {
    /// The rows to re-toast, as counted or estimated.
    pub rows: u64,
    pub wal: Forecast,
    /// The largest growth of the files.
    pub growth: Forecast,
    /// What these rows take in heap and TOAST, now and afterwards, in bytes, if that is known.
    pub rows_bytes: Option<(u64, u64)>,
}

/// What the scan has found, and the parameters of the sweep.
#[derive(Debug, Clone, Default)]
pub struct FirstScan {
    pub expected: RunForecast,
    /// The duration of the scan.
    pub scan: Duration,
    /// The time slept after a batch, as a multiple of the batch's duration.
    pub nice: f64,
    /// The maximum wait for a lock.
    pub lock_timeout: Duration,
    /// The statement that sets the choice, if one is needed.
    pub alter: Option<String>,
    /// The statements of a batch, then those that vacuum, during the sweep and at the end.
    pub statements: Vec<String>,
    /// The replication origin of what the sweep writes.
    pub origin: Option<String>,
    /// Whether files are compacted, and indexes rebuilt, once all values are stored as requested.
    pub(crate) compacts: bool,
    pub(crate) rebuilds: bool,
}

impl Plan {
    /// Predicts a sweep from these facts.
    pub fn new(found: &FirstScan, around: &Surroundings) -> Plan {
        let RunForecast { wal, growth, rows_bytes, .. } = found.expected;
        Plan {
            statements: found.alter.iter().chain(&found.statements).cloned().collect(),
            seconds: seconds(found),
            wal_bytes: wal,
            growth_bytes: growth,
            rows_bytes: rows_bytes.map(|(now, _)| now),
            rows_bytes_after: rows_bytes.map(|(_, then)| then),
            locks: locks(found),
            triggers_fire: triggers(around, true),
            triggers_silent: triggers(around, false),
            replication: replication(found, around),
            serialization: serialization(found, around),
        }
    }
}

impl Plan {
    /// Adds what is expected of another shard: the time is that of both, one after the other.
    pub(crate) fn merge_shard(&mut self, other: &Plan) {
        self.seconds.low += other.seconds.low;
        self.seconds.high += other.seconds.high;
        self.wal_bytes += other.wal_bytes;
        self.growth_bytes += other.growth_bytes;
        self.rows_bytes = self.rows_bytes.zip(other.rows_bytes).map(|(sum, more)| sum + more);
        let after = self.rows_bytes_after.zip(other.rows_bytes_after);
        self.rows_bytes_after = after.map(|(sum, more)| sum + more);
        for (all, more) in [
            (&mut self.locks, &other.locks),
            (&mut self.triggers_fire, &other.triggers_fire),
            (&mut self.triggers_silent, &other.triggers_silent),
            (&mut self.replication, &other.replication),
            (&mut self.serialization, &other.serialization),
        ] {
            for text in more {
                if !all.contains(text) {
                    all.push(text.clone());
                }
            }
        }
    }
}

impl AddAssign for Forecast {
    fn add_assign(&mut self, other: Forecast) {
        self.all = self.all.plus(other.all);
        for (sum, more) in [
            (&mut self.sweep, other.sweep),
            (&mut self.indexes, other.indexes),
            (&mut self.full_page_images, other.full_page_images),
            (&mut self.compaction, other.compaction),
            (&mut self.rebuild, other.rebuild),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A note, if sessions were seen that do not use read committed.
fn serialization(found: &FirstScan, around: &Surroundings) -> Vec<String> {
    let mut seen = Vec::new();
    if around.serializable > 0 {
        seen.push(format!("{} in a serializable transaction now", around.serializable));
    }
    if around.holding_snapshots > 0 {
        seen.push(format!(
            "{} that keep a snapshot between statements, as repeatable read and cursors do",
            around.holding_snapshots
        ));
    }
    seen.extend(around.isolation_defaults.iter().map(|text| format!("default of {text}")));
    if seen.is_empty() || found.expected.rows == 0 {
        return Vec::new();
    }
    vec![format!(
        "these clients can fail with \"could not serialize access\" when they update a row that was re-toasted since \
         their snapshot, and must retry: {}; --set nice=1 makes this rarer",
        seen.join("; ")
    )]
}

pub(crate) fn seconds(found: &FirstScan) -> Range {
    let wal = found.expected.wal.all;
    let scan = found.scan.as_secs_f64();
    if found.expected.rows == 0 {
        return Range::rounded(scan * 0.5, scan * 2.0);
    }
    let [least, most] = writing_seconds(found.expected.rows, wal.low, wal.high, found.nice);
    Range::rounded(scan + least, scan * 3.0 + most)
}

/// The least and the most seconds for storing this many rows anew with this much WAL, sleeping `nice` times as long in
/// between.
pub(crate) fn writing_seconds(rows: u64, least_wal: u64, most_wal: u64, nice: f64) -> [f64; 2] {
    let rows = rows as f64;
    let least = least_wal as f64 / WAL_SPEED.0 + rows * ROW_TIME.0;
    let most = most_wal as f64 / WAL_SPEED.1 + rows * ROW_TIME.1;
    [least, most].map(|seconds| seconds * (1.0 + nice))
}

fn locks(found: &FirstScan) -> Vec<String> {
    let ms = found.lock_timeout.as_millis();
    let mut locks = Vec::new();
    if found.alter.is_some() {
        locks.push(format!(
            "ACCESS EXCLUSIVE for an instant, for the table's settings (waits {ms} ms)"
        ));
    }
    if found.expected.rows > 0 {
        locks.push(format!(
            "ROW EXCLUSIVE per transaction (waits up to {ms} ms; locked rows come later)"
        ));
        locks.push("SHARE UPDATE EXCLUSIVE during each VACUUM".to_owned());
    }
    locks.push("ACCESS SHARE while a part of the table is read".to_owned());
    if found.compacts {
        locks.push(TRUNCATION_LOCK.to_owned());
    }
    if found.rebuilds {
        locks.extend([REBUILD_LOCK, TOAST_REBUILD_LOCK].map(str::to_owned));
    }
    locks
}

fn triggers(around: &Surroundings, fire: bool) -> Vec<String> {
    let some = around.triggers.iter().filter(|(_, fires)| *fires == fire);
    some.map(|(name, _)| name.clone()).collect()
}

fn replication(found: &FirstScan, around: &Surroundings) -> Vec<String> {
    let mut effects = Vec::new();
    match around.replicas {
        Some(0) => {}
        Some(1) => effects.push("1 physical replica replays all of the WAL".to_owned()),
        Some(count) => effects.push(format!("{count} physical replicas replay all of the WAL")),
        None => effects.push("this user may not see physical replicas".to_owned()),
    }
    if !around.logical_slots.is_empty() {
        effects.push(format!(
            "logical slots decode all of the WAL: {}",
            around.logical_slots.join(", ")
        ));
    }
    if !around.publications.is_empty() {
        let who = match &found.origin {
            Some(origin) => format!(
                "subscriptions with origin = none receive no rows; all other subscriptions receive every row (origin \
                 {origin})"
            ),
            None => "subscribers receive every row".to_owned(),
        };
        effects.push(format!("published by {}: {who}", around.publications.join(", ")));
    }
    if around.identity_full {
        effects.push("replica identity is full: the old row is written to the WAL too".to_owned());
    }
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> FirstScan {
        let wal = Interval { estimate: 600 << 20, low: 450 << 20, high: 750 << 20 };
        FirstScan {
            expected: RunForecast {
                rows: 40_000,
                wal: Forecast { all: wal, ..Forecast::default() },
                growth: Forecast::default(),
                rows_bytes: None,
            },
            scan: Duration::from_millis(400),
            nice: 0.0,
            lock_timeout: Duration::from_millis(100),
            alter: Some("ALTER".into()),
            statements: vec!["UPDATE".into(), "VACUUM".into()],
            origin: None,
            compacts: false,
            rebuilds: false,
        }
    }

    #[test]
    fn pauses_make_it_longer() {
        let plain = Plan::new(&found(), &Surroundings::default());
        assert_eq!(plain.statements, ["ALTER", "UPDATE", "VACUUM"]);
        let nice = Plan::new(&FirstScan { nice: 9.0, ..found() }, &Surroundings::default());
        assert!(nice.seconds.low >= 8 * plain.seconds.low);
    }

    #[test]
    fn nothing_to_do_takes_a_scan_and_its_lock() {
        let none = FirstScan {
            expected: RunForecast { rows: 0, ..found().expected },
            alter: None,
            ..found()
        };
        let plan = Plan::new(&none, &Surroundings::default());
        assert_eq!(plan.seconds, Range { low: 0, high: 1 });
        assert_eq!(plan.locks, ["ACCESS SHARE while a part of the table is read"]);
    }

    #[test]
    fn clients_that_may_fail_to_serialize_are_told_of_if_rows_are_updated() {
        let around = Surroundings {
            serializable: 2,
            isolation_defaults: vec!["role \"r\": repeatable read".into()],
            ..Surroundings::default()
        };
        let effects = Plan::new(&found(), &around).serialization.join("\n");
        assert!(
            effects.contains("2 in a serializable transaction now; default of role \"r\""),
            "{effects}"
        );
        let nothing = Plan::new(
            &FirstScan { expected: RunForecast { rows: 0, ..found().expected }, ..found() },
            &around,
        );
        assert_eq!(nothing.serialization, Vec::<String>::new());
        assert!(Plan::new(&found(), &Surroundings::default()).serialization.is_empty());
    }

    #[test]
    fn triggers_slots_and_publications_are_named() {
        let around = Surroundings {
            triggers: vec![("fires".into(), true), ("silent".into(), false)],
            publications: vec!["p".into()],
            logical_slots: vec!["s".into()],
            replicas: Some(2),
            ..Surroundings::default()
        };
        let plan = Plan::new(&FirstScan { origin: Some("o".into()), ..found() }, &around);
        assert_eq!(
            (plan.triggers_fire, plan.triggers_silent),
            (vec!["fires".into()], vec!["silent".into()])
        );
        assert_eq!(
            plan.replication,
            [
                "2 physical replicas replay all of the WAL",
                "logical slots decode all of the WAL: s",
                "published by p: subscriptions with origin = none receive no rows; all other subscriptions receive \
                 every row (origin o)",
            ]
        );
    }
}
