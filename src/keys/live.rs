//! The keys of a table's documents on a server: from pages, or through SQL that requires only SELECT on the table.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::slice;
use std::sync::Arc;

use super::cost::{StoredDocument, TableTerms};
use super::gather::{Gathering, KeyRequest, SampledDocument};
use super::language::{DocumentLanguage, chosen, fitting_columns, languages_of};
use super::result::KeysReport;
use crate::advise::advisor::{Advisor, NoPages, Options};
use crate::advise::candidate::AdviseError;
use crate::advise::content::asked_row;
use crate::advise::plan::SamplePlan;
use crate::advise::run::{Meant, selected_tables};
use crate::message::Message;
use crate::server::about::Access;
use crate::server::chunks::{self, LiveChunks};
use crate::server::owner_facts::begin_reading;
use crate::server::pages::Pages;
use crate::server::probe::RowQuestion;
use crate::server::sampled::{AskedRow, RowReader, RowSource};
use crate::server::sink::{RunError, Sink, until};
use crate::server::snapshot::{self};
use crate::server::{LiveError, Moment, Pageinspect, Relation, decoded, toasters};
use crate::usage::keys::KnownUses;
use toast_format::codec::Method;
use toast_format::disk::{ByteOrder, ItemPointer};
use toast_format::model::Toasters;

/// Compression is assumed to save this fraction when the size of the sample is estimated beforehand.
const FORESEEN_RATIO: f64 = 1.5;

/// Reports what the keys of documents cost, for the named tables (at least one), until all are done or `interrupt`
/// arrives.
///
/// # Errors
/// Failures that affect all tables. Results already passed to `output` remain.
pub(crate) async fn tables(
    advisor: &Advisor,
    tables: &[String],
    request: KeyRequest,
    access: Access,
    output: &mut dyn Sink<KeysReport>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let connections = slice::from_ref(&advisor.connection);
    if let (Access::Auto, Some(NoPages { why, hint })) = (access, advisor.why_no_pages()) {
        let mut notice = Message::notice(format!("using SQL functions: {why}"));
        if hint.is_some() {
            notice = notice.hint("CREATE EXTENSION pageinspect; lets toastctl read pages.");
        }
        output.message(notice);
    }
    let keys = async |relation: &Relation, columns: &[String]| {
        advisor.keys(relation, columns, request, access).await
    };
    let meant =
        Meant { tables, fitting: fitting_columns, what: "a column of type jsonb, json or hstore" };
    until(interrupt, connections, selected_tables(advisor, meant, keys, None, output)).await
}

impl Advisor {
    /// What the keys of a relation's documents cost, column by column.
    ///
    /// # Errors
    /// Where rows cannot be read, or a named column has no keys.
    async fn keys(
        &self,
        relation: &Relation,
        columns: &[String],
        request: KeyRequest,
        access: Access,
    ) -> Result<Vec<KeysReport>, AdviseError> {
        let name = relation.display_name();
        let live = |error| AdviseError::Live { relation: name.clone(), error };
        let languages = self
            .connection
            .reading(async || languages_of(self.client(), relation).await)
            .await
            .map_err(live)?;
        let columns = chosen(&name, &relation.desc, &languages, columns)?;
        let mut pageinspect = None;
        if access == Access::Pageinspect || access == Access::Auto && self.why_no_pages().is_none()
        {
            pageinspect = Some(self.pageinspect(relation)?);
        } else {
            Advisor::heap(relation)?;
        }
        let known = KnownUses::ask(&self.connection, relation).await.map_err(live)?;
        let toasters = match pageinspect {
            Some(_) => toasters::toasters(self.client(), &self.server).await.map_err(live)?,
            None => Toasters::by_bytes(),
        };
        let moment = match pageinspect {
            Some(_) => snapshot::begin(&self.connection).await.map_err(live)?,
            None => begin_reading(&self.connection, relation, false).await.map_err(live)?,
        };
        let reading = KeyReading { advisor: self, relation, columns, request };
        let reports = reading.read(pageinspect, &toasters, moment).await;
        // If this fails the connection is gone, as the next query will say.
        let _ = snapshot::abandon(self.client()).await;
        let mut reports = reports.map_err(live)?;
        reports.iter_mut().for_each(|report| report.add_uses(&known));
        Ok(reports)
    }
}

/// The figures of one table's documents while they are read.
struct KeyReading<'a> {
    advisor: &'a Advisor,
    relation: &'a Relation,
    /// The columns, by their indexes.
    columns: Vec<(usize, DocumentLanguage)>,
    request: KeyRequest,
}

