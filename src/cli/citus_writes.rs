//! Tables of Citus in verbs that write: all nodes are examined before anything is changed, then the tables themselves get
//! the settings, on every node, and then the shards are worked on, each node by itself. The metadata is read again until
//! it has no shard without a result, so that shards which Citus moves, splits or adds are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::citus::{Cluster, NodesArg};
use super::retoast_output::RetoastOutput;
use super::terminal::Ui;
use crate::message::Message;
use crate::retoast::listener::{Advance, Control, Figures, Listener};
use crate::retoast::memory::finished::Finished;
use crate::retoast::pace::rules::Pause;
use crate::retoast::preflight;
use crate::retoast::preflight::parents::Parent;
use crate::retoast::preflight::ready::ConvertRequest;
use crate::retoast::result::{CitusReport, MissingShard, NOT_BEGUN, Outcome, SkippedRow};
use crate::retoast::run::request::{Assignment, Request, Tasks};
use crate::retoast::run::results::Swept;
use crate::retoast::run::tables;
use crate::server::citus::{self, Node, Placement, by_reason};
use crate::server::connect::{Connection, SessionOptions};
use crate::server::select::{Reach, select_within};
use crate::server::sink::{Failed, Kind, RunError, Sink};
use crate::server::{LiveError, about, catalog};
use toast_format::disk::Oid;
use toast_format::judge::goal::Goal;
use toast_format::model::sql::shown_qualified;

/// How often a shard without a result is worked on in one run.
const TRIES: u32 = 2;

/// A node and a shard on it.
type ShardPlace = (String, String);

/// A run on tables of Citus.
pub(super) struct CitusRun<'a> {
    pub(super) ui: &'a Ui,
    pub(super) first: &'a Connection,
    pub(super) address: &'a NodesArg,
    pub(super) session: SessionOptions,
    pub(super) request: &'a Request,
    pub(super) control: &'a Arc<Control>,
    pub(super) listener: &'a dyn Listener,
}

