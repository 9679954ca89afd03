//! Why a candidate is recommended, in sentences.

use super::recommend::{Entry, Optimize, Recommendation};
use crate::model::estimate::Estimate;
use crate::usage::workload::{Bound, Workload, WorkloadSource};

/// `12 % less size`.
fn words(change: Option<Estimate>, what: &str) -> String {
    let part = change.map_or(0.0, |c| c.estimate);
    if part.abs() < 0.005 {
        format!("the same {what}")
    } else if part >= 1.0 {
        format!("{:.1} times the {what}", 1.0 + part)
    } else {
        let less = if what == "buffers" { "fewer" } else { "less" };
        let direction = if part < 0.0 { less } else { "more" };
        format!("{:.0} % {direction} {what}", part.abs() * 100.0)
    }
}

/// Why this candidate, in sentences.
pub(super) fn reasons(
    entries: &[Entry],
    names: &[String],
    Recommendation { choice, best }: Recommendation,
    optimize: Optimize,
    workload: &Workload,
) -> String {
    let goal = match optimize {
        Optimize::Balanced => {
            let source: String = match workload.source {
                WorkloadSource::Assumed => "assumed: the workload is not known".into(),
                WorkloadSource::Given => "as given".into(),
                WorkloadSource::Statistics(Bound::Least) => {
                    "at least, by the rows read through indexes that pg_stat_user_tables counted".into()
                }
                WorkloadSource::Statistics(Bound::Most) => {
                    "by all rows read and written that pg_stat_user_tables counted, those of toastctl \
                     among them"
                        .into()
                }
                WorkloadSource::Statements(1) => statement_source("one statement"),
                WorkloadSource::Statements(n) => statement_source(&format!("{n} statements")),
            };
            let ratio = format!("{:.1}", workload.ratio());
            let ratio = ratio.strip_suffix(".0").unwrap_or(&ratio);
            let reads = if ratio == "1" { "read" } else { "reads" };
            format!(
                "Size and time count equally, and scans that do not need the column {:.0} % as much \
                 ({}); time is weighted for {ratio} {reads} per write ({source}).",
                workload.scan_weight() / 0.5 * 100.0,
                match workload.scanned {
                    Some(_) => "at most, by the rows that sequential scans read",
                    None => "assumed",
                }
            )
        }
        Optimize::Size => {
            "Size counts, as asked, and of about equal ones the time of reads.".into()
        }
        Optimize::Read => {
            "The time of reads counts, as asked, size and scans that do not need the \
             column a tenth as much, and the table may grow by 10 % at most."
                .into()
        }
        Optimize::Write => "Bytes and WAL per UPDATE count, as asked, scans that do not need the \
             column a tenth as much, reads a twentieth, and the table may grow by 10 % at most."
            .into(),
    };
    let name = |index: usize| names.get(index).map_or("", String::as_str);
    let effect = |index: usize| {
        entries.get(index).map_or_else(String::new, |entry| {
            let f = &entry.figures;
            let space = words(f.total_bytes.change, "space");
            let read = words(f.read_cpu_ns.change, "CPU time");
            let write = words(f.update_wal_bytes.change, "WAL");
            if f.heap_bytes.change.is_none_or(|change| change.estimate.abs() < 0.005) {
                return format!("{space}, {read} per read and {write} per UPDATE");
            }
            format!(
                "{space}, {read} per read, {write} per UPDATE and {} in scans that do not need the \
                 column",
                words(f.heap_bytes.change, "buffers")
            )
        })
    };
    if choice > 0 {
        return format!(
            "{} takes {} than today. {goal}",
            capitalized(name(choice)),
            effect(choice)
        );
    }
    match best.filter(|&index| index > 0) {
        Some(index) => format!(
            "Leave it as it is: the best alternative, {}, would take {}, which is not worth \
             rewriting the table. {goal}",
            name(index),
            effect(index)
        ),
        None => format!("Leave it as it is: no candidate is better. {goal}"),
    }
}

/// What a workload guessed from texts rests on.
fn statement_source(statements: &str) -> String {
    format!(
        "guessed from {statements} in pg_stat_statements whose text names table and column, by the \
         rows returned and changed; what aggregates looked at is not among them"
    )
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::estimate::{Figure, Figures};

    fn entry(size: f64, read: f64, write: f64) -> Entry {
        let figure = |part: f64| Figure {
            value: Estimate::default(),
            change: Some(Estimate { estimate: part - 1.0, low: part - 1.01, high: part - 0.99 }),
        };
        let figures = Figures {
            total_bytes: figure(size),
            read_cpu_ns: figure(read),
            update_bytes: figure(write),
            update_wal_bytes: figure(write),
            ..Figures::default()
        };
        Entry { figures, refused: false, rank: 0 }
    }

    #[test]
    fn reasons_are_sentences() {
        let entries = [entry(1.0, 1.0, 1.0), entry(0.8, 0.7, 2.5)];
        let names = ["today".to_owned(), "extended lz4".to_owned()];
        let workload = Workload {
            reads_per_write: Some(100.0),
            source: WorkloadSource::Statistics(Bound::Least),
            scanned: Some(0.5),
        };
        let chosen = Recommendation { choice: 1, best: Some(1) };
        let r = reasons(&entries, &names, chosen, Optimize::Read, &workload);
        insta::assert_snapshot!(r, @"Extended lz4 takes 20 % less space, 30 % less CPU time per read and 2.5 times the WAL per UPDATE than today. The time of reads counts, as asked, size and scans that do not need the column a tenth as much, and the table may grow by 10 % at most.");
        let texts = Workload { source: WorkloadSource::Statements(3), ..workload };
        let none = Recommendation { choice: 0, best: None };
        let r = reasons(&entries[..1], &names[..1], none, Optimize::Balanced, &texts);
        insta::assert_snapshot!(r, @"Leave it as it is: no candidate is better. Size and time count equally, and scans that do not need the column 20 % as much (at most, by the rows that sequential scans read); time is weighted for 100 reads per write (guessed from 3 statements in pg_stat_statements whose text names table and column, by the rows returned and changed; what aggregates looked at is not among them).");
        let r = reasons(&entries[..1], &names[..1], none, Optimize::Balanced, &workload);
        insta::assert_snapshot!(r, @"Leave it as it is: no candidate is better. Size and time count equally, and scans that do not need the column 20 % as much (at most, by the rows that sequential scans read); time is weighted for 100 reads per write (at least, by the rows read through indexes that pg_stat_user_tables counted).");
    }
}
