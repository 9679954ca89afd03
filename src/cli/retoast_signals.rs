//! Signals, files and time that stop or pause `retoast`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::retoast::pace::control::Control;

/// Begins to listen: to Ctrl-C, SIGTERM, a stop file and a time limit in seconds for the end, to
/// SIGUSR1 and SIGUSR2 for a pause. Needs a runtime.
pub(super) fn listen(control: &Arc<Control>, limit: Option<u64>, stop_file: Option<PathBuf>) {
    let asked = Arc::clone(control);
    let mut terminate = signal(SignalKind::terminate()).ok();
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = comes(terminate.as_mut()) => {}
            () = time_is_up(limit) => {}
            () = appears(stop_file) => {}
        }
        asked.stop();
    });
    for (kind, pause) in [(SignalKind::user_defined1(), true), (SignalKind::user_defined2(), false)]
    {
        let asked = Arc::clone(control);
        let mut signal = signal(kind).ok();
        tokio::spawn(async move {
            loop {
                comes(signal.as_mut()).await;
                asked.pause(pause);
            }
        });
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

/// Ends when the file is there.
async fn appears(file: Option<PathBuf>) {
    let Some(file) = file else { return std::future::pending().await };
    while !tokio::fs::try_exists(&file).await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
