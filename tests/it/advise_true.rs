//! Advice that comes true: the recommended command is run as it is printed, and leaves what it promises. By default
//! options, on small versions of the tables of `scripts/bench advice`.

use crate::support::command::{run, toastctl};
use crate::support::findings::{NOISE, act, findings, prepared, settled};
use crate::support::measured::buffers;
use crate::support::reports::advise::Report;
use crate::support::reports::{Interval, Printed};
use crate::support::server::{self, Database, Options, Server};
use crate::support::verbs::advised;

const TABLES: &str = include_str!("../../benches/advice.sql");
const KILOBYTES: u32 = 3000;

/// Bytes of heap, TOAST relation and its index.
fn bytes(database: &Database<'_>, table: &str) -> f64 {
    let sql = format!(
        "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(reltoastrelid)
         FROM pg_class WHERE relname = '{table}'"
    );
    database.psql(&sql).parse().unwrap()
}

/// Runs the command of a recommendation.
#[track_caller]
fn carry_out(database: &Database<'_>, report: &Printed<Report>) {
    let words = &report.recommendation.command;
    assert_eq!(words[0], "toastctl");
    run(toastctl().args(&words[1..]).args(["-d", &database.conninfo()])).ok();
}

/// Converts the table that these arguments begin with, and expects its size to be inside the interval foretold for a candidate;
/// both are returned.
#[track_caller]
fn became_as_foretold(
    database: &Database<'_>,
    arguments: &[&str],
    candidate: &str,
    retoast: &[&str],
) -> (Interval, f64) {
    let report = advised(database, arguments);
    let foretold = report.candidates.iter().find(|one| one.name == candidate).unwrap();
    let after = foretold.after_command_bytes;
    let table = arguments[0];
    run(toastctl().args(["retoast", table, "-d", &database.conninfo()]).args(retoast)).ok();
    let now = bytes(database, table);
    assert!((after.low..=after.high).contains(&now), "{now}: {after:?}");
    (after, now)
}

#[test]
fn what_is_printed_leaves_what_is_promised_and_is_not_advised_again() {
    let database = server::with_pageinspect("advice");
    database.psql(&format!("\\set kb {KILOBYTES}\n{TABLES}\nVACUUM;"));
    let mut recommended = 0;
    for (table, optimize) in [
        ("bimodal", "read"),
        ("deleted", "size"),
        ("documents_50k", "read"),
        ("external", "balanced"),
        ("low_target", "write"),
        ("mostly_null", "balanced"),
        ("random_4k", "read"),
        ("several_large", "write"),
        ("stored_main", "balanced"),
    ] {
        let arguments = [table, "-c", "v", "--optimize", optimize];
        let report = advised(&database, &arguments);
        let after = report.recommendation.after_bytes;
        assert!(after.low <= after.estimate && after.estimate <= after.high, "{table}: {report}");
        let before = bytes(&database, table);
        if report.recommendation.command.is_empty() {
            assert_eq!((after.low, after.high), (before, before), "{table}");
            continue;
        }
        recommended += 1;
        carry_out(&database, &report);
        let now = bytes(&database, table);
        // a few pages count for much in so small tables
        let slack = now * 0.05 + 12.0 * 8192.0;
        assert!(
            (after.estimate - now).abs() < slack,
            "{table}: {now}, foretold {after:?}, before {before}: {}",
            report.recommendation
        );
        let again = advised(&database, &arguments);
        assert_eq!(again.recommendation.command, [""; 0], "{table}: {}", again.recommendation);
    }
    assert!(recommended > 3, "{recommended}");
}

