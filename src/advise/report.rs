//! From a tally to the report on a column (pure).

use std::fmt::Write as _;

use super::advisor::{Options, TableFacts};
use super::calibration::Calibrated;
use super::candidate::Variants;
use super::compaction::{AfterCommand, CompactedFiles, estimated};
use super::estimate::{Figures, FileSizes, Scope, figures, moved_values};
use super::extract::result::{ExtractionReport, extraction_report};
use super::extract::rows::Extraction;
use super::plan::{Done, Limit};
use super::pluggable::Pluggable;
use super::recommend::{
    Described, ESTIMATE, Exclusion, Goal, Optimize, OtherColumns, Recommendation, Weighed,
    cpu_part, part, reasons, recommend, weighting,
};
use super::result::{
    Access, CandidateReport, CompactionReport, Files, FormCounts, Marks, PartitionsReport,
    RecommendationReport, Report, SampleReport, ShardsReport, WorkloadReport,
};
use super::tally::{OtherValues, Sums, Tally, VariantTally};
use crate::command::{self, CommandTarget};
use crate::message::size;
use crate::server::about::{NEVER_TRUNCATES, Server};
use crate::server::catalog::{Relation, RelationKind, WIDE_IDS};
use crate::usage::statements::ColumnUse;
use crate::usage::workload::{KnownUse, UseCounts, Workload};
use toast_format::codec::Method;
use toast_format::disk::{Length, PageSize, Storage, ValueIdType};
use toast_format::heap::problem::Problems;
use toast_format::model::cost::{Pricing, WritePrices};
use toast_format::model::settings::Settings;
use toast_format::model::{Form, Interval, MethodChoice, Policy, TupleTarget};

/// What was read of one relation, or of the shards of a table.
#[derive(Default)]
pub(super) struct SampleRead {
    pub(super) access: Access,
    pub(super) done: Done,
    pub(super) fetched_bytes: u64,
    pub(super) rows_examined: u64,
    /// Columns that are not advised on, although they hold much together.
    pub(super) columns_left_out: u64,
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
    pub(super) partitions: Option<PartitionsReport>,
    /// The quoted names of these partitions.
    pub(super) partition_names: Vec<String>,
}

/// A column, and what its sample adds up to.
#[derive(Clone, Copy)]
pub(super) struct ColumnSample<'a> {
    pub(super) subject: &'a Subject<'a>,
    /// The variants of the column that are compared.
    pub(super) variants: &'a Variants,
    pub(super) tally: &'a Tally,
    /// What CPU times rest on.
    pub(super) calibrated: &'a Calibrated,
}

/// What a sample adds up to under one variant.
#[derive(Clone, Copy)]
pub(super) struct SampledFigures<'a> {
    pub(super) tally: &'a VariantTally,
    pub(super) figures: &'a Figures,
}

/// What a candidate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CandidateKind {
    /// The values as they are stored.
    Today,
    /// The present settings, by which values are not stored today.
    AsSet,
    /// Settings to compare with these.
    Other,
}

/// Settings that are compared, with what the column takes and costs under them.
struct Candidate<'a> {
    kind: CandidateKind,
    settings: Settings,
    name: String,
    tally: &'a VariantTally,
    figures: Figures,
    /// CPU time of a read, as a part of today's, at prices that were not measured here.
    read_part: f64,
    after: AfterCommand,
    weighed: Weighed,
}

