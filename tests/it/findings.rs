//! Findings of `inspect`: found on a table with just that trouble, not on one without, and gone after the
//! printed command.

use crate::support::command::{run, toastctl};
use crate::support::findings::{
    NOISE, act, advised, clean, codes, findings, inspect_at_rest, mended, prepared,
    relation_at_rest, settled,
};
use crate::support::reports::Printed;
use crate::support::reports::inspect::{Finding, Relation};
use crate::support::reports::overview::Overview;
use crate::support::server::{self, Database, Options, Server};
use toastctl::findings::code::Severity;
use toastctl::findings::finding::Unit;

#[test]
fn values_stored_by_an_older_method() {
    let database = prepared("older");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 1500) i",
    );
    clean(&database, "t");
    database.psql("ALTER TABLE t ALTER v SET COMPRESSION lz4");
    // lz4 would be larger here, so that nobody is told to convert
    let finding = advised(&database, "t", "older-setting");
    assert_eq!(finding.column.as_deref(), Some("v"));
    // values that arrive compressed stay so
    database.psql(
        "CREATE TABLE copy (id int, v text COMPRESSION pglz);
         INSERT INTO copy SELECT * FROM t",
    );
    database.psql("ALTER TABLE copy ALTER v SET COMPRESSION lz4");
    advised(&database, "copy", "older-setting");
}

/// Nothing tells a conversion that was stopped from a setting for new values alone.
#[test]
fn a_conversion_against_the_advice_that_was_stopped_is_not_passed_over() {
    let database = prepared("half");
    database.psql(crate::index_entries::WORDS);
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, words(6000, i) FROM generate_series(1, 2000) i;
         ALTER TABLE t ALTER v SET COMPRESSION lz4;
         UPDATE t SET v = (ARRAY[v || ''])[1] WHERE id <= 1000",
    );
    database.psql("VACUUM ANALYZE t");
    let found = findings(&database, "t");
    let older = found.iter().find(|one| one.code.name() == "older-setting").unwrap();
    // lz4 is twice as large here
    assert!(older.command.contains(" --toaster pglz"), "{older}");
    assert!(
        older.what.contains("; others suit the values best, which the command sets"),
        "{older}"
    );
    let advice =
        crate::support::verbs::advised(&database, &["t", "-c", "v"]).recommendation.reasons.clone();
    assert!(advice.starts_with("Recommended: storage extended, compression pglz, "), "{advice}");
    let unfinished = "The present settings, storage extended, compression lz4, toast_tuple_target 2032, apply to new values; \
                      if a conversion was stopped, its own command finishes it.";
    assert!(advice.ends_with(unfinished), "{advice}");
    // what finishes it is still what was asked for
    act(&database, "toastctl retoast t -c v --toaster lz4");
    let finished = findings(&database, "t");
    assert!(!codes(&finished).contains(&"older-setting"), "{finished:?}");
}

#[test]
fn an_owner_without_pages_is_told_of_older_methods_too() {
    let database = prepared("owned");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 1500) i;
         ALTER TABLE t ALTER v SET COMPRESSION lz4",
    );
    let told = relation_at_rest(&database, &["t", "--source", "functions"]);
    assert_eq!(codes(told.findings()), ["older-setting"], "{told:#}");
    assert_eq!(told.looked_at.as_ref().unwrap().heap_blocks, None);
    let by_pages = relation_at_rest(&database, &["t"]);
    let bytes = |report: &Relation| report.findings()[0].value;
    assert!(bytes(&told).abs_diff(bytes(&by_pages)) * 50 < bytes(&told), "{told:#} {by_pages:#}");
}

#[test]
fn values_that_an_older_storage_or_target_has_left() {
    let database = prepared("storage");
    database.psql(
        "CREATE TABLE t (id int, v text);
         ALTER TABLE t ALTER v SET STORAGE main;
         INSERT INTO t SELECT i, noise(i, 3000) FROM generate_series(1, 1500) i",
    );
    // what is in the row because of main is another trouble
    let main = findings(&database, "t");
    assert_eq!(codes(&main), ["wide-heap"], "{main:#?}");
    database.psql("ALTER TABLE t ALTER v SET STORAGE external");
    advised(&database, "t", "older-setting");
    // and the other way round: whether a value could be compressed need not be known
    // in the rows they would be a wide heap again
    database.psql("VACUUM FULL t; ALTER TABLE t ALTER v SET STORAGE main");
    let none = findings(&database, "t");
    assert_eq!(codes(&none), [""; 0], "{none:#?}");
    act(&database, "toastctl retoast t --column v --toaster main --compact");
    database.psql("ALTER TABLE t ALTER v SET STORAGE extended");
    advised(&database, "t", "older-setting");
    // an UPDATE of another column leaves the value where it is
    database.psql(
        "CREATE TABLE f (id int, pad text, v text);
         ALTER TABLE f ALTER pad SET STORAGE plain; ALTER TABLE f ALTER v SET STORAGE external;
         INSERT INTO f SELECT i, noise(-i, 600), noise(i, 1500) FROM generate_series(1, 2000) i",
    );
    clean(&database, "f");
    database.psql("UPDATE f SET pad = ''");
    act(&database, "toastctl compact f --files heap");
    advised(&database, "f", "fits-the-row");
}

