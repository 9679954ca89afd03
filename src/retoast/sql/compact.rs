//! The statements of a compaction (pure).

use std::fmt::Write;
use std::ops::Range;

use super::{GIVES, IN_RANGE, Target, bases, update_unlocked};
use crate::server::toasters::TOAST_RELATIONS;
use toast_format::model::sql::{in_blocks, quote_identifier, quote_literal};

/// The first temporary table for values that have another form than the columns' settings would give them.
const COPIES: &str = "toastctl_compact";
/// The number of value columns in such a table: this many pointers and the address always fit on a page. No table has
/// more than 1,600 columns, so there are at most four such tables.
const COPIED: usize = 400;

/// A VACUUM during a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vacuum {
    /// Removes dead rows, and truncates the file if it gets the lock (VACUUM itself tries for it without queueing).
    /// Dead line pointers would prevent truncation, so index cleanup is forced.
    Shrink,
    /// Removes dead rows and their index entries.
    Tidy,
    /// Vacuums the table without its TOAST relation: free space at the end of the TOAST relation must not be reused.
    Rows,
}

impl Vacuum {
    pub(crate) fn statement(self, table: &str) -> String {
        let options = match self {
            Vacuum::Shrink => "INDEX_CLEANUP on, TRUNCATE true",
            Vacuum::Tidy => "INDEX_CLEANUP on, TRUNCATE false",
            Vacuum::Rows => "TRUNCATE false, PROCESS_TOAST false",
        };
        format!("VACUUM ({options}) {table}")
    }
}

/// The server's time, as text.
pub(crate) const NOW: &str = "SELECT pg_catalog.clock_timestamp()::pg_catalog.text";

/// What a VACUUM of table `$1` that began at `$2` has left, by the statistics: the number of relations that have them,
/// the bytes of dead row versions that could not be removed, and all bytes.
pub(crate) fn left_dead() -> String {
    format!(
        "SELECT count(*), \
            coalesce(sum(s.bytes * s.dead / greatest(s.dead + s.live, 1)), 0)::pg_catalog.float8, \
            coalesce(sum(s.bytes), 0)::pg_catalog.float8 \
         FROM (SELECT pg_catalog.pg_stat_get_dead_tuples(r.oid) AS dead, \
                   pg_catalog.pg_stat_get_live_tuples(r.oid) AS live, \
                   greatest(r.relpages, 1) * pg_catalog.current_setting('block_size')::pg_catalog.float8 AS bytes \
               FROM pg_catalog.pg_class AS c \
               JOIN pg_catalog.pg_class AS r ON r.oid = ANY (c.oid || {TOAST_RELATIONS}) \
               WHERE c.oid = $1 \
                 AND coalesce(pg_catalog.pg_stat_get_last_vacuum_time(r.oid), '-infinity') \
                   >= $2::pg_catalog.timestamptz) AS s"
    )
}

/// The block of a row of a table with the alias `t`.
const BLOCK: &str = "(t.ctid::pg_catalog.text::pg_catalog.point)[0]::pg_catalog.int8";

/// The next transaction ID.
pub(crate) const NEXT_TRANSACTION: &str = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.xid::pg_catalog.text";

/// Whether a row of a table with the alias `t` was written by this transaction or a later one.
fn is_recent(since: &str) -> String {
    format!(
        "pg_catalog.age(t.xmin) BETWEEN 0 AND pg_catalog.age({}::pg_catalog.xid)",
        quote_literal(since)
    )
}

/// The contents of these blocks of a TOAST relation: block, bytes of a chunk's datum, number of chunks of that size.
pub(crate) fn chunks(toast: &str, blocks: &Range<u32>) -> String {
    format!(
        "SELECT {BLOCK}, pg_catalog.pg_column_size(t.chunk_data), count(*) FROM {toast} AS t WHERE {} \
         GROUP BY 1, 2",
        in_blocks(blocks)
    )
}

