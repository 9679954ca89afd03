//! What is looked at before the first row is touched, and why a table is refused.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::generated::{Generated, generated};
use super::ready::{Ready, TableRequest};
use super::refusal::{Refusal, refused};
use super::seen::{model, table_target};
use super::{longest, owner, policy_preflight, privileges, shapes, touch};
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::Length;
use crate::model::settings::TupleTarget;
use crate::retoast::goal::Goal;
use crate::retoast::goal::toaster::{Changes, Current};
use crate::retoast::judge::pluggable::{self, Plan};
use crate::retoast::judge::{FormJudge, Judge};
use crate::retoast::sql::Target;
use crate::server::LiveError;
use crate::server::about::{Compression, Server};
use crate::server::catalog::{self, Relation, RelationKind};
use crate::server::connect::{Connection, are_lent};
use crate::server::toasters::{self, TOAST_RELATIONS};

/// Refuses a standby.
pub fn server(server: &Server) -> Result<(), Refusal> {
    if server.in_recovery {
        return refused(
            "the server is a standby: nothing can be changed here\n\
             HINT:  Connect to the primary; what it re-toasts is replicated."
                .into(),
        );
    }
    Ok(())
}

/// Gives the first session its settings for good, once these two are known to be this client's own: behind
/// a pooler in transaction mode others would get them next, with all that was set there.
pub async fn own_sessions(one: &Connection, other: &Connection) -> Result<(), Refusal> {
    if are_lent(one, other).await? {
        return refused(
            "a connection pooler gives each transaction another session\n\
             HINT:  Connect to the server itself, or to a pool in session mode. Nothing was changed."
                .into(),
        );
    }
    Ok(one.make_own().await?)
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
    request: &TableRequest,
) -> Result<Option<Ready>, Refusal> {
    match look(client, server, oid, request).await {
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
    request: &TableRequest,
) -> Result<Option<Ready>, Refusal> {
    let Some(relation) = catalog::describe(client, oid).await? else { return Ok(None) };
    let name = relation.display_name();
    kind(&relation)?;
    published(client, &relation).await?;
    if relation.row_security && !request.allow_row_security {
        return refused(format!(
            "{name}: row security hides rows from this user, which would never be re-toasted\n\
             HINT:  Run as the owner or a role with BYPASSRLS, or use --allow-row-security."
        ));
    }
    let replica_role = can_be_replica(client).await?;
    // before the first statement on the table, for planning one may run code too
    let role = owner::role(client, &relation, replica_role, request.trust_owner_code).await?;
    let triggers_fire = triggers(client, &relation, replica_role, request.allow_triggers).await?;
    let default_method = Compression::ask(client).await?.default;
    let generated = generated(client, oid).await?;
    let mut targets = targets(client, &relation, request, &generated, default_method).await?;
    let plan = plan(client, server, oid, &mut targets, &request.goal).await?;
    if let Some((plan, longest)) = plan.as_ref().and_then(|plan| Some((plan, plan.longest?))) {
        longest::check(client, &relation, &targets, &plan.toaster, longest).await?;
    }
    let follow = follow(client, &relation, &targets, &generated, default_method).await?;
    let mut notes = notes(&follow);
    if request.columns.is_empty() {
        notes
            .push("only dropped columns hold its values: updating the rows clears them".to_owned());
    }
    if let Goal::Policy(goal) = request.goal {
        policy_preflight::check(client, goal, &targets).await?;
    }
    let target = match request.target {
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
    let toaster = request.goal.toaster();
    let mut changes = match request.goal {
        Goal::Stock(_) | Goal::Policy(_) => Changes::of(toaster, &current, target, has_target),
        Goal::Pluggable(_) => Changes::of_target(target, has_target),
    };
    if let Some(plan) = &plan {
        changes.storage.extend(plan.changes.storage.iter().cloned());
        changes.toasters.extend(plan.changes.toasters.iter().cloned());
    }
    if request.no_alter
        && (!changes.storage.is_empty()
            || !changes.toasters.is_empty()
            || changes.target.is_some()
            || targets.iter().any(|target| toaster.method().is_some_and(|m| m != target.method)))
    {
        return Err(Refusal::Usage(format!(
            "{name}: the columns are not set to {}, and --no-alter does not allow setting them",
            plan.as_ref().map_or(toaster.name(), |plan| &plan.toaster)
        )));
    }
    let changes = if request.no_alter { Changes::default() } else { changes };
    let mut model =
        model(&relation, server, toaster, &targets, default_method, target.or(has_target));
    if let (Some(plan), Goal::Pluggable(_)) = (&plan, &request.goal) {
        for planned in &plan.columns {
            if let Some(column) = model.columns.get_mut(planned.index) {
                column.storage = planned.storage;
            }
        }
    }
    let final_settings = match request.goal {
        Goal::Policy(goal) => policy_preflight::final_settings(goal, &relation, &current),
        Goal::Stock(_) | Goal::Pluggable(_) => None,
    };
    let alters = !changes.is_empty() || final_settings.as_ref().is_some_and(|last| !last.are_set);
    notes.extend(privileges::check(client, &relation, alters).await?);
    let toaster_notes = plan.as_ref().map_or_else(Vec::new, |plan| plan.notes.clone());
    let pluggable = plan.is_some();
    let judge = match (request.goal.clone(), plan) {
        (Goal::Policy(goal), _) => Judge::Policy(policy_preflight::rule_of(goal, &model, &targets)),
        (_, Some(plan)) => Judge::Forms(FormJudge::Pluggable(plan)),
        (_, None) => Judge::Forms(FormJudge::Stock(toaster)),
    };
    Ok(Some(Ready {
        stored_columns: stored_columns(&relation, &generated),
        relation,
        targets,
        follow,
        changes,
        toaster,
        judge,
        pluggable,
        model,
        replica_role,
        role,
        triggers_fire,
        notes,
        toaster_notes,
        final_settings,
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
    goal: &Goal,
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
    let plan = pluggable::plan(toasters.as_ref(), &chosen, goal)?;
    for target in targets {
        let planned = plan.as_ref().and_then(|plan| plan.column(target.index));
        if let Some(forcing) = planned.and_then(|planned| planned.forcing.clone()) {
            target.shape = forcing;
        }
    }
    Ok(plan)
}

/// Why a table that only a pattern matches is left out, if it is.
pub fn unfit(relation: &Relation, columns: &[String]) -> Option<String> {
    if let Err(refusal) = kind(relation) {
        let text = refusal.to_string();
        return text.lines().next().map(str::to_owned);
    }
    let name = relation.display_name();
    columns.iter().find_map(|wanted| {
        let mut known = relation.desc.attributes.iter();
        match known.find(|column| !column.dropped && column.name == *wanted) {
            None => Some(format!("{name} has no column \"{wanted}\"")),
            Some(column) if column.length != Length::Varlena => Some(format!(
                "{name}: column \"{wanted}\" is of type {}, whose values are never toasted",
                column.type_name
            )),
            Some(_) => None,
        }
    })
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

/// Refuses a table whose updates are published but which has no replica identity: the server refuses each
/// of its updates (`CheckCmdReplicaIdentity`, execReplication.c). A partition is published with its
/// partitioned tables too.
async fn published(client: &Client, relation: &Relation) -> Result<(), Refusal> {
    let rows = client
        .query_typed(
            "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(p.pubname), ', ') \
             FROM (SELECT relid::pg_catalog.oid AS oid FROM pg_catalog.pg_partition_ancestors($1) \
                   UNION SELECT $1) AS a \
             JOIN pg_catalog.pg_class AS c ON c.oid = a.oid \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_publication_tables AS t \
               ON t.schemaname = n.nspname AND t.tablename = c.relname \
             JOIN pg_catalog.pg_publication AS p ON p.pubname = t.pubname AND p.pubupdate \
             WHERE (SELECT CASE r.relreplident WHEN 'f' THEN false \
                           WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                             WHERE i.indrelid = r.oid AND i.indisprimary AND i.indimmediate \
                             AND i.indisvalid) \
                           WHEN 'i' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                             WHERE i.indrelid = r.oid AND i.indisreplident AND i.indisvalid) \
                           ELSE true END \
                    FROM pg_catalog.pg_class AS r WHERE r.oid = $1)",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let by: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
    match by {
        None => Ok(()),
        Some(by) => refused(format!(
            "{}: its updates are published ({by}) and it has no replica identity: the server refuses \
             every UPDATE\n\
             HINT:  Add a primary key, or ALTER TABLE {} REPLICA IDENTITY FULL for the time.",
            relation.display_name(),
            relation.quoted()
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
                "{name}: trigger \"{trigger}\" {why}, and would fire for every row re-toasted\n\
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
    request: &TableRequest,
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>, Refusal> {
    let name = relation.display_name();
    let mut targets: Vec<Target> = Vec::new();
    if request.columns.is_empty() {
        targets.push(touch::touched(client, relation).await?);
    }
    for wanted in &request.columns {
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
            Some(generated) => Some(base(relation, request, generated, wanted)?),
        };
        let shape = shapes::shape(client, column.type_oid.0).await?.map_err(|why| {
            Refusal::Refused(format!("{name}: column \"{wanted}\" cannot be re-toasted: {why}"))
        })?;
        targets.push(Target {
            name: column.name.clone(),
            index,
            shape,
            method: request
                .goal
                .toaster()
                .method()
                .filter(|_| !request.no_alter)
                .unwrap_or(column.compression.unwrap_or(default_method)),
            base,
        });
    }
    Ok(targets)
}

/// The column that is set to compute a generated one anew: a chosen one if it is made of such.
fn base(
    relation: &Relation,
    request: &TableRequest,
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
    bases.sort_by_key(|base| !request.columns.contains(base));
    bases.first().map(|base| (*base).clone()).ok_or_else(|| {
        Refusal::Refused(format!(
            "{name}: column \"{wanted}\" is generated from no other column, so that nothing makes the \
             server compute it anew"
        ))
    })
}
