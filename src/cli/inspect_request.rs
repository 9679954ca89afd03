//! What `toastctl inspect` is asked for: its arguments, with their conflicts found and the files that they name
//! read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::arguments::{
    DetailsArg, FormatArg, JobsArg, PolicyArgs, SampleArgs, SourceArg, TablesArg, max_time,
    precision,
};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::Failure;
use crate::check::subject::Depth;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::{ByteOrder, ItemPointer};
use crate::heap::sample::Sampling;
use crate::inspect::inspector::{ContentOptions, Options, ScanToast};
use crate::inspect::overview::rank::SortBy;
use crate::inspect::overview::run::Terms;
use crate::inspect::run::{Compare, Request};
use crate::offline::columns;
use crate::offline::target::FileTarget;
use crate::offline::xact::PgXact;
use crate::report::document::Format;
use crate::report::overview::View;
use crate::retoast::share::PolicyRequest;
use crate::server::about::Access;
use crate::server::chunks::parse_tid;
use crate::server::pattern::NamePattern;
use crate::server::select::Found;

/// The time for an overview whose sample nobody has chosen.
const MAX_TIME: Duration = Duration::from_secs(10);
/// How precise it is wanted.
const PRECISION: f64 = 0.05;
/// Bytes of columns that are read at the most.
const MAX_TEXT: u64 = 16 << 20;

/// What leaves no place for an overview.
const NOT_OVERVIEW: [&str; 9] = [
    "details",
    "values",
    "value",
    "check",
    "policy",
    "scan_toast",
    "relation_file",
    "pageinspect",
    "datum",
];

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = after_help())]
pub struct InspectArgs {
    #[command(flatten)]
    pub(super) tables: TablesArg,

