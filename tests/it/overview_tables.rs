//! `inspect` of many tables: which of them takes the disk, which are chosen, and what has changed since an earlier run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::overview::TableLine;
use crate::support::server::{self, Database, with_pageinspect};
use crate::support::verbs::{inspect, overview};

/// A table that is mostly free, one with TOAST and one with a large index; a partitioned one in another schema.
const TABLES: &str = "
    CREATE TABLE emptied (id int, v text);
    INSERT INTO emptied SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 30000) AS i;
    CREATE TABLE documents (id int, doc text COMPRESSION pglz, note text COMPRESSION lz4); ALTER TABLE documents ALTER doc SET STORAGE external;
    INSERT INTO documents SELECT i, repeat(md5(i::text), 100), 'x' FROM generate_series(1, 2000) AS i;
    CREATE TABLE small (id int PRIMARY KEY); INSERT INTO small SELECT generate_series(1, 1000);
    CREATE SCHEMA audit; CREATE TABLE audit.events (id int, old text) PARTITION BY RANGE (id);
    CREATE TABLE audit.events_1 PARTITION OF audit.events FOR VALUES FROM (0) TO (100);
    CREATE TABLE audit.events_2 PARTITION OF audit.events FOR VALUES FROM (100) TO (200);
    INSERT INTO audit.events SELECT i, md5(i::text) FROM generate_series(1, 150) AS i;";

fn with_tables(prefix: &str) -> Database<'static> {
    let database = with_pageinspect(prefix);
    database.psql(TABLES);
    database
        .psql("DELETE FROM emptied WHERE id % 20 <> 0; VACUUM emptied, small; ANALYZE documents");
    database
}

fn names(tables: &[TableLine]) -> Vec<&str> {
    tables.iter().map(|table| table.relation.as_str()).collect()
}

