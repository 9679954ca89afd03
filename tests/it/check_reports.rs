//! What `check` and `value` say of damage: the row that it is in, names that would command a terminal, and what follows a
//! chunk that the server cannot read.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check_repair::{damage, damaged};
use crate::support::check_cases::{Files, create, paths, set_word};
use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::check::Finding;
use crate::support::server::{self, Database, Options, Server};

fn check(database: &Database<'_>, args: &[&str]) -> Run {
    run(toastctl().args(["check", "-d", &database.url()]).args(args))
}

/// Makes the page of a chunk of row 2's `ext` one that the server refuses.
fn refuse(files: &mut Files) {
    let block = files.chunk(2, "ext", 1).block;
    files.toast[block * 8192 + 10] |= 0x80;
}

#[test]
fn what_follows_a_chunk_that_cannot_be_read_is_read() {
    let (server, base, _) =
        damaged(&Options::default(), create, &[("t", damage(|f, _| refuse(f)))]);
    let database = server.database(&base);
    let value = |of: &[&str]| run(toastctl().args(["value", "-d", &database.url()]).args(of));
    let one = value(&["t.ext@(0,2)"]);
    assert_eq!(one.code, Some(1), "{}{}", one.stdout, one.stderr);
    assert!(one.stdout.contains("invalid page in block"), "{}", one.stdout);
    assert!(!(one.stdout + &one.stderr).contains("transaction is aborted"));
    // which values have a chunk on that page is not known here
    let whole = "SELECT count(*) FROM t WHERE id = 4 AND length(ext) = 5120";
    assert_eq!(database.psql(whole), "1");
    let all = value(&["t", "--reassemble", "--format", "jsonl"]);
    assert_eq!(all.code, Some(1), "{}", all.stderr);
    assert!(!all.stderr.contains("transaction is aborted"), "{}", all.stderr);
    let md5 = database.psql("SELECT md5(ext) FROM t WHERE id = 4");
    assert!(all.stdout.contains(&md5), "{md5}: {}", all.stdout);
}

