//! Keeps the sweep's manners: measures on a connection of its own before each piece of work, waits
//! while something stands against it, and counts the waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex as Plain;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::control::Control;
use super::gauges;
use super::manners::{Cause, Free, Lag, Limits, Manners, POLL, Pause, Readings, Work};
use super::patience::{Kind, kind};
use super::preflight::{Ready, Refusal};
use super::result::{PauseReport, Sizes};
use super::run::RunError;
use super::watch::{Figures, Watch};
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::sql::quote_literal;

/// How often a stop is looked for while waiting.
const LOOK: Duration = Duration::from_millis(50);
/// How often one and the same reason is told.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long others are remembered that were seen active: most sessions are not at any one instant.
const OTHERS_FOR: Duration = Duration::from_secs(10);
/// Pauses shorter than this are counted and not told.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// How often the session's name tells the progress.
const NAME_EVERY: Duration = Duration::from_secs(2);
/// The longest `application_name` (`NAMEDATALEN - 1`).
const LONGEST_NAME: usize = 63;
/// The most that a replica may be behind if the user does not say.
pub const REPLICA_LAG: Lag = Lag::Time(Duration::from_secs(10));

/// What the user asks for besides the limits.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// The limits.
    pub limits: Limits,
    /// Whether the limit of the replicas' lag is the user's own.
    pub lag_given: bool,
    /// Whether the limit of free space is the user's own.
    pub space_given: bool,
    /// A query that tells the free space.
    pub free_space_query: Option<String>,
    /// Bytes that the table may grow by.
    pub disk_limit: Option<u64>,
    /// Part of the table that may be dead before it is vacuumed.
    pub max_bloat: f64,
    /// Only look: nothing is refused for want of space.
    pub dry_run: bool,
}

/// How free space is told.
#[derive(Debug, Clone)]
enum Space {
    Unknown,
    Query(String),
    Places(Vec<PathBuf>),
}

struct State {
    manners: Manners,
    readings: Readings,
    measured: Option<Instant>,
    space: Space,
    table: Option<Table>,
    pauses: BTreeMap<Cause, (u64, Duration)>,
    told: Option<(Cause, Instant)>,
    named: Option<Instant>,
}

/// The table under way.
struct Table {
    name: String,
    oid: crate::disk::Oid,
    wal: u64,
    figures: Figures,
    warned: bool,
}

/// One for all tables of a run.
pub struct Keeper {
    connection: Arc<Connection>,
    control: Arc<Control>,
    wants: Wants,
    /// Whether what other users' sessions do may be seen.
    sees_others: bool,
    /// The processes that serve this program.
    ours: Vec<i32>,
    began: Instant,
    state: Mutex<State>,
    /// What batches report, which may not wait for those who wait.
    noted: Plain<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    bytes: u64,
    percent: u32,
    lock_wait: Duration,
    /// As measured last.
    sizes: Sizes,
    /// When other sessions were last seen active.
    others: Option<Instant>,
    /// The time of batches for which nothing was slept yet.
    owed: Duration,
}

