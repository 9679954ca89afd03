//! Reading a sample: blocks, values out of line, documents that are taken apart, and what compression makes of all that,
//! here or on the server; before it a few blocks, to learn what the columns hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::advisor::Advisor;
use super::calibration::{Calibrate, SHORTEST};
use super::candidate::{self, AdviseError, Variants};
use super::content::{SampledRow, Specimen, asked_row, compressed_besides, rows_of_pages};
use super::extract::keys::Scout;
use super::extract::rows::Extraction;
use super::plan::{Done, SamplePlan};
use super::pluggable::Pluggable;
use super::report::SampleRead;
use super::result::{Access, Files};
use super::tally::{SampleRow, Tally};
use crate::server::catalog::Relation;
use crate::server::pages::Pages;
use crate::server::probe::RowQuestion;
use crate::server::sampled::{AskedRow, RowReader, RowSource};
use crate::server::trial::Trial;
use crate::server::{LiveError, chunks};
use toast_format::codec::{Method, datum};
use toast_format::disk::jsonb_of_text::jsonb;
use toast_format::disk::{BlockNumber, ItemPointer, ToastPointer};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::sample::Sample;
use toast_format::model::Snapshot;
use toast_format::model::policy::CompressedSizes;
use toast_format::model::sql::{quote_identifier, quote_literal};
use toast_format::model::toast::Incoming;

/// Rows asked for, or copied, at a time.
const ROWS: usize = 2000;
/// Bytes of documents, raw, that are asked for as text at a time; a single one may be longer.
const TEXT_BYTES: u64 = 2 << 20;

/// Values of a column that may be timed, and those of one block.
const SPECIMENS: usize = 400;
const SPECIMENS_PER_BLOCK: usize = 10;

/// Blocks read beforehand to learn what the columns hold.
const PROBE_BLOCKS: u32 = 64;
/// Most stored bytes read to learn raw sizes that only the content shows.
const WEIGHED_BYTES: f64 = 4e6;
/// Without `--column`: those that hold at least this part of the bytes,
const LEAST_SHARE: f64 = 0.1;
/// or half as much as the largest, while columns times attributes of a row are no more than this.
const MOST_ATTRIBUTES: usize = 512;

/// Some blocks whose rows are not decoded, or asked for, yet.
enum Read {
    Pages(Pages),
    /// The addresses of each block's rows, for which the server is asked then.
    Addresses(Vec<Vec<ItemPointer>>),
}

/// What is looked at in the documents of one column.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) column: usize,
    /// Keys in columns of their own; several sets of them while one is chosen.
    pub(super) extractions: Vec<Extraction>,
    /// Counts the keys of documents, if the keys are still to be chosen.
    pub(super) scout: Option<Scout>,
}

impl Documents {
    /// Whether the content of this column's values is looked at.
    fn are_of(&self, column: usize) -> bool {
        column == self.column && (self.scout.is_some() || !self.extractions.is_empty())
    }

    /// Takes the document of a row of these values apart.
    fn add(&mut self, ctid: ItemPointer, row: &[Incoming], content: &[u8]) -> Result<(), String> {
        for extraction in &mut self.extractions {
            extraction.document(ctid, row, content)?;
        }
        self.scout.as_mut().map_or(Ok(()), |scout| scout.document(content))
    }
}

/// Reads the sample of one relation.
pub(super) struct Reading<'a> {
    pub(super) advisor: &'a Advisor,
    pub(super) relation: &'a Relation,
    source: RowSource<'a>,
    compressor: datum::Compressor,
    /// In the order of the variants, where the server is to compress the sample.
    trials: Vec<Trial>,
    /// Those of other columns whose values a row's new form hangs on too, as they are needed.
    besides: BTreeMap<usize, Trial>,
    /// Compresses what is left of documents, where the server is to do that.
    rests: Option<Trial>,
    pub(super) problems: Problems,
    pub(super) done: Done,
    pub(super) fetched_bytes: u64,
    pub(super) rows_examined: u64,
    columns_left_out: u64,
    pub(super) pluggable: Vec<Pluggable>,
    pub(super) documents: Documents,
    /// Of each column that is advised on, values that may be timed.
    pub(super) specimens: Vec<Vec<Specimen>>,
}

