//! The `toastctl` command.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use toastctl::cli::Cli;

fn main() -> ExitCode {
    match toastctl::cli::run(&Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // Where standard error is closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "toastctl: error: {}", failure.message);
            failure.exit.into()
        }
    }
}
