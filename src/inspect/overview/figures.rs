//! Named figures of an overview, and conditions about them that raise an alarm (pure).

use strum::VariantArray;

use super::TableFigures;
use super::rank::Ranking;
use crate::findings::code::Severity;
use crate::findings::facts::VALUE_IDS;
use crate::inspect::compare::RunComparison;
use toast_format::model::Interval;

/// What a figure is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// A part of a whole, from 0 to 1.
    Ratio,
    Count,
}

/// A figure of all selected tables. Its name never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
#[allow(missing_docs, reason = "the table below says what each means")]
pub(crate) enum Figure {
    Size,
    ToastSize,
    IndexSize,
    LargestTable,
    FreeSpace,
    FreeRatio,
    DeadRows,
    ValueIdRatio,
    Findings,
    Tables,
    TablesNotRead,
    Problems,
    NewFindings,
    Growth,
}

/// How many figures there are.
const FIGURES: usize = Figure::VARIANTS.len();

/// Each figure's name with what it means, in the order of [`Figure`].
pub(crate) const MEANINGS: [(&str, &str); FIGURES] = [
    ("size", "Size of the tables with TOAST relations and their indexes."),
    ("toast_size", "Size of the TOAST relations."),
    ("index_size", "Size of the other indexes."),
    ("largest_table", "Size of the largest table or partition (Citus: all shards)."),
    ("free_space", "Free space and dead rows (needs pageinspect)."),
    ("free_ratio", "The same as a part of tables and TOAST: 30% or 0.3."),
    ("dead_rows", "Dead rows and chunks, according to statistics."),
    ("value_id_ratio", "Largest part of the value IDs of a TOAST relation in use."),
    ("findings", "Findings of any severity (needs pageinspect)."),
    ("tables", "Selected tables."),
    ("tables_not_read", "Tables locked, inaccessible, or not reached in time."),
    ("problems", "Errors in tables that could not be read completely."),
    ("new_findings", "Findings that the file of --compare does not have."),
    ("growth", "How many bytes larger all tables are than in that file."),
];

impl Figure {
    pub(crate) fn all() -> impl Iterator<Item = Figure> {
        Figure::VARIANTS.iter().copied()
    }

    /// Whether it is known only of a run that is compared with an earlier one.
    pub(crate) fn is_of_change(self) -> bool {
        matches!(self, Figure::NewFindings | Figure::Growth)
    }

    fn entry(self) -> (&'static str, &'static str) {
        // every figure has one, as a test verifies
        MEANINGS.get(self as usize).copied().unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    pub(crate) fn meaning(self) -> &'static str {
        self.entry().1
    }

    pub(crate) fn unit(self) -> Unit {
        match self {
            Figure::Size
            | Figure::ToastSize
            | Figure::IndexSize
            | Figure::LargestTable
            | Figure::FreeSpace
            | Figure::Growth => Unit::Bytes,
            Figure::FreeRatio | Figure::ValueIdRatio => Unit::Ratio,
            Figure::DeadRows
            | Figure::Findings
            | Figure::Tables
            | Figure::TablesNotRead
            | Figure::Problems
            | Figure::NewFindings => Unit::Count,
        }
    }

    /// Whether it is the same if tables are left out.
    fn is_of_all(self) -> bool {
        matches!(self, Figure::Size | Figure::Tables | Figure::TablesNotRead | Figure::Problems)
    }

    /// Whether tables that are left out can only make it larger.
    fn only_grows(self) -> bool {
        !matches!(self, Figure::FreeRatio | Figure::Growth)
    }
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    values: [Option<Interval>; FIGURES],
    /// Findings by severity, the worst first.
    by_severity: [u64; 3],
    /// Why the tables that were not read are missing in all figures but a few.
    left_out: Option<String>,
    /// Why there may be more findings.
    unsearched: Option<String>,
}

/// What is known about a condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Judged {
    /// The figure, or the number of findings, is on the wrong side of the limit.
    Met(Interval),
    NotMet(Interval),
    /// The reason why it is not known.
    Unknown(String),
}

/// The relation of a figure to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Over,
    AtLeast,
    Under,
    AtMost,
}

