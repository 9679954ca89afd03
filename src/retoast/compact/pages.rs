//! The table's own file: a transaction that moves all rows off some pages.
//!
//! A new version of a row goes to the row's own page as long as there is room, so rows are updated until their page
//! is full and they go elsewhere. This must happen in one transaction, because nothing on the page can be pruned
//! before its end.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};

use futures_util::future::join_all;
use tokio_postgres::types::{ToSql, Type};

use crate::retoast::compact::look::{SOME, TableRows, first_look, ranges, unsigned};
use crate::retoast::compact::part::{File, PiecesBehind};
use crate::retoast::compact::rounds::Piece;
use crate::retoast::error::Result;
use crate::retoast::preflight::definition::Files;
use crate::retoast::sql::compact;
use crate::retoast::task::guard::{BatchEnd, Guard, Opening};
use crate::retoast::task::proof::Stored;
use crate::server::LiveResult;
use crate::server::chunks::{address, transaction};
use toast_format::fill::room::Room;

/// The maximum number of versions of a row in one transaction, which is more than fit on a page of 32 kB.
const MOST_TURNS: usize = 1200;
/// The maximum number of updates sent together.
const TOGETHER: usize = 32;

pub(super) struct HeapFile<'a> {
    guard: Guard<'a>,
    /// The files of the table.
    files: &'a Files,
    /// A column that an update may set to itself.
    touch: &'a str,
    /// The next transaction ID at the first look, which tells rows that other sessions have written later from those
    /// that were behind the end at first, and the transactions that have moved rows.
    since: Option<String>,
    own: HashSet<u32>,
    /// The number of rows that the last transaction has updated but that found no room elsewhere.
    stayed: Cell<u64>,
    /// Whether a row has reached the block that it must not in a trial.
    gave_up: Cell<bool>,
}

impl<'a> HeapFile<'a> {
    pub(super) fn new(guard: Guard<'a>, files: &'a Files, touch: &'a str) -> HeapFile<'a> {
        let own = HashSet::new();
        let stayed = Cell::default();
        HeapFile { guard, files, touch, since: None, own, stayed, gave_up: Cell::default() }
    }
}

impl File for HeapFile<'_> {
    fn computed(&self) -> Vec<String> {
        self.guard.ready.computed_by(&[self.touch])
    }

    async fn room(&mut self) -> Result<Room> {
        TableRows(self.guard).room().await
    }

    async fn find(&mut self, end: u32) -> Result<PiecesBehind> {
        let guard = self.guard;
        let blocks = guard.blocks(guard.ready.relation.oid).await?;
        let bytes = guard.session.server.page_size.bytes() as u64;
        let since = first_look(&guard, &mut self.since).await?;
        let mut found = PiecesBehind::new(end);
        for some in ranges(end..blocks, SOME) {
            let sql = compact::rows_by_block(&guard.ready.relation.quoted(), &some, &since);
            let rows = guard.read(&sql).await?;
            let mut blocks: BTreeMap<u32, u32> = BTreeMap::new();
            for row in &rows {
                let rows = unsigned(row.try_get(1)?);
                let of_block = blocks.entry(unsigned(row.try_get(0)?)).or_default();
                *of_block = of_block.saturating_add(rows);
                let recent: Option<&str> = row.try_get(2)?;
                let xid = recent.map(transaction).transpose()?;
                if xid.is_some_and(|xid| !self.own.contains(&xid)) {
                    found.of_others += u64::from(rows);
                }
            }
            for (block, rows) in blocks {
                found.last = found.last.max(block.saturating_add(1));
                found.pieces.push(Piece::page(block, rows, bytes));
            }
        }
        found.pieces.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.ctid.block));
        Ok(found)
    }

    async fn move_pieces(
        &mut self,
        pieces: &[Piece],
        verify: bool,
        trial: Option<u32>,
    ) -> Result<BatchEnd> {
        self.stayed.set(0);
        self.gave_up.set(false);
        let done = self
            .guard
            .batch(0, async |opening: &Opening<'_>| {
                self.try_batch(opening, pieces, verify, trial).await
            })
            .await?;
        if let BatchEnd::Stored { xid, .. } = done {
            self.own.insert(xid);
        }
        Ok(done)
    }

    fn stayed(&self) -> u64 {
        self.stayed.get()
    }

    fn gave_up(&self) -> bool {
        self.gave_up.get()
    }
}

