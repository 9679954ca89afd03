//! Names to columns, cells to rows.

use std::borrow::Cow;

use super::error::{Problem, SavedError};
use super::value;
use super::{Form, LineNumber, SavedAttributes, SavedItem, SavedPage, SavedResult, SavedRows};
use crate::disk::{BlockNumber, Oid, TransactionId};

/// A column that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Block,
    Lp,
    LpOff,
    LpFlags,
    LpLen,
    TXmin,
    TXmax,
    TField3,
    TCtid,
    TInfomask2,
    TInfomask,
    THoff,
    TBits,
    TOid,
    TData,
    TAttrs,
    /// `t_data` or `t_attrs`, told apart by the value: the last column without a header.
    TDataOrAttrs,
    RawPage,
}

/// The columns of `heap_page_items`; those of `heap_page_item_attrs` differ in the last.
const ITEM_COLUMNS: [(&str, Column); 14] = [
    ("lp", Column::Lp),
    ("lp_off", Column::LpOff),
    ("lp_flags", Column::LpFlags),
    ("lp_len", Column::LpLen),
    ("t_xmin", Column::TXmin),
    ("t_xmax", Column::TXmax),
    ("t_field3", Column::TField3),
    ("t_ctid", Column::TCtid),
    ("t_infomask2", Column::TInfomask2),
    ("t_infomask", Column::TInfomask),
    ("t_hoff", Column::THoff),
    ("t_bits", Column::TBits),
    ("t_oid", Column::TOid),
    ("t_data", Column::TData),
];

const OTHER_COLUMNS: [(&str, Column); 4] = [
    ("t_attrs", Column::TAttrs),
    ("tuple_data_split", Column::TAttrs),
    ("get_raw_page", Column::RawPage),
    ("raw_page", Column::RawPage),
];

/// What people call a block number that they add. `page` is one beside pageinspect's columns.
const BLOCK_NAMES: [&str; 19] = [
    "blkno",
    "block",
    "blk",
    "blockno",
    "blknum",
    "block_no",
    "blk_no",
    "block_number",
    "blocknumber",
    "pageno",
    "page_no",
    "page_number",
    "page",
    "p",
    "b",
    "n",
    "i",
    "g",
    "generate_series",
];

/// The column with this name, if the name is pageinspect's own.
pub(crate) fn own_column(name: &str) -> Option<Column> {
    ITEM_COLUMNS
        .iter()
        .chain(&OTHER_COLUMNS)
        .find(|(own, _)| name.eq_ignore_ascii_case(own))
        .map(|&(_, column)| column)
}

