//! Replication slots for which the server keeps WAL up to a limit, `max_slot_wal_keep_size` (pure): how much more WAL
//! may be written before they are lost, and which of them were lost.
//!
//! A slot is lost at the first checkpoint after `safe_wal_size` bytes were written that its consumer has not read.
//! The server raises no error, and the consumer must be set up again.

use std::collections::BTreeSet;

use crate::message::size;
use toast_format::model::sql::quote_identifier;

/// A slot must tolerate this many times the WAL written between two measurements, because batches grow, several may
/// be running, and after a checkpoint the server writes a full image of each page once more.
const LOOKS: u64 = 4;
/// The same for a single running statement. It is smaller because the statement ends as soon as it is cancelled.
const LOOKS_UNDER_WAY: u64 = 2;

/// A replication slot as reported by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub name: String,
    pub kind: String,
    /// Whether a consumer is connected.
    pub active: bool,
    /// Bytes of WAL that may be written before the slot could be lost (`safe_wal_size`); `None` without a limit, and
    /// once it is lost.
    pub safe: Option<u64>,
    /// Whether the server has removed WAL that the slot needs.
    pub lost: bool,
}

impl Slot {
    /// Describes the slot in messages.
    pub fn text(&self) -> String {
        let state = if self.active { "active" } else { "inactive" };
        format!("replication slot {} ({}, {state})", quote_identifier(&self.name), self.kind)
    }
}

/// All slots of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    pub all: Vec<Slot>,
    /// The maximum number of bytes of WAL that the server keeps for a slot.
    pub kept: u64,
    /// The size of a WAL segment, in bytes.
    pub segment: u64,
}

impl Slots {
    /// Whether there is a limit for any slot that is not lost.
    pub fn are_limited(&self) -> bool {
        self.all.iter().any(|slot| slot.safe.is_some())
    }

    /// The slot that tolerates least WAL, with the number of bytes.
    pub(super) fn least(&self) -> Option<(&Slot, u64)> {
        let safe = self.all.iter().filter_map(|slot| Some((slot, slot.safe?)));
        safe.min_by_key(|&(_, safe)| safe)
    }

    /// Bytes of WAL that a slot must tolerate before work that writes `work` bytes, if `between` bytes were written
    /// between measurements. One segment is added, because a switch to the next segment uses up the rest of the
    /// current one. The margin is at most half of what the server keeps, which a slot always tolerates once its
    /// consumer has caught up.
    pub fn margin(&self, between: u64, work: u64) -> u64 {
        let margin =
            self.segment.saturating_add(between.saturating_mul(LOOKS)).saturating_add(work);
        margin.min(self.kept / 2)
    }

    /// Why work must wait for which slots must tolerate `margin` bytes, if it must.
    pub fn against(&self, margin: u64) -> Option<String> {
        let (slot, safe) = self.least().filter(|&(_, safe)| safe < margin)?;
        Some(format!(
            "{} can tolerate only {} more WAL before the server removes WAL that it needs, and {} are reserved for the \
             next transactions (max_slot_wal_keep_size)",
            slot.text(),
            size(safe),
            size(margin)
        ))
    }

    /// Why a running statement must be cancelled, if it must. `before` is the least that any slot tolerated at the
    /// last measurement; it is updated.
    pub fn against_under_way(&self, before: &mut Option<u64>) -> Option<String> {
        let (_, safe) = self.least()?;
        let written = before.replace(safe).unwrap_or(safe).saturating_sub(safe);
        let margin = self.segment.max(written.saturating_mul(LOOKS_UNDER_WAY)).min(self.kept / 2);
        self.against(margin)
    }

    /// Warnings about slots that may not tolerate this many bytes, each with what to do about it.
    pub fn warnings(&self, expected: u64) -> Vec<String> {
        let short = self.all.iter().filter_map(|slot| Some((slot, slot.safe?)));
        let short = short.filter(|&(_, safe)| safe < expected);
        short
            .map(|(slot, safe)| {
                format!(
                    "{} can tolerate only {} more WAL (safe_wal_size), and up to {} may be written: {}, raise \
                     max_slot_wal_keep_size, or drop the slot if it is not needed. toastctl waits before the slot would \
                     be lost.",
                    slot.text(),
                    size(safe),
                    size(expected),
                    if slot.active { "make sure that its consumer keeps up" } else { "start its consumer" },
                )
            })
            .collect()
    }
}

/// Slots that were seen intact, and those of them that were lost later.
#[derive(Debug, Default)]
pub struct Losses {
    whole: BTreeSet<String>,
    lost: Vec<String>,
}

impl Losses {
    /// Records a measurement of all slots.
    pub fn note(&mut self, slots: &Slots) {
        for slot in &slots.all {
            if !slot.lost {
                self.whole.insert(slot.name.clone());
            } else if self.whole.remove(&slot.name) {
                self.lost.push(slot.name.clone());
            }
        }
    }

    /// The slots lost since the last call.
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
            "replication slot \"s\" (physical, inactive) can tolerate only 50 MB more"
        ));
    }

    #[test]
    fn a_statement_under_way_is_cancelled_by_what_it_writes_between_looks() {
        let mut before = None;
        let mut look = |mb| {
            slots(vec![slot("s", Some(mb * MB), false)]).against_under_way(&mut before).is_some()
        };
        assert!(!look(100) && !look(80));
        // 45 MB were written since the last measurement, and 35 MB are left
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
