//! `toastctl value`: one value taken apart, one datum, or all values of a table line by line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::arguments::{AllowArg, FormatArg, SourceArg, count};
use super::connect::{ConnectionArgs, HelpFlag};
use super::exit::{Exit, Failure};
use super::files::{FileArgs, OF_SERVERS, OrderArg, SavedArgs};
use super::fleet::Database;
use super::inspect::inspector;
use super::inspect_output::InspectOutput;
use super::terminal::{self, Out, Plain, Ui};
use crate::inspect::inspector::{ContentOptions, Options};
use crate::inspect::offline;
use crate::inspect::run::{self, Request, ValueRowPlace};
use crate::report::document::Format;
use crate::report::values::{ValueChoice, ValueWriter};
use crate::server::by_key::GivenKey;
use crate::server::chunks::parse_tid;
use crate::server::select::Reach;
use crate::server::sink::RunError;
use crate::value::anatomy::Anatomy;
use crate::value::rows::RowWriter;

const FORMATS: &str = "table, json, jsonl, csv or markdown";

/// Arguments of `value`.
#[derive(Debug, Args)]
#[command(mut_arg("format", |arg| arg.help(FORMATS).long_help(FORMATS)),
          mut_arg("relation_file", |arg| arg.conflicts_with("source")),
          mut_arg("pageinspect", |arg| arg.conflicts_with("source")),
          mut_arg("datum", |arg| arg.conflicts_with_all(OF_SERVERS).conflicts_with("source")))]
pub struct ValueArgs {
    /// table.column@id=42 or @(block,item), or tables
    ///
    /// For one value: its TOAST pointer, its chunks and their locations, its first bytes, and the cost of reading it. The
    /// row is named by the columns of its primary key or another index, as in orders.doc@id=42, orders.doc@shop=7,id=42
    /// or "orders.doc@place='Rome, IT'", or by its address, as in 'orders.doc@(12,3)'. The server converts values from
    /// text; single quotes enclose a value that contains a comma. With --relation-file, write column@(block,item). For
    /// tables: all values, one per line, or with --limit the largest ones.
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
    /// each value, or the one that is named, is written to its own file in this directory. Values are put together from
    /// their chunks by toastctl, not read by SQL.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          conflicts_with = "pageinspect", help_heading = "Output")]
    reassemble: Option<Option<PathBuf>>,

