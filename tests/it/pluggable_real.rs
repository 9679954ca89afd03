//! A real server with pluggable TOAST, where there is one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::command::{Run, run, scrub, toastctl};
use crate::support::reports::inspect::ToasterReport;
use crate::support::reports::retoast::{Outcome, Report};
use crate::support::reports::{Printed, advise, check};

/// The connection string (keywords and values) of a server with pluggable TOAST, of a superuser. The server has
/// pageinspect and `bytea_toaster`; what is about `jsonb_toaster` runs where it has that too.
const PLUGGABLE: &str = "TOASTCTL_TEST_PLUGGABLE";

/// A real server with pluggable TOAST.
struct Real(String);

impl Real {
    fn psql(&self, sql: &str) -> String {
        let mut psql = Command::new("psql");
        scrub(&mut psql);
        psql.args(["-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.0, "-c", sql]);
        run(&mut psql).ok().trim_end().to_owned()
    }

    fn retoast(&self, arguments: &[&str]) -> Printed<Report> {
        self.report(&[arguments, &["--verify", "full"]].concat(), 0)
    }

    /// Values of a column by toaster.
    fn toasters(&self, table: &str, column: &str) -> BTreeMap<String, u64> {
        let mut command = toastctl();
        command.args(["inspect", "-d", &self.0, "--format", "json", table]);
        let report = run(&mut command).relation();
        let count = |found: &ToasterReport| (found.toaster.clone().unwrap(), found.values);
        report.column(column).toasters.iter().map(count).collect()
    }
}

#[test]
fn a_real_server_with_pluggable_toast_is_migrated_both_ways() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_both_ways");
    real.psql(
        "CREATE SCHEMA toastctl_test;
         CREATE TABLE toastctl_test.t (id int PRIMARY KEY, a bytea, js jsonb);
         INSERT INTO toastctl_test.t SELECT i,
             (SELECT string_agg(decode(md5(i || '/' || k), 'hex'), '') FROM generate_series(1, i * 20) k),
             jsonb_build_object('n', i, 'list', (SELECT jsonb_agg(md5(i || '.' || k))
                                                 FROM generate_series(1, i * 10) k))
         FROM generate_series(1, 100) i",
    );
    let contents = || {
        real.psql(
            "SELECT md5(string_agg(md5(a) || md5(js::text), '' ORDER BY id)) FROM toastctl_test.t",
        )
    };
    let before = contents();
    for (column, toaster) in [("a", "bytea_toaster"), ("js", "jsonb_toaster")] {
        if !real.has_toaster(toaster) {
            continue;
        }
        let to = |name: &str| {
            let to = ["toastctl_test.t", "-c", column, "--toaster", name];
            real.retoast(&[&to[..], &["--allow", "lost-updates"]].concat()).tables[0].clone()
        };
        let there = to(toaster);
        assert!(there.rows_stored > 50, "{there}");
        assert_eq!(contents(), before, "{toaster}");
        let held = real.toasters("toastctl_test.t", column);
        assert!(held.len() == 1 && held[toaster] > 50, "{held:?}");
        assert_eq!(to(toaster).rows_found, 0);
        to("deftoaster");
        assert_eq!(contents(), before, "back from {toaster}");
        assert!(real.toasters("toastctl_test.t", column).is_empty());
        assert_eq!(to("deftoaster").rows_found, 0);
        to(toaster);
        let from = ["toastctl_test.*", "--from-toaster", toaster, "--allow", "lost-updates"];
        let left = real.retoast(&from);
        assert!(left.departure().gone, "{left}");
        assert_eq!(contents(), before, "without {toaster}");
    }
}

impl Real {
    /// A database of its own on the same server, with everything in it.
    fn database(&self, name: &str) -> Real {
        self.psql(&format!("DROP DATABASE IF EXISTS {name}"));
        self.psql(&format!("CREATE DATABASE {name}"));
        let real = Real(format!("{} dbname={name}", self.0));
        real.psql("CREATE EXTENSION pageinspect; CREATE EXTENSION bytea_toaster");
        let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'jsonb_toaster'";
        if real.psql(available) == "1" {
            real.psql("CREATE EXTENSION jsonb_toaster");
        }
        real
    }

