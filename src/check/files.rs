//! A check of relation files: the TOAST relation first, then the heap's blocks on several threads; and the files as a source
//! of damaged values.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use futures_util::FutureExt as _;

use super::chunk_index::{ChunkIndex, Orphan};
use super::code::Code;
use super::damaged_row::{RewriteTarget, shared_values};
use super::files_heap::{HeapScan, truncated_blocks, unreadable};
use super::finding::{
    CheckError, Checked, Finding, MAX_KNOWN, chunks_without_row, place_at, without_rows, zeros,
};
use super::relation_run::{RelationRun, Tell};
use super::repair::commented;
use super::repair_script::RepairScript;
use super::salvage_dir::{SalvageDir, SavedRelation};
use super::salvage_rows::{ChosenBlocks, Evidence, Salvage};
use super::subject::{Depth, PageOwner, SeenPage, Subject, Which, XidLimits};
use super::value::Toast;
use super::visibility_map::{VisibilityMap, map_of_file};
use crate::offline::control::{Checksums, ControlFile};
use crate::offline::file::RelationFile;
use crate::offline::target::FileTarget;
use crate::offline::xact::PgXact;
use toast_format::disk::type_kind::Types;
use toast_format::disk::{BlockNumber, Oid, TupleDesc};
use toast_format::heap::progress::Progress;
use toast_format::model::HintBits;
use toast_format::model::visibility::Transactions;

/// How files are checked.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// How far the check goes.
    pub depth: Depth,
    /// Threads that read the heap.
    pub threads: usize,
}

/// Checks a relation's file with that of its TOAST relation.
///
/// Visibility is what hint bits and `target.xact` say. The files must not change meanwhile.
///
/// # Errors
/// Where a file cannot be opened, or `tell` fails.
pub fn relation_file(
    target: &FileTarget<'_>,
    options: &FileOptions,
    progress: &dyn Progress,
    salvage: Option<&mut SalvageDir>,
    tell: &mut Tell<'_>,
) -> Result<Checked, CheckError> {
    let name = target.heap.display().to_string();
    let types = Types::default();
    // the map of a server that was not shut down may be ahead of the table
    let control = target.control();
    let map = if control.needs_recovery { VisibilityMap::default() } else { map_of_file(target)? };
    let subject = Subject {
        source: &name,
        pages: PageOwner::Table,
        desc: target.desc,
        page_size: target.page_size,
        flavor: target.flavor,
        toast: toast_relation(target)?,
        xids: control.ids.map(|ids| XidLimits {
            frozen: ids.oldest_xid,
            multi: ids.oldest_multi,
            oldest: ["oldestXID", "oldestMultiXid"],
            next: ids.next_xid,
            is_exact: true,
            next_multi: Some(ids.next_multi),
        }),
        commit_status: target.xact.map(|xact| xact as &(dyn Transactions + Sync)),
        wal_end: control.ids.and(control.checkpoint),
        map: Some(&map),
        is_newer: control.is_newer,
        ignores_hoff: false,
        checksums: target.verifies_checksums(),
        depth: options.depth,
        types: &types,
    };
    let mut run = RelationRun::new(&name, options.depth, salvage, tell);
    let awaits_wal = target.awaits_wal();
    note_state(target, &control, awaits_wal.is_some(), &mut run.checked);
    run.unjudged = awaits_wal.map(|_| 0);
    check_heap_and_chunks(target, &subject, options.threads, progress, &mut run)?;
    if let Some(first) = run.rows.without_pointers.iter().min().copied() {
        run.note_lost_pointers(run.rows.without_pointers.len(), first, &name);
    }
    let mut checked = run.checked;
    if let Some((count, why)) = run.unjudged.zip(awaits_wal) {
        checked.leave_out(format!(
            "{why}: WAL may replace any page, so that nothing is judged as damage and {count} findings are not listed; \
             start a server on a copy, and check that"
        ));
    }
    if std::fs::metadata(target.heap).is_ok_and(|file| file.len() == 0) {
        checked.note("the file is empty");
    }
    if checked.looked.undecided > 0 {
        let rows = checked.looked.undecided;
        checked.leave_out(format!(
            "of {rows} rows neither a hint bit nor pg_xact says whether they are live: chunks that \
             they miss are not reported{}",
            give_xact(target)
        ));
    }
    if target.toast.is_none() && checked.looked.values > 0 {
        checked.leave_out("values out of line were not checked: give --toast-file");
    }
    Ok(checked)
}

