//! What is left of a damaged value of a live table.

use std::sync::Arc;

use super::damaged_row::value_at;
use super::look::{Looker, Which};
use super::salvage::{self, Piece, Saved};
use super::salvage_dir::Wanted;
use crate::disk::pointer::ToastPointer;
use crate::disk::varlena::Varlena;
use crate::model::sql::quote_qualified;
use crate::server::LiveError;
use crate::server::checking::Standing;
use crate::server::chunk_rows;
use crate::server::pages::{PageReader, is_about_data};
use crate::server::snapshot;

impl Looker {
    /// What is left of a damaged value; `None` if the row is not there any more.
    pub async fn save(&mut self, wanted: &Wanted) -> Result<Option<Saved>, LiveError> {
        let saved = match self.begin().await? {
            Some(standing) => self.left_of(&standing, wanted).await,
            None => Ok(None),
        };
        snapshot::abandon(self.connection.client()).await?;
        saved
    }

    async fn left_of(
        &self,
        standing: &Standing,
        wanted: &Wanted,
    ) -> Result<Option<Saved>, LiveError> {
        let server = &self.about.server;
        let (Some(pageinspect), true) =
            (server.pageinspect.as_ref(), wanted.ctid.block.0 < standing.blocks)
        else {
            return Ok(None);
        };
        let mut reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            server.page_size,
            self.quoted(Which::Heap),
            standing.snapshot.clone(),
        )
        .await?;
        let pages = reader.read(&[wanted.ctid.block]).await?;
        let name = self.name(Which::Heap);
        let subject = self.subject(standing, Which::Heap, &name, &self.relation.desc);
        let (pointer, order) = {
            let Some((_, bytes)) = pages.iter().next() else { return Ok(None) };
            let Some(found) = value_at(bytes, &subject, wanted.ctid, &wanted.column) else {
                return Ok(None);
            };
            match &found.value {
                Varlena::External(pointer) => (*pointer, found.tuple.order),
                value => return Ok(Some(salvage::inline(value))),
            }
        };
        let pieces = self.pieces(&pointer).await?;
        Ok(Some(salvage::external(&pointer, pieces, server.page_size, order)))
    }

    /// The chunks of a value that the server can read: all at once, or where it refuses one by one.
    async fn pieces(&self, pointer: &ToastPointer) -> Result<Vec<Piece>, LiveError> {
        let server = &self.about.server;
        let Some(toast) = &self.relation.toast else { return Ok(Vec::new()) };
        let relation = quote_qualified("pg_toast", &toast.name);
        let client = self.connection.client();
        let mut pieces = Vec::new();
        let all = server.page_size.chunks(pointer.stored_size());
        let mut asked = vec![None];
        while let Some(seq) = asked.pop() {
            client.batch_execute("SAVEPOINT toastctl_piece").await?;
            let (id, page) = (pointer.value_id, server.page_size);
            match chunk_rows::pieces(client, &relation, id, seq, page).await {
                Ok(found) => {
                    pieces.extend(found.into_iter().map(|(seq, data)| Piece { seq, data }));
                    client.batch_execute("RELEASE SAVEPOINT toastctl_piece").await?;
                }
                Err(LiveError::Server(error)) if is_about_data(&error) => {
                    client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_piece").await?;
                    if seq.is_none() {
                        asked.extend((0..all).filter_map(|n| i32::try_from(n).ok()).map(Some));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(pieces)
    }
}
