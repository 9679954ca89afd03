//! Collects the results of a run from all workers.

use std::cell::{Cell, RefCell};
use std::io;

use crate::message::Message;
use crate::retoast::result::{Outcome, TableReport};
use crate::retoast::verdict;
use crate::server::sink::{Failed, Kind, RunError, Sink};

pub(crate) struct Swept {
    /// Its position among the requested tables.
    pub(crate) position: usize,
    pub(crate) report: TableReport,
}

/// The sink of a run, shared by its workers.
pub(crate) struct Results<'a> {
    sink: RefCell<&'a mut dyn Sink<Swept>>,
    unwritable: RefCell<Option<io::Error>>,
    failed: RefCell<Vec<(usize, Failed)>>,
    /// What the next report also says.
    notes: RefCell<Vec<String>>,
    is_incomplete: Cell<bool>,
    /// Whether a stop has left something that was not begun.
    is_stopped: Cell<bool>,
}

impl<'a> Results<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink<Swept>) -> Results<'a> {
        Results {
            sink: RefCell::new(sink),
            unwritable: RefCell::default(),
            failed: RefCell::default(),
            notes: RefCell::default(),
            is_incomplete: Cell::default(),
            is_stopped: Cell::default(),
        }
    }

    /// Passes on a result. Returns whether further results are accepted.
    pub(crate) fn found(&self, position: usize, mut report: TableReport) -> bool {
        report.outcome = verdict::concluded(&report);
        report.common.notes.splice(0..0, self.notes.take());
        if report.converted.undone || matches!(report.outcome, Outcome::Stopped | Outcome::Failed) {
            self.is_incomplete.set(true);
        }
        let taken = self.sink.borrow_mut().found(Swept { position, report });
        if let Err(error) = taken {
            self.unwritable.borrow_mut().get_or_insert(error);
        }
        self.unwritable.borrow().is_none()
    }

    /// Records that a table could not be processed.
    pub(crate) fn failed(&self, position: usize, failed: Failed) {
        self.is_incomplete.set(true);
        self.failed.borrow_mut().push((position, failed));
    }

    /// Records that a stop has left something that was not begun.
    pub(crate) fn stopped(&self) {
        self.is_stopped.set(true);
    }

    /// Whether a session was lost and not replaced.
    pub(crate) fn has_lost(&self) -> bool {
        self.failed.borrow().iter().any(|(_, failed)| failed.kind == Kind::Lost)
    }

    /// Has the next report say this: it is about a table without a report of its own.
    pub(crate) fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }

    /// Prints the notes that no report has taken. They may say how to restore settings, so they are warnings, which -q shows.
    pub(crate) fn tell_notes(&self) {
        for text in self.notes.take() {
            self.message(Message::warning(text));
        }
    }

    /// Whether a table could not be processed, or was not converted to the end.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete.get()
    }

    pub(crate) fn message(&self, message: Message) {
        self.sink.borrow_mut().message(message);
    }

    /// Passes on the failures, in the order of the tables.
    pub(crate) fn end(self) -> Result<(), RunError> {
        self.tell_notes();
        let mut failed = self.failed.into_inner();
        failed.sort_by_key(|(position, _)| *position);
        let sink = self.sink.into_inner();
        failed.into_iter().for_each(|(_, failed)| sink.failed(failed));
        match self.unwritable.into_inner() {
            Some(error) => Err(RunError::Output(error)),
            None if self.is_stopped.get() => Err(Failed::stopped().into()),
            None => Ok(()),
        }
    }
}
