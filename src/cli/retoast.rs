//! `toastctl retoast`: its arguments, and what they ask for; and the run of each verb that writes.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;

use super::arguments::{ColumnsArg, JobsArg, PolicyArgs, TablesArg, count};
use super::citus::is_of_another_run;
use super::citus_writes::CitusRun;
use super::exit::{Exit, Failure};
use super::fleet::{Database, Fleet, Writes};
use super::retoast_output::{Progress, RetoastOutput, listen};
use super::settings::{NewValues, ReindexArg, RowArgs, RunArgs, Settings, Verb};
use super::terminal::{self, Ui};
use crate::retoast::compact::CompactRequest;
use crate::retoast::listener::Control;
use crate::retoast::preflight::ready::ConvertRequest;
use crate::retoast::reindex::Reindex;
use crate::retoast::run::request::{Assignment, Request, Tasks};
use crate::retoast::run::tables;
use crate::retoast::task::session::Options;
use crate::server::connect::SessionOptions;
use crate::server::similar::similar;
use toast_format::judge::goal::{Goal, Pluggable, PolicyGoal};
use toast_format::judge::toaster::Toaster;
use toast_format::model::policy::{MethodChoice, Policy};

/// Arguments of `retoast`.
#[derive(Debug, Args)]
#[command(mut_arg("jobs", |arg| arg
    .help("Number of connections, up to 16 [default: 1]")
    .value_parser(count::<u16, 1, 16>)))]
pub struct RetoastArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    columns: ColumnsArg,

    /// Convert to pglz, lz4, external, main, ...
    ///
    /// The storage or compression to convert values to: pglz, lz4, external, main, extended or plain. pglz and lz4 mean storage extended with that method. main can be
    /// followed by a method, as in main=lz4. On servers with pluggable TOAST, the name of a toaster is also accepted.
    #[arg(long, value_name = "STORAGE", conflicts_with = "policy")]
    toaster: Option<ToasterArg>,

    /// Set the table's toast_tuple_target
    #[arg(long, value_name = "BYTES", value_parser = target, allow_negative_numbers = true)]
    target: Option<u32>,

    /// Convert everything back to the default toaster
    ///
    /// Converts everything that this pluggable toaster (of the catalog pg_toaster) stores, in all tables or in the named
    /// ones, and then verifies that nothing refers to the toaster any more.
    #[arg(hide_short_help = true, long, value_name = "TOASTER", conflicts_with_all = ["toaster", "policy", "columns", "target",
          "checkpoint", "since", "compact", "reindex", "undo"])]
    from_toaster: Option<String>,

    #[command(flatten)]
    policy: PolicyArgs,

    /// Skip rows unchanged since the run saved in FILE
    ///
    /// FILE is written when all values comply with the policy. The next run does not try again to compress values that
    /// this one left uncompressed.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        requires = "policy",
        help_heading = "Policy"
    )]
    since: Option<PathBuf>,

    /// Then compact: toast, heap or all
    ///
    /// Returns free space inside the files to the operating system, as toastctl compact does.
    #[arg(long, value_name = "FILES", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "all", hide_possible_values = true, help_heading = "Afterwards")]
    compact: Option<CompactRequest>,

    #[command(flatten)]
    reindex: ReindexArg,

    /// If the run does not complete, restore the settings
    ///
    /// Values that were already converted are not converted back. What another session has set meanwhile is left.
    #[arg(long, help_heading = "Safety")]
    undo: bool,

    #[command(flatten)]
    rows: RowArgs,

    #[command(flatten)]
    jobs: JobsArg,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToasterArg {
    /// One that every server has.
    Stock(Toaster),
    /// A toaster that `pg_toaster` lists under this name.
    Named(String),
}