/// The values that have chunks in these blocks of a TOAST relation, each with its last block, the transaction that
/// stored it, and the bytes of these chunks; with `since` also whether it was stored by that transaction or a later
/// one.
pub(crate) fn values(toast: &str, blocks: &Range<u32>, since: Option<&str>) -> String {
    let recent = since.map(|since| format!(", pg_catalog.bool_or({})", is_recent(since)));
    format!(
        "SELECT t.chunk_id, max({BLOCK}), max(t.xmin::pg_catalog.text), \
         sum(pg_catalog.pg_column_size(t.chunk_data))::pg_catalog.int8{} FROM {toast} AS t WHERE {} GROUP BY 1",
        recent.unwrap_or_default(),
        in_blocks(blocks)
    )
}

/// The rows in these blocks: address, and for each column the value's ID in the TOAST relation and its compression
/// method (from PostgreSQL 17).
pub(crate) fn owners(table: &str, targets: &[Target], blocks: &Range<u32>) -> String {
    let columns: Vec<String> = targets.iter().map(Target::column).collect();
    let ids = columns.iter().map(|column| format!("pg_catalog.pg_column_toast_chunk_id({column})"));
    let methods =
        columns.iter().map(|column| format!("pg_catalog.pg_column_compression({column})"));
    format!(
        "SELECT t.ctid::pg_catalog.text, ARRAY[{}]::pg_catalog.oid[], ARRAY[{}]::pg_catalog.text[] \
         FROM ONLY {table} AS t WHERE {}",
        ids.collect::<Vec<_>>().join(", "),
        methods.collect::<Vec<_>>().join(", "),
        in_blocks(blocks)
    )
}

/// The number of rows by block, and by the transaction that wrote them if it is not older than `since`.
pub(crate) fn rows_by_block(table: &str, blocks: &Range<u32>, since: &str) -> String {
    format!(
        "SELECT {BLOCK}, count(*), CASE WHEN {} THEN t.xmin::pg_catalog.text END \
         FROM ONLY {table} AS t WHERE {} GROUP BY 1, 3",
        is_recent(since),
        in_blocks(blocks)
    )
}

/// The addresses in a parameter, as an array that is computed only once.
fn addresses(parameter: usize) -> String {
    format!(
        "ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest(${parameter}::pg_catalog.text[]) AS a)"
    )
}

/// The columns to set, each with the number of the parameter that has the addresses of its rows.
fn set(targets: &[Target]) -> impl Iterator<Item = (usize, &Target)> {
    targets.iter().filter(|target| target.base.is_none()).enumerate().map(|(at, t)| (at + 2, t))
}

/// The number of parameters of [`move_values`] and [`move_copies`].
pub(crate) fn parameters(targets: &[Target]) -> usize {
    1 + set(targets).count()
}

/// Stores values again in those rows of `$1` that no other session has locked: for each column, in the rows listed in
/// its own parameter (`$2`, `$3`, …). Like the UPDATE of a sweep, it finds no row if the transaction did not begin as
/// required, and returns the number of rows, the transaction, and the new addresses. `touch` is a column to set if no
/// other must be set.
pub(crate) fn move_values(table: &str, targets: &[Target], touch: &str) -> String {
    let mut assign = bases(targets);
    for (parameter, target) in set(targets) {
        let column = target.column();
        assign.push(format!(
            "{} = CASE WHEN t.ctid = ANY ({}) THEN {} ELSE {column} END",
            quote_identifier(&target.name),
            addresses(parameter),
            target.shape.force(&column)
        ));
    }
    if assign.is_empty() {
        assign.push(format!("{0} = t.{0}", quote_identifier(touch)));
    }
    update_unlocked(table, &assign.join(", "), &format!("l.ctid = ANY ({})", addresses(1)))
}

