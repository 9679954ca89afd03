//! `inspect` of one relation on a live server, by pages or by SQL functions, and of one of its values.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::timeout;

use super::figures::name_toasters;
use super::finding_look::{Begun, Evidence, Partial, ToastFill, not_searched};
use super::findings::in_reach;
use super::inspector::{InspectError, Inspector};
use super::orphans::References;
use super::result::{
    HeapFigures, NotAvailable, OrphanReport, RelationRead, RelationReport, SampleReport, Source,
    ToastFigures, TupleFigures,
};
use super::scan::{ScanResult, ScanTarget};
use crate::findings::code::WORTH;
use crate::server::catalog::{Relation, RelationKind, RelationName, ToastRelation, UNKNOWN_LAYOUT};
use crate::server::chunks::{self, ChunkPages, LiveChunks};
use crate::server::connect::Connection;
use crate::server::index_scan::IndexScan;
use crate::server::owner_facts::begin_reading;
use crate::server::snapshot::{self, Moment};
use crate::server::{LiveError, decoded, functions, toasters};
use crate::value::anatomy::{self, Anatomy, DatumPlace, first_characters};
use crate::value::contents::Contents;
use crate::value::rows::RowWriter;
use toast_format::disk::{ItemPointer, TupleDesc};
use toast_format::fill::meter::Kind;
use toast_format::heap::scan::Scan;
use toast_format::model::Toasters;
use toast_format::model::sql::quote_qualified;
use toast_format::model::toaster::catalog::ToasterColumn;

/// TOAST relations up to this size are read completely unless the user requests otherwise.
const TOAST_LIMIT: u64 = 1 << 30;
/// How long a connection may take to join the others' transaction.
const JOIN_PATIENCE: Duration = Duration::from_secs(3);

impl Inspector {
    /// Reads one relation. With `rows`, every value is passed to it as it is read.
    pub async fn relation(
        &self,
        relation: Arc<Relation>,
        rows: Option<&mut (dyn RowWriter + Send)>,
    ) -> Result<RelationReport, InspectError> {
        if self.options.sampling.is_some()
            && let Some(why) = self.why_no_pages(&relation)
        {
            return Err(InspectError::NoPages(why));
        }
        if let Some(why) = self.why_functions(&relation)? {
            return Ok(self.by_functions(&relation, why).await?);
        }
        let result = self.by_pages(relation, rows).await;
        if result.is_err() {
            for connection in &self.connections {
                // If that fails too the connection is gone, as the next query will say.
                let _ = snapshot::abandon(connection.client()).await;
            }
        }
        result
    }

    pub(super) async fn by_functions(
        &self,
        relation: &Relation,
        why: String,
    ) -> Result<RelationReport, LiveError> {
        let client = self.leader.client();
        let name = relation.display_name();
        tracing::debug!("{name}: SQL functions are used: {why}");
        self.progress.begin(&name, 0);
        begin_reading(&self.leader, relation, false).await?;
        let read = functions::groups(client, &self.server, relation);
        let (live, groups) = snapshot::ended(client, read).await?;
        self.progress.end();
        let mut scan = Scan::new(self.scanned(&name, Arc::new(relation.desc.clone())), ());
        scan.stats.tuples.live = live;
        for group in &groups {
            scan.take_answer(group.index, &group.value, group.count, group.unplaced);
        }
        let mut report = self.functions_report(relation, &scan, None, why);
        let indexes = self.indexes(relation, Source::Functions).await?;
        let evidence = Evidence::new(Partial::complete(None), indexes);
        self.add_findings(relation, evidence, &mut report, WORTH).await?;
        Ok(report)
    }

    /// The report from SQL functions, with the reason why pages were not read.
    pub(super) fn functions_report(
        &self,
        relation: &Relation,
        scan: &Scan<()>,
        sample: Option<SampleReport>,
        why: String,
    ) -> RelationReport {
        let mut not_available = vec![NotAvailable::new("everything that only pages show", why)];
        for (figure, reason) in functions::not_available(&self.server, relation) {
            not_available.push(NotAvailable::new(figure, reason));
        }
        if relation.row_security {
            not_available.push(NotAvailable::new(
                "rows that row security hides",
                "row security is active for this user",
            ));
        }
        let mut report = self.report(relation, scan, Source::Functions, sample);
        not_available.append(&mut report.read.not_available);
        report.read.not_available = not_available;
        report
    }

