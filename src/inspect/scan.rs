//! Scans of a live server's relations: their blocks, all or a sample, over all connections.

use std::sync::Arc;

use super::inspector::{InspectError, Inspector};
use super::kept::KeptPages;
use super::orphans::References;
use crate::server::LiveError;
use crate::server::pages::PageReader;
use crate::server::scan::{ScanControl, ScanError, in_order, side_by_side};
use crate::server::snapshot::Moment;
use crate::value::contents::RowSink;
use crate::value::rows::RowWriter;
use toast_format::disk::{PageSize, TupleDesc};
use toast_format::fill::lengths::Growth;
use toast_format::fill::meter::{FileMeter, Kind};
use toast_format::heap::sample::Sample;
use toast_format::heap::scan::{Merge, Scan, ScannedRelation as Scanned, Visitor};
use toast_format::model::TupleTarget;

/// A relation to scan.
pub(super) struct ScanTarget {
    pub(super) name: String,
    pub(super) quoted: String,
    pub(super) desc: Arc<TupleDesc>,
    /// Whether pages are kept for findings.
    pub(super) keeps: bool,
    /// What its tuples are and its fillfactor, if it is measured how full it is.
    pub(super) metered: Option<(Kind, u32)>,
    /// `toast_tuple_target`, if it is set.
    pub(super) target: Option<TupleTarget>,
}

impl ScanTarget {
    /// The measurement of how full it is, if that is wanted.
    fn meter(&self, page: PageSize, blocks: u32) -> Option<FileMeter> {
        let (kind, fillfactor) = self.metered?;
        let growth = Growth::new(&self.desc, page, self.target);
        let meter = FileMeter::whole(kind, page, blocks, fillfactor);
        Some(meter.growing(growth).with_dead_values())
    }
}

/// The counts of a scan, and what its other visitors have collected.
pub(super) struct ScanResult {
    pub(super) scan: Scan<()>,
    /// Blocks of the relation.
    pub(super) total_blocks: u32,
    /// Pages that are kept for findings, if there are any.
    pub(super) kept: Option<KeptPages>,
    /// How full it is, if that is measured.
    pub(super) meter: Option<FileMeter>,
    /// What rows refer to, if it is needed.
    pub(super) references: Option<References>,
    /// Columns whose default for rows written before them is not known, where values are reassembled.
    pub(super) unknown_defaults: Vec<String>,
}

impl ScanError {
    /// The error with the relation in which it was found.
    pub(super) fn in_relation(self, name: &str) -> InspectError {
        match self {
            ScanError::Stopped => InspectError::Stopped,
            ScanError::Failed { from, error } => {
                let block = from.map_or(String::new(), |first| format!(", block {first}"));
                InspectError::at(&format!("{name}{block}"), error)
            }
        }
    }
}

impl Inspector {
    /// A relation of the server as a source of scans.
    pub(super) fn scanned(&self, name: &str, desc: Arc<TupleDesc>) -> Scanned {
        let page_size = self.server.page_size;
        let flavor = self.options.flavor;
        Scanned { source: name.into(), desc, page_size, flavor }
    }

    /// Reads the blocks of a relation, all or a sample, concurrently on all connections, unless rows are requested,
    /// which are read in order.
    pub(super) async fn scan(
        &self,
        target: &ScanTarget,
        moment: &Moment,
        rows: Option<&mut (dyn RowWriter + Send)>,
        references: Option<References>,
    ) -> Result<ScanResult, InspectError> {
        let ScanTarget { name, quoted, .. } = target;
        let mut readers = Vec::new();
        let needed = if rows.is_some() { 1 } else { self.connections.len() };
        for connection in self.connections.iter().take(needed) {
            let opened = self.server.page_reader(connection, quoted.clone(), &moment.snapshot);
            readers.push(opened.await.map_err(|error| InspectError::at(name, error))?);
        }
        let Some(first) = readers.first_mut() else {
            return Err(InspectError::at(name, LiveError::Unexpected("no connection".into())));
        };
        let counted = first.block_count().await;
        let total_blocks = counted.map_err(|error| InspectError::at(name, error))?;
        let sampling = self.options.sampling;
        let sample = match sampling {
            Some(sampling) => sampling.draw(total_blocks),
            None => Sample::whole(total_blocks),
        };
        let chosen = sample.chosen();
        tracing::debug!(
            "{name}: {chosen} of {total_blocks} blocks are read, on {} connections",
            self.connections.len()
        );
        let scan = Scan::new(self.scanned(name, Arc::clone(&target.desc)), ());
        let scan = scan.of_sample(sampling.is_some());
        self.progress.begin(name, u64::from(chosen));
        let Some(writer) = rows else {
            let kept = target.keeps.then(|| KeptPages::new(total_blocks, sampling));
            let is_metered = sampling.is_none();
            let meter =
                if is_metered { target.meter(self.server.page_size, total_blocks) } else { None };
            let begun = ScanResult {
                scan,
                total_blocks,
                kept,
                meter,
                references,
                unknown_defaults: Vec::new(),
            };
            return self.scan_counts(readers, sample, begun).await;
        };
        let contents = match &self.options.contents {
            Some(_) => Some(self.contents(self.chunk_store(moment, false)).await?),
            None => None,
        };
        let sink = RowSink::new(name, writer, contents);
        let (mut scan, ()) = scan.with((sink, references));
        let read = in_order(first, sample, &self.control(), &mut scan).await;
        read.map_err(|error| error.in_relation(name))?;
        self.progress.end();
        let (mut scan, (sink, references)) = scan.with(());
        if let Some(error) = sink.error {
            return Err(error.into());
        }
        let mut unknown_defaults = Vec::new();
        if let Some(contents) = sink.contents {
            scan.problems.merge(contents.problems);
            unknown_defaults.extend(contents.unknown);
        }
        let kept = None;
        let meter = None;
        Ok(ScanResult { scan, total_blocks, kept, meter, references, unknown_defaults })
    }

    /// Counts what the blocks hold, on all connections, and keeps and measures what has `begun`.
    async fn scan_counts(
        &self,
        readers: Vec<PageReader>,
        sample: Sample,
        begun: ScanResult,
    ) -> Result<ScanResult, InspectError> {
        let ScanResult { scan, kept, meter, references, .. } = begun;
        let looks = (kept, meter);
        // values are only parsed for references
        let (scan, (kept, meter), references) = match references {
            None => {
                let (scan, looks) = self.side_by_side(readers, sample, scan, looks).await?;
                (scan, looks, None)
            }
            Some(references) => {
                let all = (looks, references);
                let (scan, (looks, found)) = self.side_by_side(readers, sample, scan, all).await?;
                (scan, looks, Some(found))
            }
        };
        Ok(ScanResult { scan, kept, meter, references, ..begun })
    }

    async fn side_by_side<V: Visitor + Merge + Clone + Send + 'static>(
        &self,
        readers: Vec<PageReader>,
        sample: Sample,
        scan: Scan<()>,
        visitor: V,
    ) -> Result<(Scan<()>, V), InspectError> {
        let name = Arc::clone(&scan.relation.source);
        let (scan, ()) = scan.with(visitor);
        let scan = side_by_side(readers, sample, &self.control(), scan).await;
        let scan = scan.map_err(|error| error.in_relation(&name))?;
        self.progress.end();
        Ok(scan.with(()))
    }

    fn control(&self) -> ScanControl {
        ScanControl { progress: Arc::clone(&self.progress), stop: Arc::clone(&self.stop) }
    }
}
