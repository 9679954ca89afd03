//! VACUUM during a task.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::listener::Wait;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::result::Common;
use crate::retoast::sql::compact::{NOW, Vacuum, left_dead};
use crate::retoast::task::guard::Guard;
use crate::retoast::task::watched::{GaveUp, StatementKind};

/// How often VACUUM is repeated if it has left most dead rows, and the wait before the first repetition.
pub(crate) const AGAIN: u32 = 4;
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// How often to look, before a VACUUM, whether snapshots still see the old versions of moved rows, and the interval.
const SNAPSHOTS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often to query the statistics about what a VACUUM has left: before PostgreSQL 15 they are updated late.
const ASKED: u32 = 12;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The fraction of the moved bytes that counts as most of them; of all bytes, if none were moved.
const MOST: f64 = 0.25;
const MOST_OF_ALL: f64 = 0.05;

/// How a vacuum ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vacuumed {
    Done,
    /// Something is locked, or a stop was requested.
    Not,
    /// It was cancelled because of a replication slot.
    ForSlot,
}

/// What a VACUUM has left, by the statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftDead {
    /// The number of relations that have statistics.
    pub(crate) relations: i64,
    /// Bytes of dead row versions, and all bytes.
    pub(crate) dead: f64,
    pub(crate) all: f64,
}

impl LeftDead {
    /// The part of all bytes that is dead.
    pub(crate) fn part(self) -> f64 {
        self.dead / self.all.max(1.0)
    }
}

/// The parts of a table that the server cannot vacuum, with its messages.
#[derive(Debug, Default)]
pub struct Unvacuumed(Mutex<Parts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Why the table with its indexes cannot be vacuumed.
    pub(crate) table: Option<String>,
    /// Why its TOAST relation cannot be vacuumed.
    pub(crate) toast: Option<String>,
}

impl Parts {
    /// Whether no obstacle is known.
    pub(crate) fn is_whole(&self) -> bool {
        *self == Parts::default()
    }
}

impl Unvacuumed {
    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock()
    }

    /// The messages for the user.
    pub(crate) fn messages(&self) -> Vec<String> {
        let Parts { table, toast } = &*self.parts();
        let mut messages = Vec::new();
        for (what, why) in [("the table", table), ("its TOAST relation", toast)] {
            if let Some(why) = why {
                messages.push(format!("VACUUM of {what} is not possible: {why}"));
            }
        }
        messages
    }
}

impl Guard<'_> {
    /// Runs this VACUUM. It never waits long: what cannot be vacuumed now is vacuumed later.
    pub(crate) async fn vacuum_by(&self, job: usize, sql: &str) -> Result<Vacuumed> {
        let connection = self.session.connection(job);
        let patience = StatementKind::Vacuum;
        let (ended, why) = match self.run_watched(connection, sql, patience).await {
            Ok(Ok(())) => return Ok(Vacuumed::Done),
            Ok(Err(GaveUp::Stopped)) => return Ok(Vacuumed::Not),
            Ok(Err(GaveUp::Slot(why))) => (Vacuumed::ForSlot, format!("no VACUUM now: {why}")),
            Ok(Err(why)) => {
                (Vacuumed::Not, format!("no VACUUM now, dead rows remain: {}", why.text()))
            }
            Err(RetoastError::Live(error)) if error.is_busy() => {
                let holder = self.session.throttle.lock_holder(self.ready.relation.oid).await;
                let who = holder.unwrap_or_else(|| "it is locked".to_owned());
                (Vacuumed::Not, format!("no VACUUM now: {who}"))
            }
            Err(error) => return Err(error),
        };
        self.note(&why);
        Ok(ended)
    }

    /// The server's time, as text.
    pub(crate) async fn server_time(&self, job: usize) -> Result<String> {
        Ok(self.session.connection(job).client().value(NOW, &[]).await?.unwrap_or_default())
    }

    /// What a VACUUM that began at `began` has left, by the statistics.
    pub(crate) async fn left_dead(&self, job: usize, began: &str) -> Result<Option<LeftDead>> {
        let parameters = [(&self.ready.relation.oid.0 as _, Type::OID), (&began as _, Type::TEXT)];
        let connection = self.session.connection(job);
        let rows = connection.query_again(&left_dead(), &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let relations = row.try_get(0)?;
        let dead = row.try_get(1)?;
        let all = row.try_get(2)?;
        Ok(Some(LeftDead { relations, dead, all }))
    }

    /// Runs VACUUM, unless the table is locked, and repeats it if most dead rows were left, as during a conversion.
    pub(crate) async fn vacuum_now(&self, vacuum: Vacuum, report: &mut Common) -> Result<()> {
        let sql = vacuum.statement(&self.ready.relation.quoted());
        let mut number = 0;
        loop {
            let Some(pays) = self.wait_for_snapshots().await? else { return Ok(()) };
            report.is_larger(self.session.throttle.sizes());
            let began = self.server_time(0).await?;
            match self.vacuum_by(0, &sql).await? {
                Vacuumed::Done => report.effort.vacuums += 1,
                Vacuumed::Not => return Ok(()),
                // What it has done so far is kept.
                Vacuumed::ForSlot => continue,
            }
            // If a VACUUM did not pay, the session that holds back its horizon is known and was waited for.
            if !pays || !self.has_left_most(&began, vacuum).await? {
                break;
            }
            tracing::debug!("{}: VACUUM has left most dead rows in place", self.name());
            if number == AGAIN {
                return Ok(());
            }
            self.wait(PAUSE * 2u32.pow(number), Wait::OldVersions).await;
            number += 1;
        }
        self.session.throttle.vacuumed();
        Ok(())
    }

    /// Whether a VACUUM is worthwhile now; `None` once a stop is requested.
    async fn wait_for_snapshots(&self) -> Result<Option<bool>> {
        for number in 0..=SNAPSHOTS {
            self.session.pass(WorkKind::Vacuum, 0).await?;
            if self.session.stopped() {
                return Ok(None);
            }
            if self.session.throttle.vacuum_pays() {
                return Ok(Some(true));
            }
            if number == 0 {
                self.note(&format!("waiting: {}", self.named(Wait::OldVersions).await));
            }
            self.wait(LOOK_EVERY, Wait::OldVersions).await;
        }
        Ok(Some(false))
    }

    /// Whether a VACUUM that began at `began` has left most of its dead rows, by the statistics; false if they are not
    /// available.
    async fn has_left_most(&self, began: &str, vacuum: Vacuum) -> Result<bool> {
        let of_toast = self.ready.relation.toast.is_some() && vacuum != Vacuum::Rows;
        let Some(left) = self.left_dead_soon(began, of_toast).await? else { return Ok(false) };
        let moved = self.session.throttle.still_dead() as f64;
        let most = if moved > 0.0 { moved * MOST } else { left.all * MOST_OF_ALL };
        Ok(left.dead > most)
    }

    /// What a VACUUM that began at `began` has left, once the statistics have it; `None` if they do not get it soon.
    pub(crate) async fn left_dead_soon(
        &self,
        began: &str,
        of_toast: bool,
    ) -> Result<Option<LeftDead>> {
        for _ in 0..ASKED {
            let Some(left) = self.left_dead(0, began).await? else { break };
            if left.relations > i64::from(of_toast) {
                return Ok(Some(left));
            }
            self.session.sleep(ASK_EVERY).await;
        }
        Ok(None)
    }
}
