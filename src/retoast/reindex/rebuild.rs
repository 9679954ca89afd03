//! The rebuild of one index, and what an interrupted one leaves behind.

use std::pin::pin;
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::result::{IndexEnd, IndexReport};
use super::watched::{Ran, Watching};
use crate::disk::Oid;
use crate::retoast::pace::lock_tries::Tried;
use crate::retoast::pace::manners::Work;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::{Sweep, millis};
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::indexes::{self, Index};
use crate::server::sqlstate::{ErrorKind, is_of_server};

/// How often it is tried.
const TRIES: u32 = 3;
/// How long to wait before it is tried again, for each time that it was.
const AGAIN: Duration = Duration::from_secs(1);
/// How long to wait about before what is left behind is tried to be dropped again, and for how long it is tried,
/// unless --max-wait says so.
const DROP_AGAIN: Duration = Duration::from_millis(250);
const CLEAN_FOR: Duration = Duration::from_secs(60);
/// How often it is looked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long others may wait while an index is rebuilt under a lock.
const LOCKED_FOR: Duration = Duration::from_secs(2);
/// How long what is left behind may wait for others while it is dropped, once a stop is asked for.
const AFTER_STOP: Duration = Duration::from_secs(3);

impl Sweep<'_> {
    /// Rebuilds an index of which a fresh one takes about so many bytes.
    pub(super) async fn rebuild(
        &self,
        index: &Index,
        bytes: u64,
        told: &mut IndexReport,
    ) -> Result<(), RunError> {
        told.ended = IndexEnd::Left;
        told.command = Some(index.rebuild());
        for number in 1..=TRIES {
            let wal = told.wal_expected.unwrap_or(bytes);
            self.keeper.pass(Work::Rebuild(wal), &self.writer, self.watch).await?;
            let mut reason = self.keeper.no_room_for(bytes).await?;
            if reason.is_none() && !index.of_toast {
                reason = self.quiet(index.table).await?;
            }
            if self.stopped() {
                reason = Some("stopped on request".to_owned());
            }
            if reason.is_some() {
                told.reason = reason;
                return Ok(());
            }
            let name = self.name();
            self.watch.note(&format!("{name}: rebuilding index {}", index.quoted()));
            if index.of_toast {
                return self.rebuild_locked(index, told).await;
            }
            let table = self.ready.relation.oid.0;
            if let Some(checkpoint) = self.checkpoint {
                checkpoint.rebuild_begins(table, &index.quoted())?;
            }
            self.rebuilds.begin(&index.quoted());
            let watching = Watching::rebuild(self.patience());
            let ran = self.watched(&self.writer, &index.rebuild(), watching).await;
            let rest = match &ran {
                Ok(Ran::Done) => Ok(Vec::new()),
                Ok(_) => self.clean(&self.writer, index, self.may_clean()).await,
                // its session may have ended
                Err(_) => self.clean(&self.reader, index, self.may_clean()).await,
            };
            if let Ok(true) = rest.as_ref().map(Vec::is_empty) {
                self.rebuild_ended(index)?;
            }
            let reason = match ran {
                Ok(Ran::Done) => {
                    self.keeper.goes_on();
                    told.after = self.bytes_of(index).await?;
                    told.ended = IndexEnd::Rebuilt;
                    told.reason = None;
                    told.command = None;
                    return Ok(());
                }
                Ok(Ran::GaveUp(reason) | Ran::Refused(reason)) => reason,
                Err(error) => {
                    told.reason = Some("an error ended it".to_owned());
                    if let Some(left) = rest.iter().flatten().next() {
                        told.is_left_with(&left.quoted(), left.drop());
                    }
                    return Err(error);
                }
            };
            told.reason = Some(reason.clone());
            if let Some(left) = rest?.first() {
                told.is_left_with(&left.quoted(), left.drop());
                return Ok(());
            }
            self.watch.note(&format!("{name}: index {} was not rebuilt: {reason}", index.quoted()));
            if number < TRIES {
                self.sleep(AGAIN * number).await;
            }
        }
        Ok(())
    }

    /// Rebuilds the index of a TOAST relation while readers and writers of values out of line wait.
    async fn rebuild_locked(&self, index: &Index, told: &mut IndexReport) -> Result<(), RunError> {
        let seconds = LOCKED_FOR.as_secs();
        let limit = format!("SET LOCAL statement_timeout = {}", millis(LOCKED_FOR));
        let sql = format!("{limit}; {}", index.rebuild());
        let name = self.name();
        let tries = self.tries(&name);
        let reason = match tries
            .in_transaction(self.writer.client(), "rebuilding an index", &sql)
            .await
        {
            Ok((Tried::Done(()), wait)) => {
                self.keeper.lock_waited(wait);
                self.keeper.goes_on();
                told.after = self.bytes_of(index).await?;
                (told.ended, told.reason, told.command) = (IndexEnd::Rebuilt, None, None);
                return Ok(());
            }
            Ok((Tried::Stopped, _)) => "stopped on request".to_owned(),
            Ok((Tried::TooLong(_) | Tried::NoLock, _)) => {
                "a lock could not be had in time".to_owned()
            }
            Err(LiveError::Server(error)) => match error.as_db_error() {
                Some(said) if *said.code() == SqlState::QUERY_CANCELED => format!(
                    "readers and writers of values out of line would have waited for more than {seconds} s"
                ),
                Some(said) if !is_of_server(&error) => said.message().to_owned(),
                _ => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        told.reason = Some(reason);
        Ok(())
    }

    /// Nothing is left of the rebuilds of this index.
    pub(super) fn rebuild_ended(&self, index: &Index) -> Result<(), RunError> {
        if let Some(checkpoint) = self.checkpoint {
            checkpoint.rebuild_ended(self.ready.relation.oid.0, &index.quoted())?;
        }
        self.rebuilds.end(&index.quoted());
        Ok(())
    }

    /// Drops what a rebuild of this index has left behind, again and again for so long at the most; gives what is still
    /// there.
    pub(super) async fn clean(
        &self,
        connection: &Connection,
        index: &Index,
        most: Duration,
    ) -> Result<Vec<Index>, RunError> {
        let began = Instant::now();
        let mut told = false;
        loop {
            for one in self.left_of(connection, index).await? {
                let Some(reason) = self.drop_left(connection, &one).await? else { continue };
                if !std::mem::replace(&mut told, true) {
                    let (name, index) = (self.name(), one.quoted());
                    self.watch.note(&format!("{name}: index {index} was not dropped: {reason}"));
                }
            }
            let rest = self.left_of(connection, index).await?;
            let most = if self.stopped() { most.min(AFTER_STOP) } else { most };
            if rest.is_empty() || began.elapsed() >= most {
                return Ok(rest);
            }
            // at another moment of what others repeat
            tokio::time::sleep(DROP_AGAIN.mul_f64(0.2 + rand::rng().random::<f64>())).await;
        }
    }

    /// How long what is left behind may be tried to be dropped.
    pub(super) fn may_clean(&self) -> Duration {
        self.keeper.limits().wait.unwrap_or(CLEAN_FOR)
    }

    /// What a rebuild of this index has left behind.
    async fn left_of(
        &self,
        connection: &Connection,
        index: &Index,
    ) -> Result<Vec<Index>, RunError> {
        let all = indexes::all(connection, self.ready.relation.oid).await?;
        Ok(all.into_iter().filter(|one| one.is_left_of(index)).collect())
    }

    /// Drops an index that is left behind; why that could not be done, if so. No wait of this lasts until the server
    /// looks for deadlocks, whatever becomes of this program.
    async fn drop_left(
        &self,
        connection: &Connection,
        left: &Index,
    ) -> Result<Option<String>, RunError> {
        let patience = self.before_deadlocks(connection).await?;
        let ran = if self.builder(left.table).await?.is_some() {
            self.drop_behind(connection, left, patience).await?
        } else {
            self.watched(connection, &left.drop(), Watching::drop(patience)).await?
        };
        Ok(match ran {
            Ran::Done => None,
            Ran::GaveUp(reason) | Ran::Refused(reason) => Some(reason),
        })
    }

    /// Drops an index where others build one after the other.
    ///
    /// The statement stands in the queue behind a build, with a snapshot that the last phase of the build waits for:
    /// none of the two goes on until one is ended. So a second one is put into the queue once the build waits for the
    /// first: its snapshot is too young to be waited for. Then the first one is ended, the build ends by itself, and
    /// the second one's turn has come.
    async fn drop_behind(
        &self,
        connection: &Connection,
        left: &Index,
        patience: Duration,
    ) -> Result<Ran, RunError> {
        let is_writer = std::ptr::eq(connection, &*self.writer);
        let other: &Connection = if is_writer { &self.reader } else { &self.writer };
        if other.is_lost() {
            return self.watched(connection, &left.drop(), Watching::drop(patience)).await;
        }
        let set = |time| format!("SET lock_timeout = {}", millis(time));
        connection.client().batch_execute(&set(patience)).await?;
        other.client().batch_execute(&set(patience)).await?;
        let (pid, other_pid) = (connection.process().await?, other.process().await?);
        let sql = left.drop();
        let mut first = pin!(connection.client().batch_execute(&sql));
        let mut ended = loop {
            tokio::select! {
                done = &mut first => break Some(done),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if self.keeper.is_waited_for(pid).await? {
                        break None;
                    }
                }
            }
        };
        if ended.is_none() {
            let mut second = pin!(other.client().batch_execute(&sql));
            let early = loop {
                tokio::select! {
                    done = &mut second => break Some(done),
                    () = tokio::time::sleep(LOOK_EVERY / 5) => {
                        if self.keeper.wait_of(other_pid).await?.is_some() {
                            break None;
                        }
                    }
                }
            };
            // it may have ended by itself
            let _ = connection.canceller().cancel().await;
            let done = first.await;
            let last = match early {
                Some(last) => last,
                None => second.await,
            };
            ended = Some(done.or(last));
        }
        let ran = match ended {
            None | Some(Ok(())) => Ran::Done,
            Some(Err(error)) => match error.as_db_error().map(|said| said.message().to_owned()) {
                Some(_) if ErrorKind::of(&error) == ErrorKind::Busy => {
                    Ran::GaveUp("a lock could not be had in time".to_owned())
                }
                Some(message) => Ran::Refused(message),
                None => return Err(error.into()),
            },
        };
        connection.client().batch_execute(&set(self.options.lock_timeout)).await?;
        other.client().batch_execute(&set(self.options.lock_timeout)).await?;
        Ok(ran)
    }

    /// Half the time after which the server looks for deadlocks.
    async fn before_deadlocks(&self, connection: &Connection) -> Result<Duration, RunError> {
        let sql = "SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings AS s \
                   WHERE s.name = 'deadlock_timeout'";
        let rows = connection.client().query_typed(sql, &[]).await?;
        let ms: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(1000);
        Ok(Duration::from_millis(u64::try_from(ms / 2).unwrap_or(0).max(1)))
    }

    /// A process that may be building an index of a relation: whoever does holds this lock from beginning to end.
    pub(super) async fn builder(&self, relation: Oid) -> Result<Option<i32>, RunError> {
        let sql = "SELECT l.pid FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation' AND l.relation = $1 \
             AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid IS NOT NULL AND l.database = \
             (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
             ORDER BY l.pid LIMIT 1";
        let rows = self.reader.client().query_typed(sql, &[(&relation.0, Type::OID)]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Its size now: the rebuilt one has another OID.
    async fn bytes_of(&self, index: &Index) -> Result<Option<u64>, RunError> {
        let look = async || indexes::all(&self.reader, self.ready.relation.oid).await;
        let all = self.tried("looking at its indexes", look).await?.unwrap_or_default();
        let same = |one: &&Index| one.valid && one.quoted() == index.quoted();
        Ok(all.iter().find(same).map(|one| one.bytes))
    }
}