impl Keeper {
    /// Tries every measurement once. Limits that nothing can be measured for are refused if they are
    /// the user's own, else dropped, which `note` is told.
    ///
    /// # Errors
    /// What cannot be measured, with the reason.
    pub async fn open(
        connection: Arc<Connection>,
        control: Arc<Control>,
        mut wants: Wants,
        note: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Keeper, Refusal> {
        let client = connection.client();
        client
            .batch_execute(
                "SET default_transaction_read_only = on; SET statement_timeout = '60s'; \
                 SET lock_timeout = '1s'",
            )
            .await?;
        let limits = &mut wants.limits;
        let sees_others = gauges::sees_others(client).await?;
        if !sees_others {
            let hint = "HINT:  GRANT pg_read_all_stats TO the user, or pg_monitor.";
            if limits.active_sessions.is_some() || (wants.lag_given && limits.replica_lag.is_some())
            {
                return Err(Refusal::Refused(format!(
                    "this user may not see what other sessions and replicas do, which \
                     --max-active-sessions and --max-replica-lag need\n{hint}"
                )));
            }
            if limits.replica_lag.take().is_some() {
                note("replicas are not waited for: this user may not see how far they are");
            }
        }
        if let Some(sql) = &limits.throttle_query {
            gauges::truth(client, sql).await.map_err(|error| {
                Refusal::Refused(format!("throttle query {}: {error}", quote_literal(sql)))
            })?;
        }
        let manners = Manners::new(limits.clone());
        Ok(Keeper {
            connection,
            control,
            wants,
            sees_others,
            ours: Vec::new(),
            began: Instant::now(),
            state: Mutex::new(State {
                manners,
                readings: Readings::default(),
                measured: None,
                space: Space::Unknown,
                table: None,
                pauses: BTreeMap::new(),
                told: None,
                named: None,
            }),
            noted: Plain::default(),
        })
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.wants.limits
    }

    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Tells it the processes that serve this program, which are not others.
    pub fn know_own(&mut self, ours: Vec<i32>) {
        self.ours = ours;
    }

    /// What is asked from outside.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Looks whether there is space for a table, before anything is done to it. Says how that was
    /// told.
    ///
    /// # Errors
    /// Too little space, or none can be told though the user has set a limit.
    pub async fn check_space(&self, ready: &Ready) -> Result<Option<String>, Refusal> {
        let Some(limit) = self.wants.limits.free_space else { return Ok(None) };
        let name = ready.relation.display_name();
        let client = self.connection.client();
        let space = self.space(ready).await?;
        let Some(free) = free(client, &space).await? else {
            if self.wants.space_given && !self.wants.dry_run {
                return Err(Refusal::Refused(format!(
                    "{name}: free space cannot be told: the server's file system is not seen here\n\
                     HINT:  Use --free-space-query, or --disk-limit."
                )));
            }
            return Ok(Some(
                "free space is not watched: the server's file system is not seen here".to_owned(),
            ));
        };
        let growth = expected_growth(
            gauges::sizes(&self.connection, ready.relation.oid).await?,
            self.wants.max_bloat,
            gauges::max_wal_size(client).await?,
        );
        let told = format!(
            "{} MB are free {}, the table and WAL may grow by {} MB, and {} MB are to be left",
            free.bytes >> 20,
            free.place,
            growth >> 20,
            limit >> 20
        );
        if free.bytes >= growth.saturating_add(limit) || self.wants.dry_run {
            return Ok(Some(told));
        }
        Err(Refusal::Refused(format!(
            "{name}: not enough space: {told}\nHINT:  Make room, or lower --min-free-space."
        )))
    }

    async fn space(&self, ready: &Ready) -> Result<Space, LiveError> {
        if let Some(sql) = &self.wants.free_space_query {
            return Ok(Space::Query(sql.clone()));
        }
        if self.wants.limits.free_space.is_none() {
            return Ok(Space::Unknown);
        }
        let places = gauges::directories(self.connection.client(), ready.relation.oid).await?;
        Ok(places.map_or(Space::Unknown, Space::Places))
    }

    /// Begins with a table.
    ///
    /// # Errors
    /// The server's.
    pub async fn begin(&self, ready: &Ready, before: Sizes) -> Result<(), LiveError> {
        let mut state = self.state.lock().await;
        state.space = self.space(ready).await?;
        state.measured = None;
        state.table = Some(Table {
            name: ready.relation.display_name(),
            oid: ready.relation.oid,
            wal: gauges::wal(&self.connection).await?,
            figures: Figures { before, now: before, ..Figures::default() },
            warned: false,
        });
        self.noted(|noted| *noted = Noted { sizes: before, ..Noted::default() });
        Ok(())
    }

    /// The table's sizes when they were measured last, which is tried before every vacuum.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        self.noted(|noted| sizes = noted.sizes);
        sizes
    }

    /// The pauses since the last time that this was asked, and the longest wait for a lock.
    pub async fn end(&self) -> (Vec<PauseReport>, Duration) {
        let pauses = std::mem::take(&mut self.state.lock().await.pauses);
        let report = |(cause, (times, time)): (Cause, (u64, Duration))| PauseReport {
            reason: cause.name(),
            times,
            ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        };
        let mut wait = Duration::ZERO;
        self.noted(|noted| wait = noted.lock_wait);
        (pauses.into_iter().map(report).collect(), wait)
    }

    fn noted(&self, with: impl FnOnce(&mut Noted)) {
        if let Ok(mut noted) = self.noted.lock() {
            with(&mut noted);
        }
    }

    /// So much of the scan under way is read.
    pub fn at(&self, read: u32, blocks: u32) {
        let percent = u64::from(read) * 100 / u64::from(blocks.max(1));
        self.noted(|noted| noted.percent = u32::try_from(percent).unwrap_or(100));
    }

    /// So long a lock was waited for.
    pub fn lock_waited(&self, wait: Duration) {
        self.noted(|noted| noted.lock_wait = noted.lock_wait.max(wait));
    }

    /// Whether other sessions were active of late, or might have been where that may not be seen.
    pub fn beside_others(&self) -> bool {
        let mut seen = None;
        self.noted(|noted| seen = noted.others);
        !self.sees_others || seen.is_some_and(|then| then.elapsed() < OTHERS_FOR)
    }

