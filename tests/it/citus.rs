//! Tables of Citus: what is said of tables whose rows are in shards, and of shards that a session does not see.
//!
//! CI has no Citus. A stock server gets the tables of its catalog, in which a session sees all shards that exist. What
//! only Citus can hide is tested on a real cluster, if `TOASTCTL_TEST_CITUS` is the connection string of a coordinator
//! with a worker, of a superuser.

use std::env;
use std::process::Command;
use std::time::Instant;

use crate::index_entries::WORDS;
use crate::support::command::{Run, run, scrub, toastctl};
use crate::support::install;
use crate::support::retoast::{Running, refused};
use crate::support::server::{Database, Options, Server, number, with_pageinspect};
use rustix::process::Signal;
use serde_json::{Value, json};
use toastctl::report::schema::schema;

/// The catalog of Citus, with the columns that are read here, and its function `shard_name`.
const CATALOG: &str = r#"SET allow_system_table_mods = on;
    CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char" NOT NULL,
        colocationid int NOT NULL, repmodel "char" NOT NULL);
    CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass NOT NULL, shardid bigint NOT NULL, shardminvalue text);
    CREATE TABLE pg_catalog.pg_dist_placement (shardid bigint NOT NULL, shardstate int NOT NULL, groupid int NOT NULL);
    CREATE TABLE pg_catalog.pg_dist_node (groupid int NOT NULL, nodename text NOT NULL, nodeport int NOT NULL,
        noderole text NOT NULL, hasmetadata boolean NOT NULL DEFAULT true,
        isactive boolean NOT NULL DEFAULT true);
    CREATE TABLE pg_catalog.pg_dist_local_group (groupid int NOT NULL);
    CREATE FUNCTION pg_catalog.shard_name(object_name regclass, shard_id bigint) RETURNS text LANGUAGE sql AS $$
        SELECT CASE nspname WHEN 'public' THEN quote_ident(relname || '_' || shard_id)
                    ELSE format('%I.%I', nspname, relname || '_' || shard_id) END
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace WHERE c.oid = object_name $$;
    GRANT SELECT ON pg_dist_partition, pg_dist_shard, pg_dist_placement, pg_dist_node, pg_dist_local_group TO PUBLIC;
    INSERT INTO pg_dist_node VALUES (0, 'c', 5432, 'primary'), (1, 'w1', 5432, 'primary'),
        (1, 'w1-standby', 5432, 'secondary'), (2, 'w2', 5433, 'primary');
    INSERT INTO pg_dist_local_group VALUES (1);"#;

/// Two columns, the second of which holds 40 values of 3 kB, compressed by pglz.
const ROWS: &str = "SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 40) i";

/// A worker with two tables that are its shards, and one of each kind of table of Citus.
fn worker(prefix: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    let columns = "(id int, v text COMPRESSION pglz)";
    database.psql(&format!(
        r#"CREATE TABLE dist {columns}; CREATE TABLE dist_102008 {columns}; INSERT INTO dist_102008 {ROWS};
         CREATE TABLE "Ref" {columns}; CREATE TABLE "Ref_102010" {columns}; INSERT INTO "Ref_102010" {ROWS};
         CREATE TABLE own {columns};
         CREATE SCHEMA app; CREATE TABLE app.tenant {columns};
         CREATE TABLE whole {columns} PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000);
         {CATALOG}
         INSERT INTO pg_dist_partition VALUES ('dist', 'h', 1, 's'), ('"Ref"', 'n', 2, 't'), ('own', 'n', 0, 's'),
             ('app.tenant', 'n', 5, 's'), ('whole', 'h', 1, 's'), ('part', 'h', 1, 's');
         INSERT INTO pg_dist_shard VALUES ('dist', 102008), ('dist', 102009), ('"Ref"', 102010), ('own', 102011),
             ('app.tenant', 102012), ('whole', 102013), ('part', 102014);
         INSERT INTO pg_dist_placement VALUES (102008, 1, 1), (102009, 1, 2), (102010, 1, 0), (102010, 1, 1),
             (102010, 1, 2), (102011, 1, 0), (102012, 1, 2), (102013, 1, 1), (102014, 1, 2);"#
    ));
    database
}

/// A verb with the conversion that it needs.
fn verb(conninfo: &str, arguments: &[&str]) -> Command {
    let mut command = toastctl();
    command.args(arguments).args(["-d", conninfo]);
    if arguments.contains(&"retoast") {
        command.args(["-c", "v", "--toaster", "lz4"]);
    }
    command
}

#[test]
fn a_table_of_citus_is_refused_by_its_kind_and_with_its_nodes() {
    let database = worker("citus_named");
    let url = database.url();
    let hint = "HINT:  Connect to each node with PGOPTIONS='-c citus.override_table_visibility=off' and name the shards";
    for (table, text) in [
        (
            "dist",
            "\"public.dist\" is a distributed table of Citus; its rows are stored in 2 shards on w1:5432, w2:5433\n",
        ),
        (
            "\"Ref\"",
            "is a reference table of Citus; its rows are stored in 1 shard on c:5432, w1:5432, w2:5433\n",
        ),
        (
            "own",
            "\"public.own\" is a local table managed by Citus; its rows are stored in 1 shard on c:5432\n",
        ),
        (
            "app.tenant",
            "is a distributed table of Citus with one shard; its rows are stored in 1 shard on w2:5433\n",
        ),
        (
            "whole",
            "\"public.whole\" is a distributed table of Citus; its rows are stored in 1 shard on w1:5432\n",
        ),
    ] {
        for arguments in [&["keys", table][..], &["inspect", "--explain", table]] {
            let run = run(&mut verb(&url, arguments));
            refused(&run, 1, text);
            assert!(run.stderr.contains(hint), "{}", run.stderr);
        }
    }
    let value = run(toastctl().args(["value", "dist.v@(0,1)", "-d", &url]));
    refused(&value, 1, "is a distributed table of Citus");
}

#[test]
fn a_node_is_not_sound_as_long_as_a_shard_of_it_is_not_seen() {
    let database = worker("citus_unseen");
    let url = database.url();
    // All shards that this node has are there and are read.
    let left_out = "left out: app.tenant, public.Ref, public.dist, public.own, public.part are tables of Citus, \
                    whose rows are stored in 6 shards on c:5432, w1:5432, w2:5433";
    for name in ["inspect", "check"] {
        let all = run(&mut verb(&url, &[name]));
        assert_eq!(all.code, Some(0), "{}{}", all.stdout, all.stderr);
        assert!(all.stderr.contains(left_out), "{}", all.stderr);
    }
    database.psql("UPDATE pg_dist_placement SET groupid = 1 WHERE shardid = 102012");
    let unseen =
        "error: 1 shard that the metadata of Citus places on this node was not found\nHINT:  ";
    for arguments in [&["inspect"][..], &["inspect", "--details"], &["check"], &["check", "*.*t*"]]
    {
        refused(&run(&mut verb(&url, arguments)), 1, unseen);
    }
    refused(&run(&mut verb(&url, &["advise-threshold"])), 1, unseen);
    refused(
        &run(&mut verb(&url, &["retoast", "--dry-run", "*.*t*"])),
        1,
        &unseen["error: ".len()..],
    );
    // Its name is known, though nothing has it.
    let named = run(&mut verb(&url, &["inspect", "app.tenant_102012"]));
    refused(
        &named,
        1,
        "relation \"app.tenant_102012\" does not exist\nHINT:  If it is a shard of Citus, it is hidden",
    );
    refused(
        &run(&mut verb(&url, &["inspect", "app.t*_*"])),
        1,
        "no table matches \"app.t*_*\"; 1 shard that",
    );
    // A table of another schema with the same number is no shard.
    database.psql("CREATE TABLE public.tenant_102012 (id int)");
    refused(&run(&mut verb(&url, &["check"])), 1, unseen);
    database.psql("CREATE TABLE app.tenant_102012 (id int)");
    assert_eq!(run(&mut verb(&url, &["check"])).code, Some(0));
}

