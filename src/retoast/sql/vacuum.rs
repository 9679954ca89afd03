//! The VACUUM statements of a sweep (pure). None of them truncates files, which would require an exclusive lock.
//!
//! By default, VACUUM skips the indexes if fewer than 2 % of the pages have dead line pointers
//! (`BYPASS_THRESHOLD_PAGES`, vacuumlazy.c). It then does not record the free space on these pages in the free space
//! map, so new rows would extend the file, by about as much as one vacuum removes.
//!
//! With 48,000 rows of 800 bytes, each with three values of 3.5 kB out of line, and six indexes, all files together
//! grow by 4.2 % with a vacuum of the table for each 5 %. They grow by 1.3 % with a vacuum of the TOAST relation for
//! each 1 % in addition. That takes 10 % more time with these indexes, 20 % more with only a primary key, and no more
//! for narrow rows with a single value. The heap, 6 % of the total, grows by 9 % in either case, because redirected
//! line pointers leave no room for an eleventh row on a page.

use crate::server::toasters::TOAST_RELATIONS;

/// If less than this fraction of a table may be dead, VACUUM is forced to clean up indexes.
const LITTLE: f64 = 0.04;

/// Makes the space of old row versions in the table and its TOAST relation reusable; `part` is the fraction of both
/// that may be dead.
pub(crate) fn table(table: &str, part: f64) -> String {
    let cleanup = if part < LITTLE { ", INDEX_CLEANUP on" } else { "" };
    format!("VACUUM (TRUNCATE false{cleanup}) {table}")
}

/// Like [`table`], but without the TOAST relation.
pub(crate) fn without_toast(table: &str, part: f64) -> String {
    let cleanup = if part < LITTLE { ", INDEX_CLEANUP on" } else { "" };
    format!("VACUUM (PROCESS_TOAST false, TRUNCATE false{cleanup}) {table}")
}

/// The first server version that can vacuum only a table's TOAST relation by the name of the table.
pub(crate) const PROCESS_MAIN: i32 = 160_000;

/// Like [`table`], but only for the TOAST relation of the table; requires [`PROCESS_MAIN`].
pub(crate) fn toast_of(table: &str) -> String {
    format!("VACUUM (PROCESS_MAIN false, TRUNCATE false, INDEX_CLEANUP on) {table}")
}

/// Like [`table`], but for the TOAST relations returned by [`names`].
pub(crate) fn toast(names: &str) -> String {
    format!("VACUUM (TRUNCATE false, INDEX_CLEANUP on) {names}")
}

/// The TOAST relations of each of the tables `$1`, quoted, whether this user may name them, and the table.
pub(crate) fn names() -> String {
    format!(
        "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.nspname) || '.' \
                || pg_catalog.quote_ident(r.relname), ', '), \
                coalesce(pg_catalog.bool_and(pg_catalog.has_schema_privilege(n.oid, 'USAGE')), false), c.oid \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_class AS r ON r.oid = ANY ({TOAST_RELATIONS}) \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace WHERE c.oid = ANY ($1) GROUP BY c.oid"
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
