//! Whether what a report says is true, counted by plain SQL.

use super::table::{Column, Table};
use super::{Choice, report};
use crate::support::command::Run;
use crate::support::reports::retoast::Outcome;
use crate::support::reports::{Source, retoast as reports};
use crate::support::server::Database;

/// What a run has met.
pub(crate) struct Met {
    /// The application has written rows `id % 5 = 0` and from 100,000 on.
    pub(crate) wrote: bool,
    /// How many of its increments of `n` were committed.
    pub(crate) increments: u64,
    /// Somebody has altered the table.
    pub(crate) changed_settings: bool,
    /// So late that the last scan may have been over.
    pub(crate) too_late: bool,
    /// Whether contents look the same as before, but for what was written.
    pub(crate) contents_stay: bool,
    /// Sessions of toastctl that did not end with it.
    pub(crate) sessions_left: bool,
}

impl Met {
    pub(crate) fn none() -> Met {
        Met {
            wrote: false,
            increments: 0,
            changed_settings: false,
            too_late: false,
            contents_stay: true,
            sessions_left: false,
        }
    }
}

/// Whether the server itself may refuse the choice.
pub(crate) fn may_refuse(choice: &Choice) -> bool {
    choice.name == "plain"
}

/// Whether the run read no pages, and says that places are not verified, or of all that it left that the
/// server stores it otherwise than foreseen: before PostgreSQL 17 no function tells which values of a row are in
/// line.
pub(crate) fn owns_up(run: &Run) -> bool {
    report(run).is_some_and(|table| {
        let left = table.rows_left;
        table.source == Source::Functions
            && (table.outcome == Outcome::Incomplete && Some(table.rows_disagreeing) == left
                || table.outcome == Outcome::Unverified && left == Some(0))
    })
}

/// What the rows hold: those that the application never writes, and the others.
pub(crate) fn contents(database: &Database<'_>, table: &Table) -> [String; 2] {
    let columns: Vec<String> = table.columns.iter().map(|c| format!("{}::text", c.name)).collect();
    ["id % 5 <> 0 AND id < 100000", "id % 5 = 0 AND id < 100000"].map(|rows| {
        database.psql(&format!(
            "SELECT count(*), md5(string_agg(md5(ROW(id, {})::text), ',' ORDER BY id)) FROM t WHERE {rows}",
            columns.join(", ")
        ))
    })
}

pub(crate) fn same_contents(
    database: &Database<'_>,
    table: &Table,
    before: &[String; 2],
    met: &Met,
) -> Vec<String> {
    let now = contents(database, table);
    let mut untrue = Vec::new();
    if now[0] != before[0] || (!met.wrote && now[1] != before[1]) {
        untrue.push(format!("contents changed: {before:?} to {now:?}"));
    }
    if met.increments > 0 {
        let sum = database.psql("SELECT sum(n) FROM t WHERE id < 100000");
        if sum != met.increments.to_string() {
            untrue.push(format!("{} increments were committed, {sum} are there", met.increments));
        }
    }
    untrue
}

/// What is not true of what a run has said.
pub(crate) fn of(
    database: &Database<'_>,
    table: &Table,
    choice: &Choice,
    met: &Met,
    run: &Run,
) -> Vec<String> {
    let mut untrue = Vec::new();
    if met.sessions_left {
        untrue.push("sessions are left after the end".to_owned());
    }
    if run.stderr.contains("panicked") {
        untrue.push("it panicked".to_owned());
    }
    let table_report = report(run);
    let outcome = table_report.as_ref().map(|table| table.outcome);
    let fits = match (run.code, outcome) {
        (Some(0), Some(Outcome::Complete))
        | (Some(1), Some(Outcome::Unverified))
        | (Some(4), Some(Outcome::Stopped))
        | (Some(1), Some(Outcome::Incomplete)) => true,
        (Some(1 | 3), Some(Outcome::Failed) | None) | (None, None) => true,
        // refused before anything was done
        (Some(2), None) => true,
        _ => false,
    };
    if !fits {
        untrue.push(format!("exit code {:?} with outcome {outcome:?}", run.code));
    }
    // what is not verified without pages is their place: all else is claimed
    let claims = run.code == Some(0) || outcome == Some(Outcome::Unverified);
    let (true, Some(report)) = (claims, table_report) else { return untrue };
    if met.too_late {
        return untrue;
    }
    untrue.extend(settings(database, table, choice, met));
    for column in table.columns.iter().filter(|column| table.is_chosen(column)) {
        untrue.extend(values(database, column, choice, met));
        if !met.wrote && !met.changed_settings {
            untrue.extend(last_scan(database, column, &report));
        }
    }
    untrue
}

