//! What is looked at before the first row is touched, and why a table is refused.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::choice::{Changes, Current, Toaster};
use super::pluggable::{self, Asked, Plan, PlanError};
use super::shapes;
use super::sql::Target;
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::Length;
use crate::disk::layout::PageSize;
use crate::model::cost::Prices;
use crate::model::policy::MethodChoice;
use crate::model::settings::TupleTarget;
use crate::model::toast::{Column, Table as Model};
use crate::source::live::LiveError;
use crate::source::live::catalog::{self, Relation, RelationKind};
use crate::source::live::server::Server;
use crate::source::live::toasters;

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
    /// Go on although triggers will fire.
    pub allow_triggers: bool,
    /// Go on although row security hides rows.
    pub allow_row_security: bool,
}

/// A table ready to be swept.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The table.
    pub relation: Relation,
    /// The chosen columns.
    pub targets: Vec<Target>,
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
}

impl Ready {
    /// The name of the toaster that was chosen; `stock` is the choice where there are stock ones only.
    pub fn toaster_name(&self, stock: Toaster) -> String {
        self.plan.as_ref().map_or(stock.name(), |plan| &plan.toaster).to_owned()
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
    let default_method = default_method(client).await?;
    let mut targets = targets(client, &relation, wish, default_method).await?;
    let plan = plan(client, oid, &mut targets, &wish.asked).await?;
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
    Ok(Some(Ready { relation, targets, changes, plan, model, replica_role, triggers_fire }))
}

/// The plan for a server with pluggable TOAST, and what it has found out about forcing.
async fn plan(
    client: &Client,
    oid: Oid,
    targets: &mut [Target],
    asked: &Asked,
) -> Result<Option<Plan>, Refusal> {
    let toasters = toasters::ask(client).await?;
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

/// `default_toast_compression`.
async fn default_method(client: &Client) -> Result<Method, Refusal> {
    let rows = client
        .query_typed("SELECT pg_catalog.current_setting('default_toast_compression')", &[])
        .await?;
    let name: String = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => String::new(),
    };
    Ok(if name == "lz4" { Method::Lz4 } else { Method::Pglz })
}

async fn targets(
    client: &Client,
    relation: &Relation,
    wish: &Wish,
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
        let generated = client
            .query_typed(
                "SELECT attgenerated <> '' FROM pg_catalog.pg_attribute \
                 WHERE attrelid = $1 AND attnum = $2",
                &[
                    (&relation.oid.0, Type::OID),
                    (&i16::try_from(index + 1).unwrap_or(i16::MAX), Type::INT2),
                ],
            )
            .await?;
        if generated.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
            return refused(format!(
                "{name}: column \"{wanted}\" is generated and cannot be set\n\
                 HINT:  Set its storage with ALTER TABLE and retoast a column that it is made of."
            ));
        }
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
        });
    }
    Ok(targets)
}

/// The table's own `toast_tuple_target`.
fn table_target(relation: &Relation, page: PageSize) -> Option<TupleTarget> {
    let option = relation.options.iter().find_map(|o| o.strip_prefix("toast_tuple_target="))?;
    TupleTarget::new(option.parse().ok()?, page).ok()
}

fn model(
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
