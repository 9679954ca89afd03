//! `toastctl advise-threshold`: its arguments, the run, and where its reports are printed.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::arguments::{
    AllowArg, ColumnsArg, DetailsArg, ExactArg, FormatArg, PolicyArgs, SampleArgs, TablesArg,
    reads_per_write,
};
use super::citus::NodesArg;
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::fleet::{Database, Fleet, FleetArgs};
use super::terminal::{self, Out, Plain, ReadingProgress, Ui};
use crate::advise::advisor::{Advisor, Options};
use crate::advise::calibration::{Calibrate, Kept};
use crate::advise::candidate::Narrowing;
use crate::advise::extract::keys::Extract;
use crate::advise::recommend::{Optimize, PriceList};
use crate::advise::result::Report;
use crate::advise::run;
use crate::message::Message;
use crate::report::advise::{Shown, Writer};
use crate::report::document::Format;
use crate::report::table::printable;
use crate::retoast::memory;
use crate::server::about::ServerReport;
use crate::server::sink::{Failed, RunError, Sink};
use crate::testing;
use toast_format::disk::desc::Storage;
use toast_format::judge::toaster::Toaster;
use toast_format::model::policy::MethodChoice;
use toast_format::model::settings::TupleTarget;

/// Arguments of `advise-threshold`.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    columns: ColumnsArg,

    /// pglz, lz4, external, main, extended or plain
    ///
    /// As for retoast: pglz and lz4 mean storage extended with that method, and main can be followed by a method, as in
    /// main=lz4. Can be repeated.
    #[arg(long, alias = "storage", value_name = "STORAGE", help_heading = "What is compared")]
    toaster: Vec<Toaster>,

    /// toast_tuple_target, 128 to 8160
    ///
    /// Can be repeated.
    #[arg(long, value_name = "BYTES", help_heading = "What is compared")]
    target: Vec<TupleTarget>,

    #[command(flatten)]
    policy: PolicyArgs,

    #[command(flatten)]
    sample: SampleArgs,

    #[command(flatten)]
    exact: ExactArg,

    #[command(flatten)]
    calibration: CalibrationArgs,

    #[command(flatten)]
    weights: WeightArgs,

    /// Print only the SQL, or only the command
    ///
    /// The statements or the command that carry out the recommendation.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        conflicts_with = "format",
        help_heading = "Output"
    )]
    emit: Option<Emit>,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    details: DetailsArg,

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

/// What candidates are weighed by.
#[derive(Debug, Clone, Args)]
struct WeightArgs {
    /// What counts most: balanced, size, read, write
    ///
    /// Balanced, the default, is the least cost a month: $0.10 for a GB of files and as much for a copy of it, $0.05 for an
    /// hour of CPU time, $0.02 for a GB of WAL, at the reads and writes that others have made in a day since the
    /// statistics began. Where these are not known, ten reads of each value a day are assumed. The table may grow to at most
    /// 5 % more than now, and than with PostgreSQL's defaults; 10 % for read and write. Whatever counts, settings are
    /// advised only if they gain 5 %, and compared in files
    /// without free space: space that compaction alone returns is not counted. CPU times that were measured are shown, but
    /// do not decide, so that the same table gets the same answer.
    #[arg(long, value_enum, default_value_t, help_heading = "Recommendation")]
    optimize: Optimize,

    /// Prices in dollars: disk, cpu, wal
    ///
    /// Of a GB of files a month, an hour of CPU time and a GB of WAL, for --optimize balanced: disk=0.10,cpu=0.05,wal=0.02, or
    /// some of them. Only their proportions decide.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "NAME=PRICE,...",
        help_heading = "Recommendation"
    )]
    prices: Option<PriceList>,

    /// Rows read per row written
    ///
    /// Overrides the workload that is derived from pg_stat_statements and the server's statistics.
    #[arg(long, value_name = "N", value_parser = reads_per_write, allow_negative_numbers = true, help_heading = "Recommendation")]
    reads_per_write: Option<f64>,
}

