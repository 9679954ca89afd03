//! `toastctl value`: one value taken apart, one datum, or all values of a table line by line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::arguments::{AllowArg, FormatArg, SourceArg};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::files::{FileArgs, OrderArg, SavedArgs};
use super::fleet::Database;
use super::inspect::inspector;
use super::inspect_output::InspectOutput;
use super::terminal::{self, Out, Plain, Ui};
use crate::inspect::inspector::{ContentOptions, Options};
use crate::inspect::offline::{self, ContentFiles};
use crate::inspect::run::{self, Request};
use crate::report::document::Format;
use crate::report::values::ValueWriter;
use crate::server::about::Access;
use crate::server::chunks::parse_tid;
use crate::server::sink::RunError;
use crate::value::anatomy::Anatomy;
use crate::value::rows::RowWriter;
use toast_format::disk::ItemPointer;

const FORMATS: &str = "table, json, jsonl, csv or markdown";

/// Arguments of `value`.
#[derive(Debug, Args)]
#[command(mut_arg("format", |arg| arg.help(FORMATS).long_help(FORMATS)))]
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

    fn rows(&self, ui: &Ui) -> ValueWriter<Plain<Out>> {
        let rows = ValueWriter::new(ui.report_out(), ui.format, ui.width);
        if self.reassemble.is_some() { rows.with_contents() } else { rows }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &ValueArgs, ui: &Ui) -> Result<Exit, Failure> {
    let ui = &ui.in_format(args.format.format);
    if args.format.format == Format::Html {
        return Err(Failure::usage("values cannot be printed as html"));
    }
    if let Some(hex) = &args.datum {
        return datum(args, ui, hex);
    }
    let asked = args.asked()?;
    let tables: &[String] = if matches!(asked, Asked::One(_)) { &[] } else { &args.of };
    if let Some(file) = args.file.file(tables)? {
        return match asked {
            Asked::One(ValueSpec { table: None, column, ctid }) => {
                let value = offline::value(&file.target(None), &column, ctid);
                print_anatomy(ui, &value.map_err(|error| Failure::usage(error.to_string()))?)
            }
            Asked::One(_) => Err(Failure::usage("of a file give only column@(block,item)")),
            Asked::All => {
                let contents = args.reassemble.as_ref();
                let contents = contents.map(|dir| ContentFiles { output_dir: dir.as_deref() });
                let rows = Some(args.rows(ui));
                InspectOutput::of_values(ui).read_file(&file.target(None), contents, rows)
            }
        };
    }
    if let Some(text) = args.saved.text(&args.file, &args.of)? {
        let rows = Some(args.rows(ui));
        return InspectOutput::of_values(ui).read_saved(text, args.order.order(), rows);
    }
    let connection = args.connection.clone();
    let database = Database { ui: ui.clone(), connection, checkpoint: None };
    match asked {
        Asked::One(ValueSpec { table: Some(table), column, ctid }) => {
            terminal::runtime(1)?.block_on(value(args, &database, &table, &column, ctid))
        }
        Asked::One(_) => Err(Failure::usage("of a server give table.column@(block,item)")),
        Asked::All if args.of.is_empty() => Err(Failure::usage("no value or table was given")
            .hint("For example orders.doc@(0,1); toastctl inspect lists the tables.")),
        Asked::All => terminal::runtime(1)?.block_on(values(args, &database)),
    }
}

fn wrong_datum(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--datum: {error}"))
}

fn datum(args: &ValueArgs, ui: &Ui, hex: &str) -> Result<Exit, Failure> {
    let bytes = toast_format::disk::hex::parse_datum(hex).map_err(wrong_datum)?;
    let (row, used) = offline::datum(&bytes, args.order.order()).map_err(wrong_datum)?;
    let mut rows = args.rows(ui);
    let written = rows.write(&row);
    if used < bytes.len() {
        ui.warning(format!(
            "{} bytes follow the datum's {used} bytes and were not examined",
            bytes.len() - used
        ));
    }
    InspectOutput::of_values(ui).end(written.map_err(RunError::Output), Some(rows))
}

/// Takes a value of a server apart.
async fn value(
    args: &ValueArgs,
    database: &Database,
    table: &str,
    column: &str,
    ctid: ItemPointer,
) -> Result<Exit, Failure> {
    let session = args.allow.session("value");
    let inspector = inspector(database, &session, 1, args.options()).await?;
    let anatomy = run::value(&inspector, table, column, ctid).await?;
    print_anatomy(&database.ui, &anatomy)
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
async fn values(args: &ValueArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let session = args.allow.session("value");
    let inspector = inspector(database, &session, 1, args.options()).await?;
    let mut interrupt = std::pin::pin!(ui.interrupted());
    let mut rows = args.rows(ui);
    let mut output = InspectOutput::of_values(ui);
    let found =
        run::find(&inspector, &args.of, false, |message| ui.tell(message), interrupt.as_mut());
    let selection = match found.await {
        Ok(selection) => selection,
        Err(error) => return output.end(Err(error), Some(rows)),
    };
    selection.report_to(&mut output);
    let request = Request {
        needs_pages: Some("value"),
        explains_functions: args.source.source == Access::Auto,
        policy: None,
    };
    let found = &selection.found;
    let read = run::relations(&inspector, &request, found, Some(&mut rows), &mut output, interrupt);
    let ended = read.await;
    output.end(ended, Some(rows))
}

/// Prints one value in every detail.
fn print_anatomy(ui: &Ui, anatomy: &Anatomy) -> Result<Exit, Failure> {
    let mut out = ui.report_out();
    let written = match ui.format {
        Format::Json | Format::Jsonl => crate::report::values::one(anatomy, ui.format, &mut out),
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
