//! Arguments, connection, exit codes and terminal.
//!
//! [`Cli`] is the whole command line; [`run`] does what it says.

pub mod advise;
mod advise_run;
pub mod connect;
pub mod exit;
pub mod inspect;
mod inspect_policy;
mod inspect_run;
mod maintain;
pub mod retoast;
mod retoast_from;
pub mod retoast_manners;
pub mod retoast_progress;
mod retoast_run;
mod retoast_signals;
mod since_file;
pub mod terminal;
pub mod value_spec;

use clap::{Parser, Subcommand};

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
    /// Help
    #[command(flatten)]
    help: connect::HelpFlag,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show what is stored, how, and what it costs
    Inspect(Box<inspect::InspectArgs>),
    /// Say what other TOAST settings of a table would store and cost
    AdviseThreshold(Box<advise::AdviseArgs>),
    /// Bring what is stored to another compression or storage, online
    Retoast(Box<retoast::RetoastArgs>),
}

/// Does what the command line says. Results are on standard output when it returns.
pub fn run(cli: &Cli) -> Result<exit::Exit, exit::Failure> {
    match &cli.verb {
        Verb::Inspect(args) => inspect_run::run(args),
        Verb::AdviseThreshold(args) => advise_run::run(args),
        Verb::Retoast(args) => retoast_run::run(args),
    }
}
