//! The last line of `retoast`: what VACUUM FULL would return is what it returns.

use crate::support::command::{run, toastctl};
use crate::support::retoast::{Session, done, retoast};
use crate::support::server::{self, Database, Options, Server};

const NOISE: &str =
    "CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    $$SELECT left(string_agg(md5(seed || '/' || i), ''), n) FROM generate_series(1, n / 32 + 1) AS i$$;";

/// Bytes of heap and TOAST relation.
fn files(database: &Database<'_>) -> i64 {
    let sql = "SELECT sum(pg_relation_size(o)) FROM pg_class c,
        unnest(ARRAY[c.oid, c.reltoastrelid]) AS o WHERE c.oid = 't'::regclass";
    database.psql(sql).parse().unwrap()
}

/// Tables on which averages mislead: what is made of `t (id, v, w)`, whose `v` is to be stored out of line
/// uncompressed, and whether nothing is left open of it.
const SHAPES: [(&str, &str, bool); 13] = [
    (
        "a byte beyond a chunk",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 1996 * (1 + i % 3) + 1), NULL FROM generate_series(1, 900) i",
        true,
    ),
    (
        "two chunks and a half",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 5000), NULL FROM generate_series(1, 900) i",
        true,
    ),
    (
        "rows of which two leave room on a page that a third does not fit",
        "ALTER TABLE t ALTER v SET STORAGE external, ALTER w SET STORAGE main;
         INSERT INTO t SELECT i, NULL, noise(i, 2800) FROM generate_series(1, 900) i",
        false,
    ),
    (
        "rows of more than half a page, and short ones that the free space map has put between them",
        "ALTER TABLE t ALTER v SET STORAGE external, ALTER w SET STORAGE main;
         INSERT INTO t SELECT i, NULL, noise(i, 4500) FROM generate_series(1, 300) i;
         INSERT INTO t SELECT i, NULL, noise(i, 700 + i % 900) FROM generate_series(301, 900) i",
        false,
    ),
    (
        "pages to be filled by half",
        "ALTER TABLE t ALTER v SET STORAGE external; ALTER TABLE t SET (fillfactor = 50);
         INSERT INTO t SELECT i, NULL, noise(i, 200) FROM generate_series(1, 5000) i",
        true,
    ),
    (
        "pages that were full before they were to be filled by half",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, NULL, noise(i, 200) FROM generate_series(1, 5000) i;
         ALTER TABLE t SET (fillfactor = 50)",
        true,
    ),
    (
        "values that VACUUM FULL would compress",
        "ALTER TABLE t ALTER v SET STORAGE external, ALTER w SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 3000), repeat(noise(i, 40), 150) FROM generate_series(1, 600) i;
         ALTER TABLE t ALTER w SET STORAGE extended",
        false,
    ),
    (
        "values in the row that VACUUM FULL would move out of it",
        "ALTER TABLE t ALTER v SET STORAGE external; ALTER TABLE t SET (toast_tuple_target = 8160);
         INSERT INTO t SELECT i, NULL, noise(i, 2500) FROM generate_series(1, 900) i;
         ALTER TABLE t SET (toast_tuple_target = 128)",
        false,
    ),
    (
        "dropped columns",
        "ALTER TABLE t ALTER v SET STORAGE external; ALTER TABLE t ADD x text, ADD y int;
         ALTER TABLE t ALTER x SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 2500), NULL, noise(i, 3000), i FROM generate_series(1, 600) i;
         ALTER TABLE t DROP x, DROP y",
        true,
    ),
    (
        "half of it deleted",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 900 + i % 4000), NULL FROM generate_series(1, 1200) i;
         DELETE FROM t WHERE hashint4(id) % 2 = 0; VACUUM t",
        true,
    ),
    (
        "nothing in it any more",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 3000), NULL FROM generate_series(1, 300) i; DELETE FROM t",
        true,
    ),
    (
        "more pages than are looked at",
        "ALTER TABLE t ALTER v SET STORAGE external, ALTER w SET STORAGE external;
         INSERT INTO t SELECT i, NULL, left(noise(i, 32), 10) || repeat('x', 190) FROM generate_series(1, 60000) i;
         DELETE FROM t WHERE id % 2 = 0; VACUUM t",
        false,
    ),
    (
        "a column that was added with a value for all rows",
        "ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, NULL, 'x' FROM generate_series(1, 20000) i;
         ALTER TABLE t ADD z text DEFAULT 'so many bytes more', ADD n bigint DEFAULT 7",
        true,
    ),
];

#[test]
fn what_vacuum_full_would_give_back_is_what_it_gives_back() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("net");
    database.psql(NOISE);
    let mut wrong = Vec::new();
    for (name, make, exact) in SHAPES {
        database.psql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, v text, w text); {make}"
        ));
        database.rests();
        let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", "external"]));
        let before = files(&database);
        database.rests();
        database.psql("VACUUM FULL t");
        let gained = before - files(&database);
        let range = table.rewrite_gives.unwrap_or_else(|| panic!("{table}"));
        let (low, high) = (range.low, range.high);
        if !(low..=high).contains(&gained) || exact && low != high {
            wrong.push(format!("{name}: {low} to {high}, in truth {gained}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rows_younger_than_an_open_transaction_are_counted_as_what_they_are() {
    let server = Server::start(&Options::default());
    let other = server.create_database("other");
    let database = server.with_pageinspect("net");
    database.psql(NOISE);
    let _holder =
        Session::start(&other, "holder", "BEGIN; SELECT txid_current(); SELECT pg_sleep(100)");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, noise(i, 900 + i % 4000) FROM generate_series(1, 1200) i;
         DELETE FROM t WHERE id % 3 = 0; VACUUM t",
    );
    let table = done(&retoast(&database, &["t", "-c", "v", "--toaster", "external"]));
    let before = files(&database);
    database.psql("VACUUM FULL t");
    let gained = before - files(&database);
    let range = table.rewrite_gives.unwrap_or_else(|| panic!("{table}"));
    assert_eq!((range.low, range.high), (gained, gained));
}

#[test]
fn from_19_on_repack_is_named_where_it_takes_the_table() {
    if !server::has_major(19) {
        return;
    }
    let server = Server::start(&Options::major(19));
    let database = server.with_pageinspect("net");
    database.psql(NOISE);
    let last = |key: &str| {
        database.psql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int {key}, v text); ALTER TABLE t ALTER v SET STORAGE external;
             INSERT INTO t SELECT i, noise(i, 3000) FROM generate_series(1, 300) i; DELETE FROM t WHERE id % 2 = 0; VACUUM t"
        ));
        let mut command = toastctl();
        command.args(["retoast", "-d", &database.url(), "t", "-c", "v", "--toaster", "external"]);
        run(command.env("COLUMNS", "0")).ok().lines().last().unwrap().to_owned()
    };
    let (concurrently, not) = (last("PRIMARY KEY"), last(""));
    let said = "; REPACK (CONCURRENTLY) or VACUUM FULL would return ";
    assert!(concurrently.contains(said), "{concurrently}");
    assert!(not.contains("; REPACK or VACUUM FULL would return "), "{not}");
    database.rests();
    database.psql("REPACK t");
}
