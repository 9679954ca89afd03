//! `toastctl keys`: its arguments, and the runs: what the keys of documents cost, and what it would give to store some
//! in columns of their own.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::advise::{self, AdviseOutput, Emit};
use super::arguments::{
    AllowArg, ColumnsArg, DetailsArg, ExactArg, FormatArg, SampleArgs, SourceArg, TablesArg,
    UNLIMITED, count, reads_per_write,
};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::files::{File, FileArgs};
use super::fleet::{Database, Fleet, FleetArgs};
use super::reports::ReportOutput;
use super::terminal::{self, ReadingProgress, Ui};
use crate::advise::advisor::{Advisor, Options};
use crate::advise::extract::keys::Extract;
use crate::keys::gather::KeyRequest;
use crate::keys::result::KeysReport;
use crate::keys::{files, live};
use crate::report::advise::Shown;
use crate::report::document::Format;
use crate::server::about::ServerReport;
use crate::server::pattern::NamePattern;
use crate::server::sink::{RunError, Sink};

/// Keys that are named for people.
const KEYS_SHOWN: usize = 12;

/// A CSV file has no place for keys within keys.
const FORMATS: &str = "table, json, jsonl, markdown or html";

/// Arguments of `keys`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("format", |arg| arg.help(FORMATS).long_help(FORMATS)),
          mut_arg("relation_file", |arg| arg.conflicts_with("source")))]
pub struct KeysArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    columns: ColumnsArg,

    /// Levels of nested keys [default: 1]
    ///
    /// The elements of an array count as one key.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = count::<u8, 1, 64>, allow_negative_numbers = true)]
    depth: u8,

    /// Show this many keys [default: 12]
    ///
    /// The remaining keys are added up. json and jsonl list all by default.
    #[arg(long, value_name = "N", value_parser = count::<u32, 1, UNLIMITED>,
          allow_negative_numbers = true)]
    limit: Option<u32>,

    /// Predict the table with these keys as columns
    ///
    /// Keys at the top level of a jsonb column's documents, separated by commas; enclose a key that contains a comma in
    /// double quotes. With auto, toastctl chooses the keys that save the most, considering what is known about their use.
    #[arg(long, value_name = "KEYS", help_heading = "Columns of their own",
          conflicts_with_all = ["relation_file", "depth", "limit", "source", "flavor"])]
    extract: Option<Extract>,

    /// sql: print only the migration script
    ///
    /// A skeleton for psql that moves the keys of --extract to columns, for its reader to adapt.
    #[arg(
        long,
        value_name = "WHAT",
        value_parser = PossibleValuesParser::new(["sql"]).map(|_| Emit::Sql),
        hide_possible_values = true,
        requires = "extract",
        conflicts_with = "format",
        help_heading = "Columns of their own"
    )]
    emit: Option<Emit>,

    /// Rows read per row written
    ///
    /// Overrides the workload that is derived from pg_stat_statements and the server's statistics.
    #[arg(long, value_name = "N", value_parser = reads_per_write, allow_negative_numbers = true,
          requires = "extract", help_heading = "Columns of their own")]
    reads_per_write: Option<f64>,

    #[command(flatten)]
    sample: SampleArgs,

    #[command(flatten)]
    exact: ExactArg,

    #[command(flatten)]
    source: SourceArg,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    details: DetailsArg,

    #[command(flatten)]
    allow: AllowArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    fleet: FleetArgs,

    #[command(flatten)]
    help: HelpFlag,
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &KeysArgs, ui: &Ui) -> Result<Exit, Failure> {
    let ui = &ui.in_format(args.format.format);
    if args.exact.exact && args.extract.is_none() {
        return Err(Failure::usage("--exact requires --extract"));
    }
    if args.format.format == Format::Csv {
        return Err(Failure::usage("--format csv is not available for keys")
            .hint("--format json lists all of them."));
    }
    args.fleet.is_given(args.file.is_given())?;
    if let Some(file) = args.file.file(&args.tables.tables, false)? {
        return keys_of_file(args, ui, &file);
    }
    for name in &args.tables.tables {
        NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    }
    if args.tables.tables.is_empty() {
        return Err(Failure::usage("no table was given").hint("toastctl keys TABLE [-c COLUMN]"));
    }
    if args.extract.is_some() {
        advise::check_extraction(&args.tables.tables)?;
    }
    let fleet = Fleet::new("keys", &args.fleet, &args.connection, 1);
    fleet.run(ui, &[("--emit", args.emit.is_some())], |database| {
        terminal::runtime(1)?.block_on(async {
            match &args.extract {
                Some(extract) => extraction(args, extract, database).await,
                None => keys(args, database).await,
            }
        })
    })
}

async fn advisor(args: &KeysArgs, database: &Database) -> Result<Advisor, Failure> {
    let connection = database.connected(&args.allow.session("keys")).await?;
    let options = Options {
        columns: args.columns.columns.clone(),
        sample: args.sample.size(),
        seed: args.sample.seed(),
        extract: args.extract.clone(),
        exact: args.exact.exact,
        reads_per_write: args.reads_per_write,
        ..Options::default()
    };
    Ok(Advisor::open(connection, options, ReadingProgress::new(&database.ui)).await?)
}

/// What the keys of these tables' documents cost.
async fn keys(args: &KeysArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let advisor = advisor(args, database).await?;
    let server = Some(ServerReport::new(&advisor.server, advisor.connection.address()));
    let mut output = ReportOutput::new::<KeysReport>(ui, server, args.details.details);
    let interrupt = ui.interrupted();
    let tables = &args.tables.tables;
    let source = args.source.source;
    let ended = live::tables(&advisor, tables, request(args), source, &mut output, interrupt).await;
    output.end(ended)
}

/// What the table would be with keys in columns of their own.
async fn extraction(
    args: &KeysArgs,
    extract: &Extract,
    database: &Database,
) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let advisor = advisor(args, database).await?;
    let shown = Shown { extraction: true, details: args.details.details, asked: false };
    let server = ServerReport::new(&advisor.server, advisor.connection.address());
    let mut output = AdviseOutput::new(ui, args.emit, shown, server, Some(extract));
    let interrupt = ui.interrupted();
    let ended =
        crate::advise::run::tables(&advisor, &args.tables.tables, None, &mut output, interrupt)
            .await;
    output.end(ended)
}

/// What the keys of the documents in a relation file cost.
fn keys_of_file(args: &KeysArgs, ui: &Ui, file: &File<'_>) -> Result<Exit, Failure> {
    let progress = ReadingProgress::new(ui);
    let sample = args.sample.size();
    let seed = args.sample.seed();
    let target = file.target(None);
    let columns = &args.columns.columns;
    let reports = files::relation_file(&target, columns, request(args), sample, seed, &*progress)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut output = ReportOutput::new::<KeysReport>(ui, None, args.details.details);
    let found = reports.into_iter().try_for_each(|report| output.found(report));
    output.end(found.map_err(RunError::Output))
}

fn request(args: &KeysArgs) -> KeyRequest {
    let given = args.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let for_people = matches!(args.format.format, Format::Table | Format::Markdown | Format::Html)
        .then_some(KEYS_SHOWN);
    KeyRequest { depth: args.depth, limit: given.or(for_people), flavor: args.file.flavor }
}
