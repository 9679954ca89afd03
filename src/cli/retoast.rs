//! `toastctl retoast`: its arguments, what they ask for, and the run.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::arguments::{
    ColumnsArg, FormatArg, JobsArg, PolicyArgs, SourceArg, TablesArg, ThrottleArgs, percent,
};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::retoast_output::{Progress, ProgressArg, RefusedFile, RetoastOutput, listen};
use super::terminal;
use crate::judge::goal::{Goal, Pluggable, PolicyGoal};
use crate::judge::toaster::Toaster;
use crate::model::policy::{MethodChoice, Policy};
use crate::retoast::check::ready::TableRequest;
use crate::retoast::compact::CompactRequest;
use crate::retoast::pace::control::Control;
use crate::retoast::reindex::Reindex;
use crate::retoast::run::request::{DepartureRequest, Request, Work};
use crate::retoast::run::tables;
use crate::retoast::task::session::{Options, Tuning, Verify};
use crate::server::connect::SessionOptions;

/// The most transactions under way at a time.
const MOST_JOBS: u16 = 16;

/// Arguments of `retoast`.
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    group = ArgGroup::new("where").args(["tables", "from_toaster"]).required(true).multiple(true)
)]
pub struct RetoastArgs {
    #[command(flatten)]
    tables: TablesArg,

    #[command(flatten)]
    columns: ColumnsArg,

    /// What is to store the values: pglz, lz4, external, main, extended or plain; main takes a
    /// method too, as in main=lz4; or a toaster of pg_toaster
    #[arg(long, value_name = "TOASTER", conflicts_with = "policy",
          required_unless_present_any = ["policy", "from_toaster", "compact", "reindex"])]
    toaster: Option<ToasterArg>,

    /// Give everything that this toaster of pg_toaster stores back to the default one, in all tables
    /// or those named, and prove that nothing refers to it
    #[arg(long, value_name = "TOASTER",
          conflicts_with_all = ["toaster", "policy", "columns", "target", "no_alter", "checkpoint",
                                "replication_origin", "parallel_tables"])]
    from_toaster: Option<String>,

    #[command(flatten)]
    policy: PolicyArgs,

    /// What the columns are left at, which new values follow until the command is repeated
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_default_value = true,
        value_name = "STORAGE",
        conflicts_with = "toaster",
        help_heading = "Policy"
    )]
    new_values: NewValues,

    /// Judge only rows that were written since the run that wrote this file; written anew when all
    /// complies. What was never compressed is then not tried again
    #[arg(long, value_name = "FILE", requires = "policy", help_heading = "Policy",
          conflicts_with_all = ["toaster", "from_toaster"])]
    since: Option<PathBuf>,

    /// Set the table's toast_tuple_target, in bytes
    #[arg(long, value_name = "BYTES")]
    target: Option<u32>,

    /// Give what is empty inside the files back to the file system, with what is stored kept as it is: rows
    /// and chunks at the end of a file move to the room in front, and VACUUM truncates it. Of the TOAST
    /// relation (toast), the table itself (heap), or both (all). With --toaster or --policy it follows the
    /// sweep.
    /// Rounds go on while each gives back 2 % of a file; VACUUM itself truncates for no less than 1000 pages or a
    /// 16th of it
    #[arg(long, value_name = "FILES", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "all", conflicts_with = "from_toaster", help_heading = "Compaction")]
    compact: Option<CompactRequest>,

    /// Rebuild indexes of the table and of its TOAST relation beside others, one at a time, after all else:
    /// those of more than 1.3 times what a fresh one would take (bloated, also without a value), all, or none
    /// (never, the default), and then the report names the bloated ones. Alone it leaves rows as they are
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "never", default_missing_value = "bloated", hide_default_value = true,
          conflicts_with = "from_toaster", help_heading = "Indexes")]
    reindex: Reindex,

    /// Leave the settings of columns and table as they are
    #[arg(long)]
    no_alter: bool,

    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    source: SourceArg,

    /// How long a transaction is to take, in milliseconds; a tenth of it while other sessions are active,
    /// or if this user may not see that
    #[arg(long, value_name = "MS", default_value_t = 100, help_heading = "The sweep",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    batch_ms: u64,

    /// Part of the table that may be old row versions, in percent: then it is vacuumed, and its TOAST relation
    /// alone already from a fifth of that on where that takes less than an eighth of the time of batches (the files grow by
    /// about as much as is vacuumed at a time); and while VACUUM may not remove more than this (but at least
    /// 4 MB) the sweep waits, and says for whom
    #[arg(long, value_name = "PERCENT", default_value = "5", help_heading = "The sweep",
          value_parser = percent)]
    max_bloat: f64,

    #[command(flatten)]
    jobs: JobsArg,

    /// Tables, or partitions, that are swept at a time, each with as many transactions as --jobs says
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "The sweep",
          value_parser = clap::value_parser!(u16).range(1..=16))]
    parallel_tables: u16,

    /// The longest wait for a lock, in milliseconds; then it is tried again later
    #[arg(long, value_name = "MS", default_value_t = 100, help_heading = "The sweep",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    lock_timeout: u64,

    /// Stop after this many seconds; the same command goes on from there
    #[arg(long, value_name = "SECONDS", help_heading = "The sweep")]
    max_runtime: Option<u64>,

    #[command(flatten)]
    throttle: ThrottleArgs,

    /// Keep in this file how far scanning is, and begin there if it is there already; the last scan is
    /// of the whole table all the same
    #[arg(long, value_name = "FILE", help_heading = "The sweep")]
    checkpoint: Option<PathBuf>,

    /// Write under this replication origin, which must be there: subscribers with origin = none get
    /// nothing of it
    #[arg(long, value_name = "NAME", help_heading = "The sweep")]
    replication_origin: Option<String>,

    /// Which rows' contents are compared before and after, before the transaction is committed
    #[arg(long, value_enum, default_value_t, help_heading = "Safety")]
    verify: Verify,

    /// Go on although triggers fire for every row re-toasted
    #[arg(long, help_heading = "Safety")]
    allow_triggers: bool,

    /// Go on although row security hides rows
    #[arg(long, help_heading = "Safety")]
    allow_row_security: bool,

    /// When somebody else changes storage, compression or toast_tuple_target meanwhile, set it right again
    /// and go on; without it the run ends with an error that says what was changed
    #[arg(long, conflicts_with_all = ["no_alter", "from_toaster"], help_heading = "Safety")]
    enforce: bool,

    /// Put the settings back as they were unless all gets done. Values already re-toasted stay as they are
    #[arg(long, conflicts_with_all = ["no_alter", "from_toaster"], help_heading = "Safety")]
    undo: bool,

    /// Write the rows that the server refused to this file, as CSV; all others are done all the same
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    list_refused: Option<PathBuf>,

    /// Go on although functions of the table's owner, in index expressions, checks, generated columns,
    /// domains or triggers, will run with rights that the owner does not have
    #[arg(long, help_heading = "Safety")]
    trust_owner_code: bool,

    /// How to show on standard error how far it is
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    progress: ProgressArg,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    help: HelpFlag,
}

