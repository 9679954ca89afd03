//! Rows that others hold nearly all the time: they are waited for.

use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};

use super::batch::Done;
use super::error::RunError;
use super::keys::Condition;
use super::machine::Row;
use super::table::Sweep;
use super::verify::Stored;
use crate::retoast::sql;

/// How often the longest wait for one lock a statement takes at the longest: it may wait for many, one
/// after the other.
const WAITS: u32 = 4;

impl Sweep<'_> {
    /// As a batch, for the rows that a condition finds. What others hold is waited for, no longer than
    /// any lock, and taken in the version that it has by then.
    pub(super) async fn insist(
        &self,
        job: usize,
        rows: &[Row],
        verify: bool,
        condition: &Condition,
    ) -> Result<Done, RunError> {
        let connection = self.connection(job);
        let client = connection.client();
        let table = self.ready.relation.quoted();
        let lock = sql::lock_held(&table, self.hashed_columns().as_deref(), &condition.sql);
        self.begin_batch(connection).await?;
        let limit = self.options.lock_timeout.saturating_mul(WAITS).max(Duration::from_millis(1));
        let set =
            format!("SET LOCAL statement_timeout = {}", limit.as_millis().min(i32::MAX as u128));
        client.batch_execute(&set).await?;
        let began = Instant::now();
        let (mut ctids, mut hashes): (Vec<String>, Vec<i64>) = (Vec::new(), Vec::new());
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = condition
            .parameters
            .iter()
            .map(|text| (text as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        match client.query_typed(&lock, &parameters).await {
            Ok(found) => {
                for row in found {
                    ctids.push(row.try_get(0)?);
                    hashes.push(row.try_get(1)?);
                }
            }
            Err(error) if began.elapsed() >= limit && is_canceled(&error) => {
                self.rollback(job).await?;
                return Ok(Done::Busy);
            }
            Err(error) => return Err(error.into()),
        }
        client.batch_execute("SET LOCAL statement_timeout = 0").await?;
        let update = sql::update(&table, &self.ready.targets);
        let stored = client.query_typed(&update, &[(&ctids, Type::TEXT_ARRAY)]).await?;
        let stored = Stored::read(&stored)?;
        if verify {
            self.compare(client, &stored, &ctids, hashes, &self.ready.computed()).await?;
        }
        client.batch_execute("COMMIT").await?;
        Ok(self.done(rows, &stored, if verify { stored.rows } else { 0 }))
    }
}

/// Whether the server canceled the statement.
fn is_canceled(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
}
