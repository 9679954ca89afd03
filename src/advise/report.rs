//! From a tally to the report on a column (pure).

use super::advisor::{Access, Options, TableFacts};
use super::calibration::Calibrated;
use super::candidate::{PRESENT, TODAY, Variants};
use super::compaction::{After, after, estimated, size};
use super::estimate::{CpuTime, Figure, Figures, Scope, figures};
use super::extract::result::{ExtractionReport, extraction_report};
use super::extract::rows::Extraction;
use super::plan::{Done, Limit};
use super::pluggable::Pluggable;
use super::recommend::{Entry, Optimize, pareto, reasons, recommend, weighting};
use super::result::{
    CandidateReport, CompactionReport, CostsReport, Files, FormCounts, Marks, PrefixReport,
    RecommendationReport, Report, SampleReport, ShardsReport, WorkloadReport,
};
use super::tally::{Sum, Sums, Tally, VariantTally};
use crate::command::{self, CommandTarget};
use crate::server::about::{NEVER_TRUNCATES, Server};
use crate::server::catalog::{Relation, WIDE_IDS};
use crate::usage::statements::ColumnUse;
use crate::usage::workload::{Workload, WorkloadSource};
use toast_format::codec::Method;
use toast_format::disk::ValueIdType;
use toast_format::disk::desc::{Length, Storage};
use toast_format::disk::layout::PageSize;
use toast_format::heap::problem::Problems;
use toast_format::model::interval::Interval;
use toast_format::model::policy::{MethodChoice, Policy};
use toast_format::model::settings::Settings;
use toast_format::model::stored::Form;

/// What was read of one relation, or of the shards of a table.
pub(super) struct SampleRead {
    pub(super) access: Access,
    pub(super) done: Done,
    pub(super) fetched_bytes: u64,
    pub(super) rows_examined: u64,
    /// Blocks of the relation, or of all shards and their copies.
    pub(super) total_blocks: u32,
    /// Whether that is every row.
    pub(super) complete: bool,
    pub(super) limit: Option<Limit>,
    /// The files of each relation.
    pub(super) files: Vec<Files>,
    pub(super) pluggable: Vec<Pluggable>,
    pub(super) problems: Problems,
}

/// What the reports on the columns of a table have in common.
pub(super) struct Subject<'a> {
    /// The relation, or the table with the columns of its shards.
    pub(super) relation: &'a Relation,
    pub(super) options: &'a Options,
    pub(super) server: &'a Server,
    pub(super) facts: &'a TableFacts,
    pub(super) read: SampleRead,
    pub(super) extraction: Option<&'a Extraction>,
    pub(super) shards: Option<ShardsReport>,
}

/// Everything that the report is made of.
pub(super) struct Gathered<'a> {
    pub(super) subject: &'a Subject<'a>,
    /// The variants of the column that are compared.
    pub(super) variants: &'a Variants,
    /// What the sample adds up to.
    pub(super) tally: &'a Tally,
    /// What CPU times rest on.
    pub(super) calibrated: &'a Calibrated,
}

