//! What columns were set to before a sweep outlives a kill.

use std::time::Duration;

use crate::support::command::{Run, Signal, run, toastctl};
use crate::support::proxy::Proxy;
use crate::support::reports::retoast::Report;
use crate::support::retoast::{
    LZ4, Running, brake, command, contents, done, release, retoast, spawn,
};
use crate::support::server::{Database, Options, Server, with_pageinspect};

/// Storage, compression and comment of the column.
const SETTINGS: &str = "SELECT attstorage::text || attcompression::text,
        col_description(attrelid, attnum)
    FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";

const CHOICE: [&str; 9] =
    ["t", "-c", "v", "--policy", "chunk-saving", "--method", "lz4", "--set", "new-values=extended"];

/// Kills a run as soon as it has set the column to what it needs for its work and has stored rows.
fn kill_at_work(database: &Database<'_>) {
    let stored = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
    let before = database.psql(stored);
    let mut child = spawn(database, &[&CHOICE[..], &["--set", "batch-ms=1"]].concat());
    while database.psql(stored) == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_run_after_a_kill_knows_what_the_columns_were_set_to() {
    let database = with_pageinspect("killedsettings");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE t ALTER v SET STORAGE MAIN; COMMENT ON COLUMN t.v IS 'the user''s';
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20000) AS i",
    );
    let before = contents(&database, "t");
    let tables = "SELECT count(*) FROM pg_class";
    let (settings, relations) = (database.psql(SETTINGS), database.psql(tables));
    assert_eq!(settings, "mp|the user's");
    for kill in 1..=2 {
        kill_at_work(&database);
        let left = database.psql(SETTINGS);
        assert!(left.starts_with("e"), "{kill}: {left}");
        assert!(left.contains("the user's\n[toastctl: "), "{kill}: {left}");
        assert!(left.contains("storage main, compression pglz"), "{kill}: {left}");
    }
    let dry = retoast(&database, &[&CHOICE[..], &["--dry-run"]].concat());
    assert!(
        dry.stdout.contains("before that run, it was set to storage main, compression pglz"),
        "{}",
        dry.stdout
    );
    let run = retoast(&database, &CHOICE);
    let table = done(&run);
    let told = "column \"v\" to storage external, compression pglz; before that run, it was set to storage main";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(table.notes().contains("it was set to storage main"), "{table}");
    assert_eq!(database.psql(SETTINGS), "xl|the user's");
    assert_eq!(contents(&database, "t"), before);
    // of another table or a temporary one nothing is left either
    assert_eq!(database.psql(tables), relations);
    let again = retoast(&database, &CHOICE);
    assert_eq!(done(&again).notes.len(), 0);
    assert!(!again.stderr.contains("killed"), "{}", again.stderr);
}

#[test]
fn undo_knows_what_a_killed_run_has_set() {
    let database = with_pageinspect("killedundo");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE t ALTER v SET STORAGE MAIN; COMMENT ON COLUMN t.v IS 'mine';
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20000) AS i",
    );
    let before = contents(&database, "t");
    kill_at_work(&database);
    assert!(database.psql(SETTINGS).starts_with("e"));
    let undo = "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET STORAGE main, \
                ALTER COLUMN \"v\" SET COMPRESSION pglz";
    // stopped before its first batch
    let stopped = |more: &[&str]| {
        let arguments = [&CHOICE[..], &brake(&database), more].concat();
        let running = Running::start(&mut command(&database, &arguments));
        running.says("is true (--throttle-query)");
        running.signal(Signal::INT);
        let run = running.end();
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        run.table()
    };
    let table = stopped(&["--undo"]);
    assert_eq!((table.undo(), table.undone), (undo, true), "{table}");
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    kill_at_work(&database);
    let table = stopped(&[]);
    assert_eq!((table.undo(), table.undone), (undo, false), "{table}");
    database.psql(table.undo());
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    assert_eq!(contents(&database, "t"), before);
    // and with work done meanwhile
    kill_at_work(&database);
    let stopped = retoast(
        &database,
        &[
            &CHOICE[..],
            &["--max-runtime", "1", "--set", "batch-ms=1", "--set", "nice=20", "--undo"],
        ]
        .concat(),
    );
    assert_eq!(stopped.code, Some(4), "{}", stopped.stderr);
    assert_eq!(database.psql(SETTINGS), "mp|mine");
    assert_eq!(contents(&database, "t"), before);
}

