//! The rebuild of one index, and what an interrupted one leaves behind.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::index::{self, Index};
use super::result::{IndexEnd, IndexReport};
use super::watched::Ran;
use crate::disk::Oid;
use crate::retoast::pace::manners::Work;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::Sweep;
use crate::server::connect::Connection;

/// How often it is tried.
const TRIES: u32 = 3;
/// How long to wait before it is tried again, for each time that it was.
const AGAIN: Duration = Duration::from_secs(1);
/// How long to wait before what is left behind is tried to be dropped again.
const DROP_AGAIN: Duration = Duration::from_millis(500);
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
            self.keeper.pass(Work::Batch, &self.writer, self.watch).await?;
            let mut reason = self.keeper.no_room_for(bytes).await?;
            if reason.is_none() {
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
            let table = self.ready.relation.oid.0;
            if let Some(checkpoint) = self.checkpoint {
                checkpoint.rebuild_begins(table, &index.quoted())?;
            }
            let ran = self.watched(&self.writer, &index.rebuild(), self.patience(), true).await;
            let rest = match &ran {
                Ok(Ran::Done) => Ok(Vec::new()),
                Ok(_) => self.clean(&self.writer, index).await,
                // its session may have ended
                Err(_) => self.clean(&self.reader, index).await,
            };
            if let (Some(checkpoint), Ok(true)) =
                (self.checkpoint, rest.as_ref().map(Vec::is_empty))
            {
                checkpoint.rebuild_ended(table, &index.quoted())?;
            }
            let reason = match ran {
                Ok(Ran::Done) => {
                    told.after = self.bytes_of(index).await?;
                    told.ended = IndexEnd::Rebuilt;
                    told.reason = None;
                    told.command = None;
                    return Ok(());
                }
                Ok(Ran::GaveUp(reason) | Ran::Refused(reason)) => reason,
                Err(error) => {
                    told.reason = Some("an error ended it".to_owned());
                    return Err(error);
                }
            };
            let rest = rest?;
            if let Some(left) = rest.first() {
                told.reason = Some(format!(
                    "{reason}; the invalid index {} is left of it, since it could not be dropped in time",
                    left.quoted()
                ));
                told.command = Some(left.drop());
                return Ok(());
            }
            self.watch.note(&format!("{name}: index {} was not rebuilt: {reason}", index.quoted()));
            told.reason = Some(reason);
            if number < TRIES {
                self.sleep(AGAIN * number).await;
            }
        }
        Ok(())
    }

    /// Drops what a rebuild of this index has left behind; gives what is still there.
    pub(super) async fn clean(
        &self,
        connection: &Connection,
        index: &Index,
    ) -> Result<Vec<Index>, RunError> {
        let left = async || {
            let all = index::all(connection, self.ready.relation.oid).await?;
            let left = all.into_iter().filter(|one| one.is_left_of(index));
            Ok::<Vec<Index>, RunError>(left.collect())
        };
        for one in left().await? {
            if self.builder(one.table).await?.is_some() {
                break;
            }
            for number in 1..=TRIES {
                let began = Instant::now();
                let patience = match self.stopped() {
                    true => AFTER_STOP.min(self.patience()),
                    false => self.patience(),
                };
                let reason = match self.watched(connection, &one.drop(), patience, false).await? {
                    Ran::Done => break,
                    Ran::GaveUp(reason) | Ran::Refused(reason) => reason,
                };
                let (name, index) = (self.name(), one.quoted());
                self.watch.note(&format!("{name}: index {index} was not dropped: {reason}"));
                // a lock may be had a moment later; transactions that were waited for may last
                if number == TRIES || began.elapsed() >= patience {
                    break;
                }
                tokio::time::sleep(DROP_AGAIN).await;
            }
        }
        left().await
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
        let look = async || index::all(&self.reader, self.ready.relation.oid).await;
        let all = self.tried("looking at its indexes", look).await?.unwrap_or_default();
        let same = |one: &&Index| one.valid && one.quoted() == index.quoted();
        Ok(all.iter().find(same).map(|one| one.bytes))
    }
}
