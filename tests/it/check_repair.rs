//! The SQL that `check` prints, run as printed on damaged tables: it loses nothing that SQL could read
//! before or that REINDEX brings back.

use std::path::PathBuf;

use crate::support::check_cases::{
    COLUMNS, Files, On, apply, cases, change_word, create, paths, set_word, word,
};
use crate::support::checked::write;
use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::check::{Finding, Report};
use crate::support::server::{self, Database, Options, Server};

/// A sum for each value of a table: `id column sum`, or `NULL` or `ERROR` in the sum's place.
const SUMS: &str = "CREATE FUNCTION sums(t text) RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE i int; c text; s text; BEGIN
        FOR i IN EXECUTE format('SELECT id FROM %I', t) LOOP
            FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = t::regclass AND attnum > 0 LOOP
                BEGIN
                    EXECUTE format('SELECT coalesce(md5(%I::text), ''NULL'') FROM %I WHERE id = %s', c, t, i) INTO s;
                EXCEPTION WHEN OTHERS THEN s := 'ERROR'; END;
                RETURN NEXT concat_ws(' ', i, c, s);
            END LOOP;
        END LOOP; END$$;";

pub(crate) fn sums(database: &Database<'_>, table: &str) -> Vec<String> {
    let mut all: Vec<String> =
        database.psql(&format!("SELECT sums('{table}')")).lines().map(str::to_owned).collect();
    all.sort();
    all
}

/// `before`, with these values (`id column`) lost.
pub(crate) fn without(before: &[String], lost: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = before
        .iter()
        .map(|line| match lost.iter().find(|lost| line.starts_with(&format!("{lost} "))) {
            Some(lost) => format!("{lost} NULL"),
            None => line.clone(),
        })
        .collect();
    all.sort();
    all
}

/// What is changed in a table's files and in its TOAST relation's index.
pub(crate) type Damage = Box<dyn Fn(&mut Files, &mut Vec<u8>)>;

/// A table, and the sums of its values before it was damaged.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) before: Vec<String>,
}

