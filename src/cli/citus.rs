//! Tables of Citus: a verb runs on every node that has shards of them, as on any server, and what it finds there is
//! reported with the node, as part of one report.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;

use clap::Args;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::exit::Failure;
use super::terminal::{ReadingProgress, Ui};
use crate::check::run::CheckResult;
use crate::drive::sites::{Limits, Pending, Step, each_site};
use crate::inspect::inspector::{Inspector, Options};
use crate::inspect::overview::run::OverviewResult;
use crate::inspect::overview::{CatalogBytes, LeftOut};
use crate::inspect::result::RelationReport;
use crate::inspect::run;
use crate::message::Message;
use crate::retoast::run::results::Swept;
use crate::server::citus::{self, FailedShard, Node, Placement, SHARD_MOVED, ShardLine, by_table};
use crate::server::connect::{Connection, SessionOptions};
use crate::server::select::{How, Selected, Selection};
use crate::server::sink::{Failed, Kind, RunError, Sink};
use toast_format::disk::Oid;

/// Nodes that are worked on at a time.
const LIMITS: Limits = Limits { in_all: 16, per_server: 16 };

/// How nodes of Citus are reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection options")]
pub struct NodesArg {
    /// Address of a node of Citus, with {host} and {port}
    ///
    /// Tables of Citus are read on the nodes that hold their shards, with the same user, database and password, at the
    /// addresses that the metadata of Citus (pg_dist_node) gives, or at this one, in which {host} and {port} stand for
    /// those of the metadata: for example 'host={host}.example.com port=6432'. It has host, hostaddr and port only.
    #[arg(long, value_name = "CONNINFO", default_value = "host={host} port={port}")]
    pub(super) node_address: String,
}

impl NodesArg {
    /// The nodes of the tables of Citus that were selected; none if none were.
    ///
    /// # Errors
    /// The metadata could not be read.
    pub(super) async fn cluster<'a>(
        &'a self,
        ui: &'a Ui,
        inspector: &'a Inspector,
        selection: &Selection,
    ) -> Result<Cluster<'a>, Failure> {
        let first = &inspector.leader;
        let tables = &selection.on_nodes;
        let mut nodes = Vec::new();
        let mut is_read_elsewhere = false;
        if !tables.is_empty() {
            is_read_elsewhere = is_of_another_run(ui, first).await?;
            if !is_read_elsewhere {
                let found = first.reading(async || citus::nodes(first.client(), tables).await);
                nodes = found.await.map_err(|error| Failed::incomplete(&error))?;
            }
        }
        let address = &self.node_address;
        Ok(Cluster { ui, first, nodes, address, one_by_one: false, is_read_elsewhere })
    }
}

/// Whether the tables of Citus of this server belong to the run on another node of the same cluster, which is reported.
///
/// # Errors
/// The metadata could not be read.
pub(super) async fn is_of_another_run(ui: &Ui, first: &Connection) -> Result<bool, Failed> {
    let Some(run) = &ui.target else { return Ok(false) };
    let asked = first.reading(async || citus::cluster(first.client()).await).await;
    let cluster = asked.map_err(|error| Failed::incomplete(&error))?;
    let Some(other) = cluster.and_then(|key| run.other_run_of_cluster(key)) else {
        return Ok(false);
    };
    let text = format!(
        "is a node of the same cluster of Citus as {other}, whose run includes the tables of Citus"
    );
    ui.tell(Message::notice(text));
    Ok(true)
}

/// The nodes that hold shards of the selected tables, and how they are reached.
pub(super) struct Cluster<'a> {
    pub(super) ui: &'a Ui,
    pub(super) first: &'a Connection,
    pub(super) nodes: Vec<Node>,
    pub(super) address: &'a str,
    /// Whether shards are reported one by one.
    pub(super) one_by_one: bool,
    /// Whether the run on another node reads it.
    pub(super) is_read_elsewhere: bool,
}

