//! Finds the rows that are stored otherwise than chosen, chunk by chunk.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::choice::Toaster;
use super::compliance::{Compressed, Told, Verdict, by_functions, by_model};
use super::machine::Row;
use super::policy_scan::RuleScan;
use super::preflight::Ready;
use super::result::Tally;
use super::sql::{self, Target};
use crate::codec::Method;
use crate::disk::page::{LinePointerState, Page, PageState};
use crate::disk::tuple::HeapTuple;
use crate::disk::walk::Walk;
use crate::disk::{BlockNumber, ItemPointer};
use crate::model::stored::StoredValue;
use crate::model::visibility::Visibility;
use crate::source::connect::Connection;
use crate::source::live::LiveError;
use crate::source::live::pages::{PageReader, Pages};
use crate::source::live::server::{Pageinspect, Server};
use crate::source::live::snapshot::{self, Moment};

/// Bytes of values given to the judge at a time, unless one has more.
pub(super) const JUDGED_BYTES: u64 = 32 << 20;

/// What a scan goes by.
#[derive(Debug, Clone)]
pub enum Eyes {
    /// Pages.
    Pages(Pageinspect),
    /// SQL functions.
    Functions,
}

/// Reads one table.
pub struct Scanner<'a> {
    /// A connection of its own, for no snapshot may be held while batches run.
    pub connection: Arc<Connection>,
    /// For what a policy has to try out, in transactions of its own.
    pub asker: Arc<Connection>,
    /// The server.
    pub server: &'a Server,
    /// The table.
    pub ready: &'a Ready,
    /// The choice.
    pub toaster: Toaster,
    /// What it goes by.
    pub eyes: Eyes,
    /// Transactions of this run, whose rows the server itself has stored as chosen.
    pub ours: HashSet<u32>,
    /// Which judges there are.
    judges: HashSet<usize>,
    /// Whether there is a judge of rows.
    row_judge: bool,
    /// What was seen in the scan under way.
    pub tally: Tally,
    /// What could not be read.
    pub problems: Vec<String>,
    /// The snapshot that is kept from chunk to chunk.
    pub held: Option<Held>,
    /// The part that goes by a policy.
    pub by_rule: RuleScan<'a>,
}

/// A transaction that goes on, and the judges from before it, which alone outlive its failure.
pub struct Held {
    moment: Moment,
    judges: HashSet<usize>,
    row_judge: bool,
}

/// A row that may have to be stored anew.
pub(super) struct Candidate {
    ctid: ItemPointer,
    bytes: u64,
    /// By column index; as far as pages tell.
    values: Vec<StoredValue>,
    open: Vec<usize>,
}

impl<'a> Scanner<'a> {
    /// Before the first scan.
    pub fn new(
        connection: &Arc<Connection>,
        asker: &Arc<Connection>,
        server: &'a Server,
        ready: &'a Ready,
        toaster: Toaster,
        eyes: Eyes,
        by_rule: RuleScan<'a>,
    ) -> Scanner<'a> {
        Scanner {
            connection: Arc::clone(connection),
            asker: Arc::clone(asker),
            server,
            ready,
            toaster,
            eyes,
            ours: HashSet::new(),
            judges: HashSet::new(),
            row_judge: false,
            tally: Tally::default(),
            problems: Vec::new(),
            held: None,
            by_rule,
        }
    }
}

