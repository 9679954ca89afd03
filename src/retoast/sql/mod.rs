//! The text of all statements of a sweep (pure). Identifiers are quoted only here.

pub mod by_policy;
pub(crate) mod compact;
pub(crate) mod gin;
pub(crate) mod old_entries;
pub mod row_judge;
pub(crate) mod vacuum;

use crate::server::snapshot;
use toast_format::codec::Method;
use toast_format::disk::Attribute;
use toast_format::judge::toaster::Toaster;
use toast_format::model::sql::Shape;
use toast_format::model::sql::{in_blocks, quote_identifier};

/// A chosen column, and how its values are read and passed to an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// Its index from 0, including dropped columns.
    pub index: usize,
    /// The shape of its type, which determines how a fresh value is made.
    pub shape: Shape,
    /// Its compression method once the choice is set; never "default".
    pub method: Method,
    /// For a generated column, a column on which it depends: setting that column recomputes it.
    pub base: Option<String>,
    /// Its type, if it is a domain and values may have to be copied.
    pub domain: Option<Domain>,
}

/// A domain, as named in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub name: String,
    pub(crate) oid: u32,
    /// The type of its values (under nested domains, that of the innermost one), with its type modifier.
    pub of: String,
    pub(crate) of_oid: u32,
}

impl Target {
    /// A column that keeps its compression method; `default_method` if it has none.
    pub(crate) fn new(
        index: usize,
        column: &Attribute,
        shape: Shape,
        default_method: Method,
    ) -> Target {
        let method = column.compression.unwrap_or(default_method);
        Target { name: column.name.clone(), index, shape, method, base: None, domain: None }
    }

    /// The types that statements name, by their names and OIDs.
    pub(crate) fn named_types(&self) -> Vec<(&str, u32)> {
        let mut named = self.shape.named_types();
        if let Some(domain) = &self.domain {
            named.extend([(domain.name.as_str(), domain.oid), (domain.of.as_str(), domain.of_oid)]);
        }
        named
    }

    /// The column in SQL, for a table with the alias `t`.
    pub(crate) fn column(&self) -> String {
        format!("t.{}", quote_identifier(&self.name))
    }

    /// The column that an UPDATE sets to compute a fresh value of this one.
    pub fn set_column(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.name)
    }
}

/// The assignments of an UPDATE that re-toasts the chosen columns. A column that is set to itself keeps its datum.
fn assignments(targets: &[Target]) -> Vec<String> {
    let mut set: Vec<String> = Vec::new();
    for target in targets.iter().filter(|target| target.base.is_none()) {
        let value = target.shape.force(&target.column());
        set.push(format!("{} = {value}", quote_identifier(&target.name)));
    }
    set.extend(bases(targets));
    set
}

/// The columns from which an UPDATE recomputes generated columns.
fn bases(targets: &[Target]) -> Vec<String> {
    let mut bases: Vec<&str> = targets.iter().filter_map(|t| t.base.as_deref()).collect();
    bases.retain(|base| !targets.iter().any(|t| t.base.is_none() && t.name == *base));
    bases.sort_unstable();
    bases.dedup();
    bases.into_iter().map(|base| format!("{0} = t.{0}", quote_identifier(base))).collect()
}

/// How the transaction of a batch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSettings {
    /// The maximum wait for a lock, in milliseconds.
    pub lock_timeout_ms: u64,
    /// Whether ordinary triggers are disabled.
    pub replica_role: bool,
    /// How long the session may leave the transaction idle, in milliseconds, before the server ends it.
    pub idle_ms: u64,
    /// The schema whose name is held ([`hold_schema`]).
    pub schema: Option<String>,
    /// The types whose names are held ([`hold_types`]).
    pub types: Vec<u32>,
    /// The role to run as, if it is not the user.
    pub role: Option<String>,
}

