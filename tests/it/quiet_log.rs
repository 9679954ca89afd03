//! A healthy server's log has no line of ours that an alarm would react to, whatever verb is used and by whom.

use crate::support::command::{run, toastctl};
use crate::support::holder::Holder;
use crate::support::retoast::refused;
use crate::support::server::{Options, Server};

const TABLES: &str = "
    CREATE TABLE docs (id int PRIMARY KEY, kind text, doc jsonb, body text);
    CREATE INDEX docs_doc ON docs USING gin (doc);
    INSERT INTO docs SELECT i, 'kind ' || i % 7,
        jsonb_build_object('id', i, 'name', 'name ' || i, 'text', (SELECT string_agg(md5((i * j)::text), ' ')
            FROM generate_series(1, i % 150) AS j)),
        (SELECT string_agg(md5((i + j)::text), ' ') FROM generate_series(1, i % 90) AS j)
    FROM generate_series(1, 2000) AS i;
    DELETE FROM docs WHERE id % 5 = 0;
    CREATE MATERIALIZED VIEW summary AS SELECT id, doc, body FROM docs;
    CREATE TABLE parts (id int, body text) PARTITION BY RANGE (id);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (500);
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (500) TO (1000);
    INSERT INTO parts SELECT id, body FROM docs WHERE id < 1000;
    CREATE UNLOGGED TABLE unlogged_docs AS SELECT * FROM docs LIMIT 100;
    CREATE TABLE plain (id int, price numeric);
    CREATE DOMAIN labels AS text[];
    CREATE TABLE labelled AS SELECT id, ARRAY[body, kind]::labels AS tags FROM docs;
    CREATE TABLE empty (id int, body text);
    CREATE VIEW shown AS SELECT id, body FROM docs;
    ANALYZE;";

/// Each verb as its reader or planner.
const READING: [&[&str]; 18] = [
    &["inspect"],
    &["inspect", "docs"],
    &["inspect", "docs", "--explain"],
    &["inspect", "docs", "--policy", "ratio=0.5"],
    &["inspect", "docs", "--sample", "3 blocks"],
    &["inspect", "summary"],
    &["inspect", "parts"],
    &["check"],
    &["check", "--deep", "docs", "summary", "unlogged_docs"],
    &["keys", "docs", "-c", "doc"],
    &["value", "docs.body"],
    &["value", "summary.body"],
    &["advise-threshold", "docs"],
    &["advise-threshold", "parts"],
    &["advise-threshold", "labelled"],
    &["retoast", "docs", "--toaster", "external", "--dry-run"],
    &["compact", "docs", "--dry-run"],
    &["reindex", "docs", "--dry-run"],
];

const WRITING: [&[&str]; 4] = [
    &["retoast", "docs", "-c", "body", "--toaster", "external"],
    &["retoast", "parts", "-c", "body", "--toaster", "external"],
    &["compact", "docs"],
    &["reindex", "docs", "--indexes=all"],
];

/// Of a table that the user may not read.
const REFUSED: [&[&str]; 4] = [
    &["inspect", "secret"],
    &["keys", "secret", "-c", "doc"],
    &["value", "secret.body"],
    &["advise-threshold", "secret"],
];

/// Whether an alarm would react to the line.
fn is_loud(line: &str) -> bool {
    ["ERROR:", "WARNING:", "FATAL:", "PANIC:"].iter().any(|level| line.contains(level))
}

