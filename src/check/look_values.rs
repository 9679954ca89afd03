//! The values that a look at a live table has met: their chunks by the TOAST index, many at a time.

use std::collections::{HashMap, HashSet};

use super::code::Code;
use super::collector::Collector;
use super::finding::Finding;
use super::look::{Look, Looker, Which};
use super::outline::odd_ones;
use super::subject::{External, Subject};
use super::value::{ChunkForm, ChunkSeen, Damage, check_chunks, external_content};
use crate::disk::{ItemPointer, Oid};
use crate::heap::problem::Place;
use crate::model::toaster::chunks::Fate;
use crate::server::LiveError;
use crate::server::chunk_rows::{self, By, ChunkRow};
use crate::server::pages::is_about_data;

/// Values whose chunks are asked for with one statement, with their data or without, and the bytes or
/// chunks that they may have.
const VALUES: usize = 4096;
const BYTES: u64 = 16 << 20;
const OUTLINES: usize = 16384;
const CHUNKS: u64 = 1 << 20;

impl Looker {
    /// The chunks of values, which the index leads to, some at a time.
    pub(super) async fn values(
        &self,
        subject: &Subject<'_>,
        mut values: Vec<External>,
        look: &mut Look,
    ) -> Result<(), LiveError> {
        // rows of unknown fate have chunks that this transaction may not see
        values.retain(|value| value.is_live);
        let count = values.len() as u64;
        let own = self.relation.toast.as_ref().map(|toast| toast.oid);
        values.retain(|value| Some(value.pointer.toast_relation) == own);
        look.elsewhere += count - values.len() as u64;
        let wants = |value: &External| Collector::new(subject, None).wants_content(value);
        let (mut with, mut without): (Vec<External>, Vec<External>) =
            values.into_iter().partition(wants);
        with.sort_by_key(|value| value.pointer.value_id);
        without.sort_by_key(|value| value.pointer.value_id);
        let page = self.about.server.page_size;
        let chunks = |value: &External| u64::from(page.chunks(value.pointer.stored_size()));
        for part in parts(&without, OUTLINES, CHUNKS, chunks) {
            self.by_outlines(subject, part, look).await?;
        }
        for part in parts(&with, VALUES, BYTES, |value| u64::from(value.pointer.stored_size())) {
            self.some(subject, part, true, look).await?;
        }
        Ok(())
    }

    /// Looks at values, in order, by the numbers and sizes of their chunks, and closer at those that
    /// are not as they should be.
    async fn by_outlines(
        &self,
        subject: &Subject<'_>,
        values: &[External],
        look: &mut Look,
    ) -> Result<(), LiveError> {
        let relation = self.quoted(Which::Toast);
        let ids = ids(values);
        let ask = || chunk_rows::outlines(self.connection.client(), &relation, &ids);
        let rows = match self.attempt(ask).await? {
            Ok(Some(rows)) => rows,
            Ok(None) | Err(_) => Vec::new(),
        };
        let (odd, chunks) = odd_ones(values, &rows, self.about.server.page_size);
        look.looked.values += (values.len() - odd.len()) as u64;
        look.looked.chunks += chunks;
        for part in odd.chunks(VALUES) {
            self.some(subject, part, false, look).await?;
        }
        Ok(())
    }

    async fn some(
        &self,
        subject: &Subject<'_>,
        values: &[External],
        with_data: bool,
        look: &mut Look,
    ) -> Result<(), LiveError> {
        let mut left = vec![values];
        while let Some(values) = left.pop() {
            match self.fetch(values, with_data).await? {
                Ok(rows) => self.judge(subject, values, rows, with_data, look),
                // one of them it is
                Err(_) if values.len() > 1 => {
                    let (first, second) = values.split_at(values.len() / 2);
                    left.extend([second, first]);
                }
                Err(message) => {
                    let expected = "chunks that the server can read";
                    let damage = Damage::new(Code::ChunkUnreadable, expected, message);
                    let mut collector = Collector::new(subject, None);
                    values.iter().for_each(|value| collector.damaged(value, damage.clone()));
                    // it may be the index that cannot be read
                    let found = std::mem::take(&mut collector.findings);
                    look.missing.extend(found.into_iter().zip(values.iter().copied()));
                }
            }
        }
        Ok(())
    }

    /// The chunks of `values`; the server's message if it cannot read them.
    async fn fetch(
        &self,
        values: &[External],
        with_data: bool,
    ) -> Result<Result<Vec<ChunkRow>, String>, LiveError> {
        let relation = self.quoted(Which::Toast);
        let ids = ids(values);
        let data = with_data.then_some(self.about.server.page_size);
        let client = self.connection.client();
        self.attempt(|| chunk_rows::chunks(client, &relation, &ids, By::Index, data)).await
    }