/// Waits until everything committed before is on disk, by a transaction with a transaction ID that commits
/// synchronously.
pub const FLUSH: &str = "BEGIN READ WRITE; SET LOCAL synchronous_commit = local; \
    SELECT pg_catalog.pg_current_xact_id(); COMMIT";

/// Begins a batch. Its commit waits for the disk, although the next scan would repeat what a crash loses. The reason is
/// that once other sessions see the commit, they mark index entries of the old versions as dead, and the server may
/// write that index page before the commit's WAL. After a crash in between, the old row versions and chunks would be
/// live again but would have no index entries.
///
/// It does not request READ WRITE, so that nothing is written if an administrator makes the server read-only in the
/// meantime.
pub fn begin(settings: &BatchSettings) -> String {
    let mut sql = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; \
         SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = {}; \
         SET LOCAL synchronous_commit = local; {}; SET LOCAL toastctl.batch = 'begun'; \
         SET LOCAL row_security = off",
        settings.lock_timeout_ms,
        settings.idle_ms,
        snapshot::BY_KEY
    );
    if settings.replica_role {
        sql.push_str("; SET LOCAL session_replication_role = replica");
    }
    if let Some(schema) = &settings.schema {
        sql.push_str(&format!("; {}", snapshot::hold_schema(schema)));
    }
    if !settings.types.is_empty() {
        sql.push_str(&format!("; {}", snapshot::hold_types(&settings.types)));
    }
    // This comes last, because the role may lack the privileges that the other settings need.
    if let Some(role) = &settings.role {
        sql.push_str(&format!("; {}", set_role(role)));
    }
    sql
}

/// Takes the lock that an `UPDATE` would take anyway, in a statement of its own, so that the wait for it can be
/// measured; or, to block `CREATE STATISTICS` too, the lock that `VACUUM` takes.
pub(crate) fn lock(table: &str, blocks_create_statistics: bool) -> String {
    let mode = if blocks_create_statistics { "SHARE UPDATE EXCLUSIVE" } else { "ROW EXCLUSIVE" };
    format!("LOCK TABLE ONLY {table} IN {mode} MODE")
}

/// The rows of a table with the alias `t` from address `$1` up to but excluding `$2`.
const IN_RANGE: &str = "t.ctid >= $1::pg_catalog.text::pg_catalog.tid \
    AND t.ctid < $2::pg_catalog.text::pg_catalog.tid";

/// Reads the pages of a batch, from address `$1` up to but excluding `$2`, in a way that prunes them. Otherwise, no
/// update would find room on the page of the old version. A scan by addresses alone does not prune.
pub fn prune(table: &str) -> String {
    format!("SELECT count(*) FROM ONLY {table} AS t WHERE {IN_RANGE}")
}

/// The rows at the addresses in parameter `$1`.
fn at_addresses(table: &str) -> String {
    format!("FROM ONLY {table} AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])")
}

/// The hash of a row of a table with the alias `t`, over these columns or the whole row.
fn hash(columns: Option<&[String]>) -> String {
    let row = match columns {
        None => "ROW(t.*)".to_owned(),
        Some(columns) => format!("ROW({})", columns.join(", ")),
    };
    format!("pg_catalog.hashtextextended({row}::pg_catalog.text COLLATE \"C\", 0)")
}

/// Locks the rows of a batch (`$1`) that no other session has locked; returns each row's address and hash.
pub(crate) fn lock_and_hash(table: &str, columns: Option<&[String]>) -> String {
    format!(
        "SELECT t.ctid::pg_catalog.text, {} {} FOR NO KEY UPDATE SKIP LOCKED",
        hash(columns),
        at_addresses(table)
    )
}

/// Locks the rows that match a condition on `t`, waiting for other sessions' locks; returns the address and hash of
/// each row version that it has locked.
pub(crate) fn lock_held(table: &str, columns: Option<&[String]>, condition: &str) -> String {
    format!(
        "SELECT t.ctid::pg_catalog.text, {} FROM ONLY {table} AS t WHERE {condition} FOR NO KEY UPDATE",
        hash(columns)
    )
}

