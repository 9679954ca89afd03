//! Which keys of a table's documents are extracted: those that are named, or the set that pays most; and those of a
//! partitioned table, each of whose partitions is priced for itself, with columns of the same types.
//!
//! Nobody knows quite which keys are asked for. So each key that most documents have is taken to be read, and changed,
//! as often as every other, or more often as far as that is known ([`Weights`]), and sets of the most used and smallest
//! ones are compared as settings are.

use super::keys::{Extract, SETS, Scout, Weights};
use super::result::ExtractionReport;
use super::rows::{Extraction, KEYS, KeyType, REST, StoredTable, TODAY as STORED, no_such_key};
use super::target::{self, ExtractionTarget, Migrated};
use crate::advise::advisor::{Advisor, TableFacts};
use crate::advise::candidate::{AdviseError, Variants};
use crate::advise::estimate::{CpuTime, Figure, Figures, FurtherCosts, Scope, figures};
use crate::advise::plan::SamplePlan;
use crate::advise::reading::Reading;
use crate::advise::recommend::{Exclusion, Goal, Optimize, Weighed, recommend};
use crate::advise::result::Report;
use crate::server::catalog::Relation;
use crate::usage::keys::KnownUses;
use crate::usage::workload::{KnownUse, Workload};
use toast_format::model::Interval;
use toast_format::model::cost::Pricing;

/// The sample is read again so often at most because values do not fit the types that others have: integer,
/// bigint, numeric, jsonb.
const WIDENED: usize = 4;

/// What is to be extracted from one table.
#[derive(Debug, Clone, Default)]
pub(in crate::advise) struct WantedKeys {
    pub(in crate::advise) what: Option<Extract>,
    /// The table whose partition it is. Another one may have the keys that it does not.
    pub(in crate::advise) parent: Option<Migrated>,
    /// The types that others' values have.
    pub(in crate::advise) types: Option<Vec<KeyType>>,
}

/// What `--extract auto` looks at beforehand.
pub(in crate::advise) struct Beforehand<'a> {
    pub(in crate::advise) facts: &'a TableFacts,
    /// Blocks of the relation.
    pub(in crate::advise) total: u32,
    /// Bytes of documents in a block.
    pub(in crate::advise) bytes_per_block: f64,
    /// What is known of the use of keys.
    pub(in crate::advise) known: Option<&'a KnownUses>,
}

