//! What a few blocks tell of the columns, before the sample is drawn.

use super::advisor::AdviseError;
use super::reading::{Read, Reading, sizes};
use super::variant::{self, ColumnError};
use crate::disk::{BlockNumber, ItemPointer};
use crate::heap::problem::Problems;
use crate::heap::sample::Sample;
use crate::server::catalog::Relation;
use crate::server::probe::Asked;

/// Blocks read beforehand to learn what the columns hold.
const PROBE_BLOCKS: u32 = 16;
/// Stored bytes read to learn how much longer values are that only their content tells of.
const WEIGHED_BYTES: f64 = 4e6;
/// Without `--column`: those that hold at least this part of the bytes.
const LEAST_SHARE: f64 = 0.1;

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    blocks: f64,
    /// Stored bytes of each column.
    stored: Vec<f64>,
    /// Raw bytes of each column.
    raw: Vec<f64>,
    /// Rows whose values' raw sizes are not known, with the stored bytes of each column.
    unweighed: Vec<(ItemPointer, Vec<f64>)>,
}

impl Probe {
    pub(super) fn bytes_per_block(&self, columns: &[usize]) -> f64 {
        let sum: f64 = columns.iter().filter_map(|&column| self.raw.get(column)).sum();
        if self.blocks > 0.0 { sum / self.blocks } else { 0.0 }
    }

    pub(super) fn biggest(&self, relation: &Relation) -> Result<Vec<usize>, ColumnError> {
        let toastable = variant::toastable_columns(relation)?;
        let bytes = |column: usize| self.stored.get(column).copied().unwrap_or(0.0);
        let total: f64 = self.stored.iter().sum();
        let mut columns: Vec<usize> =
            toastable.iter().copied().filter(|&c| bytes(c) >= total * LEAST_SHARE).collect();
        columns.sort_by(|&a, &b| bytes(b).total_cmp(&bytes(a)));
        if columns.is_empty() {
            columns.extend(toastable.first());
        }
        Ok(columns)
    }

    /// Adds the values of a row, each with its stored and raw bytes.
    fn add(&mut self, values: impl Iterator<Item = (f64, f64)>) {
        for (index, (stored, raw)) in values.enumerate() {
            if let Some(sum) = self.stored.get_mut(index) {
                *sum += stored;
            }
            if let Some(sum) = self.raw.get_mut(index) {
                *sum += raw;
            }
        }
    }

    /// The first rows whose values in a column come to what may be read.
    fn to_weigh(&self, column: usize) -> Vec<ItemPointer> {
        let mut bytes = 0.0;
        let rows = self.unweighed.iter().take_while(|(_, stored)| {
            let enough = bytes >= WEIGHED_BYTES;
            bytes += stored.get(column).copied().unwrap_or(0.0);
            !enough
        });
        rows.map(|(ctid, _)| *ctid).collect()
    }
}

impl Reading<'_> {
    /// What the columns hold, from a few blocks.
    pub(super) async fn probe(&mut self, total: u32) -> Result<Probe, AdviseError> {
        let columns = self.relation.desc.attributes.len();
        let none = vec![0.0; columns];
        let mut probe = Probe { stored: none.clone(), raw: none, ..Probe::default() };
        let sample = Sample::new(total, PROBE_BLOCKS, self.advisor.options.seed);
        let blocks: Vec<BlockNumber> = sample.collect();
        if blocks.is_empty() {
            return Ok(probe);
        }
        probe.blocks = blocks.len() as f64;
        match self.read(&blocks).await? {
            Read::Pages(pages) => {
                for row in self.rows(&pages).iter().flatten() {
                    probe.add(row.facts.values.iter().map(|value| sizes(*value)));
                }
            }
            Read::Addresses(found) => {
                for row in self.asked(&found.concat(), Asked::Sizes).await? {
                    let bytes = |size: Option<u64>| size.unwrap_or(0) as f64;
                    let stored = row.values.iter().map(|value| bytes(value.stored_size));
                    let raw = row.values.iter().map(|v| bytes(v.raw_size.or(v.stored_size)));
                    probe.add(stored.clone().zip(raw));
                    probe.unweighed.push((row.ctid, stored.collect()));
                }
            }
        }
        // They are read again with the sample.
        self.problems = Problems::default();
        Ok(probe)
    }

    /// Learns raw sizes of these columns where only the content tells them, from a part of the rows.
    pub(super) async fn weigh(
        &self,
        probe: &mut Probe,
        columns: &[usize],
    ) -> Result<(), AdviseError> {
        let Some(reader) = self.by_functions() else { return Ok(()) };
        for &column in columns.iter().filter(|&&column| !reader.tells_raw(column)) {
            let rows = probe.to_weigh(column);
            let weight = reader.weight(column, &rows).await;
            let (stored, raw) = weight.map_err(|error| self.live(error))?;
            let all = probe.stored.get(column).copied().unwrap_or(0.0);
            if let Some(sum) = probe.raw.get_mut(column).filter(|_| stored > 0.0) {
                *sum = all * raw / stored;
            }
        }
        Ok(())
    }
}
