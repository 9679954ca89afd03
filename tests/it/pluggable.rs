//! Servers with pluggable TOAST, live, on a stand-in as far as a stock server can be one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use toast_format::codec::Method;
use toast_format::model::sql::Shape;
use toastctl::retoast::sql::Target;
use toastctl::server::toasters::TOAST_RELATIONS;

use crate::support::command::{Run, run, toastctl, verb_of};
use crate::support::reports::Printed;
use crate::support::reports::inspect::{Anatomy, ColumnFigures, Relation, ToasterReport};
use crate::support::reports::retoast::Report;
use crate::support::retoast::retoast;
use crate::support::server::{self, Database};
use crate::support::standin::{self, Table};
use crate::support::verbs::inspect;

/// Captures of one server that can stand in a table: without dropped columns, and with hint bits,
/// for the transactions are not the stand-in's.
const TABLES: [&str; 22] = [
    "bytea_aborted",
    "bytea_append_boundary",
    "bytea_append_many",
    "bytea_fresh",
    "bytea_rewritten",
    "bytea_switch",
    "dummy_basic",
    "json_array_small",
    "json_array_updates",
    "json_cchunks",
    "json_cchunks_diff",
    "json_copy",
    "json_copy_broken",
    "json_diff",
    "json_diff_plain",
    "json_foreign",
    "json_multi",
    "json_shortkeys",
    "json_switch",
    "json_talk",
    "json_tids",
    "json_tids_comp",
];

fn inspect_files(dir: &Path, arguments: &[&str]) -> Run {
    let mut command = toastctl();
    command.current_dir(dir);
    let (verb, arguments) = verb_of("inspect", arguments);
    command.args([verb, "--relation-file", "heap.bin", "--columns", "@meta.json"]);
    if dir.join("toast.bin").exists() {
        command.args(["--toast-file", "toast.bin"]);
    }
    run(command.args(arguments))
}

/// Rows of values without the relation's name.
fn rows(run: &Run) -> BTreeSet<String> {
    let anonymous = |mut row: Value| {
        row.as_object_mut().unwrap().remove("relation");
        row.to_string()
    };
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).map(anonymous).collect()
}

/// What a report counts, without what depends on where it was read.
fn counted(relation: &Relation) -> impl PartialEq + std::fmt::Debug + use<> {
    let of_column = |column: &Printed<ColumnFigures>| {
        let mut column = column.json().clone();
        // of the whole relation's bytes, and live that has an index
        for field in ["share", "type"] {
            column.as_object_mut().unwrap().remove(field);
        }
        column
    };
    let columns: Vec<Value> = relation.columns.iter().map(of_column).collect();
    let toast = relation.toast.as_ref().map(|toast| (toast.orphans, toast.rows));
    (
        relation.tuples.clone(),
        toast,
        columns,
        relation.not_available.clone(),
        relation.problem_count,
    )
}

fn every_value_is_the_files(database: &Database<'_>, tables: &[Table]) {
    let mut kinds = BTreeSet::new();
    let (mut values, mut orphans) = (0, 0);
    for Table { name, dir } in tables {
        let arguments = ["value", "--reassemble", "--format", "jsonl"];
        let live = inspect(database, &[&arguments[..], &[name.as_str()]].concat());
        let files = inspect_files(dir.path(), &arguments);
        assert_eq!(live.code, files.code, "{name}: {}", live.stderr);
        assert_eq!(rows(&live), rows(&files), "{name}");
        values += rows(&live).len();
        let live = inspect(database, &[name, "--format", "json"]).relation();
        let files = inspect_files(dir.path(), &["--format", "json"]).relation();
        assert_eq!(counted(&live), counted(&files), "{name}");
        let found = live.toast.as_ref().and_then(|toast| toast.orphans.as_ref());
        orphans += found.map_or(0, |orphans| orphans.values);
        for toaster in live.columns.iter().flat_map(|column| &column.toasters) {
            kinds.insert(toaster.pointer_kind.clone());
            assert_ne!(toaster.cost_to_read, "");
        }
    }
    assert!(values > 300 && orphans > 10 && kinds.len() > 4, "{values}, {orphans}, {kinds:?}");
}

