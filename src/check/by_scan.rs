//! The chunks of values as a scan of the TOAST relation finds them, and whether its index leads to them too.

use std::collections::{HashMap, HashSet};

use super::look::{Looker, Which};
use super::look_values::seen;
use super::value::ChunkSeen;
use crate::disk::ItemPointer;
use crate::model::toaster::chunks::Fate;
use crate::server::LiveError;
use crate::server::checking::Standing;
use crate::server::chunk_rows::{self, By};
use crate::server::connect::Client;
use crate::server::pages::is_about_data;
use crate::server::snapshot;

/// A live chunk in the TOAST relation.
#[derive(Debug, Clone, Copy)]
pub(super) struct InRelation {
    pub(super) seen: ChunkSeen,
    /// Whether the index leads to it; `None` if the index cannot be read.
    pub(super) is_indexed: Option<bool>,
}

/// The live chunks of values, whose IDs are in order.
pub(super) async fn chunks(
    looker: &mut Looker,
    ids: &[u32],
) -> Result<HashMap<u32, Vec<InRelation>>, LiveError> {
    let found = match looker.begin().await? {
        Some(standing) => inside(looker, &standing, ids).await,
        None => Ok(HashMap::new()),
    };
    snapshot::abandon(looker.connection.client()).await?;
    found
}

async fn inside(
    looker: &Looker,
    standing: &Standing,
    ids: &[u32],
) -> Result<HashMap<u32, Vec<InRelation>>, LiveError> {
    let client = looker.connection.client();
    let mut chunks: HashMap<u32, Vec<InRelation>> = HashMap::new();
    if looker.relation.toast.is_none() {
        return Ok(chunks);
    }
    let quoted = looker.quoted(Which::Toast);
    let scan = async || chunk_rows::chunks(client, &quoted, ids, By::Scan, None).await;
    let mut all: Vec<(u32, ChunkSeen)> = match attempt(client, scan).await? {
        Some(rows) => rows.iter().map(|row| (row.value_id.0, seen(row))).collect(),
        // the server cannot plan a scan beside an index without its first page, nor scan pages that it cannot read
        None => {
            let (of_pages, _) = looker.chunks_in_pages(standing, ids).await?;
            let of_pages = of_pages.into_iter().flat_map(|(id, own)| {
                let own = own.into_iter().filter(|c| !c.is_refused);
                own.map(move |chunk| (id, chunk.seen)).collect::<Vec<_>>()
            });
            of_pages.filter(|(_, chunk)| chunk.fate == Fate::Committed).collect()
        }
    };
    let index = async || chunk_rows::chunks(client, &quoted, ids, By::Index, None).await;
    let by_index = attempt(client, index).await?;
    let by_index: Option<HashSet<ItemPointer>> =
        by_index.map(|rows| rows.iter().map(|row| row.tid).collect());
    if let Some(by_index) = &by_index {
        // a scan believes pages that say that all of their tuples are visible
        let left: Vec<ItemPointer> = all.iter().map(|(_, chunk)| chunk.tid).collect();
        let left: Vec<ItemPointer> =
            left.into_iter().filter(|tid| !by_index.contains(tid)).collect();
        if !left.is_empty() {
            let ask = async || chunk_rows::visible(client, &quoted, &left).await;
            let visible = attempt(client, ask).await?.unwrap_or_default();
            all.retain(|(_, chunk)| by_index.contains(&chunk.tid) || visible.contains(&chunk.tid));
        }
    }
    all.sort_unstable_by_key(|(id, chunk)| (*id, chunk.seq, chunk.tid));
    for (id, seen) in all {
        let is_indexed = by_index.as_ref().map(|found| found.contains(&seen.tid));
        chunks.entry(id).or_default().push(InRelation { seen, is_indexed });
    }
    Ok(chunks)
}

/// What is asked for; `None` if the server cannot read it.
async fn attempt<T>(
    client: &Client,
    ask: impl AsyncFnOnce() -> Result<T, LiveError>,
) -> Result<Option<T>, LiveError> {
    client.batch_execute("SAVEPOINT toastctl_scan").await?;
    match ask().await {
        Ok(found) => {
            client.batch_execute("RELEASE SAVEPOINT toastctl_scan").await?;
            Ok(Some(found))
        }
        Err(LiveError::Server(error)) if is_about_data(&error) => {
            client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_scan").await?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
