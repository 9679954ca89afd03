//! Mistakes in the command line, as messages that name the cause and what to write instead.

use std::path::Path;

use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, CommandFactory};

use super::arguments::{split, unit, with_unit};
use super::conflicts::conflict;
use super::help::about_damage;
use super::{Cli, files, settings};
use crate::message::{Message, Severity, capitalized};

/// Verbs that other tools have, each with what does the same here.
const OTHER_VERBS: [(&[&str], &str); 9] = [
    (&["man"], "toastctl help VERB shows the manual page of a verb."),
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

/// Options that other tools or verbs have, and verbs that lack them; without verbs, all that do not have the option. VERB
/// in a hint stands for the verb that was given.
const OTHER_OPTIONS: [(&[&str], &[&str], &str); 51] = [
    (&["--storage"], &["retoast"], "--toaster takes storages too, as in --toaster external."),
    (
        &["--toast_tuple_target", "--toast-tuple-target", "--tuple-target"],
        &["retoast", "advise-threshold"],
        "--target is the table's toast_tuple_target: --target 4080.",
    ),
    (
        &["--sort"],
        &["value"],
        "--limit 10 lists the 10 largest values; --format csv lists all for sort.",
    ),
    (
        &["--compression"],
        &["retoast"],
        "--toaster takes compression methods too, as in --toaster lz4.",
    ),
    (
        &["--compression"],
        &["advise-threshold"],
        "--method compares compression methods: --method lz4.",
    ),
    (
        &["--toaster"],
        &["compact", "reindex"],
        "toastctl retoast TABLE -c COLUMN --toaster STORAGE converts values, and --compact and --reindex follow it.",
    ),
    (
        &["--policy"],
        &["compact", "reindex"],
        "toastctl retoast TABLE -c COLUMN --policy POLICY converts values.",
    ),
    (
        &["--emit"],
        &WRITERS,
        "--dry-run shows the statements, and advise-threshold --emit sql prints them.",
    ),
    (&["-s", "-S"], &SELECTING, "-n SCHEMA selects the tables of a schema."),
    (&["-n"], &WRITERS, "--dry-run prints the plan; tables of a schema are named 'SCHEMA.*'."),
    (&["-n"], &NOT_SELECTING, OF_SCHEMA),
    (&["-x"], &WITH_DETAILS, "--details prints everything about each table."),
    (&["--where"], &["value"], OF_ROW),
    (&["-c", "--column"], &WHOLE, "VERB takes whole tables."),
    (&["-a", "--all-databases"], &OF_DATABASES, "--all is for all databases of the server."),
    (&["-f", "--file"], &OF_FILES, READS_FILE),
    (&["--file"], &["compact"], "--files chooses files: --files heap, or --files toast."),
    (&["--dry-run"], &READERS, READS),
    (
        &["--full"],
        &["compact"],
        "compact returns what VACUUM FULL would, while others read and write.",
    ),
    (&["--repair", "--fix"], &["check"], REPAIRS),
    (
        &["--lz4"],
        &["retoast", "advise-threshold"],
        "--toaster lz4 chooses it, as in retoast TABLE -c COLUMN --toaster lz4.",
    ),
    (
        &["--verify"],
        &["check"],
        "toastctl check verifies values; retoast compares row hashes before each commit anyway.",
    ),
    (
        &["--relation-file", "--toast-file", "--pageinspect", "-D", "--pgdata", "--data-directory"],
        &SERVER_ONLY,
        FILES,
    ),
    (&["--jobs", "-j"], &["compact", "reindex"], JOBS),
    (&["--wait-timeout"], &WRITERS, WAITS),
    (&["-T", "--exclude-table", "--exclude", "-N", "--exclude-schema"], &WRITERS, NOT_EXCLUDED),
    (&["-T", "--exclude-table", "--exclude", "-N", "--exclude-schema"], &NOT_SELECTING, ONLY_NAMED),
    (
        &["--maintenance-db"],
        &OF_DATABASES,
        "--all connects to postgres first, or to the database of a connection string: -d dbname=NAME.",
    ),
    (&["-k"], &WRITERS, RIGHTS),
    (&["--concurrently"], &["reindex"], "reindex always rebuilds concurrently."),
    (&["--concurrently"], &["retoast", "compact"], "VERB always lets others read and write."),
    (&["--heapallindexed", "--parent-check", "--rootdescend"], &["check"], INDEXES),
    (&["--undo"], &["compact", "reindex"], "VERB changes no settings: there is nothing to undo."),
    (
        &["--table", "--tabel", "-t"],
        &[],
        "Tables are named without an option: toastctl VERB TABLE.",
    ),
    (&["-s", "--schema", "-S"], &[], OF_SCHEMA),
    (&["-A", "--csv"], &[], "--format csv prints CSV."),
    (&["--set"], &[], "--set is for retoast, compact and reindex: toastctl help settings."),
    (&["-l", "--list"], &[], LISTS),
    (&["--database"], &[], "-d names the database."),
    (&["--output", "-o"], &[], "Results are on standard output: > FILE saves them."),
    (&["--json"], &[], "--format json prints JSON."),
    (&["--html", "-H"], &[], "--format html prints a page."),
    (&["-f", "--file"], &[], "toastctl runs no SQL; > FILE saves results."),
    (&["--force", "--yes", "-y"], &[], ASKS),
    (&["-T", "--exclude-table"], &[], EXCLUDES),
    (&["-D", "--pgdata", "--data-directory"], &[], DATA_DIRECTORY),
    (
        &["--install-missing"],
        &[],
        "toastctl creates no extension: toastctl help permissions says who can create pageinspect.",
    ),
    (&["-F"], &[], "--format chooses the format: --format csv, or --format json."),
    (&["-X"], &[], "toastctl reads no psqlrc: leave out -X."),
    (&["-z", "--analyze"], &[], "Statistics are refreshed by ANALYZE, in psql."),
    (&["--no-superuser-check"], &[], RIGHTS),
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
/// Verbs with options that select schemas and exclude tables.
const SELECTING: [&str; 2] = ["inspect", "check"];
/// Verbs that change nothing and have no such options.
const NOT_SELECTING: [&str; 3] = ["value", "keys", "advise-threshold"];
const OF_SCHEMA: &str = "A pattern names the tables of a schema: toastctl VERB 'SCHEMA.*'.";
const EXCLUDES: &str = "--exclude TABLE leaves out a table, or those that match a pattern; -N SCHEMA leaves out a schema.";
const ONLY_NAMED: &str =
    "VERB takes the tables that are named, and has no option that leaves one out.";
const NOT_EXCLUDED: &str = "VERB takes the tables that are named, and has no option that leaves one out. (-T of pg_repack is --set max-wait=10s.)";
const DATA_DIRECTORY: &str = "toastctl reads the files of one table, not a data directory: VERB --relation-file FILE; toastctl help files says how to find them.";
/// Verbs that change something.
const WRITERS: [&str; 3] = ["retoast", "compact", "reindex"];
/// Verbs that read no files.
pub(super) const SERVER_ONLY: [&str; 4] = ["advise-threshold", "retoast", "compact", "reindex"];
pub(super) const FILES: &str = "VERB needs a server; inspect, check, value and keys read files.";
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
                lines.push(once(
                    &line.replace("subcommand", "verb").replace("verbose...", "verbose"),
                ));
            }
        }
    }
    let mut hints = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = context(error, ContextKind::InvalidSubcommand);
            about_damage(&words.join(" ")).or_else(|| other_verb(word)).or_else(|| {
                tips.is_empty()
                    .then(|| format!("A verb comes first, as in: toastctl inspect {word}"))
            })
        }
        ErrorKind::UnknownArgument => before_verb(argument, verb, words)
            .or_else(|| long_option(verb, words))
            .or_else(|| unknown_option(argument, verb, words)),
        ErrorKind::MissingRequiredArgument => {
            if let Some(message) = unusable_file(&text, words) {
                return message;
            }
            missing(&text, verb, words)
        }
        ErrorKind::ArgumentConflict => conflict(argument, context(error, ContextKind::PriorArg)),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            other_value(argument, verb, context(error, ContextKind::InvalidValue), words)
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

