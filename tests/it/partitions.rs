//! A table of many partitions: the number of statements grows with the partitions and no faster, and the catalog is read
//! for many of them at a time.

use std::ops::RangeInclusive;

use crate::support::command::{run, toastctl};
use crate::support::findings::{act, prepared};
use crate::support::holder::Holder;
use crate::support::server::{Database, Options, Server};
use serde_json::Value;

/// A server that logs every statement with the program that sends it.
fn server() -> Server {
    let options = Options::default();
    Server::start(&options.set("log_statement", "all").set("log_line_prefix", "%a|"))
}

/// The statements of a run on a table with this number of partitions, each with a value out of line.
fn statements(server: &Server, parts: usize, arguments: &[&str]) -> Vec<String> {
    let database = server.create_database("parts");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
         ALTER TABLE t ALTER v SET STORAGE external;
         DO $$ BEGIN FOR i IN 1..{parts} LOOP
           EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);
         END LOOP; END $$;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, {parts}) i"
    ));
    let logged = || server.logged(|line| line.starts_with("toastctl") && line.contains("LOG:  "));
    let before = logged().len();
    let run = run(toastctl().args(arguments).args(["-d", &database.url()]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    logged().split_off(before)
}

/// Statements for each of 200 partitions more, and all statements for the larger table.
fn per_partition(server: &Server, arguments: &[&str]) -> (f64, Vec<String>) {
    let few = statements(server, 40, arguments);
    let many = statements(server, 240, arguments);
    ((many.len() as f64 - few.len() as f64) / 200.0, many)
}

#[test]
fn an_overview_describes_many_partitions_at_a_time() {
    let server = server();
    let (each, all) = per_partition(&server, &["inspect", "--max-time", "5min"]);
    assert!(each < 12.0, "{each}: {:#?}", &all[all.len() - 40..]);
    let catalog = all.iter().filter(|line| line.contains("pg_catalog.pg_attribute")).count();
    assert!(catalog <= 2 * 25, "{catalog} queries of the catalog for 240 partitions");
}

#[test]
fn a_plan_reads_the_catalog_for_many_partitions_at_a_time() {
    let server = server();
    let retoast = ["retoast", "t", "-c", "v", "--toaster", "lz4", "--dry-run"];
    let (each, all) = per_partition(&server, &retoast);
    // a slow machine measures the server a few times more
    assert!(each < 30.0, "{each}: {:#?}", &all[all.len() - 60..]);
    let of_tables = |line: &&String| line.contains("pg_catalog.pg_class");
    let catalog = all.iter().filter(of_tables).count();
    assert!(catalog < 120, "{catalog} queries of pg_class for 240 partitions");
}

/// A partition that another session has locked is refused, and the others are planned.
#[test]
fn a_locked_partition_is_refused_and_the_others_are_planned() {
    let server = server();
    let database = server.create_database("locked");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE a PARTITION OF t FOR VALUES FROM (0) TO (1);
         CREATE TABLE b PARTITION OF t FOR VALUES FROM (1) TO (2);
         CREATE TABLE c PARTITION OF t FOR VALUES FROM (2) TO (3);
         CREATE INDEX b_id ON b (id);
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(0, 2) i",
    );
    let holder = Holder::of(&database, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE");
    let run = run(toastctl()
        .args(["retoast", "t", "-c", "v", "--toaster", "lz4", "--dry-run"])
        .env("PGOPTIONS", "-c lock_timeout=300ms")
        .args(["-d", &database.url()]));
    let pid = holder.pid.clone();
    drop(holder);
    let named = format!("public.b: session {pid} (user postgres, psql, in a transaction for ");
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    assert!(!run.stderr.contains("public.a: session"), "{}", run.stderr);
    for planned in ["public.a", "public.c"] {
        assert!(run.stdout.contains(planned), "{}", run.stdout);
    }
    assert_ne!(run.code, Some(0));
}

/// The findings of an overview.
fn overview(database: &Database<'_>, arguments: &[&str]) -> Vec<Value> {
    let mut command = toastctl();
    command.args(["inspect", "-d", &database.url(), "--format", "json"]).args(arguments);
    let done = run(command.args(["--max-time", "5min"]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    report["findings"].as_array().unwrap().clone()
}

/// A table with this number of partitions, and one without that has the same rows: values of 6 kB out of line, of which two
/// in three are deleted where `deleted` says so.
fn with_free_space(prefix: &str, parts: u32, deleted: &str) -> Database<'static> {
    let database = prepared(prefix);
    database.psql(&format!(
        "CREATE TABLE parts (id int, v text) PARTITION BY RANGE (id);
         DO $$ BEGIN FOR i IN 1..{parts} LOOP
           EXECUTE format('CREATE TABLE part_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i, i * 1000, i * 1000 + 1000);
         END LOOP; END $$;
         CREATE TABLE flat (id int, v text);
         ALTER TABLE parts ALTER v SET STORAGE external; ALTER TABLE flat ALTER v SET STORAGE external;
         INSERT INTO parts SELECT p * 1000 + i, noise(p * 1000 + i, 6000)
             FROM generate_series(1, {parts}) AS p, generate_series(1, 180) AS i;
         INSERT INTO flat SELECT * FROM parts;
         DELETE FROM parts WHERE id % 3 > 0 AND {deleted}; DELETE FROM flat WHERE id % 3 > 0 AND {deleted}"
    ));
    database.psql("VACUUM (TRUNCATE off) parts");
    database.psql("VACUUM (TRUNCATE off) flat");
    database
}

#[test]
fn what_partitions_waste_together_is_found_as_in_one_table() {
    let database = with_free_space("whole", 30, "true");
    let found = overview(&database, &[]);
    let of = |table: &str| {
        let found = found.iter().filter(|finding| finding["relation"] == table);
        let found: Vec<&Value> = found.collect();
        let [finding] = found.as_slice() else { panic!("{table}: {found:#?}") };
        assert_eq!((&finding["code"], &finding["object"]), (&"free-space".into(), &"toast".into()));
        (*finding).clone()
    };
    let (parts, flat) = (of("public.parts"), of("public.flat"));
    let bytes = |finding: &Value| finding["value"].as_u64().unwrap();
    assert!(bytes(&parts).abs_diff(bytes(&flat)) * 20 < bytes(&flat), "{parts:#} {flat:#}");
    assert!(bytes(&parts) > 20 << 20, "{parts:#}");
    assert_eq!(parts["what"], "free in the TOAST relation's file in 30 partitions");
    assert_eq!(parts["command"], "toastctl compact public.parts --files toast");
    // as in any other selection of it
    assert_eq!(overview(&database, &["parts"])[0]["value"], parts["value"]);
    // one by one, each is too small
    assert_eq!(overview(&database, &["parts", "--parts"]), [] as [Value; 0]);
    act(&database, parts["command"].as_str().unwrap());
    assert_eq!(overview(&database, &["parts"]), [] as [Value; 0]);
}

#[test]
fn partitions_that_waste_much_are_named_though_the_others_waste_nothing() {
    let database = with_free_space("some", 12, "id / 1000 IN (4, 9)");
    let found = overview(&database, &["parts"]);
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(finding["relation"], "public.parts");
    assert_eq!(finding["what"], "free in the TOAST relation's file in 2 of 12 partitions");
    assert_eq!(finding["command"], "toastctl compact public.part_4 public.part_9 --files toast");
    assert!(finding["value"].as_u64().unwrap() > 1 << 20, "{finding:#}");
    act(&database, finding["command"].as_str().unwrap());
    assert_eq!(overview(&database, &["parts"]), [] as [Value; 0]);
}

/// VACUUM of their parent leaves them out before PostgreSQL 18.
#[test]
fn the_command_for_inheritance_children_reaches_them() {
    let database = prepared("children");
    database.psql(
        "CREATE TABLE kids (id int, t text); CREATE TABLE kid () INHERITS (kids);
         INSERT INTO kid SELECT i, noise(i, 4000) FROM generate_series(1, 600) AS i;
         ALTER TABLE kids DROP COLUMN t; VACUUM ANALYZE kid",
    );
    let found = overview(&database, &["kids"]);
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(finding["code"], "dropped-column");
    assert_eq!(finding["command"], "VACUUM FULL \"public\".\"kid\";");
    act(&database, finding["command"].as_str().unwrap());
    assert_eq!(overview(&database, &["kids"]), [] as [Value; 0]);
}

/// The advice on a table, as JSON.
fn advice(database: &Database<'_>, table: &str) -> Vec<Value> {
    let mut command = toastctl();
    command.args(["advise-threshold", table, "-d", &database.url(), "--format", "json"]);
    let done = run(&mut command);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    document["columns"].as_array().unwrap().clone()
}

fn words(advice: &Value) -> String {
    let words = advice["recommendation"]["command"].as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// Creates `parts`, whose values are stored without compression, with partitions of `width` IDs each, by number.
fn create_parts(numbers: RangeInclusive<u32>, width: u32) -> String {
    let (first, last) = numbers.into_inner();
    format!(
        "CREATE TABLE parts (id int, v text) PARTITION BY RANGE (id);
         ALTER TABLE parts ALTER v SET STORAGE external;
         DO $$ BEGIN FOR i IN {first}..{last} LOOP
           EXECUTE format('CREATE TABLE part_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i, i * {width},
             i * {width} + {width});
         END LOOP; END $$;"
    )
}

#[test]
fn a_partitioned_table_gets_one_advice_and_one_command() {
    let database = prepared("advised_parts");
    let filled =
        "CREATE TABLE flat (id int, v text); ALTER TABLE flat ALTER v SET STORAGE external;
         INSERT INTO flat SELECT p * 1000 + i, repeat(md5(i::text), 200) || noise(i, 500)
             FROM generate_series(1, 6) AS p, generate_series(1, p * 50) AS i;
         INSERT INTO parts SELECT * FROM flat; ANALYZE";
    database.psql(&(create_parts(1..=6, 1000) + filled));
    let found = advice(&database, "parts");
    let [parts] = found.as_slice() else { panic!("{found:#?}") };
    let flat = advice(&database, "flat").remove(0);
    assert_eq!(parts["relation"], "public.parts");
    assert_eq!(
        (&parts["partitions"]["partitions"], &flat["partitions"]),
        (&6.into(), &Value::Null)
    );
    assert_eq!(parts["sample"]["rows"], 50 * 21);
    // whether an index of many is rebuilt is decided for each partition
    let without_rebuild = |report: &Value| words(report).replace(" --reindex", "");
    assert_eq!(without_rebuild(parts), without_rebuild(&flat).replace("flat", "parts"));
    assert!(
        words(parts).starts_with("toastctl retoast public.parts --column v "),
        "{}",
        words(parts)
    );
    let after =
        |advice: &Value| advice["recommendation"]["after_bytes"]["estimate"].as_f64().unwrap();
    // each partition has last pages of its own, and an index
    let times = after(parts) / after(&flat);
    assert!((0.9..2.0).contains(&times), "{times}");
    let text = run(toastctl().args(["advise-threshold", "parts", "-d", &database.url()])).ok();
    assert!(text.contains(" of 6 partitions, 1050 rows"), "{text}");
    // the largest of a database are tables, not partitions
    let all =
        run(toastctl().args(["advise-threshold", "-d", &database.url(), "--format", "jsonl"]));
    assert_eq!(all.ok().lines().count(), 2);
    let sql = ["advise-threshold", "parts", "--emit", "sql", "-d", &database.url()];
    let sql = run(toastctl().args(sql)).ok();
    assert!(sql.contains("ALTER TABLE \"public\".\"parts\" ALTER COLUMN"), "{sql}");
    assert!(sql.contains("ALTER TABLE \"public\".\"part_6\" ALTER COLUMN"), "{sql}");
    database.psql(&format!("BEGIN; {sql}; ROLLBACK"));
    act(&database, &words(parts));
    assert_eq!(words(&advice(&database, "parts")[0]), "");
}

#[test]
fn no_more_is_saved_of_partitions_than_they_take() {
    let database = prepared("small_parts");
    // compressed, the values of a partition take a fraction of a page
    let filled = "INSERT INTO parts SELECT i, repeat('line ' || i || ' of a log; ', 1500) FROM generate_series(0, 199) AS i; ANALYZE";
    database.psql(&(create_parts(0..=19, 10) + filled));
    let advice = advice(&database, "parts").remove(0);
    let chosen = advice["recommendation"]["candidate"].as_u64().unwrap() as usize;
    assert!(chosen > 0, "{advice}");
    let size = |at: usize| &advice["candidates"][at]["after_vacuum_full"]["total_bytes"];
    let [today, then] = [0, chosen].map(|at| size(at)["estimate"].as_f64().unwrap());
    let change = size(chosen)["change"]["estimate"].as_f64().unwrap();
    assert!((then / today - 1.0 - change).abs() < 0.001, "{then} {today} {change}");
    let on_disk = advice["files"]["total_bytes"].as_f64().unwrap();
    let reasons = advice["recommendation"]["reasons"].as_str().unwrap();
    let (saved, _) = reasons.split_once(" less on disk").unwrap();
    let (number, unit) = saved.split_once(", with ").unwrap().1.split_once(' ').unwrap();
    let unit = if unit == "MB" { 1048576.0 } else { 1024.0 };
    let saved = number.parse::<f64>().unwrap() * unit;
    assert!(saved <= on_disk - then, "{reasons} {on_disk} {then}");
}

#[test]
fn the_advice_on_partitions_is_for_the_settings_of_most_of_their_bytes() {
    let database = prepared("alike_parts");
    // one that stores its values uncompressed is the largest
    database.psql(
        "CREATE TABLE parts (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
         CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000);
         CREATE TABLE part_3 PARTITION OF parts FOR VALUES FROM (2000) TO (3000);
         ALTER TABLE part_2 ALTER v SET STORAGE external;
         INSERT INTO parts SELECT i, noise(i, 3000) || repeat('x', 2000) FROM generate_series(0, 2999) i; ANALYZE",
    );
    let parts = advice(&database, "parts").remove(0);
    assert_eq!(parts["partitions"]["partitions"], 2);
    let different = parts["partitions"]["different"][0].as_str().unwrap();
    assert!(different.starts_with("public.part_2: column \"v\" is "), "{different}");
}

#[test]
fn partitions_that_differ_are_named_and_a_partition_can_be_asked_for_by_itself() {
    let database = prepared("different_parts");
    database.psql(
        "CREATE TABLE parts (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
         CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000) WITH (fillfactor = 50);
         CREATE TABLE part_3 PARTITION OF parts FOR VALUES FROM (2000) TO (3000);
         INSERT INTO parts SELECT i, noise(i, 3000) FROM generate_series(1, 2999) i
             WHERE i NOT BETWEEN 1300 AND 1999; ANALYZE",
    );
    let parts = advice(&database, "parts").remove(0);
    let partitions = &parts["partitions"];
    assert_eq!((&partitions["partitions"], &partitions["not_read"]), (&2.into(), &0.into()));
    let different = partitions["different"][0].as_str().unwrap();
    assert!(different.starts_with("public.part_2: fillfactor is 50, and 100 in public.part_"));
    let notes = parts["notes"].as_array().unwrap().iter();
    assert!(notes.filter(|note| note.as_str().unwrap().contains("public.part_2")).count() == 1);
    let text = run(toastctl().args(["advise-threshold", "parts", "-d", &database.url()])).ok();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("These figures leave out 1 of 3 partitions"), "{text}");
    let alone = advice(&database, "part_2").remove(0);
    assert_eq!((&alone["relation"], &alone["partitions"]), (&"public.part_2".into(), &Value::Null));
    // one that another session has locked is named, and the others are advised on
    let holder = Holder::of(&database, "LOCK TABLE part_3 IN ACCESS EXCLUSIVE MODE");
    let mut command = toastctl();
    command.env("PGOPTIONS", "-c lock_timeout=300ms");
    let done = run(command.args(["advise-threshold", "parts", "-d", &database.url()]));
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("public.part_3"), "{}", done.stderr);
    assert!(done.stdout.contains("public.parts"), "{}", done.stdout);
    drop(holder);
}