    /// Only this column; can be repeated
    #[arg(
        short,
        long = "column",
        value_name = "COLUMN",
        conflicts_with = "datum",
        help_heading = "Output"
    )]
    columns: Vec<String>,

    /// Only the N largest values, as stored
    #[arg(long, value_name = "N", value_parser = count::<u32, 1, 1_000_000>,
          allow_negative_numbers = true, conflicts_with_all = ["datum", "reassemble"],
          help_heading = "Output")]
    limit: Option<u32>,

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
        let Some(text) = self.of.iter().find(|text| outside(text, &['"'], '@').next().is_some())
        else {
            return Ok(Asked::All);
        };
        if self.of.len() > 1 {
            return Err(Failure::usage("only one value can be shown in detail at a time"));
        }
        if self.limit.is_some() || !self.columns.is_empty() {
            return Err(Failure::usage("--column and --limit are for lists of values")
                .hint("toastctl value TABLE -c COLUMN --limit 10 lists the 10 largest."));
        }
        let spec = ValueSpec::parse(text)
            .map_err(|error| Failure::usage(format!("invalid value \"{text}\": {error}")))?;
        if matches!(self.format.format, Format::Csv | Format::Markdown | Format::Html) {
            return Err(Failure::usage(
                "one value has no --format csv, markdown or html: use table, json or jsonl",
            ));
        }
        Ok(Asked::One(spec))
    }

    fn output(&self, ui: &Ui) -> InspectOutput {
        InspectOutput::of_values(ui).of_columns(&self.columns, true)
    }

    fn rows(&self, ui: &Ui) -> ValueWriter<Plain<Out>> {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let choice = ValueChoice { columns: self.columns.clone(), limit };
        let rows = ValueWriter::new(ui.paged_out(), ui.format, ui.width).with_choice(choice);
        if self.reassemble.is_some() { rows.with_contents() } else { rows }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// Where they contradict each other, or name what cannot be used.
pub(super) fn run(args: &ValueArgs, ui: &Ui) -> Result<Exit, Failure> {
    let ui = &ui.in_format(args.format.format);
    args.order.check(args.datum.is_some() || args.saved.is_given())?;
    if args.format.format == Format::Html {
        return Err(Failure::usage("--format html is not available for value")
            .hint(format!("Available: {FORMATS}.")));
    }
    if let Some(Some(path)) = &args.reassemble
        && path.is_file()
    {
        let path = path.display();
        let text = format!("--reassemble: \"{path}\" is a file: a directory is expected");
        return Err(Failure::usage(text));
    }
    if let Some(hex) = &args.datum {
        return datum(args, ui, hex);
    }
    let asked = args.asked()?;
    let tables: &[String] = if matches!(asked, Asked::One(_)) { &[] } else { &args.of };
    if let Some(file) = args.file.file(tables, args.saved.is_given())? {
        let contents = args.contents();
        return match asked {
            Asked::One(ValueSpec { table: None, column, row: ValueRowPlace::Address(ctid) }) => {
                let files = contents.unwrap_or_default();
                let value = offline::value(&file.target(None), &column, ctid, &files);
                print_anatomy(ui, &value.map_err(|error| Failure::usage(error.to_string()))?)
            }
            Asked::One(_) => Err(Failure::usage("a value of a file is named column@(block,item)")),
            Asked::All => {
                let rows = Some(args.rows(ui));
                let output = args.output(ui);
                output.read_file(&file.target(None), contents.as_ref(), rows)
            }
        };
    }
    if let Some(text) = args.saved.text(&args.file, &args.of)? {
        let rows = Some(args.rows(ui));
        return args.output(ui).read_saved(text, args.order.order(), rows);
    }
    let connection = args.connection.clone();
    let database = Database { ui: ui.clone(), connection, checkpoint: None };
    match asked {
        Asked::One(ValueSpec { table: Some(table), column, row }) => {
            terminal::runtime(1)?.block_on(value(args, &database, &table, &column, &row))
        }
        Asked::One(_) => Err(Failure::usage("the table or the column is missing")
            .hint("For example orders.doc@id=42 by its primary key, or orders.doc@(0,1).")),
        Asked::All if args.of.is_empty() => Err(Failure::usage("no value or table was given")
            .hint("For example orders.doc@id=42; toastctl inspect lists the tables.")),
        Asked::All => terminal::runtime(1)?.block_on(values(args, &database)),
    }
}

fn wrong_datum(error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--datum: {error}"))
}

fn datum(args: &ValueArgs, ui: &Ui, hex: &str) -> Result<Exit, Failure> {
    let bytes = toast_format::disk::hex::parse_datum(hex).map_err(wrong_datum)?;
    if bytes.is_empty() {
        return Err(wrong_datum("the value is empty"));
    }
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
    row: &ValueRowPlace,
) -> Result<Exit, Failure> {
    let session = args.allow.session("value");
    let inspector = inspector(database, &session, 1, args.options()).await?;
    let anatomy = run::value(&inspector, table, column, row).await?;
    print_anatomy(&database.ui, &anatomy)
}

impl ValueArgs {
    fn options(&self) -> Options {
        Options {
            access: self.source.source,
            flavor: self.file.flavor,
            contents: self.contents(),
            ..Options::default()
        }
    }

    fn contents(&self) -> Option<ContentOptions> {
        self.reassemble.clone().map(|output_dir| ContentOptions { output_dir })
    }
}

/// Prints the values of tables.
async fn values(args: &ValueArgs, database: &Database) -> Result<Exit, Failure> {
    let ui = &database.ui;
    let session = args.allow.session("value");
    let inspector = inspector(database, &session, 1, args.options()).await?;
    let mut interrupt = std::pin::pin!(ui.interrupted());
    let mut rows = args.rows(ui);
    let mut output = args.output(ui);
    let found = run::find(
        &inspector,
        &args.of,
        &[],
        Reach::Here,
        |message| ui.tell(message),
        interrupt.as_mut(),
    );
    let selection = match found.await {
        Ok(selection) => selection,
        Err(error) => return output.end(Err(error), Some(rows)),
    };
    selection.report_to(&mut output);
    let columns = args.columns.clone();
    let request = Request { needs_pages: Some("value"), columns, policy: None };
    let found = &selection.found;
    let read = run::relations(&inspector, &request, found, Some(&mut rows), &mut output, interrupt);
    let ended = read.await;
    output.end(ended, Some(rows))
}

/// Prints one value in every detail.
fn print_anatomy(ui: &Ui, anatomy: &Anatomy) -> Result<Exit, Failure> {
    let mut out = ui.paged_out();
    let written = match ui.format {
        Format::Json | Format::Jsonl => crate::report::values::one(anatomy, ui.format, &mut out),
        // the others are refused beforehand
        Format::Table | Format::Csv | Format::Markdown | Format::Html => {
            crate::report::anatomy::text(anatomy, ui.width, &mut out)
        }
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if !terminal::is_closed_pipe(&error) => terminal::unwritable(&error),
        _ if anatomy.problems.is_empty() => Ok(Exit::Ok),
        _ => Ok(Exit::Incomplete),
    }
}

/// A value named by its row and column.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValueSpec {
    /// The table as the user wrote it; `None` where a file was given.
    table: Option<String>,
    /// The column, quotes removed.
    column: String,
    row: ValueRowPlace,
}

/// Why a text names no value.
const NO_ROW: &str = "expected a row at the end, as in @id=42 or @(12,3)";
const NO_COLUMN: &str = "expected a column before the row";

