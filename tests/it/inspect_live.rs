//! `inspect` on live tables, compared with what SQL says of the same values.

use std::process::Command;

use serde_json::Value;
use toast_format::model::interval::{Amount, Interval};
use toastctl::server::catalog::RelationKind;

use crate::support::command::{run, toastctl};
use crate::support::reports::inspect::{ColumnFigures, Relation, Report};
use crate::support::reports::{Printed, Source};
use crate::support::server::{self, Database};
use crate::support::verbs::relation;
use toastctl::report::schema::schema;

/// `toastctl inspect` on `database` with the JSON report of the one relation.
fn inspect(database: &Database<'_>, table: &str, more: &[&str]) -> Printed<Relation> {
    relation(database, &[more, &[table]].concat())
}

/// One row for each column: name, values, NULLs, stored bytes, raw bytes (of text and bytea, else
/// empty), values by method (`pglz`, `lz4`).
///
/// The sizes are summed over a subquery: an aggregate keeps a copy of the first row it is given, in
/// which a missing value has been re-toasted, with a short header.
fn by_sql(database: &Database<'_>, table: &str) -> Vec<String> {
    let columns = database.psql(&format!(
        "SELECT format(
            'SELECT %1$L, count(%1$I), count(*) - count(%1$I), coalesce((SELECT sum(s) FROM (SELECT pg_column_size(%1$I) AS s FROM ONLY {table} OFFSET 0) AS sizes), 0), %2$s, %3$s, %4$s FROM ONLY {table}', attname,
            CASE WHEN coalesce(nullif(b.typbasetype, 0), b.oid) IN (17, 25, 1042, 1043)
                 THEN format('coalesce(sum(octet_length(%I)), 0)', attname) ELSE 'NULL' END,
            CASE WHEN attlen = -1
                 THEN format('count(*) FILTER (WHERE pg_column_compression(%I) = ''pglz'')', attname)
                 ELSE '0' END,
            CASE WHEN attlen = -1
                 THEN format('count(*) FILTER (WHERE pg_column_compression(%I) = ''lz4'')', attname)
                 ELSE '0' END)
         FROM pg_attribute AS a JOIN pg_type AS b ON b.oid = a.atttypid
         WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ));
    let statements: Vec<&str> = columns.lines().collect();
    statements
        .chunks(200)
        .flat_map(|some| {
            let rows = database.psql(&some.join(";"));
            rows.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// The report's columns in the form of [`by_sql`].
fn by_report(relation: &Relation) -> Vec<String> {
    let by_method = |column: &ColumnFigures, method: &str| -> u64 {
        let forms = column
            .forms
            .iter()
            .filter(|form| form.method.is_some_and(|stored| stored.name() == method));
        forms.map(|form| form.all.values.estimate).sum()
    };
    let columns = relation.columns.iter();
    columns
        .map(|column| {
            let bytes_like = ["text", "bytea", "character", "public.tag"].iter().any(|t| {
                column.type_name.strip_prefix(t).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('(') || rest.starts_with(" varying")
                })
            });
            let raw = column.all.raw_bytes.filter(|_| bytes_like);
            format!(
                "{}|{}|{}|{}|{}|{}|{}",
                column.column,
                column.all.values.estimate,
                column.nulls.estimate,
                column.all.stored_bytes.unwrap().estimate,
                raw.map_or(String::new(), |bytes| bytes.estimate.to_string()),
                by_method(column, "pglz"),
                by_method(column, "lz4"),
            )
        })
        .collect()
}

/// The report equals what SQL says; the report is made first, for SQL sets hint bits.
#[track_caller]
fn check(database: &Database<'_>, table: &str) -> Printed<Relation> {
    let relation = inspect(database, table, &[]);
    assert_eq!(relation.source, Source::Pageinspect, "{table}");
    assert_eq!(relation.problem_count, 0, "{table}: {:?}", relation.problems);
    let live = database.psql(&format!("SELECT count(*) FROM ONLY {table}"));
    assert_eq!(relation.tuples.live.estimate.to_string(), live, "{table}");
    assert_eq!(relation.tuples.unknown, Some(Interval::exact(0)), "{table}");
    assert_eq!(by_report(&relation), by_sql(database, table), "{table}");
    relation
}

