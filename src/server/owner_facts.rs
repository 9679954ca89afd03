//! Gathers from the catalog what [`super::owner_code`] judges, and begins transactions in which a table is read by SQL.
//!
//! What was judged must still hold when a statement is planned, and plans are made from the current catalog, not from the
//! transaction's snapshot. `ACCESS SHARE` does not block `CREATE INDEX` or `CREATE STATISTICS`; `SHARE UPDATE EXCLUSIVE`
//! does. So a reader takes this lock first, without waiting, and then its snapshot. Where it may not (a standby, a
//! materialized view, a user with no privilege but SELECT), what an owner adds between the check and a statement is not
//! noticed.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::catalog::Relation;
use super::connect::{Client, Connection};
use super::owner_code::{
    CalledOperator, Catalog, DataType, Expression, Function, Language, Object, Owner, TypeKind,
    Volatility,
};
use super::snapshot::{self, Moment};
use super::{LiveError, LiveResult, Parameter, numbers};
use toast_format::disk::Oid;

/// The lock of readers.
pub(crate) const ACCESS_SHARE: &str = "ACCESS SHARE MODE";
/// The weakest lock that holds off `CREATE INDEX` and `CREATE STATISTICS`. It is never waited for: autovacuum gives way to
/// sessions that do.
const SHARE_UPDATE_EXCLUSIVE: &str = "SHARE UPDATE EXCLUSIVE MODE NOWAIT";

/// How many functions a refusal names.
const NAMED: usize = 10;

/// How long to wait for another connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a reader tries to lock a table, and the pause between two attempts.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The session's user and the owner of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) user: String,
    pub(crate) owner: String,
    /// Whether code of an owner would run with rights of another: the user who has logged in is not the owner of the table
    /// or of one above it, nor of a column's domain, and that owner is no superuser.
    pub(crate) lent: bool,
    /// Whether the user is not the owner but may act as the owner, and the owner has the required privileges.
    pub(crate) may_be_owner: bool,
    /// Whether others than superusers may rename the table's schema, and the user may hold its name
    /// ([`snapshot::hold_schema`]).
    pub(crate) may_hold_schema: bool,
    /// Whether the user may hold the names of types ([`snapshot::hold_types`]).
    pub(crate) may_hold_types: bool,
}

/// The user is `session_user`, because code can undo `SET ROLE`.
///
/// The owners of partitioned tables, of inheritance parents and of domains count too: what they add reaches the table.
const RIGHTS: &str = "WITH RECURSIVE above (below, oid) AS (\
      SELECT oid, oid FROM pg_catalog.unnest($1) AS oid \
      UNION SELECT a.below, i.inhparent FROM above AS a JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = a.oid) \
    SELECT session_user::pg_catalog.text, o.rolname::pg_catalog.text, \
    EXISTS (SELECT FROM above AS a JOIN pg_catalog.pg_class AS p ON p.oid = a.oid \
      JOIN pg_catalog.pg_roles AS s ON s.oid = p.relowner \
      WHERE a.below = c.oid AND s.rolname <> session_user AND NOT s.rolsuper) \
    OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
      JOIN pg_catalog.pg_type AS d ON d.typtype = 'd' AND d.oid IN (t.oid, t.typelem) \
      JOIN pg_catalog.pg_roles AS s ON s.oid = d.typowner \
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
        AND s.rolname <> session_user AND NOT s.rolsuper), \
    me.oid <> o.oid AND NOT o.rolsuper AND CASE \
      WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 < 160000 \
      THEN pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER') \
      ELSE pg_catalog.pg_has_role(me.oid, o.oid, 'SET') END \
      AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND NOT o.rolbypassrls) \
      AND pg_catalog.has_schema_privilege(o.oid, c.relnamespace, 'USAGE') \
      AND pg_catalog.has_table_privilege(o.oid, c.oid, 'SELECT') \
      AND pg_catalog.has_table_privilege(o.oid, c.oid, 'UPDATE'), c.oid, \
    NOT pg_catalog.pg_is_in_recovery() \
      AND pg_catalog.has_table_privilege(me.oid, 'pg_catalog.pg_namespace', 'UPDATE') \
      AND NOT (SELECT s.rolsuper FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS s \
               ON s.oid = n.nspowner WHERE n.oid = c.relnamespace), \
    NOT pg_catalog.pg_is_in_recovery() \
      AND pg_catalog.has_table_privilege(me.oid, 'pg_catalog.pg_namespace', 'UPDATE') \
      AND pg_catalog.has_table_privilege(me.oid, 'pg_catalog.pg_type', 'UPDATE') \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner, \
      pg_catalog.pg_roles AS me WHERE c.oid = ANY ($1) AND me.rolname = current_user";

