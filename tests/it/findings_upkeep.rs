//! Findings of `inspect` about upkeep: when autovacuum starts on a TOAST relation, and what UPDATEs log of old rows.

use crate::support::command::{run, toastctl};
use crate::support::findings::{NOISE, act, clean, codes, mended};
use crate::support::measured::wal;
use crate::support::reports::Printed;
use crate::support::reports::inspect::Finding;
use crate::support::server::{self, Database, Options, Server};

/// Findings, if the statistics began eleven days ago.
fn after_days(database: &Database<'_>, table: &str) -> Vec<Printed<Finding>> {
    let mut command = toastctl();
    command.args(["inspect", "-d", &database.url(), table, "--format", "json"]);
    let run = run(command.env("TOASTCTL_TEST_STATISTICS_AGE", "1e6")).exits(0);
    database.rests();
    run.relation().findings().to_vec()
}

/// Whether autovacuum would vacuum a TOAST relation (`relation_needs_vacanalyze`, autovacuum.c).
const DUE: &str = "SELECT n_dead_tup > least(base + scale * greatest(c.reltuples, 0), nullif(most, -1)) AS due
    FROM pg_class c, pg_stat_all_tables s,
    LATERAL (SELECT
        coalesce(max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold'),
                 current_setting('autovacuum_vacuum_threshold'))::float8,
        coalesce(max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor'),
                 current_setting('autovacuum_vacuum_scale_factor'))::float8,
        coalesce(max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_max_threshold'),
                 current_setting('autovacuum_vacuum_max_threshold', true))::float8
        FROM pg_options_to_table(c.reloptions)) AS o (base, scale, most)
    WHERE s.relid = c.oid AND c.oid = (SELECT reltoastrelid FROM pg_class WHERE oid = :'t'::regclass) \\gset\n";

/// Rewrites 2 % of a table's values in each of so many steps, and vacuums it when autovacuum would. Gives the size of
/// the TOAST relation before each vacuum.
fn churn(database: &Database<'_>, table: &str, steps: u32) -> Vec<u64> {
    let step = |n: u32| {
        format!(
            "UPDATE {table} SET v = noise(id + 10000 * {n}, 5900) WHERE id % 50 = {n} % 50;
             SELECT pg_stat_force_next_flush() \\g /dev/null
             {DUE}
             \\if :due
             SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = :'t'::regclass;
             VACUUM {table};
             \\endif\n"
        )
    };
    let script: String = (1..=steps).map(step).collect();
    let sizes = database.psql(&format!("\\set t {table}\n{script}"));
    sizes.lines().map(|size| size.parse().unwrap()).collect()
}

/// A server whose autovacuum sleeps for years: the tests decide by its rule instead, from the counters.
fn sleeping(options: Options) -> Server {
    Server::start(&options.set("autovacuum", "on").set("autovacuum_naptime", "2147483"))
}

/// A server on which nobody else writes WAL, and no checkpoint adds whole pages to it.
fn quiet() -> Server {
    Server::start(&Options::default().set("full_page_writes", "off"))
}

/// Tables of 2500 values of three chunks.
fn values_of_three_chunks(database: &Database<'_>, tables: &[&str]) {
    for table in tables {
        database.psql(&format!(
            "CREATE TABLE {table} (id int, v text); ALTER TABLE {table} ALTER v SET STORAGE external;
             INSERT INTO {table} SELECT i, noise(i, 5900) FROM generate_series(1, 2500) i"
        ));
        database.psql(&format!("VACUUM {table}"));
    }
}

#[test]
fn dead_chunks_that_wait_for_autovacuum() {
    let server = sleeping(Options::default());
    let database = server.with_pageinspect("vacuum");
    database.psql(NOISE);
    values_of_three_chunks(&database, &["t", "advised", "often", "once"]);
    assert_eq!(codes(&after_days(&database, "t")), [""; 0]);
    let by_default = churn(&database, "t", 250);
    assert!(by_default.len() >= 20, "{by_default:?}");
    let found = after_days(&database, "t");
    assert_eq!(codes(&found), ["late-vacuum"], "{found:#?}");
    let finding = &found[0];
    let command = "ALTER TABLE \"public\".\"t\" SET (toast.autovacuum_vacuum_scale_factor = 0.05, \
                   toast.autovacuum_vacuum_threshold = 50);";
    assert_eq!(finding.command, command);
    let chunks: f64 = database
        .psql("SELECT reltuples FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE relname = 't')")
        .parse()
        .unwrap();
    let (now, then) = (50.0 + chunks * 0.2, 50.0 + chunks * 0.05);
    let words = [
        format!(
            "a vacuum starts at {now:.0} dead chunks (21 % of the live ones), on average every "
        ),
        " hours (the last one was at 20".to_owned(),
        format!("it would start at {then:.0} (6 %), every "),
    ];
    assert!(words.iter().all(|words| finding.what.contains(words.as_str())), "{finding} {chunks}");
    act(&database, command);
    assert_eq!(codes(&after_days(&database, "t")), [""; 0]);

    act(&database, &command.replace("\"t\"", "\"advised\""));
    let advised = churn(&database, "advised", 90);
    assert!(advised.len() >= 20, "{advised:?}");
    assert_eq!(codes(&after_days(&database, "advised")), [""; 0]);
    // the size of each settles, and they differ by what was foretold
    let most = |sizes: &[u64]| *sizes[10..].iter().max().unwrap() as f64;
    let (default, advised) = (most(&by_default), most(&advised));
    let saved = finding.value as f64;
    assert!((default - advised - saved).abs() < saved * 0.25, "{default} {advised} {saved}");

    // somebody vacuums before autovacuum would
    for n in 0..40 {
        database
            .psql(&format!("UPDATE often SET v = noise(id + {n}, 5900) WHERE id % 25 = {n} % 25"));
        database.psql("VACUUM often");
    }
    assert_eq!(codes(&after_days(&database, "often")), [""; 0]);
    // it was not autovacuum that was late, but much was deleted at a time
    for n in 0..5 {
        database.psql(&format!("UPDATE once SET v = noise(id + {n}, 5900)"));
        database.psql("VACUUM once");
    }
    let at_a_time = after_days(&database, "once");
    assert!(!codes(&at_a_time).contains(&"late-vacuum"), "{at_a_time:#?}");
    // nothing waits for what is switched off
    churn(&database, "often", 200);
    database.psql("ALTER TABLE often SET (autovacuum_enabled = false)");
    assert!(!codes(&after_days(&database, "often")).contains(&"late-vacuum"));
}

