//! `check --deep` on a live server: contents of every type that has a format.

use std::collections::{BTreeMap, BTreeSet};

use crate::reassemble::memory;
use crate::support::check_cases::{Files, change_half, paths, set_word, word};
use crate::support::reports::check::Finding;
use crate::support::server::{self, Options, Server};
use crate::support::verbs::inspect;

/// The columns of the tables, as `--columns` takes them.
pub(crate) const COLUMNS: &str = "id int4, dom_js jsonb, dom_num numeric, ints int4[], texts text[], nums numeric[], \
                 grid int4[], kv hstore, words tsvector, query tsquery, pair pair(-1,d), \
                 r4 int4range, rn numrange, mood mood(4,i), ip inet, net cidr, bits varbit, \
                 ci citext, tree ltree, mr int4multirange, doc json, doc_xml xml, path path, poly polygon, \
                 big int4[]";

/// What the columns' types need.
pub(crate) const BEFORE: &str =
    "CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE DOMAIN dom_js AS jsonb; CREATE DOMAIN dom_num AS numeric CHECK (VALUE > 0);
    CREATE TYPE pair AS (a int4, b text, c text); CREATE TYPE mood AS ENUM ('sad', 'glad');";

/// Makes a table with three rows.
pub(crate) fn create(table: &str) -> String {
    format!(
                "CREATE TABLE {table} (id int4, dom_js dom_js, dom_num dom_num, ints int4[],
                     texts text[], nums numeric[], grid int4[], kv hstore, words tsvector,
                     query tsquery, pair pair, r4 int4range, rn numrange, mood mood, ip inet, net cidr,
                     bits varbit, ci citext, tree ltree, mr int4multirange, doc json, doc_xml xml, path path,
                     poly polygon, big int4[]);
                 ALTER TABLE {table} ALTER big SET STORAGE external;
                 INSERT INTO {table} SELECT i, '{{\"a\": [1, \"x\"]}}', 12345.678, '{{1,2,3}}',
                     '{{one,NULL,three}}', '{{1.5,2.25}}', '{{{{1,2}},{{3,4}}}}', 'k1=>v1, k2=>NULL',
                     'cat:1A dog:2,5', 'cat & !dog', ROW(7, 'seven', 'x')::pair, '[1,9)', '(1.5,2.5]', 'glad',
                     '10.1.2.3/24', '10.0.0.0/8', B'1011001', 'Größe', 'top.mid.leaf', '{{[1,3),[5,9)}}',
                     '{{\"a\": 1}}', '<a>b</a>', '((0,0),(1,1))', '((0,0),(1,0),(1,1))',
                     (SELECT array_agg(g) FROM generate_series(1, 1200) AS g)
                 FROM generate_series(1, 3) AS i;
                 VACUUM (FREEZE) {table};"
    )
}

/// The column that is damaged, how, and the change of the files.
pub(crate) type Kind = (&'static str, &'static str, Box<dyn Fn(&mut Files)>);

fn kind(column: &'static str, name: &'static str, change: impl Fn(&mut Files) + 'static) -> Kind {
    (column, name, Box::new(change))
}

