//! Arguments that verbs share, and how values of options are read.

use std::time::Duration;

use clap::Args;

use crate::cli::exit::Failure;
use crate::heap::sample::SampleSize;
use crate::model::policy::{MethodChoice, Policy};
use crate::report::document::Format;
use crate::retoast::pace::rules::{Lag, Limits};
use crate::retoast::pace::throttle::{REPLICA_LAG, ThrottleOptions};
use crate::server::about::Access;

/// Free space to leave, unless told otherwise: 1 GB.
const FREE_SPACE: u64 = 1 << 30;

/// Which tables.
#[derive(Debug, Clone, Args)]
pub struct TablesArg {
    /// Tables, as psql takes them: schema.name, "Quoted Name", patterns with * and ?. Without one inspect shows
    /// all tables of the database, and advise-threshold the five largest; retoast takes a partitioned table for its
    /// partitions, and a table with inheritance children for them too
    #[arg(value_name = "TABLE")]
    pub(super) tables: Vec<String>,
}

/// Which columns.
#[derive(Debug, Clone, Args)]
pub struct ColumnsArg {
    /// A column; may be given several times. Of the tables that a pattern matches those without it are left out.
    /// Without one advise-threshold takes those that hold at least a tenth of the rows' bytes
    #[arg(short, long = "column", value_name = "COLUMN")]
    pub(super) columns: Vec<String>,
}

/// Which policy; `advise-threshold` takes several.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Decide value by value what is kept compressed: always, never, chunk-saving[=1] (what saves so many
    /// chunks), ratio[=0.95] (what takes at most that part), chunk-floor[=100] (chunk-saving from so
    /// many chunks on, always below), hybrid[=0.90] (ratio, or more extra chunks than the logarithm
    /// of the value's), best (what the cost model says). inspect shows how many values, and how many of their
    /// stored bytes, comply; advise-threshold compares it; retoast brings the columns to it
    #[arg(long, value_name = "POLICY")]
    policy: Vec<Policy>,

    /// Compress with pglz, lz4, or either (the better one for each value) [default: the column's]
    #[arg(long, value_name = "METHOD")]
    method: Vec<MethodChoice>,
}

impl PolicyArgs {
    /// All that are compared.
    pub(super) fn all(&self) -> (Vec<Policy>, Vec<MethodChoice>) {
        (self.policy.clone(), self.method.clone())
    }

    /// The only one, where no more than one makes sense, with its method.
    ///
    /// # Errors
    /// Where there are more, or a method without a policy.
    pub(super) fn one(&self) -> Result<Option<(Policy, Option<MethodChoice>)>, Failure> {
        match (&self.policy[..], &self.method[..]) {
            ([], []) => Ok(None),
            (&[policy], []) => Ok(Some((policy, None))),
            (&[policy], &[method]) => Ok(Some((policy, Some(method)))),
            ([], _) => Err(Failure::usage("--method goes with --policy")),
            _ => Err(Failure::usage("--policy and --method are given once")),
        }
    }

    pub(super) fn is_given(&self) -> bool {
        !self.policy.is_empty()
    }
}

/// Which part of the tables is read.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sample")]
pub struct SampleArgs {
    /// Read only so much of each table, a random choice of blocks: 1%, "5000 blocks", 100%
    #[arg(long, value_name = "PART")]
    pub(super) sample: Option<SampleSize>,

    /// The seed of the random choice of blocks [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

impl SampleArgs {
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// Refuses a seed that nothing is chosen by.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (self.seed, self.sample) {
            (Some(_), None) => Err(Failure::usage("--seed goes with --sample")),
            _ => Ok(()),
        }
    }
}

/// How rows are read.
#[derive(Debug, Clone, Args)]
pub struct SourceArg {
    /// Whether pages are read, or SQL functions asked
    #[arg(long, value_enum, default_value_t, help_heading = "Reading a server")]
    pub(super) source: Access,
}

/// Sessions that work side by side.
#[derive(Debug, Clone, Args)]
pub struct JobsArg {
    /// Connections that read side by side; of retoast transactions under way at a time, each on a connection of
    /// its own, up to 16 [default: inspect 2, with --values 1; retoast 1]
    #[arg(short, long, value_name = "N", help_heading = "Reading a server",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) jobs: Option<u16>,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct FormatArg {
    /// How to print
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(super) format: Format,
}

/// Whether all is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct DetailsArg {
    /// Print all there is: inspect the full report of each of several tables instead of the overview;
    /// advise-threshold what terms mean, every candidate's caveats, and all notes
    #[arg(long, help_heading = "Output")]
    pub(super) details: bool,
}

/// When to wait for others. Sizes take PostgreSQL's units (kB, MB, GB, TB).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Throttle")]
pub struct ThrottleArgs {
    /// Wait while a replica is further behind than this, in time or bytes of WAL, or off [default: 10s]
    #[arg(long, value_name = "TIME|SIZE", value_parser = lag)]
    pub(super) max_replica_lag: Option<LagArg>,

    /// Wait while this query is true; it is run once a second in a read-only session. `toastctl help throttle` has
    /// queries for active sessions, WAL, old snapshots, the time of day, and a file or table that pauses it
    #[arg(long, value_name = "SQL")]
    pub(super) throttle_query: Option<String>,

    /// Stop, with exit code 4, after waiting so long at a stretch for others: for locks, what holds back vacuum,
    /// replicas, replication slots, the throttle query or free space
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) max_wait: Option<Duration>,

    /// Space to leave free for data directory, WAL and the table's tablespaces. Seen only over a Unix
    /// socket, by a member of pg_read_all_settings who may call pg_stat_file; elsewhere use --disk-limit
    /// [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) min_free_space: Option<u64>,

    /// End when table, TOAST relation and indexes have grown by more than this
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) disk_limit: Option<u64>,

    /// Sleep after each transaction, so many times as long as it took
    #[arg(long, value_name = "RATIO", default_value = "0", value_parser = ratio)]
    pub(super) nice: f64,
}