    /// Read a relation file (its segments .1, .2 are found) instead of a server
    #[arg(long, value_name = "FILE", requires = "columns", help_heading = "Without a server",
          conflicts_with_all = ["tables", "pageinspect", "datum", "policy", "details"])]
    pub(super) relation_file: Option<PathBuf>,

    /// The file of the relation's TOAST relation
    #[arg(
        long,
        value_name = "FILE",
        requires = "relation_file",
        conflicts_with = "sample",
        help_heading = "Without a server"
    )]
    pub(super) toast_file: Option<PathBuf>,

    /// Commit status, where the pages have no hint bits: a file of pg_xact, or that directory
    #[arg(
        long,
        value_name = "FILE",
        requires = "relation_file",
        help_heading = "Without a server"
    )]
    pub(super) xact: Option<PathBuf>,

    /// Read saved output of pageinspect (psql's aligned, expanded, unaligned, CSV or JSON form of
    /// heap_page_items, heap_page_item_attrs, get_raw_page, tuple_data_split); - for standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "columns",
        help_heading = "Without a server",
        conflicts_with_all = ["tables", "datum", "sample", "policy", "details"]
    )]
    pub(super) pageinspect: Option<PathBuf>,

    /// Describe one datum given in hexadecimal, with its header
    #[arg(long, value_name = "HEX", help_heading = "Without a server",
          conflicts_with_all = ["tables", "sample", "policy", "details"])]
    pub(super) datum: Option<String>,

    /// The columns: a list such as 'id int4, js jsonb, old dropped(-1,i), c mytype(-1,d)', or
    /// @FILE with rows of pg_attribute as JSON
    #[arg(long, value_name = "LIST|@FILE", help_heading = "Without a server")]
    pub(super) columns: Option<String>,

    /// Bytes of a page of the file
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "8192",
        requires = "relation_file",
        help_heading = "Without a server"
    )]
    pub(super) block_size: usize,

    /// The datum or the saved output comes from a big-endian machine
    #[arg(long, conflicts_with = "relation_file", help_heading = "Without a server")]
    pub(super) big_endian: bool,

    #[command(flatten)]
    pub(super) source: SourceArg,

    /// Whether to count the rows of TOAST relations by reading them
    #[arg(
        long,
        value_enum,
        default_value_t,
        conflicts_with = "sample",
        help_heading = "Reading a server"
    )]
    pub(super) scan_toast: ScanToast,

    #[command(flatten)]
    pub(super) sample: SampleArgs,

    #[command(flatten)]
    pub(super) jobs: JobsArg,

    /// Layout of custom pointers, on servers with pluggable TOAST
    #[arg(long, value_enum, default_value_t, hide_default_value = true,
          conflicts_with_all = ["pageinspect", "datum"], help_heading = "Pluggable TOAST")]
    pub(super) flavor: CustomFlavor,

    #[command(flatten)]
    pub(super) policy: PolicyArgs,

    /// Print one line a value instead of statistics
    #[arg(long, help_heading = "Output", conflicts_with_all = ["sample", "policy", "details"])]
    pub(super) values: bool,

    /// Put every value together from its chunks: adds md5 (of the content) and text_md5 (of the
    /// text form, where it is known: text types, json, jsonb, numeric); with DIR each is written to a file of
    /// its own there
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, requires = "values",
          conflicts_with_all = ["pageinspect", "datum"], help_heading = "Output")]
    pub(super) reassemble: Option<Option<PathBuf>>,

    /// Take one value apart: pointer, chunks and where they stand, first bytes, cost to read; given
    /// as table.column@(block,item), for a relation file as column@(block,item)
    #[arg(long, value_name = "SPEC", help_heading = "Output",
          conflicts_with_all = ["tables", "values", "pageinspect", "datum", "sample", "policy", "details"])]
    pub(super) value: Option<String>,

    /// Explain what the storage of each column costs today: buffers and CPU time to read a value, what
    /// an UPDATE writes, and how far the rows are from the width at which they are toasted. From a
    /// sample as of advise-threshold. Needs pages
    #[arg(long, help_heading = "Output", requires = "tables",
          conflicts_with_all = ["values", "value", "check", "policy", "brief", "scan_toast", "flavor", "details"])]
    pub(super) explain: bool,

    /// Show what each key of jsonb, json or hstore documents costs, of COLUMN (or each attribute of a composite
    /// type, the elements of an array) or of all with documents: bytes, where it stands, how often values
    /// repeat, and the buffers, CPU time and WAL to read and to change it today and in a column of its own;
    /// and who uses it, as far as pg_stat_statements, statements of sessions, indexes, generated columns,
    /// views, policies, check constraints and functions tell. From a sample as of advise-threshold
    #[arg(long, value_name = "COLUMN", num_args = 0..=1, help_heading = "Output",
          conflicts_with_all = ["values", "value", "check", "policy", "explain", "details", "brief",
          "sort", "parts", "max_time", "precision", "scan_toast", "pageinspect", "datum", "jobs"])]
    pub(super) jsonb_keys: Option<Option<String>>,

    /// Tell keys apart down to so many levels; the elements of an array are one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "jsonb_keys", help_heading = "Output",
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) depth: u8,

    #[command(flatten)]
    pub(super) format: FormatArg,

    #[command(flatten)]
    pub(super) details: DetailsArg,

    /// The overview and nothing else, of one table too
    #[arg(long, help_heading = "Overview of several tables",
          conflicts_with_all = ["values", "value", "datum", "check", "policy", "scan_toast", "details"])]
    pub(super) brief: bool,

    /// Order of the columns
    #[arg(long, value_enum, value_name = "BY", help_heading = "Overview of several tables",
          conflicts_with_all = NOT_OVERVIEW)]
    pub(super) sort: Option<SortBy>,

    /// Name so many columns, with --jsonb-keys so many keys, and add the others up [default: 15; all
    /// in json, jsonl and csv]
    #[arg(long, value_name = "N", help_heading = "Overview of several tables",
          value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with_all = ["values", "value", "check", "policy", "scan_toast", "pageinspect", "datum", "details"])]
    pub(super) limit: Option<u32>,

    /// Tell partitions and inheritance children one by one instead of adding them up
    #[arg(long, help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW)]
    pub(super) parts: bool,

    /// End after this time, as in 10s or 5min, with what is known then; a table that nobody has
    /// looked at by then is left out, and the exit code says so [default: 10s; none with --sample]
    #[arg(long, value_name = "TIME", value_parser = max_time,
          help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW)]
    pub(super) max_time: Option<Duration>,

    /// Read a larger sample of a table until the sizes of its large columns are known to this part,
    /// to either side, or its share of the time is over [default: 5%]
    #[arg(long, value_name = "PART", value_parser = precision,
          help_heading = "Overview of several tables", conflicts_with_all = NOT_OVERVIEW,
          conflicts_with = "sample")]
    pub(super) precision: Option<f64>,

    #[command(flatten)]
    pub(super) checking: CheckArgs,

    #[command(flatten)]
    pub(super) connection: ConnectionArgs,

    #[command(flatten)]
    pub(super) help: HelpFlag,
}

