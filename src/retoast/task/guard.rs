//! The table that a task works on, as it was approved, and the transactions on it.
//!
//! A writing transaction first takes the table's lock. A query then fails if the definition is not the approved one,
//! before any later statement is planned: planning evaluates constant parts of expressions of indexes and statistics.
//! If code could run with privileges that the owner does not have, reading transactions do the same.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join;
use parking_lot::Mutex;
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError, refused, refused_table};
use crate::retoast::listener::Wait;
use crate::retoast::pace::ahead::PlanFacts;
use crate::retoast::pace::lock_tries::{LOCK_TRIES, Tried, with_holder};
use crate::retoast::pace::metrics;
use crate::retoast::pace::rules::WorkKind;
use crate::retoast::plan::Sizes;
use crate::retoast::preflight::definition::{Definition, Files, Settings, check, has_changed};
use crate::retoast::preflight::ready::{PLACES_NOT_SEEN, PreparedTable};
use crate::retoast::preflight::shapes::computes_all;
use crate::retoast::result::{Common, ScanSource, SkippedRow, Subject, TaskReport};
use crate::retoast::sql;
use crate::retoast::sql::BatchSettings;
use crate::retoast::task::session::{Session, millis};
use crate::server::connect::Statement;
use crate::server::sqlstate::ErrorKind;
use crate::server::{
    Client, Connection, LiveError, LiveResult, Moment, Pageinspect, Server, holders, owner_facts,
    snapshot,
};
use toast_format::disk::Oid;

/// The maximum number of attempts at a transaction while other sessions update the catalog rows of the table without
/// changing what the task depends on.
const MOST_WRITTEN: u32 = 20;

/// The maximum number of refused rows that a report lists; the others are only counted.
const MOST_SHOWN: usize = 100;

/// The definition and settings that the table is known to have. It outlives the sessions of a task.
pub(crate) type KnownDefinition = Mutex<DefinitionState>;

#[derive(Debug, Clone, Default)]
pub(crate) struct DefinitionState {
    /// The settings when the run began, or before an earlier run that was killed.
    pub(super) before: Option<Settings>,
    /// The definition that the task needs.
    pub(super) now: Option<Definition>,
    /// The settings as the run has changed them since that definition was read.
    pub(super) ours: Option<Settings>,
    /// A change that was sent to the server and may have been made.
    pub(super) sent: Option<SentChange>,
    /// Whether the run has changed any setting.
    pub(super) altered: bool,
    /// Whether other settings were changed too: by an earlier run that was killed, or for new values at the end of this
    /// run.
    pub(super) more_set: bool,
}

/// A change of the settings.
#[derive(Debug, Clone)]
pub(super) struct SentChange {
    /// The settings that result.
    pub(super) settings: Settings,
    /// Whether it is that of the end of the run.
    pub(super) is_last: bool,
}

impl DefinitionState {
    /// The settings as the run has left them.
    pub(super) fn ours(&self) -> Option<&Settings> {
        self.ours.as_ref().or(self.now.as_ref().map(Definition::settings))
    }

    /// Records that the change that was sent was made.
    pub(super) fn change_was_made(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        if sent.is_last {
            self.more_set = true;
        } else {
            self.altered = true;
        }
        self.ours = Some(sent.settings);
    }

    /// Decides by the present settings whether the change that was sent was made: the answer may have been lost.
    pub(super) fn settle(&mut self, found: &Settings) {
        if let (Some(sent), Some(then)) = (&self.sent, self.ours())
            && then.was_changed(&sent.settings, found)
        {
            self.change_was_made();
        }
        self.sent = None;
    }
}

/// What a reading transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Only,
    /// It also writes temporary tables.
    WithTemporary,
    /// It lasts for a whole scan. The lock is taken before the snapshot, so that commands that need `ACCESS EXCLUSIVE`
    /// (most changes of settings, and every rewrite) wait for its end.
    WholeScan,
}

/// How transactions that read a table begin.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) ready: &'a PreparedTable,
    /// The definition to compare with. If `None`, the code that reading runs is approved again.
    pub(crate) known: Option<&'a KnownDefinition>,
}

