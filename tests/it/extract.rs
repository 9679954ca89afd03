//! `keys --extract` against tables that were migrated with the script that it emits.

use std::collections::HashMap;
use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use toast_format::disk::ByteOrder;
use toast_format::disk::columns::parse_list;
use toast_format::disk::jsonb::split::without;

use crate::support::documents::{read_table, string, value};
use crate::support::extract::{Script, extraction, near, sizes};
use crate::support::measured::buffers;
use crate::support::reports::advise::{Extraction, KnownUse};
use crate::support::server::{self, Database, Options, Server};
use crate::support::table_files::TableFiles;
use crate::support::verbs::advise;

#[test]
fn documents_without_keys_have_the_servers_bytes() {
    const KEYS: [&str; 6] = ["id", "a", "größe", "", "a longer key, with more", "k\"$'\\"];
    const DOCUMENTS: usize = 3000;
    let mut random = StdRng::seed_from_u64(15);
    let mut script =
        String::from("CREATE TABLE whole (id int, js jsonb);\nCOPY whole FROM STDIN;\n");
    for id in 0..DOCUMENTS {
        let mut document = String::from("{");
        // more than one stride of entries as well
        let count = match random.random_range(0..10) {
            0 => random.random_range(20..200),
            _ => random.random_range(0..8),
        };
        for index in 0..count {
            document.push_str(if index == 0 { "" } else { "," });
            match random.random_range(0..3) {
                0 => {
                    let key = KEYS[random.random_range(0..KEYS.len())];
                    document.push_str(&serde_json::to_string(key).unwrap());
                }
                _ => string(&mut random, &mut document),
            }
            document.push(':');
            let depth = random.random_range(0..3);
            value(&mut random, depth, &mut document);
        }
        document.push('}');
        if id % 50 == 0 {
            document.clear();
            value(&mut random, 1, &mut document);
        }
        writeln!(script, "{id}\t{}", document.replace('\\', "\\\\")).unwrap();
    }
    let array = KEYS.map(|key| format!("'{}'", key.replace('\'', "''"))).join(", ");
    script.push_str("\\.\nDELETE FROM whole WHERE jsonb_typeof(js) NOT IN ('object', 'array');");
    write!(
        script,
        "CREATE TABLE rest AS SELECT id, js - ARRAY[{array}] AS js FROM whole
         WHERE jsonb_typeof(js) = 'object';"
    )
    .unwrap();
    for (number, key) in KEYS.iter().enumerate() {
        let key = key.replace('\'', "''");
        write!(script, "CREATE TABLE held{number} AS SELECT id, js -> '{key}' AS js FROM whole WHERE js -> '{key}' IS NOT NULL;").unwrap();
    }
    let database = server::shared().create_database("split");
    database.psql(&script);
    let desc = parse_list("id int4, js jsonb").unwrap();
    let contents = |table: &str| {
        let mut found = HashMap::new();
        read_table(&TableFiles::of(&database, table), &desc, |id, value, _| {
            found.insert(id, value.content().unwrap().to_vec());
        });
        found
    };
    let (whole, rest) = (contents("whole"), contents("rest"));
    let held: Vec<_> = (0..KEYS.len()).map(|number| contents(&format!("held{number}"))).collect();
    let mut found = 0;
    for (id, content) in &whole {
        let Some(split) = without(content, ByteOrder::Little, &KEYS).unwrap() else {
            assert!(!rest.contains_key(id));
            continue;
        };
        assert!(split.rest == rest[id], "document {id}");
        for ((value, held), key) in split.values.iter().zip(&held).zip(KEYS) {
            let value = value.map(|value| value.jsonb());
            assert!(value.as_ref() == held.get(id), "document {id}, key {key:?}");
            found += usize::from(value.is_some());
        }
    }
    assert!(rest.len() > DOCUMENTS * 9 / 10 && found > DOCUMENTS, "{} {found}", rest.len());
}

