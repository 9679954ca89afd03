//! What earlier runs with a policy have proven, so that a later run judges only rows written since (pure).
//!
//! A run is complete if a scan has found that every row complies that existed when the proof began. These include all
//! rows that were inserted by transactions older than the oldest one then in progress, and a row that is changed later
//! has a newer inserting transaction. The file therefore records the ID of that oldest transaction, together with
//! everything that must not have changed since: transaction IDs mean nothing in another cluster, or after a rewrite,
//! which stores values according to the columns' settings without changing the rows' IDs. If the file is lost, only
//! time is lost.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// The name and version of the JSON format.
const SCHEMA: &str = "toastctl.since/2";
/// The maximum age of a recorded transaction. The 32 bits in tuple headers do not order transactions that are further
/// apart; the margin is for the transactions of the run itself.
const MAX_AGE: u64 = (1 << 31) - (1 << 24);

/// What identifies a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `system_identifier` of the cluster.
    pub system: String,
    /// Its timeline, which changes with a failover or a point-in-time recovery.
    pub timeline: u32,
    pub database: u32,
    pub oid: u32,
    /// `pg_relation_filenode`, which changes with every rewrite.
    pub filenode: u32,
    /// `attnum` and `atttypid` of the columns.
    pub columns: Vec<(i16, u32)>,
}

/// The state of a table, now or when a proof began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenState {
    /// The names of the database and the table.
    pub name: String,
    /// What else identifies it.
    pub identity: Identity,
    /// The position in the WAL.
    pub wal: u64,
    /// The oldest transaction in progress.
    pub xmin: u64,
    pub xmax: u64,
    /// The transactions in progress.
    pub in_progress: Vec<u64>,
}

/// What the file records, by cluster, database and table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    schema: String,
    tables: BTreeMap<String, Proven>,
}

/// What a run has proven about one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Proven {
    #[serde(flatten)]
    identity: Identity,
    /// Policy, methods, columns and target.
    choice: String,
    /// All rows inserted by transactions older than this one comply.
    xid: u64,
    /// The position in the WAL when the proof began.
    wal: u64,
}

/// Why all rows are judged although the file has a record of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// It is another cluster.
    Cluster,
    /// The database or the table has another OID.
    MadeAnew(&'static str),
    /// The cluster failed over, or was recovered.
    Timeline(u32, u32),
    /// The cluster's WAL position is before the recorded one.
    SetBack,
    /// The table has another file.
    Rewritten,
    /// The columns have the same names, but are not the same.
    Columns,
    /// Another policy, method, list of columns or target.
    Choice(String),
    /// Too many transactions have begun since.
    TooOld,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Cluster => f.write_str("the file belongs to another cluster"),
            Doubt::MadeAnew(what) => write!(f, "the {what} has been re-created since"),
            Doubt::Timeline(then, now) => write!(
                f,
                "the cluster is on another timeline ({now}, then {then}): it has failed over or been recovered since"
            ),
            Doubt::SetBack => f.write_str("the cluster has been restored to an earlier time since"),
            Doubt::Rewritten => f.write_str(
                "the table has been rewritten since (by VACUUM FULL, CLUSTER, TRUNCATE or the like)",
            ),
            Doubt::Columns => f.write_str("columns have been replaced since"),
            Doubt::Choice(then) => write!(f, "the file was written for another choice: {then}"),
            Doubt::TooOld => f.write_str("too many transactions have started since"),
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { schema: SCHEMA.into(), tables: BTreeMap::new() }
    }
}

impl Memory {
    /// Parses the JSON format; `None` if the text does not have it.
    pub fn parse(text: &str) -> Option<Memory> {
        serde_json::from_str(text).ok().filter(|memory: &Memory| memory.schema == SCHEMA)
    }

    pub fn print(&self) -> String {
        // Serialization cannot fail, because JSON can represent every field.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The transaction from which on rows must be judged; `Ok(None)` (all rows) if nothing is recorded about the table.
    ///
    /// # Errors
    /// Why the record is not trusted.
    pub fn since(&self, now: &ProvenState, choice: &str) -> Result<Option<Since>, Doubt> {
        let Some(proven) = self.tables.get(&key(now)) else {
            let is_other_cluster = self
                .tables
                .keys()
                .any(|key| key.split_once('/').is_some_and(|(_, name)| name == now.name));
            return if is_other_cluster { Err(Doubt::Cluster) } else { Ok(None) };
        };
        let then = &proven.identity;
        let identity = &now.identity;
        if then.system != identity.system {
            return Err(Doubt::Cluster);
        }
        if then.database != identity.database {
            return Err(Doubt::MadeAnew("database"));
        }
        if then.oid != identity.oid {
            return Err(Doubt::MadeAnew("table"));
        }
        if then.timeline != identity.timeline {
            return Err(Doubt::Timeline(then.timeline, identity.timeline));
        }
        let Some(age) = now.xmax.checked_sub(proven.xid) else { return Err(Doubt::SetBack) };
        if now.wal < proven.wal {
            return Err(Doubt::SetBack);
        }
        if then.filenode != identity.filenode {
            return Err(Doubt::Rewritten);
        }
        if proven.choice != choice {
            return Err(Doubt::Choice(proven.choice.clone()));
        }
        if then.columns != identity.columns {
            return Err(Doubt::Columns);
        }
        if age >= MAX_AGE {
            return Err(Doubt::TooOld);
        }
        Ok(Some(Since(proven.xid as u32)))
    }

    /// Records a complete run whose proof began at `then`.
    pub fn remember(&mut self, then: &ProvenState, choice: String) {
        let proven =
            Proven { identity: then.identity.clone(), choice, xid: then.xmin, wal: then.wal };
        self.tables.insert(key(then), proven);
    }
}

/// The key contains the cluster, because copies of a cluster may share a file.
fn key(table: &ProvenState) -> String {
    format!("{}/{}", table.identity.system, table.name)
}

/// The low 32 bits of a transaction ID, as in tuple headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(u32);

impl Since {
    /// Whether a row inserted by `xmin` existed before. Very old rows may be mistaken for new ones, but never the
    /// reverse: freezing a row keeps its `xmin`, unless it is done by `heap_force_freeze` of pg_surgery.
    pub fn is_after(self, xmin: u32) -> bool {
        // IDs below 3 are those of initdb, and of rows frozen by `heap_force_freeze` or by servers before 9.4.
        xmin >= 3 && (self.0.wrapping_sub(xmin) as i32) > 0
    }
}

/// The moment whose rows a scan covers, as in the 32 bits of tuple headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff {
    xmax: u64,
    in_progress: HashSet<u32>,
}

