//! The advice on a table in parts, which are the shards of a table of Citus, or the partitions of any other: they are read
//! one after another, each in proportion to its size, and what they add up to is reported as one table. Of a shard with
//! copies one is read.
//!
//! Parts are compared under the same variants only if their columns and settings are the same. One that differs, or that
//! cannot be read, is named, and no figure includes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use super::advisor::{Advisor, NoPages, TableFacts};
use super::calibration::Calibrated;
use super::candidate::{AdviseError, Variants, named_columns};
use super::plan::SamplePlan;
use super::report::{SampleRead, Subject};
use super::result::{
    Access, CalibrationSource, CompactionReport, PartitionsReport, Report, ShardsReport,
};
use super::table::{looked_into, pluggable, reports};
use super::tally::Tally;
use crate::message::{Location, Message};
use crate::server::about::Compression;
use crate::server::catalog::{self, Relation, is_toastable};
use crate::server::citus::{self, Node, Placement, SHARD_MOVED, by_reason};
use crate::server::connect::SessionOptions;
use crate::server::listing::{self, Listed, Root};
use crate::server::select::Selected;
use crate::server::sink::{Failed, Kind};
use crate::server::{LiveError, snapshot};
use crate::usage::workload::Counters;
use toast_format::codec::Method;
use toast_format::disk::{Oid, PageSize};
use toast_format::heap::problem::{Place, Problem, Problems};

/// What the parts of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum MemberKind {
    Shard,
    Partition,
}

impl MemberKind {
    fn name(self) -> &'static str {
        self.into()
    }
}

/// A table of Citus, or a partitioned table.
pub(super) struct Sharded {
    kind: MemberKind,
    /// The table itself, which has no rows. Its size is set to that of all copies of its shards, with TOAST.
    pub(super) table: Relation,
    /// Whether it is a partition of one that was named.
    pub(super) is_partition: bool,
    shards: Vec<ShardCopy>,
    /// Why shards are not read, each with its node and name.
    lost: Vec<Failed>,
}

/// The copy of a shard that is read.
struct ShardCopy {
    node: String,
    /// Connected to the node.
    advisor: Arc<Advisor>,
    /// As it was when the run began.
    relation: Relation,
    copies: usize,
}

/// A node, and its shards as the node describes them.
struct Reached {
    node: Node,
    found: Result<(Arc<Advisor>, Vec<Option<Relation>>), Failed>,
}

impl Sharded {
    /// The parts: first those with the settings that most bytes have, the largest first.
    fn largest_first(&self) -> Vec<&ShardCopy> {
        let described: Vec<DescribedShard> = self.shards.iter().map(ShardCopy::described).collect();
        largest_of_most(&described).into_iter().filter_map(|at| self.shards.get(at)).collect()
    }

    /// As [`Advisor::why_no_pages`], of the first node where they cannot be read.
    pub(super) fn why_no_pages(&self) -> Option<NoPages> {
        self.shards.iter().find_map(|shard| shard.advisor.why_no_pages())
    }

    fn new(mut table: Relation, nodes: &[Reached]) -> Option<Sharded> {
        let mut copies: BTreeMap<i64, Vec<(&Reached, usize, &Placement)>> = BTreeMap::new();
        for reached in nodes {
            for (at, placement) in reached.node.shards.iter().enumerate() {
                let (schema, _, name) = &placement.names;
                if (schema, name) == (&table.schema, &table.name) {
                    copies.entry(placement.shard).or_default().push((reached, at, placement));
                }
            }
        }
        let (_, _, any) = copies.values().next()?.first()?;
        let is_partition = any.table != table.display_name();
        let mut shards = Vec::new();
        let mut lost = Vec::new();
        for mut placed in copies.into_values() {
            placed.sort_by_key(|(reached, ..)| !reached.node.is_here);
            let found = placed.iter().find_map(|(reached, at, placement)| {
                let (advisor, relations) = reached.found.as_ref().ok()?;
                Some(ShardCopy {
                    node: reached.node.name.clone(),
                    advisor: Arc::clone(advisor),
                    relation: relations.get(*at)?.clone()?,
                    copies: usize::try_from(placement.copies).unwrap_or(1),
                })
            });
            match (found, placed.first()) {
                (Some(shard), _) => shards.push(shard),
                (None, Some((reached, _, placement))) => {
                    let why = match &reached.found {
                        Ok(_) => Failed::new(Kind::Incomplete, SHARD_MOVED),
                        Err(failed) => failed.clone(),
                    };
                    lost.push(why.of_shard(&reached.node.name, &placement.relation));
                }
                (None, None) => {}
            }
        }
        table.bytes = shards.iter().map(ShardCopy::bytes_of_copies).fold(0, u64::saturating_add);
        Some(Sharded { kind: MemberKind::Shard, table, is_partition, shards, lost })
    }

