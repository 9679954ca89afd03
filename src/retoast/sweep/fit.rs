//! Whether the choice can be stored at all: storage `plain` takes what fits a page, and refuses every later
//! change of a row that does not.

use super::error::RunError;
use super::machine::CHUNK;
use super::scan_source::ScanSource;
use super::scanner::Scanner;
use super::table::Sweep;
use super::unfit::Unfit;
use crate::disk::desc::Storage;
use crate::disk::layout::TUPLE_HEADER_SIZE;
use crate::retoast::pace::manners::Work;
use crate::retoast::sql;
use crate::server::snapshot;

impl Sweep<'_> {
    /// Looks through the whole table for rows that the choice cannot store, before anything is changed.
    pub(crate) async fn look_for_unfit(&self, scanner: &mut Scanner<'_>) -> Result<(), RunError> {
        if self.ready.toaster.storage() != Storage::Plain {
            return Ok(());
        }
        let unfit = match self.source {
            ScanSource::Pages(_) => self.unfit_by_pages(scanner).await?,
            ScanSource::Functions => self.unfit_by_functions().await?,
        };
        match unfit.first {
            Some(first) => Err(RunError::Unfit { rows: unfit.rows, first }),
            None => Ok(()),
        }
    }

    async fn unfit_by_pages(&self, scanner: &mut Scanner<'_>) -> Result<Unfit, RunError> {
        scanner.unfit = Some(Unfit::default());
        let page = self.server.page_size.bytes() as u64;
        let blocks = self.sizes_now().await?.unwrap_or_default().heap / page;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut from = 0;
        while from < blocks && !self.stopped() {
            self.keeper.pass(Work::Scan, &self.writer, self.watch).await?;
            let end = from.saturating_add(CHUNK).min(blocks);
            self.scan(scanner, from..end).await?;
            from = end;
        }
        Ok(scanner.unfit.take().unwrap_or_default())
    }

    /// Counts rows whose chosen values alone are too long.
    async fn unfit_by_functions(&self) -> Result<Unfit, RunError> {
        let limit = self.server.page_size.toast_tuple_target_main() - TUPLE_HEADER_SIZE;
        let sql = sql::unfit(&self.ready.relation.quoted(), &self.ready.targets, limit);
        self.begin_reading().await?;
        let client = self.reader.client();
        let asked = client.query_typed(&sql, &[]).await;
        // of two errors the first says what happened
        let ended = snapshot::abandon(client).await;
        let rows = asked?;
        ended?;
        let Some(row) = rows.first() else { return Ok(Unfit::default()) };
        let count: i64 = row.try_get(0)?;
        Ok(Unfit { rows: u64::try_from(count).unwrap_or(0), first: row.try_get(1)? })
    }
}