impl<'a> Gathered<'a> {
    fn relation(&self) -> &'a Relation {
        self.subject.relation
    }

    fn options(&self) -> &'a Options {
        self.subject.options
    }

    fn server(&self) -> &'a Server {
        self.subject.server
    }

    /// The number of the relation's blocks divided by the number of those that were read.
    fn scale(&self) -> f64 {
        let blocks: f64 = self.tally.blocks().iter().sum();
        if blocks > 0.0 { f64::from(self.subject.read.total_blocks) / blocks } else { 0.0 }
    }

    fn scope(&self) -> Scope {
        let read = &self.subject.read;
        Scope {
            total_blocks: read.total_blocks,
            complete: read.complete,
            page: self.server().page_size,
            logical: self.subject.facts.logical,
        }
    }

    fn target(&self) -> CommandTarget<'a> {
        let relation = self.relation();
        CommandTarget {
            schema: &relation.schema,
            table: &relation.name,
            column: &self.variants.name,
        }
    }

    fn cpu_time(&self, figure: Figure) -> CpuTime {
        CpuTime { figure, calibrated: self.calibrated.pricing.read_error.is_some() }
    }

    /// Sizes of the files, of all relations together.
    fn files(&self) -> Files {
        self.subject.read.files.iter().fold(Files::default(), Files::plus)
    }

    /// The number of buffers that a read of the column visits after the command, and the change from today. The heap
    /// has more pages then than after a VACUUM FULL, on which the estimate is based.
    fn read_buffers(&self, shown: &Shown<'_>, today: &Shown<'_>) -> Figure {
        let page = self.server().page_size.bytes() as f64;
        let heap_now = self.files().heap_bytes as f64;
        let heap_then = if std::ptr::eq(shown, today) { heap_now } else { shown.after.heap_bytes };
        let Figure { value, change } = shown.figures.read_buffers;
        let more = Interval::exact(shown.more_heap_pages(heap_then, page));
        let fresh = today.figures.read_buffers.value.estimate;
        let now = fresh + today.more_heap_pages(heap_now, page);
        let value = value.plus(more).at_least_zero();
        let Some(change) = change else { return Figure { value, change } };
        if now <= 0.0 {
            return Figure { value, change: None };
        }
        let then = change.plus(Interval::exact(1.0)).scaled(fresh).plus(more).at_least_zero();
        Figure { value, change: Some(then.scaled(1.0 / now).plus(Interval::exact(-1.0))) }
    }

    /// What the command for a candidate with these figures leaves.
    fn after(&self, figures: &Figures, tally: &VariantTally) -> After {
        let page = self.server().page_size;
        let compacts = self.server().compacts();
        let parts = tally.parts();
        if parts.len() < 2 {
            return after(figures, &self.files(), page, compacts);
        }
        let afters = parts.iter().zip(&self.subject.read.files).map(|(part, files)| {
            let figures = figures.of_part(|sum: Sum| {
                let all: f64 = parts.iter().map(|part: &Sums| part.get(sum)).sum();
                part.get(sum) / all.max(f64::MIN_POSITIVE)
            });
            after(&figures, files, page, compacts)
        });
        let together = afters.reduce(After::plus);
        together.unwrap_or_else(|| after(figures, &self.files(), page, compacts))
    }
}

/// A variant that is reported.
struct Shown<'a> {
    settings: Settings,
    /// Whether these are the present settings, by which values are not stored today.
    is_as_set: bool,
    name: String,
    tally: &'a VariantTally,
    figures: Figures,
    /// Values of the column in the whole table.
    values: f64,
    after: After,
    /// The columns that the command names.
    named: &'a [usize],
}

impl Shown<'_> {
    /// Heap pages for each value beyond those after a VACUUM FULL.
    fn more_heap_pages(&self, heap_bytes: f64, page: f64) -> f64 {
        let values = self.values * page;
        if values <= 0.0 {
            return 0.0;
        }
        (heap_bytes - self.figures.files.heap_bytes.value.estimate) / values
    }

    /// What it is compared by; `now`: bytes of all files.
    fn entry(&self, present: &Settings, now: u64) -> Entry {
        let after = self.after.bytes.estimate as f64;
        Entry {
            figures: self.figures,
            refused: self.tally.refused > 0.0,
            rank: rank(&self.settings, present),
            disk: if now == 0 { 0.0 } else { after / now as f64 - 1.0 },
        }
    }

    fn sql(&self, gathered: &Gathered<'_>) -> Vec<String> {
        let page = gathered.server().page_size;
        command::sql(gathered.target(), &gathered.variants.present, &self.settings, page)
    }

    /// The `retoast` command, with the other columns that it must name.
    fn command(&self, gathered: &Gathered<'_>) -> Vec<String> {
        let columns = &gathered.relation().desc.attributes;
        let others = self.named.iter().filter(|&&column| column != gathered.variants.column);
        let others: Vec<&str> =
            others.filter_map(|&column| Some(columns.get(column)?.name.as_str())).collect();
        let settings = (&gathered.variants.present, &self.settings);
        command::command(gathered.target(), &others, settings, &self.after.options())
    }
}

