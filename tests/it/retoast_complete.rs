//! What `retoast` calls complete is what plain SQL counts: settings changed meanwhile, rows that the server
//! refuses, hides or never lets go, and choices that cannot be stored.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::command::{Run, Signal, ended, run, signal, toastctl};
use crate::support::reports::retoast::{Outcome, Report};
use crate::support::retoast::{LZ4, brake, contents, done, refused, release, retoast, spawn};
use crate::support::server::{self, Database, with_pageinspect};

/// 1,500 rows with values that every method compresses.
const TABLE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, n int, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, 0, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
        FROM generate_series(1, 60) k) FROM generate_series(1, 1500) i";

/// A path that is not there yet, for this test alone.
fn path(database: &Database<'_>, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{}.{name}", database.name()))
}

/// Runs `retoast` to lz4 on a fresh table, and has somebody else run `sql` when some rows are done.
fn changed_meanwhile(database: &Database<'_>, sql: &str, more: &[&str]) -> Run {
    database.psql(&format!("DROP TABLE IF EXISTS t; {TABLE}"));
    // slow enough that it is not done before the signal comes
    let words = ["--set", "batch-ms=1", "--set", "nice=5"];
    let child = spawn(database, &[&LZ4[..], &words, more].concat());
    database.until_true("SELECT count(*) > 50 FROM t WHERE pg_column_compression(v) = 'lz4'");
    signal(&child, Signal::USR1);
    // the rest is done under the other setting
    database.psql(sql);
    signal(&child, Signal::USR2);
    ended(child)
}

fn not_lz4(database: &Database<'_>) -> String {
    database
        .psql("SELECT count(*) FROM t WHERE pg_column_compression(v::text) IS DISTINCT FROM 'lz4'")
}

#[test]
fn a_setting_changed_by_somebody_else_ends_the_sweep_and_is_named() {
    let database = with_pageinspect("altered");
    for (sql, said) in [
        ("SET COMPRESSION pglz", "column \"v\" was set to compression pglz by another session"),
        ("SET STORAGE external", "column \"v\" was set to storage external by another session"),
        ("SET STORAGE plain", "column \"v\" was set to storage plain by another session"),
        ("TYPE varchar", "the type of column \"v\" was changed"),
        ("TYPE bytea USING convert_to(v, 'UTF8')", "the type of column \"v\" was changed"),
    ] {
        let run = changed_meanwhile(&database, &format!("ALTER TABLE t ALTER v {sql}"), &[]);
        refused(&run, 1, said);
        let report = run.report::<Report>();
        assert_eq!(report.tables[0].outcome, Outcome::Failed, "{sql}: {report}");
    }
    let target = "ALTER TABLE t SET (toast_tuple_target = 4080)";
    refused(
        &changed_meanwhile(&database, target, &[]),
        1,
        "public.t: toast_tuple_target was set to 4080 by another session",
    );
    refused(&changed_meanwhile(&database, "ALTER TABLE t ADD x text", &[]), 1, "\"x\" was added");
    // the same command finishes the work
    let table = done(&retoast(&database, &LZ4));
    assert_eq!((table.rows_left, not_lz4(&database).as_str()), (Some(0), "0"));
}

/// What is written in the catalogs and decides nothing about how values are stored ends nothing, and nothing is
/// done twice for it.
#[test]
fn privileges_and_statistics_may_be_set_while_a_table_is_swept() {
    let database = with_pageinspect("written");
    let sql = "GRANT SELECT ON t TO PUBLIC; ALTER TABLE t ALTER v SET STATISTICS 7, ALTER n SET DEFAULT 1;
               ALTER TABLE t SET (autovacuum_enabled = off); VACUUM ANALYZE t";
    let run = changed_meanwhile(&database, sql, &["--jobs", "2", "-v"]);
    let table = done(&run);
    assert_eq!((table.rows_left, not_lz4(&database).as_str()), (Some(0), "0"));
    let rows: u64 = table.rows_stored;
    assert_eq!((rows, table.scans), (1500, 2), "{table}");
    assert!(!run.stderr.contains("restored: "), "{}", run.stderr);
    // giving space back looks at the same
    database.psql("UPDATE t SET v = v || 'x'; VACUUM t");
    let child = spawn(&database, &[&["compact", "t"][..], &brake(&database)].concat());
    database.until_true(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'toastctl%')",
    );
    database.psql("REVOKE SELECT ON t FROM PUBLIC; ALTER TABLE t ALTER v SET STATISTICS 8");
    release(&database);
    done(&ended(child));
}

