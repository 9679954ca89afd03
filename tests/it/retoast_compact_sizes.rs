//! `compact`: files get as short as a fresh copy's and as foretold, and nothing grows meanwhile.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::retoast::{FileEnd, Report, Table, part_size};
use crate::support::retoast::{contents, done, retoast, said_by_inspect};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::tables::{Copied, NOISE, fresh, table};

const PAGE: u64 = 8192;
/// Of less free space `inspect` says nothing.
const LITTLE: f64 = 2_097_152.0;
const PARTS: [&str; 3] = ["heap", "toast", "indexes"];

/// Runs it while another session samples the table's total size; the report, and the largest size.
fn sampled(database: &Database<'_>, arguments: &[&str]) -> (Printed<Table>, u64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !stop.load(Ordering::Relaxed) {
                let now = database.psql("SELECT pg_table_size('t')");
                most = most.max(now.parse().unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let run = retoast(database, arguments);
        stop.store(true, Ordering::Relaxed);
        (done(&run), sampler.join().unwrap())
    })
}

/// Makes the table, damages it, and compacts it: its files get about as short as fresh ones, and as foretold.
#[track_caller]
fn compacts(server: &Server, name: &str, copied: Copied, make: &str, damage: &str) {
    let database = server.with_pageinspect(name);
    database.psql(NOISE);
    database.psql(make);
    database.psql(damage);
    database.psql("VACUUM t");
    let before = contents(&database, "t");
    let size: u64 = database.psql("SELECT pg_table_size('t')").parse().unwrap();
    let planned = retoast(&database, &["compact", "t", "--dry-run"]);
    let planned = planned.exits(0).report::<Report>();
    assert_eq!(database.psql("SELECT pg_table_size('t')"), size.to_string(), "{name}");
    let said = said_by_inspect(&database);
    let arguments = ["compact", "t", "--reindex=all", "--verify", "full"];
    let (mut table, most) = sampled(&database, &arguments);
    let first = table.before;
    // seen once: the server stored one row behind the end again in every round, so that nothing could be cut off
    if table.compaction.iter().any(|file| file.ended == FileEnd::NoRoom) {
        table = done(&retoast(&database, &arguments));
    }
    assert_eq!(contents(&database, "t"), before, "{name}");
    assert!(most as f64 <= size as f64 * 1.03, "{name}: {size} grew to {most}");
    for (part, fresh) in PARTS.into_iter().zip(fresh(&database, copied)) {
        let now = part_size(table.after, part);
        eprintln!("{name}: {part}: {} became {now}, fresh {fresh}", part_size(first, part));
        // 8 pages are not worth a round
        let limit = (fresh as f64 * 1.06).max((fresh + 8 * PAGE) as f64);
        assert!(now as f64 <= limit, "{name}: {part} is {now}, a fresh one {fresh}: {table}");
    }
    for (then, now) in planned.tables[0].compaction.iter().zip(&table.compaction) {
        let (then, now) = (then.expected, now.after);
        let limit = (now as f64 * 0.05).max((8 * PAGE) as f64);
        assert!(then.abs_diff(now) as f64 <= limit, "{name}: {then} foretold: {table}");
    }
    for (part, said) in PARTS.into_iter().zip(said) {
        let gave = part_size(first, part) - part_size(table.after, part);
        let Some(said) = said else {
            assert!(gave as f64 <= LITTLE || gave * 3 < part_size(first, part), "{table}");
            continue;
        };
        let said = said.gives_back;
        eprintln!("{name}: {part}: inspect said {said}, {gave} given back");
        let off = (gave as f64 * 0.05).max((8 * PAGE) as f64);
        assert!(said.abs_diff(gave) as f64 <= off, "{name}: {part}: {said} said: {table}");
    }
    let again = done(&retoast(&database, &["compact", "t"]));
    assert_eq!((again.rows_stored, again.vacuums), (0, 0), "{name}");
    assert_eq!(again.after, again.before, "{name}");
}

const RANDOM: &str = "DELETE FROM t WHERE hashint4(id) % 2 = 0";

// How short files get depends on what VACUUM may remove, which transactions in any database of the server decide.

#[test]
fn files_of_values_get_as_short_as_fresh_ones_and_as_foretold() {
    all(&Server::start(&Options::default()), values());
}

#[test]
fn files_of_rows_get_as_short_as_fresh_ones_and_as_foretold() {
    all(&Server::start(&Options::default()), rows());
}

#[test]
fn rows_and_values_that_fill_pages_badly_get_as_short_as_cluster_makes_them() {
    all(&Server::start(&Options::default()), bad_packers());
}

/// Tables of every kind, each damaged in one way.
#[test]
fn so_they_do_on_the_newest_major() {
    let Some(major) = server::other_majors().into_iter().max() else { return };
    let mut damaged = [values(), rows(), bad_packers()].into_iter().flatten().collect::<Vec<_>>();
    damaged.retain(|damaged| {
        !["range", "large", "heap_random", "wide_range", "mixed", "rests_random"]
            .contains(&damaged.name)
    });
    all(&Server::start(&Options::major(major)), damaged);
}

/// A table and what is done to it before it is compacted.
struct Damaged {
    name: &'static str,
    /// What its files are compared with.
    copied: Copied,
    make: String,
    damage: String,
}

fn all(server: &Server, damaged: Vec<Damaged>) {
    for Damaged { name, copied, make, damage } in damaged {
        compacts(server, name, copied, &make, &damage);
    }
}

