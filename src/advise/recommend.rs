//! The Pareto front, the recommended candidate and the reasons, in plain words.

use std::fmt;

use super::estimate::Figures;
use crate::model::estimate::Estimate;

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
    /// Bytes and WAL per UPDATE, as long as the table does not grow by more than 10 %
    Write,
}

/// What is known of how the table is used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Workload {
    /// Rows read for each row written.
    pub reads_per_write: Option<f64>,
    /// Where that comes from.
    pub source: WorkloadSource,
}

/// Where the workload is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkloadSource {
    /// Nothing is known: 10 reads per write are assumed.
    #[default]
    Assumed,
    Given,
    Statistics,
    /// The texts of so many statements in `pg_stat_statements`.
    Statements(usize),
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadSource::Assumed => "assumed",
            WorkloadSource::Given => "given",
            WorkloadSource::Statistics => "pg_stat_user_tables",
            WorkloadSource::Statements(_) => "pg_stat_statements",
        })
    }
}

impl Workload {
    /// Reads for each write, assumed if not known.
    pub fn ratio(&self) -> f64 {
        self.reads_per_write.unwrap_or(10.0)
    }
}

/// Growth of the table that reads and writes may cost at most.
const GROWTH_LIMIT: f64 = 0.10;
/// What a change must gain, as a part, to be worth rewriting a table for.
const LEAST_GAIN: f64 = 0.05;
/// How a heap that grows weighs against the column's own reads: a tenfold one by a quarter.
const HEAP_WEIGHT: f64 = 0.1;
/// Scores that differ by less are equal; then the earlier in [`Rank`] is taken.
const TIE: f64 = 0.01;

/// What a candidate is compared by: parts of today's figures, 1 is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    size: f64,
    /// The heap alone: what a scan reads that does not need the column.
    heap: f64,
    read: f64,
    write: f64,
}

/// A part that is not 0, so that its logarithm is finite.
fn part(change: Option<Estimate>) -> f64 {
    change.map_or(1.0, |c| (1.0 + c.estimate).max(0.001))
}

impl Score {
    fn of(figures: &Figures) -> Score {
        let bytes = part(figures.update_bytes.change);
        let wal = part(figures.update_wal_bytes.change);
        Score {
            size: part(figures.total_bytes.change),
            heap: part(figures.heap_bytes.change),
            read: part(figures.read_cpu_ns.change),
            write: (bytes * wal).sqrt(),
        }
    }

    /// The lower the better; today is 1.
    fn value(&self, optimize: Optimize, workload: &Workload) -> f64 {
        let heap = self.heap.powf(HEAP_WEIGHT);
        match optimize {
            Optimize::Size => self.size * self.read.powf(0.02),
            Optimize::Read => self.read * self.size.powf(0.1) * heap,
            Optimize::Write => self.write * self.read.powf(0.05) * heap,
            Optimize::Balanced => {
                let ratio = workload.ratio().max(0.0);
                let reads = ratio / (1.0 + ratio);
                // Half for size, half for time, that in the proportion of reads to writes.
                let log = 0.5 * self.size.ln()
                    + 0.5 * (reads * self.read.ln() + (1.0 - reads) * self.write.ln());
                log.exp() * heap
            }
        }
    }

    fn is_allowed(&self, optimize: Optimize) -> bool {
        match optimize {
            Optimize::Size => self.read <= 4.0,
            Optimize::Read | Optimize::Write => self.size <= 1.0 + GROWTH_LIMIT,
            // Neither may be bought with a multiple of the other.
            Optimize::Balanced => {
                self.size <= 1.0 + 2.0 * GROWTH_LIMIT && self.read <= 2.0 && self.write <= 2.0
            }
        }
    }
}

/// What is known of a candidate beside its figures. Today's comes first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    pub figures: Figures,
    /// Whether the server would refuse rows of the table.
    pub refused: bool,
    /// Lower is taken of equals: what is decided value by value protects the values to come.
    pub rank: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    /// The candidate; 0 is to leave it as it is.
    pub choice: usize,
    pub reasons: String,
}

/// For each entry whether no other is at least as good in size, read and write and better in one.
pub fn pareto(entries: &[Entry]) -> Vec<bool> {
    let scores: Vec<Score> = entries.iter().map(|e| Score::of(&e.figures)).collect();
    let beats = |a: &Score, b: &Score| {
        const LESS: f64 = 1.0 - 1e-6;
        let no_worse = a.size <= b.size && a.read <= b.read && a.write <= b.write;
        no_worse && (a.size < b.size * LESS || a.read < b.read * LESS || a.write < b.write * LESS)
    };
    scores
        .iter()
        .zip(entries)
        .map(|(score, entry)| {
            !entry.refused
                && !scores.iter().zip(entries).any(|(other, e)| !e.refused && beats(other, score))
        })
        .collect()
}

/// Picks an entry; `names` are those of the entries.
pub fn recommend(
    entries: &[Entry],
    names: &[String],
    optimize: Optimize,
    workload: &Workload,
) -> Recommendation {
    let mut best: Option<(usize, f64)> = None;
    for (index, entry) in entries.iter().enumerate() {
        let score = Score::of(&entry.figures);
        if entry.refused || (index > 0 && !score.is_allowed(optimize)) {
            continue;
        }
        let value = score.value(optimize, workload);
        let better = match best {
            None => true,
            Some((at, other)) if (value / other - 1.0).abs() <= TIE => {
                let rank = |at: usize| entries.get(at).map_or(0, |e| e.rank);
                at != 0 && rank(index) < rank(at)
            }
            Some((_, other)) => value < other,
        };
        if better {
            best = Some((index, value));
        }
    }
    let worth = best.filter(|&(index, value)| {
        index > 0 && value <= 1.0 - LEAST_GAIN && entries.get(index).is_some_and(is_certain)
    });
    let choice = worth.map_or(0, |(index, _)| index);
    let reasons = reasons(entries, names, choice, best.map(|b| b.0), optimize, workload);
    Recommendation { choice, reasons }
}

