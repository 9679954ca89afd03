//! The report of `keys`: the keys, their shares of the documents as bars, and their costs.

use serde::Serialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::document::{Document, Printed};
use super::table::{Grid, Tone, name, number, printable, text};
use super::units::{counted, nanoseconds, percent, plain, size, size_within};
use crate::keys::result::{Key, KeysColumn, KeysDocument, KeysReport, SCHEMA, Subject};
use crate::server::about::ServerReport;
use toast_format::heap::problem::Problems;
use toast_format::model::interval::Interval;

/// The longest bar, and the longest path before one.
const BAR: usize = 40;
const NAME: usize = 24;

impl Printed for KeysReport {
    const SCHEMA: &'static str = SCHEMA;

    fn document(server: Option<ServerReport>) -> Value {
        json!(KeysDocument::new(server))
    }

    fn entry(&self) -> impl Serialize {
        KeysColumn::from(self)
    }

    fn print(&self, document: &mut Document) {
        let Subject { relation, column, type_name, .. } = &self.subject;
        let [relation, column] = [relation, column].map(|name| printable(name));
        document.heading(&format!("{relation}, column {column} ({type_name})"), 2);
        if let Some(largest) = self.contents.keys.first() {
            let share = largest.sizes.share.estimate;
            let bytes = (share * self.totals.raw_bytes.estimate as f64) as u64;
            let verdict = format!(
                "{} takes {} of the raw documents, {}.",
                largest.path,
                percent(share),
                size(bytes)
            );
            document.verdict(Tone::Heading, &verdict);
        }
        document.item(&documents(self));
        if self.sample.documents > 0 {
            if self.contents.map {
                document.line(&map(self), 2);
            }
            document.gap();
            if document.details {
                in_detail(self, document);
            } else {
                let left_out = document.grid("Cost of each key", &costs(self));
                document.hidden(None, &left_out);
                document.gap();
            }
            if let Some(named) = named(self) {
                document.line(&named, 0);
            }
            if let Some(whole) = nearly_all(self) {
                let depth = u32::from(self.depth) + 1;
                document
                    .line(&format!("--depth {depth} shows what {} consists of.", whole.path), 0);
            }
            document.line(if document.details { NOTE } else { BRIEFLY }, 0);
        }
        document.problems(&self.problems, "  ");
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }
}

/// The share of the documents from which on the key that has it is to be taken apart.
const NEARLY_ALL: f64 = 0.9;

/// What the titles mean.
const BRIEFLY: &str = "Buffers and CPU: pages and time to read one value, in addition to its row. WAL: bytes written to \
                       change one. Own: the same for a column of its own. --extract auto tries such columns; \
                       --details shows more.";
const NOTE: &str = "Bytes are counted in the raw documents: a key's name, value and entries. Stored bytes are a \
                    proportional part. Buffers and CPU are the pages and the time that TOAST and compression add to \
                    the read of a row. WAL is what an UPDATE of one value writes, without full-page images and the \
                    table's own indexes. Own: the same for a column of its own, of the same type.";

/// The path that has nearly all bytes of the documents and is not taken apart.
fn nearly_all(report: &KeysReport) -> Option<&Key> {
    let largest = report.contents.keys.first()?;
    let is_cut = largest.depth == usize::from(report.depth);
    let has_parts = matches!(largest.kind, "object" | "array");
    (is_cut && has_parts && largest.sizes.share.estimate > NEARLY_ALL).then_some(largest)
}

fn in_detail(report: &KeysReport, document: &mut Document) {
    document.grid("Sizes of keys", &contents(report));
    document.gap();
    document.figure("Shares of keys", &bars(report));
    document.gap();
    document.grid("Cost of each key", &costs(report));
    document.gap();
}

/// The number and sizes of the documents, and the sample if not all were examined.
fn documents(report: &KeysReport) -> String {
    let sample = &report.sample;
    let looked = if sample.complete {
        String::new()
    } else {
        format!(
            " (sample: {} in {} of {})",
            counted(sample.documents, "document"),
            sample.blocks,
            counted(sample.total_blocks, "block")
        )
    };
    let unread = match report.totals.documents.low.saturating_sub(sample.documents) {
        unread @ 1.. if sample.complete => format!(", {unread} of them not read"),
        _ => String::new(),
    };
    let unseen = if report.totals.unseen < 0.01 {
        String::new()
    } else {
        format!(
            "; {:.0} % of the bytes are in documents too rare for the sample: --sample 100% analyzes all",
            report.totals.unseen * 100.0
        )
    };
    let what = if report.subject.visible_rows_only { "visible document" } else { "document" };
    format!(
        "{}{unread}, {} stored, {} raw{looked}{unseen}",
        several(&report.totals.documents, what),
        bytes(&report.totals.stored_bytes),
        bytes(&report.totals.raw_bytes)
    )
}

