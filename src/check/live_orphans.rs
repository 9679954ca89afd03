//! Chunks that no row refers to. Rows move while a table is read batch by batch, and one that moves
//! from a block still to be read to one read before is not met: that a value has no row is known only
//! once every block was looked at since it was last changed.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::code::Code;
use super::finding::{self, Finding, chunks_without_row, place_at};
use super::live_check::{BATCH, LiveCheck};
use super::live_chunks::{self, InRelation};
use super::subject::Which;
use super::value::ChunkSeen;
use crate::server::checking;
use crate::server::{LiveError, snapshot};
use toast_format::disk::{BlockNumber, ValueId};

/// Rounds over blocks that were changed meanwhile, each batch in a transaction of its own, before one
/// snapshot is held for a round.
const ROUNDS: usize = 3;
/// How long that snapshot is held at the most.
const HELD: Duration = Duration::from_secs(10);

/// How far the table's blocks were looked at.
#[derive(Debug, Default)]
pub(super) struct LsnMarks {
    /// The table's file (`relfilenode`).
    file: u32,
    /// By number of batch the place in the write-ahead log up to which changes were seen; 0: not
    /// known.
    lsns: Vec<u64>,
    /// Blocks from here on were not looked at at all.
    end: u32,
}

impl LsnMarks {
    /// Nothing of this file was looked at yet.
    pub(super) fn new(file: u32) -> LsnMarks {
        LsnMarks { file, ..LsnMarks::default() }
    }

    /// Notes that blocks were looked at after `lsn` was the end of the log. A batch that several looks
    /// share has the mark of the first.
    pub(super) fn note(&mut self, blocks: &Range<u32>, lsn: u64) {
        let first = (blocks.start / BATCH) as usize;
        let end = blocks.end.div_ceil(BATCH) as usize;
        if self.lsns.len() < end {
            self.lsns.resize(end, u64::MAX);
        }
        self.lsns.iter_mut().take(end).skip(first).for_each(|mark| *mark = lsn.min(*mark));
        self.end = self.end.max(blocks.end);
    }

    /// The mark of the batch that begins there, which the next note sets anew.
    fn take(&mut self, first: u32) -> u64 {
        let mark = self.lsns.get_mut((first / BATCH) as usize);
        let mark = mark.map(|mark| std::mem::replace(mark, u64::MAX));
        mark.filter(|&mark| mark != u64::MAX).unwrap_or(0)
    }
}

