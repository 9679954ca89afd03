//! The temporary table in which the server compresses copies, as scans and batches by a policy use it.

use futures_util::future::join;
use tokio_postgres::types::Type;

use super::scanner::{address, transaction};
use crate::disk::ItemPointer;
use crate::disk::layout::PageSize;
use crate::judge::policy::{Content, Rule};
use crate::model::policy::{CompressedSizes, MethodChoice};
use crate::retoast::sql::{self, by_policy};
use crate::server::LiveError;
use crate::server::connect::Client;

/// What a transaction has in the temporary table.
pub(crate) struct Copies {
    pub rows: Vec<Copy>,
    /// Whether the table has to be emptied before the transaction ends.
    pub is_full: bool,
}

/// A row of the temporary table.
pub(crate) struct Copy {
    /// Its number.
    pub number: i32,
    /// The row that it is a copy of.
    pub ctid: ItemPointer,
    /// The transaction that inserted that row.
    pub xmin: u32,
    /// For each chosen column what its content is; `None` of NULL and of what was not asked for.
    pub contents: Vec<Option<Content>>,
}

/// Fills the temporary table and reads the sizes. `lists` are the parameters of
/// [`by_policy::fill`].
pub(crate) async fn fill_and_measure(
    client: &Client,
    table: &str,
    targets: &[sql::Target],
    rule: &Rule,
    page: PageSize,
    lists: &[Vec<String>],
) -> Result<Copies, LiveError> {
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = Vec::new();
    for list in lists {
        parameters.push((list, Type::TEXT_ARRAY));
    }
    let fill = by_policy::fill(table, targets, &rule.methods, page);
    let sizes = by_policy::sizes(&rule.methods);
    // sent together: the second does not wait for the first one's answer
    let (filled, rows) =
        join(client.query_typed(&fill, &parameters), client.query_typed(&sizes, &[])).await;
    filled?;
    let rows = rows?;
    let bytes: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    let copies = rows.iter().map(|row| copy(row, &rule.methods));
    Ok(Copies {
        rows: copies.collect::<Result<Vec<Copy>, LiveError>>()?,
        is_full: bytes >= by_policy::FULL,
    })
}

fn copy(row: &tokio_postgres::Row, methods: &[MethodChoice]) -> Result<Copy, LiveError> {
    let xmin: String = row.try_get(3)?;
    let mut contents = Vec::with_capacity(methods.len());
    let mut at = 4;
    for choice in methods {
        let raw: Option<i32> = row.try_get(at)?;
        at += 1;
        let mut sizes = CompressedSizes::default();
        for &method in choice.methods() {
            let size: Option<i64> = row.try_get(at)?;
            at += 1;
            sizes.set(method, size.and_then(|size| u32::try_from(size).ok()));
        }
        let raw = raw.and_then(|raw| u32::try_from(raw).ok());
        contents.push(raw.map(|raw| Content { raw, sizes }));
    }
    Ok(Copy {
        number: row.try_get(1)?,
        ctid: address(row.try_get(2)?)?,
        xmin: transaction(&xmin)?,
        contents,
    })
}
