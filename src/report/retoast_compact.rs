//! What `retoast` reports of `--compact`.

use super::document::Document;
use super::units::{counted, expected_time, size};
use crate::retoast::result::{FileEnd, FileReport, TableReport};
use toast_format::model::interval::Range;

/// The result for each file, and what is left and why.
pub(super) fn lines(table: &TableReport, document: &mut Document) {
    table.compaction.iter().for_each(|file| file_lines(file, document));
    let times = table.compaction.iter().filter_map(|file| file.seconds_expected);
    if let Some(seconds) = times.reduce(Range::plus) {
        document.line(&format!("expected: {}", expected_time(seconds)), 5);
    }
}

fn file_lines(file: &FileReport, document: &mut Document) {
    let mut line = |text: String| document.line(&text, 9);
    let name = file.file.name();
    if file.ended == FileEnd::Stopped && !file.is_examined() {
        return line(format!("compact: {name}: {}, not examined", size(file.before)));
    }
    if file.ended == FileEnd::Planned && file.expected >= file.before {
        line(format!("compact: {name}: {}, nothing to return", size(file.before)));
    } else if file.ended == FileEnd::Planned {
        let wal = match file.wal_expected {
            Some(wal) if wal.high > 0 => {
                format!(", with {} to {} of WAL", size(wal.low), size(wal.high))
            }
            _ => String::new(),
        };
        let doubt = file.spare_at_most.saturating_sub(file.spare);
        let doubt = match doubt {
            0 => String::new(),
            _ => format!(" (or {}: without pages, not all row lengths are known)", {
                size(file.before.saturating_sub(file.spare_at_most))
            }),
        };
        line(format!(
            "compact: {name}: {} would become {}{doubt}; to move: {} ({}){wal}",
            size(file.before),
            size(file.expected),
            counted(file.rows_found, "row"),
            size(file.bytes_found)
        ));
    } else if file.before == 0 {
        line(format!("compact: {name}: 0 bytes, nothing is in it"));
    } else if file.rows_moved == 0 && file.after == file.before {
        let ended_early = matches!(file.ended, FileEnd::Held | FileEnd::Stopped | FileEnd::Failed);
        let moved = if ended_early { "moved" } else { "worth moving" };
        line(format!("compact: {name}: {}, nothing was {moved}", size(file.before)));
    } else {
        line(format!(
            "compact: {name}: {} became {} ({} expected), {} moved in {}",
            size(file.before),
            size(file.after),
            size(file.expected),
            counted(file.rows_moved, "row"),
            counted(file.rounds, "round")
        ));
    }
    if file.ended == FileEnd::NoRoom && file.spare_at_most > 2 * file.spare {
        line(format!(
            "left: {name}: no earlier page has room for a row from the end of the file; without pages, it is not known how \
             much is free"
        ));
    } else if file.ended == FileEnd::NoRoom {
        line(format!(
            "left: {name}: up to {} free, but no earlier page has room for a row from the end of the file",
            size(file.spare_at_most)
        ));
    }
    if matches!(
        file.ended,
        FileEnd::GainedTooLittle | FileEnd::Held | FileEnd::Stopped | FileEnd::Failed
    ) {
        line(format!("left: {name}: {} free{}", size(file.spare), why(file)));
    }
    if file.values_by_setting > 0 {
        line(format!(
            "compact: {name}: {} {} compressed if possible, by the column's present setting",
            counted(file.values_by_setting, "uncompressed value"),
            if file.ended == FileEnd::Planned { "would be" } else { "moved and" }
        ));
    }
}