#[test]
fn where_everything_is_elsewhere_nothing_is_reported_as_done() {
    let database = with_pageinspect("citus_coordinator");
    database.psql(&format!(
        "CREATE TABLE dist (id int, v text); {CATALOG}
         INSERT INTO pg_dist_partition VALUES ('dist', 'h', 1, 's'); INSERT INTO pg_dist_shard VALUES ('dist', 102008);
         INSERT INTO pg_dist_placement VALUES (102008, 1, 2);"
    ));
    let text = "no table remains: public.dist is a table of Citus, whose rows are stored in 1 shard on w2:5433";
    for arguments in [&["inspect"][..], &["check"], &["advise-threshold"], &["inspect", "d*"]] {
        let run = run(&mut verb(&database.url(), arguments));
        refused(&run, 1, text);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_shard_is_changed_only_by_a_session_that_may_and_a_plan_says_so_too() {
    let database = worker("citus_shard");
    let url = database.url();
    let text = "public.dist_102008 is a shard of public.dist, and Citus does not let this session change shards\nHINT:  PGOPTIONS=";
    for arguments in [
        &["retoast", "dist_102008", "--dry-run"][..],
        &["retoast", "dist_102008"],
        &["compact", "dist_102008", "--dry-run"],
        &["compact", "dist_102008"],
        &["reindex", "dist_102008", "--dry-run"],
    ] {
        refused(&run(&mut verb(&url, arguments)), 1, text);
    }
    assert_eq!(database.psql("SELECT count(*) FROM pg_attribute WHERE attcompression = 'l'"), "0");
    let options =
        "-c citus.override_table_visibility=off -c citus.enable_manual_changes_to_shards=on";
    let note =
        "a shard of public.\"Ref\": what is set here is lost when Citus moves or splits the shard";
    for arguments in
        [&["retoast", "\"Ref_102010\"", "--dry-run"][..], &["retoast", "\"Ref_102010\""]]
    {
        let run = run(verb(&url, arguments).env("PGOPTIONS", options));
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!((run.stdout + &run.stderr).contains(note), "{}", run.stderr);
    }
}

/// Two nodes that are servers of their own, in whose metadata each other's socket directories are named without their
/// parent: the first has a shard of `dist`, the second has the others, and both have a copy of `ref`.
struct Nodes([Server; 2]);

impl Nodes {
    fn start() -> Nodes {
        let nodes = Nodes([0, 1].map(|_| Server::start(&Options::default())));
        for (group, (server, shards)) in
            nodes.0.iter().zip([&["dist_102008"][..], &["dist_102009", "part_102013"]]).enumerate()
        {
            let database = server.database("postgres");
            let columns = "(id int PRIMARY KEY, v text COMPRESSION pglz)";
            database.psql(&format!(
                r#"CREATE EXTENSION pageinspect; {CATALOG}
                 CREATE TABLE dist {columns}; CREATE TABLE ref {columns}; CREATE TABLE ref_102010 {columns};
                 CREATE TABLE whole {columns} PARTITION BY RANGE (id);
                 CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000);
                 INSERT INTO ref_102010 {ROWS};
                 INSERT INTO pg_dist_partition VALUES ('dist', 'h', 1, 's'), ('ref', 'n', 2, 't'), ('whole', 'h', 1, 's'),
                     ('part', 'h', 1, 's');
                 INSERT INTO pg_dist_shard VALUES ('dist', 102008, '0'), ('dist', 102009, '1'), ('ref', 102010, NULL),
                     ('whole', 102012, '0'), ('part', 102013, '0');
                 INSERT INTO pg_dist_placement VALUES (102008, 1, 0), (102009, 1, 1), (102010, 1, 0), (102010, 1, 1),
                     (102012, 1, 1), (102013, 1, 1);
                 UPDATE pg_dist_local_group SET groupid = {group}; DELETE FROM pg_dist_node"#
            ));
            for shard in shards {
                database.psql(&format!(
                    "CREATE TABLE {shard} {columns}; INSERT INTO {shard}
                     SELECT i, repeat(md5(i::text), 300) || (SELECT string_agg(md5((i * g)::text), '')
                         FROM generate_series(1, 100) g) FROM generate_series(1, 40 * ({group} + 1)) i"
                ));
            }
            for (group, node) in nodes.0.iter().enumerate() {
                let dir = node.socket_dir().file_name().unwrap().to_str().unwrap();
                let port = node.port();
                database.psql(&format!(
                    "INSERT INTO pg_dist_node VALUES ({group}, '{dir}', {port}, 'primary')"
                ));
            }
        }
        nodes
    }

    fn name(&self, at: usize) -> String {
        let dir = self.0[at].socket_dir().file_name().unwrap().to_str().unwrap();
        format!("{dir}:{}", self.0[at].port())
    }

    fn psql(&self, at: usize, sql: &str) -> String {
        self.0[at].database("postgres").psql(sql)
    }

    /// The verb in a session of this node.
    fn run(&self, at: usize, arguments: &[&str]) -> Run {
        let mut command = verb(&self.0[at].database("postgres").url(), arguments);
        let parent = self.0[0].socket_dir().parent().unwrap();
        command.arg(format!("--node-address=host={}/{{host}} port={{port}}", parent.display()));
        run(&mut command)
    }

    fn json(&self, at: usize, arguments: &[&str]) -> (Run, Value) {
        let run = self.run(at, &[arguments, &["--format", "json"]].concat());
        let report = serde_json::from_str(&run.stdout).unwrap_or(Value::Null);
        (run, report)
    }

    fn sum(&self, tables: &[(usize, &str)]) -> u64 {
        let of = |(at, table): &(usize, &str)| {
            // and the pointers, which pg_column_size does not count
            let sql = "SELECT sum(pg_column_size(v)) + 18 * (SELECT count(DISTINCT chunk_id) FROM";
            let toast =
                format!("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = '{table}'");
            number(&self.psql(*at, &format!("{sql} {}) FROM {table}", self.psql(*at, &toast))))
        };
        tables.iter().map(of).sum()
    }
}

#[test]
fn shards_on_all_nodes_are_one_table() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.name(0), nodes.name(1));
    for at in [0, 1] {
        let (run, report) = nodes.json(at, &["inspect", "dist", "ref", "whole"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let column = |relation: &str| {
            let columns = report["columns"].as_array().unwrap();
            let of = |column: &&Value| column["relation"] == relation && column["column"] == "v";
            columns.iter().find(of).unwrap_or_else(|| panic!("{relation}: {report:#}"))
        };
        let figures = |relation| {
            let column = column(relation);
            (&column["parts"], &column["copies"], column["stored_bytes"]["estimate"].as_u64())
        };
        let dist = nodes.sum(&[(0, "dist_102008"), (1, "dist_102009")]);
        assert_eq!(figures("public.dist"), (&json!(2), &Value::Null, Some(dist)));
        assert_eq!(column("public.dist")["values"]["estimate"], 120);
        let copies = nodes.sum(&[(0, "ref_102010"), (1, "ref_102010")]);
        assert_eq!(figures("public.ref"), (&json!(2), &json!(2), Some(copies)));
        let whole = nodes.sum(&[(1, "part_102013")]);
        assert_eq!(figures("public.whole"), (&json!(1), &Value::Null, Some(whole)));
        let spread = report["citus"].as_array().unwrap();
        let of = |spread: &Value| {
            (spread["table"].clone(), spread["shards"].clone(), spread["copies"].clone())
        };
        let named =
            |table: &str, shards: u64, copies: u64| (json!(table), json!(shards), json!(copies));
        let mut tables: Vec<_> = spread.iter().map(of).collect();
        tables.sort_by_key(|table| table.0.to_string());
        assert_eq!(
            tables,
            [named("public.dist", 2, 1), named("public.ref", 1, 2), named("public.whole", 1, 1)]
        );
        // One database of each node, not one of them twice.
        let size = |at| number(&nodes.psql(at, "SELECT pg_database_size('postgres')"));
        let database = report["totals"]["database_bytes"].as_u64().unwrap();
        let sizes = size(0) + size(1);
        assert!(database.abs_diff(sizes) < sizes / 10, "{database} {sizes}");
    }
    let parts = nodes.run(0, &["inspect", "ref", "dist", "--parts"]);
    for line in [
        format!("dist_102008 on {one}"),
        format!("dist_102009 on {two}"),
        format!("ref_102010 on {one}"),
        format!("ref_102010 on {two}"),
    ] {
        assert!(parts.stdout.contains(&line), "{line}: {}", parts.stdout);
    }
    let text = nodes.run(0, &["inspect", "dist", "ref"]);
    assert!(text.stdout.contains("ref (2 copies)"), "{}", text.stdout);
    assert!(text.stdout.contains("dist: 2 shards on 2 nodes; the largest has "), "{}", text.stdout);
    let details = nodes.run(0, &["inspect", "dist", "--details"]);
    assert!(
        details.stdout.contains(&format!("shard of public.dist on {two}")),
        "{}",
        details.stdout
    );
    assert_eq!(details.code, Some(0), "{}", details.stderr);
}

#[test]
fn a_node_that_is_lost_costs_only_its_shards_and_one_that_is_another_is_not_read() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.name(0), nodes.name(1));
    // The address of the metadata, unless it is rewritten.
    let unreached = run(&mut verb(&nodes.0[0].database("postgres").url(), &["inspect", "dist"]));
    refused(&unreached, 1, ": public.dist_102009: could not translate host name");
    let usage = run(verb(&nodes.0[0].database("postgres").url(), &["check", "dist"])
        .arg("--node-address=port={port}"));
    refused(&usage, 2, "the address of a node needs a host");
    nodes.psql(1, "UPDATE pg_dist_local_group SET groupid = 0");
    let other = format!(
        "{two}: public.dist_102009: the server at this address is the node {one}, by its metadata"
    );
    for verb in ["inspect", "check"] {
        refused(&nodes.run(0, &[verb, "dist"]), 1, &other);
    }
    nodes.psql(
        1,
        "UPDATE pg_dist_local_group SET groupid = 1; ALTER TABLE dist_102009 RENAME TO gone",
    );
    let moved = format!("{two}: public.dist_102009: the shard was not found");
    for verb in ["inspect", "check"] {
        refused(&nodes.run(0, &[verb, "dist"]), 1, &moved);
    }
    nodes.0[1].stop();
    for verb in ["inspect", "check"] {
        let (run, report) = nodes.json(0, &[verb, "dist", "ref"]);
        let shards = "public.dist_102009, public.ref_102010";
        refused(&run, 1, &format!("{two}: {shards}: connection to server"));
        if verb == "inspect" {
            let left_out = &report["left_out"][0];
            assert_eq!(left_out["relation"], format!("public.dist_102009 on {two}"));
            assert!(left_out["bytes"].is_null() && left_out["reason"] == "its node failed");
            assert_eq!(report["totals"]["read"], 2);
        } else {
            assert_eq!(report["relations"].as_array().unwrap().len(), 2);
        }
    }
    let text = nodes.run(0, &["inspect", "dist", "ref"]).stdout;
    assert!(text.contains("ref (1 of 2 copies)"), "{text}");
    assert!(text.contains("Not read: 2 tables, of unknown size"), "{text}");
}

