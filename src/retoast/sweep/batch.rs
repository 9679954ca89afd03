//! One transaction that re-toasts rows.
//!
//! With a policy, the rows are locked in exactly the versions that the scan saw, the server compresses copies of
//! their values in a temporary table, and one UPDATE takes from there what the policy wants compressed. For rows that
//! other sessions lock nearly all the time, a batch waits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::{join, join3, join4};
use tokio_postgres::types::{ToSql, Type};

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::sql;
use crate::retoast::sql::by_policy;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::keys::Condition;
use crate::retoast::sweep::machine::Row;
use crate::retoast::sweep::policy_scan::fill_and_measure;
use crate::retoast::task::guard::{BatchEnd, Guard, Opening};
use crate::retoast::task::proof::Stored;
use crate::server::chunks::address;
use crate::server::connect::Statement;
use crate::server::{Client, LiveResult, Parameter};
use toast_format::disk::ItemPointer;
use toast_format::judge::Judge;
use toast_format::judge::policy::{Decision, Handover, Rule, Seen, Wanted};

/// A statement that waits for rows may take this many times the lock timeout, because it may have to wait for several
/// locks in turn.
const WAITS: u32 = 4;

/// The statements of a batch.
struct BatchStatements {
    prune: Statement,
    /// If rows are taken only in the versions that the scan has seen: locks them and returns their versions.
    lock: Option<Statement>,
    update: Statement,
    /// Finds old index entries, if that helps.
    look: Option<Statement>,
}

/// A row that the batch has locked.
struct Locked {
    address: String,
    seen: Seen,
    /// How the policy wants its values stored; `None` as long as that depends on their content.
    wanted: Option<Vec<Wanted>>,
}

impl Locked {
    /// Whether the value of the `at`-th chosen column must pass through the temporary table.
    fn needs_copy(&self, at: usize) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| {
            wanted.get(at).is_some_and(|one| matches!(one.handover, Handover::Compressed(_)))
        })
    }
}

