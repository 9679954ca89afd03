//! Index entries of the row versions that batches leave behind: the batch that follows has them marked dead, so that
//! there is room for its own new ones.
//!
//! Only what nobody can see any more is marked, so a later transaction has to do it. Without that
//! new entries split leaves that are full of old ones: bottom-up deletion (heapam.c `index_delete_sort`) looks at the
//! pages with the most candidates first, and where rows are moved together those are the new versions'.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use super::batch::Done;
use super::error::RunError;
use super::scanner::address;
use super::table::Sweep;
use crate::retoast::pace::lock_tries::{Kind, kind};
use crate::retoast::sql::old_entries::{ANY_COVERED, Addresses, BTREES, Btree, look};
use crate::server::LiveError;
use crate::server::connect::{Client, Statement};

/// Rows with one key at the most, as the planner knows them: with more, looking for a row's entry is reading the
/// others'.
const MOST_ROWS: f64 = 20.0;
/// So many rows are looked for together: for fewer a statement is not sent, and leaves have room for as many.
const FEWEST: usize = 8;
/// What the server answers to statements that were sent behind one that failed.
const BEHIND_AN_ERROR: &str = "25P02";

/// What is to be marked, and how.
#[derive(Debug, Default)]
pub struct OldEntries(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the indexes were looked at.
    is_known: bool,
    /// The statement; `None` if there is no index that it would help.
    look: Option<String>,
    /// Whether every row gets new entries, wherever it goes.
    all: bool,
    /// Addresses of rows with new entries, batch by batch.
    moved: VecDeque<Vec<String>>,
    /// Whether the last look has failed.
    failed: bool,
}

impl OldEntries {
    fn state(&self) -> MutexGuard<'_, State> {
        // what stands there is only ever set whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The statement that is sent with batches.
    pub(in crate::retoast) fn look(&self) -> Option<String> {
        self.state().look.clone()
    }

    /// Takes down where a batch's rows are now that were in these blocks. Those that stay on their pages are taken
    /// to have no new entries.
    pub(in crate::retoast) fn note(&self, blocks: impl Iterator<Item = u32>, now: &[String]) {
        let mut state = self.state();
        if state.look.is_none() {
            return;
        }
        let mut staying: HashMap<u32, u32> = HashMap::new();
        if !state.all {
            blocks.for_each(|block| *staying.entry(block).or_default() += 1);
        }
        let mut moved = Vec::new();
        for ctid in now {
            let block = address(ctid).ok().and_then(|at| staying.get_mut(&at.block.0));
            match block {
                Some(rows) if *rows > 0 => *rows -= 1,
                _ => moved.push(ctid.clone()),
            }
        }
        state.moved.push_back(moved);
    }

    /// The rows whose old entries are to be marked now, with so many jobs: what another job's transaction may
    /// still see is left for later.
    fn due(&self, jobs: usize) -> Vec<String> {
        let mut state = self.state();
        let later = jobs.saturating_sub(1).saturating_mul(2);
        let due = state.moved.len().saturating_sub(later);
        if state.moved.iter().take(due).map(Vec::len).sum::<usize>() < FEWEST {
            return Vec::new();
        }
        state.moved.drain(..due).flatten().collect()
    }

    /// There are no more looks.
    fn fail(&self) {
        *self.state() = State { is_known: true, failed: true, ..State::default() };
    }

    /// Whether a look has failed since this was asked.
    fn has_failed(&self) -> bool {
        std::mem::take(&mut self.state().failed)
    }
}

