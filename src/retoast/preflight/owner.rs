//! Whose code a sweep runs, and as which role. This is approved before the first row is changed, and again whenever the
//! table's definition was updated.

use std::fmt::Write;

use tokio_postgres::types::Type;

use crate::model::sql::Shape;
use crate::retoast::error::{RetoastError, refused};
use crate::retoast::sql::Target;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use crate::server::owner_code::{self, Foreign, Rights};

/// How many functions a refusal names.
const NAMED: usize = 10;

/// What the user allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Approval {
    /// Allow triggers to fire.
    pub allow_triggers: bool,
    /// Run code of the table's owner with the user's privileges.
    pub trust_owner_code: bool,
}

/// The code that an UPDATE of a table runs, as it was approved; empty if rows are not updated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The role that batches are run as, if it is not the user.
    role: Option<String>,
    /// Whether the user has privileges that the owner does not have.
    lent: bool,
    /// The owner's code that the user trusts: all that existed when the run began.
    trusted: Option<Vec<Foreign>>,
    /// `attnum` of the columns whose values are coerced to their types' domains.
    coerced: Vec<i16>,
    /// Whether ordinary triggers are disabled.
    silent_triggers: bool,
    /// Whether triggers are allowed to fire.
    allow_triggers: bool,
    /// Whether triggers do fire.
    triggers_fire: bool,
}

impl Code {
    /// Approves the code that an UPDATE of these columns would run.
    ///
    /// # Errors
    /// It would run code of other roles with privileges that they do not have, or fire triggers or rules.
    pub(crate) async fn approve(
        client: &Client,
        relation: &Relation,
        silent_triggers: bool,
        approval: Approval,
        coerced: Vec<i16>,
    ) -> Result<Code, RetoastError> {
        let Approval { allow_triggers, trust_owner_code: trust_owner } = approval;
        let rights = owner_code::rights(client, relation.oid).await?;
        let (lent, role) = standing(rights.as_ref());
        let mut trusted = None;
        if let (true, Some(rights)) = (lent, &rights) {
            let found = foreign(client, relation, silent_triggers, &coerced).await?;
            if !trust_owner && !found.is_empty() {
                let text = refusal(relation, rights, &found);
                return Err(RetoastError::Refused(format!("{text} Nothing was changed.")));
            }
            trusted = trust_owner.then_some(found);
        }
        let triggers_fire = triggers(client, relation, silent_triggers, allow_triggers).await?;
        let coerced = if lent { coerced } else { Vec::new() };
        Ok(Code { role, lent, trusted, coerced, silent_triggers, allow_triggers, triggers_fire })
    }

    /// Checks the code again, in the snapshot in which the definition was read.
    ///
    /// # Errors
    /// [`RetoastError::Refused`] if an UPDATE would run or fire anything that was not approved.
    pub(crate) async fn approve_again(
        &self,
        client: &Client,
        relation: &Relation,
    ) -> Result<(), RetoastError> {
        // If the table does not exist any more, the definition shows that.
        let Some(rights) = owner_code::rights(client, relation.oid).await? else { return Ok(()) };
        let (lent, role) = standing(Some(&rights));
        let name = relation.display_name();
        if (lent, &role) != (self.lent, &self.role) {
            return Err(RetoastError::Refused(format!(
                "{name}: another session changed its owner, or what user \"{}\" may do as its owner",
                rights.user
            )));
        }
        if lent {
            let mut found = foreign(client, relation, self.silent_triggers, &self.coerced).await?;
            if let Some(trusted) = &self.trusted {
                found.retain(|one| !trusted.contains(one));
            }
            if !found.is_empty() {
                return Err(RetoastError::Refused(format!(
                    "{} It was added by another session since the run began.",
                    refusal(relation, &rights, &found)
                )));
            }
        }
        let fire = triggers(client, relation, self.silent_triggers, self.allow_triggers).await?;
        if fire != self.triggers_fire {
            return Err(RetoastError::Refused(format!(
                "{name}: its triggers were changed by another session, so that they {}",
                if fire { "would fire" } else { "no longer fire" }
            )));
        }
        Ok(())
    }

    /// For a run that updates no rows; the code that reading the table may run is still checked.
    pub(crate) async fn of_reader(
        client: &Client,
        relation: &Relation,
    ) -> Result<Code, RetoastError> {
        let rights = owner_code::rights(client, relation.oid).await?;
        let (lent, role) = standing(rights.as_ref());
        Ok(Code { role, lent, silent_triggers: true, allow_triggers: true, ..Code::default() })
    }