    /// A database of its own where the server has `jsonb_toaster`, or a word that it has not.
    fn with_jsonb_toaster(&self, name: &str) -> Option<Real> {
        let real = self.database(name);
        let has = real.has_toaster("jsonb_toaster");
        if !has {
            println!("notice: not run: this server has no jsonb_toaster");
        }
        has.then_some(real)
    }

    fn has_toaster(&self, name: &str) -> bool {
        self.psql(&format!("SELECT count(*) FROM pg_toaster WHERE tsrname = '{name}'")) == "1"
    }

    /// A session with a transaction open, in which this has run.
    fn holder(&self, sql: &str) -> RealHolder {
        let mut psql = Command::new("psql");
        scrub(&mut psql);
        psql.args(["-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.0]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; {sql}; SELECT 'begun';").unwrap();
        let mut line = String::new();
        BufReader::new(psql.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        RealHolder { psql, input }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let mut command = toastctl();
        run(command.args(["retoast", "-d", &self.0, "--format", "json"]).args(arguments))
    }

    fn report(&self, arguments: &[&str], code: i32) -> Printed<Report> {
        self.run(arguments).exits(code).report()
    }
}

/// A session with a transaction open, until it is dropped.
struct RealHolder {
    psql: Child,
    input: ChildStdin,
}

impl RealHolder {
    fn commit(mut self) {
        writeln!(self.input, "COMMIT;").unwrap();
    }
}

impl Drop for RealHolder {
    fn drop(&mut self) {
        // psql ends with its input, or has ended already
        let _ = writeln!(self.input, "\\q");
        let _ = self.psql.wait();
    }
}

/// The real server, or a word that there is none.
fn real() -> Option<Real> {
    let connection = std::env::var(PLUGGABLE).ok();
    if connection.is_none() {
        println!("notice: not run: {PLUGGABLE} names no server with pluggable TOAST");
    }
    connection.map(Real)
}

const LONG: &str =
    "(SELECT string_agg(decode(md5(i || '.' || g), 'hex'), '') FROM generate_series(1, 400) g)";

#[test]
fn a_toaster_is_removed_by_the_steps_that_are_printed() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_steps");
    real.psql(&format!(
        "CREATE TABLE held (id int PRIMARY KEY, a bytea TOASTER bytea_toaster, b text);
         ALTER TABLE held ALTER a SET STORAGE external;
         INSERT INTO held SELECT i, {LONG}, 'x' FROM generate_series(1, 50) i;
         ALTER TABLE held DROP COLUMN a;
         CREATE TABLE empty (id int, a bytea TOASTER bytea_toaster, b text);
         INSERT INTO empty VALUES (1, NULL, 'x');
         ALTER TABLE empty DROP COLUMN a;
         CREATE TABLE living (id int, a bytea TOASTER bytea_toaster);
         ALTER TABLE living ALTER a SET STORAGE external;
         CREATE INDEX ON living (substr(a, 1, 10));
         INSERT INTO living SELECT i, {LONG} FROM generate_series(1, 50) i"
    ));
    let leave = ["--from-toaster", "bytea_toaster"];
    let first = real.report(&leave, 0).departure().clone();
    assert_eq!((first.values_before, first.values_left), (100, 0));
    assert_eq!(first.columns_left, [""; 0]);
    let dropped = ["public.empty, dropped column 2", "public.held, dropped column 2"];
    assert_eq!(first.dropped_columns_left, dropped);
    assert!(!first.gone, "{first}");
    real.psql(&first.steps.join("\n"));
    assert_eq!(real.psql("SELECT count(*) FROM pg_toaster WHERE tsrname = 'bytea_toaster'"), "0");
    assert_eq!(real.psql("SELECT count(*) FROM pg_extension WHERE extname = 'bytea_toaster'"), "0");
    // every table takes long values
    for table in ["held", "empty"] {
        real.psql(&format!(
            "UPDATE {table} SET b = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
        ));
    }
    real.psql(&format!("INSERT INTO living SELECT i, {LONG} FROM generate_series(51, 60) i"));
    assert_eq!(real.psql("SELECT count(*) FROM living WHERE length(a) = 6400"), "60");
    real.psql("CREATE EXTENSION bytea_toaster");
}

#[test]
fn values_read_in_two_ways_are_stored_again_from_what_is_saved() {
    let Some(real) = real() else { return };
    let Some(real) = real.with_jsonb_toaster("toastctl_diffs") else { return };
    real.psql(
        "CREATE TABLE d (id int, js jsonb TOASTER jsonb_toaster);
         INSERT INTO d SELECT i, jsonb_build_object('k', i, 'a', jsonb_build_array('1234567890',
                (SELECT string_agg(md5(i || '.' || g), '') FROM generate_series(1, 150) g)),
             'b', jsonb_build_object('deep', jsonb_build_object('d', jsonb_build_array('1234567890',
                (SELECT string_agg(md5(i || '/' || g), '') FROM generate_series(1, 150) g)))))
         FROM generate_series(1, 4) i;
         UPDATE d SET js = jsonb_set(js, '{a,0}', '\"ABCDEFGHIJ\"') WHERE id <= 2;
         UPDATE d SET js = jsonb_set(js, '{b,deep,d,0}', '\"ABCDEFGHIJ\"') WHERE id = 3",
    );
    let leave = ["d", "--from-toaster", "jsonb_toaster", "--allow", "lost-updates"];
    // nothing is changed where updates of others could be lost
    let refused = real.run(&leave[..3]);
    assert!(
        refused.code == Some(1) && refused.stdout.contains("--allow lost-updates"),
        "{}",
        refused.stdout
    );
    let first = real.report(&leave, 1);
    assert_eq!(first.tables[0].skipped.len(), 3, "{first}");
    let notes = first.tables[0].notes();
    assert!(notes.contains("--reassemble=DIR") && !notes.contains("jsonb_each"), "{notes}");
    real.store_saved("d", "js", &first);
    let second = real.report(&leave, 0);
    assert!(second.departure().gone, "{second}");
    let changed = "SELECT string_agg((js #>> '{a,0}') || (js #>> '{b,deep,d,0}') || (js::text ~ 'ABCDEFGHIJ'), \
                   ' ' ORDER BY id) FROM d";
    assert_eq!(
        real.psql(changed),
        "ABCDEFGHIJ1234567890true ABCDEFGHIJ1234567890true 1234567890ABCDEFGHIJtrue \
         12345678901234567890false"
    );
}

impl Real {
    /// Stores the values of rows that a run has left again, from what `value --reassemble` saves.
    fn store_saved(&self, table: &str, column: &str, left: &Printed<Report>) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = toastctl();
        command.args(["value", "-d", &self.0, table, "--format", "jsonl"]);
        command.arg(format!("--reassemble={}", dir.path().display()));
        run(&mut command).ok();
        for row in &left.tables[0].skipped {
            let place = row.ctid.trim_matches(['(', ')']);
            let saved = format!("public.{table}.{}.", place.replace(',', "."));
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_saved = |path: &PathBuf| {
                name(path).starts_with(&saved) && name(path).ends_with(&format!(".{column}.json"))
            };
            let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
            let content =
                std::fs::read_to_string(files.into_iter().find(is_saved).unwrap()).unwrap();
            let update =
                format!("UPDATE {table} SET {column} = '{content}' WHERE ctid = '({place})'");
            self.psql(&update);
        }
    }
}

/// With compressed chunks, the server misreads some values, and crashes on others.
#[test]
fn what_a_real_server_misreads_is_left_and_named() {
    let Some(real) = real() else { return };
    let Some(real) = real.with_jsonb_toaster("toastctl_misread") else { return };
    real.psql(
        "CREATE FUNCTION hx(n int, seed text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
             SELECT left(string_agg(md5(seed || ':' || g), '' ORDER BY g), n) FROM generate_series(1, n / 32 + 1) g $$;
         CREATE TABLE truth (id int PRIMARY KEY, js jsonb);
         INSERT INTO truth SELECT i, jsonb_build_object('p',
                 (SELECT jsonb_agg(lpad((g * i)::text, 8, '0')) FROM generate_series(1, 60 * (1 + i % 20)) g),
             'o', jsonb_build_object('x', repeat(hx(20 + i % 90, 'cA' || i), 1 + 3 * (i % 37)),
                 'y', hx(200 + 37 * (i % 90), 'dA' || i)), 'q', 7) FROM generate_series(1, 300) i;
         INSERT INTO truth SELECT 1000 + i, jsonb_build_object('m', jsonb_build_array(hx(100 * i, 'eA' || i)),
             'r', repeat('short ', 10), 'l', jsonb_build_array(repeat('lorem ipsum ', 20 * i), i))
         FROM generate_series(1, 65) i;
         CREATE TABLE packed (id int PRIMARY KEY, js jsonb TOASTER jsonb_toaster)",
    );
    let differ = "SELECT coalesce(string_agg(t.ctid::text, ' ' ORDER BY t.ctid), '') FROM t JOIN truth USING (id)
                  WHERE md5(t.js::text) <> md5(truth.js::text)";
    for (setting, goal) in [
        ("on", &["-c", "js", "--toaster", "deftoaster", "--allow", "lost-updates"][..]),
        ("on", &["-c", "js", "--toaster", "external", "--allow", "lost-updates"]),
        ("on", &["-c", "js", "--policy", "never", "--allow", "lost-updates"]),
        ("on", &["--from-toaster", "jsonb_toaster", "--allow", "lost-updates"]),
        ("off", &["-c", "js", "--toaster", "deftoaster", "--allow", "lost-updates"]),
    ] {
        real.psql(&format!(
            "DROP TABLE IF EXISTS t;
             CREATE TABLE t (id int PRIMARY KEY, js jsonb TOASTER jsonb_toaster);
             LOAD 'jsonb_toaster'; SET jsonb_toaster.compress_chunks = {setting};
             INSERT INTO t SELECT id, js::text::jsonb FROM truth ORDER BY id"
        ));
        let misread = real.psql(differ);
        let misread: Vec<&str> = misread.split_whitespace().collect();
        assert_eq!(misread.is_empty(), setting == "off", "{misread:?}");
        // it does not have the server read what may crash it, and says that it does not know
        let mut command = toastctl();
        command.args(["check", "-d", &real.0, "t", "--format", "json"]);
        let checked = run(&mut command).exits(i32::from(setting == "on"));
        assert_eq!(checked.report::<check::Report>().findings.len(), 0);
        let planned = real.run(&[&["t"], goal, &["--dry-run"]].concat()).report::<Report>();
        let report = real.report(&[&["t"], goal].concat(), i32::from(setting == "on"));
        let skipped = &report.tables[0].skipped;
        let named: Vec<&str> = skipped.iter().map(|row| row.ctid.as_str()).collect();
        assert!(misread.iter().all(|ctid| named.contains(ctid)), "{goal:?}: {report}");
        assert_eq!(planned.tables[0].skipped, *skipped, "{goal:?}: {planned}");
        assert!(skipped.iter().all(|row| row.reason.starts_with("column \"js\"")), "{report}");
        assert_eq!(real.psql(differ), misread.join(" "), "{goal:?}");
        if setting == "on" {
            real.store_saved("t", "js", &report);
            real.report(&[&["t"], goal].concat(), 0);
            assert_eq!(real.psql(differ), "", "{goal:?}");
        }
    }

    let started = || {
        real.psql(
            "SELECT max(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer'",
        )
    };
    let before = started();
    real.psql(
        "LOAD 'jsonb_toaster'; SET jsonb_toaster.compress_chunks = on;
         INSERT INTO packed VALUES (1, to_jsonb(hx(9000, 'sA'))), (4, jsonb_build_object('long',
             hx(7000, 'sA') || repeat('lorem ipsum ', 1000)))",
    );
    let report = real
        .report(&["packed", "-c", "js", "--toaster", "deftoaster", "--allow", "lost-updates"], 1);
    assert_eq!(report.tables[0].skipped.len(), 2, "{report}");
    real.store_saved("packed", "js", &report);
    real.report(&["packed", "-c", "js", "--toaster", "deftoaster", "--allow", "lost-updates"], 0);
    // the server was not restarted
    assert_eq!(started(), before);
}

#[test]
fn parents_and_partitions_get_the_same_toaster() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_parents");
    real.psql(
        "CREATE TABLE p (id int, a bytea) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
         ALTER TABLE p ALTER a SET STORAGE external",
    );
    let set = || {
        real.psql(
            "SELECT string_agg(c.relname || ' ' || attstorage::text || ' ' || tsrname, ', ' ORDER BY c.relname)
             FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_toaster t ON t.oid = atttoaster
             WHERE attname = 'a'",
        )
    };
    real.report(&["p", "-c", "a", "--toaster", "bytea_toaster"], 0);
    assert_eq!(set(), "p e bytea_toaster, p1 e bytea_toaster");
    real.report(&["p", "-c", "a", "--toaster", "deftoaster"], 0);
    assert_eq!(set(), "p e deftoaster, p1 e deftoaster");
    real.report(&["p", "-c", "a", "--toaster", "pglz"], 0);
    assert_eq!(set(), "p x deftoaster, p1 x deftoaster");
}

