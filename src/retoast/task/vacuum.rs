//! VACUUM on the way.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::retoast::error::RetoastError;
use crate::retoast::listener::Wait;
use crate::retoast::pace::rules::Load;
use crate::retoast::result::Common;
use crate::retoast::sql::compact::{NOW, Vacuum, left_dead};
use crate::retoast::task::guard::Guard;
use crate::retoast::task::watched::{GaveUp, Patience};
use crate::server::LiveError;
use crate::server::sqlstate::ErrorKind;

/// How often it is vacuumed again if most is left after all, and how long before the first time.
pub(crate) const AGAIN: u32 = 4;
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// How long snapshots that see what was moved are waited for before a vacuum, and how often it is looked.
const SNAPSHOTS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the server's statistics are asked for what a vacuum has left: before PostgreSQL 15 they come late.
const ASKED: u32 = 12;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// So large a part of what was moved is most of it; of all bytes, if nothing was.
const MOST: f64 = 0.25;
const MOST_OF_ALL: f64 = 0.05;

/// How a vacuum ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vacuumed {
    Done,
    /// Something is locked, or a stop was asked for.
    Not,
    /// It was cancelled for a replication slot.
    ForSlot,
}

/// What the statistics say that a vacuum has left.
pub(crate) struct LeftDead {
    /// Of how many relations they tell.
    pub(crate) relations: i64,
    /// Bytes of row versions that are dead, and all bytes.
    pub(crate) dead: f64,
    pub(crate) all: f64,
}

/// The parts of a table, with what the server says of those that it cannot vacuum.
#[derive(Debug, Default)]
pub struct Unvacuumed(Mutex<Parts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Why the table with its indexes cannot be vacuumed.
    pub(crate) table: Option<String>,
    /// Why its TOAST relation cannot be.
    pub(crate) toast: Option<String>,
}

impl Parts {
    /// Whether nothing is known to be in the way.
    pub(crate) fn is_whole(&self) -> bool {
        *self == Parts::default()
    }
}

impl Unvacuumed {
    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        // what stands there is only ever set whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be said of them.
    pub(crate) fn messages(&self) -> Vec<String> {
        let Parts { table, toast } = &*self.parts();
        let of = |what: &str, why: &Option<String>| {
            why.as_ref().map(|why| format!("VACUUM of {what} is not possible: {why}"))
        };
        of("the table", table).into_iter().chain(of("its TOAST relation", toast)).collect()
    }
}

impl Guard<'_> {
    /// Vacuums by this statement. It never waits long: what is not done now is done later.
    pub(crate) async fn vacuum_by(&self, job: usize, sql: &str) -> Result<Vacuumed, RetoastError> {
        let (connection, patience) = (self.session.connection(job), Patience::Vacuum);
        let (ended, why) = match self.run_watched(connection, sql, patience).await {
            Ok(Ok(())) => return Ok(Vacuumed::Done),
            Ok(Err(GaveUp::Stopped)) => return Ok(Vacuumed::Not),
            Ok(Err(GaveUp::Slot(why))) => (Vacuumed::ForSlot, format!("no VACUUM now: {why}")),
            Ok(Err(why)) => {
                (Vacuumed::Not, format!("no VACUUM now, dead rows remain: {}", why.text()))
            }
            Err(RetoastError::Live(LiveError::Server(error)))
                if ErrorKind::of(&error) == ErrorKind::Busy =>
            {
                (Vacuumed::Not, "no VACUUM now: it is locked".to_owned())
            }
            Err(error) => return Err(error),
        };
        self.note(&why);
        Ok(ended)
    }

    /// The server's time, as text.
    pub(crate) async fn server_time(&self, job: usize) -> Result<String, RetoastError> {
        Ok(self.session.connection(job).client().value(NOW, &[]).await?.unwrap_or_default())
    }

    /// What a vacuum that began then has left, by the server's statistics.
    pub(crate) async fn left_dead(
        &self,
        job: usize,
        began: &str,
    ) -> Result<Option<LeftDead>, RetoastError> {
        let parameters = [(&self.ready.relation.oid.0 as _, Type::OID), (&began as _, Type::TEXT)];
        let connection = self.session.connection(job);
        let rows = connection.query_again(&left_dead(), &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (relations, dead, all) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Some(LeftDead { relations, dead, all }))
    }

    /// Vacuums, unless the table is locked just now; and again where that has left most, as a conversion's vacuum is
    /// done again.
    pub(crate) async fn vacuum_now(
        &self,
        vacuum: Vacuum,
        report: &mut Common,
    ) -> Result<(), RetoastError> {
        let sql = vacuum.of(&self.ready.relation.quoted());
        let mut number = 0;
        loop {
            let Some(pays) = self.wait_for_snapshots().await? else { return Ok(()) };
            report.is_larger(self.session.throttle.sizes());
            let began = self.server_time(0).await?;
            match self.vacuum_by(0, &sql).await? {
                Vacuumed::Done => report.effort.vacuums += 1,
                Vacuumed::Not => return Ok(()),
                // what is done already stays done
                Vacuumed::ForSlot => continue,
            }
            // who holds it back is known and was waited for
            if !pays || !self.has_left_most(&began, vacuum).await? {
                break;
            }
            tracing::debug!("{}: VACUUM has left most dead rows in place", self.name());
            if number == AGAIN {
                return Ok(());
            }
            self.wait(PAUSE * 2u32.pow(number), &Wait::OldVersions).await;
            number += 1;
        }
        self.session.throttle.vacuumed();
        Ok(())
    }

    /// Whether a vacuum pays now; `None` once a stop is asked for.
    async fn wait_for_snapshots(&self) -> Result<Option<bool>, RetoastError> {
        for number in 0..=SNAPSHOTS {
            self.session.pass(Load::Vacuum, 0).await?;
            if self.session.stopped() {
                return Ok(None);
            }
            if self.session.throttle.vacuum_pays() {
                return Ok(Some(true));
            }
            if number == 0 {
                self.note(&Wait::OldVersions.note());
            }
            self.wait(LOOK_EVERY, &Wait::OldVersions).await;
        }
        Ok(Some(false))
    }

    /// Whether a vacuum that began then has left most of what it was for, by the server's statistics; where they do not
    /// tell, it has not.
    async fn has_left_most(&self, began: &str, vacuum: Vacuum) -> Result<bool, RetoastError> {
        let of_toast = self.ready.relation.toast.is_some() && vacuum != Vacuum::Rows;
        let moved = self.session.throttle.still_dead() as f64;
        for _ in 0..ASKED {
            let Some(left) = self.left_dead(0, began).await? else { return Ok(false) };
            if left.relations > i64::from(of_toast) {
                let most = if moved > 0.0 { moved * MOST } else { left.all * MOST_OF_ALL };
                return Ok(left.dead > most);
            }
            self.session.sleep(ASK_EVERY).await;
        }
        Ok(false)
    }
}
