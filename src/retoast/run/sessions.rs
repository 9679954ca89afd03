//! The sessions that a run works with. All are opened here: each is made this client's own, and is known for
//! one of this program's where other active sessions are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::retoast::check::preflight;
use crate::retoast::check::preflight::set_up_origin;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::pace::control::Control;
use crate::retoast::pace::gauges;
use crate::retoast::pace::keeper::{Keeper, Wants};
use crate::retoast::pace::measuring::OwnProcesses;
use crate::retoast::task::session::Connections;
use crate::server::LiveError;
use crate::server::about::Server;
use crate::server::connect::{Connection, SessionOptions};
use crate::server::sink::Failed;

/// How long new sessions are tried for in place of those that have ended, and how often.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The first session, from which the others are made, and what is known of the server.
pub(crate) struct Sessions {
    pub(crate) first: Arc<Connection>,
    pub(crate) server: Server,
    pub(crate) control: Arc<Control>,
    /// How long a batch may wait for this program before the server gives its locks back.
    pub(crate) idle_limit: Duration,
    /// When the server was started.
    started: String,
    /// The replication origin of what is written, which one session alone can have.
    origin: Option<String>,
    ours: Arc<OwnProcesses>,
}

/// The sessions that sweep one table at a time.
pub(crate) struct WorkerSessions {
    pub(crate) connections: Connections,
    /// Measures in one of its own.
    pub(crate) keeper: Keeper,
    /// When the server of these sessions was started.
    started: String,
}

/// How a session has ended.
pub(crate) struct End {
    /// What was said last.
    pub(crate) reason: String,
    /// Whether the server was told to end it, or is being stopped, which the server does not tell apart.
    pub(crate) by_administrator: bool,
}

impl Sessions {
    /// With the connection for measuring.
    ///
    /// # Errors
    /// The server's, or that a pooler lends its sessions.
    pub(crate) async fn open(
        first: Connection,
        control: Arc<Control>,
        origin: Option<String>,
    ) -> Result<(Sessions, Connection), Failed> {
        let first = Arc::new(first);
        let measuring = measuring(&first).await?;
        let connections = [Arc::clone(&first)];
        // before anything else: until then nothing is set that outlives a transaction
        if let Err(refusal) = preflight::own_sessions(&first, &measuring).await {
            return Err(refusal.failed(&connections).await);
        }
        let asked = Instant::now();
        let server = match Server::ask(first.client()).await {
            Ok(server) => server,
            Err(error) => return Err(Failed::of(&error, &connections).await),
        };
        let ours = Arc::new(OwnProcesses::default());
        let found = async {
            let idle_limit = gauges::idle_limit(first.client(), asked.elapsed()).await?;
            let started = gauges::started(first.client()).await?;
            ours.add(&first).await?;
            Ok::<(Duration, String), LiveError>((idle_limit, started))
        };
        match found.await {
            Ok((idle_limit, started)) => {
                let sessions =
                    Sessions { first, server, control, idle_limit, started, origin, ours };
                Ok((sessions, measuring))
            }
            Err(error) => Err(Failed::of(&error, &connections).await),
        }
    }

    /// What measures on this connection.
    ///
    /// # Errors
    /// As [`Keeper::open`].
    pub(crate) async fn keeper(
        &self,
        measuring: Connection,
        wants: Wants,
        note: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Keeper, Failed> {
        let open = async {
            self.ours.add(&measuring).await?;
            let (control, ours) = (Arc::clone(&self.control), Arc::clone(&self.ours));
            Keeper::open(Arc::new(measuring), control, ours, wants, note).await
        };
        match open.await {
            Ok(keeper) => Ok(keeper),
            Err(refusal) => Err(self.failed(&refusal).await),
        }
    }

    /// Has the first session write under the replication origin, if one is wanted.
    ///
    /// # Errors
    /// As [`set_up_origin`].
    pub(crate) async fn set_origin(&self) -> Result<(), Failed> {
        match &self.origin {
            Some(name) => match set_up_origin(self.first.client(), name).await {
                Ok(()) => Ok(()),
                Err(refusal) => Err(self.failed(&refusal).await),
            },
            None => Ok(()),
        }
    }

    /// Sessions for so many sweeps side by side, with so many writers each, the first of them with this keeper.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn workers(
        &self,
        sweeps: u16,
        jobs: usize,
        keeper: Keeper,
        wants: &Wants,
    ) -> Result<Vec<WorkerSessions>, Failed> {
        let (mut all, mut first) = (Vec::new(), Some(keeper));
        for sweep in 0..sweeps {
            let writer = match sweep {
                0 => Arc::clone(&self.first),
                _ => self.another(&self.first).await?,
            };
            let mut others = Vec::new();
            for _ in 1..jobs {
                others.push(self.another(&self.first).await?);
            }
            let keeper = match first.take() {
                Some(keeper) => keeper,
                // what there is to say the first one has said
                None => {
                    let connection = measuring(&self.first).await?;
                    self.keeper(connection, wants.clone(), &mut |_| {}).await?
                }
            };
            let reader = self.another(&self.first).await?;
            let connections = Connections { writer, others, reader };
            all.push(WorkerSessions { connections, keeper, started: self.started.clone() });
        }
        Ok(all)
    }

