//! What the verbs that write have in common: options, and `--set`, which changes how they go about it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::arguments::{
    FormatArg, LagArg, TablesArg, count, lag, max_time, percent, ratio, size, time,
};
use super::citus::NodesArg;
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::Failure;
use super::fleet::FleetArgs;
use super::manual::Item;
use super::retoast_output::Reporting;
use crate::retoast::pace::rules::Limits;
use crate::retoast::pace::throttle::{REPLICA_LAG, ThrottleOptions};
use crate::retoast::preflight::owner::Approval;
use crate::retoast::reindex::Reindex;
use crate::retoast::run::request::{Assignment, Request};
use crate::retoast::task::session::{Options, Tuning, Verify};
use crate::server::about::Access;
use crate::server::similar::similar;
use crate::testing;
use toast_format::fill::file_model::MAX_BLOAT;

/// The default of min-free-space: 1 GB.
const FREE_SPACE: u64 = 1 << 30;

/// Options of the verbs that write.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Print the plan and change nothing
    ///
    /// The plan of a conversion has the statements, the estimated time, WAL and space, and the effects on locks, triggers
    /// and replication; that of a compaction has the sizes of files and the WAL; that of a rebuild has the sizes of indexes.
    #[arg(long, help_heading = "Safety")]
    pub(super) dry_run: bool,

    /// Permit a server version that is not tested
    ///
    /// A server newer than the newest version that toastctl is tested with may store values in ways that toastctl does
    /// not know. Without this option, the run ends before it changes anything.
    #[arg(hide_short_help = true, long, help_heading = "Safety")]
    untested_server: bool,

    /// Stop after this long, for example 2h
    ///
    /// The exit code is then 4. Run the same command again to continue. A number without a unit is in seconds. With --all
    /// or --targets, the time is that of all databases together. --max-runtime is another name of this option.
    #[arg(long, alias = "max-runtime", value_name = "TIME", value_parser = max_time, help_heading = "Pace")]
    pub(super) max_time: Option<Duration>,

    /// Wait while this query returns true
    ///
    /// It runs once a second in a read-only session. `toastctl help throttle` has queries for active sessions, WAL, old
    /// snapshots, the time of day, and the existence of a file or of rows in a table.
    #[arg(hide_short_help = true, long, value_name = "SQL", value_parser = query, help_heading = "Pace")]
    throttle_query: Option<String>,

    /// Remember progress in this file
    ///
    /// Records which index rebuilds were started and, for retoast, how far the scan has got. If the file exists, the run
    /// resumes from there; the final scan of retoast still reads the whole table. The file is removed when everything is
    /// done. With --all or --targets, it records which databases are done, and each other database has a file of its own
    /// next to it.
    #[arg(hide_short_help = true, long, value_name = "FILE", help_heading = "Pace")]
    pub(super) checkpoint: Option<PathBuf>,

    /// Change a setting: toastctl help settings
    ///
    /// Can be repeated.
    #[arg(hide_short_help = true, long, value_name = "NAME=VALUE", help_heading = "Pace")]
    set: Vec<String>,

    #[command(flatten)]
    pub(super) format: FormatArg,

    #[command(flatten)]
    pub(super) connection: ConnectionArgs,

    #[command(flatten)]
    pub(super) nodes: NodesArg,

    #[command(flatten)]
    pub(super) fleet: FleetArgs,

    #[command(flatten)]
    help: HelpFlag,
}

/// Options of the verbs that update rows.
#[derive(Debug, Clone, Args)]
pub struct RowArgs {
    /// Verify rows: off, sample or full [default: sample]
    ///
    /// Compares the contents of rows before and after the update, for one transaction in 32 (sample), for all (full),
    /// or for none (off).
    #[arg(long, value_name = "WHICH", value_enum, default_value_t, help_heading = "Safety")]
    verify: Verify,

    /// Permit triggers, or owner-code, to run
    ///
    /// triggers: continue even if triggers fire for each row. owner-code: continue even if functions that the table's owner
    /// chose (in index expressions, check constraints, generated columns, domains or triggers) run with the rights of
    /// another role. Can be repeated.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        hide_possible_values = true,
        help_heading = "Safety"
    )]
    allow: Vec<Allow>,
}