impl FromStr for ToasterArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ToasterArg, Infallible> {
        Ok(text.parse().map_or_else(|_| ToasterArg::Named(text.to_owned()), ToasterArg::Stock))
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or the run could not begin.
pub(super) fn run(args: &RetoastArgs, ui: &Ui) -> Result<Exit, Failure> {
    let settings = args.run.settings(Verb::Retoast)?;
    let request = request(args, &settings)?;
    write(ui, Verb::Retoast, &args.run, &settings, &request)
}

/// Runs a verb that writes, on one database or on several.
///
/// # Errors
/// Where the run could not begin.
pub(super) fn write(
    ui: &Ui,
    verb: Verb,
    args: &RunArgs,
    settings: &Settings,
    request: &Request,
) -> Result<Exit, Failure> {
    let jobs = u16::try_from(request.options.tuning.jobs).unwrap_or(u16::MAX);
    let sessions = settings.parallel_tables.saturating_mul(jobs.saturating_add(2));
    let writes = Writes {
        max_time: args.max_time,
        checkpoint: args.checkpoint.as_deref(),
        work: format!("{} {}", verb.name(), request.text()),
        dry_run: args.dry_run,
    };
    let fleet = Fleet {
        writes: Some(writes),
        ..Fleet::new(verb.name(), &args.fleet, &args.connection, sessions)
    };
    let mut alone = vec![("--since", request.since.is_some())];
    alone.extend(settings.reporting.of_one());
    let threads = if args.dry_run { 0 } else { 2 };
    fleet.run(&ui.in_format(args.format.format), &alone, |database| {
        let request = Request { checkpoint: database.checkpoint.clone(), ..request.clone() };
        let run = write_to(database, verb, args, settings, &request);
        terminal::runtime(threads)?.block_on(run)
    })
}

async fn write_to(
    database: &Database,
    verb: Verb,
    args: &RunArgs,
    settings: &Settings,
    request: &Request,
) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let reporting = &settings.reporting;
    let watch = Progress::new(ui, reporting)?;
    let session = SessionOptions::read_write(verb.name());
    let connection = database.connected(&session).await?;
    let mut output = RetoastOutput::new(ui, args.dry_run);
    let control = Arc::new(Control::default());
    let run = async {
        let citus = CitusRun {
            ui,
            first: &connection,
            address: &args.nodes,
            session,
            request,
            control: &control,
            listener: &watch,
        };
        let selected = citus.tables().await?;
        if !selected.is_empty() && is_of_another_run(ui, &connection).await? {
            return Ok(None);
        }
        if !selected.is_empty() {
            return citus.run(&selected, &mut output).await.map(|()| None);
        }
        tables::run(connection, request, Arc::clone(&control), &watch, &mut output).await
    };
    // the limit of time is that of all databases
    let max_time = if ui.target.is_none() { args.max_time } else { None };
    let ended = tokio::select! {
        ended = run => ended,
        never = listen(ui, &control, max_time) => match never {},
    };
    watch.end();
    output.end(ended, control.stopped_by(), &watch, reporting.on_end.as_deref())
}

