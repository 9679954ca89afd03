//! `keys` against what the server counts: `pg_column_size` of each value, EXPLAIN (ANALYZE, BUFFERS),
//! and the WAL that updates write.

use std::path::Path;

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::measured::{buffers, wal};
use crate::support::reports::keys::{Key, Keys};
use crate::support::reports::{Printed, Source};
use crate::support::server::{self, Database, Options, Server};

fn keys_with(conninfo: &str, arguments: &[&str]) -> Run {
    let mut command = toastctl();
    command.args(["keys", "-d", conninfo, "--sample", "100%"]);
    run(command.args(arguments))
}

fn keys(database: &Database<'_>, table: &str, arguments: &[&str]) -> Printed<Keys> {
    let arguments = [&[table, "--format", "json"], arguments].concat();
    keys_with(&database.conninfo(), &arguments).exits(0).report()
}

/// What the parts of the documents sum to.
fn counted(document: &Keys) -> f64 {
    let own: f64 = document.keys.iter().map(|key| key.own_bytes.estimate).sum();
    let others = document.others.as_ref().map_or(0, |others| others.bytes);
    own + others as f64 + document.container.bytes.estimate
}

const SHAPES: &str = r#"
    CREATE TABLE film (id int, js jsonb);
    INSERT INTO film SELECT i, jsonb_build_object('id', i, 'title', 'Ä film ' || i, 'year', 1900 + i % 100,
        'ratings', jsonb_build_object('avg', i / 7.0, 'votes', i * 1000), 'adult', i % 2 = 0, 'end', NULL,
        'cast', (SELECT jsonb_agg(jsonb_build_object('name', md5(k::text), 'as', jsonb_build_array('x', k)))
            FROM generate_series(1, i * 3) AS k)) FROM generate_series(1, 60) AS i;
    CREATE TABLE small (js jsonb);
    INSERT INTO small SELECT (SELECT jsonb_object_agg('key' || k, k * i) FROM generate_series(1, 1000) AS k)
        FROM generate_series(1, 3) AS i;
    CREATE TABLE huge (js jsonb);
    INSERT INTO huge SELECT jsonb_build_object('n', i, 'a', (SELECT jsonb_agg(k * 1.5)
        FROM generate_series(1, 5000) AS k)) FROM generate_series(1, 3) AS i;
    CREATE TABLE nested (js jsonb);
    INSERT INTO nested SELECT format('{"a": {"b": {"c": {"d": {"e": {"f": [1, {"g": %s}]}}}}}}', i)::jsonb
        FROM generate_series(1, 20) AS i;
    CREATE TABLE map (js jsonb);
    INSERT INTO map SELECT (SELECT jsonb_object_agg(md5(k::text), k) FROM generate_series(1, 20000) AS k);
    CREATE TABLE unicode (js jsonb);
    INSERT INTO unicode VALUES ('{"数": 1e10, "zahl": -0.000001, "b c": 123456789012345678901234567890.5,
        "s": "\u0001\t\"\\é😀", "": [], "o": {}, "z": 0, "t": 1.50}'), ('[1, "two", [3]]'), ('"scalar"'), ('17'),
        ('null'), (NULL), ('{}'), ('1e-70'), ('-1e300');
    CREATE TABLE texts (js json);
    INSERT INTO texts SELECT replace(js::text, ': ', E' :\n ')::json FROM film;
    INSERT INTO texts VALUES ('[1, "two"]'), (' null '), (NULL);
"#;

