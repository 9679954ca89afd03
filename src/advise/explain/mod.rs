//! `inspect --explain`: what today's storage of each column costs to read and to change, and how far rows are
//! from the threshold, in the terms of `advise-threshold`, but with chunks where they stand now.
//!
//! The sample of a table is read here, and where the chunks of its values stand; `sums` adds it up, [`result`] is what is
//! reported.

pub mod result;
mod sums;

use std::collections::{HashMap, HashSet};

use self::result::{Explanation, Looked, WidthRange};
use self::sums::{Cluster, Clusters, Ranges, Scope, threshold};
use crate::advise::advisor::Advisor;
use crate::advise::candidate::{AdviseError, named_columns, toastable_columns};
use crate::advise::content::{SampledRow, rows_of_pages};
use crate::advise::plan::{Done, SamplePlan};
use crate::advise::tally::{IndexShape, as_stored};
use crate::command::TableName;
use crate::server::LiveError;
use crate::server::about::Pageinspect;
use crate::server::catalog::{Relation, ToastRelation};
use crate::server::chunks::{id_list, value_id};
use crate::server::connect::Client;
use crate::server::pages::PageReader;
use crate::server::{snapshot, toasters};
use toast_format::codec::Method;
use toast_format::disk::ToastPointer;
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::model::Toasters;
use toast_format::model::cost::CHUNKS_PER_PAGE;
use toast_format::model::pages::{chunk_bytes, tuple_bytes};
use toast_format::model::sql::quote_qualified;
use toast_format::model::toast::{Incoming, Table};
use toast_format::model::toaster::bytea::ByteaPointer;
use toast_format::model::toaster::catalog::Handler;
use toast_format::model::wal::UpdateWork;

/// Values, and chunks of theirs, that are looked up at a time.
const MOST_VALUES: usize = 2000;
const MOST_CHUNKS: u64 = 20_000;

impl Advisor {
    /// What the storage of a relation's columns costs today; of all that can be toasted if none is named.
    ///
    /// # Errors
    /// Where pages cannot be read, or a named column has nothing to explain.
    pub(super) async fn explain(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Explanation, AdviseError> {
        let pageinspect = self.pageinspect(relation)?;
        let columns = if columns.is_empty() {
            toastable_columns(relation)?
        } else {
            named_columns(relation, columns)?
        };
        let live = |error| AdviseError::Live { relation: relation.display_name(), error };
        // the method does not matter where nothing is compressed
        let table = relation.table(Method::Pglz, self.server.page_size);
        let toasters = Toasters::default();
        let reading = Reading { advisor: self, relation, pageinspect, columns, table, toasters };
        let explained = reading.explain().await.map_err(live);
        // If this fails the connection is gone, as the next query will say.
        let _ = snapshot::abandon(self.client()).await;
        explained
    }
}

/// The explanation of one table while its rows are read.
struct Reading<'a> {
    advisor: &'a Advisor,
    relation: &'a Relation,
    pageinspect: &'a Pageinspect,
    /// Indexes of the columns that are explained.
    columns: Vec<usize>,
    /// As its toaster sees it.
    table: Table,
    /// Those of the database, once they are known.
    toasters: Toasters,
}

/// A value's chunks, and the pages that reading them in order visits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Places {
    chunks: f64,
    /// How often the next chunk is on another page than the one before.
    visits: f64,
}

/// The sums over the rows of the sample so far.
#[derive(Default)]
struct ExplainedRows {
    done: Done,
    looked_up: u64,
    problems: Problems,
}