/// What prevents more, as far as it is known.
fn why(file: &FileReport) -> String {
    let mut reasons = Vec::new();
    // nothing more is known about rows that were not reached
    let reached = matches!(file.ended, FileEnd::GainedTooLittle | FileEnd::Held);
    let rows = if reached { file.rows_locked } else { file.rows_left };
    if rows > 0 {
        let why = if reached { "locked or changed by other sessions" } else { "not moved" };
        reasons.push(format!("{} at its end {why}", counted(rows, "row")));
    }
    if reached && file.rows_of_others > 0 {
        reasons.push(format!(
            "{} written at its end by other sessions",
            counted(file.rows_of_others, "row")
        ));
    }
    if file.rows_refused > 0 {
        reasons.push(format!(
            "{} at its end that the server refuses to move",
            counted(file.rows_refused, "row")
        ));
    }
    if file.values_without_row > 0 {
        reasons.push(format!(
            "{} at its end that no row refers to, and that no UPDATE moves (toastctl check shows how to remove them)",
            counted(file.values_without_row, "value")
        ));
    }
    if file.values_fixed > 0 {
        reasons.push(format!(
            "{} at its end that would not be stored out of line again",
            counted(file.values_fixed, "value")
        ));
    }
    if file.untruncated > 0 {
        reasons.push(format!(
            "{} empty at its end, not truncated{}",
            size(file.untruncated),
            if reached {
                ": other sessions hold a lock on the table, or still see old row versions"
            } else {
                ""
            }
        ));
    } else if reached && file.held_back {
        reasons.push("other sessions still see old row versions in it".to_owned());
    }
    if reasons.is_empty() && reached {
        reasons.push("the last round returned less than 2 % of the file".to_owned());
    }
    reasons.iter().map(|reason| format!("; {reason}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Style;
    use crate::retoast::result::CompactedFile;
    use toast_format::model::interval::Range;

    fn file(ended: FileEnd) -> FileReport {
        FileReport {
            ended,
            before: 491 << 20,
            live: 235 << 20,
            expected: 244 << 20,
            after: 247 << 20,
            spare: 3 << 20,
            rounds: 1,
            rows_found: 14_546,
            bytes_found: 118 << 20,
            rows_moved: 14_600,
            ..FileReport::new(CompactedFile::Toast, 0)
        }
    }

    fn text(file: &FileReport) -> String {
        let mut document = Document::new(Style::Terminal(None), false);
        file_lines(file, &mut document);
        document.into_text()
    }

    #[test]
    fn each_file_is_told() {
        insta::assert_snapshot!(text(&file(FileEnd::Compact)), @r##"compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round"##);
        let wal = Range { low: 130 << 20, high: 380 << 20 };
        let planned = FileReport { wal_expected: Some(wal), ..file(FileEnd::Planned) };
        insta::assert_snapshot!(text(&planned), @r##"compact: TOAST: 491 MB would become 244 MB; to move: 14546 rows (118 MB), with 130 MB to 380 MB of WAL"##);
    }

    #[test]
    fn of_a_file_that_was_not_examined_nothing_is_said_but_its_size() {
        let unread = FileReport {
            ended: FileEnd::Stopped,
            ..FileReport::new(CompactedFile::Toast, 491 << 20)
        };
        assert_eq!(text(&unread).trim_end(), "compact: TOAST: 491 MB, not examined");
        // it waited for others before it moved anything
        let waited = FileReport { after: 491 << 20, rows_moved: 0, ..file(FileEnd::Stopped) };
        assert!(text(&waited).starts_with("compact: TOAST: 491 MB, nothing was moved\n"));
    }

    #[test]
    fn what_is_left_is_told_with_the_reasons() {
        let held = FileReport { rows_locked: 1, ..file(FileEnd::Held) };
        insta::assert_snapshot!(text(&held), @r##"
compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round
left: TOAST: 3072 kB free; 1 row at its end locked or changed by other sessions
"##);
        insta::assert_snapshot!(text(&file(FileEnd::GainedTooLittle)), @r##"
compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round
left: TOAST: 3072 kB free; the last round returned less than 2 % of the file
"##);
        let left = FileReport {
            rows_left: 1,
            rows_locked: 1,
            rows_of_others: 4,
            rows_refused: 3,
            values_without_row: 2,
            values_fixed: 1,
            untruncated: 5 << 20,
            values_by_setting: 7,
            ..file(FileEnd::GainedTooLittle)
        };
        insta::assert_snapshot!(text(&left), @r##"
compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round
left: TOAST: 3072 kB free; 1 row at its end locked or changed by other sessions; 4 rows written at its end by other sessions; 3 rows at its end that the server refuses to move; 2 values at its end that no row refers to, and that no UPDATE moves (toastctl check shows how to remove them); 1 value at its end that would not be stored out of line again; 5120 kB empty at its end, not truncated: other sessions hold a lock on the table, or still see old row versions
compact: TOAST: 7 uncompressed values moved and compressed if possible, by the column's present setting
"##);
        // an error says itself what has ended it
        let failed = FileReport { ended: FileEnd::Failed, values_by_setting: 0, ..left };
        insta::assert_snapshot!(text(&failed), @r##"
compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round
left: TOAST: 3072 kB free; 1 row at its end not moved; 3 rows at its end that the server refuses to move; 2 values at its end that no row refers to, and that no UPDATE moves (toastctl check shows how to remove them); 1 value at its end that would not be stored out of line again; 5120 kB empty at its end, not truncated
"##);
        let full = FileReport { spare_at_most: 4 << 20, ..file(FileEnd::NoRoom) };
        insta::assert_snapshot!(text(&full), @r##"
compact: TOAST: 491 MB became 247 MB (244 MB expected), 14600 rows moved in 1 round
left: TOAST: up to 4096 kB free, but no earlier page has room for a row from the end of the file
"##);
    }
}
