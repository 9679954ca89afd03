//! Options of `inspect --check`.

use std::path::PathBuf;

use clap::Args;

use crate::check::subject::Depth;

/// Whether damage is looked for, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Check")]
pub struct CheckArgs {
    /// Look for damage instead of showing statistics: pages, line pointers, tuples, TOAST pointers,
    /// chunks, compressed data. Each finding has a code (toastctl help findings) and a place; the
    /// exit code is 5 if there is any. A relation file must not be in use, and must be whole: of a
    /// server that was shut down, or of a backup that was restored
    #[arg(long, conflicts_with_all = ["values", "value", "datum", "sample", "policy"])]
    pub check: bool,

    /// Check what is in the values too: jsonb, text in UTF-8, numeric, arrays
    #[arg(long, requires = "check")]
    pub deep: bool,

    /// Do not decompress: chunks are counted and measured only
    #[arg(long, requires = "check", conflicts_with = "deep")]
    pub no_decompress: bool,

    /// End with the first finding
    #[arg(long, requires = "check")]
    pub fail_fast: bool,

    /// Write what can still be read of damaged values to files in this directory, with a manifest
    /// (manifest.jsonl) and SQL (repair.sql) that rebuilds a damaged TOAST index, makes chunks live again
    /// that are all there, and else sets values to NULL if their rows are as they were found and no other
    /// row has the same chunks: for that the whole table and its TOAST relation are read once more. The SQL
    /// is printed too, and never run
    #[arg(long, value_name = "DIR", requires = "check", conflicts_with = "pageinspect")]
    pub salvage: Option<PathBuf>,

    /// Verify the checksums of a relation file's pages [default: if the control file above it says
    /// that the cluster has checksums]. On a server they are verified with --check, on disk: in memory a
    /// page's checksum is not kept up to date
    #[arg(long, requires = "relation_file")]
    pub checksums: bool,

    /// Read a relation file's pages as they are, also with wrong checksums: of a copy of damaged files
    #[arg(long, requires = "relation_file", conflicts_with = "checksums")]
    pub ignore_checksums: bool,

    /// The encoding of the file's database; text is checked where it is UTF8
    #[arg(long, value_name = "NAME", default_value = "UTF8", requires = "deep")]
    pub encoding: String,
}

impl CheckArgs {
    /// How far the check goes, where the database has this encoding.
    pub(super) fn depth(&self, encoding: &str) -> Depth {
        let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
        Depth {
            decompress: !self.no_decompress,
            content: self.deep,
            utf8: name.eq_ignore_ascii_case("utf8"),
        }
    }
}
