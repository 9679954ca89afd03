//! One look at some blocks of a live table: a transaction that ends with it.

use std::sync::Arc;

use super::chunk_index::live_chunks;
use super::code::Code;
use super::collector::Collector;
use super::finding::{Finding, Looked};
use super::subject::{Depth, External, Subject, XidLimits};
use super::value::Toast;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::{BlockNumber, TransactionId};
use crate::heap::problem::Place;
use crate::model::sql::quote_qualified;
use crate::model::toaster::catalog::Toasters;
use crate::model::visibility::HintBits;
use crate::server::LiveError;
use crate::server::about::Server;
use crate::server::catalog::{self, Relation};
use crate::server::checking::{self, Standing, Storage};
use crate::server::connect::Connection;
use crate::server::pages::PageReader;
use crate::server::snapshot;

/// How often a table that changes meanwhile is described anew before it is given up.
const TRIES: u32 = 5;

/// What a check of a server is about.
#[derive(Debug, Clone)]
pub struct About {
    /// The server.
    pub server: Server,
    /// What else is known of it.
    pub storage: Storage,
    /// Its toasters.
    pub toasters: Toasters,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// How far the check goes.
    pub depth: Depth,
}

/// Which relation is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The table.
    Heap,
    /// Its TOAST relation.
    Toast,
}

/// A connection that looks at one table.
pub struct Looker {
    pub(super) connection: Arc<Connection>,
    pub(super) about: Arc<About>,
    pub(super) relation: Arc<Relation>,
    fingerprint: Option<String>,
}

/// What one look gave.
#[derive(Debug, Default)]
pub struct Look {
    /// What is damaged.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub looked: Looked,
    /// Values of the TOAST relation that rows refer to.
    pub known: Vec<u32>,
    /// Whether `known` is all that rows of these blocks refer to.
    pub is_complete: bool,
    /// Values by the places of findings that miss chunks, or cannot read them: whether it is the index
    /// alone that is damaged is still to be seen.
    pub missing: Vec<(Finding, External)>,
    /// Values in another TOAST relation than the table's, which were not looked at.
    pub elsewhere: u64,
    /// Values of toasters that are not known, likewise.
    pub unknown: u64,
    /// The end of the write-ahead log when the look began, if the table's changes are in it.
    pub lsn: Option<u64>,
    /// Chunks seen live in blocks of the TOAST relation: whose, and inserted by whom.
    pub chunks: Vec<(u32, TransactionId)>,
}

/// How a look ended that was not given up.
#[derive(Debug)]
pub enum Seen {
    /// With this.
    Look(Look),
    /// The table is gone.
    Gone,
}

impl Looker {
    /// Over this connection.
    pub fn new(connection: Arc<Connection>, about: Arc<About>, relation: Arc<Relation>) -> Looker {
        Looker { connection, about, relation, fingerprint: None }
    }