impl Reading<'_> {
    /// Begins to extract what is asked of a column. Where no key pays, nothing is extracted.
    pub(in crate::advise) async fn extract(
        &mut self,
        what: &Extract,
        wanted: &WantedKeys,
        v: &Variants,
        beforehand: &Beforehand<'_>,
    ) -> Result<(), AdviseError> {
        self.documents.column = v.column;
        let method = beforehand.facts.compression.default;
        let stored = StoredTable {
            table: self.relation.table(method, self.advisor.server.page_size),
            settings: v.present,
            default_method: method,
            fillfactor: self.relation.fillfactor(),
        };
        let parent = wanted.parent.as_ref();
        self.documents.extractions = match what {
            Extract::Keys(keys) => {
                let target = self.target(parent, v.column, keys, false).await?;
                let mut extraction = Extraction::new(target, stored, false);
                if let Some(types) = &wanted.types {
                    extraction.assume(types);
                }
                vec![extraction]
            }
            Extract::Auto => self.best(parent, v, &stored, beforehand).await?.into_iter().collect(),
        };
        self.begin_rests().await
    }

    async fn target(
        &self,
        parent: Option<&Migrated>,
        column: usize,
        keys: &[String],
        skips_unfit: bool,
    ) -> Result<ExtractionTarget, AdviseError> {
        let client = self.advisor.client();
        target::target(client, self.relation, parent, column, keys, skips_unfit).await
    }

    /// The set of keys that pays most, by a few blocks.
    async fn best(
        &mut self,
        parent: Option<&Migrated>,
        v: &Variants,
        stored: &StoredTable,
        beforehand: &Beforehand<'_>,
    ) -> Result<Option<Extraction>, AdviseError> {
        self.target(parent, v.column, &[], true).await?;
        let Beforehand { facts, total, bytes_per_block, .. } = *beforehand;
        let options = &self.advisor.options;
        let plan = SamplePlan::few(options.seed, total, bytes_per_block);
        // no other candidate is compared here
        let all = v.all.first().cloned().into_iter().collect();
        let bare = [Variants { all, methods: Vec::new(), ..v.clone() }];
        self.documents.scout = Some(Scout::default());
        let looked = self.tallies(&plan, &bare, stored.fillfactor).await;
        let scout = self.documents.scout.take().unwrap_or_default();
        self.forget();
        looked?;
        let nothing = KnownUses::default();
        let known = beforehand.known.unwrap_or(&nothing);
        let weights = Weights::of_keys(&scout.common_keys(), &v.name, known);
        let keys = scout.candidates(&weights);
        let target = self.target(parent, v.column, &keys, true).await?;
        if target.keys.is_empty() {
            return Ok(None);
        }
        let mut sizes = SETS.map(|size| size.min(target.keys.len())).to_vec();
        sizes.dedup();
        for size in sizes {
            let keys = target.keys.iter().take(size).cloned().collect();
            let target = ExtractionTarget { keys, ..target.clone() };
            self.documents.extractions.push(Extraction::new(target, stored.clone(), true));
        }
        self.tallies(&plan, &bare, stored.fillfactor).await?;
        self.forget();
        let scope = Scope {
            total_blocks: total,
            complete: false,
            page: self.advisor.server.page_size,
            logical: facts.logical,
            toast_file: u64::MAX,
        };
        let rows = facts.counters.live;
        let workload = Workload::new(&KnownUse {
            reads_per_write: options.reads_per_write,
            statements: None,
            counters: &facts.counters,
            period: facts.period,
            values: rows,
            out_of_line: rows,
        });
        let sets = std::mem::take(&mut self.documents.extractions);
        // keys get columns of their own so that they are read faster
        let optimize = match options.optimize {
            Optimize::Balanced => Optimize::Read,
            other => other,
        };
        let goal = Goal { optimize, workload, prices: options.prices, ..Goal::default() };
        let best = choose(&sets, &weights, &scope, &goal);
        let best = best.and_then(|best| sets.get(best)).map(Extraction::again);
        Ok(best.map(|best| best.weighed(weights.known)))
    }

    /// Begins the sample again where a later block had what the types of the first ones do not hold; `passes`: how
    /// often it was read.
    pub(in crate::advise) fn widen(&mut self, passes: usize) -> bool {
        let widened = self.documents.extractions.first().and_then(Extraction::widened);
        match widened {
            Some(again) if passes <= WIDENED => {
                self.documents.extractions = vec![again];
                self.forget();
                true
            }
            _ => false,
        }
    }
}

/// The set that pays most, by its index; `None` if none is worth rewriting the table.
fn choose(sets: &[Extraction], weights: &Weights, scope: &Scope, goal: &Goal) -> Option<usize> {
    let mut weighed = Vec::with_capacity(sets.len() + 1);
    for (rank, set) in sets.iter().enumerate() {
        let all = figures(&set.tally, scope, &Pricing::default(), 0);
        let today = all.get(STORED)?;
        let rest = all.get(REST)?;
        if weighed.is_empty() {
            weighed.push(Weighed::new(today, today, None, None, goal));
        }
        let keys = set.target.keys.iter().map(|key| weights.part(&key.key));
        let keys: Vec<(f64, &Figures)> = keys.zip(all.get(KEYS..)?).collect();
        let figures = used(rest, &keys, today);
        let is_refused = set.tally.tallies().get(REST)?.refused > 0.0;
        let exclusion = if is_refused { Some(Exclusion::Refused) } else { None };
        let rank = u8::try_from(rank + 1).unwrap_or(u8::MAX);
        weighed.push(Weighed::new(&figures, today, exclusion, Some(rank), goal));
    }
    recommend(&weighed).choice.checked_sub(1)
}

/// What a table costs of which these parts of all uses are of keys in columns, and the others of the rest.
fn used(rest: &Figures, keys: &[(f64, &Figures)], today: &Figures) -> Figures {
    let others = 1.0 - keys.iter().map(|(part, _)| part).sum::<f64>().min(1.0);
    let mean = |of: fn(&Figures) -> &Figure| {
        let value = |figures: &Figures| of(figures).value.estimate;
        let of_keys = keys.iter().map(|(part, figures)| part * value(figures)).sum::<f64>();
        let mean = of_keys + others * value(rest);
        let before = value(today);
        let change = (before > 0.0).then(|| Interval::exact(mean / before - 1.0));
        Figure { value: Interval::exact(mean), change }
    };
    Figures {
        read_buffers: mean(|f| &f.read_buffers),
        read_cpu_ns: CpuTime { figure: mean(|f| &f.read_cpu_ns.figure), ..rest.read_cpu_ns },
        update_bytes: mean(|f| &f.update_bytes),
        update_wal_bytes: mean(|f| &f.update_wal_bytes),
        costs: FurtherCosts::default(),
        ..*rest
    }
}

