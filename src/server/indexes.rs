//! The indexes of a table and of its TOAST relation.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Connection;
use super::toasters::TOAST_RELATIONS;
use super::{LiveResult, numbers};
use toast_format::disk::{Align, Oid};
use toast_format::model::btree::{DEFAULT_FILLFACTOR, TOAST_KEYS, entry_bytes};
use toast_format::model::sql::LONGEST_NAME;

/// These figures are not worth a long wait.
pub(crate) const LIMITS: &str =
    "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '60s'";

/// What is known about an index's entries without reading its pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KnownEntries {
    /// The fill factor of leaf pages, in percent.
    pub(crate) fillfactor: u8,
    /// Whether equal keys may share an entry, according to the index's settings.
    pub(crate) deduplicates: bool,
    /// The number of entries, if VACUUM or ANALYZE has counted them, or the rows of the table, when there were about as many
    /// pages as now.
    pub(crate) count: Option<f64>,
    /// The size of an entry with its line pointer, if all have the same size.
    pub(crate) bytes: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Index {
    pub(crate) oid: Oid,
    /// The relation to which it belongs.
    pub(crate) table: Oid,
    schema: String,
    pub(crate) name: String,
    quoted: String,
    pub(crate) method: String,
    /// Bytes of its main fork.
    pub(crate) bytes: u64,
    pub(crate) valid: bool,
    pub(crate) unique: bool,
    /// Whether it belongs to an exclusion constraint.
    pub(crate) exclusion: bool,
    /// Whether it belongs to a deferrable constraint.
    pub(crate) deferrable: bool,
    /// Whether it belongs to a TOAST relation.
    pub(crate) of_toast: bool,
    pub(crate) entries: KnownEntries,
    /// Whether this user may use its schema.
    pub(crate) in_reach: bool,
    /// Columns, operator classes, expressions and predicate, as a text.
    definition: String,
}

/// The largest expected size of a TOAST relation's index that is rebuilt, because other sessions must wait meanwhile.
const LOCKED_BYTES: u64 = 16 << 20;

impl Index {
    /// Schema and name, quoted where necessary.
    pub(crate) fn quoted(&self) -> String {
        self.quoted.clone()
    }

    /// The statement that rebuilds it, concurrently unless it belongs to a TOAST relation. If such an index is rebuilt
    /// concurrently, entries of values written in the meantime can be missing, so that these values cannot be read. The
    /// reason is that a session which loads the index into its relation cache and keeps it open does not learn later
    /// that the index is ready, because `RelationReloadIndexInfo` (relcache.c) treats it as an index of a system
    /// catalog (observed with 15.18, 17.10 and 18.4).
    pub(crate) fn rebuild(&self) -> String {
        let concurrently = if self.of_toast { "" } else { "CONCURRENTLY " };
        format!("REINDEX INDEX {concurrently}{}", self.quoted)
    }

    /// The statement that drops it concurrently.
    pub(crate) fn drop(&self) -> String {
        format!("DROP INDEX CONCURRENTLY {}", self.quoted)
    }

    /// Why the server or this user cannot rebuild the index concurrently.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        if self.exclusion {
            Some("PostgreSQL cannot rebuild the index of an exclusion constraint concurrently")
        } else if self.deferrable {
            // index_concurrently_create_copy and index_concurrently_swap (index.c) make the copy and the old index
            // immediate.
            Some(
                "it belongs to a deferrable constraint, which PostgreSQL checks at once while the index is rebuilt \
                 concurrently: other sessions would get errors",
            )
        } else if !self.in_reach {
            Some("this user may not use its schema: GRANT pg_read_all_data TO the user allows it")
        } else {
            None
        }
    }

    /// Why the index is not rebuilt to a size of `fresh` bytes: an index of a TOAST relation cannot be rebuilt concurrently.
    pub(crate) fn locks_long(&self, fresh: u64) -> Option<&'static str> {
        if self.of_toast && fresh > LOCKED_BYTES {
            Some(
                "it is large, and readers and writers of out-of-line values wait while the index of a TOAST relation is \
                 rebuilt",
            )
        } else {
            None
        }
    }

    /// Whether an interrupted REINDEX CONCURRENTLY of `base` has left this index behind.
    pub(crate) fn is_left_of(&self, base: &Index) -> bool {
        // The old index keeps its OID and is renamed.
        !self.valid
            && (self.table, &self.schema) == (base.table, &base.schema)
            && self.definition == base.definition
            && is_left_behind(&self.name, &base.name)
    }
}

