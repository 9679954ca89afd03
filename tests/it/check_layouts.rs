//! Two values whose chunks carry each other's IDs and numbers, in every layout of one to three chunks: what SQL reads
//! before the printed SQL is run it reads after it, and what is saved as whole is what was stored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use toastctl::value::contents::md5_hex;

use crate::support::check_cases::{Files, set_word, word};
use crate::support::command::{run, toastctl};
use crate::support::reports::check::SalvagedFile;
use crate::support::server::{Database, Options, Server};

const COLUMNS: &str = "id int4, f text, v text, w text";

/// The sum of each value of every table: `table id column sum`, or `ERROR` in place of the sum.
const SUMS: &str = "CREATE FUNCTION sums() RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE t text; i int; c text; s text; BEGIN
        FOR t IN SELECT relname FROM pg_class WHERE relname LIKE 'lay\\_%' AND relkind = 'r' ORDER BY 1 LOOP
            FOR i IN 1..3 LOOP FOREACH c IN ARRAY ARRAY['v', 'w'] LOOP
                BEGIN
                    EXECUTE format('SELECT coalesce(md5(%I), ''NULL'') FROM %I WHERE id = %s', c, t, i) INTO s;
                EXCEPTION WHEN OTHERS THEN s := 'ERROR'; END;
                RETURN NEXT concat_ws(' ', t, i, c, s);
            END LOOP; END LOOP;
        END LOOP; END$$;";

