//! Values of live tables put together, against what the server says of them.

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::inspect::{Anatomy, StoredValue, Values};
use crate::support::server::{self, Database};
use crate::support::verbs::inspect;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::process::Stdio;
use std::time::Duration;

const TABLE: &str = "CREATE EXTENSION pageinspect;
    CREATE FUNCTION hx(n int, seed text) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$ SELECT left(string_agg(md5(seed || g), ''), n) FROM generate_series(1, n / 32 + 1) g $$;
    CREATE TABLE t (id int, a text, p text COMPRESSION pglz, l text COMPRESSION lz4, b bytea,
                    e bytea, js jsonb, n numeric, c char(300));
    ALTER TABLE t ALTER a SET STORAGE plain, ALTER e SET STORAGE external;
    INSERT INTO t SELECT i, hx(i, 'a'), repeat(hx(i * 90, 'p'), i % 7), repeat(hx(i * 70, 'l'), i % 9),
        decode(hx(i * 400, 'b'), 'hex'), decode(hx(i * 800, 'e'), 'hex'),
        jsonb_build_object('k', repeat(hx(i * 30, 'j'), i % 5), 'list', jsonb_build_array(i, null, 1e100 / i)),
        (repeat('7', i * 3) || '.5')::numeric, left(hx(40, 'c'), i)
        FROM generate_series(1, 60) i;
    INSERT INTO t (id, p, l) VALUES (1001, repeat('big ', 300000), repeat('bigger ', 300000));
    INSERT INTO t SELECT 2001 FROM generate_series(1, 3);
    UPDATE t SET e = e || e WHERE id % 4 = 0;
    DELETE FROM t WHERE id % 5 = 0;";

/// By ctid and column.
fn rows(database: &Database<'_>, reassemble: &str) -> Rows {
    let words = ["value", "t", reassemble, "--format", "jsonl"];
    by_place(&inspect(database, &words).exits(0))
}

type Rows = BTreeMap<(String, String), Printed<StoredValue>>;

fn by_place(run: &Run) -> Rows {
    let lines = run.lines::<StoredValue>().into_iter();
    lines.map(|row| ((row.ctid.clone(), row.column.clone()), row)).collect()
}

/// The hash of a value's content, or of its text.
type Hash = fn(&StoredValue) -> Option<&str>;
const MD5: Hash = |row| row.md5.as_deref();
const TEXT_MD5: Hash = |row| row.text_md5.as_deref();

#[test]
fn every_value_of_a_live_table_has_the_servers_md5() {
    let database = server::shared().create_database("reassemble");
    database.psql(TABLE);
    let found = rows(&database, "--reassemble");
    let mut compared = 0;
    let mut forms = std::collections::BTreeSet::new();
    for (column, expression, key) in [
        ("a", "md5(a)", MD5),
        ("p", "md5(p)", MD5),
        ("p", "md5(p)", TEXT_MD5),
        ("l", "md5(l)", MD5),
        ("b", "md5(b)", MD5),
        ("e", "md5(e)", MD5),
        ("js", "md5(js::text)", TEXT_MD5),
        ("n", "md5(n::text)", TEXT_MD5),
        ("c", "md5(bpcharsend(c))", TEXT_MD5),
    ] {
        let expected = database.psql(&format!("SELECT ctid, {expression} FROM t"));
        for line in expected.lines() {
            let (ctid, md5) = line.split_once('|').unwrap();
            let row = &found[&(ctid.to_owned(), column.to_owned())];
            assert_eq!(key(row).unwrap_or_default(), md5, "{row}");
            forms.insert(row.form.clone());
            compared += 1;
        }
    }
    assert_eq!(compared, 9 * database.psql("SELECT count(*) FROM t").parse::<usize>().unwrap());
    let all = ["compressed", "external", "external_compressed", "null", "plain", "short"];
    assert_eq!(forms.into_iter().collect::<Vec<_>>(), all);
}