/// Whether the sample leaves no doubt that something gets better.
fn is_certain(entry: &Entry) -> bool {
    let better = |change: Option<Estimate>| change.is_some_and(|c| c.high < 0.0);
    let f = &entry.figures;
    [f.total_bytes, f.read_cpu_ns, f.update_bytes, f.update_wal_bytes]
        .iter()
        .any(|figure| better(figure.change))
}

/// `12 % less size`.
fn words(change: Option<Estimate>, what: &str) -> String {
    let part = change.map_or(0.0, |c| c.estimate);
    if part.abs() < 0.005 {
        format!("the same {what}")
    } else if part >= 1.0 {
        format!("{:.1} times the {what}", 1.0 + part)
    } else {
        let direction = if part < 0.0 { "less" } else { "more" };
        format!("{:.0} % {direction} {what}", part.abs() * 100.0)
    }
}

fn reasons(
    entries: &[Entry],
    names: &[String],
    choice: usize,
    best: Option<usize>,
    optimize: Optimize,
    workload: &Workload,
) -> String {
    let goal = match optimize {
        Optimize::Balanced => {
            let source: String = match workload.source {
                WorkloadSource::Assumed => "assumed: the workload is not known".into(),
                WorkloadSource::Given => "as given".into(),
                WorkloadSource::Statistics => "as pg_stat_user_tables counted".into(),
                WorkloadSource::Statements(1) => statement_source("one statement"),
                WorkloadSource::Statements(n) => statement_source(&format!("{n} statements")),
            };
            let ratio = format!("{:.1}", workload.ratio());
            format!(
                "Size and time count equally; time is weighted for {} reads per write ({source}).",
                ratio.strip_suffix(".0").unwrap_or(&ratio)
            )
        }
        Optimize::Size => "Only size counts, as asked.".into(),
        Optimize::Read => {
            "The time of reads counts, as asked, and the table may grow by 10 % at most.".into()
        }
        Optimize::Write => {
            "Bytes and WAL per UPDATE count, as asked, and the table may grow by 10 % at most."
                .into()
        }
    };
    let name = |index: usize| names.get(index).map_or("", String::as_str);
    let effect = |index: usize| {
        entries.get(index).map_or_else(String::new, |entry| {
            let f = &entry.figures;
            format!(
                "{}, {} per read and {} per UPDATE",
                words(f.total_bytes.change, "space"),
                words(f.read_cpu_ns.change, "CPU time"),
                words(f.update_wal_bytes.change, "WAL")
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
    use crate::advise::estimate::Figure;

    fn entry(size: f64, read: f64, write: f64, rank: u8) -> Entry {
        let figure = |part: f64| Figure {
            value: Estimate::default(),
            change: Some(Estimate { estimate: part - 1.0, low: part - 1.01, high: part - 0.99 }),
        };
        Entry {
            figures: Figures {
                total_bytes: figure(size),
                read_cpu_ns: figure(read),
                update_bytes: figure(write),
                update_wal_bytes: figure(write),
                ..Figures::default()
            },
            refused: false,
            rank,
        }
    }

    fn choice(entries: &[Entry], optimize: Optimize) -> usize {
        let names = vec![String::from("x"); entries.len()];
        recommend(entries, &names, optimize, &Workload::default()).choice
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
    fn the_front_holds_what_nothing_beats() {
        let entries = [
            entry(1.0, 1.0, 1.0, 0),
            entry(0.8, 1.2, 1.0, 1),
            entry(0.9, 1.3, 1.0, 1),
            Entry { refused: true, ..entry(0.1, 0.1, 0.1, 1) },
        ];
        assert_eq!(pareto(&entries), [true, true, false, false]);
    }

    #[test]
    fn reasons_are_sentences() {
        let entries = [entry(1.0, 1.0, 1.0, 0), entry(0.8, 0.7, 2.5, 1)];
        let names = ["today".to_owned(), "extended lz4".to_owned()];
        let workload =
            Workload { reads_per_write: Some(100.0), source: WorkloadSource::Statistics };
        let r = recommend(&entries, &names, Optimize::Read, &workload);
        insta::assert_snapshot!(r.reasons, @"Extended lz4 takes 20 % less space, 30 % less CPU time per read and 2.5 times the WAL per UPDATE than today. The time of reads counts, as asked, and the table may grow by 10 % at most.");
        let texts = Workload { source: WorkloadSource::Statements(3), ..workload };
        let r = recommend(&entries[..1], &names[..1], Optimize::Balanced, &texts);
        insta::assert_snapshot!(r.reasons, @"Leave it as it is: no candidate is better. Size and time count equally; time is weighted for 100 reads per write (guessed from 3 statements in pg_stat_statements whose text names table and column, by the rows returned and changed; what aggregates looked at is not among them).");
        let r = recommend(&entries[..1], &names[..1], Optimize::Balanced, &workload);
        insta::assert_snapshot!(r.reasons, @"Leave it as it is: no candidate is better. Size and time count equally; time is weighted for 100 reads per write (as pg_stat_user_tables counted).");
    }
}
