//! When the sweep waits for other sessions (pure): takes what was measured and the time, and returns a pause with its
//! reason. It does not use connections, the clock or files.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::size;
use crate::retoast::pace::slots::Slots;
use crate::server::holders::Holder;
use toast_format::model::sql::quote_literal;

/// How often to measure what changes slowly.
pub const POLL: Duration = Duration::from_secs(1);
/// The maximum number of WAL positions remembered; when it is exceeded, every second one is discarded.
const REMEMBERED: usize = 4096;

/// How far a replica may be behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lag {
    /// Bytes of WAL that it has not replayed.
    Bytes(u64),
    /// Time since the WAL that it replays next was written.
    Time(Duration),
}

/// The limits within which the sweep works, for the benefit of other sessions. `None` means no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// The maximum lag of a replica.
    pub replica_lag: Option<Lag>,
    /// A query given by the user; the sweep waits while it returns true.
    pub throttle_query: Option<String>,
    /// Bytes that must stay free.
    pub free_space: Option<u64>,
    /// The longest wait for other sessions without any work in between, after which the sweep stops.
    pub wait: Option<Duration>,
    /// The sleep after a batch, as a multiple of the batch's duration.
    pub nice: f64,
}

/// What the sweep is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    Scan,
    Batch,
    Vacuum,
    /// Rebuild an index, which writes this many bytes of WAL.
    Rebuild(u64),
}

impl WorkKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WorkKind::Scan => "a scan",
            WorkKind::Batch => "a batch",
            WorkKind::Vacuum => "a VACUUM",
            WorkKind::Rebuild(_) => "the rebuild of an index",
        }
    }

    /// Whether it extends files.
    pub fn stores(self) -> bool {
        matches!(self, WorkKind::Batch | WorkKind::Rebuild(_))
    }
}

/// Why the sweep waits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A signal has paused the run.
    Signal,
    /// A replica is behind.
    ReplicaLag,
    /// A replication slot would soon be lost.
    ReplicationSlot,
    /// The user's query returns true.
    ThrottleQuery,
    /// There is too little free space.
    FreeSpace,
    /// Something prevents vacuum from removing old row versions.
    Xmin,
    /// Another session is rewriting the table.
    Rewrite,
    /// The sleep after each batch.
    Nice,
}

impl Cause {
    /// The cause in words.
    pub fn text(self) -> &'static str {
        match self {
            Cause::Signal => "signal",
            Cause::ReplicaLag => "replica lag",
            Cause::ReplicationSlot => "replication slot",
            Cause::ThrottleQuery => "throttle query",
            Cause::FreeSpace => "free space",
            Cause::Xmin => "xmin",
            Cause::Rewrite => "rewrite",
            Cause::Nice => "nice",
        }
    }

    /// Whether it waits for something outside this run, rather than as the user has requested.
    pub fn is_others(self) -> bool {
        !matches!(self, Cause::Signal | Cause::Nice)
    }
}

/// A wait with no open transaction, after which everything is measured again.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    pub cause: Cause,
    /// The reason in words, with figures and the setting.
    pub text: String,
    /// How long to wait.
    pub wait: Duration,
}

impl Pause {
    /// A pause until the next measurement, if there is a reason for it.
    fn new_if(is_due: bool, cause: Cause, text: String) -> Option<Pause> {
        is_due.then_some(Pause { cause, text, wait: POLL })
    }
}

/// A replica as reported by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its `application_name` and address.
    pub name: String,
    /// The position up to which it has replayed the WAL.
    pub replayed: u64,
    /// `replay_lag`, which does not change while replay is stopped.
    pub reported: Option<Duration>,
}

/// Old row versions left by the sweep that vacuum may not remove, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldBack {
    pub bytes: u64,
    pub limit: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    /// The number of bytes.
    pub bytes: u64,
    /// Names the place in messages.
    pub place: String,
}

/// The measurements. What no limit depends on is not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// The current WAL insert position.
    pub lsn: u64,
    /// Streaming replicas and logical subscribers.
    pub replicas: Vec<Replica>,
    pub slots: Slots,
    /// Bytes of old row versions that no vacuum has removed yet.
    pub dead: u64,
    /// The result of the user's query.
    pub query: Option<bool>,
    /// The smallest free space of the file systems concerned.
    pub free: Option<Free>,
    /// What holds back vacuum most, such as the oldest snapshot.
    pub holder: Option<Holder>,
    /// The old row versions of the table that this holder keeps.
    pub held: HeldBack,
    /// Describes a command that is rewriting the table.
    pub rewrite: Option<String>,
}

/// When each position of the WAL was first seen. Nothing else shows how far behind a replica is that has stopped
/// replaying.
#[derive(Debug, Clone, Default, PartialEq)]
struct History {
    seen: VecDeque<(Duration, u64)>,
}