/// Where the prices of CPU time come from.
#[derive(Debug, Clone, Args)]
struct CalibrationArgs {
    /// Time values on this server: auto, always, never
    ///
    /// CPU times are then fitted to this server and have confidence intervals. About 200 values are copied to temporary
    /// tables of this session, which are timed and rolled back; this takes less than 5 seconds in all. With auto, the
    /// default, it is left out wherever that is not possible: on a standby, where transactions are read-only by
    /// default, without the TEMPORARY privilege, for some types, if the sample has too few long values, and if time
    /// runs out. With always, each of these is an error.
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Sample"
    )]
    calibrate: Calibrate,

    /// Keep this server's CPU times in a file
    ///
    /// If the file exists, its times are used instead of new ones; if not, those of the first column that is calibrated
    /// are used for all columns, and kept. A file of another server is refused.
    #[arg(
        hide_short_help = true,
        long = "calibration",
        value_name = "FILE",
        help_heading = "Sample"
    )]
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// The ALTER TABLE statements
    Sql,
    /// The retoast command
    Command,
}

/// Does what the arguments say.
pub(super) fn run(args: &AdviseArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.details.details && (args.emit.is_some() || args.format.format != Format::Table) {
        return Err(Failure::usage(
            "--details applies only to --format table; the other formats always contain everything"
                .to_owned(),
        ));
    }
    if args.weights.prices.is_some() && args.weights.optimize != Optimize::Balanced {
        return Err(Failure::usage("--prices applies only to --optimize balanced"));
    }
    let (_, methods) = args.policy.all();
    let twice = args.toaster.iter().find(|toaster| {
        toaster.method().is_some_and(|method| methods.contains(&MethodChoice::One(method)))
    });
    if let Some(method) = twice.and_then(|toaster| toaster.method()) {
        let name = method.name();
        return Err(Failure::usage(format!(
            "--method {name} has no effect: --toaster compares it"
        )));
    }
    let alone =
        [("--emit", args.emit.is_some()), ("--calibration", args.calibration.file.is_some())];
    Fleet::new("advise-threshold", &args.fleet, &args.connection, 1).run(
        &ui.in_format(args.format.format),
        &alone,
        |database| terminal::runtime(1)?.block_on(tables(args, database)),
    )
}

/// Whether keys can be priced so.
///
/// # Errors
/// Unless one table is named, or where a command is wanted.
pub(super) fn check_extraction(tables: &[String]) -> Result<(), Failure> {
    if tables.len() != 1 {
        return Err(Failure::usage("--extract takes exactly one table").hint("Name the table."));
    }
    Ok(())
}

async fn tables(args: &AdviseArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let connection = database.connected(&args.allow.session("advise-threshold")).await?;
    let advisor = Advisor::open(connection, options(args), ReadingProgress::new(ui)).await?;
    let kept = use_calibration(args, &advisor).await?;
    let asked = !args.toaster.is_empty() || !args.target.is_empty() || args.policy.is_given();
    let shown = Shown { extraction: false, details: args.details.details, asked };
    let server = ServerReport::new(&advisor.server, advisor.connection.address());
    let mut output = AdviseOutput::new(ui, args.emit, shown, server, None);
    let interrupt = ui.interrupted();
    let ended = run::tables(
        &advisor,
        &args.tables.tables,
        Some(&args.nodes.node_address),
        &mut output,
        interrupt,
    )
    .await;
    let kept = match (&args.calibration.file, kept, advisor.calibration()) {
        (Some(path), false, Some(calibration)) => {
            memory::replace(path, calibration.text().as_bytes())
                .map_err(|error| cannot(path, "written", &error.to_string()))
        }
        _ => Ok(()),
    };
    let exit = output.end(ended)?;
    kept?;
    Ok(exit)
}

/// Uses the file of `--calibration`; whether it exists.
async fn use_calibration(args: &AdviseArgs, advisor: &Advisor) -> Result<bool, Failure> {
    let Some(path) = &args.calibration.file else { return Ok(false) };
    let bytes = match memory::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if args.calibration.calibrate == Calibrate::Never {
                return Err(cannot(path, "read", &error.to_string())
                    .hint("--calibrate never makes no such file."));
            }
            return Ok(false);
        }
        Err(error) => return Err(cannot(path, "read", &error.to_string())),
    };
    let kept =
        Kept::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| cannot(path, "read", &why))?;
    advisor.use_calibration(kept, &path.display().to_string()).await?;
    Ok(true)
}

fn cannot(path: &Path, done: &str, why: &str) -> Failure {
    Failure::usage(format!("calibration file \"{}\" cannot be {done}: {why}", path.display()))
}

