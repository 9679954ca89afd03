//! How a row is found again that others update nearly all the time.
//!
//! A row that is updated without a pause is at another address, often in another block, before a statement
//! that was sent for its address comes to it. By its primary key a statement finds it in whatever
//! version its own snapshot sees, and the server follows it from there to the newest (`heap_lock_tuple`).

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::machine::Row;
use super::scanner::Scanner;
use crate::disk::ItemPointer;
use crate::model::sql::{in_blocks, quote_identifier};
use crate::retoast::sql;
use crate::retoast::task::guard::Guard;
use crate::server::LiveError;
use crate::server::chunks::address;
use crate::server::connect::Client;

/// As many rows' keys are noted in a scan; the others are looked for in the block where they were.
const MOST_KEYS: usize = 1000;

/// The keys of rows that a scan has found.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The columns of the primary key and their types; none if the table has no such key. Asked for once.
    columns: Option<Vec<(String, String)>>,
    known: HashMap<ItemPointer, Vec<String>>,
}

/// What finds rows of a table named `t`. Keys are values, which never stand in a statement's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) sql: String,
    /// From `$1` on.
    pub(super) parameters: Vec<String>,
}

impl Keys {
    /// Forgets the rows of the scan before.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Notes the keys of rows, in the scan's own snapshot if it still has it.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub(super) async fn note(
        &mut self,
        guard: &Guard<'_>,
        scanner: &Scanner<'_>,
        rows: &[Row],
    ) -> Result<(), LiveError> {
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
    ) -> Result<(), LiveError> {
        let relation = &guard.ready.relation;
        if self.columns.is_none() {
            let rows =
                client.query_typed(sql::PRIMARY_KEY, &[(&relation.oid.0, Type::OID)]).await?;
            let column = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
            self.columns = Some(rows.iter().map(column).collect::<Result<_, LiveError>>()?);
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

    /// The condition that finds these rows of one block again: by their keys, or the whole block if not all
    /// of them are known.
    pub(super) fn condition(&self, rows: &[Row]) -> Condition {
        let columns = self.columns.as_deref().unwrap_or_default();
        let (mut parts, mut parameters) = (Vec::new(), Vec::new());
        for row in rows {
            let Some(key) = self.known.get(&row.ctid) else {
                let block = row.ctid.block.0;
                let sql = in_blocks(&(block..block.saturating_add(1)));
                return Condition { sql, parameters: Vec::new() };
            };
            let mut equals = Vec::new();
            for ((name, of), value) in columns.iter().zip(key) {
                parameters.push(value.clone());
                let (name, number) = (quote_identifier(name), parameters.len());
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
    use crate::disk::BlockNumber;

    #[test]
    fn rows_are_found_by_key_or_by_block() {
        let row = |item| Row {
            ctid: ItemPointer { block: BlockNumber(7), item },
            xmin: 3,
            by_copy: false,
            spared: false,
            bytes: 10,
            stored: 10,
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