/// The content of a value in the row, from its first byte behind the length word on.
pub(crate) fn kinds() -> Vec<Kind> {
    type Change = fn(&mut [u8]);
    let of = |column: &'static str, name: &'static str, change: Change| {
        kind(column, name, move |files: &mut Files| {
            let at = files.value_of(COLUMNS, 2, column).file;
            let head = files.heap[at];
            let (from, end) = if head & 1 == 1 {
                (at + 1, at + usize::from(head >> 1))
            } else {
                (at + 4, at + (word(&files.heap, at) >> 2) as usize)
            };
            change(&mut files.heap[from..end]);
        })
    };
    vec![
        of("dom_js", "kind of container", |c| c[3] = 0x70),
        of("dom_js", "count", |c| c[0] = 200),
        of("dom_num", "digit", |c| c[3] = 0xFF),
        of("ints", "dimensions 7", |c| c[0] = 7),
        of("ints", "dimensions negative", |c| c[3] = 0xFF),
        of("ints", "element type text", |c| c[8] = 25),
        of("ints", "element type of nothing", |c| set_word(c, 8, 999_999)),
        of("ints", "element type 0", |c| set_word(c, 8, 0)),
        of("ints", "more elements", |c| set_word(c, 12, 4)),
        of("ints", "fewer elements", |c| set_word(c, 12, 2)),
        of("ints", "a billion elements", |c| set_word(c, 12, 1_000_000_000)),
        of("ints", "lower bound", |c| set_word(c, 16, i32::MAX as u32)),
        of("ints", "data offset", |c| set_word(c, 4, 3)),
        of("ints", "data offset beyond the end", |c| set_word(c, 4, 4000)),
        of("ints", "zeros", |c| c.fill(0)),
        of("texts", "element type int4", |c| c[8] = 23),
        of("texts", "element longer", |c| {
            let at = c.windows(3).position(|w| w == b"one").unwrap() - 4;
            set_word(c, at, 4000 << 2);
        }),
        of("texts", "element compressed", |c| {
            let at = c.windows(3).position(|w| w == b"one").unwrap() - 4;
            c[at] |= 2;
        }),
        of("texts", "element not UTF-8", |c| {
            let at = c.windows(3).position(|w| w == b"one").unwrap();
            c[at] = 0xFF;
        }),
        of("texts", "a NULL less", |c| {
            c[20] = 0b111;
        }),
        of("nums", "digit", |c| {
            let end = c.len();
            c[end - 3..].fill(0xFF);
        }),
        of("grid", "more columns", |c| set_word(c, 16, 9)),
        of("grid", "no rows", |c| set_word(c, 12, 0)),
        of("kv", "count", |c| c[0] = 60),
        of("kv", "no new format", |c| c[3] &= !0x80),
        of("kv", "offset of a key", |c| set_word(c, 4, 0x8000_1000)),
        of("kv", "offset of a value", |c| set_word(c, 8, 0x0000_0001)),
        of("kv", "key not UTF-8", |c| {
            let at = c.windows(2).position(|w| w == b"k1").unwrap();
            c[at] = 0xFF;
        }),
        of("words", "count", |c| c[0] = 200),
        of("words", "offset of a word", |c| set_word(c, 4, 0xFFFF_F007)),
        of("words", "positions", |c| {
            let end = c.len();
            c[end - 6..end - 4].copy_from_slice(&[0xFF, 0xFF]);
        }),
        of("words", "word not UTF-8", |c| {
            let at = c.windows(3).position(|w| w == b"cat").unwrap();
            c[at] = 0xFF;
        }),
        of("query", "count", |c| c[0] = 200),
        of("query", "operator", |c| c[5] = 99),
        of("pair", "field longer", |c| {
            let at = c.windows(5).position(|w| w == b"seven").unwrap() - 1;
            c[at] = 0xFF;
        }),
        of("pair", "type of nothing", |c| set_word(c, 4, 999_999)),
        of("pair", "t_hoff", |c| c[18] = 200),
        of("pair", "attributes", |c| change_half(c, 14, |mask| mask + 40)),
        of("r4", "flags", |c| {
            let end = c.len();
            c[end - 1] = 0xFF;
        }),
        of("r4", "type of nothing", |c| set_word(c, 0, 999_999)),
        of("rn", "bound's length", |c| c[4] = 0xFF),
        of("rn", "flags without a bound", |c| {
            let end = c.len();
            c[end - 1] |= 0x08;
        }),
        of("ip", "family", |c| c[0] = 9),
        of("ip", "bits", |c| c[1] = 200),
        of("net", "bits behind the mask", |c| c[4] = 7),
        of("bits", "length", |c| set_word(c, 0, 1000)),
        of("bits", "bits behind the end", |c| {
            let end = c.len();
            c[end - 1] |= 1;
        }),
        of("bits", "length negative", |c| set_word(c, 0, 0x8000_0000)),
        of("ci", "not UTF-8", |c| c[0] = 0xFF),
        of("tree", "levels", |c| c[0] = 200),
        of("tree", "label's length", |c| c[4] = 200),
        of("mr", "count", |c| set_word(c, 4, 9000)),
        of("mr", "type of nothing", |c| set_word(c, 0, 999_999)),
        of("doc", "not UTF-8", |c| c[2] = 0xFF),
        of("doc_xml", "not UTF-8", |c| c[1] = 0xFF),
        of("path", "points", |c| set_word(c, 0, 500)),
        of("path", "points negative", |c| set_word(c, 0, 0x8000_0000)),
        of("poly", "points", |c| set_word(c, 0, 500)),
        kind("mood", "label of nothing", |files| {
            let at = files.value_of(COLUMNS, 2, "mood").file;
            set_word(&mut files.heap, at, 999_999);
        }),
        kind("big", "element type text", |files| {
            let chunk = files.chunk_of(COLUMNS, 2, "big", 0).tuple;
            files.toast[chunk + 36 + 8] = 25;
        }),
    ]
}

