//! Values of pluggable toasters that a look at a live table meets.

use std::sync::{Arc, Mutex, PoisonError};

use super::collector::{self, Customs};
use super::look::{About, Looker};
use crate::disk::ByteOrder;
use crate::disk::varlena::Varlena;
use crate::model::toaster::error::ToastError;
use crate::server::checking::Standing;
use crate::server::chunks::{ChunkPages, LiveChunks};

impl Looker {
    pub(super) fn customs(&self, standing: &Standing) -> LiveCustoms<'_> {
        let connection = Arc::clone(&self.connection);
        let server = &self.about.server;
        let store = match server.pageinspect.clone() {
            Some(pageinspect) => LiveChunks::with_pages(
                connection,
                ChunkPages {
                    pageinspect,
                    page_size: server.page_size,
                    snapshot: standing.snapshot.clone(),
                    dead: false,
                },
            ),
            None => LiveChunks::new(connection),
        };
        LiveCustoms { about: &self.about, store: Mutex::new(store) }
    }
}

/// Values of pluggable toasters, read in the look's transaction.
pub(super) struct LiveCustoms<'a> {
    about: &'a About,
    store: Mutex<LiveChunks>,
}

impl Customs for LiveCustoms<'_> {
    fn look(
        &self,
        value: &Varlena<'_>,
        order: ByteOrder,
        with_text: bool,
    ) -> Option<Result<(), ToastError>> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let About { toasters, server, .. } = self.about;
        Some(collector::look(&mut *store, toasters, server.page_size, value, order, with_text))
    }
}