    async fn by_pages(
        &self,
        relation: Arc<Relation>,
        rows: Option<&mut (dyn RowWriter + Send)>,
    ) -> Result<RelationReport, InspectError> {
        let name = relation.display_name();
        let leader = &self.leader;
        let values_alone = rows.is_some();
        let mut found = Partial::complete(());
        let compression =
            if values_alone { None } else { found.take(self.compression(&relation).await?) };
        let moment = snapshot::begin(leader).await?;
        let joined = self.joined().await?;
        if let Some(all) = self.connections.get(..joined)
            && joined < self.connections.len()
        {
            tracing::debug!(
                "{name}: reading over {joined} connections, because the pooler has no more sessions"
            );
            for connection in all {
                snapshot::end(connection.client()).await?;
            }
            return Box::pin(self.with(leader, all.to_vec()).by_pages(relation, rows)).await;
        }
        let target = ScanTarget {
            name: name.clone(),
            quoted: relation.quoted(),
            desc: Arc::new(relation.desc.clone()),
            keeps: compression.is_some(),
            metered: compression.is_some().then(|| (Kind::Rows, u32::from(relation.fillfactor()))),
            target: relation.tuple_target(self.server.page_size),
        };
        let toasters = toasters::ask(leader.client(), &self.server).await?;
        let set = match &toasters {
            Some(_) => toasters::columns(leader.client(), Some(relation.oid)).await?,
            None => Vec::new(),
        };
        // a stock server leaves no chunks behind
        let references = toasters.is_some().then(|| References::new(self.server.page_size));
        let mut heap = self.scan(&target, &moment, rows, references).await?;
        // at the same time as what follows
        let mut begun = None;
        if let (Some(compression), Some(kept)) = (compression, heap.kept.take()) {
            let meter = heap.meter.take();
            begun = Some(self.begin_examination(&relation, compression, kept, meter));
        }
        let mut toast = None;
        let mut orphans = None;
        if let Some(wanted) = relation.toast.as_ref().filter(|toast| self.wants(toast)) {
            let is_metered = begun.is_some();
            let mut scanned = self.scan_toast(&relation, wanted, &moment, is_metered).await?;
            if let Some(begun) = &mut begun {
                let blocks = u64::from(scanned.total_blocks);
                begun.toast = scanned.meter.take().map(|meter| ToastFill { meter, blocks });
            }
            if let Some(references) = heap.references.take() {
                let unread = heap.scan.problems.count() > 0;
                let mut store = self.chunk_store(&moment, false);
                let counted = count_orphans(leader, wanted, &mut store, references, unread);
                orphans = Some(counted.await?);
            }
            toast = Some(scanned);
        }
        let examined = self.examine_beside_indexes(&relation, &moment, begun, values_alone);
        let evidence = found.take(examined.await?);
        let mut report = self.pages_report(&relation, heap, toast, toasters.as_ref(), &set);
        match (orphans, &mut report.toast) {
            (Some(Ok(orphans)), Some(toast)) => toast.orphans = Some(orphans),
            (Some(Err(reason)), _) => {
                report.read.not_available.push(NotAvailable::orphans(reason));
            }
            _ => {}
        }
        if !values_alone {
            let evidence = Partial { obtained: evidence, failed: found.failed };
            self.add_findings(&relation, evidence, &mut report, WORTH).await?;
        }
        Ok(report)
    }

    /// Counts the chunks of a TOAST relation.
    async fn scan_toast(
        &self,
        relation: &Relation,
        toast: &ToastRelation,
        moment: &Moment,
        is_metered: bool,
    ) -> Result<ScanResult, InspectError> {
        let target = ScanTarget {
            name: toast.display_name(),
            quoted: quote_qualified("pg_toast", &toast.name),
            desc: Arc::new(TupleDesc::toast_relation(relation.desc.id_type)),
            keeps: false,
            metered: is_metered.then_some((Kind::Chunks, 100)),
            target: None,
        };
        self.scan(&target, moment, None, None).await
    }