    /// The partitioned table `root`. `advisor` is connected to the server.
    fn of_partitions(
        root: &Root,
        partitions: Vec<Relation>,
        advisor: &Arc<Advisor>,
    ) -> Option<Sharded> {
        let first = partitions.first()?;
        let table = Relation {
            oid: root.oid,
            schema: root.schema.clone(),
            name: root.name.clone(),
            bytes: partitions.iter().map(Relation::bytes_with_toast).sum(),
            toast: None,
            ..first.clone()
        };
        let shards = partitions.into_iter().map(|relation| ShardCopy {
            node: String::new(),
            advisor: Arc::clone(advisor),
            relation,
            copies: 1,
        });
        Some(Sharded {
            kind: MemberKind::Partition,
            table,
            is_partition: false,
            shards: shards.collect(),
            lost: Vec::new(),
        })
    }
}

/// The partitioned tables of which partitions were found that are not named themselves; these are no longer among those
/// that were found. `every`: of all tables, else of those that are named. Partitions that another session has locked remain,
/// to be refused by name.
///
/// # Errors
/// The catalog cannot be read.
pub(super) async fn partitioned(
    first: &Advisor,
    found: &mut Vec<Selected>,
    every: bool,
) -> Result<Vec<Sharded>, Failed> {
    let oids: Vec<Oid> = found.iter().map(|found| found.oid).collect();
    let listed = listing::list(&first.connection, &oids).await;
    let mut listed = listed.map_err(|error| Failed::incomplete(&error))?;
    listing::roll_up(&mut listed, found, every, false);
    let mut roots: Vec<(Root, Vec<Oid>)> = Vec::new();
    for Listed { oid, root, locked, .. } in listed {
        let Some(root) = root.filter(|root| root.is_partitioned && !locked) else { continue };
        match roots.iter_mut().find(|(known, _)| known.oid == root.oid) {
            Some((_, parts)) => parts.push(oid),
            None => roots.push((root, vec![oid])),
        }
    }
    if roots.is_empty() {
        return Ok(Vec::new());
    }
    let connection = Arc::clone(&first.connection);
    let options = first.options.clone();
    let progress = Arc::clone(&first.progress);
    let advisor = Advisor::new(connection, first.server.clone(), options, progress);
    let advisor = Arc::new(Advisor { calibrations: Arc::clone(&first.calibrations), ..advisor });
    let mut tables = Vec::new();
    for (root, parts) in roots {
        let asked = first
            .connection
            .reading(async || catalog::describe_all(first.client(), &parts).await)
            .await;
        let mut partitions = asked.map_err(|error| Failed::incomplete(&error))?;
        partitions.sort_by_key(|partition| oids.iter().position(|oid| *oid == partition.oid));
        tables.extend(Sharded::of_partitions(&root, partitions, &advisor));
        found.retain(|found| !parts.contains(&found.oid));
    }
    Ok(tables)
}

/// The tables of Citus, without partitioned ones, whose partitions have the rows. Nodes are reached at `address`
/// ([`Node::connect`]); one that is not costs only its shards.
///
/// # Errors
/// The metadata cannot be read.
pub(super) async fn tables(
    first: &Advisor,
    oids: &[Oid],
    address: &str,
) -> Result<Vec<Sharded>, Failed> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let ask = async || {
        let nodes = citus::nodes(first.client(), oids).await?;
        Ok::<_, LiveError>((nodes, catalog::describe_all(first.client(), oids).await?))
    };
    let asked = first.connection.reading(ask).await;
    let (nodes, mut tables) = asked.map_err(|error| Failed::incomplete(&error))?;
    let mut reached = Vec::with_capacity(nodes.len());
    for node in nodes {
        let found = reach(first, &node, address).await;
        reached.push(Reached { node, found });
    }
    tables.sort_by_key(|table| oids.iter().position(|oid| *oid == table.oid));
    Ok(tables.into_iter().filter_map(|table| Sharded::new(table, &reached)).collect())
}

