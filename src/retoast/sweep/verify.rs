//! Proof that a batch changes no content: hashes of its rows before and after, in one transaction.

use futures_util::future::join3;
use tokio_postgres::types::{ToSql, Type};

use super::error::RunError;
use super::options::Verify;
use super::table::Sweep;
use crate::retoast::sql;
use crate::server::LiveError;
use crate::server::connect::Client;

/// With `--verify sample` one batch in this many is compared.
const SAMPLE: u64 = 32;

/// What an update tells of the rows that it stored.
pub(in crate::retoast) struct Stored {
    pub(in crate::retoast) rows: u64,
    /// The low half of the transaction's number, which is what tuple headers hold.
    pub(in crate::retoast) xid: u32,
    /// Where they are now.
    pub(in crate::retoast) ctids: Vec<String>,
}

impl Stored {
    pub(in crate::retoast) fn read(rows: &[tokio_postgres::Row]) -> Result<Stored, LiveError> {
        let unexpected = |what: &str| LiveError::Unexpected(what.to_owned());
        let row = rows.first().ok_or_else(|| unexpected("no row about the batch"))?;
        let count: i64 = row.try_get(0)?;
        let xid: &str = row.try_get(1)?;
        let low = xid.parse().map(|xid: u64| xid as u32);
        Ok(Stored {
            rows: u64::try_from(count).unwrap_or(0),
            xid: low.map_err(|_| unexpected(&format!("transaction \"{xid}\"")))?,
            ctids: row.try_get(2)?,
        })
    }
}

impl Sweep<'_> {
    /// Whether generated columns are computed anew.
    pub(super) fn computes(&self) -> bool {
        !self.ready.follow.is_empty() || self.ready.targets.iter().any(|t| t.base.is_some())
    }

    /// Whether the next batch's rows are compared, after so many.
    pub(in crate::retoast) fn verifies(&self, batches: u64) -> bool {
        match self.options.verify {
            Verify::Off => false,
            // what is generated is computed by functions that may have changed since
            Verify::Sample => batches.is_multiple_of(SAMPLE) || self.computes(),
            Verify::Full => true,
        }
    }

    /// A trigger may change other columns for reasons of its own.
    pub(super) fn hashes_whole_rows(&self) -> bool {
        !self.ready.triggers_fire
    }

    /// Locks those of the rows that nobody else has locked. Gives their addresses and hashes.
    pub(in crate::retoast) async fn lock_and_hash(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<(Vec<String>, Vec<i64>), RunError> {
        let table = self.ready.relation.quoted();
        let sql = sql::lock_and_hash(&table, &self.ready.targets, self.hashes_whole_rows());
        let locked = client.query_typed(&sql, &[(addresses, Type::TEXT_ARRAY)]).await?;
        let (mut ctids, mut hashes) = (Vec::new(), Vec::new());
        for row in &locked {
            ctids.push(row.try_get(0)?);
            hashes.push(row.try_get(1)?);
        }
        Ok((ctids, hashes))
    }

    /// Locks those of the rows that nobody else has locked, stores them anew and compares what they hold: all of it is
    /// sent together, so that a client that stalls keeps no row locked in between.
    pub(super) async fn store_and_compare(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<Stored, RunError> {
        let table = self.ready.relation.quoted();
        let [lock, update, hashes] =
            sql::verified(&table, &self.ready.targets, self.hashes_whole_rows());
        let rows = [(addresses as &(dyn ToSql + Sync), Type::TEXT_ARRAY)];
        let (locked, stored, now) = join3(
            client.query_typed(&lock, &rows),
            client.query_typed(&update, &[]),
            client.query_typed(&hashes, &[]),
        )
        .await;
        let locked = locked?;
        let stored = Stored::read(&stored?)?;
        let row = locked.first().ok_or_else(|| {
            LiveError::Unexpected("no row about the locked rows of a batch".to_owned())
        })?;
        let (locked, before): (Vec<String>, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let after = now?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        same(stored.rows, &locked, before, after)?;
        Ok(stored)
    }

    /// Whether the rows hold now what they held when they were locked.
    pub(in crate::retoast) async fn compare(
        &self,
        client: &Client,
        stored: &Stored,
        locked: &[String],
        before: Vec<i64>,
    ) -> Result<(), RunError> {
        let table = self.ready.relation.quoted();
        let sql = sql::hashes(&table, &self.ready.targets, self.hashes_whole_rows());
        let mut after: Vec<i64> = Vec::with_capacity(stored.ctids.len());
        for row in client.query_typed(&sql, &[(&stored.ctids, Type::TEXT_ARRAY)]).await? {
            after.push(row.try_get(0)?);
        }
        same(stored.rows, locked, before, after)
    }
}

/// Whether so many updated rows are those that were locked, and hold the same.
fn same(
    updated: u64,
    locked: &[String],
    mut before: Vec<i64>,
    mut after: Vec<i64>,
) -> Result<(), RunError> {
    if updated != before.len() as u64 {
        return Err(RunError::HeldBack { locked: before.len(), updated });
    }
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        let near = locked.first().cloned().unwrap_or_default();
        return Err(RunError::Changed { rows: before.len(), near });
    }
    Ok(())
}