#[test]
fn contents_that_the_server_cannot_read_or_reads_wrong_are_found() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.create_database("check_contents");
    let all = kinds();
    let name = |at: usize| format!("damaged_{at}");
    let mut sql = format!("CREATE EXTENSION pageinspect; {BEFORE} {}", create("sound"));
    (0..all.len()).for_each(|at| sql += &create(&name(at)));
    database.psql(&(sql + "CHECKPOINT;"));
    let places: Vec<_> = (0..all.len()).map(|at| paths(&database, &name(at))).collect();
    let base = database.name().to_owned();
    std::mem::forget(database);
    server.stop();
    for ((.., change), [heap, toast]) in all.iter().zip(&places) {
        let read = |path| std::fs::read(path).unwrap();
        let mut files = Files { heap: read(heap), toast: read(toast) };
        change(&mut files);
        std::fs::write(heap, files.heap).unwrap();
        std::fs::write(toast, files.toast).unwrap();
    }
    server.start_again();
    let database = server.database(&base);
    let check = |table| inspect(&database, &["check", "--deep", "--format", "jsonl", table]);
    let found = check("sound");
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    let found = check("damaged_*");
    assert_eq!(found.code, Some(5), "{}", found.stderr);
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut codes = BTreeSet::new();
    for line in found.lines::<Finding>() {
        assert_eq!((line.block, line.item), (Some(0), Some(2)), "{line}");
        codes.insert(line.code.clone());
        let column = line.column.clone().unwrap_or_default();
        seen.entry(line.relation.replace("public.", "")).or_default().push(column);
    }
    let expected = ["TC070", "TC071", "TC072", "TC073", "TC074"];
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), expected);
    let wrong: Vec<String> = all
        .iter()
        .enumerate()
        .filter(|(at, (column, ..))| seen.get(&name(*at)) != Some(&vec![(*column).to_owned()]))
        .map(|(at, (column, what, _))| format!("{column}: {what}: {:?}", seen.get(&name(at))))
        .collect();
    assert_eq!(wrong, [""; 0]);
    // values are read from the server only where its functions do not crash
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("left");
    let dir = dir.to_str().unwrap();
    let found = inspect(&database, &["check", "--deep", "damaged_*", "--salvage", dir]);
    assert_eq!(found.code, Some(5), "{}", found.stderr);
}

/// Contents are looked at as a whole, so that the bytes of one value are held, and no copy of them.
#[test]
fn a_long_value_is_held_once() {
    let database = server::with_pageinspect("check_long");
    database.psql(
        "CREATE TABLE plain (v text); ALTER TABLE plain ALTER v SET STORAGE external;
         CREATE TABLE small (v text COMPRESSION pglz);
         INSERT INTO plain SELECT repeat(md5('1') || '\u{e4}', 3 * 1024 * 1024);
         INSERT INTO small SELECT repeat(md5('2') || '\u{e4}', 3 * 1024 * 1024);
         VACUUM (FREEZE) plain, small; CHECKPOINT",
    );
    let bytes = 3 * 34 * 1024 * 1024;
    let temp = tempfile::tempdir().unwrap();
    let files = [("heap", "'plain'"), ("toast", "reltoastrelid")].map(|(name, of)| {
        let of = format!("SELECT pg_relation_filepath({of}) FROM pg_class WHERE relname = 'plain'");
        let copy = temp.path().join(name);
        std::fs::copy(database.server().data_dir().join(database.psql(&of)), &copy).unwrap();
        copy.to_str().unwrap().to_owned()
    });
    let url = database.url();
    let [heap, toast] = files.each_ref().map(String::as_str);
    let of_files = ["--relation-file", heap, "--toast-file", toast, "--columns", "v text"];
    for arguments in [&["plain", "-d", &url][..], &["small", "-d", &url], &of_files] {
        let (most, shown) = memory(&[&["check", "--deep"], arguments].concat());
        assert!(shown.contains("1 row, 1 value out of line"), "{shown}");
        assert!(shown.contains("; contents checked"), "{shown}");
        assert!(most > bytes && most < bytes + bytes / 10 + (45 << 20), "{arguments:?}: {most}");
    }
}
