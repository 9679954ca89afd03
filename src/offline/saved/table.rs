//! From names to columns, and from cells to values and rows.

use super::error::{SavedError, SavedProblem};
use super::reader::Reader;
use super::{RowKind, SavedRow};
use toast_format::disk::hex::decode_digits;
use toast_format::disk::{BlockNumber, ItemPointer, PageSize, TransactionId};

/// A result that is being read.
pub(super) struct PrintedTable {
    pub(super) header: Header,
    /// The number of rows printed, including those that could not be read.
    pub(super) rows: u64,
    last_malformed: Option<usize>,
}

impl Reader<'_> {
    pub(super) fn begin(&mut self, header: Header) -> PrintedTable {
        self.results += 1;
        self.sink.begin(header.kind);
        PrintedTable { header, rows: 0, last_malformed: None }
    }

    /// Counts a row that cannot be parsed. Only the first of several consecutive ones is reported.
    pub(super) fn malformed(
        &mut self,
        table: &mut PrintedTable,
        line: usize,
        problem: SavedProblem,
    ) {
        table.rows += 1;
        let follows = table.last_malformed.is_some_and(|last| last + 1 == line);
        table.last_malformed = Some(line);
        if !follows {
            self.error(problem.at(line));
        }
    }

    /// Compares the number of rows with psql's `(N rows)`.
    pub(super) fn check_footer(&mut self, line: usize, expected: u64, got: u64) {
        if expected != got {
            let what = format!("expected {expected} rows according to the footer, got {got}");
            self.error(SavedProblem::Other(what).at(line));
        }
    }

    /// Reads a row from its cells. If the text ends within or directly after the last cell, the row is not `ended`.
    pub(super) fn push(
        &mut self,
        table: &mut PrintedTable,
        line: usize,
        cells: &[impl AsRef<str>],
        ended: bool,
    ) -> Result<(), SavedError> {
        let columns = &table.header.columns;
        if cells.len() != columns.len() {
            let what = format!("expected {} columns, got {}", columns.len(), cells.len());
            self.malformed(table, line, SavedProblem::Other(what));
            return Ok(());
        }
        table.rows += 1;
        let mut row = SavedRow { line, ..SavedRow::default() };
        for ((name, column), cell) in columns.iter().zip(cells) {
            let cell = cell.as_ref();
            if let Some(column) = column
                && !is_null(cell)
            {
                set(&mut row, column, cell).map_err(|problem| problem.in_column(line, name))?;
            }
        }
        let is_whole = check_lengths(&row)?;
        let is_last_whole = match columns.last() {
            Some((_, Some("get_raw_page"))) => is_whole,
            Some((_, Some("t_data"))) if row.t_data.is_some() => is_whole,
            // The closing brace of the array was found.
            Some((_, Some("t_data" | "t_attrs"))) => row.t_attrs.is_some(),
            _ => false,
        };
        if !ended && !is_last_whole {
            return Err(SavedProblem::Unterminated.at(line));
        }
        let kind = table.header.kind;
        let is_some = match kind {
            RowKind::Items => true,
            RowKind::Pages => row.page.is_some(),
            RowKind::Attributes => row.t_attrs.is_some(),
        };
        if is_some {
            self.sink.row(kind, row);
        }
        Ok(())
    }
}

fn set(row: &mut SavedRow, column: &str, text: &str) -> Result<(), SavedProblem> {
    match column {
        BLOCK => row.block = Some(BlockNumber(number(text, u32::MAX)?)),
        "lp" => row.lp = Some(number(text, 0xffff)?),
        "lp_off" => row.lp_off = Some(number(text, 0x7fff)?),
        "lp_flags" => row.lp_flags = Some(number(text, 3)?),
        "lp_len" => row.lp_len = Some(number(text, 0x7fff)?),
        "t_xmin" => row.t_xmin = Some(TransactionId(number(text, u32::MAX)?)),
        "t_xmax" => row.t_xmax = Some(TransactionId(number(text, u32::MAX)?)),
        "t_ctid" => row.t_ctid = Some(tid(text)?),
        "t_infomask2" => row.t_infomask2 = Some(number(text, 0xffff)?),
        "t_infomask" => row.t_infomask = Some(number(text, 0xffff)?),
        "t_hoff" => row.t_hoff = Some(number(text, 0xff)?),
        "t_bits" => row.t_bits = Some(bits(text)?),
        // The last column of a result without a header is one of both.
        "t_data" if !text.starts_with('{') => row.t_data = Some(bytea(text)?),
        "t_data" | "t_attrs" => row.t_attrs = Some(bytea_array(text)?),
        "get_raw_page" => row.page = Some(bytea(text)?),
        // Nothing depends on the others.
        _ => {}
    }
    Ok(())
}

