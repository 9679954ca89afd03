//! Values that a pluggable toaster would refuse, looked for before anything is set: once it is the
//! column's, the application could not write such values either.

use super::refusal::Refusal;
use crate::retoast::sql::{self, Target};
use crate::server::catalog::Relation;
use crate::server::connect::Client;

/// Refuses the table if any value of the columns has more bytes than the toaster `name` takes. All values
/// are read.
pub(crate) async fn check(
    client: &Client,
    relation: &Relation,
    targets: &[Target],
    name: &str,
    longest: u32,
) -> Result<(), Refusal> {
    let sql = sql::longer_than(&relation.quoted(), targets, longest);
    let rows = client.query_typed(&sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (count, first): (i64, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    match first {
        None => Ok(()),
        Some(first) => Err(Refusal::Refused(format!(
            "{}: rows with values of more than {longest} bytes: {count}, the first at {first}; toaster \
             \"{name}\" refuses such values where they do not fit the row\n\
             HINT:  With this toaster the application could not write such values either. Nothing was \
             changed.",
            relation.display_name()
        ))),
    }
}