/// Connects to a node, and describes its shards.
async fn reach(
    first: &Advisor,
    node: &Node,
    address: &str,
) -> Result<(Arc<Advisor>, Vec<Option<Relation>>), Failed> {
    let session = SessionOptions {
        allows_owner_code: first.connection.session().allows_owner_code,
        ..SessionOptions::read_only("advise-threshold")
    };
    let connection = node.connect(&first.connection, address, &session).await?;
    let advisor =
        Advisor::open(connection, first.options.clone(), Arc::clone(&first.progress)).await?;
    let advisor = Advisor { calibrations: Arc::clone(&first.calibrations), ..advisor };
    let connection = Arc::clone(&advisor.connection);
    first.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    let names: Vec<&str> = node.shards.iter().map(|shard| shard.name.as_str()).collect();
    let ask = async || {
        let oids = citus::resolve(advisor.client(), &names).await?;
        let found: Vec<Oid> = oids.iter().copied().flatten().collect();
        Ok::<_, LiveError>((oids, catalog::describe_all(advisor.client(), &found).await?))
    };
    let asked = advisor.connection.reading(ask).await;
    let (oids, relations) = asked.map_err(|error| Failed::incomplete(&error))?;
    let mut relations: BTreeMap<u32, Relation> =
        relations.into_iter().map(|relation| (relation.oid.0, relation)).collect();
    let relations = oids.into_iter().map(|oid| relations.remove(&oid?.0)).collect();
    Ok((Arc::new(advisor), relations))
}

/// What must be the same in all shards: names of properties, each with its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ShardDefinition(Vec<(String, String)>);

/// A part, as far as it matters whose settings are taken for all.
struct DescribedShard {
    /// With either method as the server's default, which is not known here.
    definitions: [ShardDefinition; 2],
    bytes: u64,
}

/// The places of the parts: by the bytes of all that have the same definition, and by their own, the most first.
fn largest_of_most(shards: &[DescribedShard]) -> Vec<usize> {
    let mut together: HashMap<&[ShardDefinition; 2], u64> = HashMap::new();
    for shard in shards {
        let bytes = together.entry(&shard.definitions).or_default();
        *bytes = bytes.saturating_add(shard.bytes);
    }
    let mut places: Vec<(Reverse<(u64, u64)>, usize)> = Vec::with_capacity(shards.len());
    for (at, shard) in shards.iter().enumerate() {
        let of_group = together.get(&shard.definitions).copied().unwrap_or_default();
        places.push((Reverse((of_group, shard.bytes)), at));
    }
    places.sort_unstable();
    places.into_iter().map(|(_, at)| at).collect()
}

impl ShardDefinition {
    fn new(advisor: &Advisor, relation: &Relation, facts: &TableFacts) -> ShardDefinition {
        ShardDefinition::with_compression(relation, advisor.server.page_size, &facts.compression)
    }

    fn with_compression(
        relation: &Relation,
        page: PageSize,
        compression: &Compression,
    ) -> ShardDefinition {
        let default = compression.default;
        let target = relation.table(default, page).target.bytes();
        let mut all = vec![
            ("the page size".to_owned(), page.bytes().to_string()),
            ("toast_tuple_target".to_owned(), target.to_string()),
            ("fillfactor".to_owned(), relation.fillfactor().to_string()),
            (
                "lz4".to_owned(),
                if compression.lz4 { "available" } else { "not available" }.to_owned(),
            ),
        ];
        for column in relation.desc.attributes.iter().filter(|column| !column.dropped) {
            let mut text = column.type_name.clone();
            if is_toastable(column) {
                let method = column.compression.unwrap_or(default).name();
                text.push_str(&format!(" {} {method}", column.storage.name()));
            }
            all.push((format!("column \"{}\"", column.name), text));
        }
        ShardDefinition(all)
    }

    /// The first difference from another one.
    fn difference(&self, other: &ShardDefinition) -> Option<String> {
        let here = self.0.iter().find(|one| !other.0.contains(one));
        let there = other.0.iter().find(|one| !self.0.contains(one));
        let value = |of: &ShardDefinition, what: &str| {
            of.0.iter()
                .find(|(name, _)| name == what)
                .map_or("missing", |(_, value)| value)
                .to_owned()
        };
        match here.or(there) {
            Some((what, _)) => {
                Some(format!("{what} is {}, and {} in", value(self, what), value(other, what)))
            }
            None => (self != other).then(|| "the order of columns is not that in".to_owned()),
        }
    }
}

