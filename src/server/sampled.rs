//! Rows of chosen blocks, with the form and raw size of each value, where pages cannot be read. Rows are fetched by
//! their addresses, which the server does not count as a scan, so that the statistics show only the use by others.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future;
use tokio_postgres::types::Type;

use super::about::Server;
use super::catalog::{self, Relation};
use super::chunks::address;
use super::connect::{Client, Connection};
use super::functions::{Answers, rows, size};
use super::pages::{PageReader, ReadOrder};
use super::probe::{Probe, RowQuestion};
use super::scan::{BATCH, ScanError};
use super::{LiveResult, Parameter};
use toast_format::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, TUPLE_HEADER_SIZE};
use toast_format::disk::{BlockNumber, ItemPointer, PageSize, max_align};
use toast_format::heap::scan::Scan;
use toast_format::model::stored::Placement;
use toast_format::model::{Snapshot, StoredValue};

/// What the functions show about a row.
#[derive(Debug, Clone)]
pub(crate) struct AskedRow {
    pub(crate) ctid: ItemPointer,
    /// One for each attribute; NULL for dropped columns.
    pub(crate) values: Vec<StoredValue>,
    /// The size of the row with its values fetched and otherwise as stored; only if it was requested.
    pub(crate) whole: Option<u64>,
}

/// Queries rows of one table.
#[derive(Debug)]
pub(crate) struct RowReader<'a> {
    connection: Arc<Connection>,
    relation: &'a Relation,
    probe: Probe<'a>,
    page: PageSize,
}

