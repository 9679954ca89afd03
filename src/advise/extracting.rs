//! The keys of a table's documents that are extracted: those that are named, or those that pay most.

use std::slice;

use super::advisor::{AdviseError, TableFacts};
use super::estimate::Scope;
use super::extract::auto::{Scout, choose, sets};
use super::extract::keys::{Extract, Keys};
use super::extract::kind::KeyType;
use super::extract::parent::Migrated;
use super::extract::rows::{Extraction, Stored};
use super::extract::target::{self, Asked};
use super::extract::weights::Weights;
use super::plan::SamplePlan;
use super::reading::Reading;
use super::variant::{TODAY, Variants};
use crate::usage::keys::KnownUses;
use crate::usage::workload::{Workload, WorkloadSource};

/// The sample is read again so often at most because values do not fit the types that others have: integer,
/// bigint, numeric, jsonb.
const WIDENED: usize = 4;

/// What is to be extracted from one table.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) what: Option<Extract>,
    /// The table whose partition it is. Another one may have the keys that it does not.
    pub(super) parent: Option<Migrated>,
    /// The types that others' values have.
    pub(super) types: Option<Vec<KeyType>>,
}

/// What `--extract auto` looks at beforehand.
pub(super) struct Beforehand<'a> {
    pub(super) facts: &'a TableFacts,
    /// Blocks of the relation.
    pub(super) total: u32,
    /// Bytes of documents in a block.
    pub(super) bytes_per_block: f64,
    /// What is known of the use of keys.
    pub(super) known: Option<&'a KnownUses>,
}

impl Reading<'_> {
    /// Begins to extract what is asked of a column. Where no key pays, nothing is extracted.
    pub(super) async fn extract(
        &mut self,
        (what, types): (&Extract, Option<&[KeyType]>),
        v: &Variants,
        beforehand: &Beforehand<'_>,
    ) -> Result<(), AdviseError> {
        let method = beforehand.facts.compression.default;
        let stored = Stored {
            table: self.relation.table(method, self.advisor.server.page_size),
            settings: v.present,
            default_method: method,
            fillfactor: self.relation.fillfactor(),
        };
        self.extractions = match what {
            Extract::Keys(keys) => {
                let asked = self.ask(v.column, keys).await?;
                let target = target::target(self.relation, v.column, keys, &asked)?;
                let mut extraction = Extraction::new(target, stored, false);
                if let Some(types) = types {
                    extraction.assume(types);
                }
                vec![extraction]
            }
            Extract::Auto => self.best(v, &stored, beforehand).await?.into_iter().collect(),
        };
        if let ([extraction], false) = (&self.extractions[..], self.trials.is_empty()) {
            self.rests = self.trial_of_rests(extraction).await?;
        }
        Ok(())
    }

    async fn ask(&self, column: usize, keys: &Keys) -> Result<Asked, AdviseError> {
        let (client, parent) = (self.advisor.client(), self.parent.as_ref());
        let asked = target::ask(client, self.relation, parent, column, keys).await;
        asked.map_err(|error| self.live(error))
    }

    /// The set of keys that pays most, by a few blocks.
    async fn best(
        &mut self,
        v: &Variants,
        stored: &Stored,
        beforehand: &Beforehand<'_>,
    ) -> Result<Option<Extraction>, AdviseError> {
        let relation = self.relation;
        let asked = self.ask(v.column, &Keys(Vec::new())).await?;
        target::target(relation, v.column, &Keys(Vec::new()), &asked)?;
        let Beforehand { facts, total, bytes_per_block, .. } = *beforehand;
        let options = &self.advisor.options;
        let plan = SamplePlan::few(options.seed, total, bytes_per_block);
        // no other candidate is compared here
        let all = v.all.get(TODAY).cloned().into_iter().collect();
        let bare = Variants { all, methods: Vec::new(), ..v.clone() };
        self.scout = Some((v.column, Scout::default()));
        let looked = self.all(&plan, slice::from_ref(&bare), stored.fillfactor).await;
        let scout = self.scout.take();
        looked?;
        let Some((weights, keys)) = scout.and_then(|(_, scout)| {
            let common = scout.common_keys();
            let nothing = KnownUses::default();
            let weights = Weights::of(&common, &v.name, beforehand.known.unwrap_or(&nothing));
            let keys = scout.candidates(&weights)?;
            Some((weights, keys))
        }) else {
            self.forget();
            return Ok(None);
        };
        let asked = self.ask(v.column, &keys).await?;
        let (keys, asked) = asked.usable(relation, v.column, keys);
        for set in sets(&keys) {
            let target = target::target(relation, v.column, &set, &asked)?;
            self.extractions.push(Extraction::new(target, stored.clone(), true));
        }
        self.forget();
        self.all(&plan, slice::from_ref(&bare), stored.fillfactor).await?;
        self.forget();
        let scope =
            Scope { total_blocks: total, complete: false, page: self.advisor.server.page_size };
        let counted = facts.counters.reads_per_write();
        let workload = Workload {
            reads_per_write: options.reads_per_write.or(counted.map(|(ratio, _)| ratio)),
            source: WorkloadSource::default(),
            scanned: facts.counters.scanned_part(),
        };
        let best = choose(&self.extractions, &weights, &scope, options.optimize, &workload);
        let best = best.and_then(|best| self.extractions.get(best)).map(Extraction::again);
        Ok(best.map(|best| best.weighed(weights.known)))
    }

    /// Begins the sample again where a later block had what the types of the first ones do not hold; `passes`: how
    /// often it was read.
    pub(super) fn widen(&mut self, passes: usize) -> bool {
        let widened = self.extractions.first().and_then(Extraction::widened);
        match widened.filter(|_| passes <= WIDENED) {
            Some(again) => {
                self.extractions = vec![again];
                self.forget();
                true
            }
            None => false,
        }
    }
}
