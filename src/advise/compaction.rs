//! What compaction alone would return of a table, whatever the settings, with what it moves and writes: a look at
//! blocks of its files and of its indexes, or an estimate from rows; and what it gives back after an in-place retoast.

use super::advisor::Advisor;
use super::estimate::{Figure, Figures, FileSizes, Written};
use super::result::{Access, CompactionReport, FileCompaction, Files, IndexCompaction, TableFile};
use crate::command::table_words;
use crate::message::size;
use crate::server::LiveError;
use crate::server::about::Server;
use crate::server::catalog::Relation;
use crate::server::index_scan::{Bloat, IndexFill, IndexScan};
use crate::server::pages::AT_ONCE;
use crate::server::snapshot;
use toast_format::disk::PageSize;
use toast_format::fill::file_model::{Content, FileModel, MAX_BATCH, MAX_BLOAT, Step, Tuning};
use toast_format::fill::lengths::Growth;
use toast_format::fill::meter::{FileFill, FileMeter, Kind};
use toast_format::fill::moves::{Expected, RelatedFiles};
use toast_format::heap::problem::Problems;
use toast_format::heap::sample::Sample;
use toast_format::heap::scan::Visitor;
use toast_format::model::pages::least_gain;
use toast_format::model::sql::quote_qualified;
use toast_format::model::{Interval, Snapshot};

/// What a smaller value leaves between values that stay, if it has become much smaller: half a chunk, into which no whole
/// one fits.
const FRAGMENT: f64 = 1000.0;

/// The part of long rows that find no room between short ones and make the heap longer. Measured with rows of 2.5 to 4.7 kB, and
/// 40 % of each page free: a half and all of them.
const LONG_AT_END: f64 = 0.7;

/// All of a figure.
const ALL: Interval = Interval { estimate: 1.0, low: 1.0, high: 1.0 };

/// Blocks of each file that are looked at without `--sample`, and with it at the most: 16 and 64 MB of 8 kB pages.
const BLOCKS: u32 = 2048;
const MOST_BLOCKS: u32 = 8192;

impl Advisor {
    /// By its pages and indexes; where a file's pages cannot be read, by `estimated`, from rows. `None` if there is
    /// nothing to return that is worth it. The connection is in no transaction. What fails here costs no advice;
    /// blocks that cannot be read are added to `problems`.
    pub(super) async fn compaction(
        &self,
        relation: &Relation,
        access: Access,
        estimated: Option<&CompactionReport>,
        problems: &mut Problems,
    ) -> Option<CompactionReport> {
        let page = self.server.page_size;
        let by_pages = matches!(access, Access::Pages);
        // no file gets shorter on servers with pluggable TOAST
        let looks = by_pages && self.server.compacts();
        let mut files = None;
        if looks {
            files = or_traced(self.files(relation, problems).await);
            // the next query says if the connection is gone
            let _ = snapshot::abandon(self.client()).await;
        }
        let pageinspect = if by_pages { self.server.pageinspect.clone() } else { None };
        let scan = IndexScan::new(pageinspect, page, relation.oid);
        let mut indexes = None;
        if self.server.rebuilds_indexes() {
            indexes = or_traced(scan.over(&[&*self.connection]).await);
        }
        found(relation, page, &files.unwrap_or_default(), &indexes.unwrap_or_default(), estimated)
    }

    /// What a look at the table's file and its TOAST relation's shows, without one that was to be read whole and could
    /// not be, or of which no block could.
    async fn files(
        &self,
        relation: &Relation,
        problems: &mut Problems,
    ) -> Result<Vec<(TableFile, FileFill)>, LiveError> {
        let snapshot = snapshot::begin(&self.connection).await?.snapshot;
        let target = relation.tuple_target(self.server.page_size);
        let page = self.server.page_size;
        let fillfactor = u32::from(relation.fillfactor());
        let growth = Growth::new(&relation.desc, page, target);
        let heap = File {
            name: relation.display_name(),
            quoted: relation.quoted(),
            meter: FileMeter::sample(Kind::Rows, page, fillfactor).growing(growth),
            related: relation.related_files(),
        };
        let toast = relation.toast.as_ref().map(|toast| File {
            name: toast.display_name(),
            quoted: quote_qualified("pg_toast", &toast.name),
            meter: FileMeter::sample(Kind::Chunks, page, 100),
            related: relation.related_files_of(toast),
        });
        let mut files = Vec::new();
        for (name, file) in [(TableFile::Heap, Some(heap)), (TableFile::Toast, toast)] {
            let Some(file) = file else { continue };
            let facts = self.file(&snapshot, file, problems).await?;
            files.extend(facts.map(|facts| (name, facts)));
        }
        Ok(files)
    }