impl Cluster<'_> {
    /// How many shards there are, including copies.
    pub(super) fn shards(&self) -> usize {
        self.nodes.iter().map(|node| node.shards.len()).sum()
    }

    /// Works on the nodes, several at a time, until all are done, `interrupt` comes, or the output cannot be written. A
    /// node that fails affects only its own shards, of which those that are missing are reported.
    ///
    /// # Errors
    /// The output cannot be written, or the work was stopped.
    pub(super) async fn each_node<R: ShardResult>(
        &self,
        session: &SessionOptions,
        output: &mut dyn Sink<R>,
        interrupt: impl Future<Output = ()>,
        work: impl AsyncFn(Connection, &mut NodeOutput<'_, '_, R>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let stop = CancellationToken::new();
        let of_shards = Mutex::default();
        let mut output = Mutex::new(output);
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let missing = (0..node.shards.len()).collect();
            let target = NodeOutput {
                output: &output,
                of_shards: &of_shards,
                cluster: self,
                node,
                stop: &stop,
                missing,
            };
            nodes.push(Pending { server_key: String::new(), target });
        }
        let interrupt = async {
            interrupt.await;
            stop.cancel();
        };
        let mut ended = Ok(());
        let is_complete = each_site(
            nodes,
            LIMITS,
            async |node: NodeOutput<'_, '_, R>| Step::Done(self.visit(session, node, &work).await),
            interrupt,
            |done| {
                if done.is_err() {
                    stop.cancel();
                }
                if ended.is_ok() {
                    ended = done;
                }
                !stop.is_cancelled()
            },
        )
        .await
        .is_empty();
        let of_shards = of_shards.into_inner();
        let output = output.get_mut();
        by_table(of_shards).into_iter().for_each(|failed| output.failed(failed));
        if ended.is_ok() && !is_complete {
            return Err(Failed::stopped().into());
        }
        ended
    }

    async fn visit<R: ShardResult>(
        &self,
        session: &SessionOptions,
        mut output: NodeOutput<'_, '_, R>,
        work: &impl AsyncFn(Connection, &mut NodeOutput<'_, '_, R>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let connecting = output.node.connect(self.first, self.address, session);
        let done = match output.stop.run_until_cancelled(connecting).await {
            Some(Ok(connection)) => work(connection, &mut output).await,
            Some(Err(failed)) => Err(failed.into()),
            None => Err(Failed::stopped().into()),
        };
        match done {
            Err(RunError::Failed(failed))
                if !matches!(failed.kind, Kind::Stopped | Kind::Usage) =>
            {
                output.lose(failed)
            }
            done => done,
        }
    }
}

/// A result that is one of a shard if it was found on a node.
pub(super) trait ShardResult: Sized {
    /// Whether a failure of several shards of a table for the same reason is one of the table.
    const JOINS_FAILURES: bool = true;
    /// `schema.name` of the relation that is done with this result.
    fn relation(&self) -> Option<&str>;
    /// It is about this node, and about this shard if it is known.
    fn place(&mut self, node: &Node, shard: Option<ShardOf<'_>>);
    /// The result for a shard that was not read, because it does not exist or its node failed.
    fn missing(_shard: &Placement, _node: &Node) -> Option<Self> {
        None
    }
}

/// The shard of a result.
pub(super) struct ShardOf<'a> {
    line: ShardLine,
    placement: &'a Placement,
    /// Whether shards are not added up.
    one_by_one: bool,
}

impl ShardOf<'_> {
    /// The names of the shard and of the table, without schema.
    fn names(&self) -> (&str, &str) {
        let (_, shard, table) = &self.placement.names;
        (shard, table)
    }
}

impl ShardResult for OverviewResult {
    fn relation(&self) -> Option<&str> {
        match self {
            OverviewResult::Begun(_) => None,
            OverviewResult::Relation(line) => Some(&line.read.name.relation),
            OverviewResult::LeftOut(left_out) => Some(&left_out.relation),
        }
    }