#[test]
fn findings_name_the_row_by_its_primary_key() {
    let with = |key: &'static str| {
        move |table: &str| {
            let own = create(table).replace("'short'", "concat('it''s ', i)");
            format!("{own} ALTER TABLE {table} ADD PRIMARY KEY ({key}); VACUUM (FREEZE) {table};")
        }
    };
    let lose = |f: &mut Files| {
        let chunk = f.chunk(2, "ext", 1);
        set_word(&mut f.toast, Files::pointer(chunk.block, chunk.item), 0);
        // and a value in the row
        let at = f.value(3, "inl").file;
        f.heap[at + 8..at + 24].fill(0);
        // where this tuple's columns begin is not known
        let at = f.row(4) + 22;
        f.heap[at] += 8;
    };
    let rows = |database: &Database<'_>, table: &str| {
        let found = check(database, &["--format", "jsonl", table]);
        let lines = found.lines::<Finding>();
        let of = |item| lines.iter().find(|line| line.item == Some(item)).unwrap().row.clone();
        [2, 3, 4].map(of)
    };
    let options = Options::default();
    let (server, base, _) =
        damaged(&options, with("sh, id"), &[("t", damage(move |f, _| lose(f)))]);
    let database = server.database(&base);
    // the server crashes at row 4
    database.psql(&format!("ALTER DATABASE {base} SET enable_seqscan = off"));
    let [two, three, four] = rows(&database, "t");
    assert_eq!(two.as_deref(), Some(r#""sh" = 'it''s 2' AND "id" = '2'"#));
    assert_eq!(four, None);
    for (id, row) in [("2", two), ("3", three)] {
        let row = row.unwrap();
        assert_eq!(database.psql(&format!("SELECT id FROM t WHERE {row}")), id);
        let shown = check(&database, &["t"]);
        assert!(shown.stdout.contains(&format!("({row}): ")), "{}", shown.stdout);
        let csv = check(&database, &["t", "--format", "csv"]);
        assert!(csv.stdout.contains(&row.replace('"', "\"\"")), "{}", csv.stdout);
    }
    database.psql("ALTER TABLE t DROP CONSTRAINT t_pkey");
    assert_eq!(rows(&database, "t"), [None, None, None]);
}

#[test]
fn names_command_no_terminal_in_any_format_and_printed_sql_finds_them() {
    let database = server::shared().create_database("check_names");
    let odd = "\u{1b}[31m\u{200b}\u{feff}\u{2028}\n\u{9b}\u{7f}'\"\"";
    database.psql(&format!(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE \"t{odd}\" (\"k{odd}\" text PRIMARY KEY, \"v{odd}\" text, c int);
         ALTER TABLE \"t{odd}\" ALTER \"v{odd}\" SET STORAGE external;
         INSERT INTO \"t{odd}\" SELECT E'a\\u200b''' || i, repeat('x', 9000), i FROM generate_series(1, 3) AS i;
         SET allow_system_table_mods = on;
         DO $$DECLARE c regclass; BEGIN
             SELECT reltoastrelid INTO c FROM pg_class WHERE relname LIKE 't%' AND relkind = 'r'
                 AND relnamespace = 'public'::regnamespace;
             UPDATE pg_class SET relkind = 'r' WHERE oid = c;
             EXECUTE format('DELETE FROM %s WHERE chunk_seq = 1 AND chunk_id =
                             (SELECT max(chunk_id) FROM %s)', c, c);
             UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$;"
    ));
    database.psql(&format!("VACUUM \"t{odd}\""));
    let temp = tempfile::tempdir().unwrap();
    let is_odd = |c: char| c != '\n' && c != '\t' && odd.contains(c) && !"[31m'\"".contains(c);
    let name = odd.replace("\"\"", "\"");
    let mut printed = String::new();
    for format in ["table", "markdown", "csv", "json", "jsonl"] {
        let dir = temp.path().join(format);
        let dir = dir.to_str().unwrap();
        let found = check(&database, &["public.*", "-vv", "--format", format, "--salvage", dir]);
        assert_eq!(found.code, Some(5), "{format}: {}", found.stderr);
        assert!(!found.stdout.contains(is_odd), "{format}: {}", found.stdout.escape_debug());
        assert!(!found.stderr.contains(is_odd), "{format}: {}", found.stderr.escape_debug());
        match format {
            "jsonl" => {
                let lines = found.lines::<Finding>();
                assert_eq!(lines[0].column.as_deref(), Some(&*format!("v{name}")));
                let row = lines[0].row.as_deref().unwrap();
                let read = format!("SELECT c FROM \"t{odd}\" WHERE {row}");
                assert_eq!(database.psql(&read), "3");
            }
            "table" => printed = found.stdout,
            _ => {}
        }
    }
    // as somebody pastes it from the terminal
    let sql = &printed[printed.find("UPDATE ONLY").unwrap()..];
    let sql = &sql[..sql.find(";\n").unwrap()];
    assert_eq!(database.psql(&format!("{sql} RETURNING c")), "3", "{sql}");
    assert_eq!(check(&database, &["public.*"]).code, Some(0));
}

#[test]
fn a_table_whose_file_is_missing_empty_or_cut_is_damaged() {
    // never vacuumed, so that the visibility map has no bits
    let (server, base, tables) = damaged(
        &Options::default(),
        |table| {
            let vacuum = if table == "unknown" { "SELECT" } else { "ANALYZE" };
            create(table).replace("VACUUM (FREEZE)", vacuum).replace("SELECT unknown", "SELECT 1")
        },
        &[
            ("empty", damage(|f, _| f.heap.clear())),
            ("zeros", damage(|f, _| f.heap.fill(0))),
            ("cut", damage(|f, _| f.heap.truncate(100))),
            ("chunks", damage(|f, _| f.toast.truncate(f.toast.len() - 100))),
            ("unknown", damage(|f, _| f.heap.clear())),
            ("missing", damage(|_, _| ())),
        ],
    );
    let database = server.database(&base);
    let errors = |table: &str| -> Vec<String> {
        let found = check(&database, &["--format", "jsonl", table]);
        let lines = found.lines::<Finding>();
        let errors = lines.iter().filter(|line| line.severity == "error");
        let codes: Vec<String> = errors.map(|line| line.code.clone()).collect();
        assert_eq!(found.code, Some(if codes.is_empty() { 0 } else { 5 }), "{table}: {codes:?}");
        codes
    };
    std::fs::remove_file(&paths(&database, "missing")[0]).unwrap();
    assert_eq!(errors("missing"), ["TC008"]);
    server.restart_immediate();
    let all: Vec<(&str, Vec<String>)> =
        tables.iter().map(|table| (table.name, errors(table.name))).collect();
    let told = |of: &str| all.iter().find(|(name, _)| *name == of).unwrap().1.clone();
    for table in ["empty", "zeros", "unknown"] {
        assert_eq!(told(table), ["TC008"], "{table}");
    }
    assert_eq!(told("cut"), ["TC007"]);
    assert_eq!(told("missing"), ["TC008"]);
    assert!(told("chunks").contains(&"TC007".to_owned()), "{:?}", told("chunks"));
    // as where a VACUUM had emptied it, apart from the value of which the chunks are left
    for table in ["empty", "zeros"] {
        database.psql(&format!("ANALYZE {table}; TRUNCATE {table}"));
        assert_eq!(errors(table), [""; 0], "{table}");
    }
    database.psql("CREATE TABLE t AS SELECT FROM generate_series(1, 9); DELETE FROM t; VACUUM t");
    database.psql("CREATE TABLE u AS SELECT FROM generate_series(1, 9); ANALYZE u; TRUNCATE u");
    assert_eq!(check(&database, &["t", "u"]).code, Some(0));
}

/// Never vacuumed, so that neither the catalog nor a visibility map tells.
#[test]
fn what_was_cut_off_is_known_by_the_entries_of_indexes() {
    let (server, base, _) = damaged(
        &Options::default(),
        |table| {
            let sql = "CREATE TABLE # (id int PRIMARY KEY, ext text);
                 ALTER TABLE # ALTER ext SET STORAGE external;
                 INSERT INTO # SELECT i, repeat('x', 6000) FROM generate_series(1, 400) AS i;";
            let analyze = if table == "emptied" { "ANALYZE #;" } else { "" };
            format!("{sql}{analyze}").replace('#', table)
        },
        &[
            ("rows", damage(|f, _| f.heap.truncate(8192))),
            ("chunks", damage(|f, _| f.toast.truncate(100 * 8192))),
            ("no_chunks", damage(|f, _| f.toast.clear())),
            ("zeros", damage(|f, _| f.toast[20 * 8192..21 * 8192].fill(0))),
            ("missing", damage(|_, _| ())),
            ("emptied", damage(|f, _| f.heap.clear())),
        ],
    );
    let database = server.database(&base);
    std::fs::remove_file(&paths(&database, "missing")[1]).unwrap();
    server.restart_immediate();
    for table in ["rows", "chunks", "no_chunks", "zeros"] {
        let found = check(&database, &["--format", "jsonl", table]);
        assert_eq!(found.code, Some(5), "{table}");
        let lines = found.lines::<Finding>();
        let lost: Vec<&Printed<Finding>> = lines.iter().filter(|f| f.code == "TC007").collect();
        assert_eq!(lost.len(), 1, "{table}: {}", found.stdout);
        // chunks may be what is lost
        assert!(!lost[0].hint.contains("are still there"), "{table}: {}", lost[0].hint);
        // a rebuilt index would only lose what is known of the chunks
        let shown = check(&database, &[table]).stdout;
        assert!(!shown.contains("REINDEX"), "{table}: {shown}");
    }
    for (table, how) in
        [("missing", " is missing\nHINT:"), ("emptied", " is empty, but pg_class counts ")]
    {
        let convert = ["retoast", table, "--column", "ext", "--toaster", "lz4"];
        let verbs = [&["inspect", table][..], &["inspect"], &["compact", table], &convert];
        for verb in verbs.into_iter().chain([&["advise-threshold", table][..], &["reindex", table]])
        {
            let refused = run(toastctl().args(verb).args(["-d", &database.url()]));
            assert_eq!(refused.code, Some(1), "{verb:?}: {}", refused.stderr);
            let said = format!("public.{table}: the file base/");
            let is_told = refused.stderr.contains(&said) && refused.stderr.contains(how);
            assert!(is_told, "{verb:?}: {}", refused.stderr);
        }
        let found = check(&database, &["--format", "jsonl", table]);
        let lines = found.lines::<Finding>();
        assert!(lines.iter().any(|finding| finding.code == "TC008"), "{}", found.stdout);
    }
}

/// The first key of a leaf, its high key, may have the address of a row that is gone: it is not an entry.
#[test]
fn the_address_in_a_high_key_does_not_say_that_a_table_was_cut_off() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_high_keys");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE TABLE t (k int, v text); CREATE INDEX ON t (k);
         INSERT INTO t SELECT 1, repeat('x', 300) FROM generate_series(1, 60000)",
    );
    database.psql("DELETE FROM t WHERE ctid >= '(600,0)'; VACUUM t");
    // as where the VACUUM was interrupted
    database.psql("UPDATE pg_class SET relpages = 5000 WHERE relname = 't'");
    let found = check(&database, &["t"]);
    assert_eq!(found.code, Some(0), "{}", found.stdout);
}

