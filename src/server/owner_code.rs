//! Code of other roles that an `UPDATE` of a table runs with the privileges of the current user: expressions and
//! predicates of indexes, checks of the table and of domains, generated columns, statistics, triggers, policies,
//! partition keys, and the functions that their operators and operator classes call.
//!
//! The server protects its own maintenance commands from such code (CVE-2020-25695) by a security context that clients
//! cannot set; `SET ROLE` can be undone from inside a function.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::connect::Client;
use super::{LiveError, numbers};
use toast_format::disk::Oid;

/// A function or domain whose owner lacks privileges of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The function with its argument types; for a domain, `domain` and its name.
    pub(crate) function: String,
    pub(crate) owner: String,
    /// What calls the function.
    pub(crate) place: String,
}

/// The privileges of the user compared with those of the table's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) user: String,
    /// The table's owner.
    pub(crate) owner: String,
    /// Whether the user has privileges that the owner does not have.
    pub(crate) lent: bool,
    /// Whether the user is not the owner but may act as the owner, and the owner has the required privileges.
    pub(crate) may_be_owner: bool,
}

/// Roles that only allow seeing more do not count as additional privileges, because this program itself recommends
/// them.
const RIGHTS: &str = "SELECT me.rolname::pg_catalog.text, o.rolname::pg_catalog.text, \
    me.oid <> o.oid AND NOT o.rolsuper AND NOT pg_catalog.pg_has_role(o.oid, me.oid, 'USAGE') AND (\
      me.rolsuper OR NOT pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER') \
      OR me.rolcreaterole AND NOT o.rolcreaterole OR me.rolcreatedb AND NOT o.rolcreatedb \
      OR me.rolreplication AND NOT o.rolreplication OR me.rolbypassrls AND NOT o.rolbypassrls \
      OR EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid <> me.oid \
        AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER') \
        AND NOT pg_catalog.pg_has_role(o.oid, r.oid, 'MEMBER') \
        AND r.rolname NOT IN ('pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', \
          'pg_stat_scan_tables'))), \
    me.oid <> o.oid AND NOT o.rolsuper AND CASE \
      WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 < 160000 \
      THEN pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER') \
      ELSE pg_catalog.pg_has_role(me.oid, o.oid, 'SET') END \
      AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND NOT o.rolbypassrls) \
      AND pg_catalog.has_schema_privilege(o.oid, c.relnamespace, 'USAGE') \
      AND pg_catalog.has_table_privilege(o.oid, c.oid, 'SELECT') \
      AND pg_catalog.has_table_privilege(o.oid, c.oid, 'UPDATE'), c.oid \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner, \
      pg_catalog.pg_roles AS me WHERE c.oid = ANY ($1) AND me.rolname = current_user";

