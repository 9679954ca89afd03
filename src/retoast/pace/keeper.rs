//! Keeps the sweep's manners: measures on a connection of its own before each piece of work, waits
//! while something stands against it, and counts the waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex as Plain;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::control::Control;
use super::error::PaceError;
use super::garbage::Garbage;
use super::gauges;
use super::manners::{
    Cause, Free, Held, Holder, Lag, Limits, Manners, POLL, Pause, Readings, Work,
};
use super::measuring::{Measuring, OwnProcesses};
use super::patience::{Kind, kind};
use super::space::{self, Need, Space};
use super::stuck::{self, Wait};
use crate::retoast::check::ready::Ready;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::result::PauseReport;
use crate::retoast::sizes::Sizes;
use crate::retoast::watch::{Figures, Watch};
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::sql::quote_literal;

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
/// Old row versions that vacuum cannot remove do not stop the sweep of a small table before there are so many
/// bytes of them.
const GROWTH_FLOOR: u64 = 4 << 20;
/// Old row versions of so many bytes that are left in the end are worth a note.
const WORTH_NOTING: u64 = 1 << 20;
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
    /// Bytes of old row versions that may be held back.
    growth_limit: u64,
}

/// One for all tables of a run.
pub struct Keeper {
    measuring: Measuring,
    control: Arc<Control>,
    wants: Wants,
    /// Whether what other users' sessions do may be seen.
    sees_others: bool,
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
    /// What batches have left behind.
    garbage: Garbage,
    /// Who holds vacuum back, as measured last.
    holder: Option<Holder>,
    /// Why waiting was given up.
    gave_up: Option<String>,
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
        ours: Arc<OwnProcesses>,
        mut wants: Wants,
        note: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Keeper, Refusal> {
        let client = connection.client();
        let limits = &mut wants.limits;
        let sees_others = connection.reading(async || gauges::sees_others(client).await).await?;
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
            let asked =
                connection.reading_for_user(async || gauges::truth(client, sql).await).await;
            asked.map_err(|error| {
                Refusal::Refused(format!("throttle query {}: {error}", quote_literal(sql)))
            })?;
        }
        let manners = Manners::new(limits.clone());
        Ok(Keeper {
            measuring: Measuring::new(connection, Arc::clone(&control), ours),
            control,
            wants,
            sees_others,
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

    /// Looks whether there is space for a table, before anything is done to it. Says how that was
    /// told.
    ///
    /// # Errors
    /// Too little space, or none can be told though the user has set a limit.
    pub async fn check_space(&self, ready: &Ready) -> Result<Option<String>, Refusal> {
        let Some(limit) = self.wants.limits.free_space else { return Ok(None) };
        let name = ready.relation.display_name();
        let (sizes, max_wal_size) = self
            .measuring
            .read(async |connection| {
                let sizes = gauges::sizes(connection, ready.relation.oid).await?;
                Ok((sizes, gauges::max_wal_size(connection.client()).await?))
            })
            .await?;
        let space = self.space(ready).await?;
        let needs = match &space {
            Space::Unknown => Vec::new(),
            Space::Query(_) => {
                let free = self.free(&space).await?;
                let parts = sizes.sum();
                free.map(|free| Need { free, parts, wal: true }).into_iter().collect()
            }
            Space::Places(places) => space::needs(places),
        };
        if needs.is_empty() {
            if self.wants.space_given && !self.wants.dry_run {
                return Err(Refusal::Refused(format!(
                    "{name}: free space cannot be told: the server's file system is not seen here\n\
                     HINT:  Use --free-space-query, or --disk-limit."
                )));
            }
            return Ok(Some(
                "free space is not watched: the server's file system is not seen here".to_owned(),
            ));
        }
        let wal = expected_wal(sizes, max_wal_size);
        let mut all = Vec::new();
        for need in needs {
            let growth = need.growth(self.wants.max_bloat, wal);
            let told = format!(
                "{} MB are free {}, {} may grow by {} MB, and {} MB must stay free",
                need.free.bytes >> 20,
                need.free.place,
                need.what(),
                growth >> 20,
                limit >> 20
            );
            if need.free.bytes < growth.saturating_add(limit) && !self.wants.dry_run {
                return Err(Refusal::Refused(format!(
                    "{name}: not enough space: {told}\nHINT:  Make room, or lower --min-free-space."
                )));
            }
            all.push(told);
        }
        Ok(Some(all.join("; ")))
    }

    async fn space(&self, ready: &Ready) -> Result<Space, PaceError> {
        if let Some(sql) = &self.wants.free_space_query {
            return Ok(Space::Query(sql.clone()));
        }
        if self.wants.limits.free_space.is_none() {
            return Ok(Space::Unknown);
        }
        let oid = ready.relation.oid;
        let places =
            self.measuring.read(async |c| gauges::directories(c.client(), oid).await).await?;
        Ok(places.map_or(Space::Unknown, Space::Places))
    }

    /// Begins with a table.
    ///
    /// # Errors
    /// The server's.
    pub async fn begin(&self, ready: &Ready, before: Sizes) -> Result<(), PaceError> {
        let mut state = self.state.lock().await;
        state.space = self.space(ready).await?;
        state.measured = None;
        state.table = Some(Table {
            name: ready.relation.display_name(),
            oid: ready.relation.oid,
            wal: self.measuring.read(gauges::wal).await?,
            figures: Figures { before, now: before, ..Figures::default() },
            growth_limit: growth_limit(before, self.wants.max_bloat),
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

    /// What a server process of ours waits for.
    pub(crate) async fn wait_of(&self, pid: i32) -> Result<Option<Wait>, PaceError> {
        self.measuring.read(async |connection| stuck::wait_of(connection.client(), pid).await).await
    }

    /// Whether other sessions were active of late, or might have been where that may not be seen.
    pub fn beside_others(&self) -> bool {
        let mut seen = None;
        self.noted(|noted| seen = noted.others);
        !self.sees_others || seen.is_some_and(|then| then.elapsed() < OTHERS_FOR)
    }

    /// A batch took so long and stored so many bytes of values in the transaction `xid`.
    pub fn batch_done(&self, took: Duration, bytes: u64, xid: u32) {
        self.noted(|noted| {
            noted.bytes += bytes;
            noted.owed += took;
            noted.garbage.add(xid, bytes);
        });
    }

    /// Whether a vacuum now would remove a fair part of what batches have left behind. To be asked after
    /// [`Keeper::pass`].
    pub fn vacuum_pays(&self) -> bool {
        let mut pays = true;
        self.noted(|noted| {
            let total = noted.garbage.total();
            let held = noted.garbage.held(noted.horizon());
            pays = total == 0 || (total - held).saturating_mul(4) >= total;
        });
        pays
    }

    /// A vacuum was done. It began after the last [`Keeper::pass`].
    pub fn vacuumed(&self) {
        self.noted(|noted| {
            let horizon = noted.horizon();
            noted.garbage.vacuumed(horizon);
        });
    }

    /// Bytes of old row versions that no vacuum has removed yet.
    pub fn still_dead(&self) -> u64 {
        let mut bytes = 0;
        self.noted(|noted| bytes = noted.garbage.total());
        bytes
    }

    /// What should be said of the table in the end.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        self.noted(|noted| {
            notes.extend(noted.gave_up.take());
            let held = noted.garbage.held(noted.horizon());
            if let (Some(holder), true) = (&noted.holder, held >= WORTH_NOTING) {
                notes.push(format!(
                    "{} kB of old row versions are left for a later VACUUM: {} holds them back",
                    held >> 10,
                    holder.who
                ));
            }
        });
        notes
    }

    /// Returns when nothing stands against this work, or when a stop is asked for. The worker's session,
    /// idle until then, is given a name that shows how far all is.
    ///
    /// # Errors
    /// A measurement fails, or the table has grown beyond the limit.
    pub async fn pass(
        &self,
        work: Work,
        worker: &Connection,
        watch: &dyn Watch,
    ) -> Result<(), PaceError> {
        let mut state = self.state.lock().await;
        let mut pausing: Option<(Cause, Instant, bool)> = None;
        let mut for_others: Option<Instant> = None;
        while !self.control.stopped() {
            let Some(mut pause) = self.stands_against(&mut state, work, worker, watch).await?
            else {
                break;
            };
            if let (Some(limit), true) = (self.wants.limits.wait, pause.cause.is_others()) {
                let waited = for_others.get_or_insert_with(Instant::now).elapsed();
                let left = limit.saturating_sub(waited);
                if left.is_zero() {
                    self.give_up(state.table_name(), waited, &pause, watch);
                    break;
                }
                pause.wait = pause.wait.min(left);
            }
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

    /// Ends the run, as after a stop on request.
    fn give_up(&self, table: &str, waited: Duration, pause: &Pause, watch: &dyn Watch) {
        let seconds = waited.as_secs_f64();
        let text = format!("stopped after waiting for {seconds:.1} s (--max-wait): {}", pause.text);
        watch.note(&format!("{table}: {text}"));
        self.noted(|noted| noted.gave_up = Some(text));
        self.control.stop();
    }

    /// Sleeps, but not after a stop is asked for; how long it was.
    async fn sleep(&self, time: Duration) -> Duration {
        let began = Instant::now();
        self.control.stopping().run_until_cancelled(tokio::time::sleep(time)).await;
        began.elapsed()
    }

    async fn stands_against(
        &self,
        state: &mut State,
        work: Work,
        worker: &Connection,
        watch: &dyn Watch,
    ) -> Result<Option<Pause>, PaceError> {
        if let Some((cause, text)) = self.control.asked() {
            self.name_session(state, worker, true).await?;
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
            let lsn = self.measuring.read(gauges::wal).await?;
            if let Some(pause) = state.manners.wal(self.began.elapsed(), lsn) {
                return Ok(Some(pause));
            }
        }
        let old = state.measured.is_none_or(|then| then.elapsed() >= POLL);
        // before each vacuum, which would be in vain
        if old || work == Work::Vacuum {
            self.measure(state, watch).await?;
            self.name_session(state, worker, false).await?;
        }
        let State { manners, readings, .. } = state;
        Ok(manners.judge(self.began.elapsed(), readings, work))
    }

    async fn measure(&self, state: &mut State, watch: &dyn Watch) -> Result<(), PaceError> {
        let limits = &self.wants.limits;
        let ours = self.measuring.own_processes();
        let oid = state.table.as_ref().map(|table| table.oid);
        let before = self.measuring.connection();
        let (mut readings, sizes) = self
            .measuring
            .read(async |connection| {
                let mut readings =
                    Readings { lsn: gauges::wal(connection).await?, ..Readings::default() };
                if limits.window.is_some() {
                    readings.minute = Some(gauges::minute(connection).await?);
                }
                if limits.replica_lag.is_some() {
                    readings.replicas = gauges::replicas(connection).await?;
                }
                readings.active = Some(gauges::active_sessions(connection, &ours).await?);
                readings.holder = gauges::holder(connection).await?;
                let sizes = match oid {
                    None => None,
                    // the last one, for an error ends the transaction
                    Some(oid) => match gauges::sizes(connection, oid).await {
                        Ok(now) => Some(now),
                        // locked just now: what was measured last holds
                        Err(LiveError::Server(error)) if kind(&error) == Kind::Busy => None,
                        Err(error) => return Err(error),
                    },
                };
                Ok((readings, sizes))
            })
            .await?;
        if let Some(sql) = &limits.throttle_query {
            let ask = async |c: &Connection| gauges::truth(c.client(), sql).await;
            readings.query =
                Some(self.measuring.read_for_user(ask).await.map_err(|error| match error {
                    PaceError::Live(error) => {
                        PaceError::Limit(format!("throttle query {}: {error}", quote_literal(sql)))
                    }
                    other => other,
                })?);
        }
        readings.free = self.free(&state.space).await?;
        if !Arc::ptr_eq(&before, &self.measuring.connection()) {
            watch.note(&format!(
                "{}: the measuring connection was lost, and is made again",
                state.table_name()
            ));
        }
        if readings.active.is_some_and(|active| active > 0) {
            self.noted(|noted| noted.others = Some(Instant::now()));
        }
        if let Some(table) = &mut state.table {
            table.figures.now = sizes.unwrap_or(table.figures.now);
            table.figures.wal = readings.lsn.saturating_sub(table.wal);
            self.noted(|noted| {
                table.figures.bytes = noted.bytes;
                noted.sizes = table.figures.now;
                noted.holder.clone_from(&readings.holder);
                // room that was there before costs nobody anything
                let grown = table.figures.now.sum().saturating_sub(table.figures.before.sum());
                let bytes = noted.garbage.held(noted.horizon()).min(grown);
                readings.held = Held { bytes, limit: table.growth_limit };
            });
            watch.figures(&table.figures);
            self.check_growth(table)?;
        }
        state.readings = readings;
        state.measured = Some(Instant::now());
        Ok(())
    }

    async fn free(&self, space: &Space) -> Result<Option<Free>, PaceError> {
        match space {
            Space::Unknown => Ok(None),
            Space::Query(sql) => {
                let ask = async |c: &Connection| gauges::free_by_query(c.client(), sql).await;
                self.measuring.read_for_user(ask).await.map(Some)
            }
            Space::Places(places) => Ok(space::free_in(places)),
        }
    }

    fn check_growth(&self, table: &Table) -> Result<(), PaceError> {
        let Some(limit) = self.wants.disk_limit else { return Ok(()) };
        let grown = table.figures.now.sum().saturating_sub(table.figures.before.sum());
        if grown <= limit {
            return Ok(());
        }
        Err(PaceError::Limit(format!(
            "the table with its TOAST relation and indexes has grown by {grown} bytes, more than \
             --disk-limit {limit}\n\
             HINT:  See what holds vacuum back; the same command goes on from here."
        )))
    }

    /// Shows in `pg_stat_activity` how far it is.
    async fn name_session(
        &self,
        state: &mut State,
        worker: &Connection,
        paused: bool,
    ) -> Result<(), LiveError> {
        if state.named.is_some_and(|then| then.elapsed() < NAME_EVERY) {
            return Ok(());
        }
        let Some(table) = &state.table else { return Ok(()) };
        let mut percent = 0;
        self.noted(|noted| percent = noted.percent);
        let name = session_name(&table.name, percent, paused);
        let sql = format!("SET application_name = {}", quote_literal(&name));
        worker.client().batch_execute(&sql).await?;
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

impl Noted {
    /// The oldest transaction of which somebody sees what was before.
    fn horizon(&self) -> Option<u32> {
        self.holder.as_ref().map(|holder| holder.horizon)
    }
}

/// Bytes of old row versions that may be held back before the sweep waits.
fn growth_limit(sizes: Sizes, max_bloat: f64) -> u64 {
    let table = sizes.heap.saturating_add(sizes.toast) as f64;
    ((table * max_bloat) as u64).max(GROWTH_FLOOR)
}

/// Bytes of WAL that are kept until a checkpoint lets them go.
fn expected_wal(sizes: Sizes, max_wal_size: u64) -> u64 {
    let written = (sizes.heap + sizes.toast).saturating_mul(22) / 10;
    written.min(max_wal_size)
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
    fn what_is_held_back_may_be_a_part_of_the_table_and_of_a_small_one_a_few_megabytes() {
        let sizes = |toast| Sizes { heap: 1000, toast, indexes: 1 << 40 };
        assert_eq!(growth_limit(sizes(8000), 0.05), GROWTH_FLOOR);
        assert_eq!(growth_limit(sizes((1 << 30) - 1000), 0.05), (1 << 30) / 20);
        assert_eq!(expected_wal(sizes(8000), u64::MAX), 19_800);
        assert_eq!(expected_wal(sizes(8000), 500), 500);
    }
}
