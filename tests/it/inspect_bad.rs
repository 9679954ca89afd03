//! What goes wrong with `inspect` on a live server: each with its message and exit code.

use std::io::Read;
use std::process::Stdio;

use crate::support::command::{Run, run, toastctl};
use crate::support::server::{self, Auth, Options, Server};

#[test]
fn relations_that_cannot_be_inspected() {
    let database = server::shared().create_database("wrong");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT 1;
         CREATE SEQUENCE s; CREATE TYPE pair AS (a int); CREATE TABLE \"Odd.Name\" (a int);
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;
         CREATE FOREIGN TABLE f (a int) SERVER far",
    );
    let mut all = String::new();
    for name in [
        "none",
        "public.none",
        "Odd.Name",
        "v",
        "f",
        "t_pkey",
        "s",
        "pair",
        "none*",
        "other.public.t",
    ] {
        let found = run(toastctl().args(["inspect", "-d", &database.url(), name]));
        assert_eq!((found.code, found.stdout.as_str()), (Some(1), ""), "{name}");
        all.push_str(&found.stderr);
    }
    insta::assert_snapshot!(all);
    for name in ["\"Odd.Name\"", "T", "pub*.t", "public.?"] {
        let found = run(toastctl().args(["inspect", "-d", &database.url(), name]));
        assert_eq!(found.code, Some(0), "{name}: {}", found.stderr);
    }
}

#[test]
fn a_table_that_may_not_be_read_keeps_nobody_from_reading_the_others() {
    let database = server::shared().create_database("denied");
    let role = database.create_role("reader_of");
    database.psql(&format!(
        "CREATE TABLE open (a text); CREATE TABLE secret (a text);
         INSERT INTO open VALUES ('x'); GRANT SELECT ON open TO {role}"
    ));
    let found = run(toastctl()
        .arg("inspect")
        .arg("-h")
        .arg(server::shared().socket_dir())
        .args(["-p", &server::shared().port().to_string(), "-U", &role, "-d", database.name()])
        .args(["--format", "csv"]));
    assert_eq!(found.code, Some(1));
    assert!(found.stdout.contains("public.open,a,text"), "{}", found.stdout);
    insta::assert_snapshot!(found.stderr);
}

#[test]
fn a_wrong_password_is_told_and_not_shown() {
    let options = Options { auth: Auth::Scram { password: "right".into() }, ..Options::default() };
    let server = Server::start(&options);
    let found = run(toastctl()
        .args(["inspect", "-w", "-d", &server.database("postgres").url()])
        .env("PGPASSWORD", "sesame"));
    assert_eq!((found.code, found.stdout.as_str()), (Some(3), ""));
    assert!(
        found.stderr.contains("password authentication failed for user \"postgres\""),
        "{}",
        found.stderr
    );
    assert!(!found.stderr.contains("sesame"), "{}", found.stderr);
}

#[test]
fn a_server_that_goes_away_in_mid_scan() {
    let server = Server::start(&Options::default());
    let database = server.create_database("gone");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t AS SELECT i, md5(i::text) AS v FROM generate_series(1, 300000) AS i",
    );
    // rows are printed until the pipe is full: the scan stands still in the middle
    let mut child = toastctl()
        .args(["value", "-d", &database.url(), "--format", "jsonl", "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1000];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    server.stop();
    let output = child.wait_with_output().unwrap();
    let found = Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert_eq!(found.code, Some(3), "{}", found.stderr);
    // a slow machine has had time for lines of progress before
    let error = found.stderr.lines().find(|line| line.starts_with("toastctl: error: "));
    let place = error.is_some_and(|line| line.starts_with("toastctl: error: public.t, block "));
    assert!(place, "{}", found.stderr);
    assert!(found.stdout.lines().count() < 600_000);
    assert!(found.stdout.ends_with("}\n"), "rows are printed whole");
    server.start_again();
}

#[test]
fn a_block_that_the_server_cannot_read_loses_nothing_else() {
    let server = Server::start(&Options::default());
    let database = server.create_database("torn");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t AS SELECT i, md5(i::text) AS v FROM generate_series(1, 3000) AS i; CHECKPOINT",
    );
    let path = database.psql("SELECT pg_relation_filepath('t')");
    let rows: u64 = database
        .psql("SELECT count(*) FROM t WHERE (ctid::text::point)[0] IN (3, 20)")
        .parse()
        .unwrap();
    server.damage(&path, [3, 20]);
    let found = run(toastctl().args(["inspect", "-d", &database.url(), "--format", "json", "t"]));
    assert_eq!(found.code, Some(1));
    // by two connections, and told in the order of blocks
    let lines: Vec<&str> = found.stderr.lines().collect();
    let told = |line: &str, block: u32| {
        let start =
            format!("toastctl: error: public.t, block {block}: invalid page in block {block} ");
        line.starts_with(&start)
    };
    assert!(matches!(lines[..], [a, b] if told(a, 3) && told(b, 20)), "{}", found.stderr);
    let relation = found.relation();
    assert_eq!(relation.tuples.live.estimate, 3000 - rows);
    assert_eq!(relation.problem_count, 2);
}

#[test]
fn inspect_writes_nothing() {
    let server = Server::start(&Options::default());
    let database = server.create_database("readonly");
    database.psql("CREATE EXTENSION pageinspect; CREATE TABLE t AS SELECT repeat('x', 10000) AS v");
    // every write needs a transaction ID
    let state = || {
        database.psql(
            "SELECT pg_snapshot_xmax(pg_current_snapshot()), count(*), max(oid::int8) FROM pg_class",
        )
    };
    let before = state();
    for more in [&[][..], &["--source", "functions"], &["--jobs", "3"]] {
        run(toastctl().args(["inspect", "-d", &database.url()]).args(more)).ok();
    }
    assert_eq!(state(), before);
}