#[test]
fn rows_just_over_the_threshold_fall_below_it_without_a_key() {
    let database = server::shared().create_database("extract");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (jb jsonb);
         ALTER TABLE t ALTER jb SET STORAGE external;
         INSERT INTO t SELECT jsonb_build_object('id', i, 'foo',
             (SELECT jsonb_agg(0) FROM generate_series(1, 163))) || '{\"bar\": \"baz\"}'
         FROM generate_series(1, 10000) AS i",
    );
    let now = buffers(&database, "SELECT jb -> 'id' FROM t");
    assert_eq!(now, 30_064.0);
    let told = extraction(&database, &["keys", "t", "--extract", "id"]);
    near("today", told.today.scan_buffers.estimate, now, 0.003);
    assert_eq!(told.keys[0].type_name, "integer");
    assert_eq!((told.wide_rows_today, told.wide_rows), (10_000, 0));
    let text = advise(&database, &["keys", "t", "--sample", "100%", "--extract", "id"]).ok();
    insta::assert_snapshot!("extract_table", &text[text.find("With 1 key").unwrap()..]);
    let script = Script::told(&told);
    insta::assert_snapshot!("extract_script", script.text);
    script.migrate(&database);
    database.psql("VACUUM FULL t");
    let [heap, toast] = sizes(&database, "t");
    near("heap", told.heap_bytes.estimate, heap, 0.01);
    near("TOAST", told.toast_bytes.estimate, toast, 0.01);
    for (query, access) in
        [("SELECT id FROM t", &told.keys[0].access), ("SELECT jb -> 'bar' FROM t", &told.rest)]
    {
        let measured = buffers(&database, query);
        near(query, access.scan_buffers.estimate, measured, 0.03);
        assert!(measured < 3000.0, "{measured}");
    }
}

/// Documents of 1 to 8 kB with keys of all types; arrays, scalars, nothing, and a document without any of them.
const DOCS: &str = r#"
    CREATE EXTENSION pageinspect;
    CREATE TABLE docs (id int PRIMARY KEY, doc jsonb, note text);
    INSERT INTO docs SELECT i, jsonb_build_object('id', i, 'big', i::bigint * 7000000000,
            'price', (i % 900)::numeric / 100 + 0.10, 'name', 'name of ' || i, 'on', i % 2 = 0,
            'tags', jsonb_build_array(i, 'x', NULL), 'odd "key'',$toastctl$\', md5(i::text), 'text',
            (SELECT string_agg(md5((i * j)::text), ' ') FROM generate_series(1, 30 + i % 200) AS j))
        || CASE i % 3 WHEN 0 THEN '{}' WHEN 1 THEN '{"maybe": null}' ELSE '{"maybe": "so"}' END::jsonb,
        rpad(md5(i::text), i * 37 % 900, '-') FROM generate_series(1, 1300) AS i;
    INSERT INTO docs VALUES (2001, NULL, NULL), (2002, '[1, "id"]', 'x'), (2003, '"id"', 'x'), (2004, '{}', 'x');
    CREATE TABLE original AS TABLE docs"#;
const KEYS: &str = r#"id,big,price,name,on,tags,maybe,"odd ""key',$toastctl$\""#;