/// A server with tables that were damaged while it was stopped.
pub(crate) fn damaged<const N: usize>(
    options: &Options,
    create: impl Fn(&str) -> String,
    all: &[(&'static str, Damage); N],
) -> (Server, String, [Table; N]) {
    let server = Server::start(&options.clone().set("autovacuum", "off"));
    let database = server.create_database("check_repair");
    let mut sql = format!("CREATE EXTENSION pageinspect; {SUMS}");
    all.iter().for_each(|(table, _)| sql += &create(table));
    database.psql(&(sql + "CHECKPOINT;"));
    let places: Vec<([PathBuf; 2], PathBuf)> = all
        .iter()
        .map(|(table, _)| {
            let index = database.psql(&format!(
                "SELECT pg_relation_filepath(i.indexrelid) FROM pg_class AS c
                 JOIN pg_index AS i ON i.indrelid = c.reltoastrelid WHERE c.oid = '{table}'::regclass"
            ));
            (paths(&database, table), server.data_dir().join(index))
        })
        .collect();
    let tables = all.each_ref().map(|&(name, _)| Table { name, before: sums(&database, name) });
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    for ((_, damage), ([heap, toast], index)) in all.iter().zip(&places) {
        let read = |path: &PathBuf| std::fs::read(path).unwrap();
        let mut files = Files { heap: read(heap), toast: read(toast) };
        let mut entries = read(index);
        damage(&mut files, &mut entries);
        std::fs::write(heap, files.heap).unwrap();
        std::fs::write(toast, files.toast).unwrap();
        std::fs::write(index, entries).unwrap();
    }
    server.start_again();
    (server, base, tables)
}

/// Checks a table with `--salvage`, which must find damage; the SQL that is printed.
pub(crate) fn printed(database: &Database<'_>, table: &str, options: &str) -> (Run, String) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let found = run(toastctl()
        .env("PGOPTIONS", options)
        .args(["check", "-d", &database.url(), table, "--salvage"])
        .arg(&dir));
    assert_eq!(found.code, Some(5), "{table}: {}{}", found.stdout, found.stderr);
    let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
    let shown: Vec<&str> = sql.lines().skip_while(|line| !line.is_empty()).collect();
    let shown: Vec<&str> = shown.into_iter().filter(|line| !line.is_empty()).collect();
    for line in shown {
        assert!(found.stdout.contains(line), "{table}: {line}: {}", found.stdout);
    }
    (found, sql)
}

/// Runs what is printed for a table, and the same once more, as somebody does after an error; then only these values may be lost, and the table is sound.
pub(crate) fn repaired(database: &Database<'_>, table: &Table, lost: &[&str]) -> String {
    let (_, sql) = printed(database, table.name, "");
    database.psql(&sql);
    is_sound(database, table, lost, &sql);
    database.try_psql(&sql);
    is_sound(database, table, lost, &sql);
    sql
}

fn is_sound(database: &Database<'_>, table: &Table, lost: &[&str], sql: &str) {
    let name = table.name;
    assert_eq!(sums(database, name), without(&table.before, lost), "{name}: {sql}");
    database.psql(&format!("SELECT sum(length(t::text)) FROM {name} AS t; VACUUM {name}"));
    let again = run(toastctl().args(["check", "-d", &database.url(), name]));
    assert_eq!(again.code, Some(0), "{name}: {}{}\n{sql}", again.stdout, again.stderr);
}

fn remove(files: &mut Files, item: u16, column: &str, seq: u32) {
    let chunk = files.chunk(item, column, seq);
    set_word(&mut files.toast, Files::pointer(chunk.block, chunk.item), 0);
}

/// Makes the index entry of a chunk of row 2's `ext` lead to another place.
fn mislead(files: &Files, index: &mut [u8], tid: [u8; 6]) {
    let id = files.value_id(2, "ext");
    let at = (0..index.len() - 8).find(|&at| word(index, at) == id && word(index, at + 4) == 1);
    let at = at.unwrap() - 8;
    index[at..at + 6].copy_from_slice(&tid);
}

pub(crate) fn damage(change: impl Fn(&mut Files, &mut Vec<u8>) + 'static) -> Damage {
    Box::new(change)
}

#[test]
fn a_damaged_toast_index_is_rebuilt_and_no_value_given_up() {
    let (server, base, tables) = damaged(
        &Options::default(),
        create,
        &[
            ("nowhere", damage(|f, index| mislead(f, index, [0, 0, 0, 0, 200, 0]))),
            (
                "elsewhere",
                damage(|f, index| {
                    let chunk = f.chunk(3, "cmp", 0);
                    let (block, item) = (chunk.block as u8, chunk.item as u8);
                    mislead(f, index, [0, 0, block, 0, item, 0]);
                }),
            ),
            ("metapage", damage(|_, index| index[..8192].fill(0))),
            // who reads by these never comes to an end
            ("no_flag", damage(|_, index| index[2 * 8192 - 4] = 0)),
            ("no_end", damage(|_, index| index[2 * 8192 - 16..2 * 8192].fill(0))),
            (
                "lost_too",
                damage(|f, index| {
                    mislead(f, index, [0, 0, 0, 0, 200, 0]);
                    remove(f, 3, "cmp", 1);
                }),
            ),
        ],
    );
    let database = server.database(&base);
    let [nowhere, elsewhere, metapage, no_flag, no_end, lost_too] = &tables;
    for table in [nowhere, elsewhere, metapage, no_flag, no_end] {
        let name = table.name;
        let reindex = database.psql(&format!(
            "SELECT format('REINDEX INDEX \"pg_toast\".\"%s\";', i.indexrelid::regclass::name)
             FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.reltoastrelid
             WHERE c.oid = '{name}'::regclass"
        ));
        let reindex = reindex.replace("\"pg_toast.", "\"");
        let args = ["check", "-d", &database.url(), name];
        let text = run(toastctl().args(args));
        assert!(text.stdout.contains(&reindex), "{name}: {reindex}: {}", text.stdout);
        let lines = run(toastctl().args(args).args(["--format", "jsonl"])).lines::<Finding>();
        for line in &lines {
            assert!(["TC081", "TC082", "TC083"].contains(&line.code.as_str()), "{line}");
            assert_eq!(line.sql.as_deref(), Some(reindex.as_str()), "{name}");
        }
        let sql = repaired(&database, table, &[]);
        assert!(sql.contains(&reindex) && !sql.contains("UPDATE ONLY"), "{sql}");
    }
    // what is lost all the same is given up once the index is sound
    let (_, sql) = printed(&database, lost_too.name, "");
    assert!(!sql.contains("UPDATE ONLY"), "{sql}");
    database.psql(&sql);
    let sql = repaired(&database, lost_too, &["3 cmp"]);
    assert!(!sql.contains("REINDEX"), "{sql}");
}

/// Makes row 3's `ext` lead to the value of row 2's, and say that it is shorter.
fn share(f: &mut Files) {
    let (two, three) = (f.value(2, "ext").file, f.value(3, "ext").file);
    let id = f.value_id(2, "ext");
    let (raw, stored) = (word(&f.heap, two + 2), word(&f.heap, two + 6));
    set_word(&mut f.heap, three + 2, raw - 4);
    set_word(&mut f.heap, three + 6, stored - 4);
    set_word(&mut f.heap, three + 10, id);
}

#[test]
fn a_pointer_to_another_rows_value_is_given_up_and_the_value_kept() {
    let (server, base, tables) = damaged(
        &Options::default(),
        create,
        &[
            ("shared", damage(|f, _| share(f))),
            ("touched", damage(|f, _| share(f))),
            (
                "by_three",
                damage(|f, _| {
                    share(f);
                    let (id, one) = (f.value_id(2, "ext"), f.value(1, "ext").file);
                    set_word(&mut f.heap, one + 10, id);
                }),
            ),
            (
                "both_broken",
                damage(|f, _| {
                    let (id, three) = (f.value_id(2, "ext"), f.value(3, "ext").file);
                    remove(f, 2, "ext", 1);
                    set_word(&mut f.heap, three + 10, id);
                }),
            ),
            (
                "same_row",
                damage(|f, _| {
                    let (id, at) = (f.value_id(2, "ext"), f.value(2, "cmp").file);
                    set_word(&mut f.heap, at + 10, id);
                }),
            ),
        ],
    );
    let database = server.database(&base);
    let [shared, touched, by_three, both_broken, same_row] = &tables;
    // the chunks of the old value stay as they are in row 3's own, which no row refers to
    repaired(&database, shared, &["3 ext"]);

    // the sound row is written by somebody else before the script runs: it must not lose its value
    let (_, sql) = printed(&database, touched.name, "");
    database.psql("UPDATE touched SET sh = 'other' WHERE id = 2");
    database.psql(&sql);
    let now = sums(&database, touched.name);
    let ext = |all: &[String], id: u32| {
        all.iter().find(|line| line.starts_with(&format!("{id} ext "))).cloned()
    };
    assert_eq!(ext(&now, 2), ext(&touched.before, 2), "{sql}");
    let (_, sql) = printed(&database, touched.name, "");
    database.psql(&sql);
    let now = sums(&database, touched.name);
    assert_eq!((ext(&now, 2), ext(&now, 3)), (ext(&touched.before, 2), Some("3 ext NULL".into())));

    // row 1 has row 2's value as before, which is told, and no statement says which of them lost its own
    let before = sums(&database, by_three.name);
    let (_, sql) = printed(&database, by_three.name, "");
    assert!(sql.contains("heap_force_kill") && !sql.contains("UPDATE ONLY"), "{sql}");
    database.psql(&sql);
    let lost = before.iter().map(|line| match line.starts_with("3 ext ") {
        true => "3 ext NULL".to_owned(),
        false => line.clone(),
    });
    let mut lost: Vec<String> = lost.collect();
    lost.sort();
    assert_eq!(sums(&database, by_three.name), lost);
    let sql = repaired(&database, same_row, &["2 cmp"]);
    assert!(sql.contains("delete the chunks of another"), "{sql}");
    repaired(&database, both_broken, &["2 ext", "3 ext"]);
}

/// The line pointer of row 2 is too short, and that of the tuple behind it on its page has another word.
fn short_before(other: fn(u32) -> u32) -> Damage {
    damage(move |f, _| {
        change_word(&mut f.heap, Files::pointer(0, 2), |pointer| pointer - (16 << 17));
        // a page is filled from its end
        change_word(&mut f.heap, Files::pointer(0, 1), other);
    })
}

#[test]
fn what_stands_before_a_broken_column_is_kept() {
    let header = |f: &mut Files, change: fn(&mut Files, usize)| {
        let at = f.value(2, "inl").file;
        change(f, at);
    };
    let with = |table: &str| {
        let refused = "ALTER TABLE not_null ALTER js SET NOT NULL;";
        let chain = "UPDATE chained SET sh = 'other' WHERE id = 2; VACUUM (FREEZE) chained;";
        create(table)
            + match table {
                "not_null" => refused,
                "chained" => chain,
                _ => "",
            }
    };
    let zeros = move || damage(move |f, _| header(f, |f, at| set_word(&mut f.heap, at, 0)));
    let (server, base, tables) = damaged(
        &Options::default(),
        with,
        &[
            ("broken", zeros()),
            ("not_null", zeros()),
            (
                "hoff",
                damage(|f, _| {
                    let at = f.row(2) + 22;
                    f.heap[at] = 40;
                }),
            ),
            (
                // the server does not ask how long a row is
                "short",
                damage(|f, _| {
                    let at = Files::pointer(0, 2);
                    let pointer = word(&f.heap, at);
                    set_word(&mut f.heap, at, pointer - (16 << 17));
                }),
            ),
            ("short_before_unused", short_before(|_| 0)),
            ("short_before_dead", short_before(|_| 3 << 15)),
            ("short_before_moved", short_before(|pointer| pointer + 8)),
            (
                // a redirected line pointer leads to it
                "chained",
                damage(|f, _| {
                    let at = f.value(5, "inl").file;
                    set_word(&mut f.heap, at, 0);
                }),
            ),
        ],
    );
    let database = server.database(&base);
    let [broken, not_null, hoff, short, before_unused, before_dead, before_moved, chained] =
        &tables;
    let (_, sql) = printed(&database, chained.name, "");
    database.psql(&sql);
    let again = run(toastctl().args(["check", "-d", &database.url(), chained.name]));
    assert_eq!(again.code, Some(0), "{}\n{sql}", again.stdout);
    let behind = ["2 inl", "2 sh", "2 num", "2 js", "2 arr"];
    let sql = repaired(&database, broken, &behind);
    assert!(sql.contains("fails, or crashes, at \"inl\""), "{sql}");
    let (_, sql) = printed(&database, not_null.name, "");
    assert!(
        sql.contains("-- No repair statement for") && !sql.contains("heap_force_kill("),
        "{sql}"
    );

    // the whole row is in the file that loads rows
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let args = ["check", "-d", &database.url(), hoff.name, "--salvage", dir.to_str().unwrap()];
    assert_eq!(run(toastctl().args(args)).code, Some(5));
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    assert!(read("manifest.jsonl").contains("t_hoff is wrong"), "{}", read("manifest.jsonl"));
    database.psql(&read("rows.sql"));
    database.psql(&read("repair.sql"));
    // from PostgreSQL 19 on SQL reads the row, so that it is kept
    let is_read = server.major() >= 19;
    assert_eq!(database.psql("SELECT count(*) FROM hoff"), if is_read { "4" } else { "3" });
    if !is_read {
        database.psql("INSERT INTO hoff SELECT * FROM hoff_salvaged");
    }
    is_sound(&database, hoff, &[], "");

    for table in [short, before_unused, before_dead, before_moved] {
        let row = |sums: Vec<String>| sums.into_iter().filter(|sum| sum.starts_with("2 "));
        let (_, sql) = printed(&database, table.name, "");
        database.psql(&sql);
        let found: Vec<String> = row(sums(&database, table.name)).collect();
        assert_eq!(found, row(table.before.clone()).collect::<Vec<_>>(), "{}: {sql}", table.name);
    }
    let (_, sql) = printed(&database, short.name, "");
    assert!(!sql.contains("heap_force_kill") && !sql.contains("UPDATE ONLY"), "{sql}");
}

#[test]
fn no_row_is_removed_whose_copy_may_not_be_inserted() {
    let (server, base, [table]) = damaged(
        &Options::default(),
        |table| create(table) + &format!("CREATE UNIQUE INDEX ON {table} (id);"),
        &[(
            "torn",
            damage(|f, _| {
                let at = f.value(2, "inl").file;
                set_word(&mut f.heap, at, 0);
                // the index leads with the key of row 2 to row 3
                for (row, id) in [(2, 3), (3, 7)] {
                    let at = f.value(row, "id").file;
                    set_word(&mut f.heap, at, id);
                }
                let at = f.row(3);
                set_word(&mut f.heap, at, FUTURE);
                change_mask(&mut f.heap, at, 0x0300, 0);
            }),
        )],
    );
    let database = server.database(&base);
    let before = database.psql("SELECT count(*), sum(length(ext)) FROM torn");
    let (_, sql) = printed(&database, table.name, "");
    database.try_psql(&sql);
    assert_eq!(database.psql("SELECT count(*), sum(length(ext)) FROM torn"), before, "{sql}");
    assert!(unwrapped(&sql).contains("that may fail at public.torn, block 0"), "{sql}");
}

#[test]
fn rows_of_a_refused_page_are_saved_before_it_is_given_up() {
    let (server, base, tables) = damaged(
        &Options::default(),
        create,
        &[
            ("flags", damage(|f, _| f.heap[10] |= 0x80)),
            ("bounds", damage(|f, _| f.heap[12..14].copy_from_slice(&8190_u16.to_le_bytes()))),
            ("upper", damage(|f, _| f.heap[14..16].fill(0))),
            ("special", damage(|f, _| f.heap[16..18].copy_from_slice(&4096_u16.to_le_bytes()))),
        ],
    );
    let database = server.database(&base);
    let temp = tempfile::tempdir().unwrap();
    for table in &tables {
        let name = table.name;
        let dir = temp.path().join(name);
        let args = ["check", "-d", &database.url(), name, "--salvage", dir.to_str().unwrap()];
        assert_eq!(run(toastctl().args(args)).code, Some(5));
        let [rows, repair] =
            ["rows.sql", "repair.sql"].map(|file| std::fs::read_to_string(dir.join(file)).unwrap());
        database.psql(&rows);
        assert_eq!(sums(&database, &format!("{name}_salvaged")), table.before, "{name}");
        // nothing is given up unless it is asked for
        database.psql(&repair);
        assert!(database.try_psql(&format!("SELECT count(*) FROM {name}")).code != Some(0));
        database.psql(&repair.replace("\\if :{?zero_pages}", "\\if true"));
        assert_eq!(database.psql(&format!("SELECT count(*) FROM {name}")), "0");
        database.psql(&format!("INSERT INTO {name} SELECT * FROM {name}_salvaged"));
        is_sound(&database, table, &[], &repair);
    }
}

#[test]
fn a_row_with_two_damaged_values_is_repaired_by_one_statement() {
    let (server, base, tables) = damaged(
        &Options::default(),
        create,
        &[(
            "two",
            damage(|f, _| {
                remove(f, 2, "ext", 1);
                remove(f, 2, "cmp", 0);
                // in the row
                let at = f.value(2, "inl").file;
                f.heap[at + 8] = 0xFF;
                f.heap[at + 9..at + 12].fill(0);
            }),
        )],
    );
    let database = server.database(&base);
    let sql = repaired(&database, &tables[0], &["2 ext", "2 cmp", "2 inl"]);
    assert_eq!(sql.matches("UPDATE ONLY").count(), 1, "{sql}");
}

#[test]
fn a_statement_that_could_not_succeed_is_told_and_not_printed() {
    let with = |table: &str| {
        let more = match table {
            "mv" => return String::new(),
            "viewed" => {
                "CREATE MATERIALIZED VIEW mv AS SELECT * FROM viewed;
                 ALTER MATERIALIZED VIEW mv ALTER ext SET STORAGE external;
                 REFRESH MATERIALIZED VIEW mv; VACUUM (FREEZE) mv;"
            }
            "ruled" => "CREATE RULE nowhere AS ON UPDATE TO ruled DO INSTEAD NOTHING;",
            "triggered" => {
                "CREATE FUNCTION leaves() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                 CREATE TRIGGER keeper BEFORE UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION leaves();"
            }
            "whole_rows" => "ALTER TABLE whole_rows REPLICA IDENTITY FULL;",
            "checked" => "ALTER TABLE checked ADD CONSTRAINT there CHECK (ext IS NOT NULL);",
            "moved" => "ALTER TABLE moved ADD CONSTRAINT there CHECK (ext IS NOT NULL);",
            "doubted" => "ALTER TABLE doubted ADD CONSTRAINT later CHECK (num < 0) NOT VALID;",
            "typed" => {
                "CREATE DOMAIN filled AS text NOT NULL; ALTER TABLE typed ALTER ext TYPE filled,
                     ALTER ext SET STORAGE external; VACUUM (FREEZE) typed;"
            }
            "published" => "CREATE PUBLICATION news FOR TABLE published;",
            // The new version does not fit into the page, so that each has an entry in the index. The old one is kept.
            "twice" => {
                "BEGIN; CREATE TABLE holder (); PREPARE TRANSACTION 'holder';
                 ALTER TABLE twice ADD PRIMARY KEY (id);
                 INSERT INTO twice (id, inl) SELECT 10 + g, repeat('x', 90) FROM generate_series(1, 70) AS g;
                 UPDATE twice SET ext = ext || 'x' WHERE id = 2;"
            }
            _ => "",
        };
        create(table) + more
    };
    let lost = || damage(|f, _| remove(f, 2, "ext", 1));
    let elsewhere = damage(|f, _| {
        let at = f.value(2, "ext").file;
        set_word(&mut f.heap, at + 14, 0);
    });
    // the page with the deleted version was not written
    let not_written = damage(|f, _| {
        remove(f, 2, "ext", 1);
        let at = f.row(2);
        set_word(&mut f.heap, at + 4, 0);
        change_mask(&mut f.heap, at, 0x0400, 0x0800);
    });
    let deleted_too = damage(|f, _| {
        remove(f, 2, "ext", 1);
        let at = f.chunk(2, "ext", 0).tuple;
        let xmin = word(&f.toast, at);
        set_word(&mut f.toast, at + 4, xmin);
        change_mask(&mut f.toast, at, 0x0800, 0x0400);
    });
    let all = [
        ("viewed", damage(|_, _| ())),
        ("mv", lost()),
        ("ruled", lost()),
        ("triggered", lost()),
        ("whole_rows", lost()),
        ("checked", lost()),
        ("moved", elsewhere),
        ("doubted", lost()),
        ("typed", lost()),
        ("published", lost()),
        ("twice", not_written),
        ("deleted", deleted_too),
    ];
    let options =
        Options::default().set("wal_level", "logical").set("max_prepared_transactions", "1");
    let (server, base, tables) = damaged(&options, with, &all);
    let database = server.database(&base);
    database.psql("COMMIT PREPARED 'holder'");
    // what is said, what helps, and whether the value is lost
    let after = [
        ("mv", "REFRESH MATERIALIZED VIEW", "REFRESH MATERIALIZED VIEW mv"),
        ("ruled", "rule \"nowhere\"", "ALTER TABLE ruled DISABLE RULE nowhere"),
        ("triggered", "trigger \"keeper\"", "ALTER TABLE triggered DISABLE TRIGGER keeper"),
        ("whole_rows", "REPLICA IDENTITY FULL", "ALTER TABLE whole_rows REPLICA IDENTITY DEFAULT"),
        ("checked", "constraint \"there\"", "UPDATE checked SET ext = 'x' WHERE id = 2"),
        ("moved", "constraint \"there\"", ""),
        ("doubted", "constraint \"later\"", "ALTER TABLE doubted DROP CONSTRAINT later"),
        ("typed", "a domain", "UPDATE typed SET ext = 'x' WHERE id = 2"),
        ("published", "publication \"news\"", "DROP PUBLICATION news"),
        (
            "twice",
            "same key",
            "CREATE EXTENSION IF NOT EXISTS pg_surgery;
             SELECT heap_force_kill('twice', ARRAY['(0,2)'::tid]); VACUUM twice",
        ),
    ];
    for (table, why, instead) in after {
        let (_, sql) = printed(&database, table, "");
        assert!(unwrapped(&sql).contains(why), "{table}: {sql}");
        assert_eq!(statements(&sql), [""; 0], "{table}: {sql}");
        database.psql(instead);
        let again = run(toastctl().args(["check", "-d", &database.url(), table]));
        if again.code == Some(5) && !instead.is_empty() {
            let (_, sql) = printed(&database, table, "");
            database.psql(&sql);
            let again = run(toastctl().args(["check", "-d", &database.url(), table]));
            assert_eq!(again.code, Some(0), "{table}: {}\n{sql}", again.stdout);
        }
        let is_left = tables.iter().find(|one| one.name == table).unwrap();
        let others = |all: &[String]| {
            all.iter().filter(|line| !line.starts_with("2 ext ")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(others(&sums(&database, table)), others(&is_left.before), "{table}");
    }
    // deleted chunks must be gone before the rest of the value is
    let deleted = tables.iter().find(|table| table.name == "deleted").unwrap();
    repaired(&database, deleted, &["2 ext"]);
}

#[test]
fn a_column_where_null_may_stand_once_is_not_set_to_null() {
    if server::shared().major() < 15 {
        return;
    }
    let with = |table: &str| {
        let of = match table {
            "plain" => "(ext)",
            "expression" => "((left(ext, 9)))",
            _ => "(id) INCLUDE (ext)",
        };
        let own = create(table);
        format!(
            "{own} UPDATE {table} SET ext = left(ext, 2500); VACUUM (FULL, FREEZE) {table};
             CREATE UNIQUE INDEX {table}_once ON {table} {of} NULLS NOT DISTINCT;"
        )
    };
    let lost = || {
        damage(|f, _| {
            remove(f, 2, "ext", 1);
            remove(f, 3, "ext", 1);
        })
    };
    let all = [("plain", lost()), ("expression", lost()), ("included", lost())];
    let (server, base, tables) = damaged(&Options::default(), with, &all);
    let database = server.database(&base);
    for table in &tables {
        let name = table.name;
        if name != "included" {
            let (_, sql) = printed(&database, name, "");
            assert_eq!(statements(&sql), [""; 0], "{name}: {sql}");
            let why = format!("the unique index \"{name}_once\", where NULL may stand once");
            assert!(unwrapped(&sql).contains(&why), "{name}: {sql}");
            database.psql(&format!("DROP INDEX {name}_once"));
        }
        repaired(&database, table, &["2 ext", "3 ext"]);
    }
}

#[test]
fn on_a_standby_no_statement_is_printed() {
    let primary = Server::start(&Options::default().set("autovacuum", "off"));
    let database = primary.create_database("check_standby");
    database.psql(&format!("CREATE EXTENSION pageinspect; {} CHECKPOINT", create("t")));
    let standby = primary.start_standby();
    let there = standby.database(database.name());
    let mut files = Files::read(&database, "t");
    let [_, toast] = paths(&there, "t");
    there.until_true("SELECT pg_last_wal_replay_lsn() IS NOT NULL");
    standby.stop();
    remove(&mut files, 2, "ext", 1);
    std::fs::write(toast, &files.toast).unwrap();
    standby.start_again();
    let (_, sql) = printed(&there, "t", "");
    assert_eq!(statements(&sql), [""; 0], "{sql}");
    assert!(unwrapped(&sql).contains("the server is a standby"), "{sql}");
}

pub(crate) fn change_mask(bytes: &mut [u8], tuple: usize, clear: u16, set: u16) {
    let at = tuple + 20;
    let mask = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    bytes[at..at + 2].copy_from_slice(&(mask & !clear | set).to_le_bytes());
}

const FUTURE: u32 = 0x4000_0000;

#[test]
fn what_update_and_delete_refuse_has_a_statement_that_succeeds_or_none() {
    let (server, base, tables) = damaged(
        &Options::default(),
        create,
        &[
            (
                "oid_zero",
                damage(|f, _| {
                    let at = f.value(2, "ext").file;
                    set_word(&mut f.heap, at + 14, 0);
                }),
            ),
            (
                "xmin_future",
                damage(|f, _| {
                    remove(f, 2, "ext", 1);
                    let at = f.row(2);
                    set_word(&mut f.heap, at, FUTURE);
                    change_mask(&mut f.heap, at, 0x0300, 0);
                }),
            ),
            (
                "xmax_future",
                damage(|f, _| {
                    remove(f, 2, "ext", 1);
                    let at = f.row(2);
                    set_word(&mut f.heap, at + 4, FUTURE);
                    change_mask(&mut f.heap, at, 0x0800, 0);
                }),
            ),
            (
                "multi_ahead",
                damage(|f, _| {
                    remove(f, 2, "ext", 1);
                    let at = f.row(2);
                    set_word(&mut f.heap, at + 4, 7000);
                    change_mask(&mut f.heap, at, 0x0800, 0x1090);
                }),
            ),
            (
                "chunk_xmin_future",
                damage(|f, _| {
                    let at = f.chunk(2, "ext", 1).tuple;
                    set_word(&mut f.toast, at, FUTURE);
                    change_mask(&mut f.toast, at, 0x0300, 0);
                }),
            ),
            (
                // deleted, as the hint bits say: SQL reads the value until it is vacuumed
                "chunk_deleted",
                damage(|f, _| {
                    let at = f.chunk(2, "ext", 1).tuple;
                    let xmin = word(&f.toast, at);
                    set_word(&mut f.toast, at + 4, xmin);
                    change_mask(&mut f.toast, at, 0x0800, 0x0400);
                }),
            ),
            (
                "chunk_multi_ahead",
                damage(|f, _| {
                    remove(f, 2, "ext", 2);
                    let at = f.chunk(2, "ext", 1).tuple;
                    set_word(&mut f.toast, at + 4, 7000);
                    change_mask(&mut f.toast, at, 0x0800, 0x1090);
                }),
            ),
            (
                "toast_page",
                damage(|f, _| {
                    let block = f.chunk(2, "ext", 1).block;
                    f.toast[block * 8192 + 10] |= 0x80;
                }),
            ),
        ],
    );
    let database = server.database(&base);
    let [oid_zero, future, xmax_future, multi_ahead, chunk_future, deleted, chunk_multi, page] =
        &tables;
    // whoever may create functions could give one of them the name of another that a superuser is to call
    for function in ["heap_force_kill", "heap_force_freeze"] {
        database.psql(&format!(
            "CREATE FUNCTION public.{function}(regclass, tid[]) RETURNS void LANGUAGE plpgsql AS
                 $$BEGIN RAISE EXCEPTION 'code of another'; END$$"
        ));
    }
    let sql = repaired(&database, oid_zero, &["2 ext"]);
    assert!(sql.contains("\"pg_catalog\".heap_force_kill"), "{sql}");
    database.psql("CREATE SCHEMA \"my ext\"; ALTER EXTENSION pg_surgery SET SCHEMA \"my ext\"");
    // no other table's copy can have this name
    let oid = database.psql("SELECT 'oid_zero'::regclass::oid");
    assert!(sql.contains(&format!("\"toastctl_{oid}_0_2_")), "{sql}");
    for table in [future, xmax_future, multi_ahead] {
        let sql = repaired(&database, table, &["2 ext"]);
        assert!(sql.contains("\"my ext\".heap_force_freeze"), "{sql}");
    }
    for table in [chunk_future, deleted] {
        let sql = repaired(&database, table, &[]);
        assert!(!sql.contains("UPDATE ONLY"), "{sql}");
    }
    repaired(&database, chunk_multi, &["2 ext"]);
    // nothing helps before the page can be read
    let before = sums(&database, page.name);
    let (_, sql) = printed(&database, page.name, "");
    assert!(sql.contains("-- No repair statement for") && !sql.contains("UPDATE ONLY"), "{sql}");
    database.psql(&sql);
    assert_eq!(sums(&database, page.name), before);
}

#[test]
fn a_pointer_into_another_tables_toast_relation_deletes_nothing_there() {
    let server = Server::start(&Options::default());
    let database = server.create_database("check_bystander");
    let tables = ["t", "bystander"];
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {SUMS} {} {} CHECKPOINT",
        create("t"),
        create("bystander")
    ));
    let theirs = sums(&database, "bystander");
    let [mut files, other] = tables.map(|table| Files::read(&database, table));
    let [heap, _] = paths(&database, "t");
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    let (from, to) = (other.value(2, "ext").file, files.value(2, "ext").file);
    files.heap[to..to + 18].copy_from_slice(&other.heap[from..from + 18]);
    std::fs::write(heap, &files.heap).unwrap();
    server.start_again();
    let database = server.database(&base);
    // SQL reads the bystander's value, so that it is not removed
    let reads = sums(&database, "t");
    let (_, sql) = printed(&database, "t", "");
    assert!(unwrapped(&sql).contains("SQL reads a value through its pointer"), "{sql}");
    database.try_psql(&sql);
    assert_eq!((sums(&database, "t"), sums(&database, "bystander")), (reads, theirs), "{sql}");
}

/// A script whose comments are not wrapped.
pub(crate) fn unwrapped(sql: &str) -> String {
    sql.replace("\n-- ", " ")
}

/// The lines of a script that are neither empty nor comments.
pub(crate) fn statements(sql: &str) -> Vec<&str> {
    sql.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).collect()
}