/// The name of a temporary table for copies, by its number from 0.
fn copies(number: usize) -> String {
    if number == 0 { COPIES.to_owned() } else { format!("{COPIES}_{}", number + 1) }
}

/// The columns whose values are copied, for each temporary table.
fn copied(targets: &[Target]) -> Vec<Vec<(usize, &Target)>> {
    let all: Vec<_> = set(targets).collect();
    all.chunks(COPIED).map(<[_]>::to_vec).collect()
}

/// Creates the temporary tables for values that keep a form which the columns' settings would not give them. These
/// tables compress nothing and accept compressed values as they are. `role`: the role that batches are run as, if it is
/// not the user.
pub(crate) fn make_copies(table: &str, targets: &[Target], role: Option<&str>) -> String {
    let mut make = drop_copies(targets);
    for (number, part) in copied(targets).into_iter().enumerate() {
        let name = copies(number);
        let mut columns = String::new();
        let mut plain = Vec::new();
        for (number, target) in part {
            // Writing to a string cannot fail.
            let _ = write!(columns, ", {} AS v{number}", target.column());
            plain.push(format!("ALTER COLUMN v{number} SET STORAGE external"));
        }
        let _ = write!(
            make,
            "; CREATE TEMPORARY TABLE {name} AS SELECT t.ctid AS k{columns} FROM ONLY {table} AS t WITH NO DATA; \
             ALTER TABLE pg_temp.{name} {}",
            plain.join(", ")
        );
        if let Some(role) = role {
            let _ = write!(make, "; GRANT ALL ON pg_temp.{name} TO {}", quote_identifier(role));
        }
    }
    make
}

pub(crate) fn each_copy(targets: &[Target]) -> String {
    let names = (0..copied(targets).len()).map(|number| format!("pg_temp.{}", copies(number)));
    names.collect::<Vec<_>>().join(", ")
}

/// Drops the temporary tables.
pub(crate) fn drop_copies(targets: &[Target]) -> String {
    format!("DROP TABLE IF EXISTS {}", each_copy(targets))
}

/// Copies the values of locked rows, with the parameters of [`move_values`]: one statement for each temporary table.
pub(crate) fn fill_copies(table: &str, targets: &[Target]) -> Vec<String> {
    let mut statements = Vec::new();
    for (number, part) in copied(targets).into_iter().enumerate() {
        let mut values = String::new();
        for (parameter, target) in part {
            let _ = write!(
                values,
                ", CASE WHEN t.ctid = ANY ({}) THEN {} END",
                addresses(parameter),
                target.column()
            );
        }
        statements.push(format!(
            "INSERT INTO pg_temp.{} SELECT t.ctid{values} FROM ONLY {table} AS t WHERE t.ctid = ANY ({})",
            copies(number),
            addresses(1)
        ));
    }
    statements
}

/// Like [`move_values`], but stores the values from the temporary tables.
pub(crate) fn move_copies(table: &str, targets: &[Target]) -> String {
    let mut assign = bases(targets);
    let mut from = Vec::new();
    let mut same = String::new();
    for (number, part) in copied(targets).into_iter().enumerate() {
        let alias = format!("p{}", number + 1);
        for (parameter, target) in part {
            let name = quote_identifier(&target.name);
            assign.push(format!(
                "{name} = CASE WHEN t.ctid = ANY ({}) THEN {alias}.v{parameter} ELSE t.{name} END",
                addresses(parameter)
            ));
        }
        let _ = write!(same, "t.ctid = {alias}.k AND ");
        from.push(format!("pg_temp.{} AS {alias}", copies(number)));
    }
    format!(
        "WITH done AS (UPDATE ONLY {table} AS t SET {} FROM {} WHERE {same}\
         t.ctid = ANY ({}) RETURNING t.ctid) {GIVES}",
        assign.join(", "),
        from.join(", "),
        addresses(1)
    )
}

