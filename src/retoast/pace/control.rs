//! What is asked of a running sweep from outside: to stop, to pause, to go on.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::manners::Cause;

/// Shared by the sweep and those who ask.
#[derive(Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    paused: AtomicBool,
}

impl Control {
    /// Asks to stop, for good.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Cancelled once somebody has asked to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether somebody has asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Asks to pause, or to go on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Why it is to pause now, with the reason for people.
    pub fn asked(&self) -> Option<(Cause, String)> {
        let paused = self.paused.load(Ordering::Relaxed);
        paused.then(|| (Cause::Signal, "asked to by SIGUSR1; SIGUSR2 goes on".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_pauses_until_it_is_taken_back() {
        let control = Control::default();
        let cause = || control.asked().map(|(cause, _)| cause);
        assert_eq!(cause(), None);
        control.pause(true);
        assert_eq!(cause(), Some(Cause::Signal));
        control.pause(false);
        assert_eq!(cause(), None);
        assert!(!control.stopped());
        control.stop();
        assert!(control.stopped());
    }
}
