//! What the server says about tables before anything is done to them: read for many tables with as many statements as
//! for one.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::owner::{UpdateTriggers, can_be_replica};
use super::shapes::{self, Generated, Types};
use crate::retoast::error::Result;
use crate::server::about::Compression;
use crate::server::catalog::{self};
use crate::server::citus::{self, Shard};
use crate::server::owner_facts::{self, Rights};
use crate::server::{Client, LiveError, LiveResult, Relation, Server, locks, numbers, toasters};
use toast_format::disk::Oid;
use toast_format::model::Toasters;

/// What is known before tables are prepared.
pub(crate) struct Facts {
    /// Whether ordinary triggers can be disabled.
    pub(super) replica_role: bool,
    pub(super) compression: Compression,
    pub(super) toasters: Option<Toasters>,
    pub(super) types: Types,
    tables: HashMap<Oid, TableFacts>,
}

/// What is known of a table.
pub(super) struct TableFacts {
    pub(super) relation: Relation,
    pub(super) shard: Option<Shard>,
    pub(super) generated: Vec<Generated>,
    /// Whether an UPDATE of any column recomputes all stored generated columns.
    pub(super) computes_all: bool,
    pub(super) rights: Option<Rights>,
    pub(super) triggers: UpdateTriggers,
    pub(super) privileges: Option<Privileges>,
    /// What the catalog contradicts itself about: what is expected, and what was found.
    pub(super) contradiction: Option<(String, String)>,
}

impl Facts {
    /// Reads what is the same for all tables.
    ///
    /// # Errors
    /// Any error of the server, as in all these functions.
    pub(crate) async fn of_session(client: &Client, server: &Server) -> Result<Facts> {
        Ok(Facts {
            replica_role: can_be_replica(client, server).await?,
            compression: Compression::ask(client).await?,
            toasters: toasters::ask(client, server).await?,
            types: Types::default(),
            tables: HashMap::new(),
        })
    }

    /// Reads what can be read of these tables at once, and forgets the tables before them. Those that other sessions
    /// have locked are left out, and so are all if a statement fails: [`Facts::add`] reads each by itself, so that a
    /// table that cannot be read does not affect the others.
    pub(crate) async fn begin_with(&mut self, client: &Client, oids: &[Oid]) -> LiveResult<()> {
        self.tables.clear();
        let blocked = locks::blocked(client, oids).await?;
        let free: Vec<Oid> = oids.iter().copied().filter(|oid| !blocked.contains(oid)).collect();
        match self.learn(client, &free).await {
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => Ok(()),
            other => other,
        }
    }

    /// Reads what is not known yet of one table.
    pub(crate) async fn add(&mut self, client: &Client, oid: Oid) -> LiveResult<()> {
        if self.tables.contains_key(&oid) { Ok(()) } else { self.learn(client, &[oid]).await }
    }

    /// A table that was read; `None` if it was dropped.
    pub(crate) fn relation(&self, oid: Oid) -> Option<&Relation> {
        self.tables.get(&oid).map(|table| &table.relation)
    }

    pub(super) fn take(&mut self, oid: Oid) -> Option<TableFacts> {
        self.tables.remove(&oid)
    }

    async fn learn(&mut self, client: &Client, oids: &[Oid]) -> LiveResult<()> {
        let relations = catalog::describe_all(client, oids).await?;
        let mut shards = citus::shards_among(client, oids).await?;
        let mut generated = shapes::generated(client, oids).await?;
        let computes_all = shapes::computes_all(client, oids).await?;
        let mut rights = owner_facts::rights(client, oids).await?;
        let mut triggers = UpdateTriggers::ask(client, oids).await?;
        let mut privileges = Privileges::ask(client, oids).await?;
        let mut contradictions = match self.toasters {
            Some(_) => HashMap::new(),
            None => catalog::contradictions(client, oids).await?,
        };
        for relation in relations {
            let oid = relation.oid;
            let facts = TableFacts {
                relation,
                shard: shards.remove(&oid),
                generated: generated.remove(&oid).unwrap_or_default(),
                computes_all: computes_all.contains(&oid),
                rights: rights.remove(&oid),
                triggers: triggers.remove(&oid).unwrap_or_default(),
                privileges: privileges.remove(&oid),
                contradiction: contradictions.remove(&oid),
            };
            self.tables.insert(oid, facts);
        }
        Ok(())
    }
}

/// What this user may do with a table, and what the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Privileges {
    pub(super) user: String,
    pub(super) owner: String,
    /// Whether the user has the privileges of the owner.
    pub(super) owns: bool,
    pub(super) selects: bool,
    pub(super) updates: bool,
    pub(super) vacuums: bool,
    /// Whether it has no replica identity although updates of some tables are published: once its own are, the server
    /// refuses them.
    pub(super) lacks_identity: bool,
}

impl Privileges {
    /// Those for each table; tables that were dropped are missing.
    async fn ask(client: &Client, oids: &[Oid]) -> LiveResult<HashMap<Oid, Privileges>> {
        // Before PostgreSQL 17, the privilege to vacuum could not be granted.
        let sql = "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE'), \
                          pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, \
                          coalesce(pg_catalog.has_table_privilege(c.oid, 'SELECT'), false), \
                          coalesce(pg_catalog.has_table_privilege(c.oid, 'UPDATE'), false), \
                          CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 \
                               >= 170000 \
                          THEN coalesce(pg_catalog.has_table_privilege(c.oid, 'MAINTAIN'), false) \
                          ELSE false END, \
                          current_user::pg_catalog.text, c.oid, \
                          EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubupdate) \
                            AND CASE c.relreplident WHEN 'f' THEN false \
                              WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                                WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid) \
                              WHEN 'i' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                                WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisvalid) \
                              ELSE true END \
                   FROM pg_catalog.pg_class AS c WHERE c.oid = ANY ($1)";
        let rows = client.query_typed(sql, &[(&numbers(oids), Type::OID_ARRAY)]).await?;
        let mut found = HashMap::new();
        for row in rows {
            let owns = row.try_get(0)?;
            let privileges = Privileges {
                user: row.try_get(5)?,
                owner: row.try_get(1)?,
                owns,
                selects: row.try_get(2)?,
                updates: row.try_get(3)?,
                vacuums: owns || row.try_get::<_, bool>(4)?,
                lacks_identity: row.try_get(7)?,
            };
            found.insert(Oid(row.try_get(6)?), privileges);
        }
        Ok(found)
    }
}
