//! What the server knows of the use of keys: statements that were counted, those that sessions run now or ran last,
//! and what names keys in its catalog: views, expressions of indexes and generated columns, policies, check
//! constraints and functions.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use super::result::{KeysReport, Named, NamedIn, Usage};
use super::uses::{Path, Uses, uses};
use crate::advise::tokens::{Token, tokens};
use crate::model::sql::{quote_literal, quote_qualified};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection, OWN};

/// Statements, views and expressions that are read at the most, and characters of each.
const MOST_TEXTS: i64 = 5000;
const LONGEST_TEXT: i64 = 20_000;
/// What the views show in place of the text of another user's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// A text and how often it was run.
#[derive(Debug)]
struct Counted {
    text: String,
    calls: u64,
}

/// What is read for one table.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Why statements are not known.
    why_not: Option<String>,
    statements: Vec<Counted>,
    /// Statements of this database whose text this user may not see.
    unseen: u64,
    /// The statement that each session runs or ran last.
    sessions: Vec<String>,
    /// What the catalog has, with its text.
    named: Vec<(Named, String)>,
    table: String,
}

/// Asks the server. Nothing that fails here keeps the keys from being told.
pub(crate) async fn ask(connection: &Connection, relation: &Relation) -> Result<Known, LiveError> {
    let ask = async || known(connection.client(), relation).await;
    let mut known = connection.reading(ask).await?;
    // a transaction of its own, for it may fail
    let ask = async || statements(connection.client(), relation, &known.named).await;
    match connection.reading(ask).await? {
        Ok((statements, unseen)) => (known.statements, known.unseen) = (statements, unseen),
        Err(why) => known.why_not = Some(why),
    }
    Ok(known)
}

/// Where the catalog has texts that name columns of the table with the OID `$1`: names and texts.
fn catalog() -> [(NamedIn, String); 7] {
    let text = |text: &str| format!("pg_catalog.left({text}, {LONGEST_TEXT})");
    let views = format!(
        "SELECT DISTINCT v.relname::pg_catalog.text, {} \
         FROM pg_catalog.pg_depend AS d \
         JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid \
         JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm') \
         WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
         AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refobjid = $1 AND v.oid <> $1",
        text("pg_catalog.pg_get_viewdef(v.oid)")
    );
    let indexes = format!(
        "SELECT c.relname::pg_catalog.text, {} \
         FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
         WHERE i.indrelid = $1 AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)",
        text(
            "pg_catalog.concat_ws(' ', pg_catalog.pg_get_expr(i.indexprs, i.indrelid), \
             pg_catalog.pg_get_expr(i.indpred, i.indrelid))"
        )
    );
    let generated = format!(
        "SELECT a.attname::pg_catalog.text, {} FROM pg_catalog.pg_attribute AS a \
         JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE a.attrelid = $1 AND a.attgenerated <> '' AND NOT a.attisdropped",
        text("pg_catalog.pg_get_expr(d.adbin, d.adrelid)")
    );
    let policies = format!(
        "SELECT p.polname::pg_catalog.text, {} FROM pg_catalog.pg_policy AS p WHERE p.polrelid = $1",
        text(
            "pg_catalog.concat_ws(' ', pg_catalog.pg_get_expr(p.polqual, p.polrelid), \
             pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid))"
        )
    );
    let constraints = format!(
        "SELECT c.conname::pg_catalog.text, {} FROM pg_catalog.pg_constraint AS c \
         WHERE c.conrelid = $1 AND c.contype = 'c'",
        text("pg_catalog.pg_get_expr(c.conbin, c.conrelid)")
    );
    let functions = |which: &str| {
        format!(
            "SELECT f.name, f.source FROM (\
               SELECT p.oid, p.proname::pg_catalog.text AS name, {} AS source \
               FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang \
               WHERE l.lanname IN ('sql', 'plpgsql') AND p.pronamespace NOT IN \
                 ('pg_catalog'::pg_catalog.regnamespace, 'information_schema'::pg_catalog.regnamespace)\
             ) AS f WHERE {which}",
            text("COALESCE(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc)")
        )
    };
    let of_trigger =
        "EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgfoid = f.oid AND t.tgrelid = $1)";
    let by_name = "EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = $1 \
                   AND pg_catalog.strpos(pg_catalog.lower(f.source), pg_catalog.lower(c.relname)) > 0)";
    [
        (NamedIn::View, views),
        (NamedIn::Index, indexes),
        (NamedIn::GeneratedColumn, generated),
        (NamedIn::Policy, policies),
        (NamedIn::CheckConstraint, constraints),
        (NamedIn::TriggerFunction, functions(of_trigger)),
        (NamedIn::Function, functions(&format!("NOT {of_trigger} AND {by_name}"))),
    ]
}

