//! Throttles a run by its rules: before each piece of work, it measures on its own connection, waits while there is a
//! reason to, and counts the waits. [`Meter`] has the figures, from measurements and from what batches report; the rules
//! and the waits are behind [`Gate`], which one job passes at a time; [`Patience`] limits the waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex as Plain, MutexGuard};
use tokio::sync::Mutex;

use crate::message::{Message, size};
use crate::retoast::error::{Result, RetoastError, refused, refused_table};
use crate::retoast::listener::{Control, Figures, Listener};
use crate::retoast::pace::course::Record;
use crate::retoast::pace::garbage::Garbage;
use crate::retoast::pace::measuring::{Measuring, OwnProcesses};
use crate::retoast::pace::metrics::{Rewrite, ServerWait};
use crate::retoast::pace::patience::{self, Patience};
use crate::retoast::pace::rules::{
    Cause, HeldBack, Lag, Limits, POLL, Pause, Readings, ThrottleRules, WorkKind,
};
use crate::retoast::pace::slots::{Losses, Slots};
use crate::retoast::pace::space::Directory;
use crate::retoast::pace::{metrics, space};
use crate::retoast::plan::{RunForecast, Sizes};
use crate::retoast::preflight::ready::PreparedTable;
use crate::retoast::result::{CoursePoint, PauseReport};
use crate::server::holders::{self, Holder, LockHolder, LocksCounted};
use crate::server::{Connection, LiveError, LiveResult, locks};
use toast_format::disk::Oid;
use toast_format::model::sql::{LONGEST_NAME, quote_literal, truncated};

/// Free space is mentioned if it is less than so many times what may be needed.
const AMPLE: u64 = 4;
/// How long other sessions count as active after they were last seen so, because most are not active at any given
/// instant.
const OTHERS_FOR: Duration = Duration::from_secs(10);
/// The minimum of the growth limit, in bytes: fewer old row versions do not stop the sweep of a small table.
const GROWTH_FLOOR: u64 = 4 << 20;
/// Old row versions that remain at the end are reported if they have at least this number of bytes.
const WORTH_NOTING: u64 = 1 << 20;
/// Why the free space of the server is not known.
const OUT_OF_SIGHT: &str = "the data directory is not on this machine, or this user may not see it";
/// The default of max-replica-lag.
pub const REPLICA_LAG: Lag = Lag::Time(Duration::from_secs(10));

/// The user's options for throttling.
#[derive(Debug, Clone, Default)]
pub struct ThrottleOptions {
    pub limits: Limits,
    /// Whether the user has set the limit of the replicas' lag.
    pub lag_given: bool,
    /// Whether the user has set the limit of free space.
    pub space_given: bool,
    /// The number of bytes by which the table may grow.
    pub disk_limit: Option<u64>,
    /// The fraction of the table that may be dead before it is vacuumed.
    pub max_bloat: f64,
    /// Whether this is a dry run, which is not refused for lack of space and does not wait for rewrites of the table.
    pub dry_run: bool,
}

/// The rules and the waits. It is locked while a job waits.
struct Gate {
    rules: ThrottleRules,
    /// The number and the duration of waits since the last report.
    pauses: BTreeMap<Cause, (u64, Duration)>,
    reported: Option<(Cause, Instant)>,
    /// When the name of the session was last set.
    named: Option<Instant>,
}

/// What the throttle knows of a table before work on it begins.
#[derive(Debug, Clone)]
pub(crate) struct Beginning {
    /// The directories in which the table and the WAL grow, if they are accessible.
    places: Vec<Directory>,
    /// The setting `max_wal_size` in bytes.
    max_wal_size: u64,
    /// In a dry run, the command that rewrites it.
    rewrite: Option<String>,
}

/// The table under work.
struct MeteredTable {
    name: String,
    oid: Oid,
    wal: u64,
    began: Instant,
    beginning: Beginning,
    /// The maximum size of old row versions that are held back, in bytes.
    growth_limit: u64,
    /// Those that were held back before the run.
    held_before: u64,
}

/// The figures of the work on a table.
#[derive(Default)]
struct Meter {
    table: Option<MeteredTable>,
    figures: Figures,
    readings: Readings,
    /// When these were measured.
    measured: Option<Instant>,
    record: Record,
    percent: u32,
    lock_wait: Duration,
    /// Whether the last batch got no lock.
    missed_lock: bool,
    /// When other sessions were last seen active.
    others: Option<Instant>,
    /// The duration of batches after which it has not slept yet.
    not_slept_for: Duration,
    /// The old row versions that batches have left.
    garbage: Garbage,
    /// Bytes of WAL that other sessions have written while the run waited for them.
    wal_of_others: u64,
    /// Whether vacuums were repeated or put off without success, because most of the dead rows remained.
    vacuums_in_vain: bool,
    /// The replication slots lost since the start.
    losses: Losses,
}

