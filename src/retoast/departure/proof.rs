//! The proof that nothing refers to a toaster: tables and catalog, read once more.

use std::collections::HashSet;

use super::census::{Census, Counter};
use super::result::{DepartureReport, steps};
use crate::disk::Oid;
use crate::server::LiveError;
use crate::server::toasters::{self, Referent, ToasterColumn};

/// The columns of the tables that are looked at: `wanted`, or all.
pub(crate) async fn columns(
    counter: &Counter<'_>,
    wanted: Option<&HashSet<Oid>>,
) -> Result<Vec<ToasterColumn>, LiveError> {
    let mut columns = toasters::columns(counter.reader.client(), None).await?;
    if let Some(wanted) = wanted {
        columns.retain(|column| wanted.contains(&column.table));
    }
    Ok(columns)
}

/// Reads everything once more and puts into the report what is left.
pub(crate) async fn prove(
    counter: &Counter<'_>,
    wanted: Option<&HashSet<Oid>>,
    report: &mut DepartureReport,
) -> Result<(), LiveError> {
    let after: Census = counter.count(&columns(counter, wanted).await?).await?;
    report.tables_read = after.tables;
    report.values_left = after.values();
    let client = counter.reader.client();
    let mut referents = toasters::referents(client, counter.toaster).await?;
    if let Some(wanted) = wanted {
        referents.retain(|column| wanted.contains(&column.relation));
    }
    let (dropped, living): (Vec<Referent>, Vec<Referent>) =
        referents.into_iter().partition(|column| column.dropped);
    report.columns_left = living.iter().map(Referent::display_name).collect();
    report.dropped_columns_left = dropped.iter().map(Referent::display_name).collect();
    let no_value = after.values() == 0 && after.unread.is_empty() && living.is_empty();
    report.gone = no_value && dropped.is_empty();
    if no_value && report.whole_database {
        let extension = toasters::extension(client, counter.toaster).await?;
        report.steps = steps(counter.toaster, &dropped, extension.as_deref());
    }
    report.unfit.extend(after.unread);
    Ok(())
}
