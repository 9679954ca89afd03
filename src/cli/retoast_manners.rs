//! Options of `retoast` that say what it leaves to others.

use std::time::Duration;

use clap::Args;

use crate::retoast::pace::keeper::{REPLICA_LAG, Wants};
use crate::retoast::pace::manners::{Lag, Limits};

/// Free space to leave, unless told otherwise: 1 GB.
const FREE_SPACE: u64 = 1 << 30;

/// When to wait for others. Sizes take PostgreSQL's units (kB, MB, GB, TB).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Manners")]
pub struct MannersArgs {
    /// Wait while a replica is further behind than this, in time or bytes of WAL, or off [default: 10s]
    #[arg(long, value_name = "TIME|SIZE", value_parser = lag)]
    pub max_replica_lag: Option<LagArg>,

    /// Wait while this query is true; it is run once a second in a read-only session. `toastctl help throttle` has
    /// queries for active sessions, WAL, old snapshots, the time of day, and a file or table that pauses it
    #[arg(long, value_name = "SQL")]
    pub throttle_query: Option<String>,

    /// Stop, with exit code 4, after waiting so long at a stretch for others: for locks, what holds back vacuum,
    /// replicas, replication slots, the throttle query or free space
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub max_wait: Option<Duration>,

    /// Space to leave free for data directory, WAL and the table's tablespaces. Seen only over a Unix
    /// socket, by a member of pg_read_all_settings who may call pg_stat_file; elsewhere use --disk-limit
    /// [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub min_free_space: Option<u64>,

    /// End when table, TOAST relation and indexes have grown by more than this
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub disk_limit: Option<u64>,

    /// Sleep after each transaction, so many times as long as it took
    #[arg(long, value_name = "RATIO", default_value = "0", value_parser = ratio)]
    pub nice: f64,
}

/// A lag, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LagArg(Option<Lag>);

impl MannersArgs {
    /// As the sweep takes them.
    pub fn wants(&self, max_bloat: f64, dry_run: bool) -> Wants {
        Wants {
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
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

/// Bytes, with PostgreSQL's units.
fn size(text: &str) -> Result<u64, String> {
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
fn lag(text: &str) -> Result<LagArg, String> {
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
fn a_time(text: &str) -> Option<Duration> {
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

fn ratio(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("\"{text}\" is no number"))?;
    if (0.0..=1000.0).contains(&number) {
        Ok(number)
    } else {
        Err("it is from 0 to 1000".to_owned())
    }
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
}
