//! The manual pages that are written by hand, as `toastctl help` prints them: their few macros and escapes as plain text.

use std::iter::Peekable;
use std::str::Lines;

use crate::report::table::wrapped;

/// A manual page in section 7.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// The word after `toastctl help`; the page is `toastctl-NAME`.
    pub name: &'static str,
    /// The page as `man` reads it.
    source: &'static str,
}

/// The pages, in the order in which help lists them.
pub const PAGES: [Page; 4] = [
    Page { name: "runbooks", source: include_str!("../../../man/toastctl-runbooks.7") },
    Page { name: "safety", source: include_str!("../../../man/toastctl-safety.7") },
    Page { name: "limits", source: include_str!("../../../man/toastctl-limits.7") },
    Page { name: "damage", source: include_str!("../../../man/toastctl-damage.7") },
];

/// The indentation of text below a heading.
const BODY: usize = 2;
/// How much further text below a term is indented.
const BELOW_TERM: usize = 4;

impl Page {
    /// What its NAME section says of it.
    pub fn about(&self) -> &'static str {
        self.source.lines().find_map(|line| line.split_once(" \\- ")).map_or("", |(_, about)| about)
    }

    /// The headings of the sections that contain `word`, which is in lower case.
    pub fn sections_with(&self, word: &str) -> Vec<String> {
        let sections = self.source.split("\n.SH ").skip(1);
        let found = sections.filter(|section| has_word(&plain(section), word));
        let headings = found.filter_map(|section| section.lines().next()).map(plain);
        headings.filter(|heading| !matches!(heading.as_str(), "NAME" | "DESCRIPTION")).collect()
    }

    /// The page without its title and name, at most `width` columns wide except for commands and tables.
    pub fn text(&self, width: usize) -> String {
        let mut writer = Writer { width, indent: BODY, ..Writer::default() };
        let mut lines = self.source.lines().peekable();
        while let Some(line) = lines.next() {
            writer.line(line, &mut lines);
        }
        writer.end_paragraph();
        writer.text
    }
}

/// Whether any word of the text starts with `word`, which must be in lower case.
pub fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
}

/// The text of a page as far as it was read.
#[derive(Default)]
struct Writer {
    text: String,
    width: usize,
    /// The number or bullet that the paragraph begins with.
    tag: String,
    paragraph: Vec<String>,
    /// That of the paragraph.
    indent: usize,
    /// Whether the next text follows a heading or a term, without an empty line.
    follows: bool,
}

impl Writer {
    fn line(&mut self, line: &str, lines: &mut Peekable<Lines<'_>>) {
        let (request, rest) = line.split_once(' ').unwrap_or((line, ""));
        match request {
            ".TH" | ".EE" | "'\\\"" => {}
            ".SH" => self.heading(rest, lines),
            ".PP" => self.begin(BODY),
            ".IP" if rest.is_empty() => self.begin(self.indent),
            ".IP" => {
                let (tag, width) = rest.rsplit_once(' ').unwrap_or((rest, ""));
                self.begin(BODY + width.parse().unwrap_or(BELOW_TERM));
                self.tag = plain(tag);
            }
            ".TP" => {
                self.begin(BODY);
                let term = lines.next().map_or_else(String::new, words);
                self.paragraph.push(term);
                self.begin(BODY + BELOW_TERM);
                self.follows = true;
            }
            ".EX" => {
                self.begin(self.indent);
                let commands = lines.by_ref().take_while(|line| *line != ".EE");
                let commands: Vec<String> = commands.map(plain).collect();
                self.verbatim(&commands);
            }
            ".TS" => {
                self.begin(BODY);
                let rows: Vec<&str> = lines.by_ref().take_while(|line| *line != ".TE").collect();
                // the formats of columns come first
                self.verbatim(&table(rows.get(1..).unwrap_or_default()));
            }
            _ => self.paragraph.push(words(line)),
        }
    }

    /// A heading; the name of the page is left out, and its description needs none.
    fn heading(&mut self, heading: &str, lines: &mut Peekable<Lines<'_>>) {
        self.begin(BODY);
        match heading {
            "NAME" => drop(lines.next()),
            "DESCRIPTION" => {}
            _ => {
                if !self.text.is_empty() {
                    self.text.push('\n');
                }
                self.text.push_str(&plain(heading));
                self.text.push('\n');
                self.follows = true;
            }
        }
    }