/// The indexes of the table and of its TOAST relation, the smallest first.
///
/// # Errors
/// Any error of the server, including a lock timeout.
pub(crate) async fn of_table(connection: &Connection, table: Oid) -> LiveResult<Vec<Index>> {
    Ok(of_tables(connection, &[table]).await?.remove(&table).unwrap_or_default())
}

/// The same for many tables; those without any index are missing.
///
/// # Errors
/// Like [`of_table`].
pub(crate) async fn of_tables(
    connection: &Connection,
    tables: &[Oid],
) -> LiveResult<HashMap<Oid, Vec<Index>>> {
    // VACUUM counts the rows of a table, and the entries of an index only if it removes some
    let as_counted =
        "1.1::pg_catalog.float8 * pg_catalog.current_setting('block_size')::pg_catalog.int4";
    let sql = format!(
        "SELECT c.oid, i.indrelid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
          m.amname::pg_catalog.text, coalesce(pg_catalog.pg_relation_size(c.oid), 0), i.indisvalid, \
          i.indisunique, i.indisexclusion, o.fillfactor, coalesce(o.deduplicate, true), \
          CASE WHEN i.indpred IS NULL AND pg_catalog.pg_relation_size(t.oid) <= {as_counted} * t.relpages \
              THEN t.reltuples::pg_catalog.float8 \
            WHEN pg_catalog.pg_relation_size(c.oid) <= {as_counted} * c.relpages THEN c.reltuples::pg_catalog.float8 \
            ELSE -1 END, \
          t.relkind = 't', i.indpred IS NULL AND NOT EXISTS (\
            SELECT FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) AS k \
            LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k \
            WHERE a.attnotnull IS NOT TRUE), \
          ARRAY(SELECT a.attlen FROM pg_catalog.pg_attribute AS a \
                WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum), \
          ARRAY(SELECT a.attalign::pg_catalog.text \
                FROM pg_catalog.pg_attribute AS a \
                WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum), \
          pg_catalog.has_schema_privilege(n.oid, 'USAGE'), \
          pg_catalog.concat_ws(' ', i.indkey::pg_catalog.text, i.indclass::pg_catalog.text, \
            i.indcollation::pg_catalog.text, i.indoption::pg_catalog.text, i.indnkeyatts::pg_catalog.text, \
            i.indisunique::pg_catalog.text, pg_catalog.pg_get_expr(i.indexprs, i.indrelid), '/', \
            pg_catalog.pg_get_expr(i.indpred, i.indrelid)), pg_catalog.format('%I.%I', n.nspname, c.relname), \
          NOT i.indimmediate, own.oid \
        FROM (SELECT oid, oid AS of FROM pg_catalog.unnest($1) AS oid UNION ALL \
          SELECT c.oid, pg_catalog.unnest({TOAST_RELATIONS}) FROM pg_catalog.pg_class AS c \
          WHERE c.oid = ANY ($1)) AS own \
        JOIN pg_catalog.pg_index AS i ON i.indrelid = own.of JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
        JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid \
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
        JOIN pg_catalog.pg_am AS m ON m.oid = c.relam, \
        LATERAL (SELECT \
          max(x.option_value) FILTER (WHERE x.option_name = 'fillfactor')::pg_catalog.int4 AS fillfactor, \
          pg_catalog.bool_and(x.option_value::pg_catalog.bool) \
            FILTER (WHERE x.option_name = 'deduplicate_items') AS deduplicate \
          FROM pg_catalog.pg_options_to_table(c.reloptions) AS x \
          WHERE x.option_name IN ('fillfactor', 'deduplicate_items')) AS o \
        WHERE c.relkind = 'i' ORDER BY 6, 1"
    );
    connection
        .reading(async || {
            let client = connection.client();
            client.batch_execute(LIMITS).await?;
            let rows = client.query_typed(&sql, &[(&numbers(tables), Type::OID_ARRAY)]).await?;
            let mut found: HashMap<Oid, Vec<Index>> = HashMap::new();
            for row in &rows {
                found.entry(Oid(row.try_get(20)?)).or_default().push(read(row)?);
            }
            Ok(found)
        })
        .await
}

