//! `check` on relation files of a real server.

use std::path::Path;
use std::process::Stdio;

use toastctl::check::finding::Finding;
use toastctl::offline::control::ControlFile;

use crate::support::check_cases::{COLUMNS, Files, On, apply, cases, create, paths, set_word};
use crate::support::checked::{check, told, with_checksums, write};
use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::server::{self, Options, Server};
use crate::support::standin;
use crate::support::table_files::PAGE;

#[test]
fn every_damage_of_a_file_has_its_finding_and_no_other() {
    let (_database, files) = Files::fresh("check_files");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    let (findings, checked) = check(dir.path(), None);
    assert_eq!(findings, []);
    assert_eq!((checked.looked.rows, checked.looked.values), (4, 12));
    let note = "page checksums were not verified: no global/pg_control is above the file; --checksums verifies them";
    assert_eq!(checked.notes, [note]);
    let mut shown = 0;
    let mut wrong = Vec::new();
    for case in cases().iter().filter(|case| case.on != On::Server) {
        let (changed, expected) = apply(case, &files);
        write(dir.path(), &changed);
        let (findings, _) = check(dir.path(), None);
        let is_toast = |finding: &Finding| finding.place.source.ends_with("toast");
        let found: Vec<String> = findings.iter().map(|f| told(f, is_toast(f))).collect();
        if found != expected {
            wrong.push(format!("{}: {found:?}, expected {expected:?}", case.name));
        }
        shown += 1;
    }
    assert_eq!(wrong, [""; 0]);
    assert!(shown >= 40, "{shown}");
}

#[test]
fn rows_of_which_nothing_says_whether_they_are_live_are_not_called_sound() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("unhinted");
    database.psql("CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external");
    let dir = tempfile::tempdir().unwrap();
    let copy = |path: &str, name: &str| {
        std::fs::copy(server.data_dir().join(path), dir.path().join(name)).unwrap();
    };
    for xact in ["before", "after"] {
        std::fs::create_dir(dir.path().join(xact)).unwrap();
    }
    database.psql("CHECKPOINT");
    copy("pg_xact/0000", "before/0000");
    database.psql(
        "INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 50) AS i;
         CHECKPOINT",
    );
    copy("pg_xact/0000", "after/0000");
    let paths = database.psql(
        "SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 't'",
    );
    let (heap, toast) = paths.split_once('|').unwrap();
    copy(heap, "heap");
    copy(toast, "toast");
    let checked = |xact: Option<&str>| {
        let mut command = toastctl();
        command.current_dir(dir.path()).args(["check", "--relation-file", "heap"]);
        command.args(["--toast-file", "toast", "--columns", "id int4, v text"]);
        if let Some(xact) = xact {
            command.args(["--xact", xact]);
        }
        run(&mut command)
    };
    let mut bytes = std::fs::read(dir.path().join("toast")).unwrap();
    for is_damaged in [false, true] {
        if is_damaged {
            bytes[8192..2 * 8192].fill(0);
            std::fs::write(dir.path().join("toast"), &bytes).unwrap();
        }
        // without commit status, and with one that is older than the rows
        for xact in [None, Some("before")] {
            let run = checked(xact);
            assert_eq!(run.code, Some(1), "{xact:?}: {}", run.stdout);
            let words = ["but not everything was checked", "whether they are live"];
            assert!(words.iter().all(|words| run.stdout.contains(words)), "{}", run.stdout);
        }
        let known = checked(Some("after"));
        let code = if is_damaged { 5 } else { 0 };
        assert_eq!(known.code, Some(code), "{}", known.stdout);
    }
}

