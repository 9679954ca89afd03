//! `toastctl check`: its arguments, the runs, and where findings are printed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::arguments::{AllowArg, JobsArg, SelectionArgs, TablesArg};
use super::citus::NodesArg;
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::fail_on;
use super::files::{File, FileArgs, SavedArgs, SavedText, unreadable};
use super::fleet::{Database, Fleet, FleetArgs};
use super::inspect::{inspector, run_monitored};
use super::inspect_output::Ended;
use super::misread::is_encoding;
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
use crate::report::document::OutputFormat;
use crate::report::{nagios, openmetrics};
use crate::server::about::ServerReport;
use crate::server::select::Reach;
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
#[command(mut_arg("relation_file", |arg| arg.conflicts_with_all(["scan_toast", "node_address"])),
          mut_arg("pageinspect", |arg| arg.conflicts_with_all(["scan_toast", "node_address", "jobs"])))]
pub struct CheckArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Check contents too, by their types
    ///
    /// The types are text, jsonb, numeric, arrays, composite types, ranges, enums, hstore, tsvector and others; see
    /// toastctl help damage. Text is checked only if the encoding of the database is UTF8. For files, give the encoding; the default is UTF8.
    #[arg(long, value_name = "ENCODING", num_args = 0..=1, require_equals = true,
          default_missing_value = "UTF8", value_parser = encoding)]
    deep: Option<String>,

    /// Do not decompress values
    ///
    /// Chunks are only counted and measured.
    #[arg(hide_short_help = true, long, conflicts_with = "deep")]
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
        hide_short_help = true,
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
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

    /// Exit code 7 if true: warning, 'errors>10'
    ///
    /// warning means a finding of this severity or a higher one (error, warning, notice). Figures are errors, warnings and
    /// notices, the numbers of such findings; damage, errors and warnings; findings, all of them; and incomplete, the number
    /// of tables or files that were not checked to the end. Can be repeated: one condition that is met is sufficient. With
    /// --fail-on, the exit code depends only on these conditions: it is 0 if none is met, even if damage is reported, and
    /// 1 if that is not known because something could not be checked.
    #[arg(long, value_name = "CONDITION", value_parser = fail_on::damage)]
    fail_on: Vec<Condition>,

    /// table, json, csv, html, openmetrics, nagios, ...
    ///
    /// table, json, jsonl, csv, markdown, html, openmetrics (Prometheus) or nagios.
    ///
    /// html is one page for a browser, which loads nothing from elsewhere. openmetrics prints metrics for Prometheus's
    /// textfile collector, and nagios one line with the exit codes of a plugin: warnings are 1, errors 2, or what a
    /// condition of --fail-on is about, and what could not be checked is 3.
    #[arg(
        long,
        value_enum,
        default_value = "table",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    format: OutputFormat,

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

/// The name of an encoding.
fn encoding(text: &str) -> Result<String, String> {
    if is_encoding(text) {
        Ok(text.to_owned())
    } else {
        Err("expected an encoding of PostgreSQL, such as UTF8 or LATIN1".to_owned())
    }
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
        let dir = self.salvage.as_ref().map(|dir| SalvageDir::create(&dir.join(name)));
        dir.transpose()
            .map_err(|error| Failed::new(Kind::Incomplete, format!("--salvage: {error}")))
    }

    /// The directory of `--salvage`.
    fn salvage_dir(&self) -> Result<Option<SalvageDir>, Failure> {
        let dir = self.salvage.as_deref().map(SalvageDir::create);
        dir.transpose().map_err(|error| Failure::usage(format!("--salvage: {error}")))
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &CheckArgs, ui: &Ui) -> Result<ExitCode, Failure> {
    run_monitored(args.format, ui, |ui| run_any(args, ui))
}

fn run_any(args: &CheckArgs, ui: &Ui) -> Result<Ended, Failure> {
    let tables = &args.tables.tables;
    let with_files = args.file.is_given() || args.saved.is_given();
    let is_fleet = args.fleet.is_given(with_files)?;
    args.selection.check(with_files)?;
    if let Some(file) = args.file.file(tables, args.saved.is_given())? {
        return relation_file(args, ui, &file);
    }
    if let Some(text) = args.saved.text(&args.file, tables)? {
        return saved_pages(args, ui, text);
    }
    args.selection.wanted(tables)?;
    let readers = args.jobs.readers();
    let fleet = Fleet::new("check", &args.fleet, &args.connection, readers);
    if !is_fleet {
        return check_database(args, &fleet.single(ui));
    }
    let alone = [("--salvage", args.salvage.is_some())];
    let (exit, state) = fleet
        .run_in(args.format, ui, &alone, |database| Ok(check_database(args, database)?.exit))?;
    Ok(Ended { exit, state })
}

fn check_database(args: &CheckArgs, database: &Database) -> Result<Ended, Failure> {
    terminal::runtime(usize::from(args.jobs.readers()))?.block_on(relations(args, database))
}

/// Where findings are printed, and how the run ends by them.
struct CheckOutput {
    ui: Ui,
    format: OutputFormat,
    /// The database, for metrics.
    database: String,
    /// Not used by what monitoring systems read.
    writer: CheckWriter<Plain<Out>>,
    counts: Counts,
    conditions: Vec<Condition>,
}

