//! Findings about a table of a live server: facts are collected, rules are asked.

use std::sync::Arc;

use tokio_postgres::error::SqlState;

use super::finding_values::ColumnValues;
use super::inspector::{Inspector, no_client};
use super::intervals::WholeEstimate;
use super::result::{ColumnReport, RelationReport, Source};
use crate::codec::Method;
use crate::disk::BlockNumber;
use crate::disk::desc::{Attribute, Storage};
use crate::findings::commands::TableName;
use crate::findings::facts::{BloatedIndex, ColumnFacts, Contents, Facts};
use crate::findings::files::{FileFacts, FileLook};
use crate::findings::finding::{Findings, LookedAt};
use crate::findings::look::{HeapLook, RowFacts};
use crate::findings::rules::{self, keys as hot_keys, lengths::asks_for_values, usage::is_worth};
use crate::heap::sample::{Sample, Sampling};
use crate::model::estimate::Estimate;
use crate::retoast::reindex::result::{IndexEnd, IndexReport};
use crate::retoast::reindex::run::looks;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::{Relation, RelationKind};
use crate::server::pages::{PageReader, Pages};
use crate::server::snapshot::Moment;
use crate::server::sql::quote_qualified;

/// Blocks of a file that are looked at: 2 MB of 8 kB pages.
const BLOCKS: u32 = 256;
/// The same blocks each time.
const SEED: u64 = 1;

/// What a look at pages has shown.
#[derive(Debug, Clone)]
pub(super) struct Looked {
    compression: Compression,
    rows: RowFacts,
    heap: FileFacts,
    toast: Option<FileFacts>,
    /// One for each attribute.
    contents: Vec<Contents>,
}

/// Whether findings about a relation are looked for: catalogs have settings that nobody can choose, and a
/// materialized view is written anew by REFRESH.
fn is_wanted(relation: &Relation) -> bool {
    relation.kind == RelationKind::Table
        && !matches!(relation.schema.as_str(), "pg_catalog" | "information_schema")
}

