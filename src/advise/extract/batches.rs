//! The statements of a migration that go over all rows, batch by batch.

use crate::model::sql::quote_literal;

/// What is done to the rows of a batch.
pub(super) struct Batches<'a> {
    /// Schema and name, quoted.
    pub table: &'a str,
    /// `SET` list.
    pub set: &'a str,
    /// Which rows of the table `t` are not done.
    pub undone: &'a str,
    /// Whether its rows are in partitions: pages of the same number are one batch.
    pub partitioned: bool,
    /// Pages of a batch.
    pub pages: u32,
    /// What is told of it.
    pub done: &'a str,
}

impl Batches<'_> {
    /// A `DO` statement that commits after each batch. What was done before an interruption is not done again.
    pub(super) fn sql(&self) -> String {
        let Batches { table, set, undone, pages, done, .. } = self;
        let relation = quote_literal(table);
        let size = if self.partitioned {
            format!(
                "(SELECT max(pg_relation_size(relid)) FROM pg_partition_tree({relation}::regclass) WHERE isleaf)"
            )
        } else {
            format!("pg_relation_size({relation}::regclass)")
        };
        block(&format!(
            "DECLARE
  first bigint := 0;
  pages constant bigint := {size} / current_setting('block_size')::bigint;
  rows bigint;
  total bigint := 0;
BEGIN
  WHILE first < pages LOOP
    UPDATE {table} AS t
    SET {set}
    WHERE t.ctid >= format('(%s,0)', first)::tid AND t.ctid < format('(%s,0)', first + {pages})::tid
      AND ({undone});
    GET DIAGNOSTICS rows = ROW_COUNT;
    total := total + rows;
    first := first + {pages};
    COMMIT;
  END LOOP;
  RAISE NOTICE '% {done}', total;
END"
        ))
    }
}

/// A `DO` statement that fails if there are such rows in the table.
pub(super) fn verification(table: &str, wrong: &str, message: &str) -> String {
    block(&format!(
        "DECLARE
  wrong bigint;
BEGIN
  SELECT count(*) INTO wrong FROM {table} AS t
  WHERE {wrong};
  IF wrong > 0 THEN
    RAISE EXCEPTION '% {message}', wrong;
  END IF;
END"
    ))
}

/// A `DO` statement.
pub(super) fn block(body: &str) -> String {
    format!("DO {};\n", dollar_quoted(body))
}

/// Text between dollar signs, with a tag that is not in it.
pub(super) fn dollar_quoted(body: &str) -> String {
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
