//! The shells' completions, typed into the shells on a terminal of their own: names of tables and columns come from the
//! server that the command line names, and without one nothing is said and nobody waits.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::{run, scrub, toastctl};
use crate::support::server::{self, Auth, Database, Options, Server};

/// What the shells print when a line can be typed.
const READY: &str = "READY-";

/// How a shell is started that completes by our script, prints [`READY`], and writes the words of `toastctl ...` to
/// the file `words`, each line in brackets, instead of running it.
fn start(shell: &str, home: &Path) -> Vec<String> {
    let script = home.join("script");
    std::fs::write(&script, run(toastctl().args(["completions", shell])).ok()).unwrap();
    let (script, words) = (script.display(), home.join("words"));
    let words = words.display();
    let print = format!("toastctl() {{ printf '[%s]' \"$@\" >>'{words}'; echo >>'{words}'; }}");
    let (name, text, options) = match shell {
        "bash" => (
            "rc",
            format!("source '{script}'\n{print}\nPS1={READY}"),
            &["--noprofile", "--rcfile", "rc", "-i"][..],
        ),
        "zsh" => (
            ".zshrc",
            format!(
                "autoload -Uz compinit; compinit -u -D; source '{script}'\n{print}\nPS1={READY}\n\
                 unsetopt PROMPT_SP"
            ),
            &["-d", "-i"][..],
        ),
        _ => (
            "rc",
            format!(
                "set -g fish_greeting; source '{script}'\n\
                 function toastctl; printf '[%s]' $argv >>'{words}'; echo >>'{words}'; end\n\
                 function fish_prompt; echo -n {READY}; end"
            ),
            &["--no-config", "-i", "-C", "source rc"][..],
        ),
    };
    std::fs::write(home.join(name), text).unwrap();
    let mut command = vec![shell.to_owned()];
    command.extend(options.iter().map(|option| format!("'{option}'")));
    command
}

/// The words of each of these lines after they were typed into a shell, where `\t` completes. Nothing but them appears
/// on the terminal.
fn typed(shell: &str, environment: &[(&str, String)], lines: &[&str]) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let command = start(shell, home).join(" ");
    let program = Path::new(env!("CARGO_BIN_EXE_toastctl")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut terminal = Command::new("script");
    scrub(&mut terminal);
    terminal.args(["-qec", &command, "/dev/null"]).current_dir(home).env("HOME", home);
    terminal.env("ZDOTDIR", home).env("TERM", "xterm").env("COLUMNS", "200").env("PATH", path);
    terminal.envs(environment.iter().map(|(name, value)| (name, value)));
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let mut keys = lines.iter().map(|line| format!("{line}\n")).chain(["exit\n".to_owned()]);
    let (mut shown, mut piece, mut seen) = (String::new(), [0; 4096], 0);
    let words = || std::fs::read_to_string(home.join("words")).unwrap_or_default();
    let mut entered = 0;
    loop {
        let read = screen.read(&mut piece).unwrap_or_default();
        if read == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&piece[..read]));
        // a prompt is drawn again while a line is edited: the next line is typed once the one before was run
        if shown[seen..].contains(READY) && words().lines().count() >= entered {
            seen = shown.len();
            if let Some(keys) = keys.next() {
                entered += 1;
                keyboard.write_all(keys.as_bytes()).unwrap();
            }
        }
    }
    child.wait().unwrap();
    for noise in ["error", "NOTICE", "WARNING", "Password"] {
        assert!(!shown.contains(noise), "{shell}: {shown}");
    }
    let words = words();
    assert_eq!(words.lines().count(), lines.len(), "{shell}: {words}\n{shown}");
    words.lines().map(str::to_owned).collect()
}

/// The shells that are installed; bash always is.
fn shells() -> Vec<&'static str> {
    let is_there =
        |shell: &&str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(shell).exists());
    let (there, absent): (Vec<_>, Vec<_>) = ["bash", "zsh", "fish"].into_iter().partition(is_there);
    if !absent.is_empty() {
        eprintln!("not run: there is no {}", absent.join(" and no "));
    }
    there
}

fn environment(database: &Database<'_>) -> Vec<(&'static str, String)> {
    let server = database.server();
    vec![
        ("PGHOST", server.socket_dir().display().to_string()),
        ("PGPORT", server.port().to_string()),
        ("PGUSER", server.superuser().to_owned()),
        ("PGDATABASE", database.name().to_owned()),
    ]
}