#[test]
fn values_that_came_while_nothing_was_compressed() {
    let database = prepared("came");
    database.psql(
        "CREATE TABLE t (id int, v text, w text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 4000) || noise(i, 4000), noise(-i, 3000) FROM generate_series(1, 600) i",
    );
    assert_eq!(codes(&findings(&database, "t")), ["no-compression"]);
    database.psql("ALTER TABLE t ALTER v SET STORAGE extended");
    let finding = advised(&database, "t", "older-setting");
    assert_eq!(finding.column.as_deref(), Some("v"));
    assert!(finding.command.starts_with("toastctl retoast public.t --column v "), "{finding}");
    assert!(finding.low > 4_000_000, "{finding}");
    assert!(finding.high >= 4_800_000, "{finding}");
}

#[test]
fn values_stored_external_although_they_compress() {
    let database = prepared("external");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(noise(i, 100), 60) FROM generate_series(1, 1500) i;
         CREATE TABLE little (id int, v text); ALTER TABLE little ALTER v SET STORAGE external;
         INSERT INTO little SELECT i, noise(i, 5000) || repeat(' ', 500) FROM generate_series(1, 1500) i;
         CREATE TABLE chosen (LIKE t INCLUDING ALL); ALTER TABLE chosen ALTER v SET STORAGE external;
         INSERT INTO chosen TABLE t;
         CREATE TABLE sparse (LIKE t INCLUDING ALL); INSERT INTO sparse TABLE t;
         DELETE FROM sparse WHERE id % 3 = 0",
    );
    // the command that converts them compacts the files
    database.psql("VACUUM sparse");
    let two = findings(&database, "sparse");
    assert_eq!(codes(&two), ["no-compression", "free-space"], "{two:#?}");
    assert!(two[1].what.ends_with("; the command for no-compression returns it too"), "{two:#?}");
    assert_eq!(two[1].command, "", "{two:#?}");
    act(&database, &two[0].command);
    clean(&database, "sparse");
    let before = size(&database, "t", "toast");
    let finding = advised(&database, "t", "no-compression");
    assert!(finding.command.starts_with("toastctl retoast public.t --column v "), "{finding}");
    let saved = before - size(&database, "t", "toast");
    assert!(saved > finding.low as f64 * 0.95, "{saved} {finding}");
    // every value left part of a page empty
    assert!(saved < finding.high as f64 * 1.5, "{saved} {finding}");
    // under a fifth would be saved
    clean(&database, "little");
    // a policy has decided about these values
    act(
        &database,
        "toastctl retoast chosen --column v --policy chunk-saving --method pglz --compact",
    );
    clean(&database, "chosen");
}

#[test]
fn values_that_are_compressed_by_themselves() {
    let database = prepared("pictures");
    database.psql(
        "CREATE FUNCTION bytes(seed int, n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS
             $$SELECT decode(noise(seed, n * 2), 'hex')$$;
         CREATE TABLE t (id int, v bytea, part bytea);
         INSERT INTO t SELECT i, '\\xffd8ffe000104a464946'::bytea || bytes(i, 5000),
             CASE WHEN i % 3 = 0 THEN '\\x89504e470d0a1a0a'::bytea ELSE '\\x00' END || bytes(-i, 3000)
         FROM generate_series(1, 600) i",
    );
    let finding = advised(&database, "t", "precompressed");
    assert_eq!(finding.column.as_deref(), Some("v"));
}

#[test]
fn compression_that_saves_nothing() {
    let database = prepared("idle");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION lz4);
         CREATE TABLE mixed (id int, v text COMPRESSION lz4);
         CREATE TABLE good (id int, v text COMPRESSION lz4);
         INSERT INTO t SELECT i, noise(i, 3200) || noise(i, 100) FROM generate_series(1, 1500) i;
         INSERT INTO good SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 1500) i;
         INSERT INTO mixed SELECT * FROM t UNION ALL SELECT * FROM good",
    );
    clean(&database, "good");
    advised(&database, "t", "idle-compression");
    advised(&database, "mixed", "idle-compression");
}

