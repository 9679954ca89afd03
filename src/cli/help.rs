//! Help: the short one of `-?`, on one screen; and `toastctl help`, the manual of a verb or a topic, in the pager.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Args, Command, CommandFactory};

use super::connect::PlainHelpFlag;
use super::exit::{Exit, Failure};
use super::manual::pages::{PAGES, has_word};
use super::manual::topics::{MANAGED, TOPICS};
use super::manual::verbs::manual;
use super::manual::{Item, Topic};
use super::pager;
use super::terminal::Ui;
use crate::check::code::Code;
use crate::report::schema::{SCHEMAS, schema};
use crate::report::table::wrapped;
use crate::server::similar::similar;

/// Arguments of `help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A verb, or a topic
    ///
    /// Topics are policies, forms, findings, low-findings, alarms, damage, settings, throttle, exit-codes, permissions, files,
    /// json, runbooks, safety and limits. json followed by a verb prints the JSON Schema of that verb.
    #[arg(value_name = "VERB|TOPIC", num_args = 0..)]
    about: Vec<String>,

    #[command(flatten)]
    help: PlainHelpFlag,
}

/// The widest that text for reading is set.
pub(super) const WIDEST: usize = 80;
/// Examples in a verb's short help.
const EXAMPLES: usize = 3;
/// Words that are no topics, and what is about them.
const OTHER_WORDS: [(&[&str], &str); 1] =
    [(&["undo", "rollback", "revert", "restore"], "runbooks: UNDO A CONVERSION")];
/// The room for an option in the short help.
const HEAD: usize = 26;
/// The most topics and sections that a hint names for an unknown word.
const MOST_MENTIONS: usize = 4;
/// What stands before a hint: "HINT:" and two blanks.
const HINT: usize = 7;
/// The heading of the options of every connection.
pub(super) const CONNECTION: &str = "Connection options";
/// The heading of the options with which files are read.
const OF_FILES: &str = "Without a server";

/// The command line, whose `-?` is the short help.
pub fn command(root: Command) -> Command {
    let mut root = root.mut_subcommands(|verb| {
        let help = short(&verb);
        verb.override_help(help)
    });
    root.build();
    let help = overall(&root);
    root.override_help(help)
}

/// What an option is called in the help.
fn head(option: &Arg) -> String {
    let mut head = match option.get_short() {
        Some(short) => format!("  -{short}, "),
        None => "      ".to_owned(),
    };
    if let Some(long) = option.get_long() {
        let _ = write!(head, "--{long}");
    }
    if matches!(option.get_action(), ArgAction::Set | ArgAction::Append) {
        let names = option.get_value_names().unwrap_or_default();
        let name = names.first().map_or("VALUE", |name| name.as_str());
        let optional = option.get_num_args().is_some_and(|number| number.min_values() == 0);
        let _ = if optional { write!(head, "[={name}]") } else { write!(head, " {name}") };
    }
    head
}

/// The short help of a verb in fewer columns: what is said of an option stays in its column.
pub(super) fn narrowed(text: &str, width: usize) -> String {
    let lines = text.lines().map(|line| {
        let is_option = line.starts_with("  -") || line.starts_with("      --");
        wrapped(line, Some(width), if is_option { HEAD + 2 } else { 2 }) + "\n"
    });
    lines.collect()
}

/// What every verb has, and says in a line.
fn is_common(option: &Arg) -> bool {
    option.get_help_heading() == Some(CONNECTION)
        || matches!(option.get_id().as_str(), "help" | "verbose" | "quiet")
        || matches!(option.get_id().as_str(), "schemas" | "excluded_schemas" | "excluded")
}

