//! Tables of Citus in verbs that write: all nodes are examined before anything is changed, then the tables themselves get
//! the settings, on every node, and then the shards are worked on, each node by itself. The metadata is read again until
//! it has no shard without a result, so that shards which Citus moves, splits or adds are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::citus::{Cluster, NodeSink, NodesArg, OfNode, Placed};
use super::retoast_output::RetoastOutput;
use super::terminal::tell;
use crate::retoast::listener::{Advance, Control, Figures, Listener};
use crate::retoast::memory::finished::Finished;
use crate::retoast::pace::rules::Pause;
use crate::retoast::preflight::parents::Parent;
use crate::retoast::result::{CitusReport, MissingShard, NOT_BEGUN, Outcome, SkippedRow};
use crate::retoast::run::request::{Assignment, Request};
use crate::retoast::run::results::Swept;
use crate::retoast::run::tables;
use crate::server::citus::{self, Node, Placement, ShardLine, without};
use crate::server::connect::{Connection, SessionOptions};
use crate::server::select::select_with_citus;
use crate::server::sink::{Failed, Kind, RunError, Sink, UserMessage};
use crate::server::{LiveError, about};
use toast_format::disk::Oid;
use toast_format::judge::goal::Goal;
use toast_format::model::sql::shown_qualified;

/// How often a shard without a result is worked on in one run.
const TRIES: u32 = 2;

/// A node and a shard on it.
type Place = (String, String);

/// A run on tables of Citus.
pub(super) struct Run<'a> {
    pub(super) first: &'a Connection,
    pub(super) address: &'a NodesArg,
    pub(super) session: SessionOptions,
    pub(super) request: &'a Request,
    pub(super) control: &'a Arc<Control>,
    pub(super) listener: &'a dyn Listener,
}

