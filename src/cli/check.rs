//! `toastctl check`: its arguments, the runs, and where findings are printed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::arguments::{AllowArg, FormatArg, JobsArg, TablesArg};
use super::citus::NodesArg;
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::fail_on;
use super::files::{File, FileArgs, SavedArgs, SavedText, unreadable};
use super::fleet::{Database, Fleet, FleetArgs};
use super::inspect::inspector;
use super::terminal::{self, Out, Plain, ReadingProgress, Ui};
use crate::check::alarm::{Condition, Counts};
use crate::check::files::{self, FileOptions};
use crate::check::finding::{CheckError, Checked, Finding};
use crate::check::run::{self, CheckRequest, CheckResult};
use crate::check::salvage_dir::SalvageDir;
use crate::check::saved_pages;
use crate::check::subject::Depth;
use crate::inspect::inspector::Options;
use crate::inspect::run as live;
use crate::message::Message;
use crate::offline::target::FileTarget;
use crate::report::check::CheckWriter;
use crate::server::about::ServerReport;
use crate::server::pattern::NamePattern;
use crate::server::sink::{Failed, Kind, RunError, Sink};

/// TOAST relations up to this size are read whole unless the user says otherwise.
const TOAST_LIMIT: u64 = 1 << 30;

/// Whether TOAST relations are read whole, chunk by chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ScanToast {
    /// TOAST relations of at most 1 GB
    #[default]
    Auto,
    /// All TOAST relations
    Always,
    /// No TOAST relation
    Never,
}

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    tables: TablesArg,

    /// Check contents too, by their types
    ///
    /// The types are text, jsonb, numeric, arrays, composite types, ranges, enums, hstore, tsvector and others; see
    /// toastctl-damage(7). Text is checked only if the encoding of the database is UTF8. For files, give the encoding; the default is UTF8.
    #[arg(long, value_name = "ENCODING", num_args = 0..=1, require_equals = true,
          default_missing_value = "UTF8")]
    deep: Option<String>,

    /// Do not decompress values
    ///
    /// Chunks are only counted and measured.
    #[arg(long, conflicts_with = "deep")]
    no_decompress: bool,

    /// Save the readable parts of damaged values
    ///
    /// Writes what can still be read of damaged values to files in this directory, which must be new or empty, with a
    /// manifest (manifest.jsonl), SQL that loads their rows into new tables (rows.sql) and SQL that repairs (repair.sql).
    /// The latter rebuilds a damaged TOAST index, restores deleted chunks where they are complete, and otherwise sets
    /// values to NULL that the server cannot read, provided that their rows have not changed and no other row has the
    /// same chunks; to know that, the table and its TOAST relation are read a second time. The SQL is printed too.
    /// toastctl never runs it. Where damage is found, values of the TOAST relation to which no row that could be read
    /// refers are saved too: a row that is lost may have had them.
    #[arg(long, value_name = "DIR", conflicts_with = "pageinspect")]
    salvage: Option<PathBuf>,

    /// Read all of a TOAST relation [default: if <= 1 GB]
    ///
    /// If a TOAST relation is not read completely, only the chunks that rows refer to are checked, and the report says so.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        help_heading = "Reading a server"
    )]
    scan_toast: ScanToast,

    #[command(flatten)]
    jobs: JobsArg,

    #[command(flatten)]
    file: FileArgs,

    /// Verify the checksums of a file's pages
    ///
    /// By default, they are verified if the cluster's control file is found in a parent directory and says that
    /// checksums are enabled. If its version is unknown, they are not verified, and check says so. On a server, checksums
    /// are verified on disk, because a page in memory does not carry a current checksum.
    #[arg(long, requires = "relation_file", help_heading = "Without a server")]
    checksums: bool,

    /// Do not verify checksums, e.g. in a damaged copy
    #[arg(
        long,
        requires = "relation_file",
        conflicts_with = "checksums",
        help_heading = "Without a server"
    )]
    ignore_checksums: bool,

    #[command(flatten)]
    saved: SavedArgs,

    /// Exit with 7 if true: warning, or errors>10
    ///
    /// warning means a finding of this severity or a higher one (error, warning, notice). Figures are errors, warnings and
    /// notices, the numbers of such findings; damage, errors and warnings; findings, all of them; and incomplete, the number
    /// of tables or files that were not checked to the end. Can be repeated: one condition that is met is sufficient. The
    /// conditions decide about the exit code: it is 0 if none is met, even if there is damage, which is printed
    /// nevertheless, and 1 if that is not known because something could not be checked.
    #[arg(long, value_name = "CONDITION", value_parser = fail_on::damage)]
    fail_on: Vec<Condition>,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    allow: AllowArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    nodes: NodesArg,

    #[command(flatten)]
    fleet: FleetArgs,

    #[command(flatten)]
    help: HelpFlag,
}

