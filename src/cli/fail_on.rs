//! `--fail-on`: what raises an alarm, how it is written, and what is said of it.

use super::arguments::{size, split};
use super::exit::Exit;
use super::terminal::tell;
use crate::findings::code::Severity;
use crate::inspect::overview::figures::{
    Condition, Figure, Figures, Judged, MEANINGS, Operator, Test, Unit,
};
use crate::report::nagios::shown;
use crate::report::units::counted;

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

fn comparison(text: &str) -> Result<Test, String> {
    let split = OPERATORS.into_iter().find_map(|(sign, operator)| {
        let (name, limit) = text.split_once(sign)?;
        Some((name.trim(), operator, limit.trim()))
    });
    let Some((name, operator, limit)) = split else {
        return Err(
            "expected high, medium, low, or a comparison with >, >=, < or <=, as in free_space>100MB"
                .to_owned(),
        );
    };
    let Some(figure) = Figure::all().find(|figure| figure.name() == name) else {
        let names: Vec<&str> = MEANINGS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no figure \"{name}\"; figures are {}", names.join(", ")));
    };
    Ok(Test::Figure(figure, operator, number(limit, figure.unit())?))
}

const RATIO: &str = "a ratio, as in 30% or 0.3";

/// A limit in the unit of its figure.
fn number(text: &str, unit: Unit) -> Result<f64, String> {
    let (number, sign) = split(text);
    let plain = || number.parse::<f64>().ok().filter(|number| number.is_finite());
    let ratio = |number: f64| (0.0..=1.0).contains(&number).then_some(number);
    let (number, expected) = match (unit, sign) {
        (Unit::Bytes, _) => return size(text).map(|bytes| bytes as f64),
        (Unit::Ratio, "%") => (plain().and_then(|percent| ratio(percent / 100.0)), RATIO),
        (Unit::Ratio, "") => (plain().and_then(ratio), RATIO),
        (Unit::Ratio, _) => (None, RATIO),
        (Unit::Count, "") => (plain(), "a number"),
        (Unit::Count, _) => (None, "a number"),
    };
    number.ok_or_else(|| format!("\"{text}\" is not {expected}"))
}

/// Says which conditions are met and which ones cannot be judged; the exit code that follows.
pub(super) fn judged(conditions: &[Condition], figures: &Figures) -> Exit {
    let of_one = |condition: &Condition| match figures.judge(&condition.test) {
        Judged::NotMet(_) => Exit::Ok,
        Judged::Met(value) => {
            let met = match condition.test {
                Test::Severity(_) => counted(value.estimate as u64, "finding"),
                Test::Figure(figure, ..) => {
                    format!("{} is {}", figure.name(), shown(figure.unit(), &value))
                }
            };
            tell(&format!("warning: --fail-on {}: {met}", condition.text));
            Exit::Alarm
        }
        Judged::Unknown(why) => {
            tell(&format!("error: --fail-on {}: not known ({why})", condition.text));
            Exit::Incomplete
        }
    };
    conditions.iter().map(of_one).max().unwrap_or(Exit::Ok)
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
        assert_eq!(test("free_space>8192"), over(8192.0));
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
             free_ratio, dead_rows, value_id_ratio, findings, tables, tables_not_read, problems"
        );
        assert!(wrong("free_space>30%").contains("is not a size"));
        assert!(wrong("free_ratio>30MB").contains("is not a ratio"));
        assert!(wrong("free_ratio>30").contains("is not a ratio"));
        assert!(wrong("tables>5%").contains("is not a number"));
        assert!(wrong("free_space>").contains("is not a size"), "{}", wrong("free_space>"));
        assert!(condition("tables>").is_err() && condition("tables>-1").is_err());
    }
}
