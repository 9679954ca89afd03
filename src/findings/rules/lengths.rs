//! Lengths that cost: rows near the threshold, and values that begin a chunk and hardly fill it. They are reported
//! only if a command is certain to help.

use super::values::{LEAST, NEARLY_ALL, uncompressed};
use crate::findings::code::Code;
use crate::findings::facts::{ColumnFacts, Facts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::{Count, Counted};
use crate::findings::targets::TargetFacts;
use toast_format::codec::Method;
use toast_format::model::Interval;
use toast_format::model::btree::ToastIndex;

/// The fraction of rows near the threshold from which they are reported.
const NEAR: f64 = 0.2;
/// The fraction of out-of-line values with a last chunk that is nearly empty.
const SHORT_ENDS: f64 = 0.3;
/// The part of a column's values that may still be out of line with a target that keeps most of them in their rows.
const MOST_LEFT: f64 = 0.5;
/// Bytes that may be spent to save chunks, as a fraction of the column's bytes.
const PRICE: f64 = 0.05;
/// A price below this fraction of the column's bytes is not reported: half a percent.
const TOLD: f64 = 0.005;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    for (column, counted) in of_columns(facts) {
        let rows = counted.of(Count::JustAbove).plus(counted.of(Count::JustBelow));
        out.extend(if rows.low >= LEAST && rows.low >= facts.rows.high * NEAR {
            // the last chunk of a row just over the threshold is always short
            near(facts, column, counted, rows)
        } else {
            short_ends(facts, column, counted)
        });
        out.extend(vectors(facts, column, counted));
    }
}

/// What follows from the forms of values, with any settings.
pub(super) fn add_of_forms(facts: &Facts, out: &mut Vec<Finding>) {
    for (column, counted) in of_columns(facts) {
        out.extend(short_ends_of_file(facts, column, counted));
    }
}

/// The columns whose values were counted.
fn of_columns(facts: &Facts) -> impl Iterator<Item = (&ColumnFacts, &Counted)> {
    facts.stock_columns().filter_map(|column| Some((column, facts.counted(column)?)))
}

/// Further buffers that a read of a value visits if it is out of line: the index of the TOAST relation from the root
/// to a leaf, and a page of chunks. `below`: values that would be added to the existing ones.
fn buffers_more(facts: &Facts, below: Interval) -> u32 {
    let values = facts.out_of_line.estimate + below.estimate;
    ToastIndex::new(facts.page, values as u64).levels + 1
}

/// The longer targets that few rows are near to. Those that keep several rows on a page come first, then the one for
/// which values take the fewest bytes more: it has some of them stored without compression that fit it so.
pub(super) fn targets(facts: &Facts) -> impl Iterator<Item = &TargetFacts> {
    let mut far: Vec<&TargetFacts> = Vec::new();
    for target in facts.look.iter().flat_map(|look| &look.targets) {
        if target.near.high < LEAST || target.near.high < facts.rows.low * NEAR {
            far.push(target);
        }
    }
    far.sort_by(|a, b| {
        let by_price = a.more.estimate.total_cmp(&b.more.estimate);
        a.fills_pages.cmp(&b.fills_pages).then(by_price)
    });
    far.into_iter()
}

/// The additional bytes of values with a target, as a fraction of the column's bytes.
fn price(counted: &Counted, target: &TargetFacts) -> f64 {
    target.more.estimate / counted.of(Count::Stored).estimate.max(1.0)
}

fn near(facts: &Facts, column: &ColumnFacts, counted: &Counted, rows: Interval) -> Option<Finding> {
    let target = targets(facts).next()?;
    let above = counted.of(Count::JustAbove);
    let below = counted.of(Count::JustBelow);
    let more = buffers_more(facts, below);
    let what = match (above.estimate > 0.0, below.estimate > 0.0) {
        (true, true) => format!(
            "a few bytes decide whether the value is in the row or out of line, where a read visits {more} more \
             buffers"
        ),
        (true, false) => format!(
            "if the row were a few bytes shorter, the value would stay in it, and each read would visit {more} fewer \
             buffers"
        ),
        (false, _) => format!(
            "a few bytes more move the value out of the row, and each read then visits {more} more buffers"
        ),
    };
    let price = price(counted, target);
    let scans =
        (above.estimate > 0.0).then(|| "makes scans of the table read these values too".to_owned());
    let bytes = (price >= TOLD).then(|| {
        let percent = (price * 100.0).ceil();
        format!("takes {percent} % more space, since fewer values are compressed")
    });
    let costs: Vec<String> = [scans, bytes].into_iter().flatten().collect();
    let what = if costs.is_empty() {
        what
    } else {
        format!("{what}; a target of {} {}", target.bytes, costs.join(" and "))
    };
    Some(facts.finding_of(column, Code::NearThreshold, rows, Unit::Rows, what))
}

