//! When the sweep waits for others (pure): what was measured and what time it is go in, a pause with
//! its reason comes out. It never sees a connection, a clock or a file.

use std::collections::VecDeque;
use std::time::Duration;

use super::window::Window;
use crate::server::sql::quote_literal;

/// How often what changes slowly is measured.
pub const POLL: Duration = Duration::from_secs(1);
/// Positions of the WAL that are remembered; beyond, every second one is forgotten.
const REMEMBERED: usize = 4096;
/// How many seconds' worth of WAL others may have written beyond the rate before it is forgotten.
const DEBT: f64 = 10.0;

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
    /// Bytes of WAL that the whole server may write in a second.
    pub wal_rate: Option<u64>,
    /// Sessions of others that may be at work.
    pub active_sessions: Option<u64>,
    /// The sweep waits while this query of the user's is true.
    pub throttle_query: Option<String>,
    /// Bytes that must be free.
    pub free_space: Option<u64>,
    /// Transactions by which the oldest snapshot may lie back when the table is vacuumed.
    pub xmin_age: Option<u64>,
    /// The longest wait for others at a stretch, after which the sweep stops.
    pub wait: Option<Duration>,
    /// When it works.
    pub window: Option<Window>,
    /// Time slept after a batch, as a multiple of the time that it took.
    pub nice: f64,
}

/// What the sweep is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Read.
    Scan,
    /// Store rows anew.
    Batch,
    /// Vacuum.
    Vacuum,
}

/// Why the sweep waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A signal.
    Signal,
    /// The pause file.
    PauseFile,
    /// Not its time.
    Window,
    /// A replica is behind.
    ReplicaLag,
    /// Too much WAL.
    WalRate,
    /// Too many sessions at work.
    ActiveSessions,
    /// The user's query.
    ThrottleQuery,
    /// Too little space.
    FreeSpace,
    /// Something holds back what vacuum may remove.
    Xmin,
    /// After each batch.
    Nice,
}

impl Cause {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Signal => "signal",
            Cause::PauseFile => "pause_file",
            Cause::Window => "window",
            Cause::ReplicaLag => "replica_lag",
            Cause::WalRate => "wal_rate",
            Cause::ActiveSessions => "active_sessions",
            Cause::ThrottleQuery => "throttle_query",
            Cause::FreeSpace => "free_space",
            Cause::Xmin => "xmin",
            Cause::Nice => "nice",
        }
    }

    /// Whether others are waited for, not what the user has asked for.
    pub fn is_others(self) -> bool {
        !matches!(self, Cause::Signal | Cause::PauseFile | Cause::Window | Cause::Nice)
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
    /// Transactions begun since.
    pub age: u64,
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
    /// Sessions of others at work.
    pub active: Option<u64>,
    /// What the user's query said.
    pub query: Option<bool>,
    /// The least free space.
    pub free: Option<Free>,
    /// The oldest snapshot or the like.
    pub holder: Option<Holder>,
    /// What it keeps of the table.
    pub held: Held,
    /// Minutes since midnight by the server's clock.
    pub minute: Option<u16>,
}

/// A token bucket that holds one second's worth of WAL.
#[derive(Debug, Clone, PartialEq)]
struct Bucket {
    rate: f64,
    tokens: f64,
    /// Time and position when it was filled last.
    last: Option<(Duration, u64)>,
}

impl Bucket {
    fn new(rate: u64) -> Bucket {
        let rate = rate.max(1) as f64;
        Bucket { rate, tokens: rate, last: None }
    }

    /// Takes what was written and gives what time brings; how long to wait for the rest.
    fn fill(&mut self, now: Duration, lsn: u64) -> Option<Duration> {
        if let Some((then, before)) = self.last {
            let earned = now.saturating_sub(then).as_secs_f64() * self.rate;
            let spent = lsn.saturating_sub(before) as f64;
            self.tokens = (self.tokens + earned - spent).clamp(-DEBT * self.rate, self.rate);
        }
        self.last = Some((now, lsn));
        (self.tokens < 0.0).then(|| Duration::from_secs_f64(-self.tokens / self.rate))
    }
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

/// Decides.
#[derive(Debug, Clone)]
pub struct Manners {
    limits: Limits,
    bucket: Option<Bucket>,
    history: History,
}

impl Manners {
    /// With these limits.
    pub fn new(limits: Limits) -> Manners {
        let bucket = limits.wal_rate.map(Bucket::new);
        Manners { limits, bucket, history: History::default() }
    }

    /// Takes the position of the WAL, which alone is measured before every batch.
    pub fn wal(&mut self, now: Duration, lsn: u64) -> Option<Pause> {
        let bucket = self.bucket.as_mut()?;
        let wait = bucket.fill(now, lsn)?;
        let rate = self.limits.wal_rate.unwrap_or(0);
        let text = format!("the server writes more WAL than {} kB/s (--max-wal-rate)", rate >> 10);
        Some(Pause { cause: Cause::WalRate, text, wait })
    }

