//! psql's expanded format (`\x`): a line for each column, beginning with its name, below a line with the record's number.

use super::error::SavedProblem;
use super::reader::{MOST, Reader};
use super::table::{Header, PrintedTable};
use super::text;

/// A column of a record.
struct NameValue {
    line: usize,
    name: String,
    value: String,
}

impl Reader<'_> {
    /// Reads the records of a result; the first begins at line `begin`.
    pub(super) fn records(&mut self, mut begin: usize) {
        let mut table = None;
        let mut pairs: Vec<NameValue> = Vec::new();
        let mut bytes = 0;
        let mut ended = true;
        while let Some(line) = self.next() {
            let text = &*line.text;
            let is_blank = text.trim().is_empty();
            if is_blank || text::is_record_line(text) {
                self.record(&mut table, &pairs, true, true);
                if is_blank {
                    return;
                }
                pairs.clear();
                bytes = 0;
                begin = line.number;
                continue;
            }
            let pair = text.split_once('|');
            let name = pair.map_or("", |(name, _)| name.trim());
            if name.is_empty() && (pair.is_some() || text.starts_with(' ') && line.ended) {
                return self.refuse(line.number);
            }
            let Some((_, value)) = pair else {
                self.record(&mut table, &pairs, line.ended, true);
                return self.put_back(line);
            };
            bytes += text.len();
            if bytes > MOST {
                self.too_long(begin);
                return self.skip();
            }
            let value = value.trim().to_owned();
            pairs.push(NameValue { line: line.number, name: name.to_owned(), value });
            ended = line.ended;
        }
        if pairs.is_empty() {
            self.error(SavedProblem::cut("the text ends within a record").at(begin));
        }
        self.record(&mut table, &pairs, false, ended);
    }

    /// Reads a record. `closed`: the line below it shows that it has no further columns; `ended`: its last line has a
    /// line break.
    fn record(
        &mut self,
        last: &mut Option<PrintedTable>,
        pairs: &[NameValue],
        closed: bool,
        ended: bool,
    ) {
        let Some(first) = pairs.first() else { return };
        let begin = first.line;
        let names = || pairs.iter().map(|pair| &*pair.name);
        let columns = last.as_ref().map_or(0, |table| table.header.columns.len());
        let table = match last {
            Some(table) if table.header.has_names(names()) => table,
            _ => {
                let header = Header::by_names(names());
                if !closed {
                    let problem = match &header {
                        None => "the text ends within a record",
                        Some(header) if header.columns.len() >= columns && header.is_complete() => {
                            ""
                        }
                        Some(_) => "the record does not have all columns",
                    };
                    if !problem.is_empty() {
                        return self.error(SavedProblem::cut(problem).at(begin));
                    }
                }
                let Some(header) = header else {
                    if pairs.iter().any(|pair| text::looks_like_data(&pair.value)) {
                        self.error(SavedProblem::OtherFormat.at(begin));
                    }
                    return;
                };
                last.insert(self.begin(header))
            }
        };
        let values: Vec<&str> = pairs.iter().map(|pair| &*pair.value).collect();
        if let Err(mut error) = self.push(table, begin, &values, ended) {
            let pair = pairs.iter().find(|pair| error.column.as_deref() == Some(&pair.name));
            error.line = pair.map_or(error.line, |pair| pair.line);
            self.error(error);
        }
    }
}
