//! The vacuums of a compaction: it is waited for that nobody sees any more what was moved.

use std::time::Duration;

use crate::retoast::pace::manners::Work;
use crate::retoast::result::TableReport;
use crate::retoast::sql::compact::Vacuum;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::Sweep;
use crate::retoast::sweep::vacuum::{AGAIN, PAUSE, Vacuumed};

/// How long snapshots that see what was moved are waited for before a vacuum, and how often it is looked.
const SNAPSHOTS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the server's statistics are asked for what a vacuum has left: before PostgreSQL 15 they come late.
const ASKED: u32 = 12;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// So large a part of what was moved is most of it; of all bytes, if nothing was.
const MOST: f64 = 0.25;
const MOST_OF_ALL: f64 = 0.05;

/// What is waited for.
const STILL_SEEN: &str = "other transactions still see old row versions";

impl Sweep<'_> {
    /// Vacuums, unless the table is locked just now; and again where that has left most, as a sweep's vacuum is done
    /// again.
    pub(in crate::retoast) async fn vacuum_now(
        &self,
        vacuum: Vacuum,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        let sql = vacuum.of(&self.ready.relation.quoted());
        let mut number = 0;
        loop {
            let Some(pays) = self.wait_for_snapshots().await? else { return Ok(()) };
            report.peak = report.peak.max(self.keeper.sizes());
            let began = self.server_time(0).await?;
            match self.vacuum_by(0, &sql).await? {
                Vacuumed::Done => report.vacuums += 1,
                Vacuumed::Not => return Ok(()),
                // what is done already stays done
                Vacuumed::ForSlot => continue,
            }
            // who holds it back is known and was waited for
            if !pays || !self.has_left_most(&began, vacuum).await? {
                break;
            }
            tracing::debug!("{}: the vacuum has left most of what is dead", self.name());
            if number == AGAIN {
                return Ok(());
            }
            self.wait(PAUSE * 2u32.pow(number), STILL_SEEN).await;
            number += 1;
        }
        self.keeper.vacuumed();
        Ok(())
    }

    /// Whether a vacuum pays now; `None` once a stop is asked for.
    async fn wait_for_snapshots(&self) -> Result<Option<bool>, RunError> {
        for number in 0..=SNAPSHOTS {
            self.keeper.pass(Work::Vacuum, &self.writer, self.watch).await?;
            if self.stopped() {
                return Ok(None);
            }
            if self.keeper.vacuum_pays() {
                return Ok(Some(true));
            }
            if number == 0 {
                let name = self.name();
                self.watch.note(&format!("{name}: waiting: {STILL_SEEN}"));
            }
            self.wait(LOOK_EVERY, STILL_SEEN).await;
        }
        Ok(Some(false))
    }

    /// Whether a vacuum that began then has left most of what it was for, by the server's statistics; where they do not
    /// tell, it has not.
    async fn has_left_most(&self, began: &str, vacuum: Vacuum) -> Result<bool, RunError> {
        let of_toast = self.ready.relation.toast.is_some() && vacuum != Vacuum::Rows;
        let moved = self.keeper.still_dead() as f64;
        for _ in 0..ASKED {
            let Some(left) = self.left_dead(0, began).await? else { return Ok(false) };
            if left.relations > i64::from(of_toast) {
                let most = if moved > 0.0 { moved * MOST } else { left.all * MOST_OF_ALL };
                return Ok(left.dead > most);
            }
            self.sleep(ASK_EVERY).await;
        }
        Ok(false)
    }
}
