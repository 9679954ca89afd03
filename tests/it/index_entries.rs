//! Values that fit an index only because they are compressed: no verb chooses, or advises, a setting with which the
//! index would refuse them.

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::retoast::Outcome;
use crate::support::retoast::{Running, brake, command, done, refused, release, retoast};
use crate::support::server::{self, Database, with_pageinspect};
use crate::support::verbs::{advised, relation};

/// A text that pglz compresses to about a fifth, and lz4 to more than two fifths.
pub(crate) const WORDS: &str = "CREATE FUNCTION words(n int, seed int) RETURNS text LANGUAGE sql AS
    $$SELECT left(string_agg((ARRAY['the','quick','system','returns','large','values','from','table','request',
        'error','response','payload','message','content','assistant','user','token','stream'])
        [1 + (hashint4(seed * 1000 + i) & 2147483647) % 18], ' '), n) FROM generate_series(1, n / 5 + 1) i$$";

/// 40 rows whose entries in a btree on the text have about 1,770 bytes.
const PAGES: &str = "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz, tags text[] COMPRESSION pglz);
    INSERT INTO t SELECT i, words(9000, i), ARRAY['x', words(9000, i)] FROM generate_series(1, 40) i;";

const SETTINGS: &str =
    "SELECT string_agg(attstorage::text || attcompression::text, ' ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = 't'::regclass AND attname IN ('v', 'tags')";

/// A database with the table and one index.
fn indexed(prefix: &str, index: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    database.psql(WORDS);
    database.psql(PAGES);
    database.psql(index);
    database
}

/// Values as they are stored are inserted as before.
fn inserts(database: &Database<'_>) {
    database.psql("INSERT INTO t SELECT id + 10000, v, tags FROM t WHERE id <= 5; DELETE FROM t WHERE id > 10000");
}

/// The run refuses this, and changes nothing.
#[track_caller]
fn refuses(database: &Database<'_>, arguments: &[&str], message: &str) -> Run {
    let before = database.psql(SETTINGS);
    let size = "SELECT pg_total_relation_size('t')";
    let bytes = database.psql(size);
    let run = retoast(database, arguments);
    refused(&run, 1, message);
    assert!(run.stderr.contains("nothing was changed"), "{}", run.stderr);
    assert!(
        run.stderr.contains("HINT:  Later INSERTs or UPDATEs of rows with such values"),
        "{}",
        run.stderr
    );
    assert_eq!((database.psql(SETTINGS), database.psql(size)), (before, bytes));
    inserts(database);
    run
}

#[test]
fn a_btree_that_needs_pglz_refuses_other_toasters() {
    let database = indexed("entries", "CREATE INDEX by_v ON t (v)");
    for source in ["auto", "functions"] {
        for more in [&["--dry-run"][..], &[]] {
            let source = ["--set", &format!("source={source}")];
            let arguments = [&["t", "-c", "v", "--toaster", "lz4"], &source[..], more].concat();
            refuses(
                &database,
                &arguments,
                "40 examined rows do not fit index public.by_v with lz4, the first at (0,1)",
            );
            let arguments =
                [&["t", "-c", "v", "--toaster", "external"], &source[..], more].concat();
            refuses(&database, &arguments, "index row size 9016 exceeds btree maximum 2704");
        }
    }
    let policy = ["t", "-c", "v", "--policy", "chunk-saving", "--method", "lz4"];
    refuses(&database, &policy, "not fit index public.by_v");
    // what does not change the entries is allowed
    done(&retoast(&database, &["t", "-c", "v", "--toaster", "main=pglz"]));
    done(&retoast(&database, &["t", "-c", "tags", "--toaster", "lz4"]));
    inserts(&database);
}

/// The settings from which, and to which, and values whose entries are about as large as can be then.
const SIZES: [(&str, &str, &str, std::ops::Range<u32>, usize); 3] = [
    ("pglz", "external", "words(%, 7)", 2680..2700, 2),
    ("pglz", "lz4", "words(%, 7)", 5400..7000, 160),
    (
        "lz4",
        "pglz",
        "repeat((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 37) i), %)",
        70..130,
        6,
    ),
];

