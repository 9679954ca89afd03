//! `check --salvage`: what is left of damaged values, and SQL that makes their rows readable.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::check_repair::{damage as damage_of, damaged};
use crate::support::check_cases::{COLUMNS, Files, create, paths, set_word, word};
use crate::support::checked::{with_checksums, write};
use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::check::Salvaged;
use crate::support::server::{self, Database, Options, Server};

/// Damages `ext` of row 2 (its middle chunk is gone) and `cmp` of row 3 (zeros in its second chunk).
fn damage(database: &Database<'_>, table: &str, files: &Files) {
    let (ext, cmp) = (files.value_id(2, "ext"), files.value_id(3, "cmp"));
    database.psql(&format!(
        "SET allow_system_table_mods = on;
         DO $$DECLARE c regclass; BEGIN
             SELECT reltoastrelid INTO c FROM pg_class WHERE oid = '{table}'::regclass;
             UPDATE pg_class SET relkind = 'r' WHERE oid = c;
             EXECUTE format('DELETE FROM %s WHERE chunk_id = {ext} AND chunk_seq = 1', c);
             EXECUTE format('UPDATE %s SET chunk_data = decode(repeat(''ff00'', 998), ''hex'')
                             WHERE chunk_id = {cmp} AND chunk_seq = 1', c);
             UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$;"
    ));
}

fn manifest(dir: &Path) -> Vec<Printed<Salvaged>> {
    let text = std::fs::read_to_string(dir.join("manifest.jsonl")).unwrap();
    text.lines().map(Printed::read).collect()
}

fn saved(dir: &Path, line: &Salvaged, kind: &str) -> Vec<u8> {
    let file = line.file(kind).unwrap_or_else(|| panic!("no {kind} of {}", line.column));
    std::fs::read(dir.join(&file.file)).unwrap()
}

fn content(dir: &Path, line: &Salvaged) -> Vec<u8> {
    saved(dir, line, "content")
}

/// What was saved is what stood in the two values, as far as it is there.
fn is_theirs(dir: &Path, ext: &[u8], cmp: &[u8]) {
    let lines = manifest(dir);
    let codes: Vec<_> = lines.iter().map(|line| line.code.as_str()).collect();
    assert_eq!(codes, ["TC051", "TC061"]);
    let left = content(dir, &lines[0]);
    assert_eq!(left.len(), ext.len());
    assert_eq!((&left[..1996], &left[3992..]), (&ext[..1996], &ext[3992..]));
    assert!(left[1996..3992].iter().all(|&byte| byte == 0));
    assert_eq!(lines[0].file("content").unwrap().ranges, [[0, 1996], [3992, 1128]]);
    assert_eq!(lines[0].chunks_found, [0, 2]);
    let left = content(dir, &lines[1]);
    assert!(left.len() > 2000 && cmp.starts_with(&left[..2000]), "{}", left.len());
    assert_eq!(lines[1].file("content").unwrap().ranges, [[0, left.len() as u64]]);
    assert_eq!(lines[1].file("stored").unwrap().ranges, [[0, lines[1].stored_size.unwrap()]]);
    assert!(lines.iter().all(|line| !line.whole));
    assert!(lines[0].guesses.is_empty());
    assert_eq!(lines[1].guesses, ["the compressed data are damaged: from there on, it is wrong"]);
}

#[test]
fn what_is_left_is_saved_and_the_sql_makes_the_rows_readable() {
    let database = server::shared().create_database("check_salvage");
    database.psql(&format!("CREATE EXTENSION pageinspect; {} CHECKPOINT;", create("t")));
    let files = Files::read(&database, "t");
    let text = |column: &str, id: u16| {
        database.psql(&format!("SELECT {column} FROM t WHERE id = {id}")).into_bytes()
    };
    let (ext, cmp) = (text("ext", 2), text("cmp", 3));
    damage(&database, "t", &files);
    // a reader of TOAST (SnapshotToast) finds deleted chunks as long as they are there
    database.psql("VACUUM t");
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let check =
        |more: &[&str]| run(toastctl().args(["check", "-d", &database.url(), "t"]).args(more));
    let found = check(&[]);
    let command = "  toastctl check public.t --salvage DIR\n";
    assert!(found.stdout.contains(command), "{}", found.stdout);
    let found = check(&["--salvage", dir.to_str().unwrap()]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert!(found.stderr.contains("saved parts of 2 of 2 damaged values"), "{}", found.stderr);
    assert!(found.stderr.contains("repair.sql for the SQL"), "{}", found.stderr);
    assert!(!found.stdout.contains("--salvage DIR"), "{}", found.stdout);
    let heading = "-- To repair (sets 2 values to NULL; read ";
    assert!(found.stdout.contains(heading), "{}", found.stdout);
    is_theirs(&dir, &ext, &cmp);
    let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
    assert!(sql.contains("\"id\"::text = '2'") && sql.contains("\"nul\" IS NULL"), "{sql}");
    assert!(found.stdout.contains("UPDATE ONLY \"public\".\"t\" SET \"ext\" = NULL"));
    // a row that is not as it was found is left alone
    let in_vain =
        format!("BEGIN; UPDATE t SET sh = 'other'; {sql} SELECT count(ext) FROM t; ROLLBACK");
    assert_eq!(database.psql(&in_vain), "4");
    database.psql(&sql);
    let read =
        "SELECT count(ext), count(cmp), sum(length(ext) + length(cmp) + length(lz)) > 0 FROM t";
    assert_eq!(database.psql(read), "3|3|t");
    let again = check(&[]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
}

#[test]
fn the_sql_says_what_helps_where_deleted_chunks_are_not_vacuumed() {
    let database = server::shared().create_database("check_unvacuumed");
    database.psql(&format!("CREATE EXTENSION pageinspect; {} CHECKPOINT;", create("t")));
    // a snapshot that keeps deleted chunks from being pruned
    let mut held = database.psql_command().stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let held = held.as_mut().unwrap();
    let mut input = held.stdin.take().unwrap();
    input.write_all(b"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n").unwrap();
    let is_held = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND backend_xmin IS NOT NULL \
                     AND pid <> pg_backend_pid()";
    database.until(is_held, |answer| answer != "0");
    damage(&database, "t", &Files::read(&database, "t"));
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let found = run(toastctl().args(["check", "-d", &database.url(), "t", "--salvage"]).arg(&dir));
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
    let refused = database.try_psql(&sql);
    assert!(refused.stderr.contains("tuple concurrently updated"), "{}", refused.stderr);
    assert!(sql.contains("-- \"tuple concurrently deleted\" (or updated)"), "{sql}");
    // what was only deleted is not lost
    assert!(sql.contains("heap_force_freeze") && !sql.contains("SET \"ext\""), "{sql}");
    drop(input);
    held.wait().unwrap();
    // its server process ends a little later
    database.until(is_held, |answer| answer == "0");
    database.psql("VACUUM t");
    database.psql(&sql);
    assert_eq!(database.psql("SELECT count(ext), count(cmp) FROM t"), "4|3");
    assert_eq!(database.psql("SELECT sum(length(ext)) FROM t"), "20480");
}

#[test]
fn what_is_left_in_files_is_saved() {
    let (database, files) = Files::fresh("check_salvage");
    let text = |column: &str, id: u16| {
        database.psql(&format!("SELECT {column} FROM t WHERE id = {id}")).into_bytes()
    };
    let (ext, cmp) = (text("ext", 2), text("cmp", 3));
    damage(&database, "t", &files);
    // with hint bits, and without what is deleted
    database.psql("VACUUM (FREEZE) t; CHECKPOINT;");
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &Files::read(&database, "t"));
    let dir = temp.path().join("left");
    let found = run(toastctl().current_dir(temp.path()).args([
        "check",
        "--relation-file",
        "heap",
        "--toast-file",
        "toast",
        "--columns",
        COLUMNS,
        "--salvage",
        "left",
    ]));
    assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
    is_theirs(&dir, &ext, &cmp);
    let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
    // whether SQL reads a value is known by a server alone
    assert!(
        !sql.contains("UPDATE ONLY") && sql.contains("-- No statements: these are files"),
        "{sql}"
    );
    assert!(sql.contains("TC051") && sql.contains("TC061"), "{sql}");
}

/// Checks files in a directory with `--salvage left`; what is there then.
fn salvaged(temp: &Path, columns: &str, more: &[&str]) -> (PathBuf, Vec<Printed<Salvaged>>) {
    let found = run(toastctl()
        .current_dir(temp)
        .args(["check", "--relation-file", "heap", "--toast-file", "toast", "--columns", columns])
        .args(["--salvage", "left"])
        .args(more));
    assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
    (temp.join("left"), manifest(&temp.join("left")))
}

#[test]
fn what_was_saved_before_is_not_overwritten() {
    let (_database, mut files) = Files::fresh("check_salvage");
    let chunk = files.chunk(2, "ext", 1);
    set_word(&mut files.toast, Files::pointer(chunk.block, chunk.item), 0);
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &files);
    let (dir, before) = salvaged(temp.path(), COLUMNS, &[]);
    assert_eq!(before.len(), 1);
    let again = run(toastctl().current_dir(temp.path()).args([
        "check",
        "--relation-file",
        "heap",
        "--columns",
        COLUMNS,
        "--salvage",
        "left",
    ]));
    assert_eq!(again.code, Some(2), "{}{}", again.stdout, again.stderr);
    assert!(again.stderr.contains("is not empty"), "{}", again.stderr);
    assert_eq!(manifest(&dir), before);
}

#[test]
fn chunks_that_a_value_cannot_have_are_kept_apart() {
    let (database, mut files) = Files::fresh("check_salvage");
    let truth = database.psql("SELECT ext FROM t WHERE id = 2").into_bytes();
    let chunk = files.chunk(2, "ext", 1);
    set_word(&mut files.toast, chunk.tuple + 28, 900_000_000);
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &files);
    let (dir, lines) = salvaged(temp.path(), COLUMNS, &[]);
    let ext = lines.iter().find(|line| line.column == "ext").unwrap();
    assert_eq!(ext.chunks_found, [0, 2, 900_000_000]);
    // it is likely to be the one that is missing
    assert!(!ext.whole && ext.guesses[0].contains("has the number 900000000"), "{ext}");
    assert_eq!(content(&dir, ext), truth);
    // and of two it is not known which
    let other = files.chunk(2, "ext", 0);
    set_word(&mut files.toast, other.tuple + 28, 900_000_001);
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &files);
    let (dir, lines) = salvaged(temp.path(), COLUMNS, &[]);
    let ext = lines.iter().find(|line| line.column == "ext").unwrap();
    assert_eq!(content(&dir, ext).len(), truth.len());
    let both = [&truth[1996..3992], &truth[..1996]].concat();
    assert_eq!(saved(&dir, ext, "stray"), both);
    let longest = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    assert!(longest.map(|of| of.len()).max().unwrap() < 100_000);
}