/// The columns of the primary key of table `$1` and their types, in the key's order; no rows if a type is not built in,
/// because its `=` operator might be anything.
pub(crate) const PRIMARY_KEY: &str = "SELECT a.attname::pg_catalog.text, \
     pg_catalog.format_type(a.atttypid, -1) \
     FROM pg_catalog.pg_index AS i, \
     pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, number) \
     JOIN pg_catalog.pg_attribute AS a ON a.attrelid = $1 AND a.attnum = k.attnum \
     WHERE i.indrelid = $1 AND i.indisprimary AND i.indisvalid AND k.number <= i.indnkeyatts \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS x \
       JOIN pg_catalog.pg_type AS y ON y.oid = x.atttypid \
       WHERE x.attrelid = i.indrelid AND x.attnum = ANY (i.indkey) \
       AND y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace) ORDER BY k.number";

/// Takes a role for the rest of the transaction.
pub(crate) fn set_role(role: &str) -> String {
    format!("SET LOCAL ROLE {}", quote_identifier(role))
}

/// The predicate of the index with the quoted name `$1`, and its column with the number `$2`.
pub(crate) const INDEX_TEXTS: &str = "SELECT pg_catalog.pg_get_expr(i.indpred, i.indrelid), \
     pg_catalog.pg_get_indexdef(i.indexrelid, $2, false) \
     FROM pg_catalog.pg_index AS i WHERE i.indexrelid = pg_catalog.to_regclass($1)";

/// Those of the rows at addresses `$1` to which a partial index's predicate applies, and of which an expression returns
/// the compressed value of a column. A function that makes a new value returns it uncompressed.
pub(crate) fn members(
    table: &str,
    predicate: Option<&str>,
    returned: Option<(&str, &str)>,
) -> String {
    let mut sql = format!("SELECT t.ctid::pg_catalog.text {}", at_addresses(table));
    if let Some(predicate) = predicate {
        sql.push_str(&format!(" AND ({predicate})"));
    }
    if let Some((expression, column)) = returned {
        sql.push_str(&format!(
            " AND pg_catalog.pg_column_compression({expression}) IS NOT NULL \
             AND pg_catalog.pg_column_size({expression}) OPERATOR(pg_catalog.=) pg_catalog.pg_column_size({column})"
        ));
    }
    sql
}

/// The address and key of the rows at addresses `$1`.
pub(crate) fn keys(table: &str, columns: &[String]) -> String {
    let texts: Vec<String> = columns
        .iter()
        .map(|column| format!("t.{}::pg_catalog.text", quote_identifier(column)))
        .collect();
    let rows = at_addresses(table);
    format!("SELECT t.ctid::pg_catalog.text, ARRAY[{}] {rows}", texts.join(", "))
}

/// Counts the rows whose chosen values alone are longer than `limit` bytes; returns the first one's address too.
pub fn unfit(table: &str, targets: &[Target], limit: usize) -> String {
    let sizes: Vec<String> = targets
        .iter()
        .map(|target| {
            let column = target.column();
            format!(
                "CASE WHEN pg_catalog.pg_column_compression({column}) IS NULL \
                 AND pg_catalog.pg_column_size({column}) <= 128 THEN \
                 pg_catalog.pg_column_size({column}) \
                 ELSE coalesce(pg_catalog.pg_column_size({}), 0) END::pg_catalog.int8",
                target.shape.force(&column)
            )
        })
        .collect();
    format!(
        "SELECT count(*), pg_catalog.min(t.ctid)::pg_catalog.text FROM ONLY {table} AS t \
         WHERE {} > {limit}",
        sizes.join(" + ")
    )
}

/// The hashes of the rows at addresses `$1`.
pub(crate) fn hashes(table: &str, columns: Option<&[String]>) -> String {
    format!("SELECT {} {}", hash(columns), at_addresses(table))
}

