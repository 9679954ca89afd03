//! `check --salvage`: what is left of damaged values, and SQL that makes their rows readable.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support::check_cases::{COLUMNS, Files, create};
use crate::support::checked::write;
use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::check::Salvaged;
use crate::support::server::{self, Database};

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

/// What was saved is what stood in the two values, as far as it is there.
fn is_theirs(dir: &Path, ext: &[u8], cmp: &[u8]) {
    let lines = manifest(dir);
    let codes: Vec<_> = lines.iter().map(|line| line.code.as_str()).collect();
    assert_eq!(codes, ["TC051", "TC061"]);
    let content = |line: &Salvaged| {
        let file = line.content_file.as_deref().unwrap();
        std::fs::read(dir.join(file)).unwrap()
    };
    let left = content(&lines[0]);
    assert_eq!(left.len(), ext.len());
    assert_eq!((&left[..1996], &left[3992..]), (&ext[..1996], &ext[3992..]));
    assert!(left[1996..3992].iter().all(|&byte| byte == 0));
    assert_eq!(lines[0].content_ranges, [[0, 1996], [3992, 1128]]);
    assert_eq!(lines[0].chunks_found, [0, 2]);
    let left = content(&lines[1]);
    assert!(left.len() > 2000 && cmp.starts_with(&left[..2000]), "{}", left.len());
    assert_eq!(lines[1].content_bytes, left.len() as u64);
    let stored = std::fs::read(dir.join(lines[1].stored_file.as_deref().unwrap())).unwrap();
    assert_eq!(Some(stored.len() as u64), lines[1].stored_size);
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
    let found = check(&["--salvage", dir.to_str().unwrap()]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    assert!(found.stderr.contains("saved something of 2 of 2 damaged values"), "{}", found.stderr);
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
    assert!(sql.contains("UPDATE ONLY mytable SET \"ext\" = NULL"), "{sql}");
}