#[test]
fn blocks_and_chunks_that_stand_elsewhere_are_found() {
    let (_database, files) = Files::fresh("check_elsewhere");
    let dir = tempfile::tempdir().unwrap();
    let found = |changed: &Files| -> Vec<String> {
        write(dir.path(), changed);
        let (findings, _) = check(dir.path(), None);
        findings.iter().map(|finding| finding.code.name().to_owned() + &finding.found).collect()
    };
    let blocks = files.toast.len() / 8192;
    assert!(blocks >= 3);
    // exchanged, and one copied over the other: the values of the block that is left are sound
    let mut exchanged = files.clone();
    let (first, second) = exchanged.toast.split_at_mut(8192);
    first.swap_with_slice(&mut second[..8192]);
    let codes = found(&exchanged);
    assert!(
        ["TC0051", "TC0050"].iter().all(|code| codes.contains(&(*code).to_owned())),
        "{codes:?}"
    );
    let mut copied = files.clone();
    copied.toast.copy_within(..8192, 8192);
    let codes = found(&copied);
    assert!(codes.contains(&"TC0050".to_owned()), "{codes:?}");
    assert!(codes.iter().all(|code| !code.starts_with("TC053")), "{codes:?}");
    // two chunks of the same size, with their headers
    let mut chunks = files.clone();
    let (a, b) = (files.chunk(2, "ext", 0).tuple, files.chunk(2, "ext", 1).tuple);
    for at in 0..2032 {
        chunks.toast.swap(a + at, b + at);
    }
    let codes = found(&chunks);
    assert_eq!(codes.len(), 2, "{codes:?}");
    assert!(codes.iter().all(|code| code.starts_with("TC014")), "{codes:?}");
}

#[test]
fn zeros_in_front_of_rows_are_told_with_the_values_that_have_none() {
    let database = server::shared().create_database("check_zeros");
    // a block of rows without values out of line, before those with and behind them
    let plain = "INSERT INTO # (id) SELECT 0 FROM generate_series(1, 300);";
    let with = "INSERT INTO # SELECT i, repeat('x', 6000) FROM generate_series(1, 3) AS i;";
    let table = |name: &str, rows: String| {
        let create =
            "CREATE TABLE # (id int, ext text); ALTER TABLE # ALTER ext SET STORAGE external;";
        format!("{create} {rows} VACUUM (FREEZE) #;").replace('#', name)
    };
    let (t, u) = (table("t", format!("{plain}{with}")), table("u", format!("{with}{plain}{with}")));
    database.psql(&format!("{t} {u} CHECKPOINT;"));
    let dir = tempfile::tempdir().unwrap();
    let toast_name = std::cell::RefCell::new("toast".to_owned());
    let codes = |files: &Files| {
        write(dir.path(), files);
        let toast = toast_name.borrow().clone();
        if toast != "toast" {
            std::fs::rename(dir.path().join("toast"), dir.path().join(&toast)).unwrap();
        }
        let found = run(toastctl()
            .current_dir(dir.path())
            .args(["check", "--relation-file", "heap", "--toast-file", &toast])
            .args(["--columns", "id int4, ext text", "--format", "jsonl"]));
        let lines = found.lines::<crate::support::reports::check::Finding>();
        (found.code, lines.iter().map(|line| line.code.clone()).collect::<Vec<_>>())
    };
    let zeroed = |table| {
        let mut files = Files::read(&database, table);
        assert!(files.heap.len() >= 2 * 8192);
        files.heap[..8192].fill(0);
        codes(&files)
    };
    let one = |(code, found): (Option<i32>, Vec<String>), told: &str| {
        assert_eq!(found.iter().filter(|code| *code == told).count(), 1, "{found:?}");
        code
    };
    assert_eq!(zeroed("t"), (Some(0), vec!["TC006".to_owned()]));
    // a VACUUM FULL may have left the values, which nothing tells where the files have other names
    assert_eq!(one(zeroed("u"), "TC006"), Some(0));
    toast_name.replace(database.psql("SELECT reltoastrelid FROM pg_class WHERE relname = 'u'"));
    assert_eq!(one(zeroed("u"), "TC007"), Some(5));
    // the visibility map knows
    toast_name.replace("toast".to_owned());
    for table in ["t", "u"] {
        let [heap, _] = paths(&database, table);
        std::fs::copy(format!("{}_vm", heap.display()), dir.path().join("heap_vm")).unwrap();
        assert_eq!(one(zeroed(table), "TC007"), Some(5));
    }
}

