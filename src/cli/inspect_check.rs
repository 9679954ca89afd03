//! Runs `toastctl inspect --check`: from what is asked to findings and exit code.

use std::io::{BufWriter, Stdout};
use std::path::PathBuf;

use super::exit::{Exit, Failure};
use super::inspect::{InspectArgs, ScanToastArg};
use super::inspect_request::{File, SavedText};
use super::terminal::{self, ReadingProgress, tell};
use crate::check::files::{self, FileOptions};
use crate::check::finding::{CheckError, Checked, Finding};
use crate::check::run::{self, CheckRequest, CheckSink};
use crate::check::salvage::SalvageDir;
use crate::disk::desc::TupleDesc;
use crate::inspect::inspector::Inspector;
use crate::report::check::CheckWriter;
use crate::server::about::ServerReport;
use crate::server::sink::{Failed, RunError, Sink};

/// TOAST relations up to this size are read whole unless the user says otherwise.
const TOAST_LIMIT: u64 = 1 << 30;

/// Where findings are printed, and how the run ends by them.
pub(super) struct CheckOutput {
    writer: CheckWriter<BufWriter<Stdout>>,
    damaged: bool,
    incomplete: bool,
}

impl CheckOutput {
    pub(super) fn new(
        args: &InspectArgs,
        server: Option<ServerReport>,
        has_toasters: bool,
    ) -> CheckOutput {
        let width = terminal::output_width();
        let out = terminal::stdout();
        let writer = CheckWriter::new(out, args.format, width, server, has_toasters);
        CheckOutput { writer, damaged: false, incomplete: false }
    }

    pub(super) fn print(&mut self, finding: &Finding) -> std::io::Result<()> {
        self.damaged |= finding.code.severity().is_damage();
        self.writer.finding(finding)
    }

    pub(super) fn relation(&mut self, checked: &Checked) -> std::io::Result<()> {
        self.incomplete |= checked.is_incomplete;
        self.writer.relation(checked)
    }

    /// Says what is left of damaged values, and the first of the statements that give them up.
    fn salvaged(&mut self, salvage: Option<SalvageDir>) -> std::io::Result<()> {
        let Some(salvage) = salvage else { return Ok(()) };
        let (text, statements) = salvage.finish()?;
        tell(&text);
        self.writer.statements(&statements)
    }

    /// Ends the document. Damage counts more than what could not be looked at.
    pub(super) fn end(self) -> Result<Exit, Failure> {
        match self.writer.finish() {
            Err(error) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
            _ if self.damaged => Ok(Exit::Damaged),
            _ if self.incomplete => Ok(Exit::Incomplete),
            _ => Ok(Exit::Ok),
        }
    }
}

/// The directory of `--salvage`.
fn salvage_dir(args: &InspectArgs) -> Result<Option<SalvageDir>, Failure> {
    let create = |dir: &PathBuf| {
        SalvageDir::create(dir).map_err(|error| Failure::usage(format!("--salvage: {error}")))
    };
    args.checking.salvage.as_ref().map(create).transpose()
}

/// Checks relations of a server.
pub(super) async fn relations(args: &InspectArgs, inspector: &Inspector) -> Result<Exit, Failure> {
    let request = CheckRequest {
        tables: args.tables.clone(),
        decompress: !args.checking.no_decompress,
        content: args.checking.deep,
        fail_fast: args.checking.fail_fast,
        toast_limit: match args.scan_toast {
            ScanToastArg::Auto => TOAST_LIMIT,
            ScanToastArg::Always => u64::MAX,
            ScanToastArg::Never => 0,
        },
    };
    let mut output =
        CheckOutput::new(args, Some(inspector.server_report()), inspector.server.has_toasters);
    let mut salvage = salvage_dir(args)?;
    let interrupt = terminal::interrupted();
    let ended = run::check(inspector, &request, salvage.as_mut(), &mut output, interrupt).await;
    match ended {
        Ok(()) => written(output.salvaged(salvage), output),
        Err(RunError::Output(error)) => terminal::unwritable(&error),
        Err(RunError::Failed(failed)) => {
            output.end()?;
            Err(failed.into())
        }
    }
}

impl Sink<Checked> for CheckOutput {
    fn found(&mut self, checked: Checked) -> std::io::Result<()> {
        self.relation(&checked)
    }

    fn failed(&mut self, failed: Failed) {
        self.incomplete = true;
        tell(&format!("error: {}", failed.message));
    }

    fn notice(&mut self, text: &str) {
        tell(text);
    }
}

impl CheckSink for CheckOutput {
    fn finding(&mut self, finding: Finding) -> std::io::Result<()> {
        self.print(&finding)
    }
}

/// Checks a relation file.
pub(super) fn relation_file(args: &InspectArgs, file: &File) -> Result<Exit, Failure> {
    let target = file.target(args);
    let options = FileOptions {
        depth: args.checking.depth(&args.checking.encoding),
        threads: usize::from(args.connections()),
        fail_fast: args.checking.fail_fast,
    };
    let mut output = CheckOutput::new(args, None, false);
    let progress = ReadingProgress::default();
    let mut salvage = salvage_dir(args)?;
    let tell = &mut |finding: Finding| output.print(&finding);
    match files::relation_file(&target, &options, &progress, salvage.as_mut(), tell) {
        Ok(checked) => {
            let told = output.relation(&checked).and_then(|()| output.salvaged(salvage));
            written(told, output)
        }
        Err(CheckError::Output(error)) => terminal::unwritable(&error),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

/// Checks saved pages.
pub(super) fn saved_pages(
    args: &InspectArgs,
    text: SavedText,
    desc: &TupleDesc,
) -> Result<Exit, Failure> {
    let SavedText { name, source } = text;
    let mut output = CheckOutput::new(args, None, false);
    let depth = args.checking.depth(&args.checking.encoding);
    let fail_fast = args.checking.fail_fast;
    let tell = &mut |finding: Finding| output.print(&finding);
    match files::saved_pages(&name, source, desc, depth, fail_fast, tell) {
        Ok(checked) => written(output.relation(&checked), output),
        Err(CheckError::Output(error)) => terminal::unwritable(&error),
        Err(CheckError::Text(error)) => Err(SavedText::unreadable(&name, &error)),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn written(result: std::io::Result<()>, output: CheckOutput) -> Result<Exit, Failure> {
    match result {
        Ok(()) => output.end(),
        Err(error) => terminal::unwritable(&error),
    }
}
