//! `inspect --explain` against what the server counts: EXPLAIN (ANALYZE, BUFFERS, WAL).

use serde_json::Value;

use crate::support::command::{run, toastctl};
use crate::support::measured::buffers;
use crate::support::reports::Printed;
use crate::support::reports::explain::Explanation;
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::inspect;

/// The document of 163 zeros that just fits the row, so that one more key moves it out.
const JUST_FITS: &str = "
    CREATE TABLE t (jb jsonb);
    ALTER TABLE t ALTER jb SET STORAGE external;
    INSERT INTO t SELECT jsonb_build_object('id', i, 'foo',
        (SELECT jsonb_agg(0) FROM generate_series(1, 163))) FROM generate_series(1, 10000) AS i;";

fn explain(database: &Database<'_>, arguments: &[&str]) -> Printed<Explanation> {
    let all = [&["--explain", "--format", "json"], arguments].concat();
    inspect(database, &all).exits(0).report()
}

/// Bytes of WAL that a statement writes, and those that EXPLAIN counts, which leaves the padding of records out.
fn wal(database: &Database<'_>, statement: &str) -> (f64, f64) {
    let told = database.psql(&format!(
        "SELECT pg_current_wal_insert_lsn() AS before \\gset
         EXPLAIN (ANALYZE, WAL, FORMAT JSON) {statement};
         SELECT pg_current_wal_insert_lsn() - :'before'::pg_lsn"
    ));
    let (plan, written) = told.trim_end().rsplit_once('\n').unwrap();
    let plan: Value = serde_json::from_str(plan).unwrap();
    (written.parse().unwrap(), plan[0]["Plan"]["WAL Bytes"].as_f64().unwrap())
}

#[test]
fn one_more_key_makes_a_scan_ten_times_as_long() {
    // a server of its own: VACUUM FULL keeps the old rows while a session that is just beginning may see them
    let server = Server::start(&Options::default());
    let database = server.create_database("explain");
    database.psql(&format!("CREATE EXTENSION pageinspect; {JUST_FITS}"));
    let key = "SELECT jb -> 'id' FROM t";
    let fits = buffers(&database, key);
    assert_eq!(fits, 2500.0);
    let before = explain(&database, &["t", "--sample", "100%"]);
    assert_eq!(before.columns[0].scan_buffers.estimate, fits);
    assert!(before.columns[0].read.is_none(), "{before}");
    // rows are just below the threshold
    let share = |document: &Explanation, from: u64| {
        let ranges = &document.widths;
        ranges.iter().find(|range| range.from == from).unwrap().share.estimate
    };
    assert_eq!(share(&before, 1829), 1.0);

    database.psql("UPDATE t SET jb = jb || '{\"bar\": \"baz\"}'");
    database.psql("VACUUM FULL t");
    let out_of_line = buffers(&database, key);
    assert_eq!(out_of_line, 30_064.0);
    let after = explain(&database, &["t", "--sample", "100%"]);
    assert_eq!(share(&after, 2033), 1.0);
    let column = &after.columns[0];
    let scan = column.scan_buffers.estimate;
    assert!((scan / out_of_line - 1.0).abs() < 0.005, "{scan}");
    assert_eq!(after.heap_blocks, 64);
    assert_eq!(after.index_levels, Some(2));
    assert_eq!(column.read.as_ref().unwrap().toast_buffers.estimate, 1.0);

    let mut command = toastctl();
    command.env("COLUMNS", "80").args(["inspect", "--explain", "t", "--sample", "100%"]);
    let text = run(command.args(["-d", &database.conninfo()])).ok();
    insta::assert_snapshot!("explain_one_more_key", text);
}

#[test]
fn an_update_writes_what_the_server_writes() {
    // Full-page images depend on checkpoints, not on what is stored.
    let server = Server::start(&Options::default().set("full_page_writes", "off"));
    let database = server.create_database("explain");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, hits int, jb jsonb);
         INSERT INTO t SELECT i, 0, (SELECT jsonb_object_agg('key' || k, i * 1000 + k)
             FROM generate_series(1, 1000) AS k) FROM generate_series(1, 2000) AS i",
    );
    database.psql("VACUUM FULL t");
    let document = explain(&database, &["t", "--sample", "100%"]);
    let beside = wal(&database, "UPDATE t SET hits = hits + 1");
    database.psql("VACUUM FULL t");
    let within = wal(&database, "UPDATE t SET jb = jb - 'key1000'");
    let column = document.column("jb");
    for (foretold, (written, counted)) in
        [(&document.update_other, beside), (&column.update, within)]
    {
        let foretold = foretold.wal_bytes.estimate * 2000.0;
        assert!((foretold / written - 1.0).abs() < 0.02, "{foretold} {written}");
        assert!((foretold / counted - 1.0).abs() < 0.07, "{foretold} {counted}");
    }
    // an integer beside the document, and a key within
    assert!((120.0..200.0).contains(&(beside.0 / 2000.0)), "{beside:?}");
    assert!(within.0 > 40.0 * beside.0, "{within:?}");
    let bytes = column.update.toast_bytes.estimate;
    assert!(bytes > 4000.0 && bytes < within.0 / 2000.0, "{bytes}");
}

