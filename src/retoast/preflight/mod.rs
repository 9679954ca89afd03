//! The checks before the first row is changed, and the reasons for refusing a table.
//!
//! Those of the server, of a table, of the user's privileges, and of files and indexes to make smaller are here.
//!
//! * [`policy`]: what a policy requires in addition; [`parents`]: partitioned tables.
//! * `facts`: what is read about many tables at once; `columns`: the columns of a task; [`shapes`]: facts about their
//!   types, and about generated columns, from the catalog.
//! * [`definition`]: settings, definition and files, read again while a task runs.
//! * [`owner`]: whose code an UPDATE runs, as which role, and which triggers and rules it fires.
//! * [`ready`]: the request for a table, and the table prepared for it.

pub(crate) mod columns;
pub mod definition;
pub(crate) mod facts;
pub mod owner;
pub mod parents;
pub mod policy;
pub mod ready;
pub mod shapes;

use tokio_postgres::types::Type;

use crate::command::table_words;
use crate::message::Message;
use crate::retoast::compact::CompactRequest;
use crate::retoast::error::{Result, RetoastError, refused, refused_table};
use crate::retoast::preflight::columns::{
    NONE_TOASTABLE, can_be_toasted, follow, kept, model, targets,
};
use crate::retoast::preflight::facts::{Facts, Privileges, TableFacts};
use crate::retoast::preflight::owner::{Approval, Code, coerced};
use crate::retoast::preflight::ready::{Choice, ConvertRequest, PreparedTable, Task};
use crate::retoast::sql;
use crate::retoast::sql::Target;
use crate::server::about::NEVER_TRUNCATES;
use crate::server::catalog::{RelationKind, is_toastable};
use crate::server::citus::Shard;
use crate::server::connect::are_lent;
use crate::server::holders::{self, LocksCounted};
use crate::server::select::table_of_toast;
use crate::server::{Client, Connection, LiveResult, Relation, Server, locks, toasters};
use toast_format::codec::Method;
use toast_format::disk::Oid;
use toast_format::judge::goal::Goal;
use toast_format::judge::pluggable::ToasterPlan;
use toast_format::judge::toaster::{Changes, Current, TargetChange};
use toast_format::judge::{FormJudge, Judge, pluggable};
use toast_format::model::sql::{quote_identifier, quote_literal};
use toast_format::model::toaster::catalog::{Handler, PluggableToaster};
use toast_format::model::{Toasters, TupleTarget};

/// Refuses a standby, a server or role that is set to read-only (some providers do this when the disk is full), and,
/// unless `untested`, a server newer than the newest tested version.
pub(crate) async fn server(client: &Client, server: &Server, untested: bool) -> Result<()> {
    if let Some(newer) = server.untested()
        && !untested
    {
        return refused(format!(
            "{newer}: nothing was changed\n\
             HINT:  Install a newer toastctl. --untested-server continues anyway."
        ));
    }
    if server.in_recovery {
        return refused(
            "the server is a standby: nothing can be changed here\n\
             HINT:  Connect to the primary; what it re-toasts is replicated.",
        );
    }
    let sql = "SELECT pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool";
    if client.query_typed(sql, &[]).await?.first().map(|row| row.try_get(0)).transpose()?
        == Some(true)
    {
        return refused(
            "transactions are read-only by default here (default_transaction_read_only): nothing was changed\n\
             HINT:  If this setting is not intended for toastctl, set PGOPTIONS='-c default_transaction_read_only=off'.",
        );
    }
    Ok(())
}

/// Refuses a compaction on a server with pluggable TOAST, before anything is done to a table.
pub(crate) fn compaction(server: &Server) -> Result<()> {
    if server.has_toasters {
        return refused(
            "compaction is not supported on a server with pluggable toasters\n\
             HINT:  To make a table's files smaller, dump it and restore it (pg_dump), once toastctl check TABLE ends \
             with exit code 0: a dump holds what the server reads, and it misreads some values.",
        );
    }
    Ok(())
}