/// These expressions, about the rows at addresses `$1`.
pub(crate) fn readings(table: &str, expressions: &[String]) -> String {
    format!("SELECT {} {}", expressions.join(", "), at_addresses(table))
}

/// The statements of a batch that is verified: lock the rows (`$1`) that no other session has locked, re-toast them,
/// and read them again. All three can be sent together, because they pass the addresses on in settings of the
/// transaction. The first returns the addresses and hashes of the locked rows, the second the same as [`update`], the
/// third the hash of each row afterwards.
pub(crate) fn verified(table: &str, targets: &[Target], columns: Option<&[String]>) -> [String; 3] {
    let locked = "toastctl.locked";
    let stored = "toastctl.stored";
    let lock = format!(
        "WITH l AS MATERIALIZED (SELECT t.ctid, {} AS hash FROM ONLY {table} AS t \
         WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) FOR NO KEY UPDATE SKIP LOCKED) \
         SELECT coalesce(pg_catalog.array_agg(l.ctid::pg_catalog.text), '{{}}'), \
         coalesce(pg_catalog.array_agg(l.hash), '{{}}'), {} FROM l",
        hash(columns),
        keep_addresses(locked, "l")
    );
    let rows = format!("l.ctid = ANY ({})", kept_addresses(locked));
    let keep = keep_addresses(stored, "done");
    let gives = GIVES.replace(" FROM done", &format!(", {keep} FROM done"));
    let update = update_giving(table, &assignments(targets).join(", "), &rows, &gives);
    let hashes = format!(
        "SELECT {} FROM ONLY {table} AS t WHERE t.ctid = ANY ({})",
        hash(columns),
        kept_addresses(stored)
    );
    [lock, update, hashes]
}

/// Keeps the addresses of `rows` in a setting of the transaction.
fn keep_addresses(setting: &str, rows: &str) -> String {
    format!(
        "pg_catalog.set_config('{setting}', \
         coalesce(pg_catalog.array_agg({rows}.ctid), '{{}}')::pg_catalog.text, true)"
    )
}

fn kept_addresses(setting: &str) -> String {
    format!("pg_catalog.current_setting('{setting}')::pg_catalog.text[]::pg_catalog.tid[]")
}

/// Re-toasts the chosen columns in those rows of `$1` that no other session has locked. A new value is computed from
/// the row version that this statement has locked. Finds no row if the transaction did not begin with [`begin`].
/// Returns the number of rows, the transaction, and the rows' new addresses.
pub fn update(table: &str, targets: &[Target]) -> String {
    let rows = "l.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])";
    update_unlocked(table, &assignments(targets).join(", "), rows)
}

/// What an UPDATE named `done` returns: the number of rows, the transaction, and the new addresses.
const GIVES: &str = "SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, \
     coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done";

/// Updates the rows that match a condition on `l` and that no other session has locked. Finds no row if the transaction
/// did not begin with [`begin`].
fn update_unlocked(table: &str, set: &str, rows: &str) -> String {
    update_giving(table, set, rows, GIVES)
}

/// Like [`update_unlocked`], but ends with another query of the updated rows, `done`.
fn update_giving(table: &str, set: &str, rows: &str, gives: &str) -> String {
    format!(
        "WITH done AS (UPDATE ONLY {table} AS t SET {set} WHERE t.ctid = ANY (ARRAY(\
         SELECT l.ctid FROM ONLY {table} AS l WHERE {rows} \
         AND pg_catalog.current_setting('toastctl.batch', true) = 'begun' \
         FOR NO KEY UPDATE SKIP LOCKED)) RETURNING t.ctid) {gives}"
    )
}