/// A migration with writers meanwhile.
fn migrates(database: &Database<'_>) {
    database.psql(DOCS);
    let arguments = ["keys", "docs", "--extract", KEYS];
    let told = extraction(database, &arguments);
    let columns: Vec<(&str, &str)> =
        told.keys.iter().map(|key| (key.column.as_str(), key.type_name.as_str())).collect();
    assert_eq!(
        columns,
        [
            ("doc_id", "integer"),
            ("big", "bigint"),
            ("price", "numeric"),
            ("name", "text"),
            ("on", "boolean"),
            ("tags", "jsonb"),
            ("maybe", "jsonb"),
            ("odd \"key',$toastctl$\\", "text"),
        ]
    );
    let script = Script::emitted(database, &arguments);
    assert_eq!(script.text, told.script);
    let count = |condition: &str| -> u32 {
        let sql = format!("SELECT count(*) FROM docs WHERE {condition}");
        database.psql(&sql).parse().unwrap()
    };
    script.run(database, None);
    assert_eq!(count("doc_id = id AND tags = doc -> 'tags' AND big = id * 7000000000"), 1300);
    let changed = "SELECT count(*) FROM original LEFT JOIN docs USING (id)
                   WHERE docs.doc::text IS DISTINCT FROM original.doc::text";
    assert_eq!(database.psql(changed), "0");

    // written to the documents alone, and to a column alone: neither is lost
    database.psql(
        "UPDATE docs SET doc = doc || '{\"name\": \"new\", \"price\": 7.00}' WHERE id = 5;
         UPDATE docs SET doc_id = -5 WHERE id = 6",
    );
    // interrupted between two batches; what is done stays
    database.psql(
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF NEW.id = 1290 THEN RAISE EXCEPTION ''no''; END IF; RETURN NEW; END';
         CREATE TRIGGER z BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION fails()",
    );
    assert_eq!(script.try_run(database, Some("remove")).code, Some(3));
    let held = count("doc -> 'id' IS NOT NULL");
    assert!(held > 0 && held < 1300, "{held}");
    database.psql("DROP TRIGGER z ON docs; DROP FUNCTION fails()");
    script.run(database, Some("remove"));
    let left =
        "SELECT id, doc -> 'id', doc -> 'name', doc -> 'price', doc_id, name, price FROM docs
                WHERE doc -> 'id' IS NOT NULL OR doc -> 'name' IS NOT NULL ORDER BY id";
    assert_eq!(
        database.psql(left),
        "5||\"new\"|7.00|5|name of 5|0.15000000000000000000\n6|6|||-5|name of 6|0.16000000000000000000"
    );
    database.psql(
        "UPDATE docs SET doc = doc - ARRAY['name', 'price'] WHERE id = 5;
         UPDATE docs SET doc = doc - 'id', doc_id = 6 WHERE id = 6",
    );
    let newest = "SELECT max(xmin::text::int) FROM docs";
    let before = database.psql(newest);
    script.run(database, Some("remove"));
    assert_eq!(database.psql(newest), before);

    // every value is in its column, and everything else in its document
    let mut differing = vec![
        "CASE WHEN jsonb_typeof(o.doc) = 'object' THEN o.doc - ARRAY['id', 'big', 'price', 'name', 'on', 'tags', \
         'maybe', 'odd \"key'',$toastctl$\\'] ELSE o.doc END::text IS DISTINCT FROM docs.doc::text"
            .to_owned(),
    ];
    for key in &told.keys {
        let (column, key) = (key.column.replace('"', "\"\""), key.key.replace('\'', "''"));
        differing.push(format!(
            "to_jsonb(docs.\"{column}\")::text IS DISTINCT FROM (o.doc -> '{key}')::text"
        ));
    }
    let differing = differing.join(" OR ");
    let sql = format!("SELECT count(*) FROM original AS o JOIN docs USING (id) WHERE {differing}");
    assert_eq!(database.psql(&sql), "0");

    database.psql("VACUUM FULL docs");
    for (query, access) in [
        ("SELECT doc_id FROM docs", &told.keys[0].access),
        ("SELECT tags -> 0 FROM docs", &told.keys[5].access),
        ("SELECT doc -> 'text' FROM docs", &told.rest),
    ] {
        near(query, access.scan_buffers.estimate, buffers(database, query), 0.03);
    }
    // in the order of the rows that were sampled, on which depends how full pages get
    database.psql("CLUSTER docs USING docs_pkey");
    let [heap, toast] = sizes(database, "docs");
    near("heap", told.heap_bytes.estimate, heap, 0.01);
    near("TOAST", told.toast_bytes.estimate, toast, 0.01);
}

