//! The TOAST relation's file: one transaction that stores values anew, so that their chunks go to the front.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use futures_util::future::join;
use tokio_postgres::types::{ToSql, Type};

use super::chunks::Own;
use super::pace::Piece;
use super::part::{File, Found};
use super::rows::Mover;
use crate::disk::Oid;
use crate::fill::room::Room;
use crate::retoast::check::files::Files;
use crate::retoast::sql::{self, Target, compact};
use crate::retoast::sweep::batch::Done;
use crate::retoast::sweep::error::RunError;
use crate::retoast::sweep::table::Sweep;
use crate::retoast::sweep::verify::Stored;
use crate::server::connect::{Client, Statement};

/// Old versions are pruned before an update where the rows' pages are no more than this, and so many times as
/// many as the rows.
const PRUNED_PAGES: u32 = 64;
const PRUNED_PER_ROW: u32 = 4;

/// The TOAST relation's file.
pub(super) struct ToastFile<'a, 'b> {
    pub(super) sweep: &'a Sweep<'b>,
    pub(super) toast: Oid,
    /// The files of the table, which the TOAST relation's is one of.
    pub(super) files: Files,
    /// Quoted, schema-qualified.
    pub(super) name: String,
    /// A column that an update may set to itself.
    pub(super) touch: String,
    /// The sweep's columns that values were moved of, by their places. Statements are about no others, of which there
    /// may be very many.
    pub(super) used: RefCell<BTreeSet<usize>>,
    /// Of how many of them the temporary tables for copies are made.
    pub(super) copied: Cell<usize>,
    /// The transactions of the round: what they have put behind the end found no room in front.
    pub(super) own: RefCell<HashSet<u32>>,
    /// All transactions that have moved values, and the one that others began no later with whatever stood behind the end
    /// at first.
    pub(super) ever_own: RefCell<HashSet<u32>>,
    pub(super) since: RefCell<Option<String>>,
}

impl File for ToastFile<'_, '_> {
    type Piece = Mover;

    fn relation(&self) -> Oid {
        self.toast
    }

    fn computed(&self) -> Vec<String> {
        let ready = self.sweep.ready;
        let mut set = ready.set_columns();
        set.push(&self.touch);
        ready.computed_by(&set)
    }

    fn files(&self) -> &Files {
        &self.files
    }

    async fn room(&self) -> Result<Option<Room>, RunError> {
        self.own.borrow_mut().clear();
        self.sweep.toast_room(self.toast, &self.name).await
    }

    async fn find(&self, end: u32) -> Result<Option<Found<Mover>>, RunError> {
        let own = self.own.borrow().clone();
        let Some(since) = self.sweep.first_look(&self.since).await? else { return Ok(None) };
        let all = Own { own: &own, ever: &self.ever_own.borrow().clone(), since: &since };
        let behind = self.sweep.values_behind(self.toast, &self.name, end, all).await?;
        let Some(behind) = behind else { return Ok(None) };
        let Some(owners) = self.sweep.owners(self.toast, &behind).await? else { return Ok(None) };
        let mut pieces = owners.movers;
        sort(&mut pieces);
        let values = behind.values.len() as u64;
        Ok(Some(Found {
            pieces,
            last: behind.last,
            all: behind.all,
            fixed: owners.fixed,
            without_row: values.saturating_sub(owners.values),
            by_setting: owners.by_setting,
            of_others: behind.of_others,
        }))
    }

    async fn move_pieces(&self, pieces: &[Mover], verify: bool) -> Result<Done, RunError> {
        let (copied, forced): (Vec<&Mover>, Vec<&Mover>) =
            pieces.iter().partition(|piece| piece.by_copy);
        let mut sum: Option<(u64, u64, u32)> = None;
        for (rows, by_copy) in [(forced, false), (copied, true)] {
            if rows.is_empty() {
                continue;
            }
            match self.batch(&rows, by_copy, verify).await? {
                Done::Stored { rows, verified, xid } => {
                    let (r, v, _) = sum.unwrap_or_default();
                    sum = Some((r + rows, v + verified, xid));
                    self.own.borrow_mut().insert(xid);
                    self.ever_own.borrow_mut().insert(xid);
                }
                // what is done is found to be by the next pass
                other => return Ok(other),
            }
        }
        let (rows, verified, xid) = sum.unwrap_or_default();
        Ok(Done::Stored { rows, verified, xid })
    }
}

