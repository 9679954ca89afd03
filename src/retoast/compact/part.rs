//! The compaction of one file, which carries out the actions of [`super::rounds`].

use std::time::Instant;

use rand::RngExt;

use crate::retoast::compact::rounds::{Action, Event, Pace, Piece, Rounds};
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::listener::Advance;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::plan::writing_seconds;
use crate::retoast::preflight::definition::Files;
use crate::retoast::result::{Common, CompactedFile, FileEnd, FileReport};
use crate::retoast::sql::compact::Vacuum;
use crate::retoast::task::guard::{BatchEnd, Guard};
use crate::retoast::task::session::millis;
use toast_format::disk::{ItemPointer, Oid};
use toast_format::fill::moves::{Moved, gin_growth, wal};
use toast_format::fill::room::{Layout, Room};
use toast_format::model::Range;
use toast_format::model::pages::{CHUNK_OVERHEAD, truncated_for, tuple_bytes};

/// While a round moves what is at its end, a file may grow by one in `GROWTH` of its blocks, but at least by
/// `LEAST_GROWTH`.
const GROWTH: u32 = 100;
const LEAST_GROWTH: u32 = 8;

/// What is stored behind the end of a file.
#[derive(Debug, Default)]
pub(super) struct PiecesBehind {
    /// What can be moved, in the order in which to move it.
    pub(super) pieces: Vec<Piece>,
    /// The number of blocks up to the last one with something live.
    pub(super) last: u32,
    /// Whether these are all the pieces.
    pub(super) all: bool,
    /// Values that cannot be moved, because their columns would not store them out of line again.
    pub(super) fixed: u64,
    /// Values to which no row refers.
    pub(super) without_row: u64,
    /// Values that will take the form that their column's settings determine.
    pub(super) by_setting: u64,
    /// Rows or values written by other sessions since the first look behind the end.
    pub(super) of_others: u64,
}

impl PiecesBehind {
    /// Nothing found yet in block `end` and behind it.
    pub(super) fn new(end: u32) -> PiecesBehind {
        PiecesBehind { last: end, all: true, ..PiecesBehind::default() }
    }
}

/// A file, and how to find and move what it contains.
pub(super) trait File {
    /// The generated columns that are computed again when something is moved.
    fn computed(&self) -> Vec<String>;
    /// Determines how full the file is.
    async fn room(&mut self) -> Result<Room>;
    /// Finds what is stored in this block and behind it.
    async fn find(&mut self, end: u32) -> Result<PiecesBehind>;
    /// Moves these pieces in one transaction, which is rolled back if a row would go to the block `trial` or behind it.
    async fn move_pieces(
        &mut self,
        pieces: &[Piece],
        verify: bool,
        trial: Option<u32>,
    ) -> Result<BatchEnd>;
    /// The number of rows that the last transaction has updated but that found no room elsewhere.
    fn stayed(&self) -> u64 {
        0
    }
    /// Whether the last transaction was rolled back because of its trial.
    fn gave_up(&self) -> bool {
        false
    }
}

/// The compaction of a file, with the reports on its table and on itself.
pub(super) struct CompactionOfFile<'r, 'a, F> {
    pub(super) guard: Guard<'a>,
    pub(super) file: &'r mut F,
    /// The relation whose main fork the file is, and the files of its table, including this one.
    pub(super) relation: Oid,
    pub(super) files: &'r Files,
    pub(super) report: &'r mut Common,
    pub(super) file_report: FileReport,
}

impl<F: File> CompactionOfFile<'_, '_, F> {
    /// Compacts the file, or predicts the result of doing so. `versions`: see [`Rounds`].
    pub(super) async fn run(mut self, versions: Option<u64>) -> (FileReport, Result<()>) {
        let done = self.compact(versions).await;
        (self.file_report, done)
    }

    async fn compact(&mut self, versions: Option<u64>) -> Result<()> {
        let tuning = self.guard.session.options.tuning;
        let pace = Pace::new(tuning.batch, tuning.batch_bytes);
        let mut rounds = Rounds::new(pace, versions);
        self.file_report.files = Some(self.files.clone());
        let done = if self.guard.session.options.dry_run {
            self.foresee().await
        } else {
            self.steps(&mut rounds).await
        };
        let CompactionOfFile { report, file_report, .. } = self;
        file_report.rounds += rounds.counts.rounds;
        file_report.rows_left = rounds.rows_left();
        file_report.rows_locked = rounds.rows_locked();
        file_report.rows_of_others = rounds.obstacles.of_others;
        file_report.held_back = rounds.obstacles.held_back;
        report.effort.retries += rounds.counts.retries;
        report.effort.longest_batch_ms =
            report.effort.longest_batch_ms.max(millis(rounds.counts.longest));
        file_report.ended = match done {
            Err(RetoastError::StopRequested) => FileEnd::Stopped,
            done => done?,
        };
        // some of what is behind the end could not be tried
        if file_report.ended == FileEnd::NoRoom
            && file_report.values_without_row + file_report.values_fixed > 0
        {
            file_report.ended = FileEnd::GainedTooLittle;
        }
        if file_report.ended == FileEnd::GainedTooLittle && file_report.is_held() {
            file_report.ended = FileEnd::Held;
        }
        Ok(())
    }

