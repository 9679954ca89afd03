//! What is looked at before the first row is touched, and why a table is refused.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::columns::{follow, model, stored_columns, targets};
use super::kind::{kind, published};
use super::owner::{Code, can_be_replica, coerced};
use super::policy_preflight;
use super::ready::{PreparedTable, TableRequest};
use super::refusal::{Refusal, refused};
use super::shapes::{computes_all, generated};
use crate::disk::Oid;
use crate::judge::goal::Goal;
use crate::judge::pluggable::{self, Plan};
use crate::judge::toaster::{Changes, Current};
use crate::judge::{FormJudge, Judge};
use crate::model::settings::TupleTarget;
use crate::model::sql::{quote_identifier, quote_literal};
use crate::retoast::sql::{self, Target};
use crate::server::about::{Compression, Server};
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection, are_lent};
use crate::server::toasters::{self, TOAST_RELATIONS};
use crate::server::{LiveError, catalog};

/// Refuses a standby, and a server or role that is set to write nothing: some providers do so when the disk is full.
pub(crate) async fn server(client: &Client, server: &Server) -> Result<(), Refusal> {
    if server.in_recovery {
        return refused(
            "the server is a standby: nothing can be changed here\n\
             HINT:  Connect to the primary; what it re-toasts is replicated."
                .into(),
        );
    }
    let sql = "SELECT pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool";
    if client.query_typed(sql, &[]).await?.first().map(|row| row.try_get(0)).transpose()?
        == Some(true)
    {
        return refused(
            "transactions are read-only by default here (default_transaction_read_only): nothing was changed\n\
             HINT:  If that is not meant for this, set PGOPTIONS='-c default_transaction_read_only=off'."
                .into(),
        );
    }
    Ok(())
}

