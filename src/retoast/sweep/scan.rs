//! Finds the rows that are stored otherwise than chosen, chunk by chunk.

use std::ops::Range;
use std::sync::Arc;

use super::machine::Row;
use super::scan_source::ScanSource;
use super::scanner::{Candidate, Scanner};
use crate::disk::page::{Page, PageState};
use crate::disk::tuple::HeapTuple;
use crate::disk::walk::Walk;
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::scan::{self, Item};
use crate::judge::stock::{Verdict, by_functions, fits};
use crate::judge::{Judge, Row as Judged};
use crate::model::sql::quote_identifier;
use crate::model::stored::StoredValue;
use crate::model::visibility::Visibility;
use crate::server::about::Pageinspect;
use crate::server::pages::{PageReader, Pages};
use crate::server::probe::Probe;
use crate::server::snapshot::{self, Moment};
use crate::server::{LiveError, functions};

impl Scanner<'_> {
    /// The rows of these blocks that are stored otherwise than chosen, all in one snapshot. After an
    /// error none is kept.
    pub(super) async fn chunk_at_once(
        &mut self,
        blocks: Range<u32>,
    ) -> Result<Vec<Row>, LiveError> {
        let (held, keep) = match self.held.take() {
            Some(held) => (held, true),
            None => (self.begin().await?, false),
        };
        match self.look(&held.moment, blocks).await {
            Ok(rows) => {
                self.held = Some(held);
                if !keep {
                    self.release().await?;
                }
                Ok(rows)
            }
            Err(error) => {
                (self.judges, self.row_judge) = (held.judges, held.row_judge);
                // if that fails too the connection is gone, as the next query will say
                let _ = snapshot::abandon(self.connection.client()).await;
                Err(error)
            }
        }
    }

    pub(super) async fn look(
        &mut self,
        moment: &Moment,
        blocks: Range<u32>,
    ) -> Result<Vec<Row>, LiveError> {
        let judge = match &self.ready.judge {
            Judge::Policy(rule) => return self.chunk_by_rule(rule, moment, blocks).await,
            Judge::Forms(judge) => judge,
            Judge::Keep => return Ok(Vec::new()),
        };
        if let (Some(_), ScanSource::Pages(pageinspect)) = (&self.unfit, self.source.clone()) {
            self.pages(&pageinspect, moment, blocks, &mut Vec::new()).await?;
            return Ok(Vec::new());
        }
        let mut rows = Vec::new();
        let mut open = match self.source.clone() {
            ScanSource::Pages(pageinspect) => {
                self.pages(&pageinspect, moment, blocks.clone(), &mut rows).await?
            }
            ScanSource::Functions => self.functions(blocks.clone(), &mut rows).await?,
        };
        open.retain(|candidate| self.may_ask(candidate.row.ctid));
        match self.source {
            ScanSource::Pages(_) => self.judge(judge, open, &mut rows).await?,
            ScanSource::Functions => self.judge_rows(open, &mut rows).await?,
        }
        if judge.counts_fields() {
            self.hidden(blocks, &mut rows).await?;
        }
        Ok(rows)
    }

    pub(crate) async fn pages(
        &mut self,
        pageinspect: &Pageinspect,
        moment: &Moment,
        blocks: Range<u32>,
        rows: &mut Vec<Row>,
    ) -> Result<Vec<Candidate>, LiveError> {
        let mut reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            self.server.page_size,
            self.ready.relation.quoted(),
            moment.snapshot.clone(),
        )
        .await?;
        // the table may have been truncated since the scan began
        let end = blocks.end.min(reader.block_count().await?);
        let list: Vec<BlockNumber> = (blocks.start..end).map(BlockNumber).collect();
        let mut open = Vec::new();
        if !list.is_empty() {
            let pages = reader.read(&list).await?;
            for (block, message) in &pages.unreadable {
                self.problems.push(format!("block {block}: {message}"));
            }
            self.decode(&pages, rows, &mut open);
        }
        Ok(open)
    }

    pub(super) fn decode(&mut self, pages: &Pages, rows: &mut Vec<Row>, open: &mut Vec<Candidate>) {
        for (block, bytes) in pages.iter() {
            let page = match Page::parse(bytes) {
                Ok(PageState::Used(page)) => page,
                Ok(PageState::New) => continue,
                Err(error) => {
                    self.problems.push(format!("block {block}: {error}"));
                    continue;
                }
            };
            for (ctid, item) in scan::items(block, &page) {
                match item {
                    Item::Unused | Item::Redirect | Item::Dead => {}
                    Item::Tuple(tuple, _) => {
                        if pages.visibility(ctid, &tuple) != Visibility::Dead {
                            self.decide(ctid, &tuple, rows, open);
                        }
                    }
                    Item::Damaged(message) => self.problems.push(format!("row {ctid}: {message}")),
                }
            }
        }
    }

    pub(super) fn decide(
        &mut self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        rows: &mut Vec<Row>,
        open: &mut Vec<Candidate>,
    ) {
        let desc = &self.ready.relation.desc;
        let mut values = Vec::with_capacity(desc.attributes.len());
        let mut clears = false;
        for walked in Walk::new(tuple, desc) {
            match walked {
                Ok((column, datum)) if column.dropped => {
                    clears |= self.ready.judge.clears(&datum);
                    values.push(StoredValue::NULL);
                }
                Ok((column, datum)) => {
                    values.push(StoredValue::of(&datum, column, self.server.page_size));
                }
                Err(error) => {
                    self.problems.push(format!("row {ctid}: {error}"));
                    return;
                }
            }
        }
        let (mut bytes, mut all_stored) = (0, 0);
        let (indexes, follow) = self.indexes();
        if let Some(unfit) = &mut self.unfit {
            if !fits(&self.ready.model, &indexes, &follow, &values) {
                unfit.add(ctid.to_string());
            }
            return;
        }
        let xmin = tuple.xmin.0;
        let is_new = !self.own.contains(&xmin);
        for (at, target) in self.ready.targets.iter().enumerate() {
            if let Some(value) = values.get(target.index) {
                let stored = value.stored_size.unwrap_or(0);
                bytes += stored.max(value.raw_size.unwrap_or(0));
                all_stored += stored;
                if is_new {
                    self.tally.add(at, value.form, value.method, stored);
                }
            }
        }
        let found = Row { ctid, xmin, by_copy: false, spared: false, bytes, stored: all_stored };
        let judge = match &self.ready.judge {
            Judge::Policy(rule) => {
                let placed = vec![true; indexes.len()];
                return self.decide_by_rule(rule, found, values, placed, rows);
            }
            Judge::Forms(judge) => judge,
            Judge::Keep => return,
        };
        let table = &self.ready.model;
        let row = Judged { table, targets: &indexes, follow: &follow, values: &values };
        let verdict = if clears { Verdict::Differs } else { judge.verdict(&row, &|_| None) };
        if let (Some(index), false) = (judge.stale(&values), verdict == Verdict::Complies) {
            let name = desc.attributes.get(index).map_or("", |column| &column.name);
            self.problems.push(format!(
                "row {ctid}: column \"{name}\" was changed in place, and the server reads it in two ways: \
                 each key as it is now, the whole value as it was before"
            ));
            let hint = mend_misread(name);
            if !self.hints.contains(&hint) {
                self.hints.push(hint);
            }
            return;
        }
        match verdict {
            Verdict::Complies => {}
            Verdict::Differs => rows.push(found),
            Verdict::Depends(columns) => open.push(Candidate { row: found, values, open: columns }),
        }
    }

    pub(super) async fn functions(
        &mut self,
        blocks: Range<u32>,
        rows: &mut Vec<Row>,
    ) -> Result<Vec<Candidate>, LiveError> {
        let targets = &self.ready.targets;
        let threshold = self.server.page_size.toast_tuple_threshold() as u64;
        let limit = self.ready.model.target.bytes() as u64;
        let probe = Probe::new(self.server, &self.ready.relation);
        let indexes: Vec<usize> = targets.iter().map(|target| target.index).collect();
        let mut open = Vec::new();
        for row in functions::rows(self.connection.client(), &probe, &indexes, &blocks).await? {
            let (mut differs, mut depends, mut bytes) = (false, Vec::new(), 0);
            let is_new = !self.own.contains(&row.xmin);
            for (at, (target, told)) in targets.iter().zip(&row.values).enumerate() {
                if is_new {
                    self.tally.add_told(at, told);
                }
                bytes += told.value.stored_size.unwrap_or(0);
                match by_functions(
                    self.ready.toaster,
                    target.method,
                    told,
                    row.bytes,
                    threshold,
                    limit,
                ) {
                    Verdict::Complies => {}
                    Verdict::Differs => differs = true,
                    Verdict::Depends(_) => depends.push(target.index),
                }
            }
            let found = Row {
                ctid: row.ctid,
                xmin: row.xmin,
                by_copy: false,
                spared: false,
                bytes,
                stored: bytes,
            };
            if differs {
                rows.push(found);
            } else if !depends.is_empty() {
                open.push(Candidate { row: found, values: Vec::new(), open: depends });
            }
        }
        Ok(open)
    }
}

/// What mends values that the server reads in two ways (tried): an array or object that was changed gives
/// what it holds now to a read of itself alone, of a path of keys that ends before it not always.
fn mend_misread(column: &str) -> String {
    let name = quote_identifier(column);
    let whole = |of: &str| {
        format!("(SELECT jsonb_object_agg(key, value::text::jsonb) FROM jsonb_each({of}))")
    };
    format!(
        "values changed in place: SET {name} = {} keeps what was changed in the values of the document's own \
         keys; what was changed deeper, in the values of the object at {name} -> 'a' -> 'b', is kept by SET \
         {name} = jsonb_set({name}, '{{a,b}}', {}). Then run this again. Setting the value to itself loses \
         the change",
        whole(&name),
        whole(&format!("{name} -> 'a' -> 'b'"))
    )
}