#[test]
fn checksums_are_verified_where_the_cluster_has_them() {
    let (database, mut files) = Files::fresh("check_sums");
    with_checksums(&mut files.heap);
    with_checksums(&mut files.toast);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    assert_eq!(check(dir.path(), Some(true)).0, []);
    // one bit of a plain value, which nothing else can tell
    let chunk = files.chunk(2, "ext", 1);
    files.toast[chunk.tuple + 100] ^= 1;
    write(dir.path(), &files);
    assert_eq!(check(dir.path(), Some(false)).0, []);
    assert_eq!(check(dir.path(), None).0, []);
    let (findings, _) = check(dir.path(), Some(true));
    assert!(findings.iter().any(|f| f.code.name() == "TC002"), "{findings:?}");
    // as a user asks for it; what is not decompressed is not told
    let found = run(toastctl().current_dir(dir.path()).args([
        "check",
        "--checksums",
        "--no-decompress",
        "--relation-file",
        "heap",
        "--toast-file",
        "toast",
        "--columns",
        COLUMNS,
        "--format",
        "csv",
    ]));
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert!(found.stdout.contains("\nTC002,error,"), "{}", found.stdout);
    // the control file of the server says that it has none, and that the server was not shut down
    let [heap, toast] = paths(&database, "t");
    let found = run(toastctl().args(["check", "--columns", COLUMNS]).args([
        "--relation-file".as_ref(),
        heap.as_os_str(),
        "--toast-file".as_ref(),
        toast.as_os_str(),
    ]));
    assert_eq!(found.code, Some(1), "{}{}", found.stdout, found.stderr);
    let text = &found.stdout;
    assert!(text.contains("nothing found, but") && text.contains("was not shut down"), "{text}");
    assert!(!text.contains("checksums were not verified"), "{text}");
}

#[test]
fn a_base_backup_is_not_judged_before_recovery() {
    let (database, mut files) = Files::fresh("check_backup");
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir_all(dir.path().join("global")).unwrap();
    std::fs::create_dir(&base).unwrap();
    let control = database.server().data_dir().join("global/pg_control");
    std::fs::copy(control, dir.path().join("global/pg_control")).unwrap();
    let chunk = files.chunk(2, "ext", 1);
    files.toast[chunk.block * 8192 + 10] |= 0x80;
    files.heap[8192 - 300..].fill(0xFF);
    write(&base, &files);
    let check = || {
        run(toastctl()
            .current_dir(&base)
            .args(["check", "--relation-file", "heap", "--toast-file", "toast"])
            .args(["--columns", COLUMNS]))
    };
    let found = check();
    assert_eq!(found.code, Some(5), "{}", found.stdout);
    let judged = found.stdout.matches("TC0").count();
    assert!(judged > 2, "{}", found.stdout);
    std::fs::write(dir.path().join("backup_label"), "START WAL LOCATION: 0/2000028\n").unwrap();
    let found = check();
    assert_eq!(found.code, Some(1), "{}", found.stdout);
    assert!(!found.stdout.contains("TC0"), "{}", found.stdout);
    let said = found.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("this is a base backup before recovery"), "{said}");
    assert!(said.contains("nothing found, but not everything was checked"), "{said}");
    // a copy of a running server without that file: a page is newer than the checkpoint in its control file
    std::fs::remove_file(dir.path().join("backup_label")).unwrap();
    let control = std::fs::read(dir.path().join("global/pg_control")).unwrap();
    let newer = u64::from_le_bytes(*control[32..].first_chunk().unwrap()) + 4096;
    files.heap[..8].copy_from_slice(&newer.rotate_right(32).to_le_bytes());
    write(&base, &files);
    let found = check();
    assert_eq!(found.code, Some(1), "{}", found.stdout);
    assert!(!found.stdout.contains("TC0"), "{}", found.stdout);
    let said = found.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("pages are newer than its last checkpoint"), "{said}");
    assert_eq!(said.matches("pg_control").count(), 1, "{said}");
    // a sound one is not called sound either
    std::fs::write(dir.path().join("backup_label"), "START WAL LOCATION: 0/2000028\n").unwrap();
    let (_other, sound) = Files::fresh("check_backup_sound");
    write(&base, &sound);
    assert_eq!(check().code, Some(1));
}

