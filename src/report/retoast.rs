//! The report of `retoast` in every format.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use super::document::{Document, Format, csv_records, json, json_line};
use super::html::Page;
use super::retoast_course::course;
use super::table::{Grid, Head, Style, Tone, continued, name, number, printable, text};
use super::units::{counted, duration, expected_time, size};
use super::{retoast_compact, retoast_indexes};
use crate::command::{is_typed_as_shown, shell_line};
use crate::retoast::plan::{
    COMPACTION_LOCK, Forecast, Plan, REBUILD_LOCK, TOAST_REBUILD_LOCK, TRUNCATION_LOCK,
};
use crate::retoast::result::{
    Common, CompactedFile, Converted, FileEnd, FormReport, Gives, Headed, IndexEnd, NOT_BEGUN,
    Outcome, Predicted, Report, ScanSource, TableReport,
};
use crate::retoast::verdict::{Remaining, held, remaining};
use toast_format::model::Range;
use toast_format::model::sql::quote_identifier;

/// Skipped rows shown in a table; the rest is counted.
const SKIPPED_SHOWN: usize = 10;

/// Waits for locks that are no longer than a round trip are not shown.
const WORTH_TELLING_MS: u64 = 10;

/// Writes the report. `width` is the terminal's, for the table only.
pub fn write(
    report: &Report,
    format: Format,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Table | Format::Markdown => {
            let mut document = Document::new(format.style(width).unwrap_or(Style::Markdown), false);
            tables(report, &mut document);
            out.write_all(document.into_text().as_bytes())?;
        }
        Format::Html => page(report, out)?,
        Format::Json => json(report, out)?,
        // a run that was refused has no table to name its errors
        Format::Jsonl if report.tables.is_empty() && report.departure.is_none() => {
            json_line(report.schema, report, out)?;
        }
        Format::Jsonl => {
            for table in &report.tables {
                json_line(report.schema, table, out)?;
            }
            if let Some(departure) = &report.departure {
                json_line(report.schema, departure, out)?;
            }
        }
        Format::Csv => csv(report, out)?,
    }
    out.flush()
}

/// Tables that are listed above their sections; the rest is counted.
const LISTED: usize = 200;

/// Writes the report as a page.
fn page(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut page = Page::for_verb(match report.tables.first().map(|table| table.headed) {
        Some(Headed::Compact) => "compact",
        Some(Headed::Reindex) => "reindex",
        Some(Headed::Convert) | None => "retoast",
    });
    let tables = joined(report);
    for table in &tables {
        let mut document = Document::of_page(&page);
        section(table, &mut document);
        document.add_to(&mut page);
    }
    let mut summary = Document::of_page(&page);
    run_summary(report, &tables, &mut summary);
    out.write_all(summary.into_page(&page).as_bytes())
}

/// Errors, results and the toaster: what concerns the whole run.
fn run_summary(report: &Report, tables: &[TableReport], document: &mut Document) {
    if !report.errors.is_empty() {
        document.heading("Errors", 2);
        report.errors.iter().for_each(|error| document.verdict(Tone::Bad, error));
    }
    if tables.len() > 1 {
        document.heading("Result", 2);
        net_of_all(tables).iter().for_each(|net| document.line(net, 0));
        let rows = tables.get(..LISTED).unwrap_or(tables);
        let grid = Grid::from_rows(
            rows,
            &[
                name("Table", |table| table.subject.relation.clone()),
                text("Result", 0, |table| first_line(table).0[1].clone()),
                number("Before", 0, |table| size(table.common.before.sum())),
                number("After", 0, |table| size(table.common.after.sum())),
            ],
        );
        document.grid("Tables", &grid);
        if let Some(more) = tables.len().checked_sub(LISTED).filter(|&more| more > 0) {
            document.line(&format!("{more} more: --format json."), 0);
        }
    }
    if let Some(departure) = &report.departure {
        document.heading("Toaster", 2);
        super::departure::text(departure, report.dry_run, document);
    }
}

fn section(table: &TableReport, document: &mut Document) {
    let ([what, ended, newer], tone) = first_line(table);
    document.heading(what.trim_end_matches(':'), 2);
    document.verdict(tone, &format!("{ended}{newer}"));
    table_details(table, document);
    course(&table.common.effort.course, &table.subject.relation, document);
}