/// Indexes that are rebuilt after other work.
#[derive(Debug, Clone, Args)]
pub struct ReindexArg {
    /// Then rebuild indexes: bloated or all
    ///
    /// As toastctl reindex does.
    #[arg(long, value_name = "WHICH", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "never", default_missing_value = "bloated",
          hide_possible_values = true, help_heading = "Afterwards")]
    pub(super) reindex: Reindex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Allow {
    /// Triggers that fire for each row
    Triggers,
    /// Code of the table's owner, with the user's privileges
    OwnerCode,
    /// Another toaster than jsonb_toaster: nobody writes to the table until the conversion is complete
    LostUpdates,
}

impl RowArgs {
    fn approval(&self) -> Approval {
        Approval {
            allow_triggers: self.allow.contains(&Allow::Triggers),
            trust_owner_code: self.allow.contains(&Allow::OwnerCode),
            allow_lost_updates: self.allow.contains(&Allow::LostUpdates),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum NewValues {
    /// New values are not compressed (the default)
    #[default]
    External,
    /// New values are compressed if possible, but not while retoast is rewriting rows
    Extended,
}

/// A query, and not what is left of one if a variable of the shell is not set.
fn query(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the query is empty".into()) } else { Ok(text.to_owned()) }
}

/// Which verb settings are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Retoast,
    Compact,
    Reindex,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Retoast => "retoast",
            Verb::Compact => "compact",
            Verb::Reindex => "reindex",
        }
    }
}

/// The settings, each with its default, and what it means.
pub const SETTINGS: [Item; 18] = [
    ("alter=on", "retoast: set the table's storage and compression."),
    ("batch-ms=100", "Target time of a transaction in ms; less under load."),
    ("disk-limit=SIZE", "Stop if all files together have grown by more."),
    ("enforce=off", "retoast: on reverts changes by other sessions."),
    ("list-refused=FILE", "CSV file for the rows that were skipped."),
    ("lock-timeout=100", "Longest wait for a lock in ms, before a retry."),
    ("log=FILE", "Append JSON lines about progress and result to FILE."),
    ("max-bloat=5%", "Vacuum when old row versions exceed this share."),
    ("max-replica-lag=10s", "Wait while a replica lags more (10s, 64MB or off)."),
    ("max-wait=TIME", "Stop (exit code 4) after one wait of this time (10s)."),
    ("min-free-space=1GB", "Wait while a local server has less free disk space."),
    ("new-values=external", "retoast --policy: storage of the column afterwards."),
    ("nice=0", "Sleep N times as long as each transaction took."),
    ("on-end=COMMAND", "Shell command that gets the result as JSON on stdin."),
    ("parallel-tables=1", "Tables processed at the same time, at most 16."),
    ("progress=auto", "auto, plain, json or none."),
    ("replication-origin=NAME", "Hide changes from subscriptions with origin = none."),
    ("source=auto", "Read pages with pageinspect, or use functions."),
];

/// Settings that say how values are stored.
const OF_CONVERSION: [&str; 3] = ["alter", "enforce", "new-values"];
/// Settings that say how rows are updated.
const OF_ROWS: [&str; 5] =
    ["batch-ms", "max-bloat", "list-refused", "replication-origin", "source"];

/// Whether a setting has an effect with a verb.
fn has_effect(verb: Verb, name: &str) -> bool {
    match verb {
        Verb::Retoast => true,
        Verb::Compact => !OF_CONVERSION.contains(&name),
        Verb::Reindex => !OF_CONVERSION.contains(&name) && !OF_ROWS.contains(&name),
    }
}

/// The settings of a verb for shells to complete: with their values if these are words.
pub(super) fn values(verb: &str) -> Vec<String> {
    let verbs = [Verb::Retoast, Verb::Compact, Verb::Reindex];
    let Some(verb) = verbs.into_iter().find(|known| known.name() == verb) else {
        return Vec::new();
    };
    let names = SETTINGS.iter().filter_map(|(setting, _)| setting.split('=').next());
    let mut found = Vec::new();
    for name in names.filter(|name| has_effect(verb, name)) {
        let words: &[&str] = match name {
            "alter" | "enforce" => &["on", "off"],
            "new-values" => &["external", "extended"],
            "progress" => &["auto", "plain", "json", "none"],
            "source" => &["auto", "pageinspect", "functions"],
            _ => &[""],
        };
        found.extend(words.iter().map(|word| format!("{name}={word}")));
    }
    found
}

