//! `inspect` on relation files and on one datum: no server.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use super::blocks::BlockSums;
use super::contents::{ContentSink, create_dir};
use super::estimates;
use super::file_findings::{self, HeapPages};
use super::inspector::InspectError;
use super::intervals::SampleReport;
use super::orphans::References;
use super::reports::{column_reports, out_of_line, problem_reports};
use super::result::{HeapReport, NotAvailable, RelationReport, Source, ToastReport};
use super::values::{RowSink, RowWriter, ValueRow};
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::wrong_checksum;
use crate::disk::tuple::HeapTuple;
use crate::disk::varlena::{Varlena, VarlenaError};
use crate::disk::{BlockNumber, ByteOrder, ItemPointer};
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::progress::Progress;
use crate::heap::sample::{Sample, Sampling};
use crate::heap::scan::{Judge, Relation, ValueSink};
use crate::heap::stats::RelationStats;
use crate::model::stored::StoredValue;
use crate::model::toaster::catalog::Toasters;
use crate::model::visibility::{HintBits, Visibility, visibility};
use crate::offline::file::{FileError, FileTarget, RelationFile, check_page_size};
use crate::offline::toastfile::ToastFile;
use crate::offline::xact::PgXact;
use crate::retoast::compact::look::FileLook;

impl Judge for HintBits {
    fn judge(&self, _ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        visibility(tuple, self)
    }
}

impl Judge for Option<&PgXact> {
    fn judge(&self, _ctid: ItemPointer, tuple: &HeapTuple<'_>) -> Visibility {
        visibility(tuple, self)
    }
}

/// Putting values together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contents<'a> {
    /// Where each value is written to a file of its own.
    pub output_dir: Option<&'a Path>,
}

