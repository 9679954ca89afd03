//! Whether the choice can be stored at all: storage `plain` takes what fits a page, and refuses every later
//! change of a row that does not.

use super::machine::CHUNK;
use super::scan_source::ScanSource;
use super::scanner::{Scanner, Unfit};
use crate::disk::desc::Storage;
use crate::disk::layout::TUPLE_HEADER_SIZE;
use crate::retoast::pace::manners::Work;
use crate::retoast::sql;
use crate::retoast::task::error::RunError;
use crate::retoast::task::guard::Guard;

impl Scanner<'_> {
    /// Looks through the whole table for rows that the choice cannot store, before anything is changed.
    pub(crate) async fn look_for_unfit(&mut self, guard: &Guard<'_>) -> Result<(), RunError> {
        if self.ready.toaster.storage() != Storage::Plain {
            return Ok(());
        }
        let unfit = match self.source {
            ScanSource::Pages(_) => self.unfit_by_pages(guard).await?,
            ScanSource::Functions => self.unfit_by_functions(guard).await?,
        };
        match unfit.first {
            Some(first) => Err(RunError::Unfit { rows: unfit.rows, first }),
            None => Ok(()),
        }
    }

    async fn unfit_by_pages(&mut self, guard: &Guard<'_>) -> Result<Unfit, RunError> {
        self.unfit = Some(Unfit::default());
        let page = self.server.page_size.bytes() as u64;
        let blocks = guard.sizes_now().await?.unwrap_or_default().heap / page;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut from = 0;
        while from < blocks && !guard.session.stopped() {
            guard.session.pass(Work::Scan, 0).await?;
            let end = from.saturating_add(CHUNK).min(blocks);
            self.read(guard, from..end).await?;
            from = end;
        }
        Ok(self.unfit.take().unwrap_or_default())
    }

    /// Counts rows whose chosen values alone are too long.
    async fn unfit_by_functions(&self, guard: &Guard<'_>) -> Result<Unfit, RunError> {
        let limit = self.server.page_size.toast_tuple_target_main() - TUPLE_HEADER_SIZE;
        let sql = sql::unfit(&self.ready.relation.quoted(), &self.ready.targets, limit);
        let client = &self.connection;
        let ask = async |_| Ok(client.client().query_typed(&sql, &[]).await?);
        let rows = guard.in_reading(ask).await?;
        let Some(row) = rows.first() else { return Ok(Unfit::default()) };
        let count: i64 = row.try_get(0)?;
        Ok(Unfit { rows: u64::try_from(count).unwrap_or(0), first: row.try_get(1)? })
    }
}
