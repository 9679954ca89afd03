//! `compact`: contents and forms stay, beside writers and after kills too, and nothing is left behind.

use std::process::{Child, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::command::{run, toastctl};
use crate::support::reports::Source;
use crate::support::reports::retoast::{FileEnd, Outcome, Report};
use crate::support::retoast::{contents, done, forms, kills, refused, retoast, retoast_as, spawn};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::tables::{Copied, NOISE, fresh, table};
use crate::support::verbs::advised;

#[test]
fn values_keep_their_forms_whatever_the_columns_are_set_to() {
    let database = with_pageinspect("kept");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, p text COMPRESSION pglz, l text COMPRESSION pglz, e text,
            c text COMPRESSION lz4, gone text, g text GENERATED ALWAYS AS (p || e) STORED, small text);
         ALTER TABLE t ALTER l SET COMPRESSION lz4, ALTER e SET STORAGE external, ALTER gone SET STORAGE external;
         INSERT INTO t (id, p, l, e, c, gone, small) SELECT i, repeat(noise(i, 40), 9), repeat(noise(i, 50), 8),
            noise(i, 90), repeat(noise(-i, 60), 7), noise(i, 80), 'a' || i FROM generate_series(1, 1200) i;
         -- lz4 in a column that is set to pglz, compressed values in one that compresses nothing
         ALTER TABLE t ALTER l SET COMPRESSION pglz, ALTER c SET STORAGE external;
         DELETE FROM t WHERE id % 2 = 0; VACUUM t; ALTER TABLE t DROP gone;",
    );
    let all = || ["p", "l", "e", "c", "g", "small"].map(|column| forms(&database, "t", column));
    let (before, as_stored) = (contents(&database, "t"), all());
    for column in [1, 3] {
        let lz4 = as_stored[column].iter().any(|form| form.starts_with("external_compressed lz4"));
        assert!(lz4, "{as_stored:?}");
    }
    let table = done(&retoast(&database, &["compact", "t", "--verify", "full"]));
    assert_eq!(
        table.rows_verified,
        table.compaction[0].rows_moved + table.compaction[1].rows_moved
    );
    assert_eq!((contents(&database, "t"), all()), (before, as_stored));
    assert!(table.after.sum() * 2 < table.before.sum() * 3 / 2, "{table}");
    assert_eq!(
        database.psql("SELECT count(*) FROM pg_class WHERE relname = 'toastctl_compact'"),
        "0"
    );
}