/// How a run goes about it.
pub(super) struct Settings {
    pub(super) alter: bool,
    pub(super) enforce: bool,
    pub(super) new_values: Option<NewValues>,
    pub(super) reporting: Reporting,
    pub(super) parallel_tables: u16,
    pub(super) replication_origin: Option<String>,
    pub(super) source: Access,
    batch: Duration,
    lock_timeout: Duration,
    max_bloat: f64,
    nice: f64,
    replica_lag: Option<LagArg>,
    free_space: Option<u64>,
    wait: Option<Duration>,
    disk_limit: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            alter: true,
            enforce: false,
            new_values: None,
            reporting: Reporting::default(),
            parallel_tables: 1,
            replication_origin: None,
            source: Access::default(),
            batch: Duration::from_millis(100),
            lock_timeout: Duration::from_millis(100),
            max_bloat: MAX_BLOAT,
            nice: 0.0,
            replica_lag: None,
            free_space: None,
            wait: None,
            disk_limit: None,
        }
    }
}

impl Settings {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "alter" => self.alter = one_of(value, &[("on", true), ("off", false)])?,
            "enforce" => self.enforce = one_of(value, &[("on", true), ("off", false)])?,
            "new-values" => self.new_values = Some(choice(value)?),
            "list-refused" => self.reporting.list_refused = Some(value.into()),
            "log" => self.reporting.log = Some(value.into()),
            "on-end" => self.reporting.on_end = Some(value.to_owned()),
            "parallel-tables" => self.parallel_tables = count::<u16, 1, 16>(value)?,
            "progress" => self.reporting.progress = choice(value)?,
            "replication-origin" => self.replication_origin = Some(value.to_owned()),
            "source" => self.source = choice(value)?,
            "batch-ms" => self.batch = Duration::from_millis(count::<u64, 1, 60_000>(value)?),
            "lock-timeout" => {
                self.lock_timeout = Duration::from_millis(count::<u64, 1, 60_000>(value)?);
            }
            "max-bloat" => self.max_bloat = percent(value)?,
            "nice" => self.nice = ratio(value)?,
            "max-replica-lag" => self.replica_lag = Some(lag(value)?),
            "min-free-space" => self.free_space = Some(size(value)?),
            "max-wait" => self.wait = Some(time(value)?),
            "disk-limit" => self.disk_limit = Some(size(value)?),
            _ => return Err("unrecognized setting".to_owned()),
        }
        Ok(())
    }
}

fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("expected {}", names.join(", "))
    })
}

fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        format!("expected {}", names.join(", "))
    })
}

/// The setting that was meant by this name, if it is none.
fn near(given: &str) -> Option<String> {
    let names = SETTINGS.iter().filter_map(|(setting, _)| setting.split('=').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.iter().any(|name| name == given) {
        return None;
    }
    similar(given, &names).first().map(|name| (*name).to_owned())
}

impl Settings {
    /// What `--set` says.
    ///
    /// # Errors
    /// Where a setting is unknown, not one of this verb, or has no such value.
    fn of(given: &[String], verb: Verb) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        for text in given {
            let wrong = |why: String| {
                Failure::usage(format!("--set {text}: {why}"))
                    .hint("toastctl help settings lists all settings.")
            };
            let Some((name, value)) = text.split_once('=') else {
                let begin = format!("{text}=");
                let mut known = SETTINGS.iter().map(|(setting, _)| *setting);
                let Some(known) = known.find(|setting| setting.starts_with(&begin)) else {
                    return Err(wrong("expected NAME=VALUE".to_owned()));
                };
                // what the value is, where not every text is one
                let limits = settings.set(text, "").err().map(|why| format!(": {why}"));
                let limits = limits.unwrap_or_default();
                return Err(wrong(format!("the value is missing, as in {known}{limits}")));
            };
            if !has_effect(verb, name) {
                return Err(wrong("it has no effect with this verb".to_owned()));
            }
            if let Err(why) = settings.set(name, value) {
                return Err(match near(name) {
                    Some(near) => Failure::usage(format!("--set {text}: {why}"))
                        .hint(format!("Perhaps you meant {near}.")),
                    None => wrong(why),
                });
            }
        }
        Ok(settings)
    }
}

impl RunArgs {
    /// What `--set` says.
    ///
    /// # Errors
    /// Where a setting is unknown, not one of this verb, or has no such value.
    pub(super) fn settings(&self, verb: Verb) -> Result<Settings, Failure> {
        Settings::of(&self.set, verb)
    }