/// Sizes and shares of keys, whether read from a server or from its files.
fn every_key_is_the_files(database: &Database<'_>, tables: &[Table]) {
    let mut documents = 0;
    for Table { name, dir } in tables.iter().filter(|table| table.name.starts_with("json_")) {
        let words = ["keys", "--format", "json"];
        let live = inspect(database, &[&words[..], &[name.as_str()]].concat());
        let files = inspect_files(dir.path(), &words);
        assert_eq!(live.code, files.code, "{name}: {}{}", live.stderr, files.stderr);
        let [live, files] = [live, files].map(|done| {
            let report: Value = serde_json::from_str(&done.stdout).unwrap();
            let column = &report["columns"][0];
            let keys = column["keys"].as_array().unwrap().iter();
            let keys: Vec<Value> =
                keys.map(|key| json!([key["path"], key["bytes"], key["stored_bytes"]])).collect();
            json!([column["documents"], column["raw_bytes"], column["stored_bytes"], keys])
        });
        assert_eq!(live, files, "{name}");
        documents += live[0]["estimate"].as_u64().unwrap();
    }
    assert!(documents > 100, "{documents}");
}

/// Values of dead rows need chunks that no statement gives any more.
fn values_of_dead_rows_are_put_together(database: &Database<'_>, tables: &[Table]) {
    let (mut complete, mut by_dead_chunks) = (0, 0);
    for table in tables.iter().filter(|table| table.name.starts_with("bytea_")) {
        let items = database.psql(&format!(
            "SELECT lp FROM heap_page_items(get_raw_page('{0}', 0)) WHERE lp_flags = 1
             AND '(0,' || lp || ')' NOT IN (SELECT ctid::text FROM {0})",
            table.name
        ));
        let toast = database.psql(&format!(
            "SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '{}'::regclass",
            table.name
        ));
        let shown = database.psql(&format!("SELECT ctid FROM {toast}"));
        let visible: BTreeSet<&str> = shown.lines().collect();
        for item in items.lines() {
            let spec = format!("a@(0,{item})");
            let named = format!("{}.{spec}", table.name);
            let live = inspect(database, &["value", &named, "--format", "jsonl"]);
            let files = inspect_files(table.dir.path(), &["value", &spec, "--format", "jsonl"]);
            assert_eq!(live.code, files.code, "{named}: {}", live.stderr);
            assert_eq!(rows(&live), rows(&files), "{named}");
            let anatomy = live.lines::<Anatomy>().pop().unwrap();
            if anatomy.md5.is_none() {
                continue;
            }
            complete += 1;
            let mut chunks = anatomy.parts.iter().flat_map(|part| &part.chunks);
            let dead = chunks.any(|chunk| !visible.contains(chunk.ctid.as_str()));
            by_dead_chunks += usize::from(dead);
        }
    }
    assert!(complete >= 30 && by_dead_chunks >= 10, "{complete}, {by_dead_chunks}");
}

/// Values by toaster, and values of each form, of a table's one column of interest.
fn stored(database: &Database<'_>, table: &str, column: &str) -> BTreeMap<String, u64> {
    let report = inspect(database, &[table, "--format", "json"]).relation();
    let column = report.column(column);
    let forms = column.forms.iter();
    let forms = forms.map(|form| (form.form.name().to_owned(), form.all.values.estimate));
    let toaster = |of: &ToasterReport| (of.toaster.clone().unwrap(), of.values);
    let mut found = BTreeMap::new();
    for (name, values) in forms.chain(column.toasters.iter().map(toaster)) {
        *found.entry(name).or_default() += values;
    }
    found
}