#[test]
fn a_locked_row_at_the_end_is_told_and_the_next_run_finishes() {
    // an open transaction is in the way of vacuums in other databases too
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("held");
    database.psql(NOISE);
    database.psql(&table(1500, "noise(i, 200)"));
    database.psql("DELETE FROM t WHERE id <= 700; VACUUM t");
    let mut holder = database
        .psql_command()
        .args(["-c", "BEGIN; UPDATE t SET n = 1 WHERE id = 1500; SELECT pg_sleep(600)"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'
        AND wait_event = 'PgSleep' AND datname = current_database()";
    database.until(asleep, |answer| answer != "0");
    let run = retoast(&database, &["compact", "t", "--files", "toast"]);
    assert_eq!(run.code, Some(6), "{}{}", run.stdout, run.stderr);
    let report = run.report::<Report>();
    let file = &report.tables[0].compaction[0];
    assert_eq!(file.ended, FileEnd::Held, "{file}");
    assert!((1..10).contains(&file.rows_left), "{file}");
    assert!(file.spare > 0, "{file}");
    database.psql(&format!(
        "SELECT pg_terminate_backend(pid) FROM ({}) AS s",
        asleep.replace("count(*)", "pid")
    ));
    holder.wait().unwrap();
    let table = done(&retoast(&database, &["compact", "t", "--files", "toast"]));
    assert_eq!(table.compaction.len(), 1);
    assert!(table.after.toast * 10 < table.before.toast * 7, "{table}");
}

#[test]
fn who_may_not_read_the_toast_relation_is_told_what_helps() {
    let database = with_pageinspect("owned");
    let role = database.create_owner("keeper");
    database.psql(NOISE);
    database.psql(&format!("SET ROLE {role}; {}", table(800, "noise(i, 100)")));
    database.psql(
        "INSERT INTO t SELECT i, 'small', 'y', 0 FROM generate_series(1001, 20000) i;
        DELETE FROM t WHERE id % 2 = 0",
    );
    let by_owner = |more: &[&str]| {
        retoast_as(&database, &role, &[&["compact", "t", "--allow", "triggers"], more].concat())
    };
    refused(
        &by_owner(&[]),
        1,
        "--files heap, or retoast --compact=heap, leaves its TOAST relation out",
    );
    let before = contents(&database, "t");
    let table = done(&by_owner(&["--files", "heap"]));
    assert_eq!(table.source, Source::Functions);
    assert!(table.after.heap * 3 < table.before.heap * 2, "{table}");
    assert_eq!(contents(&database, "t"), before);
}

#[test]
fn on_every_major_and_without_pages_from_17_on() {
    for major in server::other_majors() {
        let server = Server::start(&Options::major(major));
        let database = server.create_database("majors");
        database.psql(NOISE);
        let role = database.create_owner("keeper");
        database.psql(&format!("GRANT pg_read_all_data TO {role}"));
        let make = table(800, "noise(i, 200)");
        database.psql(&format!("SET ROLE {role}; {make}"));
        database.psql("DELETE FROM t WHERE hashint4(id) % 2 = 0");
        let before = contents(&database, "t");
        let by_owner = || retoast_as(&database, &role, &["compact", "t", "--allow", "triggers"]);
        let table = if major >= 17 {
            done(&by_owner())
        } else {
            refused(&by_owner(), 1, "before PostgreSQL 17, only pageinspect shows");
            database.psql("CREATE EXTENSION pageinspect");
            done(&retoast(&database, &["compact", "t"]))
        };
        assert!(table.after.toast * 10 < table.before.toast * 6, "{major}: {table}");
        assert_eq!(contents(&database, "t"), before, "{major}");
    }
}

#[test]
fn a_sweep_is_followed_by_it_and_partitions_are_compacted_one_by_one() {
    let database = with_pageinspect("both");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE p (id int, v text COMPRESSION pglz) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (700);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (700) TO (2000);
         INSERT INTO p SELECT i, repeat(noise(i, 100), 3) FROM generate_series(1, 1400) i;
         DELETE FROM p WHERE hashint4(id) % 2 = 0",
    );
    let before = contents(&database, "p");
    let run = retoast(&database, &["p", "-c", "v", "--toaster", "lz4", "--compact"]);
    let tables = run.exits(0).tables();
    assert_eq!(tables.len(), 2);
    for table in tables {
        assert_eq!((table.outcome, table.toaster.as_str()), (Outcome::Complete, "lz4"), "{table}");
        let ended = table.compaction[0].ended;
        assert_eq!(ended, FileEnd::Compact, "{table}");
        assert!(table.after.toast * 10 < table.before.toast * 6, "{table}");
    }
    assert_eq!(database.psql("SELECT DISTINCT pg_column_compression(v) FROM p"), "lz4");
    assert_eq!(contents(&database, "p"), before);
    // less than 2 % of the files to gain
    database.psql("DELETE FROM p1 WHERE id % 200 = 0");
    let little = done(&retoast(&database, &["compact", "p1"]));
    assert_eq!((little.rows_stored, little.vacuums), (0, 0));
    database.psql("DELETE FROM p1 WHERE id % 5 = 0");
    let mut people = toastctl();
    people.args(["compact", "-d", &database.url(), "p1"]);
    let text = crate::support::command::run(&mut people).ok();
    assert!(text.starts_with("public.p1, compact: complete: "), "{text}");
    assert!(text.contains("\ncompact: TOAST: "), "{text}");
    let plain = retoast(&database, &["p", "--toaster", "plain", "--compact"]);
    refused(&plain, 2, "requires --column");
}

/// What sessions do to the table while it is compacted: they update its rows, and insert and delete rows of their own.
fn writer(database: &Database<'_>, number: u32, seconds: u32) -> Child {
    let mut psql = database.psql_command();
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c"]).arg(format!(
        "DO $$DECLARE until timestamptz := clock_timestamp() + '{seconds}s'; which int; done int := 0; hit int;
             first int := ({number} + 1) * 100000; next int := first; what float;
         BEGIN
             WHILE clock_timestamp() < until LOOP
                 which := 1 + floor(random() * 3000);
                 what := random();
                 IF what < 0.1 THEN
                     INSERT INTO t SELECT next, noise(next, 150), 'x', 0;
                     next := next + 1;
                 ELSIF what < 0.2 THEN
                     DELETE FROM t WHERE id = first AND first < next;
                     GET DIAGNOSTICS hit = ROW_COUNT;
                     first := first + hit;
                 ELSE
                     IF what < 0.4 THEN
                         UPDATE t SET n = n + 1, v = noise(id, 150 + (n + 1) % 50) WHERE id = which;
                     ELSE
                         UPDATE t SET n = n + 1 WHERE id = which;
                     END IF;
                     GET DIAGNOSTICS hit = ROW_COUNT;
                     done := done + hit;
                 END IF;
                 COMMIT;
                 PERFORM pg_sleep(0.001);
             END LOOP;
             INSERT INTO said VALUES (done, first, next);
         END$$"
    ));
    psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn beside_writers_nothing_is_lost_and_it_ends() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("writers");
    database.psql(NOISE);
    database.psql(&table(3000, "noise(i, 200)"));
    database.psql(
        "CREATE TABLE said (updates int, first int, next int); DELETE FROM t WHERE id % 2 = 0; VACUUM t",
    );
    let before: u64 = database.psql("SELECT pg_table_size('t')").parse().unwrap();
    let writers: Vec<Child> = (0..4).map(|number| writer(&database, number, 4)).collect();
    let run = retoast(&database, &["compact", "t"]);
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // 6: the writers' rows and snapshots kept space from being returned, where they were busy until its end
    assert!(matches!(run.code, Some(0 | 1 | 6)), "{:?}: {}{}", run.code, run.stdout, run.stderr);
    let said = database.psql("SELECT sum(updates) FROM said");
    let old = "SELECT sum(n), count(*) FROM t WHERE id <= 3000";
    assert_eq!(database.psql(old), format!("{said}|1500"));
    let other = "SELECT count(*) FROM (SELECT id FROM t WHERE id > 3000) AS t
        FULL JOIN (SELECT generate_series(first, next - 1) AS id FROM said) AS s USING (id)
        WHERE t IS NULL OR s IS NULL";
    assert_eq!(database.psql(other), "0");
    assert_eq!(database.psql("SELECT count(*) > 1 FROM said WHERE next % 100000 > 5"), "t");
    assert_eq!(
        database.psql("SELECT count(*) FROM t WHERE NOT starts_with(v, noise(id, 150))"),
        "0"
    );
    done(&retoast(&database, &["compact", "t"]));
    let after: u64 = database.psql("SELECT pg_table_size('t')").parse().unwrap();
    assert!(after * 10 < before * 6, "{before} became {after}");
}

