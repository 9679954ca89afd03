//! Reading a sample: blocks, values out of line, and what compression makes of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::advisor::{AdviseError, Advisor};
use super::content::{SampledRow, rows_of_page};
use super::fetch;
use super::plan::{Done, SamplePlan};
use super::pluggable::Pluggable;
use super::tally::Tally;
use super::variant::{self, ColumnError, Variants};
use crate::codec::datum;
use crate::disk::BlockNumber;
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::sample::Sample;
use crate::model::toast::Incoming;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::pages::{PageReader, Pages};
use crate::server::trial::Trial;

/// Bytes fetched from the TOAST relation at a time; a single value may be longer.
const FETCH_BYTES: u64 = 8 << 20;
/// Values fetched at a time.
const FETCH_VALUES: usize = 2000;
/// Blocks read beforehand to learn what the columns hold.
const PROBE_BLOCKS: u32 = 16;

/// What a few blocks tell of the columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    blocks: f64,
    /// Stored bytes of each column.
    stored: Vec<f64>,
    /// Raw bytes of each column.
    raw: Vec<f64>,
}

/// Without `--column`: those that hold at least this part of the bytes.
const LEAST_SHARE: f64 = 0.1;

impl Probe {
    pub(super) fn bytes_per_block(&self, columns: &[usize]) -> f64 {
        let sum: f64 = columns.iter().filter_map(|&column| self.raw.get(column)).sum();
        if self.blocks > 0.0 { sum / self.blocks } else { 0.0 }
    }

    pub(super) fn biggest(&self, relation: &Relation) -> Result<Vec<usize>, ColumnError> {
        let toastable = variant::toastable_columns(relation)?;
        let bytes = |column: usize| self.stored.get(column).copied().unwrap_or(0.0);
        let total: f64 = self.stored.iter().sum();
        let mut columns: Vec<usize> =
            toastable.iter().copied().filter(|&c| bytes(c) >= total * LEAST_SHARE).collect();
        columns.sort_by(|&a, &b| bytes(b).total_cmp(&bytes(a)));
        if columns.is_empty() {
            columns.extend(toastable.first());
        }
        Ok(columns)
    }
}

/// Reads the sample of one relation.
pub(super) struct Reading<'a> {
    pub(super) advisor: &'a Advisor,
    pub(super) relation: &'a Relation,
    pub(super) reader: PageReader,
    pub(super) compressor: datum::Compressor,
    /// In the order of the variants, where the server is to compress the sample.
    pub(super) trials: Vec<Trial>,
    pub(super) problems: Problems,
    pub(super) done: Done,
    pub(super) fetched_bytes: u64,
    pub(super) rows_examined: u64,
    pub(super) pluggable: Vec<Pluggable>,
}

