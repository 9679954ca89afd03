//! The report of `advise-threshold`: candidates, keys in columns of their own, pluggable toasters; and its CSV.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};

use serde_json::json;

use super::charts;
use super::document::{Document, Format, Output};
use super::table::{Column, Grid, Head, Tone, name, number, printable, text};
use super::units::{and_more, counted, nanoseconds, size};
use crate::advise::estimate::{CpuTime, Figure, Figures};
use crate::advise::extract::keys::KnownUse;
use crate::advise::extract::result::{ExtractionReport, KeyReport};
use crate::advise::result::{
    self as advise, Access, CandidateReport, PluggableReport, Report, SCHEMA, ShardsReport, Toaster,
};
use crate::keys::result as keys;
use crate::server::about::ServerReport;
use toast_format::disk::PageSize;
use toast_format::model::interval::Interval;
use toast_format::model::settings::TupleTarget;
use toast_format::model::sql::without_public;

/// What is written of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Keys in columns of their own, as `keys --extract` has them, instead of the candidates.
    pub extraction: bool,
    /// What terms mean, the caveats of every candidate, and all notes; else those of the recommended one.
    pub details: bool,
    /// Whether the user has named the candidates.
    pub asked: bool,
}

/// Writes reports as they come; on a terminal several are one ranking, which has to wait for the last.
pub struct Writer<W: Write> {
    output: Output<W>,
    shown: Shown,
    /// Notes and legends that are printed already.
    told: HashSet<String>,
    /// What a terminal is shown at the end, and a page begins with.
    held: Vec<Report>,
    /// Whether the server has pluggable TOAST.
    has_toasters: bool,
}

impl<W: Write> Writer<W> {
    /// Nothing is written before the first report.
    pub fn new(
        out: W,
        terminal: (Format, Option<usize>),
        shown: Shown,
        server: ServerReport,
    ) -> Writer<W> {
        let has_toasters = server.has_toasters;
        let (schema, document) = if shown.extraction {
            (keys::SCHEMA, json!(keys::KeysDocument::new(Some(server))))
        } else {
            (SCHEMA, json!(advise::Document::new(server)))
        };
        let (format, width) = terminal;
        let mut output = Output::new(out, format, width, schema, &csv_fields(), &document);
        output.details = shown.details;
        Writer { output, shown, told: HashSet::new(), held: Vec::new(), has_toasters }
    }

    /// Writes one report, so that whoever reads has it at once.
    pub fn report(&mut self, report: &Report) -> io::Result<()> {
        let shown = self.shown;
        let has_toasters = self.has_toasters;
        let is_ranked = match self.output.format {
            Format::Table => !shown.details && !shown.extraction,
            Format::Html => !shown.extraction,
            _ => false,
        };
        if is_ranked {
            self.held.push(report.clone());
            if self.output.format == Format::Table {
                return Ok(());
            }
        }
        if shown.extraction {
            return self.output.section(
                || keys::KeysColumn::from(report),
                |document| extracted(report, has_toasters, document),
                Vec::new,
            );
        }
        let told = &mut self.told;
        self.output.section(
            || report,
            |document| column_section(report, shown, has_toasters, told, document),
            || csv_rows(report),
        )
    }

    /// States on a page that something could not be read.
    pub(crate) fn incomplete(&mut self) {
        self.output.page.incomplete = true;
    }

    /// Ends the document; must be called once.
    pub fn finish(self) -> io::Result<()> {
        let Writer { output, shown, mut told, held, has_toasters } = self;
        output.finish(
            None::<&()>,
            |document| match &held[..] {
                [] => {}
                [_] if document.is_html() => {}
                [report] => column_section(report, shown, has_toasters, &mut told, document),
                several => ranked(several, document),
            },
            Vec::new,
        )
    }
}

/// What the marks of the table mean.
const MARKS: &str = "Marks: > recommended, * on the Pareto front: no other is as good in size, reads, \
    writes and scans, and better in one. Changes are against today; \u{b1} is half the width of the 95 % confidence \
    interval.";

/// What the titles of the table mean, where they do not say it.
const TERMS: [(&str, &str); 12] = [
    ("Size", "Size: without free space."),
    ("After command", "After command: the files as retoast and its compaction leave them."),
    ("Before compaction", "Before compaction: right after the conversion, which shortens no file."),
    ("Heap", "Heap, TOAST, Index: the parts of the size."),
    ("Buffers", "Buffers: pages per read."),
    ("CPU/read", "CPU/read: time that storage adds."),
    ("Buffers/scan", "Buffers/scan: pages visited by a scan that does not need the column."),
    ("WAL/update", "WAL/update: WAL written when one value is replaced."),
    ("CPU/write", "CPU/write: time that compressing one value and storing its chunks takes."),
    (
        "WAL/other",
        "WAL/other: WAL written when another column is changed and the row moves to another page.",
    ),
    ("CPU/prefix", "CPU/prefix: CPU/read of the first 100 characters (substr)."),
    ("Cold pages", "Cold pages: pages read from disk for one value if nothing is cached."),
];

/// The titles that only --details shows.
const DETAILED: [&str; 4] = ["CPU/write", "WAL/other", "CPU/prefix", "Cold pages"];

/// The title of the reasons for which a candidate is not recommended.
const EXCLUDED: &str = "Not advised, since it";

/// The titles of what a read costs.
const COSTS: [&str; 2] = ["Buffers", "CPU/read"];

/// What stands below the table where nothing more is explained.
const BRIEFLY: &str = "> recommended; * no other is better in all; --details explains.";

