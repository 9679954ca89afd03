//! Which relations the names and patterns of a command line select, which of them are left out because their rows are
//! stored elsewhere, and suggestions for misspelt names.

use std::collections::{BTreeMap, HashMap, HashSet};

use tokio_postgres::Row;
use tokio_postgres::types::{Oid as PgOid, ToSql, Type};

use super::citus::{self, CitusKind, SHOWN_BY};
use super::connect::{Client, Connection};
use super::pattern::{NamePattern, PatternPart};
use super::similar::similar;
use super::sink::{Failed, Kind, Sink};
use super::{LiveError, LiveResult, Parameter};
use crate::command::{name_words, schema_words, shell_quoted, table_words};
use crate::message::{Message, listed};
use toast_format::disk::Oid;
use toast_format::model::sql::quote_literal;

/// The maximum number of names in a notice; further ones are only counted.
const LISTED: usize = 10;

/// How a relation was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By a name without wildcards.
    Named,
    /// By a pattern, or as one of all tables.
    Matched,
    /// As a partition or an inheritance child of a selected table, which was named, or else matched a pattern.
    Inherited { from_named: bool },
}

impl How {
    /// Whether a relation that does not fit the request is left out, and not an error.
    pub(crate) fn leaves_out(self) -> bool {
        matches!(self, How::Matched | How::Inherited { from_named: false })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    pub oid: Oid,
    /// How it was selected.
    pub how: How,
}

/// What a verb reads apart from the tables of this database's users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing apart from these.
    Here,
    /// Tables of Citus too, on the nodes: those that are named, and those that match if the session does not see shards,
    /// which match themselves otherwise.
    Nodes,
    /// These, and system catalogs where no table is named.
    NodesAndCatalogs,
}

/// Why the rows of a relation are not stored here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    Foreign,
    Citus(CitusKind),
    /// In another session, as those of its temporary tables.
    Session,
}

/// The tables of Citus, and which of them are read on the nodes.
struct CitusTables {
    tables: HashMap<Oid, CitusKind>,
    named: bool,
    matched: bool,
}

impl CitusTables {
    async fn ask(client: &Client, named: bool) -> LiveResult<CitusTables> {
        let tables = citus::tables(client).await?;
        let matched = named && !tables.is_empty() && !citus::shows_shards(client).await?;
        Ok(CitusTables { tables, named, matched })
    }
}

/// The relations selected by a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The relations, each once.
    pub found: Vec<Selected>,
    /// Their OIDs.
    seen: HashSet<Oid>,
    /// OIDs of relations that were excluded.
    excluded: HashSet<Oid>,
    /// That patterns exclude nothing, and why.
    without_effect: Vec<String>,
    /// Named partitioned tables that have no partitions, and so no rows.
    empty: Vec<String>,
    /// Materialized views without data, whose rows the server refuses to read.
    unpopulated: Vec<String>,
    /// Tables whose rows are stored on other servers.
    foreign: Vec<String>,
    /// Temporary tables of other sessions.
    temporary: Vec<String>,
    /// Whether only tables with pages that are known here are read, unless they are named.
    pages_only: bool,
    /// The others, by access method.
    not_heap: BTreeMap<String, Vec<String>>,
    citus: Vec<(Oid, String)>,
    /// Tables of Citus that are to be read on the nodes; the others are left out.
    pub(crate) on_nodes: Vec<Oid>,
    /// Where the rows of the others are, as after "whose rows are stored in".
    shards: String,
    /// What this node stores of them, and the session does not see.
    failures: Vec<Message>,
    /// Whether all tables were requested, and there are only system catalogs.
    pub(crate) lacks_tables: bool,
}

impl Selection {
    pub fn oids(&self) -> Vec<Oid> {
        self.found.iter().map(|found| found.oid).collect()
    }

    /// Partitioned tables without partitions, patterns without effect, and the relations that are left out: a line for
    /// each reason.
    pub fn notices(&self) -> Vec<String> {
        let only_catalogs = "this database has no tables: only its system catalogs are read";
        let lacks = self.lacks_tables.then(|| only_catalogs.to_owned()).into_iter();
        let empty = self.empty.iter().map(|name| format!("{name} has no partitions"));
        let unpopulated = self
            .unpopulated
            .iter()
            .map(|name| format!("{name} is a materialized view that was not populated"));
        lacks
            .chain(empty)
            .chain(unpopulated)
            .chain(self.without_effect.iter().cloned())
            .chain(self.left_out().map(|text| format!("left out: {text}")))
            .collect()
    }

    fn left_out(&self) -> impl Iterator<Item = String> {
        let foreign: Vec<&str> = self.foreign.iter().map(String::as_str).collect();
        let temporary: Vec<&str> = self.temporary.iter().map(String::as_str).collect();
        let citus: Vec<&str> = self.citus.iter().map(|(_, name)| name.as_str()).collect();
        let session = "in the memory of other sessions";
        let temporary =
            left_out(temporary, "is a temporary table", "are temporary tables", session);
        let elsewhere = "outside of this database";
        let foreign = left_out(foreign, "is a foreign table", "are foreign tables", elsewhere);
        let in_shards = format!("in {}", self.shards);
        let citus = left_out(citus, "is a table of Citus", "are tables of Citus", &in_shards);
        let not_heap = self.not_heap.iter().filter_map(|(method, names)| {
            let names = names.iter().map(String::as_str).collect();
            left_out(names, "is a table", "are tables", &format!("by the access method {method}"))
        });
        foreign.into_iter().chain(temporary).chain(citus).chain(not_heap)
    }

