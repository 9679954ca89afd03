//! One line for a monitoring system that runs Nagios plugins: a state, what led to it, and performance data
//! (Monitoring Plugins Development Guidelines, "Plugin Output" and "Threshold and Ranges").

use super::table::printable;
use super::units::{counted, percent, size};
use crate::findings::code::Severity;
use crate::findings::finding::Finding;
use crate::inspect::overview::figures::{
    Condition, Figure, Figures, Judged, Operator, Test, Unit, is_warning,
};
use toast_format::model::interval::Interval;

/// Findings that are named.
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

    /// Its place among those of several conditions, of which the last one counts.
    fn severity(self) -> u8 {
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
    [Severity::Medium, Severity::High]
        .map(|severity| Condition {
            text: severity.name().to_owned(),
            test: Test::Severity(severity),
        })
        .into()
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
    line(State::Unknown, first.trim_start_matches("error: "), "")
}

/// The state and the line about a run. `incomplete`: something could not be read, as the messages on standard error
/// say.
pub(crate) fn report(
    figures: &Figures,
    findings: &[Finding],
    conditions: &[Condition],
    incomplete: bool,
) -> (State, String) {
    let mut said: Vec<String> = Vec::new();
    let mut state = State::Ok;
    for condition in conditions {
        let judged = match figures.judge(&condition.test) {
            Judged::NotMet(_) => State::Ok,
            Judged::Met(value) => {
                said.extend(met(condition, &value));
                if is_warning(condition, conditions) { State::Warning } else { State::Critical }
            }
            Judged::Unknown(why) => {
                said.push(format!("{} is not known ({why})", condition.text));
                State::Unknown
            }
        };
        state = worse(state, judged);
    }
    if incomplete {
        said.push("something could not be read".to_owned());
        state = worse(state, State::Unknown);
    }
    if said.is_empty() {
        let known = |figure| figures.of_all(figure).unwrap_or_default();
        let tables = counted(known(Figure::Tables).estimate as u64, "table");
        let bytes = shown(Unit::Bytes, &known(Figure::Size));
        said.push(format!("{tables}, {bytes}"));
    }
    said.extend(found(figures, findings));
    let data: Vec<String> =
        Figure::all().map(|figure| performance(figure, figures, conditions)).collect();
    (state, line(state, &said.join("; "), &data.join(" ")))
}

fn worse(one: State, other: State) -> State {
    if other.severity() > one.severity() { other } else { one }
}

/// What is said of a condition that is met; findings are listed anyway.
fn met(condition: &Condition, value: &Interval) -> Option<String> {
    let Test::Figure(figure, ..) = condition.test else { return None };
    Some(format!("{} is {} ({})", figure.name(), shown(figure.unit(), value), condition.text))
}

/// `2 findings (1 high, 1 low): no-compression public.orders.doc, unused-setting public.orders`
fn found(figures: &Figures, findings: &[Finding]) -> Option<String> {
    let numbers = [Severity::High, Severity::Medium, Severity::Low].map(|severity| {
        let number = figures.findings(severity).unwrap_or_default();
        (number > 0).then(|| format!("{number} {}", severity.name()))
    });
    let numbers: Vec<String> = numbers.into_iter().flatten().collect();
    let mut places: Vec<String> = findings.iter().take(NAMED).map(place).collect();
    if findings.len() > NAMED {
        places.push("...".to_owned());
    }
    let all = counted(findings.len() as u64, "finding");
    (!findings.is_empty()).then(|| format!("{all} ({}): {}", numbers.join(", "), places.join(", ")))
}

/// `no-compression public.orders.doc`
fn place(finding: &Finding) -> String {
    let column = finding.column.as_ref().map(|column| format!(".{column}")).unwrap_or_default();
    format!("{} {}{column}", finding.code.name(), finding.relation)
}

/// A line without signs that have a meaning for the reader.
fn line(state: State, text: &str, data: &str) -> String {
    let text = printable(text).replace('|', "/");
    let data = if data.is_empty() { String::new() } else { format!(" | {data}") };
    format!("TOAST {}: {text}{data}\n", state.name())
}

