//! Connection strings: `key=value` pairs and URIs (`conninfo_parse` and `conninfo_uri_parse` in `fe-connect.c`).
//!
//! No message repeats text that could be, or contain, a password.

use super::params::is_keyword;
use super::{ConnectError, ConnectResult, Params};

const URI_PREFIXES: [&str; 2] = ["postgresql://", "postgres://"];

/// Whether `dbname` is a connection string rather than the name of a database.
pub fn is_connection_string(dbname: &str) -> bool {
    uri_rest(dbname).is_some() || dbname.contains('=') || is_of_other_kind(dbname)
}

/// Whether it is a URL of something else, which may hold a password: `mysql://`, `jdbc:`.
pub(crate) fn is_of_other_kind(text: &str) -> bool {
    uri_rest(text).is_none()
        && text.split_once(':').is_some_and(|(scheme, rest)| {
            let is_word = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            is_word && !scheme.is_empty() && (rest.starts_with("//") || scheme == "jdbc")
        })
}

/// The connection strings that there are.
pub(crate) const KINDS: &str =
    "Write postgresql://USER@HOST:PORT/DATABASE, or 'host=HOST port=PORT dbname=DATABASE'.";

/// Whether a word that should be something else begins as a connection string does.
pub(crate) fn begins_connection_string(word: &str) -> bool {
    let keyword = word.split_once('=').map(|(keyword, _)| keyword.trim());
    uri_rest(word).is_some() || is_of_other_kind(word) || keyword.is_some_and(is_keyword)
}

/// Parses a connection string of either kind.
///
/// # Errors
/// It is malformed, or names an unknown parameter.
pub(crate) fn parse(text: &str) -> ConnectResult<Params> {
    match uri_rest(text) {
        Some(rest) => parse_uri(rest),
        None if is_of_other_kind(text) => {
            Err(ConnectError::usage_with_hint("the connection string is of an unknown kind", KINDS))
        }
        None => parse_pairs(text),
    }
}

fn uri_rest(text: &str) -> Option<&str> {
    URI_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix))
}

/// `host=a port = 5432 password='it\'s'`: spaces around `=` are allowed, and a backslash escapes the next character.
fn parse_pairs(text: &str) -> ConnectResult<Params> {
    let mut params = Params::default();
    let mut rest = text.trim_start_matches(is_c_space);
    while !rest.is_empty() {
        let name_end = rest.find(|c| c == '=' || is_c_space(c)).unwrap_or(rest.len());
        let name = &rest[..name_end];
        rest = rest[name_end..].trim_start_matches(is_c_space);
        let Some(after) = rest.strip_prefix('=') else {
            // This text may be the rest of an unquoted password.
            let shown = if params.is_given("password") { "…" } else { name };
            return Err(ConnectError::usage(format!(
                "missing \"=\" after \"{shown}\" in connection info string"
            )));
        };
        rest = after.trim_start_matches(is_c_space);
        let (value, after) = take_value(rest)?;
        params.set(name, value)?;
        rest = after.trim_start_matches(is_c_space);
    }
    Ok(params)
}

/// Returns the value at the start of `text`, and the rest.
fn take_value(text: &str) -> ConnectResult<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            _ if !quoted && is_c_space(c) => return Ok((value, &text[at..])),
            _ => value.push(c),
        }
    }
    if quoted {
        return Err(ConnectError::usage("unterminated quoted string in connection info string"));
    }
    Ok((value, ""))
}

