//! What `retoast` says at its end is what it has looked at, and its exit code agrees.

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::retoast::Outcome;
use crate::support::retoast::{done, retoast};
use crate::support::server::{self, Database, Options, Role, Server};

/// Values out of line, compressed with pglz, about 3 kB each.
const TABLE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 2), '') FROM generate_series(1, 90) k)
    FROM generate_series(1, 600) i; VACUUM ANALYZE t";

/// A role that owns the table and is no superuser.
fn with_owner<'a>(database: &'a Database<'a>) -> Role<'a> {
    let role = database.create_role("owner_of");
    database.psql(&format!("{TABLE}; ALTER TABLE t OWNER TO {role}"));
    role
}

/// `toastctl retoast t -c v` as this role.
fn by(database: &Database<'_>, role: &str, arguments: &[&str]) -> Run {
    let server = database.server();
    let mut command = toastctl();
    command.args(["retoast", "-h", server.socket_dir().to_str().unwrap(), "-U", role]);
    command.args(["-p", &server.port().to_string(), "-d", database.name(), "t", "-c", "v"]);
    run(command.args(arguments))
}

/// The rows that a superuser with pages would re-toast.
fn left(database: &Database<'_>, arguments: &[&str]) -> u64 {
    let all = [&["t", "-c", "v", "--dry-run"], arguments].concat();
    retoast(database, &all).exits(0).table().rows_found
}

fn outcome(run: &Run) -> (Option<i32>, Outcome) {
    (run.code, run.table().outcome)
}

/// An ordinary owner, on this server.
fn owner_is_told_what_was_not_verified<'a>(database: &'a Database<'a>) -> Role<'a> {
    database.psql("CREATE EXTENSION IF NOT EXISTS pageinspect");
    let role = with_owner(database);
    let target = ["--toaster", "pglz", "--target", "8160"];
    // the method is the chosen one already, and where values belong is seen by nobody but a superuser
    assert_eq!(left(database, &target), 600);
    let text = by(database, &role, &target);
    assert_eq!(text.code, Some(1), "{}{}", text.stdout, text.stderr);
    let first = text.stdout.lines().next().unwrap();
    assert!(first.contains("not verified: "), "{first}");
    assert!(!text.stdout.contains("complete"), "{}", text.stdout);
    assert!(text.stdout.contains("\nnote: without pages"), "{}", text.stdout);
    let again = by(database, &role, &[&target[..], &["--format", "json"]].concat());
    assert_eq!(outcome(&again), (Some(1), Outcome::Unverified));
    // back to what everybody has: a choice of compression alone is verified, and nothing else is claimed
    database.psql("ALTER TABLE t RESET (toast_tuple_target)");
    let text = by(database, &role, &["--toaster", "external"]);
    assert_eq!(text.code, Some(0), "{}{}", text.stdout, text.stderr);
    assert!(text.stdout.contains(" was not verified"));
    assert!(!text.stdout.contains("complete"), "{}", text.stdout);
    let json = by(database, &role, &["--toaster", "external", "--format", "json"]);
    let table = done(&json);
    assert_eq!((json.code, table.places_seen), (Some(0), false));
    assert_eq!((&table.rewrite_gives_bytes, &table.vacuum_gives_bytes), (&None, &None));
    // a storage that keeps values in the row is a choice of place
    for _ in 0..2 {
        let main = by(database, &role, &["--toaster", "main", "--format", "json"]);
        assert_eq!(outcome(&main), (Some(1), Outcome::Unverified));
    }
    let back = by(database, &role, &["--toaster", "pglz", "--format", "json"]);
    assert_eq!(outcome(&back), (Some(1), Outcome::Unverified));
    role
}

#[test]
fn an_owner_without_pages_is_told_what_was_not_verified() {
    let database = server::shared().create_database("verdict");
    let role = owner_is_told_what_was_not_verified(&database);
    let policy = ["--policy", "chunk-saving", "--method", "pglz", "--format", "json"];
    let expected =
        if server::shared().major() < 17 { Outcome::Unverified } else { Outcome::Complete };
    assert_eq!(outcome(&by(&database, &role, &policy)).1, expected);
}

#[test]
fn on_17_a_policy_sees_places_and_a_target_does_not() {
    if !server::available_majors().contains(&17) {
        return;
    }
    let server = Server::start(&Options::major(17));
    let database = server.create_database("verdict");
    let role = owner_is_told_what_was_not_verified(&database);
    let policy = ["--policy", "chunk-saving", "--method", "pglz", "--format", "json"];
    let run = by(&database, &role, &policy);
    assert_eq!(outcome(&run), (Some(0), Outcome::Complete), "{}", run.stderr);
    assert!(done(&run).places_seen);
    database.psql(
        "TRUNCATE t; INSERT INTO t SELECT i, repeat('p', 5000) FROM generate_series(1, 20) i",
    );
    let plain = by(&database, &role, &["--toaster", "plain", "--format", "json"]);
    assert_eq!(outcome(&plain), (Some(0), Outcome::Complete), "{}", plain.stderr);
    assert_eq!(left(&database, &["--toaster", "plain"]), 0);
}

#[test]
fn the_last_sentence_is_what_was_measured_and_vacuum_gives_that_back() {
    // VACUUM FULL keeps the chunks of rows that anybody may still see
    let server = Server::start(&Options::default());
    let database = server.create_database("net");
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; {TABLE}; ALTER TABLE t ALTER v SET STORAGE external; UPDATE t SET v = v || ''; VACUUM FULL t"
    ));
    let total = || -> u64 { database.psql("SELECT pg_total_relation_size('t')").parse().unwrap() };
    let before = total();
    let table =
        done(&retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--target", "8160"]));
    let maps = "SELECT sum(pg_relation_size(o, 'fsm') + pg_relation_size(o, 'vm')) FROM pg_class c,
        unnest(ARRAY[c.oid, c.reltoastrelid]) AS o WHERE c.oid = 't'::regclass";
    let maps: u64 = database.psql(maps).parse().unwrap();
    assert!(table.before.sum() <= before && table.after.sum() + maps == total(), "{table}");
    let at_end = table.vacuum_gives_bytes.unwrap();
    let free = table.rewrite_gives_bytes.unwrap();
    let files = "SELECT sum(pg_relation_size(o)) FROM pg_class c,
        unnest(ARRAY[c.oid, c.reltoastrelid]) AS o WHERE c.oid = 't'::regclass";
    let files = || -> u64 { database.psql(files).parse().unwrap() };
    let then = files();
    database.rests();
    database.psql("VACUUM (INDEX_CLEANUP ON) t");
    assert!(at_end > 2_000_000, "{table}");
    assert_eq!(then - files(), at_end, "{table}");
    database.psql("VACUUM FULL t");
    let gained = then - files();
    assert!(free.abs_diff(gained) < gained / 8, "{free} {gained}");

    let mut command = toastctl();
    command.args(["retoast", "-d", &database.url(), "t", "-c", "v", "--toaster", "external"]);
    command.args(["--target", "2032"]);
    let text = run(command.env("COLUMNS", "0")).ok();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("public.t: ") && last.ends_with('.'), "{last}");
    assert!(last.contains(" before, ") && last.contains("; 600 rows re-toasted in "), "{last}");
    let mut planned = toastctl();
    planned.args([
        "retoast",
        "-d",
        &database.url(),
        "t",
        "-c",
        "v",
        "--toaster",
        "lz4",
        "--dry-run",
    ]);
    assert!(!run(&mut planned).ok().contains(" re-toasted in "));
}
