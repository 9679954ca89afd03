//! What scans cannot read for damage: it is left out by those that follow, which can then prove the rest in one snapshot
//! (pure).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::disk::ItemPointer;

/// What cannot be read, with what the server says of it.
#[derive(Debug, Default)]
pub(super) struct Damage {
    pub(super) blocks: BTreeMap<u32, String>,
    pub(super) rows: HashMap<ItemPointer, String>,
    pub(super) asks: Asks,
    /// The rows whose values were not asked for.
    pub(super) spared: Vec<ItemPointer>,
}

/// Of which rows the server may be asked to read values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asks {
    /// Those of which it is not known that it cannot.
    #[default]
    All,
    Nothing,
    Only(ItemPointer),
}

impl Damage {
    /// The parts of these blocks between those that cannot be read.
    pub(super) fn parts(&self, blocks: &Range<u32>) -> Vec<Range<u32>> {
        let mut parts = Vec::new();
        let mut start = blocks.start;
        for &block in self.blocks.range(blocks.clone()).map(|(block, _)| block) {
            parts.push(start..block);
            start = block.saturating_add(1);
        }
        parts.push(start..blocks.end);
        parts.retain(|part| !part.is_empty());
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_be_damaged_is_left_out() {
        let mut damage = Damage::default();
        assert_eq!(damage.parts(&(0..256)).first(), Some(&(0..256)));
        for block in [0, 7, 8, 255, 300] {
            damage.blocks.insert(block, String::new());
        }
        assert_eq!(damage.parts(&(0..256)), [1..7, 9..255]);
        assert_eq!(damage.parts(&(256..512)), [256..300, 301..512]);
        assert!(damage.parts(&(7..9)).is_empty());
    }
}