#[test]
fn values_read_far_more_often_than_written_and_the_reverse() {
    let database = prepared("used");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 1000) i;
         CREATE TABLE rows_alone (LIKE t INCLUDING ALL); INSERT INTO rows_alone TABLE t;
         CREATE TABLE w (LIKE t INCLUDING ALL); INSERT INTO w TABLE t",
    );
    let read = |table: &str, what: &str, times: u32| {
        database.psql(&format!(
            "SET enable_seqscan = off;
             SELECT sum((SELECT {what} FROM {table} WHERE id = i))
             FROM generate_series(1, {times}) n, generate_series(1, 1000) i;
             SELECT pg_stat_force_next_flush()"
        ));
    };
    let has = |table: &str, code: &str| codes(&findings(&database, table)).contains(&code);
    // as often as that their rows, not their values
    read("rows_alone", "id", 15);
    read("t", "length(v)", 4);
    // own reads, of rows and values, are nobody's
    for _ in 0..2 {
        clean(&database, "t");
        act(&database, "toastctl value t --reassemble");
        act(&database, "toastctl inspect t --explain");
        act(&database, "toastctl advise-threshold t");
    }
    clean(&database, "t");
    clean(&database, "rows_alone");
    read("t", "length(v)", 15);
    if database.server().major() < 15 {
        // before PostgreSQL 15 a database's statistics are said to be reset when they begin: they are too young
        assert!(!has("t", "read-mostly"));
        return;
    }
    let text = inspect_at_rest(&database, &["t"]).ok();
    assert!(text.contains("read-mostly v: at least "), "{text}");
    let finding = advised(&database, "t", "read-mostly");
    assert_eq!(finding.unit, Unit::ReadsPerWrite);
    let ratio = finding.low;
    assert!((10_000..=19_000).contains(&ratio), "{finding}");
    // written again and again, and hardly ever read
    for n in 0..11 {
        database
            .psql(&format!("UPDATE w SET v = {n} || r.v FROM rows_alone AS r WHERE r.id = w.id"));
    }
    database.psql("SELECT pg_stat_force_next_flush()");
    let finding =
        findings(&database, "w").into_iter().find(|one| one.code.name() == "write-mostly");
    let finding = finding.unwrap();
    assert_eq!(finding.unit, Unit::WritesPerRead);
    if !finding.command.is_empty() {
        act(&database, &finding.command);
        settled(&database, "w");
    }
    // statistics that do not know the table
    read("rows_alone", "length(v)", 15);
    assert!(has("rows_alone", "read-mostly"));
    database.psql("SELECT pg_stat_reset()");
    read("rows_alone", "length(v)", 15);
    assert!(!has("rows_alone", "read-mostly"));
}

#[test]
fn main_in_long_rows() {
    let database = prepared("wide");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE main;
         CREATE TABLE short (LIKE t INCLUDING STORAGE);
         INSERT INTO t SELECT i, noise(i, 5000) FROM generate_series(1, 2000) i;
         INSERT INTO short SELECT i, noise(i, 1000) FROM generate_series(1, 5000) i",
    );
    clean(&database, "short");
    advised(&database, "t", "wide-heap");
}

#[test]
fn dead_rows_and_then_free_space() {
    let database = prepared("dead");
    database.psql(
        "CREATE TABLE t (id int, v text);
         INSERT INTO t SELECT i, noise(i, 200) FROM generate_series(1, 20000) i;
         CREATE TABLE o (id int, v text); ALTER TABLE o ALTER v SET STORAGE external;
         INSERT INTO o SELECT i, noise(i, 5500) FROM generate_series(1, 1000) i",
    );
    for (table, file) in [("t", "heap"), ("o", "toast")] {
        clean(&database, table);
        database.psql(&format!("DELETE FROM {table} WHERE id % 5 = 0"));
        clean(&database, table);
        database.psql(&format!("DELETE FROM {table} WHERE id % 2 = 0"));
        // VACUUM makes room for new rows; that there is more of it than they need is another question
        let found = findings(&database, table);
        assert_eq!(codes(&found), ["dead-rows"], "{found:#?}");
        let dead = &found[0];
        assert_eq!(dead.object.as_deref(), Some(file));
        assert_eq!(dead.command, format!("VACUUM \"public\".\"{table}\";"));
        act(&database, &dead.command);
        let before = size(&database, table, file);
        let free = mended(&database, table, "free-space");
        assert_eq!(free.command, format!("toastctl compact public.{table} --files {file}"));
        // as much as was foretold, and hardly more
        let given_back = before - size(&database, table, file);
        let (low, high) = (free.low as f64, free.high as f64);
        assert!(given_back >= low * 0.9 && given_back <= high * 1.1, "{given_back} {free}");
    }
}