fn map(report: &KeysReport) -> String {
    let about = if report.contents.different_paths.exact { "" } else { "about " };
    let mut text = format!(
        "The documents are maps, not records: {about}{} different keys in the sample.",
        report.contents.different_paths.estimate
    );
    if report.contents.uncounted_bytes > 0 {
        text.push_str(&format!(
            " Not all of them could be kept: up to {} of a listed key may be counted as other keys.",
            size(report.contents.uncounted_bytes)
        ));
    }
    text
}

/// The keys, one per line.
fn contents(report: &KeysReport) -> Grid {
    let mut grid = Grid::from_rows(
        &report.contents.keys,
        &[
            name("Key", indented),
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
    let name = "(container)".into();
    let all = percent(1.0);
    grid.row(vec![name, empty(), all, mean, empty(), stored, empty(), empty()]);
    grid
}

/// The sizes of the keys, and what it costs to read and change them.
fn costs(report: &KeysReport) -> Grid {
    let mut grid = Grid::from_rows(
        &report.contents.keys,
        &[
            name("Key", indented),
            text("Type", 4, types),
            number("Present", 5, present),
            number("Stored", 3, |key| size(key.sizes.stored_bytes.estimate)),
            number("Raw share", 0, |key| percent(key.sizes.share.estimate)),
            number("Chunk", 6, first_chunk),
            number("Buffers", 0, |key| plain(key.costs.buffers_now.estimate)),
            number("Own buffers", 0, |key| optional(&key.costs.buffers_extracted, plain)),
            number("CPU", 1, |key| nanoseconds(key.costs.cpu_now_ns.estimate)),
            number("Own CPU", 4, |key| optional(&key.costs.cpu_extracted_ns, nanoseconds)),
            number("WAL", 1, |key| size(key.costs.wal_now.estimate.round() as u64)),
            number("Own WAL", 2, |key| {
                optional(&key.costs.wal_extracted, |wal| size(wal.round() as u64))
            }),
        ],
    );
    let mut rest = Vec::new();
    if let Some(others) = &report.contents.others {
        let name = format!("({})", counted(others.paths, "other"));
        rest.push((name, others.stored_bytes, others.share));
    }
    let container = &report.contents.container;
    let stored = container.stored_bytes.estimate;
    rest.push(("(container)".into(), stored, container.share.estimate));
    for (name, stored, share) in rest {
        let mut row = vec![name, String::new(), String::new(), size(stored), percent(share)];
        row.resize(12, String::new());
        grid.row(row);
    }
    grid
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

/// Keys that objects of the catalog name; `None` if there are none.
fn named(report: &KeysReport) -> Option<String> {
    let mut named = Vec::new();
    for key in &report.contents.keys {
        let places: Vec<String> = key.named_in.iter().map(ToString::to_string).collect();
        if !places.is_empty() {
            named.push(format!("{} ({})", key.path, places.join(", ")));
        }
    }
    (!named.is_empty()).then(|| format!("Used by other objects: {}.", printable(&named.join(", "))))
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

/// The types of at least a twentieth of the values, the most common first.
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

/// The fraction of documents that have the key; for what is in an array, the values per document.
fn present(key: &Key) -> String {
    percent(key.presence.estimate)
}

fn several(estimate: &Interval<u64>, noun: &str) -> String {
    let ending = if estimate.estimate == 1 { "" } else { "s" };
    let half = half(estimate);
    let within = if half * 1000 > estimate.estimate { format!(" ±{half}") } else { String::new() };
    format!("{}{within} {noun}{ending}", estimate.estimate)
}

fn half(estimate: &Interval<u64>) -> u64 {
    estimate.high.saturating_sub(estimate.low) / 2
}

fn bytes(estimate: &Interval<u64>) -> String {
    size_within(estimate.estimate, half(estimate))
}
