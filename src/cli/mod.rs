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
mod conflicts;
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
mod misread;
mod mistakes;
mod pager;
mod reports;
pub mod retoast;
mod retoast_output;
pub mod settings;
pub mod terminal;
pub mod value;
pub mod verbose;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::message::Message;
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
    max_term_width = 100,
    mut_subcommands(|verb| verb.mut_args(without_default))
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

/// The argument in a help that does not add its default, which the texts name where it matters; words are values in any
/// case.
fn without_default(arg: Arg) -> Arg {
    let takes_values = arg.get_action().takes_values();
    if takes_values { arg.hide_default_value(true).ignore_case(true) } else { arg }
}

/// The command line; where it makes no sense the process ends, and the user knows why.
fn parse() -> Cli {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parsed = help::command(Cli::command()).try_get_matches().and_then(|matches| {
        if let Some(message) = misread::misread(&matches, &words) {
            end_as_unusable(message, &words);
        }
        Cli::from_arg_matches(&matches)
    });
    parsed.unwrap_or_else(|error| {
        let narrow = terminal::output_width().filter(|&width| width < help::WIDEST);
        if let (ErrorKind::DisplayHelp, Some(width)) = (error.kind(), narrow) {
            let text = help::narrowed(&error.render().to_string(), width);
            // a closed pipe is no error
            let _ = std::io::stdout().write_all(text.as_bytes());
            std::process::exit(Exit::Ok.code().into())
        }
        let is_bare = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if !error.use_stderr() || is_bare {
            error.exit();
        }
        end_as_unusable(mistakes::mistake(&error, &words), &words)
    })
}

/// Ends the process because its arguments make no sense.
fn end_as_unusable(mistake: Message, words: &[String]) -> ! {
    let is_nagios = inspect::asks_for_nagios(words);
    if is_nagios {
        inspect::print_unknown(&mistake);
    }
    Ui::new(false).tell(mistake);
    let exit = if is_nagios { State::Unknown as i32 } else { Exit::Usage.code().into() };
    std::process::exit(exit)
}

/// Does what the command line says. Results are on standard output when it returns.
fn run(cli: &Cli, ui: &Ui) -> Result<ExitCode, exit::Failure> {
    let exit = match &cli.verb {
        Verb::Inspect(args) => return inspect::run(args, ui),
        Verb::Check(args) => return check::run(args, ui),
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
    terminal::follow_locale();
    let cli = parse();
    cli.verbose.begin();
    let ui = Ui::new(cli.verbose.quiet);
    let ended = run(&cli, &ui);
    ui.show_paged();
    match ended {
        Ok(code) => code,
        Err(failure) => {
            ui.tell(failure.message);
            failure.exit.into()
        }
    }
}