    /// A batch took so long and stored so many bytes of values.
    pub fn batch_done(&self, took: Duration, bytes: u64) {
        self.noted(|noted| {
            noted.bytes += bytes;
            noted.owed += took;
        });
    }

    /// Returns when nothing stands against this work, or when a stop is asked for.
    ///
    /// # Errors
    /// A measurement fails, or the table has grown beyond the limit.
    pub async fn pass(&self, work: Work, watch: &dyn Watch) -> Result<(), RunError> {
        let mut state = self.state.lock().await;
        let mut pausing: Option<(Cause, Instant, bool)> = None;
        while !self.control.stopped() {
            let Some(pause) = self.stands_against(&mut state, work, watch).await? else { break };
            let (since, told) = match pausing {
                Some((cause, since, told)) if cause == pause.cause => (since, told),
                _ => {
                    state.pauses.entry(pause.cause).or_default().0 += 1;
                    (Instant::now(), false)
                }
            };
            let told = told || state.tell(&pause, watch);
            watch.paused(Some(&pause));
            pausing = Some((pause.cause, since, told));
            let slept = self.sleep(pause.wait.min(POLL)).await;
            state.pauses.entry(pause.cause).or_default().1 += slept;
        }
        if let Some((_, since, told)) = pausing {
            watch.paused(None);
            if told && !self.control.stopped() && since.elapsed() >= WORTH_TELLING {
                let name = state.table_name();
                let seconds = since.elapsed().as_secs_f64();
                watch.note(&format!("{name}: going on after {seconds:.1} s"));
            }
        }
        Ok(())
    }

    /// Sleeps, but not after a stop is asked for; how long it was.
    async fn sleep(&self, time: Duration) -> Duration {
        let began = Instant::now();
        while !self.control.stopped() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
        began.elapsed()
    }

    async fn stands_against(
        &self,
        state: &mut State,
        work: Work,
        watch: &dyn Watch,
    ) -> Result<Option<Pause>, RunError> {
        if let Some((cause, text)) = self.control.asked() {
            self.name_session(state, true).await?;
            return Ok(Some(Pause { cause, text, wait: Duration::from_millis(200) }));
        }
        if work == Work::Batch {
            let mut took = Duration::ZERO;
            self.noted(|noted| took = std::mem::take(&mut noted.owed));
            if let Some(owed) = state.manners.nice(took) {
                return Ok(Some(owed));
            }
        }
        if work == Work::Batch && self.wants.limits.wal_rate.is_some() {
            let lsn = gauges::wal(&self.connection).await?;
            if let Some(pause) = state.manners.wal(self.began.elapsed(), lsn) {
                return Ok(Some(pause));
            }
        }
        let old = state.measured.is_none_or(|then| then.elapsed() >= POLL);
        // before each vacuum, which would be in vain
        if old || work == Work::Vacuum {
            self.measure(state, watch).await?;
            self.name_session(state, false).await?;
        }
        let State { manners, readings, .. } = state;
        Ok(manners.judge(self.began.elapsed(), readings, work))
    }

    async fn measure(&self, state: &mut State, watch: &dyn Watch) -> Result<(), RunError> {
        let client = self.connection.client();
        let limits = &self.wants.limits;
        let mut readings =
            Readings { lsn: gauges::wal(&self.connection).await?, ..Readings::default() };
        if limits.window.is_some() {
            readings.minute = Some(gauges::minute(&self.connection).await?);
        }
        if limits.replica_lag.is_some() {
            readings.replicas = gauges::replicas(&self.connection).await?;
        }
        let active = gauges::active_sessions(&self.connection, &self.ours).await?;
        readings.active = Some(active);
        if active > 0 {
            self.noted(|noted| noted.others = Some(Instant::now()));
        }
        if let Some(sql) = &limits.throttle_query {
            let told = gauges::truth(client, sql).await;
            readings.query = Some(told.map_err(|error| {
                RunError::Manners(format!("throttle query {}: {error}", quote_literal(sql)))
            })?);
        }
        readings.free = free(client, &state.space).await?;
        if limits.xmin_age.is_some() {
            readings.holder = gauges::holder(&self.connection).await?;
        }
        if let Some(table) = &mut state.table {
            match gauges::sizes(&self.connection, table.oid).await {
                Ok(now) => table.figures.now = now,
                // locked just now: what was measured last holds
                Err(LiveError::Server(error)) if kind(&error) == Kind::Busy => {}
                Err(error) => return Err(error.into()),
            }
            table.figures.wal = readings.lsn.saturating_sub(table.wal);
            self.noted(|noted| {
                table.figures.bytes = noted.bytes;
                noted.sizes = table.figures.now;
            });
            watch.figures(&table.figures);
            self.check_growth(table)?;
            warn_of_holder(table, &readings, watch);
        }
        state.readings = readings;
        state.measured = Some(Instant::now());
        Ok(())
    }