    /// Returns an error if the table has other files now.
    async fn is_still_there(&self) -> Result<()> {
        self.guard.still_has(self.files).await
    }

    /// Determines how full the file is, and records it.
    async fn measure_room(&mut self) -> Result<(Layout, Room)> {
        let CompactionOfFile { guard, file, report, file_report, .. } = self;
        let room = file.room().await?;
        let layout = room.layout();
        let page = guard.session.server.page_size.bytes() as u64;
        let bytes = |blocks: u32| u64::from(blocks) * page;
        if !file_report.is_examined() {
            file_report.before = bytes(layout.blocks);
            file_report.live = room.live();
            file_report.expected = bytes(layout.end);
        }
        file_report.after = bytes(layout.blocks);
        file_report.spare = bytes(layout.spare());
        file_report.spare_at_most = bytes(layout.spare_at_most());
        let empty = layout.blocks - layout.last.min(layout.blocks);
        file_report.untruncated =
            if empty >= truncated_for(layout.blocks) { bytes(empty) } else { 0 };
        report.effort.scans += 1;
        tracing::debug!(
            "{}: {} of {} blocks of the {} are needed, {} bytes live",
            guard.name(),
            layout.end,
            layout.blocks,
            if file_report.file == CompactedFile::Toast { "TOAST relation" } else { "heap" },
            room.live()
        );
        Ok((layout, room))
    }

    async fn foresee(&mut self) -> Result<FileEnd> {
        let (layout, room) = self.measure_room().await?;
        if !layout.pays() {
            self.file_report.expected = self.file_report.before;
            self.file_report.wal_expected = Some(Range::default());
            self.is_still_there().await?;
            return Ok(FileEnd::Planned);
        }
        let found = self.file.find(layout.end).await?;
        self.is_still_there().await?;
        self.record(&found);
        let (wal, gin_growth) = self.expected_of(&room, layout.end, &found.pieces);
        let nice = self.guard.session.throttle.options.limits.nice;
        let rows = self.file_report.rows_found;
        let [least, most] = writing_seconds(rows, wal.low, wal.high, nice);
        self.file_report.wal_expected = Some(wal);
        self.file_report.gin_growth_expected = Some(gin_growth);
        self.file_report.seconds_expected = Some(Range::rounded(least, most));
        Ok(FileEnd::Planned)
    }

    /// The WAL written by moving these pieces from behind the end of the file, and by how much GIN indexes grow at most.
    fn expected_of(&self, room: &Room, end: u32, pieces: &[Piece]) -> (Range, u64) {
        let page = self.guard.session.server.page_size;
        let rows = pieces.iter().map(|piece| piece.rows).sum();
        let tuples: u64 = pieces.iter().map(|piece| piece.tuples).sum();
        let stored: u64 = pieces.iter().map(|piece| piece.stored).sum();
        let relation = &self.guard.ready.relation;
        let is_toast = self.file_report.file == CompactedFile::Toast;
        let toast = if is_toast { relation.toast.as_ref() } else { None };
        let (taken, related) = match toast {
            Some(toast) => (
                stored + tuples * tuple_bytes(CHUNK_OVERHEAD as u32),
                relation.related_files_of(toast),
            ),
            None => (room.behind(end), relation.related_files()),
        };
        let moved = Moved {
            end,
            moved: rows,
            tuples,
            bytes: stored,
            taken,
            blocks: room.blocks_behind(end),
            front: room.front(end, u32::try_from(taken / tuples.max(1)).unwrap_or(u32::MAX)),
        };
        let live = (room.live() as f64 / taken.max(1) as f64 * tuples as f64) as u64;
        (wal(page, &moved, live, &related), gin_growth(&moved, live, &related))
    }

