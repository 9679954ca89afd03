//! Relations and their columns from the catalog.

use std::collections::HashMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::{Oid as PgOid, Type};

use super::about::Server;
use super::connect::Client;
use super::similar::similar;
use super::toasters::TOAST_RELATIONS;
use super::{LiveError, LiveResult, count_in, letter_in, numbers};
use crate::command::table_words;
use crate::message::Message;
use toast_format::codec::Method;
use toast_format::disk::desc::MissingValue;
use toast_format::disk::types::SENT_AS_STORED;
use toast_format::disk::{
    Align, Attribute, Length, Oid, PageSize, Storage, TupleDesc, ValueIdType, array, types,
};
use toast_format::fill::moves::RelatedFiles;
use toast_format::model::TupleTarget;
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::Prices;
use toast_format::model::index_shape::IndexShape;
use toast_format::model::sql::{quote_literal, quote_qualified, shown_qualified};
use toast_format::model::toast::{Column, Table};

/// `relkind` of a relation whose tuples can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum RelationKind {
    /// `r`: an ordinary table, or a partition.
    #[serde(rename = "table")]
    Table,
    /// `m`: a materialized view.
    #[serde(rename = "materialized view")]
    MaterializedView,
    /// `t`: a TOAST relation.
    #[serde(rename = "TOAST relation")]
    Toast,
}

impl RelationKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            RelationKind::Table => "table",
            RelationKind::MaterializedView => "materialized view",
            RelationKind::Toast => "TOAST relation",
        }
    }
}

/// The message about a TOAST relation with unexpected columns.
pub(crate) const UNKNOWN_LAYOUT: &str =
    "its columns are not those of the TOAST relations of PostgreSQL 14 to 19";

/// Why a table with value IDs of 8 bytes is not rewritten, and neither has findings nor advice.
pub(crate) const WIDE_IDS: &str =
    "the IDs of its values have 8 bytes, and toastctl only reads such tables";

/// A relation's TOAST relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToastRelation {
    /// Its OID, as in TOAST pointers.
    pub oid: Oid,
    /// Its name, in schema `pg_toast`.
    pub name: String,
    /// Bytes of its main fork.
    pub bytes: u64,
    /// Bytes of its index.
    pub index_bytes: u64,
    /// Planner's estimate of its rows, `None` if never vacuumed or analyzed.
    pub row_estimate: Option<u64>,
    /// The type of `chunk_id`; `None` if it has other columns than `chunk_id`, `chunk_seq integer` and `chunk_data
    /// bytea`, or another type.
    id_type: Option<ValueIdType>,
}

impl ToastRelation {
    /// Whether its chunks can be read: it has the expected columns, or the server has pluggable TOAST.
    pub(crate) fn layout_is_known(&self, server: &Server) -> bool {
        self.id_type.is_some() || server.has_toasters
    }

    /// Why its table is not rewritten; `None` if it can be.
    pub(crate) fn only_read(&self, server: &Server) -> Option<&'static str> {
        match self.id_type {
            _ if server.has_toasters => None,
            Some(ValueIdType::Oid) => None,
            Some(ValueIdType::Oid8) => Some(WIDE_IDS),
            None => Some(UNKNOWN_LAYOUT),
        }
    }

    /// `schema.name`, unquoted, for people.
    pub fn display_name(&self) -> String {
        format!("pg_toast.{}", self.name)
    }

    /// The number of pages of its index from the root to a leaf, assuming that its own pages are full of chunks.
    pub(crate) fn full_index_levels(&self, page: PageSize) -> u32 {
        const CHUNKS: u64 = 4;
        ToastIndex::new(page, self.bytes / page.bytes() as u64 * CHUNKS).levels
    }
}