/// A line of clap's message without the value that its cause repeats: `invalid value 'X' for '--o': invalid o "X": why`.
fn once(line: &str) -> String {
    let cause = line.split_once("': ").filter(|(_, cause)| cause.starts_with("invalid "));
    match cause.and_then(|(what, cause)| Some((what, cause.split_once("\": ")?.1))) {
        Some((what, why)) => format!("{what}': {why}"),
        None => line.to_owned(),
    }
}

/// A word of the command line that the error is about.
fn context(error: &clap::Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    }
}

fn other_verb(word: &str) -> Option<String> {
    if word.starts_with('\\') {
        return Some(format!("{word} is a command of psql; toastctl inspect lists the tables."));
    }
    if word.contains(char::is_whitespace) {
        return Some("toastctl runs no SQL; toastctl help lists what it does.".to_owned());
    }
    let word = word.to_ascii_lowercase();
    if Cli::command().find_subcommand(&word).is_some() {
        return Some(format!("Verbs are in lower case: toastctl {word}."));
    }
    let found = OTHER_VERBS.iter().find(|(verbs, _)| verbs.contains(&word.as_str()));
    found.map(|(_, hint)| (*hint).to_owned())
}

/// The error of a file whose columns were not given, if it could not be read anyway.
fn unusable_file(text: &str, words: &[String]) -> Option<Message> {
    if !text.contains("--columns") {
        return None;
    }
    let relation = value_of("--relation-file", words).or_else(|| value_of("--toast-file", words));
    let failure = match (relation, value_of("--pageinspect", words)) {
        (Some(path), _) => files::unusable(Path::new(path)),
        (None, Some(path)) => files::directory_error(Path::new(path), files::SAVED),
        (None, None) => None,
    };
    Some(failure?.message)
}

