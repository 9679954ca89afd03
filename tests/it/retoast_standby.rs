//! `retoast` where commits wait for a standby that is not there.

use std::time::{Duration, Instant};

use crate::support::retoast::{Running, command, contents, done};
use crate::support::server::{Options, Server};

#[test]
fn a_synchronous_standby_that_is_gone_is_not_waited_for() {
    let server = Server::start(&Options::default());
    let database = server.create_database("synchronous");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 300) AS i",
    );
    let before = contents(&database, "t");
    database.psql("ALTER SYSTEM SET synchronous_standby_names = 'gone'");
    database.psql("SELECT pg_reload_conf()");
    let names = "SELECT current_setting('synchronous_standby_names')";
    database.until(names, |answer| answer == "gone");
    let choices: [&[&str]; 2] =
        [&["--toaster", "lz4"], &["--policy", "always", "--set", "new-values=extended"]];
    for choice in choices {
        let arguments = [&["t", "-c", "v"], choice].concat();
        let began = Instant::now();
        let mut running = Running::start(&mut command(&database, &arguments));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
            AND application_name LIKE 'toastctl%'";
        while running.runs() {
            assert!(began.elapsed() < Duration::from_secs(60), "{choice:?}: {}", running.said());
            assert_eq!(database.psql(waits), "0", "{choice:?}: {}", running.said());
        }
        done(&running.end());
    }
    assert_eq!(contents(&database, "t"), before);
    database.psql("ALTER SYSTEM RESET synchronous_standby_names");
    database.psql("SELECT pg_reload_conf()");
}