    /// Ends the paragraph, and begins one that is indented by `indent`.
    fn begin(&mut self, indent: usize) {
        self.end_paragraph();
        self.indent = indent;
    }

    fn end_paragraph(&mut self) {
        let words = std::mem::take(&mut self.paragraph).join(" ");
        if words.is_empty() {
            return;
        }
        let body = wrapped(&words, Some(self.width.saturating_sub(self.indent)), 0);
        let lines: Vec<String> = body.lines().map(str::to_owned).collect();
        self.verbatim(&lines);
    }

    /// Lines as they are, the first behind the tag.
    fn verbatim(&mut self, lines: &[String]) {
        if !std::mem::take(&mut self.follows) && !self.text.is_empty() {
            self.text.push('\n');
        }
        let tag = std::mem::take(&mut self.tag);
        for (at, line) in lines.iter().enumerate() {
            let tag = if at == 0 { tag.as_str() } else { "" };
            let room = self.indent - BODY;
            let line = format!("{:BODY$}{tag:<room$}{line}", "");
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }
}

/// A line of text, or the words of a font macro.
fn words(line: &str) -> String {
    match line.split_once(' ') {
        Some((".B", words)) => plain(words),
        // alternating fonts: the words are set without blanks
        Some((".BR", words)) => plain(&words.replace(' ', "")),
        _ => plain(line),
    }
}

/// Text without fonts, and with the characters that escapes stand for.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (escape, character) in ESCAPES {
        text = text.replace(escape, character);
    }
    text
}

/// The escapes of the pages; the one that stands for the backslash comes last.
const ESCAPES: [(&str, &str); 6] =
    [("\\fB", ""), ("\\fI", ""), ("\\fR", ""), ("\\-", "-"), ("\\(bu", "*"), ("\\e", "\\")];

/// The rows of a table, with cells separated by tabs, in columns.
fn table(rows: &[&str]) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.split('\t').map(plain).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines = rows.iter().map(|row| {
        if row.len() == 1 {
            return "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1));
        }
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_printed_without_macros_and_escapes_of_roff() {
        for page in PAGES {
            assert!(!page.about().is_empty(), "{}", page.name);
            let text = page.text(80);
            assert!(text.lines().count() > 80 && text.is_ascii(), "{text}");
            let roff = text.lines().find(|line| {
                let word = line.trim_start();
                let is_macro = word.starts_with('.')
                    && word[1..].chars().take(2).all(|c| c.is_ascii_uppercase());
                let escapes = ["\\f", "\\(", "\\-", "\\["];
                is_macro || escapes.iter().any(|escape| word.contains(escape))
            });
            assert_eq!(roff, None, "{}", page.name);
            // commands are not broken
            let source = plain(page.source);
            let broken = text.lines().find(|line| line.len() > 80 && !source.contains(line.trim()));
            assert_eq!(broken, None, "{}", page.name);
        }
    }

    #[test]
    fn paragraphs_lists_terms_commands_and_tables_have_their_places() {
        let source = ".TH t 7\n.SH NAME\nt \\- about t\n.SH DESCRIPTION\nSome \\fBbold\\fR\n.BR psql (1).\n\
                      .SH STEPS\n.IP 1. 4\nFirst:\n.IP\n.EX\ntoastctl inspect \\e\n.EE\n.IP \\(bu 2\nA point.\n\
                      .TP\n.B term\nMeaning.\n.TS\nl c.\n\t14\n_\nrow\tyes\n.TE\n.PP\nEnd.\n";
        let page = Page { name: "t", source };
        assert_eq!(page.about(), "about t");
        let expected = "  Some bold psql(1).\n\nSTEPS\n  1.  First:\n\n      toastctl inspect \\\n\n  * A point.\n\n  \
                        term\n      Meaning.\n\n       14 \n  --------\n  row  yes\n\n  End.\n";
        assert_eq!(page.text(40), expected.replace("14 \n", "14\n"));
    }
}