/// Values of rows that are older than their columns: what the server says of them, live and from the file.
#[test]
fn values_that_stand_in_no_row_have_the_servers_md5() {
    let database = server::shared().create_database("reassemble_missing");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int);
         INSERT INTO t SELECT generate_series(1, 5);
         ALTER TABLE t ADD a text DEFAULT 'plain \"and\" {quoted}, \\', ADD u text DEFAULT 'größer 表',
             ADD b bytea DEFAULT '\\x00ff10', ADD js jsonb DEFAULT '{\"b\": [1, 2], \"a\": \"ü\"}',
             ADD n numeric DEFAULT -12345.600, ADD i int DEFAULT -7, ADD k bigint DEFAULT 1::bigint << 40,
             ADD o oid DEFAULT 4000000000, ADD c char(8) DEFAULT 'c', ADD e text DEFAULT '',
             ADD arr int[] DEFAULT '{1,2}', ADD ja jsonb DEFAULT '{\"b\": [1, -2.50, {}], \"aa\": \"x\\\"y\"}',
             ADD nan numeric DEFAULT 'NaN', ADD f4 real DEFAULT 1.1, ADD f8 float8 DEFAULT 1.0 / 3,
             ADD ts timestamptz DEFAULT '2026-11-22 01:02:03.456789+01', ADD d date DEFAULT '1999-12-31',
             ADD id16 uuid DEFAULT '6ba7b810-9dad-11d1-80b4-00c04fd430c8', ADD fa float8[] DEFAULT '{1.5,NULL,-0.1}',
             ADD ta text[] DEFAULT '{a,\"b c\",NULL,\"\"}', ADD na numeric[] DEFAULT '{1.50,-2}',
             ADD square int[] DEFAULT '{{1,2},{3,4}}', ADD none_ int[] DEFAULT '{}', ADD b1 bool[] DEFAULT '{t,f,NULL}';
         INSERT INTO t (id) VALUES (6);
         CHECKPOINT;",
    );
    let live = rows(&database, "--reassemble");
    let missing = live.values().filter(|row| row.form == "missing").count();
    assert_eq!(missing, 5 * 24);
    let text = [
        ("a", "md5(a)", TEXT_MD5, true),
        ("u", "md5(u)", TEXT_MD5, false),
        ("e", "md5(e)", TEXT_MD5, true),
        ("js", "md5(js::text)", TEXT_MD5, false),
        ("n", "md5(n::text)", TEXT_MD5, true),
        ("c", "md5(bpcharsend(c))", TEXT_MD5, true),
    ];
    let content = [
        ("a", "md5(a)", MD5, true),
        ("u", "md5(u)", MD5, false),
        ("b", "md5(b)", MD5, true),
        ("c", "md5(bpcharsend(c))", MD5, true),
    ];
    let json = database.psql(
        "SELECT json_agg(json_build_object('attname', attname, 'typname', format_type(atttypid, NULL),
            'atttypid', atttypid::int8, 'attlen', attlen, 'attalign', attalign, 'attstorage', attstorage, 'atthasmissing', atthasmissing,
            'attmissingval', attmissingval::text) ORDER BY attnum)
         FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0",
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("columns.json"), json).unwrap();
    let data = database.psql("SHOW data_directory");
    let path = database.psql("SELECT pg_relation_filepath('t')");
    let run_file = run(toastctl()
        .args(["value", "--reassemble", "--format", "jsonl", "--relation-file"])
        .arg(std::path::Path::new(&data).join(path))
        .arg("--columns")
        .arg(format!("@{}", dir.path().join("columns.json").display())));
    let not_by_text = ["f4", "f8", "ts", "d", "id16", "fa", "square"];
    for column in ["js", "u"].into_iter().chain(not_by_text) {
        assert!(
            run_file.stderr.contains(&format!("column \"{column}\": the content of its default"))
        );
    }
    assert_eq!(run_file.stderr.matches(": the content of its default").count(), 9);
    let file = by_place(&run_file.exits(0));
    for (column, expression, key, in_file) in text.into_iter().chain(content) {
        for line in database.psql(&format!("SELECT ctid, {expression} FROM t")).lines() {
            let (ctid, md5) = line.split_once('|').unwrap();
            let place = (ctid.to_owned(), column.to_owned());
            assert_eq!(key(&live[&place]), Some(md5), "{}", live[&place]);
            if in_file || file[&place].form != "missing" {
                assert_eq!(key(&file[&place]), Some(md5), "{}", file[&place]);
            } else {
                assert!(key(&file[&place]).is_none(), "{}", file[&place]);
            }
        }
    }
    // as the row has them that was written since
    let first = |column: &str| &live[&("(0,1)".to_owned(), column.to_owned())];
    assert_eq!(first("js").md5, live[&("(0,6)".to_owned(), "js".to_owned())].md5);
    for column in ["i", "k", "o", "n", "nan", "ja", "arr", "ta", "na", "none_", "b1"]
        .into_iter()
        .chain(not_by_text)
    {
        let written = &live[&("(0,6)".to_owned(), column.to_owned())];
        for found in [&live, &file] {
            // text may be rounded, or written as a session has it
            if std::ptr::eq(found, &file) && not_by_text.contains(&column) {
                continue;
            }
            let missing = &found[&("(0,1)".to_owned(), column.to_owned())];
            assert_eq!(missing.form, "missing");
            assert_eq!(missing.md5, written.md5, "{missing}");
            assert!(missing.md5.is_some());
        }
    }
}

