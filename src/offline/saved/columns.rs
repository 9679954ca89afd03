//! Names to columns.

use std::borrow::Cow;

use super::Kind;
use super::value;

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

/// What a result's columns are.
#[derive(Debug, Clone)]
pub(crate) struct Header<'a> {
    pub(crate) kind: Kind,
    /// Each column's name as printed, and what it is if it is read.
    pub(crate) columns: Vec<(Cow<'a, str>, Option<Column>)>,
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

    /// Whether these are the names of the columns, in this order.
    pub(crate) fn has_names<'n>(&self, names: impl ExactSizeIterator<Item = &'n str>) -> bool {
        names.len() == self.columns.len()
            && names.zip(&self.columns).all(|(name, (own, _))| name == own)
    }
}

/// Whether a cell is a `bytea` of a possible page's size.
fn page_like(cell: &str) -> bool {
    cell.strip_prefix(r"\x").is_some_and(|digits| page_size_exists(digits.len() / 2))
}

/// `BLCKSZ` is a power of 2 from 1 kB to 32 kB.
pub(crate) fn page_size_exists(size: usize) -> bool {
    size.is_power_of_two() && (1024..=32768).contains(&size)
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
}
