//! Mistakes in the command line, as messages that name the cause and what to write instead.

use std::path::Path;

use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, ArgMatches, CommandFactory};

use super::{Cli, settings};
use crate::message::{Message, Severity};
use crate::server::connect::begins_connection_string;

/// Verbs that other tools have, each with what does the same here.
const OTHER_VERBS: [(&[&str], &str); 8] = [
    (
        &["repack", "squeeze", "shrink", "cluster"],
        "toastctl compact TABLE returns free space in place; toastctl reindex TABLE rebuilds bloated indexes.",
    ),
    (
        &["vacuum", "vacuumdb", "truncate"],
        "toastctl compact TABLE returns free space to the operating system. VACUUM, in psql, makes it reusable.",
    ),
    (
        &["analyze", "analyse", "stats", "show", "list", "report", "status", "size", "info"],
        "toastctl inspect shows what is stored and what it costs. Statistics are refreshed by ANALYZE, in psql.",
    ),
    (
        &["advise", "advice", "recommend", "predict", "estimate", "tune"],
        "toastctl advise-threshold TABLE predicts the size and cost of other settings.",
    ),
    (
        &["compress", "recompress", "convert", "rewrite", "alter", "toast", "migrate"],
        "toastctl retoast TABLE -c COLUMN --toaster STORAGE rewrites stored values.",
    ),
    (
        &["amcheck", "verify", "validate", "repair", "salvage", "fsck"],
        "toastctl check finds damage; with --salvage it saves what can be read, and the SQL that repairs.",
    ),
    (
        &["undo", "rollback", "revert", "restore"],
        "What undoes a conversion was printed by it: toastctl help runbooks, UNDO A CONVERSION.",
    ),
    (&["version"], "toastctl -V prints the version."),
];

/// Options that other tools or verbs have. Without a verb, the hint is for all that do not have the option. VERB in a hint
/// stands for the verb that was given.
const OTHER_OPTIONS: [(&str, &[&str], &str); 58] = [
    ("--storage", &["retoast"], "--toaster takes storages too, as in --toaster external."),
    (
        "--compression",
        &["retoast"],
        "--toaster takes compression methods too, as in --toaster lz4.",
    ),
    (
        "--compression",
        &["advise-threshold"],
        "--method compares compression methods: --method lz4.",
    ),
    (
        "--toaster",
        &["compact", "reindex"],
        "toastctl retoast TABLE -c COLUMN --toaster STORAGE converts values, and --compact and --reindex follow it.",
    ),
    (
        "--policy",
        &["compact", "reindex"],
        "toastctl retoast TABLE -c COLUMN --policy POLICY converts values.",
    ),
    (
        "--emit",
        &WRITERS,
        "--dry-run shows the statements, and advise-threshold --emit sql prints them.",
    ),
    ("--table", &[], "Tables are named without an option: toastctl VERB TABLE."),
    ("--tabel", &[], "Tables are named without an option: toastctl VERB TABLE."),
    ("-t", &[], "Tables are named without an option: toastctl VERB TABLE."),
    ("-s", &[], "-n SCHEMA selects the tables of a schema."),
    ("-n", &WRITERS, "--dry-run prints the plan; tables of a schema are named 'SCHEMA.*'."),
    ("-x", &WITH_DETAILS, "--details prints everything about each table."),
    ("-A", &[], "--format csv prints CSV."),
    ("-c", &["value"], OF_ROW),
    ("--column", &["value"], OF_ROW),
    ("-c", &WHOLE, "VERB takes whole tables."),
    ("--column", &WHOLE, "VERB takes whole tables."),
    ("--set", &[], "--set is for retoast, compact and reindex: toastctl help settings."),
    ("-a", &OF_DATABASES, "--all is for all databases of the server."),
    ("-l", &[], LISTS),
    ("--list", &[], LISTS),
    ("--database", &[], "-d names the database."),
    ("--output", &[], "Results are on standard output: > FILE saves them."),
    ("-o", &[], "Results are on standard output: > FILE saves them."),
    ("--where", &["value"], OF_ROW),
    ("--json", &[], "--format json prints JSON."),
    ("--csv", &[], "--format csv prints CSV."),
    ("--html", &[], "--format html prints a page."),
    ("-f", &OF_FILES, READS_FILE),
    ("-f", &[], "toastctl runs no SQL; > FILE saves results."),
    ("--file", &["compact"], "--files chooses files: --files heap, or --files toast."),
    ("--file", &OF_FILES, READS_FILE),
    ("--file", &[], "toastctl runs no SQL; > FILE saves results."),
    ("--dry-run", &READERS, READS),
    (
        "--full",
        &["compact"],
        "compact returns what VACUUM FULL would, while others read and write.",
    ),
    ("--all-databases", &OF_DATABASES, "--all is for all databases of the server."),
    ("--force", &[], ASKS),
    ("--yes", &[], ASKS),
    ("-y", &[], ASKS),
    ("--repair", &["check"], REPAIRS),
    ("--fix", &["check"], REPAIRS),
    (
        "--lz4",
        &["retoast", "advise-threshold"],
        "--toaster lz4 chooses it, as in retoast TABLE -c COLUMN --toaster lz4.",
    ),
    (
        "--verify",
        &["check", "retoast"],
        "toastctl check verifies values; retoast compares row hashes before each commit anyway.",
    ),
    ("--relation-file", &SERVER_ONLY, FILES),
    ("--toast-file", &SERVER_ONLY, FILES),
    ("--pageinspect", &SERVER_ONLY, FILES),
    ("--jobs", &["compact", "reindex"], JOBS),
    ("-j", &["compact", "reindex"], JOBS),
    ("--wait-timeout", &WRITERS, WAITS),
    ("-T", &WRITERS, WAITS),
    ("--no-superuser-check", &[], RIGHTS),
    ("-k", &WRITERS, RIGHTS),
    ("--concurrently", &["reindex"], "reindex always rebuilds concurrently."),
    ("--concurrently", &["retoast", "compact"], "VERB always lets others read and write."),
    ("--heapallindexed", &["check"], INDEXES),
    ("--parent-check", &["check"], INDEXES),
    ("--rootdescend", &["check"], INDEXES),
    ("--undo", &["compact", "reindex"], "VERB changes no settings: there is nothing to undo."),
];

