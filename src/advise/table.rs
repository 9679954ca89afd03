//! The advice on one table: its sample read, added up and turned into reports.

use super::advisor::{Access, Advisor, Options, TableFacts};
use super::candidate::{Abilities, AdviseError, Variants, named_columns};
use super::compaction;
use super::extract::choose::{Beforehand, Wanted};
use super::extract::keys::Extract;
use super::extract::target;
use super::plan::SamplePlan;
use super::pluggable::Pluggable;
use super::reading::Reading;
use super::report::{Gathered, report};
use super::result::Report;
use crate::heap::problem::Problems;
use crate::server::catalog::Relation;
use crate::server::snapshot;
use crate::usage::keys::KnownUses;

impl Advisor {
    /// The named columns of one relation, or without any those that hold most, biggest first, each with its
    /// advice.
    pub async fn relation(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let what = self.options.extract.clone();
        self.wanting(relation, columns, &Wanted { what, ..Wanted::default() }).await
    }

    /// As [`Advisor::relation`], with this extracted.
    pub(super) async fn wanting(
        &self,
        relation: &Relation,
        columns: &[String],
        wanted: &Wanted,
    ) -> Result<Vec<Report>, AdviseError> {
        let access = self.access(relation).await?;
        if self.options.exact && self.server.in_recovery {
            return Err(AdviseError::ExactOnStandby);
        }
        let result = self.read(relation, columns, access, wanted).await;
        // Temporary tables go with the transaction. If this fails the connection is gone, as the
        // next query will say.
        let _ = snapshot::abandon(self.client()).await;
        let mut reports = result?;
        let estimated = reports.iter().find_map(|report| report.compaction.as_ref());
        let mut problems = Problems::default();
        let compaction = self.compaction(relation, access, estimated, &mut problems).await;
        for report in &mut reports {
            report.problems.merge_new(problems.clone());
            report.notes.extend(compaction.as_ref().map(compaction::note));
            report.compaction.clone_from(&compaction);
        }
        Ok(reports)
    }

    async fn read(
        &self,
        relation: &Relation,
        columns: &[String],
        access: Access,
        wanted: &Wanted,
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
        let ask = async || TableFacts::ask(self.client(), relation).await;
        let facts = self.connection.reading(ask).await.map_err(live)?;
        let on_server = self.compresses_on_server(access);
        let moment = if on_server {
            snapshot::begin_writable(&self.connection).await
        } else {
            snapshot::begin(&self.connection).await
        }
        .map_err(live)?;
        let run = Reading::new(self, relation, access, moment.snapshot).await;
        let mut run = run.map_err(live)?;
        let total = run.block_count().await?;
        let mut probe = run.probe(total).await?;
        let columns = if named.is_empty() { probe.biggest(relation)? } else { named };
        run.weigh(&mut probe, &columns).await?;
        let abilities = Abilities { compression: facts.compression, page: self.server.page_size };
        let mut variants = Vec::with_capacity(columns.len());
        for &column in &columns {
            variants.push(Variants::new(relation, column, &self.options.narrowing, abilities)?);
        }
        let page = self.server.page_size;
        if on_server {
            run.begin_trials(&variants).await?;
        }
        let pluggable = || {
            let toaster =
                |v: &Variants| Pluggable::of(v.column, &v.type_name, page, v.present.target);
            variants.iter().filter_map(toaster).collect()
        };
        let Options { sample, seed, .. } = self.options;
        let extract = wanted.what.as_ref().zip(variants.first());
        let looked_into = |v: &&Variants| !v.methods.is_empty() || extract.is_some();
        let looked_into = variants.iter().filter(looked_into).map(|v| v.column);
        let bytes = probe.bytes_per_block(&looked_into.collect::<Vec<_>>());
        if let Some((what, v)) = extract {
            let beforehand =
                Beforehand { facts: &facts, total, bytes_per_block: bytes, known: known.as_ref() };
            run.extract(what, wanted, v, &beforehand).await?;
        }
        run.pluggable = pluggable();
        let plan = SamplePlan::new(sample, seed, total, bytes);
        tracing::debug!(
            "{name}: {} columns; {} of {total} blocks, {:.1} % of their rows, {bytes:.0} bytes a block to fetch",
            columns.len(),
            plan.sample.chosen(),
            plan.fraction * 100.0
        );
        let mut tallies = run.all(&plan, &variants, relation.fillfactor()).await?;
        let mut passes = 1;
        while run.widen(passes) {
            run.pluggable = pluggable();
            tallies = run.all(&plan, &variants, relation.fillfactor()).await?;
            passes += 1;
        }
        if let (Some(extraction), None) = (run.documents.extractions.first(), &wanted.parent) {
            extraction.check(plan.is_complete(&run.done))?;
        }
        let calibrated = self.calibrated(relation, &variants, &run.specimens).await?;
        let gathered = |tally, variants, calibrated| Gathered {
            reading: &run,
            access,
            facts: &facts,
            plan: &plan,
            variants,
            tally,
            calibrated,
        };
        let all = variants.iter().zip(&tallies).zip(&calibrated);
        Ok(all.map(|((v, tally), calibrated)| report(&gathered(tally, v, calibrated))).collect())
    }
}
