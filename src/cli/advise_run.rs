//! Runs `toastctl advise-threshold`: from arguments to output and exit code.

use std::sync::Arc;

use super::advise::AdviseArgs;
use super::advise_output::AdviseOutput;
use super::exit::{Exit, Failure};
use super::terminal::{self, ReadingProgress};
use crate::advise::advisor::Advisor;
use crate::advise::candidate::Narrowing;
use crate::advise::request::Options;
use crate::advise::run;
use crate::report::format::Format;
use crate::server::connect::SessionOptions;

/// Does what the arguments say.
pub(super) fn run(args: &AdviseArgs) -> Result<Exit, Failure> {
    if args.details && (args.emit.is_some() || args.format != Format::Table) {
        return Err(Failure::usage(
            "--details is for --format table; the other formats have all of it".to_owned(),
        ));
    }
    terminal::runtime(1)?.block_on(tables(args))
}

async fn tables(args: &AdviseArgs) -> Result<Exit, Failure> {
    let session = SessionOptions::read_only("advise-threshold");
    let connection = terminal::connected(&args.connection, &session).await?;
    let progress = Arc::new(ReadingProgress::default());
    let advisor = Advisor::open(connection, options(args), progress).await?;
    let mut output = AdviseOutput::new(args);
    let interrupt = terminal::interrupted();
    let ended = run::tables(&advisor, &args.tables, &mut output, interrupt).await;
    output.end(ended)
}

fn options(args: &AdviseArgs) -> Options {
    Options {
        columns: args.column.clone(),
        narrowing: Narrowing {
            storages: args.storage.clone(),
            methods: args.method.clone(),
            targets: args.target.clone(),
            policies: args.policy.clone(),
        },
        sample: args.sample,
        seed: args.seed,
        exact: args.exact,
        optimize: args.optimize,
        reads_per_write: args.reads_per_write,
    }
}
