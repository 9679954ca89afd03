//! Counts a toaster's values on the pages of tables. Only pages show the values of dropped columns, which SQL does not
//! return and every update of a row removes.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::retoast::pace::lock_tries::RUN_STOPPED;
use crate::retoast::result::UnfitTable;
use crate::server::sqlstate::ErrorKind;
use crate::server::{Connection, LiveError, LiveResult, Server, catalog, snapshot};
use toast_format::disk::{BlockNumber, Datum, HeapTuple, Oid, TupleDesc, Varlena, Walk};
use toast_format::heap::problem::{Problem, Problems};
use toast_format::heap::scan;
use toast_format::model::Toasters;
use toast_format::model::toaster::catalog::ToasterColumn;
use toast_format::model::toaster::describe::describe;

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
    pub(crate) async fn count(&self, columns: &[ToasterColumn]) -> LiveResult<Census> {
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
    async fn table(&self, table: Oid, census: &mut Census) -> LiveResult<Option<String>> {
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
    ) -> LiveResult<Option<String>> {
        let client = self.reader.client();
        client.batch_execute(LOCK_TIMEOUT).await?;
        let Some(relation) = catalog::describe(client, table).await? else { return Ok(None) };
        let quoted = relation.quoted();
        let mut reader = self.server.page_reader(self.reader, quoted, &moment.snapshot).await?;
        let end = reader.block_count().await?;
        let name = relation.display_name();
        let mut found: HashMap<usize, u64> = HashMap::new();
        let mut problems = Problems::default();
        for start in (0..end).step_by(BLOCKS as usize) {
            if self.stop.is_cancelled() {
                return Ok(Some(RUN_STOPPED.to_owned()));
            }
            let blocks: Vec<BlockNumber> =
                (start..end.min(start.saturating_add(BLOCKS))).map(BlockNumber).collect();
            let pages = reader.read(&blocks).await?;
            problems.extend(pages.problems(&name));
            for (block, bytes) in pages.iter() {
                scan::live_tuples(&name, block, bytes, &pages, &mut problems, |_, tuple, _| {
                    self.pointers(tuple, &relation.desc, &mut found)
                });
            }
        }
        census.tables += 1;
        for (index, values) in found {
            *census.held.entry((table, index)).or_default() += values;
        }
        let first = problems.kept().first();
        Ok(first.map(|first| format!("{} problems, the first: {first}", problems.count())))
    }

    /// Counts the pointers of a tuple by index of the column, including those of dropped columns.
    fn pointers(
        &self,
        tuple: &HeapTuple<'_>,
        desc: &TupleDesc,
        found: &mut HashMap<usize, u64>,
    ) -> Result<(), Problem> {
        let mut done = Ok(());
        for (index, walked) in Walk::new(tuple, desc).enumerate() {
            let (_, datum) = walked.map_err(|error| Problem::without_place(error.to_string()))?;
            let Datum::Varlena(Varlena::Custom(pointer)) = datum else { continue };
            if pointer.toaster == self.toaster {
                *found.entry(index).or_default() += 1;
            }
            let is_of_other = pointer.toaster != self.toaster
                && self.toasters.rows().iter().any(|row| row.oid == pointer.toaster);
            // A damaged pointer may belong to any toaster, unless it names another one that exists.
            if !is_of_other
                && let Err(error) = describe(&pointer, &Toasters::by_bytes(), self.server.page_size)
            {
                done = Err(Problem::without_place(error.to_string()));
            }
        }
        done
    }
}
