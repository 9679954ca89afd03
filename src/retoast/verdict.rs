//! How work ended, and what is left to do, for a task, a table and the whole run (pure). The report's headline and the
//! exit code are derived from it.

use crate::retoast::result::{
    FileEnd, FileReport, Headed, IndexReport, Outcome, Report, TableReport,
};
use crate::retoast::sweep::machine::SweepEnd;

/// How a conversion ended, whose last scan read the whole table if `is_whole`.
pub(crate) fn of_conversion(end: SweepEnd, is_whole: bool, dry_run: bool) -> Outcome {
    match end {
        SweepEnd::Stopped => Outcome::Stopped,
        _ if dry_run => Outcome::Planned,
        SweepEnd::Complete if is_whole => Outcome::Complete,
        SweepEnd::Complete | SweepEnd::Incomplete => Outcome::Incomplete,
    }
}

/// If only other sessions keep a smaller fraction than this of the files from being returned, the compaction is complete.
const LEAST_HELD: f64 = 0.01;

/// The bytes of files that only other sessions keep from being returned, at most.
pub fn held(files: &[FileReport]) -> u64 {
    let held = files.iter().filter(|file| file.ended == FileEnd::Held);
    held.map(|file| file.spare.max(file.spare_at_most)).fold(0, u64::saturating_add)
}

/// How the compaction of all files ended.
pub(crate) fn of_files(files: &[FileReport]) -> Outcome {
    let by_end = [
        (FileEnd::Failed, Outcome::Failed),
        (FileEnd::Stopped, Outcome::Stopped),
        (FileEnd::Planned, Outcome::Planned),
        (FileEnd::GainedTooLittle, Outcome::Incomplete),
        (FileEnd::Held, Outcome::Held),
    ];
    let found = by_end.into_iter().find(|(end, _)| files.iter().any(|file| file.ended == *end));
    let outcome = found.map_or(Outcome::Complete, |(_, outcome)| outcome);
    let bytes = files.iter().map(|file| file.after).fold(0, u64::saturating_add);
    if outcome == Outcome::Held && (held(files) as f64) < bytes as f64 * LEAST_HELD {
        return Outcome::Complete;
    }
    outcome
}

/// How the rebuilding of all indexes ended. Indexes that the server refuses to rebuild do not make it incomplete,
/// because they would be refused again.
pub(crate) fn of_indexes(indexes: &[IndexReport], dry_run: bool, stopped: bool) -> Outcome {
    if dry_run {
        Outcome::Planned
    } else if stopped {
        Outcome::Stopped
    } else if indexes.iter().any(|index| index.ended.is_left()) {
        Outcome::Incomplete
    } else {
        Outcome::Complete
    }
}

/// The outcome of two tasks: of the first, and of the one that followed (a compaction or the rebuilding of indexes).
pub(crate) fn of_both(first: Outcome, later: Headed, outcome: Outcome) -> Outcome {
    let is_fine = matches!(
        outcome,
        Outcome::Complete | Outcome::Planned | Outcome::Unverified | Outcome::Held
    );
    match later {
        Headed::Reindex if is_fine => first,
        Headed::Compact if first != Outcome::Complete => first,
        _ => outcome,
    }
}

/// The outcome of a table after all its tasks. It is not complete if something could not be verified.
pub(crate) fn concluded(table: &TableReport) -> Outcome {
    let subject = &table.subject;
    let is_unseen =
        subject.places_are_chosen && !subject.places_seen || table.common.rows.undecided > 0;
    match table.outcome {
        Outcome::Complete | Outcome::Held if table.headed == Headed::Convert && is_unseen => {
            Outcome::Unverified
        }
        outcome => outcome,
    }
}

/// What is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    Nothing,
    /// Rows that are not stored as requested.
    Rows(u64),
    /// Part of the table could not be read.
    Unread,
    /// Indexes that should have been rebuilt or dropped.
    Indexes(usize),
    /// Bytes of files that could still be returned.
    Space(u64),
}

/// What is left to do in a table.
pub fn remaining(table: &TableReport) -> Remaining {
    let indexes = table.indexes.iter().filter(|index| index.ended.is_left()).count();
    let mut space = 0u64;
    let mut held = 0u64;
    for file in &table.compaction {
        space = space.saturating_add(file.spare);
        if !file.ended.is_done() {
            held = held.saturating_add(file.spare);
        }
    }
    match (table.outcome, table.headed) {
        (Outcome::Held, _) => Remaining::Space(held),
        (Outcome::Incomplete, Headed::Reindex) => Remaining::Indexes(indexes),
        (Outcome::Incomplete, Headed::Compact) => {
            let is_compact = table.compaction.iter().all(|file| file.ended.is_done());
            if is_compact && indexes > 0 {
                Remaining::Indexes(indexes)
            } else {
                Remaining::Space(space)
            }
        }
        (Outcome::Incomplete, Headed::Convert) => match table.common.rows.left {
            Some(rows @ 1..) => Remaining::Rows(rows),
            _ if indexes > 0 => Remaining::Indexes(indexes),
            _ if held > 0 => Remaining::Space(held),
            _ => Remaining::Unread,
        },
        _ => Remaining::Nothing,
    }
}

