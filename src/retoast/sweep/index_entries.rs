//! Whether rows fit the indexes of their table once the settings are changed, determined before anything is changed.
//!
//! A value that fits an index only because it is compressed may not fit with another method, or uncompressed. An UPDATE
//! of its row then fails, and so does every later INSERT of such a value. The rows that are examined are a sample of a
//! large table, and all of a small one; the server compresses copies of their values.

use std::collections::{BTreeSet, HashMap};

use tokio_postgres::types::{ToSql, Type};

use crate::retoast::error::{Result, RetoastError, unfit};
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::sql;
use crate::retoast::sweep::sample::CopySizes;
use crate::retoast::sweep::scanner::{JUDGED_BYTES, LongRow, LongRows, Scanner};
use crate::retoast::task::guard::{Guard, Reads};
use crate::server::chunks::{address, in_parts_of};
use crate::server::snapshot;
use crate::server::trial::Trial;
use crate::server::{LiveError, LiveResult};
use toast_format::codec::Method;
use toast_format::disk::{ItemPointer, Length};
use toast_format::heap::sample::Sample as BlockSample;
use toast_format::judge::{FormJudge, Judge};
use toast_format::model::StoredValue;
use toast_format::model::index_entry::{EntryTooLarge, Fit, may_be_too_large};
use toast_format::model::index_shape::IndexShape;
use toast_format::model::policy::VARLENA_HEADER_SIZE;
use toast_format::model::sql::{fresh, fresh_array, quote_identifier};
use toast_format::model::toast::{Incoming, Table};

/// The number of parts of a table that are read, and the number of consecutive blocks in each.
const PARTS: u32 = 512;
const PART: u32 = 32;
/// The maximum number of rows that functions look for.
const ASKED: usize = 1000;
/// What an array of one element has in addition to the element (`ARR_OVERHEAD_NONULLS`, without the length word).
const ARRAY_HEADER: u32 = 20;

/// An index whose entries depend on the choice.
#[derive(Debug, Clone)]
struct Affected {
    shape: IndexShape,
    /// The number of a column of the index, from 1, if it is an expression; and the chosen column whose values the
    /// expression may return as they are stored, as `coalesce` does. Only then does the choice matter: an UPDATE of
    /// another column makes an entry of the stored value, which stays compressed as it is.
    expression: Option<(usize, usize)>,
}

/// What the server tells of the values of rows.
#[derive(Default)]
struct EntrySizes {
    values: CopySizes,
    /// Of arrays that consist of the longest element alone.
    elements: CopySizes,
    /// The sizes of these elements, without their headers.
    raw_elements: HashMap<(ItemPointer, usize), u32>,
}