/// The help of a verb on one screen: a sentence, examples, and each option in a line.
fn short(verb: &Command) -> String {
    let name = verb.get_name();
    let mut text = format!("{}\n", verb.get_about().cloned().unwrap_or_default());
    let words = verb.get_positionals().filter(|word| !word.is_hide_set()).map(|word| {
        let names = word.get_value_names().unwrap_or_default();
        let name = names.first().map_or("", |name| name.as_str());
        let many = if matches!(word.get_action(), ArgAction::Append) { "..." } else { "" };
        if word.is_required_set() { format!(" {name}{many}") } else { format!(" [{name}]{many}") }
    });
    let _ = writeln!(text, "Usage: toastctl {name} [OPTION]...{}", words.collect::<String>());
    for (what, command) in
        manual(name).map_or(&[][..], |manual| manual.examples).iter().take(EXAMPLES)
    {
        let _ = writeln!(text, "  {command:<44}  # {what}");
    }
    let mut own = String::new();
    let mut more = String::new();
    let mut of_files = String::new();
    for option in verb.get_arguments().filter(|option| !option.is_positional()) {
        let name = option.get_long().unwrap_or_default();
        if option.is_hide_short_help_set() && !is_common(option) {
            let _ = write!(more, ", --{name}");
        } else if option.get_help_heading() == Some(OF_FILES) {
            let _ = write!(of_files, ", --{name}");
        } else if !is_common(option) {
            let about = option.get_help().cloned().unwrap_or_default();
            let _ = writeln!(own, "{:<HEAD$}  {about}", head(option));
        }
    }
    if !own.is_empty() {
        text.push_str(&format!("Options:\n{own}"));
    }
    for (what, options) in [("More", more), ("Without a server", of_files)] {
        if let Some(options) = options.strip_prefix(", ") {
            let line = format!("{what}: {options}");
            let _ = writeln!(text, "{}", wrapped(&line, Some(WIDEST), 2));
        }
    }
    if verb.get_arguments().any(|option| option.get_id() == "schemas") {
        text.push_str("Tables: -n SCHEMA, -N SCHEMA, --exclude TABLE, as for pg_dump\n");
    }
    if verb.get_arguments().any(|option| option.get_help_heading() == Some(CONNECTION)) {
        let has_targets = verb.get_arguments().any(|option| option.get_id() == "targets");
        let targets = if has_targets { "; databases: --all, --targets FILE" } else { "" };
        let _ = writeln!(text, "Connection as for psql: -h, -p, -U, -d, -w, -W{targets}");
    }
    let _ = write!(text, "Messages: -q fewer, -v more. Manual page: toastctl help {name}");
    text
}

/// The help of the program on one screen.
fn overall(root: &Command) -> String {
    let about = root.get_about().cloned().unwrap_or_default();
    let mut text = format!("{about}\n\nUsage: toastctl VERB [OPTION]... [TABLE]...\n");
    for (what, command) in FIRST {
        let _ = writeln!(text, "  {command:<44}  # {what}");
    }
    text.push_str("Verbs:\n");
    for verb in root.get_subcommands() {
        let about = verb.get_about().cloned().unwrap_or_default();
        let _ = writeln!(text, "  {:<18}{about}", verb.get_name());
    }
    let names: Vec<&str> = topics().map(|(name, _)| name).collect();
    let line = format!("Topics of toastctl help: {}", names.join(", "));
    let _ = writeln!(text, "{}", wrapped(&line, Some(WIDEST), 2));
    text.push_str(
        "toastctl VERB -? lists the options of a verb; toastctl help VERB explains them.",
    );
    text
}

/// The words other than verbs that help explains, each in a line.
pub(super) fn topics() -> impl Iterator<Item = Item> {
    let pages = PAGES.iter().filter(|page| TOPICS.iter().all(|topic| topic.name != page.name));
    let topics = TOPICS.iter().map(|topic| (topic.name, topic.about));
    topics.chain(pages.map(|page| (page.name, page.about())))
}

/// Commands with which a new user may begin.
const FIRST: [Item; 4] = [
    ("which columns take the space", "toastctl inspect -d shop"),
    ("what reads and writes cost", "toastctl inspect --explain orders"),
    ("compare other settings", "toastctl advise-threshold orders"),
    ("convert online", "toastctl retoast orders -c doc --toaster lz4"),
];

/// Prints what is asked for.
pub(super) fn run(args: &HelpArgs, ui: &Ui) -> Result<Exit, Failure> {
    let width = ui.width.map_or(WIDEST, |width| width.min(WIDEST));
    let (first, rest) = args.about.split_first().unzip();
    let rest = rest.map(|words| words.join(" ")).filter(|words| !words.is_empty());
    let text = text(first.map(String::as_str), rest.as_deref(), width)?;
    if pager::show(&text).is_some() {
        return Ok(Exit::Ok);
    }
    ui.print(text.as_bytes())
}