    /// Leaves a relation out if it has no pages that are known here. Returns whether it does.
    fn leaves_without_pages(&mut self, class: &Class) -> bool {
        let Some(method) = &class.method else { return false };
        if !self.pages_only {
            return false;
        }
        if !self.excluded.contains(&class.oid) {
            self.not_heap.entry(method.clone()).or_default().push(class.name.clone());
        }
        true
    }

    /// Adds partitions or inheritance children of a relation, or leaves them out.
    fn add_below(&mut self, children: Vec<Class>, citus: &CitusTables, from_named: bool) {
        for child in self.with_pages(children) {
            match elsewhere(&child, &citus.tables) {
                Some(why) => self.leave_out(why, child, citus.matched),
                None if child.kind == "r" => self.add(child.oid, How::Inherited { from_named }),
                None => {}
            }
        }
    }

    /// Those that are not left out for this reason.
    fn with_pages(&mut self, mut classes: Vec<Class>) -> Vec<Class> {
        classes.retain(|class| !self.leaves_without_pages(class));
        classes
    }

    /// What should have been read and cannot be seen.
    pub(crate) fn failures(&self) -> Vec<Failed> {
        let failures = self.failures.iter().cloned();
        failures.map(|message| Failed { kind: Kind::Incomplete, message }).collect()
    }

    /// Reports what is left out, and as failures what should have been read.
    pub(crate) fn report_to<R>(&self, output: &mut (impl Sink<R> + ?Sized)) {
        for notice in self.notices() {
            output.message(Message::notice(notice));
        }
        self.failures().into_iter().for_each(|failed| output.failed(failed));
    }

    fn add(&mut self, oid: Oid, how: How) {
        if !self.excluded.contains(&oid) && self.seen.insert(oid) {
            self.found.push(Selected { oid, how });
        }
    }

    /// `taken`: whether a table of Citus is read on the nodes instead.
    fn leave_out(&mut self, why: Elsewhere, class: Class, taken: bool) {
        match why {
            _ if self.excluded.contains(&class.oid) => {}
            Elsewhere::Foreign => self.foreign.push(class.name),
            Elsewhere::Session => self.temporary.push(class.name),
            Elsewhere::Citus(_) if taken => self.on_nodes.push(class.oid),
            Elsewhere::Citus(_) => self.citus.push((class.oid, class.name)),
        }
    }
}

/// Names the relations that are left out for one reason, and where their rows are. `is_one` and `are_many` say what
/// kind of relation one or several of them are.
fn left_out(mut names: Vec<&str>, is_one: &str, are_many: &str, place: &str) -> Option<String> {
    names.sort_unstable();
    names.dedup();
    let kind = if names.len() == 1 { is_one } else { are_many };
    let list = listed(&names, LISTED);
    (!names.is_empty()).then(|| format!("{list} {kind}, whose rows are stored {place}"))
}

/// A row of `pg_class`.
struct Class {
    oid: Oid,
    kind: String,
    name: String,
    /// Whether it belongs to a session. Ours has no temporary tables when it selects.
    is_temporary: bool,
    /// The access method of a table, if it is not heap.
    method: Option<String>,
}

/// The columns of [`Class`].
const CLASS: &str = "c.oid, CASE WHEN c.relkind = 'm' AND NOT c.relispopulated THEN 'unpopulated' \
      ELSE c.relkind::pg_catalog.text END, \
    pg_catalog.concat(n.nspname, '.', c.relname)::pg_catalog.text, c.relpersistence = 't', \
    CASE WHEN c.relkind IN ('r', 'm') THEN (SELECT a.amname::pg_catalog.text FROM pg_catalog.pg_am AS a \
        WHERE a.oid = c.relam AND a.amname <> 'heap') END";

/// That a relation of schema `n` is no system catalog.
const IS_NO_CATALOG: &str = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

/// The kind of a materialized view without data.
const UNPOPULATED: &str = "unpopulated";

impl Class {
    fn read(row: &Row) -> LiveResult<Class> {
        let oid = Oid(row.try_get::<_, PgOid>(0)?);
        let is_temporary = row.try_get(3)?;
        let method = row.try_get(4)?;
        Ok(Class { oid, kind: row.try_get(1)?, name: row.try_get(2)?, is_temporary, method })
    }
}

/// The relations that `wanted` selects, or all user tables if it is empty.
///
/// A partitioned table selects its partitions, and a table with inheritance children selects itself and the children.
/// It is an error if a name without wildcards is not found or its relation has no tuples here, if a pattern matches
/// nothing, and if the rows of all selected relations are stored elsewhere. `database` is the current database, the only one that can be named.
pub async fn select(
    connection: &Connection,
    database: &str,
    wanted: &[String],
) -> LiveResult<Selection> {
    select_within(Reach::Here, connection, database, wanted, &[]).await
}

