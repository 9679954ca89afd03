//! What `toastctl retoast` is asked for: its arguments, with their conflicts found.

use std::time::Duration;

use super::exit::Failure;
use super::inspect::SourceArg;
use super::retoast::{NewValues, ReindexArg, RetoastArgs, ToasterArg};
use crate::judge::goal::{Goal, Pluggable, PolicyGoal};
use crate::retoast::check::ready::TableRequest;
use crate::retoast::run::request::{DepartureRequest, Request, Source, Work};
use crate::retoast::task::session::{Options, Tuning};

/// What the arguments say.
///
/// # Errors
/// Where they contradict each other.
pub(super) fn request(args: &RetoastArgs) -> Result<Request, Failure> {
    if args.no_alter && args.new_values == NewValues::Extended {
        return Err(Failure::usage(
            "--new-values extended sets the columns, and --no-alter does not allow setting them",
        ));
    }
    if args.replication_origin.is_some() && (args.jobs > 1 || args.parallel_tables > 1) {
        return Err(Failure::usage(
            "--replication-origin is one session's: it goes with one job and one table at a time",
        ));
    }
    if args.policy.is_some() && args.jobs > 1 {
        return Err(Failure::usage(
            "--policy goes with one job: values pass through the temporary table of one session\n\
             HINT:  --parallel-tables sweeps several tables side by side.",
        ));
    }
    let work = match &args.from_toaster {
        Some(toaster) => Work::Departure(DepartureRequest {
            toaster: toaster.clone(),
            allow_triggers: args.allow_triggers,
            trust_owner_code: args.trust_owner_code,
        }),
        None => Work::Columns(of_each(args)?),
    };
    Ok(Request {
        tables: args.tables.clone(),
        work,
        source: args.source.into(),
        options: options(args),
        compact: args.compact.map(Into::into),
        reindex: args.reindex.into(),
        wants: args.manners.wants(args.max_bloat, args.dry_run),
        parallel_tables: args.parallel_tables,
        checkpoint: args.checkpoint.clone(),
        since: args.since.clone(),
    })
}

/// What is to be done to each table.
fn of_each(args: &RetoastArgs) -> Result<TableRequest, Failure> {
    if args.columns.is_empty() && (args.toaster.is_some() || args.policy.is_some()) {
        return Err(Failure::usage("--toaster and --policy go with --column"));
    }
    let goal = match (&args.toaster, args.policy) {
        (Some(ToasterArg::Stock(stock)), _) => Goal::Stock(*stock),
        (Some(ToasterArg::Named(name)), _) => Goal::Pluggable(Pluggable::Becomes(name.clone())),
        (None, Some(policy)) => Goal::Policy(PolicyGoal {
            policy,
            method: args.method,
            new_extended: args.new_values == NewValues::Extended,
        }),
        (None, None) if args.compact.is_some() || args.reindex != ReindexArg::Never => {
            keeps_values(args)?;
            Goal::Keep
        }
        (None, None) => {
            return Err(Failure::usage(
                "--toaster, --policy, --compact, --reindex or --from-toaster is needed",
            ));
        }
    };
    Ok(TableRequest {
        columns: args.columns.clone(),
        updates: goal != Goal::Keep || args.compact.is_some(),
        goal,
        target: args.target,
        no_alter: args.no_alter,
        allow_triggers: args.allow_triggers,
        allow_row_security: args.allow_row_security,
        trust_owner_code: args.trust_owner_code,
    })
}

/// Refuses what has nothing to do with a compaction and with indexes.
fn keeps_values(args: &RetoastArgs) -> Result<(), Failure> {
    let no_rebuilds = args.reindex == ReindexArg::Never;
    let given = [
        ("--column", !args.columns.is_empty()),
        ("--target", args.target.is_some()),
        ("--no-alter", args.no_alter),
        // it remembers rebuilds that were begun
        ("--checkpoint", args.checkpoint.is_some() && no_rebuilds),
        ("--enforce", args.enforce),
        ("--undo", args.undo),
    ];
    let alone = if args.compact.is_some() { "--compact" } else { "--reindex" };
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} goes with --toaster or --policy: {alone} alone keeps what is stored as it is"
        ))),
        None => Ok(()),
    }
}

fn options(args: &RetoastArgs) -> Options {
    Options {
        tuning: tuning(args),
        verify: args.verify.into(),
        lock_timeout: Duration::from_millis(args.lock_timeout),
        row_security_off: !args.allow_row_security,
        dry_run: args.dry_run,
        origin: args.replication_origin.clone(),
        enforce: args.enforce,
        undo: args.undo,
    }
}

fn tuning(args: &RetoastArgs) -> Tuning {
    let batch = Duration::from_millis(args.batch_ms);
    let tuning = Tuning::new(batch, args.max_bloat, args.jobs.into());
    // tests go by other windows too
    #[cfg(feature = "internals")]
    let tuning = {
        let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Tuning {
            window: given("TOASTCTL_TEST_WINDOW").unwrap_or(tuning.window),
            passes: given("TOASTCTL_TEST_PASSES").unwrap_or(tuning.passes),
            ..tuning
        }
    };
    tuning
}

impl From<SourceArg> for Source {
    fn from(arg: SourceArg) -> Source {
        match arg {
            SourceArg::Auto => Source::Auto,
            SourceArg::Pageinspect => Source::Pageinspect,
            SourceArg::Functions => Source::Functions,
        }
    }
}
