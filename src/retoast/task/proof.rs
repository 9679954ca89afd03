//! Proof that a batch changes no content: the hashes of its rows before and after, computed in one transaction.

use futures_util::future::join3;
use tokio_postgres::types::{ToSql, Type};

use super::guard::Guard;
use super::session::Verify;
use crate::retoast::error::{Result, RetoastError, refused};
use crate::retoast::sql::{self, Target};
use crate::server::{Client, LiveError, LiveResult};
use toast_format::model::sql::quote_identifier;

/// With `--verify sample`, one batch in this number is compared.
const SAMPLE: u64 = 32;

/// What an UPDATE returns about the rows that it stored.
pub(crate) struct Stored {
    pub(crate) rows: u64,
    /// The low 32 bits of the transaction ID, as in tuple headers.
    pub(crate) xid: u32,
    /// The new addresses of the rows.
    pub(crate) ctids: Vec<String>,
}

impl Stored {
    pub(crate) fn read(rows: &[tokio_postgres::Row]) -> LiveResult<Stored> {
        let Some(row) = rows.first() else {
            return Err(LiveError::Unexpected("no row about the batch".to_owned()));
        };
        let count: i64 = row.try_get(0)?;
        let xid: &str = row.try_get(1)?;
        let Ok(full_xid) = xid.parse::<u64>() else {
            return Err(LiveError::Unexpected(format!("transaction \"{xid}\"")));
        };
        let rows = u64::try_from(count).unwrap_or(0);
        Ok(Stored { rows, xid: full_xid as u32, ctids: row.try_get(2)? })
    }
}

impl Guard<'_> {
    /// Whether to compare the rows of the next batch, after this number of batches. `computed`: the generated columns
    /// that it computes, whose functions may have been replaced since their values were stored.
    pub(crate) fn verifies(&self, batches: u64, computed: &[String]) -> bool {
        !computed.is_empty()
            || match self.session.options.verify {
                Verify::Off => false,
                Verify::Sample => batches.is_multiple_of(SAMPLE),
                Verify::Full => true,
            }
    }

    /// The columns to compare, in SQL; `None` to compare whole rows. If a trigger fires, only these columns are
    /// compared, because the trigger may change others.
    pub(crate) fn hashed_columns(&self) -> Option<Vec<String>> {
        let ready = self.ready;
        if !ready.code.triggers_fire() {
            return None;
        }
        let mut columns: Vec<String> = ready.targets.iter().map(Target::column).collect();
        for name in ready.generated_from(Some(&ready.set_columns())) {
            columns.push(format!("t.{}", quote_identifier(&name)));
        }
        Some(columns)
    }

    /// Locks the rows that no other session has locked. Returns their addresses and hashes.
    pub(crate) async fn lock_and_hash(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<(Vec<String>, Vec<i64>)> {
        let table = self.ready.relation.quoted();
        let sql = sql::lock_and_hash(&table, self.hashed_columns().as_deref());
        let locked = client.query_typed(&sql, &[(addresses, Type::TEXT_ARRAY)]).await?;
        let mut ctids = Vec::new();
        let mut hashes = Vec::new();
        for row in &locked {
            ctids.push(row.try_get(0)?);
            hashes.push(row.try_get(1)?);
        }
        Ok((ctids, hashes))
    }

    /// Locks the rows that no other session has locked, re-toasts them and compares their contents. All statements are
    /// sent together, so that a client that stalls does not keep rows locked.
    pub(crate) async fn store_and_compare(
        &self,
        client: &Client,
        addresses: &Vec<String>,
    ) -> Result<Stored> {
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
        let locked: Vec<String> = row.try_get(0)?;
        let before: Vec<i64> = row.try_get(1)?;
        let after = now?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        same(stored.rows, &locked, before, after, &self.ready.computed())?;
        Ok(stored)
    }

    /// Checks that the rows hold the same contents as when they were locked. `computed`: the generated columns that the
    /// update has computed.
    pub(crate) async fn compare(
        &self,
        client: &Client,
        stored: &Stored,
        locked: &[String],
        before: Vec<i64>,
        computed: &[String],
    ) -> Result<()> {
        let table = self.ready.relation.quoted();
        let sql = sql::hashes(&table, self.hashed_columns().as_deref());
        let mut after: Vec<i64> = Vec::with_capacity(stored.ctids.len());
        for row in client.query_typed(&sql, &[(&stored.ctids, Type::TEXT_ARRAY)]).await? {
            after.push(row.try_get(0)?);
        }
        same(stored.rows, locked, before, after, computed)
    }
}

/// Checks that the updated rows are exactly the locked ones, with the same contents.
fn same(
    updated: u64,
    locked: &[String],
    mut before: Vec<i64>,
    mut after: Vec<i64>,
    computed: &[String],
) -> Result<()> {
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
        return Err(RetoastError::end_run(format!(
            "contents of {} rows near {near} would have changed: the batch was rolled back, and the run \
             ends{generated}",
            before.len()
        )));
    }
    Ok(())
}