fn with_pageinspect(prefix: &str) -> Database<'static> {
    let database = server::shared().create_database(prefix);
    database.psql("CREATE EXTENSION pageinspect; CREATE DOMAIN tag AS text");
    database
}

/// A table with values in every form.
const MIXED: &str = "
    CREATE TABLE t (id int, js jsonb, p text COMPRESSION pglz, l text COMPRESSION lz4, b bytea,
                    c char(10), v varchar, d tag, e text, n numeric);
    ALTER TABLE t ALTER e SET STORAGE external;
    INSERT INTO t SELECT i, jsonb_build_object('k', repeat(md5(i::text), i % 90)),
        repeat(md5(i::text), i % 300), repeat('lz4 ', i * 7 % 3000),
        decode(repeat(md5(i::text), i % 50), 'hex'), 'c' || i,
        CASE WHEN i % 3 > 0 THEN 'v' || i END, repeat('d', i % 200), repeat('ex', i * 3 % 4000),
        i * 1000003.5
    FROM generate_series(1, 600) i;";

#[test]
fn freshly_loaded_without_hint_bits() {
    let database = with_pageinspect("fresh");
    database.psql(MIXED);
    let relation = check(&database, "t");
    assert_eq!(relation.tuples.dead, Some(Interval::exact(0)));
    let toast = relation.toast();
    assert!(toast.rows_counted, "{toast}");
    assert_eq!(toast.rows, Some(toast.chunks.estimate));
    let name = &toast.relation;
    let chunks = database.psql(&format!("SELECT count(*), count(DISTINCT chunk_id) FROM {name}"));
    assert_eq!(format!("{}|{}", toast.chunks.estimate, toast.values.estimate), chunks);
    let sizes = database.psql(&format!(
        "SELECT pg_relation_size('t'), pg_relation_size('{name}'), pg_indexes_size('{name}')"
    ));
    let reported = format!(
        "{}|{}|{}",
        relation.heap.bytes.unwrap(),
        toast.bytes.unwrap(),
        toast.index_bytes.unwrap()
    );
    assert_eq!(reported, sizes);
}

#[test]
fn after_updates_deletes_and_transactions_that_ended_in_every_way() {
    let database = with_pageinspect("dead");
    database.psql(MIXED);
    database.psql(
        "UPDATE t SET id = id WHERE id % 5 = 0;
         DELETE FROM t WHERE id % 7 = 0;
         BEGIN; INSERT INTO t SELECT * FROM t WHERE id < 50; UPDATE t SET v = 'x'; ROLLBACK;
         BEGIN; SAVEPOINT a; DELETE FROM t WHERE id < 20; ROLLBACK TO a;
                SAVEPOINT b; UPDATE t SET v = 'sub' WHERE id BETWEEN 20 AND 40; RELEASE b; COMMIT;
         BEGIN; SELECT count(*) FROM (SELECT FROM t WHERE id < 90 FOR UPDATE) AS locked; COMMIT;
         BEGIN; INSERT INTO t (id) VALUES (1001), (1002); DELETE FROM t WHERE id = 100;
                SAVEPOINT s; UPDATE t SET v = 'prepared' WHERE id = 101; RELEASE s;
                PREPARE TRANSACTION 'left open';
         BEGIN; SELECT FROM t WHERE id = 102 FOR KEY SHARE; PREPARE TRANSACTION 'locker';
         UPDATE t SET v = 'multi' WHERE id = 102;
         BEGIN; UPDATE t SET v = 'aborted multi' WHERE id = 102; ROLLBACK;",
    );
    let relation = check(&database, "t");
    // 19 prunes most of them on the way
    assert!(relation.tuples.dead.unwrap().estimate > 10, "{:?}", relation.tuples);
    assert!(relation.tuples.hot_updated > Some(0));
    // again with the hint bits that the comparison has set
    check(&database, "t");
    database.psql("COMMIT PREPARED 'left open'; ROLLBACK PREPARED 'locker'; VACUUM t");
    let relation = check(&database, "t");
    assert_eq!(relation.tuples.dead, Some(Interval::exact(0)));
    database.psql("VACUUM (FREEZE) t");
    check(&database, "t");
}

