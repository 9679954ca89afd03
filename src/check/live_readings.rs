//! Whether the server reads values of pluggable toasters as their chunks hold them. What it reads is compared as an md5.

use tokio_postgres::types::Type;

use super::code::Code;
use super::collector::CheckedBlocks;
use super::finding::Finding;
use super::live_check::{About, LiveCheck};
use super::subject::Which;
use crate::server::checking::Standing;
use crate::server::sqlstate::is_sudden;
use crate::server::{LiveError, owner_facts, toasters};
use crate::value::reading::ComparedType;
use toast_format::disk::ItemPointer;
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_identifier;
use toast_format::model::toaster::catalog::ToasterColumn;

impl LiveCheck {
    /// Finds those of a look's sound values of pluggable toasters that the server misreads. Each is read by a statement
    /// of its own, so that it is known which one the server has crashed on.
    pub(super) async fn misread(
        &self,
        standing: &Standing,
        result: &mut CheckedBlocks,
    ) -> Result<(), LiveError> {
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
        let mut chunks = self.chunk_store(standing);
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
