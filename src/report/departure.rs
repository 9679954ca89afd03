//! The end of the report of `retoast --from-toaster`.

use super::document::Document;
use super::table::{printable, statement};
use super::units::counted;
use crate::retoast::result::DepartureReport;

/// Writes it as text. `dry_run`: nothing was done.
pub(super) fn text(report: &DepartureReport, dry_run: bool, document: &mut Document) {
    document.unbroken(&format!(
        "toaster {} (OID {}): {} found, {} read ({})",
        printable(&report.toaster),
        report.toaster_oid,
        counted(report.values_before, "value"),
        counted(report.tables_read, "table"),
        if report.whole_database { "the whole database" } else { "only the named tables" }
    ));
    for alter in &report.alter {
        document.unbroken(&format!("set: {}", statement(alter)));
    }
    for table in &report.unfit {
        document.unbroken(&format!(
            "not converted: {}: {}",
            printable(&table.relation),
            printable(&table.reason)
        ));
    }
    for who in &report.older_transactions {
        document.unbroken(&format!(
            "stopped waiting (max-wait) for {}: tables that it may have created were not read",
            printable(who)
        ));
    }
    if dry_run {
        return document.unbroken("dry run: nothing was changed");
    }
    for column in report.columns_left.iter().chain(&report.dropped_columns_left) {
        document.unbroken(&format!("column still set to the toaster: {}", printable(column)));
    }
    let tables = if report.whole_database { "all tables" } else { "the named tables" };
    if report.gone {
        document.unbroken(&format!(
            "complete: a scan of {tables} found nothing that refers to the toaster"
        ));
    } else if report.unused && report.unfit.is_empty() {
        document.unbroken(&format!(
            "complete: a scan of {tables} found no value that refers to the toaster. Dropped columns are still set to \
             it, and without it no long value could be written to their tables{}",
            if report.steps.is_empty() {
                ""
            } else {
                ": the statements below set them to the default toaster"
            }
        ));
    } else {
        let left = counted(report.values_left, "value");
        document.unbroken(&format!("incomplete: the toaster may still be in use ({left} left)"));
    }
    if !report.steps.is_empty() {
        document.unbroken(
            "HINT:  The server has no DROP TOASTER. A superuser can remove the toaster with this transaction, which \
             checks again and fails if a table was created, altered or dropped in the meantime:",
        );
        document.sql(&report.steps.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Style;
    use crate::retoast::result::UnfitTable;

    fn shown(report: &DepartureReport, dry_run: bool) -> String {
        let mut document = Document::new(Style::Terminal(None), false);
        text(report, dry_run, &mut document);
        document.into_text()
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
            unused: true,
            gone: true,
            steps: ["BEGIN;", "DO $$\nBEGIN\nEND$$;", "COMMIT;"].map(Into::into).into(),
        };
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values found, 3 tables read (the whole database)
        set: ALTER TABLE ONLY "s"."p" ...
        complete: a scan of all tables found nothing that refers to the toaster
        HINT:  The server has no DROP TOASTER. A superuser can remove the toaster with this transaction, which checks again and fails if a table was created, altered or dropped in the meantime:
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
        toaster my "toaster" (OID 147811): 120 values found, 3 tables read (the whole database)
        set: ALTER TABLE ONLY "s"."p" ...
        column still set to the toaster: s.it's, dropped column 2
        complete: a scan of all tables found no value that refers to the toaster. Dropped columns are still set to it, and without it no long value could be written to their tables: the statements below set them to the default toaster
        HINT:  The server has no DROP TOASTER. A superuser can remove the toaster with this transaction, which checks again and fails if a table was created, altered or dropped in the meantime:
            UPDATE ...;
        "#);
        report.whole_database = false;
        (report.gone, report.dropped_columns_left, report.steps) = (true, Vec::new(), Vec::new());
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values found, 3 tables read (only the named tables)
        set: ALTER TABLE ONLY "s"."p" ...
        complete: a scan of the named tables found nothing that refers to the toaster
        "#);
        let reason = "it is a temporary table of another session".into();
        report.unfit.push(UnfitTable { relation: "pg_temp_3.t".into(), reason });
        report.columns_left.push("pg_temp_3.t.a".into());
        report.older_transactions.push("process 7 (app), begun 2026-01-01 10:00:00+00".into());
        (report.unused, report.gone, report.values_left) = (false, false, 7);
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values found, 3 tables read (only the named tables)
        set: ALTER TABLE ONLY "s"."p" ...
        not converted: pg_temp_3.t: it is a temporary table of another session
        stopped waiting (max-wait) for process 7 (app), begun 2026-01-01 10:00:00+00: tables that it may have created were not read
        column still set to the toaster: pg_temp_3.t.a
        incomplete: the toaster may still be in use (7 values left)
        "#);
        insta::assert_snapshot!(shown(&report, true), @r#"
        toaster my "toaster" (OID 147811): 120 values found, 3 tables read (only the named tables)
        set: ALTER TABLE ONLY "s"."p" ...
        not converted: pg_temp_3.t: it is a temporary table of another session
        stopped waiting (max-wait) for process 7 (app), begun 2026-01-01 10:00:00+00: tables that it may have created were not read
        dry run: nothing was changed
        "#);
    }
}
