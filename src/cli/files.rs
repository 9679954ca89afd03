//! Files that are read instead of a server: relation files and saved output of pageinspect, with their options.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::exit::Failure;
use crate::message::capitalized;
use crate::offline::file::{DirectoryKind, RelationFile};
use crate::offline::other_file::{BEGINNING, OtherFile, own_size};
use crate::offline::saved::{SavedError, SavedProblem};
use crate::offline::target::{FileTarget, Misfit, page_size};
use crate::offline::toastfile;
use crate::offline::xact::PgXact;
use toast_format::disk::columns;
use toast_format::disk::custom::CustomFlavor;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::layout::PageSize;
use toast_format::disk::{ByteOrder, ValueIdType};
use toast_format::heap::sample::Sampling;

/// Options that have no effect where files are read.
pub(super) const OF_SERVERS: [&str; 7] =
    ["host", "port", "username", "dbname", "no_password", "password", "allow"];

/// The most bytes of columns that are read.
const MAX_TEXT: u64 = 16 << 20;

/// A relation file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Without a server")]
pub struct FileArgs {
    /// Read a relation file and its segments
    ///
    /// The file must be complete and not in use: the server was shut down cleanly, or the file comes from a restored
    /// backup. Segments (.1, .2, ...) are found automatically. The page size is taken from the pages.
    #[arg(long, value_name = "FILE", requires = "file_columns", conflicts_with_all = OF_SERVERS)]
    relation_file: Option<PathBuf>,

    /// File of the table's TOAST relation
    #[arg(long, value_name = "FILE", requires = "relation_file")]
    toast_file: Option<PathBuf>,

    /// pg_xact, for rows without hint bits
    ///
    /// A file of pg_xact, or the directory; it holds the commit status of transactions.
    #[arg(hide_short_help = true, long, value_name = "FILE", requires = "relation_file")]
    xact: Option<PathBuf>,

    /// The columns, such as 'id int4, doc jsonb'
    ///
    /// For dropped columns and types that are not built in, give length and alignment, as in 'old dropped(-1,i), c
    /// mytype(-1,d)'. @FILE reads rows of pg_attribute as JSON; FILES shows the query that prints them.
    #[arg(long = "columns", value_name = "LIST|@FILE")]
    file_columns: Option<String>,

    /// Layout of the pointers of pluggable toasters (tag 4)
    ///
    /// For pointers whose layout is not detected.
    #[arg(hide_short_help = true, long, value_parser = flavors(), default_value = "auto")]
    pub(super) flavor: CustomFlavor,
}

/// The layouts of custom pointers, by name.
fn flavors() -> impl TypedValueParser<Value = CustomFlavor> {
    let values = CustomFlavor::ALL.iter().map(|flavor| {
        PossibleValue::new(flavor.name()).help(match flavor {
            CustomFlavor::Auto => "Detected for each pointer",
            CustomFlavor::Bits16 => "16-bit length",
            CustomFlavor::Bits32 => "32-bit length",
            CustomFlavor::HeadOnly => "16-bit length, without the data that it counts",
            CustomFlavor::Oid8 => "TOAST pointers with value IDs of 8 bytes (PostgreSQL 20)",
        })
    });
    PossibleValuesParser::new(values).map(|name| {
        CustomFlavor::ALL
            .iter()
            .copied()
            .find(|flavor| name.eq_ignore_ascii_case(flavor.name()))
            .unwrap_or_default()
    })
}

impl FileArgs {
    pub(super) fn is_given(&self) -> bool {
        self.relation_file.is_some()
    }

    /// The relation file, if one is given, and no tables. `reads_text` says whether another option names a file.
    ///
    /// # Errors
    /// Where there are both, its columns or its commit status cannot be read, or there are columns of nothing.
    pub(super) fn file(
        &self,
        tables: &[String],
        reads_text: bool,
    ) -> Result<Option<File<'_>>, Failure> {
        let Some(heap) = &self.relation_file else {
            if self.file_columns.is_some() && !reads_text {
                return Err(Failure::usage("--columns describes a file, and no file is given")
                    .hint("--relation-file names one; -c COLUMN chooses columns of tables."));
            }
            return Ok(None);
        };
        no_tables("--relation-file", tables)?;
        for path in [Some(heap), self.toast_file.as_ref()].into_iter().flatten() {
            no_directory(path)?;
        }
        let page_size = page_size(heap);
        let toast = self.toast_file.as_deref();
        let id_type = toast.map_or(ValueIdType::Oid, |path| toastfile::id_type(path, page_size));
        let file = File {
            heap,
            toast,
            desc: TupleDesc { id_type, ..self.columns()? },
            page_size,
            flavor: self.flavor,
            xact: self.xact.as_deref().map(open_xact).transpose()?,
        };
        file.check_columns()?;
        Ok(Some(file))
    }

    /// The columns of `--columns`.
    fn columns(&self) -> Result<TupleDesc, Failure> {
        let given = self.file_columns.as_deref().unwrap_or_default();
        let desc = match given.strip_prefix('@') {
            None => columns::parse_list(given)
                .map_err(|error| Failure::usage(format!("--columns: {error}"))),
            Some(path) => {
                let text = read_text(Path::new(path))?;
                columns::parse_json(&text)
                    .map_err(|error| Failure::usage(format!("--columns: \"{path}\": {error}")))
            }
        }?;
        let mut names: Vec<&str> =
            desc.attributes.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Failure::usage(format!("--columns: two columns have the name \"{}\"", pair[0])))
            }
            None => Ok(desc),
        }
    }
}

