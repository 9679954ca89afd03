//! `inspect` of one relation on a live server, by pages or by SQL functions, and of one of its values.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::timeout;

use super::estimates;
use super::finding_look::{Begun, PageFacts, not_searched};
use super::findings::in_reach;
use super::inspector::{ContentOptions, InspectError, Inspector, no_client};
use super::orphans::References;
use super::reports::{name_toasters, note_failed_findings, out_of_line};
use super::result::SampleReport;
use super::result::{
    HeapReport, NotAvailable, OrphanReport, RelationReport, Source, ToastReport, TuplesReport,
};
use super::scan::{ScanResult, ScanTarget};
use crate::server::catalog::{Relation, RelationKind, ToastRelation, UNKNOWN_LAYOUT};
use crate::server::chunks::{self, ChunkPages, LiveChunks};
use crate::server::connect::Connection;
use crate::server::index_scan::IndexFill;
use crate::server::owner_facts::begin_reading;
use crate::server::snapshot::{self, Moment};
use crate::server::{LiveError, functions, toasters};
use crate::value::anatomy::{self, Anatomy, Wanted};
use crate::value::contents::Contents;
use crate::value::rows::RowWriter;
use toast_format::disk::ItemPointer;
use toast_format::disk::desc::TupleDesc;
use toast_format::fill::meter::Kind;
use toast_format::heap::scan::Scan;
use toast_format::model::sql::quote_qualified;

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
        let refusal = self.why_no_pages(&relation);
        let name = relation.display_name();
        let no_pages = |why| InspectError::NoPages { relation: name.clone(), why };
        if let (Some(why), true) = (&refusal, self.options.sampling.is_some()) {
            return Err(no_pages(why.clone()));
        }
        if let Some(why) = self.options.access.by_functions(refusal).map_err(no_pages)? {
            let report = self.by_functions(&relation, why).await;
            return report.map_err(|error| InspectError::Live { relation: name, error });
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
        let connection = self.connections.first().ok_or_else(no_client)?;
        let name = relation.display_name();
        tracing::debug!("{name}: SQL functions are used: {why}");
        self.progress.begin(&name, 0);
        begin_reading(connection, relation, false).await?;
        let read = functions::groups(connection.client(), &self.server, relation).await;
        if read.is_err() {
            // If this fails too, the connection is lost, and the next query reports that.
            let _ = snapshot::abandon(connection.client()).await;
        }
        let (live, groups) = read?;
        snapshot::end(connection.client()).await?;
        self.progress.end();
        let mut scan = Scan::new(self.scanned(&name, Arc::new(relation.desc.clone())), ());
        scan.stats.tuples.live = live;
        for group in &groups {
            scan.take_answer(group.index, &group.value, group.count, group.unplaced);
        }
        let mut report = self.functions_report(relation, &scan, why);
        let mut failed = None;
        let indexes = self.indexes(relation, Source::Functions, &mut failed).await?;
        report.findings = self.findings(relation, None, &report, indexes, &mut failed).await?;
        note_failed_findings(&mut report, failed.as_ref());
        Ok(report)
    }

    /// The report from SQL functions, with the reason why pages were not read.
    pub(super) fn functions_report(
        &self,
        relation: &Relation,
        scan: &Scan<()>,
        why: String,
    ) -> RelationReport {
        let mut not_available =
            vec![NotAvailable { figure: "everything that only pages show".into(), reason: why }];
        for (figure, reason) in functions::not_available(&self.server, relation) {
            not_available.push(NotAvailable { figure: figure.into(), reason });
        }
        if relation.row_security {
            not_available.push(NotAvailable {
                figure: "rows that row security hides".into(),
                reason: "row security is active for this user".into(),
            });
        }
        let mut report = self.report(relation, scan, Source::Functions);
        report.tuples = TuplesReport {
            dead: None,
            unknown: None,
            hot_updated: None,
            heap_only: None,
            ..report.tuples
        };
        report.heap = HeapReport {
            blocks_read: 0,
            new_blocks: None,
            free_bytes: None,
            line_pointers_unused: None,
            line_pointers_redirect: None,
            line_pointers_dead: None,
            ..report.heap
        };
        if let Some(toast) = &mut report.toast {
            toast.unplaced_values = Some(scan.unplaced.iter().sum()).filter(|&values| values > 0);
        }
        let columns = relation.desc.attributes.iter().zip(&scan.unplaced);
        let columns = columns.filter(|(attribute, _)| !attribute.dropped);
        for (column, (_, &unplaced)) in report.columns.iter_mut().zip(columns) {
            column.unplaced_values = Some(unplaced);
        }
        report.not_available = not_available;
        report
    }

    async fn by_pages(
        &self,
        relation: Arc<Relation>,
        rows: Option<&mut (dyn RowWriter + Send)>,
    ) -> Result<RelationReport, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let values_alone = rows.is_some();
        let mut failed = None;
        let compression = if values_alone {
            None
        } else {
            self.compression(&relation, &mut failed).await.map_err(live)?
        };
        let moment = snapshot::begin(leader).await.map_err(live)?;
        let joined = self.joined(leader).await.map_err(live)?;
        if let Some(all) = self.connections.get(..joined)
            && joined < self.connections.len()
        {
            tracing::debug!(
                "{name}: reading over {joined} connections, because the pooler has no more sessions"
            );
            for connection in all {
                snapshot::end(connection.client()).await.map_err(live)?;
            }
            return Box::pin(self.with(all.to_vec()).by_pages(relation, rows)).await;
        }
        let heap = ScanTarget {
            name: name.clone(),
            quoted: relation.quoted(),
            desc: Arc::new(relation.desc.clone()),
            keeps: compression.is_some(),
            metered: compression.is_some().then(|| (Kind::Rows, u32::from(relation.fillfactor()))),
            target: relation.tuple_target(self.server.page_size),
        };
        let known = toasters::ask(leader.client(), &self.server).await.map_err(live)?;
        // a stock server leaves no chunks behind
        let references = known.is_some().then(|| References::new(self.server.page_size));
        let sampling = self.options.sampling;
        let scanned = self.scan(&heap, &moment, rows, sampling, references).await?;
        let ScanResult { mut scan, total_blocks, kept, meter, references, unknown_defaults } =
            scanned;
        let unread = scan.problems.count() > 0;
        // at the same time as what follows
        let mut begun = compression
            .zip(kept)
            .map(|(compression, kept)| self.begin_look(&relation, compression, kept, meter));
        let mut orphans = None;
        let toast = match &relation.toast {
            Some(toast) if self.wants(toast) => {
                let target = ScanTarget {
                    name: toast.display_name(),
                    quoted: quote_qualified("pg_toast", &toast.name),
                    desc: Arc::new(TupleDesc::toast_relation(relation.desc.id_type)),
                    keeps: false,
                    metered: begun.is_some().then_some((Kind::Chunks, 100)),
                    target: None,
                };
                let scanned = self.scan(&target, &moment, None, None, None).await?;
                scan.problems.merge(scanned.scan.problems);
                if let Some(begun) = &mut begun {
                    begun.toast =
                        scanned.meter.map(|meter| (meter, u64::from(scanned.total_blocks)));
                }
                if let Some(references) = references {
                    let mut store = self.chunk_store(leader, &moment, false);
                    let known = references.known(&mut store, unread);
                    orphans = Some(match known {
                        Ok(known) => {
                            let mut report = OrphanReport::default();
                            chunks::each_value(
                                leader.client(),
                                &target.quoted,
                                |id, chunks, bytes| {
                                    known.count(id, chunks, bytes, &mut report);
                                },
                            )
                            .await
                            .map_err(live)?;
                            Ok(report)
                        }
                        Err(reason) => Err(reason),
                    });
                }
                Some(scanned.scan.stats)
            }
            _ => None,
        };
        let (looked, indexes) = self
            .look_beside_indexes(&relation, &moment, begun, values_alone, &mut failed)
            .await
            .map_err(live)?;
        let mut report = self.report(&relation, &scan, Source::Pageinspect);
        report.unknown_defaults = unknown_defaults;
        if let Some(known) = &known {
            name_toasters(&mut report.columns, known);
        }
        let unknown = |toast: &&ToastRelation| !toast.layout_is_known(&self.server);
        if let Some(toast) = relation.toast.as_ref().filter(unknown) {
            report.not_available.push(NotAvailable {
                figure: format!("the chunks in {}", toast.display_name()),
                reason: UNKNOWN_LAYOUT.into(),
            });
        }
        report.not_available.extend(not_searched(&relation.desc));
        match (orphans, &mut report.toast) {
            (Some(Ok(found)), Some(toast)) => toast.orphans = Some(found),
            (Some(Err(reason)), _) => report.not_available.push(NotAvailable {
                figure: "values in the TOAST relation that no row refers to".into(),
                reason: reason.into(),
            }),
            _ => {}
        }
        if let (Some(report), Some(counted)) = (&mut report.toast, &toast) {
            report.rows = Some(counted.tuples.live);
            report.rows_counted = true;
            report.dead_rows = Some(counted.tuples.dead);
            report.free_bytes = Some(counted.tuples.free_bytes);
        }
        if let (Some(blocks), Some(sampling)) = (&scan.blocks, self.options.sampling) {
            let sample = SampleReport {
                blocks: u64::from(total_blocks),
                blocks_read: blocks.blocks,
                seed: sampling.seed,
            };
            estimates::fill(&mut report, &relation.desc, &scan.stats, blocks, sample);
        }
        if !values_alone {
            report.findings = self
                .findings(&relation, looked, &report, indexes, &mut failed)
                .await
                .map_err(live)?;
            note_failed_findings(&mut report, failed.as_ref());
        }
        Ok(report)
    }

    /// Ends an examination of rows that has `begun`, and the transactions of all connections. At the same time, idle
    /// connections examine the indexes, unless a sample or only values were read.
    async fn look_beside_indexes(
        &self,
        relation: &Relation,
        moment: &Moment,
        begun: Option<Begun>,
        values_alone: bool,
        failed: &mut Option<LiveError>,
    ) -> Result<(Option<PageFacts>, Vec<IndexFill>), LiveError> {
        let (leader, others) = self.connections.split_first().ok_or_else(no_client)?;
        let sampling = self.options.sampling;
        let looks = if values_alone || sampling.is_some() {
            None
        } else {
            self.looks(relation, Source::Pageinspect)
        };
        let goes_on = async |connection: &Connection| {
            snapshot::end(connection.client()).await?;
            Ok::<_, LiveError>(match &looks {
                Some(looks) => looks.take_part(connection).await,
                None => Ok(()),
            })
        };
        let look = async {
            let looked = match begun {
                None => None,
                begun => self.look(relation, moment, sampling, begun, failed).await?,
            };
            Ok::<_, LiveError>((looked, goes_on(leader).await?))
        };
        let beside = join_all(others.iter().map(|connection| goes_on(connection)));
        let (look, beside) = join(look, beside).await;
        let (looked, last) = look?;
        let mut parts = beside.into_iter().collect::<Result<Vec<_>, _>>()?;
        parts.push(last);
        let indexes = match looks {
            Some(looks) => in_reach(looks.of_parts(parts), failed)?,
            None => Vec::new(),
        };
        Ok((looked, indexes))
    }

    /// How many connections are in a transaction that sees the same as the first one's. A pooler may have no session
    /// for another connection before the first one has ended its transaction, and waiting for it would then never
    /// end.
    async fn joined(&self, leader: &Connection) -> Result<usize, LiveError> {
        if self.connections.len() <= 1 {
            return Ok(1);
        }
        let exported = snapshot::export(leader.client()).await?;
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

    pub(super) fn report(
        &self,
        relation: &Relation,
        scan: &Scan<()>,
        source: Source,
    ) -> RelationReport {
        let toast_bytes = relation.toast.as_ref().map_or(0, |t| t.bytes + t.index_bytes);
        // The columns' part of other files is not known.
        let bytes = relation.is_heap.then_some(relation.bytes + toast_bytes);
        let report = RelationReport::of(scan, source, bytes);
        let (values, chunks) = out_of_line(&report.columns);
        RelationReport {
            schema_name: Some(relation.schema.clone()),
            name: Some(relation.name.clone()),
            oid: Some(relation.oid.0),
            kind: Some(relation.kind.name()),
            access_method: (!relation.is_heap).then(|| relation.access_method.clone()),
            options: relation.options.clone(),
            heap: HeapReport {
                bytes: Some(relation.bytes),
                blocks: Some(relation.bytes / report.page_size),
                index_bytes: if relation.kind != RelationKind::Toast || relation.index_bytes > 0 {
                    Some(relation.index_bytes)
                } else {
                    None
                },
                ..report.heap
            },
            toast: relation.toast.as_ref().map(|toast| ToastReport {
                relation: toast.display_name(),
                oid: Some(toast.oid.0),
                bytes: Some(toast.bytes),
                index_bytes: Some(toast.index_bytes),
                rows: toast.row_estimate,
                values,
                chunks,
                ..ToastReport::default()
            }),
            ..report
        }
    }

    /// Describes one value in detail: that of `column` in the tuple at `ctid`, dead or alive.
    pub async fn value(
        &self,
        relation: &Relation,
        column: &str,
        ctid: ItemPointer,
    ) -> Result<Anatomy, InspectError> {
        let name = relation.display_name();
        let live = |error| InspectError::Live { relation: name.clone(), error };
        let missing = |what: String| InspectError::NoValue(format!("{name}: {what}"));
        if let Some(why) = self.why_no_pages(relation) {
            return Err(InspectError::NoPages { relation: name, why });
        }
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let moment = snapshot::begin(leader).await.map_err(live)?;
        let reader = self.server.page_reader(leader, relation.quoted(), &moment.snapshot);
        let mut reader = reader.await.map_err(live)?;
        if ctid.block.0 >= reader.block_count().await.map_err(live)? {
            return Err(missing(format!("there is no block {}", ctid.block)));
        }
        let pages = reader.read(&[ctid.block]).await.map_err(live)?;
        if let Some((_, message)) = pages.unreadable.first() {
            return Err(missing(format!("block {}: {message}", ctid.block)));
        }
        let toasters = toasters::toasters(leader.client(), &self.server).await.map_err(live)?;
        // the values of dead rows may have dead chunks
        let mut store = self.chunk_store(leader, &moment, !pages.is_live(ctid));
        let desc = &relation.desc;
        let flavor = self.options.flavor;
        let wanted = Wanted { relation: &name, desc, flavor, column, ctid };
        let bytes = pages.iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        let anatomy =
            anatomy::on_page(bytes, &wanted, &mut store, &toasters, self.server.page_size);
        snapshot::end(leader.client()).await.map_err(live)?;
        anatomy.map_err(missing)
    }

    /// Chunks read on this connection; `dead`: including those that no statement can see.
    pub(super) fn chunk_store(
        &self,
        connection: &Arc<Connection>,
        moment: &Moment,
        dead: bool,
    ) -> LiveChunks {
        let connection = Arc::clone(connection);
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

    pub(super) async fn contents(
        &self,
        relation: &str,
        moment: &Moment,
        contents: &ContentOptions,
        connection: &Arc<Connection>,
    ) -> Result<Contents<LiveChunks>, InspectError> {
        let live = |error| InspectError::Live { relation: relation.to_owned(), error };
        let store = self.chunk_store(connection, moment, false);
        let toasters = toasters::toasters(connection.client(), &self.server).await.map_err(live)?;
        let dir = contents.output_dir.as_deref();
        Ok(Contents::new(store, toasters, self.server.page_size, dir)?)
    }
}
