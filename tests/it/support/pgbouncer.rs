//! A throwaway pgbouncer before a throwaway server, gone when the test process is gone.

use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::{Run, run, scrub};
use crate::support::server::{Database, Server};

/// Runs `$1` with the settings `$2` until the pipe from the test process closes.
const KEEPER: &str = r#"
trap '' HUP INT TERM
exec 3<&0
"$1" -q "$2" </dev/null 3<&- &
pid=$!
read -r _ <&3
kill -KILL "$pid"
"#;

/// A pooler with this many sessions of each database.
pub(crate) struct Pooler<'a> {
    server: &'a Server,
    port: u16,
    keeper: Child,
    pipe: Option<ChildStdin>,
}

impl<'a> Pooler<'a> {
    /// Starts one, by a Unix socket beside the server's.
    pub(crate) fn start(server: &'a Server, mode: &str, more: &str) -> Pooler<'a> {
        let dir = server.socket_dir().display();
        let port = crate::support::server::free_port();
        let settings = format!(
            "[databases]\n* = host={dir} port={} user={}\n[pgbouncer]\nlisten_addr =\n\
             listen_port = {port}\nunix_socket_dir = {dir}\nauth_type = any\npool_mode = {mode}\n\
             pidfile =\n{more}\n",
            server.port(),
            server.superuser(),
        );
        let file: PathBuf = server.socket_dir().join(format!("pgbouncer-{port}.ini"));
        server.write_private(&file, settings.as_bytes());
        let mut command = server.as_its_user("sh");
        command.args(["-c", KEEPER, "keeper", program(), file.to_str().unwrap()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = command.spawn().unwrap();
        let pipe = keeper.stdin.take();
        let pooler = Pooler { server, port, keeper, pipe };
        let began = Instant::now();
        while pooler.psql(&server.database("postgres"), "SELECT 1").code != Some(0) {
            assert!(began.elapsed() < Duration::from_secs(30), "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        pooler
    }

    /// A key=value connection string that goes through it.
    pub(crate) fn conninfo(&self, database: &Database<'_>) -> String {
        format!(
            "host={} port={} user={} dbname={}",
            self.server.socket_dir().display(),
            self.port,
            self.server.superuser(),
            database.name()
        )
    }

    /// `psql` through it.
    pub(crate) fn psql_command(&self, database: &Database<'_>) -> Command {
        let mut psql = Command::new("psql");
        scrub(&mut psql);
        psql.args(["-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.conninfo(database)]);
        psql
    }

    /// Statements through it, each sent by itself.
    pub(crate) fn psql(&self, database: &Database<'_>, sql: &str) -> Run {
        run(self.psql_command(database).args(["-c", sql]))
    }
}

impl Drop for Pooler<'_> {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.keeper.wait();
    }
}

/// Debian keeps it where only root looks.
fn program() -> &'static str {
    let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = places.into_iter().find(|place| std::path::Path::new(place).exists());
    found.expect("pgbouncer is installed")
}