/// The first line: the table and the task, how it ended, what is left to the next run, and how good that is.
fn first_line(table: &TableReport) -> ([String; 3], Tone) {
    let relation = printable(&table.subject.relation);
    let newer = match table.converted.rows_written_since {
        0 => String::new(),
        1 => "; 1 row written during the run is left to the next run".to_owned(),
        rows => format!("; {rows} rows written during the run are left to the next run"),
    };
    let what = match table.headed {
        Headed::Reindex => format!("{relation}, reindex:"),
        Headed::Compact => format!("{relation}, compact:"),
        Headed::Convert => format!(
            "{relation}, {} to {}:",
            printable(&table.subject.columns.join(", ")),
            table.subject.toaster
        ),
    };
    let tone = match (table.outcome, remaining(table)) {
        (Outcome::Failed, _) => Tone::Bad,
        (Outcome::Planned, _) => Tone::Heading,
        (Outcome::Stopped | Outcome::Held | Outcome::Unverified, _) => Tone::Warning,
        (_, Remaining::Nothing) => Tone::Good,
        _ => Tone::Warning,
    };
    ([what, end(table), newer], tone)
}

/// How the task ended.
fn end(table: &TableReport) -> String {
    match (table.outcome, table.headed, remaining(table)) {
        (Outcome::Stopped, ..) => stopped(table),
        (Outcome::Planned, Headed::Reindex, _)
            if table.indexes.iter().all(|index| index.ended == IndexEnd::Kept) =>
        {
            "nothing to do: no index is bloated".to_owned()
        }
        (Outcome::Planned, ..) => "dry run: nothing was changed".to_owned(),
        (Outcome::Failed, ..) if table.common.is_lost => {
            "failed: the connection was lost".to_owned()
        }
        (Outcome::Failed, ..) => "failed: stopped by an error".to_owned(),
        (_, _, Remaining::Indexes(number)) => {
            format!("incomplete: {} could not be rebuilt or dropped", counted(number as u64, "index"))
        }
        (_, _, Remaining::Rows(number)) => format!(
            "incomplete: {} {} not stored as requested",
            counted(number, "row"),
            if number == 1 { "is" } else { "are" }
        ),
        (_, _, Remaining::Unread) => "incomplete: part of the table could not be read".to_owned(),
        (Outcome::Held, Headed::Convert, Remaining::Space(bytes)) => format!(
            "all values are stored as requested; other sessions keep {} from being returned (toastctl compact can \
             return it later)",
            size(bytes)
        ),
        (Outcome::Held, _, Remaining::Space(bytes)) => {
            format!("done, but other sessions keep {} from being returned to the operating system", size(bytes))
        }
        (_, Headed::Convert, Remaining::Space(bytes)) => format!(
            "all values are stored as requested; compaction incomplete: {} could still be returned to the operating \
             system",
            size(bytes)
        ),
        (_, _, Remaining::Space(bytes)) => {
            format!("incomplete: {} could still be returned to the operating system", size(bytes))
        }
        (_, Headed::Compact, Remaining::Nothing) if held(&table.compaction) > 0 => {
            let bytes = size(held(&table.compaction));
            format!("complete, except for {bytes} (less than 1 %) that other sessions keep from being returned")
        }
        (_, Headed::Compact, Remaining::Nothing) => {
            let no_room = table.compaction.iter().any(|file| file.ended == FileEnd::NoRoom);
            if no_room {
                return "complete: no earlier page has room for the last rows".to_owned();
            }
            let files: Vec<&str> = table.compaction.iter().map(|file| file.file.name()).collect();
            format!("complete: no free space worth returning is left in {}", files.join(" and "))
        }
        (_, Headed::Reindex, Remaining::Nothing) => {
            let rebuilt = counted(ended_so(table, IndexEnd::Rebuilt), "index");
            let kept = ended_so(table, IndexEnd::Kept);
            let done = format!("complete: {rebuilt} rebuilt, {kept} not bloated");
            match ended_so(table, IndexEnd::NotKnown) + ended_so(table, IndexEnd::Refused) {
                0 => done,
                more => format!("{done}, {more} left as they are"),
            }
        }
        (Outcome::Unverified, ..) if table.common.rows.undecided > 0 => format!(
            "not verified: of {} it is not known, without pages, whether the server would compress values that are not \
             compressed; all other values are compressed as requested",
            counted(table.common.rows.undecided, "row")
        ),
        (Outcome::Unverified, ..) => {
            "not verified: the compression of all values is as requested, but it could not be checked that they are in \
             the row or out of line as requested"
                .to_owned()
        }
        _ if table.subject.places_seen => "complete: all values are stored as requested".to_owned(),
        _ => "the compression of all values is as requested; their place (in the row or out of line) was not verified"
            .to_owned(),
    }
}

/// What stopped the task, and whether its settings stay in effect.
fn stopped(table: &TableReport) -> String {
    let reason = if table.common.gave_up {
        ", because other sessions kept it waiting (max-wait)".to_owned()
    } else {
        table.common.stopped_by.map(|reason| format!(" by {reason}")).unwrap_or_default()
    };
    let is_set = table.converted.altered && !table.converted.undone;
    let settings = if is_set { "; the settings stay changed" } else { "" };
    format!("stopped{reason}{settings}")
}

fn ended_so(table: &TableReport, ended: IndexEnd) -> u64 {
    table.indexes.iter().filter(|index| index.ended == ended).count() as u64
}