/// `--toaster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToasterArg {
    /// One that every server has.
    Stock(Toaster),
    /// One of `pg_toaster`.
    Named(String),
}

impl FromStr for ToasterArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ToasterArg, Infallible> {
        Ok(text.parse().map_or_else(|_| ToasterArg::Named(text.to_owned()), ToasterArg::Stock))
    }
}

/// `--new-values`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum NewValues {
    /// New values are not compressed (the default)
    #[default]
    External,
    /// New values are compressed whenever they can be; while the sweep stores rows they are not
    Extended,
}

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    let request = request(args)?;
    let refused = args.list_refused.as_deref().map(RefusedFile::create).transpose()?;
    terminal::runtime(2)?.block_on(retoast(args, &request, refused))
}

async fn retoast(
    args: &RetoastArgs,
    request: &Request,
    refused: Option<RefusedFile>,
) -> Result<Exit, Failure> {
    let session = SessionOptions::read_write("retoast");
    let connection = terminal::connected(&args.connection, &session).await?;
    let watch = Progress::new(args.progress, refused);
    let mut output = RetoastOutput::new(args.format.format, args.dry_run);
    let control = Arc::new(Control::default());
    let run = tables::run(connection, request, Arc::clone(&control), &watch, &mut output);
    let ended = tokio::select! {
        ended = run => ended,
        never = listen(&control, args.max_runtime) => match never {},
    };
    watch.end();
    output.end(ended, control.stopped())
}