#[test]
fn bytes_of_keys_are_those_of_the_server_from_every_source() {
    let database = server::shared().create_database("keys");
    let role = format!("reader_{}", database.name());
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {SHAPES}
         CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; CHECKPOINT"
    ));
    let owner = format!("{} user={role}", database.conninfo());
    for table in ["film", "small", "huge", "nested", "map", "unicode", "texts"] {
        let json = if table == "texts" { "json" } else { "jsonb" };
        let deep = keys(&database, table, &["--depth", "7"]);
        let raw: f64 = database
            .psql(&format!(
                "SELECT sum(pg_column_size(js::text::{}) - 4) FROM {table} WHERE js IS NOT NULL",
                if json == "json" { "text" } else { json }
            ))
            .parse()
            .unwrap();
        assert_eq!(deep.raw_bytes.estimate, raw, "{table}");
        assert_eq!(counted(&deep), raw, "{table}");
        assert_eq!(deep.map, table == "map", "{table}");
        assert!(deep.sample.complete);
        if table != "map" {
            let told = database.psql(&format!(
                "SELECT json_object_agg(key, ARRAY[count, bytes]) FROM (SELECT key, count(*), \
                 sum(pg_column_size(js -> key)) AS bytes FROM {table}, {json}_object_keys(js) AS key \
                 WHERE {json}_typeof(js) = 'object' GROUP BY key) AS k"
            ));
            let told: Value = serde_json::from_str(&told).unwrap();
            for (name, figures) in told.as_object().unwrap() {
                let plain = name.chars().all(char::is_alphanumeric) && !name.is_empty();
                let path = if plain { name.clone() } else { format!("\"{name}\"") };
                let key = deep.key(&path);
                let values = key.values.estimate;
                let bytes = (key.extracted_bytes.estimate * values).round();
                assert_eq!(
                    [values, bytes],
                    [&figures[0], &figures[1]].map(|f| f.as_f64().unwrap())
                );
            }
        }
        // as a reader without pages, and from the files
        let told = keys_with(&owner, &[table, "-c", "js", "--depth", "7", "--format", "json"])
            .exits(0)
            .report::<Keys>();
        assert_eq!(told.source, Source::Functions);
        let files = database.psql(&format!(
            "SELECT pg_relation_filepath(oid) || ' ' || pg_relation_filepath(reltoastrelid) \
             FROM pg_class WHERE oid = '{table}'::regclass"
        ));
        let (heap, toast) = files.split_once(' ').unwrap();
        let data = database.server().data_dir();
        let columns =
            if table == "film" { "id int, js jsonb".into() } else { format!("js {json}") };
        let mut command = toastctl();
        command.arg("keys").arg("--relation-file").arg(data.join(heap));
        command.arg("--toast-file").arg(data.join(toast)).args(["--columns", &columns]);
        command.args(["--depth", "7", "--format", "json"]);
        let read = run(&mut command).exits(0).report::<Keys>();
        for (source, other) in [("functions", &told), ("file", &read)] {
            let same = |keys: &Keys| keys.whatever_the_source();
            assert_eq!(same(other), same(&deep), "{table}, {source}");
            let (ours, theirs) = (&deep.keys, &other.keys);
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(theirs) {
                let same = |key: &Key| key.whatever_the_source();
                assert_eq!(same(ours), same(theirs), "{table}, {source}");
                // where chunks stand is not seen by SQL
                let (now, then) = (ours.buffers_now.estimate, theirs.buffers_now.estimate);
                assert!((now - then).abs() <= 0.1 * now + 1.0, "{table}, {source}: {now} {then}");
            }
        }
    }
}

