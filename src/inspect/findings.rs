//! Findings about a table of a live server: facts are collected and rules are applied; among them how the table is
//! used, by its counters, and what `pg_stat_statements` shows about its columns and the keys of their documents.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;

use tokio_postgres::error::SqlState;

use super::figures::note_failed_findings;
use super::finding_look::{Evidence, PageFacts, Partial, is_wanted, noted};
use super::inspector::Inspector;
use super::overview::CHUNK_OVERHEAD;
use super::result::{
    ColumnFigures, FormFigures, NotAvailable, RelationReport, Source, ToastFigures,
};
use crate::advise::advisor::{self, Advisor};
use crate::advise::calibration::Calibrate;
use crate::advise::result::Report;
use crate::command::TableName;
use crate::findings::code::{Severity, WORTH};
use crate::findings::facts::{
    BloatedIndex, ColumnFacts, Contents, DamageFacts, Facts, IdUse, ServerFacts, ToastFacts,
    ToasterFacts, VALUE_IDS,
};
use crate::findings::finding::rank;
use crate::findings::look::RowFacts;
use crate::findings::rules;
use crate::findings::rules::settings::are_many_ids;
use crate::findings::rules::usage::{has_documents, is_worth};
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::Relation;
use crate::server::holders;
use crate::server::index_scan::{Bloat, IndexFill, IndexScan};
use crate::server::toasters::{self, SetToaster};
use crate::testing;
use crate::usage::hot;
use crate::usage::keys::KnownUses;
use crate::usage::statements::{ColumnUse, Statements};
use crate::usage::upkeep::Upkeep;
use crate::usage::workload::{Counters, UseCounts};
use toast_format::codec::Method;
use toast_format::disk::{Attribute, Length, PageSize, Storage};
use toast_format::fill::deaths::Deaths;
use toast_format::fill::meter::FileFill;
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::SEED;
use toast_format::model::{Form, Interval};

/// The progress of the advice on a table, after that of its scan.
struct AdviceProgress(Arc<dyn Progress>);

impl Progress for AdviceProgress {
    fn begin(&self, relation: &str, blocks: u64) {
        self.0.begin(&format!("{relation}: advice"), blocks);
    }

    fn advance(&self, blocks: u64) {
        self.0.advance(blocks);
    }

    fn end(&self) {
        self.0.end();
    }
}

impl Inspector {
    /// An examination of a relation's indexes that will begin; none if it is not a table.
    pub(super) fn index_scan(&self, relation: &Relation, source: Source) -> Option<IndexScan> {
        let pageinspect =
            if source == Source::Pageinspect { self.server.pageinspect.clone() } else { None };
        is_wanted(relation)
            .then(|| IndexScan::new(pageinspect, self.server.page_size, relation.oid))
    }

    /// Examines a relation's indexes over all connections, which are in no transaction.
    ///
    /// # Errors
    /// Failures that end more than a transaction.
    pub(super) async fn indexes(
        &self,
        relation: &Relation,
        source: Source,
    ) -> Result<Partial<Vec<IndexFill>>, LiveError> {
        match self.index_scan(relation, source) {
            Some(scan) => in_reach(scan.over(&self.connections).await),
            None => Ok(Partial::complete(Vec::new())),
        }
    }

    /// Adds the findings about a relation to its report, which is otherwise complete; none if it is not a table. An
    /// error of the server that has kept some back is a problem of the report. `worth`: fewer bytes are not looked at
    /// further.
    ///
    /// # Errors
    /// Failures that end more than a transaction.
    pub(super) async fn add_findings(
        &self,
        relation: &Relation,
        evidence: Partial<Evidence>,
        report: &mut RelationReport,
        worth: u64,
    ) -> Result<(), LiveError> {
        let mut failed = evidence.failed;
        if is_wanted(relation) {
            let facts = self.facts(relation, evidence.obtained, report, worth).await?;
            report.read.not_available.extend(not_judged(&facts.obtained, report));
            report.findings = Some(rules::findings(&facts.obtained));
            report.facts = Some(Box::new(facts.obtained));
            failed = failed.or(facts.failed);
        }
        note_failed_findings(report, failed.as_ref());
        Ok(())
    }

