//! What compaction alone would return of a table, whatever the settings, with what it moves and writes: a look at
//! blocks of its files and of its indexes, or an estimate from rows; and what it gives back after an in-place retoast.

use super::advisor::{Access, Advisor};
use super::estimate::{Figure, Figures};
use super::result::{CompactionReport, FileCompaction, Files, IndexCompaction};
use crate::disk::layout::PageSize;
use crate::fill::lengths::Growth;
use crate::fill::meter::{FileFill, FileMeter, Kind};
use crate::fill::moves::{Expected, RelatedFiles};
use crate::heap::problem::Problems;
use crate::heap::sample::Sample;
use crate::heap::scan::Visitor;
use crate::judge::command::table_words;
use crate::model::interval::Interval;
use crate::model::pages::least_gain;
use crate::model::sql::quote_qualified;
use crate::model::visibility::Snapshot;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::index_scan::{Bloat, IndexFill, IndexScan};
use crate::server::snapshot;

/// Blocks of each file that are looked at without `--sample`, and with it at the most: 16 and 64 MB of 8 kB pages.
const BLOCKS: u32 = 2048;
const MOST_BLOCKS: u32 = 8192;

impl Advisor {
    /// By its pages and indexes; where a file's pages cannot be read, by `estimated`, from rows. `None` if there is
    /// nothing to give back that is worth it. The connection is in no transaction. What fails here costs no advice;
    /// blocks that cannot be read are told to `problems`.
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
        let pageinspect = self.server.pageinspect.clone().filter(|_| by_pages);
        let scan = IndexScan::new(pageinspect, page, relation.oid);
        let indexes = or_traced(scan.over(&[&*self.connection]).await);
        found(relation, page, &files.unwrap_or_default(), &indexes.unwrap_or_default(), estimated)
    }

    /// What a look at the table's file and its TOAST relation's shows, without one that was to be read whole and could
    /// not be, or of which no block could.
    async fn files(
        &self,
        relation: &Relation,
        problems: &mut Problems,
    ) -> Result<Vec<(&'static str, FileFill)>, LiveError> {
        let snapshot = snapshot::begin(&self.connection).await?.snapshot;
        let target = relation.tuple_target(self.server.page_size);
        let heap = File {
            name: relation.display_name(),
            quoted: relation.quoted(),
            kind: Kind::Rows,
            fillfactor: u32::from(relation.fillfactor()),
            growth: Growth::of(&relation.desc, self.server.page_size, target),
            related: RelatedFiles::of_table(relation.index_bytes),
        };
        let toast = relation.toast.as_ref().map(|toast| File {
            name: toast.display_name(),
            quoted: quote_qualified("pg_toast", &toast.name),
            kind: Kind::Chunks,
            fillfactor: 100,
            growth: Growth::default(),
            related: RelatedFiles {
                index_bytes: toast.index_bytes,
                table: Some((relation.bytes, relation.index_bytes)),
            },
        });
        let mut files = Vec::new();
        for (name, file) in [("heap", Some(heap)), ("toast", toast)] {
            let Some(file) = file else { continue };
            let facts = self.file(&snapshot, &file, problems).await?;
            files.extend(facts.map(|facts| (name, facts)));
        }
        Ok(files)
    }

    async fn file(
        &self,
        snapshot: &Snapshot,
        file: &File,
        problems: &mut Problems,
    ) -> Result<Option<FileFill>, LiveError> {
        let page = self.server.page_size;
        let name = file.quoted.clone();
        let mut reader = self.server.page_reader(&self.connection, name, snapshot).await?;
        let total = reader.block_count().await?;
        let blocks = match self.options.sample {
            Some(size) => size.of(total).min(MOST_BLOCKS),
            None => BLOCKS,
        };
        let least = if blocks >= total { u64::from(total) } else { 1 };
        let mut meter = FileMeter::sample(file.kind, page, file.fillfactor);
        meter = meter.growing(file.growth.clone());
        let blocks: Vec<_> = Sample::new(total, blocks, self.options.seed).collect();
        for few in blocks.chunks(BLOCKS as usize) {
            let pages = reader.read(few).await?;
            problems.extend(pages.problems(&file.name));
            for (block, bytes) in pages.iter() {
                meter.page(block, bytes, &pages);
            }
        }
        let is_known = meter.read() >= least;
        Ok(is_known.then(|| meter.finish(u64::from(total), Some(&file.related))))
    }
}

/// A file of a table.
struct File {
    name: String,
    quoted: String,
    kind: Kind,
    fillfactor: u32,
    growth: Growth,
    related: RelatedFiles,
}

/// An answer, unless there was an error.
fn or_traced<T>(answer: Result<T, LiveError>) -> Option<T> {
    let traced = |error| tracing::debug!("what compaction would return is not known: {error}");
    answer.map_err(traced).ok()
}