/// Whether a text may be a column's name; a value in its place shows that there is no header.
pub(crate) fn may_be_name(text: &str) -> bool {
    !value::is_null(text)
        && !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\\' | '{' | '(' | '['))
}

/// The most columns that a query can give (`MaxTupleAttributeNumber`, `htup_details.h`).
pub(crate) const MAX_COLUMNS: usize = 1664;

/// Whether a column with this name can matter.
pub(crate) fn is_known(name: &str) -> bool {
    own_column(name).is_some() || BLOCK_NAMES.iter().any(|b| name.eq_ignore_ascii_case(b))
}

/// Number of columns of `heap_page_items` and of `heap_page_item_attrs`.
pub(crate) const ITEM_COLUMN_COUNT: usize = ITEM_COLUMNS.len();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Items,
    Pages,
    Attributes,
}

/// What a result's columns are.
#[derive(Debug, Clone)]
pub(crate) struct Header<'a> {
    kind: Kind,
    /// Each column's name as printed, and what it is if it is read.
    columns: Vec<(Cow<'a, str>, Option<Column>)>,
}

impl<'a> Header<'a> {
    /// The header with these names; `None` if none of them is pageinspect's.
    ///
    /// Of two columns with one name the first is read.
    pub(crate) fn of_names(names: &[&'a str]) -> Option<Header<'a>> {
        let mut seen = Vec::with_capacity(names.len().min(ITEM_COLUMN_COUNT + 4));
        let mut columns = Vec::with_capacity(names.len());
        for &name in names {
            let column = own_column(name).filter(|column| !seen.contains(column));
            seen.extend(column);
            columns.push((Cow::Borrowed(name), column));
        }
        let kind = if seen.iter().any(|c| !matches!(c, Column::TAttrs | Column::RawPage)) {
            Kind::Items
        } else if seen.contains(&Column::RawPage) {
            Kind::Pages
        } else if seen.contains(&Column::TAttrs) {
            Kind::Attributes
        } else {
            return None;
        };
        let block = |name: &str| BLOCK_NAMES.iter().position(|b| name.eq_ignore_ascii_case(b));
        let best = columns
            .iter()
            .enumerate()
            .filter(|(_, (_, column))| column.is_none())
            .filter_map(|(at, (name, _))| Some((block(name)?, at)))
            .min();
        if let Some((_, at)) = best {
            columns[at].1 = Some(Column::Block);
        }
        Some(Header { kind, columns })
    }

    /// All columns of a function that gives items, without their names in the text.
    pub(crate) fn of_items() -> Header<'static> {
        let mut columns: Vec<_> = ITEM_COLUMNS
            .iter()
            .map(|&(name, column)| (Cow::Borrowed(name), Some(column)))
            .collect();
        if let Some(last) = columns.last_mut() {
            last.1 = Some(Column::TDataOrAttrs);
        }
        Header { kind: Kind::Items, columns }
    }

    /// A lone `get_raw_page`, or one behind its block number.
    pub(crate) fn of_pages(with_block: bool) -> Header<'static> {
        let block = with_block.then_some((Cow::Borrowed("blkno"), Some(Column::Block)));
        let page = (Cow::Borrowed("get_raw_page"), Some(Column::RawPage));
        Header { kind: Kind::Pages, columns: block.into_iter().chain([page]).collect() }
    }

    /// A lone `tuple_data_split`.
    pub(crate) fn of_attributes() -> Header<'static> {
        let column = (Cow::Borrowed("tuple_data_split"), Some(Column::TAttrs));
        Header { kind: Kind::Attributes, columns: vec![column] }
    }

    /// The header of a result without one, from its first row; `None` for what is no result of
    /// pageinspect.
    pub(crate) fn of_shape(cells: &[Cow<'_, str>]) -> Option<Header<'static>> {
        let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
        match cells[..] {
            [cell] if cell.starts_with('{') => Some(Header::of_attributes()),
            [cell] if page_like(cell) => Some(Header::of_pages(false)),
            [block, cell] if page_like(cell) && value::number(block, u32::MAX).is_ok() => {
                Some(Header::of_pages(true))
            }
            _ if cells.len() == ITEM_COLUMN_COUNT => Some(Header::of_items()),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether these are all columns of a function, so that no more are to be expected.
    pub(crate) fn is_all(&self) -> bool {
        let read = self.columns.iter().filter(|(_, c)| c.is_some_and(|c| c != Column::Block));
        match self.kind {
            Kind::Items => read.count() >= ITEM_COLUMN_COUNT,
            Kind::Pages | Kind::Attributes => true,
        }
    }

    /// The same, independent of the text.
    pub(crate) fn into_owned(self) -> Header<'static> {
        let owned = |(name, column): (Cow<'a, str>, _)| (Cow::Owned(name.into_owned()), column);
        Header { kind: self.kind, columns: self.columns.into_iter().map(owned).collect() }
    }

    /// Whether two results have the same columns.
    pub(crate) fn same_as(&self, other: &Header<'_>) -> bool {
        self.columns == other.columns
    }
}

/// Whether a cell is a `bytea` of a possible page's size.
fn page_like(cell: &str) -> bool {
    cell.strip_prefix(r"\x").is_some_and(|digits| page_size_exists(digits.len() / 2))
}

/// `BLCKSZ` is a power of 2 from 1 kB to 32 kB.
fn page_size_exists(size: usize) -> bool {
    size.is_power_of_two() && (1024..=32768).contains(&size)
}

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
pub(crate) struct Table<'a> {
    header: Header<'a>,
    result: SavedResult,
    /// Rows printed, with those that were not read.
    rows_seen: u64,
    last_malformed: Option<LineNumber>,
    /// The session's `bytea_output` was wrong, which has been said once.
    escape_format: bool,
}

impl<'a> Table<'a> {
    pub(crate) fn new(header: Header<'a>, form: Form, line: LineNumber) -> Table<'a> {
        let rows = match header.kind {
            Kind::Items => SavedRows::Items(Vec::new()),
            Kind::Pages => SavedRows::Pages(Vec::new()),
            Kind::Attributes => SavedRows::Attributes(Vec::new()),
        };
        let result = SavedResult { line, form, rows };
        Table { header, result, rows_seen: 0, last_malformed: None, escape_format: false }
    }

    pub(crate) fn header(&self) -> &Header<'a> {
        &self.header
    }

    pub(crate) fn rows_seen(&self) -> u64 {
        self.rows_seen
    }

    pub(crate) fn finish(self) -> SavedResult {
        self.result
    }

    /// Counts rows that show nothing but NULL in a single column.
    pub(crate) fn skip_null_rows(&mut self, rows: u64) {
        self.rows_seen += rows;
    }

    /// Counts a row that cannot be taken apart. Of a run of such lines the first is reported.
    pub(crate) fn malformed(
        &mut self,
        line: LineNumber,
        problem: Problem,
        errors: &mut Vec<SavedError>,
    ) {
        self.rows_seen += 1;
        let follows = self.last_malformed.is_some_and(|last| last.0 + 1 == line.0);
        self.last_malformed = Some(line);
        if !follows {
            errors.push(problem.at(line, None));
        }
    }

    /// Compares with psql's `(N rows)`.
    pub(crate) fn check_footer(&self, line: LineNumber, rows: u64, errors: &mut Vec<SavedError>) {
        if rows != self.rows_seen {
            errors.push(Problem::RowCount { expected: rows, got: self.rows_seen }.at(line, None));
        }
    }

    /// Reads a row from its cells, as many as the header has.
    pub(crate) fn push(
        &mut self,
        line: LineNumber,
        cells: &[Value<'_>],
        ending: Ending,
        errors: &mut Vec<SavedError>,
    ) {
        if cells.len() != self.header.len() {
            let problem = Problem::ColumnCount { expected: self.header.len(), got: cells.len() };
            return self.malformed(line, problem, errors);
        }
        self.rows_seen += 1;
        if let Err(error) = self.read(line, cells, ending) {
            let escape_format = error.problem.is_escape_format();
            if !(escape_format && self.escape_format) {
                errors.push(error);
            }
            self.escape_format |= escape_format;
        }
    }

    fn read(
        &mut self,
        line: LineNumber,
        cells: &[Value<'_>],
        ending: Ending,
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
        let block = fields.item.block;
        match &mut self.result.rows {
            SavedRows::Items(rows) => rows.push(fields.item),
            SavedRows::Pages(rows) => {
                rows.extend(fields.page.map(|bytes| SavedPage { line, block, bytes }));
            }
            SavedRows::Attributes(rows) => {
                let attributes = fields.item.t_attrs;
                rows.extend(attributes.map(|attributes| SavedAttributes {
                    line,
                    block,
                    attributes,
                }));
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
        let item = SavedItem {
            line,
            block: None,
            lp: None,
            lp_off: None,
            lp_flags: None,
            lp_len: None,
            t_xmin: None,
            t_xmax: None,
            t_field3: None,
            t_ctid: None,
            t_infomask2: None,
            t_infomask: None,
            t_hoff: None,
            t_bits: None,
            t_oid: None,
            t_data: None,
            t_attrs: None,
        };
        Fields { item, page: None }
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

    fn read_columns(names: &[&str]) -> Option<(Kind, Vec<Option<Column>>)> {
        let header = Header::of_names(names)?;
        Some((header.kind, header.columns.iter().map(|(_, c)| *c).collect()))
    }

    #[test]
    fn columns_by_name() {
        use Column::{Block, Lp, RawPage, TAttrs, TData};
        assert_eq!(
            read_columns(&["relname", "BLKNO", "lp", "t_data"]),
            Some((Kind::Items, vec![None, Some(Block), Some(Lp), Some(TData)]))
        );
        assert_eq!(
            read_columns(&["p", "page", "lp"]),
            Some((Kind::Items, vec![None, Some(Block), Some(Lp)])),
            "the clearer name is the block's"
        );
        assert_eq!(
            read_columns(&["lp", "lp", "tuple_data_split"]),
            Some((Kind::Items, vec![Some(Lp), None, Some(TAttrs)]))
        );
        assert_eq!(
            read_columns(&["p", "get_raw_page"]),
            Some((Kind::Pages, vec![Some(Block), Some(RawPage)]))
        );
        assert_eq!(read_columns(&["t_attrs"]), Some((Kind::Attributes, vec![Some(TAttrs)])));
        assert_eq!(read_columns(&["id", "page"]), None);
    }

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
