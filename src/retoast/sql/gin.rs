//! What is known of GIN indexes before anything is written to them: their pages, and how many keys rows have.

use crate::server::Pageinspect;
use toast_format::model::sql::{quote_identifier, quote_literal};

/// The GIN indexes of table `$1`, with the names of the operator class and the column of each part: the OID, the quoted
/// name, whether new entries are collected in a list first, and the parts. An expression has no column, and an operator
/// class that is not built in no name.
pub(crate) const GINS: &str = "SELECT i.indexrelid, pg_catalog.format('%I.%I', n.nspname, c.relname), \
     coalesce((SELECT x.option_value::pg_catalog.bool FROM pg_catalog.pg_options_to_table(c.reloptions) AS x \
       WHERE x.option_name = 'fastupdate'), true), \
     ARRAY(SELECT coalesce(CASE WHEN o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace \
         AND y.typnamespace = 'pg_catalog'::pg_catalog.regnamespace THEN o.opcname END, '')::pg_catalog.text \
       FROM ROWS FROM (pg_catalog.unnest(i.indclass::pg_catalog.oid[]), pg_catalog.unnest(i.indkey::pg_catalog.int2[])) \
         WITH ORDINALITY AS k (oid, attnum, number) \
       JOIN pg_catalog.pg_opclass AS o ON o.oid = k.oid \
       LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
       LEFT JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid ORDER BY k.number), \
     ARRAY(SELECT coalesce(a.attname, '')::pg_catalog.text \
       FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, number) \
       LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum ORDER BY k.number) \
     FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_am AS m ON m.oid = c.relam \
     WHERE i.indrelid = $1 AND i.indisvalid AND m.amname = 'gin'";

/// The different keys of the rows at addresses `$1`, grouped by how many of these rows have them: that number, the
/// number of keys, and their average size. `None` if it is not known how this operator class takes keys from values.
pub(crate) fn keys(table: &str, class: &str, column: &str) -> Option<String> {
    if column.is_empty() {
        return None;
    }
    let value = format!("t.{}", quote_identifier(column));
    let nodes = format!("pg_catalog.jsonb_path_query({value}, 'strict $.**') AS j");
    let members = "CASE WHEN pg_catalog.jsonb_typeof(j) IN ('object') THEN j END";
    let keys = match class {
        "jsonb_ops" => format!(
            "SELECT j #>> '{{}}' FROM {nodes} \
             WHERE NOT pg_catalog.jsonb_typeof(j) IN ('object', 'array') \
             UNION SELECT k FROM {nodes}, LATERAL pg_catalog.jsonb_object_keys({members}) AS k"
        ),
        // a hash of the value and of the path to it, of which the last key is taken here
        "jsonb_path_ops" => format!(
            "SELECT pg_catalog.md5(e.key || ' ' || e.value::pg_catalog.text) \
             FROM {nodes}, LATERAL pg_catalog.jsonb_each({members}) AS e \
             WHERE pg_catalog.jsonb_typeof(e.value) NOT IN ('object', 'array')"
        ),
        "array_ops" => format!("SELECT u::pg_catalog.text FROM pg_catalog.unnest({value}) AS u"),
        "tsvector_ops" => {
            format!("SELECT pg_catalog.unnest(pg_catalog.tsvector_to_array({value}))")
        }
        _ => return None,
    };
    let bytes =
        if class == "jsonb_path_ops" { "4" } else { "least(pg_catalog.octet_length(k), 125)" };
    Some(format!(
        "SELECT c::pg_catalog.float8, count(*)::pg_catalog.float8, avg({bytes})::pg_catalog.float8 \
         FROM (SELECT g.k, count(*) AS c FROM ONLY {table} AS t, \
           LATERAL (SELECT DISTINCT CASE WHEN pg_catalog.octet_length(k) > 125 THEN pg_catalog.md5(k) ELSE k END \
             FROM ({keys}) AS k (k)) AS g (k) \
           WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) AND g.k IS NOT NULL GROUP BY g.k) AS k \
         GROUP BY c ORDER BY c"
    ))
}

/// The number of pages with keys, of pages with lists of rows, and of different keys of the index with this quoted
/// name, as VACUUM has counted them.
pub(crate) fn pages(pageinspect: &Pageinspect, index: &str) -> String {
    format!(
        "SELECT m.n_entry_pages::pg_catalog.float8, m.n_data_pages::pg_catalog.float8, \
         m.n_entries::pg_catalog.float8 FROM {}({}) AS m",
        pageinspect.function("gin_metapage_info"),
        pageinspect.raw_page(&quote_literal(index), "main", "0")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_only_where_it_is_known_how_they_are_taken() {
        let sql = keys("public.t", "array_ops", "a\"b").unwrap_or_default();
        assert!(sql.contains("pg_catalog.unnest(t.\"a\"\"b\")"), "{sql}");
        // a column of the table may have any name
        assert!(sql.contains("SELECT g.k, count(*)") && sql.contains("GROUP BY g.k"), "{sql}");
        assert_eq!(keys("public.t", "gin_trgm_ops", "a"), None);
        assert_eq!(keys("public.t", "jsonb_ops", ""), None);
    }
}
