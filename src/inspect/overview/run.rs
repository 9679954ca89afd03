//! The overview of a server's relations: each connection takes the next relation, the largest first, until none is
//! left or time is up. The result for one relation is reported immediately and does not affect the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::queue::{Queue, TimeShare};
use super::read::Effort;
use super::{CatalogBytes, Extent, LeftOut, RelationLine};
use crate::drive::out_of_reach;
use crate::inspect::inspector::{InspectError, Inspector};
use crate::inspect::result::RelationReport;
use crate::inspect::run::failed;
use crate::message::Message;
use crate::server::about::Compression;
use crate::server::catalog::Relation;
use crate::server::connect::{CANCEL_PATIENCE, Connection, are_lent};
use crate::server::listing::{self, Listed};
use crate::server::select::Selected;
use crate::server::sink::{Failed, Kind, RunError, Sink, until};
use crate::server::{LiveError, catalog, locks, snapshot};
use toast_format::disk::Oid;

/// Part of the time in which the database's files may be counted.
const PART_FOR_DATABASE: f64 = 0.25;
/// How long after its end a relation's last statement may end.
const GRACE: Duration = Duration::from_millis(300);
/// Relations from which on it is worth the time to find out whether a pooler shares the sessions.
const MANY: usize = 100;
/// Results under way to the output.
const RESULTS: usize = 16;

/// How long relations are read, and how they are reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The time for everything; `None`: as long as it takes.
    pub(crate) max_time: Option<Duration>,
    /// Whether partitions and inheritance children are reported one by one.
    pub(crate) parts: bool,
    /// Whether the relations are shards, which are parts of tables too.
    pub(crate) shards: bool,
    /// Whether another run counts the files of the database and its catalogs.
    pub(crate) counts_no_database: bool,
}

/// A result of the overview, as it arrives.
pub(crate) enum OverviewResult {
    /// The number of relations that will be read.
    Begun(Extent),
    Relation(Box<RelationLine>),
    /// A relation is left out; the reason is reported separately.
    LeftOut(LeftOut),
}

/// Reads the relations that were found until all are read, time is up, or `interrupt` arrives.
///
/// # Errors
/// Failures that affect all relations. Results already passed to `output` remain.
pub(crate) async fn run(
    inspector: &Inspector,
    found: &[Selected],
    all: bool,
    terms: Terms,
    output: &mut dyn Sink<OverviewResult>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut unread = BTreeMap::new();
    let read = overview(inspector, found, all, terms, &mut unread, output);
    let ended = until(interrupt, &inspector.connections, read).await;
    let reason = match &ended {
        Ok(()) => "time was up",
        Err(RunError::Failed(failed)) if failed.kind == Kind::Stopped => "stopped",
        Err(_) => "not reached",
    };
    for Listed { name: relation, bytes, .. } in unread.into_values() {
        let left_out = LeftOut::new(relation, Some(bytes), reason.to_owned());
        output.found(OverviewResult::LeftOut(left_out)).map_err(RunError::Output)?;
    }
    ended
}

/// The result for a relation.
enum RelationOutcome {
    Read(Box<RelationReport>),
    /// It could not be read.
    Failed(Failed),
    /// Why it has no pages that are known here.
    NotHeap(String),
    /// Time was up; the session that has locked the relation, if one has.
    TimeUp(Option<Message>),
    /// Nothing can be read any more.
    Fatal(Failed),
}

/// What a worker sends to the output.
enum WorkerMessage {
    Message(Message),
    Relation(Listed, RelationOutcome),
}

