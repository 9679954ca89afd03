//! What a job does, and what it has done.

use std::time::{Duration, Instant};

use super::batch::Done;
use super::error::RunError;
use super::keys::Condition;
use super::machine::{Event, Extent, Row};
use super::refused::{LIMIT, MOST_SHOWN, Reason};
use super::table::Sweep;
use crate::disk::desc::Storage;
use crate::retoast::pace::manners::Work;
use crate::retoast::result::TableReport;
use crate::retoast::sizes::Sizes;

/// What a job is to do.
pub(super) enum Task {
    /// Rows to re-toast. Those that `insist_on`, a condition, finds are waited for.
    Batch { rows: Vec<Row>, verify: bool, insist_on: Option<Condition> },
    /// What to vacuum, and the part of the table that may be dead in it.
    Vacuum(Extent, f64),
}

/// What a job has done.
pub(super) enum Finished {
    Batch {
        rows: Vec<Row>,
        done: Done,
        took: Duration,
        insists: bool,
    },
    /// The sizes before it, what was vacuumed in which time, if anything, and how many times.
    Vacuum(Sizes, Option<(Extent, Duration)>, u64),
    /// A stop was asked for before it began.
    Nothing,
}

impl Sweep<'_> {
    /// Does what a job is to do, once nothing stands against it.
    pub(super) async fn labour(
        &self,
        job: usize,
        task: Task,
    ) -> (usize, Result<Finished, RunError>) {
        (job, self.work_on(job, task).await)
    }

    pub(super) async fn work_on(&self, job: usize, task: Task) -> Result<Finished, RunError> {
        let work = match task {
            Task::Batch { .. } => Work::Batch,
            Task::Vacuum(..) => Work::Vacuum,
        };
        self.keeper.pass(work, self.connection(job), self.watch).await?;
        if self.stopped() {
            return Ok(Finished::Nothing);
        }
        match task {
            Task::Batch { rows, verify, insist_on } => {
                let started = Instant::now();
                let done = self.batch(job, &rows, verify, insist_on.as_ref()).await?;
                let took = started.elapsed();
                if let Done::Stored { xid, rows: stored, .. } = done {
                    let bytes = rows.iter().map(|row| row.stored).sum();
                    self.keeper.batch_done(took, bytes, xid);
                    if stored > 0 {
                        self.keeper.goes_on();
                    }
                }
                Ok(Finished::Batch { rows, done, took, insists: insist_on.is_some() })
            }
            Task::Vacuum(extent, part) => {
                let sizes = self.keeper.sizes();
                if !self.vacuum_pays_soon(job).await? {
                    tracing::debug!("{}: no VACUUM: it would remove too little", self.name());
                    return Ok(Finished::Vacuum(sizes, None, 0));
                }
                let (done, times) = self.vacuum(job, extent, part).await?;
                Ok(Finished::Vacuum(sizes, done, times))
            }
        }
    }

    /// Takes down what a job has done.
    pub(super) fn account(
        &self,
        job: usize,
        finished: Finished,
        report: &mut TableReport,
    ) -> Event {
        match finished {
            Finished::Batch { done: Done::Stored { rows, verified, xid }, took, .. } => {
                report.rows_stored += rows;
                report.rows_verified += verified;
                report.batches += u64::from(rows > 0);
                Event::BatchDone { job, rows, xid, took }
            }
            Finished::Batch { done: Done::Busy, .. } => Event::BatchBusy(job),
            Finished::Batch { done: Done::Refused(reason), rows, insists, .. } => {
                if let ([row], false) = (rows.as_slice(), insists) {
                    self.set_aside(*row, reason, report);
                }
                Event::BatchRefused(job)
            }
            Finished::Vacuum(sizes, done, times) => {
                report.peak = report.peak.max(sizes);
                report.vacuums += times;
                Event::Vacuumed { job, done }
            }
            Finished::Nothing => Event::Failed(job),
        }
    }

    fn set_aside(&self, row: Row, reason: Reason, report: &mut TableReport) {
        report.is_unfit |=
            reason.sqlstate == LIMIT && self.ready.toaster.storage() == Storage::Plain;
        report.rows_refused += 1;
        let row = reason.row(row);
        self.watch.refused(&report.relation, &row);
        if report.skipped.len() < MOST_SHOWN {
            report.skipped.push(row);
        }
    }
}
