//! The statements that find entries of old row versions in btree indexes (pure).
//!
//! An index scan that fetches a row version which nobody can see any more marks the entry that led there
//! (`_bt_killitems` in nbtutils.c), and an insertion into a full leaf removes what is marked before it splits the
//! leaf (`_bt_delete_or_dedup_one_page` in nbtinsert.c). So the keys of rows that have moved are looked for once
//! more, in transactions that come after: index by index, each row's key in its newest version.
//!
//! Only btree indexes are looked up. GiST marks entries too (`gistkillitems`, `gistprunepage`): where all of 38,000 rows
//! moved in batches of 30, an index of points grew by 24 % in place of 97 %; but for its operators the planner does not
//! know how many rows have a key, and looking where many have it costs more than it gives: without it, one grew by 18 %
//! where a fifth of 24,000 rows moved. A hash index (`_hash_kill_items`, `_hash_vacuum_one_page`) grew by 98 % in place of
//! 149 %, since it splits buckets by the number of entries, dead ones too, and by nothing where a fifth of the
//! rows moved. The others mark nothing: GIN, SP-GiST and BRIN leave it to VACUUM, and grew by 5, 0 and 0 % there.

use std::fmt::Write;

/// The keys of one row that are looked at where more rows may have them.
const MOST_OF_A_KEY: u32 = 100;

/// A btree index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Btree {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) unique: bool,
    /// Its key columns or expressions, and the operator by which keys are equal.
    pub(crate) keys: Vec<(String, String)>,
    /// Of a partial index.
    pub(crate) predicate: Option<String>,
}

/// The btree indexes of the table `$1`: number, name, whether they are unique, keys, their operators, predicate.
pub(crate) const BTREES: &str = "SELECT i.indexrelid, c.relname::pg_catalog.text, i.indisunique, \
     ARRAY(SELECT pg_catalog.pg_get_indexdef(i.indexrelid, k, false) \
       FROM pg_catalog.generate_series(1, i.indnkeyatts::pg_catalog.int4) AS k ORDER BY k), \
     ARRAY(SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) \
       FROM pg_catalog.generate_series(1, i.indnkeyatts::pg_catalog.int4) AS k \
       JOIN pg_catalog.pg_opclass AS f ON f.oid = i.indclass[k - 1] \
       JOIN pg_catalog.pg_amop AS a ON a.amopfamily = f.opcfamily AND a.amopstrategy = 3 \
         AND a.amoppurpose = 's' AND a.amoplefttype = f.opcintype AND a.amoprighttype = f.opcintype \
       JOIN pg_catalog.pg_operator AS o ON o.oid = a.amopopr \
       JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace ORDER BY k), \
     pg_catalog.pg_get_expr(i.indpred, i.indrelid) \
     FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
     JOIN pg_catalog.pg_am AS m ON m.oid = c.relam \
     WHERE i.indrelid = $1 AND m.amname = 'btree' AND i.indisvalid ORDER BY i.indexrelid";

/// Whether an index of the table `$1` is made of one of the columns `$2`: no update of them is HOT.
pub(crate) const ANY_COVERED: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_index AS i \
     WHERE i.indrelid = $1 AND (EXISTS (SELECT FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) AS k \
       WHERE k = ANY ($2)) \
     OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
       WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = i.indexrelid \
       AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.indrelid \
       AND d.refobjsubid = ANY ($2))))";

/// How the addresses of rows are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// As the parameter `$1`.
    Parameter,
    /// As some address, for a plan to be looked at.
    Any,
}

/// Looks for the keys of the rows at some addresses in these indexes. The rows themselves are fetched, their large
/// values are not. The planner does not see how many addresses there are, so that one plan is made for all. Without all of the indexes it looks for nothing, since it would read the table.
pub(crate) fn look(table: &str, indexes: &[Btree], addresses: Addresses) -> String {
    let (mut keys, mut looks) = (Vec::new(), Vec::new());
    for (at, index) in indexes.iter().enumerate() {
        let mut equal = Vec::new();
        for (number, (key, operator)) in index.keys.iter().enumerate() {
            keys.push(format!("({key}) AS k{at}_{number}"));
            equal.push(format!("({key}) {operator} toastctl_moved.k{at}_{number}"));
        }
        if let Some(predicate) = &index.predicate {
            equal.push(format!("({predicate})"));
        }
        // a system column is in no index, so that the row is fetched
        let mut rows = format!("SELECT xmax AS x FROM ONLY {table} WHERE {}", equal.join(" AND "));
        if !index.unique {
            // writing to a string cannot fail
            let _ = write!(rows, " LIMIT {MOST_OF_A_KEY}");
        }
        // what may be NULL has to be looked at: PostgreSQL 19 counts the rest in the index alone
        let mut look = format!("(SELECT count(NULLIF(f.x, '0')) FROM ({rows}) AS f)");
        if let Some(predicate) = &index.predicate {
            keys.push(format!("({predicate}) AS p{at}"));
            look = format!("CASE WHEN toastctl_moved.p{at} THEN {look} END");
        }
        looks.push(format!("pg_catalog.sum({look})"));
    }
    let (addresses, all_there) = match addresses {
        Addresses::Any => ("'{\"(0,1)\"}'", String::new()),
        Addresses::Parameter => {
            let oids: Vec<String> = indexes.iter().map(|index| index.oid.to_string()).collect();
            let all_there = format!(
                " AND (SELECT count(*) FROM pg_catalog.pg_index AS i \
                 WHERE i.indexrelid = ANY ('{{{}}}'::pg_catalog.oid[]) AND i.indisvalid) = {}",
                oids.join(","),
                oids.len()
            );
            ("$1", all_there)
        }
    };
    format!(
        "SELECT {} FROM (SELECT {} FROM ONLY {table} \
         WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest({addresses}::pg_catalog.text[]) AS a))\
         {all_there}) AS toastctl_moved",
        looks.join(", "),
        keys.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_looked_for_index_by_index() {
        let key = |key: &str| (key.to_owned(), "OPERATOR(pg_catalog.=)".to_owned());
        let index = |oid, unique, keys, predicate: Option<&str>| Btree {
            oid,
            name: format!("i{oid}"),
            unique,
            keys,
            predicate: predicate.map(str::to_owned),
        };
        let indexes = [
            index(7, true, vec![key("id")], None),
            index(8, false, vec![key("lower(\"n m\")"), key("n")], Some("(n > 3)")),
        ];
        let table = super::super::tests::TABLE;
        insta::assert_snapshot!(look(table, &indexes, Addresses::Parameter), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)), pg_catalog.sum(CASE WHEN toastctl_moved.p1 THEN (SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (lower("n m")) OPERATOR(pg_catalog.=) toastctl_moved.k1_0 AND (n) OPERATOR(pg_catalog.=) toastctl_moved.k1_1 AND ((n > 3)) LIMIT 100) AS f) END) FROM (SELECT (id) AS k0_0, (lower("n m")) AS k1_0, (n) AS k1_1, ((n > 3)) AS p1 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) AND (SELECT count(*) FROM pg_catalog.pg_index AS i WHERE i.indexrelid = ANY ('{7,8}'::pg_catalog.oid[]) AND i.indisvalid) = 2) AS toastctl_moved"##);
        insta::assert_snapshot!(look(table, &indexes[..1], Addresses::Any), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)) FROM (SELECT (id) AS k0_0 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest('{"(0,1)"}'::pg_catalog.text[]) AS a))) AS toastctl_moved"##);
    }
}
