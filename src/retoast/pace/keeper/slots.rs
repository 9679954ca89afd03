//! Replication slots: what is foretold of them, what they say to statements under way, and which are lost.

use super::super::error::PaceError;
use super::super::gauges;
use super::super::slots::Slots;
use super::Keeper;
use super::free_space::written_for;
use crate::retoast::check::ready::PreparedTable;

impl Keeper {
    pub(super) fn note_slots(&self, slots: &Slots) {
        if let Ok(mut noted) = self.slots.lock() {
            noted.0.clone_from(slots);
            noted.1.note(slots);
        }
    }

    async fn measure_slots(&self) -> Result<Slots, PaceError> {
        let slots = self.measuring.read(gauges::slots).await?;
        self.note_slots(&slots);
        Ok(slots)
    }

    /// The most WAL that is expected for a table before anything is known of it but its sizes. `values`: whether rows
    /// are updated; their index entries, or new indexes, are written in any case.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn expected_wal(
        &self,
        ready: &PreparedTable,
        values: bool,
    ) -> Result<u64, PaceError> {
        let oid = ready.relation.oid;
        let sizes = self.measuring.read(async |c| gauges::sizes(c, oid).await).await?;
        let rows = if values { written_for(sizes) } else { 0 };
        Ok(rows.saturating_add(sizes.indexes))
    }

    /// What is to be said of slots before so many bytes of WAL are written.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn slot_warnings(&self, expected: u64) -> Result<Vec<String>, PaceError> {
        Ok(self.measure_slots().await?.warnings(expected))
    }

    /// Whether any slot may be lost, by the last look.
    pub(crate) fn watches_slots(&self) -> bool {
        self.slots.lock().is_ok_and(|noted| noted.0.are_limited())
    }

    /// Why a statement under way is to be cancelled for a slot that would soon be lost. `before`: what the last look
    /// has seen.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn slots_against(
        &self,
        before: &mut Option<u64>,
    ) -> Result<Option<String>, PaceError> {
        if !self.watches_slots() {
            return Ok(None);
        }
        Ok(self.measure_slots().await?.against_under_way(before))
    }

    /// The slots lost since this was asked last.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn slots_lost(&self) -> Result<Vec<String>, PaceError> {
        self.measure_slots().await?;
        Ok(self.slots.lock().map_or_else(|_| Vec::new(), |mut noted| noted.1.take()))
    }
}