/// What one transaction of the monitoring connection has measured.
struct Measured {
    readings: Readings,
    /// The number of active sessions other than those of this program.
    active: u64,
    /// The sizes of the table; `None` without one, and if it is locked, so that the last measurement remains valid.
    sizes: Option<Sizes>,
}

impl Meter {
    fn table_name(&self) -> &str {
        self.table.as_ref().map_or("", |table| &table.name)
    }

    /// Bytes by which the files have grown; space that was free before is reused, which is no growth.
    fn growth(&self) -> u64 {
        self.figures.now.sum().saturating_sub(self.figures.before.sum())
    }

    /// The figures as they are now.
    fn point(&self) -> CoursePoint {
        let Figures { bytes, now, wal, .. } = self.figures;
        let elapsed = self.table.as_ref().map_or(Duration::ZERO, |table| table.began.elapsed());
        let ms = millis(elapsed);
        CoursePoint { ms, bytes, size: now.sum(), wal_bytes: wal, waited_for: None }
    }

    /// The oldest transaction whose effects some session does not see.
    fn horizon(&self) -> Option<u32> {
        self.readings.holder.as_ref().map(|holder| holder.horizon)
    }

    /// Bytes of old row versions that are known to be held back.
    fn held(&self) -> u64 {
        self.garbage.held(self.horizon())
    }

    /// Takes over a measurement.
    fn update(&mut self, measured: Measured) {
        let Measured { readings, active, sizes } = measured;
        self.losses.note(&readings.slots);
        self.readings = readings;
        self.measured = Some(Instant::now());
        if active > 0 {
            tracing::debug!("{}: other sessions active: {active}", self.table_name());
            self.others = self.measured;
        }
        let Some(table) = &self.table else { return };
        self.figures.now = sizes.unwrap_or(self.figures.now);
        self.figures.wal =
            self.readings.lsn.saturating_sub(table.wal).saturating_sub(self.wal_of_others);
        self.readings.dead = self.garbage.total();
        let most = self.growth().saturating_add(table.held_before);
        self.readings.held = HeldBack { bytes: self.held().min(most), limit: table.growth_limit };
        self.record.add(self.point());
    }
}

/// The throttle shared by all tables of a run.
pub struct Throttle<'a> {
    measuring: Measuring,
    control: Arc<Control>,
    pub(crate) options: ThrottleOptions,
    /// Whether the activity of other users' sessions is visible.
    sees_others: bool,
    began: Instant,
    gate: Mutex<Gate>,
    meter: Plain<Meter>,
    pub(crate) patience: Patience<'a>,
    listener: &'a dyn Listener,
}

