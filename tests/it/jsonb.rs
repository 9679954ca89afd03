//! The text of `jsonb` and `numeric` read from a table's files, against what the server prints.

use crate::support::documents::{read_table, value};
use crate::support::server;
use crate::support::table_files::TableFiles;
use md5::{Digest, Md5};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write as _;
use toast_format::disk::columns::parse_list;
use toast_format::disk::numeric::Numeric;

fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
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
