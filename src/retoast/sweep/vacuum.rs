//! VACUUM on the way.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::error::RunError;
use super::machine::Extent;
use super::refused::Reason;
use super::table::Sweep;
use crate::retoast::pace::manners::Work;
use crate::retoast::pace::stuck::{Advice, LOOK_EVERY, Stuck};
use crate::retoast::sql;
use crate::retoast::sql::compact::{NOW, left_dead};
use crate::server::LiveError;
use crate::server::sqlstate::{ErrorKind, is_damage};

/// How often it is vacuumed again if most is left after all, and how long before the first time.
pub(in crate::retoast) const AGAIN: u32 = 4;
pub(in crate::retoast) const PAUSE: Duration = Duration::from_millis(200);
/// How often, and how long each time, queries are waited for that would make a vacuum leave most.
const SHORT_QUERIES: u32 = 6;
const SHORT_QUERY: Duration = Duration::from_millis(50);
/// The part of what could be removed that is most of it.
const MOST: f64 = 0.5;
/// How often it is looked where slots may be lost.
const LOOK_AT_SLOTS_EVERY: Duration = Duration::from_millis(250);
/// The first version whose statistics are there at once.
const STATISTICS_AT_ONCE: i32 = 150_000;

/// How a vacuum ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::retoast) enum Vacuumed {
    /// It was done.
    Done,
    /// It was not: something is locked, or a stop was asked for.
    Not,
    /// It was cancelled for a replication slot.
    ForSlot,
}

/// What the statistics say that a vacuum has left.
pub(in crate::retoast) struct LeftDead {
    /// Of how many relations they tell.
    pub(in crate::retoast) relations: i64,
    /// Bytes of row versions that are dead, and all bytes.
    pub(in crate::retoast) dead: f64,
    pub(in crate::retoast) all: f64,
}