#[test]
fn the_size_is_that_of_the_servers_message() {
    server::each_server(|server, _| {
        let database = server.with_pageinspect("entrysize");
        database.psql(WORDS);
        let has_lz4 = database.try_psql("CREATE TABLE l (v text COMPRESSION lz4)").code == Some(0);
        for (from, to, value, lengths, step) in SIZES {
            if !has_lz4 && to != "external" {
                continue;
            }
            let alter = match to {
                "external" => "SET STORAGE external".to_owned(),
                method => format!("SET COMPRESSION {method}"),
            };
            database.psql(&format!(
                "CREATE TABLE s (id int, v text COMPRESSION {from}); CREATE INDEX by_v ON s (v, id)"
            ));
            let (mut fit, mut too_large) = (0, 0);
            for length in lengths.step_by(step) {
                let insert = format!(
                    "INSERT INTO s VALUES (1, {})",
                    value.replace('%', &length.to_string())
                );
                database.psql(&format!("TRUNCATE s; {insert}"));
                let said = retoast(&database, &["s", "-c", "v", "--toaster", to, "--dry-run"]);
                let tried = database
                    .try_psql(&format!("BEGIN; ALTER TABLE s ALTER v {alter}; {insert}; ROLLBACK"));
                if tried.stderr.is_empty() {
                    assert_eq!(said.code, Some(0), "{length}: {}", said.stderr);
                    fit += 1;
                } else {
                    let size = tried
                        .stderr
                        .split("index row size ")
                        .nth(1)
                        .and_then(|rest| rest.split(' ').next());
                    let size = size.unwrap_or_else(|| panic!("{}", tried.stderr));
                    refused(&said, 1, &format!("index row size {size} exceeds btree maximum 2704"));
                    too_large += 1;
                }
            }
            assert!(fit > 2 && too_large > 2, "{from} {to}: {fit} {too_large}");
            database.psql("DROP TABLE s");
        }
    });
}

#[test]
fn all_values_of_an_entry_count() {
    let database = indexed("entrycolumns", "CREATE INDEX by_id ON t (id) INCLUDE (v)");
    let lz4 = ["t", "-c", "v", "--toaster", "lz4"];
    refuses(&database, &lz4, "not fit index public.by_id with lz4");
    // two columns that fit only together
    database.psql(
        "DROP INDEX by_id; ALTER TABLE t ADD w text COMPRESSION pglz;
         UPDATE t SET v = words(5000, id), w = words(5000, id + 500); CREATE INDEX by_both ON t (v, w)",
    );
    refuses(&database, &lz4, "not fit index public.by_both with lz4");
    database.psql("DROP INDEX by_both; CREATE INDEX by_one ON t (v)");
    done(&retoast(&database, &lz4));
    inserts(&database);
}

#[test]
fn elements_of_arrays_and_keys_of_gin_count() {
    let database = indexed("entrygin", "CREATE INDEX by_tag ON t USING gin (tags)");
    let tags = |toaster| ["t", "-c", "tags", "--toaster", toaster];
    refuses(&database, &tags("lz4"), "not fit index public.by_tag with lz4");
    refuses(&database, &tags("external"), "index row size 9016 exceeds gin maximum 2712");
    // short ones fit, however long the array is
    database.psql(
        "UPDATE t SET tags = ARRAY(SELECT left(md5(i::text), 8) FROM generate_series(1, 2000) i)",
    );
    done(&retoast(&database, &tags("external")));
    database.psql(
        "DROP INDEX by_tag; CREATE EXTENSION btree_gin; CREATE INDEX by_v ON t USING gin (v)",
    );
    refuses(&database, &["t", "-c", "v", "--toaster", "lz4"], "not fit index public.by_v with lz4");
    // a btree has the whole array
    database.psql(
        "TRUNCATE t; ALTER TABLE t ALTER tags SET STORAGE extended;
         INSERT INTO t SELECT i, words(9000, i), ARRAY[words(9000, i)] FROM generate_series(1, 40) i;
         CREATE INDEX by_tags ON t (tags); CREATE INDEX by_tag ON t USING gin (tags)",
    );
    refuses(&database, &tags("lz4"), "not fit index public.by_tags with lz4");
}

#[test]
fn indexes_that_do_not_follow_the_column_are_no_reason() {
    let indexes = [
        "CREATE INDEX ON t USING hash (v)",
        "CREATE INDEX ON t (lower(v))",
        "CREATE INDEX ON t ((v || ''))",
        "CREATE INDEX ON t (md5(v))",
        "CREATE INDEX ON t USING spgist (v)",
        "CREATE INDEX ON t (v) WHERE length(v) < 2000",
        "CREATE EXTENSION IF NOT EXISTS pg_trgm; CREATE INDEX ON t USING gist (v gist_trgm_ops)",
        "CREATE INDEX ON t USING gin (to_tsvector('simple', v))",
    ];
    for index in indexes {
        let database = indexed("entrynone", index);
        for toaster in ["lz4", "external"] {
            done(&retoast(&database, &["t", "-c", "v", "--toaster", toaster]));
            inserts(&database);
        }
    }
}