/// The tables for people. Shards of a table of Citus are joined into one table.
fn joined(report: &Report) -> Vec<TableReport> {
    let mut joined: Vec<TableReport> = Vec::new();
    let mut plans: BTreeMap<&str, ShardPlans> = BTreeMap::new();
    for table in &report.tables {
        if let Some(shard) = &table.subject.shard {
            plans.entry(&shard.table).or_default().add(table);
        }
        let name = table.subject.shard.as_ref().map(|shard| &shard.table);
        let same = joined.iter_mut().find(|other| {
            name.is_some() && other.subject.shard.as_ref().map(|shard| &shard.table) == name
        });
        match same {
            Some(shards) => shards.merge_shard(table.clone()),
            None => joined.push(table.clone()),
        }
    }
    for table in &mut joined {
        let Some(shard) = &table.subject.shard else { continue };
        let Some(citus) = report.citus.iter().find(|citus| citus.table == shard.table) else {
            continue;
        };
        let shards = match citus.shards {
            copies @ 2.. if copies == shard.copies => format!("{copies} copies"),
            shards => counted(shards, "shard"),
        };
        let nodes = counted(citus.nodes, "node");
        table.subject.relation = format!("{} ({shards} on {nodes})", citus.table);
        // that of the tables themselves is said by itself
        table.converted.alter = None;
        table.converted.predicted = None;
        let plans = plans.remove(shard.table.as_str()).unwrap_or_default();
        plans.put_into(&mut table.converted);
        if !citus.missing.is_empty() {
            let is_stopped = citus.missing.iter().all(|missing| missing.reason == NOT_BEGUN);
            let ended = if is_stopped { Outcome::Stopped } else { Outcome::Failed };
            table.outcome = table.outcome.max(ended);
            let missing = counted(citus.missing.len() as u64, "shard");
            let note = format!("not complete: {missing}; to continue, run the command again");
            table.common.notes.insert(0, note);
        }
    }
    joined
}

/// What dry runs of a table's shards expect, and how to go back. Nodes work at the same time, each on one shard after the
/// other.
#[derive(Default)]
struct ShardPlans {
    plan: Option<Plan>,
    seconds: BTreeMap<String, Range>,
    /// The statement and the command to go back, which are the same for all shards with the table's name in place of
    /// theirs; not known for partitions.
    back: Option<(Option<String>, Vec<String>)>,
    differ: bool,
}

impl ShardPlans {
    fn add(&mut self, table: &TableReport) {
        let Converted { plan, undo, undo_command, .. } = &table.converted;
        let (Some(plan), Some(shard)) = (plan, &table.subject.shard) else { return };
        let seconds = self.seconds.entry(shard.node.clone()).or_default();
        seconds.low += plan.seconds.low;
        seconds.high += plan.seconds.high;
        match &mut self.plan {
            Some(sum) => sum.merge_shard(plan),
            None => self.plan = Some(plan.clone()),
        }
        let suffix = format!("_{}", shard.id);
        let undo = undo.as_ref().map(|sql| sql.replace(&suffix, ""));
        let command = undo_command.iter().map(|word| word.replace(&suffix, ""));
        let back = (undo, command.collect());
        self.differ |= table.subject.relation.replace(&suffix, "") != shard.table
            || self.back.as_ref().is_some_and(|other| *other != back);
        self.back = Some(back);
    }

    fn put_into(self, converted: &mut Converted) {
        let back = if self.differ { None } else { self.back };
        (converted.undo, converted.undo_command) = back.unwrap_or_default();
        let mut seconds = Range::default();
        for node in self.seconds.values() {
            seconds.low = seconds.low.max(node.low);
            seconds.high = seconds.high.max(node.high);
        }
        converted.plan = self.plan.map(|plan| Plan { seconds, ..plan });
    }
}

fn tables(report: &Report, document: &mut Document) {
    let tables = joined(report);
    for (at, table) in tables.iter().enumerate() {
        if at > 0 {
            document.gap();
        }
        let ([what, ended, newer], tone) = first_line(table);
        let what = document.toned(Tone::Heading, &what);
        let ended = document.toned(tone, &ended);
        document.line(&format!("{what} {ended}{newer}"), 4);
        table_details(table, document);
    }
    if let Some(net) = net_of_all(&tables) {
        document.gap();
        document.line(&net, 0);
    }
    if let Some(departure) = &report.departure {
        if !report.tables.is_empty() {
            document.gap();
        }
        super::departure::text(departure, report.dry_run, document);
    }
}

/// The result for several tables together.
fn net_of_all(tables: &[TableReport]) -> Option<String> {
    let swept: Vec<&TableReport> =
        tables.iter().filter(|table| table.outcome != Outcome::Planned).collect();
    (swept.len() > 1).then(|| net(&format!("all {} tables", swept.len()), &swept))
}

