//! Whose code a sweep runs, and as which role. This is approved before the first row is changed, and again whenever the
//! table's definition was updated.

use std::collections::HashMap;
use std::slice;

use tokio_postgres::types::Type;

use crate::retoast::error::{Result, refused_table};
use crate::retoast::sql::Target;
use crate::server::owner_facts::{self, FIRST_NORMAL, Rights};
use crate::server::{Client, LiveResult, Relation, Server, numbers};
use toast_format::disk::Oid;
use toast_format::model::sql::Shape;

const WAYS_OUT: &str = "Run as the owner (-U). If you have reviewed these functions and everything they call, you can use \
     --allow owner-code.";

/// What the user allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Approval {
    /// Allow triggers to fire.
    pub allow_triggers: bool,
    /// Run code of the table's owner with the user's privileges.
    pub trust_owner_code: bool,
    /// Take another toaster from columns of jsonb_toaster, whose server then loses updates in place.
    pub allow_lost_updates: bool,
}

/// The code that an UPDATE of a table runs, as it was approved; empty if rows are not updated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The role that batches are run as, if it is not the user.
    role: Option<String>,
    /// Whether the owner's code would run with rights of another role.
    lent: bool,
    /// The owner's code that the user trusts: all that existed when the run began.
    trusted: Option<Vec<String>>,
    /// `attnum` of the columns whose values are coerced to their types' domains.
    coerced: Vec<i16>,
    /// Whether ordinary triggers are disabled.
    silent_triggers: bool,
    /// Whether triggers are allowed to fire.
    allow_triggers: bool,
    /// Whether triggers do fire.
    triggers_fire: bool,
    /// Whether no statement on the table runs code with the user's rights.
    is_maintenance: bool,
    /// In that case, whether queries on the table would run the owner's code with the user's rights.
    lends_rights: bool,
    /// Whether the user may hold the name of the table's schema.
    may_hold_schema: bool,
    /// The types that statements name, if the user may hold their names.
    held_types: Vec<u32>,
}

impl Code {
    /// Approves the code that an UPDATE of these columns would run.
    ///
    /// # Errors
    /// It would run code of other roles with privileges that they do not have, or fire triggers or rules.
    pub(crate) async fn approve(
        client: &Client,
        relation: &Relation,
        rights: Option<&Rights>,
        triggers: &UpdateTriggers,
        silent_triggers: bool,
        approval: Approval,
        coerced: Vec<i16>,
    ) -> Result<Code> {
        let Approval { allow_triggers, trust_owner_code: trust_owner, .. } = approval;
        let (lent, role) = standing(rights);
        let mut trusted = None;
        if let (true, Some(rights)) = (lent, rights) {
            let found = refusals(client, relation, silent_triggers, &coerced).await?;
            if !trust_owner && !found.is_empty() {
                let text = owner_facts::refusal(rights, &found, WAYS_OUT);
                return refused_table(
                    &relation.display_name(),
                    format!("{text} Nothing was changed."),
                );
            }
            trusted = trust_owner.then_some(found);
        }
        let triggers_fire = triggers.fire(relation, silent_triggers, allow_triggers)?;
        let coerced = if lent { coerced } else { Vec::new() };
        Ok(Code {
            role,
            lent,
            trusted,
            coerced,
            silent_triggers,
            allow_triggers,
            triggers_fire,
            is_maintenance: false,
            lends_rights: false,
            may_hold_schema: rights.is_some_and(|rights| rights.may_hold_schema),
            held_types: Vec::new(),
        })
    }

    /// The same, for statements that name types. The user holds the names, or nobody else may change them.
    ///
    /// # Errors
    /// [`RetoastError::Refused`] if another role could give the name of one to another type.
    pub(crate) async fn naming_types(
        self,
        client: &Client,
        relation: &Relation,
        rights: Option<&Rights>,
        targets: &[Target],
    ) -> Result<Code> {
        let named = targets.iter().flat_map(Target::named_types).map(|(_, oid)| oid);
        let types: Vec<u32> = named.filter(|oid| *oid >= FIRST_NORMAL).collect();
        if types.is_empty() || !self.blocks_create_statistics() {
            return Ok(self);
        }
        let Some(rights) = rights else { return Ok(self) };
        if rights.may_hold_types {
            return Ok(Code { held_types: types, ..self });
        }
        let Some(name) = owner_facts::movable_type(client, &types).await? else { return Ok(self) };
        let found = format!("type {name}, whose name another role could give to another type");
        let text = owner_facts::refusal(rights, &[found], WAYS_OUT);
        refused_table(&relation.display_name(), format!("{text} Nothing was changed."))
    }

