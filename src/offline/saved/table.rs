//! Cells to rows.

use super::columns::{Column, Header, page_size_exists};
use super::error::{Problem, SavedError};
use super::out::Out;
use super::value;
use super::{Form, Kind, LineNumber, SavedAttributes, SavedItem, SavedPage};
use crate::disk::{BlockNumber, Oid, TransactionId};

/// A value of one cell.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    /// Text as psql prints it, also for NULL.
    Text(&'a str),
    /// NULL beyond doubt.
    Null,
    /// A JSON array of strings.
    Array(&'a [Option<String>]),
}

/// What shows that a row is not cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A line break or a closing sign behind the last cell.
    Seen,
    /// The text ends within or right behind the last cell.
    EndOfText,
}

/// A result being read.
#[derive(Debug)]
pub(crate) struct Table {
    header: Header<'static>,
    /// Rows printed, with those that were not read.
    rows_seen: u64,
    last_malformed: Option<LineNumber>,
    /// The session's `bytea_output` was wrong, which has been said once.
    escape_format: bool,
}

impl Table {
    /// Begins the result whose first line is `line`.
    pub(crate) fn begin(
        header: Header<'_>,
        form: Form,
        line: LineNumber,
        out: &mut Out<'_>,
    ) -> Table {
        out.begin(line, form, header.kind);
        let header = header.into_owned();
        Table { header, rows_seen: 0, last_malformed: None, escape_format: false }
    }

