//! `toastctl advise-threshold`.

use clap::{Args, ValueEnum};

use super::connect::{ConnectionArgs, HelpFlag};
use crate::advise::extract::keys::Extract;
use crate::advise::recommend::Optimize;
use crate::disk::desc::Storage;
use crate::heap::sample::SampleSize;
use crate::model::policy::{MethodChoice, Policy};
use crate::model::settings::TupleTarget;
use crate::report::document::Format;

/// Arguments of `advise-threshold`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Tables, as psql takes them: schema.name, "Quoted Name", patterns with * and ?; the five largest
    /// of the database if none is named
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,

    /// A column; may be given several times. Without it those that hold at least a tenth of the
    /// rows' bytes. Of the tables that a pattern matches those without it are left out
    #[arg(short, long, value_name = "COLUMN")]
    pub column: Vec<String>,

    /// Compare this storage: plain, main, external, extended
    #[arg(long, value_name = "STORAGE", help_heading = "What is compared")]
    pub storage: Vec<Storage>,

    /// Compare this compression method: pglz, lz4, or either (the better one for each value)
    #[arg(long, value_name = "METHOD", help_heading = "What is compared")]
    pub method: Vec<MethodChoice>,

    /// Compare this toast_tuple_target, 128 to 8160
    #[arg(long, value_name = "BYTES", help_heading = "What is compared")]
    pub target: Vec<TupleTarget>,

    /// Compare this policy, which decides value by value what is kept compressed: always, never,
    /// chunk-saving[=1] (what saves so many chunks), ratio[=0.95] (what takes at most that part),
    /// chunk-floor[=100] (chunk-saving from so many chunks on, always below), hybrid[=0.90] (ratio,
    /// or more extra chunks than the logarithm of the value's), best (what the cost model says)
    #[arg(long, value_name = "POLICY", help_heading = "What is compared")]
    pub policy: Vec<Policy>,

    /// Price the table with these keys of a jsonb column, at the root of its documents, in columns of their
    /// own; a key with a comma in double quotes; auto takes those that pay most, by what is
    /// known of their use. With --emit sql print the migration, as a script for psql
    #[arg(long, value_name = "KEY[,KEY...]|auto", help_heading = "What is compared")]
    pub extract: Option<Extract>,

    /// How much to read: 1%, "5000 blocks", 100%. Without it 1 %, but at least 200 and at most 3000
    /// blocks, of their rows as many as can be compressed in seconds, and no more than about 100 MB or
    /// 3 s; the report says what was read. What compaction would give back is told by such a part of each
    /// file, of 8192 blocks at the most; without this option by 2048
    #[arg(long, value_name = "PART", help_heading = "Sample")]
    pub sample: Option<SampleSize>,

    /// The seed of the random choice of blocks
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Sample")]
    pub seed: u64,

    /// Have the server compress the sample in a temporary table, in case its liblz4 differs from the
    /// version that is imitated; without pages it always does
    #[arg(long, help_heading = "Sample")]
    pub exact: bool,

    /// What counts most
    #[arg(long, value_enum, default_value_t, help_heading = "Recommendation")]
    pub optimize: Optimize,

    /// Rows read per row written, instead of what pg_stat_statements and the server's statistics
    /// say
    #[arg(long, value_name = "NUMBER", value_parser = reads_per_write, allow_negative_numbers = true, help_heading = "Recommendation")]
    pub reads_per_write: Option<f64>,

    /// Print only the statements or the command that carry out the recommendation, or the migration that
    /// --extract prices
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Output")]
    pub emit: Option<Emit>,

    /// How to print
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,

    /// Explain terms, name every candidate's caveats, and add all notes
    #[arg(long, help_heading = "Output")]
    pub details: bool,

    /// Draw size against read cost
    #[arg(long, help_heading = "Output")]
    pub plot: bool,

    /// How to connect
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Help
    #[command(flatten)]
    pub help: HelpFlag,
}

/// `--emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// ALTER TABLE statements; with --extract the migration
    Sql,
    /// The retoast command
    Command,
}

fn reads_per_write(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| format!("expected a number from 0 on, got \"{text}\""))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;
    use crate::codec::Method;
    use crate::disk::desc::Storage;
    use crate::disk::layout::PageSize;
    use crate::judge::command::{CommandTarget, command};
    use crate::model::policy::MethodChoice;
    use crate::model::settings::{Settings, TupleTarget};

    /// The words that a POSIX shell makes of a command.
    fn words(command: &str) -> Vec<String> {
        let script = format!("set -- {command}\nprintf '%s\\0' \"$@\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn emitted_commands_are_those_that_retoast_takes() {
        let methods =
            [MethodChoice::One(Method::Pglz), MethodChoice::One(Method::Lz4), MethodChoice::Either];
        let policies = [
            "always",
            "never",
            "chunk-saving",
            "chunk-saving=3",
            "ratio=0.8",
            "chunk-floor=50",
            "hybrid=0.85",
            "best",
        ];
        let present = Settings {
            storage: Storage::Extended,
            method: methods[0],
            target: TupleTarget::new(2032, PageSize::DEFAULT).unwrap(),
            policy: "always".parse().unwrap(),
        };
        let targets = [
            CommandTarget { schema: "public", table: "docs", column: "js" },
            CommandTarget { schema: "My Schema", table: "it's $x", column: "a\"b *?\\" },
            CommandTarget { schema: "s", table: "-t", column: "--toaster" },
        ];
        let mut parsed = 0;
        for storage in [Storage::Plain, Storage::Main, Storage::External, Storage::Extended] {
            for method in methods {
                for policy in policies {
                    for target_bytes in [2032, 4080] {
                        let target = TupleTarget::new(target_bytes, PageSize::DEFAULT).unwrap();
                        let policy = policy.parse().unwrap();
                        let wanted = Settings { storage, method, target, policy };
                        if wanted.check().is_err() {
                            continue;
                        }
                        for named in targets {
                            let text = command(named, &present, &wanted, Some("--compact=toast"));
                            let words = words(&text);
                            let cli = Cli::try_parse_from(&words);
                            assert!(cli.is_ok(), "{text}: {}", cli.err().unwrap());
                            assert!(
                                words.contains(&named.column.to_owned())
                                    || words.contains(&format!("--column={}", named.column)),
                                "{words:?}"
                            );
                            parsed += 1;
                        }
                    }
                }
            }
        }
        assert!(parsed >= 3 * 2 * 8, "{parsed}");
    }
}
