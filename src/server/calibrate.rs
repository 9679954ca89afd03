//! Times how long this server takes to read and to compress values of a column: copies in temporary tables, and EXPLAIN
//! (ANALYZE, TIMING OFF) of a statement that needs the whole values, against the same one that does not.
//!
//! The tables have the rows of [`trial`](super::trial), in which every copy is compressed and moved out of line as far as
//! possible. The values are fetched from the user's table once: from then on they come from `toastctl_raw`, which has
//! them out of line and uncompressed, so that the statistics of the user's table hardly change.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::connect::Client;
use super::trial::{Copied, CopyTable, base_of, padding_text};
use super::{LiveError, LiveResult, Parameter, single_row};
use toast_format::codec::Method;
use toast_format::disk::{ItemPointer, PageSize};
use toast_format::model::sql::{fresh, fresh_array, quote_identifier};

/// Each time is the least of this number of runs, or of one where runs take long.
const RUNS: usize = 6;
/// A run calibrates no longer than this, for all columns.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// No statement takes longer.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(1);
/// Nanoseconds that a timed statement should take at least for the values it reads.
const LEAST_NS: f64 = 150e3;
/// No values are read more often than this by one statement.
const MOST_REPEATS: u32 = 200;

const RAW: &str = "toastctl_raw";
const WRITTEN: &str = "toastctl_written";

/// Settings for these statements. A temporary table is small, has no index and no statistics.
const SETTINGS: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_tidscan = on; \
     SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// How values of the column are stored for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Out of line, uncompressed.
    Raw,
    /// Out of line, compressed with this method if the server accepts the result.
    Compressed(Method),
}

/// Times of one group of values in one form, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timed {
    pub(crate) stored: Stored,
    /// The index of the group.
    pub(crate) group: usize,
    pub(crate) read_ns: f64,
    pub(crate) write_ns: f64,
}

/// A column to time, and how.
#[derive(Debug, Clone)]
pub(crate) struct Subject<'a> {
    /// The table's name, quoted.
    pub(crate) table: String,
    pub(crate) column: &'a str,
    pub(crate) is_array: bool,
    pub(crate) methods: &'a [Method],
    pub(crate) page: PageSize,
}

/// What a group has: the addresses of its rows, and how long a read of its values takes at the default prices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) rows: Vec<ItemPointer>,
    pub(crate) expected_ns: f64,
}

impl Subject<'_> {
    fn fresh(&self, value: &str) -> String {
        if self.is_array { fresh_array(value) } else { fresh(value) }
    }

    /// A table of copies with these columns, keyed by group.
    fn copies(&self, name: &str, columns: &[(&str, Method)]) -> CopyTable {
        let of = base_of(&format!("t.{}", quote_identifier(self.column)));
        CopyTable {
            name: name.to_owned(),
            keys: vec![("g".to_owned(), "0::pg_catalog.int4")],
            copies: columns
                .iter()
                .map(|&(name, method): &(&str, Method)| Copied {
                    name: name.into(),
                    of: of.clone(),
                    method,
                })
                .collect(),
        }
    }

    fn make_raw(&self) -> String {
        let copies = self.copies(RAW, &[("v", Method::Pglz)]);
        format!(
            "{}; ALTER TABLE pg_temp.{RAW} ALTER v SET STORAGE external",
            copies.make(&self.table)
        )
    }

    /// The table that has the values compressed, and the one that they are written to.
    fn make_compressed(&self, method: Method) -> String {
        let read = self.copies(table_of(Stored::Compressed(method)), &[("v", method)]);
        let written = self.copies(&format!("{WRITTEN}_{}", method.name()), &[("v", method)]);
        format!("{}; {}", read.make(&self.table), written.make(&self.table))
    }

    /// Copies the rows at these addresses, as a group.
    fn fill_raw(&self) -> String {
        let value = self.fresh(&format!("t.{}", quote_identifier(self.column)));
        format!(
            "INSERT INTO pg_temp.{RAW} SELECT $2::pg_catalog.int4, {value}, {} FROM ONLY {} AS t \
             WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])",
            padding_text(self.page),
            self.table
        )
    }

    /// Copies all groups, compressed with this method.
    fn fill_compressed(&self, method: Method) -> String {
        let value = self.fresh("c.v");
        format!(
            "INSERT INTO pg_temp.{} SELECT c.g, {value}, {} FROM pg_temp.{RAW} AS c",
            table_of(Stored::Compressed(method)),
            padding_text(self.page)
        )
    }

    /// Writes the values of a group; without a form their rows alone, although the values are read.
    fn write(&self, group: usize, stored: Option<Stored>) -> String {
        let value = self.fresh("c.v");
        let table = written_to(stored);
        let value = match stored {
            // as a condition it might be evaluated before that of the group, for all rows
            None => format!("CASE WHEN {value} IS NULL THEN c.v END"),
            Some(_) => value,
        };
        format!(
            "INSERT INTO pg_temp.{table} SELECT c.g, {value}, {} FROM pg_temp.{RAW} AS c WHERE c.g = {group}",
            padding_text(self.page)
        )
    }
}