/// What the arguments say.
///
/// # Errors
/// Where they contradict each other.
fn request(args: &RetoastArgs) -> Result<Request, Failure> {
    if args.no_alter && args.new_values == NewValues::Extended {
        return Err(Failure::usage(
            "--new-values extended sets the columns, and --no-alter does not allow setting them",
        ));
    }
    let jobs = args.jobs.jobs.unwrap_or(1);
    if jobs > MOST_JOBS {
        return Err(Failure::usage(format!("--jobs of retoast is at most {MOST_JOBS}")));
    }
    if args.replication_origin.is_some() && (jobs > 1 || args.parallel_tables > 1) {
        return Err(Failure::usage(
            "--replication-origin is one session's: it goes with one job and one table at a time",
        ));
    }
    let policy = args.policy.one()?;
    if policy.is_some() && jobs > 1 {
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
        None => Work::Columns(per_table(args, policy)?),
    };
    Ok(Request {
        tables: args.tables.tables.clone(),
        work,
        source: args.source.source,
        options: options(args, jobs),
        compact: args.compact,
        reindex: args.reindex,
        wants: args.throttle.wants(args.max_bloat, args.dry_run),
        parallel_tables: args.parallel_tables,
        checkpoint: args.checkpoint.clone(),
        since: args.since.clone(),
    })
}

