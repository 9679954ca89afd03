//! `toastctl inspect --explain`: from arguments to output and exit code.

use std::io::{self, BufWriter, Stdout};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use super::terminal::{self, Plain, ReadingProgress, tell};
use crate::advise::advisor::Advisor;
use crate::advise::explain::result::Explanation;
use crate::advise::request::Options;
use crate::advise::run;
use crate::report::explain::Writer;
use crate::report::table::printable;
use crate::server::connect::SessionOptions;
use crate::server::sink::{Failed, RunError, Sink};

/// Problems that are printed on standard error; all of them are in the report.
const PROBLEMS_SHOWN: usize = 10;

/// Does what the arguments say.
pub(super) async fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("inspect");
    let connection = terminal::connected(&args.connection, &session).await?;
    let options = Options { sample: args.sample, seed: args.seed, ..Options::default() };
    let advisor = Advisor::open(connection, options, Arc::new(ReadingProgress::default())).await?;
    let out = terminal::stdout_for_people(args.format);
    let writer = Writer::new(out, args.format, terminal::output_width());
    let mut output = Output { writer, found: false, failed: None };
    let interrupt = terminal::interrupted();
    let ended = run::explained(&advisor, &args.tables, &mut output, interrupt).await;
    output.end(ended)
}

/// Where explanations are printed as they come.
struct Output {
    writer: Writer<Plain<BufWriter<Stdout>>>,
    found: bool,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
}

impl Output {
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

impl Sink<Explanation> for Output {
    fn found(&mut self, explanation: Explanation) -> io::Result<()> {
        self.found = true;
        if explanation.problem_count > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        for problem in explanation.problems.iter().take(PROBLEMS_SHOWN) {
            tell(&format!("error: {}", printable(problem)));
        }
        self.writer.explanation(explanation)
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}
