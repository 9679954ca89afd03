//! The statements that find entries of old row versions in btree indexes (pure).
//!
//! An index scan that fetches a row version which nobody can see any more marks the entry that led there
//! (`_bt_killitems` in nbtutils.c), and an insertion into a full leaf removes what is marked before it splits the
//! leaf (`_bt_delete_or_dedup_one_page` in nbtinsert.c). So the keys of rows that have moved are looked for once
//! more, in transactions that come after: index by index, each row's key in its newest version.
//!
//! Where several indexes begin with the same column the planner takes one of them for the keys of all: of plans that
//! cost the same the newest index's. So there are several ways to ask for a row's keys ([`Way`]), of which the one is taken
//! by which the planner takes the index that is meant.
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
/// How often a key is repeated in a list: the server looks for it once, and counts with as many looks, of which a
/// smaller index has fewer pages to read.
const REPEATED: usize = 64;

/// How a row's keys are looked for in an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// The rows are not fetched where the index alone tells of them, which it does not where rows were moved: an index
    /// that has all the columns costs less than one that has some.
    alone: bool,
    /// The first key is in a list: of several indexes the smallest costs the least.
    list: bool,
    /// The last key is both ends of a range, which the planner takes for a part of the table: an index that begins with it
    /// costs more than one that ends with it, and of large ones the smallest costs the least.
    range: bool,
}

impl Way {
    /// All of them for an index with so many keys, the plainest first.
    pub(crate) fn all(keys: usize) -> Vec<Way> {
        let mut all = Vec::new();
        for range in [false, true] {
            for (alone, list) in [(false, false), (true, false), (true, true), (false, true)] {
                // what is in a list is no range
                if keys > 1 || !(list && range) {
                    all.push(Way { alone, list, range });
                }
            }
        }
        all
    }
}

/// A btree index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Btree {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) unique: bool,
    /// Its key columns or expressions, and the operator by which keys are equal.
    pub(crate) keys: Vec<(String, String)>,
    /// The operators by which its last key is at most, and at least, another.
    pub(crate) bounds: Option<(String, String)>,
    /// Of a partial index.
    pub(crate) predicate: Option<String>,
    pub(crate) way: Way,
}

/// The btree indexes of the table `$1`: number, name, whether they are unique, keys, their operators, predicate, and the
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
        // a system column is in no index, so that the row is fetched
        let (column, count) =
            if index.way.alone { ("1", "f.x") } else { ("xmax", "NULLIF(f.x, '0')") };
        let equal = equal.join(" AND ");
        let mut rows = format!("SELECT {column} AS x FROM ONLY {table} WHERE {equal}");
        if !index.unique {
            // writing to a string cannot fail
            let _ = write!(rows, " LIMIT {MOST_OF_A_KEY}");
        }
        // what may be NULL has to be looked at: PostgreSQL 19 counts the rest in the index alone
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
        insta::assert_snapshot!(look(table, &indexes, Addresses::Parameter), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)), pg_catalog.sum(CASE WHEN toastctl_moved.p1 THEN (SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (lower("n m")) OPERATOR(pg_catalog.=) toastctl_moved.k1_0 AND (n) OPERATOR(pg_catalog.=) toastctl_moved.k1_1 AND ((n > 3)) LIMIT 100) AS f) END) FROM (SELECT (id) AS k0_0, (lower("n m")) AS k1_0, (n) AS k1_1, ((n > 3)) AS p1 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) AND (SELECT count(*) FROM pg_catalog.pg_index AS i WHERE i.indexrelid = ANY ('{7,8}'::pg_catalog.oid[]) AND i.indisvalid) = 2) AS toastctl_moved"##);
        insta::assert_snapshot!(look(table, &indexes[..1], Addresses::Any), @r##"SELECT pg_catalog.sum((SELECT count(NULLIF(f.x, '0')) FROM (SELECT xmax AS x FROM ONLY "s"."T" WHERE (id) OPERATOR(pg_catalog.=) toastctl_moved.k0_0) AS f)) FROM (SELECT (id) AS k0_0 FROM ONLY "s"."T" WHERE ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest('{"(0,1)"}'::pg_catalog.text[]) AS a))) AS toastctl_moved"##);
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
        let ways = Way::all(1);
        assert_eq!((ways.len(), Way::all(2).len()), (6, 8));
        let asks = |way, what: &str| {
            let sql = look(super::super::tests::TABLE, &[index(way)], Addresses::Any);
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
