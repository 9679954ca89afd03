//! Which rows go together.

use super::Machine;
use super::terms::Row;
use super::work::Batch;
use crate::retoast::pace::speed::BESIDE_OTHERS;

/// Rows that a batch has beside others all the same, if it has them at all: with fewer, what every batch
/// costs however small it is would be most of what the others bear.
const FEWEST_BESIDE_OTHERS: f64 = 16.0;
/// Rows of the first batch; later ones follow the time that batches take.
const FIRST_BATCH: f64 = 50.0;
/// How often a row is re-toasted by the sweep's own transactions. One that the judge still calls stored
/// otherwise after that is counted and left.
pub(super) const MOST_TRIES: u8 = 4;
/// Scans without any progress after which rows are waited for, not skipped while others hold them.
const IDLE_BEFORE_INSISTING: u32 = 2;

impl Machine {
    /// How many of these rows one batch takes now, by time and by bytes; at least one.
    pub(super) fn share(&self, rows: &[Row]) -> usize {
        let wanted = self.tuning.batch.as_secs_f64() * 1000.0;
        let mut most = self.speed.map_or(FIRST_BATCH, |speed| speed * wanted);
        if self.others {
            most = (most * BESIDE_OTHERS).max(most.min(FEWEST_BESIDE_OTHERS));
        }
        let most = (most as usize).clamp(1, 10_000).min(rows.len());
        let mut bytes = 0u64;
        let fits = |row: &&Row| {
            bytes = bytes.saturating_add(row.bytes);
            bytes <= self.tuning.batch_bytes
        };
        rows.iter().take(most).take_while(fits).count().max(1).min(rows.len())
    }

    /// Makes batches of the rows of a chunk: windows, and passes over each.
    pub(super) fn plan(&mut self, mut rows: Vec<Row>) {
        rows.retain(|row| {
            let refused = self.refused.contains(&(row.ctid, row.xmin));
            let tries = self.own.get(&row.xmin).copied().unwrap_or(0);
            if row.by_copy && tries > 0 {
                return false;
            }
            if row.spared && tries > 0 {
                self.scan.left.spared += 1;
                return false;
            }
            let disagrees = tries >= MOST_TRIES;
            self.scan.left.refused += u64::from(refused);
            self.scan.left.disagreeing += u64::from(disagrees && !refused);
            !refused && !disagrees
        });
        rows.sort_unstable();
        self.scan.left.found += rows.len() as u64;
        // the snapshot is given up, whatever becomes of the rows
        self.scan.one_snapshot &= rows.is_empty();
        if self.insists() {
            self.insist(&rows);
            return;
        }
        let passes = self.tuning.passes.max(1) as usize;
        // the pages of all windows under way are left half empty, and those of indexes and TOAST too
        let window = (self.tuning.window / self.work.len() as u32).max(1);
        let windows: Vec<&[Row]> =
            rows.chunk_by(|a, b| a.ctid.block.0 / window == b.ctid.block.0 / window).collect();
        self.batches.last.clear();
        // Windows take turns, pass by pass: what one transaction leaves behind can be pruned only once
        // those that were under way at its end have ended, and by its window's next turn most have.
        let turns = if self.work.len() > 1 { self.work.len() + 1 } else { 1 };
        for some in windows.chunks(turns) {
            for pass in 0..passes {
                for rows in some {
                    let rows: Vec<Row> = rows.iter().copied().skip(pass).step_by(passes).collect();
                    if let Some(row) = rows.first() {
                        self.batches.queue.push_back(Batch::new(row.ctid.block.0 / window, rows));
                    }
                }
            }
        }
    }

    /// Whether rows that differ are waited for from now on.
    pub fn insists(&self) -> bool {
        self.idle_scans >= IDLE_BEFORE_INSISTING
    }

    /// Plans one batch for each block, which waits for rows that others hold.
    fn insist(&mut self, rows: &[Row]) {
        self.batches.last.clear();
        for rows in rows.chunk_by(|a, b| a.ctid.block == b.ctid.block) {
            if let Some(row) = rows.first() {
                let batch = Batch::new(row.ctid.block.0, rows.to_vec());
                self.batches.queue.push_back(Batch { insists: true, ..batch });
            }
        }
    }
}