/// `isspace` in the C locale.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// Parses what follows the scheme in `postgresql://[user[:password]@][host][:port][,...][/dbname][?name=value[&...]]`.
fn parse_uri(rest: &str) -> ConnectResult<Params> {
    let mut params = Params::default();
    let authority_end = rest.find(['@', '/']).filter(|&end| rest[end..].starts_with('@'));
    let mut rest = rest;
    if let Some(end) = authority_end {
        let (user, password) = match rest[..end].split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (&rest[..end], None),
        };
        if !user.is_empty() {
            params.set("user", decode(user, user)?)?;
        }
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            params.set("password", decode(password, "…")?)?;
        }
        rest = &rest[end + 1..];
    }

    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    let (servers, mut rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    for server in servers.split(',') {
        let (host, port) = match server.strip_prefix('[') {
            Some(bracketed) => bracketed_host(bracketed)?,
            None => server.split_once(':').unwrap_or((server, "")),
        };
        // In this case it is not a port but the beginning of a password.
        if rest.contains('@') && !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ConnectError::usage_with_hint(
                "invalid port in URI",
                "A \"/\" in a user name or password is written \"%2F\".",
            ));
        }
        hosts.push(decode(host, host)?);
        ports.push(decode(port, port)?);
    }
    for (keyword, list) in [("host", hosts), ("port", ports)] {
        let list = list.join(",");
        if !list.is_empty() {
            params.set(keyword, list)?;
        }
    }

    if let Some(after) = rest.strip_prefix('/') {
        let end = after.find('?').unwrap_or(after.len());
        if end > 0 {
            params.set("dbname", decode(&after[..end], &after[..end])?)?;
        }
        rest = &after[end..];
    }
    if let Some(query) = rest.strip_prefix('?') {
        parse_query(query, &mut params)?;
    }
    Ok(params)
}

/// Splits `::1]:5432`, what follows an opening bracket, into host and port.
fn bracketed_host(text: &str) -> ConnectResult<(&str, &str)> {
    let Some((host, after)) = text.split_once(']') else {
        return Err(ConnectError::usage(
            "end of string reached when looking for matching \"]\" in IPv6 host address in URI",
        ));
    };
    if host.is_empty() {
        return Err(ConnectError::usage("IPv6 host address may not be empty in URI"));
    }
    match after.chars().next() {
        None => Ok((host, "")),
        Some(':') => Ok((host, &after[1..])),
        Some(c) => Err(ConnectError::usage(format!(
            "unexpected character \"{c}\" after \"]\" in URI (expected \":\" or \"/\")"
        ))),
    }
}

fn parse_query(query: &str, params: &mut Params) -> ConnectResult<()> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ConnectError::usage(format!(
                "missing key/value separator \"=\" in URI query parameter: \"{pair}\""
            )));
        };
        let name = decode(name, name)?;
        if value.contains('=') {
            return Err(ConnectError::usage(format!(
                "extra key/value separator \"=\" in URI query parameter: \"{name}\""
            )));
        }
        let shown = if name.contains("password") { "…" } else { value };
        let value = decode(value, shown)?;
        if name == "ssl" && value == "true" {
            // JDBC uses this spelling.
            params.set("sslmode", "require")?;
        } else if params.set(&name, value).is_err() {
            return Err(ConnectError::usage(format!("invalid URI query parameter: \"{name}\"")));
        }
    }
    Ok(())
}

