//! `value` finds a row by its primary key: names and values of every kind, and what is said if there is not one row.

use crate::support::command::{Run, run, toastctl};
use crate::support::server::{Database, with_pageinspect};

fn value(database: &Database<'_>, words: &str) -> Run {
    run(toastctl().args(["value", words, "-d", &database.url()]))
}

#[test]
fn a_value_is_found_by_the_key_of_its_row() {
    let database = with_pageinspect("bykey");
    database.psql(
        "CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('so', 'la la'); CREATE DOMAIN number AS int CHECK (VALUE > 0);
         CREATE TABLE orders (id int PRIMARY KEY, doc text);
         INSERT INTO orders SELECT i, 'doc' || i FROM generate_series(1, 500) AS i;
         CREATE TABLE \"Odd@Table\" (\"A,b\" text, n number, m mood, c citext, u uuid, d date, f numeric(9, 2), b bpchar(5),
             \"V v\" text, PRIMARY KEY (\"A,b\", n));
         CREATE INDEX ON \"Odd@Table\" (m); CREATE INDEX ON \"Odd@Table\" (c); CREATE INDEX ON \"Odd@Table\" (u);
         CREATE INDEX ON \"Odd@Table\" (d, f); CREATE INDEX ON \"Odd@Table\" (b);
         INSERT INTO \"Odd@Table\" VALUES ('it''s, a', 7, 'la la', 'Joe@X.de',
             'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2026-11-27', 1.50, 'ab', 'found');
         CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
         INSERT INTO parts VALUES (3, 'in the first'), (13, 'in the second')",
    );
    for (words, text) in [
        ("orders.doc@id=42", "doc42"),
        ("public.orders.doc@ID= 500", "doc500"),
        ("\"Odd@Table\".\"V v\"@\"A,b\"='it''s, a',n=7", "found"),
        ("\"Odd@Table\".\"V v\"@m=la la", "found"),
        ("\"Odd@Table\".\"V v\"@c=joe@x.DE", "found"),
        ("\"Odd@Table\".\"V v\"@u=A0EEBC999C0B4EF8BB6D6BB9BD380A11", "found"),
        ("\"Odd@Table\".\"V v\"@d=2026-11-27,f=1.5", "found"),
        ("\"Odd@Table\".\"V v\"@b=ab", "found"),
        ("parts.v@id=13", "in the second"),
    ] {
        let found = value(&database, words);
        assert_eq!(found.code, Some(0), "{words}: {}", found.stderr);
        assert!(
            found.stdout.contains(&format!("first text: {text}\n")),
            "{words}: {}",
            found.stdout
        );
    }
}