/// Makes the first session's settings permanent, once the two sessions are known to belong to this client. A pooler in
/// transaction mode would pass a session with these settings on to other clients.
pub async fn own_sessions(one: &Connection, other: &Connection) -> Result<()> {
    if are_lent(one, other).await? {
        return refused(
            "a connection pooler assigns sessions per transaction\n\
             HINT:  Connect to the server directly, or to a pool in session mode. Nothing was changed.",
        );
    }
    Ok(one.make_own().await?)
}

/// What tables are prepared for.
#[derive(Clone, Copy)]
pub struct Preflight<'a> {
    pub client: &'a Client,
    pub server: &'a Server,
    pub task: Task<'a>,
    pub approval: Approval,
}

impl Preflight<'_> {
    /// Prepares one table. `Ok(None)` if it was dropped in the meantime.
    ///
    /// # Errors
    /// The table is refused, or any error of the server.
    pub async fn table(&self, oid: Oid) -> Result<Option<PreparedTable>> {
        let mut facts = Facts::of_session(self.client, self.server).await?;
        self.one_of(&mut facts, oid, |_| true).await
    }

    /// Prepares one of the tables that `facts` are about. `Ok(None)` if it was dropped in the meantime, or is not
    /// `wanted`.
    ///
    /// # Errors
    /// Like [`Preflight::table`].
    pub(crate) async fn one_of(
        &self,
        facts: &mut Facts,
        oid: Oid,
        wanted: impl FnOnce(&Relation) -> bool,
    ) -> Result<Option<PreparedTable>> {
        let prepared = async {
            facts.add(self.client, oid).await?;
            match facts.relation(oid) {
                Some(relation) if wanted(relation) => self.prepare(facts, oid).await,
                _ => Ok(None),
            }
        };
        match prepared.await {
            Err(RetoastError::Live(error)) if error.is_locked() => locked(self.client, oid).await,
            other => other,
        }
    }

    async fn prepare(&self, facts: &mut Facts, oid: Oid) -> Result<Option<PreparedTable>> {
        let Preflight { client, server, task, approval } = *self;
        let Some(table) = facts.take(oid) else { return Ok(None) };
        let TableFacts { relation, shard: shard_of, generated, computes_all, .. } = table;
        let rights = table.rights.as_ref();
        if relation.kind == RelationKind::Toast {
            return toast_relation(client, &relation).await;
        }
        may_change(server, &relation, shard_of.as_ref())?;
        if let Some((expected, found)) = &table.contradiction {
            return contradicted(&relation, expected, found);
        }
        if task.updates() {
            may_update(client, &relation, table.privileges.as_ref()).await?;
        }
        let Facts { replica_role, compression, .. } = *facts;
        let method = compression.default;
        let types = &mut facts.types;
        let (targets, plan, by_policy) = match task {
            Task::Convert(request) => {
                let mut targets =
                    targets(client, types, &relation, request, &generated, method).await?;
                let toasters = facts.toasters.as_ref();
                let goal = &request.goal;
                let plan = plan(client, toasters, &relation, &mut targets, goal, approval).await?;
                (targets, plan, matches!(request.goal, Goal::Policy(_)))
            }
            _ => (kept(client, types, &relation, &generated, method).await?, None, false),
        };
        // This comes before the first statement on the table, because planning one may already run code.
        let code = if task.updates() {
            let coerced = coerced(&targets, by_policy);
            let triggers = &table.triggers;
            let code =
                Code::approve(client, &relation, rights, triggers, replica_role, approval, coerced);
            code.await?.naming_types(client, &relation, rights, &targets).await?
        } else {
            Code::of_maintenance(rights)
        };
        if let Some(plan) = &plan
            && let Some(longest) = plan.longest
        {
            refuse_longer(client, &relation, &targets, &plan.toaster, longest).await?;
        }
        let follow = follow(client, types, &relation, &targets, &generated, method).await?;
        let mut notes = notes(&targets, &follow, shard_of.as_ref(), task);
        notes.extend(plan.iter().flat_map(|plan| plan.notes.clone()));
        let pluggable = plan.is_some();
        let choice = match task {
            Task::Convert(request) => {
                if let Goal::Policy(goal) = request.goal {
                    policy::check(goal, &targets, compression)?;
                }
                let mut choice = choose(server, &relation, request, &targets, plan, method)?;
                choice.follow = follow;
                Some(choice)
            }
            _ => None,
        };
        if task.updates() {
            let alters = choice.as_ref().is_some_and(Choice::alters);
            match privileges(&relation, table.privileges.as_ref(), alters)? {
                Some(note) if choice.is_none() => {
                    return refused_table(&relation.display_name(), note);
                }
                note => notes.extend(note),
            }
        }
        Ok(Some(PreparedTable {
            relation,
            targets,
            choice,
            pluggable,
            replica_role,
            code,
            generated,
            computes_all,
            notes,
        }))
    }
}

