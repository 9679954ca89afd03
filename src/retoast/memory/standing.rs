//! Asks the server what a table is known by and where the cluster stands.

use tokio_postgres::types::Type;

use super::since::{Identity, Standing};
use crate::model::sql::quote_identifier;
use crate::retoast::check::ready::Ready;
use crate::server::LiveError;
use crate::server::connect::Client;

/// All of it in one snapshot. The timeline is that of the WAL being written: after a failover the
/// control file has the new one only with the next checkpoint.
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

/// The table as it stands now.
pub async fn ask(client: &Client, ready: &Ready) -> Result<Standing, LiveError> {
    let oid = ready.relation.oid.0;
    let columns: Vec<&str> = ready.targets.iter().map(|target| target.name.as_str()).collect();
    let rows = client.query_typed(SQL, &[(&oid, Type::OID), (&columns, Type::TEXT_ARRAY)]).await?;
    let row = rows.first().ok_or_else(|| LiveError::Unexpected("no database".into()))?;
    let (timeline, database): (String, String) = (row.try_get(1)?, row.try_get(3)?);
    let (numbers, types): (Vec<i16>, Vec<u32>) = (row.try_get(5)?, row.try_get(6)?);
    let snapshot: String = row.try_get(8)?;
    let unexpected = || LiveError::Unexpected(format!("snapshot \"{snapshot}\""));
    let mut parts = snapshot.split(':');
    let mut number = || parts.next().and_then(|text| text.parse::<u64>().ok());
    let (xmin, xmax) = number().zip(number()).ok_or_else(unexpected)?;
    let list = parts.next().unwrap_or_default().split(',').filter(|xid| !xid.is_empty());
    let in_progress = list.map(str::parse).collect::<Result<Vec<u64>, _>>();
    Ok(Standing {
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
        in_progress: in_progress.map_err(|_| unexpected())?,
    })
}
