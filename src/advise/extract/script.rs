//! The migration to columns for keys, as a skeleton for psql that its reader adapts: add, copy, index, drop the keys.
//!
//! A key leaves a document only if its column gives the same value back.

use super::rows::KeyType;
use super::target::ExtractionTarget;
use toast_format::model::sql::{quote_identifier, quote_literal};

/// Rows that one transaction changes, about.
const BATCH_ROWS: f64 = 1000.0;

/// The script. `rows_per_page`: live rows of a page. `command` re-toasts the column and returns free space; on a server
/// with pluggable TOAST nothing may be rewritten.
pub(super) fn script(
    target: &ExtractionTarget,
    types: &[KeyType],
    rows_per_page: f64,
    command: &str,
    has_toasters: bool,
) -> String {
    let table = target.table.quoted();
    let document = quote_identifier(&target.column_name);
    let mut added = Vec::new();
    let mut copied = Vec::new();
    let mut missing = Vec::new();
    let mut left = Vec::new();
    let mut same = Vec::new();
    let mut indexes = Vec::new();
    for (key, &kind) in target.keys.iter().zip(types) {
        let column = quote_identifier(&key.name);
        let literal = quote_literal(&key.key);
        let value = match kind {
            KeyType::Jsonb => format!("t.{document} -> {literal}"),
            KeyType::Text => format!("t.{document} ->> {literal}"),
            _ => format!("(t.{document} ->> {literal})::{}", kind.name()),
        };
        let is_same = format!("to_jsonb(t.{column})::text = (t.{document} -> {literal})::text");
        added.push(format!("ADD COLUMN {column} {}", kind.name()));
        copied.push(format!("{column} = coalesce(t.{column}, {value})"));
        missing.push(format!("t.{column} IS NULL AND t.{document} -> {literal} IS NOT NULL"));
        left.push(format!("CASE WHEN {is_same} THEN {literal} END"));
        same.push(is_same);
        indexes.push(comment(&format!("CREATE INDEX CONCURRENTLY ON {table} ({column});")));
    }
    let pages = BATCH_ROWS / rows_per_page.max(1.0) / f64::from(target.table.partitions.max(1));
    let pages = pages.ceil().clamp(1.0, 1e6) as u32;
    let remove = format!("{document} = t.{document} - ARRAY[{}]::text[]", left.join(", "));
    let mut rewrite = comment(command);
    if !has_toasters {
        let full = format!("\n--   or, with the table locked: VACUUM FULL {};", comment(&table));
        rewrite.push_str(&full);
    }
    format!(
        "\
-- Moves keys of {column} in {name} to columns. A skeleton: read it, adapt it, try it on a copy.
-- Run it with psql -X -f FILE; then, once the application reads the columns, with psql -X -v remove=1 -f FILE.
-- Writers meanwhile: from step 1 on, the application must write each key to its document and to its column.
-- A key whose column is not written stays in its document: step 4 removes a key only where the column has its value.
\\set ON_ERROR_STOP on
\\encoding UTF8
SET search_path = pg_catalog, pg_temp;
SET lock_timeout = '5s';
SET row_security = off;

\\if :{{?remove}}
-- 4. Remove the keys from the documents, in batches, after all views, indexes and functions read the columns.
{remove}
VACUUM (ANALYZE) {table};

-- 5. In the shell: rewrite the shortened rows and return free space.
--   {rewrite}

\\else
-- 1. Add the columns, on subscribers first. The types fit all values of a sample.
ALTER TABLE {table}
  {added};

-- 2. Copy the keys, in batches; after an interruption, again. A value that does not fit its column's type ends this step.
{copy}
VACUUM (ANALYZE) {table};

-- 3. Index the columns that queries search by:
--   {indexes}
\\endif
",
        column = comment(&target.column_name),
        name = comment(&target.table.display_name()),
        remove = batches(target, pages, &remove, &same),
        added = added.join(",\n  "),
        copy = batches(target, pages, &copied.join(",\n        "), &missing),
        indexes = indexes.join("\n--   "),
    )
}

/// A `DO` statement that updates the rows of a table `t` that meet one of the conditions, with a commit after each batch
/// of pages. In a partitioned table, pages of the same number are one batch.
fn batches(target: &ExtractionTarget, pages: u32, set: &str, conditions: &[String]) -> String {
    let table = target.table.quoted();
    let relation = quote_literal(&table);
    let size = match target.table.partitions {
        0 => format!("pg_relation_size({relation})"),
        _ => format!("(SELECT max(pg_relation_size(relid)) FROM pg_partition_tree({relation}))"),
    };
    let condition = conditions.join("\n        OR ");
    let body = format!(
        "BEGIN
  FOR page IN 0 .. {size} / current_setting('block_size')::bigint BY {pages} LOOP
    UPDATE {table} AS t
    SET {set}
    WHERE t.ctid >= format('(%s,0)', page)::tid AND t.ctid < format('(%s,0)', page + {pages})::tid
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
