//! Scans with a policy: the facts about a row, and the results of compressing copies of its values in a temporary
//! table.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use futures_util::future::join;
use tokio_postgres::types::Type;

use crate::retoast::sql;
use crate::retoast::sql::by_policy;
use crate::retoast::sweep::machine::Row;
use crate::retoast::sweep::scanner::{JUDGED_BYTES, Open, Scanned, Scanner, Share};
use crate::server::chunks::{address, transaction};
use crate::server::probe::Probe;
use crate::server::{Client, LiveResult, Moment, Parameter, functions};
use toast_format::disk::{ItemPointer, PageSize};
use toast_format::judge::policy::{Content, Decision, Rule, Seen, Wanted, is_foreign};
use toast_format::model::policy::CompressedSizes;
use toast_format::model::stored::Placement;
use toast_format::model::{Form, MethodChoice, StoredValue};

impl Scanner<'_> {
    /// Like [`Scanner::chunk_at_once`], with a policy.
    pub(super) async fn read_by_rule(
        &mut self,
        rule: &Rule,
        moment: &Moment,
        blocks: Range<u32>,
    ) -> LiveResult<()> {
        self.by_rule.next_xid = moment.snapshot.next_xid();
        self.by_rule.open.clear();
        self.by_rule.inner = self.rows_with_compressed_fields(blocks.clone()).await?;
        match self.pages {
            Some(_) => self.read_pages(moment, blocks).await?,
            None => self.rows_by_functions(rule, &blocks).await?,
        }
        let mut open = std::mem::take(&mut self.by_rule.open);
        open.retain(|open| self.may_ask(open.row.ctid));
        while !open.is_empty() {
            open = self.ask(rule, open).await?;
        }
        Ok(())
    }

    pub(super) async fn rows_with_compressed_fields(
        &self,
        blocks: Range<u32>,
    ) -> LiveResult<HashSet<ItemPointer>> {
        let table = self.ready.relation.quoted();
        let mut found = HashSet::new();
        if let Some(sql) = sql::hidden(&table, self.choice.toaster, &self.ready.targets, blocks) {
            for row in self.connection.client().query_typed(&sql, &[]).await? {
                found.insert(address(row.try_get(0)?)?);
            }
        }
        Ok(found)
    }

    /// Judges a row, the values of which are known as far as possible without reading their content.
    pub(crate) fn decide_by_rule(
        &mut self,
        rule: &Rule,
        row: Row,
        values: Vec<StoredValue>,
        placed: Vec<bool>,
    ) {
        let Row { ctid, xmin, .. } = row;
        let targets = self.indexes().0;
        if self.by_rule.since.is_some_and(|since| since.is_after(xmin)) {
            return;
        }
        if let Some(cut_off) = &self.by_rule.cut_off
            && cut_off.is_before(xmin, self.by_rule.next_xid)
            && !self.ours.contains(&xmin)
        {
            self.seen.written_since += 1;
            return;
        }
        let inner = self.by_rule.inner.contains(&ctid);
        let seen = Seen { xmin, values, placed, contents: vec![None; targets.len()], inner };
        if !self.by_rule.judge_all && rule.surely_differs(&targets, &seen) {
            self.by_rule.seen_rows.note(ctid, seen);
            self.found.push(row);
            return;
        }
        self.decide_seen(rule, Open { row, seen, targets });
    }

    fn decide_seen(&mut self, rule: &Rule, row: Open) {
        let targets = self.indexes().0;
        let decision = rule.decide(&self.choice.model, &targets, &row.seen);
        if let Decision::Depends(open) = decision {
            self.by_rule.open.push(Open { targets: open, ..row });
            return;
        }
        if self.by_rule.judge_all {
            self.count(&decision, &targets, &row.seen);
        }
        // what a run would leave counts above, and is named
        if decision.complies() || self.is_left(row.row.ctid, &row.seen.values) {
            return;
        }
        self.found.push(row.row);
        self.by_rule.seen_rows.note(row.row.ctid, row.seen);
    }

    pub(super) fn count(&mut self, decision: &Decision, targets: &[usize], seen: &Seen) {
        let wanted: &[Wanted] = match decision {
            Decision::Forms(wanted) => wanted,
            _ => &[],
        };
        let Scanned { shares, planned, .. } = &mut self.seen;
        shares.resize(targets.len(), Share::default());
        for (at, (&index, share)) in targets.iter().zip(shares).enumerate() {
            let Some(value) = seen.values.get(index) else { continue };
            let bytes = value.stored_size.unwrap_or(0);
            let one = wanted.get(at);
            // the form of other values depends on content that this scan does not read
            if let Some(one) = one
                && !is_foreign(value.form)
            {
                planned.add(at, one.form, one.method, u64::from(one.bytes));
            }
            if value.form == Form::Null {
                continue;
            }
            share.values += 1;
            share.bytes += bytes;
            if one.is_some_and(|one| one.complies) {
                share.complying_values += 1;
                share.complying_bytes += bytes;
            }
        }
    }

    /// Makes the server compress what the decisions on these rows depend on. Returns the rows for which more must be
    /// compressed. A row that has changed is left to the next scan.
    async fn ask(&mut self, rule: &Rule, open: Vec<Open>) -> LiveResult<Vec<Open>> {
        let table = self.ready.relation.quoted();
        if !self.by_rule.made {
            let make = by_policy::make(&table, &self.ready.targets, &rule.methods);
            let client = self.asker.client();
            let make = format!("{}; {make}; COMMIT", by_policy::BEGIN_ASKING);
            if let Err(error) = client.batch_execute(&make).await {
                // if this fails too, the connection is lost, as the next query will report
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(error.into());
            }
            self.by_rule.made = true;
        }
        let mut open = open.into_iter().peekable();
        while open.peek().is_some() {
            let mut group = Vec::new();
            let mut bytes = 0;
            while let Some(next) =
                open.next_if(|next| group.is_empty() || bytes + next.row.bytes <= JUDGED_BYTES)
            {
                bytes += next.row.bytes;
                group.push(next);
            }
            let answers = self.ask_group(rule, &table, &group).await?;
            for mut row in group {
                let Some(contents) = answers.get(&(row.row.ctid, row.seen.xmin)) else { continue };
                for &at in &row.targets {
                    if let Some(content) = row.seen.contents.get_mut(at) {
                        *content = contents.get(at).copied().flatten();
                    }
                }
                let answered = row
                    .targets
                    .iter()
                    .all(|&at| row.seen.contents.get(at).is_some_and(Option::is_some));
                if answered {
                    self.decide_seen(rule, row);
                }
            }
        }
        Ok(std::mem::take(&mut self.by_rule.open))
    }

    pub(super) async fn ask_group(
        &self,
        rule: &Rule,
        table: &str,
        group: &[Open],
    ) -> LiveResult<HashMap<(ItemPointer, u32), Vec<Option<Content>>>> {
        let client = self.asker.client();
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); 1 + self.ready.targets.len()];
        for (at, list) in lists.iter_mut().enumerate() {
            for open in group {
                // the first list is that of all rows
                if at == 0 || open.targets.contains(&(at - 1)) {
                    list.push(open.row.ctid.to_string());
                }
            }
        }
        client.batch_execute(by_policy::BEGIN_ASKING).await?;
        let targets = &self.ready.targets;
        let page = self.choice.model.page;
        let asked = fill_and_measure(client, table, targets, rule, page, &lists).await;
        let end = match &asked {
            Ok(copies) if copies.is_full => format!("{}; COMMIT", by_policy::EMPTY),
            Ok(_) => "COMMIT".to_owned(),
            Err(_) => "ROLLBACK".to_owned(),
        };
        let ended = client.batch_execute(&end).await;
        // if both fail, the first error is the one that explains what happened
        let copies = asked?;
        ended?;
        Ok(copies.rows.into_iter().map(|copy| ((copy.ctid, copy.xmin), copy.contents)).collect())
    }

    /// Judges the rows of these blocks as functions describe them.
    async fn rows_by_functions(&mut self, rule: &Rule, blocks: &Range<u32>) -> LiveResult<()> {
        let probe = Probe::new(self.server, &self.ready.relation);
        let columns = probe.columns();
        let limit = self.server.page_size.toast_tuple_threshold() as u64;
        let targets = self.indexes().0;
        let count = self.ready.relation.desc.attributes.len();
        for row in functions::rows(self.connection.client(), &probe, &columns, blocks).await? {
            let mut values = vec![StoredValue::NULL; count];
            let mut placed = vec![true; targets.len()];
            let mut bytes = 0;
            let mut stored = 0;
            let is_new = !self.own.contains(&row.xmin);
            for (&index, answer) in columns.iter().zip(&row.values) {
                let value = answer.likely(limit);
                if let Some(slot) = values.get_mut(index) {
                    *slot = value;
                }
                let Some(at) = targets.iter().position(|&target| target == index) else { continue };
                if let Some(placed) = placed.get_mut(at) {
                    *placed = answer.placement != Placement::Unknown;
                }
                stored += value.stored_size.unwrap_or(0);
                bytes += value.stored_size.unwrap_or(0).max(value.raw_size.unwrap_or(0));
                if is_new {
                    self.seen.tally.add_answer(at, answer);
                }
            }
            let dead = Row::dead_by_functions(row.bytes, stored, limit);
            let row = Row::new(row.ctid, row.xmin, bytes, stored, dead);
            self.decide_by_rule(rule, row, values, placed);
        }
        Ok(())
    }
}