    fn place(&mut self, node: &Node, shard: Option<ShardOf<'_>>) {
        match (self, shard) {
            // that of the session's own database is known
            (OverviewResult::Begun(extent), _) if node.is_here => {
                extent.database_bytes = Some(0);
                extent.catalogs = CatalogBytes::default();
            }
            (OverviewResult::Relation(line), Some(shard)) => {
                let whole = (!shard.one_by_one).then(|| shard.placement.table_name.clone());
                line.place(shard.line.clone(), shard.names(), whole);
            }
            (OverviewResult::LeftOut(left_out), shard) => {
                left_out.relation = format!("{} on {}", left_out.relation, node.name);
                let shard = shard.filter(|shard| !shard.one_by_one);
                left_out.whole = shard.map(|shard| shard.placement.table.clone());
            }
            (OverviewResult::Begun(_) | OverviewResult::Relation(_), _) => {}
        }
    }

    fn missing(shard: &Placement, node: &Node) -> Option<OverviewResult> {
        let relation = format!("{} on {}", shard.relation, node.name);
        let reason = "its node failed".into();
        let left_out = LeftOut::new(relation, None, reason);
        let whole = Some(shard.table.clone());
        Some(OverviewResult::LeftOut(LeftOut { whole, ..left_out }))
    }
}

impl ShardResult for RelationReport {
    fn relation(&self) -> Option<&str> {
        Some(&self.read.name.relation)
    }

    fn place(&mut self, _: &Node, shard: Option<ShardOf<'_>>) {
        let Some(shard) = shard else { return };
        for finding in self.findings.iter_mut().flat_map(|found| &mut found.findings) {
            finding.command = shard.line.command(&finding.command, shard.names());
        }
        self.read.shard = Some(shard.line);
    }
}

impl ShardResult for CheckResult {
    fn relation(&self) -> Option<&str> {
        match self {
            CheckResult::Relation(checked) => Some(&checked.relation),
            CheckResult::Finding(_) | CheckResult::Statements(_) => None,
        }
    }

    fn place(&mut self, node: &Node, shard: Option<ShardOf<'_>>) {
        let name = &node.name;
        match self {
            CheckResult::Finding(finding) => {
                finding.node = Some(name.clone());
                if let Some(sql) = &mut finding.sql {
                    sql.push_str(&format!(" -- on {name}"));
                }
            }
            CheckResult::Relation(checked) => checked.shard = shard.map(|shard| shard.line),
            CheckResult::Statements(statements) if statements.is_empty() => {}
            CheckResult::Statements(statements) => statements.insert(0, format!("-- on {name}")),
        }
    }
}

impl ShardResult for Swept {
    /// Which shards are worked on again depends on them.
    const JOINS_FAILURES: bool = false;

    fn relation(&self) -> Option<&str> {
        Some(&self.report.subject.relation)
    }

    fn place(&mut self, _: &Node, shard: Option<ShardOf<'_>>) {
        self.report.subject.shard = shard.map(|shard| shard.line);
    }
}

/// Takes what is found on a node, and passes it on with the node.
pub(super) struct NodeOutput<'a, 'o, R> {
    output: &'a Mutex<&'o mut dyn Sink<R>>,
    /// Failures of shards on all nodes, until these are done.
    of_shards: &'a Mutex<Vec<FailedShard>>,
    cluster: &'a Cluster<'a>,
    pub(super) node: &'a Node,
    stop: &'a CancellationToken,
    /// Shards of which nothing has been reported, by their place.
    missing: BTreeSet<usize>,
}