#[test]
fn a_run_that_meets_such_a_row_late_puts_the_settings_back() {
    let database = indexed("entrylate", "CREATE INDEX by_v ON t (v)");
    database.psql("DELETE FROM t WHERE id > 30; UPDATE t SET v = repeat(md5(id::text), 100)");
    let arguments = ["t", "-c", "v", "--toaster", "lz4"];
    // inserted after the examination, and before the settings are changed
    let running =
        Running::start(&mut command(&database, &[&arguments[..], &brake(&database)].concat()));
    running.says("--throttle-query");
    database.psql("INSERT INTO t SELECT i, words(9000, i), NULL FROM generate_series(41, 60) i");
    release(&database);
    let run = running.end();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let table = run.table();
    assert_eq!((table.outcome, table.undone), (Outcome::Failed, true), "{table}");
    assert!(
        run.stderr.contains("exceeds btree version 4 maximum 2704 for index \"by_v\""),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("Rows that were re-toasted before stay as they are"),
        "{}",
        run.stderr
    );
    assert_eq!(table.skipped.len(), 1, "{table}");
    assert_eq!(database.psql(SETTINGS), "xp xp");
    inserts(&database);
    database.psql("INSERT INTO t VALUES (99, words(9000, 99), NULL)");
    let stored = database.psql("SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'");
    assert_eq!(stored, table.rows_stored.to_string(), "{table}");
}

