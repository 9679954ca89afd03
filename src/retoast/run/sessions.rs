//! The sessions that a run works with. All of them are opened here: each is made a session of this client alone, and is
//! recognized as the program's own when active sessions of others are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::retoast::error::Result;
use crate::retoast::listener::{Control, Listener};
use crate::retoast::pace::measuring::OwnProcesses;
use crate::retoast::pace::metrics;
use crate::retoast::pace::throttle::{Throttle, ThrottleOptions};
use crate::retoast::preflight;
use crate::retoast::preflight::set_up_origin;
use crate::retoast::task::session::{Connections, Options, Session};
use crate::server::connect::SessionOptions;
use crate::server::{Connection, LiveError, Pageinspect, Server};

/// How long to try to open new sessions in place of those that have ended, and how often.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The first session, from which the others are made, and facts about the server.
pub(crate) struct Sessions<'a> {
    pub(crate) first: Arc<Connection>,
    pub(crate) server: Server,
    pub(crate) control: Arc<Control>,
    pub(crate) listener: &'a dyn Listener,
    /// How long a batch may wait for this program before the server ends its session and releases its locks.
    pub(crate) idle_limit: Duration,
    /// When the server was started.
    started: String,
    /// The replication origin of what the run writes; only one session can use it.
    origin: Option<String>,
    ours: Arc<OwnProcesses>,
}

/// The sessions of one worker, which sweeps one table at a time.
pub(crate) struct WorkerSessions<'a> {
    pub(crate) connections: Connections,
    /// Measures in a session of its own.
    pub(crate) throttle: Throttle<'a>,
    /// When the server of these sessions was started.
    started: String,
}

/// How a session has ended.
pub(crate) struct SessionEnd {
    /// The last message received.
    pub(crate) reason: String,
    /// Whether an administrator ended the session or the server is shutting down, which the server does not
    /// distinguish.
    pub(crate) by_administrator: bool,
}

impl<'a> Sessions<'a> {
    /// Also returns a connection for measuring.
    ///
    /// # Errors
    /// Any error of the server, or a pooler that shares its sessions among clients.
    pub(crate) async fn open(
        first: &Arc<Connection>,
        control: Arc<Control>,
        listener: &'a dyn Listener,
        origin: Option<String>,
    ) -> Result<(Sessions<'a>, Connection)> {
        let first = Arc::clone(first);
        let measuring = measuring(&first).await?;
        // This comes first: until it has succeeded, nothing may be set that outlives a transaction.
        preflight::own_sessions(&first, &measuring).await?;
        let asked = Instant::now();
        let server = Server::ask(first.client()).await?;
        let idle_limit = metrics::idle_limit(first.client(), asked.elapsed()).await?;
        let started = metrics::started(first.client()).await?;
        let ours = Arc::new(OwnProcesses::default());
        ours.add(&first).await?;
        let sessions =
            Sessions { first, server, control, listener, idle_limit, started, origin, ours };
        Ok((sessions, measuring))
    }