impl Reading<'_> {
    /// Runs `work` in a transaction with a snapshot.
    ///
    /// # Errors
    /// Like [`Reading::begin`], or those of `work`.
    pub(crate) async fn run<T>(
        &self,
        connection: &Connection,
        work: impl AsyncFnOnce(Moment) -> LiveResult<T>,
    ) -> LiveResult<T> {
        let moment = self.begin(connection, Reads::Only).await?;
        snapshot::ended(connection.client(), work(moment)).await
    }

    /// Begins a transaction with a snapshot.
    ///
    /// # Errors
    /// [`LiveError::Changed`] if the definition is not the approved one and reading could run code with privileges that
    /// the owner does not have.
    pub(crate) async fn begin(&self, connection: &Connection, reads: Reads) -> LiveResult<Moment> {
        let client = connection.client();
        let begun = match (self.ready.code.blocks_create_statistics(), reads) {
            (true, _) => self.begin_approved(client).await,
            (false, Reads::Only) => snapshot::begin(connection).await,
            (false, Reads::WithTemporary) => snapshot::begin_writable(connection).await,
            (false, Reads::WholeScan) => {
                let table = self.ready.relation.quoted();
                let lock = format!("LOCK TABLE ONLY {table} IN ACCESS SHARE MODE");
                snapshot::begin_with_lock(client, &lock).await
            }
        };
        if begun.is_err() {
            // If this fails too, the connection is lost, and the next query reports that.
            let _ = snapshot::abandon(client).await;
        }
        begun
    }

    async fn begin_approved(&self, client: &Client) -> LiveResult<Moment> {
        let PreparedTable { relation, code, .. } = self.ready;
        // A session that waits for this lock longer than `deadlock_timeout` cancels an autovacuum.
        let lock = sql::lock(&relation.quoted(), true);
        let mut locks = format!("SET LOCAL lock_timeout = '100ms'; {lock}");
        if code.holds_schema() {
            // The second time it is the table that has the name from now on.
            locks = format!("{locks}; {}; {lock}", snapshot::hold_schema(&relation.schema));
        }
        if !code.held_types().is_empty() {
            locks = format!("{locks}; {}", snapshot::hold_types(code.held_types()));
        }
        let moment = snapshot::begin_with_lock(client, &locks).await?;
        match self.known {
            Some(known) => {
                let targets = &self.ready.targets;
                let name = relation.quoted();
                let check = check(&name, relation.oid, targets, known.lock().now.as_ref());
                match client.query_typed(&check, &[]).await {
                    Err(error) if has_changed(&error) => Err(LiveError::Changed),
                    checked => Ok(checked.map(|_| moment)?),
                }
            }
            None => match code.approve_again(client, relation).await {
                Ok(()) => Ok(moment),
                Err(RetoastError::Live(error)) => Err(error),
                Err(_) => Err(LiveError::Changed),
            },
        }
    }
}

/// How a batch ended: committed, to be retried, or refused by the server.
pub(crate) enum BatchEnd {
    Stored { rows: u64, verified: u64, xid: u32 },
    Busy,
    Refused(Reason),
}

/// The beginning of a writing transaction, sent together with the statements that follow it.
pub(crate) struct Opening<'a> {
    session: &'a Session<'a>,
    client: &'a Client,
    /// Begins the transaction and takes the lock.
    sql: String,
    check: Statement,
    /// Whether the transaction is open.
    is_open: Cell<bool>,
}

impl<'a> Opening<'a> {
    pub(crate) fn client(&self) -> &'a Client {
        self.client
    }

    /// Begins the transaction, takes the table's lock, and fails if the table's definition has been updated.
    pub(crate) async fn send(&self) -> Result<()> {
        self.is_open.set(true);
        let locked = async {
            let began = Instant::now();
            let locked = self.client.batch_execute(&self.sql).await;
            self.session.throttle.lock_waited(began.elapsed());
            locked
        };
        let (locked, checked) = join(locked, self.client.query(&self.check, &[])).await;
        locked?;
        match checked {
            Err(error) if has_changed(&error) => Err(RetoastError::Changing),
            checked => Ok(checked.map(drop)?),
        }
    }

    /// Commits; the server rolls back instead if an earlier statement failed.
    pub(crate) async fn commit(&self) -> Result<(), tokio_postgres::Error> {
        self.is_open.set(false);
        self.client.batch_execute("COMMIT").await
    }

    pub(crate) async fn rollback(&self) -> Result<(), tokio_postgres::Error> {
        self.is_open.set(false);
        self.client.batch_execute("ROLLBACK").await
    }
}

