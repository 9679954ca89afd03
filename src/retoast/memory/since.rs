//! What earlier runs with a policy have proven, so that a later run judges only rows written since. The file is read
//! before the first table, and written whenever a table is complete.
//!
//! A run is complete if a scan has found that every row complies that existed when the proof began. These include all
//! rows that were inserted by transactions older than the oldest one then in progress, and a row that is changed later
//! has a newer inserting transaction. The file therefore records the ID of that oldest transaction, together with
//! everything that must not have changed since: transaction IDs mean nothing in another cluster, or after a rewrite,
//! which stores values according to the columns' settings without changing the rows' IDs. If the file is lost, only
//! time is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::retoast::error::{Result, RetoastError};
use crate::retoast::memory::{self, Loaded, SavedState};
use crate::retoast::preflight::ready::PreparedTable;
use crate::server::{Client, LiveError, LiveResult};
use toast_format::disk::TransactionId;
use toast_format::model::Snapshot;
use toast_format::model::sql::quote_identifier;

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
    pub snapshot: Snapshot,
}

/// What the file records, by cluster, database and table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    tables: BTreeMap<String, Proven>,
}

impl SavedState for Memory {
    const SCHEMA: &'static str = "toastctl.since/2";
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

/// Why all rows are judged although the file has a record of the table, as a sentence.
pub(crate) type Doubt = String;

impl Memory {
    /// The transaction from which on rows must be judged; `Ok(None)` (all rows) if nothing is recorded about the table.
    ///
    /// # Errors
    /// Why the record is not trusted.
    fn since(&self, now: &ProvenState, choice: &str) -> Result<Option<Since>, Doubt> {
        const OTHER_CLUSTER: &str = "the file belongs to another cluster";
        let Some(proven) = self.tables.get(&key(now)) else {
            let mut names = self.tables.keys().filter_map(|key| key.split_once('/'));
            let is_other_cluster = names.any(|(_, name)| name == now.name);
            return if is_other_cluster { Err(OTHER_CLUSTER.into()) } else { Ok(None) };
        };
        let then = &proven.identity;
        let identity = &now.identity;
        let age = now.snapshot.next_xid().checked_sub(proven.xid);
        let doubt = if then.system != identity.system {
            OTHER_CLUSTER
        } else if then.database != identity.database {
            "the database has been re-created since"
        } else if then.oid != identity.oid {
            "the table has been re-created since"
        } else if then.timeline != identity.timeline {
            return Err(format!(
                "the cluster is on another timeline ({}, then {}): it has failed over or been recovered since",
                identity.timeline, then.timeline
            ));
        } else if age.is_none() || now.wal < proven.wal {
            "the cluster has been restored to an earlier time since"
        } else if then.filenode != identity.filenode {
            "the table has been rewritten since (by VACUUM FULL, CLUSTER, TRUNCATE or the like)"
        } else if proven.choice != choice {
            return Err(format!("the file was written for another choice: {}", proven.choice));
        } else if then.columns != identity.columns {
            "columns have been replaced since"
        } else if age.is_none_or(|age| age >= MAX_AGE) {
            "too many transactions have started since"
        } else {
            return Ok(Some(Since(proven.xid as u32)));
        };
        Err(doubt.to_owned())
    }

    /// Records a complete run whose proof began at `then`.
    fn remember(&mut self, then: &ProvenState, choice: String) {
        let xid = then.snapshot.oldest_xid();
        let proven = Proven { identity: then.identity.clone(), choice, xid, wal: then.wal };
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
        xmin >= 3 && TransactionId(xmin).precedes(TransactionId(self.0))
    }
}

/// The moment whose rows a scan covers: those visible then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff(pub Snapshot);

impl CutOff {
    /// Whether a row inserted by `xmin` is newer than this moment, as seen by a snapshot with this `xmax`. The `xmin`
    /// of a frozen row may have any age, but is mistaken for a newer one only if it is among the few IDs assigned
    /// since.
    pub fn is_before(&self, xmin: u32, xmax: u64) -> bool {
        let xid = TransactionId(xmin);
        !self.0.was_over(xid) && self.0.full_xid(xid) < xmax
    }
}

/// The path of the file.
#[derive(Debug)]
pub(crate) struct Remembered(PathBuf);

impl Remembered {
    /// Reads the file, and, unless this is a dry run, tries to write it, so that an error shows before hours of work.
    pub(crate) fn open(path: &Path, dry_run: bool) -> Result<Remembered> {
        let remembered = Remembered(path.to_owned());
        let memory = remembered.read()?;
        if !dry_run {
            remembered.write(&memory)?;
        }
        Ok(remembered)
    }

