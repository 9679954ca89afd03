//! Remembers, where a kill does not erase it, what columns were set to that are set otherwise only for the
//! time of the work.

use super::error::RunError;
use super::table::Sweep;
use crate::retoast::memory::settings;
use crate::retoast::result::TableReport;
use crate::server::LiveError;

impl Sweep<'_> {
    /// The chosen columns, with what they were set to before an earlier run that was killed.
    pub(super) async fn marked(&self) -> Result<Vec<settings::Column>, LiveError> {
        settings::ask(self.writer.client(), self.ready).await
    }

    /// Says what a killed run has left.
    pub(super) async fn say_marks(&self, report: &mut TableReport) -> Result<(), RunError> {
        for column in self.marked().await? {
            let Some(before) = column.before else { continue };
            let text = format!(
                "an earlier run that was killed has set column \"{}\" to {}: before it was {}",
                column.name,
                column.now.text(),
                before.text()
            );
            self.watch.note(&format!("{}: {text}", self.name()));
            report.notes.push(text);
        }
        Ok(())
    }

    /// Remembers what the columns are set to, before that is changed.
    pub(super) async fn mark(&self) -> Result<(), RunError> {
        let columns = self.marked().await?;
        match settings::mark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }

    /// Forgets it, once the columns are set to what was chosen.
    pub(super) async fn unmark(&self) -> Result<(), RunError> {
        let columns = self.marked().await?;
        match settings::unmark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }
}