/// Notes what the state of the cluster keeps from being checked.
fn note_state(
    target: &FileTarget<'_>,
    control: &ControlFile,
    awaits_wal: bool,
    checked: &mut Checked,
) {
    if let Some(unverified) = target.checksums_unverified() {
        checked.leave_out(format!("{unverified}; give --checksums or --ignore-checksums"));
    }
    if target.checksums.is_none() && control.checksums == Checksums::NoControlFile {
        checked.note(
            "page checksums were not verified: no global/pg_control is above the file; --checksums verifies them",
        );
    }
    if control.needs_recovery && !awaits_wal {
        checked.leave_out(
            "the server runs, or was not shut down (pg_control): changes that are only in its memory or WAL are not in \
             the files",
        );
    }
}

fn check_heap_and_chunks(
    target: &FileTarget<'_>,
    subject: &Subject<'_>,
    threads: usize,
    progress: &dyn Progress,
    out: &mut RelationRun<'_>,
) -> Result<(), CheckError> {
    let name = subject.source;
    let mut chunks = learn(target, subject, progress, out)?;
    let mut target = target;
    let without_toast = FileTarget { toast: None, ..*target };
    if let Some(path) = target.toast
        && chunks.is_whole()
        && let Some(foreign) = target.foreign_toast(|value_id| chunks.has(value_id))?
    {
        let path = path.display();
        out.checked.leave_out(format!("{path}: {foreign} Values out of line were not checked"));
        chunks = ChunkIndex::default();
        target = &without_toast;
    }
    let scan = HeapScan {
        target,
        subject,
        index: (target.toast.is_some() && !chunks.is_full).then_some(&chunks),
        next: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    };
    scan.run(threads, progress, out)?;
    let twice = out.end_rows();
    if let Some(left_out) = out.rows.zeros.left_out() {
        out.checked.leave_out(left_out);
    }
    let blocks = u32::try_from(out.checked.looked.blocks).unwrap_or(u32::MAX);
    let lost = subject.map.map(|map| map.lost(&out.rows.zeros.blocks(), blocks));
    let lost = lost.unwrap_or_default();
    out.tell_lost(lost.findings(name))?;
    if !twice.is_empty() {
        out.tell_all(FileEvidence::open(target, subject, &chunks)?.shared_values(&twice)?)?;
    }
    let mut has_orphans = false;
    if let Some(path) = target.toast {
        has_orphans = orphans(target, &path.display().to_string(), &chunks, out)?;
    }
    let mut front = out.rows.zeros.in_front();
    front.retain(|block| lost.zeros.binary_search(block).is_err());
    let is_lost = has_orphans && is_first_toast(target, subject.toast);
    if is_lost && !out.rows.zeros.has_used() {
        out.tell(without_rows(name))?;
    }
    out.tell_all(zeros(name, &front, is_lost))?;
    if let Some(path) = target.toast {
        out.tell_all(chunks.findings.iter().cloned())?;
        if chunks.more > 0 {
            let toast = path.display();
            let left_out = format!("{} more findings in {toast} are not listed", chunks.more);
            out.checked.leave_out(left_out);
        }
    }
    save(FileEvidence::open(target, subject, &chunks)?, out)
}

/// Whether the TOAST relation's file has the number of its OID, as that of a new one has. VACUUM FULL and CLUSTER, which
/// leave values without a row, give it another; that of a file with another name is not known.
fn is_first_toast(target: &FileTarget<'_>, toast: Toast) -> bool {
    let name = target.toast.and_then(|path| path.file_name()?.to_str());
    matches!((name, toast), (Some(name), Toast::Relation(oid)) if name == oid.to_string())
}

/// The TOAST relation that nearly all pointers of a table's file name.
fn toast_relation(target: &FileTarget<'_>) -> Result<Toast, CheckError> {
    let pointers = target.some_pointers()?.unwrap_or_default();
    let mut named: HashMap<Oid, usize> = HashMap::new();
    for pointer in &pointers {
        *named.entry(pointer.toast_relation).or_default() += 1;
    }
    let most = named.into_iter().max_by_key(|(_, count)| *count);
    Ok(match most {
        Some((oid, count)) if oid.0 != 0 && count >= 3 && count * 10 >= pointers.len() * 9 => {
            Toast::Relation(oid)
        }
        _ => Toast::Unknown,
    })
}