/// Reads the relations and passes on the results. Those without a result stay in `unread`.
async fn overview(
    inspector: &Inspector,
    found: &[Selected],
    all: bool,
    terms: Terms,
    unread: &mut BTreeMap<Oid, Listed>,
    output: &mut dyn Sink<OverviewResult>,
) -> Result<(), RunError> {
    let began = Instant::now();
    let leader = &inspector.leader;
    let oids: Vec<_> = found.iter().map(|found| found.oid).collect();
    let begun = begin(leader, &oids, terms.max_time).await;
    let (mut listed, mut extent) = begun.map_err(|error| Failed::incomplete(&error))?;
    listing::roll_up(&mut listed, found, all && !terms.parts, terms.parts);
    let wholes = Arc::new(Wholes::new(&listed, terms.shards));
    let relations = extent.relations;
    let database_bytes = extent.database_bytes;
    if terms.counts_no_database {
        extent.catalogs = CatalogBytes::default();
        extent.database_bytes = Some(0);
    }
    output.found(OverviewResult::Begun(extent)).map_err(RunError::Output)?;
    let known: HashSet<_> = listed.iter().map(|listed| listed.oid).collect();
    for gone in oids.iter().filter(|oid| !known.contains(oid)) {
        output.failed(Failed::new(
            Kind::Incomplete,
            format!("relation {gone} was dropped during the run"),
        ));
    }
    if listed.len() >= MANY {
        keep_settings(&inspector.connections).await.map_err(|error| Failed::incomplete(&error))?;
    }
    // locked relations come last, so that the others do not wait for them
    listed.sort_by_key(|listed| (listed.locked, Reverse(listed.bytes)));
    let deadline = terms.max_time.map(|time| began + time);
    if let Some(sampling) = inspector.options.sampling {
        let page = inspector.server.page_size.bytes() as u64;
        let blocks = listed.iter().map(|listed| {
            let blocks = u32::try_from(listed.heap_bytes / page).unwrap_or(u32::MAX);
            u64::from(sampling.size.blocks(blocks))
        });
        inspector.progress.begin(&inspector.server.database, blocks.sum());
    }
    unread.extend(listed.iter().map(|listed| (listed.oid, listed.clone())));
    let queue = Arc::new(Queue::new(listed, inspector.connections.len(), deadline));
    let (sender, mut messages) = mpsc::channel(RESULTS);
    let mut workers = JoinSet::new();
    for connection in &inspector.connections {
        let worker = Worker {
            inspector: inspector.with(connection, vec![Arc::clone(connection)]),
            queue: Arc::clone(&queue),
            wholes: Arc::clone(&wholes),
            messages: sender.clone(),
        };
        workers.spawn(worker.run());
    }
    drop(sender);
    while let Some(message) = messages.recv().await {
        match message {
            WorkerMessage::Message(message) => output.message(message),
            WorkerMessage::Relation(listed, outcome) => {
                let oid = listed.oid;
                if pass_on(listed, outcome, database_bytes, output)? {
                    unread.remove(&oid);
                }
            }
        }
    }
    // a worker that ended by itself has reported everything
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
    }
    inspector.progress.end();
    let largest = unread.values().max_by_key(|listed| listed.bytes);
    if let (Some(largest), Some(time)) = (largest, terms.max_time) {
        let failed = match unread.len() {
            1 => Failed::new(Kind::Incomplete, format!("not reached within --max-time {time:?}"))
                .placed(&largest.name),
            many => Failed::new(
                Kind::Incomplete,
                format!(
                    "{many} of {relations} relations were not reached within --max-time {time:?}; the largest is {}",
                    largest.name
                ),
            ),
        };
        output.failed(failed.hint("Use a longer --max-time or more --jobs."));
    }
    Ok(())
}

/// Asks what is known of the relations, their database and the server before any relation is read.
async fn begin(
    leader: &Connection,
    oids: &[Oid],
    max_time: Option<Duration>,
) -> Result<(Vec<Listed>, Extent), LiveError> {
    let listed = listing::list(leader, oids).await?;
    let extent = Extent {
        relations: oids.len() as u64,
        database_bytes: database_bytes(leader, max_time).await?,
        catalogs: catalog_bytes(leader).await?,
        compression: Some(leader.reading(async || Compression::ask(leader.client()).await).await?),
    };
    Ok((listed, extent))
}

