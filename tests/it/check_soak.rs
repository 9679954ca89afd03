//! `check` beside everything that a server does: nothing is damaged, so nothing is found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::command::{run, toastctl};
use crate::support::server::{Options, Server};

/// Seconds that the soak takes, instead of 20.
const SECONDS: &str = "TOASTCTL_CHECK_SOAK_SECONDS";

/// Statements that writers repeat, `{n}` and `{s}` being numbers.
const WRITERS: [&str; 5] = [
    "INSERT INTO t (id, v, w) SELECT {n} * 1000 + g, repeat(md5(g::text || {s}), 90), big({s}) FROM generate_series(1, 20) AS g;",
    "UPDATE t SET v = repeat(md5({s}::text), 100) WHERE id % 17 = {s} % 17; UPDATE t SET k = k + 1 WHERE id % 5 = {s} % 5;",
    "DELETE FROM t WHERE id % 23 = {s} % 23; INSERT INTO t (id, v, w) SELECT -{s} * 10 - g, big(g), repeat('y', 9000) FROM generate_series(1, 5) AS g;",
    "BEGIN; INSERT INTO t (id, v, w) SELECT {s}, big(g), big(g) FROM generate_series(1, 9) AS g; UPDATE t SET w = big({s}) WHERE id % 11 = {s} % 11; ROLLBACK;",
    "BEGIN; SAVEPOINT a; UPDATE t SET v = big({s}) WHERE id % 13 = {s} % 13; ROLLBACK TO a; SAVEPOINT b; UPDATE t SET w = big({s}), k = 0 WHERE id % 13 = {s} % 13; RELEASE b; SELECT count(*) FROM t WHERE id % 7 = 0 FOR UPDATE; COMMIT;",
];

/// Statements that write the table anew, or change its description.
const REWRITES: [&str; 7] = [
    "VACUUM FULL t",
    "REINDEX TABLE t",
    "CLUSTER t USING t_id",
    "ALTER TABLE t ALTER k TYPE bigint",
    "ALTER TABLE t ALTER w TYPE varchar USING w || ''; ALTER TABLE t ADD x text DEFAULT big(1)",
    "ALTER TABLE t ALTER k TYPE int; ALTER TABLE t DROP x",
    "ALTER TABLE t ALTER w TYPE text USING w || ''",
];

#[test]
fn beside_writers_vacuums_rewrites_and_a_retoast_nothing_is_found() {
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let server =
        Server::start(&Options::default().set("autovacuum_naptime", "1s").set("autovacuum", "on"));
    let database = server.create_database("check_soak");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE FUNCTION big(n bigint) RETURNS text LANGUAGE sql AS
             $$SELECT string_agg(md5(n::text || g), '') FROM generate_series(1, 150) AS g$$;
         CREATE TABLE t (id bigint, k int DEFAULT 0, v text COMPRESSION pglz, w text);
         ALTER TABLE t ALTER w SET STORAGE external; CREATE INDEX t_id ON t (id);
         INSERT INTO t (id, v, w) SELECT g, repeat(md5(g::text), 100), big(g) FROM generate_series(1, 300) AS g",
    );
    let end = Instant::now() + Duration::from_secs(seconds);
    let stop = AtomicBool::new(false);
    let (mut checks, mut found) = (0, Vec::new());
    std::thread::scope(|scope| {
        let (database, stop) = (&database, &stop);
        for (n, statement) in WRITERS.iter().enumerate() {
            scope.spawn(move || {
                for s in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let sql =
                        statement.replace("{n}", &n.to_string()).replace("{s}", &s.to_string());
                    // deadlocks and serialization are the writers' own
                    database.try_psql(&sql);
                    if n == 0 && s % 10 == 0 {
                        database.try_psql("DELETE FROM t WHERE id > 300");
                    }
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                database.try_psql("VACUUM t");
                database.try_psql("VACUUM (FREEZE, INDEX_CLEANUP off) t");
            }
        });
        scope.spawn(move || {
            for rewrite in REWRITES.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                database.try_psql(rewrite);
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        scope.spawn(move || {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let toaster = ["lz4", "pglz"][round % 2];
                run(toastctl()
                    .args([
                        "retoast",
                        "t",
                        "--column",
                        "v",
                        "--toaster",
                        toaster,
                        "--max-runtime",
                        "5",
                    ])
                    .args(["-d", &database.url()]));
            }
        });
        while Instant::now() < end {
            let jobs = ["1", "2", "3"][checks % 3];
            let done = run(toastctl().args([
                "check",
                "--deep",
                "--scan-toast",
                "always",
                "--jobs",
                jobs,
                "-d",
                &database.url(),
                "t",
            ]));
            checks += 1;
            if done.code != Some(0) {
                found.push(format!("{:?} {}{}", done.code, done.stdout, done.stderr));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(found, [""; 0]);
    assert!(checks > 0);
    println!("{checks} checks");
}