#[test]
fn bytes_without_line_pointers_are_not_passed_over() {
    let (_database, mut files) = Files::fresh("check_lost_pointer");
    let dir = tempfile::tempdir().unwrap();
    let lower = u16::from_le_bytes([files.heap[12], files.heap[13]]) - 4;
    files.heap[12..14].copy_from_slice(&lower.to_le_bytes());
    write(dir.path(), &files);
    let found = run(toastctl()
        .current_dir(dir.path())
        .args(["check", "--relation-file", "heap", "--toast-file", "toast"])
        .args(["--columns", COLUMNS]));
    let said = found.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("1 block of heap, the first of them 0, has bytes to which no line"),
        "{said}"
    );
}

#[test]
fn findings_in_every_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures/pg15/states");
    let dir = tempfile::tempdir().unwrap();
    let mut heap = std::fs::read(root.join("heap.bin")).unwrap();
    // an 18-byte pointer of a live row, by its TOAST relation
    let oid = standin::meta(&root).toast_relations[0].oid;
    let oid = oid.to_le_bytes();
    let pointer = heap.windows(4).rposition(|four| four == oid).unwrap();
    heap[pointer - 3] ^= 0x55;
    heap[8192 + 10] |= 0x80;
    std::fs::write(dir.path().join("heap"), heap).unwrap();
    std::fs::copy(root.join("toast.bin"), dir.path().join("toast")).unwrap();
    std::fs::copy(root.join("meta.json"), dir.path().join("columns.json")).unwrap();
    let check = |format: &str| {
        let found = run(toastctl().current_dir(dir.path()).env("COLUMNS", "80").args([
            "check",
            "--relation-file",
            "heap",
            "--toast-file",
            "toast",
            "--columns",
            "@columns.json",
            "--format",
            format,
        ]));
        assert_eq!((found.code, found.stderr.as_str()), (Some(5), ""));
        found.stdout
    };
    insta::assert_snapshot!("check_table", check("table"));
    insta::assert_snapshot!("check_markdown", check("markdown"));
    insta::assert_snapshot!("check_csv", check("csv"));
    let schema = run(toastctl().args(["help", "json", "check"])).ok();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let document: serde_json::Value = serde_json::from_str(&check("json")).unwrap();
    assert!(validator.is_valid(&document), "{document:#}");
    let lines = check("jsonl");
    assert_eq!(lines.lines().count(), document["findings"].as_array().unwrap().len());
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(validator.is_valid(&line), "{line:#}");
    }
}

#[test]
fn damage_is_an_exit_code_although_nobody_reads_on() {
    let (_database, mut files) = Files::fresh("check_closed_pipe");
    let dir = tempfile::tempdir().unwrap();
    files.heap[8192 - 300..].fill(0xFF);
    write(dir.path(), &files);
    for format in ["table", "json"] {
        let mut command = toastctl();
        command.current_dir(dir.path()).args(["check", "--relation-file", "heap"]);
        command.args(["--toast-file", "toast", "--columns", COLUMNS, "--format", format]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = command.stdout(writer).stderr(Stdio::null()).status().unwrap();
        assert_eq!(ended.code(), Some(5), "{format}");
    }
}

#[test]
fn a_pipe_is_refused_without_waiting_for_who_writes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for verb in ["check", "inspect", "keys", "value"] {
        let mut command = toastctl();
        command.current_dir(dir.path()).args([verb, "--relation-file", "pipe"]);
        let refused = run(command.args(["--columns", "id int4, doc jsonb"]));
        assert_eq!(refused.code, Some(2), "{verb}: {}", refused.stderr);
        assert!(refused.stderr.contains("is not a regular file"), "{verb}: {}", refused.stderr);
    }
}