impl History {
    fn note(&mut self, now: Duration, lsn: u64) {
        if self.seen.back().is_some_and(|&(_, last)| last >= lsn) {
            return;
        }
        self.seen.push_back((now, lsn));
        if self.seen.len() > REMEMBERED {
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// How long ago the first position after `replayed` was first seen.
    fn lag(&self, now: Duration, replayed: u64) -> Duration {
        let beyond = self.seen.partition_point(|&(_, lsn)| lsn <= replayed);
        self.seen.get(beyond).map_or(Duration::ZERO, |&(since, _)| now.saturating_sub(since))
    }
}

/// How much WAL all sessions wrote between two measurements. The maximum decays slowly.
#[derive(Debug, Clone, Default, PartialEq)]
struct Steps {
    last: Option<u64>,
    most: u64,
}

impl Steps {
    fn note(&mut self, lsn: u64) {
        let last = self.last.replace(lsn).unwrap_or(lsn);
        self.most = (self.most - self.most / 64).max(lsn.saturating_sub(last));
    }
}

/// The rules that determine when to wait.
#[derive(Debug, Clone)]
pub struct ThrottleRules {
    limits: Limits,
    history: History,
    steps: Steps,
}

impl ThrottleRules {
    /// Creates the rules for these limits.
    pub fn new(limits: Limits) -> ThrottleRules {
        ThrottleRules { limits, history: History::default(), steps: Steps::default() }
    }

    /// Records the position of the WAL before a piece of work, and returns whether the slots must be queried again
    /// for it.
    pub fn slots_at(&mut self, lsn: u64, readings: &Readings, work: WorkKind) -> bool {
        self.steps.note(lsn);
        let written = lsn.saturating_sub(readings.lsn);
        let margin = self.slot_margin(readings, work);
        readings.slots.least().is_some_and(|(_, safe)| safe.saturating_sub(written) < margin)
    }

    /// Bytes of WAL that slots must tolerate before this work.
    fn slot_margin(&self, readings: &Readings, work: WorkKind) -> u64 {
        let known = match work {
            WorkKind::Rebuild(bytes) => bytes,
            // vacuum may write a full image of each page that contains dead tuples
            WorkKind::Vacuum => readings.dead,
            WorkKind::Scan | WorkKind::Batch => 0,
        };
        readings.slots.margin(self.steps.most, known)
    }

    /// The reason to wait before this work, if there is one.
    pub fn judge(&mut self, now: Duration, readings: &Readings, work: WorkKind) -> Option<Pause> {
        self.history.note(now, readings.lsn);
        if let Some(text) = &readings.rewrite {
            return Some(Pause { cause: Cause::Rewrite, text: text.clone(), wait: POLL });
        }
        let mut found = self.query(readings);
        if found.is_none() && work != WorkKind::Scan {
            found = self.lag(now, readings).or_else(|| self.slots(readings, work));
        }
        if found.is_none() && work.stores() {
            found = self.space(readings);
        }
        if found.is_none() && work == WorkKind::Vacuum {
            found = Self::xmin(readings);
        }
        found
    }

    fn query(&self, readings: &Readings) -> Option<Pause> {
        let sql = self.limits.throttle_query.as_ref()?;
        let text = format!("{} is true (--throttle-query)", quote_literal(sql.trim()));
        Pause::new_if(readings.query == Some(true), Cause::ThrottleQuery, text)
    }

    fn lag(&self, now: Duration, readings: &Readings) -> Option<Pause> {
        let limit = self.limits.replica_lag?;
        readings.replicas.iter().find_map(|replica| {
            let bytes = readings.lsn.saturating_sub(replica.replayed);
            if bytes == 0 {
                return None;
            }
            let time = self.history.lag(now, replica.replayed);
            let time = time.max(replica.reported.unwrap_or_default());
            let over = match limit {
                Lag::Bytes(limit) => bytes > limit,
                Lag::Time(limit) => time > limit,
            };
            let text = format!(
                "replica {} is {} of WAL and {} s behind (setting max-replica-lag)",
                replica.name,
                size(bytes),
                time.as_secs()
            );
            Pause::new_if(over, Cause::ReplicaLag, text)
        })
    }

    fn slots(&self, readings: &Readings, work: WorkKind) -> Option<Pause> {
        let text = readings.slots.against(self.slot_margin(readings, work))?;
        Some(Pause { cause: Cause::ReplicationSlot, text, wait: POLL })
    }

    fn space(&self, readings: &Readings) -> Option<Pause> {
        let limit = self.limits.free_space?;
        let free = readings.free.as_ref()?;
        let text = format!(
            "{} are free {}, less than {} (setting min-free-space)",
            size(free.bytes),
            free.place,
            size(limit)
        );
        Pause::new_if(free.bytes < limit, Cause::FreeSpace, text)
    }

    /// The limit is not age but growth: how many bytes of the table's old row versions are held back.
    fn xmin(readings: &Readings) -> Option<Pause> {
        let holder = readings.holder.as_ref()?;
        let HeldBack { bytes, limit } = readings.held;
        let text = format!(
            "{} keeps vacuum from removing {} of old row versions of this table, more than {} (setting \
             max-bloat)",
            holder.who,
            size(bytes),
            size(limit)
        );
        Pause::new_if(bytes > limit, Cause::Xmin, text)
    }

    /// The sleep after a batch that took this long.
    pub fn nice(&self, took: Duration) -> Option<Pause> {
        let wait = took.mul_f64(self.limits.nice.clamp(0.0, 1000.0));
        (!wait.is_zero()).then(|| Pause {
            cause: Cause::Nice,
            text: format!("sleeping (setting nice={})", self.limits.nice),
            wait,
        })
    }
}

/// The fraction of its usual duration that a transaction takes while other sessions are active. Sessions that wait
/// for a processor, or for a row that it has locked, wait that much less.
pub(crate) const BESIDE_OTHERS: f64 = 0.1;

/// A moving average of a speed, which evens out jumps.
pub(crate) fn smoothed(old: Option<f64>, now: f64) -> f64 {
    old.map_or(now, |old| 0.7 * old + 0.3 * now)
}

/// How long to wait after `times` consecutive lock timeouts. `jitter` is between 0 and 1.
pub(crate) fn after_timeouts(times: u32, jitter: f64) -> Duration {
    Duration::from_millis((50.0 * f64::from(1u32 << times.min(6)) * (0.5 + jitter)) as u64)
}

#[cfg(test)]
mod tests;
