//! The connection service file (`parseServiceFile` in `fe-connect.c`).

use super::{ConnectError, Params};
use std::path::Path;

/// The parameters of a service in the text of a service file, or `None` where the file does not define it.
/// `path` is for messages.
///
/// # Errors
/// When the section cannot be read, with the line.
pub(crate) fn find(text: &str, service: &str, path: &Path) -> Result<Option<Params>, ConnectError> {
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
        // the first of two lines counts
        if !params.is_given(keyword) && params.set(keyword, value).is_err() {
            return Err(ConnectError::usage(place("syntax error")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        find(FILE, service, Path::new("/etc/s.conf")).map_err(|error| error.to_string())
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