/// Like [`select`], for a verb that reads more. `excluded`: names and patterns of tables that are left out, with their
/// partitions and inheritance children.
pub(crate) async fn select_within(
    reach: Reach,
    connection: &Connection,
    database: &str,
    wanted: &[String],
    excluded: &[String],
) -> LiveResult<Selection> {
    let client = connection.client();
    let citus = CitusTables::ask(client, reach != Reach::Here).await?;
    let pages_only = reach == Reach::NodesAndCatalogs;
    let mut selection = Selection { pages_only, ..Selection::default() };
    exclude(connection, database, excluded, &mut selection).await?;
    // of them alone it is not said that all is done
    let mut catalogs = 0;
    if wanted.is_empty() {
        let sql = format!(
            "SELECT {CLASS}, is_catalog FROM pg_catalog.pg_class AS c \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace, \
             LATERAL (SELECT NOT ({IS_NO_CATALOG}) AS is_catalog) AS s \
             WHERE c.relkind IN ('r', 'm', 'f') AND ($1 OR NOT is_catalog) \
             ORDER BY is_catalog, n.nspname, c.relname"
        );
        for row in client.query_typed(&sql, &[(&pages_only, Type::BOOL)]).await? {
            let class = Class::read(&row)?;
            catalogs += usize::from(row.try_get::<_, bool>(5)?);
            if selection.leaves_without_pages(&class) {
                continue;
            }
            match elsewhere(&class, &citus.tables) {
                Some(why) => selection.leave_out(why, class, citus.matched),
                None if class.kind == UNPOPULATED => selection.unpopulated.push(class.name),
                None => selection.add(class.oid, How::Matched),
            }
        }
    }
    selection.lacks_tables = pages_only
        && wanted.is_empty()
        && selection.found.len() == catalogs
        && selection.not_heap.is_empty();
    let mut unmatched = Vec::new();
    for want in wanted {
        let before = selection.found.len();
        match select_one(connection, database, want, wanted, &citus, &mut selection).await {
            Err(LiveError::NoMatch(text)) => unmatched.push(text),
            selected => selected?,
        }
        let found = selection.found.get(before..).unwrap_or_default();
        let oids: Vec<String> = found.iter().map(|found| found.oid.0.to_string()).collect();
        let relations = if oids.len() == 1 { "relation" } else { "relations" };
        tracing::debug!("{want}: {} {relations}, OID {}", oids.len(), oids.join(", "));
    }
    // of tables of Citus, shards may be hidden
    let is_all = unmatched.len() == wanted.len() && citus.tables.is_empty();
    match (unmatched.into_iter().next(), wanted.first()) {
        (Some(text), Some(first)) if is_all => {
            return Err(LiveError::NothingMatches { text, pattern: quoted(first) });
        }
        (Some(text), _) => return Err(LiveError::NoMatch(text)),
        (None, _) => {}
    }
    let oids: Vec<Oid> = selection.citus.iter().map(|(oid, _)| *oid).collect();
    if !oids.is_empty() {
        selection.shards = citus::shards(client, &oids).await?.text();
        selection.failures = not_shown(client, &oids).await?;
    }
    if selection.found.len() == catalogs
        && selection.on_nodes.is_empty()
        && let Some(mut text) = selection.left_out().next()
    {
        for failure in &selection.failures {
            text.push_str(&format!("; {failure}"));
        }
        return Err(LiveError::AllElsewhere(text));
    }
    Ok(selection)
}

/// Notes the relations that these names and patterns match, with what is below them, as excluded.
async fn exclude(
    connection: &Connection,
    database: &str,
    excluded: &[String],
    selection: &mut Selection,
) -> LiveResult<()> {
    for pattern in excluded {
        let (_, matches) = matching(connection, database, pattern).await?;
        if matches.is_empty() {
            let why = why_unmatched(connection, pattern, excluded).await?.why;
            let pattern = quoted(pattern);
            selection
                .without_effect
                .push(format!("no table matches {pattern}, which is excluded{why}"));
        }
        for class in matches {
            let below = below(connection.client(), class.oid).await?;
            selection.excluded.extend(below.iter().map(|class| class.oid));
            selection.excluded.insert(class.oid);
        }
    }
    Ok(())
}

/// Whether this is a name, and not a pattern.
pub(crate) fn is_literal(given: &str) -> bool {
    NamePattern::parse(given).is_ok_and(|pattern| pattern.literal().is_some())
}

/// The partitioned tables that `wanted` selects, including partitioned partitions; those of Citus are left out.
pub async fn partitioned(
    connection: &Connection,
    database: &str,
    wanted: &[String],
) -> LiveResult<Vec<Oid>> {
    let client = connection.client();
    let citus = citus::tables(client).await?;
    let mut found = Vec::new();
    for want in wanted {
        for named in matching(connection, database, want).await?.1 {
            if named.kind != "p" {
                continue;
            }
            found.push(named.oid);
            let below = below(client, named.oid).await?;
            found.extend(below.iter().filter(|class| class.kind == "p").map(|class| class.oid));
        }
    }
    let mut seen = HashSet::new();
    found.retain(|oid| seen.insert(*oid) && !citus.contains_key(oid));
    Ok(found)
}

