//! What follows from facts (pure): a file for each family.

pub(crate) mod lengths;
pub(crate) mod settings;
mod space;
mod upkeep;
pub(crate) mod usage;
mod values;

use super::facts::Facts;
use super::finding::{Findings, rank};

/// All findings about a table, the most important first.
pub(crate) fn findings(facts: &Facts) -> Findings {
    let mut findings = Vec::new();
    values::add(facts, &mut findings);
    lengths::add(facts, &mut findings);
    space::add(facts, &mut findings);
    usage::add(facts, &mut findings);
    usage::add_keys(facts, &mut findings);
    settings::add(facts, &mut findings);
    upkeep::add(facts, &mut findings);
    rank(&mut findings);
    Findings { findings, looked_at: facts.looked_at }
}

/// Findings about files, for which neither a server nor settings are known.
pub(crate) fn of_file(facts: &Facts) -> Findings {
    let mut findings = Vec::new();
    values::add_of_forms(facts, &mut findings);
    lengths::add_of_forms(facts, &mut findings);
    space::add(facts, &mut findings);
    rank(&mut findings);
    Findings { findings, looked_at: facts.looked_at }
}

#[cfg(test)]
mod tests;
