//! One line for a monitoring system that runs Nagios plugins: a state, what led to it, and performance data
//! (Monitoring Plugins Development Guidelines, "Plugin Output").

use super::table::printable;
use super::units::{counted, percent, size};
use crate::check::alarm::{self, Counts};
use crate::check::code::Severity as Damage;
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

/// What a plugin says about a service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) state: State,
    text: String,
    /// Performance data: figures with their units.
    data: String,
}

impl Service {
    /// What could not be begun, or has failed.
    pub(crate) fn failed(message: &str) -> Service {
        Service::unread(State::Unknown, message)
    }

    /// Where nothing was read.
    pub(crate) fn unread(state: State, message: &str) -> Service {
        let text = message.lines().next().unwrap_or_default().to_owned();
        Service { state, text, data: String::new() }
    }

    /// A line without signs that have a meaning for the reader.
    pub(crate) fn line(&self) -> String {
        let Service { state, text, data } = self;
        let separator = if data.is_empty() { "" } else { " | " };
        format!("TOAST {}: {}{separator}{data}\n", state.name(), without_signs(text))
    }
}

fn without_signs(text: &str) -> String {
    printable(text).replace('|', "/")
}

/// The worst state of several databases, and the lines: their number in each state, and below it each of them, the worst
/// first.
pub(crate) fn fleet(mut services: Vec<(String, Service)>) -> (State, String) {
    services.sort_by_key(|(_, service)| std::cmp::Reverse(service.state.rank()));
    // nothing is known where nothing was read
    let is_read = services.iter().any(|(_, service)| !service.data.is_empty());
    let least = if is_read { State::Ok } else { State::Unknown };
    let worst = services.iter().map(|(_, service)| service.state).fold(least, State::max);
    let mut text = counted(services.len() as u64, "database");
    let mut data = format!("databases={}", services.len());
    for state in [State::Critical, State::Warning, State::Unknown, State::Ok] {
        let name = state.name().to_lowercase();
        let number = services.iter().filter(|(_, service)| service.state == state).count();
        if number > 0 {
            text.push_str(&format!(", {number} {name}"));
        }
        data.push_str(&format!(" {name}={number}"));
    }
    let mut lines = Service { state: worst, text, data }.line();
    for (database, Service { state, text, .. }) in &services {
        let text = format!("{} {database}: {text}", state.name());
        lines.push_str(&format!("{}\n", without_signs(&text)));
    }
    (worst, lines)
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

/// What is said about a run. `incomplete`: something could not be read, as the messages on standard error
/// say.
pub(crate) fn report(
    figures: &Figures,
    findings: &[Finding],
    conditions: &[Condition],
    incomplete: bool,
) -> Service {
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
                let what = match condition.test {
                    Test::Severity(_) => format!("whether there are {} findings", condition.text),
                    Test::Figure(..) => condition.text.clone(),
                };
                reasons.push(format!("{what} is not known ({why})"));
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
        reasons.push(format!("{tables}, {}, not checked for damage", shown(Unit::Bytes, &bytes)));
    }
    if !findings.is_empty() {
        reasons.push(listed(findings));
    }
    let data: Vec<String> = Figure::all()
        .filter(|figure| !figure.is_of_change())
        .map(|figure| performance(figure, figures))
        .collect();
    Service { state, text: reasons.join("; "), data: data.join(" ") }
}

/// What is said about a check. Without conditions, warnings are one and errors an alarm.
pub(crate) fn check(counts: &Counts, conditions: &[alarm::Condition]) -> Service {
    let usual = [Damage::Warning, Damage::Error].map(alarm::Condition::of);
    let judged = if conditions.is_empty() { &usual[..] } else { conditions };
    let mut state = State::Ok;
    for condition in judged {
        let is_warning = conditions.is_empty() && condition.figure == alarm::Figure::Damage;
        state = state.max(match counts.judge(condition) {
            Judged::NotMet(_) => State::Ok,
            Judged::Unknown(_) => State::Unknown,
            Judged::Met(_) if is_warning => State::Warning,
            Judged::Met(_) => State::Critical,
        });
    }
    if counts.incomplete > 0 {
        state = state.max(State::Unknown);
    }
    let text = format!(
        "{} checked: {}, {}, {}{}",
        counted(counts.relations, "relation"),
        counted(counts.figure(alarm::Figure::Errors), "error"),
        counted(counts.figure(alarm::Figure::Warnings), "warning"),
        counted(counts.figure(alarm::Figure::Notices), "notice"),
        if counts.incomplete > 0 { "; not everything could be checked" } else { "" }
    );
    let all = alarm::FIGURES.map(|(figure, name)| format!("{name}={}", counts.figure(figure)));
    Service { state, text, data: format!("relations={} {}", counts.relations, all.join(" ")) }
}

/// `2 findings: no-compression public.orders.doc (high), unused-setting public.orders (low)`
pub(crate) fn listed<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> String {
    let findings: Vec<&Finding> = findings.into_iter().collect();
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
        let said = |ranking: &Ranking, found: &[Finding], conditions: &[Condition], incomplete| {
            let service = report(&Figures::of(ranking), found, conditions, incomplete);
            (service.state, service.line())
        };
        let (state, text) = said(&ranking, &[], &usual(), false);
        assert_eq!(state, State::Ok);
        insta::assert_snapshot!(text, @"TOAST OK: 0 tables, 0 bytes, not checked for damage | size=0B toast_size=0B index_size=0B largest_table=0B free_space=0B free_ratio=0% dead_rows=0 value_id_ratio=0% findings=0 tables=0 tables_not_read=0 problems=0");
        let left_out = LeftOut::new("t".into(), Some(5000), "locked".into());
        ranking.left_out.push(left_out);
        let conditions = [over(Figure::Size, 4000.0), over(Figure::Size, 6000.0)];
        let (state, text) = said(&ranking, &[], &conditions, true);
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
        let (state, _) = said(&ranking, &[], &limits, false);
        assert_eq!(state, State::Warning);
    }

    #[test]
    fn names_cannot_end_the_text_and_findings_are_named() {
        let mut ranking = Ranking::new(Extent::default());
        let one = Interval::exact(1.0);
        let finding = Finding::new(Code::ValueIds, "public.a|b\nc", one, FindingUnit::Values);
        ranking.findings.push(finding.clone());
        let service = report(&Figures::of(&ranking), &[finding], &usual(), false);
        let text = service.line();
        assert_eq!(service.state, State::Critical);
        assert!(
            text.starts_with(
                r"TOAST CRITICAL: 0 tables, 0 bytes, not checked for damage; 1 finding: value-ids public.a/b\nc (high) | size="
            ),
            "{text}"
        );
        let failed = Service::failed("no | route\nHINT:  x");
        assert_eq!(failed.line(), "TOAST UNKNOWN: no / route\n");
        let (state, lines) = fleet(vec![("h:1/a".into(), failed), ("h:1/b".into(), service)]);
        assert_eq!(state, State::Critical);
        let begin = "TOAST CRITICAL: 2 databases, 1 critical, 1 unknown \
                     | databases=2 critical=1 warning=0 unknown=1 ok=0\n\
                     CRITICAL h:1/b: 0 tables, 0 bytes, not checked for damage; 1 finding: value-ids";
        assert!(lines.starts_with(begin), "{lines}");
        assert!(lines.ends_with("\nUNKNOWN h:1/a: no / route\n"), "{lines}");
    }
}
