//! The vacuums of a compaction: it is waited for that nobody sees any more what was moved.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::retoast::pace::manners::Work;
use crate::retoast::result::TableReport;
use crate::retoast::sql::compact::{NOW, Vacuum, left_dead};
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::Sweep;

/// How long snapshots that see what was moved are waited for before a vacuum, and how often it is looked.
const SNAPSHOTS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often it is vacuumed again if most is left after all, and how long before the first time.
const AGAIN: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);
/// How often the server's statistics are asked for what a vacuum has left: before PostgreSQL 15 they come late.
const ASKED: u32 = 12;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// So large a part of what was moved is most of it; of all bytes, if nothing was.
const MOST: f64 = 0.25;
const MOST_OF_ALL: f64 = 0.05;

impl Sweep<'_> {
    /// Vacuums, unless the table is locked just now.
    ///
    /// A vacuum keeps what a snapshot may see that was taken before it began. While a transaction that writes is open
    /// in any database of the server, each snapshot is as old as that, so that a query of a millisecond is enough for a
    /// vacuum to leave everything: then it is done again.
    pub(in crate::retoast) async fn vacuum_now(
        &self,
        vacuum: Vacuum,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        let sql = vacuum.of(&self.ready.relation.quoted());
        for number in 0..=AGAIN {
            let Some(pays) = self.wait_for_snapshots().await? else { return Ok(()) };
            report.peak = report.peak.max(self.keeper.sizes());
            let began = self.server_time().await?;
            if !self.vacuum_by(0, &sql).await? {
                return Ok(());
            }
            report.vacuums += 1;
            // who holds it back is known and was waited for
            if !pays || !self.has_left_most(&began, vacuum).await? {
                break;
            }
            tracing::debug!("{}: the vacuum has left most of what is dead", self.name());
            if number == AGAIN {
                return Ok(());
            }
            self.sleep(PAUSE * 2u32.pow(number)).await;
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
                self.watch.note(&format!(
                    "{name}: waiting: other transactions still see old row versions"
                ));
            }
            self.sleep(LOOK_EVERY).await;
        }
        Ok(Some(false))
    }

    async fn server_time(&self) -> Result<String, RunError> {
        let rows = self.connection(0).client().query_typed(NOW, &[]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    /// Whether a vacuum that began then has left most of what it was for, by the server's statistics; where they do not
    /// tell, it has not.
    async fn has_left_most(&self, began: &str, vacuum: Vacuum) -> Result<bool, RunError> {
        let relation = &self.ready.relation;
        let of_toast = relation.toast.is_some() && vacuum != Vacuum::Rows;
        let moved = self.keeper.still_dead() as f64;
        let sql = left_dead();
        let parameters = [(&relation.oid.0 as _, Type::OID), (&began as _, Type::TEXT)];
        for _ in 0..ASKED {
            let rows = self.connection(0).client().query_typed(&sql, &parameters).await?;
            let Some(row) = rows.first() else { return Ok(false) };
            let (relations, dead, all): (i64, f64, f64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if relations > i64::from(of_toast) {
                let most = if moved > 0.0 { moved * MOST } else { all * MOST_OF_ALL };
                return Ok(dead > most);
            }
            self.sleep(ASK_EVERY).await;
        }
        Ok(false)
    }
}
