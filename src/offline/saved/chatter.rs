//! What psql prints around results: footers, rules, timings, and the output of its own commands.

/// The number in psql's `(N rows)`, in any language.
pub(crate) fn footer(line: &str) -> Option<u64> {
    let inner = line.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (number, word) = inner.split_at(inner.find(|c: char| !c.is_ascii_digit())?);
    let worded = !word.trim().is_empty() && !word.contains([',', '(', '|', '\\']);
    if worded { number.parse().ok() } else { None }
}

/// Whether a line at the end of the text is the beginning of `(N rows)`.
pub(crate) fn cut_footer(line: &str) -> bool {
    let Some(rest) = line.strip_prefix('(') else { return false };
    rest.chars().all(|c| c.is_ascii_digit() || c == ' ' || c.is_alphabetic())
}

/// Whether a line is the output of `\timing`, in any language: `Time: 1.234 ms (00:01.234)`.
pub(crate) fn is_timing(line: &str) -> bool {
    if !line.starts_with(char::is_alphabetic) {
        return false;
    }
    let Some((before, behind)) = line.split_once(" ms") else { return false };
    before.ends_with(|c: char| c.is_ascii_digit())
        && (behind.trim().is_empty() || behind.starts_with(" ("))
}

/// Whether a line consists only of drawing: below a header, above or below a bordered result, between expanded records.
pub(crate) fn is_rule(line: &str) -> bool {
    let mut drawn = false;
    line.chars().all(|c| {
        let horizontal = is_horizontal(c);
        drawn |= horizontal;
        horizontal || c == ' ' || c == '+' || is_box(c)
    }) && drawn
}

/// A character of a rule that is above or below a cell.
pub(crate) fn is_horizontal(c: char) -> bool {
    matches!(c, '-' | '─' | '═')
}

/// Whether the first line of a text contains only a name and what psql draws: blanks around a header, or a rule.
pub(crate) fn is_drawn(text: &str) -> bool {
    let header = |c: char| c.is_alphanumeric() || is_separator(c) || matches!(c, ' ' | '_' | '?');
    is_rule(text) || (text.len() > 1000 && text.chars().all(header) && text.contains("   "))
}

/// Box-drawing characters (Unicode block 2500), which no cell contains.
fn is_box(c: char) -> bool {
    ('\u{2500}'..='\u{257f}').contains(&c)
}

/// A separator between two cells of an aligned result.
pub(crate) fn is_separator(c: char) -> bool {
    matches!(c, '|' | '│' | '║')
}

/// Whether a line begins an expanded record: `-[ RECORD 1 ]---`, `* Record 1`.
pub(crate) fn is_record_line(line: &str) -> bool {
    let numbered = |rest: &str| {
        let rest = rest.trim_start();
        // In translated psqls, this is another word.
        let rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit() && c != ']' && c != '[');
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    let line = line.trim_end();
    if let Some(rest) = line.strip_prefix("* ") {
        return numbered(rest) && line.ends_with(|c: char| c.is_ascii_digit());
    }
    let opened = line.trim_start_matches(|c| is_horizontal(c) || c == '+' || is_box(c));
    opened.len() < line.len()
        && opened.strip_prefix('[').is_some_and(|rest| numbered(rest) && rest.contains(']'))
}

/// The text of an error message of the server or of psql: `ERROR:  …`, `psql: …: ERROR:  …`.
pub(crate) fn server_error(line: &str) -> Option<&str> {
    // Messages of psql begin with a file name and a line number.
    let place = if line.starts_with("psql:") { line.get(..4096).unwrap_or(line) } else { "" };
    ["ERROR:  ", "FATAL:  ", "PANIC:  "].iter().find_map(|severity| {
        line.strip_prefix(severity).or_else(|| {
            let at = place.find(severity)?;
            line.get(at + severity.len()..)
        })
    })
}

