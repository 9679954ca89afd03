//! Space that holds nothing, or nothing that can be read.

use crate::findings::code::Code;
use crate::findings::facts::Facts;
use crate::findings::finding::{Finding, Unit};
use crate::server::about::NEVER_TRUNCATES;
use crate::server::holders::Holder;
use toast_format::disk::TransactionId;
use toast_format::fill::deaths::HeldTuples;
use toast_format::fill::meter::FileFill;
use toast_format::fill::moves::Expected;
use toast_format::model::{Interval, Range};

/// The part of a file that must be free before it is reported.
const SPARE: f64 = 0.3;
/// The part of a TOAST relation that must be free for a report, if its pages do not show it for certain. Values that are
/// stored as densely as they can be leave up to a fourth of it empty, since a page has room for four chunks.
const PROBABLY: f64 = 0.5;
/// The fraction of a file's tuples that must be dead.
const DEAD: f64 = 0.25;
/// The fraction of table and TOAST relation that values of dropped columns must take.
const DROPPED: f64 = 0.05;

pub(super) fn add(facts: &Facts, out: &mut Vec<Finding>) {
    for (file, name) in [(facts.heap, "heap"), (facts.toast, "toast")] {
        let Some(file) = file else { continue };
        out.extend(dead(facts, &file, name));
        if !facts.server.has_toasters {
            out.extend(spare(facts, &file, name));
        }
    }
    out.extend(probable(facts));
    for index in &facts.bloated {
        let spare = index.bytes.saturating_sub(index.fresh);
        if spare < facts.worth {
            continue;
        }
        let bytes = Interval::exact(spare as f64);
        let mut what = format!("more than index {} would take if rebuilt", index.name);
        let mut command = String::new();
        if let Some(why) = index.left {
            what.push_str(&format!("; toastctl reindex leaves it as it is: {why}"));
        } else if facts.server.rebuilds_indexes {
            command = facts.table.reindex();
        } else {
            what.push_str("; before PostgreSQL 14.4, a concurrent rebuild may miss rows");
        }
        out.push(Finding {
            object: Some(index.name.clone()),
            command,
            compaction: Some(Expected {
                gives_back: spare,
                rows: None,
                values: None,
                moved_bytes: index.fresh,
                wal_bytes: Range { low: index.wal, high: index.wal },
                gin_growth: 0,
                estimated: false,
            }),
            ..facts.finding(Code::BloatedIndex, bytes, Unit::Bytes, what)
        });
    }
    if facts.server.has_toasters {
        // the command that would free it damages values there
        return;
    }
    let dropped = facts.look.as_ref().map(|look| look.dropped).unwrap_or_default();
    if dropped.low >= facts.worth as f64 && dropped.low >= facts.bytes as f64 * DROPPED {
        let mut what = "values of dropped columns".to_owned();
        let command = vacuum_full(facts, &mut what);
        let finding = facts.finding(Code::DroppedColumn, dropped, Unit::Bytes, what);
        out.push(Finding { command, ..finding });
    }
}

fn dead(facts: &Facts, file: &FileFill, name: &str) -> Option<Finding> {
    let enough =
        file.dead_bytes.low >= facts.worth as f64 && file.dead.low >= file.tuples.high * DEAD;
    let what = if name == "heap" { "dead rows" } else { "dead chunks in the TOAST relation" };
    let then = if may_compact(facts, name) && is_spare(facts, file, file.spare_vacuumed) {
        "; VACUUM keeps their space for new rows, which toastctl compact returns then"
    } else {
        ""
    };
    let what = format!("{what}{}{then}", held(facts, file));
    // where all are held back for long it would do nothing
    let all_held = facts
        .horizon
        .as_ref()
        .is_some_and(|holder| holder.is_lasting && deaths_held_by(file, holder) == HeldTuples::All);
    enough.then(|| Finding {
        object: Some(name.to_owned()),
        command: if all_held { String::new() } else { facts.table.vacuum() },
        ..facts.finding(Code::DeadRows, file.dead_bytes, Unit::Bytes, what)
    })
}

fn deaths_held_by(file: &FileFill, holder: &Holder) -> HeldTuples {
    file.deaths.held_by(TransactionId(holder.horizon))
}

