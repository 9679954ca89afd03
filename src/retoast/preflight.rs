//! What is looked at before the first row is touched, and why a table is refused.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::choice::{Changes, Current, Toaster};
use super::generated::{Generated, generated};
use super::pluggable::{self, Asked, Plan, PlanError};
use super::policy::Rule;
use super::policy_preflight;
use super::shapes;
use super::sql::Target;
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::Length;
use crate::disk::layout::PageSize;
use crate::model::cost::Prices;
use crate::model::policy::{MethodChoice, Policy};
use crate::model::settings::TupleTarget;
use crate::model::toast::{Column, Table as Model};
use crate::source::live::LiveError;
use crate::source::live::catalog::{self, Relation, RelationKind};
use crate::source::live::server::{Compression, Server};
use crate::source::live::toasters::{self, TOAST_RELATIONS};
use crate::source::sql::quote_identifier;

/// What the user wants done to each table.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The columns.
    pub columns: Vec<String>,
    /// What is to store them on a stock server; with a toaster of `pg_toaster`,
    /// [`Toaster::Extended`], which leaves the compression method as it is.
    pub toaster: Toaster,
    /// What is asked in the terms of a server with pluggable TOAST.
    pub asked: Asked,
    /// `toast_tuple_target`, if it is to be set.
    pub target: Option<u32>,
    /// Leave the settings as they are.
    pub no_alter: bool,
    /// Which values are to be compressed, if that is decided value by value; the toaster is then
    /// `external`.
    pub rule: Option<RuleWish>,
    /// Go on although triggers will fire.
    pub allow_triggers: bool,
    /// Go on although row security hides rows.
    pub allow_row_security: bool,
}

/// What the user wants decided value by value.
#[derive(Debug, Clone, Copy)]
pub struct RuleWish {
    /// By what.
    pub policy: Policy,
    /// With which method; `None` for each column's own.
    pub method: Option<MethodChoice>,
    /// Whether new values are to be compressed whenever they can be: the columns are left at storage
    /// `extended`, not `external`.
    pub new_extended: bool,
}

/// What the columns are set to when all is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// The statement.
    pub sql: String,
    /// Whether they are set so now.
    pub is_set: bool,
}

/// A table ready to be swept.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The table.
    pub relation: Relation,
    /// The chosen columns.
    pub targets: Vec<Target>,
    /// Stored generated columns that are computed anew with them.
    pub follow: Vec<Target>,
    /// The names of the columns whose values are stored.
    pub stored_columns: Vec<String>,
    /// What must be set first.
    pub changes: Changes,
    /// By what values are judged where there are toasters besides the stock ones.
    pub plan: Option<Plan>,
    /// The table as the toaster will see it once that is set.
    pub model: Model,
    /// Whether ordinary triggers can be silenced.
    pub replica_role: bool,
    /// Whether triggers will fire.
    pub triggers_fire: bool,
    /// What the user should know.
    pub notes: Vec<String>,
    /// What decides value by value.
    pub rule: Option<Rule>,
    /// What the columns are set to in the end, if it is not what the sweep needs.
    pub leave: Option<Leave>,
}

impl Ready {
    /// The name of the toaster that was chosen; `stock` is the choice where there are stock ones only.
    pub fn toaster_name(&self, stock: Toaster) -> String {
        self.plan.as_ref().map_or(stock.name(), |plan| &plan.toaster).to_owned()
    }

    /// With a policy, all that decides what becomes of values, in a line.
    pub fn choice(&self) -> Option<String> {
        let rule = self.rule.as_ref()?;
        let columns: Vec<String> = self
            .targets
            .iter()
            .zip(&rule.methods)
            .map(|(target, method)| format!("{} {method}", quote_identifier(&target.name)))
            .collect();
        Some(format!("{} of {}, target {}", rule.policy, columns.join(", "), self.model.target))
    }
}

