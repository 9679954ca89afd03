//! Runs `toastctl advise-threshold`: from arguments to output and exit code.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::advise::{AdviseArgs, Emit};
use super::exit::{Exit, Failure};
use super::terminal::{self, ReadingProgress};
use crate::advise::candidate::Narrowing;
use crate::advise::result::Report;
use crate::advise::run::{AdviseError, Advisor, Options};
use crate::report::{advise, advise_plot};
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog::{self, RelationKind};
use crate::source::live::server::Server;

/// Does what the arguments say.
pub(super) fn run(args: &AdviseArgs) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    let reports = runtime.block_on(live(args))?;
    write(args, &reports)
}

async fn live(args: &AdviseArgs) -> Result<Vec<Report>, Failure> {
    let session = SessionOptions::read_only("advise-threshold");
    let mut warn = |warning: &str| tell(&format!("warning: {warning}"));
    let connection =
        args.connection.connect(&session, &mut warn).await.map_err(|e| Failure::from(&e))?;
    let connection = Arc::new(connection);
    let refused = |error: LiveError| Failure::new(Exit::Incomplete, error.to_string());
    let server = Server::ask(connection.client()).await.map_err(refused)?;
    let oids = catalog::find(connection.client(), &server.database, &args.tables)
        .await
        .map_err(refused)?;
    let stop = Arc::new(AtomicBool::new(false));
    let advisor = Advisor {
        connection: Arc::clone(&connection),
        server,
        options: options(args),
        progress: Arc::new(ReadingProgress::default()),
        stop: Arc::clone(&stop),
    };
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let mut reports = Vec::new();
    for oid in oids {
        let relation = match catalog::describe(connection.client(), oid).await.map_err(refused)? {
            Some(relation) => relation,
            // Dropped since it was listed.
            None => continue,
        };
        if relation.kind == RelationKind::Toast {
            return Err(Failure::usage(format!(
                "relation \"{}\" is a TOAST relation, which has no settings of its own\n\
                 HINT:  Name the table that it belongs to.",
                relation.display_name()
            )));
        }
        match advisor.relation(&relation).await {
            Ok(found) => reports.extend(found),
            Err(error) => return Err(failure(&error, &connection).await),
        }
    }
    Ok(reports)
}

fn options(args: &AdviseArgs) -> Options {
    Options {
        columns: args.column.clone(),
        narrowing: Narrowing {
            storages: args.storage.clone(),
            methods: args.method.clone(),
            targets: args.target.clone(),
            policies: args.policy.clone(),
        },
        sample: args.sample,
        seed: args.seed,
        exact: args.exact,
        optimize: args.optimize,
        reads_per_write: args.reads_per_write,
    }
}

/// The exit code and message of an error that ends the run.
async fn failure(error: &AdviseError, connection: &Connection) -> Failure {
    if let AdviseError::Live { relation, error: LiveError::Server(statement) } = error
        && (statement.as_db_error().is_none() || connection.is_lost())
    {
        let explained = connection.explain(statement).await;
        if connection.is_lost() {
            return Failure::new(Exit::Connection, format!("{relation}: {explained}"));
        }
    }
    let exit = match error {
        AdviseError::Column(_) | AdviseError::Candidate(_) => Exit::Usage,
        AdviseError::Stopped => Exit::Stopped,
        AdviseError::Live { .. } | AdviseError::NoPages { .. } | AdviseError::ExactOnStandby => {
            Exit::Incomplete
        }
    };
    Failure::new(exit, error.to_string())
}

fn write(args: &AdviseArgs, reports: &[Report]) -> Result<Exit, Failure> {
    let unwritable =
        |error: io::Error| Failure::new(Exit::Incomplete, format!("could not write: {error}"));
    if let Some(path) = &args.plot_file {
        std::fs::write(path, advise_plot::svg(reports)).map_err(|error| {
            Failure::new(
                Exit::Incomplete,
                format!("could not write \"{}\": {error}", path.display()),
            )
        })?;
    }
    let mut out = terminal::stdout();
    let width = terminal::output_width();
    let written = match args.emit {
        Some(emit) => emitted(emit, reports, &mut out),
        None => advise::write(reports, args.format, width, args.plot, &mut out),
    };
    match written {
        Err(error) if !terminal::is_closed_pipe(&error) => return Err(unwritable(error)),
        _ => {}
    }
    let problems: u64 = reports.iter().map(|report| report.problem_count).sum();
    for problem in reports.iter().flat_map(|report| &report.problems).take(10) {
        tell(&format!("error: {}", crate::report::table::printable(problem)));
    }
    Ok(if problems > 0 { Exit::Incomplete } else { Exit::Ok })
}

fn emitted(emit: Emit, reports: &[Report], out: &mut impl Write) -> io::Result<()> {
    for report in reports {
        let recommendation = &report.recommendation;
        match (emit, &recommendation.command) {
            (_, None) => {
                let mark = if emit == Emit::Sql { "--" } else { "#" };
                let place = format!("{}, column {}", report.relation, report.column);
                let place = crate::report::table::printable(&place);
                writeln!(out, "{mark} {place}: leave it as it is")?;
            }
            (Emit::Sql, Some(_)) => {
                for statement in &recommendation.sql {
                    writeln!(out, "{statement}")?;
                }
            }
            (Emit::Command, Some(command)) => writeln!(out, "{command}")?,
        }
    }
    out.flush()
}

/// One line on standard error.
fn tell(text: &str) {
    // Nobody to tell is no reason to stop.
    let _ = writeln!(io::stderr(), "toastctl: {text}");
}