impl CitusRun<'_> {
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
                select_within(Reach::Nodes, first, &database, &request.tables, &[]).await
            })
            .await;
        // The run on this server reports errors.
        let Ok(selection) = selected else { return Ok(Vec::new()) };
        if selection.on_nodes.is_empty() {
            return Ok(Vec::new());
        }
        if !selection.found.is_empty() {
            let text = "some of these tables are tables of Citus, and others are not";
            return Err(Failed::new(Kind::Usage, text).hint("Name them in two commands."));
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
                let text = format!("{what} is not supported for tables of Citus");
                return Err(Failed::new(Kind::Usage, text));
            }
        }
        let tables = &selection.on_nodes;
        let described = first
            .reading(async || catalog::describe_all(first.client(), tables).await)
            .await
            .map_err(|error| Failed::incomplete(&error))?;
        // its shards are as the table is, and would be refused one by one
        let mut fit = Vec::new();
        let mut left_out = Vec::new();
        for table in described {
            if let Err(error) = preflight::kind(&table) {
                return Err(error.failed(&[]).await);
            }
            match preflight::unfit(&table, tasks.convert.as_ref()) {
                Some(why) => left_out.push(why),
                None => fit.push(table.oid),
            }
        }
        // where none is fit, its shards say why, and so does one that was named
        let are_patterns = request.tables.iter().all(|name| name.contains(['*', '?']));
        if fit.is_empty() || !are_patterns {
            return Ok(selection.on_nodes);
        }
        for why in left_out {
            self.ui.tell(Message::notice(format!("left out: {why}")));
        }
        Ok(fit)
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
            .map_err(|error| Failed::incomplete(&error))?;
        let mut failures = NodeFailures::default();
        let (shells, may_be_unfit) = self.examine(nodes.clone(), &names, &mut failures).await?;
        if let Some(mut last) = failures.0.pop() {
            failures.0.into_iter().for_each(|failed| output.failed(failed));
            last.message.text.push_str("\nNothing was changed.");
            return Err(last.into());
        }
        if !may_be_unfit {
            self.set(nodes.clone(), &shells, "No value was converted.").await?;
        }
        let mut results = ShardResults::new(self.ui);
        let (placements, mut ended) = self.convert(tables, &mut results).await;
        let mut set = &shells;
        let none = BTreeMap::new();
        if may_be_unfit {
            if ended.is_ok() && results.are_complete(&placements) {
                ended = self.set(nodes, &shells, "The shards are converted.").await;
            } else {
                self.leave(&shells);
                set = &none;
            }
        }
        results.report(&placements, set, self.control.stopped(), output);
        ended
    }

    fn cluster(&self, nodes: Vec<Node>) -> Cluster<'_> {
        let address = &self.address.node_address;
        Cluster {
            ui: self.ui,
            first: self.first,
            nodes,
            address,
            one_by_one: false,
            is_read_elsewhere: false,
        }
    }

    /// The request for these shards of a node.
    fn of_node(&self, node: &Node, tables: Vec<String>) -> Request {
        let mut request = Request { tables, ..self.request.clone() };
        let checkpoint = request.checkpoint.as_deref();
        request.checkpoint = checkpoint.map(|path| Finished::of_database(path, &node.name));
        if let Assignment::Tables(Tasks { convert: Some(convert), .. }) = &mut request.work {
            *convert = ConvertRequest { sets_citus_table: true, ..convert.clone() };
        }
        request
    }

    /// Examines the shards on all nodes, and the tables themselves, whose names are as SQL has them. Returns the settings
    /// that these need, by node, and whether it depends on the values if these fit indexes with them.
    async fn examine(
        &self,
        nodes: Vec<Node>,
        names: &[String],
        failures: &mut NodeFailures,
    ) -> Result<(BTreeMap<String, Vec<Parent>>, bool), RunError> {
        let all = Mutex::new((BTreeMap::new(), false));
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each_node(&self.session, failures, stop, async |connection, output| {
                let node = output.node;
                let shards = node.shards.iter().map(|shard| shard.name.clone()).collect();
                let request = self.of_node(node, shards);
                let control = Arc::clone(self.control);
                let listener =
                    NodeListener { is_quiet: true, ..NodeListener::new(self.listener, node) };
                let (needed, may_be_unfit) =
                    tables::examine(connection, &request, names, control, &listener).await?;
                let mut all = all.lock();
                all.0.insert(node.name.clone(), needed);
                all.1 |= may_be_unfit;
                Ok(())
            })
            .await?;
        Ok(all.into_inner())
    }

    /// Gives the tables themselves the settings on all nodes, because shards that Citus moves or splits take theirs from
    /// them. `done`: what an error says became of the values.
    async fn set(
        &self,
        mut nodes: Vec<Node>,
        shells: &BTreeMap<String, Vec<Parent>>,
        done: &str,
    ) -> Result<(), RunError> {
        nodes.retain(|node| shells.get(&node.name).is_some_and(|shells| !shells.is_empty()));
        let Some(first) = nodes.first().and_then(|node| shells.get(&node.name)) else {
            return Ok(());
        };
        let count = nodes.len();
        if self.request.options.dry_run {
            self.announce("would set", first, count);
            return Ok(());
        }
        let mut failures = NodeFailures::default();
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each_node(&self.session, &mut failures, stop, async |connection, output| {
                let shells = shells.get(&output.node.name).map_or(&[][..], Vec::as_slice);
                connection.make_own().await.map_err(|error| Failed::incomplete(&error.into()))?;
                let listener = NodeListener::new(self.listener, output.node);
                tables::set_shells(&connection, shells, self.request, self.control, &listener)
                    .await?;
                Ok(())
            })
            .await?;
        if let Some(mut failed) = failures.0.into_iter().next() {
            failed.message.text.push_str(&format!(
                "\n{done} The settings of the tables may have been changed on other nodes."
            ));
            return Err(failed.hint("Run the command again.").into());
        }
        self.announce("set", first, count);
        Ok(())
    }

    /// Says that the tables keep their settings: with others, rows of other shards may not fit in an index either.
    fn leave(&self, shells: &BTreeMap<String, Vec<Parent>>) {
        let names: BTreeSet<&str> = shells.values().flatten().map(|shell| &*shell.name).collect();
        for name in names {
            let text = "its settings for new shards stay as they are, because not all shards were converted";
            self.ui.tell(Message::notice(text).about(name));
        }
    }

    fn announce(&self, what: &str, shells: &[Parent], nodes: usize) {
        for Parent { alter, .. } in shells {
            self.ui.tell(Message::notice(format!("{what} on {nodes} nodes: {alter}")));
        }
    }

    /// Works on the shards until the metadata has none without a result, or those that have none have been tried twice.
    /// Returns the shards in the metadata as it was at the end, and why that is not known.
    async fn convert(
        &self,
        tables: &[Oid],
        results: &mut ShardResults<'_>,
    ) -> (Vec<Node>, Result<(), RunError>) {
        let mut known = Vec::new();
        loop {
            match self.placements(tables).await {
                Ok(nodes) => known = nodes,
                Err(failed) => {
                    const UNKNOWN: &str =
                        "it is not known whether shards were moved, split or added";
                    return (known, Err(failed.meaning(UNKNOWN).into()));
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
            .map_err(|error| Failed::incomplete(&error))
    }

    /// Works on these shards, each node by itself.
    async fn work(&self, nodes: Vec<Node>, results: &mut ShardResults<'_>) -> Result<(), RunError> {
        let stop = self.control.stopping().cancelled();
        self.cluster(nodes)
            .each_node(&self.session, results, stop, async |connection, output| {
                let present = output.present(&connection).await?;
                if present.is_empty() {
                    return Ok(());
                }
                let request = self.of_node(output.node, present);
                let control = Arc::clone(self.control);
                let listener = NodeListener::new(self.listener, output.node);
                tables::run(connection, &request, control, &listener, output).await.map(drop)
            })
            .await
    }
}

/// Adds the name of the node to what its work reports. A note that is the same for several shards is passed on once.
struct NodeListener<'a> {
    listener: &'a dyn Listener,
    node: &'a Node,
    /// While tables are examined: their notes are repeated when they are worked on.
    is_quiet: bool,
    noted: Mutex<BTreeSet<String>>,
}

impl<'a> NodeListener<'a> {
    fn new(listener: &'a dyn Listener, node: &'a Node) -> NodeListener<'a> {
        NodeListener { listener, node, is_quiet: false, noted: Mutex::default() }
    }

    fn named(&self, relation: &str) -> String {
        format!("{} {relation}", self.node.name)
    }
}