/// A lag, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LagArg(Option<Lag>);

impl ThrottleArgs {
    /// As the sweep takes them.
    pub(super) fn options(&self, max_bloat: f64, dry_run: bool) -> ThrottleOptions {
        ThrottleOptions {
            limits: Limits {
                replica_lag: self.max_replica_lag.map_or(Some(REPLICA_LAG), |LagArg(lag)| lag),
                throttle_query: self.throttle_query.clone(),
                free_space: Some(self.min_free_space.unwrap_or(FREE_SPACE)),
                wait: self.max_wait,
                nice: self.nice,
            },
            lag_given: self.max_replica_lag.is_some(),
            space_given: self.min_free_space.is_some(),
            disk_limit: self.disk_limit,
            max_bloat,
            dry_run,
        }
    }
}

/// Number and unit.
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

/// Bytes, with PostgreSQL's units.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        _ => return Err(format!("\"{text}\" is no size: expected one such as 512MB")),
    };
    let bytes = number.parse::<f64>().ok().map(|number| number * (1u64 << shift) as f64);
    match bytes {
        Some(bytes) if bytes < 9e18 => Ok(bytes as u64),
        _ => Err(format!("\"{text}\" is no size: expected one such as 512MB")),
    }
}

/// A time or a size, or `off`.
pub(super) fn lag(text: &str) -> Result<LagArg, String> {
    if text.trim().eq_ignore_ascii_case("off") {
        return Ok(LagArg(None));
    }
    if let Some(time) = a_time(text) {
        return Ok(LagArg(Some(Lag::Time(time))));
    }
    let size = size(text).ok().filter(|_| !split(text).1.is_empty());
    let size = size
        .ok_or_else(|| format!("\"{text}\" is no lag: expected one such as 10s or 64MB, or off"))?;
    Ok(LagArg(Some(Lag::Bytes(size))))
}

/// A time.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    a_time(text).ok_or_else(|| format!("\"{text}\" is no time: expected one such as 10s or 30min"))
}

/// A number with a unit of time.
pub(super) fn a_time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let ms = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1.0,
        "s" => 1e3,
        "min" => 60e3,
        "h" => 3600e3,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * ms / 1e3).ok()
}

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("\"{text}\" is no number"))?;
    if (0.0..=1000.0).contains(&number) {
        Ok(number)
    } else {
        Err("it is from 0 to 1000".to_owned())
    }
}

/// A part of 1 from percents, with or without the sign.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim()
        .trim_end_matches('%')
        .trim_end()
        .parse()
        .map_err(|_| format!("\"{text}\" is no number of percents"))?;
    if (0.1..=1000.0).contains(&number) {
        Ok(number / 100.0)
    } else {
        Err("it is from 0.1 % to 1000 %".to_owned())
    }
}

pub(super) fn max_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("no time at all".into()),
        time => Ok(time),
    }
}

/// A part in percent.
pub(super) fn precision(text: &str) -> Result<f64, String> {
    let number: Option<f64> =
        text.trim().strip_suffix('%').and_then(|part| part.trim().parse().ok());
    match number {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err(format!("\"{text}\" is no part: expected one over 0 and below 100 %, as in 5%")),
    }
}

pub(super) fn reads_per_write(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| format!("expected a number from 0 on, got \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_units_of_postgresql() {
        assert_eq!(size("8192"), Ok(8192));
        assert_eq!(size("1.5 MB"), Ok(3 << 19));
        assert_eq!(size("2GB"), Ok(2 << 30));
        for bad in ["", "MB", "1 PB", "-1", "1..2", "99999999TB"] {
            assert!(size(bad).unwrap_err().contains("is no size"), "{bad}");
        }
    }

    #[test]
    fn a_lag_is_time_or_bytes_and_never_a_bare_number() {
        let time = |ms| Ok(LagArg(Some(Lag::Time(Duration::from_millis(ms)))));
        assert_eq!(lag("500ms"), time(500));
        assert_eq!(lag("1.5 s"), time(1500));
        assert_eq!(lag("2min"), time(120_000));
        assert_eq!(lag("64MB"), Ok(LagArg(Some(Lag::Bytes(64 << 20)))));
        assert_eq!(lag("off"), Ok(LagArg(None)));
        for bad in ["10", "s", "-1s", "1 day", ""] {
            assert!(lag(bad).unwrap_err().contains("is no lag"), "{bad}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        assert!(time("10").is_err() && time("-1s").is_err() && time("2 days").is_err());
    }

    #[test]
    fn a_ratio_is_a_number_that_is_not_negative() {
        assert_eq!(ratio("0.5"), Ok(0.5));
        assert!(ratio("-1").is_err() && ratio("NaN").is_err() && ratio("x").is_err());
    }

    #[test]
    fn percents_are_read() {
        assert_eq!(percent("5"), Ok(0.05));
        assert_eq!(percent(" 2.5 %"), Ok(0.025));
        assert!(percent("0").is_err() && percent("x").is_err() && percent("NaN").is_err());
    }

    #[test]
    fn a_precision_is_a_part() {
        assert_eq!(precision("5%"), Ok(0.05));
        assert_eq!(precision(" 0.5 % "), Ok(0.005));
        for text in ["5", "0%", "100%", "-1%", "NaN%", "%", ""] {
            assert!(precision(text).is_err(), "{text}");
        }
        assert!(max_time("0s").is_err());
        assert_eq!(max_time("90s"), Ok(Duration::from_secs(90)));
    }
}