    async fn file(
        &self,
        snapshot: &Snapshot,
        file: File,
        problems: &mut Problems,
    ) -> Result<Option<FileFill>, LiveError> {
        let File { name, quoted, mut meter, related } = file;
        let mut reader = self.server.page_reader(&self.connection, quoted, snapshot).await?;
        let total = reader.block_count().await?;
        let blocks = match self.options.sample {
            Some(size) => size.blocks(total).min(MOST_BLOCKS),
            None => BLOCKS,
        };
        let least = if blocks >= total { u64::from(total) } else { 1 };
        let blocks: Vec<_> = Sample::new(total, blocks, self.options.seed).collect();
        for few in blocks.chunks(AT_ONCE) {
            let pages = reader.read(few).await?;
            problems.extend(pages.problems(&name));
            for (block, bytes) in pages.iter() {
                meter.page(block, bytes, &pages);
            }
        }
        let is_known = meter.read() >= least;
        Ok(is_known.then(|| meter.finish(u64::from(total), Some(&related))))
    }
}

/// A file of which a sample is read.
struct File {
    name: String,
    quoted: String,
    meter: FileMeter,
    related: RelatedFiles,
}

/// An answer, unless there was an error.
fn or_traced<T>(answer: Result<T, LiveError>) -> Option<T> {
    if let Err(error) = &answer {
        tracing::debug!("what compaction would return is not known: {error}");
    }
    answer.ok()
}

/// What follows from a look at files and indexes.
fn found(
    relation: &Relation,
    page: PageSize,
    looked: &[(TableFile, FileFill)],
    indexes: &[IndexFill],
    estimated: Option<&CompactionReport>,
) -> Option<CompactionReport> {
    let files: Vec<FileCompaction> =
        looked.iter().filter_map(|(name, facts)| file(*name, facts, page)).collect();
    let mut heap_bytes = estimated.map_or(0, |estimated| estimated.heap_bytes);
    let mut toast_bytes = estimated.map_or(0, |estimated| estimated.toast_bytes);
    for (name, _) in looked {
        let file = files.iter().find(|file| file.file == *name);
        let gives_back = file.map_or(0, |file| file.expected.gives_back);
        if *name == TableFile::Heap {
            heap_bytes = gives_back;
        } else {
            toast_bytes = gives_back;
        }
    }
    let indexes: Vec<IndexCompaction> = indexes.iter().filter_map(|one| index(one, page)).collect();
    let report = CompactionReport {
        heap_bytes,
        toast_bytes,
        index_bytes: indexes.iter().map(|index| index.gives_back).sum(),
        files,
        indexes,
        command: String::new(),
    };
    report.with_command(relation)
}

/// What one file gives back, if a round of compaction does.
fn file(name: TableFile, facts: &FileFill, page: PageSize) -> Option<FileCompaction> {
    let expected = facts.compaction?;
    let blocks = u32::try_from(facts.drawn.total).unwrap_or(u32::MAX);
    let spare = (facts.spare_vacuumed.low / page.bytes() as f64) as u32;
    (spare >= least_gain(blocks)).then_some(FileCompaction {
        file: name,
        blocks_read: facts.drawn.read,
        blocks: facts.drawn.total,
        expected,
    })
}

fn index(fill: &IndexFill, page: PageSize) -> Option<IndexCompaction> {
    let Bloat { fresh, wal } = fill.bloat(page)?;
    Some(IndexCompaction {
        index: fill.index.quoted(),
        gives_back: fill.index.bytes.saturating_sub(fresh),
        wal_bytes: wal,
    })
}

impl CompactionReport {
    /// With the command for this table; `None` if nothing would be returned.
    fn with_command(self, table: &Relation) -> Option<CompactionReport> {
        let compact = match (self.heap_bytes > 0, self.toast_bytes > 0) {
            (true, true) => Some(""),
            (true, false) => Some(" --files heap"),
            (false, true) => Some(" --files toast"),
            (false, false) if self.indexes.is_empty() => return None,
            (false, false) => None,
        };
        let words = table_words(&table.schema, &table.name);
        let needs_rebuild = self.files.iter().any(|file| file.expected.needs_rebuild());
        let command = match compact {
            // what GIN indexes grow by is returned too
            Some(files) if needs_rebuild => {
                format!("toastctl compact {words}{files} --reindex=all")
            }
            Some(files) if self.indexes.is_empty() => format!("toastctl compact {words}{files}"),
            Some(files) => format!("toastctl compact {words}{files} --reindex"),
            None => format!("toastctl reindex {words}"),
        };
        Some(CompactionReport { command, ..self })
    }