/// A relation whose tuples can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub kind: RelationKind,
    /// Whether its access method is `heap`, so that pages can be decoded.
    pub is_heap: bool,
    /// Name of its access method.
    pub access_method: String,
    /// Whether it is unlogged and the server a standby, which has none of its rows.
    pub is_out_of_reach: bool,
    /// That its file, or that of its TOAST relation, is missing or emptied, if this user may know; its size is then 0.
    pub(crate) lost_file: Option<String>,
    /// Bytes of its main fork.
    pub bytes: u64,
    /// Bytes of all its indexes.
    pub index_bytes: u64,
    /// Bytes of those that are GIN indexes.
    pub gin_bytes: u64,
    /// The table's options, such as `toast_tuple_target=4080`; those of its TOAST relation begin with `toast.`.
    pub options: Vec<String>,
    /// Whether row security hides rows from this user.
    pub row_security: bool,
    /// Its owner, if this user lacks the owner's rights.
    pub(crate) other_owner: Option<String>,
    /// A trigger or rule that each UPDATE sets off, whoever runs it.
    pub(crate) set_off: Option<String>,
    pub toast: Option<ToastRelation>,
    pub desc: TupleDesc,
    /// For each column, whether `octet_length` accepts it (text, bytea, char, and domains over them).
    pub bytes_like: Vec<bool>,
    /// The indexes that new rows get entries in.
    pub indexes: Vec<IndexShape>,
}

impl Relation {
    pub fn quoted(&self) -> String {
        quote_qualified(&self.schema, &self.name)
    }

    /// `schema.name`, as in messages.
    pub fn display_name(&self) -> String {
        shown_qualified(&self.schema, &self.name)
    }

    /// Why nothing can be done with the table, if its file or that of its TOAST relation is missing or emptied.
    pub(crate) fn without_file(&self) -> Option<Message> {
        let lost = self.lost_file.as_ref()?;
        let command = format!("toastctl check {}", table_words(&self.schema, &self.name));
        let message = Message::error(lost.clone());
        Some(message.hint(format!("{command} says what is lost.")).about(self.display_name()))
    }

    /// The files that compaction of the table's own file touches.
    pub(crate) fn related_files(&self) -> RelatedFiles {
        RelatedFiles { index_bytes: self.index_bytes, gin_bytes: self.gin_bytes, table: None }
    }

    /// The files that compaction of this TOAST relation of the table touches.
    pub(crate) fn related_files_of(&self, toast: &ToastRelation) -> RelatedFiles {
        RelatedFiles {
            index_bytes: toast.index_bytes,
            gin_bytes: self.gin_bytes,
            table: Some((self.bytes, self.index_bytes)),
        }
    }

    /// Why its pages cannot be decoded; `None` if they can.
    pub(crate) fn why_no_heap(&self) -> Option<String> {
        (!self.is_heap)
            .then(|| format!("the table's access method is {}, not heap", self.access_method))
    }

    /// Its `fillfactor`, in percent.
    pub(crate) fn fillfactor(&self) -> u8 {
        fillfactor(&self.options)
    }

    /// The table's `toast_tuple_target`, if it is set.
    pub(crate) fn tuple_target(&self, page: PageSize) -> Option<TupleTarget> {
        tuple_target(&self.options, page)
    }

    /// The table as the toaster sees it; `default` is `default_toast_compression`.
    pub(crate) fn table(&self, default: Method, page: PageSize) -> Table {
        let columns = self.desc.attributes.iter();
        Table {
            columns: columns.map(|attribute| Column::new(attribute, default)).collect(),
            target: self.tuple_target(page).unwrap_or(TupleTarget::default_for(page)),
            has_toast_relation: self.toast.is_some(),
            page,
            prices: Prices::default(),
            indexes: self.indexes.clone(),
        }
    }

    /// The size of the table, its TOAST relation and the TOAST index, which are what its settings affect.
    pub(crate) fn bytes_with_toast(&self) -> u64 {
        let toast = self.toast.as_ref().map_or(0, |t| t.bytes.saturating_add(t.index_bytes));
        self.bytes.saturating_add(toast)
    }

    /// The indexes of the columns whose storage can be changed.
    pub(crate) fn toastable(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.desc.attributes.iter().enumerate().filter_map(|(index, column)| {
            (column.is_stored() && is_toastable(column)).then_some(index)
        })
    }

    /// The error for a user who has named a column that the relation does not have.
    pub(crate) fn no_such_column(&self, given: &str) -> Message {
        let name = self.display_name();
        let text = format!("column \"{given}\" of relation \"{name}\" does not exist");
        Message::error(text).hint(self.toastable_hint(given))
    }