/// Too little is free to be told, and too little dead, but not of both together.
#[test]
fn free_space_that_vacuum_would_make_so() {
    let database = prepared("both");
    database.psql(
        "CREATE TABLE t (id int, v text);
         INSERT INTO t SELECT i, noise(i, 200) FROM generate_series(1, 20000) i;
         DELETE FROM t WHERE id % 5 = 0",
    );
    database.psql("VACUUM t");
    clean(&database, "t");
    database.psql("DELETE FROM t WHERE id % 20 IN (1, 2, 3)");
    let before = size(&database, "t", "heap");
    let free = mended(&database, "t", "free-space");
    assert_eq!(free.what, "free in the table's file after VACUUM has removed dead rows");
    let given_back = before - size(&database, "t", "heap");
    let (low, high) = (free.low as f64, free.high as f64);
    assert!(given_back >= low * 0.9 && given_back <= high * 1.1, "{given_back} {free}");
    clean(&database, "t");
}

/// Without pages of a TOAST relation, the sizes of its values show what it holds.
#[test]
fn free_space_of_a_toast_relation_is_probable_without_its_pages() {
    let database = prepared("probable");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 5500) FROM generate_series(1, 1500) i",
    );
    let without = [["t", "--source", "functions"], ["t", "--sample", "30 blocks"]];
    let found = |more: [&str; 3]| relation_at_rest(&database, &more).findings().to_vec();
    for more in without {
        assert_eq!(codes(&found(more)), [""; 0], "{more:?}");
    }
    database.psql("DELETE FROM t WHERE id % 10 <> 0");
    database.psql("VACUUM t");
    let before = size(&database, "t", "toast");
    let told: Vec<Printed<Finding>> = without
        .into_iter()
        .map(|more| {
            let mut found = found(more);
            assert_eq!(codes(&found), ["free-space"], "{more:?}");
            found.remove(0)
        })
        .collect();
    for free in &told {
        assert_eq!(
            free.what,
            "probably free in the TOAST relation's file (estimated from the table's rows)"
        );
        assert_eq!(free.object.as_deref(), Some("toast"));
    }
    let more = ["--source", "functions", "--format", "json"];
    let overview: Printed<Overview> = inspect_at_rest(&database, &more).exits(0).report();
    assert_eq!(codes(&overview.findings), ["free-space"], "{overview:#}");
    // pages show it for certain
    let certain = findings(&database, "t");
    assert_eq!(codes(&certain), ["free-space"]);
    assert_eq!(certain[0].what, "free in the TOAST relation's file");
    // and so does a sample of all blocks
    let all = found(["t", "--sample", "100%"]);
    assert_eq!(codes(&all), ["free-space"]);
    assert_eq!(all[0].what, "free in the TOAST relation's file");
    act(&database, &told[0].command);
    for more in without {
        assert_eq!(codes(&found(more)), [""; 0], "{more:?}");
    }
    let given_back = before - size(&database, "t", "toast");
    for free in told {
        let (low, high) = (free.low as f64, free.high as f64);
        assert!(given_back >= low * 0.9 && given_back <= high * 1.1, "{given_back} {free}");
    }
    // what dropped columns or hidden rows hold is there too
    database.psql(
        "ALTER TABLE t ADD w text; UPDATE t SET w = noise(id, 7000), v = noise(-id, 7000);
         ALTER TABLE t ALTER w SET STORAGE external; ALTER TABLE t DROP w",
    );
    database.psql("VACUUM t");
    assert_eq!(codes(&found(["t", "--source", "functions"])), [""; 0]);
}

/// No test has room for a quarter of 2^32 values: toastctl counts with fewer IDs.
#[test]
fn value_ids_that_run_out() {
    let database = prepared("ids");
    database.psql(
        "CREATE TABLE t (id int, v text);
         INSERT INTO t SELECT i, noise(i, 2500) FROM generate_series(1, 1500) i;
         CREATE TABLE few (id int, v text);
         INSERT INTO few SELECT i, noise(i, 2500) FROM generate_series(1, 900) i",
    );
    let found = |table: &str| {
        let mut command = toastctl();
        command.args(["inspect", "-d", &database.url(), table, "--format", "json"]);
        let run = run(command.env("TOASTCTL_TEST_VALUE_IDS", "4000")).exits(0);
        database.rests();
        run.relation().findings().to_vec()
    };
    assert_eq!(codes(&found("few")), [""; 0]);
    clean(&database, "t");
    let many = found("t");
    assert_eq!(codes(&many), ["value-ids"], "{many:#?}");
    assert_eq!((many[0].value, many[0].low, many[0].high), (1500, 1500, 1500));
    let what = &many[0].what;
    assert!(
        what.starts_with("in the TOAST relation, 38 % of those that it has IDs for; "),
        "{what}"
    );
    assert!(what.contains(" are assigned a day"), "{what}");
    assert!(what.contains("most of these values would stay in their rows"), "{what}");
    act(&database, &many[0].command);
    assert_eq!(codes(&found("t")), [""; 0]);
    assert_eq!(size(&database, "t", "toast"), 0.0);
    // values that no row has room for
    database.psql(
        "CREATE TABLE long (id int, v text);
         INSERT INTO long SELECT i, noise(i, 9000) FROM generate_series(1, 1500) i",
    );
    let long = found("long");
    assert_eq!(codes(&long), ["value-ids"], "{long:#?}");
    assert!(long[0].what.contains("; no setting keeps them in their rows, so only partitions"));
    assert_eq!(long[0].command, "toastctl advise-threshold public.long");
}