#[test]
fn a_target_that_other_columns_need_is_for_all_of_them_and_changes_rows() {
    let database = server::with_pageinspect("advice");
    // rows of three columns, of which none is wide: only all of them together are
    database.psql(
        "CREATE TABLE t (id int, a bytea, b bytea, c bytea);
         ALTER TABLE t ALTER a SET STORAGE external, ALTER b SET STORAGE external, ALTER c SET STORAGE external;
         INSERT INTO t SELECT i, b, b, b FROM (SELECT i, (SELECT substr(string_agg(sha512((i * 100 + k)::text::bytea),
             ''), 1, 600) FROM generate_series(1, 10) AS k) AS b FROM generate_series(1, 3000) AS i) AS s;
         VACUUM t",
    );
    let arguments =
        ["t", "-c", "a", "--storage", "external", "--target", "256", "--optimize", "read"];
    let report = advised(&database, &arguments);
    let wanted = &report.candidates[report.candidates.len() - 1];
    let heap = |database: &Database<'_>| -> f64 {
        database.psql("SELECT pg_relation_size('t')").parse().unwrap()
    };
    let before = heap(&database);
    // rows of 1.8 kB are not toasted, whatever the target
    assert!((wanted.heap_bytes.estimate / before - 1.0).abs() < 0.02, "{wanted}");
    database.psql("UPDATE t SET a = a || a; VACUUM FULL t");
    let before = heap(&database);
    let report = advised(&database, &arguments);
    let wanted = &report.candidates[report.candidates.len() - 1];
    run(toastctl()
        .args(["retoast", "t", "-c", "a", "-c", "b", "-c", "c", "--toaster", "external"])
        .args(["--target", "256", "--compact", "-d", &database.conninfo()]))
    .ok();
    let now = heap(&database);
    assert!(now < before * 0.7, "{now}, before {before}");
    assert!((wanted.heap_bytes.estimate / now - 1.0).abs() < 0.1, "{now}: {wanted}");
}

#[test]
fn a_read_visits_the_pages_of_the_files_as_they_are() {
    let database = server::with_pageinspect("advice");
    // two thirds of every page are free
    database.psql(
        "CREATE TABLE t AS SELECT i AS id, repeat(md5(i::text), 10) AS v FROM generate_series(1, 6000) AS i;
         DELETE FROM t WHERE id % 3 > 0; VACUUM t",
    );
    let report = advised(&database, &["t", "-c", "v"]);
    let pages: f64 = database.psql("SELECT pg_relation_size('t') / 8192").parse().unwrap();
    let told = report.candidates[0].read_buffers_per_value.estimate * 2000.0;
    assert!((told / pages - 1.0).abs() < 0.02, "{told}, {pages}");
}

#[test]
fn after_the_command_a_read_visits_as_many_pages_as_foretold() {
    let database = server::with_pageinspect("advice");
    // in a new file each value of four chunks fills a page; in the room that six chunks have left it is on two
    database.psql(&format!("\\set kb 10000\n{TABLES}\nVACUUM;"));
    for (table, goal) in [("external", "size"), ("documents_50k", "read")] {
        let report = advised(&database, &[table, "-c", "v", "--optimize", goal]);
        let per_value = report.chosen().read_buffers_per_value.estimate;
        carry_out(&database, &report);
        let visited = buffers(&database, &format!("SELECT sum(length(v::text)) FROM {table}"));
        let values: f64 = database.psql(&format!("SELECT count(v) FROM {table}")).parse().unwrap();
        let told = per_value * values;
        assert!((told / visited - 1.0).abs() < 0.07, "{table}: {told}, {visited}: {report}");
    }
}