#[test]
fn the_table_that_takes_the_disk_comes_first_with_what_is_free_and_found() {
    let database = with_tables("disk");
    // before PostgreSQL 15, it comes later to the statistics
    database.until_true(
        "SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'emptied'",
    );
    let seen = overview(&database, &[]);
    let tables = &seen.ranked_tables;
    assert_eq!(
        names(tables),
        ["public.emptied", "public.documents", "public.small", "audit.events"]
    );
    for table in &**tables {
        let relation = &table.relation;
        let sql = if relation == "audit.events" {
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('audit.events')"
        } else {
            &format!("SELECT pg_total_relation_size('{relation}')")
        };
        let figures = &table.figures;
        let mine = [figures.heap_bytes, figures.toast_bytes, figures.toast_index_bytes];
        let mine: u64 = mine.iter().map(|bytes| bytes.unwrap_or(0)).sum();
        let whole: u64 = database.psql(sql).parse().unwrap();
        // free space maps and visibility maps are not counted
        let counted = mine + figures.index_bytes.unwrap_or(0);
        assert!(
            counted <= whole && whole - counted <= 8 * 40_960,
            "{relation}: {counted}, {whole}"
        );
    }
    let [emptied, documents, _, events] = tables.as_slice() else { panic!("{seen}") };
    let free = emptied.figures.unused_bytes.unwrap().estimate;
    assert!(free > emptied.figures.heap_bytes.unwrap() / 2, "{free}");
    assert_eq!((emptied.figures.findings, emptied.parts, events.parts), (Some(1), 1, 2));
    assert!(emptied.figures.vacuum_age_seconds.is_some_and(|age| age < 600));
    assert_eq!(documents.figures.vacuum_age_seconds, None);

    let text = inspect(&database, &[]).ok();
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(place("\n emptied ") < place("\n documents "), "{text}");
    assert!(place("| Findings") < place("| Column"), "{text}");
    let said = "New values: pglz (default_toast_compression) in 3 columns, the column's own method in 1, \
                uncompressed in 1; what lz4 would do: \
                toastctl advise-threshold TABLE --method lz4";
    assert!(in_one_line(&text).contains(said), "{text}");
    // one limit and one order for both
    let first = inspect(&database, &["--limit", "1"]).ok();
    assert_eq!((first.matches("(3 more)").count(), first.matches("\n documents").count()), (1, 1));
    let by_name = overview(&database, &["--sort", "name", "--limit", "1"]);
    assert_eq!(names(&by_name.ranked_tables), ["audit.events"]);
    let by_free = overview(&database, &["--sort", "unused"]);
    assert_eq!(names(&by_free.ranked_tables)[0], "public.emptied");
    // csv has a row for each table, whose column is empty
    let csv = inspect(&database, &["--format", "csv"]).ok();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let field = |name: &str| rows[0].iter().position(|field| *field == name).unwrap();
    assert_eq!(rows[1][..2], ["public.emptied", ""]);
    assert_eq!(rows[1][field("heap_bytes")], emptied.figures.heap_bytes.unwrap().to_string());
    assert_eq!(rows[1][field("finding_count")], "1");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    let page = inspect(&database, &["--format", "html"]).ok();
    assert!(page.contains("<caption>Tables</caption>"), "{page}");
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_other_method_does_to_values_of_the_default_one_is_tried() {
    let database = with_pageinspect("both_methods");
    database.psql(
        "CREATE TABLE t (id int, inside text, outside text, own text COMPRESSION lz4, kept text);
         ALTER TABLE t ALTER kept SET STORAGE external;
         INSERT INTO t SELECT i, (SELECT string_agg('word' || j * i % 211, ' ') FROM generate_series(1, 400) AS j),
             (SELECT string_agg(md5((i * j % 997)::text), ' ') || repeat('x', 3000) FROM generate_series(1, 120) AS j),
             repeat(md5(i::text), 90), repeat(md5(i::text), 90)
         FROM generate_series(1, 900) AS i; VACUUM t",
    );
    let seen = overview(&database, &[]);
    let tried = seen.totals.other_method.unwrap();
    // 8 of values in rows, and 8 of those out of line, in the two columns that follow the default
    assert_eq!(tried.columns, 2, "{tried:?}");
    assert!((8..=32).contains(&tried.values), "{tried:?}");
    assert!(tried.least_ratio <= tried.greatest_ratio, "{tried:?}");
    let text = in_one_line(&inspect(&database, &[]).ok());
    let said = "New values: pglz (default_toast_compression) in 2 columns, the column's own method in 1, uncompressed in 1; lz4 would make large values of 2 columns ";
    assert!(text.contains(said), "{text}");
    assert!(text.contains(&format!("({} values tried)", tried.values)), "{text}");
    // the ratio is that of all bytes of these columns, however many values are tried of each
    let columns = seen.columns.iter().filter(|line| ["inside", "outside"].contains(&&*line.column));
    let stored: u64 = columns.map(|column| column.stored_bytes.estimate).sum();
    assert_eq!(tried.column_bytes, stored);
    // the sizes are those of the server
    database.psql(
        "CREATE TABLE other (LIKE t); ALTER TABLE other ALTER inside SET COMPRESSION lz4, ALTER outside SET COMPRESSION lz4;
         INSERT INTO other SELECT id, inside || '', outside || '', own, kept FROM t",
    );
    for column in ["inside", "outside"] {
        let size = |table: &str| -> f64 {
            let sql = format!("SELECT sum(pg_column_size({column})) FROM {table}");
            database.psql(&sql).parse().unwrap()
        };
        let ratio = size("other") / size("t");
        let seen = overview(&database, &["-c", column]);
        let tried = seen.totals.other_method.unwrap();
        let found = tried.ratio;
        assert!((found / ratio - 1.0).abs() < 0.1, "{column}: {found}, {ratio}");
    }
}

#[test]
fn both_ends_of_a_long_name_are_kept_in_every_locale() {
    let database = with_pageinspect("long_names");
    database.psql("CREATE TABLE audit_log_of_all_customers_and_their_changes (v text)");
    for (locale, dots) in [("C", "..."), ("C.UTF-8", "…")] {
        let mut command = toastctl();
        command.args(["inspect", "--sort", "name", "-d", &database.conninfo()]);
        let text = run(command.env("LC_ALL", locale).env("COLUMNS", "60")).ok();
        let name = text.lines().find_map(|line| line.strip_prefix(" audit_")).unwrap();
        let name = name.split(' ').next().unwrap();
        let (begin, end) = name.split_once(dots).unwrap_or_else(|| panic!("{locale}: {text}"));
        assert!(!begin.contains('.') && end.ends_with("changes") && !end.contains('.'), "{text}");
    }
}

#[test]
fn schemas_and_exclusions_are_those_of_pg_dump() {
    let database = with_tables("chosen");
    let chosen = |arguments: &[&str]| {
        let seen = overview(&database, arguments);
        names(&seen.ranked_tables).iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&["-n", "audit"]), ["audit.events"]);
    assert_eq!(chosen(&["-n", "aud*", "-n", "public", "--sort", "name"]).len(), 4);
    assert_eq!(chosen(&["-N", "public"]), ["audit.events"]);
    let others = ["public.emptied", "public.documents"];
    assert_eq!(chosen(&["--exclude", "small", "-N", "audit"]), others);
    assert_eq!(chosen(&["--exclude", "small", "--exclude", "audit.events"]), others);
    assert_eq!(chosen(&["*.e*", "--exclude", "audit.*", "--sort", "name"]), ["public.emptied"]);
    let run = inspect(&database, &["--exclude", "smal"]).exits(0);
    let said = "toastctl: notice: no table matches \"smal\", which is excluded\n";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    let run = inspect(&database, &["-n", "audit", "-N", "aud*"]).exits(0);
    assert!(run.stderr.contains("no tables are left, as others are excluded"), "{}", run.stderr);
    let run = inspect(&database, &["-n", "nowhere"]).exits(1);
    assert!(run.stderr.contains("nowhere.*"), "{}", run.stderr);
    let run = inspect(&database, &["-n", "audit", "small"]).exits(2);
    assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
    let run = inspect(&database, &["check", "-n", "audit"]).exits(0);
    assert!(run.stdout.starts_with("2 tables: all sound"), "{}", run.stdout);
}