impl InspectArgs {
    /// Which sample is read, if not everything.
    pub(super) fn sampling(&self) -> Option<Sampling> {
        self.sample.sample.map(|size| Sampling { size, seed: self.sample.seed() })
    }

    /// How many connections read.
    pub(super) fn connections(&self) -> u16 {
        self.jobs.jobs.unwrap_or(if self.values { 1 } else { 2 })
    }

    /// Whether something is asked of the overview, so that one table has one too.
    fn means_overview(&self) -> bool {
        self.brief
            || self.parts
            || self.sort.is_some()
            || self.limit.is_some()
            || self.max_time.is_some()
            || self.precision.is_some()
    }

    pub(super) fn view(&self) -> View {
        View {
            sort: self.sort.unwrap_or_default(),
            limit: self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        }
    }

    /// Whether these relations of a server are shown in an overview: several are, and all of a database.
    pub(super) fn wants_overview(&self, found: &[Found]) -> bool {
        let in_full = self.details.details
            || self.values
            || self.policy.is_given()
            || self.scan_toast != ScanToast::Auto;
        !in_full && (self.means_overview() || self.tables.tables.is_empty() || found.len() != 1)
    }

    /// How much is read for the overview.
    pub(super) fn terms(&self, explains_functions: bool) -> Terms {
        Terms {
            sampling: self.sampling(),
            precision: self.precision.unwrap_or(PRECISION),
            max_time: self.max_time.or(self.sample.sample.is_none().then_some(MAX_TIME)),
            parts: self.parts,
            explains_functions,
        }
    }
}

/// Whether damage is looked for, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Check")]
pub struct CheckArgs {
    /// Look for damage instead of showing statistics: pages, line pointers, tuples, TOAST pointers,
    /// chunks, compressed data. Each finding has a code (toastctl help findings) and a place; the
    /// exit code is 5 if there is any. A relation file must not be in use, and must be whole: of a
    /// server that was shut down, or of a backup that was restored
    #[arg(long, conflicts_with_all = ["values", "value", "datum", "sample", "policy", "details"])]
    pub(super) check: bool,

    /// Check what is in the values too: jsonb, text in UTF-8, numeric, arrays. Of files the encoding of the database
    /// may be given; text is checked where it is UTF8
    #[arg(long, value_name = "ENCODING", num_args = 0..=1, require_equals = true, requires = "check",
          default_missing_value = "UTF8")]
    pub(super) deep: Option<String>,

    /// Do not decompress: chunks are counted and measured only
    #[arg(long, requires = "check", conflicts_with = "deep")]
    pub(super) no_decompress: bool,

    /// Write what can still be read of damaged values to files in this directory, with a manifest
    /// (manifest.jsonl) and SQL (repair.sql) that rebuilds a damaged TOAST index, makes chunks live again
    /// that are all there, and else sets values to NULL if their rows are as they were found and no other
    /// row has the same chunks: for that the whole table and its TOAST relation are read once more. The SQL
    /// is printed too, and never run
    #[arg(long, value_name = "DIR", requires = "check", conflicts_with = "pageinspect")]
    pub(super) salvage: Option<PathBuf>,

    /// Verify the checksums of a relation file's pages [default: if the control file above it says
    /// that the cluster has checksums]. On a server they are verified with --check, on disk: in memory a
    /// page's checksum is not kept up to date
    #[arg(long, requires = "relation_file")]
    pub(super) checksums: bool,

    /// Read a relation file's pages as they are, also with wrong checksums: of a copy of damaged files
    #[arg(long, requires = "relation_file", conflicts_with = "checksums")]
    pub(super) ignore_checksums: bool,
}

