//! Keys extracted from a partitioned table: each partition is priced for itself, with columns of the same types, and
//! the script is the parent's.

use super::advisor::{AdviseError, Advisor};
use super::extract::keys::{Extract, Keys};
use super::extract::kind::KeyType;
use super::extract::parent::Migrated;
use super::extract::result::ExtractionReport;
use super::extract::target::ExtractError;
use super::extracting::Wanted;
use super::result::Report;
use crate::server::catalog::Relation;

impl Advisor {
    /// The reports on all partitions.
    pub(super) async fn partitions(
        &self,
        parent: &Migrated,
        partitions: &[Relation],
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let mut wanted = Wanted {
            what: self.options.extract.clone(),
            parent: Some(parent.clone()),
            types: None,
        };
        let bytes = |relation: &&Relation| {
            relation.bytes.saturating_add(relation.toast.as_ref().map_or(0, |toast| toast.bytes))
        };
        let mut known_uses = Vec::new();
        if let (Some(Extract::Auto), Some(largest)) =
            (&wanted.what, partitions.iter().max_by_key(bytes))
        {
            let reports = self.wanting(largest, columns, &wanted).await?;
            let chosen = reports.iter().find_map(|report| report.extraction.as_ref());
            known_uses = chosen.map_or_else(Vec::new, |chosen| chosen.known_uses.clone());
            let keys = |chosen: &ExtractionReport| {
                chosen.keys.iter().map(|key| key.key.clone()).collect::<Vec<String>>()
            };
            wanted.what = chosen.map(|chosen| Extract::Keys(Keys(keys(chosen))));
        }
        let mut reports = self.each(partitions, columns, &wanted).await?;
        if let Some(Extract::Keys(keys)) = &wanted.what {
            let found = types(&reports, keys.0.len());
            if let Some(at) = found.iter().position(Option::is_none) {
                return Err(ExtractError::NoSuchKey {
                    column: reports.first().map_or_else(String::new, |r| r.column.clone()),
                    key: keys.0.get(at).cloned().unwrap_or_default(),
                    sampled: if reports.iter().all(|r| r.sample.complete) {
                        ""
                    } else {
                        " in the sample"
                    },
                    hint: String::new(),
                }
                .into());
            }
            let all: Vec<KeyType> = found.into_iter().flatten().collect();
            if extractions(&reports).any(|one| one.keys.iter().map(|key| key.kind).ne(all.clone()))
            {
                wanted.types = Some(all);
                reports = self.each(partitions, columns, &wanted).await?;
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

    async fn each(
        &self,
        partitions: &[Relation],
        columns: &[String],
        wanted: &Wanted,
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
pub(super) fn together(parent: &Migrated, reports: &[Report]) -> Option<String> {
    let sum = |of: fn(&ExtractionReport) -> f64| extractions(reports).map(of).sum::<f64>();
    let today = sum(|one| one.total_bytes_today.0.value.estimate);
    let then = sum(|one| one.total_bytes.0.value.estimate);
    extractions(reports).next().map(|_| {
        format!(
            "notice: {}: its partitions take {} kB, as VACUUM FULL would leave them, and {} kB with these keys in columns \
             of their own; --emit sql prints one migration for all of them",
            parent.display_name(),
            (today / 1024.0).round(),
            (then / 1024.0).round()
        )
    })
}