    /// That of a table, from those of its parts.
    pub(super) fn of_parts(
        table: &Relation,
        parts: Vec<CompactionReport>,
    ) -> Option<CompactionReport> {
        let mut all: Option<CompactionReport> = None;
        for part in parts {
            let Some(sum) = &mut all else {
                all = Some(part);
                continue;
            };
            sum.heap_bytes += part.heap_bytes;
            sum.toast_bytes += part.toast_bytes;
            sum.index_bytes += part.index_bytes;
            sum.indexes.extend(part.indexes);
            for more in part.files {
                match sum.files.iter_mut().find(|file| file.file == more.file) {
                    Some(file) => {
                        file.blocks_read += more.blocks_read;
                        file.blocks += more.blocks;
                        file.expected = file.expected.plus(&more.expected);
                    }
                    None => sum.files.push(more),
                }
            }
        }
        all?.with_command(table)
    }

    /// The command, with what it gives back, moves and writes.
    pub(crate) fn note(&self) -> String {
        let mut parts = Vec::new();
        for (of, name, bytes) in [
            ("the heap", TableFile::Heap, self.heap_bytes),
            ("the TOAST relation", TableFile::Toast, self.toast_bytes),
        ] {
            let moves = self.files.iter().find(|file| file.file == name).and_then(moves);
            if bytes > 0 {
                parts.push(format!("about {} of {of}{}", size(bytes), moves.unwrap_or_default()));
            }
        }
        let which = match &self.indexes[..] {
            [] => None,
            [one] => Some(format!("index {}", one.index)),
            more => Some(format!("{} indexes", more.len())),
        };
        if let Some(which) = which {
            let wal = self.indexes.iter().map(|index| index.wal_bytes).sum();
            let gives = size(self.index_bytes);
            parts.push(format!("about {gives} of {which} (WAL {})", size(wal)));
        }
        format!("{} would return {}.", self.command, parts.join(", "))
    }
}

/// What is moved of a file; `None` if nothing is.
fn moves(file: &FileCompaction) -> Option<String> {
    let Expected { rows, values, wal_bytes: wal, gin_growth, .. } = &file.expected;
    let gin = match gin_growth {
        0 => String::new(),
        growth => format!(", GIN indexes may grow by {}", size(*growth)),
    };
    let (number, what) = rows.map(|rows| (rows, "row")).or(values.map(|n| (n, "value")))?;
    let s = if number == 1 { "" } else { "s" };
    (number > 0).then(|| {
        format!(" (moving {number} {what}{s}, WAL {} to {}{gin})", size(wal.low), size(wal.high))
    })
}

/// The files that become smaller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CompactedFiles {
    pub(super) heap: bool,
    pub(super) toast: bool,
    /// The index of the TOAST relation, by a rebuild.
    pub(super) index: bool,
}

impl CompactedFiles {
    /// The files that this user can make smaller.
    pub(super) fn possible(server: &Server) -> CompactedFiles {
        CompactedFiles {
            heap: server.compacts(),
            toast: server.compacts_toast(),
            index: server.rebuilds_indexes(),
        }
    }

    pub(super) fn are_both(self) -> bool {
        self.heap && self.toast
    }

    /// The option of `retoast` for it.
    fn option(self) -> Option<&'static str> {
        match (self.heap, self.toast) {
            (true, true) => Some("--compact"),
            (true, false) => Some("--compact=heap"),
            (false, true) => Some("--compact=toast"),
            (false, false) => None,
        }
    }
}

/// What a `retoast` command does after the conversion, and what it leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AfterCommand {
    /// Those files are made smaller for which that pays.
    pub(super) compacted: CompactedFiles,
    /// Heap, TOAST relation and its index before.
    before: u64,
    /// The same in the end.
    pub(super) bytes: Interval<u64>,
    /// Bytes of the heap in the end.
    pub(super) heap_bytes: f64,
    /// The same right after the conversion.
    pub(super) before_compaction: u64,
}

impl AfterCommand {
    /// No command: the files as they are.
    pub(super) fn unchanged(files: &Files) -> AfterCommand {
        AfterCommand {
            compacted: CompactedFiles::default(),
            before: files.total_bytes,
            bytes: Interval::exact(files.total_bytes),
            heap_bytes: files.heap_bytes as f64,
            before_compaction: files.total_bytes,
        }
    }

