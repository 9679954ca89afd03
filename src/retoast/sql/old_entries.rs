//! The statements that find entries of old row versions in btree indexes (pure).
//!
//! If an index scan fetches a row version that no session can see any more, it marks the index entry as dead
//! (`_bt_killitems` in nbtutils.c). An insertion into a full leaf page first removes marked entries, and splits the
//! page only if that is not enough (`_bt_delete_or_dedup_one_page` in nbtinsert.c). Later transactions therefore look
//! up the keys of rows that have moved: in each index, the key of each row's newest version.
//!
//! If several indexes begin with the same column, the planner chooses the same one for the keys of all of them; of
//! plans with equal cost, that of the newest index. There are therefore several ways to write the lookup ([`Way`]), and
//! the one is used with which the planner chooses the intended index.
//!
//! Only btree indexes are looked up. GiST marks entries too (`gistkillitems`, `gistprunepage`). When all of 38,000 rows
//! moved in batches of 30, an index of points grew by 24 % with lookups and by 97 % without. But the planner cannot
//! estimate how many rows match a GiST operator, and looking up keys that many rows share costs more than it gains;
//! without lookups, an index grew by 18 % when a fifth of 24,000 rows moved. A hash index (`_hash_kill_items`,
//! `_hash_vacuum_one_page`) grew by 98 % with lookups and by 149 % without, because it splits buckets by the number of
//! entries, including dead ones; when a fifth of the rows moved, it did not grow. GIN, SP-GiST and BRIN never mark
//! entries and leave them to VACUUM; they grew by 5, 0 and 0 %.

use std::fmt::Write;

/// The maximum number of rows to fetch for one key, if several rows may have it.
const MOST_OF_A_KEY: u32 = 100;
/// How often a key is repeated in a list. The server looks it up once, but estimates this many lookups, which are
/// cheaper in a smaller index because fewer of its pages must be read.
const REPEATED: usize = 64;

/// How a row's key is looked up in an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// Rows are fetched only if an index-only scan requires it, as it does for rows that were moved. An index that has
    /// all the columns is cheaper than one that has only some.
    alone: bool,
    /// The first key is in a list: of several indexes, the smallest is the cheapest.
    list: bool,
    /// The last key is both ends of a range. The planner estimates that a range matches a fraction of the table, so an
    /// index that begins with this key costs more than one that ends with it, and of large indexes the smallest is the
    /// cheapest.
    range: bool,
}

impl Way {
    /// All ways for an index with this number of keys, the simplest first.
    pub(crate) fn possible(keys: usize) -> Vec<Way> {
        let mut all = Vec::new();
        for range in [false, true] {
            for (alone, list) in [(false, false), (true, false), (true, true), (false, true)] {
                // A key in a list cannot be a range.
                if keys > 1 || !(list && range) {
                    all.push(Way { alone, list, range });
                }
            }
        }
        all
    }
}

/// A btree index whose old entries are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Btree {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) unique: bool,
    /// Its key columns or expressions, and the equality operator of each.
    pub(crate) keys: Vec<(String, String)>,
    /// The operators `<=` and `>=` of its last key.
    pub(crate) bounds: Option<(String, String)>,
    /// The predicate of a partial index.
    pub(crate) predicate: Option<String>,
    pub(crate) way: Way,
}

/// The btree indexes of table `$1`: OID, name, whether it is unique, keys, their equality operators, predicate, and the
/// operators `<=` and `>=` of the last key.
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
     pg_catalog.pg_get_expr(i.indpred, i.indrelid), \
     ARRAY(SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) \
       FROM pg_catalog.pg_opclass AS f \
       JOIN pg_catalog.pg_amop AS a ON a.amopfamily = f.opcfamily AND a.amopstrategy IN (2, 4) \
         AND a.amoppurpose = 's' AND a.amoplefttype = f.opcintype AND a.amoprighttype = f.opcintype \
       JOIN pg_catalog.pg_operator AS o ON o.oid = a.amopopr \
       JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace \
       WHERE f.oid = i.indclass[i.indnkeyatts - 1] ORDER BY a.amopstrategy) \
     FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
     JOIN pg_catalog.pg_am AS m ON m.oid = c.relam \
     WHERE i.indrelid = $1 AND m.amname = 'btree' AND i.indisvalid ORDER BY i.indexrelid";

/// Those of the tables `$1` of which an index contains one of the columns, so that no update of them is HOT. `$2` has the
/// number of a column for each element of `$1`.
pub(crate) const COVERED: &str = "SELECT DISTINCT i.indrelid \
     FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS c (relation, number) \
     JOIN pg_catalog.pg_index AS i ON i.indrelid = c.relation \
     WHERE c.number = ANY (i.indkey::pg_catalog.int2[]) \
     OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
       WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = i.indexrelid \
       AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.indrelid \
       AND d.refobjsubid = c.number)";

/// How the addresses of rows are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    Parameter,
    /// As arbitrary addresses, to examine the plan.
    Any,
}

