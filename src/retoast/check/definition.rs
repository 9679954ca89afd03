//! A table's settings and definition: read again while the sweep runs, compared with what was set, and set
//! right or back.

use std::fmt;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::{Storage, TupleDesc};
use crate::retoast::goal::toaster::{Changes, ToasterChange};
use crate::server::LiveError;
use crate::server::sql::quote_identifier;

/// What decides how values of a column are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// `attname`.
    name: String,
    /// `atttypid`, `atttypmod`.
    of_type: (u32, i32),
    /// `attisdropped`.
    dropped: bool,
    /// `attstorage`.
    storage: Storage,
    /// `attcompression`; `None` if unset.
    own_method: Option<Method>,
    /// The method that values are compressed with.
    method: Option<Method>,
    /// `atttoaster` on a server with pluggable TOAST.
    toaster: Option<String>,
}

/// What decides how values of a table are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    columns: Vec<Column>,
    /// The option `toast_tuple_target`.
    target: Option<String>,
    /// A hash of all that, as the server computes it.
    hash: i64,
}

/// One way in which a definition is no longer what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The column's storage.
    Storage(String, Storage),
    /// The column's compression method; `None`: it was unset.
    Method(String, Option<Method>),
    /// The server's default method, which the column takes.
    Default(Option<Method>),
    /// The column's toaster.
    Toaster(String),
    /// The table's `toast_tuple_target`; `None`: it was reset.
    Target(Option<String>),
    /// The column's type.
    Type(String),
    /// The column was dropped.
    Dropped(String),
    /// A column was added.
    Added(String),
    /// The column was renamed.
    Renamed(String, String),
    /// The table was dropped.
    Gone,
}

impl Difference {
    /// Whether a statement can set it right without reading the table.
    fn is_a_setting(&self) -> bool {
        matches!(self, Difference::Storage(..) | Difference::Method(..) | Difference::Target(_))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Storage(column, storage) => {
                write!(f, "column \"{column}\" was set to storage {}", storage.name())
            }
            Difference::Method(column, method) => {
                let method = method.map_or("default", Method::name);
                write!(f, "column \"{column}\" was set to compression {method}")
            }
            Difference::Default(method) => {
                let method = method.map_or("another method", Method::name);
                write!(f, "default_toast_compression was set to {method}")
            }
            Difference::Toaster(column) => {
                write!(f, "column \"{column}\" was set to another toaster")
            }
            Difference::Target(Some(target)) => {
                write!(f, "toast_tuple_target was set to {target}")
            }
            Difference::Target(None) => write!(f, "toast_tuple_target was reset"),
            Difference::Type(column) => write!(f, "the type of column \"{column}\" was changed"),
            Difference::Dropped(column) => write!(f, "column \"{column}\" was dropped"),
            Difference::Added(column) => write!(f, "column \"{column}\" was added"),
            Difference::Renamed(old, new) => {
                write!(f, "column \"{old}\" was renamed to \"{new}\"")
            }
            Difference::Gone => write!(f, "the table was dropped"),
        }
    }
}

/// The differences as a message has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differences(Vec<Difference>);

impl Differences {
    /// Whether all of them can be set right.
    pub(crate) fn are_settings(&self) -> bool {
        self.0.iter().all(Difference::is_a_setting)
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            write!(f, "{}{one}", if at > 0 { ", " } else { "" })?;
        }
        write!(f, " by somebody else")
    }
}

/// What of a column decides how its values are stored, and nothing of a dropped one.
fn facts(pluggable: bool) -> String {
    let toaster = if pluggable {
        "coalesce(pg_catalog.to_jsonb(a) OPERATOR(pg_catalog.->>) 'atttoaster', '')"
    } else {
        "''::pg_catalog.text"
    };
    format!(
        "a.attnum, a.attname::pg_catalog.text AS name, a.atttypid AS type, a.atttypmod AS modifier, \
         a.attisdropped AS dropped, a.attstorage::pg_catalog.text AS storage, \
         a.attcompression::pg_catalog.text AS own, \
         CASE WHEN a.attstorage IN ('p', 'e') OR a.attlen <> -1 THEN '' \
         WHEN a.attcompression = '' THEN pg_catalog.current_setting('default_toast_compression') \
         ELSE a.attcompression::pg_catalog.text END AS method, {toaster} AS toaster"
    )
}

