//! `toastctl completions`: what a shell completes command lines by.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::Cli;
use super::connect::PlainHelpFlag;
use super::exit::{Exit, Failure};
use super::terminal;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellArg,

    #[command(flatten)]
    pub help: PlainHelpFlag,
}

/// The shells there are completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// Save as ~/.local/share/bash-completion/completions/toastctl
    Bash,
    /// Save as _toastctl in a directory of $fpath
    Zsh,
    /// Save as ~/.config/fish/completions/toastctl.fish
    Fish,
}

impl From<ShellArg> for Shell {
    fn from(arg: ShellArg) -> Shell {
        match arg {
            ShellArg::Bash => Shell::Bash,
            ShellArg::Zsh => Shell::Zsh,
            ShellArg::Fish => Shell::Fish,
        }
    }
}

/// Prints the shell's script.
pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    generate(Shell::from(args.shell), &mut Cli::command(), "toastctl", &mut script);
    terminal::print(&script)
}
