//! What the server knows of the use of keys: statements that were counted, views that statements name, index
//! expressions and generated columns.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use super::result::{KeysReport, Usage};
use super::uses::{Path, Uses, uses};
use crate::advise::tokens::{Token, tokens};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection, OWN};
use crate::server::sql::{quote_literal, quote_qualified};

/// Statements, views and expressions that are read at the most, and characters of each.
const MOST_TEXTS: i64 = 5000;
const LONGEST_TEXT: i64 = 20_000;
/// What the view shows in place of the text of another user's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// A text and how often it was run.
#[derive(Debug)]
struct Counted {
    text: String,
    calls: u64,
}

/// What is read for one table.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Why statements are not known.
    why_not: Option<String>,
    statements: Vec<Counted>,
    /// Statements of this database whose text this user may not see.
    unseen: u64,
    /// Names and definitions.
    views: Vec<(String, String)>,
    indexes: Vec<(String, String)>,
    generated: Vec<(String, String)>,
    table: String,
}

/// Asks the server. Nothing that fails here keeps the keys from being told.
pub(super) async fn ask(connection: &Connection, relation: &Relation) -> Result<Known, LiveError> {
    let ask = async || known(connection.client(), relation).await;
    let mut known = connection.reading(ask).await?;
    // a transaction of its own, for it may fail
    let ask = async || statements(connection.client(), relation, &known.views).await;
    match connection.reading(ask).await? {
        Ok((statements, unseen)) => (known.statements, known.unseen) = (statements, unseen),
        Err(why) => known.why_not = Some(why),
    }
    Ok(known)
}

async fn known(client: &Client, relation: &Relation) -> Result<Known, LiveError> {
    let pairs = async |sql: &str| -> Result<Vec<(String, String)>, LiveError> {
        let sql = format!("{sql} LIMIT {MOST_TEXTS}");
        let rows = client.query_typed(&sql, &[(&relation.oid.0, Type::OID)]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    };
    let views = format!(
        "SELECT DISTINCT v.relname::pg_catalog.text, \
                pg_catalog.left(pg_catalog.pg_get_viewdef(v.oid), {LONGEST_TEXT}) \
         FROM pg_catalog.pg_depend AS d \
         JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid \
         JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm') \
         WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
         AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refobjid = $1 AND v.oid <> $1"
    );
    let indexes = "SELECT c.relname::pg_catalog.text, \
                pg_catalog.concat_ws(' ', pg_catalog.pg_get_expr(i.indexprs, i.indrelid), \
                                     pg_catalog.pg_get_expr(i.indpred, i.indrelid)) \
         FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
         WHERE i.indrelid = $1 AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)";
    let generated = "SELECT a.attname::pg_catalog.text, pg_catalog.pg_get_expr(d.adbin, d.adrelid) \
         FROM pg_catalog.pg_attribute AS a \
         JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE a.attrelid = $1 AND a.attgenerated <> '' AND NOT a.attisdropped";
    Ok(Known {
        views: pairs(&views).await?,
        indexes: pairs(indexes).await?,
        generated: pairs(generated).await?,
        table: relation.name.clone(),
        ..Known::default()
    })
}

