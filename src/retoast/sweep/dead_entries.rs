//! Index entries of the row versions that batches leave: the next batch has them marked dead, so that there is room
//! for its own new entries.
//!
//! While a transaction that has written something is open, in any database of the server, entries left after it began
//! are not marked (`GlobalVisTestIsRemovableXid` in procarray.c).
//!
//! Only entries of row versions that no transaction can see any more are marked, so a later transaction has to do it,
//! by a look: a statement that scans the indexes for the rows' keys. Otherwise new entries would split leaf pages
//! that are full of old ones, because bottom-up deletion (heapam.c `index_delete_sort`) starts with the heap pages
//! that have the most candidates, and if rows are moved together, those are the pages of the new versions.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::pace::metrics;
use crate::retoast::sql::old_entries::{Addresses, BTREES, Btree, Way, visit_entries};
use crate::retoast::task::guard::Guard;
use crate::server::chunks::parse_tid;
use crate::server::connect::Statement;
use crate::server::sqlstate::ErrorKind;
use crate::server::{Client, LiveError};

/// The maximum number of rows per key, as estimated by the planner: with more, searching for a row's entry means
/// reading the entries of other rows.
const MOST_ROWS: f64 = 20.0;
/// The SQLSTATE of statements sent after one that has failed.
const BEHIND_AN_ERROR: &str = "25P02";

/// The minimum number of rows for which a statement is sent; leaf pages have enough room for the entries of fewer
/// rows.
const FEWEST: usize = 8;
/// A look that takes longer than this, and longer than the rest of its batch, finds many entries that cannot be
/// marked yet because some session may still see their rows: many rows have the same key, and an old transaction is
/// open.
const LONG: Duration = Duration::from_millis(200);
/// After this many long looks in a row, there are no more looks.
const MOST_LONG: u32 = 2;

/// The entries to mark dead, and how to do it.
#[derive(Debug, Default)]
pub(crate) struct DeadIndexEntries(Mutex<EntriesState>);

#[derive(Debug, Default)]
struct EntriesState {
    /// Whether the indexes have been examined.
    is_known: bool,
    /// The statement that marks entries; `None` if it would not help with any index.
    look: Option<String>,
    /// Whether every row gets new entries, even if it stays on its page.
    all: bool,
    /// The addresses of rows with new entries, for each batch.
    moved: VecDeque<Vec<String>>,
    /// Whether the last look failed.
    failed: bool,
    /// How long the last look took, until it is judged. With several jobs it may be that of another job, but their
    /// batches are alike.
    looked: Option<Duration>,
    /// The number of consecutive looks that took long.
    long: u32,
}