#[test]
fn the_toast_file_of_another_table_is_no_damage() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("foreign_toast");
    let dir = tempfile::tempdir().unwrap();
    for table in ["mine", "other"] {
        database.psql(&format!(
            "CREATE TABLE {table} (id int, v text); ALTER TABLE {table} ALTER v SET STORAGE external;
             INSERT INTO {table} SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 50) AS i;
             VACUUM FREEZE {table}; CHECKPOINT"
        ));
        let paths = database.psql(&format!(
            "SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = '{table}'"
        ));
        let (heap, toast) = paths.trim().split_once('|').unwrap();
        for (path, file) in [(heap, "heap"), (toast, "toast")] {
            let to = dir.path().join(format!("{table}.{file}"));
            std::fs::copy(server.data_dir().join(path), to).unwrap();
        }
    }
    for verb in ["check", "inspect"] {
        let [own, found] = ["mine.toast", "other.toast"].map(|toast| {
            let mut command = toastctl();
            command.current_dir(dir.path()).args([verb, "--relation-file", "mine.heap"]);
            run(command.args(["--columns", "id int4, v text", "--toast-file", toast]))
        });
        assert_eq!(own.code, Some(0), "{verb}: {}", own.stdout);
        assert_eq!(found.code, Some(1), "{verb}: {}", found.stdout);
        let all = format!("{}{}", found.stdout, found.stderr);
        let said = all.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = "none of 50 values that rows refer to is in it, but others: is it the file of another table?";
        assert!(said.contains(&format!("other.toast: {told}")), "{verb}: {said}");
        assert!(!said.contains("TC0") && !said.contains("sound"), "{verb}: {said}");
        assert!(!said.contains("that no row refers to") && !said.contains("%"), "{verb}: {said}");
    }
}

#[test]
fn columns_of_another_table_and_files_in_each_others_place_are_no_damage() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("wrong_columns");
    let dir = tempfile::tempdir().unwrap();
    database.psql(
        "CREATE TABLE t (id bigint, at timestamptz, name text, v text, n int);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, now(), 'name ' || i, repeat(md5(i::text), 300), i FROM generate_series(1, 50) AS i;
         VACUUM FREEZE t; CHECKPOINT",
    );
    let paths = database.psql(
        "SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 't'",
    );
    let (heap, toast) = paths.trim().split_once('|').unwrap();
    for (path, file) in [(heap, "heap"), (toast, "toast")] {
        std::fs::copy(server.data_dir().join(path), dir.path().join(file)).unwrap();
    }
    const RIGHT: &str = "id int8, at timestamptz, name text, v text, n int4";
    const OTHER: &str =
        "--columns does not fit: 50 of 50 rows cannot be read, most often from column";
    const NO_TOAST: &str = "heap: its rows are not those of a TOAST relation";
    const A_TOAST: &str = "toast: its rows are those of a TOAST relation";
    let wrong = [
        ("heap", "toast", "id int4, at int4, name text, v text, n int4", OTHER),
        ("heap", "toast", "id int8, name text, v text, at timestamptz, n int4", OTHER),
        ("heap", "toast", "id int8, at timestamptz, name text, v text, n int8", OTHER),
        ("heap", "heap", RIGHT, NO_TOAST),
        ("toast", "heap", RIGHT, A_TOAST),
        ("toast", "toast", "id int4, v text", A_TOAST),
        ("toast", "heap", "chunk_id oid, chunk_seq int4, chunk_data bytea", NO_TOAST),
    ];
    for verb in ["check", "inspect", "keys", "value"] {
        let read = |heap: &str, toast: &str, columns: &str| {
            let mut command = toastctl();
            command.current_dir(dir.path()).args([verb, "--relation-file", heap]);
            run(command.args(["--toast-file", toast, "--columns", columns]))
        };
        for (heap, toast, columns, said) in wrong {
            let found = read(heap, toast, columns);
            assert_eq!((found.code, found.stdout.as_str()), (Some(2), ""), "{verb} {columns}");
            assert!(found.stderr.contains(said), "{verb} {columns}: {}", found.stderr);
        }
        if verb != "keys" {
            assert_eq!(read("heap", "toast", RIGHT).code, Some(0), "{verb}");
        }
    }
    // a table of three columns is no TOAST relation
    database.psql(
        "CREATE TABLE three (id int, n int, doc text);
         INSERT INTO three SELECT i, 0, md5(i::text) FROM generate_series(1, 100) AS i; VACUUM FREEZE three; CHECKPOINT",
    );
    let path = database.psql("SELECT pg_relation_filepath('three')");
    std::fs::copy(server.data_dir().join(path.trim()), dir.path().join("three")).unwrap();
    for (columns, said) in [
        ("id int4, n int4", "rows have 3 attributes, but --columns names 2"),
        (
            "id int8, n int4, doc text",
            "--columns does not fit: 100 of 100 rows cannot be read, most often from column \"doc\" on",
        ),
    ] {
        let mut three = toastctl();
        three.current_dir(dir.path()).args(["check", "--relation-file", "three"]);
        let three = run(three.args(["--columns", columns]));
        assert_eq!(three.code, Some(2), "{columns}: {}", three.stdout);
        assert!(three.stderr.contains(said), "{columns}: {}", three.stderr);
    }
    let mut alone = toastctl();
    alone.current_dir(dir.path()).args(["check", "--relation-file", "toast"]);
    let alone = run(alone.args(["--columns", "chunk_id oid, chunk_seq int4, chunk_data bytea"]));
    assert_eq!(alone.code, Some(0), "{}{}", alone.stdout, alone.stderr);
}