#[test]
fn a_column_is_shown_alone_and_one_that_is_nowhere_is_an_error() {
    let database = with_tables("column");
    let text = inspect(&database, &["documents", "-c", "doc"]).ok();
    assert!(text.contains("doc") && !text.contains("note"), "{text}");
    let seen = overview(&database, &["-c", "v", "-c", "doc"]);
    let columns: Vec<&str> = seen.columns.iter().map(|line| line.column.as_str()).collect();
    assert_eq!(columns, ["doc", "v"]);
    assert_eq!(names(&seen.ranked_tables), ["public.emptied", "public.documents"]);
    let text = inspect(&database, &["-c", "v"]).ok();
    assert!(
        !text.contains("Columns take"),
        "of one column it is not said what the rest is: {text}"
    );
    // of several tables each has the column, or is named
    let two = inspect(&database, &["documents", "small", "-c", "doc"]);
    assert_eq!(two.code, Some(0), "{}", two.stderr);
    let left_out = "notice: left out, without such a column: public.small\n";
    assert!(two.stderr.contains(left_out), "{}", two.stderr);
    let one_of_two = inspect(&database, &["-c", "doc", "-c", "nosuch"]);
    assert_eq!(one_of_two.code, Some(1), "{}", one_of_two.stderr);
    assert!(one_of_two.stderr.contains("has a column \"nosuch\"\n"), "{}", one_of_two.stderr);
    let none = "toastctl: error: no table that was read has a column \"docs\"\n\
                HINT:  Perhaps you meant the column doc.\n";
    // of one table this is said before it is read
    let not_there = "toastctl: error: column \"docs\" of relation \"public.documents\" does not exist\n\
                     HINT:  Perhaps you meant \"doc\".\n";
    for (arguments, said) in
        [(&["documents", "-c", "docs"][..], not_there), (&["-c", "docs"], none)]
    {
        let run = inspect(&database, arguments).exits(1);
        assert!(run.stderr.ends_with(said) && run.stdout.is_empty(), "{}", run.stderr);
    }
}

/// Keeps what was printed.
fn kept(dir: &Path, name: &str, run: Run) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, run.stdout).unwrap();
    path
}