/// What follows from a look at files and indexes.
fn found(
    relation: &Relation,
    page: PageSize,
    looked: &[(&'static str, FileFill)],
    indexes: &[IndexFill],
    estimated: Option<&CompactionReport>,
) -> Option<CompactionReport> {
    let files: Vec<FileCompaction> =
        looked.iter().filter_map(|(name, facts)| file(name, facts, page)).collect();
    let of = |name, estimated| match looked.iter().any(|&(file, _)| file == name) {
        true => files.iter().find(|f| f.file == name).map_or(0, |f| f.expected.gives_back),
        false => estimated,
    };
    let heap_bytes = of("heap", estimated.map_or(0, |estimated| estimated.heap_bytes));
    let toast_bytes = of("toast", estimated.map_or(0, |estimated| estimated.toast_bytes));
    let indexes: Vec<IndexCompaction> = indexes.iter().filter_map(|one| index(one, page)).collect();
    let compact = match (heap_bytes > 0, toast_bytes > 0) {
        (true, true) => Some(""),
        (true, false) => Some(" --files heap"),
        (false, true) => Some(" --files toast"),
        (false, false) if indexes.is_empty() => return None,
        (false, false) => None,
    };
    let words = table_words(&relation.schema, &relation.name);
    let command = match compact {
        Some(files) if indexes.is_empty() => format!("toastctl compact {words}{files}"),
        Some(files) => format!("toastctl compact {words}{files} --reindex"),
        None => format!("toastctl reindex {words}"),
    };
    Some(CompactionReport {
        heap_bytes,
        toast_bytes,
        index_bytes: indexes.iter().map(|index| index.gives_back).sum(),
        files,
        indexes,
        command,
    })
}

/// What one file gives back, if a round of compaction does.
fn file(name: &'static str, facts: &FileFill, page: PageSize) -> Option<FileCompaction> {
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

/// The command, with what it gives back, moves and writes.
pub(super) fn note(compaction: &CompactionReport) -> String {
    let mut parts = Vec::new();
    for (of, name, bytes) in [
        ("the heap", "heap", compaction.heap_bytes),
        ("the TOAST relation", "toast", compaction.toast_bytes),
    ] {
        let moves = compaction.files.iter().find(|file| file.file == name).and_then(moves);
        if bytes > 0 {
            parts.push(format!("about {} of {of}{}", size(bytes), moves.unwrap_or_default()));
        }
    }
    let which = match &compaction.indexes[..] {
        [] => None,
        [one] => Some(format!("index {}", one.index)),
        more => Some(format!("{} indexes", more.len())),
    };
    if let Some(which) = which {
        let wal = compaction.indexes.iter().map(|index| index.wal_bytes).sum();
        let gives = size(compaction.index_bytes);
        parts.push(format!("about {gives} of {which} (WAL {})", size(wal)));
    }
    format!("{} would return {}.", compaction.command, parts.join(", "))
}

/// What is moved of a file; `None` if nothing is.
fn moves(file: &FileCompaction) -> Option<String> {
    let Expected { rows, values, wal_bytes: wal, .. } = &file.expected;
    let (number, what) = rows.map(|rows| (rows, "row")).or(values.map(|n| (n, "value")))?;
    let s = if number == 1 { "" } else { "s" };
    (number > 0).then(|| {
        format!(" (moving {number} {what}{s}, WAL {} to {})", size(wal.low), size(wal.high))
    })
}

/// Bytes of the files after an in-place retoast and this compaction ([`compaction`]; `None`: without one): a file that
/// is compacted comes near to what VACUUM FULL would leave; in the others space is used again, but none gets shorter.
pub(super) fn retoasted_bytes(
    figures: &Figures,
    files: &Files,
    compaction: Option<&str>,
) -> Interval<u64> {
    let is_compacted =
        |file| compaction.is_some_and(|option| option == "--compact" || option.ends_with(file));
    let sizes = &figures.files;
    let all = [
        (&sizes.heap_bytes, files.heap_bytes, is_compacted("=heap")),
        (&sizes.toast_bytes, files.toast_bytes, is_compacted("=toast")),
        (&sizes.toast_index_bytes, files.toast_index_bytes, false),
    ];
    let sum = |end: fn(&Interval) -> f64| {
        let bytes = |(figure, now, compacted): &(&Figure, u64, bool)| {
            let fresh = end(&figure.value).round() as u64;
            if *compacted { fresh } else { fresh.max(*now) }
        };
        all.iter().map(bytes).fold(0, u64::saturating_add)
    };
    Interval { estimate: sum(|i| i.estimate), low: sum(|i| i.low), high: sum(|i| i.high) }
}

/// The option that has those of the heap's and the TOAST relation's files compacted of which that would give
/// back part of what they are right after an in-place retoast; `None` if there is none.
pub(super) fn compaction(figures: &Figures, files: &Files, page: PageSize) -> Option<&'static str> {
    let pays = |figure: &Figure, now: u64| {
        let pages = |bytes: f64| (bytes / page.bytes() as f64).ceil() as u32;
        let now = pages(now as f64);
        now.saturating_sub(pages(figure.value.high)) >= least_gain(now)
    };
    let heap = pays(&figures.files.heap_bytes, files.heap_bytes);
    match (heap, pays(&figures.files.toast_bytes, files.toast_bytes)) {
        (true, true) => Some("--compact"),
        (true, false) => Some("--compact=heap"),
        (false, true) => Some("--compact=toast"),
        (false, false) => None,
    }
}

/// What compaction alone would return, by rows, if that is worth it. `today`: what the rows
/// take as they are stored now.
pub(super) fn estimated(
    today: &Figures,
    files: &Files,
    page: PageSize,
    relation: &Relation,
) -> Option<CompactionReport> {
    let option = compaction(today, files, page)?;
    let of = |figure: &Figure, now: u64, is_in: bool| {
        if is_in { now.saturating_sub(figure.value.estimate.round() as u64) } else { 0 }
    };
    let words = table_words(&relation.schema, &relation.name);
    Some(CompactionReport {
        heap_bytes: of(&today.files.heap_bytes, files.heap_bytes, !option.ends_with("toast")),
        toast_bytes: of(&today.files.toast_bytes, files.toast_bytes, !option.ends_with("heap")),
        index_bytes: 0,
        files: Vec::new(),
        indexes: Vec::new(),
        command: format!("toastctl retoast {words} {option}"),
    })
}

/// Megabytes, or kilobytes for little.
pub(super) fn size(bytes: u64) -> String {
    if bytes >= 10 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} kB", bytes >> 10) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::advise::estimate::FileSizes;
    use crate::model::interval::Range;

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

    #[test]
    fn files_that_retoast_leaves_are_as_long_as_before_or_longer() {
        let left = |heap, toast, compaction| {
            retoasted_bytes(&figures(heap, toast), &FILES, compaction).estimate
        };
        assert_eq!(left(1000.0, 0.0, None), 1920);
        assert_eq!(left(50.0, 1000.0, None), 1120);
        assert_eq!(left(50.0, 50.0, None), 1020);
        assert_eq!(left(50.0, 50.0, Some("--compact=toast")), 170);
        assert_eq!(left(50.0, 50.0, Some("--compact=heap")), 970);
        assert_eq!(left(50.0, 50.0, Some("--compact")), 120);
    }

    #[test]
    fn compaction_pays_from_what_vacuum_truncates_for() {
        let page = PageSize::DEFAULT;
        let blocks = |blocks: u32| f64::from(blocks) * 8192.0;
        let now =
            |blocks: u64| Files { heap_bytes: 8192 * 10, toast_bytes: 8192 * blocks, ..FILES };
        let wanted = figures(blocks(10), blocks(100));
        assert_eq!(compaction(&wanted, &now(100), page), None);
        assert_eq!(compaction(&wanted, &now(107), page), None);
        assert_eq!(compaction(&wanted, &now(108), page), Some("--compact=toast"));
        let both = figures(blocks(1), blocks(100));
        assert_eq!(compaction(&both, &now(108), page), Some("--compact"));
        assert_eq!(compaction(&both, &now(100), page), Some("--compact=heap"));
        // a file that grows has nothing to give
        assert_eq!(compaction(&figures(blocks(500), blocks(200)), &now(108), page), None);
    }

    #[test]
    fn what_compaction_gives_back_moves_and_writes() {
        let index = |name: &str| IndexCompaction {
            index: name.into(),
            gives_back: 3 << 20,
            wal_bytes: 2 << 20,
        };
        let toast = FileCompaction {
            file: "toast",
            blocks_read: 1024,
            blocks: 32_000,
            expected: Expected {
                gives_back: 120 << 20,
                rows: None,
                values: Some(14_500),
                moved_bytes: 60 << 20,
                wal_bytes: Range { low: 62 << 20, high: 130 << 20 },
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
            note(&report),
            "toastctl compact t --files toast --reindex would return about 120 MB of the TOAST relation (moving \
             14500 values, WAL 62 MB to 130 MB), about 3072 kB of index public.t_pkey (WAL 2048 kB)."
        );
        let nothing = Expected { rows: Some(0), values: None, estimated: false, ..toast.expected };
        report.files = vec![FileCompaction { file: "heap", expected: nothing, ..toast }];
        report.heap_bytes = 8 << 20;
        report.indexes.push(index("public.more"));
        report.index_bytes = 6 << 20;
        assert_eq!(
            note(&report),
            "toastctl compact t --files toast --reindex would return about 8192 kB of the heap, about 120 MB of the \
             TOAST relation, about 6144 kB of 2 indexes (WAL 4096 kB)."
        );
    }
}