/// Where a cluster has its files, with its control file.
fn data_dir(temp: &Path, database: &Database<'_>) -> PathBuf {
    let dir = temp.join("base").join("5");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::create_dir_all(temp.join("global")).unwrap();
    let control = database.server().data_dir().join("global").join("pg_control");
    let mut control = std::fs::read(control).unwrap();
    let data_checksum_version = if database.server().major() >= 19 { 268 } else { 252 };
    control[data_checksum_version] = 1;
    std::fs::write(temp.join("global").join("pg_control"), control).unwrap();
    dir
}

#[test]
fn a_page_with_a_wrong_checksum_is_saved_from() {
    let (database, mut files) = Files::fresh("check_salvage");
    let truth = database.psql("SELECT ext FROM t WHERE id = 2").into_bytes();
    with_checksums(&mut files.heap);
    with_checksums(&mut files.toast);
    let at = files.chunk(2, "ext", 1).block * 8192;
    files.toast[at + 8] ^= 1;
    let temp = tempfile::tempdir().unwrap();
    let within = data_dir(temp.path(), &database);
    write(&within, &files);
    let (dir, lines) = salvaged(&within, COLUMNS, &[]);
    let ext = lines.iter().find(|line| line.column == "ext" && line.item == 2).unwrap();
    assert_eq!(content(&dir, ext), truth);
    assert!(ext.whole && ext.guesses.concat().contains("refused"), "{:?}", ext.guesses);
}

