//! Findings for people: a line or two each, with the command below.

use super::document::Document;
use super::intervals;
use super::table::{Style, Tone, command_line, continued, printable, wrapped};
use super::units::{counted, size};
use crate::findings::finding::{Finding, Findings, LookedAt, Unit};
use crate::inspect::overview::rank::{Overview, Totals};
use toast_format::fill::moves::Expected;
use toast_format::model::interval::Interval;
use toast_format::model::sql::without_public;

/// How many findings about many tables are shown without --limit, and how many on a page.
const RANKED: usize = 3;
const RANKED_ON_PAGE: usize = 30;

/// Narrower terminals have no room for intervals.
const NARROW: usize = 60;

/// All findings about a table, or a line that there are none, with what was examined. `is_complete`: whether everything
/// that was to be examined could be read.
pub(super) fn of_table(findings: &Findings, is_complete: bool, document: &mut Document) {
    let Findings { findings: found, looked_at: looked } = findings;
    match (document.is_html(), found.len()) {
        (false, _) => {
            document.lines(&format!("{}\n", text(findings, is_complete, document.style)));
        }
        (true, 0) if !is_complete || looked.heap_blocks.is_none() => document.verdict(
            Tone::Warning,
            &format!("No findings in what could be read. This table was {}.", looked_at(looked)),
        ),
        (true, 0) => {
            document.verdict(
                Tone::Good,
                &format!("No findings. This table was {}.", looked_at(looked)),
            );
        }
        (true, number) => {
            document.verdict(Tone::Warning, &format!("{}.", counted(number as u64, "finding")));
            found.iter().for_each(|finding| on_page(finding, None, document));
        }
    }
}

/// A finding with a heading of its own, why it matters, and the command.
fn on_page(finding: &Finding, relation: Option<&str>, document: &mut Document) {
    let (place, text) = described(finding, relation, document.style);
    document.heading(&format!("{}{place}", finding.code.name()), 3);
    document.line(&format!("Severity {}: {text}.", finding.severity.name()), 0);
    document.line(&finding.why, 0);
    if finding.command.starts_with("toastctl ") {
        document.command(&finding.command);
    } else if !finding.command.is_empty() {
        document.sql(&finding.command);
    }
}

/// A finding among those about many tables. `with_command`: whether the command that acts on it is shown.
pub(super) fn among_others(finding: &Finding, with_command: bool, document: &mut Document) {
    if document.is_html() {
        return on_page(finding, Some(&finding.relation), document);
    }
    let told = of_one(finding, Some(&finding.relation), document.style);
    let lines = if with_command { told.len() } else { 1 };
    told.iter().take(lines).for_each(|line| document.lines(&format!("  {line}\n")));
}

fn text(findings: &Findings, is_complete: bool, style: Style) -> String {
    let (item, deeper) = match style {
        Style::Terminal(_) => ("  ", "    "),
        Style::Markdown | Style::Html => ("* ", "  "),
    };
    if findings.findings.is_empty() {
        let (tone, none) = match findings.looked_at.heap_blocks {
            _ if !is_complete => (Tone::Warning, "none in what could be read"),
            Some(_) => (Tone::Good, "none"),
            None => (Tone::Warning, "not known without pages"),
        };
        let none = toned(tone, none, style);
        let values = match findings.looked_at.heap_blocks {
            None if is_complete => "; toastctl advise-threshold examines values",
            _ => "",
        };
        let text = format!("{item}findings: {none} ({}{values})", looked_at(&findings.looked_at));
        return wrapped(&text, style.width(), 4);
    }
    let mut lines = vec![format!("{item}findings (toastctl help findings):")];
    for finding in &findings.findings {
        let told = of_one(finding, None, style);
        lines.extend(told.iter().map(|line| format!("{deeper}{line}")));
    }
    lines.join("\n")
}

/// The first findings about many tables, the most important first.
pub(super) fn ranked(overview: &Overview, limit: Option<usize>, document: &mut Document) {
    let Overview { findings, totals, .. } = overview;
    let mut of = examined(totals);
    if overview.of_columns {
        of.push_str("; findings about tables are left out (--column)");
    }
    if !document.is_html() {
        let told = ranked_text(findings, totals, &of, limit, document.style);
        return document.lines(&format!("{told}\n"));
    }
    document.heading("Findings", 2);
    if findings.is_empty() {
        let none = if is_unknown(totals) { "It is not known whether there are" } else { "No" };
        return document.verdict(tone_of_none(totals), &format!("{none} findings in {of}."));
    }
    let shown = limit.unwrap_or(RANKED_ON_PAGE).min(findings.len());
    let more = match findings.len() - shown {
        0 => String::new(),
        more => format!(" {more} more: --limit {} shows all.", findings.len()),
    };
    let found = counted(findings.len() as u64, "finding");
    document.verdict(Tone::Warning, &format!("{found} in {of}.{more}"));
    for finding in findings.iter().take(shown) {
        on_page(finding, Some(&finding.relation), document);
    }
}