/// Values of so many bytes come before all others: where others have taken the room in front they would make the
/// file longer.
const LARGE: u64 = 512 << 10;

/// Last chunks first, by parts of the file; within a part as the rows stand, so that what one leaves behind makes
/// room for the next.
fn sort(pieces: &mut [Mover]) {
    const PARTS: u32 = 16;
    let least = pieces.iter().map(|piece| piece.block).min().unwrap_or(0);
    let most = pieces.iter().map(|piece| piece.block).max().unwrap_or(0);
    let part = ((most - least) / PARTS).max(1);
    pieces.sort_unstable_by_key(|piece| {
        let large = piece.bytes() >= LARGE;
        (!large, std::cmp::Reverse((piece.block - least) / part), piece.key())
    });
}

impl ToastFile<'_, '_> {
    async fn batch(&self, rows: &[&Mover], by_copy: bool, verify: bool) -> Result<Done, RunError> {
        let sweep = self.sweep;
        let places = rows.iter().flat_map(|row| row.columns.iter().map(|&at| usize::from(at)));
        self.used.borrow_mut().extend(places);
        let targets = self.targets();
        if by_copy && self.copied.get() < targets.len() {
            self.make_copies(&targets).await?;
            self.copied.set(targets.len());
        }
        let batch = async || self.try_batch(rows, &targets, by_copy, verify).await;
        let tried = sweep.unless_changed(0, batch).await;
        sweep.settled(0, tried, true).await
    }

    /// The columns that values were moved of.
    fn targets(&self) -> Vec<Target> {
        let (used, all) = (self.used.borrow(), &self.sweep.ready.targets);
        used.iter().filter_map(|&at| all.get(at)).cloned().collect()
    }

    async fn try_batch(
        &self,
        rows: &[&Mover],
        targets: &[Target],
        by_copy: bool,
        verify: bool,
    ) -> Result<Done, RunError> {
        let (sweep, client) = (self.sweep, self.sweep.connection(0).client());
        let statement = self.statement(targets, by_copy).await?;
        sweep.begin_batch(sweep.connection(0)).await?;
        // other rows stand there once the table was rewritten, and other values in front
        let (same, pruned) = join(sweep.still_has(&self.files), self.prune(client, rows)).await;
        same?;
        pruned?;
        let mut lists = self.lists(rows);
        let mut before = None;
        if let Some(all) = lists.first().filter(|_| verify || by_copy) {
            let (ctids, hashes) = sweep.lock_and_hash(client, all).await?;
            before = Some((ctids.clone(), hashes));
            if let Some(all) = lists.first_mut() {
                *all = ctids;
            }
        }
        if by_copy {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                lists.iter().map(|list| (list as &(dyn ToSql + Sync), Type::TEXT_ARRAY)).collect();
            client.batch_execute(&compact::empty_copies(targets)).await?;
            for fill in compact::fill_copies(&sweep.ready.relation.quoted(), targets) {
                client.execute_typed(&fill, &typed).await?;
            }
        }
        let parameters: Vec<&(dyn ToSql + Sync)> =
            lists.iter().map(|list| list as &(dyn ToSql + Sync)).collect();
        let stored = Stored::read(&client.query(&statement, &parameters).await?)?;
        let mut verified = 0;
        if let Some((ctids, hashes)) = before {
            sweep.compare(client, &stored, &ctids, hashes, &self.computed()).await?;
            verified = stored.rows;
        }
        client.batch_execute("COMMIT").await?;
        Ok(Done::Stored { rows: stored.rows, verified, xid: stored.xid })
    }