#[test]
fn one_value_of_a_live_table_is_taken_apart() {
    let database = server::shared().create_database("reassemble");
    database.psql(TABLE);
    let shown = database.psql(
        "SELECT t.ctid, md5(p), length(p), c.reltoastrelid, c.reltoastrelid::regclass
         FROM t, pg_class AS c WHERE id = 1001 AND c.oid = 't'::regclass",
    );
    let parts: Vec<&str> = shown.split('|').collect();
    let value = |spec: &str, more: &[&str]| {
        let mut command = toastctl();
        run(command.args(["value", "-d", &database.conninfo(), spec]).args(more))
    };
    let json = value(&format!("public.t.p@{}", parts[0]), &["--format", "json"]).ok();
    let shown = Printed::<Values>::read(&json);
    assert_eq!(shown.schema, "toastctl.value/1");
    let [anatomy] = &shown.values[..] else { panic!("{json}") };
    assert_eq!(anatomy.md5.as_deref(), Some(parts[1]));
    assert_eq!(anatomy.raw_size.unwrap().to_string(), parts[2]);
    assert_eq!(anatomy.form, "external_compressed");
    let part = &anatomy.parts[0];
    assert_eq!(part.toast_relation.to_string(), parts[3]);
    let chunks: Vec<String> = part
        .chunks
        .iter()
        .map(|chunk| format!("{}|{}|{}", chunk.seq, chunk.ctid, chunk.bytes))
        .collect();
    let expected = database.psql(&format!(
        "SELECT chunk_seq, ctid, length(chunk_data) FROM {} WHERE chunk_id = {} ORDER BY chunk_seq",
        parts[4], part.value_id
    ));
    assert_eq!(chunks.join("\n"), expected);
    assert_eq!(anatomy.cost.chunks, chunks.len() as u64);
    assert_eq!(anatomy.first_text.as_ref().unwrap().len(), 64);

    let refused = |spec: &str, message: &str| {
        let run = value(spec, &[]);
        assert!(run.stderr.contains(message), "{spec}: {}", run.stderr);
        assert!(run.code.is_some_and(|code| code == 1 || code == 2), "{:?}", run.code);
    };
    refused("p@(0,1)", "the table or the column is missing");
    refused("t.q@(0,1)", "column \"q\" of relation \"public.t\" does not exist");
    refused("t.p@(90000,1)", "there is no block 90000");
    refused("t.p@(0,2000)", "block 0, item 2000: the line pointer does not exist");
    refused("nothing.p@(0,1)", "nothing");
    refused("t.p@0,1", "expected a row at the end, as in @id=42 or @(12,3)");
}