/// The three settings that a run may change.
const THREE: &str = "SELECT attstorage, attcompression, reloptions FROM pg_attribute, pg_class AS c
    WHERE attrelid = 't'::regclass AND attname = 'v' AND c.oid = attrelid";

/// A run to lz4 that is stopped, after another session has done this.
fn stopped_after(database: &Database<'_>, sql: &str, more: &[&str]) -> Run {
    stopped_run_after(database, &LZ4, sql, more)
}

/// The same of a run with these arguments.
fn stopped_run_after(database: &Database<'_>, arguments: &[&str], sql: &str, more: &[&str]) -> Run {
    database.psql(
        "DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 500) AS i",
    );
    let arguments = [arguments, &brake(database), more].concat();
    let running = Running::start(&mut command(database, &arguments));
    running.says("is true (--throttle-query)");
    database.psql(sql);
    running.signal(Signal::INT);
    running.end()
}

#[test]
fn only_what_the_run_has_set_is_restored_and_the_rest_is_named() {
    let database = with_pageinspect("restored");
    let ours = "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET COMPRESSION pglz";
    for (sql, left, named) in [
        (
            "ALTER TABLE t ALTER v SET STORAGE external",
            "e|p|",
            "column \"v\" was set to storage external",
        ),
        (
            "ALTER TABLE t SET (toast_tuple_target = 4080)",
            "x|p|{toast_tuple_target=4080}",
            "toast_tuple_target was set to 4080",
        ),
    ] {
        for undo in [true, false] {
            let more: &[&str] = if undo { &["--undo"] } else { &[] };
            let run = stopped_after(&database, sql, more);
            let table = &run.report::<Report>().tables[0];
            assert_eq!((table.undo(), table.undone), (ours, undo), "{table}");
            assert!(
                table
                    .notes()
                    .contains(&format!("{named} by another session: this is left as it is")),
                "{table}"
            );
            if !undo {
                database.psql(table.undo());
            }
            assert_eq!(database.psql(THREE), left, "{sql}");
        }
    }
    // what another session has set instead of what the run set is not overwritten either
    let run =
        stopped_after(&database, "ALTER TABLE t ALTER v SET COMPRESSION default", &["--undo"]);
    let table = &run.report::<Report>().tables[0];
    assert_eq!((table.undo.as_deref(), table.undone), (None, false), "{table}");
    assert!(
        table.notes().contains("\"v\" was set to compression default by another session"),
        "{table}"
    );
    assert_eq!(database.psql(THREE), "x||");
}

#[test]
fn settings_for_new_values_do_not_replace_what_another_session_has_set() {
    let database = with_pageinspect("finally");
    let policy = ["t", "-c", "v", "--policy", "always", "--method", "lz4"];
    let policy = [&policy[..], &["--set", "new-values=extended"]].concat();
    for (sql, left, named) in [
        ("ALTER TABLE t ALTER v SET STORAGE main", "m|p|", "to storage main"),
        ("ALTER TABLE t ALTER v SET COMPRESSION default", "x||", "to compression default"),
    ] {
        for more in [&[][..], &["--undo"]] {
            let run = stopped_run_after(&database, &policy, sql, more);
            assert_eq!(run.code, Some(1), "{run:?}");
            assert!(run.stderr.contains(named), "{run:?}");
            let table = &run.report::<Report>().tables[0];
            assert_eq!(table.alter_after, None, "{table}");
            assert_eq!(database.psql(THREE), left, "{sql}");
        }
    }
}

/// A partitioned table with the compression of its column, and that of its partitions.
/// Another session has given the table another name, and another schema.
#[test]
fn a_renamed_table_is_restored_by_its_new_name() {
    let database = with_pageinspect("renamed");
    database.psql("CREATE SCHEMA \"S s\"");
    let sql = "ALTER TABLE t RENAME TO \"T t\"; ALTER TABLE \"T t\" SET SCHEMA \"S s\"";
    let run = stopped_after(&database, sql, &[]);
    let table = &run.report::<Report>().tables[0];
    let ours = "ALTER TABLE ONLY \"S s\".\"T t\" ALTER COLUMN \"v\" SET COMPRESSION pglz";
    assert_eq!((table.undo(), table.undone), (ours, true), "{table}");
    let set = "SELECT attcompression FROM pg_attribute
        WHERE attrelid = '\"S s\".\"T t\"'::regclass AND attname = 'v'";
    assert_eq!(database.psql(set), "p");
}