/// Where a table has no trigger none is silenced: one that comes later is.
#[test]
fn a_trigger_created_while_a_table_is_swept_is_silent() {
    let database = with_pageinspect("trigger");
    let sql =
        "CREATE FUNCTION fired() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'fired'; END$$;
               CREATE TRIGGER fired BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fired()";
    let table = done(&changed_meanwhile(&database, sql, &["--jobs", "2"]));
    assert_eq!((table.rows_left, not_lz4(&database).as_str()), (Some(0), "0"));
    assert_eq!((table.rows_refused, table.scans), (0, 2), "{table}");
}

#[test]
fn with_enforce_a_changed_setting_is_set_right_and_complete_is_true() {
    let database = with_pageinspect("enforced");
    let sql = "ALTER TABLE t ALTER v SET STORAGE external, ALTER v SET COMPRESSION pglz,
                   SET (toast_tuple_target = 4080);
               INSERT INTO t SELECT -id, 0, v FROM t WHERE id <= 20;
               UPDATE t SET v = v || 'x' WHERE id <= 100";
    let run = changed_meanwhile(&database, sql, &["--set", "enforce=on"]);
    let table = done(&run);
    assert!(run.stderr.contains("restored: ALTER TABLE ONLY"), "{}", run.stderr);
    assert_eq!((table.rows_left, not_lz4(&database).as_str()), (Some(0), "0"));
    let settings = "SELECT attstorage, attcompression, reloptions FROM pg_attribute, pg_class c
        WHERE attrelid = 't'::regclass AND attname = 'v' AND c.oid = attrelid";
    assert_eq!(database.psql(settings), "x|l|");
    // a type cannot be set right
    let run = changed_meanwhile(
        &database,
        "ALTER TABLE t ALTER v TYPE varchar",
        &["--set", "enforce=on"],
    );
    refused(&run, 1, "the type of column \"v\" was changed");
}

/// Values of other columns that an UPDATE compresses or moves out leave more room to the next one.
#[test]
fn with_thirty_columns_the_second_run_touches_nothing() {
    let database = with_pageinspect("thirty");
    database.psql(
        "CREATE FUNCTION val(kind float, n int) RETURNS text LANGUAGE sql VOLATILE AS $$
             SELECT CASE WHEN kind < 0.2 THEN NULL
                 WHEN kind < 0.5 THEN repeat(md5(random()::text), 1 + n / 32)
                 WHEN kind < 0.8 THEN (SELECT string_agg(md5(random()::text || i), '')
                                       FROM generate_series(1, 1 + n / 32) i)
                 ELSE 'short' || n END $$;
         DO $$
         DECLARE cols text := ''; vals text := '';
         BEGIN
             PERFORM setseed(0.42);
             FOR i IN 1..30 LOOP
                 cols := cols || format(', c%s text COMPRESSION pglz', i);
                 vals := vals || ', val(random(), (random() * random() * '
                     || CASE WHEN i % 5 = 0 THEN 8000 ELSE 600 END || ')::int)';
             END LOOP;
             EXECUTE 'CREATE TABLE wide (id int PRIMARY KEY' || cols || ')';
             EXECUTE 'INSERT INTO wide SELECT g' || vals || ' FROM generate_series(1, 900) g';
         END $$",
    );
    database.psql("ALTER TABLE wide RENAME TO t");
    let before = contents(&database, "t");
    let columns = ["-c", "c5", "-c", "c10", "-c", "c1", "-c", "c2"];
    for (source, toaster) in [("pageinspect", "lz4"), ("functions", "pglz")] {
        let choice = ["t", "--toaster", toaster, "--set", &format!("source={source}")];
        let arguments = [&choice[..], &columns].concat();
        let first = done(&retoast(&database, &arguments));
        assert_eq!(first.rows_left, Some(0), "{arguments:?}: {first}");
        let again = done(&retoast(&database, &arguments));
        assert_eq!(again.rows_found, 0, "{arguments:?}: {again}");
    }
    assert_eq!(contents(&database, "t"), before);
}

