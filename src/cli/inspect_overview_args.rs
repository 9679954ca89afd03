//! What is asked of `inspect`'s overview.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::retoast_manners::time;
use crate::inspect::overview::rank::SortBy;
use crate::report::overview::View;

/// Arguments of the overview.
#[derive(Debug, Args)]
pub struct OverviewArgs {
    /// Print the full report of each of several tables instead of the overview
    #[arg(long, help_heading = "Overview of several tables",
          conflicts_with_all = ["values", "value", "check", "explain", "relation_file",
          "pageinspect", "datum", "brief", "sort", "limit", "parts", "max_time", "precision"])]
    pub details: bool,

    /// The overview and nothing else, of one table too
    #[arg(long, help_heading = "Overview of several tables",
          conflicts_with_all = ["values", "value", "datum", "check", "policy", "scan_toast"])]
    pub brief: bool,

    /// Order of the columns
    #[arg(long, value_enum, value_name = "BY", help_heading = "Overview of several tables",
          conflicts_with_all = NOT_OVERVIEW)]
    pub sort: Option<SortArg>,

    /// Name so many columns, with --jsonb-keys so many keys, and add the others up [default: 15; all
    /// in json, jsonl and csv]
    #[arg(long, value_name = "N", help_heading = "Overview of several tables",
          value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with_all = ["values", "value", "check", "policy", "scan_toast", "pageinspect", "datum"])]
    pub limit: Option<u32>,

    /// Tell partitions and inheritance children one by one instead of adding them up
    #[arg(long, help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW)]
    pub parts: bool,

    /// End after this time, as in 10s or 5min, with what is known then; a table that nobody has
    /// looked at by then is left out, and the exit code says so [default: 10s; none with --sample]
    #[arg(long, value_name = "TIME", value_parser = max_time,
          help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW)]
    pub max_time: Option<Duration>,

    /// Read a larger sample of a table until the sizes of its large columns are known to this part,
    /// to either side, or its share of the time is over [default: 5%]
    #[arg(long, value_name = "PART", value_parser = precision,
          help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW,
          conflicts_with = "sample")]
    pub precision: Option<f64>,
}

/// What leaves no place for an overview.
const NOT_OVERVIEW: [&str; 8] =
    ["values", "value", "check", "policy", "scan_toast", "relation_file", "pageinspect", "datum"];

/// `--sort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortArg {
    /// By what they take on disk
    Stored,
    /// By their content uncompressed
    Raw,
    /// By free space and dead rows in their table and its TOAST relation, which are shown
    #[value(alias = "wasted")]
    Unused,
    /// By rows of their table read through indexes, as the statistics count them: no scan, and
    /// nothing of toastctl's own
    Read,
    /// By dead rows of their table and its TOAST relation, as the statistics count them
    Dead,
    /// By table and column
    Name,
}

impl From<SortArg> for SortBy {
    fn from(arg: SortArg) -> SortBy {
        match arg {
            SortArg::Stored => SortBy::Stored,
            SortArg::Raw => SortBy::Raw,
            SortArg::Unused => SortBy::Unused,
            SortArg::Read => SortBy::Read,
            SortArg::Dead => SortBy::Dead,
            SortArg::Name => SortBy::Name,
        }
    }
}

fn max_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("no time at all".into()),
        time => Ok(time),
    }
}

/// A part in percent.
fn precision(text: &str) -> Result<f64, String> {
    let number: Option<f64> =
        text.trim().strip_suffix('%').and_then(|part| part.trim().parse().ok());
    match number {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err(format!("\"{text}\" is no part: expected one over 0 and below 100 %, as in 5%")),
    }
}

impl OverviewArgs {
    /// Whether something is asked of the overview, so that one table has one too.
    pub(super) fn is_meant(&self) -> bool {
        self.brief
            || self.parts
            || self.sort.is_some()
            || self.limit.is_some()
            || self.max_time.is_some()
            || self.precision.is_some()
    }

    pub(super) fn view(&self) -> View {
        View {
            sort: self.sort.map(SortBy::from).unwrap_or_default(),
            limit: self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