impl Sweep<'_> {
    /// Looks which indexes marking would help. Their plans are tried, since a statement that an index does not
    /// serve would read the table for every row.
    pub(in crate::retoast) async fn learn_indexes(&self) -> Result<(), RunError> {
        if self.old_entries.state().is_known {
            return Ok(());
        }
        let client = self.connection(0).client();
        let learned = async {
            self.begin_batch(client).await?;
            self.usable_indexes(client).await
        };
        let learned = learned.await;
        let ended = client.batch_execute("ROLLBACK").await;
        let (indexes, all) = match learned {
            Ok(learned) => learned,
            Err(RunError::Live(LiveError::Server(error))) if kind(&error) != Kind::Fatal => {
                tracing::debug!("{}: old index entries are not marked: {error}", self.name());
                (Vec::new(), false)
            }
            Err(error) => return Err(error),
        };
        ended?;
        let table = self.ready.relation.quoted();
        let look = (!indexes.is_empty()).then(|| look(&table, &indexes, Addresses::Parameter));
        *self.old_entries.state() = State { is_known: true, look, all, ..State::default() };
        Ok(())
    }

    async fn usable_indexes(&self, client: &Client) -> Result<(Vec<Btree>, bool), RunError> {
        let (oid, table) = (self.ready.relation.oid.0, self.ready.relation.quoted());
        let mut usable = Vec::new();
        for row in client.query_typed(BTREES, &[(&oid, Type::OID)]).await? {
            let (keys, operators): (Vec<String>, Vec<String>) = (row.try_get(3)?, row.try_get(4)?);
            let has_all = keys.len() == operators.len();
            let index = Btree {
                oid: row.try_get(0)?,
                name: row.try_get(1)?,
                unique: row.try_get(2)?,
                keys: keys.into_iter().zip(operators).collect(),
                predicate: row.try_get(5)?,
            };
            let one = std::slice::from_ref(&index);
            let explain = format!("EXPLAIN (FORMAT JSON) {}", look(&table, one, Addresses::Any));
            if has_all && is_served(&told(&client.simple_query(&explain).await?), &index.name) {
                usable.push(index);
            } else {
                let name = self.name();
                tracing::debug!("{name}: old entries of index \"{}\" are not marked", index.name);
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

    /// In a batch that has begun: marks the old entries of rows that batches before it have moved.
    pub(in crate::retoast) async fn mark_old_entries(
        &self,
        client: &Client,
        look: Option<&Statement>,
    ) -> Result<(), RunError> {
        let Some(look) = look else { return Ok(()) };
        let due = self.old_entries.due(self.others.len() + 1);
        if due.is_empty() {
            return Ok(());
        }
        let Err(error) = client.query(look, &[&due]).await else { return Ok(()) };
        let is_first =
            error.as_db_error().is_some_and(|error| error.code().code() != BEHIND_AN_ERROR);
        let fails = is_first && !matches!(kind(&error), Kind::Fatal | Kind::Busy);
        let error = LiveError::from(error);
        if fails {
            tracing::debug!("{}: old index entries are no longer marked: {error}", self.name());
            self.old_entries.fail();
        }
        Err(error.into())
    }

    /// Tries a batch, and once more if it was marking old entries that has failed.
    pub(in crate::retoast) async fn try_marking(
        &self,
        job: usize,
        batch: impl AsyncFn() -> Result<Done, RunError>,
    ) -> Result<Done, RunError> {
        let tried = batch().await;
        if tried.is_err() && self.old_entries.has_failed() {
            self.rollback(job).await?;
            return batch().await;
        }
        tried
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

/// Whether this plan, as `EXPLAIN (FORMAT JSON)` tells it, finds few rows and all of them by that index alone.
fn is_served(plan: &str, index: &str) -> bool {
    let Ok(plan) = serde_json::from_str::<Value>(plan) else { return false };
    let mut scans = 0;
    let mut rest = vec![&plan];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(fields) => {
                let text = |name: &str| fields.get(name).and_then(Value::as_str);
                match text("Node Type") {
                    Some("Index Scan") => {
                        let rows = fields.get("Plan Rows").and_then(Value::as_f64);
                        if text("Index Name") != Some(index)
                            || fields.contains_key("Filter")
                            || rows.is_none_or(|rows| rows > MOST_ROWS)
                        {
                            return false;
                        }
                        scans += 1;
                    }
                    Some(
                        "Aggregate" | "Tid Scan" | "Limit" | "Result" | "Subquery Scan"
                        | "Function Scan",
                    )
                    | None => {}
                    Some(_) => return false,
                }
                rest.extend(fields.values());
            }
            _ => {}
        }
    }
    scans == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(all: bool) -> OldEntries {
        let old = OldEntries::default();
        *old.state() =
            State { is_known: true, look: Some("SELECT".into()), all, ..State::default() };
        old
    }

    #[test]
    fn rows_that_leave_their_pages_are_looked_for_by_the_next_batch() {
        let at = |place: (u32, u32)| format!("({},{})", place.0, place.1);
        let mut now = vec![at((1, 9)), at((2, 3)), at((1, 10))];
        now.extend((40..47).map(|block| at((block, 1))));
        let old = known(false);
        old.note([1, 2, 3, 4].into_iter(), &now);
        assert_eq!(old.due(1), now[2..]);
        assert!(old.due(1).is_empty());
        let all = known(true);
        all.note([1, 2, 3, 4].into_iter(), &now);
        assert_eq!(all.due(1), now);
        let unknown = OldEntries::default();
        unknown.note([1].into_iter(), &now);
        assert!(unknown.due(1).is_empty());
    }

    #[test]
    fn few_rows_wait_for_more() {
        let old = known(false);
        let rows: Vec<String> = (1..=5).map(|item| format!("(9,{item})")).collect();
        old.note(std::iter::empty(), &rows);
        assert!(old.due(1).is_empty());
        old.note(std::iter::empty(), &rows);
        assert_eq!(old.due(1).len(), 10);
    }

    #[test]
    fn what_another_job_may_see_is_left_for_later() {
        let old = known(false);
        for block in 1..=4 {
            let rows: Vec<String> = (1..=4).map(|item| format!("({block},{item})")).collect();
            old.note(std::iter::empty(), &rows);
        }
        let due = old.due(2);
        assert_eq!((due.len(), due[0].as_str(), due[7].as_str()), (8, "(1,1)", "(2,4)"));
        assert!(old.due(2).is_empty());
        assert_eq!(old.due(1).len(), 8);
    }

    #[test]
    fn after_a_failure_nothing_is_looked_for() {
        let old = known(false);
        old.note(std::iter::empty(), &["(1,1)".to_owned()]);
        old.fail();
        assert!(old.look().is_none() && old.due(1).is_empty());
        assert!(old.has_failed() && !old.has_failed());
    }

    #[test]
    fn a_plan_serves_that_finds_few_rows_by_the_index_alone() {
        let plan = |inner: &str| {
            format!(
                r#"[{{"Plan": {{"Node Type": "Aggregate", "Plans": [{{"Node Type": "Tid Scan"}}, {inner}]}}}}]"#
            )
        };
        let scan = r#"{"Node Type": "Index Scan", "Index Name": "i", "Plan Rows": 1}"#;
        assert!(is_served(&plan(scan), "i"));
        assert!(!is_served(&plan(scan), "j"));
        assert!(!is_served(&plan(&format!("{scan}, {scan}")), "i"));
        assert!(!is_served(&plan(&scan.replace("1}", "3000}")), "i"));
        assert!(!is_served(&plan(&scan.replace("1}", "1, \"Filter\": \"f\"}")), "i"));
        assert!(!is_served(&plan(r#"{"Node Type": "Seq Scan"}"#), "i"));
        assert!(!is_served("", "i"));
    }
}