impl Run<'_> {
    /// The tables of Citus that the request selects; none if it is not one for Citus.
    ///
    /// # Errors
    /// It selects other tables too, or asks for what cannot be done with shards.
    pub(super) async fn tables(&self) -> Result<Vec<Oid>, Failed> {
        let first = self.first;
        let request = self.request;
        let Assignment::Tables(tasks) = &request.work else { return Ok(Vec::new()) };
        if request.tables.is_empty() {
            return Ok(Vec::new());
        }
        // asked outside of a transaction: a pooler that assigns sessions per statement would end the session, and the run on
        // this server says better what is wrong
        if !citus::is_here(first.client()).await.unwrap_or(false) {
            return Ok(Vec::new());
        }
        let selected: Result<_, LiveError> = first
            .reading(async || {
                let database = about::database(first.client()).await?;
                select_with_citus(first, &database, &request.tables).await
            })
            .await;
        // The run on this server reports errors.
        let Ok(selection) = selected else { return Ok(Vec::new()) };
        if selection.on_nodes.is_empty() {
            return Ok(Vec::new());
        }
        if !selection.found.is_empty() {
            return refused(
                "some of these tables are tables of Citus, and others are not\n\
                 HINT:  Name them in two commands.",
            );
        }
        let by_policy =
            tasks.convert.as_ref().is_some_and(|wanted| matches!(wanted.goal, Goal::Policy(_)));
        for (given, what) in [
            (by_policy, "--policy"),
            (request.since.is_some(), "--since"),
            (request.options.restores_settings, "--undo"),
            (request.options.enforce, "--set enforce=on"),
            (request.options.origin.is_some(), "--set replication-origin"),
        ] {
            if given {
                return refused(&format!("{what} is not supported for tables of Citus"));
            }
        }
        Ok(selection.on_nodes)
    }

    /// Works on all shards of these tables.
    ///
    /// # Errors
    /// Nothing was changed, or the settings could not be changed on all nodes. What became of shards is in the output.
    pub(super) async fn run(
        &self,
        tables: &[Oid],
        output: &mut RetoastOutput,
    ) -> Result<(), RunError> {
        let (nodes, names) = self
            .first
            .reading(async || citus::all_nodes(self.first.client(), tables).await)
            .await
            .map_err(|error| unread(&error))?;
        let mut examined = Examined { names, shells: BTreeMap::new(), failed: Vec::new() };
        self.examine(nodes.clone(), &mut examined).await?;
        if let Some(last) = examined.failed.pop() {
            examined.failed.into_iter().for_each(|failed| output.failed(failed));
            return Err(
                Failed::new(last.kind, format!("{}\nNothing was changed.", last.message)).into()
            );
        }
        let shells = examined.shells;
        self.set(nodes, &shells).await?;
        let mut results = Results::default();
        let (placements, ended) = self.convert(tables, &mut results).await;
        results.report(&placements, &shells, self.control.stopped(), output);
        ended
    }

    fn cluster(&self, nodes: Vec<Node>) -> Cluster<'_> {
        Cluster { first: self.first, nodes, address: &self.address.node_address, one_by_one: false }
    }

    /// The request for the shards of a node.
    fn of_node(&self, node: &Node) -> Request {
        let checkpoint = self.request.checkpoint.as_deref();
        Request {
            tables: node.shards.iter().map(|shard| shard.name.clone()).collect(),
            checkpoint: checkpoint
                .map(|path| -> PathBuf { Finished::of_database(path, &node.name) }),
            ..self.request.clone()
        }
    }

    /// Examines the shards on all nodes, and the tables themselves.
    async fn examine(&self, nodes: Vec<Node>, examined: &mut Examined) -> Result<(), RunError> {
        let names = examined.names.clone();
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each(
                &self.session,
                examined,
                stop,
                async |connection, node: &mut OfNode<'_, '_, Examined>, _: CancellationToken| {
                    let request = self.of_node(node.node);
                    let control = Arc::clone(self.control);
                    let listener =
                        OnNode { is_quiet: true, ..OnNode::new(self.listener, node.node) };
                    let shells =
                        tables::examine(connection, &request, &names, control, &listener).await?;
                    node.output().shells.insert(node.node.name.clone(), shells);
                    Ok(())
                },
            )
            .await
    }

    /// Gives the tables themselves the settings on all nodes, because shards that Citus moves or splits take theirs from
    /// them.
    async fn set(
        &self,
        mut nodes: Vec<Node>,
        shells: &BTreeMap<String, Vec<Parent>>,
    ) -> Result<(), RunError> {
        nodes.retain(|node| shells.get(&node.name).is_some_and(|shells| !shells.is_empty()));
        let Some(first) = nodes.first().and_then(|node| shells.get(&node.name)) else {
            return Ok(());
        };
        let count = nodes.len();
        if self.request.options.dry_run {
            for Parent { alter, .. } in first {
                tell(UserMessage::Notice(format!("would set on {count} nodes: {alter}")));
            }
            return Ok(());
        }
        let mut failures = Examined::default();
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each(
                &self.session,
                &mut failures,
                stop,
                async |connection: Connection,
                       node: &mut OfNode<'_, '_, Examined>,
                       _: CancellationToken| {
                    let shells = shells.get(&node.node.name).map_or(&[][..], Vec::as_slice);
                    connection.make_own().await.map_err(|error| unread(&error.into()))?;
                    let request = self.request;
                    let control = self.control;
                    let listener = OnNode::new(self.listener, node.node);
                    tables::set_shells(&connection, shells, request, control, &listener).await?;
                    Ok(())
                },
            )
            .await?;
        if let Some(Failed { kind, message }) = failures.failed.into_iter().next() {
            let message = format!(
                "{message}\nNo value was converted. The settings may have been changed on other nodes.\n\
                 HINT:  Run the command again."
            );
            return Err(Failed::new(kind, message).into());
        }
        for Parent { alter, .. } in first {
            tell(UserMessage::Notice(format!("set on {count} nodes: {alter}")));
        }
        Ok(())
    }

    /// Works on the shards until the metadata has none without a result, or those that have none have been tried twice.
    /// Returns the shards in the metadata as it was at the end, and why that is not known.
    async fn convert(
        &self,
        tables: &[Oid],
        results: &mut Results,
    ) -> (Vec<Node>, Result<(), RunError>) {
        let mut known = Vec::new();
        loop {
            match self.placements(tables).await {
                Ok(nodes) => known = nodes,
                Err(failed) => {
                    let message = format!(
                        "it is not known whether shards were moved, split or added: {}",
                        failed.message
                    );
                    return (known, Err(Failed::new(failed.kind, message).into()));
                }
            }
            let mut left = known.clone();
            for node in &mut left {
                let name = node.name.clone();
                node.shards.retain(|shard| results.begin(&name, shard));
            }
            left.retain(|node| !node.shards.is_empty());
            if left.is_empty() || self.control.stopped() {
                return (known, Ok(()));
            }
            match self.work(left, results).await {
                Err(RunError::Failed(Failed { kind: Kind::Stopped, .. })) => {
                    return (known, Ok(()));
                }
                Err(error) => return (known, Err(error)),
                Ok(()) => {}
            }
        }
    }

    /// Reads the metadata, in a new session because the first one may have been idle for long.
    async fn placements(&self, tables: &[Oid]) -> Result<Vec<Node>, Failed> {
        let opened = self.first.open_another().await;
        let connection = opened.map_err(|error| Failed::from(&error))?;
        connection
            .reading(async || citus::nodes(connection.client(), tables).await)
            .await
            .map_err(|error| unread(&error))
    }

    /// Works on these shards, each node by itself.
    async fn work(&self, nodes: Vec<Node>, results: &mut Results) -> Result<(), RunError> {
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each(
                &self.session,
                results,
                stop,
                async |connection: Connection,
                       node: &mut OfNode<'_, '_, Results>,
                       _: CancellationToken| {
                    let present = node.present(&connection).await?;
                    if present.is_empty() {
                        return Ok(());
                    }
                    let request = Request { tables: present, ..self.of_node(node.node) };
                    let control = Arc::clone(self.control);
                    let listener = OnNode::new(self.listener, node.node);
                    tables::run(connection, &request, control, &listener, node).await.map(drop)
                },
            )
            .await
    }
}

