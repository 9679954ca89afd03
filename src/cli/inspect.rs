//! `toastctl inspect`: its arguments, and the runs on servers, relation files and saved output.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;

use super::arguments::{
    AllowArg, ColumnsArg, DetailsArg, JobsArg, PolicyArgs, SampleArgs, SelectionArgs, SourceArg,
    TablesArg, UNLIMITED, count, max_time,
};
use super::citus::{Cluster, NodesArg};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::fail_on;
use super::files::{FileArgs, OrderArg, SavedArgs};
use super::fleet::{Database, Fleet, FleetArgs};
use super::inspect_output::{Ended, InspectOutput, OverviewOutput};
use super::reports::ReportOutput;
use super::terminal::{self, ReadingProgress, Ui};
use crate::advise::advisor::{Advisor, Options as AdviseOptions};
use crate::advise::explain::result::Explanation;
use crate::advise::run::explained;
use crate::inspect::compare::{Earlier, EarlierRuns};
use crate::inspect::inspector::{Inspector, Options};
use crate::inspect::overview;
use crate::inspect::overview::figures::Condition;
use crate::inspect::overview::rank::SortBy;
use crate::inspect::overview::run::Terms;
use crate::inspect::run::{self, Compare, Request};
use crate::message::Message;
use crate::report::document::{Format, OutputFormat};
use crate::report::nagios::{Service, State};
use crate::report::overview::View;
use crate::retoast::compliance::PolicyRequest;
use crate::retoast::memory;
use crate::server::about::{Access, ServerReport};
use crate::server::connect::SessionOptions;
use crate::server::select::{Reach, Selected};
use toast_format::heap::sample::Sampling;

/// The time limit of an overview without a requested sample.
const MAX_TIME: Duration = Duration::from_secs(10);

/// What leaves no place for an overview.
const NOT_OVERVIEW: [&str; 5] = ["details", "policy", "explain", "relation_file", "pageinspect"];

/// Options that have no effect on files, in addition to those of each verb.
const OF_INSPECTED_SERVERS: [&str; 3] = ["source", "jobs", "node_address"];

/// Options of the overview of several tables.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Overview of several tables")]
struct OverviewArgs {
    /// stored, raw, unused, read, dead or name
    #[arg(long, value_enum, value_name = "BY", conflicts_with_all = NOT_OVERVIEW)]
    sort: Option<SortBy>,

    /// Show N [default: 4 tables, 4 columns, 3 findings]
    ///
    /// Of each, the remaining ones are added up in one line. Markdown has 15 by default, and html 60. json, jsonl and csv list
    /// all by default. openmetrics has series of this many tables, columns and findings. With --all and --targets, a terminal lists 10
    /// databases by default.
    #[arg(long, value_name = "N",
          value_parser = count::<u32, 1, UNLIMITED>, allow_negative_numbers = true,
          conflicts_with_all = NOT_OVERVIEW)]
    limit: Option<u32>,

    /// Show partitions one by one
    ///
    /// By default, partitions and inheritance children are added up.
    #[arg(hide_short_help = true, long, conflicts_with_all = NOT_OVERVIEW)]
    parts: bool,

    /// Stop reading after this long [default: 10s]
    ///
    /// For example 10s or 5min. What has been read by then is shown; tables that were not reached are listed as not read,
    /// and the exit code is 1. With --sample, there is no limit by default.
    #[arg(long, alias = "max-runtime", value_name = "TIME", value_parser = max_time,
          conflicts_with_all = NOT_OVERVIEW)]
    max_time: Option<Duration>,

    /// Show what has changed since FILE, of --format json
    ///
    /// FILE is what inspect --format json printed about this database, or, with --all and --targets, about these. Shown are
    /// tables and columns whose size or stored form has changed, the most changed first, columns that are set otherwise, and
    /// which findings are new or gone: what has grown, and what a conversion or compaction has brought. Figures of samples count as changed only if their intervals do not overlap.
    /// json adds the field compared, csv the fields bytes_before and bytes_change, and html a section.
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_OVERVIEW,
          conflicts_with_all = ["columns", "parts"])]
    compare: Option<PathBuf>,

    /// Exit code 7 if true: medium, 'free_space>1GB'
    ///
    /// medium means a finding of this severity or a higher one; free_space is a figure of all selected tables, and
    /// `toastctl help alarms` lists the others. Can be repeated: one condition that is met is sufficient. If it is not
    /// known whether a condition is met, because tables could not be read, the exit code is 1. With --format nagios, the
    /// exit codes are those of a plugin. Estimates are compared with the limit as they are.
    #[arg(long, value_name = "CONDITION", value_parser = fail_on::condition,
          conflicts_with_all = NOT_OVERVIEW)]
    fail_on: Vec<Condition>,
}

