//! The rebuild of one index, and the removal of what an interrupted one leaves.

use std::pin::pin;
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::pace::lock_tries::{RUN_STOPPED, Tried};
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::reindex::run::Reindexing;
use crate::retoast::result::{IndexEnd, IndexReport};
use crate::retoast::task::guard::Guard;
use crate::retoast::task::session::millis;
use crate::retoast::task::watched::{GaveUp, StatementKind, is_of_statement, with_lock_timeout};
use crate::server::indexes::Index;
use crate::server::sqlstate::{ErrorKind, is_of_server};
use crate::server::{Connection, LiveError, holders, indexes};
use toast_format::disk::Oid;

/// The longest wait for one set of transactions, unless max-wait is less.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many times a rebuild is tried.
const TRIES: u32 = 3;
/// The wait before a rebuild is tried again, multiplied by the number of tries so far.
const AGAIN: Duration = Duration::from_secs(1);
/// The average wait before dropping an invalid index is tried again, approximately, and how long this is repeated
/// unless max-wait is set.
const DROP_AGAIN: Duration = Duration::from_millis(250);
const CLEAN_FOR: Duration = Duration::from_secs(60);
/// How often the sessions are checked while an index is being dropped.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long other sessions may wait while an index is rebuilt under a lock.
const LOCKED_FOR: Duration = Duration::from_secs(2);
/// How long dropping invalid indexes may be repeated after a stop was requested.
const AFTER_STOP: Duration = Duration::from_secs(3);

/// Why a statement was not done if others kept a lock.
const LOCKED: &str = "a lock was not granted in time";

/// A statement that was done, or why it was not.
type Ran = Result<(), String>;

