//! The end of the report of `retoast --from-toaster`.

use std::io::{self, Write};

use super::table::{printable, statement, statement_lines};
use crate::retoast::result::DepartureReport;

/// Writes it as text. `dry_run`: nothing was done.
pub fn text(report: &DepartureReport, dry_run: bool, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "toaster {} (OID {}): {} values in {} tables of {}",
        printable(&report.toaster),
        report.toaster_oid,
        report.values_before,
        report.tables_read,
        if report.whole_database { "the whole database" } else { "those named" }
    )?;
    for alter in &report.alter {
        writeln!(out, "set: {}", statement(alter))?;
    }
    for table in &report.unfit {
        writeln!(out, "left {}: {}", printable(&table.relation), printable(&table.reason))?;
    }
    for who in &report.older_transactions {
        writeln!(
            out,
            "not waited for any longer (--max-wait): {}; tables that it has created are not seen",
            printable(who)
        )?;
    }
    if dry_run {
        return writeln!(out, "planned only: nothing was changed");
    }
    for column in report.columns_left.iter().chain(&report.dropped_columns_left) {
        writeln!(out, "still set to it: {}", printable(column))?;
    }
    let where_ = if report.whole_database { "" } else { " in them" };
    if report.gone {
        writeln!(out, "proved by a scan of all of them: nothing{where_} refers to it any more")?;
    } else if report.unfit.is_empty()
        && report.older_transactions.is_empty()
        && report.values_left == 0
        && report.columns_left.is_empty()
    {
        writeln!(
            out,
            "proved by a scan of all of them: no value{where_} refers to it any more, but dropped columns \
             are set to it, and without it no long value could be written to their tables"
        )?;
    } else {
        writeln!(out, "not proved to be unused: {} values are left", report.values_left)?;
    }
    if !report.steps.is_empty() {
        writeln!(
            out,
            "HINT:  The server has no DROP TOASTER. A superuser removes the toaster with this transaction, which looks \
             once more and fails if a table was created, altered or dropped meanwhile:"
        )?;
        for line in report.steps.iter().flat_map(|step| statement_lines(step)) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retoast::result::UnfitTable;

    fn shown(report: &DepartureReport, dry_run: bool) -> String {
        let mut out = Vec::new();
        text(report, dry_run, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_toaster_is_gone_or_it_is_said_what_keeps_it() {
        let mut report = DepartureReport {
            toaster: "my \"toaster\"".into(),
            toaster_oid: 147_811,
            whole_database: true,
            tables_read: 3,
            values_before: 120,
            values_left: 0,
            columns_left: Vec::new(),
            dropped_columns_left: Vec::new(),
            alter: vec!["ALTER TABLE ONLY \"s\".\"p\" ...".into()],
            unfit: Vec::new(),
            older_transactions: Vec::new(),
            gone: true,
            steps: ["BEGIN;", "DO $$\nBEGIN\nEND$$;", "COMMIT;"].map(Into::into).into(),
        };
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of the whole database
        set: ALTER TABLE ONLY "s"."p" ...
        proved by a scan of all of them: nothing refers to it any more
        HINT:  The server has no DROP TOASTER. A superuser removes the toaster with this transaction, which looks once more and fails if a table was created, altered or dropped meanwhile:
            BEGIN;
            DO $$
            BEGIN
            END$$;
            COMMIT;
        "#);
        report.gone = false;
        report.dropped_columns_left = vec!["s.it's, dropped column 2".into()];
        report.steps = vec!["UPDATE ...;".into()];
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of the whole database
        set: ALTER TABLE ONLY "s"."p" ...
        still set to it: s.it's, dropped column 2
        proved by a scan of all of them: no value refers to it any more, but dropped columns are set to it, and without it no long value could be written to their tables
        HINT:  The server has no DROP TOASTER. A superuser removes the toaster with this transaction, which looks once more and fails if a table was created, altered or dropped meanwhile:
            UPDATE ...;
        "#);
        report.whole_database = false;
        (report.gone, report.dropped_columns_left, report.steps) = (true, Vec::new(), Vec::new());
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        proved by a scan of all of them: nothing in them refers to it any more
        "#);
        let reason = "it is a temporary table of another session".into();
        report.unfit.push(UnfitTable { relation: "pg_temp_3.t".into(), reason });
        report.columns_left.push("pg_temp_3.t.a".into());
        report.older_transactions.push("process 7 (app), begun 2026-01-01 10:00:00+00".into());
        (report.gone, report.values_left) = (false, 7);
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        left pg_temp_3.t: it is a temporary table of another session
        not waited for any longer (--max-wait): process 7 (app), begun 2026-01-01 10:00:00+00; tables that it has created are not seen
        still set to it: pg_temp_3.t.a
        not proved to be unused: 7 values are left
        "#);
        insta::assert_snapshot!(shown(&report, true), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        left pg_temp_3.t: it is a temporary table of another session
        not waited for any longer (--max-wait): process 7 (app), begun 2026-01-01 10:00:00+00; tables that it has created are not seen
        planned only: nothing was changed
        "#);
    }
}