    /// After a conversion with these figures; `today` has those of the values as they are. `may`: the files that can be
    /// compacted.
    pub(super) fn new(
        figures: &Figures,
        today: &Figures,
        files: &Files,
        page: PageSize,
        may: CompactedFiles,
    ) -> AfterCommand {
        let Written { heap_bytes, values, toast_bytes, index_bytes, .. } = figures.written;
        let now = [files.heap_bytes, files.toast_bytes, files.toast_index_bytes];
        let [heap_now, toast_now, index_now] = now.map(|bytes| bytes as f64);
        let before = today.with_dropped_columns(ALL);
        let after = figures.with_dropped_columns(ALL);
        let kept = (after.toast_bytes.value.estimate - toast_bytes).max(0.0);
        let old_values = (before.toast_bytes.value.estimate - kept).max(0.0);
        let heap_pages = (heap_now / page.bytes() as f64).max(1.0);
        // a pass over a window leaves about what a page has
        let batch = ((old_values + heap_bytes) / heap_pages).min(MAX_BATCH as f64);
        let tuning = Tuning::new(heap_now + toast_now, MAX_BLOAT, batch);

        let fresh = before.heap_bytes.value.estimate;
        let heap = FileModel::new(Content::Rows, page, heap_now, fresh);
        let is_blocked = figures.blocks_compaction(today, page.bytes() as f64);
        let heap = updated_heap(heap, figures, page, tuning, is_blocked);
        let fresh = before.toast_bytes.value.estimate;
        let toast = FileModel::new(Content::Chunks, page, toast_now, fresh);
        let fresh = after.toast_bytes.value;
        // dead rows bring about a vacuum too
        let slower = tuning.in_part(old_values / (old_values + heap_bytes).max(1.0));
        let (toast, cost) =
            toast.apply(Step::Update { old: old_values, new: toast_bytes, fresh, tuning: slower });
        let mut compacted = CompactedFiles {
            heap: may.heap && heap.may_compact(),
            toast: may.toast && toast.may_compact(),
            index: false,
        };
        let mut entries = index_bytes * cost.newest / toast_bytes.max(1.0);
        let mut fresh_index = after.toast_index_bytes.value;
        let toast_left = after_compaction(figures, toast_now);
        if compacted.toast {
            fresh_index = toast_left.toast_index_bytes.value;
            // moved values have new entries too
            let moved = toast.bytes.estimate / fresh.estimate.max(1.0) - 1.0;
            entries += fresh_index.estimate * moved.clamp(0.0, 1.0);
        }
        let fresh = fresh_index;
        let index = FileModel::new(Content::Entries, page, index_now, fresh.estimate);
        let (index, _) =
            index.apply(Step::Update { old: index_bytes, new: entries, fresh, tuning });
        compacted.index = may.index && index.is_bloated();
        let before_compaction = heap.bytes.plus(toast.bytes).plus(index.bytes).estimate;
        let heap = if compacted.heap { compacted_heap(heap, is_blocked) } else { heap };
        // compaction of the heap cuts off what is empty, also for those who may not compact the TOAST relation
        let is_emptied = may.heap && toast_bytes <= 0.0 && kept <= 0.0;
        compacted.heap |= is_emptied && !may.toast && toast_now > 0.0;
        let kept_part = kept / (kept + toast_bytes).max(1.0);
        let toast = if compacted.toast {
            let less = (old_values - toast_bytes).max(0.0);
            let likely = kept_part * less.min(values * FRAGMENT);
            let mut left = toast;
            left.fresh = toast_left.toast_bytes.value;
            left.apply(Step::Compact).0.with_fragments(2.0 * likely, &toast)
        } else if is_emptied {
            toast.apply(Step::Truncate).0
        } else {
            toast
        };
        let index = if compacted.index { index.apply(Step::Reindex).0 } else { index };
        let bytes = heap.bytes.plus_independent(toast.bytes).plus_independent(index.bytes);
        let Interval { estimate, low, high } = bytes;
        AfterCommand {
            compacted,
            before: files.total_bytes,
            bytes: Interval {
                estimate: estimate.round() as u64,
                low: low.round() as u64,
                high: high.round() as u64,
            },
            heap_bytes: heap.bytes.estimate,
            before_compaction: before_compaction.round() as u64,
        }
    }

    /// By how much the files are larger in the end than before, as a part.
    pub(super) fn growth(&self) -> Interval {
        let Interval { estimate, low, high } = self.bytes;
        let bytes = Interval { estimate: estimate as f64, low: low as f64, high: high as f64 };
        bytes.scaled(1.0 / (self.before as f64).max(1.0)).plus(Interval::exact(-1.0))
    }

    /// What the command leaves of two relations together.
    pub(super) fn plus(self, more: AfterCommand) -> AfterCommand {
        AfterCommand {
            compacted: CompactedFiles {
                heap: self.compacted.heap || more.compacted.heap,
                toast: self.compacted.toast || more.compacted.toast,
                index: self.compacted.index || more.compacted.index,
            },
            before: self.before + more.before,
            bytes: self.bytes.plus(more.bytes),
            heap_bytes: self.heap_bytes + more.heap_bytes,
            before_compaction: self.before_compaction + more.before_compaction,
        }
    }

    /// The options of `retoast` for it.
    pub(super) fn options(&self) -> Vec<&'static str> {
        self.compacted
            .option()
            .into_iter()
            .chain(self.compacted.index.then_some("--reindex"))
            .collect()
    }
}

