//! What a line of psql's output is: a footer, a rule, a row, or something printed around results.

/// The number in psql's `(N rows)`, in any language.
pub(super) fn footer(line: &str) -> Option<u64> {
    let inner = line.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (number, word) = inner.split_at(inner.find(|c: char| !c.is_ascii_digit())?);
    if word.trim().is_empty() || word.contains([',', '(', '|', '\\']) {
        return None;
    }
    number.parse().ok()
}

/// Whether a line at the end of the text is the beginning of `(N rows)`.
pub(super) fn is_cut_footer(line: &str) -> bool {
    line.strip_prefix('(').is_some_and(|rest| {
        rest.chars().all(|c| c.is_ascii_digit() || c == ' ' || c.is_alphabetic())
    })
}

/// Whether a line is the output of `\timing`, in any language: `Time: 1.234 ms (00:01.234)`.
pub(super) fn is_timing(line: &str) -> bool {
    let Some((before, behind)) = line.split_once(" ms") else { return false };
    line.starts_with(char::is_alphabetic)
        && before.ends_with(|c: char| c.is_ascii_digit())
        && (behind.trim().is_empty() || behind.starts_with(" ("))
}

/// The rule below the header of an aligned result: `----+---`.
pub(super) fn is_rule(line: &str) -> bool {
    line.starts_with('-') && line.bytes().all(|b| b == b'-' || b == b'+')
}

/// `-[ RECORD 1 ]---`, in any language: the first line of an expanded record.
pub(super) fn is_record_line(line: &str) -> bool {
    line.strip_prefix("-[ ").and_then(|rest| rest.split_once(" ]")).is_some_and(|(record, rule)| {
        record.ends_with(|c: char| c.is_ascii_digit()) && rule.bytes().all(|b| b"-+".contains(&b))
    })
}

/// Whether JSON with rows begins on a line.
pub(super) fn begins_json(line: &str) -> bool {
    let line = line.trim_matches([' ', '+']);
    if let Some(array) = line.strip_prefix('[') {
        return array.is_empty() || array.trim_start().starts_with('{');
    }
    let Some(row) = line.strip_prefix('{') else { return false };
    let name = row.trim_start().strip_prefix('"').unwrap_or_default();
    row.is_empty() || name.starts_with(|c: char| c.is_alphabetic() || "_?".contains(c))
}

/// Whether a line shows a format of psql that is not read: line style unicode, or border 0 or 2; or UTF-16.
pub(super) fn is_other_format(line: &str) -> bool {
    line.starts_with(|c| c == '|' || ('\u{2500}'..='\u{257f}').contains(&c))
        || line.starts_with("+-")
        || line.contains(['│', '║', '\0'])
        || line.starts_with("* ") && line.trim_end().ends_with(|c: char| c.is_ascii_digit())
        || line.contains("- -") && line.bytes().all(|b| b == b'-' || b == b' ')
}

/// The text of an error message of the server or of psql: `ERROR:  …`, `psql: …: ERROR:  …`.
pub(super) fn server_error(line: &str) -> Option<&str> {
    // Messages of psql begin with a file name and a line number.
    let place = if line.starts_with("psql:") { line.get(..4096).unwrap_or(line) } else { "" };
    ["ERROR:  ", "FATAL:  ", "PANIC:  "].iter().find_map(|severity| {
        line.strip_prefix(severity).or_else(|| {
            let at = place.find(severity)?;
            line.get(at + severity.len()..)
        })
    })
}

/// Whether a line that was not recognized can only be a row: it begins with a number or a bytea and has several cells,
/// or it has a bytea as a cell.
pub(super) fn looks_like_data(line: &str) -> bool {
    let text = line.trim_start_matches(|c: char| c == '|' || c.is_whitespace());
    let bytea = bytea_at(text);
    let is_cell = bytea.is_some_and(|at| {
        let before = text[..at].trim_end_matches(['"', '{', '\\', ' ']);
        before.ends_with(['|', ',', '\t', ';'])
    });
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\\' | '{'));
    is_cell && !text.contains('\'')
        || begins
            && (text.matches(['|', '\t']).count() >= 2
                || bytea.is_some_and(|at| text.len() - at >= 10))
}

/// The position of a bytea in a line: `\x` followed by a digit.
fn bytea_at(line: &str) -> Option<usize> {
    line.match_indices(r"\x")
        .map(|(at, _)| at)
        .find(|at| line.as_bytes().get(at + 2).is_some_and(u8::is_ascii_hexdigit))
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
        assert!(is_cut_footer("(22"));
        assert!(is_cut_footer("(22 ro"));
        assert!(!is_cut_footer("(0,1)"));
    }

    #[test]
    fn rules_and_record_lines() {
        for rule in ["----+---", "-"] {
            assert!(is_rule(rule), "{rule}");
        }
        for no_rule in ["", "   ", "+", "-x-", "-- ------", "+---+", "────┼──"] {
            assert!(!is_rule(no_rule), "{no_rule}");
        }
        for record in ["-[ RECORD 1 ]---", "-[ RECORD 12 ]+---", "-[ ЗАПИСЬ 1 ]-"] {
            assert!(is_record_line(record), "{record}");
        }
        for no_record in ["[1]", "* Record 1", "-[ x ]-", "- 1", "[ RECORD 1 ]"] {
            assert!(!is_record_line(no_record), "{no_record}");
        }
        for other in ["-- ------", "+---+", "────┼──", "* Record 1   ", "| lp |", " 1 │ 2"]
        {
            assert!(is_other_format(other), "{other}");
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
        assert!(looks_like_data(r#"(1,8160,1,28,728,0,0,"(0,1)",1,2050,24,,,"\\x01")"#));
        assert_eq!(server_error("ERROR:  no such block"), Some("no such block"));
        assert_eq!(server_error("psql:x.sql:3: ERROR:  boom"), Some("boom"));
        assert_eq!(server_error("a title with ERROR:  in it"), None);
    }
}