fn partitioned(database: &Database<'_>) {
    database.psql(
        "DROP TABLE IF EXISTS whole; CREATE TABLE whole (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF whole FOR VALUES FROM (0) TO (300);
         CREATE TABLE part_2 PARTITION OF whole FOR VALUES FROM (300) TO (600);
         INSERT INTO whole SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 599) AS i",
    );
}

#[test]
fn what_was_set_on_a_partitioned_table_is_told_and_restored() {
    let database = with_pageinspect("whole");
    let set = "SELECT string_agg(relname || '=' || attcompression::text, ' ' ORDER BY relname) FROM pg_attribute
        JOIN pg_class AS c ON c.oid = attrelid WHERE attname = 'v' AND relname IN ('whole', 'part_1', 'part_2')";
    let arguments = ["whole", "-c", "v", "--toaster", "lz4"];
    let alter = "ALTER TABLE ONLY \"public\".\"whole\" ALTER COLUMN \"v\" SET COMPRESSION";
    for signal in [Signal::INT, Signal::HUP] {
        partitioned(&database);
        let undone = [&arguments[..], &brake(&database), &["--undo"]].concat();
        let running = Running::start(&mut command(&database, &undone));
        running.says("is true (--throttle-query)");
        assert_eq!(database.psql(set), "part_1=l part_2= whole=l");
        running.signal(signal);
        let run = running.end();
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("restored: {alter} default")), "{}", run.stderr);
        assert_eq!(database.psql(set), "part_1= part_2= whole=");
    }
    // what another session has set in the meantime stays
    let undone = [&arguments[..], &brake(&database), &["--undo"]].concat();
    let running = Running::start(&mut command(&database, &undone));
    running.says("is true (--throttle-query)");
    database.psql("ALTER TABLE ONLY whole ALTER v SET COMPRESSION pglz");
    running.signal(Signal::INT);
    running.end();
    assert_eq!(database.psql(set), "part_1= part_2= whole=p");
    // reports have the statements, also if messages are not wanted
    let planned = retoast(&database, &[&arguments[..], &["--dry-run", "-q"]].concat()).exits(0);
    let of_plan = planned.report::<Report>().tables[0].notes();
    assert!(of_plan.contains(&format!("would set for new partitions: {alter} lz4")), "{of_plan}");
    let run = retoast(&database, &[&arguments[..], &["-q"]].concat()).exits(0);
    let told = run.report::<Report>().tables[0].notes();
    let both = format!("set for new partitions: {alter} lz4; to restore: {alter} pglz");
    assert!(told.contains(&both), "{told}");
    assert_eq!(database.psql(set), "part_1=l part_2=l whole=l");
}

#[test]
fn a_hangup_that_nohup_ignores_stops_nothing() {
    let database = with_pageinspect("nohup");
    partitioned(&database);
    let retoast = command(
        &database,
        &[&["part_1", "-c", "v", "--toaster", "lz4"][..], &brake(&database)].concat(),
    );
    let mut ignoring = std::process::Command::new("sh");
    ignoring
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(retoast.get_program())
        .args(retoast.get_args());
    for (name, value) in retoast.get_envs() {
        match value {
            Some(value) => ignoring.env(name, value),
            None => ignoring.env_remove(name),
        };
    }
    let running = Running::start(&mut ignoring);
    running.says("is true (--throttle-query)");
    running.signal(Signal::HUP);
    release(&database);
    let run = running.end();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn values_that_would_stay_as_they_are_are_no_matter_of_undoing() {
    let database = with_pageinspect("same_by_default");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         SET default_toast_compression = pglz;
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 500) AS i",
    );
    database
        .psql(&format!("ALTER DATABASE {} SET default_toast_compression = lz4", database.name()));
    let table = done(&retoast(&database, &LZ4));
    assert!(table.undo().contains("SET COMPRESSION default"), "{table}");
    assert_eq!(table.undo_command, [""; 0], "{table}");
    // where the default is another method, they are restored by the settings
    database.psql(&format!(
        "ALTER DATABASE {} RESET default_toast_compression; ALTER TABLE t ALTER v SET COMPRESSION default",
        database.name()
    ));
    done(&retoast(&database, &["t", "-c", "v", "--toaster", "extended"]));
    let table = done(&retoast(&database, &LZ4));
    let command = ["toastctl", "retoast", "public.t", "--column", "v", "--toaster", "extended"];
    assert_eq!(table.undo_command[..7], command, "{table}");
    database.psql(table.undo());
    done(&retoast(&database, &command[2..]));
    let methods = "SELECT string_agg(DISTINCT pg_column_compression(v), ' ') FROM t";
    assert_eq!(database.psql(methods), "pglz");
}

