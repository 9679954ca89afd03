//! What `advise-threshold` reports: the one type that every output format is made from.
//!
//! The JSON form is the serialization of [`Document`]; its shape is documented in
//! `man/json/advise-threshold.schema.json`. Sizes are bytes.

use derive_more::Add;
use serde::Serialize;

use super::estimate::{Figures, FileSizes};
use super::extract::result::ExtractionReport;
use super::plan::Limit;
use super::recommend::{Optimize, change_of_space};
use super::tally::Forms;
use crate::command::shell_line;
use crate::server::about::ServerReport;
use crate::server::catalog::{Relation, RelationName};
use toast_format::fill::moves::Expected;
use toast_format::heap::problem::Problems;
use toast_format::model::cost::Pricing;
use toast_format::model::settings::Settings;
use toast_format::model::{Form, Interval};

/// Name and version of the JSON shape.
pub const SCHEMA: &str = "toastctl.advise/2";

/// What toastctl advise-threshold --format json prints. Sizes are bytes. With --format jsonl each line is one column, to
/// which the field schema is added.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Document {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    server: ServerReport,
    columns: Vec<Report>,
}

impl Document {
    pub(crate) fn new(server: ServerReport) -> Document {
        Document { schema: SCHEMA, server, columns: Vec::new() }
    }
}

/// The advice on one column.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Report {
    #[serde(flatten)]
    pub table: RelationName,
    pub column: String,
    pub column_type: String,
    /// What was examined.
    pub sample: SampleReport,
    /// For a table of Citus, the shards that were sampled, each in proportion to its size; null for other tables. The table's
    /// figures include all copies of these shards.
    pub citus: Option<ShardsReport>,
    /// For a partitioned table, the partitions that were sampled, each in proportion to its size; null for other tables.
    pub partitions: Option<PartitionsReport>,
    /// What the recommendation makes of each relation that was read, as a part of its present size.
    #[serde(skip)]
    pub(super) part_changes: Vec<f64>,
    /// Sizes of the relation's files at this moment, with dead rows and free space.
    pub files: Files,
    /// What compaction alone would give back, whatever the settings; null if that is not worth it.
    pub compaction: Option<CompactionReport>,
    /// The owner of the table, or of partitions, if this user lacks the owner's rights, which commands need; several are
    /// separated by commas; null if it has them.
    pub other_owner: Option<String>,
    /// A trigger or rule that each UPDATE sets off, so that retoast refuses the table until it is disabled; null if there is none.
    pub set_off: Option<String>,
    /// What the recommendation is for.
    pub optimize: Optimize,
    /// How the table is used.
    pub workload: WorkloadReport,
    /// What CPU times rest on.
    pub calibration: CalibrationReport,
    /// Today's settings first, as the values are stored now, then the others.
    pub candidates: Vec<CandidateReport>,
    /// The table with keys of its documents in columns of their own, which `keys --extract` reports.
    #[serde(skip)]
    pub extraction: Option<ExtractionReport>,
    /// What pluggable toasters would do: an estimate, also for servers that have none.
    pub pluggable: Vec<PluggableReport>,
    /// What to do.
    pub recommendation: RecommendationReport,
    /// Notes for the user.
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub problems: Problems,
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct SampleReport {
    /// Blocks read.
    pub blocks: u32,
    /// Blocks of the heap.
    pub total_blocks: u32,
    /// Live rows of these blocks.
    pub rows: u64,
    /// Rows of these whose values were examined.
    pub rows_examined: u64,
    /// Other columns that were not named and are not advised on, because they hold less than 10 % of the rows each; 0 if
    /// they hold less than that together.
    pub columns_left_out: u64,
    /// Bytes fetched from the TOAST relation.
    pub fetched_bytes: u64,
    /// Bytes read in all: these and the blocks.
    pub read_bytes: u64,
    /// Why reading ended before all chosen blocks were read: `bytes` or `time`.
    pub limit: Option<Limit>,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether everything was examined, so that only the error of the model remains.
    pub complete: bool,
    /// Whether the server compressed the sample.
    pub exact: bool,
    /// How rows were read: by `pageinspect`, or by SQL `functions`, which do not show dead rows and free space.
    pub source: Access,
}

/// How rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    #[default]
    #[serde(rename = "pageinspect")]
    Pages,
    /// By SQL functions, the server compressing the sample.
    Functions,
}

