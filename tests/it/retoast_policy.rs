//! `toastctl retoast --policy`: every value gets the form that the policy demands, by the server's
//! own functions.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use toast_format::disk::layout::PageSize;
use toast_format::model::cost::Prices;
use toast_format::model::policy::{Circumstances, CompressedSizes, MethodRule, Policy};

use crate::support::command::{run, toastctl};
use crate::support::reports::Source;
use crate::support::reports::advise::Candidate;
use crate::support::reports::retoast::{Outcome, Report, part_size};
use crate::support::retoast::{
    contents, done, refused, retoast, retoast_as, spawn, survives_kills,
};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::tables::{LARGE, TYPES};
use crate::support::verbs::{advised, relation};

/// Values of 100 bytes to 2 MB: noise with a tail of zeros, from all zeros to none.
const MIXED: &str = "
    CREATE FUNCTION noise(seed int, bytes int) RETURNS bytea LANGUAGE sql IMMUTABLE AS
        $$SELECT coalesce(substr(string_agg(sha512((seed || '/' || i)::bytea), ''), 1, bytes), '')
          FROM generate_series(0, bytes / 64) AS i$$;
    CREATE TABLE t (id serial PRIMARY KEY, v bytea COMPRESSION pglz);
    INSERT INTO t (v)
    SELECT noise(raw + part, raw * part / 100) || decode(repeat('00', raw - raw * part / 100), 'hex')
    FROM unnest(ARRAY[100, 500, 1900, 2000, 2001, 2500, 3966, 4100, 7925, 16505, 31685, 60000, 300000,
                      2000000]) AS raw,
         unnest(ARRAY[0, 30, 50, 70, 80, 89, 92, 94, 96, 98, 99, 100]) AS part
    WHERE raw < 100000 OR part IN (50, 92, 99) OR (raw < 1000000 AND part IN (0, 100));
    INSERT INTO t (v) VALUES (NULL), ('');";

/// What the server compresses the values to, in a table made by hand: `p` alone calls the toaster.
fn measure(database: &Database<'_>, methods: &[&str]) {
    database.psql("CREATE TABLE sizes (id int PRIMARY KEY, raw int, pglz int, lz4 int)");
    database.psql("INSERT INTO sizes SELECT id, octet_length(v) FROM t WHERE v IS NOT NULL");
    for method in methods {
        database.psql(&format!(
            "CREATE TABLE m (id int, p text, v bytea); ALTER TABLE m ALTER p SET STORAGE PLAIN,
             ALTER v SET COMPRESSION {method}, SET (toast_tuple_target = 128);
             INSERT INTO m SELECT id, repeat('p', 2100), (ARRAY[v])[1] FROM t;
             UPDATE sizes AS s SET {method} = pg_column_size(m.v) + 4 FROM m
             WHERE m.id = s.id AND pg_column_compression(m.v) IS NOT NULL;
             DROP TABLE m"
        ));
    }
}

/// Policies with what they say in SQL: of `raw` bytes, compressed to a datum of `c` bytes, in `rc`
/// chunks raw and `cc` compressed.
const POLICIES: [(&str, &str); 9] = [
    ("always", "true"),
    ("never", "false"),
    ("chunk-saving", "rc - cc >= 1"),
    ("chunk-saving=3", "rc - cc >= 3"),
    ("ratio=0.9", "(c - 4) * 10::int8 <= raw * 9::int8"),
    ("ratio=0.5", "(c - 4) * 10::int8 <= raw * 5::int8"),
    ("chunk-floor=10", "rc < 10 OR rc - cc >= 1"),
    ("hybrid", "(c - 4) * 10::int8 <= raw * 9::int8 OR rc - cc > floor(log(2, rc))"),
    ("best", ""),
];