#[test]
fn advise_threshold_says_what_it_would_give_back() {
    let database = with_pageinspect("compact_advised");
    database.psql(NOISE);
    database.psql(&table(2000, "noise(i, 200)"));
    database.psql("DELETE FROM t WHERE hashint4(id) % 2 = 0; VACUUM t");
    let advised = || advised(&database, &["t", "--column", "v"]);
    let report = advised();
    let said = report.compaction.as_ref().unwrap_or_else(|| panic!("{report}"));
    let command = "toastctl compact public.t --files toast --reindex";
    assert_eq!(said.command, command);
    let notes = report.notes();
    assert!(notes.contains(&format!("{command} would return about ")), "{notes}");
    let table = done(&retoast(&database, &["compact", "t", "--files", "toast", "--reindex"]));
    let gave = table.before.toast - table.after.toast;
    let said = said.toast_bytes as f64;
    assert!((said / gave as f64 - 1.0).abs() < 0.05, "{said} said, {table}");
    assert_eq!(advised().compaction, None);
}

#[test]
fn killed_at_random_moments_it_leaves_nothing_behind_and_the_next_run_finishes() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("kills");
    database.psql(NOISE);
    database.psql(&table(2400, "CASE WHEN i % 3 = 0 THEN noise(i, 20) ELSE noise(i, 200) END"));
    database
        .psql("ALTER TABLE t ALTER w SET STORAGE main; DELETE FROM t WHERE hashint4(id) % 2 = 0");
    let before = contents(&database, "t");
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for way in 0..kills() {
        let mut child =
            spawn(&database, &["compact", "t", "--set", "batch-ms=2", "--set", "nice=1"]);
        std::thread::sleep(Duration::from_millis(random.random_range(60..500)));
        match way % 3 {
            0 => drop(child.kill()),
            1 => drop(database.psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'",
            )),
            _ => server.restart_immediate(),
        }
        child.wait().unwrap();
        assert_eq!(contents(&database, "t"), before, "seed {seed}");
    }
    done(&retoast(&database, &["compact", "t"]));
    assert_eq!(contents(&database, "t"), before);
    assert_eq!(database.psql("SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'"), "0");
    let [heap, toast, _] = fresh(&database, Copied::Inserted);
    let now: u64 = database
        .psql("SELECT pg_relation_size('t') + pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 't'")
        .parse()
        .unwrap();
    assert!(now as f64 <= (heap + toast) as f64 * 1.08 + 131072.0, "{now} of {heap} and {toast}");
}

