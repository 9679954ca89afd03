//! Lines of values in every format, written as they come.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::document::{Format, csv_records, json_line};
use super::table::{NAME, Tone, printable, printable_json, shortened_name};
use super::units::counted;
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
    /// Its place in [`FIELDS`].
    field: usize,
    title: &'static str,
    /// A width that values rarely exceed: each row is printed before the next one is known.
    width: usize,
    right: bool,
    /// Columns of the highest rank are left out first if the terminal is too narrow.
    rank: u8,
}

const fn column(field: usize, title: &'static str, width: usize, right: bool, rank: u8) -> Column {
    Column { field, title, width, right, rank }
}

const TABLE: [Column; 10] = [
    column(CTID, "Ctid", 9, false, 0),
    column(ITEM, "Item", 5, true, 0),
    column(COLUMN, "Column", 11, false, 0),
    column(5, "Form", 19, false, 1),
    column(6, "Method", 6, false, 3),
    column(9, "Value ID", 9, true, 2),
    column(10, "TOAST", 9, true, MOST_RANKS),
    column(7, "Raw", 9, true, 5),
    column(8, "Stored", 9, true, 0),
    column(11, "Chunks", 6, true, 6),
];
const MOST_RANKS: u8 = 7;

/// Further columns if values were reassembled.
const CONTENTS: [Column; 2] =
    [column(15, "md5", 32, false, 0), column(16, "Text md5", 32, false, 4)];

/// Fields that a value without a row does not have; the item stands for the address where the block is not known.
const ITEM: usize = 2;
const CTID: usize = 3;
const COLUMN: usize = 4;

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
    /// The width that tables should fit.
    terminal: Option<usize>,
    /// Columns of the table.
    shown: Vec<&'static Column>,
    /// Titles of columns for which there was no room.
    left_out: Vec<&'static str>,
    choice: ValueChoice,
    /// The largest rows so far, in no order; at most twice as many as are written.
    largest: Vec<ValueRow>,
    /// How many rows of the chosen columns there were.
    chosen: u64,
}

/// Which values are written.
#[derive(Debug, Clone, Default)]
pub struct ValueChoice {
    /// The values of these columns; those of all columns if the list is empty.
    pub columns: Vec<String>,
    /// At most this many: those with the largest stored size.
    pub limit: Option<usize>,
}

impl<W: Write> ValueWriter<W> {
    /// Nothing is written before the first row. `terminal` is the width that tables should fit.
    pub fn new(out: W, format: Format, terminal: Option<usize>) -> ValueWriter<W> {
        let shown = TABLE.iter().collect();
        ValueWriter {
            out,
            format,
            relation: None,
            rows: 0,
            terminal,
            shown,
            left_out: Vec::new(),
            choice: ValueChoice::default(),
            largest: Vec::new(),
            chosen: 0,
        }
    }

    /// Writes only the values of this choice.
    pub fn with_choice(self, choice: ValueChoice) -> ValueWriter<W> {
        ValueWriter { choice, ..self }
    }

    /// Puts the largest rows in order, and forgets those beyond `limit`.
    fn keep_largest(&mut self, limit: usize) {
        self.largest.sort_by_key(|row| Reverse((row.stored_size, row.raw_size)));
        self.largest.truncate(limit);
    }

    /// Shows the md5s in the table too; the other formats always have them.
    pub fn with_contents(mut self) -> ValueWriter<W> {
        self.shown.extend(&CONTENTS);
        self
    }

    /// Leaves out what values like the first one do not have, and what does not fit the terminal next to it.
    fn fit(&mut self, first: &[String; 17]) {
        self.shown.retain(|column| match column.field {
            CTID => !first[CTID].is_empty(),
            ITEM => first[CTID].is_empty() && !matches!(first[ITEM].as_str(), "" | "0"),
            COLUMN => !first[COLUMN].is_empty(),
            _ => true,
        });
        let Some(terminal) = self.terminal else { return };
        for rank in (1..=MOST_RANKS).rev() {
            let line: usize = self.shown.iter().map(|column| column.width + 3).sum();
            if line > terminal + 1 {
                let of_rank = self.shown.iter().filter(|column| column.rank == rank);
                self.left_out.extend(of_rank.map(|column| column.title));
                self.shown.retain(|column| column.rank != rank);
            }
        }
    }

    /// Ends the output; must be called once.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(limit) = self.choice.limit {
            self.keep_largest(limit);
            let mut rows = std::mem::take(&mut self.largest);
            if self.format == Format::Table {
                // those of a table stand under one heading
                let mut first = BTreeMap::new();
                for (at, row) in rows.iter().enumerate() {
                    first.entry(row.relation.clone()).or_insert(at);
                }
                rows.sort_by_key(|row| first.get(&row.relation).copied());
            }
            for row in rows {
                self.write_row(&row)?;
            }
            if self.format == Format::Table && self.rows < self.chosen {
                let all = counted(self.chosen, "value");
                writeln!(self.out, "The {} largest of {all}, by their stored size.", self.rows)?;
            }
        }
        match (self.format, self.rows) {
            (Format::Json, 0) => writeln!(self.out, "{JSON}]}}")?,
            (Format::Json, _) => writeln!(self.out, "\n]}}")?,
            (Format::Csv, 0) => self.csv(&FIELDS.map(str::to_owned))?,
            (Format::Table, _) if !self.left_out.is_empty() => {
                writeln!(self.out, "(hidden, shown with COLUMNS=0: {})", self.left_out.join(", "))?;
            }
            _ => {}
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn csv(&mut self, fields: &[String]) -> io::Result<()> {
        csv_records([fields], &mut self.out)
    }

    fn table(&mut self, row: &ValueRow) -> io::Result<()> {
        let cells = fields(row);
        if self.relation.as_deref() != Some(&row.relation) {
            if self.relation.is_some() {
                writeln!(self.out)?;
            } else {
                self.fit(&cells);
            }
            writeln!(self.out, "{}", Tone::Heading.styled(&printable(&row.relation)))?;
            let heads: Vec<String> =
                self.shown.iter().map(|column| pad(column.title, column)).collect();
            writeln!(self.out, " {}", Tone::Heading.styled(heads.join(" | ").trim_end()))?;
            let rules: Vec<String> =
                self.shown.iter().map(|column| "-".repeat(column.width + 2)).collect();
            writeln!(self.out, "{}", rules.join("+"))?;
            self.relation = Some(row.relation.clone());
        }
        let used: usize = self.shown.iter().map(|column| column.width + 3).sum();
        let longest = self.terminal.map(|width| NAME.max(width.saturating_sub(used)));
        let line: Vec<String> = self
            .shown
            .iter()
            .filter_map(|column| {
                let cell = printable(cells.get(column.field)?);
                let cell = match longest {
                    Some(most) if column.field == COLUMN => shortened_name(&cell, most),
                    _ => cell,
                };
                Some(pad(&cell, column))
            })
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
        self.chosen += 1;
        let Some(limit) = self.choice.limit else { return self.write_row(row) };
        self.largest.push(row.clone());
        if self.largest.len() >= limit.saturating_mul(2) {
            self.keep_largest(limit);
        }
        Ok(())
    }

    fn takes(&self, column: &str) -> bool {
        let columns = &self.choice.columns;
        columns.is_empty() || columns.iter().any(|name| name == column)
    }
}

impl<W: Write> ValueWriter<W> {
    fn write_row(&mut self, row: &ValueRow) -> io::Result<()> {
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
