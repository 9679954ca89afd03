//! Exit codes: a contract with scripts, so a number never changes its meaning.

use crate::message::Message;
use crate::report::nagios::State;
use crate::retoast::verdict::RunEnd;
use crate::server::connect::ConnectError;
use crate::server::sink::{Failed, Kind};
use std::cmp::Ordering;
use std::process::ExitCode;

/// How a run of `toastctl` ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Everything that was requested was done. A closed pipe on standard output is no failure either, except
    /// for `check`, whose verdict would be missing.
    Ok = 0,
    /// Done in part or not at all: something could not be read, the server refused a statement,
    /// or the result is not what was asked to be reached, or could not be seen to be. What could be printed
    /// was printed.
    Incomplete = 1,
    /// The arguments, or the input they name, make no sense; nothing was done.
    Usage = 2,
    /// The connection to the server could not be made, or was lost.
    Connection = 3,
    /// Stopped on request, by a signal or a limit of time; the same command goes on from there.
    Stopped = 4,
    /// `check` has found damage, which was printed.
    Damaged = 5,
    /// All rows are done, but other sessions keep space from being returned: by locks, by snapshots, or by rows that they
    /// have written in the meantime.
    Held = 6,
    /// `--fail-on`: a condition is met.
    Alarm = 7,
}

impl Exit {
    /// All of them, for documentation.
    pub const ALL: [Exit; 8] = [
        Exit::Ok,
        Exit::Incomplete,
        Exit::Usage,
        Exit::Connection,
        Exit::Stopped,
        Exit::Damaged,
        Exit::Held,
        Exit::Alarm,
    ];

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What the manual page says of it.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "everything was done",
            Exit::Incomplete => {
                "something could not be read, done or verified; the messages say what"
            }
            Exit::Usage => "bad arguments or bad input; nothing was done",
            Exit::Connection => "the connection could not be made, or was lost",
            Exit::Stopped => {
                "stopped by a signal or a limit of time; run the same command again to continue"
            }
            Exit::Damaged => "check has found damage",
            Exit::Held => {
                "all rows are done, but other sessions keep 1 % of the files or more from being returned"
            }
            Exit::Alarm => "a condition of --fail-on is met",
        }
    }

    /// Its place among those of several tables, of which the last one counts.
    fn severity(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Held => 1,
            Exit::Incomplete => 2,
            Exit::Alarm => 3,
            Exit::Usage => 4,
            Exit::Connection => 5,
            Exit::Stopped => 6,
            Exit::Damaged => 7,
        }
    }
}

impl Ord for Exit {
    fn cmp(&self, other: &Exit) -> Ordering {
        self.severity().cmp(&other.severity())
    }
}

impl PartialOrd for Exit {
    fn partial_cmp(&self, other: &Exit) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Why a run could not go on, with the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub(crate) message: Message,
}

impl Failure {
    /// A failure with this code.
    pub fn new(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, message: Message::error(text) }
    }

    /// Arguments or input that cannot be used.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, text)
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { message: self.message.hint(hint), ..self }
    }
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Failure {
        Failed::from(error).into()
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Exit {
        match kind {
            Kind::Incomplete | Kind::Denied => Exit::Incomplete,
            Kind::Usage => Exit::Usage,
            Kind::Lost => Exit::Connection,
            Kind::Stopped => Exit::Stopped,
        }
    }
}

impl From<RunEnd> for Exit {
    fn from(end: RunEnd) -> Exit {
        match end {
            RunEnd::Complete => Exit::Ok,
            RunEnd::Held => Exit::Held,
            RunEnd::Incomplete => Exit::Incomplete,
            RunEnd::Stopped => Exit::Stopped,
        }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Failure {
        Failure { exit: failed.kind.into(), message: failed.message }
    }
}

impl From<State> for ExitCode {
    fn from(state: State) -> ExitCode {
        ExitCode::from(state as u8)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_what_the_manual_says() {
        let documented: Vec<String> =
            Exit::ALL.iter().map(|exit| format!("{} {:?}", exit.code(), exit)).collect();
        assert_eq!(
            documented,
            [
                "0 Ok",
                "1 Incomplete",
                "2 Usage",
                "3 Connection",
                "4 Stopped",
                "5 Damaged",
                "6 Held",
                "7 Alarm"
            ]
        );
    }

    #[test]
    fn of_several_tables_what_is_held_is_worse_than_done_and_better_than_all_else() {
        let mut all = Exit::ALL;
        all.sort();
        assert_eq!(all.map(Exit::code), [0, 6, 1, 7, 2, 3, 4, 5]);
    }

    #[test]
    fn a_connection_string_that_makes_no_sense_is_the_users_and_a_refusal_is_the_servers() {
        let usage = ConnectError::usage("invalid connection option \"hots\"");
        assert_eq!(Failure::from(&usage).exit, Exit::Usage);
        let refused = ConnectError::Failed { attempts: Vec::new(), needs_password: false };
        assert_eq!(Failure::from(&refused).exit, Exit::Connection);
    }
}
