//! Which keys of a column a text of SQL uses (pure): a guess by its words. A view of statements such as
//! `pg_stat_statements` shows most constants as parameters, so that the key is often not to be seen.

use std::collections::BTreeSet;

use crate::advise::tokens::{Token, tokens};

/// A path of keys; elements of arrays are `None`.
pub(crate) type Path = Vec<Option<String>>;

/// What a text says of a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Uses {
    /// Each path once, without those that it passes through.
    pub(super) paths: BTreeSet<Path>,
    /// Whether it uses a key that a parameter stands for.
    pub(super) hidden: bool,
}

/// Operators that take a key or a position.
const STEP: [&str; 2] = ["->", "->>"];
/// Those that take a list of them.
const LIST: [&str; 2] = ["#>", "#>>"];
/// Those that take keys, of which any or all must be there.
const EXISTS: [&str; 3] = ["?", "?|", "?&"];
/// Those that take a path of jsonpath.
const JSONPATH: [&str; 2] = ["@?", "@@"];

/// The keys of the column with this name in a text.
pub(super) fn uses(text: &str, column: &str) -> Uses {
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
