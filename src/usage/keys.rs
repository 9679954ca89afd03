//! What the server knows of the use of keys: statements that were counted, those that sessions run now or ran last,
//! and what names keys in its catalog: views, expressions of indexes and generated columns, policies, check
//! constraints and functions.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use serde::Serialize;

use super::statements::{HIDDEN, LONGEST_TEXT, MOST_TEXTS, Statements, Token, tokens};
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::server::connect::{Client, Connection, OWN};

/// Something in the catalog whose text names a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct Named {
    pub kind: NamedIn,
    /// Its name, without schema.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NamedIn {
    /// In an expression or a predicate.
    Index,
    GeneratedColumn,
    View,
    Policy,
    CheckConstraint,
    /// Of one of the table's triggers, in PL/pgSQL.
    TriggerFunction,
    /// In SQL or PL/pgSQL, with the table's name in its text.
    Function,
}

impl std::fmt::Display for Named {
    /// `index by_state`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.words(), self.name)
    }
}

impl NamedIn {
    /// The words for it.
    pub fn words(self) -> &'static str {
        match self {
            NamedIn::Index => "index",
            NamedIn::GeneratedColumn => "generated column",
            NamedIn::View => "view",
            NamedIn::Policy => "policy",
            NamedIn::CheckConstraint => "check constraint",
            NamedIn::TriggerFunction => "trigger function",
            NamedIn::Function => "function",
        }
    }
}

/// What `pg_stat_statements` shows about the column's keys.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Usage {
    /// Statements that use a key, by their text or by a view that they name.
    pub statements: u64,
    pub calls: u64,
    /// Of these, calls of statements in which the key is a parameter, because `pg_stat_statements` replaces constants.
    pub hidden_calls: u64,
    /// Statements of the database whose text this user may not see.
    pub unseen_statements: u64,
    /// Why statements are not known.
    pub why_not: Option<String>,
}

