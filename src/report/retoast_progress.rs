//! The progress of `retoast`: a line for people, and JSON for programs.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::report::table::printable;
use crate::report::units::{counted, percent, size};
use crate::retoast::listener::{Advance, Figures};
use crate::retoast::pace::rules::Pause;

/// The name and version of the JSON lines.
pub const SCHEMA: &str = "toastctl.retoast-progress/1";

/// One moment of a sweep.
#[derive(Debug, Clone, Default)]
pub struct Moment {
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

impl Moment {
    /// The fraction that is done.
    pub fn share(&self) -> f64 {
        self.at.part()
    }

    /// Rows per second.
    fn rate(&self) -> f64 {
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
        let (before, now) = (self.figures.before.sum(), self.figures.now.sum());
        now.saturating_sub(before) as f64 / before.max(1) as f64
    }

    /// The text of a plain line.
    pub fn line(&self) -> String {
        let left = self.left().map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
        format!(
            "{}: scan {}: {} of {} blocks ({}){left}, {}",
            printable(&self.relation),
            self.at.scan,
            self.at.read,
            self.at.blocks,
            percent(self.share()),
            self.details()
        )
    }

    /// The text next to the bar.
    pub fn details(&self) -> String {
        let mut text = format!(
            "{} ({:.0}/s), {} re-toasted, grown {}, {} of WAL",
            counted(self.at.rows, "row"),
            self.rate(),
            size(self.figures.bytes),
            percent(self.growth()),
            size(self.figures.wal)
        );
        if let Some(pause) = &self.pause {
            text.push_str(", waiting: ");
            text.push_str(&printable(&pause.text));
        }
        text
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        #[derive(Serialize)]
        struct Waiting<'a> {
            reason: &'static str,
            text: &'a str,
        }
        let waiting =
            self.pause.as_ref().map(|p| Waiting { reason: p.cause.name(), text: &p.text });
        json!({
            "schema": SCHEMA,
            "event": "progress",
            "relation": self.relation,
            "scan": self.at.scan,
            "blocks_read": self.at.read,
            "blocks": self.at.blocks,
            "done": self.share(),
            "rows_stored": self.at.rows,
            "bytes_stored": self.figures.bytes,
            "rows_per_second": self.rate().round(),
            "seconds_left": self.left().map(|left| left.as_secs()),
            "growth": self.growth(),
            "sizes": self.figures.now,
            "wal_bytes": self.figures.wal,
            "waiting": waiting,
        })
    }
}

/// A line for people as JSON.
pub fn note(text: &str) -> Value {
    json!({ "schema": SCHEMA, "event": "note", "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retoast::pace::rules::Cause;
    use crate::retoast::plan::Sizes;

    fn moment() -> Moment {
        Moment {
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
        let waiting = Moment { pause: Some(pause), ..moment() };
        assert!(waiting.line().ends_with(r"of WAL, waiting: session 1\n"), "{}", waiting.line());
        assert_eq!(waiting.json()["waiting"]["reason"], "xmin");
    }

    #[test]
    fn nothing_is_foretold_at_the_very_start() {
        let start = Moment { at: Advance { read: 0, ..moment().at }, ..moment() };
        assert!(!start.line().contains("left"));
        assert_eq!(start.json()["seconds_left"], Value::Null);
        assert_eq!(moment().json()["seconds_left"], 24);
    }
}
