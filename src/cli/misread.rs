//! Command lines that parse, but in which a word was probably not meant as the name of a table.

use std::path::Path;

use clap::builder::PossibleValue;
use clap::{ArgMatches, CommandFactory};

use super::Cli;
use super::arguments::{unit, with_unit};
use super::files::directory_error;
use super::mistakes::{FILES, SERVER_ONLY};
use crate::message::Message;
use crate::server::connect::{KINDS, begins_connection_string, is_of_other_kind};

/// The error for a command line in which a word was probably not meant as the name of a table.
pub(super) fn misread(matches: &ArgMatches, words: &[String]) -> Option<Message> {
    let (verb, given) = matches.subcommand()?;
    let tables = tables(given);
    if tables.iter().any(|table| is_of_other_kind(table)) {
        let text = "a connection string of an unknown kind was given where a table is expected";
        return Some(Message::error(text).hint(KINDS));
    }
    if tables.iter().any(|table| table.trim().is_empty()) {
        let text = "the name of a table is empty";
        return Some(Message::error(text).hint("Is a variable of the shell not set?"));
    }
    if let Some(message) = port_in_host(given) {
        return Some(message);
    }
    if tables.iter().any(|table| begins_connection_string(table)) {
        let text = "a connection string was given where a table is expected";
        return Some(Message::error(text).hint(format!("-d takes it: toastctl {verb} -d STRING.")));
    }
    if let Some(message) = separate_unit(words, &tables) {
        return Some(message);
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
        let is_value = is_meant_as_value(name, word, &values) || reads_files(given);
        if is_value || tables.first() != Some(&word.as_str()) {
            let text =
                format!("\"{word}\" after --{name} would be a table: a value needs an equals sign");
            let hint =
                format!("Write --{name}={word}; a table \"{word}\" is named before the options.");
            return Some(Message::error(text).hint(hint));
        }
    }
    if let Some(message) = tables.iter().find_map(|table| directory(table, verb)) {
        return Some(message);
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
    None
}

/// Whether files are read, and so no tables.
fn reads_files(given: &ArgMatches) -> bool {
    ["relation_file", "pageinspect"].iter().any(|id| given.try_contains_id(id).unwrap_or_default())
}

/// The error for a host that was given with its port.
fn port_in_host(given: &ArgMatches) -> Option<Message> {
    let mut hosts = given.try_get_raw("host").ok()??;
    let (host, port) = hosts.next()?.to_str()?.split_once(':')?;
    if host.is_empty() || port.is_empty() || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let text = "a host was given with its port";
    Some(Message::error(text).hint(format!("-p gives the port: -h {host} -p {port}.")))
}

/// The error for a directory that was given as a table.
fn directory(word: &str, verb: &str) -> Option<Message> {
    if !word.contains('/') && !matches!(word, "." | "..") {
        return None;
    }
    let message = directory_error(Path::new(word), "a table")?.message;
    if SERVER_ONLY.contains(&verb) {
        return Some(Message { hints: vec![FILES.replace("VERB", verb)], ..message });
    }
    Some(message)
}

/// Options whose values have units.
const MEASURED: [&str; 5] = ["--max-time", "--max-runtime", "--sample", "--set", "--fail-on"];

/// The error for a unit that was separated from its number, and so would be a table.
fn separate_unit(words: &[String], tables: &[&str]) -> Option<Message> {
    words.iter().enumerate().find_map(|(at, word)| {
        let unit = unit(word)?;
        let before = words.get(at.checked_sub(1)?)?;
        let (option, value) = match before.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, value),
            _ => (words.get(at.checked_sub(2)?)?.as_str(), before.as_str()),
        };
        let is_table = tables.contains(&word.as_str());
        if !is_table
            || !MEASURED.contains(&option)
            || !value.ends_with(|last: char| last.is_ascii_digit())
        {
            return None;
        }
        let text = format!(
            "\"{word}\" after {option} {value} would be a table: a number and its unit are one word"
        );
        let value = with_unit(value, unit);
        let hint =
            format!("Write {option} {value}; a table \"{word}\" is named before the options.");
        Some(Message::error(text).hint(hint))
    })
}

/// Whether a word is the path of a file. A table with such a name can still be given in quotes.
fn is_file(word: &str) -> bool {
    word.contains('/') && Path::new(word).is_file()
}

/// The words that a verb takes as tables.
fn tables(given: &ArgMatches) -> Vec<&str> {
    let words = ["tables", "of"].iter().filter_map(|id| given.try_get_raw(id).ok().flatten());
    words.flatten().filter_map(|word| word.to_str()).collect()
}

/// Whether a word after this option is probably its value: one that it accepts, a path, or an encoding.
fn is_meant_as_value(option: &str, word: &str, values: &[PossibleValue]) -> bool {
    values.iter().any(|value| value.matches(word, false))
        || option == "reassemble" && (word.contains('/') || Path::new(word).is_dir())
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
