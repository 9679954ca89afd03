//! Whose code a sweep runs, and as whom.

use super::refusal::Refusal;
use crate::server::catalog::Relation;
use crate::server::connect::Client;
use crate::server::owner_code::{self, Foreign};

/// How many functions a refusal names.
const NAMED: usize = 10;

/// The role that batches are run as, if it is not the user. `silent_triggers`: ordinary triggers will not
/// fire. `trusted`: the user trusts what the owner has written.
///
/// # Errors
/// An `UPDATE` would lend the user's rights to code of roles that do not have them.
pub(super) async fn role(
    client: &Client,
    relation: &Relation,
    silent_triggers: bool,
    trusted: bool,
) -> Result<Option<String>, Refusal> {
    let Some(rights) = owner_code::rights(client, relation.oid).await? else { return Ok(None) };
    if rights.lent && !trusted {
        let foreign =
            owner_code::foreign(client, relation.oid, silent_triggers, relation.row_security)
                .await?;
        if !foreign.is_empty() {
            return Err(Refusal::Refused(format!(
                "{}: an UPDATE of this table would run functions of other roles with the rights of \
                 user \"{}\", which the owner \"{}\" does not have:{}\n\
                 HINT:  Run as the owner (-U), or as a member of that role with no further rights. If \
                 you have read these functions and what they call, use --trust-owner-code. Nothing was \
                 changed.",
                relation.display_name(),
                rights.user,
                rights.owner,
                list(&foreign)
            )));
        }
    }
    Ok(rights.may_be_owner.then_some(rights.owner))
}

fn list(foreign: &[Foreign]) -> String {
    let mut text = String::new();
    for one in foreign.iter().take(NAMED) {
        text.push_str(&format!(
            "\n  {} of \"{}\", called by {}",
            one.function, one.owner, one.place
        ));
    }
    if foreign.len() > NAMED {
        text.push_str(&format!("\n  and {} more", foreign.len() - NAMED));
    }
    text
}