/// What is taken from one shard for all of them: of those with the settings of most bytes, the largest that can be read.
struct Model {
    /// The table with the columns of this shard.
    relation: Relation,
    /// `schema.name` of the shard.
    shard: String,
    columns: Vec<String>,
    layout: ShardDefinition,
    facts: TableFacts,
    variants: Vec<Variants>,
    /// For all shards together.
    plan: SamplePlan,
}

/// What was read of one shard.
struct Part {
    tallies: Vec<Tally>,
    facts: TableFacts,
    read: SampleRead,
    /// The prices, if this shard was chosen to measure them.
    calibrated: Option<Vec<Calibrated>>,
}

impl ShardCopy {
    fn bytes_of_copies(&self) -> u64 {
        self.relation.bytes_with_toast().saturating_mul(self.copies as u64)
    }

    /// As it was when the run began.
    fn described(&self) -> DescribedShard {
        let page = self.advisor.server.page_size;
        let definitions = [Method::Pglz, Method::Lz4].map(|default| {
            let compression = Compression { lz4: true, default };
            ShardDefinition::with_compression(&self.relation, page, &compression)
        });
        DescribedShard { definitions, bytes: self.bytes_of_copies() }
    }

    fn place(&self) -> String {
        let name = self.relation.display_name();
        if self.node.is_empty() { name } else { format!("{name} on {}", self.node) }
    }

    fn lost(&self, error: &AdviseError) -> Failed {
        let failed = Failed::from(error);
        let name = self.relation.display_name();
        if self.node.is_empty() { failed.placed(&name) } else { failed.of_shard(&self.node, &name) }
    }

    fn not_read(&self, why: String) -> AdviseError {
        AdviseError::NotRead { relation: self.relation.display_name(), why }
    }

    /// Describes the shard again, and decides how to read it.
    async fn now(&self) -> Result<(Relation, TableFacts, Access), AdviseError> {
        let advisor = &*self.advisor;
        let name = self.relation.display_name();
        if advisor.options.exact && advisor.server.in_recovery {
            return Err(AdviseError::ExactOnStandby);
        }
        let ask = async || {
            let Some(relation) = catalog::describe(advisor.client(), self.relation.oid).await?
            else {
                return Ok(None);
            };
            let facts =
                TableFacts::without_statements(advisor.client(), &advisor.server, &relation)
                    .await?;
            Ok::<_, LiveError>(Some((relation, facts)))
        };
        let found = advisor.connection.reading(ask).await;
        let found = found.map_err(|error| AdviseError::Live { relation: name.clone(), error })?;
        let (relation, facts) = found.ok_or_else(|| self.not_read(SHARD_MOVED.to_owned()))?;
        let access = advisor.access(&relation).await?;
        Ok((relation, facts, access))
    }

    /// This shard as the model for all shards of the table, which have `total` blocks together.
    async fn model(
        &self,
        table: &Relation,
        columns: &[String],
        total: u32,
    ) -> Result<Model, AdviseError> {
        let advisor = &*self.advisor;
        let (shard, facts, access) = self.now().await?;
        let relation = Relation {
            oid: table.oid,
            schema: table.schema.clone(),
            name: table.name.clone(),
            ..shard.clone()
        };
        let named = named_columns(&relation, columns)?;
        let mut run = advisor
            .begin(&shard, access)
            .await
            .map_err(|error| AdviseError::Live { relation: shard.display_name(), error })?;
        let read = async {
            let (_, probe, columns) = run.probed(named).await?;
            let variants = advisor.variants(&relation, &columns, &facts)?;
            let bytes = probe.bytes_per_block(&looked_into(&variants, false));
            Ok((variants, bytes))
        };
        let read: Result<(Vec<Variants>, f64), AdviseError> = read.await;
        // the next statement says if the connection is gone
        let _ = snapshot::abandon(advisor.client()).await;
        let (variants, bytes) = read?;
        Ok(Model {
            layout: ShardDefinition::new(advisor, &shard, &facts),
            shard: shard.display_name(),
            columns: variants.iter().map(|v| v.name.clone()).collect(),
            plan: SamplePlan::new(advisor.options.sample, advisor.options.seed, total, bytes),
            relation,
            facts,
            variants,
        })
    }

