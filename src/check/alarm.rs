//! Conditions about what a check has found, which decide about the exit code in place of damage (pure).

use super::code::Severity;
use crate::inspect::overview::figures::{Judged, Operator};
use toast_format::model::Interval;

/// A figure of all that was checked. Its name never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Errors,
    Warnings,
    Notices,
    /// Errors and warnings together.
    Damage,
    /// Errors, warnings and notices together.
    Findings,
    /// Tables or files that were not checked to the end.
    Incomplete,
}

/// Each figure with its name.
pub(crate) const FIGURES: [(Figure, &str); 6] = [
    (Figure::Errors, "errors"),
    (Figure::Warnings, "warnings"),
    (Figure::Notices, "notices"),
    (Figure::Damage, "damage"),
    (Figure::Findings, "findings"),
    (Figure::Incomplete, "incomplete"),
];

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        // every figure has an entry, as a test verifies
        FIGURES.get(self as usize).map_or("", |entry| entry.1)
    }
}

/// A condition that raises an alarm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    /// As the user wrote it.
    pub(crate) text: String,
    pub(crate) figure: Figure,
    pub(crate) operator: Operator,
    pub(crate) limit: f64,
}

impl Condition {
    /// There is a finding of this severity, or of a higher one.
    pub(crate) fn of(severity: Severity) -> Condition {
        let figure = match severity {
            Severity::Error => Figure::Errors,
            Severity::Warning => Figure::Damage,
            Severity::Notice => Figure::Findings,
        };
        let text = severity.name().to_owned();
        Condition { text, figure, operator: Operator::AtLeast, limit: 1.0 }
    }
}

/// Findings of one run, by severity.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    errors: u64,
    warnings: u64,
    notices: u64,
    /// Tables or files of which something was not checked.
    pub(crate) incomplete: u64,
    /// Tables or files that were checked, in part at least.
    pub(crate) relations: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, severity: Severity) {
        *match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
            Severity::Notice => &mut self.notices,
        } += 1;
    }

    pub(crate) fn damage(&self) -> u64 {
        self.errors + self.warnings
    }

    pub(crate) fn figure(&self, figure: Figure) -> u64 {
        match figure {
            Figure::Errors => self.errors,
            Figure::Warnings => self.warnings,
            Figure::Notices => self.notices,
            Figure::Damage => self.damage(),
            Figure::Findings => self.damage() + self.notices,
            Figure::Incomplete => self.incomplete,
        }
    }

    /// Whether a condition is met, as far as this is known: what was not checked may be damaged.
    pub(crate) fn judge(&self, condition: &Condition) -> Judged {
        let value = self.figure(condition.figure) as f64;
        let is_met = condition.operator.holds(value, condition.limit);
        let may_grow = condition.figure != Figure::Incomplete && self.incomplete > 0;
        if may_grow && condition.operator.is_upward() != is_met {
            return Judged::Unknown("not everything was checked".to_owned());
        }
        if is_met {
            Judged::Met(Interval::exact(value))
        } else {
            Judged::NotMet(Interval::exact(value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_own_entry() {
        for (at, (figure, name)) in FIGURES.into_iter().enumerate() {
            assert_eq!((figure as usize, figure.name()), (at, name));
        }
    }

    #[test]
    fn severities_include_the_higher_ones_and_what_is_not_checked_may_be_damaged() {
        let mut counts = Counts::default();
        let judged = |counts: &Counts, severity| counts.judge(&Condition::of(severity));
        let none = Interval::exact(0.0);
        let one = Interval::exact(1.0);
        counts.add(Severity::Warning);
        assert_eq!(judged(&counts, Severity::Error), Judged::NotMet(none));
        assert_eq!(judged(&counts, Severity::Warning), Judged::Met(one));
        assert_eq!(judged(&counts, Severity::Notice), Judged::Met(one));
        counts.incomplete = 1;
        assert!(matches!(judged(&counts, Severity::Error), Judged::Unknown(_)));
        assert_eq!(judged(&counts, Severity::Warning), Judged::Met(one));
        let condition =
            |figure, operator| Condition { figure, operator, limit: 1.0, text: String::new() };
        let at_most = condition(Figure::Errors, Operator::AtMost);
        assert!(matches!(counts.judge(&at_most), Judged::Unknown(_)));
        let incomplete = condition(Figure::Incomplete, Operator::AtMost);
        assert_eq!(counts.judge(&incomplete), Judged::Met(one));
    }
}