impl Listener for NodeListener<'_> {
    fn progress(&self, relation: &str, advance: &Advance) {
        self.listener.progress(&self.named(relation), advance);
    }

    fn refused(&self, relation: &str, row: &SkippedRow) {
        self.listener.refused(&self.named(relation), row);
    }

    fn rebuilds(&self, relation: &str, index: &str, number: usize, indexes: usize) {
        self.listener.rebuilds(&self.named(relation), index, number, indexes);
    }

    fn note(&self, relation: Option<&str>, text: &str) {
        if self.is_quiet {
            return;
        }
        let Some(relation) = relation else {
            return self.listener.note(Some(&self.node.name), text);
        };
        let mut noted = self.noted.lock();
        if self.node.shard(relation).is_none() || noted.insert(text.to_owned()) {
            self.listener.note(Some(&self.named(relation)), text);
        }
    }

    fn figures(&self, figures: &Figures) {
        self.listener.figures(figures);
    }

    fn paused(&self, pause: Option<&Pause>) {
        self.listener.paused(pause);
    }
}

/// What failed on nodes before any shard was worked on: all of their shards are affected.
#[derive(Default)]
struct NodeFailures(Vec<Failed>);

impl Sink<Swept> for NodeFailures {
    fn found(&mut self, _: Swept) -> io::Result<()> {
        Ok(())
    }

