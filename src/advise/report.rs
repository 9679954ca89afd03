//! From a tally to the report on a column (pure).

use super::caveats;
use super::estimate::{Figures, Scope, figures};
use super::extract::rows::Extraction;
use super::facts::TableFacts;
use super::plan::{Done, Limit, SamplePlan};
use super::pluggable::Pluggable;
use super::reasons::reasons;
use super::recommend::{Entry, pareto, recommend};
use super::request::Options;
use super::result::{
    CandidateReport, CompactionReport, Files, FormCounts, RecommendationReport, Report, SCHEMA,
    SampleReport, WorkloadReport,
};
use super::statements::{Named, Statements, Verdict, verdict};
use super::tally::{Tally, VariantTally};
use super::variant::{PRESENT, TODAY, Variants};
use super::workload::{Optimize, Workload, WorkloadSource};
use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::disk::layout::PageSize;
use crate::heap::problem::Problems;
use crate::judge::command::{self, CommandTarget};
use crate::model::cost::Prices;
use crate::model::policy::{MethodChoice, Policy};
use crate::model::settings::Settings;
use crate::model::stored::Form;
use crate::server::about::{NEVER_TRUNCATES, ServerReport};
use crate::server::catalog::Relation;

/// Everything that the report is made of.
pub struct Gathered<'a> {
    pub server: ServerReport,
    /// Whether VACUUM cuts off empty ends of files there.
    pub(super) truncates: bool,
    pub relation: &'a Relation,
    /// What the server knows of it.
    pub facts: &'a TableFacts,
    /// What is compared.
    pub variants: &'a Variants,
    /// What the sample adds up to.
    pub tally: &'a Tally,
    pub(super) plan: &'a SamplePlan,
    /// What was read of it.
    pub(super) done: Done,
    /// Why that is less.
    pub(super) limit: Option<Limit>,
    /// Rows looked at.
    pub rows_examined: u64,
    /// Bytes fetched from the TOAST relation.
    pub fetched_bytes: u64,
    /// Sizes of the files.
    pub files: Files,
    /// What could not be read.
    pub problems: &'a Problems,
    /// What other toasters would do, by column.
    pub pluggable: &'a [Pluggable],
    /// Keys in columns of their own, where that is asked.
    pub(super) extraction: Option<&'a Extraction>,
    /// What was asked.
    pub options: &'a Options,
    /// The page size.
    pub page: PageSize,
    /// How rows were read: `pageinspect` or `functions`.
    pub(super) source: &'static str,
    /// Whether the server compressed the sample.
    pub(super) on_server: bool,
    /// Whether the server has pluggable TOAST: nothing compacts a table there.
    pub(super) has_toasters: bool,
}

/// A variant that is reported.
struct Shown<'a> {
    settings: Settings,
    name: String,
    tally: &'a VariantTally,
    figures: Figures,
}

