//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::io::{self, Write};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::maintain::{self, Around};
use super::refused_file::RefusedFile;
use super::retoast::RetoastArgs;
use super::retoast_output::RetoastOutput;
use super::retoast_progress::Progress;
use super::retoast_request::request;
use super::retoast_signals::listen;
use super::terminal;
use crate::retoast::pace::control::Control;
use crate::retoast::run::request::Request;
use crate::retoast::run::tables;
use crate::server::connect::{SessionOptions, Surroundings, ThisProcess};

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    if args.maintain {
        return print_entry(args);
    }
    let request = request(args)?;
    let refused = args.list_refused.as_deref().map(RefusedFile::create).transpose()?;
    terminal::runtime(2)?.block_on(retoast(args, &request, refused))
}

/// Prints the crontab entry.
fn print_entry(args: &RetoastArgs) -> Result<Exit, Failure> {
    let unknown = |what: &'static str| {
        move |error: io::Error| Failure::new(Exit::Incomplete, format!("{what}: {error}"))
    };
    let around = Around {
        program: std::env::current_exe().map_err(unknown("could not find this program's file"))?,
        directory: std::env::current_dir().map_err(unknown("could not find this directory"))?,
        environment: ThisProcess::new().environment().clone(),
    };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let entry = maintain::entry(args, &words.collect::<Vec<String>>(), &around)?;
    // Nobody to tell is no reason to fail.
    let _ = write!(io::stdout(), "{entry}");
    Ok(Exit::Ok)
}

async fn retoast(
    args: &RetoastArgs,
    request: &Request,
    refused: Option<RefusedFile>,
) -> Result<Exit, Failure> {
    let session = SessionOptions::read_write("retoast");
    let connection = terminal::connected(&args.connection, &session).await?;
    let watch = Progress::new(args.progress, refused);
    let mut output = RetoastOutput::new(args);
    let control = Arc::new(Control::new(args.manners.pause_file.clone()));
    let run = tables::run(connection, request, Arc::clone(&control), &watch, &mut output);
    let ended = tokio::select! {
        ended = run => ended,
        never = listen(&control, args.max_runtime, args.stop_file.as_deref()) => match never {},
    };
    watch.end();
    output.end(ended, control.stopped())
}