    /// What is asked for. `rows` is `None` where no row is updated.
    pub(super) fn request(
        &self,
        tables: &TablesArg,
        work: Assignment,
        rows: Option<&RowArgs>,
        jobs: u16,
        settings: &Settings,
    ) -> Request {
        Request {
            tables: tables.tables.clone(),
            work,
            approval: rows.map_or_else(Approval::default, RowArgs::approval),
            source: settings.source,
            options: self.options(
                settings,
                rows.map_or_else(Verify::default, |rows| rows.verify),
                jobs,
            ),
            throttle: self.throttle(settings),
            parallel_tables: settings.parallel_tables,
            checkpoint: self.checkpoint.clone(),
            since: None,
        }
    }

    fn options(&self, settings: &Settings, verify: Verify, jobs: u16) -> Options {
        Options {
            tuning: tuning(settings, jobs),
            verify,
            lock_timeout: settings.lock_timeout,
            dry_run: self.dry_run,
            untested_server: self.untested_server,
            origin: settings.replication_origin.clone(),
            enforce: settings.enforce,
            restores_settings: false,
        }
    }

    /// What is waited for.
    fn throttle(&self, settings: &Settings) -> ThrottleOptions {
        ThrottleOptions {
            limits: Limits {
                replica_lag: settings.replica_lag.map_or(Some(REPLICA_LAG), |LagArg(lag)| lag),
                throttle_query: self.throttle_query.clone(),
                free_space: Some(settings.free_space.unwrap_or(FREE_SPACE)),
                wait: settings.wait,
                nice: settings.nice,
            },
            lag_given: settings.replica_lag.is_some(),
            space_given: settings.free_space.is_some(),
            disk_limit: settings.disk_limit,
            max_bloat: settings.max_bloat,
            dry_run: self.dry_run,
        }
    }
}

fn tuning(settings: &Settings, jobs: u16) -> Tuning {
    let tuning = Tuning::new(settings.batch, settings.max_bloat, jobs.into());
    // tests go by other windows too
    Tuning {
        least_window: testing::setting("WINDOW").unwrap_or(tuning.least_window),
        passes: testing::setting("PASSES").unwrap_or(tuning.passes),
        ..tuning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(verb: Verb, text: &str) -> Result<Settings, String> {
        Settings::of(&[text.to_owned()], verb).map_err(|failure| failure.message.to_string())
    }

    #[test]
    fn the_settings_that_are_listed_are_those_there_are() {
        for (setting, _) in SETTINGS {
            let (name, value) = setting.split_once('=').unwrap();
            let value = value.replace("SIZE", "64MB").replace("TIME", "10s");
            assert!(set(Verb::Retoast, &format!("{name}={value}")).is_ok(), "{setting}");
        }
        assert_eq!(set(Verb::Retoast, "nice=0.5").unwrap().nice, 0.5);
        assert!(!set(Verb::Retoast, "alter=off").unwrap().alter);
        assert_eq!(set(Verb::Compact, "max-bloat=2").unwrap().max_bloat, 0.02);
    }

    #[test]
    fn a_wrong_setting_is_refused_with_what_is_possible() {
        for (verb, text, why) in [
            (
                Verb::Retoast,
                "nice",
                "the value is missing, as in nice=0: expected a number from 0 to 1000",
            ),
            (Verb::Retoast, "log", "the value is missing, as in log=FILE"),
            (Verb::Retoast, "nice=-1", "expected a number from 0 to 1000"),
            (Verb::Retoast, "max-bloat=0", "expected a percentage from 0.1% to 1000%"),
            (Verb::Retoast, "rice", "expected NAME=VALUE"),
            (Verb::Retoast, "wait=1s", "unrecognized setting"),
            (Verb::Retoast, "batch-ms=0", "expected a whole number from 1 to 60000"),
            (Verb::Retoast, "source=files", "expected auto, pageinspect, functions"),
            (Verb::Retoast, "max-replica-lag=64", "expected a time, a size or off"),
            (Verb::Compact, "alter=off", "it has no effect with this verb"),
            (Verb::Reindex, "batch-ms=10", "it has no effect with this verb"),
        ] {
            let message = set(verb, text).err().unwrap();
            assert!(message.starts_with(&format!("--set {text}: ")), "{message}");
            assert!(message.contains(why), "{message}");
        }
    }
}