/// A table on which a task works. All transactions on it begin here.
#[derive(Clone, Copy)]
pub(crate) struct Guard<'a> {
    pub(crate) session: &'a Session<'a>,
    pub(crate) ready: &'a PreparedTable,
    pub(crate) known: &'a KnownDefinition,
    /// In a dry run, what was read of many tables together.
    pub(crate) ahead: Option<&'a PlanFacts>,
}

impl<'a> Guard<'a> {
    pub(crate) fn name(&self) -> String {
        self.ready.relation.display_name()
    }

    /// Sends the listener a note about the table.
    pub(crate) fn note(&self, text: &str) {
        self.session.listener.note(Some(&self.name()), text);
    }

    /// Reports a row that the server has refused. `rows` counts it together with other rows of its page.
    pub(crate) fn set_aside(&self, rows: u64, row: SkippedRow, report: &mut Common) {
        report.rows.refused += rows;
        self.session.listener.refused(&self.name(), &row);
        if report.skipped.len() < MOST_SHOWN {
            report.skipped.push(row);
        }
    }

    /// Waits for other sessions; a long wait is reported. If the waits exceed the limit, the run ends.
    pub(crate) async fn wait(&self, time: Duration, why: Wait) {
        let patience = &self.session.throttle.patience;
        let is_long = time >= LONG_WAIT;
        let text = if is_long || patience.left().is_some_and(|left| left <= time) {
            self.named(why).await
        } else {
            why.text().to_owned()
        };
        if is_long {
            self.note(&format!("waiting: {text}"));
        }
        patience.wait(time, &self.name(), &text).await;
    }

    /// What is waited for, with whoever is in the way, if that is known.
    pub(crate) async fn named(&self, why: Wait) -> String {
        let throttle = self.session.throttle;
        let who = match why {
            Wait::Truncation | Wait::OldVersions => {
                throttle.horizon().await.map(|holder| holder.who)
            }
            Wait::RowsLocked | Wait::RowsToMoveLocked | Wait::LockTimeout => {
                throttle.lock_holder(self.oid()).await
            }
        };
        with_holder(why.text(), who)
    }

    /// The statements that begin a transaction and lock the table.
    pub(crate) fn begin_sql(&self, replica_role: bool) -> String {
        let Session { options, idle_limit, .. } = self.session;
        let PreparedTable { relation, code, .. } = self.ready;
        let settings = BatchSettings {
            lock_timeout_ms: millis(options.lock_timeout),
            replica_role,
            idle_ms: millis(*idle_limit),
            schema: code.holds_schema().then(|| relation.schema.clone()),
            types: code.held_types().to_vec(),
            role: code.role().map(str::to_owned),
        };
        let lock = sql::lock(&relation.quoted(), code.blocks_create_statistics());
        format!("{}; {lock}", sql::begin(&settings))
    }