/// What can run code. `$1` is the table, `$2` the `tgenabled` of triggers that fire, `$3` the columns whose values are
/// coerced to their types. Triggers that the server made for constraints call its own functions; where they fire, those of
/// foreign keys cast values. Before version 15, the copies of a partitioned table's triggers are internal too. Policies
/// count if row security applies to the user; batches run as the owner only where it does not apply to the owner.
const OBJECTS: &str = "WITH RECURSIVE tree (oid) AS (\
      SELECT $1::pg_catalog.oid UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors($1) AS a), \
    coerced (place, oid) AS (\
      SELECT pg_catalog.format('column %I', attname), atttypid FROM pg_catalog.pg_attribute \
      WHERE attrelid = $1 AND attnum = ANY ($3) AND NOT attisdropped \
      UNION SELECT g.place, x.oid FROM coerced AS g JOIN pg_catalog.pg_type AS y ON y.oid = g.oid \
      CROSS JOIN LATERAL (\
        SELECT y.typbasetype UNION ALL SELECT y.typelem \
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute AS a \
        WHERE y.typrelid <> 0 AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped \
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE r.rngtypid = y.oid \
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = y.oid) AS x (oid) \
      WHERE x.oid <> 0), \
    classes (object, class) AS (\
      SELECT i.indexrelid, k.class FROM pg_catalog.pg_index AS i, \
        pg_catalog.unnest(i.indclass::pg_catalog.oid[]) AS k (class) WHERE i.indrelid = $1 \
      UNION SELECT p.partrelid, k.class FROM pg_catalog.pg_partitioned_table AS p, \
        pg_catalog.unnest(p.partclass::pg_catalog.oid[]) AS k (class) \
      WHERE p.partrelid IN (SELECT oid FROM tree)), \
    class_functions (object, oid) AS (\
      SELECT c.object, a.amproc::pg_catalog.oid FROM classes AS c \
      JOIN pg_catalog.pg_opclass AS o ON o.oid = c.class \
      JOIN pg_catalog.pg_amproc AS a ON a.amprocfamily = o.opcfamily \
        AND a.amproclefttype = o.opcintype AND a.amprocrighttype = o.opcintype \
      UNION SELECT c.object, p.oprcode::pg_catalog.oid FROM classes AS c \
      JOIN pg_catalog.pg_opclass AS o ON o.oid = c.class \
      JOIN pg_catalog.pg_amop AS a ON a.amopfamily = o.opcfamily \
        AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype \
      JOIN pg_catalog.pg_operator AS p ON p.oid = a.amopopr) \
    SELECT pg_catalog.format('index %I', c.relname), \
      ARRAY[i.indexprs::pg_catalog.text, i.indpred::pg_catalog.text], \
      ARRAY(SELECT a.atttypid FROM pg_catalog.pg_attribute AS a \
        WHERE a.attrelid = $1 AND a.attnum = ANY (i.indkey::pg_catalog.int2[])), \
      ARRAY(SELECT f.oid FROM class_functions AS f WHERE f.object = i.indexrelid), \
      '{}'::pg_catalog.oid[], '{}'::pg_catalog.oid[], '{}'::pg_catalog.oid[], false \
    FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = $1 \
    UNION ALL SELECT pg_catalog.format('constraint %I', k.conname), ARRAY[k.conbin::pg_catalog.text], \
      ARRAY(SELECT a.atttypid FROM pg_catalog.pg_attribute AS a \
        WHERE a.attrelid = $1 AND a.attnum = ANY (k.conkey)), \
      ARRAY(SELECT p.oprcode::pg_catalog.oid FROM pg_catalog.pg_operator AS p WHERE p.oid = ANY (\
        k.conexclop || k.conpfeqop || k.conppeqop || k.conffeqop)), '{}', '{}', \
      ARRAY(SELECT a.atttypid \
        FROM ROWS FROM (pg_catalog.unnest(k.conkey), pg_catalog.unnest(k.conffeqop)) AS f (attnum, operator) \
        JOIN pg_catalog.pg_operator AS p ON p.oid = f.operator \
        JOIN pg_catalog.pg_type AS y ON y.oid = p.oprleft AND y.typtype <> 'p' \
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = $1 AND a.attnum = f.attnum AND a.atttypid <> p.oprleft \
        WHERE 'O' = ANY ($2)), false \
    FROM pg_catalog.pg_constraint AS k WHERE k.conrelid = $1 \
    UNION ALL SELECT pg_catalog.format('generated column %I', a.attname), ARRAY[d.adbin::pg_catalog.text], \
      '{}', '{}', '{}', '{}', '{}', false \
    FROM pg_catalog.pg_attrdef AS d JOIN pg_catalog.pg_attribute AS a \
      ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = $1 AND a.attgenerated <> '' \
    UNION ALL SELECT pg_catalog.format('statistics %I', stxname), ARRAY[stxexprs::pg_catalog.text], \
      '{}', '{}', '{}', '{}', '{}', false FROM pg_catalog.pg_statistic_ext WHERE stxrelid = $1 \
    UNION ALL SELECT pg_catalog.format('trigger %I', tgname), ARRAY[tgqual::pg_catalog.text], \
      '{}', '{}', ARRAY[tgfoid], '{}', '{}', false FROM pg_catalog.pg_trigger \
    WHERE tgrelid = $1 AND NOT (tgisinternal AND tgfoid < 16384) AND tgtype & 16 <> 0 \
      AND tgenabled::pg_catalog.text = ANY ($2) \
    UNION ALL SELECT pg_catalog.format('policy %I', p.polname), \
      ARRAY[p.polqual::pg_catalog.text, p.polwithcheck::pg_catalog.text], '{}', '{}', '{}', '{}', '{}', true \
    FROM pg_catalog.pg_policy AS p WHERE p.polrelid = $1 AND pg_catalog.row_security_active($1) \
    UNION ALL SELECT pg_catalog.format('partition key of %s', p.partrelid::pg_catalog.regclass), \
      ARRAY[p.partexprs::pg_catalog.text], \
      ARRAY(SELECT a.atttypid FROM pg_catalog.pg_attribute AS a \
        WHERE a.attrelid = p.partrelid AND a.attnum = ANY (p.partattrs::pg_catalog.int2[])), \
      ARRAY(SELECT f.oid FROM class_functions AS f WHERE f.object = p.partrelid), '{}', '{}', '{}', false \
    FROM pg_catalog.pg_partitioned_table AS p WHERE p.partrelid IN (SELECT oid FROM tree) \
    UNION ALL SELECT g.place, '{}', '{}', '{}', '{}', pg_catalog.array_agg(g.oid), '{}', false \
    FROM coerced AS g JOIN pg_catalog.pg_type AS t ON t.oid = g.oid AND t.typtype = 'd' GROUP BY 1 \
    UNION ALL SELECT pg_catalog.format('domain %s', k.contypid::pg_catalog.regtype), \
      ARRAY[k.conbin::pg_catalog.text], '{}', '{}', '{}', '{}', '{}', false \
    FROM pg_catalog.pg_constraint AS k WHERE k.contypid <> 0 AND k.contypid IN (SELECT g.oid FROM coerced AS g)";