impl Reading<'_> {
    async fn explain(mut self) -> Result<Explanation, LiveError> {
        let Reading { advisor, relation, pageinspect, .. } = self;
        let page = advisor.server.page_size;
        let snapshot = snapshot::begin(&advisor.connection).await?.snapshot;
        self.toasters = toasters::toasters(advisor.client(), &advisor.server).await?;
        let server = &advisor.server;
        let mut reader =
            server.page_reader(&advisor.connection, relation.quoted(), &snapshot).await?;
        let levels = match &relation.toast {
            Some(toast) => Some(pageinspect.index_levels(advisor.client(), toast.oid).await?),
            None => None,
        };
        let total = reader.block_count().await?;
        let plan = SamplePlan::new(advisor.options.sample, advisor.options.seed, total, 0.0);
        let mut seen = ExplainedRows::default();
        let sums = self.read(&plan, &mut reader, &mut seen).await?;
        let index = IndexShape::new(f64::from(levels.unwrap_or_default()), page);
        let complete = plan.sample.is_all() && plan.limit(&seen.done).is_none();
        let scope = Scope { total_blocks: total, complete, index };
        let ranges = Ranges::new(page);
        let threshold = threshold(page);
        let mut widths = Vec::new();
        for (range, share) in sums.widths(&scope).into_iter().enumerate() {
            let (from, to) = ranges.bounds(range);
            widths.push(WidthRange { from, to, toasted: from > threshold, share });
        }
        let named = self.columns.iter().enumerate().filter(|&(at, _)| sums.has_values(at));
        let name =
            TableName::Known { schema: relation.schema.clone(), name: relation.name.clone() };
        Ok(Explanation {
            table: relation.into(),
            sample: Looked {
                blocks: seen.done.blocks,
                total_blocks: total,
                rows: sums.sampled_rows() as u64,
                values_looked_up: seen.looked_up,
                seed: advisor.options.seed,
                complete,
            },
            heap_blocks: total,
            rows: sums.live_rows(&scope),
            index_levels: levels,
            threshold,
            target: self.table.target.bytes() as u64,
            widths,
            update_other: sums.update_other(&scope),
            columns: named
                .filter_map(|(at, &index)| Some((at, relation.desc.attributes.get(index)?)))
                .map(|(at, attribute)| sums.column(at, attribute, &scope))
                .collect(),
            command: format!("{} --optimize read", name.advise(None)),
            problems: seen.problems,
        })
    }

    /// Reads the sample, block by block, as far as its limits reach.
    async fn read(
        &self,
        plan: &SamplePlan,
        reader: &mut PageReader,
        seen: &mut ExplainedRows,
    ) -> Result<Clusters, LiveError> {
        let page = self.advisor.server.page_size;
        let mut sums = Clusters::new(self.columns.len());
        let mut batches = plan.begin(&self.relation.display_name(), &*self.advisor.progress);
        while let Some(batch) = batches.next(&seen.done) {
            let pages = reader.read(&batch).await?;
            let rows = rows_of_pages(self.relation, &pages, page, &mut seen.problems);
            let mut rows = rows.as_slice();
            while !rows.is_empty() && plan.limit(&seen.done).is_none() {
                let (now, later) = rows.split_at(self.at_a_time(rows).max(1).min(rows.len()));
                rows = later;
                let places = self.places(now, seen).await?;
                for block in now {
                    sums.add(self.add(block, &places, seen));
                }
                seen.done.blocks += now.len() as u32;
                seen.done.read += now.len() as u64 * page.bytes() as u64;
                batches.advance(&mut seen.done, now.len());
            }
        }
        batches.end();
        Ok(sums)
    }

    /// The values out of line of the columns that are explained.
    fn pointers<'r>(
        &'r self,
        block: &'r [SampledRow<'_>],
    ) -> impl Iterator<Item = (&'r SampledRow<'r>, usize, ToastPointer)> {
        let toast = self.relation.toast.as_ref().map(|toast| toast.oid);
        block
            .iter()
            .flat_map(|row| self.columns.iter().map(move |&column| (row, column)))
            .filter_map(|(row, column)| Some((row, column, row.pointer(column)?)))
            .filter(move |(_, _, pointer)| toast == Some(pointer.toast_relation))
    }

    /// How many of these blocks have few enough values to be looked up together.
    fn at_a_time(&self, blocks: &[Vec<SampledRow<'_>>]) -> usize {
        let page = self.advisor.server.page_size;
        let mut values = 0;
        let mut chunks = 0;
        let mut fitting = 0;
        for block in blocks {
            for (_, _, pointer) in self.pointers(block) {
                values += 1;
                chunks += u64::from(pointer.chunks(page));
            }
            if values > MOST_VALUES || chunks > MOST_CHUNKS {
                break;
            }
            fitting += 1;
        }
        fitting
    }

    /// Where the chunks of these blocks' values stand, by `chunk_id`; not of values of very many chunks, which
    /// stand one after the other but for the first and last.
    async fn places(
        &self,
        blocks: &[Vec<SampledRow<'_>>],
        seen: &mut ExplainedRows,
    ) -> Result<HashMap<u64, Places>, LiveError> {
        let Some(toast) = &self.relation.toast else { return Ok(HashMap::new()) };
        let page = self.advisor.server.page_size;
        let mut wanted = HashSet::new();
        for (_, _, pointer) in blocks.iter().flat_map(|block| self.pointers(block)) {
            let chunks = u64::from(pointer.chunks(page));
            if chunks <= MOST_CHUNKS {
                seen.done.read += u64::from(pointer.stored_size());
                wanted.insert(pointer.value_id.0);
            }
        }
        let mut ids: Vec<u64> = wanted.into_iter().collect();
        ids.sort_unstable();
        let mut places = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(MOST_VALUES) {
            places.extend(look_up(self.advisor.client(), toast, ids).await?);
        }
        seen.looked_up += places.len() as u64;
        Ok(places)
    }

    /// What an append to a value of `bytea_toaster` stores again: the row with its pointer, and the last chunk, which is
    /// updated unless it is full.
    fn append(&self, row: &SampledRow<'_>, column: usize) -> Option<UpdateWork> {
        let pointer = row.custom(column)?;
        if self.toasters.writer(&pointer).handler != Handler::Bytea {
            return None;
        }
        let page = self.advisor.server.page_size;
        let open = ByteaPointer::parse(&pointer).ok()?.open_chunk(page);
        Some(UpdateWork {
            rows: 1.0,
            heap_bytes: tuple_bytes(row.facts.tuple_length) as f64,
            toast_bytes: open.map_or(0.0, |bytes| chunk_bytes(page, bytes) as f64),
            chunks: f64::from(u8::from(open.is_some())),
            deleted_chunks: 0.0,
        })
    }

    /// Adds up a block.
    fn add(
        &self,
        rows: &[SampledRow<'_>],
        places: &HashMap<u64, Places>,
        seen: &mut ExplainedRows,
    ) -> Cluster {
        let page = self.advisor.server.page_size;
        let ranges = Ranges::new(page);
        let mut cluster = Cluster::block(self.columns.len());
        for row in rows {
            let facts = &row.facts;
            let values: Vec<_> = facts.values.iter().map(|&value| untoasted(value)).collect();
            cluster.add_row(facts.tuple_length, ranges.at(self.table.width(&values)));
            let placed = as_stored(&facts.values, page);
            for (at, &column) in self.columns.iter().enumerate() {
                let (Some(sums), Some(value)) = (cluster.columns.get_mut(at), placed.get(column))
                else {
                    continue;
                };
                if let (Some(append), Some(more)) =
                    (cluster.appends.get_mut(at), self.append(row, column))
                {
                    *append += more;
                }
                let pointer = row.pointer(column);
                let found = pointer.and_then(|pointer| places.get(&pointer.value_id.0));
                if let Some(pointer) = pointer
                    && found.is_none()
                    && u64::from(pointer.chunks(page)) <= MOST_CHUNKS
                {
                    let attribute = self.relation.desc.attributes.get(column);
                    let place = Place::of_value(self.relation.display_name(), row.ctid, attribute);
                    let message = format!("there are no chunks of value {}", pointer.value_id);
                    seen.problems.add(Problem { place, message });
                }
                let Places { chunks, visits } = found.copied().unwrap_or(Places {
                    chunks: f64::from(value.chunks),
                    // one after the other, as they were written
                    visits: f64::from(value.chunks.div_ceil(CHUNKS_PER_PAGE)),
                });
                sums.add_value(value, tuple_bytes(facts.tuple_length) as f64);
                sums.add_read(value, row.stored_items(column), page, chunks, visits);
            }
        }
        cluster
    }
}

/// The value as it arrives before it is toasted; one of a pluggable toaster has about what it takes now.
fn untoasted(value: Incoming) -> Incoming {
    match value {
        Incoming::Opaque { size, outside } => {
            Incoming::Plain { raw: size.saturating_add(outside.unwrap_or_default().stored) }
        }
        other => other.fresh(),
    }
}

/// Where the chunks of values stand; of those that are there.
async fn look_up(
    client: &Client,
    toast: &ToastRelation,
    ids: &[u64],
) -> Result<Vec<(u64, Places)>, LiveError> {
    let sql = format!(
        "SELECT c.id, pg_catalog.count(*), \
                pg_catalog.count(*) FILTER (WHERE c.block IS DISTINCT FROM c.before) \
         FROM (SELECT b.id, b.block, \
                      pg_catalog.lag(b.block) OVER (PARTITION BY b.id ORDER BY b.seq) AS before \
               FROM (SELECT t.chunk_id::pg_catalog.int8 AS id, t.chunk_seq AS seq, \
                            (t.ctid::pg_catalog.text::pg_catalog.point)[0] AS block \
                     FROM {} AS t WHERE t.chunk_id = ANY ({})) AS b) AS c \
         GROUP BY c.id",
        quote_qualified("pg_toast", &toast.name),
        id_list(ids.iter().copied())
    );
    let rows = client.query_typed(&sql, &[]).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let chunks = row.try_get::<_, i64>(1)? as f64;
        let visits = row.try_get::<_, i64>(2)? as f64;
        found.push((value_id(row.try_get(0)?).0, Places { chunks, visits }));
    }
    Ok(found)
}