fn size(database: &Database<'_>, table: &str, file: &str) -> f64 {
    let of = if file == "heap" { "oid" } else { "reltoastrelid" };
    let sql = format!("SELECT pg_relation_size({of}) FROM pg_class WHERE relname = '{table}'");
    database.psql(&sql).parse().unwrap()
}

#[test]
fn bloated_indexes() {
    let database = prepared("index");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text) WITH (fillfactor = 100);
         INSERT INTO t SELECT i, 'v' FROM generate_series(1, 150000) i",
    );
    clean(&database, "t");
    database.psql("DELETE FROM t WHERE id % 3 <> 0; VACUUM t");
    act(&database, "toastctl compact t --files heap");
    let finding = mended(&database, "t", "bloated-index");
    assert_eq!(finding.object.as_deref(), Some("public.t_pkey"));
    assert_eq!(finding.command, "toastctl reindex public.t");
    clean(&database, "t");
}

#[test]
fn values_of_dropped_columns() {
    let database = prepared("dropped");
    database.psql(
        "CREATE TABLE t (id int, gone text, v text);
         INSERT INTO t SELECT i, noise(i, 500), 'v' FROM generate_series(1, 4000) i",
    );
    clean(&database, "t");
    database.psql("ALTER TABLE t DROP gone");
    mended(&database, "t", "dropped-column");
    clean(&database, "t");
    // out of line they count too
    database.psql(
        "CREATE TABLE o (id int, gone text, v text);
         INSERT INTO o SELECT i, noise(i, 5000), 'v' FROM generate_series(1, 1000) i;
         ALTER TABLE o DROP gone",
    );
    mended(&database, "o", "dropped-column");
    assert_eq!(size(&database, "o", "toast"), 0.0);
}

#[test]
fn storage_plain_near_its_limit() {
    let database = prepared("plain");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE plain;
         INSERT INTO t SELECT i, noise(i, 3000) FROM generate_series(1, 100) i",
    );
    clean(&database, "t");
    database.psql("INSERT INTO t VALUES (101, noise(101, 7000))");
    let longer = "UPDATE t SET v = v || v WHERE id = 101";
    let refused = database.try_psql(longer);
    assert!(refused.stderr.contains("row is too big"), "{}", refused.stderr);
    let finding = mended(&database, "t", "plain-limit");
    assert_eq!(finding.severity, Severity::High);
    database.psql(longer);
    clean(&database, "t");
}

#[test]
fn settings_that_do_nothing() {
    let database = prepared("unused");
    database.psql(
        "CREATE TABLE m (id int, v text COMPRESSION lz4); ALTER TABLE m ALTER v SET STORAGE external;
         INSERT INTO m SELECT i, repeat(noise(i, 500), 10) FROM generate_series(1, 400) i;
         CREATE TABLE e (id int, v text COMPRESSION lz4); ALTER TABLE e ALTER v SET STORAGE external;
         INSERT INTO e SELECT i, noise(i, 5000) FROM generate_series(1, 400) i;
         CREATE TABLE p (id int, v text COMPRESSION lz4); ALTER TABLE p ALTER v SET STORAGE plain;
         CREATE TABLE d (id int, v text) WITH (toast_tuple_target = 2032);
         CREATE TABLE n (id int, n numeric) WITH (toast_tuple_target = 4080);
         CREATE TABLE i (id int, n int) WITH (toast_tuple_target = 4080);
         CREATE TABLE s (id int, v text) WITH (toast_tuple_target = 256);
         INSERT INTO s SELECT i, noise(i, 1000) FROM generate_series(1, 2000) i;
         CREATE TABLE \"Has Effect\" (id int, v text COMPRESSION lz4) WITH (toast_tuple_target = 256);
         INSERT INTO \"Has Effect\" SELECT i, noise(i, 3000) FROM generate_series(1, 2000) i",
    );
    mended(&database, "m", "no-compression");
    for table in ["p", "d", "i", "s"] {
        mended(&database, table, "unused-setting");
        clean(&database, table);
    }
    clean(&database, "n");
    // nothing is lost by what compresses nothing here
    clean(&database, "e");
    clean(&database, "\"Has Effect\"");
    // the very rows do not mind the target
    let before = database.psql("SELECT sum(pg_column_size(v)) FROM s");
    database.psql(
        "ALTER TABLE s SET (toast_tuple_target = 256); UPDATE s SET v = v || ''; VACUUM FULL s",
    );
    assert_eq!(database.psql("SELECT sum(pg_column_size(v)) FROM s"), before);
}