    /// How a writing transaction begins. Triggers are disabled only if the table has any, because the setting makes the
    /// server discard the plans of prepared statements.
    pub(crate) async fn opening(&self, job: usize) -> Result<Opening<'a>> {
        let (sql, check) = {
            let known = self.known.lock();
            let now = known.now.as_ref();
            let replica_role =
                self.ready.replica_role && now.is_none_or(Definition::has_triggers_or_rules);
            let PreparedTable { relation, targets, .. } = self.ready;
            let check = check(&relation.quoted(), relation.oid, targets, now);
            (self.begin_sql(replica_role), check)
        };
        let connection = self.session.connection(job);
        // The check reads only catalogs, which no session locks for long.
        let check = connection.prepared(&check, &[]).await?;
        let session = self.session;
        let client = connection.client();
        Ok(Opening { session, client, sql, check, is_open: Cell::new(false) })
    }

    /// Runs one writing transaction, which is rolled back after an error. `attempt` must send the opening. While a lock of
    /// another session is known to be in the way, nothing is sent.
    pub(crate) async fn batch(
        &self,
        job: usize,
        attempt: impl AsyncFn(&Opening<'a>) -> Result<BatchEnd>,
    ) -> Result<BatchEnd> {
        if self.session.throttle.is_locked_out(self.oid()).await {
            return Ok(BatchEnd::Busy);
        }
        let is_open = Cell::new(true);
        let tried = self
            .unless_changed(job, async || {
                let opening = self.opening(job).await?;
                let done = attempt(&opening).await;
                is_open.set(opening.is_open.get());
                done
            })
            .await;
        match tried {
            Err(RetoastError::Live(LiveError::Server(error))) => {
                let kind = ErrorKind::from_error(&error);
                if kind == ErrorKind::Fatal {
                    return Err(error.into());
                }
                // A COMMIT that was sent has already ended the transaction.
                if is_open.get() {
                    self.session.rollback(job).await?;
                }
                if kind == ErrorKind::Busy {
                    self.session.throttle.lock_missed();
                    return Ok(BatchEnd::Busy);
                }
                Ok(BatchEnd::Refused(Reason::from(&error)))
            }
            Err(error) => {
                // If this fails too, the connection is lost, and the next statement reports that.
                let _ = self.session.rollback(job).await;
                Err(error)
            }
            stored => stored,
        }
    }

    /// Runs `work` in a transaction that is rolled back.
    pub(crate) async fn in_opening<T>(
        &self,
        job: usize,
        work: impl AsyncFnOnce(&'a Client) -> Result<T>,
    ) -> Result<T> {
        let opening = self.opening(job).await?;
        let done = async {
            opening.send().await?;
            work(opening.client()).await
        };
        snapshot::abandoned(opening.client(), done).await
    }

    /// A prepared statement of batches, parsed once on each connection. It is parsed while the table's lock is held:
    /// parsing takes a lock too, and this limits how long it may wait.
    pub(crate) async fn statement(
        &self,
        job: usize,
        sql: &str,
        types: &[Type],
    ) -> Result<Statement> {
        let connection = self.session.connection(job);
        if !connection.knows(sql) {
            self.in_opening(job, async |_| Ok(connection.prepared(sql, types).await?)).await?;
        }
        Ok(connection.prepared(sql, types).await?)
    }

    /// Retries if the catalog rows of the table were updated but everything that the task needs is unchanged, for
    /// example because a privilege was granted or statistics were set.
    pub(crate) async fn unless_changed<T>(
        &self,
        job: usize,
        mut attempt: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 1..MOST_WRITTEN {
            let tried = attempt().await;
            if !matches!(tried, Err(RetoastError::Changing)) {
                return tried;
            }
            self.session.rollback(job).await?;
            let now = self.definition_by(self.session.connection(job).client()).await?;
            let mut known = self.known.lock();
            if known.now.as_ref().is_none_or(|then| then.differences(now.as_ref()).is_some()) {
                return tried;
            }
            known.now = now;
        }
        attempt().await
    }

    /// Reads the definition, and approves, in the same snapshot, the code that an UPDATE would run.
    pub(super) async fn definition_by(&self, client: &Client) -> Result<Option<Definition>> {
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let ready = self.ready;
        let read = async {
            let found = Definition::read(client, ready.relation.oid, ready.pluggable).await?;
            if found.is_some() && !owner_facts::is_named(client, &ready.relation).await? {
                return refused_table(&self.name(), "the relation was renamed by another session");
            }
            ready.code.approve_again(client, &ready.relation).await?;
            let computes_all = computes_all(client, &[ready.relation.oid]).await?;
            if computes_all.contains(&ready.relation.oid) != ready.computes_all
                && ready.generated.iter().any(|column| column.stored)
            {
                return refused_table(
                    &self.name(),
                    "triggers were created or dropped by another session, so that generated columns are \
                     computed differently\nHINT:  Run the command again.",
                );
            }
            Ok(found)
        };
        snapshot::abandoned(client, read).await
    }

    /// Like [`LockTries::tried`](crate::retoast::pace::lock_tries::LockTries::tried). Returns `None` once a stop is
    /// requested.
    pub(crate) async fn tried<T>(
        &self,
        what: &'static str,
        attempt: impl AsyncFnMut() -> LiveResult<T>,
    ) -> Result<Option<T>> {
        let tried = self.session.tries(&self.name(), self.oid()).tried(what, attempt).await?;
        self.unless_locked(what, tried).await
    }

    async fn unless_locked<T>(&self, what: &'static str, tried: Tried<T>) -> Result<Option<T>> {
        match tried {
            Tried::Done(done) => Ok(Some(done)),
            Tried::Stopped => Ok(None),
            Tried::TooLong(waited) => {
                let holder = self.session.throttle.lock_holder(self.oid()).await;
                let why = with_holder(&format!("no lock for {what}"), holder);
                self.session.throttle.patience.give_up(&self.name(), waited, &why);
                Ok(None)
            }
            Tried::NoLock => {
                let holder = self.session.throttle.lock_holder(self.oid()).await;
                let why = format!("no lock for {what} in {LOCK_TRIES} attempts");
                refused(with_holder(&why, holder))
            }
        }
    }

    /// Alters the table. Returns false if a stop was requested before it was done.
    pub(crate) async fn alter(&self, alter: &str) -> Result<bool> {
        let name = self.name();
        let tries = self.session.tries(&name, self.oid());
        let (tried, wait) = tries.alter(self.session.writer(), alter).await?;
        self.session.throttle.lock_waited(wait);
        Ok(self.unless_locked("changing the settings", tried).await?.is_some())
    }

    pub(crate) fn reading(&self) -> Reading<'a> {
        Reading { ready: self.ready, known: Some(self.known) }
    }

    /// Runs one statement on the reading connection in a transaction of its own, once the throttle allows it.
    ///
    /// # Errors
    /// [`RetoastError::StopRequested`], as in the next functions, or another error.
    pub(crate) async fn read(&self, sql: &str) -> Result<Vec<tokio_postgres::Row>> {
        let client = self.session.reader().client();
        self.read_by(async |_| Ok(client.query_typed(sql, &[]).await?)).await
    }

    /// Like [`Guard::read`], but runs `work` in the snapshot of the transaction.
    pub(crate) async fn read_by<T>(
        &self,
        work: impl AsyncFn(Moment) -> LiveResult<T>,
    ) -> Result<T> {
        self.session.pass(WorkKind::Scan, 0).await?;
        if self.session.stopped() {
            return Err(RetoastError::StopRequested);
        }
        let read = async || self.tried("reading", async || self.in_reading(&work).await).await;
        self.unless_changed(0, read).await?.ok_or(RetoastError::StopRequested)
    }

    /// Runs `work` in a transaction on the reading connection.
    pub(crate) async fn in_reading<T>(
        &self,
        work: impl AsyncFnOnce(Moment) -> LiveResult<T>,
    ) -> LiveResult<T> {
        self.reading().run(self.session.reader(), work).await
    }

    /// The table's current files.
    pub(crate) async fn files(&self) -> Result<Files> {
        let writer = &self.session.connections.writer;
        match Files::read(writer, self.ready.relation.oid).await? {
            Some(files) => Ok(files),
            None => Err(RetoastError::dropped()),
        }
    }

    /// Returns an error if the table has different files now.
    pub(crate) async fn still_has(&self, files: &Files) -> Result<()> {
        let writer = &self.session.connections.writer;
        if Files::read(writer, self.ready.relation.oid).await?.as_ref() == Some(files) {
            Ok(())
        } else {
            Err(RetoastError::Rewritten)
        }
    }

    pub(crate) async fn sizes(&self) -> LiveResult<Sizes> {
        metrics::sizes(&self.session.connections.writer, self.ready.relation.oid).await
    }

    /// The sizes before anything is done, waiting for other sessions that have locked the table. Returns `None` once a
    /// stop is requested.
    pub(crate) async fn sizes_before(&self) -> Result<Option<Sizes>> {
        match self.ahead {
            Some(known) => Ok(Some(known.sizes)),
            None => self.tried("its size", async || self.sizes().await).await,
        }
    }

    /// Returns `None` if the table is locked.
    pub(crate) async fn sizes_now(&self) -> Result<Option<Sizes>> {
        if let Some(known) = self.ahead {
            return Ok(Some(known.sizes));
        }
        let writer = &self.session.connections.writer;
        Ok(metrics::sizes_unless_locked(writer, self.ready.relation.oid).await?)
    }

    /// The number of blocks in a relation's main fork.
    pub(crate) async fn blocks(&self, relation: Oid) -> Result<u32> {
        let page = self.session.server.page_size.bytes() as i64;
        let sql = "SELECT coalesce(pg_catalog.pg_relation_size($1::pg_catalog.oid), 0)";
        let asked = self.tried("its size", async || {
            Ok(self.session.writer().value::<i64>(sql, &[(&relation.0, Type::OID)]).await?)
        });
        let bytes = asked.await?.ok_or(RetoastError::StopRequested)?.unwrap_or(0);
        Ok(u32::try_from(bytes / page).unwrap_or(u32::MAX))
    }

    fn oid(&self) -> Oid {
        self.ready.relation.oid
    }

    fn lock_key(&self) -> i32 {
        self.oid().0 as i32
    }

    /// Takes the advisory lock that shows that this table is being retoasted, and limits how long the session waits for
    /// other locks. The session of a client that was killed may hold the advisory lock for another moment.
    async fn lock(&self) -> Result<()> {
        let asked = Instant::now();
        let lock_timeout = millis(self.session.options.lock_timeout).to_string();
        let patience = self
            .session
            .throttle
            .patience
            .left()
            .map_or(LOCK_PATIENCE, |most| most.min(LOCK_PATIENCE));
        loop {
            let sql = "SELECT pg_catalog.pg_try_advisory_lock($1, $2), \
                       pg_catalog.set_config('lock_timeout', $3, false)";
            let rows = self
                .session
                .writer()
                .query_typed(
                    sql,
                    &[
                        (&LOCK_CLASS, Type::INT4),
                        (&self.lock_key(), Type::INT4),
                        (&lock_timeout, Type::TEXT),
                    ],
                )
                .await?;
            if let Some(row) = rows.first()
                && row.try_get(0)?
            {
                return Ok(());
            }
            let ends = self.session.stopped() || asked.elapsed() > patience;
            if ends || asked.elapsed() < LOCK_AGAIN {
                let writer = self.session.writer();
                let holder = holders::of_advisory_lock(writer, LOCK_CLASS, self.lock_key()).await?;
                let holder = holder.unwrap_or_else(|| "another session".into());
                let why = format!("{holder} holds the advisory lock of this table");
                if ends {
                    return refused(format!(
                        "{why}, which keeps two runs from working on it\nHINT:  Wait until it is released."
                    ));
                }
                self.note(&format!("waiting: {why}"));
            }
            self.session.sleep(LOCK_AGAIN).await;
        }
    }

    /// Takes the advisory lock. Returns an empty report and the position in the WAL.
    pub(crate) async fn begin(&self) -> Result<(Common, u64)> {
        self.lock().await?;
        let begun = self.begin_locked().await;
        if begun.is_err() {
            // If this fails too, the connection is lost, and the lock with it.
            let _ = self.unlock().await;
        }
        begun
    }

    async fn begin_locked(&self) -> Result<(Common, u64)> {
        let Guard { session, ready, .. } = self;
        let set = format!("SET lock_timeout = {}", millis(session.options.lock_timeout));
        // that of the first job was set with the lock
        for job in 1..session.jobs() {
            session.connection(job).client().batch_execute(&set).await?;
        }
        if !session.options.dry_run
            && let Some(message) = session.throttle.wait_for_rewrites(&[ready.relation.oid]).await?
        {
            return Err(RetoastError::Stopped(message));
        }
        let before = self.sizes_before().await?.unwrap_or_default();
        let wal = session.wal().await?;
        let known = self.ahead.map(|known| &known.beginning);
        session.throttle.begin(ready, before, wal, known).await?;
        Ok((Common::new(before, self.notes()), wal))
    }

    /// Measures what was done, and releases the advisory lock.
    pub(crate) async fn end(&self, report: &mut Common, wal: u64) -> Result<()> {
        let throttle = self.session.throttle;
        let (course, pauses, wait) = throttle.end().await;
        report.effort.pauses = pauses;
        report.effort.longest_lock_wait_ms = millis(wait);
        report.effort.course = course;
        let measured = self.measure(report, wal).await;
        report.gave_up = throttle.patience.has_given_up();
        report.stopped_by = throttle.patience.stopped_by();
        report.notes.extend(throttle.notes());
        let unlocked = self.unlock().await;
        measured.and(unlocked)
    }

    async fn measure(&self, report: &mut Common, wal: u64) -> Result<()> {
        let written = self.session.wal().await?.saturating_sub(wal);
        let written = written.saturating_sub(self.session.throttle.wal_of_others());
        report.effort.wal_bytes = Some(written);
        report.effort.slots_lost = self.session.throttle.slots_lost().await?;
        if let Some(sizes) = self.sizes_now().await? {
            report.after = sizes;
            report.is_larger(sizes);
        }
        if let Some(last) = report.effort.course.last_mut() {
            last.size = report.after.sum();
            last.wal_bytes = written;
        }
        Ok(())
    }

    /// Releases the advisory lock.
    async fn unlock(&self) -> Result<()> {
        let sql = "SELECT pg_catalog.pg_advisory_unlock($1, $2)";
        self.session
            .writer()
            .query_typed(sql, &[(&LOCK_CLASS, Type::INT4), (&self.lock_key(), Type::INT4)])
            .await?;
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.ready.notes.clone();
        if self.ready.choice.is_some()
            && !self.ready.places_are_seen(self.session.pages.is_some(), self.session.server)
        {
            notes.push(PLACES_NOT_SEEN.to_owned());
        }
        if self.ready.code.triggers_fire() {
            notes.push("triggers fire for every re-toasted row".to_owned());
        }
        notes
    }
}

