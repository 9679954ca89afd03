//! How much a transaction does and how long is waited for a lock (pure): what a sweep and a compaction go by.

use std::time::Duration;

/// The part of its time that a transaction takes while other sessions are active: whoever waits for a processor
/// or a row that it holds waits as much less.
pub(crate) const BESIDE_OTHERS: f64 = 0.1;

/// A speed that follows the last one measured, without its jumps.
pub(crate) fn smoothed(old: Option<f64>, now: f64) -> f64 {
    old.map_or(now, |old| 0.7 * old + 0.3 * now)
}

/// How long to wait after so many lock timeouts, one after the other. `jitter` is from 0 to 1.
pub(crate) fn after_timeouts(times: u32, jitter: f64) -> Duration {
    Duration::from_millis((50.0 * f64::from(1u32 << times.min(6)) * (0.5 + jitter)) as u64)
}