#[test]
fn no_verb_leaves_an_error_or_a_warning_in_a_healthy_servers_log() {
    let server = Server::start(&Options::default().set("autovacuum", "off").set("fsync", "off"));
    let database = server.create_database("quiet_log");
    database.psql(TABLES);
    let owner = database.create_owner("quiet_owner");
    let reader = database.create_role("quiet_reader");
    database.psql(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}"));
    let mut loud = Vec::new();
    let mut try_all = |who: &str, url: &str, verbs: &[&[&str]]| {
        for arguments in verbs {
            let before = server.log().len();
            let (verb, rest) = arguments.split_first().unwrap();
            let done = run(toastctl().args([verb, "-d", url]).args(rest));
            let log = server.log();
            let lines = log[before..].lines().filter(|line| is_loud(line));
            loud.extend(lines.map(|line| {
                format!("{who}, {} (exit {:?}): {line}", arguments.join(" "), done.code)
            }));
        }
    };
    try_all("superuser without pageinspect", &database.url(), &READING);
    try_all("reader", &database.url_of(&reader), &READING);
    database.psql("CREATE TABLE secret AS SELECT * FROM docs; ANALYZE secret");
    try_all("reader", &database.url_of(&reader), &REFUSED);
    database.psql(&format!("GRANT SELECT (id, doc) ON secret TO {reader}"));
    try_all("reader of two columns", &database.url_of(&reader), &REFUSED);
    try_all("reader of two columns", &database.url_of(&reader), &[&["inspect"]]);
    database.psql("CREATE EXTENSION pageinspect");
    try_all("superuser", &database.url(), &READING);
    for table in
        ["TABLE docs", "TABLE parts", "TABLE parts_1", "TABLE parts_2", "MATERIALIZED VIEW summary"]
    {
        database.psql(&format!("ALTER {table} OWNER TO {}", &owner));
    }
    try_all("reader of another's tables", &database.url_of(&reader), &READING);
    try_all("owner", &database.url_of(&owner), &READING);
    try_all("owner", &database.url_of(&owner), &WRITING);
    try_all("superuser", &database.url(), &WRITING);
    database.psql("DROP EXTENSION pageinspect");
    try_all("superuser without pageinspect", &database.url(), &WRITING);
    assert!(loud.is_empty(), "{loud:#?}");
}

/// A look that is given up in the middle leaves no ROLLBACK behind for a transaction that has ended.
#[test]
fn an_overview_whose_time_is_up_leaves_no_warning_in_the_log() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("short_of_time");
    let tables: String = (1..=8)
        .map(|n| {
            let filled = TABLES.split_once("CREATE INDEX").unwrap().1.split_once(';').unwrap().1;
            let filled = filled.split_once("CREATE MATERIALIZED").unwrap().0;
            let made = "CREATE TABLE docs (id int PRIMARY KEY, kind text, doc jsonb, body text);
                ALTER TABLE docs ALTER body SET STORAGE external;";
            format!("{made}{filled}").replace("docs", &format!("docs_{n}"))
        })
        .collect();
    database.psql(&format!("{tables} ANALYZE"));
    for tenths in 1..=30 {
        let time = format!("{}ms", tenths * 40);
        run(toastctl().args(["inspect", "-d", &database.url(), "--max-time", &time]));
    }
    let log = server.log();
    let loud: Vec<&str> = log.lines().filter(|line| is_loud(line)).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

/// Every attempt that a lock timeout ends is an error in the log, so it is asked who has the lock instead.
#[test]
fn a_lock_of_another_session_is_waited_for_without_an_error_for_each_attempt() {
    let server = Server::start(&Options::default().set("autovacuum", "off"));
    let database = server.with_pageinspect("patient");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 3000) AS i;
         DELETE FROM t WHERE id % 3 > 0; VACUUM t",
    );
    let convert: &[&str] = &["retoast", "t", "-c", "v", "--toaster", "lz4"];
    let compact: &[&str] = &["compact", "t"];
    for (lock, arguments) in [("SHARE", convert), ("SHARE", compact), ("ACCESS EXCLUSIVE", compact)]
    {
        let _holder = Holder::of(&database, &format!("LOCK TABLE t IN {lock} MODE"));
        let before = server.log().len();
        let (verb, rest) = arguments.split_first().unwrap();
        let waited = run(toastctl()
            .args([verb, "-d", &database.url()])
            .args(rest)
            .args(["--set", "max-wait=4s"]));
        refused(&waited, 4, "max-wait");
        let log = server.log();
        let timeouts: Vec<&str> =
            log[before..].lines().filter(|line| line.contains("due to lock timeout")).collect();
        assert!(timeouts.len() <= 2, "{lock}, {verb}: {timeouts:#?}");
    }
}