/// What is read for one table.
#[derive(Debug, Default)]
pub(crate) struct KnownUses {
    statements: Option<Statements>,
    /// The statement that each session runs or ran last.
    sessions: Vec<String>,
    /// What the catalog has, with its text.
    named: Vec<(Named, String)>,
    table: String,
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

async fn ask_catalog(client: &Client, relation: &Relation) -> Result<KnownUses, LiveError> {
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
    Ok(KnownUses { statements: None, sessions, named, table: relation.name.clone() })
}

/// The views among what is known, with their definitions.
fn views(named: &[(Named, String)]) -> impl Iterator<Item = (&str, &str)> {
    named
        .iter()
        .filter(|(named, _)| named.kind == NamedIn::View)
        .map(|(named, text)| (named.name.as_str(), text.as_str()))
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

impl KnownUses {
    /// Asks the server.
    ///
    /// # Errors
    /// The server's; statements that cannot be read are none.
    pub(crate) async fn ask(
        connection: &Connection,
        relation: &Relation,
    ) -> Result<KnownUses, LiveError> {
        let ask = async || ask_catalog(connection.client(), relation).await;
        let mut known = connection.reading(ask).await?;
        let views: Vec<&str> = views(&known.named).map(|(name, _)| name).collect();
        // a transaction of its own, for it may fail
        let ask = async || Statements::ask(connection.client(), relation, &views).await;
        known.statements = Some(connection.reading(ask).await?);
        Ok(known)
    }

    /// What is known of the use of a column's paths.
    pub(crate) fn of_column(&self, column: &str) -> (Usage, BTreeMap<Path, Used>) {
        let mut by_path: BTreeMap<Path, Used> = BTreeMap::new();
        let (list, unseen_statements, why_not) = match &self.statements {
            None => (&[][..], 0, None),
            Some(Statements::Read { list, hidden, .. }) => (&list[..], *hidden, None),
            Some(Statements::NotInstalled) => {
                let why = "the extension pg_stat_statements is not installed in this database";
                (&[][..], 0, Some(why.to_owned()))
            }
            Some(Statements::Unreadable(message)) => {
                (&[][..], 0, Some(format!("pg_stat_statements cannot be read: {message}")))
            }
        };
        let mut usage =
            Usage { statements: 0, calls: 0, hidden_calls: 0, unseen_statements, why_not };
        let of_views: Vec<(&str, Uses)> = views(&self.named)
            .map(|(name, definition)| (name, uses(definition, column)))
            .filter(|(_, uses)| !uses.paths.is_empty())
            .collect();
        for statement in list.iter().filter(|statement| !statement.is_own()) {
            let found = self.uses_of(&statement.query, column, &of_views);
            if found.paths.is_empty() && !found.hidden {
                continue;
            }
            usage.statements += 1;
            usage.calls = usage.calls.saturating_add(statement.calls);
            if found.hidden {
                usage.hidden_calls = usage.hidden_calls.saturating_add(statement.calls);
            }
            for path in all_ways(&found) {
                let used = by_path.entry(path).or_default();
                used.calls = used.calls.saturating_add(statement.calls);
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

/// A path of keys; elements of arrays are `None`.
pub(crate) type Path = Vec<Option<String>>;

/// What a text says of a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Uses {
    /// Each path once, without those that it passes through.
    paths: BTreeSet<Path>,
    /// Whether it uses a key that a parameter stands for.
    hidden: bool,
}

/// Operators that take a key or a position.
const STEP: [&str; 2] = ["->", "->>"];
/// Those that take a list of them.
const LIST: [&str; 2] = ["#>", "#>>"];
/// Those that take keys, of which any or all must be there.
const EXISTS: [&str; 3] = ["?", "?|", "?&"];
/// Those that take a path of jsonpath.
const JSONPATH: [&str; 2] = ["@?", "@@"];

/// The keys of the column with this name that a text uses: a guess by its words. A view of statements such as
/// `pg_stat_statements` shows most constants as parameters, so that the key is often not to be seen.
fn uses(text: &str, column: &str) -> Uses {
    let tokens = tokens(text);
    let mut found = Uses::default();
    for at in 0..tokens.len() {
        if tokens.get(at).is_some_and(|token| token.is_name(column)) {
            chain(&tokens, at + 1, &mut found);
            argument(&tokens, at, &mut found);
        }
    }
    found
}

/// What follows a mention of the column: steps, each by an operator or in brackets.
fn chain(tokens: &[Token], mut at: usize, found: &mut Uses) {
    let mut path: Path = Vec::new();
    let symbol = |at: usize, c: char| tokens.get(at) == Some(&Token::Symbol(c));
    loop {
        // as the server prints expressions, each step is in parentheses; or there is a cast
        let closed = symbol(at, ')');
        while symbol(at, ')') {
            at += 1;
        }
        // an attribute of a composite value: (c).a
        if let (true, true, Some(Token::Word { text, .. })) =
            (closed, symbol(at, '.'), tokens.get(at + 1))
        {
            path.push(Some(text.clone()));
            at += 2;
            continue;
        }
        at = cast(tokens, at);
        if symbol(at, '[') {
            match step(tokens.get(at + 1)) {
                Step::Known(step) => path.push(step),
                Step::Hidden => return end(path, true, found),
                Step::None => break,
            }
            at = cast(tokens, at + 2);
            if !symbol(at, ']') {
                break;
            }
            at += 1;
            continue;
        }
        let (operator, next) = operator(tokens, at);
        let operand = tokens.get(next);
        if STEP.contains(&operator.as_str()) {
            match step(operand) {
                Step::Known(step) => path.push(step),
                Step::Hidden => return end(path, true, found),
                Step::None => break,
            }
            at = cast(tokens, next + 1);
            if operator == "->>" {
                break;
            }
            continue;
        }
        let hidden = matches!(operand, Some(Token::Parameter));
        match (operator.as_str(), operand) {
            (name, Some(Token::Text(text))) if LIST.contains(&name) => {
                path.extend(list(text));
            }
            (name, Some(Token::Text(text))) if EXISTS.contains(&name) => {
                let keys = if name == "?" { vec![Some(text.clone())] } else { list(text) };
                for key in keys {
                    let mut path = path.clone();
                    path.push(key);
                    end(path, false, found);
                }
                return;
            }
            (name, Some(Token::Text(text))) if JSONPATH.contains(&name) => {
                jsonpath(text, &path, found);
                return;
            }
            ("@>", Some(Token::Text(text))) => {
                match serde_json::from_str(text) {
                    Ok(value) => contained(&value, &path, found),
                    Err(_) => pairs(text, &path, found),
                }
                return;
            }
            (name, _) if hidden && uses_keys(name) => return end(path, true, found),
            _ => {}
        }
        break;
    }
    end(path, false, found);
}

fn uses_keys(operator: &str) -> bool {
    operator == "@>"
        || [&LIST[..], &EXISTS, &JSONPATH].iter().any(|names| names.contains(&operator))
}

fn end(path: Path, hidden: bool, found: &mut Uses) {
    found.hidden |= hidden;
    if !path.is_empty() {
        found.paths.insert(path);
    }
}

/// The functions that take a column and then keys or a path.
fn argument(tokens: &[Token], at: usize, found: &mut Uses) {
    // the column may be qualified
    let qualified = at.checked_sub(1).and_then(|at| tokens.get(at)) == Some(&Token::Symbol('.'));
    let first = if qualified { at.checked_sub(2) } else { Some(at) };
    let before =
        |by: usize| first.and_then(|first| first.checked_sub(by)).and_then(|at| tokens.get(at));
    if before(1) != Some(&Token::Symbol('(')) {
        return;
    }
    let Some(Token::Word { text: function, .. }) = before(2) else { return };
    let arguments = arguments(tokens, at + 1);
    let hidden = arguments.first().is_some_and(|first| matches!(first, Token::Parameter));
    match (function.as_str(), arguments.first()) {
        ("jsonb_extract_path" | "jsonb_extract_path_text", Some(_)) => {
            let mut path = Vec::new();
            for argument in &arguments {
                match argument {
                    Token::Text(key) => path.push(Some(key.clone())),
                    _ => break,
                }
            }
            end(path, hidden, found);
        }
        ("exist" | "defined" | "fetchval", Some(Token::Text(key))) => {
            end(vec![Some(key.clone())], false, found);
        }
        ("jsonb_set" | "jsonb_insert" | "jsonb_set_lax", Some(Token::Text(text))) => {
            end(list(text), false, found);
        }
        (name, Some(Token::Text(text))) if name.starts_with("jsonb_path_") => {
            jsonpath(text, &[], found);
        }
        (name, Some(Token::Parameter))
            if name.starts_with("jsonb_path_") || name.starts_with("jsonb_set") =>
        {
            found.hidden = true;
        }
        _ => {}
    }
}

/// What stands behind the commas that follow, up to the closing parenthesis.
fn arguments(tokens: &[Token], mut at: usize) -> Vec<Token> {
    let mut found = Vec::new();
    while tokens.get(at) == Some(&Token::Symbol(',')) {
        let Some(argument) = tokens.get(at + 1) else { break };
        found.push(argument.clone());
        at = cast(tokens, at + 2);
    }
    found
}

enum Step {
    Known(Option<String>),
    /// A parameter stands there.
    Hidden,
    None,
}

fn step(token: Option<&Token>) -> Step {
    match token {
        Some(Token::Text(key)) => Step::Known(Some(key.clone())),
        Some(Token::Number) => Step::Known(None),
        Some(Token::Parameter) => Step::Hidden,
        _ => Step::None,
    }
}

/// Steps over a cast: `::text`, `::text[]`, `::pg_catalog.text`.
fn cast(tokens: &[Token], mut at: usize) -> usize {
    let symbol = |at: usize, c: char| tokens.get(at) == Some(&Token::Symbol(c));
    while symbol(at, ':') && symbol(at + 1, ':') {
        at += 3;
        while symbol(at, '.') {
            at += 2;
        }
        if symbol(at, '[') && symbol(at + 1, ']') {
            at += 2;
        }
    }
    at
}

/// The operator that begins at a token, and where it ends.
fn operator(tokens: &[Token], at: usize) -> (String, usize) {
    let signs = |token: &&Token| matches!(token, Token::Symbol(c) if "-><#@?|&=".contains(*c));
    let text: String = tokens
        .get(at..)
        .unwrap_or_default()
        .iter()
        .take_while(signs)
        .filter_map(|token| if let Token::Symbol(c) = token { Some(*c) } else { None })
        .collect();
    let next = at + text.chars().count();
    (text, next)
}

/// The elements of an array's text: `{a,b,0}`. Numbers may be positions or keys.
fn list(text: &str) -> Path {
    let Some(inner) = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
        return Vec::new();
    };
    let element = |text: &str| {
        let text = text.trim().trim_matches('"');
        let position = text.parse::<i64>().is_ok();
        (!position).then(|| text.to_owned())
    };
    inner.split(',').filter(|text| !text.trim().is_empty()).map(element).collect()
}

/// The paths of a document that must be contained.
fn contained(value: &serde_json::Value, before: &[Option<String>], found: &mut Uses) {
    let deeper = |step: Option<String>| {
        let mut path = before.to_vec();
        path.push(step);
        path
    };
    match value {
        serde_json::Value::Object(pairs) if !pairs.is_empty() => {
            for (key, value) in pairs {
                contained(value, &deeper(Some(key.clone())), found);
            }
        }
        serde_json::Value::Array(values) if !values.is_empty() => {
            for value in values {
                contained(value, &deeper(None), found);
            }
        }
        _ => end(before.to_vec(), false, found),
    }
}

/// The keys of an `hstore` that must be contained: `a=>1, "b"=>"2"`.
fn pairs(text: &str, before: &[Option<String>], found: &mut Uses) {
    for pair in text.split(',') {
        if let Some((key, _)) = pair.split_once("=>") {
            let mut path = before.to_vec();
            path.push(Some(key.trim().trim_matches('"').to_owned()));
            end(path, false, found);
        }
    }
}

/// The paths that begin with `$` in a text of jsonpath; those of `@` go on from where the filter stands.
fn jsonpath(text: &str, before: &[Option<String>], found: &mut Uses) {
    let mut rest = text;
    let mut outer: Path = before.to_vec();
    while let Some(at) = rest.find(['$', '@']) {
        let root = rest.get(at..).is_some_and(|rest| rest.starts_with('$'));
        rest = rest.get(at + 1..).unwrap_or_default();
        let mut path = if root { before.to_vec() } else { outer.clone() };
        loop {
            if let Some(after) = rest.strip_prefix('[') {
                rest = after.split_once(']').map_or("", |(_, after)| after);
                path.push(None);
            } else if let Some(after) = rest.strip_prefix(".\"") {
                let (key, after) = after.split_once('"').unwrap_or((after, ""));
                path.push(Some(key.to_owned()));
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                let name = |c: char| c.is_alphanumeric() || c == '_';
                let end = after.find(|c| !name(c)).unwrap_or(after.len());
                let (key, after) = after.split_at(end);
                // a method, or any key
                if key.is_empty() || after.starts_with('(') {
                    rest = after;
                    break;
                }
                path.push(Some(key.to_owned()));
                rest = after;
            } else {
                break;
            }
        }
        if root {
            outer.clone_from(&path);
        }
        end(path, false, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths, and `?` for a hidden key.
    fn shown(text: &str) -> String {
        let found = uses(text, "js");
        let path = |path: &Path| {
            let steps: Vec<&str> =
                path.iter().map(|step| step.as_deref().unwrap_or("[]")).collect();
            steps.join(".")
        };
        let mut shown: Vec<String> = found.paths.iter().map(path).collect();
        if found.hidden {
            shown.push("?".into());
        }
        shown.join(" ")
    }

    #[test]
    fn keys_are_found_by_every_operator() {
        for (text, expected) in [
            ("SELECT js -> 'a' FROM t", "a"),
            ("SELECT t.js->>'a', js -> 'b' -> 'c' FROM t", "a b.c"),
            ("SELECT \"js\" -> 'a' -> 0 ->> 'b' FROM t", "a.[].b"),
            ("SELECT js #> '{a,b}', js #>> '{c,0}'::text[] FROM t", "a.b c.[]"),
            ("SELECT 1 FROM t WHERE js @> '{\"a\": 1, \"b\": {\"c\": [1]}}'", "a b.c.[]"),
            ("SELECT 1 FROM t WHERE js ? 'a' OR js ?| '{b,c}'", "a b c"),
            ("SELECT js['a']['b'] FROM t", "a.b"),
            ("SELECT js @? '$.a[*].b ? (@.c > 1)' FROM t", "a.[].b a.[].b.c"),
            ("SELECT jsonb_path_query(t.js, '$.\"a b\".c.size()') FROM t", "a b.c"),
            ("SELECT jsonb_extract_path_text(js, 'a', 'b') FROM t", "a.b"),
            ("UPDATE t SET js = jsonb_set(js, '{a,b}', '1')", "a.b"),
            // composite types
            ("SELECT (js).a, ((t.js).b).c FROM t", "a b.c"),
            // hstore
            ("SELECT exist(js, 'a') FROM t WHERE js @> 'b=>1, \"c d\"=>\"2\"'", "a b c d"),
            // as the server prints expressions
            ("((js -> 'a'::text) ->> 'b'::text)", "a.b"),
            ("(((js ->> 'n'::text))::integer)", "n"),
            // parameters hide keys, but not those before them
            ("SELECT js -> $1, js -> 'a' -> $2 FROM t WHERE js @> $3", "a ?"),
            ("SELECT js FROM t WHERE id = $1", ""),
            ("SELECT other -> 'a', 'js -> b' FROM t -- js -> 'c'", ""),
            ("SELECT js - 'a' FROM t", ""),
            ("SELECT js @> 'no json', js -> FROM t", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