/// Finds rows that have compressed fields inside composite values which the choice would not store so: their addresses,
/// the bytes of the chosen columns, and the inserting transaction. `None` if the types cannot contain any.
pub fn hidden(
    table: &str,
    toaster: Toaster,
    targets: &[Target],
    blocks: std::ops::Range<u32>,
) -> Option<String> {
    let conditions: Vec<String> = targets
        .iter()
        .filter_map(|target| {
            let method = if toaster.compresses() { Some(target.method) } else { None };
            target.shape.hidden(&target.column(), method)
        })
        .collect();
    if conditions.is_empty() {
        return None;
    }
    let columns = targets.iter().map(Target::column);
    let sizes: Vec<String> = columns
        .map(|column| format!("coalesce(pg_catalog.pg_column_size({column}), 0)::pg_catalog.int8"))
        .collect();
    Some(format!(
        "SELECT t.ctid::pg_catalog.text, {}, t.xmin::pg_catalog.text FROM ONLY {table} AS t \
         WHERE {} AND ({})",
        sizes.join(" + "),
        in_blocks(&blocks),
        conditions.join(" OR ")
    ))
}

/// Those addresses of `$1` where a `jsonb` column has a value that `jsonb_toaster` never moves out of line: a scalar,
/// or an object that contains no objects or arrays.
pub fn never_moved(table: &str, target: &Target) -> String {
    format!(
        "SELECT t.ctid::pg_catalog.text {rows} AND CASE pg_catalog.jsonb_typeof({column}) WHEN 'array' THEN false WHEN 'object' THEN \
         NOT EXISTS (SELECT FROM pg_catalog.jsonb_each({column}) AS e \
         WHERE pg_catalog.jsonb_typeof(e.value) IN ('array', 'object')) ELSE true END",
        rows = at_addresses(table),
        column = target.column()
    )
}

/// The bytes of the chosen columns' values of rows at the addresses of `$1`, uncompressed.
pub(crate) fn uncompressed(table: &str, targets: &[Target]) -> String {
    let sizes = targets.iter().map(|target| {
        let value = target.shape.force(&target.column());
        format!("coalesce(pg_catalog.pg_column_size({value}), 0)::pg_catalog.int8")
    });
    let sizes: Vec<String> = sizes.collect();
    format!("SELECT t.ctid::pg_catalog.text, {} {}", sizes.join(" + "), at_addresses(table))
}