    /// Puts the advice on their columns next to the findings that are symptoms of settings. Where pages cannot be read, they
    /// keep the command that asks for it. Findings less severe than `least` are left as they are.
    pub(super) async fn add_advice(
        &self,
        relation: &Relation,
        report: &mut RelationReport,
        least: Severity,
    ) {
        if report.read.source != Source::Pageinspect {
            return;
        }
        let Some(found) = &mut report.findings else { return };
        let options = advisor::Options {
            sample: self.options.sampling.map(|sampling| sampling.size),
            seed: self.options.sampling.map_or(SEED, |sampling| sampling.seed),
            calibrate: Calibrate::Never,
            ..advisor::Options::default()
        };
        let progress = Arc::new(AdviceProgress(Arc::clone(&self.progress)));
        let leader = Arc::clone(&self.leader);
        let advisor = Advisor::new(leader, self.server.clone(), options, progress);
        let mut advised: HashMap<String, Option<Report>> = HashMap::new();
        let mut compacting = None;
        for finding in &mut found.findings {
            let Some(column) = finding.column.clone() else { continue };
            if !finding.code.asks_for_advice() || finding.severity > least {
                continue;
            }
            if !advised.contains_key(&column) {
                let advice = advisor.settings(relation, slice::from_ref(&column)).await;
                if let Err(error) = &advice {
                    tracing::debug!("no advice on {column}: {error}");
                }
                advised.insert(column.clone(), advice.ok().and_then(|mut reports| reports.pop()));
            }
            if let Some(Some(advice)) = advised.get(&column)
                && advice.recommendation.compares()
            {
                let command = advice.recommendation.line();
                let is_command = command.is_some();
                if advice.recommendation.command.iter().any(|word| word == "--compact") {
                    compacting = Some(finding.code);
                }
                let keeps_settings = advice.recommendation.sql.is_empty();
                let saves = advice.saves_on_disk();
                finding.take_advice(command, saves, advice.change_on_disk(), keeps_settings);
                if let (Some(what), true) = (&advice.set_off, is_command) {
                    finding.what.push_str(&format!(
                        "; retoast refuses the table until this is disabled: {what}"
                    ));
                }
            }
        }
        if let Some(code) = compacting {
            found.findings.iter_mut().for_each(|finding| finding.leave_space_to(code));
        }
        rank(&mut found.findings);
    }

