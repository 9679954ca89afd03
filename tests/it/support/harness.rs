//! The test harness itself, on real servers.

use crate::support::command::{run, toastctl};
use crate::support::server::{self, Auth, Options, Server};
use crate::tls;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_shared_server_has_lz4_utf8_and_a_socket_only() {
    let database = server::shared().create_database("harness");
    let shown = database.psql(
        "SHOW server_encoding; SHOW listen_addresses; SHOW autovacuum;
         CREATE TABLE t (v text COMPRESSION lz4);
         SELECT current_database(), datcollate, current_user FROM pg_database WHERE datname = current_database()",
    );
    let expected = format!("UTF8\n\noff\n{}|C.UTF-8|postgres", database.name());
    assert_eq!(shown, expected);
    assert!(server::available_majors().contains(&server::shared().major()));
    let by_url = run(Command::new("psql").args(["-X", "-At", "-c", "SELECT 1", &database.url()]));
    assert_eq!(by_url.ok(), "1\n");
}

#[test]
fn a_dropped_database_is_gone_and_a_failing_statement_says_why() {
    let database = server::shared().create_database("harness");
    let name = database.name().to_owned();
    let failed = database.try_psql("SELECT 1; SELECT nothing; SELECT 2");
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(3), "1\n"));
    assert!(failed.stderr.contains("column \"nothing\" does not exist"), "{}", failed.stderr);
    drop(database);
    let left = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(server::shared().database("postgres").psql(&left), "0");
}

#[test]
fn every_available_major_starts_and_has_pageinspect() {
    for major in server::available_majors() {
        let server = Server::start(&Options::major(major).set("autovacuum", "on"));
        let database = server.create_database("harness");
        let version =
            database.psql("CREATE EXTENSION pageinspect; SHOW server_version_num; SHOW autovacuum");
        assert_eq!(version.split_at(2).0, major.to_string());
        assert!(version.ends_with("\non"), "{version}");
    }
}

#[test]
fn a_crashed_server_recovers_and_a_dropped_one_leaves_nothing() {
    let server = Server::start(&Options::default());
    let database = server.create_database("harness");
    database.psql("CREATE TABLE t AS SELECT generate_series(1, 100) AS n");
    server.restart_immediate();
    assert_eq!(database.psql("SELECT count(*) FROM t"), "100");
    assert!(server.log().contains("automatic recovery in progress"), "{}", server.log());
    server.stop();
    assert_eq!(database.try_psql("SELECT 1").code, Some(2));
    server.start_again();
    assert_eq!(database.psql("SELECT count(*) FROM t"), "100");
    let dir = server.socket_dir().to_owned();
    drop(database);
    drop(server);
    assert!(!dir.exists(), "{} is left", dir.display());
}

#[test]
fn a_scram_server_lets_nobody_in_without_a_password() {
    let auth = Auth::Scram { password: "ta'rt \\ pan".into() };
    let server = Server::start(&Options { auth, tcp: true, ..Options::default() });
    let database = server.database("postgres");
    assert_eq!(database.psql("SELECT 1"), "1");
    let stranger = run(database.psql_command().arg("-w").env_remove("PGPASSWORD"));
    assert_eq!(stranger.code, Some(2), "{}", stranger.stdout);
    let tcp = format!("host=127.0.0.1 port={}", server.port());
    let by_tcp =
        run(database.psql_command().args(["-c", "SELECT 2", "-d", &tcp, "-U", "postgres"]));
    assert_eq!(by_tcp.ok(), "2\n");
}

/// The variable that makes the test below the victim that its other self kills.
const VICTIM: &str = "TOASTCTL_TEST_VICTIM";

#[test]
fn a_killed_test_process_leaves_no_server_and_no_directory() {
    if std::env::var_os(VICTIM).is_some() {
        let server = Server::start(&Options::default());
        println!("\nserver in {}", server.socket_dir().display());
        println!("keys in {}", tls::authority().directory().display());
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "support::harness::a_killed_test_process_leaves_no_server_and_no_directory",
        ])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut named = |what: &str| {
        let dir = lines.find_map(|line| Some(line.strip_prefix(what)?.to_owned()));
        dir.expect("the victim names its directories")
    };
    let (dir, keys) = (named("server in "), named("keys in "));
    assert!(Path::new(&keys).join("root.key").exists());
    let pid = std::fs::read_to_string(Path::new(&dir).join("data/postmaster.pid")).unwrap();
    let process = Path::new("/proc").join(pid.lines().next().unwrap());
    assert!(process.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let killed = Instant::now();
    while Path::new(&dir).exists() || Path::new(&keys).exists() || process.exists() {
        assert!(killed.elapsed() < Duration::from_secs(30), "{dir} or {keys} is left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn toastctl_runs_without_the_developers_environment() {
    let command = toastctl();
    let environment: Vec<_> = command.get_envs().collect();
    assert!(environment.contains(&("HOME".as_ref(), Some("/nonexistent".as_ref()))));
    let version = run(toastctl().arg("--version")).ok();
    assert_eq!(version, format!("toastctl {}\n", env!("CARGO_PKG_VERSION")));
}