impl OverviewArgs {
    fn is_given(&self) -> bool {
        self.parts
            || self.sort.is_some()
            || self.limit.is_some()
            || self.max_time.is_some()
            || self.compare.is_some()
            || !self.fail_on.is_empty()
    }

    /// Refuses conditions about changes where nothing is compared.
    fn check_conditions(&self, format: OutputFormat) -> Result<(), Failure> {
        match self.fail_on.iter().find(|condition| condition.is_about_change()) {
            Some(condition) if let Some(format) = published(format) => {
                Err(no_growth(&format!("--fail-on {}", condition.text), format))
            }
            Some(condition) if self.compare.is_none() => Err(Failure::usage(format!(
                "--fail-on {} requires --compare FILE, what inspect --format json has printed earlier",
                condition.text
            ))),
            _ => Ok(()),
        }
    }

    fn view(&self) -> View {
        View {
            sort: self.sort.unwrap_or_default(),
            limit: self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        }
    }
}

/// The name of a format that is read by a monitoring system.
fn published(format: OutputFormat) -> Option<&'static str> {
    match format {
        OutputFormat::Report(_) => None,
        OutputFormat::Openmetrics => Some("openmetrics"),
        OutputFormat::Nagios => Some("nagios"),
    }
}

/// The error for growth in a format for monitoring systems, which does not contain it.
fn no_growth(option: &str, format: &str) -> Failure {
    let text =
        format!("{option} cannot be used with --format {format}: changes are not published there");
    Failure::usage(text).hint(
        "Exit code 7 is for growth: toastctl inspect --compare FILE --fail-on 'growth>1GB', also with --format json.",
    )
}

/// Arguments of `inspect`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("relation_file", |arg| arg.conflicts_with_all(OF_INSPECTED_SERVERS)),
          mut_arg("pageinspect", |arg| arg.conflicts_with_all(OF_INSPECTED_SERVERS)))]
pub struct InspectArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    columns: ColumnsArg,

    /// table, json, csv, html, openmetrics, nagios, ...
    ///
    /// table, json, jsonl, csv, markdown, html, openmetrics (Prometheus) or nagios.
    ///
    /// html is one page for a browser, which loads nothing from elsewhere: a treemap of tables, columns and forms, the
    /// distribution of sizes of a table's values, findings with their commands, and all figures in tables.
    ///
    /// openmetrics prints metrics for the textfile collector of Prometheus's node exporter, and nagios one line with the
    /// exit codes of a plugin: 0 OK, 1 warning, 2 critical, 3 unknown, which includes a failed connection. Both are about
    /// tables of a server and have the limits of an overview: see `toastctl help alarms`.
    #[arg(
        long,
        value_enum,
        default_value = "table",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    format: OutputFormat,

    #[command(flatten)]
    details: DetailsArg,

    #[command(flatten)]
    overview: OverviewArgs,

    /// Explain what reads and updates cost, and why
    ///
    /// For each column: buffers and CPU time to read a value, what an UPDATE writes, and how close the rows are to the
    /// width above which they are toasted. Reads the same sample as advise-threshold; requires pageinspect.
    #[arg(long, help_heading = "Output", requires = "tables",
          conflicts_with_all = ["policy", "flavor", "jobs", "relation_file", "pageinspect",
                                "excluded", "excluded_schemas"])]
    explain: bool,

    #[command(flatten)]
    policy: PolicyArgs,

    #[command(flatten)]
    sample: SampleArgs,

    #[command(flatten)]
    source: SourceArg,

    #[command(flatten)]
    jobs: JobsArg,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    saved: SavedArgs,

    #[command(flatten)]
    order: OrderArg,

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

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &InspectArgs, ui: &Ui) -> Result<ExitCode, Failure> {
    run_monitored(args.format, ui, |ui| run_any(args, ui))
}