/// The commands of the advice on all columns, each once.
fn commands(database: &Database<'_>, table: &str, optimize: &str) -> Vec<String> {
    let mut command = toastctl();
    command.args(["advise-threshold", table, "-d", &database.url(), "--optimize", optimize]);
    let printed = run(command.args(["--emit", "command"])).ok();
    printed.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn columns_of_one_table_are_settled_in_one_step() {
    let database = prepared("together");
    database.psql(
        "-- with one setting of the first column, the second is compressed, and stays so
         CREATE TABLE arrays (id int, v float8[], q smallint[]);
         INSERT INTO arrays SELECT i, (SELECT array_agg(round((20 + 9 * sin(i * 0.37 + k * 0.011))::numeric, 2)) FROM generate_series(1, 288) k),
             (SELECT array_agg(CASE WHEN (i + k * k) % 7 = 0 THEN 1 ELSE 0 END) FROM generate_series(1, 288) k)
             FROM generate_series(1, 900) i;
         -- the target is that of both columns
         CREATE TABLE target (id int, a text, b text) WITH (toast_tuple_target = 4080);
         INSERT INTO target SELECT i, noise(i, 700 + i * 37 % 6000), noise(-i, 100 + i % 800) FROM generate_series(1, 1200) i;
         VACUUM ANALYZE",
    );
    let mut carried_out = 0;
    for (table, optimize) in [("arrays", "size"), ("target", "balanced")] {
        let before = bytes(&database, table);
        let advice = commands(&database, table, optimize);
        for command in &advice {
            carried_out += 1;
            act(&database, command);
        }
        let now = bytes(&database, table);
        // a few pages count for much in so small tables
        assert!(now <= before * 1.1 + 12.0 * 8192.0, "{table}: {before} {now} {advice:?}");
        assert_eq!(commands(&database, table, optimize), [""; 0], "{table} after {advice:?}");
        if optimize == "balanced" {
            settled(&database, table);
        }
    }
    assert!(carried_out > 0);
}

#[test]
fn the_same_seed_gives_the_same_answer_and_another_one_names_the_tie() {
    let database = server::with_pageinspect("seeds");
    database.psql(&format!("\\set kb {KILOBYTES}\n{TABLES}\nVACUUM;"));
    for table in ["around_2k", "several_wide", "updated"] {
        let mut names = Vec::new();
        for seed in 1..=6 {
            let sample = format!("30%,seed={seed}");
            let arguments = [table, "-c", "v", "--sample", &sample];
            let report = advised(&database, &arguments);
            let again = advised(&database, &arguments);
            assert_eq!(again.recommendation.to_string(), report.recommendation.to_string());
            let is_tied = report.recommendation.reasons.contains(" is as good");
            let chosen = &report.chosen().name;
            if !is_tied && !names.contains(chosen) {
                names.push(chosen.clone());
            }
        }
        assert!(names.len() <= 1, "{table}: {names:?}");
    }
}

/// Rows of 2 kB, four on a page, of which every sixth is written anew, fill new pages before any is vacuumed.
#[test]
fn a_heap_grows_by_large_rows_that_are_far_apart_as_promised() {
    let database = prepared("wide");
    database.psql(
        "CREATE TABLE wide (id int PRIMARY KEY, a text, b text COMPRESSION pglz);
         ALTER TABLE wide ALTER a SET STORAGE plain;
         INSERT INTO wide SELECT i, noise(i, 1550), CASE WHEN i % 6 = 0 THEN noise(i, 160) || repeat(left(noise(-i, 40), 16), 60) END
             FROM generate_series(1, 5000) AS i;
         VACUUM ANALYZE",
    );
    let arguments = ["wide", "-c", "b", "--optimize", "read", "--sample", "100%"];
    let words = ["--column", "b", "--toaster", "main=lz4", "--compact=toast"];
    became_as_foretold(&database, &arguments, "main lz4", &words);
}

/// Of values of dropped columns those go of whose rows the command or its compaction makes new versions.
#[test]
fn values_of_dropped_columns_stay_in_rows_that_are_not_written() {
    let database = prepared("dropped");
    database.psql(
        "CREATE TABLE dropped (id int PRIMARY KEY, gone text, v text);
         ALTER TABLE dropped ALTER v SET STORAGE external;
         INSERT INTO dropped SELECT i, noise(i, 4000),
             CASE WHEN i % 3 = 0 THEN repeat(noise(-i, 1500), 3) ELSE noise(-i, 3000) END
             FROM generate_series(1, 1500) AS i;
         ALTER TABLE dropped DROP gone;
         VACUUM ANALYZE",
    );
    let arguments = ["dropped", "-c", "v", "--sample", "100%"];
    let words = ["--column", "v", "--toaster", "pglz", "--compact", "--reindex"];
    let (after, now) = became_as_foretold(&database, &arguments, "extended pglz", &words);
    assert!((after.estimate / now - 1.0).abs() < 0.15, "{now}: {after:?}");
}

#[test]
fn what_compaction_alone_returns_is_said_of_several_columns_too() {
    let database = prepared("loose");
    database.psql(
        "CREATE TABLE loose (id int PRIMARY KEY, a text, b text);
         INSERT INTO loose SELECT i, noise(i, 3000), noise(-i, 3000) FROM generate_series(1, 1500) AS i;
         DELETE FROM loose WHERE id % 3 > 0;
         VACUUM ANALYZE",
    );
    let text = run(toastctl().args(["advise-threshold", "loose", "-d", &database.url()])).ok();
    assert!(text.contains("2 columns of 1 table"), "{text}");
    assert!(text.contains("With the present settings, toastctl compact public.loose"), "{text}");
}

/// What `inspect` and `advise-threshold` say of a column, by turns with what their commands do: no verb asks for the
/// opposite of another, or a second time.
#[test]
fn inspect_and_advise_threshold_agree() {
    let database = prepared("agree");
    database.psql(
        "CREATE FUNCTION words(n int, seed int) RETURNS text LANGUAGE sql AS
             $$SELECT left(string_agg((array['the','quick','system','returns','large','values','from','table','request',
                 'error','response','payload','message'])[1 + (hashint4(seed * 1000 + i) & 2147483647) % 13], ' '), n)
               FROM generate_series(1, n / 5 + 1) AS i$$;
         -- most values are compressed files, most bytes text
         CREATE TABLE mixed (id int PRIMARY KEY, data bytea);
         INSERT INTO mixed SELECT i, CASE WHEN i % 20 < 9 THEN convert_to(words(20000, i), 'UTF8')
             ELSE decode('1f8b0800' || noise(i, 8000), 'hex') END FROM generate_series(1, 500) AS i;
         -- compression saves each value a chunk
         CREATE TABLE chunks (id int PRIMARY KEY, payload text); ALTER TABLE chunks ALTER payload SET STORAGE external;
         INSERT INTO chunks SELECT i, noise(i, 6000) FROM generate_series(1, 1500) AS i;
         -- the method that was set later is worse
         CREATE TABLE later (id int PRIMARY KEY, line text COMPRESSION pglz);
         INSERT INTO later SELECT i, words(3200, i) FROM generate_series(1, 1500) AS i;
         ALTER TABLE later ALTER line SET COMPRESSION lz4;
         INSERT INTO later SELECT i, words(3200, i) FROM generate_series(1501, 2000) AS i;
         -- only another column is updated
         CREATE TABLE hot (id int PRIMARY KEY, count int, doc text) WITH (fillfactor = 50);
         INSERT INTO hot SELECT i, 0, noise(i, 3000) FROM generate_series(1, 1500) AS i;
         UPDATE hot SET count = count + 1; UPDATE hot SET count = count + 1;
         VACUUM ANALYZE",
    );
    // what is kept are the values, not the settings, which are those of new values
    let report = advised(&database, &["later", "-c", "line", "--method", "lz4"]);
    let kept = &report.recommendation;
    assert!(kept.command.is_empty(), "{kept}");
    assert!(kept.reasons.starts_with("Leave the stored values as they are: "), "{kept}");
    let settings = "The present settings, storage extended, compression lz4, toast_tuple_target 2032, apply to new values";
    assert!(kept.reasons.contains(settings), "{kept}");
    for (table, column) in
        [("mixed", "data"), ("chunks", "payload"), ("later", "line"), ("hot", "doc")]
    {
        let arguments = [table, "-c", column];
        let advice = advised(&database, &arguments).recommendation.command.join(" ");
        for finding in findings(&database, table) {
            if finding.column.as_deref() == Some(column) && !finding.command.is_empty() {
                assert_eq!(finding.command, advice, "{table}");
            }
        }
        // another seed reads other blocks of the same values
        let seeded = [&arguments[..], &["--sample", "100%,seed=7"]].concat();
        assert_eq!(advised(&database, &seeded).recommendation.command.join(" "), advice, "{table}");
        if !advice.is_empty() {
            act(&database, &advice);
        }
        settled(&database, table);
    }
    // values that compress by a third in the way of lz4 are not written anew for it
    let later = advised(&database, &["later", "-c", "line"]);
    assert!(!later.recommendation.command.contains(&"lz4".to_owned()), "{later:#}");
}

#[test]
fn long_rows_among_short_ones_and_columns_of_the_same_rows_settle_in_one_round() {
    let database = server::with_pageinspect("advice");
    database.psql(
        "CREATE FUNCTION words(bytes int, seed int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
           SELECT left(string_agg('the quick brown fox ' || (seed * 7919 + i * 31) % 997 || ' jumps over ', ' '), bytes)
           FROM generate_series(1, bytes / 20 + 1) AS i $$;
         -- large values that lz4 would compress into the row
         CREATE TABLE some_long (id int, v text);
         INSERT INTO some_long SELECT i, CASE WHEN i % 100 = 0 THEN words(60000, i) ELSE words(50, i) END
         FROM generate_series(1, 30000) AS i;
         CREATE TABLE two_main (id int, v text, w text);
         ALTER TABLE two_main ALTER v SET STORAGE main, ALTER w SET STORAGE main;
         INSERT INTO two_main SELECT i, words(12000, i), words(11000, i) FROM generate_series(1, 2000) AS i;
         VACUUM ANALYZE",
    );
    let report = advised(&database, &["some_long", "-c", "v"]);
    let after = report.recommendation.after_bytes;
    for table in ["some_long", "two_main"] {
        let before = bytes(&database, table);
        let printed = commands(&database, table, "balanced");
        assert_eq!(printed.len(), 1, "{table}: {printed:?}");
        act(&database, &printed[0]);
        let now = bytes(&database, table);
        assert!(now < before * 0.95, "{table}: {before}, then {now}");
        assert_eq!(commands(&database, table, "balanced"), [""; 0], "{table}");
        if table == "some_long" {
            assert!((after.low * 0.98..after.high * 1.02).contains(&now), "{now}: {after:?}");
        }
    }
}

/// Rows with a long value are few, and few pages have room for them: what they take of the heap is promised, for every goal.
#[test]
fn few_long_values_among_many_rows_are_settled_in_one_round_within_the_promise() {
    let database = prepared("sparse");
    let numbers: Vec<String> =
        (0..20).map(|n| format!("n{n} bigint DEFAULT 1000000 + {n}")).collect();
    database.psql(&format!(
        "CREATE TABLE sparse (id int PRIMARY KEY, {}, t text);
         INSERT INTO sparse (id, t) SELECT i, CASE WHEN i % 50 = 0 THEN noise(i, 2300 + i * 37 % 3000) END
             FROM generate_series(1, 20000) AS i;
         DELETE FROM sparse WHERE id % 5 IN (1, 2);
         VACUUM ANALYZE",
        numbers.join(", ")
    ));
    for optimize in ["read", "write"] {
        let report = advised(&database, &["sparse", "-c", "t", "--optimize", optimize]);
        let after = report.recommendation.after_bytes;
        let printed = commands(&database, "sparse", optimize);
        printed.iter().for_each(|command| act(&database, command));
        let now = bytes(&database, "sparse");
        assert!((after.low * 0.98..after.high * 1.02).contains(&now), "{now}: {report}");
        assert_eq!(commands(&database, "sparse", optimize), [""; 0], "after {printed:?}");
    }
}

/// Rows that become longer fill what the fillfactor keeps free on their pages first.
#[test]
fn rows_that_grow_stay_on_pages_with_a_fillfactor_as_promised() {
    // snapshots of other tests keep dead rows on pages
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.with_pageinspect("fillfactor");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE half (id int PRIMARY KEY, v text) WITH (fillfactor = 50);
         CREATE TABLE most (id int PRIMARY KEY, v text, w text) WITH (fillfactor = 70);
         ALTER TABLE half ALTER v SET STORAGE external;
         ALTER TABLE most ALTER v SET STORAGE external;
         INSERT INTO half SELECT i, repeat('value ' || i % 97 || ' is here; ', 180) FROM generate_series(1, 4000) AS i;
         INSERT INTO most SELECT i, repeat('value ' || i % 97 || ' is here; ', 180), noise(i, 90)
             FROM generate_series(1, 4000) AS i;
         VACUUM ANALYZE",
    );
    for table in ["half", "most"] {
        let report = advised(&database, &[table, "-c", "v", "--optimize", "size"]);
        let after = report.recommendation.after_bytes;
        carry_out(&database, &report);
        let now = bytes(&database, table);
        assert!((after.low..=after.high).contains(&now), "{table} {now}: {report}");
        assert!((after.estimate / now - 1.0).abs() < 0.1, "{table} {now}: {after:?}");
        assert_eq!(commands(&database, table, "size"), [""; 0], "{table}");
    }
}

/// Settings are not out of proportion because PostgreSQL's defaults would store the values in less space, if they store them
/// in less than today.
#[test]
fn what_is_faster_and_smaller_than_today_is_advised_for_reads() {
    let database = prepared("uncompressed");
    database.psql(
        "CREATE TABLE uncompressed (id int PRIMARY KEY, v text COMPRESSION pglz);
         ALTER TABLE uncompressed ALTER v SET STORAGE external;
         INSERT INTO uncompressed SELECT i, (SELECT string_agg(format('{\"sku\": \"SKU-%s\", \"price\": %s, \"tags\": [\"anna\", \"eve\"]}, ',
             (i * 7919 + k * 31) % 9999, (i * 37 + k * 11) % 997), '') FROM generate_series(1, 40 + i % 150) AS k)
             FROM generate_series(1, 1500) AS i;
         VACUUM ANALYZE",
    );
    let before = bytes(&database, "uncompressed");
    let printed = commands(&database, "uncompressed", "read");
    assert_eq!(printed.len(), 1, "{printed:?}");
    act(&database, &printed[0]);
    assert!(bytes(&database, "uncompressed") < before * 0.95);
    assert_eq!(commands(&database, "uncompressed", "read"), [""; 0], "after {printed:?}");
}
