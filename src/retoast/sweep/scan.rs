//! Finds the rows that do not comply, chunk by chunk. If a chunk is damaged, the damaged blocks and rows are located by
//! bisection, so that only they are left out.
//! If the storage is `plain`, a first scan finds rows that do not fit on a page, because the server would refuse
//! every later change of them.

use std::ops::Range;

use crate::retoast::error::{Result, refused};
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::result::SkippedRow;
use crate::retoast::sql;
use crate::retoast::sweep::machine::{CHUNK, Row};
use crate::retoast::sweep::scanner::{Asks, Candidate, Scanner, Unfit};
use crate::retoast::task::guard::{Guard, Reads};
use crate::server::pages::Pages;
use crate::server::probe::Probe;
use crate::server::sqlstate::is_damage;
use crate::server::{LiveError, LiveResult, Moment, functions, snapshot};
use toast_format::disk::layout::TUPLE_HEADER_SIZE;
use toast_format::disk::{BlockNumber, HeapTuple, ItemPointer, Page, PageState, Storage, Walk};
use toast_format::heap::scan::{self, Item};
use toast_format::judge::stock::{Compliance, by_functions, fits};
use toast_format::judge::{Judge, Row as Judged};
use toast_format::model::pages::chunk_bytes;
use toast_format::model::{Form, StoredValue, Visibility};

