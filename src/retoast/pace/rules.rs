//! When the sweep waits for others (pure): what was measured and what time it is go in, a pause with
//! its reason comes out. It never sees a connection, a clock or a file.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::sql::quote_literal;
use crate::retoast::pace::slots::Slots;

/// How often what changes slowly is measured.
pub const POLL: Duration = Duration::from_secs(1);
/// Positions of the WAL that are remembered; beyond, every second one is forgotten.
const REMEMBERED: usize = 4096;

/// How far a replica may be behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lag {
    /// In bytes of WAL not replayed there.
    Bytes(u64),
    /// In time since what it replays last was written here.
    Time(Duration),
}

/// What the sweep leaves to others. `None`: no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// The most that a replica may be behind.
    pub replica_lag: Option<Lag>,
    /// The sweep waits while this query of the user's is true.
    pub throttle_query: Option<String>,
    /// Bytes that must be free.
    pub free_space: Option<u64>,
    /// The longest wait for others at a stretch, after which the sweep stops.
    pub wait: Option<Duration>,
    /// Time slept after a batch, as a multiple of the time that it took.
    pub nice: f64,
}

/// What the sweep is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Read.
    Scan,
    /// Store rows anew.
    Batch,
    /// Vacuum.
    Vacuum,
    /// Build an index anew, with so many bytes of WAL.
    Rebuild(u64),
}

impl Load {
    /// Whether it makes files longer.
    pub fn stores(self) -> bool {
        matches!(self, Load::Batch | Load::Rebuild(_))
    }
}

/// Why the sweep waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A signal.
    Signal,
    /// A replica is behind.
    ReplicaLag,
    /// A replication slot would soon be lost.
    Slot,
    /// The user's query.
    ThrottleQuery,
    /// Too little space.
    FreeSpace,
    /// Something holds back what vacuum may remove.
    Xmin,
    /// Others write the table anew.
    Rewrite,
    /// After each batch.
    Nice,
}

impl Cause {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Signal => "signal",
            Cause::ReplicaLag => "replica_lag",
            Cause::Slot => "replication_slot",
            Cause::ThrottleQuery => "throttle_query",
            Cause::FreeSpace => "free_space",
            Cause::Xmin => "xmin",
            Cause::Rewrite => "rewrite",
            Cause::Nice => "nice",
        }
    }

    /// Whether others are waited for, not what the user has asked for.
    pub fn is_others(self) -> bool {
        !matches!(self, Cause::Signal | Cause::Nice)
    }
}

/// A wait with no transaction open, after which all is measured again.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// Why.
    pub cause: Cause,
    /// The same for people, with figures and the option.
    pub text: String,
    /// How long.
    pub wait: Duration,
}

/// A replica as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its `application_name`, and where it is.
    pub name: String,
    /// Position of the WAL that it has replayed.
    pub replayed: u64,
    /// `replay_lag`. It stands still while replay does.
    pub reported: Option<Duration>,
}

/// Who holds back what vacuum may remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The oldest transaction whose effects it does not see.
    pub horizon: u32,
    /// For people.
    pub who: String,
}

/// Old row versions that the sweep has left and that vacuum may not remove, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// How much it is.
    pub bytes: u64,
    /// How much it may be.
    pub limit: u64,
}

/// Free space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    /// Bytes.
    pub bytes: u64,
    /// Where, for people.
    pub place: String,
}

/// What was measured; what no limit asks for is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// Position of the WAL.
    pub lsn: u64,
    /// Streaming replicas and logical subscribers.
    pub replicas: Vec<Replica>,
    /// Replication slots.
    pub slots: Slots,
    /// Bytes of old row versions that a vacuum would remove.
    pub dead: u64,
    /// What the user's query said.
    pub query: Option<bool>,
    /// The least free space.
    pub free: Option<Free>,
    /// The oldest snapshot or the like.
    pub holder: Option<Holder>,
    /// What it keeps of the table.
    pub held: Held,
    /// A command that writes the table anew.
    pub rewrite: Option<String>,
}

/// When which position of the WAL was first seen: how late a replica is that replays nothing at all
/// is told by nobody else.
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

    /// How long the first position beyond this one has been known.
    fn lag(&self, now: Duration, replayed: u64) -> Duration {
        let beyond = self.seen.partition_point(|&(_, lsn)| lsn <= replayed);
        self.seen.get(beyond).map_or(Duration::ZERO, |&(since, _)| now.saturating_sub(since))
    }
}

/// How much WAL was written between two looks, by everybody. What was most fades slowly.
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

/// Decides.
#[derive(Debug, Clone)]
pub struct ThrottleRules {
    limits: Limits,
    history: History,
    steps: Steps,
}