/// The shards of a table of Citus.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ShardsReport {
    /// Shards that were sampled, one copy of each.
    pub shards: u64,
    /// Nodes on which they were read.
    pub nodes: u64,
    /// Shards that could not be read; the errors say why. No figure includes them.
    pub not_read: u64,
    /// The sampled shards and their copies, all of which the figures include. Copies are not read, and assumed to be equal.
    pub copies: u64,
}

/// The partitions of a table that is advised on as a whole.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct PartitionsReport {
    /// Partitions that were sampled.
    pub partitions: u64,
    /// Partitions that could not be read; the errors say why. No figure includes them.
    pub not_read: u64,
    /// Partitions whose columns or settings are not those of the others, each with the difference. No figure includes
    /// them.
    pub different: Vec<String>,
}

impl PartitionsReport {
    /// Partitions that no figure includes.
    pub(crate) fn left_out(&self) -> u64 {
        self.not_read + self.different.len() as u64
    }
}

/// Sizes of files.
#[derive(Debug, Clone, Copy, Default, Serialize, schemars::JsonSchema, Add)]
pub struct Files {
    /// The heap's main fork.
    pub heap_bytes: u64,
    /// The TOAST relation's main fork.
    pub toast_bytes: u64,
    /// Its index.
    pub toast_index_bytes: u64,
    /// The three together.
    pub total_bytes: u64,
}

impl Files {
    /// The files of a relation whose heap has this size.
    pub(super) fn new(relation: &Relation, heap_bytes: u64) -> Files {
        let toast = relation.toast.as_ref();
        let (toast_bytes, toast_index_bytes) =
            toast.map_or((0, 0), |toast| (toast.bytes, toast.index_bytes));
        let total_bytes = heap_bytes + toast_bytes + toast_index_bytes;
        Files { heap_bytes, toast_bytes, toast_index_bytes, total_bytes }
    }

    /// The same without the free space that they have more than fresh files with these figures.
    pub(super) fn without_free_space(&self, fresh: &FileSizes) -> Files {
        let heap_bytes = self.heap_bytes.min(fresh.heap_bytes.bytes());
        let toast_bytes = self.toast_bytes.min(fresh.toast_bytes.bytes());
        let toast_index_bytes = self.toast_index_bytes.min(fresh.toast_index_bytes.bytes());
        let total_bytes = heap_bytes + toast_bytes + toast_index_bytes;
        Files { heap_bytes, toast_bytes, toast_index_bytes, total_bytes }
    }
}

/// What compaction would return of files and indexes as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct CompactionReport {
    /// Bytes returned from the heap; 0 if compaction is not worthwhile.
    pub heap_bytes: u64,
    /// Of the TOAST relation.
    pub toast_bytes: u64,
    /// Of indexes.
    pub index_bytes: u64,
    /// The files that would shrink, if pages could be read.
    pub files: Vec<FileCompaction>,
    /// The indexes that would shrink if rebuilt.
    pub indexes: Vec<IndexCompaction>,
    /// The command that does it.
    pub command: String,
}

/// A file of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TableFile {
    Heap,
    Toast,
}

/// Expected effect of the compaction of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FileCompaction {
    /// `heap` or `toast`.
    pub file: TableFile,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks of the file.
    pub blocks: u64,
    #[serde(flatten)]
    pub expected: Expected,
}

/// Expected effect of a rebuild of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct IndexCompaction {
    /// Its name with the schema, quoted.
    pub index: String,
    /// Bytes by which it would shrink.
    pub gives_back: u64,
    /// WAL that its rebuild would write.
    pub wal_bytes: u64,
}

/// Where CPU times are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationSource {
    #[default]
    None,
    Measured,
    File,
}

/// The prices that CPU times are computed from.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct CalibrationReport {
    /// `measured` on this server, from the `file` of --calibration, or `none`: those of a common server. With `none`, CPU
    /// times have no interval.
    pub source: CalibrationSource,
    /// Why they were not measured; null if they were.
    pub why: Option<String>,
    /// Values that were timed.
    pub values: u64,
    /// The relative error of the times of reads; their intervals include it.
    pub read_error: Option<f64>,
    /// The relative error of the times of writes.
    pub write_error: Option<f64>,
    /// Nanoseconds for each part of a read and of a write.
    pub prices: Pricing,
}

