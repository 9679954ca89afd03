//! The password file `~/.pgpass` (`passwordFromFile` in `fe-connect.c`).

use super::Secret;

/// Whom and where a password is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The host, or the directory of the socket; `localhost` for the default directory.
    pub(crate) host: &'a str,
    pub(crate) port: &'a str,
    pub(crate) dbname: &'a str,
    pub(crate) user: &'a str,
}

/// The password of the first line `host:port:database:user:password` that fits.
pub(crate) fn find(text: &str, wanted: Wanted<'_>) -> Option<Secret> {
    text.split('\n').find_map(|line| {
        let line = line.trim_end_matches('\r');
        if line.starts_with('#') {
            return None;
        }
        let mut rest = line;
        for field in [wanted.host, wanted.port, wanted.dbname, wanted.user] {
            rest = match_field(rest, field)?;
        }
        Some(Secret::new(unescape(rest)))
    })
}

/// What follows the field at the start of `line` if the field fits `token`: `*`, or its characters, of which
/// any may have a backslash before it.
fn match_field<'a>(line: &'a str, token: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut rest = line.chars();
    let mut token = token.chars();
    loop {
        let mut c = rest.next()?;
        if c == ':' && token.as_str().is_empty() {
            return Some(rest.as_str());
        }
        if c == '\\' {
            c = rest.next()?;
        }
        if token.next() != Some(c) {
            return None;
        }
    }
}

/// The password: up to a colon without a backslash.
fn unescape(text: &str) -> String {
    let mut password = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => break,
            '\\' => password.push(chars.next().unwrap_or('\\')),
            _ => password.push(c),
        }
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look_up(text: &str, host: &str, dbname: &str) -> Option<String> {
        let wanted = Wanted { host, port: "5432", dbname, user: "joe" };
        find(text, wanted).map(|secret| secret.reveal().to_owned())
    }

    #[test]
    fn the_first_line_that_fits_wins() {
        let text =
            "# db:5432:*:joe:comment\nother:*:*:joe:no\r\ndb:5432:app:joe:first\r\n*:*:*:*:last";
        assert_eq!(look_up(text, "db", "app").as_deref(), Some("first"));
        assert_eq!(look_up(text, "db", "apple").as_deref(), Some("last"));
        assert_eq!(look_up("db:5432:app:joanna:x\n", "db", "app"), None);
        assert_eq!(look_up("db:5432:app:joe", "db", "app"), None);
        assert_eq!(look_up("d*:5432:app:joe:x", "db", "app"), None);
    }

    #[test]
    fn backslashes_take_the_next_character_as_it_is() {
        let text = r"\:\:1:5432:a\\b:joe:se\:cr\\et:rest";
        assert_eq!(look_up(text, "::1", r"a\b").as_deref(), Some(r"se:cr\et"));
        assert_eq!(look_up(r"*:*:*:*:end\", "h", "d").as_deref(), Some(r"end\"));
    }

    proptest! {
        #[test]
        fn any_escaped_entry_is_found(host in "[^\\x00\\n\\r#]{1,20}", password in "[^\\x00\\n\\r]{1,20}") {
            prop_assume!(host != "*");
            let escape = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
            let line = format!("{}:5432:*:joe:{}\n", escape(&host), escape(&password));
            prop_assert_eq!(look_up(&line, &host, "d"), Some(password));
        }

        #[test]
        fn any_text_gives_an_answer(text in ".*") {
            let _ = look_up(&text, "h", "d");
        }
    }
}