/// Statements with the table's or a view's name in them, the most often run first; how many more there are whose
/// text may not be seen; or why they are not known.
async fn statements(
    client: &Client,
    relation: &Relation,
    views: &[(String, String)],
) -> Result<Result<(Vec<Counted>, u64), String>, LiveError> {
    let extension = client
        .query_typed(
            "SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_extension AS e \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace \
             WHERE e.extname = 'pg_stat_statements'",
            &[],
        )
        .await?
        .pop();
    let Some(extension) = extension else {
        return Ok(
            Err("the extension pg_stat_statements is not installed in this database".into()),
        );
    };
    let schema: String = extension.try_get(0)?;
    let mut names: Vec<String> = views.iter().map(|(name, _)| name.to_lowercase()).collect();
    names.push(relation.name.to_lowercase());
    let hidden = quote_literal(HIDDEN);
    let sql = format!(
        "SELECT pg_catalog.left(s.query, {LONGEST_TEXT}), s.calls::pg_catalog.int8 FROM {} AS s \
         WHERE s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                         WHERE d.datname = pg_catalog.current_database()) \
         AND (s.query IS NULL OR s.query = {hidden} OR EXISTS (\
              SELECT FROM pg_catalog.unnest($1) AS n (name) \
              WHERE pg_catalog.strpos(pg_catalog.lower(s.query), n.name) > 0)) \
         ORDER BY s.calls DESC LIMIT {MOST_TEXTS}",
        quote_qualified(&schema, "pg_stat_statements")
    );
    let rows = match client.query_typed(&sql, &[(&names, Type::TEXT_ARRAY)]).await {
        Ok(rows) => rows,
        Err(error) => {
            return match error.as_db_error() {
                Some(db) => Ok(Err(format!("pg_stat_statements cannot be read: {}", db.message()))),
                None => Err(error.into()),
            };
        }
    };
    let (mut list, mut unseen) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        match row.try_get::<_, Option<String>>(0)?.filter(|query| query != HIDDEN) {
            Some(text) if !text.contains(OWN) => {
                let calls = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
                list.push(Counted { text, calls });
            }
            Some(_) => {}
            None => unseen += 1,
        }
    }
    Ok(Ok((list, unseen)))
}

/// Calls and expressions by path.
#[derive(Debug, Default)]
struct ByPath {
    calls: BTreeMap<Path, u64>,
    indexes: BTreeMap<Path, BTreeSet<String>>,
    generated: BTreeMap<Path, BTreeSet<String>>,
}

/// A path and all that it passes through.
fn ways(path: &Path) -> impl Iterator<Item = Path> + '_ {
    (1..=path.len()).filter_map(|end| path.get(..end).map(<[_]>::to_vec))
}

impl Known {
    /// Says in a report on a column which of its keys are used.
    pub(super) fn tell(&self, report: &mut KeysReport) {
        let mut by_path = ByPath::default();
        let mut usage = Usage {
            statements: 0,
            calls: 0,
            hidden_calls: 0,
            unseen_statements: self.unseen,
            why_not: self.why_not.clone(),
        };
        let of_views: Vec<(&String, Uses)> = self
            .views
            .iter()
            .map(|(name, definition)| (name, uses(definition, &report.column)))
            .filter(|(_, uses)| !uses.paths.is_empty())
            .collect();
        for Counted { text, calls } in &self.statements {
            let found = self.uses_of(text, &report.column, &of_views);
            if found.paths.is_empty() && !found.hidden {
                continue;
            }
            usage.statements += 1;
            usage.calls = usage.calls.saturating_add(*calls);
            if found.hidden {
                usage.hidden_calls = usage.hidden_calls.saturating_add(*calls);
            }
            let paths: BTreeSet<Path> = found.paths.iter().flat_map(ways).collect();
            for path in paths {
                let sum = by_path.calls.entry(path).or_default();
                *sum = sum.saturating_add(*calls);
            }
        }
        for (texts, by_path) in
            [(&self.indexes, &mut by_path.indexes), (&self.generated, &mut by_path.generated)]
        {
            for (name, text) in texts {
                for path in uses(text, &report.column).paths.iter().flat_map(ways) {
                    by_path.entry(path).or_default().insert(name.clone());
                }
            }
        }
        let known = usage.why_not.is_none();
        for key in &mut report.keys {
            key.calls = known.then(|| by_path.calls.get(&key.steps).copied().unwrap_or(0));
            let names = |of: &BTreeMap<Path, BTreeSet<String>>| -> Vec<String> {
                of.get(&key.steps).into_iter().flatten().cloned().collect()
            };
            (key.indexes, key.generated_columns) =
                (names(&by_path.indexes), names(&by_path.generated));
        }
        report.usage = Some(usage);
    }

    /// Those of a statement that names the table, and of the views that it names.
    fn uses_of(&self, text: &str, column: &str, views: &[(&String, Uses)]) -> Uses {
        let words = tokens(text);
        let names = |name: &str| words.iter().any(|token: &Token| token.is_name(name));
        let mut found = if names(&self.table) { uses(text, column) } else { Uses::default() };
        for (name, uses) in views {
            if names(name) {
                found.paths.extend(uses.paths.iter().cloned());
            }
        }
        found
    }
}