/// The lines about a table after the first one.
fn table_details(table: &TableReport, document: &mut Document) {
    settings_lines(table, document);
    let is_planned = table.outcome == Outcome::Planned;
    // what a run took is in its last line too
    if !is_planned && !is_unchanged(table) && table.headed != Headed::Reindex {
        work_lines(table, document);
    } else if is_planned {
        planned_size(table, document);
    }
    for pause in &table.common.effort.pauses {
        document.unbroken(&format!(
            "waited: {} for {}, {:.1} s",
            counted(pause.times, "time"),
            pause.reason.text(),
            pause.ms as f64 / 1000.0
        ));
    }
    retoast_compact::lines(table, document);
    retoast_indexes::lines(table, document);
    if let Some(plan) = &table.converted.plan {
        plan_lines(plan, document);
    }
    let name = &table.subject.relation;
    if !is_planned && !is_unchanged(table) {
        document.gap();
        document.grid(&format!("Sizes of files: {name}"), &size_grid(table));
    }
    if scans(table).iter().any(|(_, forms)| !forms.is_empty()) {
        document.gap();
        document.grid(&format!("Values by form, before and after: {name}"), &forms_grid(table));
    }
    left_lines(table, document);
    for note in &table.common.notes {
        document.line(&format!("note: {}", printable(note)), 6);
    }
    if is_planned {
        lock_lines(table, document);
    } else {
        let net = net(&printable(&table.subject.relation), &[table]);
        document.line(&net, 0);
    }
}

/// The sizes of the files, and how much a run would rewrite.
fn planned_size(table: &TableReport, document: &mut Document) {
    let now = table.common.before;
    let files = format!(
        "on disk: {} (heap {}, TOAST {}, indexes {})",
        size(now.sum()),
        size(now.heap),
        size(now.toast),
        size(now.indexes)
    );
    document.line(&files, 5);
    if table.headed != Headed::Reindex {
        let what = if table.headed != Headed::Convert { "move" } else { "re-toast" };
        let found = table.common.rows.found;
        document.unbroken(&format!("rows to {what}: {found} ({})", bytes_of_rows(table)));
    }
}

/// The locks that a run would take.
fn lock_lines(table: &TableReport, document: &mut Document) {
    let mut locks = compaction_locks(table);
    if let Some(plan) = &table.converted.plan {
        locks = plan.locks.iter().map(String::as_str).collect();
    }
    for lock in locks {
        document.line(&format!("lock: {}", printable(lock)), 5);
    }
}

/// Statements that have changed or would change settings of the table.
fn settings_lines(table: &TableReport, document: &mut Document) {
    let converted = &table.converted;
    if let Some(alter) = &converted.alter {
        if converted.altered {
            document.line_of_sql("set: ", alter, 5);
        } else if table.outcome == Outcome::Planned {
            document.line_of_sql("would set: ", alter, 5);
        }
    }
    let is_planned = table.outcome == Outcome::Planned;
    let back = shell_line(&converted.undo_command);
    let leads_back = table.common.rows.found == 0 || !back.is_empty();
    let to_restore = if is_planned && leads_back { "to go back: " } else { "to restore: " };
    if let Some(undo) = &converted.undo {
        let what = if converted.undone { "restored: " } else { to_restore };
        document.line_of_sql(what, undo, 5);
    }
    if !back.is_empty() {
        let what = if converted.undo.is_some() { "  and the values: " } else { to_restore };
        let width = document.style.width().map(|width| width.saturating_sub(what.len()));
        document.unbroken(&format!("{what}{}", continued(&back, width)));
    }
    if let Some(alter) = &converted.alter_after {
        document.line_of_sql("set at the end: ", alter, 5);
    }
}

/// Rows that were not re-toasted, and replication slots that were lost.
fn left_lines(table: &TableReport, document: &mut Document) {
    for row in table.common.skipped.iter().take(SKIPPED_SHOWN) {
        let place = if row.ctid.is_empty() { "" } else { " " };
        let line = format!("skipped{place}{}: {}", row.ctid, printable(&row.reason));
        document.unbroken(&line);
    }
    let all = table.common.rows.refused.max(table.common.skipped.len() as u64);
    if let Some(more) = all.checked_sub(SKIPPED_SHOWN as u64).filter(|&more| more > 0) {
        document.unbroken(&format!("skipped: {more} more: --set list-refused=FILE"));
    }
    if table.common.rows.disagreeing > 0 {
        document.unbroken(&format!(
            "left: {} re-toasted repeatedly, but stored differently than predicted each time",
            counted(table.common.rows.disagreeing, "row")
        ));
    }
    if table.common.rows.spared > 0 {
        document.unbroken(&format!(
            "kept: {} with values that the toaster itself stores with ordinary pointers",
            counted(table.common.rows.spared, "row")
        ));
    }
    for slot in &table.common.effort.slots_lost {
        let lost = format!(
            "lost: replication slot {}: the server has removed WAL that it needs (max_slot_wal_keep_size); its \
             consumer must be set up again",
            printable(&quote_identifier(slot))
        );
        document.line(&lost, 6);
    }
}