    /// What the file records, if it exists.
    fn read(&self) -> Result<Memory> {
        match memory::load(&self.0) {
            Ok(Loaded::State(memory)) => Ok(memory),
            Ok(Loaded::Foreign) => Err(self.unusable(
                " was not written by retoast\nHINT:  Name a file that does not exist yet.",
            )),
            Ok(Loaded::Absent) => Ok(Memory::default()),
            Err(error) => Err(self.unusable(&format!(": {error}"))),
        }
    }

    fn unusable(&self, why: &str) -> RetoastError {
        RetoastError::usage(format!("--since: \"{}\"{why}", self.0.display()))
    }

    fn write(&self, memory: &Memory) -> Result<()> {
        memory::save(&self.0, memory).map_err(|error| {
            let path = self.0.display();
            RetoastError::usage(format!("--since: could not write \"{path}\": {error}"))
        })
    }

    /// The rows of a table that an earlier run has proven to comply, or why the file's statement about the table is not
    /// trusted.
    pub(crate) async fn since(
        &self,
        client: &Client,
        ready: &PreparedTable,
    ) -> LiveResult<Result<Option<Since>, Doubt>> {
        let Some(choice) = ready.policy_choice() else { return Ok(Ok(None)) };
        // The file could be read before; that it cannot be read now is not a reason to end the run.
        let Ok(memory) = self.read() else { return Ok(Ok(None)) };
        Ok(memory.since(&proven_now(client, ready).await?, &choice))
    }

    /// Records what a complete run has proven. Other runs may have written to the file about other tables in the meantime.
    pub(crate) fn remember(&self, ready: &PreparedTable, proof: &ProvenState) -> Result<()> {
        let Some(choice) = ready.policy_choice() else { return Ok(()) };
        let mut memory = self.read()?;
        memory.remember(proof, choice);
        self.write(&memory)
    }
}

/// Reads everything in one snapshot. The timeline is that of the WAL being written: after a failover, the control file
/// has the new one only after the next checkpoint.
const SQL: &str = "SELECT s.system_identifier::pg_catalog.text, \
     pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8), \
     d.oid, d.datname::pg_catalog.text, \
     coalesce(pg_catalog.pg_relation_filenode($1), 0)::pg_catalog.oid, \
     ARRAY(SELECT a.attnum FROM pg_catalog.pg_attribute AS a \
           WHERE a.attrelid OPERATOR(pg_catalog.=) $1 \
             AND a.attname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.name[]) ORDER BY a.attnum), \
     ARRAY(SELECT a.atttypid FROM pg_catalog.pg_attribute AS a \
           WHERE a.attrelid OPERATOR(pg_catalog.=) $1 \
             AND a.attname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.name[]) ORDER BY a.attnum), \
     pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::pg_catalog.int8, \
     pg_catalog.pg_current_snapshot()::pg_catalog.text \
     FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d \
     WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// The current state of the table.
pub(crate) async fn proven_now(client: &Client, ready: &PreparedTable) -> LiveResult<ProvenState> {
    let oid = ready.relation.oid.0;
    let columns: Vec<&str> = ready.targets.iter().map(|target| target.name.as_str()).collect();
    let row = client
        .row(SQL, &[(&oid, Type::OID), (&columns, Type::TEXT_ARRAY)])
        .await?
        .ok_or_else(|| LiveError::Unexpected("no database".into()))?;
    let timeline: String = row.try_get(1)?;
    let database: String = row.try_get(3)?;
    let numbers: Vec<i16> = row.try_get(5)?;
    let types: Vec<u32> = row.try_get(6)?;
    let snapshot: String = row.try_get(8)?;
    let Some(snapshot) = Snapshot::parse(&snapshot) else {
        return Err(LiveError::Unexpected(format!("snapshot \"{snapshot}\"")));
    };
    Ok(ProvenState {
        name: format!("{}/{}", quote_identifier(&database), ready.relation.quoted()),
        identity: Identity {
            system: row.try_get(0)?,
            timeline: u32::from_str_radix(&timeline, 16).unwrap_or(0),
            database: row.try_get(2)?,
            oid,
            filenode: row.try_get(4)?,
            columns: numbers.into_iter().zip(types).collect(),
        },
        wal: u64::try_from(row.try_get::<_, i64>(7)?).unwrap_or(0),
        snapshot,
    })
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
        let snapshot = snapshot((5 << 32) + 10, (5 << 32) + 13);
        ProvenState { name: "d/public.t".into(), identity, wal: 1000, snapshot }
    }

