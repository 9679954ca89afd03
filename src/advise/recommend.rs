//! The Pareto front, the candidate that is recommended, and why, in sentences (pure).

use serde::Serialize;

use super::estimate::{Figure, Figures, PrefixRead};
use crate::usage::workload::{Bound, SCAN_WEIGHT, Workload, WorkloadSource};
use toast_format::model::interval::Interval;

/// Growth of the table that reads and writes may cost at most.
const GROWTH_LIMIT: f64 = 0.10;
/// What a change must gain, as a part, to be worth rewriting a table for.
const LEAST_GAIN: f64 = 0.05;
/// Figures that differ by less are equal.
const TIE: f64 = 0.01;
/// Nobody rewrites a table so that a read takes less than this less, in nanoseconds.
const LEAST_CPU_NS: f64 = 1000.0;

/// The weights of pages read from disk and of prefixes in the cost of reads; the rest is that of whole values in memory.
const COLD: f64 = 0.1;
const PREFIX: f64 = 0.1;
/// The weights of WAL of updates of other columns, and of compression, in the cost of writes; the rest is bytes and WAL of
/// updates of the value.
const OTHER: f64 = 0.25;
const COMPRESSION: f64 = 0.15;

/// `--optimize`: what counts most.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Optimize {
    /// Size, reads and writes, weighed by the workload
    #[default]
    Balanced,
    /// Size
    Size,
    /// The time of reads, as long as the table does not grow by more than 10 %
    Read,
    /// Bytes, WAL and CPU time per UPDATE, as long as the table does not grow by more than 10 %
    Write,
}

/// What a candidate is compared by: parts of today's figures, 1 is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    size: f64,
    /// The heap, which a scan reads that does not need the column.
    scan: f64,
    read: f64,
    write: f64,
    /// Whether the heap at most doubles, or the table shrinks by as much as the heap grows.
    pays_for_its_heap: bool,
}

/// An end of an interval, or its middle.
type End = fn(&Interval) -> f64;

const ESTIMATE: End = |change| change.estimate;
const LOW: End = |change| change.low;
const HIGH: End = |change| change.high;

/// A part that is not 0, so that its logarithm is finite.
fn part(change: Option<Interval>, end: End) -> f64 {
    change.map_or(1.0, |c| (1.0 + end(&c)).max(0.001))
}

/// By how much a figure grows that has become this part of what it was.
fn growth(figure: &Figure, part: f64) -> f64 {
    figure.value.estimate * (1.0 - 1.0 / part)
}

/// The part that a CPU time has become, and 1 if the difference is too small to notice.
fn noticeable_part(cpu: &Figure, end: End) -> f64 {
    let is_noticeable = growth(cpu, part(cpu.change, ESTIMATE)).abs() >= LEAST_CPU_NS;
    if is_noticeable { part(cpu.change, end) } else { 1.0 }
}

impl Score {
    /// `end`: whether the estimates are compared, or the low or the high ends of all intervals.
    fn new(figures: &Figures, end: End) -> Score {
        let bytes = part(figures.update_bytes.change, end);
        let wal = part(figures.update_wal_bytes.change, end);
        let heap = &figures.files.heap_bytes;
        let total = &figures.files.total_bytes;
        let size = part(total.change, end);
        let scan = part(heap.change, end);

        let costs = &figures.costs;
        let cold = part(costs.cold_pages.change, end);
        let other = part(costs.other_wal_bytes.change, end);
        let PrefixRead { cpu_ns: prefix, .. } = costs.prefix_read.unwrap_or_default();
        Score {
            size,
            scan,
            pays_for_its_heap: scan <= 2.0 || growth(heap, scan) <= -growth(total, size),
            read: noticeable_part(&figures.read_cpu_ns.figure, end).powf(1.0 - COLD - PREFIX)
                * cold.powf(COLD)
                * noticeable_part(&prefix.figure, end).powf(PREFIX),
            write: (bytes * wal).powf((1.0 - OTHER - COMPRESSION) / 2.0)
                * other.powf(OTHER)
                * noticeable_part(&costs.write_cpu_ns.figure, end).powf(COMPRESSION),
        }
    }

