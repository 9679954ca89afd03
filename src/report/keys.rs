//! The report of `keys`: what keys are, their parts of the documents as bars, and what they cost.

use unicode_width::UnicodeWidthStr;

use super::document::{Document, Printed};
use super::table::{Grid, number, printable, text};
use super::units::{counted, nanoseconds, percent, plain, size};
use crate::heap::problem::Problems;
use crate::keys::result::{Key, KeysReport, SCHEMA};
use crate::model::interval::Interval;
use crate::usage::keys::Usage;

/// The longest bar, and the longest path before one.
const BAR: usize = 40;
const NAME: usize = 24;

impl Printed for KeysReport {
    const SCHEMA: &'static str = SCHEMA;

    fn print(&self, document: &mut Document) {
        let title = if document.is_markdown() { "## " } else { "" };
        document.line(&format!("{title}{}", head(self)), 2);
        if self.sample.documents > 0 {
            if self.contents.map {
                document.line(&map(self), 2);
            }
            document.gap();
            document.grid(&contents(self));
            document.gap();
            document.figure(&bars(self));
            document.gap();
            let costs = costs(self);
            if !costs.is_empty() {
                document.grid(&costs);
            }
            document.gap();
            if let Some(usage) = &self.usage {
                document.line(&used(self, usage), 0);
                document.gap();
            }
            document.line(NOTE, 0);
        }
        document.problems(&self.problems, "  ");
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }
}

const NOTE: &str = "Bytes are those of the raw documents, with all that belongs to a key; stored bytes are in \
                    proportion. Buffers and CPU time are what storage adds to the read of a row; WAL is that of an \
                    UPDATE of one value, without full-page images and the table's own indexes. Apart: in a column of \
                    its own, of the same type.";

fn head(report: &KeysReport) -> String {
    let sample = &report.sample;
    let looked = if sample.complete {
        String::new()
    } else {
        format!(
            "; sample of {} in {} of {}",
            counted(sample.documents, "document"),
            sample.blocks,
            counted(sample.total_blocks, "block")
        )
    };
    format!(
        "{}, column {} ({}): {}, {} raw, {} stored{looked}",
        printable(&report.relation),
        printable(&report.column),
        report.type_name,
        several(&report.totals.documents, "document"),
        bytes(&report.totals.raw_bytes),
        bytes(&report.totals.stored_bytes)
    )
}

fn map(report: &KeysReport) -> String {
    let about = if report.contents.different_paths.exact { "" } else { "about " };
    let mut text = format!(
        "The documents are maps rather than records: {about}{} different keys in the sample.",
        report.contents.different_paths.estimate
    );
    if report.contents.uncounted_bytes > 0 {
        text.push_str(&format!(
            " Not all could be kept: up to {} of a key named here are among the others.",
            size(report.contents.uncounted_bytes)
        ));
    }
    text
}

/// What the keys are, one a line.
fn contents(report: &KeysReport) -> Grid {
    let mut grid = Grid::of(
        &report.contents.keys,
        &[
            text("Key", 0, indented),
            text("Type", 0, types),
            number("Present", 0, present),
            number("Mean", 0, |key| plain(key.sizes.bytes.mean.estimate)),
            number("P95", 2, |key| key.sizes.bytes.p95.to_string()),
            number("Stored", 1, |key| size(key.sizes.stored_bytes.estimate)),
            number("Offset", 4, |key| format!("{:.0}", key.offset.mean.estimate)),
            number("Distinct", 3, distinct),
        ],
    );
    let empty = String::new;
    if let Some(others) = &report.contents.others {
        let stored = size(others.stored_bytes);
        let name = format!("({})", counted(others.paths, "other"));
        grid.row(vec![name, empty(), empty(), empty(), empty(), stored, empty(), empty()]);
    }
    let documents = report.totals.documents.estimate.max(1) as f64;
    let mean = plain(report.contents.container.bytes.estimate as f64 / documents);
    let stored = size(report.contents.container.stored_bytes.estimate);
    let (name, all) = ("(container)".into(), percent(1.0));
    grid.row(vec![name, empty(), all, mean, empty(), stored, empty(), empty()]);
    grid
}

/// What reading and changing them costs.
fn costs(report: &KeysReport) -> Grid {
    Grid::of(
        &report.contents.keys,
        &[
            text("Key", 0, indented),
            number("Chunk", 1, first_chunk),
            number("Buffers", 0, |key| plain(key.costs.buffers_now.estimate)),
            number("apart", 0, |key| optional(&key.costs.buffers_extracted, plain)),
            number("CPU", 2, |key| nanoseconds(key.costs.cpu_now_ns.estimate)),
            number("apart", 3, |key| optional(&key.costs.cpu_extracted_ns, nanoseconds)),
            number("WAL", 0, |key| size(key.costs.wal_now.estimate.round() as u64)),
            number("apart", 0, |key| {
                optional(&key.costs.wal_extracted, |wal| size(wal.round() as u64))
            }),
            number("Calls", 1, calls),
        ],
    )
}

/// Calls where a key is known to be used, or none is.
fn calls(key: &Key) -> String {
    key.uses.calls.filter(|&calls| calls > 0).map_or(String::new(), |calls| calls.to_string())
}

