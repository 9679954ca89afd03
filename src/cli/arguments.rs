//! Arguments that verbs share, and how values of options are read.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::exit::Failure;
use crate::command::shell_quoted;
use crate::report::document::Format;
use crate::retoast::pace::rules::Lag;
use crate::server::about::Access;
use crate::server::connect::SessionOptions;
use crate::server::pattern::NamePattern;
use toast_format::heap::sample::{SEED, SampleSize, Sampling};
use toast_format::model::policy::{MethodChoice, Policy};

/// Which tables.
#[derive(Debug, Clone, Args)]
pub struct TablesArg {
    /// Tables: schema.name, "Quoted Name", patterns with * and ?
    ///
    /// Names and patterns are those of psql's \d. A partitioned table stands for its partitions, and a table with
    /// inheritance children for these children too. A TOAST relation is found without its schema too; check takes the table
    /// that it belongs to. Without a table, inspect takes all tables of the database, check takes these and the system
    /// catalogs, and advise-threshold takes the five largest. The verbs that write require a table (except retoast
    /// --from-toaster), and so does keys.
    #[arg(value_name = "TABLE")]
    pub(super) tables: Vec<String>,
}

/// Which schemas, and what is left out.
#[derive(Debug, Clone, Args)]
pub struct SelectionArgs {
    /// Only tables in this schema; can be repeated
    ///
    /// A name or a pattern: -n shop is the same as the pattern 'shop.*', with partitions added up as for all tables.
    #[arg(short = 'n', long = "schema", value_name = "SCHEMA", conflicts_with = "tables")]
    schemas: Vec<String>,

    /// No tables in this schema; can be repeated
    #[arg(short = 'N', long = "exclude-schema", value_name = "SCHEMA")]
    excluded_schemas: Vec<String>,

    /// Not this table; a name or a pattern; can be repeated
    ///
    /// Partitions and inheritance children of the table are left out too.
    #[arg(long = "exclude", value_name = "TABLE")]
    excluded: Vec<String>,
}

/// All relations of these schemas.
fn in_schemas(schemas: &[String]) -> impl Iterator<Item = String> {
    schemas.iter().map(|schema| format!("{schema}.*"))
}

impl SelectionArgs {
    /// The names and patterns of tables that are wanted; none for all tables.
    ///
    /// # Errors
    /// If one of them, or one of those that are excluded, is no name and no pattern.
    pub(super) fn wanted(&self, tables: &[String]) -> Result<Vec<String>, Failure> {
        let wanted: Vec<String> = tables.iter().cloned().chain(in_schemas(&self.schemas)).collect();
        for name in wanted.iter().chain(&self.excluded()) {
            NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
        }
        Ok(wanted)
    }

    /// The names and patterns of tables that are left out.
    pub(super) fn excluded(&self) -> Vec<String> {
        in_schemas(&self.excluded_schemas).chain(self.excluded.iter().cloned()).collect()
    }

    /// Refuses these options where nothing is selected.
    pub(super) fn check(&self, with_files: bool) -> Result<(), Failure> {
        let options = [&self.schemas, &self.excluded_schemas, &self.excluded];
        if with_files && options.iter().any(|values| !values.is_empty()) {
            let text = "-n, -N and --exclude need a server: they cannot be used with files";
            return Err(Failure::usage(text));
        }
        Ok(())
    }
}

/// Which columns.
#[derive(Debug, Clone, Args)]
pub struct ColumnsArg {
    /// Only this column; can be repeated
    ///
    /// Tables that match a pattern but do not have the column are left out. inspect shows only this column's line and
    /// findings; table totals are unchanged. With --explain, it explains only this column. Without this option, keys takes
    /// all columns with documents, and advise-threshold those that hold at least a tenth of the rows' bytes, stored or raw,
    /// or half as much as the largest; retoast takes all that can be toasted.
    #[arg(short, long = "column", value_name = "COLUMN")]
    pub(super) columns: Vec<String>,
}

/// Which policy; `advise-threshold` takes several.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Which values are compressed: toastctl help policies
    ///
    /// A policy decides value by value: always, never, chunk-saving[=1], ratio[=0.95], chunk-floor[=100], hybrid[=0.90]
    /// or best. inspect counts the values that comply and their stored bytes, advise-threshold predicts the result, and
    /// retoast rewrites the values that do not comply.
    #[arg(long, value_name = "POLICY")]
    policy: Vec<Policy>,

    /// pglz, lz4 or either (the smaller) [default: as set]
    ///
    /// With either, the smaller result is kept for each value.
    #[arg(hide_short_help = true, long, value_name = "METHOD")]
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
            ([], [method, ..]) => Err(Failure::usage("--method requires --policy").hint(format!(
                "A policy takes the method, as in: --policy best --method {method}"
            ))),
            _ => Err(Failure::usage("--policy and --method can be given only once")),
        }
    }

    /// The first method, with or without a policy.
    pub(super) fn method(&self) -> Option<MethodChoice> {
        self.method.first().copied()
    }

    pub(super) fn is_given(&self) -> bool {
        !self.policy.is_empty()
    }
}