    fn check_growth(&self, table: &Table) -> Result<(), RunError> {
        let Some(limit) = self.wants.disk_limit else { return Ok(()) };
        let grown = table.figures.now.sum().saturating_sub(table.figures.before.sum());
        if grown <= limit {
            return Ok(());
        }
        Err(RunError::Manners(format!(
            "the table with its TOAST relation and indexes has grown by {grown} bytes, more than \
             --disk-limit {limit}\n\
             HINT:  See what holds vacuum back; the same command goes on from here."
        )))
    }

    /// Shows in `pg_stat_activity` how far it is.
    async fn name_session(&self, state: &mut State, paused: bool) -> Result<(), LiveError> {
        if state.named.is_some_and(|then| then.elapsed() < NAME_EVERY) {
            return Ok(());
        }
        let Some(table) = &state.table else { return Ok(()) };
        let mut percent = 0;
        self.noted(|noted| percent = noted.percent);
        let name = session_name(&table.name, percent, paused);
        let sql = format!("SET application_name = {}", quote_literal(&name));
        self.connection.client().batch_execute(&sql).await?;
        state.named = Some(Instant::now());
        Ok(())
    }
}

impl State {
    fn table_name(&self) -> &str {
        self.table.as_ref().map_or("", |table| &table.name)
    }

    /// Says why it waits, unless that was just said; whether it was.
    fn tell(&mut self, pause: &Pause, watch: &dyn Watch) -> bool {
        let just = self
            .told
            .is_some_and(|(cause, then)| cause == pause.cause && then.elapsed() < TELL_EVERY);
        if pause.cause == Cause::Nice || just {
            return false;
        }
        watch.note(&format!("{}: waiting: {}", self.table_name(), pause.text));
        self.told = Some((pause.cause, Instant::now()));
        true
    }
}

/// Says once who makes vacuum useless, long before the limit is met.
fn warn_of_holder(table: &mut Table, readings: &Readings, watch: &dyn Watch) {
    const WORTH: u64 = 1000;
    let Some(holder) = readings.holder.as_ref().filter(|holder| holder.age > WORTH) else { return };
    if !table.warned {
        table.warned = true;
        watch.note(&format!(
            "{}: {} holds back what vacuum may remove by {} transactions: the table grows",
            table.name, holder.who, holder.age
        ));
    }
}

async fn free(client: &tokio_postgres::Client, space: &Space) -> Result<Option<Free>, LiveError> {
    match space {
        Space::Unknown => Ok(None),
        Space::Query(sql) => gauges::free_by_query(client, sql).await.map(Some),
        Space::Places(places) => Ok(gauges::free_in(places)),
    }
}

/// Bytes by which a table and the WAL may grow: dead rows up to twice the limit of bloat, and WAL
/// until a checkpoint lets it go.
fn expected_growth(sizes: Sizes, max_bloat: f64, max_wal_size: u64) -> u64 {
    let dead = (sizes.sum() as f64 * max_bloat * 2.0) as u64;
    let wal = (sizes.heap + sizes.toast).saturating_mul(22) / 10;
    dead.saturating_add(wal.min(max_wal_size))
}

/// `toastctl retoast public.t 42 %`, cut to what the server keeps.
fn session_name(table: &str, percent: u32, paused: bool) -> String {
    let end = if paused { " paused".to_owned() } else { format!(" {percent} %") };
    let room = LONGEST_NAME.saturating_sub(gauges::APPLICATION.len() + 1 + end.len());
    let cut = (0..=room.min(table.len())).rev().find(|&at| table.is_char_boundary(at)).unwrap_or(0);
    format!("{} {}{end}", gauges::APPLICATION, table.get(..cut).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_session_fits_and_ends_with_the_progress() {
        assert_eq!(session_name("public.t", 42, false), "toastctl retoast public.t 42 %");
        let long = format!("public.{}", "ä".repeat(40));
        let name = session_name(&long, 100, false);
        assert!((LONGEST_NAME - 1..=LONGEST_NAME).contains(&name.len()), "{name}");
        assert!(name.ends_with("ä 100 %"), "{name}");
        assert!(session_name(&long, 7, true).ends_with("ä paused"));
    }

    #[test]
    fn growth_is_bloat_and_the_wal_that_is_kept() {
        let sizes = Sizes { heap: 1000, toast: 8000, indexes: 1000 };
        assert_eq!(expected_growth(sizes, 0.05, u64::MAX), 1000 + 19_800);
        assert_eq!(expected_growth(sizes, 0.05, 500), 1500);
    }
}