/// The contents of the temporary table in a transaction.
pub(crate) struct Copies {
    pub rows: Vec<Copy>,
    /// Whether the table must be emptied before the transaction ends.
    pub is_full: bool,
}

/// A row of the temporary table.
pub(crate) struct Copy {
    pub number: i32,
    /// The address of the row of which it is a copy.
    pub ctid: ItemPointer,
    /// The transaction that inserted that row.
    pub xmin: u32,
    /// The content of each chosen column; `None` for NULL and for values that were not requested.
    pub contents: Vec<Option<Content>>,
}

/// Fills the temporary table and reads the sizes. `lists` are the parameters of [`by_policy::fill`].
pub(crate) async fn fill_and_measure(
    client: &Client,
    table: &str,
    targets: &[sql::Target],
    rule: &Rule,
    page: PageSize,
    lists: &[Vec<String>],
) -> LiveResult<Copies> {
    let mut parameters: Vec<Parameter<'_>> = Vec::new();
    for list in lists {
        parameters.push((list, Type::TEXT_ARRAY));
    }
    let fill = by_policy::fill(table, targets, &rule.methods, page);
    let sizes = by_policy::sizes(&rule.methods);
    // both are sent together, without waiting for the first one's result
    let (filled, rows) =
        join(client.query_typed(&fill, &parameters), client.query_typed(&sizes, &[])).await;
    filled?;
    let rows = rows?;
    let bytes: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    let copies = rows.iter().map(|row| copy(row, &rule.methods));
    Ok(Copies {
        rows: copies.collect::<LiveResult<Vec<Copy>>>()?,
        is_full: bytes >= by_policy::FULL,
    })
}

fn copy(row: &tokio_postgres::Row, methods: &[MethodChoice]) -> LiveResult<Copy> {
    let xmin: String = row.try_get(3)?;
    let mut contents = Vec::with_capacity(methods.len());
    let mut at = 4;
    for choice in methods {
        let raw: Option<i32> = row.try_get(at)?;
        at += 1;
        let mut sizes = CompressedSizes::default();
        for &method in choice.methods() {
            let size: Option<i64> = row.try_get(at)?;
            at += 1;
            sizes.set(method, size.and_then(|size| u32::try_from(size).ok()));
        }
        let raw = raw.and_then(|raw| u32::try_from(raw).ok());
        contents.push(raw.map(|raw| Content { raw, sizes }));
    }
    Ok(Copy {
        number: row.try_get(1)?,
        ctid: address(row.try_get(2)?)?,
        xmin: transaction(&xmin)?,
        contents,
    })
}