#[test]
fn a_value_whose_compression_makes_another_one_move_is_compressed() {
    let database = with_pageinspect("moves");
    // compressed, b takes more of the row than its pointer: a, which cannot be compressed, has to go out of
    // line for it
    database.psql(
        "CREATE TABLE t (a json, b bytea, c text);
         ALTER TABLE t ALTER a SET STORAGE external, ALTER b SET STORAGE external;
         INSERT INTO t SELECT to_json(left(s, 1404)), convert_to(repeat('abcdefghijklmnop', 2486), 'utf8'),
             left(reverse(s), 404)
         FROM (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) AS i) AS s (s)",
    );
    let stored =
        "SELECT pg_column_size(a), pg_column_compression(a), pg_column_compression(b) FROM t";
    assert_eq!(database.psql(stored), "1410||");
    let table = done(&retoast(&database, &["t", "-c", "a", "-c", "b", "--toaster", "lz4"]));
    assert_eq!(table.rows_found, 1, "{table}");
    assert_eq!(database.psql(stored), "1406||lz4");
}

#[test]
fn plain_is_refused_before_anything_is_set_where_values_do_not_fit() {
    let database = with_pageinspect("toolong");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, repeat('p', i * 500) FROM generate_series(1, 20) i",
    );
    let storage =
        "SELECT attstorage FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";
    for source in ["pageinspect", "functions"] {
        for more in [&[][..], &["--dry-run"]] {
            let plain =
                ["t", "-c", "v", "--toaster", "plain", "--set", &format!("source={source}")];
            let run = retoast(&database, &[&plain[..], more].concat());
            refused(
                &run,
                1,
                "public.t: 4 rows are too long for storage plain, the first at (0,17)",
            );
            let report = run.report::<Report>();
            assert_eq!((report.tables.len(), database.psql(storage).as_str()), (0, "x"));
            let said = "\"errors\": [\n    \"public.t: 4 rows are too long for storage plain";
            assert!(run.stdout.contains(said), "{}", run.stdout);
        }
    }
    database.psql("INSERT INTO t VALUES (21, repeat('q', 20000)); DELETE FROM t WHERE id > 16");
    let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", "plain"]));
    assert_eq!(
        table.undo(),
        "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET STORAGE extended"
    );
    assert_eq!(database.psql(storage), "p");
    let left = "SELECT count(*) FROM t WHERE pg_column_compression(v) IS NOT NULL";
    assert_eq!(database.psql(left), "0");
}

/// Without pages only the chosen columns are known to be too long; the server refuses what does not fit
/// beside others.
#[test]
fn a_choice_that_turns_out_not_to_fit_is_set_back() {
    let database = with_pageinspect("setback");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, w text, v text);
         ALTER TABLE t ALTER w SET STORAGE plain, ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat('w', 4000), repeat('v', i * 500) FROM generate_series(1, 10) i",
    );
    let before = contents(&database, "t");
    let plain = ["t", "-c", "v", "--toaster", "plain", "--set", "source=functions"];
    let run = retoast(&database, &plain);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let table = run.table();
    assert_eq!((table.outcome, table.undone), (Outcome::Incomplete, true));
    assert_eq!((table.rows_left, table.rows_refused), (Some(2), 2), "{table}");
    assert_eq!(table.skipped[0].sqlstate.as_deref(), Some("54000"));
    assert_eq!(contents(&database, "t"), before);
    database.psql("UPDATE t SET v = v || repeat('v', 9000), id = -id");
}