/// Whether the columns are set as chosen.
fn settings(database: &Database<'_>, table: &Table, choice: &Choice, met: &Met) -> Option<String> {
    if met.changed_settings {
        return None;
    }
    let extended = choice.more.iter().any(|word| word == "new-values=extended");
    let (storage, method) = match choice.name {
        "lz4" => ("x", "l"),
        "pglz" => ("x", "p"),
        "main=lz4" => ("m", "l"),
        "main=pglz" => ("m", "p"),
        "main" => ("m", ""),
        "extended" => ("x", ""),
        "plain" => ("p", ""),
        _ if extended => ("x", ""),
        _ => ("e", ""),
    };
    let list = table.chosen.join("', '");
    let wrong = database.psql(&format!(
        "SELECT string_agg(concat(attname, ' ', attstorage, ' ', attcompression), ', ') FROM pg_attribute
         WHERE attrelid = 't'::regclass AND attname IN ('{list}')
         AND (attstorage <> '{storage}' OR '{method}' NOT IN ('', attcompression::text))"
    ));
    (!wrong.is_empty()).then(|| format!("complete, but set otherwise: {wrong}"))
}

/// Whether the values of a column are stored as requested.
fn values(database: &Database<'_>, column: &Column, choice: &Choice, met: &Met) -> Vec<String> {
    let name = &column.name;
    let kind = database.psql(&format!(
        "SELECT format_type(atttypid, -1) FROM pg_attribute
         WHERE attrelid = 't'::regclass AND attname = '{name}'"
    ));
    // with a policy, complete is said of what the first scan saw
    let rows = if met.wrote && choice.option == "--policy" {
        "id % 5 <> 0 AND id < 100000"
    } else {
        "true"
    };
    let count = |condition: &str| {
        let condition = condition.replace("$", &format!("pg_column_compression(t.{name})"));
        database.psql(&format!("SELECT count(*) FROM t WHERE {rows} AND {condition}"))
    };
    let mut untrue = Vec::new();
    let mut none = |what: &str, found: String| {
        if found != "0" {
            untrue.push(format!("complete, but {found} values of {name} ({kind}) are {what}"));
        }
    };
    let method = match (choice.option, choice.name) {
        (_, "external" | "plain" | "never") => {
            none("compressed", count("$ IS NOT NULL"));
            return untrue;
        }
        ("--toaster", named) => match named.trim_start_matches("main=") {
            "lz4" => Some("lz4"),
            "pglz" => Some("pglz"),
            _ => None,
        },
        _ => choice.method.filter(|method| *method != "either"),
    };
    if let Some(method) = method {
        none("compressed by another method", count(&format!("$ <> '{method}'")));
    }
    // A value that no page holds was compressed if it could be: the server shows that on a copy.
    let tried = choice.option == "--toaster" || choice.name == "always";
    if tried && kind == column.type_name() && !met.changed_settings {
        let own = database.psql(&format!(
            "SELECT attcompression FROM pg_attribute
             WHERE attrelid = 't'::regclass AND attname = '{name}'"
        ));
        let method = method.unwrap_or(if own == "l" { "lz4" } else { "pglz" });
        let left = database.psql(&format!(
            "CREATE TEMPORARY TABLE copy (v {kind} COMPRESSION {method});
             ALTER TABLE copy ALTER v SET STORAGE extended;
             INSERT INTO copy SELECT {} FROM t WHERE {rows} AND pg_column_compression(t.{name}) IS NULL
                AND pg_column_size(t.{name}) > 8200;
             SELECT count(*) FROM copy WHERE pg_column_compression(v) IS NOT NULL",
            column.copied()
        ));
        none("uncompressed which the server compresses", left);
    }
    untrue
}

/// Whether the report's last scan counts what SQL counts.
fn last_scan(database: &Database<'_>, column: &Column, report: &reports::Table) -> Option<String> {
    let name = &column.name;
    let told = |wanted: Option<&str>| -> u64 {
        let forms = report.forms_after.iter();
        let ours = forms.filter(|form| form.column == name.as_str() && form.form != "null");
        let ours = ours.filter(|form| form.method.as_deref() == wanted);
        ours.map(|form| form.values).sum()
    };
    let said = [told(None), told(Some("pglz")), told(Some("lz4"))];
    let counted = database.psql(&format!(
        "SELECT count({name}) FILTER (WHERE pg_column_compression({name}) IS NULL),
                count(*) FILTER (WHERE pg_column_compression({name}) = 'pglz'),
                count(*) FILTER (WHERE pg_column_compression({name}) = 'lz4') FROM t"
    ));
    let said = said.map(|number| number.to_string()).join("|");
    (said != counted).then(|| format!("the last scan says {said} of {name}, SQL counts {counted}"))
}
