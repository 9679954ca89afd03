//! VACUUM while values are converted.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use crate::retoast::error::RetoastError;
use crate::retoast::pace::rules::Load;
use crate::retoast::sql;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::machine::Extent;
use crate::retoast::task::guard::Reason;
use crate::retoast::task::vacuum::{AGAIN, PAUSE, Vacuumed};
use crate::server::LiveError;
use crate::server::sqlstate::is_damage;

/// How often, and how long each time, queries are waited for that would make a vacuum leave most.
const SHORT_QUERIES: u32 = 6;
const SHORT_QUERY: Duration = Duration::from_millis(50);
/// The part of what could be removed that is most of it.
const MOST: f64 = 0.5;
/// The first version whose statistics are there at once.
const STATISTICS_AT_ONCE: i32 = 150_000;

impl Conversion<'_> {
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
    ) -> Result<(Option<(Extent, Duration)>, u64), RetoastError> {
        if self.unvacuumed.parts().is_whole() {
            match self.vacuum_whole(job, extent, part).await {
                Err(RetoastError::Live(LiveError::Server(error))) if is_damage(&error) => {}
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
    ) -> Result<(Option<(Extent, Duration)>, u64), RetoastError> {
        let Some((extent, sql)) = self.vacuum_of(job, extent, part).await? else {
            return Ok((None, 0));
        };
        let (mut done, mut times) = (None, 0);
        for number in 0..=AGAIN {
            let (dead, removable) =
                (self.guard.session.throttle.still_dead(), self.guard.session.throttle.removable());
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
            self.guard.session.pass(Load::Vacuum, job).await?;
            if self.guard.session.stopped() || !self.guard.session.throttle.vacuum_pays() {
                break;
            }
        }
        Ok((done, times))
    }

    /// Whether a vacuum would remove enough of what is dead, be it when short queries have ended that see it. Where that
    /// was waited for in vain the last time, it is not waited for.
    pub(super) async fn vacuum_pays_soon(&self, job: usize) -> Result<bool, RetoastError> {
        for _ in 0..SHORT_QUERIES {
            if self.guard.session.throttle.vacuum_pays() {
                return Ok(true);
            }
            if self.guard.session.stopped() || !self.guard.session.throttle.vacuums_again() {
                return Ok(false);
            }
            self.guard.session.sleep(SHORT_QUERY).await;
            self.guard.session.pass(Load::Vacuum, job).await?;
        }
        let pays = self.guard.session.throttle.vacuum_pays();
        if !pays {
            self.guard.session.throttle.vacuums_in_vain();
        }
        Ok(pays)
    }

    /// Whether a vacuum that began then has left more than so many bytes, as far as the statistics tell at once.
    async fn has_left(&self, job: usize, began: &str, bytes: f64) -> Result<bool, RetoastError> {
        if self.guard.session.server.version_num < STATISTICS_AT_ONCE {
            return Ok(false);
        }
        Ok(self.guard.left_dead(job, began).await?.is_some_and(|left| left.dead > bytes))
    }

    /// Vacuums the table and its TOAST relation one by one, since one of them or of their indexes is damaged: what
    /// cannot be vacuumed is told once, and not tried again.
    async fn vacuum_apart(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, Duration)>, RetoastError> {
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
            let sql = sql::vacuum::without_toast(&self.guard.ready.relation.quoted(), part);
            match self.unless_damaged(job, &sql).await? {
                Ok(true) => done = Some(Extent::Table),
                Ok(false) => {}
                Err(why) => self.unvacuumed.parts().table = Some(why),
            }
        }
        Ok(done.map(|extent| (extent, began.elapsed())))
    }

    /// As [`Guard::vacuum_by`](crate::retoast::task::guard::Guard::vacuum_by), or what the server says of damage that it has met.
    async fn unless_damaged(
        &self,
        job: usize,
        sql: &str,
    ) -> Result<Result<bool, String>, RetoastError> {
        match self.guard.vacuum_by(job, sql).await {
            Err(RetoastError::Live(LiveError::Server(error))) if is_damage(&error) => {
                let why = Reason::of(&error).text;
                self.guard.note(&format!("not vacuumed: {why}"));
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
    ) -> Result<Option<(Extent, String)>, RetoastError> {
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

    /// The names of the table's TOAST relations, if it has any, and whether this user may use them.
    async fn toast_relations(&self, job: usize) -> Result<(Option<String>, bool), RetoastError> {
        let parameters = [(&self.guard.ready.relation.oid.0 as _, Type::OID)];
        let connection = self.guard.session.connection(job);
        let rows = connection.query_again(&sql::vacuum::names(), &parameters).await?;
        let Some(row) = rows.first() else { return Ok((None, false)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}
