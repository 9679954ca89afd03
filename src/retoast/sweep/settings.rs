//! The table's settings while it is swept: set, watched, set right when somebody else changes them, and put
//! back.

use tokio_util::sync::CancellationToken;

use super::error::RunError;
use super::table::Sweep;
use super::watched::{Known, Reading};
use crate::retoast::check::definition::{Definition, check};
use crate::retoast::check::files::Files;
use crate::retoast::check::generated::computes_all;
use crate::retoast::memory::settings;
use crate::retoast::pace::lock_tries::{LockTries, Tried};
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::sql;
use crate::server::LiveError;
use crate::server::connect::Client;
use crate::server::snapshot::{self, Moment};

/// How often a sweep sets right what somebody else has changed.
const MOST_SET_RIGHT: u32 = 5;
/// How often a batch is tried while others write the table's definition and change nothing.
const MOST_WRITTEN: u32 = 20;

impl Sweep<'_> {
    async fn definition(&self) -> Result<Option<Definition>, RunError> {
        self.definition_by(self.writer.client()).await
    }

    /// The definition as it is, whatever an UPDATE would run.
    async fn definition_now(&self) -> Result<Option<Definition>, RunError> {
        let (oid, pluggable) = (self.ready.relation.oid, self.ready.pluggable);
        Ok(Definition::read(self.writer.client(), oid, pluggable).await?)
    }

    /// Reads the definition, and approves in the same snapshot what an UPDATE would run and set off by it.
    async fn definition_by(&self, client: &Client) -> Result<Option<Definition>, RunError> {
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let ready = self.ready;
        let read = async {
            let found = Definition::read(client, ready.relation.oid, ready.pluggable).await?;
            ready.code.approve_again(client, &ready.relation).await?;
            if computes_all(client, ready.relation.oid).await? != ready.computes_all
                && ready.generated.iter().any(|column| column.stored)
            {
                return Err(RunError::Refused(format!(
                    "{}: triggers were created or dropped by somebody else, so that generated columns are \
                     computed otherwise\nHINT:  Run the command again.",
                    self.name()
                )));
            }
            Ok(found)
        };
        let read: Result<Option<Definition>, RunError> = read.await;
        client.batch_execute("ROLLBACK").await?;
        read
    }

    /// Looks at the table again: it may have been changed since it was looked at first, for another table
    /// may have been swept meanwhile.
    pub(crate) async fn begin_watching(&self) -> Result<(), RunError> {
        let Some(found) = self.definition().await? else {
            return Err(RunError::Altered("the table was dropped by somebody else".to_owned()));
        };
        // an earlier part of the same work, whose session has ended, knows what it has set itself
        let then = self.watched.known().now.clone();
        if let Some(then) = then {
            return match then.differences(Some(&found)) {
                Some(changed) => Err(RunError::Altered(changed.to_string())),
                None => {
                    self.watched.known().now = Some(found);
                    Ok(())
                }
            };
        }
        if let Some(changed) = found.changed_since(&self.ready.relation.desc) {
            return Err(RunError::Altered(changed.to_string()));
        }
        let (mut before, mut more_set) = (found.settings().clone(), false);
        for column in self.marked().await? {
            let Some(was) = column.before else { continue };
            more_set |= was != column.now;
            before = before.with_column(&column.name, was.storage, was.compression);
        }
        let known = Known { before: Some(before), now: Some(found), altered: false, more_set };
        *self.watched.known() = known;
        Ok(())
    }

    /// Sets what is to be set before rows are re-toasted, and remembers what the table is set to then.
    pub(crate) async fn set_choice(&self) -> Result<(), RunError> {
        let table = self.ready.relation.quoted();
        let Some(alter) = sql::alter(&table, &self.ready.changes) else { return Ok(()) };
        if !self.alter(&alter).await? {
            return Ok(());
        }
        self.watched.known().altered = true;
        let now = self.definition().await?;
        let mut known = self.watched.known();
        let expected = known.now.as_ref().map(|found| found.with(&self.ready.changes));
        if let Some(found) = expected.and_then(|then| then.differences(now.as_ref())) {
            return Err(RunError::Altered(found.to_string()));
        }
        known.now = now;
        Ok(())
    }

    /// How a batch's transaction begins, with the table's lock, and the query that fails then if somebody has written
    /// the table's definition since it was read. Triggers are silenced where there are any: the server
    /// forgets the plans of prepared statements each time.
    pub(super) fn how_to_begin(&self) -> (String, String) {
        let known = self.watched.known();
        let mut settings = self.settings();
        settings.replica_role &= known.now.as_ref().is_none_or(Definition::sets_off);
        let lock = sql::lock(&self.ready.relation.quoted(), self.ready.code.holds_off_statistics());
        let check = check(self.ready.relation.oid, known.now.as_ref());
        (format!("{}; {lock}", sql::begin(&settings)), check)
    }

    /// What a transaction begins with that only reads the table, where that is to hold off statistics.
    pub(in crate::retoast) fn reading(&self) -> Option<Reading> {
        self.watched.reading(self.ready)
    }

    /// Begins a transaction on the reading connection, with a snapshot of its own.
    pub(in crate::retoast) async fn begin_reading(&self) -> Result<Moment, LiveError> {
        match self.reading() {
            Some(reading) => reading.begin(self.reader.client()).await,
            None => snapshot::begin(&self.reader).await,
        }
    }

    /// Whether the table is still what the sweep needs it to be.
    pub(crate) async fn is_unchanged(&self) -> Result<bool, RunError> {
        let now = self.definition_now().await?;
        let known = self.watched.known();
        Ok(known.now.as_ref().is_some_and(|then| then.differences(now.as_ref()).is_none()))
    }

    /// The files that the table has now.
    pub(in crate::retoast) async fn files(&self) -> Result<Files, RunError> {
        match Files::of(&self.writer, self.ready.relation.oid).await? {
            Some(files) => Ok(files),
            None => Err(RunError::Altered("the table was dropped by somebody else".to_owned())),
        }
    }

    /// An error if the table has other files by now.
    pub(in crate::retoast) async fn still_has(&self, files: &Files) -> Result<(), RunError> {
        match Files::of(&self.writer, self.ready.relation.oid).await?.as_ref() == Some(files) {
            true => Ok(()),
            false => Err(RunError::Rewritten),
        }
    }

    /// Tries a batch, and again where somebody has written the table's definition and all that the sweep needs of
    /// it is as it was: a privilege was granted, say, or statistics were set.
    pub(in crate::retoast) async fn unless_changed<T>(
        &self,
        job: usize,
        mut batch: impl AsyncFnMut() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        for _ in 1..MOST_WRITTEN {
            let tried = batch().await;
            if !matches!(tried, Err(RunError::Changing)) {
                return tried;
            }
            self.rollback(job).await?;
            let now = self.definition_by(self.connection(job).client()).await?;
            let mut known = self.watched.known();
            if known.now.as_ref().is_none_or(|then| then.differences(now.as_ref()).is_some()) {
                return tried;
            }
            known.now = now;
        }
        batch().await
    }

    /// Sets right what somebody else has changed, if that was asked for and can be done; else says what it
    /// is. What was changed back needs nothing. `times`: how often that was done before.
    pub(crate) async fn set_right(&self, times: u32) -> Result<(), RunError> {
        // the transaction in which that was found may still be open
        let _ = self.rollback(0).await;
        let now = self.definition().await?;
        let then = self.watched.known().now.clone();
        let (Some(then), Some(now)) = (then, now) else {
            return Err(RunError::Altered("the table was dropped by somebody else".to_owned()));
        };
        let Some(found) = then.differences(Some(&now)) else {
            if times >= MOST_SET_RIGHT {
                let text = "settings were changed, and changed back, by somebody else";
                return Err(RunError::Altered(text.to_owned()));
            }
            self.watched.known().now = Some(now);
            return Ok(());
        };
        if !self.options.enforce || !found.are_settings() || times >= MOST_SET_RIGHT {
            return Err(RunError::Altered(found.to_string()));
        }
        let table = self.ready.relation.quoted();
        let Some(alter) = then.settings().restore(&table, now.settings()) else { return Ok(()) };
        let name = self.ready.relation.display_name();
        self.watch.note(&format!("{name}: {found}: set right: {alter}"));
        self.alter(&alter).await?;
        let again = self.definition().await?;
        match then.differences(again.as_ref()) {
            // the next batch finds that out
            Some(_) => Ok(()),
            None => {
                self.watched.known().now = again;
                Ok(())
            }
        }
    }

    /// Puts the settings back as the run found them where they are not to stay, and reports what was done and
    /// what undoes it.
    pub(crate) async fn put_back(&self, report: &mut TableReport) {
        let Known { before, altered, more_set, .. } = self.watched.known().clone();
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
        let asked = self.options.undo && report.outcome != Outcome::Complete;
        let nothing_done = report.outcome == Outcome::Failed && report.rows_stored == 0;
        if asked || altered && (nothing_done || report.is_unfit) {
            // a stop was asked for perhaps, but not of this
            let stop = CancellationToken::new();
            let tries = LockTries { stop: &stop, ..self.tries(&name) };
            match tries.alter(self.writer.client(), &undo).await {
                Ok((Tried::Done(()), _)) => {
                    report.undone = true;
                    // a new session begins as the first one did
                    *self.watched.known() = Known::default();
                }
                Ok(_) => self.watch.note(&format!("{name}: no lock to put the settings back")),
                Err(error) => {
                    self.watch.note(&format!("{name}: could not put the settings back: {error}"));
                }
            }
        }
        report.undo = Some(undo);
    }
}
