//! What is around a column whose keys move: what depends on it, who may use it, what fires and what is replicated.

use tokio_postgres::types::Type;

use super::parent::Migrated;
use crate::model::sql::quote_literal;
use crate::server::LiveError;
use crate::server::connect::Client;

/// What the names of triggers and functions of a migration begin with.
pub(super) const OWN: &str = "toastctl_extract.";

/// What the catalog says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Around {
    /// Descriptions of what depends on the column: indexes, constraints, views, policies.
    pub dependents: Vec<String>,
    /// Names of row triggers that fire when rows are updated.
    pub triggers: Vec<String>,
    /// Publications that the table is in.
    pub publications: Vec<String>,
    /// Whether a subscription writes to the table, for which ordinary triggers do not fire.
    pub subscribed: bool,
    /// Privileges on the column alone.
    pub grants: Vec<Grant>,
}

/// A privilege on the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub privilege: String,
    /// A role, quoted, or PUBLIC; with the option to grant it, where it has that.
    pub to: String,
}

/// A query for descriptions of what depends on column `number` of `table`, both SQL expressions, the migration's own
/// trigger and the column's default left out.
pub(super) fn dependents(table: &str, number: &str) -> String {
    format!(
        "SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS object
  FROM pg_catalog.pg_depend AS d
  LEFT JOIN pg_catalog.pg_trigger AS g ON d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND g.oid = d.objid
  LEFT JOIN pg_catalog.pg_attrdef AS v ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND v.oid = d.objid
  WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
    AND d.refobjid = {table} AND d.refobjsubid = {number}
    AND NOT pg_catalog.starts_with(coalesce(g.tgname, ''), {own})
    AND (v.oid IS NULL OR v.adrelid <> d.refobjid OR v.adnum <> d.refobjsubid)",
        own = quote_literal(OWN)
    )
}

/// Asks the server about the column of this number.
pub(super) async fn ask(
    client: &Client,
    table: &Migrated,
    number: i16,
) -> Result<Around, LiveError> {
    let dependents = dependents("$1", "$2::pg_catalog.int4");
    // row triggers (1) on UPDATE (16)
    let sql = format!(
        "SELECT ARRAY({dependents} ORDER BY 1), \
                ARRAY(SELECT g.tgname::pg_catalog.text FROM pg_catalog.pg_trigger AS g \
                      WHERE g.tgrelid = $1 AND NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 17 = 17 \
                      AND NOT pg_catalog.starts_with(g.tgname, {own}) ORDER BY 1), \
                ARRAY(SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication_tables AS p \
                      WHERE p.schemaname = $3 AND p.tablename = $4 ORDER BY 1), \
                EXISTS (SELECT FROM pg_catalog.pg_subscription_rel AS s WHERE s.srrelid = $1), \
                ARRAY(SELECT x.privilege_type FROM pg_catalog.aclexplode(a.attacl) AS x \
                      ORDER BY x.grantee, x.privilege_type), \
                ARRAY(SELECT pg_catalog.concat(CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE \
                          pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(x.grantee)) END, \
                          CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' END) \
                      FROM pg_catalog.aclexplode(a.attacl) AS x ORDER BY x.grantee, x.privilege_type) \
         FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = $1 AND a.attnum = $2",
        own = quote_literal(OWN)
    );
    let rows = client
        .query_typed(
            &sql,
            &[
                (&table.oid.0, Type::OID),
                (&number, Type::INT2),
                (&table.schema, Type::TEXT),
                (&table.name, Type::TEXT),
            ],
        )
        .await?;
    let row =
        rows.first().ok_or_else(|| LiveError::Unexpected("no row about the column".into()))?;
    let (privileges, roles): (Vec<String>, Vec<String>) = (row.try_get(4)?, row.try_get(5)?);
    let grants = privileges.into_iter().zip(roles);
    Ok(Around {
        dependents: row.try_get(0)?,
        triggers: row.try_get(1)?,
        publications: row.try_get(2)?,
        subscribed: row.try_get(3)?,
        grants: grants.map(|(privilege, to)| Grant { privilege, to }).collect(),
    })
}
