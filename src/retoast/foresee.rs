//! Gathers what a plan is made of.

use std::time::Duration;

use super::gauges;
use super::plan::{Found, Plan};
use super::result::TableReport;
use super::run::{RunError, Sweep};
use super::sql;

/// What the sweep will do, after a scan that took this long and saw so many stored bytes.
pub(super) async fn plan(
    sweep: &Sweep<'_>,
    report: &TableReport,
    stored: u64,
    scan: Duration,
) -> Result<Plan, RunError> {
    let (ready, options) = (sweep.ready, sweep.options);
    let client = sweep.writer.client();
    let around = gauges::surroundings(client, &ready.relation, ready.replica_role).await?;
    let (table, limits) = (ready.relation.quoted(), sweep.keeper.limits());
    let found = Found {
        toaster: options.toaster,
        rows: report.rows_found,
        bytes: report.bytes_found,
        stored,
        sizes: report.before,
        scan,
        max_bloat: options.tuning.max_bloat,
        nice: limits.nice,
        wal_rate: limits.wal_rate,
        lock_timeout: options.lock_timeout,
        alter: report.alter.clone(),
        statements: vec![
            format!("{}; {}", sql::begin(&sweep.settings()), sql::lock(&table)),
            sql::update(&table, &ready.targets),
            "COMMIT".to_owned(),
            sql::vacuum(&table),
        ],
        origin: options.origin.clone(),
    };
    Ok(Plan::of(&found, &around))
}