#[test]
fn a_toaster_that_would_refuse_values_is_never_set() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_refused");
    real.psql(&format!(
        "CREATE EXTENSION dummy_toaster;
         CREATE TABLE t (id int, a bytea);
         INSERT INTO t SELECT i, {LONG} FROM generate_series(1, 10) i"
    ));
    let refused = real.run(&["t", "-c", "a", "--toaster", "dummy_toaster"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("1024 bytes: 10, the first at (0,1); "), "{}", refused.stderr);
    // the application goes on
    real.psql(&format!("INSERT INTO t SELECT i, {LONG} FROM generate_series(11, 20) i"));
    assert_eq!(real.psql("SELECT count(*) FROM pg_attribute WHERE atttoaster = 9864 AND attname = 'a' AND attrelid = 't'::regclass"), "1");
}

/// Of objects, compressible ones, and arrays: row, TOAST relation, and buffers.
#[test]
fn documents_are_foretold_as_the_server_stores_them() {
    let Some(real) = real() else { return };
    let Some(real) = real.with_jsonb_toaster("toastctl_foretold") else { return };
    for (table, document) in [
        (
            "compressible",
            "jsonb_build_object('id', i) || (SELECT jsonb_object_agg('k' || k, jsonb_build_array(
                 repeat(md5(i || '.' || k), 40), (SELECT string_agg(md5(k || '/' || g), '') FROM
                 generate_series(1, 12) g))) FROM generate_series(1, 8) k)",
        ),
        (
            "objects",
            "jsonb_build_object('id', i, 'note', md5(i::text)) || (SELECT jsonb_object_agg('k' || k,
                 (SELECT jsonb_agg(md5(i || '.' || k || '.' || g)) FROM generate_series(1, 40) g))
                 FROM generate_series(1, 8) k)",
        ),
        ("arrays", "(SELECT jsonb_agg(md5(i || '.' || g)) FROM generate_series(1, 250) g)"),
    ] {
        real.psql(&format!(
            "CREATE TABLE {table} (id int, js jsonb);
             INSERT INTO {table} SELECT i, {document} FROM generate_series(1, 100) i"
        ));
        let mut command = toastctl();
        command.args(["advise-threshold", "-d", &real.0, table, "-c", "js", "--sample", "100%"]);
        let advice: Printed<advise::Report> =
            run(command.args(["--format", "json"])).exits(0).report();
        let foretold = &advice.pluggable[0];
        // a fresh relation holds nothing else
        real.psql(&format!(
            "CREATE TABLE {table}_there (id int, js jsonb TOASTER jsonb_toaster);
             INSERT INTO {table}_there SELECT id, js::text::jsonb FROM {table}"
        ));
        let mut command = toastctl();
        command.args(["inspect", "-d", &real.0, "--format", "json", &format!("{table}_there")]);
        let report = run(&mut command).relation();
        let toasters = || report.columns[1].toasters.iter();
        let bytes: u64 = toasters().map(|toaster| toaster.inline_bytes).sum();
        let values: u64 = toasters().map(|toaster| toaster.values).sum();
        let inline = bytes as f64 / values as f64;
        let toast = real.psql(&format!(
            "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = '{table}_there'"
        ));
        // header, chunk_id, chunk_seq and varlena header, and the line pointer
        let toast = real.psql(&format!(
            "SELECT sum((36 + octet_length(chunk_data) + 7) / 8 * 8 + 4) / 100.0 FROM {toast}"
        ));
        let toast: f64 = toast.parse().unwrap();
        println!("{table}: {inline} in the row, {toast} out of it; foretold {foretold}");
        assert_eq!(foretold.divided_values, 100, "{foretold}");
        let close = |key: &str, foretold: f64, real: f64, part: f64| {
            assert!((foretold - real).abs() <= real * part + 200.0 * part, "{table} {key}: {foretold}, {real}");
        };
        close("inline", foretold.inline_bytes_per_value, inline, 0.03);
        close("TOAST", foretold.toast_bytes_per_value, toast, 0.03);
    }
}

