//! The end of the report of `retoast --from-toaster`.

use std::io::{self, Write};

use super::table::printable;
use crate::retoast::departure::DepartureReport;

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
        writeln!(out, "set: {}", printable(alter))?;
    }
    for table in &report.unfit {
        writeln!(out, "left {}: {}", printable(&table.relation), printable(&table.reason))?;
    }
    if dry_run {
        return writeln!(out, "planned only: nothing was changed");
    }
    for column in &report.columns_left {
        writeln!(out, "still set to it: {}", printable(column))?;
    }
    if report.gone && report.whole_database {
        writeln!(out, "proved by a scan of all of them: nothing refers to it any more")?;
    } else if report.gone {
        writeln!(out, "proved by a scan of all of them: nothing in them refers to it any more")?;
    } else {
        writeln!(out, "not proved to be unused: {} values are left", report.values_left)?;
    }
    match report.hint().filter(|_| report.whole_database) {
        Some(hint) => writeln!(out, "HINT:  {hint}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retoast::departure::UnfitTable;

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
            alter: vec!["ALTER TABLE ONLY \"s\".\"p\" ...".into()],
            unfit: Vec::new(),
            gone: true,
        };
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of the whole database
        set: ALTER TABLE ONLY "s"."p" ...
        proved by a scan of all of them: nothing refers to it any more
        HINT:  DROP TOASTER "my ""toaster"""; a server without that statement lets a superuser with allow_system_table_mods delete the row: DELETE FROM pg_catalog.pg_toaster WHERE oid = 147811;
        "#);
        report.whole_database = false;
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        proved by a scan of all of them: nothing in them refers to it any more
        "#);
        let reason = "it is a temporary table of another session".into();
        report.unfit.push(UnfitTable { relation: "pg_temp_3.t".into(), reason });
        report.columns_left.push("pg_temp_3.t.a".into());
        (report.gone, report.values_left) = (false, 7);
        insta::assert_snapshot!(shown(&report, false), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        left pg_temp_3.t: it is a temporary table of another session
        still set to it: pg_temp_3.t.a
        not proved to be unused: 7 values are left
        "#);
        insta::assert_snapshot!(shown(&report, true), @r#"
        toaster my "toaster" (OID 147811): 120 values in 3 tables of those named
        set: ALTER TABLE ONLY "s"."p" ...
        left pg_temp_3.t: it is a temporary table of another session
        planned only: nothing was changed
        "#);
    }
}
