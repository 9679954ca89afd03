//! What earlier runs by a policy have proven, so that a later one judges only rows that were written
//! since (pure).
//!
//! When a run is complete, its last scan has found that every row complies. All rows that were
//! inserted by transactions before the oldest one that ran when that scan began were seen by it, and a
//! row that is changed later gets another inserting transaction. So that transaction's number, with
//! what was run, is all that has to be remembered. Losing it costs nothing but time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name and version of the JSON form.
const SCHEMA: &str = "toastctl.since/1";
/// Transactions further apart than this cannot be told earlier from later by the 32 bits that rows
/// hold, with room for those of the run itself.
const MAX_AGE: u64 = (1 << 31) - (1 << 24);

/// What is remembered, by table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    schema: String,
    tables: BTreeMap<String, Proven>,
}

/// What a run has proven of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Proven {
    /// Policy, methods, columns and target.
    choice: String,
    /// Rows that earlier transactions inserted comply.
    xid: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { schema: SCHEMA.into(), tables: BTreeMap::new() }
    }
}

impl Memory {
    /// Reads the JSON form; `None` if it is not that.
    pub fn parse(text: &str) -> Option<Memory> {
        serde_json::from_str(text).ok().filter(|memory: &Memory| memory.schema == SCHEMA)
    }

    /// The JSON form.
    pub fn print(&self) -> String {
        // it has nothing that JSON cannot say
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The transaction from which on rows have to be judged; `None` for all rows: if another choice
    /// was run, if too much has happened since, or if the cluster has been set back in time.
    pub fn since(&self, table: &str, choice: &str, now: u64) -> Option<Since> {
        let proven = self.tables.get(table).filter(|proven| proven.choice == choice)?;
        let age = now.checked_sub(proven.xid)?;
        (age < MAX_AGE).then_some(Since(proven.xid as u32))
    }

    /// Remembers a complete run.
    pub fn remember(&mut self, table: String, choice: String, xid: u64) {
        self.tables.insert(table, Proven { choice, xid });
    }
}

/// A transaction, in the 32 bits that rows hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(u32);

impl Since {
    /// Whether a row that `xmin` inserted was there before. Very old rows may be taken for new ones,
    /// never the other way round.
    pub fn is_after(self, xmin: u32) -> bool {
        // below 3 stand the transactions of initdb and of frozen rows
        xmin < 3 || (self.0.wrapping_sub(xmin) as i32) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_run_is_remembered_for_its_choice_alone() {
        let mut memory = Memory::default();
        memory.remember("1/d/2".into(), "best lz4".into(), (5 << 32) + 10);
        let memory = Memory::parse(&memory.print()).unwrap();
        let since = |table, choice, now| memory.since(table, choice, now);
        assert_eq!(since("1/d/2", "best lz4", (5 << 32) + 900), Some(Since(10)));
        assert_eq!(since("1/d/3", "best lz4", (5 << 32) + 900), None);
        assert_eq!(since("1/d/2", "best pglz", (5 << 32) + 900), None);
        // set back, or too long ago
        assert_eq!(since("1/d/2", "best lz4", (5 << 32) + 9), None);
        assert_eq!(since("1/d/2", "best lz4", 6 << 32), None);
        assert_eq!(Memory::parse("{}"), None);
        assert_eq!(Memory::parse(r#"{"schema": "another/1", "tables": {}}"#), None);
    }

    #[test]
    fn earlier_and_later_across_the_turn_of_the_counter() {
        let since = Since(10);
        assert!(since.is_after(9) && since.is_after(u32::MAX) && since.is_after(2));
        assert!(!since.is_after(10) && !since.is_after(11) && !since.is_after(1 << 30));
    }
}