#[test]
fn a_damaged_catalog_is_told_as_such_and_no_row_is_touched() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_catalog");
    let tables = ["zero", "others", "nowhere", "sound"];
    let create: String = tables.map(create).concat();
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {SUMS} {create} CREATE TABLE plain (id int);"
    ));
    let before = sums(&database, "zero");
    let named = |table: &str, oid: &str| {
        database.psql(&format!(
            "SET allow_system_table_mods = on;
             UPDATE pg_class SET reltoastrelid = {oid} WHERE oid = '{table}'::regclass"
        ));
    };
    named("zero", "0");
    named("others", "(SELECT reltoastrelid FROM pg_class WHERE oid = 'sound'::regclass)");
    named("nowhere", "4000000000");
    for table in &tables[..3] {
        let (found, sql) = printed(&database, table, "");
        assert!(
            found.stdout.contains("TC009") && !found.stdout.contains("TC043"),
            "{}",
            found.stdout
        );
        assert_eq!(statements(&sql), [""; 0], "{table}: {sql}");
        assert!(unwrapped(&sql).contains("the catalog is damaged"), "{sql}");
        let lines =
            run(toastctl().args(["check", "-d", &database.url(), table, "--format", "jsonl"]));
        assert!(lines.lines::<Finding>().iter().all(|line| line.sql.is_none()), "{}", lines.stdout);
        assert_eq!(sums(&database, table), before);
    }
    for table in ["sound", "plain"] {
        let found = run(toastctl().args(["check", "-d", &database.url(), table]));
        assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    }
}