#[test]
fn names_are_quoted_in_commands() {
    let database = prepared("quoted");
    database.psql(
        "CREATE SCHEMA \"Odd Schema\";
         CREATE TABLE \"Odd Schema\".\"it's\" (id int, \"a \"\"b\"\"\" text COMPRESSION pglz);
         INSERT INTO \"Odd Schema\".\"it's\" SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 900) i;
         ALTER TABLE \"Odd Schema\".\"it's\" ALTER \"a \"\"b\"\"\" SET COMPRESSION lz4",
    );
    let table = "\"Odd Schema\".\"it's\"";
    advised(&database, table, "older-setting");
    // without pages the command that asks for advice stands there
    database.psql(
        "ALTER TABLE \"Odd Schema\".\"it's\" ALTER \"a \"\"b\"\"\" SET COMPRESSION pglz;
         UPDATE \"Odd Schema\".\"it's\" SET \"a \"\"b\"\"\" = \"a \"\"b\"\"\" || 'x';
         ALTER TABLE \"Odd Schema\".\"it's\" ALTER \"a \"\"b\"\"\" SET COMPRESSION lz4",
    );
    let told = relation_at_rest(&database, &[table, "--source", "functions"]);
    let asks = told.findings().iter().find(|one| one.code.name() == "older-setting").unwrap();
    assert!(asks.command.starts_with("toastctl advise-threshold "), "{asks}");
    act(&database, &asks.command);
}

/// Rows are looked at in a sample of blocks; how full the files are, and of what, is told of all.
#[test]
fn large_tables_are_looked_at_in_part() {
    let database = prepared("large");
    database.psql(
        "CREATE TABLE t (id int, v text);
         INSERT INTO t SELECT i, noise(i, 400) FROM generate_series(1, 60000) i;
         DELETE FROM t WHERE id % 2 = 0",
    );
    let report = relation_at_rest(&database, &["t"]);
    assert_eq!(report.looked_at.as_ref().unwrap().heap_blocks_read, Some(256), "{report:#}");
    let found = report.findings();
    assert_eq!(codes(found), ["dead-rows"], "{found:#?}");
    let truth = report.tuples.dead.unwrap().estimate * 440;
    let told = [found[0].value, found[0].low, found[0].high];
    assert!(told[0] == told[1] && told[0] == told[2], "{found:#?}");
    assert!((told[0] * 95 / 100..=told[0] * 105 / 100).contains(&truth), "{truth} {found:#?}");
    let text = inspect_at_rest(&database, &["t"]).ok();
    assert!(
        text.contains("dead-rows: ") && text.contains("    VACUUM \"public\".\"t\";"),
        "{text}"
    );
}

#[test]
fn a_healthy_table_is_all_clear_and_it_is_said_what_was_looked_at() {
    let database = prepared("healthy");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, noise(i, 3000) FROM generate_series(1, 100) i;
         CREATE MATERIALIZED VIEW view AS SELECT * FROM t; VACUUM ANALYZE t",
    );
    let shown = |more: &[&str]| {
        let mut command = toastctl();
        command.args(["inspect", "-d", &database.url()]).args(more).env("COLUMNS", "80");
        let text = run(&mut command).ok();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text
    };
    assert!(
        shown(&["t"]).contains(
            "\n  findings: none (examined: 1 block, 50 blocks of the TOAST relation, 2 indexes,\n    settings)\n"
        ),
        "{}",
        shown(&["t"])
    );
    assert!(
        shown(&["t", "--source", "functions"])
            .contains("  findings: not known without pages (examined: 2 indexes, settings; "),
        "{}",
        shown(&["t", "--source", "functions"])
    );
    // what a sample was asked of is what is looked at
    let text = shown(&["t", "--sample", "1 block"]);
    assert!(text.contains("\n  findings: none (examined: 1 block, settings)\n"), "{text}");
    for other in ["view", "pg_catalog.pg_proc"] {
        assert_eq!(relation_at_rest(&database, &[other]).findings, None, "{other}");
    }
}