/// Which part of the tables is read.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sample")]
pub struct SampleArgs {
    /// Read a random part of each table: 1%, "5000 blocks"
    ///
    /// inspect then reads at least 20 blocks of each table, and of its TOAST relation only a few values, for findings. It
    /// requires pageinspect, and its figures are estimates with 95 % confidence intervals. Without this option,
    /// advise-threshold and keys read 1 % of the table (at least 2048 and at most 3000 blocks), and stop after 100 MB
    /// or, where that takes longer, 30 seconds. The same blocks are chosen each time; 1%,seed=7 chooses others.
    #[arg(long, value_name = "PART")]
    sample: Option<Sampling>,
}

impl SampleArgs {
    /// The seed by which blocks are chosen.
    pub(super) fn seed(&self) -> u64 {
        self.sample.map_or(SEED, |sampling| sampling.seed)
    }

    /// How much is read, if it was chosen.
    pub(super) fn size(&self) -> Option<SampleSize> {
        self.sample.map(|sampling| sampling.size)
    }

    /// The sample, if not everything is read.
    pub(super) fn sampling(&self) -> Option<Sampling> {
        self.sample
    }
}

/// Which compression counts.
#[derive(Debug, Clone, Args)]
pub struct ExactArg {
    /// Have the server compress the sample
    ///
    /// In a temporary table, in case its liblz4 differs from the version that toastctl imitates. Without pageinspect, the
    /// server always compresses the sample.
    #[arg(hide_short_help = true, long, help_heading = "Sample")]
    pub(super) exact: bool,
}

/// What a verb that reads may run.
#[derive(Debug, Clone, Args)]
pub struct AllowArg {
    /// owner-code: permit code of the table's owner
    ///
    /// Queries on a table can run functions that its owner chose, even while they are planned: in index expressions, check
    /// constraints, generated columns, statistics, policies or partition keys. A table whose functions could do harm with
    /// this user's rights is not read by SQL, unless owner-code is allowed. Pages that pageinspect reads run no code.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        hide_possible_values = true,
        help_heading = "Connection options"
    )]
    allow: Vec<AllowReading>,
}

/// `--allow` of verbs that read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AllowReading {
    /// Code of the table's owner, with the user's rights
    OwnerCode,
}

impl AllowArg {
    /// The session of a verb that reads.
    pub(super) fn session(&self, verb: &str) -> SessionOptions {
        SessionOptions {
            allows_owner_code: self.allow.contains(&AllowReading::OwnerCode),
            ..SessionOptions::read_only(verb)
        }
    }
}

/// How rows are read.
#[derive(Debug, Clone, Args)]
pub struct SourceArg {
    /// Read pages, or use SQL functions [default: auto]
    ///
    /// Pages are read with the extension pageinspect, which requires a superuser; figures are then exact, or estimates
    /// if only a sample is read. SQL functions such as pg_column_size require only SELECT on the tables.
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value_t,
        help_heading = "Reading a server"
    )]
    pub(super) source: Access,
}

/// Sessions that work side by side.
#[derive(Debug, Clone, Args)]
pub struct JobsArg {
    /// Number of connections [default: 2, retoast 1]
    ///
    /// Each connection runs one transaction at a time. retoast allows at most 16.
    #[arg(hide_short_help = true, short, long, value_name = "N", help_heading = "Reading a server",
          value_parser = count::<u16, 1, 64>, allow_negative_numbers = true)]
    pub(super) jobs: Option<u16>,
}