impl Scanner<'_> {
    /// Returns the rows of these blocks that do not comply. Tries again if other sessions have the table locked.
    pub(super) async fn read(&mut self, guard: &Guard<'_>, blocks: Range<u32>) -> Result<Vec<Row>> {
        let before = self.seen.clone();
        let mut read_chunk = async || {
            self.seen.clone_from(&before);
            self.chunk(blocks.clone()).await
        };
        let rows =
            guard.unless_changed(0, async || guard.tried("reading", &mut read_chunk).await).await?;
        Ok(rows.unwrap_or_default())
    }

    /// Like [`Scanner::chunk_at_once`], but reports damage as a problem, and leaves out only what is damaged.
    pub async fn chunk(&mut self, blocks: Range<u32>) -> LiveResult<Vec<Row>> {
        for (block, message) in self.damage.blocks.range(blocks.clone()) {
            self.seen.problems.push(SkippedRow::block(block, message));
        }
        let mut rows = Vec::new();
        let mut rest = self.damage.parts(&blocks);
        rest.reverse();
        while let Some(part) = rest.pop() {
            match self.counted(part.clone()).await {
                Err(LiveError::Server(error)) if is_damage(&error) => match part.len() {
                    0 | 1 => rows.extend(self.by_rows(part).await?),
                    blocks => {
                        let middle = part.start + (blocks / 2) as u32;
                        rest.extend([middle..part.end, part.start..middle]);
                    }
                },
                read => rows.extend(read?),
            }
        }
        Ok(rows)
    }

    /// Reads these blocks; after an error, nothing of them remains counted.
    async fn counted(&mut self, blocks: Range<u32>) -> LiveResult<Vec<Row>> {
        let before = self.seen.clone();
        let read = self.chunk_at_once(blocks).await;
        if read.is_err() {
            self.seen = before;
        }
        read
    }

    /// Reads a block that is damaged or has a row with a damaged value: first without values, then the values row by
    /// row.
    async fn by_rows(&mut self, block: Range<u32>) -> LiveResult<Vec<Row>> {
        let read = self.asking(Asks::Nothing, block.clone()).await;
        let mut rows = match read {
            Err(LiveError::Server(error)) if is_damage(&error) => {
                let message = message(&error);
                self.seen.problems.push(SkippedRow::block(block.start, &message));
                self.damage.blocks.insert(block.start, message);
                return Ok(Vec::new());
            }
            read => read?,
        };
        for ctid in std::mem::take(&mut self.damage.spared) {
            // the row was already counted without its values
            let before = self.seen.clone();
            let read = self.asking(Asks::Only(ctid), block.clone()).await;
            self.seen = before;
            match read {
                Err(LiveError::Server(error)) if is_damage(&error) => {
                    let message = message(&error);
                    self.seen.problems.push(SkippedRow::unread(ctid, &message));
                    self.damage.rows.insert(ctid, message);
                }
                read => rows.extend(read?.into_iter().filter(|row| row.ctid == ctid)),
            }
        }
        Ok(rows)
    }

    async fn asking(&mut self, asks: Asks, block: Range<u32>) -> LiveResult<Vec<Row>> {
        self.damage.asks = asks;
        self.damage.spared.clear();
        let read = self.counted(block).await;
        self.damage.asks = Asks::All;
        read
    }

    /// Whether the server may be asked to read this row's values.
    pub(super) fn may_ask(&mut self, ctid: ItemPointer) -> bool {
        match self.damage.asks {
            Asks::All => match self.damage.rows.get(&ctid) {
                Some(message) => {
                    self.seen.problems.push(SkippedRow::unread(ctid, message));
                    false
                }
                None => true,
            },
            Asks::Nothing => {
                self.damage.spared.push(ctid);
                false
            }
            Asks::Only(one) => one == ctid,
        }
    }

    /// The rows of these blocks that do not comply, all in one snapshot. After an error, no snapshot is kept.
    pub(super) async fn chunk_at_once(&mut self, blocks: Range<u32>) -> LiveResult<Vec<Row>> {
        let (held, keep) = match self.held.take() {
            Some(held) => (held, true),
            None => (self.begin(Reads::WithTemporary).await?, false),
        };
        match self.read_in(&held.moment, blocks).await {
            Ok(rows) => {
                self.held = Some(held);
                if !keep {
                    self.release().await?;
                }
                Ok(rows)
            }
            Err(error) => {
                self.trials = held.trials;
                // if this fails too, the connection is lost, as the next query will report
                let _ = snapshot::abandon(self.connection.client()).await;
                Err(error)
            }
        }
    }

    async fn read_in(&mut self, moment: &Moment, blocks: Range<u32>) -> LiveResult<Vec<Row>> {
        self.customs.clear();
        self.found.clear();
        self.open.clear();
        self.find(moment, blocks).await?;
        let rows = std::mem::take(&mut self.found);
        self.note_readings(moment, rows).await
    }

    /// Finds the rows that do not comply.
    async fn find(&mut self, moment: &Moment, blocks: Range<u32>) -> LiveResult<()> {
        if self.seen.long_rows.is_some() && self.pages.is_some() {
            return self.read_pages(moment, blocks).await;
        }
        let judge = match &self.choice.judge {
            Judge::Policy(rule) => return self.read_by_rule(rule, moment, blocks).await,
            Judge::Forms(judge) => judge,
        };
        if self.seen.unfit.is_some() && self.pages.is_some() {
            return self.read_pages(moment, blocks).await;
        }
        match self.pages {
            Some(_) => self.read_pages(moment, blocks.clone()).await?,
            None => self.functions(blocks.clone()).await?,
        }
        let mut open = std::mem::take(&mut self.open);
        open.retain(|candidate| self.may_ask(candidate.row.ctid));
        match self.pages {
            Some(_) => self.judge(judge, open).await?,
            None => self.judge_rows(open).await?,
        }
        if judge.counts_fields() {
            self.hidden(blocks).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_pages(
        &mut self,
        moment: &Moment,
        blocks: Range<u32>,
    ) -> LiveResult<()> {
        let quoted = self.ready.relation.quoted();
        let mut reader =
            self.server.page_reader(&self.connection, quoted, &moment.snapshot).await?;
        // the table may have been truncated since the scan began
        let end = blocks.end.min(reader.block_count().await?);
        let list: Vec<BlockNumber> = (blocks.start..end).map(BlockNumber).collect();
        if !list.is_empty() {
            let pages = reader.read(&list).await?;
            for (block, message) in &pages.unreadable {
                self.seen.problems.push(SkippedRow::block(block, message));
            }
            self.decode(&pages);
        }
        Ok(())
    }

    fn decode(&mut self, pages: &Pages) {
        for (block, bytes) in pages.iter() {
            let page = match Page::parse(bytes) {
                Ok(PageState::Used(page)) => page,
                Ok(PageState::New) => continue,
                Err(error) => {
                    self.seen.problems.push(SkippedRow::block(block, error));
                    continue;
                }
            };
            if let Some(sampled) = &mut self.sampled {
                let free = u32::try_from(page.free_space()).unwrap_or(0);
                sampled.pages.insert(block.0, (free, page.header().lsn));
            }
            for (ctid, item) in scan::items(block, &page) {
                match item {
                    Item::Unused | Item::Redirect | Item::Dead => {}
                    Item::Tuple(tuple, length) => {
                        if let Some(sampled) = &mut self.sampled {
                            sampled.lengths.insert(ctid, u32::from(length));
                        }
                        if pages.visibility(ctid, &tuple) != Visibility::Dead {
                            self.decide(ctid, &tuple, u64::from(length));
                        }
                    }
                    Item::Damaged(message) => {
                        self.seen.problems.push(SkippedRow::unread(ctid, message));
                    }
                }
            }
        }
    }

    /// `length`: of the tuple.
    fn decide(&mut self, ctid: ItemPointer, tuple: &HeapTuple<'_>, length: u64) {
        let Some((values, clears)) = self.stored_values(ctid, tuple) else { return };
        if self.seen.long_rows.is_some() {
            self.note_long_row(ctid, &values);
            return;
        }
        let mut bytes = 0;
        let mut all_stored = 0;
        let mut dead = length;
        let (indexes, follow) = self.indexes();
        if let Some(unfit) = &mut self.seen.unfit {
            if !fits(&self.choice.model, &indexes, &follow, &values) {
                unfit.add(ctid.to_string());
            }
            return;
        }
        let outside = sizes_outside(&values).map(|size| chunk_bytes(self.choice.model.page, size));
        self.seen.outside += outside.sum::<u64>();
        let xmin = tuple.xmin.0;
        let is_new = !self.own.contains(&xmin);
        for (at, target) in self.ready.targets.iter().enumerate() {
            if let Some(value) = values.get(target.index) {
                let stored = value.stored_size.unwrap_or(0);
                bytes += stored.max(value.raw_size.unwrap_or(0));
                all_stored += stored;
                let is_outside = value.form.is_external() || value.form == Form::Custom;
                dead += if is_outside { stored } else { 0 };
                if is_new {
                    self.seen.tally.add(at, value.form, value.method, stored);
                }
            }
        }
        let found = Row::new(ctid, xmin, bytes, all_stored, dead);
        if let Some(sampled) = &mut self.sampled {
            sampled.values.insert(ctid, values.clone());
        }
        let judge = match &self.choice.judge {
            Judge::Policy(rule) => {
                // No policy keeps such a value; where values are only judged, it counts.
                if !self.by_rule.judge_all && self.is_left(ctid, &values) {
                    return;
                }
                let placed = vec![true; indexes.len()];
                return self.decide_by_rule(rule, found, values, placed);
            }
            Judge::Forms(judge) => judge,
        };
        let table = &self.choice.model;
        let row = Judged { table, targets: &indexes, follow: &follow, values: &values };
        let compliance =
            if clears { Compliance::Differs } else { judge.compliance(&row, &|_| None) };
        if compliance != Compliance::Complies && self.is_left(ctid, &values) {
            return;
        }
        match compliance {
            Compliance::Complies => {}
            Compliance::Differs => self.found.push(found),
            Compliance::Depends(columns) => {
                self.open.push(Candidate { row: found, values, open: columns });
            }
        }
    }

    /// The values of a row, and whether an update clears a value of a dropped column. A row that cannot be read is
    /// recorded as a problem.
    fn stored_values(
        &mut self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
    ) -> Option<(Vec<StoredValue>, bool)> {
        let desc = &self.ready.relation.desc;
        let mut values = Vec::with_capacity(desc.attributes.len());
        let mut clears = false;
        for walked in Walk::new(tuple, desc) {
            match walked {
                Ok((column, datum)) if column.dropped => {
                    clears |= self.choice.judge.clears(&datum);
                    values.push(StoredValue::NULL);
                }
                Ok((column, datum)) => {
                    self.keep_custom(ctid, values.len(), &datum);
                    values.push(StoredValue::new(&datum, column, self.server.page_size));
                }
                Err(error) => {
                    self.seen.problems.push(SkippedRow::unread(ctid, error));
                    return None;
                }
            }
        }
        Some((values, clears))
    }

    async fn functions(&mut self, blocks: Range<u32>) -> LiveResult<()> {
        let targets = &self.ready.targets;
        let threshold = self.server.page_size.toast_tuple_threshold() as u64;
        let limit = self.choice.model.target.bytes() as u64;
        let probe = Probe::new(self.server, &self.ready.relation);
        let indexes: Vec<usize> = targets.iter().map(|target| target.index).collect();
        for row in functions::rows(self.connection.client(), &probe, &indexes, &blocks).await? {
            let mut differs = false;
            let mut depends = Vec::new();
            let mut bytes = 0;
            let is_new = !self.own.contains(&row.xmin);
            for (at, (target, answer)) in targets.iter().zip(&row.values).enumerate() {
                if is_new {
                    self.seen.tally.add_answer(at, answer);
                }
                bytes += answer.value.stored_size.unwrap_or(0);
                match by_functions(
                    self.choice.toaster,
                    target.method,
                    answer,
                    row.bytes,
                    threshold,
                    limit,
                ) {
                    Compliance::Complies => {}
                    Compliance::Differs => differs = true,
                    Compliance::Depends(_) => depends.push(target.index),
                }
            }
            let dead = Row::dead_by_functions(row.bytes, bytes, threshold);
            let found = Row::new(row.ctid, row.xmin, bytes, bytes, dead);
            if differs {
                self.found.push(found);
            } else if !depends.is_empty() {
                self.open.push(Candidate { row: found, values: Vec::new(), open: depends });
            }
        }
        Ok(())
    }

    /// Scans the whole table for rows that cannot be stored as requested, before anything is changed.
    pub(crate) async fn refuse_unfit(&mut self, guard: &Guard<'_>) -> Result<()> {
        if self.choice.toaster.storage() != Storage::Plain {
            return Ok(());
        }
        let unfit = match self.pages {
            Some(_) => self.unfit_by_pages(guard).await?,
            None => self.unfit_by_functions(guard).await?,
        };
        match unfit.first {
            Some(first) => refused(format!(
                "{} {} too long for storage plain, the first at {first}: nothing was changed\n\
                 HINT:  --toaster main keeps values in the row if the row fits on a page.",
                unfit.rows,
                if unfit.rows == 1 { "row is" } else { "rows are" }
            )),
            None => Ok(()),
        }
    }

    async fn unfit_by_pages(&mut self, guard: &Guard<'_>) -> Result<Unfit> {
        self.seen.unfit = Some(Unfit::default());
        let sizes = guard.sizes_now().await?.unwrap_or_default();
        let blocks = sizes.heap_pages(self.server.page_size);
        let mut from = 0;
        while from < blocks && !guard.session.stopped() {
            guard.session.pass(WorkKind::Scan, 0).await?;
            let end = from.saturating_add(CHUNK).min(blocks);
            self.read(guard, from..end).await?;
            from = end;
        }
        Ok(self.seen.unfit.take().unwrap_or_default())
    }

    /// Counts rows whose chosen values alone are too long.
    async fn unfit_by_functions(&self, guard: &Guard<'_>) -> Result<Unfit> {
        let limit = self.server.page_size.toast_tuple_target_main() - TUPLE_HEADER_SIZE;
        let sql = sql::unfit(&self.ready.relation.quoted(), &self.ready.targets, limit);
        let client = &self.connection;
        let asked = guard.in_reading(async |_| Ok(client.client().query_typed(&sql, &[]).await?));
        let rows = asked.await?;
        let Some(row) = rows.first() else { return Ok(Unfit::default()) };
        let count: i64 = row.try_get(0)?;
        Ok(Unfit { rows: u64::try_from(count).unwrap_or(0), first: row.try_get(1)? })
    }
}

/// The sizes of those of these values that are in the TOAST relation.
pub(super) fn sizes_outside(values: &[StoredValue]) -> impl Iterator<Item = u32> {
    let outside = values.iter().filter(|value| value.location.is_some());
    outside.filter_map(|value| u32::try_from(value.stored_size?).ok())
}

/// The server's message without DETAIL and CONTEXT, which may contain data.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}