/// A chunk: the row and column of its value, and its number.
type Place = (u16, &'static str, u32);

/// What is exchanged.
#[derive(Debug, Clone)]
enum Change {
    /// Words of the chunks' tuples: `chunk_id`, `chunk_seq`, or both.
    Words(Vec<(Place, Place)>, &'static [usize]),
    /// A chunk gets the ID of another value, and the number behind its last one.
    Foreign(Place, Place),
    /// The places to which two index entries lead.
    Entries(Place, Place),
}

#[derive(Debug, Clone)]
struct Layout {
    chunks: [u32; 2],
    /// Bytes of the last chunks.
    tails: [u32; 2],
    change: Change,
}

const ID: &[usize] = &[24];
const NUMBER: &[usize] = &[28];
const BOTH: &[usize] = &[24, 28];

impl Layout {
    fn create(&self, table: &str) -> String {
        let size = |at: usize| (self.chunks[at] - 1) * 1996 + self.tails[at];
        let text = |salt: &str, size: u32| {
            format!(
                "(SELECT left(string_agg(md5('{salt}' || g), ''), {size}) FROM generate_series(1, 190) AS g)"
            )
        };
        let (first, second) = (size(0), size(1));
        format!(
            "CREATE TABLE {table} (id int4, f text, v text, w text);
             ALTER TABLE {table} ALTER f SET STORAGE plain, ALTER v SET STORAGE external, ALTER w SET STORAGE external;
             INSERT INTO {table} VALUES (1, repeat('x', 1600), {}, {}), (2, repeat('x', 1600), {}, {}),
                 (3, repeat('x', 1600), {}, {});
             VACUUM (FREEZE) {table};",
            text("1v", first),
            text("1w", second),
            text("2v", second),
            text("2w", 700),
            text("3v", 2500),
            text("3w", 2500),
        )
    }

    fn damage(&self, files: &mut Files, index: &mut [u8]) {
        let at =
            |files: &Files, (item, column, seq): Place| files.chunk_of(COLUMNS, item, column, seq);
        match &self.change {
            Change::Words(pairs, words) => {
                let tuples: Vec<[usize; 2]> =
                    pairs.iter().map(|(a, b)| [at(files, *a).tuple, at(files, *b).tuple]).collect();
                for ([a, b], word_at) in
                    tuples.iter().flat_map(|pair| words.iter().map(move |w| (pair, w)))
                {
                    let (one, other) =
                        (word(&files.toast, a + word_at), word(&files.toast, b + word_at));
                    set_word(&mut files.toast, a + word_at, other);
                    set_word(&mut files.toast, b + word_at, one);
                }
            }
            Change::Foreign(own, last) => {
                let (own, last) = (at(files, *own).tuple, at(files, *last).tuple);
                let (id, seq) = (word(&files.toast, last + 24), word(&files.toast, last + 28));
                set_word(&mut files.toast, own + 24, id);
                set_word(&mut files.toast, own + 28, seq + 1);
            }
            Change::Entries(a, b) => {
                let [a, b] = [a, b].map(|place| {
                    let tuple = at(files, *place).tuple;
                    let key = [word(&files.toast, tuple + 24), word(&files.toast, tuple + 28)];
                    let found = (0..index.len() - 16).find(|&at| {
                        [word(index, at + 8), word(index, at + 12)] == key && index[at + 6] == 16
                    });
                    found.unwrap()
                });
                (0..6).for_each(|byte| index.swap(a + byte, b + byte));
            }
        }
    }
}

fn layouts() -> Vec<Layout> {
    let mut all = Vec::new();
    let every: &[[u32; 2]] = &[[1, 1], [1, 2], [2, 1], [2, 2], [3, 1], [2, 3]];
    let few: &[[u32; 2]] = &[[1, 1], [2, 2], [3, 1]];
    let pairs =
        [((2, "v"), [500, 500], every), ((2, "v"), [500, 600], few), ((1, "w"), [500, 500], few)];
    for (other, tails, shapes) in pairs {
        for &chunks in shapes {
            let mut add = |change| all.push(Layout { chunks, tails, change });
            let first = |seq| (1, "v", seq);
            let second = |seq| (other.0, other.1, seq);
            for a in 0..chunks[0] {
                for b in 0..chunks[1] {
                    let pair = || vec![(first(a), second(b))];
                    add(Change::Words(pair(), ID));
                    if a != b {
                        add(Change::Words(pair(), NUMBER));
                        add(Change::Words(pair(), BOTH));
                    }
                    add(Change::Entries(first(a), second(b)));
                }
                for b in a + 1..chunks[0] {
                    add(Change::Words(vec![(first(a), first(b))], NUMBER));
                    add(Change::Entries(first(a), first(b)));
                }
            }
            let common = chunks[0].min(chunks[1]);
            if common > 1 {
                add(Change::Words((0..common).map(|seq| (first(seq), second(seq))).collect(), ID));
                add(Change::Words((0..2).map(|seq| (first(seq), second(seq))).collect(), ID));
            }
            add(Change::Foreign(first(chunks[0] - 1), second(chunks[1] - 1)));
            if chunks[0] > 1 {
                add(Change::Foreign(first(0), second(chunks[1] - 1)));
            }
        }
    }
    all
}

/// Sums by `table id column`.
fn sums(database: &Database<'_>) -> BTreeMap<String, String> {
    let shown = database.psql("SELECT sums()");
    let pairs = shown.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(value, sum)| (value.to_owned(), sum.to_owned())).collect()
}

#[derive(Deserialize)]
struct Line {
    relation: String,
    item: u32,
    column: String,
    whole: bool,
    guesses: Vec<String>,
    files: Vec<SalvagedFile>,
}

/// A table's file, its TOAST relation's and that of its index.
fn paths(database: &Database<'_>) -> BTreeMap<String, [PathBuf; 3]> {
    let shown = database.psql(
        "SELECT t.relname, pg_relation_filepath(t.oid), pg_relation_filepath(t.reltoastrelid),
             pg_relation_filepath(i.indexrelid)
         FROM pg_class AS t JOIN pg_index AS i ON i.indrelid = t.reltoastrelid WHERE t.relname LIKE 'lay\\_%'",
    );
    let data = database.server().data_dir();
    let line = |line: &str| {
        let parts: Vec<&str> = line.split('|').collect();
        (parts[0].to_owned(), [1, 2, 3].map(|at| data.join(parts[at])))
    };
    shown.lines().map(line).collect()
}

fn name(at: usize) -> String {
    format!("lay_{at:03}")
}

/// Makes a table of each layout and damages it while the server is stopped: the name of the database, and the sums before.
fn damaged(server: &Server, layouts: &[Layout]) -> (String, BTreeMap<String, String>) {
    let database = server.create_database("check_layouts");
    let mut sql = format!("CREATE EXTENSION pageinspect; CREATE EXTENSION pg_surgery; {SUMS}");
    for (at, layout) in layouts.iter().enumerate() {
        sql += &layout.create(&name(at));
    }
    database.psql(&(sql + "CHECKPOINT;"));
    let original = sums(&database);
    let places = paths(&database);
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.shut_down();
    for (at, layout) in layouts.iter().enumerate() {
        let [heap, toast, index] =
            places[&name(at)].each_ref().map(|path| std::fs::read(path).unwrap());
        let (mut files, mut index) = (Files { heap, toast }, index);
        layout.damage(&mut files, &mut index);
        let [heap_file, toast_file, index_file] = &places[&name(at)];
        std::fs::write(heap_file, files.heap).unwrap();
        std::fs::write(toast_file, files.toast).unwrap();
        std::fs::write(index_file, index).unwrap();
    }
    server.start_again();
    (base, original)
}

/// Values that are said to be whole and are not what was stored, with the guesses that are told.
fn whole_but_changed(
    dir: &std::path::Path,
    original: &BTreeMap<String, String>,
) -> Vec<(String, Vec<String>)> {
    let manifest = std::fs::read_to_string(dir.join("manifest.jsonl")).unwrap();
    let mut changed = Vec::new();
    for line in manifest.lines() {
        let Line { relation, item, column, whole, guesses, files } =
            serde_json::from_str(line).unwrap();
        let value = format!("{} {item} {column}", relation.replace("public.", ""));
        let content = files.iter().find(|file| file.kind == "content");
        if let (true, Some(stored), Some(file)) = (whole, original.get(&value), content)
            && md5_hex(&std::fs::read(dir.join(&file.file)).unwrap()) != *stored
        {
            changed.push((value, guesses));
        }
    }
    changed
}

/// The tables that are named in these statements, or whose TOAST relations are.
fn named_in(statements: &str, database: &Database<'_>) -> Vec<String> {
    let shown = database.psql(
        "SELECT relname, 'pg_toast_' || oid FROM pg_class WHERE relname LIKE 'lay\\_%' AND relkind = 'r'",
    );
    let names = shown.lines().filter_map(|line| line.split_once('|'));
    let named =
        names.filter(|(table, toast)| [table, toast].iter().any(|n| statements.contains(**n)));
    named.map(|(table, _)| table.to_owned()).collect()
}

#[test]
fn what_sql_reads_of_values_with_exchanged_chunks_is_neither_lost_nor_changed() {
    let server = Server::start(&Options::default().set("autovacuum", "off").set("fsync", "off"));
    let layouts = layouts();
    let (base, original) = damaged(&server, &layouts);
    let database = server.database(&base);
    let before = sums(&database);
    let temp = tempfile::tempdir().unwrap();
    let (mut wrong, mut quiet, mut errors) = (Vec::new(), BTreeSet::new(), String::new());
    let shown =
        |table: &str| format!("{table} {:?}", layouts[table[4..].parse::<usize>().unwrap()]);
    // no table's statements change another table
    let mut left = vec!["lay_*".to_owned()];
    for round in 0..4 {
        let dir = temp.path().join(round.to_string());
        let args = ["check", "-d", &database.url(), "--format", "jsonl", "--salvage"];
        let found = run(toastctl().args(args).arg(&dir).args(&left));
        let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap();
        let codes: BTreeSet<Option<i32>> = [Some(0), Some(5)].into();
        assert!(codes.contains(&found.code), "{}", found.stderr);
        // rows have moved in the later rounds
        if round == 0 {
            let changed = whole_but_changed(&dir, &original);
            wrong.extend(changed.into_iter().map(|(value, guesses)| {
                let table = value.split(' ').next().unwrap();
                format!("{value} is not whole: {guesses:?}: {}", shown(table))
            }));
        }
        for at in 0..layouts.len() {
            let quoted = format!("\"{}\"", name(at));
            let is_found = found.stdout.contains(&format!("public.{}\"", name(at)));
            if is_found && !sql.contains(&quoted) {
                quiet.insert(shown(&name(at)));
            }
        }
        let statements: String = sql.lines().filter(|line| !line.starts_with("--")).collect();
        if statements.is_empty() {
            break;
        }
        left = named_in(&statements, &database);
        let done = run(database.psql_command().args(["-q", "-f"]).arg(dir.join("repair.sql")));
        errors += &done.stderr;
    }
    let after = sums(&database);
    for (value, sum) in &before {
        let table = value.split(' ').next().unwrap();
        if sum != "ERROR" && after.get(value) != Some(sum) {
            wrong.push(format!("{value} is lost or changed: {}", shown(table)));
        }
        if sum == "ERROR"
            && ![original[value].as_str(), "ERROR", "NULL"].contains(&after[value].as_str())
        {
            wrong.push(format!("{value} is read wrong: {}", shown(table)));
        }
    }
    let read = |sums: &BTreeMap<String, String>| {
        sums.iter().filter(|(value, sum)| original[*value] == **sum).count()
    };
    println!("{} values, {} read before, {} after", original.len(), read(&before), read(&after));
    assert!(
        wrong.is_empty() && quiet.is_empty(),
        "{}: {wrong:#?}\n{quiet:#?}\n{errors}",
        wrong.len()
    );
    assert!(!server.log().contains("was terminated by signal"), "{}", server.log());
}
