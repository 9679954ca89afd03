//! Counts a toaster's values on the pages of tables. Only pages show the values of dropped columns, which SQL does not
//! return and every update of a row removes.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::retoast::pace::lock_tries::RUN_STOPPED;
use crate::retoast::result::UnfitTable;
use crate::server::pages::Pages;
use crate::server::sqlstate::ErrorKind;
use crate::server::{Connection, LiveError, Server, catalog, snapshot};
use toast_format::disk::{
    BlockNumber, Datum, HeapTuple, ItemPointer, Oid, Page, PageState, TupleDesc, Varlena, Walk,
};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::{self, Item};
use toast_format::model::toaster::catalog::ToasterColumn;
use toast_format::model::toaster::describe::describe;
use toast_format::model::{Toasters, Visibility};

/// Blocks read at a time.
const BLOCKS: u32 = 256;
/// The maximum wait for a table that is locked.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '10s'";

/// The values of one toaster.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Counts by table and index of the column, including dropped columns.
    held: HashMap<(Oid, usize), u64>,
    /// The number of tables read completely.
    pub(crate) tables: u64,
    /// Tables that were not read completely.
    pub(crate) unread: Vec<UnfitTable>,
}

impl Census {
    pub(crate) fn values(&self) -> u64 {
        self.held.values().sum()
    }

    /// Whether the column has any.
    pub(crate) fn holds(&self, column: &ToasterColumn) -> bool {
        self.held.contains_key(&(column.table, column.index))
    }
}

pub(crate) struct Counter<'a> {
    /// For transactions that read one table each.
    pub(crate) reader: &'a Arc<Connection>,
    pub(crate) server: &'a Server,
    pub(crate) toaster: Oid,
    /// All toasters of the database.
    pub(crate) toasters: &'a Toasters,
    /// Cancelled from outside to stop.
    pub(crate) stop: &'a CancellationToken,
}

impl Counter<'_> {
    /// Reads all tables of `columns`, which are in the order of the tables, from end to end.
    pub(crate) async fn count(&self, columns: &[ToasterColumn]) -> Result<Census, LiveError> {
        let mut census = Census::default();
        for table in columns.chunk_by(|a, b| a.table == b.table) {
            let Some(first) = table.first() else { continue };
            // The rows of a partitioned table are in its partitions.
            if first.relkind == 'p' {
                continue;
            }
            let unread = if first.temporary {
                Some("it is a temporary table of another session".to_owned())
            } else {
                self.table(first.table, &mut census).await?
            };
            if let Some(reason) = unread {
                census.unread.push(UnfitTable { relation: first.table_name(), reason });
            }
        }
        Ok(census)
    }

    /// Reads one table; returns the reason if it was not read completely.
    async fn table(&self, table: Oid, census: &mut Census) -> Result<Option<String>, LiveError> {
        let client = self.reader.client();
        let moment = snapshot::begin(self.reader).await?;
        let read = self.blocks(table, moment, census).await;
        match read {
            Ok(unread) => {
                snapshot::end(client).await?;
                Ok(unread)
            }
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
                snapshot::abandon(client).await?;
                Ok(Some(match ErrorKind::from_error(&error) {
                    ErrorKind::Busy => "it is locked by another session".to_owned(),
                    ErrorKind::Row | ErrorKind::Fatal => LiveError::Server(error).to_string(),
                }))
            }
            Err(error) => Err(error),
        }
    }

    async fn blocks(
        &self,
        table: Oid,
        moment: snapshot::Moment,
        census: &mut Census,
    ) -> Result<Option<String>, LiveError> {
        let client = self.reader.client();
        client.batch_execute(LOCK_TIMEOUT).await?;
        let Some(relation) = catalog::describe(client, table).await? else { return Ok(None) };
        let quoted = relation.quoted();
        let mut reader = self.server.page_reader(self.reader, quoted, &moment.snapshot).await?;
        let end = reader.block_count().await?;
        let mut look = TableCensus {
            name: relation.display_name(),
            desc: &relation.desc,
            counter: self,
            values: HashMap::new(),
            problems: Problems::default(),
        };
        for start in (0..end).step_by(BLOCKS as usize) {
            if self.stop.is_cancelled() {
                return Ok(Some(RUN_STOPPED.to_owned()));
            }
            let blocks: Vec<BlockNumber> =
                (start..end.min(start.saturating_add(BLOCKS))).map(BlockNumber).collect();
            look.pages(&reader.read(&blocks).await?);
        }
        census.tables += 1;
        for (index, values) in look.values {
            *census.held.entry((table, index)).or_default() += values;
        }
        Ok(look
            .problems
            .kept()
            .first()
            .map(|problem| format!("{} problems, the first: {problem}", look.problems.count())))
    }
}

/// A table whose pages are being read for pointers of the toaster.
struct TableCensus<'a> {
    name: String,
    desc: &'a TupleDesc,
    counter: &'a Counter<'a>,
    /// Counts by index of the column.
    values: HashMap<usize, u64>,
    problems: Problems,
}

impl TableCensus<'_> {
    fn problem(&mut self, block: BlockNumber, item: Option<u16>, message: String) {
        let place = Place { block: Some(block), item, ..Place::new(self.name.clone()) };
        self.problems.add(Problem { place, message });
    }

    fn pages(&mut self, pages: &Pages) {
        self.problems.extend(pages.problems(&self.name));
        for (block, bytes) in pages.iter() {
            let page = match Page::parse(bytes) {
                Ok(PageState::Used(page)) => page,
                Ok(PageState::New) => continue,
                Err(error) => {
                    self.problem(block, None, error.to_string());
                    continue;
                }
            };
            for (ctid, item) in scan::items(block, &page) {
                match item {
                    Item::Unused | Item::Redirect | Item::Dead => {}
                    Item::Tuple(tuple, _) => {
                        if pages.visibility(ctid, &tuple) != Visibility::Dead {
                            self.tuple(ctid, &tuple);
                        }
                    }
                    Item::Damaged(message) => self.problem(block, Some(ctid.item), message),
                }
            }
        }
    }

    /// Counts the pointers of a tuple, including those of dropped columns.
    fn tuple(&mut self, ctid: ItemPointer, tuple: &HeapTuple<'_>) {
        let Counter { toaster, toasters, server, .. } = *self.counter;
        for (index, walked) in Walk::new(tuple, self.desc).enumerate() {
            let pointer = match walked {
                Ok((_, Datum::Varlena(Varlena::Custom(pointer)))) => pointer,
                Ok(_) => continue,
                Err(error) => {
                    self.problem(ctid.block, Some(ctid.item), error.to_string());
                    return;
                }
            };
            if pointer.toaster == toaster {
                *self.values.entry(index).or_default() += 1;
            }
            let is_of_other = pointer.toaster != toaster
                && toasters.rows().iter().any(|row| row.oid == pointer.toaster);
            // A damaged pointer may belong to any toaster, unless it names another one that exists.
            if !is_of_other
                && let Err(error) = describe(&pointer, &Toasters::by_bytes(), server.page_size)
            {
                self.problem(ctid.block, Some(ctid.item), error.to_string());
            }
        }
    }
}
