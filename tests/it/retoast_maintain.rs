//! `retoast --maintain`: the crontab entry works where cron runs it, with nothing around it.

use std::path::Path;
use std::process::Command;

use crate::command::{Run, run, toastctl};
use crate::retoast::{refused, retoast, with_pageinspect};
use crate::server::{Auth, Options, Server};

/// The command of the entry, as cron hands it to the shell: an escaped percent sign is one.
#[track_caller]
fn entry(printed: &Run) -> String {
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let mut lines = printed.stdout.lines().filter(|line| !line.starts_with('#'));
    let line = lines.next().unwrap();
    assert_eq!(lines.next(), None, "{}", printed.stdout);
    let command = line.strip_prefix("17 3 * * * ").unwrap();
    // no other backslash is read by all crons in the same way
    assert_eq!(command.matches('\\').count(), command.matches("\\%").count(), "{command}");
    assert_eq!(command.matches('%').count(), command.matches("\\%").count(), "{command}");
    command.replace("\\%", "%")
}

/// As cron does it, but for the two or three variables that it sets.
fn by_cron(command: &str) -> Run {
    run(Command::new("env").args(["-i", "sh", "-c", command]).current_dir("/"))
}

#[test]
fn the_entry_runs_in_an_empty_environment_and_another_directory() {
    let database = with_pageinspect("maintain");
    database.psql(
        "CREATE TABLE \"it's 100%\" (id int, \"a b\" text);
         ALTER TABLE \"it's 100%\" ALTER \"a b\" SET STORAGE EXTERNAL;
         INSERT INTO \"it's 100%\" SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20) AS i",
    );
    let left = "SELECT count(*) FROM \"it's 100%\" WHERE pg_column_compression(\"a b\") IS NULL";
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home of 10% of us");
    std::fs::create_dir(&home).unwrap();
    let relative = Path::new("./toastctl");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_toastctl"), dir.path().join(relative)).unwrap();
    let server = database.server();
    // all that is known of the server comes from the environment, all files are named from here
    let mut maintain = Command::new(relative);
    crate::command::scrub(&mut maintain);
    maintain.current_dir(dir.path()).env("HOME", &home);
    maintain.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
    maintain.env("PGUSER", server.superuser()).env("PGDATABASE", database.name());
    maintain.env("PGPASSWORD", "sesame").env("PGAPPNAME", "a 'quoted' name");
    let arguments =
        ["retoast", "\"it's 100%\"", "-c", "a b", "--policy", "always", "--method", "lz4"];
    maintain.args(arguments).args(["--max-bloat", "5%", "--stop-file", "stop here", "--maintain"]);
    let printed = run(&mut maintain);
    assert!(!printed.stdout.contains("sesame"), "{}", printed.stdout);
    assert!(printed.stdout.contains("to the policy always"), "{}", printed.stdout);
    let command = entry(&printed);
    assert!(!command.contains("--maintain"), "{command}");

    let stop = dir.path().join("stop here");
    std::fs::write(&stop, "").unwrap();
    let stopped = by_cron(&command);
    assert_eq!(stopped.code, Some(4), "{command}: {}", stopped.stderr);
    assert_eq!(database.psql(left), "20");
    std::fs::remove_file(&stop).unwrap();
    let first = by_cron(&command);
    assert_eq!(first.code, Some(0), "{command}: {}", first.stderr);
    assert!(first.stdout.contains("complete"), "{}", first.stdout);
    assert_eq!(database.psql(left), "0");
    // --since of the entry, in the home directory
    let file = home.join(".toastctl-since.json");
    let memory = std::fs::read_to_string(&file).unwrap();
    assert!(memory.contains("always of"), "{memory}");
    database.psql("INSERT INTO \"it's 100%\" SELECT 99, repeat('new', 3000)");
    assert_eq!(by_cron(&command).code, Some(0));
    assert_eq!(database.psql(left), "0");
    // a relative file stands where it stood
    let mut named = Command::new(relative);
    crate::command::scrub(&mut named);
    named.current_dir(dir.path()).args(arguments).args(["-d", &database.url(), "--maintain"]);
    let printed = run(named.args(["--since", "here.json", "--dry-run"]));
    let command = entry(&printed);
    assert_eq!(by_cron(&command).code, Some(0), "{command}");
    assert!(dir.path().join("here.json").exists());
}

#[test]
fn passwords_are_left_to_the_password_file() {
    let password = "p%40'ss w";
    let auth = Auth::Scram { password: password.replace("%40", "@") };
    let server = Server::start(&Options { auth, tcp: true, ..Options::default() });
    let database = server.database("postgres");
    database.psql("CREATE EXTENSION pageinspect; CREATE TABLE t (id int, v text)");
    let home = tempfile::tempdir().unwrap();
    let secret = password.replace("%40", "@").replace('\\', "\\\\").replace(':', "\\:");
    let pgpass = format!("*:*:*:*:{secret}\n");
    crate::connect::write(&home.path().join(".pgpass"), &pgpass, 0o600);
    let uri = format!(
        "postgres://postgres:{}@127.0.0.1:{}/postgres?application_name=100%25%20true",
        password.replace('\'', "%27").replace(' ', "%20"),
        server.port()
    );
    let pairs = format!(
        "host=127.0.0.1 port={} user=postgres dbname=postgres password='p@\\'ss w'",
        server.port()
    );
    for connection in [&uri, &pairs] {
        let mut maintain = toastctl();
        maintain.env("HOME", home.path()).args(["retoast", "-d", connection]);
        let printed = run(maintain.args(["t", "-c", "v", "--policy", "always", "--maintain"]));
        assert!(!printed.stdout.contains("ss w"), "{}", printed.stdout);
        assert!(!printed.stdout.contains("ss%20w"), "{}", printed.stdout);
        assert!(printed.stdout.contains(".pgpass"), "{}", printed.stdout);
        let command = entry(&printed);
        let ran = by_cron(&command);
        assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
    }
}

#[test]
fn of_a_toaster_it_says_what_a_repetition_does() {
    let database = with_pageinspect("maintaintoaster");
    database.psql("CREATE TABLE t (id int, v text)");
    let toaster = ["t", "-c", "v", "--toaster", "lz4"];
    let printed = retoast(&database, &[&toaster[..], &["--maintain"]].concat());
    assert!(!printed.stdout.contains("policy"), "{}", printed.stdout);
    assert!(!printed.stdout.contains("--since"), "{}", printed.stdout);
    assert!(printed.stdout.contains("stored otherwise than by lz4"), "{}", printed.stdout);
    let ran = by_cron(&entry(&printed));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for options in [&["--since", "f"][..], &["--method", "lz4"], &["--new-values", "external"]] {
        refused(&retoast(&database, &[&toaster[..], options].concat()), 2, options[0]);
    }
    let leave = retoast(&database, &["--from-toaster", "x", "--maintain"]);
    refused(&leave, 2, "--maintain");
    // what cannot stand in a crontab is not put there
    for name in ["a\nb", "a\\b"] {
        let odd = retoast(&database, &["t", "-c", name, "--policy", "best", "--maintain"]);
        refused(&odd, 2, "cannot stand in a crontab");
    }
}
