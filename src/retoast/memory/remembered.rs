//! The file of `--since`: read before the first table, and written whenever a table is complete.

use std::io;
use std::path::{Path, PathBuf};

use tokio_postgres::types::Type;

use crate::retoast::error::RetoastError;
use crate::retoast::memory;
use crate::retoast::memory::since::{Doubt, Identity, Memory, ProvenState, Since};
use crate::retoast::preflight::ready::PreparedTable;
use crate::retoast::result::{Outcome, TableReport};
use crate::server::LiveError;
use crate::server::connect::Client;
use toast_format::model::sql::quote_identifier;

/// The path of the file.
#[derive(Debug)]
pub struct Remembered(PathBuf);

impl Remembered {
    /// Reads the file, and, unless this is a dry run, tries to write it, so that an error shows before hours of work.
    pub fn open(path: &Path, dry_run: bool) -> Result<Remembered, RetoastError> {
        let remembered = Remembered(path.to_owned());
        let (text, memory) = remembered.read()?;
        if !dry_run {
            remembered.write(text.as_ref().unwrap_or(&memory.print()))?;
        }
        Ok(remembered)
    }

    /// The file's text, if it exists, and its content.
    fn read(&self) -> Result<(Option<String>, Memory), RetoastError> {
        match memory::read(&self.0) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).ok();
                let memory = text.as_deref().and_then(Memory::parse);
                let memory = memory.ok_or_else(|| {
                    self.unusable(
                        " was not written by retoast\nHINT:  Name a file that does not exist yet.",
                    )
                })?;
                Ok((text, memory))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, Memory::default())),
            Err(error) => Err(self.unusable(&format!(": {error}"))),
        }
    }

    fn unusable(&self, why: &str) -> RetoastError {
        RetoastError::Usage(format!("--since: \"{}\"{why}", self.0.display()))
    }

    fn write(&self, text: &str) -> Result<(), RetoastError> {
        memory::replace(&self.0, text.as_bytes()).map_err(|error| {
            let path = self.0.display();
            RetoastError::Usage(format!("--since: could not write \"{path}\": {error}"))
        })
    }

    /// The rows of a table that an earlier run has proven to comply, or why the file's statement about the table is not
    /// trusted.
    pub async fn since(
        &self,
        client: &Client,
        ready: &PreparedTable,
    ) -> Result<Result<Option<Since>, Doubt>, LiveError> {
        let Some(choice) = ready.policy_choice() else { return Ok(Ok(None)) };
        // The file could be read before; that it cannot be read now is not a reason to end the run.
        let Ok((_, memory)) = self.read() else { return Ok(Ok(None)) };
        Ok(memory.since(&proven_now(client, ready).await?, &choice))
    }

    /// Records what a run has proven. Other runs may have written to the file about other tables in the meantime.
    pub fn remember(
        &self,
        ready: &PreparedTable,
        report: &TableReport,
    ) -> Result<(), RetoastError> {
        match (report.outcome, &report.converted.proof, ready.policy_choice()) {
            (Outcome::Complete, Some(proof), Some(choice)) => {
                let (_, mut memory) = self.read()?;
                memory.remember(proof, choice);
                self.write(&memory.print())
            }
            _ => Ok(()),
        }
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

/// The parts of a `pg_snapshot`: `xmin`, `xmax`, and the transactions in progress.
fn parse_snapshot(text: &str) -> Option<(u64, u64, Vec<u64>)> {
    let mut parts = text.split(':');
    let xmin = parts.next()?.parse().ok()?;
    let xmax = parts.next()?.parse().ok()?;
    let list = parts.next().unwrap_or_default().split(',').filter(|xid| !xid.is_empty());
    let in_progress = list.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((xmin, xmax, in_progress))
}

/// The current state of the table.
pub(crate) async fn proven_now(
    client: &Client,
    ready: &PreparedTable,
) -> Result<ProvenState, LiveError> {
    let oid = ready.relation.oid.0;
    let columns: Vec<&str> = ready.targets.iter().map(|target| target.name.as_str()).collect();
    let rows = client.query_typed(SQL, &[(&oid, Type::OID), (&columns, Type::TEXT_ARRAY)]).await?;
    let row = rows.first().ok_or_else(|| LiveError::Unexpected("no database".into()))?;
    let timeline: String = row.try_get(1)?;
    let database: String = row.try_get(3)?;
    let numbers: Vec<i16> = row.try_get(5)?;
    let types: Vec<u32> = row.try_get(6)?;
    let snapshot: String = row.try_get(8)?;
    let Some((xmin, xmax, in_progress)) = parse_snapshot(&snapshot) else {
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
        xmin,
        xmax,
        in_progress,
    })
}