#[test]
fn pairs_of_hstore_are_those_of_the_server_from_every_source() {
    let database = server::shared().create_database("keys");
    let role = format!("reader_{}", database.name());
    database.psql(&format!(
        r#"CREATE EXTENSION pageinspect; CREATE SCHEMA "of"; CREATE EXTENSION hstore SCHEMA "of";
        SET search_path = public, "of";
        CREATE TABLE t (id int, js hstore);
        INSERT INTO t SELECT i, hstore('id', i::text) || hstore('long', repeat(md5(i::text), i))
            || hstore('none', NULL) || hstore(E'odd "\\ =>, \n数', 'x') FROM generate_series(1, 100) AS i;
        INSERT INTO t SELECT i, hstore(array_agg('k' || k), array_agg(k::text)) FROM generate_series(101, 103) AS i,
            generate_series(1, 1000) AS k GROUP BY i;
        INSERT INTO t VALUES (104, ''), (105, NULL);
        CREATE ROLE {role} LOGIN; GRANT SELECT ON t TO {role}; GRANT USAGE ON SCHEMA "of" TO {role}; CHECKPOINT"#
    ));
    let all = keys(&database, "t", &[]);
    assert_eq!(all.type_name, "of.hstore");
    let raw = database.psql(
        "SET search_path = public, of; SELECT sum(pg_column_size((js::text)::hstore) - 4) FROM t WHERE js IS NOT NULL",
    );
    assert_eq!(all.raw_bytes.estimate.to_string(), raw);
    assert_eq!(counted(&all), all.raw_bytes.estimate);
    let told = database.psql(
        "SET search_path = public, of;
         SELECT json_object_agg(key, ARRAY[count, bytes]) FROM (SELECT key, count(*), \
         COALESCE(sum(pg_column_size(js -> key)), 0) AS bytes FROM t, skeys(js) AS key GROUP BY key) AS k",
    );
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(all.keys.len(), told.as_object().unwrap().len());
    for (name, figures) in told.as_object().unwrap() {
        let plain = name.chars().all(char::is_alphanumeric);
        let path = if plain { name.clone() } else { serde_json::to_string(name).unwrap() };
        let key = all.key(&path);
        let values = key.values.estimate;
        let bytes = (key.extracted_bytes.estimate * values).round();
        assert_eq!([values, bytes], [&figures[0], &figures[1]].map(|f| f.as_f64().unwrap()));
    }
    assert_eq!(all.key("none").type_name, "null");
    let heap = database.psql("SELECT pg_relation_filepath('t')");
    let toast = database
        .psql("SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass");
    let data = database.server().data_dir();
    let mut command = toastctl();
    command.arg("keys").arg("--relation-file").arg(data.join(heap));
    command.arg("--toast-file").arg(data.join(toast)).args(["--columns", "id int, js hstore"]);
    let of_file = run(command.args(["--format", "json"]));
    let owner = format!("{} user={role}", database.conninfo());
    let of_reader = keys_with(&owner, &["t", "--format", "json"]);
    for (source, told) in [(Source::Functions, of_reader), (Source::RelationFile, of_file)] {
        let told = told.exits(0).report::<Keys>();
        assert_eq!(told.source, source);
        let same = |keys: &Keys| keys.whatever_the_source();
        assert_eq!(same(&told), same(&all), "{source:?}");
        for (theirs, ours) in told.keys.iter().zip(&all.keys) {
            let same = |key: &Key| key.whatever_the_source();
            assert_eq!(same(theirs), same(ours), "{source:?}");
        }
    }
}

