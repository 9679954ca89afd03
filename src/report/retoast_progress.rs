//! The progress of `retoast`: a line for people, and JSON for programs.

use std::time::Duration;

use serde::Serialize;

use crate::report::table::printable;
use crate::report::units::{counted, percent, rough_duration, size};
use crate::retoast::listener::{Advance, Figures};
use crate::retoast::pace::rules::{Cause, Pause};
use crate::retoast::plan::Sizes;
use crate::retoast::result::{CompactedFile, Outcome, Report};

/// The name and version of the JSON lines.
pub const SCHEMA: &str = "toastctl.retoast-progress/1";

/// One line of --set progress=json (on standard error) and of --set log=FILE, for retoast, compact and reindex.
/// Sizes are bytes. Fields and events are only ever added.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Line<'a> {
    /// How far a scan or compaction is: every second, in the log every ten seconds.
    Progress {
        #[schemars(extend("const" = SCHEMA))]
        schema: &'static str,
        #[schemars(extend("const" = "progress"))]
        event: &'static str,
        /// When it was written, in UTC, as in 2026-01-31T12:00:00Z.
        time: &'a str,
        /// `schema.name` of the table.
        relation: &'a str,
        /// The scan under way, from 1; the round of a compaction.
        scan: u32,
        /// The file that is compacted; null in a conversion.
        compacts: Option<CompactedFile>,
        /// Blocks that the scan has read, and all blocks; in a round of a compaction, rows or values moved, and all that it
        /// moves.
        blocks_read: u32,
        blocks: u32,
        /// The part of the work that is done, from 0 to 1.
        done: f64,
        /// Rows re-toasted so far, or moved.
        rows_stored: u64,
        /// Bytes of values re-toasted.
        bytes_stored: u64,
        rows_per_second: f64,
        /// Until the end of the task if known, otherwise of this scan or round; null at its beginning.
        seconds_left: Option<u64>,
        /// By how much table, TOAST relation and indexes have grown, as a part of their size before.
        growth: f64,
        sizes: Sizes,
        /// WAL written by all sessions since the table was begun.
        wal_bytes: u64,
        /// Why work waits; null if it does not.
        waiting: Option<Waiting<'a>>,
    },
    /// The rebuild of an index begins.
    Index {
        #[schemars(extend("const" = SCHEMA))]
        schema: &'static str,
        #[schemars(extend("const" = "index"))]
        event: &'static str,
        time: &'a str,
        /// `schema.name` of the table.
        relation: &'a str,
        /// The index with its schema, quoted.
        index: &'a str,
        /// Its place among the indexes of the table and its TOAST relation, from 1.
        number: u64,
        /// How many there are.
        indexes: u64,
    },
    /// A note for people, which other output formats print too.
    Note {
        #[schemars(extend("const" = SCHEMA))]
        schema: &'static str,
        #[schemars(extend("const" = "note"))]
        event: &'static str,
        time: &'a str,
        text: &'a str,
    },
    /// The run has ended.
    End {
        #[schemars(extend("const" = SCHEMA))]
        schema: &'static str,
        #[schemars(extend("const" = "end"))]
        event: &'static str,
        time: &'a str,
        /// Whether it was a dry run, which changes nothing.
        dry_run: bool,
        exit_code: u8,
        errors: &'a [String],
        /// How the work on each table ended.
        tables: Vec<Ended<'a>>,
    },
}

/// The reason for a wait.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Waiting<'a> {
    /// The name under which the report adds up such waits.
    reason: Cause,
    text: &'a str,
}

/// A table at the end of a run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Ended<'a> {
    /// The relation as `schema.name`.
    relation: &'a str,
    outcome: Outcome,
}

/// One moment of a sweep.
#[derive(Debug, Clone, Default)]
pub struct ProgressMoment {
    pub relation: String,
    /// How far it has come.
    pub at: Advance,
    /// Time since the table was begun.
    pub elapsed: Duration,
    /// Time since this scan was begun.
    pub scanning: Duration,
    /// What was measured last.
    pub figures: Figures,
    /// Why it is waiting, if it is.
    pub pause: Option<Pause>,
}

impl ProgressMoment {
    /// The fraction that is done.
    pub fn share(&self) -> f64 {
        self.at.part()
    }

