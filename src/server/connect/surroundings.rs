//! The inputs of a resolution: command-line options, environment, service file (`parseServiceFile` in `fe-connect.c`)
//! and password file (`passwordFromFile`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::{ConnectError, ConnectResult, Params, Secret};

/// The maximum size of service and password files that is read.
const LARGEST_FILE: u64 = 16 << 20;

#[derive(Debug, Clone, Default)]
pub struct Given {
    pub host: Option<String>,
    pub port: Option<String>,
    pub user: Option<String>,
    /// `--dbname`: a name, a URI or a key=value string.
    pub dbname: Option<Secret>,
    /// The database, whatever else says.
    pub database: Option<String>,
    /// Parameters that have these values unless something else gives them.
    pub defaults: Vec<(&'static str, &'static str)>,
}

/// A file and its properties.
#[derive(Debug, Clone)]
pub struct FileSeen {
    pub text: String,
    pub mode: u32,
    /// Whether it is a regular file.
    pub is_file: bool,
}

/// The surroundings of the process.
pub trait Surroundings {
    fn environment(&self) -> &BTreeMap<String, String>;
    /// The user's name in the operating system, if known.
    fn os_user(&self) -> Option<String>;
    /// Reads a file.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn read(&self, path: &Path) -> io::Result<FileSeen>;
}

/// The surroundings of this process.
#[derive(Debug)]
pub struct ThisProcess(BTreeMap<String, String>);

impl Default for ThisProcess {
    /// Takes a copy of the current environment.
    fn default() -> ThisProcess {
        let variables = std::env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        });
        ThisProcess(variables.collect())
    }
}

impl Surroundings for ThisProcess {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    fn os_user(&self) -> Option<String> {
        whoami::username().ok()
    }

    fn read(&self, path: &Path) -> io::Result<FileSeen> {
        use std::io::Read;
        use std::os::unix::fs::PermissionsExt;
        // The file's type is checked before it is opened, because opening a pipe would wait.
        let metadata = std::fs::metadata(path)?;
        let mut bytes = Vec::new();
        if metadata.is_file() {
            std::fs::File::open(path)?.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        }
        Ok(FileSeen {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            mode: metadata.permissions().mode() & 0o7777,
            is_file: metadata.is_file(),
        })
    }
}

/// The connection for which a password is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct PasswordKey<'a> {
    /// The host, or the directory of the socket; `localhost` for the default directory.
    pub(super) host: &'a str,
    pub(super) port: &'a str,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

/// The password of the first matching line `host:port:database:user:password`.
pub(super) fn password_in(text: &str, wanted: PasswordKey<'_>) -> Option<Secret> {
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

/// Matches the first field of `line`, which is `*` or the characters of `token` (each may be escaped by a backslash).
/// Returns the rest of the line if it matches.
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

/// The password: the text up to an unescaped colon.
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

/// The parameters of a service in the text of a service file; `None` if the file does not define it. `path` is used in
/// messages.
///
/// # Errors
/// The section cannot be parsed; the message contains the line.
pub(super) fn service_in(text: &str, service: &str, path: &Path) -> ConnectResult<Option<Params>> {
    let mut found: Option<Params> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            let name = section.split_once(']').map(|(name, _)| name);
            found = (name == Some(service)).then(Params::default);
            continue;
        }
        let Some(params) = &mut found else { continue };
        let place = |what: &str| {
            format!("{what} in service file \"{}\", line {}", path.display(), index + 1)
        };
        let Some((keyword, value)) = line.split_once('=') else {
            return Err(ConnectError::usage(place("syntax error")));
        };
        if keyword == "service" || keyword == "servicefile" {
            let what = format!("nested \"{keyword}\" specifications not supported");
            return Err(ConnectError::usage(place(&what)));
        }
        // The first of several lines with the same keyword is used.
        if !params.is_given(keyword) && params.set(keyword, value).is_err() {
            return Err(ConnectError::usage(place("syntax error")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look_up(text: &str, host: &str, dbname: &str) -> Option<String> {
        let wanted = PasswordKey { host, port: "5432", dbname, user: "joe" };
        password_in(text, wanted).map(|secret| secret.reveal().to_owned())
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

    const FILE: &str = "\
# services
host=ignored
[one]
host=db1
  port=5433
host=db2

[two]
dbname = spaced
[three]
service=one
[four]
user=a
nonsense
";

    fn find_in(service: &str) -> Result<Option<Params>, String> {
        service_in(FILE, service, Path::new("/etc/s.conf")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_ends_at_the_next_and_first_lines_win() {
        let params = find_in("one").unwrap().unwrap();
        assert_eq!(params.get("host"), Some("db1"));
        assert_eq!(params.get("port"), Some("5433"));
        assert_eq!(params.get("dbname"), None);
        assert_eq!(find_in("on").unwrap(), None);
    }

    #[test]
    fn errors_have_file_and_line() {
        let at = |what: &str, line: u32| {
            Err(format!("{what} in service file \"/etc/s.conf\", line {line}"))
        };
        assert_eq!(find_in("two"), at("syntax error", 9));
        assert_eq!(find_in("three"), at("nested \"service\" specifications not supported", 11));
        assert_eq!(find_in("four"), at("syntax error", 14));
    }
}