/// Refuses a table that is locked so that not even its size can be read, and reports which session holds the lock.
async fn locked<T>(client: &Client, oid: Oid) -> Result<T> {
    let name = locks::names(client, &[oid]).await?.name(oid);
    let holder = holders::of_table(client, oid, &[], LocksCounted::BlockReaders).await?;
    let who = holder.map_or_else(|| "locked by another session".to_owned(), |who| who.text());
    let text = format!(
        "{who}, and the lock was not granted in time\n\
         HINT:  Wait until that transaction has ended. Nothing was changed."
    );
    refused_table(&name, text)
}

/// Refuses a table about which the catalog contradicts itself.
fn contradicted<T>(relation: &Relation, expected: &str, found: &str) -> Result<T> {
    let text = format!("the catalog contradicts itself: expected {expected}, found {found}");
    let table = table_words(&relation.schema, &relation.name);
    let hint = format!("toastctl check {table} tells what to do. Nothing was changed.");
    let message = Message::error(text).about(relation.display_name());
    Err(RetoastError::Refused(message.hint(hint)))
}

/// Refuses a TOAST relation, and names the table that it belongs to.
async fn toast_relation<T>(client: &Client, relation: &Relation) -> Result<T> {
    let name = relation.display_name();
    let table = table_of_toast(client, relation.oid).await?;
    refused(format!("{name} is a TOAST relation\nHINT:  {table}"))
}

/// Refuses relations that are not ordinary tables, or have lost their files, shards that Citus protects, and TOAST relations that may only be read.
fn may_change(server: &Server, relation: &Relation, shard_of: Option<&Shard>) -> Result<()> {
    kind(relation)?;
    // the entries of a rebuilt index would no longer show which rows were lost
    if let (Some(why), false) = (relation.without_file(), relation.is_out_of_reach) {
        return Err(RetoastError::Refused(why));
    }
    let name = relation.display_name();
    if let Some(shard) = shard_of
        && !shard.may_change
    {
        return refused(format!(
            "{name} is a shard of {}, and Citus does not let this session change shards\n\
             HINT:  PGOPTIONS='-c citus.override_table_visibility=off -c citus.enable_manual_changes_to_shards=on' lets it.",
            shard.table
        ));
    }
    if let Some(toast) = &relation.toast
        && let Some(why) = toast.only_read(server)
    {
        let toast = toast.display_name();
        return refused_table(&name, format!("{toast}: {why}: nothing was changed"));
    }
    Ok(())
}

/// Refuses a table whose rows the server would not update, or would hide from this user.
async fn may_update(
    client: &Client,
    relation: &Relation,
    known: Option<&Privileges>,
) -> Result<()> {
    if known.is_some_and(|known| known.lacks_identity) {
        published(client, relation).await?;
    }
    if relation.row_security {
        return refused_table(
            &relation.display_name(),
            "row security hides rows from this user, and these would not be re-toasted\n\
             HINT:  Run as a role with BYPASSRLS, or as the owner if row security is not forced.",
        );
    }
    Ok(())
}

