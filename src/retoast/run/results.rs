//! Collects the results of a run from all workers.

use std::cell::RefCell;
use std::io;

use crate::message::Message;
use crate::retoast::result::TableReport;
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
}

impl<'a> Results<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink<Swept>) -> Results<'a> {
        Results {
            sink: RefCell::new(sink),
            unwritable: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// Passes on a result. Returns whether further results are accepted.
    pub(crate) fn found(&self, position: usize, mut report: TableReport) -> bool {
        report.outcome = verdict::concluded(&report);
        let taken = self.sink.borrow_mut().found(Swept { position, report });
        if let Err(error) = taken {
            self.unwritable.borrow_mut().get_or_insert(error);
        }
        self.unwritable.borrow().is_none()
    }

    /// Records that a table could not be processed.
    pub(crate) fn failed(&self, position: usize, failed: Failed) {
        self.failed.borrow_mut().push((position, failed));
    }

    /// Whether a session was lost and not replaced.
    pub(crate) fn has_lost(&self) -> bool {
        self.failed.borrow().iter().any(|(_, failed)| failed.kind == Kind::Lost)
    }

    pub(crate) fn message(&self, message: Message) {
        self.sink.borrow_mut().message(message);
    }

    /// Passes on the failures, in the order of the tables.
    pub(crate) fn end(self) -> Result<(), RunError> {
        let mut failed = self.failed.into_inner();
        failed.sort_by_key(|(position, _)| *position);
        let sink = self.sink.into_inner();
        failed.into_iter().for_each(|(_, failed)| sink.failed(failed));
        match self.unwritable.into_inner() {
            Some(error) => Err(RunError::Output(error)),
            None => Ok(()),
        }
    }
}
