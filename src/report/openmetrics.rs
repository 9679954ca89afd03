//! Figures as OpenMetrics text, for the textfile collector of Prometheus's node exporter. It reads them in Prometheus's
//! older text format: gauges are the same in both, and what the older format does not have are comments there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::overview::View;
use crate::findings::code::Severity;
use crate::findings::finding::{Finding, Unit as FindingUnit};
use crate::inspect::overview::figures::{Figure, Figures, Unit};
use crate::inspect::overview::rank::{Overview, RankedColumn, Ranking, TableLine};
use crate::inspect::overview::{ColumnLine, TableFigures};
use toast_format::model::interval::Interval;

/// Tables, columns and findings that have series of their own, unless the user says otherwise.
const SHOWN: usize = 15;

/// Labels with their values.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Writes families of metrics, each with its series.
struct Families<W: Write> {
    out: W,
    /// The database, which every series names, so that the files of several can be read together.
    database: String,
}

impl<W: Write> Families<W> {
    /// Writes a family; nothing if it has no series. `unit` is the end of its name.
    fn family<'a>(
        &mut self,
        name: &str,
        unit: Option<&str>,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'a>, String)>,
    ) -> io::Result<()> {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let name = match unit {
            Some(unit) => format!("toastctl_{name}_{unit}"),
            None => format!("toastctl_{name}"),
        };
        writeln!(self.out, "# TYPE {name} gauge")?;
        if let Some(unit) = unit {
            writeln!(self.out, "# UNIT {name} {unit}")?;
        }
        writeln!(self.out, "# HELP {name} {}", escaped(help))?;
        for (labels, value) in series {
            let database = [("database", self.database.as_str())];
            let labels: Vec<String> = database
                .iter()
                .chain(&labels)
                .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                .collect();
            writeln!(self.out, "{name}{{{}}} {value}", labels.join(","))?;
        }
        Ok(())
    }
}

/// A label's value, or a text, in which some signs have a meaning.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn whole(figure: Interval<u64>) -> String {
    figure.estimate.to_string()
}

/// Writes everything. Of tables, columns and findings only the first, by size, or as `view` says.
pub(crate) fn write(
    out: impl Write,
    database: &str,
    ranking: Ranking,
    view: View,
    is_complete: bool,
) -> io::Result<()> {
    let limit = view.limit.unwrap_or(SHOWN);
    let figures = Figures::of(&ranking);
    let tables = ranking.tables(view.sort, limit);
    let Overview { columns, findings, .. } = ranking.overview(view.sort, limit);
    let mut families = Families { out, database: database.to_owned() };
    of_figures(&mut families, &figures)?;
    let complete = u8::from(is_complete).to_string();
    let help = "Whether everything that was selected could be read.";
    families.family("complete", None, help, [(Vec::new(), complete)])?;
    of_tables(&mut families, &tables)?;
    of_columns(&mut families, &columns)?;
    of_findings(&mut families, &findings, limit)?;
    families.out.write_all(b"# EOF\n")?;
    families.out.flush()
}

fn of_figures<W: Write>(families: &mut Families<W>, figures: &Figures) -> io::Result<()> {
    for figure in Figure::all().filter(|figure| *figure != Figure::Findings) {
        // the names of ratios end with their unit
        let (name, unit) = match figure.unit() {
            Unit::Bytes => (figure.name(), Some("bytes")),
            Unit::Ratio => (figure.name().trim_end_matches("_ratio"), Some("ratio")),
            Unit::Count => (figure.name(), None),
        };
        let known = figures.of_all(figure).map(|Interval { estimate, .. }| {
            let number = match figure.unit() {
                Unit::Ratio => format!("{}", (estimate * 1e6).round() / 1e6),
                Unit::Bytes | Unit::Count => format!("{estimate:.0}"),
            };
            (Vec::new(), number)
        });
        families.family(name, unit, figure.meaning(), known)?;
    }
    let severities = [Severity::High, Severity::Medium, Severity::Low].into_iter();
    let severities = severities.filter_map(|severity| {
        let found = figures.findings(severity)?;
        Some((vec![("severity", severity.name())], found.to_string()))
    });
    families.family("findings", None, Figure::Findings.meaning(), severities)
}

