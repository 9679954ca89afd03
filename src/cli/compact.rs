//! `toastctl compact` and `toastctl reindex`: their arguments, and what they ask for.

use clap::Args;

use super::arguments::{FormatArg, TablesArg};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::retoast::write;
use super::settings::{RowArgs, RunArgs, Settings, Verb};
use crate::retoast::check::owner::Approval;
use crate::retoast::compact::CompactRequest;
use crate::retoast::reindex::Reindex;
use crate::retoast::run::request::{Request, Tasks, Work};
use crate::retoast::task::session::Verify;

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    tables: TablesArg,

    /// toast, heap or all [default: all]
    ///
    /// The file of the TOAST relation, of the table, or both.
    #[arg(
        long,
        value_name = "FILES",
        value_enum,
        default_value = "all",
        hide_default_value = true,
        hide_possible_values = true
    )]
    files: CompactRequest,

    /// Then rebuild indexes: bloated or all
    ///
    /// As toastctl reindex does.
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "never", default_missing_value = "bloated", hide_default_value = true,
          hide_possible_values = true)]
    reindex: Reindex,

    #[command(flatten)]
    rows: RowArgs,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    help: HelpFlag,
}

/// Arguments of `reindex`.
#[derive(Debug, Args)]
pub struct ReindexArgs {
    #[command(flatten)]
    tables: TablesArg,

    /// Rebuild all indexes, not only bloated ones
    ///
    /// An index is bloated if it takes more than 1.3 times as much as a fresh one. For other access methods than btree,
    /// and where equal keys share entries, that is not known, and only --all rebuilds the index.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    help: HelpFlag,
}

/// Does what the arguments of `compact` say.
///
/// # Errors
/// Where they contradict each other, or the run could not begin.
pub(super) fn compact(args: &CompactArgs) -> Result<Exit, Failure> {
    let settings = args.run.settings(Verb::Compact)?;
    if args.run.checkpoint.is_some() && args.reindex == Reindex::Never {
        return Err(Failure::usage(
            "--checkpoint remembers rebuilds of indexes here: it goes with --reindex",
        ));
    }
    let tasks = Tasks { convert: None, compact: Some(args.files), reindex: args.reindex };
    let rows = (args.rows.approval(), args.rows.verify());
    let request = request(&args.tables, tasks, rows, &args.run, &settings)?;
    write(("compact", &args.connection), &args.run, (&settings, args.format), &request)
}

/// Does what the arguments of `reindex` say.
///
/// # Errors
/// Where they contradict each other, or the run could not begin.
pub(super) fn reindex(args: &ReindexArgs) -> Result<Exit, Failure> {
    let settings = args.run.settings(Verb::Reindex)?;
    let reindex = if args.all { Reindex::All } else { Reindex::Bloated };
    let tasks = Tasks { convert: None, compact: None, reindex };
    let approval = Approval { allow_triggers: false, trust_owner_code: false };
    let rows = (approval, Verify::default());
    let request = request(&args.tables, tasks, rows, &args.run, &settings)?;
    write(("reindex", &args.connection), &args.run, (&settings, args.format), &request)
}

fn request(
    tables: &TablesArg,
    tasks: Tasks,
    (approval, verify): (Approval, Verify),
    run: &RunArgs,
    settings: &Settings,
) -> Result<Request, Failure> {
    if tables.tables.is_empty() {
        return Err(Failure::usage("a table is needed"));
    }
    Ok(Request {
        tables: tables.tables.clone(),
        work: Work::Tables(tasks),
        approval,
        source: settings.source,
        options: run.options(settings, (verify, 1)),
        throttle: run.throttle(settings),
        parallel_tables: settings.parallel_tables,
        checkpoint: run.checkpoint.clone(),
        since: None,
    })
}
