//! Scanning by a policy: what a row is, what the server makes of its values, and what of that the
//! batches need to know.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use tokio_postgres::types::Type;

use super::machine::Row;
use super::policy::{Content, Decision, Rule, Seen, Wanted};
use super::policy_sql::{self, Probed};
use super::result::Tally;
use super::scan::{Eyes, JUDGED_BYTES, Scanner, address, method_of};
use super::since::Since;
use super::sql;
use crate::codec::Method;
use crate::disk::ItemPointer;
use crate::disk::desc::Length;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::model::policy::{CompressedSizes, MethodChoice};
use crate::model::stored::{Form, StoredValue};
use crate::source::live::LiveError;
use crate::source::live::snapshot::Moment;

/// What scans have seen of the rows that are to be stored anew.
#[derive(Debug, Default)]
pub struct Notebook(Mutex<HashMap<ItemPointer, Seen>>);

impl Notebook {
    fn rows(&self) -> MutexGuard<'_, HashMap<ItemPointer, Seen>> {
        // what stands there is only ever inserted and removed whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, ctid: ItemPointer, seen: Seen) {
        self.rows().insert(ctid, seen);
    }

    /// Whether a scan has seen the row version that `xmin` inserted at this address.
    pub fn has(&self, ctid: ItemPointer, xmin: u32) -> bool {
        self.rows().get(&ctid).is_some_and(|seen| seen.xmin == xmin)
    }

    /// What was seen at an address.
    pub fn at(&self, ctid: ItemPointer) -> Option<Seen> {
        self.rows().get(&ctid).cloned()
    }

    /// Forgets rows that have been stored anew.
    pub fn forget(&self, rows: &[Row]) {
        let mut notes = self.rows();
        for row in rows {
            notes.remove(&row.ctid);
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.rows().clear();
    }
}

/// The part of a scan that goes by a policy.
pub struct RuleScan<'a> {
    /// What batches need to know.
    pub notebook: &'a Notebook,
    /// Whether every value is to be judged, not only those whose rows may comply.
    pub judge_all: bool,
    /// What the values would be stored as, where `judge_all`.
    pub planned: Tally,
    /// How much complies, for each chosen column, where `judge_all`.
    pub shares: Vec<Share>,
    /// Rows that were there before need no judgement.
    since: Option<Since>,
    made: bool,
    inner: HashSet<ItemPointer>,
    open: Vec<Open>,
}

impl<'a> RuleScan<'a> {
    /// Before a scan.
    pub fn new(notebook: &'a Notebook, since: Option<Since>, judge_all: bool) -> RuleScan<'a> {
        RuleScan {
            notebook,
            judge_all,
            planned: Tally::default(),
            shares: Vec::new(),
            since,
            made: false,
            inner: HashSet::new(),
            open: Vec::new(),
        }
    }
}

/// How much of a column complies with a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Values that are not NULL.
    pub values: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Those that comply.
    pub complying_values: u64,
    /// Their stored bytes.
    pub complying_bytes: u64,
}

/// A row on which the server has to be asked.
struct Open {
    ctid: ItemPointer,
    bytes: u64,
    seen: Seen,
    targets: Vec<usize>,
}

