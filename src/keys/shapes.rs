//! What the catalog says of the types that are taken apart: composite types, arrays of types that are not built in, and
//! domains.

use std::collections::BTreeMap;

use tokio_postgres::types::{Oid as PgOid, Type};

use super::chosen;
use super::language::Language;
use crate::disk::Oid;
use crate::disk::desc::{Align, Length};
use crate::disk::element_parts::{Field, Shape};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// That of each column of a relation.
pub(super) async fn languages(
    client: &Client,
    relation: &Relation,
) -> Result<Vec<Option<Language>>, LiveError> {
    let mut languages = chosen::languages(&relation.desc);
    // domains as what they are of; for an array its element, for a composite type its attributes
    let rows = client
        .query_typed(
            "WITH RECURSIVE base (attnum, type, depth) AS (\
                 SELECT a.attnum, a.atttypid, 0 FROM pg_catalog.pg_attribute AS a \
                 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped \
               UNION ALL \
                 SELECT b.attnum, t.typbasetype, b.depth + 1 FROM base AS b \
                 JOIN pg_catalog.pg_type AS t ON t.oid = b.type WHERE t.typtype = 'd' AND b.depth < 100) \
             SELECT b.attnum, t.oid, NULL::pg_catalog.text, e.oid, e.typlen, e.typalign::pg_catalog.text, false \
             FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype <> 'd' \
             LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 AND e.typarray = t.oid \
             WHERE t.typtype <> 'c' \
             UNION ALL \
             SELECT b.attnum, t.oid, f.attname::pg_catalog.text, f.atttypid, f.attlen, \
                    f.attalign::pg_catalog.text, f.attisdropped \
             FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype = 'c' \
             JOIN (SELECT * FROM pg_catalog.pg_attribute ORDER BY attrelid, attnum) AS f \
               ON f.attrelid = t.typrelid AND f.attnum > 0",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let mut fields: BTreeMap<usize, Vec<Field>> = BTreeMap::new();
    for row in &rows {
        let attnum: i16 = row.try_get(0)?;
        let base: PgOid = row.try_get(1)?;
        let name: Option<String> = row.try_get(2)?;
        let shape = shape(row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        let Some(index) = usize::try_from(attnum).ok().and_then(|number| number.checked_sub(1))
        else {
            continue;
        };
        match (name, shape) {
            (Some(name), Some(shape)) => {
                let dropped = row.try_get(6)?;
                fields.entry(index).or_default().push(Field { name, shape, dropped });
            }
            (None, shape) => {
                let Some(place @ None) = languages.get_mut(index) else { continue };
                *place = Language::built_in(Oid(base)).or(shape.map(Language::Array));
            }
            (Some(_), None) => {}
        }
    }
    for (index, fields) in fields {
        if let Some(place) = languages.get_mut(index) {
            *place = Some(Language::Row(fields.into()));
        }
    }
    Ok(languages)
}

fn shape(type_oid: Option<PgOid>, length: Option<i16>, align: Option<String>) -> Option<Shape> {
    Some(Shape {
        type_oid: Oid(type_oid?),
        length: Length::from_attlen(i64::from(length?))?,
        align: Align::from_char(align?.chars().next()?)?,
    })
}