/// Refuses a compaction on a server with pluggable TOAST, before anything is done to a table.
pub(crate) fn compaction(server: &Server) -> Result<(), Refusal> {
    if server.has_toasters {
        return refused(
            "--compact does not know the pointers of pluggable toasters, and this server has such toasters\n\
             HINT:  Leave --compact away. To make a table's files smaller dump it and load it again (pg_dump)."
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

/// Looks at one table. `Ok(None)` if it was dropped meanwhile.
pub async fn table(
    client: &Client,
    server: &Server,
    oid: Oid,
    request: &TableRequest,
) -> Result<Option<PreparedTable>, Refusal> {
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
) -> Result<Option<PreparedTable>, Refusal> {
    let Some(relation) = catalog::describe(client, oid).await? else { return Ok(None) };
    let name = relation.display_name();
    kind(&relation)?;
    if request.updates {
        published(client, &relation).await?;
    }
    if request.updates && relation.row_security && !request.allow_row_security {
        return refused(format!(
            "{name}: row security hides rows from this user, which would never be re-toasted\n\
             HINT:  Run as the owner or a role with BYPASSRLS, or use --allow-row-security."
        ));
    }
    let replica_role = can_be_replica(client).await?;
    let default_method = Compression::ask(client).await?.default;
    let generated = generated(client, oid).await?;
    let computes_all = computes_all(client, oid).await?;
    let mut targets = targets(client, &relation, request, &generated, default_method).await?;
    let plan = plan(client, server, oid, &mut targets, &request.goal).await?;
    // before the first statement on the table, for planning one may run code too
    let code = match request.updates {
        true => {
            let (allow, trust) = (request.allow_triggers, request.trust_owner_code);
            let coerced = coerced(&targets, &request.goal);
            Code::approve(client, &relation, replica_role, allow, trust, coerced).await?
        }
        false => Code::of_reader(client, &relation).await?,
    };
    if let Some((plan, longest)) = plan.as_ref().and_then(|plan| Some((plan, plan.longest?))) {
        refuse_longer(client, &relation, &targets, &plan.toaster, longest).await?;
    }
    let follow = follow(client, &relation, &targets, &generated, default_method).await?;
    let mut notes = notes(&follow);
    let keeps = request.goal == Goal::Keep;
    if request.columns.is_empty() && !keeps {
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
    let has_target = relation.tuple_target(server.page_size);
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
        Goal::Keep => Changes::default(),
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
        Goal::Stock(_) | Goal::Pluggable(_) | Goal::Keep => None,
    };
    let alters = !changes.is_empty() || final_settings.as_ref().is_some_and(|last| !last.are_set);
    let note = match request.updates {
        true => privileges(client, &relation, alters).await?,
        false => None,
    };
    match note {
        Some(note) if keeps => return refused(format!("{name}: {note}")),
        note => notes.extend(note),
    }
    let toaster_notes = plan.as_ref().map_or_else(Vec::new, |plan| plan.notes.clone());
    let pluggable = plan.is_some();
    let judge = match (request.goal.clone(), plan) {
        (Goal::Policy(goal), _) => Judge::Policy(policy_preflight::rule_of(goal, &model, &targets)),
        (Goal::Keep, _) => Judge::Keep,
        (_, Some(plan)) => Judge::Forms(FormJudge::Pluggable(plan)),
        (_, None) => Judge::Forms(FormJudge::Stock(toaster)),
    };
    Ok(Some(PreparedTable {
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
        code,
        generated,
        computes_all,
        notes,
        toaster_notes,
        final_settings,
    }))
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

/// Refuses the table if any value of the columns has more bytes than the toaster `name` takes. All values
/// are read.
pub(crate) async fn refuse_longer(
    client: &Client,
    relation: &Relation,
    targets: &[Target],
    name: &str,
    longest: u32,
) -> Result<(), Refusal> {
    let sql = sql::longer_than(&relation.quoted(), targets, longest);
    let rows = client.query_typed(&sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (count, first): (i64, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    match first {
        None => Ok(()),
        Some(first) => Err(Refusal::Refused(format!(
            "{}: rows with values of more than {longest} bytes: {count}, the first at {first}; toaster \
             \"{name}\" refuses such values where they do not fit the row\n\
             HINT:  With this toaster the application could not write such values either. Nothing was \
             changed.",
            relation.display_name()
        ))),
    }
}

/// Refuses where a right is missing that the sweep needs; gives what else should be known. `alters`: settings
/// have to be set.
pub(crate) async fn privileges(
    client: &Client,
    relation: &Relation,
    alters: bool,
) -> Result<Option<String>, Refusal> {
    // before 17 nobody could be given the right to vacuum
    let rows = client
        .query_typed(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE'), \
                    pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, \
                    pg_catalog.has_table_privilege(c.oid, 'SELECT'), \
                    pg_catalog.has_table_privilege(c.oid, 'UPDATE'), \
                    CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 \
                         >= 170000 \
                    THEN pg_catalog.has_table_privilege(c.oid, 'MAINTAIN') ELSE false END, \
                    current_user::pg_catalog.text \
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let name = relation.display_name();
    let (owns, owner, user): (bool, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(5)?);
    for (at, right) in [(2, "SELECT"), (3, "UPDATE")] {
        if !row.try_get::<_, bool>(at)? {
            return Err(Refusal::Refused(format!(
                "{name}: role \"{user}\" has no {right} privilege on it\n\
                 HINT:  Run as its owner, \"{owner}\", or grant the privilege."
            )));
        }
    }
    if alters && !owns {
        return Err(Refusal::Refused(format!(
            "{name}: role \"{user}\" is not its owner and may not alter it\n\
             HINT:  Run as its owner, \"{owner}\", or have the owner set the columns and use --no-alter."
        )));
    }
    let vacuums = owns || row.try_get::<_, bool>(4)?;
    let note = "this user may not vacuum it: what is re-toasted leaves its old space to autovacuum";
    Ok((!vacuums).then(|| note.to_owned()))
}

/// Marks everything that this session writes from now on. The origin must be there: one made here would
/// be left behind by a sweep that is killed. The session's end gives it back.
///
/// # Errors
/// There is none of that name, another session uses it, or this user may not.
pub(crate) async fn set_up_origin(client: &Client, name: &str) -> Result<(), Refusal> {
    let sql = "SELECT 1 FROM pg_catalog.pg_replication_origin WHERE roname = $1";
    if client.query_typed(sql, &[(&name, Type::TEXT)]).await?.is_empty() {
        return Err(Refusal::Refused(format!(
            "replication origin {} does not exist\n\
             HINT:  Make it with SELECT pg_replication_origin_create({name}), and when all is done \
             drop it with pg_replication_origin_drop({name}).",
            quote_identifier(name),
            name = quote_literal(name)
        )));
    }
    let sql = "SELECT pg_catalog.pg_replication_origin_session_setup($1)";
    client.query_typed(sql, &[(&name, Type::TEXT)]).await?;
    Ok(())
}
