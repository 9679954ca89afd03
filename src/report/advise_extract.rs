//! What keys in columns of their own would give, as tables and text.

use std::io::{self, Write};

use super::advise_parts::{change, paragraph};
use super::table::{Grid, Head, Style};
use super::units::{counted, nanoseconds, size};
use crate::advise::extract::keys::KnownUse;
use crate::advise::extract::result::{AccessReport, ExtractionReport, KeyReport};
use crate::advise::result::{Report, Whole};

/// Prints it below the candidates.
pub(super) fn write(
    report: &Report,
    extraction: &ExtractionReport,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let title = if style == Style::Markdown { "### " } else { "" };
    let columns = match extraction.keys.len() {
        1 => "a column of its own",
        _ => "columns of their own",
    };
    let keys = counted(extraction.keys.len() as u64, "key");
    paragraph(&format!("{title}With {keys} of {} in {columns}:", report.column), style, out)?;
    writeln!(out)?;
    for grid in [sizes(extraction), accesses(extraction), columns_of(&extraction.keys)] {
        out.write_all(grid.draw(style).text.as_bytes())?;
        writeln!(out)?;
    }
    if extraction.auto {
        paragraph(&why(&extraction.known_uses), style, out)?;
    }
    if extraction.refused_rows > 0 {
        let rows = counted(extraction.refused_rows, "row");
        let refused = format!("The server would refuse {rows}, which would be too big for a page.");
        paragraph(&refused, style, out)?;
    }
    paragraph(
        "Sizes are those that VACUUM FULL leaves; retoast --compact comes near to them. A column has a type that all \
         values of the sample fit. --emit sql prints the migration, with the way back.",
        style,
        out,
    )
}

/// Why these keys were chosen.
fn why(known: &[KnownUse]) -> String {
    const SHOWN: usize = 10;
    if known.is_empty() {
        return "These keys pay most if every key of a document is used as often as every other: nothing is known of \
                their use."
            .into();
    }
    let of = |one: &KnownUse| {
        let calls = (one.calls > 0).then(|| counted(one.calls, "call"));
        let known: Vec<String> = calls.into_iter().chain(one.named_in.iter().cloned()).collect();
        format!("{} ({})", one.key, known.join(", "))
    };
    let mut shown: Vec<String> = known.iter().take(SHOWN).map(of).collect();
    if known.len() > SHOWN {
        shown.push(format!("and {} more", known.len() - SHOWN));
    }
    format!(
        "These keys pay most if half of all uses of keys is spread evenly over those that most documents have, and half \
         is as far as known: {}.",
        shown.join(", ")
    )
}

fn columns_of(keys: &[KeyReport]) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Key", 0),
        Head::text("Column", 0),
        Head::text("Type", 0),
        Head::number("Documents", 0),
    ]);
    for key in keys {
        let type_name = key.kind.name().to_owned();
        grid.row(vec![key.key.clone(), key.column.clone(), type_name, key.values.to_string()]);
    }
    grid
}

fn bytes(whole: &Whole) -> String {
    size(whole.0.value.estimate.round() as u64)
}

fn sizes(extraction: &ExtractionReport) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("", 0),
        Head::number("Total", 0),
        Head::number("Change", 0),
        Head::number("Heap", 1),
        Head::number("TOAST", 1),
        Head::number("Index", 2),
        Head::number("Documents out of line", 0),
        Head::number("Rows over the threshold", 0),
    ]);
    grid.row(vec![
        "today".into(),
        bytes(&extraction.total_bytes_today),
        String::new(),
        bytes(&extraction.heap_bytes_today),
        bytes(&extraction.toast_bytes_today),
        bytes(&extraction.toast_index_bytes_today),
        extraction.external_today.to_string(),
        extraction.wide_rows_today.to_string(),
    ]);
    grid.row(vec![
        "extracted".into(),
        bytes(&extraction.total_bytes),
        change(&extraction.total_bytes.0, false),
        bytes(&extraction.heap_bytes),
        bytes(&extraction.toast_bytes),
        bytes(&extraction.toast_index_bytes),
        extraction.external.to_string(),
        extraction.wide_rows.to_string(),
    ]);
    grid
}

fn accesses(extraction: &ExtractionReport) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("Read, updated", 0),
        Head::number("Buffers/scan", 0),
        Head::number("Buffers/read", 1),
        Head::number("CPU/read", 0),
        Head::number("CPU change", 1),
        Head::number("WAL/update", 0),
        Head::number("WAL change", 1),
    ]);
    let mut row = |name: String, access: &AccessReport, today: bool| {
        grid.row(vec![
            name,
            format!("{:.0}", access.scan_buffers.0.value.estimate),
            format!("{:.2}", access.read_buffers.0.value.estimate),
            nanoseconds(access.read_cpu_ns.0.value.estimate),
            change(&access.read_cpu_ns.0, today),
            bytes(&access.update_wal_bytes),
            change(&access.update_wal_bytes.0, today),
        ]);
    };
    row("today: any key".into(), &extraction.today, true);
    for key in &extraction.keys {
        row(format!("extracted: {}", key.key), &key.access, false);
    }
    row("extracted: the rest".into(), &extraction.rest, false);
    row("extracted: all of it".into(), &extraction.whole, false);
    grid
}