#[test]
fn what_is_left_is_guessed_where_a_pointer_is_wrong() {
    let (database, sound) = Files::fresh("check_salvage");
    let text =
        |column: &str| database.psql(&format!("SELECT {column} FROM t WHERE id = 2")).into_bytes();
    type Change = fn(&mut Files);
    let changes: [(&str, &str, Change); 6] = [
        ("ext", "to which no row refers", |f| {
            let at = f.value(2, "ext").file;
            set_word(&mut f.heap, at + 10, 4_000_000_000);
        }),
        ("cmp", "are compressed by pglz", |f| {
            let at = f.value(2, "cmp").file;
            let word = word(&f.heap, at + 6);
            set_word(&mut f.heap, at + 6, word ^ 1 << 30);
        }),
        ("ext", "chunk 1 is deleted", |f| {
            let chunk = f.chunk(2, "ext", 1);
            // xmax, and that it is committed
            let xmin = word(&f.toast, chunk.tuple);
            set_word(&mut f.toast, chunk.tuple + 4, xmin);
            f.toast[chunk.tuple + 21] = f.toast[chunk.tuple + 21] & !0x08 | 0x04;
        }),
        ("ext", "chunk 1 has a wrong t_hoff", |f| {
            let tuple = f.chunk(2, "ext", 1).tuple;
            f.toast[tuple + 22] = 0;
        }),
        ("ext", "chunk 1 has a wrong t_hoff", |f| {
            let tuple = f.chunk(2, "ext", 1).tuple;
            f.toast[tuple + 22] = 32;
        }),
        ("lz", "bytes are stored, as its chunks say", |f| {
            let at = f.value(2, "lz").file;
            let word = word(&f.heap, at + 6);
            set_word(&mut f.heap, at + 6, word - 5);
        }),
    ];
    for (column, guess, change) in changes {
        let mut files = sound.clone();
        change(&mut files);
        let temp = tempfile::tempdir().unwrap();
        write(temp.path(), &files);
        let (dir, lines) = salvaged(temp.path(), COLUMNS, &[]);
        let own = lines.iter().find(|line| line.column == column && line.item == 2).unwrap();
        assert!(own.guesses.concat().contains(guess), "{column}: {:?}", own.guesses);
        assert_eq!(content(&dir, own), text(column), "{guess}");
    }
}