impl<'a> Throttle<'a> {
    /// Tries every measurement once. A limit that depends on a measurement this user may not make is refused if the
    /// user has set it; otherwise it is dropped with a note.
    ///
    /// # Errors
    /// What cannot be measured, with the reason.
    pub async fn open(
        connection: Arc<Connection>,
        control: Arc<Control>,
        ours: Arc<OwnProcesses>,
        mut options: ThrottleOptions,
        listener: &'a dyn Listener,
    ) -> Result<Throttle<'a>> {
        let client = connection.client();
        let limits = &mut options.limits;
        let sees_others = connection.reading(async || metrics::sees_others(client).await).await?;
        if !sees_others {
            let hint = "HINT:  Grant pg_read_all_stats or pg_monitor to the user.";
            if options.lag_given && limits.replica_lag.is_some() {
                return refused(format!(
                    "this user may not see the progress of replicas, which the setting max-replica-lag requires\n{hint}"
                ));
            }
            if limits.replica_lag.take().is_some() {
                listener
                    .note(None, "not waiting for replicas: this user may not see their progress");
            }
        }
        if let Some(sql) = &limits.throttle_query {
            let asked =
                connection.reading_for_user(async || metrics::truth(&connection, sql).await).await;
            if let Err(error) = asked {
                return refused(format!("throttle query {}: {error}", quote_literal(sql)));
            }
        }
        let slots = connection.reading(async || metrics::slots(&connection).await).await?;
        let mut meter = Meter::default();
        meter.losses.note(&slots);
        meter.readings.slots = slots;
        let gate = Gate {
            rules: ThrottleRules::new(limits.clone()),
            pauses: BTreeMap::new(),
            reported: None,
            named: None,
        };
        Ok(Throttle {
            patience: Patience::new(limits.wait, Arc::clone(&control), listener),
            listener,
            measuring: Measuring::new(connection, Arc::clone(&control), ours),
            control,
            options,
            sees_others,
            began: Instant::now(),
            gate: Mutex::new(gate),
            meter: Plain::new(meter),
        })
    }

    /// Reads what must be known of tables before work on them begins.
    pub(crate) async fn read_beginnings(&self, tables: &[Oid]) -> Result<HashMap<Oid, Beginning>> {
        let has_limit = self.options.limits.free_space.is_some();
        let dry_run = self.options.dry_run;
        self.measuring
            .read(async |connection| {
                let client = connection.client();
                let mut places = HashMap::new();
                if has_limit {
                    places = metrics::directories(client, tables).await?;
                }
                // a dry run does not wait, so it only reports the command
                let mut rewrites = HashMap::new();
                if dry_run {
                    rewrites = metrics::rewrites(connection, tables).await?;
                }
                let max_wal_size = metrics::max_wal_size(client).await?;
                let mut found = HashMap::new();
                for oid in tables {
                    let places = places.remove(oid).unwrap_or_default();
                    let rewrite = rewrites.remove(oid).map(|rewrite| rewrite.text);
                    found.insert(*oid, Beginning { places, max_wal_size, rewrite });
                }
                Ok(found)
            })
            .await
    }

    async fn read_beginning(&self, table: Oid) -> Result<Beginning> {
        let found = self.read_beginnings(&[table]).await?.remove(&table);
        found.ok_or_else(|| RetoastError::Live(LiveError::Unexpected("no such table".to_owned())))
    }

    /// Starts a table. `wal`: the position in the WAL; `known`: what [`Throttle::read_beginnings`] has found of it, if it was
    /// called.
    pub(crate) async fn begin(
        &self,
        ready: &PreparedTable,
        before: Sizes,
        wal: u64,
        known: Option<&Beginning>,
    ) -> Result<()> {
        let oid = ready.relation.oid;
        let beginning = match known {
            Some(known) => known.clone(),
            None => self.read_beginning(oid).await?,
        };
        // waits until no job is measuring for the table before
        let _gate = self.gate.lock().await;
        self.patience.begin_table();
        let mut meter = self.meter();
        let mut readings = std::mem::take(&mut meter.readings);
        let mut measured = meter.measured;
        // a plan is made so quickly that the last measurement serves for the next table too
        if !self.options.dry_run {
            readings = Readings { slots: readings.slots, ..Readings::default() };
            measured = None;
        }
        *meter = Meter {
            table: Some(MeteredTable {
                name: ready.relation.display_name(),
                oid,
                wal,
                began: Instant::now(),
                beginning,
                growth_limit: growth_limit(before, self.options.max_bloat),
                held_before: 0,
            }),
            figures: Figures { before, now: before, ..Figures::default() },
            readings,
            measured,
            losses: std::mem::take(&mut meter.losses),
            ..Meter::default()
        };
        let point = meter.point();
        meter.record.add(point);
        Ok(())
    }

    /// The table's sizes as last measured, which is attempted before every vacuum.
    pub fn sizes(&self) -> Sizes {
        self.meter().figures.now
    }

    /// Returns the course and the pauses since the last call, and the longest wait for a lock.
    pub async fn end(&self) -> (Vec<CoursePoint>, Vec<PauseReport>, Duration) {
        let pauses = std::mem::take(&mut self.gate.lock().await.pauses);
        let pauses = pauses
            .into_iter()
            .map(|(reason, (times, time))| PauseReport { reason, times, ms: millis(time) })
            .collect();
        let mut meter = self.meter();
        let last = meter.point();
        let is_run = meter.table.is_some() && !self.options.dry_run;
        let course = if is_run { meter.record.take(last) } else { Vec::new() };
        (course, pauses, meter.lock_wait)
    }

    /// Bytes of WAL that other sessions have written while the run waited for them.
    pub(crate) fn wal_of_others(&self) -> u64 {
        self.meter().wal_of_others
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock()
    }

    /// Records which fraction of the work is done.
    pub fn set_progress(&self, part: f64) {
        self.meter().percent = (part * 100.0) as u32;
    }

    /// Records the duration of a wait for a lock.
    pub fn lock_waited(&self, wait: Duration) {
        let mut meter = self.meter();
        meter.lock_wait = meter.lock_wait.max(wait);
    }

    /// What one of this program's server processes waits for.
    pub(crate) async fn wait_of(&self, pid: i32) -> Result<Option<ServerWait>> {
        self.measuring
            .read(async |connection| metrics::wait_of(connection.client(), pid).await)
            .await
    }

    /// Who has the strongest lock on a table, or waits for it; `None` if that is not known.
    pub(crate) async fn lock_holder(&self, table: Oid) -> Option<String> {
        Some(self.lock_of_others(table, LocksCounted::All).await?.text())
    }

    /// Whether the last attempt to write got no lock, and another session still has one on the table that no writer gets
    /// past. Asking leaves nothing in the server's log; each attempt that times out is an error there.
    pub(crate) async fn is_locked_out(&self, table: Oid) -> bool {
        let missed = self.meter().missed_lock;
        missed && self.lock_of_others(table, LocksCounted::BlockWriters).await.is_some()
    }

    /// Records that a batch got no lock.
    pub(crate) fn lock_missed(&self) {
        self.meter().missed_lock = true;
    }

    pub(crate) async fn lock_of_others(
        &self,
        table: Oid,
        counted: LocksCounted,
    ) -> Option<LockHolder> {
        let ours = self.measuring.own_processes();
        self.measuring
            .read(async |c| holders::of_table(c.client(), table, &ours, counted).await)
            .await
            .ok()?
    }

    /// Who holds back vacuum most, if anybody; `None` if that is not known.
    pub(crate) async fn horizon(&self) -> Option<Holder> {
        let ours = self.measuring.own_processes();
        self.measuring.read(async |c| holders::of_horizon(c, &ours).await).await.ok()?
    }

    /// The note of a dry run about who would hold back vacuum for long, and to what effect.
    pub(crate) async fn would_wait(&self, effect: &str) -> Option<String> {
        let holder = self.horizon().await.filter(|holder| holder.is_lasting)?;
        Some(format!(
            "would wait for {}: until it has ended, VACUUM removes no row versions that the run replaces, and {effect}",
            holder.who
        ))
    }

    /// A process that waits for one of this program's server processes.
    pub(crate) async fn kept_waiting(&self, pid: i32) -> Result<Option<i32>> {
        self.measuring.read(async |c| metrics::kept_waiting(c.client(), pid).await).await
    }

    /// Whether a process waits for the transaction of one of this program's server processes to end.
    pub(crate) async fn is_waited_for(&self, pid: i32) -> Result<bool> {
        self.measuring.read(async |c| metrics::is_waited_for(c.client(), pid).await).await
    }

    /// Whether other sessions were recently active; true if this user cannot see them.
    pub fn others_are_active(&self) -> bool {
        !self.sees_others || self.meter().others.is_some_and(|then| then.elapsed() < OTHERS_FOR)
    }

    /// Records a batch: its duration, the bytes of values stored and of what they have left dead, and its transaction.
    pub fn batch_done(&self, took: Duration, stored: u64, dead: u64, xid: u32) {
        let mut meter = self.meter();
        meter.missed_lock = false;
        meter.figures.bytes += stored;
        meter.not_slept_for += took;
        meter.garbage.add(xid, dead);
    }

    /// Whether half of the old row versions that may be held back would be as large as this part of the table.
    pub(crate) fn nears_limit(&self, part: f64) -> bool {
        let meter = self.meter();
        let limit = meter.table.as_ref().map_or(0, |table| table.growth_limit);
        meter.figures.before.bytes_of(part) > limit / 2
    }

    /// Counts old row versions that this horizon holds back, as this part of the table, as if the run had left them.
    pub(crate) fn count_held(&self, horizon: u32, part: f64) {
        let mut meter = self.meter();
        let held = meter.figures.before.bytes_of(part);
        meter.garbage.add(horizon, held);
        if let Some(table) = &mut meter.table {
            table.held_before = held;
        }
    }

    /// Whether a vacuum now would remove at least a quarter of the old row versions that batches have left. Call
    /// after [`Throttle::wait_until_allowed`].
    pub fn vacuum_pays(&self) -> bool {
        let meter = self.meter();
        let total = meter.garbage.total();
        total == 0 || (total - meter.held()).saturating_mul(4) >= total
    }

    /// Records a vacuum that began after the last [`Throttle::wait_until_allowed`].
    pub fn vacuumed(&self) {
        let mut meter = self.meter();
        let horizon = meter.horizon();
        meter.garbage.vacuumed(horizon);
        meter.vacuums_in_vain = false;
    }

    /// Records that vacuums were repeated, or put off, and most of what they could have removed remained.
    pub fn vacuums_in_vain(&self) {
        self.meter().vacuums_in_vain = true;
    }

    /// Whether it is worth repeating, or waiting for, a vacuum that has left most dead rows.
    pub fn vacuums_again(&self) -> bool {
        !self.meter().vacuums_in_vain
    }

    /// Bytes of old row versions that no session is known to hold back.
    pub fn removable(&self) -> u64 {
        let meter = self.meter();
        meter.garbage.total() - meter.held()
    }

    /// Bytes of old row versions that no vacuum has removed yet.
    pub fn still_dead(&self) -> u64 {
        self.meter().garbage.total()
    }

    /// Notes for the report of the table.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.patience.take_note().into_iter().collect();
        let meter = self.meter();
        let rewrite = meter.table.as_ref().and_then(|table| table.beginning.rewrite.as_ref());
        notes.extend(rewrite.map(|text| format!("{text}: a run would wait until it has ended")));
        let held = meter.held();
        if let (Some(holder), true) = (&meter.readings.holder, held >= WORTH_NOTING) {
            notes.push(format!(
                "{} of old row versions are left for a later VACUUM: {} holds them back",
                size(held),
                holder.who
            ));
        }
        notes
    }

    /// Returns when there is no reason to wait before this work, or when a stop is requested. Sets a name that shows
    /// the progress in the worker's session, which is idle at this time.
    ///
    /// # Errors
    /// A measurement failed, or the table has grown beyond the limit.
    pub async fn wait_until_allowed(&self, work: WorkKind, worker: &Connection) -> Result<()> {
        let mut gate = self.gate.lock().await;
        let name = self.meter().table_name().to_owned();
        let mut pausing: Option<(Cause, Instant, bool)> = None;
        let mut for_others: Option<Instant> = None;
        let mut wal_before: Option<u64> = None;
        while !self.control.stopped() {
            let Some(mut pause) = self.reason_to_wait(&mut gate, work, worker).await? else {
                break;
            };
            if let (Some(left), true) = (self.patience.left(), pause.cause.is_others()) {
                let here = for_others.get_or_insert_with(Instant::now).elapsed();
                let left = left.saturating_sub(here);
                if left.is_zero() {
                    let waited = self.patience.waited().saturating_add(here);
                    self.patience.give_up(&name, waited, &pause.text);
                    break;
                }
                pause.wait = pause.wait.min(left);
            }
            if pause.cause.is_others() && wal_before.is_none() {
                wal_before = Some(self.measuring.read(metrics::wal).await?);
            }
            tracing::debug!("{name}: {} waits: {}", work.name(), pause.text);
            let (since, reported) = match pausing {
                Some((cause, since, reported)) if cause == pause.cause => (since, reported),
                _ => {
                    gate.pauses.entry(pause.cause).or_default().0 += 1;
                    (Instant::now(), false)
                }
            };
            let reported = reported || gate.tell(&name, &pause, self.listener);
            self.listener.paused(Some(&pause));
            self.meter().record.has_waited(pause.cause);
            pausing = Some((pause.cause, since, reported));
            let slept = self.patience.sleep(pause.wait.min(POLL)).await;
            gate.pauses.entry(pause.cause).or_default().1 += slept;
        }
        if let Some(before) = wal_before {
            let now = self.measuring.read(metrics::wal).await?;
            self.meter().wal_of_others += now.saturating_sub(before);
        }
        // counts only as the continuation of a wait elsewhere
        if let Some(since) = for_others
            && !self.patience.waited().is_zero()
        {
            self.patience.add_wait(since.elapsed());
        }
        if let Some((_, since, reported)) = pausing {
            self.listener.paused(None);
            if reported && !self.control.stopped() && since.elapsed() >= WORTH_TELLING {
                let seconds = since.elapsed().as_secs_f64();
                self.listener.note(Some(&name), &format!("continuing after {seconds:.1} s"));
            }
        }
        Ok(())
    }

    async fn reason_to_wait(
        &self,
        gate: &mut Gate,
        work: WorkKind,
        worker: &Connection,
    ) -> Result<Option<Pause>> {
        if self.control.is_paused() {
            self.name_session(gate, worker, true).await?;
            let text = "paused by SIGUSR1; SIGUSR2 resumes".to_owned();
            let wait = Duration::from_millis(200);
            return Ok(Some(Pause { cause: Cause::Signal, text, wait }));
        }
        if work.stores() {
            let took = std::mem::take(&mut self.meter().not_slept_for);
            if let Some(not_slept_for) = gate.rules.nice(took) {
                return Ok(Some(not_slept_for));
            }
        }
        let mut slots_are_short = false;
        if work != WorkKind::Scan && self.watches_slots() {
            let lsn = self.measuring.read(metrics::wal).await?;
            slots_are_short = gate.rules.slots_at(lsn, &self.meter().readings, work);
        }
        let measured = self.meter().measured;
        let old = slots_are_short || measured.is_none_or(|then| then.elapsed() >= POLL);
        // always before a vacuum, which could be useless if rows are held back
        if old || work == WorkKind::Vacuum {
            self.measure().await?;
            self.name_session(gate, worker, false).await?;
        }
        Ok(gate.rules.judge(self.began.elapsed(), &self.meter().readings, work))
    }

    async fn measure(&self) -> Result<()> {
        let before = self.measuring.connection();
        let (oid, places) = {
            let meter = self.meter();
            let table = meter.table.as_ref();
            let places = table.map_or_else(Vec::new, |table| table.beginning.places.clone());
            (table.map(|table| table.oid), places)
        };
        let mut measured = self.measure_server(oid).await?;
        measured.readings.query = self.throttle_query().await?;
        measured.readings.free = space::free_in(&places);
        if self.options.dry_run {
            // a dry run does not wait for rewrites; it has reported the command at the start
            measured.readings.rewrite = None;
        }
        let mut meter = self.meter();
        if !Arc::ptr_eq(&before, &self.measuring.connection()) {
            let name = meter.table_name();
            let text = "the monitoring connection was lost and re-established";
            self.listener.note(Some(name), text);
        }
        meter.update(measured);
        if meter.table.is_none() {
            return Ok(());
        }
        self.listener.figures(&meter.figures);
        let grown = meter.growth();
        match self.options.disk_limit {
            Some(limit) if grown > limit => Err(RetoastError::end_run(format!(
                "the table with its TOAST relation and indexes has grown by {grown} bytes, more than --set \
                 disk-limit={limit}\n\
                 HINT:  Find out what holds back vacuum, then run the same command again to continue."
            ))),
            _ => Ok(()),
        }
    }

    /// Measures everything except free space and the throttle query, in one transaction.
    async fn measure_server(&self, table: Option<Oid>) -> Result<Measured> {
        let measures_lag = self.options.limits.replica_lag.is_some();
        let ours = self.measuring.own_processes();
        self.measuring
            .read(async |connection| {
                let replicas = async {
                    if measures_lag { metrics::replicas(connection).await } else { Ok(Vec::new()) }
                };
                let tables = Vec::from_iter(table);
                // these queries are sent together
                let (lsn, replicas, slots, active, holder, rewrites) = tokio::try_join!(
                    metrics::wal(connection),
                    replicas,
                    metrics::slots(connection),
                    metrics::active_sessions(connection, &ours),
                    holders::of_horizon(connection, &ours),
                    metrics::rewrites(connection, &tables),
                )?;
                let rewrite = rewrites.into_values().next().map(|rewrite| rewrite.text);
                let readings =
                    Readings { lsn, replicas, slots, holder, rewrite, ..Readings::default() };
                let mut sizes = None;
                if let Some(oid) = table {
                    // last, because an error ends the transaction
                    sizes = metrics::sizes_unless_locked(connection, oid).await?;
                }
                Ok(Measured { readings, active, sizes })
            })
            .await
    }

    /// The answer of the throttle query, if the user has set one.
    async fn throttle_query(&self) -> Result<Option<bool>> {
        let Some(sql) = &self.options.limits.throttle_query else { return Ok(None) };
        let asked = self.measuring.with_connection(async |connection: &Connection| {
            connection.reading_for_user(async || metrics::truth(connection, sql).await).await
        });
        match asked.await {
            Ok(answer) => Ok(Some(answer)),
            Err(RetoastError::Live(error)) => Err(RetoastError::end_run(format!(
                "throttle query {}: {error}",
                quote_literal(sql)
            ))),
            Err(other) => Err(other),
        }
    }

    /// Shows the progress in `pg_stat_activity`.
    async fn name_session(
        &self,
        gate: &mut Gate,
        worker: &Connection,
        paused: bool,
    ) -> LiveResult<()> {
        if gate.named.is_some_and(|then| then.elapsed() < NAME_EVERY) {
            return Ok(());
        }
        let name = {
            let meter = self.meter();
            let Some(table) = &meter.table else { return Ok(()) };
            session_name(&table.name, meter.percent, paused)
        };
        let sql = format!("SET application_name = {}", quote_literal(&name));
        worker.client().batch_execute(&sql).await?;
        gate.named = Some(Instant::now());
        Ok(())
    }

    /// Checks the free space for a table before anything is changed. If its growth and the WAL are not predicted, they
    /// are estimated from the table's size. Returns what was compared, or why
    /// nothing was; `None` without a limit.
    ///
    /// # Errors
    /// There is too little space, or it cannot be determined although the user has set a limit.
    pub(crate) async fn check_space(
        &self,
        ready: &PreparedTable,
        expected: Option<RunForecast>,
    ) -> Result<Option<String>> {
        let Some(limit) = self.options.limits.free_space else { return Ok(None) };
        let name = ready.relation.display_name();
        let oid = ready.relation.oid;
        let known = {
            let meter = self.meter();
            let table = meter.table.as_ref().filter(|table| table.oid == oid);
            table.map(|table| (meter.figures.before, table.beginning.clone()))
        };
        let (sizes, beginning) = match known {
            Some(known) => known,
            None => (self.read_sizes(oid).await?, self.read_beginning(oid).await?),
        };
        let needs = space::needs(&beginning.places);
        let max_wal_size = beginning.max_wal_size;
        if needs.is_empty() {
            if self.options.space_given && !self.options.dry_run {
                return refused_table(
                    &name,
                    format!(
                        "free space cannot be determined: {OUT_OF_SIGHT}\n\
                         HINT:  Use --set disk-limit=SIZE; toastctl help permissions lists what the user needs."
                    ),
                );
            }
            return Ok(Some(format!("not watching free space: {OUT_OF_SIGHT}")));
        }
        let parts = needs.iter().map(|need| need.place.parts).fold(0, u64::saturating_add);
        let wal = match expected {
            Some(expected) => expected.wal.all.high.min(max_wal_size),
            None => expected_wal(sizes, max_wal_size),
        };
        let mut all = Vec::new();
        for need in needs {
            // replaced chunks of pluggable toasters remain in addition to the new ones
            let leaked = if ready.pluggable { need.place.parts } else { 0 };
            let usual = self.options.max_bloat * 2.0;
            let part = expected.map_or(usual, |run| need.part(run.growth.all.high, parts));
            let growth = need.growth(part, wal).saturating_add(leaked);
            let shortage = format!(
                "{} are free {}; {} may grow by up to {} ({} are kept free)",
                size(need.free.bytes),
                need.free.place,
                need.what(),
                size(growth),
                size(limit)
            );
            if need.free.bytes < growth.saturating_add(limit) && !self.options.dry_run {
                let text = format!(
                    "not enough space: {shortage}\nHINT:  Free some space, or lower the limit with --set min-free-space=SIZE."
                );
                return refused_table(&name, text);
            }
            if need.free.bytes / AMPLE < growth.saturating_add(limit) {
                all.push(shortage);
            }
        }
        Ok((!all.is_empty()).then(|| all.join("; ")))
    }

    /// Why there is no room for a new copy of an index of this size, if there is none. The copy, its WAL and sorting
    /// may each take that many bytes.
    ///
    /// # Errors
    /// The free space cannot be measured.
    pub(crate) async fn no_room_for(&self, bytes: u64) -> Result<Option<String>> {
        let meter = self.meter();
        let Some(table) = &meter.table else { return Ok(None) };
        let need = bytes.saturating_mul(3);
        if let (Some(limit), Some(free)) =
            (self.options.limits.free_space, space::free_in(&table.beginning.places))
            && free.bytes < need.saturating_add(limit)
        {
            return Ok(Some(format!(
                "not enough space: {} are free {}; the new index, its WAL and sorting may take up to {} ({} are kept \
                 free: setting min-free-space)",
                size(free.bytes),
                free.place,
                size(need),
                size(limit)
            )));
        }
        let Some(limit) = self.options.disk_limit else { return Ok(None) };
        let now = meter.figures.now.sum().saturating_add(bytes);
        let grown = now.saturating_sub(meter.figures.before.sum());
        Ok((grown > limit).then(|| {
            format!("the new index takes {bytes} bytes, and the setting disk-limit is {limit} for the whole run")
        }))
    }

    async fn read_sizes(&self, table: Oid) -> Result<Sizes> {
        self.measuring.read(async |c| metrics::sizes(c, table).await).await
    }

    async fn measure_slots(&self) -> Result<Slots> {
        // a dry run writes nothing that could cost a slot: its last measurement, a moment ago, is enough
        if self.options.dry_run {
            return Ok(self.meter().readings.slots.clone());
        }
        let slots = self.measuring.read(metrics::slots).await?;
        self.meter().losses.note(&slots);
        Ok(slots)
    }

    /// An upper estimate of the WAL written for a table, when only its sizes are known. `values`: whether rows are
    /// updated. Index entries, or new indexes, are counted in any case.
    pub(crate) async fn expected_wal(&self, ready: &PreparedTable, values: bool) -> Result<u64> {
        let sizes = self.read_sizes(ready.relation.oid).await?;
        let rows = if values { written_for(sizes) } else { 0 };
        Ok(rows.saturating_add(sizes.indexes))
    }

    /// Warnings about slots, before `expected` bytes of WAL are written.
    pub(crate) async fn slot_warnings(&self, expected: u64) -> Result<Vec<String>> {
        Ok(self.measure_slots().await?.warnings(expected))
    }

    /// Whether any slot could be lost, according to the last measurement.
    pub(crate) fn watches_slots(&self) -> bool {
        self.meter().readings.slots.are_limited()
    }

    /// Why a running statement must be cancelled because a slot would soon be lost. `before` holds the result of the
    /// last measurement.
    pub(crate) async fn slots_against(&self, before: &mut Option<u64>) -> Result<Option<String>> {
        if !self.watches_slots() {
            return Ok(None);
        }
        Ok(self.measure_slots().await?.against_under_way(before))
    }

    /// The slots lost since the last call.
    pub(crate) async fn slots_lost(&self) -> Result<Vec<String>> {
        self.measure_slots().await?;
        Ok(self.meter().losses.take())
    }

    /// Waits until no command rewrites any of these tables. Call before locking them or querying their sizes. Returns the
    /// reason if it has waited as long as the user allows; a stop ends the wait too.
    ///
    /// # Errors
    /// The measurement failed.
    pub(crate) async fn wait_for_rewrites(&self, tables: &[Oid]) -> Result<Option<Message>> {
        let began = Instant::now();
        let mut waits = false;
        let gave_up = self
            .patience
            .wait_while(POLL, async |_| {
                let mut found =
                    self.measuring.read(async |c| metrics::rewrites(c, tables).await).await?;
                let first = tables.iter().find_map(|table| found.remove(table));
                if let Some(Rewrite { table, text }) = &first {
                    waits = true;
                    let pause = Pause { cause: Cause::Rewrite, text: text.clone(), wait: POLL };
                    self.gate.lock().await.tell(table, &pause, self.listener);
                }
                Ok(first)
            })
            .await?;
        if waits {
            let mut gate = self.gate.lock().await;
            let counted = gate.pauses.entry(Cause::Rewrite).or_default();
            counted.0 = counted.0.max(1);
            counted.1 += began.elapsed();
        }
        Ok(gave_up.map(|(Rewrite { table, text }, waited)| {
            Message::error(patience::gave_up(waited, &text)).about(table)
        }))
    }

    /// Reports who has locked a table so that it cannot be read, and returns that once it has lasted as long as the user
    /// allows. A table that is not locked is waited for without end.
    pub(crate) async fn locked_out(&self, table: Oid) -> Message {
        let began = Instant::now();
        let mut is_told = false;
        loop {
            let left = self.patience.limit().map(|most| most.saturating_sub(began.elapsed()));
            let left = left.filter(|left| !left.is_zero()).unwrap_or(POLL);
            tokio::time::sleep(left.min(POLL)).await;
            let ours = self.measuring.own_processes();
            let found = self.measuring.read(async |c| {
                let holder =
                    holders::of_table(c.client(), table, &ours, LocksCounted::BlockReaders).await?;
                let names = locks::names(c.client(), &[table]).await?;
                Ok(holder.map(|holder| (names.name(table), holder.text())))
            });
            let Ok(Some((name, who))) = found.await else { continue };
            let waited = began.elapsed();
            if self.patience.limit().is_some_and(|most| waited >= most) {
                return Message::error(patience::gave_up(waited, &who)).about(name);
            }
            if !is_told {
                self.listener.note(Some(&name), &format!("waiting: {who}"));
                is_told = true;
            }
        }
    }

    /// Whether a command was rewriting the table when this was last measured.
    pub(crate) fn sees_rewrite(&self) -> bool {
        self.meter().readings.rewrite.is_some()
    }
}

