//! `toastctl inspect --explain`: from arguments to output and exit code.

use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::inspect::InspectArgs;
use super::inspect_in_turn::Output;
use super::terminal::{self, ReadingProgress};
use crate::advise::advisor::{Advisor, Options};
use crate::advise::explain::result::Explanation;
use crate::advise::run;
use crate::server::connect::SessionOptions;

/// Does what the arguments say.
pub(super) async fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("inspect");
    let connection = terminal::connected(&args.connection, &session).await?;
    let options = Options { sample: args.sample, seed: args.seed, ..Options::default() };
    let advisor = Advisor::open(connection, options, Arc::new(ReadingProgress::default())).await?;
    let mut output = Output::new::<Explanation>(args);
    let interrupt = terminal::interrupted();
    let ended = run::explained(&advisor, &args.tables, &mut output, interrupt).await;
    output.end(ended)
}