/// The locks of a planned compaction, and of planned rebuilds of indexes.
fn compaction_locks(table: &TableReport) -> Vec<&str> {
    let mut locks = Vec::new();
    if table.compaction.iter().any(|file| file.expected < file.before) {
        locks.extend([COMPACTION_LOCK, TRUNCATION_LOCK]);
    }
    let planned = table.indexes.iter().filter(|index| index.ended == IndexEnd::Planned);
    let (of_toast, others): (Vec<_>, Vec<_>) =
        planned.partition(|index| index.index.trim_start_matches('"').starts_with("pg_toast"));
    if !others.is_empty() {
        locks.push(REBUILD_LOCK);
    }
    if !of_toast.is_empty() {
        locks.push(TOAST_REBUILD_LOCK);
    }
    locks
}

/// Whether the run has found nothing to do, so that there are no figures of before and after.
fn is_unchanged(table: &TableReport) -> bool {
    let Common { rows, before, peak, after, .. } = &table.common;
    table.outcome == Outcome::Complete
        && rows.found == 0
        && rows.stored == 0
        && before == after
        && before == peak
}

/// What was done to rows.
fn done_to(tables: &[&TableReport]) -> &'static str {
    if tables.iter().all(|table| table.headed != Headed::Convert) { "moved" } else { "re-toasted" }
}

fn sum(tables: &[&TableReport], part: fn(&TableReport) -> u64) -> u64 {
    tables.iter().map(|table| part(table)).fold(0, u64::saturating_add)
}

/// The result in one sentence. Times of several tables are added up.
fn net(name: &str, tables: &[&TableReport]) -> String {
    let outcome = tables.iter().map(|table| table.outcome).max().unwrap_or(Outcome::Complete);
    let worst = tables.iter().filter(|table| table.outcome == outcome).count();
    let of_them = if worst < tables.len() { format!("{worst} ") } else { String::new() };
    let before = size(sum(tables, |table| table.common.before.sum()));
    let after = if tables.iter().any(|table| table.common.is_lost) {
        "an unknown size".to_owned()
    } else {
        size(sum(tables, |table| table.common.after.sum()))
    };
    let time = duration(Duration::from_millis(sum(tables, |table| table.common.effort.elapsed_ms)));
    let mut net = format!("{name}: {of_them}{}: ", in_a_word(outcome, tables));
    if tables.iter().all(|table| is_unchanged(table)) {
        net.push_str(&format!("{after} (heap, TOAST, indexes), as before, in {time}; "));
    } else {
        let rows = if tables.iter().all(|table| table.headed == Headed::Reindex) {
            String::new()
        } else {
            format!("{} {} ", rows_done(tables, outcome), done_to(tables))
        };
        let wal: Option<u64> = tables.iter().map(|table| table.common.effort.wal_bytes).sum();
        let wal = wal.map(|wal| format!(", while the server wrote {} of WAL", size(wal)));
        net.push_str(&format!(
            "{before} before, {after} now (heap, TOAST, indexes); {rows}in {time}{}; ",
            wal.unwrap_or_default()
        ));
    }
    let of_indexes = sum(tables, retoast_indexes::spare);
    if tables.iter().any(|table| table.subject.has_toasters) {
        net.push_str("how much of the files is free is not known");
    } else {
        net.push_str(&gives_back(tables));
    }
    let table = match tables {
        [table] if is_typed_as_shown(&table.subject.relation) => &table.subject.relation,
        _ => "TABLE",
    };
    if tables.iter().any(|table| leaves_space(table)) {
        let files = match tables {
            [table] => left_out(table).unwrap_or_default(),
            _ => "",
        };
        net.push_str(&format!(
            "; toastctl compact {table}{files} --reindex returns free space online"
        ));
    } else if of_indexes > 0 {
        net.push_str(&format!("; toastctl reindex {table} would return {}", size(of_indexes)));
    }
    net.push('.');
    net
}

/// How it ended, for the last line, which a terminal shows when the first one is out of sight.
fn in_a_word(outcome: Outcome, tables: &[&TableReport]) -> &'static str {
    match outcome {
        Outcome::Complete if tables.iter().all(|table| is_verified(table)) => "complete",
        Outcome::Complete | Outcome::Planned | Outcome::Held => "done",
        Outcome::Unverified => "not verified",
        Outcome::Incomplete => "incomplete",
        Outcome::Stopped => "stopped",
        Outcome::Failed => "failed",
    }
}

/// Whether it was seen that values are where they should be, if that was asked for.
fn is_verified(table: &TableReport) -> bool {
    table.headed != Headed::Convert || table.subject.places_seen
}

