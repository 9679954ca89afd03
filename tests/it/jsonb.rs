//! The text of `jsonb` and `numeric` read from a table's files, against what the server prints.

use crate::server;
use crate::table_files::{PAGE, TableFiles};
use md5::{Digest, Md5};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write as _;
use toastctl::disk::desc::TupleDesc;
use toastctl::disk::numeric::Numeric;
use toastctl::disk::walk::Datum;
use toastctl::model::toaster::catalog::Toasters;
use toastctl::model::toaster::reassemble::{Logical, Reassembler};
use toastctl::model::visibility::HintBits;
use toastctl::offline::columns::parse_list;
use toastctl::offline::toastfile::ToastFile;

/// Calls `each` with the second column of every tuple, put together, and the first, an `int4`.
pub(crate) fn read_table(
    files: &TableFiles,
    desc: &TupleDesc,
    mut each: impl FnMut(i32, &Logical<'_>, &mut Reassembler<'_, ToastFile<HintBits>>),
) {
    let toasters = Toasters::by_bytes();
    files.each_tuple(desc, |datums, store, order| {
        let [Datum::Fixed(id), Datum::Varlena(value)] = *datums else { panic!("{datums:?}") };
        let id = i32::from_le_bytes(id.try_into().unwrap());
        let mut reassembler = Reassembler { store, toasters: &toasters, page: PAGE, order };
        let value = reassembler.value(&value).unwrap();
        each(id, &value, &mut reassembler);
    });
}

fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// A random JSON number: short and long, with and without point and exponent.
fn number(random: &mut StdRng, out: &mut String) {
    if random.random_ratio(1, 2) {
        out.push('-');
    }
    let count = match random.random_range(0..50) {
        0 => 1000,
        1..10 => random.random_range(5..60),
        _ => random.random_range(1..5),
    };
    if random.random_ratio(1, 8) {
        out.push('0');
    } else {
        // JSON has no leading zeros
        out.push(char::from(b'1' + random.random_range(0..9u8)));
        for _ in 1..count {
            out.push(char::from(b'0' + random.random_range(0..10u8)));
        }
    }
    if random.random_ratio(1, 3) {
        out.push('.');
        let length = if random.random_ratio(1, 40) { 1000 } else { random.random_range(1..12) };
        for _ in 0..length {
            out.push(char::from(b'0' + random.random_range(0..10u8)));
        }
    }
    if random.random_ratio(1, 6) {
        let exponent = match random.random_range(0..10) {
            0 => random.random_range(-900..900),
            _ => random.random_range(-12..12),
        };
        write!(out, "e{exponent}").unwrap();
    }
}

/// A random JSON string of all that a string can hold, control characters and quotes escaped.
pub(crate) fn string(random: &mut StdRng, out: &mut String) {
    out.push('"');
    let length = match random.random_range(0..200) {
        0 => random.random_range(200..4000),
        1..30 => 0,
        _ => random.random_range(1..12),
    };
    for _ in 0..length {
        match random.random_range(0..12) {
            0 => write!(out, "\\u{:04x}", random.random_range(1..0x20)).unwrap(),
            1 => out.push_str(
                ["\\\"", "\\\\", "\\/", "\\n", "\\t", "\\b", "\\f", "\\r"]
                    [random.random_range(0..8)],
            ),
            2 => out.push(
                ['ä', 'ß', '€', '\u{7f}', '\u{80}', '😀', '\u{2028}', '\u{ffff}']
                    [random.random_range(0..8)],
            ),
            3 => out.push_str("\\ud83d\\ude00"),
            _ => out.push(char::from(random.random_range(b'a'..=b'z'))),
        }
    }
    out.push('"');
}

pub(crate) fn value(random: &mut StdRng, depth: usize, out: &mut String) {
    let kinds = if depth == 0 { 6 } else { 10 };
    match random.random_range(0..kinds) {
        0 => out.push_str("null"),
        1 => out.push_str(if random.random() { "true" } else { "false" }),
        2 | 3 => number(random, out),
        4 | 5 => string(random, out),
        kind => {
            let object = kind >= 8;
            let count = match random.random_range(0..300) {
                0 => random.random_range(30..400),
                1..40 => 0,
                _ => random.random_range(1..5),
            };
            out.push(if object { '{' } else { '[' });
            // wide ones are flat
            let inner = if count > 10 { 0 } else { depth - 1 };
            for index in 0..count {
                if index > 0 {
                    out.push(',');
                }
                if object {
                    string(random, out);
                    out.push(':');
                }
                value(random, inner, out);
            }
            out.push(if object { '}' } else { ']' });
        }
    }
}