#[test]
fn damage_is_reported_with_its_node_and_saved_by_node() {
    let nodes = Nodes::start();
    let two = nodes.name(1);
    let sound = nodes.run(0, &["check", "dist", "ref", "whole"]);
    assert_eq!((sound.code, sound.stderr.as_str()), (Some(0), ""), "{}", sound.stdout);
    assert!(sound.stdout.starts_with("5 tables: all sound (280 rows"), "{}", sound.stdout);
    let toast =
        nodes.psql(1, "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'dist_102009'");
    let kind = |kind: char| {
        format!("UPDATE pg_class SET relkind = '{kind}' WHERE oid = '{toast}'::regclass")
    };
    nodes.psql(1, &format!(
        "SET allow_system_table_mods = on; {}; DELETE FROM {toast} WHERE chunk_seq = 0 AND chunk_id IN
             (SELECT chunk_id FROM {toast} LIMIT 1); {}",
        kind('r'),
        kind('t')
    ));
    let dir = tempfile::tempdir().unwrap();
    let salvage = dir.path().join("new");
    let (run, report) =
        nodes.json(0, &["check", "dist", "ref", "--salvage", salvage.to_str().unwrap()]);
    assert_eq!(run.code, Some(5), "{}{}", run.stdout, run.stderr);
    let schema: Value = serde_json::from_str(schema("check").unwrap()).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&report), "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(
        (finding["relation"].as_str(), finding["node"].as_str()),
        (Some("public.dist_102009"), Some(two.as_str()))
    );
    let checked = report["relations"].as_array().unwrap();
    let shard = checked.iter().find(|one| one["relation"] == "public.dist_102009").unwrap();
    assert_eq!((&shard["shard"]["node"], &shard["shard"]["id"]), (&json!(two), &json!(102_009)));
    let of_node =
        salvage.join(two.replace(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c), "_"));
    let manifest = std::fs::read_to_string(of_node.join("manifest.jsonl")).unwrap();
    assert!(manifest.contains("public.dist_102009"), "{manifest}");
    let text = nodes.run(0, &["check", "dist"]);
    assert!(text.stdout.contains(&format!(" {two} public.dist_102009, block ")), "{}", text.stdout);
}

/// A column's candidate that is named so.
fn candidate<'a>(column: &'a Value, name: &str) -> &'a Value {
    let candidates = column["candidates"].as_array().unwrap();
    let of = |candidate: &&Value| candidate["name"] == name;
    candidates.iter().find(of).unwrap_or_else(|| panic!("{name}: {column:#}"))
}

const ADVISE: [&str; 4] = ["advise-threshold", "--column", "v", "--calibrate=never"];