/// Passes the result for a relation to the output. Returns whether there is one: not if time was up.
fn pass_on(
    listed: Listed,
    outcome: RelationOutcome,
    database_bytes: Option<u64>,
    output: &mut dyn Sink<OverviewResult>,
) -> Result<bool, RunError> {
    let result = match outcome {
        RelationOutcome::Read(report) => {
            let mut line = RelationLine::new(&report, database_bytes);
            if let Some(root) = listed.root {
                line = line.part_of(root);
            }
            line.figures.rows_read = Some(listed.rows_read);
            line.figures.dead_rows = Some(listed.dead_rows);
            line.figures.vacuum_age_seconds = listed.vacuum_age_seconds;
            OverviewResult::Relation(Box::new(line))
        }
        RelationOutcome::Failed(failed) => {
            let reason = failed.message.text.lines().next().unwrap_or_default().to_owned();
            output.failed(failed);
            OverviewResult::LeftOut(LeftOut::new(listed.name, Some(listed.bytes), reason))
        }
        RelationOutcome::NotHeap(reason) => {
            let left_out = LeftOut::new(listed.name, Some(listed.bytes), reason);
            OverviewResult::LeftOut(LeftOut { not_heap: true, ..left_out })
        }
        RelationOutcome::TimeUp(why) => {
            if let Some(message) = why {
                output.failed(Failed { kind: Kind::Incomplete, message });
            }
            return Ok(false);
        }
        RelationOutcome::Fatal(failed) => return Err(failed.into()),
    };
    output.found(result).map_err(RunError::Output)?;
    Ok(true)
}

/// Sets what each transaction would set once for all of them, if no pooler shares the sessions with other clients.
async fn keep_settings(connections: &[Arc<Connection>]) -> Result<(), LiveError> {
    let [first, second, ..] = connections else { return Ok(()) };
    if are_lent(first, second).await? {
        return Ok(());
    }
    for connection in connections {
        connection.make_own().await?;
    }
    Ok(())
}

/// What system catalogs take.
async fn catalog_bytes(connection: &Connection) -> Result<CatalogBytes, LiveError> {
    let catalogs = listing::list(connection, &listing::catalogs(connection).await?).await?;
    let mut sums = CatalogBytes::default();
    for Listed { oid, bytes, .. } in catalogs {
        sums.catalog_bytes = sums.catalog_bytes.saturating_add(bytes);
        if oid == listing::LARGE_OBJECTS {
            sums.large_object_bytes = bytes;
        }
    }
    Ok(sums)
}

/// Bytes of the database's files, unless counting them takes a notable part of the time.
async fn database_bytes(
    connection: &Connection,
    max_time: Option<Duration>,
) -> Result<Option<u64>, LiveError> {
    let asked = listing::database_bytes(connection);
    let Some(time) = max_time else { return asked.await };
    match timeout(time.mul_f64(PART_FOR_DATABASE), asked).await {
        Ok(bytes) => bytes,
        Err(_) => {
            snapshot::cut_short(connection).await?;
            Ok(None)
        }
    }
}

/// The sizes of tables with parts.
struct Wholes {
    by_root: HashMap<Oid, u64>,
    /// Of all shards on this node.
    shards: Option<u64>,
}

