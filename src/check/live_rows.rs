//! Rows of a live table that findings are about: those that refer to some values, and the names of all by their primary key.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::chunk_index::ChunkTuple;
use super::code::Code;
use super::damaged_row::{Reference, RewriteTarget, shared_values};
use super::finding::{Finding, place_at};
use super::live_check::LiveCheck;
use super::subject::Which;
use super::value::ChunkSeen;
use crate::server::LiveError;
use crate::server::checking::{self, Standing};
use toast_format::disk::{BlockNumber, ItemPointer};
use toast_format::heap::problem::Place;

impl LiveCheck {
    /// What is found of values that have one of these tuples of the TOAST relation as a chunk whose `t_hoff` is wrong. SQL
    /// reads the chunk, as of PostgreSQL 19, but not the value.
    pub(super) async fn misread_values(
        &mut self,
        tids: &[ItemPointer],
    ) -> Result<Vec<Finding>, LiveError> {
        let found = self
            .in_snapshot(async |check, standing| check.values_of_misread(standing, tids).await)
            .await?;
        Ok(found.unwrap_or_default())
    }

    async fn values_of_misread(
        &self,
        standing: &Standing,
        tids: &[ItemPointer],
    ) -> Result<Vec<Finding>, LiveError> {
        let mut misread: BTreeMap<u64, ChunkSeen> = BTreeMap::new();
        let blocks: BTreeSet<BlockNumber> = tids.iter().map(|tid| tid.block).collect();
        let blocks = blocks.into_iter().collect();
        let tids = HashSet::<_>::from_iter(tids);
        self.each_chunk(
            standing,
            Some(blocks),
            |_| true,
            |id, ChunkTuple { seen, is_misread, .. }| {
                if is_misread && tids.contains(&seen.tid) {
                    misread.entry(id).or_insert(seen);
                }
            },
        )
        .await?;
        let ids: Vec<u64> = misread.keys().copied().collect();
        self.reference_findings(standing, &ids, |name, references| {
            let mut findings = Vec::new();
            for Reference { ctid, column, value_id, .. } in references {
                let Some(ChunkSeen { seq, tid, .. }) = misread.get(&value_id) else { continue };
                let place = Place { column: Some(column), ..place_at(name, ctid) };
                let expected = format!("chunk {seq} of value {value_id}");
                let found = format!("a tuple at {tid} whose t_hoff is wrong");
                findings.push(Finding::new(Code::ChunkMissing, place, expected, found));
            }
            findings
        })
        .await
    }

    /// Applies `find` to the rows that refer to these values. `value_ids` is sorted.
    async fn reference_findings(
        &self,
        standing: &Standing,
        value_ids: &[u64],
        find: impl FnOnce(&str, Vec<Reference>) -> Vec<Finding>,
    ) -> Result<Vec<Finding>, LiveError> {
        let mut all = Vec::new();
        let generated = HashSet::new();
        let written = RewriteTarget { table: "", generated: &generated };
        self.each_page(standing, Which::Heap, None, |page| {
            page.references(written, value_ids, &mut all);
        })
        .await?;
        let mut findings = find(&self.name(Which::Heap), all);
        self.name_rows(standing, findings.iter_mut().collect()).await?;
        Ok(findings)
    }

    /// A finding for each live row that has one of these values, whose IDs are in order, and is not the only one, in one
    /// snapshot: a row that is updated is live at two places in two.
    pub(super) async fn shared_values(
        &mut self,
        value_ids: &[u64],
    ) -> Result<Vec<Finding>, LiveError> {
        if value_ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self
            .in_snapshot(async |check, standing| {
                check.reference_findings(standing, value_ids, shared_values).await
            })
            .await?;
        Ok(found.unwrap_or_default())
    }

    /// Names the rows of findings in the table by their primary key.
    pub(super) async fn name_rows(
        &self,
        standing: &Standing,
        mut findings: Vec<&mut Finding>,
    ) -> Result<(), LiveError> {
        let name = self.name(Which::Heap);
        // it is not known where these tuples begin, or what is in them
        findings.retain(|finding| {
            let is_lost = matches!(
                finding.code,
                Code::LinePointer | Code::Redirect | Code::Overlap | Code::HeaderLength
            );
            finding.place.source == name && finding.place.item.is_some() && !is_lost
        });
        let mut blocks: Vec<BlockNumber> =
            findings.iter().filter_map(|finding| finding.place.block).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let keys = checking::unique_keys(self.connection.client(), self.relation.oid).await?;
        let Some(key) = keys.into_iter().find(|key| key.is_primary) else { return Ok(()) };
        blocks.sort_unstable();
        blocks.dedup();
        findings.sort_by_key(|finding| finding.place.block);
        self.each_page(standing, Which::Heap, Some(blocks), |page| {
            let block = page.block;
            let start = findings.partition_point(|finding| finding.place.block < Some(block));
            let own = findings.iter_mut().skip(start);
            for finding in own.take_while(|finding| finding.place.block == Some(block)) {
                let Some(item) = finding.place.item else { continue };
                finding.row = page.by_key(ItemPointer { block, item }, &key.columns);
            }
        })
        .await
        .map(drop)
    }
}