/// The report on one column. `others`: what the other columns of the table take, and what is advised for them.
pub(super) fn column_report(sample: ColumnSample<'_>, others: OtherColumns) -> Report {
    let ColumnSample { subject, variants, calibrated, .. } = sample;
    let relation = subject.relation;
    let optimize = subject.options.optimize;
    let facts = subject.facts;
    let files = subject.read.files();
    let column_use = facts.statements.column_use(relation, &variants.name, facts.counters.live);
    let workload = sample.workload(&column_use);
    let goal = Goal { optimize, workload, prices: subject.options.prices, others };
    let uncompared = why_uncompared(sample);
    let candidates = sample.candidates(&goal, uncompared.is_none());
    let weighed: Vec<Weighed> = candidates.iter().map(|candidate| candidate.weighed).collect();
    let recommendation = recommend(&weighed);
    // of documents that pluggable toasters store no key was seen
    let extraction = match subject.extraction {
        Some(extraction) if uncompared.is_none() => extraction_of(sample, extraction),
        _ => None,
    };
    let mut notes = notes(sample, &candidates);
    notes.extend(silence(subject, column_use));
    notes.push(calibrated.report.note());
    let scale = sample.scale();
    let pluggable = subject.read.pluggable.iter().filter(|p| p.is_for(variants.column));
    let recommended = if uncompared.is_none() { Some(recommendation.choice) } else { None };
    Report {
        table: relation.into(),
        column: variants.name.clone(),
        column_type: variants.type_name.clone(),
        sample: SampleReport::new(sample),
        citus: subject.shards.clone(),
        partitions: subject.partitions.clone(),
        part_changes: part_changes(&candidates, recommendation.choice),
        files,
        compaction: compaction_by_rows(sample, &candidates),
        other_owner: relation.other_owner.clone(),
        set_off: relation.set_off.clone(),
        optimize,
        workload: WorkloadReport {
            reads_per_day: goal.workload.reads,
            writes_per_day: goal.workload.writes,
            scans_per_day: goal.workload.scans,
            source: goal.workload.source.to_string(),
        },
        calibration: calibrated.report.clone(),
        recommendation: RecommendationReport::new(
            sample,
            &candidates,
            recommendation,
            &goal,
            uncompared,
        ),
        candidates: (0..candidates.len())
            .filter_map(|at| CandidateReport::new(sample, &candidates, at, recommended))
            .collect(),
        extraction,
        pluggable: pluggable.filter_map(|p| p.figures(scale)).collect(),
        notes,
        problems: subject.read.problems.clone(),
    }
}

