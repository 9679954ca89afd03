//! The table's settings during a sweep: changed, watched, restored if another session changes them, and reset at the
//! end. Their original values are recorded where a kill does not erase them.

use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use super::guard::{DefinitionState, Guard, SentChange};
use crate::command;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::memory::settings;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::preflight::definition::{Definition, Differences};
use crate::retoast::result::{Common, Converted, Outcome};
use crate::server::LiveResult;
use toast_format::disk::Attribute;
use toast_format::judge::toaster::{Changes, TargetChange};
use toast_format::model::sql::{quote_identifier, quote_qualified, set_compression};

/// How often a sweep restores settings that another session has changed.
const MOST_SET_RIGHT: u32 = 5;

impl Guard<'_> {
    async fn definition(&self) -> Result<Option<Definition>> {
        self.definition_by(self.session.writer()).await
    }

    /// The current definition; the code that an UPDATE would run is not approved.
    async fn definition_now(&self) -> Result<Option<Definition>> {
        let oid = self.ready.relation.oid;
        let pluggable = self.ready.pluggable;
        Ok(Definition::read(self.session.writer(), oid, pluggable).await?)
    }

    /// Reads the table's definition again: it may have changed since the run first read it, because other tables may
    /// have been swept in between.
    pub(crate) async fn begin_watching(&self) -> Result<()> {
        let Some(found) = self.definition().await? else {
            return Err(RetoastError::dropped());
        };
        // An earlier session of the same task has recorded what it had set.
        if self.is_watched() {
            let mut known = self.known.lock();
            known.settle(found.settings());
            let changed = match (&known.ours, &known.now) {
                (Some(ours), _) => ours.differences(Some(&found)),
                (None, then) => then.as_ref().and_then(|then| then.differences(Some(&found))),
            };
            if let Some(changed) = changed {
                return Err(changed.into_error());
            }
            (known.now, known.ours) = (Some(found), None);
            return Ok(());
        }
        if let Some(changed) = found.changed_since(&self.ready.relation.desc) {
            return Err(changed.into_error());
        }
        let mut before = found.settings().clone();
        let mut more_set = false;
        for column in self.marked().await? {
            let Some(was) = column.before else { continue };
            more_set |= was != column.now;
            before = before.with_column(&column.name, was.storage, was.compression);
        }
        *self.known.lock() = DefinitionState {
            before: Some(before),
            now: Some(found),
            more_set,
            ..DefinitionState::default()
        };
        Ok(())
    }

    /// Whether a session of the task has recorded the definition.
    pub(crate) fn is_watched(&self) -> bool {
        self.known.lock().now.is_some()
    }

    /// The statement that restores the settings found at the beginning once these changes are made.
    pub(crate) fn undo_of(&self, changes: &Changes) -> Option<String> {
        let known = self.known.lock();
        if known.sent.is_some() {
            return None;
        }
        let after = known.now.as_ref()?.with(changes);
        known.before.as_ref()?.restore(&self.ready.relation.quoted(), &after)
    }

    /// Reports how a conversion after these changes, which a dry run does not make, could be undone. The command sets the
    /// storage, but no method: that takes a statement.
    pub(crate) fn plan_undo(&self, changes: &Changes, common: &Common, report: &mut Converted) {
        let relation = &self.ready.relation;
        let attributes = relation.desc.attributes.iter().filter(|column| {
            changes.sets_storage(&column.name) || changes.sets_compression(&column.name)
        });
        let changed: Vec<&Attribute> = attributes.collect();
        // the command that converts rows back sets this storage
        let storage = changed.first().map(|column| column.storage).filter(|storage| {
            common.rows.found > 0 && changed.iter().all(|column| column.storage == *storage)
        });
        let mut actions = Vec::new();
        for column in &changed {
            if changes.sets_storage(&column.name) && storage.is_none() {
                let name = quote_identifier(&column.name);
                actions.push(format!("ALTER COLUMN {name} SET STORAGE {}", column.storage.name()));
            }
            if changes.sets_compression(&column.name) {
                actions.push(set_compression(&column.name, column.compression));
            }
        }
        if changes.target.is_some() {
            let before = relation.tuple_target(self.session.server.page_size);
            let before = before.map_or(TargetChange::Reset, TargetChange::Set);
            actions.push(before.action());
        }
        if !actions.is_empty() {
            let table = quote_qualified(&relation.schema, &relation.name);
            report.undo = Some(format!("ALTER TABLE ONLY {table} {}", actions.join(", ")));
        }
        if let Some(storage) = storage {
            let columns: Vec<&str> = changed.iter().map(|column| column.name.as_str()).collect();
            report.undo_command =
                command::to_storage(&relation.schema, &relation.name, &columns, storage);
        }
    }

    /// Changes the settings that must be changed before rows are re-toasted, and records the resulting definition.
    pub(crate) async fn set_choice(&self, changes: &Changes) -> Result<()> {
        if !self.change(changes, false).await? {
            return Ok(());
        }
        let now = self.definition().await?;
        let mut known = self.known.lock();
        let ours = known.ours.as_ref();
        if let Some(found) = ours.and_then(|ours| ours.differences(now.as_ref())) {
            return Err(found.into_error());
        }
        (known.now, known.ours) = (now, None);
        Ok(())
    }

    /// Changes settings. Returns false if there is nothing to change, or a stop was requested before it was done.
    pub(crate) async fn change(&self, changes: &Changes, is_last: bool) -> Result<bool> {
        let table = self.ready.relation.quoted();
        let Some(alter) = changes.statement(&table) else { return Ok(false) };
        {
            let mut known = self.known.lock();
            if known.sent.is_some() {
                // the session ended before the answer came; the next one finds out
                return Ok(false);
            }
            let settings = known.now.as_ref().map(|found| found.with(changes));
            known.sent = settings.map(|settings| SentChange { settings, is_last });
        }
        let is_made = self.alter(&alter).await?;
        let mut known = self.known.lock();
        if is_made {
            known.change_was_made();
        }
        known.sent = None;
        Ok(is_made)
    }

    /// Whether the table's definition is still what the sweep needs.
    pub(crate) async fn is_unchanged(&self) -> Result<bool> {
        let now = self.definition_now().await?;
        let known = self.known.lock();
        Ok(known.now.as_ref().is_some_and(|then| then.differences(now.as_ref()).is_none()))
    }

    /// Fails if another session has changed settings. A change of this run of which the answer is missing is not looked at.
    pub(crate) async fn settings_are_ours(&self) -> Result<(), RetoastError> {
        let now = self.definition_now().await?;
        let known = self.known.lock();
        let then = if known.sent.is_some() { None } else { known.now.as_ref() };
        let found = then.and_then(|then| then.differences(now.as_ref()));
        match found.and_then(Differences::settings) {
            Some(found) => Err(found.into_error()),
            None => Ok(()),
        }
    }

    /// Restores the settings that another session has changed, if this was requested and is possible; otherwise returns
    /// an error that names them. If they were changed back, nothing is done. `times`: how often this was done before.
    pub(crate) async fn set_right(&self, times: u32) -> Result<()> {
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
            return Err(found.into_error());
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

    /// Restores the settings that the run has changed, unless they should stay or another session has changed them
    /// since, and reports what was done and what would undo it. `is_unfit`: a row does not fit on a page with the
    /// chosen settings.
    pub(crate) async fn put_back(
        &self,
        outcome: Outcome,
        is_unfit: bool,
        common: &mut Common,
        report: &mut Converted,
    ) {
        let mut state = self.known.lock().clone();
        report.altered = state.altered;
        let may_differ = state.altered || state.more_set || state.sent.is_some();
        let (Some(before), true) = (state.before.clone(), may_differ) else { return };
        let (schema, name) = self.name_now().await;
        let table = quote_qualified(&schema, &name);
        let now = match self.definition_now().await {
            Ok(Some(now)) => now,
            Ok(None) => return,
            Err(_) => {
                // the connection is lost: the change may have been made
                let sent = state.sent.as_ref().map(|sent| &sent.settings);
                report.undo = sent.or(state.ours()).and_then(|ours| before.restore(&table, ours));
                return;
            }
        };
        state.settle(now.settings());
        report.altered = state.altered;
        let Some(ours) = state.ours() else { return };
        if let Some(others) = ours.differences(Some(&now)).and_then(Differences::settings) {
            common.note_once(format!("{others}: this is left as it is"));
        }
        let goal = before.where_unchanged(ours, now.settings());
        let altered = state.altered;
        *self.known.lock() = state;
        let Some(mut undo) = goal.restore(&table, now.settings()) else { return };
        if common.rows.stored > 0
            && let Some((columns, storage)) = goal.restored_columns(now.settings())
        {
            report.undo_command = command::to_storage(&schema, &name, &columns, storage);
        }
        let Ok(marked) = self.marked().await else { return };
        if let Some(unmark) = settings::unmark(&table, &marked) {
            undo = format!("{undo}; {unmark}");
        }
        let name = self.ready.relation.display_name();
        let options = self.session.options;
        let asked = options.restores_settings && !options.dry_run && outcome != Outcome::Complete;
        let nothing_done = outcome == Outcome::Failed && common.rows.stored == 0;
        if asked || altered && (nothing_done || is_unfit) {
            // A stop that was requested must not prevent this.
            let stop = CancellationToken::new();
            let tries =
                LockTries { stop: &stop, ..self.session.tries(&name, self.ready.relation.oid) };
            match tries.alter(self.session.writer(), &undo).await {
                Ok((Tried::Done(()), _)) => {
                    report.undone = true;
                    report.undo_command.clear();
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

    /// The table's schema and name, by which others may have replaced those of the beginning.
    async fn name_now(&self) -> (String, String) {
        const SQL: &str = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             WHERE c.oid = $1";
        let relation = &self.ready.relation;
        let asked = self.session.writer().row(SQL, &[(&relation.oid.0, Type::OID)]).await;
        let row = asked.ok().flatten();
        let found = row.and_then(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)));
        found.unwrap_or_else(|| (relation.schema.clone(), relation.name.clone()))
    }

    /// The chosen columns, with their settings before an earlier run that was killed.
    async fn marked(&self) -> LiveResult<Vec<settings::Column>> {
        if let Some(known) = self.ahead {
            return Ok(known.columns.clone());
        }
        let mut columns = settings::ask(self.session.writer(), &[self.ready]).await?;
        Ok(columns.remove(&self.ready.relation.oid).unwrap_or_default())
    }

    /// Reports the settings that a killed run has left.
    pub(crate) async fn say_marks(&self, notes: &mut Vec<String>) -> Result<()> {
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
    pub(crate) async fn mark(&self) -> Result<()> {
        let columns = self.marked().await?;
        match settings::mark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }

    /// Removes that record once the columns have the chosen settings.
    pub(crate) async fn unmark(&self) -> Result<()> {
        let columns = self.marked().await?;
        match settings::unmark(&self.ready.relation.quoted(), &columns) {
            Some(sql) => self.alter(&sql).await.map(drop),
            None => Ok(()),
        }
    }
}