fn options(args: &AdviseArgs) -> Options {
    let (policies, mut methods) = args.policy.all();
    let mut storages: Vec<Storage> = Vec::new();
    for toaster in &args.toaster {
        if !storages.contains(&toaster.storage()) {
            storages.push(toaster.storage());
        }
        let method = toaster.method().map(MethodChoice::One);
        methods.extend(method.filter(|method| !methods.contains(method)));
    }
    Options {
        columns: args.columns.columns.clone(),
        narrowing: Narrowing { storages, methods, targets: args.target.clone(), policies },
        extract: None,
        sample: args.sample.size(),
        seed: args.sample.seed(),
        exact: args.exact.exact,
        calibrate: calibrate(args),
        keeps_calibration: args.calibration.file.is_some(),
        optimize: args.weights.optimize,
        prices: args.weights.prices.unwrap_or_default(),
        reads_per_write: args.weights.reads_per_write,
    }
}

/// Tests run without calibration unless they ask for it, because it takes time and its results vary.
fn calibrate(args: &AdviseArgs) -> Calibrate {
    if args.calibration.calibrate == Calibrate::Auto
        && testing::setting::<String>("UNCALIBRATED").is_some()
    {
        return Calibrate::Never;
    }
    args.calibration.calibrate
}

/// Problems that are printed on standard error in one run; all of them are in the reports.
const PROBLEMS_SHOWN: usize = 10;

/// The output of one run.
pub(super) struct AdviseOutput {
    ui: Ui,
    lines: Lines,
    found: bool,
    problems_shown: usize,
    /// The exit code if nothing is found, once something could not be done.
    failed: Option<Exit>,
    /// Which keys were to be extracted.
    extract: Option<Extract>,
    /// The script that was printed.
    script: Option<String>,
    /// The commands that were: columns may share one.
    commands: HashSet<String>,
}

enum Lines {
    Reports(Writer<Plain<Out>>),
    Emitted(Emit, Out),
}

impl AdviseOutput {
    pub(super) fn new(
        ui: &Ui,
        emit: Option<Emit>,
        shown: Shown,
        server: ServerReport,
        extract: Option<&Extract>,
    ) -> AdviseOutput {
        let lines = match emit {
            Some(emit) => Lines::Emitted(emit, ui.stdout()),
            None => {
                let writer = Writer::new(ui.paged_out(), (ui.format, ui.width), shown, server);
                Lines::Reports(writer)
            }
        };
        AdviseOutput {
            ui: ui.clone(),
            lines,
            found: false,
            problems_shown: 0,
            failed: None,
            extract: extract.cloned(),
            script: None,
            commands: HashSet::new(),
        }
    }

    /// Ends the document, and says how the run ended. Where nothing was found nothing is printed.
    pub(super) fn end(self, ended: Result<(), RunError>) -> Result<Exit, Failure> {
        let found = self.found;
        let incomplete = self.failed.is_some();
        let exit = match self.failed {
            Some(_) if found => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Ok,
        };
        terminal::end(ended, exit, |failed| match self.lines {
            Lines::Reports(mut writer) if found || !(failed || incomplete) => {
                if failed || incomplete {
                    writer.incomplete();
                }
                writer.finish()
            }
            Lines::Reports(_) | Lines::Emitted(..) => Ok(()),
        })
    }
}

impl Sink<Report> for AdviseOutput {
    fn found(&mut self, mut report: Report) -> io::Result<()> {
        self.found = true;
        let ui =
            if report.other_owner.is_some() { self.ui.without_user() } else { self.ui.clone() };
        ui.lead_here(&mut report.recommendation.command);
        if let Some(compaction) = &mut report.compaction {
            ui.lead_line_here(&mut compaction.command);
        }
        if report.problems.count() > 0 {
            self.failed.get_or_insert(Exit::Incomplete);
        }
        let room = PROBLEMS_SHOWN.saturating_sub(self.problems_shown);
        for problem in report.problems.kept().iter().take(room) {
            self.problems_shown += 1;
            self.ui.error(printable(&problem.to_string()));
        }
        if self.extract == Some(Extract::Auto) && report.extraction.is_none() {
            let place = format!("{}, column {}", report.table.relation, report.column);
            let notice = Message::notice("no key is worth a column of its own");
            self.ui.tell(notice.about(printable(&place)));
            if matches!(self.lines, Lines::Emitted(..)) {
                return Ok(());
            }
        }
        match &mut self.lines {
            Lines::Reports(writer) => writer.report(&report),
            Lines::Emitted(emit, out) => match &report.extraction {
                // partitions have one script
                Some(extraction) if self.script.as_ref() == Some(&extraction.script) => Ok(()),
                // those without rows have none
                None if self.extract.is_some() => Ok(()),
                None if *emit == Emit::Command
                    && report
                        .recommendation
                        .line()
                        .is_some_and(|line| !self.commands.insert(line)) =>
                {
                    Ok(())
                }
                extraction => {
                    self.script = extraction.as_ref().map(|extraction| extraction.script.clone());
                    emitted(*emit, &report, out)
                }
            },
        }
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed.kind.into());
        self.ui.tell(failed.message);
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}