#[test]
fn migrated_tables_are_what_was_foretold() {
    std::thread::scope(|scope| {
        for major in [14, 18] {
            scope.spawn(move || {
                if server::has_major(major) {
                    let server = Server::start(&Options::major(major));
                    migrates(&server.create_database("extract"));
                }
            });
        }
        migrates(&server::shared().create_database("extract"));
    });
}

#[test]
fn a_type_is_one_that_all_values_fit() {
    let database = server::shared().create_database("extract");
    // the odd ones stand in later blocks than those that are read first
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (doc jsonb);
         INSERT INTO t SELECT jsonb_build_object('n', i, 'b', i, 'm', i, 's', 'x', 'v', true, 'fill', repeat('x', 700))
         FROM generate_series(1, 2000) AS i;
         INSERT INTO t VALUES ('{\"n\": 1.5, \"b\": 1000000000, \"m\": \"1\", \"s\": null, \"v\": true}')",
    );
    let told = extraction(&database, &["keys", "t", "--extract", "n,b,m,s,v"]);
    let types: Vec<&str> = told.keys.iter().map(|key| key.type_name.as_str()).collect();
    assert_eq!(types, ["numeric", "bigint", "jsonb", "jsonb", "boolean"]);
    let script = Script::told(&told);
    script.migrate(&database);
    database.psql("VACUUM FULL t");
    let [heap, _] = sizes(&database, "t");
    near("heap", told.heap_bytes.estimate, heap, 0.01);
}

#[test]
fn what_cannot_be_extracted_is_said() {
    let database = server::shared().create_database("extract");
    database.psql(
        "CREATE TABLE t (id int, doc jsonb, v text, doc_id int);
         INSERT INTO t VALUES (1, '{\"a\": 1, \"id\": 2}', 'x');
         CREATE TABLE two (a jsonb, b jsonb);
         CREATE TABLE none (v text);
         CREATE TABLE part (a jsonb) PARTITION BY LIST ((a -> 'x'));
         CREATE TABLE part1 PARTITION OF part DEFAULT;
         CREATE TABLE made (v text, doc jsonb GENERATED ALWAYS AS (v::jsonb) STORED);
         CREATE MATERIALIZED VIEW seen AS SELECT doc FROM t;
         CREATE TABLE empty (doc jsonb)",
    );
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let done = advise(&database, arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{arguments:?}");
    };
    // by its text and by its bytes
    refused(&["keys", "t", "--extract", "b"], 2, "no document of column \"doc\" has the key \"b\"");
    database.psql("CREATE EXTENSION pageinspect");
    refused(&["keys", "t", "--extract", "b"], 2, "no document of column \"doc\" has the key \"b\"");
    refused(&["keys", "t", "--extract", "a,b"], 2, "HINT:  There are, among others: \"id\".");
    refused(&["keys", "t", "--extract", "id"], 2, "has \"id\" and \"doc_id\" already");
    refused(
        &["keys", "t", "-c", "v", "--extract", "a"],
        2,
        "has type text; keys are extracted from jsonb",
    );
    refused(
        &["keys", "t", "-c", "doc", "-c", "v", "--extract", "a"],
        2,
        "Name one column with --column",
    );
    refused(&["keys", "two", "--extract", "a"], 2, "several jsonb columns: a, b");
    refused(&["keys", "none", "--extract", "a"], 2, "has no jsonb column");
    refused(&["keys", "part1", "--extract", "a"], 2, "is a partition");
    refused(&["keys", "part", "--extract", "a"], 2, "is partitioned by column \"a\"");
    refused(&["keys", "made", "--extract", "a"], 2, "is generated");
    refused(&["keys", "seen", "--extract", "a"], 2, "is a materialized view");
    refused(&["keys", "empty", "--extract", "a"], 2, "has the key \"a\"");
    refused(&["keys", "--extract", "a"], 2, "no table was given");
    refused(&["keys", "t", "two", "--extract", "a"], 2, "--extract takes exactly one table");
    refused(&["keys", "t", "--extract", "a,a"], 2, "named twice");
    refused(&["keys", "t", "--extract", ""], 2, "expected keys");
    refused(&["keys", "t", "--extract", "a", "--emit", "command"], 2, "[possible values: sql]");
    refused(
        &["keys", "t", "--extract", "a", "--format", "csv"],
        2,
        "--format json lists all of them",
    );
}