/// What the choice makes of each relation, in fresh files, as a part of what it takes now.
fn part_changes(candidates: &[Candidate<'_>], choice: usize) -> Vec<f64> {
    let (Some(today), Some(chosen)) = (candidates.first(), candidates.get(choice)) else {
        return Vec::new();
    };
    let before = part_sizes(today);
    part_sizes(chosen).iter().zip(before).map(|(after, before)| after / before.max(1.0)).collect()
}

/// Bytes of each relation with these settings, in fresh files.
fn part_sizes(candidate: &Candidate<'_>) -> Vec<f64> {
    let parts = candidate.tally.parts();
    let all = Sums::total(&parts);
    let mut sizes = Vec::with_capacity(parts.len());
    for part in &parts {
        let files = candidate.figures.of_part(part, &all).files;
        let all = [files.heap_bytes, files.toast_bytes, files.toast_index_bytes];
        sizes.push(all.iter().map(|figure| figure.value.estimate).sum());
    }
    sizes
}

impl SampleRead {
    /// Sizes of the files, of all relations together.
    pub(super) fn files(&self) -> Files {
        self.files.iter().fold(Files::default(), |sum, files| sum + *files)
    }
}

impl<'a> ColumnSample<'a> {
    /// The number of the relation's blocks divided by the number of those that were read.
    fn scale(&self) -> f64 {
        let blocks: f64 = self.tally.blocks().iter().sum();
        if blocks > 0.0 { f64::from(self.subject.read.total_blocks) / blocks } else { 0.0 }
    }

    pub(super) fn scope(&self) -> Scope {
        let read = &self.subject.read;
        Scope {
            total_blocks: read.total_blocks,
            complete: read.complete,
            page: self.subject.server.page_size,
            logical: self.subject.facts.logical,
            // with pluggable TOAST there are several
            toast_file: if self.subject.server.has_toasters {
                u64::MAX
            } else {
                read.files().toast_bytes
            },
        }
    }

    fn target(&self) -> CommandTarget<'a> {
        let relation = self.subject.relation;
        CommandTarget {
            schema: &relation.schema,
            table: &relation.name,
            column: &self.variants.name,
        }
    }

    /// The names of these columns, in the order of the table.
    pub(super) fn names(&self, named: &[usize]) -> Vec<&'a str> {
        let mut named = named.to_vec();
        named.sort_unstable();
        let columns = &self.subject.relation.desc.attributes;
        let columns = named.iter().filter_map(|&at| columns.get(at));
        columns.map(|column| column.name.as_str()).collect()
    }

    /// The `retoast` command for these columns: in one order, so that what is advised on several is one command.
    pub(super) fn command(
        &self,
        named: &[usize],
        wanted: &Settings,
        after: &AfterCommand,
    ) -> Vec<String> {
        let names = self.names(named);
        let Some((column, others)) = names.split_first() else { return Vec::new() };
        let target = CommandTarget { column, ..self.target() };
        command::command(target, others, (&self.variants.present, wanted), &after.options())
    }

    /// The statements that give the column these settings.
    fn sql(&self, wanted: &Settings) -> Vec<String> {
        let Subject { server, partition_names, .. } = self.subject;
        let present = &self.variants.present;
        command::sql(self.target(), partition_names, present, wanted, server.page_size)
    }

    /// What the command for a candidate with these figures leaves.
    pub(super) fn after_command(
        &self,
        then: SampledFigures<'_>,
        today: SampledFigures<'_>,
    ) -> AfterCommand {
        self.after_command_on(then, today, |files, _| *files)
    }

    /// By how much the command makes the files larger if these have no free space now but that next to long rows, as a part:
    /// what an earlier command has left is no room for another one to grow, and no gain of it. Values of dropped columns that
    /// it takes out of rows are no gain either.
    pub(super) fn growth(&self, then: SampledFigures<'_>, today: SampledFigures<'_>) -> Interval {
        let [figures, before] = [then, today].map(|one| one.figures.whatever_came_before());
        let then = SampledFigures { figures: &figures, ..then };
        let today = SampledFigures { figures: &before, ..today };
        self.after_command_on(then, today, |files, today| {
            files.without_free_space(&today.in_place(today).files)
        })
        .growth()
    }

    /// As by [`ColumnSample::after_command`], of files that are derived from those of each relation for itself.
    fn after_command_on(
        &self,
        then: SampledFigures<'_>,
        today: SampledFigures<'_>,
        files_of: impl Fn(&Files, &Figures) -> Files,
    ) -> AfterCommand {
        let Subject { read, server, .. } = self.subject;
        let page = server.page_size;
        let may = CompactedFiles::possible(server);
        let SampledFigures { tally, figures } = then;
        let parts = tally.parts();
        let parts_today = today.tally.parts();
        let all = Sums::total(&parts);
        let all_today = Sums::total(&parts_today);
        let each = parts.iter().zip(&parts_today).zip(&read.files);
        let each = each.map(|((part, part_today), files)| {
            let figures = figures.of_part(part, &all);
            let today = today.figures.of_part(part_today, &all_today);
            AfterCommand::new(&figures, &today, &files_of(files, &today), page, may)
        });
        let together = if parts.len() > 1 { each.reduce(AfterCommand::plus) } else { None };
        together.unwrap_or_else(|| {
            let files = files_of(&read.files(), today.figures);
            AfterCommand::new(figures, today.figures, &files, page, may)
        })
    }

    /// The workload as given, else from statements about the column, else from counters of the table.
    fn workload(&self, column_use: &ColumnUse) -> Workload {
        let Subject { facts, options, .. } = self.subject;
        let scale = self.scale();
        let today = self.tally.tallies().first();
        let values = today.map_or(0.0, |today| today.values() * scale);
        let out_of_line = today.map_or(0.0, |today| {
            today.forms.get(Form::External) + today.forms.get(Form::ExternalCompressed)
        });
        let statements = match column_use {
            ColumnUse::Counted { reads, writes, statements } => {
                Some((UseCounts { reads: *reads, writes: *writes }, *statements))
            }
            _ => None,
        };
        Workload::new(&KnownUse {
            reads_per_write: options.reads_per_write,
            statements,
            counters: &facts.counters,
            period: facts.period,
            values,
            out_of_line: out_of_line * scale,
        })
    }

    /// Of the figures of all variants, those with these settings where this is done with values of other columns.
    pub(super) fn with_others<'f>(
        &'f self,
        others: OtherValues,
        all: &'f [Figures],
        settings: &Settings,
    ) -> Option<SampledFigures<'f>> {
        let mut pairs = self.tally.tallies().iter().zip(all);
        let found = pairs.find(|(one, _)| {
            one.variant.others == others && one.variant.settings.as_ref() == Some(settings)
        });
        found.map(|(tally, figures)| SampledFigures { tally, figures })
    }

    /// What PostgreSQL sets by default.
    pub(super) fn defaults(&self) -> Settings {
        let Subject { facts, server, .. } = self.subject;
        Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(facts.compression.default),
            target: TupleTarget::default_for(server.page_size),
            policy: Policy::Always,
        }
    }

    /// Excludes candidates that are out of proportion to what PostgreSQL's defaults store.
    fn exclude(&self, all: &mut [Candidate<'_>], goal: &Goal) {
        let defaults = self.defaults();
        let narrowing = &self.subject.options.narrowing;
        let default = all.iter().find(|one| {
            one.kind != CandidateKind::Today
                && one.settings == defaults
                && narrowing.allows(&one.settings, &self.variants.present)
        });
        // where today's values are as the settings store them, there is no candidate of its own for these
        let present = if self.variants.present == defaults { all.first() } else { None };
        let Some(defaults) = default.or(present).map(|one| one.weighed) else { return };
        let Some(today) = all.first().map(|one| one.weighed) else { return };
        for candidate in all {
            candidate.weighed.measure_by(&defaults, &today, &candidate.figures, goal);
        }
    }

    /// Why a candidate is excluded whatever its figures are. What is stored now is none.
    fn hindrance(
        &self,
        kind: CandidateKind,
        tally: &VariantTally,
        goal: &Goal,
    ) -> Option<Exclusion> {
        let Subject { options, read, .. } = self.subject;
        let settings = tally.variant.settings?;
        let is_other = kind == CandidateKind::Other;
        if tally.refused > 0.0 {
            Some(Exclusion::Refused)
        } else if is_other && !options.narrowing.allows(&settings, &self.variants.present) {
            Some(Exclusion::NotAsked)
        } else if goal.others.come_first {
            Some(Exclusion::Waits)
        } else if is_other && goal.others.joined.is_none_or(|joined| joined.settings != settings) {
            let moved = moved_values(tally, 1.0 / self.scale().max(1.0), read.complete);
            Exclusion::of_moves(moved, goal)
        } else {
            // the present settings, and a command for all columns, do that to the other columns anyway
            None
        }
    }

    /// The figures by which settings are chosen. Measured times differ from call to call: they are shown, and choose nothing.
    /// Attempts at compression that fail count where there would be more of them than today, and not where there would be
    /// less: settings that spare them store the values as they are.
    fn choosing_figures(&self) -> Vec<Figures> {
        let write =
            WritePrices { pglz_refused_ns: 0.0, lz4_refused_ns: 0.0, ..WritePrices::default() };
        let scope = self.scope();
        let mut without =
            figures(self.tally, &scope, &Pricing { write, ..Pricing::default() }, Variants::AS_SET);
        let with = figures(self.tally, &scope, &Pricing::default(), Variants::AS_SET);
        let mut today = None;
        for (figures, with) in without.iter_mut().zip(&with) {
            let own = &mut figures.costs.write_cpu_ns.figure;
            let failing = with.costs.write_cpu_ns.figure.value.estimate - own.value.estimate;
            let more = failing - *today.get_or_insert(failing);
            own.add(more.max(0.0));
        }
        without
    }

    /// Today, the present settings if they would store values differently, and the others. Only today if nothing is
    /// compared.
    fn candidates(&self, goal: &Goal, compares: bool) -> Vec<Candidate<'a>> {
        let present = &self.variants.present;
        let may_compact = CompactedFiles::possible(self.subject.server).are_both();
        let files = self.subject.read.files();
        let page = self.subject.server.page_size.bytes() as f64;
        let scale = self.scale();
        let estimated =
            figures(self.tally, &self.scope(), &self.calibrated.pricing, Variants::AS_SET);
        let weighty = self.choosing_figures();
        let fresh_before = weighty.first().copied().unwrap_or_default();
        let before = fresh_before.in_place(&fresh_before);
        let fresh_today = estimated.first().copied().unwrap_or_default().read_buffers;
        let mut all: Vec<Candidate<'a>> = Vec::with_capacity(estimated.len());
        let tallies = self.tally.tallies();
        for ((tally, mut figures), own) in tallies.iter().zip(estimated).zip(&weighty) {
            let settings = tally.variant.settings.unwrap_or(*present);
            let (kind, name) = match all.first() {
                None => (CandidateKind::Today, "today".to_owned()),
                Some(_) if !compares => break,
                Some(_) if settings != *present => (CandidateKind::Other, settings.to_string()),
                Some(today) if today.tally.clusters == tally.clusters => continue,
                Some(_) => (CandidateKind::AsSet, format!("{settings} (as set)")),
            };
            if tally.variant.others != OtherValues::Stay {
                continue;
            }
            let is_today = kind == CandidateKind::Today;
            let rank = if is_today { None } else { Some(rank(&settings, present)) };
            let mut after = AfterCommand::unchanged(&files);
            let mut growth = None;
            let joined = goal.others.joined.filter(|joined| joined.settings == settings);
            let mut judged = own.in_place(&fresh_before);
            if let Some(joined) = joined {
                judged.files = FileSizes { total_bytes: joined.total_bytes, ..own.files };
            }
            if let Some(today) = all.first() {
                let then = SampledFigures { tally, figures: &figures };
                let today = SampledFigures { tally: today.tally, figures: &today.figures };
                after = self.after_command(then, today);
                growth = match joined {
                    Some(joined) => Some(joined.growth),
                    None => Some(self.growth(then, today)),
                };
            }
            let mut exclusion = self.hindrance(kind, tally, goal);
            if let (Some(growth), None) = (growth, exclusion) {
                exclusion = Exclusion::of_room(own, &judged, goal)
                    .or_else(|| Exclusion::new(&judged, growth, may_compact, goal));
            }
            let mut weighed = Weighed::new(&judged, &before, exclusion, rank, goal);
            weighed.most = joined.map_or(weighed.most, |joined| joined.most_bytes);
            // files that this user cannot compact shrink later, or are filled again: the values are judged
            if let Some(growth) = growth
                && may_compact
            {
                weighed = weighed.delivering(growth, &judged, &before, goal);
            }
            if let Some(arriving) = self.with_others(OtherValues::Arrive, &weighty, &settings) {
                let arriving = arriving.figures.in_place(&fresh_before);
                weighed = weighed.no_better_than(&arriving, &before, goal);
            }
            let fresh = figures.files.heap_bytes.value.estimate;
            let values = tally.values() * scale;
            let more =
                if values > 0.0 { (after.heap_bytes - fresh) / (values * page) } else { 0.0 };
            let today = all.first().map_or(fresh_today.value.estimate + more, |today| {
                today.figures.read_buffers.value.estimate
            });
            figures.read_buffers =
                figures.read_buffers.with_more(more, fresh_today.value.estimate, today);
            if !is_sliced(&self.variants.type_name) {
                figures.costs.prefix_read = None;
            }
            let read_part = part(own.read_cpu_ns.figure.change, ESTIMATE);
            all.push(Candidate { kind, settings, name, tally, figures, read_part, after, weighed });
        }
        self.exclude(&mut all, goal);
        all
    }
}