/// The columns of a table whose values have many types.
const MANY: &str = "id int8, small int2, yes bool, who uuid, size float8, day date, at timestamp, js jsonb, \
     num numeric, arr text[], nums int4[], raw bytea, txt text, doc text, gone int4";

fn create_many(table: &str) -> String {
    format!(
        r#"CREATE TABLE {table} ({MANY});
         ALTER TABLE {table} ALTER js SET STORAGE external, ALTER num SET STORAGE external,
             ALTER arr SET STORAGE external, ALTER nums SET STORAGE external,
             ALTER doc SET STORAGE external;
         INSERT INTO {table} SELECT i, -i, i % 2 = 0, md5(i::text)::uuid, i / 7.0,
             '2026-02-03'::date - i * 400000, '2026-02-03 04:05:06.789'::timestamp + i * interval '1 day',
             js, num::numeric / 1000, arr, nums, '\x00ff5c0a', E'a\tb\\c\nd\re ü', doc, NULL
         FROM generate_series(1, 4) AS i, LATERAL (
             SELECT jsonb_object_agg(md5(g::text), E'tab\t back\\ ü') AS js,
                 string_agg((g * i * 7919)::text, '') AS num,
                 array_agg(CASE g % 5 WHEN 0 THEN NULL WHEN 1 THEN E'x "y" \\ \t' ELSE md5(g::text) END) AS arr,
                 array_agg(g) AS nums, string_agg(md5(g::text), E'\n') AS doc
             FROM generate_series(1, 2000 + i) AS g) AS v;
         VACUUM (FREEZE) {table};"#
    )
}