/// Looks up the keys of the rows at some addresses in these indexes. The rows are fetched, but not their large values.
/// The planner does not see the number of addresses, so one plan serves for any number. If an index no longer exists,
/// nothing is looked up, because the server would read the whole table instead.
pub(crate) fn visit_entries(table: &str, indexes: &[Btree], addresses: Addresses) -> String {
    let mut keys = Vec::new();
    let mut looks = Vec::new();
    for (at, index) in indexes.iter().enumerate() {
        let mut equal = Vec::new();
        for (number, (key, operator)) in index.keys.iter().enumerate() {
            keys.push(format!("({key}) AS k{at}_{number}"));
            let moved = format!("toastctl_moved.k{at}_{number}");
            let is_last = number + 1 == index.keys.len();
            equal.push(match &index.bounds {
                _ if index.way.list && number == 0 => {
                    let list = vec![moved.as_str(); REPEATED].join(", ");
                    format!("({key}) {operator} ANY (ARRAY[{list}])")
                }
                Some((at_most, at_least)) if index.way.range && is_last => {
                    format!("({key}) {at_least} {moved} AND ({key}) {at_most} {moved}")
                }
                _ => format!("({key}) {operator} {moved}"),
            });
        }
        if let Some(predicate) = &index.predicate {
            equal.push(format!("({predicate})"));
        }
        // A system column is in no index, so the row must be fetched.
        let (column, count) =
            if index.way.alone { ("1", "f.x") } else { ("xmax", "NULLIF(f.x, '0')") };
        let equal = equal.join(" AND ");
        let mut rows = format!("SELECT {column} AS x FROM ONLY {table} WHERE {equal}");
        if !index.unique {
            // Writing to a string cannot fail.
            let _ = write!(rows, " LIMIT {MOST_OF_A_KEY}");
        }
        // An expression that may be NULL must be evaluated for each row; for others, PostgreSQL 19 counts in the index
        // alone.
        let mut look = format!("(SELECT count({count}) FROM ({rows}) AS f)");
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
            bounds: Some((
                "OPERATOR(pg_catalog.<=)".to_owned(),
                "OPERATOR(pg_catalog.>=)".to_owned(),
            )),
            predicate: predicate.map(str::to_owned),
            way: Way::default(),
        };
        let indexes = [
            index(7, true, vec![key("id")], None),
            index(8, false, vec![key("lower(\"n m\")"), key("n")], Some("(n > 3)")),
        ];
        let table = super::super::tests::TABLE;
        insta::assert_snapshot!(visit_entries(table, &indexes, Addresses::Parameter), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)), pg_catalog.sum(CASE WHEN toastctl_moved.p1 THEN (SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (lower("n m")) OPERATOR(pg_catalog.=) toastctl_moved.k1_0 AND (n) OPERATOR(pg_catalog.=) toastctl_moved.k1_1 AND ((n > 3)) LIMIT 100) AS f) END) FROM (SELECT (id) AS k0_0, (lower("n m")) AS k1_0, (n) AS k1_1, ((n > 3)) AS p1 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) AND (SELECT count(*) FROM pg_catalog.pg_index AS i WHERE i.indexrelid = ANY ('{7,8}'::pg_catalog.oid[]) AND i.indisvalid) = 2) AS toastctl_moved"##);
        insta::assert_snapshot!(visit_entries(table, &indexes[..1], Addresses::Any), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)) FROM (SELECT (id) AS k0_0 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest('{"(0,1)"}'::pg_catalog.text[]) AS a))) AS toastctl_moved"##);
    }

    #[test]
    fn an_index_is_asked_for_in_several_ways() {
        let index = |way| Btree {
            oid: 7,
            name: "i".to_owned(),
            unique: true,
            keys: vec![("id".to_owned(), "OPERATOR(pg_catalog.=)".to_owned())],
            bounds: Some((
                "OPERATOR(pg_catalog.<=)".to_owned(),
                "OPERATOR(pg_catalog.>=)".to_owned(),
            )),
            predicate: None,
            way,
        };
        let ways = Way::possible(1);
        assert_eq!((ways.len(), Way::possible(2).len()), (6, 8));
        let asks = |way, what: &str| {
            let sql = visit_entries(super::super::tests::TABLE, &[index(way)], Addresses::Any);
            assert!(sql.contains(what), "{what}: {sql}");
        };
        let equal = "(id) OPERATOR(pg_catalog.=)";
        asks(
            ways[0],
            &format!(
                "count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY \"s\".\"T\" WHERE {equal} t"
            ),
        );
        asks(
            ways[1],
            &format!("count(f.x) FROM (SELECT 1 AS x FROM ONLY \"s\".\"T\" WHERE {equal} t"),
        );
        asks(ways[2], &format!("{equal} ANY (ARRAY[toastctl_moved.k0_0, toastctl_moved.k0_0, "));
        let range =
            "(id) OPERATOR(pg_catalog.>=) toastctl_moved.k0_0 AND (id) OPERATOR(pg_catalog.<=) t";
        asks(ways[4], &format!("xmax AS x FROM ONLY \"s\".\"T\" WHERE {range}"));
    }
}