fn emitted(emit: Emit, report: &Report, out: &mut impl Write) -> io::Result<()> {
    if let Some(extraction) = &report.extraction {
        out.write_all(extraction.script.as_bytes())?;
        return out.flush();
    }
    let recommendation = &report.recommendation;
    match (emit, recommendation.line()) {
        (_, None) => {
            let mark = if emit == Emit::Sql { "--" } else { "#" };
            let place = format!("{}, column {}", report.table.relation, report.column);
            let is_for_new = !recommendation.sql.is_empty();
            let what = match emit {
                _ if !recommendation.compares() => "not compared with other settings".to_owned(),
                _ if !is_for_new => "keep the present settings".to_owned(),
                Emit::Sql => "for new values".to_owned(),
                Emit::Command => {
                    format!(
                        "keep the stored values; for new ones: {}",
                        recommendation.sql.join(" ")
                    )
                }
            };
            writeln!(out, "{mark} {}: {}", printable(&place), printable(&what))?;
            if emit == Emit::Sql {
                recommendation.sql.iter().try_for_each(|statement| writeln!(out, "{statement}"))?;
            }
        }
        (Emit::Sql, Some(command)) if recommendation.sql.is_empty() => {
            writeln!(
                out,
                "-- Citus refuses SET STORAGE for its tables; instead: {}",
                printable(&command)
            )?;
        }
        (Emit::Sql, Some(_)) => {
            for statement in &recommendation.sql {
                writeln!(out, "{statement}")?;
            }
        }
        (Emit::Command, Some(command)) => writeln!(out, "{command}")?,
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;
    use crate::command::{CommandTarget, command, shell_line};
    use toast_format::codec::Method;
    use toast_format::disk::desc::Storage;
    use toast_format::disk::layout::PageSize;
    use toast_format::model::policy::MethodChoice;
    use toast_format::model::settings::{Settings, TupleTarget};

    /// The words that a POSIX shell makes of a command.
    fn words(command: &str) -> Vec<String> {
        let script = format!("set -- {command}\nprintf '%s\\0' \"$@\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn emitted_commands_are_those_that_retoast_takes() {
        let methods =
            [MethodChoice::One(Method::Pglz), MethodChoice::One(Method::Lz4), MethodChoice::Either];
        let policies = [
            "always",
            "never",
            "chunk-saving",
            "chunk-saving=3",
            "ratio=0.8",
            "chunk-floor=50",
            "hybrid=0.85",
            "best",
        ];
        let present = Settings {
            storage: Storage::Extended,
            method: methods[0],
            target: TupleTarget::new(2032, PageSize::DEFAULT).unwrap(),
            policy: "always".parse().unwrap(),
        };
        let targets = [
            CommandTarget { schema: "public", table: "docs", column: "js" },
            CommandTarget { schema: "My Schema", table: "it's $x", column: "a\"b *?\\" },
            CommandTarget { schema: "s", table: "-t", column: "--toaster" },
        ];
        let mut parsed = 0;
        for storage in [Storage::Plain, Storage::Main, Storage::External, Storage::Extended] {
            for method in methods {
                for policy in policies {
                    for target_bytes in [2032, 4080] {
                        let target = TupleTarget::new(target_bytes, PageSize::DEFAULT).unwrap();
                        let policy = policy.parse().unwrap();
                        let wanted = Settings { storage, method, target, policy };
                        if wanted.check().is_err() {
                            continue;
                        }
                        for named in targets {
                            let settings = (&present, &wanted);
                            let options = ["--compact=toast", "--reindex"];
                            let told = command(named, &["-y z"], settings, &options);
                            let text = shell_line(&told);
                            let words = words(&text);
                            assert_eq!(words, told);
                            let cli = Cli::try_parse_from(&words);
                            assert!(cli.is_ok(), "{text}: {}", cli.err().unwrap());
                            assert!(
                                words.contains(&named.column.to_owned())
                                    || words.contains(&format!("--column={}", named.column)),
                                "{words:?}"
                            );
                            parsed += 1;
                        }
                    }
                }
            }
        }
        assert!(parsed >= 3 * 2 * 8, "{parsed}");
    }
}