    /// Reads the shard's part of the sample.
    async fn part(&self, model: &Model, calibrates: bool) -> Result<Part, AdviseError> {
        let (relation, facts, access) = self.now().await?;
        let layout = ShardDefinition::new(&self.advisor, &relation, &facts);
        if let Some(difference) = layout.difference(&model.layout) {
            let why = format!("{difference} {}", model.shard);
            return Err(AdviseError::Differs { relation: relation.display_name(), why });
        }
        let advisor = &*self.advisor;
        let columns = named_columns(&relation, &model.columns)?;
        let variants = advisor.variants(&relation, &columns, &facts)?;
        let mut run = advisor
            .begin(&relation, access)
            .await
            .map_err(|error| AdviseError::Live { relation: relation.display_name(), error })?;
        let read = async {
            let total_blocks = run.block_count().await?;
            if advisor.options.compresses_on_server(access) {
                run.begin_trials(&variants).await?;
            }
            run.pluggable = pluggable(&variants, advisor.server.page_size);
            let plan = model.plan.part(total_blocks);
            let tallies = run.tallies(&plan, &variants, relation.fillfactor()).await?;
            let mut calibrated = None;
            if calibrates {
                let prices = advisor.calibrated(&relation, &variants, &run.specimens).await?;
                calibrated = Some(prices);
            }
            Ok((tallies, run.take(access, &plan), calibrated))
        };
        let part = read.await;
        // the next statement says if the connection is gone
        let _ = snapshot::abandon(advisor.client()).await;
        part.map(|(tallies, read, calibrated)| Part { tallies, facts, read, calibrated })
    }
}

/// What all shards add up to.
struct Added {
    tallies: Vec<Tally>,
    counters: Counters,
    logical: bool,
    /// Without the number of blocks, which may be too large for a sample.
    read: SampleRead,
    total_blocks: u64,
    calibrated: Option<Vec<Calibrated>>,
    nodes: BTreeSet<String>,
    shards: u64,
    kind: MemberKind,
    /// Those that were read, in their order.
    relations: Vec<Relation>,
    /// Partitions that differ from the others, with the difference.
    different: Vec<String>,
}

impl Added {
    fn to(kind: MemberKind, model: &Model, shard: &ShardCopy) -> Added {
        let page = shard.advisor.server.page_size;
        let fillfactor = model.relation.fillfactor();
        let variants = model.variants.iter();
        Added {
            tallies: variants.map(|v| Tally::new(page, fillfactor, v.all.clone())).collect(),
            counters: Counters::default(),
            logical: false,
            read: SampleRead {
                complete: true,
                pluggable: pluggable(&model.variants, page),
                ..SampleRead::default()
            },
            total_blocks: 0,
            calibrated: None,
            nodes: BTreeSet::new(),
            shards: 0,
            kind,
            relations: Vec::new(),
            different: Vec::new(),
        }
    }

    fn add(&mut self, shard: &ShardCopy, part: Part) {
        let Part { tallies, facts, read, calibrated } = part;
        let copies = shard.copies;
        let weight = f64::from(read.total_blocks) / f64::from(read.done.blocks.max(1));
        for (tally, part) in self.tallies.iter_mut().zip(&tallies) {
            tally.add_part(part, weight, copies);
        }
        self.counters = match (self.kind, copies) {
            (MemberKind::Partition, _) => self.counters.plus_with_chunks(&facts.counters),
            (MemberKind::Shard, 1) => self.counters.plus(&facts.counters),
            // reads of other copies are not known
            (MemberKind::Shard, _) => {
                let live = facts.counters.live;
                self.counters.plus(&Counters { live, ..Counters::default() })
            }
        };
        self.logical |= facts.logical;
        self.total_blocks += u64::from(read.total_blocks) * copies as u64;
        self.read.add(read, copies);
        self.calibrated = self.calibrated.take().or(calibrated);
        self.nodes.insert(shard.node.clone());
        self.shards += 1;
        self.relations.push(shard.relation.clone());
    }
}

impl SampleRead {
    /// Adds what was read of another relation, whose files count once for each copy.
    fn add(&mut self, more: SampleRead, copies: usize) {
        if matches!(more.access, Access::Functions) {
            self.access = more.access;
        }
        self.done.blocks += more.done.blocks;
        self.done.read += more.done.read;
        self.fetched_bytes += more.fetched_bytes;
        self.rows_examined += more.rows_examined;
        self.complete &= more.complete;
        self.limit = self.limit.or(more.limit);
        for files in more.files {
            self.files.extend(std::iter::repeat_n(files, copies));
        }
        for (sum, part) in self.pluggable.iter_mut().zip(&more.pluggable) {
            sum.add(part);
        }
        self.problems.merge(more.problems);
    }
}