#[test]
fn a_maximum_of_dead_chunks_counts_where_there_is_one() {
    const MAJOR: u32 = 18;
    if !server::has_major(MAJOR) {
        return;
    }
    let most = Options::major(MAJOR).set("autovacuum_vacuum_max_threshold", "1000");
    let server = sleeping(most);
    let database = server.with_pageinspect("maximum");
    database.psql(NOISE);
    values_of_three_chunks(&database, &["t"]);
    // options that count for the TOAST relation too, until it has one of its own
    let inherited = [
        "log_autovacuum_min_duration = 0",
        "autovacuum_vacuum_insert_threshold = 5000",
        "autovacuum_vacuum_insert_scale_factor = 0.5",
        "autovacuum_vacuum_cost_delay = 5",
        "autovacuum_vacuum_cost_limit = 300",
        "autovacuum_freeze_min_age = 1000",
        "autovacuum_freeze_max_age = 100000000",
        "autovacuum_freeze_table_age = 1000",
        "autovacuum_multixact_freeze_min_age = 1000",
        "autovacuum_multixact_freeze_max_age = 100000000",
        "autovacuum_multixact_freeze_table_age = 1000",
    ];
    let of_the_table = inherited.join(", ");
    database.psql(&format!("ALTER TABLE t SET ({of_the_table}, autovacuum_analyze_threshold = 7)"));
    assert!(churn(&database, "t", 50).len() >= 5);
    let found = after_days(&database, "t");
    assert_eq!(codes(&found), ["late-vacuum"], "{found:#?}");
    assert!(found[0].what.contains("a vacuum starts at 1000 dead chunks"), "{found:#?}");
    let kept = inherited.map(|option| format!("toast.{option}")).join(", ");
    assert!(found[0].command.ends_with(&format!("_threshold = 50, {kept});")), "{found:#?}");
    // the server takes them; those of the TOAST relation win over settings
    database.psql(&found[0].command);
    database.psql(
        "ALTER TABLE t RESET (toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_threshold)",
    );
    database.psql("ALTER TABLE t SET (toast.autovacuum_vacuum_max_threshold = 600)");
    assert_eq!(codes(&after_days(&database, "t")), [""; 0]);
    database.psql("ALTER TABLE t SET (toast.autovacuum_vacuum_max_threshold = -1)");
    let found = after_days(&database, "t");
    assert!(!found[0].what.contains("1000 dead chunks"), "{found:#?}");
    act(&database, &found[0].command);
    assert_eq!(codes(&after_days(&database, "t")), [""; 0]);
}

