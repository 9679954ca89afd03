//! What is free inside a table's files once it is swept, and what VACUUM could give back of it.

use tokio_postgres::types::Type;

use crate::disk::layout::{LINE_POINTER_SIZE, PAGE_HEADER_SIZE, PageSize};
use crate::model::pages::truncated_for;
use crate::server::LiveError;
use crate::server::about::Pageinspect;
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::plan::BY_KEY;
use crate::server::sql::quote_literal;
use crate::server::toasters::TOAST_RELATIONS;

/// Pages of each relation that are looked at.
const SAMPLE: i64 = 256;
/// Pages that are read at the most to find the last row of a relation.
const MOST_READ: i64 = 32 * 1024;

/// Nobody waits long for a figure.
const LIMITS: &str = "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'";

/// Bytes that the files could be smaller by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    /// If they were written anew, from a sample of pages.
    pub(crate) all: u64,
    /// Those of empty pages at the end, which VACUUM would cut off.
    pub(crate) at_end: u64,
}

/// Heap and TOAST relations together.
///
/// # Errors
/// The server's, a lock that is not had in time among them.
pub(crate) async fn look(
    connection: &Connection,
    pageinspect: &Pageinspect,
    relation: &Relation,
    page: PageSize,
) -> Result<FreeSpace, LiveError> {
    connection
        .reading(async || {
            let client = connection.client();
            client.batch_execute(&format!("{LIMITS}; {BY_KEY}")).await?;
            let sql = format!(
                "SELECT o::pg_catalog.regclass::pg_catalog.text, \
                        pg_catalog.pg_relation_size(o) / $2 \
                 FROM pg_catalog.pg_class AS c, \
                 LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) AS o WHERE c.oid = $1"
            );
            let bytes = page.bytes() as i64;
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&relation.oid.0, Type::OID), (&bytes, Type::INT8)];
            let mut free = FreeSpace::default();
            for row in client.query_typed(&sql, &parameters).await? {
                let (name, pages): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
                let empty = empty_at_end(connection, &name, pages).await?;
                free.at_end = free.at_end.saturating_add(bytes_of(cut_off(empty, pages), page));
                let rest = pages - empty;
                let rows = sample(connection, pageinspect, &name, rest).await?;
                let anew = rows.map_or(0, |rows| rows.pages(rest, page));
                free.all = free.all.saturating_add(bytes_of((pages - anew).max(0), page));
            }
            Ok(free)
        })
        .await
}

fn bytes_of(pages: i64, page: PageSize) -> u64 {
    u64::try_from(pages).unwrap_or(0).saturating_mul(page.bytes() as u64)
}

/// How many of so many empty pages at the end VACUUM cuts off.
fn cut_off(empty: i64, pages: i64) -> i64 {
    let least = truncated_for(u32::try_from(pages).unwrap_or(u32::MAX));
    if empty >= i64::from(least) { empty } else { 0 }
}

/// Pages at the end without a row; at the most as many as are looked at.
async fn empty_at_end(
    connection: &Connection,
    name: &str,
    pages: i64,
) -> Result<i64, tokio_postgres::Error> {
    let (mut end, mut step) = (pages, 16);
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

/// What pages hold on average.
#[derive(Debug, Clone, Copy)]
struct Rows {
    /// Line pointers of a page.
    per_page: f64,
    /// Bytes of tuples of a page.
    bytes: f64,
}

impl Rows {
    /// On how many pages the rows of so many would stand if they were written anew. Of long rows a page
    /// holds a whole number.
    fn pages(self, pages: i64, page: PageSize) -> i64 {
        if self.per_page <= 0.0 || self.bytes <= 0.0 {
            return 0;
        }
        let usable = (page.bytes() - PAGE_HEADER_SIZE) as f64;
        let fit = usable / (self.bytes / self.per_page + LINE_POINTER_SIZE as f64);
        let fit = if fit < 3.0 { fit.floor().max(1.0) } else { fit };
        ((pages as f64 * self.per_page / fit).ceil() as i64).min(pages)
    }
}

/// Looks at some of so many pages from the first on.
async fn sample(
    connection: &Connection,
    pageinspect: &Pageinspect,
    name: &str,
    pages: i64,
) -> Result<Option<Rows>, tokio_postgres::Error> {
    let step = (pages / SAMPLE).max(1);
    let block = if pageinspect.takes_bigint() { "int8" } else { "int4" };
    // a page that is not initialized holds nothing
    let sql = format!(
        "SELECT pg_catalog.avg(CASE WHEN h.upper = 0 THEN 0 \
                    ELSE (h.lower - {PAGE_HEADER_SIZE})::pg_catalog.float8 / {LINE_POINTER_SIZE} END), \
                pg_catalog.avg(CASE WHEN h.upper = 0 THEN 0 \
                    ELSE (h.special - h.upper)::pg_catalog.float8 END) \
         FROM pg_catalog.generate_series(0, {}, {step}) AS b, \
         LATERAL {}({}({}, b::pg_catalog.{block})) AS h",
        pages - 1,
        pageinspect.page_header(),
        pageinspect.get_raw_page(),
        quote_literal(name),
    );
    let rows = connection.client().query_typed(&sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (per_page, bytes): (Option<f64>, Option<f64>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(per_page.zip(bytes).map(|(per_page, bytes)| Rows { per_page, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_fill_pages_and_of_long_ones_a_whole_number_fits() {
        let pages = |per_page, bytes| Rows { per_page, bytes }.pages(1000, PageSize::DEFAULT);
        assert_eq!([pages(10.0, 1000.0), pages(1.0, 5000.0), pages(0.0, 0.0)], [128, 1000, 0]);
        assert_eq!([pages(1.0, 3000.0), pages(4.0, 8128.0)], [500, 998]);
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
