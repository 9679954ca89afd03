//! `toastctl value`: one value taken apart, one datum, or all values of a table line by line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::arguments::{AllowArg, FormatArg, SourceArg};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::files::{File, FileArgs, OrderArg, SavedArgs, SavedText, unreadable};
use super::inspect::inspector;
use super::inspect_output::InspectOutput;
use super::terminal::{self, ReadingProgress, tell};
use crate::inspect::inspector::{ContentOptions, InspectError, Options};
use crate::inspect::offline::{self, ContentFiles};
use crate::inspect::run::{self, Output, Request};
use crate::inspect::saved::saved_text;
use crate::report::document::Format;
use crate::server::about::Access;
use crate::server::chunks::parse_tid;
use crate::server::sink::{RunError, Sink, UserMessage};
use crate::value::anatomy::Anatomy;
use toast_format::disk::ItemPointer;

/// Arguments of `value`.
#[derive(Debug, Args)]
pub struct ValueArgs {
    /// table.column@(block,item), or tables to list
    ///
    /// For one value: its TOAST pointer, its chunks and their locations, its first bytes, and the cost of reading it. With
    /// --relation-file, write column@(block,item). For tables: all values, one per line.
    #[arg(value_name = "VALUE|TABLE")]
    of: Vec<String>,

    /// Describe a datum given in hexadecimal
    ///
    /// With its header, as a debugger shows it.
    #[arg(long, value_name = "HEX", help_heading = "Without a server",
          conflicts_with_all = ["of", "relation_file", "pageinspect", "file_columns", "reassemble"])]
    datum: Option<String>,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    saved: SavedArgs,

    #[command(flatten)]
    order: OrderArg,

    /// Fetch each value; with DIR, write it to a file
    ///
    /// Adds md5 (of the content) and text_md5 (of the text form, for text types, json, jsonb and numeric). With DIR,
    /// each value is written to its own file in this directory.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          conflicts_with = "pageinspect", help_heading = "Output")]
    reassemble: Option<Option<PathBuf>>,

    #[command(flatten)]
    source: SourceArg,

    #[command(flatten)]
    format: FormatArg,

    #[command(flatten)]
    allow: AllowArg,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    help: HelpFlag,
}

enum Asked {
    /// One value, of a table or of a file.
    One(ValueSpec),
    All,
}

impl ValueArgs {
    /// What the words ask for.
    ///
    /// # Errors
    /// Where one is neither a value nor a table, or a value is not the only word.
    fn asked(&self) -> Result<Asked, Failure> {
        // a name with an @ is quoted
        let Some(text) = self
            .of
            .iter()
            .find(|text| text.contains("@(") || text.contains('@') && !text.contains('"'))
        else {
            return Ok(Asked::All);
        };
        if self.of.len() > 1 {
            return Err(Failure::usage("only one value can be shown in detail at a time"));
        }
        let spec = ValueSpec::parse(text)
            .map_err(|error| Failure::usage(format!("invalid value \"{text}\": {error}")))?;
        if matches!(self.format.format, Format::Csv | Format::Markdown | Format::Html) {
            return Err(Failure::usage("one value is printed as a table, json or jsonl"));
        }
        if self.reassemble.is_some() {
            return Err(Failure::usage(
                "--reassemble is for all values of a table, file or saved output",
            ));
        }
        Ok(Asked::One(spec))
    }