impl CheckOutput {
    fn new(args: &CheckArgs, ui: &Ui, server: Option<ServerReport>) -> CheckOutput {
        let database = server.as_ref().map(|server| server.database.clone()).unwrap_or_default();
        let names_salvage = args.salvage.is_none() && server.is_some();
        let mut writer = CheckWriter::new(ui.report_out(), ui.format, ui.width, server);
        if names_salvage {
            writer.names_salvage(ui.place());
        }
        CheckOutput {
            ui: ui.clone(),
            format: args.format,
            database,
            writer,
            counts: Counts::default(),
            conditions: args.fail_on.clone(),
        }
    }

    fn is_report(&self) -> bool {
        matches!(self.format, OutputFormat::Report(_))
    }

    fn print(&mut self, finding: &Finding) -> std::io::Result<()> {
        self.counts.add(finding.code.severity());
        if self.is_report() { self.writer.finding(finding) } else { Ok(()) }
    }

    fn relation(&mut self, checked: &Checked) -> std::io::Result<()> {
        self.counts.incomplete += u64::from(checked.is_incomplete);
        self.counts.relations += 1;
        if self.is_report() { self.writer.relation(checked) } else { Ok(()) }
    }

    /// Ends the document. Damage counts more than what could not be looked at, unless conditions decide.
    fn end(self) -> Result<Ended, Failure> {
        let CheckOutput { ui, format, database, writer, counts, conditions } = self;
        let mut state = None;
        let written = match format {
            OutputFormat::Report(_) => writer.finish(),
            OutputFormat::Openmetrics => {
                let target = ui.target.as_ref().map(|target| target.name.clone());
                ui.write_metrics(openmetrics::of_check(&database, target, &counts))
            }
            OutputFormat::Nagios => {
                let service = nagios::check(&counts, &conditions);
                state = Some(service.state);
                ui.write_service(service)
            }
        };
        if let Err(error) = written {
            terminal::unwritable(&error)?;
        }
        Ok(Ended { exit: verdict(&ui, &conditions, &counts), state })
    }

    /// The end where findings cannot be written: those until then count, and the rest is not known.
    fn cut_off(mut self, error: &std::io::Error) -> Result<Ended, Failure> {
        terminal::unwritable(error)?;
        self.counts.incomplete += 1;
        Ok(verdict(&self.ui, &self.conditions, &self.counts).into())
    }
}

/// Damage counts more than what could not be looked at, unless conditions decide.
fn verdict(ui: &Ui, conditions: &[Condition], counts: &Counts) -> Exit {
    let unread = if counts.incomplete > 0 { Exit::Incomplete } else { Exit::Ok };
    if !conditions.is_empty() {
        fail_on::judged_damage(ui, conditions, counts).max(unread)
    } else if counts.damage() > 0 {
        Exit::Damaged
    } else {
        unread
    }
}

/// Checks relations of a server.
async fn relations(args: &CheckArgs, database: &Database) -> Result<Ended, Failure> {
    let ui = &database.ui;
    let options = Options { flavor: args.file.flavor, ..Options::default() };
    let session = args.allow.session("check");
    let count = args.jobs.readers();
    let inspector = inspector(database, &session, count, options).await?;
    let mut interrupt = std::pin::pin!(ui.interrupted());
    let tables = args.selection.wanted(&args.tables.tables)?;
    let excluded = args.selection.excluded();
    let reach = Reach::NodesAndCatalogs;
    let found = live::find(&inspector, &tables, &excluded, reach, |_| (), interrupt.as_mut()).await;
    let selection = match found {
        Ok(selection) => selection,
        Err(error) => return Ok(terminal::end(Err(error), Exit::Ok, |_| Ok(()))?.into()),
    };
    if args.fleet.all && selection.lacks_tables && inspector.lacks_extension() {
        return Err(unread_catalogs());
    }
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
        Err(RunError::Output(error)) => output.cut_off(&error),
        Err(RunError::Failed(failed)) => {
            // to monitoring systems it is the failure that counts, not what was checked before
            if output.is_report() {
                output.writer.ended_early(found.len());
                output.end()?;
            }
            Err(failed.into())
        }
    }
}

/// A database among all of a server that has nothing but system catalogs, of which no page can be read.
fn unread_catalogs() -> Failure {
    let why = "there are no tables, and system catalogs cannot be checked without the extension pageinspect";
    let passed_over = Some(why.to_owned());
    let message = Message { passed_over, ..Message::error(why) };
    Failure { exit: Exit::Incomplete, message }
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
            CheckResult::Statements(statements) if self.is_report() => {
                self.writer.statements(&statements)
            }
            CheckResult::Statements(_) => Ok(()),
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
fn relation_file(args: &CheckArgs, ui: &Ui, file: &File<'_>) -> Result<Ended, Failure> {
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
        Err(CheckError::Output(error)) => output.cut_off(&error),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn saved_pages(args: &CheckArgs, ui: &Ui, text: SavedText) -> Result<Ended, Failure> {
    let SavedText { name, desc, source } = text;
    let mut output = CheckOutput::new(args, ui, None);
    let depth = args.depth();
    let tell = &mut |finding: Finding| output.print(&finding);
    match saved_pages::check(&name, source, &desc, depth, tell) {
        Ok(checked) => written(output.relation(&checked), output),
        Err(CheckError::Output(error)) => output.cut_off(&error),
        Err(CheckError::Text(error)) => Err(unreadable(&name, &error)),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn written(result: std::io::Result<()>, output: CheckOutput) -> Result<Ended, Failure> {
    match result {
        Ok(()) => output.end(),
        Err(error) => output.cut_off(&error),
    }
}