    /// Another session like this one.
    async fn another(&self, like: &Connection) -> Result<Arc<Connection>, Failed> {
        let opened = like.open_another().await.map_err(|error| Failed::from(&error))?;
        let set_up = async {
            opened.make_own().await?;
            self.ours.add(&opened).await
        };
        match set_up.await {
            Ok(()) => Ok(Arc::new(opened)),
            Err(error) => Err(self.failed(&error.into()).await),
        }
    }

    /// The first session, or another one like it where that has ended.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn one(&self) -> Result<Arc<Connection>, Failed> {
        if self.first.is_lost() {
            self.another(&self.first).await
        } else {
            Ok(Arc::clone(&self.first))
        }
    }

    /// Whether the server of these sessions was stopped and is there again: waits for it for some time.
    pub(crate) async fn restarted(&self, worker: &mut WorkerSessions) -> bool {
        let began = Instant::now();
        while !self.control.stopped() && began.elapsed() <= AGAIN_FOR {
            let found = async {
                let opened = worker.connections.reader.open_another().await.ok()?;
                gauges::started(opened.client()).await.ok()
            };
            if let Some(started) = found.await {
                return std::mem::replace(&mut worker.started, started.clone()) != started;
            }
            let pause = tokio::time::sleep(AGAIN_AFTER);
            self.control.stopping().run_until_cancelled(pause).await;
        }
        false
    }

    /// Opens new sessions in place of those that have ended.
    ///
    /// # Errors
    /// The last one, after some time.
    pub(crate) async fn renew(&self, worker: &mut WorkerSessions) -> Result<(), Failed> {
        let began = Instant::now();
        for (at, old) in worker.connections.iter_mut().enumerate() {
            let origin = self.origin.as_deref().filter(|_| at == 0);
            while old.is_lost() {
                match self.in_place_of(old, origin).await {
                    Ok(new) => *old = new,
                    Err(failed) if self.control.stopped() || began.elapsed() > AGAIN_FOR => {
                        return Err(failed);
                    }
                    Err(_) => {
                        let pause = tokio::time::sleep(AGAIN_AFTER);
                        self.control.stopping().run_until_cancelled(pause).await;
                    }
                }
            }
        }
        // a server that has crashed may be another one by now
        if let Ok(started) = gauges::started(worker.connections.reader.client()).await {
            worker.started = started;
        }
        Ok(())
    }

    async fn in_place_of(
        &self,
        old: &Connection,
        origin: Option<&str>,
    ) -> Result<Arc<Connection>, Failed> {
        let new = self.another(old).await?;
        if let Some(name) = origin
            && let Err(refusal) = set_up_origin(new.client(), name).await
        {
            return Err(self.failed(&refusal).await);
        }
        Ok(new)
    }

    /// What an error means that the first session gave.
    pub(crate) async fn failed(&self, refusal: &Refusal) -> Failed {
        refusal.failed(&[Arc::clone(&self.first)]).await
    }

    pub(crate) fn stopped(&self) -> bool {
        self.control.stopped()
    }
}

impl WorkerSessions {
    /// How the session has ended that gave this error, if it has.
    pub(crate) async fn end(&self, error: &LiveError) -> Option<End> {
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
            return Some(End { reason, by_administrator });
        }
        None
    }
}

/// A connection for measuring, whose session is never given settings.
async fn measuring(first: &Connection) -> Result<Connection, Failed> {
    let options = SessionOptions {
        lock_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(60),
        ..SessionOptions::read_only("retoast")
    };
    first.open_another_with(&options).await.map_err(|error| Failed::from(&error))
}
