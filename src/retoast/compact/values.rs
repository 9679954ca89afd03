//! The TOAST relation's file: a transaction that stores values again, so that their chunks go to the front.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::future::join;
use tokio_postgres::types::{ToSql, Type};

use crate::retoast::compact::look::{SOME, TableRows, first_look, ranges, toast_room, unsigned};
use crate::retoast::compact::part::{File, PiecesBehind};
use crate::retoast::compact::rounds::Piece;
use crate::retoast::error::Result;
use crate::retoast::preflight::definition::Files;
use crate::retoast::sql;
use crate::retoast::sql::{Target, compact};
use crate::retoast::task::guard::{BatchEnd, Guard, Opening};
use crate::retoast::task::proof::Stored;
use crate::server::chunks::transaction;
use crate::server::{Client, Parameter};
use toast_format::disk::Oid;
use toast_format::fill::room::Room;

/// The maximum number of values moved in one round, because they are kept in memory.
const MOST_VALUES: usize = 2_000_000;
/// Before an update, old versions are pruned unless the rows' pages span more than `PRUNED_PAGES` pages and more than
/// `PRUNED_PER_ROW` pages per row.
const PRUNED_PAGES: u32 = 64;
const PRUNED_PER_ROW: u32 = 4;

/// The TOAST relation's file.
pub(super) struct ToastFile<'a> {
    guard: Guard<'a>,
    toast: Oid,
    /// The files of the table, including the TOAST relation's.
    files: &'a Files,
    /// The TOAST relation's name, quoted and schema-qualified.
    name: String,
    /// A column that an update may set to itself.
    touch: &'a str,
    /// The target columns of which values were moved, by their places. Statements name only these, because there may
    /// be very many others.
    used: BTreeSet<usize>,
    /// For how many of these columns the temporary tables for copies were created.
    copied: usize,
    /// The transactions of this round. Values that they have stored behind the end found no room in front.
    own: HashSet<u32>,
    /// All transactions that have moved values, and the next transaction ID at the first look, which tells values
    /// that other sessions have stored later from those that were behind the end at first.
    ever_own: HashSet<u32>,
    since: Option<String>,
}

impl<'a> ToastFile<'a> {
    pub(super) fn new(
        guard: Guard<'a>,
        toast: Oid,
        name: String,
        files: &'a Files,
        touch: &'a str,
    ) -> ToastFile<'a> {
        ToastFile {
            guard,
            toast,
            name,
            files,
            touch,
            used: BTreeSet::new(),
            copied: 0,
            own: HashSet::new(),
            ever_own: HashSet::new(),
            since: None,
        }
    }
}

impl File for ToastFile<'_> {
    fn computed(&self) -> Vec<String> {
        let ready = self.guard.ready;
        let mut set = ready.set_columns();
        set.push(self.touch);
        ready.computed_by(&set)
    }

    async fn room(&mut self) -> Result<Room> {
        self.own.clear();
        toast_room(&self.guard, self.toast, &self.name).await
    }

    async fn find(&mut self, end: u32) -> Result<PiecesBehind> {
        let since = first_look(&self.guard, &mut self.since).await?;
        let mut found = PiecesBehind::new(end);
        let values = self.values_behind(&since, &mut found).await?;
        found.without_row = values.len() as u64;
        TableRows(self.guard).owners(self.toast, &values, &mut found).await?;
        sort(&mut found.pieces);
        Ok(found)
    }

    async fn move_pieces(
        &mut self,
        pieces: &[Piece],
        verify: bool,
        _: Option<u32>,
    ) -> Result<BatchEnd> {
        let (copied, forced): (Vec<&Piece>, Vec<&Piece>) =
            pieces.iter().partition(|piece| piece.by_copy);
        let mut sum: Option<(u64, u64, u32)> = None;
        for (rows, by_copy) in [(forced, false), (copied, true)] {
            if rows.is_empty() {
                continue;
            }
            match self.batch(&rows, by_copy, verify).await? {
                BatchEnd::Stored { rows, verified, xid } => {
                    let (r, v, _) = sum.unwrap_or_default();
                    sum = Some((r + rows, v + verified, xid));
                    self.own.insert(xid);
                    self.ever_own.insert(xid);
                }
                // the next pass finds out what was already moved
                other => return Ok(other),
            }
        }
        let (rows, verified, xid) = sum.unwrap_or_default();
        Ok(BatchEnd::Stored { rows, verified, xid })
    }
}