    /// A hint for a user who has named another column, as `given`.
    pub(crate) fn toastable_hint(&self, given: &str) -> String {
        let columns = self.toastable().filter_map(|index| self.desc.attributes.get(index));
        let names: Vec<String> = columns.map(|column| column.name.clone()).collect();
        let near = similar(given, &names).first().copied();
        let near = near.filter(|near| *near != given);
        let parts: Vec<&str> = given.split(',').map(str::trim).collect();
        if parts.len() > 1 && parts.iter().all(|part| names.iter().any(|name| name == part)) {
            return format!("Each column takes an option of its own: -c {}.", parts.join(" -c "));
        }
        match (near, names.is_empty()) {
            (Some(near), _) if given.trim_matches('"') == near => {
                format!("Names are given without quotation marks, here {near}.")
            }
            (Some(near), _) => format!("Perhaps you meant \"{near}\"."),
            (None, true) => "The relation has no column that can be toasted.".into(),
            (None, false) => {
                format!("Columns that can be toasted are \"{}\".", names.join("\", \""))
            }
        }
    }
}

/// A relation as reports name it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RelationName {
    /// `schema.name`, or the file or input.
    pub relation: String,
    /// Schema; null for files.
    pub schema_name: Option<String>,
    /// Name without schema; null for files.
    pub name: Option<String>,
    /// OID of the relation; null for files.
    pub oid: Option<u32>,
}

impl RelationName {
    /// The name of a file, or of another input without a server.
    pub fn file(relation: &str) -> RelationName {
        RelationName { relation: relation.to_owned(), ..RelationName::default() }
    }
}

impl From<&Relation> for RelationName {
    fn from(relation: &Relation) -> RelationName {
        RelationName {
            relation: relation.display_name(),
            schema_name: Some(relation.schema.clone()),
            name: Some(relation.name.clone()),
            oid: Some(relation.oid.0),
        }
    }
}

/// Why nothing can be said of the values of a virtual column, after its name.
pub(crate) const VIRTUAL: &str = "is virtual: its values are not stored";

/// One of a table's options; `None` if it is not set.
pub(crate) fn option<T: FromStr>(options: &[String], name: &str) -> Option<T> {
    options
        .iter()
        .find_map(|option| option.strip_prefix(name)?.strip_prefix('=')?.trim().parse().ok())
}

fn fillfactor(options: &[String]) -> u8 {
    option(options, "fillfactor").unwrap_or(100)
}

fn tuple_target(options: &[String], page: PageSize) -> Option<TupleTarget> {
    TupleTarget::new(option(options, "toast_tuple_target")?, page).ok()
}

/// Whether the column's storage can be changed: its values vary in length, and its type's own storage is not PLAIN, as that
/// of `oidvector` is (`ATExecSetStorage`).
pub(crate) fn is_toastable(column: &Attribute) -> bool {
    let of_type = types::by_oid(column.type_oid);
    column.length == Length::Varlena
        && !column.only_plain
        && of_type.is_none_or(|known| known.storage != Storage::Plain)
}

/// The indexes of the table `c` that new rows get entries in, as [`IndexShape`]s in JSON.
const INDEXES: &str = "(SELECT pg_catalog.json_agg(pg_catalog.json_build_object(\
       'name', pg_catalog.format('%I.%I', s.nspname, x.relname), 'method', m.amname, \
       'is_partial', i.indpred IS NOT NULL, 'columns', \
       (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(\
          'attnum', i.indkey[a.attnum - 1], 'length', a.attlen, 'align', a.attalign, 'class', \
          CASE WHEN o.opcnamespace = 'pg_catalog'::pg_catalog.regnamespace OR e.extname IS NOT NULL \
          THEN pg_catalog.json_build_array(o.opcname, coalesce(e.extname, 'pg_catalog')) END) ORDER BY a.attnum) \
        FROM pg_catalog.pg_attribute AS a \
        LEFT JOIN pg_catalog.pg_opclass AS o ON a.attnum <= i.indnkeyatts AND o.oid = i.indclass[a.attnum - 1] \
        LEFT JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_opclass'::pg_catalog.regclass \
          AND d.objid = o.oid AND d.deptype = 'e' \
        LEFT JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid \
        WHERE a.attrelid = x.oid AND a.attnum > 0)) ORDER BY x.oid)::pg_catalog.text \
     FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
     JOIN pg_catalog.pg_namespace AS s ON s.oid = x.relnamespace JOIN pg_catalog.pg_am AS m ON m.oid = x.relam \
     WHERE i.indrelid = c.oid AND i.indisready AND x.relkind = 'i')";