    /// Prunes the rows' pages, so that there is room for new versions, unless the rows are too far from each
    /// other.
    async fn prune(&self, client: &Client, rows: &[&Mover]) -> Result<(), RunError> {
        let blocks = || rows.iter().map(|row| row.ctid.block.0);
        let (first, last) = (blocks().min().unwrap_or(0), blocks().max().unwrap_or(0));
        let pages = last - first;
        let many = u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_mul(PRUNED_PER_ROW);
        if pages > PRUNED_PAGES.max(many) {
            return Ok(());
        }
        let prune = sql::prune(&self.sweep.ready.relation.quoted());
        let prune = self.sweep.connection(0).prepared(&prune, &[Type::TEXT, Type::TEXT]).await?;
        let (from, to) = (format!("({first},0)"), format!("({},0)", last.saturating_add(1)));
        client.query(&prune, &[&from, &to]).await?;
        Ok(())
    }

    /// The parameters of the statements: the rows' addresses, and for each column those whose value moves.
    fn lists(&self, rows: &[&Mover]) -> Vec<Vec<String>> {
        let mut lists = vec![rows.iter().map(|row| row.ctid.to_string()).collect::<Vec<_>>()];
        for &at in self.used.borrow().iter() {
            let target = self.sweep.ready.targets.get(at);
            if target.is_some_and(|target| target.base.is_none()) {
                let moves =
                    rows.iter().filter(|row| row.columns.iter().any(|&c| usize::from(c) == at));
                lists.push(moves.map(|row| row.ctid.to_string()).collect());
            }
        }
        lists
    }

    async fn statement(&self, targets: &[Target], by_copy: bool) -> Result<Statement, RunError> {
        let table = self.sweep.ready.relation.quoted();
        let sql = match by_copy {
            true => compact::move_copies(&table, targets),
            false => compact::move_values(&table, targets, &self.touch),
        };
        let types = vec![Type::TEXT_ARRAY; compact::parameters(targets)];
        self.sweep.prepared_in_batch(&sql, &types).await
    }

    async fn make_copies(&self, targets: &[Target]) -> Result<(), RunError> {
        let ready = self.sweep.ready;
        let make = compact::make_copies(&ready.relation.quoted(), targets, ready.code.role());
        self.sweep.alter(&make).await.map(drop)
    }

    /// Drops the temporary tables, if they were made.
    pub(super) async fn end(&self) -> Result<(), RunError> {
        if self.copied.take() > 0 {
            let drop = compact::drop_copies(&self.targets());
            self.sweep.connection(0).client().batch_execute(&drop).await?;
        }
        Ok(())
    }
}

impl Sweep<'_> {
    /// A statement of batches, parsed once: where the table's lock is held, since the server takes one to parse
    /// it and here waits no longer than it should.
    pub(super) async fn prepared_in_batch(
        &self,
        sql: &str,
        types: &[Type],
    ) -> Result<Statement, RunError> {
        let connection = self.connection(0);
        if connection.knows(sql) {
            return Ok(connection.prepared(sql, types).await?);
        }
        let began = Instant::now();
        let begun = self.begin_batch(connection).await;
        let parsed = match begun {
            Ok(()) => connection.prepared(sql, types).await.map_err(RunError::from),
            Err(error) => Err(error),
        };
        self.keeper.lock_waited(began.elapsed());
        let ended = connection.client().batch_execute("ROLLBACK").await;
        let parsed = parsed?;
        ended?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_file_comes_first_and_its_rows_as_they_stand() {
        let mover = |block, row| super::super::rows::mover(block, (row, 1));
        let mut pieces = vec![mover(0, 1), mover(1600, 9), mover(1590, 2), mover(800, 5)];
        sort(&mut pieces);
        let order: Vec<u32> = pieces.iter().map(|piece| piece.block).collect();
        assert_eq!(order, [1600, 1590, 800, 0]);
    }
}