    /// Checks the code again, in the snapshot in which the definition was read.
    ///
    /// # Errors
    /// [`RetoastError::Refused`] if an UPDATE would run or fire anything that was not approved.
    pub(crate) async fn approve_again(&self, client: &Client, relation: &Relation) -> Result<()> {
        if self.is_maintenance {
            return Ok(());
        }
        // If the table does not exist any more, the definition shows that.
        let Some(rights) = rights(client, relation.oid).await? else { return Ok(()) };
        let (lent, role) = standing(Some(&rights));
        let name = relation.display_name();
        let is_other_role = self.role.is_some() && self.role != role;
        if lent != self.lent || is_other_role {
            let text = format!(
                "another session changed its owner, or what user \"{}\" may do as its owner",
                rights.user
            );
            return refused_table(&name, text);
        }
        if lent {
            let mut found = refusals(client, relation, self.silent_triggers, &self.coerced).await?;
            if let Some(trusted) = &self.trusted {
                found.retain(|code| !trusted.contains(code));
            }
            if !found.is_empty() {
                let text = owner_facts::refusal(&rights, &found, WAYS_OUT);
                return refused_table(
                    &name,
                    format!("{text} It was added by another session since the run began."),
                );
            }
        }
        let mut triggers = UpdateTriggers::ask(client, &[relation.oid]).await?;
        let triggers = triggers.remove(&relation.oid).unwrap_or_default();
        let fire = triggers.fire(relation, self.silent_triggers, self.allow_triggers)?;
        if fire != self.triggers_fire {
            let text = format!(
                "its triggers were changed by another session, so that they {}",
                if fire { "would fire" } else { "no longer fire" }
            );
            return refused_table(&name, text);
        }
        Ok(())
    }

    /// Checks, in a batch that has begun, the code that runs when it updates a row twice.
    ///
    /// # Errors
    /// [`RetoastError::Refused`] if a foreign key would be checked by code that is not harmless.
    pub(crate) async fn approve_repeated_updates(
        &self,
        client: &Client,
        relation: &Relation,
    ) -> Result<()> {
        if self.silent_triggers || !self.blocks_create_statistics() {
            return Ok(());
        }
        match owner_facts::refusal_of_references(client, relation.oid, WAYS_OUT).await? {
            Some(text) => refused_table(&relation.display_name(), text),
            None => Ok(()),
        }
    }

    /// For a run that sends no statement on the table but those whose code the server runs as the owner, such as REINDEX.
    pub(crate) fn of_maintenance(rights: Option<&Rights>) -> Code {
        let (lends_rights, _) = standing(rights);
        Code { is_maintenance: true, lends_rights, ..Code::default() }
    }

    /// Whether queries on the table may be sent, whose planning runs the owner's code.
    pub(crate) fn allows_queries(&self) -> bool {
        !self.lends_rights
    }

    /// Takes over what the user trusted when the run began.
    ///
    /// # Errors
    /// More code exists now.
    pub(crate) fn trust_as(&mut self, earlier: &Code, name: &str) -> Result<()> {
        let (Some(now), Some(then)) = (&self.trusted, &earlier.trusted) else { return Ok(()) };
        if let Some(added) = now.iter().find(|code| !then.contains(code)) {
            let text = format!("this was added by another session since the run began:\n  {added}");
            return refused_table(name, text);
        }
        self.trusted = earlier.trusted.clone();
        Ok(())
    }

    /// The role that batches are run as, if it is not the user.
    pub(crate) fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// Whether triggers fire for rows that are updated.
    pub(crate) fn triggers_fire(&self) -> bool {
        self.triggers_fire
    }

    /// Whether statements on the table must block `CREATE STATISTICS`: planning a statement evaluates the constant
    /// parts of statistics expressions (`get_relation_statistics` in plancat.c) with the current user's privileges.
    pub(crate) fn blocks_create_statistics(&self) -> bool {
        self.lent && self.trusted.is_none()
    }

    /// The types whose names statements on the table must hold.
    pub(crate) fn held_types(&self) -> &[u32] {
        &self.held_types
    }

    /// Whether statements on the table must hold the name of its schema, and the user may do that.
    pub(crate) fn holds_schema(&self) -> bool {
        self.blocks_create_statistics() && self.may_hold_schema
    }
}

/// Whether the owner's code would run with rights of another role, and the role that batches are run as.
fn standing(rights: Option<&Rights>) -> (bool, Option<String>) {
    let role = rights.filter(|rights| rights.may_be_owner).map(|rights| rights.owner.clone());
    (rights.is_some_and(|rights| rights.lent), role)
}

/// `attnum` of the columns whose values an UPDATE coerces to the domains of their types, which evaluates the domains'
/// checks. This happens for copies made for a policy, which have the base type, and for the expressions that rebuild
/// composite values and values of pluggable toasters.
pub(crate) fn coerced(targets: &[Target], by_policy: bool) -> Vec<i16> {
    let mut numbers = Vec::new();
    for target in targets {
        if by_policy || !matches!(target.shape, Shape::Fixed | Shape::Scalar | Shape::Array) {
            numbers.extend(i16::try_from(target.index + 1));
        }
    }
    numbers
}