/// The report on one column.
pub(super) fn column_report(gathered: &Gathered<'_>) -> Report {
    let Gathered { subject, variants, tally, calibrated } = *gathered;
    let facts = subject.facts;
    let relation = gathered.relation();
    let optimize = gathered.options().optimize;
    let files = gathered.files();
    let scope = gathered.scope();
    let shown = shown(gathered, &figures(tally, &scope, &calibrated.pricing));
    let column_use = facts.statements.column_use(relation, &variants.name, facts.counters.live);
    let workload = workload(gathered, &column_use);
    let entries: Vec<Entry> =
        shown.iter().map(|s| s.entry(&variants.present, files.total_bytes)).collect();
    let recommendation = recommend(&entries, optimize, &workload);
    let uncompared = uncompared(gathered);
    let front = pareto(&entries, optimize, &workload);
    let mut candidates = Vec::with_capacity(shown.len());
    for (index, (candidate, pareto)) in shown.iter().zip(front).enumerate() {
        let mut others = shown.iter().take(index);
        let marks = Marks {
            today: index == TODAY,
            recommended: index == recommendation.choice && uncompared.is_none(),
            pareto,
            same_as: others.position(|other| other.tally.clusters == candidate.tally.clusters),
        };
        let today = shown.get(TODAY).unwrap_or(candidate);
        candidates.push(candidate_report(gathered, candidate, today, marks));
    }
    // of documents that pluggable toasters store no key was seen
    let extraction = match subject.extraction {
        Some(extraction) if uncompared.is_none() => extracted(gathered, extraction, &scope),
        _ => None,
    };
    let mut notes = notes(gathered, &shown);
    notes.extend(silence(gathered, column_use));
    notes.push(calibrated.report.note());
    let chosen =
        if recommendation.choice == TODAY { None } else { shown.get(recommendation.choice) };
    let names: Vec<String> = shown.iter().map(|s| s.name.clone()).collect();
    let mut recommended = RecommendationReport {
        candidate: recommendation.choice,
        weighting: weighting(optimize, &workload),
        reasons: reasons(&entries, &names, recommendation),
        sql: chosen.map(|s| s.sql(gathered)).unwrap_or_default(),
        command: chosen.map(|s| s.command(gathered)).unwrap_or_default(),
        after_bytes: chosen.map_or_else(|| Interval::exact(files.total_bytes), |s| s.after.bytes),
    };
    if let Some(why) = uncompared {
        recommended.weighting = String::new();
        recommended.reasons = why;
    }
    let scale = gathered.scale();
    let pluggable = subject.read.pluggable.iter().filter(|p| p.is_for(variants.column));
    Report {
        table: relation.into(),
        column: variants.name.clone(),
        column_type: variants.type_name.clone(),
        sample: sample_report(gathered),
        citus: subject.shards.clone(),
        files,
        compaction: gain(gathered, &shown),
        optimize: optimize_name(optimize),
        workload: WorkloadReport {
            reads_per_write: workload.ratio(),
            source: workload.source.to_string(),
            scan_weight: workload.scan_weight(),
        },
        calibration: calibrated.report.clone(),
        candidates,
        extraction,
        pluggable: pluggable.filter_map(|p| p.figures(scale)).collect(),
        recommendation: recommended,
        notes,
        problems: subject.read.problems.clone(),
    }
}

fn sample_report(gathered: &Gathered<'_>) -> SampleReport {
    let read = &gathered.subject.read;
    let options = gathered.options();
    SampleReport {
        blocks: read.done.blocks,
        total_blocks: read.total_blocks,
        rows: gathered.tally.rows() as u64,
        rows_examined: read.rows_examined,
        fetched_bytes: read.fetched_bytes,
        read_bytes: read.done.read,
        limit: read.limit.map(|limit| match limit {
            Limit::Bytes => "bytes",
            Limit::Time => "time",
        }),
        seed: options.seed,
        complete: read.complete,
        exact: options.compresses_on_server(read.access),
        source: read.access.name(),
    }
}