fn document(random: &mut StdRng, id: usize) -> String {
    let mut out = String::new();
    if id % 5_000 == 7 {
        // deep: nested arrays and objects by turns
        let depth = random.random_range(500..2_000);
        for level in 0..depth {
            out.push_str(if level % 2 == 0 { "[1," } else { "{\"k\":" });
        }
        out.push('3');
        for level in (0..depth).rev() {
            out.push(if level % 2 == 0 { ']' } else { '}' });
        }
    } else {
        let depth = random.random_range(0..7);
        value(random, depth, &mut out);
    }
    out
}

#[test]
fn a_hundred_thousand_random_documents_have_the_servers_text() {
    const DOCUMENTS: usize = 100_000;
    let database = server::shared().create_database("jsonb");
    let mut random = StdRng::seed_from_u64(20);
    let mut script = String::from(
        "CREATE TABLE documents (id int, js jsonb);
         ALTER TABLE documents ALTER js SET STORAGE external;
         COPY documents FROM STDIN;\n",
    );
    for id in 0..DOCUMENTS {
        if id == DOCUMENTS / 2 {
            script.push_str(
                "\\.\nALTER TABLE documents ALTER js SET STORAGE extended;
                 COPY documents FROM STDIN;\n",
            );
        }
        let document = document(&mut random, id);
        writeln!(script, "{id}\t{}", document.replace('\\', "\\\\")).unwrap();
    }
    script.push_str("\\.\n");
    database.psql(&script);
    let expected: Vec<String> = database
        .psql("SELECT md5(js::text) FROM documents ORDER BY id")
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(expected.len(), DOCUMENTS);
    let desc = parse_list("id int4, js jsonb").unwrap();
    let (mut compared, mut longest) = (0, 0);
    read_table(&TableFiles::of(&database, "documents"), &desc, |id, value, reassembler| {
        let mut text = Vec::new();
        reassembler.jsonb_text(value, &mut text).unwrap();
        if md5(&text) != expected[id as usize] {
            let shown = database.psql(&format!("SELECT js::text FROM documents WHERE id = {id}"));
            assert_eq!(String::from_utf8(text).unwrap(), shown, "document {id}");
            panic!("document {id}");
        }
        compared += 1;
        longest = longest.max(text.len());
    });
    assert_eq!(compared, DOCUMENTS);
    assert!(longest > 30_000, "{longest}");
}

#[test]
fn numerics_have_the_servers_text() {
    let database = server::shared().create_database("numeric");
    database.psql(
        "CREATE TABLE numbers (id int, n numeric);
         INSERT INTO numbers SELECT row_number() OVER (), n::numeric FROM unnest(array[
             'NaN', 'Infinity', '-Infinity', '0', '-0', '0.000', '1', '-1', '9999', '10000',
             '0.0001', '-0.00010', '1e131071', '-1e-16383', '123456789.000010000', '1e-20',
             '0.5', '12345e3', '99999999999999999999999999.99999999999']) n;
         INSERT INTO numbers SELECT 100 + i, ((random() - 0.5)::numeric) ^ 3
             * (10::numeric) ^ ((i % 90) - 40) FROM generate_series(1, 2000) i;
         INSERT INTO numbers SELECT 5000 + i,
             repeat('98701', i * 7)::numeric / (10::numeric) ^ i FROM generate_series(1, 200) i",
    );
    let shown = database.psql("SELECT id, md5(n::text) FROM numbers");
    let expected: std::collections::HashMap<i32, &str> = shown
        .lines()
        .map(|line| line.split_once('|').unwrap())
        .map(|(id, md5)| (id.parse().unwrap(), md5))
        .collect();
    let desc = parse_list("id int4, n numeric").unwrap();
    let mut compared = 0;
    read_table(&TableFiles::of(&database, "numbers"), &desc, |id, value, reassembler| {
        let mut text = Vec::new();
        let number = Numeric::parse(value.content().unwrap(), reassembler.order).unwrap();
        number.write_text(&mut text);
        assert_eq!(md5(&text), expected[&id], "{}", String::from_utf8_lossy(&text));
        compared += 1;
    });
    assert_eq!(compared, 2219);
}
