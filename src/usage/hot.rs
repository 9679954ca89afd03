//! Keys that are known to be used, and how small they are in a few documents out of line: facts for a finding.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::keys::{KnownUses, Named, NamedIn};
use crate::server::owner_facts::begin_reading;
use crate::server::probe::RowQuestion;
use crate::server::sampled::RowReader;
use crate::server::{Connection, LiveError, Relation, Server, snapshot};
use toast_format::disk::jsonb_of_text::jsonb;
use toast_format::disk::jsonb_parts::{PartStep, Visit, VisitedPart, walk};
use toast_format::disk::{BlockNumber, ByteOrder, ItemPointer, types};
use toast_format::heap::sample::Sample;
use toast_format::model::btree::ToastIndex;

/// Blocks in which documents are looked for, always the same.
const BLOCKS: u32 = 8;
const SEED: u64 = 1;
/// Rows that are asked for their sizes, documents that are read, and their stored bytes; the first may have more.
const ROWS: usize = 400;
const DOCUMENTS: usize = 40;
const BYTES: u64 = 1 << 20;
/// A document with more is not read.
const LONGEST: u64 = 32 << 20;

/// A key at the root of a column's documents that is known to be used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UsedKey {
    pub(crate) key: String,
    /// The indexes that name it: `index by_state`.
    pub(crate) named: Vec<String>,
    /// Its part of the documents' raw bytes.
    pub(crate) part: f64,
    /// Fraction of the documents that have it.
    pub(crate) presence: f64,
}

/// What a look at a column's documents has shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct UsedKeys {
    pub(crate) keys: Vec<UsedKey>,
    /// Pages that a read of a document visits besides its row's.
    pub(crate) buffers: f64,
}

/// The keys at the root that indexes contain. A generated column already stores its key, and whether a view is used is
/// not known.
fn indexed_keys(known: &KnownUses, column: &str) -> BTreeMap<String, Vec<Named>> {
    let mut keys = BTreeMap::new();
    for (path, named) in known.by_path(column) {
        let [Some(key)] = &path[..] else { continue };
        if named.iter().any(|named| named.kind == NamedIn::GeneratedColumn) {
            continue;
        }
        let indexes: Vec<Named> =
            named.into_iter().filter(|named| named.kind == NamedIn::Index).collect();
        if !indexes.is_empty() {
            keys.insert(key.clone(), indexes);
        }
    }
    keys
}

/// Looks at a few documents of a `jsonb` column that are out of line. `None` where no use is known, none is
/// found, or the table is not read by SQL.
///
/// # Errors
/// The server's.
pub(crate) async fn used_keys(
    connection: &Arc<Connection>,
    server: &Server,
    relation: &Relation,
    column: usize,
    known: &KnownUses,
) -> Result<Option<UsedKeys>, LiveError> {
    let Some(attribute) = relation.desc.attributes.get(column) else { return Ok(None) };
    let used = indexed_keys(known, &attribute.name);
    if used.is_empty() || attribute.type_oid != types::JSONB {
        return Ok(None);
    }
    match begin_reading(connection, relation, false).await {
        Err(LiveError::OwnerCode(_)) => return Ok(None),
        begun => begun?,
    };
    let documents = documents(connection, server, relation, column).await;
    let ended = snapshot::end(connection.client()).await;
    let documents = documents?;
    ended?;
    let page = server.page_size;
    let levels = relation.toast.as_ref().map_or(0, |toast| toast.full_index_levels(page));
    let mut seen = KeySums { of: used.keys().map(|key| (key.as_bytes(), (0, 0))).collect() };
    let mut number = 0u64;
    let mut raw = 0u64;
    let mut buffers = 0.0;
    for (stored, text) in &documents {
        let Ok(content) = jsonb(text) else { continue };
        // `toastctl check` reports damage
        if walk(&content, ByteOrder::Little, 1, (), &mut seen).is_err() {
            continue;
        }
        number += 1;
        raw += content.len() as u64;
        let stored = u32::try_from(*stored).unwrap_or(u32::MAX);
        buffers += ToastIndex::read(page, levels, stored, None).buffers();
    }
    if number == 0 {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(used.len());
    for (key, indexes) in &used {
        let Some(&(values, bytes)) = seen.of.get(key.as_bytes()) else { continue };
        keys.push(UsedKey {
            key: key.clone(),
            named: indexes.iter().map(ToString::to_string).collect(),
            part: bytes as f64 / raw.max(1) as f64,
            presence: values as f64 / number as f64,
        });
    }
    Ok(Some(UsedKeys { keys, buffers: buffers / number as f64 }))
}

/// The texts of some documents out of line, with their stored bytes.
async fn documents(
    connection: &Arc<Connection>,
    server: &Server,
    relation: &Relation,
    column: usize,
) -> Result<Vec<(u64, Vec<u8>)>, LiveError> {
    let reader = RowReader::new(Arc::clone(connection), server, relation).await?;
    let total = reader.block_count().await?;
    let blocks: Vec<BlockNumber> = Sample::new(total, BLOCKS, SEED).collect();
    let mut items: Vec<ItemPointer> =
        reader.addresses(&blocks).await?.into_iter().flatten().collect();
    let step = items.len().div_ceil(ROWS).max(1);
    items = items.into_iter().step_by(step).collect();
    let rows = reader.rows(&items, RowQuestion::Sizes).await?;
    let mut taken: HashMap<ItemPointer, u64> = HashMap::new();
    let mut bytes = 0u64;
    for row in rows {
        if taken.len() >= DOCUMENTS || bytes >= BYTES {
            break;
        }
        let Some(value) = row.values.get(column) else { continue };
        let Some(size) = value.stored_size else { continue };
        if value.form.is_external() && size <= LONGEST {
            bytes += size;
            taken.insert(row.ctid, size);
        }
    }
    let wanted: Vec<ItemPointer> = taken.keys().copied().collect();
    let texts = reader.texts(column, &wanted).await?;
    Ok(texts.into_iter().filter_map(|(ctid, text)| Some((*taken.get(&ctid)?, text))).collect())
}

/// Adds up values and bytes of some keys.
struct KeySums<'k> {
    of: HashMap<&'k [u8], (u64, u64)>,
}

impl Visit for KeySums<'_> {
    type At = ();

    fn part(&mut self, (): (), part: &VisitedPart<'_>) -> Option<()> {
        if let PartStep::Key(key) = part.step
            && let Some((values, bytes)) = self.of.get_mut(key)
        {
            *values += 1;
            *bytes += part.bytes;
        }
        None
    }
}