/// What is to be done to each table.
fn per_table(
    args: &RetoastArgs,
    policy: Option<(Policy, Option<MethodChoice>)>,
) -> Result<TableRequest, Failure> {
    if args.columns.columns.is_empty() && (args.toaster.is_some() || policy.is_some()) {
        return Err(Failure::usage("--toaster and --policy go with --column"));
    }
    let goal = match (&args.toaster, policy) {
        (Some(ToasterArg::Stock(stock)), _) => Goal::Stock(*stock),
        (Some(ToasterArg::Named(name)), _) => Goal::Pluggable(Pluggable::Becomes(name.clone())),
        (None, Some((policy, method))) => Goal::Policy(PolicyGoal {
            policy,
            method,
            new_extended: args.new_values == NewValues::Extended,
        }),
        (None, None) if args.compact.is_some() || args.reindex != Reindex::Never => {
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
        columns: args.columns.columns.clone(),
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
    let no_rebuilds = args.reindex == Reindex::Never;
    let given = [
        ("--column", !args.columns.columns.is_empty()),
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

fn options(args: &RetoastArgs, jobs: u16) -> Options {
    Options {
        tuning: tuning(args, jobs),
        verify: args.verify,
        lock_timeout: Duration::from_millis(args.lock_timeout),
        row_security_off: !args.allow_row_security,
        dry_run: args.dry_run,
        origin: args.replication_origin.clone(),
        enforce: args.enforce,
        undo: args.undo,
    }
}

fn tuning(args: &RetoastArgs, jobs: u16) -> Tuning {
    let batch = Duration::from_millis(args.batch_ms);
    let tuning = Tuning::new(batch, args.max_bloat, jobs.into());
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

const AFTER_HELP: &str = "\
The table is its own journal: after an interruption of any kind the same command finishes the work. Exit \
code 0 says that a whole scan has found nothing left to do.

Security: an UPDATE runs code of the table's owner: functions in index expressions and predicates, checks \
of table and domains, generated columns, triggers that fire, and operators. If the user has rights that \
the owner does not have, such a function could take them, and SET ROLE does not help, for a function can \
undo it. So the table is refused if any of these functions is neither the server's own nor owned by a role \
with at least the user's rights; volatile functions of the server count too, except random() and the like, \
since some run a query given as text. A domain that values are coerced to is refused likewise, since its owner \
can add a check at any time. Each batch takes the table's lock and then checks that all this is what was \
approved; what was added since is approved in the same way, or ends the run before any of it is run. For this \
the lock also holds off CREATE STATISTICS, and with it VACUUM and ANALYZE of the table, while a batch runs, and \
--jobs is 1. Run as the owner (-U), or as a member of the owner's role with no further rights and attributes, \
or use --trust-owner-code: it trusts the functions that were there when the run began. Where the user may, \
batches run as the owner (SET LOCAL ROLE). Sessions have search_path = pg_catalog, pg_temp: \
functions that are called have to name schemas, or to have a search_path of their own. Any SELECT by a \
superuser, those of inspect and advise-threshold too, makes the server compute calls with constant \
arguments in the expressions of indexes and statistics while it plans: connect as the owner to tables that you \
do not trust.

CompactRequest: files get shorter in rounds. A round looks how full the blocks are, has VACUUM tell the server what \
room there is, and moves what stands behind the block that would be the end: values are written again, last \
chunks first, and rows are updated until their page is full and they go elsewhere. Meanwhile the TOAST \
relation is not vacuumed, nor the table while its rows move: room at the end would be handed out again. Then \
one VACUUM truncates; it tries for the lock that this takes (ACCESS EXCLUSIVE, for as long as it reads the \
empty end backwards) without waiting in the queue, gives it up when others wait, and is repeated some times. \
Standbys replay that lock. Rounds go on while each gives back 2 % of the file; exit code 0 says that a last look \
found less than that to spare, or that what stands at the end was tried and fits nowhere in front; exit code 6 that all \
rows are done and others hold the rest: by locks, snapshots, or rows that they have written there. Values keep form and method; one whose column would store it otherwise passes \
through a temporary table (this takes the TEMPORARY privilege), and only an uncompressed value in a column that \
compresses is tried again. How full pages get is the server's affair: values of just over some chunks leave \
room that nothing fits. Indexes get new entries and do not get shorter (--reindex). Rows may \
be updated dozens of times on their way off a page, which subscribers and triggers that cannot be silenced \
see; where triggers fire each row is updated once for each pass. It works in one session, whatever --jobs. \
Positions of chunks are read from the TOAST relation itself, by a superuser or a member of pg_read_all_data.

Indexes: what a fresh btree would take is computed from a sample of its pages; without pages (pageinspect, as a \
superuser) from what VACUUM has counted, where all entries have one size and equal keys share none. It is not \
known of other access methods and where equal keys share entries; only --reindex=all rebuilds these. A \
rebuild of an index of the table is REINDEX INDEX CONCURRENTLY: rows are read and written meanwhile; VACUUM, ANALYZE, \
ALTER TABLE and the like on the relation wait. The index of a TOAST relation is rebuilt by REINDEX INDEX, in a \
transaction of at most 2 s during which readers and writers of values out of line wait: one that is rebuilt \
concurrently can lack entries of what is written meanwhile, and values cannot be read then (an error of PostgreSQL's, \
seen up to 18.4). One that would take more than 16 MB is left to you, with the statement. The rest is about \
concurrent rebuilds. It takes room for the new index, as much WAL, and as much again for sorting. Dead \
rows are vacuumed first if they are many. It begins when the transactions under way that use the relation or \
have a snapshot have ended, and is cancelled, and tried again up to twice, if one of others keeps it waiting for 20 s \
(--max-wait, if that is less), if it keeps another session waiting, and on a stop. A cancelled rebuild \
leaves an invalid index, <name>_ccnew or <name>_ccold, which is dropped at once, unless transactions of others \
stand in the way here too: then it is reported with the statement that drops it. After a kill of this program \
together with its session or the server such an index is there still. With --checkpoint the next run \
with the same file drops it: the file says which rebuilds were begun. Without it, and where the file names another \
index, nobody can tell whose it is, so it is reported and stays. Indexes of exclusion constraints cannot be \
rebuilt so, nor can that of the TOAST relation by an owner without pg_read_all_data, and those of deferrable constraints \
are not: PostgreSQL would check the constraint at once meanwhile, and other sessions would get errors. PostgreSQL itself runs index \
expressions as the table's owner, who cannot use it for other rights; they have to name schemas, as above.

Serialization: a REPEATABLE READ or SERIALIZABLE transaction that updates a row which was re-toasted after \
its snapshot fails with SQLSTATE 40001, as after any UPDATE, and has to be tried again. In a trial 0.35 % \
of the transactions of REPEATABLE READ clients failed so without a sweep and 1.2 % beside one; of those of \
SERIALIZABLE clients 3.2 % and 2.6 %. They last as long as the sweep: --nice makes them rarer, for fewer rows are \
re-toasted in a second, and spreads them over a longer time. --dry-run warns where such clients are seen: \
serializable ones by their predicate locks, others by a snapshot kept while idle in a transaction, or by \
default_transaction_isolation; a repeatable read transaction between its statements shows nothing else.";

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