impl CheckArgs {
    /// Whether checksums of a file are verified; `None`: if the control file says that there are any.
    fn asked_of_checksums(&self) -> Option<bool> {
        (self.checksums || self.ignore_checksums).then_some(self.checksums)
    }

    /// How far the check of a file goes.
    pub(super) fn depth(&self) -> Depth {
        let encoding = self.deep.as_deref().unwrap_or("UTF8");
        let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
        Depth {
            decompress: !self.no_decompress,
            content: self.deep.is_some(),
            utf8: name.eq_ignore_ascii_case("utf8"),
        }
    }
}

/// What is to be shown.
pub(super) enum Asked {
    /// One datum.
    Datum { bytes: Vec<u8>, order: ByteOrder },
    /// A relation file.
    File { file: File, value: Option<ValuePlace> },
    /// Saved output of pageinspect.
    Saved { text: SavedText, desc: TupleDesc, order: ByteOrder },
    /// One value of a server.
    Value { table: String, place: ValuePlace, options: Options },
    /// What the storage of these tables' columns costs.
    Explanation,
    /// What the keys of these tables' documents cost.
    Keys,
    /// Relations of a server.
    Relations { request: Request, options: Options },
}

/// Saved output, opened.
pub(super) struct SavedText {
    /// What stands for it in messages.
    pub(super) name: String,
    pub(super) source: Box<dyn Read>,
}

impl SavedText {
    /// The failure that it cannot be read at all.
    pub(super) fn unreadable(name: &str, error: &io::Error) -> Failure {
        Failure::usage(format!("could not read \"{name}\": {error}"))
    }
}

/// A relation file and how it is to be read.
pub(super) struct File {
    pub(super) heap: PathBuf,
    pub(super) desc: TupleDesc,
    pub(super) page_size: PageSize,
    pub(super) xact: Option<PgXact>,
}

impl File {
    /// What is read: all of it.
    pub(super) fn target<'a>(&'a self, args: &'a InspectArgs) -> FileTarget<'a> {
        FileTarget {
            heap: &self.heap,
            toast: args.toast_file.as_deref(),
            desc: &self.desc,
            page_size: self.page_size,
            flavor: args.flavor,
            xact: self.xact.as_ref(),
            checksums: args.checking.asked_of_checksums(),
            sampling: None,
        }
    }
}

impl Asked {
    /// What the arguments say.
    ///
    /// # Errors
    /// Where they contradict each other, or name what cannot be used.
    pub(super) fn by(args: &InspectArgs) -> Result<Asked, Failure> {
        args.sample.check()?;
        if let Some(hex) = &args.datum {
            let bytes = crate::offline::hex::parse_datum(hex)
                .map_err(|error| Failure::usage(format!("--datum: {error}")))?;
            return Ok(Asked::Datum { bytes, order: byte_order(args) });
        }
        if let Some(path) = &args.relation_file {
            if args.jsonb_keys.is_some() {
                args.check_keys_format()?;
            } else {
                args.check_sample()?;
                if args.limit.is_some() {
                    return Err(Failure::usage("--limit needs --jsonb-keys where a file is read"));
                }
            }
            return file(args, path);
        }
        if let Some(path) = &args.pageinspect {
            let desc = given_columns(args)?;
            let name =
                if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
            let text = SavedText { name, source: open(path)? };
            return Ok(Asked::Saved { text, desc, order: byte_order(args) });
        }
        server(args)
    }
}

impl InspectArgs {
    /// Whether keys can be printed so.
    fn check_keys_format(&self) -> Result<(), Failure> {
        if self.format.format == Format::Csv {
            return Err(Failure::usage(
                "--jsonb-keys is printed as a table, markdown, json or jsonl",
            ));
        }
        Ok(())
    }

    /// What `--sample` cannot be combined with in a full report, beyond what clap knows.
    pub(super) fn check_sample(&self) -> Result<(), Failure> {
        if self.sample.sample.is_none() || self.brief {
            return Ok(());
        }
        if self.source.source == Access::Functions {
            return Err(Failure::usage(
                "--sample needs pages: it cannot be used with --source functions",
            ));
        }
        if self.format.format == Format::Csv {
            return Err(Failure::usage(
                "--sample cannot be printed as csv, which has no place for confidence intervals\n\
                 HINT:  Use --format json.",
            ));
        }
        Ok(())
    }
}