/// Removes a chunk of row 2's `doc`, and deletes one of other columns each.
fn lose(files: &mut Files) {
    let at = |files: &Files, column: &str, seq| files.chunk_of(MANY, 2, column, seq);
    let doc = at(files, "doc", 1);
    set_word(&mut files.toast, Files::pointer(doc.block, doc.item), 0);
    for column in ["js", "num", "arr", "nums"] {
        let chunk = at(files, column, 0);
        // deleted by the transaction that inserted it, as hint bits say
        let xmin = word(&files.toast, chunk.tuple);
        set_word(&mut files.toast, chunk.tuple + 4, xmin);
        let at = chunk.tuple + 21;
        files.toast[at] = files.toast[at] & !0x08 | 0x04;
    }
}

/// Loads what was saved and holds it against the truth: row 2 without `doc`.
fn is_loaded(database: &Database<'_>, dir: &Path, copy: &str) {
    let sql = std::fs::read_to_string(dir.join("rows.sql")).unwrap();
    let done = run(database
        .psql_command()
        .args(["-v", "ON_ERROR_STOP=1", "-f"])
        .arg(dir.join("rows.sql")));
    assert_eq!(done.code, Some(0), "{}{sql}", done.stderr);
    let differs = database.psql(&format!(
        "UPDATE truth SET doc = NULL WHERE id = 2;
         SELECT count(*) FROM (SELECT * FROM {copy} EXCEPT SELECT * FROM truth WHERE id = 2) AS d"
    ));
    assert_eq!(differs, "0", "{sql}");
    assert_eq!(database.psql(&format!("SELECT count(*) FROM {copy}")), "1");
}

#[test]
fn rows_that_were_saved_are_loaded_by_copy() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_rows");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {} CREATE TABLE mytable ({MANY}); CREATE TABLE truth AS SELECT * FROM t;
         CHECKPOINT;",
        create_many("t")
    ));
    let [heap, toast] = paths(&database, "t");
    let mut files = Files::read(&database, "t");
    lose(&mut files);
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &files);
    let (dir, lines) = salvaged(temp.path(), MANY, &[]);
    let whole = |lines: &[Printed<Salvaged>]| {
        let whole = lines.iter().filter(|line| line.whole && line.file("text").is_some());
        whole.map(|line| line.column.clone()).collect::<Vec<_>>()
    };
    assert_eq!(whole(&lines), ["js", "num", "arr", "nums"]);
    is_loaded(&database, &dir, "mytable_salvaged");
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    std::fs::write(heap, &files.heap).unwrap();
    std::fs::write(toast, &files.toast).unwrap();
    server.start_again();
    let database = server.database(&base);
    let live = temp.path().join("live");
    let found = run(toastctl().args(["check", "-d", &database.url(), "t", "--salvage"]).arg(&live));
    assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
    assert_eq!(whole(&manifest(&live)), ["js", "num", "arr", "nums"], "{}", found.stdout);
    is_loaded(&database, &live, "t_salvaged");
}

#[test]
fn values_behind_a_broken_index_are_saved_whole() {
    let options = Options::default().set("autovacuum", "off");
    let (server, base, _tables) =
        damaged(&options, create, &[("metapage", damage_of(|_, index| index[..8192].fill(0)))]);
    let database = server.database(&base);
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let found =
        run(toastctl().args(["check", "-d", &database.url(), "metapage", "--salvage"]).arg(&dir));
    assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
    let lines = manifest(&dir);
    assert_eq!(lines.len(), 12, "{}", found.stdout);
    assert!(lines.iter().all(|line| line.whole && line.guesses.is_empty()), "{}", found.stdout);
}

/// Since PostgreSQL 19 SQL finds the columns of a row without a look at `t_hoff`; it finds those of a chunk by it.
#[test]
fn rows_and_values_are_not_lost_where_t_hoff_is_wrong() {
    is_not_lost(&Options::default());
    if server::has_major(19) {
        is_not_lost(&Options::major(19));
    }
}

