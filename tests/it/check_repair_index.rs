//! The SQL that `check` prints where indexes, catalogs or line pointers are damaged: what SQL reads before it reads
//! afterwards.

use std::collections::BTreeMap;

use crate::check_repair::{
    Damage, Table, change_mask, damage, damaged, printed, repaired, statements, sums, unwrapped,
    without,
};
use crate::support::check_cases::{Files, change_half, change_word, set_word, word};
use crate::support::command::{run, toastctl};
use crate::support::server::{Database, Options, Server};

const PAGE: usize = 8192;
/// `LP_DEAD`, in a line pointer.
const DEAD: u32 = 3 << 15;

/// 40 values of two chunks each.
fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (id int PRIMARY KEY, b text); ALTER TABLE {table} ALTER b SET STORAGE external;
         INSERT INTO {table} SELECT i, (SELECT left(string_agg(md5(i::text || g), ''), 3992)
             FROM generate_series(1, 125) AS g) FROM generate_series(1, 40) AS i;
         VACUUM (FREEZE) {table};"
    )
}

/// Where the tuple of each chunk stands, by the number of its row and its own.
fn chunks(toast: &[u8]) -> BTreeMap<(usize, u32), usize> {
    let mut places = BTreeMap::new();
    for start in (0..toast.len()).step_by(PAGE) {
        let lower = usize::from(u16::from_le_bytes([toast[start + 12], toast[start + 13]]));
        for item in 0..(lower - 24) / 4 {
            let at = start + (word(toast, start + 24 + 4 * item) & 0x7FFF) as usize;
            places.insert((word(toast, at + 24), word(toast, at + 28)), at);
        }
    }
    let mut ids: Vec<u32> = places.keys().map(|(id, _)| *id).collect();
    ids.dedup();
    let row = |id| ids.iter().position(|own| *own == id).unwrap() + 1;
    places.into_iter().map(|((id, seq), at)| ((row(id), seq), at)).collect()
}

/// Exchanges bytes.
fn exchange(bytes: &mut [u8], [one, other]: [usize; 2], count: usize) {
    for at in 0..count {
        bytes.swap(one + at, other + at);
    }
}

/// The second chunks of rows 5 and 6 have each other's value ID.
fn exchange_ids(toast: &mut [u8]) {
    let places = chunks(toast);
    exchange(toast, [places[&(5, 1)] + 24, places[&(6, 1)] + 24], 4);
}

/// The entry of a chunk in the TOAST index.
fn entry(toast: &[u8], index: &[u8], chunk: (usize, u32)) -> usize {
    let id = word(toast, chunks(toast)[&(chunk.0, 0)] + 24);
    let found = |at: &usize| word(index, at + 8) == id && word(index, at + 12) == chunk.1;
    (PAGE + 24..2 * PAGE - 32).step_by(8).find(found).unwrap()
}

/// Entries of the index are not in order.
fn disorder(toast: &[u8], index: &mut [u8]) {
    let entries = [entry(toast, index, (30, 0)), entry(toast, index, (31, 0))];
    exchange(index, entries.map(|at| at + 8), 8);
}

/// A committed transaction has deleted a chunk.
fn delete(toast: &mut [u8], chunk: (usize, u32)) {
    let at = chunks(toast)[&chunk];
    let xmin = word(toast, at);
    set_word(toast, at + 4, xmin);
    change_mask(toast, at, 0x0800, 0x0400);
}

/// The manifest of what is saved, and the SQL that is printed.
fn salvaged(database: &Database<'_>, table: &str) -> (String, String) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let args = ["check", "-d", &database.url(), table, "--salvage", dir.to_str().unwrap()];
    assert_eq!(run(toastctl().args(args)).code, Some(5));
    let [manifest, sql] = ["manifest.jsonl", "repair.sql"]
        .map(|file| std::fs::read_to_string(dir.join(file)).unwrap());
    (manifest, sql)
}

/// Runs what is printed, check after check, until nothing is found or there is no statement.
fn rounds(database: &Database<'_>, table: &str) -> String {
    let mut all = String::new();
    for _ in 0..4 {
        let again = run(toastctl().args(["check", "-d", &database.url(), table]));
        if again.code == Some(0) {
            break;
        }
        let (_, sql) = salvaged(database, table);
        database.try_psql(&sql);
        all += &sql;
        if statements(&sql).is_empty() {
            break;
        }
    }
    all
}