/// How a whole run ended, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunEnd {
    /// Everything requested was done.
    Complete,
    /// All rows are done, but other sessions keep space from being returned.
    Held,
    /// Something is left or could not be verified, or a replication slot was lost.
    Incomplete,
    Stopped,
}

/// How a run ended, which is how its worst part ended; `stopped`: by a stop before all was begun.
pub fn of_run(report: &Report, stopped: bool) -> RunEnd {
    let tables = report.tables.iter().map(|table| match table.outcome {
        Outcome::Complete | Outcome::Planned | Outcome::Held
            if !table.common.effort.slots_lost.is_empty() =>
        {
            RunEnd::Incomplete
        }
        Outcome::Complete | Outcome::Planned => RunEnd::Complete,
        Outcome::Held => RunEnd::Held,
        Outcome::Incomplete | Outcome::Unverified | Outcome::Failed => RunEnd::Incomplete,
        Outcome::Stopped => RunEnd::Stopped,
    });
    let departure = report.departure.iter().map(|departure| {
        // No run changes what dropped columns are set to, but the printed statements do.
        let is_done = departure.unfit.is_empty() && (departure.unused || report.dry_run);
        if is_done { RunEnd::Complete } else { RunEnd::Incomplete }
    });
    let stopped = stopped.then_some(RunEnd::Stopped);
    tables.chain(departure).chain(stopped).max().unwrap_or(RunEnd::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retoast::result::{
        Common, DepartureReport, IndexEnd, SCHEMA, Subject, TaskReport, UnfitTable, Work,
    };

    fn files(ends: &[FileEnd]) -> Vec<FileReport> {
        ends.iter().map(|&ended| FileReport { ended, ..FileReport::default() }).collect()
    }

    fn indexes(ends: &[IndexEnd]) -> Vec<IndexReport> {
        let index = |&ended| IndexReport {
            index: "i".to_owned(),
            ended,
            before: 0,
            expected: None,
            wal_expected: None,
            after: None,
            reason: None,
            command: None,
        };
        ends.iter().map(index).collect()
    }

    #[test]
    fn a_conversion_is_complete_if_its_last_scan_read_everything() {
        use SweepEnd::{Complete, Incomplete, Stopped};
        assert_eq!(of_conversion(Complete, true, false), Outcome::Complete);
        assert_eq!(of_conversion(Complete, false, false), Outcome::Incomplete);
        assert_eq!(of_conversion(Incomplete, true, false), Outcome::Incomplete);
        assert_eq!(of_conversion(Complete, true, true), Outcome::Planned);
        assert_eq!(of_conversion(Stopped, true, true), Outcome::Stopped);
    }

    #[test]
    fn the_worst_file_decides() {
        use FileEnd::{Compact, Failed, GainedTooLittle, Held, NoRoom, Planned, Stopped};
        let ended = |ends: &[FileEnd]| of_files(&files(ends));
        assert_eq!(ended(&[Compact, Compact]), Outcome::Complete);
        assert_eq!(ended(&[GainedTooLittle, Compact]), Outcome::Incomplete);
        assert_eq!(ended(&[NoRoom, Compact]), Outcome::Complete);
        assert_eq!(ended(&[NoRoom, Held]), Outcome::Held);
        assert_eq!(ended(&[GainedTooLittle, Held]), Outcome::Incomplete);
        assert_eq!(ended(&[Held, Stopped]), Outcome::Stopped);
        assert_eq!(ended(&[Compact, Stopped]), Outcome::Stopped);
        assert_eq!(ended(&[Planned, Planned]), Outcome::Planned);
        assert_eq!(ended(&[Compact, Failed]), Outcome::Failed);
        assert_eq!(ended(&[]), Outcome::Complete);
    }

    /// 144 kB of 253 MB are a success, and of 5 MB they are not.
    #[test]
    fn little_that_others_keep_is_no_reason_to_run_again() {
        let ended = |toast: u64, spare: u64, spare_at_most: u64, end: FileEnd| {
            let file = |ended, after| FileReport { ended, after, ..FileReport::default() };
            let heap = FileReport { spare, spare_at_most, ..file(end, 2 << 20) };
            of_files(&[file(FileEnd::Compact, toast), heap])
        };
        let kb = 144 << 10;
        assert_eq!(ended(251 << 20, kb, kb, FileEnd::Held), Outcome::Complete);
        assert_eq!(ended(5 << 20, kb, kb, FileEnd::Held), Outcome::Held);
        // without pages, it may be more
        assert_eq!(ended(251 << 20, kb, 3 << 20, FileEnd::Held), Outcome::Held);
        // others are not the only reason
        assert_eq!(ended(251 << 20, kb, kb, FileEnd::GainedTooLittle), Outcome::Incomplete);
        assert_eq!(ended(0, 0, 0, FileEnd::Held), Outcome::Complete);
    }

    #[test]
    fn indexes_that_are_left_decide() {
        use IndexEnd::{Dropped, Invalid, Kept, Left, NotKnown, Rebuilt, Refused};
        let ended = |ends: &[IndexEnd]| of_indexes(&indexes(ends), false, false);
        assert_eq!(ended(&[Kept, Rebuilt, NotKnown, Refused, Dropped]), Outcome::Complete);
        assert_eq!(ended(&[Rebuilt, Left]), Outcome::Incomplete);
        assert_eq!(ended(&[Invalid]), Outcome::Incomplete);
        assert_eq!(of_indexes(&indexes(&[Rebuilt]), false, true), Outcome::Stopped);
        assert_eq!(of_indexes(&[], true, false), Outcome::Planned);
    }

    fn table(outcome: Outcome) -> TableReport {
        let common = Common::default();
        let work = Work::Convert(Box::default());
        TableReport::new(Subject::default(), TaskReport { outcome, common, work })
    }

    #[test]
    fn the_worst_table_decides_how_a_run_ended() {
        use Outcome::{Complete, Failed, Held, Incomplete, Planned, Stopped, Unverified};
        let report = |outcomes: &[Outcome]| Report {
            schema: SCHEMA,
            dry_run: false,
            exit_code: 0,
            errors: Vec::new(),
            tables: outcomes.iter().map(|&outcome| table(outcome)).collect(),
            departure: None,
            citus: Vec::new(),
        };
        let ended = |outcomes: &[Outcome]| of_run(&report(outcomes), false);
        assert_eq!(ended(&[]), RunEnd::Complete);
        assert_eq!(ended(&[Complete, Planned]), RunEnd::Complete);
        assert_eq!(ended(&[Complete, Held, Complete]), RunEnd::Held);
        for outcome in [Incomplete, Unverified, Failed] {
            assert_eq!(ended(&[Held, outcome, Complete]), RunEnd::Incomplete);
        }
        assert_eq!(ended(&[Stopped, Failed]), RunEnd::Stopped);
        assert_eq!(of_run(&report(&[Complete]), true), RunEnd::Stopped);
        // A run that has cost a replica its slot is not a success.
        let mut lost = report(&[Held]);
        lost.tables[0].common.effort.slots_lost.push("standby".to_owned());
        assert_eq!(of_run(&lost, false), RunEnd::Incomplete);
    }

    #[test]
    fn a_departure_is_complete_once_it_is_proven_or_planned() {
        let unfit = UnfitTable { relation: "t".to_owned(), reason: "it is foreign".to_owned() };
        for (unused, dry_run, unfit, ended) in [
            (true, false, vec![], RunEnd::Complete),
            (false, true, vec![], RunEnd::Complete),
            (false, false, vec![], RunEnd::Incomplete),
            (true, true, vec![unfit], RunEnd::Incomplete),
        ] {
            let departure = Some(DepartureReport { unused, unfit, ..DepartureReport::default() });
            let report = Report {
                schema: SCHEMA,
                dry_run,
                exit_code: 0,
                errors: Vec::new(),
                tables: Vec::new(),
                departure,
                citus: Vec::new(),
            };
            assert_eq!(of_run(&report, false), ended);
        }
    }

    #[test]
    fn places_that_were_not_seen_are_not_called_complete() {
        let mut unseen = table(Outcome::Complete);
        assert_eq!(concluded(&unseen), Outcome::Complete);
        unseen.subject.places_are_chosen = true;
        assert_eq!(concluded(&unseen), Outcome::Unverified);
        unseen.subject.places_seen = true;
        assert_eq!(concluded(&unseen), Outcome::Complete);
        unseen.common.rows.undecided = 1;
        assert_eq!(concluded(&unseen), Outcome::Unverified);
    }
}