    /// The lower the better; today is 1.
    fn value(&self, goal: &Goal) -> f64 {
        let workload = &goal.workload;
        let scan = self.scan.powf(SCAN_WEIGHT);
        match goal.optimize {
            Optimize::Size => self.size * self.read.powf(0.02),
            Optimize::Read => self.read * self.size.powf(0.1) * scan,
            Optimize::Write => self.write * self.read.powf(0.05) * scan,
            Optimize::Balanced => {
                let ratio = workload.ratio().max(0.0);
                let reads = ratio / (1.0 + ratio);
                // Half for size, half for time, that in the proportion of reads to writes.
                let log = 0.5 * self.size.ln()
                    + 0.5 * (reads * self.read.ln() + (1.0 - reads) * self.write.ln());
                log.exp() * self.scan.powf(workload.scan_weight())
            }
        }
    }

    fn is_allowed(&self, optimize: Optimize) -> bool {
        match optimize {
            Optimize::Size => self.read <= 4.0,
            Optimize::Read => self.size <= 1.0 + GROWTH_LIMIT,
            Optimize::Write => self.size <= 1.0 + GROWTH_LIMIT && self.pays_for_its_heap,
            // Neither may be bought with a multiple of the other.
            Optimize::Balanced => {
                self.size <= 1.0 + 2.0 * GROWTH_LIMIT
                    && self.read <= 2.0
                    && self.write <= 2.0
                    && self.pays_for_its_heap
            }
        }
    }

    /// Whether it is nowhere worse, and somewhere better by more than a tie.
    fn beats(&self, other: &Score) -> bool {
        let mine = [self.size, self.read, self.write, self.scan];
        let theirs = [other.size, other.read, other.write, other.scan];
        let mut pairs = mine.iter().zip(&theirs);
        pairs.all(|(mine, theirs)| mine <= theirs)
            && mine.iter().zip(&theirs).any(|(mine, theirs)| *mine < theirs * (1.0 - TIE))
    }
}

/// What a recommendation is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Goal {
    pub optimize: Optimize,
    pub workload: Workload,
}

/// A candidate's score, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct Weighed {
    score: Score,
    /// The lower the better; today is 1.
    value: Interval,
    /// Whether the server would refuse rows of the table.
    is_refused: bool,
    /// Of candidates that the sample cannot distinguish, the one of the lowest rank changes least and is recommended.
    /// `None` is today's storage.
    rank: Option<u8>,
    /// Whether the server takes all rows, and the candidate is not out of proportion.
    is_allowed: bool,
    /// Whether it gains enough, and surely, for the table to be rewritten.
    is_worth: bool,
}

impl Weighed {
    pub fn new(figures: &Figures, is_refused: bool, rank: Option<u8>, goal: &Goal) -> Weighed {
        let score = Score::new(figures, ESTIMATE);
        let value = Interval {
            estimate: score.value(goal),
            low: Score::new(figures, LOW).value(goal),
            high: Score::new(figures, HIGH).value(goal),
        };
        let is_allowed = !is_refused && (rank.is_none() || score.is_allowed(goal.optimize));
        let is_worth =
            rank.is_some() && is_allowed && value.estimate <= 1.0 - LEAST_GAIN && value.high < 1.0;
        Weighed { score, value, is_refused, rank, is_allowed, is_worth }
    }