/// What those titles of the table mean that were not explained before.
fn terms(left_out: &[&'static str], told: &mut HashSet<String>) -> Vec<&'static str> {
    TERMS
        .iter()
        .filter(|(title, _)| !left_out.contains(title))
        .filter(|(title, _)| told.insert((*title).to_owned()))
        .map(|(_, text)| *text)
        .collect()
}

/// What the table means.
fn explained(left_out: &[&'static str], told: &mut HashSet<String>, document: &mut Document) {
    if told.insert(MARKS.to_owned()) {
        document.paragraph(MARKS);
    }
    let terms = terms(left_out, told);
    if !terms.is_empty() {
        document.paragraph(&terms.join(" "));
    }
}

fn heading(report: &Report, document: &mut Document) {
    let [relation, column, of_type] =
        [&report.table.relation, &report.column, &report.column_type].map(|name| printable(name));
    document.heading(&format!("{relation}, column {column} ({of_type})"), 2);
}

fn column_section(
    report: &Report,
    shown: Shown,
    has_toasters: bool,
    told: &mut HashSet<String>,
    document: &mut Document,
) {
    let details = document.details;
    heading(report, document);
    verdict(report, details, document);
    document.gap();
    let item = document.bullet();
    document.item(&on_disk(report));
    document.item(&sample(report));
    if let (false, Some(text)) = (details, parts_left_out(report)) {
        document.paragraph(&text);
    }
    document.gap();
    if document.is_html() {
        front(report, document);
    }
    let name = format!("Settings: {}.{}", report.table.relation, report.column);
    let left_out = document.grid(&name, &grid(report, details));
    if document.is_markdown() {
        document.gap();
    }
    if details || COSTS.iter().any(|title| left_out.contains(title)) {
        document.hidden(None, &left_out);
    }
    if left_out.contains(&EXCLUDED) {
        excluded(report, document);
    }
    // candidates that the user has named are not left out
    if details || shown.asked {
        for line in folded(report, if details { usize::MAX } else { NAMED }) {
            document.paragraph(&line);
        }
    }
    if details {
        explained(&left_out, told, document);
    } else {
        let terms = terms(&[&left_out[..], &DETAILED].concat(), told);
        document.paragraph(&[&[BRIEFLY], &terms[..]].concat().join(" "));
    }
    if details {
        notes(report, told, document);
    }
    if details && has_toasters {
        for p in &report.pluggable {
            document.gap();
            document.paragraph(&pluggable(p));
        }
    }
    document.problems(&report.problems, item);
}

/// How many of the excluded candidates are explained; --details explains all.
const FEW: usize = 4;

/// What looks better in the table, as parts of the recommended one's size and time of a read.
const LOOKS_SMALLER: f64 = 0.99;
const LOOKS_FASTER: f64 = 0.95;

/// A candidate that is read faster is mentioned if it is at most this many times as large as the recommended one.
const ABOUT_AS_LARGE: f64 = 1.05;

/// Why candidates are not recommended that are smaller than the one that is, or read in less time and no larger than today or
/// about as large as that one; and those with which the server would refuse rows. For where the table has no room for it.
fn excluded(report: &Report, document: &mut Document) {
    fn score(c: &CandidateReport) -> [f64; 2] {
        let Figures { files, read_cpu_ns, .. } = &c.figures;
        [&files.total_bytes, &read_cpu_ns.figure].map(|figure| figure.value.estimate)
    }
    let all = &report.candidates;
    let today_size = all
        .iter()
        .find(|c| c.marks.today)
        .map_or(f64::MAX, |today| today.figures.files.total_bytes.value.estimate);
    let Some([size, read]) = report.recommended().map(score) else { return };
    let most = today_size.max(size * ABOUT_AS_LARGE);
    let mut lines = Vec::new();
    let mut refused: Vec<String> = Vec::new();
    for other in all.iter().filter(|c| !is_folded(c)) {
        let [its_size, its_read] = score(other);
        let Some(why) = &other.not_advised else { continue };
        if other.refused_rows > 0 {
            let name = printable(&other.name);
            refused.push(match &other.refusal {
                Some(first) if refused.is_empty() => format!("{name} ({})", printable(first)),
                _ => name,
            });
        } else if lines.len() < FEW
            && (its_size < size * LOOKS_SMALLER
                || its_read < read * LOOKS_FASTER && its_size < most)
        {
            let smaller = (1.0 - its_size / size) * 100.0;
            let by =
                if smaller >= 1.0 { format!(" ({smaller:.0} % smaller)") } else { String::new() };
            lines.push(format!("{}{by} {}", printable(&other.name), printable(why)));
        }
    }
    if !lines.is_empty() {
        document.line(&format!("Not advised: {}.", lines.join("; ")), 0);
    }
    if !refused.is_empty() {
        let names = refused.join(", ");
        document.line(&format!("The server would refuse rows with {names}."), 0);
    }
}

/// The Pareto front as a chart, with its points in a table.
fn front(report: &Report, document: &mut Document) {
    let shown: Vec<(usize, &CandidateReport)> =
        (1..).zip(report.candidates.iter().filter(|c| !is_folded(c))).collect();
    if shown.len() < 2 {
        return;
    }
    let spots: Vec<charts::Spot> = shown
        .iter()
        .map(|(_, c)| {
            let bytes = c.figures.files.total_bytes.value.estimate;
            let read_cpu = c.figures.read_cpu_ns.figure.value.estimate;
            (bytes, read_cpu, c.marks.pareto, c.marks.recommended)
        })
        .collect();
    let of = format!("{}.{}", report.table.relation, report.column);
    document.block(&charts::front(&printable(&format!("Pareto front: {of}")), &spots));
    fn yes(is: bool) -> String {
        if is { "yes".to_owned() } else { String::new() }
    }
    let points = Grid::from_rows(
        &shown,
        &[
            number("No.", 0, |(number, _)| number.to_string()),
            text("Settings", 0, |(_, c)| c.name.clone()),
            number("Size", 0, |(_, c)| bytes(&c.figures.files.total_bytes)),
            number("CPU/read", 0, |(_, c)| cpu(&c.figures.read_cpu_ns)),
            text("On the front", 0, |(_, c)| yes(c.marks.pareto)),
            text("Recommended", 0, |(_, c)| yes(c.marks.recommended)),
        ],
    );
    document.grid(&format!("Points of the chart: {of}"), &points);
}

/// The files as they are.
fn on_disk(report: &Report) -> String {
    let files = &report.files;
    let [heap, toast, index, total] =
        [files.heap_bytes, files.toast_bytes, files.toast_index_bytes, files.total_bytes].map(size);
    format!("on disk: {total} (heap {heap}, TOAST {toast}, its index {index})")
}

/// What was looked at.
fn sample(report: &Report) -> String {
    let sample = &report.sample;
    let part = if sample.rows_examined < sample.rows {
        format!(", values of {} of them", sample.rows_examined)
    } else {
        String::new()
    };
    let left_out = match sample.columns_left_out {
        0 => String::new(),
        columns => {
            format!("; {} of less than 10 % left out: -c names one", counted(columns, "column"))
        }
    };
    format!(
        "sample: {} of {}{}, {}{part}, {} read{}{}{}{left_out}",
        sample.blocks,
        counted(sample.total_blocks, "block"),
        of_parts(report),
        counted(sample.rows, "row"),
        size(sample.read_bytes),
        if sample.source == Access::Functions { " by SQL functions" } else { "" },
        if sample.exact { ", compressed by the server" } else { "" },
        if sample.limit.is_some() { "; --sample reads more" } else { "" },
    )
}

/// That the command is for more partitions than the figures, if it is.
fn parts_left_out(report: &Report) -> Option<String> {
    let all = report.partitions.as_ref()?;
    let others = all.left_out();
    (others > 0).then(|| {
        format!(
            "These figures leave out {others} of {}, which have other settings or were not read; a command for the table \
             rewrites them too. --details names them.",
            counted(all.partitions + others, "partition")
        )
    })
}

/// Of which shards or partitions a sample is.
fn of_parts(report: &Report) -> String {
    match (&report.citus, &report.partitions) {
        (Some(citus), _) => of_shards(citus),
        (None, Some(all)) => match all.left_out() {
            0 => format!(" of {}", counted(all.partitions, "partition")),
            others => format!(
                " of {} of {}",
                all.partitions,
                counted(all.partitions + others, "partition")
            ),
        },
        (None, None) => String::new(),
    }
}

fn of_shards(citus: &ShardsReport) -> String {
    let ShardsReport { shards, nodes, not_read, copies } = citus;
    let all = match not_read {
        0 => counted(*shards, "shard"),
        _ => format!("{shards} of {}", counted(shards + not_read, "shard")),
    };
    let copies = match copies {
        same if same == shards => String::new(),
        copies => format!(" ({copies} with copies)"),
    };
    format!(" of {all}{copies} on {}", counted(*nodes, "node"))
}

/// What to do, and what it brings with it.
fn verdict(report: &Report, details: bool, document: &mut Document) {
    let recommendation = &report.recommendation;
    let command = recommendation.line();
    let tone = match command {
        Some(_) => Tone::Heading,
        None => Tone::Good,
    };
    document.verdict(tone, &recommendation.reasons);
    if details && !recommendation.weighting.is_empty() {
        document.paragraph(&recommendation.weighting);
    }
    if let Some(compaction) = report.compaction.as_ref()
        && !details
    {
        document.paragraph(&format!("With the present settings, {}", compaction.note()));
    }
    if let Some(owner) = &report.other_owner
        && (command.is_some() || report.compaction.is_some() && !details)
    {
        let owner = printable(owner);
        document.paragraph(&format!("To be run by a superuser or with the rights of {owner}."));
    }
    let Some(command) = &command else { return };
    if let Some(what) = &report.set_off {
        let what = printable(what);
        document.paragraph(&format!("retoast refuses the table until this is disabled: {what}."));
    }
    document.gap();
    if details {
        recommendation.sql.iter().for_each(|sql| document.sql(sql));
    }
    document.command(command);
    match report.recommended().map_or(&[][..], |c| &c.caveats) {
        _ if details => {}
        [] => {}
        caveats => {
            let but = document.toned(Tone::Warning, "But");
            document.broken(&format!("{but} {}.", printable(&caveats.join("; "))), 0);
        }
    }
}

/// What else is to be known.
fn notes(report: &Report, told: &mut HashSet<String>, document: &mut Document) {
    let notes = report.notes.iter().filter(|note| told.insert((*note).clone()));
    let notes: Vec<String> = notes.cloned().chain(caveats(report)).collect();
    if !notes.is_empty() {
        document.gap();
    }
    let item = if document.is_markdown() { "* " } else { "- " };
    notes.iter().for_each(|note| document.paragraph(&format!("{item}{note}")));
}

/// Columns that a ranking names, and commands below it; the rest is counted.
const RANKED: usize = 10;
const COMMANDS: usize = 4;
/// Columns with a command, and columns that stay as they are, for which the reasons are given.
const REASONS: usize = 2;
/// Both on a page, where each column has a section of its own.
const ON_PAGE: usize = 100;

/// The columns of several reports, those that the advice saves most for first.
fn ranked(reports: &[Report], document: &mut Document) {
    let mut reports: Vec<&Report> = reports.iter().collect();
    reports.sort_by_key(|report| std::cmp::Reverse(saved(report)));
    let tables: HashSet<Option<u32>> = reports.iter().map(|report| report.table.oid).collect();
    let mut changed: Vec<String> =
        reports.iter().filter_map(|report| report.recommendation.line()).collect();
    let columns = changed.len();
    // columns may share one
    let mut printed = HashSet::new();
    changed.retain(|command| printed.insert(command.clone()));
    document.heading(
        &format!(
            "{} of {}: {} should be stored differently{}",
            counted(reports.len() as u64, "column"),
            counted(tables.len() as u64, "table"),
            if columns == 0 { "none".to_owned() } else { columns.to_string() },
            match reports.iter().filter(|report| !report.recommendation.compares()).count() {
                0 => String::new(),
                uncompared => format!(", {uncompared} not compared"),
            }
        ),
        2,
    );
    document.gap();
    let (most, commands) = if document.is_html() { (ON_PAGE, ON_PAGE) } else { (RANKED, COMMANDS) };
    let shown = reports.get(..most).unwrap_or(&reports);
    let left_out = document.grid("Columns with their recommended settings", &ranking(shown));
    if reports.len() > shown.len() {
        let with = if document.is_html() { "below" } else { "with --details" };
        document.paragraph(&format!("{} more {with}.", reports.len() - shown.len()));
    }
    let reasons = shown.iter().filter(|report| !report.recommendation.compares());
    let reasons: BTreeSet<&String> = reasons.map(|report| &report.recommendation.reasons).collect();
    reasons.into_iter().for_each(|reason| document.paragraph(reason));
    let compared = shown.iter().filter(|report| report.recommendation.compares());
    let (advised, kept): (Vec<&&Report>, Vec<&&Report>) =
        compared.partition(|report| report.recommendation.line().is_some());
    let kept = kept.into_iter().filter(|report| report.candidates.len() > 1);
    for report in advised.into_iter().take(REASONS).chain(kept.take(REASONS)) {
        let table = without_public(&report.table.relation);
        let reasons = &report.recommendation.reasons;
        document.paragraph(&format!("{table}.{}: {reasons}", report.column));
    }
    let tables: BTreeSet<&str> = reports.iter().map(|one| one.table.relation.as_str()).collect();
    let mut note =
        "On disk: heap, TOAST and its index. Change: of what the values need, without free space. no: not advised."
            .to_owned();
    if !changed.is_empty() && !left_out.contains(&"After") {
        note.push_str(" After: as the command leaves them.");
    }
    if !document.is_html() {
        let one = if tables.len() == 1 { "column with -c" } else { "table" };
        note.push_str(&format!(" Name one {one}, or add --details, to compare all settings."));
    }
    document.paragraph(&note);
    if !document.is_html() {
        for compaction in compactions(shown).iter().take(commands) {
            document.paragraph(&format!("With the present settings, {compaction}"));
        }
    }
    if changed.is_empty() {
        return;
    }
    if reports.iter().any(|one| one.recommendation.line().is_some() && one.other_owner.is_some()) {
        document
            .paragraph("Commands on tables of others are to be run by the owner or a superuser.");
    }
    document.gap();
    for command in changed.iter().take(commands) {
        document.command(command);
    }
    if let Some(more) = changed.len().checked_sub(commands).filter(|&more| more > 0) {
        document.paragraph(&format!(
            "{} more: --emit command prints all.",
            counted(more as u64, "command")
        ));
    }
}

/// What compaction alone would return of each of these tables for which there is no command.
fn compactions(reports: &[&Report]) -> Vec<String> {
    let changed = reports.iter().filter(|report| report.recommendation.line().is_some());
    let changed: BTreeSet<&str> = changed.map(|report| report.table.relation.as_str()).collect();
    let mut notes: Vec<String> = Vec::new();
    let kept = reports.iter().filter(|one| !changed.contains(one.table.relation.as_str()));
    for compaction in kept.filter_map(|report| report.compaction.as_ref()) {
        let note = compaction.note();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Bytes by which the files are smaller after the command, negative if they are larger.
fn saved(report: &Report) -> i64 {
    let Some(recommended) = report.recommended() else { return 0 };
    let now = i64::try_from(report.files.total_bytes).unwrap_or(i64::MAX);
    let after = i64::try_from(recommended.after_command_bytes.estimate).unwrap_or(i64::MAX);
    now.saturating_sub(after)
}

/// A column of several: what is advised, or the smallest of what was compared.
struct AdvisedColumn<'a> {
    report: &'a Report,
    candidate: Option<&'a CandidateReport>,
    /// Whether a column of the same table comes before.
    is_further: bool,
}

impl AdvisedColumn<'_> {
    fn settings(&self) -> String {
        match self.candidate {
            Some(candidate) if candidate.marks.recommended => candidate.name.clone(),
            Some(candidate) => format!("no: {}", candidate.name),
            None if !self.report.recommendation.compares() => "(not compared)".to_owned(),
            None => "(as it is)".to_owned(),
        }
    }

    fn shown(&self, figure: impl Fn(&CandidateReport) -> String) -> String {
        self.candidate.map_or_else(String::new, figure)
    }

    /// The size that the command leaves; none where nothing is advised, for what is free now is not its merit.
    fn after(&self) -> Option<&Interval<u64>> {
        let advised = self.candidate.filter(|candidate| candidate.marks.recommended)?;
        Some(&advised.after_command_bytes)
    }
}

/// The candidate that is advised, otherwise the best of the others, of which the reasons speak.
fn worth_showing(report: &Report) -> Option<&CandidateReport> {
    let advised = report.candidates.iter().find(|c| c.marks.recommended && !c.marks.today);
    advised.or_else(|| report.candidates.get(report.recommendation.best?))
}

fn ranking(reports: &[&Report]) -> Grid {
    let mut tables = HashSet::new();
    let rows: Vec<AdvisedColumn<'_>> = reports
        .iter()
        .map(|report| AdvisedColumn {
            report,
            candidate: worth_showing(report),
            is_further: !tables.insert(report.table.oid),
        })
        .collect();
    Grid::from_rows(
        &rows,
        &[
            // narrow terminals have no room for what says nothing
            name("Table", |row| without_public(&row.report.table.relation).to_owned()),
            name("Column", |row| row.report.column.clone()),
            text("Settings", 0, AdvisedColumn::settings),
            number("On disk", 2, |row| {
                if row.is_further { String::new() } else { size(row.report.files.total_bytes) }
            }),
            number("After", 3, |row| {
                row.after().map_or_else(String::new, |after| size(after.estimate))
            }),
            number("Change", 0, |row| row.shown(|c| change(&c.figures.files.total_bytes, false))),
            number("CPU/read", 1, |row| row.shown(|c| cpu_change(&c.figures.read_cpu_ns, false))),
        ],
    )
}

fn grid(report: &Report, details: bool) -> Grid {
    let shown: Vec<&CandidateReport> = report.candidates.iter().filter(|c| !is_folded(c)).collect();
    let mut columns: Vec<Column<&CandidateReport>> = vec![
        text("", 0, |c| mark(c).to_owned()),
        text("Settings", 0, |c| c.name.clone()),
        number("Size", 0, |c| bytes(&c.figures.files.total_bytes)),
        number("Change", 0, |c| change(&c.figures.files.total_bytes, c.marks.today)),
        number("After command", 2, |c| size(c.after_command_bytes.estimate)),
        number("Before compaction", 4, |c| {
            if c.marks.today { String::new() } else { size(c.before_compaction_bytes) }
        }),
        number("Heap", 3, |c| bytes(&c.figures.files.heap_bytes)),
        number("TOAST", 3, |c| bytes(&c.figures.files.toast_bytes)),
        number("Index", 7, |c| bytes(&c.figures.files.toast_index_bytes)),
        number("In row", 6, |c| (c.forms.short + c.forms.plain + c.forms.compressed).to_string()),
        number("Out of line", 6, |c| {
            (c.forms.external + c.forms.external_compressed + c.forms.custom).to_string()
        }),
        number("Chunks", 8, |c| format!("{:.0}", c.figures.chunks.value.estimate)),
        number("Decompress", 5, |c| c.decompressed_values.to_string()),
        number("Buffers", 1, |c| format!("{:.1}", c.figures.read_buffers.value.estimate)),
        number("CPU/read", 1, |c| cpu(&c.figures.read_cpu_ns)),
        number("CPU change", 1, |c| cpu_change(&c.figures.read_cpu_ns, c.marks.today)),
        number("Buffers/scan", 2, |c| format!("{:.0}", c.figures.scan_buffers.value.estimate)),
        number("Bytes/update", 4, |c| bytes(&c.figures.update_bytes)),
        number("WAL/update", 2, |c| bytes(&c.figures.update_wal_bytes)),
        number("WAL change", 2, |c| change(&c.figures.update_wal_bytes, c.marks.today)),
        text(EXCLUDED, 1, |c| c.not_advised.clone().unwrap_or_default()),
    ];
    if details {
        let further: [Column<&CandidateReport>; 4] = [
            number("CPU/write", 5, |c| cpu(&c.figures.costs.write_cpu_ns)),
            number("WAL/other", 5, |c| bytes(&c.figures.costs.other_wal_bytes)),
            number("CPU/prefix", 9, |c| {
                c.figures.costs.prefix_read.as_ref().map_or_else(String::new, |p| cpu(&p.cpu_ns))
            }),
            number("Cold pages", 9, |c| {
                format!("{:.1}", c.figures.costs.cold_pages.value.estimate)
            }),
        ];
        columns.extend(further);
    }
    Grid::from_rows(&shown, &columns)
}

/// Whether a candidate is named in a line below the table instead of a row of its own.
fn is_folded(candidate: &CandidateReport) -> bool {
    candidate.marks.same_as.is_some() && !candidate.marks.recommended
}

/// Lines that list candidates under the one that stores every value in the same way: at most `shown` names in each.
fn folded(report: &Report, shown: usize) -> Vec<String> {
    let default = TupleTarget::default_for(PageSize::DEFAULT).bytes() as u64;
    let has_targets = report.candidates.iter().any(|c| c.settings.target != default);
    let mut lines = Vec::new();
    for (index, first) in report.candidates.iter().enumerate() {
        let same: Vec<String> = report
            .candidates
            .iter()
            .filter(|c| is_folded(c) && c.marks.same_as == Some(index))
            .map(|c| printable(&c.name))
            .collect();
        if !same.is_empty() {
            let named = same.get(..shown).unwrap_or(&same).join(", ");
            let more = and_more(same.len(), shown);
            let target = first.settings.target;
            let is_unnamed = !first.marks.today && target == default && has_targets;
            let target = if is_unnamed { format!(" (target {target})") } else { String::new() };
            lines.push(format!("Same as {}{target}: {named}{more}.", printable(&first.name)));
        }
    }
    lines
}

/// Candidates that a line names; the rest is counted.
const NAMED: usize = 4;

/// Each caveat once, with the candidates that it is one of.
fn caveats(report: &Report) -> Vec<String> {
    let shown: Vec<_> = report.candidates.iter().filter(|c| !is_folded(c)).collect();
    let mut told: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for caveat in shown.iter().flat_map(|c| &c.caveats) {
        if told.contains(&caveat.as_str()) {
            continue;
        }
        told.push(caveat);
        let names: Vec<&str> =
            shown.iter().filter(|c| c.caveats.contains(caveat)).map(|c| c.name.as_str()).collect();
        let more = and_more(names.len(), NAMED);
        let named = names.get(..NAMED).unwrap_or(&names).join(", ");
        lines.push(format!("{named}{more}: {caveat}."));
    }
    lines
}

fn mark(c: &CandidateReport) -> &'static str {
    match (c.marks.recommended, c.marks.pareto) {
        (true, true) => ">*",
        (true, false) => ">",
        (false, true) => " *",
        (false, false) => "",
    }
}

/// What keys in columns of their own would give.
fn extracted(report: &Report, has_toasters: bool, document: &mut Document) {
    heading(report, document);
    let item = document.bullet();
    match &report.extraction {
        Some(extraction) => {
            with_columns(report, extraction, document);
            if has_toasters {
                for p in &report.pluggable {
                    document.gap();
                    document.paragraph(&pluggable(p));
                }
            }
        }
        None => document.paragraph("No key is worth a column of its own."),
    }
    document.problems(&report.problems, item);
}

fn with_columns(report: &Report, extraction: &ExtractionReport, document: &mut Document) {
    let columns = match extraction.keys.len() {
        1 => "a column of its own",
        _ => "columns of their own",
    };
    let keys = counted(extraction.keys.len() as u64, "key");
    let space = match change(&extraction.files.total_bytes, false) {
        same if same.is_empty() || same == "same" => "no change in size".to_owned(),
        change => format!("{change} in size"),
    };
    let gain = gained(extraction);
    let today = report.candidates.iter().find(|c| c.marks.today);
    let compresses = match today.map(|today| today.settings.storage.as_str()) {
        Some("external" | "plain") => {
            " The new columns are compressed, which the documents are not: advise-threshold tells what that alone brings."
        }
        _ => "",
    };
    document.paragraph(&format!(
        "With {keys} in {columns}: {space} after VACUUM FULL. {gain}{compresses}"
    ));
    document.gap();
    document.item(&on_disk(report));
    document.item(&sample(report));
    document.gap();
    document.grid("Sizes", &sizes(extraction));
    document.gap();
    document.grid("Reads and updates", &accesses(extraction));
    if document.details {
        document.gap();
        document.grid("Columns", &columns_of(&extraction.keys));
        document.gap();
    }
    if extraction.auto {
        document.paragraph(&why(&extraction.known_uses));
    }
    if extraction.refused_rows > 0 {
        let rows = counted(extraction.refused_rows, "row");
        document.paragraph(&format!(
            "The server would refuse {rows} that would be too big for a page."
        ));
    }
    document.paragraph(if document.details { EXTRACTED } else { EXTRACTED_BRIEFLY });
}

/// What is cheaper in a column of its own takes at most this part of today's cost.
const CHEAPER: f64 = 0.7;

/// What reading and changing these keys takes in place of what it takes today, and whether the rest becomes dearer.
fn gained(extraction: &ExtractionReport) -> String {
    let ExtractionReport { keys, today, rest, .. } = extraction;
    let (of, most) = match keys.as_slice() {
        [key] => (printable(&key.key), ""),
        _ => ("one of them".to_owned(), "at most "),
    };
    let mut then = [0.0f64; 3];
    for key in keys {
        for (most, cost) in then.iter_mut().zip(key.access.costs()) {
            *most = most.max(cost);
        }
    }
    let [buffers, read, wal] = then;
    let [buffers_today, read_today, wal_today] = today.costs();
    let mut dearer = Vec::new();
    for (what, (then, today)) in
        ["buffers", "CPU time", "WAL"].iter().zip(rest.costs().iter().zip(today.costs()))
    {
        if *then > today * DEARER {
            dearer.push(*what);
        }
    }
    let rest = match dearer.as_slice() {
        [] => "costs no more than today".to_owned(),
        dearer => format!("takes more {}", dearer.join(" and ")),
    };
    let is_cheaper = buffers < buffers_today * CHEAPER || wal < wal_today * CHEAPER;
    let verdict = if is_cheaper {
        "This pays where these keys are read or changed without the rest of their document, and not where documents are \
         always read whole."
    } else if read < read_today * CHEAPER {
        "This saves CPU time alone, where these keys are read without the rest of their document."
    } else {
        "There is little to gain."
    };
    format!(
        "{verdict} Reading {of} would take {most}{buffers:.2} buffers ({buffers_today:.2} today) and {} ({}), changing it {} of \
         WAL ({}); the rest of the document {rest}.",
        nanoseconds(read),
        nanoseconds(read_today),
        size(wal.round() as u64),
        size(wal_today.round() as u64)
    )
}

const EXTRACTED_BRIEFLY: &str = "Buffers/scan: pages visited by a scan that reads it. --emit sql prints a skeleton of the \
                                 migration; --details explains.";
const EXTRACTED: &str = "VACUUM FULL: the files as it would leave them; compaction comes close. Out of line: documents in \
                         the TOAST relation. Each column has a type that fits all values of the sample. --emit sql prints \
                         a skeleton of the migration.";

/// Why these keys were chosen.
fn why(known: &[KnownUse]) -> String {
    const SHOWN: usize = 10;
    if known.is_empty() {
        return "These keys save most if all keys are used equally often; nothing is known about their use.".into();
    }
    let mut shown = Vec::new();
    for key in known.iter().take(SHOWN) {
        shown.push(format!("{} ({})", key.key, key.named_in.join(", ")));
    }
    if known.len() > SHOWN {
        shown.push(format!("and {} more", known.len() - SHOWN));
    }
    format!(
        "Keys in indexes, generated columns and views: {}. The extracted keys save most if half of all uses are of these, \
         and the rest are spread evenly over the keys that most documents have.",
        shown.join(", ")
    )
}

fn columns_of(keys: &[KeyReport]) -> Grid {
    Grid::from_rows(
        keys,
        &[
            name("Key", |key| key.key.clone()),
            name("Column", |key| key.column.clone()),
            text("Type", 0, |key| key.kind.name().to_owned()),
            number("Documents", 0, |key| key.values.to_string()),
        ],
    )
}

fn bytes(whole: &Figure) -> String {
    size(whole.value.estimate.round() as u64)
}

fn sizes(extraction: &ExtractionReport) -> Grid {
    let mut grid = Grid::new(&[
        Head::text("", 0),
        Head::number("VACUUM FULL", 0),
        Head::number("Change", 0),
        Head::number("Heap", 1),
        Head::number("TOAST", 1),
        Head::number("Index", 2),
        Head::number("Out of line", 0),
        Head::number("Toasted rows", 0),
    ]);
    grid.row(vec![
        "today".into(),
        bytes(&extraction.total_bytes_today),
        String::new(),
        bytes(&extraction.heap_bytes_today),
        bytes(&extraction.toast_bytes_today),
        bytes(&extraction.toast_index_bytes_today),
        extraction.counts.external_today.to_string(),
        extraction.counts.wide_rows_today.to_string(),
    ]);
    grid.row(vec![
        "with columns".into(),
        bytes(&extraction.files.total_bytes),
        change(&extraction.files.total_bytes, false),
        bytes(&extraction.files.heap_bytes),
        bytes(&extraction.files.toast_bytes),
        bytes(&extraction.files.toast_index_bytes),
        extraction.counts.external.to_string(),
        extraction.counts.wide_rows.to_string(),
    ]);
    grid
}

fn accesses(extraction: &ExtractionReport) -> Grid {
    let ExtractionReport { keys, today, rest, whole, .. } = extraction;
    let mut rows = vec![("today: any key".to_owned(), today, true)];
    rows.extend(keys.iter().map(|key| (format!("column of {}", key.key), &key.access, false)));
    rows.push(("rest of the document".into(), rest, false));
    rows.push(("document and columns".into(), whole, false));
    Grid::from_rows(
        &rows,
        &[
            text("Read or updated", 0, |(name, _, _)| name.clone()),
            number("Buffers/scan", 0, |(_, access, _)| {
                format!("{:.0}", access.scan_buffers.value.estimate)
            }),
            number("Buffers", 1, |(_, access, _)| {
                format!("{:.2}", access.read_buffers.value.estimate)
            }),
            number("CPU/read", 0, |(_, access, _)| cpu(&access.read_cpu_ns)),
            number("CPU change", 1, |(_, access, today)| cpu_change(&access.read_cpu_ns, *today)),
            number("WAL/update", 0, |(_, access, _)| bytes(&access.update_wal_bytes)),
            number("WAL change", 1, |(_, access, today)| change(&access.update_wal_bytes, *today)),
        ],
    )
}

/// More buffers by this part are said to be more.
const DEARER: f64 = 1.05;

/// The paragraph, with each figure as it is today.
fn pluggable(p: &PluggableReport) -> String {
    let rest = p.values.saturating_sub(p.divided_values);
    let does = match (p.toaster, rest) {
        (Toaster::Jsonb, 0) => "would divide all of them".to_owned(),
        (Toaster::Jsonb, _) => {
            format!("would divide {} of them and store the rest as today", p.divided_values)
        }
        (Toaster::Bytea, 0) => "would make all of them appendable".to_owned(),
        (Toaster::Bytea, _) => {
            format!("would make {} appendable and keep the rest in the row", p.divided_values)
        }
    };
    let (mut reads, change) = match p.toaster {
        Toaster::Jsonb => (
            format!(
                "Reading one key or element would visit {:.1} TOAST buffers (today {:.1}), reading the \
                 whole document {:.1} (today {:.1})",
                p.read_buffers,
                p.read_buffers_today,
                p.whole_read_buffers,
                p.whole_read_buffers_today
            ),
            "changing one key",
        ),
        Toaster::Bytea => (
            format!(
                "Reading a value would visit {:.1} TOAST buffers (today {:.1})",
                p.whole_read_buffers, p.whole_read_buffers_today
            ),
            "appending a little",
        ),
    };
    if p.whole_read_buffers > p.whole_read_buffers_today * DEARER {
        reads.push_str(match p.toaster {
            Toaster::Jsonb => ": whole documents become more expensive to read",
            Toaster::Bytea => ": values become more expensive to read",
        });
    }
    format!(
        "Estimated from {} values that are out of line today: {} {does}. An average value would take {} in the row and \
         {} in the TOAST relation (today {} and {}). {reads}; {change} would write {} (today {}).",
        p.values,
        p.toaster.name(),
        size(p.inline_bytes_per_value),
        size(p.toast_bytes_per_value),
        size(p.inline_bytes_per_value_today),
        size(p.toast_bytes_per_value_today),
        size(p.small_update_bytes),
        size(p.small_update_bytes_today)
    )
}

/// A change as in `-12.3 % ±0.4`; none for today's settings.
fn change(figure: &Figure, today: bool) -> String {
    let change = if today { None } else { figure.change };
    change.map_or_else(String::new, with_half_width)
}

fn cpu(time: &CpuTime) -> String {
    nanoseconds(time.figure.value.estimate)
}

/// As [`change`]; without calibration the error is not known.
fn cpu_change(time: &CpuTime, today: bool) -> String {
    let change = if !today { time.figure.change } else { None };
    change.map_or_else(String::new, |change| {
        if time.calibrated {
            with_half_width(change)
        } else if change == Interval::default() {
            "same".into()
        } else {
            format!("{:+.1} %", change.estimate * 100.0)
        }
    })
}

fn with_half_width(Interval { estimate, low, high }: Interval) -> String {
    let half = (high - low) / 2.0 * 100.0;
    if estimate == 0.0 && half == 0.0 {
        return "same".into();
    }
    format!("{:+.1} % ±{half:.1}", estimate * 100.0)
}

fn csv_fields() -> Vec<String> {
    let mut fields: Vec<String> = [
        "relation",
        "column",
        "storage",
        "method",
        "target",
        "policy",
        "today",
        "recommended",
        "pareto",
    ]
    .map(String::from)
    .into();
    for figure in [
        "after_command_bytes",
        "after_vacuum_full_heap_bytes",
        "after_vacuum_full_toast_bytes",
        "after_vacuum_full_toast_index_bytes",
        "after_vacuum_full_total_bytes",
        "chunks",
        "read_buffers_per_value",
        "read_cpu_ns_per_value",
        "update_bytes_per_value",
        "update_wal_bytes_per_value",
    ] {
        fields.extend([figure.to_owned(), format!("{figure}_low"), format!("{figure}_high")]);
    }
    let forms =
        ["null", "short", "plain", "compressed", "external", "external_compressed", "custom"];
    fields.extend(forms.map(String::from));
    fields.extend(["refused_rows", "before_compaction_bytes"].map(String::from));
    fields
}

/// One row for each candidate.
fn csv_rows(report: &Report) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for c in &report.candidates {
        let mut row = vec![
            report.table.relation.clone(),
            report.column.clone(),
            c.settings.storage.clone(),
            c.settings.method.clone(),
            c.settings.target.to_string(),
            c.settings.policy.clone(),
            c.marks.today.to_string(),
            c.marks.recommended.to_string(),
            c.marks.pareto.to_string(),
        ];
        let Interval { estimate, low, high } = c.after_command_bytes;
        row.extend([estimate, low, high].map(|bytes| bytes.to_string()));
        let fresh = &c.figures.files;
        row.extend(whole_cells(&fresh.heap_bytes));
        row.extend(whole_cells(&fresh.toast_bytes));
        row.extend(whole_cells(&fresh.toast_index_bytes));
        row.extend(whole_cells(&fresh.total_bytes));
        row.extend(whole_cells(&c.figures.chunks));
        row.extend(fraction_cells(&c.figures.read_buffers));
        row.extend(cpu_cells(&c.figures.read_cpu_ns));
        row.extend(whole_cells(&c.figures.update_bytes));
        row.extend(whole_cells(&c.figures.update_wal_bytes));
        let f = &c.forms;
        let forms =
            [f.null, f.short, f.plain, f.compressed, f.external, f.external_compressed, f.custom];
        row.extend(
            forms
                .into_iter()
                .chain([c.refused_rows, c.before_compaction_bytes])
                .map(|n| n.to_string()),
        );
        rows.push(row);
    }
    rows
}

/// A figure and the ends of its interval, as whole numbers.
fn whole_cells(figure: &Figure) -> [String; 3] {
    let Interval { estimate, low, high } = figure.value;
    [estimate.round(), low.floor(), high.ceil()].map(|number| format!("{number:.0}"))
}

/// A figure and the ends of its interval, with three digits.
fn fraction_cells(figure: &Figure) -> [String; 3] {
    let Interval { estimate, low, high } = figure.value;
    [estimate, low, high].map(|number| format!("{number:.3}"))
}

/// A time and, after calibration, the ends of its interval.
fn cpu_cells(time: &CpuTime) -> [String; 3] {
    let [estimate, low, high] = whole_cells(&time.figure);
    if time.calibrated { [estimate, low, high] } else { [estimate, String::new(), String::new()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_more_expensive_is_said() {
        let mut report = PluggableReport {
            toaster: Toaster::Jsonb,
            estimated: true,
            values: 300,
            divided_values: 280,
            inline_bytes_per_value: 984,
            inline_bytes_per_value_today: 18,
            toast_bytes_per_value: 1343,
            toast_bytes_per_value_today: 5218,
            read_buffers: 0.82,
            read_buffers_today: 3.25,
            whole_read_buffers: 12.57,
            whole_read_buffers_today: 3.25,
            small_update_bytes: 1513,
            small_update_bytes_today: 2833,
        };
        insta::assert_snapshot!(pluggable(&report), @"Estimated from 300 values that are out of line today: jsonb_toaster would divide 280 of them and store the rest as today. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (today 18 bytes and 5218 bytes). Reading one key or element would visit 0.8 TOAST buffers (today 3.2), reading the whole document 12.6 (today 3.2): whole documents become more expensive to read; changing one key would write 1513 bytes (today 2833 bytes).");
        report.toaster = Toaster::Bytea;
        report.divided_values = 300;
        report.whole_read_buffers = 3.3;
        insta::assert_snapshot!(pluggable(&report), @"Estimated from 300 values that are out of line today: bytea_toaster would make all of them appendable. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (today 18 bytes and 5218 bytes). Reading a value would visit 3.3 TOAST buffers (today 3.2); appending a little would write 1513 bytes (today 2833 bytes).");
    }
}
