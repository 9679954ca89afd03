//! Goes on in new sessions where those of a sweep have ended under it: the server gives up a session that
//! keeps a transaction waiting, and networks fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exit::Failure;
use super::retoast_session::Session;
use crate::retoast::check::origin;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::pace::gauges;
use crate::retoast::pace::keeper::Keeper;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// How long new sessions are tried for, and how often.
const AGAIN_FOR: Duration = Duration::from_secs(10);
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How many sessions in a row may end before any row is re-toasted.
pub(super) const ENDS: u32 = 5;

/// The sessions that a table is swept with.
pub(super) struct Sessions {
    /// For batches, one for each job.
    pub(super) writers: Vec<Arc<Connection>>,
    pub(super) reader: Arc<Connection>,
}

impl Sessions {
    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Connection>> {
        [&self.writers[..], std::slice::from_ref(&self.reader)].concat()
    }

    /// Why the session has ended that gave this error, if it was neither an administrator's wish nor the
    /// server's end.
    pub(super) async fn end(&self, error: &LiveError) -> Option<String> {
        let LiveError::Server(statement) = error else { return None };
        for connection in self.all() {
            if !connection.is_lost() && statement.as_db_error().is_some() {
                continue;
            }
            let Some(reason) = error.lost(&connection).await else { continue };
            let code = statement.code().map(|code| code.code().to_owned());
            let wished = code
                .or_else(|| connection.end_code())
                .is_some_and(|code| !matches!(code.as_str(), "25P03" | "25P04" | "57P05"));
            return (!wished).then(|| reason.lines().next().unwrap_or_default().to_owned());
        }
        None
    }

    /// Makes new sessions in place of those that have ended.
    ///
    /// # Errors
    /// The last one, after some time.
    pub(super) async fn renew(
        &mut self,
        session: &Session,
        origin: Option<&str>,
        keeper: &Keeper,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        for at in 0..=self.writers.len() {
            let Some(old) = self.writers.get_mut(at).or(Some(&mut self.reader)) else { continue };
            while old.is_lost() {
                match another(session, old, origin.filter(|_| at == 0), keeper).await {
                    Ok(new) => *old = new,
                    Err(failure) if session.stopped() || began.elapsed() > AGAIN_FOR => {
                        return Err(failure);
                    }
                    Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
                }
            }
        }
        Ok(())
    }
}

async fn another(
    session: &Session,
    old: &Connection,
    origin: Option<&str>,
    keeper: &Keeper,
) -> Result<Arc<Connection>, Failure> {
    let new = session.open_another(old).await?;
    let set_up = async {
        if let Some(name) = origin {
            origin::set_up(new.client(), name).await?;
        }
        Ok::<_, Refusal>(gauges::backend(new.client()).await?)
    };
    match set_up.await {
        Ok(process) => keeper.measuring().know_own(&[process]),
        Err(refusal) => return Err(session.refusal(&refusal).await),
    }
    Ok(new)
}
