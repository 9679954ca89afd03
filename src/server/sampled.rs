//! Rows of chosen blocks, with the form and raw size of each value, where pages are out of reach. Rows are found by
//! their addresses, which the server counts as no scan: statistics of use stay those of others.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::LiveError;
use super::about::Server;
use super::catalog::{self, Relation};
use super::chunks::address;
use super::connect::{Client, Connection};
use super::functions::{Answers, size};
use super::pages::PageReader;
use super::probe::{Asked, Probe};
use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize, TUPLE_HEADER_SIZE};
use crate::disk::{BlockNumber, ItemPointer, max_align};
use crate::model::stored::StoredValue;
use crate::model::visibility::Snapshot;

/// What the functions tell of a row.
#[derive(Debug, Clone)]
pub(crate) struct AskedRow {
    pub(crate) ctid: ItemPointer,
    /// One for each attribute; NULL for dropped ones.
    pub(crate) values: Vec<StoredValue>,
    /// Bytes of the row with its values fetched, as they are stored otherwise; where it was asked for.
    pub(crate) whole: Option<u64>,
}

/// Asks for rows of one table.
#[derive(Debug)]
pub(crate) struct RowReader<'a> {
    connection: Arc<Connection>,
    relation: &'a Relation,
    probe: Probe<'a>,
    page: PageSize,
}

impl<'a> RowReader<'a> {
    /// Takes the lock that keeps the relation from being dropped or truncated until the transaction ends.
    pub(crate) async fn new(
        connection: Arc<Connection>,
        server: &Server,
        relation: &'a Relation,
    ) -> Result<RowReader<'a>, LiveError> {
        let lock = format!("SELECT FROM ONLY {} LIMIT 0", relation.quoted());
        connection.client().batch_execute(&lock).await?;
        let probe = Probe::new(server, relation);
        Ok(RowReader { connection, relation, probe, page: server.page_size })
    }

    fn client(&self) -> &Client {
        self.connection.client()
    }

    /// Blocks of the relation's main fork at this moment.
    pub(crate) async fn block_count(&self) -> Result<u32, LiveError> {
        catalog::blocks(self.client(), &self.relation.quoted(), self.page).await
    }

    /// The addresses of the visible rows of each block.
    pub(crate) async fn addresses(
        &self,
        blocks: &[BlockNumber],
    ) -> Result<Vec<Vec<ItemPointer>>, LiveError> {
        let numbers: Vec<i64> = blocks.iter().map(|block| i64::from(block.0)).collect();
        // MaxHeapTuplesPerPage
        let most = (self.page.bytes() - PAGE_HEADER_SIZE)
            / (max_align(TUPLE_HEADER_SIZE) + LINE_POINTER_SIZE);
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&numbers, Type::INT8_ARRAY), (&most, Type::INT4)];
        let mut found: Vec<ItemPointer> = Vec::new();
        for row in self.client().query_typed(&self.probe.addresses(), &parameters).await? {
            found.push(address(row.try_get(0)?)?);
        }
        found.sort_unstable();
        let of = |block: &BlockNumber| {
            let first = found.partition_point(|ctid| ctid.block < *block);
            let end = found.partition_point(|ctid| ctid.block <= *block);
            found.get(first..end).unwrap_or_default().to_vec()
        };
        Ok(blocks.iter().map(of).collect())
    }

    /// The rows at these addresses, in their order.
    pub(crate) async fn rows(
        &self,
        items: &[ItemPointer],
        asked: Asked<'_>,
    ) -> Result<Vec<AskedRow>, LiveError> {
        let sql = self.probe.chosen_rows(asked);
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let columns = self.probe.columns();
        let likely = self.page.toast_tuple_threshold() as u64;
        let mut rows = Vec::with_capacity(items.len());
        for row in self.client().query_typed(&sql, &[(&items, Type::TEXT_ARRAY)]).await? {
            let answers = Answers::of(&row, 1)?;
            let mut values = vec![StoredValue::NULL; self.relation.desc.attributes.len()];
            for (at, &index) in columns.iter().enumerate() {
                let answer = answers.get(Some(at), at);
                if let Some(value) = values.get_mut(index) {
                    *value = self.probe.told(index, answer).likely(likely);
                }
            }
            let ctid = address(row.try_get(0)?)?;
            rows.push(AskedRow { ctid, values, whole: size(row.try_get(5)?) });
        }
        rows.sort_unstable_by_key(|row| row.ctid);
        Ok(rows)
    }

    /// The text of a column's values at these addresses that are not NULL, in the encoding of the database.
    pub(crate) async fn texts(
        &self,
        column: usize,
        items: &[ItemPointer],
    ) -> Result<Vec<(ItemPointer, Vec<u8>)>, LiveError> {
        let Some(sql) = self.probe.texts(column) else { return Ok(Vec::new()) };
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let mut found = Vec::with_capacity(items.len());
        for row in self.client().query_typed(&sql, &[(&items, Type::TEXT_ARRAY)]).await? {
            found.push((address(row.try_get(0)?)?, row.try_get(1)?));
        }
        Ok(found)
    }

    /// Whether raw sizes of a column's values are told without reading them.
    pub(crate) fn tells_raw(&self, column: usize) -> bool {
        self.probe.tells_raw(column)
    }

    /// The bytes of a column's values at these addresses, as stored and raw. The values are read.
    pub(crate) async fn weight(
        &self,
        column: usize,
        items: &[ItemPointer],
    ) -> Result<(f64, f64), LiveError> {
        let Some(sql) = self.probe.weight(column) else { return Ok((0.0, 0.0)) };
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let rows = self.client().query_typed(&sql, &[(&items, Type::TEXT_ARRAY)]).await?;
        let Some(row) = rows.first() else { return Ok((0.0, 0.0)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}

/// What gives the rows of chosen blocks, in one transaction.
pub(crate) enum SampleSource<'a> {
    Pages(PageReader),
    Functions(RowReader<'a>),
}

impl<'a> SampleSource<'a> {
    /// Of a relation, whose lock it takes: its pages as this snapshot has them, or what functions tell.
    pub(crate) async fn open(
        server: &Server,
        connection: &Arc<Connection>,
        relation: &'a Relation,
        pages: Option<&Snapshot>,
    ) -> Result<SampleSource<'a>, LiveError> {
        Ok(match pages {
            Some(snapshot) => SampleSource::Pages(
                server.page_reader(connection, relation.quoted(), snapshot).await?,
            ),
            None => SampleSource::Functions(
                RowReader::new(Arc::clone(connection), server, relation).await?,
            ),
        })
    }

    /// Blocks of the relation's main fork at this moment.
    pub(crate) async fn block_count(&self) -> Result<u32, LiveError> {
        match self {
            SampleSource::Pages(reader) => reader.block_count().await,
            SampleSource::Functions(reader) => reader.block_count().await,
        }
    }
}
