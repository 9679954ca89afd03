//! What `toastctl inspect` is asked for: its arguments, with their conflicts found and the files that they name
//! read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::exit::Failure;
use super::inspect::{InspectArgs, SourceArg};
use super::value_spec::ValueSpec;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::{ByteOrder, ItemPointer};
use crate::inspect::inspector::{ContentOptions, Options};
use crate::inspect::run::{Compare, Request};
use crate::offline::columns;
use crate::offline::target::FileTarget;
use crate::offline::xact::PgXact;
use crate::report::document::Format;
use crate::retoast::share::PolicyRequest;
use crate::server::pattern::NamePattern;

/// Bytes of columns that are read at the most.
const MAX_TEXT: u64 = 16 << 20;

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
            flavor: args.flavor.into(),
            xact: self.xact.as_ref(),
            checksums: match (args.checking.checksums, args.checking.ignore_checksums) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            sampling: None,
        }
    }
}

/// A value of a table that is known.
pub(super) struct ValuePlace {
    pub(super) column: String,
    pub(super) ctid: ItemPointer,
}

impl Asked {
    /// What the arguments say.
    ///
    /// # Errors
    /// Where they contradict each other, or name what cannot be used.
    pub(super) fn by(args: &InspectArgs) -> Result<Asked, Failure> {
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
                if args.overview.limit.is_some() {
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
        if self.format == Format::Csv {
            return Err(Failure::usage(
                "--jsonb-keys is printed as a table, markdown, json or jsonl",
            ));
        }
        Ok(())
    }

    /// What `--sample` cannot be combined with in a full report, beyond what clap knows.
    pub(super) fn check_sample(&self) -> Result<(), Failure> {
        if self.sample.is_none() || self.overview.brief {
            return Ok(());
        }
        if self.source == SourceArg::Functions {
            return Err(Failure::usage(
                "--sample needs pages: it cannot be used with --source functions",
            ));
        }
        if self.format == Format::Csv {
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
    for name in &args.tables {
        NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    }
    if args.explain {
        return explanation(args);
    }
    if args.jsonb_keys.is_some() {
        return keys(args);
    }
    let options = Options {
        access: args.source.into(),
        scan_toast: args.scan_toast.into(),
        flavor: args.flavor.into(),
        contents: args.reassemble.then(|| ContentOptions { output_dir: args.output_dir.clone() }),
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
                    InspectArgs { sample: Some(_), .. } => Some("--sample"),
                    _ => None,
                },
                explains_functions: args.source == SourceArg::Auto,
                policy: args.policy.map(|policy| -> Box<dyn Compare> {
                    Box::new(PolicyRequest { policy, method: args.method })
                }),
            };
            Ok(Asked::Relations { request, options })
        }
    }
}

fn explanation(args: &InspectArgs) -> Result<Asked, Failure> {
    if args.source == SourceArg::Functions {
        return Err(Failure::usage(
            "--explain needs pages: it cannot be used with --source functions",
        ));
    }
    if args.format == Format::Csv {
        return Err(Failure::usage("--explain is printed as a table, markdown, json or jsonl"));
    }
    Ok(Asked::Explanation)
}

fn keys(args: &InspectArgs) -> Result<Asked, Failure> {
    if args.tables.is_empty() {
        return Err(Failure::usage(
            "--jsonb-keys needs a table\nHINT:  toastctl inspect TABLE --jsonb-keys [COLUMN]",
        ));
    }
    args.check_keys_format()?;
    Ok(Asked::Keys)
}

fn value_spec(args: &InspectArgs) -> Result<Option<ValueSpec>, Failure> {
    let Some(text) = &args.value else { return Ok(None) };
    let spec = ValueSpec::parse(text)
        .map_err(|error| Failure::usage(format!("invalid --value \"{text}\": {error}")))?;
    if matches!(args.format, Format::Csv | Format::Markdown) {
        return Err(Failure::usage("--value is printed as a table, json or jsonl"));
    }
    Ok(Some(spec))
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