/// A verb on the files that `write` has written.
fn read(dir: &Path, verb: &str, columns: &str) -> Run {
    let mut command = toastctl();
    command.current_dir(dir).args([verb, "--relation-file", "heap", "--columns", columns]);
    run(command.args(["--toast-file", "toast"]))
}

#[test]
fn a_list_of_columns_that_ends_before_the_rows_is_refused_and_one_longer_row_is_damage() {
    let (_database, mut files) = Files::fresh("check_few_columns");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files);
    for verb in ["check", "inspect", "keys", "value"] {
        let found = read(dir.path(), verb, "id int4, ext text");
        assert_eq!((found.code, found.stdout.as_str()), (Some(2), ""), "{verb}");
        let (said, hint) = found.stderr.split_once("HINT:").unwrap();
        assert!(said.contains("heap: rows have 10 attributes, but --columns names 2"), "{said}");
        assert!(hint.contains("toastctl help check"), "{hint}");
    }
    // one more than the others
    let infomask2 = files.row(2) + 18;
    assert_eq!(files.heap[infomask2] & 0x0f, 10);
    files.heap[infomask2] += 1;
    write(dir.path(), &files);
    let found = read(dir.path(), "check", COLUMNS);
    assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
    assert_eq!(found.stdout.matches("TC021").count(), 2, "{}", found.stdout);
}

#[test]
fn rows_of_refused_pages_are_saved_from_files() {
    let (_database, files) = Files::fresh("check_refused");
    let temp = tempfile::tempdir().unwrap();
    let saved = |name: &str, files: &Files| {
        write(temp.path(), files);
        let found = run(toastctl()
            .current_dir(temp.path())
            .args(["check", "--checksums", "--relation-file", "heap", "--toast-file", "toast"])
            .args(["--columns", COLUMNS, "--salvage", name]));
        assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
        assert!(found.stderr.contains("repair.sql for why there is no SQL"), "{}", found.stderr);
        let read = |file: &str| std::fs::read_to_string(temp.path().join(name).join(file)).unwrap();
        let rows = read("rows.sql");
        let rows = rows.split("FROM stdin;\n").nth(1).unwrap_or_default();
        let rows = rows.lines().take_while(|line| *line != "\\.").count();
        (rows, read("manifest.jsonl").contains("the header of its page is damaged"))
    };
    let mut sums = files.clone();
    with_checksums(&mut sums.toast);
    sums.heap[8] ^= 1;
    assert_eq!(saved("sums", &sums), (4, false));
    let mut header = sums;
    header.heap[10] |= 0x80;
    assert_eq!(saved("header", &header), (4, true));
}

#[test]
fn the_ids_of_the_control_file_are_those_that_each_server_shows() {
    for major in server::available_majors() {
        let server = Server::start(&Options::major(major).set("autovacuum", "off"));
        let database = server.create_database("check_ids");
        // a lock of the transaction and an update of its subtransaction make a MultiXact
        database.psql(
            "CREATE TABLE t AS SELECT 1 AS id; BEGIN; SELECT FROM t FOR SHARE; SAVEPOINT a; UPDATE t SET id = 2; COMMIT;
             VACUUM t; CHECKPOINT",
        );
        let shown = database.psql(
            "SELECT concat_ws(' ', split_part(next_xid, ':', 2), oldest_xid, next_multixact_id, oldest_multi_xid)
             FROM pg_control_checkpoint()",
        );
        let path = server.data_dir().join(database.psql("SELECT pg_relation_filepath('t')"));
        std::mem::forget(database);
        server.shut_down();
        let ids = ControlFile::above(&path, PAGE).ids.unwrap();
        let all = [ids.next_xid, ids.oldest_xid, ids.next_multi, ids.oldest_multi];
        assert_eq!(all.map(|id| id.0.to_string()).join(" "), shown, "{major}");
        assert_eq!(ids.next_multi.0, 2, "{major}");
    }
}

