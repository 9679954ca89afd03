//! Proof that a batch changes no content: hashes of its rows before and after, in one transaction.

use futures_util::future::join3;
use tokio_postgres::types::{ToSql, Type};

use super::guard::Guard;
use super::session::Verify;
use crate::model::sql::quote_identifier;
use crate::retoast::error::{RetoastError, refused};
use crate::retoast::sql::{self, Target};
use crate::server::LiveError;
use crate::server::connect::Client;

/// With `--verify sample` one batch in this many is compared.
const SAMPLE: u64 = 32;

/// What an update tells of the rows that it stored.
pub(crate) struct Stored {
    pub(crate) rows: u64,
    /// The low half of the transaction's number, which is what tuple headers hold.
    pub(crate) xid: u32,
    /// Where they are now.
    pub(crate) ctids: Vec<String>,
}

impl Stored {
    pub(crate) fn read(rows: &[tokio_postgres::Row]) -> Result<Stored, LiveError> {
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

impl Guard<'_> {
    /// Whether the next batch's rows are compared, after so many. `computed`: the generated columns that it computes,
    /// by functions that may have been replaced since their values were stored.
    pub(crate) fn verifies(&self, batches: u64, computed: &[String]) -> bool {
        !computed.is_empty()
            || match self.session.options.verify {
                Verify::Off => false,
                Verify::Sample => batches.is_multiple_of(SAMPLE),
                Verify::Full => true,
            }
    }

    /// The columns that are compared, in SQL; whole rows but where a trigger fires, which may change other columns for
    /// reasons of its own.
    pub(crate) fn hashed_columns(&self) -> Option<Vec<String>> {
        let ready = self.ready;
        let computed = ready.generated_from(Some(&ready.set_columns()));
        let computed = computed.iter().map(|name| format!("t.{}", quote_identifier(name)));
        let columns = || ready.targets.iter().map(Target::column).chain(computed).collect();
        ready.code.triggers_fire().then(columns)
    }

    /// Locks those of the rows that nobody else has locked. Gives their addresses and hashes.
    pub(crate) async fn lock_and_hash(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<(Vec<String>, Vec<i64>), RetoastError> {
        let table = self.ready.relation.quoted();
        let sql = sql::lock_and_hash(&table, self.hashed_columns().as_deref());
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
    pub(crate) async fn store_and_compare(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<Stored, RetoastError> {
        let table = self.ready.relation.quoted();
        let [lock, update, hashes] =
            sql::verified(&table, &self.ready.targets, self.hashed_columns().as_deref());
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
        same(stored.rows, &locked, before, after, &self.ready.computed())?;
        Ok(stored)
    }

    /// Whether the rows hold now what they held when they were locked. `computed`: the generated columns that the update
    /// has computed.
    pub(crate) async fn compare(
        &self,
        client: &Client,
        stored: &Stored,
        locked: &[String],
        before: Vec<i64>,
        computed: &[String],
    ) -> Result<(), RetoastError> {
        let table = self.ready.relation.quoted();
        let sql = sql::hashes(&table, self.hashed_columns().as_deref());
        let mut after: Vec<i64> = Vec::with_capacity(stored.ctids.len());
        for row in client.query_typed(&sql, &[(&stored.ctids, Type::TEXT_ARRAY)]).await? {
            after.push(row.try_get(0)?);
        }
        same(stored.rows, locked, before, after, computed)
    }
}

/// Whether so many updated rows are those that were locked, and hold the same.
fn same(
    updated: u64,
    locked: &[String],
    mut before: Vec<i64>,
    mut after: Vec<i64>,
    computed: &[String],
) -> Result<(), RetoastError> {
    if updated != before.len() as u64 {
        return refused(format!(
            "{updated} of {} locked rows were updated: a trigger or rule holds rows back",
            before.len()
        ));
    }
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        let near = locked.first().cloned().unwrap_or_default();
        let generated = match computed {
            [] => String::new(),
            names => format!(
                "\n\
                 HINT:  The UPDATE recomputes generated columns ({}). If a result differs from the stored value, a \
                 function was changed since: recompute these columns first.",
                names.join(", ")
            ),
        };
        return Err(RetoastError::OfAll(format!(
            "contents of {} rows near {near} would have changed: the batch was rolled back, and the run \
             ends{generated}",
            before.len()
        )));
    }
    Ok(())
}