/// Values that are not stored as the policy demands: whether they are compressed, how, and in how many
/// bytes. A row of an integer and a value fits with a datum of 2004 bytes.
fn stored_otherwise(database: &Database<'_>, method: &str, keeps: &str) -> String {
    let (smaller, name) = match method {
        "either" => {
            ("least(pglz, lz4)", "CASE WHEN lz4 <= pglz OR pglz IS NULL THEN 'lz4' ELSE 'pglz' END")
        }
        "lz4" => ("lz4", "'lz4'"),
        _ => ("pglz", "'pglz'"),
    };
    database.psql(&format!(
        "WITH s AS (SELECT id, raw, {smaller} AS c, {name} AS m FROM sizes),
              chunks AS (SELECT *, greatest(ceil(raw / 1996.0), 1)::int AS rc,
                  CASE WHEN c <= 2008 THEN 0 ELSE ceil((c - 4) / 1996.0) END::int AS cc FROM s),
              wanted AS (SELECT *, raw > 2000 AND c IS NOT NULL AND ({keeps}) AS keep FROM chunks)
         SELECT coalesce(string_agg(format('%s: %s of %s is %s', w.id, c, raw,
             pg_column_compression(t.v)), ', '), 'none')
         FROM wanted AS w JOIN t USING (id)
         WHERE pg_column_compression(t.v) IS DISTINCT FROM CASE WHEN keep THEN m END
            OR pg_column_size(t.v) <> CASE
                WHEN keep AND c <= 2004 THEN c WHEN keep THEN c - 4
                WHEN raw <= 126 THEN raw + 1 WHEN raw <= 2000 THEN raw + 4 ELSE raw END"
    ))
}

/// As [`stored_otherwise`] for policy `best`, which is what the model's prices say of the sizes that the
/// server has compressed the values to.
fn stored_otherwise_than_is_cheapest(database: &Database<'_>, method: &str) -> String {
    let (page, prices) = (PageSize::DEFAULT, Prices::default());
    let circumstances = Circumstances { page, inline_limit: 2008, prices: &prices };
    let sizes = database.psql("SELECT id, raw, coalesce(pglz, 0), coalesce(lz4, 0) FROM sizes");
    let wanted = sizes.lines().map(|line| {
        let fields: Vec<u32> = line.split('|').map(|field| field.parse().unwrap()).collect();
        let [id, raw, pglz, lz4] = fields[..] else { panic!("{line}") };
        let tried = |size| Some(size).filter(|&size| size > 0);
        let sizes = CompressedSizes { pglz: tried(pglz), lz4: tried(lz4) };
        let choice = match raw > 2000 {
            true => Policy::Best.decide(method.parse().unwrap(), raw, sizes, &circumstances),
            false => MethodRule::Uncompressed,
        };
        match choice {
            MethodRule::Compressed { method, size } => {
                let counted = if size <= 2004 { size } else { size - 4 };
                format!("({id}, '{}', {counted})", method.name())
            }
            MethodRule::Uncompressed => {
                let counted = match raw {
                    0..=126 => raw + 1,
                    127..=2000 => raw + 4,
                    _ => raw,
                };
                format!("({id}, NULL, {counted})")
            }
        }
    });
    let wanted: Vec<String> = wanted.collect();
    database.psql(&format!(
        "SELECT coalesce(string_agg(format('%s: %s in %s, not %s in %s', w.id,
             pg_column_compression(t.v), pg_column_size(t.v), w.m, w.size), ', '), 'none')
         FROM (VALUES {}) AS w (id, m, size) JOIN t USING (id)
         WHERE pg_column_compression(t.v) IS DISTINCT FROM w.m OR pg_column_size(t.v) <> w.size",
        wanted.join(", ")
    ))
}

fn each_policy(database: &Database<'_>, method: &str, policies: &[(&str, &str)]) {
    let before = contents(database, "t");
    for (policy, keeps) in policies {
        let arguments =
            ["t", "-c", "v", "--verify", "full", "--policy", policy, "--method", method];
        let table = done(&retoast(database, &arguments));
        assert_eq!(contents(database, "t"), before, "{policy} {method}");
        let wrong = match *policy {
            "best" => stored_otherwise_than_is_cheapest(database, method),
            _ => stored_otherwise(database, method, keeps),
        };
        assert_eq!(wrong, "none", "{policy} {method}: {table}");
        assert_eq!(table.rows_verified, table.rows_stored);
        let again = done(&retoast(database, &arguments));
        assert_eq!(again.rows_found, 0, "{policy} {method}: {again}");
        assert_eq!((again.scans, &again.alter), (1, &None));
    }
}