impl ValueSpec {
    /// Reads `[table.]column@(block,item)` or `table.column@name=value,name=value`. Names are as in SQL: folded unless
    /// quoted.
    fn parse(text: &str) -> Result<ValueSpec, &'static str> {
        let at = outside(text, &['"'], '@').next().ok_or(NO_ROW)?;
        let (name, row) = text.split_at(at);
        let row = row[1..].trim();
        let row = if row.starts_with('(') {
            let ctid = parse_tid(row).filter(|ctid| ctid.item > 0);
            ValueRowPlace::Address(ctid.ok_or(NO_ROW)?)
        } else {
            ValueRowPlace::Key(parse_key(row).ok_or(NO_ROW)?)
        };
        let (table, column) = match outside(name, &['"'], '.').last() {
            Some(dot) => (Some(name[..dot].trim().to_owned()), &name[dot + 1..]),
            None => (None, name),
        };
        let column = parse_name(column).ok_or(NO_COLUMN)?;
        if table.as_ref().is_some_and(String::is_empty) {
            return Err(NO_COLUMN);
        }
        Ok(ValueSpec { table, column, row })
    }
}

/// Where the sign stands outside of these quotes.
fn outside(text: &str, quotes: &'static [char], sign: char) -> impl Iterator<Item = usize> {
    let mut open = None;
    text.char_indices().filter_map(move |(at, c)| {
        if open.is_none() && quotes.contains(&c) {
            open = Some(c);
        } else if open == Some(c) {
            open = None;
        }
        (c == sign && open.is_none()).then_some(at)
    })
}

/// A name, folded unless it is quoted.
fn parse_name(text: &str) -> Option<String> {
    let text = text.trim();
    let name = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?.replace("\"\"", "\""),
        None if text.contains('"') => return None,
        None => text.to_lowercase(),
    };
    (!name.is_empty()).then_some(name)
}

/// Reads `name=value,name=value`; a value may be enclosed in single quotes.
fn parse_key(text: &str) -> Option<Vec<GivenKey>> {
    let mut key = Vec::new();
    let mut start = 0;
    let commas: Vec<usize> = outside(text, &['"', '\''], ',').collect();
    for end in commas.into_iter().chain([text.len()]) {
        let part = &text[start..end];
        start = end + 1;
        let (column, value) = part.split_at(outside(part, &['"'], '=').next()?);
        let value = value[1..].trim();
        let value = match value.strip_prefix('\'') {
            Some(rest) => rest.strip_suffix('\'')?.replace("''", "'"),
            None => value.to_owned(),
        };
        key.push(GivenKey { column: parse_name(column)?, value });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::{BlockNumber, ItemPointer};

    #[test]
    fn tables_columns_and_addresses() {
        let spec = |text| {
            let ValueSpec { table, column, row } = ValueSpec::parse(text).unwrap();
            (table, column, row)
        };
        let at =
            |block, item| ValueRowPlace::Address(ItemPointer { block: BlockNumber(block), item });
        assert_eq!(spec("js@(12,3)"), (None, "js".into(), at(12, 3)));
        assert_eq!(spec("t.JS@(0,1)"), (Some("t".into()), "js".into(), at(0, 1)));
        assert_eq!(
            spec("s.\"T.x\".\"a.\"\"B@\"@(0, 1)"),
            (Some("s.\"T.x\"".into()), "a.\"B@".into(), at(0, 1))
        );
    }

    #[test]
    fn what_names_no_value_is_refused() {
        for text in ["js", "js@", "js@12,3", "js@(0,0)", "js@(0,1)x", "js@id", "js@=4", "js@a=1,"] {
            assert_eq!(ValueSpec::parse(text), Err(NO_ROW), "{text}");
        }
        for text in ["@(0,1)", "t.@(0,1)", ".js@(0,1)", "j\"s\"@(0,1)"] {
            assert_eq!(ValueSpec::parse(text), Err(NO_COLUMN), "{text}");
        }
    }

    #[test]
    fn a_key_has_one_or_more_columns_and_values_may_be_quoted() {
        let key = |text: &str| match ValueSpec::parse(text).unwrap().row {
            ValueRowPlace::Key(key) => {
                key.into_iter().map(|part| (part.column, part.value)).collect::<Vec<_>>()
            }
            ValueRowPlace::Address(_) => panic!("{text}"),
        };
        let pair = |column: &str, value: &str| (column.to_owned(), value.to_owned());
        assert_eq!(key("t.c@id=42"), [pair("id", "42")]);
        assert_eq!(key("t.c@Mail=a@b.c"), [pair("mail", "a@b.c")]);
        assert_eq!(key("t.c@a=b=c"), [pair("a", "b=c")]);
        let quoted = "t.c@ a = 1 , \"B=\" = 'x, ''y''' ";
        assert_eq!(key(quoted), [pair("a", "1"), pair("B=", "x, 'y'")]);
    }
}