fn is_not_lost(options: &Options) {
    let in_row = damage_of(|f, _| {
        let at = f.row(2) + 22;
        f.heap[at] = 31;
        with_checksums(&mut f.heap);
    });
    let in_chunk = damage_of(|f, _| {
        let at = f.chunk(2, "ext", 1).tuple + 22;
        f.toast[at] = 0;
        with_checksums(&mut f.toast);
    });
    let (server, base, _tables) =
        damaged(options, create, &[("in_row", in_row), ("in_chunk", in_chunk)]);
    let database = server.database(&base);
    database.psql(&create("truth"));
    let temp = tempfile::tempdir().unwrap();
    let saved = |table: &str| {
        let dir = temp.path().join(table);
        let check = ["check", "-d", &database.url(), table, "--salvage"];
        let found = run(toastctl().args(check).arg(&dir));
        assert_eq!(found.code, Some(5), "{}{}", found.stdout, found.stderr);
        dir
    };
    let dir = saved("in_chunk");
    let lines = manifest(&dir);
    let ext = lines.iter().find(|line| line.column == "ext" && line.item == 2).unwrap();
    let guess = match server.major() < 19 {
        true => "chunk 1 has a wrong t_hoff",
        false => "its chunks are those that the index leads to",
    };
    assert!(ext.whole && ext.guesses == [guess], "{:?}", ext.guesses);
    let truth = database.psql("SELECT ext FROM truth WHERE id = 2");
    assert_eq!(content(&dir, ext), truth.as_bytes());

    let dir = saved("in_row");
    let script = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    database.psql(&script("rows.sql"));
    database.psql(&script("repair.sql"));
    let same = |table: &str| {
        database
            .psql(&format!("SELECT count(*) FROM {table} AS t JOIN truth ON t::text = truth::text"))
    };
    let kept = if server.major() < 19 { "3" } else { "4" };
    assert_eq!([same("in_row").as_str(), same("in_row_salvaged").as_str()], [kept, "1"]);
    let again = run(toastctl().args(["check", "-d", &database.url(), "in_row"]));
    assert_eq!(again.code, Some(0), "{}", again.stdout);
}

/// The chunks of two values are on the page, behind what is lost of it.
#[test]
fn chunks_of_a_page_whose_beginning_is_lost_are_saved() {
    let create = |table: &str| {
        let sql = "CREATE TABLE # (id int PRIMARY KEY, ext text); ALTER TABLE # ALTER ext SET STORAGE external;
             INSERT INTO # SELECT i, left(repeat(md5(i::text), 150), 3000 + i) FROM generate_series(1, 9) AS i;
             VACUUM (FREEZE) #;";
        sql.replace('#', table)
    };
    let (server, base, _) =
        damaged(&Options::default(), create, &[("t", damage_of(|f, _| f.toast[..512].fill(0)))]);
    let database = server.database(&base);
    database.psql(&create("truth"));
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("live");
    let found = run(toastctl().args(["check", "-d", &database.url(), "t", "--salvage"]).arg(&dir));
    assert!(found.stderr.contains("saved parts of 2 of 2 damaged values"), "{}", found.stderr);
    write(temp.path(), &Files::read(&database, "t"));
    let (in_files, _) = salvaged(temp.path(), "id int4, ext text", &[]);
    for dir in [dir, in_files] {
        let lines = manifest(&dir);
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in lines {
            let truth = database.psql(&format!("SELECT ext FROM truth WHERE id = {}", line.item));
            assert!(line.whole && !line.guesses.is_empty(), "{line:?}");
            assert_eq!(content(&dir, &line), truth.as_bytes());
            assert!(line.file("stray").is_none(), "{line:?}");
        }
    }
}

