//! Costs of upkeep: dead chunks that wait for autovacuum, and old rows that are logged whole.

use crate::findings::code::Code;
use crate::findings::facts::{ColumnFacts, Facts};
use crate::findings::finding::{Finding, Unit};
use crate::findings::look::Count;
use crate::usage::upkeep::{Threshold, ToastVacuum};
use toast_format::model::Interval;

/// The dead chunks that are worth a report, as a fraction of all.
const MANY: f64 = 0.1;
/// The scale factor that is advised.
const SCALE: f64 = 0.05;
/// The fewest vacuums that show how often they start.
const LEAST_VACUUMS: f64 = 5.0;
/// The chunks that were deleted for each vacuum, as fractions of the threshold between which it decides: below, other
/// vacuums come first; above, chunks die too fast for it, or all at once.
const DECIDES: (f64, f64) = (0.5, 3.0);
/// Seconds that should pass at least, on average, before the next vacuum starts: ten times the default of
/// `autovacuum_naptime`.
const PAUSE: f64 = 600.0;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    out.extend(late_vacuum(facts));
    out.extend(full_identity(facts));
    out.extend(facts.columns.iter().filter_map(|column| rewritten(facts, column)));
}

/// Dead chunks that gather in the TOAST relation until autovacuum starts.
fn late_vacuum(facts: &Facts) -> Option<Finding> {
    let vacuum = facts.toast_facts.upkeep.vacuum.as_ref()?;
    let ToastVacuum { threshold, chunks, deleted, vacuums, age, .. } = *vacuum;
    let now = threshold.dead_tuples(chunks);
    let each = deleted / vacuums;
    let decides = each >= now * DECIDES.0 && each <= now * DECIDES.1;
    if vacuums < LEAST_VACUUMS || !decides || now < chunks * MANY {
        return None;
    }
    let per_second = deleted / age.max(1.0);
    let base = threshold.base.max((per_second * PAUSE).ceil());
    let then = Threshold { base, scale: SCALE, ..threshold }.dead_tuples(chunks);
    let saved = Interval::exact((now - then) * chunk_bytes(facts, chunks));
    if then > now / 2.0 || saved.low < facts.worth as f64 {
        return None;
    }
    let set: Vec<String> = [
        format!("autovacuum_vacuum_scale_factor={SCALE}"),
        format!("autovacuum_vacuum_threshold={base}"),
    ]
    .into_iter()
    .chain(vacuum.inherited.iter().cloned())
    .map(|option| format!("toast.{}", option.replacen('=', " = ", 1)))
    .collect();

    let what = format!(
        "of dead chunks in the TOAST relation could be removed earlier: a vacuum starts at {now:.0} dead chunks ({:.0} \
         % of the live ones), on average every {} (the last one was at {}); it would start at {then:.0} ({:.0} %), every \
         {}, each time reading the index of the TOAST relation",
        now / chunks * 100.0,
        period(now / per_second),
        vacuum.last,
        then / chunks * 100.0,
        period(then / per_second)
    );
    Some(Finding {
        object: Some("toast".to_owned()),
        command: facts.table.alter(&format!("SET ({})", set.join(", "))),
        ..facts.finding(Code::LateVacuum, saved, Unit::Bytes, what)
    })
}

/// The bytes that a chunk takes in the file, if nothing of it is free but what dead chunks have left: not more than a
/// full one.
fn chunk_bytes(facts: &Facts, chunks: f64) -> f64 {
    let most = facts.page.max_bytes_per_tuple(CHUNKS) as f64;
    let spare = match facts.toast {
        Some(file) => file.spare_vacuumed,
        None => facts.toast_facts.spare.unwrap_or_default(),
    };
    let filled = facts.toast_facts.bytes as f64 - spare.high;
    (filled / chunks.max(1.0)).clamp(0.0, most)
}

/// Full chunks on a page (`EXTERN_TUPLES_PER_PAGE`, heaptoast.h).
const CHUNKS: usize = 4;

/// `3.5 hours`
fn period(seconds: f64) -> String {
    let (amount, unit) = match seconds {
        short if short < 7200.0 => (short / 60.0, "minutes"),
        hours if hours < 172_800.0 => (hours / 3600.0, "hours"),
        days => (days / 86_400.0, "days"),
    };
    format!("{amount:.1} {unit}")
}

/// Old rows that are logged whole, although a key would do (`ExtractReplicaIdentity`, heapam.c): values out of line
/// are read for that, and stay compressed (`toast_flatten_tuple`, heaptoast.c).
fn full_identity(facts: &Facts) -> Option<Finding> {
    let identity = facts.toast_facts.upkeep.full_identity.as_ref()?;
    let stored = facts.toast_facts.stored;
    let rows = facts.rows;
    let each = Interval {
        estimate: stored.estimate / rows.estimate.max(1.0),
        low: stored.low / rows.high.max(1.0),
        high: stored.high / rows.low.max(1.0),
    };
    let logged = each.scaled(identity.changed);
    if logged.low < facts.worth as f64 {
        return None;
    }
    let what = format!(
        "of out-of-line values, about {:.0} for each of {} rows updated or deleted since the statistics began, logged \
         for REPLICA IDENTITY FULL; subscribers that need more of old rows than a key cannot do without it",
        each.estimate, identity.changed
    );
    let command = facts.table.alter(&format!("REPLICA IDENTITY {}", identity.instead));
    Some(Finding { command, ..facts.finding(Code::FullIdentity, logged, Unit::Bytes, what) })
}

/// The fraction of the values stored anew that did not change, from which on it is reported.
const UNCHANGED: f64 = 0.2;

/// Values that UPDATEs have stored anew although they did not change.
fn rewritten(facts: &Facts, column: &ColumnFacts) -> Option<Finding> {
    let part = column.contents.unchanged.filter(|part| part.low >= UNCHANGED)?;
    let bytes = facts.counted(column)?.of(Count::RewrittenBytes).times(part);
    if bytes.low < facts.worth as f64 {
        return None;
    }
    let what = format!(
        "of values that UPDATEs have stored anew since the last vacuum although they did not change ({:.0} % of the \
         values that they have set); it is best to set only columns that change, but this trigger keeps unchanged \
         values too (suppress_redundant_updates_trigger does not, as it compares them before they are out of line)",
        part.estimate * 100.0
    );
    let command = facts.table.keep_unchanged(&column.name);
    let finding = facts.finding_of(column, Code::UnchangedValues, bytes, Unit::Bytes, what);
    Some(Finding { command, ..finding })
}