    fn failed(&mut self, mut failed: Failed) {
        failed.message.at.relations.clear();
        self.0.push(failed);
    }

    fn message(&mut self, _: Message) {}
}

/// The results of shards.
struct ShardResults<'a> {
    ui: &'a Ui,
    /// The last one of each.
    of: BTreeMap<ShardPlace, Swept>,
    tries: BTreeMap<ShardPlace, u32>,
    /// Why the last try of a shard failed.
    why: BTreeMap<ShardPlace, Failed>,
    /// Failures that are not those of shards.
    others: Vec<Failed>,
}

impl ShardResults<'_> {
    fn new(ui: &Ui) -> ShardResults<'_> {
        let of = BTreeMap::new();
        let tries = BTreeMap::new();
        let why = BTreeMap::new();
        ShardResults { ui, of, tries, why, others: Vec::new() }
    }

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

    /// Whether all of these shards are done as requested.
    fn are_complete(&self, nodes: &[Node]) -> bool {
        nodes.iter().all(|node| {
            node.shards.iter().all(|shard| {
                let place = (node.name.clone(), shard.relation.clone());
                let outcome = self.of.get(&place).map(|swept| swept.report.outcome);
                use Outcome::{Complete, Held, Planned, Unverified};
                matches!(outcome, Some(Complete | Planned | Held | Unverified))
            })
        })
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
        let mut failures = Vec::new();
        let mut position = 0;
        for node in nodes {
            let mut tables = BTreeSet::new();
            for shard in &node.shards {
                let place = (node.name.clone(), shard.relation.clone());
                let report = reports.entry(shard.table.clone()).or_insert_with(|| CitusReport {
                    table: shard.table.clone(),
                    ..CitusReport::default()
                });
                report.nodes += u64::from(tables.insert(&shard.table));
                report.shards += 1;
                let mut is_done = false;
                if let Some(swept) = self.of.remove(&place) {
                    is_done = swept.report.outcome != Outcome::Failed;
                    position += 1;
                    // the output only keeps it
                    let _ = output.found(Swept { position, ..swept });
                }
                if is_done {
                    continue;
                }
                let known = self.why.remove(&place);
                let reason = match &known {
                    Some(failed) => reason(failed),
                    None if stopped => NOT_BEGUN.to_owned(),
                    None => "it was not reached".to_owned(),
                };
                if reason != NOT_BEGUN {
                    let failed =
                        known.unwrap_or_else(|| Failed::new(Kind::Incomplete, reason.clone()));
                    failures.push(failed.of_shard(&node.name, &shard.relation));
                }
                let relation = shard.relation.clone();
                let node = node.name.clone();
                report.missing.push(MissingShard { relation, node, reason });
            }
        }
        for Parent { name, alter, .. } in shells.values().flatten() {
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
        by_reason(failures).into_iter().chain(self.others).for_each(|failed| output.failed(failed));
        output.citus = reports.into_values().collect();
    }
}

/// Why a shard has no result, without its place.
fn reason(failed: &Failed) -> String {
    Message { at: Box::default(), ..failed.message.clone() }.to_string()
}

impl Sink<Swept> for ShardResults<'_> {
    fn found(&mut self, swept: Swept) -> io::Result<()> {
        let Some(shard) = &swept.report.subject.shard else { return Ok(()) };
        let place = (shard.node.clone(), swept.report.subject.relation.clone());
        self.why.remove(&place);
        self.of.insert(place, swept);
        Ok(())
    }

    fn failed(&mut self, failed: Failed) {
        let at = &failed.message.at;
        match &at.node {
            Some(node) if !at.relations.is_empty() => {
                for relation in &at.relations {
                    self.why.insert((node.clone(), relation.clone()), failed.clone());
                }
            }
            _ => self.others.push(failed),
        }
    }

    fn message(&mut self, message: Message) {
        self.ui.tell(message);
    }
}
