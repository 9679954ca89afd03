//! Arguments, connection, exit codes and terminal.
//!
//! [`Cli`] is the whole command line; [`run`] does what it says.

pub mod advise;
pub mod arguments;
pub mod check;
mod citus;
mod citus_writes;
pub mod compact;
pub mod completions;
pub mod connect;
pub mod exit;
mod fail_on;
pub mod files;
pub mod fleet;
pub mod help;
pub mod inspect;
mod inspect_output;
pub mod keys;
pub mod manual;
mod reports;
pub mod retoast;
mod retoast_output;
pub mod settings;
pub mod terminal;
pub mod value;
pub mod verbose;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::message::{Message, Severity};
use crate::report::nagios::State;
use exit::Exit;
use terminal::Ui;

/// Show, predict and change how PostgreSQL stores large values (TOAST).
#[derive(Debug, Parser)]
#[command(
    name = "toastctl",
    version,
    about,
    disable_help_flag = true,
    disable_help_subcommand = true,
    propagate_version = false,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    #[command(flatten)]
    verbose: verbose::VerboseArg,
    #[command(flatten)]
    help: connect::HelpFlag,
}

/// The verbs, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show what is stored, how, and what it costs
    Inspect(Box<inspect::InspectArgs>),
    /// Find damage, and save what can still be read
    Check(Box<check::CheckArgs>),
    /// Show how one value is stored, or list all values
    Value(Box<value::ValueArgs>),
    /// Show what each key of jsonb and similar documents costs
    Keys(Box<keys::KeysArgs>),
    /// Predict the size and cost of other TOAST settings
    AdviseThreshold(Box<advise::AdviseArgs>),
    /// Rewrite stored values with other settings, online
    Retoast(Box<retoast::RetoastArgs>),
    /// Return free space to the operating system, online
    Compact(Box<compact::CompactArgs>),
    /// Rebuild bloated indexes of tables and TOAST relations
    Reindex(Box<compact::ReindexArgs>),
    /// Show the manual page of a verb, or explain a topic
    Help(help::HelpArgs),
    /// Print the completion script of bash, zsh or fish
    Completions(completions::CompletionsArgs),
}

/// The command line; where it makes no sense the process ends, and the user knows why.
fn parse() -> Cli {
    let parsed = help::command(Cli::command())
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mistake = mistake(&error, &words);
        let is_nagios = inspect::asks_for_nagios(&words);
        if is_nagios {
            inspect::print_unknown(&mistake);
        }
        Ui::new(false).tell(mistake);
        if is_nagios {
            std::process::exit(State::Unknown as i32);
        }
        std::process::exit(Exit::Usage.code().into());
    })
}

/// A mistake in the command line as a message: what is wrong, and hints.
fn mistake(error: &clap::Error, words: &[String]) -> Message {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    let verbs = Cli::command();
    let verb =
        words.iter().find(|word| verbs.find_subcommand(word).is_some()).map_or("", String::as_str);
    let text = error.render().to_string();
    let mut lines = Vec::new();
    let mut hints = Vec::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix("tip: ") {
            _ if line.starts_with("Usage:") || line.starts_with("For more information") => break,
            // clap suggests `--`, which does not apply
            Some(tip) if tip.starts_with("to pass ") => {}
            Some(tip) => {
                hints.push(format!("{}.", capitalized(&tip.replace("subcommand", "verb"))));
            }
            None if line.trim().is_empty() => {}
            None => {
                // clap begins its message with the severity
                let line = line.trim_start_matches(Severity::Error.prefix());
                lines.push(line.replace("subcommand", "verb"));
            }
        }
    }
    if argument == "-h" || argument.starts_with("--host ") {
        hints.push("-h is the server's host, as in psql; -? is for help.".to_owned());
    }
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        let all = if verb.is_empty() { "" } else { " " };
        hints.push(format!("toastctl{all}{verb} -? shows how to use it."));
    }
    Message { hints, ..Message::error(lines.join("\n")) }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Does what the command line says. Results are on standard output when it returns.
fn run(cli: &Cli, ui: &Ui) -> Result<ExitCode, exit::Failure> {
    let exit = match &cli.verb {
        Verb::Inspect(args) => return inspect::run(args, ui),
        Verb::Check(args) => check::run(args, ui),
        Verb::Value(args) => value::run(args, ui),
        Verb::Keys(args) => keys::run(args, ui),
        Verb::AdviseThreshold(args) => advise::run(args, ui),
        Verb::Retoast(args) => retoast::run(args, ui),
        Verb::Compact(args) => compact::compact(args, ui),
        Verb::Reindex(args) => compact::reindex(args, ui),
        Verb::Help(args) => help::run(args, ui),
        Verb::Completions(args) => completions::run(args, ui),
    }?;
    Ok(exit.into())
}

/// Bytes from which on an allocation is mapped by itself; twice as many may stay free in each arena.
const MAPPED: usize = 8 << 20;

/// Has glibc keep memory that is freed for what is read next. Giving it back to the system and taking it again, page by
/// page, is a tenth of the time of a scan. Its thresholds follow the largest allocation that was freed (mallopt(3),
/// M_MMAP_THRESHOLD). Of this one no page is touched but the first, and other allocators do not mind it.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(MAPPED)));
}

/// Parses the process's arguments and does what they say; an error goes to standard error, in a line.
pub fn main() -> ExitCode {
    keep_freed_memory();
    let cli = parse();
    cli.verbose.begin();
    let ui = Ui::new(cli.verbose.quiet);
    match run(&cli, &ui) {
        Ok(code) => code,
        Err(failure) => {
            ui.tell(failure.message);
            failure.exit.into()
        }
    }
}