/// Documents of long strings alone stay with ordinary pointers: `jsonb_toaster` moves containers.
#[test]
fn what_jsonb_toaster_stores_with_ordinary_pointers_is_tried_once() {
    let Some(real) = real() else { return };
    let Some(real) = real.with_jsonb_toaster("toastctl_spared") else { return };
    real.psql(
        "CREATE TABLE t (id int PRIMARY KEY, js jsonb);
         ALTER TABLE t ALTER js SET STORAGE external;
         INSERT INTO t SELECT i, jsonb_build_object('n', i, 'a', CASE WHEN i % 2 = 0 THEN jsonb_build_array(1)
                 ELSE (SELECT jsonb_agg(md5(i || '.' || g)) FROM generate_series(1, 200) g) END,
             's', (SELECT string_agg(md5(i || '/' || g), '') FROM generate_series(1, CASE i % 2 WHEN 0 THEN 200 ELSE 1 END) g))
         FROM generate_series(1, 200) i",
    );
    let arguments = ["t", "-c", "js", "--toaster", "jsonb_toaster"];
    let first = real.report(&arguments, 0).tables[0].clone();
    assert_eq!((first.rows_found, first.rows_stored), (200, 200), "{first}");
    assert_eq!((first.rows_spared, first.rows_left), (100, Some(0)), "{first}");
    assert_eq!(first.outcome, Outcome::Complete, "{first}");
    assert_eq!(real.toasters("t", "js"), BTreeMap::from([("jsonb_toaster".to_owned(), 100)]));
    let second = real.report(&arguments, 0).tables[0].clone();
    assert_eq!((second.rows_stored, second.rows_spared), (100, 100), "{second}");
    let mut command = toastctl();
    command.args(["retoast", "-d", &real.0]).args(arguments);
    let text = run(&mut command).ok();
    let kept = "kept: 100 rows with values that the toaster itself stores";
    assert!(text.contains(kept), "{text}");
}

