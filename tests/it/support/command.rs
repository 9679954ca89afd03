//! Runs the `toastctl` that this build made.

use std::process::{Child, Command, Stdio};

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// What a finished command left.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The standard output of a run that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        self.stdout
    }
}

/// `toastctl`, with nothing of the developer's own PostgreSQL habits in its environment or home.
pub(crate) fn toastctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toastctl"));
    scrub(&mut command);
    command
}

/// Takes arguments apart: the verb that they begin with, or else `usual`, and the rest.
pub(crate) fn verb_of<'a>(usual: &'a str, arguments: &'a [&'a str]) -> (&'a str, &'a [&'a str]) {
    match arguments {
        [
            verb @ ("advise-threshold" | "check" | "compact" | "keys" | "reindex" | "value"),
            rest @ ..,
        ] => (verb, rest),
        _ => (usual, arguments),
    }
}

/// Removes from `command` what would make libpq or toastctl behave differently on another desk.
pub(crate) fn scrub(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    for name in ["LINES", "NO_COLOR", "RUST_BACKTRACE", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
        .env("COLUMNS", "0")
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C.UTF-8")
        .env("TOASTCTL_TEST_UNCALIBRATED", "1")
        .env("TZ", "UTC");
    command.stdin(Stdio::null());
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a child can be signalled");
}

/// Sends a signal to a process that may have ended.
pub(crate) fn signal_process(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

/// Waits for a child whose outputs are pipes.
pub(crate) fn ended(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