impl Candidate<'_> {
    /// `heap_bytes`: of the heap's file today.
    fn described(&self, heap_bytes: u64) -> Described<'_> {
        Described {
            name: &self.name,
            settings: &self.settings,
            figures: &self.figures,
            read_part: self.read_part,
            weighed: &self.weighed,
            heap_bytes: heap_bytes as f64,
            heap_part: self.after.heap_bytes / (heap_bytes as f64).max(1.0),
            after_bytes: self.after.bytes.estimate,
        }
    }

    /// The `retoast` command, with the other columns that it must name.
    fn command(&self, sample: ColumnSample<'_>) -> Vec<String> {
        sample.command(&self.tally.variant.named, &self.settings, &self.after)
    }

    /// What is left of the CPU time that an UPDATE of a value takes.
    fn write_part(&self) -> f64 {
        cpu_part(&self.figures.costs.write_cpu_ns.figure, ESTIMATE)
    }

    fn is_plain(&self, method: Method) -> bool {
        self.settings.policy == Policy::Always
            && self.settings.storage == Storage::Extended
            && self.settings.method == MethodChoice::One(method)
    }
}

impl SampleReport {
    fn new(sample: ColumnSample<'_>) -> SampleReport {
        let Subject { read, options, .. } = sample.subject;
        SampleReport {
            blocks: read.done.blocks,
            total_blocks: read.total_blocks,
            rows: sample.tally.rows() as u64,
            rows_examined: read.rows_examined,
            columns_left_out: read.columns_left_out,
            fetched_bytes: read.fetched_bytes,
            read_bytes: read.done.read,
            limit: read.limit,
            seed: options.seed,
            complete: read.complete,
            exact: options.compresses_on_server(read.access),
            source: read.access,
        }
    }
}