/// What must be set for a choice, and the judge of rows.
fn choose(
    server: &Server,
    relation: &Relation,
    request: &ConvertRequest,
    targets: &[Target],
    plan: Option<ToasterPlan>,
    default_method: Method,
) -> Result<Choice> {
    let target = tuple_target(request.target, server)?;
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
    let target_change = TargetChange::new(target, has_target, server.page_size);
    let mut changes = changes(&request.goal, &current, target_change, plan.as_ref());
    if request.no_alter
        && (!changes.storage.is_empty()
            || !changes.toasters.is_empty()
            || changes.target.is_some()
            || targets.iter().any(|target| toaster.method().is_some_and(|m| m != target.method)))
    {
        let text = format!(
            "the columns are not set to {}, and --set alter=off does not allow setting them",
            plan.as_ref().map_or(toaster.name(), |plan| &plan.toaster)
        );
        let mut message = Message::error(text).about(relation.display_name());
        if let Some(alter) = changes.statement(&relation.quoted()) {
            message = message.hint(format!("The owner can set them: {alter};"));
        }
        return Err(RetoastError::Usage(message));
    }
    if request.no_alter {
        changes = Changes::default();
    }
    let mut model =
        model(relation, server, toaster, targets, default_method, target.or(has_target));
    if let (Some(plan), Goal::Pluggable(_)) = (&plan, &request.goal) {
        for planned in &plan.columns {
            if let Some(column) = model.columns.get_mut(planned.index) {
                column.storage = planned.storage;
            }
        }
    }
    let final_settings = match request.goal {
        Goal::Policy(goal) => policy::final_settings(goal, &current),
        Goal::Stock(_) | Goal::Pluggable(_) => None,
    };
    let judge = match (&request.goal, plan) {
        (Goal::Policy(goal), _) => Judge::Policy(policy::rule_of(*goal, &model, targets)),
        (_, Some(plan)) => Judge::Forms(FormJudge::Pluggable(plan)),
        (_, None) => Judge::Forms(FormJudge::Stock(toaster)),
    };
    Ok(Choice { follow: Vec::new(), changes, toaster, judge, model, final_settings })
}

/// What must be set on columns with these settings, and on their table.
fn changes(
    goal: &Goal,
    columns: &[(String, Current)],
    target: Option<TargetChange>,
    plan: Option<&ToasterPlan>,
) -> Changes {
    let mut changes = match goal {
        Goal::Stock(_) | Goal::Policy(_) => Changes::new(goal.toaster(), columns, target),
        Goal::Pluggable(_) => Changes { target, ..Changes::default() },
    };
    if let Some(plan) = plan {
        changes.storage.extend(plan.changes.storage.iter().cloned());
        changes.toasters.extend(plan.changes.toasters.iter().cloned());
    }
    changes
}

/// Checks that the server accepts this `toast_tuple_target`.
fn tuple_target(bytes: Option<u32>, server: &Server) -> Result<Option<TupleTarget>> {
    let target = bytes.map(|bytes| TupleTarget::new(bytes, server.page_size)).transpose();
    target.map_err(|error| RetoastError::usage(error.to_string()))
}

/// Notes about what an update does in addition, and what is lost later.
fn notes(
    targets: &[Target],
    follow: &[Target],
    shard_of: Option<&Shard>,
    task: Task<'_>,
) -> Vec<String> {
    let mut notes = Vec::new();
    for column in follow {
        notes.push(format!(
            "generated column \"{}\" is recomputed whenever the columns it depends on are updated",
            column.name
        ));
    }
    let Task::Convert(request) = task else { return notes };
    if let Some(shard) = shard_of
        && !request.sets_citus_table
    {
        notes.push(format!(
            "a shard of {}: what is set here is lost when Citus moves or splits the shard, unless it is also set there",
            shard.table
        ));
    }
    for target in targets.iter().filter(|target| target.shape.leaves_fields()) {
        notes.push(format!(
            "column \"{}\": in arrays of several dimensions, or with subscripts that do not begin at 1, compressed fields \
             of elements stay as they are",
            target.name
        ));
    }
    if request.columns.is_empty() && !request.takes_all_columns() {
        let note =
            "only dropped columns hold values of this toaster; updating the rows clears them";
        notes.push(note.to_owned());
    }
    notes
}

