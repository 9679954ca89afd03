//! The keys of documents that the catalog names: in expressions of indexes and generated columns, and in views.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tokio_postgres::types::Type;

use super::statements::{LONGEST_TEXT, MOST_TEXTS, Token, tokens};
use crate::server::{Connection, LiveError, Relation};

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
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            NamedIn::Index => "index",
            NamedIn::GeneratedColumn => "generated column",
            NamedIn::View => "view",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A path of keys; elements of arrays are `None`.
pub(crate) type Path = Vec<Option<String>>;

/// The expressions and views of the catalog that belong to one table, with their texts.
#[derive(Debug, Default)]
pub(crate) struct KnownUses(Vec<(Named, String)>);

impl KnownUses {
    pub(crate) async fn ask(
        connection: &Connection,
        relation: &Relation,
    ) -> Result<KnownUses, LiveError> {
        let client = connection.client();
        connection
            .reading(async || {
                let mut found = Vec::new();
                for (kind, sql) in CATALOG {
                    let sql = format!(
                        "SELECT n.name, pg_catalog.left(n.source, {LONGEST_TEXT}) \
                         FROM ({sql}) AS n (name, source) LIMIT {MOST_TEXTS}"
                    );
                    let rows = client.query_typed(&sql, &[(&relation.oid.0, Type::OID)]).await?;
                    for row in rows {
                        let name = row.try_get(0)?;
                        let text: Option<String> = row.try_get(1)?;
                        found.extend(text.map(|text| (Named { kind, name }, text)));
                    }
                }
                Ok(KnownUses(found))
            })
            .await
    }

    /// What names each path of a column, and each part from the root of such a path.
    pub(crate) fn by_path(&self, column: &str) -> BTreeMap<Path, BTreeSet<Named>> {
        let mut by_path: BTreeMap<Path, BTreeSet<Named>> = BTreeMap::new();
        for (named, text) in &self.0 {
            for path in paths(text, column) {
                for end in 1..=path.len() {
                    by_path.entry(path[..end].to_vec()).or_default().insert(named.clone());
                }
            }
        }
        by_path
    }
}

/// Queries for names and texts that may name columns of the table with the OID `$1`.
const CATALOG: [(NamedIn, &str); 3] = [
    (
        NamedIn::View,
        "SELECT DISTINCT v.relname::pg_catalog.text, pg_catalog.pg_get_viewdef(v.oid) \
         FROM pg_catalog.pg_depend AS d \
         JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid \
         JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm') \
         WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
         AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refobjid = $1 AND v.oid <> $1",
    ),
    (
        NamedIn::Index,
        "SELECT c.relname::pg_catalog.text, pg_catalog.concat_ws(' ', \
                pg_catalog.pg_get_expr(i.indexprs, i.indrelid), pg_catalog.pg_get_expr(i.indpred, i.indrelid)) \
         FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
         WHERE i.indrelid = $1 AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)",
    ),
    (
        NamedIn::GeneratedColumn,
        "SELECT a.attname::pg_catalog.text, pg_catalog.pg_get_expr(d.adbin, d.adrelid) \
         FROM pg_catalog.pg_attribute AS a \
         JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE a.attrelid = $1 AND a.attgenerated <> '' AND NOT a.attisdropped",
    ),
];

/// The paths of a column's documents in an expression as the server prints it, such as
/// `((doc -> 'a'::text) ->> 'b'::text)`, without those that they pass through.
fn paths(text: &str, column: &str) -> BTreeSet<Path> {
    let tokens = tokens(text);
    let mut paths = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_name(column) {
            add_paths(&tokens[at + 1..], &mut paths);
        }
    }
    paths.remove(&Path::new());
    paths
}