/// Reads a relation file and, if given, that of its TOAST relation.
///
/// Visibility is what the hint bits say. What cannot be read is a problem in the report; an error
/// is returned only if a file cannot be opened or the output fails. With `contents` values are put together, which rows
/// of values then tell.
pub fn relation_file(
    target: &FileTarget<'_>,
    contents: Option<Contents<'_>>,
    rows: Option<&mut (dyn RowWriter + Send)>,
    progress: &dyn Progress,
) -> Result<RelationReport, OfflineError> {
    let name = target.heap.display().to_string();
    let mut problems = Problems::default();
    let mut unknown_defaults = Vec::new();
    let mut store = store(target, &mut problems)?;
    let mut references = References::new(target.page_size);
    let model = file_findings::model(target.desc, target.page_size);
    let mut pages = HeapPages::new(target.desc, target.flavor, &model);
    // rows of values come without findings
    let wants_findings = rows.is_none();
    let mut look = |block, page: &[u8]| {
        if wants_findings {
            pages.page(block, page, &target.xact);
        }
    };
    let mut heap =
        Heap { target, references: &mut references, problems: &mut problems, look: &mut look };
    let Scanned { stats, total_blocks: blocks, blocks: sampled } = match rows {
        None if target.toast.is_none() => {
            scan(target.heap, target, target.desc, &mut (), &mut problems, progress, &mut look)?
        }
        None => heap.scan(&mut (), progress)?,
        Some(writer) if contents.is_some() => {
            let output_dir = contents.and_then(|contents| contents.output_dir);
            let mut sink = content_sink(target, output_dir, store, writer)?;
            let scanned = heap.scan(&mut sink, progress)?;
            problems.merge(sink.problems);
            unknown_defaults.extend(sink.unknown);
            store = sink.store;
            match sink.error {
                Some(error) => return Err(InspectError::Output(error).into()),
                None => scanned,
            }
        }
        Some(writer) => {
            let mut sink =
                RowSink { relation: name.clone(), with_block: true, writer, error: None };
            let scanned = heap.scan(&mut sink, progress)?;
            match sink.error {
                Some(error) => return Err(InspectError::Output(error).into()),
                None => scanned,
            }
        }
    };
    let mut not_available = Vec::new();
    let mut orphans = None;
    if let Some(store) = &mut store {
        let unread = problems.count() > 0 || store.problems().count() > 0;
        match references.orphans(store, unread) {
            Ok(report) => orphans = Some(report),
            Err(reason) => not_available.push(NotAvailable {
                figure: "values in the TOAST relation that no row refers to".into(),
                reason: reason.into(),
            }),
        }
    }
    let size = target.page_size.bytes() as u64;
    let mut toast_pages = FileLook::of_toast(target.page_size);
    let toast = match target.toast {
        None => None,
        Some(path) => {
            let desc = TupleDesc::toast_relation();
            let mut damage = Problems::default();
            let mut look = |block, page: &[u8]| {
                toast_pages.block(block, page, &target.xact, |_, _| {});
            };
            let scanned = scan(path, target, &desc, &mut (), &mut damage, progress, &mut look)?;
            if let Some(store) = &store {
                add_unseen(&mut damage, store.problems());
            }
            problems.merge(damage);
            Some((path, scanned.stats, scanned.total_blocks))
        }
    };
    let toast_bytes = toast.as_ref().map_or(0, |(_, _, blocks)| blocks * size);
    let toast_facts = toast.as_ref().map(|(_, _, blocks)| toast_pages.facts(*blocks, None));
    let columns = column_reports(target.desc, &stats, Some(blocks * size + toast_bytes));
    let (values, chunks) = out_of_line(&columns);
    let mut report = RelationReport {
        relation: name,
        schema_name: None,
        name: None,
        oid: None,
        kind: None,
        source: Source::RelationFile,
        options: Vec::new(),
        page_size: size,
        sample: None,
        heap: HeapReport {
            bytes: Some(blocks * size),
            blocks: Some(blocks),
            ..HeapReport::from(&stats.tuples)
        },
        tuples: (&stats).into(),
        toast: toast.map(|(path, stats, blocks)| ToastReport {
            relation: path.display().to_string(),
            oid: None,
            bytes: Some(blocks * size),
            index_bytes: None,
            rows: Some(stats.tuples.live + stats.tuples.unknown),
            rows_counted: true,
            dead_rows: Some(stats.tuples.dead),
            free_bytes: Some(stats.tuples.free_bytes),
            values,
            chunks,
            unplaced_values: None,
            values_estimate: None,
            chunks_estimate: None,
            orphans,
        }),
        columns,
        not_available,
        problems: problem_reports(&problems),
        problem_count: problems.count(),
        findings: None,
        unknown_defaults,
    };
    if let (Some(sampled), Some(Sampling { seed, .. })) = (&sampled, target.sampling) {
        let sample = SampleReport { blocks, blocks_read: sampled.blocks, seed };
        estimates::fill(&mut report, target.desc, &stats, sampled, sample);
    }
    report.findings = pages.findings(blocks, toast_facts, &report);
    Ok(report)
}

/// Reading the heap with note taken of what its rows refer to.
struct Heap<'h, 't> {
    target: &'h FileTarget<'t>,
    references: &'h mut References,
    problems: &'h mut Problems,
    look: &'h mut dyn FnMut(BlockNumber, &[u8]),
}

impl Heap<'_, '_> {
    fn scan<S: ValueSink>(
        &mut self,
        sink: &mut S,
        progress: &dyn Progress,
    ) -> Result<Scanned, OfflineError> {
        let Heap { target, references, problems, look } = self;
        let mut sinks = (&mut **references, sink);
        scan(target.heap, target, target.desc, &mut sinks, problems, progress, look)
    }
}

/// Opens what [`Contents`] needs.
fn content_sink<'t, 'w>(
    target: &FileTarget<'t>,
    output_dir: Option<&Path>,
    store: Store<'t>,
    writer: &'w mut (dyn RowWriter + Send),
) -> Result<ContentSink<'w, Store<'t>>, OfflineError> {
    if let Some(dir) = output_dir {
        create_dir(dir).map_err(InspectError::Output)?;
    }
    Ok(ContentSink {
        relation: target.heap.display().to_string(),
        store,
        toasters: Toasters::by_bytes(),
        page: target.page_size,
        writer,
        output_dir: output_dir.map(Path::to_owned),
        problems: Problems::default(),
        unknown: BTreeSet::new(),
        error: None,
    })
}

/// The TOAST relation's file, if there is one.
pub(super) type Store<'t> = Option<ToastFile<Option<&'t PgXact>>>;

