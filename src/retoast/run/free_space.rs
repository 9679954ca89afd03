//! Free space in a table's files after a sweep: what VACUUM could return to the operating system, and what rewriting
//! the table would save.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio_postgres::types::Type;

use crate::retoast::result::{Gains, Gives};
use crate::retoast::task::guard::Reading;
use crate::server::about::Compression;
use crate::server::snapshot::BY_KEY;
use crate::server::toasters::TOAST_RELATIONS;
use crate::server::{Connection, LiveResult, Moment, Parameter, Server, catalog, holders};
use toast_format::disk::{BlockNumber, Page, PageSize, PageState, Walk};
use toast_format::fill::rewritten::{Gain, Rewritten};
use toast_format::heap::scan::{Item, items};
use toast_format::model::pages::truncated_for;
use toast_format::model::{StoredValue, Visibility};

/// The first server version with REPACK.
pub(super) const REPACK: i32 = 190_000;
/// The maximum number of blocks of the table to read: all blocks if it has no more, otherwise this number of runs of
/// blocks, one in each of that many equal parts of the table.
const MOST_BLOCKS: u32 = 1024;
const RUNS: u32 = 32;
/// The maximum number of pages to read in search of the last row of a relation.
const MOST_READ: i64 = 32 * 1024;

/// A figure of the report is not worth a long wait.
const LIMITS: &str = "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'";
const LONGEST: Duration = Duration::from_secs(5);

/// What is needed to measure a table.
pub(crate) struct FreeSpaceScan<'a> {
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) server: &'a Server,
    pub(crate) reading: Reading<'a>,
    /// Columns whose uncompressed out-of-line values are known to be incompressible.
    pub(crate) settled: &'a [usize],
}

impl FreeSpaceScan<'_> {
    /// The bytes by which the files of the table and its TOAST relation could be smaller. Servers with pluggable TOAST
    /// may crash on VACUUM FULL, so they are not asked.
    ///
    /// # Errors
    /// Any error of the server, including a lock timeout.
    pub(crate) async fn free_space(&self) -> LiveResult<Gains> {
        self.reading.run(self.connection, async |moment| self.read(moment).await).await
    }

    async fn read(&self, moment: Moment) -> LiveResult<Gains> {
        let client = self.connection.client();
        let page = self.server.page_size;
        client.batch_execute(&format!("{LIMITS}; {BY_KEY}")).await?;
        let sql = format!(
            "SELECT o::pg_catalog.regclass::pg_catalog.text, \
                    pg_catalog.pg_relation_size(o) / $2, \
                    c.relpersistence = 'p' AND EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                      WHERE i.indrelid = c.oid AND i.indisvalid AND CASE c.relreplident \
                      WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident \
                      ELSE false END) \
             FROM pg_catalog.pg_class AS c, \
             LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS o WHERE c.oid = $1"
        );
        let bytes = page.bytes() as i64;
        let parameters: [Parameter<'_>; 2] =
            [(&self.reading.ready.relation.oid.0, Type::OID), (&bytes, Type::INT8)];
        let mut at_end = 0u64;
        let mut repacks = false;
        let mut all: Vec<i64> = Vec::new();
        for row in client.query_typed(&sql, &parameters).await? {
            let name: String = row.try_get(0)?;
            let pages: i64 = row.try_get(1)?;
            repacks = row.try_get(2)?;
            // The first is the table; owners put no code on its TOAST relation.
            let may_ask = !all.is_empty() || self.reading.ready.code.allows_queries();
            let empty =
                if may_ask { empty_at_end(self.connection, &name, pages).await? } else { 0 };
            at_end = at_end.saturating_add(bytes_of(cut_off(empty, pages), page));
            all.push(pages);
        }
        let heap = all.first().and_then(|&pages| u32::try_from(pages).ok()).unwrap_or(0);
        let pages = all.iter().filter_map(|&pages| u64::try_from(pages).ok()).sum();
        let gain = self.rewrite(moment, heap, pages).await?;
        let gives = gain.map(|Gain { low, high, open }| Gives { low, high, compresses: open });
        let rewriters = match (self.server.version_num >= REPACK, repacks) {
            (true, true) => "REPACK (CONCURRENTLY) or VACUUM FULL",
            (true, false) => "REPACK or VACUUM FULL",
            (false, _) => "VACUUM FULL or pg_repack",
        };
        Ok(Gains {
            rewrite_gives: gives,
            rewrite_gives_bytes: gives.and_then(Gives::about),
            rewriters: Some(rewriters),
            vacuum_gives_bytes: Some(at_end),
        })
    }

    /// What rewriting would save, for a table of `blocks` blocks whose files have `pages` pages in total.
    async fn rewrite(&self, moment: Moment, blocks: u32, pages: u64) -> LiveResult<Option<Gain>> {
        let client = self.connection.client();
        // The current settings are read, since the sweep may have changed them.
        let Some(relation) = catalog::describe(client, self.reading.ready.relation.oid).await?
        else {
            return Ok(None);
        };
        let page = self.server.page_size;
        let table = relation.table(Compression::ask(client).await?.default, page);
        // A rewrite also copies dead rows that a snapshot still sees.
        let keeps_dead = holders::of_horizon(self.connection, &[]).await?.is_some();
        let columns = &relation.desc.attributes;
        let mut anew = Rewritten::new(&table, columns, self.settled, relation.fillfactor());
        let quoted = relation.quoted();
        let mut reader = self.server.page_reader(self.connection, quoted, &moment.snapshot).await?;
        let began = Instant::now();
        let runs = runs(blocks, |most| rand::rng().random_range(0..=most));
        let is_all = runs.len() == 1;
        for run in runs {
            if began.elapsed() > LONGEST {
                return Ok(None);
            }
            let list: Vec<BlockNumber> = run.clone().map(BlockNumber).collect();
            let read = reader.read(&list).await?;
            if !read.unreadable.is_empty() {
                return Ok(None);
            }
            for (block, bytes) in read.iter() {
                let tuples = match Page::parse(bytes) {
                    Ok(PageState::Used(page)) => page,
                    Ok(PageState::New) => continue,
                    Err(_) => return Ok(None),
                };
                let all_visible = read.all_visible(&tuples);
                for (ctid, item) in items(block, &tuples) {
                    let tuple = match item {
                        Item::Tuple(tuple, _) => tuple,
                        Item::Damaged(_) => return Ok(None),
                        Item::Unused | Item::Redirect | Item::Dead => continue,
                    };
                    let seen =
                        if all_visible { Visibility::Live } else { read.visibility(ctid, &tuple) };
                    if seen == Visibility::Dead && !keeps_dead {
                        continue;
                    }
                    let values = Walk::new(&tuple, &relation.desc).map(|walked| match walked {
                        Ok((column, _)) if column.dropped => Ok(StoredValue::NULL),
                        Ok((column, datum)) => Ok(StoredValue::new(&datum, column, page)),
                        Err(error) => Err(error),
                    });
                    let Ok(values) = values.collect::<Result<Vec<_>, _>>() else {
                        return Ok(None);
                    };
                    if anew.row(&values, seen == Visibility::Live).is_err() {
                        return Ok(None);
                    }
                }
            }
            anew.end_part(run.end - run.start, is_all);
        }
        Ok(anew.gain(blocks, pages))
    }
}