impl Inspector {
    /// Looks at a sample of the blocks of a table and of its TOAST relation; with `sampling`, which the user has
    /// asked for, at blocks of that sample alone. What the server refuses goes to `failed`: nothing more can be asked
    /// in the transaction then.
    ///
    /// # Errors
    /// What ends more than the transaction.
    pub(super) async fn look(
        &self,
        relation: &Relation,
        moment: &Moment,
        sampling: Option<Sampling>,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<Looked>, LiveError> {
        let looked = self.looked(relation, moment, sampling, failed).await;
        Ok(noted(looked, failed)?.flatten())
    }

    async fn looked(
        &self,
        relation: &Relation,
        moment: &Moment,
        sampling: Option<Sampling>,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<Looked>, LiveError> {
        if !is_wanted(relation) {
            return Ok(None);
        }
        let page = self.server.page_size;
        let leader = self.connections.first().ok_or_else(no_client)?;
        let compression = Compression::ask(leader.client()).await?;
        let model = relation.table(compression.default, page);
        let fillfactor = u32::from(relation.fillfactor());
        let chosen = relation.toastable().collect();
        let mut look =
            HeapLook::new(&relation.desc, self.options.flavor, &model, chosen, fillfactor);
        let total = self
            .look_at(&relation.quoted(), moment, sampling, |block, bytes, pages| {
                look.block(block, bytes, pages);
            })
            .await?;
        let (rows, heap) = look.facts(total);
        let mut contents = vec![Contents::default(); relation.desc.attributes.len()];
        let mut toast = None;
        if let Some(chunks) = relation.toast.as_ref().filter(|_| sampling.is_none()) {
            let mut file = FileLook::of_toast(page);
            let quoted = quote_qualified("pg_toast", &chunks.name);
            let total = self
                .look_at(&quoted, moment, None, |block, bytes, pages| {
                    file.block(block, bytes, pages, |_, _| {});
                })
                .await?;
            toast = Some(file.facts(total));
            let attributes = relation.desc.attributes.iter().enumerate();
            for ((index, attribute), contents) in attributes.zip(&mut contents) {
                let ends_asked = rows.columns.get(index).is_some_and(asks_for_values);
                let values = ColumnValues {
                    toast: chunks,
                    method: asked_method(attribute, compression.default),
                    page,
                    uncompressed: look.uncompressed(index),
                    short_ends: if ends_asked { look.short_ends(index) } else { &[] },
                };
                // what was seen before damaged chunks is told all the same
                let Some(read) = noted(values.contents(leader.client()).await, failed)? else {
                    break;
                };
                *contents = read;
            }
        }
        Ok(Some(Looked { compression, rows, heap, toast, contents }))
    }

    /// Gives the pages of a sample of blocks to `take`, one after the other, and how many blocks there are.
    async fn look_at(
        &self,
        quoted: &str,
        moment: &Moment,
        sampling: Option<Sampling>,
        mut take: impl FnMut(BlockNumber, &[u8], &Pages),
    ) -> Result<u64, LiveError> {
        let leader = self.connections.first().ok_or_else(no_client)?;
        let pageinspect = self.server.pageinspect.as_ref();
        let pageinspect =
            pageinspect.ok_or_else(|| LiveError::Unexpected("pageinspect is gone".into()))?;
        let mut reader = PageReader::new(
            Arc::clone(leader),
            pageinspect,
            self.server.page_size,
            quoted.to_owned(),
            moment.snapshot.clone(),
        )
        .await?;
        let total = reader.block_count().await?;
        let sample = match sampling {
            Some(sampling) => sampling.draw(total),
            None => Sample::new(total, BLOCKS, SEED),
        };
        let step = sample.chosen().div_ceil(BLOCKS).max(1);
        let blocks: Vec<BlockNumber> = sample.step_by(step as usize).collect();
        reader
            .read_each(&blocks, |pages| {
                for (block, bytes) in pages.iter() {
                    take(block, bytes, &pages);
                }
            })
            .await?;
        Ok(u64::from(total))
    }

    /// The findings about a relation, once the rest of its report is there; none about what is no table. Without
    /// `indexes` these are not looked at. What the server refuses goes to `failed`.
    ///
    /// # Errors
    /// What ends more than a transaction.
    pub(super) async fn findings(
        &self,
        relation: &Relation,
        looked: Option<Looked>,
        report: &RelationReport,
        indexes: bool,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<Findings>, LiveError> {
        if !is_wanted(relation) {
            return Ok(None);
        }
        let leader = self.connections.first().ok_or_else(no_client)?;
        let source = match (&self.server.pageinspect, report.source) {
            (Some(pageinspect), Source::Pageinspect) => ScanSource::Pages(pageinspect.clone()),
            _ => ScanSource::Functions,
        };
        let Compression { lz4, default } = match &looked {
            Some(looked) => looked.compression,
            None => leader.reading(async || Compression::ask(leader.client()).await).await?,
        };
        let page = self.server.page_size;
        let indexes = match indexes {
            false => Vec::new(),
            true => match looks(leader, &source, page, relation.oid).await {
                Err(LiveError::Server(error)) if is_out_of_reach(&error) => Vec::new(),
                other => noted(other, failed)?.unwrap_or_default(),
            },
        };
        let (look, heap, toast, contents) = match looked {
            Some(Looked { rows, heap, toast, contents, .. }) => {
                (Some(rows), Some(heap), toast, contents)
            }
            None => (None, None, None, Vec::new()),
        };
        let looked_at = LookedAt {
            heap_blocks: heap.map(|file| file.drawn.total),
            heap_blocks_read: heap.map(|file| file.drawn.read),
            toast_blocks: toast.map(|file| file.drawn.total),
            toast_blocks_read: toast.map(|file| file.drawn.read),
            indexes: indexes.iter().filter(|index| index.expected.is_some()).count() as u64,
            settings: true,
        };
        let mut columns = columns(relation, default, &contents, report);
        let mut slow: Vec<&mut ColumnFacts> = match &look {
            Some(look) => columns
                .iter_mut()
                .filter(|column| column.method == Method::Pglz && is_worth(look, column))
                .collect(),
            None => Vec::new(),
        };
        let counters = match lz4 && !slow.is_empty() {
            true => noted(self.used(relation, &mut slow).await, failed)?,
            false => None,
        };
        if let Some(look) = &look {
            let is_worth = |column: &&mut ColumnFacts| {
                let attribute = relation.desc.attributes.get(column.index);
                let is_jsonb = attribute.is_some_and(|attribute| attribute.type_name == "jsonb");
                is_jsonb && look.columns.get(column.index).is_some_and(hot_keys::is_worth)
            };
            let mut documents: Vec<&mut ColumnFacts> =
                columns.iter_mut().filter(is_worth).collect();
            if !documents.is_empty() {
                noted(self.used_keys(relation, &mut documents).await, failed)?;
            }
        }
        let facts = Facts {
            table: TableName::Known {
                schema: relation.schema.clone(),
                name: relation.name.clone(),
            },
            page,
            target: relation.tuple_target(page).map(|target| target.bytes() as u32),
            rows: whole(report.tuples.live, report.tuples.live_estimate.as_ref()),
            toasted: toasted(report),
            out_of_line: report.toast.as_ref().map_or(Estimate::default(), |toast| {
                whole(toast.values, toast.values_estimate.as_ref())
            }),
            bytes: relation.bytes + relation.toast.as_ref().map_or(0, |toast| toast.bytes),
            columns,
            look,
            heap,
            toast,
            bloated: indexes.iter().filter_map(bloated).collect(),
            lz4,
            counters,
            looked_at,
        };
        Ok(Some(rules::findings(&facts)))
    }
}

/// The method that uncompressed values of a column are asked for: with storage external one that somebody has set.
fn asked_method(attribute: &Attribute, default: Method) -> Option<Method> {
    match attribute.storage {
        Storage::Extended | Storage::Main => Some(attribute.compression.unwrap_or(default)),
        Storage::External => attribute.compression,
        Storage::Plain => None,
    }
}

/// An answer, or `None` if it was an error of the server, of which the first is kept.
fn noted<T>(
    answer: Result<T, LiveError>,
    failed: &mut Option<LiveError>,
) -> Result<Option<T>, LiveError> {
    match answer {
        Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
            failed.get_or_insert(error.into());
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Whether an index is locked by others, or gone: then none was looked at.
fn is_out_of_reach(error: &tokio_postgres::Error) -> bool {
    let out_of_reach =
        [SqlState::LOCK_NOT_AVAILABLE, SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_OBJECT];
    error.code().is_some_and(|code| out_of_reach.contains(code))
}

fn bloated(index: &IndexReport) -> Option<BloatedIndex> {
    let fresh = index.expected.filter(|_| index.ended == IndexEnd::Bloated)?;
    Some(BloatedIndex { name: index.index.clone(), bytes: index.before, fresh })
}

/// A figure of all rows, or the estimate where a sample was read.
fn whole(plain: u64, estimate: Option<&WholeEstimate>) -> Estimate {
    match estimate {
        Some(e) => Estimate { estimate: e.estimate as f64, low: e.low as f64, high: e.high as f64 },
        None => Estimate::exact(plain as f64),
    }
}

/// Values that are compressed or out of line, where all rows were read.
fn toasted(report: &RelationReport) -> Option<u64> {
    let in_row = ["null", "missing", "short", "plain"];
    let forms = report.columns.iter().flat_map(|column| &column.forms);
    let others = forms.filter(|form| !in_row.contains(&form.form));
    (report.sample.is_none() && report.source == Source::Pageinspect)
        .then(|| others.map(|form| form.values).sum())
}

/// The columns whose storage can be chosen.
fn columns(
    relation: &Relation,
    default: Method,
    contents: &[Contents],
    report: &RelationReport,
) -> Vec<ColumnFacts> {
    let fact = |index: usize| {
        let attribute = relation.desc.attributes.get(index)?;
        let method = attribute.compression.unwrap_or(default);
        let report = report.columns.iter().find(|report| report.column == attribute.name);
        Some(ColumnFacts {
            index,
            name: attribute.name.clone(),
            storage: attribute.storage,
            compression: attribute.compression,
            method,
            other_method: report
                .filter(|_| matches!(attribute.storage, Storage::Extended | Storage::Main))
                .map(|report| other_method(report, method)),
            contents: contents.get(index).copied().unwrap_or_default(),
            told: None,
            keys: None,
        })
    };
    relation.toastable().filter_map(fact).collect()
}

/// Values that are compressed by another method, and their stored bytes.
fn other_method(report: &ColumnReport, method: Method) -> (Estimate, Estimate) {
    let (mut values, mut bytes) = (Estimate::default(), Estimate::default());
    let others = report.forms.iter().filter(|form| form.method.is_some_and(|m| m != method.name()));
    for form in others {
        let estimates = form.estimates.as_ref();
        add(&mut values, whole(form.values, estimates.and_then(|e| e.values.as_ref())));
        let stored = estimates.and_then(|e| e.stored_bytes.as_ref());
        add(&mut bytes, whole(form.stored_bytes.unwrap_or(0), stored));
    }
    (values, bytes)
}

fn add(sum: &mut Estimate, more: Estimate) {
    sum.estimate += more.estimate;
    sum.low += more.low;
    sum.high += more.high;
}