impl Reindexing<'_> {
    /// Rebuilds an index for which a fresh one takes about `bytes` bytes.
    pub(super) async fn rebuild(
        &self,
        index: &Index,
        bytes: u64,
        index_report: &mut IndexReport,
    ) -> Result<()> {
        let session = self.guard.session;
        index_report.ended = IndexEnd::Left;
        index_report.command = Some(index.rebuild());
        for number in 1..=TRIES {
            let wal = index_report.wal_expected.unwrap_or(bytes);
            session.pass(WorkKind::Rebuild(wal), 0).await?;
            let mut reason = self.guard.session.throttle.no_room_for(bytes).await?;
            if reason.is_none() && !index.of_toast {
                reason = quiet(&self.guard, index.table, self.patience()).await?;
            }
            if self.guard.session.stopped() {
                reason = Some(RUN_STOPPED.to_owned());
            }
            if reason.is_some() {
                index_report.reason = reason;
                return Ok(());
            }
            self.guard.note(&format!("rebuilding index {}", index.quoted()));
            if index.of_toast {
                return self.rebuild_locked(index, index_report).await;
            }
            let table = self.guard.ready.relation.oid.0;
            if let Some(checkpoint) = self.checkpoint {
                checkpoint.rebuild_begins(table, &index.quoted())?;
            }
            self.rebuilds.0.lock().insert(index.quoted());
            let patience = StatementKind::Rebuild(self.patience());
            let ran = self.run_watched(session.connection(0), &index.rebuild(), patience).await;
            let rest = match &ran {
                Ok(Ok(())) => Ok(Vec::new()),
                Ok(_) => self.clean(session.connection(0), index, self.may_clean()).await,
                // the session may have ended
                Err(_) => self.clean(session.reader(), index, self.may_clean()).await,
            };
            if let Ok(true) = rest.as_ref().map(Vec::is_empty) {
                self.rebuild_ended(index)?;
            }
            let reason = match ran {
                Ok(Ok(())) => {
                    self.guard.session.throttle.patience.reset_wait();
                    index_report.after = self.bytes_of(index).await?;
                    index_report.ended = IndexEnd::Rebuilt;
                    index_report.reason = None;
                    index_report.command = None;
                    return Ok(());
                }
                Ok(Err(reason)) => reason,
                Err(error) => {
                    index_report.reason = Some("an error ended it".to_owned());
                    if let Some(left) = rest.iter().flatten().next() {
                        index_report.is_left_with(&left.quoted(), left.drop());
                    }
                    return Err(error);
                }
            };
            index_report.reason = Some(reason.clone());
            if let Some(left) = rest?.first() {
                index_report.is_left_with(&left.quoted(), left.drop());
                return Ok(());
            }
            let index = index.quoted();
            self.guard.note(&format!("index {index} was not rebuilt: {reason}"));
            if number < TRIES {
                self.guard.session.sleep(AGAIN * number).await;
            }
        }
        Ok(())
    }

    /// Rebuilds the index of a TOAST relation while readers and writers of external values wait.
    async fn rebuild_locked(&self, index: &Index, index_report: &mut IndexReport) -> Result<()> {
        let seconds = LOCKED_FOR.as_secs();
        let limit = format!("SET LOCAL statement_timeout = {}", millis(LOCKED_FOR));
        let sql = format!("{limit}; {}", index.rebuild());
        let name = self.guard.name();
        let tries = self.guard.session.tries(&name, self.guard.ready.relation.oid);
        let reason = match tries
            .in_transaction(self.guard.session.writer(), "rebuilding an index", &sql)
            .await
        {
            Ok((Tried::Done(()), wait)) => {
                self.guard.session.throttle.lock_waited(wait);
                self.guard.session.throttle.patience.reset_wait();
                index_report.after = self.bytes_of(index).await?;
                (index_report.ended, index_report.reason, index_report.command) =
                    (IndexEnd::Rebuilt, None, None);
                return Ok(());
            }
            Ok((Tried::Stopped, _)) => RUN_STOPPED.to_owned(),
            Ok((Tried::TooLong(_) | Tried::NoLock, _)) => LOCKED.to_owned(),
            Err(LiveError::Server(error)) => match error.as_db_error() {
                Some(said) if *said.code() == SqlState::QUERY_CANCELED => format!(
                    "readers and writers of out-of-line values would have waited for more than {seconds} s"
                ),
                Some(said) if !is_of_server(&error) => said.message().to_owned(),
                _ => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        index_report.reason = Some(reason);
        Ok(())
    }

    /// Records that rebuilds of this index have left nothing, or that what they left was dropped.
    pub(super) fn rebuild_ended(&self, index: &Index) -> Result<()> {
        if let Some(checkpoint) = self.checkpoint {
            checkpoint.rebuild_ended(self.guard.ready.relation.oid.0, &index.quoted())?;
        }
        self.rebuilds.0.lock().remove(&index.quoted());
        Ok(())
    }

    /// Drops what a rebuild of this index has left, trying repeatedly for up to `most`; returns what still exists.
    pub(super) async fn clean(
        &self,
        connection: &Connection,
        index: &Index,
        most: Duration,
    ) -> Result<Vec<Index>> {
        let began = Instant::now();
        let mut index_report = false;
        loop {
            for one in self.left_of(connection, index).await? {
                let Err(reason) = self.drop_left(connection, &one).await? else { continue };
                if !std::mem::replace(&mut index_report, true) {
                    let index = one.quoted();
                    self.guard.note(&format!("index {index} was not dropped: {reason}"));
                }
            }
            let rest = self.left_of(connection, index).await?;
            let most = if self.guard.session.stopped() { most.min(AFTER_STOP) } else { most };
            if rest.is_empty() || began.elapsed() >= most {
                return Ok(rest);
            }
            // at a random time, because other sessions may repeat their work at regular intervals
            tokio::time::sleep(DROP_AGAIN.mul_f64(0.2 + rand::rng().random::<f64>())).await;
        }
    }

    /// How long dropping invalid indexes may be repeated.
    pub(super) fn may_clean(&self) -> Duration {
        self.guard.session.throttle.patience.limit().unwrap_or(CLEAN_FOR)
    }

    /// The invalid indexes that a rebuild of this index has left.
    async fn left_of(&self, connection: &Connection, index: &Index) -> Result<Vec<Index>> {
        let all = indexes::of_table(connection, self.guard.ready.relation.oid).await?;
        Ok(all.into_iter().filter(|one| one.is_left_of(index)).collect())
    }

    /// Drops an invalid index; returns why that was not possible, if it was not. No wait lasts long enough for the
    /// server to check for deadlocks, even if this program is killed.
    async fn drop_left(&self, connection: &Connection, left: &Index) -> Result<Ran> {
        let patience = self.before_deadlocks(connection).await?;
        if self.builder(left.table).await?.is_some() {
            self.drop_behind(connection, left, patience).await
        } else {
            self.run_watched(connection, &left.drop(), StatementKind::Drop(patience)).await
        }
    }

    /// Drops an index while other sessions build indexes of the table one after another.
    ///
    /// The statement queues for its lock behind a build, and has a snapshot for which the last phase of the build
    /// waits, so that neither continues until one of the two is ended. Therefore, once the build waits for the first
    /// statement, a second one is queued, whose snapshot is too recent to be waited for. Then the first one is
    /// cancelled, the build completes, and it is the second one's turn.
    async fn drop_behind(
        &self,
        connection: &Connection,
        left: &Index,
        patience: Duration,
    ) -> Result<Ran> {
        let session = self.guard.session;
        let is_writer = std::ptr::eq(connection, session.connection(0));
        let other = if is_writer { session.reader() } else { session.connection(0) };
        if other.is_lost() {
            return self.run_watched(connection, &left.drop(), StatementKind::Drop(patience)).await;
        }
        let both = async || {
            let drop = async || self.drop_by_two(connection, other, left).await;
            with_lock_timeout(other, patience, drop).await
        };
        with_lock_timeout(connection, patience, both).await
    }

    async fn drop_by_two(
        &self,
        connection: &Connection,
        other: &Connection,
        left: &Index,
    ) -> Result<Ran> {
        let pid = connection.process().await?;
        let other_pid = other.process().await?;
        let sql = left.drop();
        let mut first = pin!(connection.client().batch_execute(&sql));
        let mut ended = loop {
            tokio::select! {
                done = &mut first => break Some(done),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if self.guard.session.throttle.is_waited_for(pid).await? {
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
                        if self.guard.session.throttle.wait_of(other_pid).await?.is_some() {
                            break None;
                        }
                    }
                }
            };
            // it may have ended on its own
            let _ = connection.canceller().cancel().await;
            let done = first.await;
            let last = match early {
                Some(last) => last,
                None => second.await,
            };
            ended = Some(done.or(last));
        }
        Ok(match ended {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => match error.as_db_error().map(|said| said.message().to_owned()) {
                Some(_) if ErrorKind::from_error(&error) == ErrorKind::Busy => {
                    Err(LOCKED.to_owned())
                }
                Some(message) => Err(message),
                None => return Err(error.into()),
            },
        })
    }

    /// Runs a statement that is monitored from another session.
    async fn run_watched(
        &self,
        connection: &Connection,
        sql: &str,
        patience: StatementKind,
    ) -> Result<Ran> {
        match self.guard.run_watched(connection, sql, patience).await {
            Err(RetoastError::Live(LiveError::Server(error))) if is_of_statement(&error) => {
                let said = error.as_db_error().map(|said| said.message().to_owned());
                let is_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
                Ok(Err(if is_locked { LOCKED.to_owned() } else { said.unwrap_or_default() }))
            }
            ran => Ok(ran?.map_err(GaveUp::text)),
        }
    }

    /// The longest wait for other sessions' transactions.
    fn patience(&self) -> Duration {
        let most = self.guard.session.throttle.patience.left();
        most.map_or(PATIENCE, |most| most.min(PATIENCE))
    }

    /// Half of the time after which the server checks for deadlocks.
    async fn before_deadlocks(&self, connection: &Connection) -> Result<Duration> {
        let sql = "SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings AS s \
                   WHERE s.name = 'deadlock_timeout'";
        let ms: i64 = connection.client().value(sql, &[]).await?.unwrap_or(1000);
        Ok(Duration::from_millis(u64::try_from(ms / 2).unwrap_or(0).max(1)))
    }

    /// A process that may be building an index of a relation, because it holds the lock that a build holds from
    /// beginning to end.
    pub(super) async fn builder(&self, relation: Oid) -> Result<Option<i32>> {
        let sql = "SELECT l.pid FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation' AND l.relation = $1 \
             AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid IS NOT NULL AND l.database = \
             (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
             ORDER BY l.pid LIMIT 1";
        Ok(self.guard.session.reader().client().value(sql, &[(&relation.0, Type::OID)]).await?)
    }

    /// The current size of the index, found by name because a rebuilt index has another OID.
    async fn bytes_of(&self, index: &Index) -> Result<Option<u64>> {
        let reader = self.guard.session.reader();
        let table = self.guard.ready.relation.oid;
        let asked = self
            .guard
            .tried("examining its indexes", async || indexes::of_table(reader, table).await);
        let all = asked.await?.unwrap_or_default();
        let name = index.quoted();
        let same = all.iter().find(|other| other.valid && other.quoted() == name);
        Ok(same.map(|same| same.bytes))
    }
}

