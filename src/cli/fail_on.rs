//! `--fail-on`: what raises an alarm, how it is written, and what is said of it.

use super::arguments::{size, split};
use super::exit::Exit;
use super::terminal::Ui;
use crate::check::alarm;
use crate::check::code::Severity as Damage;
use crate::findings::code::Severity;
use crate::findings::finding::Finding;
use crate::inspect::compare::RunComparison;
use crate::inspect::overview::figures::{
    Condition, Figure, Figures, Judged, MEANINGS, Operator, Test, Unit,
};
use crate::message::Message;
use crate::report::nagios::{listed, shown};
use crate::report::table::printable;
use toast_format::model::interval::Interval;

const SEVERITIES: [Severity; 3] = [Severity::High, Severity::Medium, Severity::Low];

/// Operators, the longer ones first.
const OPERATORS: [(&str, Operator); 4] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    (">", Operator::Over),
    ("<", Operator::Under),
];

/// `medium`, or `free_space>100MB`.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let text = text.trim();
    let test = match SEVERITIES.into_iter().find(|severity| severity.name() == text) {
        Some(severity) => Test::Severity(severity),
        None => comparison(text)?,
    };
    Ok(Condition { text: text.to_owned(), test })
}

/// `warning`, or `errors>10`, for `check`.
pub(super) fn damage(text: &str) -> Result<alarm::Condition, String> {
    let text = text.trim();
    let severities = [Damage::Error, Damage::Warning, Damage::Notice];
    if let Some(severity) = severities.into_iter().find(|severity| severity.name() == text) {
        return Ok(alarm::Condition::of(severity));
    }
    let (name, operator, limit) =
        parts(text).ok_or_else(|| expected("error, warning, notice", "errors>10"))?;
    let figure = alarm::FIGURES.into_iter().find(|(_, known)| *known == name);
    let (figure, _) =
        figure.ok_or_else(|| no_figure(name, alarm::FIGURES.into_iter().map(|(_, name)| name)))?;
    let limit = number(limit, Unit::Count)?;
    Ok(alarm::Condition { text: text.to_owned(), figure, operator, limit })
}

/// Beginnings of conditions for a verb, for shells to complete.
pub(super) fn examples(verb: &str) -> Vec<String> {
    let (severities, figures): (Vec<&str>, Vec<&str>) = if verb == "check" {
        let severities = [Damage::Error, Damage::Warning, Damage::Notice].map(Damage::name);
        (severities.to_vec(), alarm::FIGURES.iter().map(|(_, name)| *name).collect())
    } else {
        let severities = SEVERITIES.map(Severity::name);
        (severities.to_vec(), MEANINGS.iter().map(|(name, _)| *name).collect())
    };
    let severities = severities.into_iter().map(str::to_owned);
    severities.chain(figures.iter().map(|name| format!("{name}>"))).collect()
}

/// The name, operator and limit of a comparison.
fn parts(text: &str) -> Option<(&str, Operator, &str)> {
    OPERATORS.into_iter().find_map(|(sign, operator)| {
        let (name, limit) = text.split_once(sign)?;
        Some((name.trim(), operator, limit.trim()))
    })
}

fn expected(severities: &str, comparison: &str) -> String {
    format!(
        "expected {severities}, or a comparison with >, >=, < or <=, as in '{comparison}', in quotes"
    )
}

fn no_figure(name: &str, names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.collect();
    let near: Vec<&str> = names
        .iter()
        .filter(|known| {
            name.len() > 2 && known.split('_').any(|word| word == name)
                || **known == "free_space" && ["bloat", "waste", "wasted"].contains(&name)
        })
        .copied()
        .collect();
    if !near.is_empty() {
        return format!("there is no figure \"{name}\", but {}", near.join(" and "));
    }
    format!("there is no figure \"{name}\"; figures are {}", names.join(", "))
}

fn comparison(text: &str) -> Result<Test, String> {
    let (name, operator, limit) =
        parts(text).ok_or_else(|| expected("high, medium, low", "free_space>100MB"))?;
    let figure = Figure::all().find(|figure| figure.name() == name);
    let figure = figure.ok_or_else(|| no_figure(name, MEANINGS.iter().map(|(name, _)| *name)))?;
    Ok(Test::Figure(figure, operator, number(limit, figure.unit())?))
}

const RATIO: &str = "a ratio, as in 30% or 0.3";

/// A limit in the unit of its figure.
fn number(text: &str, unit: Unit) -> Result<f64, String> {
    let (number, sign) = split(text);
    let plain = || number.parse::<f64>().ok().filter(|number| number.is_finite());
    let ratio = |number: f64| (0.0..=1.0).contains(&number).then_some(number);
    let (number, expected) = match (unit, sign) {
        (Unit::Bytes, _) => {
            let bytes = size(text).map(|bytes| bytes as f64);
            return bytes.map_err(|expected| format!("\"{text}\": {expected}"));
        }
        (Unit::Ratio, "%") => (plain().and_then(|percent| ratio(percent / 100.0)), RATIO),
        (Unit::Ratio, "") => (plain().and_then(ratio), RATIO),
        (Unit::Ratio, _) => (None, RATIO),
        (Unit::Count, "") => (plain(), "a number"),
        (Unit::Count, _) => (None, "a number"),
    };
    number.ok_or_else(|| format!("\"{text}\": expected {expected}"))
}