/// A family of metrics, one for each table: name, unit, help and figure.
type OfTable = (&'static str, Option<&'static str>, &'static str, fn(&TableFigures) -> Option<u64>);

fn of_tables<W: Write>(families: &mut Families<W>, tables: &[TableLine]) -> io::Result<()> {
    let bytes = Some("bytes");
    let all: [OfTable; 8] = [
        ("table_heap", bytes, "Size of the table's main fork.", |table| table.heap_bytes),
        ("table_toast", bytes, "Size of its TOAST relation.", |table| table.toast_bytes),
        ("table_toast_index", bytes, "Size of the index of its TOAST relation.", |table| {
            table.toast_index_bytes
        }),
        ("table_index", bytes, "Size of its own indexes.", |table| table.index_bytes),
        (
            "table_free_space",
            bytes,
            "Free space and dead rows of the table and its TOAST relation.",
            |table| table.unused_bytes.map(|unused| unused.estimate),
        ),
        ("table_rows", None, "Rows that a SELECT returns.", |table| {
            table.rows.map(|rows| rows.estimate)
        }),
        ("table_dead_rows", None, "Dead rows and chunks, by the server's statistics.", |table| {
            table.dead_rows
        }),
        ("table_toast_values", None, "Values in its TOAST relation.", |table| {
            table.toast_values.map(|values| values.estimate)
        }),
    ];
    for (name, unit, help, value) in all {
        let series = tables.iter().filter_map(|table| {
            Some((vec![("table", table.relation.as_str())], value(&table.figures)?.to_string()))
        });
        families.family(name, unit, help, series)?;
    }
    Ok(())
}

/// A family of one figure of each column, by name and help.
type OfColumn = (&'static str, &'static str, fn(&ColumnLine) -> Option<Interval<u64>>);

fn of_columns<W: Write>(families: &mut Families<W>, columns: &[RankedColumn]) -> io::Result<()> {
    let all: [OfColumn; 3] = [
        ("column_stored", "Size of its values as stored, with TOAST pointers.", |column| {
            Some(column.stored_bytes)
        }),
        ("column_raw", "Size of its values without compression.", |column| column.raw_bytes),
        ("column_out_of_line", "Size of its values in the TOAST relation.", |column| {
            column.out_of_line_bytes
        }),
    ];
    for (name, help, value) in all {
        let series = columns.iter().filter_map(|RankedColumn { line: column, .. }| {
            let labels = vec![("table", column.relation.as_str()), ("column", &column.column)];
            Some((labels, whole(value(column)?)))
        });
        families.family(name, Some("bytes"), help, series)?;
    }
    Ok(())
}

fn of_findings<W: Write>(
    families: &mut Families<W>,
    findings: &[Finding],
    limit: usize,
) -> io::Result<()> {
    let in_bytes = findings.iter().filter(|finding| finding.unit == FindingUnit::Bytes);
    // no two series have the same labels
    let mut series: BTreeMap<[&str; 5], u64> = BTreeMap::new();
    for finding in in_bytes.take(limit) {
        let place = [
            finding.code.name(),
            finding.severity.name(),
            finding.relation.as_str(),
            finding.column.as_deref().unwrap_or_default(),
            finding.object.as_deref().unwrap_or_default(),
        ];
        let sum = series.entry(place).or_default();
        *sum = sum.saturating_add(finding.value);
    }
    let names = ["code", "severity", "table", "column", "object"];
    let series = series.into_iter().map(|(place, bytes)| {
        // an empty label is the same as none
        let labels = names.into_iter().zip(place).filter(|(_, value)| !value.is_empty());
        (labels.collect(), bytes.to_string())
    });
    families.family(
        "finding",
        Some("bytes"),
        "Amount of a finding that is measured in bytes.",
        series,
    )
}