impl Advisor {
    /// The reports on all partitions.
    pub(in crate::advise) async fn partitions(
        &self,
        parent: &Migrated,
        partitions: &[Relation],
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let mut wanted = WantedKeys {
            what: self.options.extract.clone(),
            parent: Some(parent.clone()),
            types: None,
        };
        let mut known_uses = Vec::new();
        if let (Some(Extract::Auto), Some(largest)) =
            (&wanted.what, partitions.iter().max_by_key(|one| one.bytes_with_toast()))
        {
            let reports = self.wanting(largest, columns, &wanted).await?;
            let chosen = reports.iter().find_map(|report| report.extraction.as_ref());
            known_uses = chosen.map_or_else(Vec::new, |chosen| chosen.known_uses.clone());
            wanted.what = chosen.map(|chosen| {
                Extract::Keys(chosen.keys.iter().map(|key| key.key.clone()).collect())
            });
        }
        let mut reports = self.partition_reports(partitions, columns, &wanted).await?;
        if let Some(Extract::Keys(keys)) = &wanted.what {
            let found = types(&reports, keys.len());
            if let Some(at) = found.iter().position(Option::is_none) {
                let column = reports.first().map_or("", |report| report.column.as_str());
                let key = keys.get(at).map_or("", String::as_str);
                let complete = reports.iter().all(|report| report.sample.complete);
                return Err(no_such_key(column, key, complete, ""));
            }
            let all: Vec<KeyType> = found.into_iter().flatten().collect();
            if extractions(&reports).any(|one| one.keys.iter().map(|key| key.kind).ne(all.clone()))
            {
                wanted.types = Some(all);
                reports = self.partition_reports(partitions, columns, &wanted).await?;
            }
        }
        let script = extractions(&reports).next().map(|one| one.script.clone());
        let auto = self.options.extract == Some(Extract::Auto);
        for extraction in reports.iter_mut().filter_map(|report| report.extraction.as_mut()) {
            extraction.auto = auto;
            extraction.known_uses.clone_from(&known_uses);
            extraction.script = script.clone().unwrap_or_default();
        }
        Ok(reports)
    }

    async fn partition_reports(
        &self,
        partitions: &[Relation],
        columns: &[String],
        wanted: &WantedKeys,
    ) -> Result<Vec<Report>, AdviseError> {
        let mut reports = Vec::with_capacity(partitions.len());
        for partition in partitions {
            reports.extend(self.wanting(partition, columns, wanted).await?);
        }
        Ok(reports)
    }
}

fn extractions(reports: &[Report]) -> impl Iterator<Item = &ExtractionReport> {
    reports.iter().filter_map(|report| report.extraction.as_ref())
}

/// The types of the keys' values in all partitions; `None` where none has one.
fn types(reports: &[Report], keys: usize) -> Vec<Option<KeyType>> {
    let mut types: Vec<Option<KeyType>> = vec![None; keys];
    for extraction in extractions(reports) {
        for (all, key) in types.iter_mut().zip(&extraction.keys) {
            if key.values > 0 {
                *all = Some(all.map_or(key.kind, |all| all.or(key.kind)));
            }
        }
    }
    types
}

/// What all of them would take together, today and then.
pub(in crate::advise) fn together(parent: &Migrated, reports: &[Report]) -> Option<String> {
    let today: f64 = extractions(reports).map(|one| one.total_bytes_today.value.estimate).sum();
    let then: f64 = extractions(reports).map(|one| one.files.total_bytes.value.estimate).sum();
    extractions(reports).next().map(|_| {
        format!(
            "{}: its partitions take {} kB, as VACUUM FULL would leave them, and {} kB with these keys in columns \
             of their own; --emit sql prints one migration for all of them",
            parent.display_name(),
            (today / 1024.0).round(),
            (then / 1024.0).round()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_used_as_its_keys_are() {
        let of = |read: f64| Figures {
            read_cpu_ns: CpuTime {
                figure: Figure { value: Interval::exact(read), change: None },
                calibrated: false,
            },
            ..Figures::default()
        };
        let used = used(&of(90.0), &[(0.25, &of(10.0)), (0.25, &of(20.0))], &of(100.0));
        assert_eq!(used.read_cpu_ns.figure.value.estimate, 52.5);
        assert!((used.read_cpu_ns.figure.change.unwrap().estimate + 0.475).abs() < 1e-9);
    }
}