    async fn facts(
        &self,
        relation: &Relation,
        evidence: Evidence,
        report: &RelationReport,
        worth: u64,
    ) -> Result<Partial<Facts>, LiveError> {
        let Evidence { pages: looked, indexes } = evidence;
        let leader = &self.leader;
        let Compression { lz4, default } = match &looked {
            Some(looked) => looked.compression,
            None => leader.reading(async || Compression::ask(leader.client()).await).await?,
        };
        let page = self.server.page_size;
        let (look, heap, toast, contents) = match looked {
            Some(PageFacts { rows, heap, toast, contents, .. }) => {
                (Some(rows), Some(heap), toast, contents)
            }
            None => (None, None, None, Vec::new()),
        };
        let mut columns = columns(relation, default, &contents, report);
        let mut found = Partial::complete(());
        if self.server.has_toasters {
            let asked = leader
                .reading(async || {
                    toasters::set_for(leader.client(), &self.server, relation.oid).await
                })
                .await;
            let set = found.take(noted(asked)?);
            add_toasters(&mut columns, &set.unwrap_or_default(), report);
        }
        let mut counters = None;
        if let Some(look) = &look {
            if lz4 {
                let used = self.use_of_pglz(relation, look, &mut columns, worth).await?;
                counters = found.take(used);
            }
            found.take(self.use_of_documents(relation, look, &mut columns).await?);
        }
        let toast_values = report.toast.as_ref().map(|toast| toast.values.real());
        let out_of_line = toast_values.unwrap_or_default();
        let toast_facts = found.take(self.toast_facts(relation, report, out_of_line, worth).await?);
        let may_be_held = may_have_dead(heap, toast, &toast_facts, worth);
        let mut horizon = None;
        if may_be_held {
            let asked =
                leader.reading(async || holders::of_horizon(leader, &self.processes).await).await;
            horizon = found.take(noted(asked)?).flatten();
        }
        let measured = indexes.iter().filter(|index| index.fresh.bytes().is_some());
        let facts = Facts {
            table: TableName::Known {
                schema: relation.schema.clone(),
                name: relation.name.clone(),
            },
            worth: WORTH,
            page,
            target: relation.tuple_target(page).map(|target| target.bytes() as u32),
            rows: report.tuples.live.real(),
            toasted: toasted(report),
            out_of_line,
            bytes: relation.bytes + toast_facts.bytes,
            columns,
            look,
            heap,
            toast,
            toast_facts,
            damage: DamageFacts {
                missing_chunks: missing_chunks(report).unwrap_or(0),
                places: report.read.problem_count,
            },
            bloated: indexes.iter().filter_map(|index| bloated(index, page)).collect(),
            server: ServerFacts {
                truncates: self.server.vacuum_truncates,
                compacts_toast: self.server.compacts_toast(),
                rebuilds_indexes: self.server.rebuilds_indexes(),
                lz4,
                has_toasters: self.server.has_toasters,
            },
            horizon,
            counters,
            measured_indexes: measured.count() as u64,
            settings_are_known: true,
        };
        Ok(Partial { obtained: facts, failed: found.failed })
    }

    /// How a relation is used, if it has columns that are worth another method than pglz; what statements show about these
    /// is stored in them.
    async fn use_of_pglz(
        &self,
        relation: &Relation,
        look: &RowFacts,
        columns: &mut [ColumnFacts],
        worth: u64,
    ) -> Result<Partial<Option<Counters>>, LiveError> {
        let slow = columns
            .iter_mut()
            .filter(|column| column.method == Method::Pglz && is_worth(look, column, worth));
        let slow: Vec<&mut ColumnFacts> = slow.collect();
        if slow.is_empty() {
            return Ok(Partial::complete(None));
        }
        let client = self.leader.client();
        let asked = self
            .leader
            .reading(async || {
                let counters = Counters::ask(client, relation).await?;
                // no statement texts are read for a table that is not used
                let statements = if counters.is_busy() {
                    Statements::ask(client, relation).await?
                } else {
                    Statements::NotInstalled
                };
                Ok::<_, LiveError>((counters, statements))
            })
            .await;
        let Partial { obtained, failed } = noted(asked)?;
        let Some((counters, statements)) = obtained else {
            return Ok(Partial { obtained: None, failed });
        };
        for column in slow {
            if let ColumnUse::Counted { reads, writes, .. } =
                statements.column_use(relation, &column.name, counters.live)
            {
                column.statements = Some(UseCounts { reads, writes });
            }
        }
        Ok(Partial::complete(Some(counters)))
    }

    /// Stores in columns of large documents which keys are used.
    async fn use_of_documents(
        &self,
        relation: &Relation,
        look: &RowFacts,
        columns: &mut [ColumnFacts],
    ) -> Result<Partial<Option<()>>, LiveError> {
        let documents = columns.iter_mut().filter(|column| {
            let attribute = relation.desc.attributes.get(column.index);
            let is_jsonb = attribute.is_some_and(|attribute| attribute.type_name == "jsonb");
            is_jsonb && look.columns.get(column.index).is_some_and(has_documents)
        });
        let documents: Vec<&mut ColumnFacts> = documents.collect();
        if documents.is_empty() {
            return Ok(Partial::complete(None));
        }
        noted(self.used_keys(relation, documents).await)
    }

