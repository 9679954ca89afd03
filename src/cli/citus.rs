//! Tables of Citus: a verb runs on every node that has shards of them, as on any server, and what it finds there is
//! reported with the node, as part of one report.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use super::terminal::ReadingProgress;
use crate::inspect::inspector::{Inspector, Options};
use crate::inspect::overview::run::Output as OverviewSink;
use crate::inspect::overview::{Extent, LeftOut, RelationLine};
use crate::inspect::result::RelationReport;
use crate::inspect::run::{self, Output};
use crate::server::citus::{self, Node, Placement, ShardLine, without};
use crate::server::connect::{Connection, SessionOptions};
use crate::server::select::{How, Selected, Selection};
use crate::server::sink::{Failed, Kind, RunError, Sink, UserMessage};
use crate::value::rows::RowWriter;

/// Nodes that are worked on at a time.
const AT_A_TIME: usize = 16;

/// How nodes of Citus are reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection options")]
pub struct NodesArg {
    /// Address of a node of Citus, with {host} and {port}
    ///
    /// Tables of Citus are read on the nodes that hold their shards, with the same user, database and password, at the
    /// addresses that the metadata of Citus (pg_dist_node) gives, or at this one, in which {host} and {port} stand for
    /// those of the metadata: for example 'host={host}.example.com port=6432'. It has host, hostaddr and port only.
    #[arg(
        long,
        value_name = "CONNINFO",
        default_value = "host={host} port={port}",
        hide_default_value = true
    )]
    pub(super) node_address: String,
}

impl NodesArg {
    /// The nodes of the tables of Citus that were selected, if any were.
    ///
    /// # Errors
    /// The metadata could not be read.
    pub(super) async fn cluster<'a>(
        &'a self,
        inspector: &'a Inspector,
        selection: &Selection,
    ) -> Result<Option<Cluster<'a>>, Failure> {
        if selection.on_nodes.is_empty() {
            return Ok(None);
        }
        let first = inspector.leader()?;
        let nodes =
            first.reading(async || citus::nodes(first.client(), &selection.on_nodes).await).await;
        let nodes = nodes.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
        Ok(Some(Cluster { first, nodes, address: &self.node_address, one_by_one: false }))
    }
}

/// The nodes that hold shards of the selected tables, and how they are reached.
pub(super) struct Cluster<'a> {
    pub(super) first: &'a Connection,
    pub(super) nodes: Vec<Node>,
    pub(super) address: &'a str,
    pub(super) one_by_one: bool,
}

impl Cluster<'_> {
    /// Whether shards are reported one by one.
    pub(super) fn one_by_one(self, one_by_one: bool) -> Self {
        Cluster { one_by_one, ..self }
    }

    /// How many shards there are, including copies.
    pub(super) fn shards(&self) -> usize {
        self.nodes.iter().map(|node| node.shards.len()).sum()
    }

    /// Works on the nodes, several at a time, until all are done, `interrupt` comes, or the output cannot be written. A
    /// node that fails affects only its own shards, of which those that are missing are reported.
    ///
    /// # Errors
    /// The output cannot be written, or the work was stopped.
    pub(super) async fn each<O: NodeSink + ?Sized>(
        &self,
        session: &SessionOptions,
        output: &mut O,
        interrupt: impl Future<Output = ()>,
        work: impl AsyncFn(
            Connection,
            &mut OfNode<'_, '_, O>,
            CancellationToken,
        ) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let stop = CancellationToken::new();
        let output = Mutex::new(output);
        let mut visits = stream::iter(&self.nodes)
            .map(|node| self.visit(node, &output, session, &stop, &work))
            .buffer_unordered(AT_A_TIME);
        let mut interrupt = std::pin::pin!(interrupt);
        let mut ended = Ok(());
        loop {
            let visited = tokio::select! {
                visited = visits.next() => visited,
                () = interrupt.as_mut(), if !stop.is_cancelled() => {
                    stop.cancel();
                    continue;
                }
            };
            match visited {
                None => return ended,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    stop.cancel();
                    ended = ended.and(Err(error));
                }
            }
        }
    }

    async fn visit<O: NodeSink + ?Sized>(
        &self,
        node: &Node,
        output: &Mutex<&mut O>,
        session: &SessionOptions,
        stop: &CancellationToken,
        work: &impl AsyncFn(
            Connection,
            &mut OfNode<'_, '_, O>,
            CancellationToken,
        ) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let missing = (0..node.shards.len()).collect();
        let mut of_node = OfNode { output, node, one_by_one: self.one_by_one, missing };
        let connecting = node.connect(self.first, self.address, session);
        let connected = match stop.run_until_cancelled(connecting).await {
            Some(connected) => connected,
            None => Err(Failed::stopped()),
        };
        let done = match connected {
            Ok(connection) => work(connection, &mut of_node, stop.clone()).await,
            Err(failed) => Err(failed.into()),
        };
        match done {
            Err(RunError::Failed(failed))
                if !matches!(failed.kind, Kind::Stopped | Kind::Usage) =>
            {
                of_node.lose(&failed);
                Ok(())
            }
            done => done,
        }
    }
}