/// Verbs that have `--details`.
const WITH_DETAILS: [&str; 3] = ["inspect", "keys", "advise-threshold"];
/// Verbs that take no columns.
const WHOLE: [&str; 3] = ["check", "compact", "reindex"];
const OF_ROW: &str = "A value is named by its column and row: toastctl value TABLE.COLUMN@id=42.";
/// Verbs that change nothing.
const READERS: [&str; 5] = ["inspect", "check", "value", "keys", "advise-threshold"];
/// Verbs that read relation files.
const OF_FILES: [&str; 4] = ["inspect", "check", "value", "keys"];
const READS_FILE: &str =
    "--relation-file reads a relation file (toastctl help files), and > FILE saves results.";
const READS: &str = "This verb changes nothing; retoast, compact and reindex have --dry-run.";
const ASKS: &str =
    "toastctl never asks: a command does its work at once, and --dry-run shows the plan.";
const REPAIRS: &str =
    "check changes nothing: --salvage DIR saves what can be read, and repair.sql for you to run.";
const LISTS: &str = "toastctl inspect --all gives an overview of all databases.";
/// Verbs that run on several databases.
const OF_DATABASES: [&str; 7] =
    ["inspect", "check", "keys", "advise-threshold", "retoast", "compact", "reindex"];
/// Verbs that change something.
const WRITERS: [&str; 3] = ["retoast", "compact", "reindex"];
/// Verbs that read no files.
const SERVER_ONLY: [&str; 4] = ["advise-threshold", "retoast", "compact", "reindex"];
const FILES: &str = "VERB needs a server; inspect, check, value and keys read files.";
const JOBS: &str = "VERB takes one table at a time; --set parallel-tables=N takes several.";
const WAITS: &str = "--set max-wait=10s stops VERB (exit code 4) after one wait of that time.";
const RIGHTS: &str =
    "There is no such check: toastctl help permissions lists the rights that each verb needs.";
const INDEXES: &str = "pg_amcheck, which comes with PostgreSQL, checks indexes; toastctl check reads tables and TOAST.";

/// Values that an option does not have, each with what was probably meant.
const OTHER_VALUES: [(&str, &[&str], &str); 6] = [
    (
        "--files",
        &["index", "indexes", "indices"],
        "toastctl reindex TABLE rebuilds indexes; compact --reindex does both.",
    ),
    (
        "--sort",
        &["waste", "wasted", "free-space", "free_space", "bloat"],
        "--sort unused is by free space and dead rows.",
    ),
    (
        "--format",
        &["prometheus", "metrics", "openmetrics", "nagios", "icinga"],
        "inspect and check have --format openmetrics, for Prometheus, and nagios.",
    ),
    ("--format", &["xml", "yaml"], "--format json is for programs."),
    ("--format", &["text", "txt", "plain", "aligned"], "--format table prints text."),
    ("--sort", &["size", "total", "bytes", "disk"], "--sort stored is by size on disk."),
];