#[test]
fn csv_has_a_line_for_each_file_and_index() {
    let database = with_pageinspect("csvfiles");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 3000) AS i;
         DELETE FROM t WHERE id <= 2000; VACUUM t",
    );
    let csv = |arguments: &[&str]| {
        let url = database.url();
        let arguments = [arguments, &["t", "-d", &url, "--format", "csv"]].concat();
        let done = run(toastctl().args(arguments)).exits(0);
        done.stdout.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    const HEAD: &str = "relation,object,ended,bytes_before,bytes_expected,bytes_after,reason";
    for (arguments, begins) in [
        (&["compact", "--dry-run"][..], ["public.t,toast,planned,", "public.t,heap,planned,"]),
        (&["compact"], ["public.t,toast,compact,", "public.t,heap,compact,"]),
        (
            &["reindex", "--dry-run", "--indexes=all"],
            ["public.t,public.t_pkey,planned,", "public.t,pg_toast."],
        ),
        (&["reindex", "--indexes=all"], ["public.t,public.t_pkey,rebuilt,", "public.t,pg_toast."]),
    ] {
        let lines = csv(arguments);
        assert_eq!(lines[0], HEAD);
        for begin in begins {
            assert!(lines.iter().any(|line| line.starts_with(begin)), "{arguments:?}: {lines:#?}");
        }
    }
}

#[test]
fn a_compaction_of_the_heap_names_the_option_for_the_toast_relation() {
    let database = with_pageinspect("heap_only");
    database.psql(&format!("{NOISE}; {}", table(1000, "noise(i, 100)")));
    database.psql("DELETE FROM t WHERE id % 2 = 0; VACUUM t");
    let mut command = toastctl();
    command.args(["compact", "t", "--files", "heap", "-d", &database.url()]);
    let said = run(&mut command).ok();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = "; toastctl compact public.t --files toast --reindex returns free space online";
    assert!(said.contains(hint), "{said}");
}