fn advice(nodes: &Nodes, at: usize, arguments: &[&str]) -> (Run, Value) {
    let (run, report) = nodes.json(at, &[&ADVISE[..], arguments].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let schema: Value = serde_json::from_str(schema("advise-threshold").unwrap()).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&report), "{report:#}");
    let columns = report["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 1, "{report:#}");
    (run, columns[0].clone())
}

#[test]
fn advice_is_about_all_shards_together() {
    let nodes = Nodes::start();
    let all = ["--sample", "100%"];
    let table = |at, table: &str| advice(&nodes, at, &[&[table], &all[..]].concat()).1;
    let one = [table(0, "dist_102008"), table(1, "dist_102009")];
    assert_eq!(one[0]["citus"], Value::Null);
    let estimate = |column: &Value, name: &str, part: &str, figure: &str| {
        let figure = &candidate(column, name)[part][figure]["estimate"];
        figure.as_f64().unwrap_or_else(|| panic!("{part} {name}: {column:#}"))
    };
    for at in [0, 1] {
        let merged = table(at, "dist");
        assert_eq!(merged["relation"], "public.dist");
        let sample = &merged["sample"];
        assert_eq!(merged["citus"], json!({"shards": 2, "nodes": 2, "not_read": 0, "copies": 2}));
        assert_eq!((&sample["rows"], &sample["complete"]), (&json!(120), &json!(true)));
        let sum = |of: &dyn Fn(&Value) -> f64| one.iter().map(of).sum::<f64>();
        for file in ["heap_bytes", "toast_bytes", "toast_index_bytes", "total_bytes"] {
            let files = |column: &Value| column["files"][file].as_f64().unwrap();
            assert_eq!(files(&merged), sum(&files), "{file}");
            for name in ["today", "extended lz4", "external"] {
                let figure = |column: &Value| estimate(column, name, "after_vacuum_full", file);
                assert_eq!(figure(&merged), sum(&figure), "{name} {file}");
            }
        }
        for name in ["today", "extended lz4"] {
            let after =
                |c: &Value| candidate(c, name)["after_command_bytes"]["estimate"].as_f64().unwrap();
            let (merged, sum) = (after(&merged), sum(&after));
            assert!((merged - sum).abs() <= 6.0 * 8192.0, "{name}: {merged} {sum}");
        }
        let command = merged["recommendation"]["command"].as_array().unwrap();
        if !command.is_empty() {
            assert_eq!(command[..3], [json!("toastctl"), json!("retoast"), json!("public.dist")]);
        }
    }
    // Of a reference table one copy is read, and all are counted.
    let (one, merged) = (table(1, "ref_102010"), table(1, "ref"));
    let citus = json!({"shards": 1, "nodes": 1, "not_read": 0, "copies": 2});
    assert_eq!(merged["citus"], citus);
    for name in ["today", "extended lz4"] {
        let figure = |column: &Value| estimate(column, name, "after_vacuum_full", "total_bytes");
        assert_eq!(figure(&merged), 2.0 * figure(&one), "{name}");
    }
    assert_eq!(
        merged["files"]["total_bytes"].as_u64(),
        one["files"]["total_bytes"].as_u64().map(|bytes| 2 * bytes)
    );
    // A partitioned table is advised on as its partitions.
    let whole = table(0, "whole");
    assert_eq!(whole["relation"], "public.part");
    assert_eq!(whole["sample"]["rows"], 80);
    let text = nodes.run(0, &[&ADVISE[..], &["dist", "--sample", "100%", "--details"]].concat());
    assert!(text.stdout.contains(" blocks of 2 shards on 2 nodes, 120 rows"), "{}", text.stdout);
    assert!(text.stdout.contains("What compaction alone would"), "{}", text.stdout);
    let command = nodes.run(0, &[&ADVISE[..], &["dist", "--emit", "command"]].concat());
    let whole_table = ["toastctl retoast public.dist --column v ", "# public.dist, column v: keep"];
    assert!(
        whole_table.iter().any(|begin| command.stdout.starts_with(begin)),
        "{}",
        command.stdout
    );
    let sql = nodes.run(0, &[&ADVISE[..], &["dist", "--emit", "sql"]].concat());
    let statements = ["ALTER TABLE \"public\".\"dist\" ALTER", "-- public.dist, column v: keep"];
    assert!(statements.iter().any(|begin| sql.stdout.starts_with(begin)), "{}", sql.stdout);
    for (at, shard) in [(0, "dist_102008"), (1, "dist_102009")] {
        let external = ["dist", shard]
            .map(|table| format!("ALTER TABLE {table} ALTER v SET STORAGE external;"));
        nodes.psql(at, &format!("{} UPDATE {shard} SET v = v || ''", external.concat()));
    }
    let storage = ["dist", "--emit", "sql", "--optimize", "size"];
    let storage = nodes.run(0, &[&ADVISE[..], &storage].concat());
    let refuses =
        "-- Citus refuses SET STORAGE for its tables; instead: toastctl retoast public.dist ";
    assert!(storage.stdout.starts_with(refuses), "{}", storage.stdout);
    let kept = nodes.run(0, &["advise-threshold", "dist", "--calibration", "/tmp/none"]);
    refused(&kept, 2, "--calibration keeps the times of one server");
}

#[test]
fn a_sample_of_shards_stands_for_the_table_that_they_are() {
    let nodes = Nodes::start();
    let rows = |first: u32, last: u32, length: u32| {
        format!(
            "SELECT i, (SELECT string_agg(md5((i * g)::text), '') FROM generate_series(1, {length} + i % 7) g)
             FROM generate_series({first}, {last}) i"
        )
    };
    let (few, many) = (rows(1, 2000, 10), rows(2001, 8000, 30));
    nodes.psql(0, &format!("TRUNCATE dist_102008; INSERT INTO dist_102008 {few}"));
    nodes.psql(1, &format!("TRUNCATE dist_102009; INSERT INTO dist_102009 {many}"));
    nodes.psql(
        0,
        &format!("CREATE TABLE same (LIKE dist INCLUDING ALL); INSERT INTO same {few}; INSERT INTO same {many}"),
    );
    let (_, same) = advice(&nodes, 0, &["same", "--sample", "100%"]);
    // compressed by the server, too
    let exact = ["dist", "--sample", "150", "--exact"];
    for arguments in [&["dist", "--sample", "150"][..], &["dist"], &exact] {
        let (_, merged) = advice(&nodes, 0, arguments);
        let sampled = &merged["sample"];
        assert_eq!(merged["citus"]["shards"], 2);
        if arguments.len() > 1 {
            let blocks = sampled["blocks"].as_u64().unwrap();
            assert!((150..=151).contains(&blocks), "{sampled}");
            assert_eq!(sampled["complete"], false);
        }
        for name in ["today", "extended lz4", "extended lz4 target 4080"] {
            let of = |column: &Value| {
                candidate(column, name)["after_vacuum_full"]["total_bytes"].clone()
            };
            let (truth, figure) = (of(&same), of(&merged));
            let truth = truth["estimate"].as_f64().unwrap();
            // another file has two partly filled pages more
            let (low, high) =
                (figure["low"].as_f64().unwrap() - 4.0 * 8192.0, figure["high"].as_f64().unwrap());
            assert!((low..=high + 4.0 * 8192.0).contains(&truth), "{name}: {truth} {figure}");
            assert!((high - low) < truth * 0.4, "{name}: {figure}");
        }
    }
}

#[test]
fn shards_without_advice_are_named_and_not_counted() {
    let nodes = Nodes::start();
    let two = nodes.name(1);
    let advise = |arguments: &[&str]| {
        let all = [&ADVISE[..], &["--sample", "100%"], arguments].concat();
        let (run, report) = nodes.json(0, &all);
        (run, report["columns"][0].clone())
    };
    let (_, alone) = advise(&["dist_102008"]);
    let partly = |text: &str| {
        let (run, column) = advise(&["dist"]);
        refused(&run, 1, text);
        let citus = json!({"shards": 1, "nodes": 1, "not_read": 1, "copies": 1});
        assert_eq!(column["citus"], citus, "{column:#}");
        assert_eq!(column["sample"]["complete"], false);
        assert_eq!(column["files"], alone["files"]);
        assert_eq!(column["problem_count"], 1, "{column:#}");
        let caveats = &candidate(&column, "extended lz4")["caveats"];
        assert_eq!(caveats[0], "1 of its shards were not read, and are not in these figures");
    };
    nodes.psql(1, "ALTER TABLE dist_102009 RENAME TO gone");
    partly(&format!("{two}: public.dist_102009: the shard was not found: it may have been moved"));
    nodes.psql(
        1,
        "ALTER TABLE gone RENAME TO dist_102009; UPDATE pg_dist_local_group SET groupid = 0",
    );
    let other = "the server at this address is the node";
    partly(&format!("{two}: public.dist_102009: {other} {}", nodes.name(0)));
    nodes.psql(1, "UPDATE pg_dist_local_group SET groupid = 1");
    nodes.psql(1, "ALTER TABLE dist_102009 ALTER v SET STORAGE external");
    // the largest is what the others are compared with
    let (run, column) = advise(&["dist"]);
    let text = format!(
        "error: {}: public.dist_102008: column \"v\" is text extended pglz, and text external pglz in \
         public.dist_102009",
        nodes.name(0)
    );
    refused(&run, 1, &text);
    assert_eq!(column["citus"]["not_read"], 1);
    let notes = column["notes"].to_string();
    assert!(
        notes.contains("are not those of its shards: column \\\"v\\\" is text extended"),
        "{notes}"
    );
    nodes.psql(1, "ALTER TABLE dist_102009 ALTER v SET STORAGE extended");
    for (table, code, text) in [
        ("dist --column w", 1, "column \"w\" of relation \"public.dist\" does not exist"),
        ("dist --column id", 2, "values have a fixed length and are never toasted"),
    ] {
        let words: Vec<&str> = table.split(' ').collect();
        refused(&nodes.run(0, &[&["advise-threshold"], &words[..]].concat()), code, text);
    }
    nodes.0[1].stop();
    partly(&format!("{two}: public.dist_102009: connection to server"));
    nodes.psql(0, "DELETE FROM pg_dist_placement WHERE groupid = 0 AND shardid = 102008");
    let (run, _) = advise(&["dist"]);
    refused(&run, 1, "public.dist: no shard could be read: ");
    assert_eq!(run.stdout, "");
}

/// How values are stored, and the settings of the table and of its shard.
fn stored(nodes: &Nodes, at: usize, shard: &str) -> String {
    nodes.psql(at, &format!(
        "SELECT concat((SELECT string_agg(DISTINCT pg_column_compression(v), ',') FROM {shard}), ' ',
             string_agg(concat(attstorage, attcompression), ',' ORDER BY attrelid::regclass::text))
         FROM pg_attribute WHERE attname = 'v' AND attrelid IN ('{shard}'::regclass, 'dist'::regclass)"
    ))
}

const RETOAST: [&str; 3] = ["retoast", "dist", "--format=json"];