#[test]
fn most_pointers_of_a_table_are_not_wrong_by_themselves() {
    let elsewhere = damage(|f, _| {
        for (item, column) in
            [1, 2, 3, 4].into_iter().flat_map(|i| ["ext", "cmp", "lz"].map(|c| (i, c)))
        {
            let at = f.value(item, column).file;
            set_word(&mut f.heap, at + 14, 4_000_000_000);
        }
    });
    let (server, base, _) = damaged(&Options::default(), create, &[("t", elsewhere)]);
    let database = server.database(&base);
    let (_, sql) = printed(&database, "t", "");
    assert_eq!(statements(&sql), [""; 0], "{sql}");
    assert!(unwrapped(&sql).contains("restore the catalog"), "{sql}");
}

#[test]
fn a_page_with_more_line_pointers_than_pg_surgery_has_room_for_has_no_statement() {
    let far = |item: u16| {
        damage(move |f, _| {
            let broken = f.value(2, "inl").file;
            set_word(&mut f.heap, broken, 0);
            let (own, moved) = (Files::pointer(0, 2), Files::pointer(0, item));
            let pointer = word(&f.heap, own);
            set_word(&mut f.heap, own, 0);
            set_word(&mut f.heap, moved, pointer);
            let lower = (moved + 4) as u16;
            f.heap[12..14].copy_from_slice(&lower.to_le_bytes());
        })
    };
    let all =
        [("within", far(290)), ("at_the_end", far(291)), ("behind", far(292)), ("far", far(400))];
    let (server, base, tables) = damaged(&Options::default(), create, &all);
    let database = server.database(&base);
    for table in &tables {
        let (_, sql) = printed(&database, table.name, "");
        let is_printed = table.name == "within";
        assert_eq!(sql.contains("heap_force_kill("), is_printed, "{}: {sql}", table.name);
        assert!(is_printed || unwrapped(&sql).contains("line pointers"), "{}: {sql}", table.name);
        database.try_psql(&sql);
    }
    assert!(!server.log().contains("was terminated by signal"), "{}", server.log());
}

