//! How to find a row again that other sessions update nearly all the time.
//!
//! Such a row is at another address, often in another block, before a statement that was sent for its address gets to
//! it. With the primary key, a statement finds the row in the version that its snapshot sees, and the server follows
//! it from there to the newest version (`heap_lock_tuple`).

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::machine::Row;
use super::scanner::Scanner;
use crate::retoast::sql;
use crate::retoast::task::guard::Guard;
use crate::server::chunks::address;
use crate::server::{Client, LiveResult};
use toast_format::disk::ItemPointer;
use toast_format::model::sql::{in_blocks, quote_identifier};

/// The maximum number of rows whose keys are recorded in a scan; other rows are searched for in the block where they
/// were found.
const MOST_KEYS: usize = 1000;

/// The primary keys of rows found by a scan.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The columns of the primary key and their types, queried once; empty if the table has no primary key.
    columns: Option<Vec<(String, String)>>,
    known: HashMap<ItemPointer, Vec<String>>,
}

/// A condition that finds rows of a table with the alias `t`. Keys are parameters and never part of the statement's
/// text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) sql: String,
    /// The parameters, starting with `$1`.
    pub(super) parameters: Vec<String>,
}

impl Keys {
    /// Removes the rows of the previous scan.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Records the keys of rows, in the scan's own snapshot if it still has one.
    ///
    /// # Errors
    ///
    /// Errors of the server.
    pub(super) async fn note(
        &mut self,
        guard: &Guard<'_>,
        scanner: &Scanner<'_>,
        rows: &[Row],
    ) -> LiveResult<()> {
        let room = MOST_KEYS.saturating_sub(self.known.len());
        if rows.is_empty() || room == 0 {
            return Ok(());
        }
        if scanner.held.is_some() {
            return self.ask(guard, scanner.connection.client(), rows, room).await;
        }
        let client = guard.session.reader().client();
        guard.in_reading(async |_| self.ask(guard, client, rows, room).await).await
    }

    async fn ask(
        &mut self,
        guard: &Guard<'_>,
        client: &Client,
        rows: &[Row],
        room: usize,
    ) -> LiveResult<()> {
        let relation = &guard.ready.relation;
        if self.columns.is_none() {
            let rows =
                client.query_typed(sql::PRIMARY_KEY, &[(&relation.oid.0, Type::OID)]).await?;
            let mut columns = Vec::new();
            for row in rows {
                columns.push((row.try_get(0)?, row.try_get(1)?));
            }
            self.columns = Some(columns);
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        if columns.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        let ctids: Vec<String> = rows.iter().take(room).map(|row| row.ctid.to_string()).collect();
        let ask = sql::keys(&relation.quoted(), &names);
        for row in client.query_typed(&ask, &[(&ctids, Type::TEXT_ARRAY)]).await? {
            self.known.insert(address(row.try_get(0)?)?, row.try_get(1)?);
        }
        Ok(())
    }

    /// The condition that finds these rows of one block again: by their keys, or, if any of these is not known, all
    /// rows of the block.
    pub(super) fn condition(&self, rows: &[Row]) -> Condition {
        let columns = self.columns.as_deref().unwrap_or_default();
        let mut parts = Vec::new();
        let mut parameters = Vec::new();
        for row in rows {
            let Some(key) = self.known.get(&row.ctid) else {
                let block = row.ctid.block.0;
                let sql = in_blocks(&(block..block.saturating_add(1)));
                return Condition { sql, parameters: Vec::new() };
            };
            let mut equals = Vec::new();
            for ((name, of), value) in columns.iter().zip(key) {
                parameters.push(value.clone());
                let name = quote_identifier(name);
                let number = parameters.len();
                equals.push(format!(
                    "t.{name} OPERATOR(pg_catalog.=) ${number}::pg_catalog.text::{of}"
                ));
            }
            parts.push(format!("({})", equals.join(" AND ")));
        }
        Condition { sql: format!("({})", parts.join(" OR ")), parameters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::disk::BlockNumber;

    #[test]
    fn rows_are_found_by_key_or_by_block() {
        let row = |item| Row {
            ctid: ItemPointer { block: BlockNumber(7), item },
            xmin: 3,
            by_copy: false,
            spared: false,
            bytes: 10,
            stored: 10,
            dead: 74,
        };
        let columns = [("id".to_owned(), "bigint".to_owned()), ("a\"b".into(), "text".into())];
        let mut keys = Keys::default();
        for item in [1, 2] {
            keys.known.insert(row(item).ctid, vec![item.to_string(), "it's".to_owned()]);
        }
        keys.columns = Some(columns.to_vec());
        let found = keys.condition(&[row(1), row(2)]);
        assert_eq!(
            found.sql,
            "((t.\"id\" OPERATOR(pg_catalog.=) $1::pg_catalog.text::bigint \
             AND t.\"a\"\"b\" OPERATOR(pg_catalog.=) $2::pg_catalog.text::text) \
             OR (t.\"id\" OPERATOR(pg_catalog.=) $3::pg_catalog.text::bigint \
             AND t.\"a\"\"b\" OPERATOR(pg_catalog.=) $4::pg_catalog.text::text))"
        );
        assert_eq!(found.parameters, ["1", "it's", "2", "it's"]);
        let found = keys.condition(&[row(1), row(3)]);
        assert_eq!(found.sql, "t.ctid >= '(7,0)' AND t.ctid < '(8,0)'");
        assert!(found.parameters.is_empty());
    }
}
