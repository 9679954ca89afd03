//! The original settings of columns whose settings a sweep changes temporarily: a line at the end of the columns'
//! comments, removed at the end of the work. After a kill, it shows which settings to restore.
//!
//! Comments are used because checkpoint files exist only if requested, and a separate table would have to be cleaned
//! up.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use crate::retoast::preflight::ready::PreparedTable;
use crate::server::{Client, LiveError, LiveResult, numbers};
use toast_format::codec::Method;
use toast_format::disk::{Oid, Storage};
use toast_format::judge::toaster::Current;
use toast_format::model::sql::{quote_identifier, quote_literal};

/// The settings as text, for people and for the comment.
pub(crate) fn text(of: Current) -> String {
    let method = of.compression.map_or("default", Method::name);
    format!("storage {}, compression {method}", of.storage.name())
}

fn parse(text: &str) -> Option<Current> {
    let (storage, compression) = text.strip_prefix("storage ")?.split_once(", compression ")?;
    let storages = [Storage::Plain, Storage::Main, Storage::External, Storage::Extended];
    let compression = match compression {
        "default" => None,
        name => Some(Method::from_name(name)?),
    };
    let storage = storages.into_iter().find(|known| known.name() == storage)?;
    Some(Current { storage, compression })
}

/// The settings of a column, by its `attstorage` and `attcompression`.
pub(crate) fn current(storage: &str, compression: &str) -> LiveResult<Current> {
    let found = storage.chars().next().and_then(Storage::from_char);
    let storage =
        found.ok_or_else(|| LiveError::Unexpected(format!("attstorage \"{storage}\"")))?;
    Ok(Current { storage, compression: compression.chars().next().and_then(Method::from_char) })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub now: Current,
    /// Its comment without the line.
    comment: String,
    /// Its original settings, if the line exists.
    pub before: Option<Current>,
}

const BEGIN: &str = "[toastctl: before its run ";
const END: &str = "]";

impl Column {
    /// A column with this comment.
    pub fn new(name: String, now: Current, comment: &str) -> Column {
        let (own, line) = match comment.rsplit_once('\n') {
            Some((own, line)) => (own, line),
            None => ("", comment),
        };
        let before = line.strip_prefix(BEGIN).and_then(|line| line.strip_suffix(END));
        match before.and_then(parse) {
            Some(before) => Column { name, now, comment: own.to_owned(), before: Some(before) },
            None => Column { name, now, comment: comment.to_owned(), before: None },
        }
    }

    fn comment(&self, table: &str, comment: &str) -> String {
        let literal = match comment {
            "" => "NULL".to_owned(),
            text => quote_literal(text),
        };
        format!("COMMENT ON COLUMN {table}.{} IS {literal}", quote_identifier(&self.name))
    }

    fn mark(&self, table: &str) -> String {
        let break_ = if self.comment.is_empty() { "" } else { "\n" };
        let line = format!("{}{break_}{BEGIN}{}{END}", self.comment, text(self.now));
        self.comment(table, &line)
    }
}

/// The statements that add the line to columns that do not have it. An existing line is kept, because the oldest one
/// has the settings that the user chose.
pub fn mark(table: &str, columns: &[Column]) -> Option<String> {
    let unmarked = columns.iter().filter(|column| column.before.is_none());
    joined(&unmarked.map(|column| column.mark(table)).collect::<Vec<String>>())
}

/// The statements that remove the line.
pub fn unmark(table: &str, columns: &[Column]) -> Option<String> {
    let marked = columns.iter().filter(|column| column.before.is_some());
    joined(&marked.map(|column| column.comment(table, &column.comment)).collect::<Vec<String>>())
}

fn joined(statements: &[String]) -> Option<String> {
    (!statements.is_empty()).then(|| statements.join("; "))
}

/// Reads the chosen columns of tables.
pub(crate) async fn ask(
    client: &Client,
    tables: &[&PreparedTable],
) -> LiveResult<HashMap<Oid, Vec<Column>>> {
    let chosen: HashMap<Oid, Vec<&str>> = tables
        .iter()
        .map(|ready| {
            let names = ready.targets.iter().map(|target| target.name.as_str());
            (ready.relation.oid, names.collect())
        })
        .collect();
    let oids: Vec<Oid> = chosen.keys().copied().collect();
    let mut names: Vec<&str> = chosen.values().flatten().copied().collect();
    names.sort_unstable();
    names.dedup();
    let sql = "SELECT a.attname::pg_catalog.text, a.attstorage::pg_catalog.text, \
               a.attcompression::pg_catalog.text, \
               coalesce(pg_catalog.col_description(a.attrelid, a.attnum), ''), a.attrelid \
               FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) ANY ($1) \
                 AND a.attname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.name[]) \
               ORDER BY a.attnum";
    let rows = client
        .query_typed(sql, &[(&numbers(&oids), Type::OID_ARRAY), (&names, Type::TEXT_ARRAY)])
        .await?;
    let mut columns: HashMap<Oid, Vec<Column>> = HashMap::new();
    for row in &rows {
        let oid: Oid = Oid(row.try_get(4)?);
        let name: String = row.try_get(0)?;
        if !chosen.get(&oid).is_some_and(|chosen| chosen.contains(&name.as_str())) {
            continue;
        }
        let now = current(row.try_get(1)?, row.try_get(2)?)?;
        columns.entry(oid).or_default().push(Column::new(name, now, row.try_get(3)?));
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: Current = Current { storage: Storage::Main, compression: Some(Method::Lz4) };
    const NOW: Current = Current { storage: Storage::External, compression: None };

    #[test]
    fn a_comment_has_the_line_for_the_time_of_the_work() {
        for own in ["", "it's mine", "two\nlines\n"] {
            let column = Column::new("a b".into(), MAIN, own);
            assert_eq!((column.comment.as_str(), column.before), (own, None));
            let marked = mark("s.t", std::slice::from_ref(&column)).unwrap();
            assert!(marked.starts_with("COMMENT ON COLUMN s.t.\"a b\" IS '"), "{marked}");
            let line = format!("{BEGIN}storage main, compression lz4{END}");
            let comment = if own.is_empty() { line.clone() } else { format!("{own}\n{line}") };
            assert!(marked.ends_with(&quote_literal(&comment)), "{marked}");
            let after = Column::new("a b".into(), NOW, &comment);
            assert_eq!((after.comment.as_str(), after.before), (own, Some(MAIN)));
            // A later run must not mistake the settings of a killed run for the user's choice.
            assert_eq!(mark("s.t", std::slice::from_ref(&after)), None);
            let removed = unmark("s.t", &[after]).unwrap();
            let literal = if own.is_empty() { "NULL".into() } else { quote_literal(own) };
            assert_eq!(removed, format!("COMMENT ON COLUMN s.t.\"a b\" IS {literal}"));
            assert_eq!(unmark("s.t", &[column]), None);
        }
    }

    #[test]
    fn other_comments_are_nobodys_line() {
        for comment in ["x]", "[toastctl: before its run storage tin, compression lz4]", "\n"] {
            let column = Column::new("a".into(), NOW, comment);
            assert_eq!((column.comment.as_str(), column.before), (comment, None));
        }
        assert_eq!(parse(&text(NOW)), Some(NOW));
    }
}