/// Runs a verb that may be a plugin's: a failure is then one of its states.
pub(super) fn run_monitored(
    format: OutputFormat,
    ui: &Ui,
    verb: impl FnOnce(&Ui) -> Result<Ended, Failure>,
) -> Result<ExitCode, Failure> {
    let ended = match format {
        OutputFormat::Report(format) => verb(&ui.in_format(format)),
        OutputFormat::Openmetrics | OutputFormat::Nagios => verb(ui),
    };
    match (format, ended) {
        (OutputFormat::Nagios, Err(failure)) => {
            print_unknown(&failure.message);
            ui.tell(failure.message);
            Ok(State::Unknown.into())
        }
        (_, ended) => Ok(ended?.into()),
    }
}

/// Whether an invalid command line asks for the exit codes of a plugin.
pub(super) fn asks_for_nagios(words: &[String]) -> bool {
    words.iter().any(|word| word == "--format=nagios")
        || words.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "nagios")
}

/// Prints a plugin's line about a failure.
pub(super) fn print_unknown(message: &Message) {
    // the state is the same if nobody reads the line
    let _ = std::io::stdout().write_all(Service::failed(&message.to_string()).line().as_bytes());
}

fn run_any(args: &InspectArgs, ui: &Ui) -> Result<Ended, Failure> {
    let tables = &args.tables.tables;
    let with_files = args.file.is_given() || args.saved.is_given();
    let is_fleet = args.fleet.is_given(with_files)?;
    args.selection.check(with_files)?;
    args.order.check(args.saved.is_given())?;
    if let Some(file) = args.file.file(tables, args.saved.is_given())? {
        args.check_offline()?;
        args.check_full("--relation-file")?;
        args.check_sample(ui.format)?;
        let target = file.target(args.sampling());
        return Ok(args.output(ui, None).read_file(&target, None, None)?.into());
    }
    if let Some(text) = args.saved.text(&args.file, tables)? {
        args.check_offline()?;
        args.check_full("--pageinspect")?;
        if args.sample.sampling().is_some() {
            return Err(Failure::usage("--sample cannot be used with --pageinspect"));
        }
        let order = args.order.order();
        return Ok(args.output(ui, None).read_saved(text, order, None)?.into());
    }
    let connections = args.jobs.readers();
    let fleet = Fleet {
        view: args.overview.view(),
        ..Fleet::new("inspect", &args.fleet, &args.connection, connections)
    };
    args.overview.check_conditions(args.format)?;
    if !is_fleet {
        return run_on(args, &fleet.single(ui), None);
    }
    if args.overview.compare.is_some() {
        args.check_full("--compare")?;
    }
    let runs = args.earlier_runs()?;
    let visited = Mutex::new(BTreeSet::new());
    let (exit, state) = fleet.run_in(args.format, ui, &[], |database| {
        let target = database.ui.target.as_ref().map(|target| target.name.clone());
        visited.lock().extend(target);
        Ok(run_on(args, database, runs.as_ref())?.exit)
    })?;
    let visited = visited.into_inner();
    let earlier = runs.iter().flat_map(EarlierRuns::names);
    for name in earlier.filter(|name| !visited.contains(*name)) {
        ui.tell(Message::notice("not compared: only the earlier run has read it").of_target(name));
    }
    Ok(Ended { exit, state })
}

fn not_compared(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("--compare: the file \"{}\" {why}", path.display()))
        .hint("toastctl inspect --format json >FILE writes what later runs can be compared with.")
}

/// Reads the tables of one database. `runs`: earlier runs on this and other databases.
fn run_on(
    args: &InspectArgs,
    database: &Database,
    runs: Option<&EarlierRuns>,
) -> Result<Ended, Failure> {
    let tables = args.selection.wanted(&args.tables.tables)?;
    if args.explain {
        args.check_full("--explain")?;
        args.check_explain(database.ui.format)?;
        return Ok(terminal::runtime(1)?.block_on(explain(args, database))?.into());
    }
    for (option, given) in [
        ("--details", args.details.details),
        ("--policy", args.policy.is_given()),
        ("--compare", args.overview.compare.is_some()),
    ] {
        if given {
            args.check_full(option)?;
        }
    }
    let request = Request {
        needs_pages: args.sample.sampling().is_some().then_some("--sample"),
        columns: args.columns.columns.clone(),
        policy: args.policy.one()?.map(|(policy, method)| -> Box<dyn Compare> {
            Box::new(PolicyRequest { policy, method })
        }),
    };
    // a few pages each of many tables are read one after the other
    let threads = if tables.is_empty() { 0 } else { usize::from(args.jobs.readers()) };
    terminal::runtime(threads)?.block_on(relations(args, database, &request, runs))
}