    /// What stands against this work now.
    pub fn judge(&mut self, now: Duration, readings: &Readings, work: Work) -> Option<Pause> {
        self.history.note(now, readings.lsn);
        let found = self
            .window(readings)
            .or_else(|| self.active(readings))
            .or_else(|| self.query(readings))
            .or_else(|| self.lag(now, readings).filter(|_| work != Work::Scan))
            .or_else(|| self.space(readings).filter(|_| work == Work::Batch))
            .or_else(|| self.xmin(readings).filter(|_| work == Work::Vacuum));
        found.map(|(cause, text)| Pause { cause, text, wait: POLL })
    }

    fn window(&self, readings: &Readings) -> Option<(Cause, String)> {
        let (window, minute) = (self.limits.window?, readings.minute?);
        let text = format!(
            "it is {:02}:{:02} by the server's clock, outside {window} (--window)",
            minute / 60,
            minute % 60
        );
        (!window.contains(minute)).then_some((Cause::Window, text))
    }

    fn active(&self, readings: &Readings) -> Option<(Cause, String)> {
        let (limit, active) = (self.limits.active_sessions?, readings.active?);
        let text = format!("{active} other sessions are active (--max-active-sessions {limit})");
        (active > limit).then_some((Cause::ActiveSessions, text))
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
                "replica {} is {} kB of WAL and {} s behind (--max-replica-lag)",
                replica.name,
                bytes >> 10,
                time.as_secs()
            );
            over.then_some((Cause::ReplicaLag, text))
        })
    }

    fn space(&self, readings: &Readings) -> Option<(Cause, String)> {
        let (limit, free) = (self.limits.free_space?, readings.free.as_ref()?);
        let text = format!(
            "{} MB are free {}, less than {} MB (--min-free-space)",
            free.bytes >> 20,
            free.place,
            limit >> 20
        );
        (free.bytes < limit).then_some((Cause::FreeSpace, text))
    }

    /// Growth is what counts: how much of the table's old row versions is held back, and by whom. How old
    /// the holder is counts only where the user says so.
    fn xmin(&self, readings: &Readings) -> Option<(Cause, String)> {
        let holder = readings.holder.as_ref()?;
        let Held { bytes, limit } = readings.held;
        let text = if bytes > limit {
            format!(
                "{} holds back what vacuum may remove: {} kB of this table's old row versions, more than \
                 {} kB (--max-bloat)",
                holder.who,
                bytes >> 10,
                limit >> 10
            )
        } else {
            let age = self.limits.xmin_age.filter(|&age| holder.age > age)?;
            format!(
                "{} holds back what vacuum may remove by {} transactions (--max-xmin-age {age})",
                holder.who, holder.age
            )
        };
        Some((Cause::Xmin, text))
    }

    /// The sleep after a batch that took so long.
    pub fn nice(&self, took: Duration) -> Option<Pause> {
        let wait = took.mul_f64(self.limits.nice.clamp(0.0, 1000.0));
        (!wait.is_zero()).then(|| Pause {
            cause: Cause::Nice,
            text: format!("sleeping {} times what a batch takes (--nice)", self.limits.nice),
            wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn manners(limits: Limits) -> Manners {
        Manners::new(limits)
    }

    fn replica(replayed: u64, reported: Option<f64>) -> Replica {
        Replica { name: "\"r\"".into(), replayed, reported: reported.map(at) }
    }

    #[test]
    fn without_limits_nothing_is_waited_for() {
        let mut manners = manners(Limits::default());
        let readings = Readings {
            lsn: 1 << 40,
            replicas: vec![replica(0, Some(1e6))],
            active: Some(1000),
            query: Some(true),
            free: Some(Free { bytes: 0, place: String::new() }),
            holder: Some(Holder { horizon: 3, age: 1 << 30, who: String::new() }),
            held: Held { bytes: 5, limit: 5 },
            minute: Some(0),
        };
        for work in [Work::Scan, Work::Batch, Work::Vacuum] {
            assert_eq!(manners.judge(at(1.0), &readings, work), None);
        }
        assert_eq!(manners.wal(at(1.0), 1 << 50), None);
        assert_eq!(manners.nice(at(1.0)), None);
    }

    #[test]
    fn the_mean_rate_of_a_writer_that_waits_as_told_is_the_limit() {
        let limits = Limits { wal_rate: Some(4 * MB), ..Limits::default() };
        let mut manners = manners(limits);
        let (mut now, mut lsn) = (0.0, 77 * MB);
        manners.wal(at(now), lsn);
        for _ in 0..100 {
            (now, lsn) = (now + 0.05, lsn + MB);
            if let Some(pause) = manners.wal(at(now), lsn) {
                assert_eq!(pause.cause, Cause::WalRate);
                now += pause.wait.as_secs_f64();
                assert_eq!(manners.wal(at(now + 1e-6), lsn), None);
            }
        }
        // 100 MB at 4 MB/s, the first second's worth at once
        assert!((23.9..24.1).contains(&now), "{now}");
    }

    #[test]
    fn wal_that_others_wrote_long_ago_is_forgiven_after_ten_seconds() {
        let mut manners = manners(Limits { wal_rate: Some(MB), ..Limits::default() });
        manners.wal(at(0.0), 0);
        let wait = manners.wal(at(0.1), 5000 * MB).unwrap().wait;
        assert_eq!(wait, at(10.0));
        // and an idle hour saves up one second only
        assert_eq!(manners.wal(at(3600.0), 5000 * MB), None);
        assert_eq!(manners.wal(at(3600.0), 5001 * MB), None);
        assert!(manners.wal(at(3600.0), 5002 * MB).is_some());
    }

    #[test]
    fn a_replica_that_replays_nothing_is_late_by_the_time_since_it_stopped() {
        let limits = Limits { replica_lag: Some(Lag::Time(at(10.0))), ..Limits::default() };
        let mut manners = manners(limits);
        let mut judge = |now: f64, lsn, replayed, reported| {
            let replicas = vec![replica(replayed, reported)];
            let readings = Readings { lsn, replicas, ..Readings::default() };
            manners.judge(at(now), &readings, Work::Batch)
        };
        assert_eq!(judge(0.0, 100, 100, None), None);
        assert_eq!(judge(5.0, 200, 100, None), None);
        assert_eq!(judge(14.0, 300, 100, None), None);
        let pause = judge(15.1, 300, 100, None).unwrap();
        assert_eq!(pause.cause, Cause::ReplicaLag);
        assert!(pause.text.contains("replica \"r\" is 0 kB of WAL and 10 s behind"), "{pause:?}");
        // what came at 14 s is not that late yet
        assert_eq!(judge(16.0, 300, 200, None), None);
        assert!(judge(25.0, 300, 200, None).is_some());
        // the server's own figure counts where it is more, unless nothing is left to replay
        assert!(judge(26.0, 400, 300, Some(11.0)).is_some());
        assert_eq!(judge(27.0, 400, 400, Some(11.0)), None);
    }

    #[test]
    fn lag_in_bytes_holds_up_what_writes_and_not_what_reads() {
        let limits = Limits { replica_lag: Some(Lag::Bytes(MB)), ..Limits::default() };
        let mut manners = manners(limits);
        let replicas = vec![replica(4 * MB, None), replica(2 * MB, None)];
        let mut readings = Readings { lsn: 5 * MB, replicas, ..Readings::default() };
        assert!(manners.judge(at(0.0), &readings, Work::Vacuum).is_some());
        assert_eq!(manners.judge(at(0.0), &readings, Work::Scan), None);
        readings.replicas.truncate(1);
        assert_eq!(manners.judge(at(0.0), &readings, Work::Batch), None);
    }

    #[test]
    fn an_old_snapshot_holds_up_vacuum_alone_and_little_space_batches_alone() {
        let mut manners = manners(Limits {
            xmin_age: Some(1000),
            free_space: Some(100 * MB),
            ..Limits::default()
        });
        let holder = Holder { horizon: 3, age: 1001, who: "session 42".into() };
        let free = Free { bytes: 99 * MB, place: "in \"/x\"".into() };
        let readings = Readings { holder: Some(holder), free: Some(free), ..Readings::default() };
        let mut cause = |work| manners.judge(at(0.0), &readings, work).map(|pause| pause.cause);
        let causes = [Work::Scan, Work::Batch, Work::Vacuum].map(&mut cause);
        assert_eq!(causes, [None, Some(Cause::FreeSpace), Some(Cause::Xmin)]);
    }

    #[test]
    fn however_young_a_snapshot_is_growth_is_the_limit() {
        let mut manners = manners(Limits::default());
        let mut judge = |bytes| {
            let holder = Holder { horizon: 3, age: 1, who: "session 42".into() };
            let held = Held { bytes, limit: 4 * MB };
            let readings = Readings { holder: Some(holder), held, ..Readings::default() };
            manners.judge(at(0.0), &readings, Work::Vacuum)
        };
        assert_eq!(judge(4 * MB), None);
        let pause = judge(5 * MB).unwrap();
        assert_eq!(pause.cause, Cause::Xmin);
        assert_eq!(
            pause.text,
            "session 42 holds back what vacuum may remove: 5120 kB of this table's old row versions, \
             more than 4096 kB (--max-bloat)"
        );
        assert!(pause.cause.is_others() && !Cause::Window.is_others());
    }

    #[test]
    fn niceness_follows_the_batch() {
        let manners = manners(Limits { nice: 2.5, ..Limits::default() });
        assert_eq!(manners.nice(at(0.2)).unwrap().wait, at(0.5));
    }
}