#[test]
fn a_transaction_that_has_ended_is_not_ended_again() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("ended");
    for sql in ["ALTER TABLE t ADD COLUMN more int", "ALTER TABLE t ALTER v SET STORAGE external"] {
        stopped_after(&database, sql, &[]);
        let run = stopped_after(&database, sql, &["--set", "enforce=on"]);
        let is_of_settings = sql.contains("STORAGE");
        let has_hint = run.stdout.contains("With --set enforce=on")
            || run.stderr.contains("With --set enforce=on");
        assert!(!has_hint || is_of_settings, "{}{}", run.stdout, run.stderr);
        // the next batch finds the change
        let arguments = [&LZ4[..], &brake(&database)].concat();
        let running = Running::start(&mut command(&database, &arguments));
        running.says("is true (--throttle-query)");
        database.psql(&sql.replace("more", "further").replace("external", "main"));
        release(&database);
        running.end();
    }
    // and what is refused before a transaction has none to end
    database.psql("CREATE TABLE empty (); INSERT INTO empty SELECT FROM generate_series(1, 3000)");
    retoast(&database, &["compact", "empty"]).exits(1);
    let log = server.log();
    assert!(!log.contains("there is no transaction in progress"), "{log}");
}

#[test]
fn a_connection_lost_after_the_settings_were_changed_is_blamed_on_nobody() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let proxy = Proxy::start(server.port());
    let database = server.with_pageinspect("cut");
    let url = format!(
        "host=127.0.0.1 port={} user=postgres dbname={} sslmode=disable",
        proxy.port,
        database.name()
    );
    let policy = [
        "t",
        "-c",
        "v",
        "--policy",
        "chunk-saving",
        "--method",
        "lz4",
        "--set",
        "new-values=extended",
    ];
    // the change of the settings at the beginning, or that at the end
    for (arguments, passes) in [(&LZ4[..], 0), (&policy[..], 0), (&policy[..], 1)] {
        database.psql(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
             ALTER TABLE t ALTER v SET STORAGE main;
             INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 500) AS i",
        );
        proxy.cut_at("ALTER TABLE\0", passes);
        let retoast = ["retoast", "-d", &url, "--format", "json"];
        let run = run(toastctl().args(retoast).args(arguments));
        let table = done(&run);
        assert!(proxy.has_cut(), "{}", run.stderr);
        assert!(!run.stderr.contains("by another session"), "{}", run.stderr);
        assert!(run.stderr.contains("to restore: ALTER TABLE"), "{}", run.stderr);
        assert_eq!(database.psql(THREE), "x|l|", "{table}");
        let undo = "SET STORAGE main, ALTER COLUMN \"v\" SET COMPRESSION pglz";
        assert!(table.undo().contains(undo), "{table}");
        let set = "column \"v\" to storage external";
        assert!(!run.stderr.contains(set), "no run was killed: {}", run.stderr);
    }
}

#[test]
fn former_settings_are_said_before_they_are_changed_and_kept_in_the_checkpoint() {
    let database = with_pageinspect("former");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 500) AS i",
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at");
    let undo = "ALTER TABLE ONLY \"public\".\"t\" ALTER COLUMN \"v\" SET STORAGE external, \
                ALTER COLUMN \"v\" SET COMPRESSION pglz, RESET (toast_tuple_target)";
    let arguments =
        [&LZ4[..], &["--target", "4080", "--checkpoint", file.to_str().unwrap()]].concat();
    let killed =
        Running::start(&mut command(&database, &[&arguments[..], &brake(&database)].concat()));
    killed.says("is true (--throttle-query)");
    assert!(killed.said().contains(&format!("public.t: to restore: {undo}")), "{}", killed.said());
    killed.signal(Signal::KILL);
    killed.end();
    assert_eq!(database.psql(THREE), "x|l|{toast_tuple_target=4080}");
    let run = retoast(&database, &arguments);
    let table = done(&run);
    let told =
        format!("an earlier run has changed the settings; to restore those before it: {undo}");
    assert!(run.stderr.contains(&told), "{}", run.stderr);
    assert!(table.notes().contains(&told), "{table}");
    assert!(!file.exists());
    database.psql(undo);
    assert_eq!(database.psql(THREE), "e|p|");
}