pub(super) fn store<'t>(
    target: &FileTarget<'t>,
    problems: &mut Problems,
) -> Result<Store<'t>, OfflineError> {
    let Some(path) = target.toast else { return Ok(None) };
    let file = RelationFile::open(path, target.page_size)?;
    match ToastFile::open(file, target.page_size, None, target.xact) {
        Ok(store) => Ok(Some(store)),
        Err(error) => {
            let place = Place::of(path.display().to_string());
            problems.add(Problem { place, message: error.to_string() });
            Ok(None)
        }
    }
}

/// Adds what a TOAST relation's chunks have shown of its file beyond what a scan has: each place is told once.
fn add_unseen(seen: &mut Problems, of_chunks: &Problems) {
    let place = |problem: &Problem| (problem.place.block, problem.place.item);
    let known: HashSet<_> = seen.kept().iter().map(place).collect();
    for problem in of_chunks.kept() {
        if !known.contains(&place(problem)) {
            seen.add(problem.clone());
        }
    }
}

/// Why a file or datum could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such value.
    #[error("{0}")]
    NoValue(String),
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

/// What a scan found.
struct Scanned {
    stats: RelationStats,
    /// Blocks of the file.
    total_blocks: u64,
    /// What single blocks hold, if they are a sample.
    blocks: Option<BlockSums>,
}

/// Reads a file. Some of its pages, evenly spread, go to `look` as well.
fn scan(
    path: &Path,
    target: &FileTarget<'_>,
    desc: &TupleDesc,
    sink: &mut impl ValueSink,
    problems: &mut Problems,
    progress: &dyn Progress,
    look: &mut dyn FnMut(BlockNumber, &[u8]),
) -> Result<Scanned, OfflineError> {
    let name = path.display().to_string();
    let mut file = RelationFile::open(path, target.page_size)?;
    let mut page = vec![0; target.page_size.bytes()];
    let mut stats = RelationStats::new(desc.attributes.len());
    let relation =
        Relation { source: &name, desc, page_size: target.page_size, flavor: target.flavor };
    let total = u32::try_from(file.blocks()).unwrap_or(u32::MAX);
    let sampling = target.sampling.filter(|_| target.toast.is_none());
    let sample = sampling.map_or_else(|| Sample::all(total), |sampling| sampling.draw(total));
    let mut blocks = sampling.map(|_| BlockSums::new(desc.attributes.len()));
    let checksums = target.verifies_checksums();
    let step = sample.chosen().div_ceil(file_findings::PAGES).max(1) as usize;
    progress.begin(&name, u64::from(sample.chosen()));
    for (index, block) in sample.enumerate() {
        match file.read(block, &mut page) {
            Ok(true) => {
                if index == 0 {
                    check_page_size(&page, &name)?;
                }
                let place = || Place { block: Some(block), ..Place::of(name.as_str()) };
                let wrong = checksums.then(|| wrong_checksum(block, &page)).flatten();
                problems.add_some(
                    wrong.map(|wrong| Problem { place: place(), message: wrong.to_string() }),
                );
                relation.scan_page(block, &page, &target.xact, &mut stats, sink, problems);
                if index.is_multiple_of(step) {
                    look(block, &page);
                }
                if let Some(blocks) = &mut blocks {
                    blocks.block(&stats);
                }
            }
            Ok(false) => break,
            Err(error) => problems.add(Problem {
                place: Place { block: Some(block), ..Place::of(name.as_str()) },
                message: error.to_string(),
            }),
        }
        progress.advance(1);
    }
    progress.end();
    for error in file.truncated() {
        problems.add(Problem { place: Place::of(name.as_str()), message: error.to_string() });
    }
    Ok(Scanned { stats, total_blocks: file.blocks(), blocks })
}

/// Describes one datum, given with its header.
pub fn datum(bytes: &[u8], order: ByteOrder) -> Result<(ValueRow, usize), VarlenaError> {
    let (value, used) = Varlena::parse(bytes, order)?;
    let stored = StoredValue::of_varlena(&value, PageSize::DEFAULT);
    Ok((ValueRow::of("datum", &stored), used))
}