impl CutOff {
    /// The moment of this state: its rows are those visible then.
    pub fn at(now: &ProvenState) -> CutOff {
        CutOff {
            xmax: now.xmax,
            in_progress: now.in_progress.iter().map(|&xid| xid as u32).collect(),
        }
    }

    /// Whether a row inserted by `xmin` is newer than this moment, as seen by a snapshot with this `xmax`. The `xmin`
    /// of a frozen row may have any age, but is mistaken for a newer one only if it is among the few IDs assigned
    /// since.
    pub fn is_before(&self, xmin: u32, xmax: u64) -> bool {
        let behind = u64::from(xmin.wrapping_sub(self.xmax as u32));
        behind < xmax.saturating_sub(self.xmax) || self.in_progress.contains(&xmin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ProvenState {
        let identity = Identity {
            system: "1".into(),
            timeline: 1,
            database: 5,
            oid: 7,
            filenode: 8,
            columns: vec![(2, 25)],
        };
        let xmin = (5 << 32) + 10;
        ProvenState {
            name: "d/public.t".into(),
            identity,
            wal: 1000,
            xmin,
            xmax: xmin + 3,
            in_progress: vec![xmin],
        }
    }

    #[test]
    fn a_complete_run_is_remembered_for_its_table_and_choice_alone() {
        let mut memory = Memory::default();
        memory.remember(&table(), "best lz4".into());
        let memory = Memory::parse(&memory.print()).unwrap();
        let since = |change: &dyn Fn(&mut ProvenState)| {
            let mut now = table();
            change(&mut now);
            memory.since(&now, "best lz4")
        };
        assert_eq!(since(&|_| ()), Ok(Some(Since(10))));
        assert_eq!(since(&|now| now.xmax += 900), Ok(Some(Since(10))));
        assert_eq!(since(&|now| now.name = "d/public.u".into()), Ok(None));
        assert_eq!(since(&|now| now.identity.system = "2".into()), Err(Doubt::Cluster));
        assert_eq!(since(&|now| now.identity.timeline = 2), Err(Doubt::Timeline(1, 2)));
        assert_eq!(since(&|now| now.identity.database = 6), Err(Doubt::MadeAnew("database")));
        assert_eq!(since(&|now| now.identity.oid = 9), Err(Doubt::MadeAnew("table")));
        assert_eq!(since(&|now| now.identity.filenode = 9), Err(Doubt::Rewritten));
        assert_eq!(since(&|now| now.identity.columns = vec![(3, 25)]), Err(Doubt::Columns));
        assert_eq!(since(&|now| now.wal = 999), Err(Doubt::SetBack));
        assert_eq!(since(&|now| now.xmax = now.xmin - 1), Err(Doubt::SetBack));
        assert_eq!(since(&|now| now.xmax = 6 << 32), Err(Doubt::TooOld));
        let other = memory.since(&table(), "best pglz");
        assert_eq!(other, Err(Doubt::Choice("best lz4".into())));
    }

    #[test]
    fn only_what_it_has_written_itself_is_read() {
        assert_eq!(Memory::parse("{}"), None);
        assert_eq!(Memory::parse(r#"{"schema": "another/1", "tables": {}}"#), None);
        assert_eq!(Memory::parse(r#"{"schema": "toastctl.since/2", "tables": {"x": {}}}"#), None);
        assert_eq!(Memory::parse(r#"{"schema": "toastctl.since/1", "tables": {}}"#), None);
    }

    #[test]
    fn earlier_and_later_across_the_turn_of_the_counter() {
        let since = Since(10);
        assert!(since.is_after(9) && since.is_after(u32::MAX) && since.is_after(3));
        assert!(!since.is_after(10) && !since.is_after(11) && !since.is_after(1 << 30));
        // The row was frozen by `heap_force_freeze`, so its age is unknown.
        assert!(!since.is_after(2) && !since.is_after(1));
    }

    #[test]
    fn what_came_after_the_cut_is_what_was_given_a_number_since() {
        let cut = CutOff::at(&table());
        let next = (5u64 << 32) + 20;
        for (xmin, is_later) in
            [(9, false), (10, true), (11, false), (12, false), (13, true), (19, true), (20, false)]
        {
            assert_eq!(cut.is_before(xmin, next), is_later, "{xmin}");
        }
        // The row was frozen long ago.
        assert!(!cut.is_before(1 << 31, next) && !cut.is_before(u32::MAX, next));
        let turn = CutOff { xmax: (1 << 32) - 2, in_progress: HashSet::new() };
        let next = (1 << 32) + 5;
        assert!(turn.is_before(u32::MAX, next) && turn.is_before(3, next));
        assert!(!turn.is_before(u32::MAX - 2, next) && !turn.is_before(5, next));
    }
}