    /// The report on what was read of a relation's pages, and of its TOAST relation, without findings.
    fn pages_report(
        &self,
        relation: &Relation,
        heap: ScanResult,
        toast: Option<ScanResult>,
        toasters: Option<&Toasters>,
        set: &[ToasterColumn],
    ) -> RelationReport {
        let mut scan = heap.scan;
        let mut counted = None;
        if let Some(toast) = toast {
            scan.problems.merge(toast.scan.problems);
            counted = Some(toast.scan.stats.tuples);
        }
        let sampled = scan.blocks.as_ref().zip(self.options.sampling);
        let sample = sampled.map(|(blocks, sampling)| SampleReport {
            blocks: u64::from(heap.total_blocks),
            blocks_read: blocks.blocks,
            seed: sampling.seed,
        });
        let mut report = self.report(relation, &scan, Source::Pageinspect, sample);
        report.unknown_defaults = heap.unknown_defaults;
        if let Some(toasters) = toasters {
            name_toasters(&mut report.columns, toasters, set);
        }
        if let Some(toast) = &relation.toast
            && !toast.layout_is_known(&self.server)
        {
            let figure = format!("the chunks in {}", toast.display_name());
            report.read.not_available.push(NotAvailable::new(figure, UNKNOWN_LAYOUT));
        }
        report.read.not_available.extend(not_searched(&relation.desc));
        if let (Some(report), Some(tuples)) = (&mut report.toast, counted) {
            report.rows = Some(tuples.live);
            report.rows_counted = true;
            report.dead_rows = Some(tuples.dead);
            report.free_bytes = Some(tuples.free_bytes);
        }
        report
    }

    /// Ends an examination of rows that has `begun`, and the transactions of all connections. At the same time, idle
    /// connections examine the indexes, unless a sample of some blocks or only values were read.
    async fn examine_beside_indexes(
        &self,
        relation: &Relation,
        moment: &Moment,
        begun: Option<Begun>,
        values_alone: bool,
    ) -> Result<Partial<Evidence>, LiveError> {
        let others = self.connections.iter().skip(1);
        let is_part = self.options.sampling.is_some_and(|sampling| !sampling.is_of_all());
        let indexes = if values_alone || is_part {
            None
        } else {
            self.index_scan(relation, Source::Pageinspect)
        };
        let rows = async {
            let looked = match begun {
                None => Partial::complete(None),
                begun => self.examine_pages(relation, moment, begun).await?,
            };
            Ok::<_, LiveError>((looked, end_and_examine(&self.leader, indexes.as_ref()).await?))
        };
        let by_others = others.map(|other| end_and_examine(other, indexes.as_ref()));
        let (rows, by_others) = join(rows, join_all(by_others)).await;
        let (looked, last) = rows?;
        let mut parts = by_others.into_iter().collect::<Result<Vec<_>, _>>()?;
        parts.push(last);
        let indexes = match indexes {
            Some(indexes) => in_reach(indexes.of_parts(parts))?,
            None => Partial::complete(Vec::new()),
        };
        Ok(Evidence::new(looked, indexes))
    }

    /// How many connections are in a transaction that sees the same as the first one's. A pooler may have no session
    /// for another connection before the first one has ended its transaction, and waiting for it would then never
    /// end.
    async fn joined(&self) -> Result<usize, LiveError> {
        if self.connections.len() <= 1 {
            return Ok(1);
        }
        let exported = snapshot::export(self.leader.client()).await?;
        for (at, connection) in self.connections.iter().enumerate().skip(1) {
            match timeout(JOIN_PATIENCE, snapshot::join(connection, &exported)).await {
                Ok(joined) => joined?,
                Err(_) => {
                    // a connection that still waits returns its session as soon as it gets one
                    let connection = Arc::clone(connection);
                    tokio::spawn(async move { snapshot::abandon(connection.client()).await });
                    return Ok(at);
                }
            }
        }
        Ok(self.connections.len())
    }

    /// Whether the TOAST relation's own rows are read and counted; of a larger one the planner's estimate is shown.
    fn wants(&self, toast: &ToastRelation) -> bool {
        self.options.sampling.is_none()
            && toast.bytes <= TOAST_LIMIT
            && toast.layout_is_known(&self.server)
    }

    /// The report on what a scan has counted, of all blocks or of a `sample`.
    pub(super) fn report(
        &self,
        relation: &Relation,
        scan: &Scan<()>,
        source: Source,
        sample: Option<SampleReport>,
    ) -> RelationReport {
        let report = RelationReport {
            read: RelationRead {
                name: RelationName::from(relation),
                kind: Some(relation.kind),
                access_method: (!relation.is_heap).then(|| relation.access_method.clone()),
                source,
                sample,
                ..RelationRead::default()
            },
            options: relation.options.clone(),
            tuples: TupleFigures {
                visible_rows_only: relation.row_security,
                ..TupleFigures::default()
            },
            heap: HeapFigures {
                bytes: Some(relation.bytes),
                blocks: Some(relation.bytes / self.server.page_size.bytes() as u64),
                index_bytes: if relation.kind != RelationKind::Toast || relation.index_bytes > 0 {
                    Some(relation.index_bytes)
                } else {
                    None
                },
                ..HeapFigures::default()
            },
            toast: relation.toast.as_ref().map(|toast| ToastFigures {
                relation: toast.display_name(),
                oid: Some(toast.oid.0),
                bytes: Some(toast.bytes),
                index_bytes: Some(toast.index_bytes),
                rows: toast.row_estimate,
                ..ToastFigures::default()
            }),
            ..RelationReport::default()
        };
        report.with_figures(scan)
    }

