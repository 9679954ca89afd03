//! The vacuums of a compaction: it is waited for that nobody sees any more what was moved.

use std::time::Duration;

use crate::retoast::pace::manners::Work;
use crate::retoast::result::TableReport;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::Sweep;

/// How long snapshots that see what was moved are waited for before a vacuum, and how often it is looked.
const SNAPSHOTS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Sweep<'_> {
    /// Vacuums by this statement, unless the table is locked just now.
    pub(in crate::retoast) async fn vacuum_now(
        &self,
        sql: &str,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        for number in 0..=SNAPSHOTS {
            self.keeper.pass(Work::Vacuum, &self.writer, self.watch).await?;
            if self.stopped() {
                return Ok(());
            }
            if self.keeper.vacuum_pays() {
                break;
            }
            if number == 0 {
                let name = self.name();
                self.watch.note(&format!(
                    "{name}: waiting: other transactions still see old row versions"
                ));
            }
            self.sleep(LOOK_EVERY).await;
        }
        report.peak = report.peak.max(self.keeper.sizes());
        if self.vacuum_by(0, sql).await? {
            self.keeper.vacuumed();
            report.vacuums += 1;
        }
        Ok(())
    }
}
