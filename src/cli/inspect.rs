//! `toastctl inspect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::connect::{ConnectionArgs, HelpFlag};
use super::inspect_check_args::CheckArgs;
use super::inspect_overview_args::OverviewArgs;
use crate::disk::custom::CustomFlavor;
use crate::heap::sample::{SampleSize, Sampling};
use crate::inspect::inspector::ScanToast;
use crate::model::policy::{MethodChoice, Policy};
use crate::report::document::Format;
use crate::server::about::Access;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = after_help())]
pub struct InspectArgs {
    /// Tables, as psql takes them: schema.name, "Quoted Name", patterns with * and ?; all tables of
    /// the database if none is named
    #[arg(value_name = "TABLE", conflicts_with_all = ["relation_file", "pageinspect", "datum"])]
    pub tables: Vec<String>,

    /// Read a relation file (its segments .1, .2 are found) instead of a server
    #[arg(long, value_name = "FILE", requires = "columns", help_heading = "Without a server",
          conflicts_with_all = ["pageinspect", "datum"])]
    pub relation_file: Option<PathBuf>,

    /// The file of the relation's TOAST relation
    #[arg(
        long,
        value_name = "FILE",
        requires = "relation_file",
        help_heading = "Without a server"
    )]
    pub toast_file: Option<PathBuf>,

    /// Commit status, where the pages have no hint bits: a file of pg_xact, or that directory
    #[arg(
        long,
        value_name = "FILE",
        requires = "relation_file",
        help_heading = "Without a server"
    )]
    pub xact: Option<PathBuf>,

    /// Read saved output of pageinspect (psql's aligned, expanded, unaligned, CSV or JSON form of
    /// heap_page_items, heap_page_item_attrs, get_raw_page, tuple_data_split); - for standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "columns",
        help_heading = "Without a server",
        conflicts_with = "datum"
    )]
    pub pageinspect: Option<PathBuf>,

    /// Describe one datum given in hexadecimal, with its header
    #[arg(long, value_name = "HEX", help_heading = "Without a server")]
    pub datum: Option<String>,

    /// The columns: a list such as 'id int4, js jsonb, old dropped(-1,i), c mytype(-1,d)', or
    /// @FILE with rows of pg_attribute as JSON
    #[arg(long, value_name = "LIST|@FILE", help_heading = "Without a server")]
    pub columns: Option<String>,

    /// Bytes of a page of the file
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "8192",
        requires = "relation_file",
        help_heading = "Without a server"
    )]
    pub block_size: usize,

    /// The datum or the saved output comes from a big-endian machine
    #[arg(long, conflicts_with = "relation_file", help_heading = "Without a server")]
    pub big_endian: bool,

    /// Where the figures come from
    #[arg(long, value_enum, default_value_t, help_heading = "Reading a server")]
    pub source: SourceArg,

    /// Whether to count the rows of TOAST relations by reading them
    #[arg(long, value_enum, default_value_t, help_heading = "Reading a server")]
    pub scan_toast: ScanToastArg,

    /// Read only so much of each table, a random choice of blocks: 1% (but at least 20 blocks),
    /// "5000 blocks", 100%. Every figure of the table is then an estimate with its 95 % confidence
    /// interval. Needs pages; TOAST relations are not read
    #[arg(long, value_name = "PART", help_heading = "Sample",
          conflicts_with_all = ["toast_file", "pageinspect", "datum", "scan_toast", "values", "value"])]
    pub sample: Option<SampleSize>,

    /// The seed of the random choice of blocks
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        requires = "sample",
        help_heading = "Sample"
    )]
    pub seed: u64,

    /// Connections that read side by side [default: 2; with --values 1]
    #[arg(short, long, value_name = "N", help_heading = "Reading a server",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: Option<u16>,

    /// Layout of custom pointers, on servers with pluggable TOAST
    #[arg(long, value_enum, default_value_t, hide_default_value = true,
          conflicts_with_all = ["pageinspect", "datum"], help_heading = "Pluggable TOAST")]
    pub flavor: FlavorArg,

    /// Show for each column that can be toasted how many of the values, and of their stored bytes,
    /// are stored as retoast --policy would have them: always, never, chunk-saving[=1], ratio[=0.95],
    /// chunk-floor[=100], hybrid[=0.90], best. The server compresses values in a temporary table
    #[arg(long, value_name = "POLICY", help_heading = "Policy",
          conflicts_with_all = ["relation_file", "pageinspect", "datum", "value", "values"])]
    pub policy: Option<Policy>,

    /// The policy's method: pglz, lz4, or either (the better one for each value) [default: the
    /// column's]
    #[arg(long, value_name = "METHOD", requires = "policy", help_heading = "Policy")]
    pub method: Option<MethodChoice>,

    /// Print one line a value instead of statistics
    #[arg(long, help_heading = "Output")]
    pub values: bool,

    /// Put every value together from its chunks: adds md5 (of the content) and text_md5 (of the
    /// text form, where it is known: text types, json, jsonb, numeric)
    #[arg(long, requires = "values", conflicts_with_all = ["pageinspect", "datum"],
          help_heading = "Output")]
    pub reassemble: bool,

    /// Write every value put together to a file of its own in this directory
    #[arg(long, value_name = "DIR", requires = "reassemble", help_heading = "Output")]
    pub output_dir: Option<PathBuf>,

    /// Take one value apart: pointer, chunks and where they stand, first bytes, cost to read; given
    /// as table.column@(block,item), for a relation file as column@(block,item)
    #[arg(long, value_name = "SPEC", help_heading = "Output",
          conflicts_with_all = ["tables", "values", "pageinspect", "datum"])]
    pub value: Option<String>,

    /// Explain what the storage of each column costs today: buffers and CPU time to read a value, what
    /// an UPDATE writes, and how far the rows are from the width at which they are toasted. From a
    /// sample as of advise-threshold. Needs pages
    #[arg(long, help_heading = "Output", requires = "tables",
          conflicts_with_all = ["values", "value", "check", "policy", "brief", "scan_toast", "flavor"])]
    pub explain: bool,

    /// Show what each key of jsonb, json or hstore documents costs, of COLUMN (or each attribute of a composite
    /// type, the elements of an array) or of all with documents: bytes, where it stands, how often values
    /// repeat, and the buffers, CPU time and WAL to read and to change it today and in a column of its own;
    /// and who uses it, as far as pg_stat_statements, statements of sessions, indexes, generated columns,
    /// views, policies, check constraints and functions tell. From a sample as of advise-threshold
    #[arg(long, value_name = "COLUMN", num_args = 0..=1, help_heading = "Output",
          conflicts_with_all = ["values", "value", "check", "policy", "explain", "details", "brief",
          "sort", "parts", "max_time", "precision", "scan_toast", "pageinspect", "datum", "jobs"])]
    pub jsonb_keys: Option<Option<String>>,

    /// Tell keys apart down to so many levels; the elements of an array are one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "jsonb_keys", help_heading = "Output",
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub depth: u8,

    /// How to print
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,

    /// What is shown of several tables
    #[command(flatten)]
    pub overview: OverviewArgs,

    /// What --check does
    #[command(flatten)]
    pub checking: CheckArgs,

    /// Connection
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Help
    #[command(flatten)]
    pub help: HelpFlag,
}