#[test]
fn every_value_has_the_form_that_the_policy_demands() {
    let database = with_pageinspect("policy");
    database.psql(MIXED);
    measure(&database, &["pglz", "lz4"]);
    for method in ["lz4", "pglz", "either"] {
        each_policy(&database, method, &POLICIES);
    }
    // what the cost model keeps saves bytes, and what it refuses does not save half
    let odd = database.psql(
        "SELECT count(*) FROM t JOIN sizes USING (id) WHERE raw > 2001 AND
         CASE WHEN pg_column_compression(v) IS NOT NULL THEN least(pglz, lz4) >= raw
              ELSE least(pglz, lz4) < raw * 0.4 END",
    );
    assert_eq!(odd, "0");
}

#[test]
fn later_servers_store_the_same() {
    for major in server::available_majors() {
        if major < 17 {
            continue;
        }
        let server = Server::start(&Options::major(major));
        let database = server.with_pageinspect("policy");
        database.psql(MIXED);
        measure(&database, &["pglz"]);
        each_policy(&database, "pglz", &POLICIES[2..]);
        let has = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'";
        if database.psql(has) == "t" {
            continue;
        }
        let lz4 = retoast(&database, &["t", "-c", "v", "--policy", "best", "--method", "lz4"]);
        refused(&lz4, 2, "does not support compression method lz4");
    }
}

#[test]
fn an_owner_without_pages_stores_the_same() {
    let database = server::shared().create_database("policyowner");
    let role = database.create_owner("policy");
    database.psql(&format!("SET ROLE {role}; {MIXED}"));
    measure(&database, &["pglz", "lz4"]);
    let before = contents(&database, "t");
    for (method, at) in [("lz4", 2), ("either", 4), ("pglz", 6), ("pglz", 0), ("lz4", 1)] {
        let (policy, keeps) = POLICIES[at];
        let arguments = ["t", "-c", "v", "--policy", policy, "--method", method];
        let table = done(&retoast_as(&database, &role, &arguments));
        assert_eq!(table.source, Source::Functions);
        assert_eq!(contents(&database, "t"), before, "{policy} {method}");
        assert_eq!(stored_otherwise(&database, method, keeps), "none", "{policy} {method}");
        let again = done(&retoast_as(&database, &role, &arguments));
        assert_eq!(again.rows_found, 0, "{policy} {method}: {again}");
    }
}

/// Types with a length or the like: where a copy is of a type without it, the server takes the value apart to cut it.
#[test]
fn columns_with_a_length_and_domains_over_them_reach_the_policy() {
    let database = with_pageinspect("policylength");
    database.psql(
        "CREATE DOMAIN word AS varchar(20000);
         CREATE DOMAIN words AS word CHECK (VALUE <> 'never');
         CREATE DOMAIN padded AS char(9000) NOT NULL;
         CREATE TABLE t (id int, v varchar(20000), c char(9000), w word, ws words, p padded, b bit varying(90000));
         INSERT INTO t SELECT i, repeat(md5(i::text), i * 9), md5(i::text), repeat(md5(i::text), i * 8),
                CASE WHEN i % 4 > 0 THEN repeat(md5(i::text), 100 + i) END, md5(i::text),
                repeat('10', i * 700)::bit varying
         FROM generate_series(1, 40) i",
    );
    let before = contents(&database, "t");
    let columns = ["-c", "v", "-c", "c", "-c", "w", "-c", "ws", "-c", "p", "-c", "b"];
    for (policy, method) in [("never", "lz4"), ("always", "lz4"), ("chunk-saving", "either")] {
        let arguments = [&["t", "--policy", policy, "--method", method], &columns[..]].concat();
        done(&retoast(&database, &arguments));
        assert_eq!(contents(&database, "t"), before, "{policy}");
        let again = done(&retoast(&database, &arguments));
        assert_eq!(again.rows_found, 0, "{policy}: {again}");
    }
    let compressed =
        "SELECT count(pg_column_compression(v)), count(pg_column_compression(ws)) FROM t";
    assert_ne!(database.psql(compressed), "0|0");
}