impl CalibrationReport {
    /// The sentence of the report that says what CPU times rest on.
    pub(super) fn note(&self) -> String {
        let errors = format!(
            "reads \u{b1}{:.0} %, writes \u{b1}{:.0} %",
            self.read_error.unwrap_or_default() * 100.0,
            self.write_error.unwrap_or_default() * 100.0
        );
        match self.source {
            CalibrationSource::None => {
                let why = self.why.as_deref().unwrap_or_default();
                format!("CPU times are those of a common server, not calibrated: {why}.")
            }
            CalibrationSource::File => {
                format!("CPU times follow from the calibration file ({errors}).")
            }
            CalibrationSource::Measured => format!(
                "CPU times are calibrated: {} values were timed in temporary tables ({errors}).",
                self.values
            ),
        }
    }
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct WorkloadReport {
    /// Values read a day.
    pub reads_per_day: f64,
    /// Values written a day.
    pub writes_per_day: f64,
    /// Scans of the table a day that do not need the column.
    pub scans_per_day: f64,
    /// `assumed`, `given`, `pg_stat_user_tables` or `pg_stat_statements`.
    #[schemars(extend("enum" = ["assumed", "given", "pg_stat_user_tables", "pg_stat_statements"]))]
    pub source: String,
}

/// A column's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SettingsReport {
    /// `plain`, `main`, `external`, `extended`.
    #[schemars(extend("enum" = ["plain", "main", "external", "extended"]))]
    pub storage: String,
    /// `attcompression`, the server's default resolved; `either`: the better for each value.
    #[schemars(extend("enum" = ["pglz", "lz4", "either"]))]
    pub method: String,
    /// `toast_tuple_target`.
    pub target: u64,
    /// As `--policy` takes it; always on a stock server.
    pub policy: String,
}

impl From<&Settings> for SettingsReport {
    fn from(settings: &Settings) -> SettingsReport {
        SettingsReport {
            storage: settings.storage.name().into(),
            method: settings.method.to_string(),
            target: settings.target.bytes() as u64,
            policy: settings.policy.to_string(),
        }
    }
}

/// What a column takes and costs with some settings.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct CandidateReport {
    /// A column's settings.
    pub settings: SettingsReport,
    /// The settings in a few words.
    pub name: String,
    #[serde(flatten)]
    pub marks: Marks,
    /// Heap, TOAST relation and its index as the retoast command leaves them, with the compaction and the rebuilding of
    /// indexes that recommendation.command would ask for; of today the files as they are.
    pub after_command_bytes: Interval<u64>,
    /// The same before that compaction: an in-place retoast shortens no file.
    pub before_compaction_bytes: u64,
    #[serde(flatten)]
    pub figures: Figures,
    /// The column's values by form, for the whole table.
    pub forms: FormCounts,
    /// Values that a read must decompress.
    pub decompressed_values: u64,
    /// Rows that the server would refuse.
    pub refused_rows: u64,
    /// Its message for the first of them.
    pub refusal: Option<String>,
    /// Its other consequences.
    pub caveats: Vec<String>,
    /// Why it is not recommended, whatever its figures: `is read 3.0 times as slowly`; null if nothing excludes it.
    pub excluded: Option<String>,
    /// Bytes of the files by which it was judged: with what stays free next to long rows.
    #[serde(skip)]
    pub(super) judged_bytes: f64,
    /// Why it is not recommended, excluded or not.
    #[serde(skip)]
    pub(crate) not_advised: Option<String>,
}

/// How a candidate compares with the others.
#[derive(Debug, Clone, Copy, Default, Serialize, schemars::JsonSchema)]
pub struct Marks {
    /// Whether this is how the values are stored now.
    pub today: bool,
    /// Whether it is recommended.
    pub recommended: bool,
    /// Whether no other candidate is at least as good in everything and better in something.
    pub pareto: bool,
    /// Index of the first candidate that stores every value of the sample in the same way.
    pub same_as: Option<usize>,
}

/// Values by form, estimated for the whole table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FormCounts {
    pub null: u64,
    /// In the row, 1-byte header.
    pub short: u64,
    /// In the row, 4-byte header.
    pub plain: u64,
    /// In the row, compressed.
    pub compressed: u64,
    /// In the TOAST relation.
    pub external: u64,
    /// In the TOAST relation, compressed.
    pub external_compressed: u64,
    /// A pluggable toaster's.
    pub custom: u64,
    /// Of the compressed ones, those in pglz.
    pub pglz: u64,
    /// Of the compressed ones, those in lz4.
    pub lz4: u64,
}

impl FormCounts {
    /// The counts of a sample, times `scale`.
    pub fn new(forms: &Forms, scale: f64) -> FormCounts {
        FormCounts {
            null: scaled(forms.get(Form::Null), scale),
            short: scaled(forms.get(Form::Short), scale),
            plain: scaled(forms.get(Form::Plain), scale),
            compressed: scaled(forms.get(Form::Compressed), scale),
            external: scaled(forms.get(Form::External), scale),
            external_compressed: scaled(forms.get(Form::ExternalCompressed), scale),
            custom: scaled(forms.get(Form::Custom), scale),
            pglz: scaled(forms.pglz, scale),
            lz4: scaled(forms.lz4, scale),
        }
    }
}

