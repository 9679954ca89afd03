//! A table's settings and definition: read repeatedly during a sweep, compared with the expected ones, and restored if
//! necessary.

use std::fmt;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::message::Message;
use crate::retoast::error::RetoastError;
use crate::retoast::sql::Target;
use crate::server::chunks::transaction;
use crate::server::toasters::TOAST_RELATIONS;
use crate::server::{Client, Connection, LiveError, LiveResult};
use toast_format::codec::Method;
use toast_format::disk::{Attribute, Oid, Storage, TupleDesc};
use toast_format::judge::toaster::{Changes, ToasterChange};
use toast_format::model::sql::{quote_identifier, quote_literal, set_compression};

/// The facts that determine how values of a column are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDefinition {
    name: String,
    /// `atttypid`, and `atttypmod` if it is known.
    of_type: (u32, Option<i32>),
    dropped: bool,
    storage: Storage,
    /// `attcompression`; `None` if unset.
    own_method: Option<Method>,
    /// The method with which values are compressed.
    method: Option<Method>,
    /// `atttoaster` on a server with pluggable TOAST.
    toaster: Option<String>,
}

/// The facts that determine how values of a table are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    columns: Vec<ColumnDefinition>,
    /// The option `toast_tuple_target`, in bytes.
    target: Option<String>,
}

/// The settings, and the other facts about a table that a task depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    settings: Settings,
    /// The versions of the catalog rows from which it was read.
    versions: Versions,
    /// Whether the table has triggers of any kind, or rules.
    has_triggers_or_rules: bool,
    owner: u32,
    /// Whether row security is enabled, and whether it is forced.
    row_security: (bool, bool),
}

/// The versions of a table's catalog rows that were read. Every change of a row creates a version whose `xmin` is the
/// transaction that made it. A row may also be updated without a change of what this program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Versions {
    /// `xmin` of the table's row in `pg_class`.
    class: u32,
    /// The distinct `xmin` values in `pg_attribute`, in ascending order.
    attributes: Vec<u32>,
    /// The number of rows in `pg_attribute`.
    columns: usize,
    /// The distinct `xmin` values of the rows that [`code_versions`] finds.
    code: Vec<u32>,
    /// The number of those rows.
    rows: usize,
}

/// A query for the `xmin` of the catalog rows that determine what code an `UPDATE` of a table runs, including the partition
/// keys of its ancestors. `table`: an expression for its OID. `ROW EXCLUSIVE` blocks all commands that change these rows,
/// except `CREATE STATISTICS` and `CREATE INDEX CONCURRENTLY`, whose index no session uses before our transaction has
/// ended.
fn code_versions(table: &str) -> String {
    format!(
        "SELECT xmin FROM pg_catalog.pg_index WHERE indrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_constraint WHERE conrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_trigger WHERE tgrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_rewrite WHERE ev_class = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_policy WHERE polrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_attrdef WHERE adrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_statistic_ext WHERE stxrelid = {table} \
         UNION ALL SELECT xmin FROM pg_catalog.pg_inherits WHERE inhrelid = {table} \
         UNION ALL SELECT p.xmin FROM pg_catalog.pg_partition_ancestors({table}) AS a \
         JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = a.relid \
         UNION ALL SELECT i.xmin FROM pg_catalog.pg_partition_ancestors({table}) AS a \
         JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = a.relid WHERE i.inhrelid <> {table}"
    )
}