impl Advisor {
    /// The named columns of a table in parts, or without any those that hold most, biggest first, each with its advice.
    pub(super) async fn sharded(
        &self,
        sharded: &Sharded,
        columns: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let table = &sharded.table;
        let name = table.display_name();
        let kind = sharded.kind;
        if self.options.keeps_calibration && kind == MemberKind::Shard {
            return Err(AdviseError::Unfit(format!(
                "--calibration keeps the times of one server, and the shards of {name} may be on several: omit it"
            )));
        }
        let ask = async || TableFacts::ask(self.client(), &self.server, table).await;
        let asked = self.connection.reading(ask).await;
        let own = asked.map_err(|error| AdviseError::Live { relation: name.clone(), error })?;
        let mut lost = sharded.lost.clone();
        let shards = sharded.largest_first();
        let page = self.server.page_size.bytes() as u64;
        let blocks: u64 = shards.iter().map(|shard| shard.relation.bytes / page).sum();
        let mut model = None;
        let mut rest = shards.into_iter();
        for shard in rest.by_ref() {
            match shard.model(table, columns, blocks_of(&name, blocks)?).await {
                Ok(found) => {
                    model = Some((Added::to(kind, &found, shard), found, shard));
                    break;
                }
                Err(error) if is_of_shard(&error) => lost.push(shard.lost(&error)),
                Err(error) => return Err(error),
            }
        }
        let Some((mut added, model, first)) = model else {
            return Err(nothing_read(kind, &name, &lost));
        };
        let mut measured = None;
        for shard in std::iter::once(first).chain(rest) {
            match shard.part(&model, added.calibrated.is_none()).await {
                Ok(part) => {
                    if part.calibrated.is_some() {
                        measured = Some(shard.place());
                    }
                    added.add(shard, part);
                }
                Err(AdviseError::Differs { relation, why }) if kind == MemberKind::Partition => {
                    added.different.push(format!("{relation}: {why}"));
                }
                Err(error) if is_of_shard(&error) => lost.push(shard.lost(&error)),
                Err(error) => return Err(error),
            }
        }
        if added.shards == 0 {
            return Err(nothing_read(kind, &name, &lost));
        }
        let facts = TableFacts {
            counters: added.counters,
            period: model.facts.period,
            compression: model.facts.compression,
            statements: own.statements.clone(),
            logical: added.logical,
            toasters: model.facts.toasters.clone(),
        };
        let mut notes = notes(&added, &lost, measured);
        if kind == MemberKind::Shard {
            let own = ShardDefinition::new(self, table, &own);
            notes.extend(own.difference(&model.layout).map(|difference| {
                format!(
                    "The settings of the table itself, which Citus gives to shards that it moves or splits, are not those \
                     of its shards: {difference} {}. The command sets both.",
                    model.shard
                )
            }));
        }
        let relations = added.relations.clone();
        let mut reports = added.reports(&name, &model, first, &facts, &lost, &notes)?;
        if kind == MemberKind::Partition {
            self.add_compaction(&model.relation, &relations, &mut reports).await?;
        }
        Ok(reports)
    }

    /// Adds what compaction of all partitions alone would return.
    async fn add_compaction(
        &self,
        table: &Relation,
        partitions: &[Relation],
        reports: &mut [Report],
    ) -> Result<(), AdviseError> {
        let mut found = Vec::new();
        let mut problems = Problems::default();
        for partition in partitions {
            let access = self.access(partition).await?;
            found.extend(self.compaction(partition, access, None, &mut problems).await);
        }
        let compaction = CompactionReport::of_parts(table, found);
        for report in reports {
            report.problems.merge_new(problems.clone());
            report.notes.extend(compaction.as_ref().map(CompactionReport::note));
            report.compaction.clone_from(&compaction);
        }
        Ok(())
    }
}

