//! The chunks of values of a live table, found without the TOAST index.

use std::collections::{HashMap, HashSet};

use super::chunk_index::ChunkTuple;
use super::live_check::LiveCheck;
use super::reading::seen_chunk;
use super::subject::Which;
use super::value::ChunkSeen;
use crate::server::LiveError;
use crate::server::chunk_rows::{self, By};
use toast_format::disk::ItemPointer;
use toast_format::model::toaster::chunks::Fate;

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
    let found = check.in_snapshot(async |check| inside(check, ids).await).await?;
    Ok(found.unwrap_or_default())
}

async fn inside(
    check: &LiveCheck,
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
        Some(found) => found.rows.iter().map(|row| (row.value_id.0, seen_chunk(row))).collect(),
        // the server cannot plan a scan beside an index without its first page, nor scan pages that it cannot read
        None => {
            let mut found = Vec::new();
            check
                .each_chunk(
                    None,
                    |id| ids.binary_search(&id).is_ok(),
                    |id, ChunkTuple { seen, is_refused, is_misread, .. }| {
                        if seen.fate == Fate::Committed && !is_refused && !is_misread {
                            found.push((id, seen));
                        }
                    },
                )
                .await?;
            found
        }
    };
    let mut by_index: Option<HashSet<ItemPointer>> = None;
    if check.by_index {
        let read = check.attempt(|| chunk_rows::chunks(client, relation, ids, By::Index, None));
        by_index = read.await?.ok().map(|found| found.rows.iter().map(|row| row.tid).collect());
    }
    if let Some(by_index) = &by_index {
        // a scan believes pages that say that all of their tuples are visible
        let all_tids = all.iter().map(|(_, chunk)| chunk.tid);
        let left: Vec<ItemPointer> = all_tids.filter(|tid| !by_index.contains(tid)).collect();
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