/// Bytes that the fillfactor keeps free on pages, as INSERT counts them (by which all pages, if they were filled up, would need
/// fewer), and the part of it that rows fill which grow. Measured with fillfactors of 50 to 80.
fn room_of_fillfactor(heap: &FileModel, figures: &Figures, page: PageSize) -> (f64, f64) {
    let Written { page_room, grown_rows, grown_bytes, .. } = figures.written;
    let room = page_room.max(1.0);
    // of rows that fill pages beyond the fillfactor already, less is kept
    let kept = heap.bytes.estimate * room - heap.fresh.estimate;
    let on_page = page.bytes() as f64 * (1.0 - 1.0 / room);
    // about two rows of a page find no room
    let unfilled = 2.0 * grown_bytes / grown_rows.max(1.0);
    let part = (1.0 - unfilled / on_page.max(1.0)).max(0.0);
    (kept.clamp(0.0, heap.bytes.estimate * (room - 1.0)), part)
}

/// The heap after the conversion. `is_blocked`: of long rows that it writes some make it longer, although there is free space.
fn updated_heap(
    heap: FileModel,
    figures: &Figures,
    page: PageSize,
    tuning: Tuning,
    is_blocked: bool,
) -> FileModel {
    let Written { heap_bytes, replaced_bytes, grown_bytes, .. } = figures.written;
    if heap_bytes <= 0.0 {
        return heap;
    }
    let now = heap.bytes.estimate;
    let (kept_free, part) = room_of_fillfactor(&heap, figures, page);
    let mut fresh = figures.heap_in_place();
    let filled = kept_free.min((fresh.estimate - now).max(0.0));
    fresh.estimate -= filled * part;
    fresh.low -= filled;
    fresh.high -= filled * part;
    let step = Step::Update { old: replaced_bytes, new: heap_bytes, fresh, tuning };
    let (mut after, _) = heap.apply(step);
    // versions of rows that are dead meanwhile fit too
    after.bytes.estimate = (after.bytes.estimate - kept_free * part).max(now.max(fresh.estimate));
    after.bytes.high = (after.bytes.high - kept_free * part).max(after.bytes.estimate);
    if is_blocked {
        let Interval { estimate, low, high } = after.bytes;
        after.bytes = Interval {
            estimate: estimate.max(now + grown_bytes * LONG_AT_END),
            low,
            high: high.max(now + grown_bytes),
        };
    }
    after
}

/// The heap after compaction, which returns nothing if long rows at the end find no room in front.
fn compacted_heap(heap: FileModel, is_blocked: bool) -> FileModel {
    let mut after = heap.apply(Step::Compact).0;
    if is_blocked {
        after.bytes = Interval { low: after.bytes.low.min(heap.bytes.low), ..heap.bytes };
    }
    after
}

/// The forecast ends after this many rounds of compaction, or with a round that frees less than this part of the file.
const ROUNDS: usize = 10;
const LEAST_ROUND: f64 = 1.0 / 16.0;

/// The files with what compaction leaves of the values of dropped columns, which are anywhere in a TOAST relation of `bytes`.
fn after_compaction(figures: &Figures, bytes: f64) -> FileSizes {
    let dropped = figures.written.dropped_toast_bytes;
    let live = figures.files.toast_bytes.value.estimate;
    let left = dropped_left(bytes, live, dropped);
    let part = Interval { estimate: left / dropped.max(1.0), low: 0.0, high: 1.0 };
    figures.with_dropped_columns(part)
}

/// The bytes of dropped columns' values that compaction leaves: each round takes them out of the rows that it moves.
fn dropped_left(bytes: f64, live: f64, dropped: f64) -> f64 {
    let mut file = bytes.max(1.0);
    let mut left = dropped;
    for _ in 0..ROUNDS {
        let next = (live + left).max(1.0);
        if next > file * (1.0 - LEAST_ROUND) {
            break;
        }
        left *= next / file;
        file = next;
    }
    left
}

/// What compaction alone would return, by rows, if that is worth it. `today`: what the rows
/// take as they are stored now.
pub(super) fn estimated(
    today: &Figures,
    files: &Files,
    page: PageSize,
    relation: &Relation,
    may: CompactedFiles,
) -> Option<CompactionReport> {
    let compacted = AfterCommand::new(today, today, files, page, may).compacted;
    let option = compacted.option()?;
    let mut heap_bytes = 0;
    if compacted.heap {
        heap_bytes = gain(&today.files.heap_bytes, files.heap_bytes);
    }
    let mut toast_bytes = 0;
    if compacted.toast {
        toast_bytes = gain(&today.with_dropped_columns(ALL).toast_bytes, files.toast_bytes);
    }
    let words = table_words(&relation.schema, &relation.name);
    Some(CompactionReport {
        heap_bytes,
        toast_bytes,
        index_bytes: 0,
        files: Vec::new(),
        indexes: Vec::new(),
        command: format!("toastctl retoast {words} {option}"),
    })
}