/// The bounds of a page below the root are two values, and the root has room for two of them.
#[test]
fn entries_of_gist_are_two_values() {
    let database =
        indexed("entrygist", "CREATE EXTENSION btree_gist; CREATE INDEX by_v ON t USING gist (v)");
    let arguments = ["t", "-c", "v", "--toaster", "lz4"];
    refuses(&database, &arguments, "exceeds gist maximum 4072: nothing was changed");
    database.psql("INSERT INTO t SELECT i, words(9000, i) FROM generate_series(1001, 1030) AS i");
    // the largest values that it has room for, and those that are a little larger
    database.psql("CREATE FUNCTION noise(n int, seed int) RETURNS text LANGUAGE sql AS
        $$SELECT left(string_agg(md5(i::text || seed), ''), n) FROM generate_series(1, n / 32 + 1) AS i$$");
    for (length, fits) in [(2020, true), (2030, false)] {
        database.psql(&format!(
            "DROP TABLE t; CREATE TABLE t (id int, v text, tags text[] COMPRESSION pglz);
             INSERT INTO t SELECT i, repeat('x', {length}) FROM generate_series(1, 60) AS i;
             CREATE INDEX by_v ON t USING gist (v); DELETE FROM t;
             INSERT INTO t SELECT i, noise({length}, i) FROM generate_series(1, 2) AS i"
        ));
        let run = retoast(&database, &["t", "-c", "v", "--toaster", "external"]);
        assert_eq!(run.code == Some(0), fits, "{length}: {}", run.stderr);
    }
}

#[test]
fn advice_refuses_what_an_index_would() {
    let database = indexed("entryadvice", "CREATE INDEX by_v ON t (v)");
    database.psql("INSERT INTO t SELECT i, words(9000, i), NULL FROM generate_series(100, 1000) i");
    for arguments in [&["t", "-c", "v", "--optimize", "read"][..], &["t", "-c", "v", "--exact"]] {
        let report = advised(&database, arguments);
        let find = |name: &str| report.candidates.iter().find(|one| one.name == name).unwrap();
        for name in ["extended lz4", "external"] {
            let candidate = find(name);
            assert!(candidate.refused_rows > 900 && !candidate.recommended, "{candidate:#}");
            let refusal = candidate.refusal.clone().unwrap_or_default();
            assert!(refusal.contains("btree maximum 2704 for index public.by_v"), "{refusal}");
        }
        assert_eq!(report.today().refused_rows, 0);
        assert!(report.chosen().refusal.is_none(), "{}", report.recommendation);
    }
    // a terminal has no room for that column of the table
    let arguments = ["advise-threshold", "t", "-c", "v", "-d", &database.conninfo()];
    let narrow = run(toastctl().args(arguments).env("COLUMNS", "80"));
    let said = narrow.stdout.replace('\n', " ");
    let refused = "The server would refuse rows with extended lz4 (index row size 3784 exceeds btree maximum 2704";
    assert!(said.contains(refused), "{said}");
    // a partial index may have none of these rows, but that is not known here
    database.psql("DROP INDEX by_v; CREATE INDEX by_v ON t (v) WHERE length(v) < 100");
    let report = advised(&database, &["t", "-c", "v"]);
    assert!(report.candidates.iter().any(|one| one.refusal.is_some()), "{}", report.recommendation);
    database.psql("DROP INDEX by_v; CREATE INDEX by_v ON t USING hash (v)");
    let report = advised(&database, &["t", "-c", "v"]);
    assert!(report.candidates.iter().all(|one| one.refusal.is_none()), "{}", report.recommendation);
}

#[test]
fn findings_print_no_command_that_would_be_refused() {
    let database = indexed("entryfindings", "CREATE INDEX by_v ON t (v)");
    database.psql(
        "INSERT INTO t SELECT i, words(9000, i), NULL FROM generate_series(100, 1000) i;
         ALTER TABLE t ALTER v SET COMPRESSION lz4",
    );
    let has_finding = || {
        let told = relation(&database, &["t"]);
        let mut findings = told.findings().iter();
        findings.any(|one| one.code.name() == "older-setting" && one.column.as_deref() == Some("v"))
    };
    assert!(!has_finding());
    database.psql("DROP INDEX by_v; CREATE INDEX by_v ON t (md5(v))");
    assert!(has_finding());
}

#[test]
fn an_expression_that_returns_the_stored_value_counts() {
    let functions = "CREATE FUNCTION same(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';";
    for index in ["coalesce(v, '')", "CASE WHEN id > 0 THEN v END", "same(v)"] {
        let index = format!("{functions} CREATE INDEX by_it ON t (id, ({index}))");
        let database = indexed("entrycarried", &index);
        // an UPDATE of another column makes an entry of the value as it is stored
        let update = "UPDATE t SET id = id + 1000; UPDATE t SET id = id - 1000";
        database.psql(update);
        for source in ["auto", "functions"] {
            let source = format!("source={source}");
            let lz4 = ["t", "-c", "v", "--toaster", "lz4", "--set", &source];
            refuses(&database, &lz4, "not fit index public.by_it with lz4");
        }
        done(&retoast(&database, &["t", "-c", "v", "--toaster", "external"]));
        database.psql(update);
        done(&retoast(&database, &["t", "-c", "v", "--toaster", "pglz"]));
        database.psql("ALTER TABLE t ALTER v SET COMPRESSION lz4; INSERT INTO t VALUES (5000, words(9000, 1))");
        assert_ne!(
            database.try_psql("UPDATE t SET id = id + 1 WHERE id = 5000").code,
            Some(0),
            "{index}"
        );
    }
}

/// New partitions take its settings, and the application's INSERTs into them would fail.
#[test]
fn a_partitioned_table_keeps_its_settings_where_rows_of_partitions_do_not_fit() {
    let database = with_pageinspect("entryparts");
    database.psql(WORDS);
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz, tags text[]) PARTITION BY RANGE (id);
         CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (20);
         CREATE TABLE high PARTITION OF t FOR VALUES FROM (20) TO (100);
         CREATE INDEX ON t (v);
         INSERT INTO t SELECT i, repeat(md5(i::text), 100), NULL FROM generate_series(1, 19) i;
         INSERT INTO t SELECT i, words(9000, i), NULL FROM generate_series(20, 60) i",
    );
    let before = database.psql(SETTINGS);
    let arguments = ["t", "-c", "v", "--toaster", "lz4"];
    let dry = retoast(&database, &[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, Some(1), "{}", dry.stderr);
    let told = "would set for new partitions";
    assert!(
        !dry.stdout.contains(told) && !dry.stderr.contains(told),
        "{}{}",
        dry.stdout,
        dry.stderr
    );
    let run = retoast(&database, &arguments);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("its settings for new partitions stay as they are"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("set for new partitions: "), "{}", run.stderr);
    assert_eq!(database.psql(SETTINGS), before);
    database.psql(
        "CREATE TABLE newest PARTITION OF t FOR VALUES FROM (100) TO (200);
         INSERT INTO t SELECT i, words(9000, i), NULL FROM generate_series(100, 110) i",
    );
    // where all rows fit, new partitions get the settings
    database.psql("DELETE FROM t WHERE id >= 20");
    let run = retoast(&database, &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let told = "set for new partitions: ALTER TABLE ONLY \"public\".\"t\"";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert_ne!(database.psql(SETTINGS), before);
}