/// `program_limit_exceeded`: a row does not fit on a page.
pub(crate) const LIMIT: &str = "54000";

/// Why the server refused a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) sqlstate: String,
    /// Whether the row does not fit in an index.
    pub(crate) is_of_index: bool,
    /// Only the primary message: DETAIL and HINT may contain values.
    pub(crate) text: String,
}

/// `internal_error`, as GiST has it for an entry of two keys that does not fit.
const INTERNAL: &str = "XX000";

/// The files of the server that raise these for entries of indexes.
const INDEX_FILES: [&str; 7] = [
    "nbtutils.c",
    "indextuple.c",
    "ginentrypage.c",
    "gist.c",
    "gistutil.c",
    "spgdoinsert.c",
    "brin_pageops.c",
];

impl From<&tokio_postgres::Error> for Reason {
    fn from(error: &tokio_postgres::Error) -> Reason {
        let Some(db) = error.as_db_error() else {
            return Reason { sqlstate: String::new(), is_of_index: false, text: error.to_string() };
        };
        let sqlstate = db.code().code();
        let file = db.file().and_then(|path| path.rsplit('/').next());
        Reason {
            sqlstate: sqlstate.to_owned(),
            is_of_index: [LIMIT, INTERNAL].contains(&sqlstate)
                && file.is_some_and(|file| INDEX_FILES.contains(&file)),
            text: db.message().to_owned(),
        }
    }
}