    /// What a statement gives; the server's message where it is the data that it cannot read.
    async fn attempt<T>(
        &self,
        ask: impl AsyncFnOnce() -> Result<T, LiveError>,
    ) -> Result<Result<T, String>, LiveError> {
        let client = self.connection.client();
        client.batch_execute("SAVEPOINT toastctl_chunks").await?;
        match ask().await {
            Ok(rows) => {
                client.batch_execute("RELEASE SAVEPOINT toastctl_chunks").await?;
                Ok(Ok(rows))
            }
            Err(LiveError::Server(error)) if is_about_data(&error) || is_too_much(&error) => {
                client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_chunks").await?;
                Ok(Err(LiveError::Server(error).to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn judge(
        &self,
        subject: &Subject<'_>,
        values: &[External],
        rows: Vec<ChunkRow>,
        with_data: bool,
        look: &mut Look,
    ) {
        let mut collector = Collector::new(subject, None);
        let mut by_value: HashMap<Oid, Vec<ChunkRow>> = HashMap::with_capacity(values.len());
        for row in rows {
            by_value.entry(row.value_id).or_default().push(row);
        }
        let mut asked = values.iter().map(|value| value.pointer.value_id).peekable();
        let mut strangers: Vec<Oid> = by_value.keys().copied().collect();
        strangers.sort_unstable();
        strangers.retain(|id| {
            while asked.next_if(|own| own < id).is_some() {}
            asked.peek() != Some(id)
        });
        for row in strangers.iter().filter_map(|id| by_value.get(id)).flatten() {
            collector.add(self.led_to(row));
        }
        let page = self.about.server.page_size;
        for value in values {
            let rows = by_value.get(&value.pointer.value_id).map_or(&[][..], Vec::as_slice);
            let mut all: Vec<ChunkSeen> = rows.iter().map(seen).collect();
            let mut checked = check_chunks(&value.pointer, &all, page);
            if matches!(&checked, Err(damage) if damage.code == Code::ChunkTwice) {
                // the entry of another chunk may lead to one of these
                let mut places = HashSet::new();
                let twice = rows.iter().filter(|row| !places.insert(row.tid));
                let twice: Vec<Finding> = twice.map(|row| self.led_to(row)).collect();
                if !twice.is_empty() {
                    all.retain(|chunk| places.remove(&chunk.tid));
                    checked = check_chunks(&value.pointer, &all, page);
                    twice.into_iter().for_each(|finding| collector.add(finding));
                }
            }
            let chunks = match checked {
                Ok(chunks) => chunks,
                Err(damage) => {
                    let is_absence = damage.is_absence();
                    collector.damaged(value, damage);
                    if is_absence && let Some(finding) = collector.findings.pop() {
                        look.missing.push((finding, *value));
                    }
                    continue;
                }
            };
            collector.looked.values += 1;
            collector.looked.chunks += chunks.len() as u64;
            if !with_data {
                continue;
            }
            let data: HashMap<ItemPointer, &[u8]> =
                rows.iter().filter_map(|row| Some((row.tid, row.data.as_deref()?))).collect();
            let mut stored = Vec::with_capacity(value.pointer.stored_size() as usize);
            for chunk in &chunks {
                stored.extend_from_slice(data.get(&chunk.tid).unwrap_or(&&[][..]));
            }
            match external_content(&value.pointer, stored, value.order) {
                Ok(content) => collector.content(value, &content),
                Err(damage) => collector.damaged(value, damage),
            }
        }
        add(look, &mut collector);
    }

    /// A chunk that the index leads to from an entry that is not the chunk's own.
    fn led_to(&self, row: &ChunkRow) -> Finding {
        let place = Place {
            block: Some(row.tid.block),
            item: Some(row.tid.item),
            ..Place::of(self.name(Which::Toast))
        };
        let seq = row.seq.map_or("NULL".to_owned(), |seq| seq.to_string());
        let found = format!("chunk {seq} of value {}", row.value_id);
        Finding::new(Code::IndexEntryWrong, place, "a chunk asked for", found)
    }
}

/// The values' IDs, each once.
fn ids(values: &[External]) -> Vec<u32> {
    let mut ids: Vec<u32> = values.iter().map(|value| value.pointer.value_id.0).collect();
    ids.dedup();
    ids
}

/// Parts of `values` of at most so many, which have at most `most` together of what `size` counts,
/// unless a part is one value.
fn parts(
    values: &[External],
    count: usize,
    most: u64,
    size: impl Fn(&External) -> u64,
) -> impl Iterator<Item = &[External]> {
    let mut rest = values;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = rest.iter().take(count).take_while(|value| {
            sum += size(value);
            sum <= most
        });
        let (part, left) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = left;
        (!part.is_empty()).then_some(part)
    })
}

/// Whether an answer is longer than the server can make it, as damage may have it (class 54).
fn is_too_much(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| db.code().code().starts_with("54"))
}

/// A chunk without its data, as the server tells of it.
pub(super) fn seen(row: &ChunkRow) -> ChunkSeen {
    let size = row.raw_size.unwrap_or(0);
    let header = row.stored_size.unwrap_or(0).saturating_sub(size);
    let form = match (row.seq, row.raw_size) {
        (None, _) | (_, None) => ChunkForm::Null,
        // a header of 1 or 4 bytes
        _ if header == 1 || header == 4 => ChunkForm::Plain,
        _ => ChunkForm::NotPlain,
    };
    ChunkSeen {
        tid: row.tid,
        seq: row.seq.unwrap_or(0),
        form,
        size: u32::try_from(size).unwrap_or(0),
        fate: Fate::Committed,
    }
}

fn add(look: &mut Look, collector: &mut Collector<'_>) {
    look.findings.append(&mut collector.findings);
    look.looked.add(&collector.looked);
}
