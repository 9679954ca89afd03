//! `inspect` on relation files, on one value of a file, and on one datum: no server.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::file_findings::{self, HeapPages};
use super::finding_look::not_searched;
use super::inspector::{ContentOptions, InspectError};
use super::orphans::References;
use super::result::{
    HeapFigures, NotAvailable, OrphanReport, RelationRead, RelationReport, SampleReport, Source,
    ToastFigures,
};
use crate::offline::file::{FileError, RelationFile};
use crate::offline::target::{FileChunks, FileTarget};
use crate::server::catalog::RelationName;
use crate::value::anatomy::{self, Anatomy, DatumPlace};
use crate::value::contents::{Contents, RowSink};
use crate::value::rows::{RowWriter, ValueRow};
use toast_format::disk::page::wrong_checksum;
use toast_format::disk::varlena::VarlenaError;
use toast_format::disk::{BlockNumber, ByteOrder, ItemPointer, PageSize, TupleDesc, Varlena};
use toast_format::fill::meter::{FileFill, FileMeter, Kind};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::{Sample, Sampling};
use toast_format::heap::scan::{Scan, ScannedRelation, Visible, Visitor};
use toast_format::model::{StoredValue, Toasters};

/// Reads a relation file and, if given, that of its TOAST relation.
///
/// Visibility is what the hint bits say. What cannot be read is a problem in the report; an error
/// is returned only if a file cannot be opened or the output fails. With `contents`, values are reassembled, and
/// listed with their contents.
pub fn relation_file(
    target: &FileTarget<'_>,
    contents: Option<&ContentOptions>,
    rows: Option<&mut (dyn RowWriter + Send)>,
    progress: &dyn Progress,
) -> Result<RelationReport, InspectError> {
    let page_size = target.page_size;
    let mut problems = Problems::default();
    let mut store = target.chunks(&mut problems)?;
    let without_toast = FileTarget { toast: None, ..*target };
    let mut target = target;
    if let (Some(path), Some(file)) = (target.toast, &store)
        && file.is_whole()
        && let Some(message) = target.foreign_toast(|value_id| file.has(value_id))?
    {
        problems.add(Problem { place: Place::new(path.display().to_string()), message });
        target = &without_toast;
        store = None;
    }
    let model = file_findings::model(target.desc, page_size);
    let sampling = if target.toast.is_none() { target.sampling } else { None };
    let heap = FileScan::open(target, target.heap, sampling)?;
    let blocks = u64::from(heap.file.blocks());
    // rows of values come without findings
    let look =
        rows.is_none().then(|| heap.spread(HeapPages::new(target.desc, target.flavor, &model)));
    let relation = scanned(target, target.heap, target.desc);
    let name = Arc::clone(&relation.source);
    let scan = Scan { problems, ..Scan::new(relation, ()).of_sample(sampling.is_some()) };
    let references = References::new(page_size);
    let mut unknown_defaults = Vec::new();
    let (mut scan, look, references) = match rows {
        None if target.toast.is_none() => {
            let (scan, look) = heap.read(scan, look, progress)?;
            (scan, look, references)
        }
        None => {
            let (scan, (look, references)) = heap.read(scan, (look, references), progress)?;
            (scan, look, references)
        }
        Some(writer) => {
            let contents = match contents {
                Some(files) => Some(reassembly(store.take(), page_size, files)?),
                None => None,
            };
            let sink = RowSink::new(&name, writer, contents);
            let (mut scan, (references, sink)) = heap.read(scan, (references, sink), progress)?;
            if let Some(error) = sink.error {
                return Err(InspectError::Output(error));
            }
            if let Some(contents) = sink.contents {
                scan.problems.merge(contents.problems);
                unknown_defaults.extend(contents.unknown);
                store = contents.store;
            }
            (scan, look, references)
        }
    };
    let mut not_available = Vec::new();
    let mut orphans = None;
    if let Some(store) = &mut store {
        let unread = scan.problems.count() > 0 || store.problems().count() > 0;
        match references.orphans(store, unread) {
            Ok(report) => orphans = Some(report),
            Err(reason) => not_available.push(NotAvailable::orphans(reason)),
        }
    }
    let mut toast = None;
    if let Some(path) = target.toast {
        let mut file = ToastScan::read(target, path, &store, progress)?;
        scan.problems.merge(std::mem::take(&mut file.scan.problems));
        toast = Some(file);
    }
    let size = page_size.bytes() as u64;
    let sampled = scan.blocks.as_ref().zip(target.sampling);
    let report = RelationReport {
        read: RelationRead {
            name: RelationName::file(&name),
            source: Source::RelationFile,
            sample: sampled.map(|(sampled, Sampling { seed, .. })| SampleReport {
                blocks,
                blocks_read: sampled.blocks,
                seed,
            }),
            not_available,
            ..RelationRead::default()
        },
        heap: HeapFigures {
            bytes: Some(blocks * size),
            blocks: Some(blocks),
            ..HeapFigures::default()
        },
        toast: toast.as_ref().map(|toast| toast.figures(size, orphans)),
        unknown_defaults,
        ..RelationReport::default()
    };
    let mut report = report.with_figures(&scan);
    if let Some(why) = not_searched(target.desc) {
        // only the first is printed with its reason
        report.read.not_available.insert(0, why);
    } else if let Some(look) = look {
        let toast_fill = toast.map(|toast| toast.fill);
        report.findings = look.visitor.findings(blocks, toast_fill, &report);
    }
    Ok(report)
}

