//! What the catalog says of a table whose values are damaged.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::code::Code;
use super::damaged_row::DamagedRow;
use super::finding::{Finding, PG_STATISTIC, PG_STATISTIC_EXT_DATA};
use super::live_check::LiveCheck;
use super::repair::ColumnRules;
use super::subject::Which;
use crate::server::LiveError;
use crate::server::catalog::{self, RelationKind};
use toast_format::disk::{ItemPointer, ToastPointer};
use toast_format::heap::problem::Place;
use toast_format::model::sql::quote_identifier;

impl LiveCheck {
    /// The rules for writing the table's columns.
    pub(super) async fn column_rules(&self) -> Result<ColumnRules, LiveError> {
        let mut rules = ColumnRules::default();
        // before PostgreSQL 15 it is the column that depends on the others, since then its expression
        let sql = "SELECT a.attname::pg_catalog.text, \
                          CASE WHEN a.attnotnull THEN 'is NOT NULL' \
                               WHEN t.typtype = 'd' AND (t.typnotnull \
                                   OR EXISTS (SELECT FROM pg_catalog.pg_constraint AS c WHERE c.contypid = t.oid) \
                                   OR EXISTS (SELECT FROM pg_catalog.pg_type AS b \
                                              WHERE b.oid = t.typbasetype AND b.typtype = 'd')) \
                                   THEN 'is of a domain' \
                               WHEN EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(a.attrelid) AS p \
                                            JOIN pg_catalog.pg_partitioned_table AS r ON r.partrelid = p.relid \
                                            LEFT JOIN pg_catalog.pg_attribute AS b \
                                              ON b.attrelid = p.relid AND b.attnum = ANY (r.partattrs) \
                                            WHERE coalesce(b.attname, a.attname) = a.attname) \
                                   THEN 'may be in the partition key' \
                               ELSE coalesce((SELECT pg_catalog.format('has the constraint %s', \
                                            pg_catalog.to_json(k.conname)) \
                                     FROM pg_catalog.pg_constraint AS k \
                                     WHERE k.conrelid = a.attrelid AND k.contype <> 'u' \
                                             AND k.conkey && ARRAY[a.attnum, 0::pg_catalog.int2] \
                                         OR k.conrelid = a.attrelid AND k.contype = 'c' AND NOT k.convalidated \
                                         OR k.confrelid = a.attrelid AND a.attnum = ANY (k.confkey) \
                                     ORDER BY 1 LIMIT 1), \
                                    (SELECT pg_catalog.format('is in the unique index %s, where NULL may stand once \
                                            (NULLS NOT DISTINCT)', pg_catalog.to_json(x.relname)) \
                                     FROM pg_catalog.pg_index AS i \
                                     JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
                                     WHERE i.indrelid = a.attrelid AND i.indisunique \
                                       AND pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct' = 'true' \
                                       AND (a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1]) \
                                         OR (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL) \
                                           AND EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
                                             WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                               AND d.objid = i.indexrelid AND d.refclassid = d.classid \
                                               AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum)) \
                                     ORDER BY 1 LIMIT 1)) END, \
                          a.attgenerated <> '', \
                          ARRAY(SELECT DISTINCT b.attname::pg_catalog.text \
                                FROM pg_catalog.pg_depend AS d \
                                JOIN pg_catalog.pg_attribute AS b \
                                  ON b.attrelid = d.refobjid AND b.attnum = d.refobjsubid \
                                LEFT JOIN pg_catalog.pg_attrdef AS e \
                                  ON e.adrelid = a.attrelid AND e.adnum = a.attnum \
                                WHERE a.attgenerated = 's' \
                                  AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                  AND d.refobjid = a.attrelid AND b.attnum <> a.attnum \
                                  AND (d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass \
                                       AND d.objid = e.oid \
                                       OR d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass \
                                       AND d.objid = a.attrelid AND d.objsubid = a.attnum) \
                                ORDER BY 1), \
                          (SELECT pg_catalog.pg_get_expr(e.adbin, e.adrelid) FROM pg_catalog.pg_attrdef AS e \
                           WHERE e.adrelid = a.attrelid AND e.adnum = a.attnum AND a.attgenerated <> '') \
                   FROM pg_catalog.pg_attribute AS a \
                   JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
                   WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";
        let rows =
            self.connection.client().query_typed(sql, &[(&self.relation.oid.0, Type::OID)]).await?;
        for row in &rows {
            let name: String = row.try_get(0)?;
            if let Some(why) = row.try_get(1)? {
                rules.refusing_null.insert(name.clone(), why);
            }
            if row.try_get(2)? {
                rules.generated.insert(name.clone());
                rules.made_of.insert(name.clone(), row.try_get(3)?);
                rules
                    .expressions
                    .extend(row.try_get::<_, Option<String>>(4)?.map(|sql| (name, sql)));
            }
        }
        Ok(rules)
    }

    /// Why no statement is printed for the table at all.
    pub(super) fn no_statement(&self) -> Option<String> {
        let table = self.quoted(Which::Heap);
        if self.about.server.in_recovery {
            return Some(format!(
                "No repair statement for {table}: the server is a standby, where none can be run, and the primary's copy may be \
                 sound. Check the primary; if it is sound, rebuild the standby from it."
            ));
        }
        if self.relation.kind != RelationKind::MaterializedView {
            return None;
        }
        Some(format!(
            "No repair statement for {table}: REFRESH MATERIALIZED VIEW {table} computes its rows again without reading the old ones."
        ))
    }

    /// Why an UPDATE or INSERT of one row of the table could do something else than it says.
    pub(super) async fn obstacle(&self) -> Result<Option<String>, LiveError> {
        const SQL: &str = "SELECT \
            (SELECT pg_catalog.min(r.rulename) FROM pg_catalog.pg_rewrite AS r \
             WHERE r.ev_class = c.oid AND r.ev_enabled <> 'D' AND (r.ev_type = '2' OR r.ev_enabled <> 'O')), \
            (SELECT pg_catalog.min(t.tgname) FROM pg_catalog.pg_trigger AS t \
             WHERE t.tgrelid = c.oid AND NOT (t.tgisinternal AND t.tgfoid < 16384) AND t.tgenabled <> 'D' \
                 AND (t.tgtype & 16 <> 0 OR t.tgenabled <> 'O')), \
            (SELECT pg_catalog.min(p.pubname) FROM pg_catalog.pg_publication_tables AS p \
             JOIN pg_catalog.pg_namespace AS n ON n.nspname = p.schemaname \
             JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = p.tablename \
             WHERE t.oid = c.oid \
                 OR t.oid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(c.oid) AS a)), \
            c.relreplident = 'f' AND pg_catalog.current_setting('wal_level') = 'logical' \
            FROM pg_catalog.pg_class AS c WHERE c.oid = $1";
        let client = self.connection.client();
        let Some(row) = client.row(SQL, &[(&self.relation.oid.0, Type::OID)]).await? else {
            return Ok(None);
        };
        let [rule, trigger, publication] =
            [row.try_get::<_, Option<String>>(0)?, row.try_get(1)?, row.try_get(2)?]
                .map(|name| name.as_deref().map(quote_identifier));
        let then = "check again, and restore that after the repair.";
        if let Some(name) = rule {
            return Ok(Some(format!(
                "the rule {name} may change what is done. ALTER TABLE … DISABLE RULE {name}, {then}"
            )));
        }
        if let Some(name) = trigger {
            return Ok(Some(format!(
                "the trigger {name} would fire: it may change other data, or suppress the update. ALTER TABLE … DISABLE \
                 TRIGGER {name}, {then}"
            )));
        }
        if let Some(name) = publication {
            return Ok(Some(format!(
                "the table is in the publication {name}: subscribers may still have what is damaged here, and would lose it \
                 too, or the server refuses an UPDATE because the table has no replica identity. UPDATE the row with what a \
                 subscriber has; or take the table out of the publication, and check again."
            )));
        }
        let is_full = row.try_get::<_, bool>(3)?;
        Ok(is_full.then(|| {
            format!(
                "with REPLICA IDENTITY FULL an UPDATE reads all of the old row, which fails. ALTER TABLE … REPLICA IDENTITY \
                 DEFAULT, {then}"
            )
        }))
    }

    /// What the catalog says differently of the table in two places.
    pub(super) async fn contradiction(&self) -> Result<Option<Finding>, LiveError> {
        if self.about.server.has_toasters {
            return Ok(None);
        }
        let client = self.connection.client();
        let oid = self.relation.oid;
        let found = self
            .connection
            .reading(async || catalog::contradictions(client, &[oid]).await)
            .await?
            .remove(&oid);
        let place = Place::new(self.name(Which::Heap));
        Ok(found.map(|(expected, found)| Finding::new(Code::Catalog, place, expected, found)))
    }

    /// The name of the TOAST relation's index, if it has one.
    pub(super) async fn toast_index(&self) -> Result<Option<String>, LiveError> {
        let Some(toast) = &self.relation.toast else { return Ok(None) };
        let sql = "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_index AS i \
                   JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
                   WHERE i.indrelid = $1 ORDER BY i.indisvalid DESC, i.indisprimary DESC LIMIT 1";
        Ok(self.connection.client().value(sql, &[(&toast.oid.0, Type::OID)]).await?)
    }

    /// Those of these rows that are statistics, with the tables that they describe, if the table is a catalog of statistics
    /// and can be read.
    pub(super) async fn statistics(
        &self,
        rows: &[DamagedRow],
    ) -> Result<HashMap<ItemPointer, Option<String>>, LiveError> {
        // of an index it is the table
        let described = match self.name(Which::Heap).as_str() {
            PG_STATISTIC => {
                "SELECT s.ctid, coalesce(i.indrelid, s.starelid) FROM pg_catalog.pg_statistic AS s \
                 LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = s.starelid"
            }
            PG_STATISTIC_EXT_DATA => {
                "SELECT s.ctid, e.stxrelid FROM pg_catalog.pg_statistic_ext_data AS s \
                 LEFT JOIN pg_catalog.pg_statistic_ext AS e ON e.oid = s.stxoid"
            }
            _ => return Ok(HashMap::new()),
        };
        let sql = format!(
            "SELECT s.ctid::pg_catalog.text, (SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) \
                 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                 WHERE c.oid = s.relation) \
             FROM ({described}) AS s (ctid, relation) WHERE s.ctid::pg_catalog.text = ANY ($1)"
        );
        let own: Vec<String> = rows.iter().map(|row| row.ctid.to_string()).collect();
        let client = self.connection.client();
        let read = self
            .attempt(async || Ok(client.query_typed(&sql, &[(&own, Type::TEXT_ARRAY)]).await?))
            .await?;
        let mut tables: HashMap<String, Option<String>> = HashMap::new();
        for row in read.iter().flatten() {
            tables.insert(row.try_get(0)?, row.try_get(1)?);
        }
        let found = rows.iter().map(|row| row.ctid);
        Ok(found.filter_map(|ctid| Some((ctid, tables.remove(&ctid.to_string())?))).collect())
    }

    /// Whether a pointer leads to a TOAST relation, as SQL takes for granted.
    pub(super) async fn is_toast_relation(
        &self,
        pointer: &ToastPointer,
    ) -> Result<bool, LiveError> {
        let sql = "SELECT FROM pg_catalog.pg_class WHERE oid = $1 AND relkind = 't'";
        let of = [(&pointer.toast_relation.0 as _, Type::OID)];
        Ok(!self.connection.client().query_typed(sql, &of).await?.is_empty())
    }
}