/// A count of a sample, times `scale`.
fn scaled(count: f64, scale: f64) -> u64 {
    (count * scale).round() as u64
}

/// A toaster of a server with pluggable TOAST.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema, strum::IntoStaticStr,
)]
pub enum Toaster {
    #[serde(rename = "bytea_toaster")]
    #[strum(serialize = "bytea_toaster")]
    Bytea,
    #[serde(rename = "jsonb_toaster")]
    #[strum(serialize = "jsonb_toaster")]
    Jsonb,
}

impl Toaster {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// What a pluggable toaster would store and cost; always an estimate.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct PluggableReport {
    /// `bytea_toaster` or `jsonb_toaster`.
    pub toaster: Toaster,
    /// This is always an estimate.
    pub estimated: bool,
    /// Values that the estimate rests on: those out of line today.
    pub values: u64,
    /// Values that the toaster would take apart or make appendable; it stores the others as they are stored today.
    pub divided_values: u64,
    /// Bytes that an average value takes in the row.
    pub inline_bytes_per_value: u64,
    /// The same today.
    pub inline_bytes_per_value_today: u64,
    /// Bytes that an average value takes in the TOAST relation, without free space on its pages.
    pub toast_bytes_per_value: u64,
    /// The same today.
    pub toast_bytes_per_value_today: u64,
    /// Buffers that reading one key or element (`jsonb_toaster`) or the value (`bytea_toaster`) visits.
    pub read_buffers: f64,
    /// The same today.
    pub read_buffers_today: f64,
    /// Buffers that reading the whole value visits.
    pub whole_read_buffers: f64,
    /// The same today.
    pub whole_read_buffers_today: f64,
    /// Bytes written by a small update: one key changed, or a few bytes appended.
    pub small_update_bytes: u64,
    /// The same today.
    pub small_update_bytes_today: u64,
}

impl Report {
    /// `12 MB less on disk (9 %)`: what the recommended settings change in the files.
    pub(crate) fn change_on_disk(&self) -> Option<String> {
        let chosen = self.recommended()?;
        let left = chosen.after_command_bytes.estimate as f64;
        let total = &chosen.figures.files.total_bytes;
        Some(change_of_space(total, self.files.total_bytes as f64, left))
    }

    /// The bytes that the recommended settings save in the files.
    pub(crate) fn saves_on_disk(&self) -> Option<Interval> {
        let total = &self.recommended()?.figures.files.total_bytes;
        let before = total.today().min(self.files.total_bytes as f64);
        let Interval { estimate, low, high } = total.value;
        Some(Interval { estimate: before - estimate, low: before - high, high: before - low })
    }

    /// The settings that are recommended, which may be those of today; `None` where nothing is compared.
    pub(crate) fn recommended(&self) -> Option<&CandidateReport> {
        self.candidates.iter().find(|candidate| candidate.marks.recommended)
    }
}

/// What to do.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct RecommendationReport {
    /// Index of the candidate in `candidates`; 0 means that nothing should change.
    pub candidate: usize,
    /// What to do, and what it changes.
    pub reasons: String,
    /// What counts how much; empty where nothing is compared.
    pub weighting: String,
    /// `ALTER TABLE` statements, none if there is nothing to change, or if Citus would refuse them. Without a command they
    /// are for new values: the stored ones stay as they are.
    pub sql: Vec<String>,
    /// The command that rewrites what is stored: the program and its arguments, none if there is nothing to change.
    pub command: Vec<String>,
    /// Heap, TOAST relation and its index after that command; today's files if there is none.
    pub after_bytes: Interval<u64>,
    /// What counts, as a part of today's: the lower the better.
    #[serde(skip)]
    pub(super) value: f64,
    /// Index of the best candidate of those in proportion, of which the reasons speak, worth a command or not.
    #[serde(skip)]
    pub(crate) best: Option<usize>,
}

impl RecommendationReport {
    /// Whether the column was compared with other settings; if not, the reasons say why.
    pub(crate) fn compares(&self) -> bool {
        !self.weighting.is_empty()
    }

    /// The command as a line for a shell.
    pub(crate) fn line(&self) -> Option<String> {
        (!self.command.is_empty()).then(|| shell_line(&self.command))
    }
}
