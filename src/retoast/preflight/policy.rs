//! What a policy requires of the server and the table.

use super::columns::model;
use super::owner;
use super::ready::{Choice, FinalSettings, PreparedTable};
use super::shapes::Types;
use crate::message::Message;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::sql::Target;
use crate::server::about::Compression;
use crate::server::owner_facts;
use crate::server::{Client, Relation, Server};
use toast_format::codec::Method;
use toast_format::disk::Storage;
use toast_format::judge::Judge;
use toast_format::judge::goal::PolicyGoal;
use toast_format::judge::policy::Rule;
use toast_format::judge::toaster::{Changes, Current, Toaster};
use toast_format::model::MethodChoice;
use toast_format::model::toast::{Column, Table as Model};

/// Refuses a method that the server does not support, and generated columns, whose values only the server computes.
pub(crate) fn check(goal: PolicyGoal, targets: &[Target], compression: Compression) -> Result<()> {
    if let Some(target) = targets.iter().find(|target| target.base.is_some()) {
        return Err(RetoastError::usage(format!(
            "column \"{}\" is generated: the server computes its values and stores them as the column \
             is set\nHINT:  Use --toaster.",
            target.name
        )));
    }
    match goal.method {
        Some(MethodChoice::One(Method::Lz4) | MethodChoice::Either) if !compression.lz4 => {
            Err(RetoastError::usage(
                "this server does not support compression method lz4\nHINT:  Use --method pglz.",
            ))
        }
        _ => Ok(()),
    }
}

/// Prepares a table whose values are only judged: all columns that can be toasted count as chosen.
pub(crate) async fn prepare_to_judge(
    client: &Client,
    server: &Server,
    relation: Relation,
    goal: PolicyGoal,
    trust_owner: bool,
) -> Result<PreparedTable> {
    let compression = Compression::ask(client).await?;
    check(goal, &[], compression)?;
    let code = owner::approve_reading(client, &relation, trust_owner).await?;
    if code.blocks_create_statistics() && !owner_facts::may_hold_off(client, relation.oid).await? {
        let text = "values of another role's table are judged under a lock for which this user has no privilege";
        let message = Message::error(text).about(relation.display_name());
        let hint = "Run as the owner, or as a superuser with the extension pageinspect.";
        return Err(RetoastError::Refused(message.hint(hint)));
    }
    let default_method = compression.default;
    let mut targets = Vec::new();
    let mut types = Types::default();
    for (index, column) in relation.desc.attributes.iter().enumerate() {
        let model = Column::new(column, default_method);
        if column.dropped || model.type_storage == Storage::Plain {
            continue;
        }
        // Values that cannot be copied cannot be judged.
        let Ok(shape) = types.shape(client, column.type_oid.0).await? else { continue };
        let domain = types.domain(client, column.type_oid.0).await?;
        targets.push(Target { domain, ..Target::new(index, column, shape, default_method) });
    }
    let rights = owner::rights(client, relation.oid).await?;
    let code = code.naming_types(client, &relation, rights.as_ref(), &targets).await?;
    let target = relation.tuple_target(server.page_size);
    let model = model(&relation, server, Toaster::External, &targets, default_method, target);
    let judge = Judge::Policy(rule_of(goal, &model, &targets));
    Ok(PreparedTable {
        relation,
        targets,
        choice: Some(Choice {
            follow: Vec::new(),
            changes: Changes::default(),
            toaster: Toaster::External,
            judge,
            model,
            final_settings: None,
        }),
        pluggable: false,
        replica_role: false,
        code,
        generated: Vec::new(),
        computes_all: false,
        notes: Vec::new(),
    })
}

/// The rule that judges the values of the chosen columns.
pub(crate) fn rule_of(goal: PolicyGoal, model: &Model, targets: &[Target]) -> Rule {
    let indexes: Vec<usize> = targets.iter().map(|target| target.index).collect();
    let methods = targets
        .iter()
        .map(|target| goal.method.unwrap_or(MethodChoice::One(target.method)))
        .collect();
    Rule::new(goal.policy, model, &indexes, methods)
}

/// The final settings of the columns, if new values are to be compressed.
pub(crate) fn final_settings(
    goal: PolicyGoal,
    current: &[(String, Current)],
) -> Option<FinalSettings> {
    let changes = Changes {
        storage: current.iter().map(|(name, _)| (name.clone(), Storage::Extended)).collect(),
        compression: match goal.method {
            Some(MethodChoice::One(method)) => {
                current.iter().map(|(name, _)| (name.clone(), method)).collect()
            }
            _ => Vec::new(),
        },
        toasters: Vec::new(),
        target: None,
    };
    let are_set = current.iter().all(|(_, now)| now.storage == Storage::Extended)
        && changes
            .compression
            .iter()
            .zip(current)
            .all(|((_, m), (_, now))| now.compression == Some(*m));
    (goal.new_extended && !changes.is_empty()).then_some(FinalSettings { changes, are_set })
}
