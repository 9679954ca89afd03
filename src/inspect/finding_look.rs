//! Examines a sample of a table's pages for findings: counts what they hold, without applying rules yet.

use std::sync::Arc;

use tokio::task::{JoinError, JoinHandle};

use super::finding_values::ColumnValues;
use super::inspector::{Inspector, no_client};
use super::kept::{KeptPages, looked_at};
use super::result::NotAvailable;
use crate::findings::facts::Contents;
use crate::findings::look::{HeapFacts, HeapLook, RowFacts};
use crate::findings::rules::lengths::asks_for_values;
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::{Relation, RelationKind, WIDE_IDS};
use crate::server::pages::Order;
use crate::server::snapshot::Moment;
use toast_format::codec::Method;
use toast_format::disk::ValueIdType;
use toast_format::disk::custom::CustomFlavor;
use toast_format::disk::desc::{Attribute, Storage, TupleDesc};
use toast_format::fill::meter::{FileFill, FileMeter, Kind};
use toast_format::fill::moves::RelatedFiles;
use toast_format::heap::sample::Sampling;
use toast_format::heap::scan::Visitor;
use toast_format::model::sql::quote_qualified;
use toast_format::model::toast::Table;

/// What the examined pages have shown.
#[derive(Debug, Clone)]
pub(super) struct PageFacts {
    pub(super) compression: Compression,
    pub(super) rows: RowFacts,
    pub(super) heap: FileFill,
    pub(super) toast: Option<FileFill>,
    /// One per attribute.
    pub(super) contents: Vec<Contents>,
}

/// Why no findings are searched for in a table or file with value IDs of 8 bytes; `None` of another.
pub(super) fn not_searched(desc: &TupleDesc) -> Option<NotAvailable> {
    let is_wide = desc.id_type == ValueIdType::Oid8;
    is_wide.then(|| NotAvailable { figure: "findings".into(), reason: WIDE_IDS.into() })
}

/// Whether findings about a relation are searched for: the settings of catalogs cannot be chosen, a materialized view
/// is rewritten by REFRESH, and tables with value IDs of 8 bytes by no command of toastctl.
pub(super) fn is_wanted(relation: &Relation) -> bool {
    relation.desc.id_type == ValueIdType::Oid
        && relation.kind == RelationKind::Table
        && relation.is_heap
        && !matches!(relation.schema.as_str(), "pg_catalog" | "information_schema")
}

/// An examination of rows that has begun; other relations can be read at the same time.
pub(super) struct Begun {
    compression: Compression,
    heap: JoinHandle<HeapFacts>,
    /// How full the TOAST relation is, once it is scanned, and how many blocks it has.
    pub(super) toast: Option<(FileMeter, u64)>,
}

