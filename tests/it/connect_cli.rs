//! The connection options of the command itself: exit codes, warnings, and the password asked for on a terminal.

use crate::support::command::{Run, run, scrub, toastctl};
use crate::support::library::write;
use crate::support::server::{Auth, Options, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PASSWORD: &str = "open sesame";

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let auth = Auth::Scram { password: PASSWORD.into() };
        let server = Server::start(&Options { auth, ..Options::default() });
        let sql = "CREATE EXTENSION pageinspect; CREATE TABLE t AS SELECT 1 AS n";
        server.database("postgres").psql(sql);
        server
    })
}

fn inspect() -> Command {
    let mut command = toastctl();
    command.args(["inspect", "t", "-h"]).arg(server().socket_dir());
    command.args(["-U", "postgres", "-d", "postgres"]);
    command
}

const PROMPT: &str = "Password for user postgres: ";

/// Runs `inspect` with these options on a terminal of its own; `typed` is typed once it prompts.
fn on_a_terminal(options: &str, typed: &str) -> Run {
    let inspect = format!(
        "{} inspect t -h {} -U postgres -d postgres {options}",
        env!("CARGO_BIN_EXE_toastctl"),
        server().socket_dir().display()
    );
    let mut script = Command::new("script");
    scrub(&mut script);
    script.args(["-qec", &inspect, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = screen.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        shown.extend_from_slice(&piece[..read]);
        if shown.ends_with(PROMPT.as_bytes()) {
            // the terminal stops to echo just after the prompt
            std::thread::sleep(Duration::from_millis(500));
            keyboard.write_all(typed.as_bytes()).unwrap();
        }
    }
    Run {
        code: child.wait().unwrap().code(),
        stdout: String::from_utf8(shown).unwrap(),
        stderr: String::new(),
    }
}

#[test]
fn a_password_is_asked_for_on_the_terminal_and_not_shown() {
    for (options, typed) in [("", "open sesame\n"), ("-W", "open sesame\n")] {
        let asked = on_a_terminal(options, typed);
        assert_eq!(asked.code, Some(0), "{}", asked.stdout);
        assert_eq!(asked.stdout.matches(PROMPT).count(), 1, "{}", asked.stdout);
        assert!(!asked.stdout.contains("sesame"), "{}", asked.stdout);
    }
    let wrong = on_a_terminal("", "closed sesame\n");
    assert_eq!(wrong.code, Some(3), "{}", wrong.stdout);
    assert!(wrong.stdout.contains("password authentication failed"), "{}", wrong.stdout);
}

#[test]
fn nobody_is_asked_with_the_option_that_forbids_it_or_without_a_terminal() {
    let forbidden = on_a_terminal("-w", "");
    assert!(!forbidden.stdout.contains("Password"), "{}", forbidden.stdout);
    assert_eq!(forbidden.code, Some(3));
    let mut alone = Command::new("setsid");
    scrub(&mut alone);
    alone.arg("--wait").arg(inspect().get_program()).args(inspect().get_args());
    let alone = run(&mut alone);
    assert_eq!(alone.code, Some(3), "{}", alone.stderr);
    assert!(
        alone.stderr.ends_with("failed: fe_sendauth: no password supplied\n"),
        "{}",
        alone.stderr
    );
}

#[test]
fn exit_codes_tell_a_bad_option_from_a_failed_connection() {
    let with_password = |command: &mut Command| run(command.env("PGPASSWORD", PASSWORD));
    assert_eq!(with_password(&mut inspect()).code, Some(0));
    let bad = with_password(inspect().env("PGSSLMODE", "maybe"));
    assert_eq!(bad.code, Some(2), "{}", bad.stderr);
    assert!(bad.stderr.contains("invalid sslmode value: \"maybe\""), "{}", bad.stderr);
    let unknown = with_password(toastctl().args(["inspect", "t", "-d", "hots=a"]));
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    let wrong_port = with_password(inspect().args(["-p", "1"]));
    assert_eq!(wrong_port.code, Some(3), "{}", wrong_port.stderr);
    let socket = server().socket_dir().join(".s.PGSQL.1");
    let expected = format!(
        "connection to server on socket \"{}\" failed: No such file or directory\n\
         \tIs the server running locally and accepting connections on that socket?\n",
        socket.display()
    );
    assert!(wrong_port.stderr.ends_with(&expected), "{}", wrong_port.stderr);
}

#[test]
fn an_open_password_file_is_warned_of_and_ignored() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("pgpass");
    write(&path, "*:*:*:*:open sesame\n", 0o644);
    let open = run(inspect().arg("-w").env("PGPASSFILE", &path));
    assert_eq!(open.code, Some(3), "{}", open.stderr);
    assert!(open.stderr.contains("has group or world access"), "{}", open.stderr);
    write(&path, "*:*:*:*:open sesame\n", 0o600);
    let closed = run(inspect().arg("-w").env("PGPASSFILE", &path));
    assert!(!closed.ok().contains("sesame"));
}

#[test]
fn a_server_of_another_kind_is_called_that() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in other.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 100]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\nwhat is that?");
            // what is closed with something unread resets the connection, and loses the answer
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    let found = run(toastctl().args(["inspect", "-h", "127.0.0.1", "-p", &port.to_string()]));
    assert_eq!(found.code, Some(3), "{}", found.stderr);
    assert!(
        found.stderr.contains("the answer is not that of a PostgreSQL server"),
        "{}",
        found.stderr
    );
}

/// A message of the protocol.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

/// What a server sends until it waits for a query.
fn greeting() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.0\0"),
        message(b'K', &[0; 8]),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// A server that greets one client, and then does this, given the connection.
fn greeter(then: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut startup = [0; 1024];
        let _ = client.read(&mut startup).unwrap();
        client.write_all(&greeting()).unwrap();
        then(client);
    });
    format!("host=127.0.0.1 port={port} user=a dbname=a sslmode=disable connect_timeout=")
}

#[test]
fn a_server_that_never_answers_is_given_up_however_much_it_sends() {
    let begun = Instant::now();
    let notice = message(b'N', b"SNOTICE\0C00000\0Mhear, hear\0\0");
    let flood = greeter(move |mut client| {
        let many = notice.repeat(1000);
        while client.write_all(&many).is_ok() {}
    });
    let run = run(toastctl().args(["inspect", "t", "-d"]).arg(flood + "0"));
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("100000 notices and no result"), "{}", run.stderr);

    let drip = greeter(|mut client| {
        // the beginning of a row that never ends
        let row = message(b'D', &[0; 1000]);
        for byte in row.chunks(1) {
            std::thread::sleep(Duration::from_millis(200));
            if client.write_all(byte).is_err() {
                break;
            }
        }
    });
    let run = self::run(toastctl().args(["inspect", "t", "-d"]).arg(drip + "2"));
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("timeout expired"), "{}", run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
