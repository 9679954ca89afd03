//! Signals and time that stop or pause `retoast`.

use std::convert::Infallible;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::retoast::pace::control::Control;

/// Listens for ever: to Ctrl-C, SIGTERM and a time limit in seconds for the end, to SIGUSR1 and
/// SIGUSR2 for a pause.
pub(super) async fn listen(control: &Control, limit: Option<u64>) -> Infallible {
    let mut terminate = signal(SignalKind::terminate()).ok();
    let stop = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = comes(terminate.as_mut()) => {}
            () = time_is_up(limit) => {}
        }
        control.stop();
        std::future::pending().await
    };
    tokio::select! {
        never = stop => never,
        never = pauses(control, SignalKind::user_defined1(), true) => never,
        never = pauses(control, SignalKind::user_defined2(), false) => never,
    }
}

/// Asks to pause, or to go on, at each of these signals.
async fn pauses(control: &Control, kind: SignalKind, pause: bool) -> Infallible {
    let mut signal = signal(kind).ok();
    loop {
        comes(signal.as_mut()).await;
        control.pause(pause);
    }
}

/// Ends at the signal; never if it cannot be listened to.
async fn comes(signal: Option<&mut Signal>) {
    let Some(signal) = signal else { return std::future::pending().await };
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Ends after so many seconds, or never.
async fn time_is_up(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}