/// By how much a file of `now` bytes is larger than VACUUM FULL would leave it.
fn gain(fresh: &Figure, now: u64) -> u64 {
    now.saturating_sub(fresh.bytes())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const BOTH: CompactedFiles = CompactedFiles { heap: true, toast: true, index: true };
    use toast_format::model::interval;

    /// Files whose figures under today's settings are `figures(100.0, 900.0)`.
    pub(in crate::advise) const FILES: Files =
        Files { heap_bytes: 100, toast_bytes: 900, toast_index_bytes: 20, total_bytes: 1020 };

    pub(in crate::advise) fn figures(heap: f64, toast: f64) -> Figures {
        let figure = |value: f64, now: f64| Figure {
            value: Interval::exact(value),
            change: Some(Interval::exact(value / now - 1.0)),
        };
        let files = FileSizes {
            heap_bytes: figure(heap, 100.0),
            toast_bytes: figure(toast, 900.0),
            total_bytes: figure(heap + toast, 1000.0),
            ..FileSizes::default()
        };
        Figures { files, ..Figures::default() }
    }

    fn blocks(blocks: f64) -> f64 {
        blocks * 8192.0
    }

    fn now(heap: u64, toast: u64, index: u64) -> Files {
        let [heap_bytes, toast_bytes, toast_index_bytes] =
            [heap, toast, index].map(|pages| pages * 8192);
        let total_bytes = heap_bytes + toast_bytes + toast_index_bytes;
        Files { heap_bytes, toast_bytes, toast_index_bytes, total_bytes }
    }

    /// Figures in pages, of which this many of the TOAST relation are written anew.
    fn converted(heap: f64, toast: f64, index: f64, written: f64) -> Figures {
        let mut all = figures(blocks(heap), blocks(toast));
        all.files.toast_index_bytes.value = Interval::exact(blocks(index));
        all.written.toast_bytes = blocks(written);
        all.written.index_bytes = blocks(index * written / toast.max(1.0));
        all
    }

    /// Measured on PostgreSQL 15: of 6000 values that all move into their rows, VACUUM leaves no page of the TOAST
    /// relation, even if the user cannot compact it. If they stay out of line, no page is returned.
    #[test]
    fn a_toast_relation_that_becomes_empty_is_truncated() {
        let may = CompactedFiles { heap: true, toast: false, index: false };
        let today = converted(39.0, 4300.0, 53.0, 0.0);
        let files = now(39, 4300, 53);
        for (toast, low, high) in [(0.0, 1500, 2000), (2000.0, 4300, 8000)] {
            let mut after = converted(1500.0, toast, toast / 80.0, toast);
            after.written.heap_bytes = blocks(1500.0);
            let left = AfterCommand::new(&after, &today, &files, PageSize::DEFAULT, may).bytes;
            assert!(left.low >= low * 8192 && left.high < high * 8192, "{toast}: {left:?}");
        }
    }

    #[test]
    fn nothing_is_written_and_nothing_changes() {
        let files = now(10, 100, 3);
        let left = AfterCommand::new(
            &converted(10.0, 100.0, 3.0, 0.0),
            &converted(10.0, 100.0, 3.0, 0.0),
            &files,
            PageSize::DEFAULT,
            BOTH,
        );
        assert_eq!(left.options(), [] as [&str; 0]);
        assert_eq!(left.bytes, Interval::exact(113.0 * 8192.0).whole());
        assert_eq!(left.before_compaction, files.total_bytes);
    }

    #[test]
    fn a_conversion_leaves_dead_chunks_that_compaction_gives_back_and_entries_that_a_rebuild_does()
    {
        let files = now(10, 10_000, 120);
        let figures = converted(10.0, 10_000.0, 120.0, 10_000.0);
        let left = AfterCommand::new(&figures, &figures, &files, PageSize::DEFAULT, BOTH);
        assert_eq!(left.options(), ["--compact=toast", "--reindex"]);
        assert!(left.before_compaction > 11_000 * 8192, "{left:?}");
        assert_eq!(left.bytes.estimate / 8192, 10_220 + 130);
        assert!(left.bytes.high < 10_350 * 8192 * 107 / 100, "{:?}", left.bytes);
        // where indexes cannot be rebuilt, the index stays as long
        let kept = AfterCommand::new(
            &figures,
            &figures,
            &files,
            PageSize::DEFAULT,
            CompactedFiles { index: false, ..BOTH },
        );
        assert_eq!(kept.options(), ["--compact=toast"]);
        assert!(kept.bytes.estimate > left.bytes.estimate, "{kept:?}");
        // where files do not become shorter, they stay so
        let left = AfterCommand::new(
            &figures,
            &figures,
            &files,
            PageSize::DEFAULT,
            CompactedFiles::default(),
        );
        assert_eq!(left.options(), [] as [&str; 0]);
        assert!(left.bytes.estimate > 11_000 * 8192, "{:?}", left.bytes);
    }

    #[test]
    fn a_small_heap_grows_by_more_than_a_part_before_it_is_vacuumed_and_compaction_ends_that() {
        let rows = |heap, written| {
            let mut all = converted(heap, 0.0, 1.0, 0.0);
            all.written.heap_bytes = blocks(written);
            all.written.replaced_bytes = blocks(written);
            all
        };
        let left = AfterCommand::new(
            &rows(90.0, 90.0),
            &rows(90.0, 90.0),
            &now(90, 0, 1),
            PageSize::DEFAULT,
            BOTH,
        );
        assert_eq!(left.options(), ["--compact=heap"]);
        assert!(left.before_compaction > 120 * 8192, "{left:?}");
        assert!((left.heap_bytes / 8192.0 - 94.5).abs() < 1.0, "{left:?}");
        // of a large one it is a small part
        let left = AfterCommand::new(
            &rows(9000.0, 9000.0),
            &rows(9000.0, 9000.0),
            &now(9000, 0, 1),
            PageSize::DEFAULT,
            BOTH,
        );
        assert!(left.before_compaction < 9300 * 8192, "{left:?}");
        // one that does not become shorter stays as it grew
        let left = AfterCommand::new(
            &rows(90.0, 90.0),
            &rows(90.0, 90.0),
            &now(90, 0, 1),
            PageSize::DEFAULT,
            CompactedFiles::default(),
        );
        assert!(left.heap_bytes > 120.0 * 8192.0, "{left:?}");
    }

    #[test]
    fn how_much_compaction_returns_of_a_heap_whose_rows_have_grown_is_less_sure() {
        let mut wanted = converted(620.0, 0.0, 1.0, 0.0);
        wanted.written.heap_bytes = blocks(620.0);
        wanted.written.replaced_bytes = blocks(570.0);
        let left = AfterCommand::new(&wanted, &wanted, &now(570, 0, 1), PageSize::DEFAULT, BOTH);
        assert_eq!(left.options(), ["--compact=heap"]);
        let [low, estimate, high] =
            [left.bytes.low, left.bytes.estimate, left.bytes.high].map(|bytes| bytes / 8192 - 1);
        assert_eq!((low, estimate), (620, 651));
        assert!((682..=694).contains(&high), "{high}");
    }

    /// Measured on PostgreSQL 15: of 24,000 rows in 1015 pages, 40 % of each free, 297 became 3 kB long; the heap ended with 1069
    /// pages, of which compaction found no row worth moving.
    #[test]
    fn a_few_long_rows_at_the_end_keep_compaction_from_returning_free_space() {
        let today = converted(609.0, 400.0, 5.0, 0.0);
        let mut wanted = converted(720.0, 130.0, 2.0, 0.0);
        wanted.written.heap_bytes = blocks(120.0);
        wanted.written.replaced_bytes = blocks(9.0);
        wanted.written.grown_rows = 297.0;
        wanted.written.grown_bytes = 297.0 * 3150.0;
        let left = |today: &Figures| {
            AfterCommand::new(&wanted, today, &now(1015, 400, 8), PageSize::DEFAULT, BOTH)
        };
        let found = 1069.0 * 8192.0;
        let predicted = left(&today).heap_bytes;
        assert!((predicted / found - 1.0).abs() < 0.05, "{predicted} {found}");
        // pages in front have room for them
        let mut roomy = today;
        roomy.written.roomy_pages = 300.0;
        assert!(left(&roomy).heap_bytes < found * 0.8);
    }

    /// Measured on PostgreSQL 15: pages of the heap before, as INSERT would fill them, and found after the command; rows that grow,
    /// and their bytes.
    #[test]
    fn rows_that_grow_fill_the_room_that_the_fillfactor_keeps() {
        for (fillfactor, before, fresh, found, rows, bytes) in [
            (50.0, 120.0, 229.0, 131.0, 8000.0, 117.0),
            (70.0, 85.0, 164.0, 143.0, 8000.0, 117.0),
            (70.0, 267.0, 364.0, 278.0, 8000.0, 260.0),
            // so long that few of them fit
            (80.0, 28.0, 750.0, 750.0, 3000.0, 1634.0),
            (70.0, 326.0, 649.0, 660.0, 2000.0, 1500.0),
        ] {
            let today = converted(before, 1000.0, 12.0, 0.0);
            let mut wanted = converted(fresh, 0.0, 0.0, 0.0);
            wanted.written = Written {
                page_room: 100.0 / fillfactor,
                heap_bytes: blocks(fresh),
                replaced_bytes: blocks(before),
                grown_rows: rows,
                grown_bytes: rows * bytes,
                ..Written::default()
            };
            let files = now(before as u64, 1000, 12);
            let left = AfterCommand::new(&wanted, &today, &files, PageSize::DEFAULT, BOTH);
            let pages = left.heap_bytes / 8192.0;
            assert!((pages / found - 1.0).abs() < 0.06, "{fillfactor} {before}: {pages} {found}");
            let promised = left.bytes.low as f64..=left.bytes.high as f64;
            assert!(promised.contains(&blocks(found)), "{fillfactor} {before}: {left:?}");
        }
        // measured: 3.5 thousand rows, of which 2195 had their value out of line and nearly nothing else
        let mut wanted = converted(800.0, 0.0, 0.0, 0.0);
        wanted.written.heap_bytes = blocks(650.0);
        wanted.written.replaced_bytes = blocks(20.0);
        let today = converted(219.0, 1939.0, 25.0, 0.0);
        let files = now(219, 1939, 25);
        let left = AfterCommand::new(&wanted, &today, &files, PageSize::DEFAULT, BOTH);
        let pages = left.heap_bytes / 8192.0;
        assert!((pages / 814.0 - 1.0).abs() < 0.04, "{pages}");
    }

    #[test]
    fn nothing_is_left_of_nothing() {
        assert_eq!(dropped_left(1e6, 0.0, 0.0), 0.0);
        assert_eq!(dropped_left(0.0, 0.0, 0.0), 0.0);
        assert_eq!(dropped_left(1e6, 1e6, 5e5), 5e5);
    }

    #[test]
    fn values_of_dropped_columns_stay_in_rows_that_nothing_moves() {
        fn dropped(figures: Figures, pages: f64) -> Figures {
            let mut all = figures;
            all.written.dropped_toast_bytes = blocks(pages);
            all.written.dropped_index_bytes = blocks(pages / 80.0);
            all
        }
        // measured on PostgreSQL 15: 4520 and 288 kB of 6440
        for (live, written, low, high) in [(2900.0, 2850.0, 4100, 4800), (150.0, 0.0, 180, 400)] {
            let [live, written, all] = [live, written, 6440.0].map(|kb| kb / 8.0);
            let today = dropped(converted(480.0, all - 590.0, 6.0, 0.0), 590.0);
            let wanted = dropped(converted(480.0, live, 6.0, written), 250.0);
            let files = now(484, 805, 14);
            let after = AfterCommand::new(&wanted, &today, &files, PageSize::DEFAULT, BOTH).bytes;
            let toast = after.estimate.saturating_sub(490 * 8192) / 1024;
            assert!((low..high).contains(&toast), "{toast} {after:?}");
            assert!(after.low <= after.estimate && after.estimate <= after.high, "{after:?}");
        }
    }

    #[test]
    fn compaction_pays_from_what_vacuum_truncates_for() {
        let wanted = converted(10.0, 100.0, 1.0, 0.0);
        fn option(figures: &Figures, files: Files) -> Option<&'static str> {
            AfterCommand::new(figures, figures, &files, PageSize::DEFAULT, BOTH).compacted.option()
        }
        assert_eq!(option(&wanted, now(10, 100, 1)), None);
        assert_eq!(option(&wanted, now(10, 107, 1)), None);
        assert_eq!(option(&wanted, now(10, 108, 1)), Some("--compact=toast"));
        assert_eq!(option(&wanted, now(20, 108, 1)), Some("--compact"));
        assert_eq!(option(&wanted, now(20, 100, 1)), Some("--compact=heap"));
    }

    #[test]
    fn what_compaction_gives_back_moves_and_writes() {
        let index = |name: &str| IndexCompaction {
            index: name.into(),
            gives_back: 3 << 20,
            wal_bytes: 2 << 20,
        };
        let toast = FileCompaction {
            file: TableFile::Toast,
            blocks_read: 1024,
            blocks: 32_000,
            expected: Expected {
                gives_back: 120 << 20,
                rows: None,
                values: Some(14_500),
                moved_bytes: 60 << 20,
                wal_bytes: interval::Range { low: 62 << 20, high: 130 << 20 },
                gin_growth: 0,
                estimated: true,
            },
        };
        let mut report = CompactionReport {
            heap_bytes: 0,
            toast_bytes: 120 << 20,
            index_bytes: 3 << 20,
            files: vec![toast.clone()],
            indexes: vec![index("public.t_pkey")],
            command: "toastctl compact t --files toast --reindex".to_owned(),
        };
        assert_eq!(
            report.note(),
            "toastctl compact t --files toast --reindex would return about 120 MB of the TOAST relation (moving \
             14500 values, WAL 62 MB to 130 MB), about 3072 kB of index public.t_pkey (WAL 2048 kB)."
        );
        let nothing = Expected { rows: Some(0), values: None, estimated: false, ..toast.expected };
        report.files = vec![FileCompaction { file: TableFile::Heap, expected: nothing, ..toast }];
        report.heap_bytes = 8 << 20;
        report.indexes.push(index("public.more"));
        report.index_bytes = 6 << 20;
        assert_eq!(
            report.note(),
            "toastctl compact t --files toast --reindex would return about 8192 kB of the heap, about 120 MB of the \
             TOAST relation, about 6144 kB of 2 indexes (WAL 4096 kB)."
        );
    }
}