impl Operator {
    pub(crate) fn is_upward(self) -> bool {
        matches!(self, Operator::Over | Operator::AtLeast)
    }

    pub(crate) fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Operator::Over => value > limit,
            Operator::AtLeast => value >= limit,
            Operator::Under => value < limit,
            Operator::AtMost => value <= limit,
        }
    }
}

/// What raises an alarm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    /// As the user wrote it.
    pub(crate) text: String,
    pub(crate) test: Test,
}

impl Condition {
    /// Whether it is about what has changed since an earlier run.
    pub(crate) fn is_about_change(&self) -> bool {
        matches!(self.test, Test::Figure(figure, ..) if figure.is_of_change())
    }
}

/// The test of a condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Test {
    /// There is a finding of this severity, or of a higher one.
    Severity(Severity),
    /// The figure is on this side of the limit.
    Figure(Figure, Operator, f64),
}

impl Test {
    /// Whether both are about the same figure in the same direction, or about findings.
    fn is_like(&self, other: &Test) -> bool {
        match (self, other) {
            (Test::Severity(_), Test::Severity(_)) => true,
            (Test::Figure(one, a, _), Test::Figure(other, b, _)) => {
                one == other && a.is_upward() == b.is_upward()
            }
            _ => false,
        }
    }

    /// Whether this one is met before `other`, which is like it.
    pub(crate) fn is_before(&self, other: &Test) -> bool {
        match (self, other) {
            (Test::Severity(one), Test::Severity(other)) => one > other,
            (Test::Figure(_, operator, one), Test::Figure(_, _, other)) => {
                if operator.is_upward() {
                    one < other
                } else {
                    one > other
                }
            }
            _ => false,
        }
    }
}

/// Whether a condition is only a warning: a later one about the same figure is the alarm, and none comes earlier.
pub(crate) fn is_warning(condition: &Condition, all: &[Condition]) -> bool {
    let mut alike = all.iter().filter(|other| other.test.is_like(&condition.test));
    let is_first = !alike.clone().any(|other| other.test.is_before(&condition.test));
    is_first && alike.any(|other| condition.test.is_before(&other.test))
}

fn exact(number: u64) -> Option<Interval> {
    Some(Interval::exact(number as f64))
}

impl Figures {
    /// Those of all relations that were read or left out.
    pub(crate) fn of(ranking: &Ranking) -> Figures {
        let totals = ranking.totals();
        let Ranking { most_ids, problems, .. } = *ranking;
        let by_functions = totals.by_functions;
        let TableFigures { heap_bytes, toast_bytes, toast_values, dead_rows, .. } = ranking.all;
        let free = match totals.relations {
            0 => Some(Interval::exact(0)),
            _ => totals.unused_bytes,
        };
        let free = free.map(Interval::<u64>::real);
        let files = heap_bytes.unwrap_or(0).saturating_add(toast_bytes.unwrap_or(0));
        let mut by_severity = [0u64; 3];
        for finding in &ranking.findings {
            if let Some(number) = by_severity.get_mut(finding.code.severity() as usize) {
                *number += 1;
            }
        }
        let missing = ranking.missing();
        let all = totals.tables;
        let left_out = (missing > 0).then(|| format!("tables not read: {missing} of {all}"));
        let unsearched = match (&left_out, by_functions, problems) {
            (Some(why), _, _) => Some(why.clone()),
            (None, 1.., _) => {
                Some(format!("tables whose pages were not read: {by_functions} of {all}"))
            }
            (None, 0, 1..) => Some("part of what was looked at could not be read".to_owned()),
            (None, 0, 0) => None,
        };
        let found: u64 = by_severity.iter().sum();
        let mut values = [None; FIGURES];
        for (slot, figure) in values.iter_mut().zip(Figure::all()) {
            *slot = match figure {
                // of nothing there is no figure
                _ if missing > 0 && !figure.is_of_all() && ranking.counted.read == 0 => None,
                Figure::Size => exact(totals.bytes),
                Figure::ToastSize => exact(toast_bytes.unwrap_or(0)),
                Figure::IndexSize => exact(totals.index_bytes),
                Figure::LargestTable => exact(ranking.largest_table()),
                Figure::FreeSpace => free,
                Figure::FreeRatio if files == 0 => exact(0),
                Figure::FreeRatio => free.map(|free| free.scaled(1.0 / files as f64)),
                Figure::DeadRows => dead_rows.map(|rows| Interval::exact(rows as f64)),
                // where the values of one table are is not known
                Figure::ValueIdRatio if toast_values.is_none() => None,
                Figure::ValueIdRatio => Some(most_ids.real().scaled(1.0 / VALUE_IDS)),
                Figure::Findings if found > 0 || unsearched.is_none() => exact(found),
                Figure::Findings => None,
                Figure::Tables => exact(totals.tables),
                Figure::TablesNotRead => exact(missing),
                Figure::Problems => exact(problems),
                Figure::NewFindings | Figure::Growth => None,
            };
        }
        Figures { values, by_severity, left_out, unsearched }
    }