/// What is said of conditions that are met, or that cannot be judged, with the exit code that follows from each.
/// `compared`: what has changed since an earlier run.
pub(super) fn judged(
    conditions: &[Condition],
    figures: &Figures,
    findings: &[Finding],
    compared: Option<&RunComparison>,
) -> Vec<(Exit, Message)> {
    let new = compared.map_or(&[][..], |compared| &compared.new_findings);
    let mut messages = Vec::new();
    for Condition { text, test } in conditions {
        let judged = figures.judge(test);
        messages.extend(message(text, &judged, |value: &Interval| match *test {
            Test::Severity(least) => {
                listed(findings.iter().filter(|found| found.code.severity() <= least))
            }
            Test::Figure(Figure::NewFindings, ..) if !new.is_empty() => {
                format!("new: {}", listed(new))
            }
            Test::Figure(figure, ..) => {
                format!("{} is {}", figure.name(), shown(figure.unit(), value))
            }
        }));
    }
    messages
}

/// The same for a check.
pub(super) fn judged_damage(
    ui: &Ui,
    conditions: &[alarm::Condition],
    counts: &alarm::Counts,
) -> Exit {
    let mut messages = Vec::new();
    for condition in conditions {
        let judged = counts.judge(condition);
        messages.extend(message(&condition.text, &judged, |value: &Interval| {
            format!("{} is {}", condition.figure.name(), shown(Unit::Count, value))
        }));
    }
    tell(ui, messages)
}

/// Prints these messages, and returns the worst of their exit codes.
pub(super) fn tell(ui: &Ui, messages: Vec<(Exit, Message)>) -> Exit {
    let mut worst = Exit::Ok;
    for (exit, message) in messages {
        if let (Exit::Alarm, Some(target)) = (exit, &ui.target) {
            target.kept.lock().alarms.push(message.text.clone());
        }
        ui.tell(message);
        worst = worst.max(exit);
    }
    worst
}

/// The message about a condition that is met or cannot be judged, with its exit code.
fn message(
    condition: &str,
    judged: &Judged,
    met: impl Fn(&Interval) -> String,
) -> Option<(Exit, Message)> {
    match judged {
        Judged::NotMet(_) => None,
        Judged::Met(value) => {
            let text = format!("--fail-on {condition}: {}", met(value));
            Some((Exit::Alarm, Message::warning(printable(&text))))
        }
        Judged::Unknown(why) => {
            let text = format!("--fail-on {condition}: not known ({why})");
            Some((Exit::Incomplete, Message::error(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_a_severity_or_a_comparison_in_the_figures_unit() {
        let test = |text: &str| condition(text).unwrap().test;
        assert_eq!(test("medium"), Test::Severity(Severity::Medium));
        let over = |limit| Test::Figure(Figure::FreeSpace, Operator::Over, limit);
        assert_eq!(test("free_space>100MB"), over(104_857_600.0));
        assert_eq!(test(" free_space > 100 MB "), over(104_857_600.0));
        assert_eq!(test("free_space>8192bytes"), over(8192.0));
        let ratio = Test::Figure(Figure::FreeRatio, Operator::AtLeast, 0.3);
        assert_eq!([test("free_ratio>=30%"), test("free_ratio >= 0.3")], [ratio; 2]);
        assert_eq!(test("tables<=5"), Test::Figure(Figure::Tables, Operator::AtMost, 5.0));
        assert_eq!(condition(" tables<5 ").unwrap().text, "tables<5");
    }

    #[test]
    fn what_is_none_is_answered_with_what_is_possible() {
        let wrong = |text: &str| condition(text).unwrap_err();
        assert!(wrong("severe").starts_with("expected high, medium, low, or a comparison"));
        assert_eq!(
            wrong("fre_space>1"),
            "there is no figure \"fre_space\"; figures are size, toast_size, index_size, largest_table, free_space, \
             free_ratio, dead_rows, value_id_ratio, findings, tables, tables_not_read, problems, \
             new_findings, growth"
        );
        assert_eq!(wrong("bloat>1GB"), "there is no figure \"bloat\", but free_space");
        assert!(wrong("free_space>30%").starts_with("\"30%\": expected a size in kB"));
        assert!(wrong("free_ratio>30MB").contains("expected a ratio"));
        assert!(wrong("free_ratio>30").contains("expected a ratio"));
        assert!(wrong("tables>5%").contains("expected a number"));
        assert!(wrong("free_space>").contains("expected a size"), "{}", wrong("free_space>"));
        assert!(condition("tables>").is_err() && condition("tables>-1").is_err());
    }

    #[test]
    fn conditions_of_a_check_are_a_severity_or_count_findings() {
        let condition = damage(" errors > 10 ").unwrap();
        assert_eq!((condition.figure, condition.limit), (alarm::Figure::Errors, 10.0));
        assert_eq!(condition.text, "errors > 10");
        assert_eq!(damage("warning").unwrap().figure, alarm::Figure::Damage);
        let wrong = |text: &str| damage(text).unwrap_err();
        assert!(wrong("medium").starts_with("expected error, warning, notice, or a comparison"));
        assert_eq!(
            wrong("size>1MB"),
            "there is no figure \"size\"; figures are errors, warnings, notices, damage, findings, incomplete"
        );
        assert!(wrong("errors>1MB").contains("expected a number"));
    }
}