/// The plan for a server with pluggable TOAST, and what it has found about forcing values through a toaster.
async fn plan(
    client: &Client,
    toasters: Option<&Toasters>,
    relation: &Relation,
    targets: &mut [Target],
    goal: &Goal,
    approval: Approval,
) -> Result<Option<ToasterPlan>> {
    let columns = match toasters {
        Some(_) => toasters::columns(client, Some(relation.oid)).await?,
        None => Vec::new(),
    };
    let chosen: Vec<_> = targets
        .iter()
        .filter_map(|target| columns.iter().find(|column| column.index == target.index))
        .collect();
    let mut plan = pluggable::plan(toasters, &chosen, goal)?;
    if let (Some(plan), Some(toasters)) = (&mut plan, toasters) {
        let wanted = toasters.by_name(&plan.toaster).map(|row| row.handler);
        let taken = plan.taken_from(toasters, &chosen);
        let compresses = wanted == Some(Handler::Jsonb) && compresses_chunks(client).await?;
        if let Some(why) = change_refused(&taken, compresses, approval) {
            return Err(RetoastError::Refused(why.about(relation.display_name())));
        }
        for (name, former) in taken {
            plan.notes.push(format!(
                "the toaster of column {0} before: ALTER TABLE ONLY {1} ALTER COLUMN {0} SET TOASTER {2}; neither \
                 --undo nor a statement \"to restore\" sets it",
                quote_identifier(&name),
                relation.quoted(),
                quote_identifier(&former.name)
            ));
        }
    }
    for target in targets {
        let planned = plan.as_ref().and_then(|plan| plan.column(target.index));
        if let Some(forcing) = planned.and_then(|planned| planned.forcing.clone()) {
            target.shape = forcing;
        }
    }
    Ok(plan)
}

/// Why no toaster is changed. `taken`: columns that would get another, with the one that they have; `compresses`: whether
/// they would get jsonb_toaster while it compresses chunks.
fn change_refused(
    taken: &[(String, PluggableToaster)],
    compresses: bool,
    approval: Approval,
) -> Option<Message> {
    if compresses {
        return Some(compressed_chunks());
    }
    let mut taken = taken.iter();
    let (column, former) = taken.find(|(_, former)| former.handler == Handler::Jsonb)?;
    (!approval.allow_lost_updates).then(|| loses_updates(column, &former.name))
}

/// Why a column does not get another toaster than jsonb_toaster while others write (tried on its server).
fn loses_updates(column: &str, toaster: &str) -> Message {
    let text = format!(
        "once column \"{column}\" has another toaster than \"{toaster}\", this server loses updates in place \
         (jsonb_set) of values that are not converted yet, without an error"
    );
    let hint = "Keep everybody from writing to the table until the conversion is complete, and say so: --allow \
                lost-updates. Nothing was changed.";
    Message::error(text).hint(hint)
}

/// Why no value is given to jsonb_toaster while it compresses chunks.
fn compressed_chunks() -> Message {
    let text = "with jsonb_toaster.compress_chunks this server stores values that it cannot read: some make it crash";
    let hint =
        "Convert without: PGOPTIONS='-c jsonb_toaster.compress_chunks=off'. Nothing was changed.";
    Message::error(text).hint(hint)
}

/// Whether jsonb_toaster would compress values chunk by chunk in this session.
async fn compresses_chunks(client: &Client) -> LiveResult<bool> {
    let sql = "SELECT pg_catalog.current_setting('jsonb_toaster.compress_chunks', true) = 'on'";
    let set: Option<Option<bool>> = client.value(sql, &[]).await?;
    Ok(set.flatten() == Some(true))
}