/// A table of a transaction that is not committed yet, and another session's temporary table.
#[test]
fn what_nobody_sees_yet_is_waited_for_before_a_toaster_is_called_unused() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_unseen");
    real.psql("CREATE TABLE seen (id int, a bytea)");
    let made = |what: &str| {
        format!(
            "CREATE {what} unseen (id int, a bytea TOASTER bytea_toaster);
             ALTER TABLE unseen ALTER a SET STORAGE external;
             INSERT INTO unseen SELECT i, {LONG} FROM generate_series(1, 20) i"
        )
    };
    let leave = ["--from-toaster", "bytea_toaster"];
    for what in ["TABLE", "TEMPORARY TABLE"] {
        let holder = real.holder(&made(what));
        let unproved = real.report(&[&leave[..], &["--set", "max-wait=1s"]].concat(), 4);
        let departure = unproved.departure();
        assert!(!departure.gone, "{unproved}");
        assert_eq!(departure.older_transactions.len(), 1, "{unproved}");
        assert_eq!(departure.steps, [""; 0]);
        drop(holder);
    }
    let steps = |report: &Printed<Report>| {
        report
            .departure()
            .steps
            .join("\n")
            .replace("interval '10 seconds'", "interval '0.3 seconds'")
    };
    let proved = real.report(&leave, 0);
    assert!(proved.departure().gone, "{proved}");
    // since then: not committed, then committed, then with nothing in the catalog that shows it
    let fails = |why: &str| {
        let mut psql = Command::new("psql");
        scrub(&mut psql);
        psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &real.0, "-c", &steps(&proved)]);
        let run = run(&mut psql);
        assert!(run.code != Some(0) && run.stderr.contains(why), "{}", run.stderr);
    };
    let holder = real.holder(&made("TABLE"));
    fails("transactions that may have created tables have not ended");
    holder.commit();
    fails("columns are set to the toaster again: public.unseen.a");
    real.psql("ALTER TABLE unseen ALTER a SET TOASTER deftoaster");
    fails("tables were created, altered or dropped after");
    assert_eq!(real.psql("SELECT count(*) FROM unseen WHERE length(a) = 6400"), "20");
    let again = real.report(&leave, 0);
    assert_eq!(again.departure().values_before, 20, "{again}");
    real.psql(&steps(&again));
    assert_eq!(real.psql("SELECT count(*) FROM pg_extension WHERE extname = 'bytea_toaster'"), "0");
    assert_eq!(real.psql("SELECT count(*) FROM unseen WHERE length(a) = 6400"), "20");
    real.psql("CREATE EXTENSION bytea_toaster");
}