#[test]
fn an_open_transaction_of_another_session_is_not_seen() {
    let database = with_pageinspect("open");
    database.psql("CREATE TABLE t AS SELECT i AS id, 'x' || i AS v FROM generate_series(1, 100) i");
    let mut session = database
        .psql_command()
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = session.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(session.stdout.take().unwrap());
    use std::io::{BufRead, Write};
    writeln!(
        input,
        "BEGIN; INSERT INTO t SELECT 0, 'new' FROM generate_series(1, 10); SAVEPOINT s;
         DELETE FROM t WHERE id < 5; RELEASE s; SELECT 'ready';"
    )
    .unwrap();
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0);
    }
    let relation = check(&database, "t");
    assert_eq!(relation.tuples.dead, Some(Interval::exact(10)));
    writeln!(input, "COMMIT;").unwrap();
    drop(input);
    session.wait().unwrap();
    // ten rows inserted with id 0 and deleted again, with four older ones
    assert_eq!(check(&database, "t").tuples.live, Interval::exact(96));
}

#[test]
fn columns_added_with_a_default_and_dropped_ones() {
    let database = with_pageinspect("added");
    database.psql(
        "CREATE TYPE pair AS (a int, b text); CREATE TYPE mood AS ENUM ('sad', 'ok');
         CREATE TABLE t (id int, gone text, keep text, gone_too int8);
         INSERT INTO t SELECT i, 'gone', 'keep' || i, i FROM generate_series(1, 50) i;
         ALTER TABLE t DROP gone, DROP gone_too;
         ALTER TABLE t ADD a text DEFAULT 'a \"quoted\" \\ default, {with} commas',
             ADD j jsonb DEFAULT '{\"k\": [1, 2.5, null]}', ADD r int4[] DEFAULT '{1,2,3}',
             ADD n numeric DEFAULT 12.5, ADD i8 int8 DEFAULT 7, ADD p pair DEFAULT '(1,\"x y\")',
             ADD m mood DEFAULT 'ok', ADD d tag DEFAULT 'tagged', ADD none text,
             ADD ta text[] DEFAULT '{a,\"b c\",NULL}', ADD by bytea DEFAULT '\\x00ff',
             ADD c char(8) DEFAULT 'x', ADD big text DEFAULT repeat('big', 3000);
         INSERT INTO t (id, keep, none) SELECT i, 'new', 'none' FROM generate_series(51, 60) i;
         ALTER TABLE t DROP i8;",
    );
    let relation = check(&database, "t");
    let missing: Vec<u64> = relation.columns.iter().map(|column| column.missing.estimate).collect();
    assert_eq!(missing, [0, 0, 50, 50, 50, 50, 50, 50, 50, 0, 50, 50, 50, 50]);
}

#[test]
fn sixteen_hundred_columns() {
    let database = with_pageinspect("wide");
    let columns: Vec<String> = (1..=1600).map(|i| format!("c{i} bool")).collect();
    database.psql(&format!("CREATE TABLE t ({})", columns.join(", ")));
    let values: Vec<&str> = (1..=1600).map(|i| if i % 3 == 0 { "NULL" } else { "true" }).collect();
    database.psql(&format!("INSERT INTO t VALUES ({})", values.join(", ")));
    database.psql("INSERT INTO t (c1600) SELECT false FROM generate_series(1, 20)");
    check(&database, "t");
}

