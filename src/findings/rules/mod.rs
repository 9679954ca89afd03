//! What follows from facts (pure): a file for each family.

pub(crate) mod lengths;
pub(crate) mod settings;
mod space;
mod upkeep;
pub(crate) mod usage;
mod values;

use super::facts::Facts;
use super::finding::{Findings, LookedAt, rank};

/// The findings about a table, the most important first. Those about files depend neither on a server nor on settings.
pub(crate) fn findings(facts: &Facts) -> Findings {
    let mut findings = Vec::new();
    if facts.settings_are_known {
        values::add(facts, &mut findings);
        lengths::add(facts, &mut findings);
        usage::add(facts, &mut findings);
        findings.extend(facts.columns.iter().filter_map(|column| usage::hot_keys(facts, column)));
        settings::add(facts, &mut findings);
        upkeep::add(facts, &mut findings);
    } else {
        values::add_of_forms(facts, &mut findings);
        lengths::add_of_forms(facts, &mut findings);
    }
    space::add(facts, &mut findings);
    rank(&mut findings);
    let looked_at = LookedAt {
        heap_blocks: facts.heap.map(|file| file.drawn.total),
        heap_blocks_read: facts.heap.map(|file| file.drawn.read),
        toast_blocks: facts.toast.map(|file| file.drawn.total),
        toast_blocks_read: facts.toast.map(|file| file.drawn.read),
        indexes: facts.measured_indexes,
        settings: facts.settings_are_known,
    };
    Findings { findings, looked_at }
}

#[cfg(test)]
mod tests;