fn text(about: Option<&str>, verb: Option<&str>, width: usize) -> Result<String, Failure> {
    let mut root = super::Cli::command();
    root.build();
    let Some(about) = about else {
        let mut text = overall(&root) + "\n\n";
        let topics: Vec<Item> = topics().collect();
        items(&mut text, &topics, width);
        return Ok(text);
    };
    if let ("json", Some(verb)) = (about, verb) {
        return schema(verb)
            .map(str::to_owned)
            .ok_or_else(|| unknown("schema", verb, &SCHEMAS.map(|(verb, _)| verb), &[], width));
    }
    let phrase = verb.map(|second| format!("{about} {second}"));
    let about = phrase.as_deref().unwrap_or(about);
    let topic = TOPICS.iter().find(|topic| topic.name == about);
    let page = PAGES.iter().find(|page| page.name == about);
    match (topic, page) {
        (Some(topic), None) => return Ok(topic_text(topic, width)),
        (None, Some(page)) => {
            return Ok(format!("{}: {}\n\n{}", page.name, page.about(), page.text(width)));
        }
        // the short text first, such as a list of codes
        (Some(topic), Some(page)) => {
            return Ok(format!("{}\n{}", topic_text(topic, width), page.text(width)));
        }
        (None, None) => {}
    }
    let verbs: Vec<String> =
        root.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let lower = about.to_lowercase();
    let about = if verbs.contains(&lower) { &lower } else { about };
    let Some(command) = root.find_subcommand_mut(about) else {
        if let Some(entry) = entry(about, width) {
            return Ok(entry);
        }
        let topics = topics().map(|(name, _)| name);
        let known: Vec<&str> = verbs.iter().map(String::as_str).chain(topics).collect();
        return Err(unknown("verb or topic", about, &known, &mentions(about), width));
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

/// `mentions`: topics and sections that mention the word.
fn unknown(what: &str, given: &str, known: &[&str], mentions: &[String], width: usize) -> Failure {
    if let Some(hint) = about_damage(given) {
        return Failure::usage("that is a message of a server that has met damage").hint(hint);
    }
    let failure = Failure::usage(format!("there is no {what} \"{given}\""));
    let names: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let other = OTHER_WORDS.iter().find(|(words, _)| words.contains(&given));
    if let Some((_, about)) = other {
        return failure.hint(format!("Perhaps you meant {about}."));
    }
    let longer = known.iter().find(|name| {
        given.len() > 2 && name.starts_with(given) || given.starts_with(&format!("{name}-"))
    });
    match similar(given, &names).first().or(longer) {
        Some(near) => failure.hint(format!("Perhaps you meant {near}.")),
        None if !mentions.is_empty() => {
            failure.hint(below_hint(&format!("It is mentioned in {}.", mentions.join(", ")), width))
        }
        None => failure.hint(below_hint(&format!("Available: {}.", known.join(", ")), width)),
    }
}

/// How to look for the damage that a message of the server is about.
pub(super) fn about_damage(message: &str) -> Option<String> {
    const MESSAGES: [&str; 5] = [
        "chunk number",
        "chunk size",
        "data is corrupt",
        "could not read block",
        "invalid page in",
    ];
    if !MESSAGES.iter().any(|known| message.contains(known)) {
        return None;
    }
    let name = message.split([' ', '"', ':']).map(|word| word.trim_end_matches('.')).find(|word| {
        let number = word.strip_prefix("pg_toast_").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let file = message.split([' ', '"', ',', ':']).find(|word| word.starts_with("base/"));
    let node = file.and_then(|file| file.rsplit('/').next()?.split('.').next());
    let node = node.filter(|node| node.bytes().all(|byte| byte.is_ascii_digit()));
    Some(match (name, node) {
        (Some(name), _) => format!("toastctl check pg_toast.{name} -d DBNAME"),
        (None, Some(node)) => {
            format!("toastctl check -d DBNAME finds the table, which oid2name -f {node} names.")
        }
        (None, None) => "toastctl check -d DBNAME finds the table.".to_owned(),
    })
}

/// The text of a hint, wrapped, with all lines aligned below its first word.
fn below_hint(text: &str, width: usize) -> String {
    let indented = format!("\n{:HINT$}", "");
    wrapped(text, Some(width.saturating_sub(HINT)), 0).replace('\n', &indented)
}

/// Topics and sections of pages that mention a word. Sections with the word in their heading come first.
fn mentions(word: &str) -> Vec<String> {
    let word = word.to_lowercase();
    if word.len() < 3 {
        return Vec::new();
    }
    let pages = PAGES.iter().flat_map(|page| {
        let sections = page.sections_with(&word).into_iter();
        sections.map(|heading| {
            let in_heading = has_word(&heading, &word);
            (in_heading, format!("{} ({heading})", page.name))
        })
    });
    let topics = TOPICS.iter().filter(|topic| has_word(&topic_text(topic, WIDEST), &word));
    let mut found: Vec<(bool, String)> =
        topics.map(|topic| (false, topic.name.to_owned())).chain(pages).collect();
    found.sort_by_key(|(in_heading, _)| !in_heading);
    found.into_iter().take(MOST_MENTIONS).map(|(_, name)| name).collect()
}

/// What a topic says of one of its terms, or of a code of damage.
fn entry(term: &str, width: usize) -> Option<String> {
    let term = term.to_lowercase();
    let mut text = String::new();
    if let Some(code) = Code::named(&term) {
        let meaning =
            format!("{} ({}). {}", code.title(), code.severity().name(), code.hint(false));
        items(&mut text, &[(code.name(), &meaning)], width);
        text.push_str("\nMore: toastctl help damage\n");
        return Some(text);
    }
    let (topic, item) = TOPICS.iter().find_map(|topic| {
        let item = topic.items.iter().find(|(names, _)| is_one_of(&term, names))?;
        Some((topic, item))
    })?;
    items(&mut text, &[*item], width);
    let _ = writeln!(text, "\nMore: toastctl help {}", topic.name);
    Some(text)
}

/// Whether a term in lower case is one of these names, which may have values.
fn is_one_of(term: &str, names: &str) -> bool {
    let mut names = names.split(", ").filter_map(|name| name.split(['=', '[']).next());
    names.any(|name| name.to_lowercase() == term)
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

/// Terms in a column, with their meanings next to them, or below if the term is long.
fn items(text: &mut String, items: &[(&str, &str)], width: usize) {
    let longest = items.iter().map(|(term, _)| term.chars().count()).max().unwrap_or_default();
    // where terms are sentences, meanings begin on the next line
    let indent = if longest <= 24 { longest.max(4) + 4 } else { 20 };
    for (term, meaning) in items {
        let head = format!("  {term}");
        let gap = indent.saturating_sub(head.chars().count());
        if gap < 2 {
            let _ = writeln!(text, "{head}");
        } else {
            let _ = write!(text, "{head}{}", " ".repeat(gap));
        }
        let body = wrapped(meaning, Some(width - indent), 0);
        for (at, line) in body.lines().enumerate() {
            let blanks = if at == 0 && gap >= 2 { 0 } else { indent };
            let _ = writeln!(text, "{}{line}", " ".repeat(blanks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal of 24 lines shows the command and the next prompt too.
    const LINES: usize = 22;

    #[test]
    fn every_topic_fits_a_terminal() {
        for topic in &TOPICS {
            let text = topic_text(topic, WIDEST);
            assert!(text.lines().all(|line| line.chars().count() <= WIDEST), "{text}");
            // the others begin a longer text
            let is_alone = PAGES.iter().all(|page| page.name != topic.name);
            let lines = text.lines().count();
            assert!(lines <= LINES || !is_alone, "{lines} lines\n{text}");
            assert!(text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn every_word_that_help_lists_is_explained() {
        let about = text(Some("help"), None, WIDEST).unwrap();
        for (name, _) in topics() {
            assert!(text(Some(name), None, WIDEST).is_ok(), "{name}");
            assert!(about.contains(name), "{name} is not in {about}");
        }
        for (name, said) in [
            ("runbooks", "\nRETURN FREE SPACE\n"),
            ("safety", "safety: what toastctl changes"),
            ("limits", "limits: what toastctl cannot do"),
            ("damage", "TC080"),
            ("damage", "\nWHAT TO DO\n"),
        ] {
            let page = text(Some(name), None, WIDEST).unwrap();
            assert!(page.contains(said), "{page}");
        }
        // pages that a program installed by cargo does not have
        for topic in TOPICS.iter().map(|topic| topic_text(topic, WIDEST)) {
            assert!(!topic.contains("(7)"), "{topic}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_code() {
        let codes = super::super::manual::topics::EXIT_CODES.items.iter().map(|(code, _)| *code);
        let codes: Vec<&str> = codes.collect();
        assert_eq!(codes, Exit::ALL.map(|exit| exit.code().to_string()));
    }

    #[test]
    fn the_help_of_a_verb_is_one_screen() {
        let root = command(crate::cli::Cli::command());
        for verb in root.get_subcommands() {
            let text = short(verb);
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() <= LINES, "{} lines\n{text}", lines.len());
            let wide: Vec<&&str> = lines.iter().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{wide:#?}");
            let own =
                verb.get_arguments().filter(|option| !option.is_positional() && !is_common(option));
            assert!(own.count() <= 22, "{text}");
            let narrow = narrowed(&text, 60);
            assert!(narrow.lines().all(|line| line.len() <= 60), "{narrow}");
        }
        let text = overall(&root);
        assert!(
            text.lines().count() <= LINES && text.lines().all(|line| line.len() <= 80),
            "{text}"
        );
    }

    #[test]
    fn verbs_have_their_examples_and_an_unknown_word_is_answered_with_the_known_ones() {
        let retoast = text(Some("retoast"), None, WIDEST).unwrap();
        assert!(retoast.contains("Usage: toastctl retoast"), "{retoast}");
        assert!(retoast.contains("Examples:") && retoast.contains("--throttle-query"));
        let said = |word| {
            let failure = text(Some(word), None, WIDEST).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            failure.message.to_string()
        };
        for (word, printed) in [
            ("tc050", "  TC050  value has no chunks (error). "),
            ("nice", "  nice=0  Sleep N times as long as each transaction took.\n"),
            ("free-space", "  free-space"),
        ] {
            let entry = text(Some(word), None, WIDEST).unwrap();
            assert!(entry.starts_with(printed), "{entry}");
        }
        for (word, meant) in [("advise", "advise-threshold"), ("damage-kinds", "damage")] {
            assert!(said(word).ends_with(&format!("Perhaps you meant {meant}.")), "{}", said(word));
        }
        assert!(!said("cords").contains("records"), "{}", said("cords"));
        for (message, hint) in [
            (
                "ERROR:  missing chunk number 0 for toast value 16412 in pg_toast_2619",
                "toastctl check pg_toast.pg_toast_2619 -d DBNAME",
            ),
            (
                "could not read block 7 in file \"base/5/16384.1\": read only 0 of 8192 bytes",
                "toastctl check -d DBNAME finds the table, which oid2name -f 16384 names.",
            ),
            ("compressed pglz data is corrupt", "toastctl check -d DBNAME finds the table."),
        ] {
            assert!(said(message).ends_with(hint), "{}", said(message));
        }
        let two = text(Some("value"), Some("id"), WIDEST).unwrap_err().message.to_string();
        assert!(two.starts_with("there is no verb or topic \"value id\"\nHINT:  It is"), "{two}");
        let near = "there is no verb or topic \"polices\"\nHINT:  Perhaps you meant policies.";
        assert_eq!(said("polices"), near);
        let none =
            "there is no verb or topic \"zebra\"\nHINT:  Available: inspect, check, value, keys";
        assert!(said("zebra").starts_with(none), "{}", said("zebra"));
        let lz4 = "there is no verb or topic \"lz4\"\nHINT:  It is mentioned in runbooks (UPGRADE TO 19, AND FROM PGLZ TO LZ4)";
        assert!(said("lz4").starts_with(lz4), "{}", said("lz4"));
        // the schemas are named, not the sections with the word
        let schema = text(Some("json"), Some("lz4"), WIDEST).unwrap_err().message.to_string();
        assert!(schema.starts_with("there is no schema \"lz4\"\nHINT:  Available: "), "{schema}");
        for word in ["zebra", "lz4"] {
            assert!(said(word).lines().all(|line| line.len() <= WIDEST), "{}", said(word));
        }
        let all = text(None, None, WIDEST).unwrap();
        assert!(all.contains("policies") && all.contains("retoast"), "{all}");
        let schema = text(Some("json"), Some("retoast"), WIDEST).unwrap();
        assert!(schema.contains("\"$schema\""), "{schema}");
    }
}
