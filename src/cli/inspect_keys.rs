//! `toastctl inspect --jsonb-keys`: from arguments to output and exit code.

use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use super::inspect_in_turn::Output;
use super::inspect_request::File;
use super::terminal::{self, ReadingProgress};
use crate::advise::advisor::{Advisor, Options};
use crate::keys::gather::KeyRequest;
use crate::keys::result::KeysReport;
use crate::keys::{files, live};
use crate::report::document::Format;
use crate::server::connect::SessionOptions;
use crate::server::sink::{RunError, Sink};

/// Keys that are named for people.
const KEYS_SHOWN: usize = 15;

/// Does what the arguments say, on a server.
pub(super) async fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("inspect");
    let connection = terminal::connected(&args.connection, &session).await?;
    let options = Options {
        columns: columns(args),
        sample: args.sample,
        seed: args.seed,
        ..Options::default()
    };
    let advisor = Advisor::open(connection, options, Arc::new(ReadingProgress::default())).await?;
    let mut output = Output::new::<KeysReport>(args);
    let interrupt = terminal::interrupted();
    let asked = (request(args), args.source.into());
    let ended = live::tables(&advisor, &args.tables, asked, &mut output, interrupt).await;
    output.end(ended)
}

/// Does what the arguments say, on a relation file.
pub(super) fn relation_file(args: &InspectArgs, file: &File) -> Result<Exit, Failure> {
    let progress = ReadingProgress::default();
    let sample = (args.sample, args.seed);
    let target = file.target(args);
    let reports = files::relation_file(&target, &columns(args), request(args), sample, &progress)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut output = Output::new::<KeysReport>(args);
    let found = reports.into_iter().try_for_each(|report| output.found(report));
    output.end(found.map_err(RunError::Output))
}

fn columns(args: &InspectArgs) -> Vec<String> {
    args.jsonb_keys.iter().flatten().cloned().collect()
}

fn request(args: &InspectArgs) -> KeyRequest {
    let given = args.overview.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let for_people = matches!(args.format, Format::Table | Format::Markdown).then_some(KEYS_SHOWN);
    KeyRequest { depth: args.depth, limit: given.or(for_people), flavor: args.flavor.into() }
}
