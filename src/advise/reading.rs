//! Reading a sample: blocks, values out of line, and what compression makes of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::advisor::{AdviseError, Advisor};
use super::asked;
use super::content::{SampledRow, rows_of_page};
use super::extract::auto::Scout;
use super::extract::parent::Migrated;
use super::extract::rows::Extraction;
use super::plan::{Done, SamplePlan};
use super::pluggable::Pluggable;
use super::tally::Tally;
use super::variant::{TODAY, Variants};
use crate::codec::datum;
use crate::disk::pointer::ToastPointer;
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::problem::{Place, Problem, Problems};
use crate::model::toast::Incoming;
use crate::server::catalog::Relation;
use crate::server::pages::{PageReader, Pages};
use crate::server::probe::Asked;
use crate::server::sampled::{AskedRow, RowReader};
use crate::server::trial::Trial;
use crate::server::{LiveError, chunks};

/// Rows asked for at a time.
const ASKED_ROWS: usize = 2000;

/// Where a sample's rows come from.
pub(super) enum Source<'a> {
    Pages(PageReader),
    Functions(RowReader<'a>),
}

/// What was read of some blocks.
pub(super) enum Read {
    Pages(Pages),
    /// The addresses of each block's rows, for which the server is asked then.
    Addresses(Vec<Vec<ItemPointer>>),
}

/// Reads the sample of one relation.
pub(super) struct Reading<'a> {
    pub(super) advisor: &'a Advisor,
    pub(super) relation: &'a Relation,
    pub(super) source: Source<'a>,
    pub(super) compressor: datum::Compressor,
    /// In the order of the variants, where the server is to compress the sample.
    pub(super) trials: Vec<Trial>,
    /// Those of other columns whose values a row's new form hangs on too, as they are needed.
    pub(super) besides: BTreeMap<usize, Trial>,
    pub(super) problems: Problems,
    pub(super) done: Done,
    pub(super) fetched_bytes: u64,
    pub(super) rows_examined: u64,
    pub(super) pluggable: Vec<Pluggable>,
    /// Keys in columns of their own; several sets of them while one is chosen.
    pub(super) extractions: Vec<Extraction>,
    /// The table whose partition this is, where they are taken out of all of them.
    pub(super) parent: Option<Migrated>,
    /// Compresses what is left of documents, where the server is to do that.
    pub(super) rests: Option<Trial>,
    /// Looks at the keys of a column's documents.
    pub(super) scout: Option<(usize, Scout)>,
}