fn refused<T>(why: &str) -> Result<T, Failed> {
    Err(Failed::new(Kind::Usage, why))
}

fn unread(error: &LiveError) -> Failed {
    Failed::new(Kind::Incomplete, error.to_string())
}

/// Adds the name of the node to what its work reports. A note that is the same for several shards is passed on once.
struct OnNode<'a> {
    listener: &'a dyn Listener,
    node: &'a Node,
    /// While tables are examined: their notes are repeated when they are worked on.
    is_quiet: bool,
    noted: Mutex<BTreeSet<String>>,
}

impl<'a> OnNode<'a> {
    fn new(listener: &'a dyn Listener, node: &'a Node) -> OnNode<'a> {
        OnNode { listener, node, is_quiet: false, noted: Mutex::default() }
    }

    fn named(&self, relation: &str) -> String {
        format!("{} {relation}", self.node.name)
    }
}

impl Listener for OnNode<'_> {
    fn progress(&self, relation: &str, advance: &Advance) {
        self.listener.progress(&self.named(relation), advance);
    }

    fn refused(&self, relation: &str, row: &SkippedRow) {
        self.listener.refused(&self.named(relation), row);
    }

    fn rebuilds(&self, relation: &str, index: &str, number: usize, indexes: usize) {
        self.listener.rebuilds(&self.named(relation), index, number, indexes);
    }

    fn note(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        let about = text.split_once(": ").filter(|(name, _)| self.node.shard(name).is_some());
        if let Some((_, what)) = about {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            if !noted.insert(what.to_owned()) {
                return;
            }
        }
        self.listener.note(&self.named(text));
    }

    fn figures(&self, figures: &Figures) {
        self.listener.figures(figures);
    }

    fn paused(&self, pause: Option<&Pause>) {
        self.listener.paused(pause);
    }
}

/// The results of examining the nodes.
#[derive(Default)]
struct Examined {
    /// The tables, as SQL names them.
    names: Vec<String>,
    /// The settings that the tables need, by node.
    shells: BTreeMap<String, Vec<Parent>>,
    failed: Vec<Failed>,
}

impl Sink<Swept> for Examined {
    fn found(&mut self, _: Swept) -> io::Result<()> {
        Ok(())
    }

    fn failed(&mut self, failed: Failed) {
        self.failed.push(failed);
    }

    fn message(&mut self, message: UserMessage) {
        tell(message);
    }
}

impl NodeSink for Examined {
    type Found = Swept;

    fn lost(&mut self, node: &Node, _: &[&Placement], failed: &Failed) {
        self.failed(failed.clone().placed(&node.name));
    }
}

impl Placed for Swept {
    fn relation(&self) -> &str {
        &self.report.subject.relation
    }

    fn place(&mut self, shard: ShardLine, _: (&str, &str), _: bool) {
        self.report.subject.shard = Some(shard);
    }
}

/// The results of shards.
#[derive(Default)]
struct Results {
    /// The last one of each.
    of: BTreeMap<Place, Swept>,
    tries: BTreeMap<Place, u32>,
    /// Why the last try of a shard failed.
    why: BTreeMap<Place, Failed>,
    /// Failures that are not those of shards.
    others: Vec<Failed>,
}

impl Results {
    /// Whether a shard is worked on now, and not done.
    fn begin(&mut self, node: &str, shard: &Placement) -> bool {
        let place = (node.to_owned(), shard.relation.clone());
        let last = self.of.get(&place);
        let is_done = last.is_some_and(|swept| swept.report.outcome != Outcome::Failed);
        let tries = self.tries.entry(place).or_default();
        if *tries >= TRIES || is_done {
            return false;
        }
        *tries += 1;
        true
    }

