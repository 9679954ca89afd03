//! The table's settings while it is swept: set, watched, set right when somebody else changes them, and put
//! back. What they were set to before is remembered where a kill does not erase it.

use tokio_util::sync::CancellationToken;

use super::guard::{Guard, Known};
use crate::judge::toaster::Changes;
use crate::retoast::check::definition::Definition;
use crate::retoast::error::RetoastError;
use crate::retoast::memory::settings;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::result::{Converted, Outcome};
use crate::retoast::sql;
use crate::server::LiveError;

/// How often a sweep sets right what somebody else has changed.
const MOST_SET_RIGHT: u32 = 5;

impl Guard<'_> {
    async fn definition(&self) -> Result<Option<Definition>, RetoastError> {
        self.definition_by(self.session.writer()).await
    }

    /// The definition as it is, whatever an UPDATE would run.
    async fn definition_now(&self) -> Result<Option<Definition>, RetoastError> {
        let (oid, pluggable) = (self.ready.relation.oid, self.ready.pluggable);
        Ok(Definition::read(self.session.writer(), oid, pluggable).await?)
    }

    /// Looks at the table again: it may have been changed since it was looked at first, for another table
    /// may have been swept meanwhile.
    pub(crate) async fn begin_watching(&self) -> Result<(), RetoastError> {
        let Some(found) = self.definition().await? else {
            return Err(RetoastError::dropped());
        };
        // an earlier part of the same work, whose session has ended, knows what it has set itself
        let then = self.known.get().now.clone();
        if let Some(then) = then {
            return match then.differences(Some(&found)) {
                Some(changed) => Err(RetoastError::altered(changed)),
                None => {
                    self.known.get().now = Some(found);
                    Ok(())
                }
            };
        }
        if let Some(changed) = found.changed_since(&self.ready.relation.desc) {
            return Err(RetoastError::altered(changed));
        }
        let (mut before, mut more_set) = (found.settings().clone(), false);
        for column in self.marked().await? {
            let Some(was) = column.before else { continue };
            more_set |= was != column.now;
            before = before.with_column(&column.name, was.storage, was.compression);
        }
        let known = Known { before: Some(before), now: Some(found), altered: false, more_set };
        *self.known.get() = known;
        Ok(())
    }

    /// Sets what is to be set before rows are re-toasted, and remembers what the table is set to then.
    pub(crate) async fn set_choice(&self, changes: &Changes) -> Result<(), RetoastError> {
        let table = self.ready.relation.quoted();
        let Some(alter) = sql::alter(&table, changes) else { return Ok(()) };
        if !self.alter(&alter).await? {
            return Ok(());
        }
        self.known.get().altered = true;
        let now = self.definition().await?;
        let mut known = self.known.get();
        let expected = known.now.as_ref().map(|found| found.with(changes));
        if let Some(found) = expected.and_then(|then| then.differences(now.as_ref())) {
            return Err(RetoastError::altered(found));
        }
        known.now = now;
        Ok(())
    }

    /// More is set than the run has found, and than it needs for its work.
    pub(crate) fn more_is_set(&self) {
        self.known.get().more_set = true;
    }

    /// Whether the table is still what the sweep needs it to be.
    pub(crate) async fn is_unchanged(&self) -> Result<bool, RetoastError> {
        let now = self.definition_now().await?;
        let known = self.known.get();
        Ok(known.now.as_ref().is_some_and(|then| then.differences(now.as_ref()).is_none()))
    }

    /// Sets right what somebody else has changed, if that was asked for and can be done; else says what it
    /// is. What was changed back needs nothing. `times`: how often that was done before.
    pub(crate) async fn set_right(&self, times: u32) -> Result<(), RetoastError> {
        // the transaction in which that was found may still be open
        let _ = self.session.rollback(0).await;
        let now = self.definition().await?;
        let then = self.known.get().now.clone();
        let (Some(then), Some(now)) = (then, now) else {
            return Err(RetoastError::dropped());
        };
        let Some(found) = then.differences(Some(&now)) else {
            if times >= MOST_SET_RIGHT {
                let text = "settings were changed, and changed back, by another session";
                return Err(RetoastError::altered(text));
            }
            self.known.get().now = Some(now);
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
            // the next batch finds that out
            Some(_) => Ok(()),
            None => {
                self.known.get().now = again;
                Ok(())
            }
        }
    }

    /// Puts the settings back as the run found them where they are not to stay, and reports what was done and
    /// what undoes it. `stored`: rows re-toasted; `is_unfit`: a row does not fit a page as chosen.
    pub(crate) async fn put_back(
        &self,
        outcome: Outcome,
        stored: u64,
        is_unfit: bool,
        report: &mut Converted,
    ) {
        let Known { before, altered, more_set, .. } = self.known.get().clone();
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
            // a stop was asked for perhaps, but not of this
            let stop = CancellationToken::new();
            let tries = LockTries { stop: &stop, ..self.session.tries(&name) };
            match tries.alter(self.session.writer(), &undo).await {
                Ok((Tried::Done(()), _)) => {
                    report.undone = true;
                    // a new session begins as the first one did
                    *self.known.get() = Known::default();
                }
                Ok(_) => self.note("no lock to restore the settings"),
                Err(error) => {
                    self.note(&format!("could not restore the settings: {error}"));
                }
            }
        }
        report.undo = Some(undo);
    }

    /// The chosen columns, with what they were set to before an earlier run that was killed.
    async fn marked(&self) -> Result<Vec<settings::Column>, LiveError> {
        settings::ask(self.session.writer(), self.ready).await
    }

    /// Says what a killed run has left.
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

    /// Remembers what the columns are set to, before that is changed.
    pub(crate) async fn mark(&self) -> Result<(), RetoastError> {
        let columns = self.marked().await?;
        match settings::mark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }

    /// Forgets it, once the columns are set to what was chosen.
    pub(crate) async fn unmark(&self) -> Result<(), RetoastError> {
        let columns = self.marked().await?;
        match settings::unmark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }
}
