//! The manual pages and the JSON schemas are those of the code. `TOASTCTL_UPDATE_MAN=1 cargo test --test man` writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use toastctl::cli::Cli;
use toastctl::cli::manual::topics::{
    ALARMS, DAMAGE, EXIT_CODES, FINDINGS, FORMS, JSON, MANAGED, PERMISSIONS, POLICIES, SETTINGS,
    THROTTLE,
};
use toastctl::cli::manual::verbs::{MANUALS, manual};
use toastctl::cli::manual::{Item, Manual, Topic};
use toastctl::report::schema::{SCHEMAS, derived};

/// A section that `fill` writes.
fn section(title: &str, fill: impl FnOnce(&mut Roff)) -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    fill(&mut roff);
    let mut out = Vec::new();
    roff.to_writer(&mut out).unwrap();
    out
}

/// Terms, each with what it means.
fn terms(roff: &mut Roff, items: &[Item]) {
    for (term, text) in items {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*text)]);
    }
}

fn topic(title: &str, topic: &Topic) -> Vec<u8> {
    section(title, |roff| {
        for paragraph in topic.intro {
            roff.control("PP", []);
            roff.text([roman(*paragraph)]);
        }
        terms(roff, topic.items);
    })
}

/// What is wanted, and below it the command.
fn examples(manual: &Manual) -> Vec<u8> {
    section("EXAMPLES", |roff| {
        for (what, command) in manual.examples {
            roff.control("PP", []);
            roff.text([roman(format!("{what}:"))]);
            roff.control("RS", ["4"]);
            roff.control("EX", []);
            roff.text([roman(*command)]);
            roff.control("EE", []);
            roff.control("RE", []);
        }
    })
}

const ENVIRONMENT: [Item; 5] = [
    (
        "PGHOST, PGHOSTADDR, PGPORT, PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE, \
         PGSERVICEFILE, PGSYSCONFDIR, PGSSLMODE, PGSSLROOTCERT, PGSSLCERT, PGSSLKEY, \
         PGCONNECT_TIMEOUT, PGOPTIONS, PGAPPNAME, PGTARGETSESSIONATTRS",
        "As for psql. Command-line options take precedence over a service, and a service over environment variables.",
    ),
    (
        "COLUMNS",
        "The width to which tables are fitted; 0 means no limit. The default is the width of the terminal, or 100 if \
         the output is a file or a pipe.",
    ),
    (
        "PSQL_PAGER, PAGER, LESS",
        "What shows reports and help that are longer than the terminal; the default is less, with LESS=FRX if LESS is not \
         set. PAGER=cat goes without. Reports of retoast, compact, reindex and check are not paged.",
    ),
    (
        "NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM",
        "Tables on a terminal have colours, unless NO_COLOR is set, CLICOLOR is 0 or TERM is dumb. CLICOLOR_FORCE=1 writes \
         them to files and pipes too.",
    ),
    (
        "LC_ALL, LC_CTYPE, LANG",
        "If the encoding of the locale is not UTF-8, toastctl writes its own texts in ASCII.",
    ),
];

const FILES: [Item; 2] = [
    ("~/.pgpass, ~/.pg_service.conf", "Passwords and services, as for psql."),
    ("~/.postgresql/root.crt, postgresql.crt, postgresql.key", "Certificates, as for psql."),
];

fn see_also(own: &str, verbs: &[String]) -> Vec<u8> {
    let mut pages: Vec<(String, &str)> = vec![("toastctl".into(), "1")];
    pages.extend(verbs.iter().map(|verb| (format!("toastctl-{verb}"), "1")));
    pages.extend(BY_HAND.map(|page| (page.trim_end_matches(".7").to_owned(), "7")));
    pages.push(("psql".into(), "1"));
    section("SEE ALSO", |roff| {
        let mut words: Vec<Inline> = Vec::new();
        for (page, chapter) in pages.into_iter().filter(|(page, _)| page != own) {
            if !words.is_empty() {
                words.push(roman(", "));
            }
            words.extend([italic(page), roman(format!("({chapter})"))]);
        }
        roff.text(words);
    })
}

fn pages() -> BTreeMap<String, Vec<u8>> {
    let root = Cli::command();
    let verbs: Vec<String> = root.get_subcommands().map(|verb| verb.get_name().into()).collect();
    let mut pages = BTreeMap::new();
    let mut render = |command: clap::Command, sections: Vec<Vec<u8>>| {
        let name = command.get_name().to_owned();
        let mut page = Vec::new();
        Man::new(command).render(&mut page).unwrap();
        for section in sections {
            page.extend(section);
        }
        page.extend(topic("EXIT STATUS", &EXIT_CODES));
        page.extend(section("ENVIRONMENT", |roff| terms(roff, &ENVIRONMENT)));
        page.extend(see_also(&name, &verbs));
        pages.insert(format!("{name}.1"), page);
    };
    for verb in root.get_subcommands() {
        // clap keeps names for the life of the program
        let name: &'static str = format!("toastctl-{}", verb.get_name()).leak();
        let page = verb
            .clone()
            .name(name)
            .bin_name(format!("toastctl {}", verb.get_name()))
            .disable_help_flag(true)
            .version(env!("CARGO_PKG_VERSION"));
        let sections = manual(verb.get_name()).map_or_else(Vec::new, |manual| {
            vec![
                examples(manual),
                section("PERMISSIONS", |roff| {
                    terms(roff, manual.permissions);
                    terms(roff, MANAGED);
                }),
                section("FILES", |roff| {
                    terms(roff, manual.files);
                    terms(roff, &FILES);
                }),
            ]
        });
        render(page, sections);
    }
    let topics = vec![
        topic("POLICIES", &POLICIES),
        topic("FORMS AND TERMS", &FORMS),
        topic("FINDINGS", &FINDINGS),
        topic("ALARMS", &ALARMS),
        topic("DAMAGE", &DAMAGE),
        topic("SETTINGS", &SETTINGS),
        topic("THROTTLE QUERIES", &THROTTLE),
        topic("PERMISSIONS", &PERMISSIONS),
        topic("JSON", &JSON),
    ];
    render(root, topics);
    pages
}