/// Describes the relation `oid`; `None` if it was dropped in the meantime.
pub async fn describe(client: &Client, oid: Oid) -> LiveResult<Option<Relation>> {
    Ok(describe_all(client, &[oid]).await?.pop())
}

/// Describes these relations, with the same number of queries for many as for one. Those that were dropped in the
/// meantime are missing.
pub(crate) async fn describe_all(client: &Client, oids: &[Oid]) -> LiveResult<Vec<Relation>> {
    let wanted = numbers(oids);
    let rows = client
        .query_typed(
            &format!(
                "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                    c.relkind::pg_catalog.text, coalesce(a.amname, '')::pg_catalog.text, \
                    coalesce(pg_catalog.pg_relation_size(c.oid), 0), \
                    coalesce(pg_catalog.pg_indexes_size(c.oid), 0), \
                    coalesce(c.reloptions, '{{}}') \
                    || ARRAY(SELECT 'toast.' || o FROM pg_catalog.unnest(t.reloptions) AS o), \
                    pg_catalog.row_security_active(c.oid), \
                    t.oid, t.relname::pg_catalog.text, \
                    coalesce(pg_catalog.pg_relation_size(t.oid), 0), \
                    coalesce(pg_catalog.pg_indexes_size(t.oid), 0), \
                    t.reltuples::pg_catalog.float8, \
                    (SELECT CASE pg_catalog.array_agg(c.atttypid::pg_catalog.int4 ORDER BY c.attnum) \
                            WHEN ARRAY[26, 23, 17] THEN 'oid' \
                            WHEN ARRAY[pg_catalog.to_regtype('pg_catalog.oid8')::pg_catalog.oid\
                                       ::pg_catalog.int4, 23, 17] THEN 'oid8' END \
                     FROM pg_catalog.pg_attribute AS c WHERE c.attrelid = t.oid AND c.attnum > 0), c.oid, \
                    {INDEXES}, \
                    (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(x.oid)), 0)::pg_catalog.int8 \
                     FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
                     JOIN pg_catalog.pg_am AS m ON m.oid = x.relam \
                     WHERE i.indrelid = c.oid AND m.amname = 'gin'), \
                    c.relpersistence = 'u' AND pg_catalog.pg_is_in_recovery(), \
                    CASE WHEN NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') \
                         THEN pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text END, \
                    coalesce( \
                        (SELECT 'rule ' || pg_catalog.quote_ident(r.rulename::pg_catalog.text) \
                         FROM pg_catalog.pg_rewrite AS r \
                         WHERE r.ev_class = c.oid AND r.ev_type = '2' AND r.ev_enabled <> 'D' LIMIT 1), \
                        (SELECT 'trigger ' || pg_catalog.quote_ident(g.tgname::pg_catalog.text) || ', which is enabled ALWAYS' \
                         FROM pg_catalog.pg_trigger AS g \
                         WHERE g.tgrelid = c.oid AND NOT (g.tgisinternal AND g.tgfoid < 16384) \
                           AND g.tgtype & 16 <> 0 AND g.tgenabled = 'A' LIMIT 1)) \
             FROM pg_catalog.pg_class AS c \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam \
             LEFT JOIN pg_catalog.pg_class AS t ON t.oid = ({TOAST_RELATIONS})[1] \
             WHERE c.oid = ANY ($1)"
            ),
            &[(&wanted, Type::OID_ARRAY)],
        )
        .await?;
    let mut columns = columns(client, &wanted).await?;
    let relations = rows.iter().map(|row| {
        let oid = Oid(row.try_get(14)?);
        relation(row, oid, columns.remove(&oid).unwrap_or_default())
    });
    let mut relations: Vec<Relation> = relations.collect::<LiveResult<_>>()?;
    let is_empty =
        |one: &Relation| one.bytes == 0 || one.toast.as_ref().is_some_and(|toast| toast.bytes == 0);
    if relations.iter().any(is_empty) {
        let lost = lost_files(client, &wanted).await?;
        for relation in &mut relations {
            relation.lost_file = lost.get(&relation.oid).cloned();
        }
    }
    Ok(relations)
}

