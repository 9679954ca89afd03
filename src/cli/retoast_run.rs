//! Runs `toastctl retoast`: from arguments to report and exit code.

use std::sync::Arc;

use super::exit::{Exit, Failure};
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
use crate::server::connect::SessionOptions;

/// Does what the arguments say.
pub(super) fn run(args: &RetoastArgs) -> Result<Exit, Failure> {
    let request = request(args)?;
    let refused = args.list_refused.as_deref().map(RefusedFile::create).transpose()?;
    terminal::runtime(2)?.block_on(retoast(args, &request, refused))
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
    let control = Arc::new(Control::default());
    let run = tables::run(connection, request, Arc::clone(&control), &watch, &mut output);
    let ended = tokio::select! {
        ended = run => ended,
        never = listen(&control, args.max_runtime) => match never {},
    };
    watch.end();
    output.end(ended, control.stopped())
}