/// The report on the table with some keys of its documents in columns of their own.
fn extracted(
    gathered: &Gathered<'_>,
    extraction: &Extraction,
    scope: &Scope,
) -> Option<ExtractionReport> {
    let server = gathered.server();
    let present = &gathered.variants.present;
    let table = extraction.table();
    let target = CommandTarget {
        schema: &table.schema,
        table: &table.name,
        column: &gathered.variants.name,
    };
    let compaction: &[&str] = if server.compacts() { &["--compact"] } else { &[] };
    let words = command::command(target, &[], (present, present), compaction);
    let command = command::shell_line(&words);
    extraction_report(extraction, scope, &command, server.has_toasters)
}

fn candidate_report(
    gathered: &Gathered<'_>,
    candidate: &Shown<'_>,
    today: &Shown<'_>,
    marks: Marks,
) -> CandidateReport {
    let scale = gathered.scale();
    let files = gathered.files();
    let page = gathered.server().page_size;
    let Shown { settings, name, tally, figures, after, .. } = candidate;
    let forms = FormCounts::new(&tally.forms, scale);
    let heap = figures.files.heap_bytes;
    let mut after_command_bytes = Interval::exact(files.total_bytes);
    let mut before_compaction_bytes = files.total_bytes;
    let mut caveats = Vec::new();
    if !marks.today {
        after_command_bytes = after.bytes;
        before_compaction_bytes = after.before_compaction;
        caveats = growth_caveats(figures, after, &files, gathered.server().has_toasters);
        caveats.extend(settings_caveats(settings, &gathered.variants.present, page));
    }
    CandidateReport {
        settings: settings.into(),
        name: name.clone(),
        marks,
        after_command_bytes,
        before_compaction_bytes,
        after_vacuum_full: figures.files,
        scan_buffers: Figure {
            value: heap.value.scaled(1.0 / page.bytes() as f64),
            change: heap.change,
        },
        chunks: figures.chunks,
        read_buffers_per_value: gathered.read_buffers(candidate, today),
        read_cpu_ns_per_value: gathered.cpu_time(figures.read_cpu_ns),
        update_bytes_per_value: figures.update_bytes,
        update_wal_bytes_per_value: figures.update_wal_bytes,
        costs: costs(gathered, figures, &today.figures),
        forms,
        decompressed_values: forms.compressed + forms.external_compressed,
        refused_rows: (tally.refused * scale).round() as u64,
        refusal: tally.refusal.clone(),
        caveats,
    }
}

/// The further costs of a candidate.
fn costs(gathered: &Gathered<'_>, figures: &Figures, today: &Figures) -> CostsReport {
    let further = &figures.further;
    let mut write = gathered.cpu_time(further.write_cpu_ns);
    // calibration does not time the storing of chunks
    write.calibrated &= figures.chunks.value.high <= 0.0 && today.chunks.value.high <= 0.0;
    CostsReport {
        write_cpu_ns_per_value: write,
        other_update_wal_bytes_per_row: further.other_wal_bytes,
        hot_update_wal_bytes_per_row: further.hot_wal_bytes,
        full_page_bytes_per_value: further.full_page_bytes,
        prefix_read: is_sliced(&gathered.variants.type_name).then(|| PrefixReport {
            buffers_per_value: further.prefix_buffers,
            cpu_ns_per_value: gathered.cpu_time(further.prefix_cpu_ns),
        }),
        cold_read_pages_per_value: further.cold_pages,
    }
}

/// Whether `substr` of a value of this type reads only what it needs.
fn is_sliced(type_name: &str) -> bool {
    let name = type_name.split('(').next().unwrap_or_default();
    !type_name.ends_with("[]")
        && matches!(name, "text" | "bytea" | "character varying" | "character")
}