#[test]
fn whole_old_rows_that_are_logged_although_there_is_a_key() {
    let server = quiet();
    let database = server.with_pageinspect("identity");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, 0, noise(i, 6000) FROM generate_series(1, 500) i;
         ALTER TABLE t REPLICA IDENTITY FULL;
         CREATE TABLE by_index (id int NOT NULL, n int, v text);
         CREATE UNIQUE INDEX \"By id\" ON by_index (id) INCLUDE (n);
         CREATE UNIQUE INDEX a_part ON by_index (id) WHERE n = 0;
         CREATE UNIQUE INDEX nullable ON by_index (n, id);
         INSERT INTO by_index TABLE t; ALTER TABLE by_index REPLICA IDENTITY FULL;
         CREATE TABLE no_key (id int, n int, v text);
         INSERT INTO no_key TABLE t; ALTER TABLE no_key REPLICA IDENTITY FULL;
         CREATE UNLOGGED TABLE unlogged (LIKE t INCLUDING ALL);
         INSERT INTO unlogged TABLE t; ALTER TABLE unlogged REPLICA IDENTITY FULL",
    );
    let update = |table: &str| format!("UPDATE {table} SET n = n + 1 WHERE id % 2 = 0");
    let tables = ["t", "by_index", "no_key", "unlogged"];
    for table in tables {
        // nothing was logged yet
        clean(&database, table);
        database
            .psql(&format!("{}; SELECT pg_stat_force_next_flush(); VACUUM {table}", update(table)));
    }
    clean(&database, "no_key");
    clean(&database, "unlogged");
    // the key of a subscriber's filter
    if server.major() >= 15 {
        database.psql("CREATE PUBLICATION filtered FOR TABLE t WHERE (v <> '')");
        clean(&database, "t");
        database.psql("DROP PUBLICATION filtered");
    }
    for (table, instead) in [("t", "DEFAULT"), ("by_index", "USING INDEX \"By id\"")] {
        database.psql(&update(table));
        let before = wal(&database, &update(table));
        database.psql(&format!("SELECT pg_stat_force_next_flush(); VACUUM {table}"));
        let finding = mended(&database, table, "full-identity");
        let command = format!("ALTER TABLE \"public\".\"{table}\" REPLICA IDENTITY {instead};");
        assert_eq!(finding.command, command);
        assert_eq!(finding.value, 750 * 6000, "{finding}");
        assert!(
            finding.what.starts_with("of out-of-line values, about 6000 for each of 750 rows"),
            "{finding}"
        );
        let saved = before - wal(&database, &update(table));
        let told = 250.0 * 6000.0;
        assert!((told..told * 1.1).contains(&saved), "{before} {saved}");
    }
}

#[test]
fn values_that_are_stored_anew_without_a_change() {
    let server = quiet();
    let database = server.with_pageinspect("unchanged");
    database.psql(NOISE);
    database.psql(
        "CREATE TABLE \"T's\" (id int, n int, \"the \"\"v\"\"\" text) WITH (fillfactor = 40);
         ALTER TABLE \"T's\" ALTER \"the \"\"v\"\"\" SET STORAGE external;
         INSERT INTO \"T's\" SELECT i, 0, noise(i, 6000) FROM generate_series(1, 1500) i;
         CREATE TABLE docs (id int, n int, doc jsonb) WITH (fillfactor = 40);
         INSERT INTO docs SELECT i, 0, jsonb_build_object('a', noise(i, 5000), 'b', repeat('x', 3000))
             FROM generate_series(1, 1500) i;
         CREATE TABLE others (id int, n int, v text) WITH (fillfactor = 40);
         ALTER TABLE others ALTER v SET STORAGE external;
         INSERT INTO others TABLE \"T's\"; VACUUM others",
    );
    let table = "\"T's\"";
    let unchanged =
        "UPDATE \"T's\" SET n = n + 1, \"the \"\"v\"\"\" = noise(id, 6000) WHERE id % 5 = 0";
    clean(&database, table);
    // columns that are not set keep their values, and some values change, though not their lengths
    database.psql("UPDATE others SET n = n + 1 WHERE id % 5 = 0");
    clean(&database, "others");
    database.psql("UPDATE others SET v = noise(id + 1, 6000) WHERE id % 5 = 1");
    clean(&database, "others");

    let before = wal(&database, unchanged);
    let text = run(toastctl().args(["inspect", "-d", &database.url(), table])).ok();
    assert!(text.contains("unchanged-values the \"v\": "), "{text}");
    database.rests();
    let finding = mended(&database, table, "unchanged-values");
    assert!(
        finding.low <= 300 * 6000 && finding.high >= 300 * 6000 && finding.low > 1_700_000,
        "{finding}"
    );
    assert!(finding.what.contains("(100 % of the values that they have set)"), "{finding}");
    // the same UPDATE stores no value again, and one that changes them does
    let after = wal(&database, unchanged);
    assert!(before - after > finding.value as f64, "{before} {after} {finding}");
    clean(&database, table);
    database.psql("UPDATE \"T's\" SET \"the \"\"v\"\"\" = noise(-id, 6000) WHERE id = 7");
    let same = "SELECT \"the \"\"v\"\"\" = noise(-id, 6000) FROM \"T's\" WHERE id = 7";
    assert_eq!(database.psql(same), "t");

    // the server's own trigger sees a difference, as the old value is out of line and the new one is not yet
    database.psql(
        "CREATE TRIGGER redundant BEFORE UPDATE ON docs
             FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    );
    let same = "UPDATE docs SET doc = (doc::text)::jsonb WHERE id % 5 = 0";
    assert_eq!(
        database.psql(&format!("WITH u AS ({same} RETURNING 1) SELECT count(*) FROM u")),
        "300"
    );
    mended(&database, "docs", "unchanged-values");
    database.psql(same);
    clean(&database, "docs");
    // the triggers are not in the way of other commands
    act(&database, "toastctl retoast docs --column doc --toaster lz4 --compact");
    let stored = "SELECT count(*) FROM docs WHERE pg_column_compression(doc) = 'lz4'";
    assert_eq!(database.psql(stored), "1500");
    clean(&database, "docs");
}
