//! Sends statements to the server. All statements of the program pass through here and are logged by `tracing` with
//! their duration: their text, but neither parameters nor rows.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use futures_util::TryStreamExt;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{
    CancelToken, CopyOutStream, Error, Row, RowStream, SimpleQueryMessage, SimpleQueryRow,
};
use tracing::Level;

use super::life::Life;

/// Logged in place of a query given by the user, which may contain confidential data.
const OF_USER: &str = "(the user's own query)";

/// Appended to every statement of this program that returns rows, so that it can be recognized in `pg_stat_statements`
/// and in logs; `advise-threshold` leaves these statements out of the workload.
pub(crate) const OWN: &str = "/* toastctl */";

/// A parameter of a statement, with its type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Sends statements over one connection.
pub struct Client {
    driver: tokio_postgres::Client,
    life: Arc<Life>,
    /// Whether a statement began a transaction, and none has ended it.
    in_transaction: AtomicBool,
}

/// A statement that the server has parsed.
#[derive(Clone)]
pub struct Statement {
    parsed: tokio_postgres::Statement,
    sql: Arc<str>,
}

impl Client {
    pub(super) fn new(driver: tokio_postgres::Client, life: Arc<Life>) -> Client {
        Client { driver, life, in_transaction: AtomicBool::new(false) }
    }

    /// Returns the rows of a statement; each parameter has its type.
    ///
    /// # Errors
    /// Any error of the server, as in all these functions.
    pub async fn query_typed(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.traced(sql, self.driver.query_typed(&signed(sql), parameters)).await
    }

    /// Returns the first row of a statement.
    pub async fn row(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, Error> {
        Ok(self.query_typed(sql, parameters).await?.into_iter().next())
    }

    /// Returns the first value of a statement's first row.
    pub async fn value<T: for<'a> FromSql<'a>>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<T>, Error> {
        self.row(sql, parameters).await?.map(|row| row.try_get(0)).transpose()
    }

    /// Returns the number of rows that a statement has changed.
    pub async fn execute_typed(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        self.traced(sql, self.driver.execute_typed(&signed(sql), parameters)).await
    }

    /// Returns the rows of a statement one by one. The logged duration ends when the server begins to answer.
    pub async fn query_stream(&self, sql: &str) -> Result<RowStream, Error> {
        let none: [(&str, Type); 0] = [];
        self.traced(sql, self.driver.query_typed_raw(&signed(sql), none)).await
    }

    /// Has the server parse a statement.
    pub async fn prepare_typed(&self, sql: &str, types: &[Type]) -> Result<Statement, Error> {
        let parsed =
            self.told_as("prepare ", sql, self.driver.prepare_typed(&signed(sql), types)).await?;
        Ok(Statement { parsed, sql: sql.into() })
    }

    /// Returns the rows of a prepared statement.
    pub async fn query(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.traced(&statement.sql, self.driver.query(&statement.parsed, parameters)).await
    }

    /// Executes statements without parameters. A ROLLBACK outside of a transaction is not sent: the server would log a
    /// warning.
    pub async fn batch_execute(&self, sql: &str) -> Result<(), Error> {
        if sql == "ROLLBACK" && !self.in_transaction.load(Relaxed) {
            return Ok(());
        }
        self.traced(sql, self.driver.batch_execute(sql)).await
    }

    /// Returns the results of statements without parameters, as text.
    pub async fn simple_query(&self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        self.traced(sql, self.driver.simple_query(sql)).await
    }

    /// Returns the first row of a query given by the user, and whether it returned more than `most` rows. It does not
    /// wait for further rows, and the query runs until it is cancelled.
    pub async fn query_of_user(
        &self,
        sql: &str,
        most: usize,
    ) -> Result<(Option<SimpleQueryRow>, bool), Error> {
        let asked = async {
            let mut messages = std::pin::pin!(self.driver.simple_query_raw(sql).await?);
            let mut first = None;
            let mut rows = 0;
            while let Some(message) = messages.try_next().await? {
                if let SimpleQueryMessage::Row(row) = message {
                    first.get_or_insert(row);
                    rows += 1;
                }
                if rows > most {
                    return Ok((first, true));
                }
            }
            Ok((first, false))
        };
        self.traced(OF_USER, asked).await
    }

    /// Returns the output of `COPY … TO STDOUT`. The logged duration ends when the server begins to answer.
    pub async fn copy_out(&self, sql: &str) -> Result<CopyOutStream, Error> {
        self.traced(sql, self.driver.copy_out(sql)).await
    }

    /// Whether the connection is known to have ended.
    pub fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    pub(super) fn cancel_token(&self) -> CancelToken {
        self.driver.cancel_token()
    }

    /// The driver's client, for what the program itself does not do.
    pub fn driver(&self) -> &tokio_postgres::Client {
        &self.driver
    }

    async fn traced<T>(
        &self,
        sql: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.told_as("", sql, work).await
    }

    /// Runs `work` and logs it. For an error, only the SQLSTATE is logged, because the message may contain values.
    async fn told_as<T>(
        &self,
        what: &str,
        sql: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        if sql.starts_with("BEGIN") {
            self.in_transaction.store(true, Relaxed);
        }
        // the server ends the transaction also if nobody waits for its answer any more
        if ["COMMIT", "ROLLBACK"].contains(&sql) {
            self.in_transaction.store(false, Relaxed);
        }
        let done = work.await;
        if done.is_ok() && ["COMMIT", "ROLLBACK"].iter().any(|end| sql.ends_with(end)) {
            self.in_transaction.store(false, Relaxed);
        }
        self.life.end_statement();
        if !tracing::enabled!(Level::TRACE) {
            return done;
        }
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let sql = one_line(sql);
        match &done {
            Ok(_) => tracing::trace!("{ms:.1} ms: {what}{sql}"),
            Err(error) => {
                let code = error.code().map_or("lost", |code| code.code());
                tracing::trace!("{ms:.1} ms, error {code}: {what}{sql}");
            }
        }
        done
    }
}

fn signed(sql: &str) -> String {
    format!("{sql} {OWN}")
}

/// Joins the lines, without line breaks and the white space around them.
fn one_line(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_told_on_one_line() {
        assert_eq!(
            one_line("BEGIN;\n  SET a = 'b  c';\n\nSELECT 1"),
            "BEGIN; SET a = 'b  c'; SELECT 1"
        );
    }
}