impl Reading<'_> {
    fn live(&self, error: LiveError) -> AdviseError {
        AdviseError::Live { relation: self.relation.display_name(), error }
    }

    async fn read(&mut self, blocks: &[BlockNumber]) -> Result<Pages, AdviseError> {
        self.reader
            .read(blocks)
            .await
            .map_err(|error| AdviseError::Live { relation: self.relation.display_name(), error })
    }

    /// The live rows of each page.
    fn rows<'p>(&mut self, pages: &'p Pages) -> Vec<Vec<SampledRow<'p>>> {
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
        for (block, message) in &pages.unreadable {
            let place = Place { block: Some(*block), ..Place::of(name.as_str()) };
            self.problems.add(Problem { place, message: message.clone() });
        }
        out
    }

    /// What the columns hold, from a few blocks.
    pub(super) async fn probe(&mut self, total: u32) -> Result<Probe, AdviseError> {
        let columns = self.relation.desc.attributes.len();
        let mut probe = Probe { blocks: 0.0, stored: vec![0.0; columns], raw: vec![0.0; columns] };
        let sample = Sample::new(total, PROBE_BLOCKS, self.advisor.options.seed);
        let blocks: Vec<BlockNumber> = sample.collect();
        if blocks.is_empty() {
            return Ok(probe);
        }
        let pages = self.read(&blocks).await?;
        for rows in self.rows(&pages) {
            probe.blocks += 1.0;
            for row in &rows {
                for (index, value) in row.facts.values.iter().enumerate() {
                    let (stored, raw) = sizes(*value);
                    if let Some(sum) = probe.stored.get_mut(index) {
                        *sum += stored;
                    }
                    if let Some(sum) = probe.raw.get_mut(index) {
                        *sum += raw;
                    }
                }
            }
        }
        // They are read again with the sample.
        self.problems = Problems::default();
        Ok(probe)
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
        while plan.limit(&self.done).is_none() {
            let mut batch: Vec<BlockNumber> = blocks.by_ref().take(plan.batch).collect();
            if batch.is_empty() {
                break;
            }
            batch.sort_unstable();
            let read = self.read(&batch).await?;
            let mut pages = self.rows(&read);
            let live: Vec<usize> = pages.iter().map(Vec::len).collect();
            if plan.fraction < 1.0 {
                for rows in &mut pages {
                    let keep =
                        ((rows.len() as f64 * plan.fraction).ceil() as usize).min(rows.len());
                    let kept: HashSet<usize> =
                        rand::seq::index::sample(&mut rng, rows.len(), keep).into_iter().collect();
                    let mut index = 0;
                    rows.retain(|_| {
                        index += 1;
                        kept.contains(&(index - 1))
                    });
                }
            }
            for (at, v) in variants.iter().enumerate() {
                match self.trials.get(at).cloned() {
                    Some(trial) => self.compress_on_server(&mut pages, v, &trial).await?,
                    None => self.fetch(&mut pages, v).await?,
                }
            }
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
        let content = self.pluggable.iter().any(|p| p.is_for(v.column));
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
            let mut bytes = 0;
            let fits = |(_, _, pointer): &&(usize, usize, crate::disk::pointer::ToastPointer)| {
                bytes += u64::from(pointer.stored_size());
                bytes <= FETCH_BYTES
            };
            let count = wanted.iter().take(FETCH_VALUES).take_while(fits).count().max(1);
            let (now, later) = wanted.split_at(count);
            wanted = later;
            let pointers: Vec<_> = now
                .iter()
                .map(|(_, _, pointer)| *pointer)
                .filter(|pointer| pointer.toast_relation == toast.oid)
                .collect();
            let values = fetch::values(self.advisor.client(), &toast.name, &pointers)
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
                        let tuple = row.facts.tuple_length;
                        row.fetched(v.column, bytes, &v.methods, &mut self.compressor, &mut |raw| {
                            if let Some(toasters) = &mut toasters {
                                toasters.external(raw, pointer.stored_size(), tuple);
                            }
                        })
                    }
                    None => Err(format!(
                        "chunks of value {} do not give its {} bytes",
                        pointer.value_id,
                        pointer.stored_size()
                    )),
                };
                if let Err(message) = result {
                    let place = Place {
                        block: Some(row.ctid.block),
                        item: Some(row.ctid.item),
                        column: Some(v.name.clone()),
                        ..Place::of(self.relation.display_name())
                    };
                    self.problems.add(Problem { place, message });
                }
            }
        }
        Ok(())
    }

    /// Lets the server compress the column's values.
    async fn compress_on_server(
        &mut self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
        trial: &Trial,
    ) -> Result<(), AdviseError> {
        for rows in pages {
            let items: Vec<_> = rows.iter().map(|row| row.ctid).collect();
            let sizes = trial
                .compress(self.advisor.client(), &items)
                .await
                .map_err(|error| self.live(error))?;
            for row in rows.iter_mut() {
                let Some(sizes) = sizes.get(&row.ctid) else { continue };
                for &method in &v.methods {
                    row.learn(v.column, method, sizes.get(method));
                }
            }
        }
        Ok(())
    }
}

/// Stored and raw bytes.
fn sizes(value: Incoming) -> (f64, f64) {
    let (stored, raw) = match value {
        Incoming::Null => (0, 0),
        Incoming::Fixed { size } | Incoming::Opaque { size } => (size, size),
        Incoming::Short { raw } | Incoming::Plain { raw } => (raw, raw),
        Incoming::Compressed { size, raw, .. } => (size, raw),
        Incoming::Foreign { stored, raw, .. } | Incoming::Kept { stored, raw, .. } => (stored, raw),
    };
    (f64::from(stored), f64::from(raw))
}