/// The tables that findings were searched for in, and those in which they could not be.
fn examined(totals: &Totals) -> String {
    const UNEXAMINED: &str = "neither free space nor values were examined (toastctl advise-threshold TABLE examines values)";
    let unsearched = counted(totals.unsearched, "table");
    let by_functions = counted(totals.by_functions, "table");
    let mut of = if are_by_functions(totals) {
        format!("{by_functions} read without pages: {UNEXAMINED}")
    } else if is_unknown(totals) {
        return format!("{unsearched} that could not be read, or only in part");
    } else {
        format!("{} of 1 MB or more", counted(totals.looked_at, "table"))
    };
    if totals.unsearched > 0 {
        of.push_str(&format!("; {unsearched} could not be read, or only in part"));
    }
    if totals.by_functions > 0 && !are_by_functions(totals) {
        of.push_str(&format!("; of {by_functions} read without pages, {UNEXAMINED}"));
    }
    of
}

/// Whether no table was read by its pages.
fn are_by_functions(totals: &Totals) -> bool {
    totals.read > 0 && totals.by_functions >= totals.read
}

/// Whether no table could be read, or none by its pages, so that there is no verdict.
fn is_unknown(totals: &Totals) -> bool {
    are_by_functions(totals) || totals.looked_at == 0 && totals.unsearched > 0
}

/// The tone of "none".
fn tone_of_none(totals: &Totals) -> Tone {
    if totals.unsearched + totals.by_functions == 0 { Tone::Good } else { Tone::Warning }
}