/// The functions `$2`, and those of the operators `$3`, with the operator and its owner; `$1` is the table.
const FUNCTIONS: &str = "WITH wanted (operator, oid, owner) AS (\
      SELECT 0::pg_catalog.oid, f, 0::pg_catalog.oid FROM pg_catalog.unnest($2) AS f \
      UNION SELECT o.oid, o.oprcode::pg_catalog.oid, o.oprowner FROM pg_catalog.pg_operator AS o \
        WHERE o.oid = ANY ($3)) \
    SELECT w.operator, p.oid, p.oid::pg_catalog.regprocedure::pg_catalog.text, r.rolname::pg_catalog.text, \
      r.rolsuper, p.prolang, p.provolatile::pg_catalog.text, \
      pg_catalog.has_function_privilege(c.relowner, p.oid, 'EXECUTE'), \
      p.proargtypes::pg_catalog.oid[] || p.prorettype, \
      w.operator::pg_catalog.regoperator::pg_catalog.text, o.rolname::pg_catalog.text, o.rolsuper, \
      p.prosqlbody IS NOT NULL \
    FROM wanted AS w JOIN pg_catalog.pg_proc AS p ON p.oid = w.oid \
    JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = w.owner, \
      pg_catalog.pg_class AS c WHERE c.oid = $1";