impl HeapFile<'_> {
    async fn try_batch(
        &self,
        opening: &Opening<'_>,
        pieces: &[Piece],
        verify: bool,
        trial: Option<u32>,
    ) -> Result<BatchEnd> {
        let guard = &self.guard;
        let client = opening.client();
        let table = guard.ready.relation.quoted();
        let blocks = pieces.iter().map(|piece| piece.ctid.block.0);
        let first = blocks.clone().min().unwrap_or(0);
        let end = blocks.max().unwrap_or(0).saturating_add(1);
        let from = format!("({first},0)");
        let to = format!("({end},0)");
        let types: &[Type] = &[Type::TEXT, Type::TEXT];
        let shift = guard.statement(0, &compact::shift(&table, self.touch), types).await?;
        let again = guard.statement(0, &compact::shift_again(&table, self.touch), types).await?;
        opening.send().await?;
        guard.still_has(self.files).await?;
        guard.ready.code.approve_repeated_updates(client, &guard.ready.relation).await?;
        let mut before = None;
        if verify {
            let ends = [(&from as &(dyn ToSql + Sync), Type::TEXT), (&to, Type::TEXT)];
            let rows = client.query_typed(&compact::in_range(&table), &ends).await?;
            let locked = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
            before = Some(guard.lock_and_hash(client, &locked).await?);
        }
        let range: [&(dyn ToSql + Sync); 2] = [&from, &to];
        let mut gone = Vec::new();
        let mut xid = 0;
        let mut turns = 0;
        let mut together = 1;
        let mut staying: Vec<String>;
        loop {
            // statements after the first no longer find rows that have left the range
            let statement = if turns == 0 { &shift } else { &again };
            let sent = join_all((0..together).map(|_| client.query(statement, &range))).await;
            turns += together;
            staying = Vec::new();
            for answer in sent {
                let stored = Stored::read(&answer?)?;
                xid = stored.xid;
                staying.clear();
                for ctid in stored.ctids {
                    let block = address(&ctid)?.block.0;
                    let stays = (first..end).contains(&block);
                    if stays { staying.push(ctid) } else { gone.push(ctid) }
                }
            }
            if staying.is_empty() || turns >= MOST_TURNS || guard.ready.code.triggers_fire() {
                break;
            }
            together = (together * 2).min(TOGETHER);
        }
        if let Some(end) = trial
            && any_behind(&gone, end)?
        {
            opening.rollback().await?;
            self.gave_up.set(true);
            self.stayed.set((gone.len() + staying.len()) as u64);
            return Ok(BatchEnd::Stored { rows: 0, verified: 0, xid });
        }
        let moved = gone.len() as u64;
        let stayed = staying.len() as u64;
        let mut verified = 0;
        if let Some((ctids, hashes)) = before {
            let all: Vec<String> = gone.into_iter().chain(staying).collect();
            if all.len() > ctids.len() {
                // since the hashes were taken, other sessions have written rows in this range, or unlocked some
                opening.rollback().await?;
                return Ok(BatchEnd::Busy);
            }
            let stored = Stored { rows: all.len() as u64, xid, ctids: all };
            guard.compare(client, &stored, &ctids, hashes, &self.computed()).await?;
            verified = stored.rows;
        }
        opening.commit().await?;
        self.stayed.set(stayed);
        Ok(BatchEnd::Stored { rows: moved, verified, xid })
    }
}

/// Whether a row is at or behind this block.
fn any_behind(ctids: &[String], end: u32) -> LiveResult<bool> {
    for ctid in ctids {
        if address(ctid)?.block.0 >= end {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_far_from_each_other_are_emptied_one_after_the_other() {
        let page = |block| Piece::page(block, 13, 8192);
        let pace = super::super::rounds::Pace::new(std::time::Duration::from_secs(1), 16 << 20);
        let pages: Vec<Piece> = [939, 938, 930, 612, 611].map(page).to_vec();
        assert_eq!(pace.share(&pages), 3);
        assert_eq!(pace.share(&pages[3..]), 2);
    }

    #[test]
    fn what_finds_no_room_in_front_has_pages_to_go_to_that_are_emptied_later() {
        let pages: Vec<Piece> = (0..400).rev().map(|block| Piece::page(block, 1, 8192)).collect();
        let mut pace = super::super::rounds::Pace::new(std::time::Duration::from_secs(1), 16 << 20);
        pace.took(&pages, std::time::Duration::from_millis(100));
        assert_eq!(pace.share(&pages), 50);
        assert_eq!(pace.share(&pages[390..]), 10);
    }
}
