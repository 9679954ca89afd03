//! Where the readers of all forms give what they find.

use super::error::SavedError;
use super::{Form, Kind, LineNumber, SavedSink};

/// Where rows and errors go.
pub(crate) struct Out<'s> {
    pub(crate) sink: &'s mut dyn SavedSink,
    results: u64,
    errors: u64,
}

impl<'s> Out<'s> {
    pub(crate) fn new(sink: &'s mut dyn SavedSink) -> Out<'s> {
        Out { sink, results: 0, errors: 0 }
    }

    /// A result begins.
    pub(crate) fn begin(&mut self, line: LineNumber, form: Form, kind: Kind) {
        self.results += 1;
        self.sink.begin(line, form, kind);
    }

    pub(crate) fn error(&mut self, error: SavedError) {
        self.errors += 1;
        self.sink.error(error);
    }

    /// Whether there was neither a result nor an error.
    pub(crate) fn is_empty(&self) -> bool {
        self.results == 0 && self.errors == 0
    }

    /// How many errors there were so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }
}

/// How far a result was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on in the next part of the text.
    Paused,
    Ended,
}