#[test]
fn auto_takes_the_keys_that_pay() {
    let database = server::shared().create_database("extract");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (doc jsonb);
         INSERT INTO t SELECT jsonb_build_object('id', i, 'state', 'new', 'rare', CASE WHEN i % 3 = 0 THEN 1 END,
             'list', (SELECT jsonb_agg(md5((i * j)::text)) FROM generate_series(1, 150) AS j))
             - CASE WHEN i % 3 = 0 THEN 'x' ELSE 'rare' END FROM generate_series(1, 400) AS i;
         CREATE TABLE small (doc jsonb);
         INSERT INTO small SELECT jsonb_build_object('a', i, 'b', i) FROM generate_series(1, 1000) AS i",
    );
    let told = extraction(&database, &["keys", "t", "--extract", "auto"]);
    let mut keys: Vec<&str> = told.keys.iter().map(|key| key.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!((keys, told.auto), (vec!["id", "state"], true));
    // as if they had been named
    let named = extraction(&database, &["keys", "t", "--extract", "id,state"]);
    assert!(!named.auto);
    let figures = |of: &Extraction| {
        (of.heap_bytes, of.toast_bytes, of.total_bytes, of.rest.clone(), of.documents)
    };
    assert_eq!(figures(&told), figures(&named));
    assert_eq!(told.known_uses, []);
    // what names a key weighs more
    database.psql("CREATE INDEX by_state ON t ((doc ->> 'state'))");
    let weighed = extraction(&database, &["keys", "t", "--extract", "auto"]);
    assert_eq!(weighed.keys[0].key, "state");
    let named_in = vec!["index by_state".to_owned()];
    assert_eq!(weighed.known_uses, [KnownUse { key: "state".to_owned(), named_in }]);
    let shown = advise(&database, &["keys", "t", "--extract", "auto"]).ok().replace('\n', " ");
    assert!(shown.contains("and views: state (index by_state)."), "{shown}");
    database.psql("DROP INDEX by_state");
    let script = Script::told(&told);
    script.migrate(&database);
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE id > 0 AND state = 'new'"), "400");

    let shown = advise(&database, &["keys", "small", "--extract", "auto"]);
    assert!(shown.stderr.contains("no key is worth a column of its own"), "{}", shown.stderr);
    assert!(shown.ok().contains("public.small, column doc"));
    let emitted = advise(&database, &["keys", "small", "--extract", "auto", "--emit", "sql"]);
    assert!(emitted.stderr.contains("no key is worth a column of its own"), "{}", emitted.stderr);
    assert_eq!(emitted.ok(), "");
    let none = advise(&database, &["keys", "small", "--extract", "\"auto\""]);
    assert!(none.stderr.contains("has the key \"auto\""), "{}", none.stderr);
}

#[test]
fn keys_have_their_letters_in_a_database_of_another_encoding() {
    let server = server::shared();
    let first = server.create_database("extract");
    let name = format!("{}_latin1", first.name());
    first.psql(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"));
    {
        let database = server.database(&name);
        database.psql(
            "SET client_encoding = 'UTF8'; CREATE EXTENSION pageinspect; CREATE TABLE t (doc jsonb);
             INSERT INTO t SELECT jsonb_build_object('größe', i, 'x', 1) FROM generate_series(1, 100) AS i",
        );
        let told = extraction(&database, &["keys", "t", "--extract", "größe"]);
        Script::told(&told).migrate(&database);
        let moved = "SET client_encoding = 'UTF8';
            SELECT count(*) FROM t WHERE \"größe\" > 0 AND doc = '{\"x\": 1}'";
        assert_eq!(database.psql(moved), "100");
    }
    first.psql(&format!("DROP DATABASE {name} WITH (FORCE)"));
}