/// The types `$1`, and those of which they consist.
const TYPES: &str = "WITH RECURSIVE used (oid) AS (\
      SELECT f FROM pg_catalog.unnest($1) AS f \
      UNION SELECT x.oid FROM used AS u JOIN pg_catalog.pg_type AS y ON y.oid = u.oid \
      CROSS JOIN LATERAL (SELECT y.typbasetype UNION ALL SELECT y.typelem \
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE r.rngtypid = y.oid \
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = y.oid) AS x (oid) \
      WHERE x.oid <> 0) \
    SELECT t.oid, t.oid::pg_catalog.regtype::pg_catalog.text, r.rolname::pg_catalog.text, r.rolsuper, \
      t.typtype::pg_catalog.text, t.typname::pg_catalog.text, t.typcategory = 'A' AND t.typlen = -1, \
      coalesce(nullif(t.typbasetype, 0), \
        (SELECT g.rngsubtype FROM pg_catalog.pg_range AS g WHERE g.rngtypid = t.oid), \
        (SELECT g.rngtypid FROM pg_catalog.pg_range AS g WHERE g.rngmultitypid = t.oid), t.typelem) \
    FROM used AS u JOIN pg_catalog.pg_type AS t ON t.oid = u.oid \
    JOIN pg_catalog.pg_roles AS r ON r.oid = t.typowner";

/// `INTERNALlanguageId`, `ClanguageId` and `SQLlanguageId` (pg_language.dat).
const INTERNAL: u32 = 12;
const C: u32 = 13;
const SQL: u32 = 14;
/// `FirstNormalObjectId` (transam.h): objects with smaller OIDs were created by initdb.
pub(crate) const FIRST_NORMAL: u32 = 16_384;

/// The privileges of the user and the owner of each table; tables that were dropped are missing.
pub(crate) async fn rights(client: &Client, tables: &[Oid]) -> LiveResult<HashMap<Oid, Rights>> {
    let mut found = HashMap::new();
    for row in client.query_typed(RIGHTS, &[(&numbers(tables), Type::OID_ARRAY)]).await? {
        let rights = Rights {
            user: row.try_get(0)?,
            owner: row.try_get(1)?,
            lent: row.try_get(2)?,
            may_be_owner: row.try_get(3)?,
            may_hold_schema: row.try_get(5)?,
            may_hold_types: row.try_get(6)?,
        };
        found.insert(Oid(row.try_get(4)?), rights);
    }
    Ok(found)
}

/// The rights with which code of the relation's owner would run; `None` if these are the owner's, or the relation was dropped.
async fn lent_rights(client: &Client, relation: Oid) -> LiveResult<Option<Rights>> {
    let rights = rights(client, &[relation]).await?.remove(&relation);
    Ok(rights.filter(|rights| rights.lent))
}

/// The first of these types whose name others than the user and superusers could give to another type.
pub(crate) async fn movable_type(client: &Client, types: &[u32]) -> LiveResult<Option<String>> {
    let sql = "SELECT pg_catalog.min(pg_catalog.format_type(t.oid, NULL)) FROM pg_catalog.pg_type AS t \
        JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace \
        JOIN pg_catalog.pg_roles AS r ON r.oid IN (t.typowner, CASE n.nspowner::pg_catalog.regrole::pg_catalog.text \
          WHEN 'pg_database_owner' THEN (SELECT d.datdba FROM pg_catalog.pg_database AS d \
            WHERE d.datname = pg_catalog.current_database()) ELSE n.nspowner END) \
        WHERE t.oid = ANY ($1) AND NOT r.rolsuper AND r.rolname <> session_user";
    let name: Option<Option<String>> = client.value(sql, &[(&types, Type::OID_ARRAY)]).await?;
    Ok(name.flatten())
}

/// What of the owner's code that a statement on a table runs is not harmless. `triggers`: the `tgenabled` of triggers that
/// fire; `coerced`: `attnum` of the columns whose values are coerced to the domains of their types.
pub(crate) async fn refusals(
    client: &Client,
    table: Oid,
    triggers: &[&str],
    coerced: &[i16],
) -> LiveResult<Vec<String>> {
    let objects = objects(client, table, triggers, coerced).await?;
    let mut functions = Vec::new();
    let mut operators = Vec::new();
    let mut types = Vec::new();
    for object in &objects {
        functions.extend(object.classes.iter().chain(&object.called));
        types.extend(object.key_types.iter().chain(&object.coerced).chain(&object.cast));
        for tree in &object.expressions {
            let expression = Expression::parse(tree);
            functions.extend(expression.functions);
            operators.extend(expression.operators);
            types.extend(expression.types);
        }
    }
    let mut catalog = Catalog::default();
    add_functions(client, table, functions, operators, &mut catalog).await?;
    types.extend(catalog.functions.values().flat_map(|function| &function.types));
    add_types(client, types, &mut catalog).await?;
    Ok(catalog.refusals(&objects))
}