    async fn toast_facts(
        &self,
        relation: &Relation,
        report: &RelationReport,
        out_of_line: Interval,
        worth: u64,
    ) -> Result<Partial<ToastFacts>, LiveError> {
        let mut found = Partial::complete(());
        let toast = relation.toast.as_ref();
        let bytes = toast.map_or(0, |toast| toast.bytes);
        let ids = toast.filter(|toast| toast.layout_is_known(&self.server)).map(|_| value_ids());
        let use_of_ids = if ids.is_some_and(|ids| are_many_ids(out_of_line, ids)) {
            found.take(noted(self.use_of_ids(relation, report).await)?).flatten()
        } else {
            None
        };
        let upkeep = if bytes >= worth && !self.server.has_toasters {
            let client = self.leader.client();
            let asked = self.leader.reading(async || Upkeep::ask(client, relation).await).await;
            found.take(noted(asked)?).unwrap_or_default()
        } else {
            Upkeep::default()
        };
        let obtained = ToastFacts {
            bytes,
            stored: stored_in_toast(report),
            upkeep,
            spare: toast_spare(relation, report, self.server.page_size),
            ids,
            use_of_ids,
        };
        Ok(Partial { obtained, failed: found.failed })
    }

    /// How fast IDs of a TOAST relation are used; `None` if the statistics do not show it.
    ///
    /// # Errors
    /// The server's.
    async fn use_of_ids(
        &self,
        relation: &Relation,
        report: &RelationReport,
    ) -> Result<Option<IdUse>, LiveError> {
        let client = self.leader.client();
        let (chunks, age) = self
            .leader
            .reading(async || {
                let counters = Counters::ask(client, relation).await?;
                let age = counters.period(client).await?;
                Ok::<_, LiveError>((counters.chunks, age))
            })
            .await?;
        let Some((chunks, toast)) = chunks.zip(report.toast.as_ref()) else { return Ok(None) };
        let values = toast.values.estimate as f64;
        let all = toast.chunks.estimate as f64;
        // per chunk and second, and per value and day
        let days = age / 86_400.0;
        let assigned = chunks.inserted * values / all / days;
        let net = (chunks.inserted - chunks.deleted) * values / all / days;
        Ok((assigned.is_finite() && assigned > 0.0).then_some(IdUse { assigned, net }))
    }

    /// Which keys of these columns' documents are used is stored in them.
    ///
    /// # Errors
    /// The server's.
    async fn used_keys(
        &self,
        relation: &Relation,
        columns: Vec<&mut ColumnFacts>,
    ) -> Result<(), LiveError> {
        let leader = &self.leader;
        let known = KnownUses::ask(leader, relation).await?;
        for column in columns {
            column.keys =
                hot::used_keys(leader, &self.server, relation, column.index, &known).await?;
        }
        Ok(())
    }
}

/// What is known about the indexes; nothing if one cannot be reached.
pub(super) fn in_reach(
    looked_at: Result<Vec<IndexFill>, LiveError>,
) -> Result<Partial<Vec<IndexFill>>, LiveError> {
    match looked_at {
        Err(LiveError::Server(error)) if is_out_of_reach(&error) => {
            Ok(Partial::complete(Vec::new()))
        }
        other => {
            let Partial { obtained, failed } = noted(other)?;
            Ok(Partial { obtained: obtained.unwrap_or_default(), failed })
        }
    }
}

/// Whether an index is locked by another session, or was dropped: then none was examined.
fn is_out_of_reach(error: &tokio_postgres::Error) -> bool {
    let out_of_reach =
        [SqlState::LOCK_NOT_AVAILABLE, SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_OBJECT];
    error.code().is_some_and(|code| out_of_reach.contains(code))
}