impl Reading<'_> {
    pub(super) fn live(&self, error: LiveError) -> AdviseError {
        AdviseError::Live { relation: self.relation.display_name(), error }
    }

    pub(super) async fn read(&mut self, blocks: &[BlockNumber]) -> Result<Read, AdviseError> {
        let read = match &mut self.source {
            Source::Pages(reader) => reader.read(blocks).await.map(Read::Pages),
            Source::Functions(reader) => reader.addresses(blocks).await.map(Read::Addresses),
        };
        read.map_err(|error| self.live(error))
    }

    /// The live rows of each page.
    pub(super) fn rows<'p>(&mut self, pages: &'p Pages) -> Vec<Vec<SampledRow<'p>>> {
        let name = self.relation.display_name();
        let mut out = Vec::new();
        for (block, bytes) in pages.iter() {
            out.push(rows_of_page(
                &name,
                (block, bytes),
                &self.relation.desc,
                self.advisor.server.page_size,
                |ctid, tuple| pages.visibility(ctid, tuple),
                &mut self.problems,
            ));
        }
        self.problems.extend(pages.problems(&name));
        out
    }

    /// The reader where pages are out of reach.
    pub(super) fn by_functions(&self) -> Option<&RowReader<'_>> {
        match &self.source {
            Source::Pages(_) => None,
            Source::Functions(reader) => Some(reader),
        }
    }

    /// Blocks of the relation.
    pub(super) async fn block_count(&self) -> Result<u32, AdviseError> {
        let count = match &self.source {
            Source::Pages(reader) => reader.block_count().await,
            Source::Functions(reader) => reader.block_count().await,
        };
        count.map_err(|error| self.live(error))
    }

    /// The rows at these addresses, as SQL functions tell them.
    pub(super) async fn asked(
        &self,
        items: &[ItemPointer],
        what: Asked<'_>,
    ) -> Result<Vec<AskedRow>, AdviseError> {
        let mut rows = Vec::with_capacity(items.len());
        let Some(reader) = self.by_functions() else { return Ok(rows) };
        for some in items.chunks(ASKED_ROWS) {
            let asked = reader.rows(some, what).await;
            rows.extend(asked.map_err(|error| self.live(error))?);
        }
        Ok(rows)
    }

    /// As [`Reading::asked`], of each block, as rows of a sample.
    async fn told(
        &self,
        found: &[Vec<ItemPointer>],
        variants: &[Variants],
    ) -> Result<Vec<Vec<SampledRow<'static>>>, AdviseError> {
        let Some(table) = variants.first().and_then(|v| Some(&v.all.get(TODAY)?.table)) else {
            return Ok(Vec::new());
        };
        let weighed: Vec<usize> = variants.iter().map(|v| v.column).collect();
        let desc = &self.relation.desc;
        // a row with computed columns is made anew, without the dropped ones
        let whole = desc.attributes.iter().any(|column| column.dropped)
            && !self.relation.computed.contains(&true);
        let asked =
            self.asked(&found.concat(), Asked::Exactly { weighed: &weighed, whole }).await?;
        let rows: HashMap<ItemPointer, &AskedRow> =
            asked.iter().map(|row| (row.ctid, row)).collect();
        let block = |items: &Vec<ItemPointer>| {
            let rows = items.iter().filter_map(|ctid| rows.get(ctid));
            rows.map(|row| asked::row(row, desc, table)).collect()
        };
        Ok(found.iter().map(block).collect())
    }

    /// As if nothing had been read of the sample.
    pub(super) fn forget(&mut self) {
        self.problems = Problems::default();
        self.done = Done::default();
        (self.fetched_bytes, self.rows_examined) = (0, 0);
    }

    /// Reads the sample and adds it up, for each column.
    pub(super) async fn all(
        &mut self,
        plan: &SamplePlan,
        variants: &[Variants],
        fillfactor: u8,
    ) -> Result<Vec<Tally>, AdviseError> {
        let page = self.advisor.server.page_size;
        let mut tallies: Vec<Tally> =
            variants.iter().map(|v| Tally::new(page, fillfactor, v.all.clone())).collect();
        let progress = Arc::clone(&self.advisor.progress);
        progress.begin(&self.relation.display_name(), u64::from(plan.sample.chosen()));
        let started = Instant::now();
        let mut rng = ChaCha8Rng::seed_from_u64(self.advisor.options.seed ^ 0x726F_7773);
        let mut blocks = plan.blocks();
        while let Some(batch) = plan.next_batch(&mut blocks, &self.done) {
            let pages_read;
            let (mut pages, live) = match self.read(&batch).await? {
                Read::Pages(read) => {
                    pages_read = read;
                    let mut pages = self.rows(&pages_read);
                    let live: Vec<usize> = pages.iter().map(Vec::len).collect();
                    pages.iter_mut().for_each(|rows| keep(rows, plan.fraction, &mut rng));
                    (pages, live)
                }
                Read::Addresses(mut found) => {
                    let live: Vec<usize> = found.iter().map(Vec::len).collect();
                    found.iter_mut().for_each(|rows| keep(rows, plan.fraction, &mut rng));
                    (self.told(&found, variants).await?, live)
                }
            };
            for (at, v) in variants.iter().enumerate() {
                let trial = self.trials.get(at).cloned();
                if let Some(trial) = &trial {
                    self.compress_on_server(&mut pages, v, trial).await?;
                }
                if trial.is_none() || self.wants_documents(v.column) {
                    self.fetch(&mut pages, v).await?;
                }
            }
            if self.by_functions().is_some() {
                for v in variants {
                    self.compress_besides(&mut pages, v).await?;
                    self.fetched_bytes += out_of_line(&pages, v.column);
                    if self.wants_documents(v.column) {
                        self.documents_by_text(&pages, v.column).await?;
                    }
                }
            }
            self.take_apart(&pages);
            self.compress_rests().await?;
            for (rows, live) in pages.iter_mut().zip(live) {
                self.rows_examined += rows.len() as u64;
                for v in variants.iter().filter(|v| !v.methods.is_empty()) {
                    let values = rows.iter().filter_map(|row| row.facts.values.get(v.column));
                    self.done.raw += values.map(|value| sizes(*value).1 as u64).sum::<u64>();
                }
                for tally in &mut tallies {
                    for row in rows.iter_mut() {
                        let (facts, mut compressed) = row.parts(&mut self.compressor);
                        tally.row(facts, &mut compressed);
                    }
                    tally.end_block(rows.len(), live);
                }
                for extraction in &mut self.extractions {
                    for row in rows.iter_mut() {
                        let ctid = row.ctid;
                        let (facts, compressed) = row.parts(&mut self.compressor);
                        extraction.row(ctid, facts, compressed);
                    }
                    extraction.end_block(rows.len(), live);
                }
            }
            for extraction in &mut self.extractions {
                extraction.end_rows();
            }
            self.done.blocks += batch.len() as u32;
            let pages = u64::from(self.done.blocks) * page.bytes() as u64;
            self.done.read = pages + self.fetched_bytes;
            self.done.time = started.elapsed();
            progress.advance(batch.len() as u64);
        }
        progress.end();
        Ok(tallies)
    }

    /// Fetches the column's values out of line, as far as their sizes are not known, and
    /// compresses them.
    async fn fetch(
        &mut self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
    ) -> Result<(), AdviseError> {
        let Some(toast) = self.relation.toast.as_ref() else { return Ok(()) };
        // what another toaster would make of a value is told by its content alone
        let content =
            self.pluggable.iter().any(|p| p.is_for(v.column)) || self.wants_documents(v.column);
        let mut wanted = Vec::new();
        for (page, rows) in pages.iter().enumerate() {
            for (row, values) in rows.iter().enumerate() {
                if let Some(pointer) = values.must_fetch(v.column, &v.methods, content) {
                    wanted.push((page, row, pointer));
                }
            }
        }
        let mut wanted = wanted.as_slice();
        while !wanted.is_empty() {
            let size =
                |(_, _, pointer): &(usize, usize, ToastPointer)| u64::from(pointer.stored_size());
            let (now, later) = chunks::together(wanted, chunks::BYTES, size);
            wanted = later;
            let pointers: Vec<_> = now
                .iter()
                .map(|(_, _, pointer)| *pointer)
                .filter(|pointer| pointer.toast_relation == toast.oid)
                .collect();
            let values = chunks::values(self.advisor.client(), &toast.name, &pointers)
                .await
                .map_err(|error| self.live(error))?;
            for &(page, row, pointer) in now {
                let Some(row) = pages.get_mut(page).and_then(|rows| rows.get_mut(row)) else {
                    continue;
                };
                let result = match values.get(&pointer.value_id.0) {
                    Some(bytes) => {
                        self.fetched_bytes += bytes.len() as u64;
                        let mut toasters = self.pluggable.iter_mut().find(|p| p.is_for(v.column));
                        let (ctid, tuple) = (row.ctid, row.facts.tuple_length);
                        let extractions = &mut self.extractions;
                        let scout = self.scout.as_mut().filter(|(column, _)| *column == v.column);
                        let mut scout = scout.map(|(_, scout)| scout);
                        let values = match extractions[..] {
                            [] => Vec::new(),
                            _ => row.facts.values.clone(),
                        };
                        let mut apart = Ok(());
                        row.fetched(v.column, bytes, &v.methods, &mut self.compressor, &mut |raw| {
                            if let Some(toasters) = &mut toasters {
                                toasters.external(raw, pointer.stored_size(), tuple);
                            }
                            let mut take = |taken: Result<(), String>| {
                                if apart.is_ok() {
                                    apart = taken;
                                }
                            };
                            for extraction in extractions.iter_mut().filter(|e| e.is_for(v.column))
                            {
                                take(extraction.document(ctid, &values, raw));
                            }
                            if let Some(scout) = &mut scout {
                                take(scout.document(raw));
                            }
                        })
                        .and(apart)
                    }
                    None => Err(format!(
                        "chunks of value {} do not give its {} bytes",
                        pointer.value_id,
                        pointer.stored_size()
                    )),
                };
                if let Err(message) = result {
                    let place = self.place(row.ctid, &v.name);
                    self.problems.add(Problem { place, message });
                }
            }
        }
        Ok(())
    }

    pub(super) fn place(&self, ctid: ItemPointer, column: &str) -> Place {
        Place {
            block: Some(ctid.block),
            item: Some(ctid.item),
            column: Some(column.to_owned()),
            ..Place::of(self.relation.display_name())
        }
    }
}