impl CandidateReport {
    /// The candidate at this place of all; `recommended` is the place of the one that is, if any are compared.
    fn new(
        sample: ColumnSample<'_>,
        all: &[Candidate<'_>],
        at: usize,
        recommended: Option<usize>,
    ) -> Option<CandidateReport> {
        let candidate = all.get(at)?;
        let Candidate { settings, tally, figures, after, .. } = candidate;
        let weighed: Vec<Weighed> = all.iter().map(|one| one.weighed).collect();
        let scale = sample.scale();
        let forms = FormCounts::new(&tally.forms, scale);
        let server = sample.subject.server;
        let mut caveats = Vec::new();
        if candidate.kind != CandidateKind::Today {
            let files = sample.subject.read.files();
            caveats = growth_caveats(figures, after, &files, server.has_toasters);
            let present = &sample.variants.present;
            caveats.extend(settings_caveats(settings, present, server.page_size));
        }
        Some(CandidateReport {
            settings: settings.into(),
            name: candidate.name.clone(),
            marks: Marks {
                today: candidate.kind == CandidateKind::Today,
                recommended: recommended == Some(at),
                pareto: candidate.weighed.is_on_front(&weighed),
                same_as: all.iter().take(at).position(|one| one.tally.clusters == tally.clusters),
            },
            after_command_bytes: after.bytes,
            before_compaction_bytes: after.before_compaction,
            figures: *figures,
            forms,
            decompressed_values: forms.compressed + forms.external_compressed,
            refused_rows: (tally.refused * scale).round() as u64,
            refusal: tally.refusal.clone(),
            caveats,
            excluded: candidate.weighed.exclusion.map(|exclusion| exclusion.to_string()),
            judged_bytes: candidate.weighed.total,
            not_advised: (at > 0 && recommended.is_some_and(|chosen| chosen != at))
                .then(|| candidate.weighed.why_not(sample.subject.options.optimize)),
        })
    }
}

/// What to do about a materialized view, which has no command.
const VIEW: &str = " The rows of a materialized view cannot be updated: convert the tables that it reads, then REFRESH \
                    it. That copies values as they are compressed there; only values that its query computes \
                    follow its own settings.";

impl RecommendationReport {
    /// `uncompared`: why there is no recommendation.
    fn new(
        sample: ColumnSample<'_>,
        all: &[Candidate<'_>],
        recommendation: Recommendation,
        goal: &Goal,
        uncompared: Option<String>,
    ) -> RecommendationReport {
        let read = &sample.subject.read;
        let chosen = all.get(recommendation.choice);
        let is_view = sample.subject.relation.kind == RelationKind::MaterializedView;
        let better = chosen.filter(|chosen| chosen.kind != CandidateKind::Today);
        let changed = if is_view { None } else { better };
        let heap_bytes = read.files().heap_bytes;
        let described: Vec<Described<'_>> =
            all.iter().map(|candidate| candidate.described(heap_bytes)).collect();
        let is_compared = uncompared.is_none();
        let as_set = all.iter().position(|candidate| candidate.kind == CandidateKind::AsSet);
        let as_set = as_set.and_then(|at| described.get(at));
        let mut reasons = uncompared.unwrap_or_else(|| {
            let on_disk = read.files().total_bytes;
            reasons(&described, recommendation, goal, on_disk, as_set, read.complete)
        });
        let mut sql = changed.map_or_else(Vec::new, |chosen| sample.sql(&chosen.settings));
        if is_compared
            && recommendation.choice == 0
            && let Some(cheapest) = for_new_values(sample, all, goal.optimize)
        {
            sql = sample.sql(&cheapest.settings);
            let _ = write!(
                reasons,
                " {} stores these values in the same way, but spares new ones attempts at compression that fail: {}",
                cheapest.name,
                sql.join(" ")
            );
        }
        if is_view && better.is_some() {
            reasons.push_str(VIEW);
        }
        RecommendationReport {
            candidate: recommendation.choice,
            weighting: if is_compared { weighting(goal) } else { String::new() },
            reasons,
            sql,
            value: chosen.map_or(1.0, |chosen| chosen.weighed.gain_left()),
            best: recommendation.best,
            command: changed.map_or_else(Vec::new, |chosen| chosen.command(sample)),
            after_bytes: changed.map_or_else(
                || Interval::exact(read.files().total_bytes),
                |chosen| chosen.after.bytes,
            ),
        }
    }
}

/// The part of the time of an UPDATE's compression that is worth a hint.
const NOTABLY_LESS: f64 = 0.9;

/// The candidate whose settings spare new values the attempt to compress them, if that matters and no stored value would
/// change.
fn for_new_values<'c>(
    sample: ColumnSample<'_>,
    all: &'c [Candidate<'_>],
    optimize: Optimize,
) -> Option<&'c Candidate<'c>> {
    if optimize != Optimize::Write {
        return None;
    }
    let present = &sample.variants.present;
    let may_be_set = all.iter().filter(|one| {
        one.kind == CandidateKind::Other
            && one.weighed.exclusion.is_none()
            && one.settings.is_stock()
            && one.settings.target == present.target
            && one.figures.written.heap_bytes <= 0.0
    });
    let cheapest = may_be_set.min_by(|a, b| a.write_part().total_cmp(&b.write_part()))?;
    (cheapest.write_part() <= NOTABLY_LESS).then_some(cheapest)
}

