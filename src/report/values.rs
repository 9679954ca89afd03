//! Lines of values in every format, written as they come.

use std::io::{self, Write};

use super::document::{Format, csv_records, json_line};
use super::table::{Tone, printable, printable_json};
use crate::value::anatomy::Anatomy;
use crate::value::rows::{RowWriter, ValueRow};

/// Name and version of the JSON shape.
const SCHEMA: &str = "toastctl.value/1";
/// The JSON document up to its entries.
const JSON: &str = "{\"schema\":\"toastctl.value/1\",\"values\":[";

/// One value in every detail, as JSON: the document that lists values, whose only entry says more.
pub fn one(anatomy: &Anatomy, format: Format, out: &mut impl Write) -> io::Result<()> {
    if format == Format::Jsonl {
        return json_line(SCHEMA, anatomy, out);
    }
    writeln!(out, "{JSON}")?;
    writeln!(out, "{}\n]}}", printable_json(serde_json::to_string(anatomy)?))
}

/// A column of the table.
struct Column {
    title: &'static str,
    /// A width that values rarely exceed: each row is printed before the next one is known.
    width: usize,
    right: bool,
    /// Columns of the highest rank are left out first if the terminal is too narrow.
    rank: u8,
}

const fn column(title: &'static str, width: usize, right: bool, rank: u8) -> Column {
    Column { title, width, right, rank }
}

const TABLE: [Column; 9] = [
    column("Ctid", 9, false, 0),
    column("Column", 11, false, 0),
    column("Form", 19, false, 0),
    column("Method", 6, false, 0),
    column("Raw", 9, true, 0),
    column("Stored", 9, true, 0),
    column("Value ID", 9, true, 2),
    column("TOAST", 9, true, 3),
    column("Chunks", 6, true, 1),
];

/// Further columns if values were reassembled; these are always shown.
const CONTENTS: [Column; 2] = [column("md5", 32, false, 0), column("Text md5", 32, false, 0)];
/// Where the first of them is among the cells, which begin with the ctid.
const MD5_CELL: usize = 12;

/// Names of the fields, in order.
const FIELDS: [&str; 17] = [
    "relation",
    "block",
    "item",
    "ctid",
    "column",
    "form",
    "method",
    "raw_size",
    "stored_size",
    "value_id",
    "toast_relation",
    "chunks",
    "toaster",
    "toaster_oid",
    "pointer_kind",
    "md5",
    "text_md5",
];

/// Writes value rows in one format.
pub struct ValueWriter<W: Write> {
    out: W,
    format: Format,
    /// The relation whose rows are being written.
    relation: Option<String>,
    rows: u64,
    /// Columns of [`TABLE`] for which there is room.
    shown: Vec<(usize, &'static Column)>,
}

impl<W: Write> ValueWriter<W> {
    /// Nothing is written before the first row. `terminal` is the width that tables should fit.
    pub fn new(out: W, format: Format, terminal: Option<usize>) -> ValueWriter<W> {
        let mut shown: Vec<(usize, &Column)> = TABLE.iter().enumerate().collect();
        while let Some(terminal) = terminal {
            let line: usize = shown.iter().map(|(_, column)| column.width + 3).sum();
            if line <= terminal + 1 {
                break;
            }
            let highest = shown.iter().map(|(_, column)| column.rank).max().unwrap_or(0);
            if highest == 0 {
                break;
            }
            shown.retain(|(_, column)| column.rank < highest);
        }
        ValueWriter { out, format, relation: None, rows: 0, shown }
    }

    /// Shows the md5s in the table too; the other formats always have them.
    pub fn with_contents(mut self) -> ValueWriter<W> {
        self.shown.extend(CONTENTS.iter().enumerate().map(|(n, column)| (MD5_CELL + n, column)));
        self
    }

    /// Ends the output; must be called once.
    pub fn finish(mut self) -> io::Result<W> {
        match (self.format, self.rows) {
            (Format::Json, 0) => writeln!(self.out, "{JSON}]}}")?,
            (Format::Json, _) => writeln!(self.out, "\n]}}")?,
            (Format::Csv, 0) => self.csv(&FIELDS.map(str::to_owned))?,
            _ => {}
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn csv(&mut self, fields: &[String]) -> io::Result<()> {
        csv_records([fields], &mut self.out)
    }

    fn table(&mut self, row: &ValueRow) -> io::Result<()> {
        if self.relation.as_deref() != Some(&row.relation) {
            if self.relation.is_some() {
                writeln!(self.out)?;
            }
            writeln!(self.out, "{}", Tone::Heading.styled(&printable(&row.relation)))?;
            let heads: Vec<String> =
                self.shown.iter().map(|(_, column)| pad(column.title, column)).collect();
            writeln!(self.out, " {}", Tone::Heading.styled(heads.join(" | ").trim_end()))?;
            let rules: Vec<String> =
                self.shown.iter().map(|(_, column)| "-".repeat(column.width + 2)).collect();
            writeln!(self.out, "{}", rules.join("+"))?;
            self.relation = Some(row.relation.clone());
        }
        let [_, _, _, cells @ ..] = fields(row);
        let line: Vec<String> = self
            .shown
            .iter()
            .filter_map(|&(at, column)| Some(pad(&printable(cells.get(at)?), column)))
            .collect();
        writeln!(self.out, " {}", line.join(" | ").trim_end())
    }

    fn markdown(&mut self, row: &ValueRow) -> io::Result<()> {
        if self.rows == 0 {
            writeln!(self.out, "| {} |", FIELDS.join(" | "))?;
            writeln!(self.out, "|{}", "---|".repeat(FIELDS.len()))?;
        }
        let cells = fields(row).map(|cell| printable(&cell).replace('|', "\\|"));
        writeln!(self.out, "| {} |", cells.join(" | "))
    }
}

fn pad(text: &str, &Column { width, right, .. }: &Column) -> String {
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

fn fields(row: &ValueRow) -> [String; 17] {
    [
        row.relation.clone(),
        optional(row.block),
        optional(row.item),
        optional(row.ctid.as_deref()),
        optional(row.column.as_deref()),
        row.form.to_owned(),
        optional(row.method),
        optional(row.raw_size),
        optional(row.stored_size),
        optional(row.value_id),
        optional(row.toast_relation),
        optional(row.chunks),
        optional(row.toaster.as_deref()),
        optional(row.toaster_oid),
        optional(row.pointer_kind),
        optional(row.md5.as_deref()),
        optional(row.text_md5.as_deref()),
    ]
}

impl<W: Write> RowWriter for ValueWriter<W> {
    fn write(&mut self, row: &ValueRow) -> io::Result<()> {
        match self.format {
            // values have no page, which the command line refuses
            Format::Table | Format::Html => self.table(row)?,
            Format::Markdown => self.markdown(row)?,
            Format::Csv => {
                if self.rows == 0 {
                    self.csv(&FIELDS.map(str::to_owned))?;
                }
                self.csv(&fields(row))?;
            }
            Format::Json => {
                let before = if self.rows == 0 { JSON } else { "," };
                let row = printable_json(serde_json::to_string(row)?);
                write!(self.out, "{before}\n{row}")?;
            }
            Format::Jsonl => json_line(SCHEMA, row, &mut self.out)?,
        }
        self.rows += 1;
        Ok(())
    }
}