/// What two rows of the catalog, or a row and what the server takes for granted, say differently of tables: the first such
/// contradiction of each, as what is expected and what was found. SQL then misreads rows of the table, or refuses to read them,
/// whatever they hold. Servers with pluggable TOAST name TOAST relations otherwise.
pub(crate) async fn contradictions(
    client: &Client,
    tables: &[Oid],
) -> LiveResult<HashMap<Oid, (String, String)>> {
    // `toast_open_indexes` takes the only valid index of the TOAST relation, and `relation_open` as many columns as
    // pg_class says
    const SQL: &str = "SELECT q.oid, x.expected, x.found FROM pg_catalog.unnest($1) AS q (oid), LATERAL (WITH \
         c AS (SELECT oid, relkind, relnatts, reltoastrelid AS toast FROM pg_catalog.pg_class WHERE oid = q.oid), \
         a AS (SELECT a.* FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = q.oid AND a.attnum > 0), \
         d AS (SELECT pg_catalog.min(d.objid) AS toast FROM pg_catalog.pg_depend AS d \
               WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refclassid = d.classid \
                 AND d.refobjid = q.oid AND d.refobjsubid = 0 AND d.deptype = 'i' \
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS t WHERE t.oid = d.objid AND t.relkind <> 't') \
               HAVING pg_catalog.count(*) = 1) \
         SELECT pg_catalog.format('reltoastrelid %s, which depends on the table', d.toast), c.toast::pg_catalog.text \
         FROM c, d WHERE d.toast <> c.toast \
         UNION ALL \
         SELECT 'a valid index of the TOAST relation on chunk_id and chunk_seq', 'none' FROM c \
         WHERE c.toast <> 0 AND c.relkind <> 't' \
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
             WHERE i.indrelid = c.toast AND i.indisvalid AND i.indkey::pg_catalog.text = '1 2') \
         UNION ALL \
         SELECT pg_catalog.format('a file of its own (relfilenode) for %s', t.oid::pg_catalog.regclass), \
           pg_catalog.format('that of %s', o.oid::pg_catalog.regclass) \
         FROM c JOIN pg_catalog.pg_class AS t ON t.oid IN (c.oid, c.toast) \
           JOIN pg_catalog.pg_class AS o ON o.relfilenode = t.relfilenode AND o.reltablespace = t.reltablespace \
         WHERE t.relfilenode <> 0 AND o.oid <> t.oid AND t.relpersistence <> 't' AND o.relpersistence <> 't' \
         UNION ALL \
         SELECT pg_catalog.format('relnatts %s, as pg_attribute has columns', n.columns), c.relnatts::pg_catalog.text \
         FROM c, (SELECT pg_catalog.count(*) AS columns FROM a) AS n WHERE n.columns <> c.relnatts \
         UNION ALL \
         SELECT pg_catalog.format('a type of column %s', pg_catalog.to_json(a.attname)), \
           pg_catalog.format('OID %s, which no type has', a.atttypid) \
         FROM a WHERE NOT a.attisdropped AND NOT EXISTS (SELECT FROM pg_catalog.pg_type AS t WHERE t.oid = a.atttypid) \
         UNION ALL \
         SELECT pg_catalog.format('attmissingval of column %s', pg_catalog.to_json(a.attname)), 'NULL' \
         FROM a WHERE a.atthasmissing AND a.attmissingval IS NULL \
         LIMIT 1) AS x (expected, found)";
    let rows = client.query_typed(SQL, &[(&numbers(tables), Type::OID_ARRAY)]).await?;
    let found =
        rows.iter().map(|row| Ok((Oid(row.try_get(0)?), (row.try_get(1)?, row.try_get(2)?))));
    found.collect()
}

/// The SQL condition that a VACUUM or the like is at work on the relation of this database with this OID.
pub(super) fn is_being_vacuumed(oid: &str) -> String {
    format!(
        "EXISTS (SELECT FROM pg_catalog.pg_locks AS l \
             WHERE l.locktype = 'relation' AND l.relation = {oid} AND l.mode = 'ShareUpdateExclusiveLock' \
               AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                                 WHERE d.datname = pg_catalog.current_database()))"
    )
}