/// Why a table is not touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The server.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// The wish makes no sense for this table.
    #[error("{0}")]
    Usage(String),
    /// Something stands against it.
    #[error("{0}")]
    Refused(String),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Refusal {
        Refusal::Live(error.into())
    }
}

impl From<PlanError> for Refusal {
    fn from(error: PlanError) -> Refusal {
        Refusal::Usage(error.to_string())
    }
}

fn refused<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Refused(text))
}

/// Looks at the server as a whole.
pub async fn server(client: &Client, server: &Server) -> Result<(), Refusal> {
    if server.in_recovery {
        return refused(
            "the server is a standby: nothing can be changed here\n\
             HINT:  Connect to the primary; what it stores anew is replicated."
                .into(),
        );
    }
    // Behind a pooler in transaction mode, statements of one client meet different sessions.
    let token = "SELECT pg_catalog.current_setting('toastctl.session', true), \
                 pg_catalog.pg_backend_pid()";
    client.batch_execute("SET toastctl.session = 'own'").await?;
    let mut pid = None;
    for _ in 0..3 {
        let row = client.query_typed(token, &[]).await?;
        let Some(row) = row.first() else { continue };
        let (kept, now): (Option<String>, i32) = (row.try_get(0)?, row.try_get(1)?);
        if kept.as_deref() != Some("own") || pid.is_some_and(|pid| pid != now) {
            return refused(
                "a connection pooler gives each transaction another session\n\
                 HINT:  Connect to the server itself, or to a pool in session mode."
                    .into(),
            );
        }
        pid = Some(now);
    }
    Ok(())
}