/// Whether a text begins with a date or a time.
fn is_date(text: &str) -> bool {
    let (first, rest) = text.split_once(['-', ':']).unwrap_or_default();
    [first, rest.get(..2).unwrap_or_default()]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What the arguments say.
///
/// # Errors
/// Where they contradict each other.
fn request(args: &RetoastArgs, settings: &Settings) -> Result<Request, Failure> {
    if args.tables.tables.is_empty() && args.from_toaster.is_none() {
        return Err(Failure::usage("no table was given")
            .hint("toastctl retoast TABLE -c COLUMN --toaster STORAGE")
            .hint("toastctl advise-threshold says for which tables and columns that pays."));
    }
    if !settings.alter && settings.new_values == Some(NewValues::Extended) {
        return Err(Failure::usage(
            "--set new-values=extended changes column settings, which --set alter=off forbids",
        ));
    }
    let jobs = args.jobs.jobs.unwrap_or(1);
    if settings.replication_origin.is_some() && (jobs > 1 || settings.parallel_tables > 1) {
        return Err(Failure::usage(
            "a replication origin can be used by only one session: --jobs and --set parallel-tables must be 1",
        ));
    }
    no_method(args)?;
    let policy = args.policy.one()?;
    if policy.is_some() && jobs > 1 {
        let text = "--policy requires --jobs 1: values pass through a temporary table, which only one session can see";
        let hint = "--set parallel-tables=N converts several tables at the same time.";
        return Err(Failure::usage(text).hint(hint));
    }
    if let Some(path) = args.since.as_deref().and_then(Path::to_str).filter(|path| is_date(path)) {
        return Err(Failure::usage("--since takes a file, not a date")
            .hint(format!("./{path} is such a file.")));
    }
    if settings.enforce && (!settings.alter || args.from_toaster.is_some()) {
        return Err(Failure::usage(
            "--set enforce=on requires a conversion that changes column settings",
        ));
    }
    if args.undo && !settings.alter {
        return Err(Failure::usage("--undo has nothing to restore with --set alter=off"));
    }
    let work = match &args.from_toaster {
        Some(toaster) => Assignment::Departure(toaster.clone()),
        None => Assignment::Tables(Tasks {
            convert: Some(convert(args, policy, settings)?),
            compact: args.compact,
            reindex: args.reindex.reindex,
        }),
    };
    let request = args.run.request(&args.tables, work, Some(&args.rows), jobs, settings);
    Ok(Request {
        options: Options { restores_settings: args.undo, ..request.options },
        since: args.since.clone(),
        ..request
    })
}

/// A target for pages of any size; whether the server's pages have room for it is checked there.
fn target(text: &str) -> Result<u32, String> {
    count::<u32, 128, 32736>(text).map_err(|_| {
        "expected a whole number from 128 to 8160, or to 32736 if pages have 32 kB".to_owned()
    })
}

/// Refuses a method without a policy; a storage names its own.
fn no_method(args: &RetoastArgs) -> Result<(), Failure> {
    if args.policy.is_given() {
        return Ok(());
    }
    let Some(method) = args.policy.method() else { return Ok(()) };
    let Some(toaster) = &args.toaster else {
        let hint = match method {
            MethodChoice::Either => "As in: --policy best --method either.".to_owned(),
            MethodChoice::One(_) => format!(
                "To convert values to {method}: --toaster {method}. With a policy: --policy best --method {method}."
            ),
        };
        return Err(Failure::usage("--method requires --policy").hint(hint));
    };
    let ToasterArg::Stock(stock) = toaster else {
        return Err(Failure::usage("--method cannot be used with a pluggable toaster")
            .hint("Leave out --method: the toaster chooses how it compresses."));
    };
    let name = stock.name();
    let does = match stock {
        Toaster::External | Toaster::Plain => "does not compress",
        Toaster::Compressed(_) | Toaster::MainCompressed(_) => "names the method already",
        Toaster::Main | Toaster::Extended => "keeps the method of each column",
    };
    let text = format!("--method has no effect with --toaster {name}, which {does}");
    let instead = match (method, stock) {
        (MethodChoice::Either, _) => "--policy best --method either".to_owned(),
        (MethodChoice::One(method), Toaster::Main | Toaster::MainCompressed(_)) => {
            format!("--toaster main={}", method.name())
        }
        (MethodChoice::One(method), _) => format!("--toaster {}", method.name()),
    };
    if instead == format!("--toaster {name}") {
        return Err(Failure::usage(text).hint("Leave out --method."));
    }
    let hint = format!("Leave out --method. To compress by {method}: {instead}.");
    Err(Failure::usage(text).hint(hint))
}

/// The failure that no column was named for values that only some columns can take.
fn no_columns(args: &RetoastArgs) -> Failure {
    let Some(ToasterArg::Named(name)) = &args.toaster else {
        return Failure::usage("--toaster plain requires --column")
            .hint("Values that are stored plain must fit the row: toastctl inspect TABLE lists the columns.");
    };
    let known = Toaster::ALL.map(|toaster| toaster.name().to_owned());
    let text = format!(
        "\"{name}\" is no storage and no compression method, and a toaster of pg_toaster requires --column"
    );
    match similar(name, &known).first() {
        Some(near) => Failure::usage(text).hint(format!("Perhaps you meant {near}.")),
        None => Failure::usage(text).hint(format!(
            "--toaster accepts {}. Only servers with pluggable TOAST have toasters of other names.",
            known.join(", ")
        )),
    }
}

/// What is wanted of columns.
fn convert(
    args: &RetoastArgs,
    policy: Option<(Policy, Option<MethodChoice>)>,
    settings: &Settings,
) -> Result<ConvertRequest, Failure> {
    if let Some(ToasterArg::Named(name)) = &args.toaster
        && let Some((storage, method)) = name.split_once('=')
        && Toaster::ALL.iter().any(|known| known.name() == storage)
    {
        return Err(Failure::usage(format!(
            "there is no compression method \"{method}\" for {storage}"
        ))
        .hint(
            "--toaster main=lz4 and main=pglz choose one; external stores values uncompressed.",
        ));
    }
    let goal = match (&args.toaster, policy) {
        (Some(_), _) if settings.new_values.is_some() => {
            return Err(Failure::usage(
                "--set new-values has no effect with --toaster: it is for --policy",
            ));
        }
        (Some(ToasterArg::Stock(stock)), _) => Goal::Stock(*stock),
        (Some(ToasterArg::Named(name)), _) => Goal::Pluggable(Pluggable::Becomes(name.clone())),
        (None, Some((policy, method))) => Goal::Policy(PolicyGoal {
            policy,
            method,
            new_extended: settings.new_values == Some(NewValues::Extended),
        }),
        (None, None) if args.compact.is_some() || args.reindex.reindex != Reindex::Never => {
            return Err(Failure::usage("--compact and --reindex follow a conversion")
                .hint("toastctl compact TABLE and toastctl reindex TABLE do nothing else."));
        }
        (None, None) if args.undo => {
            const ENDED: &str = "A run that has ended is undone by the commands that it printed after \"to restore\" and \"and the values\": toastctl help runbooks, UNDO A CONVERSION.";
            return Err(Failure::usage("--undo requires --toaster or --policy").hint(ENDED));
        }
        (None, None) if args.target.is_some() => {
            return Err(Failure::usage("--target requires --toaster or --policy").hint(
                "A new target takes a conversion, as in: -c COLUMN --toaster lz4 --target 4080.",
            ));
        }
        (None, None) => {
            const COLUMN: &str =
                "retoast converts values, as in: toastctl retoast TABLE -c COLUMN --toaster lz4";
            const OTHERS: &str = "toastctl compact TABLE returns free space; toastctl reindex TABLE rebuilds bloated indexes.";
            let failure = Failure::usage("--toaster or --policy is required");
            let tables = args.tables.tables.iter();
            let storage =
                tables.rev().find(|name| Toaster::ALL.iter().any(|t| t.name() == name.as_str()));
            return Err(match storage {
                Some(name) => failure.hint(format!("{name} is a storage: write --toaster {name}.")),
                None => failure.hint(COLUMN).hint(OTHERS),
            });
        }
    };
    let suits_all = match &goal {
        Goal::Stock(toaster) => *toaster != Toaster::Plain,
        Goal::Policy(_) => true,
        Goal::Pluggable(_) => false,
    };
    if args.columns.columns.is_empty() && !suits_all {
        return Err(no_columns(args));
    }
    let columns = args.columns.columns.clone();
    let target = args.target;
    let no_alter = !settings.alter;
    Ok(ConvertRequest { columns, goal, target, no_alter, sets_citus_table: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_stock_server_has_are_those_of_pg_toaster() {
        let stock = ToasterArg::Stock(Toaster::External);
        assert_eq!("external".parse(), Ok(stock));
        assert_eq!("My Toaster".parse(), Ok(ToasterArg::Named("My Toaster".into())));
    }
}