/// Refuses the table if any value of the columns is longer than the toaster `name` accepts. Reads all values.
pub(crate) async fn refuse_longer(
    client: &Client,
    relation: &Relation,
    targets: &[Target],
    name: &str,
    longest: u32,
) -> Result<()> {
    let sql = sql::longer_than(&relation.quoted(), targets, longest);
    let Some(row) = client.row(&sql, &[]).await? else { return Ok(()) };
    let count: i64 = row.try_get(0)?;
    let first: Option<String> = row.try_get(1)?;
    match first {
        None => Ok(()),
        Some(first) => refused_table(
            &relation.display_name(),
            format!(
                "rows with values of more than {longest} bytes: {count}, the first at {first}; toaster \
                 \"{name}\" rejects such values if they do not fit in the row\n\
                 HINT:  With this toaster the application could not write such values either. Nothing was \
                 changed."
            ),
        ),
    }
}

/// Refuses the table if the user lacks a privilege that the sweep needs; returns a note for the user. `granted`: what
/// the user may do, unless the table was dropped; `alters`: settings must be changed.
fn privileges(
    relation: &Relation,
    granted: Option<&Privileges>,
    alters: bool,
) -> Result<Option<String>> {
    let Some(granted) = granted else { return Ok(None) };
    let Privileges { user, owner, .. } = granted;
    let name = relation.display_name();
    let rights = [(granted.selects, "SELECT"), (granted.updates, "UPDATE")];
    let missing: Vec<&str> =
        rights.iter().filter(|(has, _)| !has).map(|(_, right)| *right).collect();
    let grant = format!(
        "GRANT {} ON {} TO {}",
        missing.join(", "),
        relation.quoted(),
        quote_identifier(user)
    );
    if alters && !granted.owns {
        let also = if missing.is_empty() { String::new() } else { format!(", {grant}") };
        let text = format!(
            "role \"{user}\" is not its owner and may not alter it\n\
             HINT:  Run as its owner, \"{owner}\", or have the owner set the columns{also}, and use --set alter=off."
        );
        return refused_table(&name, text);
    }
    if !missing.is_empty() {
        let text = format!(
            "role \"{user}\" has no {} privilege on it\n\
             HINT:  Run as its owner, \"{owner}\", or have the owner {grant}.",
            missing.join(" and no ")
        );
        return refused_table(&name, text);
    }
    let note = "this user may not vacuum it: old row versions are left to autovacuum";
    Ok((!granted.vacuums).then(|| note.to_owned()))
}

/// Makes this session write with a replication origin from now on. The origin must exist, because a sweep that is
/// killed would leave behind an origin created here. The end of the session releases it.
///
/// # Errors
/// The origin does not exist, is used by another session, or may not be used by this user.
pub(crate) async fn set_up_origin(client: &Client, name: &str) -> Result<()> {
    let sql = "SELECT 1 FROM pg_catalog.pg_replication_origin WHERE roname = $1";
    if client.query_typed(sql, &[(&name, Type::TEXT)]).await?.is_empty() {
        return refused(format!(
            "replication origin {} does not exist\n\
             HINT:  Create it with SELECT pg_replication_origin_create({name}), and drop it after the last run with \
             pg_replication_origin_drop({name}).",
            quote_identifier(name),
            name = quote_literal(name)
        ));
    }
    let sql = "SELECT pg_catalog.pg_replication_origin_session_setup($1)";
    client.query_typed(sql, &[(&name, Type::TEXT)]).await?;
    Ok(())
}