fn file(args: &InspectArgs, path: &Path) -> Result<Asked, Failure> {
    let desc = given_columns(args)?;
    let page_size = PageSize::new(args.block_size).ok_or_else(|| {
        Failure::usage(format!(
            "invalid --block-size {}: it is 1024, 2048, 4096, 8192, 16384 or 32768",
            args.block_size
        ))
    })?;
    let open = |path: &PathBuf| {
        PgXact::open(path).map_err(|error| Failure::usage(format!("--xact: {error}")))
    };
    let xact = args.xact.as_ref().map(open).transpose()?;
    let value = match value_spec(args)? {
        None => None,
        Some(ValueSpec { table: None, column, ctid }) => Some(ValuePlace { column, ctid }),
        Some(_) => {
            return Err(Failure::usage("--value: give only column@(block,item) for a file"));
        }
    };
    Ok(Asked::File { file: File { heap: path.to_owned(), desc, page_size, xact }, value })
}

fn server(args: &InspectArgs) -> Result<Asked, Failure> {
    if args.values && args.connections() > 1 {
        return Err(Failure::usage("--values prints in order: it cannot be used with --jobs"));
    }
    for name in &args.tables.tables {
        NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    }
    if args.explain {
        return explanation(args);
    }
    if args.jsonb_keys.is_some() {
        return keys(args);
    }
    let policy = args.policy.one()?;
    let options = Options {
        access: args.source.source,
        scan_toast: args.scan_toast,
        flavor: args.flavor,
        contents: args
            .reassemble
            .as_ref()
            .map(|output_dir| ContentOptions { output_dir: output_dir.clone() }),
        sampling: args.sampling(),
    };
    match value_spec(args)? {
        Some(ValueSpec { table: Some(table), column, ctid }) => {
            Ok(Asked::Value { table, place: ValuePlace { column, ctid }, options })
        }
        Some(_) => Err(Failure::usage("--value: give table.column@(block,item)")),
        None => {
            let request = Request {
                needs_pages: match args {
                    InspectArgs { values: true, .. } => Some("--values"),
                    _ if args.sample.sample.is_some() => Some("--sample"),
                    _ => None,
                },
                explains_functions: args.source.source == Access::Auto,
                policy: policy.map(|(policy, method)| -> Box<dyn Compare> {
                    Box::new(PolicyRequest { policy, method })
                }),
            };
            Ok(Asked::Relations { request, options })
        }
    }
}

fn explanation(args: &InspectArgs) -> Result<Asked, Failure> {
    if args.source.source == Access::Functions {
        return Err(Failure::usage(
            "--explain needs pages: it cannot be used with --source functions",
        ));
    }
    if args.format.format == Format::Csv {
        return Err(Failure::usage("--explain is printed as a table, markdown, json or jsonl"));
    }
    Ok(Asked::Explanation)
}

fn keys(args: &InspectArgs) -> Result<Asked, Failure> {
    if args.tables.tables.is_empty() {
        return Err(Failure::usage(
            "--jsonb-keys needs a table\nHINT:  toastctl inspect TABLE --jsonb-keys [COLUMN]",
        ));
    }
    args.check_keys_format()?;
    Ok(Asked::Keys)
}

fn byte_order(args: &InspectArgs) -> ByteOrder {
    if args.big_endian { ByteOrder::Big } else { ByteOrder::Little }
}

/// The columns of `--columns`.
fn given_columns(args: &InspectArgs) -> Result<TupleDesc, Failure> {
    let given = args.columns.as_deref().unwrap_or_default();
    match given.strip_prefix('@') {
        None => columns::parse_list(given)
            .map_err(|error| Failure::usage(format!("--columns: {error}"))),
        Some(path) => {
            let text = read_text(Path::new(path))?;
            columns::parse_json(&text)
                .map_err(|error| Failure::usage(format!("--columns: \"{path}\": {error}")))
        }
    }
}

/// Opens a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match std::fs::File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    SavedText::unreadable(&path.display().to_string(), error)
}