#[test]
fn shells_complete_tables_and_columns() {
    let database = server::shared().create_database("completed");
    database.psql("CREATE DATABASE completed_of_other");
    database.psql(
        "CREATE TABLE orders (id int, doc jsonb, note text, gone text);\
         ALTER TABLE orders DROP gone;\
         CREATE TABLE \"Mixed Case\" (\"The Notes\" text);\
         CREATE TABLE \"it's\" (t text);\
         CREATE SCHEMA archive; CREATE TABLE archive.old_orders (t text);\
         CREATE SCHEMA \"My Schema\"; CREATE TABLE \"My Schema\".kept (t text);\
         CREATE TABLE parts (p text, body text) PARTITION BY LIST (p);\
         CREATE TABLE parts_1 PARTITION OF parts DEFAULT",
    );
    let cases = [
        ("toastctl inspect ord\t", "[inspect][orders]"),
        ("toastctl inspect public.ord\t", "[inspect][public.orders]"),
        ("toastctl inspect arc\t", "[inspect][archive.old_orders]"),
        ("toastctl check mix\t", "[check][\"Mixed Case\"]"),
        ("toastctl check '\"Mi\t", "[check][\"Mixed Case\"]"),
        ("toastctl check \"Mi\t", "[check][\"Mixed Case\"]"),
        ("toastctl check public.mi\t", "[check][public.\"Mixed Case\"]"),
        ("toastctl compact it\t", "[compact][\"it's\"]"),
        ("toastctl value '\"My Schema\".k\t", "[value][\"My Schema\".kept]"),
        ("toastctl keys orders -c d\t", "[keys][orders][-c][doc]"),
        ("toastctl retoast orders --column=no\t", "[retoast][orders][--column=note]"),
        ("toastctl keys '\"Mixed Case\"' -c T\t", "[keys][\"Mixed Case\"][-c][The Notes]"),
        ("toastctl retoast parts -c b\t", "[retoast][parts][-c][body]"),
        // neither dropped columns nor those that are never toasted
        ("toastctl keys orders -c g\t", "[keys][orders][-c][g]"),
        ("toastctl keys orders -c i\t", "[keys][orders][-c][i]"),
        ("toastctl reindex orders --form\tj\t", "[reindex][orders][--format][json]"),
        (
            "toastctl retoast orders -c doc --toaster lz\t",
            "[retoast][orders][-c][doc][--toaster][lz4]",
        ),
        (
            "toastctl advise-threshold orders --policy rat\t",
            "[advise-threshold][orders][--policy][ratio=0.95]",
        ),
        (
            "toastctl compact orders --set sourc\tp\t",
            "[compact][orders][--set][source=pageinspect]",
        ),
        ("toastctl inspect --fail-on hi\t", "[inspect][--fail-on][high]"),
        ("toastctl inspect -d completed_of_o\t", "[inspect][-d][completed_of_other]"),
        ("toastctl help exit\t", "[help][exit-codes]"),
    ];
    for shell in shells() {
        // fish itself leaves out what does not contain the typed letters as they are
        let is_for = |line: &str| shell != "fish" || !line.contains("public.mi");
        let cases: Vec<_> = cases.iter().filter(|(line, _)| is_for(line)).collect();
        let lines: Vec<&str> = cases.iter().map(|(line, _)| *line).collect();
        let words = typed(shell, &environment(&database), &lines);
        for ((line, wanted), words) in cases.into_iter().zip(words) {
            assert_eq!(words, *wanted, "{shell}: {line:?}");
        }
    }
}

#[test]
fn options_on_the_line_name_the_server() {
    let database = server::shared().create_database("completed_of_line");
    database.psql("CREATE TABLE orders (doc jsonb)");
    let server = database.server();
    let (host, port, user) = (server.socket_dir().display(), server.port(), server.superuser());
    let options = format!("-h {host} --port={port} -U {user} -d {}", database.name());
    let line = format!("toastctl inspect {options} ord\t");
    for shell in shells() {
        let words = typed(shell, &[], &[&line]);
        assert!(words[0].ends_with("[orders]"), "{shell}: {words:?}");
    }
}

/// What bash would be offered, and how long that took.
fn offered(options: &str) -> (String, Duration) {
    let begun = Instant::now();
    let line = format!("toastctl inspect {options} ord");
    // a session without a terminal could not ask for a password anyway: shells do have one
    let mut script = Command::new("script");
    scrub(&mut script);
    let ask = format!("{} completions bash -- ord '{line}'", env!("CARGO_BIN_EXE_toastctl"));
    script.args(["-qec", &ask, "/dev/null"]);
    let run = run(&mut script);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    (run.stdout, begun.elapsed())
}

#[test]
fn without_a_server_nothing_is_said_and_nobody_waits() {
    // a backlog takes the connection, and nobody answers
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let auth = Auth::Scram { password: "sesame".into() };
    let locked = Server::start(&Options { auth, ..Options::default() });
    locked.database("postgres").psql("CREATE TABLE orders (doc jsonb)");
    let (host, user) = (locked.socket_dir().display(), locked.superuser());
    for options in [
        "-h /nonexistent".to_owned(),
        "-h no.such.host.invalid".to_owned(),
        format!("-h 127.0.0.1 -p {port}"),
        format!("-W -h {host} -p {} -U {user} -d postgres", locked.port()),
    ] {
        let (shown, took) = offered(&options);
        assert_eq!(shown, "", "{options}");
        // as long as the server may take, and what a busy machine takes to start a program
        assert!(took < Duration::from_secs(4), "{options}: {took:?}");
    }
}

#[test]
fn a_lock_on_a_table_keeps_nobody_waiting() {
    let database = server::shared().create_database("completed_locked");
    database.psql("CREATE TABLE orders (doc jsonb)");
    let mut holder = database.psql_command();
    holder.args(["-c", "BEGIN", "-c", "LOCK orders", "-c", "SELECT pg_catalog.pg_sleep(60)"]);
    let mut holder = holder.stdout(Stdio::null()).spawn().unwrap();
    database.until_true(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE granted \
         AND mode = 'AccessExclusiveLock' AND relation = 'orders'::regclass)",
    );
    let server = database.server();
    let (host, port, user) = (server.socket_dir().display(), server.port(), server.superuser());
    let options = format!("-h {host} -p {port} -U {user} -d {}", database.name());
    let (shown, _) = offered(&options);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(shown.trim_end(), "orders");
}
