//! The columns of a sweep: the chosen ones, those recomputed with them, and all stored ones.

use tokio_postgres::types::Type;

use super::ready::ConvertRequest;
use super::shapes::{Generated, Types};
use crate::message::Message;
use crate::retoast::error::{Result, RetoastError, refused_table};
use crate::retoast::sql::Target;
use crate::server::catalog::{VIRTUAL, is_toastable};
use crate::server::{Client, Relation, Server};
use toast_format::codec::Method;
use toast_format::disk::{Attribute, Length, Storage};
use toast_format::judge::goal::Goal;
use toast_format::judge::toaster::Toaster;
use toast_format::model::sql::Shape;
use toast_format::model::toast::Table as Model;
use toast_format::model::{MethodChoice, TupleTarget};

/// Why a table has nothing to convert.
pub(crate) const NONE_TOASTABLE: &str = "none of its columns holds values that can be toasted";

/// Whether the column's values can be toasted. Virtual generated columns store none.
pub(crate) fn can_be_toasted(column: &Attribute) -> bool {
    column.is_stored() && is_toastable(column)
}

pub(crate) async fn targets(
    client: &Client,
    types: &mut Types,
    relation: &Relation,
    request: &ConvertRequest,
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>> {
    let name = relation.display_name();
    let mut targets: Vec<Target> = Vec::new();
    let mut names = request.columns.clone();
    if request.takes_all_columns() {
        let by_policy = matches!(request.goal, Goal::Policy(_));
        for (index, column) in relation.desc.attributes.iter().enumerate() {
            // a policy has no say in values that the server computes
            let is_computed = generated.iter().any(|other| other.index == index);
            if can_be_toasted(column) && !(by_policy && is_computed) {
                names.push(column.name.clone());
            }
        }
        if names.is_empty() {
            return refused_table(&name, NONE_TOASTABLE);
        }
    } else if names.is_empty() {
        targets.push(touched(client, relation, generated).await?);
    }
    for wanted in &names {
        let found = relation
            .desc
            .attributes
            .iter()
            .enumerate()
            .find(|(_, column)| !column.dropped && column.name == *wanted);
        let Some((index, column)) = found else {
            return Err(RetoastError::EndsRun(relation.no_such_column(wanted)));
        };
        if targets.iter().any(|target| target.index == index) {
            continue;
        }
        if !is_toastable(column) {
            let text = format!(
                "column \"{wanted}\" is of type {}, whose values are never toasted",
                column.type_name
            );
            return Err(RetoastError::Usage(Message::error(text).about(name)));
        }
        let base = match generated.iter().find(|g| g.index == index) {
            None => None,
            Some(generated) => Some(base(relation, &names, generated, wanted)?),
        };
        let shape = match types.shape(client, column.type_oid.0).await? {
            Ok(shape) => shape,
            Err(why) => {
                let text = format!("column \"{wanted}\" cannot be re-toasted: {why}");
                return refused_table(&name, text);
            }
        };
        let domain = match request.goal {
            Goal::Policy(_) => types.domain(client, column.type_oid.0).await?,
            _ => None,
        };
        let requested = if request.no_alter { None } else { request.goal.toaster().method() };
        let target = Target::new(index, column, shape, default_method);
        let method = requested.unwrap_or(target.method);
        targets.push(Target { method, base, domain, ..target });
    }
    Ok(targets)
}

/// All columns whose values may be out of line and are moved unchanged. Values of other columns are not touched.
pub(crate) async fn kept(
    client: &Client,
    types: &mut Types,
    relation: &Relation,
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (index, column) in relation.desc.attributes.iter().enumerate() {
        let varlena = column.length == Length::Varlena && column.storage != Storage::Plain;
        if column.dropped || !varlena || relation.toast.is_none() {
            continue;
        }
        let base = match generated.iter().find(|g| g.index == index) {
            None => None,
            Some(generated) if !generated.stored => continue,
            Some(generated) => {
                let Some(&first) = generated.bases.first() else { continue };
                let Some(base) = relation.desc.attributes.get(first) else { continue };
                Some(base.name.clone())
            }
        };
        let Ok(shape) = types.shape(client, column.type_oid.0).await? else { continue };
        targets.push(Target { base, ..Target::new(index, column, shape, default_method) });
    }
    Ok(targets)
}

/// The column to set so that a generated column is recomputed; a chosen column is preferred.
fn base(
    relation: &Relation,
    chosen: &[String],
    generated: &Generated,
    wanted: &str,
) -> Result<String> {
    let name = relation.display_name();
    if !generated.stored {
        return refused_table(&name, format!("column \"{wanted}\" {VIRTUAL}"));
    }
    let mut bases: Vec<&String> = generated
        .bases
        .iter()
        .filter_map(|&base| relation.desc.attributes.get(base))
        .map(|column| &column.name)
        .collect();
    bases.sort_by_key(|base| !chosen.contains(base));
    match bases.first() {
        Some(&base) => Ok(base.clone()),
        None => refused_table(
            &name,
            format!(
                "column \"{wanted}\" does not depend on another column, so no UPDATE makes the server recompute it"
            ),
        ),
    }
}

/// The stored generated columns that an UPDATE of the chosen columns recomputes.
pub(crate) async fn follow(
    client: &Client,
    types: &mut Types,
    relation: &Relation,
    targets: &[Target],
    generated: &[Generated],
    default_method: Method,
) -> Result<Vec<Target>> {
    let mut follow = Vec::new();
    for column in generated.iter().filter(|g| g.stored) {
        let Some(attribute) = relation.desc.attributes.get(column.index) else { continue };
        let mut bases = column.bases.iter().filter_map(|&base| relation.desc.attributes.get(base));
        if attribute.length != Length::Varlena
            || targets.iter().any(|target| target.index == column.index)
            || !bases.any(|base| targets.iter().any(|target| target.set_column() == base.name))
        {
            continue;
        }
        // Values of this type cannot be rebuilt here, but the server recomputes them anyway.
        let Ok(shape) = types.shape(client, attribute.type_oid.0).await? else { continue };
        follow.push(Target::new(column.index, attribute, shape, default_method));
    }
    Ok(follow)
}

pub(crate) fn model(
    relation: &Relation,
    server: &Server,
    toaster: Toaster,
    targets: &[Target],
    default_method: Method,
    target: Option<TupleTarget>,
) -> Model {
    let mut table = relation.table(default_method, server.page_size);
    for target in targets {
        if let Some(column) = table.columns.get_mut(target.index) {
            column.storage = toaster.storage();
            column.method = MethodChoice::One(target.method);
        }
    }
    Model {
        target: target.unwrap_or(TupleTarget::default_for(server.page_size)),
        // Setting a storage that needs a TOAST relation creates one.
        has_toast_relation: table.has_toast_relation || toaster != Toaster::Plain,
        ..table
    }
}

/// The best column to set to itself, in this order: one on which no stored generated column depends and that no index
/// contains; one on which no stored generated column depends; any column that may be set.
pub(crate) async fn touched(
    client: &Client,
    relation: &Relation,
    generated: &[Generated],
) -> Result<Target> {
    let bases: Vec<i16> = generated
        .iter()
        .filter(|column| column.stored)
        .flat_map(|column| &column.bases)
        .filter_map(|base| i16::try_from(base + 1).ok())
        .collect();
    let sql = "SELECT a.attnum, a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a \
               WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped \
               AND a.attgenerated = '' AND a.attidentity <> 'a' \
               ORDER BY a.attnum = ANY ($2), EXISTS (SELECT FROM pg_catalog.pg_index AS i \
                                WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey)), a.attnum \
               LIMIT 1";
    let Some(row) =
        client.row(sql, &[(&relation.oid.0, Type::OID), (&bases, Type::INT2_ARRAY)]).await?
    else {
        return refused_table(
            &relation.display_name(),
            "an UPDATE cannot set any of its columns, and only an UPDATE moves rows and clears dropped columns",
        );
    };
    let number: i16 = row.try_get(0)?;
    Ok(Target {
        name: row.try_get(1)?,
        index: usize::try_from(number - 1).unwrap_or(0),
        // A column that is set to itself keeps its datum.
        shape: Shape::Fixed,
        method: Method::Pglz,
        base: None,
        domain: None,
    })
}