/// What is counted of such values, against the files; growth, against what happens; and the way to smaller files.
#[test]
fn chunks_that_stay_are_reckoned_with() {
    let Some(real) = real() else { return };
    let real = real.database("toastctl_leaked");
    real.psql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, a bytea TOASTER bytea_toaster);
         ALTER TABLE t ALTER a SET STORAGE external;
         INSERT INTO t SELECT i, {LONG} FROM generate_series(1, 800) i;
         ALTER TABLE t ALTER a SET TOASTER deftoaster;
         INSERT INTO t SELECT i, {LONG} FROM generate_series(801, 1600) i;
         ALTER TABLE t ALTER a SET TOASTER bytea_toaster"
    ));
    let mut command = toastctl();
    command.args(["advise-threshold", "-d", &real.0, "t", "-c", "a", "--sample", "100%"]);
    let run_advice = run(command.args(["--format", "json"])).exits(0);
    let advice: Printed<advise::Report> = run_advice.report();
    let today = advice.today().toast_bytes.estimate;
    let files = advice.files.toast_bytes as f64;
    assert!((0.9..1.1).contains(&(today / files)), "{today}, {files}");
    let back = ["t", "-c", "a", "--toaster", "external"];
    let plan = real.report(&[&back[..], &["--dry-run"]].concat(), 0);
    let growth = plan.tables[0].plan().growth_bytes.high;
    let mut command = toastctl();
    command.args(["retoast", "-d", &real.0]).args(back);
    let text = run(&mut command).ok();
    assert!(text.contains("how much of the files is free is not known"), "{text}");
    for never in ["VACUUM FULL or pg_repack", "toastctl compact", "--compact"] {
        assert!(!text.contains(never), "{text}");
    }
    let now: f64 = real
        .psql("SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 't'")
        .parse()
        .unwrap();
    let grown = now - files;
    assert!(grown > files * 0.4 && grown < growth as f64, "{grown}, {growth}, {files}");
}