#[test]
fn a_page_with_a_wrong_checksum_loses_one_value_and_no_row() {
    // the first that has checksums unless told otherwise
    if !server::has_major(18) {
        return;
    }
    let server = Server::start(&Options::major(18).set("autovacuum", "off"));
    let database = server.create_database("check_page_sum");
    // this server may be built without lz4
    let create = |table: &str| create(table).replace("COMPRESSION lz4", "COMPRESSION pglz");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {SUMS} {} {} CHECKPOINT",
        create("t"),
        create("u")
    ));
    let before = sums(&database, "t");
    let (mut files, [heap, _]) = (Files::read(&database, "t"), paths(&database, "t"));
    let (mut other, [_, toast]) = (Files::read(&database, "u"), paths(&database, "u"));
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    let at = files.value(2, "inl").file;
    files.heap[at + 8] = 0xFF;
    files.heap[at + 9..at + 12].fill(0);
    std::fs::write(heap, &files.heap).unwrap();
    let chunk = other.chunk(2, "cmp", 1).tuple;
    other.toast[chunk + 36..chunk + 136].fill(0);
    other.toast[chunk + 36..chunk + 60].fill(0xFF);
    std::fs::write(toast, &other.toast).unwrap();
    server.start_again();
    let database = server.database(&base);
    assert!(database.try_psql("SELECT count(*) FROM t").stderr.contains("invalid page"));
    let (found, _) = printed(&database, "t", "");
    let text = found.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let steps = [
        "copy the table's files",
        "--ignore-checksums",
        "--salvage",
        "ignore_checksum_failure",
        "single values to NULL",
        "zero_damaged_pages",
    ];
    let order: Vec<Option<usize>> = steps.iter().map(|step| text.find(step)).collect();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}: {text}");

    // a copy of the files, whose control file is not beside them
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &files);
    let in_files = |more: &str| {
        let columns = COLUMNS.to_owned();
        run(toastctl().current_dir(temp.path()).args(["check", "--relation-file"]).args([
            "heap",
            "--toast-file",
            "toast",
            "--columns",
            &columns,
            more,
            "--format",
            "jsonl",
        ]))
    };
    let codes = |found: &Run| -> Vec<String> {
        let lines = found.lines::<Finding>().into_iter();
        lines.map(|line| line.code.to_owned()).collect()
    };
    assert_eq!(codes(&in_files("--checksums"))[0], "TC002");
    assert_eq!(codes(&in_files("--ignore-checksums")), ["TC060"]);

    // and on the server
    let (_, unread) = printed(&database, "u", "");
    assert!(
        unread.contains("-- No repair statement for") && !unread.contains("UPDATE ONLY"),
        "{unread}"
    );
    for (name, lost) in [("t", "2 inl"), ("u", "2 cmp")] {
        let (_, sql) = printed(&database, name, "-c ignore_checksum_failure=on");
        database.psql(&sql);
        database.psql("CHECKPOINT");
        server.restart_immediate();
        is_sound(&database, &Table { name, before: before.clone() }, &[lost], &sql);
    }
}