/// Whether ordinary triggers can be silenced.
async fn can_be_replica(client: &Client) -> Result<bool, Refusal> {
    client.batch_execute("BEGIN").await?;
    let set = client.batch_execute("SET LOCAL session_replication_role = replica").await;
    client.batch_execute("ROLLBACK").await?;
    match set {
        Ok(()) => Ok(true),
        Err(error) if error.as_db_error().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Looks at one table. `Ok(None)` if it was dropped meanwhile.
pub async fn table(
    client: &Client,
    server: &Server,
    oid: Oid,
    wish: &Wish,
) -> Result<Option<Ready>, Refusal> {
    match look(client, server, oid, wish).await {
        Err(Refusal::Live(LiveError::Server(error)))
            if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
        {
            locked(client, oid).await
        }
        other => other,
    }
}

/// Says who holds the table, so that not even its size can be asked for.
async fn locked<T>(client: &Client, oid: Oid) -> Result<T, Refusal> {
    let rows = client
        .query_typed(
            &format!(
                "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), \
                    coalesce(pg_catalog.string_agg(DISTINCT l.pid::pg_catalog.text, ', '), '?') \
             FROM pg_catalog.pg_class AS c \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             LEFT JOIN pg_catalog.pg_locks AS l ON l.locktype = 'relation' AND l.granted \
               AND l.mode = 'AccessExclusiveLock' \
               AND l.relation = ANY (c.oid || {TOAST_RELATIONS}) \
               AND l.database = (SELECT oid FROM pg_catalog.pg_database \
                                 WHERE datname = pg_catalog.current_database()) \
             WHERE c.oid = $1 GROUP BY 1"
            ),
            &[(&oid.0, Type::OID)],
        )
        .await?;
    let (name, holders): (String, String) = match rows.first() {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (oid.to_string(), "?".to_owned()),
    };
    refused(format!(
        "{name}: locked by another session (PID {holders}), and no lock could be had in time\n\
         HINT:  Wait for its end; pg_stat_activity says what it does. Nothing was changed."
    ))
}

async fn look(
    client: &Client,
    server: &Server,
    oid: Oid,
    wish: &Wish,
) -> Result<Option<Ready>, Refusal> {
    let Some(relation) = catalog::describe(client, oid).await? else { return Ok(None) };
    let name = relation.display_name();
    kind(&relation)?;
    if relation.row_security && !wish.allow_row_security {
        return refused(format!(
            "{name}: row security hides rows from this user, which would never be stored anew\n\
             HINT:  Run as the owner or a role with BYPASSRLS, or use --allow-row-security."
        ));
    }
    let replica_role = can_be_replica(client).await?;
    let triggers_fire = triggers(client, &relation, replica_role, wish.allow_triggers).await?;
    let default_method = Compression::ask(client).await?.default;
    let generated = generated(client, oid).await?;
    let mut targets = targets(client, &relation, wish, &generated, default_method).await?;
    let plan = plan(client, server, oid, &mut targets, &wish.asked).await?;
    let follow = follow(client, &relation, &targets, &generated, default_method).await?;
    let notes = notes(&follow);
    if let Some(rule) = wish.rule {
        policy_preflight::check(client, rule, &targets).await?;
    }
    let target = match wish.target {
        None => None,
        Some(bytes) => Some(
            TupleTarget::new(bytes, server.page_size)
                .map_err(|error| Refusal::Usage(error.to_string()))?,
        ),
    };
    let has_target = table_target(&relation, server.page_size);
    let current: Vec<(String, Current)> = targets
        .iter()
        .filter_map(|target| relation.desc.attributes.get(target.index))
        .map(|column| {
            let current = Current { storage: column.storage, compression: column.compression };
            (column.name.clone(), current)
        })
        .collect();
    let mut changes = match wish.asked {
        Asked::Stock(_) => Changes::of(wish.toaster, &current, target, has_target),
        _ => Changes::of_target(target, has_target),
    };
    if let Some(plan) = &plan {
        changes.storage.extend(plan.changes.storage.iter().cloned());
        changes.toasters.extend(plan.changes.toasters.iter().cloned());
    }
    if wish.no_alter
        && (!changes.storage.is_empty()
            || !changes.toasters.is_empty()
            || changes.target.is_some()
            || targets
                .iter()
                .any(|target| wish.toaster.method().is_some_and(|m| m != target.method)))
    {
        return Err(Refusal::Usage(format!(
            "{name}: the columns are not set to {}, and --no-alter forbids to set them",
            plan.as_ref().map_or(wish.toaster.name(), |plan| &plan.toaster)
        )));
    }
    let changes = if wish.no_alter { Changes::default() } else { changes };
    let mut model =
        model(&relation, server, wish.toaster, &targets, default_method, target.or(has_target));
    if let (Some(plan), false) = (&plan, matches!(wish.asked, Asked::Stock(_))) {
        for planned in &plan.columns {
            if let Some(column) = model.columns.get_mut(planned.index) {
                column.storage = planned.storage;
            }
        }
    }
    let rule = wish.rule.map(|rule| policy_preflight::rule_of(rule, &model, &targets));
    let leave = wish.rule.and_then(|rule| policy_preflight::leave(rule, &relation, &current));
    Ok(Some(Ready {
        stored_columns: stored_columns(&relation, &generated),
        relation,
        targets,
        follow,
        changes,
        plan,
        model,
        replica_role,
        triggers_fire,
        notes,
        rule,
        leave,
    }))
}

/// The columns whose values are stored.
fn stored_columns(relation: &Relation, generated: &[Generated]) -> Vec<String> {
    let is_virtual = |index| generated.iter().any(|g| g.index == index && !g.stored);
    let columns = relation.desc.attributes.iter().enumerate();
    columns.filter(|(i, c)| !c.dropped && !is_virtual(*i)).map(|(_, c)| c.name.clone()).collect()
}

/// The stored generated columns that an UPDATE of the chosen columns computes anew.
async fn follow(
    client: &Client,
    relation: &Relation,
    targets: &[Target],
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>, Refusal> {
    let mut follow = Vec::new();
    for column in generated.iter().filter(|g| g.stored) {
        let is_set = |base: &usize| {
            let name = relation.desc.attributes.get(*base).map(|c| c.name.as_str());
            targets.iter().any(|target| Some(target.set_column()) == name)
        };
        let Some(attribute) = relation.desc.attributes.get(column.index) else { continue };
        if attribute.length != Length::Varlena
            || targets.iter().any(|target| target.index == column.index)
            || !column.bases.iter().any(is_set)
        {
            continue;
        }
        // a type whose values cannot be made anew here: the server computes them all the same
        let Ok(shape) = shapes::shape(client, attribute.type_oid.0).await? else { continue };
        follow.push(Target {
            name: attribute.name.clone(),
            index: column.index,
            shape,
            bytes_like: relation.bytes_like.get(column.index).copied().unwrap_or(false),
            method: attribute.compression.unwrap_or(default_method),
            base: None,
        });
    }
    Ok(follow)
}

/// What is done besides.
fn notes(follow: &[Target]) -> Vec<String> {
    let note = |column: &Target| {
        format!(
            "generated column \"{}\" is computed anew with the columns that it is made of",
            column.name
        )
    };
    follow.iter().map(note).collect()
}

/// The plan for a server with pluggable TOAST, and what it has found out about forcing.
async fn plan(
    client: &Client,
    server: &Server,
    oid: Oid,
    targets: &mut [Target],
    asked: &Asked,
) -> Result<Option<Plan>, Refusal> {
    let toasters = toasters::ask(client, server).await?;
    let columns = match toasters {
        Some(_) => toasters::columns(client, Some(oid)).await?,
        None => Vec::new(),
    };
    let chosen: Vec<_> = targets
        .iter()
        .filter_map(|target| columns.iter().find(|column| column.index == target.index))
        .collect();
    let plan = pluggable::plan(toasters.as_ref(), &chosen, asked)?;
    for target in targets {
        let planned = plan.as_ref().and_then(|plan| plan.column(target.index));
        if let Some(forcing) = planned.and_then(|planned| planned.forcing.clone()) {
            target.shape = forcing;
        }
    }
    Ok(plan)
}

fn kind(relation: &Relation) -> Result<(), Refusal> {
    let name = relation.display_name();
    if matches!(relation.schema.as_str(), "pg_catalog" | "information_schema") {
        return refused(format!(
            "{name} is a system catalog: the server alone may change its settings"
        ));
    }
    match relation.kind {
        RelationKind::Table if relation.is_heap => Ok(()),
        RelationKind::Table => {
            refused(format!("{name}: its access method is {}, not heap", relation.access_method))
        }
        RelationKind::MaterializedView => refused(format!(
            "{name} is a materialized view, whose rows cannot be updated\n\
             HINT:  Set the columns with ALTER MATERIALIZED VIEW and REFRESH it."
        )),
        RelationKind::Toast => refused(format!(
            "{name} is a TOAST relation\nHINT:  Name the table that it belongs to."
        )),
    }
}

/// Refuses where triggers or rules would do something; whether triggers will fire.
async fn triggers(
    client: &Client,
    relation: &Relation,
    replica_role: bool,
    allowed: bool,
) -> Result<bool, Refusal> {
    let name = relation.display_name();
    // tgtype: 16 is UPDATE
    let rows = client
        .query_typed(
            "SELECT tgname::pg_catalog.text, tgenabled::pg_catalog.text \
             FROM pg_catalog.pg_trigger \
             WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 16 <> 0 AND tgenabled <> 'D' \
             ORDER BY tgname",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let mut fires = false;
    for row in &rows {
        let (trigger, enabled): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let why = match (enabled.as_str(), replica_role) {
            ("A", _) => "is enabled ALWAYS",
            ("R", true) => "is enabled REPLICA",
            ("O", false) => {
                "cannot be silenced, for this user may not set session_replication_role"
            }
            _ => continue,
        };
        fires = true;
        if !allowed {
            return refused(format!(
                "{name}: trigger \"{trigger}\" {why}, and would fire for every row stored anew\n\
                 HINT:  Disable it for the time, or use --allow-triggers."
            ));
        }
    }
    // ev_type: 2 is UPDATE
    let rules = client
        .query_typed(
            "SELECT rulename::pg_catalog.text FROM pg_catalog.pg_rewrite \
             WHERE ev_class = $1 AND ev_type = '2' AND ev_enabled <> 'D' ORDER BY rulename",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    match rules.first() {
        Some(row) => refused(format!(
            "{name}: rule \"{}\" changes what an UPDATE does\nHINT:  Disable it for the time.",
            row.try_get::<_, String>(0)?
        )),
        None => Ok(fires),
    }
}

async fn targets(
    client: &Client,
    relation: &Relation,
    wish: &Wish,
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>, Refusal> {
    let name = relation.display_name();
    let mut targets: Vec<Target> = Vec::new();
    for wanted in &wish.columns {
        let found = relation
            .desc
            .attributes
            .iter()
            .enumerate()
            .find(|(_, column)| !column.dropped && column.name == *wanted);
        let Some((index, column)) = found else {
            return Err(Refusal::Usage(format!("{name} has no column \"{wanted}\"")));
        };
        if targets.iter().any(|target| target.index == index) {
            continue;
        }
        if column.length != Length::Varlena {
            return Err(Refusal::Usage(format!(
                "{name}: column \"{wanted}\" is of type {}, whose values are never toasted",
                column.type_name
            )));
        }
        let base = match generated.iter().find(|g| g.index == index) {
            None => None,
            Some(generated) => Some(base(relation, wish, generated, wanted)?),
        };
        let shape = shapes::shape(client, column.type_oid.0).await?.map_err(|why| {
            Refusal::Refused(format!("{name}: column \"{wanted}\" cannot be stored anew: {why}"))
        })?;
        targets.push(Target {
            name: column.name.clone(),
            index,
            shape,
            bytes_like: relation.bytes_like.get(index).copied().unwrap_or(false),
            method: wish
                .toaster
                .method()
                .filter(|_| !wish.no_alter)
                .unwrap_or(column.compression.unwrap_or(default_method)),
            base,
        });
    }
    Ok(targets)
}

/// The column that is set to compute a generated one anew: a chosen one if it is made of such.
fn base(
    relation: &Relation,
    wish: &Wish,
    generated: &Generated,
    wanted: &str,
) -> Result<String, Refusal> {
    let name = relation.display_name();
    if !generated.stored {
        return refused(format!(
            "{name}: column \"{wanted}\" is virtual: its values are not stored"
        ));
    }
    let mut bases: Vec<&String> = generated
        .bases
        .iter()
        .filter_map(|&base| relation.desc.attributes.get(base))
        .map(|column| &column.name)
        .collect();
    bases.sort_by_key(|base| !wish.columns.contains(base));
    bases.first().map(|base| (*base).clone()).ok_or_else(|| {
        Refusal::Refused(format!(
            "{name}: column \"{wanted}\" is generated from no other column, so that nothing makes the \
             server compute it anew"
        ))
    })
}

/// The table's own `toast_tuple_target`.
pub(super) fn table_target(relation: &Relation, page: PageSize) -> Option<TupleTarget> {
    let option = relation.options.iter().find_map(|o| o.strip_prefix("toast_tuple_target="))?;
    TupleTarget::new(option.parse().ok()?, page).ok()
}

pub(super) fn model(
    relation: &Relation,
    server: &Server,
    toaster: Toaster,
    targets: &[Target],
    default_method: Method,
    target: Option<TupleTarget>,
) -> Model {
    let columns = relation.desc.attributes.iter().enumerate().map(|(index, attribute)| {
        let column = Column::of(attribute, default_method);
        match targets.iter().find(|target| target.index == index) {
            Some(target) => Column {
                storage: toaster.storage(),
                method: MethodChoice::One(target.method),
                ..column
            },
            None => column,
        }
    });
    Model {
        columns: columns.collect(),
        target: target.unwrap_or(TupleTarget::default_for(server.page_size)),
        // setting a storage that needs one makes one
        has_toast_relation: relation.toast.is_some() || toaster != Toaster::Plain,
        page: server.page_size,
        prices: Prices::default(),
    }
}
