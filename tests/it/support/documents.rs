//! Random JSON documents, and documents read from a table's files.

use std::fmt::Write as _;

use rand::RngExt;
use rand::rngs::StdRng;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::walk::Datum;
use toast_format::model::toaster::catalog::Toasters;
use toast_format::model::toaster::reassemble::{Logical, Reassembler};
use toast_format::model::visibility::HintBits;
use toastctl::offline::toastfile::ToastFile;

use crate::support::table_files::{PAGE, TableFiles};

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
