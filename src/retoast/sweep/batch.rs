//! One transaction that re-toasts rows.

use std::time::Instant;

use futures_util::future::{join, join3, join4};
use tokio_postgres::types::{ToSql, Type};

use super::error::RunError;
use super::keys::Condition;
use super::machine::Row;
use super::refused::Reason;
use super::table::Sweep;
use super::verify::Stored;
use crate::judge::Judge;
use crate::retoast::check::definition::has_changed;
use crate::retoast::sql::{self, by_policy};
use crate::server::LiveError;
use crate::server::connect::{Client, Connection, Statement};
use crate::server::sqlstate::ErrorKind;

/// What became of a batch.
pub(in crate::retoast) enum Done {
    Stored { rows: u64, verified: u64, xid: u32 },
    Busy,
    Refused(Reason),
}

/// How a batch begins.
struct Beginning {
    /// Begins the transaction and takes the lock.
    sql: String,
    /// Says whether the table is what it was.
    check: Statement,
}

/// The statements of a batch.
struct Statements {
    prune: Statement,
    /// By a policy: locks the rows and tells which versions they are.
    lock: Option<Statement>,
    update: Statement,
    /// Looks for old index entries, if that helps.
    look: Option<Statement>,
}

impl Sweep<'_> {
    /// One transaction that re-toasts rows: those that nobody else has locked, or all that a condition finds.
    pub(super) async fn batch(
        &self,
        job: usize,
        rows: &[Row],
        verify: bool,
        insist_on: Option<&Condition>,
    ) -> Result<Done, RunError> {
        let batch = async || match insist_on {
            Some(condition) => self.insist(job, rows, verify, condition).await,
            None => self.try_marking(job, async || self.try_batch(job, rows, verify).await).await,
        };
        let tried = self.unless_changed(job, batch).await;
        // a commit that was sent already has rolled it back
        let open = insist_on.is_some() || !self.goes_at_once(verify);
        self.settled(job, tried, open).await
    }

    /// What became of a transaction that was tried, which is rolled back after an error. `open`: whether one of
    /// the server leaves it open.
    pub(in crate::retoast) async fn settled(
        &self,
        job: usize,
        tried: Result<Done, RunError>,
        open: bool,
    ) -> Result<Done, RunError> {
        match tried {
            Err(RunError::Live(LiveError::Server(error))) => {
                let kind = ErrorKind::of(&error);
                if kind == ErrorKind::Fatal {
                    return Err(error.into());
                }
                if open {
                    self.rollback(job).await?;
                }
                Ok(match kind {
                    ErrorKind::Busy => Done::Busy,
                    _ => Done::Refused(Reason::of(&error)),
                })
            }
            Err(error) => {
                // if that fails too the connection is gone, as the next statement will say
                let _ = self.rollback(job).await;
                Err(error)
            }
            stored => stored,
        }
    }

    pub(in crate::retoast) async fn rollback(&self, job: usize) -> Result<(), RunError> {
        Ok(self.connection(job).client().batch_execute("ROLLBACK").await?)
    }

    pub(super) async fn try_batch(
        &self,
        job: usize,
        rows: &[Row],
        verify: bool,
    ) -> Result<Done, RunError> {
        let connection = self.connection(job);
        let client = connection.client();
        let statements = self.statements(connection).await?;
        let beginning = self.beginning(connection).await?;
        let blocks = rows.iter().map(|row| row.ctid.block.0);
        let first = format!("({},0)", blocks.clone().min().unwrap_or(0));
        let end = format!("({},0)", blocks.max().unwrap_or(0).saturating_add(1));
        let addresses: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        // What is joined is sent together, without waiting for answers: after an error in the transaction
        // the server skips the rest, the commit too, and an update without its beginning finds no row.
        let range: [&(dyn ToSql + Sync); 2] = [&first, &end];
        let prune = self.make_room(client, &statements, &range);
        let all: [&(dyn ToSql + Sync); 1] = [&addresses];
        let (stored, before) = match (&self.ready.judge, &statements.lock) {
            (Judge::Policy(rule), Some(lock)) => {
                let plan = client.batch_execute(by_policy::PLAN_BY_ADDRESS);
                let (locked, pruned, planned, seen) =
                    join4(self.begin_as(client, &beginning), prune, plan, client.query(lock, &all))
                        .await;
                locked?;
                pruned?;
                planned?;
                let seen = self.seen(&seen?)?;
                let before = match verify {
                    true => Some(self.lock_and_hash(client, &seen).await?),
                    false => None,
                };
                let ctids = before.as_ref().map_or(&seen, |(ctids, _)| ctids);
                (Stored::read(&self.store_by_rule(rule, ctids, &statements.update).await?)?, before)
            }
            _ if self.goes_at_once(verify) => {
                let update = client.query(&statements.update, &all);
                let commit = client.batch_execute("COMMIT");
                let (locked, pruned, stored, committed) =
                    join4(self.begin_as(client, &beginning), prune, update, commit).await;
                locked?;
                pruned?;
                let stored = Stored::read(&stored?)?;
                committed?;
                return Ok(self.moved(rows, &stored, 0));
            }
            _ => {
                let store = self.store_and_compare(client, &addresses);
                let (locked, pruned, stored) =
                    join3(self.begin_as(client, &beginning), prune, store).await;
                locked?;
                pruned?;
                (stored?, None)
            }
        };
        if let Some((ctids, hashes)) = before {
            self.compare(client, &stored, &ctids, hashes, &self.ready.computed()).await?;
        }
        client.batch_execute("COMMIT").await?;
        Ok(self.moved(rows, &stored, if verify { stored.rows } else { 0 }))
    }

    /// Whether a batch is sent whole, to its commit, since nothing in it is looked at on the way.
    pub(super) fn goes_at_once(&self, verify: bool) -> bool {
        !verify && !self.ready.judge.needs_copies()
    }

    /// What a batch does before it takes rows: makes room on their pages, and in indexes for what batches before
    /// it have moved.
    async fn make_room(
        &self,
        client: &Client,
        statements: &Statements,
        range: &[&(dyn ToSql + Sync); 2],
    ) -> Result<(), RunError> {
        let prune = async { (client.query(&statements.prune, range).await, Instant::now()) };
        let mark = self.mark_old_entries(client, statements.look.as_ref());
        let mark = async { (mark.await, Instant::now()) };
        // the answers come one after the other
        let ((pruned, then), (marked, now)) = join(prune, mark).await;
        pruned?;
        if marked? {
            self.old_entries.looked(now.saturating_duration_since(then));
        }
        Ok(())
    }

    /// As [`Sweep::done`], with the rows' old index entries to be marked later.
    fn moved(&self, rows: &[Row], stored: &Stored, verified: u64) -> Done {
        self.old_entries.note(rows.iter().map(|row| row.ctid.block.0), &stored.ctids);
        self.done(rows, stored, verified)
    }

    /// Tries a batch, and once more if it was marking old entries that has failed.
    async fn try_marking(
        &self,
        job: usize,
        batch: impl AsyncFn() -> Result<Done, RunError>,
    ) -> Result<Done, RunError> {
        let began = Instant::now();
        let tried = batch().await;
        if tried.is_err() && self.old_entries.has_failed() {
            self.rollback(job).await?;
            return batch().await;
        }
        self.judge_marking(began.elapsed());
        tried
    }

    pub(super) fn done(&self, rows: &[Row], stored: &Stored, verified: u64) -> Done {
        self.seen_rows.forget(rows);
        Done::Stored { rows: stored.rows, verified, xid: stored.xid }
    }

    /// Begins a batch's transaction, takes the table's lock, and looks whether anybody has written the
    /// table's definition: if so, the transaction fails.
    pub(in crate::retoast) async fn begin_batch(
        &self,
        connection: &Connection,
    ) -> Result<(), RunError> {
        let beginning = self.beginning(connection).await?;
        self.begin_as(connection.client(), &beginning).await
    }

    /// How it is begun. Before anything is sent together with it, since the server may have to be asked.
    async fn beginning(&self, connection: &Connection) -> Result<Beginning, RunError> {
        let (sql, check) = self.how_to_begin();
        // it looks into the catalogs alone, whose locks nobody holds
        let check = connection.prepared(&check, &[]).await?;
        Ok(Beginning { sql, check })
    }

    async fn begin_as(&self, client: &Client, beginning: &Beginning) -> Result<(), RunError> {
        let locked = async {
            let began = Instant::now();
            let locked = client.batch_execute(&beginning.sql).await;
            self.keeper.lock_waited(began.elapsed());
            locked
        };
        let (locked, checked) = join(locked, client.query(&beginning.check, &[])).await;
        locked?;
        match checked {
            Err(error) if has_changed(&error) => Err(RunError::Changing),
            checked => Ok(checked.map(drop)?),
        }
    }

    /// The statements of all batches, prepared once on each connection: where the table's lock is held,
    /// since the server takes one to parse them and here waits no longer than it should.
    async fn statements(&self, connection: &Connection) -> Result<Statements, RunError> {
        let (table, targets) = (self.ready.relation.quoted(), &self.ready.targets);
        let prune = sql::prune(&table);
        let (lock, update, parameters) = match &self.ready.judge {
            Judge::Forms(_) | Judge::Keep => {
                (None, sql::update(&table, targets), vec![Type::TEXT_ARRAY])
            }
            Judge::Policy(rule) => (
                Some(by_policy::lock(&table)),
                by_policy::update(&table, targets, &rule.methods),
                vec![Type::INT2_ARRAY; targets.len()],
            ),
        };
        let look = self.old_entries.look();
        let parse = async || -> Result<Statements, RunError> {
            Ok(Statements {
                prune: connection.prepared(&prune, &[Type::TEXT, Type::TEXT]).await?,
                lock: match &lock {
                    Some(lock) => Some(connection.prepared(lock, &[Type::TEXT_ARRAY]).await?),
                    None => None,
                },
                update: connection.prepared(&update, &parameters).await?,
                look: match &look {
                    Some(look) => Some(connection.prepared(look, &[Type::TEXT_ARRAY]).await?),
                    None => None,
                },
            })
        };
        let mut texts =
            [Some(&prune), lock.as_ref(), Some(&update), look.as_ref()].into_iter().flatten();
        if texts.all(|sql| connection.knows(sql)) {
            return parse().await;
        }
        let parsed = async {
            self.begin_batch(connection).await?;
            parse().await
        };
        let parsed = parsed.await;
        let ended = connection.client().batch_execute("ROLLBACK").await;
        let statements = parsed?;
        ended?;
        Ok(statements)
    }
}