fn elsewhere(class: &Class, citus: &HashMap<Oid, CitusKind>) -> Option<Elsewhere> {
    match class.kind.as_str() {
        "f" => Some(Elsewhere::Foreign),
        _ if class.is_temporary => Some(Elsewhere::Session),
        _ => citus.get(&class.oid).copied().map(Elsewhere::Citus),
    }
}

async fn select_one(
    connection: &Connection,
    database: &str,
    given: &str,
    all: &[String],
    citus: &CitusTables,
    selection: &mut Selection,
) -> LiveResult<()> {
    let (literal, matches) = matching(connection, database, given).await?;
    let how = if literal { How::Named } else { How::Matched };
    let found = matches.len();
    let matches = if literal { matches } else { selection.with_pages(matches) };
    let mut any = matches.len() < found;
    for class in matches {
        if let Some(why) = elsewhere(&class, &citus.tables) {
            let taken = if literal { citus.named } else { citus.matched };
            if literal && !(taken && matches!(why, Elsewhere::Citus(_))) {
                return Err(stored_elsewhere(connection.client(), why, &class).await?);
            }
            if taken && class.kind == "p" {
                let children = below(connection.client(), class.oid).await?;
                for child in selection.with_pages(children) {
                    if let Some(why) = elsewhere(&child, &citus.tables) {
                        selection.leave_out(why, child, taken);
                    }
                }
            }
            selection.leave_out(why, class, taken);
            any = true;
            continue;
        }
        match class.kind.as_str() {
            "r" | "p" => {
                if class.kind == "r" {
                    selection.add(class.oid, how);
                }
                let children = below(connection.client(), class.oid).await?;
                if literal && class.kind == "p" && children.iter().all(|child| child.kind == "p") {
                    selection.empty.push(class.name);
                }
                selection.add_below(children, citus, literal);
            }
            "m" => selection.add(class.oid, how),
            UNPOPULATED => selection.unpopulated.push(class.name),
            // TOAST relations can be named, but `*` does not match them.
            "t" if literal => selection.add(class.oid, how),
            _ if literal => return Err(wrong_kind(connection.client(), &class).await?),
            _ => continue,
        }
        any = true;
    }
    if any {
        Ok(())
    } else if literal {
        let pattern = NamePattern::parse(given).map_err(LiveError::Pattern)?;
        let hint = if let Some(hint) = column_of_table(connection, &pattern).await? {
            hint
        } else if citus::may_be_shard(connection.client(), given).await? {
            format!(
                "\nHINT:  If it is a shard of Citus, it is hidden from this session; {SHOWN_BY} shows shards."
            )
        } else {
            let meant = suggestion(connection, given, all).await?;
            meant.as_deref().map_or_else(String::new, hint_line)
        };
        Err(LiveError::NoSuchRelation { name: quoted(given), hint })
    } else {
        let oids: Vec<Oid> = citus.tables.keys().copied().collect();
        let Unmatched { why, hint } = why_unmatched(connection, given, all).await?;
        let mut text = quoted(given) + &why;
        for failure in not_shown(connection.client(), &oids).await? {
            text.push_str(&format!("; {failure}"));
        }
        Err(LiveError::NoMatch(text + &hint_line(&hint)))
    }
}

/// What this node stores of these tables of Citus, and the session does not see.
async fn not_shown(client: &Client, citus: &[Oid]) -> LiveResult<Vec<Message>> {
    match citus {
        [] => Ok(Vec::new()),
        _ => Ok(citus::not_shown(client, citus).await?.failures()),
    }
}

/// A name in the quotes used in messages, unless it contains quotes.
fn quoted(given: &str) -> String {
    if given.contains('"') { given.to_owned() } else { format!("\"{given}\"") }
}

/// The partitions or inheritance children of a relation, at any depth, by name.
async fn below(client: &Client, oid: Oid) -> LiveResult<Vec<Class>> {
    let sql = format!(
        "WITH RECURSIVE below (oid) AS (\
             SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = $1 \
           UNION \
             SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN below AS b ON i.inhparent = b.oid) \
         SELECT {CLASS} FROM below AS b JOIN pg_catalog.pg_class AS c ON c.oid = b.oid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         ORDER BY c.relname, n.nspname"
    );
    let rows = client.query_typed(&sql, &[(&oid.0, Type::OID)]).await?;
    rows.iter().map(Class::read).collect()
}