/// The report on one column.
pub fn report(gathered: &Gathered<'_>) -> Report {
    let Gathered { relation, variants, tally, plan, done, options, .. } = gathered;
    let (sample, page) = (&plan.sample, gathered.page);
    let complete = plan.is_complete(done);
    let scope = Scope { total_blocks: sample.total(), complete, page: gathered.page };
    let all = figures(tally, &scope, &Prices::default());
    let shown = shown(gathered, &all);
    let verdict = statements_verdict(gathered);
    let workload = workload(gathered, &verdict);
    let entries: Vec<Entry> = shown
        .iter()
        .map(|s| Entry {
            figures: s.figures,
            refused: s.tally.refused > 0.0,
            rank: rank(&s.settings),
        })
        .collect();
    let names: Vec<String> = shown.iter().map(|s| s.name.clone()).collect();
    let recommendation = recommend(&entries, options.optimize, &workload);
    let uncompared = custom(gathered);
    let front = pareto(&entries, options.optimize, &workload);
    let blocks: f64 = tally.blocks().iter().sum();
    let scale = if blocks > 0.0 { f64::from(sample.total()) / blocks } else { 0.0 };
    let candidates = shown
        .iter()
        .zip(front)
        .enumerate()
        .map(|(index, (s, pareto))| CandidateReport {
            today: index == TODAY,
            recommended: index == recommendation.choice && uncompared.is_none(),
            pareto,
            same_as: shown
                .iter()
                .take(index)
                .position(|other| other.tally.clusters == s.tally.clusters),
            refused_rows: (s.tally.refused * scale).round() as u64,
            refusal: s.tally.refusal.map(|error| error.to_string()),
            caveats: if index == TODAY {
                Vec::new()
            } else {
                let has_toasters = gathered.has_toasters;
                let wanted = (&s.settings, &variants.present);
                caveats::of(wanted, &s.figures, &gathered.files, page, has_toasters)
            },
            retoasted_bytes: match index {
                TODAY => gathered.files.total_bytes,
                _ => caveats::retoasted_bytes(&s.figures, &gathered.files),
            },
            ..CandidateReport::new(
                &s.settings,
                s.name.clone(),
                &s.figures,
                FormCounts::of(&s.tally.forms, scale),
                page,
            )
        })
        .collect();
    let target =
        CommandTarget { schema: &relation.schema, table: &relation.name, column: &variants.name };
    let chosen = shown.get(recommendation.choice).filter(|_| recommendation.choice != TODAY);
    Report {
        schema: SCHEMA,
        server: gathered.server.clone(),
        relation: relation.display_name(),
        schema_name: relation.schema.clone(),
        name: relation.name.clone(),
        oid: relation.oid.0,
        column: variants.name.clone(),
        column_type: variants.type_name.clone(),
        sample: SampleReport {
            blocks: done.blocks,
            total_blocks: sample.total(),
            rows: tally.rows() as u64,
            rows_examined: gathered.rows_examined,
            fetched_bytes: gathered.fetched_bytes,
            read_bytes: done.read,
            limit: gathered.limit.map(|limit| match limit {
                Limit::Bytes => "bytes",
                Limit::Time => "time",
            }),
            seed: options.seed,
            complete,
            exact: gathered.on_server,
            source: gathered.source,
        },
        files: gathered.files,
        compaction: gain(gathered, &shown),
        optimize: optimize_name(options.optimize),
        workload: WorkloadReport {
            reads_per_write: workload.ratio(),
            source: workload.source.to_string(),
            scan_weight: workload.scan_weight(),
        },
        candidates,
        // of documents that pluggable toasters store no key was seen
        extraction: gathered.extraction.filter(|_| custom(gathered).is_none()).and_then(
            |extraction| {
                let present = &variants.present;
                let table = extraction.table();
                let target = CommandTarget { schema: &table.schema, table: &table.name, ..target };
                let compaction = Some("--compact").filter(|_| gathered.compacts());
                let command = command::command(target, present, present, compaction);
                extraction.report(&scope, &command, gathered.has_toasters)
            },
        ),
        pluggable: gathered
            .pluggable
            .iter()
            .filter(|p| p.is_for(variants.column))
            .filter_map(|p| Pluggable::report(p, scale))
            .collect(),
        recommendation: RecommendationReport {
            candidate: recommendation.choice,
            reasons: uncompared.unwrap_or_else(|| {
                reasons(&entries, &names, recommendation, options.optimize, &workload)
            }),
            sql: chosen
                .map(|s| command::sql(target, &variants.present, &s.settings, gathered.page))
                .unwrap_or_default(),
            command: chosen.map(|s| {
                let compaction = caveats::compaction(&s.figures, &gathered.files, gathered.page)
                    .filter(|_| gathered.compacts());
                command::command(target, &variants.present, &s.settings, compaction)
            }),
        },
        notes: notes(gathered, &shown, scale)
            .into_iter()
            .chain(silence(gathered, verdict))
            .collect(),
        problems: gathered.problems.kept().iter().map(ToString::to_string).collect(),
        problem_count: gathered.problems.count(),
    }
}

/// What `pg_stat_statements` says of the column.
fn statements_verdict(gathered: &Gathered<'_>) -> Verdict {
    let Gathered { relation, facts, variants, .. } = gathered;
    let unique_name = matches!(facts.statements, Statements::Read { unique_name: true, .. });
    let named = Named {
        schema: &relation.schema,
        table: &relation.name,
        column: &variants.name,
        unique_name,
    };
    verdict(&facts.statements, named, facts.live_rows)
}

/// What is given, else what statements tell of the column, else what is counted of the table.
fn workload(gathered: &Gathered<'_>, verdict: &Verdict) -> Workload {
    let counted = &gathered.facts.counted;
    let (reads_per_write, source) =
        match (gathered.options.reads_per_write, verdict, counted.reads_per_write()) {
            (Some(given), ..) => (Some(given), WorkloadSource::Given),
            (None, Verdict::Told { reads, writes, statements }, _) => {
                (Some(reads / writes.max(1.0)), WorkloadSource::Statements(*statements))
            }
            (None, _, Some((ratio, bound))) => (Some(ratio), WorkloadSource::Statistics(bound)),
            (None, ..) => (None, WorkloadSource::Assumed),
        };
    Workload { reads_per_write, source, scanned: counted.scanned_part() }
}

