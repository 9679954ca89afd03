//! Waiting while something stands against a piece of work.

use std::time::{Duration, Instant};

use super::super::error::PaceError;
use super::super::gauges;
use super::super::manners::{Cause, POLL, Pause, Work};
use super::{Keeper, State};
use crate::retoast::listener::Listener;
use crate::retoast::listener::Wait;
use crate::server::connect::Connection;

/// How often one and the same reason is told.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Pauses shorter than this are counted and not told.
const WORTH_TELLING: Duration = Duration::from_millis(500);

impl Keeper {
    /// Returns when nothing stands against this work, or when a stop is asked for. The worker's session,
    /// idle until then, is given a name that shows how far all is.
    ///
    /// # Errors
    /// A measurement fails, or the table has grown beyond the limit.
    pub async fn pass(
        &self,
        work: Work,
        worker: &Connection,
        listener: &dyn Listener,
    ) -> Result<(), PaceError> {
        let mut state = self.state.lock().await;
        let mut pausing: Option<(Cause, Instant, bool)> = None;
        let mut for_others: Option<Instant> = None;
        while !self.control.stopped() {
            let Some(mut pause) = self.stands_against(&mut state, work, worker, listener).await?
            else {
                break;
            };
            if let (Some(limit), true) = (self.wants.limits.wait, pause.cause.is_others()) {
                let here = for_others.get_or_insert_with(Instant::now).elapsed();
                let waited = self.waited().saturating_add(here);
                let left = limit.saturating_sub(waited);
                if left.is_zero() {
                    self.give_up(state.table_name(), waited, &pause.text, listener);
                    break;
                }
                pause.wait = pause.wait.min(left);
            }
            tracing::debug!("{}: {work:?} waits: {}", state.table_name(), pause.text);
            let (since, told) = match pausing {
                Some((cause, since, told)) if cause == pause.cause => (since, told),
                _ => {
                    state.pauses.entry(pause.cause).or_default().0 += 1;
                    (Instant::now(), false)
                }
            };
            let told = told || state.tell(&pause, listener);
            listener.paused(Some(&pause));
            pausing = Some((pause.cause, since, told));
            let slept = self.sleep(pause.wait.min(POLL)).await;
            state.pauses.entry(pause.cause).or_default().1 += slept;
        }
        // what was waited for elsewhere before goes on
        if let Some(since) = for_others.filter(|_| !self.waited().is_zero()) {
            self.noted(|noted| noted.waited += since.elapsed());
        }
        if let Some((_, since, told)) = pausing {
            listener.paused(None);
            if told && !self.control.stopped() && since.elapsed() >= WORTH_TELLING {
                let name = state.table_name();
                let seconds = since.elapsed().as_secs_f64();
                listener.note(&format!("{name}: going on after {seconds:.1} s"));
            }
        }
        Ok(())
    }

    /// How much longer others may be waited for.
    pub(crate) fn may_wait(&self) -> Option<Duration> {
        Some(self.wants.limits.wait?.saturating_sub(self.waited()))
    }

    fn waited(&self) -> Duration {
        let mut waited = Duration::ZERO;
        self.noted(|noted| waited = noted.waited);
        waited
    }

    /// So long others were waited for.
    pub(crate) fn has_waited(&self, time: Duration) {
        self.noted(|noted| noted.waited += time);
    }

    /// Something was done that others were waited for: a wait from now on is another one.
    pub(crate) fn goes_on(&self) {
        self.noted(|noted| noted.waited = Duration::ZERO);
    }

    /// Waits for others for some time, or until a stop is asked for. Ends the run where that makes too long a wait
    /// together with those since something was done last.
    pub(crate) async fn wait(
        &self,
        time: Duration,
        table: &str,
        why: &str,
        listener: &dyn Listener,
    ) {
        let left = self.may_wait();
        let slept = self.sleep(left.map_or(time, |left| time.min(left))).await;
        self.has_waited(slept);
        if left.is_some_and(|left| left <= time) && !self.control.stopped() {
            self.give_up(table, self.waited(), why, listener);
        }
    }

    /// Ends the run, as after a stop on request.
    pub(crate) fn give_up(
        &self,
        table: &str,
        waited: Duration,
        why: &str,
        listener: &dyn Listener,
    ) {
        let seconds = waited.as_secs_f64();
        let text = format!("stopped after waiting for {seconds:.1} s (--max-wait): {why}");
        listener.note(&format!("{table}: {text}"));
        self.noted(|noted| noted.gave_up = Some(text));
        self.control.stop();
    }

    /// Sleeps, but not after a stop is asked for; how long it was.
    pub(super) async fn sleep(&self, time: Duration) -> Duration {
        let began = Instant::now();
        self.control.stopping().run_until_cancelled(tokio::time::sleep(time)).await;
        began.elapsed()
    }

    async fn stands_against(
        &self,
        state: &mut State,
        work: Work,
        worker: &Connection,
        listener: &dyn Listener,
    ) -> Result<Option<Pause>, PaceError> {
        if let Some((cause, text)) = self.control.asked() {
            self.name_session(state, worker, true).await?;
            return Ok(Some(Pause { cause, text, wait: Duration::from_millis(200) }));
        }
        if work.stores() {
            let mut took = Duration::ZERO;
            self.noted(|noted| took = std::mem::take(&mut noted.owed));
            if let Some(owed) = state.manners.nice(took) {
                return Ok(Some(owed));
            }
        }
        let mut slots_are_short = false;
        if work != Work::Scan && state.readings.slots.are_limited() {
            let lsn = self.measuring.read(gauges::wal).await?;
            let State { manners, readings, .. } = &mut *state;
            slots_are_short = manners.slots_at(lsn, readings, work);
        }
        let old = slots_are_short || state.measured.is_none_or(|then| then.elapsed() >= POLL);
        // before each vacuum, which would be in vain
        if old || work == Work::Vacuum {
            self.measure(state, listener).await?;
            self.name_session(state, worker, false).await?;
        }
        let State { manners, readings, .. } = state;
        Ok(manners.judge(self.began.elapsed(), readings, work))
    }
}

impl State {
    /// Says why it waits, unless that was just said; whether it was.
    fn tell(&mut self, pause: &Pause, listener: &dyn Listener) -> bool {
        let name = self.table_name().to_owned();
        self.tell_of(&name, pause, listener)
    }

    pub(super) fn tell_of(&mut self, name: &str, pause: &Pause, listener: &dyn Listener) -> bool {
        let just = self
            .told
            .is_some_and(|(cause, then)| cause == pause.cause && then.elapsed() < TELL_EVERY);
        if pause.cause == Cause::Nice || just {
            return false;
        }
        let why = Wait::Throttle(pause.text.clone());
        listener.note(&format!("{name}: {}", why.note()));
        self.told = Some((pause.cause, Instant::now()));
        true
    }
}