fn read(row: &Row) -> LiveResult<Index> {
    let bytes: i64 = row.try_get(5)?;
    let fillfactor: Option<i32> = row.try_get(9)?;
    let count: f64 = row.try_get(11)?;
    let of_toast: bool = row.try_get(12)?;
    let never_null: bool = row.try_get(13)?;
    let lengths: Vec<i16> = row.try_get(14)?;
    let alignments: Vec<String> = row.try_get(15)?;
    let keys = if of_toast {
        Some(TOAST_KEYS)
    } else {
        if never_null { fixed(&lengths, &alignments) } else { None }
    };
    Ok(Index {
        oid: Oid(row.try_get(0)?),
        table: Oid(row.try_get(1)?),
        schema: row.try_get(2)?,
        name: row.try_get(3)?,
        method: row.try_get(4)?,
        bytes: u64::try_from(bytes).unwrap_or(0),
        valid: row.try_get(6)?,
        unique: row.try_get(7)?,
        exclusion: row.try_get(8)?,
        deferrable: row.try_get(19)?,
        of_toast,
        entries: KnownEntries {
            fillfactor: fillfactor.and_then(|f| u8::try_from(f).ok()).unwrap_or(DEFAULT_FILLFACTOR),
            deduplicates: row.try_get(10)?,
            count: (count >= 0.0).then_some(count),
            bytes: keys.map(entry_bytes),
        },
        in_reach: row.try_get(16)?,
        definition: row.try_get(17)?,
        quoted: row.try_get(18)?,
    })
}

/// The size of keys with these lengths and alignments, if none is variable.
fn fixed(lengths: &[i16], alignments: &[impl AsRef<str>]) -> Option<usize> {
    lengths.iter().zip(alignments).try_fold(0usize, |at, (&length, alignment)| {
        let length = usize::try_from(length).ok()?;
        let align = alignment.as_ref().chars().next().and_then(Align::from_char)?;
        Some(at.next_multiple_of(align.bytes()) + length)
    })
}

/// The maximum size of a character in server encodings, in bytes.
const CHARACTER: usize = 4;

/// Whether REINDEX CONCURRENTLY of the index `base` may have created an index with this name: `base`, truncated if it
/// is too long, and `_ccnew` or `_ccold`, with a number if that name was in use (`ChooseRelationName`, indexcmds.c).
fn is_left_behind(name: &str, base: &str) -> bool {
    ["_ccnew", "_ccold"].iter().any(|label| {
        let Some(at) = name.rfind(label) else { return false };
        let (Some(stem), Some(number)) = (name.get(..at), name.get(at + label.len()..)) else {
            return false;
        };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) || number.starts_with('0') {
            return false;
        }
        let room = LONGEST_NAME.saturating_sub(label.len() + number.len());
        stem == base
            || base.len() > room
                && !stem.is_empty()
                && base.starts_with(stem)
                && stem.len() + CHARACTER > room
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_fixed_length_are_aligned() {
        assert_eq!(fixed(&[4], &["i"]), Some(4));
        assert_eq!(fixed(&[1, 8, 2, 4], &["c", "d", "s", "i"]), Some(24));
        assert_eq!(fixed(&[4, -1], &["i", "i"]), None);
    }

    #[test]
    fn names_are_those_that_the_server_chooses() {
        for name in ["t_pkey_ccnew", "t_pkey_ccold", "t_pkey_ccnew1", "t_pkey_ccold12"] {
            assert!(is_left_behind(name, "t_pkey"), "{name}");
        }
        for name in ["t_pkey", "t_pke_ccnew", "t_pkey2_ccnew", "t_pkey_ccnewx", "t_pkey_ccnew01"] {
            assert!(!is_left_behind(name, "t_pkey"), "{name}");
        }
        assert!(
            is_left_behind("a_ccnew_ccnew", "a_ccnew") && !is_left_behind("a_ccnew", "a_ccnew")
        );
    }

    #[test]
    fn long_names_are_cut() {
        let base = "x".repeat(63);
        assert!(is_left_behind(&format!("{}_ccnew", "x".repeat(57)), &base));
        assert!(is_left_behind(&format!("{}_ccnew1", "x".repeat(56)), &base));
        assert!(!is_left_behind(&format!("{}_ccnew", "x".repeat(40)), &base));
        let base = "ä".repeat(31);
        assert!(is_left_behind(&format!("{}_ccold", "ä".repeat(28)), &base));
    }
}