/// Entries of other indexes are not read.
#[test]
fn a_table_that_may_have_been_cut_off_is_not_said_to_be_sound() {
    let create = |table: &str| {
        let index = match table {
            "hash" => "CREATE INDEX ON # USING hash (id);",
            "brin" => "CREATE INDEX ON # USING brin (id);",
            _ => "",
        };
        let sql = format!(
            "CREATE TABLE # (id int, ext text); INSERT INTO # SELECT i, repeat('x', 900) FROM generate_series(1, 400) AS i;
             {index} ANALYZE #;"
        );
        sql.replace('#', table)
    };
    let cut = || damage(|f, _| f.heap.truncate(8192));
    let all = [("hash", cut()), ("brin", cut()), ("bare", cut())];
    let (server, base, _) = damaged(&Options::default(), create, &all);
    let database = server.database(&base);
    for (table, _) in &all {
        let found = check(&database, &[table]);
        let is_told = found.stdout.contains("nothing found, but not everything was checked")
            && found.stdout.contains("its file has 1: whether that was cut off is not known");
        assert!(is_told, "{table}: {}", found.stdout);
        database.psql(&format!("ANALYZE {table}"));
        assert_eq!(check(&database, &[table]).code, Some(0), "{table}");
    }
}

/// The server takes such a page for one with fewer rows, and reports nothing.
#[test]
fn rows_whose_line_pointers_are_lost_are_told_and_saved() {
    let create = |table: &str| {
        let short = table == "short";
        let length = if short { "10" } else { "3000 + i * 10" };
        let sql = format!(
            "CREATE TABLE # (id int PRIMARY KEY, ext text); ALTER TABLE # ALTER ext SET STORAGE external;
             INSERT INTO # SELECT i, left(repeat(md5(i::text), 150), {length}) FROM generate_series(1, 60) AS i;"
        );
        sql.replace('#', table)
    };
    let end = |lower: u16| damage(move |f, _| f.heap[12..14].copy_from_slice(&lower.to_le_bytes()));
    let all = [
        ("none_left", end(24)),
        ("fifty_left", end(24 + 4 * 50)),
        ("zeros", damage(|f, _| f.heap[24..64].fill(0))),
        ("short", end(24)),
    ];
    let (server, base, tables) = damaged(&Options::default(), create, &all);
    let database = server.database(&base);
    let temp = tempfile::tempdir().unwrap();
    for (table, left) in tables.iter().zip(["0", "50", "50", "0"]) {
        let name = table.name;
        assert_eq!(database.psql(&format!("SELECT count(*) FROM {name}")), left);
        let dir = temp.path().join(name);
        let to = dir.to_str().unwrap();
        let found = check(&database, &["--format", "jsonl", name, "--salvage", to]);
        let lines = found.lines::<Finding>();
        let codes: Vec<&str> = lines.iter().map(|line| line.code.as_str()).collect();
        // values without a row that was lost are not said to be no damage
        assert_eq!((found.code, codes), (Some(5), vec!["TC001"]), "{name}: {}", found.stdout);
        assert!(lines[0].expected.contains(&format!("the index public.{name}_pkey leads")));
        assert!(!check(&database, &[name]).stdout.contains("no damage"), "{name}");
        database.psql(&std::fs::read_to_string(dir.join("rows.sql")).unwrap());
        let sums = database.psql(&format!("SELECT sums('{name}_salvaged')"));
        let mut kept: Vec<&str> = sums.lines().collect();
        kept.sort_unstable();
        assert_eq!(kept, table.before, "{name}");
    }
}