impl JobsArg {
    /// Connections that read side by side.
    pub(super) fn readers(&self) -> u16 {
        self.jobs.unwrap_or(2)
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct FormatArg {
    /// table, json, jsonl, csv, markdown or html
    ///
    /// html is one page for a browser, which loads nothing from elsewhere and has at most about 1 MB of tables: charts,
    /// their figures in tables, and commands to copy. value does not support it.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, help_heading = "Output")]
    pub(super) format: Format,
}

/// Whether all is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct DetailsArg {
    /// Print everything about each table
    ///
    /// inspect prints the full report of each table instead of the overview, and --explain the widths of the rows.
    /// advise-threshold compares all settings of each table, explains the terms and prints each candidate's caveats and
    /// all notes. keys prints sizes and shares of each key in tables of their own.
    #[arg(long, help_heading = "Output")]
    pub(super) details: bool,
}

/// The largest number of what has no limit of its own.
pub(super) const UNLIMITED: u64 = u32::MAX as u64;

/// A lag, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LagArg(pub(super) Option<Lag>);

/// Splits a number from its unit.
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

/// The units of times, sizes and parts, each with other words for it.
const UNITS: [(&str, &[&str]); 10] = [
    ("ms", &["msec", "millisecond", "milliseconds"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("min", &["m", "mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("kB", &["kb", "kib"]),
    ("MB", &["mb", "mib"]),
    ("GB", &["gb", "gib"]),
    ("TB", &["tb", "tib"]),
    ("blocks", &["block", "pages", "page"]),
    ("%", &["percent"]),
];

/// The unit that a word stands for, as options spell it.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let found = UNITS
        .iter()
        .find(|(unit, others)| unit.eq_ignore_ascii_case(&word) || others.contains(&word.as_str()));
    found.map(|(unit, _)| *unit)
}

/// A number with its unit, as one word of an option.
pub(super) fn with_unit(number: &str, unit: &str) -> String {
    let blank = if unit == "blocks" { " " } else { "" };
    shell_quoted(&format!("{number}{blank}{unit}"))
}

/// A whole number from `LEAST` to `MOST`.
pub(super) fn count<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<T, String> {
    let number = text.trim().parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        if MOST == UNLIMITED && !is_number {
            format!("expected a whole number of at least {LEAST}")
        } else {
            format!("expected a whole number from {LEAST} to {MOST}")
        }
    })
}

const SIZE: &str = "expected a size in kB, MB, GB or TB, such as 512MB";

/// Bytes, with PostgreSQL's units.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "b" | "bytes" => 0,
        "" if number == "0" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        _ => return Err(SIZE.to_owned()),
    };
    let bytes = number.parse::<f64>().ok().map(|number| number * (1u64 << shift) as f64);
    match bytes {
        Some(bytes) if bytes < 9e18 => Ok(bytes as u64),
        _ => Err(SIZE.to_owned()),
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
    let size = if !split(text).1.is_empty() { size(text).ok() } else { None };
    let size =
        size.ok_or_else(|| "expected a time, a size or off, such as 10s or 64MB".to_owned())?;
    Ok(LagArg(Some(Lag::Bytes(size))))
}

const TIME: &str = "expected one number in ms, s, min or h, such as 90s, 30min or 2h";

pub(super) fn time(text: &str) -> Result<Duration, String> {
    a_time(text).ok_or_else(|| TIME.to_owned())
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
    let number = text.trim().parse().ok().filter(|number| (0.0..=1000.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1000".to_owned())
}

/// A part of 1 from percents, with or without the sign.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().trim_end_matches('%').trim_end().parse().ok();
    let number = number.filter(|number| (0.1..=1000.0).contains(number));
    let part = number.map(|percent| percent / 100.0);
    part.ok_or_else(|| "expected a percentage from 0.1% to 1000%".to_owned())
}

/// A time, in seconds unless it has a unit.
pub(super) fn max_time(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    match seconds.or_else(|| a_time(text)) {
        None | Some(Duration::ZERO) => Err(TIME.to_owned()),
        Some(time) => Ok(time),
    }
}

pub(super) fn reads_per_write(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| "expected a number of at least 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_for_units_are_understood() {
        for (word, known) in [("minutes", "min"), ("GB", "GB"), ("gib", "GB"), ("%", "%")] {
            assert_eq!(unit(word), Some(known), "{word}");
        }
        assert_eq!(unit("orders"), None);
        assert_eq!(with_unit("5", "blocks"), "'5 blocks'");
        assert_eq!(with_unit("nice=5", "s"), "nice=5s");
    }

    #[test]
    fn sizes_take_the_units_of_postgresql() {
        assert_eq!((size("8192 bytes"), size("0")), (Ok(8192), Ok(0)));
        assert_eq!(size("1.5 MB"), Ok(3 << 19));
        assert_eq!(size("2GB"), Ok(2 << 30));
        for bad in ["", "10", "MB", "1 PB", "-1", "1..2", "99999999TB"] {
            assert!(size(bad).unwrap_err().starts_with("expected a size in kB"), "{bad}");
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
            assert!(lag(bad).unwrap_err().starts_with("expected a time, a size"), "{bad}");
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
    fn no_time_is_no_limit() {
        assert!(max_time("0s").is_err());
        assert_eq!(max_time("90s"), Ok(Duration::from_secs(90)));
    }
}