/// A command line that cannot be parsed, as a message: what is wrong, and hints.
pub(super) fn mistake(error: &clap::Error, words: &[String]) -> Message {
    let argument = context(error, ContextKind::InvalidArg);
    let verbs = Cli::command();
    let verb =
        words.iter().find(|word| verbs.find_subcommand(word).is_some()).map_or("", String::as_str);
    let text = error.render().to_string();
    let mut lines = Vec::new();
    let mut tips = Vec::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix("tip: ") {
            _ if line.starts_with("Usage:") || line.starts_with("For more information") => break,
            // clap suggests `--`, which does not apply
            Some(tip) if tip.starts_with("to pass ") => {}
            Some(tip) => {
                tips.push(format!("{}.", capitalized(&tip.replace("subcommand", "verb"))));
            }
            None if line.trim().is_empty() => {}
            None => {
                // clap begins its message with the severity
                let line = line.trim_start_matches(Severity::Error.prefix());
                lines.push(line.replace("subcommand", "verb"));
            }
        }
    }
    let mut hints = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = context(error, ContextKind::InvalidSubcommand);
            other_verb(word).or_else(|| {
                tips.is_empty()
                    .then(|| format!("A verb comes first, as in: toastctl inspect {word}"))
            })
        }
        ErrorKind::UnknownArgument => {
            before_verb(argument, verb, words).or_else(|| unknown_option(argument, verb, words))
        }
        ErrorKind::MissingRequiredArgument => missing(&text, verb),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            other_value(argument, verb, context(error, ContextKind::InvalidValue))
        }
        _ => None,
    }
    .map_or(tips, |hint| vec![hint]);
    if argument == "-h" || argument.starts_with("--host ") {
        hints.push("-h is the server's host, as in psql; -? is for help.".to_owned());
    }
    let names_values = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    if hints.is_empty() && !names_values {
        let all = if verb.is_empty() { "" } else { " " };
        hints.push(format!("toastctl{all}{verb} -? shows how to use it."));
    }
    Message { hints, ..Message::error(lines.join("\n")) }
}

/// A word of the command line that the error is about.
fn context(error: &clap::Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}

fn other_verb(word: &str) -> Option<String> {
    if word.starts_with('\\') {
        return Some(format!("{word} is a command of psql; toastctl inspect lists the tables."));
    }
    let word = word.to_ascii_lowercase();
    let found = OTHER_VERBS.iter().find(|(verbs, _)| verbs.contains(&word.as_str()));
    found.map(|(_, hint)| (*hint).to_owned())
}

/// What an argument is for that another one requires, or which values it has.
fn missing(text: &str, verb: &str) -> Option<String> {
    if text.contains("--columns") {
        const COLUMNS: &str =
            "A file has no names and types: --columns 'id int4, doc jsonb' gives them.";
        return Some(COLUMNS.to_owned());
    }
    if text.contains("--extract") {
        let hint = "--emit and --reads-per-write are about the columns of --extract KEYS.";
        return Some(hint.to_owned());
    }
    let root = Cli::command();
    let mut words = root.find_subcommand(verb)?.get_positionals();
    let values = words.find(|word| word.is_required_set())?.get_possible_values();
    let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
    (!names.is_empty()).then(|| format!("Available: {}.", names.join(", ")))
}

/// What to write instead of a value that an option does not have.
fn other_value(argument: &str, verb: &str, value: &str) -> Option<String> {
    let option = argument.split(' ').next()?;
    let word = value.to_ascii_lowercase();
    let found = OTHER_VALUES
        .iter()
        .find(|(name, words, _)| *name == option && words.contains(&word.as_str()));
    if let Some((_, _, hint)) = found {
        return Some((*hint).to_owned());
    }
    let root = Cli::command();
    let mut options = root.find_subcommand(verb)?.get_arguments();
    let known = options.find(|known| known.get_long() == option.strip_prefix("--"))?;
    let values: Vec<&str> = value.split(',').map(str::trim).collect();
    let are_names = values.iter().all(|value| !value.is_empty());
    if values.len() == 1 || !are_names || !matches!(known.get_action(), ArgAction::Append) {
        return None;
    }
    let repeated: String = values.iter().map(|value| format!(" {option} {value}")).collect();
    Some(format!("Repeat the option:{repeated}"))
}

/// The command with the verb first, where an option that the verb has stands before it.
fn before_verb(option: &str, verb: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == verb)?;
    let before = words.get(..at)?;
    let after = words.get(at + 1..)?;
    let name = option.split(['=', ' ']).next()?.trim_start_matches('-');
    let root = Cli::command();
    let has_option = root.find_subcommand(verb)?.get_arguments().any(|known| {
        known.get_long() == Some(name)
            || known.get_short().is_some_and(|short| name.starts_with(short))
    });
    if !has_option || !before.iter().any(|word| word.starts_with(option)) {
        return None;
    }
    let shown = shown(before.iter().chain(after));
    Some(format!("Options follow the verb: toastctl {verb}{shown}"))
}