/// The workload as given, else from statements about the column, else from counters of the table.
fn workload(gathered: &Gathered<'_>, column_use: &ColumnUse) -> Workload {
    let counted = &gathered.subject.facts.counters;
    let (reads_per_write, source) =
        match (gathered.options().reads_per_write, column_use, counted.reads_per_write()) {
            (Some(given), ..) => (Some(given), WorkloadSource::Given),
            (None, ColumnUse::Counted { reads, writes, statements }, _) => {
                (Some(reads / writes.max(1.0)), WorkloadSource::Statements(*statements))
            }
            (None, _, Some((ratio, bound))) => (Some(ratio), WorkloadSource::Statistics(bound)),
            (None, ..) => (None, WorkloadSource::Assumed),
        };
    Workload { reads_per_write, source, scanned: counted.scanned_part() }
}

/// Why `pg_stat_statements`, though there, is not used.
fn silence(gathered: &Gathered<'_>, column_use: ColumnUse) -> Option<String> {
    match column_use {
        ColumnUse::Silent(why) if gathered.options().reads_per_write.is_none() => {
            Some(format!("pg_stat_statements was not used to estimate the workload: {why}."))
        }
        _ => None,
    }
}

fn optimize_name(optimize: Optimize) -> &'static str {
    match optimize {
        Optimize::Balanced => "balanced",
        Optimize::Size => "size",
        Optimize::Read => "read",
        Optimize::Write => "write",
    }
}

/// Why nothing is compared, where toastctl does not know how values would be stored.
fn uncompared(gathered: &Gathered<'_>) -> Option<String> {
    match gathered.relation().desc.id_type {
        ValueIdType::Oid => custom(gathered),
        ValueIdType::Oid8 => Some(format!("No recommendation: {WIDE_IDS}.")),
    }
}

/// Why nothing is compared if pluggable toasters store values of the column.
fn custom(gathered: &Gathered<'_>) -> Option<String> {
    let today = gathered.tally.tallies().get(TODAY)?;
    let custom = today.forms.get(Form::Custom);
    let unknown = today.unknown;
    if custom <= 0.0 {
        return None;
    }
    let mut text = format!(
        "No recommendation: pluggable toasters store {custom:.0} of the column's values in the sample, and toastctl does \
         not estimate what other settings would do to them."
    );
    if unknown > 0.0 {
        text.push_str(&format!(
            " The size of {unknown:.0} of them in the TOAST relation is not known, and not counted."
        ));
    }
    Some(text)
}

/// Today, the present settings if they would store values differently, and the candidates. Only today if nothing is
/// compared.
fn shown<'a>(gathered: &'a Gathered<'_>, all: &[Figures]) -> Vec<Shown<'a>> {
    let Gathered { variants, tally, .. } = gathered;
    let compared = if uncompared(gathered).is_some() { 1 } else { all.len() };
    let stored_otherwise = match (tally.tallies().get(TODAY), tally.tallies().get(PRESENT)) {
        (Some(today), Some(present)) => today.clusters != present.clusters,
        _ => false,
    };
    let scale = gathered.scale();
    let mut out = Vec::with_capacity(all.len());
    for (index, ((variant, tally), figures)) in
        variants.all.iter().zip(tally.tallies()).zip(all).take(compared).enumerate()
    {
        let settings = variant.settings.unwrap_or(variants.present);
        let name = match index {
            TODAY => "today".to_owned(),
            PRESENT if !stored_otherwise => continue,
            PRESENT => format!("{settings} (as set)"),
            _ => settings.to_string(),
        };
        let after = gathered.after(figures, tally);
        let figures = *figures;
        let values = tally.values() * scale;
        out.push(Shown {
            settings,
            is_as_set: index == PRESENT,
            name,
            tally,
            figures,
            values,
            after,
            named: &variant.named,
        });
    }
    out
}