    /// Reports the shards that the metadata had at the end. Those that were moved away or split do not count.
    fn report(
        mut self,
        nodes: &[Node],
        shells: &BTreeMap<String, Vec<Parent>>,
        stopped: bool,
        output: &mut RetoastOutput,
    ) {
        let mut reports: BTreeMap<String, CitusReport> = BTreeMap::new();
        let mut position = 0;
        for node in nodes {
            let mut with_node: BTreeMap<String, CitusReport> = BTreeMap::new();
            for shard in &node.shards {
                let place = (node.name.clone(), shard.relation.clone());
                let report = with_node.entry(shard.table.clone()).or_default();
                report.shards += 1;
                let swept = self.of.remove(&place);
                let is_done =
                    swept.as_ref().is_some_and(|one| one.report.outcome != Outcome::Failed);
                if let Some(swept) = swept {
                    position += 1;
                    // the output only keeps it
                    let _ = output.found(Swept { position, ..swept });
                }
                if !is_done {
                    let why = if stopped { NOT_BEGUN } else { "it was not reached" };
                    let Failed { message: reason, .. } = self
                        .why
                        .remove(&place)
                        .unwrap_or_else(|| Failed::new(Kind::Incomplete, why));
                    let relation = shard.relation.clone();
                    let node = node.name.clone();
                    report.missing.push(MissingShard { relation, node, reason });
                }
            }
            for (table, more) in with_node {
                let report = reports
                    .entry(table.clone())
                    .or_insert(CitusReport { table, ..CitusReport::default() });
                report.nodes += 1;
                report.shards += more.shards;
                report.missing.extend(more.missing);
            }
        }
        for Parent { name, alter } in shells.values().flatten() {
            // that of a partition is one of the partitioned table
            let table = nodes
                .iter()
                .flat_map(|node| &node.shards)
                .find(|shard| shown_qualified(&shard.names.0, &shard.names.2) == *name)
                .map_or(name, |shard| &shard.table);
            if let Some(report) = reports.get_mut(table)
                && !report.set.contains(alter)
            {
                report.set.push(alter.clone());
            }
        }
        self.fail(&reports, output);
        output.citus = reports.into_values().collect();
    }

    /// Reports why shards have no result, those of one node and reason together.
    fn fail(self, reports: &BTreeMap<String, CitusReport>, output: &mut RetoastOutput) {
        let mut by_reason: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        let missing = reports.values().flat_map(|report| &report.missing);
        for missing in missing.filter(|missing| missing.reason != NOT_BEGUN) {
            let reason = missing
                .reason
                .strip_prefix(&missing.relation)
                .map_or(missing.reason.as_str(), |rest| rest.trim_start_matches(": "));
            by_reason.entry((&missing.node, reason)).or_default().push(&missing.relation);
        }
        for ((node, reason), shards) in by_reason {
            let failed = Failed::new(Kind::Incomplete, reason);
            let message = without(&failed, "not complete", &shards);
            output.failed(Failed::new(Kind::Incomplete, format!("{node}: {message}")));
        }
        self.others.into_iter().for_each(|failed| output.failed(failed));
    }
}

impl Sink<Swept> for Results {
    fn found(&mut self, mut swept: Swept) -> io::Result<()> {
        let Some(shard) = &swept.report.subject.shard else { return Ok(()) };
        let place = (shard.node.clone(), swept.report.subject.relation.clone());
        // the settings are also those of the table
        swept.report.common.notes.retain(|note| !note.starts_with("a shard of "));
        self.why.remove(&place);
        self.of.insert(place, swept);
        Ok(())
    }

    fn failed(&mut self, failed: Failed) {
        self.others.push(failed);
    }

    fn message(&mut self, message: UserMessage) {
        tell(message);
    }
}

impl NodeSink for Results {
    type Found = Swept;

    fn failed_at(&mut self, node: &Node, shard: Option<&Placement>, failed: Failed) {
        match shard {
            Some(shard) => {
                self.why.insert((node.name.clone(), shard.relation.clone()), failed);
            }
            None => self.failed(failed.placed(&node.name)),
        }
    }

    fn lost(&mut self, node: &Node, missing: &[&Placement], failed: &Failed) {
        for shard in missing {
            self.why.insert((node.name.clone(), shard.relation.clone()), failed.clone());
        }
    }
}