/// A query of one row: a hash of all that decides how the table's values are stored. NULL once the table is
/// gone.
fn hash(table: Oid, pluggable: bool) -> String {
    format!(
        "SELECT pg_catalog.hashtextextended((pg_catalog.string_agg(pg_catalog.concat_ws(' ', f.attnum, \
         f.name, f.type, f.modifier, f.dropped, f.storage, f.own, f.method, f.toaster), ',' \
         ORDER BY f.attnum) || coalesce((SELECT o.o FROM pg_catalog.pg_class AS c, \
         pg_catalog.unnest(c.reloptions) AS o (o) WHERE c.oid = {table} \
         AND pg_catalog.starts_with(o.o, 'toast_tuple_target=')), '')) COLLATE \"C\", 0) \
         FROM (SELECT {} FROM pg_catalog.pg_attribute AS a \
         WHERE a.attrelid = {table} AND a.attnum > 0) AS f",
        facts(pluggable),
        table = table.0,
    )
}

impl Definition {
    /// Reads it; `None` once the table is gone.
    pub(crate) async fn read(
        client: &Client,
        table: Oid,
        pluggable: bool,
    ) -> Result<Option<Definition>, LiveError> {
        let sql = format!(
            "SELECT f.*, (SELECT o.o FROM pg_catalog.pg_class AS c, \
             pg_catalog.unnest(c.reloptions) AS o (o) WHERE c.oid = $1 \
             AND pg_catalog.starts_with(o.o, 'toast_tuple_target=')) AS target, ({}) AS hash \
             FROM (SELECT {} FROM pg_catalog.pg_attribute AS a \
             WHERE a.attrelid = $1 AND a.attnum > 0) AS f ORDER BY f.attnum",
            hash(table, pluggable),
            facts(pluggable)
        );
        let rows = client.query_typed(&sql, &[(&table.0, Type::OID)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let target: Option<String> = first.try_get("target")?;
        let target =
            target.and_then(|option| option.split_once('=').map(|(_, value)| value.to_owned()));
        let hash = first.try_get("hash")?;
        let columns = rows.iter().map(column).collect::<Result<_, _>>()?;
        Ok(Some(Definition { columns, target, hash }))
    }

    /// A statement that, in a batch's transaction, says by the setting `toastctl.batch` whether this is still
    /// the definition: `begun` or `changed`.
    pub(crate) fn check(&self, table: Oid, pluggable: bool) -> String {
        format!(
            "SELECT pg_catalog.set_config('toastctl.batch', CASE WHEN ({}) = {} THEN 'begun' \
             ELSE 'changed' END, true)",
            hash(table, pluggable),
            self.hash
        )
    }

    /// Whether the columns are those that were looked at.
    pub(crate) fn changed_since(&self, looked: &TupleDesc) -> Option<Differences> {
        let mut found = Vec::new();
        for (then, now) in looked.attributes.iter().zip(&self.columns) {
            if then.dropped && now.dropped {
                continue;
            }
            if now.dropped {
                found.push(Difference::Dropped(then.name.clone()));
                continue;
            }
            let name = || then.name.clone();
            if then.name != now.name {
                found.push(Difference::Renamed(name(), now.name.clone()));
            }
            if then.type_oid.0 != now.of_type.0 {
                found.push(Difference::Type(name()));
            }
            if then.storage != now.storage {
                found.push(Difference::Storage(name(), now.storage));
            }
            if then.compression != now.own_method {
                found.push(Difference::Method(name(), now.own_method));
            }
        }
        for now in self.columns.iter().skip(looked.attributes.len()) {
            found.push(Difference::Added(now.name.clone()));
        }
        (!found.is_empty()).then_some(Differences(found))
    }

    /// What `changes` make of it. Its hash is that of nothing.
    pub(crate) fn with(&self, changes: &Changes) -> Definition {
        let mut after = Definition { hash: 0, ..self.clone() };
        for column in &mut after.columns {
            let of = |name: &String| *name == column.name;
            if let Some((_, storage)) = changes.storage.iter().find(|(name, _)| of(name)) {
                column.storage = *storage;
            }
            if let Some((_, method)) = changes.compression.iter().find(|(name, _)| of(name)) {
                column.own_method = Some(*method);
            }
            let unset = |change: &ToasterChange| matches!(change, ToasterChange::NoMethod(name) if of(name));
            if changes.toasters.iter().any(unset) {
                column.own_method = None;
            }
        }
        if let Some(target) = changes.target {
            after.target = Some(target.to_string());
        }
        after
    }

    /// This with other storage and compression of a column.
    pub(crate) fn with_settings(
        mut self,
        name: &str,
        storage: Storage,
        method: Option<Method>,
    ) -> Definition {
        for column in self.columns.iter_mut().filter(|column| column.name == name) {
            (column.storage, column.own_method) = (storage, method);
        }
        self
    }

    /// What is otherwise `now`. `computed`: the methods that columns without one of their own take are known
    /// of both.
    pub(crate) fn differences(
        &self,
        now: Option<&Definition>,
        computed: bool,
    ) -> Option<Differences> {
        let Some(now) = now else { return Some(Differences(vec![Difference::Gone])) };
        let mut found = Vec::new();
        for (then, now) in self.columns.iter().zip(&now.columns) {
            if then.dropped && now.dropped {
                continue;
            }
            if now.dropped {
                found.push(Difference::Dropped(then.name.clone()));
                continue;
            }
            let name = || then.name.clone();
            if then.name != now.name {
                found.push(Difference::Renamed(name(), now.name.clone()));
            }
            if then.of_type != now.of_type {
                found.push(Difference::Type(name()));
            }
            if then.storage != now.storage {
                found.push(Difference::Storage(name(), now.storage));
            }
            if then.own_method != now.own_method {
                found.push(Difference::Method(name(), now.own_method));
            } else if computed && then.storage == now.storage && then.method != now.method {
                found.push(Difference::Default(now.method));
            }
            if computed && then.toaster != now.toaster {
                found.push(Difference::Toaster(name()));
            }
        }
        for now in now.columns.iter().skip(self.columns.len()) {
            found.push(Difference::Added(now.name.clone()));
        }
        if self.target != now.target {
            found.push(Difference::Target(now.target.clone()));
        }
        (!found.is_empty()).then_some(Differences(found))
    }

    /// The statement that makes this of a table that is defined as `now`, as far as settings go; `None` if
    /// there is nothing to set.
    pub(crate) fn restore(&self, table: &str, now: &Definition) -> Option<String> {
        let mut parts = Vec::new();
        for (then, now) in self.columns.iter().zip(&now.columns) {
            if then.dropped || now.dropped {
                continue;
            }
            let name = quote_identifier(&now.name);
            if then.storage != now.storage {
                parts.push(format!("ALTER COLUMN {name} SET STORAGE {}", then.storage.name()));
            }
            if then.own_method != now.own_method {
                let method = then.own_method.map_or("default", Method::name);
                parts.push(format!("ALTER COLUMN {name} SET COMPRESSION {method}"));
            }
        }
        if self.target != now.target {
            parts.push(match &self.target {
                Some(target) => format!("SET (toast_tuple_target = {target})"),
                None => "RESET (toast_tuple_target)".to_owned(),
            });
        }
        (!parts.is_empty()).then(|| format!("ALTER TABLE ONLY {table} {}", parts.join(", ")))
    }
}

fn column(row: &Row) -> Result<Column, LiveError> {
    let letter: String = row.try_get("storage")?;
    let storage = letter.chars().next().and_then(Storage::from_char);
    let storage =
        storage.ok_or_else(|| LiveError::Unexpected(format!("attstorage \"{letter}\"")))?;
    let (own, method): (String, String) = (row.try_get("own")?, row.try_get("method")?);
    let toaster: String = row.try_get("toaster")?;
    Ok(Column {
        name: row.try_get("name")?,
        of_type: (row.try_get("type")?, row.try_get("modifier")?),
        dropped: row.try_get("dropped")?,
        storage,
        own_method: method_of(&own),
        method: method_of(&method),
        toaster: Some(toaster).filter(|toaster| !toaster.is_empty()),
    })
}

/// By letter or name.
fn method_of(text: &str) -> Option<Method> {
    match text {
        "p" | "pglz" => Some(Method::Pglz),
        "l" | "lz4" => Some(Method::Lz4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#""s"."t""#;

    fn column(name: &str, storage: Storage, method: Option<Method>) -> Column {
        Column {
            name: name.into(),
            of_type: (25, -1),
            dropped: false,
            storage,
            own_method: method,
            method: Some(method.unwrap_or(Method::Pglz)),
            toaster: None,
        }
    }

    fn definition(columns: Vec<Column>) -> Definition {
        Definition { columns, target: None, hash: 7 }
    }

    fn said(then: &Definition, now: &Definition) -> String {
        then.differences(Some(now), true).map_or_else(String::new, |found| found.to_string())
    }

    #[test]
    fn what_was_changed_is_named() {
        let was = definition(vec![
            column("a", Storage::Extended, Some(Method::Lz4)),
            column("b", Storage::Extended, None),
        ]);
        assert_eq!(was.differences(Some(&was.clone()), true), None);
        let mut now = was.clone();
        now.columns[0].storage = Storage::Plain;
        now.columns[0].own_method = Some(Method::Pglz);
        now.target = Some("4080".into());
        assert_eq!(
            said(&was, &now),
            "column \"a\" was set to storage plain, column \"a\" was set to compression pglz, \
             toast_tuple_target was set to 4080 by somebody else"
        );
        let mut now = was.clone();
        now.columns[1].method = Some(Method::Lz4);
        assert_eq!(said(&was, &now), "default_toast_compression was set to lz4 by somebody else");
        assert!(!was.differences(Some(&now), true).unwrap().are_settings());
        let mut now = was.clone();
        now.columns[0].of_type = (1043, -1);
        now.columns[1].dropped = true;
        now.columns.push(column("c", Storage::Plain, None));
        assert_eq!(
            said(&was, &now),
            "the type of column \"a\" was changed, column \"b\" was dropped, column \"c\" was added \
             by somebody else"
        );
        assert_eq!(
            was.differences(None, true).unwrap().to_string(),
            "the table was dropped by somebody else"
        );
    }

    #[test]
    fn a_statement_sets_back_what_another_set() {
        let was = definition(vec![
            column("a\"b", Storage::External, None),
            column("b", Storage::Extended, None),
        ]);
        let changes = Changes {
            storage: vec![("a\"b".into(), Storage::Extended)],
            compression: vec![("a\"b".into(), Method::Lz4)],
            target: crate::model::settings::TupleTarget::new(
                4080,
                crate::disk::layout::PageSize::DEFAULT,
            )
            .ok(),
            ..Changes::default()
        };
        let now = was.with(&changes);
        insta::assert_snapshot!(was.restore(TABLE, &now).unwrap(), @r##"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a""b" SET STORAGE external, ALTER COLUMN "a""b" SET COMPRESSION default, RESET (toast_tuple_target)"##);
        insta::assert_snapshot!(now.restore(TABLE, &was).unwrap(), @r##"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a""b" SET STORAGE extended, ALTER COLUMN "a""b" SET COMPRESSION lz4, SET (toast_tuple_target = 4080)"##);
        assert_eq!(was.restore(TABLE, &was), None);
    }
}