    /// In which its oldest transaction is in progress.
    fn snapshot(xmin: u64, xmax: u64) -> Snapshot {
        Snapshot::parse(&format!("{xmin}:{xmax}:{xmin}")).unwrap()
    }

    #[test]
    fn a_complete_run_is_remembered_for_its_table_and_choice_alone() {
        let mut memory = Memory::default();
        memory.remember(&table(), "best lz4".into());
        let dir = tempfile::tempdir().unwrap();
        let file = Remembered(dir.path().join("since"));
        file.write(&memory).unwrap();
        let memory = file.read().unwrap();
        let since = |change: &dyn Fn(&mut ProvenState)| {
            let mut now = table();
            change(&mut now);
            memory.since(&now, "best lz4")
        };
        let doubts = |change: &dyn Fn(&mut ProvenState), why: &str| {
            let doubt = since(change).unwrap_err();
            assert!(doubt.contains(why), "{doubt}");
        };
        assert_eq!(since(&|_| ()), Ok(Some(Since(10))));
        assert_eq!(
            since(&|now| now.snapshot = snapshot((5 << 32) + 10, (5 << 32) + 913)),
            Ok(Some(Since(10)))
        );
        assert_eq!(since(&|now| now.name = "d/public.u".into()), Ok(None));
        doubts(&|now| now.identity.system = "2".into(), "another cluster");
        doubts(&|now| now.identity.timeline = 2, "another timeline (2, then 1)");
        doubts(&|now| now.identity.database = 6, "the database has been re-created");
        doubts(&|now| now.identity.oid = 9, "the table has been re-created");
        doubts(&|now| now.identity.filenode = 9, "the table has been rewritten");
        doubts(&|now| now.identity.columns = vec![(3, 25)], "columns have been replaced");
        doubts(&|now| now.wal = 999, "restored to an earlier time");
        doubts(&|now| now.snapshot = snapshot(9, (5 << 32) + 9), "restored to an earlier time");
        doubts(&|now| now.snapshot = snapshot(9, 6 << 32), "too many transactions");
        let other = memory.since(&table(), "best pglz").unwrap_err();
        assert_eq!(other, "the file was written for another choice: best lz4");
    }

    #[test]
    fn only_what_it_has_written_itself_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("since");
        for text in [
            "{}",
            r#"{"schema": "another/1", "tables": {}}"#,
            r#"{"schema": "toastctl.since/2", "tables": {"x": {}}}"#,
            r#"{"schema": "toastctl.since/1", "tables": {}}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Remembered::open(&path, true).unwrap_err().to_string();
            assert!(error.contains("was not written by retoast"), "{text}: {error}");
        }
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
        let cut = CutOff(table().snapshot);
        let next = (5u64 << 32) + 20;
        for (xmin, is_later) in
            [(9, false), (10, true), (11, false), (12, false), (13, true), (19, true), (20, false)]
        {
            assert_eq!(cut.is_before(xmin, next), is_later, "{xmin}");
        }
        // The row was frozen long ago.
        assert!(!cut.is_before(1 << 31, next) && !cut.is_before(u32::MAX, next));
        let turn = CutOff(Snapshot::parse("9:4294967294:").unwrap());
        let next = (1 << 32) + 5;
        assert!(turn.is_before(u32::MAX, next) && turn.is_before(3, next));
        assert!(!turn.is_before(u32::MAX - 2, next) && !turn.is_before(5, next));
    }
}