fn ranked_text(
    findings: &[Finding],
    totals: &Totals,
    of: &str,
    limit: Option<usize>,
    style: Style,
) -> String {
    let mut lines = Vec::new();
    if style == Style::Markdown {
        lines.push(String::new());
    }
    if findings.is_empty() {
        let known = if is_unknown(totals) { "not known" } else { "none" };
        let none = toned(tone_of_none(totals), known, style);
        let damage = if is_unknown(totals) { "" } else { "; toastctl check looks for damage" };
        let text = format!("Findings: {none} in {of}{damage}.");
        lines.push(wrapped(&text, style.width(), 0));
        return lines.join("\n");
    }
    let shown = limit.unwrap_or(RANKED).min(findings.len());
    let more = match findings.len().saturating_sub(shown) {
        0 => String::new(),
        _ => format!(", {shown} shown (--limit {} shows all)", findings.len()),
    };
    let number = toned(Tone::Heading, &counted(findings.len() as u64, "finding"), style);
    let text = format!("{number}{more} (toastctl help findings):");
    lines.push(wrapped(&text, style.width(), 0));
    for finding in findings.iter().take(shown) {
        let told = of_one(finding, Some(&finding.relation), style);
        lines.extend(told.iter().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

/// Text, in this tone on a terminal.
fn toned(tone: Tone, words: &str, style: Style) -> String {
    if style == Style::Markdown { words.to_owned() } else { tone.styled(words) }
}

/// Where something was found, and what.
fn described(finding: &Finding, relation: Option<&str>, style: Style) -> (String, String) {
    let relation = relation.map(without_public);
    let place = match (relation, &finding.column) {
        (Some(relation), Some(column)) => format!(" {relation}.{column}"),
        (Some(only), None) => format!(" {only}"),
        (None, Some(only)) => format!(" {only}"),
        (None, None) => String::new(),
    };
    // among others, and on a narrow terminal, the effect takes too many lines
    let is_short = style.width().is_some() && relation.is_some();
    let compaction =
        finding.compaction.filter(|expected| !(is_short || expected.estimated && is_narrow(style)));
    let text = format!(
        "{}{}{}",
        amount(finding, style),
        printable(&finding.what),
        compaction.map(|expected| moves(&expected, finding.value)).unwrap_or_default()
    );
    (printable(&place), text)
}

/// A finding and the command that acts on it, if there is one.
fn of_one(finding: &Finding, relation: Option<&str>, style: Style) -> Vec<String> {
    let (place, text) = described(finding, relation, style);
    let name = toned(Tone::Warning, finding.code.name(), style);
    let text = format!("{name}{place}: {text}");
    // the caller indents
    let width = style.width().map(|width| width.saturating_sub(4));
    let (tick, bullet) = if style == Style::Markdown { ("`", "* ") } else { ("", "") };
    let command = continued(&command_line(&finding.command), width);
    let mut lines = vec![format!("{bullet}{}", wrapped(&text, width, 8))];
    if !command.is_empty() {
        lines.push(format!("  {tick}{command}{tick}"));
    }
    lines
}

/// What compaction would move, with `free` bytes free, and what it would return if that is more.
fn moves(expected: &Expected, free: u64) -> String {
    let Expected { gives_back, rows, values, moved_bytes, wal_bytes: wal, .. } = *expected;
    let gives = if gives_back > free + free / 20 {
        format!("returns {} once VACUUM has removed dead rows, and ", size(gives_back))
    } else {
        String::new()
    };
    let moved = match (rows, values) {
        (None, None) => return format!("; the rebuild writes {} of WAL", size(wal.high)),
        (Some(0), _) | (_, Some(0)) => {
            return format!("; compaction {gives}only truncates the file");
        }
        (Some(rows), _) => counted(rows, "row"),
        (None, Some(values)) => counted(values, "value"),
    };
    let about = if expected.estimated { "about " } else { "" };
    let gin = match expected.gin_growth {
        0 => String::new(),
        growth => format!("; GIN indexes may grow by {}", size(growth)),
    };
    format!(
        "; compaction {gives}moves {about}{moved} ({}), WAL {} to {}{gin}",
        size(moved_bytes),
        size(wal.low),
        size(wal.high)
    )
}

pub(super) fn is_narrow(style: Style) -> bool {
    style.width().is_some_and(|width| width < NARROW)
}

/// The amount of a finding, without the interval on narrow terminals.
fn amount(finding: &Finding, style: Style) -> String {
    let Finding { value, low, high, .. } = *finding;
    if low < high && is_narrow(style) {
        return match finding.unit {
            Unit::Bytes => format!("≈{} ", size(value)),
            Unit::Rows => format!("≈{value} rows: "),
            Unit::Values => format!("≈{value} values: "),
            Unit::Settings | Unit::Places => String::new(),
            Unit::ReadsPerWrite | Unit::WritesPerRead => per_other(finding),
        };
    }
    let whole = Interval { estimate: value, low, high };
    match finding.unit {
        Unit::Bytes => format!("{} ", intervals::bytes(&whole)),
        Unit::Rows | Unit::Values if low == high => {
            let noun = if finding.unit == Unit::Rows { "row" } else { "value" };
            format!("{}: ", counted(value, noun))
        }
        Unit::Rows => format!("{} rows: ", intervals::count(&whole)),
        Unit::Values => format!("{} values: ", intervals::count(&whole)),
        Unit::Settings | Unit::Places => String::new(),
        Unit::ReadsPerWrite | Unit::WritesPerRead => per_other(finding),
    }
}

/// Reads per write, or the reverse; a lower bound if the ratio is not known.
fn per_other(finding: &Finding) -> String {
    let Finding { value, low, high, .. } = *finding;
    let least = if low < high { "at least " } else { "" };
    match finding.unit {
        Unit::WritesPerRead => format!("{least}{value} writes for each read: "),
        _ => format!("{least}{value} reads for each write: "),
    }
}

/// How many blocks of all were read; `None` if there are none.
fn blocks(read: Option<u64>, total: Option<u64>) -> Option<String> {
    match (read?, total?) {
        (_, 0) => None,
        (read, total) if read == total => Some(counted(total, "block")),
        (read, total) => Some(format!("{read} of {}", counted(total, "block"))),
    }
}

/// What was examined, as text.
fn looked_at(looked_at: &LookedAt) -> String {
    let mut parts = Vec::new();
    let LookedAt {
        heap_blocks,
        heap_blocks_read,
        toast_blocks,
        toast_blocks_read,
        indexes,
        settings,
    } = *looked_at;
    parts.extend(blocks(heap_blocks_read, heap_blocks));
    let toast = blocks(toast_blocks_read, toast_blocks);
    parts.extend(toast.map(|blocks| format!("{blocks} of the TOAST relation")));
    if indexes > 0 {
        parts.push(counted(indexes, "index"));
    }
    if settings {
        parts.push("settings".to_owned());
    }
    format!("examined: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::code::Code;
    use toast_format::model::interval::Interval;
    use toast_format::model::interval::Range;

    fn findings(findings: Vec<Finding>) -> Findings {
        let looked_at = LookedAt {
            heap_blocks: Some(12_345),
            heap_blocks_read: Some(256),
            toast_blocks: Some(90),
            toast_blocks_read: Some(90),
            indexes: 3,
            settings: true,
        };
        Findings { findings, looked_at }
    }

    #[test]
    fn what_was_found_and_the_command() {
        let bytes = Interval { estimate: 5e7, low: 4e7, high: 6e7 };
        let older = Finding {
            column: Some("doc".into()),
            what: "stored otherwise than the column is set (extended, lz4)".into(),
            command: "toastctl retoast public.orders --column doc --toaster extended".into(),
            ..Finding::new(Code::OlderSetting, "public.orders", bytes, Unit::Bytes)
        };
        let setting = Finding {
            what: "toast_tuple_target 256 does nothing".into(),
            command: "ALTER TABLE \"public\".\"orders\" RESET (toast_tuple_target);".into(),
            ..Finding::new(
                Code::UnusedSetting,
                "public.orders",
                Interval::exact(1.0),
                Unit::Settings,
            )
        };
        let expected = Expected {
            gives_back: 60 << 20,
            rows: None,
            values: Some(12_345),
            moved_bytes: 30 << 20,
            wal_bytes: Range { low: 33 << 20, high: 90 << 20 },
            gin_growth: 0,
            estimated: false,
        };
        let more = moves(&expected, 40 << 20);
        assert_eq!(
            more,
            "; compaction returns 60 MB once VACUUM has removed dead rows, and moves 12345 values (30 MB), WAL 33 MB to \
             90 MB"
        );
        assert_eq!(
            moves(&Expected { values: Some(1), ..expected }, 60 << 20),
            "; compaction moves 1 value (30 MB), WAL 33 MB to 90 MB"
        );
        let few = Expected { estimated: true, ..expected };
        assert_eq!(
            moves(&few, 60 << 20),
            "; compaction moves about 12345 values (30 MB), WAL 33 MB to 90 MB"
        );
        let nothing = Expected { values: Some(0), ..expected };
        assert_eq!(moves(&nothing, 60 << 20), "; compaction only truncates the file");
        let some = findings(vec![older, setting]);
        let plain = |findings| {
            let text = text(findings, true, Style::Terminal(Some(80)));
            anstream::adapter::strip_str(&text).to_string()
        };
        insta::assert_snapshot!(plain(&some), @r#"
  findings (toastctl help findings):
    older-setting doc: ≈48 MB (38–57 MB) stored otherwise than the column is set
        (extended, lz4)
      toastctl retoast public.orders --column doc --toaster extended
    unused-setting: toast_tuple_target 256 does nothing
      ALTER TABLE "public"."orders" RESET (toast_tuple_target);
"#);
        let none = findings(Vec::new());
        for (is_complete, words) in
            [(true, "findings: none ("), (false, "none in what could be read (")]
        {
            assert!(text(&none, is_complete, Style::Markdown).contains(words));
        }
        let totals = Totals { looked_at: 3, ..Totals::default() };
        assert_eq!(examined(&totals), "3 tables of 1 MB or more");
        let partly = Totals { unsearched: 1, ..totals };
        assert_eq!(
            examined(&partly),
            "3 tables of 1 MB or more; 1 table could not be read, or only in part"
        );
        let unread = Totals { looked_at: 0, unsearched: 6, ..totals };
        let verdict = ranked_text(&[], &unread, &examined(&unread), None, Style::Markdown);
        assert_eq!(
            verdict.trim(),
            "Findings: not known in 6 tables that could not be read, or only in part."
        );
        insta::assert_snapshot!(text(&some, true, Style::Markdown), @r#"
* findings (toastctl help findings):
  * older-setting doc: ≈48 MB (38–57 MB) stored otherwise than the column is set (extended, lz4)
    `toastctl retoast public.orders --column doc --toaster extended`
  * unused-setting: toast_tuple_target 256 does nothing
    `ALTER TABLE "public"."orders" RESET (toast_tuple_target);`
"#);
        let none = findings(Vec::new());
        insta::assert_snapshot!(plain(&none), @"
  findings: none (examined: 256 of 12345 blocks, 90 blocks of the TOAST
    relation, 3 indexes, settings)
");
    }
}
