//! Keeps the sweep's manners: measures on a connection of its own before each piece of work, waits
//! while something stands against it, and counts the waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Plain};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::control::Control;
use super::error::PaceError;
use super::garbage::Garbage;
use super::gauges;
use super::manners::{Cause, Holder, Lag, Limits, Manners, Readings};
use super::measuring::{Measuring, OwnProcesses};
use super::slots::{Losses, Slots};
use super::space::Place;
use super::stuck::{self, Wait};
use crate::model::sql::quote_literal;
use crate::retoast::check::ready::PreparedTable;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::listener::Figures;
use crate::retoast::plan::Sizes;
use crate::retoast::result::PauseReport;
use crate::server::connect::Connection;

mod free_space;
mod measure;
mod rewrite;
mod slots;
mod wait;

/// How long others are remembered that were seen active: most sessions are not at any one instant.
const OTHERS_FOR: Duration = Duration::from_secs(10);
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
    /// Where the table and the WAL grow, if that is seen.
    places: Vec<Place>,
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
    /// Replication slots, as measured last, and which are lost since the beginning.
    slots: Plain<(Slots, Losses)>,
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
    /// A command of others that writes the table anew, as measured last; in a dry run when it began.
    rewrite: Option<String>,
    /// Why waiting was given up.
    gave_up: Option<String>,
    /// How long others were waited for since something was done.
    waited: Duration,
    /// Whether the last vacuum was repeated or put off, and has left most or would have all the same.
    vacuums_in_vain: bool,
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
            if wants.lag_given && limits.replica_lag.is_some() {
                return Err(Refusal::Refused(format!(
                    "this user may not see how far replicas are, which --max-replica-lag needs\n{hint}"
                )));
            }
            if limits.replica_lag.take().is_some() {
                note("replicas are not waited for: this user may not see how far they are");
            }
        }
        if let Some(sql) = &limits.throttle_query {
            let asked =
                connection.reading_for_user(async || gauges::truth(&connection, sql).await).await;
            asked.map_err(|error| {
                Refusal::Refused(format!("throttle query {}: {error}", quote_literal(sql)))
            })?;
        }
        let slots = connection.reading(async || gauges::slots(&connection).await).await?;
        let manners = Manners::new(limits.clone());
        let keeper = Keeper {
            measuring: Measuring::new(connection, Arc::clone(&control), ours),
            control,
            wants,
            sees_others,
            began: Instant::now(),
            state: Mutex::new(State {
                manners,
                readings: Readings::default(),
                measured: None,
                places: Vec::new(),
                table: None,
                pauses: BTreeMap::new(),
                told: None,
                named: None,
            }),
            noted: Plain::default(),
            slots: Plain::default(),
        };
        keeper.note_slots(&slots);
        Ok(keeper)
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.wants.limits
    }

    /// Begins with a table.
    ///
    /// # Errors
    /// The server's.
    pub async fn begin(&self, ready: &PreparedTable, before: Sizes) -> Result<(), PaceError> {
        let mut state = self.state.lock().await;
        state.places = self.places(ready).await?;
        state.measured = None;
        state.table = Some(Table {
            name: ready.relation.display_name(),
            oid: ready.relation.oid,
            wal: self.measuring.read(gauges::wal).await?,
            figures: Figures { before, now: before, ..Figures::default() },
            growth_limit: growth_limit(before, self.wants.max_bloat),
        });
        let rewrite = match self.wants.dry_run {
            // it waits for nobody
            true => {
                let oid = ready.relation.oid;
                let ask = async |connection: &_| gauges::rewrite(connection, oid).await;
                self.measuring.read(ask).await?.map(|rewrite| rewrite.text)
            }
            false => None,
        };
        self.noted(|noted| *noted = Noted { sizes: before, rewrite, ..Noted::default() });
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

    /// A process that a server process of ours keeps waiting.
    pub(crate) async fn kept_waiting(&self, pid: i32) -> Result<Option<i32>, PaceError> {
        let ask = async |c: &Connection| stuck::kept_waiting(c.client(), pid).await;
        self.measuring.read(ask).await
    }

    /// Whether a process waits for the transaction of a server process of ours to end.
    pub(crate) async fn is_waited_for(&self, pid: i32) -> Result<bool, PaceError> {
        let ask = async |c: &Connection| stuck::is_waited_for(c.client(), pid).await;
        self.measuring.read(ask).await
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
            noted.vacuums_in_vain = false;
        });
    }

    /// A vacuum was done again and again, or put off, and has left most of what it could have removed.
    pub fn vacuums_in_vain(&self) {
        self.noted(|noted| noted.vacuums_in_vain = true);
    }

    /// Whether a vacuum that has left most is worth doing again, or waiting for.
    pub fn vacuums_again(&self) -> bool {
        let mut again = true;
        self.noted(|noted| again = !noted.vacuums_in_vain);
        again
    }

    /// Bytes of old row versions that nobody is known to hold back.
    pub fn removable(&self) -> u64 {
        let mut bytes = 0;
        self.noted(|noted| {
            bytes = noted.garbage.total() - noted.garbage.held(noted.horizon());
        });
        bytes
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
            if let (Some(rewrite), true) = (&noted.rewrite, self.wants.dry_run) {
                notes.push(format!("{rewrite}: a run would wait for its end"));
            }
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
}

impl State {
    fn table_name(&self) -> &str {
        self.table.as_ref().map_or("", |table| &table.name)
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