impl ThrottleRules {
    /// With these limits.
    pub fn new(limits: Limits) -> ThrottleRules {
        ThrottleRules { limits, history: History::default(), steps: Steps::default() }
    }

    /// Takes the position of the WAL before a piece of work; whether slots have to be looked at again for it.
    pub fn slots_at(&mut self, lsn: u64, readings: &Readings, work: Load) -> bool {
        self.steps.note(lsn);
        let written = lsn.saturating_sub(readings.lsn);
        let margin = self.slot_margin(readings, work);
        readings.slots.least_safe().is_some_and(|safe| safe.saturating_sub(written) < margin)
    }

    /// Bytes of WAL that slots have to bear before this work.
    fn slot_margin(&self, readings: &Readings, work: Load) -> u64 {
        let known = match work {
            Load::Rebuild(bytes) => bytes,
            // each page with something dead may be written whole
            Load::Vacuum => readings.dead,
            Load::Scan | Load::Batch => 0,
        };
        readings.slots.margin(self.steps.most, known)
    }

    /// What stands against this work now.
    pub fn judge(&mut self, now: Duration, readings: &Readings, work: Load) -> Option<Pause> {
        self.history.note(now, readings.lsn);
        let rewrite = || readings.rewrite.clone().map(|text| (Cause::Rewrite, text));
        let found = rewrite()
            .or_else(|| self.query(readings))
            .or_else(|| self.lag(now, readings).filter(|_| work != Load::Scan))
            .or_else(|| self.slots(readings, work).filter(|_| work != Load::Scan))
            .or_else(|| self.space(readings).filter(|_| work.stores()))
            .or_else(|| self.xmin(readings).filter(|_| work == Load::Vacuum));
        found.map(|(cause, text)| Pause { cause, text, wait: POLL })
    }

    fn query(&self, readings: &Readings) -> Option<(Cause, String)> {
        let sql = self.limits.throttle_query.as_ref()?;
        let text = format!("{} is true (--throttle-query)", quote_literal(sql.trim()));
        (readings.query == Some(true)).then_some((Cause::ThrottleQuery, text))
    }

    fn lag(&self, now: Duration, readings: &Readings) -> Option<(Cause, String)> {
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
                "replica {} is {} kB of WAL and {} s behind (setting max-replica-lag)",
                replica.name,
                bytes >> 10,
                time.as_secs()
            );
            over.then_some((Cause::ReplicaLag, text))
        })
    }

    fn slots(&self, readings: &Readings, work: Load) -> Option<(Cause, String)> {
        let text = readings.slots.against(self.slot_margin(readings, work))?;
        Some((Cause::Slot, text))
    }

    fn space(&self, readings: &Readings) -> Option<(Cause, String)> {
        let (limit, free) = (self.limits.free_space?, readings.free.as_ref()?);
        let text = format!(
            "{} MB are free {}, less than {} MB (setting min-free-space)",
            free.bytes >> 20,
            free.place,
            limit >> 20
        );
        (free.bytes < limit).then_some((Cause::FreeSpace, text))
    }

    /// Growth is what counts: how much of the table's old row versions is held back, and by whom.
    fn xmin(&self, readings: &Readings) -> Option<(Cause, String)> {
        let holder = readings.holder.as_ref()?;
        let Held { bytes, limit } = readings.held;
        let text = format!(
            "{} keeps vacuum from removing {} kB of old row versions of this table, more than {} kB (setting \
             max-bloat)",
            holder.who,
            bytes >> 10,
            limit >> 10
        );
        (bytes > limit).then_some((Cause::Xmin, text))
    }

    /// The sleep after a batch that took so long.
    pub fn nice(&self, took: Duration) -> Option<Pause> {
        let wait = took.mul_f64(self.limits.nice.clamp(0.0, 1000.0));
        (!wait.is_zero()).then(|| Pause {
            cause: Cause::Nice,
            text: format!(
                "sleeping {} times as long as each batch takes (setting nice)",
                self.limits.nice
            ),
            wait,
        })
    }
}

/// The part of its time that a transaction takes while other sessions are active: whoever waits for a processor
/// or a row that it holds waits as much less.
pub(crate) const BESIDE_OTHERS: f64 = 0.1;

/// A speed that follows the last one measured, without its jumps.
pub(crate) fn smoothed(old: Option<f64>, now: f64) -> f64 {
    old.map_or(now, |old| 0.7 * old + 0.3 * now)
}

/// How long to wait after `times` lock timeouts in a row. `jitter` is from 0 to 1.
pub(crate) fn after_timeouts(times: u32, jitter: f64) -> Duration {
    Duration::from_millis((50.0 * f64::from(1u32 << times.min(6)) * (0.5 + jitter)) as u64)
}

#[cfg(test)]
mod tests;