/// Rows with values of at least this size are moved first, because they would extend the file once other values have
/// taken the room in front.
const LARGE: u64 = 512 << 10;

/// Sorts by parts of the file, the last part first; within a part, in the order of the rows in the table, so that the
/// old version of one row makes room for the new version of the next.
fn sort(pieces: &mut [Piece]) {
    const PARTS: u32 = 16;
    let least = pieces.iter().map(|piece| piece.last_block).min().unwrap_or(0);
    let most = pieces.iter().map(|piece| piece.last_block).max().unwrap_or(0);
    let part = ((most - least) / PARTS).max(1);
    pieces.sort_unstable_by_key(|piece| {
        let large = piece.bytes >= LARGE;
        (!large, std::cmp::Reverse((piece.last_block - least) / part), piece.ctid)
    });
}

impl ToastFile<'_> {
    /// The last block of each value with chunks in block `found.last` or behind it, by the value's number in the TOAST
    /// relation; if there are too many, only of the last ones. Values stored by transactions of this compaction since the
    /// last look are left out.
    async fn values_behind(
        &self,
        since: &str,
        found: &mut PiecesBehind,
    ) -> Result<HashMap<u32, u32>> {
        let blocks = self.guard.blocks(self.toast).await?;
        let mut values: HashMap<u32, u32> = HashMap::new();
        for some in ranges(found.last..blocks, SOME).into_iter().rev() {
            if values.len() >= MOST_VALUES {
                found.all = false;
                break;
            }
            let sql = compact::values(&self.name, &some, Some(since));
            for row in self.guard.read(&sql).await? {
                let value: u32 = row.try_get(0)?;
                let block = unsigned(row.try_get(1)?);
                let xid = transaction(row.try_get(2)?)?;
                let is_recent: bool = row.try_get(4)?;
                found.last = found.last.max(block.saturating_add(1));
                found.of_others += u64::from(is_recent && !self.ever_own.contains(&xid));
                if !self.own.contains(&xid) {
                    values.entry(value).or_insert(block);
                }
            }
        }
        Ok(values)
    }

    async fn batch(&mut self, rows: &[&Piece], by_copy: bool, verify: bool) -> Result<BatchEnd> {
        let places = rows.iter().flat_map(|row| row.columns.iter().map(|&at| usize::from(at)));
        self.used.extend(places);
        let targets = self.targets();
        if by_copy && self.copied < targets.len() {
            if !self.make_copies(&targets).await? {
                // a stop was requested
                return Ok(BatchEnd::Busy);
            }
            self.copied = targets.len();
        }
        self.guard
            .batch(0, async |opening: &Opening<'_>| {
                self.try_batch(opening, rows, &targets, by_copy, verify).await
            })
            .await
    }

    /// The columns of which values were moved.
    fn targets(&self) -> Vec<Target> {
        let all = &self.guard.ready.targets;
        self.used.iter().filter_map(|&at| all.get(at)).cloned().collect()
    }

    async fn try_batch(
        &self,
        opening: &Opening<'_>,
        rows: &[&Piece],
        targets: &[Target],
        by_copy: bool,
        verify: bool,
    ) -> Result<BatchEnd> {
        let guard = &self.guard;
        let client = opening.client();
        let table = guard.ready.relation.quoted();
        let sql = if by_copy {
            compact::move_copies(&table, targets)
        } else {
            compact::move_values(&table, targets, self.touch)
        };
        let types = vec![Type::TEXT_ARRAY; compact::parameters(targets)];
        let moves = guard.statement(0, &sql, &types).await?;
        opening.send().await?;
        // if the table was rewritten, other rows are at these addresses, and other values in front
        let (same, pruned) = join(guard.still_has(self.files), self.prune(client, rows)).await;
        same?;
        pruned?;
        let mut lists = self.lists(rows);
        let mut before = None;
        if let Some(all) = lists.first()
            && (verify || by_copy)
        {
            let (ctids, hashes) = guard.lock_and_hash(client, all).await?;
            before = Some((ctids.clone(), hashes));
            if let Some(all) = lists.first_mut() {
                *all = ctids;
            }
        }
        if by_copy {
            let typed: Vec<Parameter<'_>> =
                lists.iter().map(|list| (list as &(dyn ToSql + Sync), Type::TEXT_ARRAY)).collect();
            client.batch_execute(&format!("TRUNCATE {}", compact::each_copy(targets))).await?;
            for fill in compact::fill_copies(&table, targets) {
                client.execute_typed(&fill, &typed).await?;
            }
        }
        let parameters: Vec<&(dyn ToSql + Sync)> =
            lists.iter().map(|list| list as &(dyn ToSql + Sync)).collect();
        let stored = client.query(&moves, &parameters).await?;
        let stored = Stored::read(&stored)?;
        let mut verified = 0;
        if let Some((ctids, hashes)) = before {
            guard.compare(client, &stored, &ctids, hashes, &self.computed()).await?;
            verified = stored.rows;
        }
        opening.commit().await?;
        Ok(BatchEnd::Stored { rows: stored.rows, verified, xid: stored.xid })
    }

    /// Prunes the rows' pages to make room for new versions, unless the rows are too far apart.
    async fn prune(&self, client: &Client, rows: &[&Piece]) -> Result<()> {
        let blocks = rows.iter().map(|row| row.ctid.block.0);
        let first = blocks.clone().min().unwrap_or(0);
        let last = blocks.max().unwrap_or(0);
        let pages = last - first;
        let many = u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_mul(PRUNED_PER_ROW);
        if pages > PRUNED_PAGES.max(many) {
            return Ok(());
        }
        let prune = sql::prune(&self.guard.ready.relation.quoted());
        let prune =
            self.guard.session.connection(0).prepared(&prune, &[Type::TEXT, Type::TEXT]).await?;
        let from = format!("({first},0)");
        let to = format!("({},0)", last.saturating_add(1));
        client.query(&prune, &[&from, &to]).await?;
        Ok(())
    }

    /// The parameters of the statements: the rows' addresses, and for each column those of the rows whose value
    /// moves.
    fn lists(&self, rows: &[&Piece]) -> Vec<Vec<String>> {
        let mut lists = vec![rows.iter().map(|row| row.ctid.to_string()).collect::<Vec<_>>()];
        for &at in &self.used {
            let target = self.guard.ready.targets.get(at);
            if target.is_some_and(|target| target.base.is_none()) {
                let moves =
                    rows.iter().filter(|row| row.columns.iter().any(|&c| usize::from(c) == at));
                lists.push(moves.map(|row| row.ctid.to_string()).collect());
            }
        }
        lists
    }

    /// Creates the temporary tables; returns false if a stop was requested first.
    async fn make_copies(&self, targets: &[Target]) -> Result<bool> {
        let ready = self.guard.ready;
        let make = compact::make_copies(&ready.relation.quoted(), targets, ready.code.role());
        self.guard.alter(&make).await
    }

    /// Drops the temporary tables, if they were created.
    pub(super) async fn end(&mut self) -> Result<()> {
        if std::mem::take(&mut self.copied) > 0 {
            let drop = compact::drop_copies(&self.targets());
            self.guard.session.writer().batch_execute(&drop).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_file_comes_first_and_its_rows_as_they_stand() {
        let mover = |block, row| super::super::look::row_to_move(block, (row, 1));
        let mut pieces = vec![mover(0, 1), mover(1600, 9), mover(1590, 2), mover(800, 5)];
        sort(&mut pieces);
        let order: Vec<u32> = pieces.iter().map(|piece| piece.last_block).collect();
        assert_eq!(order, [1600, 1590, 800, 0]);
    }
}