/// Why a table that only a pattern matches is left out, if it is.
pub fn unfit(relation: &Relation, request: Option<&ConvertRequest>) -> Option<String> {
    if let Err(refusal) = kind(relation) {
        let text = refusal.to_string();
        return text.lines().next().map(str::to_owned);
    }
    let name = relation.display_name();
    let request = request?;
    if request.takes_all_columns() && !relation.desc.attributes.iter().any(can_be_toasted) {
        return Some(format!("{name}: {NONE_TOASTABLE}"));
    }
    request.columns.iter().find_map(|wanted| {
        let mut known = relation.desc.attributes.iter();
        match known.find(|column| !column.dropped && column.name == *wanted) {
            None => Some(format!("{name} has no column \"{wanted}\"")),
            Some(column) if !is_toastable(column) => Some(format!(
                "{name}: column \"{wanted}\" is of type {}, whose values are never toasted",
                column.type_name
            )),
            Some(_) => None,
        }
    })
}

/// Refuses relations other than ordinary heap tables.
pub(crate) fn kind(relation: &Relation) -> Result<()> {
    let name = relation.display_name();
    if matches!(relation.schema.as_str(), "pg_catalog" | "information_schema") {
        let large_objects = if relation.name == "pg_largeobject" {
            "; vacuumlo deletes large objects that no row refers to"
        } else {
            ""
        };
        return refused(format!(
            "{name} is a system catalog, and toastctl changes user tables alone: VACUUM FULL {name}; returns its free \
             space, and REINDEX TABLE {name}; rebuilds its indexes, both under a lock against all other \
             sessions{large_objects}"
        ));
    }
    match relation.kind {
        RelationKind::Table if relation.is_heap => Ok(()),
        RelationKind::Table => refused_table(
            &name,
            format!(
                "its access method is {}, not heap\n\
                 HINT:  toastctl changes heap tables alone. From PostgreSQL 15, ALTER TABLE with SET ACCESS METHOD heap makes this one a heap table.",
                relation.access_method
            ),
        ),
        RelationKind::MaterializedView => refused(format!(
            "{name} is a materialized view, whose rows cannot be updated\n\
             HINT:  REFRESH MATERIALIZED VIEW rebuilds its files and indexes. To convert values, convert the tables that \
             it reads, then REFRESH it: values are copied compressed as they are. Only values that its query computes \
             follow the settings of ALTER MATERIALIZED VIEW."
        )),
        RelationKind::Toast => refused(format!("{name} is a TOAST relation")),
    }
}

/// Refuses a table without a replica identity whose updates are published: the server would refuse every update
/// (`CheckCmdReplicaIdentity`, execReplication.c). A partition is also published with its partitioned tables.
async fn published(client: &Client, relation: &Relation) -> Result<()> {
    // The view of published tables is expensive to plan, so it is evaluated only for such tables.
    let sql = "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(p.pubname), ', ') \
               FROM (SELECT relid::pg_catalog.oid AS oid FROM pg_catalog.pg_partition_ancestors($1) \
                     UNION SELECT $1) AS a \
               JOIN pg_catalog.pg_class AS c ON c.oid = a.oid \
               JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_publication_tables AS t \
                 ON t.schemaname = n.nspname AND t.tablename = c.relname \
               JOIN pg_catalog.pg_publication AS p ON p.pubname = t.pubname AND p.pubupdate";
    let by: Option<String> =
        client.value(sql, &[(&relation.oid.0, Type::OID)]).await?.unwrap_or(None);
    match by {
        None => Ok(()),
        Some(by) => refused_table(
            &relation.display_name(),
            format!(
                "its updates are published ({by}) and it has no replica identity: the server refuses every UPDATE\n\
                 HINT:  Add a primary key, or use ALTER TABLE {} REPLICA IDENTITY FULL until the run has ended.",
                relation.quoted()
            ),
        ),
    }
}

