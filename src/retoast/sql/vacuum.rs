//! The statements that vacuum on the way (pure). None gives space back to the system, which would take an exclusive
//! lock.
//!
//! By itself VACUUM passes over the indexes where fewer than 2 % of the pages have dead line pointers
//! (`BYPASS_THRESHOLD_PAGES`, vacuumlazy.c), and does not tell the free space map of the room there: the next rows would
//! make the file longer. It grows by about as much as one vacuum removes.
//!
//! With 48,000 rows of 800 bytes, three values of 3.5 kB out of line each, and six indexes, all files together grow by
//! 4.2 % with a vacuum of the table for each 5 %, and by 1.3 % with one of the TOAST relation for each 1 % besides, which
//! takes a tenth more time there, a fifth more with the primary key alone, and none on narrow rows with one value each. The
//! heap itself, 6 % of all, grows by 9 % in any case: redirected line pointers leave no room for an eleventh row on a page.

use crate::server::toasters::TOAST_RELATIONS;

/// Less than this part of a table is vacuumed with its indexes in any case.
const LITTLE: f64 = 0.04;

/// Makes the space of old versions usable again, of the table and its TOAST relation, where this part of both may be
/// dead in the latter.
pub(crate) fn table(table: &str, part: f64) -> String {
    let cleanup = if part < LITTLE { ", INDEX_CLEANUP on" } else { "" };
    format!("VACUUM (TRUNCATE false{cleanup}) {table}")
}

/// As [`table`], without the TOAST relation.
pub(crate) fn without_toast(table: &str, part: f64) -> String {
    let cleanup = if part < LITTLE { ", INDEX_CLEANUP on" } else { "" };
    format!("VACUUM (PROCESS_TOAST false, TRUNCATE false{cleanup}) {table}")
}

/// The first version with which a table's TOAST relation is vacuumed alone by the table's name.
pub(crate) const PROCESS_MAIN: i32 = 160_000;

/// As [`table`], of the table's TOAST relation alone, from [`PROCESS_MAIN`] on.
pub(crate) fn toast_of(table: &str) -> String {
    format!("VACUUM (PROCESS_MAIN false, TRUNCATE false, INDEX_CLEANUP on) {table}")
}

/// As [`table`], of TOAST relations that [`names`] gives.
pub(crate) fn toast(names: &str) -> String {
    format!("VACUUM (TRUNCATE false, INDEX_CLEANUP on) {names}")
}

/// The TOAST relations of the table `$1`, quoted, and whether this user may name them.
pub(crate) fn names() -> String {
    format!(
        "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.nspname) || '.' \
                || pg_catalog.quote_ident(r.relname), ', '), \
                coalesce(pg_catalog.bool_and(pg_catalog.has_schema_privilege(n.oid, 'USAGE')), false) \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_class AS r ON r.oid = ANY ({TOAST_RELATIONS}) \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace WHERE c.oid = $1"
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::TABLE;
    use super::*;

    #[test]
    fn vacuum_gives_nothing_back() {
        insta::assert_snapshot!(table(TABLE, 0.05), @r##"VACUUM (TRUNCATE false) "s"."T""##);
        insta::assert_snapshot!(table(TABLE, 0.016), @r##"VACUUM (TRUNCATE false, INDEX_CLEANUP on) "s"."T""##);
        insta::assert_snapshot!(without_toast(TABLE, 0.05), @r##"VACUUM (PROCESS_TOAST false, TRUNCATE false) "s"."T""##);
        insta::assert_snapshot!(toast_of(TABLE), @r##"VACUUM (PROCESS_MAIN false, TRUNCATE false, INDEX_CLEANUP on) "s"."T""##);
        insta::assert_snapshot!(toast("pg_toast.pg_toast_1"), @"VACUUM (TRUNCATE false, INDEX_CLEANUP on) pg_toast.pg_toast_1");
    }
}