/// `--flavor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FlavorArg {
    /// By each pointer's own bytes
    #[default]
    Auto,
    /// 16-bit length
    #[value(name = "16-bit")]
    Bits16,
    /// 32-bit length
    #[value(name = "32-bit")]
    Bits32,
    /// 16-bit length, without what it counts
    HeadOnly,
}

impl From<FlavorArg> for CustomFlavor {
    fn from(arg: FlavorArg) -> CustomFlavor {
        match arg {
            FlavorArg::Auto => CustomFlavor::Auto,
            FlavorArg::Bits16 => CustomFlavor::Bits16,
            FlavorArg::Bits32 => CustomFlavor::Bits32,
            FlavorArg::HeadOnly => CustomFlavor::HeadOnly,
        }
    }
}

/// `--source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum SourceArg {
    /// Pages if possible, else SQL functions
    #[default]
    Auto,
    /// Pages through the extension pageinspect
    Pageinspect,
    /// SQL functions such as pg_column_size, which an ordinary owner may use
    Functions,
}

impl InspectArgs {
    /// Which sample is read, if not everything.
    pub fn sampling(&self) -> Option<Sampling> {
        self.sample.map(|size| Sampling { size, seed: self.seed })
    }

    /// How many connections read.
    pub fn connections(&self) -> u16 {
        self.jobs.unwrap_or(if self.values { 1 } else { 2 })
    }
}

impl From<SourceArg> for Access {
    fn from(arg: SourceArg) -> Access {
        match arg {
            SourceArg::Auto => Access::Auto,
            SourceArg::Pageinspect => Access::Pageinspect,
            SourceArg::Functions => Access::Functions,
        }
    }
}

/// `--scan-toast`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ScanToastArg {
    /// If the TOAST relation has at most 1 GB
    #[default]
    Auto,
    /// In any case
    Always,
    /// Never: the planner's estimate is shown
    Never,
}

impl From<ScanToastArg> for ScanToast {
    fn from(arg: ScanToastArg) -> ScanToast {
        match arg {
            ScanToastArg::Auto => ScanToast::Auto,
            ScanToastArg::Always => ScanToast::Always,
            ScanToastArg::Never => ScanToast::Never,
        }
    }
}

fn after_help() -> String {
    format!(
        "The columns of a file or of saved output, as @FILE takes them, are printed by:\n\n  \
         psql -XAtc \"{}\" > columns.json",
        crate::offline::columns::QUERY
    )
}