/// Takes what is found on all nodes.
pub(super) trait NodeSink: Sink<Self::Found> {
    type Found: Placed;

    /// A shard was not read, because it is not there or its node failed.
    fn missing(&mut self, _shard: &Placement, _node: &str) {}

    /// Something failed on a node, with this shard if it is known.
    fn failed_at(&mut self, node: &Node, _shard: Option<&Placement>, failed: Failed) {
        self.failed(failed.placed(&node.name));
    }

    /// A node failed before there was a result for these shards.
    fn lost(&mut self, node: &Node, missing: &[&Placement], failed: &Failed) {
        let names: Vec<&str> = missing.iter().map(|shard| shard.relation.as_str()).collect();
        let message = without(failed, "not read", &names);
        self.failed_at(node, None, Failed::new(Kind::Incomplete, message));
        missing.iter().for_each(|shard| self.missing(shard, &node.name));
    }
}

/// What is found about a relation.
pub(super) trait Placed {
    /// `schema.name`
    fn relation(&self) -> &str;
    /// It is about a shard. `names`: those of the shard and of the table, without schema; `one_by_one`: whether shards
    /// are not added up.
    fn place(&mut self, shard: ShardLine, names: (&str, &str), one_by_one: bool);
}

impl Placed for RelationLine {
    fn relation(&self) -> &str {
        &self.relation
    }

    fn place(&mut self, shard: ShardLine, names: (&str, &str), one_by_one: bool) {
        self.place(shard, names, one_by_one);
    }
}

impl Placed for RelationReport {
    fn relation(&self) -> &str {
        &self.relation
    }

    fn place(&mut self, shard: ShardLine, names: (&str, &str), _one_by_one: bool) {
        for finding in self.findings.iter_mut().flat_map(|found| &mut found.findings) {
            finding.command = shard.command(&finding.command, names);
        }
        self.shard = Some(shard);
    }
}

/// Takes what is found on a node, and passes it on with the node.
pub(super) struct OfNode<'a, 'o, O: ?Sized> {
    output: &'a Mutex<&'o mut O>,
    pub(super) node: &'a Node,
    one_by_one: bool,
    /// Shards of which nothing has been reported, by their place.
    missing: BTreeSet<usize>,
}

