//! The server, and the privileges of this user there.

use crate::testing;
use serde::Serialize;

use tokio_postgres::types::Type;

use super::calibrate::identity;
use super::connect::Client;
use super::{LiveError, LiveResult, single_row};
use toast_format::codec::Method;
use toast_format::disk::{Oid, PageSize};
use toast_format::model::sql::quote_identifier;

/// The reason shown where VACUUM never truncates files.
pub(crate) const NEVER_TRUNCATES: &str =
    "old_snapshot_threshold is set, and VACUUM then never makes a file shorter";

/// The oldest supported major version, as `server_version_num`.
const OLDEST: i32 = 140_000;

/// The newest major version that the program is tested with.
const NEWEST_TESTED: u32 = 19;

/// The warning about a server newer than the newest tested version, which may store values in unknown ways; `None` for
/// other servers.
pub(crate) fn untested(version_num: u32) -> Option<String> {
    let newest = NEWEST_TESTED;
    // Tests set this variable, because they have no newer server.
    let newest = testing::setting("NEWEST").unwrap_or(newest);
    let major = version_num / 10_000;
    (major > newest).then(|| {
        format!(
            "PostgreSQL {major} is newer than {newest}, the newest version that this toastctl is tested with"
        )
    })
}

/// A server as seen through one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `server_version_num`, e.g. 150007.
    pub version_num: i32,
    /// `server_version`, e.g. `15.7 (Debian 15.7-0+deb12u1)`.
    pub version: String,
    pub page_size: PageSize,
    /// The database connected to.
    pub database: String,
    /// Whether the current user is a superuser.
    pub superuser: bool,
    /// Whether the server is a standby.
    pub in_recovery: bool,
    /// pageinspect, if the database has it.
    pub pageinspect: Option<Pageinspect>,
    /// Whether there is `pg_toaster`, so that TOAST is pluggable.
    pub has_toasters: bool,
    /// Whether VACUUM truncates files. It never does with `old_snapshot_threshold`, which existed before PostgreSQL 17.
    pub vacuum_truncates: bool,
    /// Whether this user may name TOAST relations in queries.
    pub names_toast: bool,
}

/// The first release whose REINDEX CONCURRENTLY does not miss rows that change during the rebuild (release notes of
/// 14.4).
const REBUILDS_INDEXES: i32 = 140_004;

impl Server {
    /// Whether a concurrent rebuild of an index is safe, and misses no rows.
    pub(crate) fn rebuilds_indexes(&self) -> bool {
        self.version_num >= REBUILDS_INDEXES
    }

    /// Whether compaction can make files smaller on this server.
    pub(crate) fn compacts(&self) -> bool {
        self.vacuum_truncates && !self.has_toasters
    }

    /// Whether this user can compact TOAST relations of tables that they own.
    pub(crate) fn compacts_toast(&self) -> bool {
        let has_pages = self.superuser && self.pageinspect.is_some();
        self.compacts() && (has_pages || self.has_toast_chunk_id() && self.names_toast)
    }
}

/// Identifies this server, whatever name it is reached by. Clones of a cluster have its system identifier,
/// but were not started at the same moment.
pub(crate) async fn instance(client: &Client) -> LiveResult<String> {
    let started: Option<String> =
        client.value("SELECT pg_catalog.pg_postmaster_start_time()::pg_catalog.text", &[]).await?;
    Ok(format!("{} {}", identity(client).await?, started.unwrap_or_default()))
}

/// The database of the session.
///
/// # Errors
/// Any error of the server.
pub(crate) async fn database(client: &Client) -> LiveResult<String> {
    let sql = "SELECT pg_catalog.current_database()::pg_catalog.text";
    Ok(client.value(sql, &[]).await?.unwrap_or_default())
}

