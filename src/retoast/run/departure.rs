//! `--from-toaster`: which toaster and tables are meant, and in which sessions everything is taken from it.

use std::cell::Cell;
use std::sync::Arc;

use super::request::{DepartureRequest, Request, need_pages, source};
use super::sessions::Sessions;
use crate::judge::pluggable;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::departure::run::DepartureRun;
use crate::retoast::listener::Listener;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::result::{DepartureReport, Results};
use crate::retoast::task::session::Session;
use crate::server::select::select;
use crate::server::sink::{Failed, Kind};
use crate::server::toasters;

/// Does it; gives what is left of the toaster.
///
/// # Errors
/// That there is no such toaster, or what nothing can go on after.
pub(crate) async fn run(
    sessions: &Sessions,
    request: &Request,
    from: &DepartureRequest,
    keeper: Keeper,
    listener: &dyn Listener,
    results: &Results<'_>,
) -> Result<DepartureReport, Failed> {
    let (first, server) = (&sessions.first, &sessions.server);
    let known = async {
        let known = toasters::ask(first.client(), server).await?;
        let toaster = pluggable::foreign(known.as_ref(), &from.toaster)?.oid;
        Ok::<_, Refusal>((known.unwrap_or_default(), toaster))
    };
    let (toasters, toaster) = match known.await {
        Ok(known) => known,
        Err(refusal) => return Err(sessions.failed(&refusal).await),
    };
    let source = source(server, request.source, results)?;
    let pageinspect = need_pages(&source)?;
    let wanted = match request.tables.as_slice() {
        [] => None,
        tables => match select(first, &server.database, tables).await {
            Ok(found) => Some(found.oids().into_iter().collect()),
            Err(error) => return Err(sessions.failed(&error.into()).await),
        },
    };
    let jobs = request.options.tuning.jobs;
    let Some(worker) = sessions.workers(1, jobs, keeper, &request.wants).await?.pop() else {
        return Err(Failed::new(Kind::Lost, "no connection"));
    };
    let session = Session {
        connections: worker.connections.clone(),
        server,
        options: &request.options,
        source: &source,
        idle_limit: sessions.idle_limit,
        throttle: &worker.keeper,
        listener,
        stop: sessions.control.stopping(),
    };
    let work = DepartureRun {
        session,
        pageinspect,
        request: from,
        toasters: &toasters,
        toaster,
        wanted,
        results,
        swept: Cell::new(0),
    };
    match work.run().await {
        Ok(report) => Ok(report),
        Err(error) => {
            let used = [&worker.connections.all()[..], &[Arc::clone(first)]].concat();
            Err(error.failed(&used).await)
        }
    }
}