#[test]
fn what_is_not_one_row_is_explained() {
    let database = with_pageinspect("bykey");
    database.psql(
        "CREATE TABLE orders (id int PRIMARY KEY, status text, doc text); CREATE INDEX ON orders (status);
         INSERT INTO orders SELECT i, 'paid', 'doc' || i FROM generate_series(1, 500) AS i; INSERT INTO orders VALUES (0, 'a', 'b');
         CREATE TABLE bare (id int, doc text)",
    );
    for (words, code, said) in [
        ("orders.doc@id=501", 1, "no row of orders has id=501"),
        (
            "orders.doc@status=paid",
            2,
            "several rows have status=paid: public.orders@(0,1), public.orders@(0,2), public.orders@(0,3) and others\nHINT:  Name one by more columns",
        ),
        (
            "orders.doc@doc=doc1",
            2,
            "no btree index of public.orders begins with column \"doc\": the whole table would have to be read\nHINT:  Rows can be found by id.",
        ),
        ("bare.doc@id=1", 2, "the whole table would have to be read"),
        ("orders.doc@nr=1", 1, "column \"nr\" of relation \"public.orders\" does not exist"),
        ("orders.doc@id=x", 1, "invalid input syntax for type integer: \"x\""),
        ("orders.doc@id=1'; DROP TABLE orders; --", 1, "invalid input syntax for type integer"),
        ("orders.doc@id", 2, "expected a row at the end, as in @id=42 or @(12,3)"),
        ("doc@id=42", 2, "HINT:  For example orders.doc@id=42"),
    ] {
        let run = value(&database, words);
        assert_eq!(run.code, Some(code), "{words}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(said), "{words}: {}", run.stderr);
    }
    assert_eq!(database.psql("SELECT count(*) FROM orders"), "501");
}

/// At 80 columns the listing shows which value of which row it is, whatever the input knows of the row.
#[test]
fn the_listing_has_value_ids_and_rows_at_80_columns() {
    let database = with_pageinspect("listing");
    database.psql(
        "CREATE TABLE bd (id int, message text); ALTER TABLE bd ALTER message SET STORAGE external;
         INSERT INTO bd SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 3) AS i",
    );
    let dir = tempfile::tempdir().unwrap();
    let id = database.psql(
        "SELECT max(get_byte(t_attrs[2], 10) + 256 * get_byte(t_attrs[2], 11)
            + 65536 * get_byte(t_attrs[2], 12))
         FROM heap_page_item_attrs(get_raw_page('bd', 0), 'bd')",
    );
    let page = "SELECT * FROM heap_page_items(get_raw_page('bd', 0))";
    let saved = dir.path().join("saved");
    let mut psql = database.psql_command();
    psql.args(["-P", "format=aligned", "-P", "tuples_only=off", "-c", page]);
    std::fs::write(&saved, run(&mut psql).ok()).unwrap();
    let saved = saved.to_str().unwrap();
    let url = database.url();
    for (words, heading, row) in [
        (["bd", "-d", &url, "-q"], "Ctid", "(0,3)"),
        (["--pageinspect", saved, "--columns", "id int, message text"], "Item", "3"),
    ] {
        let listed = run(toastctl().arg("value").args(words).env("COLUMNS", "80")).ok();
        let lines: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(lines[1][0], heading, "{listed}");
        assert!(lines[1].contains(&"Value ID"), "{listed}");
        let last = lines.iter().rfind(|line| line.contains(&"message")).unwrap();
        assert_eq!(last[0], row, "{listed}");
        assert!(last.contains(&id.as_str()), "{id}: {listed}");
        assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    }
}

/// `--limit` lists the largest values of the chosen columns; which they are is asked of the server.
#[test]
fn the_largest_values_are_listed_first() {
    let database = with_pageinspect("largest");
    database.psql(
        "CREATE TABLE bd (id int, message text, \"Note\" text);
         INSERT INTO bd SELECT i, (SELECT string_agg(md5((i * n)::text), '') FROM generate_series(1, 7 * i) AS n), 'n'
             FROM generate_series(1, 60) AS i",
    );
    let url = database.url();
    let listed = |words: &[&str]| {
        let mut command = toastctl();
        command.args(["value", "bd", "-d", &url, "--format", "json"]).args(words);
        let document: serde_json::Value = serde_json::from_str(&run(&mut command).ok()).unwrap();
        let rows = document["values"].as_array().unwrap();
        let place = |row: &serde_json::Value| {
            format!("{} {}", row["ctid"].as_str().unwrap(), row["column"].as_str().unwrap())
        };
        rows.iter().map(place).collect::<Vec<_>>().join("\n")
    };
    let largest = database
        .psql("SELECT ctid || ' message' FROM bd ORDER BY pg_column_size(message) DESC LIMIT 5");
    assert_eq!(listed(&["--limit", "5"]), largest);
    assert_eq!(listed(&["-c", "message", "--limit", "5"]), largest);
    let notes = listed(&["-c", "Note"]);
    assert_eq!(notes, database.psql("SELECT ctid || ' Note' FROM bd ORDER BY ctid"));
    let all = listed(&["-c", "Note", "--limit", "1000"]);
    assert_eq!(all.lines().count(), 60);
    let text = run(toastctl().args(["value", "bd", "-c", "message", "--limit", "2", "-d", &url]));
    assert!(text.ok().ends_with("\nThe 2 largest of 60 values, by their stored size.\n"));
    let missing = run(toastctl().args(["value", "bd", "-c", "massage", "-d", &url]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("Perhaps you meant \"message\"."), "{}", missing.stderr);
    let dir = tempfile::tempdir().unwrap();
    let saved = format!("--reassemble={}", dir.path().display());
    run(toastctl().args(["value", "bd", "-c", "message", &saved, "-d", &url])).ok();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 60);
    let two = run(toastctl().args(["value", "bd", "-c", "message", "-c", "massage", "-d", &url]));
    assert!(two.code != Some(0) && two.stderr.contains("massage"), "{}", two.stderr);
}
