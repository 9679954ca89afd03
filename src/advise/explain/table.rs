//! The explanation of one table: its sample read, and where the chunks of its values stand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::types::{Oid as PgOid, Type};

use super::result::{Explanation, Looked, SCHEMA, WidthRange};
use super::sums::{Cluster, Index, Places, Scope, Sums};
use super::widths::{self, Ranges};
use crate::advise::advisor::{AdviseError, Advisor};
use crate::advise::content::{SampledRow, rows_of_page};
use crate::advise::plan::{Done, SamplePlan};
use crate::advise::tally::{as_stored, fresh};
use crate::advise::variant;
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::pointer::ToastPointer;
use crate::heap::problem::{Place, Problem, Problems};
use crate::model::sql::quote_qualified;
use crate::model::toast::{Incoming, Table};
use crate::server::LiveError;
use crate::server::about::Pageinspect;
use crate::server::about::ServerReport;
use crate::server::catalog::{Relation, ToastRelation};
use crate::server::connect::Client;
use crate::server::pages::{PageReader, Pages};
use crate::server::snapshot;

/// Values, and chunks of theirs, that are looked up at a time.
const MOST_VALUES: usize = 2000;
const MOST_CHUNKS: u64 = 20_000;

impl Advisor {
    /// What the storage of a relation's columns costs today; of all that can be toasted if none is named.
    ///
    /// # Errors
    /// Where pages cannot be read, or a named column has nothing to explain.
    pub(in crate::advise) async fn explain(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Explanation, AdviseError> {
        let pageinspect = self.pageinspect(relation)?;
        let columns = if columns.is_empty() {
            variant::toastable_columns(relation)?
        } else {
            variant::named_columns(relation, columns)?
        };
        let live = |error| AdviseError::Live { relation: relation.display_name(), error };
        // the method does not matter where nothing is compressed
        let table = relation.table(Method::Pglz, self.server.page_size);
        let reading = Reading { advisor: self, relation, pageinspect, columns, table };
        let explained = reading.explain().await.map_err(live);
        // If this fails the connection is gone, as the next query will say.
        let _ = snapshot::abandon(self.client()).await;
        explained
    }
}

/// One table.
struct Reading<'a> {
    advisor: &'a Advisor,
    relation: &'a Relation,
    pageinspect: &'a Pageinspect,
    /// Indexes of the columns that are explained.
    columns: Vec<usize>,
    /// As its toaster sees it.
    table: Table,
}

/// What was looked at.
#[derive(Default)]
struct Seen {
    done: Done,
    looked_up: u64,
    problems: Problems,
}

