//! The indexes of a table looked at side by side, as far as connections are free.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::OnceCell;

use super::index::{self, Index};
use super::result::{IndexEnd, IndexReport};
use super::run::look_at;
use super::wish::Reindex;
use crate::disk::Oid;
use crate::disk::layout::PageSize;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::LiveError;
use crate::server::connect::Connection;

/// The valid indexes of a table and of its TOAST relation, each with what a fresh one would take if that is known,
/// and whether it is bloated.
pub(crate) struct Looks {
    source: ScanSource,
    page: PageSize,
    table: Oid,
    /// Those that there are, once a connection has asked.
    all: OnceCell<Vec<Index>>,
    /// The first of them that nobody has taken.
    next: AtomicUsize,
    looked_at: Mutex<Vec<(usize, IndexReport)>>,
}

impl Looks {
    /// At none yet.
    pub(crate) fn new(source: ScanSource, page: PageSize, table: Oid) -> Looks {
        Looks {
            source,
            page,
            table,
            all: OnceCell::new(),
            next: AtomicUsize::new(0),
            looked_at: Mutex::default(),
        }
    }

    /// Looks over a connection, which is in no transaction, at those that nobody has taken yet.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn take_part(&self, connection: &Connection) -> Result<(), LiveError> {
        let ask = async || {
            let all = index::all(connection, self.table).await?;
            Ok::<_, LiveError>(all.into_iter().filter(|index| index.valid).collect())
        };
        let all: &Vec<Index> = self.all.get_or_try_init(ask).await?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(index) = all.get(number) else { return Ok(()) };
            let look = look_at(connection, &self.source, self.page, Reindex::Never, index).await?;
            let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            looked_at.push((number, look));
        }
    }

    /// What was seen, the smallest index first, if it is all of them.
    fn ended(self) -> Option<Vec<IndexReport>> {
        let all = self.all.get()?.len();
        let mut looked_at = self.looked_at.into_inner().unwrap_or_else(PoisonError::into_inner);
        looked_at.sort_unstable_by_key(|&(number, _)| number);
        (looked_at.len() == all).then(|| looked_at.into_iter().map(|(_, look)| look).collect())
    }

    /// Looks over these connections.
    ///
    /// # Errors
    /// The server's, where that has cost a look.
    pub(crate) async fn over(
        self,
        connections: &[impl Borrow<Connection>],
    ) -> Result<Vec<IndexReport>, LiveError> {
        let parts = connections.iter().map(|connection| self.take_part(connection.borrow()));
        let ended = join_all(parts).await;
        self.of_parts(ended)
    }

    /// What was seen once all have ended that took part.
    ///
    /// # Errors
    /// The first of theirs, where that has cost a look.
    pub(crate) fn of_parts(
        self,
        ended: impl IntoIterator<Item = Result<(), LiveError>>,
    ) -> Result<Vec<IndexReport>, LiveError> {
        match self.ended() {
            Some(all) => Ok(all),
            None => ended.into_iter().collect::<Result<(), _>>().map(|()| Vec::new()),
        }
    }
}

/// The indexes of a table and of its TOAST relation that are much larger than fresh ones and can be rebuilt.
///
/// # Errors
/// The server's.
pub(crate) async fn bloated(
    connection: &Connection,
    source: &ScanSource,
    page: PageSize,
    table: Oid,
) -> Result<Vec<IndexReport>, LiveError> {
    let mut looks = Looks::new(source.clone(), page, table).over(&[connection]).await?;
    looks.retain(|index| index.ended == IndexEnd::Bloated);
    Ok(looks)
}