/// The advice where the status of transactions is not known.
fn give_xact(target: &FileTarget<'_>) -> &'static str {
    if target.xact.is_none() { " (give --xact)" } else { "" }
}

/// Reads the TOAST relation.
fn learn(
    target: &FileTarget<'_>,
    heap: &Subject<'_>,
    progress: &dyn Progress,
    out: &mut RelationRun<'_>,
) -> Result<ChunkIndex, CheckError> {
    let mut index = ChunkIndex::default();
    let Some(path) = target.toast else { return Ok(index) };
    let name = path.display().to_string();
    let mut file = RelationFile::open(path, target.page_size)?;
    let desc = TupleDesc::toast_relation(target.desc.id_type);
    let toast = Subject {
        source: &name,
        desc: &desc,
        pages: PageOwner::Toast,
        toast: Toast::None,
        map: None,
        ..*heap
    };
    let blocks = file.blocks();
    progress.begin(&name, u64::from(blocks));
    for block in (0..blocks).map(BlockNumber) {
        match file.read(block) {
            Ok(Some(page)) => index.learn(&toast, block, page, &target.xact),
            Ok(None) => break,
            Err(error) => {
                index.lost.push(block);
                out.tell(unreadable(&name, block, &error.to_string()))?;
            }
        }
        progress.advance(1);
    }
    progress.end();
    out.checked.looked.toast_blocks += u64::from(blocks);
    out.tell_all(truncated_blocks(&name, &file))?;
    index.sort();
    if index.is_full {
        out.checked
            .leave_out(format!("{name} has more chunks than can be checked without its index"));
    }
    Ok(index)
}

/// Reports chunks that no row refers to, if that is certain. Returns whether there are any.
fn orphans(
    target: &FileTarget<'_>,
    name: &str,
    chunks: &ChunkIndex,
    out: &mut RelationRun<'_>,
) -> Result<bool, CheckError> {
    if out.rows.is_incomplete || chunks.is_full {
        let is_full = chunks.is_full || out.rows.known.len() >= MAX_KNOWN;
        out.checked.orphans_unseen(name, is_full);
        return Ok(false);
    }
    if out.rows.remarks.by_address.count > 0 {
        out.checked.orphans_by_address(name);
        return Ok(false);
    }
    let orphans: Vec<Orphan> = chunks.orphans(&out.rows.known).collect();
    for orphan in &orphans {
        let place = place_at(name, orphan.first);
        let found = chunks_without_row(orphan.chunks, orphan.value_id, orphan.bytes);
        out.tell(Finding::new(Code::Orphan, place, "a row that refers to them", found))?;
    }
    let undecided = chunks.undecided(&out.rows.known);
    if undecided > 0 {
        let (s, their) = if undecided == 1 { ("", "its") } else { ("s", "their") };
        out.checked.note(format!(
            "no row refers to {undecided} value{s} of {name} of which neither a hint bit nor pg_xact \
             says whether {their} chunks are live: they are not reported{}",
            give_xact(target)
        ));
    }
    Ok(!orphans.is_empty())
}

/// The table's name in statements, which a file does not tell.
const TABLE: &str = "mytable";
/// The name of the table that takes saved rows.
const SAVED_ROWS: &str = "mytable_salvaged";
/// The comment that stands in place of statements.
const IN_FILES: &str = "No statements: these are files, and whether SQL can still read a value is known by the server alone. If \
     it starts, check its table.";

/// The files of a table.
pub(super) struct FileEvidence<'a> {
    subject: &'a Subject<'a>,
    chunks: &'a ChunkIndex,
    xact: Option<&'a PgXact>,
    toast_desc: TupleDesc,
    heap: RelationFile,
    toast: Option<RelationFile>,
}