/// pg_surgery leaves the bytes of a tuple that it kills, until the page is pruned.
#[test]
fn rows_that_pg_surgery_has_killed_are_not_lost() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_killed");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_surgery;
         CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE bare (id int, v text);
         INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 400) AS i;
         INSERT INTO bare SELECT * FROM t;",
    );
    let kill = |table: &str| {
        format!(
            "SELECT heap_force_kill('{table}', ARRAY(SELECT ctid FROM {table} WHERE id % 10 = 3));"
        )
    };
    for sql in [&*kill("t"), "VACUUM t", "DELETE FROM t WHERE id % 10 = 4; VACUUM t"] {
        database.psql(sql);
        let found = check(&database, &["t"]);
        assert_eq!(found.code, Some(0), "{sql}: {}", found.stdout);
        assert!(!found.stdout.contains("line pointers"), "{}", found.stdout);
    }
    // without an index nothing tells one from the other
    database.psql(&kill("bare"));
    let found = check(&database, &["bare"]);
    assert_eq!(found.code, Some(0), "{}", found.stdout);
    assert!(found.stdout.contains("bytes to which no line pointer leads"), "{}", found.stdout);
    // line pointers are freed, and used again, while the check reads the index
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                database.psql(&kill("t"));
                database.psql("DELETE FROM t WHERE id % 7 = 1");
                database.psql("VACUUM (INDEX_CLEANUP on, TRUNCATE off) t");
                database.psql(
                    "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 400) AS i
                     ON CONFLICT DO NOTHING",
                );
            }
        });
        for _ in 0..30 {
            let found = check(&database, &["t"]);
            if found.code != Some(0) {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(found.code, Some(0), "{}", found.stdout);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn lost_blocks_are_told_from_those_that_were_never_used() {
    let create = |table: &str| {
        let rewrite = if table.starts_with("rewritten") { "VACUUM FULL #;" } else { "" };
        let vacuum = if table.ends_with("mapped") { "VACUUM (FREEZE) #;" } else { "" };
        let sql = format!(
            "CREATE TABLE # (id int, ext text); ALTER TABLE # ALTER ext SET STORAGE external;
             INSERT INTO # SELECT i, repeat('x', 6000) FROM generate_series(1, 3) AS i;
             INSERT INTO # (id) SELECT 0 FROM generate_series(1, 600);
             INSERT INTO # SELECT i, repeat('x', 6000) FROM generate_series(4, 6) AS i; {rewrite} {vacuum}"
        );
        sql.replace('#', table)
    };
    let zeros = || damage(|f, _| f.heap[..8192].fill(0));
    let all = [
        ("new", zeros()),
        ("new_mapped", zeros()),
        ("rewritten", zeros()),
        ("rewritten_mapped", zeros()),
        ("cut_mapped", damage(|f, _| f.heap.truncate(f.heap.len() - 8192))),
    ];
    let (server, base, _) = damaged(&Options::default(), create, &all);
    let database = server.database(&base);
    for (table, code, told) in [
        ("new", 5, "TC007"),
        ("new_mapped", 5, "TC007"),
        ("rewritten", 0, "TC006"),
        ("rewritten_mapped", 5, "TC007"),
        ("cut_mapped", 5, "TC007"),
    ] {
        let live = check(&database, &["--format", "jsonl", table]);
        let lines = live.lines::<Finding>();
        let codes: Vec<&str> = lines.iter().map(|line| line.code.as_str()).collect();
        assert_eq!(live.code, Some(code), "{table}: {codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == told).count(), 1, "{table}: {codes:?}");
    }
    // the map of a server that runs may be ahead of the table's file
    let places = all.each_ref().map(|(table, _)| paths(&database, table));
    let in_files = |[heap, toast]: &[PathBuf; 2]| {
        let found = run(toastctl()
            .args(["check", "--columns", "id int4, ext text", "--format", "jsonl"])
            .arg("--relation-file")
            .arg(heap)
            .arg("--toast-file")
            .arg(toast)
            .arg("--xact")
            .arg(server.data_dir().join("pg_xact")));
        let lines = found.lines::<Finding>();
        let of_blocks = |code: &&str| ["TC006", "TC007"].contains(code);
        let codes = lines.iter().map(|line| line.code.as_str()).filter(of_blocks);
        codes.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(in_files(&places[3]), ["TC006"]);
    server.shut_down();
    let found: Vec<Vec<String>> = places.iter().map(in_files).collect();
    assert_eq!(found, [["TC007"], ["TC007"], ["TC006"], ["TC007"], ["TC007"]]);
}