fn joined(xids: &[u32]) -> String {
    xids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

impl From<&Attribute> for ColumnDefinition {
    fn from(attribute: &Attribute) -> ColumnDefinition {
        ColumnDefinition {
            name: attribute.name.clone(),
            of_type: (attribute.type_oid.0, None),
            dropped: attribute.dropped,
            storage: attribute.storage,
            own_method: attribute.compression,
            method: None,
            toaster: None,
        }
    }
}

impl ColumnDefinition {
    /// Adds the differences between this column and `now`. `computed`: also those of the effective method and toaster.
    fn differences(&self, now: &ColumnDefinition, computed: bool, found: &mut Vec<Difference>) {
        let name = &self.name;
        if now.dropped {
            if !self.dropped {
                found.push(Difference::other(format!("column \"{name}\" was dropped")));
            }
            return;
        }
        if self.name != now.name {
            let text = format!("column \"{name}\" was renamed to \"{}\"", now.name);
            found.push(Difference::other(text));
        }
        let (of_type, modifier) = self.of_type;
        if of_type != now.of_type.0 || modifier.is_some() && modifier != now.of_type.1 {
            found.push(Difference::other(format!("the type of column \"{name}\" was changed")));
        }
        if self.storage != now.storage {
            let storage = now.storage.name();
            let text = format!("column \"{name}\" was set to storage {storage}");
            found.push(Difference::setting(text));
        }
        if self.own_method != now.own_method {
            let method = now.own_method.map_or("default", Method::name);
            let text = format!("column \"{name}\" was set to compression {method}");
            found.push(Difference::setting(text));
        } else if computed && self.method != now.method && self.storage == now.storage {
            let method = now.method.map_or("another method", Method::name);
            let text = format!("default_toast_compression was set to {method}");
            found.push(Difference::other(text));
        }
        if computed && self.toaster != now.toaster {
            found.push(Difference::other(format!("column \"{name}\" was set to another toaster")));
        }
    }
}

/// SQL for what determines how values of a column are stored; nothing else of a dropped column.
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

impl Versions {
    /// A condition that holds while the table's catalog rows have these versions, and while this is the default method,
    /// if the table depends on it. Every batch evaluates it, and where triggers are disabled the server plans it each
    /// time, so it has few parts.
    fn condition(&self, table: Oid, default_method: Option<Method>) -> String {
        let Versions { class, attributes, columns, code, rows } = self;
        let table = table.0;
        let mut sql = format!(
            "(SELECT c.xmin FROM pg_catalog.pg_class AS c WHERE c.oid = {table}) = '{class}'::pg_catalog.xid \
             AND (SELECT pg_catalog.count(*) = {columns} \
             AND pg_catalog.bool_and(a.xmin = ANY ('{{{}}}'::pg_catalog.xid[])) \
             FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = {table} AND a.attnum > 0) \
             AND (SELECT pg_catalog.count(*) = {rows} \
             AND coalesce(pg_catalog.bool_and(x.v = ANY ('{{{}}}'::pg_catalog.xid[])), true) \
             FROM ({}) AS x (v))",
            joined(attributes),
            joined(code),
            code_versions(&format!("{table}::pg_catalog.oid"))
        );
        if let Some(method) = default_method {
            sql.push_str(" AND pg_catalog.current_setting('default_toast_compression') = ");
            sql.push_str(&quote_literal(method.name()));
        }
        sql
    }
}

impl Definition {
    /// Reads the definition; `None` if the table does not exist any more.
    pub(crate) async fn read(
        client: &Client,
        table: Oid,
        pluggable: bool,
    ) -> LiveResult<Option<Definition>> {
        let sql = format!(
            "SELECT f.*, c.xmin::pg_catalog.text AS class, \
             c.relhastriggers OR c.relhasrules AS has_triggers_or_rules, c.relowner, c.relrowsecurity, \
             c.relforcerowsecurity, ARRAY(SELECT x.v::pg_catalog.text FROM ({}) AS x (v)) AS code, (SELECT o.o FROM pg_catalog.unnest(c.reloptions) AS o (o) \
             WHERE pg_catalog.starts_with(o.o, 'toast_tuple_target=')) AS target \
             FROM (SELECT a.attrelid, a.xmin::pg_catalog.text AS version, {} FROM pg_catalog.pg_attribute AS a \
             WHERE a.attrelid = $1 AND a.attnum > 0) AS f \
             JOIN pg_catalog.pg_class AS c ON c.oid = f.attrelid ORDER BY f.attnum",
            code_versions("$1"),
            facts(pluggable)
        );
        let rows = client.query_typed(&sql, &[(&table.0, Type::OID)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let target: Option<String> = first.try_get("target")?;
        let target =
            target.and_then(|option| option.split_once('=').map(|(_, value)| value.to_owned()));
        let class = transaction(first.try_get("class")?)?;
        let mut attributes = rows
            .iter()
            .map(|row| transaction(row.try_get("version")?))
            .collect::<LiveResult<Vec<u32>>>()?;
        attributes.sort_unstable();
        attributes.dedup();
        let mut code = Vec::new();
        for text in first.try_get::<_, Vec<String>>("code")? {
            code.push(transaction(&text)?);
        }
        let with_code = code.len();
        code.sort_unstable();
        code.dedup();
        let versions = Versions { class, attributes, columns: rows.len(), code, rows: with_code };
        let has_triggers_or_rules = first.try_get("has_triggers_or_rules")?;
        let owner = first.try_get("relowner")?;
        let row_security =
            (first.try_get("relrowsecurity")?, first.try_get("relforcerowsecurity")?);
        let columns = rows.iter().map(column).collect::<Result<_, _>>()?;
        let settings = Settings { columns, target };
        Ok(Some(Definition { settings, versions, has_triggers_or_rules, owner, row_security }))
    }

    /// A condition that holds as long as no session has updated the definition since it was read.
    fn condition(&self, table: Oid) -> String {
        let columns = self.settings.columns.iter();
        let undecided = columns.filter(|column| !column.dropped && column.own_method.is_none());
        let default = undecided.filter_map(|column| column.method).next();
        self.versions.condition(table, default)
    }

    /// Whether an `UPDATE` may fire triggers or rules. Creating the first trigger or rule of a table updates its row in
    /// `pg_class` (`CreateTriggerFiringOn` in trigger.c, `SetRelationRuleStatus` in rewriteSupport.c), so this cannot
    /// change unnoticed.
    pub(crate) fn has_triggers_or_rules(&self) -> bool {
        self.has_triggers_or_rules
    }

    /// The differences between the columns in `looked` and those of this definition.
    pub(crate) fn changed_since(&self, looked: &TupleDesc) -> Option<Differences> {
        let known: Vec<_> = looked.attributes.iter().map(ColumnDefinition::from).collect();
        self.settings.differ(&known, false, None)
    }

    /// The settings after `changes`.
    pub(crate) fn with(&self, changes: &Changes) -> Settings {
        let mut after = self.settings.clone();
        for column in &mut after.columns {
            let name = &column.name;
            if let Some((_, storage)) = changes.storage.iter().find(|(of, _)| of == name) {
                column.storage = *storage;
            }
            if let Some((_, method)) = changes.compression.iter().find(|(of, _)| of == name) {
                column.own_method = Some(*method);
            }
            for change in &changes.toasters {
                if matches!(change, ToasterChange::NoMethod(of) if of == name) {
                    column.own_method = None;
                }
            }
        }
        if let Some(target) = changes.target {
            after.target = target.then().map(|target| target.to_string());
        }
        after
    }

    /// The differences between this definition and `now`.
    pub(crate) fn differences(&self, now: Option<&Definition>) -> Option<Differences> {
        let mut found = self.settings.compared(now, true);
        if let Some(now) = now {
            let more = [
                (self.owner != now.owner, "the owner of the table was changed"),
                (
                    self.row_security != now.row_security,
                    "row security was enabled, disabled or forced",
                ),
            ];
            for (_, text) in more.into_iter().filter(|(differs, _)| *differs) {
                let found = found.get_or_insert_with(|| Differences(Vec::new()));
                found.0.push(Difference::other(text));
            }
        }
        found
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Settings {
    /// The differences between these settings and those of `now`. The default method and the toasters are not compared,
    /// because they are not known for settings that were not read.
    pub(crate) fn differences(&self, now: Option<&Definition>) -> Option<Differences> {
        self.compared(now, false)
    }

    fn compared(&self, now: Option<&Definition>, computed: bool) -> Option<Differences> {
        let Some(Definition { settings: now, .. }) = now else {
            return Some(Differences(vec![Difference::other("the table was dropped")]));
        };
        let target = (self.target != now.target).then(|| {
            Difference::setting(match &now.target {
                Some(target) => format!("toast_tuple_target was set to {target}"),
                None => "toast_tuple_target was reset".to_owned(),
            })
        });
        now.differ(&self.columns, computed, target)
    }

    /// The differences between known columns and those of these settings, followed by that of the target.
    fn differ(
        &self,
        known: &[ColumnDefinition],
        computed: bool,
        target: Option<Difference>,
    ) -> Option<Differences> {
        let mut found = Vec::new();
        known
            .iter()
            .zip(&self.columns)
            .for_each(|(then, now)| then.differences(now, computed, &mut found));
        let added = self.columns.iter().skip(known.len());
        let added = added.map(|now| format!("column \"{}\" was added", now.name));
        found.extend(added.map(Difference::other));
        found.extend(target);
        (!found.is_empty()).then_some(Differences(found))
    }

    /// These settings with another storage and compression of one column.
    pub(crate) fn with_column(
        mut self,
        name: &str,
        storage: Storage,
        method: Option<Method>,
    ) -> Settings {
        for column in self.columns.iter_mut().filter(|column| column.name == name) {
            (column.storage, column.own_method) = (storage, method);
            column.method = method.or(column.method);
        }
        self
    }

    /// These settings where `now` is as this run has set it (`ours`); elsewhere `now`, which another session has set.
    pub(crate) fn where_unchanged(&self, ours: &Settings, now: &Settings) -> Settings {
        let mut goal = now.clone();
        for ((then, ours), now) in self.columns.iter().zip(&ours.columns).zip(&mut goal.columns) {
            if now.storage == ours.storage {
                now.storage = then.storage;
            }
            if now.own_method == ours.own_method {
                now.own_method = then.own_method;
                now.method = then.method;
            }
        }
        if goal.target == ours.target {
            goal.target.clone_from(&self.target);
        }
        goal
    }

    /// Whether a change of these settings to `ours` was made on a table that has the settings `now`.
    pub(crate) fn was_changed(&self, ours: &Settings, now: &Settings) -> bool {
        self.where_unchanged(ours, now).restore("", now).is_some()
    }

    /// The statement that restores these settings on a table with the settings `now`; `None` if there is nothing to
    /// change.
    pub(crate) fn restore(&self, table: &str, now: &Settings) -> Option<String> {
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
                parts.push(set_compression(&now.name, then.own_method));
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

    /// The columns whose values these settings store otherwise than `now`, and the storage that they have here; `None` if it is
    /// not the same for all. A method that is unset may be the same by default.
    pub(crate) fn restored_columns(&self, now: &Settings) -> Option<(Vec<&str>, Storage)> {
        let differ = self
            .columns
            .iter()
            .zip(&now.columns)
            .filter(|(then, now)| (then.storage, then.method) != (now.storage, now.method));
        let differ: Vec<&ColumnDefinition> = differ.map(|(then, _)| then).collect();
        let storage = differ.first()?.storage;
        differ
            .iter()
            .all(|column| column.storage == storage && !column.dropped)
            .then(|| (differ.iter().map(|column| column.name.as_str()).collect(), storage))
    }
}

/// A statement that fails ([`has_changed`]) if the definition was updated since it was read, or was never read, or if the
/// name of the relation, or of a type by which values are rebuilt, has gone to another one. If the table's lock is held, the
/// rest of the transaction sees the definition that was read.
///
/// The statement fails instead of returning a result, because later statements of the same message must not even be
/// planned: planning evaluates constant parts of the expressions of indexes and statistics.
pub(crate) fn check(
    quoted: &str,
    oid: Oid,
    targets: &[Target],
    known: Option<&Definition>,
) -> String {
    let named = targets.iter().flat_map(Target::named_types);
    let same = named.map(|(name, oid)| {
        format!("pg_catalog.to_regtype({})::pg_catalog.oid = {oid}", quote_literal(name))
    });
    let mut conditions: Vec<String> = same.collect();
    conditions.push(known.map_or_else(|| "false".to_owned(), |known| known.condition(oid)));
    let condition = conditions.join(" AND ");
    format!(
        "SELECT (CASE WHEN pg_catalog.to_regclass({})::pg_catalog.oid = {1} AND {condition} THEN 'true' \
         ELSE pg_catalog.concat('the definition of relation ', {1}::pg_catalog.oid, ' was changed') END)::pg_catalog.bool",
        quote_literal(quoted),
        oid.0
    )
}

/// Whether this is the error with which [`check`] fails.
pub(crate) fn has_changed(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_TEXT_REPRESENTATION)
}

fn column(row: &Row) -> LiveResult<ColumnDefinition> {
    let letter: String = row.try_get("storage")?;
    let storage = letter.chars().next().and_then(Storage::from_char);
    let storage =
        storage.ok_or_else(|| LiveError::Unexpected(format!("attstorage \"{letter}\"")))?;
    let own: String = row.try_get("own")?;
    let method: String = row.try_get("method")?;
    let toaster: String = row.try_get("toaster")?;
    Ok(ColumnDefinition {
        name: row.try_get("name")?,
        of_type: (row.try_get("type")?, Some(row.try_get("modifier")?)),
        dropped: row.try_get("dropped")?,
        storage,
        own_method: method_of(&own),
        method: method_of(&method),
        toaster: Some(toaster).filter(|toaster| !toaster.is_empty()),
    })
}

/// A method, by letter or name.
fn method_of(text: &str) -> Option<Method> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Method::from_char(letter),
        _ => Method::from_name(text),
    }
}

/// One difference between two definitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// What was done, as in a message.
    text: String,
    /// Whether a statement can undo it without reading the table.
    is_a_setting: bool,
}

impl Difference {
    fn setting(text: String) -> Difference {
        Difference { text, is_a_setting: true }
    }

    fn other(text: impl Into<String>) -> Difference {
        Difference { text: text.into(), is_a_setting: false }
    }
}

/// The differences, displayed as in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differences(pub(super) Vec<Difference>);

impl Differences {
    /// Whether all of them can be undone.
    pub(crate) fn are_settings(&self) -> bool {
        self.0.iter().all(|one| one.is_a_setting)
    }

    /// The error for a table whose definition has changed, or whose settings are not those that the work needs.
    pub(crate) fn into_error(self) -> RetoastError {
        let text = self.to_string();
        if !self.are_settings() {
            return RetoastError::altered(&text);
        }
        RetoastError::Refused(Message::error(text).hint(
            "Run the command again. With --set enforce=on, toastctl restores storage, compression and \
             toast_tuple_target itself.",
        ))
    }

    /// Those that a statement could undo.
    pub(crate) fn settings(mut self) -> Option<Differences> {
        self.0.retain(|one| one.is_a_setting);
        (!self.0.is_empty()).then_some(self)
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.0.iter().map(|one| one.text.as_str()).collect();
        write!(f, "{} by another session", texts.join(", "))
    }
}

/// The files of a table. If the files are the same before and after reading, the data came from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    /// The OID and `relfilenode` of the table, then those of its TOAST relations.
    relations: Vec<(u32, u32)>,
}

impl Files {
    /// The table's current files; `None` if the table does not exist any more. They cannot change while a transaction
    /// holds the table's lock.
    pub(in crate::retoast) async fn read(
        connection: &Connection,
        table: Oid,
    ) -> LiveResult<Option<Files>> {
        let sql = format!(
            "SELECT r.oid, coalesce(pg_catalog.pg_relation_filenode(r.oid), 0) \
             FROM pg_catalog.pg_class AS c, \
             LATERAL pg_catalog.unnest(c.oid || {TOAST_RELATIONS}) WITH ORDINALITY AS r (oid, n) \
             WHERE c.oid = $1 ORDER BY r.n"
        );
        let rows = connection.query_again(&sql, &[(&table.0, Type::OID)]).await?;
        let relations = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<LiveResult<Vec<(u32, u32)>>>()?;
        Ok((!relations.is_empty()).then_some(Files { relations }))
    }

    pub(in crate::retoast) fn toast(&self) -> Option<Oid> {
        self.relations.get(1).map(|&(oid, _)| Oid(oid))
    }
}

#[cfg(test)]
mod tests;
