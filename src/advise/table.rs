//! The advice on one table: its sample read, added up and turned into reports.

use std::sync::Arc;

use super::advisor::{AdviseError, Advisor};
use super::candidate::Abilities;
use super::facts;
use super::plan::{Done, SamplePlan};
use super::pluggable::Pluggable;
use super::reading::Reading;
use super::report::{Gathered, report};
use super::request::Options;
use super::result::{Files, Report};
use super::variant::{self, Variants};
use crate::codec::datum;
use crate::heap::problem::Problems;
use crate::inspect::result::ServerReport;
use crate::server::about::Pageinspect;
use crate::server::catalog::Relation;
use crate::server::pages::PageReader;
use crate::server::snapshot;
use crate::server::trial::Trial;

impl Advisor {
    /// The named columns of one relation, or without any those that hold most, biggest first, each with its
    /// advice.
    pub async fn relation(
        &self,
        relation: &Relation,
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let pageinspect = self.pageinspect(relation)?;
        if self.options.exact && self.server.in_recovery {
            return Err(AdviseError::ExactOnStandby);
        }
        let result = self.by_pages(relation, columns, pageinspect).await;
        // Temporary tables go with the transaction. If this fails the connection is gone, as the
        // next query will say.
        let _ = snapshot::abandon(self.client()).await;
        result
    }

    async fn by_pages(
        &self,
        relation: &Relation,
        columns: &[String],
        pageinspect: &Pageinspect,
    ) -> Result<Vec<Report>, AdviseError> {
        let name = relation.display_name();
        let live = |error| AdviseError::Live { relation: name.clone(), error };
        let named = variant::named_columns(relation, columns)?;
        // a transaction of its own, for a statement of it may fail
        let ask = async || facts::ask(self.client(), relation).await;
        let facts = self.connection.reading(ask).await.map_err(live)?;
        let moment = if self.options.exact {
            snapshot::begin_writable(&self.connection).await
        } else {
            snapshot::begin(&self.connection).await
        }
        .map_err(live)?;
        let reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            self.server.page_size,
            relation.quoted(),
            moment.snapshot,
        )
        .await
        .map_err(live)?;
        let mut run = Reading {
            advisor: self,
            relation,
            reader,
            compressor: datum::Compressor::new(),
            trials: Vec::new(),
            problems: Problems::default(),
            done: Done::default(),
            fetched_bytes: 0,
            rows_examined: 0,
            pluggable: Vec::new(),
        };
        let total = run.reader.block_count().await.map_err(live)?;
        let probe = run.probe(total).await?;
        let columns = if named.is_empty() { probe.biggest(relation)? } else { named };
        let abilities = Abilities { lz4: facts.lz4, page: self.server.page_size };
        let mut variants = Vec::with_capacity(columns.len());
        for &column in &columns {
            variants.push(Variants::new(
                relation,
                &facts,
                column,
                &self.options.narrowing,
                abilities,
            )?);
        }
        let page = self.server.page_size;
        if self.options.exact {
            for v in &variants {
                let column = (v.column, v.name.as_str());
                let trial = Trial::new(relation.quoted(), column, v.is_array, &v.methods, page);
                trial.make(self.client()).await.map_err(live)?;
                run.trials.push(trial);
            }
        }
        run.pluggable = variants
            .iter()
            .filter_map(|v| Pluggable::of(v.column, &v.type_name, page, v.present.target))
            .collect();
        let Options { sample, seed, .. } = self.options;
        let compressed = variants.iter().filter(|v| !v.methods.is_empty()).map(|v| v.column);
        let bytes = probe.bytes_per_block(&compressed.collect::<Vec<_>>());
        let plan = SamplePlan::new(sample, seed, total, bytes);
        tracing::debug!(
            "{name}: {} columns; {} of {total} blocks, {:.1} % of their rows, {bytes:.0} bytes a block to fetch",
            columns.len(),
            plan.sample.chosen(),
            plan.fraction * 100.0
        );
        let tallies = run.all(&plan, &variants, facts.fillfactor).await?;
        let gathered = |tally, variants| Gathered {
            server: ServerReport {
                version: self.server.version.clone(),
                version_num: self.server.version_num,
                database: self.server.database.clone(),
                in_recovery: self.server.in_recovery,
            },
            relation,
            facts: &facts,
            variants,
            tally,
            plan: &plan,
            done: run.done,
            limit: plan.limit(&run.done),
            rows_examined: run.rows_examined,
            fetched_bytes: run.fetched_bytes,
            files: files(relation, total, self.server.page_size.bytes() as u64),
            problems: &run.problems,
            pluggable: &run.pluggable,
            options: &self.options,
            page: self.server.page_size,
        };
        Ok(variants.iter().zip(&tallies).map(|(v, tally)| report(&gathered(tally, v))).collect())
    }
}

fn files(relation: &Relation, blocks: u32, page: u64) -> Files {
    let heap_bytes = u64::from(blocks) * page;
    let (toast_bytes, toast_index_bytes) =
        relation.toast.as_ref().map_or((0, 0), |toast| (toast.bytes, toast.index_bytes));
    Files {
        heap_bytes,
        toast_bytes,
        toast_index_bytes,
        total_bytes: heap_bytes + toast_bytes + toast_index_bytes,
    }
}