/// Compares the bytes with the lengths in the row. Returns whether they prove that the bytes are complete.
fn check_lengths(row: &SavedRow) -> Result<bool, SavedError> {
    if let Some(page) = &row.page {
        return page_is_whole(page).map_err(|problem| problem.in_column(row.line, "get_raw_page"));
    }
    let (Some(data), Some(length), Some(header)) = (&row.t_data, row.lp_len, row.t_hoff) else {
        return Ok(false);
    };
    let expected = length.saturating_sub(u16::from(header));
    if data.len() == usize::from(expected) {
        return Ok(true);
    }
    let what = format!("expected {expected} bytes (lp_len - t_hoff), got {}", data.len());
    Err(SavedProblem::Other(what).in_column(row.line, "t_data"))
}

/// Whether the page's header confirms its size (`pd_pagesize_version`, `bufpage.h`); an error if a page cannot have
/// this size. A page of zeros or with a damaged header confirms nothing.
fn page_is_whole(page: &[u8]) -> Result<bool, SavedProblem> {
    let size = page.len();
    let wrong = |expected: &str| {
        SavedProblem::Other(format!("expected a page of {expected} bytes, got {size}"))
    };
    if PageSize::new(size).is_none() {
        return Err(wrong("1024, 2048, 4096, 8192, 16384 or 32768"));
    }
    // Size and layout version share one number; the byte order determines which half comes first.
    let mut stated = None;
    for (high, version) in [(page[19], page[18]), (page[18], page[19])] {
        let other = PageSize::new(usize::from(high) << 8);
        if !(1..=4).contains(&version) || other.is_none() {
            continue;
        }
        if other.is_some_and(|other| other.bytes() == size) {
            return Ok(true);
        }
        stated = stated.or(other);
    }
    match stated {
        Some(other) => Err(wrong(&other.bytes().to_string())),
        None => Ok(false),
    }
}

/// The columns of `heap_page_items`; in `heap_page_item_attrs`, the last one differs.
pub(super) const ITEM_COLUMNS: [&str; 14] = [
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

/// The column of a block number, whatever its name.
const BLOCK: &str = "block";

/// Common names for a block number added by the user, the clearest first. `page` is one if it occurs together with
/// pageinspect's columns.
const BLOCK_NAMES: &str = "blkno block blk blockno blknum block_no blk_no block_number blocknumber pageno page_no \
                           page_number page p b n i g generate_series";

/// The column of pageinspect with this name.
pub(super) fn own_column(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "t_attrs" | "tuple_data_split" => Some("t_attrs"),
        "raw_page" | "get_raw_page" => Some("get_raw_page"),
        name => ITEM_COLUMNS.into_iter().find(|column| *column == name),
    }
}