/// The files of these tables and of their TOAST relations that are missing or emptied, as far as this user may know. A file
/// that is replaced at this moment has another name when it is looked for again. VACUUM cuts off all blocks before it
/// corrects pg_class, and holds a lock until it has; a standby does not know that lock.
async fn lost_files(client: &Client, tables: &[PgOid]) -> LiveResult<HashMap<Oid, String>> {
    const ALLOWED: &str = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_stat_file(text, boolean)', 'EXECUTE')";
    let sql = format!(
        "SELECT c.oid, CASE WHEN s.size IS NULL THEN 'the file ' || f.path || ' is missing' \
                ELSE 'the file ' || f.path || ' is empty, but pg_class counts ' || r.relpages || ' blocks' END \
         FROM pg_catalog.pg_class AS c, \
             LATERAL pg_catalog.unnest(ARRAY[c.oid] || {TOAST_RELATIONS}) AS o (oid) \
             JOIN pg_catalog.pg_class AS r ON r.oid = o.oid, \
             LATERAL pg_catalog.pg_relation_filepath(r.oid) AS f (path), \
             LATERAL (SELECT (pg_catalog.pg_stat_file(f.path, true)).size) AS s (size) \
         WHERE c.oid = ANY ($1) AND f.path IS NOT NULL \
               AND (s.size IS NULL \
                    OR s.size = 0 AND r.relpages > 0 AND NOT pg_catalog.pg_is_in_recovery() \
                       AND NOT {})",
        is_being_vacuumed("r.oid")
    );
    if !client.value::<bool>(ALLOWED, &[]).await?.unwrap_or(false) {
        return Ok(HashMap::new());
    }
    let mut lost = HashMap::new();
    for look in 0..2 {
        let rows = client.query_typed(&sql, &[(&tables, Type::OID_ARRAY)]).await?;
        let mut found = HashMap::new();
        for row in &rows {
            found.insert(Oid(row.try_get(0)?), row.try_get::<_, String>(1)?);
        }
        if look > 0 {
            found.retain(|oid, text| lost.get(oid) == Some(text));
        }
        lost = found;
        if lost.is_empty() {
            break;
        }
    }
    Ok(lost)
}

fn relation(row: &Row, oid: Oid, columns: Columns) -> LiveResult<Relation> {
    let access_method: String = row.try_get(3)?;
    let toast = match row.try_get::<_, Option<PgOid>>(8)? {
        None => None,
        Some(toast_oid) => Some(ToastRelation {
            oid: Oid(toast_oid),
            name: row.try_get(9)?,
            bytes: count_in(row, 10)?,
            index_bytes: count_in(row, 11)?,
            // -1 means that it was never vacuumed or analyzed.
            row_estimate: row
                .try_get::<_, Option<f64>>(12)?
                .filter(|&n| n >= 0.0)
                .map(|n| n as u64),
            id_type: match row.try_get::<_, Option<&str>>(13)? {
                Some("oid") => Some(ValueIdType::Oid),
                Some("oid8") => Some(ValueIdType::Oid8),
                _ => None,
            },
        }),
    };
    let Columns { mut desc, bytes_like } = columns;
    desc.id_type = toast.as_ref().and_then(|toast| toast.id_type).unwrap_or_default();
    let kind: String = row.try_get(2)?;
    Ok(Relation {
        oid,
        schema: row.try_get(0)?,
        name: row.try_get(1)?,
        kind: match kind.as_str() {
            "m" => RelationKind::MaterializedView,
            "t" => RelationKind::Toast,
            _ => RelationKind::Table,
        },
        // TOAST relations of old clusters have no access method in the catalog.
        is_heap: access_method == "heap" || access_method.is_empty(),
        access_method,
        is_out_of_reach: row.try_get(17)?,
        lost_file: None,
        bytes: count_in(row, 4)?,
        index_bytes: count_in(row, 5)?,
        gin_bytes: count_in(row, 16)?,
        options: row.try_get(6)?,
        row_security: row.try_get(7)?,
        other_owner: row.try_get(18)?,
        set_off: row.try_get(19)?,
        toast,
        desc,
        bytes_like,
        indexes: match row.try_get::<_, Option<&str>>(15)? {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| LiveError::Unexpected(format!("indexes: {error}")))?,
            None => Vec::new(),
        },
    })
}