impl Conversion<'_> {
    /// One transaction that re-toasts rows: those that no other session has locked, or all that `insist_on` finds.
    pub(super) async fn batch(
        &self,
        job: usize,
        rows: &[Row],
        verify: bool,
        insist_on: Option<&Condition>,
    ) -> Result<BatchEnd> {
        let done = self
            .guard
            .batch(job, async |opening: &Opening<'_>| match insist_on {
                Some(condition) => self.insist(opening, rows, verify, condition).await,
                None => self.try_marking(opening, job, rows, verify).await,
            })
            .await;
        // after another error, the connection may have ended while the server was reading
        if !matches!(done, Err(RetoastError::Live(_))) {
            self.seen_rows.readings.has_read(job);
        }
        done
    }

    /// Whether a batch takes rows only in the versions that the scan has seen: because of what it has found about
    /// their values.
    pub(super) fn needs_versions(&self) -> bool {
        self.choice.judge.needs_copies() || self.seen_rows.readings.comparison().is_some()
    }

    /// Tries a batch, and tries it again if marking dead index entries was what failed.
    async fn try_marking(
        &self,
        opening: &Opening<'_>,
        job: usize,
        rows: &[Row],
        verify: bool,
    ) -> Result<BatchEnd> {
        let began = Instant::now();
        let tried = self.try_batch(opening, job, rows, verify).await;
        if tried.is_err() && self.dead_entries.has_failed() {
            opening.rollback().await?;
            return self.try_batch(opening, job, rows, verify).await;
        }
        self.dead_entries.judge_batch(began.elapsed(), &self.guard.name());
        tried
    }

    async fn try_batch(
        &self,
        opening: &Opening<'_>,
        job: usize,
        rows: &[Row],
        verify: bool,
    ) -> Result<BatchEnd> {
        let client = opening.client();
        let guard = &self.guard;
        let statements = self.statements(job).await?;
        let blocks = rows.iter().map(|row| row.ctid.block.0);
        let first = format!("({},0)", blocks.clone().min().unwrap_or(0));
        let end = format!("({},0)", blocks.max().unwrap_or(0).saturating_add(1));
        let addresses: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        // Joined statements are sent together, without waiting for answers. After an error in the transaction, the
        // server skips the rest including the COMMIT, and an UPDATE without its opening finds no row.
        let range: [&(dyn ToSql + Sync); 2] = [&first, &end];
        let prune = self.make_room(client, &statements, &range);
        let all: [&(dyn ToSql + Sync); 1] = [&addresses];
        let (stored, before) = match &statements.lock {
            Some(lock) => {
                let plan = client.batch_execute(by_policy::PLAN_BY_ADDRESS);
                let (opened, pruned, planned, locked) =
                    join4(opening.send(), prune, plan, client.query(lock, &all)).await;
                opened?;
                pruned?;
                planned?;
                let alike = self.read_alike(client, job, &self.unchanged_rows(&locked?)?).await?;
                let seen = &alike.rows;
                let before =
                    if verify { Some(guard.lock_and_hash(client, seen).await?) } else { None };
                let ctids = before.as_ref().map_or(seen, |(ctids, _)| ctids);
                let stored = match &self.choice.judge {
                    Judge::Policy(rule) => {
                        self.store_by_rule(client, rule, ctids, &statements.update).await?
                    }
                    Judge::Forms(_) => client.query(&statements.update, &[ctids]).await?,
                };
                let stored = Stored::read(&stored)?;
                if let Some(end) = self.stored_alike(opening, &alike, &stored).await? {
                    return Ok(end);
                }
                (stored, before)
            }
            // nothing in this batch is checked before its commit
            None if !verify => {
                let update = client.query(&statements.update, &all);
                let (opened, pruned, stored, committed) =
                    join4(opening.send(), prune, update, opening.commit()).await;
                opened?;
                pruned?;
                let stored = Stored::read(&stored?)?;
                committed?;
                return Ok(self.moved(rows, &stored, 0));
            }
            None => {
                let store = guard.store_and_compare(client, &addresses);
                let (opened, pruned, stored) = join3(opening.send(), prune, store).await;
                opened?;
                pruned?;
                (stored?, None)
            }
        };
        if let Some((ctids, hashes)) = before {
            guard.compare(client, &stored, &ctids, hashes, &guard.ready.computed()).await?;
        }
        opening.commit().await?;
        Ok(self.moved(rows, &stored, if verify { stored.rows } else { 0 }))
    }

    /// What a batch does before it updates rows: makes room on their pages, and, in indexes, marks the entries of
    /// rows that earlier batches have moved.
    async fn make_room(
        &self,
        client: &Client,
        statements: &BatchStatements,
        range: &[&(dyn ToSql + Sync); 2],
    ) -> Result<()> {
        let prune = async { (client.query(&statements.prune, range).await, Instant::now()) };
        let mark = self.dead_entries.mark(client, statements.look.as_ref(), &self.guard);
        let mark = async { (mark.await, Instant::now()) };
        // the answers arrive one after the other
        let ((pruned, then), (marked, now)) = join(prune, mark).await;
        pruned?;
        if marked? {
            self.dead_entries.looked(now.saturating_duration_since(then));
        }
        Ok(())
    }

    /// Like [`Conversion::done`], but also records that the rows' old index entries must be marked later.
    fn moved(&self, rows: &[Row], stored: &Stored, verified: u64) -> BatchEnd {
        self.dead_entries.note(rows.iter().map(|row| row.ctid.block.0), &stored.ctids);
        self.done(rows, stored, verified)
    }

    fn done(&self, rows: &[Row], stored: &Stored, verified: u64) -> BatchEnd {
        self.seen_rows.forget(rows);
        BatchEnd::Stored { rows: stored.rows, verified, xid: stored.xid }
    }

    async fn statements(&self, job: usize) -> Result<BatchStatements> {
        const ADDRESSES: &[Type] = &[Type::TEXT_ARRAY];
        let guard = &self.guard;
        let table = guard.ready.relation.quoted();
        let targets = &guard.ready.targets;
        let prune = sql::prune(&table);
        let (update, parameters) = match &self.choice.judge {
            Judge::Forms(_) => (sql::update(&table, targets), ADDRESSES.to_vec()),
            Judge::Policy(rule) => (
                by_policy::update(&table, targets, &rule.methods),
                vec![Type::INT2_ARRAY; targets.len()],
            ),
        };
        let mut lock = None;
        if self.needs_versions() {
            lock = Some(guard.statement(job, &by_policy::lock(&table), ADDRESSES).await?);
        }
        let mut look = None;
        if let Some(sql) = self.dead_entries.visit_statement() {
            look = Some(guard.statement(job, &sql, ADDRESSES).await?);
        }
        Ok(BatchStatements {
            prune: guard.statement(job, &prune, &[Type::TEXT, Type::TEXT]).await?,
            update: guard.statement(job, &update, &parameters).await?,
            lock,
            look,
        })
    }

    /// Like an ordinary batch, for the rows that a condition finds. It waits for locked rows up to a limit, and takes
    /// them in the versions that they have by then.
    async fn insist(
        &self,
        opening: &Opening<'_>,
        rows: &[Row],
        verify: bool,
        condition: &Condition,
    ) -> Result<BatchEnd> {
        let (client, Guard { session, ready, .. }) = (opening.client(), self.guard);
        let table = ready.relation.quoted();
        let hashed = self.guard.hashed_columns();
        let lock = sql::lock_held(&table, hashed.as_deref(), &condition.sql);
        opening.send().await?;
        let limit =
            session.options.lock_timeout.saturating_mul(WAITS).max(Duration::from_millis(1));
        let set =
            format!("SET LOCAL statement_timeout = {}", limit.as_millis().min(i32::MAX as u128));
        client.batch_execute(&set).await?;
        let began = Instant::now();
        let mut ctids: Vec<String> = Vec::new();
        let mut hashes: Vec<i64> = Vec::new();
        let parameters: Vec<Parameter<'_>> = condition
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
                opening.rollback().await?;
                return Ok(BatchEnd::Busy);
            }
            Err(error) => return Err(error.into()),
        }
        client.batch_execute("SET LOCAL statement_timeout = 0").await?;
        let update = sql::update(&table, &ready.targets);
        let stored = client.query_typed(&update, &[(&ctids, Type::TEXT_ARRAY)]).await?;
        let stored = Stored::read(&stored)?;
        if verify {
            self.guard.compare(client, &stored, &ctids, hashes, &ready.computed()).await?;
        }
        opening.commit().await?;
        Ok(self.done(rows, &stored, if verify { stored.rows } else { 0 }))
    }

    /// Sets up what the first batch needs: the temporary table and, if new values are to follow settings other than
    /// the sweep's, the sweep's settings.
    pub(crate) async fn prepare_batches(&self) -> Result<()> {
        let Judge::Policy(rule) = &self.choice.judge else { return Ok(()) };
        if self.choice.final_settings.is_some() {
            if !self.choice.changes.is_empty() {
                self.guard.mark().await?;
            }
            self.set_choice().await?;
        }
        self.guard.alter(&self.copies_table(rule)).await?;
        Ok(())
    }

    /// The statements that create the temporary table.
    fn copies_table(&self, rule: &Rule) -> String {
        let table = self.guard.ready.relation.quoted();
        let make = by_policy::make(&table, &self.guard.ready.targets, &rule.methods);
        match self.guard.ready.code.role() {
            Some(role) => format!("{make}; {}", by_policy::grant(role)),
            None => make,
        }
    }

    /// Sets what new values should get, if the sweep may have changed it or it was not set before. What another session has
    /// set meanwhile stays, which is an error.
    pub(crate) async fn set_finally(&self, worked: bool) -> Result<()> {
        match &self.choice.final_settings {
            Some(last) if worked || !last.are_set => {
                self.guard.settings_are_ours().await?;
                self.keep_former(&last.changes)?;
                self.guard.change(&last.changes, true).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The addresses and inserting transactions of those locked rows that are still in the versions that the scan saw.
    /// `locked` is the result of [`by_policy::lock`].
    ///
    /// The address is not sufficient: the row may have been deleted and vacuumed, and its place taken by another row,
    /// to which what the scan has found does not apply.
    fn unchanged_rows(&self, locked: &[tokio_postgres::Row]) -> Result<Vec<(ItemPointer, u32)>> {
        let is_by_rule = self.choice.judge.needs_copies();
        let mut seen = Vec::with_capacity(locked.len());
        for row in locked {
            let ctid: String = row.try_get(0)?;
            let xmin: String = row.try_get(1)?;
            let (ctid, Ok(xmin)) = (address(&ctid)?, xmin.parse()) else { continue };
            // without a policy, the readings are those of versions
            if !is_by_rule || self.seen_rows.has(ctid, xmin) {
                seen.push((ctid, xmin));
            }
        }
        Ok(seen)
    }

    /// Stores locked rows, found by [`Conversion::unchanged_rows`], as the policy wants them, with the prepared
    /// [`by_policy::update`]. The result is like that of the sweep's ordinary update.
    async fn store_by_rule(
        &self,
        client: &Client,
        rule: &Rule,
        addresses: &[String],
        update: &Statement,
    ) -> Result<Vec<tokio_postgres::Row>> {
        let targets = &self.guard.ready.targets;
        let table = self.guard.ready.relation.quoted();
        let mut locked = self.locked(rule, addresses)?;
        let mut lists: Vec<Vec<String>> = vec![addresses.to_vec()];
        for at in 0..targets.len() {
            let copied = locked.values().filter(|row| row.needs_copy(at));
            lists.push(copied.map(|row| row.address.clone()).collect());
        }
        let page = self.choice.model.page;
        let copies = fill_and_measure(client, &table, targets, rule, page, &lists).await?;
        let mut codes: Vec<Vec<i16>> =
            vec![vec![by_policy::PLAIN; copies.rows.len()]; targets.len()];
        for copy in copies.rows {
            let Some(row) = locked.get_mut(&copy.ctid) else { continue };
            for (old, new) in row.seen.contents.iter_mut().zip(copy.contents) {
                if old.is_none() {
                    *old = new;
                }
            }
            let wanted = match row.wanted.take() {
                Some(wanted) => wanted,
                None => self.wanted(rule, &row.seen).unwrap_or_default(),
            };
            let number = usize::try_from(copy.number).unwrap_or(0);
            for ((at, one), codes) in wanted.iter().enumerate().zip(&mut codes) {
                if let Some(code) = number.checked_sub(1).and_then(|n| codes.get_mut(n)) {
                    *code = code_of(rule, at, one.handover);
                }
            }
        }
        let parameters: Vec<&(dyn ToSql + Sync)> =
            codes.iter().map(|codes| codes as &(dyn ToSql + Sync)).collect();
        let stored = client.query(update, &parameters).await?;
        if copies.is_full {
            client.batch_execute(by_policy::EMPTY).await?;
        }
        Ok(stored)
    }

    fn locked(
        &self,
        rule: &Rule,
        addresses: &[String],
    ) -> LiveResult<HashMap<ItemPointer, Locked>> {
        let mut locked = HashMap::new();
        for text in addresses {
            let ctid = address(text)?;
            // it existed when the row was locked, and no other sweep removes it
            let Some(seen) = self.seen_rows.at(ctid) else { continue };
            let wanted = self.wanted(rule, &seen);
            locked.insert(ctid, Locked { address: text.clone(), seen, wanted });
        }
        Ok(locked)
    }

    /// How the policy wants a row stored; `None` if that depends on its content. For a row that no server would
    /// accept, the result is empty, so that the server's own error explains why.
    fn wanted(&self, rule: &Rule, seen: &Seen) -> Option<Vec<Wanted>> {
        let targets: Vec<usize> =
            self.guard.ready.targets.iter().map(|target| target.index).collect();
        if rule.lacks_content(&targets, seen) {
            return None;
        }
        match rule.decide(&self.choice.model, &targets, seen) {
            Decision::Forms(wanted) => Some(wanted),
            Decision::TooBig => Some(Vec::new()),
            Decision::Depends(_) => None,
        }
    }
}

/// The code by which the UPDATE learns how to store a value.
fn code_of(rule: &Rule, at: usize, handover: Handover) -> i16 {
    match handover {
        Handover::Keep => by_policy::KEEP,
        Handover::Plain => by_policy::PLAIN,
        Handover::Compressed(method) => {
            let methods = rule.methods.get(at).map_or(&[][..], |choice| choice.methods());
            let of = methods.iter().position(|&one| one == method);
            of.and_then(|of| i16::try_from(of + 1).ok()).unwrap_or(by_policy::PLAIN)
        }
    }
}

/// Whether the server cancelled the statement.
fn is_canceled(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
}