/// The number of rows with a value of more than `bytes` bytes in one of the columns, and the address of the first.
pub(crate) fn longer_than(table: &str, targets: &[Target], bytes: u32) -> String {
    let conditions: Vec<String> = targets
        .iter()
        .map(|target| {
            // The value is fresh and uncompressed, with a 4-byte header.
            let value = target.shape.force(&target.column());
            format!("pg_catalog.pg_column_size({value}) > {}", u64::from(bytes) + 4)
        })
        .collect();
    format!(
        "SELECT count(*), min(t.ctid)::pg_catalog.text FROM ONLY {table} AS t WHERE {}",
        conditions.join(" OR ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn targets() -> Vec<Target> {
        let target = |name: &str, shape| Target {
            name: name.into(),
            index: 2,
            shape,
            method: Method::Lz4,
            base: None,
            domain: None,
        };
        vec![target("a\"b", Shape::Scalar), target("c", Shape::Array)]
    }

    pub(super) const TABLE: &str = r#""s"."T""#;

    #[test]
    fn a_batch_that_is_verified_needs_no_answer_on_the_way() {
        let [lock, update, hashes] = verified(TABLE, &targets()[..1], None);
        assert!(lock.contains("$1") && !update.contains('$') && !hashes.contains('$'));
        for (sql, sets, takes) in
            [(&lock, "toastctl.locked", "$1"), (&update, "toastctl.stored", "toastctl.locked")]
        {
            assert!(sql.contains(&format!("set_config('{sets}'")) && sql.contains(takes), "{sql}");
        }
        assert!(update.contains("current_setting('toastctl.batch', true) = 'begun'"), "{update}");
        assert!(hashes.contains("current_setting('toastctl.stored')"), "{hashes}");
        for sql in [&lock, &update] {
            assert!(sql.contains("FOR NO KEY UPDATE SKIP LOCKED"), "{sql}");
        }
    }

    #[test]
    fn what_jsonb_toaster_leaves_is_asked_for() {
        insta::assert_snapshot!(never_moved(TABLE, &targets()[0]), @r##"SELECT t.ctid::pg_catalog.text FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) AND CASE pg_catalog.jsonb_typeof(t."a""b") WHEN 'array' THEN false WHEN 'object' THEN NOT EXISTS (SELECT FROM pg_catalog.jsonb_each(t."a""b") AS e WHERE pg_catalog.jsonb_typeof(e.value) IN ('array', 'object')) ELSE true END"##);
    }

    #[test]
    fn a_batch_locks_hashes_and_stores_anew() {
        let settings = BatchSettings {
            lock_timeout_ms: 50,
            replica_role: true,
            idle_ms: 5000,
            schema: Some("s".into()),
            types: vec![7],
            role: Some("own\"er".into()),
        };
        insta::assert_snapshot!(begin(&settings), @r##"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 50; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 5000; SET LOCAL synchronous_commit = local; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = on; SET LOCAL enable_tidscan = on; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off; SET LOCAL toastctl.batch = 'begun'; SET LOCAL row_security = off; SET LOCAL session_replication_role = replica; SELECT FROM pg_catalog.pg_namespace WHERE nspname = 's' FOR KEY SHARE; SELECT FROM pg_catalog.pg_type WHERE oid IN (7) FOR KEY SHARE; SELECT FROM pg_catalog.pg_namespace WHERE oid IN (SELECT typnamespace FROM pg_catalog.pg_type WHERE oid IN (7)) FOR KEY SHARE; SET LOCAL ROLE "own""er""##);
        insta::assert_snapshot!(prune(TABLE), @r##"SELECT count(*) FROM ONLY "s"."T" AS t WHERE t.ctid >= $1::pg_catalog.text::pg_catalog.tid AND t.ctid < $2::pg_catalog.text::pg_catalog.tid"##);
        insta::assert_snapshot!(lock_and_hash(TABLE, None), @r##"SELECT t.ctid::pg_catalog.text, pg_catalog.hashtextextended(ROW(t.*)::pg_catalog.text COLLATE "C", 0) FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) FOR NO KEY UPDATE SKIP LOCKED"##);
        insta::assert_snapshot!(hashes(TABLE, Some(&[r#"t."a""b""#.into(), r#"t."c""#.into()])), @r##"SELECT pg_catalog.hashtextextended(ROW(t."a""b", t."c")::pg_catalog.text COLLATE "C", 0) FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])"##);
        insta::assert_snapshot!(update(TABLE, &targets()), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "a""b" = (ARRAY[t."a""b"])[1], "c" = CASE WHEN t."c" IS NOT NULL THEN pg_catalog.array_cat(t."c", '{}') END WHERE t.ctid = ANY (ARRAY(SELECT l.ctid FROM ONLY "s"."T" AS l WHERE l.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) AND pg_catalog.current_setting('toastctl.batch', true) = 'begun' FOR NO KEY UPDATE SKIP LOCKED)) RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
    }

    #[test]
    fn a_generated_column_is_computed_anew_through_one_that_it_is_made_of() {
        let generated = |name: &str, base: &str| Target {
            name: name.into(),
            base: Some(base.into()),
            ..targets().remove(0)
        };
        let some = [generated("g", "b"), generated("h", "b"), generated("i", "c")];
        assert_eq!(assignments(&some), [r#""b" = t."b""#, r#""c" = t."c""#]);
        let both = [generated("g", "c"), targets().remove(1)];
        assert_eq!(assignments(&both).len(), 1);
        assert!(assignments(&both)[0].contains("array_cat"));
    }

    #[test]
    fn only_composite_values_hide_compressed_fields() {
        assert_eq!(hidden(TABLE, Toaster::External, &targets(), 0..8), None);
    }
}