/// The rows that were stored anew; if not all was done, of how many that were found.
fn rows_done(tables: &[&TableReport], outcome: Outcome) -> String {
    let stored = sum(tables, |table| table.common.rows.stored);
    let found = sum(tables, |table| table.common.rows.found);
    match outcome {
        // there may be more where it did not get to
        Outcome::Stopped | Outcome::Failed if stored < found => {
            format!("{stored} of the {} found until then", counted(found, "row"))
        }
        Outcome::Incomplete if stored < found => format!("{stored} of {}", counted(found, "row")),
        _ => counted(stored, "row"),
    }
}

/// Free space is worth a hint from this part of the files on.
const LEAST_FREE: u64 = 10;

/// The option for the files that compaction was not asked to shorten; `None` if there are none.
fn left_out(table: &TableReport) -> Option<&'static str> {
    match table.compaction.as_slice() {
        [] if table.headed == Headed::Convert => Some(""),
        [only] if only.ended == FileEnd::Compact => Some(match only.file {
            CompactedFile::Heap => " --files toast",
            CompactedFile::Toast => " --files heap",
        }),
        _ => None,
    }
}

/// Whether files that compaction was not asked to shorten have much free space.
fn leaves_space(table: &TableReport) -> bool {
    let Gives { low, .. } = table.gains.rewrite_gives.unwrap_or_default();
    let least = table.common.after.sum() / LEAST_FREE;
    left_out(table).is_some()
        && !table.subject.has_toasters
        && u64::try_from(low).is_ok_and(|low| low > least)
}

/// Of indexes nothing is promised: what a rebuild leaves of them is known of some only.
const OF_WHAT: &str = " from heap and TOAST";

/// What VACUUM and the commands that rewrite a table would return.
fn gives_back(tables: &[&TableReport]) -> String {
    let at_end = tables
        .iter()
        .map(|table| table.gains.vacuum_gives_bytes)
        .try_fold(0u64, |all, one| Some(all.saturating_add(one?)));
    let Some(at_end) = at_end else {
        return "what VACUUM would return is not known".to_owned();
    };
    let vacuum = match at_end {
        0 => format!("VACUUM would return no space{OF_WHAT}"),
        bytes => {
            let is_held = tables.iter().any(|table| held(&table.compaction) > 0);
            let then = if is_held { "once nothing holds rows back, " } else { "" };
            format!("{then}VACUUM (INDEX_CLEANUP ON) would return {}", size(bytes))
        }
    };
    let names: Option<Vec<_>> = tables.iter().map(|table| table.gains.rewriters).collect();
    let names = names.unwrap_or_default();
    let Some(&first) = names.first() else { return vacuum };
    let rewriters = if names.iter().all(|name| *name == first) { first } else { "VACUUM FULL" };
    let gives: Vec<_> = tables.iter().map(|table| table.gains.rewrite_gives).collect();
    let Some(gives) = of_all(&gives) else {
        return format!("{vacuum}; what VACUUM FULL would return is not known");
    };
    match (amount(gives), at_end) {
        _ if gives.compresses && gives.low <= 0 && gives.high > 0 => format!(
            "{vacuum}; what VACUUM FULL would return depends on how well it compresses values that are stored \
             uncompressed"
        ),
        (None, 0) => format!("neither VACUUM nor VACUUM FULL would return any space{OF_WHAT}"),
        (None, _) => vacuum,
        (Some(amount), 0) => {
            format!("{rewriters} would return {amount}, VACUUM nothing")
        }
        (Some(amount), _) => format!("{vacuum}, {rewriters} {amount}"),
    }
}

/// What rewriting tables gives back; nobody rewrites one that only grows by it.
fn of_all(tables: &[Option<Gives>]) -> Option<Gives> {
    let mut sum = Gives::default();
    for table in tables {
        let gives = (*table)?;
        if gives.high > 0 {
            sum = sum.plus(gives);
        }
    }
    Some(sum)
}

/// In words; `None` if it is nothing.
fn amount(gives: Gives) -> Option<String> {
    let low = size(u64::try_from(gives.low).unwrap_or(0));
    let high = size(u64::try_from(gives.high).unwrap_or(0));
    match gives.about() {
        Some(0) => None,
        Some(number) if gives.low == gives.high => Some(format!("{}{OF_WHAT}", size(number))),
        Some(number) => Some(format!("about {}{OF_WHAT}", size(number))),
        None if gives.compresses && gives.low > 0 => Some(format!(
            "at least {low}{OF_WHAT}, and more if it can compress values that are stored uncompressed"
        )),
        None if gives.low > 0 => Some(format!("{low} to {high}{OF_WHAT}")),
        None => Some(format!("up to {high}{OF_WHAT}")),
    }
}