/// Reassembles values from the file of the TOAST relation.
fn reassembly<'t>(
    store: FileChunks<'t>,
    page: PageSize,
    files: &ContentOptions,
) -> Result<Contents<FileChunks<'t>>, InspectError> {
    Ok(Contents::new(store, Toasters::by_bytes(), page, files.output_dir.as_deref())?)
}

/// What was counted in the file of a TOAST relation.
struct ToastScan {
    scan: Scan<()>,
    fill: FileFill,
    blocks: u64,
}

impl ToastScan {
    fn read(
        target: &FileTarget<'_>,
        path: &Path,
        chunks: &FileChunks<'_>,
        progress: &dyn Progress,
    ) -> Result<ToastScan, InspectError> {
        let file = FileScan::open(target, path, None)?;
        let blocks = u64::from(file.file.blocks());
        let desc = TupleDesc::toast_relation(target.desc.id_type);
        let scan = Scan::new(scanned(target, path, &desc), ());
        let meter = file.spread(FileMeter::sample(Kind::Chunks, target.page_size, 100));
        let (mut scan, meter) = file.read(scan, meter, progress)?;
        if let Some(chunks) = chunks {
            add_unseen(&mut scan.problems, chunks.problems());
        }
        Ok(ToastScan { scan, fill: meter.visitor.finish(blocks, None), blocks })
    }

    fn figures(&self, page_size: u64, orphans: Option<OrphanReport>) -> ToastFigures {
        let tuples = &self.scan.stats.tuples;
        ToastFigures {
            relation: self.scan.relation.source.to_string(),
            bytes: Some(self.blocks * page_size),
            rows: Some(tuples.live + tuples.unknown),
            rows_counted: true,
            dead_rows: Some(tuples.dead),
            free_bytes: Some(tuples.free_bytes),
            orphans,
            ..ToastFigures::default()
        }
    }
}

/// A relation's file as a source of scans.
fn scanned(target: &FileTarget<'_>, path: &Path, desc: &TupleDesc) -> ScannedRelation {
    ScannedRelation {
        source: path.display().to_string().into(),
        desc: Arc::new(desc.clone()),
        page_size: target.page_size,
        flavor: target.flavor,
    }
}

/// A file of which all blocks or a sample are to be read.
struct FileScan<'t> {
    target: &'t FileTarget<'t>,
    file: RelationFile,
    sample: Sample,
}