impl Scanner<'_> {
    /// As [`Scanner::chunk`], by the policy.
    pub(super) async fn chunk_by_rule(
        &mut self,
        rule: &Rule,
        moment: &Moment,
        blocks: Range<u32>,
    ) -> Result<Vec<Row>, LiveError> {
        let (planned, shares) = (self.by_rule.planned.clone(), self.by_rule.shares.clone());
        let read = self.read_by_rule(rule, moment, blocks).await;
        if read.is_err() {
            // the same blocks may be read again
            (self.by_rule.planned, self.by_rule.shares) = (planned, shares);
        }
        read
    }

    async fn read_by_rule(
        &mut self,
        rule: &Rule,
        moment: &Moment,
        blocks: Range<u32>,
    ) -> Result<Vec<Row>, LiveError> {
        self.by_rule.open.clear();
        self.by_rule.inner = self.rows_with_compressed_fields(blocks.clone()).await?;
        let mut rows = Vec::new();
        match self.eyes.clone() {
            Eyes::Pages(pageinspect) => {
                self.pages(&pageinspect, moment, blocks, &mut rows).await?;
            }
            Eyes::Functions => self.told(rule, &blocks, &mut rows).await?,
        }
        let mut open = std::mem::take(&mut self.by_rule.open);
        while !open.is_empty() {
            open = self.ask(rule, open, &mut rows).await?;
        }
        Ok(rows)
    }

    async fn rows_with_compressed_fields(
        &self,
        blocks: Range<u32>,
    ) -> Result<HashSet<ItemPointer>, LiveError> {
        let table = self.ready.relation.quoted();
        let mut found = HashSet::new();
        if let Some(sql) = sql::hidden(&table, self.toaster, &self.ready.targets, blocks) {
            for row in self.connection.client().query_typed(&sql, &[]).await? {
                found.insert(address(row.try_get(0)?)?);
            }
        }
        Ok(found)
    }

    /// Decides on a row whose values are known as far as they are without reading contents.
    pub(super) fn decide_by_rule(
        &mut self,
        rule: &Rule,
        (ctid, xmin, bytes): (ItemPointer, u32, u64),
        values: Vec<StoredValue>,
        placed: Vec<bool>,
        rows: &mut Vec<Row>,
    ) {
        let targets = self.indexes().0;
        if self.by_rule.since.is_some_and(|since| since.is_after(xmin)) {
            return;
        }
        let inner = self.by_rule.inner.contains(&ctid);
        let seen = Seen { xmin, values, placed, contents: vec![None; targets.len()], inner };
        if !self.by_rule.judge_all && rule.surely_differs(&targets, &seen) {
            self.by_rule.notebook.note(ctid, seen);
            rows.push(Row { ctid, bytes });
            return;
        }
        self.decide_seen(rule, Open { ctid, bytes, seen, targets }, rows);
    }

    fn decide_seen(&mut self, rule: &Rule, row: Open, rows: &mut Vec<Row>) {
        let targets = self.indexes().0;
        let decision = rule.decide(&self.ready.model, &targets, &row.seen);
        if let Decision::Depends(open) = decision {
            self.by_rule.open.push(Open { targets: open, ..row });
            return;
        }
        if self.by_rule.judge_all {
            self.count(&decision, &targets, &row.seen);
        }
        if !decision.complies() {
            rows.push(Row { ctid: row.ctid, bytes: row.bytes });
            self.by_rule.notebook.note(row.ctid, row.seen);
        }
    }

    fn count(&mut self, decision: &Decision, targets: &[usize], seen: &Seen) {
        let wanted: &[Wanted] = match decision {
            Decision::Forms(wanted) => wanted,
            _ => &[],
        };
        let by_rule = &mut self.by_rule;
        by_rule.shares.resize(targets.len(), Share::default());
        for (at, (&index, share)) in targets.iter().zip(&mut by_rule.shares).enumerate() {
            let Some(value) = seen.values.get(index) else { continue };
            let bytes = value.stored_size.unwrap_or(0);
            let one = wanted.get(at);
            if let Some(one) = one {
                by_rule.planned.add(at, one.form, one.method, u64::from(one.bytes));
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

    /// Has the server compress what the decisions on these rows depend on. Gives the rows on which it
    /// has to be asked for more. A row that is no longer what it was is left to the next scan.
    async fn ask(
        &mut self,
        rule: &Rule,
        open: Vec<Open>,
        rows: &mut Vec<Row>,
    ) -> Result<Vec<Open>, LiveError> {
        let table = self.ready.relation.quoted();
        if !self.by_rule.made {
            let make = policy_sql::make(&table, &self.ready.targets, &rule.methods);
            let client = self.asker.client();
            let make = format!("{}; {make}; COMMIT", policy_sql::BEGIN_ASKING);
            if let Err(error) = client.batch_execute(&make).await {
                // if that fails too the connection is gone, as the next query will say
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(error.into());
            }
            self.by_rule.made = true;
        }
        let mut open = open.into_iter().peekable();
        while open.peek().is_some() {
            let (mut group, mut bytes) = (Vec::new(), 0);
            while let Some(next) =
                open.next_if(|next| group.is_empty() || bytes + next.bytes <= JUDGED_BYTES)
            {
                bytes += next.bytes;
                group.push(next);
            }
            let answers = self.ask_group(rule, &table, &group).await?;
            for mut row in group {
                let Some(contents) = answers.get(&(row.ctid, row.seen.xmin)) else { continue };
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
                    self.decide_seen(rule, row, rows);
                }
            }
        }
        Ok(std::mem::take(&mut self.by_rule.open))
    }

    async fn ask_group(
        &self,
        rule: &Rule,
        table: &str,
        group: &[Open],
    ) -> Result<HashMap<(ItemPointer, u32), Vec<Option<Content>>>, LiveError> {
        let client = self.asker.client();
        let address_of = |row: &Open| row.ctid.to_string();
        let mut lists: Vec<Vec<String>> = vec![group.iter().map(address_of).collect()];
        for at in 0..self.ready.targets.len() {
            let asked = group.iter().filter(|row| row.targets.contains(&at));
            lists.push(asked.map(address_of).collect());
        }
        client.batch_execute(policy_sql::BEGIN_ASKING).await?;
        let asked = fill_and_measure(client, table, &self.ready.targets, rule, &lists).await;
        let end = match &asked {
            Ok(copies) if copies.is_full => format!("{}; COMMIT", policy_sql::EMPTY),
            Ok(_) => "COMMIT".to_owned(),
            Err(_) => "ROLLBACK".to_owned(),
        };
        client.batch_execute(&end).await?;
        Ok(asked?.rows.into_iter().map(|copy| ((copy.ctid, copy.xmin), copy.contents)).collect())
    }

    /// The rows of these blocks as functions tell of them.
    async fn told(
        &mut self,
        rule: &Rule,
        blocks: &Range<u32>,
        rows: &mut Vec<Row>,
    ) -> Result<(), LiveError> {
        let relation = &self.ready.relation;
        let has_chunk_id = self.server.has_toast_chunk_id();
        let attributes = relation.desc.attributes.iter().enumerate();
        let columns: Vec<(usize, Probed<'_>)> = attributes
            .filter(|(_, column)| !column.dropped)
            .map(|(index, column)| {
                let bytes_like = relation.bytes_like.get(index).copied().unwrap_or(false);
                let varlena = column.length == Length::Varlena;
                (index, Probed { name: &column.name, varlena, bytes_like })
            })
            .collect();
        let probed: Vec<&Probed<'_>> = columns.iter().map(|(_, column)| column).collect();
        let sql = policy_sql::probe(&relation.quoted(), &probed, has_chunk_id, blocks);
        let limit = self.server.page_size.toast_tuple_threshold() as u64;
        let targets = self.indexes().0;
        let count = relation.desc.attributes.len();
        let answers = self.connection.client().query_typed(&sql, &[]).await?;
        for row in answers {
            let ctid = address(row.try_get(0)?)?;
            let xmin: String = row.try_get(1)?;
            let xmin: u32 = xmin
                .parse()
                .map_err(|_| LiveError::Unexpected(format!("transaction \"{xmin}\"")))?;
            let sizes: Vec<Option<i32>> = row.try_get(2)?;
            let methods: Vec<Option<String>> = row.try_get(3)?;
            let lengths: Vec<Option<i32>> = row.try_get(4)?;
            let external: Vec<Option<bool>> = row.try_get(5)?;
            let mut values = vec![StoredValue::NULL; count];
            let mut known = vec![false; count];
            let told = sizes.iter().zip(&methods).zip(lengths.iter().zip(&external));
            for ((index, column), ((size, method), (length, external))) in columns.iter().zip(told)
            {
                let told = Functions {
                    varlena: column.varlena,
                    size: size.and_then(|size| u64::try_from(size).ok()),
                    method: method.as_deref().and_then(method_of),
                    length: length.and_then(|length| u64::try_from(length).ok()),
                    external: *external,
                };
                let (value, sure) = told.value(limit);
                if let (Some(slot), Some(known)) = (values.get_mut(*index), known.get_mut(*index)) {
                    (*slot, *known) = (value, sure);
                }
            }
            let mut bytes = 0;
            for (at, &index) in targets.iter().enumerate() {
                let Some(value) = values.get(index) else { continue };
                let stored = value.stored_size.unwrap_or(0);
                bytes += stored.max(value.raw_size.unwrap_or(0));
                let form = match (value.form, value.method) {
                    (Form::Null, _) => "null",
                    (_, Some(_)) => "compressed",
                    _ => "uncompressed",
                };
                self.tally.add_named(at, form, value.method, stored);
            }
            if !self.ours.contains(&xmin) {
                let placed =
                    targets.iter().map(|&at| known.get(at).copied().unwrap_or(false)).collect();
                self.decide_by_rule(rule, (ctid, xmin, bytes), values, placed, rows);
            }
        }
        Ok(())
    }
}

/// What the functions tell of one value.
struct Functions {
    varlena: bool,
    size: Option<u64>,
    method: Option<Method>,
    length: Option<u64>,
    external: Option<bool>,
}

impl Functions {
    /// The value, and whether its place is known. Where nothing tells whether it is out of line, it is
    /// taken to be if it is longer than `limit`.
    fn value(&self, limit: u64) -> (StoredValue, bool) {
        let Some(size) = self.size else { return (StoredValue::NULL, true) };
        if !self.varlena {
            let value = StoredValue {
                form: Form::Plain,
                raw_size: Some(size),
                stored_size: Some(size),
                ..StoredValue::NULL
            };
            return (value, true);
        }
        // of uncompressed values, only those out of line have no header in their size
        let by_length = self.length.filter(|_| self.method.is_none()).map(|raw| raw == size);
        let told = self.external.or(by_length);
        let external = told.unwrap_or(size > limit);
        let form = match (self.method, external) {
            (Some(_), true) => Form::ExternalCompressed,
            (Some(_), false) => Form::Compressed,
            (None, true) => Form::External,
            (None, false) if size <= 127 => Form::Short,
            (None, false) => Form::Plain,
        };
        let raw = match form {
            Form::External => Some(size),
            Form::Short => Some(size.saturating_sub(1)),
            Form::Plain => Some(size.saturating_sub(4)),
            _ => self.length,
        };
        let value = StoredValue {
            form,
            method: self.method,
            raw_size: raw,
            stored_size: Some(size),
            pointer_size: if external { TOAST_POINTER_SIZE as u64 } else { 0 },
            ..StoredValue::NULL
        };
        (value, told.is_some())
    }
}

/// What a transaction has in the temporary table.
pub(super) struct Copies {
    pub rows: Vec<Copy>,
    /// Whether the table has to be emptied before the transaction ends.
    pub is_full: bool,
}

/// A row of the temporary table.
pub(super) struct Copy {
    /// Its number.
    pub number: i32,
    /// The row that it is a copy of.
    pub ctid: ItemPointer,
    /// The transaction that inserted that row.
    pub xmin: u32,
    /// For each chosen column what its content is; `None` of NULL and of what was not asked for.
    pub contents: Vec<Option<Content>>,
}

/// Fills the temporary table and reads the sizes. `lists` are the parameters of
/// [`policy_sql::fill`].
pub(super) async fn fill_and_measure(
    client: &tokio_postgres::Client,
    table: &str,
    targets: &[sql::Target],
    rule: &Rule,
    lists: &[Vec<String>],
) -> Result<Copies, LiveError> {
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = Vec::new();
    for list in lists {
        parameters.push((list, Type::TEXT_ARRAY));
    }
    let fill = policy_sql::fill(table, targets, &rule.methods);
    let sizes = policy_sql::sizes(&rule.methods);
    // sent together: the second does not wait for the first one's answer
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
        rows: copies.collect::<Result<Vec<Copy>, LiveError>>()?,
        is_full: bytes >= policy_sql::FULL,
    })
}

fn copy(row: &tokio_postgres::Row, methods: &[MethodChoice]) -> Result<Copy, LiveError> {
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
        xmin: xmin.parse().map_err(|_| LiveError::Unexpected(format!("transaction \"{xmin}\"")))?,
        contents,
    })
}
