//! Sizes from SQL functions, where pages cannot be read: on managed services, for ordinary owners, and for relations
//! with another access method.

use std::ops::Range;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::about::Server;
use super::catalog::Relation;
use super::chunks::{address, transaction};
use super::connect::Client;
use super::probe::{Answer, Probe};
use super::{LiveError, LiveResult, count_in, snapshot};
use toast_format::codec::Method;
use toast_format::disk::{ItemPointer, Length};
use toast_format::model::StoredValue;
use toast_format::model::stored::{FunctionAnswer, Placement};

/// Values of one column that the functions cannot distinguish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueGroup {
    /// The column's index from 0, including dropped columns.
    pub index: usize,
    /// The form and sizes of each value.
    pub value: StoredValue,
    /// The number of values.
    pub count: u64,
    /// Whether it is unknown if they are out of line.
    pub unplaced: bool,
}

/// Groups the values of all columns of a table by form and sizes, and counts its rows. Must be called in a transaction of
/// [`begin_reading`](super::owner_facts::begin_reading).
pub async fn groups(
    client: &Client,
    server: &Server,
    relation: &Relation,
) -> LiveResult<(u64, Vec<ValueGroup>)> {
    let probe = Probe::new(server, relation);
    client.batch_execute(snapshot::WHOLE).await?;
    let Some(sql) = probe.groups() else {
        let sql = format!("SELECT pg_catalog.count(*) FROM ONLY {}", relation.quoted());
        let count: i64 = client.value(&sql, &[]).await?.unwrap_or(0);
        return Ok((u64::try_from(count).unwrap_or(0), Vec::new()));
    };
    let first = probe.columns().first().copied();
    let rows = client.query_typed(&sql, &[]).await?;
    let probe = if has_no_chunks(client, relation).await? { probe.in_rows() } else { probe };
    let mut groups = Vec::with_capacity(rows.len());
    let mut live = 0u64;
    for row in &rows {
        let index = usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(usize::MAX);
        if index >= relation.desc.attributes.len() {
            return Err(LiveError::Unexpected(format!("column number {index}")));
        }
        let answer = Answer {
            stored: size(row.try_get(1)?),
            method: row.try_get::<_, Option<&str>>(2)?.and_then(Method::from_name),
            raw: size(row.try_get(3)?),
            external: row.try_get(4)?,
        };
        let count = count_in(row, 5)?;
        if first == Some(index) {
            live = live.saturating_add(count);
        }
        let answer = probe.interpret(index, answer);
        let unplaced = answer.placement == Placement::Unknown;
        groups.push(ValueGroup { index, value: answer.value, count, unplaced });
    }
    Ok((live, groups))
}

/// Whether the TOAST relation was empty before the values were read and still is, so that all values are in their rows.
async fn has_no_chunks(client: &Client, relation: &Relation) -> LiveResult<bool> {
    let Some(toast) = relation.toast.as_ref().filter(|toast| toast.bytes == 0) else {
        return Ok(false);
    };
    let sql = "SELECT coalesce(pg_catalog.pg_relation_size($1), 0)";
    let bytes: Option<i64> = client.value(sql, &[(&toast.oid.0, Type::OID)]).await?;
    Ok(bytes == Some(0))
}

/// What the functions show about one row.
#[derive(Debug, Clone)]
pub(crate) struct ToldRow {
    pub ctid: ItemPointer,
    /// The transaction that inserted it.
    pub xmin: u32,
    /// The sum of `pg_column_size` over its columns.
    pub bytes: u64,
    /// Its values in the requested columns.
    pub values: Vec<FunctionAnswer>,
}

/// The rows in a range of blocks, with their values in the columns `asked` (indexes from 0).
pub(crate) async fn rows(
    client: &Client,
    probe: &Probe<'_>,
    asked: &[usize],
    blocks: &Range<u32>,
) -> LiveResult<Vec<ToldRow>> {
    let columns = probe.columns();
    let places: Vec<Option<usize>> =
        asked.iter().map(|index| columns.iter().position(|column| column == index)).collect();
    let answers = client.query_typed(&probe.rows(asked, blocks), &[]).await?;
    let mut rows = Vec::with_capacity(answers.len());
    for row in &answers {
        let ctid: &str = row.try_get(0)?;
        let xmin: &str = row.try_get(1)?;
        let answers = Answers::from_row(row, 2)?;
        let mut values = Vec::with_capacity(asked.len());
        for (at, (&index, place)) in asked.iter().zip(&places).enumerate() {
            values.push(probe.interpret(index, answers.get(*place, at)));
        }
        rows.push(ToldRow {
            ctid: address(ctid)?,
            xmin: transaction(xmin)?,
            bytes: answers.sizes.iter().filter_map(|&bytes| size(bytes)).sum(),
            values,
        });
    }
    Ok(rows)
}

/// The functions' results for several values, as arrays in a row of a result.
pub(super) struct Answers<'r> {
    sizes: Vec<Option<i32>>,
    methods: Vec<Option<&'r str>>,
    lengths: Vec<Option<i32>>,
    external: Vec<Option<bool>>,
}

impl<'r> Answers<'r> {
    /// Reads the arrays, which begin at this column of the result.
    pub(super) fn from_row(row: &'r Row, at: usize) -> LiveResult<Answers<'r>> {
        Ok(Answers {
            sizes: row.try_get(at)?,
            methods: row.try_get(at + 1)?,
            lengths: row.try_get(at + 2)?,
            external: row.try_get(at + 3)?,
        })
    }

    /// The result for the value at index `at` of the arrays; its size is at an index of its own.
    pub(super) fn get(&self, size_at: Option<usize>, at: usize) -> Answer {
        Answer {
            stored: size(size_at.and_then(|at| self.sizes.get(at).copied()).flatten()),
            method: self.methods.get(at).copied().flatten().and_then(Method::from_name),
            raw: size(self.lengths.get(at).copied().flatten()),
            external: self.external.get(at).copied().flatten(),
        }
    }
}

pub(super) fn size(answer: Option<i32>) -> Option<u64> {
    answer.and_then(|size| u64::try_from(size).ok())
}

/// The figures that the functions cannot supply on this server, with the reasons.
pub fn not_available(server: &Server, relation: &Relation) -> Vec<(&'static str, String)> {
    let mut list = vec![
        ("dead and unknown tuples, free space, HOT updates", "pages were not read".to_owned()),
        ("form missing", "no SQL function shows them".to_owned()),
    ];
    if !relation.is_heap {
        list.push((
            "form and stored size of values",
            format!(
                "pg_column_size measures what the access method {} returns",
                relation.access_method
            ),
        ));
    }
    let columns = &relation.desc.attributes;
    if columns.iter().any(|column| !column.dropped && column.length == Length::Varlena) {
        if !server.has_toast_chunk_id() {
            list.push((
                "form and chunks of some values",
                "pg_column_toast_chunk_id exists from PostgreSQL 17 on".to_owned(),
            ));
        }
        list.push((
            "raw size of types other than text and bytea",
            "octet_length does not accept them".to_owned(),
        ));
    }
    list
}
