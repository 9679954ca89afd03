//! Blocks of a relation for the overview where pages are out of reach: SQL functions are asked about their rows.

use std::ops::Range;

use futures_util::future;

use crate::disk::BlockNumber;
use crate::heap::problem::Problems;
use crate::heap::stats::RelationStats;
use crate::inspect::blocks::BlockSums;
use crate::inspect::inspector::Inspector;
use crate::model::stored::Placement;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::probe::Probe;
use crate::server::{LiveError, functions};

/// Neighbouring blocks that one statement asks SQL functions about.
const RUN: u32 = 16;
/// Such statements under way at a time.
const UNDER_WAY: usize = 8;

/// What was counted so far.
#[derive(Clone)]
pub(super) struct Counted {
    pub(super) stats: RelationStats,
    /// If not all blocks are read.
    pub(super) blocks: Option<BlockSums>,
    pub(super) problems: Problems,
    /// Of each column: values of which SQL functions do not tell whether they are out of line.
    pub(super) unplaced: Vec<u64>,
}

/// Asks SQL functions about rows, block by block.
pub(super) struct Asker<'a> {
    connection: &'a Connection,
    probe: Probe<'a>,
    columns: Vec<usize>,
    pub(super) name: String,
    pub(super) counted: Counted,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        inspector: &Inspector,
        connection: &'a Connection,
        relation: &'a Relation,
    ) -> Asker<'a> {
        let probe = Probe::new(&inspector.server, relation);
        Asker {
            connection,
            columns: probe.columns(),
            probe,
            name: relation.display_name(),
            counted: Counted {
                stats: RelationStats::new(relation.desc.attributes.len()),
                blocks: None,
                problems: Problems::default(),
                unplaced: vec![0; relation.desc.attributes.len()],
            },
        }
    }

    /// Asks about blocks in ascending order.
    pub(super) async fn read(&mut self, blocks: &[BlockNumber]) -> Result<(), LiveError> {
        for some in runs(blocks).chunks(UNDER_WAY) {
            let client = self.connection.client();
            let asked =
                some.iter().map(|run| functions::rows(client, &self.probe, &self.columns, run));
            let answers = future::try_join_all(asked).await?;
            for (run, mut rows) in some.iter().zip(answers) {
                rows.sort_by_key(|row| (row.ctid.block.0, row.ctid.item));
                let mut rows = rows.into_iter().peekable();
                for block in run.clone() {
                    while let Some(row) = rows.next_if(|row| row.ctid.block.0 <= block) {
                        self.counted.stats.tuples.live += 1;
                        for (&index, told) in self.columns.iter().zip(&row.values) {
                            if let (Some(unplaced), Placement::Unknown) =
                                (self.counted.unplaced.get_mut(index), told.placement)
                            {
                                *unplaced += 1;
                            }
                            if let Some(column) = self.counted.stats.columns.get_mut(index) {
                                column.add(&told.value, 1);
                            }
                        }
                    }
                    if let Some(blocks) = &mut self.counted.blocks {
                        blocks.block(&self.counted.stats);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Neighbouring blocks as ranges.
fn runs(blocks: &[BlockNumber]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block.0 && run.len() < RUN as usize => run.end += 1,
            _ => runs.push(block.0..block.0.saturating_add(1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_asked_about_together() {
        let blocks: Vec<BlockNumber> =
            [1, 2, 3, 7].into_iter().chain(10..40).map(BlockNumber).collect();
        assert_eq!(runs(&blocks), [1..4, 7..8, 10..26, 26..40]);
        assert!(runs(&[]).is_empty());
    }
}