#[test]
fn elements_and_attributes_are_those_of_the_server_from_every_source() {
    let database = server::shared().create_database("keys");
    let role = format!("reader_{}", database.name());
    database.psql(&format!(
        "CREATE EXTENSION pageinspect;
        CREATE TYPE mood AS ENUM ('sad', 'happy');
        CREATE TYPE place AS (street text, gone int, at point, number numeric, note text, more jsonb);
        ALTER TYPE place DROP ATTRIBUTE gone; CREATE DOMAIN doc AS jsonb;
        CREATE TABLE t (ints int[], texts text[], moods mood[], numbers numeric(9, 2)[], deep bigint[][], js place, d doc);
        INSERT INTO t SELECT
            (SELECT array_agg(NULLIF(k, 3)) FROM generate_series(1, i) AS k),
            (SELECT array_agg(repeat(md5(k::text), k) || '\"{{,') FROM generate_series(1, i % 40) AS k),
            CASE WHEN i % 2 = 0 THEN '{{sad,happy,NULL}}' ELSE '{{}}' END::mood[],
            ARRAY[i / 7.0, -i, 100], ARRAY[ARRAY[i, NULL], ARRAY[3, 4]],
            ROW('street \"' || i, point(i, i), NULLIF(i / 8.0, 1), CASE WHEN i % 3 > 0 THEN repeat('x', i * 50) END,
                '{{\"a\": [1, 2]}}')::place, '{{\"a\": 1}}'
        FROM generate_series(1, 100) AS i;
        INSERT INTO t DEFAULT VALUES;
        CREATE ROLE {role} LOGIN; GRANT SELECT ON t TO {role}; CHECKPOINT"
    ));
    let files = database.psql(
        "SELECT pg_relation_filepath(oid) || ' ' || pg_relation_filepath(reltoastrelid) \
         FROM pg_class WHERE oid = 't'::regclass",
    );
    let (heap, toast) = files.split_once(' ').unwrap();
    let data = database.server().data_dir();
    // sizes are asked before a plan's node copies the values, which can shorten their headers
    for (column, type_name, parts) in [
        ("ints", "int[]", "SELECT '[]' AS key, pg_column_size(unnest(ints)) AS e FROM t"),
        ("texts", "text[]", "SELECT '[]' AS key, pg_column_size(unnest(texts)) AS e FROM t"),
        ("moods", "mood[]", "SELECT '[]' AS key, pg_column_size(unnest(moods)) AS e FROM t"),
        ("numbers", "numeric[]", "SELECT '[]' AS key, pg_column_size(unnest(numbers)) AS e FROM t"),
        ("deep", "bigint[]", "SELECT '[]' AS key, pg_column_size(unnest(deep)) AS e FROM t"),
        ("js", "place", "SELECT key, e FROM t, LATERAL (VALUES ('street', pg_column_size((js).street)),
            ('at', pg_column_size((js).at)), ('number', pg_column_size((js).number)),
            ('note', pg_column_size((js).note)), ('more', pg_column_size((js).more))) AS v (key, e)"),
    ] {
        let told = database.psql(&format!(
            "SELECT json_object_agg(key, ARRAY[count, bytes]) FROM (SELECT key, count(e), sum(e) AS bytes \
             FROM ({parts}) AS p GROUP BY key) AS k"
        ));
        let told: Value = serde_json::from_str(&told).unwrap();
        let raw: f64 = database
            .psql(&format!(
                "SELECT sum(pg_column_size({column}::text::{type_name}) - 4) FROM t WHERE {column} IS DISTINCT FROM NULL"
            ))
            .parse()
            .unwrap();
        let arguments = ["t", "--format", "json", "-c", column];
        let of_pages = keys_with(&database.conninfo(), &arguments).exits(0).report::<Keys>();
        let owner = format!("{} user={role}", database.conninfo());
        let of_reader = keys_with(&owner, &arguments).exits(0).report::<Keys>();
        let mut command = toastctl();
        command.arg("keys").arg("--relation-file").arg(data.join(heap));
        command.arg("--toast-file").arg(data.join(toast)).args([
            "--columns",
            "ints int[], texts text[], moods _int4, numbers numeric[], deep bigint[], js place(-1,d), d jsonb",
        ]);
        let of_file = run(command.args(["-c", column, "--format", "json"]));
        let mut all = vec![of_pages, of_reader];
        match column {
            // their types are not known of a file
            "js" => assert!(of_file.stderr.contains("is of type place"), "{}", of_file.stderr),
            "moods" => assert!(of_file.stderr.contains("another element type"), "{}", of_file.stderr),
            _ => all.push(of_file.exits(0).report::<Keys>()),
        }
        for document in all {
            let source = format!("{column}, {:?}", document.source);
            assert_eq!(document.raw_bytes.estimate, raw, "{source}");
            assert_eq!(counted(&document), raw, "{source}");
            assert_eq!(document.keys.len(), told.as_object().unwrap().len(), "{source}");
            for (name, figures) in told.as_object().unwrap() {
                let key = document.key(name);
                let values = key.values.estimate;
                let bytes = (key.extracted_bytes.estimate * values).round();
                let figures = [&figures[0], &figures[1]].map(|f| f.as_f64().unwrap());
                assert_eq!([values, bytes], figures, "{source}, {name}");
            }
        }
    }
    // a domain is what it is of; all columns with documents are these alone
    let of_domain = keys(&database, "t", &[]);
    assert_eq!([&of_domain.column, &of_domain.key("a").type_name], ["d", "number"]);
}