/// Words of a command line to be repeated; those that may be connection strings with passwords are left out.
fn shown<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words
        .map(|word| {
            let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if is_plain { format!(" {word}") } else { " ...".to_owned() }
        })
        .collect()
}

/// What to write instead of an option that a verb does not have.
fn unknown_option(option: &str, verb: &str, words: &[String]) -> Option<String> {
    let found = OTHER_OPTIONS
        .iter()
        .find(|(name, verbs, _)| *name == option && (verbs.is_empty() || verbs.contains(&verb)));
    if let Some((_, _, hint)) = found {
        let verb = if verb.is_empty() { "inspect" } else { verb };
        return Some(hint.replace("VERB", verb));
    }
    let name = option.trim_start_matches('-');
    let is_setting =
        settings::values(verb).iter().any(|setting| setting.split('=').next() == Some(name));
    if is_setting && option.starts_with("--") {
        return Some(format!("That is a setting: --set {name}=VALUE"));
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return Some("No value of an option is negative.".to_owned());
    }
    if verb == "help" {
        return Some("toastctl help VERB explains the options of a verb.".to_owned());
    }
    let is_of_inspect = Cli::command().find_subcommand("inspect")?.get_arguments().any(|known| {
        known.get_long() == Some(name)
            || known.get_short().is_some_and(|short| name == short.to_string())
    });
    (verb.is_empty() && is_of_inspect)
        .then(|| format!("A verb comes first, as in: toastctl inspect{}", shown(words.iter())))
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// The error for a command line that can be parsed, but in which a word in the place of a table was probably meant otherwise.
pub(super) fn misread(matches: &ArgMatches, words: &[String]) -> Option<Message> {
    let (verb, given) = matches.subcommand()?;
    let tables = tables(given);
    if tables.iter().any(|table| begins_connection_string(table)) {
        let text = "a connection string was given where a table is expected";
        return Some(Message::error(text).hint(format!("-d takes it: toastctl {verb} -d STRING.")));
    }
    if let Some(file) = tables.iter().find(|table| is_file(table)) {
        let hint = if SERVER_ONLY.contains(&verb) {
            FILES.replace("VERB", verb)
        } else {
            format!(
                "toastctl {verb} --relation-file FILE --columns 'id int4, doc jsonb' reads a table's file."
            )
        };
        return Some(Message::error(format!("\"{file}\" is a file, not a table")).hint(hint));
    }
    let command = Cli::command();
    let options = command.find_subcommand(verb)?.get_arguments();
    for option in options.filter(|option| option.is_require_equals_set()) {
        let Some(name) = option.get_long() else { continue };
        let values = option.get_possible_values();
        let after = words.windows(2).find(|pair| pair[0] == format!("--{name}"));
        let Some([_, word]) = after.filter(|pair| tables.contains(&pair[1].as_str())) else {
            continue;
        };
        if is_meant_as_value(name, word, &values) || tables.first() != Some(&word.as_str()) {
            let text =
                format!("\"{word}\" after --{name} would be a table: a value needs an equals sign");
            let hint =
                format!("Write --{name}={word}; a table \"{word}\" is named before the options.");
            return Some(Message::error(text).hint(hint));
        }
    }
    None
}

/// Whether a word given as a table is the path of a file. A table with such a name can still be given, in quotes.
fn is_file(word: &str) -> bool {
    word.contains('/') && Path::new(word).is_file()
}

/// The words that a verb takes as tables.
fn tables(given: &ArgMatches) -> Vec<&str> {
    let words = ["tables", "of"].iter().filter_map(|id| given.try_get_raw(id).ok().flatten());
    words.flatten().filter_map(|word| word.to_str()).collect()
}

/// Whether a word after this option is probably its value and not a table: one of its values, a path, or an encoding.
fn is_meant_as_value(option: &str, word: &str, values: &[PossibleValue]) -> bool {
    values.iter().any(|value| value.matches(word, false))
        || word.contains('/')
        || option == "deep" && is_encoding(word)
}

/// Whether PostgreSQL has encodings whose names begin like this one.
pub(super) fn is_encoding(word: &str) -> bool {
    let name: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    ENCODINGS.iter().any(|known| name.starts_with(known))
}

/// The beginnings of the names of PostgreSQL's encodings (encnames.c), in lower case and without signs.
const ENCODINGS: [&str; 21] = [
    "utf8", "unicode", "sqlascii", "latin", "iso8859", "win", "euc", "koi8", "big5", "gbk",
    "gb18030", "johab", "mule", "sjis", "shiftjis", "tcvn", "uhc", "mskanji", "abc", "alt",
    "vscii",
];
