//! Gathers what a plan is made of.

use std::time::Duration;

use super::error::RunError;
use super::machine::{EARLY, Extent};
use super::table::Sweep;
use crate::retoast::pace::gauges;
use crate::retoast::plan::{Found, Plan};
use crate::retoast::result::TableReport;
use crate::retoast::sql;
use crate::retoast::tally::Tally;

/// What the sweep will do, after a scan that took this long and saw these values.
pub(crate) async fn plan(
    sweep: &Sweep<'_>,
    report: &TableReport,
    seen: &Tally,
    scan: Duration,
) -> Result<Plan, RunError> {
    let (ready, options) = (sweep.ready, sweep.options);
    let client = sweep.writer.client();
    let around = gauges::surroundings(client, &ready.relation, ready.replica_role).await?;
    let (table, limits) = (ready.relation.quoted(), sweep.keeper.limits());
    let bloat = options.tuning.max_bloat;
    let mut statements = vec![
        format!(
            "{}; {}",
            sql::begin(&sweep.settings()),
            sql::lock(&table, sweep.ready.code.holds_off_statistics())
        ),
        sql::update(&table, &ready.targets),
        "COMMIT".to_owned(),
    ];
    for extent in [Extent::Toast, Extent::Table] {
        let vacuum = sweep.vacuum_of(0, extent, EARLY * bloat).await?;
        statements.extend(vacuum.map(|(_, sql)| sql).filter(|sql| !statements.contains(sql)));
    }
    let found = Found {
        toaster: ready.toaster,
        rows: report.rows_found,
        bytes: report.bytes_found,
        stored: seen.bytes(),
        // the chunks of values of pluggable toasters stay, so that new ones may find no room at all
        external: if seen.has_custom() { 0 } else { seen.external_bytes() },
        columns: ready.targets.len() as u64,
        sizes: report.before,
        scan,
        max_bloat: bloat,
        nice: limits.nice,
        lock_timeout: options.lock_timeout,
        alter: report.alter.clone(),
        statements,
        origin: options.origin.clone(),
    };
    Ok(Plan::of(&found, &around))
}
