//! Predicts a sweep, for `--dry-run` (pure). The ranges are wide on purpose: how fast the server writes, and how much
//! WAL full-page images add, is known only once the sweep runs.

use std::time::Duration;

use serde::Serialize;

use crate::disk::desc::Storage;
use crate::judge::toaster::Toaster;
use crate::model::interval::Range;

/// Bytes of WAL per second on a fast and on a slow server.
const WAL_SPEED: (f64, f64) = (200e6, 20e6);
/// Seconds per row, in addition to the time for its bytes.
const ROW_TIME: (f64, f64) = (10e-6, 200e-6);
/// Bytes of WAL per row without its values: heap record, index entries, chunk headers.
const ROW_WAL: (f64, f64) = (60.0, 300.0);

/// Sizes of a table's parts in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Sizes {
    /// The table's main fork.
    pub heap: u64,
    /// The TOAST relation.
    pub toast: u64,
    /// The table's indexes and the TOAST relation's.
    pub indexes: u64,
}

impl Sizes {
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

/// What is expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct Plan {
    /// The statements, each batch's with `$1` for the addresses of its rows.
    pub statements: Vec<String>,
    /// How long it will take, in seconds, without waits for other sessions.
    pub seconds: Range,
    /// WAL, in bytes.
    pub wal_bytes: Range,
    /// Largest expected growth of table, TOAST relation and indexes, in bytes.
    pub growth_bytes: Range,
    /// Locks, for people.
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

/// What the scan has found, and the parameters of the sweep.
#[derive(Debug, Clone)]
pub struct FirstScan {
    /// The toaster.
    pub toaster: Toaster,
    /// Rows to re-toast.
    pub rows: u64,
    /// Bytes of their values, decompressed if that is more than their stored size.
    pub bytes: u64,
    /// Stored bytes of all values of the columns.
    pub stored: u64,
    /// The bytes stored out of line, whose chunks leave free space once they are replaced.
    pub external: u64,
    /// The number of chosen columns.
    pub columns: u64,
    /// Current sizes.
    pub sizes: Sizes,
    /// The duration of the scan.
    pub scan: Duration,
    /// The fraction of the table that may be dead before it is vacuumed.
    pub max_bloat: f64,
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
}

impl Plan {
    /// Predicts a sweep from these facts.
    pub fn of(found: &FirstScan, around: &Surroundings) -> Plan {
        let wal = wal(found, around);
        Plan {
            statements: found.alter.iter().chain(&found.statements).cloned().collect(),
            seconds: seconds(found, wal),
            wal_bytes: wal,
            growth_bytes: growth(found),
            locks: locks(found),
            triggers_fire: triggers(around, true),
            triggers_silent: triggers(around, false),
            replication: replication(found, around),
            serialization: serialization(found, around),
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
    if seen.is_empty() || found.rows == 0 {
        return Vec::new();
    }
    vec![format!(
        "these clients can fail with \"could not serialize access\" when they update a row that was re-toasted since \
         their snapshot, and must retry: {}; --set nice=1 makes this rarer",
        seen.join("; ")
    )]
}

/// Bytes of the values to re-toast: as stored now, and the most that they will take.
fn values(found: &FirstScan) -> (f64, f64) {
    let now = found.bytes.min(found.stored) as f64;
    let then = if found.toaster.compresses() {
        // The result of one method is rarely a third larger than that of the other.
        now * 1.3
    } else {
        found.bytes.max(found.stored) as f64
    };
    (now, if found.rows == 0 { 0.0 } else { then })
}

/// The lower bound is half of what is stored now, in case the values compress better. The upper bound contains a
/// full-page image of each page of old chunks and of the heap, and the new chunks.
fn wal(found: &FirstScan, around: &Surroundings) -> Range {
    if found.rows == 0 {
        return Range { low: 0, high: 0 };
    }
    let (now, then) = values(found);
    let rows = found.rows as f64;
    // The complete old row is logged.
    let identity = if around.identity_full { now } else { 0.0 };
    let low = now * 0.5 + rows * ROW_WAL.0;
    let high = now * 1.1 + then * 1.1 + found.sizes.heap as f64 + rows * ROW_WAL.1 + identity;
    Range::of(low, high + f64::from(1 << 20))
}

fn seconds(found: &FirstScan, wal: Range) -> Range {
    let scan = found.scan.as_secs_f64();
    if found.rows == 0 {
        return Range::of(scan * 0.5, scan * 2.0);
    }
    let rows = found.rows as f64;
    let work = |wal: u64, speed: f64, row: f64| {
        let batches = wal as f64 / speed + rows * row;
        batches * (1.0 + found.nice)
    };
    Range::of(
        scan + work(wal.low, WAL_SPEED.0, ROW_TIME.0),
        scan * 3.0 + work(wal.high, WAL_SPEED.1, ROW_TIME.1),
    )
}

/// Old row versions up to twice the limit of bloat, plus space for the new values. Values that leave the heap or the
/// TOAST relation do not make it smaller, but new chunks reuse the space of old ones.
fn growth(found: &FirstScan) -> Range {
    if found.rows == 0 {
        return Range { low: 0, high: 0 };
    }
    let (_, then) = values(found);
    let dead = (found.sizes.sum() as f64 * found.max_bloat).max(f64::from(1 << 20));
    let new = match found.toaster.storage() {
        // A row slightly longer than half a page takes up a whole page.
        Storage::Main | Storage::Plain => then * 2.0,
        Storage::Extended | Storage::External => {
            // New chunks reuse the space of vacuumed old ones unless it is too small.
            let room = found.external.min(found.bytes) as f64 * 0.75;
            (chunks(then, found.rows * found.columns.max(1)) - room).max(0.0)
        }
    };
    Range::of(0.0, dead * 2.0 + f64::from(4 << 20) + new)
}

/// The maximum size of the pages of a TOAST relation and its index for this many bytes of values: four full chunks on a
/// page (`TOAST_MAX_CHUNK_SIZE`, heaptoast.h), a shorter last chunk for each value, and unused space smaller than a
/// full chunk.
fn chunks(bytes: f64, values: u64) -> f64 {
    const CHUNK: f64 = 1996.0;
    const FULL: f64 = 2048.0;
    const INDEX_ENTRY: f64 = 40.0;
    let full = bytes / CHUNK;
    let left_over = (values as f64 * FULL).min(full * FULL / 3.0);
    full * FULL + left_over + (full + values as f64) * (44.0 + INDEX_ENTRY)
}

fn locks(found: &FirstScan) -> Vec<String> {
    let ms = found.lock_timeout.as_millis();
    let mut locks = Vec::new();
    if found.alter.is_some() {
        locks.push(format!(
            "ACCESS EXCLUSIVE on the table for an instant, to change its settings; each attempt waits at most \
             {ms} ms"
        ));
    }
    if found.rows > 0 {
        locks.push(format!(
            "ROW EXCLUSIVE on the table during each transaction, and FOR NO KEY UPDATE on the rows it updates; each \
             attempt waits at most {ms} ms for the table; rows locked by other sessions are skipped and tried later"
        ));
        locks.push("SHARE UPDATE EXCLUSIVE on the table during each VACUUM".to_owned());
    }
    locks.push("ACCESS SHARE on the table while a part of it is read".to_owned());
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
    use crate::codec::Method;

    fn found() -> FirstScan {
        FirstScan {
            toaster: Toaster::Compressed(Method::Lz4),
            rows: 40_000,
            bytes: 900 << 20,
            stored: 310 << 20,
            external: 310 << 20,
            columns: 1,
            sizes: Sizes { heap: 3 << 20, toast: 320 << 20, indexes: 1 << 20 },
            scan: Duration::from_millis(400),
            max_bloat: 0.05,
            nice: 0.0,
            lock_timeout: Duration::from_millis(100),
            alter: Some("ALTER".into()),
            statements: vec!["UPDATE".into(), "VACUUM".into()],
            origin: None,
        }
    }

    #[test]
    fn a_measured_sweep_lies_within_its_ranges() {
        // Measured for 320 MB of pglz to lz4: 593 MB of WAL, 2.9 s, 6 % of growth.
        let plan = Plan::of(&found(), &Surroundings::default());
        let within = |range: Range, value: u64| range.low <= value && value <= range.high;
        assert!(within(plan.wal_bytes, 593_000_000), "{plan:?}");
        assert!(within(plan.seconds, 2), "{plan:?}");
        assert!(within(plan.growth_bytes, 20_000_000), "{plan:?}");
        assert!(plan.wal_bytes.high < 6 * plan.wal_bytes.low, "{plan:?}");
        assert_eq!(plan.statements, ["ALTER", "UPDATE", "VACUUM"]);
    }

    #[test]
    fn limits_and_full_identity_make_it_longer() {
        let plain = Plan::of(&found(), &Surroundings::default());
        let nice = Plan::of(&FirstScan { nice: 9.0, ..found() }, &Surroundings::default());
        assert!(nice.seconds.low >= 8 * plain.seconds.low);
        let full = Surroundings { identity_full: true, ..Surroundings::default() };
        assert!(Plan::of(&found(), &full).wal_bytes.high > plain.wal_bytes.high + (300 << 20));
    }

    #[test]
    fn nothing_to_do_takes_a_scan_and_its_lock() {
        let none = FirstScan { rows: 0, bytes: 0, alter: None, ..found() };
        let plan = Plan::of(&none, &Surroundings::default());
        assert_eq!((plan.wal_bytes.high, plan.growth_bytes.high), (0, 0));
        assert_eq!(plan.seconds, Range { low: 0, high: 1 });
        assert_eq!(plan.locks, ["ACCESS SHARE on the table while a part of it is read"]);
    }

    #[test]
    fn clients_that_may_fail_to_serialize_are_told_of_if_rows_are_updated() {
        let around = Surroundings {
            serializable: 2,
            isolation_defaults: vec!["role \"r\": repeatable read".into()],
            ..Surroundings::default()
        };
        let effects = Plan::of(&found(), &around).serialization.join("\n");
        assert!(
            effects.contains("2 in a serializable transaction now; default of role \"r\""),
            "{effects}"
        );
        let nothing = Plan::of(&FirstScan { rows: 0, ..found() }, &around);
        assert_eq!(nothing.serialization, Vec::<String>::new());
        assert!(Plan::of(&found(), &Surroundings::default()).serialization.is_empty());
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
        let plan = Plan::of(&FirstScan { origin: Some("o".into()), ..found() }, &around);
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