impl<'a> RowReader<'a> {
    /// Creates a reader, in a transaction of [`begin_reading`](super::owner_facts::begin_reading), and takes the lock that
    /// keeps the relation from being dropped or truncated until the transaction ends.
    pub(crate) async fn new(
        connection: Arc<Connection>,
        server: &Server,
        relation: &'a Relation,
    ) -> LiveResult<RowReader<'a>> {
        // run, not only parsed: the server then also says if the relation may not be read
        let lock = format!("SELECT FROM ONLY {} LIMIT 0", relation.quoted());
        connection.client().batch_execute(&lock).await?;
        let probe = Probe::new(server, relation);
        Ok(RowReader { connection, relation, probe, page: server.page_size })
    }

    fn client(&self) -> &Client {
        self.connection.client()
    }

    /// The current number of blocks in the relation's main fork.
    pub(crate) async fn block_count(&self) -> LiveResult<u32> {
        catalog::blocks(self.client(), &self.relation.quoted(), self.page).await
    }

    /// The addresses of the visible rows of each block.
    pub(crate) async fn addresses(
        &self,
        blocks: &[BlockNumber],
    ) -> LiveResult<Vec<Vec<ItemPointer>>> {
        let numbers: Vec<i64> = blocks.iter().map(|block| i64::from(block.0)).collect();
        // This is MaxHeapTuplesPerPage.
        let most = (self.page.bytes() - PAGE_HEADER_SIZE)
            / (max_align(TUPLE_HEADER_SIZE) + LINE_POINTER_SIZE);
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let parameters: [Parameter<'_>; 2] = [(&numbers, Type::INT8_ARRAY), (&most, Type::INT4)];
        let mut found: Vec<ItemPointer> = Vec::new();
        for row in self.client().query_typed(&self.probe.addresses(), &parameters).await? {
            found.push(address(row.try_get(0)?)?);
        }
        found.sort_unstable();
        Ok(blocks
            .iter()
            .map(|block| {
                let first = found.partition_point(|ctid| ctid.block < *block);
                let end = found.partition_point(|ctid| ctid.block <= *block);
                found.get(first..end).unwrap_or_default().to_vec()
            })
            .collect())
    }

    /// The rows at these addresses, in their order.
    pub(crate) async fn rows(
        &self,
        items: &[ItemPointer],
        asked: RowQuestion<'_>,
    ) -> LiveResult<Vec<AskedRow>> {
        let sql = self.probe.chosen_rows(asked);
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let columns = self.probe.columns();
        let likely = self.page.toast_tuple_threshold() as u64;
        let mut rows = Vec::with_capacity(items.len());
        for row in self.client().query_typed(&sql, &[(&items, Type::TEXT_ARRAY)]).await? {
            let answers = Answers::from_row(&row, 1)?;
            let mut values = vec![StoredValue::NULL; self.relation.desc.attributes.len()];
            for (at, &index) in columns.iter().enumerate() {
                let answer = answers.get(Some(at), at);
                if let Some(value) = values.get_mut(index) {
                    *value = self.probe.interpret(index, answer).likely(likely);
                }
            }
            let ctid = address(row.try_get(0)?)?;
            rows.push(AskedRow { ctid, values, whole: size(row.try_get(5)?) });
        }
        rows.sort_unstable_by_key(|row| row.ctid);
        Ok(rows)
    }

    /// The text of a column's values at these addresses, in the database's encoding; NULL values are left out.
    pub(crate) async fn texts(
        &self,
        column: usize,
        items: &[ItemPointer],
    ) -> LiveResult<Vec<(ItemPointer, Vec<u8>)>> {
        let Some(sql) = self.probe.texts(column) else { return Ok(Vec::new()) };
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let mut found = Vec::with_capacity(items.len());
        for row in self.client().query_typed(&sql, &[(&items, Type::TEXT_ARRAY)]).await? {
            found.push((address(row.try_get(0)?)?, row.try_get(1)?));
        }
        Ok(found)
    }

    /// Whether the raw sizes of a column's values can be determined without reading them.
    pub(crate) fn tells_raw(&self, column: usize) -> bool {
        self.probe.tells_raw(column)
    }

    /// The total size of a column's values at these addresses, as stored and raw. Reads the values.
    pub(crate) async fn weight(
        &self,
        column: usize,
        items: &[ItemPointer],
    ) -> LiveResult<(f64, f64)> {
        let Some(sql) = self.probe.weight(column) else { return Ok((0.0, 0.0)) };
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let Some(row) = self.client().row(&sql, &[(&items, Type::TEXT_ARRAY)]).await? else {
            return Ok((0.0, 0.0));
        };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Counts the rows of these blocks, which are in ascending order.
    async fn scan(&self, blocks: &[BlockNumber], scan: &mut Scan<()>) -> LiveResult<()> {
        let columns = self.probe.columns();
        for some in runs(blocks).chunks(UNDER_WAY) {
            let asked = some.iter().map(|run| rows(self.client(), &self.probe, &columns, run));
            let answers = future::try_join_all(asked).await?;
            for (run, mut rows) in some.iter().zip(answers) {
                rows.sort_by_key(|row| (row.ctid.block.0, row.ctid.item));
                let mut rows = rows.into_iter().peekable();
                for block in run.clone() {
                    while let Some(row) = rows.next_if(|row| row.ctid.block.0 <= block) {
                        scan.stats.tuples.live += 1;
                        for (&index, answer) in columns.iter().zip(&row.values) {
                            let unplaced = answer.placement == Placement::Unknown;
                            scan.take_answer(index, &answer.value, 1, unplaced);
                        }
                    }
                    scan.end_block();
                }
            }
        }
        Ok(())
    }
}

/// Returns the rows of chosen blocks, in one transaction.
pub(crate) enum RowSource<'a> {
    Pages(PageReader),
    Functions(RowReader<'a>),
}

impl<'a> RowSource<'a> {
    /// Opens a relation and locks it. With a snapshot its pages are read, otherwise SQL functions are used.
    pub(crate) async fn open(
        server: &Server,
        connection: &Arc<Connection>,
        relation: &'a Relation,
        pages: Option<&Snapshot>,
    ) -> LiveResult<RowSource<'a>> {
        Ok(match pages {
            Some(snapshot) => {
                RowSource::Pages(server.page_reader(connection, relation.quoted(), snapshot).await?)
            }
            None => RowSource::Functions(
                RowReader::new(Arc::clone(connection), server, relation).await?,
            ),
        })
    }

    /// The current number of blocks in the relation's main fork.
    pub(crate) async fn block_count(&self) -> LiveResult<u32> {
        match self {
            RowSource::Pages(reader) => reader.block_count().await,
            RowSource::Functions(reader) => reader.block_count().await,
        }
    }

    /// Counts the rows of these blocks, which are in ascending order.
    pub(crate) async fn scan(
        &mut self,
        blocks: &[BlockNumber],
        scan: &mut Scan<()>,
    ) -> Result<(), ScanError> {
        let name = Arc::clone(&scan.relation.source);
        for batch in blocks.chunks(BATCH) {
            let (read, from) = match self {
                RowSource::Pages(reader) => {
                    (reader.visit(batch, ReadOrder::AsTheyCome, &name, scan).await, batch.first())
                }
                RowSource::Functions(reader) => (reader.scan(batch, scan).await, None),
            };
            read.map_err(|error| ScanError::Failed { from: from.copied(), error })?;
        }
        Ok(())
    }
}

/// The maximum number of consecutive blocks in one query.
const RUN: u32 = 16;

/// The maximum number of concurrent queries.
const UNDER_WAY: usize = 8;

/// Consecutive blocks, as ranges.
fn runs(blocks: &[BlockNumber]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block.0 && run.len() < RUN as usize => run.end += 1,
            _ => runs.push(block.0..block.0.saturating_add(1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_asked_about_together() {
        let blocks: Vec<BlockNumber> =
            [1, 2, 3, 7].into_iter().chain(10..40).map(BlockNumber).collect();
        assert_eq!(runs(&blocks), [1..4, 7..8, 10..26, 26..40]);
        assert!(runs(&[]).is_empty());
    }
}
