//! `toastctl help`: the verbs with examples, and topics.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::{Args, CommandFactory};

use super::Cli;
use super::connect::HelpFlag;
use super::exit::{Exit, Failure};
use super::manual::topics::{MANAGED, TOPICS};
use super::manual::verbs::manual;
use super::manual::{Item, Topic};
use super::terminal;
use crate::report::schema::{SCHEMAS, schema};
use crate::report::table::wrapped;

/// Arguments of `help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A verb, or policies, forms, advice, findings, throttle, exit-codes, permissions, json
    #[arg(value_name = "VERB|TOPIC")]
    pub about: Option<String>,

    /// Of json: the verb whose JSON Schema is printed
    #[arg(value_name = "VERB")]
    pub verb: Option<String>,

    /// Help
    #[command(flatten)]
    pub help: HelpFlag,
}

/// The widest that text for reading is set.
const WIDEST: usize = 80;

/// Prints what is asked for.
pub(super) fn run(args: &HelpArgs) -> Result<Exit, Failure> {
    let width = terminal::output_width().map_or(WIDEST, |width| width.min(WIDEST));
    let text = text(args.about.as_deref(), args.verb.as_deref(), width)?;
    let mut out = terminal::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if !terminal::is_closed_pipe(&error) => {
            Err(Failure::new(Exit::Incomplete, format!("standard output: {error}")))
        }
        _ => Ok(Exit::Ok),
    }
}

fn text(about: Option<&str>, verb: Option<&str>, width: usize) -> Result<String, Failure> {
    let mut root = Cli::command();
    root.build();
    let Some(about) = about else {
        let mut text = root.render_long_help().to_string();
        text.push_str("\nTopics of toastctl help:\n");
        for topic in TOPICS {
            let _ = writeln!(text, "  {:<17}{}", topic.name, topic.about);
        }
        return Ok(text);
    };
    if let ("json", Some(verb)) = (about, verb) {
        return schema(verb)
            .map(str::to_owned)
            .ok_or_else(|| unknown("verb with JSON output", verb, &SCHEMAS.map(|(verb, _)| verb)));
    }
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == about) {
        return Ok(topic_text(topic, width));
    }
    let verbs: Vec<String> =
        root.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let Some(command) = root.find_subcommand_mut(about) else {
        let topics = TOPICS.iter().map(|topic| topic.name);
        let known: Vec<&str> = verbs.iter().map(String::as_str).chain(topics).collect();
        return Err(unknown("verb or topic", about, &known));
    };
    let mut text = command.render_long_help().to_string();
    if let Some(manual) = manual(about) {
        text.push_str("\nExamples:\n");
        for (what, command) in manual.examples {
            let what = wrapped(what, Some(width - 4), 0).replace('\n', "\n  # ");
            let _ = writeln!(text, "  # {what}\n  {}", continued(command, width));
        }
        text.push_str("\nPermissions:\n");
        items(&mut text, manual.permissions, width);
        items(&mut text, MANAGED, width);
        if !manual.files.is_empty() {
            text.push_str("\nFiles:\n");
        }
        items(&mut text, manual.files, width);
    }
    Ok(text)
}

fn unknown(what: &str, given: &str, known: &[&str]) -> Failure {
    Failure::usage(format!(
        "there is no {what} \"{given}\"\nHINT:  There are {}.",
        known.join(", ")
    ))
}

fn topic_text(topic: &Topic, width: usize) -> String {
    let mut text = format!("{}: {}\n", topic.name, topic.about);
    for paragraph in topic.intro {
        let _ = writeln!(text, "\n{}", wrapped(paragraph, Some(width), 0));
    }
    text.push('\n');
    items(&mut text, topic.items, width);
    text
}

/// A command, broken before options where a shell goes on in the next line.
fn continued(command: &str, width: usize) -> String {
    let mut text = String::new();
    for line in command.lines() {
        if !text.is_empty() {
            text.push_str("\n  ");
        }
        let mut used = 2;
        for (at, part) in line.split(" --").enumerate() {
            let option = if at == 0 { part.to_owned() } else { format!(" --{part}") };
            // room for what goes on
            if at > 0 && used + option.len() + 2 > width {
                text.push_str(" \\\n     ");
                used = 5;
            }
            used += option.len();
            text.push_str(&option);
        }
    }
    text
}

/// Terms in a column, what they mean beside it; below it where the term is long.
fn items(text: &mut String, items: &[Item], width: usize) {
    const INDENT: usize = 20;
    for (term, meaning) in items {
        let head = format!("  {term}");
        let gap = INDENT.saturating_sub(head.chars().count());
        if gap < 2 {
            let _ = writeln!(text, "{head}");
        } else {
            let _ = write!(text, "{head}{}", " ".repeat(gap));
        }
        let body = wrapped(meaning, Some(width - INDENT), 0);
        for (at, line) in body.lines().enumerate() {
            let indent = if at == 0 && gap >= 2 { 0 } else { INDENT };
            let _ = writeln!(text, "{}{line}", " ".repeat(indent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_fits_a_terminal() {
        for topic in TOPICS {
            let text = text(Some(topic.name), None, WIDEST).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= WIDEST), "{text}");
            assert!(text.lines().count() <= 24, "{} lines\n{text}", text.lines().count());
            assert!(text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_code() {
        let codes = super::super::manual::topics::EXIT_CODES.items.iter().map(|(code, _)| *code);
        let codes: Vec<&str> = codes.collect();
        assert_eq!(codes, Exit::ALL.map(|exit| exit.code().to_string()));
    }

    #[test]
    fn verbs_have_their_examples_and_an_unknown_word_is_answered_with_the_known_ones() {
        let retoast = text(Some("retoast"), None, WIDEST).unwrap();
        assert!(retoast.contains("Usage: toastctl retoast"), "{retoast}");
        assert!(retoast.contains("Examples:") && retoast.contains("--throttle-query"));
        let failure = text(Some("polices"), None, WIDEST).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(
            failure.message.starts_with(
                "there is no verb or topic \"polices\"\nHINT:  There are inspect, advise-threshold, retoast"
            ),
            "{}",
            failure.message
        );
        let all = text(None, None, WIDEST).unwrap();
        assert!(all.contains("policies") && all.contains("retoast"), "{all}");
        let schema = text(Some("json"), Some("retoast"), WIDEST).unwrap();
        assert!(schema.contains("\"$schema\""), "{schema}");
    }
}