    /// The same with what has changed since an earlier run.
    pub(crate) fn since(mut self, comparison: &RunComparison) -> Figures {
        let new = comparison.new_findings.len();
        let growth: i64 = comparison.tables.iter().map(|table| table.bytes_change).sum();
        let is_known = new > 0 || self.unsearched.is_none();
        for (figure, value) in [
            (Figure::NewFindings, is_known.then_some(new as f64)),
            (Figure::Growth, Some(growth as f64)),
        ] {
            if let Some(slot) = self.values.get_mut(figure as usize) {
                *slot = value.map(Interval::exact);
            }
        }
        self
    }

    /// The figure; `None` if it is not known.
    pub(crate) fn of_all(&self, figure: Figure) -> Option<Interval> {
        self.values.get(figure as usize).copied().flatten()
    }

    /// The number of findings of exactly this severity; `None` if there are none, but not everything was searched.
    pub(crate) fn findings(&self, severity: Severity) -> Option<u64> {
        let found = self.by_severity.get(severity as usize).copied().unwrap_or_default();
        (found > 0 || self.unsearched.is_none()).then_some(found)
    }

    /// Whether everything that was selected was read.
    pub(crate) fn are_complete(&self) -> bool {
        self.left_out.is_none() && self.of_all(Figure::Problems) == Some(Interval::exact(0.0))
    }