/// What would be done is planned from the catalog and from pointers on pages.
fn plans_are_made_and_nothing_is_changed(database: &Database<'_>) {
    let plan = |arguments: &[&str]| {
        let done = retoast(database, &[arguments, &["--dry-run"]].concat());
        assert_eq!(done.code, Some(0), "{arguments:?}: {}{}", done.stdout, done.stderr);
        let report = done.report::<Report>();
        assert!(report.dry_run, "{report}");
        report
    };
    let switch = stored(database, "bytea_switch", "a");
    let get = |name: &str| switch.get(name).copied().unwrap_or(0);
    assert!(get("bytea_toaster") > 0 && get("external") > 0, "{switch:?}");
    let to = plan(&["bytea_switch", "-c", "a", "--toaster", "bytea_toaster"]);
    let table = &to.tables[0];
    assert_eq!(
        table.alter.as_deref().unwrap(),
        "ALTER TABLE ONLY \"public\".\"bytea_switch\" ALTER COLUMN \"a\" SET TOASTER \"bytea_toaster\""
    );
    let foreign = get("custom") - get("bytea_toaster");
    assert_eq!(table.rows_found, get("external") + get("external_compressed") + foreign, "{to}");
    let back = plan(&["bytea_switch", "-c", "a", "--toaster", "deftoaster"]);
    assert_eq!(back.tables[0].rows_found, get("custom"), "{back}");
    assert_eq!(back.tables[0].alter, None);
    let stock = plan(&["bytea_switch", "-c", "a", "--toaster", "external"]);
    assert_eq!(stock.tables[0].rows_found, get("custom"), "{stock}");

    // what another toaster stores is not stored by the policy
    let stored_by = |form: &str| switch.get(form).copied().unwrap_or(0);
    let never = plan(&["bytea_switch", "-c", "a", "--policy", "never"]);
    let compressed = stored_by("compressed") + stored_by("external_compressed");
    assert_eq!(never.tables[0].rows_found, get("custom") + compressed, "{never}");
    for table in ["bytea_fresh", "json_talk", "bytea_switch"] {
        let arguments = [table, "--policy", "never", "--format", "json"];
        let report = inspect(database, &arguments).relation();
        for column in &report.columns {
            let Some(policy) = &column.policy else { continue };
            let otherwise = column.forms.iter().filter(|form| {
                ["custom", "compressed", "external_compressed"].contains(&form.form.name())
            });
            let otherwise: u64 = otherwise.map(|form| form.all.values.estimate).sum();
            assert!(otherwise > 0, "{table}: {column}");
            let complying = policy.values - otherwise;
            assert_eq!(policy.complying_values, complying, "{table}: {column}");
        }
        let functions = inspect(database, &[&arguments[..], &["--source", "functions"]].concat());
        assert_eq!(functions.code, Some(1), "{}", functions.stdout);
        assert!(functions.stderr.contains("toastctl must read pages here"), "{}", functions.stderr);
    }

    let refused = |arguments: &[&str], code: i32, message: &str| {
        let run = retoast(database, arguments);
        assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    };
    let jsonb = ["json_talk", "-c", "js", "--toaster", "bytea_toaster"];
    refused(&jsonb, 2, "column \"js\" is of type jsonb");
    refused(&["json_talk", "-c", "js", "--toaster", "zstd"], 2, "toaster \"zstd\" does not exist");
    let functions =
        ["bytea_fresh", "-c", "a", "--toaster", "deftoaster", "--set", "source=functions"];
    refused(&functions, 1, "toastctl must read pages here");
    refused(&["--from-toaster", "deftoaster"], 2, "is the default one");
    refused(&["--from-toaster", "nothing"], 2, "toaster \"nothing\" does not exist");
    // the statement as it is sent; this server does not know it
    let sent = ["bytea_switch", "-c", "a", "--toaster", "bytea_toaster"];
    refused(&sent, 1, "syntax error at or near \"TOASTER\"");
    assert_eq!(stored(database, "bytea_switch", "a"), switch);
}