    fn rows(&self) -> InspectOutput {
        InspectOutput::of_values(self.format.format, self.reassemble.is_some())
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &ValueArgs) -> Result<Exit, Failure> {
    if args.format.format == Format::Html {
        return Err(Failure::usage("values cannot be printed as html"));
    }
    if let Some(hex) = &args.datum {
        return datum(args, hex);
    }
    let asked = args.asked()?;
    let tables: &[String] = if matches!(asked, Asked::One(_)) { &[] } else { &args.of };
    if let Some(file) = args.file.file(tables)? {
        return match asked {
            Asked::One(ValueSpec { table: None, column, ctid }) => {
                let value = offline::value(&file.target(None), &column, ctid);
                print_anatomy(args, &value.map_err(|error| Failure::usage(error.to_string()))?)
            }
            Asked::One(_) => Err(Failure::usage("of a file give only column@(block,item)")),
            Asked::All => values_of_file(args, &file),
        };
    }
    if let Some(text) = args.saved.text(&args.file, &args.of)? {
        return saved(args, text);
    }
    match asked {
        Asked::One(ValueSpec { table: Some(table), column, ctid }) => {
            terminal::runtime(1)?.block_on(value(args, &table, &column, ctid))
        }
        Asked::One(_) => Err(Failure::usage("of a server give table.column@(block,item)")),
        Asked::All if args.of.is_empty() => Err(Failure::usage(
            "no value or table was given\nHINT:  For example orders.doc@(0,1); toastctl inspect lists the tables.",
        )),
        Asked::All => terminal::runtime(1)?.block_on(values(args)),
    }
}

fn wrong_datum(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--datum: {error}"))
}

fn datum(args: &ValueArgs, hex: &str) -> Result<Exit, Failure> {
    let bytes = toast_format::disk::hex::parse_datum(hex).map_err(wrong_datum)?;
    let (row, used) = offline::datum(&bytes, args.order.order()).map_err(wrong_datum)?;
    let mut output = args.rows();
    let written = output.row(&row);
    if used < bytes.len() {
        tell(UserMessage::Warning(format!(
            "{} bytes follow the datum's {used} bytes and were not examined",
            bytes.len() - used
        )));
    }
    output.end(written.map_err(RunError::Output))
}

/// Takes a value of a server apart.
async fn value(
    args: &ValueArgs,
    table: &str,
    column: &str,
    ctid: ItemPointer,
) -> Result<Exit, Failure> {
    let inspector =
        inspector(&args.connection, args.allow.session("value"), 1, args.options()).await?;
    let anatomy = run::value(&inspector, table, column, ctid).await?;
    print_anatomy(args, &anatomy)
}

impl ValueArgs {
    fn options(&self) -> Options {
        Options {
            access: self.source.source,
            flavor: self.file.flavor,
            contents: self
                .reassemble
                .as_ref()
                .map(|output_dir| ContentOptions { output_dir: output_dir.clone() }),
            ..Options::default()
        }
    }
}

/// Prints the values of tables.
async fn values(args: &ValueArgs) -> Result<Exit, Failure> {
    let inspector =
        inspector(&args.connection, args.allow.session("value"), 1, args.options()).await?;
    let mut interrupt = std::pin::pin!(terminal::interrupted());
    let mut output = args.rows();
    let selection = match run::find(&inspector, &args.of, false, tell, interrupt.as_mut()).await {
        Ok(selection) => selection,
        Err(error) => return output.end(Err(error)),
    };
    selection.report_to(&mut output);
    let request = Request {
        needs_pages: Some("value"),
        explains_functions: args.source.source == Access::Auto,
        policy: None,
    };
    let found = &selection.found;
    let ended = run::relations(&inspector, &request, found, &mut output, interrupt).await;
    output.end(ended)
}

/// Prints the values of a relation file.
fn values_of_file(args: &ValueArgs, file: &File<'_>) -> Result<Exit, Failure> {
    let contents = args.reassemble.as_ref().map(|dir| ContentFiles { output_dir: dir.as_deref() });
    let mut output = args.rows();
    let progress = ReadingProgress::default();
    let target = file.target(None);
    let ended = match offline::relation_file(&target, contents, output.rows(), &progress) {
        Ok(report) => output.found(report).map_err(RunError::Output),
        Err(InspectError::Output(error)) => Err(RunError::Output(error)),
        Err(error) => return Err(Failure::usage(error.to_string())),
    };
    output.end(ended)
}

/// Prints the values in saved output of pageinspect.
fn saved(args: &ValueArgs, text: SavedText) -> Result<Exit, Failure> {
    let SavedText { name, desc, source } = text;
    let mut output = args.rows();
    let (report, unwritten) = saved_text(&name, source, &desc, args.order.order(), output.rows())
        .map_err(|error| unreadable(&name, &error))?;
    let ended = match unwritten {
        Some(error) => Err(error),
        None => output.found(report),
    };
    output.end(ended.map_err(RunError::Output))
}

/// Prints one value in every detail.
fn print_anatomy(args: &ValueArgs, anatomy: &Anatomy) -> Result<Exit, Failure> {
    let mut out = terminal::stdout_for_people(args.format.format);
    let written = match args.format.format {
        Format::Json | Format::Jsonl => {
            crate::report::values::one(anatomy, args.format.format, &mut out)
        }
        // the others are refused beforehand
        Format::Table | Format::Csv | Format::Markdown | Format::Html => {
            crate::report::anatomy::text(anatomy, &mut out)
        }
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
        _ if anatomy.problems.is_empty() => Ok(Exit::Ok),
        _ => Ok(Exit::Incomplete),
    }
}

/// A value named by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValueSpec {
    /// The table as the user wrote it; `None` where a file was given.
    table: Option<String>,
    /// The column, quotes removed.
    column: String,
    ctid: ItemPointer,
}

/// Why a text names no value.
const NO_ADDRESS: &str = "expected an address such as @(12,3) at the end";
const NO_COLUMN: &str = "expected a column before the address";

impl ValueSpec {
    /// Reads `[table.]column@(block,item)`. Names are as in SQL: folded unless quoted.
    fn parse(text: &str) -> Result<ValueSpec, &'static str> {
        let (name, address) = text.rsplit_once('@').ok_or(NO_ADDRESS)?;
        let ctid = parse_tid(address.trim()).filter(|ctid| ctid.item > 0);
        let ctid = ctid.ok_or(NO_ADDRESS)?;
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
            return Err(NO_COLUMN);
        }
        Ok(ValueSpec { table, column, ctid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::BlockNumber;

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
            assert_eq!(ValueSpec::parse(text), Err(NO_ADDRESS), "{text}");
        }
        for text in ["@(0,1)", "t.@(0,1)", ".js@(0,1)", "\"js@(0,1)"] {
            assert_eq!(ValueSpec::parse(text), Err(NO_COLUMN), "{text}");
        }
    }
}
