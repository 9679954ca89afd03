//! What the user's own session finds by a bare name.

use crate::model::sql::quote_literal;

/// Whether the user's own session finds a relation by its name alone, which `pg_table_is_visible` tells
/// of the session's present search path only.
pub(super) fn visible(schemas: &[String]) -> String {
    let list: Vec<String> = schemas.iter().map(|schema| quote_literal(schema)).collect();
    let path = format!("ARRAY[{}]::pg_catalog.name[]", list.join(", "));
    let place = |schema: &str| format!("pg_catalog.array_position({path}, {schema})");
    format!(
        "{place} IS NOT NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c2 \
         JOIN pg_catalog.pg_namespace AS n2 ON n2.oid = c2.relnamespace \
         WHERE c2.relname = c.relname AND {place2} < {place})",
        place = place("n.nspname"),
        place2 = place("n2.nspname"),
    )
}