/// How often to check whether the transactions have ended.
const LOOK_FOR_QUIET: Duration = Duration::from_millis(200);
/// A wait of this length is reported.
const TELL: Duration = Duration::from_secs(2);

/// Transactions that have locked a relation, and transactions with a snapshot in this database, except vacuums, for
/// which no rebuild waits.
const UNDER_WAY: &str = "SELECT l.virtualtransaction, l.pid FROM pg_catalog.pg_locks AS l \
    WHERE l.locktype = 'relation' AND l.granted AND l.relation = $1 \
      AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.database = \
        (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
    UNION SELECT v.virtualtransaction, v.pid FROM pg_catalog.pg_stat_get_activity(NULL) AS a \
    JOIN pg_catalog.pg_locks AS v ON v.pid = a.pid AND v.locktype = 'virtualxid' AND v.granted \
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid() \
      AND a.backend_type <> 'autovacuum worker' AND a.datid = \
        (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS p WHERE p.pid = a.pid)";

/// Waits until all transactions that are now running have ended, or until a stop is requested. If a transaction runs
/// for too long, returns a text that names it.
pub(super) async fn quiet(
    guard: &Guard<'_>,
    table: Oid,
    patience: Duration,
) -> Result<Option<String>> {
    let session = guard.session;
    let began = Instant::now();
    let reader = session.reader();
    let about = [(&table.0 as _, Type::OID)];
    let mut waited_for = holders::transactions(reader, UNDER_WAY, &about).await?;
    let mut index_report = false;
    while !waited_for.is_empty() && !session.stopped() {
        let who = waited_for.values().next().cloned().unwrap_or_default();
        if began.elapsed() >= patience {
            // this makes the wait for the next index shorter
            session.throttle.patience.add_wait(began.elapsed());
            return Ok(Some(format!(
                "{who} has not ended in {:.0} s, and a rebuild would wait for it",
                began.elapsed().as_secs_f64()
            )));
        }
        if began.elapsed() >= TELL && !index_report {
            index_report = true;
            guard.note(&format!("waiting: the rebuild cannot start before {who} has ended"));
        }
        session.sleep(LOOK_FOR_QUIET).await;
        let now = holders::transactions(reader, UNDER_WAY, &about).await?;
        waited_for.retain(|transaction, _| now.contains_key(transaction));
    }
    Ok(None)
}