/// The report on the table with some keys of its documents in columns of their own.
fn extraction_of(sample: ColumnSample<'_>, extraction: &Extraction) -> Option<ExtractionReport> {
    let server = sample.subject.server;
    let present = &sample.variants.present;
    let table = extraction.table();
    let target = CommandTarget { schema: &table.schema, table: &table.name, ..sample.target() };
    let compaction: &[&str] = match CompactedFiles::possible(server) {
        CompactedFiles { toast: true, .. } => &["--compact"],
        CompactedFiles { heap: true, .. } => &["--compact=heap"],
        _ => &[],
    };
    let words = command::command(target, &[], (present, present), compaction);
    let command = command::shell_line(&words);
    extraction_report(extraction, &sample.scope(), &command, server.has_toasters)
}

/// Whether `substr` of a value of this type reads only what it needs.
fn is_sliced(type_name: &str) -> bool {
    let name = type_name.split('(').next().unwrap_or_default();
    !type_name.ends_with("[]")
        && matches!(name, "text" | "bytea" | "character varying" | "character")
}

/// Why `pg_stat_statements`, though there, is not used.
fn silence(subject: &Subject<'_>, column_use: ColumnUse) -> Option<String> {
    match column_use {
        ColumnUse::Silent(why) if subject.options.reads_per_write.is_none() => {
            Some(format!("pg_stat_statements was not used to estimate the workload: {why}."))
        }
        _ => None,
    }
}