#[test]
fn columns_of_all_types_at_once_keep_their_contents() {
    let database = with_pageinspect("policytypes");
    let role = database.create_owner("types");
    database.psql(&format!("SET ROLE {role}; {TYPES}"));
    let before = contents(&database, "t");
    let columns: Vec<&str> =
        crate::support::tables::COLUMNS.iter().flat_map(|column| ["--column", column]).collect();
    for (policy, method, pages) in [
        ("chunk-saving", "either", true),
        ("ratio=0.5", "pglz", false),
        ("always", "lz4", true),
        ("never", "lz4", false),
        ("hybrid", "either", false),
        ("best", "lz4", true),
    ] {
        let arguments =
            [&["t", "--verify", "full", "--policy", policy, "--method", method], &columns[..]];
        let arguments = arguments.concat();
        let sweep = || {
            done(&if pages {
                // domains of the owner's, who may add a check at any time
                retoast(&database, &[&arguments[..], &["--allow", "owner-code"]].concat())
            } else {
                retoast_as(&database, &role, &arguments)
            })
        };
        sweep();
        assert_eq!(contents(&database, "t"), before, "{policy} {method}");
        if policy == "never" {
            for column in crate::support::tables::COLUMNS {
                let left = format!(
                    "SELECT count(*) FROM t WHERE pg_column_compression({column}) IS NOT NULL"
                );
                assert_eq!(database.psql(&left), "0", "{column}");
            }
        }
        let again = sweep();
        assert_eq!(again.rows_found, 0, "{policy} {method}: {again}");
    }
}

#[test]
fn killed_again_and_again_and_under_updates_it_loses_nothing_and_ends() {
    survives_kills(
        "policykilled",
        &["t", "-c", "v", "--policy", "always", "--method", "lz4", "--set", "batch-ms=20"],
        "pg_column_compression(v) = 'pglz' OR (pg_column_compression(v) IS NULL AND length(v) > 2000)",
    );
}

/// The cases of the thread on external TOAST storage, as raw bytes and how many of them are noise: lz4
/// gives 7,845, 16,050, 30,263, 3,645 and about 2,012 bytes. With them the part that the table
/// grows by where the policy stores the values uncompressed.
const THREAD: [(u32, u32); 5] =
    [(7_925, 7_805), (16_505, 15_977), (31_685, 30_130), (3_885, 3_622), (3_966, 1_990)];

#[test]
fn the_case_of_the_thread_that_grows_is_refused() {
    let database = with_pageinspect("policythread");
    for (number, (raw, noise)) in THREAD.into_iter().enumerate() {
        database.psql(&format!(
            "CREATE TABLE head (id integer, v bytea COMPRESSION lz4);
             INSERT INTO head SELECT i, (SELECT substr(string_agg(sha512((i * 1000 + k)::text::bytea),
               ''), 1, {noise}) FROM generate_series(0, {noise} / 64) AS k) ||
               decode(repeat('00', {raw} - {noise}), 'hex') FROM generate_series(1, 600) AS i"
        ));
        let size = |database: &Database<'_>| -> f64 {
            database
                .psql("VACUUM FULL head; SELECT pg_total_relation_size('head')")
                .parse()
                .unwrap()
        };
        let before = size(&database);
        let best = done(&retoast(&database, &["head", "-c", "v", "--policy", "best"]));
        if number == 4 {
            // compressed it takes half: it stays as it is
            assert_eq!(best.rows_stored, 0, "{best}");
            let grown = done(&retoast(&database, &["head", "-c", "v", "--policy", "never"]));
            assert_eq!(grown.rows_stored, 600);
            assert!(size(&database) / before > 1.35, "{before}");
            done(&retoast(&database, &["head", "-c", "v", "--policy", "best"]));
            let back = size(&database) / before;
            assert!((back - 1.0).abs() < 0.01, "{back}");
            database.psql("ALTER TABLE head ALTER v SET STORAGE EXTENDED; ANALYZE head");
            let words = ["head", "-c", "v", "--sample", "100%", "--optimize", "balanced"];
            let report = advised(&database, &words);
            let recommended = report.candidates.iter().find(|one| one.recommended).unwrap();
            let bytes = |candidate: &Candidate| candidate.total_bytes.estimate;
            assert!(bytes(recommended) <= bytes(report.today()) * 1.05, "{recommended}");
        } else {
            assert_eq!(best.rows_stored, 600, "{raw}: {best}");
            assert!(size(&database) / before < 1.06, "{raw}");
        }
        database.psql("DROP TABLE head");
    }
}