    fn rows_per_second(&self) -> f64 {
        self.at.rows as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    /// Time until the end; if it is not known, that of this scan at the pace so far.
    fn left(&self) -> Option<Duration> {
        if self.at.done.is_some() {
            return self.at.left;
        }
        let share = self.share();
        (share > 0.01).then(|| self.scanning.mul_f64((1.0 - share).max(0.0) / share))
    }

    /// By how much table, TOAST relation and indexes have grown, as a part of their sizes before.
    fn growth(&self) -> f64 {
        let before = self.figures.before.sum();
        let now = self.figures.now.sum();
        now.saturating_sub(before) as f64 / before.max(1) as f64
    }

    /// What the first batches show about the time that the rest takes, once they show something and it is long.
    pub fn outlook(&self) -> Option<String> {
        const FIRST: Duration = Duration::from_secs(5);
        const LONG: Duration = Duration::from_secs(30);
        let left = self.left().filter(|left| *left >= LONG)?;
        if self.at.rows == 0 || self.elapsed < FIRST {
            return None;
        }
        let what = if self.at.done.is_some() { "" } else { " of this scan" };
        let left = rough_duration(left.as_secs());
        let rows = counted(self.at.rows, "row");
        Some(format!("about {left}{what} left on this machine, from the first {rows}"))
    }

    /// The text of a plain line.
    pub fn line(&self) -> String {
        let done = match (self.at.compacts, self.at.done) {
            (None, Some(done)) => format!(
                "{} of {} blocks, {} done in all",
                self.at.read,
                self.at.blocks,
                percent(done)
            ),
            (None, None) => {
                format!("{} of {} blocks ({})", self.at.read, self.at.blocks, percent(self.share()))
            }
            (Some(_), _) => format!("{} moved", percent(self.share())),
        };
        format!("{}: {done}, {}", self.place(), self.message())
    }

    /// The table, and the scan or round under way.
    pub fn place(&self) -> String {
        let relation = printable(&self.relation);
        let scan = self.at.scan;
        match self.at.compacts {
            None => format!("{relation}: scan {scan}"),
            // before the first round, the file is examined and vacuumed
            Some(file) if scan == 0 => format!("{relation}: {} before compaction", file.name()),
            Some(file) => format!("{relation}: {} compaction, round {scan}", file.name()),
        }
    }

    /// The text next to the bar: how long it will take, if that is known, and what was done.
    pub fn message(&self) -> String {
        match self.left().map(|left| left.as_secs()) {
            Some(left @ 1..) => format!("{} left, {}", rough_duration(left), self.details()),
            _ => self.details(),
        }
    }

    fn details(&self) -> String {
        let rows = counted(self.at.rows, "row");
        let rate = self.rows_per_second();
        let wal = size(self.figures.wal);
        let mut text = if self.at.rows == 0 {
            "no rows rewritten yet".to_owned()
        } else if self.at.compacts.is_some() {
            let sizes = [self.figures.before, self.figures.now].map(|sizes| size(sizes.sum()));
            format!(
                "{rows} moved ({rate:.0}/s), {} before, {} now, {wal} of WAL",
                sizes[0], sizes[1]
            )
        } else {
            let bytes = size(self.figures.bytes);
            let growth = percent(self.growth());
            format!("{rows} ({rate:.0}/s), {bytes} re-toasted, grown {growth}, {wal} of WAL")
        };
        if let Some(pause) = &self.pause {
            text.push_str(", waiting: ");
            text.push_str(&printable(&pause.text));
        }
        text
    }

    /// The same for machines.
    pub fn json<'a>(&'a self, time: &'a str) -> Line<'a> {
        let waiting = self.pause.as_ref().map(|p| Waiting { reason: p.cause, text: &p.text });
        Line::Progress {
            schema: SCHEMA,
            event: "progress",
            time,
            relation: &self.relation,
            scan: self.at.scan,
            compacts: self.at.compacts,
            blocks_read: self.at.read,
            blocks: self.at.blocks,
            done: self.share(),
            rows_stored: self.at.rows,
            bytes_stored: self.figures.bytes,
            rows_per_second: self.rows_per_second().round(),
            seconds_left: self.left().map(|left| left.as_secs()),
            growth: self.growth(),
            sizes: self.figures.now,
            wal_bytes: self.figures.wal,
            waiting,
        }
    }
}

/// A line for people as JSON.
pub fn note<'a>(time: &'a str, text: &'a str) -> Line<'a> {
    Line::Note { schema: SCHEMA, event: "note", time, text }
}

/// The beginning of an index's rebuild.
pub fn rebuilds<'a>(
    time: &'a str,
    (relation, index): (&'a str, &'a str),
    (number, indexes): (usize, usize),
) -> Line<'a> {
    let number = number as u64;
    let indexes = indexes as u64;
    Line::Index { schema: SCHEMA, event: "index", time, relation, index, number, indexes }
}