#[test]
fn who_goes_on_without_a_checkpoint_is_told_where_the_former_settings_are() {
    let database = with_pageinspect("former_unknown");
    let stopped = stopped_after(&database, "SELECT 1", &[]);
    let table = &stopped.report::<Report>().tables[0];
    assert!(table.undo().ends_with("SET COMPRESSION pglz"), "{table}");
    let text = stopped.stderr.clone();
    assert!(!table.notes().contains("to restore"), "{text}");
    let went_on = retoast(&database, &LZ4);
    let table = done(&went_on);
    let told = "the settings were as requested before this run; if an earlier run has set them, its line \"to restore\" has the \
                former ones";
    assert_eq!((table.undo.as_deref(), table.notes().contains(told)), (None, true), "{table}");
    // where nothing was converted nothing need be undone
    assert!(!done(&retoast(&database, &LZ4)).notes().contains("to restore"));
}

#[test]
fn what_is_printed_as_undo_brings_settings_and_values_back() {
    let database = with_pageinspect("undone_by_hand");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, a text COMPRESSION lz4, \"B b\" text, \"-c\" text);
         ALTER TABLE t ALTER \"-c\" SET STORAGE MAIN;
         INSERT INTO t SELECT i, repeat(md5(i::text), 300), repeat(md5(i::text), 90), repeat(md5(i::text), 200)
         FROM generate_series(1, 300) AS i",
    );
    let stored = "SELECT attname::text AS v, attstorage::text, attcompression::text FROM pg_attribute WHERE attrelid = 't'::regclass
            AND attnum > 0 UNION ALL
        SELECT v, '', count(*)::text FROM t, LATERAL (VALUES ('a' || pg_column_compression(a)),
            ('b' || pg_column_compression(\"B b\")), ('c' || pg_column_compression(\"-c\"))) AS c (v)
        GROUP BY v ORDER BY 1";
    let before = database.psql(stored);
    // columns whose storage was the same, and one alone; a command names both, or is not printed
    let cases: [(&[&str], usize); 3] =
        [(&["-c", "a", "-c", "B b"], 2), (&["--column=-c"], 1), (&["-c", "a", "--column=-c"], 0)];
    for (columns, named) in cases {
        let arguments = [&["t"], columns, &["--toaster", "external"]].concat();
        let planned = retoast(&database, &[&arguments[..], &["--dry-run"]].concat()).exits(0);
        let run = retoast(&database, &arguments);
        let table = done(&run);
        let planned = planned.report::<Report>();
        assert_eq!(planned.tables[0].undo_command, table.undo_command);
        assert_ne!(database.psql(stored), before);
        database.psql(table.undo.as_deref().unwrap());
        let words: Vec<&str> = table.undo_command.iter().map(String::as_str).collect();
        let columns_named = words.iter().filter(|word| word.starts_with("--column"));
        assert_eq!(columns_named.count(), named, "{columns:?}: {words:?}");
        if named == 0 {
            for column in ["a", "-c"] {
                let storage = if column == "a" { "extended" } else { "main" };
                let column = format!("--column={column}");
                done(&retoast(&database, &["t", &column, "--toaster", storage]));
            }
        } else {
            done(&retoast(&database, &words[2..]));
        }
        assert_eq!(database.psql(stored), before, "{columns:?}");
    }
    // the command sets no method, so that the dry run has the statement that does
    let there_and_back = || {
        let before = database.psql(stored);
        let arguments = ["t", "-c", "B b", "--toaster", "lz4"];
        let planned = retoast(&database, &[&arguments[..], &["--dry-run"]].concat()).exits(0);
        let planned = &planned.report::<Report>().tables[0];
        done(&retoast(&database, &arguments));
        assert_ne!(database.psql(stored), before);
        database.psql(planned.undo.as_deref().unwrap());
        let words: Vec<&str> = planned.undo_command.iter().map(String::as_str).collect();
        if !words.is_empty() {
            done(&retoast(&database, &words[2..]));
        }
        assert_eq!(database.psql(stored), before);
    };
    there_and_back();
    let text = run(toastctl()
        .args(["retoast", "-d", &database.url(), "t", "-c", "B b"])
        .args(["--toaster", "external"]));
    let said = "  and the values: toastctl retoast public.t --column 'B b' --toaster extended";
    assert!(text.stdout.contains(said), "{}", text.stdout);
    // where nothing was converted there is nothing to convert back
    let again = retoast(&database, &["t", "-c", "B b", "--toaster", "external"]);
    assert!(done(&again).undo_command.is_empty());
    // nor does a storage that does not compress keep the method; without values, settings alone are set back
    there_and_back();
    database.psql("UPDATE t SET \"B b\" = NULL");
    there_and_back();
}