/// How much would change. Of candidates that the sample cannot distinguish, the lowest rank is recommended: fewest
/// settings change, a plain setting comes before a policy, and a policy before EXTERNAL, which leaves later values
/// uncompressed however well they would compress.
fn rank(settings: &Settings, present: &Settings) -> u8 {
    let changes = u8::from(settings.storage != present.storage)
        + u8::from(settings.method != present.method)
        + u8::from(settings.target != present.target)
        + u8::from(settings.policy != present.policy);
    let stock = settings.is_stock();
    let kind = match settings.storage {
        Storage::Extended if stock => 1,
        Storage::Main if stock => 2,
        Storage::Extended | Storage::Main if settings.method == MethodChoice::Either => 4,
        Storage::Extended | Storage::Main => 3,
        Storage::External => 5,
        Storage::Plain => 6,
    };
    8 * changes + kind
}

/// What compaction alone would give back.
fn gain(gathered: &Gathered<'_>, shown: &[Shown<'_>]) -> Option<CompactionReport> {
    if gathered.relation().desc.id_type != ValueIdType::Oid {
        return None;
    }
    if !gathered.server().compacts() {
        return None;
    }
    let today = &shown.get(TODAY)?.figures;
    estimated(today, &gathered.files(), gathered.server().page_size, gathered.relation())
}

fn notes(gathered: &Gathered<'_>, shown: &[Shown<'_>]) -> Vec<String> {
    let facts = gathered.subject.facts;
    let files = gathered.files();
    let server = gathered.server();
    let mut notes = Vec::new();
    notes.push(
        if server.has_toasters {
            "Settings apply to new values; toastctl retoast rewrites the stored ones. On a server with pluggable TOAST, \
             files keep their free space: only dumping and restoring the table makes them smaller."
        } else {
            "Settings apply to new values; toastctl retoast rewrites the stored ones."
        }
        .to_owned(),
    );
    if !server.vacuum_truncates {
        notes.push(format!("{NEVER_TRUNCATES}, so files cannot be compacted here."));
    }
    if matches!(gathered.subject.read.access, Access::Functions) {
        notes.push(without_pages(gathered.relation()));
    }
    if shown.iter().any(|s| s.is_as_set) {
        notes.push(
            "Some values are not stored as the column's settings would store them: the settings were changed later, or \
             the values were copied from another table."
                .to_owned(),
        );
    }
    if let (Some(before), Some(after)) = (
        shown.iter().find(|s| is_plain(s, Method::Pglz)),
        shown.iter().find(|s| is_plain(s, Method::Lz4)),
    ) {
        let scale = gathered.scale();
        let pglz = (before.tally.forms.pglz + before.tally.forms.lz4) * scale;
        let lz4 = (after.tally.forms.pglz + after.tally.forms.lz4) * scale;
        if (pglz - lz4).abs() >= 1.0 {
            notes.push(format!(
                "The method also decides which values are compressed: {pglz:.0} with pglz, which must save a quarter, \
                 and {lz4:.0} with lz4, which keeps almost any saving."
            ));
        }
    }
    let packed = shown.first().map_or(0.0, |s| s.figures.files.total_bytes.value.high);
    if packed > 0.0 && files.total_bytes as f64 > packed * 1.1 {
        notes.push(format!(
            "The files hold {} of dead rows{} and free space, which no setting changes.",
            size(files.total_bytes.saturating_sub(packed as u64)),
            if server.has_toasters { ", chunks of replaced values" } else { "" }
        ));
    }
    if let Some(part) = facts.counters.toast_hit_part.filter(|&part| part < 0.9) {
        notes.push(format!(
            "Only {:.0} % of the TOAST pages that were read were in shared buffers (toastctl's own reads included). \
             Pages that come from disk cost more than CPU time: look at the buffers first.",
            part * 100.0
        ));
    }
    notes
}

fn is_plain(shown: &Shown<'_>, method: Method) -> bool {
    shown.settings.policy == Policy::Always
        && shown.settings.storage == Storage::Extended
        && shown.settings.method == MethodChoice::One(method)
}

