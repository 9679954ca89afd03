//! How long a run waits for other sessions: all waits since work was last done count against one limit (max-wait).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::retoast::error::Result;
use crate::retoast::listener::{Control, Listener};
use crate::retoast::result::StopReason;

/// The patience of the work on one table after another.
pub(crate) struct Patience<'a> {
    /// The longest wait; `None` without a limit.
    limit: Option<Duration>,
    control: Arc<Control>,
    listener: &'a dyn Listener,
    state: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    /// The time spent waiting since work was last done.
    waited: Duration,
    /// Why waiting was given up.
    gave_up: Option<String>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(
        limit: Option<Duration>,
        control: Arc<Control>,
        listener: &'a dyn Listener,
    ) -> Patience<'a> {
        Patience { limit, control, listener, state: Mutex::default() }
    }

    /// Begins with another table.
    pub(super) fn begin_table(&self) {
        *self.state.lock() = Waits::default();
    }

    /// The limit for all waits together.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// How much longer it may wait; `None` without a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.limit?.saturating_sub(self.waited()))
    }

    pub(super) fn waited(&self) -> Duration {
        self.state.lock().waited
    }

    /// Adds to the time spent waiting.
    pub(crate) fn add_wait(&self, time: Duration) {
        self.state.lock().waited += time;
    }

    /// Records that work was done, so that the next wait starts from zero.
    pub(crate) fn reset_wait(&self) {
        self.state.lock().waited = Duration::ZERO;
    }

    /// Sleeps, at most until a stop is requested, and returns the time slept.
    pub(super) async fn sleep(&self, time: Duration) -> Duration {
        let began = Instant::now();
        self.control.sleep(time).await;
        began.elapsed()
    }

    /// Waits for some time, or until a stop is requested. Ends the run if the wait, together with those since work was
    /// last done, reaches the limit.
    pub(crate) async fn wait(&self, time: Duration, table: &str, why: &str) {
        let left = self.left();
        let slept = self.sleep(left.map_or(time, |left| time.min(left))).await;
        self.add_wait(slept);
        if left.is_some_and(|left| left <= time) && !self.control.stopped() {
            self.give_up(table, self.waited(), why);
        }
    }

    /// Waits while `reason` finds one, and calls it again at least `every` so long with the time waited. Such a wait
    /// precedes all work, so it is measured against the whole limit. Returns the last reason and the time if the limit
    /// was reached; a stop ends the wait too.
    ///
    /// # Errors
    /// Those of `reason`.
    pub(crate) async fn wait_while<R>(
        &self,
        every: Duration,
        mut reason: impl AsyncFnMut(Duration) -> Result<Option<R>>,
    ) -> Result<Option<(R, Duration)>> {
        let began = Instant::now();
        while !self.control.stopped() {
            let Some(found) = reason(began.elapsed()).await? else { break };
            let waited = began.elapsed();
            let left = self.limit.map_or(every, |limit| limit.saturating_sub(waited));
            if left.is_zero() {
                return Ok(Some((found, waited)));
            }
            self.sleep(left.min(every)).await;
        }
        Ok(None)
    }

    /// Ends the run, like a stop on request.
    pub(crate) fn give_up(&self, table: &str, waited: Duration, why: &str) {
        let text = gave_up(waited, why);
        self.listener.note(Some(table), &text);
        self.state.lock().gave_up = Some(text);
        self.end_run();
    }

    /// Ends the run, which has waited as long as it may.
    pub(crate) fn end_run(&self) {
        self.control.stop(StopReason::MaxWait);
    }

    /// Whether a wait was given up.
    pub(crate) fn has_given_up(&self) -> bool {
        self.state.lock().gave_up.is_some()
    }

    /// What has stopped the run.
    pub(crate) fn stopped_by(&self) -> Option<StopReason> {
        self.control.stopped_by()
    }

    /// Why waiting was given up, for the report of the table.
    pub(super) fn take_note(&self) -> Option<String> {
        self.state.lock().gave_up.take()
    }
}

/// The message about a wait that was given up.
pub(super) fn gave_up(waited: Duration, why: &str) -> String {
    format!("stopped after waiting for {:.1} s (max-wait): {why}", waited.as_secs_f64())
}
