//! Waiting for commands of others that write the table anew: until they end the table cannot be locked, or what is
//! written to it slows them down, and what was read of it is soon of files that are gone.

use std::time::Instant;

use super::super::error::PaceError;
use super::super::gauges;
use super::super::manners::{Cause, POLL, Pause};
use super::Keeper;
use crate::disk::Oid;
use crate::retoast::listener::Listener;

impl Keeper {
    /// Waits until no such command runs on a table, before its lock or its size is asked for. If that takes longer
    /// than the user allows it says so; a stop ends it too.
    ///
    /// # Errors
    /// It cannot be measured.
    pub(crate) async fn wait_for_rewrite(
        &self,
        table: Oid,
        listener: &dyn Listener,
    ) -> Result<Option<String>, PaceError> {
        let began = Instant::now();
        let ask = async |connection: &_| gauges::rewrite(connection, table).await;
        while let (false, Some(rewrite)) = (self.control.stopped(), self.measuring.read(ask).await?)
        {
            let (name, text) = (&rewrite.table, &rewrite.text);
            let mut wait = POLL;
            if let Some(limit) = self.wants.limits.wait {
                let left = limit.saturating_sub(began.elapsed());
                if left.is_zero() {
                    let seconds = began.elapsed().as_secs_f64();
                    return Ok(Some(format!(
                        "{name}: stopped after waiting for {seconds:.1} s (--max-wait): {text}"
                    )));
                }
                wait = wait.min(left);
            }
            let mut state = self.state.lock().await;
            let pause = Pause { cause: Cause::Rewrite, text: text.clone(), wait };
            state.tell_of(name, &pause, listener);
            let slept = self.sleep(pause.wait).await;
            let counted = state.pauses.entry(Cause::Rewrite).or_default();
            counted.0 = counted.0.max(1);
            counted.1 += slept;
        }
        Ok(None)
    }

    /// Whether such a command was running when it was measured last.
    pub(crate) fn sees_rewrite(&self) -> bool {
        let mut sees = false;
        self.noted(|noted| sees = noted.rewrite.is_some());
        sees
    }
}