/// The end of a run.
pub fn end<'a>(time: &'a str, report: &'a Report) -> Line<'a> {
    let tables = report.tables.iter();
    Line::End {
        schema: SCHEMA,
        event: "end",
        time,
        dry_run: report.dry_run,
        exit_code: report.exit_code,
        errors: &report.errors,
        tables: tables
            .map(|table| Ended { relation: &table.subject.relation, outcome: table.outcome })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batches_show_how_long_the_rest_takes() {
        let early = ProgressMoment { elapsed: Duration::from_secs(4), ..moment() };
        assert_eq!(early.outlook(), None);
        assert_eq!(moment().outlook(), None, "24 s are not announced");
        let mut long = moment();
        long.at.blocks = 10_000;
        let text = "about 6 minutes of this scan left on this machine, from the first 5000 rows";
        assert_eq!(long.outlook().as_deref(), Some(text));
        long.at = Advance { done: Some(0.1), left: Some(Duration::from_secs(8000)), ..long.at };
        let text = "about 3 hours left on this machine, from the first 5000 rows";
        assert_eq!(long.outlook().as_deref(), Some(text));
    }

    fn json(moment: &ProgressMoment) -> serde_json::Value {
        serde_json::to_value(moment.json("2026-01-31T12:00:00Z")).unwrap()
    }

    fn moment() -> ProgressMoment {
        ProgressMoment {
            relation: "public.t".into(),
            at: Advance { scan: 1, read: 250, blocks: 1000, rows: 5000, ..Advance::default() },
            elapsed: Duration::from_secs(10),
            scanning: Duration::from_secs(8),
            figures: Figures {
                bytes: 30 << 20,
                before: Sizes { heap: 1000, toast: 8000, indexes: 1000 },
                now: Sizes { heap: 1100, toast: 8200, indexes: 1000 },
                wal: 45 << 20,
            },
            pause: None,
        }
    }

    #[test]
    fn a_line_tells_place_rate_rest_growth_and_the_reason_of_a_wait() {
        insta::assert_snapshot!(moment().line(), @"public.t: scan 1: 250 of 1000 blocks (25.0 %), 24 s left, 5000 rows (500/s), 30 MB re-toasted, grown 3.0 %, 45 MB of WAL");
        let pause = Pause { cause: Cause::Xmin, text: "session 1\n".into(), wait: Duration::ZERO };
        let waiting = ProgressMoment { pause: Some(pause), ..moment() };
        assert!(waiting.line().ends_with(r"of WAL, waiting: session 1\n"), "{}", waiting.line());
        assert_eq!(json(&waiting)["waiting"]["reason"], "xmin");
        let at = Advance { done: Some(0.12), ..moment().at };
        let line = ProgressMoment { at, ..moment() }.line();
        assert!(
            line.starts_with("public.t: scan 1: 250 of 1000 blocks, 12.0 % done in all, "),
            "{line}"
        );
    }

    #[test]
    fn a_round_of_a_compaction_names_its_file_and_the_sizes() {
        let compacting = |file, scan| {
            let mut moment = moment();
            moment.at.compacts = Some(file);
            moment.at.scan = scan;
            moment.figures.now.toast = 2200;
            moment
        };
        let round = compacting(CompactedFile::Toast, 2);
        insta::assert_snapshot!(round.line(), @"public.t: TOAST compaction, round 2: 25.0 % moved, 24 s left, 5000 rows moved (500/s), 10000 bytes before, 4300 bytes now, 45 MB of WAL");
        assert_eq!(json(&round)["compacts"], "toast");
        assert_eq!(json(&moment())["compacts"], serde_json::Value::Null);
        let mut first = compacting(CompactedFile::Heap, 0);
        first.at.read = 0;
        assert_eq!(first.place(), "public.t: heap before compaction");
    }

    #[test]
    fn nothing_is_foretold_at_the_very_start() {
        let start = ProgressMoment { at: Advance { read: 0, ..moment().at }, ..moment() };
        assert!(!start.line().contains("left"));
        assert_eq!(json(&start)["seconds_left"], serde_json::Value::Null);
        assert_eq!(json(&moment())["seconds_left"], 24);
    }
}