impl KeyReading<'_> {
    /// Reads the sample: from pages if possible, otherwise through functions.
    async fn read(
        &self,
        pageinspect: Option<&Pageinspect>,
        toasters: &Toasters,
        moment: Moment,
    ) -> Result<Vec<KeysReport>, LiveError> {
        let KeyReading { advisor, relation, .. } = *self;
        let connection = &advisor.connection;
        let server = &advisor.server;
        let client = connection.client();
        let page = server.page_size;
        let toast = relation.toast.as_ref();
        let snapshot = moment.snapshot;
        let pages = pageinspect.map(|_| &snapshot);
        let mut source = RowSource::open(server, connection, relation, pages).await?;
        let total = source.block_count().await?;
        let levels = match (pageinspect, toast) {
            (_, None) => 0,
            (Some(pageinspect), Some(toast)) => pageinspect.index_levels(client, toast.oid).await?,
            (None, Some(toast)) => toast.full_index_levels(page),
        };
        let mut store = LiveChunks::new(Arc::clone(connection));
        let toast_bytes = toast.map_or(0, |toast| toast.bytes) as f64;
        let block_bytes = page.bytes() as f64 + toast_bytes / f64::from(total.max(1));
        let Options { sample, seed, .. } = advisor.options;
        let plan = SamplePlan::new(sample, seed, total, block_bytes * FORESEEN_RATIO);
        let name = relation.display_name();
        let desc = &relation.desc;
        let mut batches = plan.begin(&name, &*advisor.progress);
        let terms = TableTerms { page, levels };
        let mut gathering =
            Gathering::new(name, desc, &self.columns, self.request, terms, &plan, seed);
        while let Some(batch) = batches.next(&gathering.done) {
            match &mut source {
                RowSource::Pages(reader) => {
                    let pages = reader.read(&batch).await?;
                    self.pages(&pages, &mut store, toasters, &mut gathering).await?;
                }
                RowSource::Functions(reader) => {
                    for items in reader.addresses(&batch).await? {
                        self.rows(&items, reader, &mut gathering).await?;
                    }
                }
            }
            batches.advance(&mut gathering.done, batch.len());
        }
        batches.end();
        let mut keys = gathering.encoded_keys();
        let bytes: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        if let Some(texts) = decoded(client, &bytes).await {
            for (key, text) in keys.iter_mut().zip(texts) {
                **key = text.into_bytes().into();
            }
        }
        let name = if pageinspect.is_some() { "pageinspect" } else { "functions" };
        let mut reports = gathering.reports(name);
        for KeysReport { subject, .. } in &mut reports {
            subject.schema_name = Some(relation.schema.clone());
            subject.name = Some(relation.name.clone());
            subject.oid = Some(relation.oid.0);
            subject.visible_rows_only = relation.row_security;
        }
        Ok(reports)
    }

    /// Adds the documents of pages.
    async fn pages(
        &self,
        pages: &Pages,
        store: &mut LiveChunks,
        toasters: &Toasters,
        gathering: &mut Gathering<'_>,
    ) -> Result<(), LiveError> {
        for problem in pages.problems(&self.relation.display_name()) {
            gathering.problems.add(problem);
            gathering.end_block([]);
        }
        for (block, page) in pages.iter() {
            let found = gathering.documents(block, page, pages);
            self.block(&found, store, toasters, gathering).await?;
            gathering.done.read += page.len() as u64;
        }
        Ok(())
    }

    /// Adds the documents of a block that are in the sample.
    async fn block(
        &self,
        found: &[SampledDocument<'_>],
        store: &mut LiveChunks,
        toasters: &Toasters,
        gathering: &mut Gathering<'_>,
    ) -> Result<(), LiveError> {
        let taken: Vec<&SampledDocument<'_>> =
            found.iter().filter(|document| gathering.takes(document.ctid)).collect();
        let parts = chunks::in_parts(&taken, chunks::BYTES, |document| {
            document.pointer().map_or(0, |pointer| u64::from(pointer.stored_size()))
        });
        for now in parts {
            if let Some(toast) = &self.relation.toast {
                let pointers = now.iter().filter_map(|document| document.pointer());
                let own = pointers.filter(|pointer| pointer.toast_relation == toast.oid);
                let ids: BTreeSet<u64> = own.map(|pointer| pointer.value_id.0).collect();
                // if one of them cannot be read, each is read by itself
                let _ = store.read_ahead(toast.oid, &Vec::from_iter(ids)).await;
            }
            for document in now {
                gathering.stored(document, store, toasters);
            }
        }
        gathering.end_block(found.iter().map(|d| (d.slot, d.stored)));
        Ok(())
    }

    /// Adds the documents of a block's rows. All rows are asked whether they have one, so that all are counted.
    async fn rows(
        &self,
        items: &[ItemPointer],
        reader: &RowReader<'_>,
        gathering: &mut Gathering<'_>,
    ) -> Result<(), LiveError> {
        let desc = &self.relation.desc;
        let table = self.relation.table(Method::Pglz, self.advisor.server.page_size);
        let rows = reader.rows(items, RowQuestion::Sizes).await?;
        let mut there = Vec::new();
        for (slot, &(column, ref language)) in self.columns.iter().enumerate() {
            let mut taken: Vec<(ItemPointer, u64)> = Vec::new();
            for row in &rows {
                let Some(&value) = row.values.get(column) else { continue };
                let Some(size) = value.stored_size else { continue };
                there.push((slot, value));
                if gathering.takes(row.ctid) {
                    taken.push((row.ctid, size));
                }
            }
            for now in chunks::in_parts(&taken, chunks::BYTES / 4, |&(_, size)| size) {
                let wanted: Vec<ItemPointer> = now.iter().map(|&(ctid, _)| ctid).collect();
                // the documents are read in any case, so that their forms can be certain
                let forms = RowQuestion::Exactly { weighed: &[], whole: false };
                let rows = reader.rows(&wanted, forms).await?;
                let rows: HashMap<ItemPointer, &AskedRow> =
                    rows.iter().map(|row| (row.ctid, row)).collect();
                for (ctid, text) in reader.texts(column, &wanted).await? {
                    gathering.done.read += text.len() as u64;
                    let Some(&row) = rows.get(&ctid) else { continue };
                    let Some(&value) = row.values.get(column) else { continue };
                    match language.stored(&text) {
                        Ok(content) => {
                            let tuple = asked_row(row, desc, &table).facts.tuple_length;
                            let raw = content.len() as u64;
                            let stored = StoredDocument { value, raw, tuple, visits: None };
                            gathering.document(slot, ctid, &content, ByteOrder::Little, &stored);
                        }
                        Err(error) => gathering.problem(slot, ctid, error),
                    }
                }
            }
        }
        gathering.end_block(there);
        Ok(())
    }
}