/// The functions, with what calls them. `$1` is the table, `$2` whether ordinary triggers are disabled, `$3` whether
/// policies are applied, `$4` the columns whose values are coerced to their domains.
///
/// A function of the catalog is harmless if it is immutable and not written in SQL, or if all its argument and result
/// types are in the catalog. Other functions of the catalog may run queries given as text (these functions are
/// volatile), views (`table_to_xml`), or casts, input functions and checks of the given types (`to_jsonb`, `domain_in`,
/// `||` of a text and any type), apart from a few that are listed. A function outside the catalog is harmless if its
/// owner has all privileges of the user. For domains to which values are coerced, the owner of the domain counts: that
/// role can add a check at any time, and no lock of the table prevents this.
const FOREIGN: &str = r"WITH RECURSIVE tree (oid) AS (
      SELECT $1::pg_catalog.oid UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors($1) AS a),
    own (place, code) AS (
      SELECT pg_catalog.format('index %I', c.relname),
        pg_catalog.concat(i.indexprs::pg_catalog.text, i.indpred::pg_catalog.text)
      FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
      WHERE i.indrelid = $1
      UNION ALL SELECT pg_catalog.format('constraint %I', conname), conbin::pg_catalog.text
      FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND conbin IS NOT NULL
      UNION ALL SELECT pg_catalog.format('generated column %I', a.attname), d.adbin::pg_catalog.text
      FROM pg_catalog.pg_attrdef AS d JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid = d.adrelid AND a.attnum = d.adnum
      WHERE d.adrelid = $1 AND a.attgenerated <> ''
      UNION ALL SELECT pg_catalog.format('statistics %I', stxname), stxexprs::pg_catalog.text
      FROM pg_catalog.pg_statistic_ext WHERE stxrelid = $1 AND stxexprs IS NOT NULL
      UNION ALL SELECT pg_catalog.format('trigger %I', tgname), tgqual::pg_catalog.text
      FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND tgqual IS NOT NULL
      UNION ALL SELECT pg_catalog.format('policy %I', polname),
        pg_catalog.concat(polqual::pg_catalog.text, polwithcheck::pg_catalog.text)
      FROM pg_catalog.pg_policy WHERE polrelid = $1 AND $3
      UNION ALL SELECT pg_catalog.format('partition key of %s', partrelid::pg_catalog.regclass),
        partexprs::pg_catalog.text
      FROM pg_catalog.pg_partitioned_table WHERE partrelid IN (SELECT oid FROM tree)
        AND partexprs IS NOT NULL),
    types (oid) AS (
      (SELECT atttypid FROM pg_catalog.pg_attribute
       WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
       UNION SELECT m[1]::pg_catalog.oid
       FROM own, pg_catalog.regexp_matches(code, ':[a-z]*type ([0-9]+)', 'g') AS m)
      UNION SELECT x.oid FROM types AS t JOIN pg_catalog.pg_type AS y ON y.oid = t.oid
      CROSS JOIN LATERAL (
        SELECT y.typbasetype UNION ALL SELECT y.typelem
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
        WHERE y.typrelid <> 0 AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE r.rngtypid = y.oid
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = y.oid
        UNION ALL SELECT m[1]::pg_catalog.oid FROM pg_catalog.pg_constraint AS k,
          pg_catalog.regexp_matches(k.conbin::pg_catalog.text, ':[a-z]*type ([0-9]+)', 'g') AS m
        WHERE k.contypid = y.oid) AS x (oid) WHERE x.oid <> 0),
    code (place, code) AS (
      SELECT place, code FROM own
      UNION ALL SELECT pg_catalog.format('domain %s', contypid::pg_catalog.regtype),
        conbin::pg_catalog.text
      FROM pg_catalog.pg_constraint WHERE contypid <> 0 AND contypid IN (SELECT oid FROM types)
        AND conbin IS NOT NULL),
    guards (place, oid) AS (
      SELECT place, m[1]::pg_catalog.oid FROM own,
        pg_catalog.regexp_matches(code, ':[a-z]*(?:resulttype|casttype) ([0-9]+)', 'g') AS m
      UNION SELECT pg_catalog.format('column %I', attname), atttypid FROM pg_catalog.pg_attribute
      WHERE attrelid = $1 AND attnum = ANY ($4) AND NOT attisdropped
      UNION SELECT g.place, x.oid FROM guards AS g JOIN pg_catalog.pg_type AS y ON y.oid = g.oid
      CROSS JOIN LATERAL (
        SELECT y.typbasetype UNION ALL SELECT y.typelem
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
        WHERE y.typrelid <> 0 AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE r.rngtypid = y.oid
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = y.oid) AS x (oid)
      WHERE x.oid <> 0),
    classes (place, class) AS (
      SELECT pg_catalog.format('index %I', c.relname), k.class
      FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid,
        pg_catalog.unnest(i.indclass::pg_catalog.oid[]) AS k (class) WHERE i.indrelid = $1
      UNION ALL SELECT 'partition key', k.class FROM pg_catalog.pg_partitioned_table AS p,
        pg_catalog.unnest(p.partclass::pg_catalog.oid[]) AS k (class)
      WHERE p.partrelid IN (SELECT oid FROM tree)),
    operators (place, oid) AS (
      SELECT place, m[1]::pg_catalog.oid FROM code,
        pg_catalog.regexp_matches(code, ':opno ([0-9]+)', 'g') AS m
      UNION SELECT place, n::pg_catalog.oid FROM code,
        pg_catalog.regexp_matches(code, ':opnos \(o ([0-9 ]+)\)', 'g') AS m,
        pg_catalog.regexp_split_to_table(pg_catalog.btrim(m[1]), ' +') AS n
      UNION SELECT pg_catalog.format('constraint %I', k.conname), o
      FROM pg_catalog.pg_constraint AS k, pg_catalog.unnest(k.conexclop) AS o WHERE k.conrelid = $1
      UNION SELECT c.place, a.amopopr FROM classes AS c
      JOIN pg_catalog.pg_opclass AS o ON o.oid = c.class
      JOIN pg_catalog.pg_amop AS a ON a.amopfamily = o.opcfamily),
    functions (place, oid) AS (
      SELECT place, m[1]::pg_catalog.oid FROM code, pg_catalog.regexp_matches(code,
        ':(?:funcid|opfuncid|hashfuncid|negfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g') AS m
      UNION SELECT p.place, o.oprcode::pg_catalog.oid FROM operators AS p
      JOIN pg_catalog.pg_operator AS o ON o.oid = p.oid
      UNION SELECT c.place, a.amproc::pg_catalog.oid FROM classes AS c
      JOIN pg_catalog.pg_opclass AS o ON o.oid = c.class
      JOIN pg_catalog.pg_amproc AS a ON a.amprocfamily = o.opcfamily
      UNION SELECT pg_catalog.format('type %s', r.rngtypid::pg_catalog.regtype), f::pg_catalog.oid
      FROM pg_catalog.pg_range AS r,
        pg_catalog.unnest(ARRAY[r.rngsubdiff, r.rngcanonical]) AS f
      WHERE r.rngtypid IN (SELECT oid FROM types)
      UNION SELECT pg_catalog.format('trigger %I', tgname), tgfoid FROM pg_catalog.pg_trigger
      WHERE tgrelid = $1 AND tgtype & 16 <> 0
        AND (tgenabled = 'A' OR tgenabled = CASE WHEN $2 THEN 'R' ELSE 'O' END)),
    trusted (oid) AS (
      SELECT r.oid FROM pg_catalog.pg_roles AS r, pg_catalog.pg_roles AS me WHERE me.rolname = current_user
        AND (r.rolsuper OR NOT me.rolsuper AND pg_catalog.pg_has_role(r.oid, me.oid, 'USAGE')))
    SELECT p.oid::pg_catalog.regprocedure::pg_catalog.text, o.rolname::pg_catalog.text, f.place
    FROM functions AS f JOIN pg_catalog.pg_proc AS p ON p.oid = f.oid
    JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
    JOIN pg_catalog.pg_roles AS o ON o.oid = p.proowner
    WHERE CASE WHEN p.oid < 16384
      THEN p.prorettype <> 'pg_catalog.trigger'::pg_catalog.regtype AND CASE p.provolatile
          WHEN 'v' THEN p.proname NOT IN ('random', 'random_normal', 'clock_timestamp', 'timeofday',
            'gen_random_uuid', 'uuidv4', 'uuidv7', 'nextval', 'currval', 'lastval')
          ELSE p.proname ~ '_to_xml|^pg_input_' OR (p.provolatile = 's' OR l.lanname = 'sql')
            AND p.proname NOT IN ('array_to_string', 'concat', 'concat_ws', 'format', 'quote_literal',
              'quote_nullable', 'pg_typeof', 'pg_column_size', 'pg_column_compression', 'enum_first',
              'enum_last', 'enum_range')
            AND EXISTS (SELECT FROM pg_catalog.unnest(p.proargtypes::pg_catalog.oid[] || p.prorettype)
                AS a (oid) JOIN pg_catalog.pg_type AS t ON t.oid = a.oid WHERE t.typtype = 'p') END
      ELSE p.proowner NOT IN (SELECT oid FROM trusted) END
    UNION SELECT pg_catalog.concat('domain ', t.oid::pg_catalog.regtype), o.rolname::pg_catalog.text, g.place
    FROM guards AS g JOIN pg_catalog.pg_type AS t ON t.oid = g.oid AND t.typtype = 'd'
    JOIN pg_catalog.pg_roles AS o ON o.oid = t.typowner
    WHERE t.typowner NOT IN (SELECT oid FROM trusted)
    UNION SELECT CASE WHEN c.code ~ '[{]SUBLINK' THEN 'a subquery' ELSE 'an SQL/JSON expression' END,
      pg_catalog.pg_get_userbyid(r.relowner)::pg_catalog.text, c.place
    FROM code AS c JOIN pg_catalog.pg_class AS r ON r.oid = $1
    WHERE c.code ~ '[{](SUBLINK|JSONEXPR|JSONCONSTRUCTOREXPR)'
    ORDER BY 3, 1";

