//! The statements that remove a toaster to which nothing refers any more. A user runs them later: they block other
//! sessions from creating and altering tables, check again, and fail if anything has changed since the proof.

use std::collections::HashSet;

use super::census::{Census, Counter};
use crate::retoast::result::DepartureReport;
use crate::server::toasters::{self, Referent, ToasterExtension};
use crate::server::{Client, LiveResult, single_row};
use toast_format::disk::Oid;
use toast_format::disk::custom::DEFAULT_TOASTER;
use toast_format::model::sql::{quote_identifier, quote_literal};
use toast_format::model::toaster::catalog::ToasterColumn;

/// A hash over all columns whose values can be toasted. It changes whenever a table is created, altered or dropped.
const COLUMNS: &str = "pg_catalog.md5(coalesce(pg_catalog.string_agg(pg_catalog.format('%s %s %s', a.attrelid, \
    a.attnum, a.xmin), ',' ORDER BY a.attrelid, a.attnum), '')) FROM pg_catalog.pg_attribute AS a \
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid \
    WHERE c.relkind IN ('r', 'p', 'm') AND a.attnum > 0 AND a.attlen = -1";

/// The current hash of the columns of all tables.
pub(super) async fn columns_now(client: &Client) -> LiveResult<String> {
    let row = single_row(client, &format!("SELECT {COLUMNS}"), &[]).await?;
    Ok(row.try_get(0)?)
}

/// The statements for a toaster that only the `dropped` columns still have, with the hash of the columns of all tables
/// before the proof. No released server has `DROP TOASTER`, and `DROP EXTENSION` fails while the toaster exists
/// (`doDeletion` in `dependency.c`), so its row and the rows that depend on it are deleted first.
pub(crate) fn steps(
    toaster: Oid,
    dropped: &[Referent],
    extension: Option<&ToasterExtension>,
    columns: &str,
) -> Vec<String> {
    let mut steps = vec![
        "BEGIN ISOLATION LEVEL READ COMMITTED;".to_owned(),
        "SET LOCAL search_path = pg_catalog, pg_temp;".to_owned(),
        "SET LOCAL lock_timeout = '10s';".to_owned(),
        "LOCK TABLE pg_catalog.pg_attribute, pg_catalog.pg_toaster IN SHARE ROW EXCLUSIVE MODE;"
            .to_owned(),
        check_again(toaster, columns),
    ];
    for column in dropped {
        steps.push(format!(
            "UPDATE pg_catalog.pg_attribute SET atttoaster = {DEFAULT_TOASTER} WHERE attrelid = \
             {}::pg_catalog.regclass AND attnum = {} AND attisdropped;",
            quote_literal(&column.quoted()),
            column.number
        ));
    }
    let class = "'pg_catalog.pg_toaster'::pg_catalog.regclass";
    steps.push(format!(
        "DELETE FROM pg_catalog.pg_depend WHERE classid = {class} AND objid = {toaster};"
    ));
    steps.push(format!(
        "DELETE FROM pg_catalog.pg_description WHERE classoid = {class} AND objoid = {toaster};"
    ));
    steps.push(format!("DELETE FROM pg_catalog.pg_toaster WHERE oid = {toaster};"));
    if let Some(ToasterExtension { name, others }) = extension {
        let name = quote_identifier(name);
        if others.is_empty() {
            steps.push(format!("DROP EXTENSION {name};"));
        } else {
            let others: Vec<String> = others.iter().map(|other| quote_identifier(other)).collect();
            let comment = format!("extension {name} is needed by {}", others.join(", "));
            steps.push(format!("-- {}", comment.replace(char::is_control, " ")));
        }
    }
    steps.push("COMMIT;".to_owned());
    steps
}

/// A statement that fails if anything may refer to the toaster. It waits for all transactions that have a transaction
/// ID, since only these may have created or altered a table. A transaction without one cannot do so in the meantime.
fn check_again(toaster: Oid, columns: &str) -> String {
    format!(
        "DO $toastctl$
DECLARE
  deadline timestamptz := clock_timestamp() + interval '10 seconds';
  found text;
BEGIN
  LOOP
    PERFORM pg_stat_clear_snapshot();
    SELECT string_agg(t.who, ', ') INTO found FROM (
      SELECT DISTINCT format('process %s', l.pid) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
      WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
        AND l.pid <> pg_backend_pid() AND a.datname = current_database()
      UNION ALL SELECT format('prepared transaction %L', gid) FROM pg_prepared_xacts
      WHERE database = current_database()) AS t (who);
    EXIT WHEN found IS NULL;
    IF clock_timestamp() > deadline THEN
      RAISE EXCEPTION 'not removed: transactions that may have created tables have not ended: %', found
        USING HINT = 'Run these statements again once they have ended.';
    END IF;
    PERFORM pg_sleep(0.1);
  END LOOP;
  SELECT string_agg(format('%s.%I', a.attrelid::regclass, a.attname), ', ') INTO found
  FROM pg_attribute AS a WHERE NOT a.attisdropped AND to_jsonb(a) ->> 'atttoaster' = '{toaster}';
  IF found IS NOT NULL THEN
    RAISE EXCEPTION 'not removed: columns are set to the toaster again: %', found
      USING HINT = 'Run toastctl retoast --from-toaster again.';
  END IF;
  IF (SELECT {COLUMNS})
      <> '{columns}' THEN
    RAISE EXCEPTION 'not removed: tables were created, altered or dropped after the scan that found no reference to it'
      USING HINT = 'Run toastctl retoast --from-toaster again: it reads all tables and prints these statements again.';
  END IF;
END
$toastctl$;"
    )
}