/// The current number of blocks in the main fork of the relation with this quoted name.
pub(crate) async fn blocks(client: &Client, relation: &str, page: PageSize) -> LiveResult<u32> {
    let name = quote_literal(relation);
    let sql = format!("SELECT pg_catalog.pg_relation_size({name}::pg_catalog.regclass)");
    let bytes: i64 = client.value(&sql, &[]).await?.unwrap_or(0);
    let blocks = u64::try_from(bytes).unwrap_or(0) / page.bytes() as u64;
    Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
}

/// The columns of a relation, and whether `octet_length` accepts each.
#[derive(Default)]
struct Columns {
    desc: TupleDesc,
    bytes_like: Vec<bool>,
}

/// The name of a column's base type `b.type`, if a cast from text runs no code of other users: the type is built in, or it
/// and what it consists of belong to superusers or to the user.
const TRUSTED_TYPE: &str = "SELECT pg_catalog.format_type(t.oid, -1) FROM pg_catalog.pg_type AS t \
    JOIN pg_catalog.pg_roles AS o ON o.oid = t.typowner \
    LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 \
    WHERE t.oid = b.type AND (t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace \
      OR (o.rolsuper OR o.rolname = session_user) AND t.typtype IN ('b', 'c') \
        AND coalesce(e.typtype, 'b') IN ('b', 'c', 'e') \
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS f \
          JOIN pg_catalog.pg_type AS y ON y.oid = f.atttypid \
          WHERE f.attrelid = coalesce(nullif(e.typrelid, 0), t.typrelid) AND f.attnum > 0 AND NOT f.attisdropped \
          AND y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace))";

async fn columns(client: &Client, oids: &[PgOid]) -> LiveResult<HashMap<Oid, Columns>> {
    // The innermost base type of a domain determines whether octet_length accepts it.
    let sql = format!(
        "WITH RECURSIVE base (attrelid, attnum, type, depth) AS ( \
                   SELECT attrelid, attnum, atttypid, 0 FROM pg_catalog.pg_attribute \
                   WHERE attrelid = ANY ($1) AND attnum > 0 \
                 UNION ALL \
                   SELECT b.attrelid, b.attnum, t.typbasetype, b.depth + 1 FROM base AS b \
                   JOIN pg_catalog.pg_type AS t ON t.oid = b.type \
                   WHERE t.typtype = 'd' AND b.depth < 100) \
               SELECT a.attname::pg_catalog.text, \
                      pg_catalog.format_type(a.atttypid, a.atttypmod), \
                      a.atttypid, a.attlen, a.attalign::pg_catalog.text, \
                      a.attstorage::pg_catalog.text, a.attcompression::pg_catalog.text, \
                      a.attisdropped, \
                      CASE WHEN a.atthasmissing THEN a.attmissingval::pg_catalog.text END, \
                      ({TRUSTED_TYPE}), \
                      b.type, a.attgenerated = 'v', \
                      CASE WHEN a.atthasmissing AND EXISTS ( \
                          SELECT FROM pg_catalog.pg_type AS t \
                          WHERE t.oid = a.atttypid \
                          AND (t.oid = ANY ($2) OR t.typelem = ANY ($2) AND t.typlen = -1)) \
                      THEN pg_catalog.array_send(a.attmissingval) END, a.attrelid, \
                      EXISTS (SELECT FROM pg_catalog.pg_type AS t \
                        WHERE t.oid = a.atttypid AND t.typstorage = 'p') \
               FROM pg_catalog.pg_attribute AS a \
               JOIN (SELECT DISTINCT ON (attrelid, attnum) attrelid, attnum, type FROM base \
                     ORDER BY attrelid, attnum, depth DESC) AS b \
                 ON b.attrelid = a.attrelid AND b.attnum = a.attnum \
               WHERE a.attrelid = ANY ($1) AND a.attnum > 0 \
               ORDER BY a.attrelid, a.attnum"
    );
    let rows = client
        .query_typed(&sql, &[(&oids, Type::OID_ARRAY), (&&SENT_AS_STORED[..], Type::OID_ARRAY)])
        .await?;
    let mut all: HashMap<Oid, Columns> = HashMap::new();
    for row in &rows {
        let mut attribute = attribute(row)?;
        if let Some(text) = row.try_get::<_, Option<String>>(8)? {
            attribute.missing = Some(if attribute.dropped {
                MissingValue { raw_size: None, stored_size: None, text: None, sent: None }
            } else {
                let trusted_type: Option<&str> = row.try_get(9)?;
                let sent: Option<&[u8]> = row.try_get(12)?;
                MissingValue {
                    sent: sent.and_then(only_element),
                    ..missing(client, &text, trusted_type, attribute.length).await?
                }
            });
        }
        let base: Option<PgOid> = row.try_get(10)?;
        let columns = all.entry(Oid(row.try_get(13)?)).or_default();
        let bytes_like =
            base.is_some_and(|base| toast_format::disk::types::is_bytes_like(Oid(base)));
        columns.bytes_like.push(bytes_like);
        columns.desc.attributes.push(attribute);
    }
    Ok(all)
}