/// A toaster's values are found wherever they are; one that stores none is proved to be unused.
fn a_toaster_is_searched_for_in_the_whole_database(database: &Database<'_>, tables: &[Table]) {
    let mut expected = 0;
    let mut holding = BTreeSet::new();
    for Table { name, .. } in tables {
        let report = inspect(database, &[name, "--format", "json"]).relation();
        for toaster in report.columns.iter().flat_map(|column| &column.toasters) {
            if toaster.toaster.as_deref() == Some("bytea_toaster") {
                expected += toaster.values;
                holding.insert(format!("public.{name}"));
            }
        }
    }
    let planned = retoast(database, &["--from-toaster", "bytea_toaster", "--dry-run"]);
    let report = planned.report::<Report>();
    let departure = report.departure();
    assert_eq!(departure.values_before, expected, "{departure}");
    assert!(expected > 30 && holding.len() > 4, "{holding:?}");
    assert!(!departure.gone && departure.whole_database, "{departure}");
    let swept: BTreeSet<String> =
        report.tables.iter().map(|table| table.relation.clone()).collect();
    assert_eq!(swept, holding);

    database
        .psql("INSERT INTO pg_catalog.pg_toaster VALUES (150000, 'idle', 'bytea_toaster_handler')");
    let clean: Vec<&str> = tables
        .iter()
        .map(|table| &*table.name)
        .filter(|name| *name != "json_copy_broken")
        .collect();
    let idle = retoast(database, &[&["--from-toaster", "idle"], &clean[..]].concat());
    assert_eq!(idle.code, Some(0), "{}{}", idle.stdout, idle.stderr);
    let report = idle.report::<Report>();
    assert!(report.departure().gone, "{report}");
    assert_eq!(report.departure().tables_read, clean.len() as u64);
    let whole =
        || run(toastctl().args(["retoast", "-d", &database.url(), "--from-toaster", "idle"]));
    // of damaged values nobody can tell, unless their pointers name another toaster that exists
    let set = |oid: &str, was: &str| {
        database.psql(&format!("UPDATE pg_catalog.pg_toaster SET oid = {oid} WHERE oid = {was}"));
    };
    let jsonb = database.psql("SELECT oid FROM pg_toaster WHERE tsrname = 'jsonb_toaster'");
    set("150001", &jsonb);
    let unproved = whole();
    assert_eq!(unproved.code, Some(1), "{}{}", unproved.stdout, unproved.stderr);
    assert!(
        unproved.stdout.contains("not converted: public.json_copy_broken: "),
        "{}",
        unproved.stdout
    );
    assert!(
        unproved.stdout.contains("incomplete: the toaster may still be in use"),
        "{}",
        unproved.stdout
    );
    set(&jsonb, "150001");
    let text = whole();
    assert_eq!(text.code, Some(0), "{}{}", text.stdout, text.stderr);
    assert!(text.stdout.contains("found nothing that refers to the toaster"), "{}", text.stdout);
    let row = "\n    DELETE FROM pg_catalog.pg_toaster WHERE oid = 150000;\n    COMMIT;\n";
    assert!(text.stdout.contains(row), "{}", text.stdout);
}

#[test]
fn a_stand_in_is_read_live_as_its_files_are_and_planned_for() {
    let server = standin::start();
    let database = server.create_database("pluggable");
    let captures: Vec<_> =
        TABLES.iter().map(|table| standin::capture("jsonb_toaster", table)).collect();
    standin::make_toasters(&database, &standin::meta(&captures[0]).pg_toaster);
    let tables = standin::transplant(&database, &captures);
    every_value_is_the_files(&database, &tables);
    every_key_is_the_files(&database, &tables);
    values_of_dead_rows_are_put_together(&database, &tables);
    plans_are_made_and_nothing_is_changed(&database);
    a_toaster_is_searched_for_in_the_whole_database(&database, &tables);
}