/// The table's parts before, at their largest, and after.
fn size_grid(table: &TableReport) -> Grid {
    let parts = [
        ("heap", table.common.before.heap, table.common.peak.heap, table.common.after.heap),
        ("TOAST", table.common.before.toast, table.common.peak.toast, table.common.after.toast),
        (
            "indexes",
            table.common.before.indexes,
            table.common.peak.indexes,
            table.common.after.indexes,
        ),
    ];
    let mut sizes = Grid::new(&[
        Head::text("Part", 0),
        Head::number("Before", 0),
        Head::number("Peak", 1),
        Head::number("After", 0),
    ]);
    for (part, before, peak, after) in parts {
        let after = if table.common.is_lost { "not known".into() } else { size(after) };
        sizes.row(vec![part.into(), size(before), size(peak), after]);
    }
    sizes
}

/// The size of the rows that were found: of their values before compression where these are converted.
fn bytes_of_rows(table: &TableReport) -> String {
    let kind = match (table.headed, table.subject.source) {
        (Headed::Convert, ScanSource::Pageinspect) => " raw",
        (Headed::Convert, ScanSource::Functions) => " stored",
        _ => "",
    };
    format!("{}{kind}", size(table.common.rows.bytes))
}

/// What was done to rows, in how many transactions, and what it cost.
fn work_lines(table: &TableReport, document: &mut Document) {
    // rows that others change meanwhile are found again
    let again = match table.common.rows.stored.checked_sub(table.common.rows.found) {
        Some(again @ 1..) => {
            format!(" (at least {again} of them written by other sessions meanwhile)")
        }
        _ => String::new(),
    };
    let rows = format!(
        "rows: {} found ({}), {} {}{again}, {} verified",
        table.common.rows.found,
        bytes_of_rows(table),
        table.common.rows.stored,
        done_to(&[table]),
        table.common.rows.verified
    );
    document.line(&rows, 6);
    let retries = match table.common.effort.retries {
        0 => String::new(),
        retries => format!(", {}", counted(retries, "retry")),
    };
    let waited = match table.common.effort.longest_lock_wait_ms {
        WORTH_TELLING_MS.. => {
            format!(", longest wait for a lock {} ms", table.common.effort.longest_lock_wait_ms)
        }
        _ => String::new(),
    };
    let work = format!(
        "work: {} (longest {} ms{waited}), {}, {}{retries}, {}, {:.1} s",
        counted(table.common.effort.batches, "transaction"),
        table.common.effort.longest_batch_ms,
        counted(table.common.effort.scans, "scan"),
        counted(table.common.effort.vacuums, "vacuum"),
        table.common.effort.wal_bytes.map_or_else(
            || "the server's WAL not known".to_owned(),
            |wal| format!("{} of the server's WAL", size(wal))
        ),
        table.common.effort.elapsed_ms as f64 / 1000.0
    );
    document.line(&work, 6);
    if let Some(predicted) = &table.converted.predicted
        && table.common.rows.stored > 0
    {
        document.line(&compared(predicted), 6);
    }
}

/// Values by form, before and after.
fn forms_grid(table: &TableReport) -> Grid {
    let mut forms = Grid::new(&[
        Head::text("When", 0),
        Head::name("Column"),
        Head::text("Form", 0),
        Head::text("Method", 0),
        Head::number("Values", 0),
        Head::number("Stored", 1),
    ]);
    for ((_, list), when) in scans(table).into_iter().zip(["before", "planned", "after"]) {
        for form in list {
            forms.row(form_cells(when, form));
        }
    }
    forms
}