    /// The table as it was last described.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.relation
    }

    /// The name of the relation that is looked at.
    pub fn name(&self, which: Which) -> String {
        match (which, &self.relation.toast) {
            (Which::Toast, Some(toast)) => toast.display_name(),
            _ => self.relation.display_name(),
        }
    }

    pub(super) fn quoted(&self, which: Which) -> String {
        match (which, &self.relation.toast) {
            (Which::Toast, Some(toast)) => quote_qualified("pg_toast", &toast.name),
            _ => self.relation.quoted(),
        }
    }

    /// Looks at `blocks`, as far as there are such, in a transaction of its own.
    pub async fn look(
        &mut self,
        which: Which,
        blocks: &[BlockNumber],
        fresh: bool,
    ) -> Result<Seen, LiveError> {
        if fresh {
            self.fingerprint = None;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let looked = match self.begin().await {
                Ok(Some(standing)) => self.inside(&standing, which, blocks).await,
                Ok(None) => {
                    snapshot::abandon(self.connection.client()).await?;
                    return Ok(Seen::Gone);
                }
                Err(error) => Err(error),
            };
            match looked {
                Ok(look) => {
                    snapshot::end(self.connection.client()).await?;
                    return Ok(Seen::Look(look));
                }
                Err(error) => {
                    // If that fails too the connection is gone, as the next query will say.
                    let _ = snapshot::abandon(self.connection.client()).await;
                    if tries >= TRIES || !is_passing(&error) {
                        return Err(error);
                    }
                    self.fingerprint = None;
                }
            }
        }
    }

    /// Begins a transaction with the table described as it is in it; `None` if it is gone.
    pub async fn begin(&mut self) -> Result<Option<Standing>, LiveError> {
        let page = self.about.server.page_size;
        for _ in 0..TRIES {
            let begun = checking::begin(&self.connection, &self.relation, page).await;
            match begun {
                Ok(Some(standing)) if self.fingerprint.as_ref() == Some(&standing.fingerprint) => {
                    return Ok(Some(standing));
                }
                Ok(Some(standing)) => {
                    let client = self.connection.client();
                    let Some(relation) = catalog::describe(client, self.relation.oid).await? else {
                        return Ok(None);
                    };
                    let is_same = relation.quoted() == self.relation.quoted();
                    self.relation = Arc::new(relation);
                    if is_same {
                        self.fingerprint = Some(standing.fingerprint.clone());
                        return Ok(Some(standing));
                    }
                }
                Ok(None) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            // renamed or dropped: described anew, outside of the transaction
            snapshot::abandon(self.connection.client()).await?;
            let oid = self.relation.oid;
            let describe = async || catalog::describe(self.connection.client(), oid).await;
            match self.connection.reading(describe).await? {
                Some(relation) => self.relation = Arc::new(relation),
                None => {
                    self.connection.begin("READ ONLY").await?;
                    return Ok(None);
                }
            }
            self.fingerprint = None;
        }
        Err(LiveError::Unexpected("the table is renamed again and again".into()))
    }

    /// Looks at pages, then at the values that they point to.
    async fn inside(
        &self,
        standing: &Standing,
        which: Which,
        blocks: &[BlockNumber],
    ) -> Result<Look, LiveError> {
        let (mut look, externals) = self.pages(standing, which, blocks).await?;
        look.lsn = standing.lsn;
        if which == Which::Heap && !externals.is_empty() {
            let name = self.name(which);
            let subject = self.subject(standing, which, &name, &self.relation.desc);
            self.values(&subject, externals, &mut look).await?;
        }
        look.findings.sort_by_key(|finding| (finding.place.block, finding.place.item));
        Ok(look)
    }

    pub(super) fn subject<'a>(
        &self,
        standing: &Standing,
        which: Which,
        name: &'a str,
        desc: &'a TupleDesc,
    ) -> Subject<'a> {
        let server = &self.about.server;
        let [frozen, multi] = match which {
            Which::Heap => [standing.frozen, standing.multi],
            Which::Toast => standing.toast,
        };
        let next = TransactionId(standing.snapshot.next_xid() as u32);
        Subject {
            source: name,
            desc,
            page_size: server.page_size,
            flavor: self.about.flavor,
            toast: match (which, &self.relation.toast) {
                _ if server.has_toasters => Toast::Unknown,
                (Which::Heap, Some(toast)) => Toast::Relation(toast.oid),
                _ => Toast::None,
            },
            xids: Some(XidLimits { frozen, multi, next, next_multi: None }),
            commit_status: None,
            checksums: false,
            depth: self.about.depth,
        }
    }

    async fn pages(
        &self,
        standing: &Standing,
        which: Which,
        blocks: &[BlockNumber],
    ) -> Result<(Look, Vec<External>), LiveError> {
        let server = &self.about.server;
        let pageinspect = server
            .pageinspect
            .as_ref()
            .ok_or_else(|| LiveError::Unexpected("pageinspect is gone".into()))?;
        let name = self.name(which);
        let quoted = self.quoted(which);
        let mut reader = PageReader::new(
            Arc::clone(&self.connection),
            pageinspect,
            server.page_size,
            quoted.clone(),
            standing.snapshot.clone(),
        )
        .await?;
        let end = match which {
            Which::Heap => standing.blocks,
            Which::Toast => reader.block_count().await?,
        };
        let there: Vec<BlockNumber> = blocks.iter().copied().filter(|b| b.0 < end).collect();
        if there.is_empty() {
            return Ok((Look { is_complete: true, ..Look::default() }, Vec::new()));
        }
        let pages = reader.read(&there).await?;
        let toast_desc;
        let desc = match which {
            Which::Heap => &self.relation.desc,
            Which::Toast => {
                toast_desc = TupleDesc::toast_relation();
                &toast_desc
            }
        };
        let mut subject = self.subject(standing, which, &name, desc);
        if let Some(limits) = &mut subject.xids {
            limits.next_multi = Some(checking::next_multi(self.connection.client()).await?);
        }
        let customs = self.customs(standing);
        let (mut look, externals) = {
            let mut collector = Collector::new(&subject, Some(&customs));
            let mut chunks = Vec::new();
            for (block, bytes) in pages.iter() {
                subject.check_page(block, bytes, &pages, &mut collector);
                if which == Which::Toast {
                    live_chunks(block, bytes, &pages, |id, xmin| chunks.push((id.0, xmin)));
                }
            }
            let mut look = take(&mut collector);
            look.chunks = chunks;
            let count = there.len() as u64;
            look.looked = match which {
                Which::Heap => Looked { blocks: count, ..look.looked },
                Which::Toast => Looked { toast_blocks: count, ..Looked::default() },
            };
            (look, collector.externals)
        };
        for (block, message) in &pages.unreadable {
            look.is_complete = false;
            self.unreadable(&subject, &quoted, *block, message, &mut look).await?;
        }
        Ok((look, externals))
    }

    /// The values that rows of `blocks` refer to, dead ones included, and whether these are all.
    pub async fn references(
        &self,
        standing: &Standing,
        blocks: &[BlockNumber],
    ) -> Result<(Vec<u32>, bool), LiveError> {
        let depth = Depth { decompress: false, content: false, utf8: false };
        let about = Arc::new(About { depth, ..(*self.about).clone() });
        let quick = Looker {
            connection: Arc::clone(&self.connection),
            about,
            relation: Arc::clone(&self.relation),
            fingerprint: None,
        };
        let look = quick.pages(standing, Which::Heap, blocks).await?.0;
        Ok((look.known, look.is_complete))
    }

    /// What is wrong with a block that the server refuses to read, by its bytes on disk.
    async fn unreadable(
        &self,
        subject: &Subject<'_>,
        quoted: &str,
        block: BlockNumber,
        message: &str,
        look: &mut Look,
    ) -> Result<(), LiveError> {
        let About { server, storage, .. } = &*self.about;
        let client = self.connection.client();
        client.batch_execute("SAVEPOINT toastctl_file").await?;
        let range = block.0..block.0.saturating_add(1);
        let read = storage.on_disk(client, server, quoted, range).await;
        client.batch_execute("ROLLBACK TO SAVEPOINT toastctl_file").await?;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(LiveError::Server(error)) if error.as_db_error().is_some() => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut collector = Collector::new(subject, None);
        let subject = Subject { checksums: storage.checksums, ..*subject };
        if bytes.len() == server.page_size.bytes() {
            subject.check_page(block, &bytes, &HintBits, &mut collector);
        }
        let header = collector.findings.into_iter().find(|f| f.place.item.is_none());
        look.findings.push(header.unwrap_or_else(|| {
            let place = Place { block: Some(block), ..Place::of(subject.source) };
            Finding::new(Code::Unreadable, place, "a page that the server can read", message)
        }));
        Ok(())
    }
}

/// Whether an error may be gone when the same is tried again: the table was changed or renamed, or a
/// standby had to go on.
fn is_passing(error: &LiveError) -> bool {
    let LiveError::Server(error) = error else { return false };
    error.as_db_error().is_some_and(|db| {
        let code = db.code().code();
        code == "40001" || code == "40P01" || code == "42P01" || code == "55000"
    })
}

fn take(collector: &mut Collector<'_>) -> Look {
    Look {
        findings: std::mem::take(&mut collector.findings),
        looked: std::mem::take(&mut collector.looked),
        known: std::mem::take(&mut collector.known),
        is_complete: collector.is_complete,
        unknown: collector.unknown,
        ..Look::default()
    }
}
