//! Replication slots whose WAL the server keeps up to a limit, `max_slot_wal_keep_size` (pure): how much more WAL they
//! bear, and which of them are lost.
//!
//! A slot is lost with the first checkpoint after `safe_wal_size` bytes were written that its consumer has not read.
//! No error says so, and the consumer has to be made anew.

use std::collections::BTreeSet;

use crate::model::sql::quote_identifier;

/// How many times what was written between two looks a slot has to bear: batches grow, several may be under way, and
/// after a checkpoint each page is written whole once more.
const LOOKS: u64 = 4;
/// The same for one statement under way, which ends as soon as it is cancelled.
const LOOKS_UNDER_WAY: u64 = 2;

/// A replication slot as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// `physical` or `logical`.
    pub kind: String,
    /// Whether a consumer is connected.
    pub active: bool,
    /// Bytes of WAL that it bears (`safe_wal_size`); `None` without a limit, and once it is lost.
    pub safe: Option<u64>,
    /// Whether WAL that it needs was removed.
    pub lost: bool,
}

impl Slot {
    /// For people.
    pub fn text(&self) -> String {
        let state = if self.active { "active" } else { "inactive" };
        format!("replication slot {} ({}, {state})", quote_identifier(&self.name), self.kind)
    }
}

/// All slots of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    /// Each of them.
    pub all: Vec<Slot>,
    /// Bytes of WAL that are kept for one at the most.
    pub kept: u64,
    /// Bytes of a segment of WAL.
    pub segment: u64,
}

impl Slots {
    /// Whether any may be lost.
    pub fn are_limited(&self) -> bool {
        self.all.iter().any(|slot| slot.safe.is_some())
    }

    /// The slot that bears least, with the bytes.
    fn least(&self) -> Option<(&Slot, u64)> {
        let safe = self.all.iter().filter_map(|slot| Some((slot, slot.safe?)));
        safe.min_by_key(|&(_, safe)| safe)
    }

    /// The least that any bears.
    pub fn least_safe(&self) -> Option<u64> {
        self.least().map(|(_, safe)| safe)
    }

    /// Bytes that a slot has to bear before work that writes so many, `between` having been written between looks: a
    /// segment besides, which a switch to the next one takes whole. A slot that is caught up always bears half of what
    /// is kept, so that no more is asked for.
    pub fn margin(&self, between: u64, work: u64) -> u64 {
        let margin =
            self.segment.saturating_add(between.saturating_mul(LOOKS)).saturating_add(work);
        margin.min(self.kept / 2)
    }

    /// What stands against work for which slots have to bear so much.
    pub fn against(&self, margin: u64) -> Option<String> {
        let (slot, safe) = self.least().filter(|&(_, safe)| safe < margin)?;
        Some(format!(
            "{} can tolerate only {} kB more WAL before the server removes WAL that it needs, and {} kB are reserved for the \
             next transactions (max_slot_wal_keep_size)",
            slot.text(),
            safe >> 10,
            margin >> 10
        ))
    }

    /// What stands against a statement under way. `before`: what slots bore at the last look, and bear now.
    pub fn against_under_way(&self, before: &mut Option<u64>) -> Option<String> {
        let (_, safe) = self.least()?;
        let written = before.replace(safe).unwrap_or(safe).saturating_sub(safe);
        let margin = self.segment.max(written.saturating_mul(LOOKS_UNDER_WAY)).min(self.kept / 2);
        self.against(margin)
    }

    /// What is said of slots that may not bear so many bytes, with what to do about it.
    pub fn warnings(&self, expected: u64) -> Vec<String> {
        let short = self.all.iter().filter_map(|slot| Some((slot, slot.safe?)));
        let short = short.filter(|&(_, safe)| safe < expected);
        short
            .map(|(slot, safe)| {
                format!(
                    "{} can tolerate only {} MB more WAL (safe_wal_size), and up to {} MB may be written: {}, raise \
                     max_slot_wal_keep_size, or drop the slot if it is not needed. toastctl waits before the slot would \
                     be lost.",
                    slot.text(),
                    safe >> 20,
                    expected.div_ceil(1 << 20),
                    if slot.active { "make sure that its consumer keeps up" } else { "start its consumer" },
                )
            })
            .collect()
    }
}

/// Which slots were seen whole, and which of these are lost since.
#[derive(Debug, Default)]
pub struct Losses {
    whole: BTreeSet<String>,
    lost: Vec<String>,
}

impl Losses {
    /// Takes note of a look at all slots.
    pub fn note(&mut self, slots: &Slots) {
        for slot in &slots.all {
            if !slot.lost {
                self.whole.insert(slot.name.clone());
            } else if self.whole.remove(&slot.name) {
                self.lost.push(slot.name.clone());
            }
        }
    }

    /// Those lost since this was asked last.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn slot(name: &str, safe: Option<u64>, lost: bool) -> Slot {
        Slot { name: name.into(), kind: "physical".into(), active: false, safe, lost }
    }

    fn slots(all: Vec<Slot>) -> Slots {
        Slots { all, kept: 200 * MB, segment: 16 * MB }
    }

    #[test]
    fn the_margin_follows_what_is_written_and_is_never_more_than_a_caught_up_slot_bears() {
        let slots = slots(vec![slot("s", Some(50 * MB), false)]);
        assert_eq!(slots.margin(0, 0), 16 * MB);
        assert_eq!(slots.margin(5 * MB, 3 * MB), 39 * MB);
        assert_eq!(slots.margin(500 * MB, 0), 100 * MB);
        assert_eq!(slots.against(50 * MB), None);
        let text = slots.against(51 * MB).unwrap();
        assert!(text.starts_with(
            "replication slot \"s\" (physical, inactive) can tolerate only 51200 kB more"
        ));
    }

    #[test]
    fn a_statement_under_way_is_cancelled_by_what_it_writes_between_looks() {
        let mut before = None;
        let mut look = |mb| {
            slots(vec![slot("s", Some(mb * MB), false)]).against_under_way(&mut before).is_some()
        };
        assert!(!look(100) && !look(80));
        // 45 MB since the last look, and 35 are left
        assert!(look(35));
        assert!(!look(34) && look(15));
    }

    #[test]
    fn slots_without_a_limit_and_lost_ones_are_not_waited_for() {
        let slots = slots(vec![slot("a", None, false), slot("b", None, true)]);
        assert!(!slots.are_limited());
        assert_eq!(slots.against(u64::MAX), None);
        assert_eq!(slots.warnings(u64::MAX), Vec::<String>::new());
    }

    #[test]
    fn who_is_lost_since_it_was_seen_whole_is_told_once() {
        let mut losses = Losses::default();
        losses.note(&slots(vec![slot("a", Some(1), false), slot("b", None, true)]));
        assert_eq!(losses.take(), Vec::<String>::new());
        losses.note(&slots(vec![slot("a", None, true), slot("b", None, true)]));
        losses.note(&slots(vec![slot("a", None, true), slot("c", None, true)]));
        assert_eq!(losses.take(), ["a"]);
        assert_eq!(losses.take(), Vec::<String>::new());
    }
}