#[test]
fn manual_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let pages = pages();
    assert!(pages.len() > 1);
    if std::env::var_os("TOASTCTL_UPDATE_MAN").is_some() {
        for (name, page) in &pages {
            fs::write(folder.join(name), page).unwrap();
        }
    }
    let mut found: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.retain(|name| !BY_HAND.contains(&name.as_str()) && name != "json" && name != BY_THE_ZOO);
    found.sort();
    assert_eq!(found, pages.keys().cloned().collect::<Vec<_>>());
    for (name, page) in &pages {
        let text = fs::read(folder.join(name)).unwrap();
        assert!(
            &text == page,
            "man/{name} differs from the code: run TOASTCTL_UPDATE_MAN=1 cargo test --test man"
        );
    }
}

#[test]
fn json_schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/json");
    for (name, schema) in derived() {
        let path = folder.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("TOASTCTL_UPDATE_MAN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap() == text,
            "man/json/{name}.schema.json differs from the types: run TOASTCTL_UPDATE_MAN=1 cargo test --test man"
        );
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), SCHEMAS.len());
}

/// Written by hand; their commands are tried below.
const BY_HAND: [&str; 4] =
    ["toastctl-runbooks.7", "toastctl-safety.7", "toastctl-damage.7", "toastctl-limits.7"];

/// Written by `tests/it/check_zoo.rs`.
const BY_THE_ZOO: &str = "toastctl-damage-kinds.7";

/// What stands before the command in the crontab entry.
const CRON: &str = "17 3 * * * PGDATABASE=shop /usr/local/bin/";

/// Units of systemd in packages, and what stands before their commands.
const UNITS: [&str; 2] = ["toastctl-inspect@", "toastctl-compact"];
const STARTS: [&str; 3] =
    ["ExecStart=/usr/bin/", "#   ExecStart=/usr/bin/", "ExecStart=/bin/sh -c '"];

/// The words that a POSIX shell makes of a command line.
fn words(line: &str) -> Vec<String> {
    let script = format!("set -- {line}\nprintf '%s\\0' \"$@\"");
    // a line may write a file
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Command lines of toastctl that users read, each with where it stands.
fn commands() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<(String, String)> = Vec::new();
    for manual in MANUALS {
        let lines = manual.examples.iter().map(|(_, line)| (*line).to_owned());
        found.extend(lines.map(|line| (format!("manual of {}", manual.verb), line)));
    }
    let pages = BY_HAND.map(|page| format!("man/{page}"));
    let pages = pages.into_iter().map(|page| (page, ["", "ExecStart=/usr/local/bin/", CRON]));
    let units = UNITS.map(|unit| (format!("packaging/systemd/{unit}.service"), STARTS));
    for (page, prompts) in
        pages.chain([("README.md".to_owned(), ["$ ", "    ", CRON])]).chain(units)
    {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        // a line that a terminal has no room for is continued
        for line in text.replace(" \\\n        ", " ").lines() {
            let commands = prompts.iter().filter_map(|prompt| line.strip_prefix(prompt));
            let commands = commands.filter(|line| line.starts_with("toastctl "));
            found.extend(commands.map(|line| (page.clone(), line.to_owned())));
        }
    }
    found
}

#[test]
fn every_command_of_the_manuals_is_one() {
    let commands = commands();
    assert!(commands.len() > 40, "{commands:?}");
    let of_units = commands.iter().filter(|(place, _)| place.ends_with(".service"));
    assert_eq!(of_units.count(), 3, "{commands:?}");
    for (place, line) in commands {
        let parsed = Cli::try_parse_from(words(&line));
        assert!(parsed.is_ok(), "{place}: {line}\n{}", parsed.err().unwrap());
    }
}

#[test]
fn every_verb_that_works_on_tables_has_a_manual() {
    let root = Cli::command();
    for verb in root.get_subcommands() {
        let tables = verb
            .get_positionals()
            .any(|argument| ["tables", "of"].contains(&argument.get_id().as_str()));
        assert_eq!(tables, manual(verb.get_name()).is_some(), "{}", verb.get_name());
    }
}

/// Texts of the tests, for those who look for an option in them.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_option_has_a_test_or_an_example() {
    let mut text = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"), &mut text);
    for (_, line) in commands() {
        text.push_str(&line);
        text.push(' ');
    }
    let mut without = Vec::new();
    for verb in Cli::command().get_subcommands() {
        for argument in verb.get_arguments().filter(|argument| argument.get_id() != "help") {
            let Some(option) = argument.get_long() else { continue };
            let short = argument.get_short().is_some_and(|short| {
                [format!("\"-{short}\""), format!(" -{short} ")]
                    .iter()
                    .any(|word| text.contains(word))
            });
            let used = short
                || text.match_indices(&format!("--{option}")).any(|(at, word)| {
                    let next = text[at + word.len()..].chars().next();
                    !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
                });
            if !used {
                without.push(format!("{} --{option}", verb.get_name()));
            }
        }
    }
    assert!(without.is_empty(), "{without:?}");
}