impl Inspector {
    /// What an examination has to know before it begins, outside a transaction. Errors of the server go to `failed`.
    ///
    /// # Errors
    /// Failures that end more than the transaction.
    pub(super) async fn compression(
        &self,
        relation: &Relation,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<Compression>, LiveError> {
        if !is_wanted(relation) {
            return Ok(None);
        }
        let last = self.connections.last().ok_or_else(no_client)?;
        noted(last.reading(async || Compression::ask(last.client()).await).await, failed)
    }

    /// Begins to examine the rows of pages that a scan has kept.
    pub(super) fn begin_look(
        &self,
        relation: &Arc<Relation>,
        compression: Compression,
        kept: KeptPages,
        all: Option<FileMeter>,
    ) -> Begun {
        let relation = Arc::clone(relation);
        let page = self.server.page_size;
        let flavor = self.options.flavor;
        let total = u64::from(kept.total);
        let heap = tokio::task::spawn_blocking(move || {
            let model = relation.table(compression.default, page);
            let mut look = heap_look(&relation, &model, flavor);
            for page in kept.into_pages() {
                look.block(page.block, &page.bytes, &page);
            }
            let related = RelatedFiles::of_table(relation.index_bytes);
            look.finish(total, Some(&related), all)
        });
        Begun { compression, heap, toast: None }
    }

    /// Examines a sample of the blocks of a table and of its TOAST relation. With `sampling`, which the user has
    /// requested, it examines only blocks of that sample; if it has `begun` with pages that a scan has kept, those.
    /// Errors of the server go to `failed`: the transaction can then run no more queries.
    ///
    /// # Errors
    /// Failures that end more than the transaction.
    pub(super) async fn look(
        &self,
        relation: &Relation,
        moment: &Moment,
        sampling: Option<Sampling>,
        begun: Option<Begun>,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<PageFacts>, LiveError> {
        let looked = self.looked(relation, moment, sampling, begun, failed).await;
        Ok(noted(looked, failed)?.flatten())
    }

    async fn looked(
        &self,
        relation: &Relation,
        moment: &Moment,
        sampling: Option<Sampling>,
        begun: Option<Begun>,
        failed: &mut Option<LiveError>,
    ) -> Result<Option<PageFacts>, LiveError> {
        if !is_wanted(relation) {
            return Ok(None);
        }
        let page = self.server.page_size;
        let leader = self.connections.first().ok_or_else(no_client)?;
        let (compression, seen, scanned) = match begun {
            Some(Begun { compression, heap, toast }) => {
                let ended = |error: JoinError| LiveError::Unexpected(error.to_string());
                (compression, heap.await.map_err(ended)?, toast)
            }
            None => {
                let compression = Compression::ask(leader.client()).await?;
                let model = relation.table(compression.default, page);
                let mut look = heap_look(relation, &model, self.options.flavor);
                let total = self.look_at(relation.quoted(), moment, sampling, &mut look).await?;
                let related = RelatedFiles::of_table(relation.index_bytes);
                (compression, look.finish(total, Some(&related), None), None)
            }
        };
        let HeapFacts { rows, heap, uncompressed, short_ends, rewrites } = seen;
        let mut contents = vec![Contents::default(); relation.desc.attributes.len()];
        let mut toast = None;
        let toast_relation = if sampling.is_none() { relation.toast.as_ref() } else { None };
        let chunks = toast_relation.filter(|toast| toast.layout_is_known(&self.server));
        if let Some(chunks) = chunks {
            let quoted = quote_qualified("pg_toast", &chunks.name);
            let related = RelatedFiles {
                index_bytes: chunks.index_bytes,
                table: Some((relation.bytes, relation.index_bytes)),
            };
            let is_whole = |(meter, total): &(FileMeter, u64)| meter.read() >= *total;
            let (mut meter, total) = match scanned.filter(is_whole) {
                Some(all) => all,
                None => {
                    let mut meter = FileMeter::sample(Kind::Chunks, page, 100).with_dead_values();
                    let total = self.look_at(quoted, moment, None, &mut meter).await?;
                    (meter, total)
                }
            };
            let dead = meter.take_dead_values();
            toast = Some(meter.finish(total, Some(&related)));
            let attributes = relation.desc.attributes.iter().enumerate();
            for ((index, attribute), contents) in attributes.zip(&mut contents) {
                let ends_asked = rows.columns.get(index).is_some_and(asks_for_values);
                let values = ColumnValues {
                    toast: chunks,
                    method: asked_method(attribute, compression.default),
                    page,
                    uncompressed: uncompressed.get(index).map(Vec::as_slice).unwrap_or_default(),
                    short_ends: short_ends
                        .get(index)
                        .filter(|_| ends_asked)
                        .map(Vec::as_slice)
                        .unwrap_or_default(),
                    rewrites: rewrites.get(index).map(Vec::as_slice).unwrap_or_default(),
                    dead: &dead,
                };
                // what was found before damaged chunks is reported nevertheless
                let Some(read) = noted(values.contents(leader.client()).await, failed)? else {
                    break;
                };
                *contents = read;
            }
        }
        Ok(Some(PageFacts { compression, rows, heap, toast, contents }))
    }

    /// Passes the pages of a sample of blocks to `look`, one after the other, and returns the number of blocks.
    async fn look_at(
        &self,
        quoted: String,
        moment: &Moment,
        sampling: Option<Sampling>,
        look: &mut impl Visitor,
    ) -> Result<u64, LiveError> {
        let leader = self.connections.first().ok_or_else(no_client)?;
        let mut reader = self.server.page_reader(leader, quoted, &moment.snapshot).await?;
        let total = reader.block_count().await?;
        let blocks = looked_at(total, sampling);
        // what is at the end counts as such
        reader.visit(&blocks, Order::OfBlocks, "", look).await?;
        Ok(u64::from(total))
    }
}

/// An examination of rows that has not begun.
fn heap_look<'a>(relation: &'a Relation, model: &'a Table, flavor: CustomFlavor) -> HeapLook<'a> {
    let fillfactor = u32::from(relation.fillfactor());
    HeapLook::new(&relation.desc, flavor, model, relation.toastable().collect(), fillfactor)
}

/// The method whose effect on a column's uncompressed values is tried.
fn asked_method(attribute: &Attribute, default: Method) -> Option<Method> {
    (attribute.storage != Storage::Plain).then(|| attribute.compression.unwrap_or(default))
}

/// An answer, or `None` if it was an error of the server, of which the first is kept.
pub(super) fn noted<T>(
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