/// The runs of blocks to read. `random` returns a number up to its argument.
fn runs(blocks: u32, random: impl Fn(u32) -> u32) -> Vec<std::ops::Range<u32>> {
    if blocks <= MOST_BLOCKS {
        return std::iter::once(0..blocks).collect();
    }
    let length = MOST_BLOCKS / RUNS;
    let mut runs = Vec::new();
    let mut from = 0;
    for run in 1..=RUNS {
        let to = (u64::from(blocks) * u64::from(run) / u64::from(RUNS)) as u32;
        let at = from + random((to - from).saturating_sub(length));
        runs.push(at..at.saturating_add(length).min(blocks));
        from = to;
    }
    runs
}

fn bytes_of(pages: i64, page: PageSize) -> u64 {
    u64::try_from(pages).unwrap_or(0).saturating_mul(page.bytes() as u64)
}

/// How many of these empty pages at the end VACUUM truncates.
fn cut_off(empty: i64, pages: i64) -> i64 {
    let least = truncated_for(u32::try_from(pages).unwrap_or(u32::MAX));
    if empty >= i64::from(least) { empty } else { 0 }
}

/// Pages without rows at the end of the relation, of the pages that were read.
async fn empty_at_end(
    connection: &Connection,
    name: &str,
    pages: i64,
) -> Result<i64, tokio_postgres::Error> {
    let mut end = pages;
    let mut step = 16;
    while end > 0 && pages - end < MOST_READ {
        let from = (end - step).max(0);
        let sql = format!(
            "SELECT pg_catalog.max((ctid::pg_catalog.text::pg_catalog.point)[0])::pg_catalog.int8 \
             FROM ONLY {name} WHERE ctid >= '({from},0)' AND ctid < '({end},0)'"
        );
        let rows = connection.client().query_typed(&sql, &[]).await?;
        if let Some(last) =
            rows.first().map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?.flatten()
        {
            return Ok((pages - 1 - last).max(0));
        }
        (end, step) = (from, step * 2);
    }
    Ok(pages - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stand_in_parts_of_their_own() {
        assert_eq!(runs(1024, |_| 0), vec![0..1024; 1]);
        let all = runs(1025, |most| most);
        assert_eq!((all.len(), all[0].clone(), all[31].end), (32, 0..32, 1025));
        let all = runs(u32::MAX, |most| most);
        assert!(all.windows(2).all(|two| two[0].end <= two[1].start), "{all:?}");
    }

    #[test]
    fn vacuum_cuts_off_a_sixteenth_or_a_thousand_pages() {
        assert_eq!(
            [cut_off(0, 0), cut_off(0, 10), cut_off(10, 10), cut_off(1, 100)],
            [0, 0, 10, 0]
        );
        assert_eq!([cut_off(1000, 1_000_000), cut_off(999, 1_000_000)], [1000, 0]);
    }
}
