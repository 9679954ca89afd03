//! A column that an update can set to itself, where only dropped columns have something to be cleared.

use tokio_postgres::types::Type;

use super::generated::Generated;
use super::refusal::Refusal;
use crate::codec::Method;
use crate::model::forcing::Shape;
use crate::retoast::sql::Target;
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// The first column that may be set, from which no stored column is generated and that no index has; else the first that
/// may be set and from which none is generated; else the first that may be set.
pub(crate) async fn touched(
    client: &Client,
    relation: &Relation,
    generated: &[Generated],
) -> Result<Target, Refusal> {
    let bases: Vec<i16> = generated
        .iter()
        .filter(|column| column.stored)
        .flat_map(|column| &column.bases)
        .filter_map(|base| i16::try_from(base + 1).ok())
        .collect();
    let rows = client
        .query_typed(
            "SELECT a.attnum, a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a \
             WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped \
             AND a.attgenerated = '' AND a.attidentity <> 'a' \
             ORDER BY a.attnum = ANY ($2), EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                              WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey)), a.attnum \
             LIMIT 1",
            &[(&relation.oid.0, Type::OID), (&bases, Type::INT2_ARRAY)],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Err(Refusal::Refused(format!(
            "{}: there is no column that an UPDATE may set, which alone moves rows and clears dropped columns",
            relation.display_name()
        )));
    };
    let number: i16 = row.try_get(0)?;
    Ok(Target {
        name: row.try_get(1)?,
        index: usize::try_from(number - 1).unwrap_or(0),
        // set to itself, it keeps its datum
        shape: Shape::Fixed,
        method: Method::Pglz,
        base: None,
        domain: None,
    })
}
