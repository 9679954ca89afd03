//! The script of `keys --extract` followed to its last step, with the commands that its comments print,
//! and what the migrated table costs then.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::command::{run, scrub};
use crate::support::extract::{Script, extraction, near, sizes};
use crate::support::measured::buffers;
use crate::support::server::{Database, Options, Server};

/// Documents that differ much in width, some of which are out of line; and short rows with them.
const MIXED: &str = "
    CREATE EXTENSION pageinspect;
    CREATE TABLE mixed (n int, doc jsonb, note text);
    ALTER TABLE mixed ALTER doc SET STORAGE external;
    INSERT INTO mixed SELECT i, jsonb_build_object('id', i, 'name', 'name of ' || i, 'hot', md5(i::text),
        'text', (SELECT string_agg(md5((i * j)::text), ' ') FROM generate_series(1, 1 + i * 37 % 70) AS j)),
        CASE WHEN i % 3 = 0 THEN repeat('n', i % 90) END FROM generate_series(1, 4000) AS i;
    CREATE TABLE original AS TABLE mixed";

/// The commands that are printed for the last step.
fn commands(script: &Script, first_word: &str) -> Vec<String> {
    let (_, last) = script.text.split_once("-- 5. ").unwrap();
    let lines = last.lines().filter_map(|line| line.strip_prefix("--   "));
    let commands = lines.filter_map(|line| line.find(first_word).map(|at| line[at..].to_owned()));
    commands.collect()
}

/// Runs a command as a shell does whose environment names the server.
fn in_the_shell(database: &Database<'_>, command: &str) -> String {
    let server = database.server();
    let mut shell = Command::new("sh");
    scrub(&mut shell);
    let own = Path::new(env!("CARGO_BIN_EXE_toastctl")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}", own.display()));
    shell.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
    shell.env("PGUSER", server.superuser()).env("PGDATABASE", database.name());
    run(shell.args(["-c", command])).ok()
}

/// Bytes of WAL that EXPLAIN counts for an UPDATE, for each row.
fn wal(database: &Database<'_>, set: &str) -> f64 {
    // the session knows the table, and each row has its one version
    let plan = database.psql(&format!(
        "VACUUM FULL mixed; SELECT FROM mixed LIMIT 0 \\g /dev/null
         EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) UPDATE mixed SET {set}"
    ));
    let plan: Value = serde_json::from_str(plan.trim_start()).unwrap();
    plan[0]["Plan"]["WAL Bytes"].as_f64().unwrap() / 4000.0
}

#[test]
fn a_script_followed_to_its_end_gives_what_was_foretold() {
    // full-page images depend on checkpoints
    let server = Server::start(&Options::default().set("full_page_writes", "off"));
    let database = server.create_database("extract");
    database.psql(MIXED);
    let told = extraction(&database, &["keys", "mixed", "--extract", "id,name,hot"]);
    let script = Script::told(&told);
    script.migrate(&database);
    let foretold = [told.heap_bytes.estimate, told.toast_bytes.estimate];
    let key = |number: usize| &told.keys[number].access;
    let queries = [
        ("SELECT id FROM mixed", key(0)),
        ("SELECT hot FROM mixed", key(2)),
        ("SELECT doc -> 'text' FROM mixed", &told.rest),
    ];
    let is = |what: &str, database: &Database<'_>, sizes_within: f64, buffers_within: f64| {
        let now = sizes(database, "mixed");
        println!("{what}: {foretold:?} foretold, {now:?}");
        near(&format!("{what}: heap"), foretold[0], now[0], sizes_within);
        near(&format!("{what}: TOAST"), foretold[1], now[1], sizes_within);
        for (query, access) in queries {
            let measured = buffers(database, query);
            println!("{what}: {query}: {} foretold, {measured}", access.scan_buffers.estimate);
            let query = format!("{what}: {query}");
            near(&query, access.scan_buffers.estimate, measured, buffers_within);
        }
        let differing = "SELECT count(*) FROM original AS o FULL JOIN mixed AS m USING (n)
             WHERE m.doc || jsonb_build_object('id', m.id, 'name', m.name, 'hot', m.hot) IS DISTINCT FROM o.doc
                OR m.note IS DISTINCT FROM o.note";
        assert_eq!(database.psql(differing), "0", "{what}");
    };
    // the last step is done online in one copy, and with a lock in another
    let copy = format!("{}_copy", database.name());
    server
        .database("postgres")
        .psql(&format!("CREATE DATABASE {copy} TEMPLATE {}", database.name()));
    let copy = server.database(&copy);
    let online = commands(&script, "toastctl");
    assert_eq!(online.len(), 1, "{}", script.text);
    let done = in_the_shell(&copy, &online[0]);
    assert!(done.contains("heap"), "{done}");
    is("compacted", &copy, 0.02, 0.03);
    let locking = commands(&script, "VACUUM FULL");
    assert_eq!(locking.len(), 1, "{}", script.text);
    database.psql(&locking[0]);
    is("VACUUM FULL", &database, 0.01, 0.03);

    let fresh = "doc = (ARRAY[doc])[1]";
    for (what, set, access) in [
        ("id", "id = id + 1", key(0)),
        ("hot", "hot = md5(hot)", key(2)),
        ("the rest", fresh, &told.rest),
        (
            "the whole",
            &format!("id = id + 1, name = name || 'x', hot = md5(hot), {fresh}"),
            &told.whole,
        ),
    ] {
        let measured = wal(&database, set);
        let foretold = access.update_wal_bytes.estimate;
        println!("{what}: {foretold} bytes of WAL foretold, {measured}");
        near(what, foretold, measured, 0.03);
    }
}