#[test]
fn chunks_are_counted_where_they_stand_now() {
    let database = server::shared().create_database("explain");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text, w bytea);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat('x', 1990) || i, NULL FROM generate_series(1, 12000) AS i",
    );
    // rows of one chunk, toasted by force; half of them give way
    database.psql("UPDATE t SET v = repeat('y', 2100)");
    database.psql("DELETE FROM t WHERE id % 2 = 0");
    database.psql("VACUUM t");
    // their holes take the chunks of longer values, one here and one there
    database
        .psql("INSERT INTO t SELECT i, repeat('z', 7800), NULL FROM generate_series(1, 1500) AS i");
    database.psql("VACUUM t");
    let buffers = buffers(&database, "SELECT length(v || '') FROM t");
    let document = explain(&database, &["t", "--sample", "100%"]);
    let column = &document.columns[0];
    let scan = column.scan_buffers.estimate;
    assert!((scan / buffers - 1.0).abs() < 0.01, "{scan} {buffers}");
    // more than the pages that fresh chunks would take
    assert!(column.read.as_ref().unwrap().toast_buffers.estimate > 1.15, "{document:#}");
    // a column without a value has nothing to be explained
    assert_eq!(document.columns.len(), 1);

    let mut held = 0;
    for seed in 1..=10 {
        let document = explain(&database, &["t", "--sample", &format!("30%,seed={seed}")]);
        assert!(!document.sample.complete, "{document}");
        for (figure, truth) in [(document.columns[0].scan_buffers, scan), (document.rows, 7500.0)] {
            held += u32::from(figure.contains(truth));
        }
    }
    assert!(held >= 17, "{held} of 20 intervals hold");
}

#[test]
fn what_cannot_be_explained_is_said() {
    let database = server::shared().create_database("explain");
    database.psql("CREATE TABLE t (id int); CREATE TABLE u (v text); INSERT INTO u VALUES ('x')");
    let refused = |arguments: &[&str]| {
        let mut command = toastctl();
        let done =
            run(command.args(["inspect", "--explain", "-d", &database.conninfo()]).args(arguments));
        (done.code, done.stderr)
    };
    let (code, message) = refused(&["u"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("pages cannot be read"), "{message}");
    database.psql("CREATE EXTENSION pageinspect");
    let (code, message) = refused(&["t"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("has no column that can be toasted"), "{message}");
    // the other one is explained all the same
    let (code, message) = refused(&["t", "u"]);
    assert_eq!(code, Some(1), "{message}");
    for (arguments, words) in [
        (&["u", "--format", "csv"][..], "--explain is printed as"),
        (&["u", "--source", "functions"][..], "--explain needs pages"),
        (&[][..], "required"),
    ] {
        let (code, message) = refused(arguments);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(words), "{message}");
    }
    database.psql(
        "CREATE SCHEMA s; CREATE TABLE s.w (a text, b text); INSERT INTO s.w VALUES ('x', 'y')",
    );
    for selected in [&["s.w"][..], &["-n", "s"]] {
        let document = explain(&database, &[selected, &["-c", "b"]].concat());
        assert_eq!((document.columns.len(), document.columns[0].column.as_str()), (1, "b"));
    }
    let document = explain(&database, &["u"]);
    assert!(document.columns[0].read.is_none(), "{document}");
    let mut command = toastctl();
    command.args(["inspect", "--explain", "-d", &database.conninfo(), "u"]);
    let text = run(&mut command).ok();
    let wal = text.lines().filter(|line| line.contains(" of WAL"));
    assert!(
        wal.clone().count() == 2 && text.matches("without that of indexes").count() == 2,
        "{text}"
    );
    database.psql("DELETE FROM u");
    let mut command = toastctl();
    command.args(["inspect", "--explain", "-d", &database.conninfo(), "u"]);
    assert_eq!(run(&mut command).ok(), "public.u: 0 rows in 1 block; TOAST index of 0 levels\n");
}

#[test]
fn a_value_without_chunks_is_told_and_costs_nothing_else() {
    let database = server::shared().create_database("explain");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_surgery;
         CREATE TABLE t (v text);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT repeat(i::text, 3000) FROM generate_series(1, 5) AS i",
    );
    let toast = database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 't'");
    let chunks = database.psql(&format!(
        "SELECT array_agg(ctid) FROM {toast} WHERE chunk_id = (SELECT min(chunk_id) FROM {toast})"
    ));
    database.psql(&format!("SELECT heap_force_kill('{toast}', '{chunks}'::tid[])"));
    let mut command = toastctl();
    command.args(["inspect", "--explain", "t", "--format", "json", "-d", &database.conninfo()]);
    let done = run(&mut command);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let place = "error: public.t, block 0, item 1, column \"v\": there are no chunks of value";
    assert!(done.stderr.contains(place), "{}", done.stderr);
    let document = done.report::<Explanation>();
    assert_eq!(document.problem_count, 1);
    assert_eq!(document.columns[0].external_values.estimate, 5.0);
    assert_eq!(document.sample.values_looked_up, 4);
}
