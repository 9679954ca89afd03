//! Figures as OpenMetrics text, for the textfile collector of Prometheus's node exporter. It reads them in Prometheus's
//! older text format: gauges are the same in both, and what the older format does not have are comments there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::overview::View;
use crate::check::alarm::{self, Counts};
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

/// A family of metrics, with its series.
#[derive(Debug)]
pub(crate) struct Family {
    name: String,
    unit: Option<&'static str>,
    help: &'static str,
    /// Lines without the name.
    series: Vec<String>,
}

/// Families of metrics of one database.
struct Families {
    /// Labels that every series has, so that those of several databases can be read together.
    labels: String,
    families: Vec<Family>,
}

impl Families {
    fn new(database: &str, target: Option<String>) -> Families {
        let mut labels = format!("database=\"{}\"", escaped(database));
        if let Some(target) = target {
            labels.push_str(&format!(",target=\"{}\"", escaped(&target)));
        }
        Families { labels, families: Vec::new() }
    }

    /// Adds a family; nothing if it has no series. `unit` is the end of its name.
    fn family<'a>(
        &mut self,
        name: &str,
        unit: Option<&'static str>,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels<'a>, String)>,
    ) {
        let name = match unit {
            Some(unit) => format!("toastctl_{name}_{unit}"),
            None => format!("toastctl_{name}"),
        };
        let mut lines = Vec::new();
        for (labels, value) in series {
            let mut all = self.labels.clone();
            for (label, value) in labels {
                all.push_str(&format!(",{label}=\"{}\"", escaped(value)));
            }
            lines.push(format!("{{{all}}} {value}"));
        }
        if !lines.is_empty() {
            self.families.push(Family { name, unit, help, series: lines });
        }
    }
}

/// Adds the families of another database: the series of a family stay together.
pub(crate) fn join(all: &mut Vec<Family>, more: Vec<Family>) {
    for family in more {
        match all.iter_mut().find(|known| known.name == family.name) {
            Some(known) => known.series.extend(family.series),
            None => all.push(family),
        }
    }
}

/// What is said of a database that `verb` could not read.
pub(crate) fn unread(verb: &str, target: &str) -> Vec<Family> {
    let labels = format!("target=\"{}\"", escaped(target));
    let mut families = Families { labels, families: Vec::new() };
    let name = if verb == "check" { CHECK_COMPLETE } else { "complete" };
    families.family(name, None, COMPLETE, [(Vec::new(), "0".to_owned())]);
    families.families
}

/// Writes all families, each with its series.
pub(crate) fn write(mut out: impl Write, families: &[Family]) -> io::Result<()> {
    for Family { name, unit, help, series } in families {
        writeln!(out, "# TYPE {name} gauge")?;
        if let Some(unit) = unit {
            writeln!(out, "# UNIT {name} {unit}")?;
        }
        writeln!(out, "# HELP {name} {}", escaped(help))?;
        for line in series {
            writeln!(out, "{name}{line}")?;
        }
    }
    out.write_all(b"# EOF\n")?;
    out.flush()
}

const CHECK_COMPLETE: &str = "check_complete";
const COMPLETE: &str = "Whether everything that was selected could be read.";

/// A label's value, or a text, in which some signs have a meaning.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn whole(figure: Interval<u64>) -> String {
    figure.estimate.to_string()
}

/// Everything about a database. Of tables, columns and findings only the first, by size, or as `view` says. `target`: its
/// name with that of the server, if there are several.
pub(crate) fn families(
    database: &str,
    target: Option<String>,
    ranking: Ranking,
    view: View,
    is_complete: bool,
) -> Vec<Family> {
    let limit = view.limit.unwrap_or(SHOWN);
    let figures = Figures::of(&ranking);
    let tables = ranking.tables(view.sort, limit);
    let Overview { columns, findings, .. } = ranking.overview(view.sort, limit);
    let mut families = Families::new(database, target);
    of_figures(&mut families, &figures);
    let complete = u8::from(is_complete).to_string();
    families.family("complete", None, COMPLETE, [(Vec::new(), complete)]);
    of_tables(&mut families, &tables);
    of_columns(&mut families, &columns);
    of_findings(&mut families, &findings, limit);
    families.families
}