/// The text that follows the relation's name if checking its foreign keys runs code that is not harmless: for a row that
/// the transaction itself has written, the server queries the referenced table, with the rights of its owner, but what that
/// code leaves for the end of the transaction runs with those of the user.
pub(crate) async fn refusal_of_references(
    client: &Client,
    table: Oid,
    ways_out: &str,
) -> LiveResult<Option<String>> {
    let sql = "SELECT DISTINCT confrelid FROM pg_catalog.pg_constraint \
               WHERE conrelid = $1 AND contype = 'f' AND confrelid <> $1";
    for row in client.query_typed(sql, &[(&table.0, Type::OID)]).await? {
        let referenced = Oid(row.try_get(0)?);
        let Some(rights) = lent_rights(client, referenced).await? else { continue };
        let found = refusals(client, referenced, &[], &[]).await?;
        if !found.is_empty() {
            let text = refusal(&rights, &found, ways_out);
            return Ok(Some(format!(
                "rows cannot be moved: a foreign key refers to another relation: {text}"
            )));
        }
    }
    Ok(None)
}

async fn objects(
    client: &Client,
    table: Oid,
    triggers: &[&str],
    coerced: &[i16],
) -> LiveResult<Vec<Object>> {
    let parameters: [Parameter<'_>; 3] =
        [(&table.0, Type::OID), (&triggers, Type::TEXT_ARRAY), (&coerced, Type::INT2_ARRAY)];
    let mut found = Vec::new();
    for row in client.query_typed(OBJECTS, &parameters).await? {
        let expressions: Vec<Option<String>> = row.try_get(1)?;
        found.push(Object {
            name: row.try_get(0)?,
            expressions: expressions.into_iter().flatten().collect(),
            key_types: row.try_get(2)?,
            classes: row.try_get(3)?,
            called: row.try_get(4)?,
            coerced: row.try_get(5)?,
            cast: row.try_get(6)?,
            is_policy: row.try_get(7)?,
        });
    }
    Ok(found)
}

async fn add_functions(
    client: &Client,
    table: Oid,
    mut functions: Vec<u32>,
    mut operators: Vec<u32>,
    catalog: &mut Catalog,
) -> LiveResult<()> {
    for oids in [&mut functions, &mut operators] {
        oids.sort_unstable();
        oids.dedup();
    }
    if functions.is_empty() && operators.is_empty() {
        return Ok(());
    }
    let parameters: [Parameter<'_>; 3] =
        [(&table.0, Type::OID), (&functions, Type::OID_ARRAY), (&operators, Type::OID_ARRAY)];
    for row in client.query_typed(FUNCTIONS, &parameters).await? {
        let operator: u32 = row.try_get(0)?;
        let oid: u32 = row.try_get(1)?;
        if operator != 0 {
            let owner = Owner { name: row.try_get(10)?, is_superuser: row.try_get(11)? };
            let found = CalledOperator { name: row.try_get(9)?, owner, function: oid };
            catalog.operators.insert(operator, found);
        }
        let language: u32 = row.try_get(5)?;
        let volatility: String = row.try_get(6)?;
        let function = Function {
            name: row.try_get(2)?,
            owner: Owner { name: row.try_get(3)?, is_superuser: row.try_get(4)? },
            language: match language {
                INTERNAL => Language::Internal,
                C => Language::C,
                SQL if oid < FIRST_NORMAL && row.try_get(12)? => Language::ServerSql,
                _ => Language::Other,
            },
            volatility: match volatility.as_str() {
                "i" => Volatility::Immutable,
                "s" => Volatility::Stable,
                _ => Volatility::Volatile,
            },
            executable: row.try_get::<_, Option<bool>>(7)? == Some(true),
            built_in: oid < FIRST_NORMAL,
            types: row.try_get(8)?,
        };
        catalog.functions.insert(oid, function);
    }
    Ok(())
}

async fn add_types(client: &Client, mut types: Vec<u32>, catalog: &mut Catalog) -> LiveResult<()> {
    types.sort_unstable();
    types.dedup();
    if types.is_empty() {
        return Ok(());
    }
    for row in client.query_typed(TYPES, &[(&types, Type::OID_ARRAY)]).await? {
        let oid: u32 = row.try_get(0)?;
        let of_type = DataType {
            name: row.try_get(1)?,
            owner: Owner { name: row.try_get(2)?, is_superuser: row.try_get(3)? },
            built_in: oid < FIRST_NORMAL,
            kind: type_kind(&row)?,
        };
        catalog.types.insert(oid, of_type);
    }
    Ok(())
}

fn type_kind(row: &Row) -> LiveResult<TypeKind> {
    let kind: String = row.try_get(4)?;
    let name: String = row.try_get(5)?;
    let is_array: bool = row.try_get(6)?;
    let part: u32 = row.try_get(7)?;
    Ok(match (kind.as_str(), name.as_str()) {
        ("b", _) if is_array && part != 0 => TypeKind::Array(part),
        ("b", _) => TypeKind::Base,
        ("e", _) => TypeKind::Enum,
        ("r", _) => TypeKind::Range(part),
        ("m", _) => TypeKind::Multirange(part),
        ("d", _) => TypeKind::Domain(part),
        ("p", "internal" | "void") => TypeKind::Internal,
        ("p", "anyenum") => TypeKind::AnyEnum,
        ("p", "any") => TypeKind::Other,
        ("p", name) if name.starts_with("any") => TypeKind::Polymorphic,
        _ => TypeKind::Other,
    })
}

/// The text that follows the relation's name in a refusal.
pub(crate) fn refusal(rights: &Rights, refusals: &[String], ways_out: &str) -> String {
    let mut text = format!(
        "a statement on this relation of \"{}\" could use the rights of user \"{}\" for code that the owner has chosen:",
        rights.owner, rights.user
    );
    for refusal in refusals.iter().take(NAMED) {
        text.push_str("\n  ");
        text.push_str(refusal);
    }
    if refusals.len() > NAMED {
        text.push_str(&format!("\n  and {} more", refusals.len() - NAMED));
    }
    text.push_str("\nHINT:  ");
    text.push_str(ways_out);
    text
}

const WAYS_OUT: &str = "Run as the owner (-U), or as a superuser with the extension pageinspect, which runs no code of \
     the relation's. If you have reviewed these functions and everything they call, you can use --allow owner-code.";

const BUSY: &str = "another session vacuums or alters this relation, and what its owner adds meanwhile could run with your \
     rights\n\
     HINT:  Try again later, run as the owner (-U), or as a superuser with the extension pageinspect.";

/// What counts as the owner's code where `LOCK TABLE` does not accept the relation.
const UNLOCKED: &str =
    "statistics that are created meanwhile, against which a materialized view cannot be locked";

/// How a relation can be locked by a reader who is not its owner.
struct Lock {
    /// Whether the user may take the lock that holds off `CREATE INDEX` and `CREATE STATISTICS`.
    may_hold_off: bool,
    /// Whether `LOCK TABLE` accepts the relation.
    is_table: bool,
    /// Whether another session holds a lock that conflicts with that lock.
    is_busy: bool,
    /// Whether the session itself holds that lock, or one that conflicts with it.
    is_held: bool,
    may_hold_schema: bool,
    /// Whether it is a materialized view, which `LOCK TABLE` does not accept, and the user a superuser.
    is_view_of_superuser: bool,
}

/// Before version 17, no role could be granted MAINTAIN.
const LOCK: &str = "SELECT NOT pg_catalog.pg_is_in_recovery() AND c.relkind = 'r' AND (\
      pg_catalog.has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') \
      OR CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 170000 \
        THEN pg_catalog.has_table_privilege(c.oid, 'MAINTAIN') ELSE false END), \
    c.relkind = 'r' AND pg_catalog.has_table_privilege(c.oid, 'SELECT'), \
    l.others, \
    c.relkind = 'm' AND EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper), \
    l.own \
    FROM pg_catalog.pg_class AS c, LATERAL (\
      SELECT count(*) FILTER (WHERE l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()) > 0 AS others, \
             count(*) FILTER (WHERE l.pid = pg_catalog.pg_backend_pid()) > 0 AS own \
      FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation' AND l.relation = c.oid AND l.granted \
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                          WHERE d.datname = pg_catalog.current_database()) \
        AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', \
                       'AccessExclusiveLock')) AS l \
    WHERE c.oid = $1";

/// Begins a transaction in which the relation is read by SQL, with a snapshot. Code of the relation's owner that is not
/// harmless is not run, unless the user has allowed it: the transaction then does not begin.
///
/// # Errors
/// [`LiveError::OwnerCode`], [`LiveError::Denied`], or any error of the server.
pub(crate) async fn begin_reading(
    connection: &Connection,
    relation: &Relation,
    writes_copies: bool,
) -> LiveResult<Moment> {
    let mode = if writes_copies { snapshot::TEMPORARY } else { snapshot::MODE };
    let client = connection.client();
    for _ in 0..TRIES {
        let Some(lock) = lock_for_rows(connection, relation).await? else {
            connection.begin(mode).await?;
            return snapshot::take(client).await;
        };
        if !(lock.may_hold_off && lock.is_busy) {
            let begun = Box::pin(begin_checked(connection, relation, mode, &lock)).await;
            match begun {
                Err(error) if error.is_locked() => {}
                begun => return begun,
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(LiveError::OwnerCode(BUSY.into()))
}

/// Like [`lock`], for a relation whose rows are read: the user must be allowed to read all of it, or it was dropped. The
/// server gives nobody who may read some columns only the places of rows.
async fn lock_for_rows(connection: &Connection, relation: &Relation) -> LiveResult<Option<Lock>> {
    let sql = "SELECT pg_catalog.has_table_privilege($1::pg_catalog.oid, 'SELECT')";
    let client = connection.client();
    connection
        .reading(async || {
            let may: Option<Option<bool>> =
                client.value(sql, &[(&relation.oid.0, Type::OID)]).await?;
            if may.flatten() == Some(false) {
                return Err(LiveError::Denied(format!(
                    "{} {}",
                    relation.kind.name(),
                    relation.name
                )));
            }
            if connection.session().allows_owner_code {
                return Ok(None);
            }
            lock_now(client, relation.oid).await
        })
        .await
}

/// How to lock the relation; `None` if its owner's code may run, or it was dropped.
async fn lock(connection: &Connection, relation: Oid) -> LiveResult<Option<Lock>> {
    if connection.session().allows_owner_code {
        return Ok(None);
    }
    let client = connection.client();
    connection.reading(async || lock_now(client, relation).await).await
}

/// Whether the user may take the lock that holds off what the relation's owner could add, or needs none.
pub(crate) async fn may_hold_off(client: &Client, relation: Oid) -> LiveResult<bool> {
    Ok(lock_now(client, relation).await?.is_none_or(|lock| lock.may_hold_off))
}

async fn lock_now(client: &Client, relation: Oid) -> LiveResult<Option<Lock>> {
    let Some(rights) = lent_rights(client, relation).await? else { return Ok(None) };
    let Some(row) = client.row(LOCK, &[(&relation.0, Type::OID)]).await? else { return Ok(None) };
    Ok(Some(Lock {
        is_view_of_superuser: row.try_get(3)?,
        may_hold_off: row.try_get(0)?,
        is_table: row.try_get(1)?,
        is_busy: row.try_get(2)?,
        is_held: row.try_get(4)?,
        may_hold_schema: rights.may_hold_schema,
    }))
}

async fn begin_checked(
    connection: &Connection,
    relation: &Relation,
    transaction: &str,
    lock: &Lock,
) -> LiveResult<Moment> {
    let client = connection.client();
    let holds_schema = lock.is_table && lock.may_hold_schema;
    let checked = async {
        // Holding a name writes a row's lock.
        connection.begin(if holds_schema { snapshot::TEMPORARY } else { transaction }).await?;
        if lock.is_table {
            let mode = if lock.may_hold_off { SHARE_UPDATE_EXCLUSIVE } else { ACCESS_SHARE };
            let table = relation.quoted();
            let mut locks = format!("LOCK TABLE ONLY {table} IN {mode}");
            if holds_schema {
                // The second time it is the table that has the name from now on.
                let hold = snapshot::hold_schema(&relation.schema);
                locks = format!("{locks}; {hold}; {locks}");
                if transaction == snapshot::MODE {
                    locks.push_str("; SET TRANSACTION READ ONLY");
                }
            }
            client.batch_execute(&locks).await?;
        } else {
            lock_unplanned(client, &relation.quoted()).await?;
        }
        let moment = snapshot::take(client).await?;
        if !is_named(client, relation).await? {
            return Err(LiveError::Changed);
        }
        check(client, relation.oid, lock.is_view_of_superuser).await?;
        Ok(moment)
    };
    let checked = checked.await;
    if checked.is_err() {
        // If this fails too, the connection is lost, and the next query reports that.
        let _ = snapshot::abandon(client).await;
    }
    checked
}

/// Whether the relation has its name now, and a file: before version 16, a rule can make a view of a table. Where it is
/// locked, only its schema can be renamed from then on. Both functions see what is committed, whatever the snapshot.
pub(crate) async fn is_named(client: &Client, relation: &Relation) -> LiveResult<bool> {
    let sql = "SELECT CASE WHEN pg_catalog.pg_relation_filenode(n) IS NOT NULL THEN n::pg_catalog.oid END \
               FROM pg_catalog.to_regclass($1) AS n";
    let found: Option<Option<u32>> = client.value(sql, &[(&relation.quoted(), Type::TEXT)]).await?;
    Ok(found.flatten() == Some(relation.oid.0))
}

/// Takes the lock of a reader without planning a statement, which would evaluate constants in expressions of indexes and
/// statistics: the server locks what it parses.
pub(super) async fn lock_unplanned(
    client: &Client,
    relation: &str,
) -> Result<(), tokio_postgres::Error> {
    client.prepare_typed(&format!("SELECT FROM ONLY {relation} LIMIT 0"), &[]).await?;
    Ok(())
}

/// Refuses a statement on a relation in the current transaction, if code of its owner would run that is not harmless, or may
/// be added meanwhile because the relation `is_unlocked`.
async fn check(client: &Client, relation: Oid, is_unlocked: bool) -> LiveResult<()> {
    let Some(rights) = lent_rights(client, relation).await? else { return Ok(()) };
    let mut refusals = refusals(client, relation, &[], &[]).await?;
    if is_unlocked {
        refusals.push(UNLOCKED.to_owned());
    }
    if refusals.is_empty() {
        return Ok(());
    }
    Err(LiveError::OwnerCode(refusal(&rights, &refusals, WAYS_OUT)))
}

/// The lock mode in which a transaction begins that may read rows by SQL if [`may_read`] says so.
pub(crate) async fn lock_mode(connection: &Connection, relation: Oid) -> LiveResult<&'static str> {
    let lock = lock(connection, relation).await?;
    let holds_off = lock.is_some_and(|lock| lock.may_hold_off && !lock.is_busy);
    Ok(if holds_off { SHARE_UPDATE_EXCLUSIVE } else { ACCESS_SHARE })
}

/// Whether a statement on the relation may be sent in the current transaction, which locked it in this mode before it took
/// its snapshot.
pub(crate) async fn may_read(
    connection: &Connection,
    relation: Oid,
    mode: &str,
) -> LiveResult<bool> {
    if connection.session().allows_owner_code {
        return Ok(true);
    }
    let client = connection.client();
    if mode == SHARE_UPDATE_EXCLUSIVE {
        return may_pass(check(client, relation, false).await);
    }
    Ok(lent_rights(client, relation).await?.is_none())
}

/// Holds off what could add code to a relation while a statement is sent in a transaction that did not begin by
/// [`begin_reading`], because it only reads pages: another connection takes the lock for that time, and checks the code as it
/// is then.
#[derive(Debug, Default)]
pub(super) struct LockConnection(Option<Box<Connection>>);

impl LockConnection {
    /// Whether a statement on the relation with this quoted name may be sent on `connection`; afterwards
    /// [`release`](Self::release) must be called.
    pub(super) async fn hold(
        &mut self,
        connection: &Connection,
        relation: &str,
    ) -> LiveResult<bool> {
        if connection.session().allows_owner_code {
            return Ok(true);
        }
        let client = connection.client();
        let oid = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid";
        let oid: Option<u32> = client.value(oid, &[(&relation, Type::TEXT)]).await?.flatten();
        let Some(oid) = oid.map(Oid) else { return Ok(false) };
        for _ in 0..TRIES {
            let Some(lock) = lock_now(client, oid).await? else { return Ok(true) };
            if !lock.may_hold_off || lock.is_held {
                return may_pass(check(client, oid, false).await);
            }
            if !lock.is_busy
                && let Some(held) = self.try_to_hold(connection, relation, oid).await?
            {
                return Ok(held);
            }
            // Another connection of this program may hold it, for a moment.
            tokio::time::sleep(PAUSE / 5).await;
        }
        Ok(false)
    }

    /// `None` if another session has got the lock.
    async fn try_to_hold(
        &mut self,
        connection: &Connection,
        relation: &str,
        oid: Oid,
    ) -> LiveResult<Option<bool>> {
        if self.0.is_none() {
            // A pooler may have no other session.
            let opening = Box::pin(connection.open_another());
            let opened = tokio::time::timeout(PATIENCE, opening).await;
            self.0 = opened.ok().and_then(Result::ok).map(Box::new);
        }
        let Some(other) = &self.0 else { return Ok(Some(false)) };
        let held = async {
            other.begin("READ ONLY").await?;
            let sql = format!("LOCK TABLE ONLY {relation} IN {SHARE_UPDATE_EXCLUSIVE}");
            other.client().batch_execute(&sql).await?;
            check(other.client(), oid, false).await
        };
        let held = held.await;
        if held.is_err() {
            self.release().await;
        }
        match held {
            Err(error) if error.is_locked() => Ok(None),
            held => Ok(Some(held.is_ok())),
        }
    }

    pub(super) async fn release(&mut self) {
        if let Some(other) = &self.0
            && snapshot::abandon(other.client()).await.is_err()
        {
            // The server has ended the session, and its lock with it.
            self.0 = None;
        }
    }
}

fn may_pass(checked: LiveResult<()>) -> LiveResult<bool> {
    match checked {
        Err(LiveError::OwnerCode(_)) => Ok(false),
        checked => checked.map(|()| true),
    }
}
