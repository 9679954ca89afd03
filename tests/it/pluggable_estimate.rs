//! What `advise-threshold` says of `jsonb_toaster`, against what a server with it has stored of the same
//! documents.

use crate::support::command::{run, toastctl};
use crate::support::server;
use crate::support::standin;
use crate::support::verbs::{advise, advised};

/// Rows of an average value, as a server stores them.
#[derive(Debug)]
struct Stored {
    /// Values out of the ordinary, or out of line.
    values: u64,
    /// Those of them with a custom pointer.
    custom: u64,
    /// In the row.
    inline: f64,
    /// In the TOAST relation.
    toast: f64,
}

/// What the capture's server has stored.
fn stored(dir: &std::path::Path) -> Stored {
    let mut command = toastctl();
    command.current_dir(dir).args(["inspect", "--relation-file", "heap.bin", "--columns"]);
    command.args(["@meta.json", "--toast-file", "toast.bin", "--format", "json"]);
    let report = run(&mut command).exits(0).relation();
    let column = report.column("js");
    let external = || column.forms.iter().filter(|form| form.form.is_external());
    let custom: u64 = column.toasters.iter().map(|toaster| toaster.values).sum();
    let values = custom + external().map(|form| form.all.values.estimate).sum::<u64>();
    let inline = column.toasters.iter().map(|toaster| toaster.inline_bytes).sum::<u64>()
        + external().map(|form| form.all.pointer_bytes.estimate).sum::<u64>();
    // a chunk's tuple: header, chunk_id, chunk_seq, varlena header; and its line pointer
    let tuple = |data: u64| (24 + 12 + data).next_multiple_of(8) + 4;
    let meta = standin::meta(dir);
    let chunks = |value: &standin::Value| {
        let count = value.chunks;
        // with the varlena headers
        let rest = value.stored_bytes - count * 4 - (count - 1) * 1996;
        (count - 1) * tuple(1996) + tuple(rest)
    };
    let toast: u64 = meta.toast_relations[0].values.iter().map(chunks).sum();
    let average = |sum: u64| sum as f64 / values as f64;
    Stored { values, custom, inline: average(inline), toast: average(toast) }
}

#[test]
fn documents_are_foretold_as_a_server_with_jsonb_toaster_stores_them() {
    let database = server::shared().with_pageinspect("foretold");
    for table in [
        "json_talk",
        "json_talk_random",
        "json_midkeys",
        "json_nested",
        "json_strings",
        "json_array_small",
    ] {
        let dir = standin::capture("jsonb_toaster", table);
        let meta = standin::meta(&dir);
        for sql in meta.sql_prelude.iter().chain(&meta.sql) {
            // the same documents, as a stock server stores them
            let sql = sql.replace("toaster jsonb_toaster", "");
            database.psql(&sql.replace("create function", "create or replace function"));
        }
        let report = advised(&database, &[table, "-c", "js", "--sample", "100%"]);
        let estimate = &report.pluggable[0];
        let real = stored(&dir);
        assert_eq!(estimate.toaster, "jsonb_toaster");
        assert_eq!(estimate.values, real.values, "{table}");
        assert_eq!(estimate.divided_values, real.custom, "{table}");
        let close = |key: &str, foretold: f64, real: f64| {
            assert!(
                (foretold - real).abs() <= (real * 0.015).max(4.0),
                "{table}, {key}: {foretold} foretold, {real} stored"
            );
        };
        close("inline_bytes_per_value", estimate.inline_bytes_per_value, real.inline);
        close("toast_bytes_per_value", estimate.toast_bytes_per_value, real.toast);
    }
}

/// Also where no size asks for contents: the values are stored by the only method that is compared.
#[test]
fn an_estimate_needs_no_second_method() {
    let database = server::shared().create_database("onemethod");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, js jsonb COMPRESSION pglz);
         INSERT INTO t SELECT i, jsonb_build_object('id', i) || (SELECT jsonb_object_agg('k' || k,
             (SELECT jsonb_agg(repeat(md5(i || '.' || k || '.' || g), 3)) FROM generate_series(1, 40) g))
             FROM generate_series(1, 8) k) FROM generate_series(1, 30) i",
    );
    let words = ["t", "-c", "js", "--method", "pglz", "--sample", "100%"];
    let report = advised(&database, &words);
    let estimate = &report.pluggable[0];
    assert_eq!((estimate.values, estimate.divided_values), (30, 30));
}

/// Root arrays are read by chunk, without the index; objects in more pieces than before.
#[test]
fn whole_documents_are_said_to_become_more_expensive() {
    let database = server::shared().create_database("dearer");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, js jsonb);
         INSERT INTO t SELECT i, jsonb_build_object('id', i, 'note', md5(i::text)) ||
             (SELECT jsonb_object_agg('k' || k, (SELECT jsonb_agg(md5(i || '.' || k || '.' || g))
                                                 FROM generate_series(1, 40) g))
              FROM generate_series(1, 8) k) FROM generate_series(1, 100) i;
         CREATE TABLE a (id int, js jsonb);
         INSERT INTO a SELECT i, (SELECT jsonb_agg(md5(i || '.' || g)) FROM generate_series(1, 250) g)
         FROM generate_series(1, 100) i",
    );
    let words = |table| [table, "-c", "js", "--sample", "100%"];
    let objects = advised(&database, &words("t"));
    let figures = &objects.pluggable[0];
    let (whole, today) = (figures.whole_read_buffers, figures.whole_read_buffers_today);
    assert!(whole > today * 2.0, "{objects}");
    assert!(figures.read_buffers < today, "{objects}");
    // who has no pluggable TOAST reads nothing of it
    let text = advise(&database, &[&words("t")[..], &["--details"]].concat()).ok();
    assert!(!text.contains("jsonb_toaster"), "{text}");

    let arrays = advised(&database, &words("a"));
    let figures = &arrays.pluggable[0];
    assert_eq!(figures.read_buffers, 1.0, "{arrays}");
    assert_eq!(figures.divided_values, 100);
    // a directory of about 5 chunks
    assert!((90.0..120.0).contains(&figures.inline_bytes_per_value), "{arrays}");
}