#[test]
fn with_undo_an_interrupted_run_leaves_the_settings_as_they_were() {
    let database = with_pageinspect("undone");
    let settings = "SELECT attstorage, attcompression, reloptions FROM pg_attribute, pg_class c
        WHERE attrelid = 't'::regclass AND attname = 'v' AND c.oid = attrelid";
    for undo in [true, false] {
        database.psql(&format!("DROP TABLE IF EXISTS t; {TABLE}"));
        database
            .psql("ALTER TABLE t ALTER v SET STORAGE external, ALTER v SET COMPRESSION default");
        let words = ["--set", "batch-ms=1", "--target", "4080"];
        let more: &[&str] = if undo { &["--undo"] } else { &[] };
        let child = spawn(&database, &[&LZ4[..], &words, more].concat());
        database.until_true("SELECT count(*) > 50 FROM t WHERE pg_column_compression(v) = 'lz4'");
        signal(&child, Signal::INT);
        let run = ended(child);
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        let table = run.table();
        let alter = "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET STORAGE external, \
             ALTER COLUMN \"v\" SET COMPRESSION default, RESET (toast_tuple_target)";
        assert_eq!((table.undo(), table.undone), (alter, undo));
        if !undo {
            assert_eq!(database.psql(settings), "x|l|{toast_tuple_target=4080}");
            database.psql(table.undo());
        }
        assert_eq!(database.psql(settings), "e||");
    }
}

#[test]
fn refused_rows_are_set_aside_and_listed_without_their_contents() {
    let database = with_pageinspect("refusedrows");
    database.psql(&format!(
        "{TABLE}; UPDATE t SET n = -1 WHERE id <= 150;
         ALTER TABLE t ADD CONSTRAINT positive CHECK (n >= 0) NOT VALID"
    ));
    let before = contents(&database, "t");
    let list = path(&database, "csv");
    let words = ["--set", &format!("list-refused={}", list.display())];
    for again in [false, true] {
        let run = retoast(&database, &[&LZ4[..], &words].concat());
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        let table = run.table();
        assert_eq!(table.outcome, Outcome::Incomplete);
        assert_eq!((table.rows_refused, table.rows_left), (150, Some(150)));
        assert_eq!(table.skipped.len(), 100);
        let left =
            database.psql("SELECT count(*), max(n) FROM t WHERE pg_column_compression(v) <> 'lz4'");
        assert_eq!(left, "150|-1");
        let listed = std::fs::read_to_string(&list).unwrap();
        for text in [&run.stdout, &run.stderr, &listed] {
            assert!(!text.contains("Failing row"), "{again}: {text}");
        }
        assert!(listed.starts_with("relation,ctid,sqlstate,reason\npublic.t,\"("), "{listed}");
        assert_eq!(listed.matches("public.t,").count(), 150);
        assert_eq!(listed.matches(",23514,").count(), 150);
    }
    std::fs::remove_file(&list).unwrap();
    assert_eq!(contents(&database, "t"), before);
    let nowhere =
        retoast(&database, &[&LZ4[..], &["--set", "list-refused=/nonexistent/x"]].concat());
    refused(&nowhere, 2, "--set list-refused: \"/nonexistent/x\"");
}

#[test]
fn a_row_that_others_hold_nearly_all_the_time_is_waited_for() {
    // between transactions that are long, while one short one follows another, and while each leaves the row
    // in another block
    let index = "CREATE INDEX ON t (n)";
    for (name, pause, more) in
        [("held", "PERFORM pg_sleep(0.3);", ""), ("hot", "", ""), ("moved", "", index)]
    {
        let database = with_pageinspect(name);
        database.psql(&format!("{TABLE}; DELETE FROM t WHERE id > 20; {more}; VACUUM t"));
        let mut psql = database.psql_command();
        psql.args(["-q", "-f", "-"]).stdin(Stdio::piped());
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        let mut busy = psql.spawn().unwrap();
        let text = format!(
            "DO $$BEGIN LOOP UPDATE t SET n = n + 1 WHERE id = 7; {pause} COMMIT; END LOOP; END$$;"
        );
        busy.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        database.until_true("SELECT n > 0 FROM t WHERE id = 7");
        let run = retoast(&database, &[&LZ4[..], &["--set", "lock-timeout=3000"]].concat());
        busy.kill().unwrap();
        busy.wait().unwrap();
        database.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE query LIKE 'DO $$BEGIN LOOP%' AND datname = current_database()",
        );
        done(&run);
        assert_eq!(not_lz4(&database), "0");
    }
}