#[test]
fn the_findings_of_all_tables_are_ranked() {
    let database = prepared("ranked");
    database.psql(
        "CREATE TABLE dead (id int, v text);
         INSERT INTO dead SELECT i, noise(i, 200) FROM generate_series(1, 20000) i;
         DELETE FROM dead WHERE id % 2 = 0;
         CREATE TABLE worst (id int, v text); ALTER TABLE worst ALTER v SET STORAGE plain;
         INSERT INTO worst SELECT i, noise(i, 7000) FROM generate_series(1, 200) i;
         CREATE TABLE unused (id int, v text) WITH (toast_tuple_target = 2032);
         INSERT INTO unused SELECT i, noise(i, 5000) FROM generate_series(1, 400) i;
         CREATE TABLE small (id int, v text COMPRESSION lz4); ALTER TABLE small ALTER v SET STORAGE external;
         CREATE TABLE twice (id int, v text); ALTER TABLE twice ALTER v SET STORAGE external;
         INSERT INTO twice SELECT i, noise(i, 3000) || noise(i, 3000) FROM generate_series(1, 2000) i",
    );
    let report: Printed<Overview> =
        inspect_at_rest(&database, &["--format", "json"]).exits(0).report();
    let found = &report.findings;
    let told = |finding: &Printed<Finding>| format!("{} {}", finding.code.name(), finding.relation);
    let expected = [
        "plain-limit public.worst",
        "no-compression public.twice",
        "dead-rows public.dead",
        "unused-setting public.unused",
    ];
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected, "{report:#}");
    assert_eq!(report.totals.looked_at, 4);
    let shown = |more: &[&str]| {
        let mut command = toastctl();
        command.args(["inspect", "-d", &database.url()]).args(more).env("COLUMNS", "80");
        run(&mut command).ok()
    };
    let text = shown(&[]);
    assert!(
        text.contains(
            "4 findings, 3 shown (--limit 4 shows all) (toastctl help findings):\n  plain-limit worst.v: 200 rows: "
        ) && text.contains("    ALTER TABLE \"public\".\"worst\" ALTER COLUMN \"v\" SET STORAGE EXTENDED;\n"),
        "{text}"
    );
    assert!(
        !text.contains("unused-setting") && shown(&["--limit", "20"]).contains("unused-setting")
    );
    for finding in found {
        act(&database, &finding.command);
    }
    act(&database, "toastctl compact dead");
    act(&database, "toastctl retoast worst --column v --toaster extended --compact");
    // the overview has the choice of advise-threshold
    assert!(
        found[1].command.starts_with("toastctl retoast public.twice --column v "),
        "{found:#?}"
    );
    let text = shown(&[]);
    assert!(
        text.starts_with(
            "Findings: none in 4 tables of 1 MB or more; toastctl check looks for damage.\n"
        ),
        "{text}"
    );
}

/// The overview reads on until time is up: what was looked at before is told all the same.
#[test]
fn time_that_is_up_costs_no_findings_about_rows() {
    let database = prepared("hurried");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, noise(i, 100 + i % 700) FROM generate_series(1, 60000) i;
         DELETE FROM t WHERE id % 2 = 0",
    );
    let more = ["--max-time", "1s", "--format", "json"];
    let report: Printed<Overview> = inspect_at_rest(&database, &more).exits(0).report();
    assert_eq!(codes(&report.findings), ["dead-rows"], "{report:#}");
}

#[test]
fn on_every_major() {
    for major in server::other_majors() {
        let server = Server::start(&Options::major(major));
        let database = server.with_pageinspect("findings");
        database.psql(NOISE);
        database.psql(
            "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz, gone text);
             INSERT INTO t SELECT i, noise(i, 3000) || noise(i, 3000), noise(-i, 800) FROM generate_series(1, 2000) i",
        );
        clean(&database, "t");
        database.psql("ALTER TABLE t DROP gone");
        mended(&database, "t", "dropped-column");
        database.psql("DELETE FROM t WHERE id % 2 = 0");
        let found = findings(&database, "t");
        assert_eq!(codes(&found), ["dead-rows"], "{found:#?}");
        act(&database, &found[0].command);
        mended(&database, "t", "free-space");
    }
}