impl Scanner<'_> {
    /// Keeps one snapshot for all chunks from now on: only such a scan cannot miss a row that moves
    /// from a block not yet read to one already read. Like every snapshot it keeps dead rows from being
    /// removed; end it with [`Scanner::release`] before rows are stored anew, and before long waits.
    pub async fn hold(&mut self) -> Result<(), LiveError> {
        self.release().await?;
        self.held = Some(self.begin().await?);
        Ok(())
    }

    /// Lets the snapshot go, if one is kept.
    pub async fn release(&mut self) -> Result<(), LiveError> {
        match self.held.take() {
            Some(_) => snapshot::end(self.connection.client()).await,
            None => Ok(()),
        }
    }

    async fn begin(&self) -> Result<Held, LiveError> {
        let moment = snapshot::begin_writable(self.connection.client()).await?;
        Ok(Held { moment, judges: self.judges.clone(), row_judge: self.row_judge })
    }

    /// The rows of these blocks that are stored otherwise than chosen, all in one snapshot. After an
    /// error none is kept.
    pub async fn chunk(&mut self, blocks: Range<u32>) -> Result<Vec<Row>, LiveError> {
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

    async fn look(&mut self, moment: &Moment, blocks: Range<u32>) -> Result<Vec<Row>, LiveError> {
        if let Some(rule) = &self.ready.rule {
            return self.chunk_by_rule(rule, moment, blocks).await;
        }
        let mut rows = Vec::new();
        let open = match self.eyes.clone() {
            Eyes::Pages(pageinspect) => {
                self.pages(&pageinspect, moment, blocks.clone(), &mut rows).await?
            }
            Eyes::Functions => self.functions(blocks.clone(), &mut rows).await?,
        };
        match self.eyes {
            Eyes::Pages(_) => self.judge(open, &mut rows).await?,
            Eyes::Functions => self.judge_rows(open, &mut rows).await?,
        }
        self.hidden(blocks, &mut rows).await?;
        Ok(rows)
    }

    pub(super) async fn pages(
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

    /// The indexes of the chosen columns, and of those that follow them.
    pub(super) fn indexes(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |columns: &[Target]| columns.iter().map(|column| column.index).collect();
        (of(&self.ready.targets), of(&self.ready.follow))
    }

    fn decode(&mut self, pages: &Pages, rows: &mut Vec<Row>, open: &mut Vec<Candidate>) {
        for (block, bytes) in pages.iter() {
            let page = match Page::parse(bytes) {
                Ok(PageState::Used(page)) => page,
                Ok(PageState::New) => continue,
                Err(error) => {
                    self.problems.push(format!("block {block}: {error}"));
                    continue;
                }
            };
            for (item, pointer) in page.line_pointers() {
                if pointer.state != LinePointerState::Normal {
                    continue;
                }
                let ctid = ItemPointer { block, item };
                let tuple =
                    page.tuple_bytes(pointer).map_err(|error| error.to_string()).and_then(|b| {
                        HeapTuple::parse(b, page.byte_order()).map_err(|e| e.to_string())
                    });
                match tuple {
                    Ok(tuple) if pages.visibility(ctid, &tuple) == Visibility::Dead => {}
                    Ok(tuple) => self.decide(ctid, &tuple, rows, open),
                    Err(message) => self.problems.push(format!("row {ctid}: {message}")),
                }
            }
        }
    }

    fn decide(
        &mut self,
        ctid: ItemPointer,
        tuple: &HeapTuple<'_>,
        rows: &mut Vec<Row>,
        open: &mut Vec<Candidate>,
    ) {
        let desc = &self.ready.relation.desc;
        let mut values = Vec::with_capacity(desc.attributes.len());
        for walked in Walk::new(tuple, desc) {
            match walked {
                Ok((column, _)) if column.dropped => values.push(StoredValue::NULL),
                Ok((column, datum)) => {
                    values.push(StoredValue::of(&datum, column, self.server.page_size));
                }
                Err(error) => {
                    self.problems.push(format!("row {ctid}: {error}"));
                    return;
                }
            }
        }
        let mut bytes = 0;
        let (indexes, follow) = self.indexes();
        for (at, target) in self.ready.targets.iter().enumerate() {
            if let Some(value) = values.get(target.index) {
                let stored = value.stored_size.unwrap_or(0);
                bytes += stored.max(value.raw_size.unwrap_or(0));
                self.tally.add(at, value.form, value.method, stored);
            }
        }
        if self.ours.contains(&tuple.xmin.0) {
            return;
        }
        if let Some(rule) = &self.ready.rule {
            let placed = vec![true; indexes.len()];
            self.decide_by_rule(rule, (ctid, tuple.xmin.0, bytes), values, placed, rows);
            return;
        }
        let verdict = self.verdict(&indexes, &follow, &values, &|_| None);
        let stale = self.ready.plan.as_ref().and_then(|plan| plan.stale(&values));
        if let (Some(index), false) = (stale, verdict == Verdict::Complies) {
            let name = desc.attributes.get(index).map_or("", |column| &column.name);
            self.problems.push(format!(
                "row {ctid}: column \"{name}\" was changed in place, and the server may read it as it \
                 was before: set it as a whole first"
            ));
            return;
        }
        match verdict {
            Verdict::Complies => {}
            Verdict::Differs => rows.push(Row { ctid, bytes }),
            Verdict::Depends(columns) => {
                open.push(Candidate { ctid, bytes, values, open: columns });
            }
        }
    }

    /// What the choice says of a row.
    fn verdict(
        &self,
        indexes: &[usize],
        follow: &[usize],
        values: &[StoredValue],
        known: &dyn Fn(usize) -> Option<Compressed>,
    ) -> Verdict {
        match &self.ready.plan {
            Some(plan) => plan.verdict(&self.ready.model, follow, values, known),
            None => by_model(&self.ready.model, indexes, follow, values, known),
        }
    }

    async fn functions(
        &mut self,
        blocks: Range<u32>,
        rows: &mut Vec<Row>,
    ) -> Result<Vec<Candidate>, LiveError> {
        let relation = &self.ready.relation;
        let targets = &self.ready.targets;
        let sql = sql::probe(
            &relation.quoted(),
            &self.ready.stored_columns,
            targets,
            self.server.has_toast_chunk_id(),
            blocks,
        );
        let threshold = self.server.page_size.toast_tuple_threshold() as u64;
        let limit = self.ready.model.target.bytes() as u64;
        let mut open = Vec::new();
        for row in self.connection.client().query_typed(&sql, &[]).await? {
            let ctid = address(row.try_get(0)?)?;
            let xmin: String = row.try_get(1)?;
            let total: i64 = row.try_get(2)?;
            let ours = xmin.parse().is_ok_and(|xmin| self.ours.contains(&xmin));
            let (mut differs, mut depends, mut bytes) = (false, Vec::new(), 0);
            for (at, target) in targets.iter().enumerate() {
                let size: Option<i64> = row.try_get(3 + 3 * at)?;
                let method: Option<String> = row.try_get(4 + 3 * at)?;
                let told = Told {
                    size: size.and_then(|size| u64::try_from(size).ok()),
                    method: method.as_deref().and_then(method_of),
                    external: row.try_get(5 + 3 * at)?,
                };
                let form = match (told.size, told.method) {
                    (None, _) => "null",
                    (_, Some(_)) => "compressed",
                    _ => "uncompressed",
                };
                self.tally.add_named(at, form, told.method, told.size.unwrap_or(0));
                bytes += told.size.unwrap_or(0);
                let total = u64::try_from(total).unwrap_or(0);
                match by_functions(self.toaster, target.method, &told, total, threshold, limit) {
                    Verdict::Complies => {}
                    Verdict::Differs => differs = true,
                    Verdict::Depends(_) => depends.push(target.index),
                }
            }
            if ours {
                continue;
            }
            if differs {
                rows.push(Row { ctid, bytes });
            } else if !depends.is_empty() {
                open.push(Candidate { ctid, bytes, values: Vec::new(), open: depends });
            }
        }
        Ok(open)
    }

    /// Has the server compress what the verdict depends on.
    async fn judge(&mut self, open: Vec<Candidate>, rows: &mut Vec<Row>) -> Result<(), LiveError> {
        let table = self.ready.relation.quoted();
        let mut answers: HashMap<(ItemPointer, usize), Compressed> = HashMap::new();
        for target in &self.ready.targets {
            let (outside, mut asked): (Vec<&Candidate>, Vec<&Candidate>) = open
                .iter()
                .filter(|candidate| candidate.open.contains(&target.index))
                .partition(|candidate| self.spares(target.index, candidate));
            self.ask_what_is_left(target, &outside, &mut answers).await?;
            if asked.is_empty() {
                continue;
            }
            let client = self.connection.client();
            if self.judges.insert(target.index) {
                client.batch_execute(&sql::make_judge(&table, target)).await?;
            }
            while !asked.is_empty() {
                let mut bytes = 0;
                let some = asked
                    .iter()
                    .take_while(|candidate| {
                        bytes += candidate.bytes;
                        bytes <= JUDGED_BYTES
                    })
                    .count()
                    .max(1);
                let ctids: Vec<String> =
                    asked.drain(..some).map(|candidate| candidate.ctid.to_string()).collect();
                client
                    .query_typed(&sql::judge_values(&table, target), &[(&ctids, Type::TEXT_ARRAY)])
                    .await?;
                for row in client.query_typed(&sql::judged(target), &[]).await? {
                    let size: Option<i64> = row.try_get(1)?;
                    // out of line the length word is not counted
                    let size = size.and_then(|size| u32::try_from(size + 4).ok());
                    answers.insert((address(row.try_get(0)?)?, target.index), size);
                }
                client.batch_execute(&sql::clear_judge(target)).await?;
            }
        }
        let (indexes, follow) = self.indexes();
        for candidate in open {
            let Candidate { ctid, bytes, values, .. } = candidate;
            // a row that is gone has no answer, and nothing is to be done
            let answer = |index| answers.get(&(ctid, index)).copied();
            if self.verdict(&indexes, &follow, &values, &answer) == Verdict::Differs {
                rows.push(Row { ctid, bytes });
            }
        }
        Ok(())
    }

    /// Whether the value is out of line and its column's toaster may leave it so.
    fn spares(&self, index: usize, candidate: &Candidate) -> bool {
        let planned = self.ready.plan.as_ref().and_then(|plan| plan.column(index));
        planned.is_some_and(|planned| planned.spares)
            && candidate.values.get(index).is_some_and(|value| value.form.is_external())
    }

    /// Which of these values the toaster would leave as they are.
    async fn ask_what_is_left(
        &self,
        target: &Target,
        candidates: &[&Candidate],
        answers: &mut HashMap<(ItemPointer, usize), Compressed>,
    ) -> Result<(), LiveError> {
        if candidates.is_empty() {
            return Ok(());
        }
        let ctids: Vec<String> = candidates.iter().map(|one| one.ctid.to_string()).collect();
        let sql = sql::never_moved(&self.ready.relation.quoted(), target);
        // some size: it would be stored otherwise
        answers.extend(candidates.iter().map(|one| ((one.ctid, target.index), Some(0))));
        let client = self.connection.client();
        for row in client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await? {
            answers.insert((address(row.try_get(0)?)?, target.index), None);
        }
        Ok(())
    }

    /// Has the server store whole rows, for without pages too little is known for the model.
    async fn judge_rows(
        &mut self,
        open: Vec<Candidate>,
        rows: &mut Vec<Row>,
    ) -> Result<(), LiveError> {
        if open.is_empty() {
            return Ok(());
        }
        let table = self.ready.relation.quoted();
        let targets = &self.ready.targets;
        let fresh: Vec<&Target> = targets.iter().chain(&self.ready.follow).collect();
        let insert = sql::judge_rows(&table, &self.ready.stored_columns, &fresh);
        let client = self.connection.client();
        if !self.row_judge {
            let target = self.ready.model.target;
            let make = sql::make_row_judge(&table, self.toaster, targets, target);
            client.batch_execute(&make).await?;
            self.row_judge = true;
        }
        let mut rest = open.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|candidate| {
                bytes += candidate.bytes;
                bytes <= JUDGED_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1).min(rest.len()));
            rest = later;
            let ctids: Vec<String> = now.iter().map(|one| one.ctid.to_string()).collect();
            // in one snapshot the rows and the judge's copies of them match in order
            let compressed = self.ask_row_judge(&insert, &ctids).await?;
            client.batch_execute(sql::CLEAR_ROW_JUDGE).await?;
            for candidate in now {
                let Some(answer) = compressed.get(&candidate.ctid) else { continue };
                let differs = targets.iter().zip(answer).any(|(target, &compressed)| {
                    compressed && candidate.open.contains(&target.index)
                });
                if differs {
                    rows.push(Row { ctid: candidate.ctid, bytes: candidate.bytes });
                }
            }
        }
        Ok(())
    }

    /// For each row that is there, whether the judge compressed each chosen column.
    async fn ask_row_judge(
        &self,
        insert: &str,
        ctids: &Vec<String>,
    ) -> Result<HashMap<ItemPointer, Vec<bool>>, LiveError> {
        let client = self.connection.client();
        let table = self.ready.relation.quoted();
        let rows = client.query_typed(&sql::there(&table), &[(ctids, Type::TEXT_ARRAY)]).await?;
        let copies = client.query_typed(insert, &[(ctids, Type::TEXT_ARRAY)]).await?;
        if rows.len() != copies.len() {
            return Err(LiveError::Unexpected(format!(
                "{} rows have {} copies",
                rows.len(),
                copies.len()
            )));
        }
        let mut originals = HashMap::new();
        for (row, copy) in rows.iter().zip(&copies) {
            originals.insert(address(copy.try_get(0)?)?, address(row.try_get(0)?)?);
        }
        let mut compressed = HashMap::new();
        for row in client.query_typed(&sql::judged_rows(&self.ready.targets), &[]).await? {
            if let Some(&original) = originals.get(&address(row.try_get(0)?)?) {
                compressed.insert(original, row.try_get(1)?);
            }
        }
        Ok(compressed)
    }

    /// Adds the rows with compressed fields inside composite values.
    async fn hidden(&self, blocks: Range<u32>, rows: &mut Vec<Row>) -> Result<(), LiveError> {
        let table = self.ready.relation.quoted();
        // of compression inside composite values a toaster of pg_toaster says nothing
        if self.ready.plan.as_ref().is_some_and(|plan| !plan.stock) {
            return Ok(());
        }
        let Some(sql) = sql::hidden(&table, self.toaster, &self.ready.targets, blocks) else {
            return Ok(());
        };
        let known: HashSet<ItemPointer> = rows.iter().map(|row| row.ctid).collect();
        for row in self.connection.client().query_typed(&sql, &[]).await? {
            let ctid = address(row.try_get(0)?)?;
            if !known.contains(&ctid) {
                let bytes: i64 = row.try_get(1)?;
                rows.push(Row { ctid, bytes: u64::try_from(bytes).unwrap_or(0) });
            }
        }
        Ok(())
    }
}

pub(super) fn method_of(name: &str) -> Option<Method> {
    match name {
        "pglz" => Some(Method::Pglz),
        "lz4" => Some(Method::Lz4),
        _ => None,
    }
}

/// A row's address as the server prints it.
pub(super) fn address(text: &str) -> Result<ItemPointer, LiveError> {
    text.strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|rest| rest.split_once(','))
        .and_then(|(block, item)| {
            Some(ItemPointer { block: BlockNumber(block.parse().ok()?), item: item.parse().ok()? })
        })
        .ok_or_else(|| LiveError::Unexpected(format!("row address \"{text}\"")))
}
