//! Index entries of the row versions that batches leave behind: the batch that follows has them marked dead, so that
//! there is room for its own new ones.
//!
//! While a transaction that has written anything is open, in any database of the server, nothing that was left
//! behind after its beginning is marked (`GlobalVisTestIsRemovableXid` in procarray.c).
//!
//! Only what nobody can see any more is marked, so a later transaction has to do it. Without that
//! new entries split leaves that are full of old ones: bottom-up deletion (heapam.c `index_delete_sort`) looks at the
//! pages with the most candidates first, and where rows are moved together those are the new versions'.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use super::error::RunError;
use super::table::Sweep;
use crate::retoast::sql::old_entries::{ANY_COVERED, Addresses, BTREES, Btree, Way, look};
use crate::server::LiveError;
use crate::server::connect::{Client, Statement};
use crate::server::sqlstate::ErrorKind;

/// Rows with one key at the most, as the planner knows them: with more, looking for a row's entry is reading the
/// others'.
const MOST_ROWS: f64 = 20.0;
/// What the server answers to statements that were sent behind one that failed.
const BEHIND_AN_ERROR: &str = "25P02";

impl Sweep<'_> {
    /// Looks which indexes marking would help. Their plans are tried, since a statement that an index does not
    /// serve would read the table for every row.
    pub(super) async fn learn_indexes(&self) -> Result<(), RunError> {
        if self.old_entries.is_known() {
            return Ok(());
        }
        let connection = self.connection(0);
        let client = connection.client();
        let learned = async {
            self.begin_batch(connection).await?;
            self.usable_indexes(client).await
        };
        let learned = learned.await;
        let ended = client.batch_execute("ROLLBACK").await;
        let (indexes, all) = match learned {
            Ok(learned) => learned,
            Err(RunError::Live(LiveError::Server(error)))
                if ErrorKind::of(&error) != ErrorKind::Fatal =>
            {
                tracing::debug!("{}: old index entries are not marked: {error}", self.name());
                (Vec::new(), false)
            }
            Err(error) => return Err(error),
        };
        ended?;
        let table = self.ready.relation.quoted();
        let look = (!indexes.is_empty()).then(|| look(&table, &indexes, Addresses::Parameter));
        self.old_entries.know(look, all);
        Ok(())
    }

    async fn usable_indexes(&self, client: &Client) -> Result<(Vec<Btree>, bool), RunError> {
        let oid = self.ready.relation.oid.0;
        let mut usable = Vec::new();
        for row in client.query_typed(BTREES, &[(&oid, Type::OID)]).await? {
            let (keys, operators): (Vec<String>, Vec<String>) = (row.try_get(3)?, row.try_get(4)?);
            let has_all = keys.len() == operators.len();
            let bounds: Vec<String> = row.try_get(6)?;
            let index = Btree {
                oid: row.try_get(0)?,
                name: row.try_get(1)?,
                unique: row.try_get(2)?,
                keys: keys.into_iter().zip(operators).collect(),
                bounds: <[String; 2]>::try_from(bounds).ok().map(|[most, least]| (most, least)),
                predicate: row.try_get(5)?,
                way: Way::default(),
            };
            let name = index.name.clone();
            if has_all {
                usable.extend(self.served(client, index).await?);
            }
            if usable.last().is_none_or(|last| last.name != name) {
                let table = self.name();
                tracing::debug!("{table}: old entries of index \"{name}\" are not marked");
            }
        }
        let columns: Vec<i16> = self
            .ready
            .targets
            .iter()
            .filter_map(|target| i16::try_from(target.index + 1).ok())
            .collect();
        let covered = client
            .query_typed(ANY_COVERED, &[(&oid, Type::OID), (&columns, Type::INT2_ARRAY)])
            .await?;
        let all = covered.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
        Ok((usable, all))
    }

    /// The index with the way by which the planner takes it alone, if there is one.
    async fn served(&self, client: &Client, index: Btree) -> Result<Option<Btree>, RunError> {
        let table = self.ready.relation.quoted();
        let mut few = false;
        for way in Way::all(index.keys.len()) {
            let one = Btree { way, ..index.clone() };
            let look = look(&table, std::slice::from_ref(&one), Addresses::Any);
            let explain = format!("EXPLAIN (FORMAT JSON) {look}");
            let Some(plan) = scan_of(&told(&client.simple_query(&explain).await?)) else {
                return Ok(None);
            };
            // how many rows have a key the planner says of this way alone
            few |= way == Way::default() && plan.rows <= MOST_ROWS;
            if !few {
                return Ok(None);
            }
            if plan.index == index.name && !plan.filters {
                return Ok(Some(one));
            }
        }
        Ok(None)
    }

    /// In a batch that has begun: marks the old entries of rows that batches before it have moved. Whether there
    /// were any.
    pub(super) async fn mark_old_entries(
        &self,
        client: &Client,
        look: Option<&Statement>,
    ) -> Result<bool, RunError> {
        let Some(look) = look else { return Ok(false) };
        let due = self.old_entries.due(self.others.len() + 1);
        if due.is_empty() {
            return Ok(false);
        }
        let Err(error) = client.query(look, &[&due]).await else { return Ok(true) };
        let is_first =
            error.as_db_error().is_some_and(|error| error.code().code() != BEHIND_AN_ERROR);
        let fails =
            is_first && !matches!(ErrorKind::of(&error), ErrorKind::Fatal | ErrorKind::Busy);
        let error = LiveError::from(error);
        if fails {
            tracing::debug!("{}: old index entries are no longer marked: {error}", self.name());
            self.old_entries.fail();
        }
        Err(error.into())
    }

    /// Ends the marking if it is what batches take long for. This one took so long, the look with it.
    pub(super) fn judge_marking(&self, batch: Duration) {
        if let Some(time) = self.old_entries.judge(batch) {
            let name = self.name();
            tracing::debug!("{name}: old index entries are no longer marked: it takes {time:.1?}");
        }
    }
}