fn bloated(index: &IndexFill, page: PageSize) -> Option<BloatedIndex> {
    let Bloat { fresh, wal } = index.bloat(page)?;
    let index = &index.index;
    let left = index.refused().or_else(|| index.locks_long(fresh));
    Some(BloatedIndex { name: index.quoted(), bytes: index.bytes, fresh, wal, left })
}

/// Whether as much may be dead as is worth a report. Without pages, that is not known.
fn may_have_dead(
    heap: Option<FileFill>,
    toast: Option<FileFill>,
    toast_facts: &ToastFacts,
    worth: u64,
) -> bool {
    let worth = worth as f64;
    let has_dead = [heap, toast]
        .iter()
        .flatten()
        .any(|file: &FileFill| file.deaths != Deaths::default() && file.dead_bytes.high >= worth);
    has_dead || toast.is_none() && toast_facts.spare.is_some_and(|spare| spare.high >= worth)
}

/// The IDs that a TOAST relation has for values.
fn value_ids() -> f64 {
    // tests have no room for a quarter of them
    testing::setting("VALUE_IDS").unwrap_or(VALUE_IDS)
}

/// The bytes of the TOAST relation that the values of the rows do not need, if the sizes of all of them are known. A
/// value that may be there or in its row is taken to be there, and for the upper end to be in its row.
fn toast_spare(relation: &Relation, report: &RelationReport, page: PageSize) -> Option<Interval> {
    let toast = report.toast.as_ref()?;
    let is_hidden =
        |attribute: &Attribute| attribute.dropped && attribute.length == Length::Varlena;
    let all_seen = report.read.problem_count == 0 && !relation.row_security;
    if !all_seen || relation.desc.attributes.iter().any(is_hidden) {
        return None;
    }
    let mut needed: Interval = Interval::default();
    let mut least_needed = 0.0;
    for FormFigures { form, all, .. } in forms(report) {
        if !form.is_external() && !matches!(form, Form::Custom | Form::Unknown) {
            continue;
        }
        let stored = all.stored_bytes?.real();
        // each value has chunks that are full, and one that may not be
        let full = stored.scaled(1.0 / f64::from(page.toast_max_chunk_size()));
        let chunks = full.plus(all.values.real());
        let of_form = stored.plus(chunks.scaled(CHUNK_OVERHEAD as f64));
        needed = needed.plus(of_form);
        if *form != Form::Unknown {
            least_needed += of_form.low;
        }
    }
    let bytes = toast.bytes? as f64;
    Some(Interval {
        estimate: (bytes - needed.estimate).max(0.0),
        low: (bytes - needed.high).max(0.0),
        high: (bytes - least_needed).max(0.0),
    })
}

/// The forms of all columns.
fn forms(report: &RelationReport) -> impl Iterator<Item = &FormFigures> {
    report.columns.iter().flat_map(|column| &column.forms)
}

/// Bytes of the values out of line to which rows refer.
fn stored_in_toast(report: &RelationReport) -> Interval {
    let outside = forms(report).filter(|form| form.form.is_external());
    outside.fold(Interval::default(), |sum, form| {
        sum.plus(form.all.stored_bytes.unwrap_or_default().real())
    })
}

/// Values that are compressed or out of line, where all rows were read.
fn toasted(report: &RelationReport) -> Option<u64> {
    let others = forms(report).filter(|form| {
        !matches!(form.form, Form::Null | Form::Missing | Form::Short | Form::Plain)
    });
    (report.read.sample.is_none() && report.read.source == Source::Pageinspect)
        .then(|| others.map(|form| form.all.values.estimate).sum())
}

/// The columns whose storage can be chosen.
fn columns(
    relation: &Relation,
    default: Method,
    contents: &[Contents],
    report: &RelationReport,
) -> Vec<ColumnFacts> {
    let mut facts = Vec::new();
    for index in relation.toastable() {
        let Some(attribute) = relation.desc.attributes.get(index) else { continue };
        let method = attribute.compression.unwrap_or(default);
        let report = report.columns.iter().find(|report| report.column == attribute.name);
        let is_compressed = matches!(attribute.storage, Storage::Extended | Storage::Main);
        facts.push(ColumnFacts {
            other_method: match report {
                Some(report) if is_compressed => Some(other_method(report, method)),
                _ => None,
            },
            contents: contents.get(index).copied().unwrap_or_default(),
            ..ColumnFacts::new(index, attribute, method)
        });
    }
    facts
}

