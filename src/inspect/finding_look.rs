//! Examines a sample of a table's pages for findings: counts what they hold, without applying rules yet.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::finding_values::{ColumnValues, trials};
use super::inspector::Inspector;
use super::kept::{KeptPages, examined_blocks};
use super::result::NotAvailable;
use crate::findings::facts::Contents;
use crate::findings::look::{HeapFacts, HeapLook, RowFacts};
use crate::findings::rules::lengths::many_short_ends;
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::{Relation, RelationKind, ToastRelation, WIDE_IDS};
use crate::server::index_scan::IndexFill;
use crate::server::pages::ReadOrder;
use crate::server::snapshot::Moment;
use toast_format::codec::Method;
use toast_format::disk::{Attribute, CustomFlavor, Storage, TupleDesc, ValueIdType};
use toast_format::fill::dead_values::DeadValues;
use toast_format::fill::meter::{FileFill, FileMeter, Kind};
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
    /// For each attribute, dropped ones included.
    pub(super) contents: Vec<Contents>,
}

/// Why no findings are searched for in a table or file with value IDs of 8 bytes; `None` of another.
pub(super) fn not_searched(desc: &TupleDesc) -> Option<NotAvailable> {
    let is_wide = desc.id_type == ValueIdType::Oid8;
    is_wide.then(|| NotAvailable::new("findings", WIDE_IDS))
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
    /// How full the TOAST relation is, once it is scanned.
    pub(super) toast: Option<ToastFill>,
}

/// How full the blocks of a TOAST relation are that were read.
pub(super) struct ToastFill {
    pub(super) meter: FileMeter,
    /// Blocks that the relation has.
    pub(super) blocks: u64,
}

impl ToastFill {
    /// The figures of the whole TOAST relation, which is that of this table.
    fn finish(self, relation: &Relation, toast: &ToastRelation) -> FileFill {
        let related = relation.related_files_of(toast);
        self.meter.finish(self.blocks, Some(&related))
    }
}

/// What was obtained, and the first error of the server that kept the rest back.
#[derive(Debug)]
pub(super) struct Partial<T> {
    pub(super) obtained: T,
    pub(super) failed: Option<LiveError>,
}

impl<T> Partial<T> {
    pub(super) fn complete(obtained: T) -> Partial<T> {
        Partial { obtained, failed: None }
    }

    /// Returns what another step has obtained, and keeps its error unless there is an earlier one.
    pub(super) fn take<U>(&mut self, step: Partial<U>) -> U {
        if self.failed.is_none() {
            self.failed = step.failed;
        }
        step.obtained
    }
}

/// What findings about a table follow from, apart from its report.
pub(super) struct Evidence {
    /// What its pages show, if they were examined.
    pub(super) pages: Option<PageFacts>,
    pub(super) indexes: Vec<IndexFill>,
}

impl Evidence {
    /// What two examinations have obtained. The error is that of the pages if there are two.
    pub(super) fn new(
        pages: Partial<Option<PageFacts>>,
        indexes: Partial<Vec<IndexFill>>,
    ) -> Partial<Evidence> {
        Partial {
            obtained: Evidence { pages: pages.obtained, indexes: indexes.obtained },
            failed: pages.failed.or(indexes.failed),
        }
    }
}

impl Inspector {
    /// What an examination has to know before it begins, outside a transaction.
    ///
    /// # Errors
    /// Failures that end more than the transaction.
    pub(super) async fn compression(
        &self,
        relation: &Relation,
    ) -> Result<Partial<Option<Compression>>, LiveError> {
        if !is_wanted(relation) {
            return Ok(Partial::complete(None));
        }
        let last = self.connections.last().unwrap_or(&self.leader);
        noted(last.reading(async || Compression::ask(last.client()).await).await)
    }