impl DeadIndexEntries {
    fn state(&self) -> MutexGuard<'_, EntriesState> {
        self.0.lock()
    }

    /// Determines for which indexes marking helps. Their plans are examined, because a statement that cannot use an
    /// index would read the table for every row.
    pub(super) async fn learn(&self, guard: &Guard<'_>) -> Result<()> {
        if self.state().is_known {
            return Ok(());
        }
        let learned = guard.in_opening(0, async |client| usable_indexes(client, guard).await).await;
        let (indexes, all) = match learned {
            Ok(learned) => learned,
            Err(RetoastError::Live(LiveError::Server(error)))
                if ErrorKind::from_error(&error) != ErrorKind::Fatal =>
            {
                tracing::debug!("{}: old index entries are not marked: {error}", guard.name());
                (Vec::new(), false)
            }
            Err(error) => return Err(error),
        };
        let table = guard.ready.relation.quoted();
        let look =
            (!indexes.is_empty()).then(|| visit_entries(&table, &indexes, Addresses::Parameter));
        *self.state() = EntriesState { is_known: true, look, all, ..EntriesState::default() };
        Ok(())
    }

    /// In a batch that has begun, marks the old entries of rows that earlier batches have moved. Returns whether
    /// there were any.
    pub(super) async fn mark(
        &self,
        client: &Client,
        look: Option<&Statement>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let Some(look) = look else { return Ok(false) };
        let due = self.due(guard.session.jobs());
        if due.is_empty() {
            return Ok(false);
        }
        let Err(error) = client.query(look, &[&due]).await else { return Ok(true) };
        let is_first =
            error.as_db_error().is_some_and(|error| error.code().code() != BEHIND_AN_ERROR);
        let fails = is_first
            && !matches!(ErrorKind::from_error(&error), ErrorKind::Fatal | ErrorKind::Busy);
        let error = LiveError::from(error);
        if fails {
            tracing::debug!("{}: old index entries are no longer marked: {error}", guard.name());
            self.fail();
        }
        Err(error.into())
    }

    /// Ends the marking if it takes most of the time of batches. `batch` is the duration of this batch, including the
    /// look.
    pub(super) fn judge_batch(&self, batch: Duration, name: &str) {
        if let Some(time) = self.judge(batch) {
            tracing::debug!("{name}: old index entries are no longer marked: it takes {time:.1?}");
        }
    }

    /// The statement to send with batches.
    pub(super) fn visit_statement(&self) -> Option<String> {
        self.state().look.clone()
    }

    /// Records the new addresses of a batch's rows, which were in these blocks before. Rows that stay on their pages
    /// are assumed to have no new entries.
    pub(super) fn note(&self, blocks: impl Iterator<Item = u32>, now: &[String]) {
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
            let block = parse_tid(ctid).and_then(|at| staying.get_mut(&at.block.0));
            match block {
                Some(rows) if *rows > 0 => *rows -= 1,
                _ => moved.push(ctid.clone()),
            }
        }
        state.moved.push_back(moved);
    }

    /// The rows whose old entries should be marked now, with this number of jobs. Rows that another job's transaction
    /// may still see are left for later.
    fn due(&self, jobs: usize) -> Vec<String> {
        let mut state = self.state();
        let later = jobs.saturating_sub(1).saturating_mul(2);
        let due = state.moved.len().saturating_sub(later);
        if state.moved.iter().take(due).map(Vec::len).sum::<usize>() < FEWEST {
            return Vec::new();
        }
        state.moved.drain(..due).flatten().collect()
    }

    /// Records how long a look took.
    pub(super) fn looked(&self, time: Duration) {
        self.state().looked = Some(time);
    }

    /// Judges the look of a batch that took `batch`, including the look. Returns the duration of the look if there
    /// should be no more.
    fn judge(&self, batch: Duration) -> Option<Duration> {
        let mut state = self.state();
        let time = state.looked.take()?;
        let is_long = time > LONG && time > batch.saturating_sub(time);
        state.long = if is_long { state.long + 1 } else { 0 };
        if state.long < MOST_LONG {
            return None;
        }
        *state = EntriesState { is_known: true, ..EntriesState::default() };
        Some(time)
    }

    /// Ends the looks after a failure.
    fn fail(&self) {
        *self.state() = EntriesState { is_known: true, failed: true, ..EntriesState::default() };
    }

    /// Whether a look has failed since the last call.
    pub(super) fn has_failed(&self) -> bool {
        std::mem::take(&mut self.state().failed)
    }
}

async fn usable_indexes(client: &Client, guard: &Guard<'_>) -> Result<(Vec<Btree>, bool)> {
    let oid = guard.ready.relation.oid.0;
    let table = guard.ready.relation.quoted();
    let mut usable = Vec::new();
    for row in client.query_typed(BTREES, &[(&oid, Type::OID)]).await? {
        let keys: Vec<String> = row.try_get(3)?;
        let operators: Vec<String> = row.try_get(4)?;
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
            usable.extend(served(client, index, &table).await?);
        }
        if usable.last().is_none_or(|last| last.name != name) {
            let name_of = guard.name();
            tracing::debug!("{name_of}: old entries of index \"{name}\" are not marked");
        }
    }
    let all = !metrics::covered(client, &[guard.ready]).await?.is_empty();
    Ok((usable, all))
}