/// The table with the values in this form.
fn table_of(stored: Stored) -> &'static str {
    match stored {
        Stored::Raw => RAW,
        Stored::Compressed(Method::Pglz) => "toastctl_pglz",
        Stored::Compressed(Method::Lz4) => "toastctl_lz4",
    }
}

/// The table to which values are written in this form.
fn written_to(stored: Option<Stored>) -> String {
    match stored {
        None | Some(Stored::Raw) => WRITTEN.to_owned(),
        Some(Stored::Compressed(method)) => format!("{WRITTEN}_{}", method.name()),
    }
}

/// An expression that needs the whole value `c.v` of this type, and does little else; `None` if there is none.
fn reader(category: &str, type_name: &str) -> Option<&'static str> {
    match (category, type_name) {
        ("A", _) => Some("pg_catalog.array_ndims(c.v)"),
        // starts_with() and length() would read a prefix, and every character
        (_, "text" | "varchar") => Some("pg_catalog.text_pattern_lt(c.v::pg_catalog.text, '')"),
        (_, "bpchar") => Some("pg_catalog.bpchar_pattern_lt(c.v, '')"),
        (_, "bytea") => Some("pg_catalog.get_byte(c.v, 0)"),
        (_, "jsonb") => Some("pg_catalog.jsonb_typeof(c.v)"),
        (_, "json") => Some("pg_catalog.json_typeof(c.v)"),
        (_, "tsvector") => Some("pg_catalog.length(c.v)"),
        _ => None,
    }
}

/// Reads the values of a group `repeats` times, in turn, as a scan would: the condition depends on the repetition, so that
/// the planner cannot read one value that often before the next.
fn read(stored: Stored, group: usize, expression: &str, repeats: u32) -> String {
    format!(
        "SELECT pg_catalog.count({expression}) FROM pg_catalog.generate_series(1, {repeats}) AS r (n), \
         LATERAL (SELECT t.v FROM pg_temp.{} AS t WHERE t.g = {group} + 0 * r.n) AS c",
        table_of(stored)
    )
}

/// How often a group is read by one statement.
fn repeats(expected_ns: f64) -> u32 {
    (LEAST_NS / expected_ns.max(1.0)).ceil().clamp(1.0, f64::from(MOST_REPEATS)) as u32
}

/// `Execution Time: 1.234 ms`, in nanoseconds.
fn execution_ns(line: &str) -> Option<f64> {
    let time = line.trim().strip_prefix("Execution Time: ")?.strip_suffix(" ms")?;
    time.parse::<f64>().ok().map(|ms| ms * 1e6)
}

/// Why not all is timed.
pub(crate) fn too_long() -> String {
    format!("not done within {} s for all columns", LIMIT.as_secs())
}

/// Times statements until a deadline.
struct Clock<'a> {
    client: &'a Client,
    started: Instant,
    limit: Duration,
}

impl Clock<'_> {
    fn check(&self) -> LiveResult<()> {
        if self.started.elapsed() + STATEMENT_LIMIT < self.limit {
            Ok(())
        } else {
            Err(LiveError::Refused(too_long()))
        }
    }

    /// Whether there is time to run a statement that was run `before` times once more.
    fn runs_again(&self, before: usize) -> bool {
        before == 0 || (before < RUNS && self.started.elapsed() < self.limit / 2)
    }

    async fn execute(&self, sql: &str) -> LiveResult<()> {
        self.check()?;
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The time of a statement in nanoseconds.
    async fn time(&self, sql: &str) -> LiveResult<f64> {
        self.check()?;
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY ON) {sql}");
        for row in self.client.query_typed(&explain, &[]).await? {
            if let Some(ns) = execution_ns(row.try_get(0)?) {
                return Ok(ns);
            }
        }
        Err(LiveError::Unexpected("no execution time".into()))
    }
}

/// Times the groups in a transaction that may write, within `limit`. The temporary tables are left to its ROLLBACK.
pub(crate) async fn time(
    client: &Client,
    subject: &Subject<'_>,
    groups: &[Group],
    limit: Duration,
) -> LiveResult<Vec<Timed>> {
    let clock = Clock { client, started: Instant::now(), limit };
    let timeout = STATEMENT_LIMIT.as_millis();
    clock.execute(&format!("{SETTINGS}; SET LOCAL statement_timeout = {timeout}")).await?;
    let mut subject = subject.clone();
    let expression = fill(&clock, &mut subject, groups).await?;
    let mut forms = vec![Stored::Raw];
    forms.extend(subject.methods.iter().map(|&method| Stored::Compressed(method)));
    let mut timed = reads(&clock, &forms, groups, expression).await?;
    for number in 0..groups.len() {
        let times = writes(&clock, &subject, &forms, number).await?;
        for one in timed.iter_mut().filter(|one| one.group == number) {
            let at = forms.iter().position(|form| *form == one.stored);
            one.write_ns = at.and_then(|at| times.get(at)).copied().unwrap_or(0.0);
        }
    }
    Ok(timed)
}

