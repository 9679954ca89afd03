//! Rows of a live table that findings are about: those that refer to some values, and the names of all by their primary key.
//! Values of pluggable toasters are read by the server too, and compared with what their chunks hold by an md5.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tokio_postgres::types::Type;

use super::chunk_index::ChunkTuple;
use super::code::Code;
use super::collector::CheckedBlocks;
use super::damaged_row::{Reference, RewriteTarget, shared_values};
use super::finding::{Finding, place_at};
use super::live_check::{About, LiveCheck};
use super::subject::Which;
use super::value::ChunkSeen;
use crate::server::sqlstate::is_sudden;
use crate::server::{LiveError, checking, owner_facts, toasters};
use crate::value::reading::ComparedType;
use toast_format::disk::{BlockNumber, ItemPointer};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_identifier;
use toast_format::model::toaster::catalog::ToasterColumn;

impl LiveCheck {
    /// What is found of values that have one of these tuples of the TOAST relation as a chunk whose `t_hoff` is wrong. SQL
    /// reads the chunk, as of PostgreSQL 19, but not the value.
    pub(super) async fn misread_values(
        &self,
        tids: &[ItemPointer],
    ) -> Result<Vec<Finding>, LiveError> {
        let mut misread: BTreeMap<u64, ChunkSeen> = BTreeMap::new();
        let blocks = tids.iter().map(|tid| tid.block).collect();
        let tids = HashSet::<_>::from_iter(tids);
        let take = |id, ChunkTuple { seen, is_misread, .. }: ChunkTuple| {
            if is_misread && tids.contains(&seen.tid) {
                misread.entry(id).or_insert(seen);
            }
        };
        self.each_chunk(Some(blocks), |_| true, take).await?;
        let ids = misread.keys().copied().collect();
        let name = self.name(Which::Heap);
        let mut findings = Vec::new();
        for Reference { ctid, column, value_id, .. } in self.references(&ids).await? {
            let Some(ChunkSeen { seq, tid, .. }) = misread.get(&value_id) else { continue };
            let place = Place { column: Some(column), ..place_at(&name, ctid) };
            let expected = format!("chunk {seq} of value {value_id}");
            let found = format!("a tuple at {tid} whose t_hoff is wrong");
            findings.push(Finding::new(Code::ChunkMissing, place, expected, found));
        }
        self.name_rows(findings.iter_mut().collect()).await?;
        Ok(findings)
    }

    /// The references of rows to these values.
    async fn references(&self, value_ids: &BTreeSet<u64>) -> Result<Vec<Reference>, LiveError> {
        let mut all = Vec::new();
        let generated = HashSet::new();
        let written = RewriteTarget { table: "", generated: &generated };
        self.each_page(Which::Heap, None, |page| {
            page.references(written, value_ids, &mut all);
        })
        .await?;
        Ok(all)
    }

    /// A finding for each live row that has one of these values and is not the only one, in one snapshot: a row that is updated is live at two places in two.
    pub(super) async fn shared_values(
        &self,
        ids: &BTreeSet<u64>,
    ) -> Result<Vec<Finding>, LiveError> {
        let mut findings = shared_values(&self.name(Which::Heap), self.references(ids).await?);
        self.name_rows(findings.iter_mut().collect()).await?;
        Ok(findings)
    }

