//! The connections over which `inspect` reads a server, and what was requested.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::message::Message;
use crate::offline::file::FileError;
use crate::server::LiveError;
use crate::server::about::{Access, Server, ServerReport};
use crate::server::catalog::Relation;
use crate::server::connect::Connection;
use crate::server::sink::PERMISSIONS;
use toast_format::disk::CustomFlavor;
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::Sampling;

/// The options of `inspect` that decide what is read, and by what.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub access: Access,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Whether values are reassembled, and listed with their contents.
    pub contents: Option<ContentOptions>,
    /// Which blocks are read; `None` for all. A sample needs pages, and of TOAST relations only a few values are
    /// read for it.
    pub sampling: Option<Sampling>,
}

/// How values are reassembled.
#[derive(Debug, Clone, Default)]
pub struct ContentOptions {
    /// The directory in which each value is written to a file of its own.
    pub output_dir: Option<PathBuf>,
}

/// Why `inspect` could not continue.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{error}")]
    Live {
        /// What was being read, with the block where it is known; `None` for the relation itself.
        place: Option<String>,
        error: LiveError,
    },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not write: {0}")]
    Output(#[from] std::io::Error),
    /// There is no such value.
    #[error("{0}")]
    NoValue(String),
    #[error("stopped")]
    Stopped,
    /// Pages were requested but cannot be read.
    #[error("pages cannot be read: {0}")]
    NoPages(String),
}

impl From<LiveError> for InspectError {
    fn from(error: LiveError) -> InspectError {
        InspectError::Live { place: None, error }
    }
}

impl InspectError {
    /// An error of the server at this place.
    pub(super) fn at(place: &str, error: LiveError) -> InspectError {
        InspectError::Live { place: Some(place.to_owned()), error }
    }

    /// Makes the reason why there is no such value name the relation.
    pub(super) fn no_value(relation: &str) -> impl Fn(String) -> InspectError + Copy + '_ {
        move |reason| InspectError::NoValue(format!("{relation}: {reason}"))
    }
}

/// Reads relations of one server over one or more connections.
pub struct Inspector {
    /// The connection that leads the others.
    pub leader: Arc<Connection>,
    /// All connections to the same database, the leader first.
    pub connections: Vec<Arc<Connection>>,
    /// The server's processes for all connections of this run.
    pub(super) processes: Vec<i32>,
    pub server: Server,
    pub options: Options,
    pub progress: Arc<dyn Progress>,
    /// Set from outside to stop the reading.
    pub stop: Arc<AtomicBool>,
    /// Whether it was said why SQL functions are used.
    pub(super) explained: Arc<AtomicBool>,
}

impl Inspector {
    /// The same over some of the connections.
    pub(super) fn with(
        &self,
        leader: &Arc<Connection>,
        connections: Vec<Arc<Connection>>,
    ) -> Inspector {
        Inspector {
            leader: Arc::clone(leader),
            connections,
            processes: self.processes.clone(),
            server: self.server.clone(),
            options: self.options.clone(),
            progress: Arc::clone(&self.progress),
            stop: Arc::clone(&self.stop),
            explained: Arc::clone(&self.explained),
        }
    }

    /// The server as the report shows it.
    pub fn server_report(&self) -> ServerReport {
        ServerReport::new(&self.server, self.leader.address())
    }

    /// Why pages of `relation` cannot be read, `None` if they can.
    pub fn why_no_pages(&self, relation: &Relation) -> Option<String> {
        relation.why_no_heap().or_else(|| self.server.why_no_pages().map(str::to_owned))
    }

    /// Whether nothing but the extension is missing for this user to read pages.
    pub(crate) fn lacks_extension(&self) -> bool {
        self.server.superuser && self.server.pageinspect.is_none()
    }

    /// What lets this user read pages, or where that is explained.
    pub(crate) fn hint_for_pages(&self) -> &'static str {
        if self.lacks_extension() {
            "CREATE EXTENSION pageinspect; lets toastctl read pages and report everything."
        } else {
            PERMISSIONS
        }
    }

    /// Says once in a run why figures will be missing, and how to get them. The report of a table with another access method
    /// says so itself.
    pub(super) fn functions_notice(&self, relation: &Relation) -> Option<Message> {
        if !relation.is_heap || self.options.access != Access::Auto {
            return None;
        }
        let why = self.why_no_pages(relation)?;
        if self.explained.swap(true, Ordering::Relaxed) {
            return None;
        }
        let notice = Message::notice(format!("using SQL functions: {why}"));
        Some(if self.lacks_extension() { notice.hint(self.hint_for_pages()) } else { notice })
    }

    /// Why SQL functions are used for `relation` instead of pages, `None` if pages are read.
    pub(super) fn why_functions(
        &self,
        relation: &Relation,
    ) -> Result<Option<String>, InspectError> {
        let chosen = self.options.access.by_functions(self.why_no_pages(relation));
        chosen.map_err(InspectError::NoPages)
    }
}