#[test]
fn reads_and_updates_cost_what_was_foretold() {
    // Full-page images depend on checkpoints, not on what is stored.
    let server = Server::start(&Options::default().set("full_page_writes", "off"));
    let database = server.create_database("keys");
    // from some 300 bytes to 3 MB, long and short keys by turns
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, js jsonb);
         INSERT INTO t SELECT i, jsonb_build_object('key1', i,
             'key2', (SELECT jsonb_agg(0) FROM generate_series(1, pow(10, 1 + 4.0 * i / 100)::int)),
             'key3', i, 'key4', (SELECT jsonb_agg(0) FROM generate_series(1, pow(10, 1 + 4.0 * i / 100)::int)))
         FROM generate_series(1, 100) AS i;
         CREATE TABLE apart AS SELECT id, js->'key1' AS key1, js - 'key1' AS js FROM t;
         CREATE TABLE long AS SELECT id, js->'key2' AS key2, js - 'key2' AS js FROM t;",
    );
    database.psql("VACUUM FULL t");
    let document = keys(&database, "t", &[]);
    let heap = |table: &str| buffers(&database, &format!("SELECT id FROM {table}"));
    for path in ["key1", "key2", "key3", "key4"] {
        let counted = buffers(&database, &format!("SELECT js -> '{path}' FROM t"));
        let foretold = heap("t") + 100.0 * document.key(path).buffers_now.estimate;
        assert!((foretold / counted - 1.0).abs() < 0.01, "{path}: {foretold} {counted}");
    }
    // 24 bytes of a number behind its entries, in the first chunk; long keys behind them
    assert_eq!(document.key("key1").first_chunk.as_ref().unwrap().max, 0);
    assert!(document.key("key4").first_chunk.as_ref().unwrap().max > 0);
    let order =
        ["key1", "key2", "key3", "key4"].map(|path| document.key(path).offset.mean.estimate);
    assert!(order.is_sorted(), "{order:?}");

    // the small key in a column of its own
    assert_eq!(document.key("key1").buffers_extracted.unwrap().estimate, 0.0);
    assert_eq!(buffers(&database, "SELECT key1 -> 0 FROM apart"), heap("apart"));
    // the long one has as many pages to itself as its part of the document had
    let counted = buffers(&database, "SELECT key2 -> 0 FROM long");
    let foretold = heap("long") + 100.0 * document.key("key2").buffers_extracted.unwrap().estimate;
    assert!((foretold / counted - 1.0).abs() < 0.1, "{foretold} {counted}");

    let key1 = document.key("key1");
    for (statement, figure) in [
        ("UPDATE t SET js = jsonb_set(js, '{key1}', '5')", key1.wal_now),
        ("UPDATE apart SET key1 = '5'", key1.wal_extracted.unwrap()),
    ] {
        let written = wal(&database, statement);
        let foretold = 100.0 * figure.estimate;
        assert!((foretold / written - 1.0).abs() < 0.05, "{statement}: {foretold} {written}");
    }
}

/// Rows whose documents stand in them, and some out of line.
const ORDERS: &str = "
    CREATE TABLE orders (id int, note text, doc jsonb);
    ALTER TABLE orders ALTER doc SET STORAGE external;
    INSERT INTO orders SELECT i, 'note', jsonb_build_object('id', i, 'state', (ARRAY['new', 'paid', 'sent'])[i % 3 + 1],
        'lines', (SELECT jsonb_agg(jsonb_build_object('item', k, 'price', k * 1.25))
            FROM generate_series(1, 10 + i % 90) AS k))
        || CASE WHEN i % 10 = 0 THEN '{\"gift\": true}' ELSE '{}' END::jsonb
    FROM generate_series(1, 400) AS i;";

#[test]
fn a_report_for_people_fits_80_columns() {
    let database = server::shared().create_database("keys");
    database.psql(&format!("CREATE EXTENSION pageinspect; {ORDERS}"));
    let text = |arguments: &[&str]| {
        let mut command = toastctl();
        command.env("COLUMNS", "80").args(["keys", "orders", "-d", &database.conninfo()]);
        run(command.args(arguments)).ok()
    };
    let report = text(&["-c", "doc", "--depth", "3", "--limit", "6"]);
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    insta::assert_snapshot!("keys_80", report);
    insta::assert_snapshot!("keys_markdown", text(&["--format", "markdown"]));
}