/// Makes and fills the tables; returns the expression that reads a value.
async fn fill(
    clock: &Clock<'_>,
    subject: &mut Subject<'_>,
    groups: &[Group],
) -> LiveResult<&'static str> {
    let client = clock.client;
    clock.execute(&subject.make_raw()).await?;
    let sql = "SELECT t.typcategory::pg_catalog.text, t.typname::pg_catalog.text, \
                      t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace \
               FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
               WHERE a.attrelid = 'pg_temp.toastctl_raw'::pg_catalog.regclass AND a.attname = 'v'";
    let of = single_row(client, sql, &[]).await?;
    let category: String = of.try_get(0)?;
    let type_name: String = of.try_get(1)?;
    // copies of a domain over an array are arrays
    subject.is_array |= category == "A";
    // a type of that name in another schema may have casts, which are functions of other users; an array type is in the
    // schema of its elements' type
    let is_built_in: bool = of.try_get(2)?;
    let known = if is_built_in { reader(&category, &type_name) } else { None };
    let expression = known.ok_or_else(|| {
        LiveError::Refused(format!(
            "no function reads values of type {type_name} and does nothing else"
        ))
    })?;
    clock.execute("SET LOCAL enable_seqscan = off").await?;
    for (number, group) in groups.iter().enumerate() {
        clock.check()?;
        let items: Vec<String> = group.rows.iter().map(ToString::to_string).collect();
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let parameters: [Parameter<'_>; 2] = [(&items, Type::TEXT_ARRAY), (&number, Type::INT4)];
        client.execute_typed(&subject.fill_raw(), &parameters).await?;
    }
    clock.execute("SET LOCAL enable_seqscan = on").await?;
    let written = subject.copies(WRITTEN, &[("v", Method::Pglz)]);
    let external = format!("ALTER TABLE pg_temp.{WRITTEN} ALTER v SET STORAGE external");
    clock.execute(&format!("{}; {external}", written.make(&subject.table))).await?;
    for &method in subject.methods {
        clock.execute(&subject.make_compressed(method)).await?;
        clock.execute(&subject.fill_compressed(method)).await?;
    }
    Ok(expression)
}

/// The times that reading each group takes in each form. All others are read before a group is read again: a processor
/// that has just seen values reads them in half the time.
async fn reads(
    clock: &Clock<'_>,
    forms: &[Stored],
    groups: &[Group],
    expression: &str,
) -> LiveResult<Vec<Timed>> {
    let mut least = vec![[f64::INFINITY; 2]; groups.len() * forms.len()];
    for _ in (0..RUNS).take_while(|&run| clock.runs_again(run)) {
        for (one, least) in combinations(forms, groups).zip(&mut least) {
            let (stored, number, repeats) = one;
            for (least, expression) in least.iter_mut().zip(["c.v", expression]) {
                let ns = clock.time(&read(stored, number, expression, repeats)).await?;
                *least = least.min(ns);
            }
        }
    }
    let timed = combinations(forms, groups).zip(least);
    Ok(timed
        .map(|((stored, group, repeats), [without, with])| {
            let read_ns = (with - without) / f64::from(repeats);
            Timed { stored, group, read_ns, write_ns: 0.0 }
        })
        .collect())
}

/// Each group in each form, and how often one statement reads it.
fn combinations(forms: &[Stored], groups: &[Group]) -> impl Iterator<Item = (Stored, usize, u32)> {
    let numbered = groups.iter().enumerate();
    numbered.flat_map(move |(number, group)| {
        forms.iter().map(move |&form| (form, number, repeats(group.expected_ns)))
    })
}

/// The time that writing a group takes in each form.
async fn writes(
    clock: &Clock<'_>,
    subject: &Subject<'_>,
    forms: &[Stored],
    number: usize,
) -> LiveResult<Vec<f64>> {
    // emptied again, so that temp_buffers suffice
    let all: Vec<(String, String)> = [None]
        .into_iter()
        .chain(forms.iter().map(|&form| Some(form)))
        .map(|form| {
            let empty = format!("TRUNCATE pg_temp.{}", written_to(form));
            (subject.write(number, form), empty)
        })
        .collect();
    let mut least = vec![f64::INFINITY; all.len()];
    for _ in (0..RUNS).take_while(|&run| clock.runs_again(run)) {
        for (least, (sql, empty)) in least.iter_mut().zip(&all) {
            *least = least.min(clock.time(sql).await?);
            clock.execute(empty).await?;
        }
    }
    let without = least.first().copied().unwrap_or_default();
    Ok(least.into_iter().skip(1).map(|ns| ns - without).collect())
}