#[test]
fn values_go_to_files_of_their_own() {
    let database = server::shared().create_database("reassemble");
    database.psql(TABLE);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("values");
    let found = rows(&database, &format!("--reassemble={}", target.display()));
    let files = std::fs::read_dir(&target).unwrap().count();
    let stored = found.values().filter(|row| row.form != "null").count();
    assert_eq!(files, stored);
    let place = database.psql("SELECT trim(both '()' from ctid::text) FROM t WHERE id = 1001");
    let file = target.join(format!("public.t.{}.3.p.txt", place.replace(',', ".")));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "big ".repeat(300_000));
}

/// Values of every size from nothing to 5 MB that compress well and not at all, in every storage.
const SIZES: &str = "CREATE EXTENSION pageinspect;
    CREATE FUNCTION noise(n int, seed text) RETURNS bytea LANGUAGE sql AS $$
        SELECT substr(string_agg(decode(md5(seed || g), 'hex'), ''), 1, n)
        FROM generate_series(0, n / 16) g $$;
    CREATE TABLE t (id int, x text, xe text, xl text COMPRESSION lz4,
                    y bytea, ye bytea, yl bytea COMPRESSION lz4);
    ALTER TABLE t ALTER x SET COMPRESSION pglz, ALTER y SET COMPRESSION pglz,
        ALTER xe SET STORAGE external, ALTER ye SET STORAGE external;
    INSERT INTO t SELECT id, left(repeat('some text of ' || n || ' bytes ', n / 20 + 1), n),
        left(encode(noise(n, 'xe'), 'hex'), n), left(encode(noise(n, 'xl'), 'hex') || 'x', n),
        noise(n, 'y'), noise(n, 'ye'), convert_to(left(repeat('yl' || n, n), n), 'UTF8')
    FROM unnest(array[0, 1, 2, 31, 32, 126, 127, 128, 1995, 1996, 1997, 3992, 3993, 8191, 8192,
                      65536, 1000000, 5242880]) WITH ORDINALITY AS sizes (n, id);
    INSERT INTO t (id) VALUES (100);
    UPDATE t SET xe = xe || 'more' WHERE id % 3 = 0;
    DELETE FROM t WHERE id % 5 = 0;";

/// The columns of [`SIZES`] with their numbers and the extensions of their files.
const SIZED: [(usize, &str, &str); 6] = [
    (2, "x", "txt"),
    (3, "xe", "txt"),
    (4, "xl", "txt"),
    (5, "y", "bin"),
    (6, "ye", "bin"),
    (7, "yl", "bin"),
];

/// md5 and bytes of the values by ctid and column, as the server says.
fn by_server(database: &Database<'_>) -> BTreeMap<(String, String), (String, u64)> {
    let mut all = BTreeMap::new();
    for (_, column, _) in SIZED {
        let shown = database.psql(&format!(
            "SELECT ctid, md5({column}), octet_length({column}) FROM t WHERE {column} IS NOT NULL"
        ));
        for line in shown.lines() {
            let parts: Vec<&str> = line.split('|').collect();
            let value = (parts[1].to_owned(), parts[2].parse().unwrap());
            all.insert((parts[0].to_owned(), column.to_owned()), value);
        }
    }
    all
}

#[test]
fn values_of_every_size_equal_the_servers_in_rows_and_in_files() {
    let database = server::shared().create_database("reassemble");
    database.psql(SIZES);
    let expected = by_server(&database);
    // 15 of the rows are left that have values
    assert_eq!(expected.len(), 15 * SIZED.len());
    assert!(expected.values().any(|&(_, size)| size == 5 << 20));
    let dir = tempfile::tempdir().unwrap();
    let mut found = rows(&database, &format!("--reassemble={}", dir.path().display()));
    found.retain(|(_, column), row| column != "id" && row.form != "null");
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let mut methods = std::collections::BTreeSet::new();
    for ((ctid, column), (md5, size)) in &expected {
        let row = &found[&(ctid.clone(), column.clone())];
        assert_eq!((row.md5.as_deref(), row.raw_size), (Some(&**md5), Some(*size)));
        let text = column.starts_with('x').then_some(&**md5);
        assert_eq!(row.text_md5.as_deref(), text, "{row}");
        methods.insert(format!("{} {}", row.form, row.method.as_deref().unwrap_or("null")));
        let (number, _, extension) = SIZED.iter().find(|sized| sized.1 == column).unwrap();
        let place = ctid.trim_matches(['(', ')']).replace(',', ".");
        let file = dir.path().join(format!("public.t.{place}.{number}.{column}.{extension}"));
        let bytes = std::fs::read(file).unwrap();
        assert_eq!((&md5_of(&bytes), bytes.len() as u64), (md5, *size), "{row}");
    }
    let all = [
        "compressed lz4",
        "compressed pglz",
        "external null",
        "external_compressed lz4",
        "external_compressed pglz",
        "plain null",
        "short null",
    ];
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), all);
    let ids = database.psql("SELECT count(*) FROM t").parse::<usize>().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), expected.len() + ids);
}