#[test]
fn chunks_that_neither_a_row_nor_the_index_knows_are_found() {
    let (server, base, _) = damaged(
        &Options::default(),
        create,
        &[("t", damage(|f, index| mislead(f, index, [0, 0, 0, 0, 200, 0])))],
    );
    let database = server.database(&base);
    // a value given up although only the index was damaged: one of its chunks stays
    database.psql("UPDATE t SET ext = NULL WHERE id = 2; VACUUM t");
    let lines =
        run(toastctl().args(["check", "-d", &database.url(), "t"]).args(["--format", "jsonl"]));
    let found = lines.lines::<Finding>();
    assert_eq!(lines.code, Some(5), "{}{}", lines.stdout, lines.stderr);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code.as_str(), found[0].severity.as_str()), ("TC081", "error"));
    assert!(found[0].found.contains("no row refers"), "{found:?}");
    database.psql(found[0].sql.as_deref().unwrap());
    // now it is known to the index, and only takes space
    let found = run(toastctl().args(["check", "-d", &database.url(), "t"]));
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    assert!(
        found.stdout.contains("TC080") && found.stdout.contains("sound, 1 notice"),
        "{}",
        found.stdout
    );
}

#[test]
fn what_vacuum_full_leaks_is_no_damage() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_leak");
    database.psql(&format!("CREATE EXTENSION pageinspect; {}", create("t")));
    {
        let other = server.create_database("check_leak_other");
        let _old = Holder::of(&other, "CREATE TABLE own ()");
        database.psql("UPDATE t SET ext = ext || 'x' WHERE id = 2");
        database.psql("VACUUM FULL t");
    }
    database.psql("VACUUM t");
    let check =
        |more: &[&str]| run(toastctl().args(["check", "-d", &database.url(), "t"]).args(more));
    let found = check(&["--format", "json"]);
    let document = found.report::<Report>();
    let severities: Vec<&str> =
        document.findings.iter().map(|finding| finding.severity.as_str()).collect();
    assert!(!severities.is_empty() && severities.iter().all(|s| *s == "notice"), "{document}");
    assert_eq!(document.relations[0].notices, severities.len());
    assert_eq!(found.code, Some(0), "{}", found.stderr);
}