impl Added {
    /// The report on each column.
    fn reports(
        mut self,
        name: &str,
        model: &Model,
        first: &ShardCopy,
        facts: &TableFacts,
        lost: &[Failed],
        notes: &[String],
    ) -> Result<Vec<Report>, AdviseError> {
        let mut read = self.read;
        read.total_blocks = blocks_of(name, self.total_blocks)?;
        read.complete &= lost.is_empty();
        read.problems.merge(problems(lost));
        let kind = self.kind;
        let mut partition_names = Vec::new();
        if kind == MemberKind::Partition {
            partition_names.extend(self.relations.iter().map(Relation::quoted));
        }
        let weight = f64::from(read.done.blocks) / f64::from(read.total_blocks.max(1));
        self.tallies.iter_mut().for_each(|tally| tally.scale(weight));
        let subject = Subject {
            relation: &model.relation,
            options: &first.advisor.options,
            server: &first.advisor.server,
            facts,
            extraction: None,
            shards: (kind == MemberKind::Shard).then_some(ShardsReport {
                shards: self.shards,
                nodes: self.nodes.len() as u64,
                not_read: lost.len() as u64,
                copies: read.files.len() as u64,
            }),
            partitions: (kind == MemberKind::Partition).then_some(PartitionsReport {
                partitions: self.shards,
                not_read: lost.len() as u64,
                different: self.different,
            }),
            partition_names,
            read,
        };
        let calibrated = self.calibrated.unwrap_or_default();
        let mut reports = reports(&subject, &model.variants, &self.tallies, &calibrated);
        for report in &mut reports {
            report.compaction = None;
            report.notes.extend_from_slice(notes);
            if kind == MemberKind::Partition {
                let all = self.relations.iter().chain([&model.relation]);
                let owners: BTreeSet<&str> =
                    all.filter_map(|one| one.other_owner.as_deref()).collect();
                report.other_owner =
                    (!owners.is_empty()).then(|| Vec::from_iter(owners).join(", "));
                report.notes.extend(growing(report, &self.relations));
            } else if changes_storage(report) {
                report.recommendation.sql.clear();
                report.notes.push(NO_STORAGE.to_owned());
            }
            if !lost.is_empty() {
                let caveat = format!(
                    "{} of its {}s were not read, and are not in these figures",
                    lost.len(),
                    kind.name()
                );
                let changes =
                    report.candidates.iter_mut().filter(|candidate| !candidate.marks.today);
                changes.for_each(|candidate| candidate.caveats.insert(0, caveat.clone()));
            }
        }
        Ok(reports)
    }
}

const NO_STORAGE: &str =
    "Citus refuses SET STORAGE for its tables; toastctl retoast sets it on every node instead.";

fn changes_storage(report: &Report) -> bool {
    let chosen = report.candidates.get(report.recommendation.candidate);
    let storages = [report.candidates.first(), chosen];
    let [today, chosen] = storages.map(|one| one.map(|one| &one.settings.storage));
    chosen != today
}

/// The part by which a partition grows that is worth a note.
const GROWS: f64 = 0.05;
/// Partitions that a note names.
const NAMED: usize = 4;

/// The partitions that would grow, although the table as a whole would not.
fn growing(report: &Report, partitions: &[Relation]) -> Option<String> {
    let parts = partitions.iter().zip(&report.part_changes);
    let growing: Vec<String> = parts
        .filter(|(_, change)| **change > 1.0 + GROWS)
        .map(|(partition, change)| {
            format!("{} by {:.0} %", partition.display_name(), (change - 1.0) * 100.0)
        })
        .collect();
    if growing.is_empty() || report.recommendation.candidate == 0 {
        return None;
    }
    let named = growing.get(..NAMED.min(growing.len())).unwrap_or_default().join(", ");
    let more = match growing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("Not all partitions are alike: with these settings some grow, {named}{more}."))
}

fn nothing_read(kind: MemberKind, name: &str, lost: &[Failed]) -> AdviseError {
    let why = lost.first().map(|failed| failed.message.to_string()).unwrap_or_default();
    let why = format!("no {} could be read: {why}", kind.name());
    AdviseError::NotRead { relation: name.to_owned(), why }
}

/// Whether the error concerns this shard only.
fn is_of_shard(error: &AdviseError) -> bool {
    matches!(
        error,
        AdviseError::Live { .. }
            | AdviseError::NoRows { .. }
            | AdviseError::NotRead { .. }
            | AdviseError::Differs { .. }
    )
}

/// The number of blocks of all shards, as far as a sample can be drawn from them.
fn blocks_of(name: &str, blocks: u64) -> Result<u32, AdviseError> {
    u32::try_from(blocks).map_err(|_| AdviseError::NotRead {
        relation: name.to_owned(),
        why: "the shards have more than 4294967295 blocks together, too many to sample; connect to a node and \
              name a shard"
            .to_owned(),
    })
}