/// Adds what follows a mention of the column: steps, each by an operator or a subscript.
fn add_paths(mut rest: &[Token], paths: &mut BTreeSet<Path>) {
    let mut path = Path::new();
    loop {
        rest = after_cast(rest);
        // The server prints each step in parentheses.
        let closed = rest.iter().take_while(|token| **token == Token::Symbol(')')).count();
        rest = after_cast(&rest[closed..]);
        match rest {
            // An attribute of a composite value: (c).a
            [Token::Symbol('.'), Token::Word { text, .. }, behind @ ..] if closed > 0 => {
                path.push(Some(text.clone()));
                rest = behind;
                continue;
            }
            [Token::Symbol('['), step, behind @ ..] if is_step(step) => {
                path.push(key(step));
                let [Token::Symbol(']'), behind @ ..] = after_cast(behind) else { break };
                rest = behind;
                continue;
            }
            _ => {}
        }
        let mut operator = String::new();
        for token in rest {
            match token {
                Token::Symbol(c) if "-><#@?|&".contains(*c) => operator.push(*c),
                _ => break,
            }
        }
        let behind = &rest[operator.len()..];
        let Some(operand) = behind.first() else { break };
        match (operator.as_str(), operand) {
            ("->" | "->>", step) if is_step(step) => {
                path.push(key(step));
                rest = &behind[1..];
                continue;
            }
            ("#>" | "#>>", Token::Text(list)) => path.extend(elements(list)),
            ("?", Token::Text(key)) => path.push(Some(key.clone())),
            ("@>", Token::Text(document)) => {
                if let Ok(document) = serde_json::from_str(document) {
                    return add_contained(&document, path, paths);
                }
            }
            _ => {}
        }
        break;
    }
    paths.insert(path);
}

fn is_step(token: &Token) -> bool {
    matches!(token, Token::Text(_) | Token::Number)
}

fn key(step: &Token) -> Option<String> {
    if let Token::Text(key) = step { Some(key.clone()) } else { None }
}

/// What follows a cast: `::text`, `::text[]`, `::pg_catalog.text`.
fn after_cast(mut rest: &[Token]) -> &[Token] {
    while let [Token::Symbol(':'), Token::Symbol(':'), _, behind @ ..] = rest {
        rest = behind;
        while let [Token::Symbol('.'), _, behind @ ..] = rest {
            rest = behind;
        }
        if let [Token::Symbol('['), Token::Symbol(']'), behind @ ..] = rest {
            rest = behind;
        }
    }
    rest
}

/// The elements of an array's text, `{a,b,0}`. A number is taken for a position.
fn elements(list: &str) -> Path {
    let inner = list.trim().trim_start_matches('{').trim_end_matches('}');
    let elements = inner.split(',').map(|element| element.trim().trim_matches('"'));
    elements
        .filter(|element| !element.is_empty())
        .map(|element| if element.parse::<i64>().is_ok() { None } else { Some(element.to_owned()) })
        .collect()
}

/// The paths of a document that must be contained.
fn add_contained(document: &serde_json::Value, path: Path, paths: &mut BTreeSet<Path>) {
    match document {
        serde_json::Value::Object(pairs) if !pairs.is_empty() => {
            for (key, value) in pairs {
                add_contained(value, [&path[..], &[Some(key.clone())]].concat(), paths);
            }
        }
        serde_json::Value::Array(values) if !values.is_empty() => {
            for value in values {
                add_contained(value, [&path[..], &[None]].concat(), paths);
            }
        }
        _ => {
            paths.insert(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut shown = Vec::new();
        for path in paths(text, "js") {
            let steps: Vec<&str> =
                path.iter().map(|step| step.as_deref().unwrap_or("[]")).collect();
            shown.push(steps.join("."));
        }
        shown.join(" ")
    }

    #[test]
    fn keys_of_expressions_as_the_server_prints_them() {
        for (text, expected) in [
            ("((js -> 'a'::text) ->> 'b'::text)", "a.b"),
            ("(((js ->> 'n'::text))::integer)", "n"),
            (
                " SELECT t.id, (t.js ->> 'a'::text) AS a, ((js -> 'b'::text) -> 'c'::text) FROM t",
                "a b.c",
            ),
            ("(((\"js\" -> 'a'::text) -> 0) ->> 'b'::text)", "a.[].b"),
            ("(js #> '{a,b}'::text[]) (js #>> '{c,0}'::text[])", "a.b c.[]"),
            ("(js @> '{\"a\": 1, \"b\": {\"c\": [1]}}'::jsonb)", "a b.c.[]"),
            ("(js ? 'a'::text)", "a"),
            ("((js['a'::text])['b'::text])", "a.b"),
            ("(js).a ((t.js).b).c", "a b.c"),
            ("js", ""),
            ("(other -> 'a'::text), 'js -> b'", ""),
            ("(js - 'a'::text)", ""),
            ("(js @> 'no json'::jsonb), js ->", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
