//! A batch by a policy: the rows are locked in the very version that the scan saw, the server
//! compresses copies of their values in the temporary table, and one UPDATE takes from there what the
//! policy wants compressed.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;

use super::error::RunError;
use super::policy_copies::fill_and_measure;
use super::scanner::address;
use super::table::Sweep;
use crate::disk::ItemPointer;
use crate::judge::Judge;
use crate::judge::policy::{Decision, Handover, Rule, Seen, Wanted};
use crate::retoast::sql::by_policy;
use crate::server::LiveError;
use crate::server::connect::Statement;

/// A locked row.
struct Locked {
    address: String,
    seen: Seen,
    /// What the policy makes of it; `None` as long as that depends on contents.
    wanted: Option<Vec<Wanted>>,
}

impl Locked {
    /// Whether the value of the `at`-th chosen column has to pass the temporary table.
    fn needs_copy(&self, at: usize) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| {
            wanted.get(at).is_some_and(|one| matches!(one.handover, Handover::Compressed(_)))
        })
    }
}

impl Sweep<'_> {
    /// What has to be there before the first batch: the temporary table and, where new values are to
    /// follow another setting than the sweep's, the sweep's.
    pub(crate) async fn prepare_batches(&self) -> Result<(), RunError> {
        let Judge::Policy(rule) = &self.ready.judge else { return Ok(()) };
        if self.ready.final_settings.is_some() {
            if !self.ready.changes.is_empty() {
                self.mark().await?;
            }
            self.set_choice().await?;
        }
        self.alter(&self.copies_table(rule)).await?;
        Ok(())
    }

    /// The statements that make the temporary table.
    pub(super) fn copies_table(&self, rule: &Rule) -> String {
        let table = self.ready.relation.quoted();
        let make = by_policy::make(&table, &self.ready.targets, &rule.methods);
        match self.ready.code.role() {
            Some(role) => format!("{make}; {}", by_policy::grant(role)),
            None => make,
        }
    }

    /// Sets what new values are to get, if the sweep may have set another or found another.
    pub(crate) async fn set_finally(&self, worked: bool) -> Result<(), RunError> {
        match &self.ready.final_settings {
            Some(last) if worked || !last.are_set => {
                if self.alter(&last.sql).await? {
                    self.watched.known().more_set = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The addresses of those locked rows that are still the versions the scan saw. `locked` is what
    /// [`by_policy::lock`] gave.
    ///
    /// An address alone would not do: the row may have been deleted, vacuumed and its place taken by
    /// another, whose values the decision does not fit.
    pub(crate) fn seen(&self, locked: &[tokio_postgres::Row]) -> Result<Vec<String>, RunError> {
        let mut addresses = Vec::with_capacity(locked.len());
        for row in locked {
            let (ctid, xmin): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let known = match xmin.parse() {
                Ok(xmin) => self.seen_rows.has(address(&ctid)?, xmin),
                Err(_) => false,
            };
            if known {
                addresses.push(ctid);
            }
        }
        Ok(addresses)
    }

    /// Stores locked rows that [`Sweep::seen`] gave as the policy wants them, by the prepared
    /// [`by_policy::update`]. Gives what the sweep's ordinary update gives.
    pub(crate) async fn store_by_rule(
        &self,
        rule: &Rule,
        addresses: &[String],
        update: &Statement,
    ) -> Result<Vec<tokio_postgres::Row>, RunError> {
        let client = self.writer.client();
        let targets = &self.ready.targets;
        let table = self.ready.relation.quoted();
        let mut locked = self.locked(rule, addresses)?;
        let mut lists: Vec<Vec<String>> = vec![addresses.to_vec()];
        for at in 0..targets.len() {
            let copied = locked.values().filter(|row| row.needs_copy(at));
            lists.push(copied.map(|row| row.address.clone()).collect());
        }
        let page = self.ready.model.page;
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
    ) -> Result<HashMap<ItemPointer, Locked>, LiveError> {
        let mut locked = HashMap::new();
        for text in addresses {
            let ctid = address(text)?;
            // it was there when the row was locked, and one sweep alone removes it
            let Some(seen) = self.seen_rows.at(ctid) else { continue };
            let wanted = self.wanted(rule, &seen);
            locked.insert(ctid, Locked { address: text.clone(), seen, wanted });
        }
        Ok(locked)
    }

    /// `None` if it depends on contents. A row that no server would take is left as it is wanted
    /// least: the server's own error tells why.
    fn wanted(&self, rule: &Rule, seen: &Seen) -> Option<Vec<Wanted>> {
        let targets: Vec<usize> = self.ready.targets.iter().map(|target| target.index).collect();
        if rule.lacks_content(&targets, seen) {
            return None;
        }
        match rule.decide(&self.ready.model, &targets, seen) {
            Decision::Forms(wanted) => Some(wanted),
            Decision::TooBig => Some(Vec::new()),
            Decision::Depends(_) => None,
        }
    }
}

/// What the UPDATE is told of one value.
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