/// How a round over the table ended.
enum RoundEnd {
    /// So many blocks had been changed.
    Changed(u64),
    /// It cannot be told, and why not.
    Lost(&'static str),
    /// The table is gone.
    Gone,
}

/// The decision about values that seemed to have no row.
pub(super) enum Decided {
    /// No row refers to these: a finding for each that is still there.
    Found(Vec<Finding>),
    /// Of so many it cannot be told, and why not.
    Open(usize, &'static str),
}

/// Tells of values of the TOAST relation those that no row refers to. `marks` is how far the table's
/// blocks were looked at before.
pub(super) async fn decide(
    check: &mut LiveCheck,
    mut marks: LsnMarks,
    mut left: HashSet<u64>,
    is_logged: bool,
) -> Result<Decided, LiveError> {
    let mut rounds = 0;
    loop {
        if left.is_empty() {
            return Ok(Decided::Found(Vec::new()));
        }
        // without a log there are no rounds
        let holds = rounds >= ROUNDS || !is_logged;
        let connection = Arc::clone(&check.connection);
        let round = round(check, holds, &mut marks, &mut left);
        match snapshot::abandoned(connection.client(), round).await? {
            RoundEnd::Changed(changed) if changed == 0 || holds => break,
            RoundEnd::Changed(_) => rounds += 1,
            RoundEnd::Lost(why) => return Ok(Decided::Open(left.len(), why)),
            RoundEnd::Gone => return Ok(Decided::Found(Vec::new())),
        }
    }
    without_row(check, left).await.map(Decided::Found)
}

/// Looks at the blocks that were changed since they were looked at last, and leaves in `left` what
/// their rows do not refer to. If none was changed, and likewise if one snapshot was held for all,
/// no row refers to what is left: it would stand where it was seen before, or be seen now.
async fn round(
    check: &mut LiveCheck,
    holds: bool,
    marks: &mut LsnMarks,
    left: &mut HashSet<u64>,
) -> Result<RoundEnd, LiveError> {
    const BUSY: &str = "the table is changed faster than it can be read in 10 s";
    let began = Instant::now();
    let mut changed: u64 = 0;
    let mut first: u32 = 0;
    let mut has_begun = false;
    loop {
        if !has_begun && !check.begin().await? {
            return Ok(RoundEnd::Gone);
        }
        has_begun = holds;
        let now = &check.standing;
        if now.file != marks.file {
            // rewritten meanwhile
            *marks = LsnMarks::new(now.file);
            (changed, first) = (changed + 1, 0);
        }
        let end = first.saturating_add(BATCH).min(now.blocks);
        if first >= end {
            return Ok(RoundEnd::Changed(changed));
        }
        let lsn = marks.take(first);
        let seen = marks.end.clamp(first, end);
        let log_end = now.lsn.unwrap_or(0);
        let mut blocks = changed_of(check, first..seen, lsn).await?;
        blocks.extend((seen..end).map(BlockNumber));
        if !blocks.is_empty() {
            let (known, is_whole) = check.referred_ids(&blocks).await?;
            if !is_whole {
                return Ok(RoundEnd::Lost(finding::UNREAD));
            }
            for id in known {
                left.remove(&id);
            }
            changed += blocks.len() as u64;
        }
        marks.note(&(first..end), log_end);
        if left.is_empty() {
            return Ok(RoundEnd::Changed(changed));
        }
        first = end;
        if !holds {
            snapshot::end(check.connection.client()).await?;
        } else if began.elapsed() > HELD {
            return Ok(RoundEnd::Lost(BUSY));
        }
    }
}

/// Those of some blocks that were changed after `lsn`.
async fn changed_of(
    check: &LiveCheck,
    blocks: Range<u32>,
    lsn: u64,
) -> Result<Vec<BlockNumber>, LiveError> {
    if lsn == 0 || blocks.is_empty() {
        return Ok(blocks.map(BlockNumber).collect());
    }
    let relation = check.quoted(Which::Heap);
    let client = check.connection.client();
    let server = &check.about.server;
    checking::changed_since(client, server, &relation, blocks, lsn).await
}

/// Findings for those of the values whose chunks are still there: a chunk that the index does not lead to is
/// damage of the index, and is there for good until that is rebuilt; others only take space.
async fn without_row(check: &mut LiveCheck, left: HashSet<u64>) -> Result<Vec<Finding>, LiveError> {
    let toast = check.name(Which::Toast);
    let mut ids: Vec<u64> = left.into_iter().collect();
    ids.sort_unstable();
    let chunks = live_chunks::chunks(check, &ids).await?;
    let mut findings = Vec::new();
    for id in ids {
        let Some(own) = chunks.get(&id) else { continue };
        let mut others: Vec<&ChunkSeen> = Vec::new();
        for InRelation { seen, is_indexed } in own {
            if *is_indexed != Some(false) {
                others.push(seen);
                continue;
            }
            let place = place_at(&toast, seen.tid);
            let expected = format!("an entry for chunk {} of value {id}", seen.seq);
            let found = "none; no row refers to the chunk either";
            findings.push(Finding::new(Code::IndexEntryMissing, place, expected, found));
        }
        if let Some(first) = others.first() {
            let bytes = others.iter().map(|chunk| u64::from(chunk.size)).sum();
            let found = chunks_without_row(others.len() as u64, ValueId(id), bytes);
            let expected = "a row that refers to them";
            let place = place_at(&toast, first.tid);
            findings.push(Finding::new(Code::Orphan, place, expected, found));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_first_mark_of_the_looks_that_share_it() {
        let mut marks = LsnMarks::default();
        marks.note(&(0..360), 50);
        marks.note(&(360..720), 40);
        marks.note(&(720..1000), 60);
        assert_eq!([marks.take(0), marks.take(512), marks.take(1024)], [40, 40, 0]);
        assert_eq!(marks.end, 1000);
        // looked at again
        marks.note(&(0..512), 70);
        assert_eq!([marks.take(0), marks.take(512)], [70, 0]);
        assert_eq!(marks.end, 1000);
    }
}
