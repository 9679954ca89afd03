//! The table's settings during a sweep: changed, watched, restored if another session changes them, and reset at the
//! end. Their original values are recorded where a kill does not erase them.

use tokio_util::sync::CancellationToken;

use super::guard::{DefinitionState, Guard};
use crate::retoast::error::RetoastError;
use crate::retoast::memory::settings;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::preflight::definition::Definition;
use crate::retoast::result::{Converted, Outcome};
use crate::server::LiveError;
use toast_format::judge::toaster::Changes;

/// How often a sweep restores settings that another session has changed.
const MOST_SET_RIGHT: u32 = 5;

impl Guard<'_> {
    async fn definition(&self) -> Result<Option<Definition>, RetoastError> {
        self.definition_by(self.session.writer()).await
    }

    /// The current definition; the code that an UPDATE would run is not approved.
    async fn definition_now(&self) -> Result<Option<Definition>, RetoastError> {
        let oid = self.ready.relation.oid;
        let pluggable = self.ready.pluggable;
        Ok(Definition::read(self.session.writer(), oid, pluggable).await?)
    }

    /// Reads the table's definition again: it may have changed since the run first read it, because other tables may
    /// have been swept in between.
    pub(crate) async fn begin_watching(&self) -> Result<(), RetoastError> {
        let Some(found) = self.definition().await? else {
            return Err(RetoastError::dropped());
        };
        // An earlier session of the same task has recorded what it had set.
        let then = self.known.lock().now.clone();
        if let Some(then) = then {
            return match then.differences(Some(&found)) {
                Some(changed) => Err(RetoastError::altered(changed)),
                None => {
                    self.known.lock().now = Some(found);
                    Ok(())
                }
            };
        }
        if let Some(changed) = found.changed_since(&self.ready.relation.desc) {
            return Err(RetoastError::altered(changed));
        }
        let mut before = found.settings().clone();
        let mut more_set = false;
        for column in self.marked().await? {
            let Some(was) = column.before else { continue };
            more_set |= was != column.now;
            before = before.with_column(&column.name, was.storage, was.compression);
        }
        let known =
            DefinitionState { before: Some(before), now: Some(found), altered: false, more_set };
        *self.known.lock() = known;
        Ok(())
    }

    /// Changes the settings that must be changed before rows are re-toasted, and records the resulting definition.
    pub(crate) async fn set_choice(&self, changes: &Changes) -> Result<(), RetoastError> {
        let table = self.ready.relation.quoted();
        let Some(alter) = changes.statement(&table) else { return Ok(()) };
        if !self.alter(&alter).await? {
            return Ok(());
        }
        self.known.lock().altered = true;
        let now = self.definition().await?;
        let mut known = self.known.lock();
        let expected = known.now.as_ref().map(|found| found.with(changes));
        if let Some(found) = expected.and_then(|then| then.differences(now.as_ref())) {
            return Err(RetoastError::altered(found));
        }
        known.now = now;
        Ok(())
    }

    /// Records that settings were changed beyond what the work needs.
    pub(crate) fn more_is_set(&self) {
        self.known.lock().more_set = true;
    }

    /// Whether the table's definition is still what the sweep needs.
    pub(crate) async fn is_unchanged(&self) -> Result<bool, RetoastError> {
        let now = self.definition_now().await?;
        let known = self.known.lock();
        Ok(known.now.as_ref().is_some_and(|then| then.differences(now.as_ref()).is_none()))
    }

    /// Restores the settings that another session has changed, if this was requested and is possible; otherwise returns
    /// an error that names them. If they were changed back, nothing is done. `times`: how often this was done before.
    pub(crate) async fn set_right(&self, times: u32) -> Result<(), RetoastError> {
        // The transaction that found the change may still be open.
        let _ = self.session.rollback(0).await;
        let now = self.definition().await?;
        let then = self.known.lock().now.clone();
        let (Some(then), Some(now)) = (then, now) else {
            return Err(RetoastError::dropped());
        };
        let Some(found) = then.differences(Some(&now)) else {
            if times >= MOST_SET_RIGHT {
                let text = "settings were changed, and changed back, by another session";
                return Err(RetoastError::altered(text));
            }
            self.known.lock().now = Some(now);
            return Ok(());
        };
        if !self.session.options.enforce || !found.are_settings() || times >= MOST_SET_RIGHT {
            return Err(RetoastError::altered(found));
        }
        let table = self.ready.relation.quoted();
        let Some(alter) = then.settings().restore(&table, now.settings()) else { return Ok(()) };
        self.note(&format!("{found}: restored: {alter}"));
        self.alter(&alter).await?;
        let again = self.definition().await?;
        match then.differences(again.as_ref()) {
            // The next batch will notice that.
            Some(_) => Ok(()),
            None => {
                self.known.lock().now = again;
                Ok(())
            }
        }
    }

    /// Restores the settings found at the beginning unless they should stay, and reports what was done and what would
    /// undo it. `stored`: rows re-toasted; `is_unfit`: a row does not fit on a page with the chosen settings.
    pub(crate) async fn put_back(
        &self,
        outcome: Outcome,
        stored: u64,
        is_unfit: bool,
        report: &mut Converted,
    ) {
        let DefinitionState { before, altered, more_set, .. } = self.known.lock().clone();
        report.altered = altered;
        let (true, Some(before)) = (altered || more_set, before) else { return };
        let Ok(Some(now)) = self.definition_now().await else { return };
        let table = self.ready.relation.quoted();
        let Some(mut undo) = before.restore(&table, now.settings()) else { return };
        let Ok(marked) = self.marked().await else { return };
        if let Some(unmark) = settings::unmark(&table, &marked) {
            undo = format!("{undo}; {unmark}");
        }
        let name = self.ready.relation.display_name();
        let asked = self.session.options.restores_settings && outcome != Outcome::Complete;
        let nothing_done = outcome == Outcome::Failed && stored == 0;
        if asked || altered && (nothing_done || is_unfit) {
            // A stop that was requested must not prevent this.
            let stop = CancellationToken::new();
            let tries = LockTries { stop: &stop, ..self.session.tries(&name) };
            match tries.alter(self.session.writer(), &undo).await {
                Ok((Tried::Done(()), _)) => {
                    report.undone = true;
                    // The next session must begin as the first one did.
                    *self.known.lock() = DefinitionState::default();
                }
                Ok(_) => self.note("no lock to restore the settings"),
                Err(error) => {
                    self.note(&format!("could not restore the settings: {error}"));
                }
            }
        }
        report.undo = Some(undo);
    }

    /// The chosen columns, with their settings before an earlier run that was killed.
    async fn marked(&self) -> Result<Vec<settings::Column>, LiveError> {
        if let Some(known) = self.ahead {
            return Ok(known.columns.clone());
        }
        let mut columns = settings::ask(self.session.writer(), &[self.ready]).await?;
        Ok(columns.remove(&self.ready.relation.oid).unwrap_or_default())
    }

    /// Reports the settings that a killed run has left.
    pub(crate) async fn say_marks(&self, notes: &mut Vec<String>) -> Result<(), RetoastError> {
        for column in self.marked().await? {
            let Some(before) = column.before else { continue };
            let text = format!(
                "an earlier run that was killed has set column \"{}\" to {}; before that run, it was set to {}",
                column.name,
                settings::text(column.now),
                settings::text(before)
            );
            self.note(&text);
            notes.push(text);
        }
        Ok(())
    }

    /// Records the columns' settings before they are changed.
    pub(crate) async fn mark(&self) -> Result<(), RetoastError> {
        let columns = self.marked().await?;
        match settings::mark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }

    /// Removes that record once the columns have the chosen settings.
    pub(crate) async fn unmark(&self) -> Result<(), RetoastError> {
        let columns = self.marked().await?;
        match settings::unmark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }
}