/// Why no temporary table can be used on a primary, if so.
pub(crate) async fn refusal(client: &Client) -> LiveResult<Option<String>> {
    // toastctl sets the setting for its session, so that only the value behind it is the user's
    let sql = "SELECT current_user::pg_catalog.text, \
                      pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY'), \
                      EXISTS (SELECT FROM pg_catalog.pg_settings AS s \
                              WHERE s.name = 'default_transaction_read_only' AND s.reset_val = 'on')";
    let row = single_row(client, sql, &[]).await?;
    let user: String = row.try_get(0)?;
    let allowed: bool = row.try_get(1)?;
    let read_only: bool = row.try_get(2)?;
    Ok(if read_only {
        Some(
            "transactions are read-only by default here (default_transaction_read_only)".to_owned(),
        )
    } else if !allowed {
        Some(format!("user \"{user}\" may not create temporary tables"))
    } else {
        None
    })
}

/// Identifies this server: the system identifier, or its address if the user may not see that.
pub(crate) async fn identity(client: &Client) -> LiveResult<String> {
    let sql =
        "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')";
    let allowed: Option<bool> = client.value(sql, &[]).await?;
    let sql = match allowed {
        Some(true) => {
            "SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()"
        }
        _ => {
            "SELECT pg_catalog.concat(coalesce(pg_catalog.host(pg_catalog.inet_server_addr()), 'local'), ':', \
             pg_catalog.current_setting('port'))"
        }
    };
    let identity: Option<String> = client.value(sql, &[]).await?;
    identity.ok_or_else(|| LiveError::Unexpected("no identifier of the server".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject<'static> {
        Subject {
            table: r#""s"."T""#.into(),
            column: "a\"b",
            is_array: false,
            methods: &[Method::Pglz, Method::Lz4],
            page: PageSize::DEFAULT,
        }
    }

    #[test]
    fn values_are_fetched_once_and_copied_from_the_copies() {
        let subject = subject();
        insta::assert_snapshot!(subject.fill_raw(), @r#"INSERT INTO pg_temp.toastctl_raw SELECT $2::pg_catalog.int4, (ARRAY[t."a""b"])[1], pg_catalog.repeat('x', 2032) FROM ONLY "s"."T" AS t WHERE t.ctid = ANY ($1::pg_catalog.text[]::pg_catalog.tid[])"#);
        insta::assert_snapshot!(subject.fill_compressed(Method::Lz4), @"INSERT INTO pg_temp.toastctl_lz4 SELECT c.g, (ARRAY[c.v])[1], pg_catalog.repeat('x', 2032) FROM pg_temp.toastctl_raw AS c");
        insta::assert_snapshot!(subject.write(3, None), @"INSERT INTO pg_temp.toastctl_written SELECT c.g, CASE WHEN (ARRAY[c.v])[1] IS NULL THEN c.v END, pg_catalog.repeat('x', 2032) FROM pg_temp.toastctl_raw AS c WHERE c.g = 3");
        insta::assert_snapshot!(subject.write(3, Some(Stored::Compressed(Method::Pglz))), @"INSERT INTO pg_temp.toastctl_written_pglz SELECT c.g, (ARRAY[c.v])[1], pg_catalog.repeat('x', 2032) FROM pg_temp.toastctl_raw AS c WHERE c.g = 3");
        insta::assert_snapshot!(read(Stored::Raw, 3, "c.v", 7), @"SELECT pg_catalog.count(c.v) FROM pg_catalog.generate_series(1, 7) AS r (n), LATERAL (SELECT t.v FROM pg_temp.toastctl_raw AS t WHERE t.g = 3 + 0 * r.n) AS c");
        for method in [Method::Pglz, Method::Lz4] {
            let made = subject.make_compressed(method);
            let table = table_of(Stored::Compressed(method));
            assert!(made.contains(&format!("CREATE TEMPORARY TABLE {table} AS")), "{made}");
        }
    }

    #[test]
    fn short_statements_are_repeated_and_times_are_read() {
        assert_eq!([repeats(10.0), repeats(1e4), repeats(1e9)], [200, 15, 1]);
        assert_eq!(execution_ns("Execution Time: 1.234 ms"), Some(1_234_000.0));
        assert_eq!(execution_ns("Planning Time: 1.234 ms"), None);
        assert_eq!(reader("A", "_text"), Some("pg_catalog.array_ndims(c.v)"));
        assert_eq!(reader("U", "hstore"), None);
    }
}
