//! VACUUM while values are converted.

use std::time::{Duration, Instant};

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::pace::metrics;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::sql;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::machine::Extent;
use crate::retoast::task::guard::Reason;
use crate::retoast::task::vacuum::{AGAIN, PAUSE, Vacuumed};
use crate::server::LiveError;
use crate::server::sqlstate::is_damage;

/// How many times, and for how long each time, to wait for short queries because of which a vacuum would leave most
/// dead rows.
const SHORT_QUERIES: u32 = 6;
const SHORT_QUERY: Duration = Duration::from_millis(50);
/// A vacuum that leaves more than this fraction of what is removable has left most of it.
const MOST: f64 = 0.5;
/// The first version in which statistics are up to date at once.
const STATISTICS_AT_ONCE: i32 = 150_000;

/// What was vacuumed and how long that took, if anything was, and the number of vacuums.
type VacuumDone = (Option<(Extent, Duration)>, u64);

impl Conversion<'_> {
    /// Vacuums; returns what was vacuumed, how long that took, and the number of vacuums. It never waits long,
    /// because what is not done now is done later.
    ///
    /// A vacuum keeps row versions that a snapshot taken before it began may see. While a transaction that has
    /// written something is open in any database of the server, each snapshot is at least as old as that transaction,
    /// so that even a query of a millisecond can make a vacuum leave everything. In this case the vacuum is repeated.
    pub(super) async fn vacuum(&self, job: usize, extent: Extent, part: f64) -> Result<VacuumDone> {
        if self.unvacuumed.parts().is_whole() {
            match self.vacuum_whole(job, extent, part).await {
                Err(RetoastError::Live(LiveError::Server(error))) if is_damage(&error) => {}
                done => return done,
            }
        }
        let done = self.vacuum_apart(job, extent, part).await?;
        Ok((done, u64::from(done.is_some())))
    }

    async fn vacuum_whole(&self, job: usize, extent: Extent, part: f64) -> Result<VacuumDone> {
        let Some((extent, sql)) = self.vacuum_of(job, extent, part).await? else {
            return Ok((None, 0));
        };
        let mut done = None;
        let mut times = 0;
        for number in 0..=AGAIN {
            let dead = self.guard.session.throttle.still_dead();
            let removable = self.guard.session.throttle.removable();
            let at = self.guard.server_time(job).await?;
            let began = Instant::now();
            if self.guard.vacuum_by(job, &sql).await? != Vacuumed::Done {
                break;
            }
            (done, times) = (Some((extent, began.elapsed())), times + 1);
            let added = self.guard.session.throttle.still_dead().saturating_sub(dead);
            let most = (dead - removable + added) as f64 + removable as f64 * MOST;
            if !self.has_left(job, &at, most).await? {
                self.guard.session.throttle.vacuumed();
                break;
            }
            tracing::debug!("{}: VACUUM has left most dead rows in place", self.guard.name());
            if number == AGAIN || !self.guard.session.throttle.vacuums_again() {
                self.guard.session.throttle.vacuums_in_vain();
                break;
            }
            self.guard.session.sleep(PAUSE * 2u32.pow(number)).await;
            self.guard.session.pass(WorkKind::Vacuum, job).await?;
            if self.guard.session.stopped() || !self.guard.session.throttle.vacuum_pays() {
                break;
            }
        }
        Ok((done, times))
    }

    /// Counts the old row versions that the table has before the run and that somebody keeps from being removed, as if the
    /// run had left them: max-bloat limits what the files hold, also after several starts. A vacuum shows how many they
    /// are. Waits if they are too many.
    pub(super) async fn count_held(&self) -> Result<()> {
        let session = self.guard.session;
        let Some(holder) = session.throttle.horizon().await else { return Ok(()) };
        let known = self.guard.left_dead(0, "-infinity").await?;
        let Some(known) = known.filter(|known| session.throttle.nears_limit(known.part())) else {
            return Ok(());
        };
        tracing::debug!("{}: {:.3} may be dead before the run", self.guard.name(), known.part());
        session.pass(WorkKind::Vacuum, 0).await?;
        let Some((_, sql)) = self.vacuum_of(0, Extent::Table, known.part()).await? else {
            return Ok(());
        };
        let began = self.guard.server_time(0).await?;
        if session.stopped() || self.unless_damaged(0, &sql).await? != Ok(true) {
            return Ok(());
        }
        let of_toast = self.guard.ready.relation.toast.is_some();
        let Some(left) = self.guard.left_dead_soon(&began, of_toast).await? else {
            return Ok(());
        };
        session.throttle.count_held(holder.horizon, left.part());
        session.pass(WorkKind::Vacuum, 0).await
    }

    /// Whether a vacuum would remove enough dead rows, possibly after short queries that still see them have ended.
    /// Does not wait for these if that did not help the last time.
    pub(super) async fn vacuum_pays_soon(&self, job: usize) -> Result<bool> {
        for _ in 0..SHORT_QUERIES {
            if self.guard.session.throttle.vacuum_pays() {
                return Ok(true);
            }
            if self.guard.session.stopped() || !self.guard.session.throttle.vacuums_again() {
                return Ok(false);
            }
            self.guard.session.sleep(SHORT_QUERY).await;
            self.guard.session.pass(WorkKind::Vacuum, job).await?;
        }
        let pays = self.guard.session.throttle.vacuum_pays();
        if !pays {
            self.guard.session.throttle.vacuums_in_vain();
        }
        Ok(pays)
    }

    /// Whether a vacuum that began at this time has left more dead bytes than this, if the statistics are up to date
    /// at once.
    async fn has_left(&self, job: usize, began: &str, bytes: f64) -> Result<bool> {
        if self.guard.session.server.version_num < STATISTICS_AT_ONCE {
            return Ok(false);
        }
        Ok(self.guard.left_dead(job, began).await?.is_some_and(|left| left.dead > bytes))
    }

    /// Vacuums the table and its TOAST relation separately, because one of them or of their indexes is damaged. What
    /// cannot be vacuumed is reported once and not tried again.
    async fn vacuum_apart(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, Duration)>> {
        let mut done = None;
        let began = Instant::now();
        if self.unvacuumed.parts().toast.is_none()
            && let Some((Extent::Toast, sql)) = self.vacuum_of(job, Extent::Toast, part).await?
        {
            match self.unless_damaged(job, &sql).await? {
                Ok(true) => done = Some(Extent::Toast),
                Ok(false) => {}
                Err(why) => self.unvacuumed.parts().toast = Some(why),
            }
        }
        if extent == Extent::Table && self.unvacuumed.parts().table.is_none() {
            let sql = sql::vacuum::without_toast(&self.guard.ready.relation.quoted(), part);
            match self.unless_damaged(job, &sql).await? {
                Ok(true) => done = Some(Extent::Table),
                Ok(false) => {}
                Err(why) => self.unvacuumed.parts().table = Some(why),
            }
        }
        Ok(done.map(|extent| (extent, began.elapsed())))
    }

    /// Like [`Guard::vacuum_by`](crate::retoast::task::guard::Guard::vacuum_by), but returns the server's message if
    /// the vacuum has run into damage.
    async fn unless_damaged(&self, job: usize, sql: &str) -> Result<Result<bool, String>> {
        match self.guard.vacuum_by(job, sql).await {
            Err(RetoastError::Live(LiveError::Server(error))) if is_damage(&error) => {
                let why = Reason::from(&error).text;
                self.guard.note(&format!("not vacuumed: {why}"));
                Ok(Err(why))
            }
            done => Ok(Ok(done? == Vacuumed::Done)),
        }
    }

    /// The statement and what it vacuums: the whole table if this user cannot vacuum its TOAST relation alone; `None`
    /// if there is no TOAST relation to vacuum.
    pub(super) async fn vacuum_of(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, String)>> {
        let table = self.guard.ready.relation.quoted();
        let whole = (Extent::Table, sql::vacuum::table(&table, part));
        if extent == Extent::Table {
            return Ok(Some(whole));
        }
        let (names, may_be_named) = self.toast_relations(job).await?;
        let Some(names) = names else { return Ok(None) };
        Ok(Some(if may_be_named {
            (extent, sql::vacuum::toast(&names))
        } else if self.guard.session.server.version_num >= sql::vacuum::PROCESS_MAIN {
            (extent, sql::vacuum::toast_of(&table))
        } else {
            whole
        }))
    }

    /// The names of the table's TOAST relations, if it has any, and whether this user may name them in a command.
    async fn toast_relations(&self, job: usize) -> Result<(Option<String>, bool)> {
        if let Some(known) = self.guard.ahead {
            return Ok(known.toast.clone());
        }
        let connection = self.guard.session.connection(job);
        let table = self.guard.ready.relation.oid;
        let mut names = metrics::toast_names(connection, &[table]).await?;
        Ok(names.remove(&table).unwrap_or_default())
    }
}