/// The shards that were not read, grouped by node and reason.
fn problems(lost: &[Failed]) -> Problems {
    let mut problems = Problems::default();
    for Failed { message, .. } in by_reason(lost.iter().cloned()) {
        let node = message.at.node.clone().unwrap_or_default();
        let at = Box::new(Location { node: None, ..*message.at });
        let lines = Message { at, ..message }.to_string();
        let message = lines.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        problems.add(Problem { place: Place::new(node), message });
    }
    problems
}

fn notes(added: &Added, lost: &[Failed], measured: Option<String>) -> Vec<String> {
    let mut notes = vec![match added.kind {
        MemberKind::Shard => {
            "The figures are for all shards together; each was sampled in proportion to its size. What compaction alone \
             would return is not estimated: toastctl inspect shows it for each shard."
                .to_owned()
        }
        MemberKind::Partition => {
            "The figures are for all partitions together; each was sampled in proportion to its size.".to_owned()
        }
    }];
    for different in &added.different {
        notes.push(format!(
            "Not in these figures, although the command names the whole table: {different}."
        ));
    }
    if added.read.files.len() as u64 > added.shards {
        notes.push(
            "Of each shard with copies, one copy was read. The figures are for all copies, assuming that they are equal."
                .to_owned(),
        );
    }
    let mut calibrated = added.calibrated.iter().flatten();
    if let Some(place) = measured
        && calibrated.any(|one| one.report.source == CalibrationSource::Measured)
    {
        notes.push(format!("CPU times were measured with values of {place}."));
    }
    if !lost.is_empty() {
        notes.push(format!(
            "{} of {} {}s were not read; they may differ, and no figure includes them.",
            lost.len(),
            lost.len() as u64 + added.shards,
            added.kind.name()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(values: &[(&str, &str)]) -> ShardDefinition {
        ShardDefinition(
            values.iter().map(|&(what, value)| (what.to_owned(), value.to_owned())).collect(),
        )
    }

    #[test]
    fn what_differs_between_shards_is_named() {
        let all = [
            ("fillfactor", "100"),
            ("column \"a\"", "text main pglz"),
            ("column \"b\"", "integer"),
        ];
        let model = layout(&all);
        let difference = |values: &[(&str, &str)]| layout(values).difference(&model);
        assert_eq!(difference(&all), None);
        let filled = [("fillfactor", "90"), all[1], all[2]];
        assert_eq!(difference(&filled).unwrap(), "fillfactor is 90, and 100 in");
        let less = difference(&all[..2]).unwrap();
        assert_eq!(less, "column \"b\" is missing, and integer in");
        let more = difference(&[all[0], all[1], all[2], ("column \"c\"", "date")]).unwrap();
        assert_eq!(more, "column \"c\" is date, and missing in");
        assert!(difference(&[all[0], all[2], all[1]]).unwrap().starts_with("the order of columns"));
    }

    #[test]
    fn the_settings_are_those_of_most_bytes() {
        fn shard(fillfactor: &str, bytes: u64) -> DescribedShard {
            let definition = layout(&[("fillfactor", fillfactor)]);
            DescribedShard { definitions: [definition.clone(), definition], bytes }
        }
        let shards = [("100", 30), ("50", 70), ("100", 40), ("100", 20)];
        let shards = shards.map(|(fillfactor, bytes)| shard(fillfactor, bytes));
        assert_eq!(largest_of_most(&shards), [2, 0, 3, 1]);
        assert_eq!(largest_of_most(&shards[..2]), [1, 0]);
        assert!(largest_of_most(&[]).is_empty());
    }

    #[test]
    fn shards_that_one_reason_keeps_from_being_read_are_one_problem() {
        let lost = |node: &str, shard: &str, why: &str| {
            Failed::new(Kind::Lost, why).hint("wait").of_shard(node, shard)
        };
        let all = [
            lost("w1:1", "d_1", "gone"),
            lost("w1:1", "d_2", "gone"),
            lost("w1:1", "d_3", "locked"),
            lost("w2:1", "d_4", "locked"),
        ];
        let problems = problems(&all);
        let texts: Vec<String> = problems.kept().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "w1:1: d_1, d_2: gone; HINT:  wait",
                "w1:1: d_3: locked; HINT:  wait",
                "w2:1: d_4: locked; HINT:  wait",
            ]
        );
    }
}