/// Why nothing is compared: toastctl does not know how values would be stored, or pluggable toasters store some of them.
fn why_uncompared(sample: ColumnSample<'_>) -> Option<String> {
    if sample.subject.relation.desc.id_type == ValueIdType::Oid8 {
        return Some(format!("No recommendation: {WIDE_IDS}."));
    }
    let today = sample.tally.tallies().first()?;
    let custom = today.forms.get(Form::Custom);
    let unknown = today.unknown;
    if custom <= 0.0 {
        let set = &sample.subject.facts.toasters;
        let set = set.iter().find(|toaster| toaster.column == sample.variants.name)?;
        return Some(format!(
            "No recommendation: toaster {} is set for the column, and toastctl does not estimate what it would make of the \
             values.",
            set.name
        ));
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

/// What compaction alone would give back, by the sampled rows.
fn compaction_by_rows(
    sample: ColumnSample<'_>,
    candidates: &[Candidate<'_>],
) -> Option<CompactionReport> {
    let Subject { relation, server, read, .. } = sample.subject;
    let is_view = relation.kind == RelationKind::MaterializedView;
    if relation.desc.id_type != ValueIdType::Oid || is_view || !server.compacts() {
        return None;
    }
    let may = CompactedFiles::possible(server);
    estimated(&candidates.first()?.figures, &read.files(), server.page_size, relation, may)
}

fn notes(sample: ColumnSample<'_>, candidates: &[Candidate<'_>]) -> Vec<String> {
    let Subject { facts, server, read, relation, .. } = sample.subject;
    let files = read.files();
    let mut notes = Vec::new();
    notes.push(
        if server.has_toasters {
            "Settings apply to new values; toastctl retoast rewrites the stored ones. On a server with pluggable TOAST, \
             files keep their free space: only dumping and restoring the table makes them smaller, which is safe once \
             toastctl check TABLE ends with exit code 0 (a dump holds what the server reads, and it misreads some values)."
        } else {
            "Settings apply to new values; toastctl retoast rewrites the stored ones."
        }
        .to_owned(),
    );
    if !server.vacuum_truncates {
        notes.push(format!("{NEVER_TRUNCATES}, so files cannot be compacted here."));
    }
    if server.compacts() && !server.compacts_toast() {
        notes.push(
            "This user cannot compact TOAST relations: a superuser can, with the extension pageinspect, and from PostgreSQL \
             17 on whoever has the privileges of pg_read_all_data too."
                .to_owned(),
        );
    }
    if read.access == Access::Functions {
        notes.push(without_pages(relation));
    }
    if let Some(today) = candidates.first()
        && !read.complete
        && today.figures.files.toast_bytes.value.high * 2.0 < files.toast_bytes as f64
    {
        notes.push(format!(
            "The sample accounts for {} of the TOAST relation's {}: the rest is free space, dead rows, or values too rare \
             for the sample, which no figure includes; --sample 100% reads every row.",
            size(today.figures.files.toast_bytes.bytes()),
            size(files.toast_bytes)
        ));
    }
    if candidates.iter().any(|candidate| candidate.kind == CandidateKind::AsSet) {
        notes.push(
            "Some values are not stored as the column's settings would store them: the settings were changed later, or \
             the values were copied from another table."
                .to_owned(),
        );
    }
    if let (Some(before), Some(after)) = (
        candidates.iter().find(|candidate| candidate.is_plain(Method::Pglz)),
        candidates.iter().find(|candidate| candidate.is_plain(Method::Lz4)),
    ) {
        let scale = sample.scale();
        let pglz = (before.tally.forms.pglz + before.tally.forms.lz4) * scale;
        let lz4 = (after.tally.forms.pglz + after.tally.forms.lz4) * scale;
        if (pglz - lz4).abs() >= 1.0 {
            notes.push(format!(
                "The method also decides which values are compressed: {pglz:.0} with pglz, which must save a quarter, \
                 and {lz4:.0} with lz4, which keeps almost any saving."
            ));
        }
    }
    let packed = candidates.first().map_or(0.0, |today| today.figures.files.total_bytes.value.high);
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

/// Smallest growth worth a caveat, as a part.
const REPORTED_GROWTH: f64 = 0.1;

/// What to know about the sizes of the files.
fn growth_caveats(
    figures: &Figures,
    after: &AfterCommand,
    files: &Files,
    has_toasters: bool,
) -> Vec<String> {
    let mut caveats = Vec::new();
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
    if columns.iter().any(|column| column.dropped) && columns.iter().any(|column| column.is_virtual)
    {
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
    use toast_format::model::TupleTarget;

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
            let after = AfterCommand::new(
                figures,
                &same,
                &FILES,
                page,
                CompactedFiles { heap: true, toast: true, index: true },
            );
            growth_caveats(figures, &after, &FILES, false).len()
                + settings_caveats(wanted, &present, page).len()
        };
        assert_eq!(number(&present, &same), 0);
        assert_eq!(number(&present, &figures(105.0, 900.0)), 0);
        let mut larger = figures(1000.0, 0.0);
        larger.written.heap_bytes = 1000.0;
        assert_eq!(number(&present, &larger), 1);
        let low = Settings { target: TupleTarget::new(256, page).unwrap(), ..present };
        assert_eq!(number(&low, &same), 2);
        assert_eq!(number(&Settings { policy: Policy::Best, ..present }, &same), 1);
        assert_eq!(number(&Settings { storage: Storage::External, ..present }, &same), 1);
    }
}