    /// Takes over what the user trusted when the run began.
    ///
    /// # Errors
    /// More code exists now.
    pub(crate) fn trust_as(&mut self, earlier: &Code, name: &str) -> Result<(), RetoastError> {
        let (Some(now), Some(then)) = (&self.trusted, &earlier.trusted) else { return Ok(()) };
        if let Some(added) = now.iter().find(|one| !then.contains(one)) {
            return Err(RetoastError::Refused(format!(
                "{name}: {} of \"{}\", called by {}, was added by another session since the run began",
                added.function, added.owner, added.place
            )));
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
    pub(crate) fn holds_off_statistics(&self) -> bool {
        self.lent && self.trusted.is_none()
    }
}

/// Whether the user has privileges that the owner does not have, and the role that batches are run as.
fn standing(rights: Option<&Rights>) -> (bool, Option<String>) {
    let role = rights.filter(|rights| rights.may_be_owner).map(|rights| rights.owner.clone());
    (rights.is_some_and(|rights| rights.lent), role)
}

/// `attnum` of the columns whose values an UPDATE coerces to the domains of their types, which evaluates the domains'
/// checks. This happens for copies made for a policy, which have the base type, and for the expressions that rebuild
/// composite values and values of pluggable toasters.
pub(crate) fn coerced(targets: &[Target], by_policy: bool) -> Vec<i16> {
    let is = |target: &&Target| {
        by_policy || !matches!(target.shape, Shape::Fixed | Shape::Scalar | Shape::Array)
    };
    let number = |target: &Target| i16::try_from(target.index + 1).ok();
    targets.iter().filter(is).filter_map(number).collect()
}

async fn foreign(
    client: &Client,
    relation: &Relation,
    silent_triggers: bool,
    coerced: &[i16],
) -> Result<Vec<Foreign>, LiveError> {
    owner_code::foreign(client, relation.oid, silent_triggers, relation.row_security, coerced).await
}

/// Refuses to read a table if planning the statement would run code of roles that lack the user's privileges.
///
/// # Errors
/// Like [`Code::approve`].
pub(super) async fn check_reading(
    client: &Client,
    relation: &Relation,
) -> Result<(), RetoastError> {
    let Some(rights) = owner_code::rights(client, relation.oid).await? else { return Ok(()) };
    if !rights.lent {
        return Ok(());
    }
    let found = foreign(client, relation, true, &[]).await?;
    match found.is_empty() {
        true => Ok(()),
        false => {
            let text = refusal(relation, &rights, &found);
            Err(RetoastError::Refused(format!("{text} Nothing was changed.")))
        }
    }
}

fn refusal(relation: &Relation, rights: &Rights, foreign: &[Foreign]) -> String {
    let mut text = format!(
        "{}: an UPDATE of this table would run functions of other roles with privileges of user \"{}\" that the \
         owner \"{}\" does not have:",
        relation.display_name(),
        rights.user,
        rights.owner
    );
    for one in foreign.iter().take(NAMED) {
        let (function, owner, place) = (&one.function, &one.owner, &one.place);
        let used = if function.starts_with("domain ") { "checked for" } else { "called by" };
        let _ = write!(text, "\n  {function} of \"{owner}\", {used} {place}");
    }
    if foreign.len() > NAMED {
        let _ = write!(text, "\n  and {} more", foreign.len() - NAMED);
    }
    text.push_str(
        "\nHINT:  Run as the owner (-U), or as a member of that role with no further \
         privileges. If you have reviewed these functions and everything they call, you can use --allow owner-code.",
    );
    text
}

/// Whether ordinary triggers can be disabled.
pub(crate) async fn can_be_replica(client: &Client) -> Result<bool, RetoastError> {
    client.batch_execute("BEGIN").await?;
    let set = client.batch_execute("SET LOCAL session_replication_role = replica").await;
    client.batch_execute("ROLLBACK").await?;
    match set {
        Ok(()) => Ok(true),
        Err(error) if error.as_db_error().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Refuses triggers and rules that would have an effect, unless they are allowed; returns whether triggers will fire.
pub(crate) async fn triggers(
    client: &Client,
    relation: &Relation,
    replica_role: bool,
    allowed: bool,
) -> Result<bool, RetoastError> {
    let name = relation.display_name();
    // In tgtype, 16 is UPDATE.
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
                "cannot be kept from firing, because this user may not set session_replication_role"
            }
            _ => continue,
        };
        fires = true;
        if !allowed {
            return refused(format!(
                "{name}: trigger \"{trigger}\" {why}, and would fire for every re-toasted row\n\
                 HINT:  Disable it temporarily, or use --allow triggers."
            ));
        }
    }
    // In ev_type, 2 is UPDATE.
    let rules = client
        .query_typed(
            "SELECT rulename::pg_catalog.text FROM pg_catalog.pg_rewrite \
             WHERE ev_class = $1 AND ev_type = '2' AND ev_enabled <> 'D' ORDER BY rulename",
            &[(&relation.oid.0, Type::OID)],
        )
        .await?;
    match rules.first() {
        Some(row) => refused(format!(
            "{name}: rule \"{}\" changes what an UPDATE does\nHINT:  Disable it temporarily.",
            row.try_get::<_, String>(0)?
        )),
        None => Ok(fires),
    }
}
