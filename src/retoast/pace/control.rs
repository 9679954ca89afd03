//! What is asked of a running sweep from outside: to stop, to pause, to go on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::manners::Cause;

/// Shared by the sweep and those who ask.
#[derive(Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    paused: AtomicBool,
    pause_file: Option<PathBuf>,
}

impl Control {
    /// Which pauses while this file is there.
    pub fn new(pause_file: Option<PathBuf>) -> Control {
        Control { pause_file, ..Control::default() }
    }

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
        if self.paused.load(Ordering::Relaxed) {
            return Some((Cause::Signal, "asked to by SIGUSR1; SIGUSR2 goes on".to_owned()));
        }
        let file = self.pause_file.as_ref().filter(|file| file.exists())?;
        Some((Cause::PauseFile, format!("file \"{}\" is there (--pause-file)", file.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_and_a_file_pause_until_they_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pause");
        let control = Control::new(Some(file.clone()));
        let cause = || control.asked().map(|(cause, _)| cause);
        assert_eq!(cause(), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(cause(), Some(Cause::PauseFile));
        control.pause(true);
        assert_eq!(cause(), Some(Cause::Signal));
        std::fs::remove_file(&file).unwrap();
        control.pause(false);
        assert_eq!(cause(), None);
        assert!(!control.stopped());
        control.stop();
        assert!(control.stopped());
    }
}