#[test]
fn every_kind_of_relation() {
    let database = with_pageinspect("kinds");
    database.psql(MIXED);
    database.psql(
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE id % 2 = 0;
         CREATE TABLE empty (LIKE t);
         CREATE TABLE nothing ();
         INSERT INTO nothing SELECT FROM t;
         CREATE UNLOGGED TABLE u AS SELECT * FROM t;
         CREATE TABLE whole (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE part1 PARTITION OF whole FOR VALUES FROM (0) TO (300);
         CREATE TABLE part2 PARTITION OF whole FOR VALUES FROM (300) TO (1000);
         INSERT INTO whole SELECT id, l FROM t;
         CREATE TABLE parent (a text); CREATE TABLE child () INHERITS (parent);
         INSERT INTO parent VALUES ('p'); INSERT INTO child VALUES ('c'), ('d');",
    );
    for table in ["m", "empty", "nothing", "u", "part1", "part2", "child"] {
        check(&database, table);
    }
    let toast = database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 't'");
    assert_eq!(check(&database, &toast).kind, Some(RelationKind::Toast));
    for catalog in ["pg_class", "pg_proc", "pg_attribute", "pg_rewrite", "pg_statistic", "pg_type"]
    {
        check(&database, &format!("pg_catalog.{catalog}"));
    }
    for (table, all) in [("whole", ["part1", "part2"]), ("parent", ["parent", "child"])] {
        let both = run(toastctl()
            .args(["inspect", "-d", &database.url(), "--details", "--format", "jsonl"])
            .arg(table));
        let mut names: Vec<String> = Vec::new();
        for relation in both.exits(0).lines::<Relation>() {
            let name = relation.name.name.clone().unwrap();
            assert_eq!(by_report(&relation), by_sql(&database, &name), "{name}");
            names.push(name);
        }
        assert_eq!(names, all);
    }
}

#[test]
fn connections_side_by_side_see_the_same() {
    let database = with_pageinspect("jobs");
    database.psql(MIXED);
    database
        .psql("CREATE TABLE many AS SELECT i, md5(i::text) AS h FROM generate_series(1, 200000) i");
    for table in ["t", "many"] {
        let one = inspect(&database, table, &["--jobs", "1"]);
        let four = inspect(&database, table, &["--jobs", "4"]);
        assert_eq!(one, four);
    }
    check(&database, "many");
}

#[test]
fn no_table_named_means_all_user_tables_biggest_first() {
    let database = with_pageinspect("all");
    database.psql(MIXED);
    database.psql(
        "CREATE SCHEMA \"S 2\"; CREATE TABLE \"S 2\".\"T\" (a text); CREATE VIEW w AS SELECT 1",
    );
    let details = ["inspect", "--details", "--format", "json", "-d", &database.url()];
    let report: Printed<Report> = run(toastctl().args(details)).exits(0).report();
    let names: Vec<&str> =
        report.relations.iter().map(|relation| relation.name.relation.as_str()).collect();
    assert_eq!(names, ["public.t", "S 2.T"]);
}

/// Takes from a pages report what SQL functions can tell too.
fn comparable(relation: &Relation) -> (Amount, Vec<impl PartialEq + std::fmt::Debug + use<>>) {
    let columns = relation.columns.iter();
    let counts = |column: &Printed<ColumnFigures>| {
        let sizes = (column.all.stored_bytes, column.stored_size.clone());
        (column.column.clone(), column.all.values, column.nulls, sizes)
    };
    (relation.tuples.live, columns.map(counts).collect())
}

#[test]
fn an_owner_without_superuser_gets_counts_and_sizes_equal_to_the_full_report() {
    server::each_server(|server, major| {
        let database = server.create_database("owner");
        let role = database.create_role("owner_of");
        let mixed = if major == server::shared().major() {
            MIXED.to_owned()
        } else {
            MIXED.replace("COMPRESSION lz4", "COMPRESSION pglz")
        };
        database.psql(&format!(
            "CREATE EXTENSION pageinspect; CREATE DOMAIN tag AS text;
             {mixed} UPDATE t SET id = id WHERE id % 5 = 0;
             ALTER TABLE t OWNER TO {role}"
        ));
        let pages = inspect(&database, "t", &[]);
        let url = database.url_of(&role);
        let found = run(toastctl().args(["inspect", "-d", &url, "--format", "json", "t"]));
        assert_eq!(found.code, Some(0), "{}", found.stderr);
        assert!(
            found.stderr.contains("using SQL functions: pageinspect needs a superuser"),
            "{}",
            found.stderr
        );
        let functions = &found.relation();
        assert_eq!(functions.source, Source::Functions);
        assert_eq!(comparable(functions), comparable(&pages), "PostgreSQL {major}");
        assert_eq!(by_report(functions), by_report(&pages), "PostgreSQL {major}");
        assert!(!functions.not_available.is_empty());
        assert_eq!(functions.tuples.dead, None);
        if major >= 17 {
            // from here on the server tells what is out of line
            let external = |relation: &Relation| -> Vec<u64> {
                relation.columns.iter().map(|column| column.all.chunks.estimate).collect()
            };
            assert_eq!(external(functions), external(&pages), "PostgreSQL {major}");
        }
    });
}

#[test]
fn without_the_extension_functions_are_used_and_a_hint_is_given() {
    let database = server::shared().create_database("noext");
    database.psql("CREATE TABLE t (v text); INSERT INTO t VALUES ('x')");
    let found = run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json"]));
    assert_eq!(found.code, Some(0));
    assert!(found.stderr.contains("HINT:  CREATE EXTENSION pageinspect;"), "{}", found.stderr);
    assert_eq!(
        database.psql("SELECT count(*) FROM pg_extension WHERE extname = 'pageinspect'"),
        "0"
    );
    let found = run(toastctl().args(["inspect", "-d", &database.url(), "--source", "pageinspect"]));
    assert_eq!(found.code, Some(1), "{}", found.stderr);
}

/// What psql prints for `query`, in the form that `options` ask for.
fn psql_prints(database: &Database<'_>, query: &str, options: &[&str]) -> String {
    let output = Command::new("psql")
        .args(["-X", "-d", &database.url(), "-c", query])
        .args(options)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn saved_output_of_every_function_in_every_form_gives_the_values_of_the_live_table() {
    let database = with_pageinspect("saved");
    database.psql(
        "CREATE TABLE t (id int, gone int, v text, p text, e text, late text);
         ALTER TABLE t ALTER e SET STORAGE external;
         INSERT INTO t SELECT i, 1, CASE WHEN i % 4 > 0 THEN 'v' || i END, repeat('p', i * 100),
             repeat('e', i * 90) FROM generate_series(1, 40) i;
         ALTER TABLE t DROP gone;
         VACUUM t;",
    );
    let dir = tempfile::tempdir().unwrap();
    let columns = dir.path().join("columns.json");
    let query = toast_format::disk::columns::QUERY.replace("mytable", "t");
    std::fs::write(&columns, database.psql(&query)).unwrap();
    let columns = format!("@{}", columns.display());
    let values = |text: &str| -> Vec<Value> {
        let mut rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for row in &mut rows {
            row.as_object_mut().unwrap().remove("relation");
        }
        rows
    };
    let live = values(
        &run(toastctl().args(["value", "-d", &database.url(), "--format", "jsonl", "t"])).ok(),
    );
    assert!(live.iter().any(|row| row["form"] == "external_compressed") || live.len() == 200);
    let blocks = "generate_series(0, pg_relation_size('t') / 8192 - 1) AS blkno";
    let split = "tuple_data_split('t'::regclass, t_data, t_infomask, t_infomask2, t_bits)";
    let queries = [
        format!(
            "SELECT blkno, i.* FROM {blocks}, heap_page_items(get_raw_page('t', blkno::int)) i"
        ),
        format!(
            "SELECT blkno, i.* FROM {blocks}, \
             heap_page_item_attrs(get_raw_page('t', blkno::int), 't') i"
        ),
        format!("SELECT blkno, get_raw_page('t', blkno::int) FROM {blocks}"),
        format!(
            "SELECT blkno, {split} FROM {blocks}, heap_page_items(get_raw_page('t', blkno::int)) i"
        ),
    ];
    let forms: [&[&str]; 5] = [&[], &["-x"], &["-A"], &["--csv"], &["-A", "-t"]];
    for (number, query) in queries.iter().enumerate() {
        for (form, options) in forms.iter().enumerate() {
            let query = if form == 4 {
                format!("SELECT json_agg(r) FROM ({query}) AS r")
            } else {
                query.clone()
            };
            let text = psql_prints(&database, &query, options);
            let file = dir.path().join("saved.txt");
            std::fs::write(&file, text).unwrap();
            let found = run(toastctl()
                .args(["value", "--format", "jsonl", "--columns", &columns])
                .arg("--pageinspect")
                .arg(&file));
            let place = format!("query {number}, form {form}: {}", found.stderr);
            assert_eq!(found.code, Some(0), "{place}");
            let mut saved = values(&found.stdout);
            let mut expected = live.clone();
            if number == 3 {
                // tuple_data_split alone does not tell which tuple it is
                for row in saved.iter_mut().chain(&mut expected) {
                    row["item"] = Value::Null;
                    row["ctid"] = Value::Null;
                }
            }
            assert_eq!(saved, expected, "{place}");
        }
    }
}

#[test]
fn the_json_report_has_the_documented_shape() {
    let schema: Value = serde_json::from_str(schema("inspect").unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let database = with_pageinspect("shape");
    database.psql(MIXED);
    for more in [&["t"][..], &["--details", "--source", "functions"]] {
        let json =
            run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json"]).args(more))
                .ok();
        let report: Value = serde_json::from_str(&json).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&report).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0]);
        let jsonl = run(toastctl()
            .args(["inspect", "-d", &database.url(), "--format", "jsonl"])
            .args(more))
        .ok();
        let mut line: Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
        assert_eq!(line.as_object_mut().unwrap().remove("schema").unwrap(), "toastctl.inspect/2");
        assert_eq!(line, report["tables"][0]);
    }
}