impl Sweep<'_> {
    /// What was vacuumed, how long that took, and how often it was tried. It never waits long: what is not done now is
    /// done later.
    ///
    /// A vacuum keeps what a snapshot may see that was taken before it began. While a transaction that writes is open
    /// in any database of the server, each snapshot is as old as that, so that a query of a millisecond is enough for a
    /// vacuum to leave everything: then it is done again.
    pub(super) async fn vacuum(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<(Option<(Extent, Duration)>, u64), RunError> {
        if self.unvacuumed.parts().is_whole() {
            match self.vacuum_whole(job, extent, part).await {
                Err(RunError::Live(LiveError::Server(error))) if is_damage(&error) => {}
                done => return done,
            }
        }
        let done = self.vacuum_apart(job, extent, part).await?;
        Ok((done, u64::from(done.is_some())))
    }

    async fn vacuum_whole(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<(Option<(Extent, Duration)>, u64), RunError> {
        let Some((extent, sql)) = self.vacuum_of(job, extent, part).await? else {
            return Ok((None, 0));
        };
        let (mut done, mut times) = (None, 0);
        for number in 0..=AGAIN {
            let (dead, removable) = (self.keeper.still_dead(), self.keeper.removable());
            let at = self.server_time(job).await?;
            let began = Instant::now();
            if self.vacuum_by(job, &sql).await? != Vacuumed::Done {
                break;
            }
            (done, times) = (Some((extent, began.elapsed())), times + 1);
            let added = self.keeper.still_dead().saturating_sub(dead);
            let most = (dead - removable + added) as f64 + removable as f64 * MOST;
            if !self.has_left(job, &at, most).await? {
                self.keeper.vacuumed();
                break;
            }
            tracing::debug!("{}: the vacuum has left most of what is dead", self.name());
            if number == AGAIN || !self.keeper.vacuums_again() {
                self.keeper.vacuums_in_vain();
                break;
            }
            self.sleep(PAUSE * 2u32.pow(number)).await;
            self.keeper.pass(Work::Vacuum, self.connection(job), self.watch).await?;
            if self.stopped() || !self.keeper.vacuum_pays() {
                break;
            }
        }
        Ok((done, times))
    }

    /// Whether a vacuum would remove enough of what is dead, be it when short queries have ended that see it. Where that
    /// was waited for in vain the last time, it is not waited for.
    pub(super) async fn vacuum_pays_soon(&self, job: usize) -> Result<bool, RunError> {
        for _ in 0..SHORT_QUERIES {
            if self.keeper.vacuum_pays() {
                return Ok(true);
            }
            if self.stopped() || !self.keeper.vacuums_again() {
                return Ok(false);
            }
            self.sleep(SHORT_QUERY).await;
            self.keeper.pass(Work::Vacuum, self.connection(job), self.watch).await?;
        }
        let pays = self.keeper.vacuum_pays();
        if !pays {
            self.keeper.vacuums_in_vain();
        }
        Ok(pays)
    }

    /// Whether a vacuum that began then has left more than so many bytes, as far as the statistics tell at once.
    async fn has_left(&self, job: usize, began: &str, bytes: f64) -> Result<bool, RunError> {
        if self.server.version_num < STATISTICS_AT_ONCE {
            return Ok(false);
        }
        Ok(self.left_dead(job, began).await?.is_some_and(|left| left.dead > bytes))
    }

    /// The server's time, as text.
    pub(in crate::retoast) async fn server_time(&self, job: usize) -> Result<String, RunError> {
        let rows = self.connection(job).client().query_typed(NOW, &[]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    /// What a vacuum that began then has left, by the server's statistics.
    pub(in crate::retoast) async fn left_dead(
        &self,
        job: usize,
        began: &str,
    ) -> Result<Option<LeftDead>, RunError> {
        let parameters = [(&self.ready.relation.oid.0 as _, Type::OID), (&began as _, Type::TEXT)];
        let client = self.connection(job).client();
        let rows = client.query_typed(&left_dead(), &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (relations, dead, all) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Some(LeftDead { relations, dead, all }))
    }

    /// Vacuums the table and its TOAST relation one by one, since one of them or of their indexes is damaged: what
    /// cannot be vacuumed is told once, and not tried again.
    async fn vacuum_apart(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, Duration)>, RunError> {
        let (mut done, began) = (None, Instant::now());
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
            let sql = sql::vacuum::without_toast(&self.ready.relation.quoted(), part);
            match self.unless_damaged(job, &sql).await? {
                Ok(true) => done = Some(Extent::Table),
                Ok(false) => {}
                Err(why) => self.unvacuumed.parts().table = Some(why),
            }
        }
        Ok(done.map(|extent| (extent, began.elapsed())))
    }

    /// As [`Sweep::vacuum_by`], or what the server says of damage that it has met.
    async fn unless_damaged(
        &self,
        job: usize,
        sql: &str,
    ) -> Result<Result<bool, String>, RunError> {
        match self.vacuum_by(job, sql).await {
            Err(RunError::Live(LiveError::Server(error))) if is_damage(&error) => {
                let why = Reason::of(&error).text;
                self.watch.note(&format!("{}: not vacuumed: {why}", self.name()));
                Ok(Err(why))
            }
            done => Ok(Ok(done? == Vacuumed::Done)),
        }
    }

    /// The statement, and what it vacuums: the table where its TOAST relation alone is out of this user's reach;
    /// `None` if there is none.
    pub(super) async fn vacuum_of(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, String)>, RunError> {
        let table = self.ready.relation.quoted();
        let whole = (Extent::Table, sql::vacuum::table(&table, part));
        if extent == Extent::Table {
            return Ok(Some(whole));
        }
        let (names, may_be_named) = self.toast_relations(job).await?;
        let Some(names) = names else { return Ok(None) };
        Ok(Some(if may_be_named {
            (extent, sql::vacuum::toast(&names))
        } else if self.server.version_num >= sql::vacuum::PROCESS_MAIN {
            (extent, sql::vacuum::toast_of(&table))
        } else {
            whole
        }))
    }

    /// The names of the table's TOAST relations, if it has any, and whether this user may use them.
    async fn toast_relations(&self, job: usize) -> Result<(Option<String>, bool), RunError> {
        let parameters = [(&self.ready.relation.oid.0 as _, Type::OID)];
        let client = self.connection(job).client();
        let rows = client.query_typed(&sql::vacuum::names(), &parameters).await?;
        let Some(row) = rows.first() else { return Ok((None, false)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Vacuums by this statement.
    pub(in crate::retoast) async fn vacuum_by(
        &self,
        job: usize,
        sql: &str,
    ) -> Result<Vacuumed, RunError> {
        let connection = self.connection(job);
        let canceller = connection.canceller();
        let client = connection.client();
        let pid = connection.process().await?;
        let mut work = std::pin::pin!(client.batch_execute(sql));
        let began = Instant::now();
        let (mut stuck, mut cancelled) = (Stuck::default(), false);
        let (mut slots, mut for_slot) = (None, false);
        let mut failed: Option<RunError> = None;
        let every = match self.keeper.watches_slots() {
            true => LOOK_AT_SLOTS_EVERY,
            false => LOOK_EVERY,
        };
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = self.stop.cancelled(), if !cancelled => {}
                () = tokio::time::sleep(every), if !cancelled => {
                    let look = async {
                        if let Some(why) = self.keeper.slots_against(&mut slots).await? {
                            self.watch.note(&format!("{}: no vacuum now: {why}", self.name()));
                            return Ok(Some(true));
                        }
                        let ends = self.give_up(pid, began.elapsed(), &mut stuck).await?;
                        Ok(ends.then_some(false))
                    };
                    match look.await {
                        Ok(None) => continue,
                        Ok(Some(slot)) => for_slot = slot,
                        // unwatched it would go on for as long as it likes
                        Err(error) => failed = Some(error),
                    }
                }
            }
            cancelled = true;
            // it may have ended by itself
            let _ = canceller.cancel().await;
        };
        if let Some(error) = failed {
            return Err(error);
        }
        match done {
            Ok(()) => Ok(Vacuumed::Done),
            Err(error) if cancelled && error.as_db_error().is_some() => {
                Ok(if for_slot { Vacuumed::ForSlot } else { Vacuumed::Not })
            }
            Err(error) if ErrorKind::of(&error) == ErrorKind::Busy => {
                self.watch.note(&format!("{}: no vacuum now: it is locked", self.name()));
                Ok(Vacuumed::Not)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at what the vacuum of process `pid` waits for. Another session's open cursor may hold a page
    /// for ever, and a server may have lost a pin.
    async fn give_up(&self, pid: i32, now: Duration, stuck: &mut Stuck) -> Result<bool, RunError> {
        let wait = self.keeper.wait_of(pid).await?;
        let advice = stuck.seen(wait.is_some(), now, self.keeper.limits().wait);
        let Some(wait) = wait else { return Ok(false) };
        match advice {
            Advice::Wait => {}
            Advice::Tell => {
                self.watch.note(&format!("{}: waiting: vacuum: {}", self.name(), wait.text()));
            }
            Advice::GiveUp => {
                self.watch.note(&format!(
                    "{}: no vacuum now, its rows stay dead: {}",
                    self.name(),
                    wait.text()
                ));
                return Ok(true);
            }
        }
        Ok(false)
    }
}