/// A relation file that is to be read.
pub(super) struct File<'a> {
    heap: &'a Path,
    toast: Option<&'a Path>,
    desc: TupleDesc,
    page_size: PageSize,
    flavor: CustomFlavor,
    xact: Option<PgXact>,
}

impl File<'_> {
    /// Refuses columns that are not those of the rows, and files that are named in each other's place.
    fn check_columns(&self) -> Result<(), Failure> {
        const COLUMNS: &str = "Dropped columns count too: the query under \"Files\" of toastctl help check prints all columns.";
        let target = self.target(None);
        let heap = self.heap.display();
        let failure = match target.misfit() {
            Some(Misfit::Attributes(attributes)) => {
                let named = self.desc.attributes.len();
                let text = format!(
                    "{heap}: rows have {attributes} attributes, but --columns names {named}"
                );
                Failure::usage(text).hint(COLUMNS)
            }
            Some(Misfit::Column { name, failed, rows }) => {
                let text = format!(
                    "{heap}: --columns does not fit: {failed} of {rows} rows cannot be read, most often from column \"{name}\" on"
                );
                Failure::usage(text).hint(COLUMNS)
            }
            Some(Misfit::Flavor { failed, rows }) => {
                let text = format!(
                    "{heap}: --flavor {} does not fit: {failed} of {rows} rows cannot be read with it",
                    self.flavor.name()
                );
                Failure::usage(text).hint("Leave --flavor away: the layout that is detected fits.")
            }
            Some(Misfit::ToastRelation) => {
                let text = format!("{heap}: its rows are those of a TOAST relation");
                Failure::usage(text)
                    .hint("--toast-file names that file, and --relation-file that of its table.")
            }
            None if target.is_no_toast() => {
                let toast = self.toast.unwrap_or(self.heap).display();
                Failure::usage(format!("{toast}: its rows are not those of a TOAST relation")).hint(
                    "--toast-file names the file of the table's TOAST relation (reltoastrelid in pg_class).",
                )
            }
            None => return Ok(()),
        };
        Err(failure)
    }

    /// What is read: all of it, or a sample.
    pub(super) fn target(&self, sampling: Option<Sampling>) -> FileTarget<'_> {
        FileTarget {
            heap: self.heap,
            toast: self.toast,
            desc: &self.desc,
            page_size: self.page_size,
            flavor: self.flavor,
            xact: self.xact.as_ref(),
            checksums: None,
            sampling,
        }
    }
}

/// Saved output of pageinspect.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Without a server")]
pub struct SavedArgs {
    /// Read pageinspect's saved output; - is stdin
    ///
    /// The output of heap_page_items, heap_page_item_attrs, get_raw_page or tuple_data_split: as psql prints it by
    /// default or with \x, unaligned, as CSV, or as JSON.
    #[arg(long, value_name = "FILE", requires = "file_columns", conflicts_with_all = ["relation_file", "flavor"],
          conflicts_with_all = OF_SERVERS)]
    pageinspect: Option<PathBuf>,
}

impl SavedArgs {
    pub(super) fn is_given(&self) -> bool {
        self.pageinspect.is_some()
    }

    /// The saved output, if it is given, and no tables: opened, with its columns.
    ///
    /// # Errors
    /// Where there are both, or it or its columns cannot be read.
    pub(super) fn text(
        &self,
        file: &FileArgs,
        tables: &[String],
    ) -> Result<Option<SavedText>, Failure> {
        let Some(path) = &self.pageinspect else { return Ok(None) };
        no_tables("--pageinspect", tables)?;
        if let Some(failure) = directory_error(path, SAVED) {
            return Err(failure);
        }
        let desc = file.columns()?;
        let name =
            if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let source = text(path, open(path)?)?;
        Ok(Some(SavedText { name, desc, source }))
    }
}

pub(super) struct SavedText {
    /// What stands for it in messages.
    pub(super) name: String,
    pub(super) desc: TupleDesc,
    pub(super) source: Box<dyn Read>,
}