impl Scanner<'_> {
    /// Refuses a choice with which examined rows would be too long for an index. Returns notes about indexes of which it
    /// is not known how large their entries are.
    pub(crate) async fn refuse_long_entries(&mut self, guard: &Guard<'_>) -> Result<Vec<String>> {
        let is_stock =
            matches!(self.choice.judge, Judge::Policy(_) | Judge::Forms(FormJudge::Stock(_)));
        let affected = self.affected();
        if !is_stock || affected.is_empty() {
            return Ok(Vec::new());
        }
        let shapes: Vec<IndexShape> = affected.iter().map(|index| index.shape.clone()).collect();
        let mut long = LongRows {
            rows: Vec::new(),
            model: Table { indexes: shapes.clone(), ..self.choice.model.clone() },
            now: self.ready.relation.table(Method::Pglz, self.server.page_size),
        };
        long = match self.pages {
            Some(_) => self.long_rows_by_pages(guard, long).await?,
            None => self.long_rows_by_functions(guard, long, &shapes).await?,
        };
        long.keep_longest();
        let rows = long.rows;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let sizes = self.entry_sizes(guard, &rows, &shapes).await?;
        let mut notes = Vec::new();
        for index in &affected {
            let mut too_long: Vec<(ItemPointer, EntryTooLarge)> = Vec::new();
            let mut unknown = false;
            for row in &rows {
                match self.fit(&index.shape, row, sizes.as_ref()) {
                    Fit::Fits => {}
                    Fit::TooLarge(entry) => too_long.push((row.ctid, entry)),
                    Fit::Unknown => unknown = index.expression.is_none(),
                }
            }
            if (index.shape.is_partial || index.expression.is_some()) && !too_long.is_empty() {
                let members = self.members(guard, index, &too_long).await?;
                too_long.retain(|(ctid, _)| members.contains(ctid));
            }
            let index = &index.shape;
            too_long.sort_by_key(|(ctid, _)| *ctid);
            if let Some((ctid, entry)) = too_long.first() {
                return self.too_long(*ctid, entry, too_long.len());
            }
            if unknown {
                notes.push(format!(
                    "index {} ({}): the size of its entries is not known: if a row does not fit, the run stops, and \
                     restores the settings",
                    index.name, index.method
                ));
            }
        }
        Ok(notes)
    }

    fn too_long<T>(&self, ctid: ItemPointer, entry: &EntryTooLarge, rows: usize) -> Result<T> {
        let rows = match rows {
            1 => "1 examined row does".to_owned(),
            rows => format!("{rows} examined rows do"),
        };
        unfit(format!(
            "{rows} not fit index {} with {}, the first at {ctid}: index row size {} exceeds {} maximum {}: nothing was \
             changed\n\
             HINT:  Later INSERTs or UPDATEs of rows with such values would fail too. Choose another toaster, or replace \
             the index by one USING hash, or on an expression such as md5(column) or left(column, 500).",
            entry.index,
            self.choice.judge.choice(),
            entry.size,
            entry.method,
            entry.limit
        ))
    }

    /// The indexes whose entries the settings of the chosen columns may affect.
    fn affected(&self) -> Vec<Affected> {
        let (targets, _) = self.indexes();
        let mut found = Vec::new();
        for shape in &self.choice.model.indexes {
            if targets.iter().any(|&target| shape.depends_on(target)) {
                found.push(Affected { shape: shape.clone(), expression: None });
            }
            for (at, column) in shape.columns.iter().enumerate() {
                if column.attnum != 0 || !shape.keeps_stored_values() {
                    continue;
                }
                for &target in targets.iter().filter(|&&target| self.compresses(target)) {
                    let shape = shape.with_column(at, target);
                    if shape.depends_on(target) {
                        found.push(Affected { shape, expression: Some((at + 1, target)) });
                    }
                }
            }
        }
        found
    }

    /// Whether the choice compresses the values of a column.
    fn compresses(&self, column: usize) -> bool {
        let column = self.choice.model.columns.get(column);
        column.is_some_and(|own| own.storage.compresses())
    }

    /// Keeps a row that may be too long for an index, unless it is certainly not in it.
    pub(super) fn note_long_row(&mut self, ctid: ItemPointer, values: &[StoredValue]) {
        let (targets, _) = self.indexes();
        let Some(long) = &mut self.seen.long_rows else { return };
        let stored: Vec<Incoming> =
            values.iter().enumerate().map(|(at, value)| long.model.carried(at, value)).collect();
        if may_be_too_large(&long.model, &long.now, &targets, &stored) {
            let bytes = values.iter().filter_map(|value| value.raw_size).sum();
            long.add(LongRow { ctid, values: stored, bytes });
        }
    }

    async fn long_rows_by_pages(&mut self, guard: &Guard<'_>, long: LongRows) -> Result<LongRows> {
        self.seen.long_rows = Some(long.clone());
        let sizes = guard.sizes_now().await?.unwrap_or_default();
        let blocks = sizes.heap_pages(self.server.page_size);
        for part in BlockSample::new(blocks.div_ceil(PART), PARTS, 1) {
            guard.session.pass(WorkKind::Scan, 0).await?;
            if guard.session.stopped() {
                break;
            }
            let start = part.0.saturating_mul(PART);
            self.read(guard, start..start.saturating_add(PART).min(blocks)).await?;
        }
        Ok(self.seen.long_rows.take().unwrap_or(long))
    }

    /// Without pages, the first rows with a chosen value that is long or compressed.
    async fn long_rows_by_functions(
        &self,
        guard: &Guard<'_>,
        mut rows: LongRows,
        shapes: &[IndexShape],
    ) -> Result<LongRows> {
        let columns: Vec<usize> = self.entry_columns(shapes).into_iter().collect();
        let sizes: Vec<String> = columns
            .iter()
            .map(|&at| format!("pg_catalog.pg_column_size({})", self.fresh(at)))
            .collect();
        let is_long: Vec<String> = self
            .ready
            .targets
            .iter()
            .map(|target| {
                let column = target.column();
                format!(
                    "pg_catalog.pg_column_compression({column}) IS NOT NULL \
                     OR pg_catalog.pg_column_size({column}) > 500"
                )
            })
            .collect();
        let sql = format!(
            "SELECT t.ctid::pg_catalog.text, ARRAY[{}]::pg_catalog.int4[] FROM ONLY {} AS t WHERE {} LIMIT {ASKED}",
            sizes.join(", "),
            self.ready.relation.quoted(),
            is_long.join(" OR ")
        );
        let client = self.connection.client();
        let found = guard.in_reading(async |_| Ok(client.query_typed(&sql, &[]).await?)).await?;
        for row in found {
            let sizes: Vec<Option<i32>> = row.try_get(1)?;
            let mut values =
                vec![Incoming::Opaque { size: 0, outside: None }; self.choice.model.columns.len()];
            let mut bytes = 0;
            for (&at, size) in columns.iter().zip(sizes) {
                let raw = size.map(|size| size.unsigned_abs().saturating_sub(VARLENA_HEADER_SIZE));
                bytes += u64::from(raw.unwrap_or(0));
                if let Some(value) = values.get_mut(at) {
                    *value = raw.map_or(Incoming::Null, |raw| Incoming::Plain { raw });
                }
            }
            rows.add(LongRow { ctid: address(row.try_get(0)?)?, values, bytes });
        }
        Ok(rows)
    }

    /// The columns of variable length in the affected indexes.
    fn entry_columns(&self, shapes: &[IndexShape]) -> BTreeSet<usize> {
        let mut variable = BTreeSet::new();
        for at in shapes.iter().flat_map(IndexShape::table_columns) {
            let column = self.choice.model.columns.get(at);
            if column.is_some_and(|column| column.length == Length::Varlena) {
                variable.insert(at);
            }
        }
        variable
    }

    /// An expression for a fresh value of a column.
    fn fresh(&self, index: usize) -> String {
        if let Some(target) = self.ready.targets.iter().find(|target| target.index == index) {
            return target.shape.force(&target.column());
        }
        let Some(column) = self.ready.relation.desc.attributes.get(index) else {
            return "NULL".to_owned();
        };
        let value = format!("t.{}", quote_identifier(&column.name));
        if column.type_name.ends_with("[]") { fresh_array(&value) } else { fresh(&value) }
    }

    /// Makes the server compress the values of these rows. Returns `None` if it cannot.
    async fn entry_sizes(
        &mut self,
        guard: &Guard<'_>,
        rows: &[LongRow],
        shapes: &[IndexShape],
    ) -> Result<Option<EntrySizes>> {
        let tried = guard.tried("reading", async || {
            self.begin(Reads::WithTemporary).await?;
            let client = self.connection.client();
            snapshot::abandoned(client, self.ask_entry_sizes(rows, shapes)).await
        });
        match tried.await {
            Ok(sizes) => Ok(sizes),
            // no temporary tables, or a damaged value
            Err(RetoastError::Live(LiveError::Server(error))) if error.as_db_error().is_some() => {
                tracing::debug!(
                    "{}: the sizes of index entries are not known: {error}",
                    guard.name()
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn ask_entry_sizes(
        &self,
        rows: &[LongRow],
        shapes: &[IndexShape],
    ) -> LiveResult<EntrySizes> {
        let mut sizes = EntrySizes::default();
        for index in self.entry_columns(shapes) {
            let name = self.ready.relation.desc.attributes.get(index).map_or("", |own| &own.name);
            if shapes.iter().any(|shape| shape.has_elements_of(index)) {
                self.ask_elements(index, name, rows, &mut sizes.raw_elements).await?;
                let fresh = longest_element(name);
                self.compress(index, name, fresh, rows, &mut sizes.elements).await?;
            }
            if shapes.iter().any(|shape| !shape.has_elements_of(index)) {
                self.compress(index, name, self.fresh(index), rows, &mut sizes.values).await?;
            }
        }
        Ok(sizes)
    }

    /// Makes the server compress a column's values, which the expression `fresh` returns.
    async fn compress(
        &self,
        index: usize,
        name: &str,
        fresh: String,
        rows: &[LongRow],
        sizes: &mut CopySizes,
    ) -> LiveResult<()> {
        let column =
            if self.compresses(index) { self.choice.model.columns.get(index) } else { None };
        let Some(&method) = column.and_then(|column| column.method.methods().first()) else {
            return Ok(());
        };
        let table = self.ready.relation.quoted();
        let page = self.choice.model.page;
        let trial = Trial::with_fresh(table, index, name, fresh, &[method], page);
        let client = self.connection.client();
        trial.make(client).await?;
        for group in in_parts_of(rows, usize::MAX, JUDGED_BYTES, |row| row.bytes) {
            let ctids: Vec<ItemPointer> = group.iter().map(|row| row.ctid).collect();
            for (ctid, found) in trial.compress(client, &ctids).await? {
                sizes.insert((ctid, index), found.get(method));
            }
        }
        Ok(())
    }

    /// The size of each row's longest element, without its header.
    async fn ask_elements(
        &self,
        index: usize,
        name: &str,
        rows: &[LongRow],
        elements: &mut HashMap<(ItemPointer, usize), u32>,
    ) -> LiveResult<()> {
        let sql = format!(
            "SELECT t.ctid::pg_catalog.text, (SELECT max(pg_catalog.pg_column_size(u)) \
             FROM pg_catalog.unnest(t.{}) AS u) FROM ONLY {} AS t \
             WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            quote_identifier(name),
            self.ready.relation.quoted()
        );
        let ctids: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        let client = self.connection.client();
        for row in client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await? {
            let size: Option<i32> = row.try_get(1)?;
            let raw = size.unwrap_or(0).unsigned_abs().saturating_sub(VARLENA_HEADER_SIZE);
            elements.insert((address(row.try_get(0)?)?, index), raw);
        }
        Ok(())
    }

    /// Whether a row's entry fits an index. A value whose compressed size is not known is taken for a short one.
    fn fit(&self, index: &IndexShape, row: &LongRow, sizes: Option<&EntrySizes>) -> Fit {
        let Some(sizes) = sizes else { return Fit::Unknown };
        let model = &self.choice.model;
        let array = self.ready.targets.iter().find(|target| index.has_elements_of(target.index));
        if let Some(target) = array {
            let key = (row.ctid, target.index);
            let Some(&raw) = sizes.raw_elements.get(&key) else { return Fit::Fits };
            let size = sizes.elements.get(&key).copied().unwrap_or(Some(0));
            let size = size.map(|size| size.saturating_sub(ARRAY_HEADER));
            return index.element_fit(model, target.index, raw, size);
        }
        let mut size =
            |at: usize, _: Method| sizes.values.get(&(row.ctid, at)).copied().unwrap_or(Some(0));
        index.fit(model, &row.values, &mut size)
    }

    /// Those of these rows that a partial index contains, and whose value the expression returns as it is stored.
    async fn members(
        &self,
        guard: &Guard<'_>,
        index: &Affected,
        rows: &[(ItemPointer, EntryTooLarge)],
    ) -> Result<Vec<ItemPointer>> {
        let client = self.connection.client();
        let ctids: Vec<String> = rows.iter().map(|(ctid, _)| ctid.to_string()).collect();
        let table = self.ready.relation.quoted();
        let number = index.expression.map_or(1, |(number, _)| i32::try_from(number).unwrap_or(1));
        let target = index.expression.and_then(|(_, target)| {
            let column = self.ready.relation.desc.attributes.get(target)?;
            Some(format!("t.{}", quote_identifier(&column.name)))
        });
        let role = self.ready.code.role().map(sql::set_role);
        let found = guard
            .in_reading(async |_| {
                if let Some(role) = &role {
                    client.batch_execute(role).await?;
                }
                let parameters =
                    [(&index.shape.name as &(dyn ToSql + Sync), Type::TEXT), (&number, Type::INT4)];
                let found = client.query_typed(sql::INDEX_TEXTS, &parameters).await?;
                let Some(row) = found.first() else { return Ok(Vec::new()) };
                let predicate: Option<String> = row.try_get(0)?;
                let expression: String = row.try_get(1)?;
                let returned = target.as_ref().map(|target| (expression.as_str(), target.as_str()));
                let sql = sql::members(&table, predicate.as_deref(), returned);
                Ok(client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await?)
            })
            .await?;
        found.iter().map(|row| Ok(address(row.try_get(0)?)?)).collect()
    }
}

/// An array of the longest element of an array.
fn longest_element(column: &str) -> String {
    format!(
        "ARRAY(SELECT u FROM pg_catalog.unnest(t.{}) AS u ORDER BY pg_catalog.pg_column_size(u) DESC NULLS LAST LIMIT 1)",
        quote_identifier(column)
    )
}