#[test]
fn rows_are_saved_whole_where_one_thing_is_wrong() {
    let (database, sound) = Files::fresh("check_one_wrong");
    database.psql("CREATE TABLE mytable (LIKE t)");
    type Change = fn(&mut Files);
    let changes: [(&str, u32, Change); 10] = [
        ("tag", 1, |f| {
            let at = f.value(2, "ext").file;
            f.heap[at + 1] = 19;
        }),
        ("tag of a pointer in memory", 1, |f| {
            let at = f.value(2, "cmp").file;
            f.heap[at + 1] = 2;
        }),
        ("two tags", 1, |f| {
            let (one, two) = (f.value(2, "ext").file, f.value(2, "lz").file);
            f.heap[one + 1] = 0;
            f.heap[two + 1] = 0x52;
        }),
        ("too few attributes", 1, |f| {
            let at = f.row(2);
            f.heap[at + 18] = 4;
        }),
        ("too many attributes", 1, |f| {
            let at = f.row(2);
            f.heap[at + 18] = 12;
        }),
        ("beginning of the page", 4, |f| f.heap[..512].fill(0)),
        ("beginning of the page and more", 4, |f| f.heap[..1024].fill(0)),
        ("shorter chunk", 1, |f| {
            let at = f.chunk(2, "ext", 1).tuple + 24 + 8;
            set_word(&mut f.toast, at, 100 << 2);
        }),
        ("longer chunk", 1, |f| {
            let at = f.chunk(2, "ext", 0).tuple + 24 + 8;
            set_word(&mut f.toast, at, 2001 << 2);
        }),
        ("chunk with a header of one byte", 1, |f| {
            let at = f.chunk(2, "cmp", 0).tuple + 24 + 8;
            f.toast[at] = 0x31;
        }),
    ];
    for (what, rows, change) in changes {
        let mut files = sound.clone();
        change(&mut files);
        let temp = tempfile::tempdir().unwrap();
        write(temp.path(), &files);
        let (dir, lines) = salvaged(temp.path(), COLUMNS, &[]);
        assert!(lines.iter().any(|line| !line.guesses.is_empty()), "{what}: {lines:?}");
        let loaded = run(database
            .psql_command()
            .args(["-v", "ON_ERROR_STOP=1", "-f"])
            .arg(dir.join("rows.sql")));
        assert_eq!(loaded.code, Some(0), "{what}: {}", loaded.stderr);
        let same = database.psql(
            "SELECT count(*) FROM (SELECT s::text FROM mytable_salvaged AS s
                                   INTERSECT SELECT t::text FROM t) AS same;
             DROP TABLE mytable_salvaged",
        );
        assert_eq!(same, rows.to_string(), "{what}: {lines:?}");
    }
}

/// The server copies as many bytes as the chunk's header says, and crashes if that is fewer than the header has.
#[test]
fn a_chunk_whose_length_makes_no_sense_crashes_no_server() {
    let no_length = |f: &mut Files| {
        let [zero, other] = [1, 2].map(|seq| f.chunk(2, "ext", seq).tuple);
        set_word(&mut f.toast, zero + 32, 0);
        // so that it is not known whether all chunks of the value are there
        let id = word(&f.toast, other + 24);
        set_word(&mut f.toast, other + 24, id + 5000);
    };
    let (server, base, _) =
        damaged(&Options::default(), create, &[("zeroed", damage_of(move |f, _| no_length(f)))]);
    let database = server.database(&base);
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let salvage = format!("--salvage={}", dir.display());
    let verbs: [&[&str]; 7] = [
        &["check", "zeroed", &salvage],
        &["value", "zeroed.ext@(0,2)"],
        &["value", "zeroed", "--reassemble"],
        &["inspect", "zeroed"],
        &["keys", "zeroed", "-c", "js"],
        &["advise-threshold", "zeroed"],
        &["retoast", "zeroed", "-c", "ext", "--toaster", "lz4"],
    ];
    for verb in verbs {
        let done = run(toastctl().args(verb).args(["-d", &database.url()]));
        assert!(matches!(done.code, Some(0 | 1 | 5)), "{verb:?}: {}{}", done.stdout, done.stderr);
        let crashes = server.logged(|line| line.contains("terminated by signal"));
        assert!(crashes.is_empty(), "{verb:?}: {crashes:#?}");
    }
    assert!(!manifest(&dir).iter().any(|line| line.whole));
}