/// The columns of the run's tables: `wanted`, or all.
pub(crate) async fn columns(
    counter: &Counter<'_>,
    wanted: Option<&HashSet<Oid>>,
) -> LiveResult<Vec<ToasterColumn>> {
    let mut columns = toasters::columns(counter.reader.client(), None).await?;
    if let Some(wanted) = wanted {
        columns.retain(|column| wanted.contains(&column.table));
    }
    Ok(columns)
}

/// Reads everything again, and reports what is left. Tables created by transactions that have not ended are not
/// visible; `report` names these transactions.
pub(crate) async fn prove(
    counter: &Counter<'_>,
    wanted: Option<&HashSet<Oid>>,
    report: &mut DepartureReport,
) -> LiveResult<()> {
    // The hash is computed before the tables are listed, so that a table created later changes it.
    let columns_before = columns_now(counter.reader.client()).await?;
    let after: Census = counter.count(&columns(counter, wanted).await?).await?;
    report.tables_read = after.tables;
    report.values_left = after.values();
    let client = counter.reader.client();
    let mut referents = toasters::referents(client, counter.toaster).await?;
    if let Some(wanted) = wanted {
        referents.retain(|column| wanted.contains(&column.relation));
    }
    let (dropped, living): (Vec<Referent>, Vec<Referent>) =
        referents.into_iter().partition(|column| column.dropped);
    report.columns_left = living.iter().map(Referent::display_name).collect();
    report.dropped_columns_left = dropped.iter().map(Referent::display_name).collect();
    let all_seen = after.unread.is_empty() && report.older_transactions.is_empty();
    let no_value = after.values() == 0 && all_seen && living.is_empty();
    report.unused = no_value;
    report.gone = no_value && dropped.is_empty();
    if no_value && report.whole_database {
        let extension = toasters::extension(client, counter.toaster).await?;
        report.steps = steps(counter.toaster, &dropped, extension.as_ref(), &columns_before);
    }
    report.unfit.extend(after.unread);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toaster_is_removed_in_a_transaction_that_looks_first() {
        let dropped = Referent {
            relation: Oid(1),
            schema: "s".into(),
            name: "it's".into(),
            number: 2,
            column: "........pg.dropped.2........".into(),
            dropped: true,
        };
        let mut extension = ToasterExtension { name: "my \"ext\"".into(), others: Vec::new() };
        let dropped = [dropped];
        let all = steps(Oid(147_811), &dropped, Some(&extension), "0a1b");
        let position = |start: &str| all.iter().position(|step| step.starts_with(start)).unwrap();
        assert_eq!(position("BEGIN ISOLATION LEVEL READ COMMITTED;"), 0);
        let look = position("DO $toastctl$");
        assert!(position("LOCK TABLE ") < look && look < position("UPDATE "));
        assert!(all[look].contains("'atttoaster' = '147811'") && all[look].contains("<> '0a1b'"));
        insta::assert_snapshot!(all[look + 1..].join("\n"), @r#"
        UPDATE pg_catalog.pg_attribute SET atttoaster = 9864 WHERE attrelid = '"s"."it''s"'::pg_catalog.regclass AND attnum = 2 AND attisdropped;
        DELETE FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_toaster'::pg_catalog.regclass AND objid = 147811;
        DELETE FROM pg_catalog.pg_description WHERE classoid = 'pg_catalog.pg_toaster'::pg_catalog.regclass AND objoid = 147811;
        DELETE FROM pg_catalog.pg_toaster WHERE oid = 147811;
        DROP EXTENSION "my ""ext""";
        COMMIT;
        "#);
        extension.others = vec!["two\nlines".into(), "other".into()];
        let all = steps(Oid(147_811), &dropped, Some(&extension), "0a1b");
        let end = "-- extension \"my \"\"ext\"\"\" is needed by \"two lines\", \"other\"";
        assert_eq!(all[all.len() - 2..], [end, "COMMIT;"]);
    }
}
