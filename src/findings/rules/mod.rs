//! What follows from facts (pure): a file for each family.

pub(crate) mod lengths;
pub(crate) mod settings;
mod space;
mod upkeep;
pub(crate) mod usage;
mod values;

use super::facts::Facts;
use super::finding::{Findings, rank};

/// The findings about a table, the most important first. Those about files depend neither on a server nor on settings.
pub(crate) fn findings(facts: &Facts) -> Findings {
    let mut findings = Vec::new();
    if facts.looked_at.settings {
        values::add(facts, &mut findings);
        lengths::add(facts, &mut findings);
        usage::add(facts, &mut findings);
        usage::add_keys(facts, &mut findings);
        settings::add(facts, &mut findings);
        upkeep::add(facts, &mut findings);
    } else {
        values::add_of_forms(facts, &mut findings);
        lengths::add_of_forms(facts, &mut findings);
    }
    space::add(facts, &mut findings);
    rank(&mut findings);
    Findings { findings, looked_at: facts.looked_at }
}

#[cfg(test)]
mod tests;