impl Gate {
    /// Reports the reason to wait, unless it was reported recently; returns whether it did.
    fn tell(&mut self, name: &str, pause: &Pause, listener: &dyn Listener) -> bool {
        let just = self
            .reported
            .is_some_and(|(cause, then)| cause == pause.cause && then.elapsed() < TELL_EVERY);
        if pause.cause == Cause::Nice || just {
            return false;
        }
        listener.note(Some(name), &format!("waiting: {}", pause.text));
        self.reported = Some((pause.cause, Instant::now()));
        true
    }
}

/// The maximum size of old row versions held back, in bytes, beyond which the sweep waits.
fn growth_limit(sizes: Sizes, max_bloat: f64) -> u64 {
    sizes.bytes_of(max_bloat).max(GROWTH_FLOOR)
}

/// How often the same reason to wait is reported.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(10);
/// Shorter pauses are counted but not reported.
const WORTH_TELLING: Duration = Duration::from_millis(500);

/// How often the session's name is updated.
const NAME_EVERY: Duration = Duration::from_secs(2);

/// A name like `toastctl retoast public.t 42 %`, truncated to the length that the server keeps.
fn session_name(table: &str, percent: u32, paused: bool) -> String {
    let end = if paused { " paused".to_owned() } else { format!(" {percent} %") };
    let room = LONGEST_NAME.saturating_sub(metrics::APPLICATION.len() + 1 + end.len());
    format!("{} {}{end}", metrics::APPLICATION, truncated(table, room))
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes of WAL written if all rows are updated.
fn written_for(sizes: Sizes) -> u64 {
    (sizes.heap + sizes.toast).saturating_mul(22) / 10
}

/// Bytes of WAL that occupy space at the same time, because checkpoints remove older WAL.
fn expected_wal(sizes: Sizes, max_wal_size: u64) -> u64 {
    written_for(sizes).min(max_wal_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_may_be_a_part_of_the_table_and_of_a_small_one_a_few_megabytes() {
        let sizes = |toast| Sizes { heap: 1000, toast, indexes: 1 << 40 };
        assert_eq!(growth_limit(sizes(8000), 0.05), GROWTH_FLOOR);
        assert_eq!(growth_limit(sizes((1 << 30) - 1000), 0.05), (1 << 30) / 20);
    }
}

#[cfg(test)]
mod measure_tests {
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
}

#[cfg(test)]
mod free_space_tests {
    use super::*;

    #[test]
    fn wal_is_kept_until_a_checkpoint() {
        let sizes = Sizes { heap: 1000, toast: 8000, indexes: 1 << 40 };
        assert_eq!(expected_wal(sizes, u64::MAX), 19_800);
        assert_eq!(expected_wal(sizes, 500), 500);
    }
}