/// Options that only relation files have, each with what to do instead.
const OF_FILES_ONLY: [(&str, &str); 4] = [
    ("--toast-file", "--relation-file names the table's own file, which is missing."),
    ("--xact", "--xact is for files; a server knows itself which transactions were committed."),
    ("--checksums", "--checksums is for files; a server verifies checksums itself."),
    ("--ignore-checksums", "--ignore-checksums is for files; a server verifies checksums itself."),
];

/// The value of an option in a command line.
fn value_of<'a>(option: &str, words: &'a [String]) -> Option<&'a str> {
    let at = words.iter().position(|word| {
        word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })?;
    let same = words.get(at)?.strip_prefix(option)?.strip_prefix('=');
    same.or_else(|| words.get(at + 1).map(String::as_str))
}

/// What an argument is for that another one requires, or which values it has.
fn missing(text: &str, verb: &str, words: &[String]) -> Option<String> {
    if text.contains("--all|--targets") {
        const SEVERAL: &str = "--max-connections is for --all or --targets: add one of them.";
        return Some(SEVERAL.to_owned());
    }
    let of_files = OF_FILES_ONLY.iter().find(|(option, _)| words.iter().any(|word| word == option));
    if let Some((_, hint)) = of_files
        && text.contains("--relation-file")
        && value_of("--relation-file", words).is_none()
    {
        return Some((*hint).to_owned());
    }
    if text.contains("--columns") {
        const COLUMNS: &str =
            "A file has no names and types: --columns 'id int4, doc jsonb' gives them.";
        return Some(COLUMNS.to_owned());
    }
    if verb == "inspect" && text.contains("TABLE") {
        let hint = "--explain is about tables that are named: toastctl inspect --explain TABLE, or -n SCHEMA.";
        return Some(hint.to_owned());
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
fn other_value(argument: &str, verb: &str, value: &str, words: &[String]) -> Option<String> {
    let option = argument.split(' ').next()?;
    let word = value.to_ascii_lowercase();
    let found = OTHER_VALUES
        .iter()
        .find(|(name, words, _)| *name == option && words.contains(&word.as_str()));
    if let Some((_, _, hint)) = found {
        return Some((*hint).to_owned());
    }
    let at = words.iter().position(|word| word.ends_with(value));
    if value.ends_with(|last: char| last.is_ascii_digit())
        && let Some(unit) = at.and_then(|at| unit(words.get(at + 1)?))
    {
        return Some(format!("Write {option} {}", with_unit(value, unit)));
    }
    let (number, given) = split(value);
    if let Some(unit) = unit(given).filter(|unit| !number.is_empty() && *unit != given) {
        let value = with_unit(number, unit);
        return Some(format!("Write {option} {value}"));
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

/// An option of the verb that was given with one dash.
fn long_option(verb: &str, words: &[String]) -> Option<String> {
    let root = Cli::command();
    let known = root.find_subcommand(verb)?.get_arguments().filter_map(Arg::get_long);
    let names: Vec<&str> = known.filter(|name| name.len() > 1).collect();
    let given = words.iter().filter_map(|word| word.strip_prefix('-'));
    let name = given.filter_map(|word| word.split('=').next()).find(|name| names.contains(name))?;
    Some(format!("Long options have two dashes: --{name}."))
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
    let found = OTHER_OPTIONS.iter().find(|(names, verbs, _)| {
        names.contains(&option) && (verbs.is_empty() || verbs.contains(&verb))
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_about_options_that_a_verb_does_not_have() {
        let mut root = Cli::command();
        root.build();
        let mut wrong = Vec::new();
        for verb in root.get_subcommands() {
            let name = verb.get_name();
            let each = OTHER_OPTIONS.iter().flat_map(|(options, verbs, _)| {
                options.iter().map(move |option| (*option, *verbs))
            });
            for (option, verbs) in each {
                let has_option = verb.get_arguments().any(|known| {
                    known.get_long().is_some_and(|long| option == format!("--{long}"))
                        || known.get_short().is_some_and(|short| option == format!("-{short}"))
                });
                if has_option && verbs.contains(&name) {
                    wrong.push(format!("{name} {option}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn options_of_pg_dump_are_answered_for_each_verb() {
        for (option, verb, said) in [
            ("-T", "inspect", "--exclude TABLE leaves out a table"),
            ("-T", "value", "value takes the tables that are named"),
            ("-T", "compact", "--set max-wait=10s"),
            ("--exclude-table", "check", "--exclude TABLE"),
            ("-D", "keys", "keys --relation-file FILE"),
            ("--pgdata", "retoast", "retoast needs a server"),
            ("-n", "keys", "toastctl keys 'SCHEMA.*'"),
        ] {
            let hint = unknown_option(option, verb, &[]).unwrap();
            assert!(hint.contains(said), "{verb} {option}: {hint}");
        }
    }

    #[test]
    fn values_are_found_after_a_blank_or_an_equals_sign() {
        let words = ["inspect", "--relation-file", "a", "--toast-file=b"].map(str::to_owned);
        assert_eq!(value_of("--relation-file", &words), Some("a"));
        assert_eq!(value_of("--toast-file", &words), Some("b"));
        assert_eq!(value_of("--xact", &words), None);
    }
}
