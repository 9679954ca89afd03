//! Arguments, connection, exit codes and terminal.
//!
//! [`Cli`] is the whole command line; [`run`] does what it says.

pub mod advise;
mod advise_output;
mod advise_run;
pub mod completions;
pub mod connect;
pub mod exit;
pub mod help;
pub mod inspect;
mod inspect_check;
mod inspect_check_args;
mod inspect_explain;
mod inspect_in_turn;
mod inspect_keys;
mod inspect_output;
mod inspect_overview;
mod inspect_overview_args;
mod inspect_request;
mod inspect_run;
pub mod manual;
mod refused_file;
pub mod retoast;
pub mod retoast_manners;
mod retoast_output;
pub mod retoast_progress;
mod retoast_request;
mod retoast_run;
mod retoast_signals;
pub mod terminal;
pub mod value_spec;
pub mod verbose;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use exit::Exit;

/// See, predict and change how PostgreSQL stores large values (TOAST).
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
    /// How much is told
    #[command(flatten)]
    verbose: verbose::VerboseArg,
    /// Help
    #[command(flatten)]
    help: connect::HelpFlag,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show what is stored, how, and what it costs
    Inspect(Box<inspect::InspectArgs>),
    /// Predict the size and cost of other TOAST settings
    AdviseThreshold(Box<advise::AdviseArgs>),
    /// Rewrite stored values with another compression or storage, online
    Retoast(Box<retoast::RetoastArgs>),
    /// Show a verb's help with examples, or a topic: policies, forms, advice, findings, throttle, exit-codes, permissions, json
    Help(help::HelpArgs),
    /// Print what bash, zsh or fish completes command lines by
    Completions(completions::CompletionsArgs),
}

/// The command line; where it makes no sense the process ends, and the user knows why.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let of_host = |value: &ContextValue| {
            let argument = value.to_string();
            argument == "-h" || argument.starts_with("--host ")
        };
        if error.use_stderr() && error.get(ContextKind::InvalidArg).is_some_and(of_host) {
            let hint =
                "HINT:  -h is the server's host, as in psql; help is --help, -? or toastctl help.";
            let _ = error.print();
            let _ = writeln!(io::stderr(), "{hint}");
            std::process::exit(Exit::Usage.code().into());
        }
        error.exit()
    })
}

/// Does what the command line says. Results are on standard output when it returns.
pub fn run(cli: &Cli) -> Result<exit::Exit, exit::Failure> {
    match &cli.verb {
        Verb::Inspect(args) => inspect_run::run(args),
        Verb::AdviseThreshold(args) => advise_run::run(args),
        Verb::Retoast(args) => retoast_run::run(args),
        Verb::Help(args) => help::run(args),
        Verb::Completions(args) => completions::run(args),
    }
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
    match run(&cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // Where standard error is closed nobody can be reached.
            let _ = writeln!(io::stderr(), "toastctl: error: {}", failure.message);
            failure.exit.into()
        }
    }
}
