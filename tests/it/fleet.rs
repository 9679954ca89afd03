//! A verb on several databases: one report that names each of them and each problem, the worst exit code, and nothing
//! that one of them does to the others.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use toastctl::report::schema::schema;

use crate::support::command::{Run, ended, run, toastctl};
use crate::support::holder::Holder;
use crate::support::retoast::Running;
use crate::support::server::{Auth, Database, Options, Server, free_port};

const TABLE: &str = "CREATE EXTENSION pageinspect;
    CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, repeat(i::text, 5000) FROM generate_series(1, 200) i";

/// A server of its own, whose databases are those of one test each.
fn server() -> Server {
    Server::start(&Options::default())
}

/// A database with the table.
fn with_table<'a>(server: &'a Server, prefix: &str) -> Database<'a> {
    let database = server.create_database(prefix);
    database.psql(TABLE);
    database
}

/// A server that wants a password.
fn closed() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let auth = Auth::Scram { password: "open sesame".into() };
        Server::start(&Options { auth, ..Options::default() })
    })
}

/// The verb on the databases of a file with these lines.
fn on(lines: &[String], arguments: &[&str]) -> Run {
    let file = written(&lines.join("\n"));
    run(&mut command(file.path(), arguments))
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn command(targets: &Path, arguments: &[&str]) -> Command {
    let mut command = toastctl();
    command.args(arguments).arg("--targets").arg(targets);
    command
}

/// The lines of JSON by the name of the database, each of the documented shape.
#[track_caller]
fn reports(run: &Run) -> BTreeMap<String, Value> {
    let schema: Value = serde_json::from_str(schema("fleet").unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let wrong: Vec<String> = validator.iter_errors(&line).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}\n{line:#}");
        (line["target"].as_str().unwrap().to_owned(), line)
    };
    let reports: BTreeMap<String, Value> = run.stdout.lines().map(read).collect();
    assert_eq!(reports.len(), run.stdout.lines().count(), "{}", run.stdout);
    reports
}

fn named(database: &Database<'_>) -> String {
    let server = database.server();
    format!("{}:{}/{}", server.socket_dir().display(), server.port(), database.name())
}

#[test]
fn each_database_is_named_with_its_result_or_its_problem_and_the_worst_code_counts() {
    let server = server();
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    let locked = with_table(&server, "locked");
    let standby = server.start_standby();
    locked.psql("CREATE TABLE u (v text)");
    let _lock = Holder::of(&locked, "LOCK TABLE t");
    let down = format!("host=127.0.0.1 port={} dbname=x", free_port());
    let wrong =
        format!("postgres://postgres:closed@/postgres?host={}", closed().socket_dir().display());
    let hosts = format!("{},{}", server.socket_dir().display(), standby.socket_dir().display());
    let of_standby = format!(
        "host={hosts} dbname={} user={} target_session_attrs=prefer-standby",
        one.name(),
        server.superuser()
    );
    let lines =
        ["# all".to_owned(), one.url(), two.conninfo(), locked.url(), down, wrong, of_standby];
    let arguments = ["inspect", "--max-time", "3s", "--format"];
    let run = on(&lines, &[&arguments[..], &["json"]].concat());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let reports = reports(&run);
    assert_eq!(reports.len(), 6, "{}", run.stdout);
    for database in [&one, &two] {
        let report = &reports[&named(database)];
        assert_eq!(report["exit_code"], 0);
        assert_eq!(report["result"]["schema"], "toastctl.inspect/2");
        assert_eq!(report["result"]["columns"][0]["relation"], "public.t");
        assert_eq!(report["result"]["server"]["database"], database.name());
    }
    let of_locked = &reports[&named(&locked)];
    assert_eq!(of_locked["exit_code"], 1);
    assert_eq!(of_locked["result"]["left_out"][0]["relation"], "public.t");
    assert!(of_locked["error"].as_str().unwrap().contains("public.t"), "{of_locked:#}");
    let failed = |part: &str, error: &str| {
        let (_, report) = reports.iter().find(|(name, _)| name.contains(part)).unwrap();
        assert_eq!((&report["exit_code"], &report["result"]), (&3.into(), &Value::Null));
        assert!(report["error"].as_str().unwrap().contains(error), "{report:#}");
    };
    failed("127.0.0.1", "Connection refused");
    failed(&closed().socket_dir().display().to_string(), "password authentication failed");
    let (_, of_standby) = reports.iter().find(|(name, _)| name.contains(',')).unwrap();
    assert_eq!(of_standby["result"]["server"]["in_recovery"], true, "{of_standby:#}");
    for said in ["127.0.0.1", &named(&locked)] {
        assert!(run.stderr.contains(&format!("toastctl: error: {said}")), "{}", run.stderr);
    }

    // people see one ranking, and what is missing from it
    let run = on(&lines, &[&arguments[..], &["table", "--limit", "20"]].concat());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(run.stdout.matches("; by size:").count(), 1, "{}", run.stdout);
    assert!(
        run.stdout.contains("4 databases (") && run.stdout.contains("), 5 tables, "),
        "{}",
        run.stdout
    );
    for database in [&one, &two] {
        let line = format!(" {} ", named(database));
        // its own line, its table and the two columns
        assert_eq!(run.stdout.lines().filter(|text| text.starts_with(&line)).count(), 4);
    }
    assert!(run.stdout.contains("6 databases: 3 done, 3 with problems"), "{}", run.stdout);

    let run = on(&lines, &[&arguments[..], &["csv"]].concat());
    let head = run.stdout.lines().next().unwrap();
    assert!(head.starts_with("target,relation,column,"), "{head}");
    let of_one = format!("{},public.t,v,", named(&one));
    assert_eq!(run.stdout.lines().filter(|line| line.starts_with(&of_one)).count(), 1);
}

#[test]
fn monitoring_and_pages_have_all_databases_and_names_without_the_server_that_they_share() {
    let server = server();
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    server.database("postgres").psql("CREATE EXTENSION pageinspect");
    let host = server.socket_dir().display().to_string();
    let connection = ["--all", "-h", &host, "-U", server.superuser()];
    let all = |arguments: &[&str], code| {
        let run = run(toastctl().args(arguments).args(connection).env("COLUMNS", "80"));
        assert_eq!(run.code, Some(code), "{arguments:?}: {}{}", run.stdout, run.stderr);
        run.stdout
    };
    let text = all(&["inspect"], 0);
    assert!(!text.contains(&format!(" {host}")) && text.contains("| State\n"), "{text}");
    for database in [&one, &two, &server.database("postgres")] {
        assert!(text.contains(&format!("\n {} ", database.name())), "{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let limited = all(&["inspect", "--sort", "name", "--limit", "2"], 0);
    assert!(limited.contains("\n(1 more: --limit)\n"), "{limited}");
    // a page names more tables than a screen has room for
    let many = (1..=6).map(|i| format!("CREATE TABLE many_{i} (v int);"));
    one.psql(&many.collect::<String>());
    let page = all(&["inspect", "--format", "html"], 0);
    assert!(page.contains("many_6") && !page.contains(" more)"), "{page}");
    for verb in ["inspect", "check"] {
        let page = all(&[verb, "--format", "html"], 0);
        assert_eq!(page.matches("</html>").count(), 1);
        assert!(page.contains(one.name()) && page.contains(two.name()), "{verb}: {page}");
        assert!(page.contains("<p>Databases on ") && page.contains(", PostgreSQL "), "{page}");
        let metrics = all(&[verb, "--format", "openmetrics"], 0);
        let complete = if verb == "check" { "check_complete" } else { "complete" };
        let family = format!("# TYPE toastctl_{complete} gauge");
        assert_eq!(metrics.matches(&family).count(), 1, "{metrics}");
        for database in [&one, &two] {
            let series = format!(
                "\ntoastctl_{complete}{{database=\"{}\",target=\"{}\"}} 1\n",
                database.name(),
                named(database)
            );
            assert_eq!(metrics.matches(&series).count(), 1, "{series}{metrics}");
        }
        assert!(metrics.ends_with("# EOF\n") && metrics.matches("# EOF").count() == 1);
        let service = all(&[verb, "--format", "nagios"], 0);
        assert!(service.starts_with("TOAST OK: 3 databases, 3 ok | databases=3 "), "{service}");
        assert!(service.contains(&format!("\nOK {}: ", named(&two))), "{service}");
    }
    // a database that does not answer is not fine
    let down = format!("host=127.0.0.1 port={} dbname=x", free_port());
    for verb in ["inspect", "check"] {
        let run = on(&[one.url(), down.clone()], &[verb, "--format", "nagios"]);
        assert_eq!(run.code, Some(3), "{}", run.stdout);
        assert!(run.stdout.starts_with("TOAST UNKNOWN: 2 databases, 1 unknown, 1 ok |"));
        let run = on(&[one.url(), down.clone()], &[verb, "--format", "openmetrics"]);
        assert_eq!(run.code, Some(3), "{}", run.stdout);
        assert!(run.stdout.contains("complete{target=\"127.0.0.1:"), "{}", run.stdout);
    }
}

#[test]
fn all_databases_of_a_server_that_allow_connections_are_visited_by_every_verb() {
    let server = server();
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    let closed = server.create_database("closed");
    let no_connections = format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", closed.name());
    server.database("postgres").psql(&no_connections);
    let host = server.socket_dir().display().to_string();
    let connection = ["--all", "-h", &host, "-U", server.superuser(), "--format", "jsonl"];
    let all = |arguments: &[&str]| run(toastctl().args(arguments).args(connection));
    for verb in ["inspect", "check", "advise-threshold"] {
        let run = all(&[verb]);
        let reports = reports(&run);
        let names: Vec<&String> = reports.keys().collect();
        let postgres = format!("{host}:{}/postgres", server.port());
        let mut expected = [named(&one), postgres, named(&two)];
        expected.sort();
        assert_eq!(names, expected.iter().collect::<Vec<_>>(), "{verb}: {}", run.stderr);
        assert!(reports[&named(&one)]["result"]["schema"].is_string(), "{verb}: {}", run.stdout);
    }
    // postgres has no such table
    for arguments in [
        &["keys", "t"][..],
        &["retoast", "t", "-c", "v", "--toaster", "external"],
        &["compact", "t"],
        &["reindex", "t", "--indexes", "all"],
    ] {
        let run = all(arguments);
        let reports = reports(&run);
        let code = |database: &Database<'_>| reports[&named(database)]["exit_code"].clone();
        let verb = arguments[0];
        let expected = if verb == "keys" { 2 } else { 1 };
        assert_eq!(run.code, Some(expected), "{verb}: {}", run.stderr);
        if verb != "keys" {
            assert_eq!([code(&one), code(&two)], [0, 0], "{verb}: {}", run.stderr);
            assert_eq!(reports[&named(&two)]["result"]["schema"], "toastctl.retoast/1");
        }
    }
    for database in [&one, &two] {
        let sql = "SELECT DISTINCT pg_column_compression(v) IS NULL FROM t";
        assert_eq!(database.psql(sql), "t");
    }
}

#[test]
fn a_pattern_that_matches_nothing_in_one_database_is_a_notice_and_an_error_if_it_matches_nowhere() {
    let server = server();
    let one = with_table(&server, "one");
    let two = server.create_database("two");
    two.psql("CREATE TABLE other (v text); CREATE EXTENSION pageinspect");
    let targets = [one.url(), two.url()];
    for arguments in [&["compact"][..], &["inspect"], &["check"], &["advise-threshold"]] {
        let run = on(&targets, &[arguments, &["t*"]].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        let notice = format!("notice: {}: no table matches \"t*\"\n", named(&two));
        assert!(run.stderr.contains(&notice), "{arguments:?}: {}", run.stderr);
        let nowhere = on(&targets, &[arguments, &["z*"]].concat());
        assert_eq!(nowhere.code, Some(1), "{arguments:?}: {}", nowhere.stderr);
        let error = "error: no table matches \"z*\" in any of the databases\n";
        assert!(nowhere.stderr.contains(error), "{arguments:?}: {}", nowhere.stderr);
    }
    // where another pattern matches, this one may be a slip
    let run = on(&targets, &["compact", "t*", "o*"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
}

/// `postgres` has nothing but catalogs on most servers, and no pageinspect.
#[test]
fn a_database_without_tables_and_pages_is_named_as_not_checked_and_no_problem() {
    let server = server();
    let empty = format!("{}:{}/postgres", server.socket_dir().display(), server.port());
    let host = server.socket_dir().display().to_string();
    let connection = ["--all", "-h", &host, "-U", server.superuser()];
    let all = |arguments: &[&str]| run(toastctl().arg("check").args(arguments).args(connection));
    const WHY: &str = "there are no tables, and system catalogs cannot be checked without the extension pageinspect";
    // of nothing that was checked nothing is known
    let nowhere = all(&[]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.stdout);
    assert!(
        nowhere.stderr.contains(&format!("{WHY} in any of the databases")),
        "{}",
        nowhere.stderr
    );
    let nowhere = all(&["--format", "nagios"]);
    assert_eq!(nowhere.code, Some(3), "{}", nowhere.stdout);
    assert!(nowhere.stdout.starts_with("TOAST UNKNOWN: "), "{}", nowhere.stdout);

    let one = with_table(&server, "one");
    let found = all(&[]);
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    assert!(found.stdout.contains("2 databases: 1 done, 1 not checked\n"), "{}", found.stdout);
    assert!(
        found.stdout.contains(&format!(" postgres |    0 | {}", &WHY[..30])),
        "{}",
        found.stdout
    );
    assert!(found.stderr.contains(&format!("notice: {empty}: {WHY}\n")), "{}", found.stderr);
    let service = all(&["--format", "nagios"]);
    assert_eq!(service.code, Some(0), "{}", service.stdout);
    assert!(service.stdout.starts_with("TOAST OK: 2 databases, 2 ok |"), "{}", service.stdout);
    assert!(service.stdout.contains(&format!("\nOK {empty}: {WHY}\n")), "{}", service.stdout);
    let report = &reports(&all(&["--format", "jsonl"]))[&empty];
    assert_eq!((&report["exit_code"], &report["error"]), (&0.into(), &WHY.into()), "{report}");
    let metrics = all(&["--format", "openmetrics"]);
    let unread = format!("toastctl_check_complete{{target=\"{empty}\"}} 0\n");
    assert_eq!(metrics.code, Some(0), "{}", metrics.stderr);
    assert!(metrics.stdout.contains(&unread), "{}", metrics.stdout);
    // who names the database has asked for it
    let url = server.database("postgres").url();
    let named = run(toastctl().args(["check", "-d", &url]));
    assert_eq!(named.code, Some(1), "{}", named.stdout);
    assert_eq!(on(&[one.url(), url], &["check"]).code, Some(1));
    // tables may be damaged
    server.database("postgres").psql("CREATE TABLE t AS SELECT 1 AS id");
    let unread = all(&[]);
    assert_eq!(unread.code, Some(1), "{}", unread.stdout);
    assert!(unread.stderr.contains("check needs pages"), "{}", unread.stderr);
}

#[test]
fn one_server_under_two_names_is_counted_once() {
    let server = server();
    let one = with_table(&server, "one");
    let two = with_table(&server, "two");
    let dir = tempfile::tempdir().unwrap();
    let other_name = dir.path().join("other");
    std::os::unix::fs::symlink(server.socket_dir(), &other_name).unwrap();
    let renamed = |database: &Database<'_>| {
        let conninfo = database.conninfo();
        let here = server.socket_dir().display().to_string();
        assert!(conninfo.contains(&here), "{conninfo}");
        conninfo.replace(&here, &other_name.display().to_string())
    };
    let lines = [one.conninfo(), renamed(&one), two.conninfo()];
    for arguments in [
        &["inspect"][..],
        &["check"],
        &["advise-threshold"],
        &["retoast", "t", "-c", "v", "--toaster", "external", "--dry-run"],
    ] {
        let run = on(&lines, &[arguments, &["--format", "json"]].concat());
        let reports = reports(&run);
        assert_eq!(reports.len(), 2, "{arguments:?}: {}", run.stdout);
        assert!(reports.keys().any(|name| *name == named(&two)), "{arguments:?}: {}", run.stdout);
        let said = run.stderr.matches("is the same database as ").count();
        assert_eq!(said, 1, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains("by its system identifier: counted once"), "{}", run.stderr);
    }
    let text = on(&lines, &["inspect"]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert!(text.stdout.contains("2 databases: 2 done"), "{}", text.stdout);
    // all databases of it
    let run = on(&lines[..2], &["inspect", "--all", "--format", "json"]);
    assert_eq!(reports(&run).len(), 3, "{}", run.stdout);
    assert!(run.stderr.contains("3 databases are on the same server as "), "{}", run.stderr);
    // a standby is another server
    let standby = server.start_standby();
    let lines = [one.conninfo(), standby.database(one.name()).conninfo()];
    assert_eq!(reports(&on(&lines, &["inspect", "--format", "json"])).len(), 2);
}

#[test]
fn a_second_run_skips_what_is_done_and_one_database_of_a_server_is_rewritten_at_a_time() {
    let log = [("log_statement", "all"), ("log_line_prefix", "%d/")];
    let options = log.iter().fold(Options::default(), |all, (name, value)| all.set(name, value));
    let server = Server::start(&Options { tcp: true, ..options });
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    let later = server.create_database("later");
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("fleet");
    // the same server by two names
    let by_address = format!(
        "host=127.0.0.1 port={} user={} dbname={}",
        server.port(),
        server.superuser(),
        two.name()
    );
    let file = written(&[one.url(), by_address, later.url()].join("\n"));
    let convert = |toaster: &str| {
        let mut command = command(file.path(), &["retoast", "t", "-c", "v", "--toaster", toaster]);
        command.arg("--checkpoint").arg(&checkpoint);
        run(&mut command)
    };
    let first = convert("external");
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert!(first.stdout.contains("3 databases: 2 done, 1 with problems"), "{}", first.stdout);
    let saved = fs::read_to_string(&checkpoint).unwrap();
    assert!(saved.contains(&named(&one)) && !saved.contains(later.name()), "{saved}");
    let of = |line: &str| line.split('/').next().unwrap_or_default().to_owned();
    let mut updated: Vec<String> = server
        .logged(|line| line.contains("UPDATE ONLY \"public\".\"t\""))
        .iter()
        .map(|line| of(line))
        .collect();
    assert!(updated.len() > 2, "{updated:?}");
    updated.dedup();
    assert_eq!(updated.len(), 2, "{updated:?}");

    let other = convert("lz4");
    assert_eq!(other.code, Some(2), "{}", other.stderr);
    assert!(other.stderr.contains("belongs to another run"), "{}", other.stderr);
    later.psql(TABLE);
    let second = convert("external");
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert!(second.stdout.contains("3 databases: 1 done, 2 done before"), "{}", second.stdout);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_signal_ends_all_and_says_how_to_continue() {
    let server = server();
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    let lock = Holder::of(&one, "LOCK TABLE t");
    let file = written(&[one.url(), two.url()].join("\n"));
    let arguments = ["retoast", "t", "-c", "v", "--toaster", "external", "--max-connections", "3"];
    let running = Running::start(&mut command(file.path(), &arguments));
    one.until_true(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'toastctl%' \
         AND datname = current_database())",
    );
    running.signal(crate::support::command::Signal::INT);
    let run = running.end();
    drop(lock);
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert_eq!(
        run.stderr.matches("stopped by a signal; to continue: ").count(),
        1,
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("--targets"), "{}", run.stderr);
    assert!(run.stdout.contains("stopped before its turn"), "{}", run.stdout);
    assert_eq!(two.psql("SELECT DISTINCT pg_column_compression(v) FROM t"), "pglz");
}

#[test]
fn a_signal_before_servers_answer_leaves_all_databases_before_their_turn() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let target = |name: &str| format!("postgres://u@127.0.0.1:{port}/{name}");
    let file = written(&[target("one"), target("two")].join("\n"));
    let running = Running::start(&mut command(file.path(), &["compact", "t"]));
    let connected = silent.accept().unwrap();
    running.signal(crate::support::command::Signal::INT);
    let run = running.end();
    drop(connected);
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert_eq!(run.stdout.matches("stopped before its turn").count(), 2, "{}", run.stdout);
    assert_eq!(
        run.stderr.matches("stopped by a signal; to continue: ").count(),
        1,
        "{}",
        run.stderr
    );
}

#[test]
fn files_that_make_no_sense_are_refused_and_no_secret_is_shown() {
    let server = server();
    let database = with_table(&server, "one");
    let inspect = |text: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        run(&mut command(file.path(), &["inspect"]))
    };
    for (text, said) in [
        (&b""[..], "the file names no database"),
        (b"# nothing\n\n", "the file names no database"),
        (b"a\n\xff\xfe", "line 2 is not UTF-8"),
        (b"a\0b", "line 1 contains a zero byte"),
        (&[b'x'; 9000], "line 1 is longer than 8192 bytes"),
    ] {
        let run = inspect(text);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    let run = run_on(Path::new("/dev/zero"));
    assert!(run.code == Some(2) && run.stderr.contains("not a regular file"), "{}", run.stderr);
    let mut bad: Vec<String> = [
        "postgres:/joe:sesame@h/d",
        "joe:sesame@h x=1",
        "postgres://joe:ses/ame%zz@h/d",
        "password=open sesame",
        "host=/nowhere port=1 user=joe password=sesame dbname=d",
        "postgres://joe:sesame@/d?host=/nowhere&nonsense=sesame",
        "\u{1b}[31m",
        "no.such.service",
    ]
    .map(str::to_owned)
    .into();
    bad.push(database.url());
    for format in ["table", "json", "csv"] {
        let run = on(&bad, &["inspect", "-vv", "--format", format]);
        assert_eq!(run.code, Some(3), "{}", run.stderr);
        for text in [&run.stdout, &run.stderr] {
            assert!(!text.contains("sesame") && !text.contains('\u{1b}'), "{text}");
        }
        assert!(run.stderr.contains("error: line 1 of "), "{}", run.stderr);
        assert!(run.stderr.contains("definition of service \"no.such.service\" not found"));
        // the one that makes sense is read
        assert!(run.stdout.contains(&named(&database)), "{}", run.stdout);
    }

    // from standard input
    let mut child = command(Path::new("-"), &["inspect", "--format", "jsonl"]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(format!("{0}\n{0}\n", database.url()).as_bytes())
        .unwrap();
    let run = ended(child);
    assert_eq!((run.code, reports(&run).len()), (Some(0), 1), "{}", run.stderr);
    assert!(run.stderr.contains("named twice"), "{}", run.stderr);
}

fn run_on(file: &Path) -> Run {
    run(&mut command(file, &["inspect"]))
}

#[test]
fn what_is_about_one_database_is_refused() {
    let file = written("x");
    for (arguments, said) in [
        (&["inspect", "-h", "x"][..], "cannot be used with"),
        (&["inspect", "-d", "x"], "cannot be used with"),
        (&["inspect", "-W"], "cannot be used with"),
        (&["inspect", "--compare", "/nosuch"], "the file \"/nosuch\" cannot be read"),
        (&["inspect", "--relation-file", "x", "--columns", "a int4"], "cannot be used with files"),
        (&["inspect", "--jobs", "20"], "a database takes 20 connections"),
        (&["check", "--salvage", "x"], "--salvage cannot be used"),
        (&["advise-threshold", "--emit", "sql"], "--emit cannot be used"),
        (&["advise-threshold", "--calibration", "x"], "--calibration cannot be used"),
        (&["compact", "t", "--set", "log=x"], "--set log cannot be used"),
        (&["value", "t"], "unexpected argument '--targets'"),
    ] {
        let run = run(&mut command(file.path(), arguments));
        assert!(matches!(run.code, Some(2 | 3)), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{arguments:?}: {}", run.stderr);
    }
    assert!(!Path::new("log").exists());
    let run = run(toastctl().args(["inspect", "--max-connections", "3"]));
    assert!(run.code == Some(2) && run.stderr.contains("--all"), "{}", run.stderr);
}

#[test]
fn what_has_changed_since_an_earlier_run_is_told_for_all_databases_together() {
    let server = server();
    let (one, two) = (with_table(&server, "one"), with_table(&server, "two"));
    let lines = [one.conninfo(), two.conninfo()];
    let kept = on(&lines, &["inspect", "--format", "json"]).ok();
    let file = written(&kept);
    let compare = ["inspect", "--compare", file.path().to_str().unwrap()];
    let same = on(&lines, &compare).ok();
    assert!(same.contains("No table and no column has changed in size."), "{same}");
    assert!(same.contains("No finding is new.") && same.contains("No finding is gone."), "{same}");
    two.psql("INSERT INTO t SELECT i, repeat(i::text, 5000) FROM generate_series(201, 4000) AS i");
    let three = with_table(&server, "three");
    let changed = on(&[two.conninfo(), three.conninfo()], &compare);
    assert_eq!(changed.code, Some(0), "{}", changed.stderr);
    let row = changed.stdout.lines().find(|line| line.contains(" t ") && line.contains('+'));
    assert!(row.is_some_and(|row| row.contains(two.name())), "{}", changed.stdout);
    for (name, why) in [(&three, "has not read it"), (&one, "only the earlier run has read it")] {
        let told = changed.stderr.lines().filter(|line| line.contains(name.name()));
        let told: Vec<&str> = told.collect();
        assert!(told.iter().any(|line| line.contains(why)), "{}", changed.stderr);
    }
    let arguments = [&compare[..], &["--format", "json"]].concat();
    let report = &reports(&on(&lines, &arguments))[&named(&two)];
    assert!(report["result"]["compared"]["tables"][0]["bytes_change"].as_i64().unwrap() > 0);
    let alarm = on(&lines, &[&compare[..], &["--fail-on", "growth>8kB"]].concat());
    assert_eq!(alarm.code, Some(7), "{}", alarm.stderr);
    let of_two = alarm.stdout.lines().find(|line| line.contains(" 7 | --fail-on growth>8kB: "));
    assert!(of_two.is_some_and(|line| line.contains(two.name())), "{}", alarm.stdout);
    let of_one = written(kept.lines().next().unwrap());
    let arguments = ["inspect", "--compare", of_one.path().to_str().unwrap()];
    let refused = run(toastctl().args(arguments).args(["-d", &one.conninfo()]));
    assert!(refused.code == Some(2) && refused.stderr.contains("--all"), "{}", refused.stderr);
}
