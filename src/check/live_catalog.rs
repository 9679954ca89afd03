//! What the catalog says of a table whose values are damaged.

use tokio_postgres::types::Type;

use super::code::Code;
use super::finding::Finding;
use super::live_check::LiveCheck;
use super::repair::ColumnRules;
use super::subject::Which;
use crate::server::LiveError;
use toast_format::disk::pointer::ToastPointer;
use toast_format::heap::problem::Place;

impl LiveCheck {
    /// The rules for writing the table's columns.
    pub(super) async fn column_rules(&self) -> Result<ColumnRules, LiveError> {
        let mut rules = ColumnRules::default();
        let rows = self
            .connection
            .client()
            .query_typed(
                // before PostgreSQL 15 it is the column that depends on the others, since then its expression
                "SELECT a.attname::pg_catalog.text, a.attnotnull, a.attgenerated <> '', \
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
                              ORDER BY 1) \
                 FROM pg_catalog.pg_attribute AS a \
                 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped",
                &[(&self.relation.oid.0, Type::OID)],
            )
            .await?;
        for row in &rows {
            let name: String = row.try_get(0)?;
            if row.try_get(1)? {
                rules.not_null.insert(name.clone());
            }
            if row.try_get(2)? {
                rules.generated.insert(name.clone());
                rules.made_of.insert(name, row.try_get(3)?);
            }
        }
        Ok(rules)
    }

    /// Whether pg_class names another TOAST relation than pg_depend says is the table's, or none. SQL reads values by their
    /// own pointers all the same.
    pub(super) async fn wrong_toast(&mut self) -> Result<Option<Finding>, LiveError> {
        if self.about.server.has_toasters {
            return Ok(None);
        }
        let depends = async || {
            let rows = self
                .connection
                .client()
                .query_typed(
                    "SELECT d.objid, reltoastrelid FROM pg_catalog.pg_depend AS d \
                     JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid \
                     WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refclassid = d.classid \
                       AND d.refobjid = $1 AND d.refobjsubid = 0 AND d.deptype = 'i' \
                       AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS t \
                         WHERE t.oid = d.objid AND t.relkind <> 't')",
                    &[(&self.relation.oid.0, Type::OID)],
                )
                .await?;
            let mut pairs: Vec<(u32, u32)> = Vec::new();
            for row in &rows {
                pairs.push((row.try_get(0)?, row.try_get(1)?));
            }
            Ok::<_, LiveError>(pairs)
        };
        let found = self.connection.reading(depends).await?;
        let [(depends, named)] = found.as_slice() else { return Ok(None) };
        let place = Place::new(self.name(Which::Heap));
        let expected = format!("reltoastrelid {depends}, which depends on the table");
        let finding = Finding::new(Code::ToastCatalog, place, expected, named.to_string());
        Ok((depends != named).then_some(finding))
    }

    /// The name of the TOAST relation's index, if it has one.
    pub(super) async fn toast_index(&self) -> Result<Option<String>, LiveError> {
        let Some(toast) = &self.relation.toast else { return Ok(None) };
        let rows = self
            .connection
            .client()
            .query_typed(
                "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_index AS i \
                 JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
                 WHERE i.indrelid = $1 ORDER BY i.indisvalid DESC, i.indisprimary DESC LIMIT 1",
                &[(&toast.oid.0, Type::OID)],
            )
            .await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
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