impl Reason {
    /// The reason for skipping the row at this address.
    pub(crate) fn row(self, ctid: String) -> SkippedRow {
        SkippedRow {
            ctid,
            reason: self.text,
            sqlstate: Some(self.sqlstate).filter(|state| !state.is_empty()),
        }
    }
}

/// First key of the advisory lock that shows that a table is being retoasted; the second is the table's OID.
pub const LOCK_CLASS: i32 = 0x746f_6173;

/// A wait of this length is reported.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// How long to wait for another retoast of the table: the session of one that was killed ends after a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts to take the table's lock.
const LOCK_AGAIN: Duration = Duration::from_millis(250);

/// How a task ended; what was done before an error is reported too.
pub(crate) type TaskEnd = (Option<TaskReport>, Result<()>);

/// The choice shown when values are left as stored.
pub(crate) const AS_STORED: &str = "as stored";

/// Describes the table of a report.
pub(crate) fn subject(
    ready: &PreparedTable,
    pages: Option<&Pageinspect>,
    server: &Server,
) -> Subject {
    Subject {
        relation: ready.relation.display_name(),
        shard: None,
        columns: ready.targets.iter().map(|target| target.name.clone()).collect(),
        toaster: ready.choice.as_ref().map_or(AS_STORED.to_owned(), |choice| choice.judge.choice()),
        policy: ready.choice.as_ref().and_then(|choice| choice.judge.policy()),
        source: match pages {
            Some(_) => ScanSource::Pageinspect,
            None => ScanSource::Functions,
        },
        places_seen: ready.places_are_seen(pages.is_some(), server),
        places_are_chosen: ready.places_are_chosen(server),
        has_toasters: server.has_toasters,
    }
}
