//! Pieces of the tables and texts of `advise-threshold`.

use std::io::{self, Write};

use super::table::{Style, printable};
use crate::advise::estimate::Figure;
use crate::model::estimate::Estimate;

/// Text broken into lines that fit the terminal.
pub(super) fn paragraph(text: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    let width = match style {
        Style::Terminal(width) => width.unwrap_or(80).clamp(40, 100),
        Style::Markdown => usize::MAX,
    };
    let mut line = String::new();
    for word in printable(text).split(' ') {
        let more = unicode_width::UnicodeWidthStr::width(word) + usize::from(!line.is_empty());
        if unicode_width::UnicodeWidthStr::width(line.as_str()) + more > width {
            writeln!(out, "{line}")?;
            line.clear();
            if text.starts_with("- ") {
                line.push(' ');
            }
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{line}")
}

/// `-12.3 % ±0.4`.
pub(super) fn change(figure: &Figure, today: bool) -> String {
    let Some(Estimate { estimate, low, high }) = figure.change.filter(|_| !today) else {
        return String::new();
    };
    let half = (high - low) / 2.0 * 100.0;
    if estimate == 0.0 && half == 0.0 {
        return "same".into();
    }
    format!("{:+.1} % ±{half:.1}", estimate * 100.0)
}