/// Leaves a part of a list, at random.
fn keep<T>(list: &mut Vec<T>, fraction: f64, rng: &mut ChaCha8Rng) {
    if fraction >= 1.0 {
        return;
    }
    let count = ((list.len() as f64 * fraction).ceil() as usize).min(list.len());
    let kept: HashSet<usize> =
        rand::seq::index::sample(rng, list.len(), count).into_iter().collect();
    let mut index = 0;
    list.retain(|_| {
        index += 1;
        kept.contains(&(index - 1))
    });
}

/// Bytes of a column's values out of line.
fn out_of_line(pages: &[Vec<SampledRow<'_>>], column: usize) -> u64 {
    let values = pages.iter().flatten().filter_map(|row| row.facts.values.get(column));
    let bytes = values.map(|value| match value {
        Incoming::Kept { stored, .. } => u64::from(*stored),
        _ => 0,
    });
    bytes.sum()
}

/// Stored and raw bytes.
pub(super) fn sizes(value: Incoming) -> (f64, f64) {
    let (stored, raw) = match value {
        Incoming::Null => (0, 0),
        Incoming::Fixed { size } => (size, size),
        Incoming::Opaque { size, outside } => {
            let size = size.saturating_add(outside.unwrap_or_default().stored);
            (size, size)
        }
        Incoming::Short { raw } | Incoming::Plain { raw } => (raw, raw),
        Incoming::Compressed { size, raw, .. } => (size, raw),
        Incoming::Foreign { stored, raw, .. } | Incoming::Kept { stored, raw, .. } => (stored, raw),
    };
    (f64::from(stored), f64::from(raw))
}