/// The databases of the server that allow connections and are not templates, by name.
pub(crate) async fn databases(client: &Client) -> LiveResult<Vec<String>> {
    // -2: its creation or removal was interrupted (17 and later)
    let sql = "SELECT datname::pg_catalog.text FROM pg_catalog.pg_database \
               WHERE datallowconn AND NOT datistemplate AND datconnlimit <> -2 ORDER BY datname";
    let rows = client.query_typed(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Which source to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Access {
    /// Pages if possible, otherwise SQL functions
    #[default]
    Auto,
    /// Pages, with the extension pageinspect
    Pageinspect,
    /// SQL functions such as pg_column_size, which need only SELECT on the table
    Functions,
}

impl Access {
    /// The reason for using SQL functions; `None` if pages are read. `refusal` is the reason why pages cannot be read.
    ///
    /// # Errors
    /// Pages are required and cannot be read; the error is the reason.
    pub(crate) fn by_functions(self, refusal: Option<String>) -> Result<Option<String>, String> {
        match (self, refusal) {
            (Access::Functions, _) => Ok(Some("asked for".to_owned())),
            (Access::Pageinspect, Some(why)) => Err(why),
            (Access::Auto | Access::Pageinspect, refusal) => Ok(refusal),
        }
    }
}

/// The server that was asked.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ServerReport {
    /// server_version.
    pub version: String,
    /// server_version_num.
    pub version_num: i32,
    pub database: String,
    /// host:port of the connection, or the directory of the socket and the port.
    pub address: String,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// Whether it has pluggable TOAST.
    pub has_toasters: bool,
}

impl ServerReport {
    /// `address`: that of the connection.
    pub(crate) fn new(server: &Server, address: String) -> ServerReport {
        ServerReport {
            address,
            version: server.version.clone(),
            version_num: server.version_num,
            database: server.database.clone(),
            in_recovery: server.in_recovery,
            has_toasters: server.has_toasters,
        }
    }
}

/// The installed extension pageinspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pageinspect {
    pub schema: String,
    /// Its version, e.g. `1.11`.
    pub version: String,
}

impl Pageinspect {
    /// One of its functions, with the schema.
    pub(crate) fn function(&self, name: &str) -> String {
        format!("{}.{name}", quote_identifier(&self.schema))
    }

    /// A call of `get_raw_page` with these SQL expressions: the relation's quoted name as text, and the block's number. The
    /// arguments have exactly the types that the extension declares: others who may create functions in its schema could
    /// have made one that fits better.
    pub(crate) fn raw_page(&self, relation: &str, fork: &str, block: &str) -> String {
        format!(
            "{}({relation}::pg_catalog.text, '{fork}'::pg_catalog.text, ({block})::pg_catalog.{})",
            self.function("get_raw_page"),
            self.block_type()
        )
    }

    /// The type of block numbers: since version 1.9 its functions take them as bigint.
    pub(crate) fn block_type(&self) -> &'static str {
        if self.takes_bigint() { "int8" } else { "int4" }
    }

    /// Whether its functions take block numbers as bigint (since version 1.9) instead of integer.
    pub fn takes_bigint(&self) -> bool {
        let mut parts = self.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (1, 9)
    }

    /// The number of pages that a search in the index of a TOAST relation visits, from the root to a leaf; a search
    /// starts at the fast root (`_bt_getroot`).
    ///
    /// # Errors
    /// Any error of the server.
    pub(crate) async fn index_levels(&self, client: &Client, toast: Oid) -> LiveResult<u32> {
        let sql = format!(
            "SELECT m.fastlevel::pg_catalog.int8, m.fastroot::pg_catalog.int8 \
             FROM pg_catalog.pg_index AS i, \
                  {}(i.indexrelid::pg_catalog.regclass::pg_catalog.text) AS m \
             WHERE i.indrelid = $1 AND i.indisvalid LIMIT 1",
            self.function("bt_metap")
        );
        let row = client.row(&sql, &[(&toast.0, Type::OID)]).await?;
        let row =
            row.ok_or_else(|| LiveError::Unexpected("no index of a TOAST relation".into()))?;
        let level: i64 = row.try_get(0)?;
        let root: i64 = row.try_get(1)?;
        // An empty index has no root.
        Ok(if root == 0 { 0 } else { u32::try_from(level).unwrap_or_default().saturating_add(1) })
    }
}