/// The failure that a file cannot be read at all.
pub(super) fn unreadable(name: &str, error: &io::Error) -> Failure {
    let Some(first) = error.get_ref().and_then(|inner| inner.downcast_ref::<SavedError>()) else {
        return Failure::usage(format!("could not read \"{name}\": {error}"));
    };
    let text = format!("\"{name}\" has no output of pageinspect");
    let failure = match first.problem {
        SavedProblem::Nothing => Failure::usage(text),
        _ => Failure::usage(format!("{text}: {first}")),
    };
    match first.problem.hint() {
        Some(hint) => failure.hint(format!("{}.", capitalized(hint))),
        None => failure,
    }
}

/// The order of bytes of a datum or of saved output.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Without a server")]
pub struct OrderArg {
    /// Bytes come from a big-endian machine
    ///
    /// For --datum and --pageinspect. For relation files, the byte order is detected from the page headers.
    #[arg(hide_short_help = true, long, conflicts_with = "relation_file")]
    big_endian: bool,
}

impl OrderArg {
    /// Refuses the option where what is read shows its order of bytes.
    pub(super) fn check(self, is_used: bool) -> Result<(), Failure> {
        if self.big_endian && !is_used {
            return Err(Failure::usage(
                "--big-endian has no effect: it is for --pageinspect and value --datum",
            ));
        }
        Ok(())
    }

    pub(super) fn order(self) -> ByteOrder {
        if self.big_endian { ByteOrder::Big } else { ByteOrder::Little }
    }
}

/// Refuses tables together with a file.
fn no_tables(option: &str, tables: &[String]) -> Result<(), Failure> {
    match tables {
        [] => Ok(()),
        [table, ..] => Err(Failure::usage(format!(
            "{option} is read without a server: it cannot be used with a table (\"{table}\")"
        ))),
    }
}

/// What to name instead of a directory.
fn in_directory(directory: DirectoryKind) -> String {
    let files = match directory {
        DirectoryKind::Data => "Each table has files of its own below it, such as base/16384/16385",
        DirectoryKind::Database => "Each table has files of its own in it, such as 16385",
        DirectoryKind::Other => "A table's own file has a name such as 16385",
    };
    format!("{files}: toastctl help files says how to find and read them.")
}

/// What messages call saved output.
pub(super) const SAVED: &str = "saved output of pageinspect";

/// The failure that a directory was given in place of something else.
pub(super) fn directory_error(path: &Path, instead_of: &str) -> Option<Failure> {
    let directory = DirectoryKind::at(path)?;
    let text = format!("\"{}\" is {}, not {instead_of}", path.display(), directory.name());
    let hint = if instead_of == SAVED {
        "toastctl help files shows how output of pageinspect is saved to a file.".to_owned()
    } else {
        in_directory(directory)
    };
    Some(Failure::usage(text).hint(hint))
}

/// Refuses a directory where a relation file is expected.
fn no_directory(path: &Path) -> Result<(), Failure> {
    directory_error(path, "a relation file").map_or(Ok(()), Err)
}

/// Why a file could not be read even if its columns were known.
pub(super) fn unusable(path: &Path) -> Option<Failure> {
    directory_error(path, "a relation file").or_else(|| {
        let error = RelationFile::open(path, PageSize::DEFAULT).err()?;
        Some(Failure::usage(error.to_string()))
    })
}

/// Opens a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match std::fs::File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(unreadable(&path.display().to_string(), &error)),
    }
}

/// The contents of a file or standard input.
///
/// # Errors
/// If it cannot be read, or is a file of another kind.
fn text(path: &Path, mut source: Box<dyn Read>) -> Result<Box<dyn Read>, Failure> {
    let mut beginning = Vec::with_capacity(BEGINNING);
    let read = source.by_ref().take(BEGINNING as u64).read_to_end(&mut beginning);
    let name = path.display().to_string();
    read.map_err(|error| unreadable(&name, &error))?;
    match OtherFile::recognize(&beginning) {
        Some(kind) if kind != OtherFile::TEXT => Err(Failure::usage(format!(
            "\"{name}\" is {}, not saved output of pageinspect",
            kind.name
        ))),
        None if own_size(&beginning).is_some() => {
            let text = format!("\"{name}\" is a relation file, not saved output of pageinspect");
            Err(Failure::usage(text).hint("--relation-file reads it."))
        }
        _ => Ok(Box::new(io::Cursor::new(beginning).chain(source))),
    }
}

/// Reads what [`open`] opens.
fn read_text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&path.display().to_string(), &error))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(Failure::usage(format!(
            "\"{}\" is longer than {} MB",
            path.display(),
            MAX_TEXT >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("\"{}\": byte {at} is not UTF-8", path.display()))
    })
}

fn open_xact(path: &Path) -> Result<PgXact, Failure> {
    PgXact::open(path).map_err(|error| Failure::usage(format!("--xact: {error}")))
}
