//! What is reported of an extraction.

use serde::Serialize;

use super::keys::KnownUse;
use super::rows::{Extraction, KEYS, KeyType, REST, TODAY, WHOLE};
use super::script::script;
use crate::advise::estimate::{CpuTime, Figure, Figures, FileSizes, Scope, figures};
use crate::advise::tally::VariantTally;
use toast_format::model::Form;
use toast_format::model::cost::Pricing;

/// The table with some keys of its documents in columns of their own.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ExtractionReport {
    /// Whether the keys were chosen: those that save the most, considering how often each is used.
    pub auto: bool,
    /// For automatically chosen keys, what is known about the use of any keys. Half of all uses are distributed
    /// accordingly, the other half evenly over the keys that most documents have; without it, all are distributed evenly
    /// over these.
    pub known_uses: Vec<KnownUse>,
    /// The keys, in the order requested.
    pub keys: Vec<KeyReport>,
    /// Documents that have at least one of them.
    pub documents: u64,
    /// Bytes of the heap as VACUUM FULL would write it today.
    pub heap_bytes_today: Figure,
    /// Bytes of the TOAST relation in the same way.
    pub toast_bytes_today: Figure,
    /// Bytes of its index, if rebuilt.
    pub toast_index_bytes_today: Figure,
    /// The three together.
    pub total_bytes_today: Figure,
    #[serde(flatten)]
    pub files: FileSizes,
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Reading or changing anything of a document today.
    pub today: AccessReport,
    /// Reading and changing the document without these keys.
    pub rest: AccessReport,
    /// Reading and changing it and these keys.
    pub whole: AccessReport,
    /// Rows that the server would refuse.
    pub refused_rows: u64,
    /// A skeleton of the migration for psql, which --emit sql prints.
    pub script: String,
}

/// Rows and documents, today and then.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct RowCounts {
    /// Rows that exceed the TOAST threshold today.
    pub wide_rows_today: u64,
    /// Rows that would exceed it.
    pub wide_rows: u64,
    /// Documents in the TOAST relation today.
    pub external_today: u64,
    /// Documents that would be there.
    pub external: u64,
}

#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct KeyReport {
    /// The key, at the root of documents.
    pub key: String,
    /// The column that it would move to.
    pub column: String,
    /// That column's type: one that every value of the sample fits.
    #[serde(rename = "type")]
    pub kind: KeyType,
    /// Documents that have the key.
    pub values: u64,
    /// Reading and changing it in its column.
    pub access: AccessReport,
}

/// What reading and changing costs, for each document.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct AccessReport {
    /// Buffers that a scan of the whole table visits that reads it.
    pub scan_buffers: Figure,
    /// Buffers that such a scan visits for one document.
    #[serde(serialize_with = "Figure::three_digits")]
    #[schemars(with = "crate::advise::estimate::Changed<f64>")]
    pub read_buffers: Figure,
    /// Nanoseconds of CPU that storage adds to one read, warm cache.
    pub read_cpu_ns: CpuTime,
    /// Bytes written by one change.
    pub update_bytes: Figure,
    /// Bytes of WAL of one change, without full-page images.
    pub update_wal_bytes: Figure,
}

impl AccessReport {
    /// Buffers and nanoseconds of a read, bytes of WAL of a change.
    pub(crate) fn costs(&self) -> [f64; 3] {
        [&self.read_buffers, &self.read_cpu_ns.figure, &self.update_wal_bytes]
            .map(|figure| figure.value.estimate)
    }
}

/// The report; `command` is what re-toasts the column afterwards.
pub(crate) fn extraction_report(
    extraction: &Extraction,
    scope: &Scope,
    command: &str,
    has_toasters: bool,
) -> Option<ExtractionReport> {
    let all = figures(&extraction.tally, scope, &Pricing::default(), 0);
    let tallies = extraction.tally.tallies();
    let types = extraction.types.as_ref()?;
    let blocks: f64 = extraction.tally.blocks().iter().sum();
    let scale = if blocks > 0.0 { f64::from(scope.total_blocks) / blocks } else { 0.0 };
    let whole = |count: f64| (count * scale).round() as u64;
    let external = |tally: &VariantTally| {
        whole(tally.forms.get(Form::External) + tally.forms.get(Form::ExternalCompressed))
    };
    let forms = &tallies.get(TODAY)?.forms;
    let documents: f64 =
        Form::ALL.iter().filter(|form| **form != Form::Null).map(|form| forms.get(*form)).sum();
    let access = |figures: &Figures| access(figures, documents * scale);

    let rows_per_page = extraction.tally.rows() / blocks.max(1.0);
    let today = all.get(TODAY)?;
    let rest = all.get(REST)?;
    let made = tallies.get(REST)?;
    Some(ExtractionReport {
        auto: extraction.auto,
        known_uses: extraction.known.clone(),
        keys: (extraction.target.keys.iter().zip(types))
            .zip(&extraction.counts.values)
            .zip(all.get(KEYS..)?)
            .map(|(((key, kind), values), figures)| KeyReport {
                key: key.key.clone(),
                column: key.name.clone(),
                kind: *kind,
                values: whole(*values),
                access: access(figures),
            })
            .collect(),
        documents: whole(extraction.counts.documents),
        heap_bytes_today: today.files.heap_bytes,
        toast_bytes_today: today.files.toast_bytes,
        toast_index_bytes_today: today.files.toast_index_bytes,
        total_bytes_today: today.files.total_bytes,
        files: rest.files,
        counts: RowCounts {
            wide_rows_today: whole(extraction.counts.wide_today),
            wide_rows: whole(extraction.counts.wide),
            external_today: external(tallies.get(TODAY)?),
            external: external(made),
        },
        today: access(today),
        rest: access(rest),
        whole: access(all.get(WHOLE)?),
        refused_rows: whole(made.refused),
        script: script(&extraction.target, types, rows_per_page, command, has_toasters),
    })
}

fn access(figures: &Figures, documents: f64) -> AccessReport {
    let Figure { value, change } = figures.read_buffers;
    AccessReport {
        scan_buffers: Figure { value: value.scaled(documents), change },
        read_buffers: figures.read_buffers,
        read_cpu_ns: figures.read_cpu_ns,
        update_bytes: figures.update_bytes,
        update_wal_bytes: figures.update_wal_bytes,
    }
}