/// `toastctl retoast` as this role, who is no superuser, with its report as a table.
fn by_role(database: &Database<'_>, role: &str, arguments: &[&str]) -> Run {
    run(toastctl().args(["retoast", "-d", &database.url_of(role)]).args(arguments))
}

const LZ4_SET: &str = "ALTER TABLE t ALTER v SET COMPRESSION lz4";

#[test]
fn what_a_role_may_not_do_is_said_before_and_no_empty_report_is_printed() {
    let database = server::shared().create_database("rights");
    let role = database.create_role("some_of");
    database.psql(TABLE);
    let as_it_is = ["--set", "alter=off"];
    let grant = format!("have the owner GRANT UPDATE ON \"public\".\"t\" TO \"{role}\".");
    let cases: [(&str, &[&str], &str); 5] = [
        ("", &[], "is not its owner and may not alter it"),
        ("", &[], "set the columns, GRANT SELECT, UPDATE ON"),
        (LZ4_SET, &as_it_is, "has no SELECT and no UPDATE privilege on it"),
        ("GRANT SELECT ON t TO ROLE", &as_it_is, &grant),
        (
            "ALTER TABLE t ALTER v SET COMPRESSION default; GRANT UPDATE ON t TO ROLE",
            &[],
            "have the owner set the columns, and use --set alter=off.",
        ),
    ];
    for (sql, options, said) in cases {
        database.psql(&sql.replace("ROLE", &role));
        for more in [&[][..], &["--dry-run"]] {
            let run = by_role(&database, &role, &[&LZ4[..], options, more].concat());
            refused(&run, 1, said);
            assert_eq!(run.stdout, "");
        }
    }
    let mut planned = toastctl();
    planned.args(["retoast", "-d", &database.url(), "--dry-run"]).args(LZ4);
    let text = run(&mut planned).ok();
    assert!(text.contains("\nwould set: ALTER TABLE ONLY") && !text.contains("\nset: "), "{text}");
    database.psql(LZ4_SET);
    let table = by_role(&database, &role, &[&LZ4[..], &as_it_is].concat()).ok();
    assert!(table.contains("note: this user may not vacuum it"), "{table}");
    assert_eq!(not_lz4(&database), "0");
}

#[test]
fn a_row_that_moves_ahead_of_the_scan_is_counted_once() {
    let database = with_pageinspect("countedonce");
    for source in ["pageinspect", "functions"] {
        database.psql(
            "DROP TABLE IF EXISTS t;
             CREATE TABLE t (id int PRIMARY KEY, pad text, v text);
             ALTER TABLE t ALTER v SET STORAGE external;
             INSERT INTO t SELECT i, repeat('x', 300), (SELECT string_agg(md5(i || '.' || k), '')
                 FROM generate_series(1, 20) AS k) || repeat('a', 2500)
             FROM generate_series(1, 8000) AS i;
             DELETE FROM t WHERE id BETWEEN 5001 AND 7999",
        );
        database.psql("VACUUM t");
        let run = retoast(
            &database,
            &["t", "-c", "v", "--toaster", "pglz", "--set", &format!("source={source}")],
        );
        let table = done(&run);
        for forms in [&table.forms_before, &table.forms_after] {
            let values: u64 = forms.iter().map(|form| form.values).sum();
            assert_eq!(values, 5001, "{source}: {forms:?} in {table}");
        }
    }
}
