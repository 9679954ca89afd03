//! Runs `toastctl advise-threshold`: from arguments to output and exit code.

use std::sync::Arc;

use super::advise::{AdviseArgs, Emit};
use super::advise_output::AdviseOutput;
use super::exit::{Exit, Failure};
use super::terminal::{self, ReadingProgress};
use crate::advise::advisor::{Advisor, Options};
use crate::advise::candidate::Narrowing;
use crate::advise::run;
use crate::report::document::Format;
use crate::server::connect::SessionOptions;

/// Does what the arguments say.
pub(super) fn run(args: &AdviseArgs) -> Result<Exit, Failure> {
    if args.details && (args.emit.is_some() || args.format != Format::Table) {
        return Err(Failure::usage(
            "--details is for --format table; the other formats have all of it".to_owned(),
        ));
    }
    if args.extract.is_some() {
        extraction(args).map_err(|message| Failure::usage(message.to_owned()))?;
    }
    terminal::runtime(1)?.block_on(tables(args))
}

/// Whether the other arguments go with `--extract`.
fn extraction(args: &AdviseArgs) -> Result<(), &'static str> {
    if args.tables.len() != 1 {
        return Err("--extract is for one table\nHINT:  Name the table.");
    }
    if args.emit == Some(Emit::Command) {
        return Err("--extract has no command\nHINT:  --emit sql prints its migration.");
    }
    if args.format == Format::Csv {
        return Err("--extract has no form in CSV\nHINT:  --format json has all of it.");
    }
    Ok(())
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
        extract: args.extract.clone(),
        sample: args.sample,
        seed: args.seed,
        exact: args.exact,
        optimize: args.optimize,
        reads_per_write: args.reads_per_write,
    }
}