/// Whom VACUUM has to wait for before it may remove the dead tuples of a file.
fn held(facts: &Facts, file: &FileFill) -> String {
    let Some(holder) = &facts.horizon else { return String::new() };
    let which = match deaths_held_by(file, holder) {
        HeldTuples::None => return String::new(),
        HeldTuples::Some => "some of them",
        HeldTuples::All => "them",
    };
    format!("; VACUUM cannot remove {which} before {} has ended", holder.who)
}

/// What is probably free in the TOAST relation: its values do not need it, or a sample of its pages shows it. Files tell
/// nothing of values that rows of other pages have.
fn probable(facts: &Facts) -> Option<Finding> {
    if facts.server.has_toasters {
        return None;
    }
    let (bytes, spare, how) = match facts.toast {
        Some(file)
            if spare(facts, &file, "toast").or_else(|| dead(facts, &file, "toast")).is_some() =>
        {
            return None;
        }
        Some(file) => (file.bytes, file.spare_vacuumed, "estimated from a sample"),
        None => {
            (facts.toast_facts.bytes, facts.toast_facts.spare?, "estimated from the table's rows")
        }
    };
    if spare.low < facts.worth as f64 || spare.estimate < bytes as f64 * PROBABLY {
        return None;
    }
    let mut what = format!("probably free in the TOAST relation's file ({how})");
    let command = if may_compact(facts, "toast") {
        facts.table.compact("toast")
    } else {
        vacuum_full(facts, &mut what)
    };
    Some(Finding {
        object: Some("toast".to_owned()),
        command,
        ..facts.finding(Code::FreeSpace, spare, Unit::Bytes, what)
    })
}

/// VACUUM FULL, with its price; no command while somebody holds dead rows back: it copies them, and what they have out of
/// line would then stay in the TOAST relation for good.
fn vacuum_full(facts: &Facts, what: &mut String) -> String {
    if let Some(holder) = facts.horizon.as_ref().filter(|holder| holder.is_lasting) {
        what.push_str(&format!("; only VACUUM FULL returns it, once {} has ended", holder.who));
        return String::new();
    }
    what.push_str("; VACUUM FULL locks readers and writers out");
    facts.table.vacuum_full()
}

/// Whether this user can compact the file of that name, `heap` or `toast`.
fn may_compact(facts: &Facts, name: &str) -> bool {
    facts.server.truncates && (facts.server.compacts_toast || name == "heap")
}

/// Whether this much free space of a file is worth a finding.
fn is_spare(facts: &Facts, file: &FileFill, spare: Interval) -> bool {
    spare.low >= facts.worth as f64 && spare.low >= file.bytes as f64 * SPARE
}

/// What is free now, or what is free after VACUUM, unless that is reported as dead.
fn spare(facts: &Facts, file: &FileFill, name: &str) -> Option<Finding> {
    let of = if name == "heap" { "the table's file" } else { "the TOAST relation's file" };
    let (spare, what) = if is_spare(facts, file, file.spare) {
        (file.spare, format!("free in {of}"))
    } else if is_spare(facts, file, file.spare_vacuumed) && dead(facts, file, name).is_none() {
        let held = held(facts, file);
        (file.spare_vacuumed, format!("free in {of} after VACUUM has removed dead rows{held}"))
    } else {
        return None;
    };
    let needs_rebuild = file.compaction.is_some_and(|expected| expected.needs_rebuild());
    let (mut what, command, compaction) = if may_compact(facts, name) && !needs_rebuild {
        (what, Some(facts.table.compact(name)), file.compaction)
    } else if may_compact(facts, name) && facts.server.rebuilds_indexes {
        // what GIN indexes grow by is returned too
        (what, Some(format!("{} --reindex=all", facts.table.compact(name))), file.compaction)
    } else if facts.server.truncates {
        (what, None, None)
    } else {
        (format!("{what}; {NEVER_TRUNCATES} (--compact)"), None, None)
    };
    let command = command.unwrap_or_else(|| vacuum_full(facts, &mut what));
    Some(Finding {
        object: Some(name.to_owned()),
        command,
        compaction,
        ..facts.finding(Code::FreeSpace, spare, Unit::Bytes, what)
    })
}
