//! Output formats.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table for people, fitted to the terminal.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// Markdown tables.
    Markdown,
}

/// One JSON document, indented, with a line end.
pub fn json(document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// One JSON document a line, each an object that is given the field `schema`.
pub fn json_lines(
    schema: &str,
    documents: &[impl Serialize],
    out: &mut impl Write,
) -> io::Result<()> {
    documents.iter().try_for_each(|document| json_line(schema, document, out))
}

/// One JSON document in a line: an object that is given the field `schema`.
pub fn json_line(schema: &str, document: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let mut line = serde_json::to_value(document)?;
    if let Some(object) = line.as_object_mut() {
        object.insert("schema".into(), schema.into());
    }
    serde_json::to_writer(&mut *out, &line)?;
    writeln!(out)
}