impl<'t> FileScan<'t> {
    fn open(
        target: &'t FileTarget<'t>,
        path: &Path,
        sampling: Option<Sampling>,
    ) -> Result<FileScan<'t>, FileError> {
        let file = RelationFile::open(path, target.page_size)?;
        let total = file.blocks();
        let sample = sampling.map_or_else(|| Sample::whole(total), |sampling| sampling.draw(total));
        Ok(FileScan { target, file, sample })
    }

    /// Examines pages spread over those that are read, if there are more than findings need.
    fn spread<V>(&self, visitor: V) -> EveryNth<V> {
        let step = self.sample.chosen().div_ceil(file_findings::PAGES).max(1);
        EveryNth { step, came: 0, visitor }
    }

    fn read<V: Visitor>(
        mut self,
        scan: Scan<()>,
        visitor: V,
        progress: &dyn Progress,
    ) -> Result<(Scan<()>, V), FileError> {
        let (mut scan, ()) = scan.with(visitor);
        self.target.visit(&mut self.file, self.sample, progress, &mut scan)?;
        Ok(scan.with(()))
    }
}

/// Passes on one page in `step`.
struct EveryNth<V> {
    step: u32,
    came: u32,
    visitor: V,
}

impl<V: Visitor> Visitor for EveryNth<V> {
    const WANTS_VALUES: bool = false;

    fn page(&mut self, block: BlockNumber, bytes: &[u8], visible: &impl Visible) {
        if self.came.is_multiple_of(self.step) {
            self.visitor.page(block, bytes, visible);
        }
        self.came += 1;
    }
}

/// Adds the problems that the chunks of a TOAST relation have shown and a scan has not: each place is reported once.
fn add_unseen(seen: &mut Problems, of_chunks: &Problems) {
    let places = seen.kept().iter().map(|problem| (problem.place.block, problem.place.item));
    let known: HashSet<_> = places.collect();
    for problem in of_chunks.kept() {
        if !known.contains(&(problem.place.block, problem.place.item)) {
            seen.add(problem.clone());
        }
    }
}

/// Describes one datum, given with its header.
pub fn datum(bytes: &[u8], order: ByteOrder) -> Result<(ValueRow, usize), VarlenaError> {
    let (value, used) = Varlena::parse(bytes, order)?;
    let stored = StoredValue::of_varlena(&value, PageSize::DEFAULT);
    Ok((ValueRow::without_place("datum", &stored), used))
}

/// Describes one value of a relation file in detail: that of `column` in the tuple at `ctid`, dead or alive.
pub fn value(
    target: &FileTarget<'_>,
    column: &str,
    ctid: ItemPointer,
    files: &ContentOptions,
) -> Result<Anatomy, InspectError> {
    let relation = target.heap.display().to_string();
    let missing = InspectError::no_value(&relation);
    let mut problems = Problems::default();
    let mut contents = reassembly(target.chunks(&mut problems)?, target.page_size, files)?;
    let mut file = RelationFile::open(target.heap, target.page_size)?;
    let Some(page) = file.read(ctid.block)? else {
        return Err(missing(format!("there is no block {}", ctid.block)));
    };
    let FileTarget { desc, flavor, .. } = *target;
    let wanted = DatumPlace { relation: &relation, desc, flavor, column, ctid };
    let mut anatomy = anatomy::on_page(page, &wanted, &mut contents).map_err(missing)??;
    if target.verifies_checksums()
        && let Some(wrong) = wrong_checksum(ctid.block, page)
    {
        let place = Place { block: Some(ctid.block), ..Place::new(relation.as_str()) };
        anatomy.problems.push(format!("{place}: {wrong}"));
    }
    anatomy.problems.extend(target.checksums_unverified().map(|why| format!("{relation}: {why}")));
    // damage elsewhere does not concern a value that is intact
    if !anatomy.problems.is_empty() {
        if let Some(store) = &contents.store {
            problems.merge(store.problems().clone());
        }
        anatomy.problems.extend(problems.kept().iter().map(ToString::to_string));
    }
    Ok(anatomy)
}