#[test]
fn a_dry_run_has_the_figures_and_changes_nothing() {
    let database = with_pageinspect("policydry");
    database.psql(MIXED);
    measure(&database, &["pglz", "lz4"]);
    let state =
        "SELECT attstorage FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v';
        SELECT md5(string_agg(ctid::text, '' ORDER BY id)) FROM t";
    let before = database.psql(state);
    let arguments = ["t", "-c", "v", "--policy", "ratio=0.9", "--method", "lz4"];
    let planned = retoast(&database, &[&arguments[..], &["--dry-run"]].concat());
    assert!(planned.stderr.contains("new values will not be compressed"), "{}", planned.stderr);
    let report = planned.exits(0).report::<Report>();
    assert_eq!(database.psql(state), before);
    let table = &report.tables[0];
    assert_eq!((table.outcome, table.policy.as_deref()), (Outcome::Planned, Some("ratio=0.90")));
    let forms = table.forms_planned.clone();
    let really = done(&retoast(&database, &arguments));
    assert_eq!(really.forms_after, forms);
    assert_eq!(really.rows_found, table.rows_found);
    let compressed = database.psql("SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'");
    let values =
        |form: &str| -> u64 { forms.iter().filter(|f| f.form == form).map(|f| f.values).sum() };
    let planned = values("compressed") + values("external_compressed");
    assert_eq!(planned.to_string(), compressed);
    let text =
        run(toastctl().args(["retoast", "-d", &database.url(), "--dry-run"]).args(arguments));
    assert!(text.ok().contains("planned"));
}

#[test]
fn new_values_get_what_was_said_and_maintain_prints_the_command() {
    let database = with_pageinspect("policynew");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) i",
    );
    let storage = "SELECT attstorage::text || attcompression::text FROM pg_attribute
        WHERE attrelid = 't'::regclass AND attname = 'v'";
    let arguments = ["t", "-c", "v", "--policy", "chunk-saving", "--method", "lz4"];
    let extended = [&arguments[..], &["--set", "new-values=extended"]].concat();
    let run = retoast(&database, &extended);
    let said = "also compress uncompressed values out of line";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    let table = done(&run);
    assert_eq!(table.rows_stored, 100);
    assert!(table.alter_after.as_deref().unwrap().contains("SET STORAGE extended"), "{table}");
    assert_eq!(database.psql(storage), "xl");
    // nothing to do: nothing is set meanwhile either
    let oids = "SELECT xmin FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";
    let before = database.psql(oids);
    assert_eq!(done(&retoast(&database, &extended)).rows_found, 0);
    assert_eq!(database.psql(oids), before);
    done(&retoast(&database, &arguments));
    assert_eq!(database.psql(storage), "el");
    database.psql("INSERT INTO t SELECT 1000, repeat('new', 3000)");
    let stored = "SELECT pg_column_compression(v) FROM t WHERE id = 1000";
    assert_eq!(database.psql(stored), "");
    assert_eq!(done(&retoast(&database, &arguments)).rows_stored, 1);
    assert_eq!(database.psql(stored), "lz4");
    let conflict = [&extended[..], &["--set", "alter=off"]].concat();
    refused(&retoast(&database, &conflict), 2, "--set alter=off");
    refused(&retoast(&database, &["t", "-c", "v"]), 2, "--toaster");
    let both = ["t", "-c", "v", "--toaster", "lz4", "--policy", "best"];
    refused(&retoast(&database, &both), 2, "cannot be used with");

    // rows that were never compressed are tried once; then only new ones are looked at
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("since.json");
    let since = [&arguments[..], &["--since", file.to_str().unwrap()]].concat();
    done(&retoast(&database, &since));
    assert!(std::fs::read_to_string(&file).unwrap().contains("chunk-saving of \\\"v\\\" lz4"));
    database.psql("INSERT INTO t SELECT 1001, repeat('newer', 3000)");
    assert_eq!(done(&retoast(&database, &since)).rows_stored, 1);
    // the file is believed: a row that it counts as proven is not looked at
    database.psql("INSERT INTO t SELECT 1002, repeat('unseen', 3000)");
    let mut memory: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let next: u64 = database.psql("SELECT pg_current_xact_id()").parse().unwrap();
    for proven in memory["tables"].as_object_mut().unwrap().values_mut() {
        proven["xid"] = next.into();
    }
    std::fs::write(&file, memory.to_string()).unwrap();
    assert_eq!(done(&retoast(&database, &since)).rows_found, 0);
    // of another choice it says nothing
    database.psql("ALTER TABLE t SET (toast_tuple_target = 4080)");
    assert_eq!(done(&retoast(&database, &since)).rows_stored, 1);
    std::fs::write(&file, "{}").unwrap();
    refused(&retoast(&database, &since), 2, "was not written by retoast");
    let nowhere = dir.path().join("not there/since.json");
    let since = [&arguments[..], &["--since", nowhere.to_str().unwrap()]].concat();
    refused(
        &retoast(&database, &since),
        2,
        "not there/since.json\": it cannot be created: No such file or directory",
    );
}