impl InspectArgs {
    /// Which sample is read, if not everything.
    fn sampling(&self) -> Option<Sampling> {
        self.sample.sampling()
    }

    /// Where full reports are printed.
    fn output(&self, ui: &Ui, server: Option<ServerReport>) -> InspectOutput {
        InspectOutput::new(ui, server)
            .of_columns(&self.columns.columns, !self.tables.tables.is_empty())
    }

    /// The earlier run that this one is compared with, which may be one of `runs` on several databases.
    fn earlier_of(
        &self,
        runs: Option<&EarlierRuns>,
        ui: &Ui,
        database: &str,
    ) -> Result<Option<Arc<Earlier>>, Failure> {
        let (Some(runs), Some(target)) = (runs, &ui.target) else { return self.earlier(database) };
        let earlier = runs.run_on(&target.name);
        if earlier.is_none() {
            ui.tell(Message::notice("not compared: the earlier run has not read it"));
        }
        Ok(earlier)
    }

    /// Earlier runs on several databases that this one is compared with.
    fn earlier_runs(&self) -> Result<Option<EarlierRuns>, Failure> {
        let Some(path) = &self.overview.compare else { return Ok(None) };
        let bytes = memory::read(path).map_err(|error| format!("cannot be read: {error}"));
        let runs = bytes.and_then(|bytes| EarlierRuns::read(&bytes));
        runs.map(Some).map_err(|why| not_compared(path, &why))
    }

    /// The earlier run on this database alone.
    fn earlier(&self, database: &str) -> Result<Option<Arc<Earlier>>, Failure> {
        let Some(path) = &self.overview.compare else { return Ok(None) };
        let bytes = memory::read(path).map_err(|error| format!("cannot be read: {error}"));
        let earlier = bytes.and_then(|bytes| Earlier::read(&bytes, database));
        earlier.map(|earlier| Some(Arc::new(earlier))).map_err(|why| not_compared(path, &why))
    }

    /// Refuses a format of overviews together with this option.
    fn check_full(&self, option: &str) -> Result<(), Failure> {
        let Some(format) = published(self.format) else { return Ok(()) };
        Err(match option {
            "--compare" => no_growth(option, format),
            "--relation-file" | "--pageinspect" => Failure::usage(format!(
                "{option} cannot be used with --format {format}, which is about tables of a server"
            ))
            .hint("Use --format table or json."),
            _ => Failure::usage(format!(
                "{option} cannot be used with --format {format}, which has only figures of the overview"
            ))
            .hint("Use --format table or json."),
        })
    }

    /// Whether these relations of a server are shown in an overview: several are, and all of a database.
    fn wants_overview(&self, ui: &Ui, found: &[Selected], cluster: &Cluster<'_>) -> bool {
        let in_full = self.details.details || self.policy.is_given();
        let is_monitored = !matches!(self.format, OutputFormat::Report(_));
        let given = is_monitored || ui.target.is_some() || self.overview.is_given();
        !in_full && (given || self.tables.tables.is_empty() || found.len() + cluster.shards() != 1)
    }

    /// How long the overview may take, and what it reports.
    fn terms(&self, counts_no_database: bool) -> Terms {
        let default = if self.sampling().is_none() { Some(MAX_TIME) } else { None };
        Terms {
            max_time: self.overview.max_time.or(default),
            parts: self.overview.parts,
            shards: false,
            counts_no_database,
        }
    }

    /// Refuses what only a server has.
    fn check_offline(&self) -> Result<(), Failure> {
        let given = [("--policy", self.policy.is_given()), ("--details", self.details.details)];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} needs a server: it cannot be used with files"
            ))),
            None => Ok(()),
        }
    }

    /// What `--sample` cannot be combined with in a full report, beyond what clap knows.
    fn check_sample(&self, format: Format) -> Result<(), Failure> {
        if self.sample.sampling().is_none() {
            return Ok(());
        }
        if self.source.source == Access::Functions {
            return Err(Failure::usage(
                "--sample needs pages: it cannot be used with --source functions",
            ));
        }
        if format == Format::Csv {
            let text =
                "--sample cannot be printed as csv, which has no place for confidence intervals";
            return Err(Failure::usage(text).hint("Use --format json."));
        }
        Ok(())
    }

    fn check_explain(&self, format: Format) -> Result<(), Failure> {
        if self.source.source == Access::Functions {
            return Err(Failure::usage(
                "--explain needs pages: it cannot be used with --source functions",
            ));
        }
        if format == Format::Csv {
            return Err(Failure::usage("--explain is printed as a table, markdown, json or jsonl"));
        }
        Ok(())
    }
}

