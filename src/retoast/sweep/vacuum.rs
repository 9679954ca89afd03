//! VACUUM on the way.

use std::time::{Duration, Instant};

use super::error::RunError;
use super::table::Sweep;
use crate::retoast::pace::lock_tries::{Kind, kind};
use crate::retoast::pace::stuck::{Advice, LOOK_EVERY, Stuck};
use crate::retoast::sql;

impl Sweep<'_> {
    /// Whether the table was vacuumed. It never waits long: what is not done now is done later.
    pub(super) async fn vacuum(&self, job: usize) -> Result<bool, RunError> {
        let sql = sql::vacuum(&self.ready.relation.quoted(), self.options.tuning.max_bloat);
        self.vacuum_by(job, &sql).await
    }

    /// As [`Sweep::vacuum`], by this statement.
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