/// Whether a text may be a column name; a value in its place shows that there is no header.
pub(super) fn may_be_name(text: &str) -> bool {
    !is_null(text)
        && !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\\' | '{' | '(' | '['))
}

/// The columns of a result.
pub(super) struct Header {
    pub(super) kind: RowKind,
    /// The printed name of each column, and which column it is if it is read.
    pub(super) columns: Vec<(String, Option<&'static str>)>,
}

impl Header {
    /// The header with these names; `None` if none of them belongs to pageinspect.
    ///
    /// If two columns have the same name, the first one is read.
    pub(super) fn by_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<Header> {
        let mut found = Vec::new();
        let mut columns = Vec::new();
        for name in names {
            let column = own_column(name).filter(|column| !found.contains(column));
            found.extend(column);
            columns.push((name.to_owned(), column));
        }
        let kind = if found.iter().any(|column| ITEM_COLUMNS.contains(column)) {
            RowKind::Items
        } else if found.contains(&"get_raw_page") {
            RowKind::Pages
        } else if found.contains(&"t_attrs") {
            RowKind::Attributes
        } else {
            return None;
        };
        let block = BLOCK_NAMES.split(' ').find_map(|block| {
            columns.iter().position(|(name, _)| name.eq_ignore_ascii_case(block))
        });
        if let Some(block) = block {
            columns[block].1 = Some(BLOCK);
        }
        Some(Header { kind, columns })
    }

    /// The header of a result without one, derived from its first row; `None` if its columns are not exactly those of
    /// a function of pageinspect, or a block number and a page.
    pub(super) fn by_shape(cells: &[impl AsRef<str>]) -> Option<Header> {
        match cells {
            [cell] if cell.as_ref().starts_with('{') => Header::by_names(["t_attrs"]),
            [cell] if page_like(cell.as_ref()) => Header::by_names(["get_raw_page"]),
            [block, cell] if page_like(cell.as_ref()) => {
                number::<u32>(block.as_ref(), u32::MAX).ok()?;
                Header::by_names([BLOCK, "get_raw_page"])
            }
            _ if cells.len() == ITEM_COLUMNS.len() => Header::by_names(ITEM_COLUMNS),
            _ => None,
        }
    }

    /// Whether these are all columns of a function, so that no others are missing.
    pub(super) fn is_complete(&self) -> bool {
        let read = self.columns.iter().filter(|(_, c)| c.is_some_and(|c| c != BLOCK));
        self.kind != RowKind::Items || read.count() >= ITEM_COLUMNS.len()
    }

    /// Whether the columns have these names, in this order.
    pub(super) fn has_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        names.eq(self.columns.iter().map(|(name, _)| name.as_str()))
    }
}

/// Whether a cell is a `bytea` with a valid page size.
fn page_like(cell: &str) -> bool {
    let digits = cell.strip_prefix(r"\x").unwrap_or_default();
    PageSize::new(digits.len() / 2).is_some()
}

/// Whether a cell displays NULL: psql's default, or a common choice for `\pset null`.
///
/// None of these texts is a valid value of a column that is read.
pub(super) fn is_null(cell: &str) -> bool {
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
fn number<T: TryFrom<u32>>(cell: &str, max: u32) -> Result<T, SavedProblem> {
    let is_digits = cell.bytes().all(|b| b.is_ascii_digit());
    let value = cell.parse().ok().filter(|value| is_digits && *value <= max);
    value
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| SavedProblem::expected(&format!("a whole number of 0 to {max}"), cell))
}

/// Parses a `tid`: `(block,item)`.
fn tid(cell: &str) -> Result<ItemPointer, SavedProblem> {
    let inner = cell.strip_prefix('(').and_then(|cell| cell.strip_suffix(')'));
    if let Some((block, item)) = inner.and_then(|inner| inner.split_once(','))
        && let Ok(block) = number(block.trim(), u32::MAX)
        && let Ok(item) = number(item.trim(), 0xffff)
    {
        return Ok(ItemPointer { block: BlockNumber(block), item });
    }
    Err(SavedProblem::expected("a tuple address such as (0,1)", cell))
}

/// Parses the null bitmap as printed by `heap_page_items`: whole bytes of `0` and `1`.
fn bits(cell: &str) -> Result<String, SavedProblem> {
    let whole = cell.len().is_multiple_of(8) && cell.bytes().all(|b| matches!(b, b'0' | b'1'));
    if whole {
        Ok(cell.to_owned())
    } else {
        Err(SavedProblem::expected("a null bitmap of 0 and 1, a multiple of 8 long", cell))
    }
}

/// Parses a `bytea` in hexadecimal format.
fn bytea(cell: &str) -> Result<Vec<u8>, SavedProblem> {
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
fn bytea_array(cell: &str) -> Result<Vec<Option<Vec<u8>>>, SavedProblem> {
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
        attributes
            .push(attribute.map_err(|problem| SavedProblem::Attribute(at + 1, Box::new(problem)))?);
    }
    Ok(attributes)
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

    fn read_columns(names: &[&str]) -> Option<(RowKind, Vec<Option<&'static str>>)> {
        let header = Header::by_names(names.iter().copied())?;
        Some((header.kind, header.columns.iter().map(|(_, c)| *c).collect()))
    }

    #[test]
    fn columns_by_name() {
        assert_eq!(
            read_columns(&["relname", "BLKNO", "lp", "t_data"]),
            Some((RowKind::Items, vec![None, Some(BLOCK), Some("lp"), Some("t_data")]))
        );
        assert_eq!(
            read_columns(&["p", "page", "lp"]),
            Some((RowKind::Items, vec![None, Some(BLOCK), Some("lp")])),
            "the clearer name is the block's"
        );
        assert_eq!(
            read_columns(&["lp", "lp", "tuple_data_split"]),
            Some((RowKind::Items, vec![Some("lp"), None, Some("t_attrs")]))
        );
        assert_eq!(
            read_columns(&["p", "get_raw_page"]),
            Some((RowKind::Pages, vec![Some(BLOCK), Some("get_raw_page")]))
        );
        assert_eq!(read_columns(&["t_attrs"]), Some((RowKind::Attributes, vec![Some("t_attrs")])));
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
        assert_eq!(number::<u16>("65535", 65535), Ok(65535));
        assert!(number::<u32>("65536", 65535).is_err());
        assert!(number::<u32>("+1", 65535).is_err());
        assert!(number::<u32>("", 65535).is_err());
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
        assert!(matches!(bytea("abc"), Err(SavedProblem::Other(_))));
        assert_eq!(bytea(r"\x"), Ok(vec![]));
    }
}
