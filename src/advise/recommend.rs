//! The Pareto front, the candidate that is recommended, and why, in sentences (pure).

use super::estimate::{Figure, Figures};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
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

        let further = &figures.further;
        let cold = part(further.cold_pages.change, end);
        let other = part(further.other_wal_bytes.change, end);
        Score {
            size,
            scan,
            pays_for_its_heap: scan <= 2.0 || growth(heap, scan) <= -growth(total, size),
            read: noticeable_part(&figures.read_cpu_ns, end).powf(1.0 - COLD - PREFIX)
                * cold.powf(COLD)
                * noticeable_part(&further.prefix_cpu_ns, end).powf(PREFIX),
            write: (bytes * wal).powf((1.0 - OTHER - COMPRESSION) / 2.0)
                * other.powf(OTHER)
                * noticeable_part(&further.write_cpu_ns, end).powf(COMPRESSION),
        }
    }

    /// The lower the better; today is 1.
    fn value(&self, optimize: Optimize, workload: &Workload) -> f64 {
        let scan = self.scan.powf(SCAN_WEIGHT);
        match optimize {
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

/// What is compared of a candidate. The first is today's storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    pub figures: Figures,
    /// Whether the server would refuse rows of the table.
    pub refused: bool,
    /// Of candidates that the sample cannot distinguish, the one of the lowest rank changes least and is recommended.
    pub rank: u8,
    /// By how much its command changes today's files, as a part of them.
    pub disk: f64,
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

/// The entries as they are weighed.
#[derive(Debug)]
struct Weighed {
    scores: Vec<Score>,
    /// The lower the better; today is 1.
    values: Vec<Interval>,
    /// Whether the server takes all rows, and the entry is not out of proportion.
    allowed: Vec<bool>,
    /// Whether it gains enough, and surely, for the table to be rewritten.
    worth: Vec<bool>,
}

impl Weighed {
    fn new(entries: &[Entry], optimize: Optimize, workload: &Workload) -> Weighed {
        let scores: Vec<Score> = entries.iter().map(|e| Score::new(&e.figures, ESTIMATE)).collect();
        let mut values = Vec::with_capacity(entries.len());
        for (entry, score) in entries.iter().zip(&scores) {
            values.push(Interval {
                estimate: score.value(optimize, workload),
                low: Score::new(&entry.figures, LOW).value(optimize, workload),
                high: Score::new(&entry.figures, HIGH).value(optimize, workload),
            });
        }
        let allowed: Vec<bool> = entries
            .iter()
            .zip(&scores)
            .enumerate()
            .map(|(at, (entry, score))| !entry.refused && (at == 0 || score.is_allowed(optimize)))
            .collect();
        let worth = values
            .iter()
            .zip(&allowed)
            .enumerate()
            .map(|(at, (value, &allowed))| {
                at > 0 && allowed && value.estimate <= 1.0 - LEAST_GAIN && value.high < 1.0
            })
            .collect();
        Weighed { scores, values, allowed, worth }
    }

    /// Whether an entry is on the front. What is stored now is beaten only by what is worth a rewrite.
    fn on_front(&self, entries: &[Entry], at: usize) -> bool {
        let Some(score) = self.scores.get(at) else { return false };
        if entries.get(at).is_none_or(|entry| entry.refused) {
            return false;
        }
        !self.scores.iter().zip(entries).enumerate().any(|(other, (other_score, entry))| {
            !entry.refused && (at > 0 || self.is_worth(other)) && other_score.beats(score)
        })
    }

    fn is_worth(&self, at: usize) -> bool {
        self.worth.get(at).copied().unwrap_or(false)
    }

    /// The best of the entries that `wanted` has, by its estimate.
    fn best(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let estimates = self.values.iter().map(|value| value.estimate).enumerate();
        let best = estimates.filter(|&(at, _)| wanted(at)).min_by(|(_, a), (_, b)| a.total_cmp(b));
        best.map(|(at, _)| at)
    }

    /// The entry of the lowest rank among those that `wanted` has and whose intervals overlap with the best one's.
    fn least_change(
        &self,
        entries: &[Entry],
        best: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let reach = self.values.get(best)?.high;
        let tied = self.values.iter().zip(entries).enumerate();
        let tied = tied.filter(|&(at, (value, _))| value.low <= reach && wanted(at));
        let least = tied.min_by(|(_, (a, entry_a)), (_, (b, entry_b))| {
            entry_a.rank.cmp(&entry_b.rank).then(a.estimate.total_cmp(&b.estimate))
        });
        least.map(|(at, _)| at)
    }
}

/// For each entry whether none is as good in size, reads, writes and scans that do not need the column, and
/// better in one. Differences of less than 1 % do not count, and against what is stored now only what is worth
/// rewriting the table.
pub fn pareto(entries: &[Entry], optimize: Optimize, workload: &Workload) -> Vec<bool> {
    let weighed = Weighed::new(entries, optimize, workload);
    (0..entries.len()).map(|at| weighed.on_front(entries, at)).collect()
}

/// Picks the best entry of the front, or one that changes less and that the sample cannot distinguish from it.
pub fn recommend(entries: &[Entry], optimize: Optimize, workload: &Workload) -> Recommendation {
    let weighed = Weighed::new(entries, optimize, workload);
    let better = weighed.best(|at| weighed.is_worth(at) && weighed.on_front(entries, at));
    let choice = better
        .and_then(|best| weighed.least_change(entries, best, |at| weighed.is_worth(at)))
        .unwrap_or(0);
    let tied = better.filter(|&better| better != choice);
    let best = weighed.best(|at| weighed.allowed.get(at).copied().unwrap_or(false));
    tracing::debug!(
        "candidate {choice} of {} is recommended, {best:?} is the best allowed: {weighed:?}",
        entries.len()
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
pub(super) fn weighting(optimize: Optimize, workload: &Workload) -> String {
    match optimize {
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

/// Why this candidate, in sentences.
pub(super) fn reasons(
    entries: &[Entry],
    names: &[String],
    Recommendation { choice, best, tied }: Recommendation,
) -> String {
    let name = |index: usize| names.get(index).map_or("", String::as_str);
    if choice > 0 {
        let tied = tied.map_or_else(String::new, |better| {
            format!(" The sample is too small to distinguish it from {}, which would change more settings.", name(better))
        });
        let effect = entries.get(choice).map(effect).unwrap_or_default();
        return format!("Use {}. Compared with today: {effect}.{tied}", name(choice));
    }
    match best.filter(|&index| index > 0) {
        Some(index) => format!(
            "Keep the current settings. The best alternative, {}, is not worth rewriting the table: {}.",
            name(index),
            entries.get(index).map(effect).unwrap_or_default()
        ),
        None => "Keep the current settings. No candidate is better.".to_owned(),
    }
}

/// What would change with a candidate: space, reads, writes and scans.
fn effect(entry: &Entry) -> String {
    let figures = &entry.figures;
    let heap = figures.files.heap_bytes.change;
    let space = words(Some(Interval::exact(entry.disk)), "space on disk");
    let read = words(figures.read_cpu_ns.change, "CPU time");
    let write = words(figures.update_wal_bytes.change, "WAL");
    let mut text = format!("{space}, {read} per read, {write} per UPDATE");
    let other = figures.further.other_wal_bytes.change;
    if other.is_some_and(|change| change.estimate.abs() >= LEAST_GAIN) {
        text.push_str(&format!(", {} per UPDATE of other columns", words(other, "WAL")));
    }
    if heap.is_some_and(|change| change.estimate.abs() >= 0.005) {
        let scan = words(heap, "buffers");
        text.push_str(&format!(", {scan} in scans that do not need the column"));
    }
    text
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
    use crate::advise::estimate::{FileSizes, Further};
    use proptest::prelude::*;

    fn entry(size: f64, read: f64, write: f64, rank: u8) -> Entry {
        let figure = |part: f64| Figure {
            value: Interval::exact(part * 1e6),
            change: Some(Interval { estimate: part - 1.0, low: part - 1.01, high: part - 0.99 }),
        };
        Entry {
            figures: Figures {
                files: FileSizes { total_bytes: figure(size), ..FileSizes::default() },
                read_cpu_ns: figure(read),
                update_bytes: figure(write),
                update_wal_bytes: figure(write),
                further: Further {
                    write_cpu_ns: figure(write),
                    other_wal_bytes: figure(write),
                    prefix_cpu_ns: figure(read),
                    cold_pages: figure(read),
                    ..Further::default()
                },
                ..Figures::default()
            },
            refused: false,
            rank,
            disk: size - 1.0,
        }
    }

    fn choice(entries: &[Entry], optimize: Optimize) -> usize {
        recommend(entries, optimize, &Workload::default()).choice
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
        let refused = Entry { refused: true, ..entry(0.1, 0.1, 0.1, 1) };
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
        let chosen = recommend(&close, Optimize::Size, &Workload::default());
        assert_eq!(chosen, Recommendation { choice: 2, best: Some(1), tied: Some(1) });
        let apart = [today, entry(0.80, 1.0, 1.0, 9), entry(0.83, 1.0, 1.0, 1)];
        let chosen = recommend(&apart, Optimize::Size, &Workload::default());
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
            entry.figures.read_cpu_ns.value = Interval::exact(ns);
            entry.figures.further = Further::default();
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
            Entry { refused: true, ..entry(0.1, 0.1, 0.1, 1) },
        ];
        let front = |entries: &[Entry]| pareto(entries, Optimize::Read, &Workload::default());
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
            recommend(&entries, Optimize::Balanced, &workload).choice
        };
        assert_eq!([choice(0.0), choice(1.0)], [1, 0]);
    }

    #[test]
    fn reasons_are_sentences() {
        let entries = [entry(1.0, 1.0, 1.0, 0), entry(0.8, 0.7, 2.5, 0)];
        let names = ["today".to_owned(), "extended lz4".to_owned()];
        let workload = Workload {
            reads_per_write: Some(100.0),
            source: WorkloadSource::Statistics(Bound::Least),
            scanned: Some(0.5),
        };
        let chosen = Recommendation { choice: 1, best: Some(1), tied: None };
        insta::assert_snapshot!(reasons(&entries, &names, chosen), @"Use extended lz4. Compared with today: 20 % less space on disk, 30 % less CPU time per read, 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        let kept = Recommendation { choice: 0, best: Some(1), tied: None };
        insta::assert_snapshot!(reasons(&entries, &names, kept), @"Keep the current settings. The best alternative, extended lz4, is not worth rewriting the table: 20 % less space on disk, 30 % less CPU time per read, 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        let none = Recommendation { choice: 0, best: None, tied: None };
        insta::assert_snapshot!(reasons(&entries[..1], &names[..1], none), @"Keep the current settings. No candidate is better.");
        insta::assert_snapshot!(weighting(Optimize::Read, &workload), @"The time of reads counts most, as requested, cold reads and reads of prefixes a tenth each; size and scans that do not need the column have a tenth of its weight, and the table may grow by at most 10 %.");
        insta::assert_snapshot!(weighting(Optimize::Balanced, &workload), @"Size and time have the same weight, and scans that do not need the column 20 % of it (at most, from the rows that sequential scans read). Time is weighted for 100 reads per write (at least, from the rows read through indexes in pg_stat_user_tables).");
        let texts = Workload { source: WorkloadSource::Statements(3), ..workload };
        insta::assert_snapshot!(weighting(Optimize::Balanced, &texts), @"Size and time have the same weight, and scans that do not need the column 20 % of it (at most, from the rows that sequential scans read). Time is weighted for 100 reads per write (estimated from 3 statements in pg_stat_statements that name table and column, by the rows returned and changed; rows that aggregates read are not included).");
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let part = || prop_oneof![Just(1.0), 0.01f64..3.0, 0.97f64..1.03];
        (part(), part(), part(), part(), 0u8..4, proptest::bool::weighted(0.1)).prop_map(
            |(size, read, write, scan, rank, refused)| {
                let mut entry = Entry { refused, ..entry(size, read, write, rank) };
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
                let Recommendation { choice, tied, .. } = recommend(&entries, optimize, &workload);
                let front = pareto(&entries, optimize, &workload);
                let best = tied.unwrap_or(choice);
                prop_assert!(front[best], "{best} {optimize:?} {front:?} {entries:#?}");
                prop_assert!(entries[choice].rank <= entries[best].rank);
            }
        }
    }
}