/// Connects as often as is read side by side.
pub(super) async fn inspector(
    database: &Database,
    session: &SessionOptions,
    count: u16,
    options: Options,
) -> Result<Inspector, Failure> {
    let first = database.connected(session).await?;
    let opened = run::open(first, count, options, ReadingProgress::new(&database.ui)).await;
    opened.map_err(Failure::from)
}

async fn relations(
    args: &InspectArgs,
    database: &Database,
    request: &Request,
    runs: Option<&EarlierRuns>,
) -> Result<Ended, Failure> {
    let ui = &database.ui;
    let options = Options {
        access: args.source.source,
        flavor: args.file.flavor,
        sampling: args.sampling(),
        ..Options::default()
    };
    let count = args.jobs.readers();
    let session = args.allow.session("inspect");
    let inspector = inspector(database, &session, count, options).await?;
    let mut interrupt = std::pin::pin!(ui.interrupted());
    let tables = args.selection.wanted(&args.tables.tables)?;
    let excluded = args.selection.excluded();
    let found = run::find(
        &inspector,
        &tables,
        &excluded,
        Reach::Nodes,
        |message| ui.tell(message),
        interrupt.as_mut(),
    );
    let selection = match found.await {
        Ok(selection) => selection,
        Err(error) => return Ok(terminal::end(Err(error), Exit::Ok, |_| Ok(()))?.into()),
    };
    let found = &selection.found;
    let cluster = args.nodes.cluster(ui, &inspector, &selection).await?;
    let cluster = Cluster { one_by_one: args.overview.parts, ..cluster };
    let first = inspector.server_report();
    let earlier = args.earlier_of(runs, ui, &first.database)?;
    if args.wants_overview(ui, found, &cluster) {
        let alarms = args.overview.fail_on.clone();
        let mut output = OverviewOutput::new(ui, args.format, first, args.overview.view(), alarms)
            .of_columns(&args.columns.columns, !tables.is_empty())
            .of_tables(&tables, &excluded)
            .compared_with(earlier);
        selection.report_to(&mut output);
        let terms = args.terms(cluster.is_read_elsewhere);
        let all = args.tables.tables.is_empty();
        let read =
            overview::run::run(&inspector, found, all, terms, &mut output, interrupt.as_mut());
        let mut ended = read.await;
        if ended.is_ok() {
            ended = cluster
                .each_node(&session, &mut output, interrupt, async |connection, node| {
                    let (inspector, found) =
                        node.opened(connection, count, &inspector.options).await?;
                    let stop = node.stopped();
                    let terms = Terms { shards: true, counts_no_database: false, ..terms };
                    overview::run::run(&inspector, &found, false, terms, node, stop).await
                })
                .await;
        }
        return output.end(ended);
    }
    args.check_sample(ui.format)?;
    let mut output = args.output(ui, Some(first));
    selection.report_to(&mut output);
    let read = run::relations(&inspector, request, found, None, &mut output, interrupt.as_mut());
    let mut ended = read.await;
    if ended.is_ok() {
        ended = cluster
            .each_node(&session, &mut output, interrupt, async |connection, node| {
                let (inspector, found) = node.opened(connection, count, &inspector.options).await?;
                let stop = node.stopped();
                run::relations(&inspector, request, &found, None, node, stop).await
            })
            .await;
    }
    Ok(output.end(ended, None)?.into())
}

/// What the storage of these tables' columns costs.
async fn explain(args: &InspectArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let connection = database.connected(&args.allow.session("inspect")).await?;
    let options = AdviseOptions {
        sample: args.sample.size(),
        seed: args.sample.seed(),
        columns: args.columns.columns.clone(),
        ..AdviseOptions::default()
    };
    let advisor = Advisor::open(connection, options, ReadingProgress::new(ui)).await?;
    let server = Some(ServerReport::new(&advisor.server, advisor.connection.address()));
    let mut output = ReportOutput::new::<Explanation>(ui, server, args.details.details);
    let tables = args.selection.wanted(&args.tables.tables)?;
    let ended = explained(&advisor, &tables, &mut output, ui.interrupted()).await;
    output.end(ended)
}