/// The figures of a check. `target`: the name of the database with that of the server, if there are several.
pub(crate) fn of_check(database: &str, target: Option<String>, counts: &Counts) -> Vec<Family> {
    let mut families = Families::new(database, target);
    let severities = [("error", alarm::Figure::Errors), ("warning", alarm::Figure::Warnings)];
    let severities = severities.into_iter().chain([("notice", alarm::Figure::Notices)]);
    let series = severities
        .map(|(name, figure)| (vec![("severity", name)], counts.figure(figure).to_string()));
    families.family("check_findings", None, "Findings of check by severity.", series);
    for (name, help, number) in [
        ("check_relations", "Relations that were checked.", counts.relations),
        ("check_incomplete", "Relations that were not checked to the end.", counts.incomplete),
    ] {
        families.family(name, None, help, [(Vec::new(), number.to_string())]);
    }
    let complete = u8::from(counts.incomplete == 0).to_string();
    families.family(CHECK_COMPLETE, None, COMPLETE, [(Vec::new(), complete)]);
    families.families
}

fn of_figures(families: &mut Families, figures: &Figures) {
    for figure in
        Figure::all().filter(|figure| *figure != Figure::Findings && !figure.is_of_change())
    {
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
        families.family(name, unit, figure.meaning(), known);
    }
    let severities = [Severity::High, Severity::Medium, Severity::Low].into_iter();
    let severities = severities.filter_map(|severity| {
        let found = figures.findings(severity)?;
        Some((vec![("severity", severity.name())], found.to_string()))
    });
    families.family("findings", None, Figure::Findings.meaning(), severities);
}

/// A family of metrics, one for each table: name, unit, help and figure.
type OfTable = (&'static str, Option<&'static str>, &'static str, fn(&TableFigures) -> Option<u64>);

fn of_tables(families: &mut Families, tables: &[TableLine]) {
    let bytes = Some("bytes");
    let all: [OfTable; 10] = [
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
            if table.visible_rows_only { None } else { Some(table.rows?.estimate) }
        }),
        ("table_dead_rows", None, "Dead rows and chunks, according to statistics.", |table| {
            table.dead_rows
        }),
        (
            "table_vacuum_age",
            Some("seconds"),
            "Time since its last VACUUM, according to the server's statistics.",
            |table| table.vacuum_age_seconds,
        ),
        ("table_findings", None, "Findings about it of any severity.", |table| table.findings),
        ("table_toast_values", None, "Values in its TOAST relation.", |table| {
            table.toast_values.map(|values| values.estimate)
        }),
    ];
    for (name, unit, help, value) in all {
        let series = tables.iter().filter_map(|table| {
            Some((vec![("table", table.relation.as_str())], value(&table.figures)?.to_string()))
        });
        families.family(name, unit, help, series);
    }
}

/// A family of one figure of each column, by name and help.
type OfColumn = (&'static str, &'static str, fn(&ColumnLine) -> Option<Interval<u64>>);

fn of_columns(families: &mut Families, columns: &[RankedColumn]) {
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
        // of a column whose rows may be hidden, no figure is one of the table
        let whole_columns = columns.iter().filter(|column| !column.line.visible_rows_only);
        let series = whole_columns.filter_map(|RankedColumn { line: column, .. }| {
            let labels = vec![("table", column.relation.as_str()), ("column", &column.column)];
            Some((labels, whole(value(column)?)))
        });
        families.family(name, Some("bytes"), help, series);
    }
}

fn of_findings(families: &mut Families, findings: &[Finding], limit: usize) {
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
    );
}