impl<'a, 'o, O: NodeSink + ?Sized> OfNode<'a, 'o, O> {
    /// `host:port` in the metadata of Citus.
    pub(super) fn name(&self) -> &'a str {
        &self.node.name
    }

    pub(super) fn output(&self) -> MutexGuard<'a, &'o mut O> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the node over this connection and others like it.
    ///
    /// # Errors
    /// The server cannot be queried, or is too old.
    pub(super) async fn inspector(
        &self,
        connection: Connection,
        count: u16,
        options: &Options,
    ) -> Result<Inspector, Failed> {
        let progress = Arc::new(ReadingProgress::default());
        run::open(connection, count, options.clone(), progress).await
    }

    /// The shards as relations of the node. Those that are not there are reported.
    ///
    /// # Errors
    /// Any error of the server.
    pub(super) async fn found(&mut self, inspector: &Inspector) -> Result<Vec<Selected>, RunError> {
        let leader = inspector.leader()?;
        let names: Vec<&str> = self.node.shards.iter().map(|shard| shard.name.as_str()).collect();
        let found = leader.reading(async || citus::resolve(leader.client(), &names).await).await;
        let found = found.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
        for (shard, _) in self.node.shards.iter().zip(&found).filter(|(_, oid)| oid.is_none()) {
            let message =
                format!("{}: the shard was not found: it may have been moved", shard.relation);
            self.failed(Failed::new(Kind::Incomplete, message));
            self.output().missing(shard, &self.node.name);
        }
        Ok(found.into_iter().flatten().map(|oid| Selected { oid, how: How::Named }).collect())
    }

    /// The names of the shards that the node still has, quoted as on a command line. The others may have been moved.
    ///
    /// # Errors
    /// Any error of the server.
    pub(super) async fn present(&self, connection: &Connection) -> Result<Vec<String>, Failed> {
        let names: Vec<&str> = self.node.shards.iter().map(|shard| shard.name.as_str()).collect();
        let found =
            connection.reading(async || citus::resolve(connection.client(), &names).await).await;
        let found = found.map_err(|error| Failed::new(Kind::Incomplete, error.to_string()))?;
        let there = names.iter().zip(found).filter(|(_, oid)| oid.is_some());
        Ok(there.map(|(name, _)| (*name).to_owned()).collect())
    }

    /// The shard of this name, of which something is reported now.
    fn shard(&mut self, relation: &str) -> Option<(&'a Placement, ShardLine)> {
        let (at, shard) = self.node.shard(relation)?;
        self.missing.remove(&at);
        let line = ShardLine {
            node: self.node.name.clone(),
            table: shard.table.clone(),
            id: shard.shard,
            copies: shard.copies,
            range: shard.range.clone(),
        };
        Some((shard, line))
    }

    /// Reports that the node failed, and the shards of which nothing was reported.
    fn lose(&mut self, failed: &Failed) {
        let missing: Vec<&Placement> =
            self.missing.iter().filter_map(|&at| self.node.shards.get(at)).collect();
        self.output().lost(self.node, &missing, failed);
    }
}

impl<O: NodeSink + ?Sized> Sink<O::Found> for OfNode<'_, '_, O> {
    fn found(&mut self, mut result: O::Found) -> io::Result<()> {
        if let Some((shard, line)) = self.shard(result.relation()) {
            let (_, name, table) = &shard.names;
            result.place(line, (name, table), self.one_by_one);
        }
        self.output().found(result)
    }

    fn failed(&mut self, failed: Failed) {
        let shard = failed.message.split_once(": ").and_then(|(name, _)| self.node.shard(name));
        self.output().failed_at(self.node, shard.map(|(_, shard)| shard), failed);
    }

    fn message(&mut self, message: UserMessage) {
        self.output().message(message.about(&self.node.name));
    }
}

impl<O: NodeSink<Found = RelationLine> + OverviewSink + ?Sized> OverviewSink for OfNode<'_, '_, O> {
    fn begin(&mut self, extent: Extent) {
        // that of the session's own database is known
        let database_bytes = if self.node.is_here { Some(0) } else { extent.database_bytes };
        self.output().begin(Extent { database_bytes, ..extent });
    }

    fn left_out(&mut self, relation: LeftOut) {
        let _ = self.shard(&relation.relation);
        let name = format!("{} on {}", relation.relation, self.node.name);
        self.output().left_out(LeftOut { relation: name, ..relation });
    }
}

impl<O: NodeSink<Found = RelationReport> + Output + ?Sized> Output for OfNode<'_, '_, O> {
    fn rows(&mut self) -> Option<&mut (dyn RowWriter + Send)> {
        None
    }
}
