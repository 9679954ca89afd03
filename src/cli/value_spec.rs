//! Which value: `table.column@(block,item)`.

use crate::disk::ItemPointer;
use crate::server::chunks::parse_tid;

/// A value named by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSpec {
    /// The table as the user wrote it; `None` where a file was given.
    pub table: Option<String>,
    /// The column, quotes removed.
    pub column: String,
    /// The tuple.
    pub ctid: ItemPointer,
}

/// Why a text names no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueSpecError {
    /// No address, or one that cannot be.
    #[error("expected an address such as @(12,3) at the end")]
    Address,
    /// No column.
    #[error("expected a column in front of the address")]
    Column,
}

impl ValueSpec {
    /// Reads `[table.]column@(block,item)`. Names are as in SQL: folded unless quoted.
    pub fn parse(text: &str) -> Result<ValueSpec, ValueSpecError> {
        let (name, address) = text.rsplit_once('@').ok_or(ValueSpecError::Address)?;
        let ctid = parse_tid(address.trim()).filter(|ctid| ctid.item > 0);
        let ctid = ctid.ok_or(ValueSpecError::Address)?;
        let mut quoted = false;
        let mut dot = None;
        for (at, c) in name.char_indices() {
            match c {
                '"' => quoted = !quoted,
                '.' if !quoted => dot = Some(at),
                _ => {}
            }
        }
        let (table, column) = match dot.and_then(|at| name.split_at_checked(at)) {
            Some((table, column)) => (Some(table.trim().to_owned()), column.get(1..)),
            None => (None, Some(name)),
        };
        let column = column.unwrap_or_default().trim();
        let column = match column.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => inner.replace("\"\"", "\""),
            None => column.to_lowercase(),
        };
        if quoted || column.is_empty() || table.as_ref().is_some_and(String::is_empty) {
            return Err(ValueSpecError::Column);
        }
        Ok(ValueSpec { table, column, ctid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BlockNumber;

    #[test]
    fn tables_columns_and_addresses() {
        let spec = |text| {
            let ValueSpec { table, column, ctid } = ValueSpec::parse(text).unwrap();
            (table, column, ctid)
        };
        let at = |block, item| ItemPointer { block: BlockNumber(block), item };
        assert_eq!(spec("js@(12,3)"), (None, "js".into(), at(12, 3)));
        assert_eq!(spec("t.JS@(0,1)"), (Some("t".into()), "js".into(), at(0, 1)));
        assert_eq!(
            spec("s.\"T.x\".\"a.\"\"B@\"@(0, 1)"),
            (Some("s.\"T.x\"".into()), "a.\"B@".into(), at(0, 1))
        );
    }

    #[test]
    fn what_names_no_value_is_refused() {
        for text in ["js", "js@", "js@12,3", "js@(0,0)", "js@(0,1)x"] {
            assert_eq!(ValueSpec::parse(text), Err(ValueSpecError::Address), "{text}");
        }
        for text in ["@(0,1)", "t.@(0,1)", ".js@(0,1)", "\"js@(0,1)"] {
            assert_eq!(ValueSpec::parse(text), Err(ValueSpecError::Column), "{text}");
        }
    }
}