/// All relations that match `given`, and whether it has no wildcards. TOAST relations, which errors of the server name without
/// their schema, are found without it; system catalogs match only where their schema is named.
async fn matching(
    connection: &Connection,
    database: &str,
    given: &str,
) -> LiveResult<(bool, Vec<Class>)> {
    let pattern = NamePattern::parse(given).map_err(LiveError::Pattern)?;
    if let Some(other) = pattern.database.as_deref().filter(|name| *name != database) {
        if let Some(hint) = column_of_table(connection, &pattern).await? {
            return Err(LiveError::NoSuchRelation { name: quoted(given), hint });
        }
        return Err(LiveError::Refused(format!(
            "{given}: cross-database references are not possible; connect to \"{other}\""
        )));
    }
    let literal = pattern.literal().is_some();
    let mut schemas = connection.schemas().to_vec();
    if literal {
        schemas.push("pg_toast".to_owned());
    }
    let visible = visible(&schemas);
    let condition = pattern.condition("n.nspname", "c.relname", &visible, 1);
    let schemas = if literal || is_of_catalogs(&pattern) {
        "true"
    } else {
        "n.nspname NOT IN ('pg_catalog', 'information_schema')"
    };
    let sql = format!(
        "SELECT {CLASS} FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE {} AND {schemas} ORDER BY n.nspname, c.relname",
        condition.sql
    );
    let parameters: Vec<Parameter<'_>> =
        condition.parameters.iter().map(|text| (text as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = connection.client().query_typed(&sql, &parameters).await?;
    let classes: LiveResult<Vec<Class>> = rows.iter().map(Class::read).collect();
    Ok((literal, classes?))
}

/// Whether a pattern names a schema, or begins like the names of system catalogs.
fn is_of_catalogs(pattern: &NamePattern) -> bool {
    let first = pattern.schema.as_ref().unwrap_or(&pattern.name);
    let names_schema = pattern.schema.as_ref().is_some_and(|schema| schema.literal.is_some());
    names_schema
        || first.regex.starts_with("^(pg_")
        || first.regex.starts_with("^(information_schema")
}

/// The error for a relation that was named and has its rows elsewhere.
async fn stored_elsewhere(client: &Client, why: Elsewhere, class: &Class) -> LiveResult<LiveError> {
    let (kind, hint) = match why {
        Elsewhere::Foreign => ("a foreign table", foreign(client, class.oid).await?),
        Elsewhere::Session => {
            ("a temporary table of another session", "only that session can access it".to_owned())
        }
        Elsewhere::Citus(kind) => {
            let shards = citus::shards(client, &[class.oid]).await?.text();
            let hint = format!(
                "its rows are stored in {shards}\n\
                 HINT:  Connect to each node with {SHOWN_BY} and name the shards, which the view citus_shards lists."
            );
            (kind.text(), hint)
        }
    };
    Ok(LiveError::Refused(format!("\"{}\" is {kind}; {hint}", class.name)))
}

/// Where the rows of a foreign table are, and what to do.
async fn foreign(client: &Client, oid: Oid) -> LiveResult<String> {
    let sql = "SELECT pg_catalog.format('%I (%I)', s.srvname, w.fdwname) \
               FROM pg_catalog.pg_foreign_table AS f \
               JOIN pg_catalog.pg_foreign_server AS s ON s.oid = f.ftserver \
               JOIN pg_catalog.pg_foreign_data_wrapper AS w ON w.oid = s.srvfdw WHERE f.ftrelid = $1";
    let server: Option<String> = client.value(sql, &[(&oid.0, Type::OID)]).await?;
    Ok(match server {
        Some(server) => format!(
            "its rows are stored outside of this database, on the foreign server {server}\n\
             HINT:  If that is a PostgreSQL server, connect to it."
        ),
        None => "its rows are stored outside of this database".to_owned(),
    })
}

/// The error for a relation that was named and has no rows.
async fn wrong_kind(client: &Client, class: &Class) -> LiveResult<LiveError> {
    let (kind, hint) = match class.kind.as_str() {
        "v" => ("a view", read_by_view(client, class.oid).await?),
        "i" | "I" => ("an index", index_of(client, class.oid).await?),
        "S" => ("a sequence", "it has no columns that could be toasted".to_owned()),
        "c" => ("a composite type", "name a table".to_owned()),
        _ => ("no table", "name a table, a materialized view or a TOAST relation".to_owned()),
    };
    Ok(LiveError::Refused(format!("\"{}\" is {kind}; {hint}", class.name)))
}

/// The name in a row of schema and name, as it is typed in a shell.
fn typed_name(row: &Row) -> LiveResult<String> {
    let schema: String = row.try_get(0)?;
    let name: String = row.try_get(1)?;
    Ok(table_words(&schema, &name))
}

/// The tables to name instead of a view: those that it reads, and those that its views read.
async fn read_by_view(client: &Client, oid: Oid) -> LiveResult<String> {
    let sql = "WITH RECURSIVE read (oid, kind) AS (\
             SELECT $1::pg_catalog.oid, 'v'::pg_catalog.text \
           UNION \
             SELECT c.oid, c.relkind::pg_catalog.text FROM read AS v \
             JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = v.oid AND v.kind = 'v' \
             JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
               AND d.objid = r.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
             JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid) \
         SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text FROM read AS r \
         JOIN pg_catalog.pg_class AS c ON c.oid = r.oid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE r.kind IN ('r', 'p', 'm') ORDER BY 1, 2";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    // it may read foreign tables
    let names = rows.iter().map(typed_name).collect::<LiveResult<Vec<String>>>()?;
    Ok(match names.as_slice() {
        [] => "it reads no table that is stored here".to_owned(),
        names => format!("name the tables that it reads: {}", listed(names, LISTED)),
    })
}

/// Which table to name instead of its TOAST relation, as it can be typed in a shell.
pub(crate) async fn table_of_toast(client: &Client, oid: Oid) -> LiveResult<String> {
    let sql = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text FROM pg_catalog.pg_depend AS d \
         JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = $1 \
           AND d.refclassid = d.classid AND d.deptype = 'i'";
    let rows = client.query_typed(sql, &[(&oid.0, Type::OID)]).await?;
    // those of catalogs that initdb made have no entry
    let Some(row) = rows.first() else {
        return Ok("Name the table that it belongs to.".to_owned());
    };
    Ok(format!("Name the table that it belongs to: {}", typed_name(row)?))
}

/// The table to name instead of its index.
async fn index_of(client: &Client, oid: Oid) -> LiveResult<String> {
    let sql = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_index AS i \
               JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.indexrelid = $1";
    let table: Option<String> = client.value(sql, &[(&oid.0, Type::OID)]).await?;
    Ok(table
        .map_or_else(|| "name its table".to_owned(), |table| format!("name its table, {table}")))
}

/// A hint for words that were given as one.
const SEVERAL_TABLES: &str = "Several tables are separate words; a name with a blank is quoted twice, as in '\"Order Items\"'.";

/// A hint for a name to which none is similar.
const OTHER_TABLES: &str =
    "toastctl inspect shows the tables of this database; -d names another one.";

/// A hint where there is none at all.
const NO_TABLES: &str = "This database has no tables; -d names another one.";

/// A pattern that matches no table.
struct Unmatched {
    /// What its schemas lack, after a colon; empty if they have tables.
    why: String,
    hint: String,
}

/// Why a pattern matches no table, and what may have been meant.
/// `all`: the names of the command.
async fn why_unmatched(
    connection: &Connection,
    given: &str,
    all: &[String],
) -> LiveResult<Unmatched> {
    let pattern = NamePattern::parse(given).map_err(LiveError::Pattern)?;
    let hint = if given.starts_with('\\') {
        "toastctl has verbs instead of psql's commands: toastctl inspect TABLE shows a table."
            .to_owned()
    } else if let Some(schema) = &pattern.schema {
        match Schemas::find(connection, schema).await? {
            Schemas { matching: 1.., with_tables: 1.., .. } => OTHER_TABLES.to_owned(),
            found => return Ok(found.unmatched(schema)),
        }
    } else if pattern.name.literal.is_some() {
        suggestion(connection, given, all).await?.unwrap_or_default()
    } else {
        OTHER_TABLES.to_owned()
    };
    Ok(Unmatched { why: String::new(), hint })
}

/// The schemas of this database, and those that a part of a pattern matches.
struct Schemas {
    /// How many of them match.
    matching: usize,
    /// How many of these have tables.
    with_tables: usize,
    /// The names of those that have tables, apart from catalogs.
    names: Vec<String>,
}

impl Schemas {
    async fn find(connection: &Connection, part: &PatternPart) -> LiveResult<Schemas> {
        let sql = format!(
            "SELECT n.nspname::pg_catalog.text, {IS_NO_CATALOG}, \
                    n.nspname::pg_catalog.text OPERATOR(pg_catalog.~) $1 COLLATE pg_catalog.default, \
                    EXISTS (SELECT FROM pg_catalog.pg_class AS c \
                            WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'm', 'p')) \
             FROM pg_catalog.pg_namespace AS n ORDER BY 1"
        );
        let rows = connection.client().query_typed(&sql, &[(&part.regex, Type::TEXT)]).await?;
        let mut found = Schemas { matching: 0, with_tables: 0, names: Vec::new() };
        for row in &rows {
            let matches: bool = row.try_get(2)?;
            let has_tables: bool = row.try_get(3)?;
            found.matching += usize::from(matches);
            found.with_tables += usize::from(matches && has_tables);
            if row.try_get(1)? && has_tables {
                found.names.push(row.try_get(0)?);
            }
        }
        Ok(found)
    }

    /// What is said of this part of a pattern, which matches none of them that has tables.
    fn unmatched(&self, part: &PatternPart) -> Unmatched {
        let why = match (&part.literal, self.matching) {
            (Some(name), 0) => format!(": there is no schema \"{name}\""),
            (Some(name), _) => format!(": the schema \"{name}\" has no tables"),
            (None, 0) => ": no schema matches it".to_owned(),
            (None, _) => ": the schemas that match have no tables".to_owned(),
        };
        let meant = part.literal.as_deref().unwrap_or_default();
        let near = similar(meant, &self.names).first().map(|near| name_words(near));
        let hint = match (near, self.names.is_empty()) {
            (Some(near), _) => format!("Perhaps you meant the schema {near}."),
            (None, true) => NO_TABLES.to_owned(),
            (None, false) => {
                let names: Vec<String> = self.names.iter().map(|one| name_words(one)).collect();
                format!("Schemas with tables: {}.", listed(&names, LISTED))
            }
        };
        Unmatched { why, hint }
    }
}

fn hint_line(hint: &str) -> String {
    format!("\nHINT:  {hint}")
}

/// What may have been meant by the name of a table that does not exist.
async fn suggestion(
    connection: &Connection,
    wanted: &str,
    all: &[String],
) -> LiveResult<Option<String>> {
    let sql = format!(
        "SELECT {}, n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'm', 'p') AND {IS_NO_CATALOG} ORDER BY 1, 2, 3 LIMIT 10000",
        visible(connection.schemas())
    );
    let rows = connection.client().query_typed(&sql, &[]).await?;
    let mut names = Vec::with_capacity(rows.len());
    let mut words = HashMap::with_capacity(rows.len());
    for row in &rows {
        let schema: String = row.try_get(1)?;
        let table: String = row.try_get(2)?;
        let (shown, typed) = if row.try_get(0)? {
            (table.clone(), name_words(&table))
        } else {
            (format!("{schema}.{table}"), table_words(&schema, &table))
        };
        names.push(shown.clone());
        words.insert(shown, typed);
    }
    for other in [other_object(connection, wanted).await?, of_oid(connection, wanted).await?] {
        if other.is_some() {
            return Ok(other);
        }
    }
    if names.is_empty() {
        return Ok(Some(NO_TABLES.to_owned()));
    }
    if let Some(hint) = value_of_row(wanted, &names) {
        return Ok(Some(hint));
    }
    let similar = similar(wanted, &names);
    let found: Vec<&str> =
        similar.iter().filter_map(|name| words.get(*name)).map(String::as_str).collect();
    let is_quoted = wanted.contains('"');
    Ok(match found.as_slice() {
        _ if wanted.contains(',') && !is_quoted => Some(SEVERAL_TABLES.to_owned()),
        _ if wanted.parse::<i64>().is_ok() => {
            Some(format!("A value is named by its row: toastctl value 'TABLE.COLUMN@id={wanted}'."))
        }
        [] if wanted.contains(' ') && !is_quoted => Some(SEVERAL_TABLES.to_owned()),
        [] => Some(of_column(connection, wanted, all).await?),
        [one] => Some(format!("Perhaps you meant the table {one}.")),
        several => Some(format!("Perhaps you meant one of the tables {}.", several.join(", "))),
    })
}

/// How to name the value that a name with a row, as in `orders@id=42`, was meant for.
fn value_of_row(wanted: &str, tables: &[String]) -> Option<String> {
    if wanted.contains('"') {
        return None;
    }
    let (name, row) = match wanted.split_once('@') {
        Some(parts) => parts,
        None => wanted.rsplit_once('.').filter(|(_, row)| row.contains('='))?,
    };
    let is_table = !name.contains('.') || tables.iter().any(|table| names_table(name, table));
    let column = if is_table || !wanted.contains('@') { ".COLUMN" } else { "" };
    let value = shell_quoted(&format!("{name}{column}@{row}"));
    Some(format!("A value is named by its column and row: toastctl value {value}."))
}

/// Whether a name is that of a table, which is listed without its schema if that is in the search path.
fn names_table(name: &str, table: &str) -> bool {
    name == table || name.strip_suffix(table).is_some_and(|schema| schema.ends_with('.'))
}

/// What has the OID that was given as a name, or in that of a TOAST relation, in place of a name.
async fn of_oid(connection: &Connection, wanted: &str) -> LiveResult<Option<String>> {
    let name = wanted.strip_prefix("pg_toast.").unwrap_or(wanted);
    let toast = name.strip_prefix("pg_toast_");
    let Ok(oid) = toast.unwrap_or(name).parse::<PgOid>() else { return Ok(None) };
    let sql = "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = $1";
    let rows = connection.client().query_typed(sql, &[(&oid, Type::OID)]).await?;
    match (rows.first(), toast) {
        (Some(row), _) => Ok(Some(format!("OID {oid} is {}.", typed_name(row)?))),
        (None, Some(_)) => Ok(Some(format!("No table of this database has the OID {oid}."))),
        (None, None) => Ok(None),
    }
}

/// A hint about a name that may be that of a column, or one that helps with any name.
async fn of_column(connection: &Connection, wanted: &str, all: &[String]) -> LiveResult<String> {
    let Some((table, column)) = table_of_column(connection, wanted, all).await? else {
        return other_schema(connection, wanted).await;
    };
    let last = wanted.rsplit('.').next();
    let is = if last == Some(&column) { "That is".to_owned() } else { format!("{column} is") };
    let column = shell_quoted(&column);
    let how = format!(
        "toastctl value '{table}.{column}@id=42' shows a value, and inspect, keys, advise-threshold and retoast take -c {column}."
    );
    Ok(format!("{is} a column of the table {table}: {how}"))
}

/// A hint for a name to which none is similar, and whose schema may not exist.
async fn other_schema(connection: &Connection, wanted: &str) -> LiveResult<String> {
    let pattern = NamePattern::parse(wanted).map_err(LiveError::Pattern)?;
    let Some(schema) = pattern.schema else { return Ok(OTHER_TABLES.to_owned()) };
    let found = Schemas::find(connection, &schema).await?;
    match (&schema.literal, found.matching) {
        (Some(name), 0) => {
            let hint = found.unmatched(&schema).hint;
            Ok(format!("There is no schema \"{name}\". {hint}"))
        }
        _ => Ok(OTHER_TABLES.to_owned()),
    }
}

/// What to write if the name is that of a schema or a database.
async fn other_object(connection: &Connection, wanted: &str) -> LiveResult<Option<String>> {
    let Ok(pattern) = NamePattern::parse(wanted) else { return Ok(None) };
    let Some((None, name)) = pattern.literal() else { return Ok(None) };
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1), \
                      EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1 AND datallowconn), \
                      $1 = pg_catalog.current_database()";
    let rows = connection.client().query_typed(sql, &[(&name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let hint = if row.try_get(0)? {
        format!("That is a schema: {} selects its tables.", schema_words(name))
    } else if row.try_get(2)? {
        "That is this database: toastctl inspect without a name shows its tables; '*' selects those of the search path."
            .to_owned()
    } else if row.try_get(1)? {
        format!("That is a database: -d {} connects to it.", shell_quoted(name))
    } else {
        return Ok(None);
    };
    Ok(Some(hint))
}

/// The column whose name is most like this one, of the tables that the user's session finds by their names, and one
/// of them that has it: one that the command names, or names almost, a table rather than a materialized view, the first.
async fn table_of_column(
    connection: &Connection,
    wanted: &str,
    all: &[String],
) -> LiveResult<Option<(String, String)>> {
    let sql = format!(
        "SELECT a.attname::pg_catalog.text, c.relname::pg_catalog.text, c.relkind = 'm' \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
         WHERE c.relkind IN ('r', 'm', 'p') AND NOT c.relispartition \
           AND {IS_NO_CATALOG} AND {} \
         ORDER BY a.attname::pg_catalog.text <> $1, 1, 2 LIMIT 10000",
        visible(connection.schemas())
    );
    let (before, last) =
        wanted.rsplit_once('.').map_or((None, wanted), |(table, column)| (Some(table), column));
    let rows = connection.client().query_typed(&sql, &[(&last, Type::TEXT)]).await?;
    let mut tables: HashMap<String, Vec<(bool, String)>> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let found = (row.try_get(2)?, row.try_get(1)?);
        tables.entry(row.try_get(0)?).or_default().push(found);
    }
    let names: Vec<String> = tables.keys().cloned().collect();
    let Some(column) = similar(wanted, &names).first().copied() else { return Ok(None) };
    let found = tables.get(column).map_or(&[][..], Vec::as_slice);
    let best = found.iter().min_by_key(|(is_view, table)| {
        let names = std::slice::from_ref(table);
        let named = all.iter().filter(|name| *name != wanted).map(String::as_str);
        let is_named = named.clone().any(|name| name == table);
        let is_meant = named.chain(before).any(|name| !similar(name, names).is_empty());
        (!is_named, !is_meant, *is_view, table)
    });
    Ok(best.map(|(_, table)| (name_words(table), column.to_owned())))
}

/// A hint, on a separate line, for a name that is that of a table and one of its columns.
async fn column_of_table(
    connection: &Connection,
    pattern: &NamePattern,
) -> LiveResult<Option<String>> {
    let Some((Some(table), column)) = pattern.literal() else { return Ok(None) };
    let words = match &pattern.database {
        Some(schema) => table_words(schema, table),
        None => name_words(table),
    };
    let sql = format!(
        "SELECT bool_or(EXISTS (SELECT FROM pg_catalog.pg_attribute AS a \
                                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = $3)) \
         FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'm', 'p') AND c.relname = $2 \
           AND CASE WHEN $1 = '' THEN {} ELSE n.nspname = $1 END",
        visible(connection.schemas())
    );
    let schema = pattern.database.as_deref().unwrap_or_default();
    let parameters: [Parameter<'_>; 3] =
        [(&schema, Type::TEXT), (&table, Type::TEXT), (&column, Type::TEXT)];
    // NULL if there is no such table
    let is_column: Option<Option<bool>> = connection.client().value(&sql, &parameters).await?;
    let hint = match is_column.flatten() {
        Some(true) => format!(
            "Name the table, {words}: \"{column}\" is one of its columns. A single value is named as in \
             table.column@id=42; verbs that take columns have -c."
        ),
        Some(false) if pattern.database.is_some() => {
            format!("The table {words} has no column \"{column}\".")
        }
        _ => return Ok(None),
    };
    Ok(Some(format!("\nHINT:  {hint}")))
}

/// The condition that the user's own session finds a relation by its unqualified name. `pg_table_is_visible` would use
/// the search path of the current session.
pub(super) fn visible(schemas: &[String]) -> String {
    let list: Vec<String> = schemas.iter().map(|schema| quote_literal(schema)).collect();
    let path = format!("ARRAY[{}]::pg_catalog.name[]", list.join(", "));
    let place = format!("pg_catalog.array_position({path}, n.nspname)");
    let other_place = format!("pg_catalog.array_position({path}, n2.nspname)");
    format!(
        "{place} IS NOT NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c2 \
         JOIN pg_catalog.pg_namespace AS n2 ON n2.oid = c2.relnamespace \
         WHERE c2.relname = c.relname AND {other_place} < {place})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_once_for_each_reason() {
        let mut selection = Selection::default();
        assert!(selection.notices().is_empty());
        selection.foreign = ["s.b", "s.a", "s.b"].map(str::to_owned).into();
        selection.citus = vec![(Oid(7), "s.d".into())];
        selection.shards = "32 shards on w1:5432".into();
        assert_eq!(
            selection.notices(),
            [
                "left out: s.a, s.b are foreign tables, whose rows are stored outside of this database",
                "left out: s.d is a table of Citus, whose rows are stored in 32 shards on w1:5432",
            ]
        );
        selection.foreign = (0..13).map(|n| format!("s.f{n:02}")).collect();
        let notices = selection.notices();
        assert!(notices[0].contains("s.f09 and 3 more are foreign tables"), "{notices:?}");
    }
}
