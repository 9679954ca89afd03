//! The advice on one table: its sample read, added up and turned into reports.

use super::advisor::{Advisor, Options, TableFacts};
use super::calibration::Calibrated;
use super::candidate::{Abilities, AdviseError, Variants, named_columns};
use super::extract::choose::{Beforehand, WantedKeys};
use super::extract::keys::Extract;
use super::extract::target;
use super::plan::SamplePlan;
use super::pluggable::Pluggable;
use super::reading::Reading;
use super::report::{ColumnSample, Subject};
use super::result::{Access, CompactionReport, Report};
use super::tally::Tally;
use super::together;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::owner_facts::begin_reading;
use crate::server::snapshot;
use crate::usage::keys::KnownUses;
use toast_format::disk::PageSize;
use toast_format::heap::problem::Problems;

impl Advisor {
    /// The named columns of one relation, or without any those that hold most, biggest first, each with its
    /// advice.
    pub async fn relation(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let what = self.options.extract.clone();
        self.wanting(relation, columns, &WantedKeys { what, ..WantedKeys::default() }).await
    }

    /// As [`Advisor::relation`], without a look at what compaction would return.
    pub(crate) async fn settings(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let access = self.access(relation).await?;
        self.read(relation, columns, access, &WantedKeys::default()).await
    }

    /// As [`Advisor::relation`], with this extracted.
    pub(super) async fn wanting(
        &self,
        relation: &Relation,
        columns: &[String],
        wanted: &WantedKeys,
    ) -> Result<Vec<Report>, AdviseError> {
        let access = self.access(relation).await?;
        if self.options.exact && self.server.in_recovery {
            return Err(AdviseError::ExactOnStandby);
        }
        let mut reports = self.read(relation, columns, access, wanted).await?;
        let estimated = reports.iter().find_map(|report| report.compaction.as_ref());
        let mut problems = Problems::default();
        let compaction = self.compaction(relation, access, estimated, &mut problems).await;
        for report in &mut reports {
            report.problems.merge_new(problems.clone());
            report.notes.extend(compaction.as_ref().map(CompactionReport::note));
            report.compaction.clone_from(&compaction);
        }
        Ok(reports)
    }

    async fn read(
        &self,
        relation: &Relation,
        columns: &[String],
        access: Access,
        wanted: &WantedKeys,
    ) -> Result<Vec<Report>, AdviseError> {
        let name = relation.display_name();
        let live = |error| AdviseError::Live { relation: name.clone(), error };
        let mut named = named_columns(relation, columns)?;
        if wanted.what.is_some() {
            named = vec![target::column(relation, &named)?];
        }
        let known = match &wanted.what {
            Some(Extract::Auto) => {
                Some(KnownUses::ask(&self.connection, relation).await.map_err(live)?)
            }
            _ => None,
        };
        let facts = self
            .connection
            .reading(async || TableFacts::ask(self.client(), &self.server, relation).await)
            .await
            .map_err(live)?;
        let run = self.begin(relation, access).await.map_err(live)?;
        let result = self.compare(run, access, &facts, named, known.as_ref(), wanted).await;
        // Temporary tables go with the transaction. If this fails the connection is gone, as the
        // next query will say.
        let _ = snapshot::abandon(self.client()).await;
        result
    }

    /// Compares settings of these columns in the transaction that was begun.
    async fn compare(
        &self,
        mut run: Reading<'_>,
        access: Access,
        facts: &TableFacts,
        named: Vec<usize>,
        known: Option<&KnownUses>,
        wanted: &WantedKeys,
    ) -> Result<Vec<Report>, AdviseError> {
        let relation = run.relation;
        let (total, probe, columns) = run.probed(named).await?;
        let variants = self.variants(relation, &columns, facts)?;
        let page = self.server.page_size;
        if self.options.compresses_on_server(access) {
            run.begin_trials(&variants).await?;
        }
        let Options { sample, seed, .. } = self.options;
        let extract = wanted.what.as_ref().zip(variants.first());
        let bytes = probe.bytes_per_block(&looked_into(&variants, extract.is_some()));
        if let Some((what, v)) = extract {
            let beforehand = Beforehand { facts, total, bytes_per_block: bytes, known };
            run.extract(what, wanted, v, &beforehand).await?;
        }
        run.pluggable = pluggable(&variants, page);
        let plan = SamplePlan::new(sample, seed, total, bytes);
        tracing::debug!(
            "{}: {} columns; {} of {total} blocks, {:.1} % of their rows, {bytes:.0} bytes a block to fetch",
            relation.display_name(),
            columns.len(),
            plan.sample.chosen(),
            plan.fraction * 100.0
        );
        let mut tallies = run.tallies(&plan, &variants, relation.fillfactor()).await?;
        let mut passes = 1;
        while run.widen(passes) {
            run.pluggable = pluggable(&variants, page);
            tallies = run.tallies(&plan, &variants, relation.fillfactor()).await?;
            passes += 1;
        }
        if let (Some(extraction), None) = (run.documents.extractions.first(), &wanted.parent) {
            extraction.check(plan.is_complete(&run.done))?;
        }
        let calibrated = self.calibrated(relation, &variants, &run.specimens).await?;
        let read = run.take(access, &plan);
        let subject = Subject {
            relation,
            options: &self.options,
            server: &self.server,
            facts,
            read,
            extraction: run.documents.extractions.first(),
            shards: None,
            partitions: None,
            partition_names: Vec::new(),
        };
        Ok(reports(&subject, &variants, &tallies, &calibrated))
    }

    /// Begins the transaction in which a relation is read.
    pub(super) async fn begin<'a>(
        &'a self,
        relation: &'a Relation,
        access: Access,
    ) -> Result<Reading<'a>, LiveError> {
        let moment = if self.options.compresses_on_server(access) {
            Box::pin(begin_reading(&self.connection, relation, true)).await?
        } else {
            snapshot::begin(&self.connection).await?
        };
        let reading = Reading::new(self, relation, access, moment.snapshot).await;
        if reading.is_err() {
            let _ = snapshot::abandon(self.client()).await;
        }
        reading
    }

    /// What is compared for these columns.
    pub(super) fn variants(
        &self,
        relation: &Relation,
        columns: &[usize],
        facts: &TableFacts,
    ) -> Result<Vec<Variants>, AdviseError> {
        let abilities = Abilities { compression: facts.compression, page: self.server.page_size };
        let narrowing = &self.options.narrowing;
        columns
            .iter()
            .map(|&column| Variants::new(relation, column, columns, narrowing, abilities))
            .collect()
    }
}

/// The toasters of pluggable TOAST for these columns.
pub(super) fn pluggable(variants: &[Variants], page: PageSize) -> Vec<Pluggable> {
    variants
        .iter()
        .filter_map(|v| Pluggable::new(v.column, &v.type_name, page, v.present.target))
        .collect()
}

/// The columns whose values are decompressed, or taken apart.
pub(super) fn looked_into(variants: &[Variants], extracts: bool) -> Vec<usize> {
    variants.iter().filter(|v| !v.methods.is_empty() || extracts).map(|v| v.column).collect()
}

/// The report on each column.
pub(super) fn reports(
    subject: &Subject<'_>,
    variants: &[Variants],
    tallies: &[Tally],
    calibrated: &[Calibrated],
) -> Vec<Report> {
    let mut samples = Vec::with_capacity(variants.len());
    for ((variants, tally), calibrated) in variants.iter().zip(tallies).zip(calibrated) {
        samples.push(ColumnSample { subject, variants, tally, calibrated });
    }
    together::reports(&samples)
}