#[test]
fn hint_bits_are_held_against_pg_xact() {
    let (database, mut files) = Files::fresh("check_xact");
    let dir = tempfile::tempdir().unwrap();
    let check = |files: &Files, xact: bool| {
        write(dir.path(), files);
        let mut command = toastctl();
        command.current_dir(dir.path()).args(["check", "--columns", COLUMNS]);
        command.args(["--relation-file", "heap", "--toast-file", "toast", "--format", "jsonl"]);
        if xact {
            command.arg("--xact").arg(database.server().data_dir().join("pg_xact"));
        }
        run(&mut command).stdout
    };
    assert_eq!(check(&files, true), "");
    // not frozen any more, but aborted
    let at = files.row(2) + 21;
    files.heap[at] &= !0x01;
    let found = check(&files, true);
    let line = Printed::read(&found);
    assert_eq!(crate::support::checked::told_live(&line), "TC026 heap 0/2 - 20");
    // the hint bit alone says that there is no such row
    assert!(!check(&files, false).contains("TC026"));
}

/// Tests in which the codes occur that no case of [`cases`] has.
const ELSEWHERE: [&str; 7] = [
    include_str!("check_contents.rs"),
    include_str!("check_files.rs"),
    include_str!("check_live.rs"),
    include_str!("check_custom.rs"),
    include_str!("check_chains.rs"),
    include_str!("check_repair.rs"),
    include_str!("check_reports.rs"),
];