#[test]
fn the_crontab_entry_of_the_runbook_does_what_is_new_where_cron_runs_it() {
    let database = with_pageinspect("crontab");
    database.psql(
        "CREATE TABLE orders (id int, doc text); ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL;
         INSERT INTO orders SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20) AS i",
    );
    let page = include_str!("../../man/toastctl-runbooks.7");
    let entry =
        page.lines().find_map(|line| line.strip_prefix("17 3 * * * PGDATABASE=shop ")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (server, since) = (database.server(), dir.path().join("orders.json"));
    let entry = entry
        .replace("/usr/local/bin/toastctl", env!("CARGO_BIN_EXE_toastctl"))
        .replace("/var/lib/toastctl", dir.path().to_str().unwrap());
    let command = format!(
        "PGHOST={} PGPORT={} PGUSER={} PGDATABASE={} {entry}",
        server.socket_dir().display(),
        server.port(),
        server.superuser(),
        database.name()
    );
    let by_cron = || {
        let run = run(Command::new("env").args(["-i", "sh", "-c", &command]).current_dir("/"));
        assert_eq!(run.code, Some(0), "{command}: {}", run.stderr);
        database.psql("SELECT count(*) FROM orders WHERE pg_column_compression(doc) IS NULL")
    };
    assert_eq!(by_cron(), "0");
    assert!(std::fs::read_to_string(since).unwrap().contains("chunk-saving"));
    database.psql("INSERT INTO orders SELECT 99, repeat('new', 3000)");
    assert_eq!(by_cron(), "0");
}

#[test]
fn a_large_table_is_done_with_a_temporary_table_that_stays_small() {
    // of its own: emptied pages of an index are used again once no transaction of the whole server is
    // as old as their emptying
    let server = Server::start(&Options::default());
    let database = server.create_database("policylarge");
    database.psql(&format!("CREATE EXTENSION pageinspect; {LARGE}"));
    let before = contents(&database, "t");
    let classes = "SELECT pg_stat_force_next_flush(); SELECT n_tup_ins + n_tup_upd
        FROM pg_stat_sys_tables WHERE relname = 'pg_class'";
    let churn = |text: String| -> u64 { text.lines().last().unwrap().parse().unwrap() };
    let was = churn(database.psql(classes));
    let arguments = ["t", "-c", "v", "--policy", "chunk-saving", "--method", "lz4"];
    let table = done(&retoast(&database, &arguments));
    assert_eq!(contents(&database, "t"), before);
    let batches = table.batches;
    assert!(batches > 50, "{table}");
    // the catalogs hardly see the batches
    let rows = churn(database.psql(classes)) - was;
    assert!(rows < batches, "{rows} rows of pg_class for {batches} batches");
    // smaller batches, as beside others, leave more in the leaves of indexes
    for (part, most) in [("heap", 1.15), ("toast", 1.15), ("indexes", 1.3)] {
        let (was, peak) =
            (part_size(table.before, part) as f64, part_size(table.peak, part) as f64);
        assert!(peak <= was * most + 65536.0, "{part}: from {was} to {peak}: {table}");
    }
}

#[test]
fn a_row_that_short_values_bring_over_the_threshold_is_judged_as_it_is_stored() {
    let database = with_pageinspect("shorts");
    // with a short value three bytes shorter it would stay in line
    database.psql(
        "CREATE TABLE t (a int, b int, big text[], short text, middle text, packed bytea);
         ALTER TABLE t ALTER big SET STORAGE external;
         INSERT INTO t SELECT 1, 0, ARRAY[left(s, 712)], left(s, 114), left(reverse(s), 1088),
             convert_to(repeat('abcdefghijklmnopqrstuvwxyz012345', 27), 'utf8')
         FROM (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) AS i) AS s (s)",
    );
    let sizes = "SELECT pg_column_size(big), pg_column_size(short), pg_column_size(middle),
        pg_column_size(packed) FROM t";
    assert_eq!(database.psql(sizes), "740|115|1088|56");
    let arguments =
        ["t", "-c", "short", "-c", "middle", "--policy", "ratio=0.8", "--method", "lz4"];
    let table = done(&retoast(&database, &arguments));
    assert_eq!(table.rows_stored, 0, "{table}");
    assert_eq!(database.psql(sizes), "740|115|1088|56");
}

