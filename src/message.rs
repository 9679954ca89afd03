//! Messages for the user as values: severity, place, text, detail and hints. They become lines of text here and nowhere
//! else, so that nobody has to read them back.

use std::fmt;

/// The maximum number of relations that a message names.
const NAMED: usize = 8;

/// As `pg_size_pretty`: `512 bytes`, `40 kB`, `1536 MB`; a unit is used up to 10239 of it.
pub fn size(bytes: u64) -> String {
    const LIMIT: u64 = 10 * 1024;
    if bytes < LIMIT {
        return format!("{bytes} bytes");
    }
    // Kept in half units, so that each step can round half up.
    let mut halves = bytes >> 9;
    let mut shown = "kB";
    for unit in ["MB", "GB", "TB", "PB"] {
        if halves < 2 * LIMIT - 1 {
            break;
        }
        halves >>= 10;
        shown = unit;
    }
    format!("{} {shown}", halves.div_ceil(2))
}

/// The first of these names, and how many more there are: `a, b and 3 more`.
pub(crate) fn listed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The text with a capital first letter.
pub(crate) fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Notice,
    /// A limit of one result; unlike a notice, it does not concern the run.
    Note,
    /// Progress, or what happened to a relation.
    Progress,
}

impl Severity {
    /// The word with which the line begins.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
            Severity::Notice => "notice: ",
            Severity::Note => "note: ",
            Severity::Progress => "",
        }
    }
}

/// What a message is about; nothing for the whole run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Location {
    /// One of several databases.
    pub(crate) target: Option<String>,
    /// A node of Citus, as `host:port`.
    pub(crate) node: Option<String>,
    /// A relation, perhaps with the block; or several relations of the node.
    pub(crate) relations: Vec<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.target.iter().chain(&self.node) {
            write!(f, "{place}: ")?;
        }
        match self.relations.as_slice() {
            [] => Ok(()),
            relations => write!(f, "{}: ", listed(relations, NAMED)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) severity: Severity,
    pub(crate) at: Box<Location>,
    pub(crate) text: String,
    /// May contain values of rows.
    pub(crate) detail: Option<String>,
    pub(crate) hints: Vec<String>,
    /// Why there is nothing to do in this database, if that is no error where there is something in another.
    pub(crate) passed_over: Option<String>,
}

impl Message {
    pub(crate) fn new(severity: Severity, text: impl Into<String>) -> Message {
        let text = text.into();
        let hints = Vec::new();
        Message { severity, at: Box::default(), text, detail: None, hints, passed_over: None }
    }

    pub(crate) fn error(text: impl Into<String>) -> Message {
        Message::new(Severity::Error, text)
    }

    pub(crate) fn warning(text: impl Into<String>) -> Message {
        Message::new(Severity::Warning, text)
    }

    pub(crate) fn notice(text: impl Into<String>) -> Message {
        Message::new(Severity::Notice, text)
    }

    pub(crate) fn progress(text: impl Into<String>) -> Message {
        Message::new(Severity::Progress, text)
    }

    /// The same about a relation.
    pub(crate) fn about(mut self, relation: impl Into<String>) -> Message {
        self.at.relations = vec![relation.into()];
        self
    }

    /// The same about one of several databases.
    pub(crate) fn of_target(mut self, target: &str) -> Message {
        self.at.target = Some(target.to_owned());
        self
    }

    /// Its text and hints as sentences, without what it is about.
    pub(crate) fn on_one_line(&self) -> String {
        let hints = self.hints.iter().map(String::as_str);
        let said: Vec<&str> = std::iter::once(self.text.as_str()).chain(hints).collect();
        said.join(". ").replace("\nHINT:  ", ". ")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Message {
        self.hints.push(hint.into());
        self
    }
}

/// All of it but the severity, in lines as psql prints them.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at, without_os_codes(&self.text))?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL:  {detail}")?;
        }
        for hint in &self.hints {
            write!(f, "\nHINT:  {hint}")?;
        }
        Ok(())
    }
}

/// The text without what Rust adds to errors of the operating system: " (os error 2)".
pub(crate) fn without_os_codes(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_operating_system_are_left_out() {
        for (code, text) in [(2, "No such file or directory"), (17, "File exists")] {
            let error = std::io::Error::from_raw_os_error(code);
            let message = Message::error(format!("\"x\": {error}: {error}"));
            assert_eq!(message.to_string(), format!("\"x\": {text}: {text}"));
        }
        assert_eq!(without_os_codes("a (b) (os error "), "a (b)");
    }

    #[test]
    fn the_place_comes_first_and_hints_come_last() {
        let mut message = Message::error("gone").hint("Wait.");
        message.detail = Some("It was here.".to_owned());
        message.at.node = Some("w1:5432".to_owned());
        assert_eq!(message.to_string(), "w1:5432: gone\nDETAIL:  It was here.\nHINT:  Wait.");
        message.at.relations = (1..=9).map(|n| format!("d_{n}")).collect();
        assert!(message.to_string().starts_with("w1:5432: d_1, d_2, "));
        assert!(message.to_string().contains("d_8 and 1 more: gone\n"), "{message}");
        let message = Message::progress("read").about("public.t");
        assert_eq!(message.to_string(), "public.t: read");
    }

    #[test]
    fn sizes_as_pg_size_pretty_prints_them() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (10_736_893_951, "10239 MB"),
            (10_736_893_952, "10 GB"),
            (1_572_864, "1536 kB"),
            (11_258_449_312_612_352, "10 PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