fn md5_of(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_chunks_of_every_value_are_where_the_server_has_them() {
    let database = server::shared().create_database("reassemble");
    database.psql(SIZES);
    database.psql("ALTER TABLE t RENAME xe TO \"X.e @\"; ALTER TABLE t RENAME TO \"T. t\"");
    let toast = database
        .psql("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '\"T. t\"'::regclass");
    let output = inspect(&database, &["value", "\"T. t\"", "--format", "jsonl"]).exits(0);
    let mut compared = 0;
    let mut longest = 0;
    for row in output.lines::<StoredValue>() {
        let Some(value_id) = row.value_id else { continue };
        let (ctid, column) = (&row.ctid, &row.column);
        let spec = format!("public.\"T. t\".\"{column}\"@{ctid}");
        let value = |format: &str| {
            let mut command = toastctl();
            command.args(["value", "-d", &database.conninfo(), &spec]);
            run(command.args(["--format", format])).ok()
        };
        let anatomy = Printed::<Anatomy>::read(&value("jsonl"));
        let [part] = &anatomy.parts[..] else { panic!("{anatomy}") };
        assert_eq!(part.value_id, value_id);
        let chunks = &part.chunks;
        let shown: String = chunks
            .iter()
            .map(|c| format!("chunk {} at {}: {} bytes\n", c.seq, c.ctid, c.bytes))
            .collect();
        let expected = database.psql(&format!(
            "SELECT format('chunk %s at %s: %s bytes', chunk_seq, ctid, octet_length(chunk_data))
             FROM {toast} WHERE chunk_id = {value_id} ORDER BY chunk_seq"
        ));
        assert_eq!(shown.trim_end(), expected, "{spec}");
        let cost = database.psql(&format!(
            "SELECT count(*), count(DISTINCT (ctid::text::point)[0]), sum(octet_length(chunk_data))
             FROM {toast} WHERE chunk_id = {value_id}"
        ));
        let of = &anatomy.cost;
        assert_eq!(format!("{}|{}|{}", of.chunks, of.pages, of.bytes), cost, "{spec}");
        let quoted = column.replace('"', "\"\"");
        let md5 = format!(
            "SELECT md5(\"{quoted}\"), pg_column_size(\"{quoted}\") FROM \"T. t\" WHERE ctid = '{ctid}'"
        );
        let said = format!("{}|{}", anatomy.md5.as_deref().unwrap(), anatomy.stored_size);
        assert_eq!(said, database.psql(&md5), "{spec}");
        let text = value("table");
        for chunk in expected.lines().take(8) {
            assert!(text.contains(chunk), "{chunk} in {text}");
        }
        longest = longest.max(chunks.len());
        compared += 1;
    }
    let stored = database.psql(&format!("SELECT count(DISTINCT chunk_id) FROM {toast}"));
    // no other transaction is there to see the deleted ones
    assert_eq!(compared.to_string(), stored);
    assert!(longest > 2_600, "{longest}");
}

/// The most memory that a run took, in bytes, as seen while it ran.
pub(crate) fn memory(args: &[&str]) -> (u64, String) {
    let mut shown = tempfile::tempfile().unwrap();
    let out = Stdio::from(shown.try_clone().unwrap());
    let mut child = toastctl().args(args).stdout(out).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        most = most.max(kb.unwrap_or(0) * 1024);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    shown.rewind().unwrap();
    shown.read_to_string(&mut text).unwrap();
    (most, text)
}

#[test]
fn a_long_value_is_not_held_in_memory() {
    let database = server::with_pageinspect("long_values");
    const MB: u64 = 1 << 20;
    database.psql(
        "CREATE TABLE long (v text);
         ALTER TABLE long ALTER v SET STORAGE external;
         INSERT INTO long SELECT repeat(md5('1') || '\u{e4}', 1024 * 1024);
         ALTER TABLE long ALTER v SET STORAGE extended, ALTER v SET COMPRESSION pglz;
         INSERT INTO long SELECT repeat(md5('2') || '\u{e4}', 1024 * 1024);
         ALTER TABLE long ALTER v SET COMPRESSION lz4;
         INSERT INTO long SELECT repeat(md5('3') || '\u{e4}', 1024 * 1024)",
    );
    let sums = database.psql("SELECT md5(v) FROM long ORDER BY ctid");
    let sums: Vec<&str> = sums.lines().collect();
    for (item, sum) in (1..).zip(&sums) {
        let place = format!("long.v@(0,{item})");
        let (most, shown) = memory(&["value", "-d", &database.url(), &place, "--format", "json"]);
        assert!(shown.contains(&format!("\"md5\":\"{sum}\"")), "{item}");
        assert!(shown.contains(&format!("\"text_md5\":\"{sum}\"")), "{item}");
        assert!(most > MB && most < 50 * MB, "{item}: {most}");
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = format!("--reassemble={}", temp.path().join("values").display());
    let (most, shown) =
        memory(&["value", "-d", &database.url(), "long", &dir, "--format", "jsonl"]);
    assert!(most > MB && most < 50 * MB, "{most}");
    for (line, sum) in shown.lines().zip(&sums) {
        assert!(line.contains(&format!("\"text_md5\":\"{sum}\"")), "{line}");
    }
    let mut files: Vec<String> = std::fs::read_dir(temp.path().join("values"))
        .unwrap()
        .map(|file| md5_of(&std::fs::read(file.unwrap().path()).unwrap()))
        .collect();
    files.sort();
    let mut sums = sums;
    sums.sort_unstable();
    assert_eq!(files, sums);
}

/// The only file in a directory.
fn only_file(dir: &std::path::Path) -> (String, Vec<u8>) {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files: Vec<_> = files.collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    (file.file_name().to_string_lossy().into_owned(), std::fs::read(file.path()).unwrap())
}

#[test]
fn one_value_is_saved_to_a_file_of_its_own() {
    let database = server::shared().create_database("reassemble_one");
    database.psql(TABLE);
    database
        .psql("ALTER TABLE t ADD since text DEFAULT 'older rows have it'; CREATE INDEX ON t (id)");
    for (column, text, extension) in [
        ("p", "p", "txt"),
        ("l", "l", "txt"),
        ("js", "js::text", "json"),
        ("n", "n::text", "txt"),
        ("since", "since", "txt"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("saved");
        let reassemble = format!("--reassemble={}", saved.display());
        let ctid = database.psql("SELECT ctid FROM t WHERE id = 58");
        let value = format!("t.{column}@{ctid}");
        let words = ["value", &value, &reassemble, "--format", "json"];
        let run = inspect(&database, &words).exits(0);
        let (name, content) = only_file(&saved);
        assert!(name.ends_with(&format!(".{column}.{extension}")), "{name}");
        let text = database.psql(&format!("SELECT {text} FROM t WHERE id = 58"));
        assert_eq!(String::from_utf8(content).unwrap(), text, "{column}");
        let md5 = database.psql(&format!("SELECT md5('{text}')"));
        let anatomy: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(anatomy["values"][0]["text_md5"], md5, "{column}: {anatomy}");
    }
    // without a directory, as without the option
    let value = inspect(&database, &["value", "t.p@(0,1)", "--reassemble"]).ok();
    assert_eq!(value, inspect(&database, &["value", "t.p@(0,1)"]).ok());
    let refused = inspect(&database, &["value", "t.p@(0,1)", "--reassemble=/dev/null/x"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("directory \"/dev/null/x\": "), "{}", refused.stderr);
}