#[test]
fn all_shards_and_the_tables_on_all_nodes_are_converted() {
    let nodes = Nodes::start();
    let content = |at, shard: &str| {
        nodes.psql(at, &format!("SELECT md5(string_agg(v, '' ORDER BY id)) FROM {shard}"))
    };
    let before = (content(0, "dist_102008"), content(1, "dist_102009"));
    let plan = nodes.run(1, &["retoast", "dist", "whole", "--dry-run"]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    assert!(
        plan.stdout
            .contains("public.dist (2 shards on 2 nodes), v to lz4: dry run: nothing was changed"),
        "{}",
        plan.stdout
    );
    assert!(
        plan.stderr.contains("would set on 2 nodes: ALTER TABLE ONLY \"public\".\"dist\""),
        "{}",
        plan.stderr
    );
    assert_eq!(stored(&nodes, 0, "dist_102008"), "pglz xp,xp");
    // On any node with metadata.
    let run = nodes.run(1, &RETOAST);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let schema: Value = serde_json::from_str(schema("retoast").unwrap()).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&report), "{report:#}");
    let citus = &report["citus"][0];
    assert_eq!(
        (&citus["table"], &citus["shards"], &citus["missing"]),
        (&json!("public.dist"), &json!(2), &json!([]))
    );
    let places: Vec<&Value> =
        report["tables"].as_array().unwrap().iter().map(|table| &table["shard"]["node"]).collect();
    assert_eq!(places, [&json!(nodes.name(0)), &json!(nodes.name(1))]);
    assert_eq!(stored(&nodes, 0, "dist_102008"), "lz4 xl,xl");
    assert_eq!(stored(&nodes, 1, "dist_102009"), "lz4 xl,xl");
    assert_eq!((content(0, "dist_102008"), content(1, "dist_102009")), before);
    // A partition and its parent, and each copy of a reference table.
    for table in ["whole", "ref"] {
        let run = nodes.run(0, &["retoast", table, "--target", "1024"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(
            run.stdout.contains("complete: all values are stored as requested"),
            "{}",
            run.stdout
        );
    }
    for at in [0, 1] {
        let set =
            "SELECT string_agg(concat(relname, attcompression, reloptions), ' ' ORDER BY relname)
             FROM pg_class JOIN pg_attribute ON attrelid = oid
             WHERE attname = 'v' AND relname IN ('whole', 'part', 'ref', 'ref_102010')";
        let target = "{toast_tuple_target=1024}";
        let all = format!("partl{target} refl{target} ref_102010l{target} wholel");
        assert_eq!(nodes.psql(at, set), all);
    }
    for verb in ["compact", "reindex"] {
        let run = nodes.run(0, &[verb, "dist", "ref"]);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("public.dist (2 shards on 2 nodes), "), "{}", run.stdout);
    }
}

/// A partition that is named alone is not the table that it belongs to.
/// Shards on different nodes are converted at the same time.
#[test]
fn the_last_line_counts_every_shard_once_and_their_time_together() {
    let nodes = Nodes::start();
    // both wait for two seconds at the beginning
    let until = nodes.psql(0, "SELECT clock_timestamp() + '2 s'");
    let query = format!("SELECT clock_timestamp() < '{until}'");
    let begun = Instant::now();
    let run = nodes.run(0, &["retoast", "dist", "--throttle-query", &query]);
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, last) =
        words.split_once("120 rows re-toasted in ").unwrap_or_else(|| panic!("{words}"));
    let (seconds, _) = last.split_once(" s, ").unwrap_or_else(|| panic!("{last}"));
    let seconds: f64 = seconds.parse().unwrap();
    // one after the other they would take twice as long
    assert!(seconds > 1.0 && seconds <= took && seconds < 3.5, "{seconds} of {took}: {words}");
    assert_eq!(words.matches("rows re-toasted in").count(), 1, "{words}");
    let bytes = |at: usize, shard: &str| {
        number(&nodes.psql(
            at,
            &format!(
                "SELECT sum(pg_relation_size(c.oid)) FROM pg_class AS c LEFT JOIN pg_index ON indexrelid = c.oid,
                     pg_class AS t WHERE t.relname = '{shard}' AND coalesce(indrelid, c.oid) IN (t.oid, t.reltoastrelid)"
            ),
        ))
    };
    let now = bytes(0, "dist_102008") + bytes(1, "dist_102009");
    assert!(
        words.contains(&format!(" {} kB now (heap, TOAST, indexes)", now / 1024)),
        "{now} {words}"
    );
}

#[test]
fn a_partition_is_named_as_itself_unless_its_siblings_are_meant_too() {
    let nodes = Nodes::start();
    for at in [0, 1] {
        nodes.psql(
            at,
            "CREATE TABLE rest PARTITION OF whole FOR VALUES FROM (1000) TO (2000);
             INSERT INTO pg_dist_partition VALUES ('rest', 'h', 1, 's');
             INSERT INTO pg_dist_shard VALUES ('rest', 102014, '0');
             INSERT INTO pg_dist_placement VALUES (102014, 1, 1)",
        );
    }
    nodes.psql(1, "CREATE TABLE rest_102014 (LIKE part_102013 INCLUDING ALL)");
    for (named, said) in [
        (&["part"][..], "public.part ("),
        (&["whole"], "public.whole ("),
        (&["part", "rest"], "public.whole ("),
    ] {
        let verb = ["retoast", "--dry-run"];
        let run = nodes.run(0, &[&verb[..], named].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stdout.contains(said), "{named:?}: {}", run.stdout);
    }
}

#[test]
fn nothing_is_changed_unless_every_shard_can_be_converted() {
    let nodes = Nodes::start();
    let (one, two) = (nodes.name(0), nodes.name(1));
    let unchanged = || {
        assert_eq!(stored(&nodes, 0, "dist_102008"), "pglz xp,xp");
    };
    for (change, text) in [
        (
            "ALTER DATABASE postgres SET default_transaction_read_only = on",
            "transactions are read-only by default here",
        ),
        (
            "UPDATE pg_dist_local_group SET groupid = 0",
            format!("the server at this address is the node {one}").as_str(),
        ),
        ("CREATE RULE r AS ON UPDATE TO dist_102009 DO INSTEAD NOTHING", "public.dist_102009"),
        (
            "ALTER TABLE dist RENAME TO other",
            "public.dist: the table is not in the metadata of this node",
        ),
    ] {
        nodes.psql(1, change);
        let run = nodes.run(0, &RETOAST);
        refused(&run, 1, &format!("error: {two}: "));
        assert!(
            run.stderr.contains(text) && run.stderr.contains("Nothing was changed"),
            "{}",
            run.stderr
        );
        unchanged();
        nodes.psql(1, "SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only;
            UPDATE pg_dist_local_group SET groupid = 1; DROP RULE IF EXISTS r ON dist_102009");
    }
    nodes.psql(1, "ALTER TABLE other RENAME TO dist");
    for (arguments, text) in [
        (&["--undo"][..], "--undo is not supported for tables of Citus"),
        (&["plain"], "some of these tables are tables of Citus, and others are not"),
    ] {
        nodes.psql(0, "CREATE TABLE IF NOT EXISTS plain (v text)");
        refused(&nodes.run(0, &[&RETOAST[..], arguments].concat()), 2, text);
    }
    nodes.0[1].stop();
    let lost = nodes.run(0, &RETOAST);
    refused(&lost, 3, &format!("error: {two}: connection to server"));
    unchanged();
    nodes.0[1].start_again();
    assert_eq!(nodes.run(0, &RETOAST).code, Some(0));
}

/// Shards that Citus splits take the table's settings, and the application's INSERTs into them would fail.
#[test]
fn tables_keep_their_settings_where_rows_of_a_shard_do_not_fit_an_index() {
    let nodes = Nodes::start();
    for (at, shard) in [(0, "dist_102008"), (1, "dist_102009")] {
        nodes.psql(
            at,
            &format!("DELETE FROM {shard} WHERE id > 30; UPDATE {shard} SET v = repeat(md5(id::text), 100);
                      CREATE INDEX by_v ON {shard} (v)"),
        );
    }
    nodes.psql(1, &format!("{WORDS}; INSERT INTO dist_102009 SELECT i, words(9000, i) FROM generate_series(31, 60) i"));
    let shells = || {
        let sql = "SELECT attcompression FROM pg_attribute WHERE attname = 'v' AND attrelid = 'dist'::regclass";
        [nodes.psql(0, sql), nodes.psql(1, sql)]
    };
    let plan = nodes.run(0, &["retoast", "dist", "--dry-run"]);
    assert!(!plan.stderr.contains("would set on 2 nodes"), "{}", plan.stderr);
    let run = nodes.run(0, &RETOAST);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("its settings for new shards stay as they are"), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["citus"][0]["set"], json!([]), "{report:#}");
    assert_eq!(shells(), ["p", "p"]);
    // where all rows fit, they get the settings after the shards
    nodes.psql(1, "DELETE FROM dist_102009 WHERE id > 30");
    let run = nodes.run(0, &RETOAST);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("set on 2 nodes: ALTER TABLE ONLY"), "{}", run.stderr);
    assert_eq!(shells(), ["l", "l"]);
}