/// `free_space=160432128B;104857600;;0`: the value with the limits of warning and alarm.
fn performance(figure: Figure, figures: &Figures, conditions: &[Condition]) -> String {
    let (scale, unit) = match figure.unit() {
        Unit::Bytes => (1.0, "B"),
        Unit::Ratio => (100.0, "%"),
        Unit::Count => (1.0, ""),
    };
    let number = |value: f64| format!("{}", (value * scale * 1e4).round() / 1e4);
    let value = match figures.of_all(figure) {
        Some(value) => format!("{}{unit}", number(value.estimate)),
        None => "U".to_owned(),
    };
    // of several limits in the same direction, the one that is met first
    let first = |warning: bool, upward: bool| {
        let tests = conditions.iter().filter(|one| is_warning(one, conditions) == warning);
        let tests = tests.map(|condition| &condition.test).filter(|test| {
            matches!(test, Test::Figure(of, operator, _)
                if *of == figure && operator.is_upward() == upward)
        });
        let first = tests.reduce(|one, other| if other.is_before(one) { other } else { one })?;
        match *first {
            Test::Figure(_, operator, limit) => Some((operator, number(limit))),
            Test::Severity(_) => None,
        }
    };
    let limits = |warning: bool| match (first(warning, false), first(warning, true)) {
        // one range has no room for both unless it excludes them
        (Some((Operator::Under, low)), Some((Operator::Over, high))) => format!("{low}:{high}"),
        (_, Some((operator, limit))) | (Some((operator, limit)), None) => range(operator, &limit),
        (None, None) => String::new(),
    };
    let [warning, alarm] = [true, false].map(limits);
    format!("{}={value};{warning};{alarm};0", figure.name())
}

/// The range outside which, or with @ inside which, the limit is exceeded.
fn range(operator: Operator, limit: &str) -> String {
    match operator {
        Operator::Over => limit.to_owned(),
        Operator::AtLeast => format!("@{limit}:"),
        Operator::Under => format!("{limit}:"),
        Operator::AtMost => format!("@{limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::code::Code;
    use crate::findings::finding::Unit as FindingUnit;
    use crate::inspect::overview::Extent;
    use crate::inspect::overview::LeftOut;
    use crate::inspect::overview::rank::Ranking;

    fn over(figure: Figure, limit: f64) -> Condition {
        let text = format!("{}>{limit}", figure.name());
        Condition { text, test: Test::Figure(figure, Operator::Over, limit) }
    }

    #[test]
    fn a_line_has_state_reasons_and_data_with_limits() {
        let mut ranking = Ranking::new(Extent::default());
        let (state, text) = report(&Figures::of(&ranking), &[], &usual(), false);
        assert_eq!(state, State::Ok);
        insta::assert_snapshot!(text, @"TOAST OK: 0 tables, 0 bytes | size=0B;;;0 toast_size=0B;;;0 index_size=0B;;;0 largest_table=0B;;;0 free_space=0B;;;0 free_ratio=0%;;;0 dead_rows=0;;;0 value_id_ratio=0%;;;0 findings=0;;;0 tables=0;;;0 tables_not_read=0;;;0 problems=0;;;0");
        let left_out = LeftOut { relation: "t".into(), bytes: Some(5000), reason: "locked".into() };
        ranking.left_out.push(left_out);
        let conditions = [over(Figure::Size, 4000.0), over(Figure::Size, 6000.0)];
        let (state, text) = report(&Figures::of(&ranking), &[], &conditions, true);
        assert_eq!(state, State::Warning, "which is worse than what is not known");
        assert!(
            text.starts_with(
                "TOAST WARNING: size is 5000 bytes (size>4000); something could not be read | size=5000B;4000;6000;0 "
            ),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
        // the limits in any order, of which the first is a warning and the second an alarm
        let limits = [6000.0, 8000.0, 4000.0].map(|limit| over(Figure::Size, limit));
        let (state, text) = report(&Figures::of(&ranking), &[], &limits, false);
        assert_eq!(state, State::Warning);
        assert!(text.contains(" size=5000B;4000;6000;0 "), "{text}");
        let under = Condition {
            text: "size<10".into(),
            test: Test::Figure(Figure::Size, Operator::Under, 10.0),
        };
        let limits = [over(Figure::Size, 9000.0), under];
        let (state, text) = report(&Figures::of(&ranking), &[], &limits, false);
        assert_eq!(state, State::Ok);
        assert!(text.contains(" size=5000B;;10:9000;0 "), "{text}");
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
                r"TOAST CRITICAL: 0 tables, 0 bytes; 1 finding (1 high): value-ids public.a/b\nc | size="
            ),
            "{text}"
        );
        assert_eq!(failed("no | route\nHINT:  x"), "TOAST UNKNOWN: no / route\n");
    }

    #[test]
    fn ranges_are_those_of_the_guidelines() {
        let range = |operator| range(operator, "5");
        assert_eq!(range(Operator::Over), "5");
        assert_eq!(range(Operator::AtLeast), "@5:");
        assert_eq!(range(Operator::Under), "5:");
        assert_eq!(range(Operator::AtMost), "@5");
    }
}