impl CheckArgs {
    /// How far the check of a file goes.
    fn depth(&self) -> Depth {
        let encoding = self.deep.as_deref().unwrap_or("UTF8");
        let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
        Depth {
            decompress: !self.no_decompress,
            content: self.deep.is_some(),
            utf8: name.eq_ignore_ascii_case("utf8"),
        }
    }

    /// A directory in that of `--salvage` for a node of Citus.
    fn salvage_of(&self, node: &str) -> Result<Option<SalvageDir>, Failed> {
        let name =
            node.replace(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-'), "_");
        self.salvage
            .as_ref()
            .map(|dir| {
                SalvageDir::create(&dir.join(name))
                    .map_err(|error| Failed::new(Kind::Incomplete, format!("--salvage: {error}")))
            })
            .transpose()
    }

    /// The directory of `--salvage`.
    fn salvage_dir(&self) -> Result<Option<SalvageDir>, Failure> {
        self.salvage
            .as_ref()
            .map(|dir| {
                SalvageDir::create(dir)
                    .map_err(|error| Failure::usage(format!("--salvage: {error}")))
            })
            .transpose()
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &CheckArgs, ui: &Ui) -> Result<Exit, Failure> {
    let ui = &ui.in_format(args.format.format);
    let tables = &args.tables.tables;
    args.fleet.is_given(args.file.is_given() || args.saved.is_given())?;
    if let Some(file) = args.file.file(tables)? {
        return relation_file(args, ui, &file);
    }
    if let Some(text) = args.saved.text(&args.file, tables)? {
        return saved_pages(args, ui, text);
    }
    for name in tables {
        NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let readers = args.jobs.readers();
    let fleet = Fleet::new("check", &args.fleet, &args.connection, readers);
    fleet.run(ui, &[("--salvage", args.salvage.is_some())], |database| {
        terminal::runtime(usize::from(readers))?.block_on(relations(args, database))
    })
}

/// Where findings are printed, and how the run ends by them.
struct CheckOutput {
    ui: Ui,
    writer: CheckWriter<Plain<Out>>,
    counts: Counts,
    conditions: Vec<Condition>,
}

impl CheckOutput {
    fn new(args: &CheckArgs, ui: &Ui, server: Option<ServerReport>) -> CheckOutput {
        let writer = CheckWriter::new(ui.report_out(), ui.format, ui.width, server);
        let conditions = args.fail_on.clone();
        CheckOutput { ui: ui.clone(), writer, counts: Counts::default(), conditions }
    }

    fn print(&mut self, finding: &Finding) -> std::io::Result<()> {
        self.counts.add(finding.code.severity());
        self.writer.finding(finding)
    }

    fn relation(&mut self, checked: &Checked) -> std::io::Result<()> {
        self.counts.incomplete += u64::from(checked.is_incomplete);
        self.writer.relation(checked)
    }

    /// Ends the document. Damage counts more than what could not be looked at, unless conditions decide.
    fn end(self) -> Result<Exit, Failure> {
        let unread = if self.counts.incomplete > 0 { Exit::Incomplete } else { Exit::Ok };
        match self.writer.finish() {
            Err(error) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
            _ if !self.conditions.is_empty() => {
                let judged = fail_on::judged_damage(&self.ui, &self.conditions, &self.counts);
                Ok(judged.max(unread))
            }
            _ if self.counts.damage() > 0 => Ok(Exit::Damaged),
            _ => Ok(unread),
        }
    }
}

/// Checks relations of a server.
async fn relations(args: &CheckArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let options = Options { flavor: args.file.flavor, ..Options::default() };
    let session = args.allow.session("check");
    let count = args.jobs.readers();
    let inspector = inspector(database, &session, count, options).await?;
    let mut interrupt = std::pin::pin!(ui.interrupted());
    let tables = &args.tables.tables;
    let selection = match live::find(&inspector, tables, true, |_| (), interrupt.as_mut()).await {
        Ok(selection) => selection,
        Err(error) => return terminal::end(Err(error), Exit::Ok, |_| Ok(())),
    };
    let cluster = args.nodes.cluster(ui, &inspector, &selection).await?;
    let request = CheckRequest {
        decompress: !args.no_decompress,
        content: args.deep.is_some(),
        toast_limit: match args.scan_toast {
            ScanToast::Auto => TOAST_LIMIT,
            ScanToast::Always => u64::MAX,
            ScanToast::Never => 0,
        },
    };
    let mut output = CheckOutput::new(args, ui, Some(inspector.server_report()));
    selection.report_to(&mut output);
    let mut salvage = args.salvage_dir()?;
    let found = &selection.found;
    let keep = salvage.as_mut();
    let mut ended =
        run::check(&inspector, &request, found, keep, &mut output, interrupt.as_mut()).await;
    if ended.is_ok() {
        ended = cluster
            .each_node(&session, &mut output, interrupt, async |connection, node| {
                let (inspector, found) = node.opened(connection, count, &inspector.options).await?;
                let mut salvage = args.salvage_of(&node.node.name)?;
                let keep = salvage.as_mut();
                let stop = node.stopped();
                run::check(&inspector, &request, &found, keep, node, stop).await?;
                salvaged(salvage, node).map_err(RunError::Output)
            })
            .await;
    }
    match ended {
        Ok(()) => written(salvaged(salvage, &mut output), output),
        Err(RunError::Output(error)) => terminal::unwritable(&error),
        Err(RunError::Failed(failed)) => {
            output.writer.unchecked();
            output.end()?;
            Err(failed.into())
        }
    }
}

/// Says what is left of damaged values, and the first of the statements that give them up.
fn salvaged(
    salvage: Option<SalvageDir>,
    output: &mut dyn Sink<CheckResult>,
) -> std::io::Result<()> {
    let Some(salvage) = salvage else { return Ok(()) };
    let (text, statements) = salvage.finish();
    output.message(Message::progress(text));
    output.found(CheckResult::Statements(statements))
}

impl Sink<CheckResult> for CheckOutput {
    fn found(&mut self, result: CheckResult) -> std::io::Result<()> {
        match result {
            CheckResult::Finding(finding) => self.print(&finding),
            CheckResult::Relation(checked) => self.relation(&checked),
            CheckResult::Statements(statements) => self.writer.statements(&statements),
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.counts.incomplete += 1;
        self.writer.unchecked();
        self.ui.tell(failed.message);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}

/// Checks a relation file.
fn relation_file(args: &CheckArgs, ui: &Ui, file: &File<'_>) -> Result<Exit, Failure> {
    let checksums = (args.checksums || args.ignore_checksums).then_some(args.checksums);
    let target = FileTarget { checksums, ..file.target(None) };
    let options = FileOptions { depth: args.depth(), threads: usize::from(args.jobs.readers()) };
    let mut output = CheckOutput::new(args, ui, None);
    let progress = ReadingProgress::new(ui);
    let mut salvage = args.salvage_dir()?;
    let tell = &mut |finding: Finding| output.print(&finding);
    match files::relation_file(&target, &options, &*progress, salvage.as_mut(), tell) {
        Ok(checked) => {
            let told = output.relation(&checked).and_then(|()| salvaged(salvage, &mut output));
            written(told, output)
        }
        Err(CheckError::Output(error)) => terminal::unwritable(&error),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn saved_pages(args: &CheckArgs, ui: &Ui, text: SavedText) -> Result<Exit, Failure> {
    let SavedText { name, desc, source } = text;
    let mut output = CheckOutput::new(args, ui, None);
    let depth = args.depth();
    let tell = &mut |finding: Finding| output.print(&finding);
    match saved_pages::check(&name, source, &desc, depth, tell) {
        Ok(checked) => written(output.relation(&checked), output),
        Err(CheckError::Output(error)) => terminal::unwritable(&error),
        Err(CheckError::Text(error)) => Err(unreadable(&name, &error)),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn written(result: std::io::Result<()>, output: CheckOutput) -> Result<Exit, Failure> {
    match result {
        Ok(()) => output.end(),
        Err(error) => terminal::unwritable(&error),
    }
}