/// Refuses a server whose rebuilds are unreliable, and a user who may not drop the remains of an interrupted rebuild.
pub(crate) async fn may_reindex(
    client: &Client,
    server: &Server,
    ready: &PreparedTable,
) -> Result<()> {
    let name = ready.relation.display_name();
    if !server.rebuilds_indexes() {
        let text = format!(
            "indexes: before PostgreSQL 14.4, an index rebuilt with CONCURRENTLY may miss rows; \
             this server is {}\nHINT:  Install the latest minor release.",
            server.version
        );
        return refused_table(&name, text);
    }
    let sql = "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE'), \
                      pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text \
               FROM pg_catalog.pg_class AS c WHERE c.oid = $1";
    let rows = client.query_typed(sql, &[(&ready.relation.oid.0, Type::OID)]).await?;
    match rows.first() {
        Some(row) if !row.try_get::<_, bool>(0)? => {
            let owner: String = row.try_get(1)?;
            let text = format!(
                "indexes: this user is not its owner, and could not drop what an interrupted rebuild \
                 leaves behind\nHINT:  Run as \"{owner}\", or as a member of that role."
            );
            refused_table(&name, text)
        }
        _ => Ok(()),
    }
}

/// Refuses the table if VACUUM never truncates it, if this user may not read the TOAST relation, or if nothing shows to
/// which row a chunk belongs. `pages`: whether pages can be read.
pub(crate) async fn may_compact(
    client: &Client,
    server: &Server,
    ready: &PreparedTable,
    compact: CompactRequest,
    pages: bool,
) -> Result<()> {
    if !server.vacuum_truncates {
        return refused(format!(
            "{NEVER_TRUNCATES}: compaction would have no effect\n\
             HINT:  Set old_snapshot_threshold to -1 and restart the server, or run VACUUM FULL, which locks the \
             table."
        ));
    }
    let Some(toast) = &ready.relation.toast else { return Ok(()) };
    if toast.bytes == 0 || !compact.toast() {
        return Ok(());
    }
    let name = ready.relation.display_name();
    let hint = match compact {
        CompactRequest::All => {
            "; compact --files heap, or retoast --compact=heap, leaves its TOAST relation out"
        }
        CompactRequest::Toast | CompactRequest::Heap => "",
    };
    if !pages && !server.has_toast_chunk_id() {
        let text = format!(
            "before PostgreSQL 17, only pageinspect shows which row a chunk of its TOAST relation belongs to\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database{hint}."
        );
        return refused_table(&name, text);
    }
    if client
        .value(
            "SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') \
             AND pg_catalog.has_table_privilege(c.oid, 'SELECT') \
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1",
            &[(&toast.oid.0, Type::OID)],
        )
        .await?
        .unwrap_or(true)
    {
        return Ok(());
    }
    let text = format!(
        "this user may not read its TOAST relation, {}\n\
         HINT:  GRANT pg_read_all_data TO the user{hint}.",
        toast.display_name()
    );
    refused_table(&name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Column js, which has this toaster.
    fn taken(handler: Handler) -> [(String, PluggableToaster); 1] {
        let name = handler.usual_name().to_owned();
        [("js".to_owned(), PluggableToaster { oid: Oid(7), name, handler })]
    }

    #[test]
    fn toasters_are_not_changed_where_updates_would_be_lost_or_values_could_not_be_read() {
        let none = Approval::default();
        let allowed = Approval { allow_lost_updates: true, ..none };
        assert_eq!(change_refused(&taken(Handler::Bytea), false, none), None);
        assert_eq!(change_refused(&taken(Handler::Jsonb), false, allowed), None);
        let loses = change_refused(&taken(Handler::Jsonb), false, none).unwrap().to_string();
        assert!(
            loses.contains("once column \"js\" has another toaster than \"jsonb_toaster\""),
            "{loses}"
        );
        assert!(loses.contains("--allow lost-updates. Nothing was changed."), "{loses}");
        // no approval makes values readable that are not
        for approval in [none, allowed] {
            let unread =
                change_refused(&taken(Handler::Default), true, approval).unwrap().to_string();
            assert!(
                unread.contains("PGOPTIONS='-c jsonb_toaster.compress_chunks=off'"),
                "{unread}"
            );
        }
    }
}