    /// Names the rows of findings in the table by their primary key.
    pub(super) async fn name_rows(&self, mut findings: Vec<&mut Finding>) -> Result<(), LiveError> {
        let name = self.name(Which::Heap);
        // it is not known where these tuples begin, or what is in them
        findings.retain(|finding| {
            let is_lost = matches!(
                finding.code,
                Code::LinePointer | Code::Redirect | Code::Overlap | Code::HeaderLength
            );
            finding.place.source == name && finding.place.item.is_some() && !is_lost
        });
        let blocks: BTreeSet<BlockNumber> =
            findings.iter().filter_map(|finding| finding.place.block).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let keys = checking::unique_keys(self.connection.client(), self.relation.oid).await?;
        let Some(key) = keys.into_iter().find(|key| key.is_primary) else { return Ok(()) };
        findings.sort_by_key(|finding| finding.place.block);
        self.each_page(Which::Heap, Some(blocks), |page| {
            let block = page.block;
            let start = findings.partition_point(|finding| finding.place.block < Some(block));
            let own = findings.iter_mut().skip(start);
            for finding in own.take_while(|finding| finding.place.block == Some(block)) {
                let Some(item) = finding.place.item else { continue };
                finding.row = page.by_key(ItemPointer { block, item }, &key.columns);
            }
        })
        .await
        .map(drop)
    }
}

impl LiveCheck {
    /// Finds those of a look's sound values of pluggable toasters that the server misreads. Each is read by a statement
    /// of its own, so that it is known which one the server has crashed on.
    pub(super) async fn misread(&self, result: &mut CheckedBlocks) -> Result<(), LiveError> {
        let customs = std::mem::take(&mut result.customs);
        let About { toasters, server, .. } = &*self.about;
        let Some((first, _)) = customs.first() else { return Ok(()) };
        if server.pageinspect.is_none() {
            return Ok(());
        }
        let client = self.connection.client();
        if !owner_facts::may_read(&self.connection, self.relation.oid, self.lock_mode).await? {
            result.remarks.unread.note(first);
            return Ok(());
        }
        let columns = toasters::columns(client, Some(self.relation.oid)).await?;
        let mut chunks = self.chunk_store();
        for (place, datum) in customs {
            let column = columns.iter().find(|column| column.index == datum.index);
            let (Some(block), Some(item)) = (place.block, place.item) else { continue };
            let (Some(column), ctid) = (column, ItemPointer { block, item }) else { continue };
            let Some(compared) = ComparedType::new(column.base_type) else {
                result.remarks.unread.note(&place);
                continue;
            };
            let page = server.page_size;
            let own = datum.reassembled(compared, toasters, page, &mut chunks).await;
            // what cannot be put together was reported
            let Ok(own) = own else { continue };
            let found = match self.server_reads(compared, column, ctid).await {
                Ok(Ok(Some(md5))) if md5 == own => continue,
                Ok(Ok(Some(md5))) => format!("md5 {md5} by SQL"),
                // the row is gone
                Ok(Ok(None)) => continue,
                Ok(Err(message)) => format!("an error: {message}"),
                Err(error) => return Err(crashed(error, &place)),
            };
            let expected = format!("md5 {own}, as the chunks hold it");
            result.findings.push(Finding::new(Code::CustomMisread, place, expected, found));
        }
        Ok(())
    }

    /// The md5 of what the server reads; `None` if there is no such row.
    async fn server_reads(
        &self,
        compared: ComparedType,
        column: &ToasterColumn,
        ctid: ItemPointer,
    ) -> Result<Result<Option<String>, String>, LiveError> {
        let sql = format!(
            "SELECT {} FROM ONLY {} AS t WHERE t.ctid = $1::pg_catalog.text::pg_catalog.tid",
            compared.sql(&format!("t.{}", quote_identifier(&column.name))),
            self.quoted(Which::Heap)
        );
        let client = self.connection.client();
        let address = ctid.to_string();
        self.attempt(async || Ok(client.value(&sql, &[(&address, Type::TEXT)]).await?)).await
    }
}

/// The error of a check whose connection ended while the server read a value, with the value's place.
fn crashed(error: LiveError, place: &Place) -> LiveError {
    match error {
        LiveError::Server(_) if is_sudden(&error) => LiveError::Crashed(format!(
            "the connection ended while the server read a value of a pluggable toaster at {place}: {error}\n\
             The server may have crashed on the value, which ends all sessions, so the run ends here.\n\
             HINT:  toastctl value TABLE --reassemble=DIR saves the value as toastctl reads it."
        )),
        other => other,
    }
}