fn values() -> Vec<Damaged> {
    let damaged = |name, make, damage: &str| Damaged {
        name,
        copied: Copied::Inserted,
        make,
        damage: damage.to_owned(),
    };
    let updates: String = (0..10).map(|n| format!("UPDATE t SET v = v || '{n}';")).collect();
    let large = "CASE WHEN i % 200 = 0 THEN noise(i, 60000) ELSE noise(i, 100 + i % 100) END";
    let huge = "CASE WHEN i % 500 = 1 THEN repeat(noise(i, 16384), 100) ELSE noise(i, 100) END";
    let half = "DELETE FROM t WHERE id <= 1250";
    vec![
        damaged("random", table(3000, "noise(i, 200)"), RANDOM),
        damaged("range", table(2500, "noise(i, 150 + i % 90)"), half),
        damaged("updated", table(500, "noise(i, 60 + i % 200)"), &updates),
        damaged("large", table(1600, large), RANDOM),
        damaged("huge", table(501, huge), "DELETE FROM t WHERE id = 1"),
    ]
}

fn rows() -> Vec<Damaged> {
    let damaged = |name, make: &str, damage: &str| Damaged {
        name,
        copied: Copied::Inserted,
        make: make.to_owned(),
        damage: damage.to_owned(),
    };
    let make = "CREATE TABLE t (id int PRIMARY KEY, a text, n int);
        INSERT INTO t SELECT i, noise(i, 1 + i % 6), i FROM generate_series(1, 30000) i;";
    let columns: Vec<String> = (0..300).map(|n| format!("c{n} text")).collect();
    let values: Vec<String> = (0..300)
        .map(|n| {
            format!(
                "CASE WHEN (i + {n}) % 20 = 0 THEN noise(i + {n}, 70)
        WHEN i % 3 = 0 THEN NULL ELSE 'short' END"
            )
        })
        .collect();
    let wide = format!(
        "CREATE TABLE t (id int, {}); INSERT INTO t SELECT i, {} FROM generate_series(1, 400) i",
        columns.join(", "),
        values.join(", ")
    );
    vec![
        damaged("heap_random", make, RANDOM),
        damaged("heap_range", make, "DELETE FROM t WHERE id <= 15000"),
        damaged("columns", &wide, "DELETE FROM t WHERE id % 2 = 0"),
    ]
}

fn bad_packers() -> Vec<Damaged> {
    let damaged = |name, make: &str, damage: &str| Damaged {
        name,
        copied: Copied::Clustered,
        make: make.to_owned(),
        damage: damage.to_owned(),
    };
    let wide = "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE plain;
        INSERT INTO t SELECT i, noise(i, 78 + (hashint4(i) & 1023) % 79) FROM generate_series(1, 4000) i";
    let mixed = "CASE WHEN i % 4 = 0 THEN noise(i, 66 + i % 300) ELSE noise(i, 5 + i % 55) END";
    let mixed = table(4000, mixed);
    // 4 full chunks and 16 bytes: those take a full one's room
    let rests = table(3000, "noise(i, 250)");
    vec![
        damaged("wide_random", wide, RANDOM),
        damaged("wide_range", wide, "DELETE FROM t WHERE id <= 2000"),
        damaged("mixed", &mixed, RANDOM),
        damaged("mixed_range", &mixed, "DELETE FROM t WHERE id <= 2000"),
        damaged("rests_random", &rests, RANDOM),
        damaged("rests_range", &rests, "DELETE FROM t WHERE id <= 1500"),
    ]
}

/// While a transaction that writes is open anywhere, each query's snapshot is so old that a vacuum beside it removes
/// nothing of what was moved since.
#[test]
fn short_queries_beside_an_old_transaction_of_another_database_leave_nothing_behind() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("short");
    database.psql(NOISE);
    let other = server.create_database("other");
    let _holder = Holder::of(&other, "CREATE TABLE written ()");
    let mut queries = tempfile::NamedTempFile::new().unwrap();
    queries
        .write_all("SELECT pg_sleep(0.004);\n\\! sleep 0.01\n".repeat(10_000).as_bytes())
        .unwrap();
    let session = |_| {
        let mut psql = database.psql_command();
        psql.arg("-f").arg(queries.path()).stdout(Stdio::null()).stderr(Stdio::null());
        psql.spawn().unwrap()
    };
    let mut sessions = [(); 2].map(session);
    for _ in 0..2 {
        database.psql("DROP TABLE IF EXISTS t");
        database.psql(&table(2500, "noise(i, 150 + i % 90)"));
        database.psql("DELETE FROM t WHERE id <= 1250; VACUUM t");
        let report = done(&retoast(&database, &["compact", "t"]));
        let [_, fresh, _] = fresh(&database, Copied::Inserted);
        let limit = (fresh as f64 * 1.06).max((fresh + 8 * PAGE) as f64);
        assert!(report.after.toast as f64 <= limit, "{fresh}: {report}");
    }
    for session in &mut sessions {
        session.kill().unwrap();
        session.wait().unwrap();
    }
}

#[test]
fn rows_that_found_no_room_in_front_are_moved_again_into_what_was_emptied() {
    let make = "CREATE TABLE t (id int PRIMARY KEY, a text, v text);
        ALTER TABLE t ALTER a SET STORAGE plain, ALTER v SET STORAGE external;
        INSERT INTO t SELECT i, repeat('x', 560), noise(i, 70 + i % 40) FROM generate_series(1, 8000) i;";
    let database = with_pageinspect("compact_room");
    database.psql(NOISE);
    database.psql(make);
    database.psql("UPDATE t SET v = NULL WHERE hashint4(id) % 2 = 0; VACUUM t");
    let before = contents(&database, "t");
    let compacted = retoast(&database, &["compact", "t"]);
    let report = compacted.report::<Report>();
    let now = report.tables[0].after.heap;
    let [heap, ..] = fresh(&database, Copied::Inserted);
    assert!(now as f64 <= heap as f64 * 1.06, "{now} of {heap}: {report}");
    assert_eq!(contents(&database, "t"), before);
}