/// The privileges of the user and the owner of each table; tables that were dropped are missing.
pub(crate) async fn rights(
    client: &Client,
    tables: &[Oid],
) -> Result<HashMap<Oid, Rights>, LiveError> {
    let rows = client.query_typed(RIGHTS, &[(&numbers(tables), Type::OID_ARRAY)]).await?;
    let rights = |row: &tokio_postgres::Row| {
        let rights = Rights {
            user: row.try_get(0)?,
            owner: row.try_get(1)?,
            lent: row.try_get(2)?,
            may_be_owner: row.try_get(3)?,
        };
        Ok((Oid(row.try_get(4)?), rights))
    };
    rows.iter().map(rights).collect()
}

/// The functions that an `UPDATE` may call and whose owners lack privileges of the user. `silent_triggers`: ordinary
/// triggers will not fire; `policies`: row security applies to the user; `coerced`: `attnum` of the columns whose
/// values are coerced to the domains of their types.
pub(crate) async fn foreign(
    client: &Client,
    table: Oid,
    silent_triggers: bool,
    policies: bool,
    coerced: &[i16],
) -> Result<Vec<Foreign>, LiveError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
        (&table.0, Type::OID),
        (&silent_triggers, Type::BOOL),
        (&policies, Type::BOOL),
        (&coerced, Type::INT2_ARRAY),
    ];
    let rows = client.query_typed(FOREIGN, &parameters).await?;
    rows.iter()
        .map(|row| {
            Ok(Foreign {
                function: row.try_get(0)?,
                owner: row.try_get(1)?,
                place: row.try_get(2)?,
            })
        })
        .collect()
}
