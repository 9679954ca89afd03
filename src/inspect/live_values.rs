//! Values of a live server that are put together from their chunks: one in every detail, or all in turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::anatomy::{self, Anatomy, Wanted};
use super::contents::{ContentSink, create_dir};
use super::inspector::{ContentOptions, InspectError, Inspector, no_client};
use super::values::RowWriter;
use crate::disk::ItemPointer;
use crate::heap::problem::Problems;
use crate::server::catalog::Relation;
use crate::server::chunks::{ChunkPages, LiveChunks};
use crate::server::connect::Connection;
use crate::server::pages::PageReader;
use crate::server::snapshot::{self, Moment};
use crate::server::toasters;

impl Inspector {
    /// Takes one value apart: that of `column` in the tuple at `ctid`, dead or alive.
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
        let pageinspect = self.server.pageinspect.as_ref().ok_or_else(no_client).map_err(live)?;
        let leader = self.connections.first().ok_or_else(no_client).map_err(live)?;
        let moment = snapshot::begin(leader).await.map_err(live)?;
        let (connection, page_size) = (Arc::clone(leader), self.server.page_size);
        let snapshot = moment.snapshot.clone();
        let mut reader =
            PageReader::new(connection, pageinspect, page_size, relation.quoted(), snapshot)
                .await
                .map_err(live)?;
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
        let (desc, flavor) = (&relation.desc, self.options.flavor);
        let wanted = Wanted { relation: &name, desc, flavor, column, ctid };
        let bytes = pages.iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        let anatomy = anatomy::on_page(bytes, &wanted, &mut store, &toasters, page_size);
        snapshot::end(leader.client()).await.map_err(live)?;
        anatomy.map_err(missing)
    }

    /// Chunks read on this connection; `dead`: those too that no statement gives.
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

    pub(super) async fn content_sink<'w>(
        &self,
        relation: &str,
        moment: &Moment,
        contents: &ContentOptions,
        connection: &Arc<Connection>,
        writer: &'w mut (dyn RowWriter + Send),
    ) -> Result<ContentSink<'w, LiveChunks>, InspectError> {
        let live = |error| InspectError::Live { relation: relation.to_owned(), error };
        if let Some(dir) = &contents.output_dir {
            create_dir(dir)?;
        }
        Ok(ContentSink {
            relation: relation.to_owned(),
            store: self.chunk_store(connection, moment, false),
            toasters: toasters::toasters(connection.client(), &self.server).await.map_err(live)?,
            page: self.server.page_size,
            writer,
            output_dir: contents.output_dir.clone(),
            problems: Problems::default(),
            unknown: BTreeSet::new(),
            error: None,
        })
    }
}