/// What a statement has answered, line by line.
fn told(messages: &[SimpleQueryMessage]) -> String {
    let mut text = String::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            text.push_str(row.get(0).unwrap_or_default());
            text.push('\n');
        }
    }
    text
}

/// How a plan finds rows.
#[derive(Debug, PartialEq)]
struct Scan {
    /// The index by which it does.
    index: String,
    rows: f64,
    /// Whether rows that the index finds are looked at once more.
    filters: bool,
}

/// The only scan of a plan, as `EXPLAIN (FORMAT JSON)` tells it, if that is one of an index.
fn scan_of(plan: &str) -> Option<Scan> {
    let plan = serde_json::from_str::<Value>(plan).ok()?;
    let mut scan = None;
    let mut rest = vec![&plan];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(fields) => {
                let text = |name: &str| fields.get(name).and_then(Value::as_str);
                match text("Node Type") {
                    Some("Index Scan" | "Index Only Scan") if scan.is_none() => {
                        scan = Some(Scan {
                            index: text("Index Name")?.to_owned(),
                            rows: fields.get("Plan Rows").and_then(Value::as_f64)?,
                            filters: fields.contains_key("Filter"),
                        });
                    }
                    Some(
                        "Aggregate" | "Tid Scan" | "Limit" | "Result" | "Subquery Scan"
                        | "Function Scan",
                    )
                    | None => {}
                    Some(_) => return None,
                }
                rest.extend(fields.values());
            }
            _ => {}
        }
    }
    scan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_one_index_scan_is_known() {
        let plan = |inner: &str| {
            scan_of(&format!(
                r#"[{{"Plan": {{"Node Type": "Aggregate", "Plans": [{{"Node Type": "Tid Scan"}}, {inner}]}}}}]"#
            ))
        };
        let scan = r#"{"Node Type": "Index Scan", "Index Name": "i", "Plan Rows": 1}"#;
        let found = |rows, filters| Some(Scan { index: "i".to_owned(), rows, filters });
        assert_eq!(plan(scan), found(1.0, false));
        assert_eq!(plan(&scan.replace("Index Scan", "Index Only Scan")), found(1.0, false));
        assert_eq!(plan(&scan.replace("1}", "3000}")), found(3000.0, false));
        assert_eq!(plan(&scan.replace("1}", "1, \"Filter\": \"f\"}")), found(1.0, true));
        assert_eq!(plan(&format!("{scan}, {scan}")), None);
        assert_eq!(plan(r#"{"Node Type": "Seq Scan"}"#), None);
        assert_eq!(scan_of(""), None);
    }
}
