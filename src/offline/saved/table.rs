//! From names to columns, and from cells to values and rows.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::value::StrDeserializer;

use super::error::{SavedError, SavedProblem};
use super::{LineNumber, RowKind, SavedAttributes, SavedItem, SavedOutput, SavedPage};
use toast_format::disk::hex::decode_digits;
use toast_format::disk::{BlockNumber, ItemPointer, TransactionId};

/// The value of one cell.
pub(crate) enum CellValue<'a> {
    /// As printed by psql, possibly for NULL.
    Text(Cow<'a, str>),
    Null,
    /// A JSON array of strings and nulls.
    Array(Vec<Option<&'a str>>),
}

/// A result that is being read.
pub(crate) struct SavedTable {
    pub(crate) header: Header,
    /// The number of rows printed, including those that could not be read.
    pub(crate) rows: u64,
    last_malformed: Option<LineNumber>,
    /// Whether the session's `bytea_output` was wrong, which is reported only once.
    is_escaped: bool,
}

impl SavedTable {
    pub(crate) fn begin(header: Header, out: &mut SavedOutput<'_>) -> SavedTable {
        out.begin(header.kind);
        SavedTable { header, rows: 0, last_malformed: None, is_escaped: false }
    }

    /// Counts a row that cannot be parsed. Only the first of several consecutive ones is reported.
    pub(crate) fn malformed(
        &mut self,
        line: LineNumber,
        problem: SavedProblem,
        out: &mut SavedOutput<'_>,
    ) {
        self.rows += 1;
        let follows = self.last_malformed.is_some_and(|last| last.0 + 1 == line.0);
        self.last_malformed = Some(line);
        if !follows {
            out.error(problem.at(line));
        }
    }

    /// Compares the number of rows with psql's `(N rows)`.
    pub(crate) fn check_footer(&self, line: LineNumber, rows: u64, out: &mut SavedOutput<'_>) {
        if rows != self.rows {
            out.error(SavedProblem::RowCount { expected: rows, got: self.rows }.at(line));
        }
    }

    /// Reads a row from its cells. If the text ends within or directly after the last cell, the row is not `ended`.
    pub(crate) fn push(
        &mut self,
        line: LineNumber,
        cells: &[CellValue<'_>],
        ended: bool,
        out: &mut SavedOutput<'_>,
    ) -> Result<(), SavedError> {
        if cells.len() != self.header.columns.len() {
            let expected = self.header.columns.len();
            let problem = SavedProblem::ColumnCount { expected, got: cells.len() };
            self.malformed(line, problem, out);
            return Ok(());
        }
        self.rows += 1;
        let Err(error) = self.read(line, cells, ended, out) else { return Ok(()) };
        if error.problem.is_escape_format() && std::mem::replace(&mut self.is_escaped, true) {
            return Ok(());
        }
        Err(error)
    }

    fn read(
        &self,
        line: LineNumber,
        cells: &[CellValue<'_>],
        ended: bool,
        out: &mut SavedOutput<'_>,
    ) -> Result<(), SavedError> {
        let item = SavedItem { line, ..SavedItem::default() };
        let mut fields = Fields { item, page: None };
        for ((name, column), cell) in self.header.columns.iter().zip(cells) {
            let Some(column) = *column else { continue };
            let set = match cell {
                CellValue::Null => Ok(()),
                CellValue::Text(text) if is_null(text) => Ok(()),
                CellValue::Text(text) => fields.set(column, text),
                CellValue::Array(elements) => fields.set_array(column, elements),
            };
            set.map_err(|problem| problem.in_column(line, name))?;
        }
        let is_whole = fields.check_lengths(line)?;
        let is_last_whole = match self.header.columns.last() {
            Some((_, Some(SavedColumn::TData | SavedColumn::RawPage))) => is_whole,
            // The closing brace of the array was found.
            Some((_, Some(SavedColumn::TAttrs))) => fields.item.t_attrs.is_some(),
            Some((_, Some(SavedColumn::TDataOrAttrs))) => is_whole || fields.item.t_attrs.is_some(),
            _ => false,
        };
        if !ended && !is_last_whole {
            return Err(SavedProblem::Unterminated.at(line));
        }
        let Fields { item, page } = fields;
        let block = item.block;
        match (self.header.kind, page, item.t_attrs) {
            (RowKind::Items, _, t_attrs) => out.sink.item(SavedItem { t_attrs, ..item }),
            (RowKind::Pages, Some(bytes), _) => out.sink.page(SavedPage { line, block, bytes }),
            (RowKind::Attributes, _, Some(attributes)) => {
                out.sink.attributes(SavedAttributes { line, block, attributes });
            }
            _ => {}
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
    fn set(&mut self, column: SavedColumn, text: &str) -> Result<(), SavedProblem> {
        let item = &mut self.item;
        // The limits make these conversions exact.
        let short = |max: u16| number(text, u32::from(max)).map(|v| v as u16);
        let long = || number(text, u32::MAX);
        match column {
            SavedColumn::Block => item.block = Some(BlockNumber(long()?)),
            SavedColumn::Lp => item.lp = Some(short(u16::MAX)?),
            SavedColumn::LpOff => item.lp_off = Some(short(0x7fff)?),
            SavedColumn::LpFlags => item.lp_flags = Some(short(3)? as u8),
            SavedColumn::LpLen => item.lp_len = Some(short(0x7fff)?),
            SavedColumn::TXmin => item.t_xmin = Some(TransactionId(long()?)),
            SavedColumn::TXmax => item.t_xmax = Some(TransactionId(long()?)),
            SavedColumn::TCtid => item.t_ctid = Some(tid(text)?),
            SavedColumn::TInfomask2 => item.t_infomask2 = Some(short(u16::MAX)?),
            SavedColumn::TInfomask => item.t_infomask = Some(short(u16::MAX)?),
            SavedColumn::THoff => item.t_hoff = Some(short(u16::from(u8::MAX))? as u8),
            SavedColumn::TBits => item.t_bits = Some(bits(text)?),
            // Nothing depends on these.
            SavedColumn::TField3 | SavedColumn::TOid => {}
            SavedColumn::TDataOrAttrs if text.starts_with('{') => {
                item.t_attrs = Some(bytea_array(text)?);
            }
            SavedColumn::TData | SavedColumn::TDataOrAttrs => item.t_data = Some(bytea(text)?),
            SavedColumn::TAttrs => item.t_attrs = Some(bytea_array(text)?),
            SavedColumn::RawPage => self.page = Some(bytea(text)?),
        }
        Ok(())
    }

    fn set_array(
        &mut self,
        column: SavedColumn,
        elements: &[Option<&str>],
    ) -> Result<(), SavedProblem> {
        if column != SavedColumn::TAttrs {
            return Err(SavedProblem::expected("a single value", "an array"));
        }
        let mut attributes = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let attribute = element.map(bytea).transpose();
            attributes.push(attribute.map_err(|problem| in_attribute(at + 1, problem))?);
        }
        self.item.t_attrs = Some(attributes);
        Ok(())
    }

    /// Compares the bytes with the lengths in the row. Returns whether they prove that the bytes are complete.
    fn check_lengths(&self, line: LineNumber) -> Result<bool, SavedError> {
        if let Some(page) = &self.page {
            return page_is_whole(page).map_err(|p| p.in_column(line, "get_raw_page"));
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
        Err(SavedProblem::DataLength { expected, got: data.len() }.in_column(line, "t_data"))
    }
}

/// Whether the page's header confirms its size (`pd_pagesize_version`, `bufpage.h`); an error if a page cannot have
/// this size. A page of zeros or with a damaged header confirms nothing.
fn page_is_whole(page: &[u8]) -> Result<bool, SavedProblem> {
    if !page_size_exists(page.len()) {
        let expected = "1024, 2048, 4096, 8192, 16384 or 32768".into();
        return Err(SavedProblem::PageSize { expected, got: page.len() });
    }
    // Size and layout version share one number; the byte order determines which half comes first.
    let halves = [(page[19], page[18]), (page[18], page[19])].into_iter();
    let stated: Vec<usize> = halves
        .filter(|(_, version)| (1..=4).contains(version))
        .map(|(size, _)| usize::from(size) << 8)
        .filter(|&size| page_size_exists(size))
        .collect();
    match stated.first() {
        Some(size) if !stated.contains(&page.len()) => {
            Err(SavedProblem::PageSize { expected: size.to_string().into(), got: page.len() })
        }
        stated => Ok(stated.is_some()),
    }
}

/// A column that is read, by its lower-case name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SavedColumn {
    #[serde(skip)]
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
    #[serde(alias = "tuple_data_split")]
    TAttrs,
    /// `t_data` or `t_attrs`, depending on the value: the last column of a result without a header.
    #[serde(skip)]
    TDataOrAttrs,
    #[serde(alias = "get_raw_page")]
    RawPage,
}

/// The columns of `heap_page_items`; in `heap_page_item_attrs`, the last one differs.
const ITEM_COLUMNS: [&str; 14] = [
    "lp",
    "lp_off",
    "lp_flags",
    "lp_len",
    "t_xmin",
    "t_xmax",
    "t_field3",
    "t_ctid",
    "t_infomask2",
    "t_infomask",
    "t_hoff",
    "t_bits",
    "t_oid",
    "t_data",
];

/// Common names for a block number added by the user, the clearest first. `page` is one if it occurs together with
/// pageinspect's columns.
const BLOCK_NAMES: &str = "blkno block blk blockno blknum block_no blk_no block_number blocknumber pageno page_no \
                           page_number page p b n i g generate_series";

/// The column with this name, if it is a column name of pageinspect.
pub(crate) fn own_column(name: &str) -> Option<SavedColumn> {
    let name = name.to_ascii_lowercase();
    SavedColumn::deserialize(StrDeserializer::<serde::de::value::Error>::new(&name)).ok()
}

/// Whether a text may be a column name; a value in its place shows that there is no header.
pub(crate) fn may_be_name(text: &str) -> bool {
    !is_null(text)
        && !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\\' | '{' | '(' | '['))
}

/// The maximum number of columns of a query (`MaxTupleAttributeNumber`, `htup_details.h`).
pub(crate) const MAX_COLUMNS: usize = 1664;

/// The number of columns of `heap_page_items` and of `heap_page_item_attrs`.
pub(crate) const ITEM_COLUMN_COUNT: usize = ITEM_COLUMNS.len();

/// The columns of a result.
pub(crate) struct Header {
    pub(crate) kind: RowKind,
    /// The printed name of each column, and which column it is if it is read.
    pub(crate) columns: Vec<(String, Option<SavedColumn>)>,
}

impl Header {
    /// The header with these names; `None` if none of them belongs to pageinspect.
    ///
    /// If two columns have the same name, the first one is read.
    pub(crate) fn by_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<Header> {
        let mut found = Vec::new();
        let mut columns = Vec::new();
        for name in names {
            let column = own_column(name).filter(|column| !found.contains(column));
            found.extend(column);
            columns.push((name.to_owned(), column));
        }
        let kind = if found.iter().any(|c| !matches!(c, SavedColumn::TAttrs | SavedColumn::RawPage))
        {
            RowKind::Items
        } else if found.contains(&SavedColumn::RawPage) {
            RowKind::Pages
        } else if found.contains(&SavedColumn::TAttrs) {
            RowKind::Attributes
        } else {
            return None;
        };
        let block = BLOCK_NAMES.split(' ').find_map(|block| {
            columns.iter().position(|(name, _)| name.eq_ignore_ascii_case(block))
        });
        if let Some((_, column)) = block.and_then(|at| columns.get_mut(at)) {
            *column = Some(SavedColumn::Block);
        }
        Some(Header { kind, columns })
    }

    /// The header of a result without one, derived from its first row; `None` if its columns are not exactly those of
    /// a function of pageinspect, or a block number and a page.
    pub(crate) fn by_shape(cells: &[Cow<'_, str>]) -> Option<Header> {
        match cells {
            [cell] if cell.starts_with('{') => Header::by_names(["tuple_data_split"]),
            [cell] if page_like(cell) => Header::by_names(["get_raw_page"]),
            [block, cell] if page_like(cell) && number(block, u32::MAX).is_ok() => {
                Header::by_names(["blkno", "get_raw_page"])
            }
            _ if cells.len() == ITEM_COLUMN_COUNT => {
                let mut header = Header::by_names(ITEM_COLUMNS)?;
                header.columns.last_mut()?.1 = Some(SavedColumn::TDataOrAttrs);
                Some(header)
            }
            _ => None,
        }
    }

    /// Whether these are all columns of a function, so that no others are missing.
    pub(crate) fn is_complete(&self) -> bool {
        let read = self.columns.iter().filter(|(_, c)| c.is_some_and(|c| c != SavedColumn::Block));
        self.kind != RowKind::Items || read.count() >= ITEM_COLUMN_COUNT
    }

    /// Whether the columns have these names, in this order.
    pub(crate) fn has_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        names.eq(self.columns.iter().map(|(name, _)| name.as_str()))
    }
}

/// Whether a cell is a `bytea` with a valid page size.
fn page_like(cell: &str) -> bool {
    cell.strip_prefix(r"\x").is_some_and(|digits| page_size_exists(digits.len() / 2))
}

/// Whether the size is a valid `BLCKSZ`: a power of 2 from 1 kB to 32 kB.
pub(crate) fn page_size_exists(size: usize) -> bool {
    size.is_power_of_two() && (1024..=32768).contains(&size)
}

/// Whether a cell displays NULL: psql's default, or a common choice for `\pset null`.
///
/// None of these texts is a valid value of a column that is read.
pub(crate) fn is_null(cell: &str) -> bool {
    let inner = cell
        .trim_matches(|c| matches!(c, '(' | ')' | '[' | ']' | '<' | '>' | '«' | '»' | '*'))
        .trim();
    // The longest of them has four bytes.
    inner.is_empty()
        || inner.len() <= 4
            && r"null nil none n/a na \n ∅ ø ¤ ␀ · - -- — ~ _ ?"
                .split(' ')
                .any(|shown| inner.eq_ignore_ascii_case(shown))
}

/// Parses an integer from 0 to `max`.
pub(crate) fn number(cell: &str, max: u32) -> Result<u32, SavedProblem> {
    let digits = !cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit());
    match cell.parse::<u32>() {
        Ok(value) if digits && value <= max => Ok(value),
        _ => Err(SavedProblem::expected(format!("a whole number of 0 to {max}"), cell)),
    }
}

/// Parses a `tid`: `(block,item)`.
pub(crate) fn tid(cell: &str) -> Result<ItemPointer, SavedProblem> {
    let inner = cell.strip_prefix('(').and_then(|cell| cell.strip_suffix(')'));
    let parts = inner.and_then(|inner| inner.split_once(',')).and_then(|(block, item)| {
        let block = number(block.trim(), u32::MAX).ok()?;
        Some((block, number(item.trim(), u32::from(u16::MAX)).ok()?))
    });
    let Some((block, item)) = parts else {
        return Err(SavedProblem::expected("a tuple address such as (0,1)", cell));
    };
    // The limit makes this conversion exact.
    Ok(ItemPointer { block: BlockNumber(block), item: item as u16 })
}

/// Parses the null bitmap as printed by `heap_page_items`: whole bytes of `0` and `1`.
pub(crate) fn bits(cell: &str) -> Result<String, SavedProblem> {
    let whole = cell.len().is_multiple_of(8) && cell.bytes().all(|b| matches!(b, b'0' | b'1'));
    if whole {
        Ok(cell.to_owned())
    } else {
        Err(SavedProblem::expected("a null bitmap of 0 and 1, a multiple of 8 long", cell))
    }
}

/// Parses a `bytea` in hexadecimal format.
pub(crate) fn bytea(cell: &str) -> Result<Vec<u8>, SavedProblem> {
    match cell.strip_prefix(r"\x") {
        Some(digits) => decode_digits(digits).map_err(SavedProblem::Hex),
        None if looks_escaped(cell) => Err(SavedProblem::EscapeFormat),
        None => Err(SavedProblem::expected(r"a bytea such as \x0102", cell)),
    }
}

/// Whether a text contains `\000` or `\\`, as printed with `bytea_output = 'escape'`.
fn looks_escaped(cell: &str) -> bool {
    cell.match_indices('\\').any(|(at, _)| {
        let behind = &cell.as_bytes()[at + 1..];
        behind.first() == Some(&b'\\')
            || behind.get(..3).is_some_and(|d| d.iter().all(|b| matches!(b, b'0'..=b'7')))
    })
}

/// Parses a `bytea[]` in the text format of arrays: `{"\\x0102",NULL}`.
pub(crate) fn bytea_array(cell: &str) -> Result<Vec<Option<Vec<u8>>>, SavedProblem> {
    let Some(rest) = cell.strip_prefix('{') else {
        return Err(SavedProblem::expected("an array of bytea such as {\"\\\\x0102\",NULL}", cell));
    };
    let Some(inner) = rest.strip_suffix('}') else {
        return Err(SavedProblem::cut("the array has no closing brace"));
    };
    let mut attributes = Vec::new();
    if inner.is_empty() {
        return Ok(attributes);
    }
    // The digits of a bytea contain neither commas nor quotes.
    for (at, element) in inner.split(',').enumerate() {
        let quoted = element.strip_prefix('"').and_then(|element| element.strip_suffix('"'));
        let attribute = match quoted.and_then(|quoted| quoted.strip_prefix(r"\\x")) {
            Some(digits) => decode_digits(digits).map(Some).map_err(SavedProblem::Hex),
            None if element == "NULL" => Ok(None),
            None if element.is_empty() || element.contains(r"\\x") => {
                Err(SavedProblem::expected(r#"a bytea such as "\\x0102" or NULL"#, element))
            }
            None => Err(SavedProblem::EscapeFormat),
        };
        attributes.push(attribute.map_err(|problem| in_attribute(at + 1, problem))?);
    }
    Ok(attributes)
}

fn in_attribute(number: usize, problem: SavedProblem) -> SavedProblem {
    SavedProblem::Attribute { number, problem: Box::new(problem) }
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

    fn read_columns(names: &[&str]) -> Option<(RowKind, Vec<Option<SavedColumn>>)> {
        let header = Header::by_names(names.iter().copied())?;
        Some((header.kind, header.columns.iter().map(|(_, c)| *c).collect()))
    }

    #[test]
    fn columns_by_name() {
        use SavedColumn::{Block, Lp, RawPage, TAttrs, TData};
        assert_eq!(
            read_columns(&["relname", "BLKNO", "lp", "t_data"]),
            Some((RowKind::Items, vec![None, Some(Block), Some(Lp), Some(TData)]))
        );
        assert_eq!(
            read_columns(&["p", "page", "lp"]),
            Some((RowKind::Items, vec![None, Some(Block), Some(Lp)])),
            "the clearer name is the block's"
        );
        assert_eq!(
            read_columns(&["lp", "lp", "tuple_data_split"]),
            Some((RowKind::Items, vec![Some(Lp), None, Some(TAttrs)]))
        );
        assert_eq!(
            read_columns(&["p", "get_raw_page"]),
            Some((RowKind::Pages, vec![Some(Block), Some(RawPage)]))
        );
        assert_eq!(read_columns(&["t_attrs"]), Some((RowKind::Attributes, vec![Some(TAttrs)])));
        assert_eq!(read_columns(&["id", "page"]), None);
    }

    #[test]
    fn null_as_people_show_it() {
        for shown in ["", "[null]", "(null)", "<NULL>", "NULL", "Null", "∅", "¤", r"\N", "-", "␀"]
        {
            assert!(is_null(shown), "{shown}");
        }
        for value in ["0", r"\x", "{}", "(0,1)", "00000000", "{NULL}", "nul"] {
            assert!(!is_null(value), "{value}");
        }
    }

    #[test]
    fn numbers_keep_their_range() {
        assert_eq!(number("65535", 65535), Ok(65535));
        assert!(number("65536", 65535).is_err());
        assert!(number("+1", 65535).is_err());
        assert!(number("", 65535).is_err());
        assert_eq!(
            tid("(4294967295,65535)"),
            Ok(ItemPointer { block: BlockNumber(u32::MAX), item: u16::MAX })
        );
        assert!(tid("(0,1").is_err());
        assert!(tid("(0,65536)").is_err());
        assert_eq!(bits("10110000").as_deref(), Ok("10110000"));
        assert!(bits("1011").is_err());
        assert!(bits("10110002").is_err());
    }

    #[test]
    fn arrays_of_bytea() {
        assert_eq!(bytea_array("{}"), Ok(vec![]));
        assert_eq!(
            bytea_array(r#"{"\\x01ff",NULL,"\\x"}"#),
            Ok(vec![Some(vec![1, 0xff]), None, Some(vec![])])
        );
        for (text, error) in [
            (r#"{"\\x01ff",NULL"#, "the output is cut: the array has no closing brace"),
            (r#"{NULL,"\\x01f"#, "the output is cut: the array has no closing brace"),
            (r#"{"\\x01f"}"#, "attribute 1: odd number of hexadecimal digits: 3"),
            (
                r#"{"\\000abc"}"#,
                "attribute 1: bytea is in escape format, expected hexadecimal digits after \\x",
            ),
            (
                r"{abc}",
                "attribute 1: bytea is in escape format, expected hexadecimal digits after \\x",
            ),
            (
                r#"{"\\x01"x}"#,
                r#"attribute 1: expected a bytea such as "\\x0102" or NULL, got "\"\\\\x01\"x""#,
            ),
        ] {
            assert_eq!(bytea_array(text).map_err(|e| e.to_string()), Err(error.into()), "{text}");
        }
    }

    #[test]
    fn the_escape_format_is_told_apart() {
        assert_eq!(bytea(r"\000\001abc"), Err(SavedProblem::EscapeFormat));
        assert_eq!(bytea(r"a\\b"), Err(SavedProblem::EscapeFormat));
        assert!(matches!(bytea("abc"), Err(SavedProblem::Expected { .. })));
        assert_eq!(bytea(r"\x"), Ok(vec![]));
    }
}