#[test]
fn shards_that_move_are_followed_and_one_that_is_nowhere_is_not_complete() {
    let nodes = Nodes::start();
    for at in [0, 1] {
        nodes.psql(at, "CREATE TABLE pauses (yes bool); INSERT INTO pauses VALUES (true)");
    }
    let paused = || {
        let mut command = verb(&nodes.0[0].database("postgres").url(), &RETOAST);
        let parent = nodes.0[0].socket_dir().parent().unwrap();
        command.arg(format!("--node-address=host={}/{{host}} port={{port}}", parent.display()));
        command.args(["--throttle-query", "SELECT yes FROM public.pauses"]);
        let running = Running::start(&mut command);
        running.says("is true (--throttle-query)");
        running
    };
    let running = paused();
    nodes.psql(
        0,
        "CREATE TABLE dist_102009 (LIKE dist INCLUDING ALL);
        INSERT INTO dist_102009 SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 80) i;
        UPDATE pg_dist_placement SET groupid = 0 WHERE shardid = 102009",
    );
    nodes.psql(1, "DROP TABLE dist_102009");
    for at in [0, 1] {
        nodes.psql(at, "UPDATE pauses SET yes = false");
    }
    let moved = running.end();
    assert_eq!(moved.code, Some(0), "{}{}", moved.stdout, moved.stderr);
    let report: Value = serde_json::from_str(&moved.stdout).unwrap();
    assert_eq!(
        (&report["citus"][0]["shards"], &report["citus"][0]["nodes"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(stored(&nodes, 0, "dist_102009"), "lz4 xl,xl");
    // The metadata places it where it is not: nothing else is changed before the run, and what is lost in the meantime is
    // named.
    nodes.psql(0, "UPDATE pg_dist_placement SET groupid = 1 WHERE shardid = 102009; ALTER TABLE dist_102008 ALTER v SET COMPRESSION pglz");
    let nowhere = nodes.run(0, &RETOAST);
    refused(&nowhere, 1, "relation \"public.dist_102009\" does not exist");
    assert_eq!(stored(&nodes, 0, "dist_102008"), "lz4 xl,xp");
    nodes.psql(0, "UPDATE pg_dist_placement SET groupid = 0; UPDATE pauses SET yes = true");
    let running = paused();
    running.signal(Signal::TERM);
    let stopped = running.end();
    assert_eq!(stopped.code, Some(4), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("stopped by a signal; to continue: "), "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("error: "), "{}", stopped.stderr);
    let report: Value = serde_json::from_str(&stopped.stdout).unwrap();
    assert_eq!(report["citus"][0]["missing"][0]["reason"], "stopped before its turn");
    let running = paused();
    nodes.psql(0, "DROP TABLE dist_102009; UPDATE pauses SET yes = false");
    let missing = running.end();
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    let report: Value = serde_json::from_str(&missing.stdout).unwrap();
    let citus = &report["citus"][0]["missing"];
    assert_eq!(citus.as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(
        (&citus[0]["relation"], &citus[0]["node"]),
        (&json!("public.dist_102009"), &json!(nodes.name(0)))
    );
    assert!(missing.stderr.contains(": public.dist_102009: "), "{}", missing.stderr);
    assert_eq!(stored(&nodes, 0, "dist_102008"), "lz4 xl,xl");
}

#[test]
fn a_fleet_of_the_nodes_of_one_cluster_counts_its_tables_once() {
    let nodes = Nodes::start();
    let urls = [0, 1].map(|at| nodes.0[at].database("postgres").url());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, urls.join("\n").as_bytes()).unwrap();
    let parent = nodes.0[0].socket_dir().parent().unwrap().display().to_string();
    let fleet = |arguments: &[&str]| {
        let mut command = toastctl();
        command.args(arguments).arg("--targets").arg(file.path());
        command.arg(format!("--node-address=host={parent}/{{host}} port={{port}}"));
        run(&mut command)
    };
    let results = |arguments: &[&str], list: &str| {
        let done = fleet(&[arguments, &["--format", "jsonl"]].concat());
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        let said = done.stderr.matches("is a node of the same cluster of Citus as ").count();
        assert_eq!(said, 1, "{arguments:?}: {}", done.stderr);
        let reports = done.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lists = reports.map(|report| report["result"][list].as_array().unwrap().clone());
        lists.flatten().collect::<Vec<Value>>()
    };
    let columns = results(&["inspect", "dist"], "columns");
    let of_v: Vec<&Value> = columns.iter().filter(|column| column["column"] == "v").collect();
    let [v] = of_v.as_slice() else { panic!("{columns:#?}") };
    assert_eq!((&v["relation"], &v["values"]["estimate"]), (&json!("public.dist"), &json!(120)));
    assert_eq!(results(&["check", "dist", "ref"], "relations").len(), 4);
    // nor are they converted by each
    let done = fleet(&["retoast", "dist", "-c", "v", "--toaster", "lz4", "--format", "jsonl"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.stderr.matches("is a node of the same cluster of Citus as ").count(), 1);
    let reports = done.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let tables: Vec<usize> =
        reports.map(|report| report["result"]["tables"].as_array().unwrap().len()).collect();
    // the two shards, by one of the runs
    assert_eq!(tables.iter().sum::<usize>(), 2, "{tables:?}");
    let text = fleet(&["inspect", "dist"]).stdout;
    // the two shards
    assert!(text.contains("), 1 table, "), "{text}");
    // another cluster has other shards
    nodes.psql(1, "UPDATE pg_dist_shard SET shardid = shardid + 1000 WHERE shardid = 102012");
    let done = fleet(&["inspect", "ref"]);
    assert!(!done.stderr.contains("the same cluster"), "{}", done.stderr);
}

/// Verbs with tables of `Nodes`, as readers and planners.
const READING: [&[&str]; 11] = [
    &["inspect"],
    &["inspect", "dist", "ref", "whole", "--parts"],
    &["inspect", "dist", "--details"],
    &["inspect", "dist", "--policy", "best"],
    &["inspect", "dist", "--source", "functions"],
    &["check"],
    &["check", "--deep", "dist", "ref"],
    &["advise-threshold", "dist", "ref"],
    &["retoast", "dist", "--dry-run"],
    &["compact", "dist", "--dry-run"],
    &["reindex", "dist", "--dry-run"],
];

const WRITING: [&[&str]; 3] = [&["retoast", "dist"], &["compact", "dist"], &["reindex", "ref"]];

/// The lines of a log that an alarm reacts to, from this position on.
fn loud_lines(log: &str, from: usize) -> Vec<String> {
    let lines = log[from..].lines().filter(|line| {
        ["ERROR:", "WARNING:", "FATAL:", "PANIC:"].iter().any(|level| line.contains(level))
    });
    lines.map(str::to_owned).collect()
}

#[test]
fn no_verb_on_shards_leaves_an_error_in_the_log_of_a_node() {
    let nodes = Nodes::start();
    for arguments in READING.iter().chain(&WRITING) {
        let before = nodes.0.each_ref().map(|node| node.log().len());
        let done = nodes.run(0, arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        for (node, from) in nodes.0.iter().zip(before) {
            assert_eq!(loud_lines(&node.log(), from), [""; 0], "{arguments:?}");
        }
    }
}

#[test]
fn what_all_shards_of_a_table_lack_is_said_in_one_line() {
    let nodes = Nodes::start();
    for at in [0, 1] {
        nodes.psql(
            at,
            "CREATE ACCESS METHOD columnar TYPE TABLE HANDLER heap_tableam_handler;
             CREATE TABLE cold (id int, v text) USING columnar;
             INSERT INTO pg_dist_partition VALUES ('cold', 'h', 3, 's');
             INSERT INTO pg_dist_shard VALUES ('cold', 102020, '0'), ('cold', 102021, '1'), ('cold', 102022, '2');
             INSERT INTO pg_dist_placement VALUES (102020, 1, 0), (102021, 1, 1), (102022, 1, 1)",
        );
    }
    for (at, shard) in [(0, 102_020), (1, 102_021), (1, 102_022)] {
        let table = format!("CREATE TABLE cold_{shard} (id int, v text) USING columnar");
        nodes.psql(at, &format!("{table}; INSERT INTO cold_{shard} {ROWS}"));
    }
    let run = nodes.run(0, &["check", "cold"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let text = "access method is columnar, not heap";
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.contains(text)).collect();
    let [line] = lines.as_slice() else { panic!("{}", run.stderr) };
    assert!(line.contains("error: public.cold (3 shards): "), "{line}");
    assert!(!run.stderr.contains("cold_1020"), "{}", run.stderr);
    // what is not named is left out quietly: one line for all, and for monitoring nothing is missing
    nodes.psql(0, "CREATE TABLE cold_here (id int, v text) USING columnar");
    for arguments in [&["inspect", "cold"][..], &["inspect", "cold_here"]] {
        let run = nodes.run(0, arguments);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let said = nodes.run(0, &["inspect", "cold", "cold_here"]).stdout.replace('\n', " ");
    assert!(said.contains("Not looked at: 2 tables, whose access method is not heap"), "{said}");
    assert!(said.contains(": cold (3 shards, ") && !said.contains("cold_1020"), "{said}");
    for (arguments, text) in [
        (&["inspect"][..], "are tables of Citus"),
        (&["check"], "are tables, whose rows are stored by the access method columnar"),
        (&["inspect", "--format", "nagios"], "are tables of Citus"),
        (&["check", "--format", "nagios"], "are tables, whose rows are stored by"),
    ] {
        let run = nodes.run(0, arguments);
        assert!(
            run.code == Some(0) && !run.stderr.contains("error: "),
            "{arguments:?}: {}",
            run.stderr
        );
        assert!(run.stderr.contains(text), "{arguments:?}: {}", run.stderr);
    }
    for arguments in
        [&["retoast", "cold"][..], &["compact", "cold"], &["retoast", "cold", "--dry-run"]]
    {
        let run = nodes.run(0, arguments);
        refused(&run, 1, "error: public.cold: its access method is columnar, not heap\nHINT:  ");
        assert_eq!(run.stderr.lines().count(), 2, "{}", run.stderr);
    }
    assert_eq!(nodes.run(0, &["inspect", "cold", "--details"]).code, Some(0));
}

#[test]
fn a_dry_run_of_shards_says_what_that_of_a_table_says() {
    let nodes = Nodes::start();
    let planned = nodes.run(0, &["retoast", "dist", "--dry-run"]);
    assert_eq!(planned.code, Some(0), "{}", planned.stderr);
    for said in [
        "to go back: ALTER TABLE ONLY \"public\".\"dist\" ALTER COLUMN \"v\" SET COMPRESSION pglz\n",
        "and the values: toastctl retoast public.dist --column v --toaster extended\n",
        "\nexpected size of these rows: ",
        "\nexpected: about ",
        "\nexpected WAL: ",
        "\nlock: ROW EXCLUSIVE per transaction ",
    ] {
        assert!(planned.stdout.contains(said), "{said}: {}", planned.stdout);
    }
    // what was printed for a shard would be lost when Citus moves it
    assert!(!planned.stdout.contains("dist_1"), "{}", planned.stdout);
    let copies = nodes.run(0, &["retoast", "ref", "--dry-run"]);
    assert!(
        copies.stdout.starts_with("public.ref (2 copies on 2 nodes), v to lz4"),
        "{}",
        copies.stdout
    );
}

/// A node of a real cluster.
struct Node(String);

impl Node {
    fn psql(&self, sql: &str) -> String {
        let mut psql = Command::new(install::main().program("psql"));
        scrub(&mut psql);
        let run =
            run(psql.args(["-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.0, "-c", sql]));
        assert_eq!(run.code, Some(0), "{sql}: {}", run.stderr);
        run.stdout.trim_end().to_owned()
    }

    fn run(&self, options: &str, arguments: &[&str]) -> Run {
        run(verb(&self.0, arguments).env("PGOPTIONS", options))
    }
}

/// A real coordinator and one worker of it, if there is one.
fn cluster() -> Option<(Node, Node)> {
    let Ok(conninfo) = env::var("TOASTCTL_TEST_CITUS") else {
        eprintln!("skipped: TOASTCTL_TEST_CITUS names no coordinator of Citus");
        return None;
    };
    let coordinator = Node(conninfo);
    let worker = coordinator.psql(
        "SELECT format('host=%s port=%s', nodename, nodeport) FROM pg_dist_node
         WHERE groupid <> 0 AND noderole = 'primary' ORDER BY nodeid LIMIT 1",
    );
    let worker = Node(format!("{} {worker}", coordinator.0));
    Some((coordinator, worker))
}

#[test]
fn shards_that_citus_hides_are_counted_and_read_when_they_are_shown() {
    let Some((coordinator, worker)) = cluster() else { return };
    let columns = "(id int, v text COMPRESSION pglz)";
    let rows = "SELECT i, repeat(md5(i::text), 300) || string_agg(md5((i * j)::text), '') \
                FROM generate_series(1, 400) i, generate_series(1, 200) j GROUP BY i";
    coordinator.psql("DROP SCHEMA IF EXISTS toastctl_shown CASCADE");
    coordinator.psql("DROP SCHEMA IF EXISTS toastctl_tenant CASCADE");
    for sql in [
        "CREATE EXTENSION IF NOT EXISTS pageinspect".to_owned(),
        format!(
            "CREATE SCHEMA toastctl_shown; CREATE TABLE toastctl_shown.dist {columns}; CREATE TABLE toastctl_shown.ref {columns}; CREATE TABLE toastctl_shown.own {columns}"
        ),
        "SELECT create_distributed_table('toastctl_shown.dist', 'id', shard_count => 8)".to_owned(),
        "SELECT create_reference_table('toastctl_shown.ref')".to_owned(),
        "SELECT citus_add_local_table_to_metadata('toastctl_shown.own')".to_owned(),
        format!(
            "SET citus.enable_schema_based_sharding = on; CREATE SCHEMA toastctl_tenant; CREATE TABLE toastctl_tenant.t {columns}"
        ),
        format!(
            "INSERT INTO toastctl_shown.dist {rows}; INSERT INTO toastctl_shown.ref {rows}; INSERT INTO toastctl_shown.own {rows}; INSERT INTO toastctl_tenant.t {rows}"
        ),
    ] {
        coordinator.psql(&sql);
    }
    for (node, name) in [(&coordinator, "coordinator"), (&worker, "worker")] {
        let checked = node.run("", &["check", "toastctl_shown.*", "toastctl_tenant.*"]);
        assert_eq!(checked.code, Some(0), "{name}: {}{}", checked.stdout, checked.stderr);
        let arguments = ["inspect", "toastctl_*.*", "--sample", "100%", "--format", "json"];
        let run = node.run("", &arguments);
        assert_eq!(run.code, Some(0), "{name}: {}{}", run.stdout, run.stderr);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        for table in
            ["toastctl_shown.dist", "toastctl_shown.ref", "toastctl_shown.own", "toastctl_tenant.t"]
        {
            let columns = report["columns"].as_array().unwrap();
            let of = |column: &&Value| column["relation"] == table && column["column"] == "v";
            let column = columns.iter().find(of).unwrap();
            // with the pointers to values that are out of line
            let sql = "SELECT sum(pg_column_size(v)) + 18 * count(*) FROM %s";
            let sum = number(&coordinator.psql(&format!(
                "SELECT sum(result::bigint) FROM run_command_on_placements('{table}', '{sql}')"
            )));
            assert_eq!(column["stored_bytes"]["estimate"], sum, "{name}: {table}: {column}");
            let advice = ["advise-threshold", table, "--format", "json", "--calibrate=never"];
            let run = node.run("", &advice);
            assert_eq!(run.code, Some(0), "{name}: {}{}", run.stdout, run.stderr);
            let advice: Value = serde_json::from_str(&run.stdout).unwrap();
            let sql = "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(reltoastrelid)
                       FROM pg_class WHERE oid = '%s'::regclass";
            let files = number(&coordinator.psql(&format!(
                "SELECT sum(result::bigint) FROM run_command_on_placements('{table}', $q${sql}$q$)"
            )));
            assert_eq!(advice["columns"][0]["files"]["total_bytes"], files, "{name}: {table}");
        }
    }
    let all = "SELECT string_agg(DISTINCT result, ' ') FROM run_command_on_placements('toastctl_shown.dist',
         'SELECT string_agg(DISTINCT pg_column_compression(v), '','') FROM %s')";
    let content = "SELECT md5(string_agg(v, '' ORDER BY id)) FROM toastctl_shown.dist";
    let before = coordinator.psql(content);
    for arguments in [
        &["retoast", "toastctl_shown.dist"][..],
        &["retoast", "toastctl_shown.ref"],
        &["retoast", "toastctl_shown.own"],
        &["retoast", "toastctl_tenant.t"],
        &["compact", "toastctl_shown.dist"],
        &["reindex", "toastctl_shown.dist"],
    ] {
        let run = worker.run("", arguments);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    }
    assert_eq!((coordinator.psql(all), coordinator.psql(content)), ("lz4".to_owned(), before));
    let of_worker = "SELECT shardid FROM pg_dist_placement JOIN pg_dist_shard USING (shardid), pg_dist_local_group AS l
                     WHERE logicalrelid = 'toastctl_shown.dist'::regclass AND pg_dist_placement.groupid = l.groupid";
    let shards = worker.psql(of_worker);
    let first = format!("toastctl_shown.dist_{}", shards.lines().next().unwrap());
    refused(
        &worker.run("", &["inspect", &first]),
        1,
        "If it is a shard of Citus, it is hidden from this session",
    );
    let pattern = worker.run("", &["inspect", "toastctl_shown.dist_*"]);
    refused(&pattern, 1, "no table matches \"toastctl_shown.dist_*\"; ");
    assert!(pattern.stderr.contains("hidden from this session"), "{}", pattern.stderr);
    // As the hint says.
    let shown = "-c citus.override_table_visibility=off";
    for arguments in [&["inspect", "--sample", "100%"][..], &["check"]] {
        let run = worker.run(shown, arguments);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
        assert!(!run.stderr.contains("hidden"), "{}", run.stderr);
    }
    let inspected =
        worker.run(shown, &["inspect", "toastctl_shown.dist_*", "--details", "--format", "json"]);
    assert_eq!(inspected.code, Some(0), "{}", inspected.stderr);
    let report: Value = serde_json::from_str(&inspected.stdout).unwrap();
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.len(), shards.lines().count());
    let stored = |table: &Value| {
        table["details"]["columns"][1]["stored_bytes"]["estimate"].as_u64().unwrap()
    };
    let sums: u64 =
        shards
            .lines()
            .map(|shard| {
                number(&worker.psql(&format!(
                    "SELECT sum(pg_column_size(v)) FROM toastctl_shown.dist_{shard}"
                )))
            })
            .sum();
    assert_eq!(tables.iter().map(stored).sum::<u64>(), sums);
    // A plan refuses what the run would be refused after its ALTER.
    let text =
        "is a shard of toastctl_shown.dist, and Citus does not let this session change shards";
    refused(&worker.run(shown, &["retoast", &first, "--dry-run"]), 1, text);
    refused(&worker.run(shown, &["retoast", &first]), 1, text);
    let may = "-c citus.override_table_visibility=off -c citus.enable_manual_changes_to_shards=on";
    for arguments in
        [&["retoast", &first, "--dry-run"][..], &["retoast", &first], &["compact", &first]]
    {
        let run = worker.run(may, arguments);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    }
    coordinator.psql("DROP SCHEMA toastctl_shown CASCADE");
    coordinator.psql("DROP SCHEMA toastctl_tenant CASCADE");
}

#[test]
fn a_columnar_table_takes_what_its_file_takes() {
    let Some((coordinator, _)) = cluster() else { return };
    coordinator.psql("CREATE EXTENSION IF NOT EXISTS pageinspect");
    coordinator.psql("CREATE EXTENSION IF NOT EXISTS citus_columnar");
    coordinator.psql("DROP TABLE IF EXISTS public.toastctl_cold");
    coordinator.psql(&format!(
        "CREATE TABLE public.toastctl_cold (id int, v text) USING columnar; INSERT INTO public.toastctl_cold {ROWS}"
    ));
    let run = coordinator.run("", &["inspect", "public.toastctl_cold", "--format", "json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let cold = &report["tables"][0];
    assert_eq!(cold["access_method"], "columnar");
    let bytes = number(&coordinator.psql("SELECT pg_relation_size('public.toastctl_cold')"));
    assert_eq!(cold["heap_bytes"], bytes);
    let value = &cold["details"]["columns"][1];
    assert_eq!(
        (&value["raw_bytes"]["estimate"], &value["values"]["estimate"]),
        (&Value::from(40 * 9600), &Value::from(40))
    );
    assert!(value["stored_bytes"].is_null() && value["share"].is_null(), "{value}");
    refused(
        &coordinator.run("", &["check", "public.toastctl_cold"]),
        1,
        "access method is columnar, not heap",
    );
    refused(
        &coordinator.run("", &["retoast", "public.toastctl_cold", "--dry-run"]),
        1,
        "access method is columnar, not heap",
    );
    coordinator.psql("DROP TABLE public.toastctl_cold");
}

/// Nodes must write their logs by a collector; those of workers are read through the coordinator.
#[test]
fn no_verb_leaves_an_error_in_the_logs_of_a_real_cluster() {
    let Some((coordinator, _)) = cluster() else { return };
    if coordinator.psql("SHOW logging_collector") != "on" {
        eprintln!("skipped: the coordinator has no logging_collector");
        return;
    }
    coordinator.psql("CREATE EXTENSION IF NOT EXISTS pageinspect");
    coordinator.psql("DROP TABLE IF EXISTS public.toastctl_quiet, public.toastctl_quiet_cold");
    coordinator
        .psql("CREATE TABLE public.toastctl_quiet (id int PRIMARY KEY, v text COMPRESSION pglz)");
    coordinator
        .psql("SELECT create_distributed_table('public.toastctl_quiet', 'id', shard_count => 8)");
    coordinator.psql(&format!("INSERT INTO public.toastctl_quiet {ROWS}"));
    coordinator.psql("CREATE TABLE public.toastctl_quiet_cold (id int, v text) USING columnar");
    coordinator.psql(
        "SELECT create_distributed_table('public.toastctl_quiet_cold', 'id', shard_count => 8)",
    );
    coordinator.psql(&format!("INSERT INTO public.toastctl_quiet_cold {ROWS}"));
    // that of this program, by lines
    let loud = || {
        coordinator.psql(
            "SELECT coalesce(sum(result::bigint), -1) FROM run_command_on_all_nodes($$SELECT count(*) FROM
                 regexp_split_to_table(pg_read_file(pg_current_logfile()), E'\\n') AS line
                 WHERE line ~ 'toastctl.*(ERROR|WARNING|FATAL|PANIC):'$$)",
        )
    };
    let before = loud();
    let table = "public.toastctl_quiet";
    for arguments in [
        &["inspect", table][..],
        &["inspect", table, "--details"],
        &["inspect", "public.toastctl_quiet*"],
        &["check", "--deep", table],
        &["check", "public.toastctl_quiet*"],
        &["advise-threshold", table],
        &["retoast", table, "--dry-run"],
        &["retoast", table],
        &["compact", table],
        &["reindex", table],
        &["inspect", "public.toastctl_quiet_cold", "--details"],
        &["retoast", "public.toastctl_quiet_cold"],
    ] {
        let run = coordinator.run("", arguments);
        let lines = run.stderr.lines().filter(|line| line.contains("error: ")).count();
        assert!(lines <= 1, "{arguments:?}: {}", run.stderr);
        assert_eq!(loud(), before, "{arguments:?}");
    }
    coordinator.psql("DROP TABLE public.toastctl_quiet, public.toastctl_quiet_cold");
}