/// Creates a new version of each row between addresses `$1` and `$2` that no other session has locked. The server puts
/// it on the row's own page while there is room, and then on the first page that has any.
pub(crate) fn shift(table: &str, column: &str) -> String {
    let column = quote_identifier(column);
    let rows = "l.ctid >= $1::pg_catalog.text::pg_catalog.tid \
         AND l.ctid < $2::pg_catalog.text::pg_catalog.tid";
    update_unlocked(table, &format!("{column} = t.{column}"), rows)
}

/// Does the same again with the rows between these addresses that this transaction has updated; no other session can
/// have locked them.
pub(crate) fn shift_again(table: &str, column: &str) -> String {
    let column = quote_identifier(column);
    format!(
        "WITH done AS (UPDATE ONLY {table} AS t SET {column} = t.{column} WHERE {IN_RANGE} \
         AND t.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid RETURNING t.ctid) {GIVES}"
    )
}

/// The addresses of the rows between `$1` and `$2` that no other session has locked.
pub(crate) fn in_range(table: &str) -> String {
    format!(
        "SELECT t.ctid::pg_catalog.text FROM ONLY {table} AS t WHERE {IN_RANGE} \
         FOR NO KEY UPDATE SKIP LOCKED"
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TABLE, targets};
    use super::*;

    #[test]
    fn values_are_stored_anew_where_their_chunks_stand_behind_the_end() {
        insta::assert_snapshot!(move_values(TABLE, &targets(), "id"), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "a""b" = CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($2::pg_catalog.text[]) AS a)) THEN (ARRAY[t."a""b"])[1] ELSE t."a""b" END, "c" = CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($3::pg_catalog.text[]) AS a)) THEN CASE WHEN t."c" IS NOT NULL THEN pg_catalog.array_cat(t."c", '{}') END ELSE t."c" END WHERE t.ctid = ANY (ARRAY(SELECT l.ctid FROM ONLY "s"."T" AS l WHERE l.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) AND pg_catalog.current_setting('toastctl.batch', true) = 'begun' FOR NO KEY UPDATE SKIP LOCKED)) RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
        insta::assert_snapshot!(move_values(TABLE, &[], "id"), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "id" = t."id" WHERE t.ctid = ANY (ARRAY(SELECT l.ctid FROM ONLY "s"."T" AS l WHERE l.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) AND pg_catalog.current_setting('toastctl.batch', true) = 'begun' FOR NO KEY UPDATE SKIP LOCKED)) RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
        assert_eq!(parameters(&targets()), 3);
    }

    #[test]
    fn copies_are_made_in_a_table_that_compresses_nothing() {
        insta::assert_snapshot!(make_copies(TABLE, &targets(), None), @r##"DROP TABLE IF EXISTS pg_temp.toastctl_compact; CREATE TEMPORARY TABLE toastctl_compact AS SELECT t.ctid AS k, t."a""b" AS v2, t."c" AS v3 FROM ONLY "s"."T" AS t WITH NO DATA; ALTER TABLE pg_temp.toastctl_compact ALTER COLUMN v2 SET STORAGE external, ALTER COLUMN v3 SET STORAGE external"##);
        insta::assert_snapshot!(fill_copies(TABLE, &targets()).join("; "), @r##"INSERT INTO pg_temp.toastctl_compact SELECT t.ctid, CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($2::pg_catalog.text[]) AS a)) THEN t."a""b" END, CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($3::pg_catalog.text[]) AS a)) THEN t."c" END FROM ONLY "s"."T" AS t WHERE t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a))"##);
        insta::assert_snapshot!(move_copies(TABLE, &targets()), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "a""b" = CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($2::pg_catalog.text[]) AS a)) THEN p1.v2 ELSE t."a""b" END, "c" = CASE WHEN t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($3::pg_catalog.text[]) AS a)) THEN p1.v3 ELSE t."c" END FROM pg_temp.toastctl_compact AS p1 WHERE t.ctid = p1.k AND t.ctid = ANY (ARRAY(SELECT a::pg_catalog.tid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS a)) RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
    }

    #[test]
    fn copies_of_many_columns_stand_in_several_tables() {
        let many: Vec<Target> = (0..900)
            .map(|number| Target { name: format!("c{number}"), ..targets()[0].clone() })
            .collect();
        assert_eq!(
            drop_copies(&many),
            "DROP TABLE IF EXISTS pg_temp.toastctl_compact, pg_temp.toastctl_compact_2, pg_temp.toastctl_compact_3"
        );
        assert_eq!(fill_copies(TABLE, &many).len(), 3);
        let make = make_copies(TABLE, &many, Some("a b"));
        assert!(make.ends_with(r#"GRANT ALL ON pg_temp.toastctl_compact_3 TO "a b""#), "{make}");
        let update = move_copies(TABLE, &many);
        assert!(update.contains("THEN p3.v901 ELSE"), "{update}");
        assert!(
            update.contains("WHERE t.ctid = p1.k AND t.ctid = p2.k AND t.ctid = p3.k AND t.ctid")
        );
    }

    #[test]
    fn rows_are_shifted_by_ranges() {
        insta::assert_snapshot!(shift(TABLE, "i\"d"), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "i""d" = t."i""d" WHERE t.ctid = ANY (ARRAY(SELECT l.ctid FROM ONLY "s"."T" AS l WHERE l.ctid >= $1::pg_catalog.text::pg_catalog.tid AND l.ctid < $2::pg_catalog.text::pg_catalog.tid AND pg_catalog.current_setting('toastctl.batch', true) = 'begun' FOR NO KEY UPDATE SKIP LOCKED)) RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
        insta::assert_snapshot!(shift_again(TABLE, "id"), @r##"WITH done AS (UPDATE ONLY "s"."T" AS t SET "id" = t."id" WHERE t.ctid >= $1::pg_catalog.text::pg_catalog.tid AND t.ctid < $2::pg_catalog.text::pg_catalog.tid AND t.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid RETURNING t.ctid) SELECT count(*), pg_catalog.pg_current_xact_id()::pg_catalog.text, coalesce(pg_catalog.array_agg(done.ctid::pg_catalog.text), '{}') FROM done"##);
    }

    #[test]
    fn the_files_are_looked_at() {
        insta::assert_snapshot!(chunks("pg_toast.pg_toast_1", &(5..9)), @r##"SELECT (t.ctid::pg_catalog.text::pg_catalog.point)[0]::pg_catalog.int8, pg_catalog.pg_column_size(t.chunk_data), count(*) FROM pg_toast.pg_toast_1 AS t WHERE t.ctid >= '(5,0)' AND t.ctid < '(9,0)' GROUP BY 1, 2"##);
        insta::assert_snapshot!(values("pg_toast.pg_toast_1", &(5..9), None), @r##"SELECT t.chunk_id, max((t.ctid::pg_catalog.text::pg_catalog.point)[0]::pg_catalog.int8), max(t.xmin::pg_catalog.text), sum(pg_catalog.pg_column_size(t.chunk_data))::pg_catalog.int8 FROM pg_toast.pg_toast_1 AS t WHERE t.ctid >= '(5,0)' AND t.ctid < '(9,0)' GROUP BY 1"##);
        insta::assert_snapshot!(owners(TABLE, &targets(), &(5..9)), @r##"SELECT t.ctid::pg_catalog.text, ARRAY[pg_catalog.pg_column_toast_chunk_id(t."a""b"), pg_catalog.pg_column_toast_chunk_id(t."c")]::pg_catalog.oid[], ARRAY[pg_catalog.pg_column_compression(t."a""b"), pg_catalog.pg_column_compression(t."c")]::pg_catalog.text[] FROM ONLY "s"."T" AS t WHERE t.ctid >= '(5,0)' AND t.ctid < '(9,0)'"##);
    }
}