/// Why `pg_stat_statements`, though there, is not used.
fn silence(gathered: &Gathered<'_>, verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::Silent(why) if gathered.options.reads_per_write.is_none() => {
            Some(format!("The workload is not judged by pg_stat_statements: {why}."))
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

/// Why nothing is compared where pluggable toasters store values of the column.
fn custom(gathered: &Gathered<'_>) -> Option<String> {
    let today = gathered.tally.tallies().get(TODAY)?;
    let (custom, unknown) = (today.forms.get(Form::Custom), today.unknown);
    if custom <= 0.0 {
        return None;
    }
    let mut text = format!(
        "No recommendation: pluggable toasters store {custom:.0} of the column's values in the sample, and what \
         other settings would make of those is not estimated."
    );
    if unknown > 0.0 {
        text.push_str(&format!(
            " What {unknown:.0} of them take in the TOAST relation is not known, and not counted."
        ));
    }
    Some(text)
}

/// Today, the present settings where they would store otherwise, and the candidates. Today alone where nothing is
/// compared.
fn shown<'a>(gathered: &'a Gathered<'_>, all: &[Figures]) -> Vec<Shown<'a>> {
    let Gathered { variants, tally, .. } = gathered;
    let compared = if custom(gathered).is_some() { 1 } else { all.len() };
    let stored_otherwise = match (tally.tallies().get(TODAY), tally.tallies().get(PRESENT)) {
        (Some(today), Some(present)) => today.clusters != present.clusters,
        _ => false,
    };
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
        out.push(Shown { settings, name, tally, figures: *figures });
    }
    out
}

/// Of equals a plain setting is taken before a policy, and a policy before EXTERNAL, which would
/// not compress the values to come however well they compress.
fn rank(settings: &Settings) -> u8 {
    let stock = settings.is_stock();
    match settings.storage {
        Storage::Extended if stock => 1,
        Storage::Main if stock => 2,
        Storage::Extended | Storage::Main if settings.method == MethodChoice::Either => 4,
        Storage::Extended | Storage::Main => 3,
        Storage::External => 5,
        Storage::Plain => 6,
    }
}

impl Gathered<'_> {
    /// Whether `retoast --compact` makes files smaller there.
    fn compacts(&self) -> bool {
        self.truncates && !self.has_toasters
    }
}

/// What compaction alone would give back.
fn gain(gathered: &Gathered<'_>, shown: &[Shown<'_>]) -> Option<CompactionReport> {
    let today = &shown.get(TODAY).filter(|_| gathered.compacts())?.figures;
    caveats::gain(today, &gathered.files, gathered.page, gathered.relation)
}

fn notes(gathered: &Gathered<'_>, shown: &[Shown<'_>], scale: f64) -> Vec<String> {
    let Gathered { facts, files, .. } = gathered;
    let mut notes = Vec::new();
    let files_left = if gathered.has_toasters {
        "keep their free space, and nothing makes them smaller on a server with pluggable TOAST but to dump the table \
         and load it again"
    } else {
        "are as small only once they are compacted (retoast --compact) or written anew (VACUUM FULL, pg_repack)"
    };
    notes.push(format!(
        "Settings do not change what is stored already; toastctl retoast rewrites it. Sizes are those \
         of freshly written files; the files that retoast leaves {files_left}."
    ));
    if !gathered.truncates {
        notes.push(format!("{NEVER_TRUNCATES}, so that retoast --compact is refused here."));
    }
    if gathered.source == "functions" {
        notes.push(caveats::without_pages(gathered.relation));
    }
    if shown.get(PRESENT).is_some_and(|s| s.name.ends_with("(as set)")) {
        notes.push(
            "Some values are not stored as the column's settings would store them today: the settings \
             were changed, or values were copied from elsewhere."
                .to_owned(),
        );
    }
    if let (Some(before), Some(after)) = (
        shown.iter().find(|s| is_plain(s, Method::Pglz)),
        shown.iter().find(|s| is_plain(s, Method::Lz4)),
    ) {
        let compressed = |s: &Shown<'_>| (s.tally.forms.pglz + s.tally.forms.lz4) * scale;
        let (pglz, lz4) = (compressed(before), compressed(after));
        if (pglz - lz4).abs() >= 1.0 {
            notes.push(format!(
                "The method also decides which values are compressed at all: {pglz:.0} with pglz, \
                 which must save a quarter, {lz4:.0} with lz4, which keeps nearly every gain."
            ));
        }
    }
    let packed = shown.first().map_or(0.0, |s| s.figures.total_bytes.value.high);
    if packed > 0.0 && files.total_bytes as f64 > packed * 1.1 {
        notes.push(format!(
            "The files hold {} more than the live rows need: dead rows{} and free space, which no \
             setting changes.",
            size(files.total_bytes.saturating_sub(packed as u64)),
            if gathered.has_toasters { ", chunks of replaced values" } else { "" }
        ));
    }
    if let Some(part) = facts.toast_hit_part.filter(|&part| part < 0.9) {
        notes.push(format!(
            "Only {:.0} % of the TOAST relation's buffers were found in shared buffers, toastctl's own \
             reads among them: where they come from disk, buffers cost more than CPU time.",
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

/// Megabytes, or kilobytes for little.
pub(super) fn size(bytes: u64) -> String {
    if bytes >= 10 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} kB", bytes >> 10) }
}