fn of_damage<const N: usize>(all: &[(&'static str, Damage); N]) -> (Server, String, [Table; N]) {
    damaged(&Options::default(), create, all)
}

#[test]
fn what_is_read_by_a_damaged_index_is_not_changed_by_rebuilding_it() {
    let (server, base, tables) = of_damage(&[
        (
            "disputed",
            damage(|f, index| {
                disorder(&f.toast, index);
                exchange_ids(&mut f.toast);
            }),
        ),
        ("index_alone", damage(|f, index| disorder(&f.toast, index))),
        (
            "deleted",
            damage(|f, index| {
                disorder(&f.toast, index);
                delete(&mut f.toast, (7, 1));
            }),
        ),
    ]);
    let database = server.database(&base);
    let [disputed, index_alone, deleted] = &tables;
    let before = sums(&database, disputed.name);
    let of =
        |id: u32| disputed.before.iter().find(|sum| sum.starts_with(&format!("{id} b "))).unwrap();
    assert!(before.contains(of(5)) && before.contains(of(6)), "{before:?}");
    let (manifest, _) = salvaged(&database, disputed.name);
    let in_doubt = manifest.lines().filter(|line| line.contains("\"whole\":false")).count();
    assert_eq!(in_doubt, 2, "{manifest}");
    let sql = rounds(&database, disputed.name);
    assert_eq!(sums(&database, disputed.name), before, "{sql}");
    assert!(unwrapped(&sql).contains("by another ID or number"), "{sql}");
    let sql = repaired(&database, index_alone, &[]);
    assert!(sql.contains("REINDEX"), "{sql}");
    // its chunk is live again before the index is made of live chunks
    let sql = repaired(&database, deleted, &[]);
    let [freeze, reindex] = ["heap_force_freeze(", "REINDEX INDEX"].map(|text| sql.find(text));
    assert!(
        freeze.is_some() && freeze < reindex && sql.matches("REINDEX INDEX").count() == 1,
        "{sql}"
    );
}

#[test]
fn a_value_whose_chunks_are_there_is_not_given_up_for_its_index() {
    let (server, base, tables) = of_damage(&[
        (
            "killed",
            damage(|f, index| {
                let at = entry(&f.toast, index, (7, 1)) - PAGE;
                let items = (PAGE + 24..PAGE + 24 + 4 * 80).step_by(4);
                let own = items.clone().find(|item| word(index, *item) & 0x7FFF == at as u32);
                change_word(index, own.unwrap(), |pointer| pointer | DEAD);
                exchange_ids(&mut f.toast);
            }),
        ),
        (
            "deleted",
            damage(|f, _| {
                delete(&mut f.toast, (7, 1));
                let places = chunks(&f.toast);
                exchange(&mut f.toast, [places[&(3, 0)] + 28, places[&(3, 1)] + 28], 4);
            }),
        ),
    ]);
    let database = server.database(&base);
    let [killed, deleted] = &tables;
    let sql = rounds(&database, killed.name);
    assert_eq!(sums(&database, killed.name), killed.before, "{sql}");
    let again = run(toastctl().args(["check", "-d", &database.url(), killed.name]));
    assert_eq!(again.code, Some(0), "{}{sql}", again.stdout);
    // nobody knows which order of the chunks of row 3 is right
    let sql = rounds(&database, deleted.name);
    let left = sums(&database, deleted.name);
    assert!(!left.iter().any(|sum| sum.ends_with("NULL")), "{left:?} {sql}");
    // once it is given up, the index can be rebuilt, and leads to row 7's chunks again
    database.try_psql(&sql.replace("\\if :{?give_up}", "\\if true"));
    let sql = rounds(&database, deleted.name);
    assert_eq!(sums(&database, deleted.name), without(&deleted.before, &["3 b"]), "{sql}");
}

#[test]
fn a_line_pointer_that_ends_in_the_padding_breaks_no_column() {
    let create = |table: &str| {
        format!(
            "CREATE TABLE {table} (id int, a text, n int, late text);
             INSERT INTO {table} SELECT i, 'abc', i, left(md5(i::text), 22) FROM generate_series(1, 3) AS i;
             VACUUM (FREEZE) {table};"
        )
    };
    let shorter = |bytes: u32| {
        damage(move |f, _| {
            let at = Files::pointer(0, 2);
            assert_eq!(word(&f.heap, at) >> 17, 59);
            change_word(&mut f.heap, at, |pointer| pointer - (bytes << 17));
        })
    };
    let all = [("one", shorter(1)), ("two", shorter(2)), ("eight", shorter(8))];
    let (server, base, tables) = damaged(&Options::default(), create, &all);
    let database = server.database(&base);
    for table in &tables {
        let before = sums(&database, table.name);
        if table.name != "eight" {
            assert_eq!(before, table.before);
        }
        let (_, sql) = printed(&database, table.name, "");
        assert_eq!(statements(&sql), [""; 0], "{}: {sql}", table.name);
        database.try_psql(&sql);
        assert_eq!(sums(&database, table.name), before, "{}: {sql}", table.name);
    }
}

#[test]
fn where_the_file_of_the_toast_relation_is_another_one_no_row_is_touched() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_relfilenode");
    let tables = ["one", "other", "own_heap"];
    let create: String = tables.map(create).concat();
    let less = "DELETE FROM other WHERE id > 10; VACUUM (FREEZE) other;";
    let sums_of = "SELECT string_agg(md5(b), '' ORDER BY id) FROM";
    database.psql(&format!("CREATE EXTENSION pageinspect; {create} {less} CHECKPOINT"));
    let before = tables.map(|table| database.psql(&format!("{sums_of} {table}")));
    let files =
        "CREATE TABLE files AS SELECT t.oid, t.relfilenode, c.relname, c.relfilenode AS heap
                 FROM pg_class AS c JOIN pg_class AS t ON t.oid = c.reltoastrelid
                 WHERE c.relname IN ('one', 'other', 'own_heap')";
    database.psql(files);
    let set = |to: &str| {
        database.psql(&format!(
            "SET allow_system_table_mods = on;
             UPDATE pg_class AS t SET relfilenode = {to} FROM files WHERE t.oid = files.oid"
        ));
    };
    set("CASE files.relname WHEN 'own_heap' THEN files.heap
           WHEN 'one' THEN (SELECT relfilenode FROM files WHERE relname = 'other')
           ELSE (SELECT relfilenode FROM files WHERE relname = 'one') END");
    for table in tables {
        let (found, sql) = printed(&database, table, "");
        assert_eq!(statements(&sql), [""; 0], "{table}: {sql}");
        assert!(found.stdout.contains("TC009"), "{table}: {}", found.stdout);
        database.try_psql(&sql);
    }
    set("files.relfilenode");
    assert_eq!(tables.map(|table| database.psql(&format!("{sums_of} {table}"))), before);
}

#[test]
fn a_chunk_that_reindex_fails_at_is_written_anew_with_the_index() {
    let (server, base, [table]) = of_damage(&[(
        "heap_only",
        damage(|f, index| {
            disorder(&f.toast, index);
            let at = chunks(&f.toast)[&(9, 0)];
            change_half(&mut f.toast, at + 18, |infomask2| infomask2 | 0x8000);
        }),
    )]);
    let database = server.database(&base);
    let sql = repaired(&database, &table, &[]);
    assert!(!sql.contains("REINDEX INDEX") && sql.contains("VACUUM FULL"), "{sql}");
}

#[test]
fn a_generated_value_is_computed_again_where_that_gives_what_sql_reads() {
    let create = |table: &str| {
        // of another, SQL reads something else than its expression gives now
        let then = if table == "changed" {
            "CREATE OR REPLACE FUNCTION made(a text) RETURNS text LANGUAGE sql IMMUTABLE
                 AS 'SELECT left(repeat(a || ''x'', 125), 3992)';"
        } else {
            ""
        };
        format!(
            "CREATE OR REPLACE FUNCTION made(a text) RETURNS text LANGUAGE sql IMMUTABLE
                 AS 'SELECT left(repeat(a, 125), 3992)';
             CREATE TABLE {table} (id int PRIMARY KEY, a text, b text GENERATED ALWAYS AS (made(a)) STORED);
             ALTER TABLE {table} ALTER b SET STORAGE external;
             INSERT INTO {table} (id, a) SELECT i, md5(i::text) FROM generate_series(1, 40) AS i;
             VACUUM (FREEZE) {table}; {then}"
        )
    };
    let exchanged = || damage(|f, _| exchange_ids(&mut f.toast));
    for table in ["same", "changed"] {
        let all = [(table, exchanged())];
        let (server, base, [table]) = damaged(&Options::default(), create, &all);
        let database = server.database(&base);
        let sql = rounds(&database, table.name);
        assert_eq!(sums(&database, table.name), table.before, "{sql}");
        let again = run(toastctl().args(["check", "-d", &database.url(), table.name]));
        let is_sound = again.code == Some(0);
        assert_eq!(is_sound, table.name == "same", "{}{sql}", again.stdout);
    }
}