impl Reading<'_> {
    async fn explain(&self) -> Result<Explanation, LiveError> {
        let Reading { advisor, relation, pageinspect, .. } = *self;
        let page = advisor.server.page_size;
        let moment = snapshot::begin(&advisor.connection).await?;
        let mut reader = PageReader::new(
            Arc::clone(&advisor.connection),
            pageinspect,
            page,
            relation.quoted(),
            moment.snapshot,
        )
        .await?;
        let levels = match &relation.toast {
            Some(toast) => Some(levels(advisor.client(), toast, pageinspect).await?),
            None => None,
        };
        let total = reader.block_count().await?;
        let plan = SamplePlan::new(advisor.options.sample, advisor.options.seed, total, 0.0);
        let mut seen = Seen::default();
        let sums = self.read(&plan, &mut reader, &mut seen).await?;
        let index = Index::of(levels.unwrap_or_default(), page);
        let complete = plan.sample.is_all() && plan.limit(&seen.done).is_none();
        let scope = Scope { total_blocks: total, complete, index };
        let ranges = Ranges::of(page);
        let threshold = widths::threshold(page);
        let width = |(range, share)| {
            let (from, to) = ranges.bounds(range);
            WidthRange { from, to, toasted: from > threshold, share }
        };
        let named = self.columns.iter().enumerate().filter(|&(at, _)| sums.has_values(at));
        Ok(Explanation {
            schema: SCHEMA,
            server: ServerReport::from(&advisor.server),
            relation: relation.display_name(),
            schema_name: relation.schema.clone(),
            name: relation.name.clone(),
            oid: relation.oid.0,
            sample: Looked {
                blocks: seen.done.blocks,
                total_blocks: total,
                rows: sums.rows() as u64,
                values_looked_up: seen.looked_up,
                seed: advisor.options.seed,
                complete,
            },
            heap_blocks: total,
            rows: sums.live_rows(&scope),
            index_levels: levels,
            threshold,
            target: self.table.target.bytes() as u64,
            widths: sums.widths(&scope).into_iter().enumerate().map(width).collect(),
            update_other: sums.update_other(&scope),
            columns: named
                .filter_map(|(at, &index)| Some((at, relation.desc.attributes.get(index)?)))
                .map(|(at, attribute)| sums.column(at, attribute, &scope))
                .collect(),
            problems: seen.problems.kept().iter().map(ToString::to_string).collect(),
            problem_count: seen.problems.count(),
        })
    }

    /// Reads the sample, block by block, as far as its limits reach.
    async fn read(
        &self,
        plan: &SamplePlan,
        reader: &mut PageReader,
        seen: &mut Seen,
    ) -> Result<Sums, LiveError> {
        let page = self.advisor.server.page_size;
        let progress = Arc::clone(&self.advisor.progress);
        progress.begin(&self.relation.display_name(), u64::from(plan.sample.chosen()));
        let mut sums = Sums::new(self.columns.len());
        let started = Instant::now();
        let mut blocks = plan.blocks();
        while let Some(batch) = plan.next_batch(&mut blocks, &seen.done) {
            let pages = reader.read(&batch).await?;
            let rows = self.rows(&pages, seen);
            let mut rows = rows.as_slice();
            while !rows.is_empty() && plan.limit(&seen.done).is_none() {
                let (now, later) = rows.split_at(self.at_a_time(rows).max(1).min(rows.len()));
                rows = later;
                let places = self.places(now, seen).await?;
                for block in now {
                    sums.block(self.add(block, &places, seen));
                }
                seen.done.blocks += now.len() as u32;
                seen.done.read += now.len() as u64 * page.bytes() as u64;
                seen.done.time = started.elapsed();
                progress.advance(now.len() as u64);
            }
        }
        progress.end();
        Ok(sums)
    }

    /// The live rows of each page.
    fn rows<'p>(&self, pages: &'p Pages, seen: &mut Seen) -> Vec<Vec<SampledRow<'p>>> {
        let name = self.relation.display_name();
        seen.problems.extend(pages.problems(&name));
        let rows = pages.iter().map(|page| {
            rows_of_page(
                &name,
                page,
                &self.relation.desc,
                self.advisor.server.page_size,
                |ctid, tuple| pages.visibility(ctid, tuple),
                &mut seen.problems,
            )
        });
        rows.collect()
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
        let (mut values, mut chunks) = (0, 0);
        let fits = |block: &&Vec<SampledRow<'_>>| {
            for (_, _, pointer) in self.pointers(block) {
                values += 1;
                chunks += u64::from(page.chunks(pointer.stored_size()));
            }
            values <= MOST_VALUES && chunks <= MOST_CHUNKS
        };
        blocks.iter().take_while(fits).count()
    }

    /// Where the chunks of these blocks' values stand, by `chunk_id`; not of values of very many chunks, which
    /// stand one after the other but for the first and last.
    async fn places(
        &self,
        blocks: &[Vec<SampledRow<'_>>],
        seen: &mut Seen,
    ) -> Result<HashMap<u32, Places>, LiveError> {
        let Some(toast) = &self.relation.toast else { return Ok(HashMap::new()) };
        let page = self.advisor.server.page_size;
        let mut wanted = HashSet::new();
        for (_, _, pointer) in blocks.iter().flat_map(|block| self.pointers(block)) {
            let chunks = u64::from(page.chunks(pointer.stored_size()));
            if chunks <= MOST_CHUNKS {
                seen.done.read += u64::from(pointer.stored_size());
                wanted.insert(pointer.value_id.0);
            }
        }
        let mut ids: Vec<PgOid> = wanted.into_iter().collect();
        ids.sort_unstable();
        let mut places = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(MOST_VALUES) {
            places.extend(look_up(self.advisor.client(), toast, ids).await?);
        }
        seen.looked_up += places.len() as u64;
        Ok(places)
    }

    /// Adds up a block.
    fn add(
        &self,
        rows: &[SampledRow<'_>],
        places: &HashMap<u32, Places>,
        seen: &mut Seen,
    ) -> Cluster {
        let page = self.advisor.server.page_size;
        let ranges = Ranges::of(page);
        let mut cluster = Cluster::new(self.columns.len());
        for row in rows {
            let facts = &row.facts;
            let values: Vec<_> = facts.values.iter().map(|&value| untoasted(value)).collect();
            cluster.row(facts.tuple_length, ranges.at(self.table.width(&values)));
            let placed = as_stored(&facts.values, page);
            for (at, &column) in self.columns.iter().enumerate() {
                let (Some(sums), Some(value)) = (cluster.column(at), placed.get(column)) else {
                    continue;
                };
                let pointer = row.pointer(column);
                let found = pointer.and_then(|pointer| places.get(&pointer.value_id.0));
                if let Some(pointer) = pointer
                    && found.is_none()
                    && u64::from(page.chunks(pointer.stored_size())) <= MOST_CHUNKS
                {
                    self.missing(row, column, pointer, seen);
                }
                sums.add(value, facts.tuple_length, page, found.copied());
            }
        }
        cluster
    }

    fn missing(&self, row: &SampledRow<'_>, column: usize, pointer: ToastPointer, seen: &mut Seen) {
        let column = self.relation.desc.attributes.get(column);
        let place = Place {
            block: Some(row.ctid.block),
            item: Some(row.ctid.item),
            column: column.map(|column| column.name.clone()),
            ..Place::of(self.relation.display_name())
        };
        let message = format!("there are no chunks of value {}", pointer.value_id);
        seen.problems.add(Problem { place, message });
    }
}

/// The value as it arrives before it is toasted; one of a pluggable toaster has about what it takes now.
fn untoasted(value: Incoming) -> Incoming {
    match value {
        Incoming::Opaque { size, outside } => {
            Incoming::Plain { raw: size.saturating_add(outside.unwrap_or_default().stored) }
        }
        other => fresh(other),
    }
}

/// Pages of the index of a TOAST relation from the root to a leaf, both included: what each search visits
/// (`_bt_getroot` goes by the fast root).
pub(in crate::advise) async fn levels(
    client: &Client,
    toast: &ToastRelation,
    pageinspect: &Pageinspect,
) -> Result<u32, LiveError> {
    let sql = format!(
        "SELECT m.fastlevel::pg_catalog.int8, m.fastroot::pg_catalog.int8 \
         FROM pg_catalog.pg_index AS i, \
              {}(i.indexrelid::pg_catalog.regclass::pg_catalog.text) AS m \
         WHERE i.indrelid = $1 AND i.indisvalid LIMIT 1",
        pageinspect.function("bt_metap")
    );
    let row = client.query_typed(&sql, &[(&toast.oid.0, Type::OID)]).await?.pop();
    let row = row.ok_or_else(|| LiveError::Unexpected("no index of a TOAST relation".into()))?;
    let (level, root): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    // an index of nothing has no root
    Ok(if root == 0 { 0 } else { u32::try_from(level).unwrap_or_default().saturating_add(1) })
}

/// Where the chunks of values stand; of those that are there.
async fn look_up(
    client: &Client,
    toast: &ToastRelation,
    ids: &[PgOid],
) -> Result<Vec<(u32, Places)>, LiveError> {
    let sql = format!(
        "SELECT c.id, pg_catalog.count(*), \
                pg_catalog.count(*) FILTER (WHERE c.block IS DISTINCT FROM c.before) \
         FROM (SELECT b.id, b.block, \
                      pg_catalog.lag(b.block) OVER (PARTITION BY b.id ORDER BY b.seq) AS before \
               FROM (SELECT t.chunk_id AS id, t.chunk_seq AS seq, \
                            (t.ctid::pg_catalog.text::pg_catalog.point)[0] AS block \
                     FROM {} AS t WHERE t.chunk_id = ANY ($1)) AS b) AS c \
         GROUP BY c.id",
        quote_qualified("pg_toast", &toast.name)
    );
    let ids = ids.to_vec();
    let rows = client.query_typed(&sql, &[(&ids, Type::OID_ARRAY)]).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let id: PgOid = row.try_get(0)?;
        let count = |at| -> Result<f64, LiveError> { Ok(row.try_get::<_, i64>(at)? as f64) };
        found.push((Oid(id).0, Places { chunks: count(1)?, visits: count(2)? }));
    }
    Ok(found)
}
