//! `toastctl inspect`: the runs on servers, relation files, saved output, and one value.

use std::io::{self, Write};
use std::sync::Arc;

use super::check;
use super::costs;
use super::exit::{Exit, Failure};
use super::inspect_output::{InspectOutput, OverviewOutput};
use super::inspect_request::{Asked, File, InspectArgs, SavedText, ValuePlace};
use super::terminal::{self, ReadingProgress, tell};
use crate::disk::ByteOrder;
use crate::disk::desc::TupleDesc;
use crate::inspect::inspector::{InspectError, Inspector, Options};
use crate::inspect::offline::{self, ContentFiles, OfflineError};
use crate::inspect::overview::{self, RelationLine};
use crate::inspect::result::RelationReport;
use crate::inspect::run::{self, Output};
use crate::inspect::saved::saved_text;
use crate::offline::target::FileTarget;
use crate::report::document::Format;
use crate::server::connect::SessionOptions;
use crate::server::sink::{RunError, Sink};
use crate::value::anatomy::Anatomy;

/// Does what the arguments say.
pub(super) fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    match Asked::by(args)? {
        Asked::Datum { bytes, order } => datum(args, &bytes, order),
        Asked::File { file, .. } if args.checking.check => check::relation_file(args, &file),
        Asked::Saved { text, desc, .. } if args.checking.check => {
            check::saved_pages(args, text, &desc)
        }
        Asked::File { file, .. } if args.jsonb_keys.is_some() => costs::keys_of_file(args, &file),
        Asked::File { file, value } => relation_file(args, &file, value.as_ref()),
        Asked::Saved { text, desc, order } => saved(args, text, &desc, order),
        Asked::Relations { options, .. } if args.checking.check => {
            let threads = usize::from(args.connections());
            terminal::runtime(threads)?.block_on(checked(args, options))
        }
        Asked::Explanation => terminal::runtime(1)?.block_on(costs::explain(args)),
        Asked::Keys => terminal::runtime(1)?.block_on(costs::keys(args)),
        Asked::Value { table, place, options } => {
            terminal::runtime(1)?.block_on(value(args, &table, &place, options))
        }
        Asked::Relations { request, options } => {
            let threads = usize::from(args.connections());
            terminal::runtime(threads)?.block_on(relations(args, &request, options))
        }
    }
}

/// Connects as often as is read side by side.
async fn inspector(args: &InspectArgs, count: u16, options: Options) -> Result<Inspector, Failure> {
    let session = SessionOptions::read_only("inspect");
    let first = terminal::connected(&args.connection, &session).await?;
    let opened = run::open(first, count, options, Arc::new(ReadingProgress::default())).await;
    opened.map_err(Failure::from)
}

async fn relations(
    args: &InspectArgs,
    request: &run::Request,
    options: Options,
) -> Result<Exit, Failure> {
    let inspector = inspector(args, args.connections(), options).await?;
    let mut interrupt = std::pin::pin!(terminal::interrupted());
    let found = run::find(&inspector, &args.tables.tables, tell, interrupt.as_mut()).await;
    let found = match found {
        Ok(found) => found,
        Err(error) => return InspectOutput::new(args, None).end(Err(error)),
    };
    let server = Some(inspector.server_report());
    if args.wants_overview(&found) {
        let mut output = OverviewOutput::new(args, server);
        let terms = args.terms(request.explains_functions);
        let all = args.tables.tables.is_empty();
        let ended =
            overview::run::run(&inspector, &found, all, terms, &mut output, interrupt).await;
        return output.end(ended);
    }
    args.check_sample()?;
    let mut output = InspectOutput::new(args, server);
    let ended = run::relations(&inspector, request, &found, &mut output, interrupt).await;
    output.end(ended)
}

async fn checked(args: &InspectArgs, options: Options) -> Result<Exit, Failure> {
    let inspector = inspector(args, args.connections(), options).await?;
    check::relations(args, &inspector).await
}