    /// Whether none of `all` is as good in size, reads, writes and scans that do not need the column, and better in one.
    /// Differences of less than 1 % do not count, and what is stored now is beaten only by what is worth a rewrite.
    pub fn is_on_front(&self, all: &[Weighed]) -> bool {
        let is_beaten = all.iter().any(|other| {
            !other.is_refused
                && (self.rank.is_some() || other.is_worth)
                && other.score.beats(&self.score)
        });
        !self.is_refused && !is_beaten
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recommendation {
    /// The candidate; 0 means that nothing should change.
    pub choice: usize,
    /// The best of those that `--optimize` allows, worth rewriting the table for or not.
    pub best: Option<usize>,
    /// The candidate with the better estimates, if the sample cannot distinguish it from the choice, which changes less.
    pub tied: Option<usize>,
}

/// The best of the candidates that `is_wanted` has, by its estimate.
fn best(all: &[Weighed], is_wanted: impl Fn(&Weighed) -> bool) -> Option<usize> {
    let wanted = all.iter().enumerate().filter(|(_, weighed)| is_wanted(weighed));
    let best = wanted.min_by(|(_, a), (_, b)| a.value.estimate.total_cmp(&b.value.estimate));
    best.map(|(at, _)| at)
}

/// The candidate that changes least of those worth a rewrite whose intervals overlap with the best one's.
fn least_change(all: &[Weighed], best: usize) -> Option<usize> {
    let reach = all.get(best)?.value.high;
    let mut tied: Vec<(usize, &Weighed)> = all.iter().enumerate().collect();
    tied.retain(|(_, weighed)| weighed.is_worth && weighed.value.low <= reach);
    let least = tied.into_iter().min_by(|(_, a), (_, b)| {
        a.rank.cmp(&b.rank).then(a.value.estimate.total_cmp(&b.value.estimate))
    });
    least.map(|(at, _)| at)
}

/// Picks the best candidate of the front, or one that changes less and that the sample cannot distinguish from it. The
/// first is today's storage.
pub fn recommend(all: &[Weighed]) -> Recommendation {
    let better = best(all, |weighed| weighed.is_worth && weighed.is_on_front(all));
    let choice = better.and_then(|better| least_change(all, better)).unwrap_or(0);
    let tied = better.filter(|&better| better != choice);
    let best = best(all, |weighed| weighed.is_allowed);
    tracing::debug!(
        "candidate {choice} of {} is recommended, {best:?} is the best allowed: {all:?}",
        all.len()
    );
    Recommendation { choice, best, tied }
}

/// `12 % less size`.
fn words(change: Option<Interval>, what: &str) -> String {
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

/// What counts how much, in sentences.
pub(super) fn weighting(goal: &Goal) -> String {
    let workload = &goal.workload;
    match goal.optimize {
        Optimize::Balanced => {
            let source: String = match workload.source {
                WorkloadSource::Assumed => "assumed: the workload is not known".into(),
                WorkloadSource::Given => "as given".into(),
                WorkloadSource::Statistics(Bound::Least) => {
                    "at least, from the rows read through indexes in pg_stat_user_tables".into()
                }
                WorkloadSource::Statistics(Bound::Most) => {
                    "from all rows read and written in pg_stat_user_tables, including those that toastctl read".into()
                }
                WorkloadSource::Statements(1) => statement_source("one statement"),
                WorkloadSource::Statements(n) => statement_source(&format!("{n} statements")),
            };
            let ratio = format!("{:.1}", workload.ratio());
            let ratio = ratio.strip_suffix(".0").unwrap_or(&ratio);
            let reads = if ratio == "1" { "read" } else { "reads" };
            format!(
                "Size and time have the same weight, and scans that do not need the column {:.0} % of it ({}). Time is \
                 weighted for {ratio} {reads} per write ({source}).",
                workload.scan_weight() / 0.5 * 100.0,
                match workload.scanned {
                    Some(_) => "at most, from the rows that sequential scans read",
                    None => "assumed",
                }
            )
        }
        Optimize::Size => {
            "Size counts most, as requested; where sizes are about equal, the time of reads decides.".into()
        }
        Optimize::Read => {
            "The time of reads counts most, as requested, cold reads and reads of prefixes a tenth each; size and scans that do not need the column have a tenth of its weight, and \
             the table may grow by at most 10 %."
                .into()
        }
        Optimize::Write => {
            "Bytes and WAL per UPDATE count most, as requested; WAL of updates of other columns has a quarter of the weight of \
             writes, and CPU time for compression a seventh; scans that do not need the column have a tenth of their weight, reads \
             a twentieth, and the table may grow by at most 10 %."
                .into()
        }
    }
}

/// A candidate, as the reasons describe it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    pub(super) figures: &'a Figures,
    /// By how much its command changes today's files, as a part of them.
    pub(super) disk_change: f64,
}

/// Why this candidate, in sentences.
pub(super) fn reasons(all: &[Described<'_>], recommendation: Recommendation) -> String {
    let Recommendation { choice, best, tied } = recommendation;
    if choice > 0
        && let Some(chosen) = all.get(choice)
    {
        let tied = tied.and_then(|better| all.get(better)).map_or_else(String::new, |better| {
            format!(
                " The sample is too small to distinguish it from {}, which would change more settings.",
                better.name
            )
        });
        return format!("Use {}. Compared with today: {}.{tied}", chosen.name, chosen.effect());
    }
    match best.filter(|&index| index > 0).and_then(|best| all.get(best)) {
        Some(best) => format!(
            "Keep the current settings. The best alternative, {}, is not worth rewriting the table: {}.",
            best.name,
            best.effect()
        ),
        None => "Keep the current settings. No candidate is better.".to_owned(),
    }
}

impl Described<'_> {
    /// What would change with it: space, reads, writes and scans.
    fn effect(&self) -> String {
        let figures = self.figures;
        let heap = figures.files.heap_bytes.change;
        let space = words(Some(Interval::exact(self.disk_change)), "space on disk");
        let read = words(figures.read_cpu_ns.figure.change, "CPU time");
        let write = words(figures.update_wal_bytes.change, "WAL");
        let mut text = format!("{space}, {read} per read, {write} per UPDATE");
        let other = figures.costs.other_wal_bytes.change;
        if other.is_some_and(|change| change.estimate.abs() >= LEAST_GAIN) {
            text.push_str(&format!(", {} per UPDATE of other columns", words(other, "WAL")));
        }
        if heap.is_some_and(|change| change.estimate.abs() >= 0.005) {
            let scan = words(heap, "buffers");
            text.push_str(&format!(", {scan} in scans that do not need the column"));
        }
        text
    }
}

/// What a workload guessed from texts rests on.
fn statement_source(statements: &str) -> String {
    format!(
        "estimated from {statements} in pg_stat_statements that name table and column, by the rows returned and changed; \
         rows that aggregates read are not included"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::estimate::{CpuTime, FileSizes, FurtherCosts};
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    struct Entry {
        figures: Figures,
        is_refused: bool,
        rank: u8,
        disk_change: f64,
    }

    fn entry(size: f64, read: f64, write: f64, rank: u8) -> Entry {
        let figure = |part: f64| Figure {
            value: Interval::exact(part * 1e6),
            change: Some(Interval { estimate: part - 1.0, low: part - 1.01, high: part - 0.99 }),
        };
        let cpu = |part: f64| CpuTime { figure: figure(part), calibrated: false };
        Entry {
            figures: Figures {
                files: FileSizes { total_bytes: figure(size), ..FileSizes::default() },
                read_cpu_ns: cpu(read),
                update_bytes: figure(write),
                update_wal_bytes: figure(write),
                costs: FurtherCosts {
                    write_cpu_ns: cpu(write),
                    other_wal_bytes: figure(write),
                    prefix_read: Some(PrefixRead { cpu_ns: cpu(read), ..PrefixRead::default() }),
                    cold_pages: figure(read),
                    ..FurtherCosts::default()
                },
                ..Figures::default()
            },
            is_refused: false,
            rank,
            disk_change: size - 1.0,
        }
    }

    /// The first is today's storage.
    fn weighed(entries: &[Entry], goal: &Goal) -> Vec<Weighed> {
        let ranks = std::iter::once(None).chain(entries.iter().skip(1).map(|e| Some(e.rank)));
        let all = entries.iter().zip(ranks);
        all.map(|(e, rank)| Weighed::new(&e.figures, e.is_refused, rank, goal)).collect()
    }

    fn goal(optimize: Optimize) -> Goal {
        Goal { optimize, workload: Workload::default() }
    }

    fn recommended(entries: &[Entry], optimize: Optimize) -> Recommendation {
        recommend(&weighed(entries, &goal(optimize)))
    }

    fn choice(entries: &[Entry], optimize: Optimize) -> usize {
        recommended(entries, optimize).choice
    }

    fn pareto(entries: &[Entry], goal: &Goal) -> Vec<bool> {
        let all = weighed(entries, goal);
        all.iter().map(|one| one.is_on_front(&all)).collect()
    }

    #[test]
    fn growth_is_refused_and_small_gains_are_not_worth_it() {
        let today = entry(1.0, 1.0, 1.0, 0);
        // the thread's last case
        let grows = entry(1.42, 0.8, 1.3, 1);
        assert_eq!(choice(&[today, grows], Optimize::Read), 0);
        assert_eq!(choice(&[today, grows], Optimize::Balanced), 0);
        let faster = entry(1.03, 0.8, 1.0, 1);
        assert_eq!(choice(&[today, grows, faster], Optimize::Read), 2);
        assert_eq!(choice(&[today, entry(0.97, 1.0, 1.0, 1)], Optimize::Size), 0);
        assert_eq!(choice(&[today, entry(0.7, 1.0, 1.0, 1)], Optimize::Size), 1);
        let refused = Entry { is_refused: true, ..entry(0.1, 0.1, 0.1, 1) };
        assert_eq!(choice(&[today, refused], Optimize::Balanced), 0);
    }

    #[test]
    fn of_equals_the_lower_rank_is_taken() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let entries = [today, entry(1.0, 0.8, 1.0, 2), entry(1.0, 0.8, 1.0, 1)];
        assert_eq!(choice(&entries, Optimize::Read), 2);
    }

    #[test]
    fn of_what_the_sample_does_not_tell_apart_the_smaller_change_is_taken_and_it_is_said() {
        let today = entry(1.0, 1.0, 1.0, 0);
        // their intervals are ±1 %
        let close = [today, entry(0.80, 1.0, 1.0, 9), entry(0.815, 1.0, 1.0, 1)];
        let chosen = recommended(&close, Optimize::Size);
        assert_eq!(chosen, Recommendation { choice: 2, best: Some(1), tied: Some(1) });
        let apart = [today, entry(0.80, 1.0, 1.0, 9), entry(0.83, 1.0, 1.0, 1)];
        let chosen = recommended(&apart, Optimize::Size);
        assert_eq!(chosen, Recommendation { choice: 1, best: Some(1), tied: None });
        // its interval includes today's size
        let mut unsure = entry(0.9, 1.0, 1.0, 1);
        let change = Interval { estimate: -0.1, low: -0.25, high: 0.05 };
        unsure.figures.files.total_bytes.change = Some(change);
        assert_eq!(choice(&[today, unsure], Optimize::Size), 0);
    }

    #[test]
    fn a_fraction_of_a_microsecond_is_no_reason_to_rewrite_a_table() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let cheaper = |ns: f64| {
            let mut entry = entry(1.01, 0.85, 1.0, 1);
            entry.figures.read_cpu_ns.figure.value = Interval::exact(ns);
            entry.figures.costs = FurtherCosts::default();
            entry
        };
        for optimize in [Optimize::Balanced, Optimize::Read] {
            assert_eq!(choice(&[today, cheaper(1_700.0)], optimize), 0);
            assert_eq!(choice(&[today, cheaper(17_000.0)], optimize), 1);
        }
    }

    #[test]
    fn the_front_holds_what_nothing_beats() {
        let entries = [
            entry(1.0, 1.0, 1.0, 0),
            entry(0.8, 1.2, 1.0, 1),
            entry(0.9, 1.3, 1.0, 1),
            Entry { is_refused: true, ..entry(0.1, 0.1, 0.1, 1) },
        ];
        let front = |entries: &[Entry]| pareto(entries, &goal(Optimize::Read));
        assert_eq!(front(&entries), [true, true, false, false]);
        // what is stored now stands against what is not worth a rewrite
        assert_eq!(front(&[entries[0], entry(0.97, 1.0, 1.0, 1)]), [true, true]);
        assert_eq!(front(&[entries[0], entry(0.97, 0.5, 1.0, 1)]), [false, true]);
        // a heap that a scan reads in vain is a figure like the others
        let mut wide = entry(0.8, 1.2, 1.0, 1);
        wide.figures.files.heap_bytes.change = Some(Interval::exact(9.0));
        assert_eq!(front(&[entries[0], entries[1], wide]), [true, true, false]);
        assert_eq!(front(&[entries[0], wide, entry(0.9, 1.3, 1.0, 1)]), [true, true, true]);
    }

    /// 100 bytes of heap and 900 out of line; then `heap` and `total`.
    fn moved(heap: f64, total: f64, read: f64) -> Entry {
        let figure = |value: f64, before: f64| Figure {
            value: Interval::exact(value),
            change: Some(Interval::exact(value / before - 1.0)),
        };
        let mut entry = entry(1.0, read, 1.0, 1);
        entry.figures.files.heap_bytes = figure(heap, 100.0);
        entry.figures.files.total_bytes = figure(total, 1000.0);
        entry
    }

    #[test]
    fn a_heap_that_grows_many_times_is_taken_only_where_the_table_shrinks_by_as_much() {
        let today = moved(100.0, 1000.0, 1.0);
        let choice = |entry, optimize| choice(&[today, entry], optimize);
        // values into the row as they are: no smaller
        let inlined = moved(1030.0, 1030.0, 0.05);
        assert_eq!(choice(inlined, Optimize::Balanced), 0);
        assert_eq!(choice(inlined, Optimize::Write), 0);
        assert_eq!(choice(inlined, Optimize::Read), 1);
        // compressed to a sixth, and so into the row
        assert_eq!(choice(moved(250.0, 250.0, 0.05), Optimize::Balanced), 1);
    }

    #[test]
    fn scans_weigh_as_much_as_there_are() {
        let weight = |scanned| Workload { scanned, ..Workload::default() }.scan_weight();
        assert_eq!([weight(None), weight(Some(0.0)), weight(Some(1.0))], [0.1, 0.0, 0.2]);
        let today = moved(100.0, 1000.0, 1.0);
        // a tenth faster to read, and half as much again to scan
        let entries = [today, moved(150.0, 1000.0, 0.87)];
        let choice = |scanned| {
            let workload = Workload { scanned: Some(scanned), ..Workload::default() };
            let goal = Goal { optimize: Optimize::Balanced, workload };
            recommend(&weighed(&entries, &goal)).choice
        };
        assert_eq!([choice(0.0), choice(1.0)], [1, 0]);
    }

    #[test]
    fn reasons_are_sentences() {
        let entries = [entry(1.0, 1.0, 1.0, 0), entry(0.8, 0.7, 2.5, 0)];
        let described = ["today", "extended lz4"].iter().zip(&entries);
        let described: Vec<Described> = described
            .map(|(name, Entry { figures, disk_change, .. })| Described {
                name,
                figures,
                disk_change: *disk_change,
            })
            .collect();
        let workload = Workload {
            reads_per_write: Some(100.0),
            source: WorkloadSource::Statistics(Bound::Least),
            scanned: Some(0.5),
        };
        let chosen = Recommendation { choice: 1, best: Some(1), tied: None };
        insta::assert_snapshot!(reasons(&described, chosen), @"Use extended lz4. Compared with today: 20 % less space on disk, 30 % less CPU time per read, 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        let kept = Recommendation { choice: 0, best: Some(1), tied: None };
        insta::assert_snapshot!(reasons(&described, kept), @"Keep the current settings. The best alternative, extended lz4, is not worth rewriting the table: 20 % less space on disk, 30 % less CPU time per read, 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        let none = Recommendation { choice: 0, best: None, tied: None };
        insta::assert_snapshot!(reasons(&described[..1], none), @"Keep the current settings. No candidate is better.");
        insta::assert_snapshot!(weighting(&Goal { optimize: Optimize::Read, workload }), @"The time of reads counts most, as requested, cold reads and reads of prefixes a tenth each; size and scans that do not need the column have a tenth of its weight, and the table may grow by at most 10 %.");
        insta::assert_snapshot!(weighting(&Goal { optimize: Optimize::Balanced, workload }), @"Size and time have the same weight, and scans that do not need the column 20 % of it (at most, from the rows that sequential scans read). Time is weighted for 100 reads per write (at least, from the rows read through indexes in pg_stat_user_tables).");
        let texts = Workload { source: WorkloadSource::Statements(3), ..workload };
        insta::assert_snapshot!(weighting(&Goal { optimize: Optimize::Balanced, workload: texts }), @"Size and time have the same weight, and scans that do not need the column 20 % of it (at most, from the rows that sequential scans read). Time is weighted for 100 reads per write (estimated from 3 statements in pg_stat_statements that name table and column, by the rows returned and changed; rows that aggregates read are not included).");
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let part = || prop_oneof![Just(1.0), 0.01f64..3.0, 0.97f64..1.03];
        (part(), part(), part(), part(), 0u8..4, proptest::bool::weighted(0.1)).prop_map(
            |(size, read, write, scan, rank, refused)| {
                let mut entry = Entry { is_refused: refused, ..entry(size, read, write, rank) };
                let change = Interval { estimate: scan - 1.0, low: scan - 1.0, high: scan - 1.0 };
                entry.figures.files.heap_bytes.change = Some(change);
                entry.figures.files.heap_bytes.value = Interval::exact(100.0 * scan);
                entry.figures.files.total_bytes.value = Interval::exact(500.0 * size);
                entry
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_recommended_or_tied_with_it_is_on_the_front(
            candidates in proptest::collection::vec(any_entry(), 0..15),
            ratio in 0.0f64..1000.0,
            scanned in proptest::option::of(0.0f64..1.0),
        ) {
            let mut entries = vec![entry(1.0, 1.0, 1.0, 0)];
            entries.extend(candidates);
            let workload = Workload { reads_per_write: Some(ratio), scanned, ..Workload::default() };
            for optimize in [Optimize::Balanced, Optimize::Size, Optimize::Read, Optimize::Write] {
                let goal = Goal { optimize, workload };
                let Recommendation { choice, tied, .. } = recommend(&weighed(&entries, &goal));
                let front = pareto(&entries, &goal);
                let best = tied.unwrap_or(choice);
                prop_assert!(front[best], "{best} {optimize:?} {front:?} {entries:#?}");
                prop_assert!(entries[choice].rank <= entries[best].rank);
            }
        }
    }
}