impl Server {
    /// Why pages cannot be read on this server; `None` if they can.
    pub(crate) fn why_no_pages(&self) -> Option<&'static str> {
        if !self.superuser {
            Some("pageinspect needs a superuser")
        } else if self.pageinspect.is_none() {
            Some("the extension pageinspect is not installed in this database")
        } else {
            None
        }
    }
}

/// The compression methods of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Whether it was built with lz4.
    pub lz4: bool,
    /// `default_toast_compression` of the session.
    pub default: Method,
}

impl Compression {
    /// Reads the compression methods of the server.
    pub async fn ask(client: &Client) -> LiveResult<Compression> {
        let sql = "SELECT coalesce('lz4' = ANY (enumvals), false), setting = 'lz4' \
                   FROM pg_catalog.pg_settings WHERE name = 'default_toast_compression'";
        let Some(row) = client.row(sql, &[]).await? else {
            return Ok(Compression { lz4: false, default: Method::Pglz });
        };
        let default = if row.try_get(1)? { Method::Lz4 } else { Method::Pglz };
        Ok(Compression { lz4: row.try_get(0)?, default })
    }
}

impl Server {
    /// Reads the facts about the server.
    pub async fn ask(client: &Client) -> LiveResult<Server> {
        let sql = "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
                          pg_catalog.current_setting('server_version'), \
                          pg_catalog.current_setting('block_size')::pg_catalog.int4, \
                          pg_catalog.current_database()::pg_catalog.text, \
                          pg_catalog.current_setting('is_superuser') = 'on', \
                          pg_catalog.pg_is_in_recovery(), \
                          e.extversion, n.nspname::pg_catalog.text, \
                          pg_catalog.to_regclass('pg_catalog.pg_toaster') IS NOT NULL, \
                          NOT EXISTS (SELECT FROM pg_catalog.pg_settings \
                                      WHERE name = 'old_snapshot_threshold' AND setting::pg_catalog.int4 >= 0), \
                          pg_catalog.has_schema_privilege('pg_toast', 'USAGE') \
                   FROM (SELECT 1) AS one \
                   LEFT JOIN pg_catalog.pg_extension AS e ON e.extname = 'pageinspect' \
                   LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace";
        let row = single_row(client, sql, &[]).await?;
        let version: String = row.try_get(1)?;
        let version_num: i32 = row.try_get(0)?;
        if version_num < OLDEST {
            return Err(LiveError::Refused(format!(
                "server version {version} is not supported: PostgreSQL 14 or later is needed"
            )));
        }
        let block_size: i32 = row.try_get(2)?;
        let page_size = usize::try_from(block_size)
            .ok()
            .and_then(PageSize::new)
            .ok_or_else(|| LiveError::Unexpected(format!("block_size is {block_size}")))?;
        let pageinspect = match (row.try_get(6)?, row.try_get(7)?) {
            (Some(version), Some(schema)) => Some(Pageinspect { schema, version }),
            _ => None,
        };
        Ok(Server {
            version_num,
            version,
            page_size,
            database: row.try_get(3)?,
            superuser: row.try_get(4)?,
            in_recovery: row.try_get(5)?,
            pageinspect,
            has_toasters: row.try_get(8)?,
            vacuum_truncates: row.try_get(9)?,
            names_toast: row.try_get(10)?,
        })
    }

    /// The warning if the server is newer than the newest tested version.
    pub(crate) fn untested(&self) -> Option<String> {
        untested(self.version_num.unsigned_abs())
    }

    pub fn has_toast_chunk_id(&self) -> bool {
        self.version_num >= 170_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_major_version_is_untested() {
        assert_eq!(untested(140_000), None);
        assert_eq!(untested(190_012), None);
        assert_eq!(
            untested(200_000).unwrap(),
            "PostgreSQL 20 is newer than 19, the newest version that this toastctl is tested with"
        );
    }

    #[test]
    fn versions_of_pageinspect_compare_as_numbers() {
        let bigint = |version: &str| {
            Pageinspect { schema: "public".into(), version: version.into() }.takes_bigint()
        };
        assert!(!bigint("1.8"));
        assert!(bigint("1.9"));
        assert!(bigint("1.12"));
        assert!(bigint("2.0"));
        assert!(!bigint(""));
    }
}
