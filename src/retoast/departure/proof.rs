//! The proof that nothing refers to a toaster: tables and catalog, read once more.

use std::collections::HashSet;

use super::census::{Census, Counter};
use super::result::DepartureReport;
use super::steps::{columns_now, steps};
use crate::disk::Oid;
use crate::model::toaster::catalog::ToasterColumn;
use crate::server::LiveError;
use crate::server::toasters::{self, Referent};

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

/// Reads everything once more and puts into the report what is left. Of tables created by transactions that have not
/// ended nothing is known, and `report` names those.
pub(crate) async fn prove(
    counter: &Counter<'_>,
    wanted: Option<&HashSet<Oid>>,
    report: &mut DepartureReport,
) -> Result<(), LiveError> {
    // before the tables are listed: one that is created later makes it another
    let columns_before = columns_now(counter.reader.client()).await?;
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
    let all_seen = after.unread.is_empty() && report.older_transactions.is_empty();
    let no_value = after.values() == 0 && all_seen && living.is_empty();
    report.gone = no_value && dropped.is_empty();
    if no_value && report.whole_database {
        let extension = toasters::extension(client, counter.toaster).await?;
        report.steps = steps(counter.toaster, &dropped, extension.as_deref(), &columns_before);
    }
    report.unfit.extend(after.unread);
    Ok(())
}