    /// A throttle that measures on this connection.
    ///
    /// # Errors
    /// Like [`Throttle::open`].
    pub(crate) async fn throttle(
        &self,
        measuring: Connection,
        options: &ThrottleOptions,
    ) -> Result<Throttle<'a>> {
        measuring.make_own().await?;
        self.ours.add(&measuring).await?;
        let control = Arc::clone(&self.control);
        let ours = Arc::clone(&self.ours);
        Throttle::open(Arc::new(measuring), control, ours, options.clone(), self.listener).await
    }

    /// Makes the first session write with the replication origin, if one is requested.
    ///
    /// # Errors
    /// Like [`set_up_origin`].
    pub(crate) async fn set_origin(&self) -> Result<()> {
        match &self.origin {
            Some(name) => set_up_origin(self.first.client(), name).await,
            None => Ok(()),
        }
    }

    /// Opens the sessions for this number of workers, with this number of jobs each. The first worker uses the given
    /// throttle.
    pub(crate) async fn workers(
        &self,
        sweeps: u16,
        jobs: usize,
        throttle: Throttle<'a>,
    ) -> Result<Vec<WorkerSessions<'a>>> {
        let mut all = Vec::new();
        // what this user may not measure is not among these, and is not noted again
        let options = throttle.options.clone();
        let mut first = Some(throttle);
        for sweep in 0..sweeps {
            let writer = match sweep {
                0 => Arc::clone(&self.first),
                _ => self.another(&self.first).await?,
            };
            let mut others = Vec::new();
            for _ in 1..jobs {
                others.push(self.another(&self.first).await?);
            }
            let throttle = match first.take() {
                Some(throttle) => throttle,
                None => self.throttle(measuring(&self.first).await?, &options).await?,
            };
            let reader = self.another(&self.first).await?;
            let connections = Connections { writer, others, reader };
            all.push(WorkerSessions { connections, throttle, started: self.started.clone() });
        }
        Ok(all)
    }

    /// What the tasks of a worker use.
    pub(crate) fn session<'s>(
        &'s self,
        worker: &'s WorkerSessions<'_>,
        options: &'s Options,
        pages: Option<&'s Pageinspect>,
    ) -> Session<'s> {
        Session {
            connections: worker.connections.clone(),
            server: &self.server,
            options,
            pages,
            idle_limit: self.idle_limit,
            throttle: &worker.throttle,
            listener: self.listener,
            stop: self.control.stopping(),
        }
    }

    /// Opens another session like this one.
    async fn another(&self, like: &Connection) -> Result<Arc<Connection>> {
        let opened = like.open_another().await?;
        opened.make_own().await?;
        self.ours.add(&opened).await?;
        Ok(Arc::new(opened))
    }

    /// The first session, or another one like it if that has ended.
    ///
    /// # Errors
    /// No session can be opened.
    pub(crate) async fn first_usable(&self) -> Result<Arc<Connection>> {
        if self.first.is_lost() {
            self.another(&self.first).await
        } else {
            Ok(Arc::clone(&self.first))
        }
    }

    /// Whether the server was restarted since these sessions were opened; waits for it for a limited time.
    pub(crate) async fn restarted(&self, worker: &mut WorkerSessions<'_>) -> bool {
        let began = Instant::now();
        while !self.control.stopped() && began.elapsed() <= AGAIN_FOR {
            let found = async {
                let opened = worker.connections.reader.open_another().await.ok()?;
                metrics::started(opened.client()).await.ok()
            };
            if let Some(started) = found.await {
                return std::mem::replace(&mut worker.started, started.clone()) != started;
            }
            self.control.sleep(AGAIN_AFTER).await;
        }
        false
    }

    /// Opens new sessions in place of those that have ended.
    ///
    /// # Errors
    /// The last error, after a limited time.
    pub(crate) async fn renew(&self, worker: &mut WorkerSessions<'_>) -> Result<()> {
        let began = Instant::now();
        for (at, old) in worker.connections.iter_mut().enumerate() {
            let origin = if at == 0 { self.origin.as_deref() } else { None };
            while old.is_lost() {
                match self.in_place_of(old, origin).await {
                    Ok(new) => *old = new,
                    Err(error) if self.control.stopped() || began.elapsed() > AGAIN_FOR => {
                        return Err(error);
                    }
                    Err(_) => self.control.sleep(AGAIN_AFTER).await,
                }
            }
        }
        // After a crash, the server may have another start time.
        if let Ok(started) = metrics::started(worker.connections.reader.client()).await {
            worker.started = started;
        }
        Ok(())
    }

    async fn in_place_of(&self, old: &Connection, origin: Option<&str>) -> Result<Arc<Connection>> {
        let new = self.another(old).await?;
        if let Some(name) = origin {
            set_up_origin(new.client(), name).await?;
        }
        Ok(new)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.control.stopped()
    }
}

impl WorkerSessions<'_> {
    /// How the session that returned this error has ended, if it has.
    pub(crate) async fn end(&self, error: &LiveError) -> Option<SessionEnd> {
        let LiveError::Server(statement) = error else { return None };
        for connection in self.connections.iter() {
            if !connection.is_lost() && statement.as_db_error().is_some() {
                continue;
            }
            let Some(reason) = error.lost(connection).await else { continue };
            let code = statement.code().map(|code| code.code().to_owned());
            let by_administrator = code
                .or_else(|| connection.end_code())
                .is_some_and(|code| !matches!(code.as_str(), "25P03" | "25P04" | "57P05"));
            let reason = reason.lines().next().unwrap_or_default().to_owned();
            return Some(SessionEnd { reason, by_administrator });
        }
        None
    }
}

/// Opens a connection for measuring.
async fn measuring(first: &Connection) -> Result<Connection> {
    let options = SessionOptions {
        lock_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(60),
        // on a node of Citus, it must see shards too
        settings: first.session().settings.clone(),
        ..SessionOptions::read_only("retoast")
    };
    Ok(first.open_another_with(&options).await?)
}