#[test]
fn every_code_has_a_case() {
    let (_database, files) = Files::fresh("check_codes");
    let table = include_str!("../../src/check/code.rs");
    let codes: std::collections::BTreeSet<&str> =
        table.match_indices("\"TC").filter_map(|(at, _)| table.get(at + 1..at + 6)).collect();
    assert!(codes.len() >= 49, "{codes:?}");
    let found: Vec<String> = cases().iter().flat_map(|case| apply(case, &files).1).collect();
    let without: Vec<&str> = codes
        .into_iter()
        .filter(|code| !found.iter().any(|one| one.starts_with(code)))
        .filter(|code| !ELSEWHERE.iter().any(|text| text.contains(code)))
        .collect();
    assert_eq!(without, [""; 0]);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn saved_pages_are_checked_without_chunks() {
    let database = server::shared().create_database("check_saved");
    database.psql(&("CREATE EXTENSION pageinspect;".to_owned() + &create("t")));
    let saved = database.psql("SELECT encode(get_raw_page('t', 0), 'hex')");
    let dir = tempfile::tempdir().unwrap();
    let check = |page: &str| {
        let path = dir.path().join("page.txt");
        std::fs::write(&path, format!("get_raw_page\n\\x{page}\n(1 row)\n")).unwrap();
        run(toastctl().args(["check", "--columns", COLUMNS, "--pageinspect"]).arg(path))
    };
    let whole = check(&saved);
    // chunks are not at hand
    assert_eq!(whole.code, Some(1), "{}{}", whole.stdout, whole.stderr);
    // a byte of the text of row 2 that is no UTF-8
    let at = saved.find(&hex("short")).unwrap();
    let foreign = saved[..at].to_owned() + "ff" + &saved[at + 2..];
    assert_eq!(check(&foreign).code, Some(1));
    for (encoding, code) in [("UTF8", 5), ("LATIN1", 1)] {
        std::fs::write(
            dir.path().join("page.txt"),
            format!("get_raw_page\n\\x{foreign}\n(1 row)\n"),
        )
        .unwrap();
        let found = run(toastctl()
            .args(["check", &format!("--deep={encoding}"), "--columns", COLUMNS])
            .arg("--pageinspect")
            .arg(dir.path().join("page.txt")));
        assert_eq!(found.code, Some(code), "{encoding}: {}{}", found.stdout, found.stderr);
    }
    // pd_flags
    let damaged = check(&(saved[..20].to_owned() + "80" + &saved[22..]));
    assert_eq!(damaged.code, Some(5), "{}{}", damaged.stdout, damaged.stderr);
    assert!(damaged.stdout.starts_with("TC001  "), "{}", damaged.stdout);
}

#[test]
fn what_is_unknown_in_files_of_a_newer_server_is_no_damage() {
    let (_database, files) = Files::fresh("check_newer");
    let dir = tempfile::tempdir().unwrap();
    let mut control = *include_bytes!("../../fixtures/pg_control/19.bin");
    control[8..12].copy_from_slice(&2001_u32.to_le_bytes());
    std::fs::create_dir(dir.path().join("global")).unwrap();
    std::fs::write(dir.path().join("global/pg_control"), control).unwrap();
    let mut shown = 0;
    for case in cases().iter().filter(|case| case.on != On::Server) {
        let (changed, expected) = apply(case, &files);
        let [only] = &expected[..] else { continue };
        if !only.contains("TC040") && !only.contains("TC041") {
            continue;
        }
        write(dir.path(), &changed);
        let (findings, checked) = check(dir.path(), None);
        assert_eq!(findings, [], "{}", case.name);
        assert!(checked.is_incomplete, "{}", case.name);
        for said in [
            "control file version 2001 is not known",
            "of unknown toasters, pointers or compression methods",
        ] {
            let notes = &checked.notes;
            assert!(notes.iter().any(|note| note.contains(said)), "{}: {notes:?}", case.name);
        }
        shown += 1;
    }
    assert!(shown >= 2, "{shown}");
}

#[test]
fn values_that_claim_1_gb_take_little_memory_and_time() {
    const GIGABYTE: u32 = 0x3FFF_FFFF;
    let (_database, sound) = Files::fresh("check_claims");
    let dir = tempfile::tempdir().unwrap();
    type Change = fn(&mut Files);
    let changes: [Change; 4] = [
        // in the row, out of line with and without compression, and in the first chunk of compressed data
        |f| {
            let at = f.value(2, "inl").file;
            set_word(&mut f.heap, at + 4, GIGABYTE);
        },
        |f| {
            let at = f.value(2, "cmp").file;
            set_word(&mut f.heap, at + 2, GIGABYTE);
            set_word(&mut f.heap, at + 6, GIGABYTE - 100);
        },
        |f| {
            let at = f.value(2, "ext").file;
            set_word(&mut f.heap, at + 2, GIGABYTE);
            set_word(&mut f.heap, at + 6, GIGABYTE - 4);
        },
        |f| {
            let (at, chunk) = (f.value(2, "lz").file, f.chunk(2, "lz", 0).tuple);
            set_word(&mut f.heap, at + 2, GIGABYTE);
            set_word(&mut f.toast, chunk + 36, (GIGABYTE - 4) | (1 << 30));
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut files = sound.clone();
        change(&mut files);
        write(dir.path(), &files);
        let left = format!("left{number}");
        for (verb, more) in [
            ("check", &["--deep", "--salvage", &left][..]),
            ("inspect", &[]),
            ("value", &["--reassemble"]),
        ] {
            // 900 MB and 20 s of CPU
            let mut limited = std::process::Command::new("sh");
            limited
                .current_dir(dir.path())
                .args(["-c", "ulimit -v 900000 && ulimit -t 20 && exec \"$0\" \"$@\""])
                .arg(env!("CARGO_BIN_EXE_toastctl"))
                .args([verb, "--relation-file", "heap", "--toast-file", "toast"])
                .args(["--columns", COLUMNS])
                .args(more);
            let done = run(&mut limited);
            let is_ended = matches!(done.code, Some(0 | 1 | 5));
            assert!(is_ended, "{number} {verb}: {:?} {}", done.code, done.stderr);
        }
        let files = std::fs::read_dir(dir.path().join(left)).unwrap();
        let longest = files.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap();
        assert!(longest < 1 << 20, "{number}: {longest}");
    }
}