/// Decodes `%xx`. `shown`: the token as a message may have it.
fn decode(token: &str, shown: &str) -> ConnectResult<String> {
    let invalid = || ConnectError::usage(format!("invalid percent-encoded token: \"{shown}\""));
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let [high, low, after @ ..] = tail else { return Err(invalid()) };
        let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) else {
            return Err(invalid());
        };
        if high == 0 && low == 0 {
            return Err(ConnectError::usage(format!(
                "forbidden value %00 in percent-encoded value: \"{shown}\""
            )));
        }
        bytes.push(high * 16 + low);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(text: &str, keyword: &str) -> Option<String> {
        parse(text).unwrap().get(keyword).map(str::to_owned)
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn pairs_follow_libpqs_quoting() {
        let text = r"  host = /tmp  port=5433 user='o\'brien \\' password=a\ b\c options=''";
        assert_eq!(get(text, "host").as_deref(), Some("/tmp"));
        assert_eq!(get(text, "port").as_deref(), Some("5433"));
        assert_eq!(get(text, "user").as_deref(), Some(r"o'brien \"));
        assert_eq!(get(text, "password").as_deref(), Some("a bc"));
        assert_eq!(get(text, "options"), None);
        assert!(parse(text).unwrap().is_given("options"));
    }

    #[test]
    fn malformed_pairs_are_named() {
        assert_eq!(error("host=a port"), "missing \"=\" after \"port\" in connection info string");
        assert_eq!(error("user='a"), "unterminated quoted string in connection info string");
        assert_eq!(error("hots=a"), "invalid connection option \"hots\"");
        assert!(!error("password=open sesame").contains("sesame"));
    }

    #[test]
    fn uris_have_all_their_parts() {
        let text = "postgresql://us%20er:p%40ss:w@[::1]:5433,db.example.com,:1/my%2Fdb?connect_timeout=3&&ssl=true";
        for (keyword, value) in [
            ("user", "us er"),
            ("password", "p@ss:w"),
            ("host", "::1,db.example.com,"),
            ("port", "5433,,1"),
            ("dbname", "my/db"),
            ("connect_timeout", "3"),
            ("sslmode", "require"),
        ] {
            assert_eq!(get(text, keyword).as_deref(), Some(value), "{keyword}");
        }
    }

    #[test]
    fn short_uris_leave_the_rest_to_the_defaults() {
        assert_eq!(parse("postgres://").unwrap(), Params::default());
        assert_eq!(get("postgresql:///db?host=/tmp/x&port=9", "host").as_deref(), Some("/tmp/x"));
        assert_eq!(get("postgresql://%2Ftmp%2Fx/db", "host").as_deref(), Some("/tmp/x"));
        assert_eq!(get("postgresql://h?user=a", "host").as_deref(), Some("h"));
        assert_eq!(get("postgresql://h/?user=a@b", "user").as_deref(), Some("a@b"));
        assert_eq!(get("postgresql://h/d?application_name=a@b", "host").as_deref(), Some("h"));
    }

    #[test]
    fn malformed_uris_are_named_without_their_password() {
        assert_eq!(error("postgres://h/%zz"), "invalid percent-encoded token: \"%zz\"");
        assert_eq!(error("postgres://u:se%@h/"), "invalid percent-encoded token: \"…\"");
        assert_eq!(
            error("postgres://h/a%00"),
            "forbidden value %00 in percent-encoded value: \"a%00\""
        );
        assert_eq!(
            error("postgres://[::1"),
            "end of string reached when looking for matching \"]\" in IPv6 host address in URI"
        );
        assert_eq!(error("postgres://[]/"), "IPv6 host address may not be empty in URI");
        assert_eq!(
            error("postgres://[::1]x"),
            "unexpected character \"x\" after \"]\" in URI (expected \":\" or \"/\")"
        );
        assert_eq!(
            error("postgres://h?user"),
            "missing key/value separator \"=\" in URI query parameter: \"user\""
        );
        assert_eq!(
            error("postgres://h?password=se=cret"),
            "extra key/value separator \"=\" in URI query parameter: \"password\""
        );
        assert!(!error("postgres://u:secr/et@h/db").contains("secr"));
        assert_eq!(error("postgres://h?hots=a"), "invalid URI query parameter: \"hots\"");
    }

    #[test]
    fn a_database_name_is_not_a_connection_string() {
        assert!(!is_connection_string("my db"));
        assert!(!is_connection_string("postgresql:/x"));
        assert!(is_connection_string("dbname=x"));
        assert!(is_connection_string("postgres://"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse(&text);
            let _ = parse(&format!("postgresql://{text}"));
        }

        #[test]
        fn any_quoted_value_comes_back(value in "[^\\x00]{1,30}") {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            let text = format!("user='{quoted}' port=1");
            prop_assert_eq!(get(&text, "user"), Some(value));
        }
    }
}