/// Whether a line that was not recognized as a row can only be a row: it begins like one, with a number or a bytea, and
/// has several cells or a long bytea.
pub(crate) fn looks_like_data(line: &str) -> bool {
    let text = line.trim_start_matches(|c: char| is_separator(c) || c.is_whitespace());
    let begins = text.starts_with(|c: char| c.is_ascii_digit())
        || text.starts_with(r"\x")
        || text.starts_with('{');
    let separators = text.matches(|c: char| is_separator(c) || c == '\t').count();
    let cell = |at: usize| {
        let before = text[..at].trim_end_matches(['"', '{', '\\', ' ']);
        before.ends_with(|c: char| is_separator(c) || matches!(c, ',' | '\t' | ';'))
    };
    if !text.contains('\'') && bytea_at(text).is_some_and(cell) {
        return true;
    }
    begins && (separators >= 2 || bytea_at(text).is_some_and(|at| text.len() - at >= 10))
}

/// The position of a bytea in a line: `\x` followed by a digit.
pub(crate) fn bytea_at(line: &str) -> Option<usize> {
    line.match_indices(r"\x")
        .map(|(at, _)| at)
        .find(|at| line.as_bytes().get(at + 2).is_some_and(u8::is_ascii_hexdigit))
}

/// Whether a line is a whole row printed as one composite value: `(1,8160,1,…)`.
pub(crate) fn is_row_value(line: &str) -> bool {
    let text = line.trim_matches(|c: char| is_separator(c) || c == '"' || c.is_whitespace());
    text.strip_prefix('(').is_some_and(|inner| {
        inner.bytes().take_while(|&b| b != b'\\' && b != b'"').filter(|&b| b == b',').count() >= 5
            && inner.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footers_in_any_language() {
        assert_eq!(footer("(1 row)"), Some(1));
        assert_eq!(footer(" (226 rows) "), Some(226));
        assert_eq!(footer("(3 строки)"), Some(3));
        assert_eq!(footer("(0,1)"), None);
        assert_eq!(footer("(3 "), None);
        assert_eq!(footer("(rows)"), None);
        assert_eq!(footer("(99999999999999999999 rows)"), None);
        assert!(cut_footer("(22"));
        assert!(cut_footer("(22 ro"));
        assert!(!cut_footer("(0,1)"));
    }

    #[test]
    fn rules_and_record_lines() {
        for rule in ["----+---", "-- ------ ", "+---+", "────┼──", "╔══╤══╗", "-"]
        {
            assert!(is_rule(rule), "{rule}");
        }
        for no_rule in ["", "   ", "+", "-x-", "--1"] {
            assert!(!is_rule(no_rule), "{no_rule}");
        }
        for record in [
            "-[ RECORD 1 ]---",
            "+-[ RECORD 12 ]-+",
            "* Record 1   ",
            "─[ RECORD 1 ]─┬──",
            "-[ ЗАПИСЬ 1 ]-",
        ] {
            assert!(is_record_line(record), "{record}");
        }
        for no_record in ["[1]", "* 1 apple", "-[ x ]-", "- 1", "[ RECORD 1 ]"] {
            assert!(!is_record_line(no_record), "{no_record}");
        }
    }

    #[test]
    fn rows_are_told_from_talk() {
        assert!(looks_like_data(" 1 | 8160 | 1"));
        assert!(looks_like_data(r"\x0102030405"));
        assert!(looks_like_data(r#"t,0,1,"{""\\x0102"",NULL}""#));
        assert!(!looks_like_data("Time: 0.870 ms"));
        assert!(!looks_like_data("INSERT 0 5"));
        assert!(!looks_like_data("SELECT lp, '\\x0102030405' | 1 | 2"));
        assert!(is_timing("Time: 0.870 ms"));
        assert!(is_timing("Temps : 1234,567 ms (00:01,235)"));
        assert!(!is_timing("1,2 ms"));
        assert!(is_row_value(r#"(1,8160,1,28,728,0,0,"(0,1)",1,2050,24,,,"\\x01")"#));
        assert!(!is_row_value("(0,1)"));
        assert_eq!(server_error("ERROR:  no such block"), Some("no such block"));
        assert_eq!(server_error("psql:x.sql:3: ERROR:  boom"), Some("boom"));
        assert_eq!(server_error("a title with ERROR:  in it"), None);
    }
}