impl<'a> Reading<'a> {
    /// Of a relation, whose lock it takes.
    pub(super) async fn new(
        advisor: &'a Advisor,
        relation: &'a Relation,
        access: Access,
        snapshot: Snapshot,
    ) -> Result<Reading<'a>, LiveError> {
        let pages = if matches!(access, Access::Pages) { Some(&snapshot) } else { None };
        let connection = &advisor.connection;
        let server = &advisor.server;
        let source = RowSource::open(server, connection, relation, pages).await?;
        Ok(Reading {
            advisor,
            relation,
            source,
            compressor: datum::Compressor::new(),
            trials: Vec::new(),
            besides: BTreeMap::new(),
            rests: None,
            problems: Problems::default(),
            done: Done::default(),
            fetched_bytes: 0,
            rows_examined: 0,
            columns_left_out: 0,
            pluggable: Vec::new(),
            documents: Documents::default(),
            specimens: Vec::new(),
        })
    }
}

impl Reading<'_> {
    pub(super) fn live(&self, error: LiveError) -> AdviseError {
        AdviseError::Live { relation: self.relation.display_name(), error }
    }

    async fn read(&mut self, blocks: &[BlockNumber]) -> Result<Read, AdviseError> {
        let read = match &mut self.source {
            RowSource::Pages(reader) => reader.read(blocks).await.map(Read::Pages),
            RowSource::Functions(reader) => reader.addresses(blocks).await.map(Read::Addresses),
        };
        read.map_err(|error| self.live(error))
    }

    /// The live rows of each page.
    fn rows<'p>(&mut self, pages: &'p Pages) -> Vec<Vec<SampledRow<'p>>> {
        rows_of_pages(self.relation, pages, self.advisor.server.page_size, &mut self.problems)
    }

    /// Takes out what has been read, with this plan.
    pub(super) fn take(&mut self, access: Access, plan: &SamplePlan) -> SampleRead {
        let total_blocks = plan.sample.total();
        let page = self.advisor.server.page_size;
        let heap_bytes = u64::from(total_blocks) * page.bytes() as u64;
        SampleRead {
            access,
            done: self.done,
            fetched_bytes: self.fetched_bytes,
            rows_examined: self.rows_examined,
            columns_left_out: self.columns_left_out,
            total_blocks,
            complete: plan.is_complete(&self.done),
            limit: plan.limit(&self.done),
            files: vec![Files::new(self.relation, heap_bytes)],
            pluggable: std::mem::take(&mut self.pluggable),
            problems: std::mem::take(&mut self.problems),
        }
    }

    /// The reader where pages are out of reach.
    fn by_functions(&self) -> Option<&RowReader<'_>> {
        match &self.source {
            RowSource::Pages(_) => None,
            RowSource::Functions(reader) => Some(reader),
        }
    }

    /// Blocks of the relation.
    pub(super) async fn block_count(&self) -> Result<u32, AdviseError> {
        let count = self.source.block_count().await;
        count.map_err(|error| self.live(error))
    }

    /// The rows at these addresses, read by SQL functions.
    async fn asked(
        &self,
        items: &[ItemPointer],
        what: RowQuestion<'_>,
    ) -> Result<Vec<AskedRow>, AdviseError> {
        let mut rows = Vec::with_capacity(items.len());
        let Some(reader) = self.by_functions() else { return Ok(rows) };
        for some in items.chunks(ROWS) {
            let asked = reader.rows(some, what).await;
            rows.extend(asked.map_err(|error| self.live(error))?);
        }
        Ok(rows)
    }

    /// The bytes that each of these rows has in the columns, if only a part of them is looked at.
    async fn bytes_of_rows(
        &self,
        found: &[Vec<ItemPointer>],
        fraction: f64,
        variants: &[Variants],
    ) -> Result<HashMap<ItemPointer, f64>, AdviseError> {
        let found = if fraction < 1.0 { found.concat() } else { Vec::new() };
        let mut bytes = HashMap::with_capacity(found.len());
        for row in self.asked(&found, RowQuestion::Sizes).await? {
            let values = variants.iter().filter_map(|v| row.values.get(v.column));
            let sizes = values.filter_map(|value| value.raw_size.max(value.stored_size));
            bytes.insert(row.ctid, sizes.sum::<u64>() as f64);
        }
        Ok(bytes)
    }

    /// As [`Reading::asked`], of each block, as rows of a sample.
    async fn asked_rows(
        &self,
        found: &[Vec<ItemPointer>],
        variants: &[Variants],
    ) -> Result<Vec<Vec<SampledRow<'static>>>, AdviseError> {
        let Some(table) = variants.first().and_then(Variants::table) else {
            return Ok(Vec::new());
        };
        // a target is for several columns, which are made anew then
        let named = variants.iter().flat_map(|v| v.all.iter().flat_map(|one| &one.named));
        let weighed: Vec<usize> = named.copied().collect::<BTreeSet<_>>().into_iter().collect();
        let desc = &self.relation.desc;
        // a row with computed columns is made anew, without the dropped ones
        let whole = desc.attributes.iter().any(|column| column.dropped)
            && !desc.attributes.iter().any(|column| column.is_virtual);
        let asked =
            self.asked(&found.concat(), RowQuestion::Exactly { weighed: &weighed, whole }).await?;
        let rows: HashMap<ItemPointer, &AskedRow> =
            asked.iter().map(|row| (row.ctid, row)).collect();
        let mut blocks = Vec::with_capacity(found.len());
        for items in found {
            let rows = items.iter().filter_map(|ctid| rows.get(ctid));
            blocks.push(rows.map(|row| asked_row(row, desc, table)).collect());
        }
        Ok(blocks)
    }

    /// As if nothing had been read of the sample.
    pub(super) fn forget(&mut self) {
        self.problems = Problems::default();
        self.done = Done::default();
        (self.fetched_bytes, self.rows_examined) = (0, 0);
        self.specimens.clear();
    }

    /// Reads the sample and adds it up, for each column.
    pub(super) async fn tallies(
        &mut self,
        plan: &SamplePlan,
        variants: &[Variants],
        fillfactor: u8,
    ) -> Result<Vec<Tally>, AdviseError> {
        let page = self.advisor.server.page_size;
        let mut tallies: Vec<Tally> =
            variants.iter().map(|v| Tally::new(page, fillfactor, v.all.clone())).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(self.advisor.options.seed ^ 0x726F_7773);
        let mut batches = plan.begin(&self.relation.display_name(), &*self.advisor.progress);
        while let Some(batch) = batches.next(&self.done) {
            let pages_read;
            let (mut pages, parts) = match self.read(&batch).await? {
                Read::Pages(read) => {
                    pages_read = read;
                    let mut pages = self.rows(&pages_read);
                    let mut parts = Vec::with_capacity(pages.len());
                    for rows in &mut pages {
                        parts.push(keep(rows, plan.fraction, &mut rng, |row| {
                            raw_bytes(row, variants)
                        }));
                    }
                    (pages, parts)
                }
                Read::Addresses(mut found) => {
                    let bytes = self.bytes_of_rows(&found, plan.fraction, variants).await?;
                    let mut parts = Vec::with_capacity(found.len());
                    for rows in &mut found {
                        parts.push(keep(rows, plan.fraction, &mut rng, |ctid| {
                            bytes.get(ctid).copied().unwrap_or(0.0)
                        }));
                    }
                    (self.asked_rows(&found, variants).await?, parts)
                }
            };
            for (at, v) in variants.iter().enumerate() {
                let trial = self.trials.get(at).cloned();
                if let Some(trial) = &trial {
                    self.compress_on_server(&mut pages, v, trial).await?;
                }
                if trial.is_none() || self.documents.are_of(v.column) {
                    self.fetch(&mut pages, v).await?;
                }
            }
            if self.by_functions().is_some() {
                for v in variants {
                    self.compress_besides(&mut pages, v).await?;
                    self.fetched_bytes += out_of_line(&pages, v.column);
                    if self.documents.are_of(v.column) {
                        self.documents_by_text(&pages, v.column).await?;
                    }
                }
            }
            self.take_apart(&pages);
            self.compress_rests().await?;
            for (rows, parts) in pages.iter_mut().zip(parts) {
                self.add_block(rows, parts, variants, &mut tallies);
            }
            for extraction in &mut self.documents.extractions {
                extraction.end_rows();
            }
            self.done.blocks += batch.len() as u32;
            let pages = u64::from(self.done.blocks) * page.bytes() as u64;
            self.done.read = pages + self.fetched_bytes;
            batches.advance(&mut self.done, batch.len());
        }
        batches.end();
        Ok(tallies)
    }

    /// Adds the rows of a block that are looked at to the tallies and to what is extracted.
    fn add_block(
        &mut self,
        rows: &mut [SampledRow<'_>],
        BlockParts { live, certain }: BlockParts,
        variants: &[Variants],
        tallies: &mut [Tally],
    ) {
        self.rows_examined += rows.len() as u64;
        for v in variants.iter().filter(|v| !v.methods.is_empty()) {
            let values = rows.iter().filter_map(|row| row.facts.values.get(v.column));
            self.done.raw += values.map(|value| sizes(*value).1 as u64).sum::<u64>();
        }
        self.pick(rows, variants);
        // those asked for by SQL may have gone
        let certain = certain.min(rows.len());
        let others = rows.len() - certain;
        for tally in tallies {
            for (at, row) in rows.iter_mut().enumerate() {
                if at == certain {
                    tally.end_rows(certain, certain);
                }
                let (facts, mut compressed) = row.parts(&mut self.compressor);
                tally.row(facts, &mut compressed);
            }
            tally.end_block(others, live - certain);
        }
        for extraction in &mut self.documents.extractions {
            for (at, row) in rows.iter_mut().enumerate() {
                if at == certain {
                    extraction.end_part(certain, certain);
                }
                let ctid = row.ctid;
                let (facts, mut compressed) = row.parts(&mut self.compressor);
                extraction.row(ctid, facts, &mut compressed);
            }
            extraction.end_block(others, live - certain);
        }
    }

    /// Picks values to be timed, from the first rows of each block, until there are enough.
    fn pick(&mut self, rows: &mut [SampledRow<'_>], variants: &[Variants]) {
        if self.advisor.options.calibrate == Calibrate::Never {
            return;
        }
        self.specimens.resize_with(variants.len(), Vec::new);
        for (picked, v) in self.specimens.iter_mut().zip(variants) {
            let room = SPECIMENS.saturating_sub(picked.len()).min(SPECIMENS_PER_BLOCK);
            let found = rows
                .iter_mut()
                .filter_map(|row| row.specimen(v.column, &v.methods, &mut self.compressor));
            picked.extend(found.filter(|one| one.raw >= SHORTEST).take(room));
        }
    }

    /// Fetches the column's values out of line, as far as their sizes are not known, and
    /// compresses them.
    async fn fetch(
        &mut self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
    ) -> Result<(), AdviseError> {
        let Some(toast) = self.relation.toast.as_ref() else { return Ok(()) };
        // only the content shows what another toaster would make of a value
        let content =
            self.pluggable.iter().any(|p| p.is_for(v.column)) || self.documents.are_of(v.column);
        let mut wanted = Vec::new();
        for (page, rows) in pages.iter().enumerate() {
            for (row, values) in rows.iter().enumerate() {
                if let Some(pointer) = values.must_fetch(v.column, &v.methods, content) {
                    wanted.push((page, row, pointer));
                }
            }
        }
        let size =
            |(_, _, pointer): &(usize, usize, ToastPointer)| u64::from(pointer.stored_size());
        for now in chunks::in_parts(&wanted, chunks::BYTES, size) {
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
                let ctid = row.ctid;
                let Some(bytes) = values.get(&pointer.value_id.0) else {
                    let id = pointer.value_id;
                    let size = pointer.stored_size();
                    let message = format!(
                        "chunks of value {id} do not give its {size} bytes: toastctl check shows what is damaged"
                    );
                    self.note(ctid, v.column, Err(message));
                    continue;
                };
                self.fetched_bytes += bytes.len() as u64;
                let Reading { documents, pluggable, compressor, .. } = self;
                let look = |row: &SampleRow, raw: &[u8]| {
                    if let Some(toaster) = pluggable.iter_mut().find(|p| p.is_for(v.column)) {
                        toaster.external(raw, pointer.stored_size(), row.tuple_length);
                    }
                    if documents.are_of(v.column) {
                        documents.add(ctid, &row.values, raw)
                    } else {
                        Ok(())
                    }
                };
                let fetched = row.fetched(v.column, bytes, &v.methods, compressor, look);
                self.note(ctid, v.column, fetched);
            }
        }
        Ok(())
    }

    /// Makes the temporary tables in which the server compresses the values of these columns.
    pub(super) async fn begin_trials(&mut self, variants: &[Variants]) -> Result<(), AdviseError> {
        for v in variants {
            let trial = self.trial(v.column, &v.methods).await?;
            self.trials.push(trial);
        }
        Ok(())
    }

    /// The same for what is left of documents, where the server compresses the sample.
    pub(super) async fn begin_rests(&mut self) -> Result<(), AdviseError> {
        if let ([extraction], false) = (&self.documents.extractions[..], self.trials.is_empty()) {
            self.rests = self.trial_of_rests(extraction).await?;
        }
        Ok(())
    }

    /// Makes the temporary table for a column.
    async fn trial(&self, column: usize, methods: &[Method]) -> Result<Trial, AdviseError> {
        let attribute = self.relation.desc.attributes.get(column);
        let (name, type_name) =
            attribute.map_or(("", ""), |a| (a.name.as_str(), a.type_name.as_str()));
        let page = self.advisor.server.page_size;
        let is_array = type_name.ends_with("[]");
        let trial = Trial::new(self.relation.quoted(), column, name, is_array, methods, page);
        trial.make(self.advisor.client()).await.map_err(|error| self.live(error))?;
        Ok(trial)
    }

    /// Makes the temporary table for what is left of documents without some keys; `None` where nothing of them is
    /// ever compressed.
    async fn trial_of_rests(&self, extraction: &Extraction) -> Result<Option<Trial>, AdviseError> {
        let Some((method, document, keys)) = extraction.compressed_by() else { return Ok(None) };
        let name = quote_identifier(document);
        let keys: Vec<String> = keys.iter().map(|key| quote_literal(key)).collect();
        let rest = format!(
            "(ARRAY[CASE pg_catalog.jsonb_typeof(t.{name}) WHEN 'object' THEN t.{name} OPERATOR(pg_catalog.-) \
             ARRAY[{}]::pg_catalog.text[] END])[1]",
            keys.join(", ")
        );
        // the number of no column
        let number = self.relation.desc.attributes.len();
        let page = self.advisor.server.page_size;
        let trial =
            Trial::with_fresh(self.relation.quoted(), number, document, rest, &[method], page);
        trial.make(self.advisor.client()).await.map_err(|error| self.live(error))?;
        Ok(Some(trial))
    }

    /// Lets the server compress the column's values.
    async fn compress_on_server(
        &self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
        trial: &Trial,
    ) -> Result<(), AdviseError> {
        if v.methods.is_empty() {
            return Ok(());
        }
        let mut items: Vec<ItemPointer> = Vec::new();
        for row in pages.iter().flatten() {
            if row.facts.values.get(v.column).is_some_and(|value| *value != Incoming::Null) {
                items.push(row.ctid);
            }
        }
        let sizes = self.compressed(trial, &items).await?;
        for row in pages.iter_mut().flatten() {
            let Some(sizes) = sizes.get(&row.ctid) else { continue };
            for &method in &v.methods {
                row.learn(v.column, method, sizes.get(method));
            }
        }
        Ok(())
    }

    /// Lets the server compress what the toaster may try besides the column's values: those of other columns, whose
    /// content is not at hand.
    async fn compress_besides(
        &mut self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
    ) -> Result<(), AdviseError> {
        let Some(table) = v.table() else { return Ok(()) };
        let mut wanted: BTreeMap<usize, (Method, Vec<ItemPointer>)> = BTreeMap::new();
        for row in pages.iter().flatten() {
            // columns for keys are filled while the document still has them
            let document =
                if self.documents.are_of(v.column) { row.facts.values.get(v.column) } else { None };
            let more = document.map_or(0, |document| sizes(*document).1 as u32);
            for (column, method) in compressed_besides(v.column, &row.facts.values, table, more) {
                if !row.knows(column, method) {
                    wanted.entry(column).or_insert((method, Vec::new())).1.push(row.ctid);
                }
            }
        }
        for (column, (method, items)) in wanted {
            if !self.besides.contains_key(&column) {
                let trial = self.trial(column, &[method]).await?;
                self.besides.insert(column, trial);
            }
            let Some(trial) = self.besides.get(&column) else { continue };
            let sizes = self.compressed(trial, &items).await?;
            for row in pages.iter_mut().flatten() {
                if let Some(sizes) = sizes.get(&row.ctid) {
                    row.learn(column, method, sizes.get(method));
                }
            }
        }
        Ok(())
    }

    async fn compressed(
        &self,
        trial: &Trial,
        items: &[ItemPointer],
    ) -> Result<HashMap<ItemPointer, CompressedSizes>, AdviseError> {
        let mut all = HashMap::with_capacity(items.len());
        for some in items.chunks(ROWS) {
            let sizes = trial.compress(self.advisor.client(), some).await;
            all.extend(sizes.map_err(|error| self.live(error))?);
        }
        Ok(all)
    }

    /// Takes apart documents that are known only as text.
    async fn documents_by_text(
        &mut self,
        pages: &[Vec<SampledRow<'_>>],
        column: usize,
    ) -> Result<(), AdviseError> {
        let mut rows: Vec<(&SampledRow<'_>, u64)> = Vec::new();
        for row in pages.iter().flatten() {
            match row.facts.values.get(column) {
                None | Some(Incoming::Null) => {}
                Some(value) => rows.push((row, sizes(*value).1 as u64)),
            }
        }
        for now in chunks::in_parts(&rows, TEXT_BYTES, |&(_, raw)| raw) {
            let of: HashMap<ItemPointer, &SampledRow<'_>> =
                now.iter().map(|&(row, _)| (row.ctid, row)).collect();
            let items: Vec<ItemPointer> = now.iter().map(|(row, _)| row.ctid).collect();
            let Some(reader) = self.by_functions() else { return Ok(()) };
            let texts = reader.texts(column, &items).await;
            let texts = texts.map_err(|error| self.live(error))?;
            for (ctid, text) in texts {
                let Some(row) = of.get(&ctid) else { continue };
                let taken = jsonb(&text).map_err(|error| error.to_string());
                let taken = taken
                    .and_then(|content| self.documents.add(row.ctid, &row.facts.values, &content));
                self.note(row.ctid, column, taken);
            }
        }
        Ok(())
    }

    /// Lets the server compress what is left of the documents at hand.
    async fn compress_rests(&mut self) -> Result<(), AdviseError> {
        let (Some(trial), [extraction]) = (&self.rests, &self.documents.extractions[..]) else {
            return Ok(());
        };
        let sizes = self.compressed(trial, &extraction.tried()).await?;
        if let [extraction] = &mut self.documents.extractions[..] {
            for (ctid, sizes) in sizes {
                extraction.learn(ctid, sizes);
            }
        }
        Ok(())
    }

    /// Takes the documents apart that stand in their rows; the others were when they were fetched.
    fn take_apart(&mut self, pages: &[Vec<SampledRow<'_>>]) {
        let mut documents = std::mem::take(&mut self.documents);
        let column = documents.column;
        let pages = if documents.are_of(column) { pages } else { &[] };
        for row in pages.iter().flatten() {
            let looked = row.show_inline(column, |content: &[u8]| {
                documents.add(row.ctid, &row.facts.values, content)
            });
            self.note(row.ctid, column, looked);
        }
        documents.extractions.iter_mut().for_each(Extraction::begin_rows);
        self.documents = documents;
    }

    /// Tells where a value could not be read.
    fn note(&mut self, ctid: ItemPointer, column: usize, done: Result<(), String>) {
        if let Err(message) = done {
            let attribute = self.relation.desc.attributes.get(column);
            let place = Place::of_value(self.relation.display_name(), ctid, attribute);
            self.problems.add(Problem { place, message });
        }
    }
}

/// How many live rows a block has, and how many of those that are looked at, the first ones, stand only for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockParts {
    live: usize,
    certain: usize,
}

/// Leaves a part of a block's rows, at random, and before them those that are so large that chance must not decide about
/// them: a sample in proportion to size would have them too.
fn keep<T>(
    rows: &mut Vec<T>,
    fraction: f64,
    rng: &mut ChaCha8Rng,
    bytes: impl Fn(&T) -> f64,
) -> BlockParts {
    let live = rows.len();
    if fraction >= 1.0 {
        return BlockParts { live, certain: 0 };
    }
    let count = (live as f64 * fraction).ceil();
    let limit = rows.iter().map(&bytes).sum::<f64>() / (2.0 * count);
    let (mut kept, mut others): (Vec<T>, Vec<T>) =
        rows.drain(..).partition(|row| count * 2.0 < live as f64 && bytes(row) > limit);
    let certain = kept.len();
    let count = ((others.len() as f64 * fraction).ceil() as usize).min(others.len());
    let drawn: HashSet<usize> =
        rand::seq::index::sample(rng, others.len(), count).into_iter().collect();
    let mut index = 0;
    others.retain(|_| {
        index += 1;
        drawn.contains(&(index - 1))
    });
    kept.append(&mut others);
    *rows = kept;
    BlockParts { live, certain }
}

/// Raw bytes of a row's values in the columns that are advised on.
fn raw_bytes(row: &SampledRow<'_>, variants: &[Variants]) -> f64 {
    let values = variants.iter().filter_map(|v| row.facts.values.get(v.column));
    values.map(|value| sizes(*value).1).sum()
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

/// What a column holds at least that is advised on, of the bytes of all columns.
fn least(bytes: &[f64]) -> f64 {
    bytes.iter().sum::<f64>() * LEAST_SHARE
}

/// Stored and raw bytes.
fn sizes(value: Incoming) -> (f64, f64) {
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

/// What a few blocks show of the columns before the sample is drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    blocks: f64,
    /// Stored bytes of each column.
    stored: Vec<f64>,
    /// Raw bytes of each column.
    raw: Vec<f64>,
    /// Rows whose values' raw sizes are not known, with the stored bytes of each column.
    unweighed: Vec<(ItemPointer, Vec<f64>)>,
}

impl Probe {
    pub(super) fn bytes_per_block(&self, columns: &[usize]) -> f64 {
        let sum: f64 = columns.iter().filter_map(|&column| self.raw.get(column)).sum();
        if self.blocks > 0.0 { sum / self.blocks } else { 0.0 }
    }

    /// The columns that hold most, the largest first.
    fn biggest(&self, relation: &Relation) -> Result<Vec<usize>, AdviseError> {
        let toastable = candidate::toastable_columns(relation)?;
        let mut columns = self.holding(&toastable, |bytes| {
            let own = toastable.iter().filter_map(|&column| bytes.get(column));
            least(bytes).min(own.copied().fold(0.0, f64::max) / 2.0)
        });
        if columns.len() * relation.desc.attributes.len() > MOST_ATTRIBUTES {
            columns = self.holding(&toastable, least);
        }
        columns.sort_by(|&a, &b| self.stored_bytes(b).total_cmp(&self.stored_bytes(a)));
        if columns.is_empty() {
            columns.extend(toastable.iter().max_by(|&&a, &&b| {
                self.stored_bytes(a).total_cmp(&self.stored_bytes(b)).then(b.cmp(&a))
            }));
        }
        Ok(columns)
    }

    /// The columns with at least this many stored or raw bytes. A command changes what is stored, but not the raw bytes, so
    /// that the same columns are advised on after it.
    fn holding(&self, columns: &[usize], least: impl Fn(&[f64]) -> f64) -> Vec<usize> {
        let mut held = columns.to_vec();
        held.retain(|&column| {
            [&self.stored, &self.raw].into_iter().any(|bytes| {
                let least = least(bytes);
                bytes.get(column).is_some_and(|&own| own >= least && (own > 0.0 || least <= 0.0))
            })
        });
        held
    }

    /// How many columns other than these hold something, if they hold enough together.
    fn left_out(&self, relation: &Relation, columns: &[usize]) -> u64 {
        let others = relation.toastable().filter(|at| !columns.contains(at));
        let filled: Vec<f64> =
            others.map(|at| self.stored_bytes(at)).filter(|&bytes| bytes > 0.0).collect();
        if filled.iter().sum::<f64>() < least(&self.stored) { 0 } else { filled.len() as u64 }
    }

    fn stored_bytes(&self, column: usize) -> f64 {
        self.stored.get(column).copied().unwrap_or(0.0)
    }

    /// Adds the values of a row, each with its stored and raw bytes.
    fn add(&mut self, values: impl Iterator<Item = (f64, f64)>) {
        for (index, (stored, raw)) in values.enumerate() {
            if let Some(sum) = self.stored.get_mut(index) {
                *sum += stored;
            }
            if let Some(sum) = self.raw.get_mut(index) {
                *sum += raw;
            }
        }
    }

    /// The first rows whose values in a column come to what may be read.
    fn to_weigh(&self, column: usize) -> Vec<ItemPointer> {
        let mut bytes = 0.0;
        let rows = self.unweighed.iter().take_while(|(_, stored)| {
            let enough = bytes >= WEIGHED_BYTES;
            bytes += stored.get(column).copied().unwrap_or(0.0);
            !enough
        });
        rows.map(|(ctid, _)| *ctid).collect()
    }
}

impl Reading<'_> {
    /// What the columns hold, from a few blocks.
    async fn probe(&mut self, total: u32) -> Result<Probe, AdviseError> {
        let columns = self.relation.desc.attributes.len();
        let none = vec![0.0; columns];
        let mut probe = Probe { stored: none.clone(), raw: none, ..Probe::default() };
        let sample = Sample::new(total, PROBE_BLOCKS, self.advisor.options.seed);
        let blocks: Vec<BlockNumber> = sample.collect();
        if blocks.is_empty() {
            return Ok(probe);
        }
        probe.blocks = blocks.len() as f64;
        match self.read(&blocks).await? {
            Read::Pages(pages) => {
                for row in self.rows(&pages).iter().flatten() {
                    probe.add(row.facts.values.iter().map(|value| sizes(*value)));
                }
            }
            Read::Addresses(found) => {
                for row in self.asked(&found.concat(), RowQuestion::Sizes).await? {
                    let stored = row.values.iter().map(|v| v.stored_size.unwrap_or(0) as f64);
                    let raw = row.values.iter().map(|v| v.raw_size.or(v.stored_size));
                    let raw = raw.map(|size| size.unwrap_or(0) as f64);
                    probe.add(stored.clone().zip(raw));
                    probe.unweighed.push((row.ctid, stored.collect()));
                }
            }
        }
        // They are read again with the sample.
        self.problems = Problems::default();
        Ok(probe)
    }

    /// Blocks of the relation, what the columns hold, and those that are advised on: the named ones, or those that hold
    /// most.
    pub(super) async fn probed(
        &mut self,
        named: Vec<usize>,
    ) -> Result<(u32, Probe, Vec<usize>), AdviseError> {
        let total = self.block_count().await?;
        let mut probe = self.probe(total).await?;
        let columns = if named.is_empty() {
            let columns = probe.biggest(self.relation)?;
            self.columns_left_out = probe.left_out(self.relation, &columns);
            columns
        } else {
            named
        };
        self.weigh(&mut probe, &columns).await?;
        Ok((total, probe, columns))
    }

    /// Reads raw sizes of these columns that only the content shows, from a part of the rows.
    async fn weigh(&self, probe: &mut Probe, columns: &[usize]) -> Result<(), AdviseError> {
        let Some(reader) = self.by_functions() else { return Ok(()) };
        for &column in columns.iter().filter(|&&column| !reader.tells_raw(column)) {
            let rows = probe.to_weigh(column);
            let weight = reader.weight(column, &rows).await;
            let (stored, raw) = weight.map_err(|error| self.live(error))?;
            let all = probe.stored_bytes(column);
            if stored > 0.0
                && let Some(sum) = probe.raw.get_mut(column)
            {
                *sum = all * raw / stored;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_does_not_decide_about_a_row_that_holds_most_of_its_block() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut rows: Vec<f64> = (0..200).map(|at| if at == 150 { 1e8 } else { 50.0 }).collect();
        let parts = keep(&mut rows, 0.02, &mut rng, |bytes| *bytes);
        assert_eq!((parts, rows.len(), rows[0]), (BlockParts { live: 200, certain: 1 }, 5, 1e8));
        // where all are alike, each may be left out
        let mut rows = vec![50.0; 200];
        let parts = keep(&mut rows, 0.02, &mut rng, |bytes| *bytes);
        assert_eq!((parts, rows.len()), (BlockParts { live: 200, certain: 0 }, 4));
        let parts = keep(&mut rows, 1.0, &mut rng, |bytes| *bytes);
        assert_eq!((parts, rows.len()), (BlockParts { live: 4, certain: 0 }, 4));
    }
}