#[test]
fn a_stock_server_says_that_it_has_no_such_toasters() {
    let database = server::shared().create_database("no_toasters");
    database.psql("CREATE TABLE t (id int, a bytea)");
    for arguments in [
        &["t", "-c", "a", "--toaster", "bytea_toaster"][..],
        &["--from-toaster", "bytea_toaster"],
        &["t", "--from-toaster", "bytea_toaster", "--dry-run"],
    ] {
        let refused = retoast(&database, arguments);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        let expected = "there is no toaster \"bytea_toaster\" on this server\n\
            HINT:  It does not have pluggable TOAST: --toaster accepts pglz, lz4, external, main, extended or plain here.";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    let nothing = retoast(&database, &["t", "-c", "a"]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("--toaster"), "{}", nothing.stderr);
    let both = ["t", "-c", "a", "--toaster", "lz4", "--from-toaster", "x"];
    assert_eq!(retoast(&database, &both).code, Some(2));
}

#[test]
fn toast_relations_are_found_in_either_catalog() {
    let database = server::shared().create_database("layouts");
    let of = |row: &str| database.psql(&format!("SELECT {TOAST_RELATIONS} FROM ({row}) AS c"));
    assert_eq!(of("SELECT 1 AS oid, 77::oid AS reltoastrelid"), "{77}");
    assert_eq!(of("SELECT 1 AS oid, 0::oid AS reltoastrelid"), "{}");
    assert_eq!(
        of(
            "SELECT 1 AS oid, '{9864,20}'::oid[] AS reltoasterids, '{88,77}'::oid[] AS reltoastrelids"
        ),
        "{88,77}"
    );
    assert_eq!(of("SELECT 1 AS oid, NULL::oid[] AS reltoastrelids"), "{}");
    database.psql("CREATE TABLE t (a text)");
    let real = format!(
        "SELECT {TOAST_RELATIONS} = ARRAY[c.reltoastrelid] FROM pg_class AS c WHERE relname = 't'"
    );
    assert_eq!(database.psql(&real), "t");
}

#[test]
fn what_jsonb_toaster_never_moves_is_told_by_sql() {
    let database = server::shared().create_database("never_moved");
    database.psql(
        r#"CREATE TABLE t (id int, js jsonb);
        INSERT INTO t SELECT ordinality, value FROM jsonb_array_elements('[{"a": 1, "b": "x"}, {}, "x", null,
            1.5, {"a": []}, {"a": {"b": 1}}, [], [1]]') WITH ORDINALITY;
        INSERT INTO t VALUES (10, NULL)"#,
    );
    let target = Target {
        name: "js".into(),
        index: 1,
        shape: Shape::Jsonb,
        method: Method::Pglz,
        base: None,
        domain: None,
    };
    let sql = toastctl::retoast::sql::never_moved("public.t", &target);
    let asked = sql
        .replace("SELECT t.ctid::pg_catalog.text FROM", "SELECT t.id FROM")
        .replace("$1", "(ARRAY(SELECT ctid::text FROM public.t))");
    let shown = database.psql(&asked);
    assert_eq!(shown.replace('\n', " "), "1 2 3 4 5 10");
}

/// One branch of such servers has an array in place of `reltoastrelid`.
#[test]
fn no_statement_takes_for_granted_that_a_table_has_one_toast_relation() {
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut read = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        read += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(".reltoastrelid"), "{}", path.display());
    }
    assert!(read > 200, "{read}");
}

/// Chunked arrays and compressed chunks have no size in their pointers, and values of `dummy_toaster` are in theirs.
#[test]
fn values_of_toasters_are_counted_where_they_are() {
    let of = |table: &str, verb: &str| -> Value {
        let dir = standin::capture("jsonb_toaster", table);
        let mut command = toastctl();
        command.current_dir(&dir).args([verb, "--columns", "@meta.json", "--format", "json"]);
        command.args(["--relation-file", "heap.bin", "--toast-file", "toast.bin"]);
        serde_json::from_str(&run(&mut command).ok()).unwrap()
    };
    let truth = |table: &str, column: &str, field: &str| -> u64 {
        let path = standin::capture("jsonb_toaster", table).join("truth.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter_map(|row| row["cols"][column][field].as_u64()).sum()
    };
    for table in
        ["json_array_big", "json_array_small", "json_cchunks", "json_tids_comp", "json_nested"]
    {
        let keys = &of(table, "keys")["columns"][0];
        let documents = &keys["documents"]["estimate"];
        assert_eq!(&keys["sample"]["documents"], documents, "{table}: {keys}");
        assert_eq!(keys["problem_count"], 0, "{table}: {keys}");
        let raw = keys["raw_bytes"]["estimate"].as_f64().unwrap();
        let text = truth(table, "js", "octets") as f64;
        assert!(raw > text * 0.3 && raw < text * 3.0, "{table}: {raw}, {text}");
    }
    for table in ["json_array_big", "json_cchunks"] {
        let line = &of(table, "inspect")["tables"][0];
        let js = line["columns"].as_array().unwrap().iter().find(|one| one["column"] == "js");
        let stored = &js.unwrap()["stored_bytes"];
        let toast = line["toast_bytes"].as_u64().unwrap();
        assert!(stored["low"].as_u64() < stored["high"].as_u64(), "{table}: {stored}");
        assert!(stored["estimate"].as_u64().unwrap() > toast / 2, "{table}: {stored}");
    }
    let line = &of("dummy_basic", "inspect")["tables"][0];
    let t = line["columns"].as_array().unwrap().iter().find(|one| one["column"] == "t").unwrap();
    // which does not count the heads of the ten pointers
    let size = truth("dummy_basic", "t", "pg_column_size");
    assert_eq!(t["stored_bytes"]["estimate"], size + 10 * 14, "{t}");
    assert!(t["ratio"]["estimate"].as_f64().unwrap() < 1.0, "{t}");
    assert_eq!(t["out_of_line_bytes"]["estimate"], 0, "{t}");
}