#[test]
fn views_indexes_and_generated_columns_name_keys() {
    let database = server::shared().create_database("keys");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, js jsonb, state text GENERATED ALWAYS AS (js ->> 'state') STORED);
         INSERT INTO t (id, js) SELECT i, jsonb_build_object('a', i, 'b', jsonb_build_object('c', i), 'state', 'x',
             'd', i, 'e', i) FROM generate_series(1, 50) AS i;
         CREATE INDEX by_a ON t (((js -> 'a')::int)) WHERE js ? 'd';
         CREATE VIEW shown AS SELECT id, js -> 'b' ->> 'c' AS c FROM t;",
    );
    let found = keys(&database, "t", &["--depth", "2"]);
    let named = |path: &str| -> Vec<String> {
        let named = found.key(path).named_in.iter();
        named.map(|named| format!("{} {}", named.kind, named.name)).collect()
    };
    assert_eq!(named("a"), ["index by_a"]);
    assert_eq!(named("d"), ["index by_a"]);
    assert_eq!(named("state"), ["generated_column state"]);
    assert_eq!(named("b"), ["view shown"]);
    assert_eq!(named("b.c"), ["view shown"]);
    assert_eq!(named("e"), [""; 0]);
    let text = keys_with(&database.conninfo(), &["t"]).ok();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["state (generated column state)", "a (index by_a)"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_type_is_known_by_what_it_is_and_not_by_how_it_is_called() {
    let database = server::shared().with_pageinspect("keys");
    database.psql(
        "CREATE EXTENSION hstore; CREATE SCHEMA other; CREATE DOMAIN other.hstore AS text; CREATE DOMAIN pairs AS hstore;
         CREATE TABLE t (id int, h hstore, p pairs, js jsonb, fake other.hstore);
         INSERT INTO t SELECT i, hstore('a', repeat('x', i)), hstore('b', 'y'), '{\"c\": 1}', md5(i::text)
             FROM generate_series(1, 100) AS i",
    );
    for quoting in ["off", "on"] {
        let mut command = toastctl();
        command.args(["keys", "t", "-d", &database.url(), "--format", "json"]);
        let done = run(command.env("PGOPTIONS", format!("-c quote_all_identifiers={quoting}")));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{quoting}");
        let columns: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        let columns = columns["columns"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().map(|c| c["column"].as_str().unwrap()).collect();
        assert_eq!(names, ["h", "p", "js"], "{quoting}");
    }
}

#[test]
fn what_has_no_keys_is_refused_by_its_type() {
    let database = server::shared().create_database("keys");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE EXTENSION hstore; CREATE DOMAIN doc AS text;
         CREATE TABLE t (a text, l tsvector, d doc, h hstore, js jsonb); CREATE TABLE u (a text);
         INSERT INTO t VALUES ('x', '', '{}', '', '{\"a\": 1}')",
    );
    let refused = |arguments: &[&str]| {
        let done = keys_with(&database.conninfo(), arguments);
        (done.code, done.stderr)
    };
    for (column, type_name) in [("a", "text"), ("l", "tsvector"), ("d", "public.doc")] {
        let (code, message) = refused(&["t", "-c", column]);
        assert_eq!(code, Some(2), "{message}");
        let why = format!(
            "column \"{column}\" of relation \"public.t\" is of type {type_name}, which has no keys, elements or \
             attributes that toastctl knows"
        );
        assert!(message.contains(&why), "{message}");
        assert!(message.contains("Columns that can be analyzed: h, js."), "{message}");
    }
    for (arguments, code, words) in [
        (&["u"][..], 2, "has no column of type jsonb, json or hstore"),
        (&["t", "-c", "none"], 1, "column \"none\" of relation \"public.t\" does not exist"),
        (&[], 2, "no table was given"),
        (&["t", "--format", "csv"], 2, "--format csv is not available for keys"),
        (&["t", "--depth", "0"], 2, "--depth"),
    ] {
        let (got, message) = refused(arguments);
        assert_eq!(got, Some(code), "{message}");
        assert!(message.contains(words), "{message}");
    }
    // the others of a pattern are told all the same
    let done = keys_with(&database.conninfo(), &["public.*", "--format", "json"]);
    assert!(
        done.stderr.contains(
            "left out: relation \"public.u\" has no column of type jsonb, json or hstore"
        ),
        "{}",
        done.stderr
    );
    let both = done.exits(0).entries::<Keys>();
    assert_eq!([&both[0].column, &both[1].column], ["h", "js"]);
    assert_eq!(both[1].key("a").type_name, "number");
}

#[test]
fn a_damaged_document_is_told_and_costs_nothing_else() {
    let database = server::shared().create_database("keys");
    database.psql(
        "CREATE TABLE t (id int, js jsonb);
         INSERT INTO t SELECT i, jsonb_build_object('marker', i, 'other', 'x')
         FROM generate_series(1, 50) AS i; CHECKPOINT",
    );
    let path = database.psql("SELECT pg_relation_filepath('t')");
    let mut bytes = std::fs::read(database.server().data_dir().join(path)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("t");
    let of_file = |path: &Path, more: &[&str]| {
        let mut command = toastctl();
        command.arg("keys").arg("--relation-file").arg(path);
        command.args(["--columns", "id int, js jsonb", "--format", "json"]);
        run(command.args(more))
    };
    // the container's header before four entries and a key
    let at = bytes.windows(5).rposition(|found| found == b"other").unwrap() - 20;
    bytes[at..at + 4].copy_from_slice(&[2, 0, 0, 0xF0]);
    std::fs::write(&copy, &bytes).unwrap();
    let done = of_file(&copy, &[]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let place =
        "block 0, item 1, column \"js\": invalid jsonb container header 0xf0000002 (jsonb byte 0)";
    assert!(done.stderr.contains(place), "{}", done.stderr);
    let document = done.report::<Keys>();
    assert_eq!(document.problem_count, 1);
    assert_eq!(document.key("marker").values.estimate, 49.0);
    assert_eq!(counted(&document), document.raw_bytes.estimate);
    let done = of_file(&copy, &["--limit", "1"]);
    let document = done.report::<Keys>();
    assert_eq!(document.keys.len(), 1);
    assert_eq!(document.others.as_ref().unwrap().paths, 1);
}

/// Names of keys, and the text of values, are in the database's encoding.
#[test]
fn names_are_read_in_the_encoding_of_the_database() {
    for (encoding, table, column, key, text) in [
        ("LATIN1", "Prüfung", "métadonnées", "schlüssel", "ñandú"),
        ("EUC_JP", "検査", "情報", "名前", "日本語"),
        ("WIN1251", "проверка", "данные", "ключ", "значение"),
    ] {
        let server = server::shared();
        let name = format!("keys_{}", encoding.to_lowercase());
        let database = server.create_database_in(&name, encoding);
        database.psql(&format!(
            "SET client_encoding = utf8; CREATE EXTENSION pageinspect; CREATE EXTENSION hstore;
             CREATE TABLE \"{table}\" (id int, \"{column}\" jsonb, j json, h hstore, long jsonb);
             INSERT INTO \"{table}\"
                 SELECT i, jsonb_build_object('{key}', repeat('{text} ', 900), 'n', 1),
                     json_build_object('{key}', '{text}'), hstore('{key}', '{text}'),
                     jsonb_build_object('{key}', repeat('{text}', 2000))
                 FROM generate_series(1, 30) AS i"
        ));
        let quoted = format!("\"{table}\"");
        for more in [&[][..], &["--format", "json"]] {
            let shown = keys_with(&database.conninfo(), &[&[quoted.as_str()], more].concat()).ok();
            assert!(shown.matches(key).count() >= 3, "{encoding}: {shown}");
            assert!(!shown.contains('\u{fffd}') && !shown.contains("\\ufffd"), "{shown}");
        }
        // the beginning of a long text without ASCII characters too
        for column in [column, "j", "long"] {
            let place = format!("{quoted}.{column}@(0,1)");
            let shown = run(toastctl().args(["value", "-d", &database.conninfo(), &place])).ok();
            assert!(!shown.contains('\u{fffd}'), "{encoding}: {shown}");
            assert!(shown.contains(text) && shown.contains(key), "{encoding}: {shown}");
        }
        // another client encoding of the user's changes nothing
        let mut command = toastctl();
        command
            .args(["keys", "-d", &database.conninfo(), &quoted])
            .env("PGCLIENTENCODING", encoding);
        let shown = run(&mut command).ok();
        assert!(shown.contains(key), "{encoding}: {shown}");
    }
}