impl<'a, 'o, R: ShardResult> NodeOutput<'a, 'o, R> {
    /// Ends when the run is stopped.
    pub(super) fn stopped(&self) -> WaitForCancellationFuture<'a> {
        self.stop.cancelled()
    }

    /// Reads the node over this connection and others like it. Returns also its shards, as relations of the node; those
    /// that do not exist are reported.
    ///
    /// # Errors
    /// The server cannot be queried, or is too old.
    pub(super) async fn opened(
        &mut self,
        connection: Connection,
        count: u16,
        options: &Options,
    ) -> Result<(Inspector, Vec<Selected>), RunError> {
        let progress = ReadingProgress::new(self.cluster.ui);
        let inspector = run::open(connection, count, options.clone(), progress).await?;
        let mut found = Vec::new();
        for (shard, oid) in self.resolved(&inspector.leader).await? {
            if let Some(oid) = oid {
                found.push(Selected { oid, how: How::Named });
                continue;
            }
            self.failed(Failed::new(Kind::Incomplete, SHARD_MOVED).placed(&shard.relation));
            if let Some(result) = R::missing(shard, self.node) {
                self.output.lock().found(result).map_err(RunError::Output)?;
            }
        }
        Ok((inspector, found))
    }

    /// The names of the shards that the node still has, quoted as on a command line. The others may have been moved.
    ///
    /// # Errors
    /// Any error of the server.
    pub(super) async fn present(&self, connection: &Connection) -> Result<Vec<String>, Failed> {
        let shards = self.resolved(connection).await?.into_iter();
        Ok(shards.filter_map(|(shard, oid)| oid.map(|_| shard.name.clone())).collect())
    }

    /// The shards that the metadata places on the node, each with the relation if it exists.
    async fn resolved(
        &self,
        connection: &Connection,
    ) -> Result<Vec<(&'a Placement, Option<Oid>)>, Failed> {
        let names: Vec<&str> = self.node.shards.iter().map(|shard| shard.name.as_str()).collect();
        let found =
            connection.reading(async || citus::resolve(connection.client(), &names).await).await;
        let found = found.map_err(|error| Failed::incomplete(&error))?;
        Ok(self.node.shards.iter().zip(found).collect())
    }

    /// Reports that the node failed, and the shards of which nothing was reported. A relation on which the failure
    /// occurred is named in its text.
    fn lose(&mut self, mut failed: Failed) -> Result<(), RunError> {
        let missing: Vec<&Placement> =
            self.missing.iter().filter_map(|&at| self.node.shards.get(at)).collect();
        let occurred_at = failed.message.at.to_string();
        failed.message.text.insert_str(0, &occurred_at);
        failed.message.at.relations = missing.iter().map(|shard| shard.relation.clone()).collect();
        self.failed(failed);
        for result in missing.iter().filter_map(|shard| R::missing(shard, self.node)) {
            self.output.lock().found(result).map_err(RunError::Output)?;
        }
        Ok(())
    }
}

impl<R: ShardResult> Sink<R> for NodeOutput<'_, '_, R> {
    fn found(&mut self, mut result: R) -> io::Result<()> {
        let shard = result.relation().and_then(|relation| self.node.shard(relation));
        let shard = shard.map(|(at, placement)| {
            self.missing.remove(&at);
            let line = ShardLine {
                node: self.node.name.clone(),
                table: placement.table.clone(),
                id: placement.shard,
                copies: placement.copies,
                range: placement.range.clone(),
            };
            ShardOf { line, placement, one_by_one: self.cluster.one_by_one }
        });
        result.place(self.node, shard);
        self.output.lock().found(result)
    }

    fn failed(&mut self, mut failed: Failed) {
        failed.message.at.node = Some(self.node.name.clone());
        let shard = match failed.message.at.relations.as_slice() {
            [relation] if R::JOINS_FAILURES => self.node.shard(relation),
            _ => None,
        };
        match shard {
            Some((_, shard)) => {
                let table = shard.table.clone();
                self.of_shards.lock().push(FailedShard { table, failed });
            }
            None => self.output.lock().failed(failed),
        }
    }

    fn message(&mut self, mut message: Message) {
        message.at.node = Some(self.node.name.clone());
        self.output.lock().message(message);
    }
}