    /// Begins to examine the rows of pages that a scan has kept.
    pub(super) fn begin_examination(
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
            let related = relation.related_files();
            look.finish(total, Some(&related), all)
        });
        Begun { compression, heap, toast: None }
    }

    /// Examines a sample of the blocks of a table and of its TOAST relation. If the user has requested a sample, it examines
    /// only blocks of that; if it has `begun` with pages that a scan has kept, those.
    /// After an error of the server, the transaction can run no more queries.
    ///
    /// # Errors
    /// Failures that end more than the transaction.
    pub(super) async fn examine_pages(
        &self,
        relation: &Relation,
        moment: &Moment,
        begun: Option<Begun>,
    ) -> Result<Partial<Option<PageFacts>>, LiveError> {
        let facts = noted(self.page_facts(relation, moment, begun).await)?;
        Ok(facts.obtained.unwrap_or(Partial { obtained: None, failed: facts.failed }))
    }

    async fn page_facts(
        &self,
        relation: &Relation,
        moment: &Moment,
        begun: Option<Begun>,
    ) -> Result<Partial<Option<PageFacts>>, LiveError> {
        if !is_wanted(relation) {
            return Ok(Partial::complete(None));
        }
        let page = self.server.page_size;
        let sampling = self.options.sampling;
        let leader = &self.leader;
        let (compression, heap_facts, scanned) = match begun {
            Some(Begun { compression, heap, toast }) => match heap.await {
                Ok(facts) => (compression, facts, toast),
                Err(error) => return Err(LiveError::Unexpected(error.to_string())),
            },
            None => {
                let compression = Compression::ask(leader.client()).await?;
                let model = relation.table(compression.default, page);
                let mut look = heap_look(relation, &model, self.options.flavor);
                let total =
                    self.visit_sample(relation.quoted(), moment, sampling, &mut look).await?;
                let related = relation.related_files();
                (compression, look.finish(total, Some(&related), None), None)
            }
        };
        let HeapFacts { rows, heap, columns } = heap_facts;
        let mut facts = PageFacts {
            compression,
            rows,
            heap,
            toast: None,
            contents: vec![Contents::default(); relation.desc.attributes.len()],
        };
        let mut failed = None;
        let toast_relation = relation.toast.as_ref();
        let toast_relation = toast_relation.filter(|toast| toast.layout_is_known(&self.server));
        if let Some(toast) = toast_relation {
            let mut dead = DeadValues::default();
            // how full the TOAST relation is, is not asked of a sample, unless that is of all blocks
            if sampling.is_none_or(|sampling| sampling.is_of_all()) {
                let mut fill = self.toast_fill(toast, moment, scanned).await?;
                dead = fill.meter.take_dead_values();
                facts.toast = Some(fill.finish(relation, toast));
            }
            let attributes = relation.desc.attributes.iter().zip(&columns).zip(&facts.rows.columns);
            for (((attribute, column), counted), contents) in attributes.zip(&mut facts.contents) {
                let values = ColumnValues {
                    toast,
                    method: asked_method(attribute, compression.default),
                    page,
                    column,
                    needs_ends: many_short_ends(counted).is_some(),
                    dead: &dead,
                };
                let read = noted(values.contents(leader.client()).await)?;
                // what was found before damaged chunks is reported nevertheless
                let Some(read) = read.obtained else {
                    failed = read.failed;
                    break;
                };
                *contents = read;
            }
        }
        if failed.is_none() && compression.lz4 {
            let tried = trials(leader.client(), compression.default, toast_relation, &columns);
            let trials = noted(tried.await)?;
            failed = trials.failed;
            let contents = facts.contents.iter_mut().zip(trials.obtained.unwrap_or_default());
            contents.for_each(|(contents, trial)| contents.trial = trial);
        }
        Ok(Partial { obtained: Some(facts), failed })
    }

    /// How full a TOAST relation is: as its scan has measured, or as a sample of it shows.
    async fn toast_fill(
        &self,
        toast: &ToastRelation,
        moment: &Moment,
        scanned: Option<ToastFill>,
    ) -> Result<ToastFill, LiveError> {
        if let Some(whole) = scanned.filter(|scanned| scanned.meter.read() >= scanned.blocks) {
            return Ok(whole);
        }
        let page = self.server.page_size;
        let mut meter = FileMeter::sample(Kind::Chunks, page, 100).with_dead_values();
        let quoted = quote_qualified("pg_toast", &toast.name);
        let blocks = self.visit_sample(quoted, moment, None, &mut meter).await?;
        Ok(ToastFill { meter, blocks })
    }

    /// Passes the pages of a sample of blocks to `look`, one after the other, and returns the number of blocks.
    async fn visit_sample(
        &self,
        quoted: String,
        moment: &Moment,
        sampling: Option<Sampling>,
        look: &mut impl Visitor,
    ) -> Result<u64, LiveError> {
        let reader = self.server.page_reader(&self.leader, quoted, &moment.snapshot);
        let mut reader = reader.await?;
        let total = reader.block_count().await?;
        let blocks = examined_blocks(total, sampling);
        // what is at the end counts as such
        reader.visit(&blocks, ReadOrder::OfBlocks, "", look).await?;
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

/// An answer, or `None` and the error if it was one of the server.
pub(super) fn noted<T>(answer: Result<T, LiveError>) -> Result<Partial<Option<T>>, LiveError> {
    match answer {
        Err(LiveError::Server(error)) if error.as_db_error().is_some() => {
            Ok(Partial { obtained: None, failed: Some(error.into()) })
        }
        other => Ok(Partial::complete(Some(other?))),
    }
}