    async fn steps(&mut self, rounds: &mut Rounds) -> Result<FileEnd> {
        let guard = self.guard;
        let session = guard.session;
        let mut limit = u32::MAX;
        loop {
            if session.stopped() {
                rounds.note(Event::Stop, 0.0);
            }
            let event = match rounds.next_action() {
                Action::Finish(end) => return Ok(end),
                Action::Sleep(time, why) => {
                    tracing::debug!("{}: {} ms: {}", guard.name(), time.as_millis(), why.text());
                    guard.wait(time, why).await;
                    continue;
                }
                Action::Look => {
                    let (layout, _) = self.measure_room().await?;
                    self.is_still_there().await?;
                    limit = most_blocks(layout.blocks);
                    Event::Looked(layout)
                }
                Action::Find(end) => {
                    let found = self.file.find(end).await?;
                    self.is_still_there().await?;
                    self.record(&found);
                    rounds.obstacles.of_others = found.of_others;
                    let PiecesBehind { pieces, last, all, .. } = found;
                    Event::Found { pieces, last, all }
                }
                Action::Move(pieces) => {
                    session.pass(WorkKind::Batch, 0).await?;
                    if session.stopped() {
                        continue;
                    }
                    let moved = self.move_batch(&pieces, rounds.trial()).await?;
                    // what was moved but found no room in front makes the file longer
                    let now = match guard.blocks(self.relation).await {
                        Err(RetoastError::StopRequested) => 0,
                        now => now?,
                    };
                    self.is_still_there().await?;
                    if self.file.gave_up() || now > limit {
                        rounds.note(moved, 0.0);
                        Event::NoRoom
                    } else {
                        moved
                    }
                }
                Action::VacuumRows => {
                    guard.vacuum_now(Vacuum::Rows, self.report).await?;
                    self.vacuumed().await?
                }
                Action::Shrink => {
                    guard.vacuum_now(Vacuum::Shrink, self.report).await?;
                    rounds.obstacles.held_back = !session.throttle.vacuum_pays();
                    let vacuumed = self.vacuumed().await?;
                    if let Event::Vacuumed(blocks) = vacuumed {
                        limit = most_blocks(blocks);
                    }
                    vacuumed
                }
            };
            rounds.note(event, rand::rng().random());
            rounds.pace.others = session.throttle.others_are_active();
            self.report_progress(rounds);
        }
    }

    fn report_progress(&self, rounds: &Rounds) {
        let (read, blocks) = rounds.position();
        let advance = Advance {
            scan: rounds.counts.rounds,
            compacts: Some(self.file_report.file),
            read,
            blocks,
            rows: self.report.rows.stored,
            ..Advance::default()
        };
        self.guard.session.throttle.set_progress(advance.part());
        self.guard.session.listener.progress(&self.guard.name(), &advance);
    }

    async fn vacuumed(&mut self) -> Result<Event> {
        if let Some(sizes) = self.guard.sizes_now().await? {
            self.report.is_larger(sizes);
        }
        let blocks = self.guard.blocks(self.relation).await?;
        self.is_still_there().await?;
        Ok(Event::Vacuumed(blocks))
    }

    async fn move_batch(&mut self, pieces: &[Piece], trial: Option<u32>) -> Result<Event> {
        let CompactionOfFile { guard, file, report, file_report, .. } = self;
        let verify = guard.verifies(report.effort.batches, &file.computed());
        let started = Instant::now();
        Ok(match file.move_pieces(pieces, verify, trial).await? {
            BatchEnd::Stored { rows, verified, xid } => {
                let took = started.elapsed();
                let bytes = pieces.iter().map(|piece| piece.bytes).sum();
                guard.session.throttle.batch_done(took, bytes, bytes, xid);
                if rows > 0 {
                    guard.session.throttle.patience.reset_wait();
                }
                report.rows.stored += rows;
                report.rows.verified += verified;
                report.effort.batches += u64::from(rows > 0);
                file_report.rows_moved += rows;
                Event::Moved { rows, stayed: file.stayed(), took }
            }
            BatchEnd::Busy => Event::Busy,
            BatchEnd::Refused(reason) => {
                if let [piece] = pieces {
                    file_report.rows_refused += piece.rows;
                    let ItemPointer { block, item } = piece.ctid;
                    let mut row = reason.row(piece.ctid.to_string());
                    if item == 0 {
                        row.ctid.clear();
                        row.reason = format!("a row of block {block}: {}", row.reason);
                    }
                    guard.set_aside(piece.rows, row, report);
                }
                Event::Refused
            }
        })
    }

    /// Records what was found behind the end.
    fn record(&mut self, found: &PiecesBehind) {
        let CompactionOfFile { report, file_report, .. } = self;
        // a later round, with another end, may find more than the first one
        let behind: u64 = found.pieces.iter().map(|piece| piece.rows).sum();
        let more = (file_report.rows_moved + behind).saturating_sub(file_report.rows_found);
        if more > 0 {
            let stored: u64 = found.pieces.iter().map(|piece| piece.stored).sum();
            let bytes = (stored as f64 * more.min(behind) as f64 / behind.max(1) as f64) as u64;
            file_report.rows_found += more;
            file_report.bytes_found += bytes;
            report.rows.found += more;
            report.rows.bytes += bytes;
        }
        file_report.values_without_row = found.without_row;
        file_report.values_fixed = found.fixed;
        file_report.values_by_setting = file_report.values_by_setting.max(found.by_setting);
    }
}

/// The number of blocks up to which a file may grow while a round moves what is at its end.
fn most_blocks(blocks: u32) -> u32 {
    blocks.saturating_add((blocks / GROWTH).max(LEAST_GROWTH))
}
