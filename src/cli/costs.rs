//! `toastctl inspect --explain` and `--jsonb-keys`: what the storage of columns costs, and what keys of documents do.

use std::io::{self, BufWriter, Stdout};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect_request::{File, InspectArgs};
use super::terminal::{self, Plain, ReadingProgress, tell};
use crate::advise::advisor::{Advisor, Options};
use crate::advise::explain::result::Explanation;
use crate::advise::run;
use crate::keys::gather::KeyRequest;
use crate::keys::result::KeysReport;
use crate::keys::{files, live};
use crate::report::document::{Format, Printed, Writer};
use crate::report::table::printable;
use crate::server::connect::SessionOptions;
use crate::server::sink::{Failed, RunError, Sink};

/// What the storage of these tables' columns costs.
pub(super) async fn explain(args: &InspectArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("inspect");
    let connection = terminal::connected(&args.connection, &session).await?;
    let options =
        Options { sample: args.sample.sample, seed: args.sample.seed(), ..Options::default() };
    let advisor = Advisor::open(connection, options, Arc::new(ReadingProgress::default())).await?;
    let mut output = Output::new::<Explanation>(args);
    let interrupt = terminal::interrupted();
    let ended = run::explained(&advisor, &args.tables.tables, &mut output, interrupt).await;
    output.end(ended)
}

/// Keys that are named for people.
const KEYS_SHOWN: usize = 15;

/// What the keys of these tables' documents cost.
pub(super) async fn keys(args: &InspectArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("inspect");
    let connection = terminal::connected(&args.connection, &session).await?;
    let options = Options {
        columns: columns(args),
        sample: args.sample.sample,
        seed: args.sample.seed(),
        ..Options::default()
    };
    let advisor = Advisor::open(connection, options, Arc::new(ReadingProgress::default())).await?;
    let mut output = Output::new::<KeysReport>(args);
    let interrupt = terminal::interrupted();
    let asked = (request(args), args.source.source);
    let ended = live::tables(&advisor, &args.tables.tables, asked, &mut output, interrupt).await;
    output.end(ended)
}

/// What the keys of the documents in a relation file cost.
pub(super) fn keys_of_file(args: &InspectArgs, file: &File) -> Result<Exit, Failure> {
    let progress = ReadingProgress::default();
    let sample = (args.sample.sample, args.sample.seed());
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
    let given = args.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let for_people =
        matches!(args.format.format, Format::Table | Format::Markdown).then_some(KEYS_SHOWN);
    KeyRequest { depth: args.depth, limit: given.or(for_people), flavor: args.flavor }
}

/// Problems that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: usize = 10;

/// The output of `--explain` and of `--jsonb-keys`.
pub(super) struct Output {
    writer: Writer<Plain<BufWriter<Stdout>>>,
    found: bool,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
}

impl Output {
    pub(super) fn new<R: Printed>(args: &InspectArgs) -> Output {
        let out = terminal::stdout_for_people(args.format.format);
        let writer = Writer::new::<R>(out, args.format.format, terminal::output_width());
        Output { writer, found: false, failed: None }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = match self.failed {
            Some(_) if self.found => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Ok,
        };
        terminal::end(ended, exit, |_| if self.found { self.writer.finish() } else { Ok(()) })
    }
}

impl<R: Printed> Sink<R> for Output {
    fn found(&mut self, report: R) -> io::Result<()> {
        self.found = true;
        let problems = report.problems();
        if problems.count() > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        for problem in problems.kept().iter().take(PROBLEMS_SHOWN) {
            tell(&format!("error: {}", printable(&problem.to_string())));
        }
        self.writer.report(&report)
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}