/// Smallest growth worth a caveat, as a part.
const REPORTED_GROWTH: f64 = 0.1;

/// What to know about the sizes of the files.
fn growth_caveats(
    figures: &Figures,
    after: &After,
    files: &Files,
    has_toasters: bool,
) -> Vec<String> {
    let mut caveats = Vec::new();
    if figures.files.heap_bytes.change.is_some_and(|change| change.estimate > REPORTED_GROWTH) {
        caveats.push(
            "the heap grows, and every scan of the table reads it, even one that does not need the \
             column"
                .to_owned(),
        );
    }
    let size = (files.total_bytes as f64).max(figures.files.total_bytes.value.estimate);
    // every sweep leaves some free space
    if after.before_compaction as f64 > size * (1.0 + 3.0 * REPORTED_GROWTH) {
        let when = if has_toasters { "after retoast" } else { "before compaction" };
        caveats.push(format!("{when} the files are larger than today"));
    }
    caveats
}

/// What to know before a column is brought from `present` to `wanted`.
fn settings_caveats(wanted: &Settings, present: &Settings, page: PageSize) -> Vec<String> {
    let mut caveats = Vec::new();
    let threshold = page.toast_tuple_threshold();
    if wanted.target.bytes() < threshold {
        caveats.push(format!(
            "rows of up to {threshold} bytes stay as they are: PostgreSQL toasts only longer rows, whatever the \
             toast_tuple_target"
        ));
    }
    if wanted.target != present.target {
        caveats.push("toast_tuple_target applies to all columns of the table".into());
    }
    if !wanted.is_stock() {
        caveats.push(
            "PostgreSQL has no setting for a policy: run retoast again for values written later"
                .to_owned(),
        );
    } else if wanted.storage == Storage::External && present.storage != Storage::External {
        caveats.push(
            "values written later are not compressed, even if they would compress well".into(),
        );
    }
    caveats
}

/// What is not known of a relation whose pages were not read.
fn without_pages(relation: &Relation) -> String {
    let columns = &relation.desc.attributes;
    let mut unseen = vec!["dead rows", "free space"];
    if columns.iter().any(|column| !column.dropped && column.missing.is_some()) {
        unseen.push("whether a value that equals its column's default is stored in the row");
    }
    if columns.iter().any(|column| column.dropped) && relation.computed.contains(&true) {
        unseen.push("the size of dropped columns");
    } else if columns.iter().any(|column| column.dropped && column.length == Length::Varlena) {
        unseen.push("the size of dropped columns in the TOAST relation");
    }
    let last = unseen.pop().unwrap_or_default();
    format!(
        "Rows were read by SQL functions instead of pages, and the server compressed them in a temporary table. Not \
         known without pages: {} and {last}.",
        unseen.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::compaction::tests::{FILES, figures};
    use toast_format::model::settings::TupleTarget;

    #[test]
    fn every_choice_has_its_own() {
        let page = PageSize::DEFAULT;
        let present = Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(Method::Pglz),
            target: TupleTarget::default_for(page),
            policy: Policy::Always,
        };
        let same = figures(100.0, 900.0);
        let number = |wanted: &Settings, figures: &Figures| {
            let after = after(figures, &FILES, page, true);
            growth_caveats(figures, &after, &FILES, false).len()
                + settings_caveats(wanted, &present, page).len()
        };
        assert_eq!(number(&present, &same), 0);
        assert_eq!(number(&present, &figures(105.0, 900.0)), 0);
        assert_eq!(number(&present, &figures(1000.0, 0.0)), 2);
        let low = Settings { target: TupleTarget::new(256, page).unwrap(), ..present };
        assert_eq!(number(&low, &same), 2);
        assert_eq!(number(&Settings { policy: Policy::Best, ..present }, &same), 1);
        assert_eq!(number(&Settings { storage: Storage::External, ..present }, &same), 1);
    }
}