fn distinct(key: &Key) -> String {
    let about = if key.distinct.exact { "" } else { "~" };
    format!("{about}{}", key.distinct.estimate)
}

fn first_chunk(key: &Key) -> String {
    key.first_chunk.map_or(String::new(), |chunks| match chunks.min {
        min if min == chunks.max => min.to_string(),
        min => format!("{min}-{}", chunks.max),
    })
}

fn optional(ratio: &Option<Interval>, show: fn(f64) -> String) -> String {
    ratio.as_ref().map_or(String::new(), |ratio| show(ratio.estimate))
}

/// What is known of the keys' use.
fn used(report: &KeysReport, usage: &Usage) -> String {
    let mut text = match &usage.why_not {
        Some(why) => format!("Which keys statements use is not known: {}.", printable(why)),
        None if usage.calls == 0 => "pg_stat_statements names no key of the column.".to_owned(),
        None => format!(
            "Calls are guessed by the texts in pg_stat_statements: {} of {} use keys of the column.",
            counted(usage.calls, "call"),
            counted(usage.statements, "statement")
        ),
    };
    if usage.hidden_calls > 0 {
        text.push_str(&format!(
            " Of these, {} a parameter in the place of a key, which stays unknown.",
            if usage.hidden_calls == 1 {
                "1 has".to_owned()
            } else {
                format!("{} have", usage.hidden_calls)
            }
        ));
    }
    if usage.unseen_statements > 0 {
        text.push_str(&format!(
            " The texts of {} are hidden from this user, who is not a member of pg_read_all_stats.",
            counted(usage.unseen_statements, "statement")
        ));
    }
    let mut named_in = Vec::new();
    for key in &report.contents.keys {
        let named = key.uses.named_in.iter().map(ToString::to_string);
        let sessions = key.uses.sessions.filter(|&sessions| sessions > 0);
        let running = sessions.map(|sessions| format!("last of {}", counted(sessions, "session")));
        let names: Vec<String> = named.chain(running).collect();
        if !names.is_empty() {
            named_in.push(format!("{} ({})", key.path, names.join(", ")));
        }
    }
    if !named_in.is_empty() {
        text.push_str(&format!(" Named in: {}.", printable(&named_in.join(", "))));
    }
    text
}

/// The keys' parts of the raw documents.
fn bars(report: &KeysReport) -> String {
    let mut lines: Vec<(String, f64, String)> = Vec::new();
    for key in &report.contents.keys {
        let half = (key.sizes.share.high - key.sizes.share.low) / 2.0;
        let within = if half >= 5e-4 { format!(" ±{:.1}", half * 100.0) } else { String::new() };
        lines.push((indented(key), key.sizes.share.estimate, within));
    }
    if let Some(others) = &report.contents.others {
        lines.push((format!("({})", counted(others.paths, "other")), others.share, String::new()));
    }
    lines.push(("(container)".into(), report.contents.container.share.estimate, String::new()));
    let shown: Vec<String> = lines.iter().map(|(name, _, _)| cut(&printable(name))).collect();
    let room = shown.iter().map(|name| name.width()).max().unwrap_or_default();
    let most = lines.iter().map(|(_, share, _)| *share).fold(0.0, f64::max);
    let mut text = String::from("Share of the raw bytes:\n\n");
    for ((_, share, within), name) in lines.iter().zip(&shown) {
        let length = if most > 0.0 { (share / most * BAR as f64).ceil() as usize } else { 0 };
        let pad = " ".repeat(room - name.width());
        let figure = format!("{:.1}{within} %", share * 100.0);
        let line = format!("  {name}{pad}  {figure:>11}  {}", "#".repeat(length.min(BAR)));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The path, with deeper ones moved to the right.
fn indented(key: &Key) -> String {
    format!("{}{}", " ".repeat(key.depth.saturating_sub(1)), key.path)
}

fn cut(name: &str) -> String {
    let mut shown = String::new();
    for c in name.chars() {
        if shown.width() + 1 >= NAME {
            shown.push('…');
            break;
        }
        shown.push(c);
    }
    shown
}

/// The types of at least a twentieth of the values, the commonest first.
fn types(key: &Key) -> String {
    let all: u64 = key.types.values().sum();
    let mut types: Vec<(&str, u64)> = key
        .types
        .iter()
        .map(|(&name, &count)| (name, count))
        .filter(|(_, n)| n * 20 >= all)
        .collect();
    types.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let names: Vec<&str> = types.iter().map(|&(name, _)| name).collect();
    names.join("/")
}

/// The part of the documents that has the key; of what is in an array the values of each.
fn present(key: &Key) -> String {
    percent(key.presence.estimate)
}

fn within(estimate: &Interval<u64>, show: fn(u64) -> String) -> String {
    let half = estimate.high.saturating_sub(estimate.low) / 2;
    if half * 1000 > estimate.estimate { format!(" ±{}", show(half)) } else { String::new() }
}

fn several(estimate: &Interval<u64>, noun: &str) -> String {
    let ending = if estimate.estimate == 1 { "" } else { "s" };
    format!("{}{} {noun}{ending}", estimate.estimate, within(estimate, |half| half.to_string()))
}

fn bytes(estimate: &Interval<u64>) -> String {
    format!("{}{}", size(estimate.estimate), within(estimate, size))
}