/// Files tell what takes no server, in the words of a server's report; saved pages too.
#[test]
fn files_have_findings_too() {
    let database = prepared("files");
    database.psql(
        "CREATE TABLE dead (id int, v text); ALTER TABLE dead ALTER v SET STORAGE external;
         INSERT INTO dead SELECT i, noise(i, 5500) FROM generate_series(1, 600) i;
         CREATE TABLE idle (id int, v text COMPRESSION lz4);
         INSERT INTO idle SELECT i, noise(i, 3200) || noise(i, 100) FROM generate_series(1, 1500) i;
         CREATE TABLE short_ends (id int, v text);
         INSERT INTO short_ends SELECT i, noise(i, 4000) FROM generate_series(1, 1500) i",
    );
    let relation = |table: &str, more: &[&str]| {
        database.psql("CHECKPOINT");
        let of = format!("FROM pg_class WHERE oid = '{table}'::regclass");
        let path = |oid: &str| {
            let path = database.psql(&format!("SELECT pg_relation_filepath({oid}) {of}"));
            server::shared().data_dir().join(path)
        };
        run(toastctl()
            .args(["inspect", "--columns", "id int, v text", "--relation-file"])
            .arg(path("oid"))
            .arg("--toast-file")
            .arg(path("reltoastrelid"))
            .arg("--xact")
            .arg(server::shared().data_dir().join("pg_xact"))
            .args(more))
    };
    let found = |table: &str| {
        relation(table, &["--format", "json"]).exits(0).relation().findings().to_vec()
    };
    let act_on = |table: &str, finding: &Finding| {
        act(&database, &finding.command.replacen("TABLE", table, 1));
    };
    assert_eq!(codes(&found("dead")), [""; 0]);
    database.psql("DELETE FROM dead WHERE id % 2 = 0");
    let dead = found("dead");
    assert_eq!(codes(&dead), ["dead-rows"], "{dead:#?}");
    assert_eq!(
        (dead[0].object.as_deref(), dead[0].command.as_str()),
        (Some("toast"), "VACUUM TABLE;")
    );
    act_on("dead", &dead[0]);
    let free = found("dead");
    assert_eq!(codes(&free), ["free-space"], "{free:#?}");
    assert_eq!(free[0].command, "toastctl compact TABLE --files toast");
    act_on("dead", &free[0]);
    let text = relation("dead", &[]).ok();
    let clear = text.lines().find(|line| line.contains("findings: none (examined: ")).unwrap();
    assert!(clear.contains(" of the TOAST relation)"), "{text}");
    let idle = found("idle");
    assert_eq!(codes(&idle), ["idle-compression"], "{idle:#?}");
    assert_eq!(idle[0].command, "toastctl advise-threshold TABLE --column v");
    assert_eq!(codes(&found("short_ends")), ["short-last-chunk"]);
    // pages that somebody has saved
    database.psql(
        "CREATE TABLE kept AS SELECT i, noise(i, 200) AS v FROM generate_series(1, 12000) i;
         DELETE FROM kept WHERE i % 2 = 0",
    );
    database.psql("VACUUM (TRUNCATE off) kept");
    let pages = database.psql(
        "SELECT get_raw_page('kept', b::int) FROM generate_series(0, pg_relation_size('kept') / 8192 - 1) b",
    );
    let saved = std::env::temp_dir().join(format!("toastctl-pages-{}.txt", std::process::id()));
    std::fs::write(&saved, format!("get_raw_page\n{pages}\n({} rows)\n", pages.lines().count()))
        .unwrap();
    let report = run(toastctl()
        .args(["inspect", "--columns", "i int, v text", "--pageinspect"])
        .arg(&saved))
    .ok();
    std::fs::remove_file(&saved).unwrap();
    assert!(
        report.contains("free-space: ")
            && report.contains("    toastctl compact TABLE --files heap\n"),
        "{report}"
    );
}

/// Rows of heap_page_items tell of space what the pages do, if all of them are there.
#[test]
fn saved_rows_of_whole_pages_have_findings_too() {
    let database = prepared("items");
    database
        .psql("CREATE TABLE kept AS SELECT i, noise(i, 200) AS v FROM generate_series(1, 12000) i");
    // from 16 on the server extends files by many pages, and heap_page_items tells of none that is new
    database.psql("VACUUM FULL kept");
    database.psql("DELETE FROM kept WHERE i % 2 = 0");
    database.psql("VACUUM (TRUNCATE off) kept");
    let dir = tempfile::tempdir().unwrap();
    let saved = |sql: &str| {
        let path = dir.path().join("saved.txt");
        let copy = format!("COPY ({sql}) TO STDOUT (FORMAT csv, HEADER)");
        std::fs::write(&path, database.psql(&copy)).unwrap();
        let run = run(toastctl()
            .args(["inspect", "--format", "json", "--columns", "i int, v text", "--pageinspect"])
            .arg(&path));
        run.exits(0).relation()
    };
    let blocks = "generate_series(0, pg_relation_size('kept') / 8192 - 1) AS b";
    let page = "get_raw_page('kept', b::int)";
    let pages = saved(&format!("SELECT {page} FROM {blocks}"));
    let items = format!("SELECT i.* FROM {blocks}, heap_page_items({page}) AS i");
    for sql in [&items, &items.replace("i.*", "b AS blkno, i.*")] {
        let report = saved(sql);
        let found = report.findings();
        assert_eq!(codes(found), ["free-space"], "{report:#}");
        let same = |of: &Finding| (of.code, of.value, of.low, of.high, of.unit, of.command.clone());
        assert_eq!(same(&found[0]), same(&pages.findings()[0]));
        assert_eq!(report.looked_at, pages.looked_at);
    }
    // what was left out may take the space
    let some = saved(&format!("{items} WHERE lp_flags = 1"));
    assert_eq!(some.findings, None);
    let few = saved(&items.replace("/ 8192 - 1", "/ 8192 / 10"));
    assert_eq!(few.findings, None);
}