impl<'a> FileEvidence<'a> {
    pub(super) fn open(
        target: &FileTarget<'a>,
        subject: &'a Subject<'a>,
        chunks: &'a ChunkIndex,
    ) -> Result<FileEvidence<'a>, CheckError> {
        let size = target.page_size;
        Ok(FileEvidence {
            subject,
            chunks,
            xact: target.xact,
            toast_desc: TupleDesc::toast_relation(target.desc.id_type),
            heap: RelationFile::open(target.heap, size)?,
            toast: target.toast.map(|path| RelationFile::open(path, size)).transpose()?,
        })
    }

    /// A finding for each live row that has one of these values and is not the only one.
    fn shared_values(mut self, value_ids: &BTreeSet<u64>) -> Result<Vec<Finding>, CheckError> {
        let mut all = Vec::new();
        let generated = HashSet::new();
        let written = RewriteTarget { table: TABLE, generated: &generated };
        at_once(self.each_page(Which::Heap, None, |page| {
            page.references(written, value_ids, &mut all);
        }))?;
        Ok(shared_values(self.subject.source, all))
    }

    fn toast_name(&self) -> Option<String> {
        Some(self.toast.as_ref()?.path().display().to_string())
    }

    /// Calls `take` with pages of a file, as far as they can be read.
    fn read<V>(
        &mut self,
        which: Which,
        blocks: impl IntoIterator<Item = BlockNumber>,
        visible: &V,
        mut take: impl FnMut(&SeenPage<'_, V>),
    ) {
        let toast = self.toast_name().unwrap_or_default();
        let (file, subject) = match which {
            Which::Heap => (&mut self.heap, *self.subject),
            Which::Toast => {
                let Some(file) = &mut self.toast else { return };
                // what hint bits say of chunks counts, whatever their transactions are
                let desc = &self.toast_desc;
                (file, Subject { source: &toast, desc, xids: None, map: None, ..*self.subject })
            }
        };
        for block in blocks {
            if let Ok(Some(bytes)) = file.read(block) {
                take(&SeenPage { subject: &subject, block, bytes, visible });
            }
        }
    }
}

impl<'a> Evidence for FileEvidence<'a> {
    type Visible = Option<&'a PgXact>;

    async fn each_page(
        &mut self,
        which: Which,
        blocks: ChosenBlocks,
        take: impl FnMut(&SeenPage<'_, Option<&'a PgXact>>),
    ) -> Result<BTreeSet<BlockNumber>, CheckError> {
        let file = if which == Which::Heap { Some(&self.heap) } else { self.toast.as_ref() };
        let end = file.map_or(0, RelationFile::blocks);
        let blocks = blocks.unwrap_or_else(|| (0..end).map(BlockNumber).collect());
        let lost = if which == Which::Heap { &[][..] } else { &self.chunks.lost };
        let (refused, blocks): (BTreeSet<BlockNumber>, BTreeSet<BlockNumber>) =
            blocks.into_iter().partition(|block| lost.binary_search(block).is_ok());
        let xact = self.xact;
        self.read(which, blocks, &xact, take);
        Ok(refused)
    }

    async fn each_refused(
        &mut self,
        which: Which,
        blocks: BTreeSet<BlockNumber>,
        take: impl FnMut(&SeenPage<'_, HintBits>),
    ) -> Result<(), CheckError> {
        self.read(which, blocks, &HintBits, take);
        Ok(())
    }
}

/// The result of reading files, which never waits.
fn at_once<T>(reading: impl Future<Output = Result<T, CheckError>>) -> Result<T, CheckError> {
    match reading.now_or_never() {
        Some(read) => read,
        None => Err(io::Error::other("reading a file was suspended").into()),
    }
}

/// Writes what is left of the values that findings name, and their rows, and comments in place of SQL. Where anything was found,
/// values without a row are saved too: those of lost rows may be among them.
pub(super) fn save(
    evidence: FileEvidence<'_>,
    run: &mut RelationRun<'_>,
) -> Result<(), CheckError> {
    let damaged = run.salvage.take_damaged(&mut run.checked);
    let Some(dir) = &mut run.salvage.dir else { return Ok(()) };
    let Subject { source, desc, page_size, depth, .. } = *evidence.subject;
    let toast = evidence.toast_name();
    let relation = SavedRelation {
        name: source.to_owned(),
        quoted: TABLE.to_owned(),
        copy: SAVED_ROWS.to_owned(),
        desc,
        types: Types::default(),
        encoding: depth.utf8.then_some("UTF8"),
    };
    let relation = Arc::new(relation);
    let mut salvage = Salvage { evidence, relation, page_size, known: &run.rows.known };
    at_once(salvage.save_rows(&damaged, dir))?;
    if let Some(toast) = toast
        && run.rows.tells_all()
        && run.checked.has_findings()
        && let Some(left_out) = at_once(salvage.save_without_row(&toast, |_| true, dir))?
    {
        run.checked.leave_out(left_out);
    }
    // what SQL reads, and what an UPDATE would delete, is not known without a server
    let comments = run.damage.left_over(|_, _| false);
    if !comments.is_empty() {
        let rows = if dir.has_values() { " rows.sql has the rows." } else { "" };
        let text = format!("{IN_FILES}{rows}");
        dir.repair(RepairScript::only(vec![commented(&text)]))?;
    }
    Ok(dir.repair(RepairScript::only(comments))?)
}
