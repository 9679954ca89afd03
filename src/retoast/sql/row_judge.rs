//! The temporary table in which the server shows how it stores whole rows (pure).

use super::{Target, at_addresses};
use toast_format::judge::toaster::Toaster;
use toast_format::model::TupleTarget;
use toast_format::model::sql::{quote_identifier, set_compression};

/// Empties the temporary table.
pub const CLEAR_ROW_JUDGE: &str = "TRUNCATE pg_temp.toastctl_judge";

/// Creates the temporary table in which the server shows how it would store whole rows according to the choice. The
/// table has no additional column, since that would make its rows longer than those of the original.
pub fn make_row_judge(
    table: &str,
    toaster: Toaster,
    targets: &[Target],
    target: TupleTarget,
) -> String {
    let mut parts = vec![format!("SET (toast_tuple_target = {target}, autovacuum_enabled = off)")];
    for column in targets {
        let name = quote_identifier(&column.name);
        parts.push(format!("ALTER COLUMN {name} SET STORAGE {}", toaster.storage().name()));
        parts.push(set_compression(&column.name, Some(column.method)));
    }
    format!(
        "DROP TABLE IF EXISTS pg_temp.toastctl_judge; \
         CREATE TEMPORARY TABLE toastctl_judge (LIKE {table} INCLUDING STORAGE INCLUDING \
         COMPRESSION); ALTER TABLE pg_temp.toastctl_judge {}",
        parts.join(", ")
    )
}

/// Those addresses of `$1` at which a row exists, in order.
pub fn there(table: &str) -> String {
    format!("SELECT t.ctid::pg_catalog.text {} ORDER BY t.ctid", at_addresses(table))
}

/// Inserts the rows at addresses `$1` into the temporary table as the sweep would store them, in order. Values of the
/// columns `fresh` are recomputed. Returns the rows' addresses in the temporary table.
pub fn judge_rows(table: &str, columns: &[String], fresh: &[&Target]) -> String {
    let mut names = Vec::new();
    let mut values = Vec::new();
    for column in columns {
        let name = quote_identifier(column);
        let value = format!("t.{name}");
        values.push(match fresh.iter().find(|target| target.name == *column) {
            Some(target) => target.shape.force(&value),
            None => value,
        });
        names.push(name);
    }
    format!(
        "INSERT INTO pg_temp.toastctl_judge AS j ({}) SELECT {} {} ORDER BY t.ctid \
         RETURNING j.ctid::pg_catalog.text",
        names.join(", "),
        values.join(", "),
        at_addresses(table)
    )
}

/// Sent before copies that the server may refuse, and followed by one of the next two statements.
pub const TRY_COPIES: &str = "SAVEPOINT toastctl_copies";
/// Sent if the copies were made.
pub const COPIES_TRIED: &str = "RELEASE SAVEPOINT toastctl_copies";
/// Sent if the server refused the copies.
pub const COPIES_REFUSED: &str =
    "ROLLBACK TO SAVEPOINT toastctl_copies; RELEASE SAVEPOINT toastctl_copies";

/// Makes the temporary table move as much as possible out of line in the rows inserted next.
pub const JUDGE_MOVES_OUT: &str =
    "ALTER TABLE pg_temp.toastctl_judge SET (toast_tuple_target = 128)";

/// Two statements. The first undoes [`JUDGE_MOVES_OUT`]; the second recomputes the columns `fresh` in all rows of the
/// temporary table, and returns the addresses before and after.
pub fn judge_update(fresh: &[&Target], target: TupleTarget) -> (String, String) {
    let set: Vec<String> = fresh
        .iter()
        .map(|target| {
            let value = target.shape.force(&target.column());
            format!("{} = {value}", quote_identifier(&target.name))
        })
        .collect();
    let before = format!("ALTER TABLE pg_temp.toastctl_judge SET (toast_tuple_target = {target})");
    let update = format!(
        "UPDATE pg_temp.toastctl_judge AS t SET {} FROM pg_temp.toastctl_judge AS o \
         WHERE o.ctid = t.ctid RETURNING o.ctid::pg_catalog.text, t.ctid::pg_catalog.text",
        set.join(", ")
    );
    (before, update)
}

/// The result for each row of the temporary table: its address, and for each chosen column whether it was compressed.
pub fn judged_rows(targets: &[Target]) -> String {
    let columns: Vec<String> = targets
        .iter()
        .map(|target| format!("pg_catalog.pg_column_compression({}) IS NOT NULL", target.column()))
        .collect();
    format!(
        "SELECT t.ctid::pg_catalog.text, ARRAY[{}] FROM pg_temp.toastctl_judge AS t",
        columns.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TABLE, targets};
    use super::*;
    use toast_format::codec::Method;

    #[test]
    fn the_server_stores_whole_rows_in_a_temporary_table() {
        let targets = targets();
        let lz4 = Toaster::Compressed(Method::Lz4);
        let tuple_target = TupleTarget::default_for(toast_format::disk::layout::PageSize::DEFAULT);
        insta::assert_snapshot!(make_row_judge(TABLE, lz4, &targets, tuple_target), @r##"DROP TABLE IF EXISTS pg_temp.toastctl_judge; CREATE TEMPORARY TABLE toastctl_judge (LIKE "s"."T" INCLUDING STORAGE INCLUDING COMPRESSION); ALTER TABLE pg_temp.toastctl_judge SET (toast_tuple_target = 2032, autovacuum_enabled = off), ALTER COLUMN "a""b" SET STORAGE extended, ALTER COLUMN "a""b" SET COMPRESSION lz4, ALTER COLUMN "c" SET STORAGE extended, ALTER COLUMN "c" SET COMPRESSION lz4"##);
        let columns = ["id".to_owned(), "c".to_owned()];
        insta::assert_snapshot!(there(TABLE), @r##"SELECT t.ctid::pg_catalog.text FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) ORDER BY t.ctid"##);
        insta::assert_snapshot!(judge_rows(TABLE, &columns, &targets.iter().collect::<Vec<_>>()), @r##"INSERT INTO pg_temp.toastctl_judge AS j ("id", "c") SELECT t."id", CASE WHEN t."c" IS NOT NULL THEN pg_catalog.array_cat(t."c", '{}') END FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[]) ORDER BY t.ctid RETURNING j.ctid::pg_catalog.text"##);
        insta::assert_snapshot!(judged_rows(&targets), @r##"SELECT t.ctid::pg_catalog.text, ARRAY[pg_catalog.pg_column_compression(t."a""b") IS NOT NULL, pg_catalog.pg_column_compression(t."c") IS NOT NULL] FROM pg_temp.toastctl_judge AS t"##);
    }
}