    /// Whether a condition is met, as far as this is known.
    pub(crate) fn judge(&self, test: &Test) -> Judged {
        let (figure, operator, limit, value) = match *test {
            Test::Severity(least) => {
                let number = self.by_severity.iter().take(least as usize + 1).sum::<u64>();
                let value = Some(Interval::exact(number as f64));
                (Figure::Findings, Operator::AtLeast, 1.0, value)
            }
            Test::Figure(figure, operator, limit) => (figure, operator, limit, self.of_all(figure)),
        };
        let why_more = match figure {
            Figure::Findings | Figure::NewFindings => self.unsearched.as_ref(),
            figure if figure.is_of_all() => None,
            _ => self.left_out.as_ref(),
        };
        let Some(value) = value else {
            let why = self.left_out.as_ref().or(self.unsearched.as_ref());
            return Judged::Unknown(
                why.map_or_else(|| "no table was read".to_owned(), Clone::clone),
            );
        };
        let is_met = operator.holds(value.estimate, limit);
        // what is missing can only move it in one direction
        let stays = figure.only_grows() && operator.is_upward() == is_met;
        match why_more {
            Some(why) if !stays => Judged::Unknown(why.clone()),
            _ if is_met => Judged::Met(value),
            _ => Judged::NotMet(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::overview::{Extent, LeftOut};

    fn condition(test: Test) -> Condition {
        Condition { text: String::new(), test }
    }

    #[test]
    fn every_figure_has_its_line() {
        for (at, figure) in Figure::all().enumerate() {
            let (name, meaning) = MEANINGS[at];
            assert_eq!(figure as usize, at, "{name}");
            assert_eq!(figure.name(), name);
            assert_eq!(name.ends_with("_ratio"), figure.unit() == Unit::Ratio, "{name}");
            assert!(meaning.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn of_two_conditions_about_a_figure_the_first_to_be_met_is_the_warning() {
        let over = |limit| condition(Test::Figure(Figure::FreeSpace, Operator::Over, limit));
        let under = |limit| condition(Test::Figure(Figure::FreeSpace, Operator::Under, limit));
        let levels = |all: &[Condition]| -> Vec<bool> {
            all.iter().map(|one| is_warning(one, all)).collect()
        };
        assert_eq!(levels(&[over(5.0)]), [false]);
        assert_eq!(levels(&[over(5.0), over(3.0)]), [false, true]);
        assert_eq!(levels(&[over(5.0), over(3.0), over(4.0)]), [false, true, false]);
        assert_eq!(levels(&[over(5.0), under(3.0)]), [false, false]);
        assert_eq!(levels(&[under(5.0), under(3.0)]), [true, false]);
        assert_eq!(levels(&[over(5.0), over(5.0)]), [false, false]);
        let severity = |severity| condition(Test::Severity(severity));
        let all = [severity(Severity::High), severity(Severity::Medium)];
        assert_eq!(levels(&all), [false, true]);
    }

    #[test]
    fn what_was_not_read_is_never_fine() {
        let mut ranking = Ranking::new(Extent { relations: 2, ..Extent::default() });
        let judged = |ranking: &Ranking, figure, operator, limit| {
            Figures::of(ranking).judge(&Test::Figure(figure, operator, limit))
        };
        let unknown = |judged| matches!(judged, Judged::Unknown(_));
        let left_out = LeftOut::new("t".into(), Some(100), "locked".into());
        ranking.left_out.push(left_out);
        ranking.counted.read = 1;
        ranking.all.dead_rows = Some(10);
        // there may be more of them in the table that was left out, but not fewer
        for (operator, expected) in [
            (Operator::Over, Judged::Met(Interval::exact(10.0))),
            (Operator::Under, Judged::NotMet(Interval::exact(10.0))),
        ] {
            assert_eq!(judged(&ranking, Figure::DeadRows, operator, 5.0), expected);
            assert!(unknown(judged(&ranking, Figure::DeadRows, operator, 15.0)));
        }
        // what is known of all of them is judged
        let not_read = judged(&ranking, Figure::TablesNotRead, Operator::AtLeast, 1.0);
        assert_eq!(not_read, Judged::Met(Interval::exact(1.0)));
        let size = judged(&ranking, Figure::Size, Operator::AtMost, 100.0);
        assert_eq!(size, Judged::Met(Interval::exact(100.0)));
        // nothing is published as 0 where nothing was read
        ranking.counted.read = 0;
        for (figure, is_known) in [(Figure::Size, true), (Figure::ToastSize, false)] {
            assert_eq!(Figures::of(&ranking).of_all(figure).is_some(), is_known);
        }
        ranking.counted.read = 1;
        // a ratio can move in either direction
        assert!(unknown(judged(&ranking, Figure::FreeRatio, Operator::AtLeast, 0.0)));
        let no_findings = Figures::of(&ranking).judge(&Test::Severity(Severity::Low));
        assert_eq!(no_findings, Judged::Unknown("tables not read: 1 of 2".into()));
        assert!(!Figures::of(&ranking).are_complete());
    }

    #[test]
    fn no_tables_are_fine_and_tables_without_pages_are_not() {
        let none = Figures::of(&Ranking::new(Extent::default()));
        let free = Test::Figure(Figure::FreeSpace, Operator::Over, 0.0);
        assert_eq!(none.judge(&free), Judged::NotMet(Interval::exact(0.0)));
        assert_eq!(
            none.judge(&Test::Severity(Severity::Low)),
            Judged::NotMet(Interval::exact(0.0))
        );
        let mut ranking = Ranking::new(Extent { relations: 1, ..Extent::default() });
        ranking.counted.read = 1;
        ranking.counted.by_functions = 1;
        let figures = Figures::of(&ranking);
        let pages = "tables whose pages were not read: 1 of 1";
        assert_eq!(figures.judge(&Test::Severity(Severity::High)), Judged::Unknown(pages.into()));
        assert!(figures.are_complete());
        assert_eq!(
            (figures.of_all(Figure::Findings), figures.findings(Severity::High)),
            (None, None)
        );
    }
}