#[test]
fn what_has_grown_and_what_a_conversion_and_compaction_brought_is_shown() {
    let database = with_tables("changes");
    let temp = tempfile::tempdir().unwrap();
    let whole = &["--format", "json", "--sample", "100%"][..];
    let file = kept(temp.path(), "before.json", inspect(&database, whole).exits(0));
    let file = file.to_str().unwrap();
    let compared = |arguments: &[&str]| {
        inspect(&database, &[arguments, &["--compare", file, "--sample", "100%"]].concat())
    };
    let same = compared(&[]).ok();
    assert!(same.contains("No table and no column has changed in size."), "{same}");
    inspect(&database, &["compact", "emptied"]);
    database.psql(
        "ALTER TABLE documents ALTER doc SET STORAGE extended;
         UPDATE documents SET doc = doc || ''; VACUUM (FULL) documents;
         INSERT INTO small SELECT generate_series(1001, 9000); DROP TABLE audit.events;
         CREATE TABLE fresh AS SELECT repeat('x', 90) AS v FROM generate_series(1, 500); VACUUM",
    );
    let text = compared(&[]).ok();
    for words in
        ["Since 2", " documents ", " -", " +", "gone", "new", "external -> ", "2 findings are gone"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let report: Value = serde_json::from_str(&compared(&["--format", "json"]).ok()).unwrap();
    let compared_now = &report["compared"];
    let table = |name: &str| {
        let tables = compared_now["tables"].as_array().unwrap();
        tables.iter().find(|table| table["relation"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    assert!(table("public.emptied")["bytes_change"].as_i64().unwrap() < -10_000_000);
    assert!(table("public.documents")["bytes_change"].as_i64().unwrap() < -1_000_000);
    assert!(table("public.small")["bytes_change"].as_i64().unwrap() > 100_000);
    assert_eq!(
        (&table("audit.events")["now"], &table("public.fresh")["before"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(compared_now["gone_findings"][0]["code"], "free-space");
    let doc = &compared_now["columns"][0];
    assert_eq!((&doc["column"], &doc["before"]["storage"]), (&"doc".into(), &"external".into()));
    assert!(doc["now"]["ratio"]["estimate"].as_f64().unwrap() > 10.0, "{doc:#}");
    // tables that were not asked for are not gone
    let some = compared(&["small", "fresh"]).ok();
    assert!(!some.contains("gone") || some.contains("No finding is gone"), "{some}");
    let csv = compared(&["--format", "csv"]).ok();
    let row = csv.lines().find(|line| line.starts_with("public.emptied,,")).unwrap();
    let change: Vec<&str> = row.rsplit(',').take(2).collect();
    assert!(change[0].starts_with('-') && change[1].parse::<u64>().unwrap() > 10_000_000, "{row}");
    assert!(csv.lines().any(|line| line.starts_with("audit.events,,")), "{csv}");
    let page = compared(&["--format", "html"]).ok();
    assert!(page.contains("<caption>Columns that changed</caption>"), "{page}");
    let markdown = compared(&["--format", "markdown"]).ok();
    assert!(markdown.contains("| Table "), "{markdown}");
}

#[test]
fn tables_that_one_run_was_not_to_read_are_neither_new_nor_gone() {
    let database = with_tables("selections");
    let temp = tempfile::tempdir().unwrap();
    let selections = [("alone", &["documents"][..]), ("schema", &["-n", "public"]), ("all", &[])];
    for (name, selection) in selections {
        kept(temp.path(), name, inspect(&database, &[selection, &["--format", "json"]].concat()));
    }
    database.psql("DROP TABLE small; CREATE TABLE fresh AS SELECT repeat('x', 90) AS v");
    for (now, selection) in selections {
        for (earlier, _) in selections {
            let file = temp.path().join(earlier);
            let file = ["--compare", file.to_str().unwrap(), "--format", "json"];
            let report = inspect(&database, &[selection, &file[..]].concat()).exits(0);
            let report: Value = serde_json::from_str(&report.stdout).unwrap();
            let tables = report["compared"]["tables"].as_array().unwrap();
            let is_there = |name: &str| tables.iter().any(|table| table["relation"] == name);
            let is_known = earlier == now && now != "alone";
            let is_gone = is_known || (earlier == "schema" && now == "all");
            let is_new = is_known || (earlier == "all" && now == "schema");
            let expected = (is_gone, is_new);
            let found = (is_there("public.small"), is_there("public.fresh"));
            assert_eq!(found, expected, "{earlier}, then {now}: {report:#}");
        }
    }
}

#[test]
fn a_file_that_is_something_else_is_refused_before_tables_are_read() {
    let database = with_tables("refused");
    let other = with_pageinspect("other");
    let temp = tempfile::tempdir().unwrap();
    let json = &["--format", "json"][..];
    let own = kept(temp.path(), "own", inspect(&database, json).exits(0));
    let text = fs::read_to_string(&own).unwrap();
    let written = |name: &str, text: &str| {
        let path = temp.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let check = inspect(&database, &[&["check", "small"], json].concat()).exits(0);
    let explained = inspect(&database, &[&["documents", "--explain"], json].concat()).exits(0);
    for (path, said) in [
        (kept(temp.path(), "other", inspect(&other, json)), "is about the database"),
        (written("empty", " \n"), "is empty: expected what toastctl inspect"),
        (written("text", "Table | Column"), "was not written by toastctl inspect"),
        (written("cut", &text[..text.len() / 2]), "is cut (line "),
        (written("list", "[]"), "has no field schema"),
        (
            written("old", &text.replace("toastctl.inspect/2", "toastctl.inspect/1")),
            "another version",
        ),
        (written("bent", &text.replace("\"heap_bytes\": ", "\"heap_bytes\": -")), "is damaged"),
        (kept(temp.path(), "check", check), "is toastctl.check/"),
        (kept(temp.path(), "explained", explained), "is a report of --explain"),
        (temp.path().join("nothing"), "cannot be read: No such file"),
        (temp.path().to_owned(), "cannot be read: it is not a regular file"),
    ] {
        let run = inspect(&database, &["--compare", path.to_str().unwrap()]).exits(2);
        assert!(run.stderr.contains(said) && run.stdout.is_empty(), "{}", run.stderr);
    }
    let path = own.to_str().unwrap();
    for arguments in [&["--format", "nagios"][..], &["--all"], &["-c", "v"], &["--details"]] {
        let run = inspect(&database, &[arguments, &["--compare", path]].concat());
        assert!(
            matches!(run.code, Some(2 | 3)) && run.stderr.contains("--compare"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_sample_that_is_asked_for_hides_no_findings_about_contents() {
    let database = with_pageinspect("sampled_contents");
    database.psql(
        "CREATE TABLE t (id int, doc text); ALTER TABLE t ALTER doc SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 1500) AS i; VACUUM t",
    );
    for sample in [&[][..], &["--sample", "100%"], &["--sample", "20 blocks"]] {
        let text = inspect(&database, sample).ok();
        assert!(text.contains("no-compression t.doc: "), "{sample:?}: {text}");
    }
}

#[test]
fn who_may_read_nothing_sees_which_tables_are_large() {
    let database = server::shared().create_database("unreadable");
    let role = database.create_role("may_nothing");
    database.psql(
        "CREATE TABLE large AS SELECT repeat('x', 1000) AS v FROM generate_series(1, 2000);
         CREATE TABLE small AS SELECT 1 AS v",
    );
    let run = run(toastctl().args(["inspect", "-d", &database.url_of(&role)]));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("public.large, public.small: permission denied"), "{}", run.stderr);
    let findings = "Findings: not known in 2 tables that could not be read, or only in part.";
    assert!(in_one_line(&run.stdout).contains(findings), "{}", run.stdout);
    assert!(run.stdout.contains("\n small (not read) | "), "{}", run.stdout);
    // and an empty TOAST relation with its index
    let large: u64 = database.psql("SELECT pg_relation_size('large') + 8192").parse().unwrap();
    let said = format!(": large ({} kB), small (8192 bytes).", large / 1024);
    assert!(run.stdout.contains(&said), "{said}: {}", run.stdout);
}