/// PostgreSQL 18 has virtual generated columns: rows do not store them, which no verb takes for NULL.
#[test]
fn virtual_columns_are_not_stored_and_not_null() {
    if !server::has_major(18) {
        return;
    }
    let database = server::shared_of(18).with_pageinspect("virtual");
    database.psql(
        "CREATE TABLE v (id int PRIMARY KEY, doc jsonb,
             title text GENERATED ALWAYS AS (doc ->> 't') VIRTUAL,
             part jsonb GENERATED ALWAYS AS (doc -> 'a') VIRTUAL,
             first text GENERATED ALWAYS AS (left(doc ->> 'a', 3000)) STORED);
         INSERT INTO v (id, doc) SELECT i, jsonb_build_object('t', 'x' || i, 'a',
             (SELECT string_agg(md5(i || '/' || n), ' ') FROM generate_series(1, 200) AS n))
             FROM generate_series(1, 500) AS i",
    );
    let url = database.url();
    let done =
        |arguments: &[&str]| run(toastctl().args([arguments[0], "-d", &url]).args(&arguments[1..]));
    let why = "is virtual: its values are not stored";
    for arguments in [
        &["value", "v.title@(0,1)"][..],
        &["advise-threshold", "v", "-c", "title"],
        &["keys", "v", "-c", "part"],
        &["retoast", "v", "-c", "title", "--toaster", "extended", "--dry-run"],
    ] {
        let refused = done(arguments);
        assert_ne!(refused.code, Some(0), "{arguments:?}: {}", refused.stdout);
        assert!(refused.stderr.contains(why), "{arguments:?}: {}", refused.stderr);
    }
    for source in ["auto", "functions"] {
        let report = inspect(&database, "v", &["--source", source]);
        let columns: Vec<&str> = report.columns.iter().map(|c| c.column.as_str()).collect();
        assert_eq!(columns, ["id", "doc", "first"]);
        let missing = report.json()["details"]["not_available"].to_string()
            + &report.json()["not_available"].to_string();
        assert!(missing.contains("virtual generated columns title, part"), "{missing}");
    }
    let text = done(&["inspect", "v"]).ok();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("virtual generated columns title, part"), "{text}");
    let listed = done(&["value", "v"]).ok();
    assert!(!listed.contains("title") && !listed.contains(" null"), "{listed}");
    let advice = done(&["advise-threshold", "v", "--emit", "command"]).ok();
    assert!(!advice.contains("title"), "{advice}");
    let keys = done(&["keys", "v"]).ok();
    assert!(!keys.contains("column part ("), "{keys}");
    let checked = done(&["check", "v", "--deep"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
}

/// Options of the TOAST relation are part of the table's, as in CREATE TABLE.
#[test]
fn options_of_the_toast_relation_are_shown() {
    let database = with_pageinspect("toast_options");
    database.psql(
        "CREATE TABLE t (v text)
             WITH (fillfactor = 90, toast.autovacuum_enabled = off, toast.vacuum_truncate = off)",
    );
    let text = run(toastctl().args(["inspect", "-d", &database.url(), "t"])).ok();
    let expected =
        "options: fillfactor=90, toast.autovacuum_enabled=off, toast.vacuum_truncate=off";
    assert!(text.contains(expected), "{text}");
    let options = inspect(&database, "t", &[]).json()["details"]["options"].to_string();
    assert!(options.contains("\"toast.autovacuum_enabled=off\""), "{options}");
}

/// What a pointer is about is its value ID: it is shown at 80 columns, and what has no room is named.
#[test]
fn listed_values_show_the_id_of_their_value() {
    let database = with_pageinspect("ids");
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat('x', 5000) FROM generate_series(1, 3) AS i",
    );
    let at = |columns: &str, arguments: &[&str]| {
        let mut command = toastctl();
        command.args(["value", "-d", &database.url()]).args(arguments);
        run(command.env("COLUMNS", columns)).ok()
    };
    let toast =
        database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 't'::regclass");
    let id = database.psql(&format!("SELECT min(chunk_id) FROM {toast}"));
    let text = at("80", &["t"]);
    assert!(text.contains(" Value ID |"), "{text}");
    assert!(text.contains("(hidden, shown with COLUMNS=0: "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains(&format!(" | {id:>9} | ")), "{text}");
    let wide = at("120", &["t"]);
    assert!(!wide.contains("(hidden, shown"), "{wide}");
    // a datum by itself has no row
    let mut command = toastctl();
    command.args(["value", "--datum", r"\x011214270000102700009e7003009b700300"]);
    let datum = run(command.env("COLUMNS", "80")).ok();
    assert!(!datum.contains("Ctid") && datum.contains(" Value ID |"), "{datum}");
    assert!(datum.contains(" 225438 "), "{datum}");
}

/// Without its TOAST file a relation's size is not known: no column is more than the whole.
#[test]
fn a_file_without_its_toast_file_has_no_shares() {
    let database = with_pageinspect("no_toast_file");
    database.psql(
        "CREATE TABLE t (id int, v text, w text);
         ALTER TABLE t ALTER v SET STORAGE external, ALTER w SET STORAGE external;
         INSERT INTO t SELECT i, repeat('x', 5000), repeat('y', 4000) FROM generate_series(1, 300) AS i;
         CREATE TABLE flat (id int, v text); INSERT INTO flat SELECT i, 'x' FROM generate_series(1, 300) AS i;
         CHECKPOINT",
    );
    let file = |what: &str| {
        let path = database.psql(&format!("SELECT pg_relation_filepath({what})"));
        database.server().data_dir().join(path)
    };
    let of_file = |heap: &str, columns: &str, more: &[&std::ffi::OsStr]| {
        let mut command = toastctl();
        command.args(["inspect", "--columns", columns]);
        command.arg("--relation-file").arg(file(heap)).args(more);
        run(&mut command).ok()
    };
    let columns = "id int4, v text, w text";
    let text = of_file("'t'", columns, &[]);
    assert!(!text.contains("Share"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("share of each column (the TOAST file was not given: --toast-file)"),
        "{text}"
    );
    let toast = file("(SELECT reltoastrelid FROM pg_class WHERE oid = 't'::regclass)");
    let whole = of_file("'t'", columns, &["--toast-file".as_ref(), toast.as_os_str()]);
    assert!(whole.contains("Share") && !whole.contains("not given"), "{whole}");
    // a table that needs no TOAST relation has no such file
    let flat = of_file("'flat'", "id int4, v text", &[]);
    assert!(flat.contains("Share") && !flat.contains("not given"), "{flat}");
}

/// Tables have room for figures next to the longest names.
#[test]
fn the_longest_names_are_shortened_in_tables() {
    let database = with_pageinspect("long_names");
    let [schema, table, column] = ["s", "t", "c"].map(|letter| letter.repeat(63));
    let name = format!("{schema}.{table}");
    database.psql(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {name} AS SELECT jsonb_build_object('{column}', repeat(md5(i::text), 90)) AS
         {column} FROM generate_series(1, 2000) AS i; VACUUM {name}"
    ));
    for arguments in [
        &["inspect"][..],
        &["inspect", &name],
        &["keys", &name],
        &["advise-threshold", &name],
        &["retoast", &name, "-c", &column, "--toaster", "external", "--dry-run"],
    ] {
        let mut command = toastctl();
        command.args(arguments).args(["-d", &database.url()]);
        let text = run(command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8")).ok();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" | ")).collect();
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{text}");
        assert!(rows.iter().any(|row| row.contains(" kB") || row.contains(" %")), "{text}");
    }
}
