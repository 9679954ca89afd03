//! The migration to columns for keys, as a skeleton for psql that its reader adapts: add, copy, index, drop the keys.
//!
//! A key leaves a document only if its column gives the same value back.

use super::rows::KeyType;
use super::target::Target;
use toast_format::model::sql::{quote_identifier, quote_literal};

/// Rows that one transaction changes, about.
const BATCH_ROWS: f64 = 1000.0;

/// The script. `rows_per_page`: live rows of a page. `command` re-toasts the column and returns free space; on a server
/// with pluggable TOAST nothing may be rewritten.
pub(super) fn script(
    target: &Target,
    types: &[KeyType],
    rows_per_page: f64,
    command: &str,
    has_toasters: bool,
) -> String {
    let table = target.table.quoted();
    let column = quote_identifier(&target.column_name);
    let mut keys = Vec::new();
    for (key, &kind) in target.keys.iter().zip(types) {
        keys.push(Key {
            kind,
            literal: quote_literal(&key.key),
            column: quote_identifier(&key.name),
            document: format!("t.{column}"),
        });
    }
    let pages = BATCH_ROWS / rows_per_page.max(1.0) / f64::from(target.table.partitions.max(1));
    let pages = pages.ceil().clamp(1.0, 1e6) as u32;
    let copied = joined(&keys, ",\n        ", |key| {
        format!("{0} = coalesce(t.{0}, {1})", key.column, key.value())
    });
    let missing = joined(&keys, "\n       OR ", |key| {
        format!("(t.{} IS NULL AND {})", key.column, key.fits())
    });
    let left =
        joined(&keys, ", ", |key| format!("CASE WHEN {} THEN {} END", key.is_same(), key.literal));
    let same = joined(&keys, "\n       OR ", Key::is_same);
    let rewrite = if has_toasters {
        format!("--   {}", comment(command))
    } else {
        format!(
            "--   {}\n--   or, with the table locked: VACUUM FULL {};",
            comment(command),
            comment(&table)
        )
    };
    format!(
        "\
-- Moves keys of {document} in {name} to columns. A skeleton: read it, adapt it, try it on a copy.
-- Run it with psql -X -f FILE; then, once the application reads the columns, with psql -X -v remove=1 -f FILE.
-- Writers meanwhile: from step 1 on, the application must write each key to its document and to its column.
-- A key whose column is not written stays in its document: step 4 removes a key only where the column has its value.
-- Change views, indexes, policies and functions that read the keys before step 4, and add the columns on subscribers first.
\\set ON_ERROR_STOP on
\\encoding UTF8
SET search_path = pg_catalog, pg_temp;
SET lock_timeout = '5s';
SET row_security = off;

\\if :{{?remove}}
-- 4. Remove the keys from the documents, in batches. Run it again after an interruption.
{remove}
VACUUM (ANALYZE) {table};

-- 5. In the shell: rewrite the shortened rows and return free space.
{rewrite}

\\else
-- 1. Add the columns. No row is rewritten. The types fit all values of a sample; other values stay in their documents.
ALTER TABLE {table}
  {columns};

-- 2. Copy the keys, in batches. After an interruption, run this step again.
{copy}
VACUUM (ANALYZE) {table};

-- 3. Index the columns that queries search by:
{indexes}
\\endif
",
        document = comment(&target.column_name),
        name = comment(&target.table.display_name()),
        columns = joined(&keys, ",\n  ", |key| format!("ADD COLUMN {} {}", key.column, key.kind.name())),
        copy = batches(target, pages, &copied, &missing),
        remove = batches(target, pages, &format!("{column} = t.{column} - ARRAY[{left}]::text[]"), &same),
        indexes = joined(&keys, "\n", |key| {
            let index = format!("CREATE INDEX CONCURRENTLY ON {table} ({});", key.column);
            format!("--   {}", comment(&index))
        }),
    )
}

/// A key with its SQL, for rows of the table as `t`.
struct Key {
    kind: KeyType,
    /// The key as a literal.
    literal: String,
    /// The new column, quoted.
    column: String,
    /// The documents' column, quoted.
    document: String,
}

fn joined(keys: &[Key], separator: &str, text: impl Fn(&Key) -> String) -> String {
    keys.iter().map(text).collect::<Vec<_>>().join(separator)
}

impl Key {
    /// The key's value in the document, as `jsonb`.
    fn held(&self) -> String {
        format!("({} -> {})", self.document, self.literal)
    }

    fn held_text(&self) -> String {
        format!("({} ->> {})", self.document, self.literal)
    }

    /// The condition that the document has the key, with a value that the column can hold.
    fn fits(&self) -> String {
        let held = self.held();
        let pattern = match self.kind {
            KeyType::Jsonb => return format!("{held} IS NOT NULL"),
            KeyType::Text => return format!("jsonb_typeof({held}) = 'string'"),
            KeyType::Boolean => return format!("jsonb_typeof({held}) = 'boolean'"),
            KeyType::Numeric => return format!("jsonb_typeof({held}) = 'number'"),
            KeyType::Integer => "^(0|-?[1-9][0-9]{0,8})$",
            KeyType::Bigint => "^(0|-?[1-9][0-9]{0,17})$",
        };
        format!("jsonb_typeof({held}) = 'number' AND {} ~ '{pattern}'", self.held_text())
    }

    /// What the column can hold of the key's value, else NULL.
    fn value(&self) -> String {
        let text = self.held_text();
        let value = match self.kind {
            KeyType::Jsonb => return self.held(),
            KeyType::Text => text,
            kind => format!("{text}::{}", kind.name()),
        };
        format!("CASE WHEN {} THEN {value} END", self.fits())
    }

    /// The condition that the column gives the document's value back.
    fn is_same(&self) -> String {
        format!("to_jsonb(t.{})::text = {}::text", self.column, self.held())
    }
}

/// A `DO` statement that updates the rows of a table `t`, with a commit after each batch of pages. In a partitioned
/// table, pages of the same number are one batch.
fn batches(target: &Target, pages: u32, set: &str, condition: &str) -> String {
    let table = target.table.quoted();
    let relation = quote_literal(&table);
    let size = if target.table.partitions > 0 {
        format!(
            "(SELECT max(pg_relation_size(relid)) FROM pg_partition_tree({relation}::regclass) WHERE isleaf)"
        )
    } else {
        format!("pg_relation_size({relation}::regclass)")
    };
    let body = format!(
        "DECLARE
  pages constant bigint := {size} / current_setting('block_size')::bigint;
BEGIN
  FOR batch IN 0 .. pages / {pages} LOOP
    UPDATE {table} AS t
    SET {set}
    WHERE t.ctid >= format('(%s,0)', batch * {pages})::tid AND t.ctid < format('(%s,0)', (batch + 1) * {pages})::tid
      AND ({condition});
    COMMIT;
  END LOOP;
END"
    );
    format!("DO {};", dollar_quoted(&body))
}

/// Text that cannot end the comment that it stands in.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Text between dollar signs, with a tag that is not in it.
fn dollar_quoted(body: &str) -> String {
    let mut tag = "$toastctl$".to_owned();
    let mut number = 0;
    while body.contains(&tag) {
        number += 1;
        tag = format!("$toastctl{number}$");
    }
    format!("{tag}\n{body}\n{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_cannot_end_its_quotes() {
        assert_eq!(dollar_quoted("x"), "$toastctl$\nx\n$toastctl$");
        let quoted = dollar_quoted("$toastctl$ $toastctl1$");
        assert!(quoted.starts_with("$toastctl2$\n") && quoted.ends_with("\n$toastctl2$"));
    }
}