fn attribute(row: &Row) -> LiveResult<Attribute> {
    let name: String = row.try_get(0)?;
    let dropped: bool = row.try_get(7)?;
    let unexpected = |field| LiveError::Unexpected(format!("{field} of column \"{name}\""));
    let attlen: i16 = row.try_get(3)?;
    Ok(Attribute {
        type_name: if dropped {
            String::new()
        } else {
            row.try_get::<_, Option<String>>(1)?.unwrap_or_default()
        },
        type_oid: Oid(row.try_get::<_, PgOid>(2)?),
        length: Length::from_attlen(i64::from(attlen)).ok_or_else(|| unexpected("attlen"))?,
        align: letter_in(row, 4)?
            .and_then(Align::from_char)
            .ok_or_else(|| unexpected("attalign"))?,
        storage: letter_in(row, 5)?
            .and_then(Storage::from_char)
            .ok_or_else(|| unexpected("attstorage"))?,
        compression: letter_in(row, 6)?.and_then(Method::from_char),
        dropped,
        is_virtual: row.try_get(11)?,
        only_plain: row.try_get(14)?,
        missing: None,
        name,
    })
}

/// The binary form of the only element of an array.
fn only_element(array: &[u8]) -> Option<Vec<u8>> {
    match array::sent(array)?.1.as_slice() {
        [element] => element.map(<[u8]>::to_vec),
        _ => None,
    }
}

/// Has the server build the missing value from its text, and measures it. The text is that of an array with the value
/// as its only element. `trusted_type`: [`TRUSTED_TYPE`].
async fn missing(
    client: &Client,
    text: &str,
    trusted_type: Option<&str>,
    length: Length,
) -> LiveResult<MissingValue> {
    let element = format!("({}::pg_catalog.text[])[1]", quote_literal(text));
    let sql = format!(
        "SELECT pg_catalog.convert_to({element}, \
             pg_catalog.getdatabaseencoding()::pg_catalog.name)"
    );
    let text = match client.value(&sql, &[]).await {
        Ok(text) => text.flatten(),
        Err(error) if error.as_db_error().is_some() => None,
        Err(error) => return Err(error.into()),
    };
    if let Length::Fixed(n) = length {
        let size = Some(u32::from(n));
        return Ok(MissingValue { raw_size: size, stored_size: size, text, sent: None });
    }
    let Some(type_name) = trusted_type else {
        return Ok(MissingValue { raw_size: None, stored_size: None, text, sent: None });
    };
    let sql = format!("SELECT pg_catalog.pg_column_size({element}::{type_name})");
    let size: Option<i32> = match client.value(&sql, &[]).await {
        Ok(size) => size.flatten(),
        // The type's input function does not accept its own output, so the size stays unknown.
        Err(error) if error.as_db_error().is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let stored_size = size.and_then(|size| u32::try_from(size).ok());
    let raw_size = stored_size.map(|size| size.saturating_sub(4));
    Ok(MissingValue { raw_size, stored_size, text, sent: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fillfactor_is_read_from_the_options() {
        assert_eq!(fillfactor(&["toast_tuple_target=128".into(), "fillfactor=70".into()]), 70);
        assert_eq!(fillfactor(&[]), 100);
    }

    #[test]
    fn the_target_is_the_tables_if_it_is_set() {
        let target =
            |options: &[String]| tuple_target(options, PageSize::DEFAULT).map(TupleTarget::bytes);
        assert_eq!(target(&[]), None);
        assert_eq!(TupleTarget::default_for(PageSize::DEFAULT).bytes(), 2032);
        assert_eq!(target(&["fillfactor=70".into(), "toast_tuple_target=4080".into()]), Some(4080));
    }
}