    pub(crate) fn header(&self) -> &Header<'static> {
        &self.header
    }

    pub(crate) fn rows_seen(&self) -> u64 {
        self.rows_seen
    }

    /// Counts rows that show nothing but NULL in a single column.
    pub(crate) fn skip_null_rows(&mut self, rows: u64) {
        self.rows_seen += rows;
    }

    /// Counts a row that cannot be taken apart. Of a run of such lines the first is reported.
    pub(crate) fn malformed(&mut self, line: LineNumber, problem: Problem, out: &mut Out<'_>) {
        self.rows_seen += 1;
        let follows = self.last_malformed.is_some_and(|last| last.0 + 1 == line.0);
        self.last_malformed = Some(line);
        if !follows {
            out.error(problem.at(line, None));
        }
    }

    /// Compares with psql's `(N rows)`.
    pub(crate) fn check_footer(&self, line: LineNumber, rows: u64, out: &mut Out<'_>) {
        if rows != self.rows_seen {
            out.error(Problem::RowCount { expected: rows, got: self.rows_seen }.at(line, None));
        }
    }

    /// Reads a row from its cells, as many as the header has.
    pub(crate) fn push(
        &mut self,
        line: LineNumber,
        cells: &[Value<'_>],
        ending: Ending,
        out: &mut Out<'_>,
    ) {
        if let Err(error) = self.try_push(line, cells, ending, out) {
            out.error(error);
        }
    }

    /// The same, with what is wrong for the caller to report.
    pub(crate) fn try_push(
        &mut self,
        line: LineNumber,
        cells: &[Value<'_>],
        ending: Ending,
        out: &mut Out<'_>,
    ) -> Result<(), SavedError> {
        if cells.len() != self.header.len() {
            let problem = Problem::ColumnCount { expected: self.header.len(), got: cells.len() };
            self.malformed(line, problem, out);
            return Ok(());
        }
        self.rows_seen += 1;
        let Err(error) = self.read(line, cells, ending, out) else { return Ok(()) };
        let escape_format = error.problem.is_escape_format();
        let told = escape_format && self.escape_format;
        self.escape_format |= escape_format;
        if told { Ok(()) } else { Err(error) }
    }

    fn read(
        &self,
        line: LineNumber,
        cells: &[Value<'_>],
        ending: Ending,
        out: &mut Out<'_>,
    ) -> Result<(), SavedError> {
        let mut fields = Fields::new(line);
        for ((name, column), cell) in self.header.columns.iter().zip(cells) {
            if let Some(column) = column {
                let set = match cell {
                    Value::Null => Ok(()),
                    Value::Text(text) if value::is_null(text) => Ok(()),
                    Value::Text(text) => fields.set(*column, text),
                    Value::Array(elements) => fields.set_array(*column, elements),
                };
                set.map_err(|problem| problem.at(line, Some(name)))?;
            }
        }
        let whole = fields.check_lengths(line)?;
        let whole_last = match self.header.columns.last() {
            Some((_, Some(Column::TData | Column::RawPage))) => whole,
            // The array's closing brace was there.
            Some((_, Some(Column::TAttrs))) => fields.item.t_attrs.is_some(),
            Some((_, Some(Column::TDataOrAttrs))) => whole || fields.item.t_attrs.is_some(),
            _ => false,
        };
        if ending == Ending::EndOfText && !whole_last {
            return Err(Problem::Unterminated.at(line, None));
        }
        let Fields { item, page } = fields;
        let block = item.block;
        match self.header.kind {
            Kind::Items => out.sink.item(item),
            Kind::Pages => {
                if let Some(bytes) = page {
                    out.sink.page(SavedPage { line, block, bytes });
                }
            }
            Kind::Attributes => {
                if let Some(attributes) = item.t_attrs {
                    out.sink.attributes(SavedAttributes { line, block, attributes });
                }
            }
        }
        Ok(())
    }
}

/// The values of one row.
struct Fields {
    item: SavedItem,
    page: Option<Vec<u8>>,
}

impl Fields {
    fn new(line: LineNumber) -> Fields {
        Fields { item: SavedItem::new(line), page: None }
    }

    fn set(&mut self, column: Column, text: &str) -> Result<(), Problem> {
        let item = &mut self.item;
        // The limits make the narrowing exact.
        let short = |max: u16| value::number(text, u32::from(max)).map(|v| v as u16);
        let long = || value::number(text, u32::MAX);
        match column {
            Column::Block => item.block = Some(BlockNumber(long()?)),
            Column::Lp => item.lp = Some(short(u16::MAX)?),
            Column::LpOff => item.lp_off = Some(short(0x7fff)?),
            Column::LpFlags => item.lp_flags = Some(short(3)? as u8),
            Column::LpLen => item.lp_len = Some(short(0x7fff)?),
            Column::TXmin => item.t_xmin = Some(TransactionId(long()?)),
            Column::TXmax => item.t_xmax = Some(TransactionId(long()?)),
            Column::TField3 => item.t_field3 = Some(value::int4_bits(text)?),
            Column::TCtid => item.t_ctid = Some(value::tid(text)?),
            Column::TInfomask2 => item.t_infomask2 = Some(short(u16::MAX)?),
            Column::TInfomask => item.t_infomask = Some(short(u16::MAX)?),
            Column::THoff => item.t_hoff = Some(short(u16::from(u8::MAX))? as u8),
            Column::TBits => item.t_bits = Some(value::bits(text)?),
            Column::TOid => item.t_oid = Some(Oid(long()?)),
            Column::TDataOrAttrs if text.starts_with('{') => {
                item.t_attrs = Some(value::bytea_array(text)?);
            }
            Column::TData | Column::TDataOrAttrs => item.t_data = Some(value::bytea(text)?),
            Column::TAttrs => item.t_attrs = Some(value::bytea_array(text)?),
            Column::RawPage => self.page = Some(value::bytea(text)?),
        }
        Ok(())
    }

    fn set_array(&mut self, column: Column, elements: &[Option<String>]) -> Result<(), Problem> {
        if column != Column::TAttrs {
            return Err(Problem::expected("a single value", "an array"));
        }
        let read =
            |(i, element): (usize, &Option<String>)| {
                element.as_deref().map(value::bytea).transpose().map_err(|problem| {
                    Problem::Attribute { number: i + 1, problem: Box::new(problem) }
                })
            };
        self.item.t_attrs = Some(elements.iter().enumerate().map(read).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Compares the bytes with the lengths known beside them; whether they prove the bytes whole.
    fn check_lengths(&self, line: LineNumber) -> Result<bool, SavedError> {
        if let Some(page) = &self.page {
            return page_is_whole(page).map_err(|p| p.at(line, Some("get_raw_page")));
        }
        let (Some(data), Some(length), Some(header)) =
            (&self.item.t_data, self.item.lp_len, self.item.t_hoff)
        else {
            return Ok(false);
        };
        let expected = usize::from(length).saturating_sub(usize::from(header));
        if data.len() == expected {
            return Ok(true);
        }
        Err(Problem::DataLength { expected, got: data.len() }.at(line, Some("t_data")))
    }
}

/// Whether the page's header confirms its size (`pd_pagesize_version`, `bufpage.h`); an error if
/// the page cannot have this size. A page of zeros or of damaged header confirms nothing.
fn page_is_whole(page: &[u8]) -> Result<bool, Problem> {
    if !page_size_exists(page.len()) {
        let expected = "1024, 2048, 4096, 8192, 16384 or 32768".into();
        return Err(Problem::PageSize { expected, got: page.len() });
    }
    // Size and layout version share a number; which half comes first is the byte order's.
    let sizes = [(page[19], page[18]), (page[18], page[19])]
        .into_iter()
        .filter(|(_, version)| (1..=4).contains(version))
        .map(|(size, _)| usize::from(size) << 8)
        .filter(|&size| page_size_exists(size));
    let mut stated = None;
    for size in sizes {
        if size == page.len() {
            return Ok(true);
        }
        stated = stated.or(Some(size));
    }
    match stated {
        Some(size) => Err(Problem::PageSize { expected: size.to_string().into(), got: page.len() }),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_size_of_its_header() {
        let page = |size: usize, low: u8, high: u8| {
            let mut page = vec![0; size];
            (page[18], page[19]) = (low, high);
            page
        };
        assert_eq!(page_is_whole(&page(8192, 0x04, 0x20)), Ok(true));
        assert_eq!(page_is_whole(&page(8192, 0x20, 0x04)), Ok(true), "big-endian");
        assert_eq!(page_is_whole(&page(8192, 0, 0)), Ok(false), "a new page");
        assert_eq!(page_is_whole(&page(8192, 0xff, 0xff)), Ok(false), "a damaged page");
        assert_eq!(
            page_is_whole(&page(4096, 0x04, 0x20)).map_err(|e| e.to_string()),
            Err("expected a page of 8192 bytes, got 4096".into())
        );
        assert!(page_is_whole(&[0; 8191]).is_err());
        assert!(page_is_whole(&[]).is_err());
    }
}