/// What values are or will be stored as, by when.
fn scans(table: &TableReport) -> [(&'static str, &[FormReport]); 3] {
    [
        ("first", &table.converted.forms_before),
        ("planned", &table.converted.forms_planned),
        (
            "last",
            if table.outcome == Outcome::Planned { &[] } else { &table.converted.forms_after },
        ),
    ]
}

fn form_cells(when: &str, form: &FormReport) -> Vec<String> {
    vec![
        when.into(),
        form.column.clone(),
        form.form.clone(),
        form.method.clone().unwrap_or_default(),
        form.values.to_string(),
        size(form.bytes),
    ]
}

fn csv(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if report.tables.first().is_some_and(|table| table.headed != Headed::Convert) {
        return csv_of_files(report, out);
    }
    let head = ["relation", "scan", "column", "form", "method", "values", "bytes"];
    let mut records = vec![head.map(str::to_owned)];
    for table in &report.tables {
        for (scan, list) in scans(table) {
            records.extend(list.iter().map(|form| {
                [
                    table.subject.relation.clone(),
                    scan.to_owned(),
                    form.column.clone(),
                    form.form.clone(),
                    form.method.clone().unwrap_or_default(),
                    form.values.to_string(),
                    form.bytes.to_string(),
                ]
            }));
        }
    }
    csv_records(records, out)
}

/// The files that were compacted and the indexes that were rebuilt, or would be.
fn csv_of_files(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let head =
        ["relation", "object", "ended", "bytes_before", "bytes_expected", "bytes_after", "reason"];
    let mut records = vec![head.map(str::to_owned)];
    for table in &report.tables {
        let relation = &table.subject.relation;
        for file in &table.compaction {
            records.push([
                relation.clone(),
                word(&file.file),
                word(&file.ended),
                file.before.to_string(),
                file.expected.to_string(),
                if report.dry_run { String::new() } else { file.after.to_string() },
                String::new(),
            ]);
        }
        for index in &table.indexes {
            records.push([
                relation.clone(),
                index.index.clone(),
                word(&index.ended),
                index.before.to_string(),
                index.expected.map(|bytes| bytes.to_string()).unwrap_or_default(),
                index.after.map(|bytes| bytes.to_string()).unwrap_or_default(),
                index.reason.clone().unwrap_or_default(),
            ]);
        }
    }
    csv_records(records, out)
}

/// A value as JSON names it.
fn word(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// A forecast of WAL with its interval, and the parts that matter.
fn forecast(forecast: &Forecast) -> String {
    const MATTERS: u64 = 50;
    let Forecast { all, sweep, indexes, full_page_images, compaction, rebuild } = *forecast;
    if all.high == 0 {
        return size(0);
    }
    let parts = [
        ("rows", sweep),
        ("indexes", indexes),
        ("full-page images", full_page_images),
        ("compaction", compaction),
        ("rebuilt indexes", rebuild),
    ];
    let shown = parts.iter().filter(|(_, bytes)| *bytes > all.estimate / MATTERS);
    let shown: Vec<String> =
        shown.map(|(what, bytes)| format!("{what} {}", size(*bytes))).collect();
    let range = format!("{} ({} to {})", size(all.estimate), size(all.low), size(all.high));
    if shown.is_empty() { range } else { format!("{range}: {}", shown.join(", ")) }
}

/// The expected figures next to the actual ones.
fn compared(predicted: &Predicted) -> String {
    let wal = size(predicted.wal_bytes.all.estimate);
    let growth = size(predicted.growth_bytes.all.estimate);
    let Some(actual) = predicted.wal_bytes_actual else {
        return format!("expected: {wal} of WAL, growth {growth} (actual figures not known)");
    };
    format!(
        "expected: {wal} of WAL ({} actual), growth {growth} ({} actual)",
        size(actual),
        size(predicted.growth_bytes_actual)
    )
}

/// Writes the plan. Its statements are in the JSON form.
fn plan_lines(plan: &Plan, document: &mut Document) {
    let growth = plan.growth_bytes.all;
    let expected = format!(
        "expected: {}; files grow meanwhile by {} (at most {})",
        expected_time(plan.seconds),
        size(growth.estimate),
        size(growth.high)
    );
    let wal = format!("expected WAL: {}", forecast(&plan.wal_bytes));
    let rows = plan.rows_bytes_after.zip(plan.rows_bytes).map(|(then, now)| {
        format!(
            "expected size of these rows: about {} (now {}); files shrink with --compact",
            size(then),
            size(now)
        )
    });
    for line in rows.into_iter().chain([expected, wal]) {
        document.line(&line, 5);
    }
    let parts = [
        ("trigger that will fire", &plan.triggers_fire),
        ("trigger that will not fire", &plan.triggers_silent),
        ("replication", &plan.replication),
        ("serialization", &plan.serialization),
    ];
    for (head, list) in parts {
        for item in list {
            document.line(&format!("{head}: {}", printable(item)), 5);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_one_figure_only_where_it_is_known() {
        let said = |low, high, compresses| amount(Gives { low, high, compresses });
        let said = |low, high, compresses| said(low, high, compresses).unwrap_or_default();
        assert_eq!(said(-8192, 0, false), "");
        assert_eq!(said(81_920, 81_920, false), "80 kB from heap and TOAST");
        assert_eq!(said(95 << 20, 100 << 20, false), "about 98 MB from heap and TOAST");
        assert_eq!(said(50 << 20, 100 << 20, false), "50 MB to 100 MB from heap and TOAST");
        assert_eq!(said(-8192, 100 << 20, false), "up to 100 MB from heap and TOAST");
        let gives = |low, high| Some(Gives { low, high, compresses: false });
        // the second one would only grow
        assert_eq!(
            of_all(&[gives(1 << 20, 2 << 20), gives(-9 << 20, -8 << 20)]),
            gives(1 << 20, 2 << 20)
        );
        assert_eq!(of_all(&[gives(1 << 20, 2 << 20), None]), None);
        let text = "at least 50 MB from heap and TOAST, and more if it can compress values that are stored uncompressed";
        assert_eq!(said(50 << 20, 100 << 20, true), text);
    }
}
