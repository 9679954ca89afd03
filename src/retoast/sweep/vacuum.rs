//! VACUUM on the way.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::error::RunError;
use super::machine::Extent;
use super::refused::Reason;
use super::table::Sweep;
use crate::retoast::pace::lock_tries::{Kind, is_damage, kind};
use crate::retoast::pace::stuck::{Advice, LOOK_EVERY, Stuck};
use crate::retoast::sql;
use crate::server::LiveError;

impl Sweep<'_> {
    /// What was vacuumed, and how long that took. It never waits long: what is not done now is done later.
    pub(super) async fn vacuum(
        &self,
        job: usize,
        extent: Extent,
        part: f64,
    ) -> Result<Option<(Extent, Duration)>, RunError> {
        if self.unvacuumed.parts().is_whole() {
            let Some((extent, sql)) = self.vacuum_of(job, extent, part).await? else {
                return Ok(None);
            };
            let began = Instant::now();
            match self.vacuum_by(job, &sql).await {
                Err(RunError::Live(LiveError::Server(error))) if is_damage(&error) => {}
                done => return Ok(done?.then(|| (extent, began.elapsed()))),
            }
        }
        self.vacuum_apart(job, extent, part).await
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
                let why = Reason::of(&error, false).text;
                self.watch.note(&format!("{}: not vacuumed: {why}", self.name()));
                Ok(Err(why))
            }
            done => Ok(Ok(done?)),
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

    /// Vacuums by this statement; whether that was done.
    pub(in crate::retoast) async fn vacuum_by(
        &self,
        job: usize,
        sql: &str,
    ) -> Result<bool, RunError> {
        let connection = self.connection(job);
        let canceller = connection.canceller();
        let client = connection.client();
        let pid = connection.process().await?;
        let mut work = std::pin::pin!(client.batch_execute(sql));
        let began = Instant::now();
        let (mut stuck, mut cancelled) = (Stuck::default(), false);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = self.stop.cancelled(), if !cancelled => {}
                () = tokio::time::sleep(LOOK_EVERY), if !cancelled => {
                    if !self.give_up(pid, began.elapsed(), &mut stuck).await? {
                        continue;
                    }
                }
            }
            cancelled = true;
            // it may have ended by itself
            let _ = canceller.cancel().await;
        };
        match done {
            Ok(()) => Ok(true),
            Err(error) if cancelled && error.as_db_error().is_some() => Ok(false),
            Err(error) if kind(&error) == Kind::Busy => {
                self.watch.note(&format!("{}: no vacuum now: it is locked", self.name()));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at what the vacuum of process `pid` waits for. Another session's open cursor may hold a page
    /// for ever, and a server may have lost a pin.
    async fn give_up(&self, pid: i32, now: Duration, stuck: &mut Stuck) -> Result<bool, RunError> {
        let wait = self.keeper.wait_of(pid).await?;
        let advice = stuck.seen(wait.is_some(), now);
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