#[test]
fn a_terminated_session_and_a_crashed_server_leave_nothing_half_done() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("policycrash");
    database.psql(LARGE);
    let before = contents(&database, "t");
    let arguments = [
        "t",
        "-c",
        "v",
        "--policy",
        "ratio",
        "--method",
        "lz4",
        "--verify",
        "full",
        "--set",
        "batch-ms=10",
    ];
    let at_work = "SELECT count(*) FROM t WHERE pg_column_compression(v) = 'lz4'";
    let begin = |more: u64| {
        let was: u64 = database.psql(at_work).parse().unwrap();
        let child = spawn(&database, &arguments);
        while database.psql(at_work).parse::<u64>().unwrap() < was + more {
            std::thread::sleep(Duration::from_millis(50));
        }
        child
    };
    let child = begin(500);
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name LIKE 'toastctl%' AND pid <> pg_backend_pid()",
    );
    let terminated = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&terminated.stderr);
    assert_eq!(terminated.status.code(), Some(3), "{said}");
    assert_eq!(contents(&database, "t"), before);
    let child = begin(500);
    server.restart_immediate();
    let crashed = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&crashed.stderr);
    // a server that is back soon is gone on with
    match crashed.status.code() {
        Some(0) => assert!(said.contains("continuing in a new session"), "{said}"),
        code => assert_eq!(code, Some(3), "{said}"),
    }
    assert_eq!(contents(&database, "t"), before);
    done(&retoast(&database, &arguments));
    assert_eq!(contents(&database, "t"), before);
    assert_eq!(database.psql(at_work), "40000");
}

#[test]
fn inspect_says_how_far_a_table_is_from_a_policy() {
    let database = with_pageinspect("policyinspect");
    database.psql(
        "CREATE TABLE t (id int, v text COMPRESSION pglz, w text);
         INSERT INTO t SELECT i, CASE WHEN i % 4 > 0 THEN repeat(md5(i::text), 100 * (i % 4)) END, 'w'
         FROM generate_series(1, 400) i;
         ALTER TABLE t ALTER v SET STORAGE EXTERNAL; INSERT INTO t SELECT i, repeat('x', 5000), NULL
         FROM generate_series(1, 100) i",
    );
    let inspect = |more: &[&str]| {
        run(toastctl()
            .args(["inspect", "-d", &database.url(), "t", "--policy", "chunk-saving"])
            .args(more))
        .ok()
    };
    for source in ["pageinspect", "functions"] {
        let arguments = ["t", "--policy", "chunk-saving", "--method", "pglz", "--source", source];
        let report = relation(&database, &arguments);
        let policy = |name: &str| report.column(name).policy.clone();
        assert_eq!(policy("id"), None);
        let v = policy("v").unwrap();
        assert_eq!((v.policy.as_str(), v.method.as_str()), ("chunk-saving", "pglz"), "{source}");
        // the hundred that came later could be compressed and are not
        assert_eq!((v.values, v.complying_values), (400, 300), "{source}");
        let bytes = v.bytes - v.complying_bytes;
        assert_eq!(bytes, 500_000, "{source}");
        let w = policy("w").unwrap();
        assert_eq!((w.values, w.complying_values), (400, 400), "{source}");
    }
    let lz4 = relation(&database, &["t", "--policy", "chunk-saving", "--method", "lz4"]);
    assert_eq!(lz4.columns[1].policy.as_ref().unwrap().complying_values, 0);
    let text = inspect(&[]);
    assert!(text.contains(" 75.0 % "), "{text}");
    done(&retoast(&database, &["t", "-c", "v", "-c", "w", "--policy", "chunk-saving"]));
    assert!(!inspect(&[]).contains(" 75.0 % "));
    let file = run(toastctl().args([
        "inspect",
        "--relation-file",
        "x",
        "--columns",
        "a text",
        "--policy",
        "best",
    ]));
    refused(&file, 2, "cannot be used with");
}
