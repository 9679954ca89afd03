//! `toastctl compact` and `toastctl reindex`: their arguments, and what they ask for.

use clap::{Args, ValueEnum};

use super::arguments::TablesArg;
use super::exit::{Exit, Failure};
use super::retoast::write;
use super::settings::{ReindexArg, RowArgs, RunArgs, Verb};
use super::terminal::Ui;
use crate::retoast::compact::CompactRequest;
use crate::retoast::reindex::Reindex;
use crate::retoast::run::request::{Assignment, Tasks};

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
        hide_possible_values = true
    )]
    files: CompactRequest,

    #[command(flatten)]
    reindex: ReindexArg,

    #[command(flatten)]
    rows: RowArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Arguments of `reindex`.
#[derive(Debug, Args)]
pub struct ReindexArgs {
    #[command(flatten)]
    tables: TablesArg,

    /// bloated or all [default: bloated]
    ///
    /// An index is bloated if it is more than 1.3 times as large as it would be after a rebuild. For access methods other
    /// than btree, and for deduplicated keys, this is not known, and only all rebuilds the index.
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "bloated",
        hide_possible_values = true
    )]
    indexes: Indexes,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Indexes {
    Bloated,
    All,
}

/// Does what the arguments of `compact` say.
///
/// # Errors
/// Where they contradict each other, or the run could not begin.
pub(super) fn compact(args: &CompactArgs, ui: &Ui) -> Result<Exit, Failure> {
    let CompactArgs { tables, files, reindex: ReindexArg { reindex }, rows, run } = args;
    let of_one = !run.fleet.is_given(false)?;
    if of_one && run.checkpoint.is_some() && *reindex == Reindex::Never {
        return Err(Failure::usage(
            "with compact, --checkpoint requires --reindex: it only records index rebuilds",
        ));
    }
    let tasks = Tasks { convert: None, compact: Some(*files), reindex: *reindex };
    work(ui, Verb::Compact, tables, tasks, Some(rows), run)
}

/// Does what the arguments of `reindex` say.
///
/// # Errors
/// Where they contradict each other, or the run could not begin.
pub(super) fn reindex(args: &ReindexArgs, ui: &Ui) -> Result<Exit, Failure> {
    let reindex = match args.indexes {
        Indexes::Bloated => Reindex::Bloated,
        Indexes::All => Reindex::All,
    };
    let tasks = Tasks { convert: None, compact: None, reindex };
    work(ui, Verb::Reindex, &args.tables, tasks, None, &args.run)
}

fn work(
    ui: &Ui,
    verb: Verb,
    tables: &TablesArg,
    tasks: Tasks,
    rows: Option<&RowArgs>,
    run: &RunArgs,
) -> Result<Exit, Failure> {
    let settings = run.settings(verb)?;
    if tables.tables.is_empty() {
        let hint = format!(
            "toastctl {0} TABLE, or toastctl {0} '*' for all tables of the search path.",
            verb.name()
        );
        return Err(Failure::usage("no table was given").hint(hint));
    }
    let request = run.request(tables, Assignment::Tables(tasks), rows, 1, &settings);
    write(ui, verb, run, &settings, &request)
}