async fn known(client: &Client, relation: &Relation) -> Result<Known, LiveError> {
    let mut named = Vec::new();
    for (kind, sql) in catalog() {
        let sql = format!("{sql} LIMIT {MOST_TEXTS}");
        for row in client.query_typed(&sql, &[(&relation.oid.0, Type::OID)]).await? {
            let name = row.try_get(0)?;
            let text: Option<String> = row.try_get(1)?;
            named.extend(text.map(|text| (Named { kind, name }, text)));
        }
    }
    let sql = format!(
        "SELECT pg_catalog.left(a.query, {LONGEST_TEXT}) FROM pg_catalog.pg_stat_activity AS a \
         WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid() \
         AND a.backend_type = 'client backend' AND a.query <> '' LIMIT {MOST_TEXTS}"
    );
    let sessions = client.query_typed(&sql, &[]).await?;
    let sessions: Result<Vec<String>, _> = sessions.iter().map(|row| row.try_get(0)).collect();
    let mut sessions = sessions?;
    sessions.retain(|text| text != HIDDEN && !text.contains(OWN));
    Ok(Known { named, sessions, table: relation.name.clone(), ..Known::default() })
}

/// The views among what is known, with their definitions.
fn views(named: &[(Named, String)]) -> impl Iterator<Item = (&str, &str)> {
    named
        .iter()
        .filter(|(named, _)| named.kind == NamedIn::View)
        .map(|(named, text)| (named.name.as_str(), text.as_str()))
}

/// Statements with the table's or a view's name in them, the most often run first; how many more there are whose
/// text may not be seen; or why they are not known.
async fn statements(
    client: &Client,
    relation: &Relation,
    named: &[(Named, String)],
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
    let mut names: Vec<String> = views(named).map(|(name, _)| name.to_lowercase()).collect();
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

/// What is known of one path's use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used {
    /// Calls of statements that name it.
    pub(crate) calls: u64,
    /// Sessions whose present or last statement does.
    pub(crate) sessions: u64,
    /// What names it in the catalog.
    pub(crate) named: BTreeSet<Named>,
}

/// A path and all that it passes through.
fn ways(path: &Path) -> impl Iterator<Item = Path> + '_ {
    (1..=path.len()).filter_map(|end| path.get(..end).map(<[_]>::to_vec))
}

/// All ways of some paths, each once.
fn all_ways(uses: &Uses) -> BTreeSet<Path> {
    uses.paths.iter().flat_map(ways).collect()
}

impl Known {
    /// Says in a report on a column which of its keys are used.
    pub(super) fn tell(&self, report: &mut KeysReport) {
        let (usage, by_path) = self.of_column(&report.column);
        let known = usage.why_not.is_none();
        for key in &mut report.keys {
            let used = by_path.get(&key.steps).cloned().unwrap_or_default();
            key.calls = known.then_some(used.calls);
            key.sessions = Some(used.sessions);
            key.named_in = used.named.into_iter().collect();
        }
        report.usage = Some(usage);
    }

    /// What is known of the use of a column's paths.
    pub(crate) fn of_column(&self, column: &str) -> (Usage, BTreeMap<Path, Used>) {
        let mut by_path: BTreeMap<Path, Used> = BTreeMap::new();
        let mut usage = Usage {
            statements: 0,
            calls: 0,
            hidden_calls: 0,
            unseen_statements: self.unseen,
            why_not: self.why_not.clone(),
        };
        let of_views: Vec<(&str, Uses)> = views(&self.named)
            .map(|(name, definition)| (name, uses(definition, column)))
            .filter(|(_, uses)| !uses.paths.is_empty())
            .collect();
        for Counted { text, calls } in &self.statements {
            let found = self.uses_of(text, column, &of_views);
            if found.paths.is_empty() && !found.hidden {
                continue;
            }
            usage.statements += 1;
            usage.calls = usage.calls.saturating_add(*calls);
            if found.hidden {
                usage.hidden_calls = usage.hidden_calls.saturating_add(*calls);
            }
            for path in all_ways(&found) {
                let used = by_path.entry(path).or_default();
                used.calls = used.calls.saturating_add(*calls);
            }
        }
        for text in &self.sessions {
            for path in all_ways(&self.uses_of(text, column, &of_views)) {
                by_path.entry(path).or_default().sessions += 1;
            }
        }
        for (named, text) in &self.named {
            let uses = match named.kind {
                NamedIn::Function => self.uses_of(text, column, &of_views),
                _ => uses(text, column),
            };
            for path in all_ways(&uses) {
                by_path.entry(path).or_default().named.insert(named.clone());
            }
        }
        (usage, by_path)
    }

    /// Those of a statement that names the table, and of the views that it names.
    fn uses_of(&self, text: &str, column: &str, views: &[(&str, Uses)]) -> Uses {
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