/// Values with a last chunk that is nearly empty, if these are many: the effect of compression on them must then be known.
pub(crate) fn many_short_ends(counted: &Counted) -> Option<Interval> {
    let ends = counted.of(Count::ShortEnds);
    let all = counted.of(Count::OutOfLineValues);
    (ends.low >= LEAST && ends.low >= all.high * SHORT_ENDS).then_some(ends)
}

/// For a file, neither settings nor values are known: `advise-threshold` finds out what would help.
fn short_ends_of_file(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let ends = many_short_ends(counted)?;
    let what = "the last chunk is nearly empty";
    Some(facts.finding_of(column, Code::ShortLastChunk, ends, Unit::Values, what))
}

fn short_ends(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let ends = many_short_ends(counted)?;
    if uncompressed(facts, column, counted).is_some() {
        // its command changes the number of chunks anyway
        return None;
    }
    let how = kept_in_rows(facts, column, counted, ends).or_else(|| compressed(facts, column))?;
    let what = format!("the last chunk is nearly empty; {how}");
    Some(facts.finding_of(column, Code::ShortLastChunk, ends, Unit::Values, what))
}

/// A target with which the rows keep nearly all of these values.
fn kept_in_rows(
    facts: &Facts,
    column: &ColumnFacts,
    counted: &Counted,
    ends: Interval,
) -> Option<String> {
    let target = targets(facts).find(|target| {
        let left = target.short_ends.get(column.index);
        !target.fills_pages
            && left.is_some_and(|left| left.high <= ends.low * (1.0 - NEARLY_ALL))
            && price(counted, target) <= PRICE
    })?;
    Some(format!(
        "with a target of {} these values would stay in their rows, and scans of the table would read them too",
        target.bytes
    ))
}

/// A method with which nearly all of these values take fewer chunks, or none.
fn compressed(facts: &Facts, column: &ColumnFacts) -> Option<String> {
    if facts.needs_its_compression(column) {
        return None;
    }
    let parts = column.contents.short_ends;
    let methods = [
        (Method::Lz4, if facts.server.lz4 { parts.lz4 } else { None }),
        (Method::Pglz, parts.pglz),
    ];
    let (method, _) =
        methods.into_iter().find(|(_, part)| part.is_some_and(|part| part.low >= NEARLY_ALL))?;
    Some(format!("compressed with {} these values would take fewer chunks", method.name()))
}

/// A target with which most of the column's values that are out of line stay in their rows.
pub(super) fn target_that_keeps<'f>(
    facts: &'f Facts,
    column: &ColumnFacts,
) -> Option<&'f TargetFacts> {
    let values = facts.counted(column)?.of(Count::OutOfLineValues).estimate;
    targets(facts).find(|target| {
        let left = target.out_of_line.get(column.index);
        left.is_some_and(|left| left.high <= values * MOST_LEFT)
    })
}

/// Vectors out of line, if rows have room for them: the planner estimates a sequential scan by the pages of the table
/// alone (`cost_seqscan`, costsize.c), although comparing vectors reads the TOAST relation too.
fn vectors(facts: &Facts, column: &ColumnFacts, counted: &Counted) -> Option<Finding> {
    let values = counted.of(Count::OutOfLineValues);
    let bytes = counted.of(Count::UncompressedBytes);
    let heap = facts.heap?.bytes;
    let many = values.low >= LEAST && bytes.low >= facts.worth.max(heap) as f64;
    if !column.is_vector || !many {
        return None;
    }
    let target = target_that_keeps(facts, column)?;
    let page = facts.page.bytes() as u64;
    let what = format!(
        "of vectors out of line, which the planner does not count: it expects a scan of the table to read {} pages, but a \
         scan that compares them reads those of the TOAST relation too ({}) and its index for each; with a target of {} \
         they stay in their rows, and scans that do not need them read them as well",
        heap / page,
        facts.toast_facts.bytes / page,
        target.bytes
    );
    Some(facts.finding_of(column, Code::UncountedVectors, bytes, Unit::Bytes, what))
}