fn relation_file(
    args: &InspectArgs,
    file: &File,
    value: Option<&ValuePlace>,
) -> Result<Exit, Failure> {
    let target = FileTarget { sampling: args.sampling(), ..file.target(args) };
    let contents = args.reassemble.as_ref().map(|dir| ContentFiles { output_dir: dir.as_deref() });
    let unusable = |error: OfflineError| Failure::usage(error.to_string());
    if let Some(ValuePlace { column, ctid }) = value {
        return print_anatomy(args, &offline::value(&target, column, *ctid).map_err(unusable)?);
    }
    let progress = ReadingProgress::default();
    if args.brief {
        let report = offline::relation_file(&target, None, None, &progress).map_err(unusable)?;
        return briefly(args, &report);
    }
    let mut output = InspectOutput::new(args, None);
    let ended = match offline::relation_file(&target, contents, output.rows(), &progress) {
        Ok(report) => output.found(report).map_err(RunError::Output),
        Err(OfflineError::Inspect(InspectError::Output(error))) => Err(RunError::Output(error)),
        Err(error) => return Err(unusable(error)),
    };
    output.end(ended)
}

fn saved(
    args: &InspectArgs,
    text: SavedText,
    desc: &TupleDesc,
    order: ByteOrder,
) -> Result<Exit, Failure> {
    let SavedText { name, source } = text;
    let unreadable = |error: io::Error| SavedText::unreadable(&name, &error);
    if args.brief {
        let (report, _) = saved_text(&name, source, desc, order, None).map_err(unreadable)?;
        return briefly(args, &report);
    }
    let mut output = InspectOutput::new(args, None);
    let (report, unwritten) =
        saved_text(&name, source, desc, order, output.rows()).map_err(unreadable)?;
    let ended = match unwritten {
        Some(error) => Err(error),
        None => output.found(report),
    };
    output.end(ended.map_err(RunError::Output))
}

/// The overview of one report.
fn briefly(args: &InspectArgs, report: &RelationReport) -> Result<Exit, Failure> {
    let mut output = OverviewOutput::new(args, None);
    let found = output.found(RelationLine::of(report, None, None));
    output.end(found.map_err(RunError::Output))
}

/// Takes a value of a server apart.
async fn value(
    args: &InspectArgs,
    table: &str,
    place: &ValuePlace,
    options: Options,
) -> Result<Exit, Failure> {
    let inspector = inspector(args, 1, options).await?;
    let anatomy = run::value(&inspector, table, &place.column, place.ctid).await?;
    print_anatomy(args, &anatomy)
}

/// Describes a datum.
fn datum(args: &InspectArgs, bytes: &[u8], order: ByteOrder) -> Result<Exit, Failure> {
    let (row, used) = offline::datum(bytes, order)
        .map_err(|error| Failure::usage(format!("--datum: {error}")))?;
    let mut output = InspectOutput::of_values(args);
    let written = output.row(&row);
    if used < bytes.len() {
        tell(&format!(
            "warning: {} bytes follow the datum's {used} bytes and were not looked at",
            bytes.len() - used
        ));
    }
    output.end(written.map_err(RunError::Output))
}

/// Prints one value in every detail.
fn print_anatomy(args: &InspectArgs, anatomy: &Anatomy) -> Result<Exit, Failure> {
    let mut out = terminal::stdout_for_people(args.format.format);
    let json = match args.format.format {
        Format::Json => serde_json::to_writer_pretty(&mut out, anatomy),
        Format::Jsonl => serde_json::to_writer(&mut out, anatomy),
        Format::Table | Format::Csv | Format::Markdown => Ok(()),
    };
    let written = match args.format.format {
        Format::Json | Format::Jsonl => {
            json.map_err(io::Error::from).and_then(|()| writeln!(out)).and_then(|()| out.flush())
        }
        // the others are refused beforehand
        Format::Table | Format::Csv | Format::Markdown => {
            crate::report::anatomy::text(anatomy, &mut out)
        }
    };
    match written {
        Err(error) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
        _ if anatomy.problems.is_empty() => Ok(Exit::Ok),
        _ => Ok(Exit::Incomplete),
    }
}