/// The index, with the way in which the planner uses it alone, if there is one.
async fn served(client: &Client, index: Btree, table: &str) -> Result<Option<Btree>> {
    let mut few = false;
    for way in Way::possible(index.keys.len()) {
        let one = Btree { way, ..index.clone() };
        let look = visit_entries(table, std::slice::from_ref(&one), Addresses::Any);
        let explain = format!("EXPLAIN (FORMAT JSON) {look}");
        let Some(plan) = scan_of(&text_of(&client.simple_query(&explain).await?)) else {
            return Ok(None);
        };
        // only for this way does the planner estimate the number of rows per key
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

/// The result of a statement, line by line.
fn text_of(messages: &[SimpleQueryMessage]) -> String {
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
struct PlannedScan {
    /// The index that it uses.
    index: String,
    rows: f64,
    /// Whether rows that the index finds are filtered.
    filters: bool,
}

/// The only scan of a plan in the output of `EXPLAIN (FORMAT JSON)`, if it is an index scan.
fn scan_of(plan: &str) -> Option<PlannedScan> {
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
                        scan = Some(PlannedScan {
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

    fn known(all: bool) -> DeadIndexEntries {
        let old = DeadIndexEntries::default();
        *old.state() = EntriesState {
            is_known: true,
            look: Some("SELECT".into()),
            all,
            ..EntriesState::default()
        };
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
        let unknown = DeadIndexEntries::default();
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
    fn what_takes_long_again_and_again_is_left() {
        let old = known(false);
        let long = Duration::from_secs(1);
        let short = Duration::from_millis(5);
        let ends = |look: Duration, rest: Duration| {
            old.looked(look);
            old.judge(look + rest).is_some()
        };
        assert!(!ends(long, short) && !ends(short, short) && !ends(long, short));
        // if everything takes long, the machine is busy
        assert!(!ends(long, long * 2) && !ends(long, short));
        assert!(old.judge(long).is_none() && old.visit_statement().is_some());
        assert!(ends(long, short));
        old.note(std::iter::empty(), &vec!["(1,1)".to_owned(); 20]);
        assert!(old.visit_statement().is_none() && old.due(1).is_empty() && old.state().is_known);
        // this does not count as a failure, after which the batch would be tried again
        assert!(!old.has_failed());
    }

    #[test]
    fn after_a_failure_nothing_is_looked_for() {
        let old = known(false);
        old.note(std::iter::empty(), &["(1,1)".to_owned()]);
        old.fail();
        assert!(old.visit_statement().is_none() && old.due(1).is_empty());
        assert!(old.has_failed() && !old.has_failed());
    }

    #[test]
    fn a_plan_of_one_index_scan_is_known() {
        let plan = |inner: &str| {
            scan_of(&format!(
                r#"[{{"Plan": {{"Node Type": "Aggregate", "Plans": [{{"Node Type": "Tid Scan"}}, {inner}]}}}}]"#
            ))
        };
        let scan = r#"{"Node Type": "Index Scan", "Index Name": "i", "Plan Rows": 1}"#;
        let found = |rows, filters| Some(PlannedScan { index: "i".to_owned(), rows, filters });
        assert_eq!(plan(scan), found(1.0, false));
        assert_eq!(plan(&scan.replace("Index Scan", "Index Only Scan")), found(1.0, false));
        assert_eq!(plan(&scan.replace("1}", "3000}")), found(3000.0, false));
        assert_eq!(plan(&scan.replace("1}", "1, \"Filter\": \"f\"}")), found(1.0, true));
        assert_eq!(plan(&format!("{scan}, {scan}")), None);
        assert_eq!(plan(r#"{"Node Type": "Seq Scan"}"#), None);
        assert_eq!(scan_of(""), None);
    }
}
