//! The chunks of values of a live table, found without the TOAST index.

use std::collections::{HashMap, HashSet};

use super::evidence::ChunksByValue;
use super::live_check::LiveCheck;
use super::reading::seen_chunk;
use super::subject::Which;
use super::value::ChunkSeen;
use crate::server::LiveError;
use crate::server::checking::Standing;
use crate::server::chunk_rows::{self, By};
use toast_format::disk::{BlockNumber, ItemPointer};
use toast_format::model::toaster::chunks::Fate;

impl LiveCheck {
    /// The chunks of values, whose IDs are in order, deleted ones too, as they stand in the TOAST relation: no
    /// index is asked.
    pub(super) async fn chunks_in_pages(
        &self,
        standing: &Standing,
        ids: &[u64],
    ) -> Result<(ChunksByValue, Vec<BlockNumber>), LiveError> {
        let mut chunks = ChunksByValue::new();
        let lost = self
            .each_chunk(
                standing,
                None,
                |id| ids.binary_search(&id).is_ok(),
                |id, chunk| {
                    if !chunk.is_misread {
                        chunks.entry(id).or_default().push(chunk);
                    }
                },
            )
            .await?;
        Ok((chunks, lost))
    }
}

/// A live chunk in the TOAST relation.
#[derive(Debug, Clone, Copy)]
pub(super) struct InRelation {
    pub(super) seen: ChunkSeen,
    /// Whether the index leads to it; `None` if the index cannot be read.
    pub(super) is_indexed: Option<bool>,
}

/// The live chunks of values, whose IDs are in order.
pub(super) async fn chunks(
    check: &mut LiveCheck,
    ids: &[u64],
) -> Result<HashMap<u64, Vec<InRelation>>, LiveError> {
    let found =
        check.in_snapshot(async |check, standing| inside(check, standing, ids).await).await?;
    Ok(found.unwrap_or_default())
}

async fn inside(
    check: &LiveCheck,
    standing: &Standing,
    ids: &[u64],
) -> Result<HashMap<u64, Vec<InRelation>>, LiveError> {
    let client = check.connection.client();
    let mut chunks: HashMap<u64, Vec<InRelation>> = HashMap::new();
    if check.relation.toast.is_none() {
        return Ok(chunks);
    }
    let quoted = check.quoted(Which::Toast);
    let relation = (quoted.as_str(), check.id_type());
    let by_scan =
        check.attempt(|| chunk_rows::chunks(client, relation, ids, By::Scan, None)).await?;
    let mut all: Vec<(u64, ChunkSeen)> = match by_scan.ok() {
        Some(rows) => rows.iter().map(|row| (row.value_id.0, seen_chunk(row))).collect(),
        // the server cannot plan a scan beside an index without its first page, nor scan pages that it cannot read
        None => {
            let (of_pages, _) = check.chunks_in_pages(standing, ids).await?;
            let of_pages = of_pages.into_iter().flat_map(|(id, own)| {
                let own = own.into_iter().filter(|c| !c.is_refused);
                own.map(move |chunk| (id, chunk.seen)).collect::<Vec<_>>()
            });
            of_pages.filter(|(_, chunk)| chunk.fate == Fate::Committed).collect()
        }
    };
    let by_index = if check.by_index {
        check
            .attempt(async || chunk_rows::chunks(client, relation, ids, By::Index, None).await)
            .await?
            .ok()
    } else {
        None
    };
    let by_index: Option<HashSet<ItemPointer>> =
        by_index.map(|rows| rows.iter().map(|row| row.tid).collect());
    if let Some(by_index) = &by_index {
        // a scan believes pages that say that all of their tuples are visible
        let left: Vec<ItemPointer> = all.iter().map(|(_, chunk)| chunk.tid).collect();
        let left: Vec<ItemPointer> =
            left.into_iter().filter(|tid| !by_index.contains(tid)).collect();
        if !left.is_empty() {
            let visible = check
                .attempt(async || chunk_rows::visible(client, &quoted, &left).await)
                .await?
                .unwrap_or_default();
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