    /// Describes one value in detail: that of `column` in the tuple at `ctid`, dead or alive.
    pub async fn value(
        &self,
        relation: &Relation,
        column: &str,
        ctid: ItemPointer,
    ) -> Result<Anatomy, InspectError> {
        let name = relation.display_name();
        let missing = InspectError::no_value(&name);
        if let Some(why) = self.why_no_pages(relation) {
            return Err(InspectError::NoPages(why));
        }
        let leader = &self.leader;
        let moment = snapshot::begin(leader).await?;
        let reader = self.server.page_reader(leader, relation.quoted(), &moment.snapshot);
        let mut reader = reader.await?;
        if ctid.block.0 >= reader.block_count().await? {
            return Err(missing(format!("there is no block {}", ctid.block)));
        }
        let pages = reader.read(&[ctid.block]).await?;
        if let Some((_, message)) = pages.unreadable.first() {
            return Err(missing(format!("block {}: {message}", ctid.block)));
        }
        // the values of dead rows may have dead chunks
        let store = self.chunk_store(&moment, !pages.is_live(ctid));
        let mut contents = self.contents(store).await?;
        let desc = &relation.desc;
        let flavor = self.options.flavor;
        let wanted = DatumPlace { relation: &name, desc, flavor, column, ctid };
        let bytes = pages.iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        let mut anatomy = anatomy::on_page(bytes, &wanted, &mut contents).map_err(missing)??;
        if !anatomy.text_bytes.is_ascii() {
            let sql = "SELECT pg_catalog.getdatabaseencoding()::pg_catalog.text";
            let encoding = leader.client().value::<String>(sql, &[]).await;
            let encoding = encoding.map_err(LiveError::from)?.unwrap_or_default();
            let first = first_characters(&anatomy.text_bytes, &encoding).to_vec();
            if let Some([text]) = decoded(leader.client(), slice::from_ref(&first)).await.as_deref()
            {
                anatomy.set_first_text(text);
            }
        }
        snapshot::end(leader.client()).await?;
        Ok(anatomy)
    }

    /// Chunks read on the first connection; `dead`: including those that no statement can see.
    pub(super) fn chunk_store(&self, moment: &Moment, dead: bool) -> LiveChunks {
        let connection = Arc::clone(&self.leader);
        match self.server.pageinspect.clone() {
            Some(pageinspect) => LiveChunks::with_pages(
                connection,
                ChunkPages {
                    pageinspect,
                    page_size: self.server.page_size,
                    snapshot: moment.snapshot.clone(),
                    dead,
                },
            ),
            None => LiveChunks::new(connection),
        }
    }

    /// Reassembles values from the chunks of `store`, to files if the options say so.
    pub(super) async fn contents(
        &self,
        store: LiveChunks,
    ) -> Result<Contents<LiveChunks>, InspectError> {
        let toasters = toasters::toasters(self.leader.client(), &self.server).await?;
        let dir = self.options.contents.as_ref().and_then(|files| files.output_dir.as_deref());
        Ok(Contents::new(store, toasters, self.server.page_size, dir)?)
    }
}

/// Ends a connection's transaction; it can then examine indexes, whose errors concern nothing else.
async fn end_and_examine(
    connection: &Connection,
    indexes: Option<&IndexScan>,
) -> Result<Result<(), LiveError>, LiveError> {
    snapshot::end(connection.client()).await?;
    match indexes {
        Some(indexes) => Ok(indexes.take_part(connection).await),
        None => Ok(Ok(())),
    }
}

/// Counts the values of a TOAST relation that no row refers to; the reason if that is not known. `unread`: whether
/// part of the table could not be read.
async fn count_orphans(
    connection: &Connection,
    toast: &ToastRelation,
    store: &mut LiveChunks,
    references: References,
    unread: bool,
) -> Result<Result<OrphanReport, &'static str>, LiveError> {
    let known = match references.known(store, unread) {
        Ok(known) => known,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut report = OrphanReport::default();
    let quoted = quote_qualified("pg_toast", &toast.name);
    chunks::each_value(connection.client(), &quoted, |id, chunks, bytes| {
        known.count(id, chunks, bytes, &mut report);
    })
    .await?;
    Ok(Ok(report))
}