#[test]
fn compaction_names_chunks_without_a_row_that_stand_in_its_way() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_compact");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT g, repeat(md5(g::text), 200) FROM generate_series(1, 600) AS g;
         VACUUM (FREEZE) t;
         SET allow_system_table_mods = on;
         DO $$DECLARE c regclass; BEGIN
             SELECT reltoastrelid INTO c FROM pg_class WHERE oid = 't'::regclass;
             UPDATE pg_class SET relkind = 'r' WHERE oid = c;
             EXECUTE format('INSERT INTO %s SELECT 4000000000, g, repeat(''abcd'', 450)::bytea
                             FROM generate_series(0, 5) AS g', c);
             UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$;
         DELETE FROM t WHERE id > 300; VACUUM t;",
    );
    database.rests();
    let compact = |more: &[&str]| {
        run(toastctl().args(["compact", "t", "--files", "toast", "-d", &database.url()]).args(more))
    };
    let done = compact(&[]);
    let text = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1 value at its end that no row refers to"), "{text}{}", done.stderr);
    assert_eq!(done.code, Some(1));
    let table = compact(&["--format", "json"]).table();
    let file = &table.compaction[0];
    assert_eq!((file.values_without_row, file.values_fixed), (1, 0));
}

#[test]
fn what_the_hints_about_rows_say_works() {
    // the row is removed; its transaction IDs are; it is updated
    let kinds = ["TC010 TC012 TC020 TC021 TC030 TC031 TC033 TC040", "TC023 TC024 TC027", "TC025"];
    let (pristine, files) = Files::fresh("check_hints");
    drop(pristine);
    let mut all = Vec::new();
    for case in cases().into_iter().filter(|case| case.on != On::Files) {
        let (_, found) = apply(&case, &files);
        let Some(first) = found.first().filter(|found| found.contains(" heap ")) else { continue };
        if let Some(kind) = kinds.iter().position(|kind| kind.contains(&first[..5])) {
            all.push((case, kind));
        }
    }
    assert!(all.len() > 15, "{}", all.len());
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_hints");
    let mut sql = format!("CREATE EXTENSION pageinspect; CREATE EXTENSION pg_surgery; {SUMS}");
    let name = |at: usize| format!("case_{at}");
    (0..all.len()).for_each(|at| sql += &create(&name(at)));
    database.psql(&(sql + "CHECKPOINT;"));
    let before = sums(&database, "case_0");
    let places: Vec<[PathBuf; 2]> = (0..all.len()).map(|at| paths(&database, &name(at))).collect();
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    for ((case, _), [heap, toast]) in all.iter().zip(&places) {
        let files =
            Files { heap: std::fs::read(heap).unwrap(), toast: std::fs::read(toast).unwrap() };
        let (changed, _) = apply(case, &files);
        std::fs::write(heap, changed.heap).unwrap();
        std::fs::write(toast, changed.toast).unwrap();
    }
    server.start_again();
    let database = server.database(&base);
    let without_two: Vec<String> =
        before.iter().filter(|line| !line.starts_with("2 ")).cloned().collect();
    for (at, (case, kind)) in all.iter().enumerate() {
        let table = name(at);
        let (sql, left) = match kind {
            0 => (format!("SELECT heap_force_kill('{table}', ARRAY['(0,2)'::tid])"), &without_two),
            1 => (format!("SELECT heap_force_freeze('{table}', ARRAY['(0,2)'::tid])"), &before),
            _ => (format!("UPDATE {table} SET id = id WHERE ctid = '(0,2)'"), &before),
        };
        database.psql(&sql);
        assert_eq!(&sums(&database, &table), left, "{}", case.name);
        database.psql(&format!("SELECT sum(length(t::text)) FROM {table} AS t; VACUUM {table}"));
        let again = run(toastctl().args(["check", "-d", &database.url(), &table]));
        assert_eq!(again.code, Some(0), "{}: {}", case.name, again.stdout);
    }
}
