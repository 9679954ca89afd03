//! `toastctl inspect --jsonb-keys`: from arguments to output and exit code.

use std::io::{self, BufWriter, Stdout};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use super::inspect_request::File;
use super::terminal::{self, Plain, ReadingProgress, tell};
use crate::advise::advisor::Advisor;
use crate::advise::keys::files;
use crate::advise::keys::gather::KeyRequest;
use crate::advise::keys::result::KeysReport;
use crate::advise::request::Options;
use crate::advise::run;
use crate::report::format::Format;
use crate::report::keys::Writer;
use crate::report::table::printable;
use crate::server::connect::SessionOptions;
use crate::server::sink::{Failed, RunError, Sink};

/// Problems that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: usize = 10;
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
    let mut output = Output::new(args);
    let interrupt = terminal::interrupted();
    let asked = (request(args), args.source.into());
    let ended = run::keys(&advisor, &args.tables, asked, &mut output, interrupt).await;
    output.end(ended)
}

/// Does what the arguments say, on a relation file.
pub(super) fn relation_file(args: &InspectArgs, file: &File) -> Result<Exit, Failure> {
    let progress = ReadingProgress::default();
    let sample = (args.sample, args.seed);
    let target = file.target(args);
    let reports = files::relation_file(&target, &columns(args), request(args), sample, &progress)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut output = Output::new(args);
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

/// Where reports are printed as they come.
struct Output {
    writer: Writer<Plain<BufWriter<Stdout>>>,
    found: bool,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
}

impl Output {
    fn new(args: &InspectArgs) -> Output {
        let out = terminal::stdout_for_people(args.format);
        let writer = Writer::new(out, args.format, terminal::output_width());
        Output { writer, found: false, failed: None }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let exit = match self.failed {
            Some(_) if self.found => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Ok,
        };
        terminal::end(ended, exit, |_| if self.found { self.writer.finish() } else { Ok(()) })
    }
}

impl Sink<KeysReport> for Output {
    fn found(&mut self, report: KeysReport) -> io::Result<()> {
        self.found = true;
        if report.problem_count > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        for problem in report.problems.iter().take(PROBLEMS_SHOWN) {
            tell(&format!("error: {}", printable(problem)));
        }
        self.writer.report(report)
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}