pub(super) async fn rights(client: &Client, table: Oid) -> LiveResult<Option<Rights>> {
    Ok(owner_facts::rights(client, slice::from_ref(&table)).await?.remove(&table))
}

async fn refusals(
    client: &Client,
    relation: &Relation,
    silent_triggers: bool,
    coerced: &[i16],
) -> LiveResult<Vec<String>> {
    let firing = if silent_triggers { ["A", "R"] } else { ["A", "O"] };
    owner_facts::refusals(client, relation.oid, &firing, coerced).await
}

/// The code that reading a table runs, approved.
///
/// # Errors
/// Like [`Code::approve`].
pub(super) async fn approve_reading(
    client: &Client,
    relation: &Relation,
    trust_owner: bool,
) -> Result<Code> {
    let rights = rights(client, relation.oid).await?;
    let approval =
        Approval { allow_triggers: true, trust_owner_code: trust_owner, ..Approval::default() };
    let none = UpdateTriggers::default();
    let approved =
        Code::approve(client, relation, rights.as_ref(), &none, true, approval, Vec::new()).await?;
    Ok(Code { role: None, ..approved })
}

/// Whether the user may disable ordinary triggers. The catalog is asked: the server logs a refused SET as an error. Before
/// version 15, this setting could not be granted.
pub(crate) async fn can_be_replica(client: &Client, server: &Server) -> LiveResult<bool> {
    if server.superuser || server.version_num < 150_000 {
        return Ok(server.superuser);
    }
    let sql = "SELECT pg_catalog.has_parameter_privilege('session_replication_role', 'SET')";
    Ok(client.value(sql, &[]).await?.unwrap_or(false))
}

/// What an UPDATE of a table sets off, apart from constraints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UpdateTriggers {
    /// Triggers that are not disabled, with `tgenabled`.
    pub(crate) triggers: Vec<(String, String)>,
    /// Rules that are not disabled.
    rules: Vec<String>,
}

impl UpdateTriggers {
    /// Reads those of tables; tables without any are missing.
    pub(crate) async fn ask(
        client: &Client,
        tables: &[Oid],
    ) -> LiveResult<HashMap<Oid, UpdateTriggers>> {
        // In tgtype, 16 is UPDATE; in ev_type, 2 is. Before version 15, copies of a partitioned table's triggers are
        // internal, like those of constraints, which call the server's own functions.
        let sql = "SELECT tgrelid, tgname::pg_catalog.text, tgenabled::pg_catalog.text, false \
                   FROM pg_catalog.pg_trigger \
                   WHERE tgrelid = ANY ($1) AND NOT (tgisinternal AND tgfoid < 16384) AND tgtype & 16 <> 0 AND tgenabled <> 'D' \
                   UNION ALL SELECT ev_class, rulename::pg_catalog.text, ev_enabled::pg_catalog.text, true \
                   FROM pg_catalog.pg_rewrite \
                   WHERE ev_class = ANY ($1) AND ev_type = '2' AND ev_enabled <> 'D' ORDER BY 1, 2";
        let mut found: HashMap<Oid, UpdateTriggers> = HashMap::new();
        for row in client.query_typed(sql, &[(&numbers(tables), Type::OID_ARRAY)]).await? {
            let of = found.entry(Oid(row.try_get(0)?)).or_default();
            if row.try_get(3)? {
                of.rules.push(row.try_get(1)?);
            } else {
                of.triggers.push((row.try_get(1)?, row.try_get(2)?));
            }
        }
        Ok(found)
    }

    /// Refuses triggers and rules that would have an effect, unless they are allowed; returns whether triggers will
    /// fire. `replica_role`: ordinary triggers can be disabled.
    fn fire(&self, relation: &Relation, replica_role: bool, allowed: bool) -> Result<bool> {
        let name = relation.display_name();
        let mut fires = false;
        for (trigger, enabled) in &self.triggers {
            let why = match (enabled.as_str(), replica_role) {
                ("A", _) => "is enabled ALWAYS",
                ("R", true) => "is enabled REPLICA",
                ("O", false) => {
                    "cannot be kept from firing, because this user may not set session_replication_role"
                }
                _ => continue,
            };
            fires = true;
            if !allowed {
                let text = format!(
                    "trigger \"{trigger}\" {why}, and would fire for every re-toasted row\n\
                     HINT:  Disable it temporarily, or use --allow triggers."
                );
                return refused_table(&name, text);
            }
        }
        match self.rules.first() {
            Some(rule) => refused_table(
                &name,
                format!(
                    "rule \"{rule}\" changes what an UPDATE does\nHINT:  Disable it temporarily."
                ),
            ),
            None => Ok(fires),
        }
    }
}
