//! One line for a monitoring system that runs Nagios plugins: a state, what led to it, and performance data
//! (Monitoring Plugins Development Guidelines, "Plugin Output").

use super::table::printable;
use super::units::{counted, percent, size};
use crate::findings::code::Severity;
use crate::findings::finding::Finding;
use crate::inspect::overview::figures::{
    Condition, Figure, Figures, Judged, Test, Unit, is_warning,
};
use toast_format::model::interval::Interval;

/// The number of findings that are named.
const NAMED: usize = 3;

/// The state of a service, as a plugin's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
            State::Unknown => "UNKNOWN",
        }
    }

    /// The worse of two states. A limit that is exceeded is worse than a figure that is not known.
    fn max(self, other: State) -> State {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            State::Ok => 0,
            State::Unknown => 1,
            State::Warning => 2,
            State::Critical => 3,
        }
    }
}

/// The conditions if the user names none: findings of severity medium are a warning, and those of severity high an
/// alarm.
pub(crate) fn usual() -> Vec<Condition> {
    let severities = [Severity::Medium, Severity::High];
    let condition = severities.map(|severity| Condition {
        text: severity.name().to_owned(),
        test: Test::Severity(severity),
    });
    condition.into()
}

/// A figure for people.
pub(crate) fn shown(unit: Unit, value: &Interval) -> String {
    match unit {
        Unit::Bytes => size(value.estimate as u64),
        Unit::Ratio => percent(value.estimate),
        Unit::Count => format!("{:.0}", value.estimate),
    }
}

/// The line about a run that could not begin or has failed.
pub(crate) fn failed(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    line(State::Unknown, first, "")
}

/// The state and the line about a run. `incomplete`: something could not be read, as the messages on standard error
/// say.
pub(crate) fn report(
    figures: &Figures,
    findings: &[Finding],
    conditions: &[Condition],
    incomplete: bool,
) -> (State, String) {
    let mut reasons: Vec<String> = Vec::new();
    let mut state = State::Ok;
    for condition in conditions {
        match (figures.judge(&condition.test), condition.test) {
            (Judged::NotMet(_), _) => {}
            (Judged::Met(value), test) => {
                // Findings are listed anyway.
                if let Test::Figure(figure, ..) = test {
                    let value = shown(figure.unit(), &value);
                    reasons.push(format!("{} is {value} ({})", figure.name(), condition.text));
                }
                let is_warning = is_warning(condition, conditions);
                state = state.max(if is_warning { State::Warning } else { State::Critical });
            }
            (Judged::Unknown(why), _) => {
                reasons.push(format!("{} is not known ({why})", condition.text));
                state = state.max(State::Unknown);
            }
        }
    }
    if incomplete {
        reasons.push("something could not be read".to_owned());
        state = state.max(State::Unknown);
    }
    if reasons.is_empty() {
        let tables = figures.of_all(Figure::Tables).unwrap_or_default();
        let bytes = figures.of_all(Figure::Size).unwrap_or_default();
        let tables = counted(tables.estimate as u64, "table");
        reasons.push(format!("{tables}, {}", shown(Unit::Bytes, &bytes)));
    }
    if !findings.is_empty() {
        reasons.push(listed(findings));
    }
    let data: Vec<String> = Figure::all().map(|figure| performance(figure, figures)).collect();
    (state, line(state, &reasons.join("; "), &data.join(" ")))
}

/// `2 findings: no-compression public.orders.doc (high), unused-setting public.orders (low)`
fn listed(findings: &[Finding]) -> String {
    let mut named: Vec<String> = Vec::new();
    for finding in findings.iter().take(NAMED) {
        let column = finding.column.as_ref().map(|column| format!(".{column}")).unwrap_or_default();
        let severity = finding.code.severity().name();
        named.push(format!("{} {}{column} ({severity})", finding.code.name(), finding.relation));
    }
    if findings.len() > NAMED {
        named.push("...".to_owned());
    }
    format!("{}: {}", counted(findings.len() as u64, "finding"), named.join(", "))
}

/// A line without signs that have a meaning for the reader.
fn line(state: State, text: &str, data: &str) -> String {
    let text = printable(text).replace('|', "/");
    let separator = if data.is_empty() { "" } else { " | " };
    format!("TOAST {}: {text}{separator}{data}\n", state.name())
}

/// A figure as a plugin reports it: `free_space=160432128B`.
fn performance(figure: Figure, figures: &Figures) -> String {
    let name = figure.name();
    let Some(value) = figures.of_all(figure) else { return format!("{name}=U") };
    match figure.unit() {
        Unit::Bytes => format!("{name}={:.0}B", value.estimate),
        Unit::Ratio => format!("{name}={}%", (value.estimate * 1e6).round() / 1e4),
        Unit::Count => format!("{name}={:.0}", value.estimate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::code::Code;
    use crate::findings::finding::Unit as FindingUnit;
    use crate::inspect::overview::figures::Operator;
    use crate::inspect::overview::rank::Ranking;
    use crate::inspect::overview::{Extent, LeftOut};

    fn over(figure: Figure, limit: f64) -> Condition {
        let text = format!("{}>{limit}", figure.name());
        Condition { text, test: Test::Figure(figure, Operator::Over, limit) }
    }

    #[test]
    fn a_line_has_state_reasons_and_data() {
        let mut ranking = Ranking::new(Extent::default());
        let (state, text) = report(&Figures::of(&ranking), &[], &usual(), false);
        assert_eq!(state, State::Ok);
        insta::assert_snapshot!(text, @"TOAST OK: 0 tables, 0 bytes | size=0B toast_size=0B index_size=0B largest_table=0B free_space=0B free_ratio=0% dead_rows=0 value_id_ratio=0% findings=0 tables=0 tables_not_read=0 problems=0");
        let left_out = LeftOut { relation: "t".into(), bytes: Some(5000), reason: "locked".into() };
        ranking.left_out.push(left_out);
        let conditions = [over(Figure::Size, 4000.0), over(Figure::Size, 6000.0)];
        let (state, text) = report(&Figures::of(&ranking), &[], &conditions, true);
        assert_eq!(state, State::Warning, "which is worse than what is not known");
        assert!(
            text.starts_with(
                "TOAST WARNING: size is 5000 bytes (size>4000); something could not be read | size=5000B "
            ),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
        // the limits in any order, of which the first is a warning and the second an alarm
        let limits = [6000.0, 8000.0, 4000.0].map(|limit| over(Figure::Size, limit));
        let (state, _) = report(&Figures::of(&ranking), &[], &limits, false);
        assert_eq!(state, State::Warning);
    }

    #[test]
    fn names_cannot_end_the_text_and_findings_are_named() {
        let mut ranking = Ranking::new(Extent::default());
        let one = Interval::exact(1.0);
        let finding = Finding::new(Code::ValueIds, "public.a|b\nc", one, FindingUnit::Values);
        ranking.findings.push(finding.clone());
        let (state, text) = report(&Figures::of(&ranking), &[finding], &usual(), false);
        assert_eq!(state, State::Critical);
        assert!(
            text.starts_with(
                r"TOAST CRITICAL: 0 tables, 0 bytes; 1 finding: value-ids public.a/b\nc (high) | size="
            ),
            "{text}"
        );
        assert_eq!(failed("no | route\nHINT:  x"), "TOAST UNKNOWN: no / route\n");
    }
}