/// Adds the toasters that are set for columns, with the values that they would store otherwise: those that are
/// compressed or out of line as on a stock server.
fn add_toasters(columns: &mut [ColumnFacts], set: &[SetToaster], report: &RelationReport) {
    for column in columns {
        let Some(toaster) = set.iter().find(|one| one.column == column.name) else { continue };
        let figures = report.columns.iter().find(|figures| figures.column == column.name);
        let others = match figures {
            Some(figures) if toaster.owns_pointers => Some(stored_otherwise(figures, column)),
            _ => None,
        };
        column.toaster = Some(ToasterFacts { name: toaster.name.clone(), others });
    }
}

/// Values that are compressed or out of line as on a stock server, and their stored bytes.
fn stored_otherwise(figures: &ColumnFigures, column: &ColumnFacts) -> (Interval, Interval) {
    // with storage extended, a value that fits the row once it is compressed stays there
    let is_external = column.storage == Storage::External;
    values_that(figures, |figures| {
        figures.form.is_external() || figures.form == Form::Compressed && is_external
    })
}

/// Which columns with toasters of their own are not judged, though they have values out of line that these may or may not
/// have stored.
fn not_judged(facts: &Facts, report: &RelationReport) -> Vec<NotAvailable> {
    let mut notes = Vec::new();
    for column in &facts.columns {
        let Some(ToasterFacts { name, others: None }) = &column.toaster else { continue };
        let figures = report.columns.iter().find(|figures| figures.column == column.name);
        let mut forms = figures.into_iter().flat_map(|figures| &figures.forms);
        if forms.any(|form| form.form.is_external() && form.all.values.estimate > 0) {
            let column = &column.name;
            notes.push(NotAvailable::new(
                format!("which values of column {column} toaster {name} would store otherwise"),
                "only re-toasting shows what it leaves to ordinary pointers",
            ));
        }
    }
    notes
}

/// Values that are compressed by another method, and their stored bytes.
fn other_method(column: &ColumnFigures, method: Method) -> (Interval, Interval) {
    values_that(column, |figures| figures.method.is_some_and(|other| other != method))
}

/// The number of values in such forms, and their stored bytes.
fn values_that(
    column: &ColumnFigures,
    counts: impl Fn(&FormFigures) -> bool,
) -> (Interval, Interval) {
    let mut values: Interval = Interval::default();
    let mut bytes: Interval = Interval::default();
    for FormFigures { all, .. } in column.forms.iter().filter(|figures| counts(figures)) {
        values = values.plus(all.values.real());
        bytes = bytes.plus(all.stored_bytes.unwrap_or_default().real());
    }
    (values, bytes)
}

/// How many chunks the pointers name, at least, that the TOAST relation does not have, if both were counted. Pluggable
/// toasters have chunks in other relations too.
fn missing_chunks(report: &RelationReport) -> Option<u64> {
    let RelationReport { toast, columns, .. } = report;
    let ToastFigures { values, chunks, rows, rows_counted, orphans, .. } = toast.as_ref()?;
    let has_toasters = columns.iter().any(|column| !column.toasters.is_empty());
    let is_read = report.read.source == Source::Pageinspect && report.read.problem_count == 0;
    if !is_read || !rows_counted || !values.is_exact() || !chunks.is_exact() || has_toasters {
        return None;
    }
    let orphans = orphans.map_or(0, |orphans| orphans.chunks);
    let theirs = (*rows)?.saturating_sub(orphans);
    Some(chunks.estimate.saturating_sub(theirs))
}
