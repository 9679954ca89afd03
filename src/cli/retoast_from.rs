//! `toastctl retoast --from-toaster`: from arguments to report and exit code.

use super::exit::{Exit, Failure};
use super::retoast::RetoastArgs;
use super::retoast_progress::Progress;
use super::retoast_session::{Session, need_pages, options, print, told, worst};
use crate::retoast::departure::leave::Leaving;
use crate::retoast::goal::toaster::Toaster;
use crate::retoast::judge::pluggable;
use crate::retoast::pace::keeper::Keeper;
use crate::retoast::result::{Report, SCHEMA};
use crate::retoast::sweep::error::RunError;
use crate::server::select::select;
use crate::server::{LiveError, toasters};

/// Does what the arguments say.
pub(super) async fn run(
    args: &RetoastArgs,
    session: &Session,
    keeper: Keeper,
    watch: &Progress,
    name: &str,
) -> Result<Exit, Failure> {
    let client = session.writer.client();
    let known = failed(session, toasters::ask(client, &session.server).await).await?;
    let toaster = pluggable::foreign(known.as_ref(), name)
        .map_err(|error| Failure::usage(error.to_string()))?
        .oid;
    let eyes = session.eyes(args)?;
    let pageinspect = need_pages(&eyes)?.clone();
    let wanted = if args.tables.is_empty() {
        None
    } else {
        let found = select(&session.writer, &session.server.database, &args.tables).await;
        Some(failed(session, found).await?.oids().into_iter().collect())
    };
    let Some(connections) = session.connections(args, 1, keeper).await?.pop() else {
        return Err(Failure::new(Exit::Connection, "no connection"));
    };
    let leaving = Leaving {
        writers: &connections.writers,
        reader: &connections.reader,
        keeper: &connections.keeper,
        server: &session.server,
        pageinspect: &pageinspect,
        options: &options(args, session, Toaster::Extended, eyes),
        allow_triggers: args.allow_triggers,
        trust_owner_code: args.trust_owner_code,
        watch,
        stop: session.control.stop_flag(),
        toasters: &known.unwrap_or_default(),
        toaster,
        name,
        wanted,
    };
    let left = match leaving.run().await {
        Ok(left) => left,
        Err(RunError::Live(error)) => {
            let used = [&connections.writers[..], std::slice::from_ref(&connections.reader)];
            return Err(session.failure("", &error, &used.concat()).await);
        }
        Err(error) => return Err(Failure::new(Exit::Connection, error.to_string())),
    };
    let mut exit = worst(&left.tables);
    if session.stopped() {
        exit = Exit::Stopped;
    } else if !left.departure.unfit.is_empty() || !(left.departure.gone || args.dry_run) {
        exit = exit.max(Exit::Incomplete);
    }
    let report = Report {
        schema: SCHEMA,
        dry_run: args.dry_run,
        tables: left.tables,
        departure: Some(left.departure),
    };
    print(args, &report)?;
    Ok(told(exit))
}

/// The value, or the failure as the session explains it.
async fn failed<T>(session: &Session, result: Result<T, LiveError>) -> Result<T, Failure> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(session.failure("", &error, &[]).await),
    }
}