impl Wholes {
    fn new(listed: &[Listed], are_shards: bool) -> Wholes {
        let mut by_root: HashMap<Oid, u64> = HashMap::new();
        for Listed { root, bytes, .. } in listed {
            if let Some(root) = root {
                let sum = by_root.entry(root.oid).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let all = listed.iter().fold(0u64, |sum, listed| sum.saturating_add(listed.bytes));
        Wholes { by_root, shards: are_shards.then_some(all) }
    }

    /// The size of the table that the relation is a part of.
    fn bytes(&self, listed: &Listed) -> Option<u64> {
        let root = listed.root.as_ref();
        root.and_then(|root| self.by_root.get(&root.oid).copied()).or(self.shards)
    }
}

/// One connection's share of the work.
struct Worker {
    inspector: Inspector,
    queue: Arc<Queue>,
    wholes: Arc<Wholes>,
    messages: mpsc::Sender<WorkerMessage>,
}

impl Worker {
    async fn run(self) {
        let connection = &self.inspector.leader;
        while let Some((some, share)) = self.queue.take() {
            let mut known = self.described(&some).await;
            for listed in some {
                let known = known.remove(&listed.oid);
                let work = self.read_relation(&listed, known, share);
                let outcome = match self.queue.deadline() {
                    None => work.await,
                    Some(deadline) => match timeout_at(deadline + GRACE, work).await {
                        Ok(outcome) => outcome,
                        Err(_) => time_up(connection, &listed).await,
                    },
                };
                let is_last = matches!(outcome, RelationOutcome::Fatal(_));
                let sent = self.messages.send(WorkerMessage::Relation(listed, outcome)).await;
                if sent.is_err() || is_last {
                    return;
                }
            }
        }
    }

    /// Describes several relations together. Those that could not be described, because one of them was locked in the
    /// meantime, or time is up, are described one by one.
    async fn described(&self, some: &[Listed]) -> HashMap<Oid, Relation> {
        let [_, _, ..] = some else { return HashMap::new() };
        let connection = &self.inspector.leader;
        let oids: Vec<Oid> = some.iter().map(|listed| listed.oid).collect();
        let asked =
            connection.reading(async || catalog::describe_all(connection.client(), &oids).await);
        let described = match self.queue.deadline() {
            None => asked.await.unwrap_or_default(),
            Some(deadline) => match timeout_at(deadline, asked).await {
                Ok(described) => described.unwrap_or_default(),
                Err(_) => {
                    let _ = snapshot::cut_short(connection).await;
                    Vec::new()
                }
            },
        };
        described.into_iter().map(|relation| (relation.oid, relation)).collect()
    }

    async fn read_relation(
        &self,
        listed: &Listed,
        known: Option<Relation>,
        share: TimeShare,
    ) -> RelationOutcome {
        let inspector = &self.inspector;
        let leader = &inspector.leader;
        let described = match known {
            Some(relation) => Ok(Some(relation)),
            None => {
                leader.reading(async || catalog::describe(leader.client(), listed.oid).await).await
            }
        };
        let relation = match described {
            Ok(Some(relation)) => relation,
            Ok(None) => {
                let message = format!("{} was dropped during the run", listed.name);
                return RelationOutcome::Failed(Failed::new(Kind::Incomplete, message));
            }
            Err(error) => {
                let connections = &inspector.connections;
                return sorted(Failed::at(&listed.name, listed.oid, &error, connections).await);
            }
        };
        if let Some(failed) = out_of_reach(&relation) {
            return RelationOutcome::Failed(failed);
        }
        if let Some(why) = relation.why_no_heap() {
            return RelationOutcome::NotHeap(why);
        }
        if let Some(notice) = inspector.functions_notice(&relation) {
            // nobody receives it if the run has ended
            let _ = self.messages.send(WorkerMessage::Message(notice)).await;
        }
        let whole = self.wholes.bytes(listed);
        match inspector.glance(&relation, Effort { share, whole }).await {
            Ok(report) => RelationOutcome::Read(Box::new(report)),
            Err(error) => {
                // what prevents pages of one heap from being read prevents it for all
                let of_all = matches!(error, InspectError::NoPages(_));
                let failed = failed(inspector, &relation, error).await;
                if of_all { RelationOutcome::Fatal(failed) } else { sorted(failed) }
            }
        }
    }
}

/// A relation that cannot be read does not affect the others.
fn sorted(failed: Failed) -> RelationOutcome {
    match failed.kind {
        Kind::Incomplete | Kind::Denied => RelationOutcome::Failed(failed),
        Kind::Usage | Kind::Lost | Kind::Stopped => RelationOutcome::Fatal(failed),
    }
}

/// Ends what runs on the connection, and reports which session keeps the relation locked, if one does.
async fn time_up(connection: &Connection, listed: &Listed) -> RelationOutcome {
    let why = async {
        snapshot::cut_short(connection).await.ok()?;
        let message = Message::error("time was up").about(&listed.name);
        Some(locks::explained(connection, listed.oid, message).await)
    };
    let why = timeout(CANCEL_PATIENCE, why).await.ok().flatten();
    RelationOutcome::TimeUp(why.filter(|message| message.detail.is_some()))
}