/// Reads what [`open`] opens.
fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(Failure::usage(format!(
            "\"{}\" is longer than {} MB",
            path.display(),
            MAX_TEXT >> 20
        )));
    }
    Ok(bytes)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("\"{}\": byte {at} is not UTF-8", path.display()))
    })
}

/// A value of a table that is known.
pub(super) struct ValuePlace {
    pub(super) column: String,
    pub(super) ctid: ItemPointer,
}

/// The value that `--value` names.
fn value_spec(args: &InspectArgs) -> Result<Option<ValueSpec>, Failure> {
    let Some(text) = &args.value else { return Ok(None) };
    let spec = ValueSpec::parse(text)
        .map_err(|error| Failure::usage(format!("invalid --value \"{text}\": {error}")))?;
    if matches!(args.format.format, Format::Csv | Format::Markdown) {
        return Err(Failure::usage("--value is printed as a table, json or jsonl"));
    }
    Ok(Some(spec))
}

/// A value named by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSpec {
    /// The table as the user wrote it; `None` where a file was given.
    pub table: Option<String>,
    /// The column, quotes removed.
    pub column: String,
    /// The tuple.
    pub ctid: ItemPointer,
}

/// Why a text names no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueSpecError {
    /// No address, or one that cannot be.
    #[error("expected an address such as @(12,3) at the end")]
    Address,
    /// No column.
    #[error("expected a column in front of the address")]
    Column,
}

impl ValueSpec {
    /// Reads `[table.]column@(block,item)`. Names are as in SQL: folded unless quoted.
    pub fn parse(text: &str) -> Result<ValueSpec, ValueSpecError> {
        let (name, address) = text.rsplit_once('@').ok_or(ValueSpecError::Address)?;
        let ctid = parse_tid(address.trim()).filter(|ctid| ctid.item > 0);
        let ctid = ctid.ok_or(ValueSpecError::Address)?;
        let mut quoted = false;
        let mut dot = None;
        for (at, c) in name.char_indices() {
            match c {
                '"' => quoted = !quoted,
                '.' if !quoted => dot = Some(at),
                _ => {}
            }
        }
        let (table, column) = match dot.and_then(|at| name.split_at_checked(at)) {
            Some((table, column)) => (Some(table.trim().to_owned()), column.get(1..)),
            None => (None, Some(name)),
        };
        let column = column.unwrap_or_default().trim();
        let column = match column.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => inner.replace("\"\"", "\""),
            None => column.to_lowercase(),
        };
        if quoted || column.is_empty() || table.as_ref().is_some_and(String::is_empty) {
            return Err(ValueSpecError::Column);
        }
        Ok(ValueSpec { table, column, ctid })
    }
}

fn after_help() -> String {
    format!(
        "Sample: of a table at least 20 blocks are read. Every figure of it is then an estimate with its 95 % confidence \
         interval; pages are needed, and TOAST relations are not read.\n\n\
         The columns of a file or of saved output, as @FILE takes them, are printed by:\n\n  \
         psql -XAtc \"{}\" > columns.json",
        crate::offline::columns::QUERY
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BlockNumber;

    #[test]
    fn tables_columns_and_addresses() {
        let spec = |text| {
            let ValueSpec { table, column, ctid } = ValueSpec::parse(text).unwrap();
            (table, column, ctid)
        };
        let at = |block, item| ItemPointer { block: BlockNumber(block), item };
        assert_eq!(spec("js@(12,3)"), (None, "js".into(), at(12, 3)));
        assert_eq!(spec("t.JS@(0,1)"), (Some("t".into()), "js".into(), at(0, 1)));
        assert_eq!(
            spec("s.\"T.x\".\"a.\"\"B@\"@(0, 1)"),
            (Some("s.\"T.x\"".into()), "a.\"B@".into(), at(0, 1))
        );
    }

    #[test]
    fn what_names_no_value_is_refused() {
        for text in ["js", "js@", "js@12,3", "js@(0,0)", "js@(0,1)x"] {
            assert_eq!(ValueSpec::parse(text), Err(ValueSpecError::Address), "{text}");
        }
        for text in ["@(0,1)", "t.@(0,1)", ".js@(0,1)", "\"js@(0,1)"] {
            assert_eq!(ValueSpec::parse(text), Err(ValueSpecError::Column), "{text}");
        }
    }
}
